"""The end of a column mapping, by DROP FEATURE and by properties: files hold the columns by their names again."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import refdelta
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.table.features import features_of

MODE, MAX_ID = "delta.columnMapping.mode", "delta.columnMapping.maxColumnId"
ROWS = pa.table(
    {
        "id": pa.array(range(6), pa.int64()),
        "old": pa.array([{"x": i, "gone": str(i)} for i in range(6)]),
        "m": pa.array([[("k", {"q": i})] for i in range(6)], pa.map_(pa.string(), pa.struct([("q", pa.int64())]))),
        "part": ["u", "v", None, "u", "v", "w"],
    }
)
VECTORS = {"delta.enableDeletionVectors": "true"}
TRACKED = {"delta.enableRowTracking": "true"}


def changed(path, mode="name", configuration=(), **options):
    """A mapped table whose columns were renamed, dropped and added, at every depth."""
    write_deltalake(path, ROWS, configuration={MODE: mode, **dict(configuration)}, **options)
    table = DeltaTable(path)
    table.alter.rename_column("old", "new")
    table.alter.drop_columns(["new.gone"])
    table.alter.rename_column("m.value.q", "r")
    table.alter.add_columns(pa.field("gone", pa.string()))
    write_deltalake(table, table.to_pyarrow_table().slice(0, 2), mode="append")
    table.update({"gone": "'g'"}, predicate="id = 1")
    return table


def read(path, **version):
    return DeltaTable(path, **version).to_pyarrow_table().sort_by("id").to_pylist()


def files_of(table):
    return [pq.read_schema(uri) for uri in table.file_uris()]


@pytest.mark.tier("test")
@pytest.mark.sample(check=3)
@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.parametrize(
    ("configuration", "options"),
    [
        ({}, {"partition_by": ["part"]}),
        (VECTORS, {}),
        ({**VECTORS, **TRACKED}, {"cluster_by": ["id", "part"]}),
        ({**TRACKED, "delta.enableInCommitTimestamps": "true"}, {"partition_by": ["part"]}),
    ],
)
def test_files_hold_columns_by_their_names_again(tmp_path, mode, configuration, options):
    table = changed(tmp_path, mode, configuration, **options)
    table.alter.rename_column("part", "p")
    tracked = TRACKED.items() <= configuration.items()
    asked = ["id", *(["_metadata.row_id", "_metadata.row_commit_version"] if tracked else [])]
    before, ids = read(tmp_path), table.to_pyarrow_table(columns=asked).sort_by([(name, "ascending") for name in asked])
    clustered = table._handle.snapshot.clustering_columns
    version = table.version()
    done = table.alter.set_table_properties({MODE: "none", "mine": "1"})
    assert done.version == version + 1
    entry = table.history(1)[0]
    assert (entry["operation"], entry["operationParameters"]) == ("REMOVE COLUMN MAPPING", {})
    assert read(tmp_path) == before
    assert table.to_pyarrow_table(columns=asked).sort_by([(name, "ascending") for name in asked]) == ids
    metadata = table.metadata()
    assert metadata.configuration[MODE] == "none"
    assert metadata.configuration["mine"] == "1"
    assert MAX_ID not in metadata.configuration
    assert "physicalName" not in metadata.schema_string
    assert "columnMapping.id" not in metadata.schema_string
    names = {field.name for field in table.schema().fields} - set(metadata.partition_columns)
    for schema in files_of(table):
        assert {name for name in schema.names if not name.startswith("_row-")} == names
        assert not any(b"PARQUET:field_id" in (field.metadata or {}) for field in schema)
    assert table._handle.snapshot.clustering_columns == (("id",), ("p",)) if clustered else not clustered
    # Nothing of the log says that data changed, and everything goes on.
    log = [json.loads(line) for line in table.store.get(f"_delta_log/{done.version:020d}.json").splitlines()]
    moved = [action.get("add") or action.get("remove") for action in log if "add" in action or "remove" in action]
    assert moved
    assert not any(one["dataChange"] for one in moved)
    table.delete("id = 0")
    table.optimize.compact()
    write_deltalake(table, table.to_pyarrow_table(), mode="append")
    assert table.count() == 12
    assert read(tmp_path, version=version) == before
    assert not refdelta.verify(tmp_path, sample=None).findings
    with pytest.raises(errors.InvalidArgumentError, match="cannot rename columns"):
        table.alter.rename_column("id", "key")


def test_columns_that_changed_names_with_each_other(tmp_path):
    rows = pa.table(
        {"a": pa.array(range(4), pa.int64()), "b": pa.array(range(10, 14), pa.int64()), "p": ["x", "y"] * 2}
    )
    configuration = {MODE: "name", "delta.enableChangeDataFeed": "true", "delta.dataSkippingStatsColumns": "a"}
    write_deltalake(tmp_path, rows, partition_by="p", configuration=configuration)
    table = DeltaTable(tmp_path)
    table.alter.add_constraint({"big": "b >= 10"})
    table.alter.drop_constraint("big")
    for old, new in (("a", "t"), ("b", "a"), ("t", "b"), ("p", "q")):
        table.alter.rename_column(old, new)
    assert table.metadata().configuration["delta.dataSkippingStatsColumns"] == "b"
    table.alter.add_columns(pa.field("p", pa.string()))
    mapped = table.version()
    before = read_by(table, "b")
    table.alter.set_table_properties({MODE: "none"})
    assert read_by(table, "b") == before
    assert table.to_pyarrow_table(filters="b = 2 AND q = 'x'")["a"].to_pylist() == [12]
    found = [pq.read_table(uri, partitioning=None) for uri in table.file_uris()]
    assert sorted(value for one in found for value in one["a"].to_pylist()) == list(range(10, 14))
    # It changed no row, and the feed of before it has other names.
    assert table.load_cdf(starting_version=mapped + 1).read_all().num_rows == 0
    with pytest.raises(errors.SchemaMismatchError):
        table.load_cdf(starting_version=mapped).read_all()
    assert DeltaTable(tmp_path, version=mapped).load_cdf(starting_version=mapped).read_all().num_rows == 0
    table.delete("b = 1")
    [change] = table.load_cdf(starting_version=mapped + 2).read_all().to_pylist()
    assert (change["a"], change["b"], change["_change_type"]) == (11, 1, "delete")
    assert not refdelta.verify(tmp_path, sample=None).findings


def read_by(table, name):
    return table.to_pyarrow_table().sort_by(name).to_pylist()


@pytest.mark.tier("test")
def test_the_feature_is_dropped(tmp_path):
    table = changed(tmp_path, "id", VECTORS)
    before, mapped = read(tmp_path), table.version()
    table.alter.drop_feature("columnMapping")
    operations = [entry["operation"] for entry in table.history(5)]
    assert operations == ["DROP FEATURE", *["Empty Commit"] * 3, "REMOVE COLUMN MAPPING"]
    assert features_of(table.protocol()) == {"appendOnly", "invariants", "deletionVectors", "checkpointProtection"}
    assert not any("columnMapping" in key for key in table.metadata().configuration)
    assert read(tmp_path) == before == read(tmp_path, version=mapped)
    assert not refdelta.verify(tmp_path, sample=None).findings
    # A version before it brings the mapping back, and a new one gives ids from the first on.
    table.restore(mapped)
    assert table.metadata().configuration[MODE] == "id"
    assert read(tmp_path) == before
    table.alter.set_table_properties({MODE: "none"})
    table.alter.set_table_properties({MODE: "name"})
    assert read(tmp_path) == before
    assert table.metadata().configuration[MAX_ID] == "7"
    table.alter.drop_columns("gone")
    assert not refdelta.verify(tmp_path, sample=None).findings


def test_the_history_with_the_mapping_may_go(tmp_path):
    table = changed(tmp_path)
    with pytest.raises(errors.InvalidArgumentError, match="again in 24 hours"):
        table.alter.drop_feature("columnMapping", truncate_history=True)
    assert MODE not in table.metadata().configuration
    assert "columnMapping" in features_of(table.protocol())


def test_a_table_that_never_was_mapped_only_loses_the_feature(tmp_path):
    write_deltalake(tmp_path, ROWS, configuration={"delta.feature.columnMapping": "supported"})
    table = DeltaTable(tmp_path)
    files = table.file_uris()
    table.alter.drop_feature("columnMapping")
    assert table.file_uris() == files
    assert features_of(table.protocol()) == {"appendOnly", "invariants", "checkpointProtection"}


def test_unset_ends_it_as_well(tmp_path):
    table = changed(tmp_path)
    before = read(tmp_path)
    table.alter.unset_table_properties([MODE])
    assert table.history(1)[0]["operation"] == "REMOVE COLUMN MAPPING"
    assert read(tmp_path) == before
    assert not table.metadata().configuration


@pytest.mark.parametrize("name", ["id no", "a;b", "x=y"])
def test_names_that_parquet_reserves_stand_against_it(tmp_path, name):
    table = changed(tmp_path)
    table.alter.rename_column("new.x", name)
    version = table.version()
    with pytest.raises(errors.InvalidArgumentError, match=name):
        table.alter.set_table_properties({MODE: "none"})
    with pytest.raises(errors.InvalidArgumentError, match=name):
        table.alter.drop_feature("columnMapping")
    assert table.version() == version


def test_iceberg_needs_the_mapping(tmp_path):
    write_deltalake(tmp_path, ROWS, configuration={"delta.enableIcebergCompatV2": "true"})
    table = DeltaTable(tmp_path)
    with pytest.raises(errors.InvalidArgumentError, match="mapped columns"):
        table.alter.set_table_properties({MODE: "none"})
    with pytest.raises(errors.InvalidArgumentError, match="icebergCompatV2 needs it"):
        table.alter.drop_feature("columnMapping")


@pytest.mark.parametrize("first", ["append", "removal"])
def test_it_passes_over_nobody(tmp_path, first):
    table = changed(tmp_path, configuration=VECTORS)
    before = read(tmp_path)
    removal, writer = table.begin(), table.begin()
    removal.set_table_properties({MODE: "none"})
    writer.append(table.to_pyarrow_table())
    if first == "append":
        writer.commit()
        with pytest.raises(errors.ConcurrentModificationError):
            removal.commit()
    else:
        removal.commit()
        with pytest.raises(errors.MetadataChangedException):
            writer.commit()
    assert read(tmp_path)[::2] == before if first == "append" else read(tmp_path) == before
    assert not refdelta.verify(tmp_path, sample=None).findings


def test_a_transaction_mixes_it_with_no_rows(tmp_path):
    table = changed(tmp_path)
    with table.begin() as txn:
        txn.append(table.to_pyarrow_table())
        with pytest.raises(errors.InvalidArgumentError, match="has appended rows"):
            txn.set_table_properties({MODE: "none"})
    with table.begin() as txn:
        txn.set_table_properties({MODE: "none"})
        with pytest.raises(errors.InvalidArgumentError, match="cannot mix an append with the end of a column mapping"):
            txn.append(table.to_pyarrow_table())
    with pytest.raises(errors.InvalidArgumentError, match="before or after"):
        table.alter.set_table_properties({MODE: "none", **TRACKED})


def test_other_changes_of_the_mode_stay_refused(tmp_path):
    table = changed(tmp_path)
    with pytest.raises(errors.InvalidArgumentError, match="from 'name' to 'id'"):
        table.alter.set_table_properties({MODE: "id"})


def test_the_feed_of_before_is_read_by_the_schema_of_its_time(tmp_path):
    write_deltalake(tmp_path, ROWS, configuration={MODE: "name", "delta.enableChangeDataFeed": "true"})
    table = DeltaTable(tmp_path)
    table.update({"id": "id + 10"}, predicate="id = 2")
    last = table.version()
    before = table.load_cdf().read_all().sort_by("id").to_pylist()
    table.alter.drop_feature("columnMapping")
    assert table.load_cdf(0, last).read_all().sort_by("id").to_pylist() == before
    with pytest.raises(errors.SchemaMismatchError):
        table.load_cdf(0).read_all()
