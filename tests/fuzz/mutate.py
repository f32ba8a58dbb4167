"""Changes of an input: of its bytes, of the JSON in it, of a Parquet file. What is drawn comes from one ``Random``."""

from __future__ import annotations

import contextlib
import json
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

# What overflows, wraps or ends something.
NUMBERS = [0, 1, -1, 7, 127, 128, 255, 256, 4095, 4096, 4097, 65535, 65536, 2**31 - 1, 2**31, -(2**31), 2**32 - 1]
NUMBERS += [2**32, 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, 10**18, 10**30]
_FORMS = ("<H", "<I", ">I", "<Q", ">Q")
_PACKED = [struct.pack(form, number % (1 << 8 * struct.calcsize(form))) for number in NUMBERS for form in _FORMS]
TOKENS = [
    b"\n",
    b" ",
    b"\t",
    b"\r\n",
    b"\0",
    b"\xff",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xef\xbb\xbf",
]
TOKENS += [*b"%2F % %zz .. / \\ ' \" { } [ ] : , null true 1e999 - \\u0000 \\ud800".split(b" "), "\u202e".encode()]
TOKENS += [b"9" * 30, b"(((", b"[[["]
LONGEST = 1 << 16


def mutate(random: Random, data: bytes, kind: str, pool: Sequence[bytes], tokens: Sequence[bytes] = ()) -> bytes:
    """A changed input.

    Args:
        random: decides.
        data: the input.
        kind: what it is: ``json`` (lines of it), ``parquet``, ``text`` or ``bytes``.
        pool: other inputs, to take parts from.
        tokens: words of the format.
    """
    for _ in range(random.choice((1, 1, 1, 2, 3, 5))):
        if kind == "json" and random.random() < 0.8:
            try:
                data = _json_lines(random, data, pool)
            except RecursionError:  # nested too deeply for this mutator; other changes will do
                data = _bytes(random, data, pool, tokens)
        elif kind == "parquet" and random.random() < 0.6:
            data = _footer(random, data, tokens)
        else:
            data = _bytes(random, data, pool, tokens)
    return data[:LONGEST]


# --- bytes -------------------------------------------------------------------------------------------------------


def _bytes(random: Random, data: bytes, pool: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    at = random.randrange(len(data) + 1)
    end = min(len(data), at + random.choice((1, 1, 2, 4, 8, random.randrange(1, 200))))
    match random.randrange(10):
        case 0 if data:
            at = min(at, len(data) - 1)
            return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
        case 1 if data:
            at = min(at, len(data) - 1)
            return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]
        case 2:
            return data[:at] + data[end:]
        case 3:
            return data[:at]
        case 4:
            return data[:end] + data[at:end] * random.choice((1, 1, 2, 3)) + data[end:]
        case 5:
            new = random.choice(_PACKED)
            return data[:at] + new + data[at + len(new) :]
        case 6:
            other = random.choice(pool) if pool else data
            start = random.randrange(len(other) + 1)
            return data[:at] + other[start : start + random.randrange(1, 400)] + data[end:]
        case 7:
            return data[:at] + str(random.choice(NUMBERS)).encode() + data[end:]
        case _:
            token = random.choice(tokens) if tokens and random.random() < 0.6 else random.choice(TOKENS)
            return data[:at] + token + data[end if random.random() < 0.5 else at :]


def _footer(random: Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    """A Parquet file with a changed footer: its length, and what follows, as they were."""
    if len(data) < 12:
        return data
    length = int.from_bytes(data[-8:-4], "little")
    if not 0 < length <= len(data) - 12:
        return _bytes(random, data, [], tokens)
    start = len(data) - 8 - length
    footer = _bytes(random, data[start:-8], [data[start:-8]], tokens)
    return data[:start] + footer + len(footer).to_bytes(4, "little") + data[-4:]


# --- JSON --------------------------------------------------------------------------------------------------------


class Pairs(list):  # type: ignore[type-arg]
    """A JSON object as its pairs, so that a key may stand there twice."""


class Raw(str):
    """JSON text that is written as it is."""

    __slots__ = ()


_NESTED = ["[[[[[[[[[]]]]]]]]]", '{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":1}}}}}}}}}']
_RAW = [
    Raw(text)
    for text in ["NaN", "Infinity", "-0", "1e400", "-1e400", "1.0", "0.1e1", "1e-400", "1_0", "01", "nul", "'x'"]
]
_RAW += [Raw(text) for text in ("", '"\x01"', '"\\ud800"', '"\\u0000"', "1" + "0" * 400, "9" * 40, *_NESTED)]
_VALUES: list[Any] = [None, True, False, [], {}, [[]], [None], {"a": None}, 1.5, -0.0, 1e308, *NUMBERS]
_VALUES += ["", "x", "\0", "\u2028", "é", "\U0001f600", "a b", "9" * 40, "x" * 3000, "interval day", "decimal(38,38)"]
_VALUES += [
    "0001-01-01",
    "+12345-06-07",
    "2020-02-30",
    "1e5",
    "NaN",
    "-Infinity",
    "true",
    "..",
    "%2e%2e/x",
    "/elsewhere/f",
    "file:///x",
    "s3://b/k",
    "%",
    "%ff",
]
_VALUES += ["integer", "long", "void", "decimal(39,2)", "map", "struct", "array", "variant", "timestamp_nanos"]
_KEYS = [
    "",
    "x",
    "path",
    "PATH",
    "type",
    "fields",
    "size",
    "version",
    "\0",
    "a.b",
    "extra",
    "deletionVector",
    "stats",
    "tags",
]
_KEYS += [
    "checksum",
    "name",
    "delta.columnMapping.mode",
    "delta.enableDeletionVectors",
    "delta.enableInCommitTimestamps",
]


def _json_lines(random: Random, data: bytes, pool: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    if len(lines) > 1 and random.random() < 0.2:
        return b"\n".join(_rearranged(random, lines, pool))
    at = random.randrange(len(lines))
    try:
        value = _load(lines[at].decode())
    except (ValueError, RecursionError):
        return _bytes(random, data, pool, ())
    changed = _changed(random, value)
    lines[at] = _dump(changed).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def _rearranged(random: Random, lines: list[bytes], pool: Sequence[bytes]) -> list[bytes]:
    at, to = random.randrange(len(lines)), random.randrange(len(lines))
    match random.randrange(4):
        case 0:
            return lines[:at] + lines[at + 1 :]
        case 1:
            return [*lines[:to], lines[at], *lines[to:]]
        case 2:
            lines[at], lines[to] = lines[to], lines[at]
            return lines
        case _:
            other = random.choice(pool).split(b"\n") if pool else lines
            return [*lines[:to], random.choice(other), *lines[to:]]


def _load(text: str) -> Any:
    return json.loads(text, object_pairs_hook=Pairs, parse_float=Raw)


def _changed(random: Random, value: Any) -> Any:
    """The value with one of its parts changed, in JSON that stands in its strings too."""
    places = list(_places(value))
    if not places or random.random() < 0.05:
        return _odd(random, value)
    holder, at = random.choice(places)
    old = holder[at][1] if isinstance(holder, Pairs) else holder[at]
    if isinstance(holder, Pairs) and random.random() < 0.35:
        _change_pair(random, holder, at, places)
        return value
    new = _odd(random, old)
    if isinstance(old, str) and old[:1] in ("{", "[") and random.random() < 0.8:
        with contextlib.suppress(ValueError, RecursionError):
            new = _dump(_changed(random, _load(old)))
    holder[at] = (holder[at][0], new) if isinstance(holder, Pairs) else new
    return value


def _places(value: Any) -> Any:
    stack = [value]
    while stack:
        here = stack.pop()
        if isinstance(here, list):
            for at in range(len(here)):
                yield here, at
                inner = here[at][1] if isinstance(here, Pairs) else here[at]
                if isinstance(inner, list):
                    stack.append(inner)


def _change_pair(random: Random, holder: Pairs, at: int, places: list[Any]) -> None:
    key, old = holder[at]
    match random.randrange(5):
        case 0:
            del holder[at]
        case 1:
            holder.insert(random.randrange(len(holder) + 1), (key, _odd(random, old)))
        case 2:
            other = random.choice([key.upper(), key.lower(), key + "x", key[:-1], random.choice(_KEYS)])
            holder[at] = (other, old)
        case 3:
            holder.append((random.choice(_KEYS), _odd(random, old)))
        case _:
            other_holder, other_at = random.choice(places)
            taken = other_holder[other_at]
            holder[at] = (key, _copy(taken[1] if isinstance(other_holder, Pairs) else taken))


def _copy(value: Any) -> Any:
    # By its text, so that nothing ever holds itself.
    return Raw(_dump(value)) if isinstance(value, list) else value


def _odd(random: Random, old: Any) -> Any:
    match random.randrange(7):
        case 0:
            return random.choice(_RAW)
        case 1 if isinstance(old, int):
            return old + random.choice((-1, 1, 2**31, 2**32, 2**63))
        case 1 if isinstance(old, str):
            return random.choice([old.upper(), old + random.choice("\0 /%.x"), old[:-1], old * 3, old[::-1]])
        case 2:
            return random.choice(NUMBERS)
        case 3:
            return Raw(
                random.choice(["[{}]", "[{0},{0}]", '{{"a":{}}}', '"{}"']).format(str(_dump(old)).replace('"', "'"))
            )
        case 4:
            return [old]
        case _:
            return random.choice(_VALUES)


def _dump(value: Any) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, Pairs):
        return (
            "{" + ",".join(f"{json.dumps(str(key), ensure_ascii=False)}:{_dump(inner)}" for key, inner in value) + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(map(_dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
