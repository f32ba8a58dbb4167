"""NaN and zeros are found by other readers in the files of this engine, and by this engine in the files of others.

A reader that skips row groups and pages by footers finds the rows that it finds without skipping. Where NaN means the
same to it, these are the rows of the engine's own evaluation.
"""

from __future__ import annotations

import itertools
import shutil

import deltalake
import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import float_tables
from float_tables import INFINITY, NAN, PREDICATES, READERS, WAYS, rows_that_meet, words
from refdelta import DeltaTable, write_deltalake
from refdelta.engine.parquet import float_chunks
from refdelta.expressions.expression import And, Column, Comparison, In, Literal, Not, to_sql
from refdelta.table.types import DOUBLE
from tiers import examples

#: pyarrow compares NaN as IEEE 754 does. To the others it equals itself and is the greatest value, as in Spark.
AS_SPARK = ("duckdb", "polars")
#: Constants by which pyarrow's pruning loses other rows: those of ``~(f < NaN)``, and 0.0 of ``~isin([-0.0])``.
LOST_BY_PYARROW = ("NaN", "0.0", "-0.0")


@pytest.mark.tier("test")
@examples(60)
@given(
    float_tables.tables(),
    st.sampled_from([way for way in WAYS if way != "partitioned"]),
    st.lists(PREDICATES, min_size=5, max_size=5),
)
def test_other_readers_find_the_same_rows_with_and_without_pruning(fresh_path, appended, way, predicates):
    table = float_tables.write(fresh_path(), way, appended)
    paths, rows = table.file_uris(), table.to_pyarrow_table()
    for predicate in predicates:
        for name, reader in READERS.items():
            if name == "pyarrow" and any(f"'{value}'" in to_sql(predicate) for value in LOST_BY_PYARROW):
                continue
            found = reader(paths, words(predicate), pruned=True)
            assert found == reader(paths, words(predicate), pruned=False), (name, to_sql(predicate))
            if name in AS_SPARK and way != "deleted, vectors":
                assert found == rows_that_meet(predicate, rows), (name, to_sql(predicate))


D, FIVE, NOT_A_NUMBER = Column(("d",)), Literal(5.0, DOUBLE), Literal(NAN, DOUBLE)
CASES = {
    "greater": Comparison(">", D, FIVE),
    "equal": Comparison("=", D, NOT_A_NUMBER),
    "null-safe": Comparison("<=>", D, NOT_A_NUMBER),
    "not less": Not(Comparison("<=", D, FIVE)),
    "in": In(D, (NOT_A_NUMBER, FIVE)),
    "between": And((Comparison(">=", D, FIVE), Comparison("<=", D, NOT_A_NUMBER))),
    "above infinity": Comparison(">", D, Literal(INFINITY, DOUBLE)),
    "less": Comparison("<=", D, FIVE),
}


def differences(table: DeltaTable) -> set[tuple[str, str]]:
    """The readers and predicates of which pruning changes the rows."""
    return {
        (reader, name)
        for (reader, read), (name, case) in itertools.product(READERS.items(), CASES.items())
        if read(table.file_uris(), words(case), pruned=True) != read(table.file_uris(), words(case), pruned=False)
    }


def table_with_nan(path) -> DeltaTable:
    write_deltalake(path, pa.table({"n": range(3), "d": [0.1, NAN, -1.0]}))
    return DeltaTable(path)


@pytest.mark.tier("test")
def test_each_way_to_ask_for_nan_finds_it(tmp_path):
    table = table_with_nan(tmp_path / "t")
    assert differences(table) == set()
    assert {name: table.count(to_sql(case)) for name, case in CASES.items()} == dict.fromkeys(CASES, 1) | {"less": 2}


def test_without_the_rule_rows_are_lost_and_found_too_often(tmp_path, monkeypatch):
    monkeypatch.setattr(float_chunks, "_has_nan", lambda values: False)
    found = differences(table_with_nan(tmp_path / "t"))
    assert ("duckdb", "greater") in found  # NaN is above the maximum
    assert ("duckdb", "less") in found  # taken to be true of all rows, NaN included
    assert ("pyarrow", "not less") in found


# --- files of other writers --------------------------------------------------------------------------------------


@pytest.mark.tier("test")
@examples(40)
@given(float_tables.tables(), st.lists(PREDICATES, min_size=4, max_size=4), st.sampled_from([3, 1000]))
def test_rows_of_other_writers_are_found_changed_and_matched(fresh_path, appended, predicates, group_rows):
    """deltalake leaves NaN out of the bounds in the log and in footers."""
    path = fresh_path()
    how = deltalake.WriterProperties(max_row_group_size=group_rows)
    for part in appended:
        deltalake.write_deltalake(path, part, mode="append", writer_properties=how)
    table = DeltaTable(path)
    rows = table.to_pyarrow_table()
    with duckdb.connect() as connection:
        relation = table.to_duckdb(connection)
        for predicate in predicates:
            text, truth = to_sql(predicate), rows_that_meet(predicate, rows)
            assert numbers(table.to_pyarrow_table(filters=text)) == truth, text
            assert table.count(text) == len(truth), text
            assert numbers(relation.filter(words(predicate).duckdb).to_arrow_table()) == truth, text
            assert numbers(table.to_polars().filter(words(predicate).polars).collect().to_arrow()) == truth, text
    text, met = to_sql(predicates[0]), set(rows_that_meet(predicates[0], rows))
    left = [n for n in numbers(rows) if n not in met]

    def changed(change) -> list[int]:
        copy = fresh_path()
        shutil.copytree(path, copy)
        change(DeltaTable(copy))
        return numbers(DeltaTable(copy).to_pyarrow_table())

    source = rows.select(["n"]).rename_columns(["m"])
    assert changed(lambda copy: copy.delete(text)) == left, text
    assert changed(lambda copy: copy.update({"n": "n + 1000"}, predicate=text)) == left + sorted(
        n + 1000 for n in met
    ), text
    merged = changed(lambda copy: copy.merge(source, f"n = m AND ({text})").when_matched_delete().execute())
    assert merged == left, text


def numbers(rows: pa.Table) -> list[int]:
    return sorted(rows.column("n").to_pylist())
