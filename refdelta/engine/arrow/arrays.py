"""Small things that Arrow leaves to its callers."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.engine.arrow import variant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Arrow picks rows of a batch by their numbers, whatever it is given; where so many stay, by a mask column by column is
# two to five times faster, and otherwise slower.
_MOST = 0.8


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array, copied only where it is in several pieces.

    A column without any piece is an empty array; older versions of pyarrow leave that one chunked.
    """
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values, or None, as an array: ``pa.array``, but for ASCII texts, numbers and truths without pandas.

    Arrow imports pandas, where it is installed, as soon as it converts the first value: that takes longer than reading
    a table's log, and as much memory as a list of 100,000 files.
    """
    convert = _CONVERT.get(kind)
    if convert is None:
        return pa.array(values, kind)
    if all_missing(values):
        return pa.nulls(len(values), kind)
    try:
        buffers = convert(values)
        known = None
    except TypeError:  # most often no value is missing, and so that is not asked first
        known = _bits([value is not None for value in values])
        buffers = convert([_FILL[kind] if value is None else value for value in values])
    if buffers is None:
        return pa.array(values, kind)
    return pa.Array.from_buffers(kind, len(values), [known, *buffers])


def nested_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """As :func:`array_of`, for values of any depth: dicts for structs, sequences for lists, pairs in them for maps."""
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


def _bits(flags: Sequence[bool]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.array(flags, dtype=bool), bitorder="little"))


_CONVERT: dict[Any, Callable[[Sequence[Any]], list[Any] | None]] = {
    pa.string(): _texts,
    pa.int64(): _longs,
    pa.int32(): _ints,
    pa.bool_(): _flags,
}
_FILL = {pa.string(): "", pa.int64(): 0, pa.int32(): 0, pa.bool_(): False}


def empty_table(schema: pa.Schema) -> pa.Table:
    """A table without rows, as ``schema.empty_table()`` makes it, for the reason of :func:`array_of`; and
    with variants, for which that has no way.
    """
    return pa.table([pa.nulls(0, field.type) for field in schema], schema=schema)


def as_schema(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """A batch of these columns, each cast where the schema has another type for it."""
    arrays = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def with_names(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values as a type that differs in the names of nested fields alone, and in variants being what files
    hold; nothing is copied.
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
    """Some rows of a batch, by their numbers, which ascend."""
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


def check_values(batch: pa.RecordBatch) -> None:
    """Look whether a batch that came from a file is what Arrow takes it for: its texts UTF-8, above all, at which
    Parquet's reader does not look.

    Raises:
        pyarrow.ArrowInvalid: it is not.
    """
    check_texts(batch)
    check_decimals(batch)


def check_texts(batch: pa.RecordBatch) -> None:
    """As :func:`check_values`, but for columns of decimals."""
    for column in batch.columns:
        # Text by text, the check takes a tenth of the time of reading; of most tables, text is ASCII.
        if not pa.types.is_decimal(column.type) and not _is_ascii(column):
            column.validate(full=True)


def check_decimals(batch: pa.RecordBatch) -> None:
    """As :func:`check_values`, of columns of decimals: whether one has too many digits. They can be compared so too."""
    for column in batch.columns:
        if pa.types.is_decimal(column.type):
            column.validate(full=True)


def _is_ascii(column: pa.Array) -> bool:
    if pa.types.is_dictionary(column.type) and len(column.dictionary):
        places = pc.min_max(column.indices)
        lowest, highest = (places[name].as_py() or 0 for name in ("min", "max"))
        return 0 <= lowest <= highest < len(column.dictionary) and _is_ascii(column.dictionary)
    if not pa.types.is_string(column.type):
        return False
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return False
    first, last = (memoryview(offsets).cast("i")[column.offset + at] for at in (0, len(column)))
    return bool(0 <= first <= last <= data.size and data.slice(first, last - first).to_pybytes().isascii())


def text_of(column: pa.StringArray) -> bytes:
    """The values of a valid column, one after another."""
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
    """What is left of :func:`floor_divide`; never negative."""
    return pc.subtract(array, pc.multiply(floor_divide(array, divisor), divisor))
