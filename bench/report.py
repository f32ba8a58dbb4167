"""What a run has found, in lines for a terminal; ``reporting.py`` makes the README's table and the plots of it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from contest import SELF, Goal, Ratio, ratio

SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def lines(benchmarks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A paragraph for each benchmark: seconds of each engine with their spread, refdelta's ratio to it, the goals."""
    for bench in benchmarks:
        info = bench["extra_info"]
        if "engines" not in info:
            continue
        yield ""
        yield f"{bench['name'].removeprefix('bench_').replace('_', ' ')}{_sizes(info['sizes'])}"
        own = _numbered(info["engines"][SELF]["seconds"])
        for name, samples in info["engines"].items():
            yield _line(name, samples, own, info)
        for goal in (Goal(**goal) for goal in info["goals"]):
            found = ratio(own, _numbered(info["engines"][goal.rival]["seconds"]))
            yield f"  goal: {goal.text}: {'reached' if goal.reached(found.middle) else 'MISSED'}"


def _line(name: str, samples: Mapping[str, Any], own: Mapping[int, float], info: Mapping[str, Any]) -> str:
    seconds = _numbered(samples["seconds"])
    each = sorted(value / info["units"] for value in seconds.values())
    per = f" a {info['unit']}" if info["unit"] else ""
    text = f"  {name:<18}{duration(statistics.median(each)):>10}{per}  [{duration(each[0])} .. {duration(each[-1])}]"
    if name != SELF:
        text += f"  refdelta takes {times(ratio(own, seconds))}"
    for figure, values in samples["figures"].items():
        text += f"; {figure} {statistics.median(values):,.6g}"
    return f"{text}  ({samples['settings']})" if samples["settings"] else text


def _numbered(seconds: Mapping[Any, float]) -> dict[int, float]:
    """JSON has no numbers as keys."""
    return {int(number): value for number, value in seconds.items()}


def _sizes(sizes: Mapping[str, Any]) -> str:
    named = [f"{value:,} {name}" if isinstance(value, int) else f"{name} {value}" for name, value in sizes.items()]
    return ": " + ", ".join(named) if named else ""


def duration(seconds: float) -> str:
    """Three digits and a unit."""
    scale, unit = next(((s, u) for s, u in SCALES if seconds >= s), SCALES[-1])
    return f"{seconds / scale:.3g} {unit}"


def times(found: Ratio) -> str:
    """A ratio with its spread."""
    return f"{found.middle:.3g} x [{found.low:.3g} .. {found.high:.3g}]"
