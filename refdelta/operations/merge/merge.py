"""MERGE: update, delete and insert rows by a join of the table with a source."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from refdelta.core.log.actions import Metadata
from refdelta.engine.arrow.field_metadata import declared_schema
from refdelta.engine.arrow.schema import from_arrow
from refdelta.engine.expressions.sql import parse_predicate
from refdelta.operations.dml.rewrite import may_remove
from refdelta.operations.dml.rewrite_result import RewriteResult
from refdelta.operations.merge.clauses import MergeSides, bind_clause, check_clauses, evolved, recorded
from refdelta.operations.merge.collected import Collected
from refdelta.operations.merge.execution import MergeExecution, MergeStrategy
from refdelta.operations.merge.join import JoinCondition
from refdelta.operations.merge.plan import MergePlan
from refdelta.operations.write.identity import changes_with_marks, check_numbers_once
from refdelta.operations.write.row_rules import NO_RULES, RowRules
from refdelta.operations.write.source import Source, open_source, record_reads, rest_on
from refdelta.operations.write.target import with_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.merge.request import MergeRequest
    from refdelta.transaction.transaction import Transaction


class DistributedSource(Protocol):
    """A source whose rows are not in this process."""

    def version_of(self, uri: str) -> int | None:
        """The version of the table at ``uri`` from which the rows are made; None if they are not made from it."""

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""

    def strategy(self, plan: MergePlan) -> MergeStrategy:
        """The join with the table."""


@runtime_checkable
class DistributedExecutor(Protocol):
    """An executor with sources in other processes."""

    def source_of(self, data: Any) -> DistributedSource | None:
        """The data as a source in other processes; None for data that is read in this process."""


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
    check_clauses(request.clauses)
    if any(clause.when != "not matched" for clause in request.clauses):
        may_remove(txn)
    struct = from_arrow(source.schema)
    sides = MergeSides(request.target_alias, snapshot.schema, request.source_alias, struct, txn.now)
    on = JoinCondition.of(parse_predicate(request.predicate, sides.both, now=txn.now), request.target_alias)
    schema = snapshot.schema
    if request.merge_schema:
        schema = evolved(request.clauses, sides, declared_schema(source.schema))
    changes = with_schema(snapshot, schema)
    clauses = [bind_clause(clause, sides, schema, merge_schema=request.merge_schema) for clause in request.clauses]
    only_deletes = all(clause.kind == "delete" for clause in request.clauses)
    rules = NO_RULES if only_deletes else RowRules.after(snapshot, changes, txn.now)
    plan = MergePlan(on, request.target_alias, request.source_alias, struct, tuple(clauses), rules)
    plan.check_given()
    if rules.numbered:
        check_numbers_once(txn)
    strategy = Collected.of(plan, source.reader) if isinstance(source, Source) else source.strategy(plan)
    execution = MergeExecution(txn, snapshot, plan, strategy)
    execution.find()
    scanned = time.monotonic()
    after = next((a for a in changes if isinstance(a, Metadata)), snapshot.metadata)
    done = execution.write(dataclasses.replace(snapshot, metadata=after).tracked())
    txn.stage(changes_with_marks(changes, snapshot.metadata, execution.found.marks))
    elapsed, scan = (int((moment - started) * 1000) for moment in (time.monotonic(), scanned))
    _describe(txn, request, execution, done, elapsed, scan)


def _open_source(txn: Transaction, data: Any) -> Source | DistributedSource:
    executor: object = txn.executor
    found = executor.source_of(data) if isinstance(executor, DistributedExecutor) else None
    if found is None:
        source = open_source(data)
        record_reads(txn, source.tables)
        return source
    version = found.version_of(txn.store.uri)
    if version is not None:
        rest_on(txn, version)
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
        "matchedPredicates": recorded(request.clauses, "matched"),
        "notMatchedPredicates": recorded(request.clauses, "not matched"),
        "notMatchedBySourcePredicates": recorded(request.clauses, "not matched by source"),
    }
    txn.describe("MERGE", parameters, noted, metrics)
