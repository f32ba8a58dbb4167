"""The join of a MERGE: pairs of matching rows of the source and the target.

The source is held in memory, and the target is read in pieces. Equalities of ON are joined by Arrow's hash join, and
the other conditions filter its pairs. Without an equality every row is paired with every other, in blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.expressions.expression import Cast, Convert, Value, columns
from refdelta.core.expressions.predicate import And, Comparison, IsNull, Or, Predicate, conjunction
from refdelta.engine.arrow.arrays import empty_table
from refdelta.engine.expressions.evaluate import evaluate_value, row_mask

PAIRS_AT_ONCE = 256 * 1024
"""The number of pairs in a block."""

_POSITION = "position\n"  # no column of a table can have this name


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
    """

    keys: tuple[JoinKey, ...]
    target_only: tuple[Predicate, ...]
    source_only: tuple[Predicate, ...]
    rest: tuple[Predicate, ...]

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
        return cls(tuple(keys), tuple(parts["target"]), tuple(parts["source"]), tuple(parts["rest"]))

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
            arrays = [_whole(column) for column in rows.columns]
            columns[alias] = pa.StructArray.from_arrays(arrays, fields=[f.with_nullable(True) for f in rows.schema])
    return pa.RecordBatch.from_pydict(columns)


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


@dataclass(frozen=True)
class JoinedPairs:
    """Pairs of matching rows, by their numbers, in the order of the target's rows.

    Attributes:
        target: numbers of rows within the piece of the target.
        source: numbers of rows within the source.
    """

    target: pa.Array
    source: pa.Array

    def __len__(self) -> int:
        return len(self.target)

    def filter(self, mask: pa.BooleanArray) -> JoinedPairs:
        """The pairs for which the mask is true."""
        return JoinedPairs(self.target.filter(mask), self.source.filter(mask))


@dataclass(frozen=True)
class Matcher:
    """Finds the pairs of a MERGE.

    Attributes:
        on: its condition.
        target_alias: the alias of the table.
        source_alias: the alias of the source.
        source: the rows of the source.
    """

    on: JoinCondition
    target_alias: str
    source_alias: str
    source: pa.Table
    _keys: pa.Table = field(init=False, repr=False)

    def __post_init__(self) -> None:
        pieces = []
        start = 0
        for batch in self.source.to_batches():
            rows = pa.arange(start, start + batch.num_rows)
            pieces.append(self._side(self.source_alias, batch, rows, "source"))
            start += batch.num_rows
        empty = self._side(self.source_alias, empty_table(self.source.schema), pa.array([], pa.int64()), "source")
        object.__setattr__(self, "_keys", pa.concat_tables([empty, *pieces]))

    def pairs(self, rows: pa.Table) -> JoinedPairs:
        """The pairs of some rows of the target with all rows of the source.

        Args:
            rows: the rows of the target, with at least the columns of the condition.
        """
        numbers = pa.arange(0, rows.num_rows)
        own = self._side(self.target_alias, rows, numbers, "target")
        if self.on.keys:
            names = [name for name in own.column_names if name != "target"]
            found = own.join(self._keys, names, join_type="inner", coalesce_keys=True)
            found = found.select(["target", "source"]).sort_by([("target", "ascending"), ("source", "ascending")])
            blocks: Iterable[pa.Table] = _slices(found, PAIRS_AT_ONCE)
        else:
            blocks = _products(own.column("target"), self._keys.column("source"))
        kept = [self._holding(block, rows) for block in blocks]
        schema = pa.schema([("target", pa.int64()), ("source", pa.int64())])
        table = pa.concat_tables([empty_table(schema), *kept])
        return JoinedPairs(_whole(table.column("target")), _whole(table.column("source")))

    def rows(self, pairs: JoinedPairs, rows: pa.Table, needed: frozenset[tuple[str, ...]]) -> pa.RecordBatch:
        """The rows of pairs side by side.

        Args:
            pairs: the pairs.
            rows: the piece of the target.
            needed: the columns that are needed, as paths that begin with the alias.
        """
        relations = {}
        for alias, table, numbers in (
            (self.target_alias, rows, pairs.target),
            (self.source_alias, self.source, pairs.source),
        ):
            names = {path[1] for path in needed if path[0] == alias}
            relations[alias] = table.select([name for name in table.column_names if name in names]).take(numbers)
        return joined(relations, len(pairs))

    def _side(self, alias: str, rows: Any, numbers: pa.Array, name: str) -> pa.Table:
        """The keys of some rows and their numbers, without rows for which the conditions on this side alone are not
        true.
        """
        batch = side(alias, rows)
        own = self.on.target_only if name == "target" else self.on.source_only
        if own:
            mask = row_mask(conjunction(own), batch)
            batch, numbers = batch.filter(mask), numbers.filter(mask)
        return pa.table({**joinable(self.on, batch, target=name == "target"), name: numbers})

    def _holding(self, block: pa.Table, rows: pa.Table) -> pa.Table:
        """The pairs of a block for which the rest of the condition is true."""
        if not self.on.rest or not block.num_rows:
            return block
        condition = conjunction(self.on.rest)
        pairs = JoinedPairs(_whole(block.column("target")), _whole(block.column("source")))
        return block.filter(row_mask(condition, self.rows(pairs, rows, columns(condition))))


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


def _slices(table: pa.Table, most: int) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, most):
        yield table.slice(start, most)


def _products(target: Any, source: Any) -> Iterator[pa.Table]:
    """All pairs of numbers of two columns, in blocks, in the order of the first column."""
    target, source = _whole(target), _whole(source)
    if not len(source):
        return
    step = max(1, PAIRS_AT_ONCE // len(source))
    for start in range(0, len(target), step):
        own = target.slice(start, step)
        for first in range(0, len(source), PAIRS_AT_ONCE):
            other = source.slice(first, PAIRS_AT_ONCE)
            places = pa.arange(0, len(own) * len(other))
            rows = pc.divide(places, len(other))
            yield pa.table(
                {"target": own.take(rows), "source": other.take(pc.subtract(places, pc.multiply(rows, len(other))))}
            )
