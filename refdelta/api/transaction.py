"""A transaction by hand: one snapshot at the beginning, statements as they are called, one commit at the end."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from refdelta import arguments
from refdelta.api.alterations import Alterations
from refdelta.api.merge_builder import TableMerger
from refdelta.core.expressions.predicate import TRUE
from refdelta.engine.arrow.arrays import empty_table
from refdelta.engine.arrow.schema import from_arrow
from refdelta.engine.expressions.sql import parse_predicate
from refdelta.engine.log.state import to_adds
from refdelta.engine.parquet.dv import to_bitmap
from refdelta.engine.scan.filters import BoundFilter, row_filter
from refdelta.engine.scan.reader import POSITION, ScanFile, read_file
from refdelta.engine.scan.scan import plan_scan, scan_files
from refdelta.errors import InvalidArgumentError
from refdelta.operations.alter.unmapping import removes_mapping
from refdelta.operations.dml.delete import delete
from refdelta.operations.dml.rewrite import record_inserts
from refdelta.operations.dml.rewritten import Rewritten
from refdelta.operations.dml.update import update
from refdelta.operations.layout.auto_compact import auto_compact
from refdelta.operations.layout.optimize import STATEMENTS, Report, Request, Work, optimize
from refdelta.operations.layout.reorg_uniform import upgrade_uniform
from refdelta.operations.maintenance.restore import restore
from refdelta.operations.merge.clauses import Clause
from refdelta.operations.merge.merge import Elsewhere, Merge, Merging, merge
from refdelta.operations.write.append import Written, append
from refdelta.operations.write.insert import describe_write
from refdelta.operations.write.overwrite import overwrite, replace_where
from refdelta.operations.write.source import Source, open_source, record_reads, rest_on
from refdelta.operations.write.target import existing_table
from refdelta.transaction.results import CommitResult
from refdelta.transaction.staging import Staging
from refdelta.transaction.time_travel import Version, snapshot_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.write.target import Target


# Statements that set off no auto-compaction: they bring no new rows.
_NO_NEW_ROWS = frozenset({*STATEMENTS.values(), "restore", "backfill_row_ids"})

_MIXED = (
    "a transaction that holds {} adds no rows: they would hide behind its promise that no data changes; commit it and "
    "begin another one"
)


class WriteTransaction(Alterations):
    """One snapshot, statements over it, one commit; made by :meth:`refdelta.DeltaTable.begin`.

    Statements read and write files when they are called, so that every interleaving of transactions can be written
    down. None of them sees what the transaction itself has written, and nobody else does before :meth:`commit`. A
    transaction may read and append as often as it wants, and may hold one statement of any other kind.

    As a context manager it is aborted when the block is left without a commit.

    Args:
        staging: what becomes of the transaction.
        snapshot: what it sees.
        on_commit: called with the snapshot after the commit, where that could be read, and whether nobody else had come
            first.

    Raises:
        UnsupportedFeatureError: the table needs a feature that this engine cannot write.
    """

    def __init__(self, staging: Staging, snapshot: Snapshot, on_commit: Callable[..., None] | None = None):
        super().__init__(staging, snapshot)
        self._on_commit = on_commit
        self._appended = Written([], 0)
        self._report: Report | None = None

    # --- reading ---

    def read(self, columns: Sequence[str] | None = None, predicate: Any = None) -> pa.Table:
        """Rows of the snapshot; what is read here, later appends and statements may rest on, so it is recorded.

        Args:
            columns: names of top-level columns, in the order wanted; None for all.
            predicate: SQL in Spark's dialect, the list form that deltalake takes, or a ``pyarrow.compute.Expression``,
                which counts as a read of the whole table. None for all rows.

        Raises:
            ColumnNotFoundError: there is no such column.
            PredicateError: the predicate cannot be parsed or bound.
        """
        self._check_open("read")
        snapshot = self._snapshot
        if isinstance(predicate, str):
            # Once, at the transaction's time: what is read and what is recorded as read are the same predicate.
            predicate = parse_predicate(predicate, snapshot.schema, now=self._staging.now)
        flt = row_filter(predicate, snapshot.schema)
        files = snapshot.files
        with self._staging.reading(flt.predicate if isinstance(flt, BoundFilter) else TRUE, lambda: to_adds(files)):
            scan = plan_scan(snapshot, columns, predicate)
            files = scan.files
            plan, store = dataclasses.replace(scan.plan, positions=True), scan.store

            def rows(file: ScanFile) -> pa.Table:
                return pa.Table.from_batches(list(read_file(store, file, plan)), plan.schema)

            tables = list((self._staging.executor or scan.executor).map(rows, scan_files(scan)))
        hit = [index for index, table in enumerate(tables) if table.num_rows]
        for index, add in zip(hit, to_adds(scan.files.take(pa.array(hit, pa.int64()))), strict=True):
            self._staging.read_rows(add, to_bitmap(tables[index].column(POSITION.name)))
        return pa.concat_tables([empty_table(plan.schema), *tables]).drop_columns([POSITION.name])

    def domain_metadata(self) -> dict[str, str]:
        """The metadata domains of the snapshot and their configurations, by name, those of the engines included.

        They count as read: the transaction conflicts with each that sets or removes a domain meanwhile. (PROTOCOL.md,
        "Domain Metadata".)

        Example::

            with table.begin() as txn:
                total = int(txn.domain_metadata()["app.total"])
                txn.append(rows)
                txn.set_domain_metadata("app.total", str(total + len(rows)))
                txn.commit()
        """
        self._check_open("domain_metadata")
        self._staging.read_domains()
        return {name: domain.configuration for name, domain in self._snapshot.domains.items()}

    # --- writing ---

    def append(self, data: Any, *, target_file_size: int | None = None) -> None:
        """Write rows as new files of the table. A transaction that appends and reads nothing conflicts with no data.

        Args:
            data: as :func:`refdelta.write_deltalake` takes it. Where it reads this table, it must be the version that
                the transaction sees; that is recorded as a read of the whole table.
            target_file_size: at which size in bytes a data file is closed; None for the table's own.

        Raises:
            SchemaMismatchError: the data does not fit; nothing was written.
            ConstraintViolationError: a null where there may be none.
        """
        self._check_open("append")
        if self._statement in STATEMENTS.values():
            raise InvalidArgumentError(_MIXED.format(self._statement))
        if removes_mapping(self._staging):
            raise InvalidArgumentError(_MIXED.format("the end of a column mapping"))
        if self._staging.already_recorded:
            return
        with self._staging.all_or_nothing():
            source = self._source(data)
            target = self._target(source)
            written = append(self._staging, source, target, target_file_size=target_file_size)
        self._appended = Written([*self._appended.adds, *written.adds], self._appended.rows + written.rows)
        if self._statement is None:
            describe_write(self._staging, target, self._appended, Rewritten([], [], 0), mode="append")

    def overwrite(self, data: Any, predicate: str | None = None, *, target_file_size: int | None = None) -> None:
        """Replace all rows, or those for which ``predicate`` is true; then every new row must satisfy it too.

        Args:
            data: as for :meth:`append`.
            predicate: SQL in Spark's dialect.
            target_file_size: as for :meth:`append`.

        Raises:
            SchemaMismatchError: the data does not fit; nothing was written.
            ConstraintViolationError: a row outside of the predicate, or a table that is append-only.
        """

        def stage(staging: Staging, _: Snapshot) -> None:
            source = self._source(data)
            target = self._target(source)
            if predicate is None:
                written, rewritten = overwrite(staging, source, target, target_file_size=target_file_size)
            else:
                written, rewritten = replace_where(
                    staging, source, target, predicate, target_file_size=target_file_size
                )
            describe_write(staging, target, written, rewritten, mode="overwrite", predicate=predicate)

        self.run("overwrite", stage)

    def delete(self, predicate: str | None = None) -> None:
        """Delete the rows for which ``predicate`` is true, or all rows. Rows for which it is null stay.

        Args:
            predicate: SQL in Spark's dialect.

        Raises:
            PredicateError: the predicate cannot be parsed or bound.
            ConstraintViolationError: the table is append-only.
        """
        self.run("delete", delete, predicate)

    def update(
        self,
        updates: Mapping[str, str] | None = None,
        new_values: Mapping[str, Any] | None = None,
        predicate: str | None = None,
    ) -> None:
        """Set columns of the rows for which ``predicate`` is true, as :meth:`refdelta.DeltaTable.update`."""
        self.run("update", update, updates=updates, new_values=new_values, predicate=predicate)

    def merge(
        self,
        source: Any,
        predicate: str,
        source_alias: str | None = "s",
        target_alias: str | None = "t",
        merge_schema: bool = False,
    ) -> TableMerger[None]:
        """Merge rows into the table, as :meth:`refdelta.DeltaTable.merge`; ``execute()`` reads and writes the files,
        and :meth:`commit` commits.
        """
        self._check_open("merge")
        source_name = arguments.text("source_alias", source_alias) or "s"
        aliases = source_name, arguments.text("target_alias", target_alias) or "t"
        merge_schema = arguments.flag("merge_schema", merge_schema)

        def stage(staging: Staging, snapshot: Snapshot, clauses: tuple[Clause, ...]) -> None:
            request = Merge(predicate, *aliases, clauses, merge_schema)
            merge(staging, snapshot, self._source_to_merge(source), request)

        return TableMerger(lambda clauses: self.run("merge", stage, clauses))

    def restore(self, target: Version, *, ignore_missing_files: bool = False) -> None:
        """Make the table what it was at an earlier version or time, as :meth:`refdelta.DeltaTable.restore`."""
        is_version = isinstance(target, int)
        parameters = {"version": target if is_version else None, "timestamp": None if is_version else str(target)}

        def stage(staging: Staging, snapshot: Snapshot) -> None:
            then = snapshot_at(staging.store, target)
            restore(staging, snapshot, then, parameters=parameters, ignore_missing_files=ignore_missing_files)

        self.run("restore", stage)

    def compact(
        self, partition_filters: Any = None, target_size: int | None = None, *, min_file_size: int | None = None
    ) -> None:
        """Put small files together, as :meth:`refdelta.api.optimizer.TableOptimizer.compact`."""
        self.rearrange(
            Request(aim="compact", filters=partition_filters, target_size=target_size, min_size=min_file_size)
        )

    def z_order(
        self, columns: Sequence[str] | str, partition_filters: Any = None, target_size: int | None = None
    ) -> None:
        """Sort the rows along a Z-curve, as :meth:`refdelta.api.optimizer.TableOptimizer.z_order`."""
        self.rearrange(Request(aim="sort", columns=columns, filters=partition_filters, target_size=target_size))

    def cluster(self, target_size: int | None = None, *, full: bool = False) -> None:
        """Cluster files by the table's clustering columns, as :meth:`refdelta.api.optimizer.TableOptimizer.cluster`."""
        self.rearrange(Request(aim="cluster", target_size=target_size, full=full))

    def reorg_purge(self, partition_filters: Any = None, target_size: int | None = None) -> None:
        """Rewrite files with deletion vectors, as :meth:`refdelta.DeltaTable.reorg_purge`."""
        self.rearrange(Request(aim="purge", filters=partition_filters, target_size=target_size))

    def reorg_upgrade_uniform(self, iceberg_compat_version: int = 2) -> None:
        """Make the table readable as Iceberg's, as :meth:`refdelta.DeltaTable.reorg_upgrade_uniform`."""
        self._check_adds_no_rows(STATEMENTS["upgrade"])
        self.run(STATEMENTS["upgrade"], upgrade_uniform, iceberg_compat_version)

    def rearrange(self, request: Request, work: Work | None = None) -> None:
        """Rewrite files without changing data: what :meth:`compact`, :meth:`z_order`, :meth:`cluster` and
        :meth:`reorg_purge` do.

        Args:
            request: what to rewrite.
            work: what earlier transactions left to do, and what this one leaves; None to do all.
        """
        statement = STATEMENTS[request.aim]
        self._check_adds_no_rows(statement)
        self._report = self.run(statement, optimize, request, work)
        if self._report is None and work is not None:
            work.skip()

    def _check_adds_no_rows(self, statement: str) -> None:
        if self._appended.adds:
            raise InvalidArgumentError(_MIXED.format(statement))

    # --- the end ---

    def commit(self) -> CommitResult:
        """Make it all visible as one version, over whatever was committed meanwhile and does not conflict.

        Returns:
            What was committed. Its version is None where nothing was written: no row matched, or the application's
            version was recorded already.

        Raises:
            ConcurrentModificationError: a winner conflicts; nothing is visible, and the files that were written are
                removed.
            CommitRetriesExhaustedError: attempts or time ran out; likewise.
            CommitOutcomeUnknownError: nobody can tell whether the commit happened; the files stay.
        """
        self._check_open("commit")
        self._over = "ended by a commit that failed"
        with self._staging:
            record_inserts(self._staging, self._appended.adds)
        result = CommitResult(version=None) if self._staging.already_recorded else self._staging.commit()
        self._over = "committed"
        if self._report:
            told = self._report(self._staging.kept_groups)
            result = dataclasses.replace(result, metrics={**told, **result.metrics})
        if self._statement not in _NO_NEW_ROWS:
            auto_compact(self._staging)
        if self._on_commit and self._staging.result_snapshot:
            self._on_commit(self._staging.result_snapshot, alone=self._staging.alone)
        return result

    # --- data of the table itself ---

    def _source_to_merge(self, data: Any) -> Source | Elsewhere:
        """As :meth:`_source`, but for rows that the executor leaves where they are."""
        executor: object = self._staging.executor
        found = executor.source_of(data) if isinstance(executor, Merging) else None
        if found is None:
            return self._source(data)
        version = found.version_of(self._staging.store.uri)
        if version is not None:
            rest_on(self._staging, version)
        return found

    def _source(self, data: Any) -> Source:
        """The rows to write. Raises ``InvalidArgumentError`` where they are of this table in another version."""
        source = open_source(data)
        record_reads(self._staging, source.tables)
        return source

    def _target(self, source: Source) -> Target:
        return existing_table(self._snapshot, from_arrow(source.reader.schema), schema_mode=None, partition_by=None)
