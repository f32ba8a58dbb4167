"""Functions with regular expressions have the values of Java, or say by name that they do not."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from function_cases import REFUSED, SCHEMA
from refdelta.errors import ExpressionError, PredicateError
from refdelta.expressions.evaluate import evaluate_value, value_of
from refdelta.expressions.library import java_pattern, regular_expressions
from refdelta.expressions.sql import parse_expression
from refdelta.table.types import STRING, StructField, StructType

TEXT = StructType((StructField("s", STRING),))


def values(call, *texts):
    """The values for some strings, which are the same as a column and one by one."""
    value = parse_expression(call, TEXT)
    found = evaluate_value(value, pa.RecordBatch.from_pydict({"s": pa.array(texts, pa.string())})).to_pylist()
    assert found == [value_of(value, {"s": text}) for text in texts]
    return found


@pytest.mark.parametrize("call", REFUSED)
def test_an_empty_match_is_refused_where_all_matches_are_looked_for(call):
    with pytest.raises(PredicateError, match="may match the empty string, and Java and RE2"):
        parse_expression(call, SCHEMA)


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x85", "\u2028", "\u2029"])
def test_a_dollar_matches_before_a_last_line_end(end):
    texts = [f"ab{end}", f"ab{end}{end}", f"b{end}a", "ab", None, end, ""]
    expected = [True, False, False, True, None, False, False]
    assert values("s RLIKE 'b$'", *texts) == expected
    assert values("s RLIKE '^x|ab$'", *texts) == expected
    assert values("s RLIKE r'b\\z'", *texts) == [False, False, False, True, None, False, False]


def test_a_dollar_does_not_match_within_a_line_end():
    assert values(r"s RLIKE r'^a\s$'", "a\r\n", "a\n", "a \n") == [False, True, True]


@pytest.mark.parametrize(
    "call",
    [
        *("regexp_extract(s, 'b$', 0)", "regexp_extract_all(s, 'b$', 0)", "regexp_substr(s, 'b$')", "split(s, 'b$')"),
        *("regexp_replace(s, 'b$', 'x')", "regexp_count(s, 'b$')", "regexp_instr(s, 'b$')"),
    ],
)
def test_a_match_before_a_last_line_end_has_no_place_in_re2(call):
    values(call, "ab", "a\n", "b\na", None, "")
    for text in ("ab\n", "b\r\n"):
        with pytest.raises(ExpressionError, match=r"ends in a line end.*write \\z"):
            values(call, text)


@pytest.mark.parametrize("call", ["s RLIKE r'\\bb'", "regexp_count(s, r'b\\B')"])
def test_a_boundary_of_words_takes_ascii_alone(call):
    values(call, "a b", "ab", None)
    with pytest.raises(ExpressionError, match="no one meaning"):
        values(call, "é b")


def test_case_is_that_of_ascii_alone():
    assert values("s RLIKE '(?i)^[k-s]$'", "K", "s", "\u212a", "\u017f", "t") == [True, True, False, False, False]
    assert values("s RLIKE '(?i)é'", "É", "é") == [False, True]


def test_the_beginning_is_that_of_the_string():
    assert values("regexp_count(s, '^a')", "aaa", "baa") == [1, 0]
    assert values("regexp_replace(s, '^a', '')", "aaa") == ["aa"]
    assert values("regexp_count(s, r'\\Ba')", "aaa") == [2]
    assert values("split(s, '^a')", "aaa", "b") == [["", "aa"], ["b"]]


def test_parts_and_limits():
    text = "a1b22c"
    assert values("split(s, '[0-9]+')", text, "", None) == [["a", "b", "c"], [""], None]
    assert values("split(s, '[0-9]+', 2)", text, "1", "") == [["a", "b22c"], ["", ""], [""]]
    assert values("split(s, '[0-9]+', 1)", text) == [[text]]
    assert values("split(s, '[0-9]', 9)", text) == [["a", "b", "", "c"]]
    assert values("split(s, '', 2)", "abc", "") == [["a", "bc"], [""]]
    assert values("regexp_extract_all(s, '([a-z])([0-9])?', 2)", text) == [["1", "2", ""]]


def test_replacements_name_groups_as_java_does():
    assert values("regexp_replace(s, '(a)(b)?', '[$2$1]')", "ab", "a") == ["[ba]", "[a]"]
    assert values("regexp_replace(s, '(?<x>a)', r'\\$${x}1')", "a") == ["$a1"]
    assert values("regexp_replace(s, 'a', r'\\\\0')", "a") == ["\\0"]
    groups = "".join(f"({letter})" for letter in "abcdefghij")
    assert values(f"regexp_extract(s, '{groups}', 10)", "abcdefghij") == ["j"]
    with pytest.raises(PredicateError, match="group above 9"):
        parse_expression(f"regexp_replace(s, '{groups}', '$10')", TEXT)
    with pytest.raises(PredicateError, match="groups up to 9"):
        parse_expression(f"regexp_extract_all(s, '{groups}', 10)", TEXT)


def test_matches_are_marked_by_a_character_that_no_string_has():
    texts = ["a\x00b\x00", "\x01a", "\x00\x01\x02a"]
    assert values("regexp_count(s, '[ab]')", *texts) == [2, 1, 1]
    assert values(r"regexp_extract_all(s, r'\x00', 0)", *texts) == [["\x00", "\x00"], [], ["\x00"]]
    assert values(r"split(s, 'a', 2)", *texts) == [["", "\x00b\x00"], ["\x01", ""], ["\x00\x01\x02", ""]]
    every = "".join(map(chr, (*range(0x20), *range(0xFDD0, 0xFDF0))))
    with pytest.raises(ExpressionError, match="cannot be marked"):
        values("regexp_count(s, 'a')", every)


def test_a_place_is_counted_in_units_of_utf_16():
    assert values("regexp_instr(s, 'x')", "\U0001f680x", "éx", "x", "y", None) == [3, 2, 1, 0, None]


@pytest.mark.parametrize("module", [regular_expressions, java_pattern])
def test_patterns_of_a_statement_are_not_given_to_pythons_engine(module):
    """RE2 matches them, in linear time; Python's engine goes back."""
    assert re not in vars(module).values()
    assert not {one for one in vars(module).values() if isinstance(one, re.Pattern)}
