"""What a MERGE reads of its target: the rows that could match, by the target's own conditions and the source's keys."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.engine.evaluate import evaluate_value
from refdelta.engine.partition import to_internal
from refdelta.ops.merge_join import side
from refdelta.protocol.expression import Column, Literal
from refdelta.protocol.predicate import FALSE, Comparison, In, Predicate, conjunction, disjunction
from refdelta.protocol.types import (
    BINARY,
    BOOLEAN,
    DATE,
    INTEGRAL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
)

if TYPE_CHECKING:
    from refdelta.ops.merge_join import Key, Matcher

_TUPLES, _VALUES = 64, 256
"""How many combinations of keys, and how many values of one key, are named one by one; for more, their range is."""


def target_predicate(matcher: Matcher) -> Predicate:
    """A predicate over the table's columns that every row satisfies which matches a row of the source, now or later."""
    alias = matcher.target_alias
    own: list[Predicate] = [without_alias(part, alias) for part in matcher.on.target_only]
    keys = [key for key in matcher.on.keys if not key.nulls and _bounded(key.target.type)]
    if not matcher.source.num_rows:
        return FALSE
    if not keys:
        return conjunction(own)
    values = pa.table({str(i): _values(matcher, key) for i, key in enumerate(keys)}).drop_null()
    if not values.num_rows:
        return FALSE
    if len(keys) > 1:
        tuples = values.group_by(values.column_names).aggregate([])
        if tuples.num_rows <= _TUPLES:
            return conjunction([*own, _tuples(keys, tuples, alias)])
    return conjunction([*own, *(_one(key, values.column(str(i)), alias) for i, key in enumerate(keys))])


def _bounded(data_type: DataType) -> bool:
    known = (STRING, BINARY, BOOLEAN, DATE, TIMESTAMP, TIMESTAMP_NTZ)
    return data_type in INTEGRAL or data_type in known or isinstance(data_type, DecimalType)


def _values(matcher: Matcher, key: Key) -> pa.ChunkedArray:
    """The key of every row of the source; those that the source's own conditions refuse do no harm."""
    pieces = [evaluate_value(key.source, side(matcher.source_alias, batch)) for batch in matcher.source.to_batches()]
    return pa.chunked_array(pieces)


def _one(key: Key, values: pa.ChunkedArray, alias: str) -> Predicate:
    target = without_alias(key.target, alias)
    kind = key.target.type
    distinct = pc.unique(values)
    if len(distinct) <= _VALUES:
        return In(target, tuple(Literal(value, kind) for value in to_internal(distinct, kind)))
    if kind == BOOLEAN:
        return conjunction([])
    ordered = pc.sort_indices(distinct)
    ends = distinct.take(pa.array([ordered[0].as_py(), ordered[-1].as_py()]))
    low, high = (Literal(value, kind) for value in to_internal(ends, kind))
    return conjunction([Comparison(">=", target, low), Comparison("<=", target, high)])


def _tuples(keys: list[Key], tuples: pa.Table, alias: str) -> Predicate:
    targets = [without_alias(key.target, alias) for key in keys]
    kinds = [key.target.type for key in keys]
    columns = [to_internal(tuples.column(str(i)).combine_chunks(), kind) for i, kind in enumerate(kinds)]
    return disjunction(
        conjunction(
            Comparison("=", target, Literal(value, kind))
            for target, value, kind in zip(targets, row, kinds, strict=True)
        )
        for row in zip(*columns, strict=True)
    )


def without_alias(node: Any, alias: str) -> Any:
    """The same expression without the alias in front of its columns' paths."""
    if isinstance(node, Column):
        return dataclasses.replace(node, path=node.path[1:]) if node.path[0] == alias else node
    if isinstance(node, tuple):
        return tuple(without_alias(item, alias) for item in node)
    if dataclasses.is_dataclass(node) and not isinstance(node, (type, DataType)):
        changed = {f.name: without_alias(getattr(node, f.name), alias) for f in dataclasses.fields(node) if f.init}
        return dataclasses.replace(node, **changed)
    return node
