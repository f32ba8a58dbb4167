"""What a run has kept, read back from pytest-benchmark's JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from contest import SELF, Goal, Ratio, ratio

FOLDER = Path(__file__).parent / "data" / "results"
_ROUNDS = 1_000
"""More than a contest has: by it the rounds of several runs are told apart."""


class ResultsError(ValueError):
    """There is nothing to report."""


@dataclass(frozen=True)
class Measured:
    """One engine in one benchmark.

    Attributes:
        name: of the engine, or of one of its variants: "refdelta, fsync".
        settings: what a reader has to know.
        seconds: of each run, by the number of its round.
        figures: what the runs told besides.
        units: how many units a run did.
    """

    name: str
    settings: str
    seconds: Mapping[int, float]
    figures: Mapping[str, list[float]]
    units: int

    @cached_property
    def each(self) -> list[float]:
        """Seconds a unit, ascending."""
        return sorted(value / self.units for value in self.seconds.values())

    @property
    def middle(self) -> float:
        return statistics.median(self.each)

    @property
    def quartiles(self) -> tuple[float, float]:
        quarter = len(self.each) // 4
        return self.each[quarter], self.each[len(self.each) - 1 - quarter]

    def figure(self, name: str) -> float | None:
        return statistics.median(self.figures[name]) if self.figures.get(name) else None

    def value(self, name: str) -> float:
        """The median of a figure; of the seconds a unit if it has no name. Raises ``KeyError`` if it was not told."""
        return statistics.median(self.figures[name]) if name else self.middle


@dataclass(frozen=True)
class Bench:
    """One contest.

    Attributes:
        file: where it stands: "bench_stale.py".
        function: which benchmark it is of; one with parameters has several.
        kinds: its parameters that are words.
        sizes: what was measured: so many files, winners, writers.
        unit: what ``Measured.units`` counts; nothing for a whole statement.
    """

    file: str
    function: str
    kinds: tuple[str, ...]
    sizes: Mapping[str, Any]
    unit: str
    note: str
    goals: tuple[Goal, ...]
    engines: Mapping[str, Measured]

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Bench:
        """From what pytest-benchmark has of it. Raises ``KeyError`` where it is no contest."""
        info = told["extra_info"]
        engines = {
            name: Measured(
                name,
                samples["settings"],
                {int(number): seconds for number, seconds in samples["seconds"].items()},  # JSON has texts as keys
                samples["figures"],
                info["units"],
            )
            for name, samples in info["engines"].items()
        }
        goals = tuple(Goal(**goal) for goal in info["goals"])
        file, _, name = told["fullname"].partition("::")
        function, sizes = name.partition("[")[0], info["sizes"]
        words = (value for value in (told["params"] or {}).values() if isinstance(value, str))
        kinds = tuple(word for word in words if word not in sizes.values())
        return cls(Path(file).name, function, kinds, sizes, info["unit"], info["note"], goals, engines)

    @property
    def title(self) -> str:
        return self.title_without()

    def title_without(self, size: str = "") -> str:
        """What it is called, but for one of its sizes: the one that a plot has on its axis."""
        text = " ".join([self.function.removeprefix("bench_").replace("_", " "), *self.kinds])
        sizes = [
            value if isinstance(value, str) else f"{value:,} {name.replace('_', ' ')}"
            for name, value in self.sizes.items()
            if name != size
        ]
        return f"{text}: {', '.join(sizes)}" if sizes else text

    @property
    def per(self) -> str:
        """What the seconds are of: " a commit"; nothing for a whole statement."""
        return f" {'an' if self.unit[0] in 'aeiou' else 'a'} {self.unit}" if self.unit else ""

    @property
    def own(self) -> Measured:
        return self.engines[SELF]

    def ratio(self, rival: str, engine: str = SELF) -> Ratio:
        return ratio(self.engines[engine].seconds, self.engines[rival].seconds)

    def reached(self, goal: Goal) -> bool:
        return goal.reached(self._value(goal))

    def _value(self, goal: Goal) -> float:
        if goal.rival and not goal.figure:
            return self.ratio(goal.rival, goal.engine).middle
        engine = self.engines[goal.engine]
        value = engine.value(goal.figure)
        if goal.rival:
            return value / self.engines[goal.rival].value(goal.figure)
        return value / engine.value(goal.over) if goal.over else value


@dataclass(frozen=True)
class Run:
    """All contests of a run, or of several as if they were one, and where it was; ``time`` is that of the last."""

    benches: tuple[Bench, ...]
    machine: Mapping[str, Any]
    commit: str
    time: datetime
    runs: int = 1

    @property
    def size(self) -> str:
        return str(self.machine["size"])

    def version(self, engine: str) -> str:
        """An engine with its version: "deltalake 1.6.6"; what is no package has none."""
        name, comma, variant = engine.partition(",")
        version = self.machine["packages"].get(name)
        return f"{name} {version}{comma}{variant}" if version else engine


def load(*paths: Path) -> Run:
    """Read a run, or several of one commit, size and machine: each contest has the rounds of all of them. Those of the
    first file come first.

    Raises:
        ResultsError: a file cannot be read, or these runs are not of one kind.
    """
    runs = [_load(path) for path in paths]
    kinds = {(run.commit, run.size, run.machine["cores"]) for run in runs}
    if len(kinds) > 1:
        raise ResultsError(f"these runs are not of one commit, size and machine: {', '.join(map(str, sorted(kinds)))}")
    alike: dict[tuple[str, str], list[Bench]] = {}
    for run in runs:
        for bench in run.benches:
            alike.setdefault((bench.file, bench.title), []).append(bench)
    newest = max(runs, key=lambda run: run.time)
    return replace(newest, benches=tuple(map(_together, alike.values())), runs=len(runs))


def _together(benches: Sequence[Bench]) -> Bench:
    """The same contest in several runs."""
    engines: dict[str, Measured] = {}
    for name in dict.fromkeys(name for bench in benches for name in bench.engines):
        parts = {number: bench.engines[name] for number, bench in enumerate(benches) if name in bench.engines}
        seconds = {_ROUNDS * number + n: value for number, one in parts.items() for n, value in one.seconds.items()}
        figures: dict[str, list[float]] = {}
        for one in parts.values():
            for figure, values in one.figures.items():
                figures.setdefault(figure, []).extend(values)
        engines[name] = replace(one, seconds=seconds, figures=figures)
    return replace(benches[-1], engines=engines)


def _load(path: Path) -> Run:
    try:
        told = json.loads(path.read_text())
        benches = tuple(Bench.of(one) for one in told["benchmarks"] if "engines" in one["extra_info"])
        commit = told["commit_info"]
        name = f"{commit['id'][:7]}{', changed' if commit['dirty'] else ''}"
        run = Run(benches, told["machine_info"], name, datetime.fromisoformat(told["datetime"]))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ResultsError(f"{path} is no run of `make bench`: {type(error).__name__}: {error}") from error
    if not benches:
        raise ResultsError(f"{path} has no contest in it")
    return run


def newest(folder: Path = FOLDER) -> Path:
    """The last run, by the names that `make bench` gives. Raises ``ResultsError`` where there is none."""
    # A run that is under way, or was interrupted, has left an empty file.
    found = sorted(path for path in folder.glob("*.json") if path.stat().st_size)
    if not found:
        raise ResultsError(f"no run in {folder}: `make bench` makes one")
    return found[-1]
