"""``DeltaTable``: open, create and clone a table. Its reads are in ``reading``, its statements in ``statements``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from refdelta import arguments
from refdelta.api.awaiting import awaitable
from refdelta.api.handle import Handle
from refdelta.api.statements import Statements
from refdelta.errors import (
    InvalidArgumentError,
    ProtocolChangedException,
    TableAlreadyExistsError,
)

# Methods import the rest, the engine with Arrow first of all, when they are called: a program starts faster.
if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from refdelta.arguments import CreateMode
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.write.append import Rows
    from refdelta.operations.write.column_declarations import Identity
    from refdelta.transaction.options import CommitProperties
    from refdelta.transaction.time_travel import Version
    from refdelta_storage import Store


class DeltaTable(Statements):
    """A handle on a Delta table, at one version.

    Args:
        table_uri: the table's folder: a path, ``file://``, ``memory://`` or a URI that fsspec knows.
        version: a version, or a time as a datetime or an ISO 8601 string, which stands for the last version committed
            at or before it. A time without a zone is of ``timezone``, or else UTC, also if ``datetime.now()`` gave it.
            The handle is then read-only. None for the newest version.
        storage_options: options of the store, by the names of s3fs, adlfs or deltalake.
        outside: further folders from which files are read if the log names them, with the same storage options; for a
            shallow clone, the table that was cloned. Nothing is written there. Without it, a log that names files
            outside of the table's folder is refused.
        attempts: how often each statement of this handle may run after conflicts, unless it says otherwise; see
            :class:`~refdelta.transaction.options.StatementOptions`. None for once.
        timezone: the zone, such as ``Europe/Berlin``, of times without one: of ``version``, of other times of travel,
            of rows that are written, where :func:`~refdelta.write_deltalake` says how, and of partition values of the
            log that have no offset, as Spark writes them in its session's zone. SQL is not affected: its session has
            the zone UTC. None: times of travel and partition values are UTC, and rows are written as that function
            says.

    Raises:
        TableNotFoundError: there is no table.
        VersionNotFoundError: the table has no such version, or no longer; a time is after the newest version.
        InvalidLogError: the log breaks the protocol.
        UnsupportedFeatureError: the table needs a feature that this engine cannot read.

    Example::

        write_deltalake(uri, rows)
        table = DeltaTable(uri)
        table.to_pyarrow_table(columns=["id", "name"], filters="amount > 10")
        DeltaTable(uri, version=0).version()
    """

    def __init__(
        self,
        table_uri: str | os.PathLike[str],
        version: Version | None = None,
        storage_options: Mapping[str, str] | None = None,
        *,
        outside: Sequence[str | os.PathLike[str]] = (),
        attempts: int | None = None,
        timezone: str | None = None,
    ):
        from refdelta.engine.log.location import open_location, with_others

        attempts, timezone = arguments.whole("attempts", attempts), arguments.timezone("timezone", timezone)
        store = with_others(open_location(table_uri, storage_options), outside, storage_options)
        self._handle = Handle(store, attempts=attempts, timezone=timezone).open(version)

    @classmethod
    async def open_async(
        cls,
        table_uri: str | os.PathLike[str],
        version: Version | None = None,
        storage_options: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Self:
        """Open a table: the constructor in a thread, so that the event loop goes on.

        Args:
            table_uri: as for the constructor, like all that follow; errors are the same.
            version: see there.
            storage_options: see there.
            options: ``outside``, ``attempts`` and ``timezone``.

        Example::

            async def count():
                table = await DeltaTable.open_async(uri)
                return (await table.to_pyarrow_table_async()).num_rows
        """
        return await awaitable(cls)(table_uri, version, storage_options, **options)

    # --- making and finding tables ---

    @classmethod
    def create(
        cls,
        table_uri: str | os.PathLike[str],
        schema: Any,
        mode: CreateMode = "error",
        partition_by: Sequence[str] | str | None = None,
        name: str | None = None,
        description: str | None = None,
        configuration: Mapping[str, str | None] | None = None,
        storage_options: Mapping[str, str] | None = None,
        *,
        cluster_by: Sequence[str] | str | None = None,
        generated: Mapping[str, str] | None = None,
        defaults: Mapping[str, str] | None = None,
        identity: Mapping[str, Identity] | None = None,
        commit_properties: CommitProperties | None = None,
    ) -> DeltaTable:
        """Create a table without rows.

        Args:
            table_uri: the table's folder, as the constructor takes it.
            schema: a :class:`~refdelta.schema.Schema`, or anything with ``__arrow_c_schema__``.
            mode: the behaviour if the table exists: ``error``, ``ignore``, or ``overwrite``, which replaces its
                columns, properties and rows, in the same history.
            partition_by: the partition columns, in order.
            name: the table's name.
            description: the table's description.
            configuration: table properties.
            storage_options: options of the store.
            cluster_by: the clustering columns, as :func:`refdelta.write_deltalake` takes them.
            generated: generated columns: by column, an SQL expression over the other columns, of the column's type.
                Writers leave these columns out, or give exactly these values.
            defaults: by column, the SQL expression of its value where a writer leaves it out.
            identity: identity columns: by column, of type long, a :class:`refdelta.Identity`. The table numbers its
                rows in them. Of two concurrent writers to such a table, one fails.
            commit_properties: notes in the commit, and limits of its retries.

        Raises:
            TableAlreadyExistsError: the table exists and the mode is ``error``.
            InvalidArgumentError: a column does not exist, or ``generated``, ``defaults`` or ``identity`` declare
                something that its column cannot be.
            ConstraintViolationError: the table to be replaced is append-only.
            ProtocolChangedException: another writer created the table meanwhile. With mode ``ignore``, that table is
                returned instead.
            ConcurrentModificationError: another writer wrote to the table that is replaced.

        Example::

            table = DeltaTable.create(
                uri,
                pa.schema({"id": pa.int64(), "town": pa.string()}),
                identity={"id": Identity(start=1)},
            )
            write_deltalake(table, pa.table({"town": ["Oslo"]}), mode="append")
        """
        return create_at(
            table_uri,
            schema,
            mode,
            storage_options,
            partition_by=partition_by,
            name=name,
            description=description,
            configuration=configuration,
            cluster_by=cluster_by,
            generated=generated,
            defaults=defaults,
            identity=identity,
            commit_properties=commit_properties,
        )

    @classmethod
    def in_store(cls, store: Store, version: Version | None = None, *, timezone: str | None = None) -> Self:
        """The table in a store that is open already.

        Args:
            store: the store of the table's folder.
            version: a version or a time, as the constructor takes it. Errors are those of the constructor.
            timezone: the zone of times without one, as the constructor takes it.

        Example::

            from refdelta_storage import open_store

            write_deltalake(uri, rows)
            DeltaTable.in_store(open_store(uri)).count()
        """
        return cls._of(Handle(store, timezone=arguments.timezone("timezone", timezone)).open(version))

    @classmethod
    def _of(cls, handle: Handle) -> Self:
        table = cls.__new__(cls)
        table._handle = handle  # noqa: SLF001 - of this class
        return table

    @classmethod
    def for_path(cls, path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> DeltaTable:
        """The table at ``path``: the constructor, by delta-spark's name for it.

        Args:
            path: the table's folder, as the constructor takes it. Errors are those of the constructor.
            storage_options: options of the store.

        Example::

            write_deltalake(uri, rows)
            table = DeltaTable.for_path(uri)
        """
        return cls(path, storage_options=storage_options)

    @staticmethod
    def is_deltatable(table_uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> bool:
        """True if there is a Delta log in this folder. The log is not read, so the table may still be damaged.

        Args:
            table_uri: the folder, as the constructor takes it.
            storage_options: options of the store.

        Raises:
            InvalidArgumentError: it is neither a path nor a URI.
            StoreError: the store cannot be reached, or the path is a file.

        Example::

            if not DeltaTable.is_deltatable(uri):
                write_deltalake(uri, rows)
        """
        from refdelta.engine.log.listing import has_log
        from refdelta.engine.log.location import open_location

        return has_log(open_location(table_uri, storage_options))

    # --- copies ---

    def shallow_clone(
        self,
        target: str | os.PathLike[str],
        version: Version | None = None,
        *,
        storage_options: Mapping[str, str] | None = None,
        commit_properties: CommitProperties | None = None,
    ) -> DeltaTable:
        """Create a table with the rows of this one whose log refers to this table's files (SHALLOW CLONE).

        No data file is copied. Later commits to one table do not change the other; tracked rows get new ids in the
        clone. The clone becomes unreadable if VACUUM removes files of this table that it still needs. Open it with
        ``DeltaTable(target, outside=[this table])``; delta-spark needs no such option.

        Args:
            target: the clone's folder, which has no table yet.
            version: a version of this table, or a time; None for the version of this handle.
            storage_options: options of the clone's store.
            commit_properties: notes in the commit, and limits of its retries.

        Returns:
            A handle on the clone, which reads this table's folder too.

        Raises:
            TableAlreadyExistsError: there is a table at ``target``.
            VersionNotFoundError: this table has no such version.
            UnsupportedFeatureError: the clone would need a feature that this engine cannot write.
            ProtocolChangedException: another writer created the table meanwhile.

        Example::

            clone = table.shallow_clone(uri, version=0)
            clone.delete("id = 1")
            DeltaTable(uri, outside=[table.table_uri]).count()
        """
        from refdelta.engine.log.listing import has_log
        from refdelta.engine.log.location import open_location
        from refdelta.engine.log.multi_root import MultiRootStore
        from refdelta.operations.write.clone import clone
        from refdelta.transaction.time_travel import snapshot_at
        from refdelta.transaction.transaction import Transaction

        handle = self._handle
        source = handle.snapshot if version is None else snapshot_at(handle.store, version, handle.timezone)
        store = open_location(target, storage_options)
        if has_log(store):
            raise TableAlreadyExistsError(f"there is a table at {store.uri}; a clone needs a folder without a table")
        with Transaction(store, None, commit_properties=commit_properties) as txn:
            clone(txn, source)
            txn.commit()

        beside = handle.store.roots if isinstance(handle.store, MultiRootStore) else ()
        own = handle.store.inner if isinstance(handle.store, MultiRootStore) else handle.store
        return type(self).in_store(MultiRootStore(store, [own, *beside]))

    def __repr__(self) -> str:
        return f"DeltaTable({self.table_uri!r}, version={self.version()})"

    def _repr_html_(self) -> str:
        from refdelta.arrow.schema import arrow_type
        from refdelta.table.types import StructField, unknown_types
        from refdelta.wording import table

        def unknown(field: StructField) -> bool:
            return next(unknown_types(field.type, ""), None) is not None

        snapshot = self._handle.snapshot
        partitioned = {name.lower() for name in snapshot.partition_columns}
        columns = [
            (
                field.name,
                field.type if unknown(field) else arrow_type(field.type),
                "" if field.nullable else "not null",
                "partition" * (field.name.lower() in partitioned),
            )
            for field in self.schema()
        ]
        files = f"{snapshot.num_files:,} files of {snapshot.size_bytes:,} bytes"
        return table(columns, caption=f"{self.table_uri}, version {self.version()}: {files}")


def create_at(
    table_uri: str | os.PathLike[str],
    schema: Any,
    mode: CreateMode,
    storage_options: Mapping[str, str] | None,
    **described: Any,
) -> DeltaTable:
    """Create a table in a folder, or replace one. Arguments and errors as for :meth:`DeltaTable.create`, and ``rows``
    as for :func:`create_in`.
    """
    from refdelta.engine.log.listing import has_log
    from refdelta.engine.log.location import open_location
    from refdelta.engine.log.snapshot import load_snapshot
    from refdelta.operations.write.source import Source

    if mode not in ("error", "ignore", "overwrite"):
        raise InvalidArgumentError(
            f"mode is one of 'error', 'ignore', 'overwrite', not {mode!r}; "
            "to append rows, call write_deltalake with mode='append'"
        )
    store = open_location(table_uri, storage_options)
    snapshot = None
    rows = described.get("rows")
    if has_log(store):
        if mode == "error":
            raise TableAlreadyExistsError(
                f"there is a table at {store.uri}; mode='ignore' keeps it, mode='overwrite' replaces it"
            )
        if mode == "ignore":
            return DeltaTable(table_uri, storage_options=storage_options)
        # Rows of the table itself are of the version that was read, which is the one to replace.
        snapshot = (rows.tables.of(store) if isinstance(rows, Source) else None) or load_snapshot(store)
    try:
        return create_in(store, schema, replaced=snapshot, or_replace=mode == "overwrite", **described)
    except ProtocolChangedException:
        if mode != "ignore":
            raise
        return DeltaTable(table_uri, storage_options=storage_options)


def create_in(
    store: Store,
    schema: Any,
    *,
    rows: Rows | None = None,
    replaced: Snapshot | None = None,
    or_replace: bool = False,
    generated: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
    identity: Mapping[str, Identity] | None = None,
    commit_properties: CommitProperties | None = None,
    **described: Any,
) -> DeltaTable:
    """Create a table in a store, or replace one; see :meth:`DeltaTable.create` for the arguments.

    Args:
        store: the store of its folder.
        schema: its schema.
        rows: its rows; None for none.
        replaced: the table that it replaces; None for a new one.
        or_replace: whether the statement is CREATE OR REPLACE, for the history.
        generated: as for :meth:`DeltaTable.create`, like all that follow.
        defaults: see there.
        identity: see there.
        commit_properties: see there.
        described: ``partition_by``, ``cluster_by``, ``configuration``, ``name`` and ``description``.
    """
    from refdelta.engine.log.snapshot import load_snapshot
    from refdelta.operations.write import create as creation
    from refdelta.operations.write import target
    from refdelta.operations.write.column_declarations import declared
    from refdelta.schema import struct_of
    from refdelta.transaction.transaction import Transaction

    columns = declared(struct_of(schema), generated=generated, defaults=defaults, identity=identity)
    before = None if replaced is None else replaced.with_valid_properties()
    made = target.new_table(columns, replaced=before, **described)
    with Transaction(store, replaced, commit_properties=commit_properties) as txn:
        if replaced is None:
            creation.create(txn, made, rows=rows, or_replace=or_replace)
        else:
            creation.replace(txn, txn.existing, made, rows=rows)
        txn.commit()
    handle = Handle(store)
    handle.adopt(txn.result_snapshot or load_snapshot(store), alone=txn.alone)
    return table_of(handle)


def table_of(handle: Handle) -> DeltaTable:
    """The table that has this handle."""
    return DeltaTable._of(handle)  # noqa: SLF001 - of this module
