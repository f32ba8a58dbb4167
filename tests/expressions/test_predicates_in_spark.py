"""Spark says the same of a predicate as we do, for every row, from the same text."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from predicate_strategies import PREDICATES, SCHEMA, batch_of, rows, sayable, schema_of
from refdelta.arrow.schema import from_arrow
from refdelta.errors import ExpressionError
from refdelta.expressions.evaluate import row_mask
from refdelta.expressions.expression import columns, to_sql
from refdelta.expressions.sql import parse_predicate
from refdelta.table.types import STRING
from tiers import examples

pytestmark = pytest.mark.spark


@given(st.lists(PREDICATES.map(sayable), min_size=60, max_size=60), st.lists(rows(), min_size=30, max_size=30))
@examples(5, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
def test_spark_agrees(spark, fresh_path, predicates, found):
    batch = batch_of(found)
    folder = fresh_path()
    folder.mkdir()
    pq.write_table(_numbered(batch), folder / "rows.parquet")
    texts = [to_sql(predicate) for predicate in predicates]
    frame = spark.read.parquet(str(folder))
    answers = frame.orderBy("row").selectExpr(*[f"({text}) AS c{i}" for i, text in enumerate(texts)]).collect()
    different = []
    for i, text in enumerate(texts):
        ours = row_mask(parse_predicate(text, SCHEMA), batch).to_pylist()
        theirs = [answer[i] for answer in answers]
        names = {path[0] for path in columns(parse_predicate(text, SCHEMA))}
        rows_apart = [{n: row[n] for n in names} for row, a, b in zip(found, ours, theirs, strict=True) if a != b]
        if rows_apart:
            apart = next((a, b) for a, b in zip(ours, theirs, strict=True) if a != b)
            different.append(f"{text} for {rows_apart[0]}: {apart}")
    assert not different, "\n".join(different)


STRINGS = {
    "whole": ["1", "01", " 1 ", "+1", "-3", "10", "9223372036854775807", None],
    "real": ["1", "1.5", " 1e1 ", ".5", "NaN", "-Infinity", "-0", None],
    "day": ["2024-01-01", "2024", "2024-1-1", " 2024-01-02", "2023-12-31", "+10000-01-01", "2024-01-01T10:00:00", None],
    "time": [
        "2024-01-01 10:00:00",
        "2024-01-01",
        "2024",
        "2024-01-01T10:00:00Z",
        "2024-01-01 12:00:00+02:00",
        None,
        None,
        None,
    ],
    "truth": ["true", "T", "no", "0", "1", " YES ", "f", None],
    "text": ["a", "", "x", "ab", "\u00e9", "b", "c", None],
}
OTHERS = {
    "l": pa.array([1, 2, -3, 10, 2**63 - 1, 0, 1, None], "int64"),
    "i": pa.array([1, 1, 1, 2, 3, -3, 10, None], "int8"),
    "dec": pa.array(["1", "1.50", "10", "0.50", "2", "3", "0", None]).cast(pa.decimal128(6, 2)),
    "d": pa.array([1.0, 1.5, 10.0, 0.5, float("nan"), float("-inf"), -0.0, None]),
    "dt": pa.array([19723, 19723, 19723, 19724, 0, 1, 2, None], "int32").cast(pa.date32()),
    "ts": pa.array([1704103200000000, 1704067200000000, 0, 1, 2, 3, 4, None], pa.timestamp("us", "UTC")),
    "b": pa.array([True, False, None] * 2 + [True, False]),
    "bin": pa.array([b"a", b"", b"b", b"ab", b"z", b"b", b"\xff", None]),
}
COMPARED = """
    whole = 1; 1 < whole; whole <=> 1; whole <> l; whole >= i; whole BETWEEN 1 AND 9; NOT whole = 1
    whole IN (1, 10); whole IN (1, '10'); whole IN ('-3', 1); whole IN (1, 2.5); whole IN (1, NULL)
    whole = 9223372036854775807; l = whole; CASE whole WHEN 1 THEN true ELSE false END; whole = 1.5; whole = dec
    whole < d; i = '1'; i IN ('1', 2); dec IN ('1.5', 2); real = 1.5; 2.0 > real; real < 1e1; real = dec; real <= d
    real <=> d; real IN (1.5, 1); real BETWEEN 0.5 AND 2.0; d = '1.5'; day = DATE '2024-01-01'; day < dt; day <=> dt
    day IN (DATE '2024-01-01', '2023-12-31'); dt = '2024-01-01'; dt >= '2024'
    time = TIMESTAMP '2024-01-01 10:00:00'; time < ts; time <> ts; ts = '2024-01-01'; time >= dt
    day = current_date(); truth = true; truth <> b; truth IN (true, NULL); b = 'yes'; text = bin; text < X'62'
    text > bin; '1.149' = 1.1
"""
REFUSED = {
    "x": "s = 1",
    "1.0": "s IN (1, 2)",
    "": "s < 1",
    "9223372036854775808": "s = 1L",
    "1,5": "s = 1.5",
    "2024-13": "s = DATE '2024-01-01'",
    "maybe": "s = true",
    "1e4x": "s > 1e0",
}


def test_strings_are_compared_with_other_types_as_in_spark(spark, fresh_path):
    folder = fresh_path()
    folder.mkdir()
    columns = {name: pa.array(values, "string") for name, values in STRINGS.items()} | OTHERS
    table = pa.table(columns)
    pq.write_table(_numbered(table.to_batches()[0]), folder / "rows.parquet")
    schema = from_arrow(table.schema)
    texts = [text.strip() for line in COMPARED.strip().splitlines() for text in line.split(";")]
    ours = {text: row_mask(parse_predicate(text, schema), table.to_batches()[0]).to_pylist() for text in texts}
    chosen = [f"({text}) AS c{i}" for i, text in enumerate(texts)]
    answers = spark.read.parquet(str(folder)).orderBy("row").selectExpr(*chosen).collect()
    assert ours == {text: [answer[i] for answer in answers] for i, text in enumerate(texts)}


def test_strings_that_are_no_value_of_the_other_type_are_errors_as_in_spark(spark):
    from pyspark.errors import PySparkException

    for value, text in REFUSED.items():
        with pytest.raises(ExpressionError, match="cannot cast"):
            row_mask(parse_predicate(text, schema_of(s=STRING)), pa.record_batch({"s": [value]}))
        with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
            spark.sql(f"SELECT {text} FROM VALUES ('{value}') AS t(s)").collect()


def _numbered(batch):
    return pa.Table.from_batches([batch]).append_column("row", pa.array(range(batch.num_rows)))
