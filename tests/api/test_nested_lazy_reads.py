"""Lazy readers give the rows of the scan for types within types, of each writer, or name another reader."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from refdelta import AddAction, DeltaTable, errors, write_deltalake
from refdelta.engine.scan import foreign

deltalake = pytest.importorskip("deltalake")

MAPPED = {"delta.columnMapping.mode": "name"}
LEAVES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "long": (pa.int64(), [1, -2]),
    "small": (pa.int16(), [1, 300]),
    "text": (pa.string(), ["x", ""]),
    "bytes": (pa.binary(), [b"\xff", b""]),
    "price": (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-2.25")]),
    "moment": (pa.timestamp("us", "UTC"), [dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)] * 2),
    "day": (pa.date32(), [dt.date(1969, 12, 31), dt.date(2020, 2, 29)]),
    "flag": (pa.bool_(), [True, False]),
    "real": (pa.float64(), [1.5, -0.25]),
}
WRAPS = {
    "list": (pa.list_, lambda value: [value, None]),
    "map": (lambda kind: pa.map_(pa.string(), kind), lambda value: [("k", value), ("none", None)]),
    "struct": (lambda kind: pa.struct([("a", kind), ("b", pa.int32())]), lambda value: {"a": value, "b": 1}),
}
SHAPES = [*itertools.product(WRAPS), *itertools.product(WRAPS, WRAPS)]


def rows_of(shape: tuple[str, ...]) -> pa.Table:
    """A column for each leaf within the shape: a value, null, and another value."""
    columns: dict[str, Any] = {"k": [1, 2, 3]}
    for name, leaf in LEAVES.items():
        kind, values = leaf
        for wrap in reversed(shape):
            kind, values = WRAPS[wrap][0](kind), [WRAPS[wrap][1](value) for value in values]
        columns[name] = pa.array([values[0], None, values[1]], kind)
    return pa.table(columns)


def otherwise_named(kind: pa.DataType, *, large: bool) -> pa.DataType:
    """A type with other names for the items of lists and the entries of maps, in the layout of large types."""
    if pa.types.is_list(kind):
        item = pa.field("array_element", otherwise_named(kind.value_type, large=large))
        return pa.large_list(item) if large else pa.list_(item)
    if pa.types.is_map(kind):
        key = pa.field("keys", otherwise_named(kind.key_type, large=large), nullable=False)
        return pa.map_(key, pa.field("values", otherwise_named(kind.item_type, large=large)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(otherwise_named(field.type, large=large)) for field in kind])
    if large and (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return pa.large_string() if pa.types.is_string(kind) else pa.large_binary()
    return kind


def by_refdelta(path: Path, rows: pa.Table) -> None:
    write_deltalake(path, rows)


def by_deltalake(path: Path, rows: pa.Table) -> None:
    deltalake.write_deltalake(str(path), rows)


def in_large_types(path: Path, rows: pa.Table) -> None:
    kinds = [otherwise_named(kind, large=True) for kind in rows.schema.types]
    deltalake.write_deltalake(str(path), pa.table(rows.columns, rows.schema.names).cast(schema_of(rows, kinds)))


def by_others(path: Path, rows: pa.Table, *, large: bool = False) -> None:
    """Files in which the items of lists and the entries of maps have other names."""
    DeltaTable.create(path, rows.schema)
    kinds = [otherwise_named(kind, large=large) for kind in rows.schema.types]
    file = path / "other.parquet"
    pq.write_table(rows.cast(schema_of(rows, kinds)), file, use_compliant_nested_type=False)
    action = AddAction(file.name, file.stat().st_size, {}, 1, stats=json.dumps({"numRecords": 3}))
    DeltaTable(path).create_write_transaction([action], "append", rows.schema)


def schema_of(rows: pa.Table, kinds: list[pa.DataType]) -> pa.Schema:
    return pa.schema(list(zip(rows.schema.names, kinds, strict=True)))


def mapped_later(path: Path, rows: pa.Table) -> None:
    write_deltalake(path, rows)
    DeltaTable(path).alter.set_table_properties(MAPPED)


def mapped(path: Path, rows: pa.Table) -> None:
    write_deltalake(path, rows, configuration=MAPPED)


WRITERS = {
    "refdelta": by_refdelta,
    "deltalake": by_deltalake,
    "deltalake, large types": in_large_types,
    "other names": by_others,
    "other names, large types": lambda path, rows: by_others(path, rows, large=True),
    "mapped later": mapped_later,
    "mapped": mapped,
}


def read_by_duckdb(table: DeltaTable) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return table.to_duckdb(connection).to_arrow_table()


def check_dataset(table: DeltaTable, wanted: pa.Table) -> None:
    dataset = table.to_pyarrow_dataset()
    assert dataset.to_table().schema.equals(wanted.schema)
    conditions = [None, pc.field("k") >= 2]
    for name in LEAVES:
        conditions += [pc.field(name).is_null(), pc.field(name).is_valid()]
        if pa.types.is_struct(wanted.schema.field(name).type):
            conditions += [pc.field(name, "a").is_valid(), pc.field(name, "b") == 1]
    for condition in conditions:
        expected = wanted if condition is None else wanted.filter(condition)
        assert dataset.to_table(filter=condition).to_pylist() == expected.to_pylist(), condition
        assert dataset.count_rows(filter=condition) == expected.num_rows


@pytest.mark.tier("test")
@pytest.mark.sample(check=6, test=6)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("shape", SHAPES, ids=" of ".join)
def test_types_within_types(tmp_path, shape, writer):
    rows = rows_of(shape)
    WRITERS[writer](tmp_path / "t", rows)
    table = DeltaTable(tmp_path / "t")
    wanted = table.to_pyarrow_table()
    assert wanted.to_pylist() == rows.to_pylist()
    assert pa.table(pa.RecordBatchReader.from_stream(table)).to_pylist() == rows.to_pylist()
    assert table.to_polars().collect().to_dicts() == pl.DataFrame(wanted).to_dicts()
    found, same = read_by_duckdb(table), duckdb.from_arrow(wanted).to_arrow_table()
    assert found.drop_columns("moment").to_pylist() == same.drop_columns("moment").to_pylist()
    if writer == "mapped":
        with pytest.raises(errors.InvalidArgumentError, match=r"\(column mapping.*; use to_polars\(\), to_duckdb\(\)"):
            table.to_pyarrow_dataset()
    else:
        check_dataset(table, wanted)


# --- structs that change -----------------------------------------------------------------------------------------

OLD = pa.struct([("b", pa.int32()), ("a", pa.int64())])


def old_rows(path: Path) -> DeltaTable:
    values = [{"b": 1, "a": 7}, None]
    columns = {
        "k": [1, 2],
        "s": pa.array(values, OLD),
        "l": pa.array([values, None], pa.list_(OLD)),
        "m": pa.array([[("x", values[0])], None], pa.map_(pa.string(), OLD)),
    }
    write_deltalake(path, pa.table(columns), configuration={"delta.enableTypeWidening": "true"})
    return DeltaTable(path)


def evolved(table: DeltaTable, kind: pa.StructType) -> DeltaTable:
    columns = {"s": kind, "l": pa.list_(kind), "m": pa.map_(pa.string(), kind)}
    rows = pa.table({"k": pa.array([], pa.int64()), **{name: pa.array([], part) for name, part in columns.items()}})
    write_deltalake(table, rows, mode="append", schema_mode="merge")
    return DeltaTable(table.table_uri)


def with_a_new_field(path: Path) -> DeltaTable:
    return evolved(old_rows(path), pa.struct([*OLD, ("c", pa.string())]))


def widened(path: Path) -> DeltaTable:
    return evolved(old_rows(path), pa.struct([("b", pa.int64()), ("a", pa.int64())]))


def without_a_field(path: Path) -> DeltaTable:
    table = old_rows(path)
    table.alter.set_table_properties(MAPPED)
    table.alter.drop_columns(["s.a", "l.element.a", "m.value.a"])
    return DeltaTable(table.table_uri)


def with_a_field_again(path: Path) -> DeltaTable:
    return evolved(without_a_field(path), OLD)


def with_a_renamed_field(path: Path) -> DeltaTable:
    table = old_rows(path)
    table.alter.set_table_properties(MAPPED)
    table.alter.rename_column("s.a", "other")
    return DeltaTable(table.table_uri)


CHANGED = {
    "a new field": (with_a_new_field, None),
    "a wider field": (widened, None),
    "a field is gone": (without_a_field, None),
    "a field is there again": (with_a_field_again, "fields by other names"),
    "a renamed field": (with_a_renamed_field, "fields by other names"),
}


def agreed(path: Path, make: Any, refused: str | None) -> None:
    table = make(path)
    wanted = table.to_pyarrow_table()
    assert table.to_polars().collect().to_dicts() == pl.DataFrame(wanted).to_dicts()
    assert read_by_duckdb(table).to_pylist() == duckdb.from_arrow(wanted).to_arrow_table().to_pylist()
    if refused is None:
        dataset = table.to_pyarrow_dataset()
        assert dataset.to_table().equals(wanted)
        assert dataset.to_table(filter=pc.field("s", "b") == 1)["k"].to_pylist() == [1]
    else:
        with pytest.raises(errors.InvalidArgumentError, match=f"{refused}.*; use to_polars"):
            table.to_pyarrow_dataset()


@pytest.mark.parametrize("change", CHANGED)
def test_structs_that_changed_after_the_files_were_written(tmp_path, change):
    agreed(tmp_path / "t", *CHANGED[change])


def test_without_the_rule_of_mapped_fields_a_dropped_value_would_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr(foreign, "_has_mapped_fields", lambda column: False)
    with pytest.raises(AssertionError):
        agreed(tmp_path / "t", *CHANGED["a field is there again"])
