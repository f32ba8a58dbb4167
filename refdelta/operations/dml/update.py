"""UPDATE: new values for the rows for which a predicate is true."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import ARROW_FALSE, scalar_of
from refdelta.engine.parquet.write import CHANGE, marked
from refdelta.errors import InvalidArgumentError
from refdelta.expressions.evaluate import row_mask
from refdelta.expressions.expression import Predicate
from refdelta.expressions.predicate import TRUE
from refdelta.expressions.sql import parse_predicate
from refdelta.operations.dml.assign import Assignment, Setter, constants, expressions, merged_rows
from refdelta.operations.shared.rewrite import (
    FileMatch,
    FileShare,
    RewriteResult,
    find_matches,
    hide_rows,
    may_remove,
    operation_metrics,
    remove_files,
    shares_of,
    write_anew,
)
from refdelta.operations.shared.row_rules import RowRules
from refdelta.table.change_feed import AFTER_UPDATE, BEFORE_UPDATE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction


def update(
    txn: Transaction,
    snapshot: Snapshot,
    *,
    updates: Mapping[str, str] | None,
    new_values: Mapping[str, Any] | None,
    predicate: str | None,
    timezone: str | None = None,
) -> None:
    """Stage new values for the rows for which ``predicate`` is true; None for all rows.

    All expressions see the old values. They are computed only for the rows that are updated.

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        updates: by column, an SQL expression; a name with dots is a field of a struct.
        new_values: by column, a Python value; either this or ``updates`` is given.
        predicate: SQL in Spark's dialect.
        timezone: the zone of times without one in ``new_values``; None for UTC.

    Raises:
        PredicateError: SQL cannot be parsed or bound, or a column cannot hold its new value.
        ConstraintViolationError: the table is append-only, or a row breaks a rule; the written files are removed.
        ExpressionError: a value cannot be computed, or does not fit its column; the written files are removed.
    """
    may_remove(txn)
    started = time.monotonic()
    condition = TRUE if predicate is None else parse_predicate(predicate, snapshot.schema, now=txn.now)
    assignments = _assignments(txn, snapshot, updates, new_values, timezone)
    change = Setter(snapshot.tracked().schema, assignments, RowRules.after(snapshot, now=txn.now))
    matches = find_matches(txn, snapshot, condition)
    scanned = time.monotonic()
    made = _changed_rows if txn.vectors else _changed_files
    done = made(txn, snapshot, matches, condition, change) if matches else RewriteResult([], [], 0)
    elapsed, scan = (int((moment - started) * 1000) for moment in (time.monotonic(), scanned))
    noted = {
        **operation_metrics(txn, done),
        # As in Spark, all files with updated rows count.
        "numRemovedFiles": len(matches),
        "numUpdatedRows": done.matched_rows,
        "executionTimeMs": elapsed,
        "scanTimeMs": scan,
        "rewriteTimeMs": elapsed - scan,
    }
    metrics = {
        "num_added_files": len(done.added),
        "num_removed_files": len(done.removed),
        "num_updated_rows": done.matched_rows,
        "num_copied_rows": done.copied_rows,
        **done.vector_metrics(),
        "scan_time_ms": scan,
    }
    shown = msgspec.json.encode([] if predicate is None else [predicate]).decode()
    txn.describe("UPDATE", {"predicate": shown}, noted, metrics)


def _changed_rows(
    txn: Transaction, snapshot: Snapshot, matches: Sequence[FileMatch], _: Predicate, change: Setter
) -> RewriteResult:
    """UPDATE with deletion vectors: the old rows are hidden, and only they are written with new values."""
    done = hide_rows(txn, matches)
    txn.lose_early("UPDATE")
    feed = txn.is_fed

    def anew(table: Snapshot, share: FileShare) -> Iterator[pa.RecordBatch]:
        for batch in share.to_batches(table):
            new = change(batch, batch)
            if feed:
                yield from (marked(batch, BEFORE_UPDATE), marked(new, AFTER_UPDATE))
            else:
                yield new

    work = shares_of(txn, matches, matched_only=True)
    return replace(done, added=write_anew(txn, snapshot, work, anew, feed=feed))


def _changed_files(
    txn: Transaction, snapshot: Snapshot, matches: Sequence[FileMatch], condition: Predicate, change: Setter
) -> RewriteResult:
    """UPDATE without deletion vectors: the files are rewritten, with new values in some rows."""
    feed = txn.is_fed

    def anew(table: Snapshot, share: FileShare) -> Iterator[pa.RecordBatch]:
        for batch in share.to_batches(table):
            mask = pc.fill_null(row_mask(condition, batch), ARROW_FALSE)
            chosen = batch.filter(mask)
            new = merged_rows(batch, mask, change(chosen, chosen)) if chosen.num_rows else batch
            if feed:
                yield marked(chosen, BEFORE_UPDATE)
                yield new.append_column(CHANGE, pc.if_else(mask, AFTER_UPDATE, scalar_of(None, pa.string())))
            else:
                yield new

    removed = [match.add for match in matches]
    remove_files(txn, removed)
    txn.lose_early("UPDATE")
    added = write_anew(txn, snapshot, shares_of(txn, matches, matched_only=False), anew, feed=feed)
    copied = sum(match.live - match.matched for match in matches)
    return RewriteResult(removed, added, copied, sum(match.matched for match in matches))


def _assignments(
    txn: Transaction,
    snapshot: Snapshot,
    updates: Mapping[str, str] | None,
    new_values: Mapping[str, Any] | None,
    timezone: str | None,
) -> list[Assignment]:
    if isinstance(new_values, str):
        raise InvalidArgumentError(
            "new_values is a mapping of columns to Python values; a predicate is given by name: "
            f"predicate={new_values!r}"
        )
    if updates and new_values:
        raise InvalidArgumentError("update takes updates (SQL expressions) or new_values (Python values), not both")
    if not updates and not new_values:
        raise InvalidArgumentError(
            "update needs either updates (SQL expressions by column) or new_values (Python values by column)"
        )
    if updates:
        return expressions(updates, snapshot.schema, snapshot.schema, now=txn.now)
    return constants(new_values or {}, snapshot.schema, timezone)
