"""The rows that a MERGE writes: new values of updated rows, inserted rows, and rows that are copied.

With deletion vectors the old rows are hidden, and only changed rows are written. Without, the files of changed rows are
rewritten. For change files, the old values of changed rows are made, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import concat, one_batch
from refdelta.arrow.schema import to_arrow
from refdelta.engine.parquet.write import marked
from refdelta.expressions.evaluate import row_mask
from refdelta.operations.dml.assign import Setter
from refdelta.operations.merge.join import side
from refdelta.operations.merge.matches import gathered
from refdelta.operations.shared.rewrite import FileShare, others
from refdelta.table.change_feed import AFTER_UPDATE, BEFORE_UPDATE, DELETE, INSERT

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.merge.matches import ClauseRows, Matcher
    from refdelta.operations.merge.plan import BoundClause, MergePlan

INSERT_ROWS = 64 * 1024
"""The number of rows of the source that are inserted at once."""

_NUMBER = pa.field("\0number", pa.int64())  # no column has such a name


@dataclass(frozen=True)
class Portion:
    """The work of one task of the second pass.

    Attributes:
        share: the files and their rows to read; None for no files.
        inserts: the numbers of the source's rows that may be inserted.
        first: the number of rows that earlier tasks may insert.
    """

    share: FileShare | None
    inserts: pa.Array
    first: int = 0


@dataclass(frozen=True)
class ResultRows:
    """Makes the rows that a MERGE writes, from pieces of both sides.

    Attributes:
        plan: the bound MERGE.
        snapshot: the table with the new schema.
        feed: whether the rows get the column :data:`refdelta.engine.parquet.write.CHANGE`, the kind of each change, and
            the old rows are among them.
    """

    plan: MergePlan
    snapshot: Snapshot
    feed: bool = False

    def changed(self, matcher: Matcher, rows: pa.Table) -> list[pa.RecordBatch]:
        """The new values of the updated rows.

        Args:
            matcher: finds the matches.
            rows: a piece of the table, with all columns.
        """
        made: list[pa.RecordBatch] = []
        for action in matcher.actions(rows):
            made += self._old(action, rows)
            if not action.deletes:
                new = self._new(matcher, action, rows)
                made.append(marked(new, AFTER_UPDATE) if self.feed else new)
        return made

    def rewritten(self, matcher: Matcher, rows: pa.Table) -> list[pa.RecordBatch]:
        """The rows of rewritten files: unchanged and updated ones.

        Args:
            matcher: finds the matches.
            rows: a piece of the table, with all columns.
        """
        place = own = pa.arange(0, rows.num_rows)
        pieces = [_marked(rows, None) if self.feed else rows]
        size = rows.num_rows
        old: list[pa.RecordBatch] = []
        gone: list[pa.Array] = []
        for action in matcher.actions(rows):
            old += self._old(action, rows)
            if action.deletes:
                gone.append(action.rows)
                continue
            new = pa.Table.from_batches([self._new(matcher, action, rows)])
            pieces.append(_marked(new, AFTER_UPDATE) if self.feed else new)
            mask = pc.is_in(own, value_set=action.rows)
            place = pc.replace_with_mask(place, mask, pa.arange(size, size + len(action.rows)))
            size += len(action.rows)
        if gone:
            place = place.filter(pc.invert(pc.is_in(own, value_set=concat(gone))))
        kept = pieces[0] if len(pieces) == 1 and not gone else pa.concat_tables(pieces).take(place)
        return [*old, *kept.to_batches()]

    def inserted(self, source: pa.RecordBatch, first: int = 0) -> list[pa.RecordBatch]:
        """The inserted rows.

        Args:
            source: rows of the source that match no row of the table, with the columns of the clauses.
            first: the number of rows that were inserted before these.
        """
        schema = pa.schema([field.with_nullable(True) for field in to_arrow(self.snapshot.schema)])
        numbered = source.schema.get_field_index(_NUMBER.name) >= 0
        made: list[pa.RecordBatch] = []
        for clause, rows in _inserted(self.plan, source):
            empty = pa.RecordBatch.from_arrays([pa.nulls(rows.num_rows, f.type) for f in schema], schema=schema)
            own = rows.column(_NUMBER.name) if numbered else None
            new = self._setters[id(clause)](empty, side(self.plan.source_alias, rows), first, own)
            made.append(marked(new, INSERT) if self.feed else new)
            first += rows.num_rows
        return made

    @cached_property
    def _setters(self) -> dict[int, Setter]:
        return {
            id(one): Setter(
                self.snapshot.schema, one.assignments, self.plan.rules, inserting=one.clause.kind == "insert"
            )
            for one in self.plan.clauses
        }

    def _old(self, action: ClauseRows, rows: pa.Table) -> list[pa.RecordBatch]:
        """The old values of rows, for change files."""
        if not self.feed:
            return []
        kind = DELETE if action.deletes else BEFORE_UPDATE
        return [marked(batch, kind) for batch in rows.take(action.rows).to_batches()]

    def _new(self, matcher: Matcher, action: ClauseRows, rows: pa.Table) -> pa.RecordBatch:
        inputs = matcher.rows(action.pairs, rows, action.clause.value_columns)
        numbers = action.pairs.source if matcher.whole else None
        return self._setters[id(action.clause)](one_batch(rows.take(action.pairs.target)), inputs, numbers=numbers)


def result_rows(
    matcher: Matcher, vectors: bool, feed: bool, snapshot: Snapshot, portion: Portion
) -> Iterator[pa.RecordBatch]:
    """The rows that one task writes.

    Args:
        matcher: finds the matches.
        vectors: whether the old rows are hidden, so that only the changed ones are written.
        feed: see :class:`ResultRows`.
        snapshot: the table with the new schema.
        portion: the work of the task.
    """
    result = ResultRows(matcher.plan, snapshot, feed)
    change = result.changed if vectors else result.rewritten
    if portion.share is not None:
        for piece in gathered(portion.share.to_batches(snapshot), matcher.piece_bytes):
            yield from change(matcher, piece)
    source, first = matcher.source.take(portion.inserts), portion.first
    if matcher.whole:  # errors name the row
        source = source.append_column(_NUMBER, portion.inserts)
    for batch in source.to_batches(max_chunksize=INSERT_ROWS):
        new = result.inserted(batch, first)
        first += sum(rows.num_rows for rows in new)
        yield from new


def count_inserted(plan: MergePlan, source: pa.Table, numbers: pa.Array) -> int:
    """The number of inserted rows among the source's rows ``numbers``, which match no row of the table."""
    if any(clause.condition is None for clause in plan.of_source):
        return len(numbers)
    batches = source.take(numbers).to_batches(max_chunksize=INSERT_ROWS)
    return sum(rows.num_rows for batch in batches for _, rows in _inserted(plan, batch))


def _inserted(plan: MergePlan, source: pa.RecordBatch) -> list[tuple[BoundClause, pa.RecordBatch]]:
    """The inserted rows of the source, by clause."""
    found, left = [], source
    for clause in plan.of_source:
        chosen = left
        if clause.condition is None:
            left = left.slice(0, 0)
        else:
            mask = row_mask(clause.condition, side(plan.source_alias, left))
            chosen, left = left.filter(mask), left.filter(others(mask))
        if chosen.num_rows:
            found.append((clause, chosen))
        if not left.num_rows:
            break
    return found


def _marked(rows: pa.Table, kind: str | None) -> pa.Table:
    return pa.Table.from_batches([marked(one_batch(rows), kind)])
