"""Expressions reach the columns of the table and nothing else, and their depth, length and output are bounded."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from handmade import Handmade, field, struct
from refdelta import DeltaTable, write_deltalake
from refdelta.errors import DeltaError, PredicateError
from refdelta.expressions import like, sql_dialect, sql_reader
from refdelta.expressions.evaluate import evaluate
from refdelta.expressions.expression import Literal
from refdelta.expressions.functions import FUNCTIONS
from refdelta.expressions.like import like_matches
from refdelta.expressions.sql import parse_expression, parse_predicate
from refdelta.table.types import BOOLEAN, LONG, STRING, StructField, StructType
from refdelta_storage import LocalStore

TABLE = StructType((StructField("a", LONG), StructField("s", STRING), StructField("b", BOOLEAN)))

OUTSIDE = [
    # other tables, and files as tables
    "a = (SELECT 1)",
    "a IN (SELECT a FROM t)",
    "EXISTS (SELECT 1)",
    "a = ANY (SELECT 1)",
    "a BETWEEN 1 AND (SELECT 2)",
    "s LIKE (SELECT 'x')",
    "-(SELECT 1) = 1",
    "coalesce((SELECT 1), a) = 1",
    "CASE WHEN EXISTS (SELECT 1) THEN true END",
    "cast((SELECT 1) AS bigint) = 1",
    "SELECT 1",
    "VALUES (1)",
    "TABLE t",
    "WITH x AS (SELECT 1) SELECT 1",
    "a = 1 UNION SELECT 1",
    "a = t.a",
    "a = other.db.t.a",
    "a = delta.`/tmp/x`.a",
    "s = parquet.`/elsewhere/f`",
    "s = `/elsewhere/f`",
    # more than one statement
    "a = 1; DROP TABLE t",
    "a = 1); DELETE FROM t; --",
    "a = 1 INTO OUTFILE '/tmp/x'",
    "CALL f()",
    # files, the network, the process, the session
    "s = read_text('/elsewhere/f')",
    "s = load_file('/elsewhere/f')",
    "s = input_file_name()",
    "s = getenv('HOME')",
    "s = ${env:HOME}",
    "s = ${HOME}",
    "s = @@version",
    "s = :p",
    "a = ?",
    "s = {{ x }}",
    "java_method('java.lang.Math', 'abs', 1) = 1",
    "reflect('java.util.UUID', 'randomUUID') = s",
    "s = current_user()",
    "s = CURRENT_USER",
    "s = SESSION_USER",
    "s = current_database()",
    "s = version()",
    "s = uuid()",
    "a = rand()",
    "raise_error('x')",
    "assert_true(false)",
    "sleep(0) = 1",
    # what could make much out of little
    "s = repeat('x', 40000)",
    "s = space(40000)",
    "s = lpad(s, 40000, 'x')",
    "s = rpad(s, 40000, 'x')",
    "size(sequence(1, 3)) = 1",
    "transform(array(1), x -> x) = array(1)",
    "count(*) > 1",
    "a OVER () = 1",
]


@pytest.mark.parametrize("sql", OUTSIDE)
def test_an_expression_reaches_columns_only(sql):
    with pytest.raises(DeltaError):
        parse_predicate(sql, TABLE)
    with pytest.raises(DeltaError):
        parse_expression(f"CASE WHEN {sql} THEN 1 END", TABLE)


def test_every_function_is_one_of_those_that_are_listed():
    """Whoever adds one looks at this list: none may touch anything but its arguments, or make much out of little."""
    listed = (
        "+ - * / % div abs round floor ceil greatest least coalesce concat upper lower trim ltrim rtrim "
        "length substring left right replace lpad rpad startswith endswith contains year quarter month day "
        "dayofweek weekday dayofyear weekofyear last_day hour minute second date_add date_sub add_months "
        "datediff date_format from_unixtime unix_micros unix_millis unix_seconds timestamp_micros "
        "timestamp_millis trunc date_trunc reverse sqrt cbrt exp expm1 ln log log2 log10 log1p power sin cos "
        "tan cot sec csc asin acos atan atan2 sinh cosh tanh degrees radians hypot rint sign nanvl bround "
        "pmod factorial & | ^ ~ shiftleft shiftright shiftrightunsigned bit_count bit_get bin hex unhex "
        "try_add try_subtract try_multiply try_divide try_mod initcap repeat space translate instr locate "
        "substring_index split_part overlay find_in_set concat_ws elt btrim ltrimmed rtrimmed soundex "
        "levenshtein luhn_check ascii chr octet_length bit_length base64 unbase64 encode decode md5 sha1 sha2 "
        "crc32 rlike regexp_extract regexp_extract_all regexp_replace regexp_substr regexp_count regexp_instr "
        "split yearofweek dayofweek_iso seconds dayname monthname next_day months_between unix_date "
        "date_from_unix_date timestamp_seconds make_date make_timestamp make_timestamp_ntz to_date "
        "try_to_date to_timestamp try_to_timestamp to_unix_timestamp make_dt_interval make_ym_interval moved "
        "moved_back apart interval_plus interval_minus interval_times array map named_struct field [] "
        "element_at try_element_at get size array_contains array_position array_remove array_distinct "
        "array_min array_max sort_array array_sort array_compact array_join arrays_overlap slice flatten "
        "array_concat array_reverse map_keys map_values map_contains_key"
    )
    assert sorted(name.replace(" ", "_") for name in FUNCTIONS) == sorted(listed.split())


@pytest.mark.parametrize(
    "sql", ["s = '/elsewhere/f'", "s = 'file:///elsewhere/f'", "s = '$HOME'", "s = '; DROP TABLE t'"]
)
def test_what_is_in_quotes_is_text(sql):
    right = parse_predicate(sql, TABLE).right
    assert isinstance(right, Literal)
    assert right.value == sql[5:-1]


# --- depth and length --------------------------------------------------------------------------------------------

NESTED = {
    "parentheses": ("({})", "a = 1"),
    "not": ("NOT {}", "b"),
    "minus": ("- {}", "a"),
    "sum": ("{} + a", "a"),
    "strings": ("{} || s", "s"),
    "case": ("CASE WHEN b THEN a ELSE {} END", "1"),
    "calls": ("coalesce(a, {})", "1"),
    "casts": ("cast({} AS bigint)", "a"),
    "or": ("({} AND b) OR b", "b"),
    "is null": ("({} IS NULL)", "a"),
    "equal": ("({} = b)", "b"),
}
"""By name a form that takes an operand, and the innermost one."""


def nested(form, levels, text):
    for _ in range(levels):
        text = form.format(text)
    return text


@pytest.fixture
def unparsed(monkeypatch):
    """The parser is not called."""

    def parser(self, **options):
        raise AssertionError("the text was handed on")

    monkeypatch.setattr(sql_dialect.Dialect, "parser", parser)


@pytest.mark.parametrize("name", sorted(NESTED.keys() - {"parentheses"}))
def test_deep_nesting_is_refused_in_one_line(name, monkeypatch):
    form, core = NESTED[name]
    monkeypatch.setattr(sql_reader, "MOST_LEVELS", 8)
    parse_expression(nested(form, 3, core), TABLE)
    with pytest.raises(PredicateError, match="nests too deeply") as caught:
        parse_expression(nested(form, 9, core), TABLE)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("name", NESTED)
def test_a_parser_whose_stack_ends_refuses_the_text(name, monkeypatch):
    def parser(self, **options):
        raise RecursionError

    text = nested(NESTED[name][0], 2, NESTED[name][1])
    parse_expression(text, TABLE)
    monkeypatch.setattr(sql_dialect.Dialect, "parser", parser)
    with pytest.raises(PredicateError, match="nests too deeply"):
        parse_expression(text, TABLE)


def test_a_tree_whose_walk_ends_the_stack_is_refused(monkeypatch):
    def bind_value(tree, scope):
        raise RecursionError

    monkeypatch.setattr(sql_reader, "bind_value", bind_value)
    with pytest.raises(PredicateError, match="nests too deeply"):
        parse_expression("a + 1", TABLE)


@pytest.mark.parametrize(
    "form",
    [
        "nullif({}, 1)",
        "(({}) BETWEEN false AND true)",
        "CASE {} WHEN 1 THEN 2 WHEN 3 THEN 4 END",
        "(({}) IN (a, a, a))",
    ],
)
def test_operands_that_are_used_twice_at_each_level_are_refused(form, monkeypatch):
    assert sql_reader.MOST_REPEATED == 20_000
    schema = StructType((StructField("a", BOOLEAN if "false" in form or "IN" in form else LONG),))
    monkeypatch.setattr(sql_reader, "MOST_REPEATED", 20)
    parse_expression(nested(form, 1, "a"), schema)
    with pytest.raises(PredicateError, match="nested in each other too deeply"):
        parse_expression(nested(form, 5, "a"), schema)


@pytest.mark.parametrize(
    "form", ["int({})", "array[{}]", "cast(bigint({}) AS int)", "char(1, {})", "date({})", "map[{}]"]
)
def test_names_of_types_in_each_other_are_refused_before_they_are_parsed(form, monkeypatch, unparsed):
    assert sql_dialect.MOST_TYPES == 8
    monkeypatch.setattr(sql_dialect, "MOST_TYPES", 2)
    with pytest.raises(PredicateError, match="nests too deeply"):
        parse_predicate(f"{nested(form, 3, 'a')} = 1", TABLE)


def test_types_beside_each_other_are_parsed(monkeypatch):
    monkeypatch.setattr(sql_dialect, "MOST_TYPES", 2)
    parse_predicate("int(int(a)) = int(int(a)) AND double(a) > int(date(current_timestamp()) = current_date())", TABLE)


def test_some_types_in_each_other_and_many_beside_each_other_are_taken():
    schema = StructType((StructField("a", LONG),))
    text = " AND ".join(f"int(double(cast(a AS decimal(10, 2)))) <> {n}" for n in range(30))
    assert evaluate(parse_predicate(text, schema), {"a": 99}) is True
    dates = StructType((StructField("date", LONG),))
    text = " AND ".join(f"(date < {n} OR date > (3))" for n in range(30))
    assert evaluate(parse_predicate(text, dates), {"date": 99}) is True


def test_operands_that_are_used_twice_a_few_times_are_taken():
    text = "a"
    for _ in range(5):
        text = f"nullif({text}, 1)"
    schema = StructType((StructField("a", LONG),))
    assert evaluate(parse_predicate(f"{text} = 3", schema), {"a": 3}) is True
    many = " OR ".join(f"a BETWEEN {low} AND {low + 5}" for low in range(0, 3000, 10))
    assert evaluate(parse_predicate(many, schema), {"a": 1234}) is True


@pytest.mark.parametrize("digits", [3, 40])
def test_a_decimal_of_too_many_digits_is_refused(digits):
    with pytest.raises(PredicateError, match=r"decimal.* is not supported here"):
        parse_predicate(f"a = CAST(a AS decimal({'9' * digits}))", TABLE)


@pytest.mark.sample(check=2)
@pytest.mark.parametrize(
    "sql",
    [
        "a <> " + "+".join(["a"] * 140),
        "NOT " * 80 + "b",
        "s <> " + "||".join(["s"] * 60),
        "(" * 30 + "b" + " IS NULL)" * 30,
    ],
    ids=["sum", "not", "strings", "is null"],
)
def test_what_is_read_can_be_used(sql, tmp_path):
    """No tree gets through that a later step, which takes more frames for a level, could not walk."""
    write_deltalake(
        tmp_path,
        pa.table({"a": [1, 2, 3], "s": ["x", "y", "z"], "b": [True, False, None], "p": ["x", "y", "z"]}),
        partition_by=["p"],
    )
    table = DeltaTable(tmp_path)
    rows = table.to_pyarrow_table(filters=sql).num_rows
    assert table.scan(predicate=sql).explain() is not None
    assert table.scan(predicate=f"p <> 'q' AND ({sql})").to_table().num_rows == rows
    table.delete(sql)
    assert table.count() == 3 - rows
    table.history()


@pytest.mark.tier("test")
def test_long_lists_and_chains_are_one_node():
    items = parse_predicate(f"a IN ({', '.join(map(str, range(5_000)))})", TABLE).items
    assert len(items) == 5_000
    assert len(parse_predicate("a IN (1, 1, 2, 1)", TABLE).items) == 2
    for word in ("OR", "AND"):
        chain = f" {word} ".join(f"a <> {i}" for i in range(300))
        assert len(parse_predicate(chain, TABLE).children) == 300


def test_a_text_that_is_too_long_is_not_parsed(monkeypatch, unparsed):
    monkeypatch.setattr(sql_dialect, "MOST_CHARACTERS", 20)
    monkeypatch.setattr(sql_dialect.Dialect, "tokenize", sql_dialect.Dialect.parser)
    with pytest.raises(PredicateError, match="21 characters; at most 20"):
        parse_predicate("s = 'xxxxxxxxxxxxxxx'", TABLE)


def test_patterns_do_not_go_back(monkeypatch):
    """Strings of a fixed length are given to Python's regular expressions."""
    compiled = []

    def compile_(text, own=re.compile):
        compiled.append(text)
        return own(text)

    monkeypatch.setattr(like.re, "compile", compile_)
    assert not like_matches("xaxaxaxb", "%xa%xa%xa%c", "\\")
    assert like_matches("xaxaxaxb", "%xa%xa_%b", "\\")
    assert not like_matches("xaxaxaxb", "%xa_xa_xa_%b%", "\\")
    assert compiled
    assert not {*"*+{"} & {*"".join(compiled)}


@pytest.mark.parametrize("sql", ["(a > 0", "java_method('java.lang.Math', 'abs', 1) = 1"])
def test_a_constraint_that_is_no_condition_is_not_run(sql, tmp_path):
    Handmade(
        struct(field("a", "long")),
        store=LocalStore(tmp_path),
        protocol={"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}},
        configuration={"delta.constraints.x": sql},
    )
    with pytest.raises(DeltaError):
        write_deltalake(tmp_path, pa.table({"a": [1]}), mode="append")
    assert DeltaTable(tmp_path).version() == 0
