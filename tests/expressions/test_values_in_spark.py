"""Spark says the same of a value as we do, from the same text: its type, what it is, or that there is none."""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from predicate_strategies import SCHEMA, batch_of, rows
from refdelta.arrow.partition import to_internal
from refdelta.errors import ExpressionError, PredicateError
from refdelta.expressions.casting import convert_value
from refdelta.expressions.evaluate import evaluate_value, value_of
from refdelta.expressions.expression import to_sql
from refdelta.expressions.sql import parse_expression
from refdelta.expressions.sql_text import type_sql
from refdelta.table.types import DATE, STRING, TIMESTAMP, TIMESTAMP_NTZ
from tiers import examples
from value_strategies import VALUE_TREES

# A failing example is long, and the message says what is wrong in it.
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")]


def readable(text, kind):
    """A value as something that Python can hold, however far it is."""
    if kind == DATE:
        return f"datediff({text}, DATE '1970-01-01')"
    return f"unix_micros(CAST({text} AS TIMESTAMP))" if kind in (TIMESTAMP, TIMESTAMP_NTZ) else text


def alike(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return a == b


def outcome(value, row):
    try:
        return value_of(value, row)
    except ExpressionError:
        return ExpressionError


@pytest.mark.tier("nightly")
@given(st.lists(VALUE_TREES, min_size=100, max_size=100), st.lists(rows(), min_size=20, max_size=20))
@examples(5, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
def test_spark_agrees(spark, fresh_path, trees, found):
    folder = fresh_path()
    folder.mkdir()
    batch = batch_of(found)
    numbered = pa.Table.from_batches([batch]).append_column("row", pa.array(range(batch.num_rows)))
    pq.write_table(numbered, folder / "rows.parquet")
    frame = spark.read.parquet(str(folder))
    known, texts = [], []
    for tree in trees:
        try:
            value = parse_expression(to_sql(tree), SCHEMA)
        except PredicateError:
            continue
        known.append((to_sql(tree), value, [outcome(value, row) for row in found]))
    assert len(known) > len(trees) / 2
    different = types_apart(frame, known)
    for text, value, expected in known:
        good = [i for i, item in enumerate(expected) if item is not ExpressionError]
        guarded = f"CASE WHEN row IN ({', '.join(map(str, [*good, -1]))}) THEN {text} END"
        texts.append(f"{readable(guarded, value.type)} AS c{len(texts)}")
    answers = frame.orderBy("row").selectExpr(*texts).collect()
    for place, (text, value, expected) in enumerate(known):
        kept = [i for i, item in enumerate(expected) if item is not ExpressionError]
        ours = to_internal(evaluate_value(value, batch.take(pa.array(kept, pa.int64()))), value.type)
        for mine, i in zip(ours, kept, strict=True):
            theirs = answers[i][place]
            theirs = bytes(theirs) if isinstance(theirs, bytearray) else theirs
            if not alike(mine, theirs):
                used = {name: found[i][name] for name in SCHEMA.names if name in text}
                different.append(f"{text}: {mine!r} here, {theirs!r} there for {used}")
                break
    assert not different, "\n".join(different)
    failing(frame, known)


def types_apart(frame, known):
    schema = frame.selectExpr(*[f"{text} AS c{i}" for i, (text, _, _) in enumerate(known)]).schema
    pairs = zip(known, schema, strict=True)
    named = [(text, type_sql(value.type).replace(" ", "").lower(), item.dataType) for (text, value, _), item in pairs]
    return [
        f"{text}: {ours} here, {kind.simpleString()} there" for text, ours, kind in named if ours != kind.simpleString()
    ]


def failing(frame, known):
    """A few of the rows for which there is no value here have none there."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    cases = [
        (readable(text, value.type), i)
        for text, value, expected in known
        for i, item in enumerate(expected)
        if item is ExpressionError
    ]
    for text, row in cases[:: max(1, len(cases) // 8)]:
        try:
            answer = frame.where(f"row = {row}").selectExpr(f"{text} AS c").collect()
        except (PySparkException, Py4JJavaError):  # of Java's own errors it makes none of its own
            continue
        pytest.fail(f"{text} has a value there, and none here: {answer}")


ZONES = (
    "|Z| Z|UTC|GMT|UT|z|utc|+2|+02|+02:00|+0200|+02:00:30|+18:00|+19:00|+2:5|+02:5|-00:00|UTC+2|UTC+02:00|GMT-3"
    "|UT+01:00|UTC+|Europe/Berlin| Europe/Berlin| America/New_York| US/Eastern| Etc/GMT+5| EST| PST| CST| IST"
    "| Asia/Calcutta|europe/berlin|[Europe/Berlin]| Berlin| Europe/Berlyn| Europe| posixrules| localtime| Factory| X"
)
# The second two are of the hour that is left out, and of the hour that comes twice, in Berlin.
CLOCKS = (
    "2024-07-01 12:00:00|2024-01-01T12:00:00.25|2024-03-31 02:30:00|2024-10-27 02:30:00|1850-01-01 00:00:00"
    "|0001-01-01 00:00:00|12024-07-01 12:00:00|+12024-07-01 12:00:00|2024-07-01|2024-07-01T"
)


def test_zones_in_times_are_read_as_in_spark(spark):
    texts = [clock + zone for clock in CLOCKS.split("|") for zone in ZONES.split("|")]
    frame = spark.createDataFrame([(text,) for text in texts], "s string")
    found = frame.selectExpr("s", "unix_micros(try_cast(s AS timestamp)) AS at").collect()
    theirs = {row["s"]: row["at"] for row in found}
    ours = {text: convert_value(text, STRING, TIMESTAMP, lenient=True) for text in texts}
    different = {text: (ours[text], theirs[text]) for text in texts if ours[text] != theirs[text]}
    assert not different, "\n".join(map(str, different.items()))
