"""One pair of types, one outcome: by appends, overwrites and every clause of MERGE, at every depth."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expressions.test_exact_cast import TYPES, values_of
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.arrow.partition import from_internal
from refdelta.arrow.schema import arrow_type
from refdelta.expressions.exact_cast import fitted_value
from refdelta.table.evolution import can_widen, may_fit
from refdelta.table.types import BYTE, DATE, INTEGER, LONG, SHORT, STRING, DecimalType
from tiers import examples

SHAPES = {
    "plain": lambda column: column,
    "struct": lambda column: pa.StructArray.from_arrays([column], ["a"]),
    "list": lambda column: one_each(pa.ListArray.from_arrays, column),
    "map": lambda column: one_each(
        lambda offsets, items: pa.MapArray.from_arrays(offsets, pa.array(["k"] * len(items), pa.string()), items),
        column,
    ),
    "deep": lambda column: SHAPES["struct"](SHAPES["list"](SHAPES["struct"](column))),
}
PATHS = {"plain": "x", "struct": "x.a", "list": "x.element", "map": "x.value", "deep": "x.a.element.a"}
_folders = itertools.count()


def one_each(make, column):
    return make(pa.array(range(len(column) + 1), pa.int32()), column)


def of_one_key(offsets, items):
    return pa.MapArray.from_arrays(offsets, pa.array(["k"] * len(items), pa.string()), items)


def append(table, rows):
    write_deltalake(table, rows, mode="append")


def overwrite(table, rows):
    write_deltalake(table, rows, mode="overwrite")


def update_all(table, rows):
    write_deltalake(table, rows.select(["id"]), mode="append")
    table.merge(rows, "t.id = s.id").when_matched_update_all().execute()


def update_set(table, rows):
    write_deltalake(table, rows.select(["id"]), mode="append")
    table.merge(rows, "t.id = s.id").when_matched_update({"x": "s.x"}).execute()


def insert_all(table, rows):
    table.merge(rows, "t.id = s.id").when_not_matched_insert_all().execute()


def insert_values(table, rows):
    table.merge(rows, "t.id = s.id").when_not_matched_insert({"id": "id", "x": "x"}).execute()


WAYS = [append, overwrite, update_all, update_set, insert_all, insert_values]


def outcome(way, column, shape, target):
    """The values that are read back, or the kind of the error and its message."""
    kind = SHAPES[shape](pa.nulls(0, arrow_type(target))).type
    uri = f"memory://casts-{next(_folders)}"
    table = DeltaTable.create(uri, pa.schema([("id", "int64"), ("x", kind)]))
    rows = pa.table({"id": range(len(column)), "x": SHAPES[shape](column)})
    try:
        way(table, rows)
    except errors.DeltaError as error:
        assert table.to_pyarrow_table()["x"].null_count == table.count(), "a failed statement leaves no value"
        return Refused(type(error), str(error))
    return table.to_pyarrow_table().sort_by("id")["x"].combine_chunks()


class Refused(NamedTuple):
    kind: type
    message: str


def check(values, source, target, shape):
    column = from_internal(values, source)
    found = [outcome(way, column, shape, target) for way in WAYS]
    expected, wrong = [], None
    for row, value in enumerate(values):
        try:
            expected.append(fitted_value(value, source, target) if may_fit(source, target) else None)
        except errors.ExpressionError:
            wrong = row if wrong is None else wrong
    for way, one in zip(WAYS, found, strict=True):
        assert isinstance(one, Refused) == isinstance(found[0], Refused), way.__name__
        if not isinstance(one, Refused):
            assert wrong is None
            assert one.equals(found[0]) or any(map(is_nan, values)), way.__name__
            continue
        message, _, advice = one.message.partition("; ")
        assert message == found[0].message.partition("; ")[0], way.__name__
        assert one.kind is errors.SchemaMismatchError
        if may_fit(source, target):
            value = f" of column {PATHS[shape]} ({source} in the data) does not fit into {target}"
            place = f"row {wrong}: the value ", value
        else:
            place = f"column {PATHS[shape]} is {target} in the table and {source} in the data", ""
        assert all(part in one.message for part in place), one.message
        grows = may_fit(source, target) and {source, target} <= {BYTE, SHORT, INTEGER} and way in (append, overwrite)
        widens = may_fit(source, target) and can_widen(target, source)
        assert ("schema_mode" in advice, "change_type" in advice) == (grows, widens and not grows), way.__name__
    if not isinstance(found[0], Refused) and shape == "plain":
        assert found[0].equals(from_internal(expected, target)) or any(map(is_nan, values))


def is_nan(value):
    return isinstance(value, float) and math.isnan(value)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("values", "source", "target"),
    [
        ([1, 70000, -70000], LONG, SHORT),
        ([3, 4], LONG, SHORT),
        (["2024-01-01", "2024"], STRING, DATE),
        ([300], SHORT, BYTE),
        ([5], LONG, DATE),
        ([2**53 + 1], LONG, DecimalType(10, 2)),
    ],
)
@pytest.mark.sample(check=1)
def test_one_outcome(values, source, target, shape):
    check(values, source, target, shape)


@pytest.mark.tier("test")
@examples(60)
@given(st.data(), st.sampled_from(TYPES), st.sampled_from(TYPES), st.sampled_from(list(SHAPES)))
def test_any_pair_of_types_has_one_outcome(data, source, target, shape):
    check(data.draw(st.lists(st.none() | values_of(source), min_size=1, max_size=3)), source, target, shape)


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("s", {"a": 2.5}, "2.5 is not a whole number"),
        ("s", {"b": 1}, "field 'b' does not exist"),
        ("l", [1, 0.5], "0.5 is not a whole number"),
        ("m", {"k": 0.5}, "0.5 is not a whole number"),
        ("s", {"a": 2**40}, "too large"),
    ],
)
def test_python_values_lose_nothing_within_other_values(column, value, problem):
    uri = f"memory://casts-{next(_folders)}"
    kinds = {"s": pa.struct([("a", "int32")]), "l": pa.list_(pa.int64()), "m": pa.map_("string", "int16")}
    write_deltalake(uri, pa.table({"id": [1]} | {name: pa.nulls(1, kind) for name, kind in kinds.items()}))
    with pytest.raises(errors.InvalidArgumentError, match=problem):
        DeltaTable(uri).update(new_values={column: value})
    DeltaTable(uri).update(new_values={"s": {"a": 2.0}, "l": [1, None], "m": {"k": 3}})
    assert DeltaTable(uri).to_pyarrow_table().to_pylist() == [{"id": 1, "s": {"a": 2}, "l": [1, None], "m": [("k", 3)]}]


def test_an_update_casts_structs_and_lists_by_value():
    uri = f"memory://casts-{next(_folders)}"
    kinds = {"s": pa.struct([("a", "int16")]), "l": pa.list_(pa.int8())}
    write_deltalake(uri, pa.table({"id": [1]} | {name: pa.nulls(1, kind) for name, kind in kinds.items()}))
    DeltaTable(uri).update({"s": "named_struct('A', id + 1)", "l": "array(id, 2)"})
    assert DeltaTable(uri).to_pyarrow_table().to_pylist() == [{"id": 1, "s": {"a": 2}, "l": [1, 2]}]
    for sql, problem in (
        ("named_struct('a', id + 70000)", "70001 of column s.a"),
        ("named_struct('b', id)", "stored there"),
    ):
        with pytest.raises(errors.SchemaMismatchError, match=problem):
            DeltaTable(uri).update({"s": sql})
