"""Processes that race on a table, for the demo, for ``refdelta bench`` and for ``bench/``.

:func:`race` measures an engine, which is an object with the methods of :class:`BenchEngine`.
"""

from refdelta.racing.throughput import (
    Acknowledged,
    BenchEngine,
    Hands,
    OwnEngine,
    Race,
    RaceCommit,
    Tally,
    find_engine,
    race,
)

__all__ = [
    "Acknowledged",
    "BenchEngine",
    "Hands",
    "OwnEngine",
    "Race",
    "RaceCommit",
    "Tally",
    "find_engine",
    "race",
]
