"""Functions of strings: parts, places, codes, digests, and regular expressions."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from refdelta.core.expressions.arithmetic import Typed
from refdelta.core.expressions.coercion import coerce
from refdelta.core.expressions.expression import Call, Literal, Value
from refdelta.core.expressions.library.regex import RegularExpression, find, finds, read_pattern, replacement_parts
from refdelta.core.expressions.signature import Function, Typing, bounded_text, constants, simple, takes
from refdelta.core.table.char_varchar import LONGEST
from refdelta.core.table.types import BINARY, BOOLEAN, INTEGER, LONG, STRING, VOID, ArrayType, DataType
from refdelta.errors import ExpressionError, PredicateError

STRINGS = ArrayType(STRING)

# --- parts and places --------------------------------------------------------------------------------------------


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


def locate(text: str, part: str, start: int = 1) -> int:
    """The place of the first ``part`` from ``start`` on, counted from 1; 0 if there is none."""
    if start < 1:
        return 0
    return text.find(part, start - 1) + 1 if part else 1


def overlay(text: str, new: str, start: int, count: int = -1) -> str:
    """The string with ``count`` characters from ``start`` replaced; as many as ``new`` has, if negative."""
    many = count if count >= 0 else len(new)
    bounded_text("overlay", len(text) * 2 + len(new))
    return _part_of(text, 1, start - 1) + new + _part_of(text, start + many)


def _part_of(text: str, start: int, count: int = 2**31 - 1) -> str:
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    end = begin + count
    return text[max(begin, 0) : end] if end > max(begin, 0) else ""


def find_in_set(text: str, items: str) -> int:
    """The place of a string among those of a list with commas, from 1; 0 if there is none."""
    return items.split(",").index(text) + 1 if "," not in text and text in items.split(",") else 0


def repeat(text: str, count: int) -> str:
    """The string, so many times."""
    bounded_text("repeat", len(text) * max(count, 0))
    return text * count


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


def _elt_types(name: str, args: tuple[Value, ...]) -> Typed:
    number = args[0]
    if not isinstance(number, Literal) or not isinstance(number.value, int):
        raise PredicateError(f"{name} takes the number of a string as a constant, not {number}")
    if not 1 <= number.value < len(args):
        raise PredicateError(f"{name} has {len(args) - 1} strings, not {number.value}")
    return (number, *(coerce(arg, STRING, name) for arg in args[1:])), STRING


def _repeat_types(name: str, args: tuple[Value, ...]) -> Typed:
    found, gives = constants(takes(STRING, INTEGER, gives=STRING))(name, args)
    count = found[1]
    if isinstance(count, Literal) and count.value is not None and count.value > LONGEST:
        raise PredicateError(f"{name} repeats {LONGEST} times at most here, not {count}")
    return found, gives


def _space_types(name: str, args: tuple[Value, ...]) -> Typed:
    count = coerce(args[0], INTEGER, name)
    if not isinstance(count, Literal):
        raise PredicateError(f"{name} takes a constant, not {count}")
    if count.value is not None and count.value > LONGEST:
        raise PredicateError(f"{name} makes strings of {LONGEST} characters at most here, not {count}")
    return (count,), STRING


def _part_types(name: str, args: tuple[Value, ...]) -> Typed:
    found, gives = constants(takes(STRING, STRING, INTEGER, gives=STRING))(name, args)
    if isinstance(found[2], Literal) and found[2].value == 0:
        raise PredicateError(f"{name}: parts are counted from 1, or from -1 backwards, not from 0")
    return found, gives


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


# --- regular expressions -----------------------------------------------------------------------------------------


def _regex_types(*more: DataType, gives: DataType) -> Typing:
    inner = constants(takes(STRING, STRING, *more, gives=gives))

    def typed(name: str, args: tuple[Value, ...]) -> Typed:
        found, kind = inner(name, args)
        pattern = found[1]
        if isinstance(pattern, Literal) and pattern.value is not None:
            read_pattern(pattern.value)
        return found, kind

    return typed


def _extract_types(gives: DataType) -> Typing:
    inner = _regex_types(INTEGER, gives=gives)

    def typed(name: str, args: tuple[Value, ...]) -> Typed:
        found, kind = inner(name, args if len(args) > 2 else (*args, Literal(1, INTEGER)))
        pattern, group = found[1:]
        if isinstance(pattern, Literal) and pattern.value is not None and isinstance(group, Literal):
            groups = read_pattern(pattern.value).groups
            if group.value is not None and not 0 <= group.value <= groups:
                raise PredicateError(
                    f"{name}: {pattern} has {groups} groups, and no group {group}; 0 is the whole match"
                )
        return found, kind

    return typed


def _replace_types(name: str, args: tuple[Value, ...]) -> Typed:
    found, kind = _regex_types(STRING, INTEGER, gives=STRING)(name, args)
    pattern, new, *place = found[1:]
    if all(isinstance(arg, Literal) and arg.value is not None for arg in (pattern, new)):
        replacement_parts(read_pattern(pattern.value), new.value)  # type: ignore[union-attr]
    if place and isinstance(place[0], Literal) and place[0].value is not None and place[0].value < 1:
        raise PredicateError(f"{name} begins at character 1 or later, not at {place[0]}")
    return found, kind


def _split_types(name: str, args: tuple[Value, ...]) -> Typed:
    return _regex_types(INTEGER, gives=STRINGS)(name, args)


def _group(text: str, span: tuple[int, ...], number: int) -> str:
    start, end = span[2 * number : 2 * number + 2]
    return text[start:end] if start >= 0 else ""


def _is_basic(text: str) -> bool:
    return text.isascii() or max(text) <= "\uffff"


def _all(regex: RegularExpression, text: str) -> Iterator[tuple[int, ...]]:
    """All matches.

    Raises:
        ExpressionError: Java would find empty ones in the middle of a character.
    """
    if regex.nullable and not _is_basic(text):
        raise ExpressionError(f"{text[:80]!r} has characters above U+FFFF, and the pattern matches the empty string")
    return finds(regex, text)


def _substr(text: str, pattern: str) -> str | None:
    found = find(read_pattern(pattern), text)
    return _group(text, found, 0) or None if found else None


def _place(text: str, pattern: str) -> int:
    found = find(read_pattern(pattern), text)
    # In units of UTF-16, as in Java.
    return len(text[: found[0]].encode("utf-16-le")) // 2 + 1 if found else 0


def regexp_extract(text: str, pattern: str, number: int) -> str:
    """A group of the first match; empty if there is none."""
    found = find(read_pattern(pattern), text)
    return _group(text, found, number) if found else ""


def regexp_replace(text: str, pattern: str, new: str, start: int = 1) -> str:
    """The string with each match replaced, from a character on."""
    regex = read_pattern(pattern)
    parts = replacement_parts(regex, new)
    if start > 1 and not _is_basic(text):
        raise ExpressionError("regexp_replace from a character on takes no characters above U+FFFF")
    if start > max(len(text), 1):
        return text
    found, at, size = [text[: start - 1]], start - 1, 0
    # The matcher sees the region alone.
    body = text[start - 1 :]
    at = 0
    for span in _all(regex, body):
        found.append(body[at : span[0]])
        found += [part if isinstance(part, str) else _group(body, span, part) for part in parts]
        at = span[1]
        size += sum(map(len, found[-len(parts) :])) if parts else 0
        bounded_text("regexp_replace", size)
    return "".join([*found, body[at:]])


def split(text: str, pattern: str, limit: int = -1) -> list[str]:
    """The parts between the matches; at most ``limit`` if that is positive."""
    if not pattern:
        if not text:
            return [""]
        many = len(text) if limit <= 0 else min(limit, len(text))
        return [*text[: many - 1], text[many - 1 :]]
    found: list[str] = []
    at = 0
    for start, end, *_ in _all(read_pattern(pattern), text):
        if limit > 0 and len(found) == limit - 1:
            break
        if end == 0:
            continue  # an empty match at the beginning makes no part
        found.append(text[at:start])
        at = end
    return [*found, text[at:]]


def _of_regex(function: Callable[..., Any], typing: Typing, least: int = 2, most: int = 2) -> Function:
    return Function((least, most), typing, simple(function), fails=True, constants=True)


def _with_constants(
    function: Callable[..., Any], *more: DataType, gives: DataType = STRING, least: int = 0
) -> Function:
    arity = (least or 1 + len(more), 1 + len(more))
    return Function(arity, constants(takes(STRING, *more, gives=gives)), simple(function), constants=True)


def _of_string(function: Callable[[str], Any], gives: DataType = STRING) -> Function:
    return Function((1, 1), takes(STRING, gives=gives), simple(function))


TEXT: dict[str, Function] = {
    "initcap": _of_string(initcap),
    "repeat": Function((2, 2), _repeat_types, simple(repeat), constants=True),
    "space": Function((1, 1), _space_types, simple(lambda count: " " * count)),
    "translate": _with_constants(translate, STRING, STRING),
    "instr": _with_constants(locate, STRING, gives=INTEGER),
    "locate": Function(
        (2, 3), constants(takes(STRING, STRING, INTEGER, gives=INTEGER)), simple(locate), constants=True
    ),
    "substring_index": _with_constants(substring_index, STRING, INTEGER),
    "split_part": Function((3, 3), _part_types, simple(split_part), constants=True),
    "overlay": _with_constants(overlay, STRING, INTEGER, INTEGER, least=3),
    "find_in_set": _with_constants(find_in_set, STRING, gives=INTEGER),
    "concat_ws": Function((1, 255), _joined_types, _joined, strict=False),
    "elt": Function((2, 255), _elt_types, lambda _, number, *values: values[number - 1], strict=False),
    "btrim": _with_constants(lambda text, chars: text.strip(chars) if chars else text, STRING),
    "ltrimmed": _with_constants(lambda text, chars: text.lstrip(chars) if chars else text, STRING),
    "rtrimmed": _with_constants(lambda text, chars: text.rstrip(chars) if chars else text, STRING),
    "soundex": _of_string(soundex),
    "levenshtein": Function(
        (2, 2), constants(takes(STRING, STRING, gives=INTEGER)), simple(levenshtein), fails=True, constants=True
    ),
    "luhn_check": _of_string(luhn_check, BOOLEAN),
    "ascii": _of_string(lambda text: ord(text[0]) if text else 0, INTEGER),
    "chr": Function((1, 1), takes(LONG, gives=STRING), simple(_chr)),
    "octet_length": Function((1, 1), _size_types, simple(byte_count)),
    "bit_length": Function((1, 1), _size_types, simple(lambda value: 8 * byte_count(value))),
    "base64": Function((1, 1), _bytes_types(STRING), simple(to_base64), fails=True),
    "unbase64": Function((1, 1), takes(STRING, gives=BINARY), simple(unbase64), fails=True),
    "encode": Function((2, 2), _charset_types(BINARY, STRING), simple(lambda text, _: text.encode()), constants=True),
    "decode": Function((2, 2), _charset_types(STRING, BINARY), simple(_decoded), fails=True, constants=True),
    "md5": Function(
        (1, 1), _bytes_types(STRING), simple(lambda data: hashlib.md5(data, usedforsecurity=False).hexdigest())
    ),
    "sha1": Function(
        (1, 1), _bytes_types(STRING), simple(lambda data: hashlib.sha1(data, usedforsecurity=False).hexdigest())
    ),
    "sha2": Function((2, 2), constants(_bytes_types(STRING)), simple(_sha2), constants=True),
    "crc32": Function((1, 1), _bytes_types(LONG), simple(zlib.crc32)),
    "rlike": _of_regex(
        lambda text, pattern: find(read_pattern(pattern), text) is not None, _regex_types(gives=BOOLEAN)
    ),
    "regexp_extract": _of_regex(regexp_extract, _extract_types(STRING), most=3),
    "regexp_extract_all": _of_regex(
        lambda text, pattern, number: [_group(text, span, number) for span in _all(read_pattern(pattern), text)],
        _extract_types(STRINGS),
        most=3,
    ),
    "regexp_replace": _of_regex(regexp_replace, _replace_types, least=3, most=4),
    "regexp_substr": _of_regex(
        _substr,
        _regex_types(gives=STRING),
    ),
    "regexp_count": _of_regex(
        lambda text, pattern: sum(1 for _ in _all(read_pattern(pattern), text)), _regex_types(gives=INTEGER)
    ),
    "regexp_instr": _of_regex(
        _place,
        _regex_types(gives=INTEGER),
    ),
    "split": _of_regex(split, _split_types, most=3),
}
