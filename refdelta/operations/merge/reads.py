"""The read of a MERGE: the rows of the target that could match, by the condition and the keys of the source, and those
that a WHEN NOT MATCHED BY SOURCE clause could change.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.expressions.expression import Column, Literal
from refdelta.core.expressions.predicate import (
    FALSE,
    TRUE,
    Comparison,
    In,
    IsNull,
    Predicate,
    conjunction,
    disjunction,
)
from refdelta.core.table.types import is_plain
from refdelta.engine.arrow.arrays import empty_table, one_array
from refdelta.engine.expressions.evaluate import evaluate_value
from refdelta.engine.expressions.partition import to_internal
from refdelta.operations.merge.join import side

if TYPE_CHECKING:
    from refdelta.operations.merge.join import JoinCondition, JoinKey
    from refdelta.operations.merge.plan import MergePlan

_TUPLES, _VALUES = 64, 256
"""The maximum numbers of combinations of keys, and of values of one key, that a predicate lists; else it has their
range.
"""


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
        both = pc.unique(pa.concat_arrays([self.found, other.found]))
        return _Values(both, self.ends or other.ends).bounded() if len(both) else self


def read_predicate(plan: MergePlan, source: KeyValues) -> Predicate:
    """A predicate over the table's columns that is true for every row, present or future, that the MERGE could match
    or change.

    Args:
        plan: the bound MERGE.
        source: the keys of the source.
    """
    # A clause is tried where those before it are not true, so that their disjunction has all rows that change.
    rest = [
        TRUE if clause.condition is None else without_alias(clause.condition, plan.target_alias)
        for clause in plan.of_rest
    ]
    parts: list[Predicate] = [target_predicate(plan.on, plan.target_alias, source), *rest]
    return TRUE if TRUE in parts else disjunction(part for part in parts if part != FALSE)


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
