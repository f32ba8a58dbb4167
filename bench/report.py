"""The figures of a run as lines for a terminal; ``reporting.py`` writes the tables and the plots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from contest import SELF, Ratio
from results import Bench, Measured

SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def lines(benches: Sequence[Bench]) -> Iterator[str]:
    """A paragraph for each benchmark: seconds of each engine with their spread, refdelta's ratio to it, the goals."""
    for bench in benches:
        yield ""
        yield bench.title
        for engine in bench.engines.values():
            yield _line(bench, engine)
        for goal in bench.goals:
            yield f"  goal: {goal.text}: {'reached' if bench.reached(goal) else 'MISSED'}"


def _line(bench: Bench, engine: Measured) -> str:
    spread = f"[{duration(engine.each[0])} .. {duration(engine.each[-1])}]"
    text = f"  {engine.name:<18}{duration(engine.middle):>10}{bench.per}  {spread}"
    if engine.name != SELF:
        text += f"  refdelta takes {times(bench.ratio(engine.name))}"
    for figure in engine.figures:
        text += f"; {figure} {engine.figure(figure):,.6g}"
    return f"{text}  ({engine.settings})" if engine.settings else text


def duration(seconds: float) -> str:
    """Three digits and a unit."""
    scale, unit = next(((s, u) for s, u in SCALES if seconds >= s), SCALES[-1])
    return f"{seconds / scale:.3g} {unit}"


def times(found: Ratio) -> str:
    """A ratio with its spread."""
    return f"{found.middle:.3g} x [{found.low:.3g} .. {found.high:.3g}]"
