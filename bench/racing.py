"""Races of :mod:`refdelta.racing` as parts of a contest, and the floor of those on an object store."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import refdelta
from refdelta.core.log.paths import commit_key
from refdelta.engine.log.location import open_location
from refdelta.racing.crew import Crew, Shift
from refdelta.racing.engines.of_deltalake import DeltalakeEngine
from refdelta.racing.mixes import APPENDS, SAME_ROWS, Mix, check_rows
from refdelta.racing.throughput import Acknowledged, Own, OwnEngine, Tally, check, jobs, summed
from refdelta_storage import Committed

Options = Mapping[str, str]


class Floor:
    """What nobody can leave out of an append on an object store: a data object is put, then the entry that names it,
    where none is; who loses tries the next number. Nothing is read, no rows are encoded.
    """

    aborts: tuple[type[Exception], ...] = ()
    unknown: tuple[type[Exception], ...] = ()

    def __init__(self, folder: str, options: Options, data: bytes | None) -> None:
        self._store, self._data, self._version = open_location(folder, options), data, 0

    def commit(self, task: int) -> Acknowledged:
        if self._data is not None:
            self._store.put(f"{task}.parquet", self._data)
        attempts = 1
        while not isinstance(self._store.put_if_absent(commit_key(self._version), b'{"commitInfo":{}}'), Committed):
            self._version, attempts = self._version + 1, attempts + 1
        self._version += 1
        return Acknowledged(None, attempts)

    def compact(self) -> Acknowledged | None:
        return None


def warm() -> Callable[[Shift], None]:
    """A job that has each process commit once by either engine, to tables of its own."""
    with tempfile.TemporaryDirectory() as parent:
        for mix in (APPENDS, SAME_ROWS):
            for name, engine in (("r", OwnEngine()), ("d", DeltalakeEngine())):
                folder = f"{parent}/{mix}-{name}"
                engine.prepare(folder, mix, {})
                engine.open(folder, mix, {}).commit(0)
    return lambda _: None


class Race:
    """One engine's part in a contest: a fresh table before, the race, the check behind it.

    Args:
        crew: who writes.
        hands: opens the table in each writer, given its folder.
        mix: what they do.
        writers: how many.
        commits: how many in all.
        fresh: a place where nothing is, at each call.
        made: makes the table there.
        judge: what is wrong with it, given the folder and what each writer did.
        calm: whether an abort is one too many.
    """

    def __init__(
        self,
        crew: Crew,
        hands: Callable[[str], Callable[[], Any]],
        mix: Mix,
        writers: int,
        commits: int,
        *,
        fresh: Callable[[], str],
        made: Callable[[str], object],
        judge: Callable[[str, Sequence[Tally]], Sequence[str]],
        calm: bool = False,
    ) -> None:
        self._crew, self._hands, self._mix, self._writers, self._commits = crew, hands, mix, writers, commits
        self._fresh, self._made, self._judge, self._calm = fresh, made, judge, calm
        self._tallies: Sequence[Tally] = ()

    def before(self) -> str:
        folder = self._fresh()
        self._made(folder)
        self._crew.ready(jobs(self._hands(folder), self._mix, self._writers))
        return folder

    def run(self, _folder: str) -> dict[str, float]:
        self._tallies = self._crew.go(tasks=self._commits)
        told = summed(self._mix, self._writers, self._tallies)
        figures = {"commits/s": told.commits_per_second, "abort rate": told.abort_rate}
        figures |= {f"{name} ms": value for name, value in told.latency.items() if name != "p90"}
        return figures | ({"compactions": told.compactions} if self._mix.compacts else {})

    def after(self, folder: str) -> None:
        aborts = summed(self._mix, self._writers, self._tallies).aborts
        assert not (self._calm and aborts), f"aborts where the matrix has none: {aborts}"
        problems = self._judge(folder, self._tallies)
        assert not problems, problems
        shutil.rmtree(Path(folder), ignore_errors=True)


def own(folder: str, mix: Mix, row_level: bool | None, options: Options) -> Callable[[], Own]:
    return partial(Own, folder, mix, row_level, dict(options))


def judge_own(folder: str, tallies: Sequence[Tally], mix: Mix, options: Options) -> list[str]:
    return check(refdelta.DeltaTable(folder, storage_options=options), mix, tallies)


def judge_rows(read: Callable[[str], pa.Table], folder: str, tallies: Sequence[Tally], mix: Mix) -> list[str]:
    """By the rows alone: what another engine has acknowledged is there, and nothing else."""
    done = [commit.task for tally in tallies for commit in tally.commits if commit.task >= 0]
    return check_rows(read(folder), mix, done)
