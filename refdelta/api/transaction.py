"""``WriteTransaction``: a transaction with a method for each statement."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, Self

from refdelta.api.awaiting import awaitable
from refdelta.operations.write.target import WriteRequest

# The statements are imported by their methods, so that a transaction begins faster.
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    import pyarrow as pa

    from refdelta.api.merge_builder import TableMerger
    from refdelta.api.table_transaction import TableTransaction
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.results import CommitResult
    from refdelta.transaction.time_travel import Version
    from refdelta.transaction.transaction import Transaction

P = ParamSpec("P")


class WriteTransaction:
    """One snapshot, statements over it, one commit; made by :meth:`refdelta.DeltaTable.begin`.

    A statement reads and writes files when it is called, and is visible to other transactions after :meth:`commit`.
    Statements see the snapshot only, not the writes of their own transaction. A transaction can have any number of
    reads and appends, and one statement of another kind.

    As a context manager it is aborted if the block ends without a commit. If it has written files and is dropped
    without an end, a ``ResourceWarning`` says where it began, and the files are removed. It cannot be copied or
    pickled, and a forked child cannot end it.

    Example::

        with table.begin() as txn:
            if txn.read(predicate="id = 3").num_rows == 0:
                txn.append(rows)
            txn.commit()
    """

    def __init__(self, transaction: TableTransaction):
        self._transaction = transaction

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transaction.__exit__(kind, error, trace)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        self._transaction.__reduce_ex__(protocol)

    @property
    def version(self) -> int:
        """The version that the transaction reads."""
        return self._transaction.version

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
        return self._transaction.read(columns, predicate)

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
        txn = self._transaction
        txn.check_open("domain_metadata")
        txn.read_domains()
        return {name: domain.configuration for name, domain in txn.existing.domains.items()}

    # --- writing ---

    def append(self, data: Any, *, target_file_size: int | None = None, timezone: str | None = None) -> None:
        """Write rows as new files of the table. A transaction without reads that only appends never conflicts with
        other writers' changes of rows.

        Args:
            data: as :func:`refdelta.write_deltalake` takes it. Data from this table must be of the transaction's
                version, and count as a read of the whole table, whatever form they have.
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
        request = WriteRequest(mode="append", target_file_size=target_file_size, timezone=timezone)
        self._transaction.write(data, request)

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
        self._transaction.write(data, request)

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

        self._transaction.run("delete", delete, predicate)

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
        self._transaction.update(updates, new_values, predicate)

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
        from refdelta.operations.merge.plan import MergeRequest

        txn = self._transaction
        txn.check_open("merge")
        return TableMerger(
            MergeRequest.of(predicate, source_alias, target_alias, merge_schema, timezone),
            lambda request: txn.merge(source, request),
        )

    def restore(self, target: Version, *, ignore_missing_files: bool = False) -> None:
        """Restore an earlier version or time of the table, as :meth:`refdelta.DeltaTable.restore`.

        Example::

            with table.begin() as txn:
                txn.restore(0)
                txn.commit()
        """
        self._transaction.restore(target, ignore_missing_files=ignore_missing_files)

    def repair(self) -> None:
        """Remove the entries of data files that are gone, as :meth:`refdelta.DeltaTable.repair`.

        Example::

            with table.begin() as txn:
                txn.repair()
                txn.commit()
        """
        from refdelta.operations.maintenance.repair import repair

        self._transaction.run("repair", repair)

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

        self._transaction.optimize(
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

        self._transaction.optimize(
            OptimizeRequest(aim="sort", columns=columns, filters=partition_filters, target_size=target_size)
        )

    def cluster(self, target_size: int | None = None, *, full: bool = False) -> None:
        """Cluster files by the table's clustering columns, as :meth:`refdelta.api.optimizer.TableOptimizer.cluster`.

        Example::

            table.alter.cluster_by("day")
            with table.begin() as txn:
                txn.cluster()
                txn.commit()
        """
        from refdelta.operations.layout.optimize import OptimizeRequest

        self._transaction.optimize(OptimizeRequest(aim="cluster", target_size=target_size, full=full))

    def reorg_purge(self, partition_filters: Any = None, target_size: int | None = None) -> None:
        """Rewrite files with deletion vectors, as :meth:`refdelta.DeltaTable.reorg_purge`.

        Example::

            with table.begin() as txn:
                txn.reorg_purge()
                txn.commit()
        """
        from refdelta.operations.layout.optimize import OptimizeRequest

        self._transaction.optimize(OptimizeRequest(aim="purge", filters=partition_filters, target_size=target_size))

    def reorg_upgrade_uniform(self, iceberg_compat_version: int = 2) -> None:
        """Make the table readable as Iceberg's, as :meth:`refdelta.DeltaTable.reorg_upgrade_uniform`.

        Example::

            with table.begin(isolation="Serializable") as txn:
                txn.reorg_upgrade_uniform()
                txn.commit()
        """
        self._transaction.upgrade_uniform(iceberg_compat_version)

    # --- ALTER TABLE ---

    def set_table_properties(self, properties: Mapping[str, Any]) -> None:
        """Set table properties; other properties do not change. As
        :meth:`refdelta.api.alter.TableAlterer.set_table_properties`.
        """
        from refdelta.operations.alter.properties import set_properties

        self._alter(set_properties, properties)

    def unset_table_properties(self, names: Sequence[str], *, if_exists: bool = False) -> None:
        """Remove table properties, so that each has its default again. As
        :meth:`refdelta.api.alter.TableAlterer.unset_table_properties`.
        """
        from refdelta.operations.alter.properties import unset_properties

        self._alter(unset_properties, names, if_exists=if_exists)

    def cluster_by(self, columns: Sequence[str] | str | None) -> None:
        """Change the clustering columns of the table (CLUSTER BY). As
        :meth:`refdelta.api.alter.TableAlterer.cluster_by`.
        """
        from refdelta.operations.shared.clustering import cluster_by

        self._alter(cluster_by, columns)

    def add_constraint(self, constraints: Mapping[str, str]) -> None:
        """Add CHECK constraints: conditions that must be true for every row (PROTOCOL.md, "CHECK Constraints"). As
        :meth:`refdelta.api.alter.TableAlterer.add_constraint`.
        """
        from refdelta.operations.alter.constraints import add_constraint

        self._alter(add_constraint, constraints)

    def drop_constraint(self, name: str, raise_if_not_exists: bool = True) -> None:
        """Drop a CHECK constraint. As :meth:`refdelta.api.alter.TableAlterer.drop_constraint`."""
        from refdelta.operations.alter.constraints import drop_constraint

        self._alter(drop_constraint, name, raise_if_not_exists=raise_if_not_exists)

    def set_table_name(self, name: str | None) -> None:
        """Set the table's name. As :meth:`refdelta.api.alter.TableAlterer.set_table_name`."""
        from refdelta.operations.alter.properties import set_table_name

        self._alter(set_table_name, name)

    def set_table_description(self, description: str | None) -> None:
        """Set the table's description. As :meth:`refdelta.api.alter.TableAlterer.set_table_description`."""
        from refdelta.operations.alter.properties import set_table_description

        self._alter(set_table_description, description)

    def add_feature(self, feature: Any, allow_protocol_versions_increase: bool = False) -> None:
        """Add a feature to the table's protocol, even if the table does not use it (PROTOCOL.md, "Table Features"). As
        :meth:`refdelta.api.alter.TableAlterer.add_feature`.
        """
        from refdelta.operations.alter.features import add_feature

        self._alter(add_feature, feature, raise_versions=allow_protocol_versions_increase)

    def add_columns(self, fields: Any) -> None:
        """Add columns after the existing ones, or fields to structs. As
        :meth:`refdelta.api.alter.TableAlterer.add_columns`.
        """
        from refdelta.operations.alter.columns import add_columns

        self._alter(add_columns, fields)

    def rename_column(self, column: str, new_name: str) -> None:
        """Rename a column, or a field of a struct. As :meth:`refdelta.api.alter.TableAlterer.rename_column`."""
        from refdelta.operations.alter.columns import rename_column

        self._alter(rename_column, column, new_name)

    def drop_columns(self, columns: Sequence[str] | str, *, if_exists: bool = False) -> None:
        """Drop columns, or fields of structs. As :meth:`refdelta.api.alter.TableAlterer.drop_columns`."""
        from refdelta.operations.alter.columns import drop_columns

        self._alter(drop_columns, columns, if_exists=if_exists)

    def change_type(self, column: str, new_type: Any) -> None:
        """Widen the type of a column (PROTOCOL.md, "Type Widening"). As
        :meth:`refdelta.api.alter.TableAlterer.change_type`.
        """
        from refdelta.operations.alter.columns import change_type

        self._alter(change_type, column, new_type)

    def set_nullable(self, column: str, nullable: bool = True) -> None:
        """Allow or forbid nulls in a column, or in a field of a struct (DROP NOT NULL, SET NOT NULL). As
        :meth:`refdelta.api.alter.TableAlterer.set_nullable`.
        """
        from refdelta.operations.alter.columns import set_nullable

        self._alter(set_nullable, column, nullable)

    def drop_column_not_null(self, column_name: str) -> None:
        """Allow nulls in a column: :meth:`set_nullable` by deltalake's name. As
        :meth:`refdelta.api.alter.TableAlterer.drop_column_not_null`.
        """
        self.set_nullable(column_name)

    def move_column(self, column: str, *, after: str | None = None) -> None:
        """Change the position of a column, or of a field within its struct. As
        :meth:`refdelta.api.alter.TableAlterer.move_column`.
        """
        from refdelta.operations.alter.columns import move_column

        self._alter(move_column, column, after=after)

    def set_default(self, column: str, default: str) -> None:
        """Set a column's default: the value in new rows whose writer leaves the column out (PROTOCOL.md, "Default
        Columns"). As :meth:`refdelta.api.alter.TableAlterer.set_default`.
        """
        from refdelta.operations.alter.columns import set_default

        self._alter(set_default, column, default)

    def drop_default(self, column: str) -> None:
        """Remove the default of a column. As :meth:`refdelta.api.alter.TableAlterer.drop_default`."""
        from refdelta.operations.alter.columns import set_default

        self._alter(set_default, column, None)

    def set_column_metadata(self, column: str, metadata: Mapping[str, Any]) -> None:
        """Set entries of a column's metadata in the schema, such as its ``comment``, which Spark shows. As
        :meth:`refdelta.api.alter.TableAlterer.set_column_metadata`.
        """
        from refdelta.operations.alter.columns import set_column_metadata

        self._alter(set_column_metadata, column, metadata)

    def sync_identity(self, column: str) -> None:
        """Set an identity column's high watermark to the furthest number in the table, which is read for it. As
        :meth:`refdelta.api.alter.TableAlterer.sync_identity`.
        """
        from refdelta.operations.alter.columns import sync_identity

        self._alter(sync_identity, column)

    def set_properties(self, properties: Mapping[str, Any]) -> None:
        """Deprecated: the same as :meth:`set_table_properties`."""
        _deprecated("set_properties", "set_table_properties")
        self.set_table_properties(properties)

    def unset_properties(self, names: Sequence[str], *, if_exists: bool = False) -> None:
        """Deprecated: the same as :meth:`unset_table_properties`."""
        _deprecated("unset_properties", "unset_table_properties")
        self.unset_table_properties(names, if_exists=if_exists)

    def set_domain_metadata(self, domain: str, configuration: str | None) -> None:
        """Set or remove a metadata domain of an application, in the same commit as other statements.

        A transaction can set any number of domains. Of two concurrent transactions that set the same domain, the second
        fails.

        Args:
            domain: its name, which must not begin with ``delta.``.
            configuration: its value; None removes the domain.

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

        txn = self._transaction
        txn.check_open("set_domain_metadata")
        if not txn.already_recorded:
            set_domain(txn, txn.existing, domain, configuration)

    def _alter(
        self, operation: Callable[Concatenate[Transaction, Snapshot, P], None], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        self._transaction.run(operation.__name__, operation, *args, **kwargs)

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
        return self._transaction.commit()

    commit_async = awaitable(commit)

    def abort(self) -> None:
        """End the transaction without a commit. The files that it wrote are removed. In a forked child it does nothing,
        since the transaction is its parent's.

        Raises:
            InvalidArgumentError: the transaction has ended already.

        Example::

            txn = table.begin()
            txn.append(rows)
            txn.abort()
        """
        self._transaction.abort()


def _deprecated(name: str, instead: str) -> None:
    warnings.warn(
        f"WriteTransaction.{name} is deprecated, and goes in 0.4: use {instead}", DeprecationWarning, stacklevel=3
    )
