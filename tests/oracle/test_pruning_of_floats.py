"""delta-spark finds NaN and zeros in the files of this engine, whichever rows of them its readers skip."""

from __future__ import annotations

import functools
from collections import defaultdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import float_tables
from float_tables import PREDICATES, WAYS, rows_that_meet
from predicate_strategies import PREDICATES as ANY_PREDICATES
from predicate_strategies import SCHEMA as ANY_SCHEMA
from predicate_strategies import batch_of, sayable
from predicate_strategies import rows as any_rows
from refdelta import DeltaTable, write_deltalake
from refdelta.crosscheck import oracle
from refdelta.engine.parquet import float_chunks
from refdelta.engine.parquet.file_options import FileOptions, files_written_with
from refdelta.expressions.expression import to_sql
from refdelta.expressions.sql import parse_predicate
from spark_tables import tries

pytestmark = pytest.mark.spark


def found_by_spark(spark, path, texts, column="n"):
    """The numbers, in a column, of the rows that meet each predicate, in one Spark job."""
    from pyspark.sql import functions as f

    frame = oracle.frame(spark, path)
    each = [frame.where(text).select(f.lit(number).alias("predicate"), column) for number, text in enumerate(texts)]
    found = defaultdict(list)
    for row in functools.reduce(lambda a, b: a.unionAll(b), each).collect():
        found[row.predicate].append(row[column])
    return [sorted(found[number]) for number in range(len(texts))]


@tries(8)
@given(float_tables.tables(), st.sampled_from(list(WAYS)), st.lists(PREDICATES, min_size=12, max_size=12))
def test_predicates_over_floats(spark, fresh_path, appended, way, predicates):
    path = fresh_path()
    rows = float_tables.write(path, way, appended).to_pyarrow_table()
    texts = [to_sql(predicate) for predicate in predicates]
    found = dict(zip(texts, found_by_spark(spark, path, texts), strict=True))
    assert found == {text: rows_that_meet(one, rows) for text, one in zip(texts, predicates, strict=True)}, way


@tries(4)
@given(
    st.lists(st.lists(any_rows(), min_size=1, max_size=8), min_size=2, max_size=3),
    st.sampled_from([None, ["p"], ["f"]]),
    st.lists(ANY_PREDICATES.map(sayable), min_size=20, max_size=20),
)
def test_predicates_over_columns_of_all_types(spark, fresh_path, parts, by, predicates):
    path = fresh_path()
    with files_written_with(FileOptions(row_group_rows=3)):
        for number, part in enumerate(parts):
            rows = pa.Table.from_batches([batch_of(part)])
            ids = pa.array(range(100 * number, 100 * number + len(part)), pa.int64())
            write_deltalake(path, rows.append_column("row", ids), mode="append", partition_by=by)
    rows = DeltaTable(path).to_pyarrow_table()
    texts = [to_sql(predicate) for predicate in predicates]
    bound = [parse_predicate(text, ANY_SCHEMA) for text in texts]
    found = dict(zip(texts, found_by_spark(spark, path, texts, "row"), strict=True))
    assert found == {text: rows_that_meet(one, rows, "row") for text, one in zip(texts, bound, strict=True)}


ROWS = pa.table({"n": range(4), "d": [0.1, float("nan"), -1.0, None], "z": [-0.0, -0.0, 1.0, None], "o": [0.0] * 4})
NAN = {"d > 5": [1], "d = double('NaN')": [1], "d <=> double('NaN')": [1], "NOT (d <= 5)": [1], "isnan(d)": [1]}
NAN |= {"d IN (double('NaN'), 7.0D)": [1], "d BETWEEN 5 AND double('NaN')": [1], "d <> 0.1D": [1, 2]}
ZEROS = {"z = 0.0D": [0, 1], "z IN (0.0D, 3.0D)": [0, 1], "z >= 0.0D": [0, 1, 2], "z BETWEEN 0.0D AND 0.5D": [0, 1]}
ZEROS |= {"o <=> -0.0D": [0, 1, 2, 3], "o = -0.0D": [0, 1, 2, 3], "o <= -0.0D": [0, 1, 2, 3]}


def lost(spark, path):
    """The predicates by which delta-spark does not find the rows."""
    write_deltalake(path, ROWS)
    wanted = NAN | ZEROS
    found = dict(zip(wanted, found_by_spark(spark, path, wanted), strict=True))
    return {text for text in wanted if found[text] != wanted[text]}


def test_each_way_to_ask_for_nan_and_zeros_finds_them(spark, tmp_path):
    assert lost(spark, tmp_path / "t") == set()
    ours = {text: DeltaTable(tmp_path / "t").count(text) for text in NAN | ZEROS}
    assert ours == {text: len(rows) for text, rows in (NAN | ZEROS).items()}


@pytest.mark.parametrize(("rule", "cases"), [("_has_nan", NAN), ("_has_zero", ZEROS)])
def test_without_a_rule_rows_are_lost(spark, tmp_path, monkeypatch, rule, cases):
    monkeypatch.setattr(float_chunks, rule, lambda values: False)
    found = lost(spark, tmp_path / "t")
    assert found
    assert found <= cases.keys()
