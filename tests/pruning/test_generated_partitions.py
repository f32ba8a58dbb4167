"""Files left out by partition columns that are generated from what a predicate looks at, and never wrongly."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta import DeltaTable, write_deltalake
from refdelta.expressions.evaluate import evaluate, value_of
from refdelta.expressions.expression import And, Column, Comparison, Convert, In, IsNull, Literal, Not, Or, to_sql
from refdelta.expressions.sql import parse_expression, parse_predicate
from refdelta.pruning.generated_partitions import Generated, implied
from refdelta.table.types import DATE, INTEGER, STRING, TIMESTAMP, TIMESTAMP_NTZ, StructField, StructType
from tiers import examples

INNER = StructType((StructField("at", TIMESTAMP),))
BASE = StructType(
    (
        StructField("at", TIMESTAMP),
        StructField("ntz", TIMESTAMP_NTZ),
        StructField("d", DATE),
        StructField("s", STRING),
        StructField("i", INTEGER),
        StructField("in", INNER),
    )
)


def generated(*expressions):
    found = [(f"p{n}", parse_expression(sql, BASE)) for n, sql in enumerate(expressions)]
    return [Generated(Column((name,), value.type), value) for name, value in found]


def derived(sql, *expressions):
    schema = StructType((*BASE, *(StructField(one.column.path[0], one.column.type) for one in generated(*expressions))))
    found = implied(parse_predicate(sql, schema), generated(*expressions))
    return None if found is None else to_sql(found)


@pytest.mark.parametrize(
    ("sql", "expression", "says"),
    [
        ("ntz < TIMESTAMP_NTZ '2024-02-03 04:00:00'", "cast(ntz as date)", "(p0 <= DATE '2024-02-03') OR (p0 IS NULL)"),
        ("d = DATE '2024-02-03'", "year(d)", "p0 = 2024"),
        ("d = DATE '2024-02-03'", "month(d)", "p0 = 2"),
        ("d > DATE '2024-02-03'", "month(d)", None),
        ("d in (DATE '2024-02-03', DATE '2025-01-01', null)", "year(d)", "(p0 = 2024) OR (p0 = 2025)"),
        ("d is null", "year(d)", "p0 IS NULL"),
        ("d is not null", "year(d)", None),
        ("d <> DATE '2024-02-03'", "year(d)", None),
        ("not (d > DATE '2024-02-03')", "trunc(d, 'MM')", "(p0 <= DATE '2024-02-01') OR (p0 IS NULL)"),
        ("s = 'abcd'", "substring(s, 1, 2)", "p0 = 'ab'"),
        ("s = ''", "substring(s, 1, 2)", "p0 IS NULL"),
        ("'abcd' <= s", "substring(s, 1, 2)", "(p0 >= 'ab') OR (p0 IS NULL)"),
        ("s > 'abcd'", "substring(s, 2, 2)", None),
        ("s = 'abcd'", "substring(s, 2, 2)", "p0 = 'bc'"),
        ("s is null", "coalesce(s, 'none')", "p0 = 'none'"),
        ("i = 17", "i % 10", "p0 = 7"),
        ("i = 1 or s = 'x'", "i", None),
        ("i = 1 and s = 'x'", "i", "p0 = 1"),
        ("i = 0", "10 div i", None),
        # The writer's time zone is not known.
        (
            "at >= TIMESTAMP '2024-02-03 04:00:00'",
            "date_format(at, 'yyyy-MM-dd')",
            "(p0 >= '2024-02-02') OR (p0 IS NULL) OR (p0 < '0')",
        ),
        ("at = TIMESTAMP '2024-02-03 04:00:00'", "hour(at)", None),
        ("at is null", "hour(at)", "p0 IS NULL"),
        ("cast(at as date) <= DATE '2024-02-03'", "year(at)", "(p0 <= 2024) OR (p0 IS NULL)"),
        ("in.at <= TIMESTAMP '2024-02-03'", "year(in.at)", "(p0 <= 2024) OR (p0 IS NULL)"),
        ("at = TIMESTAMP '2024-02-03'", "date_format(at, 'MM-yyyy')", None),
        ("at < TIMESTAMP '2024-02-03'", "date_format(at, 'yyyy M d')", None),
    ],
)
def test_what_a_predicate_says(sql, expression, says):
    assert derived(sql, expression) == says


def test_parts_of_a_date_are_looked_at_together():
    assert derived("d >= DATE '2024-02-03'", "year(d)", "month(d)") == (
        "((p0 >= 2024) OR (p0 IS NULL)) AND "
        "((p0 > 2024) OR ((p0 = 2024) AND ((p1 >= 2) OR (p1 IS NULL))) OR (p0 IS NULL))"
    )


# --- never wrongly -----------------------------------------------------------------------------------------------

EXPRESSIONS = {
    "at": [
        "cast(at as date)",
        "year(at)",
        "month(at)",
        "day(at)",
        "hour(at)",
        "at",
        "date_format(at, 'yyyy-MM')",
        "date_format(at, 'yyyy-MM-dd-HH')",
        "date_format(at, 'dd.MM')",
        "date_trunc('week', at)",
        "date_trunc('hour', at)",
        "trunc(at, 'quarter')",
        "unix_seconds(at)",
        "cast(at as string)",
    ],
    "ntz": ["cast(ntz as date)", "year(ntz)", "hour(ntz)", "date_format(ntz, 'yyyy-MM-dd')", "date_trunc('day', ntz)"],
    "d": ["d", "year(d)", "month(d)", "day(d)", "date_format(d, 'yyyy-MM')", "trunc(d, 'MM')", "date_add(d, 5)"],
    "s": ["s", "substring(s, 1, 2)", "substring(s, 0, 1)", "substring(s, 2, 2)", "substring(s, 2)", "left(s, 1)"],
    "i": ["i", "i % 10", "cast(i as string)", "coalesce(i, 0)", "i > 3"],
}
HOUR = 3_600_000_000
# Some are close to others, some before 1970, some beyond the years of four digits.
ODD_DAYS = [-719_163, -719_162, -1, 0, 1, 30, 31, 365, 19_000, 2_932_896, 2_932_897]
DAYS = st.sampled_from(ODD_DAYS) | st.integers(-800, 800)
TIMES = st.builds(lambda day, rest: day * 24 * HOUR + rest, DAYS, st.integers(0, 24 * HOUR - 1))
WORDS = st.sampled_from(["ab", "ba", "aab", "abb", "b"]) | st.text(st.sampled_from("ab\x01é😀"), max_size=4)
VALUES = {"at": TIMES, "ntz": TIMES, "d": DAYS, "s": WORDS, "i": st.integers(-20, 20)}
KINDS = {item.name: item.type for item in BASE}
OPS = st.sampled_from(["=", "<", "<=", ">", ">=", "<=>", "<>"])


@st.composite
def conditions(draw, name, values):
    column, kind = Column((name,), KINDS[name]), KINDS[name]
    known = [value for value in values if value is not None]
    constant = st.sampled_from(known) | VALUES[name] if known else VALUES[name]
    form = draw(st.sampled_from(["compare", "compare", "compare", "in", "null", "not", "and", "or", "cast"]))
    if form == "in":
        return In(column, tuple(Literal(draw(constant), kind) for _ in range(draw(st.sampled_from([1, 2, 60])))))
    if form == "null":
        return draw(st.sampled_from([IsNull(column), Not(IsNull(column))]))
    if form == "not":
        return Not(draw(conditions(name, values)))
    if form in ("and", "or"):
        return (And if form == "and" else Or)((draw(conditions(name, values)), draw(conditions(name, values))))
    if form == "cast" and kind in (TIMESTAMP, TIMESTAMP_NTZ):
        return Comparison(draw(OPS), Convert(column, DATE), Literal(draw(constant) // (24 * HOUR), DATE))
    return Comparison(draw(OPS), column, Literal(draw(constant), kind))


@st.composite
def tables(draw):
    name = draw(st.sampled_from(list(EXPRESSIONS)))
    values = draw(st.lists(st.none() | VALUES[name], min_size=1, max_size=6))
    chosen = draw(st.lists(st.sampled_from(EXPRESSIONS[name]), min_size=1, max_size=4, unique=True))
    offsets = [draw(st.sampled_from([0, 0, -18, 18, 17, -11])) * HOUR for _ in values]
    return name, values, chosen, offsets, draw(conditions(name, values))


def written(one, name, value, offset):
    """What a writer stored that was so far from UTC."""
    zoned = KINDS[name] == TIMESTAMP
    found = value_of(one.value, {name: value + offset if zoned and value is not None else value})
    if found is not None and one.column.type == TIMESTAMP and zoned and offset // HOUR % 2:
        found -= offset
    return None if found == "" else found


@pytest.mark.tier("test")
@given(tables())
@examples(500)
def test_what_is_implied_holds(made):
    name, values, chosen, offsets, predicate = made
    found = generated(*chosen)
    says = implied(predicate, found)
    if says is None:
        return
    for value, offset in zip(values, offsets, strict=True):
        if evaluate(predicate, {name: value}) is True:
            row = {one.column.path[0]: written(one, name, value, offset) for one in found}
            assert evaluate(says, row) is True, (value, row, to_sql(says))


# --- tables ------------------------------------------------------------------------------------------------------


def table_of(path, rows):
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("s", pa.string())])
    fields = [pa.field("day", pa.date32()), pa.field("month", pa.string()), pa.field("first", pa.string())]
    made = {"day": "cast(at as date)", "month": "date_format(at, 'yyyy-MM')", "first": "substring(s, 1, 1)"}
    whole = pa.schema([*schema, *fields])
    DeltaTable.create(path, whole, partition_by=list(made), generated=made)
    write_deltalake(path, pa.Table.from_pylist(rows, schema), mode="append")
    return DeltaTable(path)


UTC = dt.UTC
ROWS = [
    {"id": 1, "at": dt.datetime(2024, 1, 1, tzinfo=UTC), "s": "apple"},
    {"id": 2, "at": dt.datetime(2024, 1, 31, 23, 59, 59, 999_999, tzinfo=UTC), "s": "avocado"},
    {"id": 3, "at": dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), "s": ""},
    {"id": 4, "at": None, "s": None},
    {"id": 5, "at": dt.datetime(2024, 6, 1, 12, tzinfo=UTC), "s": "banana"},
]


def test_files_are_left_out_and_the_scan_says_so(tmp_path):
    table = table_of(tmp_path / "t", ROWS)
    scan = table.scan(["id"], "at >= TIMESTAMP '2024-05-01 00:00:00'")
    assert scan.to_table()["id"].to_pylist() == [5]
    found = scan.explain()
    # The file without a day might hold what the day does not tell; its statistics say that it does not.
    assert (found.files, found.files_read, found.pruned_by_partition, found.pruned_by_stats) == (5, 1, 3, 1)
    assert "day >= DATE '2024-04-30'" in found.derived
    assert found.derived in str(found)
    assert table.scan(["id"], "s = 'apple'").explain().pruned_by_partition == 3
    assert table.scan(["id"], "id = 1").explain().derived is None
    assert table.scan(["id"], "day = DATE '2024-01-01'").explain().derived is None


@pytest.mark.sample(check=4)
@pytest.mark.parametrize(
    "sql",
    [
        "at < TIMESTAMP '1970-01-01 00:00:00'",
        "at <= TIMESTAMP '2024-01-31 23:59:59.999999'",
        "at > TIMESTAMP '2024-01-31 23:59:59.999998' and s like 'a%'",
        "at is null",
        "at is null or s >= 'av'",
        "s = ''",
        "s < 'b'",
        "not (s >= 'apple')",
        "cast(at as date) = DATE '2024-01-31'",
        "at in (TIMESTAMP '2024-01-01 00:00:00', TIMESTAMP '2024-06-01 12:00:00')",
    ],
)
def test_no_row_is_lost(tmp_path, sql):
    table = table_of(tmp_path / "t", ROWS)
    found = sorted(table.scan(["id"], sql).to_table()["id"].to_pylist())
    write_deltalake(tmp_path / "plain", table.to_pyarrow_table())
    assert found == sorted(DeltaTable(tmp_path / "plain").scan(["id"], sql).to_table()["id"].to_pylist())


def test_statements_leave_them_out_too(tmp_path):
    table = table_of(tmp_path / "t", ROWS)
    assert table.update({"s": "'changed'"}, predicate="at = TIMESTAMP '2024-06-01 12:00:00'")["num_updated_rows"] == 1
    assert table.delete("at < TIMESTAMP '1970-01-01 00:00:00'")["num_deleted_rows"] == 1
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [1, 2, 4, 5]


def test_the_change_feed_goes_by_no_expression(tmp_path):
    """Files of older versions may not have been made by it."""
    path = tmp_path / "t"
    plain = pa.schema([("id", pa.int64()), ("d", pa.date32()), ("y", pa.int32())])
    feed = {"delta.enableChangeDataFeed": "true"}
    DeltaTable.create(path, plain, partition_by=["y"], configuration=feed)
    write_deltalake(path, pa.table({"id": [1], "d": [dt.date(2024, 1, 1)], "y": [7]}, plain), mode="append")
    DeltaTable.create(path, plain, partition_by=["y"], configuration=feed, generated={"y": "year(d)"}, mode="overwrite")
    write_deltalake(path, pa.table({"id": [2], "d": [dt.date(2024, 1, 1)]}), mode="append")
    changes = DeltaTable(path).load_cdf(1, predicate="d = DATE '2024-01-01'").read_all().to_pylist()
    assert {(row["id"], row["y"], row["_change_type"]) for row in changes} >= {(1, 7, "insert"), (2, 2024, "insert")}


def test_merge_leaves_them_out_too(tmp_path):
    table = table_of(tmp_path / "t", ROWS)
    source = pa.table({"id": [5], "s": ["merged"]})
    on = "t.id = s.id and t.at > TIMESTAMP '2024-05-01 00:00:00'"
    table.merge(source, on, source_alias="s", target_alias="t").when_matched_update({"s": "s.s"}).execute()
    found = {row["id"]: (row["s"], row["first"]) for row in table.to_pyarrow_table().to_pylist()}
    assert found[5] == ("merged", "m")
    assert found[1] == ("apple", "a")
