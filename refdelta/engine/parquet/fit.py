"""Fitting data to a table's schema before they are written.

Columns and nested fields are found by name, in any case and any order. A value is stored without loss or not at all: it
is cast to the column's type if that type has it (:mod:`refdelta.expressions.exact_cast`). Errors that follow from
the schemas are raised before the first byte is written. Strings of char(n) and varchar(n) columns are padded and
trimmed as in Spark.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow import variant
from refdelta.arrow.arrays import list_offsets, map_as_lists, without_encoding
from refdelta.arrow.python_values import python_value
from refdelta.arrow.schema import arrow_type, delta_type, to_arrow
from refdelta.errors import ConstraintViolationError, SchemaMismatchError, UnsupportedTypeError
from refdelta.table.char_varchar import Length, Lengths, lengths_of
from refdelta.table.evolution import SMALL_INTEGERS, can_widen, may_fit, without_type, without_zone
from refdelta.table.types import (
    STRING,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


MERGE_SCHEMA: Final = 'schema_mode="merge"'
"""The argument with which a write adds columns."""


class RowMisfitError(SchemaMismatchError):
    """A value that its column does not have, in a row whose number is not known here.

    Attributes:
        place: the index of the row in the batch.
    """

    def __init__(self, message: str, place: int) -> None:
        super().__init__(message)
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.place)

    def of_row(self, row: int | None) -> SchemaMismatchError:
        """The error with the number of the row, if it is known."""
        return SchemaMismatchError(str(self) if row is None else f"row {row}: {self}")


class Fitter:
    """Converts batches of one schema to a table's schema; made by :func:`plan_fit`.

    Attributes:
        schema: the Arrow schema of the table, which :meth:`apply` returns.
    """

    def __init__(self, schema: pa.Schema, plan: _Struct):
        self.schema = schema
        self._plan = plan

    def apply(self, batch: pa.RecordBatch, first: int | None = 0) -> pa.RecordBatch:
        """The batch in the table's schema: its columns in order, missing ones null.

        Args:
            batch: the rows.
            first: the number of rows before them, for errors; None if the rows have other numbers.

        Raises:
            ConstraintViolationError: a null in a column that is not nullable, or a string that is too long.
            SchemaMismatchError: a value that the column's type does not have; column, row, value and type are named.
                If ``first`` is None: a :class:`RowMisfitError`, which names no row.
        """
        try:
            columns = [
                pa.nulls(batch.num_rows, child.target)
                if child.source is None
                else _checked(child, child.plan.convert(batch.column(child.source)), 0)
                for child in self._plan.children
            ]
        except _MisfitError as misfit:
            if first is None:
                raise RowMisfitError(str(misfit), misfit.place) from None
            raise SchemaMismatchError(f"row {first + misfit.place}: {misfit}") from None
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


@functools.lru_cache(maxsize=32)  # appends often have the same schema
def plan_fit(
    data_schema: pa.Schema,
    table_schema: StructType,
    made: frozenset[str] = frozenset(),
    growth: str = MERGE_SCHEMA,
) -> Fitter:
    """Match the columns of data with those of a table.

    Args:
        data_schema: of the batches to come.
        table_schema: of the table.
        made: columns that are computed later, and may be null or missing before that.
        growth: the argument with which the statement would add columns, for errors; empty if there is none.

    Raises:
        SchemaMismatchError: columns that the table lacks, missing columns, types that do not fit; all are named.
        UnsupportedFeatureError: the lengths of a char(n) or varchar(n) column cannot be read from its metadata.
        UnsupportedTypeError: all problems are Arrow types that Delta lacks.
    """
    target = to_arrow(table_schema)
    problems: list[Exception] = []
    asked = StructType(tuple(replace(f, nullable=True) if f.name in made else f for f in table_schema))
    plan = _Planning(growth, problems).struct(list(data_schema), asked, "", None)
    if problems:
        # The narrower class, if it is true of all problems.
        kind = (
            UnsupportedTypeError if all(isinstance(p, UnsupportedTypeError) for p in problems) else SchemaMismatchError
        )
        raise kind("the data do not fit the table: " + "; ".join(str(p) for p in problems))
    return Fitter(target, plan)


# --- plans -------------------------------------------------------------------------------------------------------


class _MisfitError(Exception):
    """A value that its column does not have.

    Attributes:
        place: its index in the array that was converted, from 0.
    """

    def __init__(self, message: str, place: int) -> None:
        super().__init__(message)
        self.place = place

    def within(self, offsets: pa.Array) -> _MisfitError:
        """The same for the array of lists, given their offsets."""
        row = int(np.searchsorted(offsets.to_numpy(), self.place, side="right")) - 1
        return _MisfitError(str(self), row)


class _Leaf(msgspec.Struct, frozen=True):
    path: str
    target: pa.DataType
    type: DataType
    length: Length | None = None
    advice: str = ""

    def convert(self, array: pa.Array) -> pa.Array:
        array = self._cast(without_encoding(array))
        return array if self.length is None else _of_length(array, self.length, self.path)

    def _cast(self, array: pa.Array) -> pa.Array:
        if array.type == self.target:
            return array
        if variant.is_variant(self.target):
            return self._variants(array)
        if pa.types.is_nested(array.type) or pa.types.is_nested(self.target):
            return array.cast(self.target)  # from a type without values
        from refdelta.expressions.exact_cast import fitted_column  # most data need no cast

        found = fitted_column(array, self.type)
        if found.misfits is None:
            return found.column
        place = pc.index(found.misfits, True).as_py()
        raise _MisfitError(
            f"the value {_shown(array[place])} of column {self.path} ({delta_type(array.type, self.path)} in the data) "
            f"does not fit into {self.type} without loss{self.advice}",
            place,
        )

    def _variants(self, array: pa.Array) -> pa.Array:
        try:
            return variant.plain(array)
        except ValueError as error:
            raise SchemaMismatchError(f"column {self.path}: {error}") from None


class _Child(msgspec.Struct, frozen=True):
    """A field of the table: the index of its data (None: it is null), and their conversion."""

    path: str
    source: int | None
    plan: _Plan
    target: pa.DataType
    nullable: bool


class _Struct(msgspec.Struct, frozen=True):
    target: pa.DataType
    children: tuple[_Child, ...]

    def convert(self, array: pa.Array) -> pa.Array:
        array = without_encoding(array)
        # flatten() makes a child null where its parent is null, and respects slices; field() does neither.
        parts = array.flatten()
        arrays = [
            pa.nulls(len(array), child.target)
            if child.source is None
            else _checked(child, child.plan.convert(parts[child.source]), array.null_count)
            for child in self.children
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(arrays, fields=list(self.target.fields), mask=mask)


class _List(msgspec.Struct, frozen=True):
    path: str
    target: pa.DataType
    element: _Plan
    contains_null: bool

    def convert(self, array: pa.Array) -> pa.Array:
        array = without_encoding(array)
        offsets = list_offsets(array)
        try:
            values = self.element.convert(array.flatten())
        except _MisfitError as misfit:
            raise misfit.within(offsets) from None
        if not self.contains_null and values.null_count:
            raise _null_in(f"{self.path}.element")
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(offsets, values, type=self.target, mask=mask)


class _Map(msgspec.Struct, frozen=True):
    path: str
    target: pa.DataType
    key: _Plan
    value: _Plan
    value_contains_null: bool

    def convert(self, array: pa.Array) -> pa.Array:
        lists = map_as_lists(without_encoding(array))
        keys, values = lists.flatten().flatten()
        offsets = list_offsets(lists)
        try:
            keys, values = self.key.convert(keys), self.value.convert(values)
        except _MisfitError as misfit:
            raise misfit.within(offsets) from None
        if keys.null_count:
            raise _null_in(f"{self.path}.key")
        if not self.value_contains_null and values.null_count:
            raise _null_in(f"{self.path}.value")
        mask = lists.is_null() if lists.null_count else None
        return pa.MapArray.from_arrays(offsets, keys, values, type=self.target, mask=mask)


_Plan = _Leaf | _Struct | _List | _Map


def _part(lengths: Lengths | None, name: str) -> Lengths | None:
    return lengths.get(name) if isinstance(lengths, dict) else None


class _Planning(msgspec.Struct, frozen=True):
    """The plan of one fit. Columns that do not fit are noted in ``problems``."""

    growth: str
    problems: list[Exception]

    def struct(self, fields: Sequence[pa.Field], table: StructType, path: str, lengths: Lengths | None) -> _Struct:
        sources: dict[str, int] = {}
        for index, item in enumerate(fields):
            if item.name.lower() in sources:
                self._note(f"column {path}{item.name} occurs twice, names differing in case at most")
            elif item.name not in table:
                hint = f" ({self.growth} would add it)" if self.growth else ""
                self._note(f"the table has no column {path}{item.name}{hint}")
            sources.setdefault(item.name.lower(), index)
        children = [self._child(item, sources.get(item.name.lower()), fields, path, lengths) for item in table]
        return _Struct(arrow_type(table), tuple(child for child in children if child is not None))

    def _note(self, problem: str) -> None:
        self.problems.append(SchemaMismatchError(problem))

    def _child(
        self, item: StructField, source: int | None, fields: Sequence[pa.Field], path: str, lengths: Lengths | None
    ) -> _Child | None:
        here = path + item.name
        target = arrow_type(item.type)
        if source is None:
            if not item.nullable:
                self._note(f"column {here} is missing, and the table has it not null")
            return _Child(here, None, _Leaf(here, target, item.type), target, item.nullable)
        lengths = lengths_of(item) or _part(lengths, item.name.lower())
        plan = self._any(fields[source].type, item.type, here, lengths)
        return None if plan is None else _Child(here, source, plan, target, item.nullable)

    def _any(self, data: pa.DataType, table: DataType, path: str, lengths: Lengths | None) -> _Plan | None:
        if pa.types.is_dictionary(data) or pa.types.is_run_end_encoded(data):
            return self._any(data.value_type, table, path, lengths)
        target = arrow_type(table)
        if isinstance(table, StructType) and pa.types.is_struct(data):
            return self.struct(list(data.fields), table, f"{path}.", lengths)
        try:
            kind = delta_type(data, path)
        except SchemaMismatchError as error:
            self.problems.append(error)
            return None
        if isinstance(table, ArrayType) and isinstance(kind, ArrayType):
            element = self._any(data.value_type, table.element, f"{path}.element", _part(lengths, "element"))
            return None if element is None else _List(path, target, element, table.contains_null)
        if isinstance(table, MapType) and isinstance(kind, MapType):
            key = self._any(data.key_type, table.key, f"{path}.key", _part(lengths, "key"))
            value = self._any(data.item_type, table.value, f"{path}.value", _part(lengths, "value"))
            return None if key is None or value is None else _Map(path, target, key, value, table.value_contains_null)
        if not may_fit(kind, table):
            advice = without_zone(table, kind) or without_type(table, self.growth)
            self._note(f"column {path} is {table} in the table and {kind} in the data{advice}")
            return None
        length = lengths if table == STRING and isinstance(lengths, Length) else None
        return _Leaf(path, target, table, length, self._advice(kind, table))

    def _advice(self, data: DataType, table: DataType) -> str:
        """The change of the column after which it could hold more values, for the end of a message."""
        if self.growth == MERGE_SCHEMA and {data, table} <= set(SMALL_INTEGERS):
            return f"; {MERGE_SCHEMA} would change the column to {data}"
        return f"; alter.change_type() can widen the column to {data}" if can_widen(table, data) else ""


# --- arrays ------------------------------------------------------------------------------------------------------


_SHOWN = 100


def _of_length(strings: pa.Array, length: Length, path: str) -> pa.Array:
    """Strings as Spark writes them to char(n) and varchar(n): spaces at the end are cut off beyond the length; strings
    that are still too long are refused.
    """
    size = pc.utf8_length(strings)
    if pc.any(pc.greater(size, length.limit)).as_py():
        cut = pc.utf8_slice_codeunits(strings, 0, length.limit)
        lost = pc.not_equal(pc.utf8_rtrim(strings, " "), pc.utf8_rtrim(cut, " "))
        if pc.any(lost).as_py():
            first = size.filter(lost)[0].as_py()
            raise ConstraintViolationError(
                f"column {path} is {length} in the table, and the data hold a string of {first} characters there"
            )
        strings = cut
    return pc.utf8_rpad(strings, length.limit) if length.padded else strings


def _shown(value: pa.Scalar) -> str:
    if pa.types.is_timestamp(value.type):
        return str(value.cast(pa.string()))  # Python has no nanoseconds
    text = repr(python_value(value))
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _checked(child: _Child, array: pa.Array, parent_nulls: int) -> pa.Array:
    # The child of a null parent may be null.
    if not child.nullable and array.null_count > parent_nulls:
        raise _null_in(child.path)
    return array


def _null_in(path: str) -> ConstraintViolationError:
    return ConstraintViolationError(f"column {path} is not null in the table, and the data hold a null there")
