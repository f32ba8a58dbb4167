"""A contest: engines that do the same work in turn, round by round, beside a floor that none of them can go below.

The machine is never quiet, so no engine has a minute of its own: every round runs each engine once, each round begins
with another one, and what is reported is the median of the ratios within rounds, with their spread. refdelta's samples
are pytest-benchmark's own; the others' stand beside them in its JSON, all of them raw.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

SELF = "refdelta"

Figures = Mapping[str, float] | None
"""What a run tells beside its seconds: bytes written, transactions aborted, ..."""


@dataclass(frozen=True)
class Engine:
    """One that takes part.

    Attributes:
        name: what the report calls it; "refdelta" is the one that all others stand beside, "floor" what bounds it.
        run: the work, timed; it is given what ``before`` returns. May return figures of its own.
        before: prepares a run, not timed.
        after: checks and cleans up behind a run, not timed; it is given what ``before`` returned.
        settings: what a reader has to know for the comparison to be fair: versions, fsync, cold or warm.
        every: it takes part in every so many rounds; for rivals that take minutes.
        share: which part of the work its run does, likewise; its seconds are divided by that.
    """

    name: str
    run: Callable[..., Figures | object]
    before: Callable[[], Any] | None = None
    after: Callable[[Any], object] | None = None
    settings: str = ""
    every: int = 1
    share: float = 1.0


@dataclass(frozen=True)
class Goal:
    """What is wanted: a value, which must not be greater.

    Attributes:
        text: how the report says it.
        most: the greatest value that reaches it.
        engine: whose value: one of refdelta's own.
        figure: which one, of those that its runs tell; its seconds a unit if empty.
        rival: the engine by whose value it is divided: round by round, if these are seconds.
        over: the figure of the engine itself by which it is divided, if there is no rival.
    """

    text: str
    most: float
    engine: str = SELF
    figure: str = ""
    rival: str = ""
    over: str = ""

    def reached(self, value: float) -> bool:
        return value <= self.most


def ahead(rival: str, times: float = 1, *, engine: str = SELF, figure: str = "") -> Goal:
    """So many times as fast as a rival; or so many times less of a figure than it."""
    text = f"{times:g} x {rival}" if times != 1 else f"ahead of {rival}"
    return Goal(_told(text, engine, figure), 1 / times, engine=engine, figure=figure, rival=rival)


def within(rival: str, ratio: float, *, engine: str = SELF) -> Goal:
    """At most so many times what another takes."""
    return Goal(_told(f"at most {ratio:g} x {rival}", engine, ""), ratio, engine=engine, rival=rival)


def _told(text: str, engine: str, figure: str) -> str:
    """The text of a goal for an engine that is not the usual one, or for a figure."""
    return ": ".join([*([engine] if engine != SELF else []), *([figure] if figure else []), text])


@dataclass
class Samples:
    """What was measured of one engine: ``seconds`` by the number of the round, and what its runs told."""

    settings: str
    seconds: dict[int, float] = field(default_factory=dict)
    figures: dict[str, list[float]] = field(default_factory=dict)

    def tell(self, told: Figures | object) -> None:
        for name, value in told.items() if isinstance(told, Mapping) else ():
            self.figures.setdefault(name, []).append(float(value))


class Contest:
    """The fixture ``contest``: see :meth:`run`."""

    def __init__(self, benchmark: Any, rounds: int | None, skipped: frozenset[str], seed: int, *, alone: bool = False):
        self._benchmark, self._rounds, self._skipped, self.seed = benchmark, rounds, skipped, seed
        self._alone = alone

    def run(
        self,
        engines: Sequence[Engine],
        *,
        rounds: int = 7,
        warm: int = 1,
        units: int = 1,
        unit: str = "",
        goals: Sequence[Goal] = (),
        note: str = "",
        **sizes: object,
    ) -> dict[str, Samples]:
        """Let the engines run in turn.

        Args:
            engines: refdelta's among them.
            rounds: how many count.
            warm: how many go before and do not count; none before a single round.
            units: how many of ``unit`` a run does; the report divides by it.
            unit: "commit", "row", ...; nothing for a whole statement.
            goals: what is wanted.
            note: for the report.
            sizes: what was measured: of files, of winners, of writers. Plots are drawn over them.

        Returns:
            The samples of each engine.
        """
        chosen = [engine for engine in engines if self._takes_part(engine.name)]
        (own,) = (engine for engine in chosen if engine.name == SELF)
        found = {engine.name: Samples(engine.settings) for engine in chosen}
        rounds = rounds if self._rounds is None else self._rounds
        warm = warm if rounds > 1 else 0  # a single round shows that it works, and no more
        numbers = iter(range(-warm, rounds))
        state: dict[str, Any] = {}

        def others(*, before: bool) -> None:
            number = state["number"]
            start = number % len(chosen)
            turn = chosen[start:] + chosen[:start]
            place = turn.index(own)
            for engine in turn[:place] if before else turn[place + 1 :]:
                if number < 0 or number % engine.every == 0:
                    _measure(engine, number, found[engine.name])

        def prepare() -> tuple[tuple[Any, ...], dict[str, Any]]:
            state["number"] = next(numbers)
            others(before=True)
            given = (own.before(),) if own.before else ()
            gc.collect()
            return given, {}

        def work(*given: Any) -> None:
            state["told"] = own.run(*given)

        def finish(*given: Any) -> None:
            if state["number"] >= 0:
                found[SELF].tell(state["told"])
            if own.after:
                own.after(*given or (None,))
            others(before=False)

        self._benchmark.pedantic(work, setup=prepare, teardown=finish, rounds=rounds, warmup_rounds=warm)
        found[SELF].seconds.update(enumerate(self._benchmark.stats.stats.data))
        self._benchmark.extra_info.update(
            sizes=sizes,
            unit=unit,
            units=units,
            note=note,
            seed=self.seed,
            goals=[asdict(goal) for goal in goals if {goal.engine, goal.rival or SELF} <= found.keys()],
            engines={name: asdict(samples) for name, samples in found.items()},
        )
        return found

    def _takes_part(self, name: str) -> bool:
        return name == SELF if self._alone else name not in self._skipped


def _measure(engine: Engine, number: int, samples: Samples) -> None:
    given = (engine.before(),) if engine.before else ()
    gc.collect()
    start = time.perf_counter()
    told = engine.run(*given)
    seconds = (time.perf_counter() - start) / engine.share
    if number >= 0:
        samples.seconds[number] = seconds
        samples.tell(told)
    if engine.after:
        engine.after(*given or (None,))


@dataclass(frozen=True)
class Ratio:
    """refdelta's seconds over another's, round by round."""

    middle: float
    low: float
    high: float


def ratio(own: Mapping[Any, float], other: Mapping[Any, float]) -> Ratio:
    """The median over the rounds that both have, and the quartiles' ends where there are enough of them."""
    each = sorted(own[number] / other[number] for number in own.keys() & other.keys())
    quarter = len(each) // 4
    return Ratio(statistics.median(each), each[quarter], each[len(each) - 1 - quarter])
