"""Predicates from SQL and from lists: what they mean, and that nothing gets through that is not known.

Tests of expressions.binding, expressions.sql_dialect, expressions.sql_reader, expressions.sql_text.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from predicate_strategies import PREDICATES, SCHEMA
from refdelta.errors import ColumnNotFoundError, PredicateError
from refdelta.expressions.binding import bind
from refdelta.expressions.expression import to_sql
from refdelta.expressions.sql import from_filters, parse_predicate
from refdelta.expressions.sql_dialect import Dialect, unescaped
from refdelta.table.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DecimalType,
    StructField,
    StructType,
)
from tiers import examples

INNER = StructType((StructField("In Ner", StructType((StructField("z", LONG),))),))
TABLE = StructType(
    tuple(
        StructField(name, kind)
        for name, kind in {
            "a": INTEGER,
            "b": STRING,
            "d": DATE,
            "ts": TIMESTAMP,
            "n": TIMESTAMP_NTZ,
            "x": DOUBLE,
            "f": FLOAT,
            "dec": DecimalType(10, 2),
            "l": LONG,
            "bin": BINARY,
            "bo": BOOLEAN,
            "v": VOID,
            "arr": ArrayType(LONG),
            "st": INNER,
            "o'dd `n": STRING,
            "x.y": LONG,
        }.items()
    )
)


@given(PREDICATES)
@examples(200)
def test_the_sql_of_a_tree_is_read_back_as_the_same_tree(predicate):
    bound = bind(predicate, SCHEMA)
    assert to_sql(parse_predicate(to_sql(bound), SCHEMA)) == to_sql(bound)


@pytest.mark.parametrize(
    ("sql", "meaning"),
    [
        ("A = 1", "a = 1"),
        ("a == 1", "a = 1"),
        ("a != 1", "a <> 1"),
        ("a = '5'", "a = 5"),
        ("a = 2.0", "a = 2"),
        ("a < 1.5", "a < CAST('1.5' AS DECIMAL(11, 1))"),
        ("a = 3000000000", "a = 3000000000L"),
        ("a = '3000000000'", "a = 3000000000L"),
        ("l = -9223372036854775808", "l = -9223372036854775808L"),
        ("l = -9223372036854775808L", "l = -9223372036854775808L"),
        ("a = -(-1)", "a = 1"),
        ("a = tinyint '1'", "a = 1"),
        ("a between 1 and 2 and b = 'x'", "((a >= 1) AND (a <= 2)) AND (b = 'x')"),
        ("not a = 1", "NOT (a = 1)"),
        ("a = 1 or b = 'x' or bo and l = 1", "(a = 1) OR (b = 'x') OR ((bo = TRUE) AND (l = 1L))"),
        ("a in (1, '2', null, 3L)", "a IN (1, 2, NULL, 3)"),
        ("a not in (1)", "NOT (a IN (1))"),
        ("a <=> null", "a IS NULL"),
        ("a = null", "NULL"),
        ("null is null", "TRUE"),
        ("a is not distinct from 1", "a <=> 1"),
        ("a is distinct from 1", "NOT (a <=> 1)"),
        ("1 = 1", "TRUE"),
        ("'1' = 1", "TRUE"),
        ("b = 'it''s'", "b = 'it\\'s'"),
        ("b = 'it\\'s'", "b = 'it\\'s'"),
        ('b = "y"', "b = 'y'"),
        ("b = 'x' 'y'", "b = 'xy'"),
        ("b = r'a\\b'", "b = 'a\\\\b'"),
        ("b = '\\u00e4'", "b = '\u00e4'"),
        ("b like 'a\\_%'", "b LIKE 'a\\\\_%'"),
        ("b not like 'x/%%' escape '/'", "NOT (b LIKE 'x/%%' ESCAPE '/')"),
        ("d = '2020'", "d = DATE '2020-01-01'"),
        ("d >= '2020-01-02 10:00:00'", "d >= DATE '2020-01-02'"),
        ("d < TIMESTAMP '2020-01-01 01:00:00+01:00'", "d < TIMESTAMP '2020-01-01T00:00:00.000000Z'"),
        ("ts > '2020-01-01 00:00:00.5'", "ts > TIMESTAMP '2020-01-01T00:00:00.500000Z'"),
        ("ts = DATE '2020-01-01'", "ts = TIMESTAMP '2020-01-01T00:00:00.000000Z'"),
        ("n = TIMESTAMP_NTZ '2020-01-01'", "n = TIMESTAMP_NTZ '2020-01-01 00:00:00.000000'"),
        ("x = 1", "x = CAST('1.0' AS DOUBLE)"),
        ("x = 1e3", "x = CAST('1000.0' AS DOUBLE)"),
        ("x = 'nan'", "x = CAST('NaN' AS DOUBLE)"),
        ("f = 0.1", "f = CAST('0.1' AS DOUBLE)"),
        ("dec = 1.5", "dec = CAST('1.50' AS DECIMAL(10, 2))"),
        ("dec = 1.555", "dec = CAST('1.555' AS DECIMAL(11, 3))"),
        ("dec = '1.555'", "dec = CAST('1.555' AS DOUBLE)"),
        ("f = '0.1'", "f = CAST('0.1' AS DOUBLE)"),
        ("dec = 1e0", "dec = CAST('1.0' AS DOUBLE)"),
        ("bin = X'1f'", "bin = X'1F'"),
        ("bin = X'f'", "bin = X'0F'"),
        ("bo", "bo = TRUE"),
        ("bo is not true", "NOT (bo <=> TRUE)"),
        ("v = 1", "NULL"),
        ("v <=> 1", "FALSE"),
        ("v <=> a", "a IS NULL"),
        ("arr is null", "arr IS NULL"),
        ("ST.`in ner`.Z = 1", "st.`In Ner`.z = 1L"),
        ("`o'dd ``n` = '1'", "`o'dd ``n` = '1'"),
        ("`x.y` = 1", "`x.y` = 1L"),
        ("cast('1' as int) = a", "1 = a"),
        ("cast(1 as decimal(5, 2)) = dec", "CAST('1.00' AS DECIMAL(10, 2)) = dec"),
        ("d = cast('2020-01-01' as date)", "d = DATE '2020-01-01'"),
        ("a = l", "a = l"),
        ("/* c */ a = 1 -- d", "a = 1"),
    ],
)
def test_what_sql_means(sql, meaning):
    assert to_sql(parse_predicate(sql, TABLE)) == meaning


@pytest.mark.sample(check=30)
@pytest.mark.parametrize(
    ("sql", "complaint"),
    [
        ("", "cannot be parsed"),
        ('"A" <> 1', "write `A` for the column, or single quotes for a string"),
        ("b rlike '(?=x)'", "a lookahead"),
        ("b rlike '(x)\\\\1'", "a backreference"),
        ("l & 1 | 2 = 1", "a mix of bitwise operators"),
        ("a =", "cannot be parsed at line 1, column 3"),
        ("a = 1 b", "cannot be parsed at line 1, column 7 near 'b'"),
        ("a = 1; delete", "not supported"),
        ("'", "is not SQL"),
        ("select 1", "cannot be parsed"),
        ("mystery(b) = 'X'", r"the function \(MYSTERY\(b\)\)"),
        ("d = rand()", r"the function \(RAND\(\)\) .* at character 5"),
        ("a in (select 1)", "IN with a subquery .*read first, in the same transaction"),
        ("exists(select 1)", "a subquery .*read first, in the same transaction"),
        ("a = (select max(a) from t)", "a subquery .*read first, in the same transaction"),
        ("b like a", "LIKE with anything but"),
        ("b like 'x\\\\\\\\y\\\\z'", "escapes only"),
        ("b like 'x' escape 'ab'", "ESCAPE takes one character"),
        ("a like '1'", "LIKE needs a string"),
        ("a = :p", "a parameter"),
        ("a = ?", "a parameter"),
        ("cast(x as string) = '1'", r"cannot cast x \(double\) to string"),
        ("cast(a as timestamp) = ts", r"cannot cast a \(integer\) to timestamp"),
        ("trunc(d, b) = d", "takes one of year, quarter, month, week as a constant, not b"),
        ("substring(b, a) = 'x'", "takes constants after its first argument"),
        ("upper(b, b) = 'x'", "upper takes 1 argument, not 2"),
        ("bo + 1 = 2", r"\+ takes numbers"),
        ("d + ts = d", "not supported"),
        ("case when bo then d else a end = d", "no type in common"),
        ("a = if(bo, 1)", "IF without a third argument|cannot be parsed"),
        ("l % x = 1", "the remainder of floats"),
        ("length(arr) = 1", "arr is array"),
        ("coalesce(st, st) is null", "only plain types"),
        ("cast('x' as int) = a", "cannot cast 'x' to integer"),
        ("cast(300 as tinyint) = a", "cannot cast 300 to byte"),
        ("cast('1' as array<int>) is null", "the type"),
        ("cast(1 as decimal(40, 2)) = dec", "not supported"),
        ("1", "a constant as a condition"),
        ("'x'", "a constant as a condition"),
        ("a between symmetric 2 and 1", "SYMMETRIC"),
        ("x = 1e400", "beyond the range of a double"),
        ("a", r"column a \(integer\) and TRUE \(boolean\) cannot be compared"),
        ("a = 'x'", "cannot cast 'x' to long"),
        ("a = d", r"column a \(integer\) and column d \(date\) cannot be compared"),
        ("b = interval 1 day", r"column b \(string\) and INTERVAL '1' DAY \(interval day\) cannot be compared"),
        ("b in ('x', 1)", "cannot cast 'x' to long"),
        ("d = 5", "cannot be compared"),
        ("d = '2020-02-30'", "cannot cast '2020-02-30' to date"),
        ("n = '2020-01-01 00:00:00+01:00'", "without time zone"),
        ("arr = 1", "only IS NULL can be asked"),
        ("st = 1", "only IS NULL can be asked"),
        ("a.x = 1", "has no field 'x'"),
        ("dec = " + "9" * 39, "more than 38 digits"),
        ("bin = X'zz'", "."),
    ],
)
def test_what_is_not_known_is_refused_with_its_name(sql, complaint):
    with pytest.raises(PredicateError, match=complaint):
        parse_predicate(sql, TABLE)


@pytest.mark.parametrize("sql", ["zzz = 1", "st.q = 1", "t.a = 1", "st.`In Ner`.y = 1"])
def test_unknown_columns(sql):
    with pytest.raises(ColumnNotFoundError):
        parse_predicate(sql, TABLE)


@pytest.mark.tier("test")
def test_a_long_chain_is_no_deep_tree():
    predicate = parse_predicate(" or ".join(f"a = {i}" for i in range(2_000)), TABLE)
    assert len(predicate.children) == 2_000


@pytest.mark.parametrize(
    ("filters", "meaning"),
    [
        ("a = 1", "a = 1"),
        ([("a", "=", 1), ("b", "!=", "x")], "(a = 1) AND (b <> 'x')"),
        ([[("a", "==", 1), ("b", ">=", "x")], [("l", "<", 5)]], "((a = 1) AND (b >= 'x')) OR (l < 5L)"),
        ([("a", "in", [1, 2, None])], "a IN (1, 2, NULL)"),
        ([("a", "not in", {3})], "NOT (a IN (3))"),
        ([("a", "in", [])], "FALSE"),
        ([("a", "is", None)], "a IS NULL"),
        ([("a", "=", None)], "a IS NULL"),
        ([("a", "!=", None)], "NOT (a IS NULL)"),
        ([("a", "=", "1")], "a = 1"),
        ([("st.In Ner.z", "=", 1)], "st.`In Ner`.z = 1L"),
        ([("x.y", "=", 1)], "`x.y` = 1L"),
        ([("d", ">", dt.date(2020, 1, 1))], "d > DATE '2020-01-01'"),
        (
            [("ts", ">", dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))))],
            "ts > TIMESTAMP '2019-12-31T23:00:00.000000Z'",
        ),
        ([("ts", ">", dt.datetime(2020, 1, 1))], "ts > TIMESTAMP '2020-01-01T00:00:00.000000Z'"),
        ([("n", ">", dt.datetime(2020, 1, 1))], "n > TIMESTAMP_NTZ '2020-01-01 00:00:00.000000'"),
        ([("dec", "=", Decimal("1.5"))], "dec = CAST('1.50' AS DECIMAL(10, 2))"),
        ([("x", "=", 1.5)], "x = CAST('1.5' AS DOUBLE)"),
        ([("bo", "=", True)], "bo = TRUE"),
        ([("bin", "=", b"a")], "bin = X'61'"),
        ([("a", "=", np.int64(3))], "a = 3"),
        ([("a", "=", pa.scalar(3))], "a = 3"),
        ([("l", "=", 2**70)], "l = CAST('1180591620717411303424' AS DECIMAL(22, 0))"),
    ],
)
def test_the_list_form(filters, meaning):
    assert to_sql(from_filters(filters, TABLE)) == meaning


@pytest.mark.parametrize(
    "filters",
    [
        [],
        [[]],
        ["a"],
        [("a", "=")],
        [("a", "~", 1)],
        [("a", "in", "xy")],
        [("a", "in", 3)],
        [(1, "=", 1)],
        [("a", "=", object())],
        [("a", "is", 1)],
        [("a", "=", "x")],
        [("a", "=", [1])],
        [("a", "<", dt.timedelta(1))],
        [("a", "=", 1), [("a", "=", 1)]],
    ],
)
def test_lists_that_make_no_sense_are_refused(filters):
    with pytest.raises(PredicateError):
        from_filters(filters, TABLE)


@pytest.mark.parametrize(
    ("quoted", "value"),
    [
        (r"'\u00e4'", "ä"),
        (r"'\\u00e4'", r"\u00e4"),
        (r"'\u12'", "u12"),
        (r"'\U0001F600'", "\U0001f600"),
        (r"'\U00110000'", "U00110000"),
        (r"'\uD83D\uDE00'", "\U0001f600"),
        (r"'\uD83D'", "?"),
        (r"'\101\001\08\201'", "A\x01\x008201"),
        (r"'\n\t\r\b\Z\a\x'", "\n\t\r\b\x1aax"),
        (r"'\%\_'", r"\%\_"),
        (r"'\'\"'''", "'\"'"),
        ('"a""b\'\'\\t"', "a\"b''\t"),
        ("'a\\\nb'", "a\nb"),
        ("'äa\\\\''b'", "äa\\'b"),
    ],
)
def test_strings_have_sparks_escapes_with_every_version_of_sqlglot(quoted, value):
    assert unescaped(quoted) == value
    for place in ("", "ö + ", "`a'b` + "):
        token = Dialect().tokenize(place + quoted)[-1]
        assert token.text == value


def test_strings_without_a_backslash_are_sqlglots():
    assert unescaped("'it''s'") is None


@pytest.mark.parametrize("sql", ["a = 1; b = 2", "a = 1;;", "; a = 1"])
def test_a_second_statement_is_never_left_out(sql):
    with pytest.raises(PredicateError, match="several statements are not supported"):
        parse_predicate(sql, TABLE)


def test_a_semicolon_may_end_a_predicate():
    assert to_sql(parse_predicate("b = ';' ; ", TABLE)) == "b = ';'"


@pytest.mark.parametrize("zero", ["0BD", "0bd", "00BD"])
def test_a_decimal_zero_is_read_with_every_version_of_sqlglot(zero):
    assert to_sql(parse_predicate(f"dec = {zero}", TABLE)) == to_sql(parse_predicate("dec = CAST(0 AS DECIMAL)", TABLE))
