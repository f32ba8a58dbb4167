"""The matches of a MERGE: pairs of rows of both sides, the clause that applies to each, and the places of the rows.

The source, or a part of it, is held in memory, and the table comes in pieces. Equalities of ON are joined by Arrow's
hash join, and the other conditions filter its pairs; the parts of a disjunction that have equalities are joined each by
itself. Without an equality every row is paired with every other, in blocks. A :class:`Matcher` runs in the process that
reads the files, which may be another one than the one that commits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import concat, empty_table, few_chunks, one_array
from refdelta.arrow.python_values import python_rows
from refdelta.engine.scan.positions import RowsByFile
from refdelta.engine.work.executor import at_least
from refdelta.errors import ConstraintViolationError
from refdelta.expressions.evaluate import row_mask
from refdelta.expressions.expression import columns
from refdelta.expressions.predicate import conjunction
from refdelta.operations.merge.join import joinable, joined, side
from refdelta.operations.shared.rewrite import others, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from refdelta.operations.merge.join import JoinCondition
    from refdelta.operations.merge.plan import BoundClause, MergePlan

PAIRS_AT_ONCE = 256 * 1024
"""The number of pairs in a block."""

_LEAST_PIECE, _LARGEST_PIECE = 8 * 2**20, 256 * 2**20


@dataclass
class MergeMatches:
    """The result of the first pass over some files, which have numbers.

    Attributes:
        matching: the rows that match a row of the source, by file.
        acting: the rows that change, by file.
        updated: the rows that are updated, by file.
        matched: the numbers of the source's rows that match.
        counts: the numbers of rows by the action on them.
        marks: the last numbers of the identity columns of inserted rows, by physical name.
    """

    matching: RowsByFile = field(default_factory=RowsByFile)
    acting: RowsByFile = field(default_factory=RowsByFile)
    updated: RowsByFile = field(default_factory=RowsByFile)
    matched: pa.Array = field(default_factory=lambda: pa.array([], pa.int64()))
    counts: Counter[str] = field(default_factory=Counter)
    marks: Mapping[str, int] = field(default_factory=dict)

    def take_in(self, other: MergeMatches, numbers: Sequence[int] | None = None) -> None:
        """Add the result over other rows.

        Args:
            other: the result.
            numbers: the numbers of its files in this one; None if both number the files alike.
        """
        for own, more in (
            (self.matching, other.matching),
            (self.acting, other.acting),
            (self.updated, other.updated),
        ):
            for number, rows in more.items():
                own.add(number if numbers is None else numbers[number], rows)
        self.hit(other.matched)
        self.counts.update(other.counts)

    def hit(self, rows: pa.Array) -> None:
        """Add rows of the source that match."""
        self.matched = pc.unique(concat([self.matched, rows]))


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
class ClauseRows:
    """The action of one clause on rows of a piece.

    Attributes:
        clause: the clause.
        pairs: its rows of the table, each with a row of the source, or with null.
    """

    clause: BoundClause
    pairs: JoinedPairs

    @property
    def deletes(self) -> bool:
        """True if the rows are deleted."""
        return self.clause.clause.kind == "delete"

    @cached_property
    def rows(self) -> pa.Array:
        """The numbers of the rows in the piece, ascending and distinct."""
        return pc.unique(self.pairs.target)


@dataclass(frozen=True)
class Matcher:
    """Finds the pairs of a MERGE, and the clause that applies to each.

    Attributes:
        plan: the bound MERGE.
        source: rows of the source, with at least those that match a row of the pieces.
        whole: whether these are all rows of the source, in its order.
    """

    plan: MergePlan
    source: pa.Table
    whole: bool = False

    @cached_property
    def _ways(self) -> list[tuple[JoinCondition, pa.Table]]:
        """The conditions by whose keys rows are joined, each with the keys of the source; else the only one, without
        keys.
        """
        on = self.plan.on
        return [(way, self._keys(way)) for way in on.joins or (on,)]

    def _keys(self, way: JoinCondition) -> pa.Table:
        batches, start, pieces = [empty_table(self.source.schema), *self.source.to_batches()], 0, []
        for batch in batches:
            rows = pa.arange(start, start + batch.num_rows)
            pieces.append(self._side(way, self.plan.source_alias, batch, rows, "source"))
            start += batch.num_rows
        return pa.concat_tables(pieces)

    @property
    def piece_bytes(self) -> int:
        """The size of a piece of the table in Arrow's memory, in bytes."""
        # The join builds a hash table of the source for each piece; pieces of the source's size bound that cost.
        return min(_LARGEST_PIECE, max(_LEAST_PIECE, int(self.source.nbytes)))

    def find(self, found: MergeMatches, rows: pa.Table, files: pa.Array, positions: pa.Array) -> None:
        """Add the rows of a piece that match and those that change to ``found``.

        Args:
            found: the result so far.
            rows: a piece of the table with the columns of the conditions.
            files: for each row, the number of its file, ascending.
            positions: for each row, its position in the file.

        Raises:
            ConstraintViolationError: several rows of the source match one row of the table.
        """
        pairs = self.pairs(rows)
        if not self.plan.may_repeat:
            self._check_single(rows, pairs)
        found.hit(pairs.source)
        found.matching.note(files.take(pairs.target), positions.take(pairs.target))
        for action in self.actions(rows, pairs):
            where = files.take(action.rows), positions.take(action.rows)
            found.acting.note(*where)
            if not action.deletes:
                found.updated.note(*where)
            verb = "deleted" if action.deletes else "updated"
            found.counts[f"{action.clause.clause.when} {verb}"] += len(action.rows)

    def pairs(self, rows: pa.Table) -> JoinedPairs:
        """The pairs of some rows of the target with all rows of the source.

        Args:
            rows: the rows of the target, with at least the columns of the condition.
        """
        numbers = pa.arange(0, rows.num_rows)
        blocks: Iterable[pa.Table]
        if self._ways[0][0].keys:
            found = pa.concat_tables(self._joined(way, keys, rows, numbers) for way, keys in self._ways)
            if len(self._ways) > 1:
                found = found.group_by(found.column_names).aggregate([])
            found = found.sort_by([("target", "ascending"), ("source", "ascending")])
            blocks = _slices(found, PAIRS_AT_ONCE)
        else:
            ((way, keys),) = self._ways
            own = self._side(way, self.plan.target_alias, rows, numbers, "target")
            blocks = _products(own.column("target"), keys.column("source"))
        kept = [self._holding(block, rows) for block in blocks]
        schema = pa.schema([("target", pa.int64()), ("source", pa.int64())])
        table = pa.concat_tables([empty_table(schema), *kept])
        return JoinedPairs(one_array(table.column("target")), one_array(table.column("source")))

    def _joined(self, way: JoinCondition, keys: pa.Table, rows: pa.Table, numbers: pa.Array) -> pa.Table:
        """The pairs with equal keys."""
        own = self._side(way, self.plan.target_alias, rows, numbers, "target")
        names = [name for name in own.column_names if name != "target"]
        return own.join(keys, names, join_type="inner", coalesce_keys=True).select(["target", "source"])

    def rows(self, pairs: JoinedPairs, rows: pa.Table, needed: frozenset[tuple[str, ...]]) -> pa.RecordBatch:
        """The rows of pairs side by side.

        Args:
            pairs: the pairs.
            rows: the piece of the target.
            needed: the columns that are needed, as paths that begin with the alias.
        """
        relations = {}
        for alias, table, numbers in (
            (self.plan.target_alias, rows, pairs.target),
            (self.plan.source_alias, self.source, pairs.source),
        ):
            names = {path[1] for path in needed if path[0] == alias}
            relations[alias] = table.select([name for name in table.column_names if name in names]).take(numbers)
        return joined(relations, len(pairs))

    def actions(self, rows: pa.Table, pairs: JoinedPairs | None = None) -> list[ClauseRows]:
        """The actions on the rows of a piece, by clause; each row is in at most one of them.

        Args:
            rows: the piece of the table.
            pairs: its pairs; None if they are not known.
        """
        pairs = self.pairs(rows) if pairs is None else pairs
        found: list[ClauseRows] = []
        of_rest = self.plan.of_rest
        left = pairs
        for clause in self.plan.of_pairs:
            if not len(left):
                break
            if clause.condition is None:
                found.append(ClauseRows(clause, left))
                left = left.filter(pa.repeat(pa.scalar(False), len(left)))
                continue
            mask = row_mask(clause.condition, self.rows(left, rows, clause.condition_columns))
            found.append(ClauseRows(clause, left.filter(mask)))
            left = left.filter(others(mask))
        if of_rest:
            numbers = pa.arange(0, rows.num_rows)
            rest = numbers.filter(pc.invert(pc.is_in(numbers, value_set=pairs.target)))
            nothing = pa.nulls(len(rest), pa.int64())
            unmatched = JoinedPairs(rest, nothing)
            for clause in of_rest:
                if clause.condition is None:
                    found.append(ClauseRows(clause, unmatched))
                    break
                own = self.rows(unmatched, rows, clause.condition_columns)
                mask = row_mask(clause.condition, own)
                found.append(ClauseRows(clause, unmatched.filter(mask)))
                unmatched = unmatched.filter(others(mask))
        return [action for action in found if len(action.pairs)]

    def _check_single(self, rows: pa.Table, pairs: JoinedPairs) -> None:
        """Raise ``ConstraintViolationError`` if several rows of the source match one row of the table."""
        if len(pairs) < 2:
            return
        twice = pc.equal(pairs.target.slice(1), pairs.target.slice(0, len(pairs) - 1))
        place = pc.index(twice, True).as_py()
        if place < 0:
            return
        number = pairs.target[place].as_py()
        count = pc.sum(pc.equal(pairs.target, number)).as_py()
        keys = {path[1] for path in self.plan.on.columns if path[0] == self.plan.target_alias}
        row = python_rows(rows.slice(number, 1).select([name for name in rows.column_names if name in keys]))[0]
        raise ConstraintViolationError(
            f"{count} rows of the source match one row of the table ({shown(row)}), so the result is not defined; "
            "remove duplicates from the source, for example by its key"
        )

    def _side(self, way: JoinCondition, alias: str, rows: Any, numbers: pa.Array, name: str) -> pa.Table:
        """The keys of some rows and their numbers, without rows for which the conditions on this side alone are not
        true.
        """
        batch = side(alias, rows)
        own = way.target_only if name == "target" else way.source_only
        if own:
            mask = row_mask(conjunction(own), batch)
            batch, numbers = batch.filter(mask), numbers.filter(mask)
        return pa.table({**joinable(way, batch, target=name == "target"), name: numbers})

    def _holding(self, block: pa.Table, rows: pa.Table) -> pa.Table:
        """The pairs of a block for which the rest of the condition is true."""
        if not self.plan.on.rest or not block.num_rows:
            return block
        condition = conjunction(self.plan.on.rest)
        pairs = JoinedPairs(one_array(block.column("target")), one_array(block.column("source")))
        return block.filter(row_mask(condition, self.rows(pairs, rows, columns(condition))))


def gathered(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """The same rows in pieces of at least ``size`` bytes, except the last one."""
    return map(piece_of, at_least(batches, lambda batch: batch.nbytes, size))


def piece_of(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Batches as one piece of the table."""
    return few_chunks(pa.Table.from_batches(batches))


def _slices(table: pa.Table, most: int) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, most):
        yield table.slice(start, most)


def _products(target: Any, source: Any) -> Iterator[pa.Table]:
    """All pairs of numbers of two columns, in blocks, in the order of the first column."""
    target, source = one_array(target), one_array(source)
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
