"""Statements of a SqlCatalog whose replies are lost or that are carried out twice, beside a program that drops the
table and makes one of its name anew: each has the effect of once, by the table's id, or says that it is not known.
"""

import collections
import contextlib
import functools
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa

from catalog.contract import append, check_log, ids, log_of
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.catalog import SqlCatalog, sql
from refdelta.catalog.sql import COMMITS, TABLES
from refdelta.transaction import background
from refdelta_storage import LocalStore, open_store

TESTS = Path(__file__).parents[1]
SCHEMA = pa.schema({"id": pa.int64()})
NAME, NEW = "sales.orders", "archive.orders"


@pytest.fixture
def reopen(tmp_path):
    opened = []

    def another():
        url = f"sqlite:///{tmp_path}/catalog.db"
        opened.append(SqlCatalog(url, warehouse=tmp_path / "warehouse", locations=[tmp_path]))
        return opened[-1]

    yield another
    background.settle()
    for catalog in opened:
        catalog.close()


class Line:
    """The connection of one catalog to its database, which fails at the end of chosen transactions.

    Attributes:
        faults: for each transaction to come, the fault: ``""``; ``reply``: it is carried out, and the reply is lost;
            ``request``: it is not carried out, and nobody knows; ``away``: as ``reply``, and nothing more is answered.
        meanwhile: called after the first lost reply: what another program does.
    """

    def __init__(self, monkeypatch, catalog, faults, meanwhile=lambda: None):
        self.faults, self.meanwhile, self.away, self.ended = list(faults), meanwhile, False, 0
        self.engine = catalog._database
        commit, execute = sa.Connection.commit, sa.Connection.execute
        line = self

        def committed(connection):
            if connection.engine is not line.engine:
                return commit(connection)
            fault = line.faults.pop(0) if line.faults else ""
            line.ended += 1
            if fault != "request":
                commit(connection)
            if not fault:
                return None
            connection.rollback()
            line.away = fault == "away"
            happens, line.meanwhile = line.meanwhile, lambda: None
            happens()
            raise sa.exc.OperationalError("COMMIT", {}, Exception("the connection was lost"))

        def executed(connection, *args, **kwargs):
            # The engine of options shares the pool of its engine.
            if line.away and connection.engine.pool is line.engine.pool:
                raise sa.exc.OperationalError("SELECT", {}, Exception("no connection"))
            return execute(connection, *args, **kwargs)

        monkeypatch.setattr(sa.Connection, "commit", committed)
        monkeypatch.setattr(sa.Connection, "execute", executed)


def statements(folder):
    """Each statement, and what must be true once it was carried out."""
    return {
        "create": (lambda c: c.create_table(NAME, SCHEMA), lambda c: c.tables() == [NAME]),
        "register": (lambda c: c.register_table(NAME, folder), lambda c: c.tables() == [NAME]),
        "rename": (lambda c: c.rename_table(NAME, NEW), lambda c: c.tables() == [NEW]),
        "drop": (lambda c: c.drop_table(NAME), lambda c: c.tables() == []),
        "purge": (lambda c: c.drop_table(NAME, purge=True), lambda c: c.tables() == []),
    }


MADE = ("rename", "drop", "purge")
FAULTS = [faults for length in (1, 2, 3) for faults in itertools.product(("", "reply", "request"), repeat=length)]


@pytest.mark.tier("test")
@pytest.mark.sample(test=2)
@pytest.mark.parametrize("what", ["create", "register", *MADE])
def test_a_statement_whose_replies_are_lost_has_its_effect_once(what, reopen, tmp_path, monkeypatch):
    write_deltalake(tmp_path / "files", pa.table({"id": [1]}))
    do, done = statements(tmp_path / "files")[what]
    for faults in FAULTS:
        mine = reopen()
        if what in MADE:
            append(mine.create_table(NAME, SCHEMA, commits="inline"), 1)
            background.settle()
        with monkeypatch.context() as patch:
            Line(patch, mine, faults)
            if set(faults) == {"request"} and len(faults) == 3:
                with pytest.raises(errors.StoreError, match="gave no answer"):
                    do(mine)
            else:
                do(mine)
                assert done(reopen()), faults
        other = reopen()
        for name in other.tables():
            other.drop_table(name)
        with other._database.begin() as connection:
            connection.execute(sa.delete(TABLES))
            assert connection.execute(sa.select(COMMITS)).all() == []


@pytest.mark.parametrize("what", ["create", "register", *MADE])
def test_a_statement_that_nobody_answers_says_that_it_is_not_known(what, reopen, tmp_path, monkeypatch):
    write_deltalake(tmp_path / "files", pa.table({"id": [1]}))
    mine = reopen()
    if what in MADE:
        mine.create_table(NAME, SCHEMA)
    with monkeypatch.context() as patch:
        Line(patch, mine, ["away"])
        with pytest.raises(
            errors.StoreError, match=r"not known whether this was carried out: .*\(the table with the id"
        ):
            statements(tmp_path / "files")[what][0](mine)


@pytest.mark.parametrize("fault", ["reply", "request"])
@pytest.mark.parametrize("what", MADE)
def test_a_repeated_statement_does_not_touch_the_next_table_of_the_name(what, fault, reopen, tmp_path, monkeypatch):
    """Another program drops the table after the first attempt, and makes another one of its name."""
    mine, other = reopen(), reopen()
    mine.create_table(NAME, SCHEMA)

    def meanwhile():
        with other._database.begin() as connection:
            connection.execute(sa.delete(TABLES))
        append(other.create_table(NAME, SCHEMA), 7)
        background.settle()

    do, _ = statements(None)[what]
    with monkeypatch.context() as patch:
        Line(patch, mine, [fault], meanwhile)
        with contextlib.suppress(errors.TableNotFoundError, errors.StoreError):
            do(mine)
    assert reopen().tables() == [NAME]
    assert ids(check_log(reopen())) == [7]


def test_a_rename_that_is_repeated_does_not_succeed_by_a_table_that_took_its_new_name(reopen, monkeypatch):
    mine, other = reopen(), reopen()
    mine.create_table(NAME, SCHEMA)
    with monkeypatch.context() as patch:
        Line(patch, mine, ["request"], lambda: other.create_table(NEW, SCHEMA))
        with pytest.raises(errors.TableAlreadyExistsError, match=NEW):
            mine.rename_table(NAME, NEW)
    assert reopen().tables() == [NEW, NAME]


def replaced(mine, other):
    """A table of one program, whose name the other one has given to another table since."""
    mine.create_table(NAME, SCHEMA)
    entry = mine._entry(NAME)
    other.drop_table(NAME)
    other.create_table(NAME, SCHEMA)
    return entry


def test_a_statement_whose_row_is_gone_does_not_report_success(reopen):
    mine, other = reopen(), reopen()
    entry = replaced(mine, other)
    for change in (
        lambda: mine._rename(entry, NEW),
        lambda: mine._activate(entry),
        lambda: mine._seal(entry, purge=True),
    ):
        with pytest.raises(errors.TableNotFoundError, match=f"any more .with the id {entry.table_id}"):
            change()
    mine._drop(entry)
    mine._release(entry)
    mine._unseal(entry)
    assert reopen().tables() == [NAME]
    assert reopen().table(NAME).version() == 0


def test_a_creation_whose_reservation_was_dropped_leaves_nothing(reopen, monkeypatch, tmp_path):
    mine, other = reopen(), reopen()
    activate = SqlCatalog._activate

    def late(catalog, entry):
        if catalog is mine:
            other.drop_table(NAME)
        activate(catalog, entry)

    monkeypatch.setattr(SqlCatalog, "_activate", late)
    with pytest.raises(errors.TableNotFoundError):
        mine.create_table(NAME, SCHEMA, location=tmp_path / "t")
    assert reopen().tables() == []
    append(other.create_table(NAME, SCHEMA, location=tmp_path / "t"), 1)
    assert ids(check_log(reopen())) == [1]


@pytest.mark.parametrize("commits", ["staged", "inline"])
def test_what_is_acknowledged_before_a_drop_is_in_the_log(commits, reopen, monkeypatch):
    """A commit between the publication and the drop is refused, or published."""
    mine, other = reopen(), reopen()
    table = mine.create_table(NAME, SCHEMA, commits=commits)
    folder = log_of(table).inner
    acknowledged = [append(table, 1).version]
    for step in ("_seal", "_publish_sealed", "_drop"):
        carried_out = getattr(SqlCatalog, step)

        def beside(catalog, *args, carried_out=carried_out, step=step, **options):
            if step == "_seal":
                acknowledged.append(append(table, 2).version)
            else:
                with pytest.raises(errors.StoreError, match="is being dropped"):
                    append(table, 2)
            return carried_out(catalog, *args, **options)

        monkeypatch.setattr(SqlCatalog, step, beside)
    other.drop_table(NAME)
    there = [info.key for info in folder.list("_delta_log/0") if info.key.endswith(".json")]
    assert there == [f"_delta_log/{version:020d}.json" for version in (0, *acknowledged)]
    assert len(acknowledged) == 2, "the commit before the seal"


@pytest.mark.parametrize("purge", [False, True])
@pytest.mark.parametrize("step", ["_publish_sealed", "_drop"])
def test_a_drop_that_ends_half_way_is_repeated(step, purge, reopen, monkeypatch):
    class Killed(BaseException):
        pass

    mine = reopen()
    table = mine.create_table(NAME, SCHEMA)
    append(table, 1)

    def killed(*_, **__):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, step, killed)
        if (step, purge) == ("_publish_sealed", True):
            patch.setattr("refdelta.catalog.base.delete_own_files", killed)
        with pytest.raises(Killed):
            mine.drop_table(NAME, purge=purge)
    assert reopen().tables() == []
    with pytest.raises(errors.TableAlreadyExistsError, match="or dropped; drop_table removes one"):
        reopen().create_table(NAME, SCHEMA)
    with pytest.raises(errors.StoreError, match=r"is being dropped|does not agree with the folder"):
        append(table, 2)
    reopen().drop_table(NAME, purge=purge)
    assert [*log_of(table).inner.list()] == [] if purge else DeltaTable.is_deltatable(table.table_uri)
    append(reopen().create_table(NAME, SCHEMA), 3)


def test_a_drop_that_cannot_publish_leaves_the_table(reopen, monkeypatch):
    mine = reopen()
    table = mine.create_table(NAME, SCHEMA)
    append(table, 1)

    def fails(*_, **__):
        raise errors.StoreError("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr("refdelta.engine.log.managed_log.ManagedStore.publish", fails)
        with pytest.raises(errors.StoreError, match="the store is away"):
            mine.drop_table(NAME)
    append(table, 2)
    assert ids(check_log(reopen())) == [1, 2]


@pytest.mark.tier("test")
def test_a_purge_leaves_what_is_not_of_its_table(reopen, tmp_path):
    mine, rows = reopen(), pa.table({"id": [1], "town": ["Oslo"]})
    write_deltalake(tmp_path / "f", rows, partition_by="id")
    write_deltalake(tmp_path / "f" / "below", rows)
    foreign = [tmp_path / "f" / "notes.txt", tmp_path / "f" / "id=1" / "notes.parquet"]
    for path in foreign:
        path.write_text("x")
    mine.register_table("s.files", tmp_path / "f")
    outer = mine.create_table("s.outer", SCHEMA, location=tmp_path / "w")
    inner = mine.create_table("s.inner", SCHEMA, location=tmp_path / "w" / "inner")
    for table in (outer, inner):
        for row in (1, 2):
            append(table, row)
        table.delete("id = 1")
    background.settle()
    mine.drop_table("s.files", purge=True)
    mine.drop_table("s.outer", purge=True)
    assert all(path.exists() for path in foreign)
    assert [path.name for path in (tmp_path / "f").rglob("*.parquet") if "below" not in path.parts] == ["notes.parquet"]
    assert DeltaTable(tmp_path / "f" / "below").count() == 1
    assert ids(reopen().table("s.inner")) == [2]
    assert [path for path in (tmp_path / "w").rglob("*") if path.is_file() and "inner" not in path.parts] == []
    assert mine.tables() == ["s.inner"]


def test_a_drop_does_not_remove_a_table_that_was_adopted_meanwhile(reopen, monkeypatch):
    mine, other = reopen(), reopen()
    append(mine.create_table(NAME, SCHEMA), 1)
    drop = SqlCatalog._drop

    def late(catalog, entry):
        other._unseal(entry)
        drop(catalog, entry)

    monkeypatch.setattr(SqlCatalog, "_drop", late)
    with pytest.raises(errors.StoreError, match="not being dropped any more"):
        mine.drop_table(NAME)
    assert reopen().tables() == [NAME]


def test_an_activation_is_for_its_own_reservation(reopen):
    mine, other = reopen(), reopen()
    entry = mine._reserve(NAME, None, "staged")
    other._release(entry)
    theirs = other._reserve(NAME, None, "staged")
    with pytest.raises(errors.TableNotFoundError):
        mine._activate(entry)
    assert other._by_id(theirs).latest == -1


def test_an_unsealing_is_for_its_own_table(reopen):
    mine, other = reopen(), reopen()
    entry = replaced(mine, other)
    theirs = other._entry(NAME)
    other._seal(theirs, purge=False)
    assert not mine._unseal(entry)
    assert other._by_id(theirs).latest < -1


@pytest.mark.parametrize("what", ["create", "rename"])
def test_a_request_that_arrives_after_the_question_is_recognised(what, reopen, monkeypatch):
    """The first COMMIT seems lost, and is not there when it is asked for; it arrives before the repetition."""
    mine = reopen()
    if what == "rename":
        mine.create_table(NAME, SCHEMA)
    transaction, by_id = SqlCatalog._transaction, SqlCatalog._by_id
    calls, late = itertools.count(), []

    def first_is_lost(catalog, text, statements):
        if next(calls) == 0:
            late.append(statements)
            raise sql.LostError("as the schedule has it")
        return transaction(catalog, text, statements)

    def asked(catalog, entry):
        found = by_id(catalog, entry)
        if late:
            transaction(catalog, "late", late.pop())
        return found

    monkeypatch.setattr(SqlCatalog, "_transaction", first_is_lost)
    monkeypatch.setattr(SqlCatalog, "_by_id", asked)
    if what == "create":
        mine.create_table(NAME, SCHEMA)
    else:
        mine.rename_table(NAME, NEW)
    assert reopen().tables() == [NAME if what == "create" else NEW]


@pytest.mark.tier("test")
def test_two_purges_of_one_table_at_once(reopen, monkeypatch):
    """The second one runs whole before each call that the first one makes to the store."""
    made = LocalStore.get, LocalStore.list, LocalStore.delete
    for point in itertools.count():
        table = reopen().create_table(NAME, SCHEMA)
        for row in range(3):
            append(table, row)
        background.settle()
        calls = itertools.count()

        def beside(call, *args, point=point, calls=calls):
            if next(calls) == point:
                with contextlib.suppress(errors.TableNotFoundError):
                    reopen().drop_table(NAME, purge=True)
            return call(*args)

        with monkeypatch.context() as patch:
            for call in made:
                patch.setattr(LocalStore, call.__name__, functools.partialmethod(_passed, beside, call))
            with contextlib.suppress(errors.TableNotFoundError):
                reopen().drop_table(NAME, purge=True)
        assert reopen().tables() == []
        assert [*log_of(table).inner.list()] == []
        if next(calls) <= point:
            break
    assert point > 10


def _passed(store, beside, call, *args, **named):
    return beside(lambda: call(store, *args, **named))


def test_a_purge_that_is_repeated_does_not_touch_the_next_table_of_the_folder(reopen, tmp_path, monkeypatch):
    """It ended before it removed the row; then the folder got another table, by another catalog."""
    mine = reopen()
    append(mine.create_table(NAME, SCHEMA, location=tmp_path / "t"), 1)
    background.settle()
    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "_drop", lambda *_: None)
        mine.drop_table(NAME, purge=True)
    with SqlCatalog(f"sqlite:///{tmp_path}/other.db") as other:
        append(other.create_table(NAME, SCHEMA, location=tmp_path / "t"), 7)
        background.settle()
        reopen().drop_table(NAME, purge=True)
        assert ids(other.table(NAME)) == [7]


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("where", ["sqlite", "postgres"])
def test_programs_drop_and_recreate_one_name_beside_writers(where, seed, tmp_path, request):
    """Two programs make and drop tables of one name, in part in one folder, two others write: every commit that was
    acknowledged is in the log of its table, unless that was purged, and the last table is whole.
    """
    server = request.getfixturevalue("postgres_server") if where == "postgres" else None
    url = server.database() if server else f"sqlite:///{tmp_path}/catalog.db"
    SqlCatalog(url).close()

    def start(role, number):
        command = [sys.executable, "-m", "catalog.name_racer", url, f"{tmp_path}/warehouse", f"{tmp_path}/same", role]
        return subprocess.Popen(
            [*command, f"{seed} {number}"],
            cwd=TESTS,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    makers, writers = [start("maker", number) for number in (0, 1)], [start("writer", number) for number in (2, 3)]
    lines = []
    for program in (*makers, *writers):
        lines += [json.loads(line) for line in program.communicate(timeout=240)[0].splitlines()]
    assert [program.returncode for program in (*makers, *writers)] == [0, 0, 0, 0]
    wrote = collections.defaultdict(set)
    for line in lines:
        if "wrote" in line:
            wrote[line["wrote"]].add(line["version"])
    with SqlCatalog(url, locations=[tmp_path]) as catalog:
        for name in catalog.tables():
            table = catalog.table(name)
            append(table, -1)
            background.settle()
            catalog.drop_table(name)  # which publishes
        there = [
            has_log_of(line["made"], open_store(line["folder"]), wrote[line["made"]])
            for line in lines
            if "made" in line
        ]
    # How many were purged is a matter of the race.
    assert any(there)
    assert wrote


def has_log_of(table_id, folder, versions):
    """Whether the log of a table is there; then it has every version that was acknowledged."""
    keys = [info.key for info in folder.list("_delta_log/0") if info.key.endswith(".json")]
    if not keys or table_id.encode() not in folder.get(keys[0]):
        return False
    assert keys == [f"_delta_log/{version:020d}.json" for version in range(len(keys))]
    assert max(versions, default=0) < len(keys)
    return True
