"""Objects of JSON as columns: the types that they have, and their values in the types of a table."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from types import NoneType
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from refdelta.arrow.schema import arrow_type
from refdelta.cli.text_files import Number
from refdelta.cli.text_types import Guess, reason, typed
from refdelta.table.types import (
    BOOLEAN,
    LONG,
    STRING,
    VARIANT,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

Misfits = dict[int, tuple[str, str]]
"""By row the column whose value does not fit, and the reason."""


class Shape(msgspec.Struct):
    """The type of a column, or of all objects, by all their values.

    Attributes:
        guess: of values that are neither objects nor arrays.
        fields: of objects.
        element: of the elements of arrays.
        first: the class of the first value: of Python, ``dict`` or ``list`` or another.
    """

    guess: Guess = msgspec.field(default_factory=Guess)
    fields: dict[str, Shape] = msgspec.field(default_factory=dict)
    element: Shape | None = None
    first: type | None = None

    def add(self, values: Sequence[Any], known: DataType | None) -> None:
        """Take more values into account.

        Args:
            values: as they are parsed.
            known: the type in the table; None where it is not known.
        """
        kinds = dict.fromkeys(map(type, values))
        kinds.pop(NoneType, None)
        if self.first is None and kinds:
            self.first = next(iter(kinds))
        if dict in kinds and not isinstance(known, MapType):
            objects = [one for one in values if type(one) is dict]
            table = known if isinstance(known, StructType) else StructType()
            for name in dict.fromkeys(itertools.chain.from_iterable(objects)):
                item = table.find(name)
                part = self.fields.setdefault(name, Shape())
                part.add([one.get(name) for one in objects], None if item is None else item.type)
        if list in kinds:
            self.element = self.element or Shape()
            elements = itertools.chain.from_iterable(one for one in values if type(one) is list)
            self.element.add(list(elements), known.element if isinstance(known, ArrayType) else None)
        if known is None:
            if str in kinds:
                self.guess.add(pa.array([one for one in values if type(one) is str], pa.string()), quoted=True)
            if kinds.keys() & {int, bool, Number}:
                self.guess.add(_texts([one for one in values if type(one) in (int, bool, Number)]))

    def type(self, known: DataType | None, zone: str | None) -> DataType:
        """The type as which the values are read.

        Args:
            known: the type in the table; None where it is not known.
            zone: the zone of times without one.
        """
        if isinstance(known, StructType) or (known is None and self.first is dict):
            table = known if isinstance(known, StructType) else StructType()
            return StructType(tuple(part.field(name, table, zone) for name, part in self.fields.items()))
        if isinstance(known, ArrayType) or (known is None and self.first is list):
            inner = known.element if isinstance(known, ArrayType) else None
            return ArrayType((self.element or Shape()).type(inner, zone))
        if known is None:
            return self.guess.type(zone)
        return loaded_type(known)

    def field(self, name: str, table: StructType, zone: str | None) -> StructField:
        """The field of this name."""
        item = table.find(name)
        if item is None:
            return StructField(name, self.type(None, zone))
        return StructField(name, self.type(item.type, zone), item.nullable)


def loaded_type(table: DataType) -> DataType:
    """The type as which values of a file are read for a column of a table."""
    return STRING if table == VARIANT else table


def columns_of(
    objects: Sequence[dict[str, Any]], target: StructType, zone: str | None
) -> tuple[list[pa.Array], Misfits]:
    """Objects as columns of a type.

    Args:
        objects: one for each row.
        target: their type.
        zone: the zone of times without one; None if there is none.

    Returns:
        The columns, and the rows that do not fit, which hold any value.
    """
    misfits: Misfits = {}
    return [_column([one.get(f.name) for one in objects], f.type, f.name, zone, misfits) for f in target], misfits


def _column(values: list[Any], target: DataType, path: str, zone: str | None, misfits: Misfits) -> pa.Array:
    if isinstance(target, StructType):
        values = _only(dict, values, target, path, misfits)
        arrays = [
            _column([one.get(f.name) if one else None for one in values], f.type, f"{path}.{f.name}", zone, misfits)
            for f in target
        ]
        mask = pa.array([one is None for one in values], pa.bool_())
        return pa.StructArray.from_arrays(arrays, fields=list(arrow_type(target).fields), mask=mask)
    if isinstance(target, ArrayType):
        values = _only(list, values, target, path, misfits)
        inner: Misfits = {}
        offsets, mask = _lists(values)
        elements = list(itertools.chain.from_iterable(one for one in values if one))
        array = _column(elements, target.element, f"{path}.element", zone, inner)
        _outwards(inner, offsets, misfits)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), array, type=arrow_type(target), mask=mask)
    if isinstance(target, MapType):
        values = _only(dict, values, target, path, misfits)
        inner = {}
        offsets, mask = _lists(values)
        pairs = [pair for one in values if one for pair in one.items()]
        keys = _column([key for key, _ in pairs], target.key, f"{path}.key", zone, inner)
        items = _column([item for _, item in pairs], target.value, f"{path}.value", zone, inner)
        _outwards(inner, offsets, misfits)
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=arrow_type(target), mask=mask)
    return _leaf(values, target, path, zone, misfits)


def _only(kind: type, values: list[Any], target: DataType, path: str, misfits: Misfits) -> list[Any]:
    """The values of one kind; others are null, and misfits."""
    if set(map(type, values)) <= {kind, NoneType}:
        return values
    for place, one in enumerate(values):
        if one is not None and type(one) is not kind:
            misfits.setdefault(place, (path, f"{_shown(one)} is no {target}"))
    return [one if type(one) is kind else None for one in values]


def _shown(value: Any) -> str:
    if type(value) is dict:
        return "an object"
    return "an array" if type(value) is list else repr(_text(value)[:60])


def _lists(values: Sequence[Any]) -> tuple[list[int], pa.Array]:
    offsets = list(itertools.accumulate((len(one) if one else 0 for one in values), initial=0))
    return offsets, pa.array([one is None for one in values], pa.bool_())


def _outwards(inner: Misfits, offsets: Sequence[int], misfits: Misfits) -> None:
    """Note the rows whose elements do not fit."""
    for place, problem in inner.items():
        misfits.setdefault(bisect.bisect_right(offsets, place) - 1, problem)


def _leaf(values: list[Any], target: DataType, path: str, zone: str | None, misfits: Misfits) -> pa.Array:
    kinds = set(map(type, values))
    if kinds & {dict, list}:
        for place, one in enumerate(values):
            if type(one) in (dict, list):
                misfits.setdefault(place, (path, f"{_shown(one)} is no {target}"))
        values = [None if type(one) in (dict, list) else one for one in values]
        kinds -= {dict, list}
    if target == BOOLEAN and kinds <= {bool, NoneType}:
        return pa.array(values, pa.bool_())
    if target == LONG and kinds <= {int, NoneType}:
        try:
            return pa.array(values, pa.int64())
        except OverflowError:
            pass  # the row is found below
    texts = pa.array(values, pa.string()) if kinds <= {str, Number, NoneType} else _texts(values)
    found = typed(texts, target, zone)
    if found.misfits is not None:
        for place in np.flatnonzero(found.misfits).tolist():
            misfits.setdefault(place, (path, reason(texts[place].as_py(), target, zone)))
    return found.column


def _texts(values: Sequence[Any]) -> pa.Array:
    return pa.array([one if one is None else _text(one) for one in values], pa.string())


def _text(value: Any) -> str:
    return ("false", "true")[value] if type(value) is bool else str(value)


def all_columns(shape: Shape, table: StructType | None, zone: str | None) -> StructType:
    """The columns of objects: those that occur, in the types of the table where it has them."""
    found = shape.type(StructType() if table is None else table, zone)
    assert isinstance(found, StructType)  # noqa: S101 - as asked
    return found
