"""What may be stored in a column of another type: the same pairs of types as delta-spark's UPDATE lets through."""

from __future__ import annotations

import pytest

from predicate_strategies import SCHEMA
from refdelta.errors import SchemaMismatchError
from refdelta.expressions.assignment import store_assign
from refdelta.expressions.expression import Column
from refdelta.expressions.sql_text import type_sql
from refdelta.table.types import BINARY, BOOLEAN, FRACTIONAL, INTEGRAL, STRING, TIMESTAMP, is_numeric

pytestmark = pytest.mark.spark

COLUMNS = [item for item in SCHEMA if item.name not in ("p", "q", "st")]


def allowed_here(source, target):
    try:
        return store_assign(Column((source.name,), source.type), target.type).type == target.type
    except SchemaMismatchError:
        return False


def not_supported(source, target):
    """Casts that Spark has and this engine refuses by name."""
    return (
        (source in FRACTIONAL and target == STRING)
        or (source in INTEGRAL and target == BINARY)
        or (is_numeric(source) and target == TIMESTAMP)
        or (source == TIMESTAMP and is_numeric(target))
        or (source == BOOLEAN and target == TIMESTAMP)
    )


def test_the_same_pairs(spark, fresh_path):
    from pyspark.errors import AnalysisException

    path = fresh_path()
    text = ", ".join(f"{item.name} {type_sql(item.type)}" for item in COLUMNS)
    spark.sql(
        f"CREATE TABLE delta.`{path}` ({text}) USING delta TBLPROPERTIES ('delta.feature.timestampNtz'='supported')"
    )
    tracker = spark._jvm.org.apache.spark.sql.catalyst.QueryPlanningTracker
    nothing = spark._jvm.scala.Option.empty()
    state = spark._jsparkSession.sessionState()
    different = []
    for source in COLUMNS:
        for target in COLUMNS:
            plan = state.sqlParser().parsePlan(f"UPDATE delta.`{path}` SET {target.name} = {source.name}")
            try:
                state.analyzer().executeAndCheck(plan, tracker(nothing))
                there = True
            except AnalysisException:
                there = False
            if not_supported(source.type, target.type):
                assert not allowed_here(source, target)
            elif allowed_here(source, target) != there:
                different.append(f"{target.type} = {source.type}: {'allowed' if there else 'refused'} there")
    assert not different, "\n".join(different)
