"""A run: writers and a reader work on one table while the network, or the server, fails; then they are judged."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context

import deltalake

from faults.judge import Verdict, judge
from faults.report import Result
from faults.steps import Step, begin, some_steps
from faults.writers import Told, impatient, in_order, read, rows_of, write
from refdelta import DeltaTable
from refdelta.proxy.faults import RandomFaults
from servers.proxies import ServerProxy
from servers.running import Place, S3Server, Server

_VACUUMS = 4


@dataclass(frozen=True)
class Shape:
    """What a run is like.

    Attributes:
        name: for reports.
        layout: ``vectors``, ``partitions`` or ``plain``.
        writers: how many.
        steps: of each.
        rate: how many of the requests that only read meet a fault, not counting its repetitions.
        writes: how many of those that write.
        only: the kind of objects whose requests meet faults; None for all.
        bursts: how often a fault meets the same request again, to choose from.
        processes: whether each writer is a process of its own, or a thread.
        kinds: weights of the steps; the usual ones where there are none.
        creating: whether the writers race to create the table too.
        probed: whether clients probe for conditional puts.
        kills: seconds between two ends of the server, at most; none if it is 0.
    """

    name: str
    layout: str = "vectors"
    writers: int = 4
    steps: int = 8
    rate: float = 0.04
    writes: float = 0.3
    only: str | None = None
    bursts: tuple[int, ...] = (1, 1, 1, 1, 2, 3, 6, 12)
    processes: bool = False
    kinds: Mapping[str, int] = field(default_factory=dict)
    creating: bool = False
    probed: bool = False
    kills: float = 0.0


SHAPES = (
    Shape("vectors"),
    Shape("partitions", layout="partitions"),
    Shape("commits", writers=6, rate=0.1, writes=0.7, only="commit", kinds={"append": 2, "update": 1, "delete": 1}),
    Shape(
        "outages",
        writers=6,
        writes=0.5,
        only="commit",
        bursts=(1, 2, 30),
        kinds={"append": 2, "update": 1, "delete": 1},
    ),
    Shape("exactly once", "plain", rate=0.2, writes=0.6, only="commit", bursts=(1, 2, 30), steps=5, kinds={"once": 1}),
    Shape("processes", processes=True, probed=True),
    Shape("creation", layout="plain", writers=5, steps=3, writes=0.5, creating=True, kinds={"append": 1, "update": 1}),
    Shape("plain", layout="plain", processes=True, kinds={"append": 3, "compact": 2, "checkpoint": 1, "overwrite": 1}),
)
"""The runs of a campaign, in turn."""


def run(server: Server, seed: int, shape: Shape) -> Result:
    """Let writers and a reader work on a fresh table, then VACUUM it, and judge after each of the two.

    Args:
        server: where.
        seed: of all dice.
        shape: what the run is like.
    """
    started = time.monotonic()
    direct = server.place()
    plan = RandomFaults(seed, shape.rate, writes=shape.writes, only=shape.only, bursts=shape.bursts)
    if not shape.creating:
        begin(direct.uri, shape.layout, direct.options)
    with ServerProxy(server, plan) as proxy:
        place = impatient(proxy.through(direct), probed=shape.probed)
        done = threading.Event()
        with ThreadPoolExecutor(1) as readers, _pool(shape) as pool:
            reading = readers.submit(read, place, seed, done.is_set)
            writing = [
                pool.submit(write, place, _steps(shape, owner, seed), seed + owner) for owner in range(shape.writers)
            ]
            try:
                if shape.kills:
                    ended = _end_again_and_again(server, shape.kills, seed, writing)
                told = [one for future in writing for one in future.result()]
            finally:
                done.set()
            reads = [*reading.result(), *(one.seen for one in told if one.seen)]
        with _quiet(plan, proxy):
            verdict = judge(direct, told, reads, may_be_absent=shape.creating)
            if verdict.versions:
                _ask_another_reader(server, direct, shape, verdict)
        vacuums = [*_vacuum(place)] if verdict.versions else []
        with _quiet(plan, proxy):
            after = _judge_vacuumed(direct, told, vacuums, shape) if verdict.versions else Verdict()
        result = Result.of(proxy, [*told, *vacuums], reads, verdict)
    result.wrong = [f"{server.scheme}, seed {seed}, {shape.name}: {text}" for text in verdict.wrong + after.wrong]
    result.ended = ended if shape.kills else 0
    result.seconds = time.monotonic() - started
    return result


def _pool(shape: Shape) -> Executor:
    if shape.processes:
        return ProcessPoolExecutor(shape.writers, get_context("spawn"))
    return ThreadPoolExecutor(shape.writers)


def _steps(shape: Shape, owner: int, seed: int) -> list[Step]:
    steps = some_steps(owner, shape.steps, seed, shape.kinds or None)
    return [Step("create", owner, shape.steps), *steps] if shape.creating else steps


def _end_again_and_again(server: Server, longest: float, seed: int, writing: list[Future[list[Told]]]) -> int:
    """End the server at random moments, and start it again, as long as anybody writes. Returns how often.

    In the thread of the caller: a server ends with the thread that started it.
    """
    dice, count = random.Random(seed), 0
    while wait(writing, timeout=dice.uniform(0.1, longest)).not_done:
        server.restart()
        count += 1
    return count


@contextmanager
def _quiet(plan: RandomFaults, proxy: ServerProxy) -> Iterator[None]:
    """No faults, and nothing on its way to the server any more."""
    plan.active = False
    proxy.settle()
    yield
    plan.active = True


def _ask_another_reader(server: Server, direct: Place, shape: Shape, verdict: Verdict) -> None:
    """Let deltalake read what it can: the folder that is served, unless rows are deleted by vectors there."""
    if not isinstance(server, S3Server) or shape.layout == "vectors":
        return
    theirs = deltalake.DeltaTable(server.path(direct.uri)).to_pyarrow_table()
    ours = DeltaTable(direct.uri, storage_options=direct.options)
    if in_order(theirs) != rows_of(ours):
        verdict.blame("deltalake reads other rows")


def _vacuum(place: Place) -> Iterator[Told]:
    for number in range(_VACUUMS):
        told = write(place, [Step("vacuum", -2, number)], number)
        yield from told
        if told[0].outcome != "failed":
            return


def _judge_vacuumed(direct: Place, told: list[Told], vacuums: list[Told], shape: Shape) -> Verdict:
    """After the vacuums by the bad network, and after one that went well."""
    first = judge(direct, [*told, *vacuums], vacuumed=True, may_be_absent=shape.creating)
    last = write(direct, [Step("vacuum", -3, 0)], 0)
    second = judge(direct, [*told, *vacuums, *last], vacuumed=True, may_be_absent=shape.creating)
    second.wrong = first.wrong + second.wrong
    if last[0].error:
        second.blame(f"VACUUM fails where the network is good: {last[0].error}")
    if second.orphans:
        second.blame(f"{second.orphans} data files that no version names are left after VACUUM")
    return second
