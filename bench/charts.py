"""The plots of a run, by matplotlib. Each title states what the figures of the run show.

The SVG of a figure is the same for the same figures: it has no date and no random ids. Text stays text, and the colours
follow the reader's light or dark theme.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from report import duration
from results import Bench, Measured, Run

ABORTS = "abort rate"
ALONE = ", one writer"  # the same work without others, which cannot conflict
RIVAL = "deltalake"

Spread = tuple[float, float, float]
"""A median, and the lower and the upper quartile."""


# --- how engines look ---


@dataclass(frozen=True)
class Look:
    """One series: its colour on a light and on a dark ground, and a marker, for those who see no colours."""

    light: str
    dark: str
    marker: str


# An engine looks the same in all plots. The floor is no contestant, and grey.
LOOKS = {
    "refdelta": Look("#2a78d6", "#5aa0f2", "o"),
    "deltalake": Look("#e0632b", "#f2905f", "s"),
    "delta-spark": Look("#15905f", "#35c48d", "^"),
    "refdelta, by files": Look("#7d3fc4", "#b795f7", "D"),
    "refdelta, fsync": Look("#0c8a99", "#3fc6d4", "v"),
    "refdelta, one writer": Look("#bb3068", "#f084ab", "P"),
    "floor": Look("#777570", "#a09e97", "x"),
    "bound": Look("#55534e", "#c4c2ba", "+"),
}
OTHERS = (
    Look("#a86d00", "#dcaa33", "<"),
    Look("#4f5d00", "#b5c73a", ">"),
    Look("#7a2e1d", "#d98873", "*"),
    Look("#1d3f7a", "#8fb2ec", "h"),
    Look("#5c2350", "#cf8fc0", "p"),
    Look("#00563b", "#71c7a4", "X"),
)
# Ground, grid, axes, text and headings.
_PAPER = {"#fcfcfb": "#1a1a19", "#e6e5e1": "#343431", "#8b8a84": "#8b8a85", "#565550": "#bcbab2", "#16150f": "#f4f3ee"}
GROUND, GRID, AXIS, TEXT, HEADING = _PAPER


def looks(run: Run) -> dict[str, Look]:
    """A style of drawing for each engine and variant of the run; no two are equal."""
    names = list(dict.fromkeys(name for bench in run.benches for name in bench.engines))
    free = iter(OTHERS)
    return {name: LOOKS.get(name) or next(free) for name in names if name in LOOKS or _is_drawn(run, name)}


def _is_drawn(run: Run, name: str) -> bool:
    files = {"bench_stale.py", "bench_snapshot.py", "bench_contention.py", "bench_s3.py"}
    return any(name in bench.engines for bench in run.benches if bench.file in files)


# --- which plots there are ---


def plots(run: Run) -> Iterator[tuple[str, Figure]]:
    """Name and figure of each plot for which the run has points."""
    seconds, rate = Scale("seconds", duration, _total, -1), Scale("commits per second", "{:,.3g}".format, _rate, 1)
    for name, topic, file, size, scale in (
        ("conflict-check", "Committing over other writers' commits", "bench_stale.py", "winners", seconds),
        ("snapshot", "Opening a table, and following it", "bench_snapshot.py", "files", seconds),
        ("throughput", "Commits per second on a local disk", "bench_contention.py", "writers", rate),
        ("throughput-s3", "Commits per second on S3", "bench_s3.py", "writers", rate),
    ):
        if groups := _groups(run, file, size):
            yield name, _lines(run, topic, groups, size, scale)
    if conflicts := _conflicts(run):
        yield "abort-rate", _bars(run, conflicts)


@dataclass(frozen=True)
class Scale:
    """The figures of a plot: their unit, their text, how they are taken, and 1 where more is better, else -1."""

    label: str
    text: Callable[[float], str]
    value: Callable[[Measured], Spread]
    better: int

    def times(self, own: Measured, rival: Measured) -> float:
        """The ratio to the rival, greater than 1 if refdelta is better."""
        return (self.value(own)[0] / self.value(rival)[0]) ** self.better


def _total(engine: Measured) -> Spread:
    low, high = engine.quartiles
    return engine.middle * engine.units, low * engine.units, high * engine.units


def _rate(engine: Measured) -> Spread:
    low, high = engine.quartiles
    return 1 / engine.middle, 1 / high, 1 / low


def _groups(run: Run, file: str, size: str) -> dict[str, list[Bench]]:
    """The benchmarks of each kind of work, by one size. A kind that has a single point is left out beside others."""
    groups: dict[str, list[Bench]] = {}
    for bench in sorted((bench for bench in run.benches if bench.file == file), key=lambda b: b.sizes.get(size, 0)):
        if size in bench.sizes:
            groups.setdefault(bench.title_without(size), []).append(bench)
    several = {title: some for title, some in groups.items() if len({bench.sizes[size] for bench in some}) > 1}
    return several or groups


def _conflicts(run: Run) -> dict[int, list[Bench]]:
    """The races of several writers that tell how many of their transactions conflicted, by the number of writers."""
    told: dict[int, list[Bench]] = {}
    for bench in run.benches:
        several = bench.file == "bench_contention.py" and bench.sizes.get("writers", 1) > 1
        if several and any(_share(engine) is not None for engine in bench.engines.values()):
            told.setdefault(bench.sizes["writers"], []).append(bench)
    return dict(sorted(told.items()))


def _share(engine: Measured) -> float | None:
    """Conflicts of a hundred transactions."""
    found = engine.figure(ABORTS)
    return None if found is None else 100 * found


# --- conclusions ---

_WORDS = {
    "contention: appends": "Appends",
    "contention: rows": "Different rows of one file",
    "contention: same-rows": "The same rows",
    "contention: optimize": "Different rows, during OPTIMIZE",
}


def _words(kind: str) -> str:
    return _WORDS.get(kind) or kind[:1].upper() + kind[1:]


def _conclusion(topic: str, groups: Mapping[str, Sequence[Bench]], size: str, scale: Scale) -> str:
    """The conclusion for a title: refdelta and its rival at the largest size of each kind."""
    last = [some[-1] for some in groups.values() if RIVAL in some[-1].engines]
    if not last:
        return topic
    found = sorted(scale.times(bench.own, bench.engines[RIVAL]) for bench in last)
    low, high = (f"{times:.2g}" for times in (found[0], found[-1]))
    between = low if low == high else f"{low} to {high}"
    sizes = sorted({bench.sizes[size] for bench in last})
    at = " or ".join(f"{value:,}" for value in sizes)
    return f"{topic}: {between} times as fast as {RIVAL} ({at} {size})"


def _beside(bench: Bench, size: str, scale: Scale) -> str:
    """The same of one kind, with its figures."""
    own, at = scale.text(scale.value(bench.own)[0]), f"at {bench.sizes[size]:,}"
    other = next((name for name in (RIVAL, "floor", "bound") if name in bench.engines), None)
    if other is None:
        return f"{own} {at}"
    times = scale.times(bench.own, bench.engines[other])
    faster = (
        f"{times:.2g} times as fast as" if times >= 1 or other == RIVAL else f"{1 / times:.2g} times as slow as the"
    )
    return f"{faster} {other} {at}: {own}, {scale.text(scale.value(bench.engines[other])[0])}"


def _most_apart(conflicts: Mapping[int, Sequence[Bench]]) -> str:
    """Where refdelta and its rival differ most, of the largest number of writers."""
    writers, benches = list(conflicts.items())[-1]
    found = [
        (rival - own, own, rival, bench.title_without("writers"))
        for bench in benches
        if (own := _share(bench.own)) is not None
        and RIVAL in bench.engines
        and (rival := _share(bench.engines[RIVAL])) is not None
    ]
    if not found:
        return "Transactions that end with a conflict"
    _, own, rival, kind = max(found)
    shares = (
        f"{own:.2g}\N{NO-BREAK SPACE}% of refdelta's transactions conflict, {rival:.2g}\N{NO-BREAK SPACE}% of {RIVAL}'s"
    )
    return f"{_words(kind)}, {writers} writers: {shares}"


# --- drawing ---

# In inches.
_WIDTH, _PANEL, _LEFT, _ABOVE, _BELOW, _LINE, _HEAD = 9.6, 3.25, 0.95, 0.55, 0.6, 0.2, 0.5
_NAMES = 0.95  # beside a panel, for the names of its lines
_APART = 9.5  # points between two of these names
SETTINGS = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": AXIS,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "figure.facecolor": GROUND,
    "svg.fonttype": "none",
    "svg.hashsalt": "refdelta",
}


def _lines(run: Run, topic: str, groups: Mapping[str, list[Bench]], size: str, scale: Scale) -> Figure:
    """A panel for each kind of work: a line for each engine, its quartiles as thin bars."""
    with mpl.rc_context(SETTINGS):
        benches = [bench for some in groups.values() for bench in some]
        title = _conclusion(topic, groups, size, scale)
        heights = [_PANEL] * len(groups)
        style = {"linewidth": 1.8}
        figure, panels = _page(
            run, title, benches, heights, lambda look: {"marker": look.marker, **style}, right=_NAMES
        )
        for axes, (kind, some) in zip(panels, groups.items(), strict=True):
            axes.set_title(f"{_words(kind)}\n", loc="left", color=HEADING, weight="bold", fontsize=9)
            axes.text(0, 1.03, _beside(some[-1], size, scale), transform=axes.transAxes, fontsize=8)
            ends = {}
            for name, points in _points(some, size, scale).items():
                look = looks(run)[name]
                x, y, low, high = zip(*points, strict=True)
                axes.vlines(x, low, high, colors=look.light, linewidth=0.9)
                axes.plot(x, y, color=look.light, marker=look.marker, markersize=5, gid=name, **style)
                ends[name] = (x[-1], y[-1])
            axes.set_xscale("log")
            xs = sorted({bench.sizes[size] for bench in some})
            axes.xaxis.set_major_locator(FixedLocator(xs))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.9g}"))
            axes.set_xlabel(size)
            axes.set_ylabel(scale.label)
            if scale.better < 0:
                axes.set_yscale("log")
                axes.yaxis.set_major_locator(LogLocator(numticks=7))
                axes.yaxis.set_minor_locator(NullLocator())
            else:
                axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: scale.text(value) if value else "0"))
            axes.grid(visible=False, axis="x")
            _name_ends(axes, ends, looks(run))
        return figure


def _name_ends(axes: Axes, ends: Mapping[str, tuple[float, float]], shown: Mapping[str, Look]) -> None:
    """Write the name of each line at its right end, in its colour, and apart from the others."""
    axes.autoscale_view()  # otherwise the limits are set when it is drawn
    height, below = axes.get_window_extent().height * 72 / axes.figure.dpi, -inf
    for name, (x, y) in sorted(ends.items(), key=lambda end: end[1][1]):
        at = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))[1] * height
        below = max(at, below + _APART)
        axes.annotate(
            name.removeprefix("refdelta, "),
            (x, y),
            (7, below - at),
            textcoords="offset points",
            va="center",
            color=shown[name].light,
            fontsize=8,
        )


def _points(benches: Sequence[Bench], size: str, scale: Scale) -> dict[str, list[tuple[float, float, float, float]]]:
    points: dict[str, list[tuple[float, float, float, float]]] = {}
    for bench in benches:
        for engine in bench.engines.values():
            points.setdefault(engine.name, []).append((bench.sizes[size], *scale.value(engine)))
    return points


def _bars(run: Run, conflicts: Mapping[int, list[Bench]]) -> Figure:
    """A panel for each number of writers, a group of bars for each mix; bars and legend are in the same order."""
    with mpl.rc_context(SETTINGS):
        benches = [bench for some in conflicts.values() for bench in some]
        shares = [share for bench in benches for engine in bench.engines.values() if (share := _share(engine))]
        names = [name for name in _labels(run, benches) if any(_share_of(bench, name) is not None for bench in benches)]
        names = [name for name in names if not name.endswith(ALONE)]
        rows = {writers: sum(len(_told(bench, names)) + 1.4 for bench in some) for writers, some in conflicts.items()}
        heights = [1.15 + 0.17 * rows[writers] for writers in conflicts]
        figure, panels = _page(run, _most_apart(conflicts), benches, heights, None, names)
        for axes, (writers, some) in zip(panels, conflicts.items(), strict=True):
            axes.set_title(f"{writers} writers", loc="left", color=HEADING, weight="bold", fontsize=9)
            y = 0.0
            for bench in some:
                axes.text(0, y, _words(bench.title_without("writers")), va="center", color=HEADING, fontsize=8.5)
                for name in _told(bench, names):
                    y += 1
                    share = _share_of(bench, name) or 0.0
                    axes.barh(y, share, height=0.8, color=looks(run)[name].light, gid=name)
                    axes.annotate(
                        f"{share:.3g} %", (share, y), (4, 0), textcoords="offset points", va="center", fontsize=8
                    )
                y += 1.4
            axes.set_ylim(y - 0.6, -0.8)
            axes.yaxis.set_visible(False)
            # Room for the figure at the end of the longest bar, and no more.
            axes.set_xlim(0, 1.15 * max(shares, default=1.0))
            axes.xaxis.set_major_locator(MaxNLocator(5))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
            axes.set_xlabel("of the transactions that were tried")
        return figure


def _told(bench: Bench, names: Sequence[str]) -> list[str]:
    return [name for name in names if _share_of(bench, name) is not None]


def _share_of(bench: Bench, name: str) -> float | None:
    return _share(bench.engines[name]) if name in bench.engines else None


def _page(
    run: Run,
    title: str,
    benches: Sequence[Bench],
    heights: Sequence[float],
    line: Callable[[Look], Mapping[str, Any]] | None,
    names: Sequence[str] | None = None,
    right: float = 0.2,
) -> tuple[Figure, list[Axes]]:
    """A figure with its title, its panels in two columns, the legend of all of them, and where it was measured."""
    told = _labels(run, benches)
    labels = {name: textwrap.fill(told[name], 125, subsequent_indent="    ") for name in names or told}
    note = _note(run)
    columns = min(2, len(heights))
    rows = [max(heights[start : start + columns]) for start in range(0, len(heights), columns)]
    head = textwrap.fill(title, 88)
    above = _HEAD + 0.22 * head.count("\n")
    legend = sum(1 + label.count("\n") for label in labels.values()) * _LINE + 0.1
    height = above + sum(rows) + legend + _LINE * len(note) + 0.2
    figure = Figure(figsize=(_WIDTH, height))
    figure.text(0.2 / _WIDTH, 1 - 0.15 / height, head, va="top", color=HEADING, weight="bold", fontsize=12)
    panels = []
    for number, inches in enumerate(heights):
        row, column = divmod(number, columns)
        left, top = column * _WIDTH / columns, above + sum(rows[:row])
        box = (
            left + _LEFT,
            height - top - inches + _BELOW,
            _WIDTH / columns - _LEFT - right,
            inches - _ABOVE - _BELOW,
        )
        panels.append(figure.add_axes(tuple(part / (_WIDTH, height)[at % 2] for at, part in enumerate(box))))
    shown = looks(run)
    keys = [
        Line2D([], [], color=shown[name].light, **line(shown[name])) if line else Patch(color=shown[name].light)
        for name in labels
    ]
    below = (_LINE * len(note) + 0.2) / height
    figure.legend(
        keys, list(labels.values()), loc="lower left", bbox_to_anchor=(0.01, below), frameon=False, fontsize=8.5
    )
    for number, text in enumerate(reversed(note)):
        figure.text(0.2 / _WIDTH, (0.12 + _LINE * number) / height, text, fontsize=8)
    return figure, panels


def _labels(run: Run, benches: Sequence[Bench]) -> dict[str, str]:
    """The legend: each engine with its version, and its settings in all of these benchmarks."""
    settings: dict[str, dict[str, None]] = {}
    for bench in benches:
        for engine in bench.engines.values():
            settings.setdefault(engine.name, {})[engine.settings] = None
    told = {name: "; ".join(filter(None, some)) for name, some in settings.items()}
    return {name: f"{run.version(name)}: {some}" if some else run.version(name) for name, some in told.items()}


def _note(run: Run) -> tuple[str, ...]:
    when = f"make {target(run)} at {run.commit}, {run.time:%d %B %Y}"
    return when, f"{machine(run)}. Medians, and quartiles as thin lines."


def target(run: Run) -> str:
    """The target of the Makefile that makes such a run."""
    return {"default": "bench", "full": "bench-full"}.get(run.size, f'bench BENCH="--size {run.size}"')


def machine(run: Run) -> str:
    """The machine of a run, in words."""
    cpu, memory = run.machine["cpu"], run.machine["memory"] / 2**30
    name = cpu.get("brand_raw", run.machine["machine"])
    return f"{run.machine['cores']} cores of {name}, {memory:.0f} GiB, Python {run.machine['python_version']}"


# --- SVG ---


def titled(figure: Figure) -> str:
    """The conclusion that a figure states."""
    return " ".join(figure.texts[0].get_text().split())


def svg(figure: Figure, title: str) -> str:
    """The figure as SVG: the same text for the same figure, in the colours of the reader's theme."""
    kept = io.StringIO()
    with mpl.rc_context(SETTINGS):
        figure.savefig(kept, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
    dark = _PAPER | {look.light: look.dark for look in (*LOOKS.values(), *OTHERS)}
    rules = "".join(
        f'[style*="fill: {light}"]{{fill:{other}!important}}[style*="stroke: {light}"]{{stroke:{other}!important}}\n'
        for light, other in dark.items()
    )
    style = f"<style>\n@media (prefers-color-scheme: dark) {{\n{rules}}}\n</style>\n"
    text = re.sub(r'(width|height)="([0-9.]+)pt"', r'\1="\2"', kept.getvalue(), count=2)
    text = text.replace("font-family: 'DejaVu Sans'", "font-family: 'DejaVu Sans', Verdana, sans-serif")
    return re.sub(r"(<svg [^>]*>\n)", lambda found: found[1] + style, text, count=1)
