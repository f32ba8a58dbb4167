"""OPTIMIZE: the same rows in fewer files, where each of them went, and what is left alone.

Tests of api.optimizer, operations.layout.bins.
"""

from __future__ import annotations

import collections
import datetime as dt
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from refdelta import CommitProperties, DeltaTable, errors, write_deltalake
from refdelta.core.log.actions import DeletionVectorDescriptor
from refdelta.core.log.paths import data_key
from refdelta.engine.log.state import to_adds
from refdelta.engine.parquet.dv import load_deletion_vector
from refdelta.errors import InvalidArgumentError
from refdelta.operations.layout.optimize import OptimizeRequest, planned
from refdelta.transaction.transaction import Transaction
from tiers import examples
from written_tables import actions, commit_of

VECTORS = {"delta.enableDeletionVectors": "true"}


def numbers(*values, **columns):
    return pa.table({"n": pa.array(values, pa.int64()), **columns})


def rows_of(path):
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    return collections.Counter(tuple(row.items()) for row in rows)


def live_files(path):
    return sorted(DeltaTable(path).files()["path"].to_pylist())


def data_files(path):
    return sorted(
        file.relative_to(path).as_posix() for file in path.rglob("*.parquet") if "_delta_log" not in file.parts
    )


def hide(path, positions):
    """Delete rows by their positions: for each live file, in the order of the table's list, those to hide."""
    table = DeltaTable(path)
    snapshot = table._handle.newest_for_writing()
    with Transaction(table.store, snapshot) as txn:
        for add, rows in zip(to_adds(snapshot.files), positions, strict=True):
            vector = add.deletion_vector
            base = BitMap64() if vector is None else load_deletion_vector(table.store, vector)
            gone = BitMap64(rows) - base
            if gone:
                txn.delete_rows(add, gone, base)
        txn.describe("DELETE", {"predicate": "[]"}, {})
        return txn.commit().version


def physical(path, place):
    """The live rows of an input as the compaction read it, straight from its Parquet file."""
    store = DeltaTable(path).store
    column = pq.read_table(path / data_key(place["path"], store.uri), columns=["n"], partitioning=None)["n"].to_pylist()
    hidden = BitMap64()
    if "deletionVector" in place:
        vector = {"storageType": None, "offset": None, **place["deletionVector"]}
        hidden = load_deletion_vector(
            store,
            DeletionVectorDescriptor(
                storage_type=vector["storageType"],
                path_or_inline_dv=vector["pathOrInlineDv"],
                offset=vector["offset"],
                size_in_bytes=vector["sizeInBytes"],
                cardinality=vector["cardinality"],
            ),
        )
    return [value for position, value in enumerate(column) if position not in hidden]


def check_places(path, version):
    """Each output holds, in order, the rows of its places; each live row of an input has one place."""
    info = next(line["commitInfo"] for line in commit_of(path, version) if "commitInfo" in line)
    outputs = {add["path"] for add in actions(path, version, "add")}
    recorded = info.get("rowPlaces", {})
    assert set(recorded) == outputs
    seen = collections.Counter()
    for output, places in recorded.items():
        key = data_key(output, DeltaTable(path).store.uri)
        held = pq.read_table(path / key, columns=["n"], partitioning=None)["n"].to_pylist()
        expected = []
        for place in places:
            rows = physical(path, place)[place["start"] : place["start"] + place["rows"]]
            assert len(rows) == place["rows"] > 0
            seen.update((place["path"], place["start"] + i) for i in range(place["rows"]))
            expected += rows
        assert held == expected
    for remove in actions(path, version, "remove"):
        whole = {name: remove[name] for name in ("path", "deletionVector") if name in remove}
        for i in range(len(physical(path, whole))):
            assert seen.pop((remove["path"], i)) == 1
    assert not seen


@pytest.fixture
def path(tmp_path):
    """Five files of two rows."""
    where = tmp_path / "t"
    for i in range(5):
        write_deltalake(where, numbers(2 * i, 2 * i + 1), mode="append", configuration=VECTORS if i == 0 else None)
    return where


# --- what it does ------------------------------------------------------------------------------------------------


def test_small_files_become_one_and_rows_keep_their_order(path):
    before = rows_of(path)
    result = DeltaTable(path).optimize.compact()
    assert result.version == 5
    assert rows_of(path) == before
    (file,) = live_files(path)
    assert pq.read_table(path / file)["n"].to_pylist() == list(range(10))
    assert not any(action["dataChange"] for kind in ("add", "remove") for action in actions(path, 5, kind))
    check_places(path, 5)


def test_what_the_commit_and_the_result_say(path):
    result = DeltaTable(path).optimize.compact()
    (add,) = actions(path, 5, "add")
    sizes = [remove["size"] for remove in actions(path, 5, "remove")]
    wanted = {
        "numFilesAdded": 1,
        "numFilesRemoved": 5,
        "partitionsOptimized": 1,
        "numBatches": 1,
        "totalConsideredFiles": 5,
        "totalFilesSkipped": 0,
        "preserveInsertionOrder": True,
        "numDeletionVectorsRemoved": 0,
    }
    assert {name: result[name] for name in wanted} == wanted
    assert result["filesAdded"] == {
        "avg": add["size"], "max": add["size"], "min": add["size"], "totalFiles": 1, "totalSize": add["size"],
    }  # fmt: skip
    removed = {"avg": sum(sizes) / 5, "max": max(sizes), "min": min(sizes), "totalFiles": 5, "totalSize": sum(sizes)}
    assert result["filesRemoved"] == removed
    (entry,) = DeltaTable(path).history(1)
    assert entry["operation"] == "OPTIMIZE"
    assert entry["operationParameters"] == {"predicate": "[]", "zOrderBy": "[]", "clusterBy": "[]", "auto": "false"}
    assert entry["isBlindAppend"] is False
    assert "rowPlaces" in commit_of(path, 5)[0]["commitInfo"]
    assert "rowPlaces" not in entry
    size = str(add["size"])
    assert entry["operationMetrics"] == {
        "numAddedFiles": "1", "numRemovedFiles": "5", "numAddedBytes": size, "numRemovedBytes": str(sum(sizes)),
        "numDeletionVectorsRemoved": "0", "minFileSize": size, "p25FileSize": size, "p50FileSize": size,
        "p75FileSize": size, "maxFileSize": size,
    }  # fmt: skip


def test_a_second_run_writes_nothing_and_new_files_join_the_old(path):
    table = DeltaTable(path)
    table.optimize.compact()
    result = table.optimize.compact()
    assert (result.version, result["numFilesAdded"], result["totalFilesSkipped"]) == (None, 0, 1)
    write_deltalake(path, numbers(10), mode="append")
    assert table.optimize.compact().version == 7
    assert len(live_files(path)) == 1
    check_places(path, 7)


def test_files_stay_in_the_order_of_their_writing(path):
    """Whatever the order in which a checkpoint lists them, and whatever their sizes."""
    table = DeltaTable(path)
    size = table.files()["size_bytes"][0].as_py()
    table.optimize.compact(target_size=2 * size + 10)
    held = [pq.read_table(path / add["path"])["n"].to_pylist() for add in actions(path, 5, "add")]
    assert sorted(held) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    check_places(path, 5)
    # Target by target, a run finds nothing to do once it has run.
    assert table.optimize.compact(target_size=2 * size + 10).version is None
    assert table.optimize.compact().version == 6


def test_files_that_are_large_enough_are_left_alone(path):
    big = list(range(100, 3100))
    write_deltalake(path, numbers(*big), mode="append")
    table = DeltaTable(path)
    largest = max(table.files()["size_bytes"].to_pylist())
    result = table.optimize.compact(target_size=largest)
    assert (result["numFilesRemoved"], result["totalConsideredFiles"], result["totalFilesSkipped"]) == (5, 6, 1)
    write_deltalake(path, numbers(1), mode="append")
    assert table.optimize.compact(min_file_size=300).version is None
    assert table.optimize.compact(target_size=10**6, min_file_size=10**6)["numFilesRemoved"] == 3


def test_the_target_size_is_the_tables_own(path):
    table = DeltaTable(path)
    size = table.files()["size_bytes"][0].as_py()
    table.alter.set_table_properties({"delta.targetFileSize": str(size)})
    assert table.optimize.compact().version is None
    assert table.optimize.compact(target_size=10 * size).version == 6


@pytest.mark.tier("test")
def test_an_output_is_cut_at_the_target_size_and_an_input_may_lie_in_two(tmp_path):
    where = tmp_path / "t"
    texts = [f"{i:05}" * 20 for i in range(60_000)]
    write_deltalake(where, numbers(*range(60_000), text=texts), configuration=VECTORS)
    hide(where, [range(0, 60_000, 7)])
    size = DeltaTable(where).files()["size_bytes"][0].as_py()
    result = DeltaTable(where).optimize.compact(target_size=size // 4)
    assert result["numFilesAdded"] > 2
    check_places(where, result.version)
    assert DeltaTable(where).optimize.compact(target_size=size // 4).version is None


def test_nothing_to_do(tmp_path):
    where = tmp_path / "t"
    table = DeltaTable.create(where, pa.schema([("n", pa.int64())]))
    assert table.optimize.compact().version is None
    write_deltalake(where, numbers(1), mode="append")
    assert table.optimize.compact().version is None


# --- deleted rows ------------------------------------------------------------------------------------------------


def test_deleted_rows_are_left_behind_with_their_vectors(path):
    hide(path, [[0], [], [1], [], []])
    before = rows_of(path)
    result = DeltaTable(path).optimize.compact()
    assert rows_of(path) == before
    assert result["numDeletionVectorsRemoved"] == 2
    (add,) = actions(path, result.version, "add")
    assert "deletionVector" not in add
    assert json.loads(add["stats"])["numRecords"] == 8
    assert sum("deletionVector" in remove for remove in actions(path, result.version, "remove")) == 2
    check_places(path, result.version)


@pytest.mark.parametrize(("deleted", "rewritten"), [(5, False), (6, True)])
def test_a_single_file_is_rewritten_for_more_than_one_deleted_row_in_twenty(tmp_path, deleted, rewritten):
    where = tmp_path / "t"
    write_deltalake(where, numbers(*range(100)), configuration=VECTORS)
    hide(where, [range(deleted)])
    result = DeltaTable(where).optimize.compact()
    assert (result.version is not None) == rewritten
    assert sum(rows_of(where).values()) == 100 - deleted
    if rewritten:
        check_places(where, result.version)
        assert DeltaTable(where).optimize.compact().version is None


def test_a_large_file_is_rewritten_for_its_deleted_rows(tmp_path):
    where = tmp_path / "t"
    write_deltalake(where, numbers(*range(100)), configuration=VECTORS)
    hide(where, [range(50)])
    result = DeltaTable(where).optimize.compact(min_file_size=0)
    assert result["numFilesAdded"] == 1


# --- partitions --------------------------------------------------------------------------------------------------


@pytest.fixture
def parted(tmp_path):
    """Three files in each of the partitions a, b and null."""
    where = tmp_path / "t"
    for i in range(3):
        data = numbers(3 * i, 3 * i + 1, 3 * i + 2, p=["a", "b", None])
        write_deltalake(where, data, mode="append", partition_by=["p"])
    return where


def test_partitions_stay_apart(parted):
    before = rows_of(parted)
    result = DeltaTable(parted).optimize.compact()
    assert rows_of(parted) == before
    assert (result["partitionsOptimized"], result["numFilesAdded"], result["numBatches"]) == (3, 3, 3)
    assert sorted(add["partitionValues"]["p"] or "" for add in actions(parted, 3, "add")) == ["", "a", "b"]
    check_places(parted, 3)


@pytest.mark.sample(check=3)
@pytest.mark.parametrize(
    ("filters", "partitions"),
    [
        ("p = 'a'", 1),
        ([("p", "=", "a")], 1),
        ([("p", "in", ["a", "b"])], 2),
        ([[("p", "=", "a")], [("p", "=", "b")]], 2),
        ("p IS NULL OR p > 'a'", 2),
        ("p = 'z'", 0),
        ([], 3),
    ],
)
def test_only_the_partitions_that_are_asked_for(parted, filters, partitions):
    result = DeltaTable(parted).optimize.compact(partition_filters=filters)
    assert result["partitionsOptimized"] == partitions
    assert len(live_files(parted)) == 9 - 2 * partitions
    if partitions == 1:
        assert "p = 'a'" in json.loads(DeltaTable(parted).history(1)[0]["operationParameters"]["predicate"])[0]


@pytest.mark.parametrize("filters", ["n > 1", "p = 'a' AND n = 2", [("n", "=", 1)]])
def test_a_filter_on_data_is_refused(parted, filters):
    for call in (DeltaTable(parted).optimize.compact, DeltaTable(parted).reorg_purge):
        with pytest.raises(InvalidArgumentError, match=r"uses n; the partition columns are: p"):
            call(partition_filters=filters)


def test_one_partition_value_in_several_spellings(tmp_path):
    where = tmp_path / "t"
    moment = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
    for i in range(2):
        write_deltalake(where, numbers(i, p=[moment]), mode="append", partition_by=["p"])
    log = where / "_delta_log" / f"{1:020d}.json"
    text = log.read_text()
    (add,) = actions(where, 1, "add")
    log.write_text(text.replace(f'"p":"{add["partitionValues"]["p"]}"', '"p":"2024-05-01 12:00:00"'))
    assert log.read_text() != text
    result = DeltaTable(where).optimize.compact()
    assert (result["partitionsOptimized"], result["numFilesAdded"]) == (1, 1)
    assert rows_of(where) == {(("n", 0), ("p", moment)): 1, (("n", 1), ("p", moment)): 1}
    check_places(where, result.version)


# --- in general --------------------------------------------------------------------------------------------------

FILES = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.integers(1, 12), st.sets(st.integers(0, 11), max_size=6)),
    min_size=1,
    max_size=8,
)


@pytest.mark.tier("test")
@examples(30)
@given(files=FILES, target=st.integers(400, 3000), partitioned=st.booleans())
def test_any_table(fresh_path, files, target, partitioned):
    path, start = fresh_path(), 0
    for number, (part, rows, _) in enumerate(files):
        data = numbers(*range(start, start + rows), p=pa.array([part] * rows, pa.string()))
        write_deltalake(
            path, data, mode="append", partition_by=["p"] if partitioned else None,
            configuration=None if number else VECTORS,
        )  # fmt: skip
        start += rows
    hide(path, [gone & set(range(rows)) for _, rows, gone in files])
    before = rows_of(path)
    table = DeltaTable(path)
    result = table.optimize.compact(target_size=target)
    assert rows_of(path) == before
    if result.version is not None:
        check_places(path, result.version)
    assert table.optimize.compact(target_size=target).version is None
    assert table.reorg_purge().version is None or rows_of(path) == before
    assert not any(add.deletion_vector for add in to_adds(table._handle.newest_for_writing().files))


def test_an_append_only_table_may_be_compacted(path):
    table = DeltaTable(path)
    table.alter.set_table_properties({"delta.appendOnly": "true"})
    assert table.optimize.compact()["numFilesRemoved"] == 5


def test_every_type_comes_through_as_it_is(tmp_path):
    where = tmp_path / "t"
    data = pa.table({
        "n": [1, 2, None],
        "s": pa.array([{"a": 1, "b": ["x", None]}, None, {"a": None, "b": None}]),
        "m": pa.array([[("k", 1.5)], None, []], pa.map_(pa.string(), pa.float64())),
        "d": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
        "t": pa.array([dt.datetime(1677, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, tzinfo=dt.UTC), None]),
        "b": [b"", b"\0", None],
        "f": [float("nan"), -0.0, None],
        "v": pa.nulls(3),
    })  # fmt: skip
    for _ in range(3):
        write_deltalake(where, data, mode="append")
    before = DeltaTable(where).to_pyarrow_table()
    assert DeltaTable(where).optimize.compact().version == 3
    after = DeltaTable(where).to_pyarrow_table()
    assert str(after.to_pylist()) == str(before.to_pylist())
    assert after.schema == before.schema


def test_a_column_that_was_added_is_null_in_old_rows(path):
    table = DeltaTable(path)
    table.alter.add_columns(pa.field("later", pa.string()))
    table.optimize.compact()
    assert table.to_pyarrow_table()["later"].null_count == 10


def test_the_files_have_statistics_and_the_tables_codec(path):
    table = DeltaTable(path)
    table.alter.set_table_properties({"delta.parquet.compression.codec": "zstd"})
    table.optimize.compact()
    (add,) = actions(path, table.version(), "add")
    assert json.loads(add["stats"]) == {
        "numRecords": 10, "minValues": {"n": 0}, "maxValues": {"n": 9}, "nullCount": {"n": 0}, "tightBounds": True,
    }  # fmt: skip
    assert pq.ParquetFile(path / add["path"]).metadata.row_group(0).column(0).compression == "ZSTD"


def test_progress_is_told(parted):
    told = []
    DeltaTable(parted).optimize.compact(progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


# --- several commits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interval", [0, dt.timedelta(0)])
def test_a_commit_per_bin(parted, interval):
    before = rows_of(parted)
    result = DeltaTable(parted).optimize.compact(min_commit_interval=interval)
    assert (result.version, result.attempts) == (5, 3)
    assert (result["partitionsOptimized"], result["numFilesRemoved"], result["filesAdded"]["totalFiles"]) == (3, 9, 3)
    assert [entry["operationMetrics"]["numRemovedFiles"] for entry in DeltaTable(parted).history(3)] == ["3"] * 3
    assert rows_of(parted) == before


def test_a_long_interval_is_one_commit(parted):
    assert DeltaTable(parted).optimize.compact(min_commit_interval=3600).version == 3
    assert DeltaTable(parted).optimize.compact(min_commit_interval=0).version is None


def test_what_others_change_between_two_commits_is_left_out(parted):
    def interfere(done, total):
        if total == 3:
            DeltaTable(parted).delete("p = 'b' AND n = 1")

    result = DeltaTable(parted).optimize.compact(min_commit_interval=0, progress=interfere)
    assert result["partitionsOptimized"] == 2
    assert sum(rows_of(parted).values()) == 8


def test_an_application_and_an_interval_do_not_go_together(path):
    recorded = CommitProperties(app_transactions=[Recorded("a", 1)])
    with pytest.raises(InvalidArgumentError, match="min_commit_interval"):
        DeltaTable(path).optimize.compact(min_commit_interval=0, commit_properties=recorded)
    table = DeltaTable(path)
    assert table.optimize.compact(commit_properties=recorded).version == 5
    write_deltalake(path, numbers(1), mode="append")
    assert table.optimize.compact(commit_properties=recorded).version is None


class Recorded:
    def __init__(self, app_id, version):
        self.app_id, self.version = app_id, version


# --- what goes wrong ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"target_size": 0}, "target_size is 0"),
        ({"target_size": -1}, "target_size is -1"),
        ({"max_concurrent_tasks": 0}, "max_concurrent_tasks is 0"),
        ({"min_file_size": -5}, "min_file_size is -5"),
        ({"max_spill_size": 0}, "max_spill_size is 0"),
        ({"min_commit_interval": -1}, "min_commit_interval must be a number of seconds, 0 or more, not -1"),
        ({"partition_filters": "p = 1"}, "column 'p' does not exist"),
        ({"partition_filters": "n ="}, "cannot be parsed|expected"),
        ({"partition_filters": "n = 1"}, "the partition columns are: none"),
    ],
)
def test_bad_arguments(path, arguments, words):
    with pytest.raises(InvalidArgumentError, match=words):
        DeltaTable(path).optimize.compact(**arguments)
    assert DeltaTable(path).version() == 4


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.breaks_tables
def test_a_failure_leaves_nothing_behind(parted, tasks):
    (file,) = [name for name in live_files(parted) if DeltaTable(parted).count() and name.startswith("p=b/part-00001")][
        :1
    ]
    content = (parted / file).read_bytes()
    (parted / file).write_bytes(content[:-8] + b"not here")
    before = data_files(parted)
    with pytest.raises(errors.DataFileError, match="p=b"):
        DeltaTable(parted).optimize.compact(max_concurrent_tasks=tasks)
    assert data_files(parted) == before
    assert DeltaTable(parted).version() == 2


def test_a_pinned_handle_cannot_write(path):
    with pytest.raises(errors.ReadOnlyTableError):
        DeltaTable(path, version=1).optimize.compact()


@pytest.mark.breaks_tables
def test_features_that_cannot_be_written_are_refused_by_name(path):
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["somethingNew"]}
    (path / "_delta_log" / f"{5:020d}.json").write_text(json.dumps({"protocol": protocol}) + "\n")
    for call in (DeltaTable(path).optimize.compact, DeltaTable(path).reorg_purge):
        with pytest.raises(errors.UnsupportedFeatureError, match="somethingNew"):
            call()


# --- in a transaction by hand ------------------------------------------------------------------------------------


def test_in_a_transaction(path):
    table = DeltaTable(path)
    before = rows_of(path)
    with table.begin() as txn:
        txn.compact()
        assert len(live_files(path)) == 5
        assert txn.commit()["numFilesRemoved"] == 5
    assert (table.version(), len(live_files(path))) == (5, 1)
    assert rows_of(path) == before


def test_an_aborted_transaction_removes_what_it_wrote(path):
    before = data_files(path)
    with DeltaTable(path).begin() as txn:
        txn.compact()
        assert len(data_files(path)) == 6
    assert data_files(path) == before


def test_a_compaction_is_the_one_statement_and_adds_no_rows(path):
    with DeltaTable(path).begin() as txn:
        txn.compact()
        with pytest.raises(InvalidArgumentError, match="holds a statement already"):
            txn.delete("n = 1")
        with pytest.raises(InvalidArgumentError, match="cannot mix an append with"):
            txn.append(numbers(7))
    with DeltaTable(path).begin() as txn:
        txn.append(numbers(7))
        with pytest.raises(InvalidArgumentError, match="cannot mix an append with"):
            txn.compact()
        assert txn.commit().version == 5


def test_application_versions_are_skipped(path):
    table = DeltaTable(path)
    for version in (5, None):
        with table.begin(app_id="nightly", app_version=1) as txn:
            txn.compact()
            assert txn.commit().version == version


def test_bins_are_rewritten_side_by_side(parted):
    before = rows_of(parted)
    result = DeltaTable(parted).optimize.compact(max_concurrent_tasks=3)
    assert result["numBatches"] == 3
    assert rows_of(parted) == before
    check_places(parted, result.version)


def test_a_bin_that_is_rewritten_holds_no_more_than_its_files(tmp_path):
    """It may go to another process. The plan's own bins are positions in one list: there are as many as partitions."""
    for _ in range(2):
        rows = numbers(*range(20), p=list(range(20)))
        write_deltalake(tmp_path / "t", rows, mode="append", partition_by="p")
    snapshot = DeltaTable(tmp_path / "t")._handle.newest_for_writing()
    plan = planned(snapshot, OptimizeRequest(aim="compact"))
    assert [len(one.members) for one in plan.bins] == [2] * 20
    apart = [plan.files_of(one).files for one in plan.bins]
    assert [files.num_rows for files in apart] == [2] * 20
    whole = snapshot.files.combine_chunks().get_total_buffer_size()
    assert sum(files.get_total_buffer_size() for files in apart) < 3 * whole
