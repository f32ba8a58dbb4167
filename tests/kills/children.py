"""Processes that work at a table until they are killed. They are forked from one that has the engine loaded and no
thread, and tell what they do through a pipe.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kills.places import CatalogPlace
from kills.steps import maintain, open_table, step_of, take, token
from refdelta import errors

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from refdelta import DeltaTable
    from servers.running import Place

TRY_AGAIN = (errors.ConcurrentModificationError, errors.CommitFailedError, errors.VersionNotFoundError)
"""Others were faster; or they cleaned up the log behind them, whose files all look old here."""

OUTAGE = (errors.StoreError, errors.CommitOutcomeUnknownError)
"""The database of the catalog has been restarted."""

_context = multiprocessing.get_context("forkserver")
# pyarrow would import pandas, and fsspec s3fs, in each of the processes, which takes longer than their work.
_context.set_forkserver_preload(
    [
        *("refdelta", "refdelta.api.table", "refdelta.api.writer", "refdelta.catalog.sql"),
        *(
            "pandas",
            "pyarrow.dataset",
            "s3fs",
            "sqlalchemy.dialects.sqlite",
            "sqlalchemy.dialects.postgresql",
            "psycopg",
        ),
    ]
)


@dataclass
class Child:
    """One process: a writer with rows of its own, or one that maintains the table over and over.

    Attributes:
        place: the table.
        role: ``writer``, or what :func:`kills.steps.maintain` does.
        owner: whose rows a writer writes.
        heard: what it told, in order: ``("begins", operation, step)`` and ``("committed", version, step)``.
    """

    place: Place
    role: str
    owner: int
    heard: list[tuple[str, Any, int]] = field(default_factory=list)

    def start(self) -> Child:
        self._pipe, theirs = _context.Pipe(duplex=False)
        work = _write if self.role == "writer" else _maintain
        self._process = _context.Process(target=work, args=(theirs, self.place, self.role, self.owner), daemon=True)
        self._process.start()
        theirs.close()
        return self

    def listen(self, count: int, seconds: float) -> None:
        """Wait until it has told ``count`` things more, or for so many seconds."""
        for _ in range(count):
            if not self._pipe.poll(seconds) or not self._hear():
                return

    def kill(self) -> None:
        """SIGKILL, and hear what it told before."""
        assert self._process.pid is not None
        with contextlib.suppress(ProcessLookupError):  # it failed, and told why
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.join()
        while self._hear():
            pass
        self._pipe.close()
        assert self._process.exitcode == -signal.SIGKILL

    def _hear(self) -> bool:
        with contextlib.suppress(EOFError, OSError):
            told = self._pipe.recv()
            assert told[0] != "failed", told[1]
            self.heard.append(told)
            return True
        return False

    @property
    def committed(self) -> dict[int, int]:
        """The version of each step of which it was told that it is committed."""
        return {step: version for what, version, step in self.heard if what == "committed"}

    @property
    def at_work(self) -> str:
        """In which operation it was killed, as far as it told."""
        if not self.heard:
            return "start"
        what, operation, _ = self.heard[-1]
        return operation if what == "begins" else "between"


def _opened(place: Place) -> DeltaTable:
    while True:
        try:
            return open_table(place)
        except errors.StoreError:
            if not isinstance(place, CatalogPlace):
                raise


def _write(told: Connection, place: Place, role: str, owner: int) -> None:
    with _telling(told):
        kept = _opened(place)
        number = 0
        while True:
            told.send(("begins", step_of(number), number))
            try:
                # Every other writer keeps its handle.
                table = kept if owner % 2 else open_table(place)
                version = take(table, owner, number)
            except TRY_AGAIN:
                continue
            except OUTAGE as error:
                if not isinstance(place, CatalogPlace):
                    raise
                version = _version_of(place, token(owner, number)) if _is_in_doubt(error) else None
                if version is None:
                    continue
            told.send(("committed", version, number))
            number += 1


def _is_in_doubt(error: Exception) -> bool:
    return isinstance(error, errors.CommitOutcomeUnknownError)


def _version_of(place: Place, note: str) -> int | None:
    """The version with this note, asked for until there is an answer; None if there is none."""
    while True:
        with contextlib.suppress(errors.StoreError):
            found = [one["version"] for one in open_table(place).history() if one.get("userMetadata") == note]
            return found[0] if found else None
        time.sleep(0.05)


def _maintain(told: Connection, place: Place, role: str, owner: int) -> None:
    with _telling(told):
        number = 0
        while True:
            told.send(("begins", role, number))
            with contextlib.suppress(*TRY_AGAIN, *(OUTAGE if isinstance(place, CatalogPlace) else ())):
                maintain(open_table(place), role)
            number += 1


@contextlib.contextmanager
def _telling(told: Connection) -> Any:
    try:
        yield
    except BaseException:
        told.send(("failed", traceback.format_exc(), -1))
        raise
