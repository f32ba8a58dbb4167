"""The database of a :class:`~refdelta.catalog.SqlCatalog`: its connections, and an end to each wait for it.

One number of seconds bounds every wait: for a connection, for a lock that another session holds, for a statement, for
an answer over a network that passes nothing on, and for a connection of the pool. PostgreSQL is asked to end waits for
locks and statements a little earlier than the client does, so that it releases what they hold, and says which it was.

A SQLite file is read by the permissions that there are: see :func:`_open_sqlite`.
"""

from __future__ import annotations

import functools
import math
import os
import sqlite3
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from refdelta.errors import InvalidArgumentError

T = TypeVar("T")

TIMEOUT = 30.0
"""Seconds that a wait for the database may take unless another number is given."""

_LOCK, _STATEMENT, _PING = 0.8, 0.9, 1 / 3
"""The parts of the time after which PostgreSQL ends a wait for a lock and a statement, and an idle connection is given
up for a new one.
"""
_SECRET = ("pass", "secret", "token", "key")
_SESSION = "refdelta_session"
_FROZEN = "refdelta_frozen"
_WAITED = "refdelta_waited"
_IS_WAL = "refdelta_wal"
_READS = "refdelta_reads"
_NO_SHARED_MEMORY = {
    "SQLITE_CANTOPEN",
    "SQLITE_READONLY_CANTINIT",
    "SQLITE_READONLY_DIRECTORY",
    "SQLITE_READONLY_RECOVERY",
}
"""Errors of a write-ahead log that cannot be read as long as the files beside it cannot be made."""


def open_database(url: sa.URL, timeout: float) -> sa.Engine:
    """The engine of SQLAlchemy for a database.

    Args:
        url: its URL.
        timeout: after how many seconds a wait ends.

    Raises:
        InvalidArgumentError: it is a database in memory.
    """
    return (_open_sqlite if url.get_backend_name() == "sqlite" else _open_server)(url, timeout)


def shown(url: sa.URL) -> str:
    """The URL without its password, and without secrets among its parameters."""
    secret = [name for name in url.query if any(part in name.lower() for part in _SECRET)]
    return url.difference_update_query(secret).render_as_string(hide_password=True)


# --- waits ------------------------------------------------------------------------------------------------------------


class _Wait(threading.local):
    """The waits of a thread: when they began, and how many seconds each may take; both None without a limit."""

    began: float | None = None
    seconds: float | None = None


_WAIT = _Wait()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Let each wait for a database in this block end in this time, or in that of a block around it."""
    before = _WAIT.began, _WAIT.seconds
    _WAIT.began = time.monotonic() if before[0] is None else before[0]
    _WAIT.seconds = seconds if before[1] is None else min(seconds, before[1])
    try:
        yield
    finally:
        _WAIT.began, _WAIT.seconds = before


class Waits(threading.local):
    """How long a thread waits for a database. A wait that follows on one without an answer has half of its time, until
    an answer comes: a commit asks many times for its outcome, and all of that takes at most twice the time.

    Args:
        timeout: the seconds of a wait.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._left, self._silent_at = timeout, -math.inf

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Bound what is asked of the database in this block."""
        if time.monotonic() - self._silent_at > self.timeout:
            self._left = self.timeout
        with within(self._left):
            yield
        self._left = self.timeout

    def reason(self, error: exc.SQLAlchemyError) -> str:
        """The first line of the driver's message, without the statement; of a wait that ended, which one it was."""
        what = _ended(error)
        if what is None:
            return str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        if what in (_NO_CONNECTION, _NO_ANSWER):
            self._left, self._silent_at = self._left / 2, time.monotonic()
        now = time.monotonic()
        waited = getattr(error.orig, _WAITED, None) if isinstance(error, exc.DBAPIError) else None
        if waited is None:
            waited = now - (_WAIT.began or now)
        return (
            f"{what} after {waited:.1f} s; SqlCatalog(..., timeout=SECONDS) or --catalog-timeout sets the limit, which "
            f"is {self.timeout:g} s"
        )


_NO_CONNECTION, _NO_ANSWER = "the wait for a connection ended", "the wait for an answer ended"


def _ended(error: exc.SQLAlchemyError) -> str | None:
    """Which wait an error has ended; None if it is another error."""
    if isinstance(error, exc.TimeoutError):
        return "the wait for a connection ended, as all of this program's are in use,"
    cause = getattr(error, "orig", None)
    if isinstance(cause, sqlite3.Error):
        busy = getattr(cause, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
        return "the wait for a lock that another session holds ended" if busy else None
    if isinstance(cause, _no_answer()):
        return _NO_ANSWER
    if type(cause).__name__ == "ConnectionTimeout":
        return _NO_CONNECTION
    match getattr(cause, "sqlstate", None):
        case "55P03":
            return "the wait for a lock that another session holds ended"
        case "57014":
            return "the wait for a statement ended"
        case "25P03":
            return "the session was ended by the server, as this program did nothing amid a transaction,"
    return None


def is_repeatable(error: exc.SQLAlchemyError) -> bool:
    """Whether a transaction was rolled back since it met another one: a serialization failure or a deadlock."""
    return getattr(getattr(error, "orig", None), "sqlstate", None) in ("40001", "40P01")


def is_missing(error: exc.SQLAlchemyError) -> bool:
    """Whether a table of the catalog is not there. Databases that have no code for it say so for other errors, too."""
    cause = getattr(error, "orig", None)
    if isinstance(cause, sqlite3.Error):
        return str(cause).startswith("no such table")
    if hasattr(cause, "sqlstate"):
        return bool(getattr(cause, "sqlstate", None) == "42P01")
    return isinstance(error, exc.ProgrammingError)


# --- servers ----------------------------------------------------------------------------------------------------------


def _open_server(url: sa.URL, timeout: float) -> sa.Engine:
    # Of two writers, the second one is to see the version of the first, whatever the server's default level is.
    server = sa.create_engine(url, pool_pre_ping=True, pool_timeout=timeout, isolation_level="READ COMMITTED")
    if server.dialect.driver == "psycopg":
        whole = max(1, math.ceil(timeout))
        waits = {
            "connect_timeout": whole,
            "tcp_user_timeout": math.ceil(timeout * 1000),
            # A connection that does nothing and whose peer is gone is found before it is used.
            "keepalives_idle": whole,
            "keepalives_interval": max(1, whole // 3),
            "keepalives_count": 3,
        }

        @sa.event.listens_for(server, "do_connect")
        def _connect(_: Any, __: Any, arguments: Any, given: Any) -> Any:
            connection = _bounded_connection().connect(*arguments, **waits | given)
            connection.seconds = timeout
            return connection

        ping = server.dialect.do_ping

        def quick_ping(dbapi_connection: Any) -> bool:
            with within(timeout * _PING):
                return ping(dbapi_connection)

        server.dialect.do_ping = quick_ping  # type: ignore[method-assign]
    if url.get_backend_name() == "postgresql":
        _identify(server, functools.partial(_start_session, timeout))
    else:
        _identify(server, lambda _: "")
    return server


@functools.cache
def _no_answer() -> tuple[type[Exception], ...]:
    """The error of a connection that was given up; nothing without psycopg."""
    try:
        import psycopg
    except ModuleNotFoundError:
        return ()

    class NoAnswerError(psycopg.OperationalError):
        """The server did not answer in time."""

    return (NoAnswerError,)


@functools.cache
def _bounded_connection() -> Any:
    """The class of psycopg's connections, in which each wait for the server ends.

    A network that swallows packets is not seen by the kernel if something acknowledges them, such as a proxy.
    """
    import psycopg

    (error,) = _no_answer()

    class BoundedConnection(psycopg.Connection[Any]):
        seconds = TIMEOUT

        @classmethod
        def _connect_gen(cls, *arguments: Any, **options: Any) -> Any:
            # Without this, connect_timeout of libpq ends it, in whole seconds, and not before the second one.
            def give_up() -> NoReturn:
                raise psycopg.errors.ConnectionTimeout("the server did not accept the connection")

            return _until(_WAIT.seconds or math.inf, super()._connect_gen(*arguments, **options), give_up)

        def wait(self, gen: Any, interval: float | None = 0.1, timeout: float | None = None) -> Any:
            seconds = min(self.seconds if _WAIT.seconds is None else _WAIT.seconds, timeout or math.inf)

            def give_up() -> NoReturn:
                self.pgconn.finish()  # it may have an answer for a statement that is over
                raise error("the server gave no answer")

            return super().wait(_until(seconds, gen, give_up), max(0.001, min(interval or 0.1, seconds)))

    return BoundedConnection


def _until(seconds: float, waiting: Generator[Any, Any, T], give_up: Callable[[], NoReturn]) -> Generator[Any, Any, T]:
    """A generator of psycopg, which it resumes each tenth of a second at least, with an end. Notes in an error how long
    it took.
    """
    began = time.monotonic()
    try:
        wanted = next(waiting)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() - began >= seconds:
                waiting.close()
                give_up()
            wanted = waiting.send(ready)
    except StopIteration as ended:
        found: T = ended.value
        return found
    except Exception as error:
        setattr(error, _WAITED, time.monotonic() - began)
        raise


def _start_session(timeout: float, connection: Any) -> str:
    """Bound the waits of a new session of PostgreSQL. Returns the start of the server, and the number of its database.

    By ``set_config``, as poolers between refuse such settings among the parameters of a connection.
    """
    limits = {
        "lock_timeout": timeout * _LOCK,
        "statement_timeout": timeout * _STATEMENT,
        # A client that is gone amid a transaction holds the lock of a table no longer than that.
        "idle_in_transaction_session_timeout": timeout,
    }
    settings = ", ".join(f"set_config('{name}', '{math.ceil(limit * 1000)}', false)" for name, limit in limits.items())
    cursor = connection.cursor()
    cursor.execute(  # the settings are numbers
        f"SELECT pg_postmaster_start_time()::text, oid::text, {settings} FROM pg_database "  # noqa: S608
        "WHERE datname = current_database()"
    )
    found = " ".join(map(str, cursor.fetchone()[:2]))
    cursor.close()
    connection.commit()
    return found


# --- SQLite -----------------------------------------------------------------------------------------------------------


def _open_sqlite(url: sa.URL, timeout: float) -> sa.Engine:
    """The engine for a file of SQLite.

    To read takes no write lock, and no right to write. Only where the file has a write-ahead log, nothing has it open,
    and its folder cannot be written, SQLite cannot make the files beside it that it needs for its locks. Such a file is
    read as one that nothing changes (``immutable``), by a connection that serves for one statement, and it is looked at
    again afterwards.
    """
    if url.database in (None, "", ":memory:") or url.query.get("mode") == "memory":
        raise InvalidArgumentError(
            "a catalog cannot be in memory, where each thread has a database of its own: name a file, as "
            "sqlite:///catalog.db"
        )
    engine = sa.create_engine(url, connect_args={"timeout": timeout}, pool_timeout=timeout)
    path = os.path.abspath(str(url.database))  # noqa: PTH100 - it may be a URI of SQLite, which has no file
    _identify(engine, lambda _: _identity_of_file(path))

    @sa.event.listens_for(engine, "do_connect")
    def _connect(dialect: Any, record: Any, arguments: Any, given: Any) -> Any:
        connection = dialect.connect(*arguments, **given)
        try:
            connection.execute("PRAGMA schema_version").fetchone()
        except sqlite3.OperationalError as error:
            connection.close()
            # Not with the name of a file that is not there: that has failed before.
            if error.sqlite_errorname not in _NO_SHARED_MEMORY or str(url.database).startswith("file:"):
                raise
            state = _state_of_file(path)
            if state[-1]:
                raise sqlite3.OperationalError(
                    f"{path}-wal has changes that are not in the database yet, and they cannot be read where its "
                    "folder cannot be written: open the database once where it can be"
                ) from error
            connection = dialect.connect(f"{Path(path).as_uri()}?immutable=1", **given | {"uri": True})
            record.info[_FROZEN] = lambda: _state_of_file(path) == state
        return connection

    @sa.event.listens_for(engine, "checkout")
    def _checked_out(_: Any, record: Any, __: Any) -> None:
        # SQLite goes on with a file that was removed, and what it writes there is lost.
        if record.info[_SESSION].identity != _identity_of_file(path):
            raise exc.DisconnectionError

    @sa.event.listens_for(engine, "checkin")
    def _checked_in(connection: Any, record: Any) -> None:
        if connection is not None and _FROZEN in record.info:
            record.invalidate()

    @sa.event.listens_for(engine, "connect")
    def _connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # so that a transaction begins as below, and not at some later statement
        connection.execute("PRAGMA synchronous = FULL").close()

    @sa.event.listens_for(engine, "begin")
    def _began(connection: sa.Connection) -> None:
        # A transaction that reads first and then writes would fail where another one wrote in between.
        if not connection.get_execution_options().get(_READS):
            if not connection.info.get(_IS_WAL):
                _use_wal(connection, timeout)
                connection.info[_IS_WAL] = True
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _state_of_file(path: str) -> tuple[int, ...]:
    """The marks of a file of SQLite that change with it; the last is the size of its write-ahead log."""
    found = os.stat(path)  # noqa: PTH116 - as below
    try:
        size = os.stat(f"{path}-wal").st_size  # noqa: PTH116 - as below
    except FileNotFoundError:
        size = 0
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, size


def _use_wal(connection: sa.Connection, timeout: float) -> None:
    """Turn the write-ahead log on. Of several that do so with a new database at once, SQLite fails all but one without
    a wait, as each holds a lock that another one needs: its timeout does not apply here.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection.exec_driver_sql("PRAGMA journal_mode = WAL").close()
        except exc.OperationalError as error:
            busy = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return


# --- sessions ---------------------------------------------------------------------------------------------------------


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


def session_of(connection: sa.Connection) -> str:
    """The name of the session of a connection."""
    session: _Session = connection.info[_SESSION]
    return session.name


def is_in_place(connection: sa.Connection) -> bool:
    """Whether the file of the database is still the one that is open; for a server, its connection shows that."""
    session: _Session = connection.info[_SESSION]
    return connection.dialect.name != "sqlite" or session.current() == session.identity


def at_once(connection: sa.Connection) -> sa.Connection:
    """The connection for one statement that reads, which needs no transaction around it."""
    if connection.dialect.name == "sqlite":
        return connection.execution_options(**{_READS: True})
    return connection.execution_options(isolation_level="AUTOCOMMIT")


def was_stable(connection: sa.Connection) -> bool:
    """Whether what was read is of one moment: a file that was read as one that nothing changes was not changed."""
    return bool(connection.info.get(_FROZEN, lambda: True)())
