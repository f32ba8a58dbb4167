"""``SqlCatalog``: a catalog in a database. SQLite serves the processes of one machine, PostgreSQL several machines.

Three tables: the version of this schema, the Delta tables, and their ratified commits that are not known to be
published. A commit is ratified by one transaction of the database: it moves the table's latest version from v - 1 to v,
if the table is still the one that was opened, and inserts the commit. The row of the table is the lock: of two writers
that propose the same version, the second one finds the version taken.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from refdelta.arguments import missing_package
from refdelta.catalog.base import Catalog, CommitMode, Entry, checked_name, not_found
from refdelta.engine.log.managed_log import CatalogReplacedError, Ratified, RatifiedCommit, Refused
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import InvalidArgumentError, TableAlreadyExistsError, TableNotFoundError
from refdelta_storage import Created, StorageError, Unknown

try:
    import sqlalchemy as sa
    from sqlalchemy import exc
except ModuleNotFoundError:
    raise missing_package("SqlCatalog", "sqlalchemy", "catalog") from None

if TYPE_CHECKING:
    from collections.abc import Mapping

    from refdelta.engine.log.managed_log import Ratifier

SCHEMA_VERSION = 1
_BUSY_MS = 30_000
_WINNERS = 100
_SCHEMA_LOCK = 7_360_142_901_245_001
_CREATING = -1
_SEALED = -3
_PURGED = -(10**15)
_TRIES = 3

_META = sa.MetaData()
_SCHEMA = sa.Table("refdelta_schema", _META, sa.Column("version", sa.Integer, nullable=False))
TABLES = sa.Table(
    "refdelta_tables",
    _META,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("name", sa.String(1024), nullable=False, unique=True),
    sa.Column("location", sa.Text, nullable=False),
    sa.Column("managed", sa.Boolean, nullable=False),
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
    sa.Column("data", sa.LargeBinary),
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
_MOVE = (
    sa.update(TABLES)
    .where(
        TABLES.c.id == sa.bindparam("table"),
        TABLES.c.latest == sa.bindparam("before"),
        TABLES.c.created_ms == sa.bindparam("since"),
    )
    .values(latest=sa.bindparam("after"))
)
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

    Raises:
        InvalidArgumentError: the URL is wrong, or its driver or SQLAlchemy is not installed.
        StoreError: the database cannot be reached.

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
    ) -> None:
        super().__init__(storage_options)
        try:
            self._url = sa.make_url(url)
            self._engine = _open(self._url)
        except (exc.ArgumentError, exc.NoSuchModuleError, ModuleNotFoundError) as error:
            raise InvalidArgumentError(f"not the URL of a database that can be opened: {error}") from None
        self._warehouse = None if warehouse is None else os.fspath(warehouse).rstrip("/")
        self._process = os.getpid()
        # A catalog that is forgotten closes its connections.
        self._closing = weakref.finalize(self, self._engine.dispose)
        with store_errors("open the catalog"):
            self._make_schema()

    def __reduce__(self) -> tuple[Any, ...]:
        url = self._url.render_as_string(hide_password=False)
        return type(self), (url, self._warehouse, self._options)

    def close(self) -> None:
        """Close the connections to the database, as the end of a ``with`` block does. The catalog and its tables can be
        used again, over new connections.

        Example::

            catalog = SqlCatalog(f"sqlite:///{folder}/catalog.db")
            catalog.close()
        """
        self.engine.dispose()

    @property
    def name(self) -> str:
        """The URL without its password."""
        return self._url.render_as_string(hide_password=True)

    def tables(self, namespace: str | None = None) -> list[str]:
        """The names of the tables, in order.

        Args:
            namespace: only those in this namespace, and in those below it; None for all.

        Example::

            SqlCatalog(f"sqlite:///{folder}/catalog.db").tables()
        """
        with store_errors("list the tables"):
            names = self._names()
        return names if namespace is None else [name for name in names if name.startswith(f"{namespace}.")]

    def _names(self) -> list[str]:
        with self.reading("list the tables") as connection:
            found = connection.execute(sa.select(TABLES.c.name).where(TABLES.c.latest >= 0))
            return sorted(name for (name,) in found)

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
            new,
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
        self._change(f"create {entry.name}", entry, [sa.insert(TABLES).values(row)], lambda row: row is not None)

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
        with self.reading(f"look up {name}") as connection:
            row = connection.execute(sa.select(TABLES).where(TABLES.c.name == name)).one_or_none()
        if row is None or (row.latest < 0 and not staging):
            raise not_found(name, self.name, self._names())
        return Entry(row.name, row.location, row.managed, row.id, row.commits)

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
        name: str | None = None,
    ) -> bool:
        """Carry out one conditional change of a table: a transaction, whose first statement has the condition.

        If the reply to its end is lost, the table's row shows whether it was carried out. If it was not, it is sent
        again, which does no harm to one that arrives late: the condition does not hold any more.

        Args:
            what: the attempted action, for messages.
            entry: the table.
            statements: the statements; the first one changes the row of the table by its id.
            done: whether the change was carried out, by that row, or by None if there is none.
            name: the name that the table takes; None for its own.

        Returns:
            False if the condition did not hold.

        Raises:
            StorageError: the database failed, and nothing was changed; or it is not known whether something was.
            TableAlreadyExistsError: the name is taken.
        """
        lost: _LostError | None = None
        for _ in range(_TRIES):
            applied = False
            try:
                applied = self._transaction(what, statements)
            except _LostError as error:
                lost = error
            except _TakenError:
                if lost is not None and done(self._by_id(entry)):
                    return True  # by the attempt whose reply was lost
                raise TableAlreadyExistsError(
                    f"the catalog {self.name} has a table {name or entry.name!r}, or one is being created or "
                    "dropped; drop_table removes one whose creation or drop did not end"
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

    def _transaction(self, what: str, statements: Sequence[sa.Executable]) -> bool:
        """Carry out statements, if the first one changes a row. Raises ``_LostError`` if it may have been done."""
        settling = False
        try:
            with self.engine.connect() as connection:
                if connection.execute(statements[0]).rowcount == 0:  # of an INSERT it may be unknown, -1
                    return False
                for statement in statements[1:]:
                    connection.execute(statement)
                settling = True
                connection.commit()
                if not _is_in_place(connection):
                    raise _LostError("the file of the database was replaced meanwhile")
        except exc.IntegrityError as error:
            raise _TakenError from error
        except exc.SQLAlchemyError as error:
            if settling:
                raise _LostError(_reason(error)) from error
            raise StorageError(f"cannot {what}: {self.name} failed: {_reason(error)}") from error
        return True

    def _by_id(self, entry: Entry) -> Any:
        """The row of a table by its id; None if there is none."""
        with self.reading(f"look up {entry.name}") as connection:
            return connection.execute(sa.select(TABLES).where(TABLES.c.id == entry.table_id)).one_or_none()

    def _gone(self, entry: Entry) -> TableNotFoundError:
        return TableNotFoundError(
            f"the catalog {self.name} has no table {entry.name} any more (with the id {entry.table_id}): another "
            "program has dropped or renamed it"
        )

    def _ratifier(self, entry: Entry) -> Ratifier:
        return SqlRatifier(self, entry)

    # --- the database ---

    @property
    def engine(self) -> sa.Engine:
        """The engine of SQLAlchemy. A forked process has connections of its own."""
        if self._process != os.getpid():
            self._engine.dispose(close=False)
            self._process = os.getpid()
        return self._engine

    def _make_schema(self) -> None:
        with self.writing("open the catalog", "") as connection:
            if connection.dialect.name == "postgresql":  # two that create a table at once would fail
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_SCHEMA_LOCK)))
            _META.create_all(connection)
            found = connection.execute(sa.select(_SCHEMA.c.version)).scalars().all()
            if not found:
                connection.execute(sa.insert(_SCHEMA).values(version=SCHEMA_VERSION))
            elif max(found) > SCHEMA_VERSION:
                raise InvalidArgumentError(
                    f"{self.name} was made by a newer refdelta: its schema has version {max(found)}, and this "
                    f"one knows version {SCHEMA_VERSION}"
                )

    @contextmanager
    def reading(self, what: str) -> Iterator[sa.Connection]:
        """A connection for one statement that reads. Raises ``StorageError``; ``what`` is the attempted action."""
        with _errors(what, self.name), self.engine.connect() as connection:
            yield _at_once(connection)

    @contextmanager
    def writing(self, what: str, name: str = "") -> Iterator[sa.Connection]:
        """A connection in a transaction, which is committed at the end of the block.

        Args:
            what: the attempted action, for messages.
            name: the name that a new row takes.

        Raises:
            StorageError: the database failed.
            TableAlreadyExistsError: the name is taken.
        """
        try:
            with _errors(what, self.name), self.engine.begin() as connection:
                yield connection
        except _TakenError:
            raise TableAlreadyExistsError(
                f"the catalog {self.name} has a table {name!r}, or one is being created; drop_table removes one whose "
                "creation did not end"
            ) from None


class SqlRatifier:
    """The part of a :class:`SqlCatalog` that is for one table, a
    :class:`~refdelta.engine.log.managed_log.Ratifier`.
    """

    maintenance: str | None = None

    def __init__(self, catalog: SqlCatalog, entry: Entry) -> None:
        self._catalog, self._entry = catalog, entry
        self._sealed = False
        self._confirmed: str | None = None
        self.inline = entry.commits == "inline"

    @property
    def name(self) -> str:
        """The table and its catalog, for messages."""
        return f"{self._entry.name} of the catalog {self._catalog.name}"

    def ratified(self, first: int = 0) -> Ratified:
        """One statement, so that the version and the commits are of one moment."""
        with self._catalog.reading(f"ask for the versions of {self._entry.name}") as connection:
            rows = connection.execute(_ASK, {"table": self._entry.table_id, "first": first}).all()
            session = _session(connection)
        if not rows:
            raise StorageError(f"the catalog {self._catalog.name} has no table {self._entry.name} any more")
        latest = rows[0].latest
        self._sealed = latest < _CREATING
        if self._sealed:
            latest = unsealed(latest)
        return Ratified(
            latest,
            tuple(map(_commit, (row for row in rows if row.version is not None))),
            f"{session} {rows[0].created_ms}",
        )

    def propose(self, commit: RatifiedCommit) -> Created | Refused | Unknown:
        """One transaction: the version moves by one, and the commit is there."""
        table = self._entry.table_id
        settling = False
        try:
            with self._catalog.engine.connect() as connection:
                versions = {"before": commit.version - 1, "after": commit.version, "since": self._since(connection)}
                moved = connection.execute(_MOVE, {"table": table, **versions})
                is_next = moved.rowcount == 1
                if is_next:
                    row = {
                        "table_id": table,
                        "version": commit.version,
                        "file_name": commit.file_name,
                        "size": commit.size,
                        "timestamp_ms": commit.timestamp_ms,
                        "data": commit.data if self.inline else None,
                    }
                    connection.execute(_RECORD, row)
                    settling = True
                    connection.commit()
                    if not _is_in_place(connection):
                        return Unknown(StorageError("the file of the database was replaced meanwhile"))
        except exc.SQLAlchemyError as error:
            if settling:
                return Unknown(error)
            raise StorageError(
                f"{self._catalog.name} did not ratify version {commit.version}: {_reason(error)}"
            ) from error
        # Not while the first connection is held: many threads that want a second one would wait for each other.
        return Created() if is_next else self._refused(commit)

    def _refused(self, commit: RatifiedCommit) -> Refused:
        answer = self.ratified(commit.version)
        if self._sealed:
            raise StorageError(f"version {commit.version} is not ratified: {self.name} is being dropped")
        if answer.session != self._confirmed:
            raise CatalogReplacedError(f"{self._catalog.name} has dropped versions of {self.name}")
        if answer.latest < commit.version - 1:
            raise StorageError(
                f"version {commit.version} of {self._entry.name} cannot be ratified: the latest is {answer.latest}"
            )
        return Refused(answer.commits[:_WINNERS])

    def published(self, version: int) -> None:
        """Forget the commits up to this version: readers find them in the log."""
        given = {"table": self._entry.table_id, "note": version}
        with self._catalog.writing(f"note what is published of {self._entry.name}") as connection:
            given["since"] = self._since(connection)
            if connection.execute(_NOTED, given).rowcount:
                connection.execute(_FORGET, {"table": self._entry.table_id, "note": version})

    def confirm(self, session: str) -> None:
        """Change nothing but in this database."""
        self._confirmed = session

    def _since(self, connection: sa.Connection) -> int:
        """The ``created_ms`` of the table's row that was confirmed, if the connection is to the same database."""
        session, _, since = (self._confirmed or "").rpartition(" ")
        if _session(connection) != session:
            raise CatalogReplacedError(f"{self._catalog.name} is not known to agree with the folder of {self.name}")
        return int(since)


def _commit(row: Any) -> RatifiedCommit:
    return RatifiedCommit(row.version, row.size, row.timestamp_ms, row.file_name, row.data)


def _open(url: sa.URL) -> sa.Engine:
    if url.get_backend_name() != "sqlite":
        # Of two writers, the second one is to see the version of the first, whatever the server's default level is.
        server = sa.create_engine(url, pool_pre_ping=True, isolation_level="READ COMMITTED")
        _identify(server, _identity_of_server if url.get_backend_name() == "postgresql" else lambda _: "")
        return server
    if url.database in (None, "", ":memory:") or url.query.get("mode") == "memory":
        raise InvalidArgumentError(
            "a catalog cannot be in memory, where each thread has a database of its own: name a file, as "
            "sqlite:///catalog.db"
        )
    engine = sa.create_engine(url, connect_args={"timeout": _BUSY_MS / 1000})
    path = os.path.abspath(str(url.database))  # noqa: PTH100 - it may be a URI of SQLite, which has no file
    _identify(engine, lambda _: _identity_of_file(path))

    @sa.event.listens_for(engine, "checkout")
    def _checked_out(_: Any, record: Any, __: Any) -> None:
        # SQLite goes on with a file that was removed, and what it writes there is lost.
        if record.info[_SESSION].identity != _identity_of_file(path):
            raise exc.DisconnectionError

    @sa.event.listens_for(engine, "connect")
    def _connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # so that a transaction begins as below, and not at some later statement
        cursor = connection.cursor()
        _use_wal(cursor)
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def _began(connection: sa.Connection) -> None:
        # A transaction that reads first and then writes would fail where another one wrote in between.
        if not connection.get_execution_options().get(_READS):
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


_SESSION = "refdelta_session"


class _Session:
    """The database to which connections are open. Another one in its place has another session.

    Attributes:
        name: a name that no other one has.
        identity: what is known of the database: its file, or the start of its server.
        current: returns that of the database which is there now.
    """

    def __init__(self, identity: str, current: Callable[[], str]) -> None:
        self.name, self.identity, self.current = f"{identity} {uuid.uuid4()}", identity, current


def _identify(engine: sa.Engine, identity_of: Callable[[Any], str]) -> None:
    """Give each connection its session. Those of one database have the same one while one of them is open: a file
    that is open keeps its number.
    """
    sessions: weakref.WeakValueDictionary[str, _Session] = weakref.WeakValueDictionary()
    lock = threading.Lock()

    @sa.event.listens_for(engine, "connect")
    def _connected(connection: Any, record: Any) -> None:
        identity = identity_of(connection)
        with lock:
            record.info[_SESSION] = sessions.get(identity) or _Session(identity, lambda: identity_of(None))
            sessions[identity] = record.info[_SESSION]

    @sa.event.listens_for(engine, "close")
    def _closed(_: Any, record: Any) -> None:
        record.info.pop(_SESSION, None)


def _identity_of_file(path: str) -> str:
    try:
        found = os.stat(path)  # noqa: PTH116 - of each connection that is taken
    except OSError:
        return ""
    return f"{found.st_dev} {found.st_ino}"


def _identity_of_server(connection: Any) -> str:
    """The start of the server, and the number of the database in it."""
    cursor = connection.cursor()
    cursor.execute(
        "SELECT pg_postmaster_start_time()::text, oid::text FROM pg_database WHERE datname = current_database()"
    )
    found = " ".join(map(str, cursor.fetchone()))
    cursor.close()
    connection.rollback()
    return found


def _session(connection: sa.Connection) -> str:
    session: _Session = connection.info[_SESSION]
    return session.name


def _is_in_place(connection: sa.Connection) -> bool:
    """Whether the file of the database is still the one that is open; for a server, its connection shows that."""
    session: _Session = connection.info[_SESSION]
    return connection.dialect.name != "sqlite" or session.current() == session.identity


def _use_wal(cursor: sqlite3.Cursor) -> None:
    """Turn the write-ahead log on. Of several that do so with a new database at once, SQLite fails all but one without
    a wait, as each holds a lock that another one needs: its timeout does not apply here.
    """
    deadline = time.monotonic() + _BUSY_MS / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return


_READS = "refdelta_reads"


def _at_once(connection: sa.Connection) -> sa.Connection:
    """The connection for one statement that reads, which needs no transaction around it."""
    if connection.dialect.name == "sqlite":
        return connection.execution_options(**{_READS: True})
    return connection.execution_options(isolation_level="AUTOCOMMIT")


class _TakenError(Exception):
    """Internal: a row with this key is there."""


class _LostError(Exception):
    """Internal: a transaction may have been carried out or not."""


def unsealed(latest: int) -> int:
    """The latest version of a table that is being dropped, by the column ``latest`` of its row."""
    return (_PURGED if latest <= _PURGED - _CREATING else _SEALED) - latest


def is_sealed(row: Any) -> bool:
    """Whether a row is of a table that is being dropped."""
    return row is not None and row.latest < _CREATING


@contextmanager
def _errors(what: str, catalog: str) -> Iterator[None]:
    try:
        yield
    except exc.IntegrityError as error:
        raise _TakenError from error
    except exc.SQLAlchemyError as error:
        raise StorageError(f"cannot {what}: {catalog} failed: {_reason(error)}") from error


def _reason(error: exc.SQLAlchemyError) -> str:
    """The first line of the driver's message, without the statement."""
    return str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
