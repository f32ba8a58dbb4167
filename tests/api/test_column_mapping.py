"""Tables whose columns are mapped: by which names files, statistics and partition values hold them, through every way
to write.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import refdelta
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.table.column_mapping import greatest_id
from refdelta.table.types import every_field, field_id, physical_name
from written_tables import schema_of

NESTED = pa.struct([("x", pa.int64()), ("tags", pa.list_(pa.string()))])
ROWS = pa.table(
    {
        "id no.": pa.array([1, 2, 3], pa.int64()),
        "s": pa.array([{"x": 1, "tags": ["a"]}, None, {"x": 3, "tags": []}], NESTED),
        "m": pa.array([[("k", {"q": 1})], None, []], pa.map_(pa.string(), pa.struct([("q", pa.int64())]))),
        "part": ["u", "v", None],
        "l": pa.array([[{"z": 1}], [None], None], pa.list_(pa.struct([("z", pa.int64())]))),
    }
)


def mapped(path, mode, **configuration):
    write_deltalake(
        path, ROWS, partition_by=["part"], configuration={"delta.columnMapping.mode": mode, **configuration}
    )
    return DeltaTable(path)


def rows(path) -> list[dict[str, Any]]:
    return DeltaTable(path).to_pyarrow_table().sort_by("id no.").to_pylist()


def live_adds(path) -> list[dict[str, Any]]:
    live: dict[str, Any] = {}
    for log in sorted((path / "_delta_log").glob("*.json")):
        for line in log.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                live[action["add"]["path"]] = action["add"]
            if "remove" in action:
                live.pop(action["remove"]["path"], None)
    return list(live.values())


def check_files(path):
    """Files, statistics and partition values go by physical names, and files have the ids."""
    schema = schema_of(path)
    ids = {physical_name(field): field_id(field) for field in every_field(schema)}
    assert len(set(ids.values())) == len(ids) == len(list(every_field(schema)))
    assert int(DeltaTable(path).metadata().configuration["delta.columnMapping.maxColumnId"]) >= greatest_id(schema)
    parts = {physical_name(schema.field(name)) for name in DeltaTable(path).metadata().partition_columns}
    adds = live_adds(path)
    assert adds
    for add in adds:
        stats = json.loads(add["stats"])
        assert set(add["partitionValues"]) == parts
        assert set(stats["nullCount"]) <= ids.keys() - parts
        found = pq.ParquetFile(path / add["path"]).schema_arrow
        assert {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in found}.items() <= ids.items()


@pytest.mark.tier("test")
@pytest.mark.sample(check=2)
@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_every_statement_writes_physical_names_and_ids(tmp_path, mode, vectors):
    path = tmp_path / "t"
    table = mapped(path, mode, **{"delta.enableDeletionVectors": vectors})
    assert rows(path) == ROWS.to_pylist()
    check_files(path)
    write_deltalake(path, ROWS.slice(0, 1).set_column(0, "ID No.", pa.array([4])), mode="append")
    check_files(path)
    table.delete("`id no.` = 1")
    table.update({"s.x": "30"}, predicate="`id no.` = 3")
    check_files(path)
    source = pa.table({"id no.": [2, 5], "new": [1.5, 2.5], "part": ["w", "w"]})
    merging = table.merge(source, "s.`id no.` = t.`id no.`", merge_schema=True)
    merging.when_matched_update_all().when_not_matched_insert_all().execute()
    check_files(path)
    table.optimize.compact()
    check_files(path)
    table.optimize.z_order(["`id no.`"])
    check_files(path)
    found = {row["id no."]: row for row in rows(path)}
    assert set(found) == {2, 3, 4, 5}
    assert found[2] == {"id no.": 2, "s": None, "m": None, "part": "w", "l": [None], "new": 1.5}
    assert found[3]["s"] == {"x": 30, "tags": []}
    assert found[4] == {**ROWS.to_pylist()[0], "id no.": 4, "new": None}
    assert DeltaTable(path).to_pyarrow_table(filters="part = 'u' and s.x = 1").num_rows == 1
    if vectors == "true":
        table.reorg_purge()
        check_files(path)


def test_an_overwritten_schema_keeps_the_columns_that_stay(tmp_path):
    path = tmp_path / "t"
    mapped(path, "name")
    before = schema_of(path)
    write_deltalake(
        path, pa.table({"id no.": [7], "s": ["text"]}), mode="overwrite", schema_mode="overwrite", partition_by=[]
    )
    after = schema_of(path)
    assert physical_name(after.field("id no.")) == physical_name(before.field("id no."))
    assert field_id(after.field("s")) == greatest_id(before) + 1  # another type, another column
    check_files(path)
    assert rows(path) == [{"id no.": 7, "s": "text"}]


def test_a_table_that_is_mapped_later_keeps_its_files(tmp_path):
    path = tmp_path / "t"
    plain = ROWS.rename_columns(["id", "s", "m", "part", "l"])
    write_deltalake(path, plain, partition_by=["part"])
    table = DeltaTable(path)
    table.alter.set_table_properties({"delta.columnMapping.mode": "name"})
    assert table.protocol().min_reader_version == 2
    assert all(physical_name(field) == field.name for field in every_field(schema_of(path)))
    assert table.to_pyarrow_table().sort_by("id").to_pylist() == plain.to_pylist()
    write_deltalake(path, pa.table({"id": [9], "b c": [1]}), mode="append", schema_mode="merge")
    assert physical_name(schema_of(path).field("b c")).startswith("col-")


@pytest.mark.tier("test")
@pytest.mark.sample(check=1)
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_version_without_the_mapping_is_restored_without_it(tmp_path, vectors):
    path = tmp_path / "t"
    plain = ROWS.rename_columns(["id", "s", "m", "part", "l"])
    properties = {"delta.enableDeletionVectors": vectors, "delta.enableRowTracking": "true"}
    write_deltalake(path, plain, partition_by=["part"], configuration=properties)
    table = DeltaTable(path)
    hidden = ["id", "_metadata.row_id", "_metadata.row_commit_version"]
    ids = table.to_pyarrow_table(columns=hidden).sort_by("id")
    unmapped = table.metadata()
    table.alter.set_table_properties({"delta.columnMapping.mode": "name"})
    table.alter.rename_column("id", "key")
    table.alter.drop_columns("m")
    table.alter.add_columns(pa.field("m", pa.int64()))
    table.update({"m": "7", "part": "'w'"}, predicate="key = 1")
    write_deltalake(path, pa.table({"key": [9], "m": [1]}), mode="append")
    table = DeltaTable(path)
    table.optimize.compact()
    mapped, then = table.version(), table.to_pyarrow_table().sort_by("key").to_pylist()
    table.restore(0)
    assert table.metadata() == unmapped
    assert table.to_pyarrow_table().sort_by("id").to_pylist() == plain.to_pylist()
    assert table.to_pyarrow_table(columns=hidden).sort_by("id") == ids
    write_deltalake(path, plain.slice(0, 1), mode="append")
    assert DeltaTable(path).to_pyarrow_table(filters="id = 1").num_rows == 2
    # Forth again, and mapped anew.
    table = DeltaTable(path)
    table.restore(mapped)
    assert table.to_pyarrow_table().sort_by("key").to_pylist() == then
    table.restore(0)
    table.alter.set_table_properties({"delta.columnMapping.mode": "name"})
    assert table.to_pyarrow_table().sort_by("id").to_pylist() == plain.to_pylist()
    assert [(f.name, field_id(f)) for f in schema_of(path)] == [("id", 1), ("s", 2), ("m", 5), ("part", 7), ("l", 8)]


def test_nobody_brings_mapped_rows_into_a_version_without_the_mapping(tmp_path):
    write_deltalake(tmp_path, pa.table({"a": [1]}))
    table = DeltaTable(tmp_path)
    table.alter.set_table_properties({"delta.columnMapping.mode": "name"})
    table.alter.rename_column("a", "b")
    with table.begin() as txn:
        txn.restore(0)
        write_deltalake(tmp_path, pa.table({"b": [2]}), mode="append")
        with pytest.raises(errors.ConcurrentAppendException):
            txn.commit()
    with DeltaTable(tmp_path).begin() as txn:
        txn.append(pa.table({"b": [3]}))
        with pytest.raises(errors.InvalidArgumentError):
            txn.restore(0)


@pytest.mark.parametrize(("was", "wanted"), [("none", "id"), ("name", "id"), ("id", "name")])
def test_files_do_not_allow_every_change_of_the_mode(tmp_path, was, wanted):
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"a": [1]}), configuration={"delta.columnMapping.mode": was})
    with pytest.raises(errors.InvalidArgumentError, match=r"cannot change delta\.columnMapping\.mode"):
        DeltaTable(path).alter.set_table_properties({"delta.columnMapping.mode": wanted})
    assert DeltaTable(path).version() == 0


def test_a_replaced_table_gives_no_id_again(tmp_path):
    path = tmp_path / "t"
    table = mapped(path, "id")
    greatest = greatest_id(schema_of(path))
    given = table.schema()
    made = DeltaTable.create(path, given, mode="overwrite", configuration={"delta.columnMapping.mode": "name"})
    assert min(field_id(field) for field in every_field(schema_of(path))) > greatest
    assert made.to_pyarrow_table().num_rows == 0
    # Another table's names mean nothing: neither where columns are mapped nor where they are not.
    write_deltalake(tmp_path / "plain", pa.table({"a": [1]}), configuration={"delta.columnMapping.mode": "name"})
    DeltaTable.create(tmp_path / "other", DeltaTable(tmp_path / "plain").schema())
    assert not any(field.metadata for field in every_field(schema_of(tmp_path / "other")))


def test_a_version_of_before_a_mapping_that_was_given_up_is_restored(tmp_path):
    """The columns have the ids and names that they had, of which none is given again."""
    path, named = tmp_path / "t", {"delta.columnMapping.mode": "name"}
    write_deltalake(path, pa.table({"a": [1, 2], "b": ["x", "y"]}), configuration=named)
    table = DeltaTable(path)
    table.alter.rename_column("a", "k")
    first, schema = table.version(), schema_of(path)
    table.alter.set_table_properties({"delta.columnMapping.mode": "none"})
    table.alter.set_table_properties(named)
    table.alter.add_columns(pa.field("c", pa.int64()))
    write_deltalake(path, pa.table({"k": [5], "b": ["z"], "c": [1]}), mode="append")
    table = DeltaTable(path)
    table.restore(first)
    assert schema_of(path) == schema
    table.alter.add_columns(pa.field("d", pa.int64()))
    write_deltalake(path, pa.table({"k": [7], "b": ["z"], "d": [1]}), mode="append")
    assert greatest_id(schema_of(path)) == 4
    assert DeltaTable(path).to_pyarrow_table().sort_by("k")["d"].to_pylist() == [None, None, 1]


# --- columns that cannot be told apart ---------------------------------------------------------------------------


def _with_marks(path, version, change):
    """Write a commit that changes the schema of the table by hand, as a foreign writer would."""
    metadata = json.loads(
        next(
            line
            for line in (path / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
            if line.startswith('{"metaData"')
        )
    )
    schema = json.loads(metadata["metaData"]["schemaString"])
    change(schema["fields"])
    metadata["metaData"]["schemaString"] = json.dumps(schema)
    (path / "_delta_log" / f"{version:020d}.json").write_text(json.dumps(metadata))


def _same_physical(fields):
    fields[1]["metadata"]["delta.columnMapping.physicalName"] = fields[0]["metadata"][
        "delta.columnMapping.physicalName"
    ]


def _same_id(fields):
    fields[1]["metadata"]["delta.columnMapping.id"] = fields[0]["metadata"]["delta.columnMapping.id"]


def _same_name(fields):
    fields[1]["name"] = fields[0]["name"].upper()


@pytest.mark.parametrize("change", [_same_physical, _same_id, _same_name])
@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.breaks_tables
def test_a_schema_with_two_columns_of_one_place_is_neither_read_nor_written(tmp_path, mode, change):
    """One value would be read for two columns, so that ``b=6`` came back as ``b=5``."""
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"a": [5], "b": [6]}), configuration={"delta.columnMapping.mode": mode})
    _with_marks(path, 1, change)
    rows = pa.table({"a": [7], "b": [8]})
    for attempt in (
        lambda: DeltaTable(path).to_pyarrow_table(),
        lambda: DeltaTable(path).to_pyarrow_table(filters="b = 5"),
        lambda: write_deltalake(path, rows, mode="append"),
        lambda: DeltaTable(path).delete("b = 5"),
        lambda: DeltaTable(path).alter.add_columns([pa.field("c", pa.int64())]),
        lambda: DeltaTable(path).alter.rename_column("b", "c"),
        lambda: DeltaTable(path).shallow_clone(tmp_path / "clone"),
        lambda: DeltaTable(path).optimize.z_order(["a"]),
    ):
        with pytest.raises(errors.InvalidLogError, match=r"columns 'a' and '[bA]' have the same"):
            attempt()
    assert len(list((path / "_delta_log").glob("*.json"))) == 2
    # The version before is sound, and the table can go back to it; a sound table does not go to the bad version.
    DeltaTable(path, version=0).to_pyarrow_table()
    _with_marks(path, 2, lambda _: None)
    with pytest.raises(errors.InvalidLogError, match=r"columns 'a' and '[bA]' have the same"):
        DeltaTable(path).restore(1)
    assert DeltaTable(path).to_pyarrow_table().to_pylist() == [{"a": 5, "b": 6}]


# --- files without field ids ---


def without_field_ids(path):
    """A table that is mapped by id, with a data file and a change file whose columns have no field ids."""
    table = mapped(path, "id", **{"delta.enableChangeDataFeed": "true"})
    table.update({"s.x": "9"}, predicate="`id no.` = 2")
    refdelta.settle()
    for file in sorted(path.rglob("*.parquet")):
        if "_delta_log" not in file.parts:
            found = pq.read_table(file, partitioning=None)
            bare = pa.schema([pa.field(item.name, physical(item.type)) for item in found.schema])
            pq.write_table(found.cast(bare), file, store_schema=False)
    for log in (path / "_delta_log").glob("*.json"):
        log.write_text("\n".join(json.dumps(resized(json.loads(line), path)) for line in log.read_text().splitlines()))
    return DeltaTable(path)


def physical(kind):
    """An Arrow type without the metadata of its fields."""
    if pa.types.is_struct(kind):
        return pa.struct([(item.name, physical(item.type)) for item in kind])
    if pa.types.is_map(kind):
        return pa.map_(physical(kind.key_type), physical(kind.item_type))
    return pa.list_(physical(kind.value_type)) if pa.types.is_list(kind) else kind


def resized(action, path):
    for entry in (action.get(name) for name in ("add", "cdc")):
        if entry is not None:
            entry["size"] = (path / unquote(entry["path"])).stat().st_size
    return action


def updated(table):
    with table.begin() as txn:
        txn.update({"`id no.`": "7"})


READERS = {
    "rows": lambda table: table.to_pyarrow_table(),
    "a filter": lambda table: table.count("`id no.` > 0"),
    "pandas": lambda table: table.to_pandas(),
    "Polars": lambda table: table.to_polars().collect(),
    "DuckDB": lambda table: table.to_duckdb().fetchall(),
    "the change feed": lambda table: table.load_cdf(1).read_all(),
    "DELETE": lambda table: table.delete("`id no.` = 1"),
    "UPDATE": updated,
    "MERGE": lambda table: table.merge(ROWS, "s.`id no.` = t.`id no.`").when_matched_delete().execute(),
    "OPTIMIZE": lambda table: table.optimize.z_order(["`id no.`"]),
    "SQL": lambda table: refdelta.sql("SELECT `id no.` FROM t", t=table),
}


@pytest.mark.breaks_tables
@pytest.mark.sample(check=2)
@pytest.mark.parametrize("reader", READERS)
def test_a_file_without_field_ids_is_refused_by_all_readers(tmp_path, reader):
    """It may hold other columns under these names; statistics and footers, which have none, are read."""
    table = without_field_ids(tmp_path / "t")
    assert table.count() == ROWS.num_rows
    assert table.to_pyarrow_table(columns=["part"]).num_rows == ROWS.num_rows
    version = table.version()
    own = (duckdb.Error,) if reader == "DuckDB" else (errors.DataFileError, errors.InvalidArgumentError)
    with pytest.raises(own, match="field ids"):
        READERS[reader](table)
    assert DeltaTable(tmp_path / "t").version() == version
