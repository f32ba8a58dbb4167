"""Strings compared with numbers, dates and booleans: rows are those of a cast, no file with such rows is left out, and
conflicts are decided by the values.
"""

from __future__ import annotations

import itertools
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.engine.log.location import open_location
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.log.state import to_adds
from refdelta.expressions.evaluate import row_mask
from refdelta.expressions.sql import parse_predicate
from refdelta.pruning.file_match import may_match
from tiers import examples

WHOLE = ["1", "01", " 1", "+1", "10", "2", "-3", "9", "9223372036854775807", None]
FRACTIONS = [*WHOLE, "1.0", "1.5", "1e1", "NaN", "-Infinity", ".5"]
DATES = ["2024-01-01", "2024", "2024-1-1", " 2024-01-02", "2023-12-31", "10000-01-01", None]
NUMBERS = ["1", "2", "-3", "10", "9223372036854775807"]
_tables = itertools.count()

WHOLE_TESTS = st.one_of(
    st.builds("s {} {}".format, st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]), st.sampled_from(NUMBERS)),
    st.builds("{1} {0} s".format, st.sampled_from(["=", "<", ">="]), st.sampled_from(NUMBERS)),
    st.builds("s BETWEEN {} AND {}".format, st.sampled_from(NUMBERS), st.sampled_from(NUMBERS)),
    st.builds("s IN ({}, {})".format, st.sampled_from([*NUMBERS, "NULL"]), st.sampled_from([*NUMBERS, "'2'"])),
    st.sampled_from(["s = n", "s < n", "NOT s = 1", "NOT (s > n OR s IS NULL)", "n = 1 AND s = 1"]),
)
FRACTION_TESTS = st.builds(
    "s {} {}".format, st.sampled_from(["=", "<", ">", "<=>"]), st.sampled_from(["1.5", "1e0", "1D"])
)
DATE_TESTS = st.builds("s {} DATE '2024-01-01'".format, st.sampled_from(["=", "<", ">", "<>", "<=>"]))
KINDS = [(WHOLE, WHOLE_TESTS), (FRACTIONS, FRACTION_TESTS), (DATES, DATE_TESTS)]


def written_by(add, files):
    """The strings of a file, which notes its place in its minimum of ``place``."""
    return files[json.loads(add.stats)["minValues"]["place"]]


def table_of(files, *, partitioned):
    uri = f"memory://strings-{next(_tables)}"
    for place, file in enumerate(files):
        rows = pa.table(
            {
                "s": pa.array(file, "string"),
                "n": pa.array([len(x or "") for x in file], "int64"),
                "place": [place] * len(file),
            }
        )
        write_deltalake(uri, rows, mode="append", partition_by=["s"] if partitioned else None)
    return DeltaTable(uri)


@pytest.mark.tier("test")
@examples(40)
@given(st.data(), st.sampled_from(KINDS), st.booleans())
def test_rows_and_files_are_those_of_the_cast(data, kind, partitioned):
    texts, tests = kind
    files = data.draw(st.lists(st.lists(st.sampled_from(texts), min_size=1, max_size=3), min_size=1, max_size=3))
    text = data.draw(tests)
    table = table_of(files, partitioned=partitioned)
    whole = table.to_pyarrow_table().combine_chunks()
    predicate = parse_predicate(text, table.schema().struct)
    expected = whole.filter(row_mask(predicate, whole.to_batches()[0]))
    found = table.to_pyarrow_table(filters=text)
    order = [(name, "ascending") for name in ("s", "n", "place")]
    assert found.sort_by(order).equals(expected.sort_by(order))
    snapshot = load_snapshot(open_location(table.table_uri))
    for add in to_adds(snapshot.files):
        own = [add.partition_values["s"]] if partitioned else written_by(add, files)
        column = pa.array(own, "string")
        batch = pa.record_batch({"s": column, "n": pa.array([len(x or "") for x in own], "int64")})
        holds = True in row_mask(predicate, batch).to_pylist()
        assert may_match(predicate, add, snapshot.schema, snapshot.partition_columns) or not holds
    left = whole.num_rows - expected.num_rows
    table.delete(text)
    assert table.count() == left


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_string_that_is_no_number_is_an_error_where_it_is_looked_at(partitioned):
    table = table_of([["1", "2"], ["x"]], partitioned=partitioned)
    for text in ("s = 1", "s IN (1, 2)", "s = 1.5", "s = DATE '2024-01-01'", "s = true"):
        with pytest.raises(errors.ExpressionError, match=r"cannot cast '(x|1|2)' to"):
            table.to_pyarrow_table(filters=text)
    assert table.to_pyarrow_table(filters="s <> 'x' AND s = 1")["s"].to_pylist() == ["1"]
    with pytest.raises(errors.ExpressionError, match="cannot cast 'x' to long"):
        table.delete("s = 1")
    assert table.to_pyarrow_table(filters=[("s", "=", "1")]).num_rows == 1
    assert table.to_pyarrow_table(filters=[("s", "in", ["1", "2"])]).num_rows == 2


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_concurrent_append_conflicts_if_the_cast_makes_it_match(partitioned):
    table = table_of([["1"], ["3"]], partitioned=partitioned)
    for text, conflicts in (("'01'", True), ("'2'", not partitioned), ("NULL", not partitioned)):
        with table.begin(isolation="Serializable") as txn:
            assert txn.read(predicate="s = 1").num_rows >= 1
            txn.append(pa.table({"s": ["4"], "n": [1], "place": [9]}))
            other = DeltaTable(table.table_uri)
            value = pa.array([None if text == "NULL" else text.strip("'")], "string")
            write_deltalake(other, pa.table({"s": value, "n": [2], "place": [9]}), mode="append")
            if conflicts:
                with pytest.raises(errors.ConcurrentAppendException):
                    txn.commit()
            else:
                txn.commit()
        table.update_incremental()


def test_merge_joins_strings_with_numbers():
    table = table_of([["1", "02"], ["3"]], partitioned=False)
    source = pa.table({"k": [1, 2, 7], "v": [10, 20, 70]})
    work = table.merge(source, "t.s = s.k").when_matched_update({"n": "s.v"})
    result = work.when_not_matched_insert({"s": "cast(s.k as string)", "n": "s.v"}).execute()
    assert (result["num_target_rows_updated"], result["num_target_rows_inserted"]) == (2, 1)
    rows = table.to_pyarrow_table(columns=["s", "n"]).to_pylist()
    assert sorted((row["s"], row["n"]) for row in rows) == [("02", 20), ("1", 10), ("3", 1), ("7", 70)]
