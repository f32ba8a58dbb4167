"""``TableTransaction``: a transaction that knows the operations: rows that it writes, and what follows its commit."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from refdelta.arrow.arrays import empty_table, narrowed, take
from refdelta.engine.log.state import to_adds
from refdelta.engine.parquet.dv import to_bitmap
from refdelta.errors import InvalidArgumentError
from refdelta.operations.alter.unmapping import removes_mapping
from refdelta.operations.layout import STATEMENTS
from refdelta.operations.layout.auto_compact import auto_compact
from refdelta.operations.write.append import Rows, WrittenFiles, append, describe_write
from refdelta.operations.write.source import Source, open_rows, record_reads
from refdelta.operations.write.target import WriteRequest
from refdelta.table.properties import compacts_by_itself
from refdelta.transaction.transaction import Transaction

# The other statements are imported by their methods, so that the first append of a process starts faster.
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from refdelta.core.commit.transaction import CommitOutcome
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.layout.optimize import OptimizeRequest, OptimizeWork, Report
    from refdelta.operations.merge.plan import MergeRequest
    from refdelta.transaction.options import CommitOptions
    from refdelta.transaction.results import CommitResult
    from refdelta.transaction.time_travel import Version
    from refdelta_storage import Store

_REARRANGES = frozenset(STATEMENTS.values())
"""Statements that change no data, and so cannot share a commit with appends."""

_MENDS = frozenset({"set_properties", "unset_properties", "restore", "read", "domain_metadata", "commit", "abort"})
"""Statements that replace properties of the table, and calls that do not depend on valid ones."""

_ADDS_NO_ROWS = _REARRANGES | {"restore", "repair", "backfill_row_ids"}
"""Statements after which no auto-compaction is due."""

_MIXED = (
    "cannot mix an append with {} in one transaction, since that sets dataChange=false; commit and begin another one"
)


class TableTransaction(Transaction):
    """The transaction of a statement of :class:`refdelta.DeltaTable`, and within a
    :class:`~refdelta.api.transaction.WriteTransaction`.

    Statements see the snapshot only, not the writes of their own transaction. There can be any number of appends, and
    one statement of another kind.

    Args:
        store: as for :class:`~refdelta.transaction.transaction.Transaction`, like the next two.
        snapshot: see ``store``.
        age: see ``store``.
        on_commit: called after the commit, if the snapshot after it could be read: with this snapshot, and with
            ``alone``, which is true if the first attempt succeeded.
        timezone: the zone of times without one, for statements that name none; as :class:`refdelta.DeltaTable` takes
            it.
        options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

    Raises:
        UnsupportedFeatureError: the table needs a feature that this engine cannot write.
    """

    def __init__(
        self,
        store: Store,
        snapshot: Snapshot | None,
        *,
        age: float | None = 0.0,
        on_commit: Callable[..., None] | None = None,
        timezone: str | None = None,
        **options: Unpack[CommitOptions],
    ):
        super().__init__(store, snapshot, age=age, **options)
        self._on_commit = on_commit
        self._timezone = timezone
        self._appended = WrittenFiles([], 0)
        self._report: Report | None = None

    def check_open(self, verb: str) -> None:
        """Raise ``InvalidArgumentError`` if the transaction has ended, and ``InvalidLogError`` if the table has
        properties that are not valid, and the statement neither replaces them nor does without.
        """
        super().check_open(verb)
        if verb not in _MENDS:
            self.check_valid()

    # --- statements ---

    def read(self, columns: Sequence[str] | None, predicate: Any) -> pa.Table:
        """Read rows of the snapshot; see :meth:`refdelta.api.transaction.WriteTransaction.read`."""
        from refdelta.engine.scan.filters import BoundFilter, row_filter
        from refdelta.engine.scan.reader import POSITION, ScanFile, read_file
        from refdelta.engine.scan.scan import plan_scan, scan_files
        from refdelta.expressions.predicate import TRUE
        from refdelta.expressions.sql import parse_predicate

        self.check_open("read")
        snapshot = self.existing
        if isinstance(predicate, str):
            # Parsed once, at the transaction's time, so that the recorded predicate is the one that was read with.
            predicate = parse_predicate(predicate, snapshot.schema, now=self.now)
        flt = row_filter(predicate, snapshot.schema)
        files = snapshot.files
        with self.reading(flt.predicate if isinstance(flt, BoundFilter) else TRUE, lambda: to_adds(files)):
            scan = plan_scan(snapshot, columns, predicate)
            files = scan.files
            plan, store = dataclasses.replace(scan.plan, positions=True), scan.store

            def rows(file: ScanFile) -> pa.Table:
                return pa.Table.from_batches(list(read_file(store, file, plan)), plan.schema)

            tables = list((self.executor or scan.executor).map(rows, scan_files(scan)))
        hit = [index for index, table in enumerate(tables) if table.num_rows]
        for index, add in zip(hit, to_adds(take(scan.files, pa.array(hit, pa.int64()))), strict=True):
            self.read_rows(add, to_bitmap(tables[index].column(POSITION.name)))
        found = pa.concat_tables([empty_table(plan.schema), *tables]).drop_columns([POSITION.name])
        if scan.parts is None:
            return found
        return pa.Table.from_batches([narrowed(batch, scan.schema) for batch in found.to_batches()], scan.schema)

    def write(self, data: Any, request: WriteRequest, *, always: bool = False) -> None:
        """Run a write request: the statement of :func:`refdelta.write_deltalake`.

        Args:
            data: as :func:`refdelta.write_deltalake` takes it, or rows that other processes write.
            request: the mode and its arguments.
            always: commit even if there are no rows.

        Raises:
            SchemaMismatchError: the data does not fit the table; nothing was written.
            ConstraintViolationError: a row is outside of the predicate, or breaks a rule of the table.
        """
        if request.mode == "overwrite":
            with self.statement("overwrite"):
                if not self.already_recorded:
                    self._overwrite(self._rows(data, request), request, always=always)
            return
        self.check_open("append")
        if self._statement in _REARRANGES:
            raise InvalidArgumentError(_MIXED.format(self._statement))
        if self._statement is not None and removes_mapping(self):
            raise InvalidArgumentError(_MIXED.format("the end of a column mapping"))
        if self.already_recorded:
            return
        with self.all_or_nothing():
            rows = self._rows(data, request)
            target = request.target(self.snapshot, rows.schema)
            written = append(self, rows, target, target_file_size=request.target_file_size)
        self._appended = WrittenFiles([*self._appended.adds, *written.adds], self._appended.rows + written.rows)
        if self._statement is None:
            describe_write(self, target, self._appended, mode=request.mode, always=always)

    def _overwrite(self, rows: Rows, request: WriteRequest, *, always: bool) -> None:
        from refdelta.operations.write.overwrite import overwrite, overwrite_partitions, replace_where

        target, size = request.target(self.snapshot, rows.schema), request.target_file_size
        if request.predicate is not None:
            written, rewritten = replace_where(self, rows, target, request.predicate, target_file_size=size)
        elif request.partition_overwrite is not None:
            written, rewritten = overwrite_partitions(self, rows, target, target_file_size=size)
        else:
            written, rewritten = overwrite(self, rows, target, target_file_size=size)
        describe_write(
            self,
            target,
            written,
            rewritten,
            mode=request.mode,
            predicate=request.predicate,
            dynamic=request.partition_overwrite is not None,
            always=always,
        )

    def update(
        self, updates: Mapping[str, str] | None, new_values: Mapping[str, Any] | None, predicate: str | None
    ) -> None:
        """Run an UPDATE; arguments and errors as for :meth:`refdelta.DeltaTable.update`."""
        from refdelta.operations.dml.update import update

        self.run("update", update, updates=updates, new_values=new_values, predicate=predicate, timezone=self._timezone)

    def merge(self, source: Any, request: MergeRequest) -> None:
        """Run a MERGE of these clauses; the source is that of :meth:`refdelta.DeltaTable.merge`."""
        from refdelta.operations.merge.execution import merge

        zone = request.timezone or self._timezone
        self.run("merge", merge, source, dataclasses.replace(request, timezone=zone))

    def restore(self, target: Version, *, ignore_missing_files: bool) -> None:
        """Restore an earlier version or time of the table; errors as for :meth:`refdelta.DeltaTable.restore`."""
        from refdelta.operations.maintenance.restore import restore
        from refdelta.transaction.time_travel import snapshot_at

        is_version = isinstance(target, int)
        parameters = {"version": target if is_version else None, "timestamp": None if is_version else str(target)}

        def stage(txn: Transaction, snapshot: Snapshot) -> None:
            then = snapshot_at(txn.store, target, self._timezone)
            restore(txn, snapshot, then, parameters=parameters, ignore_missing_files=ignore_missing_files)

        self.run("restore", stage)

    def optimize(self, request: OptimizeRequest, work: OptimizeWork | None = None) -> None:
        """Rewrite files without changing data: the statement of :attr:`refdelta.DeltaTable.optimize`.

        Args:
            request: the aim of the rewrite and its arguments.
            work: the bins that are left after earlier transactions, and after this one; None to rewrite all.
        """
        from refdelta.operations.layout.optimize import optimize

        statement = STATEMENTS[request.aim]
        self._check_adds_no_rows(statement)
        self._report = self.run(statement, optimize, request, work)
        if self._report is None and work is not None:
            work.skip()

    def upgrade_uniform(self, iceberg_compat_version: int) -> None:
        """Make the table readable as Iceberg's; errors as for :meth:`refdelta.DeltaTable.reorg_upgrade_uniform`."""
        from refdelta.operations.layout.reorg_uniform import upgrade_uniform

        statement = STATEMENTS["upgrade"]
        self._check_adds_no_rows(statement)
        self.run(statement, upgrade_uniform, iceberg_compat_version)

    def _check_adds_no_rows(self, statement: str) -> None:
        if self._appended.adds:
            raise InvalidArgumentError(_MIXED.format(statement))

    # --- the end ---

    def end(self) -> None:
        """Take no more statements, as the commit begins; errors as for
        :meth:`refdelta.transaction.transaction.Transaction.end`.
        """
        self.check_open("commit")
        try:
            if self.is_fed:
                from refdelta.operations.shared.rewrite import record_inserts

                record_inserts(self, self._appended.adds)
        except BaseException:
            self.abort()
            raise
        super().end()

    def commit(self) -> CommitResult:
        """Commit all statements; result and errors as for
        :meth:`refdelta.transaction.transaction.Transaction.commit`.
        """
        return self._after_commit(super().commit())

    def succeeded(self, outcome: CommitOutcome | None) -> CommitResult:
        """Conclude the commit of a part; see :meth:`refdelta.transaction.transaction.Transaction.succeeded`."""
        return self._after_commit(super().succeeded(outcome))

    def _after_commit(self, result: CommitResult) -> CommitResult:
        if self._report:
            result = dataclasses.replace(result, metrics={**self._report(self.kept_groups), **result.metrics})
        after = self.result_snapshot
        if after and self._statement not in _ADDS_NO_ROWS and compacts_by_itself(after.metadata.configuration or {}):
            auto_compact(self, after)
        if self._on_commit and self.result_snapshot:
            self._on_commit(self.result_snapshot, alone=self.alone)
        return result

    def _rows(self, data: Any, request: WriteRequest) -> Rows:
        """The rows to write. Raises ``InvalidArgumentError`` for rows of this table in another version."""
        rows = data if isinstance(data, Rows) else open_rows(self, data)
        if isinstance(rows, Source):
            record_reads(self, rows.tables)
            rows.convert_for(request.kept_schema(self.snapshot), request.timezone or self._timezone)
        return rows
