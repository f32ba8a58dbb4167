"""``CatalogTransaction``: a transaction over several tables of a catalog."""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

from refdelta.api.handle import Handle
from refdelta.api.transaction import WriteTransaction
from refdelta.catalog.locations import place_of, uri_of
from refdelta.catalog.names import spelled_name
from refdelta.engine.log.managed_log import TABLE_ID, ManagedStore, Proposal, managed_by
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import (
    CommitFailedError,
    InternalError,
    InvalidArgumentError,
    NotCopyableError,
    TableAlreadyExistsError,
)
from refdelta.operations.write.source import rest_on
from refdelta.transaction.driver import CERTAIN_FAILURES
from refdelta.transaction.options import checked, records_applications
from refdelta.transaction.results import CommitResult
from refdelta.transaction.together import commit_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from refdelta.api.table import DeltaTable
    from refdelta.api.table_transaction import TableTransaction
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.write.column_declarations import Identity
    from refdelta.transaction.options import CommitOptions
    from refdelta_storage import Store


class PartOfTransaction(WriteTransaction):
    """The part of a :class:`CatalogTransaction` that is for one table: its statements. The whole is committed, or
    aborted, by the transaction of the catalog.

    Example::

        catalog = SqlCatalog(f"sqlite:///{folder}/catalog.db", warehouse=folder)
        catalog.create_table("orders", pa.schema({"id": pa.int64()}))
        with catalog.transaction() as tx:
            tx["orders"].append(pa.table({"id": [1]}))
    """

    def __init__(self, transaction: TableTransaction, name: str) -> None:
        super().__init__(transaction)
        self._name = name

    def __enter__(self) -> NoReturn:
        raise self._refused("used as a context manager")

    def commit(self) -> NoReturn:
        """Refused: the transaction of the catalog is committed.

        Raises:
            InvalidArgumentError: always.

        Example::

            with catalog.transaction() as tx:
                tx["orders"].append(rows)
                tx.commit()
        """
        raise self._refused("committed")

    commit_async = commit

    def abort(self) -> NoReturn:
        """Refused: the transaction of the catalog is aborted.

        Raises:
            InvalidArgumentError: always.

        Example::

            tx = catalog.transaction()
            tx["orders"].append(rows)
            tx.abort()
        """
        raise self._refused("aborted")

    def _refused(self, what: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"the part for {self._name} of a transaction over several tables is not {what} alone: commit() and abort() "
            "of the catalog's transaction end all parts, and so does the end of its block"
        )


@dataclass
class _Part:
    entry: Any
    handle: Handle
    txn: TableTransaction
    public: PartOfTransaction
    created: DeltaTable | None = None


class CatalogTransaction:
    """A transaction over several tables of a catalog, made by :meth:`refdelta.catalog.Catalog.transaction`: it commits
    in all of them, or in none.

    It sees all tables at the moment at which it began. ``tx["orders"]`` has the statements of a
    :class:`~refdelta.api.transaction.WriteTransaction`, except for those that move rows and change none (OPTIMIZE,
    REORG), and its rules: any number of reads and appends, and one statement of another kind, in each table; statements
    do not see what the transaction wrote. Reads of all its tables count: by ``tx[name].read``, and by a statement that
    writes rows of another of these tables.

    At the end of a ``with`` block it is committed, unless the block has raised: then it is aborted. It cannot be copied
    or pickled.

    Example::

        catalog = SqlCatalog(f"sqlite:///{folder}/catalog.db", warehouse=folder)
        catalog.create_table("checking", pa.schema({"id": pa.int64(), "amount": pa.int64()}))
        catalog.create_table("savings", pa.schema({"id": pa.int64(), "amount": pa.int64()}))
        with catalog.transaction() as tx:
            tx["checking"].update({"amount": "amount - 10"}, predicate="id = 3")
            tx["savings"].update({"amount": "amount + 10"}, predicate="id = 3")
    """

    def __init__(self, catalog: Any, options: CommitOptions) -> None:
        if records_applications(options):
            raise InvalidArgumentError(
                "app_transactions are recorded table by table: leave them out of a transaction over several tables"
            )
        checked(options.get("commit_properties"))
        self._catalog, self._options = catalog, options
        self._id = str(uuid.uuid4())
        self._process = os.getpid()
        self._ended: str | None = None
        self._entered = False
        self._parts: dict[str, _Part] = {}
        with store_errors("begin a transaction"):
            self._seen = catalog._latest_of_all("begin a transaction over several tables")  # noqa: SLF001 - of this package
        self._began = time.monotonic()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._catalog.name!r}, {sorted(self._parts)})"

    def __enter__(self) -> Self:
        self._check_open("enter")
        if self._entered:
            raise InvalidArgumentError("cannot enter: this transaction has a block already; begin another one")
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended is not None or self._inherited:
            return
        if kind is None:
            self.commit()
        else:
            self.abort()

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise NotCopyableError(
            f"a transaction cannot be copied or pickled: two copies would own the same files of {self._catalog.name}; "
            "begin one in each process"
        )

    @property
    def transaction_id(self) -> str:
        """The id by which the logs of its tables name it: ``transactionGroup`` of each commitInfo."""
        return self._id

    def __getitem__(self, name: str) -> PartOfTransaction:
        return self.table(name)

    def table(self, name: str) -> PartOfTransaction:
        """The part for one table; the same for each call. ``tx[name]`` is short for it.

        Args:
            name: the name that the table had when the transaction began.

        Raises:
            TableNotFoundError: the catalog had no table of this name.
            InvalidArgumentError: it is no name, the table is one of the file system, or the transaction has ended.
            UnsupportedFeatureError: the table needs a feature that this engine cannot write.

        Example::

            catalog = SqlCatalog(f"sqlite:///{folder}/catalog.db", warehouse=folder)
            catalog.create_table("orders", pa.schema({"id": pa.int64()}))
            with catalog.transaction() as tx:
                tx.table("orders").append(pa.table({"id": [1]}))
        """
        self._check_open("use a table")
        if not isinstance(name, str):
            raise InvalidArgumentError(
                f"a table of a transaction is named as in its catalog {self._catalog.name}, not given as "
                f"{type(name).__name__}"
            )
        name = spelled_name(name, {**self._seen, **self._parts})
        known = self._parts.get(name)
        if known is None:
            with store_errors(f"open {name}"):
                handle = self._catalog._at(name, self._seen)  # noqa: SLF001 - of this package
            known = self._add(name, self._seen[name].entry, handle)
        return known.public

    def create_table(
        self,
        name: str,
        schema: Any,
        location: str | os.PathLike[str] | None = None,
        partition_by: Sequence[str] | str | None = None,
        configuration: Mapping[str, str | None] | None = None,
        *,
        commits: Literal["staged", "inline"] = "staged",
        cluster_by: Sequence[str] | str | None = None,
        description: str | None = None,
        generated: Mapping[str, str] | None = None,
        defaults: Mapping[str, str] | None = None,
        identity: Mapping[str, Identity] | None = None,
    ) -> PartOfTransaction:
        """Create a table, which others find once the transaction is committed. Its name is taken from now on; through
        a server it is taken by the commit, which fails if another table has it then.

        Args:
            name: as for :meth:`refdelta.catalog.Catalog.create_table`, like all that follow.
            schema: see there.
            location: see there.
            partition_by: see there.
            configuration: see there.
            commits: see there.
            cluster_by: see there.
            description: see there.
            generated: see there.
            defaults: see there.
            identity: see there.

        Returns:
            The part for the new table.

        Raises:
            TableAlreadyExistsError: the catalog has a table of this name, or the folder has one.
            InvalidArgumentError: an argument is wrong, or the transaction has ended.

        Example::

            catalog = SqlCatalog(f"sqlite:///{folder}/catalog.db", warehouse=folder)
            catalog.create_table("orders", pa.schema({"id": pa.int64()}))
            with catalog.transaction() as tx:
                tx["orders"].append(pa.table({"id": [1, 2]}))
                tx.create_table("totals", pa.schema({"orders": pa.int64()})).append(pa.table({"orders": [2]}))
        """
        self._check_open("create a table")
        if (twin := spelled_name(name, self._seen)) in self._seen:
            raise TableAlreadyExistsError(f"the catalog {self._catalog.name} has a table {twin!r}")
        catalog = self._catalog
        entry, table = catalog._make(
            name,
            schema,
            location,
            configuration,
            commits,
            _log_of_new(catalog),
            partition_by=partition_by,
            cluster_by=cluster_by,
            description=description,
            generated=generated,
            defaults=defaults,
            identity=identity,
            commit_properties=self._options.get("commit_properties"),
        )
        try:
            handle = Handle(table.store)
            handle.pin(0)
            part = self._add(name, entry, handle)
        except BaseException:
            self._give_up(entry, table)
            raise
        part.created = table
        return part.public

    def _add(self, name: str, entry: Any, handle: Handle) -> _Part:
        age = time.monotonic() - self._began
        txn = handle.begin_at(handle.snapshot, age, **self._options)
        txn.reads_elsewhere, txn.made_elsewhere = self._read, self._read_by
        part = self._parts[name] = _Part(entry, handle, txn, PartOfTransaction(txn, name))
        return part

    def _read(self, read: Snapshot) -> None:
        """Record that rows of a table, which may be one of the catalog, are written to another one."""
        if managed_by(read.store) is None:
            return  # a table of the file system
        table_id, place = (read.metadata.configuration or {}).get(TABLE_ID), place_of(read.store.uri)
        for name, entry in self._entries():
            # By its location: to open a store may take a request for its credentials.
            if entry.table_id == table_id or (place is not None and place_of(entry.location) == place):
                rest_on(self.table(name)._transaction, read.version)  # noqa: SLF001 - of this package

    def _entries(self) -> list[tuple[str, Any]]:
        """The catalog-managed tables: those that the transaction sees, and those that it creates."""
        seen = [(name, one.entry) for name, one in self._seen.items() if one.entry.managed]
        return [*seen, *((name, part.entry) for name, part in self._parts.items() if part.created)]

    def _read_by(self, version_of: Callable[[str], int | None]) -> None:
        """Record that rows which other processes have read of tables of the catalog are written."""
        for name, seen in self._seen.items():
            if seen.entry.managed and (version := version_of(uri_of(seen.entry.location))) is not None:
                rest_on(self.table(name)._transaction, version)  # noqa: SLF001 - of this package

    # --- the end ---

    def commit(self) -> dict[str, CommitResult]:
        """Commit all parts as one version of each table, after the other writers' commits that do not conflict.

        Returns:
            The results by the names of the tables that were used; ``version`` is None where nothing was written. A
            table that was only read has a version if its log records the reads: not if its isolation level is
            ``Serializable``.

        Raises:
            ConcurrentModificationError: another writer's commit conflicts in one of the tables, which the message and
                ``conflict.table`` name; nothing is visible in any table.
            CommitRetriesExhaustedError: the limit of attempts or of time was reached; nothing is visible.
            CommitOutcomeUnknownError: it is not known whether the commit happened: in all tables, or in none.
            InvalidArgumentError: the transaction has ended already, a statement moves rows and changes none, or this
                process is a forked child of the one in which it began.

        Example::

            catalog = SqlCatalog(f"sqlite:///{folder}/catalog.db", warehouse=folder)
            catalog.create_table("orders", pa.schema({"id": pa.int64()}))
            tx = catalog.transaction()
            tx["orders"].append(pa.table({"id": [1]}))
            tx.commit()["orders"].version
        """
        self._check_open("commit")
        taking_part = {name: one for name, one in self._parts.items() if one.txn.commits or one.created}
        if taking_part:
            read = {name: one for name, one in self._parts.items() if name not in taking_part and one.txn.has_read}
            taking_part |= read
        alone = next(iter(taking_part.values())) if len(taking_part) == 1 else None
        self._ended = "ended by a commit that failed"
        try:
            if alone is not None and alone.created is None:
                results = {name: one.txn.commit() for name, one in taking_part.items()}
            else:
                results = self._commit(taking_part)
        except BaseException as error:
            self._failed(error)
            raise
        for name, one in self._parts.items():
            if name not in results:
                one.txn.end()
                results[name] = one.txn.succeeded(None)
        self._ended = "committed"
        for one in self._parts.values():
            if one.created is None:
                self._catalog._kept.keep(one.entry, _managed(one), one.handle.snapshot)  # noqa: SLF001 - of this package
        return {name: results[name] for name in self._parts}

    def _commit(self, taking_part: Mapping[str, _Part]) -> dict[str, CommitResult]:
        for one in taking_part.values():
            one.txn.end()
        if not taking_part:
            return {}
        empty = {name: one for name, one in taking_part.items() if one.created and not one.txn.commits}
        names = [name for name in taking_part if name not in empty]
        parts = [taking_part[name].txn.part(name, taking_part[name].entry.table_id) for name in names]
        created = [Proposal(_managed(one).ratifier, 0, None) for one in empty.values()]
        with store_errors("commit"):
            for one in taking_part.values():
                if one.created:
                    _managed(one).ask()  # compares the database with the folder
        catalog = self._catalog
        outcomes = commit_parts(catalog._ratify, catalog.name, self._id, parts, created)  # noqa: SLF001 - of this package
        results = {name: taking_part[name].txn.succeeded(outcomes.get(number)) for number, name in enumerate(names)}
        for name, one in empty.items():
            one.txn.succeeded(None)
            results[name] = CommitResult(version=0, attempts=1)
        return results

    def abort(self) -> None:
        """End the transaction without a commit. The files that it wrote are removed, and so are tables that it created.
        In a forked child it does nothing, since the transaction is its parent's.

        Raises:
            InvalidArgumentError: the transaction has ended already.

        Example::

            catalog = SqlCatalog(f"sqlite:///{folder}/catalog.db", warehouse=folder)
            catalog.create_table("orders", pa.schema({"id": pa.int64()}))
            tx = catalog.transaction()
            tx["orders"].append(pa.table({"id": [1]}))
            tx.abort()
        """
        if self._inherited:
            return
        self._check_open("abort")
        self._ended = "aborted"
        self._drop_parts()

    def _failed(self, error: BaseException) -> None:
        """Remove what the transaction wrote, if it is certain that nothing of it was committed."""
        if isinstance(error, CERTAIN_FAILURES):
            self._drop_parts()
            return
        for one in self._parts.values():
            one.txn.failed(error)

    def _drop_parts(self) -> None:
        for one in self._parts.values():
            one.txn.failed(CommitFailedError("aborted"))
            if one.created:
                self._give_up(one.entry, one.created)

    def _give_up(self, entry: Any, table: DeltaTable) -> None:
        with store_errors(f"give up {entry.name}"):
            self._catalog._discard(entry, table)  # noqa: SLF001 - of this package
            self._catalog._release(entry)  # noqa: SLF001 - of this package

    @property
    def _inherited(self) -> bool:
        return os.getpid() != self._process

    def _check_open(self, verb: str) -> None:
        if self._inherited:
            raise InvalidArgumentError(
                f"cannot {verb}: this transaction began in process {self._process}, of which this one is a fork; begin "
                "a transaction here"
            )
        if self._ended is not None:
            raise InvalidArgumentError(
                f"cannot {verb}: this transaction was {self._ended} already; catalog.transaction() begins another one"
            )


def _managed(part: _Part) -> ManagedStore:
    found = managed_by(part.txn.store)
    if found is None:
        raise InternalError(f"{part.entry.name} is no table of a catalog")
    return found


def _log_of_new(catalog: Any) -> Any:
    def managed(entry: Any, store: Store) -> ManagedStore:
        return ManagedStore(store, catalog._ratifier(entry, creates=True))  # noqa: SLF001 - of this package

    return managed
