"""``WriteTransaction``: a transaction with a method for each statement."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Unpack

import pyarrow as pa

from refdelta.api.alter import Alterations
from refdelta.engine.arrow.arrays import empty_table, narrowed
from refdelta.engine.log.state import to_adds
from refdelta.engine.parquet.dv import to_bitmap
from refdelta.errors import InvalidArgumentError
from refdelta.operations.alter.unmapping import removes_mapping
from refdelta.operations.dml.rewrite_result import RewriteResult
from refdelta.operations.layout import STATEMENTS
from refdelta.operations.layout.auto_compact import auto_compact
from refdelta.operations.write.append import Rows, WrittenFiles, append
from refdelta.operations.write.request import WriteRequest, describe_write
from refdelta.operations.write.source import Source, open_source, record_reads
from refdelta.transaction.options import check_options
from refdelta.transaction.transaction import Transaction

# The other statements are imported by their methods, so that the first append of a process starts faster.
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from refdelta.api.merge_builder import TableMerger
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.layout.optimize import OptimizeRequest, OptimizeWork, Report
    from refdelta.operations.merge.request import MergeRequest
    from refdelta.transaction.options import CommitOptions
    from refdelta.transaction.results import CommitResult
    from refdelta.transaction.time_travel import Version
    from refdelta_storage import Store

P = ParamSpec("P")

_REARRANGES = frozenset(STATEMENTS.values())
"""Statements that change no data, and so cannot share a commit with appends."""

_MENDS = frozenset({"set_properties", "unset_properties", "restore", "read", "domain_metadata", "commit", "abort"})
"""Statements that replace properties of the table, and calls that do not depend on valid ones."""

_ADDS_NO_ROWS = _REARRANGES | {"restore", "repair", "backfill_row_ids"}
"""Statements after which no auto-compaction is due."""

_MIXED = (
    "cannot mix an append with {} in one transaction, since that sets dataChange=false; commit and begin another one"
)


class WriteTransaction(Transaction, Alterations[None]):
    """One snapshot, statements over it, one commit; made by :meth:`refdelta.DeltaTable.begin`.

    A statement reads and writes files when it is called, and is visible to other transactions after :meth:`commit`.
    Statements see the snapshot only, not the writes of their own transaction. A transaction can have any number of
    reads and appends, and one statement of another kind.

    As a context manager it is aborted if the block ends without a commit.

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

    Example::

        with table.begin() as txn:
            if txn.read(predicate="id = 3").num_rows == 0:
                txn.append(rows)
            txn.commit()
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

    def _check_open(self, verb: str) -> None:
        super()._check_open(verb)
        if verb not in _MENDS:
            self.check_valid()

    # --- reading ---

    def read(self, columns: Sequence[str] | None = None, predicate: Any = None) -> pa.Table:
        """Rows of the snapshot. The read is recorded: the commit conflicts with writers that would have changed its
        result.

        Args:
            columns: names of top-level columns, in the order of the result; None for all.
            predicate: SQL in Spark's dialect, deltalake's list of conditions, or a ``pyarrow.compute.Expression``,
                which counts as a read of the whole table. None for all rows.

        Raises:
            ColumnNotFoundError: there is no such column.
            PredicateError: the predicate cannot be parsed or bound.

        Example::

            with table.begin() as txn:
                if txn.read(["id"], predicate="name = 'Ada'").num_rows < 2:
                    txn.append(rows)
                txn.commit()
        """
        from refdelta.core.expressions.predicate import TRUE
        from refdelta.engine.expressions.sql import parse_predicate
        from refdelta.engine.scan.filters import BoundFilter, row_filter
        from refdelta.engine.scan.reader import POSITION, ScanFile, read_file
        from refdelta.engine.scan.scan import plan_scan, scan_files

        self._check_open("read")
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
        for index, add in zip(hit, to_adds(scan.files.take(pa.array(hit, pa.int64()))), strict=True):
            self.read_rows(add, to_bitmap(tables[index].column(POSITION.name)))
        found = pa.concat_tables([empty_table(plan.schema), *tables]).drop_columns([POSITION.name])
        if scan.parts is None:
            return found
        return pa.Table.from_batches([narrowed(batch, scan.schema) for batch in found.to_batches()], scan.schema)

    def domain_metadata(self) -> dict[str, str]:
        """The metadata domains of the snapshot, by name, with their configurations (PROTOCOL.md, "Domain Metadata").

        Includes the domains of engines. All domains count as read: the commit conflicts with every writer that set or
        removed one meanwhile.

        Example::

            table.alter.add_feature("domainMetadata", allow_protocol_versions_increase=True)
            with table.begin() as txn:
                total = int(txn.domain_metadata().get("app.total", "0"))
                txn.append(rows)
                txn.set_domain_metadata("app.total", str(total + len(rows)))
                txn.commit()
        """
        self._check_open("domain_metadata")
        self.read_domains()
        return {name: domain.configuration for name, domain in self.existing.domains.items()}

    # --- writing ---

    def append(self, data: Any, *, target_file_size: int | None = None, timezone: str | None = None) -> None:
        """Write rows as new files of the table. A transaction without reads that only appends never conflicts with
        other writers' changes of rows.

        Args:
            data: as :func:`refdelta.write_deltalake` takes it. Data from this table must be of the transaction's
                version, and count as a read of the whole table.
            target_file_size: the size in bytes at which a data file is completed; None for the table's own.
            timezone: as :func:`refdelta.write_deltalake` takes it; None for that of the handle.

        Raises:
            SchemaMismatchError: the data does not fit the table; nothing was written.
            ConstraintViolationError: a null in a column without nulls, or a row that breaks a constraint.

        Example::

            with table.begin() as txn:
                txn.append(rows)
                txn.commit()
        """
        self.write(data, WriteRequest(mode="append", target_file_size=target_file_size, timezone=timezone))

    def overwrite(
        self,
        data: Any,
        predicate: str | None = None,
        *,
        target_file_size: int | None = None,
        timezone: str | None = None,
    ) -> None:
        """Replace all rows, or the rows for which ``predicate`` is true.

        The replaced rows count as read: the commit conflicts with other writers' appends of such rows. At the level
        ``WriteSerializable`` it does not conflict with blind appends, and their rows stay; ``Serializable`` includes
        these.

        Args:
            data: as for :meth:`append`.
            predicate: SQL in Spark's dialect, which every new row must satisfy, too; None replaces all rows.
            target_file_size: as for :meth:`append`.
            timezone: as for :meth:`append`.

        Raises:
            SchemaMismatchError: the data does not fit the table; nothing was written.
            ConstraintViolationError: a row is outside of the predicate, or the table is append-only.

        Example::

            with table.begin() as txn:
                txn.overwrite(rows.slice(0, 1), predicate="id = 3")
                txn.commit()
        """
        request = WriteRequest("overwrite", predicate=predicate, target_file_size=target_file_size, timezone=timezone)
        self.write(data, request)

    def write(self, data: Any, request: WriteRequest, *, always: bool = False) -> None:
        """Run a write request: the statement of :func:`refdelta.write_deltalake`.

        Args:
            data: as for :meth:`append`, or rows that other processes write.
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
        self._check_open("append")
        if self._statement in _REARRANGES:
            raise InvalidArgumentError(_MIXED.format(self._statement))
        if removes_mapping(self):
            raise InvalidArgumentError(_MIXED.format("the end of a column mapping"))
        if self.already_recorded:
            return
        with self.all_or_nothing():
            rows = self._rows(data, request)
            target = request.target(self.snapshot, rows.schema)
            written = append(self, rows, target, target_file_size=request.target_file_size)
        self._appended = WrittenFiles([*self._appended.adds, *written.adds], self._appended.rows + written.rows)
        if self._statement is None:
            describe_write(self, target, self._appended, RewriteResult([], [], 0), mode=request.mode, always=always)

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

    def delete(self, predicate: str | None = None) -> None:
        """Delete the rows for which ``predicate`` is true, or all rows, as :meth:`refdelta.DeltaTable.delete`.

        Args:
            predicate: SQL in Spark's dialect; rows for which it is null stay. None deletes every row.

        Raises:
            PredicateError: the predicate cannot be parsed or bound.
            ConstraintViolationError: the table is append-only.

        Example::

            with table.begin() as txn:
                txn.delete("amount = 0")
                txn.append(rows)
                txn.commit()
        """
        from refdelta.operations.dml.delete import delete

        self.run("delete", delete, predicate)

    def update(
        self,
        updates: Mapping[str, str] | None = None,
        new_values: Mapping[str, Any] | None = None,
        predicate: str | None = None,
    ) -> None:
        """Set columns of the rows for which ``predicate`` is true, as :meth:`refdelta.DeltaTable.update`.

        Example::

            with table.begin() as txn:
                txn.update({"amount": "amount + 1"}, predicate="id = 2")
                txn.commit()
        """
        from refdelta.operations.dml.update import update

        self.run("update", update, updates=updates, new_values=new_values, predicate=predicate, timezone=self._timezone)

    def merge(
        self,
        source: Any,
        predicate: str,
        source_alias: str | None = "s",
        target_alias: str | None = "t",
        merge_schema: bool = False,
        *,
        timezone: str | None = None,
    ) -> TableMerger[None]:
        """Merge rows into the table, as :meth:`refdelta.DeltaTable.merge`. ``execute()`` reads and writes the files;
        :meth:`commit` commits.

        Example::

            with table.begin() as txn:
                txn.merge(rows, "s.id = t.id").when_matched_update_all().execute()
                txn.commit()
        """
        from refdelta.api.merge_builder import TableMerger
        from refdelta.operations.merge.request import MergeRequest

        self._check_open("merge")
        return TableMerger(
            MergeRequest.of(predicate, source_alias, target_alias, merge_schema, timezone),
            lambda request: self.run_merge(source, request),
        )

    def run_merge(self, source: Any, request: MergeRequest) -> None:
        """Run a MERGE of these clauses; the source is that of :meth:`merge`."""
        from refdelta.operations.merge.merge import merge

        zone = request.timezone or self._timezone
        self.run("merge", merge, source, dataclasses.replace(request, timezone=zone))

    def restore(self, target: Version, *, ignore_missing_files: bool = False) -> None:
        """Restore an earlier version or time of the table, as :meth:`refdelta.DeltaTable.restore`.

        Example::

            with table.begin() as txn:
                txn.restore(0)
                txn.commit()
        """
        from refdelta.operations.maintenance.restore import restore
        from refdelta.transaction.time_travel import snapshot_at

        is_version = isinstance(target, int)
        parameters = {"version": target if is_version else None, "timestamp": None if is_version else str(target)}

        def stage(txn: Transaction, snapshot: Snapshot) -> None:
            then = snapshot_at(txn.store, target, self._timezone)
            restore(txn, snapshot, then, parameters=parameters, ignore_missing_files=ignore_missing_files)

        self.run("restore", stage)

    def repair(self) -> None:
        """Remove the entries of data files that are gone, as :meth:`refdelta.DeltaTable.repair`.

        Example::

            with table.begin() as txn:
                txn.repair()
                txn.commit()
        """
        from refdelta.operations.maintenance.repair import repair

        self.run("repair", repair)

    def compact(
        self, partition_filters: Any = None, target_size: int | None = None, *, min_file_size: int | None = None
    ) -> None:
        """Merge small files, as :meth:`refdelta.api.optimizer.TableOptimizer.compact`.

        Example::

            with table.begin() as txn:
                txn.compact()
                txn.commit()
        """
        from refdelta.operations.layout.optimize import OptimizeRequest

        self.optimize(
            OptimizeRequest(aim="compact", filters=partition_filters, target_size=target_size, min_size=min_file_size)
        )

    def z_order(
        self, columns: Sequence[str] | str, partition_filters: Any = None, target_size: int | None = None
    ) -> None:
        """Sort the rows along a Z-curve, as :meth:`refdelta.api.optimizer.TableOptimizer.z_order`.

        Example::

            with table.begin() as txn:
                txn.z_order(["day", "id"])
                txn.commit()
        """
        from refdelta.operations.layout.optimize import OptimizeRequest

        self.optimize(OptimizeRequest(aim="sort", columns=columns, filters=partition_filters, target_size=target_size))

    def cluster(self, target_size: int | None = None, *, full: bool = False) -> None:
        """Cluster files by the table's clustering columns, as :meth:`refdelta.api.optimizer.TableOptimizer.cluster`.

        Example::

            table.alter.cluster_by("day")
            with table.begin() as txn:
                txn.cluster()
                txn.commit()
        """
        from refdelta.operations.layout.optimize import OptimizeRequest

        self.optimize(OptimizeRequest(aim="cluster", target_size=target_size, full=full))

    def reorg_purge(self, partition_filters: Any = None, target_size: int | None = None) -> None:
        """Rewrite files with deletion vectors, as :meth:`refdelta.DeltaTable.reorg_purge`.

        Example::

            with table.begin() as txn:
                txn.reorg_purge()
                txn.commit()
        """
        from refdelta.operations.layout.optimize import OptimizeRequest

        self.optimize(OptimizeRequest(aim="purge", filters=partition_filters, target_size=target_size))

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

    def reorg_upgrade_uniform(self, iceberg_compat_version: int = 2) -> None:
        """Make the table readable as Iceberg's, as :meth:`refdelta.DeltaTable.reorg_upgrade_uniform`.

        Example::

            with table.begin(isolation="Serializable") as txn:
                txn.reorg_upgrade_uniform()
                txn.commit()
        """
        from refdelta.operations.layout.reorg_uniform import upgrade_uniform

        statement = STATEMENTS["upgrade"]
        self._check_adds_no_rows(statement)
        self.run(statement, upgrade_uniform, iceberg_compat_version)

    def _check_adds_no_rows(self, statement: str) -> None:
        if self._appended.adds:
            raise InvalidArgumentError(_MIXED.format(statement))

    # --- ALTER TABLE ---

    def set_properties(self, properties: Mapping[str, Any]) -> None:
        """Set table properties, as :meth:`refdelta.api.alter.TableAlterer.set_table_properties`.

        Example::

            with table.begin() as txn:
                txn.set_properties({"delta.appendOnly": "true"})
                txn.commit()
        """
        self.set_table_properties(properties)

    def unset_properties(self, names: Sequence[str], *, if_exists: bool = False) -> None:
        """Remove table properties, as :meth:`refdelta.api.alter.TableAlterer.unset_table_properties`.

        Example::

            with table.begin() as txn:
                txn.unset_properties(["delta.appendOnly"], if_exists=True)
                txn.commit()
        """
        self.unset_table_properties(names, if_exists=if_exists)

    def set_domain_metadata(self, domain: str, configuration: str | None, **options: Unpack[CommitOptions]) -> None:
        """Set or remove a metadata domain of an application, in the same commit as other statements.

        A transaction can set any number of domains. Of two concurrent transactions that set the same domain, the second
        fails.

        Args:
            domain: its name, which must not begin with ``delta.``.
            configuration: its value; None removes the domain.
            options: none; they are arguments of :meth:`refdelta.DeltaTable.begin`.

        Raises:
            InvalidArgumentError: the domain belongs to engines, is to be removed and does not exist, or was set by this
                transaction before; or the table does not support the feature ``domainMetadata``.

        Example::

            table.alter.add_feature("domainMetadata", allow_protocol_versions_increase=True)
            with table.begin() as txn:
                txn.append(rows)
                txn.set_domain_metadata("app.last_batch", "2026-01-02")
                txn.commit()
        """
        from refdelta.operations.alter.domains import set_domain

        self._check_open("set_domain_metadata")
        _check_no_options(options)
        if not self.already_recorded:
            set_domain(self, self.existing, domain, configuration)

    def _alter(
        self,
        options: CommitOptions,
        operation: Callable[Concatenate[Transaction, Snapshot, P], None],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        _check_no_options(options)
        self.run(operation.__name__, operation, *args, **kwargs)

    # --- the end ---

    def commit(self) -> CommitResult:
        """Commit all statements as one version, after the other writers' commits that do not conflict.

        Returns:
            The result of the commit; ``version`` is None if nothing was written: no row matched, or the application's
            version is recorded already.

        Raises:
            ConcurrentModificationError, CommitRetriesExhaustedError, CommitOutcomeUnknownError: as
                :meth:`refdelta.transaction.transaction.Transaction.commit`.

        Example::

            with table.begin() as txn:
                txn.append(rows)
                result = txn.commit()
            result.version
        """
        self._check_open("commit")
        try:
            if self.is_fed:
                from refdelta.operations.dml.rewrite import record_inserts

                record_inserts(self, self._appended.adds)
        except BaseException:
            self.abort()
            raise
        result = super().commit()
        if self._report:
            result = dataclasses.replace(result, metrics={**self._report(self.kept_groups), **result.metrics})
        if self._statement not in _ADDS_NO_ROWS:
            auto_compact(self)
        if self._on_commit and self.result_snapshot:
            self._on_commit(self.result_snapshot, alone=self.alone)
        return result

    def _rows(self, data: Any, request: WriteRequest) -> Rows:
        """The rows to write. Raises ``InvalidArgumentError`` for rows of this table in another version."""
        rows = data if isinstance(data, Rows) else open_source(data)
        if isinstance(rows, Source):
            record_reads(self, rows.tables)
            rows.convert_for(request.kept_schema(self.snapshot), request.timezone or self._timezone)
        return rows


def _check_no_options(options: CommitOptions) -> None:
    check_options(options)
    if options:
        raise InvalidArgumentError(
            f"{', '.join(sorted(options))}: pass these options to begin(), not to a statement of its transaction"
        )
