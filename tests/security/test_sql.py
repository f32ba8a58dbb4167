"""Expressions reach the columns of the table and nothing else, and no text of theirs takes long or much."""

from __future__ import annotations

import pyarrow as pa
import pytest

from handmade import Handmade, field, struct
from refdelta import DeltaTable, write_deltalake
from refdelta.errors import DeltaError, PredicateError
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
    "s = parquet.`/etc/passwd`",
    "s = `/etc/passwd`",
    # more than one statement
    "a = 1; DROP TABLE t",
    "a = 1); DELETE FROM t; --",
    "a = 1 INTO OUTFILE '/tmp/x'",
    "CALL f()",
    # files, the network, the process, the session
    "s = read_text('/etc/passwd')",
    "s = load_file('/etc/passwd')",
    "s = input_file_name()",
    "s = getenv('HOME')",
    "s = ${env:HOME}",
    "s = ${HOME}",
    "s = @@version",
    "s = :p",
    "a = ?",
    "s = {{ x }}",
    "java_method('java.lang.Runtime', 'exit', 1) = 1",
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
    "sleep(5) = 1",
    # what makes much out of little
    "s = repeat('x', 1000000000)",
    "s = space(1000000000)",
    "s = lpad(s, 2147483647, 'x')",
    "s = rpad(s, 2147483647, 'x')",
    "size(sequence(1, 1000000000)) = 1",
    "s RLIKE '(a*)*$'",
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
    "sql", ["s = '/etc/passwd'", "s = 'file:///etc/passwd'", "s = '$HOME'", "s = '; DROP TABLE t'"]
)
def test_what_is_in_quotes_is_text(sql):
    right = parse_predicate(sql, TABLE).right
    assert isinstance(right, Literal)
    assert right.value == sql[5:-1]


# --- bombs -------------------------------------------------------------------------------------------------------

DEEP = {
    "parentheses": lambda n: "(" * n + "a = 1" + ")" * n,
    "parentheses left open": lambda n: "(" * n,
    "not": lambda n: "NOT " * n + "b",
    "minus": lambda n: "a = " + "- " * n + "a",
    "sum": lambda n: "a = " + "+".join(["a"] * n),
    "strings": lambda n: "s = " + "||".join(["s"] * n),
    "case": lambda n: "a = " + "CASE WHEN b THEN a ELSE " * n + "1" + " END" * n,
    "calls": lambda n: "a = " + "coalesce(a, " * n + "1" + ")" * n,
    "casts": lambda n: "a = " + "cast(" * n + "a" + " AS bigint)" * n,
    "mixed": lambda n: "(" * n + "a = 1" + " OR b) AND (b OR b" * 0 + " OR b)" * n,
    "is null": lambda n: "a" + " IS NULL" * n,
    "equal": lambda n: "b" + " = b" * n,
    "fields": lambda n: ".".join(["a"] * n) + " = 1",
    "elements": lambda n: "a = " + "a[" * n + "0" + "]" * n,
    "struct": lambda n: "a = cast(a AS " + "struct<a:" * n + "int" + ">" * n + ")",
    "array": lambda n: "a = cast(a AS " + "array<" * n + "int" + ">" * n + ")",
    "subqueries": lambda n: "a IN " + "(SELECT a FROM x WHERE a IN " * n + "(1)" + ")" * n,
    "between": lambda n: "a BETWEEN " * n + "1 AND 2",
    "comments": lambda n: "a = 1 " + "/*" * n + "*/" * n,
    "quote": lambda n: "s = '" + "x" * n,
    "digits": lambda n: "a = " + "9" * n,
    "exponent": lambda n: "a = 1e" + "9" * n,
}


@pytest.mark.parametrize(
    "form",
    [
        "nullif({}, 1)",
        "(({}) BETWEEN false AND true)",
        "CASE {} WHEN 1 THEN 2 WHEN 3 THEN 4 END",
        "(({}) IN (a, a, a))",
    ],
)
@pytest.mark.parametrize("levels", [20, 40])
def test_operands_that_are_used_twice_at_each_level_are_refused(form, levels):
    text = "a"
    for _ in range(levels):
        text = form.format(text)
    with pytest.raises(PredicateError, match=r"nested in each other|nests too deeply"):
        parse_predicate(f"{text} = 1", StructType((StructField("a", LONG),)))


@pytest.mark.parametrize(
    "form", ["int({})", "array[{}]", "cast(bigint({}) AS int)", "char(1, {})", "date({})", "map[{}]"]
)
@pytest.mark.parametrize("levels", [12, 40])
def test_names_of_types_in_each_other_are_refused_before_they_are_parsed(form, levels):
    text = "a"
    for _ in range(levels):
        text = form.format(text)
    with pytest.raises(PredicateError, match="nests too deeply"):
        parse_predicate(f"{text} = 1", StructType((StructField("a", LONG),)))


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


@pytest.mark.parametrize("digits", [10, 5_000])
def test_a_decimal_of_thousands_of_digits_is_refused(digits):
    with pytest.raises(PredicateError, match=r"decimal.* is not supported here"):
        parse_predicate(f"a = CAST(a AS decimal({'9' * digits}))", TABLE)


@pytest.mark.sample(check=4, test=16)
@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize("n", [100, 10_000])
def test_deep_nesting_is_refused_in_one_line(name, n):
    found = None
    try:
        parse_predicate(DEEP[name](n), TABLE)
    except DeltaError as error:
        found = str(error)
    assert n == 100 if found is None else len(found) < 1000 and "recursion" not in found


@pytest.mark.tier("test")
def test_deep_nesting_has_a_name():
    with pytest.raises(PredicateError, match="nests too deeply"):
        parse_predicate("(" * 10_000 + "b" + ")" * 10_000, TABLE)
    with pytest.raises(PredicateError, match="nests too deeply"):
        parse_predicate("a = " + "+".join(["a"] * 10_000), TABLE)


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
def test_long_lists_and_chains_are_read_in_one_go():
    """Some work for each element, not for each pair of them: this would take minutes."""
    items = parse_predicate(f"a IN ({', '.join(map(str, range(50_000)))})", TABLE).items
    assert len(items) == 50_000
    assert len(parse_predicate("a IN (1, 1, 2, 1)", TABLE).items) == 2
    for word in ("OR", "AND"):
        chain = f" {word} ".join(f"a <> {i}" for i in range(5_000))
        assert len(parse_predicate(chain, TABLE).children) == 5_000


def test_text_without_end_is_refused():
    with pytest.raises(PredicateError, match="1000008 characters; at most 1000000"):
        parse_predicate("s = '" + "x" * 1_000_002 + "'", TABLE)


def test_patterns_do_not_go_back():
    """Python's regular expressions take some 10**30 steps for this; in a process of its own it would never end."""
    assert not like_matches("a" * 2000, "%a" * 30 + "%b", "\\")
    assert like_matches("a" * 2000 + "b", "%a" * 30 + "%b", "\\")
    assert not like_matches("a" * 2000, "%a_" * 30 + "%b%", "\\")


@pytest.mark.parametrize("sql", ["(" * 5000 + "a > 0" + ")" * 5000, "java_method('java.lang.Runtime', 'exit', 1) = 1"])
def test_a_constraint_of_a_hostile_log_is_not_run(sql, tmp_path):
    Handmade(
        struct(field("a", "long")),
        store=LocalStore(tmp_path),
        protocol={"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}},
        configuration={"delta.constraints.x": sql},
    )
    with pytest.raises(DeltaError):
        write_deltalake(tmp_path, pa.table({"a": [1]}), mode="append")
    assert DeltaTable(tmp_path).version() == 0
