"""``DeltaTable``: how a table is opened, created and cloned. Its reads are in ``reading``, its statements in
``statements``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from refdelta.api.reading import Reading
from refdelta.api.statements import Statements
from refdelta.engine.log.listing import has_log
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.errors import (
    InvalidArgumentError,
    ProtocolChangedException,
    TableAlreadyExistsError,
)
from refdelta.transaction.location import open_location, with_others

# What a method needs beyond that, it imports: who reads one table shall not wait for the verbs.
if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from refdelta.operations.write.column_declarations import Identity
    from refdelta.transaction.options import CommitProperties
    from refdelta.transaction.time_travel import Version


class DeltaTable(Reading, Statements):
    """A handle on a Delta table, at one version.

    Args:
        table_uri: where the table is: a path, ``file://``, ``memory://`` or a URI that fsspec knows.
        version: a version, or a time as a datetime or an ISO 8601 string (UTC where it names no zone) for the last
            version that was committed by then. A handle that is made so is read-only. None for the newest.
        storage_options: what the store needs, by the names of s3fs, adlfs or deltalake.
        outside: other folders from which files may be read where the log names them, with the same storage options: of
            a shallow clone, the table that was cloned. Nothing is written there. Without it, a log that names files
            outside of the table's folder is refused.

    Raises:
        TableNotFoundError: there is no table.
        VersionNotFoundError: the table has no such version, or no longer.
        InvalidLogError: the log breaks the protocol.
        UnsupportedFeatureError: the table needs a feature that this engine cannot read.
    """

    def __init__(
        self,
        table_uri: str | os.PathLike[str],
        version: Version | None = None,
        storage_options: Mapping[str, str] | None = None,
        *,
        outside: Sequence[str | os.PathLike[str]] = (),
    ):
        self._store = with_others(open_location(table_uri, storage_options), outside, storage_options)
        self._pinned = version is not None
        if version is None:
            began = time.monotonic()
            self._snapshot = load_snapshot(self._store)
            self._seen = self._snapshot, began
        else:
            self.load_as_version(version)

    # --- making and finding tables ---

    @classmethod
    def create(
        cls,
        table_uri: str | os.PathLike[str],
        schema: Any,
        mode: str = "error",
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
            table_uri: where.
            schema: a :class:`~refdelta.schema.Schema`, or anything with ``__arrow_c_schema__``.
            mode: what to do where the table exists: ``error``, ``ignore``, or ``overwrite``, which replaces it by this
                one, with other columns and properties, in the same history.
            partition_by: the partition columns, in order.
            name: its name.
            description: its description.
            configuration: its table properties.
            storage_options: what the store needs.
            cluster_by: the clustering columns, as :func:`refdelta.write_deltalake` takes them.
            generated: of columns, the SQL that their values are made by: of the other columns, and of the column's
                type. Writers leave them out, or give just these values.
            defaults: of columns, the SQL of the values that they have where a writer leaves them out.
            identity: which columns are identity columns, :class:`refdelta.Identity` by name: their type is long, and
                the table numbers its rows in them. Of two writers at once to such a table, one fails.
            commit_properties: what to note in the commit.

        Raises:
            TableAlreadyExistsError: the table exists and the mode is ``error``.
            InvalidArgumentError: a column that does not exist, or what ``generated``, ``defaults`` or ``identity`` say
                of it cannot be.
            ConstraintViolationError: the table to be replaced is append-only.
            ProtocolChangedException: another writer created it meanwhile; not where the mode is ``ignore``, which takes
                that one.
            ConcurrentModificationError: another writer wrote to the table that is replaced.
        """
        from refdelta.operations.write import create as creation
        from refdelta.operations.write import target
        from refdelta.operations.write.column_declarations import declared
        from refdelta.schema import struct_of
        from refdelta.transaction.transaction import Transaction

        if mode not in ("error", "ignore", "overwrite"):
            raise InvalidArgumentError(
                f"mode is one of 'error', 'ignore', 'overwrite', not {mode!r}; a table without rows has none to append"
            )
        store = open_location(table_uri, storage_options)
        snapshot = None
        if has_log(store):
            if mode == "error":
                raise TableAlreadyExistsError(f"there is a table at {store.uri}")
            if mode == "ignore":
                return cls(table_uri, storage_options=storage_options)
            snapshot = load_snapshot(store)
        made = target.new_table(
            declared(struct_of(schema), generated=generated, defaults=defaults, identity=identity),
            partition_by=partition_by,
            cluster_by=cluster_by,
            configuration=configuration,
            name=name,
            description=description,
            replaced=snapshot,
        )
        with Transaction(store, snapshot, commit_properties=commit_properties) as txn:
            if snapshot is None:
                creation.create(txn, made, or_replace=mode == "overwrite")
            else:
                creation.replace(txn, snapshot, made)
            try:
                txn.commit()
            except ProtocolChangedException:
                if mode != "ignore":
                    raise
                return cls(table_uri, storage_options=storage_options)
        table = cls.__new__(cls)
        table._store, table._pinned = store, False  # noqa: SLF001 - of this class
        table.adopt(txn.result_snapshot or load_snapshot(store), alone=txn.alone)
        return table

    @classmethod
    def for_path(cls, path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> DeltaTable:
        """The table at ``path``, by the name that delta-spark gives this call.

        Args:
            path: as the constructor takes it, like the argument that follows. Errors are those of the constructor, too.
            storage_options: see there.
        """
        return cls(path, storage_options=storage_options)

    @staticmethod
    def is_deltatable(table_uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> bool:
        """Whether there is a log at this place. Whether it can be read is not looked at.

        Args:
            table_uri: as the constructor takes it.
            storage_options: what the store needs.

        Raises:
            InvalidArgumentError: this is no path and no URI.
            StoreError: the store cannot be asked, or the place is a file.
        """
        return has_log(open_location(table_uri, storage_options))

    # --- where the handle stands ---

    def shallow_clone(
        self,
        target: str | os.PathLike[str],
        version: Version | None = None,
        *,
        storage_options: Mapping[str, str] | None = None,
        commit_properties: CommitProperties | None = None,
    ) -> DeltaTable:
        """Make another table that begins as this one is, without a copy of its files: its log names them in place.

        The two go on apart; rows that are tracked get ids of the clone's own. The clone breaks where VACUUM removes
        files of this table that it still needs. It is read with ``DeltaTable(target, outside=[this table])``, and by
        delta-spark as it is.

        Args:
            target: where the clone is to be. There is no table there yet: a clone takes no other one's place.
            version: a version of this table, or a time; None for what this handle sees.
            storage_options: what the clone's store needs; None for nothing.
            commit_properties: how to commit, and what to note in the commit.

        Returns:
            A handle on the clone, which reads this table's folder too.

        Raises:
            TableAlreadyExistsError: there is a table already.
            VersionNotFoundError: this table has no such version.
            UnsupportedFeatureError: the clone would need a feature that this engine cannot write.
            ProtocolChangedException: another writer created the table meanwhile.
        """
        from refdelta.operations.write.clone import clone
        from refdelta.transaction.time_travel import snapshot_at
        from refdelta.transaction.transaction import Transaction

        source = self._snapshot if version is None else snapshot_at(self._store, version)
        store = open_location(target, storage_options)
        if has_log(store):
            raise TableAlreadyExistsError(f"there is a table at {store.uri}, and a clone takes no other one's place")
        with Transaction(store, None, commit_properties=commit_properties) as txn:
            clone(txn, source)
            txn.commit()
        from refdelta.engine.log.annexed import AnnexedStore

        there = type(self).__new__(type(self))
        beside = self._store.annexes if isinstance(self._store, AnnexedStore) else ()
        own = self._store.inner if isinstance(self._store, AnnexedStore) else self._store
        there._store, there._pinned = AnnexedStore(store, [own, *beside]), False  # noqa: SLF001 - of this class
        there.adopt(load_snapshot(there._store))  # noqa: SLF001
        return there

    def __repr__(self) -> str:
        return f"DeltaTable({self.table_uri!r}, version={self.version()})"
