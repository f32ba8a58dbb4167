"""Functions of arrays, maps and structs: elements, places, sorting, joining.

A column of arrays is worked on as the column of all its elements, with the row of each.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import concat
from refdelta.arrow.schema import arrow_type
from refdelta.errors import ColumnNotFoundError, ExpressionError, PredicateError
from refdelta.expressions.arithmetic import Typed
from refdelta.expressions.coercion import coerce, common_type, wider
from refdelta.expressions.columnar import all_valid, constant
from refdelta.expressions.expression import Call, Literal, Value
from refdelta.expressions.ordering import compare_columns, order
from refdelta.expressions.signature import ANY_NUMBER, Columns, Function, Typing, bounded_text, int_argument, simple
from refdelta.table.types import (
    BOOLEAN,
    BYTE,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    is_nested,
)

# --- columns of arrays -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListColumn:
    """A column of arrays, or of the entries of maps.

    Attributes:
        array: the column.
        values: all elements, or entries as structs, one after the other.
        lengths: the number of elements of each row, 0 for null.
    """

    array: Any
    values: Any
    lengths: Any

    @classmethod
    def of(cls, array: Any) -> ListColumn:
        """A column of arrays or of maps."""
        offsets = array.offsets.to_numpy()
        # A null may stand before elements that do not count.
        counts = offsets[1:] - offsets[:-1]
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        lengths = np.where(valid, counts, 0)
        if pa.types.is_map(array.type):
            values = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
        else:
            values = array.values
        begin, end = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
        values = values.slice(begin, end - begin)
        if lengths.sum() != end - begin:
            kept = np.repeat(valid, counts)
            values = values.filter(pa.array(kept))
        return cls(array, values, lengths)

    @property
    def rows(self) -> Any:
        """The row of each element."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @property
    def starts(self) -> Any:
        """The place of the first element of each row."""
        return np.concatenate([[0], np.cumsum(self.lengths)])[:-1].astype(np.int64)

    def with_values(self, values: Any, lengths: Any, kind: pa.DataType) -> Any:
        """A column of arrays with other elements, null where this one is."""
        return made_lists(values, lengths, kind, self.array.is_valid())

    def per_row(self, mask: Any) -> Any:
        """For each row, whether a mask of elements is true somewhere."""
        found = np.zeros(len(self.lengths), bool)
        found[self.rows[_plain(mask)]] = True
        return found


def _as(values: Any, kind: pa.DataType) -> Any:
    """Values in another type. Arrow casts some nested types with extension types not even to themselves."""
    return values if values.type == kind else values.cast(kind)


def _ranks(values: Any) -> Any:
    """The place of each value among the distinct ones, in their order, from 1."""
    if pa.types.is_null(values.type):
        return np.ones(len(values), np.int64)
    return pc.rank(_sortable(values), sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)


def made_lists(values: Any, lengths: Any, kind: pa.DataType, valid: Any) -> Any:
    """A column of arrays from all elements, the number of those of each row, and the rows that are not null."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    values = _as(values, kind.value_type)
    mask = pc.invert(valid) if len(lengths) else None
    return pa.ListArray.from_arrays(offsets, values, type=kind, mask=mask)


def _plain(mask: Any) -> Any:
    return pc.fill_null(mask, False).to_numpy(zero_copy_only=False)


def _first(column: ListColumn, mask: Any) -> Any:
    """The place among all elements of the first one of each row for which a mask is true; -1 if there is none."""
    places = np.flatnonzero(_plain(mask))
    found = np.full(len(column.lengths), -1, np.int64)
    found[column.rows[places][::-1]] = places[::-1]
    return found


def _taken(values: Any, places: Any, valid: Any) -> Any:
    """Elements by their places among all; null where a place is not valid."""
    return values.take(pa.array(places, mask=~valid))


def _equal(column: ListColumn, values: Any, item: Any) -> Any:
    return compare_columns("=", values, item.take(pa.array(column.rows)))


def _valid(*arrays: Any) -> Any:
    return all_valid(arrays).to_numpy(zero_copy_only=False)


def _null_for(valid: Any, found: Any, kind: pa.DataType) -> Any:
    return pa.array(found, kind, mask=~valid)


def _kept(column: ListColumn, keep: Any, kind: pa.DataType, valid: Any = None) -> Any:
    lengths = np.bincount(column.rows[keep], minlength=len(column.lengths))
    return made_lists(
        column.values.filter(pa.array(keep)),
        lengths,
        kind,
        column.array.is_valid() if valid is None else pa.array(valid),
    )


def _sortable(values: Any) -> Any:
    """Elements as what sorts and groups as Spark does: one zero, and one NaN."""
    if pa.types.is_floating(values.type):
        return pc.if_else(pc.is_nan(values), float("nan"), pc.add(values, 0.0)).cast(values.type)
    return values


def _order(column: ListColumn, *, up: bool = True, nulls: str = "at_end") -> Any:
    """The places of the elements in order, row by row."""
    # Nulls and NaN are placed by hand: Arrow puts both at one end.
    numbers = _ranks(column.values)
    if not up:
        numbers = -numbers
    if column.values.null_count:
        none = column.values.is_null().to_numpy(zero_copy_only=False)
        numbers = np.where(none, -(2**62) if nulls == "at_start" else 2**62, numbers)
    return np.lexsort((numbers, column.rows))


# --- what they take ----------------------------------------------------------------------------------------------


def _array(name: str, value: Value) -> ArrayType:
    if not isinstance(value.type, ArrayType):
        raise PredicateError(f"{name} takes an array, and {value} is {value.type}")
    return value.type


def _map(name: str, value: Value) -> MapType:
    if not isinstance(value.type, MapType):
        raise PredicateError(f"{name} takes a map, and {value} is {value.type}")
    return value.type


def _plain_array(name: str, value: Value) -> ArrayType:
    kind = _array(name, value)
    if is_nested(kind.element) or kind.element == VARIANT:
        raise PredicateError(f"{name} compares elements, and those of {value} are {kind.element}")
    return kind


def _element(name: str, value: Value, kind: DataType) -> Value:
    """An argument that is compared with elements, in their type."""
    common = kind if value.type in (kind, VOID) else wider(kind, value.type)
    if isinstance(value, Literal) and common is not None and value.type != STRING:
        try:
            return coerce(value, kind, name)
        except PredicateError:
            common = None
    if common != kind:
        raise PredicateError(f"{name}: {value} is {value.type}, and the elements are {kind}; cast one of them")
    return coerce(value, kind, name)


def _of_array(gives: Callable[[ArrayType], DataType], *, compares: bool = False) -> Typing:
    def typed(name: str, args: tuple[Value, ...]) -> Typed:
        kind = _plain_array(name, args[0]) if compares else _array(name, args[0])
        return args, gives(kind)

    return typed


def _with_element(gives: Callable[[ArrayType], DataType]) -> Typing:
    def typed(name: str, args: tuple[Value, ...]) -> Typed:
        kind = _plain_array(name, args[0])
        return (args[0], _element(name, args[1], kind.element)), gives(kind)

    return typed


def _same_arrays(gives: DataType | None = None, *, compares: bool = True) -> Typing:
    def typed(name: str, args: tuple[Value, ...]) -> Typed:
        kinds = [(_plain_array if compares else _array)(name, arg) for arg in args]
        if any(kind.element != kinds[0].element for kind in kinds):
            raise PredicateError(f"{name} takes arrays of one type, not {' and '.join(str(arg.type) for arg in args)}")
        return args, gives or ArrayType(kinds[0].element, any(kind.contains_null for kind in kinds))

    return typed


# --- made of values ----------------------------------------------------------------------------------------------


def _made_types(name: str, args: tuple[Value, ...]) -> Typed:
    kind = _common(name, args)
    return tuple(coerce(arg, kind, name) for arg in args), ArrayType(kind, True)


def _common(name: str, args: tuple[Value, ...]) -> DataType:
    if not args:
        return VOID
    if all(arg.type == args[0].type for arg in args) and is_nested(args[0].type):
        return args[0].type
    return common_type(args, name)


def _array_columns(node: Call, *arrays: Any) -> Any:
    kind = arrow_type(node.type)
    rows, many = len(arrays[0]), len(arrays)
    values = concat([_as(array, kind.value_type) for array in arrays])
    places = (np.arange(many) * rows + np.arange(rows)[:, None]).reshape(-1)
    return made_lists(values.take(pa.array(places)), np.full(rows, many), kind, pa.array(np.ones(rows, bool)))


def _map_types(name: str, args: tuple[Value, ...]) -> Typed:
    if len(args) % 2 or not args:
        raise PredicateError(f"{name} takes keys and values in turn, not {len(args)} arguments")
    key, value = common_type(args[::2], name), _common(name, args[1::2])
    if key == VOID:
        raise PredicateError(f"{name}: a key cannot be NULL")
    pairs = zip(args[::2], args[1::2], strict=True)
    return tuple(arg for k, v in pairs for arg in (coerce(k, key, name), coerce(v, value, name))), MapType(key, value)


def _made_map(_: Call, *args: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    for key, value in zip(args[::2], args[1::2], strict=True):
        if key is None or any(order(one, key) == 0 for one, _value in found):
            raise ExpressionError(f"map: the key {key!r} is NULL, or is there twice")
        found.append((key, value))
    return found


def _map_columns(node: Call, *arrays: Any) -> Any:
    kind, rows = arrow_type(node.type), len(arrays[0])
    for place, key in enumerate(arrays[::2]):
        same = [compare_columns("=", key, other) for other in arrays[::2][:place]]
        if key.null_count or any(pc.any(one, min_count=0).as_py() for one in same):
            raise pa.ArrowInvalid("a key is null, or there twice")
    many = len(arrays) // 2
    places = pa.array((np.arange(many) * rows + np.arange(rows)[:, None]).reshape(-1))
    keys = concat([_as(array, kind.key_type) for array in arrays[::2]]).take(places)
    items = concat([_as(array, kind.item_type) for array in arrays[1::2]]).take(places)
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * many)
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind)


def _struct_types(name: str, args: tuple[Value, ...]) -> Typed:
    names = args[::2]
    if len(args) % 2 or not args or not all(isinstance(one, Literal) and isinstance(one.value, str) for one in names):
        raise PredicateError(f"{name} takes names as constants and values in turn")
    pairs = zip(names, args[1::2], strict=True)
    return args, StructType(
        tuple(StructField(str(one.value), value.type) for one, value in pairs if isinstance(one, Literal))
    )


def _struct_columns(node: Call, *arrays: Any) -> Any:
    kind = arrow_type(node.type)
    columns = [_as(array, kind.field(place).type) for place, array in enumerate(arrays[1::2])]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _together_size(_: Call, *arrays: Any) -> int:
    return sum(array.nbytes for array in arrays)


# --- elements ----------------------------------------------------------------------------------------------------


def _index_types(name: str, args: tuple[Value, ...]) -> Typed:
    value, key = args
    if isinstance(value.type, MapType):
        if name == "get":
            raise PredicateError(f"{name} takes an array, and {value} is {value.type}; write {value}[{key}]")
        kind = value.type.key
        if is_nested(kind) or kind == VARIANT:
            raise PredicateError(f"{name}: keys of type {kind} cannot be compared")
        return (value, _element(name, key, kind)), value.type.value
    if not isinstance(value.type, ArrayType):
        raise PredicateError(f"{name} takes an array or a map, and {value} is {value.type}")
    if key.type == LONG or key.type not in (INTEGER, SHORT, BYTE, VOID):
        raise PredicateError(f"{name} takes an int as the place of an element, and {key} is {key.type}")
    return (value, int_argument(name, key)), value.type.element


def looked_up(pairs: list[tuple[Any, Any]], key: Any) -> Any:
    """The value of a key; None if the map does not have it."""
    return next((value for one, value in pairs if order(one, key) == 0), None)


def element(values: list[Any], place: int, *, lenient: bool = False, base: int = 0, name: str = "[]") -> Any:
    """An element by its place, counted from ``base``; from 1 on, negative places count from the end.

    Raises:
        ExpressionError: there is none, unless ``lenient``.
    """
    if base and not place:
        raise ExpressionError(f"{name}: elements are counted from 1, or from -1 backwards, not from 0")
    at = place - base if place >= base else len(values) + place if base else -1
    if 0 <= at < len(values):
        return values[at]
    if lenient:
        return None
    advice = "try_element_at" if base else "get"
    raise ExpressionError(
        f"{name}: there is no element {place} in an array of {len(values)}; {advice} gives null there"
    )


def _indexed(call: Call, values: Any, key: Any) -> Any:
    if isinstance(call.args[0].type, MapType):
        return looked_up(values, key)
    base, lenient = {"[]": (0, False), "get": (0, True), "element_at": (1, False), "try_element_at": (1, True)}[
        call.name
    ]
    return element(values, key, lenient=lenient, base=base, name=call.name)


def _indexed_columns(node: Call, array: Any, key: Any) -> Any:
    column = ListColumn.of(array)
    valid = _valid(array, key)
    if isinstance(node.args[0].type, MapType):
        found = _first(column, _equal(column, column.values.field(0), key))
        return _taken(column.values.field(1), found, valid & (found >= 0))
    place = pc.fill_null(key.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    base = 1 if node.name.endswith("element_at") else 0
    if base:
        if np.any(valid & (place == 0)):
            raise pa.ArrowInvalid("there is no element 0")
        place = np.where(place > 0, place - 1, np.where(-place <= column.lengths, column.lengths + place, -1))
    inside = (place >= 0) & (place < column.lengths)
    if node.name in ("[]", "element_at") and np.any(valid & ~inside):
        raise pa.ArrowInvalid("there is no such element")
    return _taken(column.values, column.starts + place, valid & inside)


def _field_types(_: str, args: tuple[Value, ...]) -> Typed:
    value, field = args
    if not isinstance(value.type, StructType) or not isinstance(field, Literal):
        raise PredicateError(f"{value} is {value.type}, and has no field {field}")
    item = value.type.find(str(field.value))
    if item is None:
        raise ColumnNotFoundError(str(field.value), value.type.names, str(value))
    return (value, Literal(item.name, STRING)), item.type


def _field_columns(node: Call, array: Any, *_: Any) -> Any:
    return pc.struct_field(array, constant(node, 1))


def _key_types(name: str, args: tuple[Value, ...]) -> Typed:
    kind = _map(name, args[0])
    if is_nested(kind.key):
        raise PredicateError(f"{name}: keys of type {kind.key} cannot be compared")
    return (args[0], _element(name, args[1], kind.key)), BOOLEAN


def _entries_columns(place: int) -> Columns:
    def function(node: Call, array: Any) -> Any:
        column = ListColumn.of(array)
        return column.with_values(column.values.field(place), column.lengths, arrow_type(node.type))

    return function


def _has_key_columns(_: Call, array: Any, key: Any) -> Any:
    column = ListColumn.of(array)
    return _null_for(_valid(array, key), column.per_row(_equal(column, column.values.field(0), key)), pa.bool_())


def _size_types(name: str, args: tuple[Value, ...]) -> Typed:
    if not isinstance(args[0].type, ArrayType | MapType):
        raise PredicateError(f"{name} takes an array or a map, and {args[0]} is {args[0].type}")
    return args, INTEGER


def _size_columns(_: Call, array: Any) -> Any:
    return _null_for(_valid(array), ListColumn.of(array).lengths, pa.int32())


def _contains(_: Call, values: list[Any], item: Any) -> bool | None:
    if any(value is not None and order(value, item) == 0 for value in values):
        return True
    return None if None in values else False


def _contains_columns(_: Call, array: Any, item: Any) -> Any:
    column = ListColumn.of(array)
    found = column.per_row(_equal(column, column.values, item))
    unknown = ~found & column.per_row(column.values.is_null())
    return _null_for(_valid(array, item) & ~unknown, found, pa.bool_())


def _position(_: Call, values: list[Any], item: Any) -> int:
    return next((place for place, value in enumerate(values, 1) if value is not None and order(value, item) == 0), 0)


def _position_columns(_: Call, array: Any, item: Any) -> Any:
    column = ListColumn.of(array)
    found = _first(column, _equal(column, column.values, item))
    return _null_for(_valid(array, item), np.where(found < 0, 0, found - column.starts + 1), pa.int64())


# --- other arrays ------------------------------------------------------------------------------------------------


def _remove_columns(node: Call, array: Any, item: Any) -> Any:
    column = ListColumn.of(array)
    keep = ~_plain(_equal(column, column.values, item))
    valid = _valid(array, item)
    return _kept(column, keep & valid[column.rows], arrow_type(node.type), valid)


def _compact_columns(node: Call, array: Any) -> Any:
    column = ListColumn.of(array)
    return _kept(column, _plain(column.values.is_valid()), arrow_type(node.type))


def _distinct(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if not any(one is value or (one is not None and value is not None and order(one, value) == 0) for one in found):
            found.append(value + 0.0 if isinstance(value, float) else value)  # the zero is positive
    return found


def _distinct_columns(node: Call, array: Any) -> Any:
    column = ListColumn.of(array)
    rank = _ranks(column.values)
    rank = np.where(column.values.is_null().to_numpy(zero_copy_only=False), 0, rank)
    keys = column.rows.astype(np.int64) * (len(rank) + 1) + rank
    keep = np.zeros(len(rank), bool)
    keep[np.unique(keys, return_index=True)[1]] = True
    if pa.types.is_floating(column.values.type):
        column = dataclasses.replace(column, values=_sortable(column.values))
    return _kept(column, keep, arrow_type(node.type))


def _ordered(values: list[Any], *, up: bool = True) -> list[Any]:
    return sorted((value for value in values if value is not None), key=functools.cmp_to_key(order), reverse=not up)


def _sorted(values: list[Any], up: bool) -> list[Any]:
    nulls = [None] * values.count(None)
    found = _ordered(values, up=up)
    return [*nulls, *found] if up else [*found, *nulls]


def _sort_types(name: str, args: tuple[Value, ...]) -> Typed:
    up = args[1] if len(args) > 1 else Literal(True, BOOLEAN)
    if not isinstance(up, Literal) or up.type != BOOLEAN or up.value is None:
        raise PredicateError(f"{name} takes TRUE or FALSE as a constant, not {up}")
    return (args[0], up), _plain_array(name, args[0])


def _sorted_columns(*, nulls_last: bool = False) -> Columns:
    def function(node: Call, array: Any, *_: Any) -> Any:
        column = ListColumn.of(array)
        up = True if nulls_last else constant(node, 1)
        places = _order(column, up=up, nulls="at_start" if up and not nulls_last else "at_end")
        return column.with_values(column.values.take(pa.array(places)), column.lengths, arrow_type(node.type))

    return function


def _extreme_columns(*, least: bool) -> Columns:
    def function(_: Call, array: Any) -> Any:
        column = ListColumn.of(array)
        places = _order(column, up=least)
        empty = np.append(column.lengths, 0)[:-1] == 0
        firsts = np.append(places, 0)[np.minimum(column.starts, len(places))]
        return _taken(column.values, firsts, ~empty)

    return function


def _slice_types(name: str, args: tuple[Value, ...]) -> Typed:
    return (args[0], int_argument(name, args[1]), int_argument(name, args[2])), _array(name, args[0])


def sliced(values: list[Any], start: int, count: int) -> list[Any]:
    """Some elements from a place on, counted from 1, or from -1 backwards.

    Raises:
        ExpressionError: the place is 0, or the number of elements is negative.
    """
    if not start or count < 0:
        raise ExpressionError(
            f"slice begins at 1 or later, or at -1 or earlier, with 0 or more: not at {start} with {count}"
        )
    begin = start - 1 if start > 0 else len(values) + start
    return values[begin : begin + count] if begin >= 0 else []


def _slice_columns(node: Call, array: Any, start: Any, count: Any) -> Any:
    column, valid = ListColumn.of(array), _valid(array, start, count)
    begin, many = (pc.fill_null(one.cast(pa.int64()), 1).to_numpy(zero_copy_only=False) for one in (start, count))
    if np.any(valid & ((begin == 0) | (many < 0))):
        raise pa.ArrowInvalid("slice begins at 1 or later")
    first = np.where(begin > 0, begin - 1, column.lengths + begin)
    many = np.where((first < 0) | ~valid, 0, many)
    place = np.arange(len(column.rows)) - column.starts[column.rows]
    keep = (place >= first[column.rows]) & (place < (first + many)[column.rows])
    return _kept(column, keep, arrow_type(node.type), valid)


def _flat_types(name: str, args: tuple[Value, ...]) -> Typed:
    kind = _array(name, args[0]).element
    if not isinstance(kind, ArrayType):
        raise PredicateError(f"{name} takes an array of arrays, and {args[0]} is {args[0].type}")
    return args, kind


def _flatten_columns(node: Call, array: Any) -> Any:
    column = ListColumn.of(array)
    inner = ListColumn.of(column.values)
    valid = _valid(array) & ~column.per_row(column.values.is_null())
    lengths = np.bincount(column.rows, weights=inner.lengths, minlength=len(column.lengths)).astype(np.int64)
    keep = valid[column.rows][inner.rows]
    return made_lists(
        inner.values.filter(pa.array(keep)), np.where(valid, lengths, 0), arrow_type(node.type), pa.array(valid)
    )


def _concat_columns(node: Call, *arrays: Any) -> Any:
    kind, valid = arrow_type(node.type), _valid(*arrays)
    columns = [ListColumn.of(array) for array in arrays]
    values = concat([_as(column.values, kind.value_type) for column in columns])
    rows = np.concatenate([column.rows for column in columns])
    order = np.argsort(rows, kind="stable")
    order = order[valid[rows[order]]]
    lengths = np.where(valid, sum(column.lengths for column in columns), 0)
    return made_lists(values.take(pa.array(order)), lengths, kind, pa.array(valid))


def _reverse_columns(node: Call, array: Any) -> Any:
    column = ListColumn.of(array)
    places = np.lexsort((-np.arange(len(column.rows)), column.rows))
    return column.with_values(column.values.take(pa.array(places)), column.lengths, arrow_type(node.type))


# --- several arrays, and strings ---------------------------------------------------------------------------------


def _overlap(_: Call, one: list[Any], other: list[Any]) -> bool | None:
    if any(_contains(_, other, value) for value in one if value is not None):
        return True
    return None if one and other and (None in one or None in other) else False


def _overlap_columns(_: Call, one: Any, other: Any) -> Any:
    left, right = ListColumn.of(one), ListColumn.of(other)
    together = concat([left.values, _as(right.values, left.values.type)])
    rank = _ranks(together)
    keys = np.concatenate([left.rows, right.rows]).astype(np.int64) * (len(rank) + 1) + rank
    nulls = together.is_null().to_numpy(zero_copy_only=False)
    split = len(left.values)
    first, second = keys[:split][~nulls[:split]], keys[split:][~nulls[split:]]
    found = np.zeros(len(left.lengths), bool)
    found[np.intersect1d(first, second) // (len(rank) + 1)] = True
    some = (left.lengths > 0) & (right.lengths > 0)
    unknown = ~found & some & (left.per_row(left.values.is_null()) | right.per_row(right.values.is_null()))
    return _null_for(_valid(one, other) & ~unknown, found, pa.bool_())


def _join_types(name: str, args: tuple[Value, ...]) -> Typed:
    if _array(name, args[0]).element != STRING:
        raise PredicateError(f"{name} joins strings, and {args[0]} is {args[0].type}")
    rest = tuple(coerce(arg, STRING, name) for arg in args[1:])
    if not all(isinstance(arg, Literal) for arg in rest):
        raise PredicateError(f"{name} takes constants after its first argument")
    return (args[0], *rest), STRING


def _joined(_: Call, values: list[Any], between: str, *empty: str) -> str:
    found = [value if value is not None else empty[0] for value in values if value is not None or empty]
    bounded_text("array_join", sum(map(len, found)) + len(between) * len(found))
    return between.join(found)


def _joined_columns(node: Call, array: Any) -> Any:
    between = constant(node, 1)
    nothing = constant(node, 2) if len(node.args) > 2 else None
    column = ListColumn.of(array)
    if nothing is None:
        kept = _kept(column, _plain(column.values.is_valid()), pa.list_(pa.string()))
    else:
        kept = column.with_values(pc.fill_null(column.values, nothing), column.lengths, pa.list_(pa.string()))
    return pc.binary_join(kept, between)


def _joined_size(node: Call, array: Any) -> int:
    """An upper bound of the bytes that ``array_join`` makes."""
    longest = max(len(constant(node, place).encode()) for place in range(1, len(node.args)))
    return int(array.nbytes) + len(array.values) * longest * 2


ARRAYS: dict[str, Function] = {
    "array": Function(
        (1, ANY_NUMBER),
        _made_types,
        lambda _, *values: list(values),
        strict=False,
        columns=_array_columns,
        size=_together_size,
    ),
    "map": Function(
        (2, ANY_NUMBER), _map_types, _made_map, strict=False, fails=True, columns=_map_columns, size=_together_size
    ),
    "named_struct": Function(
        (2, ANY_NUMBER),
        _struct_types,
        lambda _, *args: dict(zip(args[::2], args[1::2], strict=True)),
        strict=False,
        columns=_struct_columns,
        size=_together_size,
    ),
    "field": Function((2, 2), _field_types, lambda _, value, name: value[name], columns=_field_columns),
    "[]": Function((2, 2), _index_types, _indexed, fails=True, columns=_indexed_columns),
    "element_at": Function((2, 2), _index_types, _indexed, fails=True, columns=_indexed_columns),
    "try_element_at": Function((2, 2), _index_types, _indexed, fails=True, columns=_indexed_columns),
    "get": Function((2, 2), _index_types, _indexed, columns=_indexed_columns),
    "size": Function((1, 1), _size_types, simple(len), columns=_size_columns),
    "array_contains": Function((2, 2), _with_element(lambda _: BOOLEAN), _contains, columns=_contains_columns),
    "array_position": Function((2, 2), _with_element(lambda _: LONG), _position, columns=_position_columns),
    "array_remove": Function(
        (2, 2),
        _with_element(lambda kind: kind),
        simple(lambda values, item: [v for v in values if v is None or order(v, item) != 0]),
        columns=_remove_columns,
    ),
    "array_distinct": Function(
        (1, 1), _of_array(lambda kind: kind, compares=True), simple(_distinct), columns=_distinct_columns
    ),
    "array_min": Function(
        (1, 1),
        _of_array(lambda kind: kind.element, compares=True),
        simple(lambda values: next(iter(_ordered(values)), None)),
        columns=_extreme_columns(least=True),
    ),
    "array_max": Function(
        (1, 1),
        _of_array(lambda kind: kind.element, compares=True),
        simple(lambda values: next(iter(_ordered(values, up=False)), None)),
        columns=_extreme_columns(least=False),
    ),
    "sort_array": Function((1, 2), _sort_types, simple(_sorted), columns=_sorted_columns()),
    "array_sort": Function(
        (1, 1),
        _of_array(lambda kind: kind, compares=True),
        simple(lambda values: [*_ordered(values), *[None] * values.count(None)]),
        columns=_sorted_columns(nulls_last=True),
    ),
    "array_compact": Function(
        (1, 1),
        _of_array(lambda kind: ArrayType(kind.element, False)),
        simple(lambda values: [v for v in values if v is not None]),
        columns=_compact_columns,
    ),
    "array_join": Function((2, 3), _join_types, _joined, constants=True, columns=_joined_columns, size=_joined_size),
    "arrays_overlap": Function((2, 2), _same_arrays(BOOLEAN), _overlap, columns=_overlap_columns),
    "slice": Function((3, 3), _slice_types, simple(sliced), fails=True, columns=_slice_columns),
    "flatten": Function(
        (1, 1),
        _flat_types,
        simple(lambda values: None if None in values else [item for value in values for item in value]),
        columns=_flatten_columns,
    ),
    "array_concat": Function(
        (1, ANY_NUMBER),
        _same_arrays(compares=False),
        lambda _, *values: [item for value in values for item in value],
        columns=_concat_columns,
        size=_together_size,
    ),
    "array_reverse": Function(
        (1, 1), _of_array(lambda kind: kind), simple(lambda values: values[::-1]), columns=_reverse_columns
    ),
    "map_keys": Function(
        (1, 1),
        lambda name, args: (args, ArrayType(_map(name, args[0]).key, False)),
        simple(lambda pairs: [k for k, _ in pairs]),
        columns=_entries_columns(0),
    ),
    "map_values": Function(
        (1, 1),
        lambda name, args: (args, ArrayType(_map(name, args[0]).value, _map(name, args[0]).value_contains_null)),
        simple(lambda pairs: [v for _, v in pairs]),
        columns=_entries_columns(1),
    ),
    "map_contains_key": Function(
        (2, 2),
        _key_types,
        simple(lambda pairs, key: any(order(k, key) == 0 for k, _ in pairs)),
        columns=_has_key_columns,
    ),
}
