"""Functions of arrays, maps and structs over columns: the twin of :mod:`refdelta.core.expressions.library.arrays`.

A column of arrays is worked on as the column of all its elements, with the row of each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.expressions.expression import Call
from refdelta.core.table.types import MapType
from refdelta.engine.arrow.schema import arrow_type
from refdelta.engine.expressions.arithmetic import compare
from refdelta.engine.expressions.columnar import Columnar, all_valid, constant


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


def made_lists(values: Any, lengths: Any, kind: pa.DataType, valid: Any) -> Any:
    """A column of arrays from all elements, the number of those of each row, and the rows that are not null."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    values = values if values.type == kind.value_type else values.cast(kind.value_type)
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
    return compare("=", values, item.take(pa.array(column.rows)))


def _valid(*arrays: Any) -> Any:
    return all_valid(arrays).to_numpy(zero_copy_only=False)


def _indexed(node: Call, array: Any, key: Any) -> Any:
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


def _null_for(valid: Any, found: Any, kind: pa.DataType) -> Any:
    return pa.array(found, kind, mask=~valid)


def _size(_: Call, array: Any) -> Any:
    return _null_for(_valid(array), ListColumn.of(array).lengths, pa.int32())


def _contains(_: Call, array: Any, item: Any) -> Any:
    column = ListColumn.of(array)
    found = column.per_row(_equal(column, column.values, item))
    unknown = ~found & column.per_row(column.values.is_null())
    return _null_for(_valid(array, item) & ~unknown, found, pa.bool_())


def _position(_: Call, array: Any, item: Any) -> Any:
    column = ListColumn.of(array)
    found = _first(column, _equal(column, column.values, item))
    return _null_for(_valid(array, item), np.where(found < 0, 0, found - column.starts + 1), pa.int64())


def _kept(column: ListColumn, keep: Any, kind: pa.DataType, valid: Any = None) -> Any:
    lengths = np.bincount(column.rows[keep], minlength=len(column.lengths))
    return made_lists(
        column.values.filter(pa.array(keep)),
        lengths,
        kind,
        column.array.is_valid() if valid is None else pa.array(valid),
    )


def _remove(node: Call, array: Any, item: Any) -> Any:
    column = ListColumn.of(array)
    keep = ~_plain(_equal(column, column.values, item))
    valid = _valid(array, item)
    return _kept(column, keep & valid[column.rows], arrow_type(node.type), valid)


def _compact(node: Call, array: Any) -> Any:
    column = ListColumn.of(array)
    return _kept(column, _plain(column.values.is_valid()), arrow_type(node.type))


def _sortable(values: Any) -> Any:
    """Elements as what sorts and groups as Spark does: one zero, and one NaN."""
    if pa.types.is_floating(values.type):
        return pc.if_else(pc.is_nan(values), float("nan"), pc.add(values, 0.0)).cast(values.type)
    return values


def _order(column: ListColumn, *, up: bool = True, nulls: str = "at_end") -> Any:
    """The places of the elements in order, row by row."""
    table = pa.table({"row": column.rows, "value": _sortable(column.values)})
    # Nulls and NaN are placed by hand: Arrow puts both at one end.
    rank = pc.rank(table["value"], sort_keys="ascending", tiebreaker="dense")
    numbers = rank.to_numpy().astype(np.int64)
    if not up:
        numbers = -numbers
    if column.values.null_count:
        none = column.values.is_null().to_numpy(zero_copy_only=False)
        numbers = np.where(none, -(2**62) if nulls == "at_start" else 2**62, numbers)
    return np.lexsort((numbers, column.rows))


def _sorted(*, nulls_last: bool = False) -> Columnar:
    def function(node: Call, array: Any, *_: Any) -> Any:
        column = ListColumn.of(array)
        up = True if nulls_last else constant(node, 1)
        places = _order(column, up=up, nulls="at_start" if up and not nulls_last else "at_end")
        return column.with_values(column.values.take(pa.array(places)), column.lengths, arrow_type(node.type))

    return function


def _extreme(*, least: bool) -> Columnar:
    def function(_: Call, array: Any) -> Any:
        column = ListColumn.of(array)
        places = _order(column, up=least)
        empty = np.append(column.lengths, 0)[:-1] == 0
        firsts = np.append(places, 0)[np.minimum(column.starts, len(places))]
        return _taken(column.values, firsts, ~empty)

    return function


def _distinct(node: Call, array: Any) -> Any:
    column = ListColumn.of(array)
    rank = pc.rank(_sortable(column.values), sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    rank = np.where(column.values.is_null().to_numpy(zero_copy_only=False), 0, rank)
    keys = column.rows.astype(np.int64) * (len(rank) + 1) + rank
    keep = np.zeros(len(rank), bool)
    keep[np.unique(keys, return_index=True)[1]] = True
    if pa.types.is_floating(column.values.type):
        column = dataclasses.replace(column, values=_sortable(column.values))
    return _kept(column, keep, arrow_type(node.type))


def _slice(node: Call, array: Any, start: Any, count: Any) -> Any:
    column, valid = ListColumn.of(array), _valid(array, start, count)
    begin, many = (pc.fill_null(one.cast(pa.int64()), 1).to_numpy(zero_copy_only=False) for one in (start, count))
    if np.any(valid & ((begin == 0) | (many < 0))):
        raise pa.ArrowInvalid("slice begins at 1 or later")
    first = np.where(begin > 0, begin - 1, column.lengths + begin)
    many = np.where((first < 0) | ~valid, 0, many)
    place = np.arange(len(column.rows)) - column.starts[column.rows]
    keep = (place >= first[column.rows]) & (place < (first + many)[column.rows])
    return _kept(column, keep, arrow_type(node.type), valid)


def _joined(node: Call, array: Any) -> Any:
    between = constant(node, 1)
    nothing = constant(node, 2) if len(node.args) > 2 else None
    if between is None or (len(node.args) > 2 and nothing is None):
        return pa.nulls(len(array), pa.string())
    column = ListColumn.of(array)
    if nothing is None:
        kept = _kept(column, _plain(column.values.is_valid()), pa.list_(pa.string()))
    else:
        kept = column.with_values(pc.fill_null(column.values, nothing), column.lengths, pa.list_(pa.string()))
    return pc.binary_join(kept, between)


def _overlap(_: Call, one: Any, other: Any) -> Any:
    left, right = ListColumn.of(one), ListColumn.of(other)
    together = pa.concat_arrays([_sortable(left.values), _sortable(right.values.cast(left.values.type))])
    rank = pc.rank(together, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    keys = np.concatenate([left.rows, right.rows]).astype(np.int64) * (len(rank) + 1) + rank
    nulls = together.is_null().to_numpy(zero_copy_only=False)
    split = len(left.values)
    first, second = keys[:split][~nulls[:split]], keys[split:][~nulls[split:]]
    found = np.zeros(len(left.lengths), bool)
    found[np.intersect1d(first, second) // (len(rank) + 1)] = True
    some = (left.lengths > 0) & (right.lengths > 0)
    unknown = ~found & some & (left.per_row(left.values.is_null()) | right.per_row(right.values.is_null()))
    return _null_for(_valid(one, other) & ~unknown, found, pa.bool_())


def _concat(node: Call, *arrays: Any) -> Any:
    kind, valid = arrow_type(node.type), _valid(*arrays)
    columns = [ListColumn.of(array) for array in arrays]
    values = pa.concat_arrays([column.values.cast(kind.value_type) for column in columns])
    rows = np.concatenate([column.rows for column in columns])
    order = np.argsort(rows, kind="stable")
    order = order[valid[rows[order]]]
    lengths = np.where(valid, sum(column.lengths for column in columns), 0)
    return made_lists(values.take(pa.array(order)), lengths, kind, pa.array(valid))


def _flatten(node: Call, array: Any) -> Any:
    column = ListColumn.of(array)
    inner = ListColumn.of(column.values)
    valid = _valid(array) & ~column.per_row(column.values.is_null())
    lengths = np.bincount(column.rows, weights=inner.lengths, minlength=len(column.lengths)).astype(np.int64)
    keep = valid[column.rows][inner.rows]
    return made_lists(
        inner.values.filter(pa.array(keep)), np.where(valid, lengths, 0), arrow_type(node.type), pa.array(valid)
    )


def _reverse(node: Call, array: Any) -> Any:
    column = ListColumn.of(array)
    places = np.lexsort((-np.arange(len(column.rows)), column.rows))
    return column.with_values(column.values.take(pa.array(places)), column.lengths, arrow_type(node.type))


def _entries(place: int) -> Columnar:
    def function(node: Call, array: Any) -> Any:
        column = ListColumn.of(array)
        return column.with_values(column.values.field(place), column.lengths, arrow_type(node.type))

    return function


def _has_key(_: Call, array: Any, key: Any) -> Any:
    column = ListColumn.of(array)
    return _null_for(_valid(array, key), column.per_row(_equal(column, column.values.field(0), key)), pa.bool_())


def _array(node: Call, *arrays: Any) -> Any:
    kind = arrow_type(node.type)
    rows, many = len(arrays[0]), len(arrays)
    values = pa.concat_arrays([array.cast(kind.value_type) for array in arrays])
    places = (np.arange(many) * rows + np.arange(rows)[:, None]).reshape(-1)
    return made_lists(values.take(pa.array(places)), np.full(rows, many), kind, pa.array(np.ones(rows, bool)))


def _map(node: Call, *arrays: Any) -> Any:
    kind, rows = arrow_type(node.type), len(arrays[0])
    for place, key in enumerate(arrays[::2]):
        same = [compare("=", key, other) for other in arrays[::2][:place]]
        if key.null_count or any(pc.any(one, min_count=0).as_py() for one in same):
            raise pa.ArrowInvalid("a key is null, or there twice")
    many = len(arrays) // 2
    places = pa.array((np.arange(many) * rows + np.arange(rows)[:, None]).reshape(-1))
    keys = pa.concat_arrays([array.cast(kind.key_type) for array in arrays[::2]]).take(places)
    items = pa.concat_arrays([array.cast(kind.item_type) for array in arrays[1::2]]).take(places)
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * many)
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind)


def _struct(node: Call, *arrays: Any) -> Any:
    kind = arrow_type(node.type)
    columns = [array.cast(kind.field(place).type) for place, array in enumerate(arrays[1::2])]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _field(node: Call, array: Any, *_: Any) -> Any:
    return pc.struct_field(array, constant(node, 1))


def _joined_size(node: Call, array: Any) -> int:
    """An upper bound of the bytes that ``array_join`` makes."""
    longest = max(len((constant(node, place) or "").encode()) for place in range(1, len(node.args)))
    return int(array.nbytes) + len(array.values) * longest * 2


def _together(_: Call, *arrays: Any) -> int:
    return sum(array.nbytes for array in arrays)


# Functions whose result may be much longer than their arguments, with a bound of its bytes.
GROWN: dict[str, Callable[..., int]] = {
    "array": _together,
    "map": _together,
    "named_struct": _together,
    "array_concat": _together,
    "array_join": _joined_size,
}

ARRAYS: dict[str, Columnar] = {
    "array": _array,
    "map": _map,
    "named_struct": _struct,
    "field": _field,
    "[]": _indexed,
    "element_at": _indexed,
    "try_element_at": _indexed,
    "get": _indexed,
    "size": _size,
    "array_contains": _contains,
    "array_position": _position,
    "array_remove": _remove,
    "array_distinct": _distinct,
    "array_min": _extreme(least=True),
    "array_max": _extreme(least=False),
    "sort_array": _sorted(),
    "array_sort": _sorted(nulls_last=True),
    "array_compact": _compact,
    "array_join": _joined,
    "arrays_overlap": _overlap,
    "slice": _slice,
    "flatten": _flatten,
    "array_concat": _concat,
    "array_reverse": _reverse,
    "map_keys": _entries(0),
    "map_values": _entries(1),
    "map_contains_key": _has_key,
}
