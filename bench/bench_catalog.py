"""Commits of prepared files to a catalog-managed table, next to a table of the file system: one and eight writers.

No data file is written, and nobody looks at the one that a commit names: this is the commit protocol alone. Writers are
processes that keep a handle, all ready before the clock starts, which ends with the last acknowledgement. What is
ratified is published in the background, one put after the other, so no rate is higher than that of these puts for long:
a burst of up to a thousand versions is what a catalog takes faster. Behind each run, the versions and their files are
compared with what was acknowledged.

A staged file is of one version, so a writer that loses stages anew: where many write at once, a staged commit costs a
put for each version that it tries, as a commit to the file system does. Inline commits need none.

S3 is versitygw behind a proxy that makes each request 60 ms late, on this machine with the writers: two cores are the
bound where requests are not. The database is on this machine, too, in either case. Where commits are durable, all of
them are: the file system's with fsync, SQLite with synchronous=FULL, PostgreSQL with fsync.
"""

from __future__ import annotations

import itertools
import statistics
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from bench_log import STATS
from contest import Engine, Goal, within

import refdelta
from refdelta.racing.crew import Crew, Shift
from refdelta.transaction import background
from servers.install import ServerUnavailableError
from servers.postgres import PostgresServer
from servers.proxies import ServerProxy
from servers.running import S3Server

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.float64())])
# Checkpoints publish: what is measured is without them.
RARELY = {"delta.checkpointInterval": "10000"}
# What a catalog gives each table.
FEATURES = {
    "delta.enableInCommitTimestamps": "true",
    "delta.enableDeletionVectors": "true",
    "delta.enableRowTracking": "true",
    "delta.checkpointPolicy": "v2",
}
MILLISECONDS = 60
FILES = "files"


@dataclass(frozen=True)
class Table:
    """Where a table is, for another process.

    Attributes:
        uri: its folder.
        options: of its store.
        url: of its catalog; None for a table of the file system.
        commits: of its catalog.
    """

    uri: str
    options: dict[str, str] = field(repr=False)
    url: str | None = None
    commits: Any = None

    def create(self) -> None:
        if self.url is None:
            features = {**RARELY, **FEATURES}
            refdelta.DeltaTable.create(self.uri, SCHEMA, configuration=features, storage_options=self.options)
        else:
            with self._catalog() as catalog:
                catalog.create_table("t", SCHEMA, self.uri, configuration=RARELY, commits=self.commits)

    def open(self) -> refdelta.DeltaTable:
        if self.url is None:
            return refdelta.DeltaTable(self.uri, storage_options=self.options)
        return self._catalog().table("t")

    def _catalog(self) -> Any:
        from refdelta.catalog import SqlCatalog

        assert self.url is not None
        return SqlCatalog(self.url, storage_options=self.options, locations=[self.uri])


def opened(place: Table) -> Any:
    return partial(committing, place.open())


def committing(table: refdelta.DeltaTable, shift: Shift) -> list[tuple[int, float, float]]:
    """The task, the seconds and the end of each commit."""
    done, schema = [], table.schema()
    while (task := shift.next()) is not None:
        started = time.monotonic()
        action = refdelta.AddAction(f"part-{task:012}.parquet", 1_000, {}, 1_700_000_000_000, True, STATS)
        table.create_write_transaction([action], "append", schema)
        ended = time.monotonic()
        done.append((task, ended - started, ended))
    return done


def settled() -> Any:
    return lambda _: background.settle()


class Race:
    """One way to commit in a contest."""

    def __init__(self, crew: Crew, writers: int, commits: int, fresh: Any) -> None:
        self._crew, self._writers, self._commits, self._fresh = crew, writers, commits, fresh

    def before(self) -> Table:
        place = self._fresh()
        place.create()
        self._crew.ready([partial(opened, place)] * self._writers)
        return place

    def run(self, _: Table) -> dict[str, float]:
        began = time.monotonic()
        self._done = [one for found in self._crew.go(tasks=self._commits) for one in found]
        seconds = sorted(taken for _, taken, _ in self._done)
        self._ended = max(end for _, _, end in self._done)
        return {
            "commits/s": len(self._done) / (self._ended - began),
            "p50 ms": 1000 * statistics.median(seconds),
            "p99 ms": 1000 * seconds[min(len(seconds) - 1, int(0.99 * len(seconds)))],
        }

    def after(self, place: Table) -> None:
        self._crew.ready([settled] * self._writers)
        self._crew.go(tasks=0)
        table = place.open()
        assert table.version() == self._commits
        assert sorted(task for task, _, _ in self._done) == [*range(self._commits)]
        assert len(table.files()) == self._commits, "a commit is lost, or there twice"


@pytest.fixture(scope="module")
def crew(size):
    with Crew(size(smoke=2, default=8)) as crew:
        yield crew


@pytest.fixture(scope="module")
def postgres():
    try:
        server = PostgresServer(fsync=True).start()
    except ServerUnavailableError as error:
        print(f"PostgreSQL is left out: {error}")
        yield None
        return
    yield server
    server.stop()


@pytest.fixture(scope="module")
def s3():
    try:
        server = S3Server().start()
    except ServerUnavailableError as error:
        pytest.skip(str(error))
    with ServerProxy(server, delay=lambda _: MILLISECONDS / 1000) as proxy:
        yield proxy
    server.stop()


def engines(crew, folder, postgres, writers, commits, place, own) -> list[Engine]:
    numbers = itertools.count()

    def on_files() -> Table:
        return Table(*place())

    def on_catalog(database: str, mode: str) -> Table:
        local = database == "sqlite"
        url = f"sqlite:///{folder}/catalog-{next(numbers)}.db" if local else postgres.database()
        return Table(*place(), url, mode)

    found = [("files", "a table of the file system with the same features, handle kept", on_files)]
    for database, mode in itertools.product(("sqlite", "postgres"), ("inline", "staged")):
        if database == "sqlite" or postgres is not None:
            settings = f"{mode} commits, {'synchronous=FULL' if database == 'sqlite' else 'fsync'}, handle kept"
            found.append((f"{database} {mode}", settings, partial(on_catalog, database, mode)))
    told = []
    for name, settings, fresh in found:
        race = Race(crew, writers, commits, fresh)
        told.append(Engine("refdelta" if name == own else name, race.run, race.before, race.after, settings))
    return told


@pytest.mark.parametrize("writers", [1, 8])
def bench_catalog_on_local_disk(contest, size, folder, crew, postgres, writers):
    """refdelta: SQLite, staged."""
    writers, commits = min(writers, size(smoke=2, default=8)), size(smoke=4, default=80, full=400)
    numbers = itertools.count()

    def place() -> tuple[str, dict[str, str]]:
        return str(folder / f"t{next(numbers)}"), {}

    contest.run(
        engines(crew, folder, postgres, writers, commits, place, "sqlite staged"),
        rounds=3,
        units=commits,
        unit="commit",
        goals=[within(FILES, 2)],
        note="refdelta: SQLite, staged commits",
        writers=writers,
    )


@pytest.mark.parametrize("writers", [1, 8])
def bench_catalog_on_s3(contest, size, folder, crew, postgres, s3, writers):
    """refdelta: SQLite, inline."""
    writers, commits = min(writers, size(smoke=2, default=8)), size(smoke=4, default=48 if writers > 1 else 16)

    def place() -> tuple[str, dict[str, str]]:
        there = s3.place()
        return there.uri, there.options

    goals = [Goal("10 x the throughput of a table of the file system", 1 / 10, rival=FILES)] if writers > 1 else []
    contest.run(
        engines(crew, folder, postgres, writers, commits, place, "sqlite inline"),
        rounds=2,
        warm=size(smoke=0, default=1),
        units=commits,
        unit="commit",
        goals=goals,
        note="refdelta: SQLite, inline commits",
        latency_ms=MILLISECONDS,
        writers=writers,
    )
