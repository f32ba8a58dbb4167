"""Columns that are named like a word of SQL: without backticks they are what they are with them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta.errors import PredicateError
from refdelta.expressions.scope import Scope
from refdelta.expressions.sql import parse_predicate
from refdelta.expressions.sql_dialect import Dialect
from refdelta.table.types import INTEGER, StructField, StructType

SPARK = """
    add all alter analyze and anti any array as asc at authorization between both by case cast change check
    clear cluster collate column columns comment commit constraint create cross cube current current_date
    current_time current_timestamp current_user data database date day days default delete desc describe
    directory distinct div drop else end escape except exchange execute exists explain export external extract
    fetch fields filter first following for foreign format from full function functions global grant group
    grouping having hour identifier if ilike import in index inner inpath insert intersect interval into is
    items join keys last lateral leading left like limit lines list load local location lock locks logical
    macro map matched merge minus minute month natural no not nulls of offset on only option options or order
    out outer over overlaps overlay overwrite partition percent pivot position preceding primary principals
    properties purge quarter range references regexp rename repair replace reset restrict revoke right rlike
    role roles rollback rollup row rows schema second select semi session_user set sets show skewed some sort
    start statistics stored stratify struct substring table tables tablesample temporary terminated then time
    timestamp to touch trailing transaction transform trim truncate try_cast type unarchive unbounded uncache
    union unique unknown unlock unpivot unset update use user using values version view week when where window
    with within xor year zone
"""
KNOWN = [word.lower() for word in Dialect.Tokenizer.KEYWORDS if word.isidentifier()]
WORDS = sorted({*SPARK.split(), *KNOWN} - {"null", "true", "false"})
TEXTS = [
    "{} = 1", "1 = {}", "{}=1", "({}) = 1", "t.{} = 1", "s.{} = 1", "t.s.{} = 1", "-{} < 0", "{} < {}", "a = {}",
    "{} IS NULL", "{} is not null", "{} in (1, 2)", "{} not in (1, 2)", "{} between 1 and 2",
    "{} not between {} and {}",
    "{} + 1 > 2", "{} - 1 > 2", "{} % 2 = 0 and a = 1", "not {} = 1", "a = 1 and {} = 1", "{} = 1 or {} = 2",
    "a in (1) and {} <=> 1", "abs({}) = 1", "cast({} as int) = 1", "{}::int = 1", "coalesce({}, a) = 1",
    "case when {} = 1 then {} else {} end = 1", "case when a = 1 then {} when {} = 2 then 3 end = 1",
    "case a when {} then {} end = 1", "case {} when 1 then 2 end = 1", "if({} = 1, {}, a) = 1",
]  # fmt: skip
AMBIGUOUS = {
    ("not", "{} + 1 > 2"),
    ("not", "{} - 1 > 2"),
    ("case", "case {} when 1 then 2 end = 1"),
    ("when", "case {} when 1 then 2 end = 1"),
    ("case", "case when a = 1 then {} when {} = 2 then 3 end = 1"),
    ("when", "case when a = 1 then {} when {} = 2 then 3 end = 1"),
}
"""Texts in which the word is one of SQL."""


def schema_with(*names):
    whole = (*names, "a")
    inner = StructType(tuple(StructField(name, INTEGER) for name in names))
    return StructType((*(StructField(name, INTEGER) for name in whole), StructField("s", inner)))


def read(text, schema):
    return parse_predicate(text, Scope((("t", schema),)), now=0)


@pytest.mark.tier("test")
@pytest.mark.sample(check=6)
@pytest.mark.parametrize("text", TEXTS)
def test_a_keyword_is_the_column_of_its_name(text):
    wrong = []
    for word in WORDS:
        if (word, text) in AMBIGUOUS:
            continue
        schema = schema_with(word)
        try:
            found = read(text.replace("{}", word), schema)
        except PredicateError as error:
            found = error
        if found != read(text.replace("{}", f"`{word}`"), schema):
            wrong.append((word, str(found)))
    assert not wrong


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("case when -values = 1 then 2 end = 1", "case when -`values` = 1 then 2 end = 1"),
        ("case -values when 1 then 2 end = 1", "case -`values` when 1 then 2 end = 1"),
        ("cast(values as int) = 1 and int = 2", "cast(`values` as int) = 1 and `int` = 2"),
        ("extract(year from DATE '2020-01-01') = year", "extract(year from DATE '2020-01-01') = `year`"),
        ("trim(both 'x' from 'y') = 'y' and both = 1", "trim(both 'x' from 'y') = 'y' and `both` = 1"),
        ("a is not distinct from distinct", "a is not distinct from `distinct`"),
        ("not -1 = a and not = 1", "not (-1 = a) and `not` = 1"),
        ("interval = 1 and current_date = 2", "`interval` = 1 and `current_date` = 2"),
        ("a = left and left('xy', 1) = 'x'", "a = `left` and left('xy', 1) = 'x'"),
        ("Values = 1 and S.FROM = 2", "`values` = 1 and s.`from` = 2"),
    ],
)
def test_keywords_stay_what_they_are_beside_columns_of_their_names(text, same):
    every = schema_with(*(word for word in WORDS if word not in ("a", "s", "t")))
    assert read(text, every) == read(same, every)


@pytest.mark.parametrize("text", ["values = 1", "if = 1", "a = 1 and from in (1)"])
def test_a_keyword_that_is_no_column_is_refused_with_a_hint_at_backticks(text):
    with pytest.raises(PredicateError, match=r"is a keyword of SQL: write the column of this name in backticks, `"):
        read(text, schema_with("b"))


@pytest.mark.parametrize("text", ["a = 1; b = 2", "a = 1 b = 2", ";", ""])
def test_a_text_of_several_expressions_or_none_is_refused(text):
    with pytest.raises(PredicateError):
        read(text, schema_with("b"))


def test_statements_and_constraints_name_keyword_columns():
    uri = "memory://keyword-columns"
    write_deltalake(uri, pa.table({"values": [1, 2], "from": [1, 2], "on": [{"case": 1}, {"case": 2}]}))
    table = DeltaTable(uri)
    table.alter.add_constraint({"c": "values > 0 AND from < 10"})
    table.update({"values": "values + from", "on.case": "on.case + 1"}, predicate="from = 1")
    table.alter.add_constraint({"d": "on.case > 0"})
    source = pa.table({"values": [7], "from": [2]})
    merge = table.merge(source, "t.from = s.from").when_matched_update({"values": "s.values"}, "on.case = 2")
    merge.execute()
    table.delete("values = 2 and on.case = 2")
    assert table.to_pyarrow_table().to_pylist() == [{"values": 7, "from": 2, "on": {"case": 2}}]
    assert table.count("values between from and 9") == 1
