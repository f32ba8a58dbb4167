"""Spark says the same of a predicate as we do, for every row, from the same text."""

from __future__ import annotations

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from predicate_strategies import PREDICATES, SCHEMA, batch_of, rows
from refdelta.core.expressions.predicate import And, In, Literal, Not, Or, columns, to_sql
from refdelta.core.table.types import LONG
from refdelta.engine.expressions.evaluate import row_mask
from refdelta.engine.expressions.sql import parse_predicate
from tiers import examples

pytestmark = pytest.mark.spark


def sayable(predicate):
    """The predicate without lists of no items, which Spark's grammar does not have."""
    match predicate:
        case And(children) | Or(children):
            return msgspec.structs.replace(predicate, children=tuple(map(sayable, children)))
        case Not(child):
            return Not(sayable(child))
        case In(child, ()):
            return In(child, (Literal(None, LONG),))
    return predicate


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


def _numbered(batch):
    import pyarrow as pa

    return pa.Table.from_batches([batch]).append_column("row", pa.array(range(batch.num_rows)))
