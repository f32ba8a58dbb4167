"""The join of a MERGE: its condition, the keys of both sides, and the keys of the source as a predicate.

The equalities of ON between the two sides are its keys. The rows of the table that could match have the keys of the
source, which a predicate lists or bounds: it prunes files, and is recorded as the read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import concat, empty_table, one_array
from refdelta.arrow.partition import to_internal
from refdelta.expressions.evaluate import evaluate_value
from refdelta.expressions.expression import (
    And,
    Cast,
    Column,
    Comparison,
    Convert,
    In,
    IsNull,
    Literal,
    Or,
    Predicate,
    Value,
    columns,
)
from refdelta.expressions.predicate import FALSE, conjunction, disjunction
from refdelta.table.types import is_plain

_POSITION = "position\n"  # no column of a table can have this name
_TUPLES, _VALUES = 64, 256
"""The maximum numbers of combinations of keys, and of values of one key, that a predicate lists; else it has their
range.
"""


@dataclass(frozen=True)
class JoinKey:
    """An equality between an expression of the target and one of the source; ``<=>`` if ``nulls`` is true."""

    target: Value
    source: Value
    nulls: bool


@dataclass(frozen=True)
class JoinCondition:
    """The condition of a MERGE, split into its conjuncts.

    Attributes:
        keys: its equalities between the two sides.
        target_only: conditions on the target's row alone.
        source_only: conditions on the source's row alone.
        rest: all others.
        alternatives: where ``keys`` has none, the parts of a disjunction in ``rest`` of which each has some: a pair
            that matches has equal keys in one of them.
    """

    keys: tuple[JoinKey, ...]
    target_only: tuple[Predicate, ...]
    source_only: tuple[Predicate, ...]
    rest: tuple[Predicate, ...]
    alternatives: tuple[JoinCondition, ...] = ()

    @classmethod
    def of(cls, predicate: Predicate, target_alias: str) -> JoinCondition:
        """Split a bound predicate."""
        keys: list[JoinKey] = []
        parts: dict[str, list[Predicate]] = {"target": [], "source": [], "rest": []}
        for part in _conjuncts(predicate):
            key = _key(part, target_alias)
            if key is not None:
                keys.append(key)
                continue
            aliases = {path[0] == target_alias for path in columns(part)}
            parts["target" if aliases == {True} else "source" if aliases == {False} else "rest"].append(part)
        found: tuple[JoinCondition, ...] = ()
        if not keys:
            choices = (
                tuple(cls.of(one, target_alias) for one in part.children)
                for part in parts["rest"]
                if isinstance(part, Or)
            )
            found = next((some for some in choices if all(one.joins for one in some)), ())
        return cls(tuple(keys), tuple(parts["target"]), tuple(parts["source"]), tuple(parts["rest"]), found)

    @property
    def joins(self) -> tuple[JoinCondition, ...]:
        """The conditions by whose keys rows are joined: the pairs that match are among those of one of them, each with
        the conditions on one side that hold for all. Empty if every row has to be paired with every other.
        """
        if self.keys:
            return (self,)
        return tuple(
            replace(
                way,
                target_only=(*self.target_only, *way.target_only),
                source_only=(*self.source_only, *way.source_only),
            )
            for one in self.alternatives
            for way in one.joins
        )

    @property
    def columns(self) -> frozenset[tuple[str, ...]]:
        """The columns of the condition, as paths that begin with the alias."""
        values = [value for key in self.keys for value in (key.target, key.source)]
        return frozenset().union(
            *(columns(node) for node in (*values, *self.target_only, *self.source_only, *self.rest))
        )


def _conjuncts(predicate: Predicate) -> Iterator[Predicate]:
    if isinstance(predicate, And):
        for child in predicate.children:
            yield from _conjuncts(child)
    else:
        yield predicate


def _key(part: Predicate, target_alias: str) -> JoinKey | None:
    part = _null_safe(part)
    if not isinstance(part, Comparison) or part.op not in ("=", "<=>"):
        return None
    left, right = ({path[0] == target_alias for path in columns(side)} for side in (part.left, part.right))
    if (left, right) == ({True}, {False}):
        return JoinKey(part.left, part.right, part.op == "<=>")
    if (left, right) == ({False}, {True}):
        return JoinKey(part.right, part.left, part.op == "<=>")
    return None


def _null_safe(part: Predicate) -> Predicate:
    """``a <=> b`` for its spelled-out form, ``a = b OR (a IS NULL AND b IS NULL)``; the same predicate for others.

    The form is null where one side is null, and ``<=>`` is false: neither is a match.
    """
    if isinstance(part, Or) and len(part.children) == 2:
        for equal, nulls in (part.children, part.children[::-1]):
            if isinstance(equal, Comparison) and equal.op in ("=", "<=>") and isinstance(nulls, And):
                missing = [_uncast(child.child) for child in nulls.children if isinstance(child, IsNull)]
                both = [_uncast(equal.left), _uncast(equal.right)]
                if len(nulls.children) == 2 and missing in (both, both[::-1]):
                    return Comparison("<=>", equal.left, equal.right)
    return part


def _uncast(value: Value) -> Value:
    """The value without the casts around it that are null only where it is."""
    while isinstance(value, Cast) or (isinstance(value, Convert) and not value.lenient):
        value = value.child
    return value


def side(alias: str, rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    """Rows of one relation as the input of its expressions: one struct column, named by the alias."""
    return joined({alias: rows}, rows.num_rows)


def joined(relations: dict[str, pa.RecordBatch | pa.Table], count: int) -> pa.RecordBatch:
    """Rows of several relations side by side: a struct column for each, named by its alias.

    Args:
        relations: rows by alias, ``count`` of each.
        count: the number of rows.
    """
    columns: dict[str, pa.Array] = {_POSITION: pa.arange(0, count)}
    for alias, rows in relations.items():
        if rows.num_columns:
            arrays = [one_array(column) for column in rows.columns]
            columns[alias] = pa.StructArray.from_arrays(arrays, fields=[f.with_nullable(True) for f in rows.schema])
    return pa.RecordBatch.from_pydict(columns)


def joinable(on: JoinCondition, rows: pa.RecordBatch, *, target: bool) -> dict[str, pa.Array]:
    """The keys of rows of one relation as columns that the join can compare, with Spark's equality.

    Args:
        on: the condition.
        rows: the rows, as :func:`side` returns them.
        target: whether they are rows of the target.
    """
    found: dict[str, pa.Array] = {}
    for index, key in enumerate(on.keys):
        values = evaluate_value(key.target if target else key.source, rows)
        found |= _joinable(f"k{index}", values, nulls=key.nulls)
    return found


def _joinable(name: str, values: pa.Array, *, nulls: bool) -> dict[str, pa.Array]:
    """One key as columns that the join can compare: equal if and only if the values are equal in Spark."""
    kind = values.type
    found: dict[str, pa.Array] = {}
    if nulls:
        found[f"{name}null"] = values.is_null()
    if pa.types.is_floating(kind):
        wide = values.cast(pa.float64())
        # Spark treats both zeros as equal, and all NaNs as equal. A flag column marks NaN.
        missing = pc.fill_null(pc.is_nan(wide), False)
        found[f"{name}nan"] = missing
        values = pc.if_else(missing, 0.0, pc.add(wide, 0.0))
    elif pa.types.is_decimal256(kind):
        values = values.cast(pa.string())
    elif pa.types.is_null(kind):
        values = values.cast(pa.int8())
    if nulls:
        values = _filled(values)
    found[name] = values
    return found


def _filled(values: pa.Array) -> pa.Array:
    """The values with nulls replaced by a constant; a flag column marks the nulls."""
    return pc.fill_null(values, pa.array([_zero(values.type)], values.type)[0])


def _zero(kind: pa.DataType) -> Any:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ""
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return b""
    return False if pa.types.is_boolean(kind) else 0


# --- the keys of the source, as a predicate over the table ---


@dataclass(frozen=True)
class KeyValues:
    """The keys of a source's rows in bounded form, for a predicate. The keys of parts of a source can be combined.

    Rows with a null in a key of ``=`` match nothing, and have no part in the keys. Nulls of ``<=>`` are among them.

    Attributes:
        rows: the number of all rows of the source.
        tuples: the distinct combinations of keys, with a column for each key; None if there are too many.
        values: for each key, its distinct values, or the least and the greatest if there are too many.
    """

    rows: int
    tuples: pa.Table | None
    values: tuple[_Values, ...]

    @classmethod
    def of(cls, on: JoinCondition, alias: str, rows: pa.Table) -> KeyValues:
        """The keys of some rows of the source. Conditions on the source alone are ignored; further keys do no harm."""
        keys = bounded_keys(on)
        columns = {str(i): _evaluated(alias, key, rows) for i, key in enumerate(keys)}
        values = pa.table(columns)
        strict = [str(i) for i, key in enumerate(keys) if not key.nulls]
        if strict:
            values = values.filter(functools.reduce(pc.and_, (values.column(name).is_valid() for name in strict)))
        tuples = _distinct(values) if keys else None
        return cls(rows.num_rows, tuples, tuple(_Values(pc.unique(column)).bounded() for column in values.columns))

    def and_of(self, other: KeyValues) -> KeyValues:
        """The keys of both parts."""
        tuples = None
        if self.tuples is not None and other.tuples is not None:
            tuples = _distinct(pa.concat_tables([self.tuples, other.tuples]))
        both = zip(self.values, other.values, strict=True)
        return KeyValues(self.rows + other.rows, tuples, tuple(one.and_of(two) for one, two in both))


@dataclass(frozen=True)
class _Values:
    """The distinct values of one key, a null among them; if ``ends`` is true, only the least and the greatest, and the
    null.
    """

    found: pa.Array
    ends: bool = False

    def bounded(self) -> _Values:
        if not self.ends and len(self.found) <= _VALUES:
            return self
        order = pc.sort_indices(self.found)  # nulls come last
        greatest = len(order) - self.found.null_count - 1
        kept = {0, greatest, len(order) - 1}
        return _Values(self.found.take(pa.array([order[place].as_py() for place in sorted(kept)])), ends=True)

    def and_of(self, other: _Values) -> _Values:
        both = pc.unique(concat([self.found, other.found]))
        return _Values(both, self.ends or other.ends).bounded() if len(both) else self


def target_predicate(on: JoinCondition, alias: str, source: KeyValues) -> Predicate:
    """A predicate over the table's columns that is true for every row, present or future, that matches the source.

    Args:
        on: the condition.
        alias: the table's alias.
        source: the keys of the source.
    """
    own: list[Predicate] = [without_alias(part, alias) for part in on.target_only]
    keys = bounded_keys(on)
    if not source.rows:
        return FALSE
    if not keys:
        return conjunction(own)
    if not len(source.values[0].found):
        return FALSE
    if len(keys) > 1 and source.tuples is not None:
        return conjunction([*own, _tuples(keys, source.tuples, alias)])
    return conjunction([*own, *(_one(key, values, alias) for key, values in zip(keys, source.values, strict=True))])


def bounded_keys(on: JoinCondition) -> list[JoinKey]:
    """The keys whose values a predicate can list."""
    return [key for key in on.keys if is_plain(key.target.type)]


def _evaluated(alias: str, key: JoinKey, rows: pa.Table) -> pa.ChunkedArray:
    pieces = [evaluate_value(key.source, side(alias, batch)) for batch in rows.to_batches()]
    return pa.chunked_array(pieces or [evaluate_value(key.source, side(alias, empty_table(rows.schema)))])


def _distinct(tuples: pa.Table) -> pa.Table | None:
    found = tuples.group_by(tuples.column_names).aggregate([])
    return found if found.num_rows <= _TUPLES else None


def _one(key: JoinKey, values: _Values, alias: str) -> Predicate:
    target = without_alias(key.target, alias)
    kind = key.target.type
    literals = tuple(Literal(value, kind) for value in to_internal(values.found.drop_null(), kind))
    parts: list[Predicate] = []
    if literals and values.ends:
        parts.append(conjunction([Comparison(">=", target, literals[0]), Comparison("<=", target, literals[-1])]))
    elif literals:
        parts.append(In(target, literals))
    if values.found.null_count:
        parts.append(IsNull(target))
    return disjunction(parts)


def _tuples(keys: list[JoinKey], tuples: pa.Table, alias: str) -> Predicate:
    targets = [without_alias(key.target, alias) for key in keys]
    kinds = [key.target.type for key in keys]
    columns = [to_internal(one_array(tuples.column(str(i))), kind) for i, kind in enumerate(kinds)]
    return disjunction(
        conjunction(
            IsNull(target) if value is None else Comparison("=", target, Literal(value, kind))
            for target, value, kind in zip(targets, row, kinds, strict=True)
        )
        for row in zip(*columns, strict=True)
    )


def without_alias(node: Any, alias: str) -> Any:
    """The same expression without the alias at the beginning of its columns' paths."""
    if isinstance(node, Column):
        return msgspec.structs.replace(node, path=node.path[1:]) if node.path[0] == alias else node
    if isinstance(node, tuple):
        return tuple(without_alias(item, alias) for item in node)
    if isinstance(node, msgspec.Struct):
        changed = {name: without_alias(getattr(node, name), alias) for name in node.__struct_fields__}
        return msgspec.structs.replace(node, **changed)
    return node
