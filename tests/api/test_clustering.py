"""Clustered tables (PROTOCOL.md, "Clustered Table"): made, written to, replaced and restored.

Tests of operations.shared.clustering.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from refdelta import DeltaTable, errors, verify, write_deltalake
from refdelta.core.log.paths import commit_key
from refdelta.operations.layout import auto_compact
from written_tables import actions

DATA = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "Name": ["d", "c", "b", "a"],
        "s": pa.array([{"x": i, "y.z": str(i)} for i in range(4)]),
        "flag": [True, False, True, False],
        "raw": pa.array([b"1", b"2", b"3", b"4"]),
        "l": pa.array([[1], [2], [3], [4]]),
    }
)
VECTORS = "delta.enableDeletionVectors"
TRACKING = "delta.enableRowTracking"


def domain(path, version):
    found = actions(path, version, "domainMetadata")
    return [action for action in found if action["domain"] == "delta.clustering"]


def configuration(table):
    """The properties, without the names of the columns in which rows keep their ids."""
    found = table.metadata().configuration
    return {name: value for name, value in found.items() if not name.startswith("delta.rowTracking.materialized")}


def clustered_by(*paths):
    columns = json.dumps([list(path) for path in paths], separators=(",", ":"))
    text = f'{{"clusteringColumns":{columns},"domainName":"delta.clustering"}}'
    return [{"domain": "delta.clustering", "configuration": text, "removed": False}]


def stats(path, version):
    return [json.loads(add["stats"]) for add in actions(path, version, "add")]


# --- making ------------------------------------------------------------------------------------------------------


def test_a_table_is_created_clustered(tmp_path):
    table = DeltaTable.create(tmp_path, DATA.schema, cluster_by=["ID", "s.x", "s.`y.z`"])
    assert domain(tmp_path, 0) == clustered_by(["id"], ["s", "x"], ["s", "y.z"])
    features = {"clustering", "domainMetadata", "deletionVectors", "rowTracking"}
    assert features <= set(table.protocol().writer_features)
    assert table.protocol().reader_features == ["deletionVectors"]
    assert configuration(table) == {VECTORS: "true", TRACKING: "true"}
    assert len(table.metadata().configuration) == 4
    assert table.detail()["clustering_columns"] == ["id", "s.x", "s.`y.z`"]
    assert table.history()[0]["operationParameters"]["clusterBy"] == '["id","s.x","s.`y.z`"]'


def test_a_first_write_creates_one(tmp_path):
    write_deltalake(tmp_path, DATA, cluster_by="name")
    table = DeltaTable(tmp_path)
    assert (domain(tmp_path, 0), table.detail()["clustering_columns"]) == (clustered_by(["Name"]), ["Name"])
    assert table.to_pyarrow_table() == DATA


@pytest.mark.parametrize("name", [VECTORS, VECTORS.lower()])
def test_vectors_are_left_off_where_that_is_said(tmp_path, name):
    table = DeltaTable.create(tmp_path, DATA.schema, cluster_by="id", configuration={name: "false"})
    assert table.metadata().configuration == {VECTORS: "false"}
    assert not {"deletionVectors", "rowTracking"} & set(table.protocol().writer_features)
    assert table.protocol().min_reader_version == 1


@pytest.mark.parametrize(
    ("given", "tracked"),
    [
        ({TRACKING: "false"}, False),
        ({TRACKING.lower(): "False"}, False),
        ({"delta.rowTrackingSuspended": "true"}, False),
        ({VECTORS: "true"}, True),
        ({VECTORS: "false", TRACKING: "true"}, True),
    ],
)
def test_rows_are_tracked_unless_that_is_said(tmp_path, given, tracked):
    """With deletion vectors; without them OPTIMIZE can conflict in any case."""
    write_deltalake(tmp_path, DATA, cluster_by="id", configuration=given)
    table = DeltaTable(tmp_path)
    assert configuration(table).get(TRACKING) == (
        "true" if tracked else given.get(TRACKING, given.get(TRACKING.lower()))
    )
    assert ("rowTracking" in table.protocol().writer_features) == tracked
    table.update({"Name": "'z'"}, predicate="id = 2")
    table.optimize.cluster()
    if tracked:
        ids = table.to_pyarrow_table(columns=["id", "_metadata.row_id"]).to_pylist()
        assert sorted((row["id"], row["_metadata.row_id"]) for row in ids) == [(1, 0), (2, 1), (3, 2), (4, 3)]
    assert not verify(tmp_path, sample=None).findings


def test_a_table_without_clustering_columns_tracks_no_rows(tmp_path):
    table = DeltaTable.create(tmp_path, DATA.schema, configuration={VECTORS: "true"})
    assert table.metadata().configuration == {VECTORS: "true"}


def test_no_columns_make_no_clustered_table(tmp_path):
    table = DeltaTable.create(tmp_path, DATA.schema, cluster_by=[])
    assert (table.metadata().configuration, table.protocol().min_writer_version) == ({}, 2)


@pytest.mark.parametrize(
    ("cluster_by", "error", "match"),
    [
        (["gone"], errors.ColumnNotFoundError, "'gone'"),
        (["id.x"], errors.ColumnNotFoundError, "'id.x'"),
        (["s.gone"], errors.ColumnNotFoundError, "'s.gone'"),
        (["s"], errors.InvalidArgumentError, "'s' cannot cluster"),
        (["flag"], errors.InvalidArgumentError, "'flag' cannot cluster.*boolean"),
        (["raw"], errors.InvalidArgumentError, "'raw' cannot cluster.*binary"),
        (["l"], errors.InvalidArgumentError, "'l' cannot cluster"),
        (["id", "ID"], errors.InvalidArgumentError, "'id' twice"),
        (["s."], errors.InvalidArgumentError, "'s.' is not a column name"),
        (["id", "Name", "s.x", "s.`y.z`", "flag"], errors.InvalidArgumentError, "5 columns.*at most 4"),
    ],
)
def test_columns_that_cannot_cluster(tmp_path, cluster_by, error, match):
    for make in (
        lambda: DeltaTable.create(tmp_path / "t", DATA.schema, cluster_by=cluster_by),
        lambda: write_deltalake(tmp_path / "t", DATA, cluster_by=cluster_by),
    ):
        with pytest.raises(error, match=match):
            make()
        assert not (tmp_path / "t").exists()


def test_a_table_is_clustered_or_partitioned(tmp_path):
    with pytest.raises(errors.InvalidArgumentError, match=r"clustered table cannot have partition columns.*Name"):
        DeltaTable.create(tmp_path / "t", DATA.schema, partition_by="Name", cluster_by="id")
    assert not (tmp_path / "t").exists()


def test_the_feature_is_not_set_by_a_property(tmp_path):
    feature = {"delta.feature.Clustering": "supported"}
    with pytest.raises(errors.InvalidArgumentError, match="cluster_by"):
        DeltaTable.create(tmp_path / "t", DATA.schema, configuration=feature)
    table = DeltaTable.create(tmp_path / "t", DATA.schema)
    with pytest.raises(errors.InvalidArgumentError, match="cluster_by"):
        table.alter.set_table_properties(feature)


# --- writing -----------------------------------------------------------------------------------------------------


def test_writes_agree_with_the_columns(tmp_path):
    write_deltalake(tmp_path, DATA, cluster_by=["id", "Name"])
    write_deltalake(tmp_path, DATA, mode="append", cluster_by=["ID", "name"])
    write_deltalake(tmp_path, DATA, mode="overwrite")
    for other in (["Name", "id"], ["id"], []):
        with pytest.raises(errors.InvalidArgumentError, match=r"clustered by \['id', 'Name'\], not by"):
            write_deltalake(tmp_path, DATA, mode="append", cluster_by=other)
    assert DeltaTable(tmp_path).detail()["clustering_columns"] == ["id", "Name"]
    assert [domain(tmp_path, version) for version in (1, 2)] == [[], []]
    write_deltalake(tmp_path / "plain", DATA)
    with pytest.raises(errors.InvalidArgumentError, match=r"clustered by \[\], not by \['id'\]"):
        write_deltalake(tmp_path / "plain", DATA, mode="append", cluster_by="id")


WIDE = pa.table({f"c{i}": pa.array([i, i + 1], pa.int64()) for i in range(40)})


@pytest.mark.tier("test")
@pytest.mark.sample(check=1)
@pytest.mark.parametrize(
    ("configuration", "others"),
    [
        ({}, 32),
        ({"delta.dataSkippingNumIndexedCols": "0"}, 0),
        ({"delta.dataSkippingStatsColumns": "c1,c2"}, 2),
    ],
)
def test_every_write_has_statistics_of_the_columns(tmp_path, configuration, others):
    """Appends, what statements rewrite, compactions, and statistics as structs in checkpoints."""
    asked = {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"}
    write_deltalake(tmp_path, WIDE, cluster_by=["c39"], configuration={**configuration, **asked, VECTORS: "false"})
    table = DeltaTable(tmp_path)
    table.update({"c0": "7"}, predicate="c39 = 40")
    table.merge(WIDE.slice(0, 1), "s.c0 = t.c0").when_matched_update({"c1": "9"}).execute()
    write_deltalake(table, WIDE, mode="append")
    table.optimize.compact()
    assert table.version() == 4
    for version in range(5):
        for found in stats(tmp_path, version):
            assert found["nullCount"]["c39"] == 0
            assert 39 <= found["minValues"]["c39"] <= found["maxValues"]["c39"] <= 40
            assert len(found["minValues"]) == others + 1
    table.create_checkpoint()
    again = DeltaTable(tmp_path)
    assert again.detail()["clustering_columns"] == ["c39"]
    assert again.scan(predicate="c39 > 40").explain().pruned_by_stats == 1


def test_statements_and_compaction_keep_the_domain_and_name_no_provider(tmp_path):
    write_deltalake(tmp_path, DATA, cluster_by="id")
    table = DeltaTable(tmp_path)
    write_deltalake(table, DATA, mode="append")
    table.delete("id = 1")
    table.update({"Name": "'z'"}, predicate="id = 2")
    table.optimize.compact()
    assert table.detail()["clustering_columns"] == ["id"]
    adds = [add for version in range(table.version() + 1) for add in actions(tmp_path, version, "add")]
    assert all("clusteringProvider" not in add for add in adds)
    assert table.history(1)[0]["operationParameters"]["clusterBy"] == "[]"
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [2, 2, 3, 3, 4, 4]


def test_z_order_is_refused(tmp_path):
    write_deltalake(tmp_path, DATA, cluster_by=["id", "s.`y.z`"])
    with pytest.raises(errors.InvalidArgumentError, match=r"clustered by id, s.`y.z`.*optimize.compact\(\)"):
        DeltaTable(tmp_path).optimize.z_order(["Name"])


def test_disjoint_deletes_of_one_file_both_commit(tmp_path):
    """Row-level concurrency: liquid clustering with deletion vectors."""
    write_deltalake(tmp_path, DATA, cluster_by="id")
    table = DeltaTable(tmp_path)
    first, second = table.begin(), DeltaTable(tmp_path).begin()
    first.delete("id = 1")
    second.delete("id = 3")
    first.commit()
    assert second.commit().rebased_over == (1,)
    table.update_incremental()
    assert table.to_pyarrow_table()["id"].to_pylist() == [2, 4]
    assert len(table.file_uris()) == 1


# --- another schema ----------------------------------------------------------------------------------------------


def test_another_schema_keeps_the_columns(tmp_path):
    write_deltalake(tmp_path, DATA, cluster_by=["id", "Name"])
    narrow = DATA.select(["Name", "id"])
    write_deltalake(tmp_path, narrow, mode="overwrite", schema_mode="overwrite")
    assert domain(tmp_path, 1) == []
    with pytest.raises(errors.ColumnNotFoundError, match=r"'Name'.*cannot cluster"):
        write_deltalake(tmp_path, DATA.select(["id"]), mode="overwrite", schema_mode="overwrite")
    flags = DATA.select(["Name"]).append_column("id", DATA["flag"])
    with pytest.raises(errors.InvalidArgumentError, match=r"'id' cannot cluster.*boolean"):
        write_deltalake(tmp_path, flags, mode="overwrite", schema_mode="overwrite")
    assert DeltaTable(tmp_path).version() == 1


def test_another_schema_may_have_other_columns(tmp_path):
    write_deltalake(tmp_path, DATA, cluster_by="id")
    again = {"mode": "overwrite", "schema_mode": "overwrite"}
    write_deltalake(tmp_path, DATA, cluster_by="Name", **again)
    assert domain(tmp_path, 1) == clustered_by(["Name"])
    write_deltalake(tmp_path, DATA, cluster_by=[], **again)
    assert domain(tmp_path, 2) == clustered_by()
    assert DeltaTable(tmp_path).detail()["clustering_columns"] == []
    with pytest.raises(errors.InvalidArgumentError, match="once it was clustered"):
        write_deltalake(tmp_path, DATA, partition_by="Name", **again)


def test_a_partitioned_table_becomes_a_clustered_one(tmp_path):
    write_deltalake(tmp_path, DATA, partition_by="Name")
    again = {"mode": "overwrite", "schema_mode": "overwrite", "cluster_by": "id"}
    with pytest.raises(errors.InvalidArgumentError, match=r"partition_by=\[\]"):
        write_deltalake(tmp_path, DATA, **again)
    write_deltalake(tmp_path, DATA, partition_by=[], **again)
    table = DeltaTable(tmp_path)
    assert (table.metadata().partition_columns, table.detail()["clustering_columns"]) == ([], ["id"])
    assert {"clustering", "domainMetadata"} <= set(table.protocol().writer_features)
    # The version before it was partitioned, which a table of this protocol cannot be.
    with pytest.raises(errors.InvalidArgumentError, match="would be partitioned by Name"):
        table.restore(0)


# --- replacing and restoring -------------------------------------------------------------------------------------


def test_a_replaced_table_has_its_own_columns(tmp_path):
    write_deltalake(tmp_path, DATA, cluster_by="id")
    table = DeltaTable.create(tmp_path, DATA.schema, mode="overwrite", cluster_by="Name")
    assert (domain(tmp_path, 1), table.detail()["clustering_columns"]) == (clustered_by(["Name"]), ["Name"])
    # The protocol keeps the feature, so the domain stays too, without columns: as delta-spark has it.
    table = DeltaTable.create(tmp_path, DATA.schema, mode="overwrite")
    assert (domain(tmp_path, 2), table.detail()["clustering_columns"]) == (clustered_by(), [])
    assert table.metadata().configuration == {}
    with pytest.raises(errors.InvalidArgumentError, match="once it was clustered"):
        DeltaTable.create(tmp_path, DATA.schema, mode="overwrite", partition_by="Name")
    write_deltalake(table, DATA, mode="append")
    table.optimize.compact()


def test_a_table_becomes_clustered_when_it_is_replaced(tmp_path):
    write_deltalake(tmp_path, DATA, partition_by="Name")
    table = DeltaTable.create(tmp_path, DATA.schema, mode="overwrite", cluster_by="id")
    assert {"clustering", "domainMetadata", "deletionVectors", "rowTracking"} <= set(table.protocol().writer_features)
    assert (domain(tmp_path, 1), configuration(table)) == (clustered_by(["id"]), {VECTORS: "true", TRACKING: "true"})
    write_deltalake(table, DATA, mode="append")
    assert sorted(table.to_pyarrow_table(columns=["_metadata.row_id"])[0].to_pylist()) == [0, 1, 2, 3]


def test_restore_brings_the_columns_back(tmp_path):
    write_deltalake(tmp_path, DATA)
    DeltaTable.create(tmp_path, DATA.schema, mode="overwrite", cluster_by="id")
    table = DeltaTable.create(tmp_path, DATA.schema, mode="overwrite", cluster_by="Name")
    table.restore(1)
    assert (domain(tmp_path, 3), table.detail()["clustering_columns"]) == (clustered_by(["id"]), ["id"])
    table.restore(0)
    assert (domain(tmp_path, 4), table.detail()["clustering_columns"]) == (clustered_by(), [])
    assert table.count() == 4
    table.restore(4)
    assert table.version() == 4


@pytest.mark.breaks_tables
def test_a_damaged_domain_is_one_clear_error(tmp_path):
    write_deltalake(tmp_path, DATA, cluster_by="id")
    log = Path(tmp_path) / "_delta_log"
    first = log / f"{0:020d}.json"
    first.write_text(first.read_text().replace(r"[[\"id\"]]", r"\"id\""))
    (log / f"{0:020d}.crc").unlink()
    table = DeltaTable(tmp_path)
    assert pc.sum(table.to_pyarrow_table()["id"]).as_py() == 10
    with pytest.raises(errors.InvalidLogError, match="does not list columns"):
        write_deltalake(table, DATA, mode="append")


# --- OPTIMIZE ----------------------------------------------------------------------------------------------------


def grid(side, shift=0):
    n = side * side
    order = np.random.default_rng(7).permutation(n)
    return pa.table({"x": pa.array(order // side + shift), "y": pa.array(order % side), "z": pa.array(order)})


def tags(table):
    return [
        (add["clusteringProvider"], *map(dict(add["tags"]).get, ("ZCUBE_ID", "ZCUBE_ZORDER_BY"))) for add in adds(table)
    ]


def adds(table):
    return table._handle.snapshot.files.to_pylist()


@pytest.mark.tier("test")
def test_files_are_clustered_once(tmp_path):
    write_deltalake(tmp_path, grid(64), cluster_by=["y", "x"])
    table = DeltaTable(tmp_path)
    for n in range(1, 4):
        write_deltalake(table, grid(64, 64 * n), mode="append")
    before = table.to_pyarrow_table()
    result = table.optimize.cluster(target_size=8 * 1024)
    assert result["numFilesRemoved"] == 4
    assert result["numFilesAdded"] > 8
    assert not result["preserveInsertionOrder"]
    columns = '["y","x"]'
    ((_, cube, _),) = set(tags(table))
    assert cube is not None
    assert set(tags(table)) == {("liquid", cube, columns)}
    assert not any(add["dataChange"] for add in actions(tmp_path, table.version(), "add"))
    assert table.history(1)[0]["operation"] == "OPTIMIZE"
    assert table.history(1)[0]["operationParameters"]["clusterBy"] == columns
    order = [("z", "ascending"), ("x", "ascending")]
    assert table.to_pyarrow_table().sort_by(order) == before.sort_by(order)
    # Either column tells most files apart, which none did before.
    for predicate in ("x = 200", "y = 3"):
        assert table.scan(predicate=predicate).explain().files_read <= len(adds(table)) / 2

    version = table.version()
    assert table.optimize.cluster(target_size=8 * 1024).version is None
    # New rows come to those that were few; what is done is done.
    write_deltalake(table, grid(8, 1000), mode="append")
    again = table.optimize.cluster(target_size=8 * 1024)
    assert again["numFilesRemoved"] == result["numFilesAdded"] + 1
    small = table.optimize.cluster(target_size=16)
    assert (small.version, table.version()) == (None, version + 2)
    write_deltalake(table, grid(8, 2000), mode="append")
    alone = table.optimize.cluster(target_size=16)
    assert alone["numFilesRemoved"] == 1
    assert len({cube for _, cube, _ in tags(table)}) == 2


def test_files_that_were_clustered_by_other_columns_wait_for_a_full_run(tmp_path):
    write_deltalake(tmp_path, grid(16), cluster_by=["y", "x"])
    table = DeltaTable(tmp_path)
    table.optimize.cluster()
    table.alter.cluster_by("z")
    assert table.detail()["clustering_columns"] == ["z"]
    assert table.optimize.cluster().version is None
    write_deltalake(table, grid(16, 100), mode="append")
    assert table.optimize.cluster()["numFilesRemoved"] == 1
    assert {columns for *_, columns in tags(table)} == {'["y","x"]', '["z"]'}
    assert table.optimize.cluster(full=True)["numFilesRemoved"] == 2
    assert {columns for *_, columns in tags(table)} == {'["z"]'}
    assert table.optimize.cluster(full=True).version is None
    assert table.count() == 512


def test_files_of_another_provider_are_left_to_it(tmp_path):
    write_deltalake(tmp_path, grid(4), cluster_by="x")
    table = DeltaTable(tmp_path)
    write_deltalake(table, grid(4, 10), mode="append")
    (add,) = actions(tmp_path, 1, "add")
    again = {"add": add | {"clusteringProvider": "theirs", "dataChange": False}}
    (tmp_path / commit_key(2)).write_text(json.dumps(again) + "\n")
    assert table.optimize.cluster(full=True)["numFilesRemoved"] == 1
    assert sorted(add["clusteringProvider"] for add in adds(table)) == ["liquid", "theirs"]


@pytest.mark.tier("test")
def test_a_compaction_leaves_alone_what_is_clustered(tmp_path):
    write_deltalake(tmp_path, grid(64), cluster_by=["y", "x"])
    table = DeltaTable(tmp_path)
    table.optimize.cluster(target_size=8 * 1024)
    clustered = {add["path"] for add in adds(table)}
    assert len(clustered) > 2
    assert table.optimize.compact().version is None
    for n in range(3):
        write_deltalake(table, grid(8, 1000 + 8 * n), mode="append")
    rows = table.to_pyarrow_table().sort_by([("z", "ascending"), ("x", "ascending")])
    with table.begin() as txn:
        txn.compact()
        DeltaTable(tmp_path).delete("x = 1000 or x = 3")
        done = txn.commit()
    assert (done["numFilesRemoved"], done["numFilesAdded"], done.rebased_over) == (3, 1, (table.version() - 1,))
    assert {add["path"] for add in adds(table)} > clustered
    assert table.optimize.compact().version is None
    kept = pc.invert(pc.is_in(rows["x"], pa.array([3, 1000])))
    assert table.to_pyarrow_table().sort_by([("z", "ascending"), ("x", "ascending")]) == rows.filter(kept)
    # What is together by now is clustered later; a table that is clustered no more is compacted as any.
    assert [tag[0] for tag in tags(table)].count(None) == 1
    table.alter.cluster_by(None)
    assert table.optimize.compact()["numFilesRemoved"] == len(clustered) + 1
    assert {tag[0] for tag in tags(table)} == {None}


@pytest.mark.tier("test")
@pytest.mark.parametrize("way", ["compact", "purge"])
def test_a_clustered_file_with_deleted_rows_stays_one(tmp_path, way):
    write_deltalake(tmp_path, grid(64), cluster_by=["y", "x"])
    table = DeltaTable(tmp_path)
    table.optimize.cluster(target_size=8 * 1024)
    before, many = set(tags(table)), len(adds(table))
    write_deltalake(table, grid(8, 1000), mode="append")
    table.delete("x % 2 = 0")
    rows = table.to_pyarrow_table()
    done = getattr(table.optimize, way)(target_size=2**20)
    assert (done["numFilesAdded"], done["numFilesRemoved"]) == (many + 1, many + 1)
    assert set(tags(table)) == before | {(None, None, None)}
    assert not any(add["deletionVector"] for add in adds(table))
    # Each of them has the rows of one that was there, so that they can be skipped as they could.
    assert table.to_pyarrow_table().sort_by([("z", "ascending"), ("x", "ascending")]) == rows.sort_by(
        [("z", "ascending"), ("x", "ascending")]
    )
    assert table.scan(predicate="x = 3").explain().files_read <= many / 2 + 1


def test_auto_compaction_leaves_alone_what_is_clustered(tmp_path, monkeypatch):
    monkeypatch.setattr(auto_compact, "MIN_FILES", 3)
    configuration = {"delta.autoOptimize.autoCompact": "true", "delta.targetFileSize": "8kb"}
    write_deltalake(tmp_path, grid(64), cluster_by=["y", "x"], configuration=configuration)
    table = DeltaTable(tmp_path)
    table.optimize.cluster()
    clustered = set(tags(table))
    many = len(adds(table))
    assert many > 2
    for n in range(3):
        write_deltalake(table, grid(2, 1000 + 2 * n), mode="append")
    assert [entry["operation"] for entry in table.history(2)] == ["OPTIMIZE", "WRITE"]
    assert table.history(1)[0]["operationMetrics"]["numRemovedFiles"] == "3"
    assert set(tags(table)) == clustered | {(None, None, None)}
    assert len(adds(table)) == many + 1


def test_clustering_over_deletes_and_in_a_transaction(tmp_path):
    """Without row ids a deleted row cannot be found in the new files; tests/api/test_clustering_conflicts.py has the
    rest.
    """
    write_deltalake(tmp_path, grid(16), cluster_by=["y", "x"], configuration={TRACKING: "false"})
    table = DeltaTable(tmp_path)
    table.delete("x < 8")
    with table.begin() as txn:
        txn.cluster()
        other = DeltaTable(tmp_path)
        other.delete("x = 9")
        with pytest.raises(errors.ConcurrentModificationError):
            txn.commit()
    with table.begin() as txn:
        txn.cluster()
        assert txn.commit()["numDeletionVectorsRemoved"] == 1
    assert table.count() == 16 * 7
    assert not any(add["deletionVector"] for add in adds(table))


def test_tables_that_cannot_be_clustered(tmp_path):
    write_deltalake(tmp_path / "plain", DATA)
    with pytest.raises(errors.InvalidArgumentError, match=r"alter\.cluster_by"):
        DeltaTable(tmp_path / "plain").optimize.cluster()
    write_deltalake(tmp_path / "parts", DATA, partition_by="Name")
    with pytest.raises(errors.InvalidArgumentError, match="cannot have partition columns"):
        DeltaTable(tmp_path / "parts").alter.cluster_by("id")


# --- ALTER TABLE CLUSTER BY --------------------------------------------------------------------------------------


def test_a_plain_table_is_clustered_later(tmp_path):
    write_deltalake(tmp_path, DATA)
    table = DeltaTable(tmp_path)
    table.alter.cluster_by(["NAME", "s.`y.z`"])
    assert domain(tmp_path, 1) == clustered_by(["Name"], ["s", "y.z"])
    assert {"clustering", "domainMetadata"} <= set(table.protocol().writer_features)
    entry = table.history(1)[0]
    assert (entry["operation"], entry["operationParameters"]) == (
        "CLUSTER BY",
        {"oldClusteringColumns": "", "newClusteringColumns": "Name,s.`y.z`"},
    )
    assert table.optimize.cluster()["numFilesAdded"] == 1
    assert table.alter.cluster_by(["name", "s.`y.z`"]).version is None  # as it is
    table.alter.cluster_by(None)
    assert (table.detail()["clustering_columns"], domain(tmp_path, table.version())) == ([], clustered_by())
    with pytest.raises(errors.InvalidArgumentError, match="no clustering columns"):
        table.optimize.cluster()
    assert table.to_pyarrow_table().sort_by("id") == DATA


def test_none_leaves_a_plain_table_plain(tmp_path):
    write_deltalake(tmp_path, DATA)
    table = DeltaTable(tmp_path)
    assert table.alter.cluster_by(None).version is None
    assert table.alter.cluster_by([]).version is None
    assert table.protocol().min_writer_version == 2


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ("nope", errors.ColumnNotFoundError),
        ("flag", errors.InvalidArgumentError),
        (["id", "ID"], errors.InvalidArgumentError),
        (["id", "Name", "s.x", "s.`y.z`", "raw"], errors.InvalidArgumentError),
    ],
)
def test_columns_that_it_is_not_altered_to(tmp_path, columns, error):
    write_deltalake(tmp_path, DATA)
    with pytest.raises(error):
        DeltaTable(tmp_path).alter.cluster_by(columns)
    assert DeltaTable(tmp_path).version() == 0


def test_two_who_alter_it_at_once(tmp_path):
    write_deltalake(tmp_path, DATA, cluster_by="id")
    one, other = DeltaTable(tmp_path), DeltaTable(tmp_path)
    with one.begin() as txn:
        txn.cluster_by("name")
        other.alter.cluster_by("s.x")
        with pytest.raises(errors.ConcurrentModificationError):
            txn.commit()


@pytest.mark.breaks_tables
def test_columns_that_are_not_there_are_passed_over_until_others_are_chosen(tmp_path):
    """As delta-spark leaves them where it drops columnMapping: by physical names that are none any more."""
    write_deltalake(tmp_path, DATA, cluster_by=["id"])
    (left,) = clustered_by(["col-1"])
    (tmp_path / commit_key(1)).write_text(json.dumps({"domainMetadata": left}))
    table = DeltaTable(tmp_path)
    assert table.detail()["clustering_columns"] == []
    write_deltalake(table, DATA, mode="append")
    table.delete("id = 1")
    table.alter.cluster_by(["id"])
    assert table.optimize.cluster(full=True).version == 5
    assert DeltaTable(tmp_path).detail()["clustering_columns"] == ["id"]
