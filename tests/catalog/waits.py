"""A search for waits of a :class:`SqlCatalog` that do not end, and for what is told of them: each statement, with a
network that is silent from each of its packets on, or a lock that another session holds.

``python -m catalog.waits [STEP]``, in ``tests``, plays all of it, and prints its findings.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from refdelta import errors, write_deltalake
from refdelta.catalog import SqlCatalog
from refdelta.catalog.sql import TABLES
from refdelta.transaction import background
from servers.postgres import PostgresServer
from waiting import until

SCHEMA = pa.schema({"id": pa.int64()})
NAME, NEW, OTHER = "sales.orders", "archive.orders", "sales.files"
TIMEOUT = 0.3
_MOST = 30.0
UNKNOWN = ("not known", "gave no answer")
WHERE = ("request", "reply")
"""Whether the packet itself is swallowed, or the answer to it; and all after that."""


class Swallowing:
    """A proxy between clients and a server, which accepts connections and passes packets on, until it does not.

    Args:
        port: of the server.

    Attributes:
        port: its own.
        sent: how many packets clients have sent.
        silent_from: the packet from which on it passes nothing on; None for never.
        where: one of :data:`WHERE`.
        forever: whether connections that are opened afterwards are silent, too.
    """

    def __init__(self, port: int) -> None:
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.sent, self.silent_from, self.where, self.forever = 0, None, "request", True
        self._is_silent = False
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def silence(self, at: int, where: str, *, forever: bool) -> None:
        """Be silent from this packet on, as counted from now."""
        with self._lock:
            self.sent, self.silent_from, self.where, self.forever = 0, at, where, forever

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server))
                self._open += [client, server]
                muted = threading.Event()
                if self._is_silent and self.forever:
                    muted.set()
                for source, target in ((client, server), (server, client)):
                    threading.Thread(
                        target=self._pass, args=(source, target, source is client, muted), daemon=True
                    ).start()

    def _pass(self, source: socket.socket, target: socket.socket, asks: bool, muted: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if asks and not muted.is_set():
                    with self._lock:
                        met = self.silent_from is not None and self.sent >= self.silent_from and not self._is_silent
                        self.sent += 1
                        self._is_silent = self._is_silent or met
                    if met:
                        muted.set()
                        if self.where == "reply":
                            target.sendall(data)
                    else:
                        target.sendall(data)
                elif not muted.is_set():
                    target.sendall(data)
            if not muted.is_set():  # otherwise the other side hears of no end, as of nothing else
                target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close it and its connections."""
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def opened(url: str, folder: Path, timeout: float = TIMEOUT) -> SqlCatalog:
    """A catalog whose waits end soon."""
    return SqlCatalog(url, str(folder / "warehouse"), locations=[folder], timeout=timeout)


def opened_before(url: str, folder: Path) -> tuple[SqlCatalog, Any]:
    """As :func:`opened`, with a handle of the table, on a machine that may be slow."""
    for left in reversed(range(20)):
        try:
            catalog = opened(url, folder)
            return catalog, catalog.table(NAME)
        except errors.StoreError:
            if not left:
                raise
    raise AssertionError


@dataclass
class World:
    """A catalog in a new database, with a table that has rows, one of which is not published; and a table of files.

    Attributes:
        direct: the catalog, past the proxy.
    """

    url: str
    folder: Path

    def __post_init__(self) -> None:
        self.direct = SqlCatalog(self.url, str(self.folder / "warehouse"), locations=[self.folder])
        table = self.direct.create_table(NAME, SCHEMA, commits="inline", location=self.folder / "t")
        write_deltalake(table, pa.table({"id": [1]}), mode="append")
        write_deltalake(self.folder / "files", pa.table({"id": [1]}))
        background.settle(table.store.uri)

    def rows(self) -> list[int]:
        """The rows of the table."""
        return sorted(self.direct.table(NAME).to_pyarrow_table().column("id").to_pylist())

    def has_row(self) -> bool:
        """Whether the database has a row of the table, be it sealed."""
        with self.direct._database.connect() as connection:
            return bool(connection.execute(sa.select(TABLES.c.id).where(TABLES.c.name == NAME)).all())


def _append(_: SqlCatalog, handle: Any) -> Any:
    found = write_deltalake(handle, pa.table({"id": [2]}, SCHEMA), mode="append")
    background.settle(handle.store.uri)
    return found


STATEMENTS: dict[str, tuple[Callable[[SqlCatalog, Any], Any], Callable[[World], bool] | None]] = {
    "tables": (lambda c, _: c.tables(), None),
    "table": (lambda c, _: c.table(NAME).count(), None),
    "count": (lambda _, t: t.count(), None),
    "history": (lambda _, t: t.history(), None),
    "snapshot": (lambda _, t: t.update_incremental(), None),
    "append": (_append, lambda w: w.rows() == [1, 2]),
    "create": (lambda c, _: c.create_table(NEW, SCHEMA), lambda w: NEW in w.direct.tables()),
    "register": (
        lambda c, _: c.register_table(OTHER, c.folder / "files"),
        lambda w: OTHER in w.direct.tables(),
    ),
    "rename": (lambda c, _: c.rename_table(NAME, NEW), lambda w: w.direct.tables() == [NEW]),
    # A drop that does not come to its end leaves a table that is sealed, and can be repeated.
    "drop": (lambda c, _: c.drop_table(NAME), lambda w: not w.has_row()),
    "purge": (lambda c, _: c.drop_table(NAME, purge=True), lambda w: not w.has_row()),
    "publish": (lambda c, _: c.publish(NAME), None),
    "adopt": (lambda c, _: c.adopt(NAME), None),
}
"""What is asked of a catalog, and whether it has its effect; None if it has none that another program sees."""
READS = ("tables", "table", "count", "history", "snapshot")
WRITES = tuple(name for name, (_, done) in STATEMENTS.items() if done is not None)


def refusals(catalog: SqlCatalog, folder: Path) -> dict[str, str]:
    """Run what only reads and what writes, and return what those told that failed, by their names."""
    catalog.folder = folder  # type: ignore[attr-defined]
    handle, found = catalog.table(NAME), {}
    for name in (*READS, *WRITES):
        try:
            STATEMENTS[name][0](catalog, handle)
        except errors.StoreError as error:
            found[name] = str(error)
    return found


@dataclass
class Told:
    """What a statement has told, in how many seconds; None for the seconds if it does not end."""

    error: BaseException | None = None
    seconds: float | None = None

    @property
    def is_unknown(self) -> bool:
        """Whether it says that it does not know its outcome."""
        return isinstance(self.error, errors.CommitOutcomeUnknownError) or any(
            words in str(self.error) for words in UNKNOWN
        )


def take(run: Callable[[], Any], most: float = _MOST) -> Told:
    """Run a statement in a thread of its own, for it may not end."""
    told = Told()

    def runs() -> None:
        began = time.monotonic()
        try:
            run()
        except BaseException as error:
            told.error = error
        told.seconds = time.monotonic() - began

    thread = threading.Thread(target=runs, daemon=True)
    thread.start()
    thread.join(most)
    return told


@dataclass
class Played:
    """One schedule, and what is wrong with it."""

    statement: str
    at: int
    where: str
    forever: bool
    told: Told
    wrong: list[str] = field(default_factory=list)
    within: bool = True

    def __str__(self) -> str:
        how = f"{self.statement}, silent from packet {self.at} ({self.where}{', for ever' if self.forever else ''})"
        return f"{how}: {'; '.join(self.wrong)}: {self.told.error!r}"


def play(server: PostgresServer, statement: str, at: int, where: str, *, forever: bool, fresh: bool) -> Played:
    """Play one schedule.

    Args:
        server: a server.
        statement: a name of :data:`STATEMENTS`.
        at: the packet from which on the network is silent.
        where: one of :data:`WHERE`.
        forever: whether new connections are silent, too.
        fresh: whether the catalog is opened within the statement.
    """
    run, done = STATEMENTS[statement]
    with tempfile.TemporaryDirectory(prefix="refdelta-waits-", ignore_cleanup_errors=True) as name:
        world = World(server.database(), Path(name))
        proxy = Swallowing(server.port)
        try:
            url = world.url.replace(f":{server.port}/", f":{proxy.port}/")
            catalog = handle = None
            if not fresh:
                catalog, handle = opened_before(url, world.folder)
                catalog.folder = world.folder  # type: ignore[attr-defined]
            proxy.silence(at, where, forever=forever)

            def runs() -> None:
                used = catalog
                if used is None:
                    used = opened(url, world.folder)
                    used.folder = world.folder  # type: ignore[attr-defined]
                run(used, used.table(NAME) if handle is None and statement not in ("tables", "table") else handle)

            told = take(runs)
            played = Played(statement, at, where, forever, told, within=proxy.sent > at)
            if told.seconds is None:
                played.wrong.append("does not end")
            elif told.error is not None and not isinstance(told.error, errors.DeltaError):
                played.wrong.append(f"raised {type(told.error).__name__}")
            settled(server)
            if done is not None and told.seconds is not None:
                has = done(world)
                if told.error is None and not has:
                    played.wrong.append("reported success without its effect")
                elif told.error is not None and has and not told.is_unknown:
                    played.wrong.append("reported a failure, and has its effect")
            if statement not in ("rename", "drop", "purge") and world.rows()[:1] != [1]:
                played.wrong.append("a row is lost")
            world.direct.close()
            if catalog is not None:
                catalog.close()
        finally:
            proxy.close()
    return played


def settled(server: PostgresServer) -> None:
    """Wait until no session of the proxy is amid a transaction."""
    asked = "select count(*) from pg_stat_activity where state not in ('idle') and pid <> pg_backend_pid()"
    with server.session() as connection:
        until(lambda: connection.execute(asked).fetchone()[0] == 0)


def search(server: PostgresServer, statements: Iterable[str] = tuple(STATEMENTS), step: int = 1) -> Iterator[Played]:
    """Play each statement with silence from each of its packets on, or each so many."""
    for statement, where, forever in itertools.product(statements, WHERE, (True, False)):
        fresh = statement == "tables"  # the others find their connection open
        for at in itertools.count(0, step):
            played = play(server, statement, at, where, forever=forever, fresh=fresh)
            if not played.within:
                break
            yield played


# --- locks ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def sqlite_lock(path: Path, lock: str) -> Iterator[None]:
    """Another session that holds a lock of a SQLite file: ``write``, ``exclusive``."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as session:
        session.execute("BEGIN IMMEDIATE" if lock == "write" else "BEGIN EXCLUSIVE")
        session.execute("update refdelta_tables set published = published")
        yield


POSTGRES_LOCKS = {
    "row": "select * from refdelta_tables for update",
    "tables": "lock table refdelta_tables in access exclusive mode",
    "commits": "lock table refdelta_commits in access exclusive mode",
    "schema": "lock table refdelta_schema in access exclusive mode",
}


@contextlib.contextmanager
def postgres_lock(server: PostgresServer, url: str, lock: str) -> Iterator[None]:
    """Another session that holds a lock of PostgreSQL."""
    import urllib.parse

    import psycopg

    options = urllib.parse.unquote(url.partition("options=")[2])
    with psycopg.connect(host="127.0.0.1", port=server.port, user="refdelta", dbname="postgres", options=options) as c:
        c.execute(POSTGRES_LOCKS[lock])
        yield
        c.rollback()


def main(step: int = 1) -> None:
    """Play all of it, or silence from each so many packets on."""
    server = PostgresServer()
    server.start()
    began, count, wrong, slowest = time.monotonic(), Counter[str](), [], 0.0
    lock = threading.Lock()

    def one(statement: str) -> None:
        nonlocal slowest
        for played in search(server, (statement,), step):
            with lock:
                count[statement] += 1
                slowest = max(slowest, played.told.seconds or 0.0)
                if played.wrong:
                    wrong.append(played)
                    print(played, flush=True)

    try:
        with ThreadPoolExecutor(len(STATEMENTS)) as pool:
            [*pool.map(one, STATEMENTS)]
    finally:
        print(f"{count.total()} schedules, {dict(count)}; slowest {slowest:.1f} s; {time.monotonic() - began:.0f} s")
        print(Counter(kind for played in wrong for kind in played.wrong))
        server.stop()
    sys.stdout.flush()
    os._exit(0)  # with threads that do not end


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
