"""One MERGE under way.

The source is held in memory; the table is read in pieces about as large, so that memory is bounded by the source and a
piece, whatever the table's size. A first pass reads the columns that the conditions look at and finds the rows in
which anything changes. A second one reads these rows alone, where deletion vectors hide the old ones, or else all rows
of their files, which are written anew.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.engine.arrays import one_array
from refdelta.engine.evaluate import row_mask
from refdelta.engine.filters import BoundFilter
from refdelta.engine.positions import RowsByFile, read_rows, stand
from refdelta.engine.reader import POSITION, read_file
from refdelta.engine.scan import plan_scan, scan_files
from refdelta.engine.schema import to_arrow
from refdelta.engine.state import to_adds
from refdelta.errors import ConstraintViolationError
from refdelta.ops.assign import Setter
from refdelta.ops.merge_clauses import BoundClause
from refdelta.ops.merge_join import Matcher, Pairs, joined
from refdelta.ops.merge_reads import target_predicate
from refdelta.ops.rewrite import Match, Rewritten, hide_rows, others, remove_files, shown, write_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyroaring import BitMap64

    from refdelta.engine.snapshot import Snapshot
    from refdelta.staging import Staging

_LEAST_PIECE, _LARGEST_PIECE = 8 * 2**20, 256 * 2**20
_INSERT_ROWS = 64 * 1024


@dataclass
class Run:
    """One MERGE under way.

    Attributes:
        txn: the transaction.
        snapshot: what it sees.
        matcher: finds the pairs.
        clauses: bound, in their order.
        candidates: the files that may hold rows which match.
        acting: the rows in which anything changes, by the numbers of their files among the candidates.
        updated: those of them that are not deleted.
        matched: the numbers of the source's rows that match.
        counts: of rows, by what becomes of them.
    """

    txn: Staging
    snapshot: Snapshot
    matcher: Matcher
    clauses: Sequence[BoundClause]
    candidates: pa.Table = field(init=False)
    acting: RowsByFile = field(default_factory=RowsByFile)
    updated: RowsByFile = field(default_factory=RowsByFile)
    matched: pa.Array = field(init=False)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.of_pairs = [clause for clause in self.clauses if clause.clause.when == "matched"]
        self.of_rest = [clause for clause in self.clauses if clause.clause.when == "not matched by source"]
        self.of_source = [clause for clause in self.clauses if clause.clause.when == "not matched"]
        only = self.of_pairs[0] if len(self.of_pairs) == 1 else None
        # Deleting a row twice deletes it; anything else that two rows of the source do to it has no defined outcome.
        self.may_repeat = only is not None and only.clause.kind == "delete" and only.condition is None
        self.may_repeat |= not (self.of_pairs or self.of_rest)

    # --- the first pass ---

    def find(self) -> None:
        """Find out which rows match and in which rows something changes, and record what was read."""
        snapshot, alias = self.snapshot, self.matcher.target_alias
        if self.of_rest:
            self.txn.read_whole_table()
            self.candidates = snapshot.files
        else:
            read = target_predicate(self.matcher)
            self.txn.read_predicate(read, self._answers)
            keep = BoundFilter(read).prune(snapshot.files, snapshot.schema, snapshot.partition_columns).keep
            self.candidates = snapshot.files.filter(keep)
        needed = self.matcher.on.columns.union(*(c.condition_columns for c in (*self.of_pairs, *self.of_rest)))
        names = [f.name for f in snapshot.schema if (alias, f.name) in {path[:2] for path in needed}]
        hit: list[pa.Array] = []
        read_of = RowsByFile()
        for rows, files, positions in self._located(names or snapshot.schema.names[:1]):
            pairs = self.matcher.pairs(rows)
            if not self.may_repeat:
                self._check_single(rows, pairs)
            hit.append(pc.unique(pairs.source))
            if len(hit) > 1:
                hit = [pc.unique(pa.concat_arrays(hit))]
            read_of.note(files.take(pairs.target), positions.take(pairs.target))
            for action in self._actions(rows, pairs):
                where = files.take(action.rows), positions.take(action.rows)
                self.acting.note(*where)
                if not action.deletes:
                    self.updated.note(*where)
                verb = "deleted" if action.deletes else "updated"
                self.counts[f"{action.clause.clause.when} {verb}"] += len(action.rows)
        self.matched = hit[0] if hit else pa.array([], pa.int64())
        for number, own in self.acting.items():
            read_of[number] = read_of[number] | own if number in read_of else own
        numbers = sorted(read_of)
        for number, add in zip(numbers, to_adds(self._files(numbers)), strict=True):
            self.txn.read_rows(add, read_of[number])

    def _answers(self, rows: Iterable[pa.RecordBatch]) -> bool:
        """Whether some row matches a row of the source: had it been there, the MERGE would have gone otherwise."""
        return any(len(self.matcher.pairs(piece)) for piece in self._gathered(rows))

    def _files(self, numbers: Sequence[int]) -> pa.Table:
        return self.candidates.take(pa.array(numbers, pa.int64()))

    def _located(self, names: list[str]) -> Iterator[tuple[pa.Table, pa.Array, pa.Array]]:
        """Some columns of the candidates in pieces; for each row the number of its file, and its position in it."""
        scan = plan_scan(dataclasses.replace(self.snapshot, files=self.candidates), columns=names)
        plan = dataclasses.replace(scan.plan, positions=True)
        batches = scan.executor.stream(
            lambda task: ((task[0], batch) for batch in read_file(scan.store, task[1], plan)),
            list(enumerate(scan_files(scan))),
            weigh=lambda item: int(item[1].nbytes),
        )
        held: list[tuple[int, pa.RecordBatch]] = []
        size = 0
        for item in batches:
            held.append(item)
            size += item[1].nbytes
            if size >= self._piece_bytes:
                yield _piece(held)
                held, size = [], 0
        if held:
            yield _piece(held)

    def _gathered(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """The same rows in pieces."""
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            if size >= self._piece_bytes:
                yield pa.Table.from_batches(held).combine_chunks()
                held, size = [], 0
        if held:
            yield pa.Table.from_batches(held).combine_chunks()

    @property
    def _piece_bytes(self) -> int:
        # The join builds its table of the source anew for each piece; pieces of the source's size make up for that.
        return min(_LARGEST_PIECE, max(_LEAST_PIECE, int(self.matcher.source.nbytes)))

    def _check_single(self, rows: pa.Table, pairs: Pairs) -> None:
        """Raise for a row of the table that several rows of the source match."""
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
            f"{count} rows of the source match one row of the table ({shown(row)}), so that what becomes of it is not "
            "defined; leave one row of the source for each, for example by its key"
        )

    # --- what becomes of rows ---

    def _actions(self, rows: pa.Table, pairs: Pairs) -> list[_Action]:
        """What becomes of the rows of a piece that change, by clause; each row is in one of them at most."""
        found: list[_Action] = []
        left = pairs
        for clause in self.of_pairs:
            if not len(left):
                break
            if clause.condition is None:
                found.append(_Action(clause, left))
                left = left.filter(pa.repeat(pa.scalar(False), len(left)))
                continue
            mask = row_mask(clause.condition, self.matcher.rows(left, rows, clause.condition_columns))
            found.append(_Action(clause, left.filter(mask)))
            left = left.filter(others(mask))
        if self.of_rest:
            numbers = pa.arange(0, rows.num_rows)
            rest = numbers.filter(pc.invert(pc.is_in(numbers, value_set=pairs.target)))
            nothing = pa.nulls(len(rest), pa.int64())
            unmatched = Pairs(rest, nothing)
            for clause in self.of_rest:
                if clause.condition is None:
                    found.append(_Action(clause, unmatched))
                    break
                own = self.matcher.rows(unmatched, rows, clause.condition_columns)
                mask = row_mask(clause.condition, own)
                found.append(_Action(clause, unmatched.filter(mask)))
                unmatched = unmatched.filter(others(mask))
        return [action for action in found if len(action.pairs)]

    # --- the second pass ---

    def write(self, snapshot: Snapshot) -> Rewritten:
        """Write the rows that change and those that are inserted; ``snapshot`` has the schema to come."""
        numbers = sorted(self.acting)
        touched = self._files(numbers)
        setters = [Setter(snapshot.schema, clause.assignments) for clause in self.clauses]
        change = {id(clause): setter for clause, setter in zip(self.clauses, setters, strict=True)}
        if self.txn.vectors:
            done = self._hide(touched, [self.acting[number] for number in numbers])
            updated = sorted(self.updated)
            scan = plan_scan(dataclasses.replace(snapshot, files=self._files(updated)))
            old = read_rows(scan, [self.updated[number] for number in updated])
            anew: Callable[[pa.Table, dict[int, Setter]], Iterator[pa.RecordBatch]] = self._changed
        else:
            done = Rewritten(to_adds(touched), [], 0)
            remove_files(self.txn, done.removed)
            old = plan_scan(dataclasses.replace(snapshot, files=touched)).to_batches()
            anew = self._rewritten

        def made() -> Iterator[pa.RecordBatch]:
            for rows in self._gathered(old):
                yield from anew(rows, change)
            if self.of_source:
                yield from self._inserted(to_arrow(snapshot.schema), change)

        added = write_rows(self.txn, snapshot, made())
        return dataclasses.replace(done, added=added, copied_rows=self.counts["copied"])

    def _hide(self, touched: pa.Table, rows: list[BitMap64]) -> Rewritten:
        """Stage deletion vectors for the rows that change."""
        bare = dataclasses.replace(plan_scan(self.snapshot, []), files=touched)
        found = enumerate(stand(bare, rows))
        return hide_rows(self.txn, [Match.of_rows(touched.slice(index, 1), own) for index, own in found])

    def _changed(self, rows: pa.Table, change: dict[int, Setter]) -> Iterator[pa.RecordBatch]:
        """The new values of rows that are updated."""
        for action in self._actions(rows, self.matcher.pairs(rows)):
            yield self._new(action, rows, change)

    def _new(self, action: _Action, rows: pa.Table, change: dict[int, Setter]) -> pa.RecordBatch:
        inputs = self.matcher.rows(action.pairs, rows, action.clause.value_columns)
        return change[id(action.clause)](_one_batch(rows.take(action.pairs.target)), inputs)

    def _rewritten(self, rows: pa.Table, change: dict[int, Setter]) -> Iterator[pa.RecordBatch]:
        """All rows that are left of files that are written anew."""
        place = own = pa.arange(0, rows.num_rows)
        pieces = [rows]
        size = rows.num_rows
        gone: list[pa.Array] = []
        for action in self._actions(rows, self.matcher.pairs(rows)):
            if action.deletes:
                gone.append(action.rows)
                continue
            pieces.append(pa.Table.from_batches([self._new(action, rows, change)]))
            mask = pc.is_in(own, value_set=action.rows)
            place = pc.replace_with_mask(place, mask, pa.arange(size, size + len(action.rows)))
            size += len(action.rows)
        if gone:
            place = place.filter(pc.invert(pc.is_in(own, value_set=pa.concat_arrays(gone))))
        self.counts["copied"] += pc.sum(pc.less(place, rows.num_rows)).as_py() or 0
        if len(pieces) == 1 and not gone:
            yield from rows.to_batches()
        else:
            yield from pa.concat_tables(pieces).take(place).to_batches()

    def _inserted(self, schema: pa.Schema, change: dict[int, Setter]) -> Iterator[pa.RecordBatch]:
        source, alias = self.matcher.source, self.matcher.source_alias
        numbers = pa.arange(0, source.num_rows)
        rows = source.filter(pc.invert(pc.is_in(numbers, value_set=self.matched)))
        for batch in rows.to_batches(max_chunksize=_INSERT_ROWS):
            left = batch
            for clause in self.of_source:
                if not left.num_rows:
                    break
                chosen = left
                if clause.condition is not None:
                    mask = row_mask(clause.condition, joined({alias: left}, left.num_rows))
                    chosen, left = left.filter(mask), left.filter(others(mask))
                else:
                    left = left.slice(0, 0)
                if chosen.num_rows:
                    self.counts["inserted"] += chosen.num_rows
                    empty = pa.RecordBatch.from_arrays(
                        [pa.nulls(chosen.num_rows, f.type) for f in schema],
                        schema=pa.schema([f.with_nullable(True) for f in schema]),
                    )
                    yield change[id(clause)](empty, joined({alias: chosen}, chosen.num_rows))


@dataclass(frozen=True)
class _Action:
    """What one clause does to rows of a piece."""

    clause: BoundClause
    pairs: Pairs

    @property
    def deletes(self) -> bool:
        """Whether the rows go without another in their place."""
        return self.clause.clause.kind == "delete"

    @property
    def rows(self) -> pa.Array:
        """Their numbers in the piece, ascending, each once."""
        return pc.unique(self.pairs.target)


def _piece(held: list[tuple[int, pa.RecordBatch]]) -> tuple[pa.Table, pa.Array, pa.Array]:
    files = pa.concat_arrays([pa.repeat(pa.scalar(index, pa.int64()), batch.num_rows) for index, batch in held])
    table = pa.Table.from_batches([batch for _, batch in held]).combine_chunks()
    positions = one_array(table.column(POSITION.name))
    return table.drop_columns([POSITION.name]), files, positions


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    return rows.combine_chunks().to_batches()[0]
