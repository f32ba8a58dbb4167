"""The conclusions of the table of claims hold for everything that was measured."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from by_path import loaded
from refdelta.core.log import claims
from refdelta.core.log.actions import Add
from refdelta.engine.scan.skipping import prune
from refdelta.expressions.expression import Column, Comparison, IsNull, Literal, Not
from refdelta.pruning.file_match import FileMatcher
from refdelta.pruning.stats import load_stats, lookup, statistic
from refdelta.pruning.stats_source import StatsSource
from refdelta.table.types import BINARY, DecimalType, PrimitiveType, StructField, StructType

measure = loaded(Path(__file__).with_name("measure_claims.py"))
MEASURED = measure.measured()
INSIDE = ("decimal_38_18_odd", "double_nan", "time_1850", "text_33")


def kind_of(name: str) -> DecimalType | PrimitiveType:
    if not name.startswith("decimal"):
        return PrimitiveType(name)
    precision, scale = map(int, name[8:-1].split(","))
    return DecimalType(precision, scale)


def internal(value: Any, kind: DecimalType | PrimitiveType) -> Any:
    if value is None:
        return None
    if isinstance(kind, DecimalType):
        return Decimal(value)
    return float(value) if kind.name in ("float", "double") else value


COLUMNS = {
    name: (kind_of(kind), [internal(value, kind_of(kind)) for value in measure.padded(values)])
    for name, (kind, values) in measure.columns().items()
}
FIELDS = tuple(StructField(name, kind) for name, (kind, _) in COLUMNS.items())
INNER = StructType(tuple(StructField(name, COLUMNS[name][0]) for name in INSIDE))
SCHEMA = StructType((*FIELDS, StructField("inside", INNER)))


def float32(value: float) -> float:
    return pa.scalar(value, pa.float32()).as_py()


def conditions(path: tuple[str, ...], kind: Any, values: list[Any]) -> list[Any]:
    """Conditions that hold for a row."""
    column, found = Column(path, kind), []
    for value in set(values):
        if value is None:
            found.append(IsNull(column))
            continue
        literal = Literal(float32(value) if kind == PrimitiveType("float") else value, kind)
        found += [Comparison(op, column, literal) for op in ("=", "<=", ">=", "<=>")]
        found.append(Not(IsNull(column)))
    return found


def check(texts: list[str]) -> None:
    """No condition that holds for a row excludes a file with its statistics."""
    none = pa.array([[]] * len(texts), pa.map_(pa.string(), pa.string()))
    files = pa.table({"partitionValues": none, "stats": pa.array(texts, pa.string())})
    adds = [Add(path="f", partition_values={}, size=1, modification_time=0, data_change=True, stats=t) for t in texts]
    paths = [((name,), name) for name in COLUMNS] + [(("inside", name), name) for name in INSIDE]
    for path, name in paths:
        kind, values = COLUMNS[name]
        if kind == BINARY:
            continue
        for condition in conditions(path, kind, values):
            matcher = FileMatcher(condition, SCHEMA, ())
            lost = [add.stats for add in adds if not matcher.may_match(add)]
            assert not lost, condition
            assert all(prune(files, SCHEMA, (), condition).keep.to_pylist()), condition


def whole(one: dict[str, Any]) -> bool:
    return "marked" not in one["how"] and one["stats"] is not None


@pytest.mark.tier("test")
def test_the_conclusions_hold_for_everything_that_was_measured():
    engines = {f"{one['engine']} {one['version'].rsplit('.', 1)[0]}" for one in MEASURED}
    versions = ("3.2", "3.3", "4.0", "4.1", "4.2", "4.3", "4.4")
    assert engines >= {"deltalake 1.6", *(f"delta-spark {version}" for version in versions)}
    texts = [one["stats"] for one in MEASURED if whole(one)]
    assert len(texts) > 32
    check(texts)


def test_another_engine_does_not_mark_what_it_computes_anew():
    for one in MEASURED:
        found = load_stats(one["stats"])
        # A mark may stay where the bounds stay; delta-spark writes both anew.
        assert claims.EXACT_BOUNDS not in found or "marked" in one["how"]


def test_the_margin_of_decimals_is_larger_than_what_was_measured():
    steps = []
    for one in MEASURED:
        for name, (kind, values) in COLUMNS.items():
            if not isinstance(kind, DecimalType) or kind.precision <= claims.DOUBLE_DIGITS or not whole(one):
                continue
            for part, true in (("minValues", min(values)), ("maxValues", max(values))):
                bound = statistic(lookup(load_stats(one["stats"]), (part, name)), kind)
                if bound is None or claims.is_saturated(int(bound.scaleb(kind.scale)), kind.scale):
                    continue
                steps.append(abs(float(bound - true)) / math.ulp(float(true)))
    assert 0.4 < max(steps) < 8


def test_bounds_of_this_engine_stay_as_they_are():
    for kind, value in [("double", 1.5), ("decimal(38,18)", Decimal("1.5")), ("date", 3), ("string", "b" * 40)]:
        source = StatsSource.of(StructType((StructField("x", kind_of(kind)),)), ("x",))
        assert source.lower(value, exact=True) == value
        assert source.upper(value, exact=True) == value
    time = StatsSource.of(StructType((StructField("x", kind_of("timestamp")),)), ("x",))
    assert (time.lower(1_000, exact=True), time.upper(1_000, exact=True)) == (1_000, 1_999)
    assert (time.lower(1_000, exact=False), time.upper(1_000, exact=False)) == (1_000 - 60_000_000, 1_999 + 60_000_000)


@pytest.mark.parametrize(
    ("nulls", "rows", "bounded", "found"),
    [
        (0, 3, True, 0),
        (3, 3, False, 3),
        (3, 3, True, None),
        (4, 3, False, None),
        (-1, 3, False, None),
        (None, 3, False, None),
        (0, 0, True, None),
        (2, None, True, 2),
    ],
)
def test_counts_that_contradict_say_nothing(nulls, rows, bounded, found):
    assert claims.null_count(nulls, rows, bounded=bounded) == found
    assert claims.row_count(-1) is None


@pytest.mark.parametrize(
    ("text", "exact", "found"),
    [
        ("b" * 7, False, "b" * 7),
        ("b" * 8, False, "b" * 8 + claims.TEXT_MARGIN),
        ("b" * 8, True, "b" * 8),
        ("b?\ufffd", False, "b" + claims.TEXT_MARGIN),
        ("b?\ufffd", True, "b\U0010ffff"),
        ("\U0010ffff\ufffd", False, None),
    ],
)
def test_a_maximum_of_strings_may_be_cut(text, exact, found):
    assert claims.text_high(text, exact=exact) == found


@pytest.mark.tier("test")
def test_the_conclusions_hold_for_what_deltalake_writes_today(tmp_path):
    measure.source(tmp_path)
    check([measure.of_deltalake(tmp_path)] * 2)
