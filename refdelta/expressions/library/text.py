"""Functions of strings: parts, places, codes and digests."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.errors import ExpressionError, PredicateError
from refdelta.expressions.arithmetic import Typed
from refdelta.expressions.coercion import coerce
from refdelta.expressions.columnar import MOST_BYTES, constant, emptied
from refdelta.expressions.expression import Call, Literal, Value
from refdelta.expressions.signature import (
    ANY_NUMBER,
    Columns,
    Function,
    Typing,
    bounded_text,
    constants,
    of_string,
    simple,
    takes,
    with_constants,
)
from refdelta.table.char_varchar import LONGEST
from refdelta.table.types import BINARY, BOOLEAN, INTEGER, LONG, STRING, VOID, DataType

# --- case, length and parts --------------------------------------------------------------------------------------


def _cased_columns(function: Columns) -> Columns:
    # Arrow maps each character to one; some become two, or depend on their neighbours.
    return lambda _, array: function(array) if pc.all(pc.string_is_ascii(array), min_count=0).as_py() else None


def _strings(_: str, args: tuple[Value, ...]) -> Typed:
    return tuple(coerce(arg, STRING, "concat") for arg in args), STRING


def _concat(_: Call, *values: Any) -> Any:
    # All of them are computed, even after a null.
    if None in values:
        return None
    bounded_text("concat", sum(map(len, values)))
    return "".join(values)


def _concat_columns(_: Call, *arrays: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*arrays, "", null_handling="emit_null")


def _length(name: str, args: tuple[Value, ...]) -> Typed:
    return (args[0] if args[0].type == BINARY else coerce(args[0], STRING, name),), INTEGER


def _length_columns(_: Call, array: pa.Array) -> pa.Array:
    return pc.binary_length(array) if pa.types.is_binary(array.type) else pc.utf8_length(array)


def substring(text: str, start: int, count: int = 2**31 - 1) -> str:
    """Characters from ``start``, counted from 1 or, negative, from the end."""
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    end = begin + count
    return text[max(begin, 0) : end] if end > max(begin, 0) else ""


def _substring_columns(node: Call, array: pa.Array) -> pa.Array:
    start = constant(node, 1)
    count = constant(node, 2) if len(node.args) > 2 else 2**31 - 1
    if count <= 0:
        return emptied(array)
    if start >= 0:
        begin = max(start - 1, 0)
        return pc.utf8_slice_codeunits(array, begin, min(begin + count, 2**31))
    return pc.utf8_slice_codeunits(array, start, start + count if start + count < 0 else None)


def _left_columns(node: Call, array: pa.Array) -> pa.Array:
    count = constant(node, 1)
    return pc.utf8_slice_codeunits(array, 0, count) if count > 0 else emptied(array)


def _right_columns(node: Call, array: pa.Array) -> pa.Array:
    count = constant(node, 1)
    return pc.utf8_slice_codeunits(array, -count, None) if count > 0 else emptied(array)


def replace(text: str, old: str, new: str = "") -> str:
    """The string with each ``old``, from the left, replaced by ``new``; unchanged if ``old`` is empty."""
    if not old:
        return text
    if len(new) > len(old):
        bounded_text("replace", len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


def _replace_columns(node: Call, array: pa.Array) -> pa.Array:
    old, new = constant(node, 1), constant(node, 2) if len(node.args) > 2 else ""
    return pc.replace_substring(array, old, new) if old else array


def _replaced_size(node: Call, array: pa.Array) -> int:
    """An upper bound of the bytes that ``replace`` makes."""
    old, new = constant(node, 1), constant(node, 2) if len(node.args) > 2 else ""
    size: int = array.nbytes
    grows = len(new.encode()) - len(old.encode())
    if not old or grows <= 0 or size + size // len(old.encode()) * grows <= MOST_BYTES:
        return size
    return size + grows * int(pc.sum(pc.count_substring(array, old)).as_py() or 0)


def initcap(text: str) -> str:
    """Each word, between blanks, with its first letter in title case and the others in lower case."""
    return " ".join(word[:1].title() + word[1:] for word in text.lower().split(" "))


def translate(text: str, old: str, new: str) -> str:
    """The string with each character of ``old`` replaced by that of ``new`` in the same place, or left out."""
    table: dict[int, str | None] = {}
    for place, char in enumerate(old):
        table.setdefault(ord(char), new[place] if place < len(new) else None)
    return text.translate(table)


def substring_index(text: str, part: str, count: int) -> str:
    """The text before the ``count``-th ``part`` from the left, or, negative, after it from the right."""
    if not part or not count:
        return ""
    place = -1 if count > 0 else len(text)
    for _ in range(abs(count)):
        if count > 0:
            place = text.find(part, place + 1)
        else:
            place = text.rfind(part, 0, max(place + len(part) - 1, 0)) if place > 0 else -1
        if place < 0:
            return text
    return text[:place] if count > 0 else text[place + len(part) :]


def split_part(text: str, part: str, number: int) -> str:
    """The part of that number, from 1, or, negative, from the end; empty if there is none."""
    parts = text.split(part) if part else [text]
    place = number - 1 if number > 0 else len(parts) + number
    return parts[place] if 0 <= place < len(parts) else ""


def _part_types(name: str, args: tuple[Value, ...]) -> Typed:
    found, gives = constants(takes(STRING, STRING, INTEGER, gives=STRING))(name, args)
    if isinstance(found[2], Literal) and found[2].value == 0:
        raise PredicateError(f"{name}: parts are counted from 1, or from -1 backwards, not from 0")
    return found, gives


def _part_columns(node: Call, array: pa.Array) -> pa.Array:
    part, number = constant(node, 1), constant(node, 2)
    if number < 0 or not part:
        return None
    parts = pc.split_pattern(array, part)
    enough = pc.greater_equal(pc.list_value_length(parts), number)
    kept = pc.if_else(pc.fill_null(enough, False), array, part * number)
    found = pc.list_element(pc.split_pattern(kept, part), number - 1)
    return pc.if_else(enough, found, emptied(array))


def overlay(text: str, new: str, start: int, count: int = -1) -> str:
    """The string with ``count`` characters from ``start`` replaced; as many as ``new`` has, if negative."""
    many = count if count >= 0 else len(new)
    bounded_text("overlay", len(text) * 2 + len(new))
    return substring(text, 1, start - 1) + new + substring(text, start + many)


def _trimmed_columns(function: Columns) -> Columns:
    return lambda node, array: function(array, constant(node, 1)) if constant(node, 1) else array


# --- filled and repeated -----------------------------------------------------------------------------------------


def _pad(name: str, args: tuple[Value, ...]) -> Typed:
    found, gives = constants(takes(STRING, INTEGER, STRING, gives=STRING))(name, args)
    count = found[1]
    # Bounds the size of the output: a batch of rows has to fit into memory.
    if isinstance(count, Literal) and count.value is not None and count.value > LONGEST:
        raise PredicateError(f"{name} makes strings of {LONGEST} characters at most here, not {count}")
    return found, gives


def lpad(text: str, count: int, pad: str = " ") -> str:
    """A string of so many characters: cut, or with ``pad`` before it as often as need be."""
    return _padding(text, count, pad) + text[: max(count, 0)]


def rpad(text: str, count: int, pad: str = " ") -> str:
    """A string of ``count`` characters: cut, or with ``pad`` repeated after it."""
    return text[: max(count, 0)] + _padding(text, count, pad)


def _padding(text: str, count: int, pad: str) -> str:
    lack = count - len(text)
    return (pad * (lack // len(pad) + 1))[:lack] if lack > 0 and pad else ""


def _padded_size(node: Call, array: pa.Array) -> int:
    """An upper bound of the bytes that ``lpad`` and ``rpad`` make."""
    count, filler = constant(node, 1), constant(node, 2) if len(node.args) > 2 else " "
    size: int = array.nbytes
    one = len(filler.encode())
    if count <= 0 or size + len(array) * count * one <= MOST_BYTES:
        return size
    lack = int(pc.sum(pc.max_element_wise(pc.subtract(count, pc.utf8_length(array)), 0)).as_py() or 0)
    return size + lack * max(1, one // max(1, len(filler)))


def _pad_columns(function: Columns) -> Columns:
    def pad(node: Call, array: pa.Array) -> Any:
        if len(node.args) > 2 and len(constant(node, 2)) != 1:
            return None
        count, filler = max(constant(node, 1), 0), constant(node, 2) if len(node.args) > 2 else " "
        return pc.utf8_slice_codeunits(function(array, count, filler), 0, count) if count else emptied(array)

    return pad


def repeat(text: str, count: int) -> str:
    """The string, so many times."""
    bounded_text("repeat", len(text) * max(count, 0))
    return text * count


def _repeat_types(name: str, args: tuple[Value, ...]) -> Typed:
    found, gives = constants(takes(STRING, INTEGER, gives=STRING))(name, args)
    count = found[1]
    if isinstance(count, Literal) and count.value is not None and count.value > LONGEST:
        raise PredicateError(f"{name} repeats {LONGEST} times at most here, not {count}")
    return found, gives


def _repeated_size(node: Call, array: pa.Array) -> int:
    return int(array.nbytes * max(constant(node, 1), 1))


def _space_types(name: str, args: tuple[Value, ...]) -> Typed:
    count = coerce(args[0], INTEGER, name)
    if not isinstance(count, Literal):
        raise PredicateError(f"{name} takes a constant, not {count}")
    if count.value is not None and count.value > LONGEST:
        raise PredicateError(f"{name} makes strings of {LONGEST} characters at most here, not {count}")
    return (count,), STRING


# --- places ------------------------------------------------------------------------------------------------------


def locate(text: str, part: str, start: int = 1) -> int:
    """The place of the first ``part`` from ``start`` on, counted from 1; 0 if there is none."""
    if start < 1:
        return 0
    return text.find(part, start - 1) + 1 if part else 1


def _located_columns(node: Call, array: pa.Array) -> pa.Array:
    """The place of a part, in characters."""
    part = constant(node, 1)
    if not part:
        return pc.if_else(array.is_valid(), pa.scalar(1, pa.int32()), None)
    if pc.all(pc.string_is_ascii(array), min_count=0).as_py():
        return pc.add(pc.find_substring(array, part), 1)
    return None


def find_in_set(text: str, items: str) -> int:
    """The place of a string among those of a list with commas, from 1; 0 if there is none."""
    return items.split(",").index(text) + 1 if "," not in text and text in items.split(",") else 0


# --- checks and distances ----------------------------------------------------------------------------------------


def soundex(text: str) -> str:
    """The code of a word by its sound in English; a string that does not begin with a letter of ASCII is itself."""
    if not text or not (text[0].isascii() and text[0].isalpha()):
        return text
    codes = "01230120022455012623010202"
    word = text.upper() if text.isascii() else "".join(c.upper() if c.isascii() else c for c in text)
    found = word[0]
    last = codes[ord(word[0]) - 65]
    for char in word[1:]:
        if not "A" <= char <= "Z":
            last = "0"
            continue
        code = codes[ord(char) - 65]
        if char in "HW":
            continue
        if code not in ("0", last):
            found += code
            if len(found) == 4:
                break
        last = code
    return found.ljust(4, "0")


MOST_PAIRS = 10_000_000
"""The most pairs of characters that ``levenshtein`` compares for one value."""


def levenshtein(one: str, other: str) -> int:
    """The least number of characters to insert, delete or change."""
    if len(one) * len(other) > MOST_PAIRS:
        raise ExpressionError(
            f"levenshtein of strings of {len(one):,} and {len(other):,} characters: {MOST_PAIRS:,} pairs are the limit"
        )
    before = list(range(len(other) + 1))
    for row, char in enumerate(one, 1):
        now = [row]
        for column, another in enumerate(other, 1):
            now.append(min(before[column] + 1, now[-1] + 1, before[column - 1] + (char != another)))
        before = now
    return before[-1]


def luhn_check(text: str) -> bool:
    """True if the last digit is the check digit of the others, as on bank cards (Luhn)."""
    if not text or not (text.isascii() and text.isdigit()):
        return False
    total = 0
    for place, char in enumerate(reversed(text)):
        digit = int(char) * (1 + place % 2)
        total += digit - 9 if digit > 9 else digit
    return total % 10 == 0


# --- codes and digests -------------------------------------------------------------------------------------------


def _chr(code: int) -> str:
    return "" if code < 0 else chr(code % 256)


BASE64_LINE = 57
"""The most bytes of a line of base64."""


def to_base64(data: bytes) -> str:
    """The bytes in base64.

    Raises:
        ExpressionError: they are more than a line; Spark breaks lines or does not, by its version and configuration.
    """
    if len(data) > BASE64_LINE:
        raise ExpressionError(
            f"base64 takes {BASE64_LINE} bytes at most here, not {len(data):,}: Spark may break lines"
        )
    return binascii.b2a_base64(data, newline=False).decode()


def unbase64(text: str) -> bytes:
    """The bytes that base64 stands for, read as Java's MIME decoder does: other characters are left out.

    Raises:
        ExpressionError: it is cut in the middle.
    """
    body, equals, rest = text.partition("=")
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    digits = "".join(char for char in body if char in alphabet)
    after = [char for char in rest if char in alphabet or char == "="]
    wanted = {0: 0, 2: 2, 3: 1}.get(len(digits) % 4, -1)
    if wanted < 0 or (equals and (wanted == 0 or len(after) != wanted - 1 or any(c != "=" for c in after))):
        raise ExpressionError(f"{text[:80]!r} is not base64")
    return base64.b64decode(digits + "=" * wanted)


def _sha2(data: bytes, bits: int) -> str | None:
    name = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}.get(bits)
    return None if name is None else hashlib.new(name, data, usedforsecurity=False).hexdigest()


def _bytes_types(gives: DataType) -> Typing:
    def typed(name: str, args: tuple[Value, ...]) -> Typed:
        if args[0].type not in (STRING, BINARY, VOID):
            raise PredicateError(f"{name} takes a string or a binary, and {args[0]} is {args[0].type}; cast it")
        rest = tuple(coerce(arg, INTEGER, name) for arg in args[1:])
        return (coerce(args[0], BINARY, name), *rest), gives

    return typed


def _size_types(name: str, args: tuple[Value, ...]) -> Typed:
    return (args[0] if args[0].type == BINARY else coerce(args[0], STRING, name),), INTEGER


def byte_count(value: Any) -> int:
    """The number of bytes of a string in UTF-8, or of a binary."""
    return len(value.encode() if isinstance(value, str) else value)


def _charset_types(gives: DataType, takes_kind: DataType) -> Typing:
    def typed(name: str, args: tuple[Value, ...]) -> Typed:
        charset = args[1]
        if not isinstance(charset, Literal) or str(charset.value).lower() not in ("utf-8", "utf8"):
            raise PredicateError(f"{name} takes 'UTF-8' as a constant, not {charset}")
        return (coerce(args[0], takes_kind, name), Literal("UTF-8", STRING)), gives

    return typed


def _decoded(data: bytes, _: str) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        raise ExpressionError("decode: the bytes are not UTF-8") from None


# --- several strings ---------------------------------------------------------------------------------------------


def _joined_types(name: str, args: tuple[Value, ...]) -> Typed:
    if isinstance(args[0], Literal):
        return tuple(coerce(arg, STRING, name) for arg in args), STRING
    raise PredicateError(f"{name} takes a constant between the strings, not {args[0]}")


def _joined(_: Call, between: str | None, *values: str | None) -> str | None:
    if between is None:
        return None
    found = [value for value in values if value is not None]
    bounded_text("concat_ws", sum(map(len, found)) + len(between) * len(found))
    return between.join(found)


def _joined_columns(node: Call, _: pa.Array, *arrays: pa.Array) -> pa.Array:
    between = constant(node, 0)
    rows = len(_)
    if between is None or not arrays:
        return pa.repeat(pa.scalar(None if between is None else "", pa.string()), rows)
    # Arrow's own way to skip nulls is wrong for a row that has nothing else.
    pieces = [pc.if_else(array.is_valid(), pc.binary_join_element_wise(between, array, ""), "") for array in arrays]
    return pc.utf8_slice_codeunits(pc.binary_join_element_wise(*pieces, ""), len(between))


def _elt_types(name: str, args: tuple[Value, ...]) -> Typed:
    number = args[0]
    if not isinstance(number, Literal) or not isinstance(number.value, int):
        raise PredicateError(f"{name} takes the number of a string as a constant, not {number}")
    if not 1 <= number.value < len(args):
        raise PredicateError(f"{name} has {len(args) - 1} strings, not {number.value}")
    return (number, *(coerce(arg, STRING, name) for arg in args[1:])), STRING


def _elt_columns(node: Call, *arrays: pa.Array) -> pa.Array:
    return arrays[constant(node, 0)]


TEXT: dict[str, Function] = {
    "concat": Function(
        (0, ANY_NUMBER),
        _strings,
        _concat,
        strict=False,
        columns=_concat_columns,
        size=lambda _, *arrays: sum(array.nbytes for array in arrays),
    ),
    "upper": of_string(str.upper, columns=_cased_columns(pc.ascii_upper)),
    "lower": of_string(str.lower, columns=_cased_columns(pc.ascii_lower)),
    "trim": of_string(lambda text: text.strip(" "), columns=lambda _, array: pc.utf8_trim(array, " ")),
    "ltrim": of_string(lambda text: text.lstrip(" "), columns=lambda _, array: pc.utf8_ltrim(array, " ")),
    "rtrim": of_string(lambda text: text.rstrip(" "), columns=lambda _, array: pc.utf8_rtrim(array, " ")),
    "length": Function((1, 1), _length, simple(len), columns=_length_columns),
    "substring": with_constants(substring, INTEGER, INTEGER, least=2, columns=_substring_columns),
    "left": with_constants(lambda text, count: text[: max(count, 0)], INTEGER, columns=_left_columns),
    "right": with_constants(lambda text, count: text[-count:] if count > 0 else "", INTEGER, columns=_right_columns),
    "replace": with_constants(replace, STRING, STRING, least=2, columns=_replace_columns, size=_replaced_size),
    "lpad": Function((2, 3), _pad, simple(lpad), constants=True, columns=_pad_columns(pc.utf8_lpad), size=_padded_size),
    "rpad": Function((2, 3), _pad, simple(rpad), constants=True, columns=_pad_columns(pc.utf8_rpad), size=_padded_size),
    "startswith": with_constants(
        str.startswith, STRING, gives=BOOLEAN, columns=lambda node, array: pc.starts_with(array, constant(node, 1))
    ),
    "endswith": with_constants(
        str.endswith, STRING, gives=BOOLEAN, columns=lambda node, array: pc.ends_with(array, constant(node, 1))
    ),
    "contains": with_constants(
        lambda text, part: part in text,
        STRING,
        gives=BOOLEAN,
        columns=lambda node, array: pc.match_substring(array, constant(node, 1)),
    ),
    "reverse": of_string(lambda text: text[::-1], columns=lambda _, array: pc.utf8_reverse(array)),
    "initcap": of_string(initcap),
    "repeat": Function(
        (2, 2),
        _repeat_types,
        simple(repeat),
        constants=True,
        columns=lambda node, array: pc.binary_repeat(array, max(constant(node, 1), 0)),
        size=_repeated_size,
    ),
    "space": Function(
        (1, 1),
        _space_types,
        simple(lambda count: " " * count),
        size=lambda node, array: len(array) * max(constant(node, 0) or 0, 0),
    ),
    "translate": with_constants(translate, STRING, STRING, size=lambda _, array: array.nbytes * 4),
    "instr": with_constants(locate, STRING, gives=INTEGER, columns=_located_columns),
    "locate": Function(
        (2, 3),
        constants(takes(STRING, STRING, INTEGER, gives=INTEGER)),
        simple(locate),
        constants=True,
        columns=lambda node, array: (
            _located_columns(node, array) if len(node.args) < 3 or constant(node, 2) == 1 else None
        ),
    ),
    "substring_index": with_constants(substring_index, STRING, INTEGER),
    "split_part": Function((3, 3), _part_types, simple(split_part), constants=True, columns=_part_columns),
    "overlay": with_constants(
        overlay,
        STRING,
        INTEGER,
        INTEGER,
        least=3,
        size=lambda node, array: array.nbytes + len(array) * len(constant(node, 1).encode()),
    ),
    "find_in_set": with_constants(find_in_set, STRING, gives=INTEGER),
    "concat_ws": Function(
        (1, 255),
        _joined_types,
        _joined,
        strict=False,
        columns=_joined_columns,
        size=lambda node, first, *arrays: (
            sum(array.nbytes for array in arrays) + len(first) * len(arrays) * len((constant(node, 0) or "").encode())
        ),
    ),
    "elt": Function(
        (2, 255), _elt_types, lambda _, number, *values: values[number - 1], strict=False, columns=_elt_columns
    ),
    "btrim": with_constants(
        lambda text, chars: text.strip(chars) if chars else text, STRING, columns=_trimmed_columns(pc.utf8_trim)
    ),
    "ltrimmed": with_constants(
        lambda text, chars: text.lstrip(chars) if chars else text, STRING, columns=_trimmed_columns(pc.utf8_ltrim)
    ),
    "rtrimmed": with_constants(
        lambda text, chars: text.rstrip(chars) if chars else text, STRING, columns=_trimmed_columns(pc.utf8_rtrim)
    ),
    "soundex": of_string(soundex),
    "levenshtein": Function(
        (2, 2), constants(takes(STRING, STRING, gives=INTEGER)), simple(levenshtein), fails=True, constants=True
    ),
    "luhn_check": of_string(luhn_check, BOOLEAN),
    "ascii": of_string(lambda text: ord(text[0]) if text else 0, INTEGER),
    "chr": Function((1, 1), takes(LONG, gives=STRING), simple(_chr)),
    "octet_length": Function((1, 1), _size_types, simple(byte_count), columns=lambda _, array: pc.binary_length(array)),
    "bit_length": Function(
        (1, 1),
        _size_types,
        simple(lambda value: 8 * byte_count(value)),
        columns=lambda _, array: pc.multiply(pc.binary_length(array), 8),
    ),
    "base64": Function(
        (1, 1), _bytes_types(STRING), simple(to_base64), fails=True, size=lambda _, array: array.nbytes * 2
    ),
    "unbase64": Function((1, 1), takes(STRING, gives=BINARY), simple(unbase64), fails=True),
    "encode": Function(
        (2, 2),
        _charset_types(BINARY, STRING),
        simple(lambda text, _: text.encode()),
        constants=True,
        columns=lambda _, array: array.cast(pa.binary()),
    ),
    "decode": Function((2, 2), _charset_types(STRING, BINARY), simple(_decoded), fails=True, constants=True),
    "md5": Function(
        (1, 1), _bytes_types(STRING), simple(lambda data: hashlib.md5(data, usedforsecurity=False).hexdigest())
    ),
    "sha1": Function(
        (1, 1), _bytes_types(STRING), simple(lambda data: hashlib.sha1(data, usedforsecurity=False).hexdigest())
    ),
    "sha2": Function((2, 2), constants(_bytes_types(STRING)), simple(_sha2), constants=True),
    "crc32": Function((1, 1), _bytes_types(LONG), simple(zlib.crc32)),
}
