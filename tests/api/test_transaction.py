"""Transactions by hand: one snapshot, one commit, and clear words where they are misused.

Tests of api.table_transaction, transaction.options, transaction.prepared_commit, transaction.transaction.
"""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

from refdelta import AppTransaction, CommitProperties, DeltaTable, errors, write_deltalake
from written_tables import id_rows, ids_of


@pytest.fixture
def path(tmp_path):
    where = tmp_path / "t"
    write_deltalake(where, id_rows(1, 2))
    write_deltalake(where, id_rows(11, 12), mode="append")
    return where


def data_files(path):
    return sorted(p.name for p in path.rglob("*.parquet") if "_delta_log" not in p.parts)


def test_nothing_is_visible_before_the_commit_nor_to_the_transaction_itself(path):
    table = DeltaTable(path)
    txn = table.begin()
    txn.append(id_rows(3))
    txn.append(id_rows(4))
    assert sorted(txn.read().column("id").to_pylist()) == [1, 2, 11, 12]
    assert ids_of(path) == [1, 2, 11, 12]
    result = txn.commit()
    assert result.version == 2 == table.version()
    assert ids_of(path) == [1, 2, 3, 4, 11, 12]
    assert result["num_added_rows"] == 2


def test_blind_appends_pass_each_other_and_say_that_they_are_blind(path):
    table = DeltaTable(path)
    one, two = table.begin(), table.begin()
    one.append(id_rows(3))
    two.append(id_rows(4))
    assert two.commit().version == 2
    result = one.commit()
    assert (result.version, result.rebased_over) == (3, (2,))
    assert [entry["isBlindAppend"] for entry in table.history(2)] == [True, True]


def test_an_append_after_a_read_is_not_blind(path):
    table = DeltaTable(path)
    one, two = table.begin(), table.begin()
    assert one.read(predicate="id < 5").column("id").to_pylist() == [1, 2]
    one.append(id_rows(3))
    two.read()
    two.append(id_rows(4))
    two.commit()
    with pytest.raises(errors.ConcurrentAppendException):
        one.commit()
    assert table.history(1)[0]["isBlindAppend"] is False
    assert ids_of(path) == [1, 2, 4, 11, 12]


def test_read_takes_columns_and_every_form_of_predicate(path):
    import pyarrow.compute as pc

    txn = DeltaTable(path).begin()
    for predicate in ("id > 10", [("id", ">", 10)], pc.field("id") > 10):
        assert txn.read(["id"], predicate).to_pydict() == {"id": [11, 12]}
    assert txn.read(predicate="id > 100").schema.names == ["id"]
    with pytest.raises(errors.ColumnNotFoundError):
        txn.read(["nope"])


def test_overwrite_all_and_by_predicate(path):
    table = DeltaTable(path)
    with table.begin() as txn:
        txn.overwrite(id_rows(13), predicate="id > 10")
        assert txn.commit()["num_removed_files"] == 1
    assert ids_of(path) == [1, 2, 13]
    with table.begin() as txn:
        txn.overwrite(id_rows(7))
        txn.commit()
    assert ids_of(path) == [7]


def test_a_transaction_that_writes_nothing_commits_nothing(path):
    table = DeltaTable(path)
    txn = table.begin()
    txn.read()
    assert txn.commit().version is None
    assert table.begin().commit().version is None
    txn = table.begin()
    txn.append(id_rows())
    assert txn.commit().version is None
    assert DeltaTable(path).version() == 1


def fail_after_writing(path):
    before = data_files(path)
    with DeltaTable(path).begin() as txn:
        txn.append(id_rows(3))
        assert data_files(path) != before
        raise ZeroDivisionError


@pytest.mark.parametrize("leave", ["abort", "error", "silently", "conflict"])
def test_what_was_written_is_removed_without_a_commit(path, leave):
    before = data_files(path)
    table = DeltaTable(path)
    if leave == "error":
        with pytest.raises(ZeroDivisionError):
            fail_after_writing(path)
    elif leave == "silently":
        with table.begin() as txn:
            txn.append(id_rows(3))
    elif leave == "conflict":
        txn = table.begin()
        txn.read()
        txn.append(id_rows(3))
        write_deltalake(path, id_rows(), mode="overwrite")
        with pytest.raises(errors.ConcurrentModificationError):
            txn.commit()
    else:
        txn = table.begin()
        txn.append(id_rows(3))
        txn.abort()
    assert data_files(path) == before


def test_a_transaction_that_is_over_says_so(path):
    txn = DeltaTable(path).begin()
    txn.append(id_rows(3))
    txn.commit()
    for verb in (txn.commit, txn.abort, txn.read, lambda: txn.append(id_rows(4)), lambda: txn.overwrite(id_rows(4))):
        with pytest.raises(errors.InvalidArgumentError, match=r"was committed already; begin\(\) starts another one"):
            verb()
    txn = DeltaTable(path).begin()
    txn.abort()
    with pytest.raises(errors.InvalidArgumentError, match="was aborted already"):
        txn.commit()


def test_one_statement_a_transaction(path):
    txn = DeltaTable(path).begin()
    txn.overwrite(id_rows(3))
    txn.append(id_rows(4))
    with pytest.raises(errors.InvalidArgumentError, match=r"cannot overwrite.*holds a statement already \(overwrite\)"):
        txn.overwrite(id_rows(5))
    txn.commit()
    assert ids_of(path) == [3, 4]


def test_application_transactions_are_idempotent(path):
    table = DeltaTable(path)
    for _ in range(2):
        txn = table.begin(app_id="etl", app_version=1)
        txn.append(id_rows(3))
        txn.commit()
    assert ids_of(path) == [1, 2, 3, 11, 12]
    assert table.transaction_version("etl") == 1
    with pytest.raises(errors.InvalidArgumentError, match="go together"):
        table.begin(app_id="etl")


def recording(**versions):
    return CommitProperties(app_transactions=[AppTransaction(app_id=name, version=at) for name, at in versions.items()])


WRITES = {
    "write_deltalake": lambda path, noted: write_deltalake(path, id_rows(3), mode="append", commit_properties=noted),
    "a handle": lambda path, noted: write_deltalake(
        DeltaTable(path), id_rows(3), mode="append", commit_properties=noted
    ),
    "overwrite": lambda path, noted: write_deltalake(path, id_rows(3), mode="overwrite", commit_properties=noted),
    "begin": lambda path, noted: DeltaTable(path).begin(commit_properties=noted),
    "delete": lambda path, noted: DeltaTable(path).delete("id = 1", commit_properties=noted),
    "compact": lambda path, noted: DeltaTable(path).optimize.compact(commit_properties=noted),
    "properties": lambda path, noted: DeltaTable(path).alter.set_table_properties(
        {"mine": "1"}, commit_properties=noted
    ),
    "restore": lambda path, noted: DeltaTable(path).restore(0, commit_properties=noted),
    "vacuum": lambda path, noted: DeltaTable(path).vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=False, commit_properties=noted
    ),
    "create": lambda path, noted: DeltaTable.create(path, id_rows().schema, mode="overwrite", commit_properties=noted),
}


@pytest.mark.parametrize("write", WRITES)
def test_versions_of_applications_that_are_recorded_in_part_are_an_error(path, write):
    write_deltalake(path, id_rows(5), mode="overwrite", commit_properties=recording(x=4, z=1))
    before, version = data_files(path), DeltaTable(path).version()
    with pytest.raises(errors.InvalidArgumentError) as caught:
        WRITES[write](path, recording(x=3, y=2, z=7))
    assert "recorded are 'x' at version 4 (asked: 3);" in str(caught.value)
    assert "not recorded are 'y' version 2 (it has none), 'z' version 7 (it has 1)." in str(caught.value)
    assert (data_files(path), DeltaTable(path).version()) == (before, version)


def test_a_write_is_skipped_if_all_versions_of_its_applications_are_recorded(path):
    write = WRITES["write_deltalake"]
    assert write(path, recording(x=1, y=1)).version == 2
    assert write(path, recording(x=1, y=1)).version is None
    assert write(path, recording(x=2, y=2)).version == 3
    assert write(path, recording(y=1, x=2)).version is None
    assert write(path, recording(z=1)).version == 4
    assert write(path, recording()).version == 5
    assert [DeltaTable(path).transaction_version(name) for name in "xyz"] == [2, 2, 1]


def test_a_handle_that_has_not_seen_what_was_recorded_meanwhile(path):
    table = DeltaTable(path)
    write_deltalake(table, id_rows(3), mode="append")
    write_deltalake(path, id_rows(4), mode="append", commit_properties=recording(x=1))
    with pytest.raises(errors.InvalidArgumentError, match="'x' at version 1"):
        write_deltalake(table, id_rows(5), mode="append", commit_properties=recording(x=1, y=1))
    assert ids_of(path) == [1, 2, 3, 4, 11, 12]


@pytest.mark.parametrize("statement", ["delete", "update", "merge"])
def test_a_statement_that_matches_nothing_records_its_application(path, statement):
    """Else it would run when it is repeated, over rows that have come meanwhile."""
    table = DeltaTable(path)

    def run():
        with table.begin(app_id="etl", app_version=1) as txn:
            if statement == "delete":
                txn.delete("id = 3")
            elif statement == "update":
                txn.update({"id": "4"}, predicate="id = 3")
            else:
                txn.merge(id_rows(3), "t.id = s.id").when_matched_delete().execute()
            return txn.commit().version

    assert run() == 2
    assert table.history(1)[0]["operation"] == statement.upper()
    write_deltalake(path, id_rows(3), mode="append")
    assert run() is None
    assert ids_of(path) == [1, 2, 3, 11, 12]


def test_isolation_may_be_stricter_than_the_tables_and_is_noted(tmp_path, path):
    table = DeltaTable(path)
    txn = table.begin(isolation="Serializable")
    txn.append(id_rows(3))
    txn.commit()
    assert table.history(1)[0]["isolationLevel"] == "Serializable"
    strict = tmp_path / "strict"
    write_deltalake(strict, id_rows(1), configuration={"delta.isolationLevel": "Serializable"})
    with pytest.raises(errors.InvalidArgumentError, match="weaker than the table's"):
        DeltaTable(strict).begin(isolation="WriteSerializable")
    with pytest.raises(errors.InvalidArgumentError, match="isolation level 'SnapshotIsolation' does not exist"):
        table.begin(isolation="SnapshotIsolation")


def test_data_of_the_table_itself_counts_as_read(path):
    table = DeltaTable(path)
    txn = table.begin()
    txn.append(DeltaTable(path))
    txn.commit()
    assert table.count() == 8
    assert table.history(1)[0]["isBlindAppend"] is False
    old = DeltaTable(path).scan()
    write_deltalake(path, id_rows(5), mode="append")
    with pytest.raises(errors.InvalidArgumentError, match=r"version 2 of this table, but .* version 3"):
        table.begin().append(old)
    txn = table.begin()
    txn.append(DeltaTable(path, version=0))
    txn.commit()
    assert table.count() == 11
    assert table.history(1)[0]["isBlindAppend"] is True


@pytest.mark.parametrize("name", ["operation", "readDomains", "rowPlaces"])
def test_a_commit_that_is_refused_leaves_nothing(path, name):
    before = data_files(path)
    txn = DeltaTable(path).begin(commit_properties=CommitProperties(custom_metadata={name: "MINE"}))
    txn.append(id_rows(3))
    with pytest.raises(errors.InvalidArgumentError, match="custom_metadata"):
        txn.commit()
    assert data_files(path) == before


def test_a_file_without_a_row_that_matched_was_not_read(tmp_path):
    """The statistics of the files overlap, so both statements look into both; each finds rows in one of them."""
    where = tmp_path / "t"
    write_deltalake(where, id_rows(1, 20))
    write_deltalake(where, id_rows(2, 19), mode="append")
    table = DeltaTable(where)
    one, two = table.begin(isolation="Serializable"), table.begin(isolation="Serializable")
    one.delete("id = 2")
    two.update({"id": "21"}, predicate="id = 20")
    assert [one.commit().version, two.commit().version] == [2, 3]
    assert ids_of(where) == [1, 19, 21]


def test_a_pinned_handle_begins_nothing(path):
    with pytest.raises(errors.ReadOnlyTableError):
        DeltaTable(path, version=0).begin()


def test_what_a_transaction_reads_is_of_the_time_at_which_it_began(path):
    times = path.parent / "times"
    began = 1_700_000_000_000_000
    moments = pa.array([began - 1, began, began + 1], pa.timestamp("us", "UTC"))
    write_deltalake(times, pa.table({"at": moments}))
    with DeltaTable(times).begin() as txn:
        txn._transaction.started_ms = began // 1000
        assert txn.read(predicate="at = current_timestamp()").num_rows == 1
        assert txn.read(predicate="at <= current_timestamp()").num_rows == 2


def test_a_predicate_of_no_known_kind_is_refused(path):
    with pytest.raises(errors.PredicateError, match="int"):
        DeltaTable(path).scan(predicate=5)


def test_a_commit_without_its_checkpoint(tmp_path):
    every = {"delta.checkpointInterval": "2", "delta.logRetentionDuration": "interval 0 days"}
    write_deltalake(tmp_path, pa.table({"id": [0]}), configuration=every)

    def checkpoints():
        return sorted(path.name[:20] for path in (tmp_path / "_delta_log").glob("*.checkpoint*"))

    for number in range(1, 5):
        options = CommitProperties(create_checkpoint=False if number == 2 else None)
        write_deltalake(tmp_path, pa.table({"id": [number]}), mode="append", commit_properties=options)
        assert checkpoints() == ([f"{4:020}"] if number == 4 else [])
    with pytest.raises(errors.InvalidArgumentError, match="create_checkpoint must be True or False"):
        DeltaTable(tmp_path).delete("id = 1", commit_properties=CommitProperties(create_checkpoint="no"))


def test_expired_log_files_stay_or_go_as_a_commit_says(tmp_path):
    configuration = {"delta.checkpointInterval": "2", "delta.logRetentionDuration": "interval 1 days"}
    write_deltalake(tmp_path, pa.table({"id": [0]}), configuration=configuration)
    for number, cleanup in ((1, None), (2, False), (3, True)):
        for version in (0, 1)[:number]:
            os.utime(tmp_path / "_delta_log" / f"{version:020}.json", (1_700_000_000, 1_700_000_000))
        options = CommitProperties(cleanup_expired_logs=cleanup)
        write_deltalake(tmp_path, pa.table({"id": [number]}), mode="append", commit_properties=options)
        assert (tmp_path / "_delta_log" / f"{0:020}.json").exists() is (cleanup is not True)
    assert DeltaTable(tmp_path).count() == 4
