"""ALTER TABLE: changes of a table's properties, columns, constraints and features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Unpack

from refdelta.errors import ConcurrentModificationError, InvalidArgumentError
from refdelta.table.row_tracking import enables
from refdelta.transaction.options import records_applications, without_applications, without_attempts
from refdelta.transaction.results import CommitResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from refdelta.api.handle import Handle
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.options import CommitOptions, StatementOptions
    from refdelta.transaction.transaction import Transaction

P = ParamSpec("P")

FILES_AT_ONCE = 20_000
"""The number of files that get row ids in one commit; same as delta-spark, so that a commit has a few megabytes."""

_TRIES = 10


class TableAlterer:
    """The statements of ALTER TABLE as commits, one for each call; made by :attr:`refdelta.DeltaTable.alter`. A
    :class:`~refdelta.api.transaction.WriteTransaction` has the same ones, without the options, and stages one.

    A change of properties or of the schema fails the transactions that began before it, as Delta's documentation of
    write conflicts says. A statement that changes nothing commits nothing.

    Example::

        result = table.alter.set_table_name("orders", isolation="Serializable")
        result.version
    """

    def __init__(self, handle: Handle):
        self._handle = handle

    def __repr__(self) -> str:
        return f"<ALTER TABLE {self._handle.store.uri}: add_columns(), set_table_properties() and others>"

    def _alter(
        self,
        options: StatementOptions,
        operation: Callable[Concatenate[Transaction, Snapshot, P], None],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> CommitResult:
        return self._handle.run(lambda txn: txn.run(operation.__name__, operation, *args, **kwargs), options)

    # --- properties, clustering, constraints, features ---

    def set_table_properties(self, properties: Mapping[str, Any], **options: Unpack[StatementOptions]) -> CommitResult:
        """Set table properties; other properties do not change.

        Args:
            properties: names and values. Names that begin with ``delta.`` must exist; other names are free.
                ``delta.feature.<name>`` with the value ``supported`` adds a table feature. ``delta.enableRowTracking``
                gives ids to the existing rows, with several commits if the table has many files.
                ``delta.columnMapping.mode`` with the value ``none`` ends a column mapping and rewrites all files.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Raises:
            InvalidArgumentError: a property does not exist, or cannot have this value.
            UnsupportedFeatureError: a property needs a feature that this engine does not support; the message names it.
            ConcurrentModificationError: another writer's commit conflicts.

        Example::

            table.alter.set_table_properties({"delta.enableDeletionVectors": "true", "owner": "Ada"})
        """
        from refdelta.operations.alter.properties import set_properties

        if enables(properties):
            self._backfill_row_ids(without_applications(without_attempts(options)))
        return self._alter(options, set_properties, properties)

    def unset_table_properties(
        self, names: Sequence[str], *, if_exists: bool = False, **options: Unpack[StatementOptions]
    ) -> CommitResult:
        """Remove table properties, so that each has its default again.

        Args:
            names: the names of the properties.
            if_exists: ignore properties that the table does not have.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Raises:
            InvalidArgumentError: the table has no such property.
            ConcurrentModificationError: another writer's commit conflicts.

        Example::

            table.alter.unset_table_properties(["delta.targetFileSize"], if_exists=True)
        """
        from refdelta.operations.alter.properties import unset_properties

        return self._alter(options, unset_properties, names, if_exists=if_exists)

    def cluster_by(self, columns: Sequence[str] | str | None, **options: Unpack[StatementOptions]) -> CommitResult:
        """Change the clustering columns of the table (CLUSTER BY).

        ``optimize.cluster()`` then clusters new files by them, and ``optimize.cluster(full=True)`` also the existing
        ones. Table properties do not change. A table that is created clustered has deletion vectors and row tracking,
        so that ``optimize.cluster()`` never conflicts with UPDATE, DELETE and MERGE. For an existing table, set
        ``delta.enableDeletionVectors`` and ``delta.enableRowTracking`` with :meth:`set_table_properties`; without them,
        clustering can conflict.

        Args:
            columns: up to four column names, in any case. Dots separate the fields of structs; backticks quote a name
                with a dot. None or an empty list removes the clustering columns (CLUSTER BY NONE).
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Raises:
            ColumnNotFoundError: there is no such column.
            InvalidArgumentError: the table is partitioned; there are too many columns, one is named twice, or one has a
                type without minimum and maximum in the statistics.
            ConcurrentModificationError: another writer's commit conflicts.

        Example::

            table.alter.cluster_by(["day", "id"])
            table.optimize.cluster()
        """
        from refdelta.operations.shared.clustering import cluster_by

        return self._alter(options, cluster_by, columns)

    def add_constraint(self, constraints: Mapping[str, str], **options: Unpack[StatementOptions]) -> CommitResult:
        """Add CHECK constraints: conditions that must be true for every row (PROTOCOL.md, "CHECK Constraints").

        The existing rows are checked first. All are added in one commit, or none.

        Args:
            constraints: by name, which is stored in lower case, the condition, SQL in Spark's dialect.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Raises:
            ConstraintViolationError: a condition is false or null for rows of the table.
            PredicateError: a condition cannot be parsed or bound.
            InvalidArgumentError: there is a constraint of this name already.
            ConcurrentModificationError: another writer's commit conflicts, for example one that added rows.

        Example::

            table.alter.add_constraint({"positive": "amount >= 0", "small": "amount < 1000"})
        """
        from refdelta.operations.alter.constraints import add_constraint

        return self._alter(options, add_constraint, constraints)

    def drop_constraint(
        self, name: str, raise_if_not_exists: bool = True, **options: Unpack[StatementOptions]
    ) -> CommitResult:
        """Drop a CHECK constraint.

        Args:
            name: its name, in any case.
            raise_if_not_exists: raise an error if there is no such constraint; else nothing is committed.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Raises:
            InvalidArgumentError: the table has no such constraint.
            ConcurrentModificationError: another writer's commit conflicts.

        Example::

            table.alter.add_constraint({"positive": "amount >= 0"})
            table.alter.drop_constraint("positive")
        """
        from refdelta.operations.alter.constraints import drop_constraint

        return self._alter(options, drop_constraint, name, raise_if_not_exists=raise_if_not_exists)

    def set_table_name(self, name: str | None, **options: Unpack[StatementOptions]) -> CommitResult:
        """Set the table's name.

        Args:
            name: the name; None removes it.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Raises:
            ConcurrentModificationError: another writer's commit conflicts.

        Example::

            table.alter.set_table_name("orders")
        """
        from refdelta.operations.alter.properties import set_table_name

        return self._alter(options, set_table_name, name)

    def set_table_description(self, description: str | None, **options: Unpack[StatementOptions]) -> CommitResult:
        """Set the table's description.

        Args:
            description: the description; None removes it.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Raises:
            ConcurrentModificationError: another writer's commit conflicts.

        Example::

            table.alter.set_table_description("one row for each order")
        """
        from refdelta.operations.alter.properties import set_table_description

        return self._alter(options, set_table_description, description)

    def add_feature(
        self, feature: Any, allow_protocol_versions_increase: bool = False, **options: Unpack[StatementOptions]
    ) -> CommitResult:
        """Add a feature to the table's protocol, even if the table does not use it (PROTOCOL.md, "Table Features").

        Args:
            feature: a name such as ``deletionVectors``, one of deltalake's ``TableFeatures``, or a list of these. The
                features that they require are added, too.
            allow_protocol_versions_increase: allow higher protocol versions, which exclude older readers and writers.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Returns:
            The result of the commit; ``version`` is None if the table supports the features already.

        Raises:
            InvalidArgumentError: a feature does not exist, or needs higher versions that are not allowed.
            UnsupportedFeatureError: this engine does not support a feature.
            ConcurrentModificationError: another writer's commit conflicts.

        Example::

            table.alter.add_feature("deletionVectors", allow_protocol_versions_increase=True)
        """
        from refdelta.operations.alter.features import add_feature

        return self._alter(options, add_feature, feature, raise_versions=allow_protocol_versions_increase)

    # --- columns ---

    def add_columns(self, fields: Any, **options: Unpack[StatementOptions]) -> CommitResult:
        """Add columns after the existing ones, or fields to structs. They are null in the existing rows.

        Args:
            fields: a field, a list of fields or a schema, of refdelta, pyarrow or deltalake. A name with dots is a path
                into a struct; ``element``, ``key`` and ``value`` name the parts of arrays and maps; backticks quote a
                name with a dot.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Raises:
            SchemaMismatchError: a column exists already, or Delta cannot store its name.
            UnsupportedTypeError: Delta has no type for an Arrow type.
            InvalidArgumentError: a column is not nullable.
            ConcurrentModificationError: another writer's commit conflicts.

        Example::

            table.alter.add_columns([pa.field("town", pa.string()), pa.field("visits", pa.int32())])
        """
        from refdelta.operations.alter.columns import add_columns

        return self._alter(options, add_columns, fields)

    def rename_column(self, column: str, new_name: str, **options: Unpack[StatementOptions]) -> CommitResult:
        """Rename a column, or a field of a struct. No file is written; the table needs column mapping.

        Args:
            column: its name. Dots separate the fields of structs; ``element``, ``key`` and ``value`` name the parts of
                arrays and maps; backticks quote a name with a dot.
            new_name: the new name of the column or field alone, without a path. Any character is allowed.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Raises:
            ColumnNotFoundError: there is no such column.
            SchemaMismatchError: another column at the same level has this name.
            InvalidArgumentError: ``delta.columnMapping.mode`` is ``none``, or a constraint or another column is
                computed from the column.
            ConcurrentModificationError: another writer's commit conflicts.

        Example::

            table.alter.set_table_properties({"delta.columnMapping.mode": "name"})
            table.alter.rename_column("amount", "price")
        """
        from refdelta.operations.alter.columns import rename_column

        return self._alter(options, rename_column, column, new_name)

    def drop_columns(
        self, columns: Sequence[str] | str, *, if_exists: bool = False, **options: Unpack[StatementOptions]
    ) -> CommitResult:
        """Drop columns, or fields of structs. Their values stay in the data files until these are rewritten.

        Args:
            columns: one name or several, as for :meth:`rename_column`.
            if_exists: ignore columns that the table does not have.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Raises:
            ColumnNotFoundError: there is no such column.
            InvalidArgumentError: ``delta.columnMapping.mode`` is ``none``; the column is a partition or clustering
                column, a constraint or another column is computed from it, or it is the only one left.
            ConcurrentModificationError: another writer's commit conflicts.

        Example::

            table.alter.set_table_properties({"delta.columnMapping.mode": "name"})
            table.alter.drop_columns(["day"])
        """
        from refdelta.operations.alter.columns import drop_columns

        return self._alter(options, drop_columns, columns, if_exists=if_exists)

    def change_type(self, column: str, new_type: Any, **options: Unpack[StatementOptions]) -> CommitResult:
        """Widen the type of a column (PROTOCOL.md, "Type Widening"). No file is written; readers convert the values.

        Integers can become wider integers or, except ``long``, doubles; integers and decimals can become decimals that
        hold all of their values; floats can become doubles, and dates timestamps without time zone. A column of type
        ``void``, which had only nulls so far, can become any type, without type widening.

        Args:
            column: its name, as for :meth:`rename_column`; a path may end with ``element``, ``key`` or ``value``.
            new_type: an Arrow type, or the name of a type, such as ``long``, ``bigint`` or ``decimal(12,2)``.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Raises:
            ColumnNotFoundError: there is no such column.
            SchemaMismatchError: the type is not wider than the column's own.
            InvalidArgumentError: ``delta.enableTypeWidening`` is not set, which a void column does not need; or a
                constraint or another column is computed from the column.
            ConcurrentModificationError: another writer's commit conflicts.

        Example::

            table.alter.set_table_properties({"delta.enableTypeWidening": "true"})
            table.alter.change_type("day", "timestamp_ntz")
        """
        from refdelta.operations.alter.columns import change_type

        return self._alter(options, change_type, column, new_type)

    def set_nullable(self, column: str, nullable: bool = True, **options: Unpack[StatementOptions]) -> CommitResult:
        """Allow or forbid nulls in a column, or in a field of a struct (DROP NOT NULL, SET NOT NULL).

        Args:
            column: its name, as for :meth:`rename_column`.
            nullable: allow nulls. With False, the existing rows are checked first.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Raises:
            ColumnNotFoundError: there is no such column.
            ConstraintViolationError: rows of the table have null in the column.
            ConcurrentModificationError: another writer's commit conflicts, for example one that added rows.

        Example::

            table.alter.set_nullable("id", False)
        """
        from refdelta.operations.alter.columns import set_nullable

        return self._alter(options, set_nullable, column, nullable)

    def drop_column_not_null(self, column_name: str, **options: Unpack[StatementOptions]) -> CommitResult:
        """Allow nulls in a column: :meth:`set_nullable` by deltalake's name.

        Args:
            column_name: its name, as for :meth:`rename_column`.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Example::

            table.alter.set_nullable("id", False)
            table.alter.drop_column_not_null("id")
        """
        return self.set_nullable(column_name, **options)

    def move_column(
        self, column: str, *, after: str | None = None, **options: Unpack[StatementOptions]
    ) -> CommitResult:
        """Change the position of a column, or of a field within its struct.

        Args:
            column: its name, as for :meth:`rename_column`.
            after: the column or field that precedes it then; None makes it the first.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Raises:
            ColumnNotFoundError: there is no such column.
            ConcurrentModificationError: another writer's commit conflicts.

        Example::

            table.alter.move_column("day", after="id")
        """
        from refdelta.operations.alter.columns import move_column

        return self._alter(options, move_column, column, after=after)

    def set_default(self, column: str, default: str, **options: Unpack[StatementOptions]) -> CommitResult:
        """Set a column's default: the value in new rows whose writer leaves the column out (PROTOCOL.md, "Default
        Columns").

        Args:
            column: its name; not a field of a struct.
            default: an SQL expression without columns.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Raises:
            ColumnNotFoundError: there is no such column.
            InvalidArgumentError: the column cannot hold the value, or is a generated column.
            ConcurrentModificationError: another writer's commit conflicts.

        Example::

            table.alter.add_feature("allowColumnDefaults", allow_protocol_versions_increase=True)
            table.alter.set_default("amount", "0.0")
        """
        from refdelta.operations.alter.columns import set_default

        return self._alter(options, set_default, column, default)

    def drop_default(self, column: str, **options: Unpack[StatementOptions]) -> CommitResult:
        """Remove the default of a column. If it has none, nothing is committed.

        Args:
            column: its name.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Raises:
            ColumnNotFoundError: there is no such column.
            ConcurrentModificationError: another writer's commit conflicts.

        Example::

            table.alter.add_feature("allowColumnDefaults", allow_protocol_versions_increase=True)
            table.alter.set_default("amount", "0.0")
            table.alter.drop_default("amount")
        """
        from refdelta.operations.alter.columns import set_default

        return self._alter(options, set_default, column, None)

    def set_column_metadata(
        self, column: str, metadata: Mapping[str, Any], **options: Unpack[StatementOptions]
    ) -> CommitResult:
        """Set entries of a column's metadata in the schema, such as its ``comment``, which Spark shows.

        Args:
            column: its name, or a path to a field of a struct.
            metadata: keys and values; None removes a key, and other keys do not change.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Raises:
            ColumnNotFoundError: there is no such column.
            InvalidArgumentError: a key is reserved for engines: ``delta.*`` and others.
            ConcurrentModificationError: another writer's commit conflicts.

        Example::

            table.alter.set_column_metadata("amount", {"comment": "in euro"})
        """
        from refdelta.operations.alter.columns import set_column_metadata

        return self._alter(options, set_column_metadata, column, metadata)

    def sync_identity(self, column: str, **options: Unpack[StatementOptions]) -> CommitResult:
        """Set an identity column's high watermark to the furthest number in the table, which is read for it.

        This is needed after writers gave numbers themselves: the table's next numbers might be the same. If the mark
        does not change, nothing is committed.

        Args:
            column: its name.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Raises:
            ColumnNotFoundError: there is no such column.
            InvalidArgumentError: it is not an identity column.
            ConcurrentModificationError: another writer's commit conflicts.

        Example::

            schema = pa.schema({"id": pa.int64(), "town": pa.string()})
            table = DeltaTable.create(uri, schema, identity={"id": Identity(always=False)})
            write_deltalake(table, pa.table({"id": [7], "town": ["Oslo"]}), mode="append")
            table.alter.sync_identity("id")  # the next number is 8
        """
        from refdelta.operations.alter.columns import sync_identity

        return self._alter(options, sync_identity, column)

    def set_domain_metadata(
        self, domain: str, configuration: str | None, **options: Unpack[StatementOptions]
    ) -> CommitResult:
        """Set or remove a metadata domain of an application: a named string in the table (PROTOCOL.md, "Domain
        Metadata").

        The table gets the feature ``domainMetadata`` if it lacks it.
        :meth:`refdelta.api.transaction.WriteTransaction.set_domain_metadata` does the same together with other changes.

        Args:
            domain: its name, which must not begin with ``delta.``.
            configuration: its value; None removes the domain.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Returns:
            The result of the commit; ``version`` is None if the domain has this value already.

        Raises:
            InvalidArgumentError: the domain belongs to engines, or is to be removed and does not exist.
            ConcurrentTransactionException: another writer set the same domain meanwhile.
            ConcurrentModificationError: another writer's commit conflicts.

        Example::

            table.alter.set_domain_metadata("app.owner", "Ada")
            table.alter.set_domain_metadata("app.owner", None)
        """
        from refdelta.operations.alter.domains import set_domain

        return self._alter(options, set_domain, domain, configuration, upgrade=True)

    def drop_feature(
        self, feature: Any, *, truncate_history: bool = False, **options: Unpack[StatementOptions]
    ) -> CommitResult:
        """Drop a feature from the table's protocol, so that clients without it can use the table again.

        The traces of the feature are removed first: properties are unset, and files with deletion vectors are
        rewritten; all files are rewritten after column mapping or type widening. This takes several commits. If readers
        need the feature for earlier versions, checkpoints protect these versions, and ``checkpointProtection`` is
        added, which writers must support; with ``truncate_history``, the earlier versions are removed instead.

        Args:
            feature: a name such as ``deletionVectors``, or one of deltalake's ``TableFeatures``.
            truncate_history: remove the versions that need the feature from the log. The first call raises an error
                with the time to wait, a day by default, and a call after that time drops the feature. This is the only
                way to drop ``checkpointProtection``.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Returns:
            The result of the last commit.

        Raises:
            InvalidArgumentError: the table does not support the feature, needs it for another feature, or uses it in a
                way that only the user can end; the feature cannot be dropped; the history is too young to be removed.
            UnsupportedFeatureError: the table needs a feature that this engine cannot write.
            ConcurrentModificationError: other writers keep using the feature.

        Example::

            table.alter.set_table_properties({"delta.enableDeletionVectors": "true"})
            table.alter.drop_feature("deletionVectors")
        """
        from refdelta.api.drop_feature import drop_feature

        if records_applications(options):
            raise InvalidArgumentError(
                "drop_feature makes several commits, and an application's version is recorded by one: "
                "leave out app_id and app_transactions"
            )
        return drop_feature(
            lambda: self._handle.begin(**without_attempts(options)), feature, truncate_history=truncate_history
        )

    def _backfill_row_ids(self, options: CommitOptions) -> None:
        """Give row ids to the files of a large table. A commit that conflicts is repeated with half as many files."""
        from refdelta.operations.shared.row_ids import backfill

        lost = 0
        while True:
            try:
                with self._handle.begin(**options) as txn:
                    if not txn.run("backfill_row_ids", backfill, max(1, FILES_AT_ONCE >> lost)):
                        return
                    txn.commit()
            except ConcurrentModificationError:
                lost += 1
                if lost == _TRIES:
                    raise
