"""Tables that can be read as Iceberg's, and partition columns in data files.

Tests of operations.layout.reorg_uniform.
"""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.table.column_mapping import nested_ids
from refdelta.table.types import field_id, physical_name
from written_tables import schema_of

MAPS = pa.map_(pa.string(), pa.list_(pa.struct([("q", pa.list_(pa.int32()))])))
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "p": pa.array(["a", None, "b"]),
        "a": pa.array([[[1], None], None, []], pa.list_(pa.list_(pa.int16()))),
        "m": pa.array([[("k", [{"q": [1]}])], None, []], MAPS),
        "t": pa.array([dt.datetime(2020, 1, 1), None, dt.datetime(1950, 1, 1)], pa.timestamp("us", "UTC")),
    }
)
PLAIN = ROWS.select(["id", "p", "t"])
V1, V2 = ({f"delta.enableIcebergCompatV{version}": "true"} for version in (1, 2))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t"


def live(path):
    return [pq.ParquetFile(uri) for uri in DeltaTable(path).file_uris()]


def ids_of(field, path=()):
    """The ids of a Parquet file's field and of all within it, by path."""
    found = {".".join((*path, field.name)): int(field.metadata[b"PARQUET:field_id"])}
    kind = field.type
    parts = list(kind) if pa.types.is_struct(kind) else []
    if pa.types.is_map(kind):
        parts = [kind.key_field, kind.item_field]
    elif pa.types.is_list(kind):
        parts = [kind.value_field]
    for part in parts:
        found |= ids_of(part, (*path, field.name))
    return found


def check(path):
    """What the specification asks of every file and of the schema."""
    schema = schema_of(path)
    partitioning = [physical_name(schema.field(name)) for name in DeltaTable(path).metadata().partition_columns]
    assert live(path)
    for file in live(path):
        arrow = file.schema_arrow
        assert arrow.names[-len(partitioning) :] == partitioning
        ids: dict[str, int] = {}
        for field in arrow:
            ids |= ids_of(field)
        assert len(set(ids.values())) == len(ids)
        for item in (column for column in schema if physical_name(column) in arrow.names):
            assert ids[physical_name(item)] == field_id(item)
            assert nested_ids(item).items() <= ids.items()
        for index in range(len(file.schema)):
            column = file.schema.column(index)
            assert column.physical_type != "INT96"
    for log in (path / "_delta_log").glob("*.json"):
        for line in log.read_text().splitlines():
            add = json.loads(line).get("add")
            if add:
                stats = json.loads(add["stats"])
                assert stats["numRecords"] >= 0
                assert not set(partitioning) & set(stats["nullCount"])


def test_a_new_table(path):
    write_deltalake(path, ROWS, partition_by=["p"], configuration=V2)
    table = DeltaTable(path)
    assert table.metadata().configuration["delta.columnMapping.mode"] == "name"
    assert {"icebergCompatV2", "columnMapping"} <= set(table.protocol().writer_features)
    assert table.protocol().min_reader_version == 2
    assert table.to_pyarrow_table().sort_by("id").equals(ROWS)
    check(path)
    column = schema_of(path).field("m")
    name = physical_name(column)
    assert set(nested_ids(column)) == {f"{name}.key", f"{name}.value", f"{name}.value.element"}
    more = ROWS.slice(0, 1).append_column("new", pa.array([[1.5]]))
    write_deltalake(path, more, mode="append", schema_mode="merge")
    table.update({"id": "10"}, predicate="id = 1")
    table.delete("id = 2")
    source = pa.table({"id": [3, 4], "p": ["z", "z"]})
    merging = table.merge(source, "s.id = t.id").when_matched_update({"p": "s.p"})
    merging.when_not_matched_insert({"id": "s.id", "p": "s.p"}).execute()
    table.optimize.compact()
    table.alter.rename_column("p", "part")
    write_deltalake(path, ROWS.rename_columns(["id", "part", "a", "m", "t"]), mode="overwrite")
    table.alter.add_columns(pa.field("later", pa.list_(pa.int8())))
    write_deltalake(path, pa.table({"id": [5], "later": pa.array([[1]], pa.list_(pa.int8()))}), mode="append")
    check(path)
    assert DeltaTable(path).to_pyarrow_table(filters="part = 'a'").num_rows == 1


@pytest.mark.parametrize(
    ("configuration", "said"),
    [
        ({**V1, **V2}, "exclude each other"),
        ({**V1, "delta.columnMapping.mode": "none"}, "mapped columns"),
        ({**V2, "delta.enableDeletionVectors": "true"}, "no deletion vectors"),
        ({**V1, "delta.feature.deletionVectors": "supported"}, "does not support the feature deletionVectors"),
    ],
)
def test_what_excludes_it(path, configuration, said):
    with pytest.raises(errors.InvalidArgumentError, match=said):
        write_deltalake(path, PLAIN, configuration=configuration)
    assert not path.exists()


def test_version_1(path, tmp_path):
    with pytest.raises(errors.InvalidArgumentError, match="no column of type array"):
        write_deltalake(path, ROWS, configuration=V1)
    write_deltalake(path, PLAIN, partition_by=["p"], configuration=V1)
    check(path)
    table = DeltaTable(path)
    for change in (
        lambda: table.alter.add_columns(pa.field("x", pa.list_(pa.int8()))),
        lambda: write_deltalake(path, ROWS, mode="append", schema_mode="merge"),
        lambda: table.alter.set_table_properties({"delta.enableDeletionVectors": "true"}),
        lambda: table.alter.set_table_properties(V2),
        lambda: write_deltalake(path, PLAIN, mode="overwrite", schema_mode="overwrite", partition_by=["id"]),
        lambda: DeltaTable.create(path, PLAIN.schema, mode="overwrite", configuration=V1),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=r"a table with delta|exclude each other"):
            change()
    assert DeltaTable(path).version() == 0
    # The same column in another type is the same partitioning.
    wide = PLAIN.set_column(1, "p", pa.array([1, 2, 3]))
    write_deltalake(path, wide, mode="overwrite", schema_mode="overwrite")
    check(path)
    other = tmp_path / "late"
    write_deltalake(other, PLAIN, configuration={"delta.columnMapping.mode": "name"})
    DeltaTable(other).alter.set_table_properties(V1)
    write_deltalake(tmp_path / "parted", PLAIN, partition_by=["p"], configuration={"delta.columnMapping.mode": "name"})
    with pytest.raises(errors.InvalidArgumentError, match="partition columns in all of its files"):
        DeltaTable(tmp_path / "parted").alter.set_table_properties(V1)


def test_version_1_asks_how_many_rows_each_file_has(path):
    name = {"delta.columnMapping.mode": "name"}
    write_deltalake(path, PLAIN, configuration=name)
    write_deltalake(path, PLAIN, mode="append")
    commit = path / "_delta_log" / f"{1:020d}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        line.get("add", {}).pop("stats", None)
    commit.write_text("\n".join(map(json.dumps, lines)))
    for crc in (path / "_delta_log").glob("*.crc"):
        crc.unlink()
    with pytest.raises(errors.InvalidArgumentError, match="1 of the 2 files"):
        DeltaTable(path).alter.set_table_properties(V1)
    # Nobody may add such a file meanwhile.
    DeltaTable(path).restore(0)
    txn = DeltaTable(path).begin()
    txn.set_table_properties(V1)
    write_deltalake(path, PLAIN, mode="append")
    with pytest.raises(errors.ConcurrentAppendException):
        txn.commit()


def test_types_change_as_iceberg_allows(path):
    data = pa.table({"i": pa.array([1], pa.int32()), "j": pa.array([1], pa.int32()), "d": [dt.date(2020, 1, 1)]})
    write_deltalake(path, data, configuration={**V2, "delta.enableTypeWidening": "true"})
    table = DeltaTable(path)
    table.alter.change_type("i", "bigint")
    for column, wide in (("j", "double"), ("d", "timestamp_ntz"), ("j", "decimal(10,0)")):
        with pytest.raises(errors.InvalidArgumentError, match="Iceberg does not know that"):
            table.alter.change_type(column, wide)


@pytest.mark.parametrize("mapped", [True, False])
def test_an_upgrade_rewrites_every_file(path, mapped):
    configuration = {"delta.enableDeletionVectors": "true"}
    if mapped:
        configuration["delta.columnMapping.mode"] = "name"
    write_deltalake(path, ROWS, partition_by=["p"], configuration=configuration)
    write_deltalake(path, ROWS, mode="append")
    table = DeltaTable(path)
    table.delete("id = 1")
    with pytest.raises(errors.InvalidArgumentError, match=r"reorg_upgrade_uniform\(2\)"):
        table.alter.set_table_properties(
            {**V2, "delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "false"}
        )
    before = table.to_pyarrow_table()
    result = table.reorg_upgrade_uniform(2)
    assert (result.version, result["numFilesRemoved"]) == (3, 4)
    assert table.to_pyarrow_table().sort_by("id").equals(before.sort_by("id"))
    assert len(live(path)) == 2
    for file in live(path):
        assert file.schema_arrow.names[-1] == physical_name(schema_of(path).field("p"))
    actions = [json.loads(line) for line in (path / "_delta_log" / f"{3:020d}.json").read_text().splitlines()]
    changes = [body["dataChange"] for action in actions for kind, body in action.items() if kind in ("add", "remove")]
    assert len(changes) == 6
    assert not any(changes)
    assert table.reorg_upgrade_uniform().version is None
    write_deltalake(path, ROWS, mode="append")
    assert DeltaTable(path).to_pyarrow_table().num_rows == 7
    with pytest.raises(errors.InvalidArgumentError, match="only 2 is supported"):
        table.reorg_upgrade_uniform(1)


def test_an_upgrade_passes_over_nobody(path):
    write_deltalake(path, PLAIN, partition_by=["p"], configuration={"delta.enableDeletionVectors": "true"})
    for change in (
        lambda: write_deltalake(path, PLAIN, mode="append"),
        lambda: DeltaTable(path).delete("id = 1"),
        DeltaTable(path).optimize.compact,
        lambda: DeltaTable(path).alter.set_table_properties({"x": "y"}),
    ):
        with DeltaTable(path).begin() as txn:
            txn.reorg_upgrade_uniform(2)
            change()
            with pytest.raises(errors.ConcurrentModificationError):
                txn.commit()
    # Nothing is left of the files that it wrote.
    assert {str(file.relative_to(path)) for file in path.rglob("*.parquet")} == {add["path"] for add in adds(path)}


@pytest.mark.parametrize(
    "configuration",
    [
        {"delta.feature.materializePartitionColumns": "supported"},
        {"delta.enableMaterializePartitionColumnsFeature": "true"},
        {"delta.writePartitionColumnsToParquet": "true"},
        {"delta.feature.materializePartitionColumns": "supported", "delta.writePartitionColumnsToParquet": "false"},
    ],
)
def test_partition_columns_in_files(path, configuration):
    write_deltalake(path, PLAIN, partition_by=["p"], configuration=configuration)
    write_deltalake(path, PLAIN, mode="append")
    DeltaTable(path).update({"id": "7"}, predicate="id = 1 AND p = 'a'")
    assert all(file.schema_arrow.names[-1] == "p" for file in live(path))
    want = sorted([(7, "a"), (7, "a"), (2, None), (2, None), (3, "b"), (3, "b")], key=str)
    found = DeltaTable(path).to_pyarrow_table(columns=["id", "p"]).to_pylist()
    assert sorted(((row["id"], row["p"]) for row in found), key=str) == want
    assert not any("p" in json.loads(add["stats"])["nullCount"] for add in adds(path))


def adds(path):
    lines = (line for log in (path / "_delta_log").glob("*.json") for line in log.read_text().splitlines())
    return [action["add"] for action in map(json.loads, lines) if "add" in action]
