"""Comparing tables exactly: as multisets of rows, by value, with NaN equal to itself and -0.0 apart from 0.0."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections import Counter
from typing import Any

import pyarrow as pa


def exact(value: Any, of: pa.DataType) -> Any:
    """A hashable form of one Arrow value that keeps apart whatever the type keeps apart."""
    if value is None:
        return None
    if pa.types.is_struct(of):
        return tuple(exact(value[of.field(i).name], of.field(i).type) for i in range(of.num_fields))
    if pa.types.is_map(of):
        pairs = value.items() if isinstance(value, dict) else value
        return frozenset(Counter((exact(k, of.key_type), exact(v, of.item_type)) for k, v in pairs).items())
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        return tuple(exact(item, of.value_type) for item in value)
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value.hex()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat() if value.tzinfo else value.isoformat()
    return value


def shape(of: pa.DataType) -> str:
    """A type written without what no engine promises: nullability inside it and the names of list and map children."""
    if pa.types.is_struct(of):
        return f"struct<{', '.join(f'{f.name}: {shape(f.type)}' for f in of)}>"
    if pa.types.is_map(of):
        return f"map<{shape(of.key_type)}, {shape(of.item_type)}>"
    if pa.types.is_list(of):
        return f"list<{shape(of.value_type)}>"
    return str(of)


def rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """The rows of a table as a multiset."""
    columns = [[exact(v, column.type) for v in column.to_pylist()] for column in table.columns]
    return Counter(zip(*columns, strict=True)) if columns else Counter({(): table.num_rows})


def assert_same_table(got: pa.Table, want: pa.Table) -> None:
    """Same columns in the same order, of the same types, and the same rows in any order."""
    shapes = [[(f.name, shape(f.type)) for f in table.schema] for table in (got, want)]
    assert shapes[0] == shapes[1], f"columns differ: {shapes[0]} and not {shapes[1]}"
    assert_same_rows(got, want)


def assert_same_rows(got: pa.Table, want: pa.Table) -> None:
    """The same rows in any order."""
    left, right = rows(got), rows(want)
    assert left == right, f"unexpected: {list((left - right).items())[:3]}; missing: {list((right - left).items())[:3]}"
