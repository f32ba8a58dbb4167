"""Copy on write: which rows of which files a predicate selects, tombstones, and files that hold what remains."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.engine.evaluate import row_mask
from refdelta.engine.executor import ThreadExecutor
from refdelta.engine.filters import BoundFilter
from refdelta.engine.scan import plan_scan
from refdelta.engine.schema import to_arrow
from refdelta.engine.state import to_adds
from refdelta.engine.write import write_files
from refdelta.errors import ConstraintViolationError
from refdelta.protocol.actions import Add, Remove
from refdelta.protocol.predicate import Predicate

if TYPE_CHECKING:
    from refdelta.engine.snapshot import Snapshot
    from refdelta.staging import Staging


@dataclass(frozen=True)
class Rewritten:
    """What a rewrite did.

    Attributes:
        removed: the files that left the table.
        added: the files that hold what remains of them.
        copied_rows: how many rows these hold.
        matched_rows: how many rows the predicate selected.
    """

    removed: list[Add]
    added: list[Add]
    copied_rows: int
    matched_rows: int = 0

    @property
    def removed_bytes(self) -> int:
        """The size of the files that left."""
        return sum(add.size for add in self.removed)

    @property
    def added_bytes(self) -> int:
        """The size of the files that came."""
        return sum(add.size for add in self.added)


@dataclass(frozen=True)
class Match:
    """A file that holds rows which a predicate selects.

    Attributes:
        file: its row of the snapshot's file list.
        rows: how many live rows it has.
        matched: how many of them are selected; at least one.
    """

    file: pa.Table
    rows: int
    matched: int


def operation_metrics(done: Rewritten) -> dict[str, int]:
    """What DELETE and UPDATE both note in ``operationMetrics``. Deletion vectors are never written."""
    return {
        "numRemovedFiles": len(done.removed),
        "numRemovedBytes": done.removed_bytes,
        "numAddedFiles": len(done.added),
        "numAddedBytes": done.added_bytes,
        "numCopiedRows": done.copied_rows,
        "numAddedChangeFiles": 0,
        "numDeletionVectorsAdded": 0,
        "numDeletionVectorsRemoved": sum(add.deletion_vector is not None for add in done.removed),
        "numDeletionVectorsUpdated": 0,
    }


def remove_files(txn: Staging, adds: list[Add]) -> None:
    """Stage tombstones. Each names its file's deletion vector, else the logical file would live on (PROTOCOL.md,
    "Remove File").

    Raises ``ConstraintViolationError`` where the table is append-only (PROTOCOL.md, "Append-only Tables").
    """
    if not adds:
        return
    may_remove(txn)
    now_ms = time.time_ns() // 1_000_000
    txn.stage(
        Remove(
            path=add.path,
            deletion_timestamp=now_ms,
            data_change=True,
            extended_file_metadata=True,
            partition_values=add.partition_values,
            size=add.size,
            tags=add.tags,
            deletion_vector=add.deletion_vector,
            base_row_id=add.base_row_id,
            default_row_commit_version=add.default_row_commit_version,
        )
        for add in adds
    )


def may_remove(txn: Staging) -> None:
    """Raises ``ConstraintViolationError`` where the table is append-only (PROTOCOL.md, "Append-only Tables")."""
    if txn.snapshot is not None and txn.snapshot.properties.append_only:
        raise ConstraintViolationError(
            "the table is append-only (delta.appendOnly=true): rows cannot be deleted, updated or overwritten"
        )


def find_matches(snapshot: Snapshot, predicate: Predicate) -> list[Match]:
    """The files that hold rows for which ``predicate`` is true.

    Files are pruned by partition values and statistics first, then those columns are read that the predicate needs.
    """
    flt = BoundFilter(predicate)
    pruned = flt.prune(snapshot.files, snapshot.schema, snapshot.partition_columns)
    candidates = snapshot.files.filter(pruned.keep)
    names = [f.name for f in snapshot.schema.fields if f.name in flt.columns]

    def look(index: int) -> Match:
        file = candidates.slice(index, 1)
        alone = dataclasses.replace(snapshot, files=file)
        if pruned.exact:
            # Partition values decide for every row of a file alike.
            rows = plan_scan(alone, columns=[]).count()
            return Match(file, rows, rows)
        rows = matched = 0
        for batch in plan_scan(alone, columns=names).to_batches():
            rows += batch.num_rows
            matched += pc.sum(row_mask(predicate, batch)).as_py() or 0
        return Match(file, rows, matched)

    return [match for match in ThreadExecutor().map(look, range(candidates.num_rows)) if match.matched]


def rewrite_files(
    txn: Staging,
    snapshot: Snapshot,
    files: Sequence[pa.Table],
    change: Callable[[pa.RecordBatch], pa.RecordBatch],
) -> list[Add]:
    """Write anew what ``change`` makes of the rows of some files, and stage the new files. Memory is bounded by a few
    batches.

    Args:
        txn: the transaction.
        snapshot: which the files are of.
        files: rows of its file list.
        change: from batches of the table's schema to such batches.
    """

    def changed() -> Iterator[pa.RecordBatch]:
        for file in files:
            for batch in plan_scan(dataclasses.replace(snapshot, files=file)).to_batches():
                yield change(batch)

    added = write_files(
        txn.store,
        pa.RecordBatchReader.from_batches(to_arrow(snapshot.schema), changed()),
        schema=snapshot.schema,
        partition_columns=list(snapshot.partition_columns),
        properties=snapshot.properties,
    )
    txn.stage_written(added)
    return added


def delete_where(txn: Staging, snapshot: Snapshot, predicate: Predicate) -> Rewritten:
    """Stage the removal of all rows for which ``predicate`` is true; rows for which it is false or null stay.

    Only a file that holds rows of both kinds is written anew. What was read is recorded.
    """
    matches = find_matches(snapshot, predicate)
    removed = [add for match in matches for add in to_adds(match.file)]
    txn.read_predicate(predicate)
    txn.read_files(removed)
    remove_files(txn, removed)
    mixed = [match for match in matches if match.matched < match.rows]
    added: list[Add] = []
    if mixed:
        added = rewrite_files(
            txn,
            snapshot,
            [match.file for match in mixed],
            lambda batch: batch.filter(others(row_mask(predicate, batch))),
        )
    copied = sum(match.rows - match.matched for match in mixed)
    return Rewritten(removed, added, copied, sum(match.matched for match in matches))


def requires(predicate: Predicate, sql: str) -> Callable[[pa.RecordBatch], None]:
    """A check that every row of a batch satisfies ``predicate``, as replaceWhere asks.

    Raises ``ConstraintViolationError``.
    """

    def check(batch: pa.RecordBatch) -> None:
        refused = others(row_mask(predicate, batch))
        outside = pc.sum(refused).as_py() or 0
        if outside:
            row = batch.filter(refused).slice(0, 1).to_pylist()[0]
            raise ConstraintViolationError(
                f"the data holds rows outside of the predicate {sql!r} ({outside} in one batch); "
                f"the first is {shown(row)}"
            )

    return check


def others(mask: pa.BooleanArray) -> pa.BooleanArray:
    """The rows that a predicate does not select: those where it is false and those where it is null."""
    return pc.invert(pc.fill_null(mask, False))


def shown(row: dict[str, object]) -> str:
    """A row for an error message: its first columns, and not too long."""
    text = ", ".join(f"{name}={value!r}" for name, value in list(row.items())[:8])
    return text if len(text) <= 200 else text[:200] + "..."
