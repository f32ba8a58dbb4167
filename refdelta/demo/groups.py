"""A part of the main job: a hundred small writers, threads of one program, each by itself and then in a group."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from refdelta.api.writer import write_deltalake
from refdelta.demo import run as demo
from refdelta.demo.run import DemoCheck, TableLocation

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from refdelta.transaction.results import CommitResult

WRITERS = 100
_ROWS = 30


@dataclass(frozen=True)
class SmallAppends:
    """The appends of the small writers.

    Attributes:
        grouped: whether they committed in a group.
        versions: the version of each writer's append.
        members: the place of each append in its version; None for one that has a version for itself.
        seconds: from the start to the last commit.
    """

    grouped: bool
    versions: tuple[int | None, ...]
    members: tuple[int | None, ...]
    seconds: float


def append_small(place: TableLocation, source: pa.Table) -> tuple[list[SmallAppends], list[DemoCheck]]:
    """Let small writers append some flights each: by themselves, and in a group, to a table each.

    Args:
        place: the main table; these are beside it.
        source: the flights.

    Returns:
        Both results, and the comparisons of both tables with the source.
    """
    some = source.slice(0, WRITERS * _ROWS)
    outcomes, checks = [], []
    for grouped in (False, True):
        beside = TableLocation(f"{place.uri}-{'group' if grouped else 'threads'}", place.options)
        outcome = _append(beside, some, grouped=grouped)
        outcomes.append(outcome)
        checks += _verify(beside, some, outcome)
    return outcomes, checks


def _append(place: TableLocation, source: pa.Table, *, grouped: bool) -> SmallAppends:
    table = demo.create(place, source)
    parts = [source.slice(number * _ROWS, _ROWS) for number in range(WRITERS)]

    def alone(rows: pa.Table) -> CommitResult:
        return write_deltalake(place.open(), rows, mode="append")

    def run(append: Callable[[pa.Table], CommitResult]) -> list[CommitResult]:
        with ThreadPoolExecutor(WRITERS) as pool:
            return list(pool.map(append, parts))

    began = time.monotonic()
    if grouped:
        with table.group_commit() as group:
            results = run(group.append)
    else:
        results = run(alone)
    seconds = time.monotonic() - began
    return SmallAppends(grouped, tuple(one.version for one in results), tuple(one.member for one in results), seconds)


def _verify(place: TableLocation, source: pa.Table, outcome: SmallAppends) -> list[DemoCheck]:
    rows = place.open().to_pyarrow_table()
    name = f"{WRITERS} small writers {'in a group' if outcome.grouped else 'by themselves'}"
    shared = set(zip(outcome.versions, outcome.members, strict=True))
    return [
        demo.check(f"{name}: sums per carrier, as in the source", demo.by_carrier(rows), demo.by_carrier(source)),
        demo.check(f"{name}: each append has a place of its own", len(shared), WRITERS),
    ]
