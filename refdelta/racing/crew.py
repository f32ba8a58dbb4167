"""A pool of processes or threads that begin work at the same moment and take numbered tasks from one counter.

A pool stays for several runs, so that none of them includes the time to start processes and to import.
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


def start(worker: Any) -> None:
    """Start a process or a thread that Ctrl-C does not reach. It reaches all processes of a terminal, also while they
    import their modules; the one that started them ends them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        worker.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class RaceFailedError(DeltaError):
    """A writer failed or died, or the table is not in the state that the writers reported."""


@dataclass(frozen=True)
class Shift:
    """The remaining tasks of all members. A task is a number, and is given out once.

    Attributes:
        taken: the number of tasks that were taken, shared by all.
        tasks: the number of tasks.
        until: the end, in seconds of ``time.monotonic``, which all processes of a machine share.
    """

    taken: Any
    tasks: int
    until: float = _NEVER

    def next(self) -> int | None:
        """The next task, or None if all are taken."""
        with self.taken.get_lock():
            if self.over:
                return None
            number: int = self.taken.value
            self.taken.value = number + 1
            return number

    @property
    def begun(self) -> int:
        """The number of tasks that were taken, by all members."""
        return int(self.taken.value)

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.until

    @property
    def over(self) -> bool:
        """Whether no task is left, the time is up, or the process that began the race was killed."""
        parent = multiprocessing.parent_process()
        return self.begun >= self.tasks or self.late or (parent is not None and not parent.is_alive())


Job = Callable[[], Callable[[Shift], Any]]
"""Prepares the work, and returns the function that does it. For processes it must be picklable."""


@dataclass(frozen=True)
class _Failed:
    text: str


@dataclass(frozen=True)
class _Done:
    told: Any


class Crew:
    """So many processes: ``with Crew(4) as crew: crew.ready([job] * 4); crew.go(tasks=100)``.

    Args:
        size: the number of members.
        threads: whether they are threads of this process instead.
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
            given = (theirs, self._taken)
            kind = threading.Thread if threads else context.Process
            self._members.append(kind(target=_member, args=given, name=f"writer-{number + 1}", daemon=True))

    def __enter__(self) -> Self:
        for member, end in zip(self._members, self._ends, strict=True):
            start(member)
            if not self.threads:
                end.close()  # the process has its own: where that ends, so does the line
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        """End all members. Again, it does nothing."""
        with self._taken.get_lock():
            self._taken.value = 2**62  # running threads find no more tasks
        for line in self._lines:
            line.close()
        for member in self._members:
            if not self.threads:
                member.terminate()
            member.join()

    def ready(self, jobs: Sequence[Job]) -> None:
        """Let one member prepare each job, and wait for all.

        Args:
            jobs: at most as many as the crew's size.

        Raises:
            RaceFailedError: a member failed or died; with the reason. The pool cannot be used any more.
        """
        self._at_work = self._lines[: len(jobs)]
        for line, job in zip(self._at_work, jobs, strict=True):
            line.send(job)
        self._gather(lambda _: None)

    def go(
        self, *, tasks: int, seconds: float | None = None, watch: Callable[[int], object] = lambda _: None
    ) -> list[Any]:
        """Let the prepared members do their work, all at once.

        Args:
            tasks: the number of tasks.
            seconds: the time after which there are no more tasks; None for no limit.
            watch: is called from time to time with the number of tasks that were taken.

        Returns:
            The result of each job, in their order.

        Raises:
            RaceFailedError: as :meth:`ready`.
        """
        self._taken.value = 0
        until = _NEVER if seconds is None else time.monotonic() + seconds
        for line in self._at_work:
            line.send((tasks, until))
        return self._gather(watch)

    def _gather(self, watch: Callable[[int], object]) -> list[Any]:
        """The next message of each working member."""
        lines = self._at_work
        told: dict[int, Any] = {}
        try:
            while len(told) < len(lines):
                ready = connection.wait([line for n, line in enumerate(lines) if n not in told], _LOOK_SECONDS)
                watch(self._taken.value)
                for number, line in enumerate(lines):
                    if line in ready:
                        told[number] = self._hear(number, line)
        except BaseException:
            self._end()  # before the folder of the race is removed, into which they would go on to write
            raise
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


def _member(line: Any, taken: Any) -> None:
    """One member: gets a job, prepares it, waits for the start, sends the result, and repeats until the pool ends."""
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
            except Exception as error:  # noqa: BLE001 - the parent reports every failure
                line.send(_failed(error))
    except (EOFError, OSError):
        return  # the pool has ended


def _failed(error: Exception) -> _Failed:
    if os.environ.get("REFDELTA_DEBUG"):
        traceback.print_exc()
    return _Failed(f"{type(error).__name__}: {error}")
