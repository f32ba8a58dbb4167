"""A MERGE over pieces of its target: the rows that match, the actions on them, and the new rows.

It runs in the process that reads the files, which may be another one than the one that commits.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.table.change_feed import AFTER_UPDATE, BEFORE_UPDATE, DELETE, INSERT
from refdelta.engine.arrow.arrays import one_array
from refdelta.engine.arrow.schema import to_arrow
from refdelta.engine.expressions.evaluate import row_mask
from refdelta.engine.parquet.write import marked
from refdelta.engine.scan.chunking import at_least
from refdelta.engine.scan.positions import RowsByFile
from refdelta.engine.scan.reader import POSITION, read_file
from refdelta.engine.scan.scan import plan_scan, scan_files
from refdelta.errors import ConstraintViolationError
from refdelta.operations.dml.assign import Setter
from refdelta.operations.dml.rewrite import FileShare, others, shown
from refdelta.operations.merge.join import JoinedPairs, Matcher, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.merge.clauses import BoundClause
    from refdelta.operations.merge.plan import MergePlan

_LEAST_PIECE, _LARGEST_PIECE = 8 * 2**20, 256 * 2**20
_INSERT_ROWS = 64 * 1024
_NUMBER = pa.field("\0number", pa.int64())  # no column has such a name


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

    def take_in(self, other: MergeMatches, numbers: Sequence[int]) -> None:
        """Add the result over other files.

        Args:
            other: the result, with files that are not in this one.
            numbers: the numbers of its files in this one.
        """
        for own, more in (
            (self.matching, other.matching),
            (self.acting, other.acting),
            (self.updated, other.updated),
        ):
            own.update({numbers[index]: rows for index, rows in more.items()})
        self.hit(other.matched)
        self.counts.update(other.counts)

    def hit(self, rows: pa.Array) -> None:
        """Add rows of the source that match."""
        self.matched = pc.unique(pa.concat_arrays([self.matched, rows]))


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
class Pieces:
    """A MERGE's clauses over pieces of the table.

    Attributes:
        plan: the bound MERGE.
        matcher: finds the pairs with the rows of the source in this process.
        whole: whether these are all rows of the source, in its order.
    """

    plan: MergePlan
    matcher: Matcher
    whole: bool = False

    @classmethod
    def of(cls, plan: MergePlan, source: pa.Table, *, whole: bool = False) -> Pieces:
        """A MERGE with some rows of the source, with at least those that match a row of the pieces."""
        return cls(plan, Matcher(plan.on, plan.target_alias, plan.source_alias, source), whole)

    # --- the first pass ---

    def matching(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.Array]:
        """For each piece of some rows of the table, the numbers of those that match a row of the source."""
        before = 0
        for piece in gathered(rows, self.piece_bytes):
            yield pc.add(self.matcher.pairs(piece).target, before)
            before += piece.num_rows

    def find(self, located: Iterable[tuple[pa.Table, pa.Array, pa.Array]]) -> MergeMatches:
        """The rows that match and the rows that change.

        Args:
            located: pieces of the table with the columns of the conditions; for each row, the number of its file,
                ascending within the piece, and its position in the file.

        Raises:
            ConstraintViolationError: several rows of the source match one row of the table.
        """
        found = MergeMatches()
        may_repeat = self.plan.may_repeat
        for rows, files, positions in located:
            pairs = self.matcher.pairs(rows)
            if not may_repeat:
                self._check_single(rows, pairs)
            found.hit(pairs.source)
            found.matching.note(files.take(pairs.target), positions.take(pairs.target))
            for action in self._actions(rows, pairs):
                where = files.take(action.rows), positions.take(action.rows)
                found.acting.note(*where)
                if not action.deletes:
                    found.updated.note(*where)
                verb = "deleted" if action.deletes else "updated"
                found.counts[f"{action.clause.clause.when} {verb}"] += len(action.rows)
        return found

    def located(self, snapshot: Snapshot, names: Sequence[str]) -> Iterator[tuple[pa.Table, pa.Array, pa.Array]]:
        """Some columns of a table in pieces, as :meth:`find` takes them; files are numbered by their places in it."""
        scan = plan_scan(snapshot, columns=names)
        plan = dataclasses.replace(scan.plan, positions=True)
        batches = scan.executor.stream(
            lambda task: ((task[0], batch) for batch in read_file(scan.store, task[1], plan)),
            list(enumerate(scan_files(scan))),
            weigh=lambda item: int(item[1].nbytes),
        )
        return map(_piece, at_least(batches, lambda item: item[1].nbytes, self.piece_bytes))

    @property
    def piece_bytes(self) -> int:
        """The size of a piece of the table in Arrow's memory, in bytes."""
        # The join builds a hash table of the source for each piece; pieces of the source's size bound that cost.
        return min(_LARGEST_PIECE, max(_LEAST_PIECE, int(self.matcher.source.nbytes)))

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
        keys = {path[1] for path in self.matcher.on.columns if path[0] == self.matcher.target_alias}
        row = rows.slice(number, 1).select([name for name in rows.column_names if name in keys]).to_pylist()[0]
        raise ConstraintViolationError(
            f"{count} rows of the source match one row of the table ({shown(row)}), so the result is not defined; "
            "remove duplicates from the source, for example by its key"
        )

    # --- actions on rows ---

    def _actions(self, rows: pa.Table, pairs: JoinedPairs) -> list[_Action]:
        """The actions on the rows of a piece, by clause; each row is in at most one of them."""
        found: list[_Action] = []
        of_rest = self.plan.of_rest
        left = pairs
        for clause in self.plan.of_pairs:
            if not len(left):
                break
            if clause.condition is None:
                found.append(_Action(clause, left))
                left = left.filter(pa.repeat(pa.scalar(False), len(left)))
                continue
            mask = row_mask(clause.condition, self.matcher.rows(left, rows, clause.condition_columns))
            found.append(_Action(clause, left.filter(mask)))
            left = left.filter(others(mask))
        if of_rest:
            numbers = pa.arange(0, rows.num_rows)
            rest = numbers.filter(pc.invert(pc.is_in(numbers, value_set=pairs.target)))
            nothing = pa.nulls(len(rest), pa.int64())
            unmatched = JoinedPairs(rest, nothing)
            for clause in of_rest:
                if clause.condition is None:
                    found.append(_Action(clause, unmatched))
                    break
                own = self.matcher.rows(unmatched, rows, clause.condition_columns)
                mask = row_mask(clause.condition, own)
                found.append(_Action(clause, unmatched.filter(mask)))
                unmatched = unmatched.filter(others(mask))
        return [action for action in found if len(action.pairs)]

    # --- the second pass ---

    def anew(
        self, snapshot: Snapshot, portion: Portion, *, vectors: bool, feed: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The rows that one task writes.

        Args:
            snapshot: the table with the new schema.
            portion: the work of the task.
            vectors: whether the old rows are hidden, so that only the changed ones are written.
            feed: whether the rows get the column :data:`refdelta.engine.parquet.write.CHANGE`, the kind of each change,
                and the old rows are among them.
        """
        change = _setters(self.plan, snapshot)
        made = self._changed if vectors else self._rewritten
        if portion.share is not None:
            for rows in gathered(portion.share.to_batches(snapshot), self.piece_bytes):
                yield from made(rows, change, feed)
        source = self.matcher.source.take(portion.inserts)
        inserted = new_rows(self.plan, snapshot, source, portion.first, portion.inserts if self.whole else None)
        yield from (marked(batch, INSERT) for batch in inserted) if feed else inserted

    def changed(self, snapshot: Snapshot, rows: pa.Table, *, feed: bool = False) -> Iterator[pa.RecordBatch]:
        """The new values of the updated rows among rows of the table.

        Args:
            snapshot: as for :meth:`anew`.
            rows: rows of the table, with all columns.
            feed: as for :meth:`anew`.
        """
        return self._changed(rows, _setters(self.plan, snapshot), feed)

    def _changed(self, rows: pa.Table, change: dict[int, Setter], feed: bool) -> Iterator[pa.RecordBatch]:
        """The new values of the updated rows."""
        for action in self._actions(rows, self.matcher.pairs(rows)):
            if feed:
                yield from self._old(action, rows)
            if not action.deletes:
                new = self._new(action, rows, change)
                yield marked(new, AFTER_UPDATE) if feed else new

    def _old(self, action: _Action, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """The old values of rows, for the change data feed."""
        kind = DELETE if action.deletes else BEFORE_UPDATE
        return (marked(batch, kind) for batch in rows.take(action.rows).to_batches())

    def _new(self, action: _Action, rows: pa.Table, change: dict[int, Setter]) -> pa.RecordBatch:
        inputs = self.matcher.rows(action.pairs, rows, action.clause.value_columns)
        numbers = action.pairs.source if self.whole else None
        return change[id(action.clause)](_one_batch(rows.take(action.pairs.target)), inputs, numbers=numbers)

    def _rewritten(self, rows: pa.Table, change: dict[int, Setter], feed: bool) -> Iterator[pa.RecordBatch]:
        """The rows of rewritten files: unchanged and updated ones."""
        place = own = pa.arange(0, rows.num_rows)
        pieces = [_marked(rows, None) if feed else rows]
        size = rows.num_rows
        gone: list[pa.Array] = []
        for action in self._actions(rows, self.matcher.pairs(rows)):
            if feed:
                yield from self._old(action, rows)
            if action.deletes:
                gone.append(action.rows)
                continue
            new = pa.Table.from_batches([self._new(action, rows, change)])
            pieces.append(_marked(new, AFTER_UPDATE) if feed else new)
            mask = pc.is_in(own, value_set=action.rows)
            place = pc.replace_with_mask(place, mask, pa.arange(size, size + len(action.rows)))
            size += len(action.rows)
        if gone:
            place = place.filter(pc.invert(pc.is_in(own, value_set=pa.concat_arrays(gone))))
        if len(pieces) == 1 and not gone:
            yield from pieces[0].to_batches()
        else:
            yield from pa.concat_tables(pieces).take(place).to_batches()


@dataclass(frozen=True)
class _Action:
    """The action of one clause on rows of a piece."""

    clause: BoundClause
    pairs: JoinedPairs

    @property
    def deletes(self) -> bool:
        """True if the rows are deleted."""
        return self.clause.clause.kind == "delete"

    @property
    def rows(self) -> pa.Array:
        """The numbers of the rows in the piece, ascending and distinct."""
        return pc.unique(self.pairs.target)


def new_rows(
    plan: MergePlan, snapshot: Snapshot, source: pa.Table, first: int = 0, numbers: pa.Array | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows that a MERGE inserts.

    Args:
        plan: the bound MERGE.
        snapshot: the table with the new schema.
        source: rows of the source that match no row of the table, with the columns of the clauses.
        first: the number of rows that were numbered before these.
        numbers: the numbers of these rows in the source, for errors; None if they are not known.
    """
    change = _setters(plan, snapshot)
    if numbers is not None:
        source = source.append_column(_NUMBER, numbers)
    schema = pa.schema([field.with_nullable(True) for field in to_arrow(snapshot.schema)])
    for clause, rows in _inserted(plan, source):
        empty = pa.RecordBatch.from_arrays([pa.nulls(rows.num_rows, f.type) for f in schema], schema=schema)
        own = None if numbers is None else rows.column(_NUMBER.name)
        yield change[id(clause)](empty, joined({plan.source_alias: rows}, rows.num_rows), first, own)
        first += rows.num_rows


def count_inserted(plan: MergePlan, source: pa.Table, numbers: pa.Array) -> int:
    """The number of inserted rows among the source's rows ``numbers``, which match no row of the table."""
    if any(clause.condition is None for clause in plan.of_source):
        return len(numbers)
    return sum(rows.num_rows for _, rows in _inserted(plan, source.take(numbers)))


def _inserted(plan: MergePlan, source: pa.Table) -> Iterator[tuple[BoundClause, pa.RecordBatch]]:
    """The inserted rows of the source, by clause."""
    of_source = plan.of_source
    if not of_source:
        return
    for batch in source.to_batches(max_chunksize=_INSERT_ROWS):
        left = batch
        for clause in of_source:
            if not left.num_rows:
                break
            chosen = left
            if clause.condition is not None:
                mask = row_mask(clause.condition, joined({plan.source_alias: left}, left.num_rows))
                chosen, left = left.filter(mask), left.filter(others(mask))
            else:
                left = left.slice(0, 0)
            if chosen.num_rows:
                yield clause, chosen


def _setters(plan: MergePlan, snapshot: Snapshot) -> dict[int, Setter]:
    return {
        id(one): Setter(snapshot.schema, one.assignments, plan.rules, inserting=one.clause.kind == "insert")
        for one in plan.clauses
    }


def _piece(held: list[tuple[int, pa.RecordBatch]]) -> tuple[pa.Table, pa.Array, pa.Array]:
    files = pa.concat_arrays([pa.repeat(pa.scalar(index, pa.int64()), batch.num_rows) for index, batch in held])
    table = pa.Table.from_batches([batch for _, batch in held]).combine_chunks()
    positions = one_array(table.column(POSITION.name))
    return table.drop_columns([POSITION.name]), files, positions


def gathered(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """The same rows in pieces of at least ``size`` bytes, except the last one."""
    pieces = at_least(batches, lambda batch: batch.nbytes, size)
    return (pa.Table.from_batches(held).combine_chunks() for held in pieces)


def _marked(rows: pa.Table, kind: str | None) -> pa.Table:
    return pa.Table.from_batches([marked(_one_batch(rows), kind)])


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    return rows.combine_chunks().to_batches()[0]
