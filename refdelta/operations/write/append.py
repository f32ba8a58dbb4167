"""INSERT: new rows as new files. Without reads of the table it is a blind append, which conflicts with no change of
rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from refdelta.arrow.schema import to_arrow
from refdelta.engine.parquet.fit import plan_fit
from refdelta.engine.parquet.write import CHANGE, rows_that_stay, write_changes
from refdelta.operations.shared.identity import changes_with_marks, check_numbers_once
from refdelta.operations.write.target import MODES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from refdelta.core.log.actions import Add, Cdc
    from refdelta.operations.shared.rewrite import RewriteResult
    from refdelta.operations.write.target import Target
    from refdelta.transaction.transaction import Transaction
    from refdelta_storage import Store


class WrittenFiles(msgspec.Struct, frozen=True):
    """The files of one stream of rows.

    Attributes:
        adds: their actions.
        rows: the number of rows in them.
        ours: whether they were written for this commit, and are removed if it fails; else they are the caller's.
        marks: the last numbers of the identity columns, by physical name.
        changes: the change files that were written with them.
    """

    adds: list[Add]
    rows: int
    ours: bool = True
    marks: Mapping[str, int] = {}
    changes: Sequence[Cdc] = ()

    @property
    def size(self) -> int:
        """Their size in bytes."""
        return sum(add.size for add in self.adds)


class FileWriter(msgspec.Struct, frozen=True):
    """Writes rows as files of a table. It can be pickled, since other processes may write parts of the rows.

    Attributes:
        store: the table's folder.
        target: the table after the write.
        target_file_size: the size in bytes at which a file is completed; None for the table's own.
        check: called with each batch, in the table's schema, before it is written; raises to refuse it.
        feed: whether the rows have the column :data:`refdelta.engine.parquet.write.CHANGE`, the kind of each change, so
            that change files are written, too.
    """

    store: Store
    target: Target
    target_file_size: int | None = None
    check: Callable[[pa.RecordBatch], None] | None = None
    feed: bool = False

    def write(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, unique: str | None = None) -> WrittenFiles:
        """Write batches; nothing is staged.

        Args:
            schema: the schema of the batches; columns are matched by name, in any order.
            batches: the rows.
            unique: a part of the files' names; None for a new UUID.

        Raises:
            SchemaMismatchError: columns do not fit the table; the message names all of them, and nothing was written.
            ConstraintViolationError: a row breaks a rule of the table; the files are removed.
        """
        target = self.target
        own = self._own(schema)
        target.rules.check_given(own.names)
        made = target.rules.left_out(own.names)
        fitter = plan_fit(own, target.schema, made)
        rows = 0

        def fitted() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in batches:
                given = batch.drop_columns([CHANGE.name]) if self.feed else batch
                fit = new = target.rules.complete(fitter.apply(given, rows), made, rows)
                if self.feed:
                    fit = fit.append_column(CHANGE, batch.column(CHANGE.name))
                    new = rows_that_stay(fit)
                rows += new.num_rows
                target.rules.hold(new, made)
                if self.check:
                    self.check(new)
                yield fit

        whole = to_arrow(target.schema)
        adds, changes = write_changes(
            self.store,
            pa.RecordBatchReader.from_batches(whole.append(CHANGE) if self.feed else whole, fitted()),
            target,
            target_file_size=self.target_file_size,
            feed=self.feed,
            unique=unique,
        )
        return WrittenFiles(adds, rows, marks=target.rules.marks(made, rows), changes=changes)

    def of_task(self, number: int) -> FileWriter:
        """The writer for one of several tasks, each of which writes a part of the rows independently of the others."""
        return replace(self, target=replace(self.target, rules=self.target.rules.of_task(number)))

    def check_fits(self, schema: pa.Schema) -> None:
        """Refuse data that cannot be written. Raises as :meth:`refdelta.operations.write.target.Target.check_fits`."""
        self.target.check_fits(self._own(schema))

    def _own(self, schema: pa.Schema) -> pa.Schema:
        """The columns of the rows without the column of changes."""
        return pa.schema([field for field in schema if not self.feed or field.name != CHANGE.name])


class Rows(ABC):
    """Rows to write, in this process or in others.

    Attributes:
        schema: their Arrow schema.
    """

    schema: pa.Schema

    @abstractmethod
    def write(self, writer: FileWriter) -> WrittenFiles:
        """Write the rows with ``writer``, once: all of them in this process, or parts of them in others."""

    def replaced(self, live: list[Add]) -> list[Add]:
        """Of the live files of a table, those that leave it if these rows replace all others."""
        return live


def append(
    txn: Transaction,
    source: Rows,
    target: Target,
    *,
    target_file_size: int | None = None,
    check: Callable[[pa.RecordBatch], None] | None = None,
) -> WrittenFiles:
    """Write the rows as files of the table and stage them.

    Args:
        txn: the transaction.
        source: the rows; columns are matched by name, in any order.
        target: the table after the write.
        target_file_size: see :class:`FileWriter`.
        check: see :class:`FileWriter`.

    Raises:
        SchemaMismatchError, ConstraintViolationError: as :meth:`FileWriter.write`.
    """
    if target.rules.numbered:
        check_numbers_once(txn)
    written = source.write(FileWriter(txn.store, target, target_file_size, check))
    changes = target.changes
    if written.marks:
        changes = changes_with_marks(changes, txn.snapshot.metadata if txn.snapshot else None, written.marks)
    txn.stage(changes)
    stage_files(txn, written)
    return written


def stage_files(txn: Transaction, written: WrittenFiles) -> None:
    """Stage files of rows, which an aborted transaction removes if they were written for it."""
    if written.ours:
        txn.stage_written(written.adds)
    else:
        txn.stage(written.adds)
        if written.adds:
            # No version has named these files, so VACUUM takes their modification time for their age.
            txn.rest_on_files(min(add.modification_time for add in written.adds))


def describe_write(
    txn: Transaction,
    target: Target,
    written: WrittenFiles,
    rewritten: RewriteResult | None = None,
    *,
    mode: str,
    predicate: str | None = None,
    dynamic: bool = False,
    always: bool = False,
) -> None:
    """Describe a write for commitInfo and for its result.

    Args:
        txn: the transaction.
        target: the table after the write.
        written: the new rows.
        rewritten: the rows that an overwrite replaces; None for an append.
        mode: a key of :data:`MODES`.
        predicate: the predicate of replaceWhere.
        dynamic: whether the partitions of the data were replaced.
        always: commit even without rows, as deltalake does (spec_notes/divergences.md, "Statements").
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
    metrics = {
        "num_added_files": len(written.adds),
        "num_removed_files": 0,
        "num_partitions": len({_json(add.partition_values) for add in written.adds}) if target.partition_columns else 0,
        "num_added_rows": written.rows,
        "num_copied_rows": 0,
        "num_deletion_vectors_added": 0,
        "num_deletion_vectors_updated": 0,
        "num_deletion_vectors_removed": 0,
    }
    if rewritten is not None:
        noted |= {"numRemovedFiles": len(rewritten.removed), "numRemovedBytes": rewritten.removed_bytes}
        metrics |= {
            "num_added_files": len(written.adds) + len(rewritten.added),
            "num_removed_files": len(rewritten.removed),
            "num_copied_rows": rewritten.copied_rows,
            **rewritten.vector_metrics(),
        }
        if predicate is not None:
            # As in Spark, the figures include both new rows and rows copied from rewritten files.
            noted["numFiles"] += len(rewritten.added)
            noted["numOutputRows"] += rewritten.copied_rows
            noted["numOutputBytes"] += rewritten.added_bytes
            noted["numCopiedRows"] = rewritten.copied_rows
            noted["numDeletedRows"] = rewritten.matched_rows
            noted["numAddedChangeFiles"] = txn.change_files
    txn.describe("WRITE", parameters, noted, metrics, always=always)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
