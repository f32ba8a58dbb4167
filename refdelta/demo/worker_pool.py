"""Processes or threads that wait for work, begin it at the same moment, and take numbered tasks from one counter.

A crew stays for several runs, so that what it takes to start a process and to import is in none of them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from types import TracebackType
from typing import Any, Self

from refdelta.errors import DeltaError

_LOOK_SECONDS = 0.2
_NEVER = float("inf")


class RaceFailedError(DeltaError):
    """A writer failed or died, or what it has left is not what it said."""


@dataclass(frozen=True)
class Shift:
    """What is left to do, for all members together. A task is a number, and nobody gets one twice.

    Attributes:
        taken: how many tasks were taken, shared by all.
        tasks: how many there are.
        until: when there are none left, whatever their number; seconds of ``time.monotonic``, which all processes of a
            machine share.
    """

    taken: Any
    tasks: int
    until: float = _NEVER

    def next(self) -> int | None:
        """A task of one's own, or None where all are taken."""
        with self.taken.get_lock():
            if self.over:
                return None
            number: int = self.taken.value
            self.taken.value = number + 1
            return number

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.until

    @property
    def over(self) -> bool:
        """Whether there is no task left."""
        return self.taken.value >= self.tasks or self.late


Job = Callable[[], Callable[[Shift], Any]]
"""Prepares the work, and gives what does it. Processes need one that can be pickled."""


@dataclass(frozen=True)
class _Failed:
    text: str


@dataclass(frozen=True)
class _Done:
    told: Any


class Crew:
    """So many processes: ``with Crew(4) as crew: crew.ready([job] * 4); crew.go(tasks=100)``.

    Args:
        size: how many.
        threads: they are threads of this process instead.
    """

    def __init__(self, size: int, *, threads: bool = False) -> None:
        self.size, self.threads = size, threads
        context = multiprocessing.get_context("spawn")
        self._taken = context.Value("q", 0)
        self._lines: list[Any] = []
        self._members: list[Any] = []
        self._ends: list[Any] = []
        self._at_work: list[Any] = []
        for number in range(size):
            ours, theirs = context.Pipe()
            self._lines.append(ours)
            self._ends.append(theirs)
            given = (theirs, self._taken, not threads)
            start = threading.Thread if threads else context.Process
            self._members.append(start(target=_member, args=given, name=f"writer-{number + 1}", daemon=True))

    def __enter__(self) -> Self:
        for member, end in zip(self._members, self._ends, strict=True):
            member.start()
            if not self.threads:
                end.close()  # the process has its own: where that ends, so does the line
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._taken.get_lock():
            self._taken.value = 2**62  # threads that are at work find nothing left
        for line in self._lines:
            line.close()
        for member in self._members:
            if not self.threads:
                member.terminate()
            member.join()

    def ready(self, jobs: Sequence[Job]) -> None:
        """Have as many members as there are jobs prepare them, and wait until all have.

        Args:
            jobs: at most as many as the crew's size.

        Raises:
            RaceFailedError: a member failed or died; the message says how. The crew is of no use then.
        """
        self._at_work = self._lines[: len(jobs)]
        for line, job in zip(self._at_work, jobs, strict=True):
            line.send(job)
        self._gather(lambda _: None)

    def go(
        self, *, tasks: int, seconds: float | None = None, watch: Callable[[int], object] = lambda _: None
    ) -> list[Any]:
        """Have those that are ready do their work, all at once.

        Args:
            tasks: how many tasks there are.
            seconds: after how many there are none left; None for as long as it takes.
            watch: is told now and then how many tasks were taken.

        Returns:
            What each job's work gave, in their order.

        Raises:
            RaceFailedError: as :meth:`ready`.
        """
        self._taken.value = 0
        until = _NEVER if seconds is None else time.monotonic() + seconds
        for line in self._at_work:
            line.send((tasks, until))
        return self._gather(watch)

    def _gather(self, watch: Callable[[int], object]) -> list[Any]:
        """What each member at work says next."""
        lines = self._at_work
        told: dict[int, Any] = {}
        while len(told) < len(lines):
            ready = connection.wait([line for n, line in enumerate(lines) if n not in told], _LOOK_SECONDS)
            watch(self._taken.value)
            for number, line in enumerate(lines):
                if line in ready:
                    told[number] = self._hear(number, line)
        return [told[number] for number in range(len(lines))]

    def _hear(self, number: int, line: Any) -> Any:
        try:
            said = line.recv()
        except EOFError:
            self._members[number].join(1)
            status = getattr(self._members[number], "exitcode", None)
            raise RaceFailedError(f"writer {number + 1} ended with status {status}") from None
        if isinstance(said, _Failed):
            raise RaceFailedError(f"writer {number + 1} failed: {said.text}")
        return said.told


def _member(line: Any, taken: Any, alone: bool) -> None:
    """One member: a job, "ready", the start, what came of it, and again until nobody is there any more."""
    if alone:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal tells all of its processes; the first one ends us
    try:
        while True:
            job = line.recv()
            try:
                work = job()
                line.send(_Done(None))
                tasks, until = line.recv()
                line.send(_Done(work(Shift(taken, tasks, until))))
            except (EOFError, OSError) as error:
                if isinstance(error, EOFError) or line.closed:
                    return
                line.send(_failed(error))
            except Exception as error:  # noqa: BLE001 - whatever it is, the one who waits must hear of it
                line.send(_failed(error))
    except (EOFError, OSError):
        return  # nobody is there any more


def _failed(error: Exception) -> _Failed:
    if os.environ.get("REFDELTA_DEBUG"):
        traceback.print_exc()
    return _Failed(f"{type(error).__name__}: {error}")
