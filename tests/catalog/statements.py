"""Schedules of one statement of a client of ``refdelta serve``, whose requests are lost, doubled and delayed, beside a
program of another client that uses the same names; and the oracle for what each of the two was told.

Server and clients are in one thread. :class:`Wire` carries the requests of the first client; before and after each of
them the other client's program can run as a whole. The oracle reads the database and the folders without the engine.

:func:`search` plays every program, at every moment, with every fault of the requests that change something.
:func:`play` runs one schedule, and returns the faults that the oracle finds.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa
import urllib3

from refdelta import CommitProperties, DeltaTable, errors, write_deltalake
from refdelta.catalog import UnityCatalog, unity_http
from refdelta.catalog.server import make_app
from refdelta.catalog.service import open_served
from refdelta_storage import StorageError

TOKEN = "a-token-of-the-tests-0123456789"
SCHEMA = pa.schema({"id": pa.int64()})
ORDERS, ARCHIVE, AWAY = "main.sales.orders", "main.sales.archive", "main.sales.away"
NOTE = "of the first client"
_REPEATS = 6  # of a request that the schedules tell apart; a commit in doubt asks for up to a hundred times
UNKNOWN = "is not known"
"""In the message of a statement whose outcome is not known."""

FAULTS = ("lost request", "lost reply", "twice", "late")
"""Of one request that changes something. ``late``: its client is told that the connection broke, and the server gets
the request after the statement has ended.
"""

STATEMENTS = ("create", "drop", "purge", "rename", "append", "alter", "publish")
PROGRAMS = ("nothing", "drop", "anew", "rename", "replace", "append", "publish", "archive")
"""Of the other client: ``anew`` drops the table and creates another one of its name, ``replace`` renames it first;
``archive`` creates a table of the name that the first client renames its table to.
"""


class Broken(StorageError):
    """The server ends here."""


class Schedule(NamedTuple):
    """One schedule.

    Attributes:
        statement: one of :data:`STATEMENTS`.
        program: one of :data:`PROGRAMS`.
        request: the request of the first client next to which the program runs, from 0.
        after: whether it runs after that request was carried out, and not before.
        faults: of the requests that change something, in their order; the others arrive. ``silence`` means that no
            reply comes from that request on.
    """

    statement: str
    program: str
    request: int
    after: bool
    faults: tuple[str | None, ...] = ()


class Played(NamedTuple):
    """The end of a schedule.

    Attributes:
        schedule: the schedule.
        found: the kinds of the faults that the oracle found.
        told: the error that the statement raised.
        asked: the requests of the first client, as method and path.
        within: whether the other client's program ran before the statement ended.
    """

    schedule: Schedule
    found: list[str]
    told: Exception | None
    asked: list[str]
    within: bool


class _Reply:
    """The part of urllib3's reply that the client uses."""

    def __init__(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.status, self.headers, self._content = status, headers, content

    def read(self, _most: int, *, decode_content: bool) -> bytes:
        assert decode_content
        return self._content

    def release_conn(self) -> None:
        """There is no connection."""


Request = tuple[str, str, bytes, dict[str, str]]


@dataclass
class Server:
    """``refdelta serve`` in this thread, over a folder."""

    folder: Path
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.catalog = open_served(f"sqlite:///{self.folder}/catalog.db", str(self.folder / "warehouse"), None)
        self.app = make_app(self.catalog, [TOKEN], **self.options)
        self.runner = asyncio.Runner()

    def answer(self, request: Request) -> _Reply:
        """Carry one request out."""
        method, target, body, headers = request
        place = urlsplit(target)
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": place.path,
            "raw_path": place.path.encode(),
            "query_string": place.query.encode(),
            "headers": [
                *((name.lower().encode(), value.encode()) for name, value in headers.items()),
                (b"content-length", str(len(body)).encode()),
            ],
        }
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body}

        async def send(message: Any) -> None:
            sent.append(message)

        self.runner.run(self.app(scope, receive, send))
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return _Reply(sent[0]["status"], found, b"".join(one.get("body", b"") for one in sent[1:]))

    def close(self) -> None:
        self.runner.close()
        self.catalog.close()


@dataclass
class Wire:
    """Carries the requests of one client to the server, in the place of its pool of connections.

    Attributes:
        server: the server.
        faults: of the requests that change something, in their order.
        around: called with the number of a request, and whether it was carried out.
        ignores_conditions: whether ``If-Match`` is left out, as for a server that does not know it.
        late: requests that arrive after the statement.
        asked: the requests, as method and path.
    """

    server: Server
    faults: list[str | None] = field(default_factory=list)
    around: Callable[[int, bool], None] = lambda _number, _after: None
    ignores_conditions: bool = False
    late: list[Request] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    _silent: bool = False

    def request(self, method: str, url: str, *, body: Any, headers: dict[str, str], **_: Any) -> _Reply:
        """As ``urllib3.PoolManager.request``."""
        if self.ignores_conditions:
            headers = {name: value for name, value in headers.items() if name != "If-Match"}
        request = method, url, body or b"", headers
        number = len(self.asked)
        self.asked.append(f"{method} {urlsplit(url).path}")
        self.around(number, False)
        fault = self.faults.pop(0) if method != "GET" and self.faults else None
        self._silent = self._silent or fault == "silence"
        if fault == "late":
            self.late.append(request)
        if fault not in ("late", "lost request"):
            reply = self.server.answer(request)
            self.around(number, True)
            if fault == "twice":
                reply = self.server.answer(request)
        if self._silent or fault in ("late", "lost request", "lost reply"):
            raise urllib3.exceptions.ProtocolError("as the schedule has it")
        return reply

    def clear(self) -> None:
        """There are no connections."""

    def client(self) -> UnityCatalog:
        """A client over this wire."""
        made = UnityCatalog("http://localhost:1", TOKEN)
        made._connection._pool = unity_http._Pool(self, os.getpid())  # type: ignore[arg-type]
        return made


State = dict[str, tuple[str, int]]
"""The name and the latest version of each table, by its id."""


@dataclass
class World:
    """A server with the table ``ORDERS`` of the first client, one commit of which is not published.

    Args:
        folder: a folder that does not exist; it is made anew for each schedule.
    """

    folder: Path
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._template = self.folder.with_name(f"{self.folder.name}-template")
        self.folder.mkdir(parents=True)
        with contextlib.closing(Server(self.folder)) as server:
            table = Wire(server).client().create_table(ORDERS, SCHEMA)
            append(table, 1, "before")
        self._copy(self.folder, self._template)

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Server]:
        """A server in the state of the beginning."""
        self._copy(self._template, self.folder)
        with contextlib.closing(Server(self.folder, self.options)) as server:
            yield server

    def tables(self) -> State:
        """The tables by the database."""
        with contextlib.closing(sqlite3.connect(self.folder / "catalog.db")) as connection:
            found = connection.execute("select id, name, latest from refdelta_tables where latest >= 0")
            return {key: (name, latest) for key, name, latest in found}

    def notes(self, table_id: str) -> list[tuple[int, str]]:
        """The notes of a table's commits by version: those that the catalog holds, and those in its folder."""
        found: dict[int, str] = {}
        log = self.folder / "warehouse" / table_id / "_delta_log"
        with contextlib.closing(sqlite3.connect(self.folder / "catalog.db")) as connection:
            asked = "select version, file_name from refdelta_commits where table_id = ?"
            for version, name in connection.execute(asked, (table_id,)):
                found[version] = _note(log / "_staged_commits" / name)
        for file in log.glob("*.json"):
            found[int(file.stem)] = _note(file)
        return sorted(found.items())


def _note(file: Path) -> str:
    first = json.loads(file.read_text().splitlines()[0])
    return str(first.get("commitInfo", {}).get("userMetadata", ""))


def append(table: DeltaTable, value: int, note: str) -> int | None:
    """Append a row, with a note by which the oracle finds the commit."""
    noted = CommitProperties(user_metadata=note)
    return write_deltalake(table, pa.table({"id": [value]}, SCHEMA), mode="append", commit_properties=noted).version


@dataclass
class Other:
    """The other client, and what its statements have acknowledged.

    Attributes:
        own: the tables that it created and has not dropped: their ids and names, and the notes of their commits.
        dropped: the ids of tables that it dropped.
        renamed: the ids of tables that it renamed, and their new names.
        noted: the commits that it added to tables of the first client: ids and notes.
    """

    client: UnityCatalog
    own: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    renamed: dict[str, str] = field(default_factory=dict)
    noted: list[tuple[str, str]] = field(default_factory=list)

    def run(self, program: str) -> None:
        """Run a program. A statement that fails since a name is taken or free has no effect."""
        for step in {
            "nothing": (),
            "drop": (self._drop,),
            "anew": (self._drop, self._create),
            "rename": (self._rename,),
            "replace": (self._rename, self._create),
            "append": (self._append,),
            "publish": (self._append, self._publish),
            "archive": (self._archive,),
        }[program]:
            with contextlib.suppress(errors.TableNotFoundError, errors.TableAlreadyExistsError):
                step()

    def _id(self) -> str:
        return self.client.load(ORDERS).metadata.table_uuid

    def _drop(self) -> None:
        table_id = self.client._entry(ORDERS).table_id
        self.client.drop_table(ORDERS)
        self.own.pop(table_id, None)
        self.dropped.add(table_id)

    def _rename(self) -> None:
        table_id = self.client._entry(ORDERS).table_id
        self.client.rename_table(ORDERS, AWAY)
        self.renamed[table_id] = AWAY

    def _create(self, name: str = ORDERS) -> None:
        table = self.client.create_table(name, SCHEMA)
        append(table, 7, "of the other client")
        self.own[table.store.ratifier.entry.table_id] = name, ["", "of the other client"]  # type: ignore[attr-defined]

    def _archive(self) -> None:
        self._create(ARCHIVE)

    def _append(self) -> None:
        table = self.client.table(ORDERS)
        append(table, 7, "into it")
        self.noted.append((table.store.ratifier.entry.table_id, "into it"))  # type: ignore[attr-defined]

    def _publish(self) -> None:
        self.client.publish(ORDERS)


def play(world: World, schedule: Schedule, ignores_conditions: bool = False) -> Played:
    """Run one schedule, and hold what the clients were told to what is there."""
    with world.opened() as server:
        other = Other(Wire(server).client())
        wire = Wire(server)
        first = wire.client()
        statement = schedule.statement
        handle = first.table(ORDERS) if statement in ("append", "alter") else None
        if statement == "create":
            first.drop_table(ORDERS)
        target = None if statement == "create" else first.load(ORDERS).metadata.table_uuid
        history = [world.tables()]
        wire.asked.clear()
        wire.ignores_conditions = ignores_conditions
        wire.faults = [*schedule.faults]
        pending = [schedule.program]

        def around(number: int, after: bool) -> None:
            history.append(world.tables())
            if pending and (number, after) == (schedule.request, schedule.after):
                other.run(pending.pop())
                history.append(world.tables())

        wire.around = around
        told, created = _take(first, statement, handle)
        history.append(world.tables())
        wire.around = lambda _number, _after: None
        within = not pending
        if pending:
            other.run(pending.pop())
        for request in wire.late:
            server.answer(request)
            history.append(world.tables())
        history.append(world.tables())
        found = _Judge(world, schedule, target, created, told, history, other).judge()
    return Played(schedule, found, told, wire.asked, within)


def _take(client: UnityCatalog, statement: str, handle: DeltaTable | None) -> tuple[Exception | None, str | None]:
    """Run the statement of the first client. Returns the error that it raised, and the id of the table it created."""
    staged: list[str] = []
    reserve = client._reserve

    def reserved(*given: Any) -> Any:
        entry = reserve(*given)
        staged.append(entry.table_id)
        return entry

    client._reserve = reserved  # type: ignore[method-assign]
    try:
        match statement:
            case "create":
                client.create_table(ORDERS, SCHEMA)
            case "drop" | "purge":
                client.drop_table(ORDERS, purge=statement == "purge")
            case "rename":
                client.rename_table(ORDERS, ARCHIVE)
            case "append":
                assert handle is not None
                append(handle, 2, NOTE)
            case "alter":
                assert handle is not None
                noted = CommitProperties(user_metadata=NOTE)
                handle.alter.set_table_properties({"owner": "us"}, commit_properties=noted)
            case "publish":
                client.publish(ORDERS)
    except Exception as error:
        return error, staged[0] if staged else None
    return None, staged[0] if staged else None


@dataclass
class _Judge:
    """Holds one schedule's end to what both clients were told."""

    world: World
    schedule: Schedule
    target: str | None
    created: str | None
    told: Exception | None
    history: list[State]
    other: Other

    def judge(self) -> list[str]:
        kinds = [*self._others(), *self._own()]
        if self.told is not None and not isinstance(self.told, errors.DeltaError):
            kinds.append(f"{self.schedule.statement} raised {type(self.told).__name__}")
        return kinds

    def _others(self) -> Iterator[str]:
        """The other client's tables are as its statements left them, and its commits are there."""
        now = self.history[-1]
        for table_id, (name, notes) in self.other.own.items():
            if now.get(table_id, ("", 0))[0] != name:
                yield "a table of the other client is gone, or has another name"
            elif [note for _, note in self.world.notes(table_id)] != notes:
                yield "a table of the other client has other commits"
        for table_id, note in self.other.noted:
            purged = self.schedule.statement == "purge" and table_id not in now
            if not purged and [found for _, found in self.world.notes(table_id)].count(note) != 1:
                yield "an acknowledged commit is gone"

    def _own(self) -> Iterator[str]:
        """What the statement has reported is true, now and after late requests."""
        done, count = self._effect()
        unknown = isinstance(self.told, errors.CommitOutcomeUnknownError) or UNKNOWN in str(self.told)
        statement = self.schedule.statement
        if self.told is None and not done:
            yield f"{statement} reported success without its effect"
        if self.told is not None and done and not unknown:
            yield f"{statement} reported a failure, and has its effect"
        if count > 1:
            yield f"{statement} has its effect twice"
        if statement == "drop" and self.told is None and self.target not in self.history[-1]:
            assert self.target is not None
            if self._unpublished():
                yield "a dropped table has commits that are not published"

    def _effect(self) -> tuple[bool, int]:
        """Whether the statement has its effect, or had it at a moment; and how often."""
        match self.schedule.statement:
            case "create":
                return any(self.created in state for state in self.history), 1
            case "drop" | "purge":
                # A failure may be due to the other client's drop.
                gone = self.target not in self.history[-1]
                return gone and not (self.told is not None and self.target in self.other.dropped), 1
            case "rename":
                return any(state.get(str(self.target), ("", 0))[0] == ARCHIVE for state in self.history), 1
            case "publish":
                if self.target not in self.history[-1]:
                    return self.told is None, 1
                late = [note for _, note in self.other.noted]
                return self.told is None and set(self._unpublished()) <= {*late}, 1
            case _:
                count = [note for _, note in self.world.notes(str(self.target))].count(NOTE)
                return count > 0, count

    def _unpublished(self) -> list[str]:
        """The notes of acknowledged commits that are not in the target's log."""
        log = self.world.folder / "warehouse" / str(self.target) / "_delta_log"
        there = [_note(file) for file in log.glob("*.json")]
        wanted = ["before", *(note for table_id, note in self.other.noted if table_id == self.target)]
        return [note for note in wanted if note not in there]


def search(world: World, statement: str, *, most: int = 2, ignores_conditions: bool = False) -> Iterator[Played]:
    """Play all schedules of a statement.

    Args:
        world: the server.
        statement: the statement.
        most: how many requests in a row meet a fault.
        ignores_conditions: whether the server does not know ``If-Match``.
    """
    asked = play(world, Schedule(statement, "nothing", 0, False)).asked
    changes = sum(not one.startswith("GET") for one in asked)
    # Which table a statement by name is for is decided by the reply to its first request for it.
    named = statement in ("drop", "purge", "rename", "publish")
    first = next(number for number, one in enumerate(asked) if not named or "/tables/" in one)
    runs: list[tuple[str | None, ...]] = [(one,) for one in (*FAULTS, "silence")]
    runs += [run for run in itertools.product(FAULTS, repeat=2) if most > 1]
    plans = [(), *((*itertools.repeat(None, at), *run) for at in range(changes) for run in runs)]
    for program, plan in itertools.product(PROGRAMS, plans):
        for request, after in itertools.product(range(first, len(asked) + _REPEATS), (False, True)):
            if named and (request, after) == (first, False):
                continue
            played = play(world, Schedule(statement, program, request, after, plan), ignores_conditions)
            yield played
            if not played.within or program == "nothing":
                break  # it ran after the statement; every later moment is the same one
