"""Statistics and partition values that refdelta writes let Spark skip files, and never a file that has a match."""

from __future__ import annotations

import datetime as dt
import decimal
import functools
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_tables
import strategies
from comparison import assert_same_rows
from refdelta import DeltaTable, write_deltalake
from refdelta.crosscheck import oracle
from spark_tables import tries

pytestmark = pytest.mark.spark

EPOCH = dt.datetime(2020, 1, 1)
FILES = 4
#: For each type the value of file number i; every row of a file has it.
VALUES: dict[str, tuple[pa.DataType, Any, str]] = {
    "long": (pa.int64(), lambda i: i * 10**15, "{c} = 2000000000000000"),
    "integer": (pa.int32(), lambda i: i, "{c} = 2"),
    "short": (pa.int16(), lambda i: -i, "{c} = -2"),
    "byte": (pa.int8(), lambda i: i, "{c} > 1 AND {c} < 3"),
    "double": (pa.float64(), lambda i: i / 3, "{c} BETWEEN 0.6D AND 0.7D"),
    "float": (pa.float32(), lambda i: i / 2, "{c} = CAST(1.0 AS FLOAT)"),
    "string": (pa.string(), lambda i: "abcd"[i], "{c} = 'c'"),
    "long_string": (pa.string(), lambda i: "abcd"[i] * 50 + "😀", "{c} > 'cc' AND {c} < 'd'"),
    "beyond_the_basic_plane": (pa.string(), lambda i: chr(0x1F600 + i) * 40, "{c} > '😂' AND {c} < '😃'"),
    "date": (pa.date32(), lambda i: dt.date(1, 1, 1 + i), "{c} = DATE'0001-01-03'"),
    "timestamp": (
        strategies.TIMESTAMP,
        lambda i: EPOCH.replace(microsecond=7 + 2000 * i, tzinfo=dt.UTC),
        "{c} = TIMESTAMP'2020-01-01 00:00:00.004007Z'",
    ),
    "timestamp_ntz": (
        strategies.TIMESTAMP_NTZ,
        lambda i: EPOCH.replace(microsecond=7 + 2000 * i),
        "{c} = TIMESTAMP_NTZ'2020-01-01 00:00:00.004007'",
    ),
    "decimal": (pa.decimal128(38, 10), lambda i: decimal.Decimal(i).scaleb(20), "{c} = 2e20BD"),
    "small_decimal": (pa.decimal128(5, 2), lambda i: decimal.Decimal(i) / 4, "{c} = 0.50"),
    "nested.leaf": (pa.struct([("x", pa.int32())]), lambda i: {"x": i}, "{c}.x = 2"),
    "only_file_2_has_nulls": (pa.int32(), lambda i: None if i == 2 else i, "{c} IS NULL"),
    "only_file_2_has_values": (pa.int32(), lambda i: i if i == 2 else None, "{c} IS NOT NULL"),
}


@pytest.fixture(scope="module")
def layered(tmp_path_factory):
    """Four files, where each column has another value in each."""
    path = tmp_path_factory.mktemp("skipping") / "t"
    for i in range(FILES):
        columns = {name: pa.array([value(i)] * 3, of) for name, (of, value, _) in VALUES.items()}
        write_deltalake(path, pa.table(columns), mode="append")
    return path


@pytest.mark.sample(test=4)
@pytest.mark.parametrize("name", VALUES)
def test_spark_reads_the_one_file_that_can_match(spark, layered, name):
    predicate = VALUES[name][2].format(c=f"`{name}`")

    assert len(oracle.files_read(spark, layered, predicate)) == 1
    assert oracle.frame(spark, layered).where(predicate).count() == 3


def test_without_a_filter_all_are_read(spark, layered):
    assert len(oracle.files_read(spark, layered)) == FILES


def test_partition_values_prune_for_spark(spark, tmp_path):
    path = tmp_path / "t"
    data = pa.table(
        {
            "p": ["a b", "x/y", None, "100%", "日本"],
            "q": pa.array([1.5, float("nan"), None, -0.0, float("-inf")]),
            "n": range(5),
        }
    )
    write_deltalake(path, data, partition_by=["p", "q"])

    for predicate in (
        "p = 'a b'",
        "p = 'x/y'",
        "p IS NULL",
        "p = '100%'",
        "p = '日本'",
        "q = double('NaN')",
        "q = 0.0D",
        "q < -1e300D",
        "q IS NULL",
    ):
        assert len(oracle.files_read(spark, path, predicate)) == 1, predicate
        assert oracle.frame(spark, path).where(predicate).count() == 1, predicate


def literal(value: Any, of: pa.DataType) -> str | None:
    """A value as Spark SQL, or None where text cannot say it plainly."""
    if value is None:
        return "NULL"
    if pa.types.is_boolean(of):
        return str(value).lower()
    if pa.types.is_integer(of):
        return f"CAST('{value}' AS {spark_name(of)})"
    if pa.types.is_floating(of):
        return f"CAST('{value}' AS {spark_name(of)})"
    if pa.types.is_decimal(of):
        return f"CAST('{value:f}' AS {spark_name(of)})"
    if pa.types.is_string(of):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if pa.types.is_date(of):
        return f"DATE'{value.isoformat()}'"
    if pa.types.is_timestamp(of):
        stamp = value.replace(tzinfo=None).isoformat(sep=" ")
        return f"TIMESTAMP'{stamp}Z'" if of.tz else f"TIMESTAMP_NTZ'{stamp}'"
    return None


def spark_name(of: pa.DataType) -> str:
    names = {
        pa.int64(): "BIGINT",
        pa.int32(): "INT",
        pa.int16(): "SMALLINT",
        pa.int8(): "TINYINT",
        pa.float64(): "DOUBLE",
        pa.float32(): "FLOAT",
    }
    return names.get(of) or f"DECIMAL({of.precision},{of.scale})"


@st.composite
def comparisons(draw: st.DrawFn, table: strategies.RandomTable) -> str:
    """One comparison of a column with a value that it has, or with another of its type."""
    usable = [field for field in table.schema if literal_type(field.type)]
    field = draw(st.sampled_from(usable))
    name = "`" + field.name.replace("`", "``") + "`"
    operator = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>", "IS NULL", "IS NOT NULL", "IN"]))
    if operator.startswith("IS"):
        return f"{name} {operator}"
    known = [v for v in table.whole[field.name].to_pylist() if v is not None]
    values = (st.sampled_from(known) | strategies.values(field.type)) if known else strategies.values(field.type)
    if operator == "IN":
        chosen = draw(st.lists(strategies.maybe(values), min_size=1, max_size=3))
        return f"{name} IN ({', '.join(literal(v, field.type) or '' for v in chosen)})"
    return f"{name} {operator} {literal(draw(values), field.type)}"


def literal_type(of: pa.DataType) -> bool:
    return not (pa.types.is_nested(of) or pa.types.is_binary(of))


@st.composite
def predicates(draw: st.DrawFn, table: strategies.RandomTable) -> str:
    """Comparisons joined by AND, OR and NOT."""
    return draw(
        st.recursive(
            comparisons(table),
            lambda inner: st.one_of(
                st.builds("({} AND {})".format, inner, inner),
                st.builds("({} OR {})".format, inner, inner),
                st.builds("(NOT {})".format, inner),
            ),
            max_leaves=3,
        )
    )


@st.composite
def tables_and_predicates(draw: st.DrawFn) -> tuple[strategies.RandomTable, list[str]]:
    table = draw(
        strategies.tables(parts=(2, 4), columns=5).filter(lambda t: any(literal_type(f.type) for f in t.schema))
    )
    return table, draw(st.lists(predicates(table), min_size=8, max_size=8))


def tagged(frame: Any, wanted: list[str]) -> pa.Table:
    """The rows of every filter, each under the number of its filter, in one Spark job."""
    from pyspark.sql import functions as f

    each = [frame.where(predicate).withColumn("filter", f.lit(i)) for i, predicate in enumerate(wanted)]
    return functools.reduce(lambda a, b: a.unionAll(b), each).toArrow()


@tries(7)
@given(case=tables_and_predicates())
def test_filters_are_right_whichever_engine_skips(spark, fresh_path, case):
    """The truth is Spark's evaluation over the rows in memory, where nothing can be skipped."""
    table, wanted = case
    path = fresh_path()
    for part in table.parts:
        write_deltalake(path, part, mode="append", partition_by=table.partition_by or None)

    truth = tagged(spark_tables.frame(spark, table.whole), wanted)
    assert_same_rows(tagged(oracle.frame(spark, path), wanted), truth)
    ours = DeltaTable(path)
    for i, predicate in enumerate(wanted):
        want = truth.filter(pc.field("filter") == i).drop_columns(["filter"])
        assert_same_rows(ours.to_pyarrow_table(filters=predicate), want)


@tries(5)
@given(case=tables_and_predicates())
def test_refdelta_skips_rightly_by_statistics_of_spark(spark, fresh_path, case):
    table, wanted = case
    path = fresh_path()
    for part in table.parts:
        spark_tables.write(spark, path, part, partition_by=table.partition_by)

    truth = tagged(spark_tables.frame(spark, table.whole), wanted)
    ours = DeltaTable(path)
    for i, predicate in enumerate(wanted):
        want = truth.filter(pc.field("filter") == i).drop_columns(["filter"])
        assert_same_rows(ours.to_pyarrow_table(filters=predicate), want)
