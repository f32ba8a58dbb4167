"""Programs that create, drop, rename and recreate tables of the same names beside their own writers, and databases of
catalogs that are restored from older copies under load. Processes are killed at random moments.

What the database and the folders have is read without the engine.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import shutil
import sqlite3
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlalchemy as sa

from kills.children import OUTAGE, TRY_AGAIN, _context, _telling
from refdelta import CommitProperties, DeltaTable, errors, verify, write_deltalake
from refdelta.catalog import SqlCatalog
from refdelta.engine.log.managed_log import ManagedStore
from refdelta.transaction import background

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

SCHEMA = pa.schema({"id": pa.int64()})
NAMES = ("lives.one", "lives.two")
CONFIGURATION = {"delta.checkpointInterval": "3"}
_FIRST_SEALED = -2


def _append(table: DeltaTable, note: str) -> int | None:
    noted = CommitProperties(user_metadata=note)
    return write_deltalake(table, pa.table({"id": [1]}, SCHEMA), mode="append", commit_properties=noted).version


def _delay_publication(seed: int) -> None:
    """Publication of this process takes up to 30 ms longer, so that it is killed in it more often."""
    logging.disable(logging.CRITICAL)  # of hooks that fail since their table is gone
    dice, publish = random.Random(seed), ManagedStore.publish

    def late(log: ManagedStore, *given: Any, **named: Any) -> int:
        time.sleep(dice.uniform(0, 0.03))
        return publish(log, *given, **named)

    ManagedStore.publish = late  # type: ignore[method-assign]


class _OwnTables(SqlCatalog):
    """A catalog whose statements by name are for tables of one program only, and which tells which table they found.

    Args:
        url: the URL of the database.
        prefix: what the locations of the program's tables begin with.
        told: what hears of the table that a statement is for, before the statement changes it.
    """

    def __init__(self, url: str, prefix: str, told: Any) -> None:
        super().__init__(url)
        self._prefix, self._told = prefix, told

    def _entry(self, name: str, *, staging: bool = False) -> Any:
        entry = super()._entry(name, staging=staging)
        if not entry.location.startswith(self._prefix):
            raise errors.TableNotFoundError(f"{name} is a table of the other program")
        self._told(entry.location)
        return entry


def _live(told: Connection, url: str, folder: str, program: str, seed: int) -> None:
    """One process of a program: random statements, until it is killed."""
    with _telling(told):
        _delay_publication(seed)
        dice = random.Random(seed)
        doing, found = "start", ""

        def aims(location: str) -> None:
            nonlocal found
            found = location
            told.send(("aims", doing, location))

        catalog = _OwnTables(url, f"{folder}/{program}-", aims)
        handles: list[tuple[DeltaTable, str]] = []
        number = 0
        while True:
            number += 1
            name, other = dice.sample(NAMES, 2)
            doing = dice.choices(["create", "drop", "purge", "rename", "append", "handle"], [4, 2, 1, 2, 6, 6])[0]
            location, note, version = f"{folder}/{program}-{seed}-{number}", f"{program} {seed} {number}", None
            try:
                match doing:
                    case "create":
                        aims(location)
                        made = catalog.create_table(
                            name,
                            SCHEMA,
                            location,
                            configuration=CONFIGURATION,
                            commits=dice.choice(["staged", "inline"]),
                        )
                        handles.append((made, location))
                    case "drop" | "purge":
                        catalog.drop_table(name, purge=doing == "purge")
                        location = found
                    case "rename":
                        catalog.rename_table(name, other)
                    case _:
                        if doing == "append" or not handles:
                            table = catalog.table(name)
                            handles.append((table, found))
                        table, location = dice.choice(handles[-4:])
                        version = _append(table, note)
                told.send(("did", doing, location, version, note))
            except (errors.DeltaError, FileNotFoundError) as error:
                told.send(("failed with", doing, type(error).__name__))


@dataclass
class _Process:
    """A process that tells, and is killed."""

    work: Any
    arguments: tuple[Any, ...]
    heard: list[Any] = field(default_factory=list)

    def start(self) -> _Process:
        self._pipe, theirs = _context.Pipe(duplex=False)
        self._process = _context.Process(target=self.work, args=(theirs, *self.arguments), daemon=True)
        self._process.start()
        theirs.close()
        return self

    def listen(self, count: int, seconds: float = 20.0) -> None:
        """Wait until it has told so many things more, at most for a time."""
        until = time.monotonic() + seconds
        for _ in range(count):
            if not self._pipe.poll(max(until - time.monotonic(), 0)) or not self._hear():
                return

    def _hear(self) -> bool:
        with contextlib.suppress(EOFError, OSError):
            told = self._pipe.recv()
            assert told[0] != "failed", told[1]
            self.heard.append(told)
            return True
        return False

    def kill(self) -> None:
        """SIGKILL, and hear what it told before."""
        self._process.kill()
        self._process.join()
        while self._hear():
            pass
        self._pipe.close()


# --- two programs, two names ---


@dataclass
class Lives:
    """Two programs with two processes each, which use the same two names.

    Args:
        url: the URL of the database.
        folder: the folder of all tables.
        seed: of the statements, the kills and their moments.
    """

    url: str
    folder: Path
    seed: int
    did: Counter[str] = field(default_factory=Counter)
    killed: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        SqlCatalog(self.url, locations=["/"]).close()
        self._dice = random.Random(self.seed)
        self._database = sa.create_engine(self.url, poolclass=sa.NullPool)
        self._heard: list[Any] = []

    def run(self, kills: int) -> Lives:
        """Kill so many processes, and look after each round."""
        while self.killed < kills:
            alive = [
                _Process(_live, (self.url, str(self.folder), program, self._dice.randrange(2**30))).start()
                for program in "aabb"
            ]
            for one in self._dice.sample(alive, len(alive)):
                one.listen(self._dice.randint(2, 40))
                time.sleep(self._dice.uniform(0, 0.05))
                one.kill()
                self.killed += 1
                self._heard += one.heard
            self.check()
        return self

    def check(self) -> None:
        """Raise ``AssertionError`` where a table is not what its program was told, or left."""
        told = [one for one in self._heard if one[0] == "did"]
        aimed = {op: {one[2] for one in self._heard if one[0] == "aims" and one[1] == op} for op in ("drop", "purge")}
        self.did = Counter(one[1] for one in told)
        rows = self._rows()
        for _, op, location, version, note in told:
            if op == "create" and location not in aimed["drop"] | aimed["purge"]:
                assert rows.get(location, (None, -1, {}))[1] >= 0, (
                    f"{location} is gone, and its program did not drop it"
                )
            elif op in ("drop", "purge"):
                assert location not in rows, f"{location} was dropped, and is in the catalog"
            elif version is not None and location not in aimed["purge"]:
                assert self._note(rows, location, version) == note, f"version {version} of {location} is lost"
        for location in {one[2] for one in told if one[1] == "create"} - aimed["purge"]:
            self._check_files(Path(location))

    def _rows(self) -> dict[str, tuple[str, int, dict[int, bytes]]]:
        """For each location: the name, the latest version, and the commits that the catalog holds."""
        found: dict[str, tuple[str, int, dict[int, bytes]]] = {}
        with self._database.connect() as connection:
            held = connection.execute(sa.text("select table_id, version, file_name, data from refdelta_commits")).all()
            for row in connection.execute(sa.text("select id, name, location, latest from refdelta_tables")):
                log = Path(row.location) / "_delta_log" / "_staged_commits"
                commits = {
                    one.version: bytes(one.data) if one.data is not None else (log / one.file_name).read_bytes()
                    for one in held
                    if one.table_id == row.id and (one.data is not None or (log / one.file_name).exists())
                }
                found[row.location] = row.name, row.latest, commits
        return found

    def _note(self, rows: Any, location: str, version: int) -> str | None:
        file = Path(location) / "_delta_log" / f"{version:020d}.json"
        if file.exists():
            return _note_of(file.read_bytes())
        held = rows[location][2] if location in rows else {}
        return _note_of(held[version]) if version in held else None

    def _check_files(self, location: Path) -> None:
        files = sorted((location / "_delta_log").glob("*.json"))
        assert [int(file.stem) for file in files] == [*range(len(files))], f"the log of {location} has a gap"
        for file in files:
            for line in file.read_text().splitlines():
                added = json.loads(line).get("add")
                assert added is None or (location / added["path"]).exists(), f"a file of {location} is gone"

    def finish(self) -> None:
        """Drops that did not come to their end are repeated; what is left is sound, and both names can be used."""
        with SqlCatalog(self.url, locations=["/"]) as catalog:
            for name, latest, _ in self._rows().values():
                if latest < 0:
                    try:
                        catalog.drop_table(name)
                    except errors.TableNotFoundError:
                        catalog.drop_table(name, purge=True)  # it was a purge that did not come to its end
                else:
                    assert verify(catalog.table(name)).sound
                    catalog.drop_table(name)
            for name in NAMES:
                _append(catalog.create_table(name, SCHEMA, f"{self.folder}/end-{name}"), "end")
            background.settle()
        self._database.dispose()


def _note_of(commit: bytes) -> str | None:
    first: dict[str, Any] = json.loads(commit.splitlines()[0])["commitInfo"]
    return first.get("userMetadata")


# --- a database that comes back from a copy ---


def _write(told: Connection, url: str, owner: int, seed: int) -> None:
    """Append rows with notes, and tell each version with the time at which the attempt began."""
    with _telling(told):
        _delay_publication(seed)
        number, kept = 0, None
        while True:
            number += 1
            began = time.monotonic()
            try:
                kept = kept or SqlCatalog(url, locations=["/"]).table(NAMES[0])
                version = _append(kept, f"{owner} {seed} {number}")
            except TRY_AGAIN:
                continue
            except errors.CatalogMismatchError as error:
                told.send(("mismatch", str(error), began))
                kept = None
                time.sleep(0.02)
            except (*OUTAGE, errors.TableNotFoundError):
                if number % 3 == 0:
                    kept = None
            else:
                told.send(("committed", version, f"{owner} {seed} {number}", began))


@dataclass
class Restores:
    """One table whose database is restored from an older copy under the load of its writers.

    Args:
        folder: a folder of its own.
        commits: ``staged`` or ``inline``.
        seed: of the moments.
        server: the server of the database; None for SQLite.
    """

    folder: Path
    commits: Any
    seed: int
    server: Any = None
    restored: int = 0
    noticed: int = 0
    adopted: int = 0
    acknowledged: int = 0
    with_the_database: int = 0
    killed: int = 0

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        (self.folder / "db").mkdir(parents=True)
        self._url = f"sqlite:///{self.folder}/db/catalog.db" if self.server is None else self.server.database()
        self._published: dict[int, bytes] = {}
        with SqlCatalog(self._url, locations=["/"]) as catalog:
            table = catalog.create_table(
                NAMES[0], SCHEMA, str(self.folder / "t"), commits=self.commits, configuration=CONFIGURATION
            )
            _append(table, "first")
            background.settle()

    def run(self, times: int) -> Restores:
        """Restore the database so many times."""
        for _ in range(times):
            self._round()
        return self

    def _round(self) -> None:
        writers = [_Process(_write, (self._url, owner, self._dice.randrange(2**30))).start() for owner in range(3)]
        try:
            writers[0].listen(self._dice.randint(3, 8))
            copy = self._copy()
            writers[1].listen(self._dice.randint(3, 15))
            if self._dice.random() < 0.5:
                writers[2].kill()
            began = time.monotonic()
            self._restore(copy)
            restored = time.monotonic()
            self.restored += 1
            before = self._read_log()
            writers[0].listen(self._dice.randint(5, 20))
        finally:
            for one in writers:
                with contextlib.suppress(OSError, ValueError):
                    one.kill()
                self.killed += 1
        told = [one for writer in writers for one in writer.heard]
        self.noticed += sum(one[0] == "mismatch" for one in told)
        acknowledged = [one[1:] for one in told if one[0] == "committed"]
        self.acknowledged += len(acknowledged)
        self._go_on(before)
        log = self._read_log()
        notes = Counter(map(_note_of, log.values()))
        assert all(count == 1 for note, count in notes.items() if note), "a commit is in the log twice"
        for version, note, attempt in acknowledged:
            if notes[note]:
                assert _note_of(log[version]) == note, f"{note} was told version {version}"
                continue
            # Only what the lost database alone knew is gone with it.
            assert attempt < restored, f"{note} is lost, which was committed after the database was restored"
            assert version not in before or _note_of(before[version]) != note, f"{note} was published, and is lost"
            self.with_the_database += 1
        assert began <= restored

    def _go_on(self, published: dict[int, bytes]) -> None:
        """Adopt, if the catalog does not agree with the folder: then nothing is committed before."""
        with SqlCatalog(self._url, locations=["/"]) as catalog:
            try:
                _append(catalog.table(NAMES[0]), f"looks {self.restored}")
            except errors.CatalogMismatchError as error:
                if not (str(self.folder / "t") in str(error) and catalog.name in str(error)):
                    raise AssertionError("the error does not name the catalog and the folder") from error
                catalog.adopt(NAMES[0], discard=True)
                self.adopted += 1
                _append(catalog.table(NAMES[0]), f"looks {self.restored}")
            background.settle()
            catalog.publish(NAMES[0])
            assert verify(catalog.table(NAMES[0])).sound
        log = self._read_log()
        assert sorted(log) == [*range(len(log))], "a version is missing"
        assert f"looks {self.restored}" in map(_note_of, log.values())
        assert published.items() <= log.items(), "a published version is gone, or another one"

    def _read_log(self) -> dict[int, bytes]:
        """The published commits, none of which ever changes."""
        for file in sorted((self.folder / "t" / "_delta_log").glob("*.json")):
            content = file.read_bytes()
            assert self._published.setdefault(int(file.stem), content) == content, f"{file.name} has changed"
        return dict(self._published)

    # --- copies ---

    def _copy(self) -> Any:
        if self.server is None:
            target = self.folder / f"db-{self.restored}"
            target.mkdir()
            with (
                contextlib.closing(sqlite3.connect(self.folder / "db" / "catalog.db")) as source,
                contextlib.closing(sqlite3.connect(target / "catalog.db")) as copy,
            ):
                source.backup(copy)
            return target
        with self._session() as connection:
            connection.execute(sa.text("set transaction isolation level repeatable read"))  # a copy of one moment
            return [
                (table, connection.execute(sa.text(f"select * from {table}")).mappings().all())
                for table in ("refdelta_tables", "refdelta_commits")
            ]

    def _restore(self, copy: Any) -> None:
        if self.server is None:
            # A folder in the place of the other one: a file alone would meet the write-ahead log of the other one.
            (self.folder / "db").rename(self.folder / f"lost-{self.restored}")
            copy.rename(self.folder / "db")
            return
        with self._session() as connection:
            connection.execute(sa.text("lock table refdelta_tables, refdelta_commits in access exclusive mode"))
            others = "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and usename = current_user"  # fmt: skip # noqa: E501
            connection.execute(sa.text(others))
            for table in ("refdelta_commits", "refdelta_tables"):
                connection.execute(sa.text(f"delete from {table}"))
            for table, rows in copy:
                for row in rows:
                    values = ", ".join(f":{name}" for name in row)
                    connection.execute(sa.text(f"insert into {table} ({', '.join(row)}) values ({values})"), dict(row))

    @contextlib.contextmanager
    def _session(self) -> Any:
        engine = sa.create_engine(self._url, poolclass=sa.NullPool)
        with engine.begin() as connection:
            yield connection
        engine.dispose()

    def finish(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder)
