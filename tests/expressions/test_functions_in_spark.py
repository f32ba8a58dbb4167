"""Spark has the same values for calls of every function, over random rows, as columns and as the definitions.

Tests of expressions.arithmetic, expressions.calendar_math, expressions.columnar, expressions.library.intervals,
expressions.library.numbers, expressions.library.times, expressions.signature.
"""

from __future__ import annotations

import math
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from function_cases import GROUPS, SCHEMA, batch_of, rows
from refdelta.arrow.partition import to_internal
from refdelta.errors import ExpressionError
from refdelta.expressions.evaluate import evaluate_value, value_of
from refdelta.expressions.sql import parse_expression
from refdelta.expressions.sql_text import type_sql
from refdelta.table.types import DATE, TIMESTAMP, TIMESTAMP_NTZ, MapType
from tiers import examples

# Java promises the last digit but one of these, and C too: 2 of the 2**52 steps between powers of two.
STEPS = 2


def near(a, b, steps=0):
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(near(one, other, steps) for one, other in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        if math.isnan(a) or math.isnan(b) or a == b:
            return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (math.isnan(a) and math.isnan(b))
        return steps > 0 and abs(a - b) <= steps * math.ulp(max(abs(a), abs(b)))
    return type(a) is type(b) and a == b


# Errors of our own, where the answer of Spark depends on its version, or is none that can be written to a file.
OWN = ("U+FFFF", "no one meaning", "ends in a line end")


def outcome(value, row):
    try:
        return value_of(value, row)
    except ExpressionError:
        return ExpressionError


def compared(text, found, batch):
    """A call, the rows for which it has a value, and these values; the columnar form has the same ones."""
    value = parse_expression(text, SCHEMA)
    expected = [outcome(value, row) for row in found]
    kept = [place for place, item in enumerate(expected) if item is not ExpressionError]
    ours = to_internal(evaluate_value(value, batch.take(pa.array(kept, pa.int64()))), value.type)
    return value, expected, kept, ours


def apart(text, expected, kept, ours, found, steps):
    for mine, place in zip(ours, kept, strict=True):
        if not near(mine, expected[place], steps):
            row = {name: found[place][name] for name in SCHEMA.names if name in text}
            return [f"{text}: {mine!r} as a column, {expected[place]!r} by the definition for {row}"]
    return []


@pytest.mark.tier("test")
@pytest.mark.sample(check=3, test=3)
@pytest.mark.parametrize("group", GROUPS)
@given(st.integers(0, 2**32))
@examples(3)
def test_columns_have_the_values_of_the_definitions(group, seed):
    found = rows(seed, 20)
    batch = batch_of(found)
    different = []
    for text in GROUPS[group]:
        value, expected, kept, ours = compared(text, found, batch)
        different += apart(text, expected, kept, ours, found, STEPS if group == "doubles" else 0)
        bad = [place for place, item in enumerate(expected) if item is ExpressionError][:1]
        if bad:
            with pytest.raises(ExpressionError):
                evaluate_value(value, batch.take(pa.array(bad)))
    assert not different, "\n".join(different)


def readable(text, kind):
    """A value as something that Python can hold, however far it is."""
    if kind == DATE:
        return f"datediff({text}, DATE '1970-01-01')"
    return f"unix_micros(CAST({text} AS TIMESTAMP))" if kind in (TIMESTAMP, TIMESTAMP_NTZ) else text


def plain(value, kind):
    if isinstance(kind, MapType) and value is not None:
        return list(value.items())
    if isinstance(value, list):
        return [plain(item, kind.element) for item in value]
    return bytes(value) if isinstance(value, bytearray) else value


@pytest.mark.spark
@pytest.mark.tier("test")
@pytest.mark.sample(test=4)
@pytest.mark.parametrize("group", GROUPS)
def test_spark_has_the_same_values(group, spark, tmp_path):
    # Spark shows its errors of single rows alone, so that each call is asked for the rows that have a value here.
    found = rows(hash_of(group), 80)
    batch = batch_of(found)
    pq.write_table(
        pa.Table.from_batches([batch]).append_column("row", pa.array(range(len(found)))), tmp_path / "r.parquet"
    )
    frame = spark.read.parquet(str(tmp_path)).orderBy("row")
    known, texts, different = [], [], []
    for text in GROUPS[group]:
        value, expected, kept, ours = compared(text, found, batch)
        steps = STEPS if group == "doubles" else 0
        different += apart(text, expected, kept, ours, found, steps)
        guarded = f"CASE WHEN row IN ({', '.join(map(str, [*kept, -1]))}) THEN {text} END"
        texts.append(f"{readable(guarded, value.type)} AS c{len(texts)}")
        known.append((text, value, kept, ours, steps))
    kinds = frame.selectExpr(*[f"{text} AS c{place}" for place, (text, *_) in enumerate(known)]).schema
    answers = frame.selectExpr(*texts).collect()
    for place, (text, value, kept, ours, steps) in enumerate(known):
        kind = re.sub(r"\binteger\b", "int", type_sql(value.type).replace(" ", "").lower())
        if kind != kinds[place].dataType.simpleString():
            different.append(f"{text}: {kind} here, {kinds[place].dataType.simpleString()} there")
        for mine, row in zip(ours, kept, strict=True):
            theirs = plain(answers[row][place], value.type)
            if not near(mine, theirs, steps):
                used = {name: found[row][name] for name in SCHEMA.names if name in text}
                different.append(f"{text}: {mine!r} here, {theirs!r} there for {used}")
                break
    assert not different, "\n".join(different)
    failing(frame, found, group)


def failing(frame, found, group):
    """Some of the rows for which there is no value here have none there."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    cases = []
    for text in GROUPS[group]:
        value = parse_expression(text, SCHEMA)
        bad = [row for row in range(len(found)) if outcome(value, found[row]) is ExpressionError]
        cases += [(readable(text, value.type), row) for row in bad if not own_error(value, found[row])][:1]
    for text, row in cases[:: max(1, len(cases) // 8)]:
        try:
            answer = frame.where(f"row = {row}").selectExpr(f"{text} AS c").collect()
        except (PySparkException, Py4JJavaError):  # of Java's own errors it makes none of its own
            continue
        pytest.fail(f"{text} has a value there, and none here: {answer} for {found[row]}")


def own_error(value, row):
    with pytest.raises(ExpressionError) as caught:
        value_of(value, row)
    return any(words in str(caught.value) for words in OWN)


def hash_of(name):
    return sum(map(ord, name))
