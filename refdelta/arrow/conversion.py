"""Types of a write's rows that become another type on the way to the table: extension types, which Delta does not have,
and local times, which become points in time.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from msgspec import structs

from refdelta.arrow.arrays import list_offsets, map_as_lists, scalar_of, without_encoding
from refdelta.arrow.schema import is_bool8, is_uuid
from refdelta.arrow.variant import is_variant
from refdelta.table.types import BINARY, TIMESTAMP, ArrayType, DataType, MapType, StructType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_DASHES = (8, 13, 18, 23)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_POSITIONS = np.array([place for place in range(36) if place not in _DASHES])


def uuid_strings(array: pa.Array) -> pa.Array:
    """The canonical strings of UUIDs, in small letters: as Spark's ``uuid()`` and Python's ``str`` have them.

    Args:
        array: of type ``arrow.uuid``.
    """
    storage, rows = array.storage, len(array)
    if not rows:
        return pa.array([], pa.string())
    data = np.frombuffer(storage.buffers()[1], np.uint8, count=16 * rows, offset=16 * storage.offset).reshape(rows, 16)
    text = np.full((rows, 36), ord("-"), np.uint8)
    digits = np.empty((rows, 32), np.uint8)
    digits[:, 0::2], digits[:, 1::2] = _HEX[data >> 4], _HEX[data & 15]
    text[:, _POSITIONS] = digits
    ends = np.arange(0, 36 * (rows + 1), 36, dtype=np.int64)
    strings = pa.Array.from_buffers(pa.large_string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(text)])
    strings = strings.cast(pa.string())
    return pc.if_else(storage.is_null(), pa.scalar(None, pa.string()), strings) if storage.null_count else strings


_HAS_ZONE = r"[ T] *[0-9][0-9:.]* *[^0-9:. ]"


def zoned_strings(array: pa.Array, zone: str) -> pa.Array:
    """Strings with the name of a zone at the end of those that have none, for casts to points in time."""
    bare = pc.invert(pc.match_substring_regex(array, _HAS_ZONE))
    # A date alone has no time that a zone could follow.
    date = pc.match_substring_regex(array, "^ *[^ T:]+ *$")
    clock = pc.if_else(date, " 00:00 ", " ")
    end = scalar_of(zone, array.type)
    return pc.if_else(bare, pc.binary_join_element_wise(pc.utf8_trim_whitespace(array), clock, end, ""), array)


def instants(array: pa.Array, zone: str) -> pa.Array:
    """Local times of a zone as points in time, by the rules of Spark's session time zone.

    A time that occurs twice, when clocks are set back, is the earlier of the two; a time that is left out, when clocks
    are set forward, is later by the time that is left out.

    Args:
        array: of a timestamp type without a zone, or dates, which are the beginning of the day.
        zone: the name of a time zone.

    Returns:
        Timestamps of zone UTC, in the unit of the array; of dates in microseconds.
    """
    local = array.cast(pa.timestamp("us")) if pt.is_date(array.type) else array
    unit, number = local.type.unit, pa.int64()
    if zone == "UTC":
        return local.cast(pa.timestamp(unit, "UTC"))
    found = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="earliest")
    # For a time that does not exist, Arrow has the last moment before the gap, which has the offset to apply.
    offset = pc.subtract(pc.local_timestamp(found).cast(number), found.cast(number))
    return pc.subtract(local.cast(number), offset).cast(pa.timestamp(unit, "UTC"))


class Conversion(msgspec.Struct, frozen=True):
    """The conversion of rows of one schema; made by :func:`conversion`.

    Attributes:
        schema: the schema after it.
    """

    schema: pa.Schema
    _columns: tuple[Callable[[pa.Array], pa.Array] | None, ...]

    @property
    def changes(self) -> bool:
        """Whether a column changes."""
        return any(self._columns)

    def apply(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows after the conversion."""
        for batch in batches:
            arrays = [
                column if convert is None else convert(column)
                for column, convert in zip(batch.columns, self._columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def conversion(schema: pa.Schema, table: StructType | None, zone: str | None) -> Conversion:
    """The conversion of rows on the way to a table, at every depth.

    UUIDs become strings, and stay bytes where the table has a binary; ``arrow.bool8`` becomes a boolean; other
    extension types but variants become their storage types. Times without a zone become points in time where the table
    has a ``timestamp``, or no such column; dates where it has a ``timestamp``, and strings there are given the zone.

    Args:
        schema: the schema of the rows.
        table: the schema of the table, whose columns are found by name; None for a new table.
        zone: the zone of the times; None leaves them without one.
    """
    # A schema with metadata, as pandas makes them, has no hash in older releases of pyarrow.
    plain = schema.remove_metadata()
    try:
        found = _conversion(plain, table, zone)
    except TypeError:  # the extension types of other programs may have no hash
        found = _conversion.__wrapped__(plain, table, zone)
    return (
        found if schema.metadata is None else structs.replace(found, schema=found.schema.with_metadata(schema.metadata))
    )


@functools.lru_cache(maxsize=32)  # appends often have the same schema
def _conversion(schema: pa.Schema, table: StructType | None, zone: str | None) -> Conversion:
    fields, columns = _fields(list(schema), table, zone)
    return Conversion(pa.schema(fields), tuple(columns))


def _fields(
    fields: Sequence[pa.Field], table: DataType | None, zone: str | None
) -> tuple[list[pa.Field], list[Callable[[pa.Array], pa.Array] | None]]:
    known = {item.name.lower(): item.type for item in table} if isinstance(table, StructType) else {}
    found = [_one(item.type, known.get(item.name.lower()), zone) for item in fields]
    made = [item if one is None else item.with_type(one[0]) for item, one in zip(fields, found, strict=True)]
    return made, [one and one[1] for one in found]


def _one(
    data: pa.DataType, table: DataType | None, zone: str | None
) -> tuple[pa.DataType, Callable[[pa.Array], pa.Array]] | None:
    """The new type of a column and its conversion; None if it does not change."""
    if isinstance(data, pa.BaseExtensionType):
        return None if is_variant(data) else _extension(data, table, zone)
    if pt.is_dictionary(data) or pt.is_run_end_encoded(data):
        inner = _one(data.value_type, table, zone)
        if inner is None:
            return None
        kind, convert = inner
        return kind, lambda array: convert(without_encoding(array))
    if zone is not None and (
        (pt.is_timestamp(data) and data.tz is None and table in (None, TIMESTAMP))
        or (pt.is_date(data) and table == TIMESTAMP)
    ):
        unit = "us" if pt.is_date(data) else data.unit
        return pa.timestamp(unit, "UTC"), lambda array: instants(array, zone)
    if zone is not None and table == TIMESTAMP and (pt.is_string(data) or pt.is_large_string(data)):
        return data, lambda array: zoned_strings(array, zone)
    if pt.is_struct(data):
        return _struct(data, table, zone)
    if pt.is_map(data):
        return _map(data, table, zone)
    if getattr(data, "value_field", None) is not None:
        return _list(data, table, zone)
    return None


def _extension(
    data: pa.BaseExtensionType, table: DataType | None, zone: str | None
) -> tuple[pa.DataType, Callable[[pa.Array], pa.Array]]:
    if is_uuid(data) and table != BINARY:
        return pa.string(), uuid_strings
    if is_bool8(data):
        return pa.bool_(), lambda array: pc.not_equal(array.storage, 0)
    inner = _one(data.storage_type, table, zone)
    if inner is None:
        return data.storage_type, lambda array: array.storage
    kind, convert = inner
    return kind, lambda array: convert(array.storage)


def _struct(
    data: pa.DataType, table: DataType | None, zone: str | None
) -> tuple[pa.DataType, Callable[[pa.Array], pa.Array]] | None:
    fields, parts = _fields(list(data.fields), table, zone)
    if not any(parts):
        return None

    def convert(array: pa.Array) -> pa.Array:
        # flatten() makes a child null where its parent is null, and respects slices.
        arrays = [child if part is None else part(child) for child, part in zip(array.flatten(), parts, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=array.is_null() if array.null_count else None)

    return pa.struct(fields), convert


def _list(
    data: pa.DataType, table: DataType | None, zone: str | None
) -> tuple[pa.DataType, Callable[[pa.Array], pa.Array]] | None:
    inner = _one(data.value_type, table.element if isinstance(table, ArrayType) else None, zone)
    if inner is None:
        return None
    element, change = inner
    kind = pa.list_(data.value_field.with_type(element))

    def convert(array: pa.Array) -> pa.Array:
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(list_offsets(array), change(array.flatten()), type=kind, mask=mask)

    return kind, convert


def _map(
    data: pa.DataType, table: DataType | None, zone: str | None
) -> tuple[pa.DataType, Callable[[pa.Array], pa.Array]] | None:
    known = table if isinstance(table, MapType) else None
    key = _one(data.key_type, known and known.key, zone)
    value = _one(data.item_type, known and known.value, zone)
    if key is None and value is None:
        return None
    kind = pa.map_(
        data.key_field if key is None else data.key_field.with_type(key[0]),
        data.item_field if value is None else data.item_field.with_type(value[0]),
    )

    def convert(array: pa.Array) -> pa.Array:
        lists = map_as_lists(array)
        keys, values = lists.flatten().flatten()
        keys = keys if key is None else key[1](keys)
        values = values if value is None else value[1](values)
        mask = lists.is_null() if lists.null_count else None
        return pa.MapArray.from_arrays(list_offsets(lists), keys, values, type=kind, mask=mask)

    return kind, convert
