"""Deletion vectors: location and content (PROTOCOL.md, "Deletion Vectors" and "Deletion Vector Format").

A vector is the set of deleted row positions of one data file. It is stored in the log (as z85), or in a file of one or
several vectors, framed by a length and a CRC-32. All lengths and counts are checked here, since pyroaring accepts
input that the protocol does not allow.
"""

from __future__ import annotations

import base64
import itertools
import struct
import uuid
import zlib
from typing import TYPE_CHECKING

import msgspec
from pyroaring import BitMap, BitMap64

from refdelta.core.errors import DataFileError, InvalidLogError, UnsafePathError

if TYPE_CHECKING:
    from refdelta.core.log.actions import DeletionVectorDescriptor

PORTABLE_MAGIC = 1681511377
# The older form of delta-spark. The inline example in the specification has it, with all numbers big-endian.
NATIVE_MAGIC = 1681511376
FILE_VERSION = 1

MOST_CONTAINERS = 2**16
"""The limit of the containers of a 32-bit bitmap, each of which has another upper half of 16 bits."""

_UUID_TEXT = 20  # z85 characters of 16 bytes
_NO_RUNS, _WITH_RUNS = 12346, 12347
_OFFSETS_FROM = 4  # from this number of containers on there is an offset header even if there are runs
_BITSET_BYTES = 8192
_ARRAY_LIMIT = 4096
_KEY_LIMIT = 2**31

_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
TO_B85, _TO_Z85 = bytes.maketrans(_Z85, _B85), bytes.maketrans(_B85, _Z85)
_FOREIGN = frozenset(range(256)).difference(_Z85)
# Five characters of z85 that begin with the last character exceed 32 bits, so z85 never has them.
_FILLER, _MOST_FILLERS = "#", 3


class InlineBytes(msgspec.Struct, frozen=True):
    """A vector in the log; ``data`` is for :func:`parse_bitmap`."""

    data: bytes


class RelativeKey(msgspec.Struct, frozen=True):
    """A vector in a file of the table, by its key."""

    key: str


class AbsoluteUri(msgspec.Struct, frozen=True):
    """A vector in a file with an absolute URI; the caller decides whether it may be read."""

    uri: str


Location = InlineBytes | RelativeKey | AbsoluteUri


# --- z85 ---------------------------------------------------------------------------------------------------------


def z85_encode(data: bytes) -> str:
    """ZeroMQ's base 85; ``data`` is a multiple of 4 bytes long."""
    if len(data) % 4:
        raise ValueError("z85 encodes multiples of 4 bytes")
    return base64.b85encode(data).translate(_TO_Z85).decode("ascii")


def z85_decode(text: str) -> bytes:
    """The inverse of :func:`z85_encode`.

    Raises:
        ValueError: it is not z85: a wrong length, a foreign character, or five characters beyond 32 bits.
    """
    try:
        raw = text.encode("ascii")
    except UnicodeEncodeError:
        raise ValueError("z85 is ASCII") from None
    if len(raw) % 5:
        raise ValueError(f"z85 has a multiple of 5 characters, not {len(raw)}")
    if not _FOREIGN.isdisjoint(raw):
        raise ValueError("a character that z85 does not have")
    return base64.b85decode(raw.translate(TO_B85))


def padded_decode(text: str) -> bytes:
    """Same as :func:`z85_decode`, and also decodes the padding of Rust's ``z85`` crate: one, two or three fillers at
    the beginning of the last five characters stand for missing bytes. It is not valid z85: it has no other meaning.

    Raises:
        ValueError: it is neither.
    """
    last = text[-5:].lstrip(_FILLER)
    missing = len(text[-5:]) - len(last)
    if not missing:
        return z85_decode(text)
    if missing > _MOST_FILLERS:
        raise ValueError("no more than three of five characters can be filled up")
    tail = z85_decode("0" * missing + last)
    if any(tail[:missing]):
        raise ValueError("the last characters are more than the bytes that they stand for")
    return z85_decode(text[:-5]) + tail[missing:]


# --- where a vector is -------------------------------------------------------------------------------------------


def locate(descriptor: DeletionVectorDescriptor, *, file: str | None = None) -> Location:
    """The location of a vector (PROTOCOL.md, "Derived Fields").

    Args:
        descriptor: its descriptor in the log.
        file: the log file, for errors.

    Raises:
        InvalidLogError: the descriptor is not valid.
        UnsafePathError: its path leaves the table.
    """
    text = descriptor.path_or_inline_dv
    if descriptor.size_in_bytes < 0 or descriptor.cardinality < 0:
        raise InvalidLogError(f"a deletion vector of negative size or cardinality: {text!r}", file=file)
    if descriptor.offset is not None and descriptor.offset < 0:
        raise InvalidLogError(f"a deletion vector at a negative offset: {text!r}", file=file)
    match descriptor.storage_type:
        case "u":
            return RelativeKey(relative_key(text, file=file))
        case "i":
            return InlineBytes(_inline(text, descriptor.size_in_bytes, file))
        case "p":
            return AbsoluteUri(text)
        case other:
            raise InvalidLogError(f"a deletion vector of the unknown storage type {other!r}", file=file)


def relative_key(text: str, *, file: str | None = None) -> str:
    """The key of the file for a ``pathOrInlineDv`` of storage type ``u``: an optional prefix, then a UUID as z85."""
    prefix, encoded = text[:-_UUID_TEXT], text[-_UUID_TEXT:]
    try:
        name = f"deletion_vector_{uuid.UUID(bytes=z85_decode(encoded))}.bin"
    except ValueError:
        raise InvalidLogError(f"a deletion vector without a UUID in its path: {text!r}", file=file) from None
    if not prefix:
        return name
    if any(part in ("", ".", "..") for part in prefix.split("/")) or any(c in prefix for c in "\\:\0"):
        raise UnsafePathError(f"a deletion vector whose path leaves the table: {text!r}", file=file)
    return f"{prefix}/{name}"


def encode_relative(identity: uuid.UUID, prefix: str = "") -> str:
    """``pathOrInlineDv`` for a file ``deletion_vector_<identity>.bin``, the inverse of :func:`relative_key`."""
    return prefix + z85_encode(identity.bytes)


def encode_inline(data: bytes) -> str:
    """``pathOrInlineDv`` for a vector in the log; z85 encodes words, so the last one is padded with zeros."""
    return z85_encode(data + bytes(-len(data) % 4))


def _inline(text: str, size: int, file: str | None) -> bytes:
    try:
        data = padded_decode(text)
    except ValueError as error:
        raise InvalidLogError(f"an inline deletion vector that is not z85: {error}", file=file) from None
    # z85 encodes multiples of four bytes; the length of the vector need not be one.
    if not size <= len(data) < size + 4:
        raise InvalidLogError(f"an inline deletion vector of {len(data)} bytes that claims {size}", file=file)
    return data[:size]


# --- a vector in a file ------------------------------------------------------------------------------------------


def framed_range(descriptor: DeletionVectorDescriptor) -> tuple[int, int]:
    """The bytes of the file to read, as (start, length): the length of the vector, the vector, and its CRC."""
    return descriptor.offset or 0, descriptor.size_in_bytes + 8


def unframe(data: bytes, size: int, file: str) -> bytes:
    """A vector without its frame (PROTOCOL.md, "Deletion Vector File Storage Format").

    Args:
        data: the bytes of :func:`framed_range`: big-endian length, the vector, big-endian CRC-32.
        size: ``sizeInBytes`` of the descriptor.
        file: the file's name, for errors.

    Raises:
        DataFileError: the bytes are too few, the lengths differ, or the checksum does.
    """
    if len(data) < size + 8:
        raise DataFileError(f"the deletion vector ends after {len(data)} of {size + 8} bytes", file=file)
    (claimed,) = struct.unpack_from(">i", data, 0)
    if claimed != size:
        raise DataFileError(f"the deletion vector is {claimed} bytes long there, {size} in the log", file=file)
    body = data[4 : 4 + size]
    (checksum,) = struct.unpack_from(">I", data, 4 + size)
    if checksum != zlib.crc32(body):
        raise DataFileError("the deletion vector's checksum does not match: the file is damaged", file=file)
    return body


def frame(body: bytes) -> bytes:
    """The inverse of :func:`unframe`."""
    return struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))


# --- the bitmap --------------------------------------------------------------------------------------------------


def parse_bitmap(data: bytes, *, file: str, cardinality: int | None = None) -> BitMap64:
    """Parse a vector in the portable or the native form (PROTOCOL.md, "Deletion Vector Format").

    Args:
        data: the magic number and the bitmap, without frame.
        file: its file, for errors.
        cardinality: the number of rows in the log, which is checked if it is given.

    Raises:
        DataFileError: the bytes are not a vector, or hold another number of rows.
    """
    try:
        bitmap = _any_form(data)
    except (_DamagedError, struct.error, ValueError, IndexError) as error:
        raise DataFileError(f"the deletion vector is not valid: {error}", file=file) from None
    if cardinality is not None and len(bitmap) != cardinality:
        raise DataFileError(f"the deletion vector holds {len(bitmap)} rows, {cardinality} in the log", file=file)
    return bitmap


def serialize_bitmap(bitmap: BitMap64) -> bytes:
    """The vector in the portable form, with its magic number; ``sizeInBytes`` is the length of this.

    Consecutive rows are written as runs, so that the vector of a mostly deleted file is small.
    """
    compact = bitmap.copy()
    compact.run_optimize()
    return struct.pack("<i", PORTABLE_MAGIC) + bytes(compact.serialize())


class _DamagedError(Exception):
    """The damage found in the bytes; it becomes a ``DataFileError`` in this module."""


def _any_form(data: bytes) -> BitMap64:
    if len(data) < 8:
        raise _DamagedError(f"it is {len(data)} bytes long")
    little, big = struct.unpack_from("<i", data)[0], struct.unpack_from(">i", data)[0]
    if little == PORTABLE_MAGIC:
        return _portable(memoryview(data)[4:])
    if NATIVE_MAGIC in (little, big):
        return _native(memoryview(data)[4:], ">" if big == NATIVE_MAGIC else "<")
    raise _DamagedError(f"it begins with {little}, which no form of the bitmap does")


def _portable(view: memoryview) -> BitMap64:
    (count,) = struct.unpack_from("<Q", view, 0)
    position, previous = 8, -1
    # A bucket takes 12 bytes at least, so a hostile count cannot make this loop long.
    if count * 12 > len(view):
        raise _DamagedError(f"{count} bitmaps in {len(view)} bytes")
    for _ in range(count):
        (key,) = struct.unpack_from("<I", view, position)
        if key <= previous:
            raise _DamagedError("its bitmaps are not in ascending order")
        if key >= _KEY_LIMIT:
            raise _DamagedError("a row position beyond 63 bits")
        previous = key
        position += 4 + _bitmap_size(view[position + 4 :])
    if position != len(view):
        raise _DamagedError(f"{len(view) - position} bytes after its end")
    return BitMap64.deserialize(bytes(view))


def _native(view: memoryview, order: str) -> BitMap64:
    (count,) = struct.unpack_from(order + "i", view, 0)
    if count < 0 or count * 12 > len(view):
        raise _DamagedError(f"{count} bitmaps in {len(view)} bytes")
    position = 4
    parts = []
    for key in range(count):
        (size,) = struct.unpack_from(order + "i", view, position)
        position += 4
        body = view[position : position + max(size, 0)]
        if size < 8 or len(body) < size or _bitmap_size(body) != size:
            raise _DamagedError(f"bitmap {key} is not {size} bytes long")
        parts.append(struct.pack("<I", key) + bytes(body))
        position += size
    if position != len(view):
        raise _DamagedError(f"{len(view) - position} bytes after its end")
    return BitMap64.deserialize(struct.pack("<Q", count) + b"".join(parts))


def _bitmap_size(view: memoryview) -> int:
    """The number of bytes of the 32-bit Roaring bitmap at the start of ``view``. Checks that its containers are
    there.
    """
    (cookie,) = struct.unpack_from("<I", view, 0)
    runs = b""
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        runs = bytes(view[4 : 4 + (count + 7) // 8])
        position = 4 + (count + 7) // 8
        offsets = count >= _OFFSETS_FROM
    elif cookie == _NO_RUNS:
        (count,) = struct.unpack_from("<I", view, 4)
        position, offsets = 8, True
    else:
        raise _DamagedError(f"a bitmap that begins with {cookie}")
    if count > MOST_CONTAINERS:
        raise _DamagedError(f"a bitmap of {count} containers")
    headers = struct.unpack_from(f"<{2 * count}H", view, position)
    position += 4 * count * (2 if offsets else 1)
    keys = headers[::2]
    if any(a >= b for a, b in itertools.pairwise(keys)):
        raise _DamagedError("its containers are not in ascending order")
    for number, less_one in enumerate(headers[1::2]):
        if runs and runs[number // 8] >> (number % 8) & 1:
            position += 2 + 4 * struct.unpack_from("<H", view, position)[0]
        else:
            position += 2 * (less_one + 1) if less_one < _ARRAY_LIMIT else _BITSET_BYTES
    if position > len(view):
        raise _DamagedError(f"it ends {position - len(view)} bytes too early")
    # pyroaring finds what the headers cannot tell: values out of order inside a container.
    BitMap.deserialize(bytes(view[:position]))
    return int(position)
