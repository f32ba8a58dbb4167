"""The statements of a catalog are serializable, whichever isolation level is the default of PostgreSQL's server.

Tests of catalog.database.
"""

import pytest
import sqlalchemy as sa

from catalog import interleaving, waits
from refdelta import errors
from refdelta.catalog import SqlCatalog, database, sql


@pytest.fixture
def opened(postgres_server):
    """``opened(level)`` gives two sessions on a server with this default."""
    made = []

    def make(level):
        url = postgres_server.database(default_transaction_isolation=level.replace(" ", r"\ "))
        made.append(interleaving.Pair(postgres_server, url))
        with made[-1].first.catalog._database.connect() as connection:
            shown = connection.exec_driver_sql("show default_transaction_isolation").scalar()
        assert shown == level
        return made[-1]

    yield make
    for pair in made:
        pair.close()


@pytest.mark.sample(test=6)
@pytest.mark.parametrize("level", interleaving.LEVELS)
@pytest.mark.parametrize("first", interleaving.STATEMENTS)
def test_two_sessions_are_as_one_after_the_other(first, level, opened):
    assert interleaving.differences(opened(level), first) == []


def without_level(monkeypatch):
    """Let transactions have the server's default level."""
    make = sa.create_engine

    def made(*arguments, isolation_level=None, **settings):
        return make(*arguments, **settings)

    monkeypatch.setattr(database.sa, "create_engine", made)


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("level", interleaving.LEVELS[1:])
def test_to_set_the_level_and_to_repeat_are_each_enough_and_neither_is_missed(level, opened, monkeypatch):
    without_level(monkeypatch)
    assert interleaving.differences(opened(level), "propose 2") == []
    monkeypatch.setattr(database, "is_repeatable", lambda _: False)
    assert interleaving.differences(opened(level), "propose 2") != []


@pytest.mark.tier("test")
@pytest.mark.parametrize("level", interleaving.LEVELS)
def test_a_lost_update_is_found(level, opened, monkeypatch):
    """A proposal that looks first, and then moves the version whatever it is by then."""
    table, propose = sql.TABLES.c.id == sa.bindparam("table"), sql.SqlRatifier.propose

    def looks_first(ratifier, commit):
        if ratifier.ratified().latest != commit.version - 1:
            return ratifier._refused(commit)
        return propose(ratifier, commit)

    monkeypatch.setattr(sql.SqlRatifier, "propose", looks_first)
    monkeypatch.setattr(sql, "_MOVE", sa.update(sql.TABLES).where(table).values(latest=sa.bindparam("after")))
    assert interleaving.differences(opened(level), "propose 2") != []


def test_a_server_that_only_reads_by_default_is_read_and_what_writes_changes_nothing(postgres_server, tmp_path):
    world = waits.World(postgres_server.database(), tmp_path)
    reads_only = world.url + "%20-cdefault_transaction_read_only=on"
    with SqlCatalog(reads_only, warehouse=tmp_path) as catalog:
        found = waits.refusals(catalog, tmp_path)
    assert tuple(found) == waits.WRITES
    assert all("read-only transaction" in told for told in found.values())
    assert world.rows() == [1]
    assert world.direct.tables() == [waits.NAME]
    world.direct.close()


@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_a_transaction_that_is_rolled_back_for_another_one_is_repeated_a_few_times(state, tmp_path, monkeypatch):
    class Rolled(Exception):
        sqlstate = state

    left = []
    execute = sa.Connection.execute

    def executed(connection, statement, *given):
        if left and isinstance(statement, sa.Update):
            raise sa.exc.OperationalError("UPDATE", {}, left.pop())
        return execute(connection, statement, *given)

    monkeypatch.setattr(sa.Connection, "execute", executed)
    with SqlCatalog(f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path) as catalog:
        table = catalog.create_table("a", waits.SCHEMA, commits="inline")
        left[:] = [Rolled("deadlock detected")] * 2
        catalog.rename_table("a", "b")
        left[:] = [Rolled("deadlock detected")] * 2
        waits._append(catalog, table)
        left[:] = [Rolled("deadlock detected")] * 3
        with pytest.raises(errors.StoreError, match="deadlock detected"):
            catalog.rename_table("b", "c")
        assert (catalog.tables(), catalog.table("b").count()) == (["b"], 1)
