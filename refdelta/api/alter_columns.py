"""Changes of a table's columns, one commit each: a part of ``DeltaTable.alter``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from refdelta.api.transaction import WriteTransaction
    from refdelta.transaction.results import CommitProperties, CommitResult


class ColumnAlterer:
    """Alters the columns of one table.

    Args:
        begin: begins a transaction, as :meth:`refdelta.DeltaTable.begin`.
    """

    def __init__(self, begin: Callable[..., WriteTransaction]):
        self._begin = begin

    def _commit(
        self,
        change: Callable[[WriteTransaction], None],
        commit_properties: CommitProperties | None,
        isolation: str | None = None,
    ) -> CommitResult:
        """A transaction that holds this one change."""
        with self._begin(isolation=isolation, commit_properties=commit_properties) as txn:
            change(txn)
            return txn.commit()

    def add_columns(
        self, fields: Any, *, isolation: str | None = None, commit_properties: CommitProperties | None = None
    ) -> CommitResult:
        """Add columns behind those that exist, or fields within structs. The rows that are there have null in them.

        Args:
            fields: one field or several, or a schema of them: of refdelta, pyarrow or deltalake. A name with dots is a
                path into a struct; ``element``, ``key`` and ``value`` lead into arrays and maps. Backticks keep a dot
                in a name.
            isolation: as for :meth:`refdelta.DeltaTable.begin`, like the argument that follows.
            commit_properties: see there.

        Raises:
            SchemaMismatchError: a column that exists already, or a name that Delta cannot store.
            UnsupportedTypeError: an Arrow type that Delta lacks.
            InvalidArgumentError: a column that is not nullable.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._commit(lambda txn: txn.add_columns(fields), commit_properties, isolation)

    def rename_column(
        self,
        column: str,
        new_name: str,
        *,
        isolation: str | None = None,
        commit_properties: CommitProperties | None = None,
    ) -> CommitResult:
        """Rename a column, or a field of a struct. No file is written; the table's columns must be mapped.

        Args:
            column: its name. Dots lead into structs, and ``element``, ``key`` and ``value`` into arrays and maps;
                backticks keep a dot in a name.
            new_name: its own name from now on, without those of what it is in. Any character will do.
            isolation: as for :meth:`refdelta.DeltaTable.begin`, like the argument that follows.
            commit_properties: see there.

        Raises:
            ColumnNotFoundError: there is no such column.
            SchemaMismatchError: another one beside it has this name.
            InvalidArgumentError: ``delta.columnMapping.mode`` is ``none``, or a constraint or another column is
                computed from it.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._commit(lambda txn: txn.rename_column(column, new_name), commit_properties, isolation)

    def drop_columns(
        self,
        columns: Sequence[str] | str,
        *,
        if_exists: bool = False,
        isolation: str | None = None,
        commit_properties: CommitProperties | None = None,
    ) -> CommitResult:
        """Drop columns, or fields of structs. Their values stay in the files until these are rewritten.

        Args:
            columns: one or several, named as for :meth:`rename_column`.
            if_exists: whether to pass over those that the table does not have.
            isolation: as for :meth:`refdelta.DeltaTable.begin`, like the argument that follows.
            commit_properties: see there.

        Raises:
            ColumnNotFoundError: there is no such column.
            InvalidArgumentError: ``delta.columnMapping.mode`` is ``none``; the column partitions or clusters the
                table, a constraint or another column is computed from it, or it is the last one.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._commit(lambda txn: txn.drop_columns(columns, if_exists=if_exists), commit_properties, isolation)

    def change_type(
        self,
        column: str,
        new_type: Any,
        *,
        isolation: str | None = None,
        commit_properties: CommitProperties | None = None,
    ) -> CommitResult:
        """Give a column a wider type (PROTOCOL.md, "Type Widening"): no file is written, readers convert.

        Integers become wider integers, and all but ``long`` doubles; integers and decimals become decimals with room
        for them; floats become doubles, and dates timestamps without zone.

        Args:
            column: named as for :meth:`rename_column`; a path may end with ``element``, ``key`` or ``value``.
            new_type: a type of Arrow, or the name of one: ``long`` or ``bigint``, ``decimal(12,2)``.
            isolation: as for :meth:`refdelta.DeltaTable.begin`, like the argument that follows.
            commit_properties: see there.

        Raises:
            ColumnNotFoundError: there is no such column.
            SchemaMismatchError: it is no wider type than the column's own.
            InvalidArgumentError: ``delta.enableTypeWidening`` is not set, or a constraint or another column is
                computed from it.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._commit(lambda txn: txn.change_type(column, new_type), commit_properties, isolation)

    def set_nullable(
        self,
        column: str,
        nullable: bool = True,
        *,
        isolation: str | None = None,
        commit_properties: CommitProperties | None = None,
    ) -> CommitResult:
        """Say whether a column, or a field of a struct, may be null.

        Args:
            column: named as for :meth:`rename_column`.
            nullable: whether it may. Where it may not, the rows that are there are held to it first.
            isolation: as for :meth:`refdelta.DeltaTable.begin`, like the argument that follows.
            commit_properties: see there.

        Raises:
            ColumnNotFoundError: there is no such column.
            ConstraintViolationError: rows of the table have null in it.
            ConcurrentModificationError: another writer's commit conflicts; it may have added such a row.
        """
        return self._commit(lambda txn: txn.set_nullable(column, nullable), commit_properties, isolation)

    def drop_column_not_null(
        self, column_name: str, *, commit_properties: CommitProperties | None = None
    ) -> CommitResult:
        """Let a column be null: :meth:`set_nullable` by the name that deltalake gives it.

        Args:
            column_name: named as for :meth:`rename_column`.
            commit_properties: how to commit, and what to note in the commit. Errors are those of :meth:`set_nullable`.
        """
        return self.set_nullable(column_name, commit_properties=commit_properties)

    def move_column(
        self,
        column: str,
        *,
        after: str | None = None,
        isolation: str | None = None,
        commit_properties: CommitProperties | None = None,
    ) -> CommitResult:
        """Move a column, or a field of a struct, among those beside it.

        Args:
            column: named as for :meth:`rename_column`.
            after: the one behind which it is to stand; None to have it first.
            isolation: as for :meth:`refdelta.DeltaTable.begin`, like the argument that follows.
            commit_properties: see there.

        Raises:
            ColumnNotFoundError: there is no such column.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._commit(lambda txn: txn.move_column(column, after=after), commit_properties, isolation)

    def set_default(
        self,
        column: str,
        default: str,
        *,
        isolation: str | None = None,
        commit_properties: CommitProperties | None = None,
    ) -> CommitResult:
        """Give a column a default: the value that new rows have in it where their writer leaves the column out.

        Args:
            column: its name; not a field of a struct.
            default: an SQL expression without columns.
            isolation: as for :meth:`refdelta.DeltaTable.begin`, like the argument that follows.
            commit_properties: see there.

        Raises:
            ColumnNotFoundError: there is no such column.
            InvalidArgumentError: the column cannot hold that, or is generated.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._commit(lambda txn: txn.set_default(column, default), commit_properties, isolation)

    def drop_default(
        self, column: str, *, isolation: str | None = None, commit_properties: CommitProperties | None = None
    ) -> CommitResult:
        """Let a column have no default any more. Where it has none, nothing is committed.

        Args:
            column: its name.
            isolation: as for :meth:`refdelta.DeltaTable.begin`, like the argument that follows.
            commit_properties: see there.

        Raises:
            ColumnNotFoundError: there is no such column.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._commit(lambda txn: txn.set_default(column, None), commit_properties, isolation)

    def set_column_metadata(
        self, column: str, metadata: Mapping[str, Any], *, commit_properties: CommitProperties | None = None
    ) -> CommitResult:
        """Say something of a column in the schema, such as its ``comment``, which Spark shows.

        Args:
            column: its name, or a path to a field of a struct.
            metadata: keys and values; other keys stay, and None takes one away.
            commit_properties: how to commit, and what to note in the commit.

        Raises:
            ColumnNotFoundError: there is no such column.
            InvalidArgumentError: a key that engines give a meaning: ``delta.*`` and others.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._commit(lambda txn: txn.set_column_metadata(column, metadata), commit_properties)

    def sync_identity(
        self, column: str, *, isolation: str | None = None, commit_properties: CommitProperties | None = None
    ) -> CommitResult:
        """Let an identity column number rows behind the furthest number that is there: where writers gave numbers
        themselves, the table's own might be the same. The rows are read. Where nothing changes, nothing is committed.

        Args:
            column: its name.
            isolation: as for :meth:`refdelta.DeltaTable.begin`, like the argument that follows.
            commit_properties: see there.

        Raises:
            ColumnNotFoundError: there is no such column.
            InvalidArgumentError: it is no identity column.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._commit(lambda txn: txn.sync_identity(column), commit_properties, isolation)
