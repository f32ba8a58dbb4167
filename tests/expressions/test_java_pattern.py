"""Patterns of Java for RE2: what differs in form is rewritten, and what differs in meaning is refused by name."""

from __future__ import annotations

import pytest

from refdelta.errors import PredicateError
from refdelta.expressions.library.java_pattern import read_pattern


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(?=x)", "a lookahead"),
        ("(?!x)", "a lookahead"),
        ("(?<=x)", "a lookbehind"),
        ("(?<!x)", "a lookbehind"),
        ("(?>x)", "an atomic group"),
        ("x*+", "a possessive quantifier"),
        ("x{2}+", "a possessive quantifier"),
        (r"(x)\1", "a backreference"),
        (r"(?<n>x)\k<n>", "a backreference"),
        (r"\01", "a character in octal"),
        (r"x\Z", r"\Z; write $"),
        (r"\Gx", r"\G, the end of the match before"),
        (r"\R", r"\R; write"),
        (r"\X", r"\X, a grapheme cluster"),
        (r"\h", r"\h; write [ \t]"),
        (r"\v", r"\v; write [\n\r]"),
        (r"[\V]", r"\V; write"),
        (r"\cA", "a control character"),
        (r"\N{DIGIT ONE}", "a character by its name"),
        (r"\y", r"\y"),
        (r"\b{g}", r"\b{g}"),
        ("x$y", "a $ before the end of the pattern"),
        ("(x$)", "a $ before the end of the pattern"),
        (r"x$|y\z", r"$ beside \z"),
        ("[a-c&&b]", "an intersection of classes"),
        ("[a[b]]", "a class in a class"),
        ("[]a]", "a class that begins with ]"),
        ("[z-a]", "a range without its end"),
        (r"[a-\d]", "a range without its end"),
        (r"[\b]", r"\b in a class"),
        (r"\p{L}", r"the class \p{L}"),
        (r"\p{IsGreek}", r"the class \p{IsGreek}"),
        (r"\p{javaLowerCase}", r"the class \p{javaLowerCase}"),
        (r"(?i)\p{Lower}", "without regard to case"),
        ("(?m)x", "the flag (?m)"),
        ("(?x) x", "the flag (?x)"),
        ("(?u:x)", "the flag (?u)"),
        ("(?U)x", "the flag (?U)"),
        ("(?d)x", "the flag (?d)"),
        ("(a*)*", "the repetition of something that may match nothing"),
        ("^*", "a repeated ^, $ or \\b"),
        ("x**", "a quantifier of a quantifier"),
        ("*x", "'*' without anything before it"),
        ("x{,2}", "the quantifier {,2}"),
        ("x{3,2}", "the quantifier {3,2}"),
        ("x{1001}", "more than 1,000 repetitions"),
        ("((x{100}){100}){100}", "what RE2 does not take"),
        ("(x", "a group without its end"),
        ("x)", "a ) without its start"),
        ("[x", "a class without its end"),
        ("x\\", "an end in the middle"),
        (r"\x{110000}", "the character"),
        (r"\ud83d", "the character"),
        ("(" * 60 + ")" * 60, "more than 50 levels"),
        ("x" * 10_001, "10,000 characters at most"),
    ],
)
def test_what_differs_in_meaning_is_refused_by_name(pattern, words):
    with pytest.raises(PredicateError) as caught:
        read_pattern(pattern)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "re2"),
    [
        (r"a\d\W", r"a[\d][\W]"),
        (r"\s[\S-]", r"[[:space:]][[:^space:]\x{2d}]"),
        (".", r"[^\n\r\x{85}\x{2028}\x{2029}]"),
        ("(?s:.).", r"(?:(?s:.))[^\n\r\x{85}\x{2028}\x{2029}]"),
        ("(?i)a(?-i)b", "[aA]b"),
        ("((?i)a)b", "(?P<g1>[aA])b"),
        ("(?i)[x-z1]", "[x-zX-Z1]"),
        ("(?<year>x)(?:y)(z)", "(?P<g1>x)(?:y)(?P<g2>z)"),
        (r"\Qa.b\E+", None),
        (r"\Qa.\E", r"a\x{2e}"),
        ("^a|b$", r"\Aa|b\z"),
        (r"\p{Alpha}\P{XDigit}", "[[:alpha:]][[:^xdigit:]]"),
        (r"\x41\u00e9\x{1f680}\e", r"A\x{e9}\x{1f680}\x{1b}"),
        ("a*?b+c??d{2,}", "a{0,}?b{1,}c{0,1}?d{2,}"),
        ("é-]", r"\x{e9}\x{2d}\x{5d}"),
    ],
)
def test_what_differs_in_form_is_rewritten(pattern, re2):
    if re2 is None:
        with pytest.raises(PredicateError, match="with a quantifier after it"):
            read_pattern(pattern)
    else:
        assert read_pattern(pattern).re2 == re2


@pytest.mark.parametrize(
    ("pattern", "nullable"),
    [
        *(("", True), ("a*", True), ("a|", True), ("(a?)(b*)", True), ("^$", True), (r"\b", True), ("a{0}", True)),
        *(("(?i)", True), ("a*b", False), ("a|b", False), ("(a|b)+", False), ("(a)?b", False)),
    ],
)
def test_a_pattern_knows_whether_it_may_match_nothing(pattern, nullable):
    assert read_pattern(pattern).nullable is nullable


def test_groups_have_numbers_and_names():
    read = read_pattern(r"(?<a>x)\((y(?<b>z))[(]")
    assert (read.groups, read.names) == (3, {"a": 1, "b": 3})
