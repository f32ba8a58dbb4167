"""Transactions over several tables of a catalog, in SQLite and PostgreSQL, with staged and with inline commits: all or
nothing, at both levels.

Tests of catalog.kept, catalog.transaction, transaction.together, sql_statements.atomic.
"""

import contextlib
import json
import os
import pickle
import threading
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa

import refdelta
from catalog.contract import check_log, log_of
from refdelta import CommitProperties, errors, explain_conflict, write_deltalake
from refdelta.catalog import SqlCatalog, sql
from refdelta.catalog.transaction import PartOfTransaction
from refdelta.core.commit.together import GROUP, TAG
from refdelta.transaction import background
from refdelta.transaction.parties import tables_of
from refdelta_storage import StorageError

SCHEMA = pa.schema({"id": pa.int64(), "amount": pa.int64()})


def rows(**amounts):
    return pa.table({"id": [int(key[1:]) for key in amounts], "amount": [*amounts.values()]}, SCHEMA)


def content(table):
    found = table.to_pyarrow_table()
    return dict(sorted(zip(found["id"].to_pylist(), found["amount"].to_pylist(), strict=True)))


def state(catalog):
    """The versions and rows of all tables, at one moment."""
    return {name: (table.version(), content(table)) for name, table in catalog.snapshot().items()}


def files(folder):
    """The data files that are there."""
    background.settle()
    return sorted(
        str(one.relative_to(folder)) for one in Path(folder).rglob("*.parquet") if "_delta_log" not in str(one)
    )


def group_of(table):
    return table.history(1)[0].get(GROUP)


@pytest.fixture(
    params=[
        ("sqlite", "staged"),
        *(
            pytest.param(one, marks=pytest.mark.tier("test"))
            for one in (("sqlite", "inline"), ("postgres", "staged"), ("postgres", "inline"))
        ),
    ],
    ids="-".join,
)
def reopen(request, tmp_path):
    database, commits = request.param
    if database == "sqlite":
        url = f"sqlite:///{tmp_path}/catalog.db"
    else:
        url = request.getfixturevalue("postgres_server").database()
    made = []

    def opened(**settings):
        made.append(SqlCatalog(url, warehouse=tmp_path / "warehouse", **settings))
        made[-1].commits = commits
        return made[-1]

    yield opened
    for one in made:
        one.close()


@pytest.fixture
def catalog(reopen):
    """A catalog with two tables, each with two accounts of 100."""
    found = reopen()
    for name in ("a", "b"):
        create(found, name)
    return found


def create(catalog, name, **configuration):
    table = catalog.create_table(name, SCHEMA, commits=catalog.commits, configuration=configuration)
    write_deltalake(table, rows(_1=100, _2=100), mode="append")


START = {"a": (1, {1: 100, 2: 100}), "b": (1, {1: 100, 2: 100})}


def transfer(tx, amount=10):
    tx["a"].update({"amount": f"amount - {amount}"}, predicate="id = 1")
    tx["b"].update({"amount": f"amount + {amount}"}, predicate="id = 1")


# --- all or nothing ---


def test_a_transfer_is_in_both_tables_at_once_and_each_log_names_both(catalog):
    with catalog.transaction() as tx:
        transfer(tx)
        assert state(catalog) == START
    assert state(catalog) == {"a": (2, {1: 90, 2: 100}), "b": (2, {1: 110, 2: 100})}
    groups = [group_of(catalog.table(name)) for name in ("a", "b")]
    assert groups[0] == groups[1]
    assert groups[0]["transactionId"] == tx.transaction_id
    assert [(one["tableName"], one["proposedVersion"]) for one in groups[0]["participants"]] == [("a", 2), ("b", 2)]
    info = catalog.table("a").history(1)[0]
    assert info["tags"][TAG] == tx.transaction_id
    assert (info["isBlindAppend"], info["isolationLevel"]) == (False, "Serializable")
    for name in ("a", "b"):
        check_log(catalog, name)


def test_every_statement_of_rows_and_new_tables(catalog):
    with catalog.transaction() as tx:
        tx["a"].delete("id = 2")
        merge = tx["b"].merge(rows(_2=7, _3=8), "s.id = t.id")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        tx.create_table("c", SCHEMA, commits=catalog.commits).append(rows(_9=9))
        tx.create_table("d", SCHEMA, commits=catalog.commits)
        assert catalog.tables() == ["a", "b"]
        found = tx.commit()
    assert {name: one.version for name, one in found.items()} == {"a": 2, "b": 2, "c": 1, "d": 0}
    assert state(catalog) == {"a": (2, {1: 100}), "b": (2, {1: 100, 2: 7, 3: 8}), "c": (1, {9: 9}), "d": (0, {})}
    with catalog.transaction() as tx:
        tx["c"].overwrite(rows(_1=1))
        tx["d"].append(rows(_2=2))
    assert (content(catalog.table("c")), content(catalog.table("d"))) == ({1: 1}, {2: 2})
    for name in catalog.tables():
        check_log(catalog, name)


def test_a_transaction_that_creates_tables_only(catalog):
    with catalog.transaction() as tx:
        tx.create_table("c", SCHEMA, commits=catalog.commits)
        tx.create_table("d", SCHEMA, commits=catalog.commits)
    assert catalog.tables() == ["a", "b", "c", "d"]
    assert catalog.table("d").version() == 0


def test_a_block_that_raises_leaves_nothing(catalog, tmp_path):
    before = files(tmp_path)

    def work(tx):
        transfer(tx)
        tx.create_table("c", SCHEMA, commits=catalog.commits).append(rows(_1=1))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        catalog.transact(work)
    assert state(catalog) == START
    assert files(tmp_path) == before
    create(catalog, "c")


def test_nothing_is_committed_where_nothing_was_written(catalog):
    with catalog.transaction() as tx:
        tx["a"].read()
        tx["b"].delete("id = 77")
        assert {name: one.version for name, one in tx.commit().items()} == {"a": None, "b": None}
    assert state(catalog) == START


def test_one_table_alone_commits_as_any_transaction(catalog):
    with catalog.transaction() as tx:
        tx["a"].append(rows(_5=5))
        tx["b"].append(rows().slice(0, 0))
    assert state(catalog) == {"a": (2, {1: 100, 2: 100, 5: 5}), "b": START["b"]}
    assert group_of(catalog.table("a")) is None
    assert catalog.table("a").history(1)[0]["isBlindAppend"] is True


# --- conflicts ---


def test_rows_of_each_table_decide(catalog):
    with catalog.transaction() as tx:
        transfer(tx)
        catalog.table("a").update({"amount": "0"}, predicate="id = 2")
        catalog.table("b").update({"amount": "0"}, predicate="id = 2")
        found = tx.commit()
    assert {name: one.rebased_over for name, one in found.items()} == {"a": (2,), "b": (2,)}
    assert state(catalog) == {"a": (3, {1: 90, 2: 0}), "b": (3, {1: 110, 2: 0})}
    participants = group_of(catalog.table("a"))["participants"]
    assert participants == group_of(catalog.table("b"))["participants"]
    assert [one["proposedVersion"] for one in participants] == [3, 3]


def test_a_conflict_in_one_table_is_one_of_all_and_names_it(catalog, tmp_path):
    tx = catalog.transaction()
    transfer(tx)
    catalog.table("b").update({"amount": "0"}, predicate="id = 1")
    before = files(tmp_path)
    with pytest.raises(errors.ConcurrentModificationError, match=r"\(version 2 of b, UPDATE\)") as caught:
        tx.commit()
    assert caught.value.conflict.table == "b"
    assert caught.value.conflict.as_dict()["table"] == "b"
    assert state(catalog) == {"a": START["a"], "b": (2, {1: 0, 2: 100})}
    assert len(files(tmp_path)) < len(before)
    with pytest.raises(errors.InvalidArgumentError, match="ended by a commit that failed"):
        tx.commit()


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable"])
def test_write_skew_over_two_tables_is_refused(catalog, level):
    for name in ("x", "y"):
        create(catalog, name, **{"delta.isolationLevel": level})
    one, two = catalog.transaction(), catalog.transaction()
    # Each may take what is left in one table, as long as the other one has enough.
    assert one["x"].read(predicate="id = 1").num_rows == two["y"].read(predicate="id = 1").num_rows == 1
    one["y"].update({"amount": "0"}, predicate="id = 1")
    two["x"].update({"amount": "0"}, predicate="id = 1")
    one.commit()
    with pytest.raises(errors.ConcurrentModificationError):
        two.commit()


def test_the_reads_of_a_serializable_table_are_pinned_and_leave_no_version(catalog):
    create(catalog, "x", **{"delta.isolationLevel": "Serializable"})
    with catalog.transaction() as tx:
        tx["x"].read(predicate="id = 1")
        tx["a"].append(rows(_3=3))
        # Another row, so that the read stands, and another version than that at which it began.
        write_deltalake(catalog.table("x"), rows(_9=9), mode="append")
        found = tx.commit()
    assert (found["x"].version, found["a"].version) == (None, 2)
    assert catalog.table("x").version() == 2
    tx = catalog.transaction()
    tx["x"].read(predicate="id = 8")
    tx["a"].append(rows(_4=4))
    write_deltalake(catalog.table("x"), rows(_8=8), mode="append")
    with pytest.raises(errors.ConcurrentAppendException, match="of x"):
        tx.commit()


def test_no_append_is_skipped_under_the_reads_of_a_transaction_over_several_tables(catalog):
    deleting = catalog.table("a").begin()
    deleting.delete("amount = 100")
    write_deltalake(catalog.table("a"), rows(_3=100), mode="append")
    with catalog.transaction() as tx:
        tx["b"].append(tx["a"].read(predicate="amount = 100").select(["id", "amount"]))
    assert catalog.table("a").history(1)[0]["operation"] == "READ"
    # It comes before the append that it did not see, and so before the transaction that saw both.
    with pytest.raises(errors.ConcurrentAppendException) as caught:
        deleting.commit()
    assert caught.value.conflict.rule == "append-skipped"


def test_rows_from_another_table_of_the_transaction_are_reads_of_it(catalog):
    tx = catalog.transaction()
    tx["b"].append(catalog.table("a"))
    catalog.table("a").update({"amount": "0"}, predicate="id = 2")
    with pytest.raises(errors.ConcurrentModificationError, match="of a,"):
        tx.commit()
    tx = catalog.transaction()
    catalog.table("a").delete("id = 2")
    with pytest.raises(
        errors.InvalidArgumentError, match="version 3 of this table, but the transaction reads version 2"
    ):
        tx["b"].append(catalog.table("a"))
    tx.abort()


def test_transact_repeats_after_a_conflict(catalog):
    seen = []

    def work(tx):
        transfer(tx)
        if not seen:
            catalog.table("b").update({"amount": "amount + 1"}, predicate="id = 1")
        seen.append(1)

    found = catalog.transact(work)
    assert len(seen) == 2
    assert found["b"].version == 3
    assert state(catalog) == {"a": (2, {1: 90, 2: 100}), "b": (3, {1: 111, 2: 100})}
    with pytest.raises(errors.InvalidArgumentError, match="attempts"):
        catalog.transact(work, attempts=0)
    with pytest.raises(errors.InvalidArgumentError, match="function"):
        catalog.transact(None)
    with pytest.raises(errors.InvalidArgumentError, match="committed already"):
        catalog.transact(lambda tx: tx.commit())


@pytest.mark.tier("test")
def test_many_threads_move_money_and_the_sum_stays(catalog, reopen):
    errors_of = []

    def work(number):
        own = reopen()
        try:
            for _ in range(3):
                source, target = ("a", "b") if number % 2 else ("b", "a")

                def move(tx, source=source, target=target):
                    tx[source].update({"amount": "amount - 1"}, predicate=f"id = {1 + number % 2}")
                    tx[target].update({"amount": "amount + 1"}, predicate=f"id = {1 + number % 2}")

                own.transact(move, attempts=50)
        except BaseException as error:
            errors_of.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        tables = catalog.snapshot(["a", "b"])
        assert sum(sum(content(one).values()) for one in tables.values()) == 400
    for thread in threads:
        thread.join()
    assert errors_of == []
    for name in ("a", "b"):
        assert check_log(catalog, name).version() == 1 + 12


@pytest.mark.tier("test")
def test_timeline_and_why_name_the_tables_of_a_transaction(catalog):
    with catalog.transaction() as tx:
        transfer(tx)
    catalog.table("a").update({"amount": "0"}, predicate="id = 1")
    table = catalog.table("a")
    assert table.timeline().to_table()["tables"].to_pylist() == [None, None, ["a@2", "b@2"], None]
    assert "in a@2, b@2" in str(table.timeline(version=2))
    found = explain_conflict(table, 2, 3)
    assert found.as_dict()["winner"]["tables"] == ("a@2", "b@2")
    assert "in a@2, b@2" in str(found)
    lost = table.begin()
    lost.update({"amount": "1"}, predicate="id = 1")
    with catalog.transaction() as tx:
        transfer(tx)
    with pytest.raises(errors.ConcurrentModificationError) as caught:
        lost.commit()
    assert caught.value.conflict.winner.tables == ("a@4", "b@3")


@pytest.mark.parametrize("group", [1, [], {}, {"participants": 1}, {"participants": [1, {}]}])
def test_a_group_of_another_engine_is_free_json(group):
    assert tables_of({GROUP: group}) == (("None@None",) if group == {"participants": [1, {}]} else ())


# --- SQL ---


@pytest.mark.tier("test")
def test_a_block_of_sql_is_one_transaction(catalog):
    found = sql_of(
        catalog,
        "BEGIN ATOMIC UPDATE a SET amount = CASE WHEN amount > 30 THEN amount - 30 ELSE 0 END WHERE id = 1; "
        "MERGE INTO b AS t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET amount = t.amount + s.amount; END;",
        s=rows(_1=30),
    )
    assert {name: one.version for name, one in found.items()} == {"a": 2, "b": 2}
    assert state(catalog) == {"a": (2, {1: 70, 2: 100}), "b": (2, {1: 130, 2: 100})}
    assert group_of(catalog.table("a")) == group_of(catalog.table("b")) is not None
    sql_of(
        catalog, "begin atomic insert into b select id + 10 as id, amount from a where id = 2; truncate table a; end"
    )
    assert state(catalog) == {"a": (3, {}), "b": (3, {1: 130, 2: 100, 12: 100})}
    sql_of(catalog, "BEGIN ATOMIC INSERT OVERWRITE b VALUES (7, 7); DELETE FROM a WHERE id = 1; END")
    assert state(catalog)["b"] == (4, {7: 7})


@pytest.mark.tier("test")
def test_what_a_block_selects_of_a_table_is_read_in_the_transaction(catalog, monkeypatch):
    append, done = PartOfTransaction.append, []

    def appended(part, *given, **options):
        append(part, *given, **options)
        if not done:
            done.append(catalog.table("a").update({"amount": "1"}, predicate="id = 2"))

    monkeypatch.setattr(PartOfTransaction, "append", appended)
    text = (
        "BEGIN ATOMIC INSERT INTO b SELECT id + 10, amount FROM a WHERE id = 2; UPDATE a SET id = 5 WHERE id = 1; END"
    )
    with pytest.raises(errors.ConcurrentModificationError, match="of a,"):
        sql_of(catalog, text)
    done.clear()
    sql_of(catalog, text, options={"attempts": 3})
    assert content(catalog.table("b")) == {1: 100, 2: 100, 12: 1}


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        ("BEGIN UPDATE a SET amount = 1; END", errors.PredicateError, "only BEGIN ATOMIC"),
        ("BEGIN ATOMIC END", errors.PredicateError, "expected a statement"),
        ("BEGIN ATOMIC DELETE FROM a; DELETE FROM b END", errors.PredicateError, "expected"),
        ("BEGIN ATOMIC DELETE FROM a; OPTIMIZE b; END", errors.PredicateError, "INSERT or DELETE or UPDATE or MERGE"),
        ("BEGIN ATOMIC DELETE FROM a; UPDATE a SET amount = 1; END", errors.InvalidArgumentError, "holds a statement"),
        ("BEGIN ATOMIC DELETE FROM delta.`/tmp/x`; END", errors.InvalidArgumentError, "named as in the catalog"),
        ("BEGIN ATOMIC DELETE FROM nothing; END", errors.TableNotFoundError, "nothing"),
        ("BEGIN ATOMIC DELETE FROM a; DELETE FROM s; END", errors.InvalidArgumentError, "stands for rows"),
    ],
)
def test_a_block_that_is_refused_changes_nothing(catalog, text, error, told):
    with pytest.raises(error, match=told):
        sql_of(catalog, text, s=rows(_1=1))
    assert state(catalog) == START


def test_a_block_needs_a_catalog_and_no_application():
    with pytest.raises(errors.InvalidArgumentError, match="give sql"):
        refdelta.sql("BEGIN ATOMIC DELETE FROM a; END", a=rows(_1=1))


def test_a_block_with_an_application_is_refused(catalog):
    with pytest.raises(errors.InvalidArgumentError, match="app_id is recorded table by table"):
        sql_of(catalog, "BEGIN ATOMIC DELETE FROM a; END", options={"app_id": "x", "app_version": 1})


def sql_of(catalog, text, **given):
    return refdelta.sql(text, catalog=catalog, **given)


# --- a snapshot ---


def test_a_snapshot_is_of_one_moment_and_read_only(catalog):
    before = catalog.snapshot()
    with catalog.transaction() as tx:
        transfer(tx)
    after = catalog.snapshot(["b", "a"])
    assert [*after] == ["b", "a"]
    assert {name: content(one)[1] for name, one in before.items()} == {"a": 100, "b": 100}
    assert {name: content(one)[1] for name, one in after.items()} == {"a": 90, "b": 110}
    with pytest.raises(errors.ReadOnlyTableError):
        after["a"].delete()
    with pytest.raises(errors.TableNotFoundError, match="does not exist in the catalog"):
        catalog.snapshot(["aa"])
    with pytest.raises(errors.InvalidArgumentError, match="a list of names"):
        catalog.snapshot("a")


def test_a_transaction_sees_all_tables_at_the_moment_at_which_it_began(catalog):
    tx = catalog.transaction()
    with catalog.transaction() as other:
        transfer(other)
    assert tx["a"].read().column("amount").to_pylist() == tx["b"].read().column("amount").to_pylist() == [100, 100]
    tx.abort()


@pytest.mark.tier("test")
def test_what_was_read_before_is_not_read_again_and_never_stale(catalog, reopen, monkeypatch):
    from refdelta.catalog import base, kept

    loads, load = [], base.load_snapshot

    def loaded(log, version):
        loads.append(version)
        return load(log, version)

    def seen(name):
        del loads[:]
        with catalog.transaction() as tx:
            return sorted(tx[name].read()["id"].to_pylist()), loads[:]

    monkeypatch.setattr(base, "load_snapshot", loaded)
    other = reopen()
    assert seen("a") == ([1, 2], [1])
    for commits in ("ours", "another's"):
        with (catalog if commits == "ours" else other).transaction() as tx:
            tx["a"].append(rows(_3=3))
            tx["b"].append(rows(_3=3))
    assert seen("a") == ([1, 2, 3, 3], [])
    assert content(catalog.snapshot(["a"])["a"]) == {1: 100, 2: 100, 3: 3}
    # A transaction that began earlier still sees its own moment.
    early = catalog.transaction()
    with catalog.transaction() as tx:
        tx["a"].delete("id = 3")
    assert early["a"].read().num_rows == 4
    early.abort()
    assert seen("a") == ([1, 2], [])
    early = catalog.transaction()
    with other.transaction() as tx:
        tx["a"].append(rows(_5=5))
    assert seen("a") == ([1, 2, 5], [])
    assert early["a"].read().num_rows == 2  # which is not kept in place of the newer one
    early.abort()
    assert seen("a") == ([1, 2, 5], [])
    # Another name, and another table of the name.
    catalog.rename_table("a", "z")
    assert seen("z") == ([1, 2, 5], [5])
    catalog.drop_table("z")
    create(catalog, "z")
    assert seen("z") == ([1, 2], [1])
    with monkeypatch.context() as patch:
        patch.setattr(kept, "MOST_FILES", 0)
        other.transaction()["b"]
        other._kept = kept.KeptSnapshots()
        del loads[:]
        other.snapshot(["b"]), other.snapshot(["b"])
        assert loads == [3, 3]
    monkeypatch.setattr(kept, "MOST_TABLES", 1)
    assert [seen(name)[1] for name in ("z", "b", "z")] == [[], [3], [1]]


# --- misuse ---


def test_misuse_has_clear_errors(catalog, tmp_path):
    write_deltalake(tmp_path / "plain", rows(_1=1))
    catalog.register_table("plain", tmp_path / "plain")
    refused = errors.InvalidArgumentError
    with pytest.raises(refused, match="plain is a table of the file system"):
        catalog.snapshot(["plain"])
    assert [*catalog.snapshot()] == ["a", "b"]
    tx = catalog.transaction()
    with pytest.raises(refused, match="plain is a table of the file system"):
        tx["plain"]
    with pytest.raises(refused, match="named as in its catalog"):
        tx[catalog.table("a")]
    with pytest.raises(errors.TableNotFoundError, match=r"'c' does not exist"):
        tx["c"]
    assert tx["A"] is tx["a"]
    with pytest.raises(refused, match="the name of a table"):
        tx[str(tmp_path / "plain") + " "]
    with pytest.raises(errors.TableAlreadyExistsError):
        tx.create_table("a", SCHEMA)
    part = tx["a"]
    for call in (part.commit, part.abort, part.__enter__):
        with pytest.raises(refused, match="the part for a of a transaction over several tables"):
            call()
    with pytest.raises(errors.NotCopyableError):
        pickle.dumps(tx)
    with tx:
        with pytest.raises(refused, match="has a block already"):
            tx.__enter__()
        assert tx["a"] is tx.table("a")
        transfer(tx)
    for call in (tx.commit, tx.abort, tx.__enter__, lambda: tx["a"], lambda: tx.create_table("z", SCHEMA)):
        with pytest.raises(refused, match="committed already"):
            call()
    with pytest.raises(refused, match="app_transactions"):
        catalog.transaction(commit_properties=CommitProperties(app_transactions=[_App()]))
    with pytest.raises(refused, match=r"no level|isolation level"):
        catalog.transaction(isolation="Snapshot")["a"]


class _App:
    app_id, version = "app", 1


def test_a_statement_that_moves_rows_goes_alone(catalog):
    write_deltalake(catalog.table("a"), rows(_3=1), mode="append")
    tx = catalog.transaction()
    tx["a"].compact()
    tx["b"].append(rows(_4=1))
    with pytest.raises(errors.InvalidArgumentError, match="a: OPTIMIZE moves rows"):
        tx.commit()
    assert catalog.table("b").version() == 1


def test_a_level_below_that_of_a_table_is_refused(catalog):
    create(catalog, "x", **{"delta.isolationLevel": "Serializable"})
    with (
        catalog.transaction(isolation="WriteSerializable") as tx,
        pytest.raises(errors.InvalidArgumentError, match="weaker"),
    ):
        tx["x"]


def test_a_renamed_table_keeps_its_name_in_the_transaction(catalog):
    with catalog.transaction() as tx:
        transfer(tx)
        catalog.rename_table("a", "z")
        with pytest.raises(errors.TableNotFoundError):
            tx["z"]
    assert content(catalog.table("z")) == {1: 90, 2: 100}


def test_a_dropped_table_fails_the_whole(catalog):
    tx = catalog.transaction()
    transfer(tx)
    catalog.drop_table("b")
    with pytest.raises(errors.StoreError, match=r"b of the catalog|no table b"):
        tx.commit()
    assert content(catalog.table("a")) == START["a"][1]


def test_a_name_that_was_taken_meanwhile_fails_the_creation(catalog, reopen):
    tx = catalog.transaction()
    tx.create_table("c", SCHEMA).append(rows(_1=1))
    with pytest.raises(errors.TableAlreadyExistsError):
        reopen().create_table("c", SCHEMA)
    catalog.drop_table("c")
    tx["a"].append(rows(_4=4))
    with pytest.raises(errors.StoreError):
        tx.commit()
    assert state(catalog) == START


# --- faults ---


class Crash(BaseException):
    """The process ends here."""


def crashes(catalog, monkeypatch, work):
    """Run ``work`` again and again, with a crash before the first statement of the database, before the second, ...;
    yields after each crash, and at last after a run without one.
    """
    execute, commit = sa.Connection.execute, sa.Connection.commit
    left = [0]

    def counted(original):
        def call(connection, *given, **options):
            left[0] -= 1
            if left[0] == -1:
                raise Crash
            return original(connection, *given, **options)

        return call

    monkeypatch.setattr(sa.Connection, "execute", counted(execute))
    monkeypatch.setattr(sa.Connection, "commit", counted(commit))
    for number in range(100):
        left[0] = number
        try:
            work()
            crashed = left[0] < 0
        except Crash:
            crashed = True
        left[0] = 10**9
        yield crashed
        if not crashed:
            return
    raise AssertionError("it never ends")


@pytest.mark.tier("test")
def test_a_crash_before_any_statement_of_the_database_leaves_all_or_nothing(catalog, monkeypatch):
    for name in ("a", "b"):
        catalog.table(name).delete()
        write_deltalake(catalog.table(name), rows(_1=0), mode="append")
    done = []

    def work():
        with catalog.transaction() as tx:
            tx["a"].append(rows(_2=1))
            tx["b"].append(rows(_2=-1))
            tx.create_table(f"c{len(done)}", SCHEMA, commits=catalog.commits).append(rows(_1=1))
        done.append(1)

    crashed = 0
    for was_one in crashes(catalog, monkeypatch, work):
        found = catalog.snapshot()
        values = {name: one.to_pyarrow_table()["amount"].to_pylist() for name, one in found.items()}
        moved = len(values["a"]) - 1
        assert sorted(values["b"]) == [-1] * moved + [0], values
        assert len(found) == 2 + moved, values
        if was_one:
            crashed += 1
            with contextlib.suppress(errors.TableNotFoundError):
                if moved == len(done):
                    catalog.drop_table(f"c{len(done)}")
            done += [1] * (moved - len(done))
    assert crashed > 8
    for name in catalog.tables():
        check_log(catalog, name)


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_lost_reply_is_looked_up_in_all_tables(catalog, monkeypatch, carried_out):
    at_once, lost = sql.SqlCatalog._at_once, []

    def loses(self, what, run):
        if what.startswith("ratify") and not lost:
            lost.append(what)
            if carried_out:
                assert at_once(self, what, run)
            raise sql.LostError("no answer")
        return at_once(self, what, run)

    monkeypatch.setattr(sql.SqlCatalog, "_at_once", loses)
    with catalog.transaction() as tx:
        transfer(tx)
        tx.create_table("c", SCHEMA, commits=catalog.commits)
    assert lost
    assert state(catalog) == {"a": (2, {1: 90, 2: 100}), "b": (2, {1: 110, 2: 100}), "c": (0, {})}
    lost.clear()
    with catalog.transaction() as tx:
        tx.create_table("d", SCHEMA, commits=catalog.commits)
    assert lost
    assert catalog.tables() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("published", [False, True], ids=["held", "published"])
def test_a_transaction_that_arrives_late_before_its_repetition_is_found(catalog, monkeypatch, published):
    """The first attempt is carried out after it was looked up, and before the second one, whose files are others."""
    at_once, late = sql.SqlCatalog._at_once, []

    def loses(self, what, run):
        if what.startswith("ratify"):
            late.append(run)
            if len(late) == 1:
                raise sql.LostError("no answer")
            if len(late) == 2:
                assert at_once(self, what, late[0])
                if published:
                    for name in catalog.tables():
                        catalog.publish(name)
        return at_once(self, what, run)

    monkeypatch.setattr(sql.SqlCatalog, "_at_once", loses)
    tx = catalog.transaction()
    tx["a"].append(rows(_3=3))
    tx.create_table("c", SCHEMA, commits=catalog.commits).append(rows(_1=1))
    tx.create_table("d", SCHEMA, commits=catalog.commits)
    assert {name: one.version for name, one in tx.commit().items()} == {"a": 2, "c": 1, "d": 0}
    assert len(late) == 2
    for part in tx._parts.values():
        part.txn.store.ask()  # raises if it has noted another commit than the one that is ratified
    with catalog.transaction() as tx:
        tx["c"].append(rows(_2=2))
        tx["a"].append(rows(_4=4))
    assert content(catalog.table("c")) == {1: 1, 2: 2}
    for name in ("a", "c", "d"):
        check_log(catalog, name)


def test_a_database_without_answers_leaves_the_outcome_open_and_the_files(catalog, monkeypatch, tmp_path):
    def loses(self, what, run):
        raise sql.LostError("no answer")

    tx = catalog.transaction(commit_properties=CommitProperties(max_commit_seconds=0))
    transfer(tx)
    before = files(tmp_path)
    monkeypatch.setattr(sql.SqlCatalog, "_at_once", loses)
    with pytest.raises(errors.CommitOutcomeUnknownError):
        tx.commit()
    assert files(tmp_path) == before


def test_a_database_that_fails_leaves_nothing(catalog, monkeypatch, tmp_path):
    def fails(self, what, run):
        raise StorageError("down")

    before = files(tmp_path)
    tx = catalog.transaction()
    transfer(tx)
    with monkeypatch.context() as patch:
        patch.setattr(sql.SqlCatalog, "_at_once", fails)
        with pytest.raises(errors.StoreError, match="down"):
            tx.commit()
    assert (state(catalog), files(tmp_path)) == (START, before)


def test_tables_that_are_only_created_are_not_there_after_a_failure(catalog, monkeypatch):
    def fails(self, what, run):
        raise StorageError("down")

    def loses(self, what, run):
        raise sql.LostError("no answer")

    def begun(name):
        tx = catalog.transaction()
        for number in (1, 2):
            tx.create_table(f"{name}{number}", SCHEMA, commits=catalog.commits)
        return tx

    failing, losing = begun("c"), begun("d")
    with monkeypatch.context() as patch:
        patch.setattr(sql.SqlCatalog, "_at_once", fails)
        with pytest.raises(errors.StoreError, match="down"):
            failing.commit()
        patch.setattr(sql.SqlCatalog, "_at_once", loses)
        with pytest.raises(errors.CommitOutcomeUnknownError, match="no answer"):
            losing.commit()
    assert state(catalog) == START


def test_all_tables_move_in_one_transaction_of_the_database_in_one_order(catalog, monkeypatch):
    seen, execute, commit = [], sa.Connection.execute, sa.Connection.commit

    def executed(connection, statement, *given):
        if isinstance(statement, sa.Update) and given and "after" in given[0]:
            seen.append(given[0]["table"])
        return execute(connection, statement, *given)

    def committed(connection):
        seen.append("commit")
        commit(connection)

    monkeypatch.setattr(sa.Connection, "execute", executed)
    monkeypatch.setattr(sa.Connection, "commit", committed)
    for names in (("a", "b"), ("b", "a")):
        seen.clear()
        with catalog.transaction() as tx:
            for name in names:
                tx[name].append(rows(_3=3))
        first = seen[: seen.index("commit")]
        assert len(first) == 2
        assert first == sorted(first)


def test_a_database_that_was_restored_is_found_before_anything_moves(tmp_path):
    import sqlite3

    catalog = SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path / "w")
    catalog.commits = "inline"
    for name in ("a", "b"):
        create(catalog, name)
    copy = sqlite3.connect(tmp_path / "copy.db")
    with sqlite3.connect(tmp_path / "catalog.db") as now:
        now.backup(copy)
    with catalog.transaction() as tx:
        transfer(tx)
    catalog.publish("b")
    tx = catalog.transaction()
    transfer(tx)
    catalog.close()
    with sqlite3.connect(tmp_path / "catalog.db") as now:
        copy.backup(now)
    now.close()
    copy.close()
    os.utime(tmp_path / "catalog.db")
    with pytest.raises(errors.CatalogMismatchError):
        tx.commit()
    with pytest.raises(errors.CatalogMismatchError), catalog.transaction() as tx:
        transfer(tx)
    with pytest.raises(errors.CatalogMismatchError):
        catalog.snapshot()
    assert catalog.table("a").history  # opened all the same, and each use raises
    with sqlite3.connect(tmp_path / "catalog.db") as now:
        assert now.execute("select distinct latest from refdelta_tables").fetchall() == [(1,)]
    now.close()


def test_publication_follows_table_by_table(catalog):
    with catalog.transaction() as tx:
        transfer(tx)
    catalog.publish("a")
    assert state(catalog) == {"a": (2, {1: 90, 2: 100}), "b": (2, {1: 110, 2: 100})}
    assert log_of(catalog.table("a")).unpublished() == ()
    assert [one.version for one in log_of(catalog.table("b")).unpublished()][-1] == 2
    published = Path(catalog.table("a").table_uri.removeprefix("file://"), "_delta_log", f"{2:020d}.json")
    info = json.loads(published.read_text().splitlines()[0])["commitInfo"]
    assert info[GROUP]["transactionId"] == tx.transaction_id


def test_a_fork_cannot_end_it(catalog):
    tx = catalog.transaction()
    transfer(tx)
    tx._process = -1
    tx.abort()
    for call in (tx.commit, lambda: tx["a"]):
        with pytest.raises(errors.InvalidArgumentError, match="fork"):
            call()
    tx._process = os.getpid()
    tx.commit()


def test_a_catalog_without_such_a_request_refuses_by_name(catalog, monkeypatch):
    from refdelta.catalog.base import Catalog

    monkeypatch.setattr(SqlCatalog, "_latest_of_all", Catalog._latest_of_all)
    for call in (catalog.transaction, catalog.snapshot, lambda: catalog.transact(lambda tx: None)):
        with pytest.raises(errors.InvalidArgumentError, match="has no request for several tables"):
            call()
