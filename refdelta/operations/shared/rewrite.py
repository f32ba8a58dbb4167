"""The rows that a predicate selects, and their removal from files.

On a table with deletion vectors, rows are hidden (PROTOCOL.md, "Deletion Vectors"). Without, their files are removed,
and the other rows are written to new files: copy on write.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from refdelta.arrow.arrays import ARROW_FALSE, scalar_of, take
from refdelta.arrow.python_values import python_rows
from refdelta.arrow.schema import to_arrow
from refdelta.core.log.actions import Add, Cdc
from refdelta.engine.log.state import adds_table, to_adds
from refdelta.engine.log.statistics import counted_add
from refdelta.engine.parquet.write import CHANGE, marked, write_changes
from refdelta.engine.scan.positions import FileRows, find_rows, read_rows
from refdelta.engine.scan.scan import plan_scan
from refdelta.engine.work.executor import ThreadExecutor, grouped
from refdelta.errors import ConstraintViolationError
from refdelta.expressions.evaluate import row_mask
from refdelta.expressions.expression import Predicate
from refdelta.table.change_feed import DELETE, INSERT, is_merge_without_changes

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.engine.scan.scan import Scan
    from refdelta.transaction.transaction import Transaction

Work = TypeVar("Work")


@dataclass(frozen=True)
class FileMatch:
    """A file with rows that a predicate selects.

    Attributes:
        file: its row of the snapshot's file list.
        add: the log's entry; if ``rows`` is not None, its statistics have ``numRecords``.
        live: the number of its live rows.
        rows: the positions of the selected rows, at least one; None for all live rows.
        deleted: the positions that its deletion vector hides; empty if ``rows`` is None.
    """

    file: pa.Table
    add: Add
    live: int
    rows: BitMap64 | None = None
    deleted: BitMap64 = dataclasses.field(default_factory=BitMap64)

    @classmethod
    def of_rows(cls, file: pa.Table, found: FileRows) -> FileMatch:
        """A match of single rows of a file."""
        return cls(file, counted_add(file, found.physical_rows), found.live_rows, found.rows, found.deleted)

    @property
    def matched(self) -> int:
        """The number of selected rows."""
        return self.live if self.rows is None else len(self.rows)

    @property
    def whole(self) -> bool:
        """True if all live rows are selected."""
        return self.matched == self.live


@dataclass(frozen=True)
class RewriteResult:
    """The result of a statement that selects rows, in files and counts.

    Attributes:
        removed: the files that were removed.
        added: the files that were written in their place.
        copied_rows: the number of unchanged rows in the added files.
        matched_rows: the number of rows that the predicate selected.
        vectors_added: the number of files that got a new deletion vector.
        vectors_updated: the number of these that had a deletion vector before.
    """

    removed: list[Add]
    added: list[Add]
    copied_rows: int
    matched_rows: int = 0
    vectors_added: int = 0
    vectors_updated: int = 0

    @property
    def removed_bytes(self) -> int:
        """The size of the removed files, in bytes."""
        return sum(add.size for add in self.removed)

    @property
    def added_bytes(self) -> int:
        """The size of the added files, in bytes."""
        return sum(add.size for add in self.added)

    @property
    def vectors_removed(self) -> int:
        """The number of deletion vectors that are no longer live."""
        return self.vectors_updated + sum(add.deletion_vector is not None for add in self.removed)

    def vector_metrics(self) -> dict[str, int]:
        """The metrics about deletion vectors."""
        return {
            "num_deletion_vectors_added": self.vectors_added,
            "num_deletion_vectors_updated": self.vectors_updated,
            "num_deletion_vectors_removed": self.vectors_removed,
        }


def operation_metrics(txn: Transaction, done: RewriteResult) -> dict[str, int]:
    """The ``operationMetrics`` that DELETE and UPDATE share."""
    return {
        "numRemovedFiles": len(done.removed),
        "numRemovedBytes": done.removed_bytes,
        "numAddedFiles": len(done.added),
        "numAddedBytes": done.added_bytes,
        "numCopiedRows": done.copied_rows,
        "numAddedChangeFiles": txn.change_files,
        "numDeletionVectorsAdded": done.vectors_added,
        "numDeletionVectorsRemoved": done.vectors_removed,
        "numDeletionVectorsUpdated": done.vectors_updated,
    }


def remove_files(txn: Transaction, adds: list[Add]) -> None:
    """Stage the removal of all rows of these files.

    Raises:
        ConstraintViolationError: the table is append-only (PROTOCOL.md, "Append-only Tables").
    """
    if adds:
        may_remove(txn)
        txn.delete_files(adds)


def hide_rows(txn: Transaction, matches: Sequence[FileMatch]) -> RewriteResult:
    """Stage the removal of the selected rows by deletion vectors; a file without other live rows is removed."""
    if matches:
        may_remove(txn)
    for match in matches:
        if match.rows is None:
            txn.delete_files([match.add])
        else:
            txn.delete_rows(match.add, match.rows, match.deleted)
    hidden = [match for match in matches if not match.whole]
    return RewriteResult(
        removed=[match.add for match in matches if match.whole],
        added=[],
        copied_rows=0,
        matched_rows=sum(match.matched for match in matches),
        vectors_added=len(hidden),
        vectors_updated=sum(match.add.deletion_vector is not None for match in hidden),
    )


def may_remove(txn: Transaction) -> None:
    """Refuse to remove rows of an append-only table (PROTOCOL.md, "Append-only Tables").

    Raises:
        ConstraintViolationError: the table is append-only.
    """
    if txn.snapshot is not None and txn.snapshot.properties.append_only:
        raise ConstraintViolationError(
            "the table is append-only (delta.appendOnly=true): rows cannot be deleted, updated or overwritten"
        )


def find_matches(
    txn: Transaction, snapshot: Snapshot, predicate: Predicate, reads: Predicate | None = None
) -> list[FileMatch]:
    """The files with rows for which ``predicate`` is true, and these rows. The read is recorded.

    Files are pruned by partition values and statistics first; then the columns of the predicate are read. No file is
    read if partition values decide for all rows of each file.

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads, possibly with the schema of the write.
        predicate: bound to the schema of ``snapshot``.
        reads: the predicate to record, over the columns of the table, if ``predicate`` uses other columns.
    """
    files = snapshot.files
    with txn.reading(predicate if reads is None else reads, lambda: to_adds(files)):
        scan = plan_scan(snapshot, [], predicate)
        files = scan.files
        matches = _found(txn, scan)
    # A statement that fails over the values of these rows has read them.
    txn.read_files(match.add for match in matches if match.rows is None)
    for match in matches:
        if match.rows is not None:
            txn.read_rows(match.add, match.rows)
    return matches


def _found(txn: Transaction, scan: Scan) -> list[FileMatch]:
    files = [scan.files.slice(index, 1) for index in range(scan.files.num_rows)]
    if scan.plan.row_filter is None:
        counted = zip(files, to_adds(scan.files), scan.file_counts(), strict=True)
        return [FileMatch(file, add, count) for file, add, count in counted if count]
    located = zip(files, find_rows(scan, txn.executor), strict=True)
    return [FileMatch.of_rows(file, found) for file, found in located if found.rows]


@dataclass(frozen=True)
class FileShare:
    """The files that one task rewrites.

    Attributes:
        files: their rows of the snapshot's file list.
        rows: for each file, the positions of the rows to read; None for all live rows.
    """

    files: pa.Table
    rows: list[BitMap64 | None]

    def to_batches(self, snapshot: Snapshot) -> Iterator[pa.RecordBatch]:
        """All columns of these rows, with the schema of a snapshot of the table."""
        return read_rows(plan_scan(snapshot.with_files(self.files)), self.rows)


def shares(txn: Transaction, files: pa.Table, rows: Sequence[BitMap64 | None]) -> list[FileShare]:
    """Files, divided among tasks by the executor's limits."""
    groups = grouped(txn.executor, files.column("size").to_pylist())
    return [FileShare(chosen(files, group), [rows[number] for number in group]) for group in groups]


def chosen(files: pa.Table, numbers: Sequence[int]) -> pa.Table:
    """Some of the files, by their ascending numbers. They are copied, since a slice is pickled with its whole table."""
    return files if len(numbers) == files.num_rows else take(files, pa.array(numbers, pa.int64()))


def shares_of(txn: Transaction, matches: Sequence[FileMatch], *, matched_only: bool) -> list[FileShare]:
    """Same as :func:`shares`, for the files of matches: with the selected rows only, or with all live rows."""
    if not matches:
        return []
    return shares(
        txn, pa.concat_tables([match.file for match in matches]), [m.rows if matched_only else None for m in matches]
    )


Anew = Callable[["Snapshot", Work], Iterator[pa.RecordBatch]]
"""Makes the rows that a task writes. It is called in the process of the task, with the table and the task's work, and
returns rows in the table's schema.
"""


def write_anew(
    txn: Transaction, snapshot: Snapshot, work: Sequence[Work], anew: Anew[Work], *, feed: bool = False
) -> list[Add]:
    """Write rows to new files, in tasks, and stage the files. If the table tracks rows, the rows keep their ids.

    Args:
        txn: the transaction.
        snapshot: the table, with the schema to write.
        work: the work of each task, such as a :class:`FileShare`.
        anew: makes the rows. It and ``work`` are pickled if the executor runs tasks in other processes.
        feed: whether the rows have the column :data:`refdelta.engine.parquet.write.CHANGE`, the kind of each change, so
            that change files are written, too. The change files of a statement must cover all of its changes.

    Returns:
        The data files.
    """
    bare = snapshot.tracked().without_files()  # each task brings its own files
    executor = txn.executor or ThreadExecutor()
    write = functools.partial(_write, bare, anew, feed)
    written = executor.map(write, list(work), done=txn.own_files, writes=txn.store)
    files = [file for files in written for file in files]
    txn.stage(files)
    return [file for file in files if isinstance(file, Add)]


def _write(snapshot: Snapshot, anew: Anew[Work], feed: bool, share: Work) -> list[Add | Cdc]:
    schema = to_arrow(snapshot.schema)
    rows = pa.RecordBatchReader.from_batches(schema.append(CHANGE) if feed else schema, anew(snapshot, share))
    adds, changes = write_changes(snapshot.store, rows, snapshot, feed=feed)
    return [*adds, *changes]


def record_inserts(txn: Transaction, adds: Sequence[Add]) -> None:
    """Stage change files for appended files, if readers of the change data feed would miss their rows otherwise.

    That is so if the commit has other change files, since readers then read only change files (PROTOCOL.md, "Change
    Data Files"), or if it has a MERGE without changes, whose files readers skip.

    Args:
        txn: the transaction.
        adds: the files that it appends.
    """
    table, described = txn.table_to_come, txn.description
    if table is None or not adds or not txn.is_fed:
        return
    if not txn.change_files and not (
        described is not None and is_merge_without_changes(described.operation, described.operation_metrics)
    ):
        return
    work = shares(txn, adds_table(adds), [None] * len(adds))
    executor = txn.executor or ThreadExecutor()
    write = functools.partial(_record, table.without_files())
    for files in executor.map(write, work, done=txn.own_files, writes=txn.store):
        txn.stage(files)


def _record(snapshot: Snapshot, share: FileShare) -> list[Cdc]:
    _, changes = write_changes(
        snapshot.store, (marked(batch, INSERT) for batch in share.to_batches(snapshot)), snapshot, only=True
    )
    return changes


def delete_where(
    txn: Transaction, snapshot: Snapshot, predicate: Predicate, *, reads: Predicate | None = None
) -> RewriteResult:
    """Stage the removal of all rows for which ``predicate`` is true; rows for which it is false or null stay.

    If no file is rewritten, no change files are needed: readers derive the deleted rows from removed files and deletion
    vectors.

    Args:
        txn: the transaction.
        snapshot: see :func:`find_matches`, like the next two.
        predicate: see ``snapshot``.
        reads: see ``snapshot``.
    """
    matches = find_matches(txn, snapshot, predicate, reads)
    if txn.vectors:
        return hide_rows(txn, matches)
    removed = [match.add for match in matches]
    remove_files(txn, removed)
    txn.lose_early("DELETE")
    # Only a file with selected and other rows is rewritten.
    mixed = [match for match in matches if not match.whole]

    feed = txn.is_fed and bool(mixed)

    def kept(table: Snapshot, share: FileShare) -> Iterator[pa.RecordBatch]:
        for batch in share.to_batches(table):
            stays = others(row_mask(predicate, batch))
            if feed:
                yield batch.append_column(CHANGE, pc.if_else(stays, scalar_of(None, pa.string()), DELETE))
            else:
                yield batch.filter(stays)

    read = shares_of(txn, matches if feed else mixed, matched_only=False)
    added = write_anew(txn, snapshot, read, kept, feed=feed)
    copied = sum(match.live - match.matched for match in mixed)
    return RewriteResult(removed, added, copied, sum(match.matched for match in matches))


def requires(predicate: Predicate, sql: str) -> Callable[[pa.RecordBatch], None]:
    """A check that ``predicate`` is true for every row of a batch, for replaceWhere.

    Args:
        predicate: the predicate.
        sql: its SQL, for the message.

    Returns:
        A function that raises ``ConstraintViolationError`` for a batch with another row.
    """

    def check(batch: pa.RecordBatch) -> None:
        refused = others(row_mask(predicate, batch))
        outside = pc.sum(refused).as_py() or 0
        if outside:
            row = python_rows(batch.filter(refused).slice(0, 1))[0]
            raise ConstraintViolationError(
                f"the data holds rows outside of the predicate {sql!r} ({outside} in one batch); "
                f"the first is {shown(row)}"
            )

    return check


def others(mask: pa.BooleanArray) -> pa.BooleanArray:
    """The rows that a predicate does not select: it is false or null."""
    return pc.invert(pc.fill_null(mask, ARROW_FALSE))


def shown(row: dict[str, object]) -> str:
    """A row for an error message: its first 8 columns, up to 200 characters."""
    text = ", ".join(f"{name}={value!r}" for name, value in list(row.items())[:8])
    return text if len(text) <= 200 else text[:200] + "..."
