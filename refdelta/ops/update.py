"""UPDATE: new values for the rows of a predicate."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.engine.evaluate import row_mask
from refdelta.engine.sql import parse_predicate
from refdelta.engine.state import to_adds
from refdelta.errors import InvalidArgumentError
from refdelta.ops.assign import Assignment, Setter, constants, expressions, merged_rows
from refdelta.ops.rewrite import Rewritten, find_matches, may_remove, operation_metrics, remove_files, rewrite_files
from refdelta.protocol.predicate import TRUE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from refdelta.engine.snapshot import Snapshot
    from refdelta.staging import Staging


def update(
    txn: Staging,
    snapshot: Snapshot,
    *,
    updates: Mapping[str, str] | None,
    new_values: Mapping[str, Any] | None,
    predicate: str | None,
) -> None:
    """Stage new values for the rows for which ``predicate`` is true; for all rows where it is None.

    All expressions see the old values. They are computed for the rows that are updated, and for no others.

    Args:
        txn: the transaction.
        snapshot: what it sees.
        updates: SQL expressions by column; a name with dots is a field of a struct.
        new_values: Python values by column; one of the two is given.
        predicate: SQL in Spark's dialect.

    Raises:
        PredicateError: SQL that cannot be parsed or bound, or a value that its column cannot hold.
        ConstraintViolationError: the table is append-only, or a null where it has none; nothing stays written.
        ExpressionError: a value that cannot be computed, or does not fit its column; nothing stays written.
    """
    may_remove(txn)
    started = time.monotonic()
    condition = TRUE if predicate is None else parse_predicate(predicate, snapshot.schema, now=txn.now)
    change = Setter(snapshot.schema, _assignments(txn, snapshot, updates, new_values))
    matches = find_matches(snapshot, condition)
    scanned = time.monotonic()
    removed = [add for match in matches for add in to_adds(match.file)]
    if predicate is None:
        txn.read_whole_table()
    else:
        txn.read_predicate(condition)
    txn.read_files(removed)
    remove_files(txn, removed)

    def updated(batch: pa.RecordBatch) -> pa.RecordBatch:
        mask = pc.fill_null(row_mask(condition, batch), False)
        chosen = batch.filter(mask)
        return merged_rows(batch, mask, change(chosen, chosen)) if chosen.num_rows else batch

    added = rewrite_files(txn, snapshot, [match.file for match in matches], updated) if matches else []
    copied = sum(match.rows - match.matched for match in matches)
    done = Rewritten(removed, added, copied, sum(match.matched for match in matches))
    elapsed, scan = (int((moment - started) * 1000) for moment in (time.monotonic(), scanned))
    noted = {
        **operation_metrics(done),
        "numUpdatedRows": done.matched_rows,
        "executionTimeMs": elapsed,
        "scanTimeMs": scan,
        "rewriteTimeMs": elapsed - scan,
    }
    metrics = {
        "num_added_files": len(added),
        "num_removed_files": len(removed),
        "num_updated_rows": done.matched_rows,
        "num_copied_rows": copied,
        "scan_time_ms": scan,
    }
    shown = msgspec.json.encode([] if predicate is None else [predicate]).decode()
    txn.describe("UPDATE", {"predicate": shown}, noted, metrics)


def _assignments(
    txn: Staging, snapshot: Snapshot, updates: Mapping[str, str] | None, new_values: Mapping[str, Any] | None
) -> list[Assignment]:
    if bool(updates) == bool(new_values):
        raise InvalidArgumentError("give either updates (SQL expressions by column) or new_values (Python values)")
    if updates:
        return expressions(updates, snapshot.schema, snapshot.schema, now=txn.now)
    return constants(new_values or {}, snapshot.schema)
