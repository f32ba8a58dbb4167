"""The execution of a MERGE, in two passes.

The first pass reads the columns of the conditions, and finds the rows that change. With deletion vectors, the second
pass reads only these rows, and the old ones are hidden; without, it reads all rows of their files and rewrites these.
This module records the reads, stages the removals and describes the commit; :func:`merge` begins. The rows of both
sides meet in a :class:`~refdelta.operations.merge.strategy.MergeStrategy`.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.log.actions import Metadata
from refdelta.engine.log.state import to_adds
from refdelta.engine.scan.filters import BoundFilter, informed
from refdelta.engine.scan.positions import stand
from refdelta.engine.scan.scan import plan_scan
from refdelta.expressions.evaluate import row_mask
from refdelta.expressions.predicate import FALSE, disjunction
from refdelta.operations.merge.join import side
from refdelta.operations.merge.matches import MergeMatches, gathered
from refdelta.operations.merge.plan import bind
from refdelta.operations.merge.strategy import Collected, DistributedExecutor
from refdelta.operations.shared.identity import changes_with_marks, check_numbers_once
from refdelta.operations.shared.rewrite import FileMatch, RewriteResult, chosen, hide_rows, may_remove, remove_files
from refdelta.operations.write.source import Source, open_source, record_reads, record_reads_of
from refdelta.pruning.stats import load_stats, lookup

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, Sequence

    from pyroaring import BitMap64

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.merge.plan import MergeClause, MergePlan, MergeRequest, When
    from refdelta.operations.merge.strategy import DistributedSource, MergeStrategy
    from refdelta.transaction.transaction import Transaction


def merge(txn: Transaction, snapshot: Snapshot, data: Any, request: MergeRequest) -> None:
    """Stage a MERGE.

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        data: the source, as :func:`refdelta.write_deltalake` takes it, which is held in memory; or a source of the
            transaction's executor.
        request: the condition and the clauses.

    Raises:
        InvalidArgumentError: SQL does not allow these clauses.
        PredicateError: SQL cannot be parsed or bound.
        ConstraintViolationError: several rows of the source match one row of the table, a row breaks a rule of the
            table, or the table is append-only; the written files are removed.
        ExpressionError: a value cannot be computed, or does not fit its column; the written files are removed.
    """
    started = time.monotonic()
    source = _open_source(txn, data)
    if isinstance(source, Source):
        source.convert_for(snapshot.schema, request.timezone)
    request.check()
    if any(clause.when != "not matched" for clause in request.clauses):
        may_remove(txn)
    plan, changes = bind(request, snapshot, source.schema, txn.now)
    if plan.rules.numbered:
        check_numbers_once(txn)
    strategy = Collected.of(plan, source.reader) if isinstance(source, Source) else source.strategy(plan)
    execution = MergeExecution(txn, snapshot, plan, strategy)
    execution.find()
    scanned = time.monotonic()
    after = next((a for a in changes if isinstance(a, Metadata)), snapshot.metadata)
    done = execution.write(dataclasses.replace(snapshot, metadata=after).tracked())
    if execution.found.marks:
        changes = changes_with_marks(changes, snapshot.metadata, execution.found.marks)
    txn.stage(changes)
    elapsed, scan = (int((moment - started) * 1000) for moment in (time.monotonic(), scanned))
    _describe(txn, request, execution, done, elapsed, scan)


@dataclass
class MergeExecution:
    """The state of a MERGE's execution.

    Attributes:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        plan: the bound MERGE.
        strategy: the join of both sides.
        candidates: the files that may have matching rows.
        found: the result of the first pass.
    """

    txn: Transaction
    snapshot: Snapshot
    plan: MergePlan
    strategy: MergeStrategy
    candidates: pa.Table = field(init=False)
    found: MergeMatches = field(default_factory=MergeMatches)

    @property
    def counts(self) -> Counter[str]:
        """The numbers of rows by the action on them."""
        return self.found.counts

    def find(self) -> None:
        """The first pass: find the rows that match and those that change, and record the reads."""
        snapshot = self.snapshot
        read = self.plan.reads(self.strategy.keys)
        flt = informed(BoundFilter(read), snapshot)
        keep = flt.prune(snapshot.files, snapshot.schema, snapshot.partition_columns).keep
        self.candidates = snapshot.files.filter(keep)
        # A row that matches would have changed the result, so the absence of such rows is recorded by the matcher.
        every = any(clause.condition is None for clause in self.plan.of_rest)
        finer = None if every else self._concerns
        with self.txn.reading(read, lambda: to_adds(self.candidates), finer):
            self.found = found = self.strategy.find(self.txn, snapshot.with_files(self.candidates), read)
        for number, acting in found.acting.items():
            found.matching.add(number, acting)
        numbers = sorted(found.matching)
        for number, add in zip(numbers, to_adds(chosen(self.candidates, numbers)), strict=True):
            self.txn.read_rows(add, found.matching[number])

    def _concerns(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.Array]:
        """The numbers of those of these rows, of the table's schema, that match a row of the source, or satisfy the
        condition of a WHEN NOT MATCHED BY SOURCE clause.
        """
        alias = self.plan.target_alias
        condition = disjunction(clause.condition for clause in self.plan.of_rest if clause.condition is not None)
        before = 0
        for piece in gathered(rows, self.strategy.piece_bytes):
            yield pc.add(self.strategy.matching(piece), before)
            if condition != FALSE:
                changed = pc.indices_nonzero(row_mask(condition, side(alias, piece)))
                yield pc.add(changed.cast(pa.int64()), before)
            before += piece.num_rows

    def write(self, snapshot: Snapshot) -> RewriteResult:
        """The second pass: write the rows that change and the rows that are inserted.

        Args:
            snapshot: the snapshot with the new schema.
        """
        numbers = sorted(self.found.acting)
        touched = chosen(self.candidates, numbers)
        if self.txn.vectors:
            done = self._hide(touched, [self.found.acting[number] for number in numbers])
        else:
            done = RewriteResult(to_adds(touched), [], 0)
            remove_files(self.txn, done.removed)
        self.txn.lose_early("MERGE")
        added = self.strategy.write(self.txn, snapshot.with_files(self.candidates), self.found)
        written = sum(int(lookup(load_stats(add.stats), ("numRecords",))) for add in added)
        changed = sum(count for what, count in self.counts.items() if what == "inserted" or what.endswith("updated"))
        return dataclasses.replace(done, added=added, copied_rows=written - changed)

    def _hide(self, touched: pa.Table, rows: Sequence[BitMap64]) -> RewriteResult:
        """Stage deletion vectors for the rows that change."""
        bare = dataclasses.replace(plan_scan(self.snapshot, []), files=touched)
        found = enumerate(stand(bare, rows))
        return hide_rows(self.txn, [FileMatch.of_rows(touched.slice(index, 1), own) for index, own in found])


def _open_source(txn: Transaction, data: Any) -> Source | DistributedSource:
    executor: object = txn.executor
    found = executor.source_of(data) if isinstance(executor, DistributedExecutor) else None
    if found is None:
        source = open_source(data)
        record_reads(txn, source.tables)
        return source
    record_reads_of(txn, found)
    return found


def _describe(
    txn: Transaction, request: MergeRequest, execution: MergeExecution, done: RewriteResult, elapsed: int, scan: int
) -> None:
    counts = execution.counts
    matched, rest = "matched", "not matched by source"
    updated = counts[f"{matched} updated"] + counts[f"{rest} updated"]
    deleted = counts[f"{matched} deleted"] + counts[f"{rest} deleted"]
    output = counts["inserted"] + updated + done.copied_rows
    source = execution.strategy.keys.rows
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
        "numTargetChangeFilesAdded": txn.change_files,
        "numTargetDeletionVectorsAdded": done.vectors_added,
        "numTargetDeletionVectorsRemoved": done.vectors_removed,
        "numTargetDeletionVectorsUpdated": done.vectors_updated,
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
        "num_target_files_scanned": execution.candidates.num_rows,
        "num_target_files_skipped_during_scan": execution.snapshot.num_files - execution.candidates.num_rows,
        "num_target_files_added": len(done.added),
        "num_target_files_removed": len(done.removed),
        **done.vector_metrics(),
        "scan_time_ms": scan,
        "rewrite_time_ms": elapsed - scan,
    }
    parameters = {
        "predicate": msgspec.json.encode([request.predicate]).decode(),
        "matchedPredicates": _recorded(request.clauses, "matched"),
        "notMatchedPredicates": _recorded(request.clauses, "not matched"),
        "notMatchedBySourcePredicates": _recorded(request.clauses, "not matched by source"),
    }
    txn.describe("MERGE", parameters, noted, metrics)


def _recorded(clauses: Sequence[MergeClause], when: When) -> str:
    """The clauses of a kind as JSON for the history."""
    shown: list[dict[str, Any]] = []
    for clause in clauses:
        if clause.when == when:
            condition = {} if clause.predicate is None else {"predicate": clause.predicate}
            shown.append({**condition, "actionType": clause.kind})
    return msgspec.json.encode(shown).decode()
