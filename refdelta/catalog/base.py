"""``Catalog``: the methods of every catalog, over the few things that each one does in its own way."""

from __future__ import annotations

import abc
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from refdelta import arguments
from refdelta.api.handle import Handle
from refdelta.api.table import DeltaTable, create_in, table_of
from refdelta.catalog.kept import KeptSnapshots
from refdelta.catalog.locations import Locations, place_of, refused
from refdelta.catalog.names import spelled_name
from refdelta.catalog.own_files import delete_own_files, discard_creation
from refdelta.core.log.assigned import ENABLEMENT
from refdelta.engine.log.adoption import plan_adoption, prepare_adoption
from refdelta.engine.log.listing import has_log
from refdelta.engine.log.location import open_location
from refdelta.engine.log.managed_log import TABLE_ID, ManagedStore, Ratified, Ratifier
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import (
    CatalogMismatchError,
    DeltaError,
    InvalidArgumentError,
    StoreError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from refdelta.operations.write.append import Rows
from refdelta.operations.write.source import Source, open_source
from refdelta.transaction import background
from refdelta_storage import StorageError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from refdelta.arguments import CreateMode, Isolation
    from refdelta.catalog.transaction import CatalogTransaction
    from refdelta.engine.work.executor import Executor
    from refdelta.operations.write.column_declarations import Identity
    from refdelta.transaction.options import CommitProperties
    from refdelta.transaction.results import CommitResult
    from refdelta.transaction.time_travel import Version
    from refdelta_storage import Store

CommitMode: TypeAlias = Literal["staged", "inline"]

log = logging.getLogger("refdelta")

LONGEST_NAME = 1024
_SHOWN = 10
_TRIES = 10
_CATALOG = "refdelta.catalog"
_OF_UNITY = "io.unitycatalog."
_FEATURES = {
    "delta.feature.catalogManaged": "supported",
    "delta.feature.vacuumProtocolCheck": "supported",
    "delta.enableInCommitTimestamps": "true",
}
# The properties that delta-spark gives such a table by default.
_DEFAULTS = {
    "delta.enableDeletionVectors": "true",
    "delta.enableRowTracking": "true",
    "delta.checkpointPolicy": "v2",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A table in a catalog.

    Attributes:
        name: its name, with the namespace.
        location: its folder.
        managed: whether the catalog ratifies its commits; otherwise it is a table of the file system.
        table_id: its id in the catalog.
        commits: where commits are before they are published: staged files, or the catalog itself.
    """

    name: str
    location: str
    managed: bool
    table_id: str
    commits: CommitMode = "staged"


@dataclass(frozen=True, slots=True)
class Seen:
    """A table of a catalog at one moment.

    Attributes:
        entry: the table.
        version: its latest version.
        session: the identity of the database and of the table's history in it
            (:attr:`refdelta.engine.log.managed_log.Ratified.session`); None if it is not known.
    """

    entry: Entry
    version: int
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Adoption:
    """The result of :meth:`Catalog.adopt`.

    Attributes:
        name: the table.
        before: the latest version in the catalog before.
        latest: the latest version from now on.
        adopted: the versions of the folder that the catalog did not have.
        dropped: the versions that the catalog had, and that are versions no more or have the folder's content now.
        saved: the keys of the files, in the table's folder, with the contents of dropped commits.
    """

    name: str
    before: int
    latest: int
    adopted: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()
    saved: tuple[str, ...] = ()


class Catalog(abc.ABC):
    """A catalog of Delta tables.

    Args:
        storage_options: options of the stores of its tables.
        locations: the folders below which tables are opened: paths or URIs.
    """

    def __init__(
        self,
        storage_options: Mapping[str, str] | None = None,
        locations: Iterable[str | os.PathLike[str]] = (),
    ) -> None:
        self._options = dict(arguments.mapping("storage_options", storage_options) or {})
        self._locations = Locations(locations)
        self._kept = KeptSnapshots()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- tables ---

    def create_table(
        self,
        name: str,
        schema: Any,
        location: str | os.PathLike[str] | None = None,
        partition_by: Sequence[str] | str | None = None,
        configuration: Mapping[str, str | None] | None = None,
        *,
        mode: CreateMode = "error",
        commits: CommitMode = "staged",
        cluster_by: Sequence[str] | str | None = None,
        description: str | None = None,
        generated: Mapping[str, str] | None = None,
        defaults: Mapping[str, str] | None = None,
        identity: Mapping[str, Identity] | None = None,
        rows: Any = None,
        commit_properties: CommitProperties | None = None,
    ) -> DeltaTable:
        """Create a catalog-managed table, or replace one.

        It has in-commit timestamps, and, unless the configuration says otherwise, deletion vectors, row tracking and V2
        checkpoints, as in delta-spark.

        Args:
            name: its name, with its namespaces: ``sales.orders``. No other table has it in another case of letters.
            schema: a :class:`refdelta.Schema`, or anything with ``__arrow_c_schema__``.
            location: its folder, without a table; None for a folder that the catalog chooses.
            partition_by: the partition columns, in order.
            configuration: table properties.
            mode: the behaviour if the catalog has a table of this name: ``error``, ``ignore`` to keep it, ``overwrite``
                to replace it by a version of the same history, as CREATE OR REPLACE TABLE does.
            commits: ``staged``: a commit is first a file of the table's folder; ``inline``: the catalog holds its
                content, and a commit needs no put at all. A table that is replaced keeps its way.
            cluster_by: the clustering columns, in order.
            description: a description of the table.
            generated: as for :meth:`refdelta.DeltaTable.create`, like those that follow.
            defaults: see there.
            identity: see there.
            rows: the rows of the same version, as :func:`refdelta.write_deltalake` takes data; None for none.
            commit_properties: as for :meth:`refdelta.DeltaTable.create`.

        Raises:
            TableAlreadyExistsError: the catalog has a table of this name, or one is being created, or the folder has
                one.
            InvalidArgumentError: an argument is wrong, or a table that is replaced has another location.
            ConcurrentModificationError: another writer's commit conflicts with the replacement: it changed the table
                meanwhile.
            StoreError: the store or the catalog cannot be reached.

        Example::

            catalog = SqlCatalog(f"sqlite:///{folder}/catalog.db")
            table = catalog.create_table("sales.orders", pa.schema({"id": pa.int64()}), location=uri)
            write_deltalake(table, pa.table({"id": [1, 2]}), mode="append")
        """
        if mode not in ("error", "ignore", "overwrite"):
            raise InvalidArgumentError(f"mode is one of 'error', 'ignore', 'overwrite', not {mode!r}")
        described: dict[str, Any] = {
            "partition_by": partition_by,
            "cluster_by": cluster_by,
            "description": description,
            "generated": generated,
            "defaults": defaults,
            "identity": identity,
            "rows": None if rows is None else rows if isinstance(rows, Rows) else open_source(rows),
            "commit_properties": commit_properties,
        }
        known = None if mode == "error" else self._known(name)
        if known is None:
            try:
                entry, table = self._make(
                    name,
                    schema,
                    location,
                    configuration,
                    commits,
                    self._managed,
                    or_replace=mode == "overwrite",
                    **described,
                )
            except TableAlreadyExistsError:
                # Another program has created it meanwhile; or its creation did not end.
                known = None if mode == "error" else self._known(name)
                if known is None:
                    raise
        if known is not None:
            if mode == "ignore":
                return self._opened(known)
            return self._replaced(known, schema, location, configuration, **described)
        with store_errors(f"create {name}"):
            try:
                self._activate(entry)
            except TableNotFoundError:
                self._discard(entry, table)
                raise
        return table

    def _make(
        self,
        name: str,
        schema: Any,
        location: str | os.PathLike[str] | None,
        configuration: Mapping[str, str | None] | None,
        commits: CommitMode,
        managed: Callable[[Entry, Store], ManagedStore],
        **described: Any,
    ) -> tuple[Entry, DeltaTable]:
        """Write version 0 of a table, which readers do not find before it is activated; arguments and errors as for
        :meth:`create_table`. ``managed`` makes its log.
        """
        checked_name(name)
        if commits not in ("staged", "inline"):
            raise InvalidArgumentError(f"commits is one of 'staged', 'inline', not {commits!r}")
        if location is not None:
            self._locations.add(location)
        given = dict(arguments.mapping("configuration", configuration) or {})
        with store_errors(f"create {name}"):
            entry = self._reserve(name, None if location is None else str(location), commits)
        try:
            table = create_in(
                managed(entry, self._empty_folder(entry)),
                schema,
                name=name,
                configuration={
                    **_with_defaults(given),
                    **self._required(entry),
                    **_FEATURES,
                    _CATALOG: self.name,
                    TABLE_ID: entry.table_id,
                },
                **described,
            )
        except BaseException:
            with store_errors(f"create {name}"):
                self._release(entry)
            raise
        return entry, table

    def _known(self, name: str) -> Entry | None:
        """The table of this name; None if there is none that readers find."""
        with store_errors(f"look up {name}"):
            try:
                return self._entry(checked_name(name))
            except TableNotFoundError:
                return None

    def _replaced(
        self,
        entry: Entry,
        schema: Any,
        location: str | os.PathLike[str] | None,
        configuration: Mapping[str, str | None] | None,
        *,
        rows: Rows | None,
        **described: Any,
    ) -> DeltaTable:
        """Replace a table by one commit of its history; arguments and errors as for :meth:`create_table`."""
        if location is not None and place_of(str(location)) != place_of(entry.location):
            raise InvalidArgumentError(
                f"{entry.name} is at {entry.location}, and is replaced there: leave out the location "
                f"{str(location)!r}, or drop the table first"
            )
        store = self._opened(entry).store
        read = rows.tables.of(store) if isinstance(rows, Source) else None
        # Rows of the table itself are of the version that was read, which is the one to replace.
        snapshot = read or load_snapshot(store)
        given = dict(arguments.mapping("configuration", configuration) or {})
        if entry.managed:
            kept = {
                key: value
                for key, value in (snapshot.metadata.configuration or {}).items()
                if key in (*ENABLEMENT, *_FEATURES, _CATALOG) or key.startswith(_OF_UNITY)
            }
            given = {**_with_defaults(given), **_FEATURES, **kept}
        return create_in(
            store,
            schema,
            rows=rows,
            replaced=snapshot,
            or_replace=True,
            name=entry.name,
            configuration=given,
            **described,
        )

    def _discard(self, entry: Entry, table: DeltaTable) -> None:
        """Delete version 0 of a table that was not activated."""
        background.settle(table.store.uri)
        discard_creation(self._store(entry), table.metadata().id)

    def _empty_folder(self, entry: Entry) -> Store:
        with store_errors(f"create {entry.name}"):
            store = self._store(entry)
            there = has_log(store)
        if there:
            raise TableAlreadyExistsError(
                f"there is a table at {store.uri}; register_table gives a table of the file system a name"
            )
        return store

    def register_table(self, name: str, location: str | os.PathLike[str]) -> DeltaTable:
        """Give a table of the file system a name. It stays one: its commits do not go through the catalog.

        Args:
            name: its name.
            location: its folder.

        Raises:
            TableNotFoundError: there is no table in this folder.
            TableAlreadyExistsError: the catalog has a table of this name.
            UnsupportedFeatureError: the table is managed by another catalog.

        Example::

            write_deltalake(uri, rows)
            catalog = SqlCatalog(f"sqlite:///{folder}/catalog.db")
            catalog.register_table("sales.old_orders", uri)
        """
        checked_name(name)
        table = DeltaTable(location, storage_options=self._options)
        self._locations.add(location)
        with store_errors(f"register {name}"):
            self._register(name, str(location))
        return table

    def table(self, name: str, version: Version | None = None, *, timezone: str | None = None) -> DeltaTable:
        """A table of the catalog, with every verb of :class:`refdelta.DeltaTable`.

        If the catalog does not agree with the folder, since one of them was restored from an older copy, every verb
        raises ``CatalogMismatchError`` until :meth:`adopt` has ended that.

        Args:
            name: its name.
            version: a version or a time, as the constructor of ``DeltaTable`` takes it.
            timezone: the zone of times without one, as that constructor takes it.

        Raises:
            TableNotFoundError: the catalog has no table of this name; the message suggests a similar one.
            VersionNotFoundError: the table has no such version, or no longer.

        Example::

            catalog = SqlCatalog(f"sqlite:///{folder}/catalog.db")
            catalog.create_table("orders", pa.schema({"id": pa.int64()}), location=uri)
            catalog.table("orders").count()
        """
        with store_errors(f"look up {name}"):
            entry = self._entry(checked_name(name))
        return self._opened(entry, version, timezone)

    def _opened(self, entry: Entry, version: Version | None = None, timezone: str | None = None) -> DeltaTable:
        with store_errors(f"look up {entry.name}"):
            store = self._store(entry)
        if not entry.managed:
            return DeltaTable.in_store(store, version, timezone=timezone)
        log = self._managed(entry, store)
        try:
            return DeltaTable.in_store(log, version, timezone=timezone)
        except CatalogMismatchError:
            if version is not None:
                raise
            return table_of(_UnreadHandle(log))

    # --- several tables ---

    def snapshot(self, names: Iterable[str] | None = None) -> dict[str, DeltaTable]:
        """Tables at versions that belong together: those of one moment, which one request to the catalog gives. Of each
        transaction over several tables they have all parts or none.

        Args:
            names: the names of the tables; None for all catalog-managed tables.

        Returns:
            The tables by name, each at its version and read-only.

        Raises:
            TableNotFoundError: the catalog has no table of a name.
            InvalidArgumentError: ``names`` is a string, or a table is one of the file system, whose versions the
                catalog does not know; or the catalog cannot give versions of one moment.

        Example::

            catalog = SqlCatalog(f"sqlite:///{folder}/catalog.db", warehouse=folder)
            catalog.create_table("orders", pa.schema({"id": pa.int64()}))
            catalog.create_table("lines", pa.schema({"id": pa.int64()}))
            tables = catalog.snapshot(["orders", "lines"])
            tables["orders"].count(), tables["lines"].count()
        """
        if isinstance(names, str):
            raise InvalidArgumentError(f"names is a list of names of tables, not the string {names!r}")
        with store_errors("take a snapshot"):
            seen = self._latest_of_all("take a snapshot")
            if names is None:
                wanted = [name for name, one in seen.items() if self._takes_part(one.entry)]
            else:
                wanted = [checked_name(name) for name in names]
            found = {name: self._at(name, seen) for name in wanted}
        for handle in found.values():
            handle.pinned = True
        return {name: table_of(handle) for name, handle in found.items()}

    def transaction(
        self,
        isolation: Isolation | None = None,
        *,
        commit_properties: CommitProperties | None = None,
        executor: Executor | None = None,
    ) -> CatalogTransaction:
        """Begin a transaction over any number of the catalog's tables, which commits in all of them or in none.

        It sees all tables at one moment, as :meth:`snapshot` does. At the end of a ``with`` block it is committed, or
        aborted if the block raises.

        Args:
            isolation: as for :meth:`refdelta.DeltaTable.begin`, for each table. A transaction that takes part in
                several tables is checked at ``Serializable`` in each of them.
            commit_properties: notes in the commits, and limits of their retries; without ``app_transactions``.
            executor: reads and writes the files of statements, as for :meth:`refdelta.DeltaTable.begin`.

        Raises:
            InvalidArgumentError: the catalog cannot ratify versions of several tables at one moment; or an option has a
                wrong value.

        Example::

            catalog = SqlCatalog(f"sqlite:///{folder}/catalog.db", warehouse=folder)
            catalog.create_table("orders", pa.schema({"id": pa.int64()}))
            catalog.create_table("lines", pa.schema({"order": pa.int64()}))
            with catalog.transaction() as tx:
                tx["orders"].append(pa.table({"id": [1]}))
                tx["lines"].append(pa.table({"order": [1, 1]}))
        """
        from refdelta.catalog.transaction import CatalogTransaction

        return CatalogTransaction(
            self, {"isolation": isolation, "commit_properties": commit_properties, "executor": executor}
        )

    def transact(
        self,
        fn: Callable[[CatalogTransaction], object],
        *,
        attempts: int = 10,
        isolation: Isolation | None = None,
        commit_properties: CommitProperties | None = None,
        executor: Executor | None = None,
    ) -> dict[str, CommitResult]:
        """Run a transaction over several tables, and repeat it after each conflict, as
        :meth:`refdelta.DeltaTable.transact` does for one table.

        Args:
            fn: stages statements on the :class:`CatalogTransaction` that it is called with, and does not commit it. It
                may be called several times.
            attempts: the maximum number of attempts, at least 1.
            isolation: as for :meth:`transaction`, like all that follow.
            commit_properties: see there.
            executor: see there.

        Returns:
            The results of the last attempt, by the names of the tables.

        Raises:
            ConcurrentModificationError: the conflict of the last attempt.
            InvalidArgumentError: ``fn`` cannot be called, it ended the transaction itself, or ``attempts`` is less than
                1.

        Example::

            def save(tx):
                tx["checking"].update({"amount": "amount - 10"}, predicate="id = 3")
                tx["savings"].update({"amount": "amount + 10"}, predicate="id = 3")

            def run(catalog):
                return catalog.transact(save)
        """
        from refdelta.transaction.repeat import repeat

        if not callable(fn):
            raise InvalidArgumentError(f"fn must be a function of a transaction, not of type {type(fn).__name__}")

        def attempt() -> dict[str, CommitResult]:
            begun = self.transaction(isolation, commit_properties=commit_properties, executor=executor)
            with begun as tx:
                fn(tx)
                return tx.commit()

        return repeat(attempt, attempts=attempts)

    def _latest_of_all(self, what: str) -> dict[str, Seen]:
        """All tables by name, each with its latest version, of one moment.

        Args:
            what: the attempted action, for messages.

        Raises:
            InvalidArgumentError: the catalog has no such answer.
        """
        raise InvalidArgumentError(
            f"cannot {what}: {self.name} has no request for several tables at one moment; refdelta serve and "
            "SqlCatalog have one"
        )

    def _takes_part(self, entry: Entry) -> bool:
        """Whether a table can be opened at one of these versions."""
        return entry.managed

    def _at(self, name: str, seen: Mapping[str, Seen]) -> Handle:
        """A handle with a table at its version among those of one moment."""
        name = spelled_name(checked_name(name), seen)
        if name not in seen:
            raise not_found(name, self.name, [*seen])
        one = seen[name]
        if not one.entry.managed:
            raise InvalidArgumentError(
                f"{name} is a table of the file system: the catalog {self.name} does not decide its versions, so it "
                "has no part in a snapshot or a transaction of several tables"
            )
        if not self._takes_part(one.entry):
            raise InvalidArgumentError(
                f"the catalog holds the commits of {name} inline, and the interface of {self.name} has staged ones only"
            )
        if (kept := self._kept.at(one.entry, one.version, one.session)) is not None:
            log, snapshot = kept
        else:
            log = self._managed(one.entry, self._store(one.entry))
            snapshot = load_snapshot(log, one.version)
        self._kept.keep(one.entry, log, snapshot)
        handle = Handle(log)
        handle.snapshot = snapshot
        return handle

    def publish(self, name: str) -> int:
        """Write the ratified commits of a table into its log, as writers do in the background.

        Args:
            name: its name.

        Returns:
            The number of commits that this call published.

        Raises:
            TableNotFoundError: the catalog has no table of this name.
            StoreError: the store or the catalog cannot be reached; what was published so far stays.

        Example::

            catalog = SqlCatalog(f"sqlite:///{folder}/catalog.db")
            table = catalog.create_table("orders", pa.schema({"id": pa.int64()}), location=uri)
            write_deltalake(table, pa.table({"id": [1]}), mode="append")
            catalog.publish("orders")
        """
        with store_errors(f"publish {name}"):
            entry = self._entry(checked_name(name))
            if not entry.managed:
                return 0
            return self._managed(entry, self._store(entry)).publish()

    def drop_table(self, name: str, *, purge: bool = False) -> None:
        """Remove a table from the catalog.

        Args:
            name: its name.
            purge: whether its files are deleted, too: those that its log names, leftovers of writers in its folder and
                in those of its partitions (``part-*.parquet``, ``cdc-*.parquet``, ``deletion_vector_*.bin``), its
                change data, and its log. Other tables in folders below stay, and all other files; a warning of the
                logger ``refdelta`` names them. Without ``purge``, the files of a catalog-managed table stay, all its
                commits are published first, and no engine can commit to them any more.

        From the first step on no commit is ratified. If this call does not come to its end, it can be repeated.

        Raises:
            TableNotFoundError: the catalog has no table of this name.
            InvalidArgumentError: another name of the catalog has the same folder, and ``purge`` is True; or the folder
                is not where this client opens tables.
            StoreError: the store or the catalog cannot be reached, or its reply was lost; the message says whether the
                table may be dropped.

        Example::

            catalog = SqlCatalog(f"sqlite:///{folder}/catalog.db")
            catalog.create_table("orders", pa.schema({"id": pa.int64()}), location=uri)
            catalog.drop_table("orders")
        """
        with store_errors(f"drop {name}"):
            entry = self._entry(checked_name(name), staging=True)
            store = self._store(entry)
            neighbours = self._neighbours(entry) if purge else {}
            background.settle(store.uri)
            sealed = self._seal(entry, purge=purge)
            if not purge:
                if entry.managed and sealed:
                    self._publish_sealed(entry, store)
                self._drop(entry)
            elif entry.managed and sealed:
                # Its row stays until its files are gone, so that this can be repeated.
                left = delete_own_files(self._managed(entry, store), store, entry.table_id, **neighbours)
                self._drop(entry)
                _warn_of(left, store)
            else:
                self._drop(entry)
                _warn_of(delete_own_files(store, store, entry.table_id, **neighbours), store)

    def _neighbours(self, entry: Entry) -> dict[str, Any]:
        """The arguments of :func:`delete_own_files` by which other tables of the catalog stay.

        Raises ``InvalidArgumentError`` if a table of the file system has two names; a managed one is recognized by the
        id in its log.
        """
        own = place_of(entry.location)
        inside, around = [], False
        for name, location in self._others(entry):
            other = place_of(location)
            if own is None or other is None or own[0] != other[0]:
                continue
            if own == other and not entry.managed:
                raise InvalidArgumentError(
                    f"{entry.name} is not purged: {name} has the same folder, {entry.location}; drop one of the two "
                    "without purge first"
                )
            if other[1].startswith(f"{own[1]}/"):
                inside.append(other[1].removeprefix(f"{own[1]}/"))
            around = around or own[1].startswith(f"{other[1]}/")
        return {"inside": inside, "leftovers": not around}

    def adopt(self, name: str, *, discard: bool = False) -> Adoption:
        """Take over the versions that a table's folder has, after its catalog or its folder was restored from a copy.

        The folder decides about the versions that it has published: they become versions of the catalog. Later commits
        that the catalog holds stay, if they follow on these. A version of which the catalog has another commit than the
        folder, or which is nowhere any more, is dropped, but only with ``discard``. The contents of dropped commits are
        set aside as files below ``_delta_log/_staged_commits``.

        Stop the writers first: those that have the table open are refused if they have seen a version that is dropped.
        A call that is repeated, or follows on one that did not come to its end, changes nothing more. A table whose
        drop did not come to its end is one again.

        Args:
            name: its name.
            discard: whether versions may be dropped.

        Returns:
            The versions that were adopted and dropped.

        Raises:
            TableNotFoundError: the catalog has no table of this name.
            CatalogMismatchError: versions would be dropped, and ``discard`` is False. The message names them.
            InvalidArgumentError: it is a table of the file system, or a server has the catalog.
            StoreError: the folder has a gap in its log; or the store or the catalog cannot be reached.

        Example::

            catalog = SqlCatalog(f"sqlite:///{folder}/catalog.db")
            catalog.create_table("orders", pa.schema({"id": pa.int64()}), location=uri)
            catalog.adopt("orders").adopted
        """
        with store_errors(f"adopt {name}"):
            entry = self._entry(checked_name(name), staging=True)
            if not entry.managed:
                raise InvalidArgumentError(
                    f"{name} is a table of the file system: its versions are those of its folder"
                )
            store = self._store(entry)
            for _ in range(_TRIES):
                ratifier = self._ratifier(entry)
                seen = ratifier.ratified()
                if seen.latest < 0:
                    raise StorageError("its creation did not come to its end; drop_table removes it")
                log = ManagedStore(store, ratifier)
                plan = plan_adoption(log, seen)
                if plan.dropped and not discard:
                    raise CatalogMismatchError(
                        f"{ratifier.name} would lose the versions {[*plan.dropped[:20]]}: its latest is {seen.latest}, "
                        f"and the folder {store.uri} has published those up to {plan.published}. discard=True, or "
                        "--discard, drops them, and sets their commits aside",
                        "other content",
                    )
                if not plan.adopted and not plan.dropped:
                    prepare_adoption(log, plan)
                    if not self._unseal(entry):
                        raise StorageError("its files are being deleted; drop_table(name, purge=True) ends that")
                    return Adoption(name, seen.latest, seen.latest)
                saved = prepare_adoption(log, plan)
                if self._set_versions(entry, seen, plan.latest, plan.published, drops=bool(plan.dropped)):
                    return Adoption(name, seen.latest, plan.latest, plan.adopted, plan.dropped, saved)
        raise StoreError(f"cannot adopt {name}: writers commit to it all the time; stop them first")

    def _publish_sealed(self, entry: Entry, store: Store) -> None:
        try:
            self._managed(entry, store).publish()
        except (StorageError, DeltaError) as error:
            if self._unseal(entry):
                raise
            raise TableNotFoundError(
                f"the catalog {self.name} has no table {entry.name} any more: another program drops it, or deletes its "
                "files; purge=True ends a purge that did not come to its end"
            ) from error

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of the catalog for messages, without credentials."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the connections of the catalog, as the end of a ``with`` block does. The next use opens new ones.

        Example::

            SqlCatalog(f"sqlite:///{folder}/catalog.db").close()
        """

    @abc.abstractmethod
    def tables(self, namespace: str | None = None) -> list[str]:
        """The names of the tables, in order; of one namespace, or of all."""

    @abc.abstractmethod
    def rename_table(self, name: str, new: str) -> None:
        """Rename a table. Handles that are open go on."""

    # --- for each catalog ---

    @abc.abstractmethod
    def _reserve(self, name: str, location: str | None, commits: CommitMode) -> Entry:
        """Take the name for a table that is being created, so that no other process creates one."""

    # Each of these is one change of the table with the entry's id, under a condition, and never of the table that has
    # the entry's name by now. If its reply is lost, the catalog is asked whether it was carried out; a change that was
    # sent twice has the effect of one. A StorageError says that nothing was changed, or that this is not known.

    @abc.abstractmethod
    def _activate(self, entry: Entry) -> None:
        """Make a reserved table one that readers find: it has its version 0. Raises ``TableNotFoundError`` if the
        reservation is gone.
        """

    @abc.abstractmethod
    def _release(self, entry: Entry) -> None:
        """Give the name of a table back that was not created; nothing if the reservation is gone, or was activated."""

    @abc.abstractmethod
    def _register(self, name: str, location: str) -> None:
        """Record a table of the file system. Raises ``TableAlreadyExistsError``."""

    @abc.abstractmethod
    def _entry(self, name: str, *, staging: bool = False) -> Entry:
        """The table of this name; with ``staging`` also one whose creation or drop did not end. Raises
        ``TableNotFoundError``.
        """

    @abc.abstractmethod
    def _seal(self, entry: Entry, *, purge: bool) -> bool:
        """Ratify no commit of this table any more, and show it to no reader: it is about to be dropped. The answers of
        its ratifier stay the same, so what was ratified before can be published. A table that is sealed stays so.
        Raises ``TableNotFoundError`` if it is gone.

        Args:
            entry: the table.
            purge: whether its files are deleted, too; then it cannot be unsealed.

        Returns:
            False, and nothing is changed, if :meth:`_drop` itself publishes all commits and drops the table.
        """

    @abc.abstractmethod
    def _unseal(self, entry: Entry) -> bool:
        """Make a sealed table what it was before, unless its files are being deleted.

        Returns:
            Whether there is the table, and it is not sealed.
        """

    @abc.abstractmethod
    def _drop(self, entry: Entry) -> None:
        """Remove a sealed table; nothing if it is gone already. Raises ``StorageError`` if it is not sealed."""

    @abc.abstractmethod
    def _set_versions(self, entry: Entry, seen: Ratified, latest: int, published: int, *, drops: bool) -> bool:
        """Set what the catalog knows of a table's versions, if it still is what was seen.

        Args:
            entry: the table, sealed or not; afterwards it is not.
            seen: the answer of its ratifier on which this rests.
            latest: its latest version from now on.
            published: the version up to which all are in the log. The commits after it, up to ``latest``, stay held,
                all others are removed.
            drops: whether versions that handles may have seen are none any more: these handles must not commit.

        Returns:
            False if it is not what was seen any more; then nothing was changed.
        """

    @abc.abstractmethod
    def _ratifier(self, entry: Entry) -> Ratifier: ...

    def _others(self, entry: Entry) -> Sequence[tuple[str, str]]:  # noqa: ARG002 - for catalogs that can say
        """The names and locations of all other tables, also of those that are being created or dropped."""
        return ()

    def _required(self, entry: Entry) -> Mapping[str, str]:  # noqa: ARG002 - for catalogs that require some
        """The properties that the catalog requires of a table that is being created."""
        return {}

    def _store(self, entry: Entry) -> Store:
        """The folder of a table. Raises ``InvalidArgumentError`` if it is not where this client opens tables."""
        if not self._locations.cover(entry.location):
            raise refused(entry.name, entry.location, self.name, self._locations)
        return open_location(entry.location, self._options)

    def _managed(self, entry: Entry, store: Store) -> ManagedStore:
        return ManagedStore(store, self._ratifier(entry))


def _with_defaults(configuration: Mapping[str, str | None]) -> dict[str, str | None]:
    """Properties, and those that such a table has by default."""
    asked = {key.lower() for key in configuration}
    return {**{key: value for key, value in _DEFAULTS.items() if key.lower() not in asked}, **configuration}


def _warn_of(left: Sequence[str], store: Store) -> None:
    if left:
        more = f", and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
        log.warning(
            "%d files in %s are not of the dropped table, and stay: %s%s",
            len(left), store.uri, ", ".join(map(repr, left[:_SHOWN])), more,
        )  # fmt: skip


class _UnreadHandle(Handle):
    """A handle whose table could not be read when it was opened: each use tries again, and raises the error."""

    def __getattr__(self, name: str) -> Any:
        if name != "snapshot":
            raise AttributeError(name)
        return self.open(None).snapshot


def checked_name(name: str) -> str:
    """The name of a table, if it is one: parts of at least one character, separated by dots, none of them control ones.

    Raises:
        InvalidArgumentError: it is not.
    """
    if not is_name(name):
        raise InvalidArgumentError(f"the name of a table is like 'orders' or 'sales.orders', not {str(name)[:200]!r}")
    return name


def is_name(name: object) -> bool:
    """Whether this is the name of a table: at most 1,024 characters that can be printed."""
    return (
        isinstance(name, str)
        and 0 < len(name) <= LONGEST_NAME
        and name.isprintable()
        and all(part.strip() == part != "" for part in name.split("."))
    )


def not_found(name: str, catalog: str, known: Sequence[str]) -> TableNotFoundError:
    """The error for a table that does not exist, with a similar name."""
    from refdelta.errors import unknown_name

    return TableNotFoundError(unknown_name("table", name, known, where=f"the catalog {catalog}"))
