"""Functions of arrays and batches that Arrow lacks."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow import variant
from refdelta.errors import NotEnoughMemoryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import DTypeLike, NDArray

# Arrow filters a batch by row numbers, also with a mask. If more than this share of the rows is kept, a mask for each
# column is two to five times faster; otherwise it is slower.
_MOST = 0.8
_MANY_BYTES = 16 * 1024  # of text; of fewer, Python's own check is faster
_MANY_VALUES = 4096  # of decimals; of fewer, Arrow's own check is faster
_WORD_DIGITS = 18  # of a number of 64 bits, whatever they are
_DECIMAL_BYTES = 16


def as_numpy(array: pa.Array, kind: DTypeLike) -> NDArray[Any]:
    """The values of an array as numpy's, without a copy. Arrow's own conversion imports pandas, which takes longer than
    the first append of a process.

    Args:
        array: values of a fixed width, in whole bytes. Under a null there is any value.
        kind: numpy's type, of the same width.
    """
    return np.frombuffer(array.buffers()[1] or b"", kind)[array.offset : array.offset + len(array)]


# --- columns in sequence -----------------------------------------------------------------------------------------
#
# An array of strings holds less than 2 GiB of them, since its offsets have 32 bits; a column of a list of files, or of
# rows, may hold more, in chunks. So columns are put together here only, and a column that may be long is gone through
# in pieces.

TEXT_BYTES = 2**31 - 1
"""The most bytes of strings, or of binary values, in one array."""

PIECE_ROWS = 128 * 1024
"""The most rows of a piece of a table."""


def concat(arrays: Iterable[pa.Array], kind: pa.DataType | None = None) -> pa.Array:
    """Arrays in sequence as one array; of ``kind`` if there are none.

    Raises:
        NotEnoughMemoryError: they have more than :data:`TEXT_BYTES` of strings together.
    """
    arrays = list(arrays)
    if len(arrays) < 2:
        return arrays[0] if arrays else pa.nulls(0, kind)
    if sum(array.nbytes for array in arrays) > TEXT_BYTES and (size := _text_bytes(arrays)) > TEXT_BYTES:
        raise NotEnoughMemoryError(
            f"{sum(map(len, arrays)):,} values of a column have {size:,} bytes of strings together; "
            f"at most {TEXT_BYTES:,} can be worked on at once"
        )
    return pa.concat_arrays(arrays)


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array, copied only if it has several chunks. Raises as :func:`concat` does.

    A column without chunks becomes an empty array, also with older versions of pyarrow, whose own function does not.
    """
    return concat(column.chunks, column.type) if isinstance(column, pa.ChunkedArray) else column


def one_batch(rows: pa.Table) -> pa.RecordBatch:
    """A table as one batch. Raises as :func:`concat` does."""
    return pa.RecordBatch.from_arrays([one_array(column) for column in rows.columns], schema=rows.schema)


def _text_bytes(arrays: Sequence[pa.Array]) -> int:
    """The most bytes of strings that one of the columns in arrays of the same type has, nested ones included."""
    kind, types = arrays[0].type, pa.types
    if types.is_string(kind) or types.is_binary(kind):
        return sum(pc.sum(pc.binary_length(array)).as_py() or 0 for array in arrays)
    if types.is_struct(kind):
        return max((_text_bytes([array.field(i) for array in arrays]) for i in range(kind.num_fields)), default=0)
    if types.is_map(kind):
        return _text_bytes([pc.list_flatten(map_as_lists(array)) for array in arrays])
    if types.is_list(kind):
        return _text_bytes([array.flatten() for array in arrays])
    if types.is_dictionary(kind):
        return _text_bytes([array.dictionary for array in arrays])
    return 0


def pieces(rows: pa.Table, most: int | None = None) -> Iterator[pa.Table]:
    """A table as consecutive tables of at most ``most`` rows (:data:`PIECE_ROWS`), each with less than
    :data:`TEXT_BYTES` in all, so that each of its columns fits into one array. At least one piece, which may be empty.
    """
    most = most or PIECE_ROWS
    for start in range(0, max(1, rows.num_rows), most):
        yield from _small_pieces(rows.slice(start, most) if rows.num_rows > most else rows)


def _small_pieces(rows: pa.Table) -> Iterator[pa.Table]:
    if rows.num_rows < 2 or rows.nbytes <= TEXT_BYTES:
        yield rows
        return
    half = rows.num_rows // 2
    yield from _small_pieces(rows.slice(0, half))
    yield from _small_pieces(rows.slice(half))


def few_chunks(rows: pa.Table) -> pa.Table:
    """The rows with one chunk in each column, unless that would have more than :data:`TEXT_BYTES`."""
    return rows.combine_chunks() if rows.nbytes <= TEXT_BYTES else rows


def take(rows: pa.Table, numbers: pa.Array) -> pa.Table:
    """The rows of these numbers, in their order. Arrow's own function first copies each column into one array."""
    chunks = rows.to_batches()
    if len(chunks) == 1:
        return pa.Table.from_batches([chunks[0].take(numbers)], rows.schema)
    ends = np.cumsum([chunk.num_rows for chunk in chunks])
    wanted = np.asarray(numbers, np.int64)
    blocks = (wanted[start : start + PIECE_ROWS] for start in range(0, len(wanted), PIECE_ROWS))
    return pa.Table.from_batches([part for block in blocks for part in _taken(chunks, ends, block)], rows.schema)


def _taken(chunks: list[pa.RecordBatch], ends: NDArray[np.int64], wanted: NDArray[np.int64]) -> list[pa.RecordBatch]:
    places = np.searchsorted(ends, wanted, side="right")
    order = np.argsort(places, kind="stable")
    parts = []
    for place in np.unique(places):
        some = wanted[order][places[order] == place] - (ends[place] - chunks[place].num_rows)
        parts.append(chunks[place].take(pa.array(some)))
    if len(parts) == 1:
        return parts
    if len(wanted) > 1 and sum(part.nbytes for part in parts) > TEXT_BYTES:
        half = len(wanted) // 2
        return _taken(chunks, ends, wanted[:half]) + _taken(chunks, ends, wanted[half:])
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return [one_batch(pa.Table.from_batches(parts)).take(pa.array(back))]


def is_among(values: pa.ChunkedArray | pa.Array, others: pa.ChunkedArray | pa.Array) -> Any:
    """A mask of the values that are among others; of these any number of bytes can be looked up."""
    if not len(others):
        return pc.is_in(values, value_set=pa.nulls(0, others.type))
    parts = pieces(pa.table([others], names=[""]), most=len(others))
    return reduce(pc.or_, (pc.is_in(values, value_set=part.column(0)) for part in parts))


# Types of dictionaries that Arrow cannot decode, and those to which they are cast first.
_TAKEN = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def without_encoding(array: pa.Array) -> pa.Array:
    """The array without dictionary or run-end encoding."""
    if pa.types.is_dictionary(array.type):
        # Categories of Polars are views.
        kind = _TAKEN.get(array.type.value_type)
        if kind is not None:
            array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(kind))
        return without_encoding(array.dictionary_decode())
    if pa.types.is_run_end_encoded(array.type):
        return without_encoding(pc.run_end_decode(array))
    return array


def list_offsets(array: pa.Array) -> pa.Array:
    """Offsets into the flattened values of a list array of any kind; a null list has no values."""
    lengths = pc.cast(pc.fill_null(pc.list_value_length(array), 0), pa.int32())
    return concat([pa.array([0], pa.int32()), pc.cumulative_sum_checked(lengths)])


def map_as_lists(array: pa.Array) -> pa.Array:
    """A map array as lists of its entries, for which Arrow has more functions."""
    return array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values, or None, as an array: same as ``pa.array``, but ASCII strings, integers, doubles, decimals, days and
    booleans do not load pandas.

    Arrow imports pandas, if it is installed, when it converts the first value: that takes longer than reading a table's
    log, and as much memory as a list of 100,000 files.
    """
    convert = _CONVERT.get(kind)
    if pa.types.is_null(kind) or (convert is not None and all_missing(values)):
        return pa.nulls(len(values), kind)
    if convert is None:
        digits = _digits(values) if pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind) else None
        return pa.array(values, kind) if digits is None else array_of(digits, pa.string()).cast(kind)
    try:
        buffers = convert(values)
        known = None
    except TypeError:  # a value is None, which is rare
        known = _bits([value is not None for value in values])
        buffers = convert([_FILL[kind] if value is None else value for value in values])
    if buffers is None:
        return pa.array(values, kind)
    return pa.Array.from_buffers(kind, len(values), [known, *buffers])


def mask_of(flags: NDArray[np.bool_]) -> pa.BooleanArray:
    """The flags of numpy as an array, without loading pandas, as for :func:`array_of`."""
    return pa.Array.from_buffers(pa.bool_(), len(flags), [None, _bits(flags)])


def exact_sum(numbers: pa.Array | pa.ChunkedArray) -> int:
    """The sum of 64-bit integers, which 64 bits need not hold: that of Arrow begins again at the other end."""
    if sum_fits(numbers):
        return pc.sum(numbers).as_py() or 0
    return sum(numbers.drop_null().to_pylist())


def sum_fits(numbers: pa.Array | pa.ChunkedArray) -> bool:
    """Whether 64 bits hold the sum of any of these integers."""
    ends: dict[str, int | None] = pc.min_max(numbers).as_py()
    return len(numbers) * max(abs(ends["min"] or 0), abs(ends["max"] or 0)) < 2**63


def scalar_of(value: Any, kind: pa.DataType) -> pa.Scalar:
    """A value, or None, as a scalar: same as ``pa.scalar``, but without loading pandas, as for :func:`array_of`."""
    return (pa.nulls(1, kind) if value is None else array_of([value], kind))[0]


def nested_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Same as :func:`array_of`, for nested types: dicts for structs, sequences for lists, lists of pairs for maps."""
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        dicts = [value or {} for value in values]
        columns = [nested_array([value.get(field.name) for value in dicts], field.type) for field in fields]
        missing = array_of([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(columns, fields=fields, mask=missing)
    if not (pa.types.is_list(kind) or pa.types.is_map(kind)):
        return array_of(values, kind)
    items = [item for value in values for item in value or ()]
    ends = itertools.accumulate(len(value or ()) for value in values)
    offsets = array_of([0, *ends], pa.int32())
    missing = array_of([value is None for value in values], pa.bool_())
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(offsets, nested_array(items, kind.value_type), type=kind, mask=missing)
    keys = nested_array([key for key, _ in items], kind.key_type)
    contents = nested_array([item for _, item in items], kind.item_type)
    return pa.MapArray.from_arrays(offsets, keys, contents, type=kind, mask=missing)


def all_missing(values: Sequence[Any]) -> bool:
    """Whether each value is None."""
    return not values or (values[0] is None and values.count(None) == len(values))


def _texts(values: Sequence[str]) -> list[pa.Buffer] | None:
    text = "".join(values)
    if not text.isascii() or len(text) >= 2**31:
        return None
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(np.fromiter(map(len, values), dtype=np.int32, count=len(values)), out=offsets[1:])
    return [pa.py_buffer(offsets), pa.py_buffer(text.encode())]


def _longs(values: Sequence[int]) -> list[pa.Buffer]:
    return [pa.py_buffer(np.array(values, dtype=np.int64))]


def _ints(values: Sequence[int]) -> list[pa.Buffer]:
    return [pa.py_buffer(np.array(values, dtype=np.int32))]


def _flags(values: Sequence[bool]) -> list[pa.Buffer]:
    if None in values:
        raise TypeError("numpy takes None for false")
    return [_bits(values)]


def _doubles(values: Sequence[float]) -> list[pa.Buffer] | None:
    return [pa.py_buffer(np.array(values, dtype=np.float64))] if _all_of(float, values) else None


def _days(values: Sequence[dt.date]) -> list[pa.Buffer] | None:
    return _ints([day.toordinal() - _EPOCH for day in values]) if _all_of(dt.date, values) else None


def _digits(values: Sequence[decimal.Decimal | None]) -> list[str | None] | None:
    """Decimals as strings; None if there are other values."""
    if {*map(type, values)} <= {decimal.Decimal, type(None)}:
        return [None if value is None else str(value) for value in values]
    return None


def _all_of(kind: type, values: Sequence[Any]) -> bool:
    """Whether all values are of this type, and not of a type below it. Raises ``TypeError`` if one of them is None."""
    kinds = {*map(type, values)}
    if type(None) in kinds:
        raise TypeError("a value is None")
    return kinds == {kind}


def _bits(flags: Sequence[bool] | NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.array(flags, dtype=bool), bitorder="little"))


_CONVERT: dict[Any, Callable[[Sequence[Any]], list[Any] | None]] = {
    pa.string(): _texts,
    pa.int64(): _longs,
    pa.int32(): _ints,
    pa.bool_(): _flags,
    pa.float64(): _doubles,
    pa.date32(): _days,
}
_EPOCH = dt.date(1970, 1, 1).toordinal()
_FILL: dict[Any, Any] = {
    pa.string(): "",
    pa.int64(): 0,
    pa.int32(): 0,
    pa.bool_(): False,
    pa.float64(): 0.0,
    pa.date32(): dt.date(1970, 1, 1),
}

# Of a plain False or 0 Arrow makes a scalar, for which it loads pandas.
ARROW_FALSE, ARROW_TRUE = array_of([False, True], pa.bool_())
ARROW_ZERO = scalar_of(0, pa.int64())


def empty_table(schema: pa.Schema) -> pa.Table:
    """A table without rows, as ``schema.empty_table()``, but without loading pandas, and also with variants."""
    return pa.table([pa.nulls(0, field.type) for field in schema], schema=schema)


def as_schema(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """A batch of columns, cast to the types of the schema."""
    arrays = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def with_names(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values as a type with other names of nested fields, and with variants in their stored form. Nothing is
    copied.
    """
    if isinstance(array, pa.ExtensionArray):
        return variant.stored(array)
    if pa.types.is_struct(kind):
        parts = [with_names(array.field(index), field.type) for index, field in enumerate(kind)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        parts = [with_names(array.keys, kind.key_type), with_names(array.items, kind.item_type)]
        child = pa.StructArray.from_arrays(parts, fields=[kind.key_field, kind.item_field])
    elif pa.types.is_list(kind):
        child = with_names(array.values, kind.value_type)
    else:
        return array
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], offset=array.offset, children=[child])


def take_rows(batch: pa.RecordBatch, numbers: pa.Array) -> pa.RecordBatch:
    """Some rows of a batch, by ascending row numbers."""
    if not batch.num_columns or len(numbers) <= _MOST * batch.num_rows:
        return batch.take(numbers)
    mask = np.zeros(batch.num_rows, dtype=bool)
    mask[numbers.to_numpy()] = True
    return filter_rows(batch, pa.array(mask))


def filter_rows(batch: pa.RecordBatch, mask: pa.BooleanArray) -> pa.RecordBatch:
    """The rows of a batch for which a mask is true."""
    if not batch.num_columns or mask.true_count <= _MOST * batch.num_rows:
        return batch.filter(mask)
    return pa.RecordBatch.from_arrays([column.filter(mask) for column in batch.columns], schema=batch.schema)


def is_flat(kind: pa.DataType) -> bool:
    """Whether the values of a type are fixed-width or byte strings, or a dictionary of these: then rows can be left out
    before the values are checked.
    """
    types = pa.types
    if types.is_dictionary(kind):
        return is_flat(kind.value_type)
    return (
        any(one(kind) for one in (types.is_primitive, types.is_string, types.is_binary, types.is_decimal))
        or types.is_large_string(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
    )


def check_values(batch: pa.RecordBatch) -> None:
    """Check that a batch from a file is valid, for example that strings are UTF-8: Parquet's reader does not check it.

    Raises:
        pyarrow.ArrowInvalid: it is not valid.
    """
    for column in batch.columns:
        # Arrow's check takes a tenth of the time of reading. Most strings are ASCII, and most decimals are not negative
        # and have few digits, for which there are faster ones.
        if not _is_ascii(column) and not _has_few_digits(column):
            column.validate(full=True)


def check_texts(batch: pa.RecordBatch) -> None:
    """Same as :func:`check_values`, for all columns but decimals."""
    for column in batch.columns:
        if not pa.types.is_decimal(column.type) and not _is_ascii(column):
            column.validate(full=True)


def check_decimals(batch: pa.RecordBatch) -> None:
    """Same as :func:`check_values`, for columns of decimals, some of which may have too many digits."""
    for column in batch.columns:
        if pa.types.is_decimal(column.type) and not _has_few_digits(column):
            column.validate(full=True)


def _is_ascii(column: pa.Array) -> bool:
    kind = column.type
    if pa.types.is_dictionary(kind) and len(column.dictionary):
        places = pc.min_max(column.indices)
        lowest, highest = (places[name].as_py() or 0 for name in ("min", "max"))
        return 0 <= lowest <= highest < len(column.dictionary) and _is_ascii(column.dictionary)
    if not pa.types.is_string(kind):
        return False
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return False
    ends = memoryview(offsets).cast("i")
    first, last = ends[column.offset], ends[column.offset + len(column)]
    if not 0 <= first <= last <= data.size:
        return False
    if last - first < _MANY_BYTES:
        return bool(data.slice(first, last - first).to_pybytes().isascii())
    # numpy copies nothing, and releases the interpreter's lock.
    return bool(np.frombuffer(data, np.int8, last - first, first).min() >= 0)


def _has_few_digits(column: pa.Array) -> bool:
    """True for a column of decimals of 128 bits, without nulls and negative values, all of which have at most 18 digits
    and at most the digits of their type.
    """
    kind = column.type
    if not pa.types.is_decimal128(kind) or kind.precision > _WORD_DIGITS or len(column) < _MANY_VALUES:
        return False
    _, data = column.buffers()
    if column.null_count or data is None or data.size < _DECIMAL_BYTES * (column.offset + len(column)):
        return False
    words = np.frombuffer(data, np.int64, 2 * len(column), _DECIMAL_BYTES * column.offset)
    return bool(words.min() >= 0 and words.max() < 10**kind.precision and words[1::2].max() == 0)


def text_of(column: pa.StringArray) -> bytes:
    """The concatenated values of a valid column."""
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return b""
    first, last = (memoryview(offsets).cast("i")[column.offset + at] for at in (0, len(column)))
    text: bytes = data.slice(first, last - first).to_pybytes()
    return text


def floor_divide(array: Any, divisor: int) -> Any:
    """Integers divided by a positive one, rounded down; Arrow rounds towards zero."""
    cut = pc.divide(array, divisor)
    below = pc.less(pc.subtract(array, pc.multiply(cut, divisor)), 0)
    return pc.subtract(cut, below.cast(cut.type))


def modulo(array: Any, divisor: int) -> Any:
    """The remainder of :func:`floor_divide`; never negative."""
    return pc.subtract(array, pc.multiply(floor_divide(array, divisor), divisor))


def narrowed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows in a schema whose structs have some of their fields, at any depth."""
    arrays = [_narrowed(*pair) for pair in zip(batch.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else batch


def _narrowed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind or not pa.types.is_struct(kind):
        return array
    children = [_narrowed(array.field(field.name), field.type) for field in kind]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
