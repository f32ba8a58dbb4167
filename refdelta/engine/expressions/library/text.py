"""Functions of strings over columns: the twin of :mod:`refdelta.core.expressions.library.text`.

Arrow matches regular expressions by RE2, in linear time. Strings for which RE2 has another answer than Java, and
functions that Arrow does not have, are computed by the definition, once for each distinct string.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.expressions.expression import Call
from refdelta.core.expressions.library.regex import RegularExpression, read_pattern, replacement_parts
from refdelta.engine.arrow.schema import arrow_type
from refdelta.engine.expressions import columnar
from refdelta.engine.expressions.columnar import Columnar, by_value, by_value_with_constants, constant, emptied, text

_LINE_END = r"(?:[\n\r]|\x{85}|\x{2028}|\x{2029})\z"


def _matched(function: Callable[[pa.Array, Call, RegularExpression], pa.Array], *, nullable: bool = False) -> Columnar:
    """A function with a constant regular expression.

    Args:
        function: the form for strings for which RE2 and Java agree.
        nullable: whether that is so for patterns that match the empty string, too.
    """

    def matched(array: pa.Array, node: Call) -> pa.Array:
        regex = read_pattern(constant(node, 1))
        if regex.nullable and not nullable:
            return by_value(node, array)
        special = None
        if regex.before_line_end:
            special = pc.match_substring_regex(array, _LINE_END)
        if regex.boundaries:
            beyond = pc.invert(pc.string_is_ascii(array))
            special = beyond if special is None else pc.or_(special, beyond)
        special = None if special is None else pc.fill_null(special, False)
        if special is None or not pc.any(special, min_count=0).as_py():
            return function(array, node, regex)
        nothing = pa.scalar(None, array.type)
        usual = function(pc.if_else(special, nothing, array), node, regex)
        return pc.if_else(special, by_value(node, pc.if_else(special, array, nothing)), usual)

    return text(matched)


def _extracted(array: pa.Array, node: Call, regex: RegularExpression) -> pa.Array:
    found = pc.fill_null(_group(array, regex, constant(node, 2)), "")
    return pc.if_else(array.is_valid(), found, pa.scalar(None, array.type)) if array.null_count else found


def _group(array: pa.Array, regex: RegularExpression, number: int) -> pa.Array:
    """A group of the first match; null where there is no match."""
    pattern, names = named_groups(regex)
    return pc.struct_field(
        pc.extract_regex(array, f"(?P<whole>{pattern})"), "whole" if number == 0 else names[number - 1]
    )


def named_groups(regex: RegularExpression) -> tuple[str, list[str]]:
    """The pattern for RE2 with a name for each group, as Arrow wants it, and the names."""
    names = [f"g{number}" for number in range(1, regex.groups + 1)]
    found, rest = "", iter(names)
    at = 0
    while at < len(regex.re2):
        char = regex.re2[at]
        if char == "\\":
            found += regex.re2[at : at + 2]
            at += 2
            continue
        # Parentheses of classes are written by their codes.
        found += f"(?P<{next(rest)}>" if char == "(" and regex.re2[at + 1 : at + 2] != "?" else char
        at += 1
    return found, names


def _replaced(array: pa.Array, node: Call, regex: RegularExpression) -> pa.Array:
    parts = replacement_parts(regex, constant(node, 2))
    if len(node.args) > 3 and constant(node, 3) != 1:
        return by_value(node, array)
    if any(isinstance(part, int) and part > 9 for part in parts):
        return by_value(node, array)
    new = "".join(part.replace("\\", "\\\\") if isinstance(part, str) else f"\\{part}" for part in parts)
    return pc.replace_substring_regex(array, regex.re2, new)


def _split(node: Call, array: pa.Array) -> pa.Array:
    pattern, limit = constant(node, 1), constant(node, 2) if len(node.args) > 2 else -1
    if pattern is None or limit is None:
        return pa.nulls(len(array), arrow_type(node.type))
    regex = read_pattern(pattern)
    if regex.nullable or regex.before_line_end or regex.boundaries or "\\A" in regex.re2:
        return by_value(node, array)
    most = limit - 1 if limit > 0 else None
    return (
        pc.split_pattern_regex(array, regex.re2, max_splits=most).cast(arrow_type(node.type))
        if most != 0
        else by_value(node, array)
    )


def _located(array: pa.Array, node: Call) -> pa.Array:
    """The place of a part, in characters."""
    part = constant(node, 1)
    if not part:
        return pc.if_else(array.is_valid(), pa.scalar(1, pa.int32()), None)
    if pc.all(pc.string_is_ascii(array), min_count=0).as_py():
        return pc.add(pc.find_substring(array, part), 1)
    return by_value(node, array)


def _bytes(_: Call, array: pa.Array) -> pa.Array:
    return pc.binary_length(array)


def _joined(node: Call, _: pa.Array, *arrays: pa.Array) -> pa.Array:
    between = constant(node, 0)
    rows = len(_)
    if between is None or not arrays:
        return pa.repeat(pa.scalar(None if between is None else "", pa.string()), rows)
    # Arrow's own way to skip nulls is wrong for a row that has nothing else.
    pieces = [pc.if_else(array.is_valid(), pc.binary_join_element_wise(between, array, ""), "") for array in arrays]
    return pc.utf8_slice_codeunits(pc.binary_join_element_wise(*pieces, ""), len(between))


def _elt(node: Call, *arrays: pa.Array) -> pa.Array:
    return arrays[constant(node, 0)]


def _trimmed(function: Columnar) -> Columnar:
    return text(lambda array, node: function(array, constant(node, 1)) if constant(node, 1) else array)


def _part(array: pa.Array, node: Call) -> pa.Array:
    part, number = constant(node, 1), constant(node, 2)
    if number < 0 or not part:
        return by_value(node, array)
    parts = pc.split_pattern(array, part)
    enough = pc.greater_equal(pc.list_value_length(parts), number)
    kept = pc.if_else(pc.fill_null(enough, False), array, part * number)
    found = pc.list_element(pc.split_pattern(kept, part), number - 1)
    return pc.if_else(enough, found, emptied(array))


# --- bounds ------------------------------------------------------------------------------------------------------


def _repeated_size(node: Call, array: pa.Array) -> int:
    return int(array.nbytes) * max(constant(node, 1) or 0, 1)


def _replaced_size(node: Call, array: pa.Array) -> int:
    """An upper bound of the bytes that ``regexp_replace`` makes."""
    pattern, new = constant(node, 1), constant(node, 2)
    size: int = array.nbytes
    if pattern is None or new is None:
        return size
    regex = read_pattern(pattern)
    parts = replacement_parts(regex, new)
    fixed = sum(len(part.encode()) for part in parts if isinstance(part, str))
    copies = sum(isinstance(part, int) for part in parts)
    # A match of a character or more for each byte, or one before each.
    if size * (1 + fixed + copies) + len(array) * fixed <= columnar.MOST_BYTES:
        return size
    matches = int(pc.sum(pc.count_substring_regex(array, regex.re2)).as_py() or 0) * (2 if regex.nullable else 1) + len(
        array
    )
    return size * (1 + copies) + matches * fixed


def _substr(array: pa.Array, _: Call, regex: RegularExpression) -> pa.Array:
    found = _group(array, regex, 0)
    return pc.if_else(pc.equal(found, ""), pa.scalar(None, found.type), found) if regex.nullable else found


def _counted(array: pa.Array, node: Call, regex: RegularExpression) -> pa.Array:
    # Arrow looks at the rest of the string as at a string of its own.
    if regex.boundaries or "\\A" in regex.re2:
        return by_value(node, array)
    return pc.count_substring_regex(array, regex.re2)


_PART = 64
"""The bytes of a short string beside others in Python, about."""


def _parts_size(node: Call, array: pa.Array) -> int:
    """An upper bound of the bytes that ``split`` makes, and ``regexp_extract_all``."""
    pattern, size = constant(node, 1), int(array.nbytes)
    if pattern is None or size * (1 + _PART) <= columnar.MOST_BYTES:
        return size
    regex = read_pattern(pattern)
    if regex.nullable or not pattern:
        return size * (1 + _PART)
    return size + _PART * int(pc.sum(pc.count_substring_regex(array, regex.re2)).as_py() or 0)


GROWN: dict[str, Callable[..., int]] = {
    "repeat": _repeated_size,
    "space": lambda node, array: len(array) * max(constant(node, 0) or 0, 0),
    "concat_ws": lambda node, first, *arrays: (
        sum(array.nbytes for array in arrays) + len(first) * len(arrays) * len((constant(node, 0) or "").encode())
    ),
    "overlay": lambda node, array: array.nbytes + len(array) * len((constant(node, 1) or "").encode()),
    "translate": lambda _, array: array.nbytes * 4,
    "regexp_replace": _replaced_size,
    "split": _parts_size,
    "regexp_extract_all": _parts_size,
    "hex": lambda _, array: array.nbytes * 2,
    "base64": lambda _, array: array.nbytes * 2,
}

TEXT: dict[str, Columnar] = {
    "initcap": by_value,
    "repeat": text(lambda array, node: pc.binary_repeat(array, max(constant(node, 1), 0))),
    "space": lambda node, array: pa.repeat(
        pa.scalar(None if constant(node, 0) is None else " " * max(constant(node, 0), 0), pa.string()), len(array)
    ),
    "translate": by_value_with_constants,
    "instr": text(_located),
    "locate": text(
        lambda array, node: (
            _located(array, node) if len(node.args) < 3 or constant(node, 2) == 1 else by_value(node, array)
        )
    ),
    "substring_index": by_value_with_constants,
    "split_part": text(_part),
    "overlay": by_value_with_constants,
    "find_in_set": by_value_with_constants,
    "concat_ws": _joined,
    "elt": _elt,
    "btrim": _trimmed(pc.utf8_trim),
    "ltrimmed": _trimmed(pc.utf8_ltrim),
    "rtrimmed": _trimmed(pc.utf8_rtrim),
    "soundex": by_value,
    "levenshtein": by_value_with_constants,
    "luhn_check": by_value,
    "ascii": by_value,
    "chr": by_value,
    "octet_length": _bytes,
    "bit_length": lambda _, array: pc.multiply(pc.binary_length(array), 8),
    "base64": by_value,
    "unbase64": by_value,
    "encode": text(lambda array, _: array.cast(pa.binary())),
    "decode": by_value_with_constants,
    "md5": by_value,
    "sha1": by_value,
    "sha2": by_value_with_constants,
    "crc32": by_value,
    "rlike": _matched(lambda array, _, regex: pc.match_substring_regex(array, regex.re2), nullable=True),
    "regexp_extract": _matched(_extracted, nullable=True),
    "regexp_extract_all": by_value_with_constants,
    "regexp_replace": _matched(_replaced),
    "regexp_substr": _matched(_substr, nullable=True),
    "regexp_count": _matched(_counted),
    "regexp_instr": by_value_with_constants,
    "split": _split,
}
