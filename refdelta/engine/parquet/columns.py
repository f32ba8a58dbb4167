"""The columns of a data file as columns of the table: names, field ids, missing columns, and types.

A file has the schema of the time at which it was written, by any engine. Its columns are found by field id, by physical
name, or by physical name in another case (PROTOCOL.md, "Column Mapping", "Type Widening"); missing columns are null.
Where columns are found by field id, a file without any is refused: by its names it might hold others.
Columns of the right type are passed on, and nested columns are rebuilt around their buffers, so that only a leaf that
is cast is copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pt

from refdelta.arrow import variant
from refdelta.arrow.arrays import list_offsets
from refdelta.arrow.char_padding import padder
from refdelta.arrow.schema import arrow_type
from refdelta.table.row_tracking import kind_of
from refdelta.table.types import (
    TIMESTAMP,
    VARIANT,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    field_id,
    physical_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from refdelta.engine.parquet.legacy_calendar import LegacyCalendar

    Convert = Callable[[Any], Any]

_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True)
class ColumnSource:
    """The source of one column of the table in one file.

    Attributes:
        name: the file's column, or None if the file lacks it and the column is null.
        type: the Arrow type of the result.
        convert: converts the file's array to ``type``; None if it has that type.
    """

    name: str | None
    type: pa.DataType
    convert: Convert | None = None

    @property
    def is_text(self) -> bool:
        """Whether the column has strings that need no conversion."""
        return self.convert is None and pt.is_string(self.type)

    def read(self, batch: pa.RecordBatch) -> pa.Array:
        """The column of a batch of the file."""
        if self.name is None:
            return pa.nulls(batch.num_rows, self.type)
        array = batch.column(self.name)
        return array if self.convert is None else self.convert(array)


@dataclass(frozen=True)
class _FileTraits:
    """The properties of a file on which the conversion of each column depends."""

    by_id: bool
    calendar: LegacyCalendar | None


def plan_columns(
    file_schema: pa.Schema, fields: Sequence[StructField], *, by_id: bool, calendar: LegacyCalendar | None = None
) -> list[ColumnSource]:
    """How to read columns of the table from a file.

    Args:
        file_schema: the file's schema as Arrow reads it.
        fields: the table's columns that are wanted, none of them a partition column.
        by_id: whether columns are found by field id (column mapping mode ``id``).
        calendar: the use of Spark's old calendar in the file; None if it is not used.

    Returns:
        One source for each of ``fields``.

    Raises:
        ValueError: a column of the file cannot become the table's type; or columns are found by field id, and the file
            has no ids.
    """
    if by_id and len(file_schema) and not has_field_ids(file_schema) and any(map(_needs_id, fields)):
        raise ValueError(
            "it has no field ids, and columns of this table are found by them (delta.columnMapping.mode is id): its "
            "writer must write them"
        )
    form = _FileTraits(by_id, calendar)
    sources, candidates = [], _Candidates(file_schema)
    for wanted in fields:
        # Other engines give no ids to the columns in which rows keep theirs.
        found = candidates.match(wanted, by_id=form.by_id and kind_of(wanted) is None)
        target = arrow_type(wanted.type)
        if found is None or pt.is_null(target):
            sources.append(ColumnSource(None, target))
        else:
            convert = _converter(found.type, wanted.type, form, wanted.name)
            sources.append(ColumnSource(found.name, target, _padded(convert, wanted)))
    return sources


def _needs_id(wanted: StructField) -> bool:
    """True for a column that is found by its field id, where columns are: not for those that no file holds."""
    return field_id(wanted) is not None and kind_of(wanted) is None and not pt.is_null(arrow_type(wanted.type))


def has_field_ids(fields: Iterable[pa.Field]) -> bool:
    """True if a column of a file, or a part of one at any depth, has a field id."""
    return any(
        _id_of(item) is not None or has_field_ids(item.type.field(place) for place in range(item.type.num_fields))
        for item in fields
    )


def _padded(convert: Convert | None, column: StructField) -> Convert | None:
    pad = padder(column)
    return convert if pad is None else pad if convert is None else _then(convert, pad)


def _id_of(item: pa.Field) -> int | None:
    value = (item.metadata or {}).get(_FIELD_ID)
    return None if value is None else int(value)


class _Candidates:
    """The fields of a file, or of a struct in it, by the properties by which a field is found."""

    def __init__(self, fields: Iterable[pa.Field]):
        self._fields = list(fields)
        self.places = {item.name: place for place, item in reversed([*enumerate(self._fields)])}

    @cached_property
    def _by_id(self) -> dict[int, pa.Field]:
        # Of fields that are found by the same property, the first one counts.
        return {number: item for item in reversed(self._fields) if (number := _id_of(item)) is not None}

    @cached_property
    def _by_folded_name(self) -> dict[str, pa.Field]:
        return {item.name.lower(): item for item in reversed(self._fields)}

    def match(self, wanted: StructField, *, by_id: bool) -> pa.Field | None:
        """The field of the file for a field of the table; None if there is none."""
        number = field_id(wanted) if by_id else None
        # The column of the change data feed has no id.
        if number is not None:
            return self._by_id.get(number)
        name = physical_name(wanted)
        place = self.places.get(name)
        # Spark ignores the case of names, and may have written a file with another spelling.
        return self._by_folded_name.get(name.lower()) if place is None else self._fields[place]


def _converter(source: pa.DataType, target: DataType, form: _FileTraits, path: str) -> Convert | None:
    if pt.is_dictionary(source):
        inner = _converter(source.value_type, target, form, path)
        return _then(lambda array: array.dictionary_decode(), inner)
    if pt.is_null(source):  # only nulls: the writer did not know the type
        return lambda array: pa.nulls(len(array), arrow_type(target))
    if isinstance(source, pa.BaseExtensionType):
        return _then(lambda array: array.storage, _converter(source.storage_type, target, form, path))
    if target == VARIANT:
        return variant.from_file(source, path)
    match target:
        case StructType():
            return _struct(source, target, form, path)
        case ArrayType():
            return _list(source, target, form, path)
        case MapType():
            return _map(source, target, form, path)
    leaf = _leaf(source, arrow_type(target), path)
    return leaf if form.calendar is None else _moved(leaf, source, target, form.calendar)


def _moved(leaf: Convert | None, source: pa.DataType, target: DataType, calendar: LegacyCalendar) -> Convert | None:
    """The conversion of a leaf of a file in the hybrid calendar, in which times without zone never are."""
    if calendar.dates and pt.is_date(source):
        return _then(calendar.move, leaf)
    if calendar.times and pt.is_timestamp(source) and target == TIMESTAMP:
        return calendar.move if leaf is None else _then(leaf, calendar.move)
    return leaf


def _leaf(source: pa.DataType, target: pa.DataType, path: str) -> Convert | None:
    if source == target:
        return None
    if pt.is_nested(source):
        raise ValueError(f"its column {path} is {source}, where the table has {target}")
    if pt.is_timestamp(source) and source.unit == "ns" and pt.is_timestamp(target):
        # Times of Delta have microseconds. Further digits are cut off, as in Spark.
        return lambda array: array.cast(target, safe=False)
    if pt.is_fixed_size_binary(source) and pt.is_string(target):
        return lambda array: array.cast(pa.binary()).cast(target)
    return lambda array: array.cast(target)


def _struct(source: pa.DataType, target: StructType, form: _FileTraits, path: str) -> Convert | None:
    if not pt.is_struct(source):
        raise ValueError(f"its column {path} is {source}, where the table has a struct")
    arrow = arrow_type(target)
    candidates = _Candidates(source)
    parts: list[tuple[int | None, Convert | None]] = []
    for wanted in target:
        found = candidates.match(wanted, by_id=form.by_id)
        if found is None or pt.is_null(arrow_type(wanted.type)):
            parts.append((None, None))
        else:
            inner = _converter(found.type, wanted.type, form, f"{path}.{wanted.name}")
            parts.append((candidates.places[found.name], inner))
    if source == arrow and parts == [(i, None) for i in range(len(arrow))]:
        return None

    def convert(array: pa.StructArray) -> pa.StructArray:
        children = [
            pa.nulls(len(array), arrow[i].type)
            if index is None
            else array.field(index)
            if inner is None
            else inner(array.field(index))
            for i, (index, inner) in enumerate(parts)
        ]
        mask = array.is_null() if array.null_count else None
        if not children:
            return pa.nulls(len(array), arrow) if mask is not None else array.cast(arrow)
        return pa.StructArray.from_arrays(children, fields=list(arrow), mask=mask)

    return convert


def _list(source: pa.DataType, target: ArrayType, form: _FileTraits, path: str) -> Convert | None:
    arrow = arrow_type(target)
    if any(odd(source) for odd in (pt.is_large_list, pt.is_fixed_size_list, pt.is_list_view, pt.is_large_list_view)):
        plain = pa.list_(source.value_field)
        return _then(lambda array: _as_list(array, plain), _list(plain, target, form, path))
    if not pt.is_list(source):
        raise ValueError(f"its column {path} is {source}, where the table has an array")
    inner = _converter(source.value_type, target.element, form, f"{path}.element")
    if inner is None and source.equals(arrow, check_metadata=False) and _same_children(source, arrow):
        return None
    return lambda array: _rebuilt(array, arrow, array.values if inner is None else inner(array.values))


def _map(source: pa.DataType, target: MapType, form: _FileTraits, path: str) -> Convert | None:
    arrow = arrow_type(target)
    entries = _entries(source, path)
    keys = _converter(entries[0].type, target.key, form, f"{path}.key")
    values = _converter(entries[1].type, target.value, form, f"{path}.value")
    if pt.is_map(source) and keys is None and values is None and source == arrow and _same_children(source, arrow):
        return None

    def convert(array: pa.Array) -> pa.MapArray:
        key, value = (array.keys, array.items) if pt.is_map(array.type) else array.values.flatten()
        children = [key if keys is None else keys(key), value if values is None else values(value)]
        fields = [arrow.key_field, arrow.item_field]
        return _rebuilt(array, arrow, pa.StructArray.from_arrays(children, fields=fields))

    return convert


def _entries(source: pa.DataType, path: str) -> tuple[pa.Field, pa.Field]:
    """Key and value of a map. Files of old writers lack the annotation, so that a map looks like a list of pairs."""
    if pt.is_map(source):
        return source.key_field, source.item_field
    if pt.is_list(source) and pt.is_struct(source.value_type) and source.value_type.num_fields == 2:
        return source.value_type[0], source.value_type[1]
    raise ValueError(f"its column {path} is {source}, where the table has a map")


def _as_list(array: pa.Array, target: pa.DataType) -> pa.ListArray:
    """Lists of another kind as plain lists. Arrow's own cast of a list view may return too few offsets."""
    offsets = list_offsets(array)
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(offsets, array.flatten(), type=target, mask=mask)


def _same_children(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether two types are equal with the names of nested fields, which Arrow's own comparison ignores."""
    return str(source) == str(target)


def _rebuilt(array: pa.Array, target: pa.DataType, child: pa.Array) -> pa.Array:
    """A list or map with the same offsets and nulls around another child."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(target, len(array), [validity, offsets], offset=array.offset, children=[child])


def _then(first: Convert, second: Convert | None) -> Convert:
    return first if second is None else lambda array: second(first(array))
