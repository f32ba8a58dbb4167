"""What a write says about itself: INSERT in all its forms is one operation of the history, ``WRITE``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from refdelta.operations.dml.rewritten import Rewritten
    from refdelta.operations.write.append import Written
    from refdelta.operations.write.target import Target
    from refdelta.transaction.staging import Staging

MODES = {"error": "ErrorIfExists", "ignore": "Ignore", "append": "Append", "overwrite": "Overwrite"}
"""The names of the modes in Spark's history."""


def describe_write(
    txn: Staging,
    target: Target,
    written: Written,
    rewritten: Rewritten,
    *,
    mode: str,
    predicate: str | None = None,
    dynamic: bool = False,
    always: bool = False,
) -> None:
    """Describe a write for commitInfo and for its result.

    Args:
        txn: the transaction.
        target: what the table will be.
        written: the new rows.
        rewritten: the rows that they replace.
        mode: a key of :data:`MODES`.
        predicate: replaceWhere.
        dynamic: whether the partitions of the data were replaced.
        always: commit even without a row, as deltalake does (spec_notes/divergences.md, "Statements").
    """
    parameters = {"mode": MODES[mode], "partitionBy": _json(list(target.partition_columns))}
    if predicate is not None:
        parameters["predicate"] = predicate
    if dynamic:
        parameters["isDynamicPartitionOverwrite"] = "true"
    noted = {
        "numFiles": len(written.adds),
        "numOutputRows": written.rows,
        "numOutputBytes": written.size,
    }
    if mode == "overwrite":
        noted["numRemovedFiles"] = len(rewritten.removed)
        noted["numRemovedBytes"] = rewritten.removed_bytes
    if predicate is not None:
        # As in Spark, what is written counts together, whether it is new or what remains of files.
        noted["numFiles"] += len(rewritten.added)
        noted["numOutputRows"] += rewritten.copied_rows
        noted["numOutputBytes"] += rewritten.added_bytes
        noted["numCopiedRows"] = rewritten.copied_rows
        noted["numDeletedRows"] = rewritten.matched_rows
        noted["numAddedChangeFiles"] = txn.change_files
    metrics = {
        "num_added_files": len(written.adds) + len(rewritten.added),
        "num_removed_files": len(rewritten.removed),
        "num_partitions": len({_json(add.partition_values) for add in written.adds}) if target.partition_columns else 0,
        "num_added_rows": written.rows,
        "num_copied_rows": rewritten.copied_rows,
        **rewritten.vector_metrics(),
    }
    txn.describe("WRITE", parameters, noted, metrics, always=always)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
