"""Deletion vectors in statements: what DELETE, UPDATE, MERGE and the overwrites leave in the log that enables them.

That they leave the right rows, against a model and against tables without vectors, is in ``test_dml_model.py``.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.engine.log.location import open_location
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.log.state import to_adds
from refdelta.engine.parquet.dv import load_deletion_vector
from written_tables import actions, ids_of, with_vector

ENABLED = {"delta.enableDeletionVectors": "true"}
FEATURES = {"appendOnly", "invariants", "deletionVectors"}


def vectors(path):
    """The rows that are hidden in each file that has a vector, by path."""
    store = open_location(path)
    adds = to_adds(load_snapshot(store).files)
    return {a.path: load_deletion_vector(store, a.deletion_vector) for a in adds if a.deletion_vector is not None}


def metrics(path):
    return {name: int(value) for name, value in DeltaTable(path).history(1)[0]["operationMetrics"].items()}


def vector_files(path):
    return sorted(file.name for file in path.rglob("deletion_vector_*.bin"))


@pytest.fixture
def path(tmp_path):
    """Two files: 0 to 9, 10 to 19; ``v`` is ten times ``id``, ``p`` its last bit."""
    where = tmp_path / "t"
    for start in (0, 10):
        numbers = list(range(start, start + 10))
        data = pa.table({"id": numbers, "v": [10 * n for n in numbers], "p": [n % 2 for n in numbers]})
        write_deltalake(where, data, mode="append", configuration=ENABLED)
    return where


# --- the property ---


def test_a_new_table_with_the_property_has_the_feature(path):
    protocol = DeltaTable(path).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert protocol.reader_features == ["deletionVectors"]
    assert set(protocol.writer_features) == FEATURES


def test_a_table_of_an_old_protocol_gets_the_feature_with_the_property(tmp_path):
    write_deltalake(tmp_path, pa.table({"id": [1, 2, 3]}))
    table = DeltaTable(tmp_path)
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 2)
    table.alter.set_table_properties({"delta.enableDeletionVectors": True})
    protocol = DeltaTable(tmp_path).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert (protocol.reader_features, set(protocol.writer_features)) == (["deletionVectors"], FEATURES)
    table.delete("id = 2")
    assert list(vectors(tmp_path).values()) == [BitMap64([1])]


def test_with_the_property_off_files_keep_their_vectors_and_get_no_new_ones(path):
    table = DeltaTable(path)
    table.delete("id IN (3, 13)")
    table.alter.set_table_properties({"delta.enableDeletionVectors": "false"})
    assert "deletionVectors" in DeltaTable(path).protocol().reader_features
    table.delete("id = 5")
    (hidden,) = vectors(path).values()
    assert hidden == BitMap64([3])
    assert "deletionVector" not in actions(path, 4, "add")[0]
    assert ids_of(path) == [n for n in range(20) if n not in (3, 5, 13)]


def test_a_feature_that_forbids_vectors_is_refused_with_the_property(tmp_path):
    with pytest.raises(errors.InvalidArgumentError, match="IcebergCompatV2 writes no deletion vectors"):
        write_deltalake(
            tmp_path, pa.table({"id": [1]}), configuration={**ENABLED, "delta.enableIcebergCompatV2": "true"}
        )


# --- what the log says ---


def test_a_delete_hides_rows_and_writes_no_data_file(path):
    files = sorted(path.glob("*.parquet"))
    result = DeltaTable(path).delete("id IN (3, 4, 12)")
    assert sorted(path.glob("*.parquet")) == files
    assert ids_of(path) == [n for n in range(20) if n not in (3, 4, 12)]
    before = {add["path"]: add for version in (0, 1) for add in actions(path, version, "add")}
    adds = {add["path"]: add for add in actions(path, 2, "add")}
    removes = {remove["path"]: remove for remove in actions(path, 2, "remove")}
    assert adds.keys() == removes.keys() == before.keys()
    for name, add in adds.items():
        vector, stats = add.pop("deletionVector"), json.loads(add.pop("stats"))
        old = json.loads(before[name].pop("stats"))
        assert add == before[name]
        assert stats == {**old, "tightBounds": False}
        assert stats["numRecords"] == 10
        assert vector["cardinality"] == (2 if old["minValues"]["id"] == 0 else 1)
        assert "deletionVector" not in removes[name]
        assert removes[name]["dataChange"]
    assert sorted(map(list, vectors(path).values())) == [[2], [3, 4]]
    wanted = {"num_deleted_rows": 3, "num_copied_rows": 0, "num_added_files": 0, "num_removed_files": 0}
    wanted |= {"num_deletion_vectors_added": 2, "num_deletion_vectors_updated": 0, "num_deletion_vectors_removed": 0}
    assert {name: result[name] for name in wanted} == wanted
    noted = metrics(path)
    noted.pop("executionTimeMs")
    assert noted == {
        "numRemovedFiles": 0,
        "numRemovedBytes": 0,
        "numAddedFiles": 0,
        "numAddedBytes": 0,
        "numCopiedRows": 0,
        "numDeletedRows": 3,
        "numAddedChangeFiles": 0,
        "numDeletionVectorsAdded": 2,
        "numDeletionVectorsRemoved": 0,
        "numDeletionVectorsUpdated": 0,
    }


def test_the_next_delete_unites_the_vectors_and_names_the_old_one(path):
    table = DeltaTable(path)
    table.delete("id = 3")
    (old,) = actions(path, 2, "add")
    result = table.delete("id IN (3, 5)")
    (remove,), (add,) = actions(path, 3, "remove"), actions(path, 3, "add")
    assert remove["deletionVector"] == old["deletionVector"]
    assert add["path"] == old["path"]
    assert list(vectors(path).values()) == [BitMap64([3, 5])]
    assert result["num_deleted_rows"] == 1
    counts = [metrics(path)[f"numDeletionVectors{what}"] for what in ("Added", "Updated", "Removed")]
    assert counts == [1, 1, 1]
    assert table.delete("id IN (3, 5)").version is None


def test_a_file_whose_rows_all_go_is_removed(path):
    table = DeltaTable(path)
    table.delete("id < 4")
    result = table.delete("id < 11 AND v >= 0")
    removes, adds = actions(path, 3, "remove"), actions(path, 3, "add")
    assert (len(removes), len(adds)) == (2, 1)
    assert sum("deletionVector" in remove for remove in removes) == 1
    assert (result["num_removed_files"], result["num_deletion_vectors_removed"]) == (1, 1)
    assert (metrics(path)["numRemovedFiles"], metrics(path)["numDeletionVectorsAdded"]) == (1, 1)
    assert metrics(path)["numRemovedBytes"] > 0
    assert ids_of(path) == list(range(11, 20))


def test_large_vectors_lie_in_one_file_at_the_root(tmp_path):
    where = tmp_path / "t"
    for start in (0, 10_000):
        data = pa.table({"id": range(start, start + 10_000), "p": [start] * 10_000})
        write_deltalake(where, data, mode="append", configuration=ENABLED, partition_by="p")
    table = DeltaTable(where)
    table.delete("id % 7 = 0")
    (name,) = vector_files(where)
    assert (where / name).exists()
    assert ids_of(where) == [n for n in range(20_000) if n % 7]
    table.delete("id % 11 = 0")
    assert len(vector_files(where)) == 2
    assert ids_of(where) == [n for n in range(20_000) if n % 7 and n % 11]
    assert ids_of(where, version=2) == [n for n in range(20_000) if n % 7]


@pytest.mark.breaks_tables
def test_files_without_statistics_get_the_count_that_a_vector_needs(tmp_path):
    with_vector(tmp_path, [0, 9])
    log = tmp_path / "_delta_log" / f"{1:020d}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    del lines[1]["add"]["stats"]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = DeltaTable(tmp_path)
    table.alter.set_table_properties(ENABLED)
    result = table.delete("id = 4")
    (add,) = actions(tmp_path, 3, "add")
    assert json.loads(add["stats"]) == {"numRecords": 10, "tightBounds": False}
    assert (result["num_deleted_rows"], result["num_deletion_vectors_updated"]) == (1, 1)
    assert ids_of(tmp_path) == [1, 2, 3, 5, 6, 7, 8]
    assert DeltaTable(tmp_path).count() == 7
    table.delete("id > 0")
    assert not vectors(tmp_path)
    assert DeltaTable(tmp_path).count() == 0


def test_a_count_that_is_wrong_in_the_log_costs_no_row(tmp_path):
    """As many rows go as the log says that there are: the file has more, and keeps them."""
    write_deltalake(tmp_path, pa.table({"id": range(10)}), configuration=ENABLED)
    log = tmp_path / "_delta_log" / f"{0:020d}.json"
    log.write_text(log.read_text().replace('\\"numRecords\\":10', '\\"numRecords\\":3'))
    (tmp_path / "_delta_log" / f"{0:020d}.crc").unlink()
    DeltaTable(tmp_path).delete("id < 3")
    assert json.loads(actions(tmp_path, 1, "add")[0]["stats"])["numRecords"] == 10
    assert ids_of(tmp_path) == list(range(3, 10))


def test_statistics_that_a_checkpoint_has_as_structs_alone_outlive_a_vector(tmp_path):
    structs = {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"}
    write_deltalake(tmp_path, pa.table({"id": range(5)}), configuration=ENABLED | structs)
    table = DeltaTable(tmp_path)
    table.create_checkpoint()
    (tmp_path / "_delta_log" / f"{0:020d}.json").unlink()
    DeltaTable(tmp_path).delete("id = 2")
    (add,) = actions(tmp_path, 1, "add")
    stats = json.loads(add["stats"])
    assert (stats["numRecords"], stats["tightBounds"]) == (5, False)
    assert (stats["minValues"], stats["maxValues"], stats["nullCount"]) == ({"id": 0}, {"id": 4}, {"id": 0})


# --- UPDATE ---


def test_an_update_writes_the_new_rows_and_hides_the_old_ones(path):
    result = DeltaTable(path).update({"v": "v + 1"}, predicate="id IN (3, 15)")
    (new,) = [add for add in actions(path, 2, "add") if "deletionVector" not in add]
    assert json.loads(new["stats"])["numRecords"] == 2
    assert sorted(map(list, vectors(path).values())) == [[3], [5]]
    rows = {row["id"]: row["v"] for row in DeltaTable(path).to_pyarrow_table().to_pylist()}
    assert rows == {n: 10 * n + (n in (3, 15)) for n in range(20)}
    assert (result["num_updated_rows"], result["num_copied_rows"]) == (2, 0)
    assert (result["num_added_files"], result["num_removed_files"]) == (1, 0)
    noted = metrics(path)
    assert (noted["numUpdatedRows"], noted["numCopiedRows"]) == (2, 0)
    # As in Spark, which counts the files in which rows are updated.
    assert (noted["numAddedFiles"], noted["numRemovedFiles"], noted["numDeletionVectorsAdded"]) == (1, 2, 2)


def test_an_update_of_all_rows_removes_the_files(path):
    DeltaTable(path).delete("id = 0")
    result = DeltaTable(path).update({"v": "1"})
    assert not vectors(path)
    assert (result["num_removed_files"], result["num_updated_rows"]) == (2, 19)
    assert metrics(path)["numDeletionVectorsRemoved"] == 1
    assert ids_of(path) == list(range(1, 20))


def test_an_update_moves_rows_between_partitions(tmp_path):
    data = pa.table({"id": range(6), "p": ["a", "a", "a", "b", "b", "b"]})
    write_deltalake(tmp_path, data, partition_by="p", configuration=ENABLED)
    DeltaTable(tmp_path).update({"p": "'b'", "id": "id + 100"}, predicate="id = 1")
    (new,) = [add for add in actions(tmp_path, 1, "add") if "deletionVector" not in add]
    assert new["partitionValues"] == {"p": "b"}
    table = DeltaTable(tmp_path)
    found = sorted((row["p"], row["id"]) for row in table.to_pyarrow_table().to_pylist())
    assert found == [("a", 0), ("a", 2), ("b", 3), ("b", 4), ("b", 5), ("b", 101)]
    assert table.to_pyarrow_table(filters="p = 'b'").num_rows == 4
    # A predicate over partitions alone takes all of their live rows.
    result = table.update({"id": "-id"}, predicate="p = 'a'")
    assert (result["num_updated_rows"], result["num_removed_files"]) == (2, 1)


def test_a_statement_that_fails_leaves_nothing(path):
    files = sorted(path.rglob("*"))
    with pytest.raises(errors.DeltaError):
        DeltaTable(path).update({"v": "id / (id - 3)"}, predicate="id IN (2, 3)")
    txn = DeltaTable(path).begin()
    with pytest.raises(errors.DeltaError):
        txn.update({"v": "id / (id - 3)"}, predicate="id IN (2, 3)")
    txn.append(pa.table({"id": [99], "v": [0], "p": [0]}))
    txn.commit()
    assert len(sorted(path.rglob("*.parquet"))) == len([file for file in files if file.suffix == ".parquet"]) + 1
    assert not vectors(path)
    assert ids_of(path) == [*range(20), 99]


# --- MERGE ---


def merge(path, source, **options):
    return DeltaTable(path).merge(pa.table(source), "t.id = s.id", **options)


def test_a_merge_writes_what_changes_and_what_is_new(path):
    source = {"id": [1, 2, 3, 30], "v": [-1, -2, -3, -30], "p": [0, 0, 0, 0]}
    result = (
        merge(path, source)
        .when_matched_delete(predicate="s.id = 1")
        .when_matched_update({"v": "s.v"}, predicate="s.id = 2")
        .when_not_matched_insert_all()
        .execute()
    )
    (new,) = [add for add in actions(path, 2, "add") if "deletionVector" not in add]
    assert json.loads(new["stats"])["numRecords"] == 2
    assert list(vectors(path).values()) == [BitMap64([1, 2])]
    rows = {row["id"]: row["v"] for row in DeltaTable(path).to_pyarrow_table().to_pylist()}
    assert rows == {n: 10 * n for n in range(20) if n != 1} | {2: -2, 30: -30}
    assert result["num_target_rows_copied"] == 0
    noted = metrics(path)
    assert (noted["numTargetRowsUpdated"], noted["numTargetRowsDeleted"], noted["numTargetRowsInserted"]) == (1, 1, 1)
    assert (noted["numTargetFilesAdded"], noted["numTargetFilesRemoved"], noted["numOutputRows"]) == (1, 0, 2)
    counts = [noted[f"numTargetDeletionVectors{what}"] for what in ("Added", "Updated", "Removed")]
    assert counts == [1, 0, 0]


def test_a_merge_that_deletes_a_row_twice_hides_it_once(path):
    result = merge(path, {"id": [5, 5, 6]}).when_matched_delete().execute()
    assert list(vectors(path).values()) == [BitMap64([5, 6])]
    assert result["num_target_rows_deleted"] == 2


def test_a_merge_reads_the_rows_that_it_matches_and_leaves_alone(path):
    """They count as read, the other rows of their file do not; what is changed counts as deleted beside it."""
    with DeltaTable(path).begin() as txn:
        txn.merge(pa.table({"id": [1, 2, 12]}), "t.id = s.id").when_matched_update(
            {"v": "0"}, predicate="s.id = 2"
        ).execute()
        assert sorted(list(rows) for _, rows in txn._transaction._rows_read.values()) == [[1, 2], [2]]
        assert [list(edit.rows) for edit in txn._transaction._row_deletes.values()] == [[2]]
        txn.commit()


def test_a_merge_by_source_hides_the_rest(path):
    result = (
        merge(path, {"id": list(range(3, 20))})
        .when_not_matched_by_source_delete("t.id = 0")
        .when_not_matched_by_source_update({"v": "7"}, "t.id = 1")
        .execute()
    )
    assert list(vectors(path).values()) == [BitMap64([0, 1])]
    assert (result["num_target_rows_deleted"], result["num_target_rows_updated"]) == (1, 1)
    assert ids_of(path) == list(range(1, 20))


def test_a_merge_that_grows_the_schema(path):
    source = {"id": [3, 40], "new": ["x", "y"]}
    (
        merge(path, source, merge_schema=True)
        .when_matched_update({"new": "s.new"})
        .when_not_matched_insert({"id": "s.id", "new": "s.new"})
        .execute()
    )
    rows = {row["id"]: row["new"] for row in DeltaTable(path).to_pyarrow_table().to_pylist()}
    assert rows == dict.fromkeys(range(20)) | {3: "x", 40: "y"}
    assert list(vectors(path).values()) == [BitMap64([3])]


# --- the overwrites ---


def test_replace_where_hides_the_rows_of_its_predicate(path):
    new = pa.table({"id": [4, 5], "v": [0, 0], "p": [0, 0]})
    result = write_deltalake(path, new, mode="overwrite", predicate="id > 3 AND id < 12")
    assert sorted(map(list, vectors(path).values())) == [[0, 1], [4, 5, 6, 7, 8, 9]]
    assert ids_of(path) == [0, 1, 2, 3, 4, 5, *range(12, 20)]
    assert (result["num_added_files"], result["num_removed_files"], result["num_copied_rows"]) == (1, 0, 0)
    assert result["num_deletion_vectors_added"] == 2


@pytest.mark.parametrize("statement", ["overwrite", "delete", "replace"])
def test_what_takes_all_rows_removes_the_files(path, statement):
    table = DeltaTable(path)
    table.delete("id = 3")
    if statement == "delete":
        assert table.delete()["num_deleted_rows"] == 19
    elif statement == "overwrite":
        write_deltalake(table, pa.table({"id": [1], "v": [1], "p": [1]}), mode="overwrite")
    else:
        DeltaTable.create(str(path), DeltaTable(path).schema(), mode="overwrite")
    removes = actions(path, 3, "remove")
    assert len(removes) == 2
    assert sum("deletionVector" in remove for remove in removes) == 1
    assert ids_of(path) == ([1] if statement == "overwrite" else [])


def test_dynamic_partition_overwrite(tmp_path):
    data = pa.table({"id": range(6), "p": ["a", "a", "b", "b", "c", "c"]})
    write_deltalake(tmp_path, data, partition_by="p", configuration=ENABLED)
    DeltaTable(tmp_path).delete("id IN (2, 4)")
    new = pa.table({"id": [7], "p": ["b"]})
    write_deltalake(tmp_path, new, mode="overwrite", partition_overwrite="dynamic")
    assert ids_of(tmp_path) == [0, 1, 5, 7]
    (remove,) = actions(tmp_path, 2, "remove")
    assert remove["deletionVector"]["cardinality"] == 1


def test_append_only_tables_refuse(tmp_path):
    write_deltalake(tmp_path, pa.table({"id": [1, 2]}), configuration=ENABLED | {"delta.appendOnly": "true"})
    table = DeltaTable(tmp_path)
    for statement in (
        lambda: table.delete("id = 1"),
        lambda: table.update({"id": "3"}, predicate="id = 1"),
        lambda: merge(tmp_path, {"id": [1]}).when_matched_delete().execute(),
    ):
        with pytest.raises(errors.ConstraintViolationError, match="append-only"):
            statement()
    merge(tmp_path, {"id": [1, 3]}).when_not_matched_insert_all().execute()
    assert ids_of(tmp_path) == [1, 2, 3]


# --- what readers see ---


def test_counts_files_checkpoints_and_checksums(path):
    table = DeltaTable(path)
    table.delete("id IN (0, 1, 2, 11)")
    table.create_checkpoint()
    for known in (table, DeltaTable(path)):
        assert known.count() == 16
        assert known.to_pyarrow_table().num_rows == 16
        assert known.detail()["num_files"] == 2
        shown = known.files().sort_by([("num_deleted", "ascending")])
        assert (shown["num_records"].to_pylist(), shown["num_deleted"].to_pylist()) == ([10, 10], [1, 3])
        assert known.get_add_actions()["num_records"].to_pylist() == [10, 10]
        assert known.scan(predicate="id < 12").explain().deletion_vectors == 2
        assert known.scan(predicate="id < 12").count() == 8
    checksum = json.loads((path / "_delta_log" / f"{2:020d}.crc").read_text())
    assert (checksum["numDeletedRecordsOpt"], checksum["numDeletionVectorsOpt"]) == (4, 2)
    assert checksum["deletedRecordCountsHistogramOpt"] == {"deletedRecordCounts": [0, 2, 0, 0, 0, 0, 0, 0, 0, 0]}
    # Bounds still hold after rows are hidden, and are all that statistics say.
    assert known.scan(predicate="id > 19").explain().files_read == 0


def test_a_delete_by_hand_reads_what_it_sees(path):
    table = DeltaTable(path)
    table.delete("id < 3")
    with table.begin() as txn:
        found = txn.read(["id"], "id < 5")
        assert found.column("id").to_pylist() == [3, 4]
        assert [list(rows) for _, rows in txn._transaction._rows_read.values()] == [[3, 4]]
        txn.delete("id = 4")
        txn.append(pa.table({"id": [100], "v": [0], "p": [0]}))
        txn.commit()
    assert ids_of(path) == [3, *range(5, 20), 100]


# --- next to other writers ---


def many(*keys):
    """A source of so many keys that a MERGE knows their range alone as a predicate."""
    return pa.table({"id": [n for n in range(1_000, 3_000) if n not in (1_500, 2_500)] + list(keys)})


@pytest.mark.parametrize(("own", "theirs", "conflicts"), [(1_500, 2_500, False), (1_500, 1_500, True)])
def test_a_merge_asks_new_rows_whether_they_match_its_source(path, own, theirs, conflicts):
    table = DeltaTable(path)
    with table.begin() as txn:
        txn.merge(many(own), "t.id = s.id").when_not_matched_insert({"id": "s.id"}).execute()
        # Not a blind append, so that it counts at either level.
        with DeltaTable(path).begin() as winner:
            winner.read(["id"], "id = 0")
            winner.append(pa.table({"id": [theirs], "v": [0], "p": [0]}))
            winner.commit()
        if conflicts:
            with pytest.raises(errors.ConcurrentAppendException):
                txn.commit()
        else:
            txn.commit()
    assert ids_of(path).count(1_500) == 1


def test_statements_on_other_rows_of_one_file_all_commit(path):
    table = DeltaTable(path)
    writers = [table.begin() for _ in range(4)]
    writers[0].delete("id = 1")
    writers[1].update({"v": "-1"}, predicate="id = 2")
    writers[2].merge(pa.table({"id": [3, 50]}), "t.id = s.id").when_matched_delete().execute()
    writers[3].delete("id IN (7, 8)")
    for writer in writers:
        writer.commit()
    rows = {row["id"]: row["v"] for row in DeltaTable(path).to_pyarrow_table().to_pylist()}
    assert rows == {n: 10 * n for n in range(20) if n not in (1, 3, 7, 8)} | {2: -1}
    assert list(vectors(path).values()) == [BitMap64([1, 2, 3, 7, 8])]


def test_statements_on_one_row_have_one_winner_and_the_loser_leaves_nothing(tmp_path):
    where = tmp_path / "t"
    write_deltalake(where, pa.table({"id": range(10_000)}), configuration=ENABLED)
    table = DeltaTable(where)
    first, second = table.begin(), table.begin()
    first.delete("id % 3 = 0")
    second.delete("id % 5 = 0")
    first.commit()
    with pytest.raises(errors.ConcurrentModificationError):
        second.commit()
    assert ids_of(where) == [n for n in range(10_000) if n % 3]
    assert len(vector_files(where)) == 1


def test_a_filter_does_not_ask_deleted_rows_what_has_no_answer(path):
    table = DeltaTable(path)
    with pytest.raises(errors.ExpressionError):
        table.to_pyarrow_table(filters="v / id = 10")
    table.delete("id = 0")
    assert table.to_pyarrow_table(filters="v / id = 10").num_rows == 19
