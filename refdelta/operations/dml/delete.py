"""DELETE: remove the rows for which a predicate is true, or all rows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from refdelta.engine.log.state import to_adds
from refdelta.engine.scan.scan import plan_scan
from refdelta.expressions.sql import parse_predicate
from refdelta.operations.shared.rewrite import RewriteResult, delete_where, may_remove, operation_metrics, remove_files

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction


def delete(txn: Transaction, snapshot: Snapshot, predicate: str | None) -> None:
    """Stage the removal of the rows for which ``predicate`` is true; None for all rows.

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        predicate: SQL in Spark's dialect.

    Raises:
        PredicateError: the predicate cannot be parsed or bound.
        ConstraintViolationError: the table is append-only.
    """
    may_remove(txn)
    started = time.monotonic()
    if predicate is None:
        removed = to_adds(snapshot.files)
        txn.read_whole_table()
        rows = plan_scan(snapshot, columns=[]).count()
        remove_files(txn, removed)
        gone = RewriteResult(removed, [], 0, rows)
    else:
        gone = delete_where(txn, snapshot, parse_predicate(predicate, snapshot.schema, now=txn.now))
    noted = {
        **operation_metrics(txn, gone),
        "numDeletedRows": gone.matched_rows,
        "executionTimeMs": int((time.monotonic() - started) * 1000),
    }
    condition = "true" if predicate is None else predicate
    txn.describe("DELETE", {"predicate": msgspec.json.encode([condition]).decode()}, noted, _metrics(gone))


def _metrics(gone: RewriteResult) -> dict[str, int]:
    return {
        "num_added_files": len(gone.added),
        "num_removed_files": len(gone.removed),
        "num_deleted_rows": gone.matched_rows,
        "num_copied_rows": gone.copied_rows,
        **gone.vector_metrics(),
    }
