"""MERGE: rows of a source update, delete and join the rows of the table.

The source is held in memory; the table is read in pieces about as large, so that memory is bounded by the source and a
piece, whatever the table's size. A first pass reads the columns that the conditions look at and finds the files in
which anything changes; a second one writes these anew.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.engine.evaluate import row_mask
from refdelta.engine.filters import BoundFilter
from refdelta.engine.fit import plan_fit
from refdelta.engine.reader import read_file
from refdelta.engine.scan import plan_scan, scan_files
from refdelta.engine.schema import from_arrow, to_arrow
from refdelta.engine.sql import parse_predicate
from refdelta.engine.state import to_adds
from refdelta.engine.write import write_files
from refdelta.errors import ConstraintViolationError
from refdelta.ops.assign import Setter
from refdelta.ops.merge_clauses import BoundClause, Clause, Sides, bind_clause, check_clauses, evolved, recorded
from refdelta.ops.merge_join import Matcher, On, Pairs, joined
from refdelta.ops.merge_reads import target_predicate
from refdelta.ops.rewrite import Rewritten, may_remove, others, remove_files, shown
from refdelta.ops.target import with_schema
from refdelta.protocol.actions import Metadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    from refdelta.engine.snapshot import Snapshot
    from refdelta.ops.source import Source
    from refdelta.staging import Staging

_LEAST_PIECE, _LARGEST_PIECE = 8 * 2**20, 256 * 2**20
_INSERT_ROWS = 64 * 1024


@dataclass(frozen=True)
class Merge:
    """What is asked for.

    Attributes:
        predicate: ON, SQL in Spark's dialect.
        source_alias: the source's name in all expressions.
        target_alias: the table's.
        clauses: in their order.
        merge_schema: whether the table takes on columns that only the source has.
    """

    predicate: str
    source_alias: str
    target_alias: str
    clauses: tuple[Clause, ...]
    merge_schema: bool


def merge(txn: Staging, snapshot: Snapshot, source: Source, request: Merge) -> None:
    """Stage a MERGE.

    Args:
        txn: the transaction.
        snapshot: what it sees.
        source: the rows to merge; all are held in memory.
        request: what to do with them.

    Raises:
        InvalidArgumentError: clauses that SQL does not allow.
        PredicateError: SQL that cannot be parsed or bound.
        ConstraintViolationError: a row of the table that several rows of the source match, a null where the table has
            none, or a table that is append-only; nothing stays written.
        ExpressionError: a value that cannot be computed, or does not fit its column; nothing stays written.
    """
    started = time.monotonic()
    check_clauses(request.clauses)
    if any(clause.when != "not matched" for clause in request.clauses):
        may_remove(txn)
    struct = from_arrow(source.reader.schema)
    sides = Sides(request.target_alias, snapshot.schema, request.source_alias, struct, txn.now)
    on = On.of(parse_predicate(request.predicate, sides.both, now=txn.now), request.target_alias)
    schema = evolved(request.clauses, sides) if request.merge_schema else snapshot.schema
    changes = with_schema(snapshot, schema)
    clauses = [bind_clause(clause, sides, schema, merge_schema=request.merge_schema) for clause in request.clauses]
    fitter = plan_fit(source.reader.schema, struct)
    rows = pa.Table.from_batches([fitter.apply(batch) for batch in source.reader], to_arrow(struct))
    run = _Run(txn, snapshot, Matcher(on, request.target_alias, request.source_alias, rows), clauses)
    run.find()
    scanned = time.monotonic()
    txn.stage(changes)
    after = next((a for a in changes if isinstance(a, Metadata)), snapshot.metadata)
    done = run.write(dataclasses.replace(snapshot, metadata=after))
    elapsed, scan = (int((moment - started) * 1000) for moment in (time.monotonic(), scanned))
    _describe(txn, request, run, done, elapsed, scan)


@dataclass
class _Run:
    """One MERGE under way.

    Attributes:
        candidates: the files that may hold rows which match.
        touched: those in which rows change.
        matched: the numbers of the source's rows that match.
        counts: of rows, by what becomes of them.
    """

    txn: Staging
    snapshot: Snapshot
    matcher: Matcher
    clauses: Sequence[BoundClause]
    candidates: pa.Table = field(init=False)
    touched: pa.Table = field(init=False)
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
        """Find out which rows match and in which files something changes, and record what was read."""
        snapshot, alias = self.snapshot, self.matcher.target_alias
        if self.of_rest:
            self.txn.read_whole_table()
            self.candidates = snapshot.files
        else:
            read = target_predicate(self.matcher)
            self.txn.read_predicate(read)
            keep = BoundFilter(read).prune(snapshot.files, snapshot.schema, snapshot.partition_columns).keep
            self.candidates = snapshot.files.filter(keep)
        needed = self.matcher.on.columns.union(*(c.condition_columns for c in (*self.of_pairs, *self.of_rest)))
        names = [f.name for f in snapshot.schema if (alias, f.name) in {path[:2] for path in needed}]
        hit: list[pa.Array] = []
        changed: set[int] = set()
        read_files: set[int] = set()
        for rows, files in self._pieces(names or snapshot.schema.names[:1]):
            pairs = self.matcher.pairs(rows)
            if not self.may_repeat:
                self._check_single(rows, pairs)
            hit.append(pc.unique(pairs.source))
            if len(hit) > 1:
                hit = [pc.unique(pa.concat_arrays(hit))]
            read_files.update(pc.unique(files.take(pairs.target)).to_pylist())
            acting = _any(action.target for action in self._actions(rows, pairs))
            changed.update(pc.unique(files.take(acting)).to_pylist())
        self.matched = hit[0] if hit else pa.array([], pa.int64())
        read_files |= changed if self.of_rest else set()
        self.txn.read_files(to_adds(self.candidates.take(pa.array(sorted(read_files), pa.int64()))))
        self.touched = self.candidates.take(pa.array(sorted(changed), pa.int64()))

    def _pieces(self, names: list[str]) -> Iterator[tuple[pa.Table, pa.Array]]:
        """Some columns of the candidates in pieces, and for each row the number of its file."""
        scan = plan_scan(dataclasses.replace(self.snapshot, files=self.candidates), columns=names)
        batches = scan.executor.stream(
            lambda task: ((task[0], batch) for batch in read_file(scan.store, task[1], scan.plan)),
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
            numbers = pa.array(range(rows.num_rows), pa.int64())
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
        """Write the touched files anew, and the rows that are inserted; ``snapshot`` has the schema to come."""
        removed = to_adds(self.touched)
        remove_files(self.txn, removed)
        setters = [Setter(snapshot.schema, clause.assignments) for clause in self.clauses]
        change = {id(clause): setter for clause, setter in zip(self.clauses, setters, strict=True)}

        def made() -> Iterator[pa.RecordBatch]:
            touched = plan_scan(dataclasses.replace(snapshot, files=self.touched))
            held: list[pa.RecordBatch] = []
            size = 0
            for batch in touched.to_batches() if self.touched.num_rows else ():
                held.append(batch)
                size += batch.nbytes
                if size >= self._piece_bytes:
                    yield from self._rewritten(pa.Table.from_batches(held), change)
                    held, size = [], 0
            if held:
                yield from self._rewritten(pa.Table.from_batches(held), change)
            if self.of_source:
                yield from self._inserted(to_arrow(snapshot.schema), change)

        added = write_files(
            self.txn.store,
            pa.RecordBatchReader.from_batches(to_arrow(snapshot.schema), made()),
            schema=snapshot.schema,
            partition_columns=list(snapshot.partition_columns),
            properties=snapshot.properties,
        )
        self.txn.stage_written(added)
        return Rewritten(removed, added, self.counts["copied"])

    def _rewritten(self, rows: pa.Table, change: dict[int, Setter]) -> Iterator[pa.RecordBatch]:
        rows = rows.combine_chunks()
        pairs = self.matcher.pairs(rows)
        place = pa.array(range(rows.num_rows), pa.int64())
        own = place
        pieces = [rows]
        size = rows.num_rows
        gone: list[pa.Array] = []
        for action in self._actions(rows, pairs):
            kind, when = action.clause.clause.kind, action.clause.clause.when
            if kind == "delete":
                numbers = pc.unique(action.pairs.target)
                gone.append(numbers)
                self.counts[f"{when} deleted"] += len(numbers)
                continue
            numbers = action.pairs.target
            inputs = self.matcher.rows(action.pairs, rows, action.clause.value_columns)
            old = _one_batch(rows.take(numbers))
            changed = change[id(action.clause)](old, inputs)
            self.counts[f"{when} updated"] += len(numbers)
            pieces.append(pa.Table.from_batches([changed]))
            mask = pc.is_in(own, value_set=numbers)
            place = pc.replace_with_mask(place, mask, pa.array(range(size, size + len(numbers)), pa.int64()))
            size += len(numbers)
        if gone:
            place = place.filter(pc.invert(pc.is_in(own, value_set=pa.concat_arrays(gone))))
        self.counts["copied"] += pc.sum(pc.less(place, rows.num_rows)).as_py() or 0
        if len(pieces) == 1 and not gone:
            yield from rows.to_batches()
        else:
            yield from pa.concat_tables(pieces).take(place).to_batches()

    def _inserted(self, schema: pa.Schema, change: dict[int, Setter]) -> Iterator[pa.RecordBatch]:
        source, alias = self.matcher.source, self.matcher.source_alias
        numbers = pa.array(range(source.num_rows), pa.int64())
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
    def target(self) -> pa.Array:
        return self.pairs.target


def _any(arrays: Iterable[pa.Array]) -> pa.Array:
    return pa.concat_arrays([pa.array([], pa.int64()), *arrays])


def _piece(held: list[tuple[int, pa.RecordBatch]]) -> tuple[pa.Table, pa.Array]:
    files = pa.concat_arrays([pa.repeat(pa.scalar(index, pa.int64()), batch.num_rows) for index, batch in held])
    return pa.Table.from_batches([batch for _, batch in held]).combine_chunks(), files


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    return rows.combine_chunks().to_batches()[0]


def _describe(txn: Staging, request: Merge, run: _Run, done: Rewritten, elapsed: int, scan: int) -> None:
    counts = run.counts
    matched, rest = "matched", "not matched by source"
    updated = counts[f"{matched} updated"] + counts[f"{rest} updated"]
    deleted = counts[f"{matched} deleted"] + counts[f"{rest} deleted"]
    output = counts["inserted"] + updated + done.copied_rows
    source = run.matcher.source.num_rows
    noted = {
        "numSourceRows": source,
        "numTargetRowsInserted": counts["inserted"],
        "numTargetRowsUpdated": updated,
        "numTargetRowsMatchedUpdated": counts[f"{matched} updated"],
        "numTargetRowsNotMatchedBySourceUpdated": counts[f"{rest} updated"],
        "numTargetRowsDeleted": deleted,
        "numTargetRowsMatchedDeleted": counts[f"{matched} deleted"],
        "numTargetRowsNotMatchedBySourceDeleted": counts[f"{rest} deleted"],
        "numTargetRowsCopied": done.copied_rows,
        "numOutputRows": output,
        "numTargetFilesAdded": len(done.added),
        "numTargetFilesRemoved": len(done.removed),
        "numTargetBytesAdded": done.added_bytes,
        "numTargetBytesRemoved": done.removed_bytes,
        "numTargetChangeFilesAdded": 0,
        "numTargetDeletionVectorsAdded": 0,
        "numTargetDeletionVectorsRemoved": sum(add.deletion_vector is not None for add in done.removed),
        "numTargetDeletionVectorsUpdated": 0,
        "executionTimeMs": elapsed,
        "scanTimeMs": scan,
        "rewriteTimeMs": elapsed - scan,
    }
    metrics = {
        "num_source_rows": source,
        "num_target_rows_inserted": counts["inserted"],
        "num_target_rows_updated": updated,
        "num_target_rows_deleted": deleted,
        "num_target_rows_copied": done.copied_rows,
        "num_output_rows": output,
        "num_target_files_scanned": run.candidates.num_rows,
        "num_target_files_skipped_during_scan": run.snapshot.num_files - run.candidates.num_rows,
        "num_target_files_added": len(done.added),
        "num_target_files_removed": len(done.removed),
        "scan_time_ms": scan,
        "rewrite_time_ms": elapsed - scan,
    }
    parameters = {
        "predicate": msgspec.json.encode([request.predicate]).decode(),
        "matchedPredicates": recorded(request.clauses, "matched"),
        "notMatchedPredicates": recorded(request.clauses, "not matched"),
        "notMatchedBySourcePredicates": recorded(request.clauses, "not matched by source"),
    }
    txn.describe("MERGE", parameters, noted, metrics)
