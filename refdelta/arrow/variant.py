"""Columns of type variant: Arrow's canonical type, and the conversion of stored variants to it.

In Arrow, a variant is ``arrow.parquet.variant``, two columns of bytes. A file may *shred* variants: parts of the values
are stored in separate columns, ``typed_value`` (Parquet's "Variant Shredding"). They are reassembled here with
operations on columns: an encoded value is the concatenation of the bytes of its parts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from refdelta.errors import InvalidArgumentError, UnsupportedTypeError
from refdelta.table import variant as form

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

STORED = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
"""The storage of a variant in Arrow, and in the files that this engine writes."""


class VariantScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """One variant."""

    def as_py(self, **_: Any) -> Any:
        """The value in Python: dicts, lists, and the Python values of Arrow's columns. A variant null and a missing
        variant are both None; ``is_valid`` is false for the latter only.

        Raises:
            ValueError: the bytes are no variant, or hold a time beyond the range of Python's types.
        """
        if not self.is_valid:
            return None
        parts = self.value
        if parts.type != STORED:
            parts = unshredded(pa.array([parts.as_py()], parts.type))[0]
        return form.decode(parts["metadata"].as_py(), parts["value"].as_py())


class VariantType(pa.ExtensionType):  # type: ignore[misc]
    """``arrow.parquet.variant``, Arrow's canonical type for variants, which pyarrow lacks.

    Columns of the engine are never shredded; those that pyarrow reads from files of other engines may be.
    """

    def __init__(self, storage: pa.DataType = STORED):
        super().__init__(storage, "arrow.parquet.variant")

    def __hash__(self) -> int:
        return hash((self.extension_name, str(self.storage_type)))

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> VariantType:
        return cls(storage)

    def __arrow_ext_scalar_class__(self) -> type[VariantScalar]:
        return VariantScalar


VARIANT = VariantType()
"""The type of a variant that is not shredded."""

with contextlib.suppress(pa.ArrowKeyError):  # another library has registered the type
    pa.register_extension_type(VARIANT)


def variants(values: Iterable[Any]) -> pa.ExtensionArray:
    """A column of variants from Python values: dicts, lists, and the Python values of Arrow's columns.

    Args:
        values: one for each row. None is a missing variant.

    Raises:
        UnsupportedTypeError: a variant cannot hold a value of that type, or the name of a field is not a string.
        InvalidArgumentError: a number, a decimal or a time is beyond the range of variants, values are nested too
            deeply, or ``values`` is no list.

    Example::

        both = pa.table({"id": [1, 2], "v": variants([{"a": [1, 2.5]}, "text"])})
        write_deltalake(uri, both)
    """
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes, Mapping)):
        raise InvalidArgumentError(f"values are a list, one for each row, not a {type(values).__name__}")
    rows = [None if value is None else dict(zip(STORED.names, _encoded(value), strict=True)) for value in values]
    return pa.ExtensionArray.from_storage(VARIANT, pa.array(rows, STORED))


def _encoded(value: Any) -> tuple[bytes, bytes]:
    try:
        return form.encode(value)
    except TypeError as error:
        raise UnsupportedTypeError(str(error)) from error
    except ValueError as error:
        raise InvalidArgumentError(f"no variant can hold this value: {error}") from error


def is_variant(kind: pa.DataType) -> bool:
    """Whether a type is Arrow's canonical type for variants, of any library, shredded or not; or that of PySpark, a
    struct with a mark on its field ``metadata``.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return bool(kind.extension_name == VARIANT.extension_name)
    if not pt.is_struct(kind) or {item.name for item in kind} != {"value", "metadata"}:
        return False
    return (kind.field("metadata").metadata or {}).get(b"variant") == b"true"


def plain(array: pa.Array) -> pa.ExtensionArray:
    """Variants of any type for which :func:`is_variant` is true, as :data:`VARIANT`.

    Raises:
        ValueError: they do not follow Parquet's specification.
    """
    if array.type == VARIANT:
        return array
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    return pa.ExtensionArray.from_storage(VARIANT, unshredded(storage))


def stored(array: pa.ExtensionArray) -> pa.StructArray:
    """Variants as :data:`STORED`, for Parquet's writer: the parts of a missing variant are empty and not null."""
    parts = [array.storage.field(name) for name in STORED.names]
    parts = [part.fill_null(b"") if part.null_count else part for part in parts]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(parts, fields=list(STORED), mask=mask)


def from_file(source: pa.DataType, path: str) -> Callable[[pa.Array], pa.Array]:
    """A function that converts a file's column to :data:`VARIANT`.

    Args:
        source: the type of the column, as Arrow reads it from the file.
        path: the column's, for errors.

    Raises:
        ValueError: the type is none that variants are stored as.
    """
    names = {item.name for item in source} if pt.is_struct(source) else set()
    if "metadata" not in names or names.isdisjoint(("value", "typed_value")):
        raise ValueError(f"its column {path} is {source}, where the table has a variant")
    return lambda array: pa.ExtensionArray.from_storage(VARIANT, unshredded(array))


def unshredded(array: pa.StructArray) -> pa.StructArray:
    """Variants as stored in files, shredded or not, as ``struct<metadata, value>``.

    Raises:
        ValueError: they are not put together as Parquet's specification has it.
    """
    parts = dict(zip((item.name for item in array.type), array.flatten(), strict=True))
    metadata = parts["metadata"].cast(pa.binary())
    missing = array.is_null()
    if pc.any(pc.and_not(metadata.is_null(), missing)).as_py():
        raise ValueError("a variant has no metadata")
    value = _values(array, _Names(metadata))
    # A missing value where one is required is a variant null.
    filled = [metadata.fill_null(b"\x01\x00\x00"), value.fill_null(form.NULL_VALUE)]
    return pa.StructArray.from_arrays(filled, fields=list(STORED), mask=missing)


class _Names:
    """The field names of each row, by the row's metadata."""

    def __init__(self, metadata: pa.Array, distinct: Sequence[bytes] = (), codes: NDArray[np.int64] | None = None):
        if codes is None:
            encoded = metadata.dictionary_encode()
            distinct = encoded.dictionary.to_pylist()
            codes = encoded.indices.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
        self.distinct, self.codes = distinct, codes

    def repeated(self, times: NDArray[np.int64]) -> _Names:
        """The names for repeated rows, given how often each row occurs."""
        return _Names(None, self.distinct, np.repeat(self.codes, times))

    def numbers(self, name: str) -> NDArray[np.int64]:
        """The index of a name in each row; -1 if the row lacks it."""
        if not self.distinct:
            return np.full(len(self.codes), -1)
        known = []
        for metadata in self.distinct:
            names = form.names_of(metadata)
            known.append(names.index(name) if name in names else -1)
        return np.array(known, dtype=np.int64)[self.codes]


def _values(group: pa.StructArray, names: _Names) -> pa.BinaryArray:
    """The encoded values of a group of ``value`` and ``typed_value``; null where both are."""
    parts = dict(zip((item.name for item in group.type), group.flatten(), strict=True))
    value = parts["value"].cast(pa.binary()) if "value" in parts else None
    typed = parts.get("typed_value")
    if typed is None:
        return pa.nulls(len(group), pa.binary()) if value is None else value
    if pt.is_struct(typed.type):
        return _objects(typed, value, names)
    made = _arrays(typed, names) if pt.is_list(typed.type) or pt.is_large_list(typed.type) else _primitives(typed)
    return made if value is None else pc.coalesce(made, value)


# --- objects and arrays ------------------------------------------------------------------------------------------


def _objects(typed: pa.StructArray, value: pa.BinaryArray | None, names: _Names) -> pa.BinaryArray:
    rows = len(typed)
    children = dict(zip((item.name for item in typed.type), typed.flatten(), strict=True))
    parts, numbers, ends = [], [], [np.zeros(rows, dtype=np.int64)]
    for name in sorted(children, key=str.encode):
        part = _values(children[name], names)
        present = part.is_valid().to_numpy(zero_copy_only=False)
        number = names.numbers(name)
        if np.any(number[present] < 0):
            raise ValueError(f"a variant's metadata lacks the name of its field {name!r}")
        parts.append(part)
        numbers.append((number, present))
        ends.append(ends[-1] + np.where(present, _lengths(part), 0))
    counts: NDArray[np.int64] = np.sum([present for _, present in numbers], axis=0, dtype=np.int64)
    large, width = counts.max(initial=0) > 255, form.width_of(int(ends[-1].max(initial=0)))
    id_width = form.width_of(max((int(number.max(initial=0)) for number, _ in numbers), default=0))
    start = bytes([form.object_header(id_width, width, large=large)])
    pieces = [_numbers(counts, 4 if large else 1, prefix=start)]
    pieces += [_numbers(number, id_width, valid=present) for number, present in numbers]
    pieces += [_numbers(end, width, valid=present) for end, (_, present) in zip(ends, numbers, strict=False)]
    pieces += [_numbers(ends[-1], width), *parts]
    made = _joined(pieces, typed.is_valid())
    return made if value is None else _completed(made, value, names)


def _completed(made: pa.BinaryArray, value: pa.BinaryArray, names: _Names) -> pa.BinaryArray:
    """Objects, with the fields that have no columns. A value that is not an object is in ``value`` alone."""
    both = np.flatnonzero(pc.and_(made.is_valid(), value.is_valid()).to_numpy(zero_copy_only=False))
    found = pc.coalesce(made, value)
    if not len(both):
        return found
    # Such fields are few if the writer chose the columns well, and their names differ: one row at a time.
    merged = []
    for row in both.tolist():
        metadata = names.distinct[names.codes[row]]
        fields = form.fields_of(metadata, value[row].as_py()) | form.fields_of(metadata, made[row].as_py())
        merged.append(form.object_of(fields, form.names_of(metadata)))
    mask = np.zeros(len(made), dtype=bool)
    mask[both] = True
    return pc.replace_with_mask(found, mask, pa.array(merged, pa.binary()))


def _arrays(typed: pa.Array, names: _Names) -> pa.BinaryArray:
    sizes = pc.list_value_length(typed).fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
    # A missing element is null.
    elements = _values(typed.flatten(), names.repeated(sizes)).fill_null(form.NULL_VALUE)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    total = np.concatenate([[0], np.cumsum(_lengths(elements))])
    # Each array has one offset more than elements.
    shifted = np.arange(len(elements) + len(sizes)) - np.repeat(np.arange(len(sizes)), sizes + 1)
    offsets = total[shifted] - np.repeat(total[starts[:-1]], sizes + 1)
    large, width = sizes.max(initial=0) > 255, form.width_of(int(offsets.max(initial=0)))
    start = bytes([form.array_header(width, large=large)])
    bounds = (starts + np.arange(len(starts))) * width
    pieces = [
        _numbers(sizes, 4 if large else 1, prefix=start),
        _binary(_bytes_of(offsets, width), bounds),
        pc.binary_join(pa.ListArray.from_arrays(pa.array(starts, pa.int32()), elements), b""),
    ]
    return _joined(pieces, typed.is_valid())


# --- primitives --------------------------------------------------------------------------------------------------


def _primitives(array: pa.Array) -> pa.BinaryArray:
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pt.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if pt.is_boolean(kind):
        true, false = (pa.scalar(bytes([form.header(which)])) for which in (form.TRUE, form.FALSE))
        return pc.if_else(array, true, false)
    if pt.is_string(kind) or pt.is_large_string(kind):
        return _sized(array.cast(pa.binary()), form.STRING)
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return _sized(array.cast(pa.binary()), form.BINARY)
    if pt.is_decimal(kind):
        return _decimals(array)
    if pt.is_fixed_size_binary(kind) and kind.byte_width == 16:
        return _joined([pa.scalar(bytes([form.header(form.UUID_)])), array.cast(pa.binary())], array.is_valid())
    for accepts, which, stored in _FIXED:
        if accepts(kind):
            whole = array.cast(kind if stored.startswith("<f") else _plain(kind)).fill_null(0)
            data = whole.to_numpy(zero_copy_only=False).astype(stored)
            return _fixed(_rows_of(data), bytes([form.header(which)]), array.is_valid())
    raise ValueError(f"a variant has a part of Arrow's type {kind}, which no variant has")


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if pt.is_date32(kind) else pa.int64()


def _times(unit: str, *, zone: bool) -> Callable[[pa.DataType], bool]:
    return lambda kind: pt.is_timestamp(kind) and kind.unit == unit and (kind.tz is not None) == zone


_FIXED: list[tuple[Callable[[pa.DataType], bool], int, str]] = [
    (pt.is_int8, form.INT8, "<i1"),
    (pt.is_int16, form.INT16, "<i2"),
    (pt.is_int32, form.INT32, "<i4"),
    (pt.is_int64, form.INT64, "<i8"),
    (pt.is_float32, form.FLOAT, "<f4"),
    (pt.is_float64, form.DOUBLE, "<f8"),
    (pt.is_date32, form.DATE, "<i4"),
    (_times("us", zone=True), form.TIMESTAMP, "<i8"),
    (_times("us", zone=False), form.TIMESTAMP_NTZ, "<i8"),
    (_times("ns", zone=True), form.TIMESTAMP_NANOS, "<i8"),
    (_times("ns", zone=False), form.TIMESTAMP_NTZ_NANOS, "<i8"),
    (lambda kind: kind == pa.time64("us"), form.TIME, "<i8"),
]


def _decimals(array: pa.Array) -> pa.BinaryArray:
    precision, scale = array.type.precision, array.type.scale
    which, width = (
        (form.DECIMAL4, 4) if precision <= 9 else (form.DECIMAL8, 8) if precision <= 18 else (form.DECIMAL16, 16)
    )
    wide = array.cast(pa.decimal128(38, scale))
    # Sixteen bytes each, little-endian: a narrower number has the first bytes.
    data = np.frombuffer(wide.buffers()[1], dtype=np.uint8)[16 * wide.offset :][: 16 * len(wide)].reshape(-1, 16)
    return _fixed(data[:, :width], bytes([form.header(which), scale]), array.is_valid())


def _sized(array: pa.BinaryArray, which: int) -> pa.BinaryArray:
    lengths = _lengths(array)
    prefix = _numbers(lengths, 4, prefix=bytes([form.header(which)]))
    if which == form.STRING:
        short = lengths <= form.MAX_SHORT
        first = _numbers(np.where(short, lengths << 2 | form.SHORT_STRING, 0), 1)
        prefix = pc.if_else(pa.array(short), first, prefix)
    return _joined([prefix, array], array.is_valid())


# --- bytes -------------------------------------------------------------------------------------------------------


def _joined(pieces: Sequence[Any], valid: pa.BooleanArray) -> pa.BinaryArray:
    """The concatenation of the pieces of each row that are not null; null if the row is not valid."""
    joined = pc.binary_join_element_wise(*pieces, b"", null_handling="skip")
    return pc.if_else(valid, joined, pa.scalar(None, pa.binary()))


def _numbers(
    numbers: NDArray[Any], width: int, *, prefix: bytes = b"", valid: NDArray[np.bool_] | None = None
) -> pa.BinaryArray:
    """Each number in a given number of bytes."""
    data = _bytes_of(np.maximum(numbers, 0), width).reshape(-1, width)
    return _fixed(data, prefix, None if valid is None else pa.array(valid))


def _bytes_of(numbers: NDArray[Any], width: int) -> NDArray[np.uint8]:
    return _rows_of(numbers.astype("<i8"))[:, :width].reshape(-1)


def _rows_of(numbers: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(numbers).view(np.uint8).reshape(len(numbers), numbers.dtype.itemsize)


def _fixed(data: NDArray[np.uint8], prefix: bytes, valid: pa.BooleanArray | None) -> pa.BinaryArray:
    """Rows of bytes of the same length, after a prefix."""
    rows, width = len(data), data.shape[1] + len(prefix)
    whole = np.empty((rows, width), dtype=np.uint8)
    whole[:, : len(prefix)] = np.frombuffer(prefix, dtype=np.uint8)
    whole[:, len(prefix) :] = data
    made = _binary(whole, np.arange(rows + 1) * width)
    return made if valid is None else pc.if_else(valid, made, pa.scalar(None, pa.binary()))


def _binary(data: NDArray[np.uint8], bounds: NDArray[Any]) -> pa.BinaryArray:
    offsets = pa.py_buffer(bounds.astype(np.int32))
    return pa.Array.from_buffers(
        pa.binary(), len(bounds) - 1, [None, offsets, pa.py_buffer(np.ascontiguousarray(data))]
    )


def _lengths(array: pa.BinaryArray) -> NDArray[np.int64]:
    found: NDArray[np.int64] = pc.binary_length(array).fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return found
