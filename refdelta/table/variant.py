"""Values of type variant: from their binary form to Python's values and back (Parquet's "Variant Binary Encoding").

A variant is two strings of bytes: ``metadata``, the names of its objects' fields, and ``value``, which refers to them
by number. Numbers in both are little-endian and as narrow as they can be.
"""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

PRIMITIVE, SHORT_STRING, OBJECT, ARRAY = range(4)
(
    NULL, TRUE, FALSE, INT8, INT16, INT32, INT64, DOUBLE, DECIMAL4, DECIMAL8, DECIMAL16, DATE, TIMESTAMP, TIMESTAMP_NTZ,
    FLOAT, BINARY, STRING, TIME, TIMESTAMP_NANOS, TIMESTAMP_NTZ_NANOS, UUID_,
) = range(21)  # fmt: skip
NULL_VALUE: Final = b"\x00"
"""The variant that is null, which is not the absence of a variant."""
MAX_SHORT: Final = 63  # bytes of a short string
DEEPEST = 500  # Python's stack ends at a thousand

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
_WIDE = Context(prec=50)
_WIDTHS: Final = {INT8: 1, INT16: 2, INT32: 4, INT64: 8}
_DECIMALS: Final = {DECIMAL4: 4, DECIMAL8: 8, DECIMAL16: 16}


def header(kind: int) -> int:
    """The first byte of a primitive value."""
    return kind << 2 | PRIMITIVE


def object_header(id_width: int, offset_width: int, *, large: bool) -> int:
    """The first byte of an object: how wide its numbers are, and whether it has more than 255 fields."""
    return (large << 4 | (id_width - 1) << 2 | (offset_width - 1)) << 2 | OBJECT


def array_header(offset_width: int, *, large: bool) -> int:
    """The first byte of an array, as :func:`object_header`."""
    return (large << 2 | (offset_width - 1)) << 2 | ARRAY


def width_of(number: int) -> int:
    """How many bytes hold a number: 1, 2, 3 or 4."""
    return max(1, (number.bit_length() + 7) // 8)


# --- reading -----------------------------------------------------------------------------------------------------


def parted(both: bytes) -> tuple[bytes, bytes]:
    """Metadata and value of a variant that stand together, in either order: PROTOCOL.md, "Statistics for Variant
    Columns", says this one, and its example has the other.

    Raises:
        ValueError: it is not a variant.
    """
    try:
        if both[0] & 0x0F != 1:
            end = _length(both, 0)
            return both[end:], both[:end]
        width = (both[0] >> 6) + 1
        names = 1 + (_number(both, 1, width) + 2) * width
        end = names + _number(both, names - width, width)
        return both[:end], both[end:]
    except IndexError:
        raise ValueError("a variant ends too early") from None


@lru_cache(maxsize=256)
def names_of(metadata: bytes) -> tuple[str, ...]:
    """The names in a variant's metadata, by their numbers.

    Raises:
        ValueError: it is not metadata of version 1.
    """
    if not metadata or metadata[0] & 0x0F != 1:
        raise ValueError("a variant's metadata is not of version 1")
    width = (metadata[0] >> 6) + 1
    count = _number(metadata, 1, width)
    first = 1 + (count + 2) * width
    ends = [_number(metadata, 1 + (i + 1) * width, width) for i in range(count + 1)]
    return tuple(_piece(metadata, first + start, end - start).decode() for start, end in pairwise(ends))


def decode(metadata: bytes, value: bytes) -> Any:
    """A variant as Python's values: dicts, lists, and the types that ``pyarrow`` uses for columns.

    Raises:
        ValueError: it is not a variant, or has a time that Python's types cannot hold.
    """
    try:
        _piece(value, 0, _length(value, 0))
        return _decode(names_of(metadata), value, 0, 0)
    except (IndexError, struct.error, OverflowError) as error:
        raise ValueError(f"not a variant: {error}") from error


def fields_of(metadata: bytes, value: bytes) -> dict[int, bytes]:
    """The fields of an object, each still encoded, by the numbers of their names.

    Raises:
        ValueError: it is not an object.
    """
    if not value or value[0] & 3 != OBJECT:
        raise ValueError("a variant has fields in columns of their own, and is not an object")
    names = names_of(metadata)
    found = {}
    for number, start in _fields(value, 0):
        if number >= len(names):
            raise ValueError("a variant has a field without a name")
        found[number] = value[start : start + _length(value, start)]
    return found


def _decode(names: Sequence[str], data: bytes, at: int, depth: int) -> Any:
    if depth > DEEPEST:
        raise ValueError(f"a variant nests more than {DEEPEST} levels deep")
    kind, rest = data[at] & 3, data[at] >> 2
    if kind == SHORT_STRING:
        return _piece(data, at + 1, rest).decode()
    if kind == OBJECT:
        return {names[number]: _decode(names, data, start, depth + 1) for number, start in _fields(data, at)}
    if kind == ARRAY:
        return [_decode(names, data, start, depth + 1) for start in _elements(data, at)]
    decoder = _PRIMITIVES.get(rest)
    if decoder is None:
        raise ValueError(f"a variant has a value of the unknown type {rest}")
    return decoder(data, at + 1)


def _fields(data: bytes, at: int) -> Iterator[tuple[int, int]]:
    """The number of the name, and the place, of each field of the object at a place."""
    rest = data[at] >> 2
    count_width, id_width, width = 4 if rest & 16 else 1, (rest >> 2 & 3) + 1, (rest & 3) + 1
    count = _number(data, at + 1, count_width)
    ids = at + 1 + count_width
    offsets = ids + count * id_width
    first = offsets + (count + 1) * width
    for i in range(count):
        yield _number(data, ids + i * id_width, id_width), first + _number(data, offsets + i * width, width)


def _elements(data: bytes, at: int) -> Iterator[int]:
    rest = data[at] >> 2
    count_width, width = 4 if rest & 4 else 1, (rest & 3) + 1
    count = _number(data, at + 1, count_width)
    offsets = at + 1 + count_width
    first = offsets + (count + 1) * width
    for i in range(count):
        yield first + _number(data, offsets + i * width, width)


def _length(data: bytes, at: int) -> int:
    """How many bytes the value at a place has."""
    kind, rest = data[at] & 3, data[at] >> 2
    if kind == SHORT_STRING:
        return 1 + rest
    if kind != PRIMITIVE:
        object_ = kind == OBJECT
        count_width, width = 4 if rest & (16 if object_ else 4) else 1, (rest & 3) + 1
        count = _number(data, at + 1, count_width)
        last = 1 + count_width + count * ((rest >> 2 & 3) + 1 if object_ else 0) + count * width
        return last + width + _number(data, at + last, width)
    if rest in (BINARY, STRING):
        return 5 + _number(data, at + 1, 4)
    if rest in _DECIMALS:
        return 2 + _DECIMALS[rest]
    if rest not in _LENGTHS:
        raise ValueError(f"a variant has a value of the unknown type {rest}")
    return 1 + _LENGTHS[rest]


def _number(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(_piece(data, at, width), "little")


def _piece(data: bytes, at: int, length: int) -> bytes:
    found = data[at : at + length]
    if at < 0 or length < 0 or len(found) != length:
        raise ValueError("a variant ends too early")
    return found


def _integer(width: int) -> Callable[[bytes, int], int]:
    return lambda data, at: int.from_bytes(_piece(data, at, width), "little", signed=True)


def _unpacked(form: str, width: int) -> Callable[[bytes, int], float]:
    return lambda data, at: float(struct.unpack(form, _piece(data, at, width))[0])


def _decimal(width: int) -> Callable[[bytes, int], Decimal]:
    whole = _integer(width)
    return lambda data, at: Decimal(whole(data, at + 1)).scaleb(-data[at], _WIDE)


def _sized(data: bytes, at: int) -> bytes:
    return _piece(data, at + 4, _number(data, at, 4))


def _moment(micros: int, zone: Any) -> datetime:
    return (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=zone)


def _time(data: bytes, at: int) -> time:
    return _moment(_integer(8)(data, at), None).time()


def _nanos(zone: Any) -> Callable[[bytes, int], datetime]:
    def decoder(data: bytes, at: int) -> datetime:
        micros, below = divmod(_integer(8)(data, at), 1000)
        if below:
            raise ValueError("a variant has a time with nanoseconds, which Python's types do not have")
        return _moment(micros, zone)

    return decoder


_LENGTHS: Final = {
    NULL: 0, TRUE: 0, FALSE: 0, **_WIDTHS, DOUBLE: 8, DATE: 4, TIMESTAMP: 8, TIMESTAMP_NTZ: 8, FLOAT: 4,
    TIME: 8, TIMESTAMP_NANOS: 8, TIMESTAMP_NTZ_NANOS: 8, UUID_: 16,
}  # fmt: skip
_PRIMITIVES: Final[Mapping[int, Callable[[bytes, int], Any]]] = {
    NULL: lambda _data, _at: None,
    TRUE: lambda _data, _at: True,
    FALSE: lambda _data, _at: False,
    **{kind: _integer(width) for kind, width in _WIDTHS.items()},
    **{kind: _decimal(width) for kind, width in _DECIMALS.items()},
    DOUBLE: _unpacked("<d", 8),
    FLOAT: _unpacked("<f", 4),
    DATE: lambda data, at: (_EPOCH + timedelta(days=_integer(4)(data, at))).date(),
    TIMESTAMP: lambda data, at: _moment(_integer(8)(data, at), UTC),
    TIMESTAMP_NTZ: lambda data, at: _moment(_integer(8)(data, at), None),
    BINARY: _sized,
    STRING: lambda data, at: _sized(data, at).decode(),
    TIME: _time,
    TIMESTAMP_NANOS: _nanos(UTC),
    TIMESTAMP_NTZ_NANOS: _nanos(None),
    UUID_: lambda data, at: UUID(bytes=_piece(data, at, 16)),
}


# --- writing -----------------------------------------------------------------------------------------------------


def encode(value: Any) -> tuple[bytes, bytes]:
    """A value of Python's, as :func:`decode` gives them, as ``(metadata, value)``.

    Whole numbers and decimals become the narrowest type that holds them. An aware datetime is a moment, a naive one a
    wall clock.

    Raises:
        TypeError: a value of another type, or a field's name that is not a string.
        ValueError: a number or a time that no variant can hold, or values too deeply nested.
    """
    names = sorted(_names(value, set(), 0), key=str.encode)
    texts = [name.encode() for name in names]
    width = width_of(max(len(names), sum(map(len, texts))))
    ends = [0]
    for text in texts:
        ends.append(ends[-1] + len(text))
    numbers = b"".join(number.to_bytes(width, "little") for number in (len(names), *ends))
    metadata = bytes([(width - 1) << 6 | 1 << 4 | 1]) + numbers + b"".join(texts)
    return metadata, encode_value(value, {name: number for number, name in enumerate(names)})


def _names(value: Any, found: set[str], depth: int) -> set[str]:
    if depth > DEEPEST:
        raise ValueError(f"a variant nests more than {DEEPEST} levels deep")
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise TypeError("the names of a variant's fields must be strings")
        found.update(value)
        for part in value.values():
            _names(part, found, depth + 1)
    elif isinstance(value, list | tuple):
        for part in value:
            _names(part, found, depth + 1)
    return found


def object_of(fields: Mapping[int, bytes], names: Sequence[str]) -> bytes:
    """An object of encoded fields by the numbers of their names."""
    order = sorted(fields, key=lambda number: names[number].encode())
    parts = [fields[number] for number in order]
    large = len(parts) > 255
    id_width, width = width_of(max(order, default=0)), width_of(sum(map(len, parts)))
    count = len(parts).to_bytes(4 if large else 1, "little")
    ids = b"".join(number.to_bytes(id_width, "little") for number in order)
    return bytes([object_header(id_width, width, large=large)]) + count + ids + _offsets(parts, width) + b"".join(parts)


def _offsets(parts: Sequence[bytes], width: int) -> bytes:
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    return b"".join(end.to_bytes(width, "little") for end in ends)


def encode_value(value: Any, numbers: Mapping[str, int]) -> bytes:
    """The second half of :func:`encode`, under metadata that has these numbers for names, in this order."""
    if isinstance(value, dict):
        return object_of({numbers[name]: encode_value(part, numbers) for name, part in value.items()}, list(numbers))
    if isinstance(value, list | tuple):
        parts = [encode_value(part, numbers) for part in value]
        large, width = len(parts) > 255, width_of(sum(map(len, parts)))
        count = len(parts).to_bytes(4 if large else 1, "little")
        return bytes([array_header(width, large=large)]) + count + _offsets(parts, width) + b"".join(parts)
    encoder: Callable[[Any], bytes] | None = next((e for kind, e in _ENCODERS if isinstance(value, kind)), None)
    if encoder is None:
        raise TypeError(f"a variant cannot hold a value of type {type(value).__name__}")
    return encoder(value)


def _whole(value: int) -> bytes:
    for kind, width in _WIDTHS.items():
        if -(1 << 8 * width - 1) <= value < 1 << 8 * width - 1:
            return bytes([header(kind)]) + value.to_bytes(width, "little", signed=True)
    return _exact(Decimal(value))


def _exact(value: Decimal) -> bytes:
    if not value.is_finite():
        raise ValueError(f"a variant's decimals are finite, not {value}")
    sign, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    size = max(len(digits) + max(0, int(exponent)), scale)
    if size > 38:
        raise ValueError(f"a variant's decimals have at most 38 digits: {value}")
    unscaled = int("".join(map(str, digits)) + "0" * max(0, int(exponent))) * (-1 if sign else 1)
    kind = DECIMAL4 if size <= 9 else DECIMAL8 if size <= 18 else DECIMAL16
    return bytes([header(kind), scale]) + unscaled.to_bytes(_DECIMALS[kind], "little", signed=True)


def _text(value: str) -> bytes:
    data = value.encode()
    if len(data) <= MAX_SHORT:
        return bytes([len(data) << 2 | SHORT_STRING]) + data
    return bytes([header(STRING)]) + len(data).to_bytes(4, "little") + data


def _long(kind: int, value: int) -> bytes:
    return bytes([header(kind)]) + value.to_bytes(8, "little", signed=True)


def _micros(value: datetime) -> int:
    return (value - _EPOCH) // timedelta(microseconds=1)


def _datetime(value: datetime) -> bytes:
    if value.tzinfo is None:
        return _long(TIMESTAMP_NTZ, _micros(value))
    return _long(TIMESTAMP, _micros(value.astimezone(UTC).replace(tzinfo=None)))


def _day(value: date) -> bytes:
    return bytes([header(DATE)]) + (value - _EPOCH.date()).days.to_bytes(4, "little", signed=True)


# Truths are numbers in Python, and datetimes dates: the narrower type comes first.
_ENCODERS: Final[Sequence[tuple[Any, Callable[[Any], bytes]]]] = (
    (type(None), lambda _: NULL_VALUE),
    (bool, lambda value: bytes([header(TRUE if value else FALSE)])),
    (int, _whole),
    (float, lambda value: bytes([header(DOUBLE)]) + struct.pack("<d", value)),
    (Decimal, _exact),
    (str, _text),
    (bytes, lambda value: bytes([header(BINARY)]) + len(value).to_bytes(4, "little") + value),
    (datetime, _datetime),
    (date, _day),
    (time, lambda value: _long(TIME, _micros(datetime.combine(_EPOCH.date(), value)))),
    (UUID, lambda value: bytes([header(UUID_)]) + value.bytes),
)
