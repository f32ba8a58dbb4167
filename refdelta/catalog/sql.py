"""``SqlCatalog``: a catalog in a database. SQLite serves the processes of one machine, PostgreSQL several machines.

Three tables: the version of this schema, the Delta tables, and their ratified commits that are not known to be
published. A commit is ratified by one transaction of the database: it moves the table's latest version from v - 1 to v,
if the table is still the one that was opened, and inserts the commit. The row of the table is the lock: of two writers
that propose the same version, the second one finds the version taken.
"""

from __future__ import annotations

import functools
import os
import re
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from refdelta.arguments import missing_package
from refdelta.catalog.base import Catalog, CommitMode, Entry, Seen, checked_name, is_name, not_found
from refdelta.catalog.locations import is_location
from refdelta.catalog.names import spelled_name
from refdelta.core.log.paths import MAX_VERSION
from refdelta.engine.log.managed_log import CatalogReplacedError, Exists, Proposal, Ratified, RatifiedCommit
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import InternalError, InvalidArgumentError, TableAlreadyExistsError, TableNotFoundError
from refdelta_storage import Committed, StorageError, Unknown

try:
    import sqlalchemy as sa
    from sqlalchemy import exc
except ModuleNotFoundError:
    raise missing_package("SqlCatalog", "sqlalchemy", "catalog") from None

from refdelta.catalog import database

if TYPE_CHECKING:
    from collections.abc import Mapping

    from refdelta.engine.log.managed_log import Ratifier

SCHEMA_VERSION = 1
_WINNERS = 100
_SCHEMA_LOCK = 7_360_142_901_245_001
_LOCK_OF_NAMES = 7_360_142_901_245_002
_CREATING = -1
_SEALED = -3
_PURGED = -(10**15)
_TRIES = 3
_LONGEST = 24 * 60 * 60

# The highest version that a row can have, sealed or not.
_HIGHEST = -_PURGED + 2 * _SEALED
_ID = re.compile(r"[0-9A-Za-z-]{1,36}")
STAGING = ".staging."
"""The beginning of the names of staging tables, which no table can have, since names have no empty parts."""


# SQLite stores values of any type in any column, and the conversions of these types would take a number for a length:
# values stay what the driver gives, and are checked where rows become objects.
class _Flag(sa.Boolean):
    def result_processor(self, dialect: Any, coltype: Any) -> None:
        pass


class _Bytes(sa.LargeBinary):
    def result_processor(self, dialect: Any, coltype: Any) -> None:
        pass


_META = sa.MetaData()
_SCHEMA = sa.Table("refdelta_schema", _META, sa.Column("version", sa.Integer, nullable=False))
TABLES = sa.Table(
    "refdelta_tables",
    _META,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("name", sa.String(1024), nullable=False, unique=True),
    sa.Column("location", sa.Text, nullable=False),
    sa.Column("managed", _Flag, nullable=False),
    sa.Column("commits", sa.String(16), nullable=False),
    # -1 while version 0 is being written; of a table that is being dropped, _SEALED - latest; if its files
    # are being deleted, _PURGED - latest.
    sa.Column("latest", sa.BigInteger, nullable=False),
    sa.Column("published", sa.BigInteger, nullable=False),
    # The time of its creation, or of the last adoption that dropped versions: handles of before have another history.
    sa.Column("created_ms", sa.BigInteger, nullable=False),
)
COMMITS = sa.Table(
    "refdelta_commits",
    _META,
    sa.Column("table_id", sa.String(36), primary_key=True),
    sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("file_name", sa.Text),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("timestamp_ms", sa.BigInteger, nullable=False),
    sa.Column("data", _Bytes),
)

# The statements of each commit, made once. The first one also answers with the version alone where no commit is held.
_ASK = (
    sa.select(TABLES.c.latest, TABLES.c.created_ms, COMMITS)
    .select_from(
        TABLES.outerjoin(
            COMMITS, sa.and_(COMMITS.c.table_id == TABLES.c.id, COMMITS.c.version >= sa.bindparam("first"))
        )
    )
    .where(TABLES.c.id == sa.bindparam("table"))
    .order_by(COMMITS.c.version)
)
_ALL = sa.select(TABLES).where(TABLES.c.latest >= 0)
_MOVE = (
    sa.update(TABLES)
    .where(
        TABLES.c.id == sa.bindparam("table"),
        TABLES.c.latest == sa.bindparam("before"),
        TABLES.c.created_ms == sa.bindparam("since"),
    )
    .values(latest=sa.bindparam("after"))
)
# The row is locked until the end of the transaction, on databases where others could change it before.
_PIN = sa.select(TABLES.c.latest).where(*_MOVE.whereclause.clauses).with_for_update(read=True)  # type: ignore[union-attr]
_CREATE = _MOVE.values(published=0, name=sa.bindparam("name"))
_RECORD = sa.insert(COMMITS)
_NOTED = (
    sa.update(TABLES)
    .where(
        TABLES.c.id == sa.bindparam("table"),
        TABLES.c.published < sa.bindparam("note"),
        TABLES.c.created_ms == sa.bindparam("since"),
    )
    .values(published=sa.bindparam("note"))
)
_FORGET = sa.delete(COMMITS).where(
    COMMITS.c.table_id == sa.bindparam("table"), COMMITS.c.version <= sa.bindparam("note")
)


class SqlCatalog(Catalog):
    """A catalog in a database.

    Args:
        url: the URL of the database, as SQLAlchemy takes it: ``sqlite:///catalog.db``,
            ``postgresql+psycopg://user@host/database``. Its tables are created by the first use.
        warehouse: the folder for tables without a location of their own; None if each table needs one.
        storage_options: options of the stores of its tables.
        locations: further folders below which tables are opened: paths or URIs, such as ``s3://bucket/tables``. A table
            at another place is refused, since another program may have written its row. The
            warehouse is always one, and what this object is given by ``create_table`` and ``register_table``; without
            a warehouse and locations, the folder of a SQLite file is.
        timeout: after how many seconds a wait for the database ends, with an error that names it: for a connection
            (to each address of the server), for a lock that another session holds, for a
            statement, for an answer over the network. None for 30.

    Raises:
        InvalidArgumentError: the URL or a location is wrong, or the driver or SQLAlchemy is not installed.
        StoreError: the database cannot be reached, or was made by a newer version.

    Example::

        catalog = SqlCatalog(f"sqlite:///{folder}/catalog.db", warehouse=folder)
        table = catalog.create_table("sales.orders", pa.schema({"id": pa.int64()}))
        catalog.tables("sales")
    """

    def __init__(
        self,
        url: str,
        warehouse: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        locations: Iterable[str | os.PathLike[str]] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        super().__init__(storage_options, locations or ())
        seconds = database.TIMEOUT if timeout is None else timeout
        if not isinstance(seconds, int | float) or not 0 < seconds <= _LONGEST:
            raise InvalidArgumentError(f"timeout is a number of seconds above 0, at most {_LONGEST}, not {timeout!r}")
        self._patience = database.Waits(seconds)
        try:
            self._url = sa.make_url(url)
            self._engine = database.open_database(self._url, seconds)
        except (exc.ArgumentError, exc.NoSuchModuleError, ModuleNotFoundError) as error:
            raise InvalidArgumentError(f"not the URL of a database that can be opened: {error}") from None
        self._warehouse = None if warehouse is None else os.fspath(warehouse).rstrip("/")
        if self._warehouse is not None:
            self._locations.add(self._warehouse)
        elif locations is None and self._url.get_backend_name() == "sqlite":
            # A program that can write the file can write beside it, so its rows open nothing more there.
            self._locations.add(os.path.dirname(os.path.abspath(_file_of(self._url))))  # noqa: PTH100, PTH120
        self._process = os.getpid()
        # A catalog that is forgotten closes its connections.
        self._closing = weakref.finalize(self, self._engine.dispose)
        with store_errors("open the catalog"):
            self._check_schema()

    def __reduce__(self) -> tuple[Any, ...]:
        url = self._url.render_as_string(hide_password=False)
        given = (url, self._warehouse, self._options, self._locations.given)
        return functools.partial(type(self), timeout=self._patience.timeout), given

    def close(self) -> None:
        """Close the connections to the database, as the end of a ``with`` block does. The catalog and its tables can be
        used again, over new connections.

        Example::

            catalog = SqlCatalog(f"sqlite:///{folder}/catalog.db")
            catalog.close()
        """
        self._database.dispose()

    @property
    def name(self) -> str:
        """The URL without its password."""
        return database.shown(self._url)

    def tables(self, namespace: str | None = None) -> list[str]:
        """The names of the tables, in order.

        Args:
            namespace: only those in this namespace, and in those below it; None for all.

        Example::

            SqlCatalog(f"sqlite:///{folder}/catalog.db").tables()
        """
        with store_errors("list the tables"):
            names = self._names()
        start = "" if namespace is None else f"{namespace}.".lower()
        return [name for name in names if name.lower().startswith(start)]

    def _names(self) -> list[str]:
        with self._reading("list the tables") as connection:
            found = connection.execute(sa.select(TABLES.c.name).where(TABLES.c.latest >= 0))
            names = [name for (name,) in found]
        for name in names:
            if not is_name(name):
                raise _claim(self.name, "name", name)
        return sorted(names)

    def namespaces(self) -> list[str]:
        """The namespaces that have tables, in order.

        Example::

            SqlCatalog(f"sqlite:///{folder}/catalog.db").namespaces()
        """
        return sorted({name.rpartition(".")[0] for name in self.tables() if "." in name})

    def rename_table(self, name: str, new: str) -> None:
        """Rename a table. Handles that are open go on, since a table has an id beside its name.

        Args:
            name: its name.
            new: its new name.

        Raises:
            TableNotFoundError: the catalog has no table of this name.
            TableAlreadyExistsError: it has one of the new name.

        Example::

            catalog = SqlCatalog(f"sqlite:///{folder}/catalog.db")
            catalog.create_table("orders", pa.schema({"id": pa.int64()}), location=uri)
            catalog.rename_table("orders", "sales.orders")
        """
        checked_name(new)
        with store_errors(f"rename {name}"):
            entry = self._entry(checked_name(name))
            self._rename(entry, new)

    # --- tables ---

    def _rename(self, entry: Entry, new: str) -> None:
        change = sa.update(TABLES).where(TABLES.c.id == entry.table_id, TABLES.c.name == entry.name)
        renamed = self._change(
            f"rename {entry.name}",
            entry,
            [change.values(name=new)],
            lambda row: row is not None and row.name == new,
            takes=new,
        )
        if not renamed:
            raise self._gone(entry)

    def _reserve(self, name: str, location: str | None, commits: CommitMode) -> Entry:
        if location is None:
            if self._warehouse is None:
                raise InvalidArgumentError("a table needs a location, since the catalog has no warehouse")
            location = f"{self._warehouse}/{name.replace('.', '/')}-{uuid.uuid4().hex[:8]}"
        entry = Entry(name, location, managed=True, table_id=str(uuid.uuid4()), commits=commits)
        self._insert(entry, latest=-1)
        return entry

    def _insert(self, entry: Entry, latest: int) -> None:
        row = {
            "id": entry.table_id,
            "name": entry.name,
            "location": entry.location,
            "managed": entry.managed,
            "commits": entry.commits,
            "latest": latest,
            "published": latest,
            "created_ms": time.time_ns() // 1_000_000,
        }
        insert = sa.insert(TABLES).values(row)
        self._change(f"create {entry.name}", entry, [insert], lambda row: row is not None, takes=entry.name)

    def _activate(self, entry: Entry) -> None:
        change = sa.update(TABLES).where(TABLES.c.id == entry.table_id, TABLES.c.latest == _CREATING)
        created = self._change(
            f"create {entry.name}",
            entry,
            [change.values(latest=0, published=0)],
            lambda row: row is not None and row.latest >= 0,
        )
        if not created:
            raise self._gone(entry)

    def _release(self, entry: Entry) -> None:
        change = sa.delete(TABLES).where(TABLES.c.id == entry.table_id, TABLES.c.latest == _CREATING)
        self._change(f"create {entry.name}", entry, [change], lambda row: row is None)

    def _register(self, name: str, location: str) -> None:
        self._insert(Entry(name, location, managed=False, table_id=str(uuid.uuid4())), latest=0)

    def _entry(self, name: str, *, staging: bool = False) -> Entry:
        row = self._by_name(name)
        if row is None and (spelled := spelled_name(name, self._names())) != name:
            row = self._by_name(spelled)
        if row is not None:
            entry = entry_of(row, self.name)
            if staging or row.latest >= 0:
                return entry
        raise not_found(name, self.name, self._names())

    def _by_name(self, name: str) -> Any:
        """The row of a table by its name in this case of letters; None if there is none."""
        with self._reading(f"look up {name}") as connection:
            return connection.execute(sa.select(TABLES).where(TABLES.c.name == name)).one_or_none()

    def _seal(self, entry: Entry, *, purge: bool) -> bool:
        latest = TABLES.c.latest
        change = sa.update(TABLES).where(
            TABLES.c.id == entry.table_id, latest > (_PURGED if purge else _SEALED) - _CREATING
        )
        sealed: sa.ColumnElement[int]
        if purge:
            sealed = sa.case((latest >= _CREATING, _PURGED - latest), else_=_PURGED - _SEALED + latest)
        else:
            sealed = _SEALED - latest
        if not self._change(f"drop {entry.name}", entry, [change.values(latest=sealed)], is_sealed) and not is_sealed(
            self._by_id(entry)
        ):
            raise self._gone(entry)
        return True

    def _unseal(self, entry: Entry) -> bool:
        latest = TABLES.c.latest
        change = sa.update(TABLES).where(
            TABLES.c.id == entry.table_id, latest <= _SEALED - _CREATING, latest > _PURGED - _CREATING
        )
        change = change.values(latest=_SEALED - latest)
        self._change(f"drop {entry.name}", entry, [change], lambda row: row is not None and not is_sealed(row))
        row = self._by_id(entry)
        return row is not None and not is_sealed(row)

    def _drop(self, entry: Entry) -> None:
        change = sa.delete(TABLES).where(TABLES.c.id == entry.table_id, TABLES.c.latest <= _SEALED - _CREATING)
        held = sa.delete(COMMITS).where(COMMITS.c.table_id == entry.table_id)
        dropped = self._change(f"drop {entry.name}", entry, [change, held], lambda row: row is None)
        if not dropped and self._by_id(entry) is not None:
            raise StorageError(f"{entry.name} is not being dropped any more: another program has stopped it")

    def _set_versions(self, entry: Entry, seen: Ratified, latest: int, published: int, *, drops: bool) -> bool:
        was = sa.or_(TABLES.c.latest == seen.latest, TABLES.c.latest == _SEALED - seen.latest)
        change = sa.update(TABLES).where(TABLES.c.id == entry.table_id, was)
        since = {"created_ms": time.time_ns() // 1_000_000} if drops else {}
        kept = sa.and_(COMMITS.c.version > published, COMMITS.c.version <= latest)
        others = sa.delete(COMMITS).where(COMMITS.c.table_id == entry.table_id, sa.not_(kept))
        return self._change(
            f"adopt {entry.name}",
            entry,
            [change.values(latest=latest, published=published, **since), others],
            lambda row: row is not None and (row.latest, row.published) == (latest, published),
        )

    def _change(
        self,
        what: str,
        entry: Entry,
        statements: Sequence[sa.Executable],
        done: Callable[[Any], bool],
        *,
        takes: str | None = None,
    ) -> bool:
        """Carry out one conditional change of a table: a transaction, whose first statement has the condition.

        If the reply to its end is lost, the table's row shows whether it was carried out. If it was not, it is sent
        again, which does no harm to one that arrives late: the condition does not hold any more.

        Args:
            what: the attempted action, for messages.
            entry: the table.
            statements: the statements; the first one changes the row of the table by its id.
            done: whether the change was carried out, by that row, or by None if there is none.
            takes: the name that the table takes, which no other one has in any case of letters; None if it has it.

        Returns:
            False if the condition did not hold.

        Raises:
            StorageError: the database failed, and nothing was changed; or it is not known whether something was.
            TableAlreadyExistsError: the name is taken.
        """
        lost: LostError | None = None
        whole: list[Any] = [*statements]
        if takes is not None:
            whole.append(functools.partial(check_name, name=takes, table_id=entry.table_id))
        for _ in range(_TRIES):
            applied = False
            try:
                applied = self._transaction(what, whole)
            except LostError as error:
                lost = error
            except TakenError as error:
                if lost is not None and done(self._by_id(entry)):
                    return True  # by the attempt whose reply was lost
                raise TableAlreadyExistsError(
                    f"the catalog {self.name} has a table {error.name or takes or entry.name!r}, or one is being "
                    "created or dropped; drop_table removes one whose creation or drop did not end"
                ) from None
            else:
                if applied or lost is None:
                    return applied
            try:
                if done(self._by_id(entry)):
                    return True
            except StorageError as error:
                raise StorageError(
                    f"{self.name} gave no answer: it is not known whether this was carried out: {what} "
                    f"(the table with the id {entry.table_id})"
                ) from error
        raise StorageError(f"cannot {what}: {self.name} gave no answer: {lost}") from lost

    def _transaction(self, what: str, statements: Sequence[Any]) -> bool:
        """Carry out statements, if the first one changes a row; see :meth:`_at_once`."""

        def run(connection: sa.Connection) -> bool:
            if connection.execute(statements[0]).rowcount == 0:  # of an INSERT it may be unknown, -1
                return False
            for statement in statements[1:]:
                if callable(statement):
                    statement(connection)
                else:
                    connection.execute(statement)
            return True

        return self._at_once(what, run)

    def _at_once(self, what: str, run: Callable[[sa.Connection], bool]) -> bool:
        """Carry out a transaction of the database. If it is rolled back since it met another one, it is repeated.

        Args:
            what: the attempted action, for messages.
            run: carries out its statements; returns whether it is to be committed.

        Returns:
            The result of ``run``.

        Raises:
            StorageError: the database failed, and nothing was changed.
            LostError: its end was asked for, and it is not known whether it came.
            TakenError: a row with this key is there.
        """
        for attempt in range(1, _TRIES + 1):
            settling = False
            with self._patience.wait():
                try:
                    with self._database.connect() as connection:
                        if not run(connection):
                            return False
                        settling = True
                        connection.commit()
                        if not database.is_in_place(connection):
                            raise LostError("the file of the database was replaced meanwhile")
                        return True
                except exc.IntegrityError as error:
                    raise TakenError(self._patience.reason(error)) from error
                except exc.SQLAlchemyError as error:
                    if database.is_repeatable(error) and attempt < _TRIES:
                        continue
                    reason = self._patience.reason(error)
                    if settling and not database.is_repeatable(error):
                        raise LostError(reason) from error
                    raise StorageError(f"cannot {what}: {self.name} failed: {reason}") from error
        raise AssertionError

    def _by_id(self, entry: Entry) -> Any:
        """The row of a table by its id; None if there is none."""
        with self._reading(f"look up {entry.name}") as connection:
            row = connection.execute(sa.select(TABLES).where(TABLES.c.id == entry.table_id)).one_or_none()
        if row is not None:
            entry_of(row, self.name)
        return row

    def _gone(self, entry: Entry) -> TableNotFoundError:
        return TableNotFoundError(
            f"the catalog {self.name} has no table {entry.name} any more (with the id {entry.table_id}): another "
            "program has dropped or renamed it"
        )

    def _others(self, entry: Entry) -> Sequence[tuple[str, str]]:
        with self._reading(f"look for tables near {entry.name}") as connection:
            rows = connection.execute(sa.select(TABLES).where(TABLES.c.id != entry.table_id)).all()
        return [(other.name, other.location) for other in (entry_of(row, self.name) for row in rows)]

    def _ratifier(self, entry: Entry, *, creates: bool = False) -> Ratifier:
        return SqlRatifier(self, entry, creates=creates)

    def _latest_of_all(self, what: str) -> dict[str, Seen]:
        """One statement, so that the versions are of one moment."""
        with self._reading(what) as connection:
            rows = connection.execute(_ALL).all()
            session = database.session_of(connection)
        return {row.name: Seen(entry_of(row, self.name), row.latest, f"{session} {row.created_ms}") for row in rows}

    def _ratify(self, proposals: Sequence[Proposal]) -> list[Committed | Exists | Unknown | None]:
        """Ratify the next versions of several tables by one transaction of the database: all of them or none.

        Args:
            proposals: at most one of each table.

        Returns:
            For each proposal the outcome, in their order: ``Committed`` for all; ``Unknown`` for all; or ``Exists`` if
            its table has a later version than the one before, and None if it has not: that one was not tried.

        Raises:
            StorageError: the database failed, or a table is being dropped, and nothing was ratified.
            TableAlreadyExistsError: the name of a table that is created is taken, and nothing was ratified.
            CatalogReplacedError: the database of a table is another one than the one that was confirmed.
        """
        ratifiers = [one.ratifier for one in proposals if isinstance(one.ratifier, SqlRatifier)]
        if len(ratifiers) < len(proposals):
            raise InternalError(f"{self.name} ratifies versions of its own tables only")
        # Two transactions that lock the same tables in the same order never wait for each other.
        ordered = sorted(zip(ratifiers, proposals, strict=True), key=lambda one: one[0].place)
        rows = [one.recorded(proposal.commit) for one, proposal in ordered if proposal.commit is not None]

        def move(connection: sa.Connection) -> bool:
            for one, proposal in ordered:
                if not one.carry_out(connection, proposal):
                    return False
            if rows:
                connection.execute(_RECORD, rows)
            return True

        what = f"ratify {', '.join(f'version {one.before + 1}' for one in proposals)}"
        lost: LostError | None = None
        for _ in range(1 if rows else _TRIES):
            try:
                if self._at_once(what, move):
                    return [Committed()] * len(proposals)
            except LostError as error:
                lost = error
            except TakenError as error:
                if new := [one.name for one in ratifiers if one.creates]:
                    taken = f"there is a table of this name, or one is being created: {' or '.join(new)}"
                    raise TableAlreadyExistsError(taken) from error
                raise StorageError(f"cannot {what}: {self.name} failed: {error}") from error
            # No other program makes a table of one that is being created. If an earlier attempt of the same transaction
            # did, with other staged files, the versions are read back.
            if any(one.is_created() for one in ratifiers) and all(
                one.has(proposal.commit) for one, proposal in ordered if proposal.commit is not None
            ):
                return [Committed()] * len(proposals)
            if lost is None:
                break
        if lost is not None:
            return [Unknown(StorageError(f"cannot {what}: {self.name} gave no answer: {lost}"))] * len(proposals)
        # Not while the first connection is held: many threads that want a second one would wait for each other.
        return [one.refused(proposal.before) for one, proposal in zip(ratifiers, proposals, strict=True)]

    # --- the database ---

    @property
    def _database(self) -> sa.Engine:
        """The engine of SQLAlchemy. A forked process has connections of its own."""
        if self._process != os.getpid():
            self._engine.dispose(close=False)
            self._process = os.getpid()
        return self._engine

    def _check_schema(self) -> None:
        """Look whether the tables are there, and of this version; make them otherwise. To look changes nothing."""
        versions: Sequence[int] = ()
        with self._patience.wait():
            try:
                with self._database.connect() as connection:
                    versions = database.at_once(connection).execute(sa.select(_SCHEMA.c.version)).scalars().all()
            except exc.SQLAlchemyError as error:
                if not database.is_missing(error):
                    raise self._failed("open the catalog", error) from error
        if not versions:
            with self._writing("open the catalog") as connection:
                if connection.dialect.name == "postgresql":  # two that create a table at once would fail
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_SCHEMA_LOCK)))
                _META.create_all(connection)
                versions = connection.execute(sa.select(_SCHEMA.c.version)).scalars().all()
                if not versions:
                    connection.execute(sa.insert(_SCHEMA).values(version=SCHEMA_VERSION))
        if wrong := [one for one in versions if not _is_whole(one, 1)]:
            raise _claim(self.name, "version of the schema", wrong[0])
        if versions and max(versions) > SCHEMA_VERSION:
            raise InvalidArgumentError(
                f"{self.name} was made by a newer refdelta: its schema has version {max(versions)}, and this "
                f"one knows version {SCHEMA_VERSION}"
            )

    @contextmanager
    def _reading(self, what: str) -> Iterator[sa.Connection]:
        """A connection for one statement that reads. Raises ``StorageError``; ``what`` is the attempted action."""
        with self._errors(what), self._database.connect() as connection:
            yield database.at_once(connection)
            if not database.was_stable(connection):
                raise StorageError(f"cannot {what}: {self.name} was changed while it was read; repeat it")

    @contextmanager
    def _writing(self, what: str, name: str = "") -> Iterator[sa.Connection]:
        """A connection in a transaction, which is committed at the end of the block.

        Args:
            what: the attempted action, for messages.
            name: the name that a new row takes.

        Raises:
            StorageError: the database failed.
            TableAlreadyExistsError: the name is taken.
        """
        try:
            with self._errors(what), self._database.begin() as connection:
                yield connection
        except TakenError:
            raise TableAlreadyExistsError(
                f"the catalog {self.name} has a table {name!r}, or one is being created; drop_table removes one whose "
                "creation did not end"
            ) from None

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        with self._patience.wait():
            try:
                yield
            except exc.IntegrityError as error:
                raise TakenError from error
            except exc.SQLAlchemyError as error:
                raise self._failed(what, error) from error

    def _failed(self, what: str, error: exc.SQLAlchemyError) -> StorageError:
        return StorageError(f"cannot {what}: {self.name} failed: {self._patience.reason(error)}")


class SqlRatifier:
    """The part of a :class:`SqlCatalog` that is for one table, a
    :class:`~refdelta.engine.log.managed_log.Ratifier`.

    Args:
        catalog: the catalog.
        entry: the table.
        creates: whether the transaction that has it creates the table: its version 0 is in the folder, and other
            readers find the table once one of its proposals is ratified (``SqlCatalog._ratify``).
    """

    maintenance: str | None = None

    def __init__(self, catalog: SqlCatalog, entry: Entry, *, creates: bool = False) -> None:
        self._catalog, self._entry, self.creates = catalog, entry, creates
        self._sealed = False
        self._confirmed: str | None = None
        self.inline = entry.commits == "inline"

    @property
    def name(self) -> str:
        """The table and its catalog, for messages."""
        return f"{self._entry.name} of the catalog {self._catalog.name}"

    def ratified(self, first: int = 0) -> Ratified:
        """One statement, so that the version and the commits are of one moment."""
        with self._catalog._reading(f"ask for the versions of {self._entry.name}") as connection:  # noqa: SLF001 - of this module
            rows = connection.execute(_ASK, {"table": self._entry.table_id, "first": first}).all()
            session = database.session_of(connection)
        if not rows:
            raise StorageError(f"the catalog {self._catalog.name} has no table {self._entry.name} any more")
        latest, created_ms = rows[0].latest, rows[0].created_ms
        if not _is_latest(latest) or not _is_whole(created_ms, 0):
            raise _claim(self.name, "latest version", latest)
        self._sealed = latest < _CREATING
        if self._sealed:
            latest = unsealed(latest)
        elif self.creates:
            latest = max(latest, 0)
        held = (row for row in rows if row.version is not None)
        try:
            return Ratified(latest, tuple(map(_commit, held)), f"{session} {created_ms}")
        except ValueError as error:
            raise StorageError(f"{self.name} {error}") from error

    def propose(self, commit: RatifiedCommit) -> Committed | Exists | Unknown:
        """One transaction: the version moves by one, and the commit is there."""
        (outcome,) = self._catalog._ratify(  # noqa: SLF001 - of this module
            [Proposal(self, commit.version - 1, commit)]
        )
        if outcome is None:  # no one has this version, even if the one before it is there by now
            raise StorageError(
                f"version {commit.version} of {self._entry.name} was not ratified: the one before it was not there"
            )
        return outcome

    @property
    def place(self) -> str:
        """The place of the table among those that a transaction of the database locks, each in this order."""
        return self._entry.table_id

    def carry_out(self, connection: sa.Connection, proposal: Proposal) -> bool:
        """The part of a transaction of the database that is for this table.

        Returns:
            Whether its version was the one that is proposed; otherwise nothing was changed.
        """
        before = _CREATING if self.creates and proposal.before == 0 else proposal.before
        asked = {"table": self._entry.table_id, "before": before, "since": self._since(connection)}
        if proposal.commit is None and before >= 0:
            return connection.execute(_PIN, asked).first() is not None
        asked["after"] = 0 if proposal.commit is None else proposal.commit.version
        if before >= 0:
            return connection.execute(_MOVE, asked).rowcount == 1
        # A staging table of a server gets its name with its first version.
        created = connection.execute(_CREATE, {**asked, "name": self._entry.name}).rowcount == 1
        if created:
            check_name(connection, self._entry.name, self._entry.table_id)
        return created

    def is_created(self) -> bool:
        """Whether the table was to be created, and readers find it."""
        if not self.creates:
            return False
        row = self._catalog._by_id(self._entry)  # noqa: SLF001 - of this module
        return row is not None and row.latest >= 0

    def has(self, commit: RatifiedCommit) -> bool:
        """Whether this commit is ratified, and still held."""
        found = next((one for one in self.ratified(commit.version).commits if one.version == commit.version), None)
        return found is not None and (found.data == commit.data if self.inline else found.file_name == commit.file_name)

    def recorded(self, commit: RatifiedCommit) -> dict[str, Any]:
        """The row of a ratified commit."""
        return {
            "table_id": self._entry.table_id,
            "version": commit.version,
            "file_name": commit.file_name,
            "size": commit.size,
            "timestamp_ms": commit.timestamp_ms,
            "data": commit.data if self.inline else None,
        }

    def refused(self, before: int) -> Exists | None:
        """The reason why a version could not follow on this one; None if it still can."""
        answer = self.ratified(before + 1)
        if self._sealed:
            raise StorageError(f"version {before + 1} is not ratified: {self.name} is being dropped")
        if answer.session != self._confirmed:
            raise CatalogReplacedError(f"{self._catalog.name} has dropped versions of {self.name}")
        if answer.latest < before:
            raise StorageError(
                f"version {before + 1} of {self._entry.name} was not ratified: the one before it was not there; the "
                f"latest is {answer.latest}"
            )
        return Exists(answer.commits[:_WINNERS]) if answer.latest > before else None

    def published(self, version: int) -> None:
        """Forget the commits up to this version: readers find them in the log."""
        table = {"table": self._entry.table_id, "note": version}

        def note(connection: sa.Connection) -> bool:
            noted = connection.execute(_NOTED, {**table, "since": self._since(connection)}).rowcount > 0
            if noted:
                connection.execute(_FORGET, table)
            return noted

        what = f"note what is published of {self._entry.name}"
        lost: LostError | None = None
        for _ in range(_TRIES):  # a note that arrives twice changes nothing
            try:
                self._catalog._at_once(what, note)  # noqa: SLF001 - of this module
            except LostError as error:
                lost = error
            else:
                return
        raise StorageError(f"cannot {what}: {self._catalog.name} gave no answer: {lost}") from lost

    def confirm(self, session: str) -> None:
        """Change nothing but in this database."""
        self._confirmed = session

    def _since(self, connection: sa.Connection) -> int:
        """The ``created_ms`` of the table's row that was confirmed, if the connection is to the same database."""
        session, _, since = (self._confirmed or "").rpartition(" ")
        if database.session_of(connection) != session:
            raise CatalogReplacedError(f"{self._catalog.name} is not known to agree with the folder of {self.name}")
        return int(since)


def _commit(row: Any) -> RatifiedCommit:
    data = bytes(row.data) if isinstance(row.data, memoryview) else row.data
    if not _is_whole(row.version, 1):
        raise ValueError(f"holds a commit of version {repr(row.version)[:50]}")
    if (row.file_name is None) == (data is None):
        raise ValueError(f"has neither a file nor a content, or both, for version {row.version}")
    return RatifiedCommit(row.version, row.size, row.timestamp_ms, row.file_name, data)


def entry_of(row: Any, catalog: str) -> Entry:
    """The table of a row, once each column has a value that this client could have written.

    Args:
        row: the row.
        catalog: the name of the catalog, for messages.

    Raises:
        StorageError: a column has another one.
    """
    wrong = {
        "id": not isinstance(row.id, str) or _ID.fullmatch(row.id) is None,
        "name": not is_name(row.name.removeprefix(STAGING) if isinstance(row.name, str) else row.name),
        "location": not (isinstance(row.location, str) and is_location(row.location)),
        "managed": row.managed not in (0, 1),
        "commits": row.commits not in ("staged", "inline"),
        "latest": not _is_latest(row.latest),
        "published": not _is_whole(row.published, -1),
        "created_ms": not _is_whole(row.created_ms, 0),
    }
    for column, is_wrong in wrong.items():
        if is_wrong:
            raise _claim(catalog, column, getattr(row, column))
    return Entry(row.name, row.location, bool(row.managed), row.id, row.commits)


def _is_whole(value: object, least: int) -> bool:
    return type(value) is int and least <= value <= MAX_VERSION


def _is_latest(value: object) -> bool:
    return type(value) is int and _PURGED - _HIGHEST <= value <= _HIGHEST


def _claim(catalog: str, column: str, value: object) -> StorageError:
    return StorageError(f"{catalog} has a row with {repr(value)[:100]} as its {column}, which refdelta never writes")


def _file_of(url: sa.URL) -> str:
    """The path of a SQLite file, by its URL, which may have a URI of SQLite in it."""
    found = str(url.database)
    return found.removeprefix("file:") if url.query.get("uri") else found


class TakenError(Exception):
    """Internal: a row with this key is there.

    Attributes:
        name: the name of a table that differs in the case of letters alone; None for the same key.
    """

    def __init__(self, reason: str = "", name: str | None = None) -> None:
        super().__init__(reason)
        self.name = name


def check_name(connection: sa.Connection, name: str, table_id: str) -> None:
    """Refuse the name that a table has just taken if another one has it in another case of letters. Such checks of a
    database come one after the other: each sees the names that were taken before it.

    Raises:
        TakenError: there is one; nothing of the transaction is committed.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({_LOCK_OF_NAMES})"))
    others = connection.execute(sa.select(TABLES.c.name).where(TABLES.c.id != table_id))
    twin = next((other for (other,) in others if isinstance(other, str) and other.lower() == name.lower()), None)
    if twin is not None:
        raise TakenError(f"there is a table {twin!r}", twin)


class LostError(Exception):
    """Internal: a transaction may have been carried out or not."""


def unsealed(latest: int) -> int:
    """The latest version of a table that is being dropped, by the column ``latest`` of its row."""
    return (_PURGED if latest <= _PURGED - _CREATING else _SEALED) - latest


def is_sealed(row: Any) -> bool:
    """Whether a row is of a table that is being dropped."""
    return row is not None and row.latest < _CREATING
