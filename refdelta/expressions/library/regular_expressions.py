"""Functions with a constant regular expression.

RE2 decides, through Arrow: each is one function of a column, and the definition is the same for a column of one string.
Strings for which RE2 has another answer than Java raise an error; so do patterns, when they are read
(:mod:`refdelta.expressions.library.java_pattern`).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.partition import from_internal, to_internal
from refdelta.arrow.schema import arrow_type
from refdelta.errors import ExpressionError, PredicateError
from refdelta.expressions import columnar
from refdelta.expressions.arithmetic import Typed
from refdelta.expressions.columnar import constant
from refdelta.expressions.expression import Call, Literal, Value
from refdelta.expressions.library.java_pattern import LINE_END, JavaPattern, read_pattern
from refdelta.expressions.signature import LONGEST_TEXT, Columns, Function, Typing, bounded_text, constants, takes
from refdelta.table.types import BOOLEAN, INTEGER, STRING, ArrayType, DataType

STRINGS = ArrayType(STRING)

_MOST_REFERENCES = 9  # of RE2
_MARKS = [chr(code) for code in (*range(0x20), *range(0xFDD0, 0xFDF0))]
"""Characters that strings rarely have, of which one marks matches: controls, and code points that are no characters."""

# --- what they take ----------------------------------------------------------------------------------------------


def _regex_types(*more: DataType, gives: DataType, every: bool = False) -> Typing:
    """A string, a constant pattern, and further constants; ``every`` for functions that look for all matches."""
    inner = constants(takes(STRING, STRING, *more, gives=gives))

    def typed(name: str, args: tuple[Value, ...]) -> Typed:
        found, kind = inner(name, args)
        pattern = found[1]
        if not isinstance(pattern, Literal) or pattern.value is None or (not pattern.value and name == "split"):
            return found, kind
        if read_pattern(pattern.value).nullable and every:
            raise PredicateError(
                f"{name}: the regular expression {pattern} may match the empty string, and Java and RE2 go on in "
                "different ways after such a match; this is not supported here"
            )
        return found, kind

    return typed


def _extract_types(gives: DataType, *, every: bool = False) -> Typing:
    inner = _regex_types(INTEGER, gives=gives, every=every)

    def typed(name: str, args: tuple[Value, ...]) -> Typed:
        found, kind = inner(name, args if len(args) > 2 else (*args, Literal(1, INTEGER)))
        pattern, group = found[1:]
        if isinstance(pattern, Literal) and pattern.value is not None and isinstance(group, Literal):
            groups = read_pattern(pattern.value).groups
            if group.value is not None and not 0 <= group.value <= groups:
                raise PredicateError(
                    f"{name}: {pattern} has {groups} groups, and no group {group}; 0 is the whole match"
                )
            if every and group.value is not None and group.value > _MOST_REFERENCES:
                raise PredicateError(f"{name} takes groups up to {_MOST_REFERENCES} here, not {group}")
        return found, kind

    return typed


def _replace_types(name: str, args: tuple[Value, ...]) -> Typed:
    found, kind = _regex_types(STRING, INTEGER, gives=STRING, every=True)(name, args)
    pattern, new, *place = found[1:]
    if all(isinstance(arg, Literal) and arg.value is not None for arg in (pattern, new)):
        parts = replacement_parts(read_pattern(pattern.value), new.value)  # type: ignore[union-attr]
        if any(isinstance(part, int) and part > _MOST_REFERENCES for part in parts):
            raise PredicateError(f"{name}: the replacement {new} names a group above {_MOST_REFERENCES}")
    if place and isinstance(place[0], Literal) and place[0].value is not None and place[0].value < 1:
        raise PredicateError(f"{name} begins at character 1 or later, not at {place[0]}")
    return found, kind


# --- matches -----------------------------------------------------------------------------------------------------


def _pattern(node: Call, array: pa.Array) -> JavaPattern:
    r"""The pattern of a call.

    Raises:
        ExpressionError: it has ``\b`` and a string is not ASCII, or it has ``$`` and matches just before the line end
            in which a string ends.
    """
    regex = _checked_pattern(node, array)
    if regex.line_end:
        ended = array.filter(pc.fill_null(pc.match_substring_regex(array, LINE_END), False))
        found = ended.filter(pc.match_substring_regex(_without_line_end(ended), regex.re2))
        if len(found):
            raise ExpressionError(
                f"{node.name}: the string {found[0].as_py()[-40:]!r} ends in a line end, before which $ in "
                rf"{regex.pattern!r} matches in Java and not in RE2; write \z for the end of the string"
            )
    return regex


def _without_line_end(array: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(array, LINE_END, "")


def _checked_pattern(node: Call, array: pa.Array) -> JavaPattern:
    regex = read_pattern(constant(node, 1))
    if regex.boundaries:
        found = array.filter(pc.fill_null(pc.invert(pc.string_is_ascii(array)), False))
        if len(found):
            raise ExpressionError(
                rf"\b in {regex.pattern!r} has no one meaning for a string that is not ASCII: "
                f"{found[0].as_py()[:40]!r}; Java 17 and 21 differ. Write the characters that may stand there, such as "
                "(^|[^a-z])"
            )
    return regex


def _matched(node: Call, array: pa.Array) -> pa.Array:
    regex = _checked_pattern(node, array)
    found = pc.match_substring_regex(array, regex.re2)
    if regex.line_end and pc.any(pc.match_substring_regex(array, LINE_END), min_count=0).as_py():
        # As $ ends its alternative, and all of it, a match before the line end is one of the string without it.
        found = pc.or_(found, pc.match_substring_regex(_without_line_end(array), regex.re2))
    return found


def _group(array: pa.Array, regex: JavaPattern, number: int) -> pa.Array:
    """A group of the first match, empty if it is not in it; null where there is no match."""
    return pc.struct_field(pc.extract_regex(array, f"(?P<g0>{regex.re2})"), f"g{number}")


def _mark(array: pa.Array) -> str:
    """A character that no string has."""
    for mark in _MARKS:
        if not pc.any(pc.match_substring(array, mark), min_count=0).as_py():
            return mark
    raise ExpressionError("matches cannot be marked in strings that have all control characters and U+FDD0 to U+FDEF")


def _count(array: pa.Array, regex: JavaPattern) -> pa.Array:
    """The number of matches. Arrow's own count takes the rest after a match for a string with a beginning."""
    mark = _mark(array)
    return pc.count_substring(pc.replace_substring_regex(array, regex.re2, mark), mark)


def _in_turn(array: pa.Array, regex: JavaPattern, number: int) -> list[list[str] | None]:
    """For each string the text before the first match, a group of it, the text before the next one, and so on."""
    mark = _mark(array)
    marked = pc.replace_substring_regex(array, regex.re2, f"{mark}\\{number}{mark}")
    return list(pc.split_pattern(marked, mark).to_pylist())


# --- functions ---------------------------------------------------------------------------------------------------


def _extracted(node: Call, array: pa.Array) -> pa.Array:
    found = pc.fill_null(_group(array, _pattern(node, array), constant(node, 2)), "")
    return pc.if_else(array.is_valid(), found, pa.scalar(None, array.type)) if array.null_count else found


def _extracted_all(node: Call, array: pa.Array) -> pa.Array:
    rows = _in_turn(array, _pattern(node, array), constant(node, 2))
    return from_internal([None if row is None else row[1::2] for row in rows], node.type)


def _first(node: Call, array: pa.Array) -> pa.Array:
    regex = _pattern(node, array)
    found = _group(array, regex, 0)
    return pc.if_else(pc.equal(found, ""), pa.scalar(None, found.type), found) if regex.nullable else found


def _counted(node: Call, array: pa.Array) -> pa.Array:
    return _count(array, _pattern(node, array))


def _place(node: Call, array: pa.Array) -> pa.Array:
    """The place of the first match, from 1, in units of UTF-16; 0 if there is none."""
    # Arrow's search by an expression counts bytes in some versions, and its replacement does not see what is around a
    # match, on which \\b depends: the text before it is a group instead.
    found = pc.extract_regex(array, rf"\A(?P<before>(?s:.*?))(?:{_pattern(node, array).re2})")
    before = pc.struct_field(found, "before")
    units = pc.add(pc.utf8_length(before), pc.count_substring_regex(before, r"[\x{10000}-\x{10ffff}]"))
    return pc.if_else(array.is_valid(), pc.fill_null(pc.add(units, 1), 0), pa.scalar(None, units.type))


def _replaced(node: Call, array: pa.Array) -> pa.Array:
    start = constant(node, 3) if len(node.args) > 3 else 1
    if start > 1 and pc.any(pc.match_substring_regex(array, r"[^\x00-\x{ffff}]"), min_count=0).as_py():
        raise ExpressionError("regexp_replace from a character on takes no characters above U+FFFF")
    # The matcher sees the rest alone.
    rest = pc.utf8_slice_codeunits(array, start - 1, None) if start > 1 else array
    regex = _pattern(node, rest)
    parts = replacement_parts(regex, constant(node, 2))
    new = "".join(part.replace("\\", "\\\\") if isinstance(part, str) else f"\\{part}" for part in parts)
    found = pc.replace_substring_regex(rest, regex.re2, new)
    if start == 1:
        return found
    return pc.binary_join_element_wise(pc.utf8_slice_codeunits(array, 0, start - 1), found, "")


def _split(node: Call, array: pa.Array) -> pa.Array:
    """The parts between the matches; at most ``limit`` if that is positive."""
    pattern, limit = constant(node, 1), constant(node, 2) if len(node.args) > 2 else -1
    if not pattern:
        return from_internal([None if text is None else _letters(text, limit) for text in array.to_pylist()], node.type)
    regex = _pattern(node, array)
    if limit <= 0:
        mark = _mark(array)
        return pc.split_pattern(pc.replace_substring_regex(array, regex.re2, mark), mark).cast(arrow_type(node.type))
    rows = (None if row is None else _limited(row, limit) for row in _in_turn(array, regex, 0))
    return from_internal(list(rows), node.type)


def _limited(row: list[str], limit: int) -> list[str]:
    """So many parts at most, of which the last has the rest of the string."""
    return row[::2] if len(row) < 2 * limit else [*row[: 2 * limit - 2 : 2], "".join(row[2 * limit - 2 :])]


def _letters(text: str, limit: int) -> list[str]:
    """The parts that an empty pattern makes."""
    if not text:
        return [""]
    many = len(text) if limit <= 0 else min(limit, len(text))
    return [*text[: many - 1], text[many - 1 :]]


# --- bounds ------------------------------------------------------------------------------------------------------

_PART = 64
"""The bytes of a short string beside others in Python, about."""


def _replaced_size(node: Call, array: pa.Array, most: int | None = None) -> int:
    """An upper bound of the bytes that ``regexp_replace`` makes, if they may be more than ``most``."""
    regex = read_pattern(constant(node, 1))
    parts = replacement_parts(regex, constant(node, 2))
    size: int = array.nbytes
    fixed = sum(len(part.encode()) for part in parts if isinstance(part, str))
    copies = sum(isinstance(part, int) for part in parts)
    # A match is a character or more.
    if size * (1 + fixed + copies) <= (most or columnar.MOST_BYTES):
        return size
    return size * (1 + copies) + int(pc.sum(_count(array, regex)).as_py() or 0) * fixed


def _parts_size(node: Call, array: pa.Array) -> int:
    """An upper bound of the bytes that ``split`` makes, and ``regexp_extract_all``."""
    pattern, size = constant(node, 1), int(array.nbytes)
    if size * (1 + _PART) <= columnar.MOST_BYTES:
        return size
    if not pattern:
        return size * (1 + _PART)
    return size + _PART * int(pc.sum(_count(array, read_pattern(pattern))).as_py() or 0)


# --- replacements ------------------------------------------------------------------------------------------------


def replacement_parts(regex: JavaPattern, replacement: str) -> tuple[str | int, ...]:
    """The parts of a replacement in Java's syntax: strings, and numbers of groups.

    Raises:
        PredicateError: it is none, or names a group that the pattern does not have.
    """
    parts: list[str | int] = []
    at = 0
    while at < len(replacement):
        char = replacement[at]
        at += 1
        if char == "\\":
            if at == len(replacement):
                raise PredicateError(f"the replacement {replacement!r} ends in a backslash")
            parts.append(replacement[at])
            at += 1
        elif char == "$":
            number, at = _reference(regex, replacement, at)
            parts.append(number)
        else:
            parts.append(char)
    joined: list[str | int] = []
    for part in parts:
        if joined and isinstance(part, str) and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return tuple(joined)


def _reference(regex: JavaPattern, replacement: str, at: int) -> tuple[int, int]:
    if replacement[at : at + 1] == "{":
        end = replacement.find("}", at)
        name = replacement[at + 1 : max(end, 0)]
        if name not in regex.names:
            raise PredicateError(f"the replacement {replacement!r}: the pattern has no group named {name!r}")
        return regex.names[name], end + 1
    digits = replacement[at : at + 1]
    if not (digits.isascii() and digits.isdigit()):
        raise PredicateError(f"the replacement {replacement!r}: after $ comes the number of a group; \\$ is the sign")
    number = int(digits)
    if number > regex.groups:
        raise PredicateError(f"the replacement {replacement!r}: the pattern has {regex.groups} groups, not {number}")
    at += 1
    # A further digit belongs to the number where there is such a group.
    while replacement[at : at + 1].isascii() and replacement[at : at + 1].isdigit():
        longer = number * 10 + int(replacement[at])
        if longer > regex.groups:
            break
        number, at = longer, at + 1
    return number, at


def _function(columns: Columns, typing: Typing, least: int = 2, most: int = 2, **more: Any) -> Function:
    def value(call: Call, text: str, *_: Any) -> Any:
        array = from_internal([text], STRING)
        if call.name == "regexp_replace":
            bounded_text(call.name, _replaced_size(call, array, LONGEST_TEXT))
        return to_internal(columns(call, array), call.type)[0]

    return Function((least, most), typing, value, columns, fails=True, constants=True, **more)


REGULAR_EXPRESSIONS: dict[str, Function] = {
    "rlike": _function(_matched, _regex_types(gives=BOOLEAN)),
    "regexp_extract": _function(_extracted, _extract_types(STRING), most=3),
    "regexp_extract_all": _function(_extracted_all, _extract_types(STRINGS, every=True), most=3, size=_parts_size),
    "regexp_replace": _function(_replaced, _replace_types, least=3, most=4, size=_replaced_size),
    "regexp_substr": _function(_first, _regex_types(gives=STRING)),
    "regexp_count": _function(_counted, _regex_types(gives=INTEGER, every=True)),
    "regexp_instr": _function(_place, _regex_types(gives=INTEGER)),
    "split": _function(_split, _regex_types(INTEGER, gives=STRINGS, every=True), most=3, size=_parts_size),
}
