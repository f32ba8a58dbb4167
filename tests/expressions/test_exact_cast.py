"""Columns are cast exactly, by values: as the definition casts each value, and back to the same value."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.arrow.partition import from_internal, to_internal
from refdelta.arrow.schema import arrow_type
from refdelta.errors import ExpressionError
from refdelta.expressions.exact_cast import fitted_column, fitted_value
from refdelta.table.evolution import may_fit
from refdelta.table.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DecimalType,
)
from tiers import examples

DAY = 86_400_000_000
TYPES = [
    BYTE, SHORT, INTEGER, LONG, FLOAT, DOUBLE, BOOLEAN, STRING, BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ,
    DecimalType(10, 2), DecimalType(12, 2), DecimalType(38, 0), DecimalType(38, 38), DecimalType(5, 5),
    DecimalType(20, 0),
]  # fmt: skip
_BITS = {BYTE: 8, SHORT: 16, INTEGER: 32, LONG: 64}
_TEXTS = ("1", "-7", "007", "+5", " 12 ", "1.5", "0.1", "1e3", "1e400", "NaN", "-Infinity", "true", "no", "2024-02-29",
          "2024-02-30", "2024", "2024-01-01 10:00:00", "2024-01-01T10:00:00.1234567", "2024-01-01 10:00:00+02:00", "",
          "2024-01-01 10:00:00Z", "128", "-129", "9223372036854775808", "0.12345678901234567890", "x", "٣")  # fmt: skip


def values_of(kind):
    """Internal values of a type, with many near the limits of the other types."""
    if kind in _BITS:
        top = 1 << _BITS[kind] - 1
        edges = [n for b in (7, 8, 15, 16, 24, 31, 53, 63) for n in ((1 << b) - 1, 1 << b, -(1 << b), -(1 << b) - 1)]
        near = [n for n in (*edges, 0, 1, 2**53 + 1) if -top <= n < top]
        return st.sampled_from(near) | st.integers(-top, top - 1)
    if kind in (FLOAT, DOUBLE):
        width = 32 if kind == FLOAT else 64
        plain = (
            st.integers(-(10**7), 10**7).map(lambda n: n / 100) if kind == DOUBLE else st.integers(-999, 999).map(float)
        )
        edges = st.sampled_from([0.0, -0.0, 2.0**31, 2.0**63, -(2.0**63), 2.0**24, math.nan, math.inf, 0.5, 128.0])
        return plain | edges | st.floats(width=width)
    if isinstance(kind, DecimalType):
        top = 10**kind.precision - 1
        limit = min(300, top // 10**kind.scale)
        wholes = st.integers(-limit, limit).map(lambda n: n * 10**kind.scale)
        return (wholes | st.integers(-top, top)).map(
            lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -kind.scale))
        )
    if kind == BOOLEAN:
        return st.booleans()
    if kind == STRING:
        return st.sampled_from(_TEXTS) | st.text(max_size=5)
    if kind == BINARY:
        return st.binary(max_size=4) | st.text(max_size=3).map(str.encode)
    if kind == DATE:
        return st.integers(-(2**31), 2**31 - 1) | st.integers(-9999, 99999)
    return st.integers(-99, 99999).map(lambda n: n * DAY) | st.integers(-(2**63), 2**63 - 1)


def same(one, other):
    return one == other or (
        isinstance(one, float) and math.isnan(one) and isinstance(other, float) and math.isnan(other)
    )


PAIRS = [(one, other) for one in TYPES for other in TYPES if one != other and may_fit(one, other)]


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=str)
@pytest.mark.sample(check=10, test=60)
@examples(60)
@given(st.data())
def test_a_column_is_cast_as_each_of_its_values(source, target, data):
    values = data.draw(st.lists(st.none() | values_of(source), max_size=6))
    column = from_internal(values, source)
    found, misfits = fitted_column(column, target)
    found.validate(full=True)
    assert found.type == arrow_type(target)
    assert len(found) == len(column)
    bad = [False] * len(values) if misfits is None else misfits.to_pylist()
    for value, wrong, got in zip(to_internal(column, source), bad, to_internal(found, target), strict=True):
        try:
            expected = fitted_value(value, source, target)
        except ExpressionError:
            assert wrong, f"{value!r} does not fit into {target}, and became {got!r}"
            continue
        assert not wrong, f"{value!r} is {expected!r} as {target}"
        assert same(got, expected)
        if value is not None and may_fit(target, source) and source != STRING:
            assert same(fitted_value(got, target, source), value)
