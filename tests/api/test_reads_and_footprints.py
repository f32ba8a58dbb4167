"""What a transaction rests on beside the rows of one statement: several reads, domains, columns, files, times.

Tests of transaction.deleted_files.
"""

from __future__ import annotations

import json
import os
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import refdelta.transaction.transaction
from refdelta import AddAction, DeltaTable, errors, write_deltalake
from refdelta.core.conflicts import precedence
from refdelta.core.log import vacuums
from refdelta.transaction import deleted_files
from written_tables import id_rows, ids_of

LEVELS = ["Serializable", "WriteSerializable"]
VECTORS = {"delta.enableDeletionVectors": "true"}
DOMAINS = {"delta.feature.domainMetadata": "supported"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t"


@pytest.fixture
def meanwhile(monkeypatch):
    """Something happens once, just before the next transaction commits."""

    def before_the_commit(action):
        commit = refdelta.transaction.transaction.commit

        def after(*args, **kwargs):
            monkeypatch.setattr(refdelta.transaction.transaction, "commit", commit)
            action()
            return commit(*args, **kwargs)

        monkeypatch.setattr(refdelta.transaction.transaction, "commit", after)

    return before_the_commit


# --- several reads in one transaction ---


MERGES = {
    "null-safe": ("t.id <=> s.id", [100]),
    "range": ("t.id > s.id", [100]),
    "key": ("t.id = s.id", [100]),
}


@pytest.mark.sample(check=8)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("configuration", [{}, VECTORS], ids=["files", "vectors"])
@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("order", ["read first", "merge first"])
def test_a_read_of_the_whole_table_counts_beside_a_merge(path, level, configuration, merge, order):
    """Write skew: both insert the number of all rows, each without the other."""
    write_deltalake(path, id_rows(1, 2), configuration={**configuration, "delta.isolationLevel": level})
    table = DeltaTable(path)
    condition, keys = MERGES[merge]

    def insert_the_count(txn):
        if order == "read first":
            count = txn.read().num_rows
        txn.merge(id_rows(*keys), condition).when_matched_delete().execute()
        if order == "merge first":
            count = txn.read().num_rows
        txn.append(id_rows(1000 + count))

    one, two = table.begin(), table.begin()
    insert_the_count(one)
    insert_the_count(two)
    one.commit()
    with pytest.raises(errors.ConcurrentAppendException):
        two.commit()
    assert ids_of(path) == [1, 2, 1002]


@pytest.mark.parametrize("configuration", [{}, VECTORS], ids=["files", "vectors"])
def test_a_merge_with_a_source_made_from_its_table_has_read_all_of_it(path, configuration):
    write_deltalake(path, id_rows(1, 2), configuration={**configuration, "delta.isolationLevel": "Serializable"})
    table = DeltaTable(path)
    txn = table.begin()
    txn.merge(table.scan(), "t.id <=> s.id + 100").when_not_matched_insert({"id": "s.id + 100"}).execute()
    write_deltalake(path, id_rows(3), mode="append")
    with pytest.raises(errors.ConcurrentAppendException):
        txn.commit()


# --- domains that rest on columns; features that rest on domains; domains as data ---


def two_columns(path, **more):
    write_deltalake(path, pa.table({"id": pa.array([1], pa.int64()), "s": ["a"]}), **more)


MAPPED = {"delta.columnMapping.mode": "name"}
REMOVALS = {
    "drop": lambda txn: txn.drop_columns(["s"]),
    "restore": lambda txn: txn.restore(0),
    "overwrite": None,
}


@pytest.mark.parametrize("removal", REMOVALS)
def test_a_column_goes_while_the_table_is_clustered_by_it(path, removal, meanwhile):
    write_deltalake(path, id_rows(0), configuration=MAPPED)
    write_deltalake(path, pa.table({"id": pa.array([1], pa.int64()), "s": ["a"]}), mode="append", schema_mode="merge")

    def cluster():
        DeltaTable(path).alter.cluster_by(["s"])

    if removal == "overwrite":
        meanwhile(cluster)
        with pytest.raises(errors.ConcurrentModificationError):
            write_deltalake(path, id_rows(7), mode="overwrite", schema_mode="overwrite")
    else:
        txn = DeltaTable(path).begin()
        REMOVALS[removal](txn)
        cluster()
        with pytest.raises(errors.ConcurrentModificationError):
            txn.commit()
    assert DeltaTable(path).schema().to_arrow().names == ["id", "s"]


def test_a_column_is_added_while_the_table_is_clustered(path):
    """What takes no column away goes by."""
    two_columns(path)
    txn = DeltaTable(path).begin()
    txn.add_columns([pa.field("new", pa.int64())])
    DeltaTable(path).alter.cluster_by(["s"])
    with pytest.raises(errors.ProtocolChangedException):  # the first CLUSTER BY adds features
        txn.commit()
    txn = DeltaTable(path).begin()
    txn.add_columns([pa.field("new", pa.int64())])
    DeltaTable(path).alter.cluster_by(["id"])
    assert txn.commit().version == 3


def test_a_domain_is_set_while_its_feature_is_dropped(path, meanwhile):
    write_deltalake(path, id_rows(1), configuration=DOMAINS)
    meanwhile(lambda: DeltaTable(path).alter.set_domain_metadata("mine", "1"))
    # It conflicts, and is tried again: then it removes the domain, too.
    result = DeltaTable(path).alter.drop_feature("domainMetadata", truncate_history=False)
    assert result.version == 2
    assert DeltaTable(path).domain_metadata() == {}


def test_what_is_read_and_kept_in_a_domain_counts_beside_a_compaction(path):
    write_deltalake(path, id_rows(1), configuration={**DOMAINS, "delta.isolationLevel": "Serializable"})
    write_deltalake(path, id_rows(2), mode="append")
    txn = DeltaTable(path).begin()
    count = txn.read().num_rows
    txn.compact()
    txn.set_domain_metadata("count", str(count))
    write_deltalake(path, id_rows(3), mode="append")
    with pytest.raises(errors.ConcurrentAppendException):
        txn.commit()


def test_a_compaction_that_only_sets_a_domain_goes_by(path):
    write_deltalake(path, id_rows(1), configuration={**DOMAINS, "delta.isolationLevel": "Serializable"})
    write_deltalake(path, id_rows(2), mode="append")
    txn = DeltaTable(path).begin()
    txn.compact()
    txn.set_domain_metadata("compacted", "yes")
    write_deltalake(path, id_rows(3), mode="append")
    txn.commit()
    assert ids_of(path) == [1, 2, 3]


def test_domains_that_are_read_conflict_with_those_that_are_set(path):
    write_deltalake(path, id_rows(1), configuration=DOMAINS)
    DeltaTable(path).alter.set_domain_metadata("a", "1")
    table = DeltaTable(path)
    txn = table.begin()
    assert txn.domain_metadata() == {"a": "1"}
    txn.append(id_rows(2))
    table.alter.set_domain_metadata("a", "2")
    with pytest.raises(errors.ConcurrentTransactionException):
        txn.commit()


def test_an_order_is_looked_for_through_domains_too(path):
    """T skips an append; Y has read it and says so in a domain; Z has read that domain, and what T writes."""
    write_deltalake(
        path, id_rows(1, 2), configuration={**DOMAINS, **VECTORS, "delta.isolationLevel": "WriteSerializable"}
    )
    DeltaTable(path).alter.set_domain_metadata("d", "0")
    table = DeltaTable(path)
    t = table.begin()
    t.delete("id >= 1")
    t.set_domain_metadata("t", "1")
    write_deltalake(path, id_rows(3), mode="append")
    table = DeltaTable(path)
    y = table.begin()
    count = y.read(predicate="id = 3").num_rows
    y.set_domain_metadata("d", str(count))
    y.commit()
    z = DeltaTable(path).begin()
    rows = z.read(predicate="id = 1").num_rows
    z.set_domain_metadata("z", z.domain_metadata()["d"] + str(rows))
    z.commit()
    with pytest.raises(errors.ConcurrentAppendException):
        t.commit()


# --- times, files, sources, failures, bounds ---


def test_the_first_in_commit_timestamp_is_after_the_file_times_of_winners(path):
    write_deltalake(path, id_rows(1))
    table = DeltaTable(path)
    txn = table.begin()
    txn.set_table_properties({"delta.enableInCommitTimestamps": "true"})
    write_deltalake(path, id_rows(2), mode="append")
    later = time.time() + 3600
    os.utime(path / "_delta_log" / f"{1:020}.json", (later, later))
    txn.commit()
    history = {entry["version"]: entry["timestamp"] for entry in DeltaTable(path).history()}
    assert history[2] > history[1] >= int(later * 1000) - 1000


def test_vacuum_deletes_what_a_restore_brings_back(path):
    write_deltalake(path, id_rows(1))
    write_deltalake(path, id_rows(2), mode="overwrite")
    txn = DeltaTable(path).begin()
    txn.restore(0)
    DeltaTable(path).vacuum(dry_run=False, retention_hours=0, enforce_retention_duration=False)
    with pytest.raises(errors.ConcurrentDeleteReadException):
        txn.commit()
    assert ids_of(path) == [2]


def test_a_vacuum_that_keeps_the_files_goes_by(path):
    write_deltalake(path, id_rows(1))
    write_deltalake(path, id_rows(2), mode="overwrite")
    txn = DeltaTable(path).begin()
    txn.restore(0)
    DeltaTable(path).vacuum(dry_run=False)
    txn.commit()
    assert ids_of(path) == [1]


def start_vacuum(path, retention_ms):
    """A VACUUM that has begun, and is slow or was interrupted."""
    start = {"operation": "VACUUM START", "operationParameters": {"specifiedRetentionMillis": str(retention_ms)}}
    note(path, start | {"timestamp": round(time.time() * 1000)})


def note(path, info):
    version = DeltaTable(path).version() + 1
    (path / "_delta_log" / f"{version:020d}.json").write_text(json.dumps({"commitInfo": info}) + "\n")


@pytest.mark.parametrize("operation", [{"mode": "Append"}, ["WRITE"], 7, None])
def test_an_operation_that_is_no_text_is_no_vacuum(path, operation):
    write_deltalake(path, id_rows(1))
    write_deltalake(path, id_rows(2), mode="overwrite")
    note(path, {"operation": operation, "timestamp": round(time.time() * 1000)})
    DeltaTable(path).restore(0)
    assert ids_of(path) == [1]


def test_a_vacuum_that_has_begun_may_delete_what_a_restore_brings_back(path):
    write_deltalake(path, id_rows(1))
    write_deltalake(path, id_rows(2), mode="overwrite")
    start_vacuum(path, 0)
    with pytest.raises(errors.ConcurrentDeleteReadException, match="run VACUUM once more") as caught:
        DeltaTable(path).restore(0)
    assert (caught.value.conflict.rule, caught.value.conflict.version) == ("files-deleted", 2)
    assert ids_of(path) == [2]
    note(path, {"operation": "VACUUM END"})
    DeltaTable(path).restore(0)
    assert ids_of(path) == [1]


def test_a_vacuum_that_has_begun_and_keeps_the_files_is_in_no_way(path):
    write_deltalake(path, id_rows(1))
    write_deltalake(path, id_rows(2), mode="overwrite")
    start_vacuum(path, 3_600_000)
    DeltaTable(path).restore(0)
    assert ids_of(path) == [1]


def test_a_vacuum_that_began_long_ago_was_interrupted(path, monkeypatch):
    write_deltalake(path, id_rows(1))
    write_deltalake(path, id_rows(2), mode="overwrite")
    start_vacuum(path, 0)
    later = round(time.time() * 1000) + vacuums.LONGEST_MS + 1000
    monkeypatch.setattr(deleted_files, "store_time", lambda _: later)
    DeltaTable(path).restore(0)
    assert ids_of(path) == [1]


def test_vacuum_deletes_what_another_program_has_written(path, meanwhile):
    write_deltalake(path, id_rows(1))
    pq.write_table(id_rows(2), path / "prepared.parquet")
    os.utime(path / "prepared.parquet", (1, 1))

    def commit():
        add = AddAction(
            "prepared.parquet", (path / "prepared.parquet").stat().st_size, {}, 1000, True, '{"numRecords":1}'
        )
        DeltaTable(path).create_write_transaction([add], "append", id_rows().schema)

    def vacuum():
        DeltaTable(path).vacuum(dry_run=False, full=True)
        assert not (path / "prepared.parquet").exists()

    meanwhile(vacuum)
    with pytest.raises(errors.ConcurrentDeleteReadException):
        commit()
    assert ids_of(path) == [1]


@pytest.mark.parametrize("how", ["update", "append"])
def test_a_handle_that_commits_again_and_again_sees_a_vacuum_begin(path, how):
    write_deltalake(path, id_rows(1))
    table = DeltaTable(path)

    def commit(name):
        pq.write_table(id_rows(2), path / name)
        add = AddAction(name, (path / name).stat().st_size, {}, 1000, True, '{"numRecords":1}')
        table.create_write_transaction([add], "append", id_rows().schema)

    for number in range(3):
        commit(f"{number}.parquet")
    start_vacuum(path, 0)
    if how == "update":
        table.update_incremental()
    else:  # over the VACUUM START, which is in the way of no file of its own
        write_deltalake(table, id_rows(3), mode="append")
    with pytest.raises(errors.ConcurrentDeleteReadException):
        commit("late.parquet")
    note(path, {"operation": "VACUUM END"})
    table.update_incremental()
    commit("last.parquet")
    assert ids_of(path) == [1, 2, 2, 2, 2, *[3] * (how == "append")]


def sources(path, alias):
    yield "a link", lambda: DeltaTable(alias).scan()
    yield "a handle through a link", lambda: DeltaTable(alias)
    yield "a list", lambda: [DeltaTable(path).scan()]
    yield "a generator", lambda: (scan for scan in [DeltaTable(path).scan()])
    yield "behind other rows", lambda: (item for item in [id_rows(50), DeltaTable(path).scan()])


@pytest.mark.sample(check=6)
@pytest.mark.parametrize("name", [name for name, _ in sources("", "")])
@pytest.mark.parametrize("how", ["append", "write_deltalake", "merge"])
def test_a_source_that_is_the_table_in_disguise(path, tmp_path, name, how, meanwhile):
    alias = tmp_path / "alias"
    alias.symlink_to(path)
    write_deltalake(path, id_rows(1), configuration={"delta.isolationLevel": "Serializable"})
    source = dict(sources(path, alias))[name]

    def write():
        if how == "write_deltalake":
            write_deltalake(path, source(), mode="append")
            return
        txn = DeltaTable(path).begin()
        if how == "append":
            txn.append(source())
        else:
            txn.merge(source(), "t.id = s.id + 1000").when_not_matched_insert_all().execute()
        txn.commit()

    meanwhile(lambda: write_deltalake(path, id_rows(2), mode="append"))
    with pytest.raises(errors.ConcurrentAppendException):
        write()
    assert ids_of(path) == [1, 2]


def test_another_version_of_the_table_in_a_list_is_refused(path):
    write_deltalake(path, id_rows(1))
    old = DeltaTable(path).scan()
    write_deltalake(path, id_rows(2), mode="append")
    with pytest.raises(errors.InvalidArgumentError, match="version 0 of this table"):
        DeltaTable(path).begin().append(item for item in [id_rows(9), old])


STATEMENTS = {
    "read": lambda txn: txn.read(predicate="1 / (id - 7) > 0"),
    "delete": lambda txn: txn.delete("1 / (id - 7) > 0"),
    "update": lambda txn: txn.update(updates={"id": "1 div (id - 7)"}),
    "merge": lambda txn: txn.merge(id_rows(7), "t.id = s.id").when_matched_update({"id": "1 div (t.id - 7)"}).execute(),
}


@pytest.mark.parametrize("configuration", [{}, VECTORS], ids=["files", "vectors"])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_that_fails_has_read(path, statement, configuration):
    """That it failed says that the row 7 was there; who deletes the row comes before."""
    write_deltalake(path, id_rows(7, 8), configuration={**configuration, "delta.isolationLevel": "Serializable"})
    txn = DeltaTable(path).begin()
    with pytest.raises(errors.ExpressionError):
        STATEMENTS[statement](txn)
    txn.append(id_rows(100))
    DeltaTable(path).delete("id = 7")
    with pytest.raises((errors.ConcurrentDeleteReadException, errors.ConcurrentAppendException)):
        txn.commit()


def test_a_limit_of_files_does_not_make_it_forget_a_skipped_append(path, monkeypatch):
    monkeypatch.setattr(precedence, "_FILES_KEPT", 0)
    write_deltalake(path, id_rows(1, 2), configuration={**VECTORS, "delta.isolationLevel": "WriteSerializable"})
    t = DeltaTable(path).begin()
    t.delete("id < 50")
    write_deltalake(path, id_rows(3), mode="append")
    y = DeltaTable(path).begin()
    rows = y.read()
    y.append(id_rows(*[100 + value for value in rows.column("id").to_pylist()]))
    y.commit()
    with pytest.raises(errors.ConcurrentAppendException):
        t.commit()


def test_a_change_of_type_goes_by_an_append(path):
    """It rests on no row: a file of the narrower type is read as the wider one."""
    narrow = pa.table({"id": pa.array([1], pa.int32())})
    write_deltalake(
        path, narrow, configuration={"delta.enableTypeWidening": "true", "delta.isolationLevel": "Serializable"}
    )
    txn = DeltaTable(path).begin()
    txn.change_type("id", pa.int64())
    write_deltalake(path, narrow, mode="append")
    assert txn.commit().rebased_over == (1,)
    assert ids_of(path) == [1, 1]


@pytest.mark.parametrize("isolation", ["Serializable", "WriteSerializable"])
def test_a_statement_that_failed_over_whole_files_has_read_them(tmp_path, isolation):
    write_deltalake(tmp_path, pa.table({"p": [1, 2], "text": ["x", "y"]}), partition_by="p")
    table, other = DeltaTable(tmp_path), DeltaTable(tmp_path)
    with table.begin(isolation=isolation) as txn:
        with pytest.raises(errors.ExpressionError):
            txn.update(updates={"text": "CAST(CAST(text AS INT) AS STRING)"}, predicate="p = 1")
        txn.append(pa.table({"p": [3], "text": ["its update failed"]}))
        other.delete("p = 1")
        with pytest.raises(errors.ConcurrentModificationError) as caught:
            txn.commit()
    assert caught.value.conflict.rule == "read-file-removed"
    table.update_incremental()
    assert table.version() == 1
    assert table.to_pyarrow_table()["p"].to_pylist() == [2]
