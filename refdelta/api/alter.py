"""ALTER TABLE: changes of a table's properties, columns, constraints and features."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack

from refdelta.core.table.row_tracking import enables
from refdelta.errors import ConcurrentModificationError, InvalidArgumentError
from refdelta.operations.alter.columns import (
    add_columns,
    change_type,
    drop_columns,
    move_column,
    rename_column,
    set_column_metadata,
    set_default,
    set_nullable,
    sync_identity,
)
from refdelta.operations.alter.constraints import add_constraint, drop_constraint
from refdelta.operations.alter.domains import set_domain
from refdelta.operations.alter.features import add_feature
from refdelta.operations.alter.properties import set_properties, set_table_description, set_table_name, unset_properties
from refdelta.operations.dml.row_ids import backfill
from refdelta.operations.layout.clustering import cluster_by
from refdelta.transaction.options import records_applications, without_applications
from refdelta.transaction.results import CommitResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.options import CommitOptions
    from refdelta.transaction.transaction import Transaction

P = ParamSpec("P")
R = TypeVar("R")

FILES_AT_ONCE = 20_000
"""How many files get row ids in one commit: as delta-spark, so that no commit is larger than some megabytes."""

_TRIES = 10


class Alterations(Generic[R]):
    """The statements of ALTER TABLE. ``DeltaTable.alter`` commits each at once and returns the result of the commit; a
    :class:`~refdelta.api.transaction.WriteTransaction` stages one, takes no options for it, and returns None.

    Every change of properties or of the schema fails the transactions that began before it, as the documentation of
    write conflicts says. A change that leaves the table as it is commits nothing.
    """

    @abstractmethod
    def _alter(
        self,
        options: CommitOptions,
        operation: Callable[Concatenate[Transaction, Snapshot, P], None],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Run an operation, as the one statement of a transaction."""

    # --- properties, clustering, constraints, features ---

    def set_table_properties(self, properties: Mapping[str, Any], **options: Unpack[CommitOptions]) -> R:
        """Set table properties; the others stay.

        Args:
            properties: names and values. ``delta.*`` names are those that exist, others are the user's own.
                ``delta.feature.<name>`` with the value ``supported`` adds a table feature. ``delta.enableRowTracking``
                gives ids to the rows that are there; of a table of many files that takes several commits.
                ``delta.columnMapping.mode`` as ``none`` ends a column mapping, and all files are written anew.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Raises:
            InvalidArgumentError: a property that does not exist, or a value that it cannot have.
            UnsupportedFeatureError: a property asks for a feature that this engine cannot honour; it is named.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._alter(options, set_properties, properties)

    def unset_table_properties(
        self, names: Sequence[str], *, if_exists: bool = False, **options: Unpack[CommitOptions]
    ) -> R:
        """Remove table properties, so that each has its default again.

        Args:
            names: of the properties.
            if_exists: whether to pass over those that the table does not have.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Raises:
            InvalidArgumentError: the table has no such property.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._alter(options, unset_properties, names, if_exists=if_exists)

    def cluster_by(self, columns: Sequence[str] | str | None, **options: Unpack[CommitOptions]) -> R:
        """Change by which columns the table is clustered (CLUSTER BY). By them ``optimize.cluster()`` clusters what
        comes from now on, and ``optimize.cluster(full=True)`` what is there.

        Properties stay as they are. A table that is created clustered has deletion vectors and tracks rows, so that
        ``optimize.cluster()`` never conflicts with UPDATE, DELETE and MERGE; an existing one gets neither here, and no
        row ids for the files that are there, so it can conflict until ``delta.enableDeletionVectors`` and
        ``delta.enableRowTracking`` are set, see :meth:`set_table_properties`.

        Args:
            columns: up to four, in any case; dots lead into structs, backticks keep a dot in a name. None or an empty
                list: no columns any more (CLUSTER BY NONE).
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Raises:
            ColumnNotFoundError: there is no such column.
            InvalidArgumentError: the table is partitioned; too many columns, one named twice, or one of a type without
                minimum and maximum in the statistics.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._alter(options, cluster_by, columns)

    def add_constraint(self, constraints: Mapping[str, str], **options: Unpack[CommitOptions]) -> R:
        """Add a CHECK constraint: a condition that every row satisfies. The rows that are there are held to it first.

        Args:
            constraints: its name, which is stored in lower case, and the condition, SQL in Spark's dialect; one.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Raises:
            ConstraintViolationError: rows of the table for which it is false or null.
            PredicateError: the condition cannot be parsed or bound.
            InvalidArgumentError: there is a constraint of this name.
            ConcurrentModificationError: another writer's commit conflicts; it may have added a row that breaks it.
        """
        return self._alter(options, add_constraint, constraints)

    def drop_constraint(self, name: str, raise_if_not_exists: bool = True, **options: Unpack[CommitOptions]) -> R:
        """Drop a CHECK constraint.

        Args:
            name: in any case.
            raise_if_not_exists: whether it is an error that there is none; else nothing is committed then.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Raises:
            InvalidArgumentError: the table has no such constraint.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._alter(options, drop_constraint, name, raise_if_not_exists=raise_if_not_exists)

    def set_table_name(self, name: str | None, **options: Unpack[CommitOptions]) -> R:
        """Name the table.

        Args:
            name: its name; None takes it away.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Raises:
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._alter(options, set_table_name, name)

    def set_table_description(self, description: str | None, **options: Unpack[CommitOptions]) -> R:
        """Describe the table.

        Args:
            description: what it is; None takes that away.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Raises:
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._alter(options, set_table_description, description)

    def add_feature(
        self, feature: Any, allow_protocol_versions_increase: bool = False, **options: Unpack[CommitOptions]
    ) -> R:
        """Let the table support a feature, whether or not it uses it (PROTOCOL.md, "Table Features").

        Args:
            feature: a name such as ``deletionVectors``, one of deltalake's ``TableFeatures``, or a list of these. Those
                that it requires come with it.
            allow_protocol_versions_increase: whether the protocol may get higher versions, which shuts out older
                readers and writers.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Returns:
            What was committed; its version is None where the table supports them already.

        Raises:
            InvalidArgumentError: a feature that does not exist, or higher versions that were not allowed.
            UnsupportedFeatureError: a feature that this engine cannot honour.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._alter(options, add_feature, feature, raise_versions=allow_protocol_versions_increase)

    # --- columns ---

    def add_columns(self, fields: Any, **options: Unpack[CommitOptions]) -> R:
        """Add columns behind those that exist, or fields within structs. The rows that are there have null in them.

        Args:
            fields: one field or several, or a schema of them: of refdelta, pyarrow or deltalake. A name with dots is a
                path into a struct; ``element``, ``key`` and ``value`` lead into arrays and maps. Backticks keep a dot
                in a name.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Raises:
            SchemaMismatchError: a column that exists already, or a name that Delta cannot store.
            UnsupportedTypeError: an Arrow type that Delta lacks.
            InvalidArgumentError: a column that is not nullable.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._alter(options, add_columns, fields)

    def rename_column(self, column: str, new_name: str, **options: Unpack[CommitOptions]) -> R:
        """Rename a column, or a field of a struct. No file is written; the table's columns must be mapped.

        Args:
            column: its name. Dots lead into structs, and ``element``, ``key`` and ``value`` into arrays and maps;
                backticks keep a dot in a name.
            new_name: its own name from now on, without those of what it is in. Any character will do.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Raises:
            ColumnNotFoundError: there is no such column.
            SchemaMismatchError: another one beside it has this name.
            InvalidArgumentError: ``delta.columnMapping.mode`` is ``none``, or a constraint or another column is
                computed from it.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._alter(options, rename_column, column, new_name)

    def drop_columns(
        self, columns: Sequence[str] | str, *, if_exists: bool = False, **options: Unpack[CommitOptions]
    ) -> R:
        """Drop columns, or fields of structs. Their values stay in the files until these are rewritten.

        Args:
            columns: one or several, named as for :meth:`rename_column`.
            if_exists: whether to pass over those that the table does not have.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Raises:
            ColumnNotFoundError: there is no such column.
            InvalidArgumentError: ``delta.columnMapping.mode`` is ``none``; the column partitions or clusters the
                table, a constraint or another column is computed from it, or it is the last one.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._alter(options, drop_columns, columns, if_exists=if_exists)

    def change_type(self, column: str, new_type: Any, **options: Unpack[CommitOptions]) -> R:
        """Give a column a wider type (PROTOCOL.md, "Type Widening"): no file is written, readers convert.

        Integers become wider integers, and all but ``long`` doubles; integers and decimals become decimals with room
        for them; floats become doubles, and dates timestamps without zone.

        Args:
            column: named as for :meth:`rename_column`; a path may end with ``element``, ``key`` or ``value``.
            new_type: a type of Arrow, or the name of one: ``long`` or ``bigint``, ``decimal(12,2)``.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Raises:
            ColumnNotFoundError: there is no such column.
            SchemaMismatchError: it is no wider type than the column's own.
            InvalidArgumentError: ``delta.enableTypeWidening`` is not set, or a constraint or another column is
                computed from it.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._alter(options, change_type, column, new_type)

    def set_nullable(self, column: str, nullable: bool = True, **options: Unpack[CommitOptions]) -> R:
        """Say whether a column, or a field of a struct, may be null.

        Args:
            column: named as for :meth:`rename_column`.
            nullable: whether it may. Where it may not, the rows that are there are held to it first.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Raises:
            ColumnNotFoundError: there is no such column.
            ConstraintViolationError: rows of the table have null in it.
            ConcurrentModificationError: another writer's commit conflicts; it may have added such a row.
        """
        return self._alter(options, set_nullable, column, nullable)

    def drop_column_not_null(self, column_name: str, **options: Unpack[CommitOptions]) -> R:
        """Let a column be null: :meth:`set_nullable` by the name that deltalake gives it.

        Args:
            column_name: named as for :meth:`rename_column`.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.
        """
        return self.set_nullable(column_name, **options)

    def move_column(self, column: str, *, after: str | None = None, **options: Unpack[CommitOptions]) -> R:
        """Move a column, or a field of a struct, among those beside it.

        Args:
            column: named as for :meth:`rename_column`.
            after: the one behind which it is to stand; None to have it first.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Raises:
            ColumnNotFoundError: there is no such column.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._alter(options, move_column, column, after=after)

    def set_default(self, column: str, default: str, **options: Unpack[CommitOptions]) -> R:
        """Give a column a default: the value that new rows have in it where their writer leaves the column out.

        Args:
            column: its name; not a field of a struct.
            default: an SQL expression without columns.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Raises:
            ColumnNotFoundError: there is no such column.
            InvalidArgumentError: the column cannot hold that, or is generated.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._alter(options, set_default, column, default)

    def drop_default(self, column: str, **options: Unpack[CommitOptions]) -> R:
        """Let a column have no default any more. Where it has none, nothing is committed.

        Args:
            column: its name.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Raises:
            ColumnNotFoundError: there is no such column.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._alter(options, set_default, column, None)

    def set_column_metadata(self, column: str, metadata: Mapping[str, Any], **options: Unpack[CommitOptions]) -> R:
        """Say something of a column in the schema, such as its ``comment``, which Spark shows.

        Args:
            column: its name, or a path to a field of a struct.
            metadata: keys and values; other keys stay, and None takes one away.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Raises:
            ColumnNotFoundError: there is no such column.
            InvalidArgumentError: a key that engines give a meaning: ``delta.*`` and others.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._alter(options, set_column_metadata, column, metadata)

    def sync_identity(self, column: str, **options: Unpack[CommitOptions]) -> R:
        """Let an identity column number rows behind the furthest number that is there: where writers gave numbers
        themselves, the table's own might be the same. The rows are read. Where nothing changes, nothing is committed.

        Args:
            column: its name.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Raises:
            ColumnNotFoundError: there is no such column.
            InvalidArgumentError: it is no identity column.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._alter(options, sync_identity, column)


class TableAlterer(Alterations[CommitResult]):
    """Alters one table, a commit for each change; made by :attr:`refdelta.DeltaTable.alter`.

    Args:
        begin: begins a transaction, as :meth:`refdelta.DeltaTable.begin`.
    """

    def __init__(self, begin: Callable[..., Transaction]):
        self._begin = begin

    def _alter(
        self,
        options: CommitOptions,
        operation: Callable[Concatenate[Transaction, Snapshot, P], None],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> CommitResult:
        with self._begin(**options) as txn:
            txn.run(operation.__name__, operation, *args, **kwargs)
            return txn.commit()

    def set_table_properties(self, properties: Mapping[str, Any], **options: Unpack[CommitOptions]) -> CommitResult:
        """As :meth:`Alterations.set_table_properties`; row ids for the files that are there come first, in commits of
        their own.
        """
        if enables(properties):
            self._backfill_row_ids(without_applications(options))
        return super().set_table_properties(properties, **options)

    def _backfill_row_ids(self, options: CommitOptions) -> None:
        """Give row ids to the files of a large table. Where others change files of such a commit, it begins anew."""
        lost = 0
        while True:
            try:
                with self._begin(**options) as txn:
                    if not txn.run("backfill_row_ids", backfill, max(1, FILES_AT_ONCE >> lost)):
                        return
                    txn.commit()
            except ConcurrentModificationError:
                lost += 1
                if lost == _TRIES:
                    raise

    def set_domain_metadata(
        self, domain: str, configuration: str | None, **options: Unpack[CommitOptions]
    ) -> CommitResult:
        """Set or remove a metadata domain of the user's own: a text that the table carries along (PROTOCOL.md, "Domain
        Metadata"). The table gets the feature ``domainMetadata`` where it lacks it.
        :meth:`refdelta.api.transaction.WriteTransaction.set_domain_metadata` does it together with other changes.

        Args:
            domain: its name, which does not begin with ``delta.``.
            configuration: what it says; None removes it.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Returns:
            What was committed; its version is None where the domain says so already.

        Raises:
            InvalidArgumentError: a domain of the engines, or one that is not there to be removed.
            ConcurrentTransactionException: another writer has set the same domain meanwhile.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._alter(options, set_domain, domain, configuration, upgrade=True)

    def drop_feature(
        self, feature: Any, *, truncate_history: bool = False, **options: Unpack[CommitOptions]
    ) -> CommitResult:
        """Take a feature out of the table's protocol, so that those who do not know it can use the table again.

        What the feature has left in the table goes first: properties are unset, and files with deletion vectors are
        rewritten, or all files where columns were mapped or of other types. Several commits are made. Where readers
        need the feature for the versions before, checkpoints fence these off, and ``checkpointProtection`` is added,
        which writers must know; or the versions are removed.

        Args:
            feature: a name such as ``deletionVectors``, or one of deltalake's ``TableFeatures``.
            truncate_history: whether the versions that need the feature are removed from the log instead. The first
                call says how long to wait, a day by default, and the second one drops the feature. It is the only way
                to drop ``checkpointProtection``.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Returns:
            What the last commit was.

        Raises:
            InvalidArgumentError: the table does not support the feature, needs it for another one, or uses it in a way
                that only its user can end; nobody drops it; the history is too young to be removed.
            UnsupportedFeatureError: the table needs a feature that this engine cannot write.
            ConcurrentModificationError: other writers go on using it.
        """
        from refdelta.api.drop_feature import drop_feature

        if records_applications(options):
            raise InvalidArgumentError(
                "the version of an application is recorded by one commit, and this takes several"
            )
        return drop_feature(lambda: self._begin(**options), feature, truncate_history=truncate_history)
