"""``make bench-report``: the README's table, all figures and the plots, of the newest run or of FILE.

    python bench/reporting.py [FILE] [--readme README.md] [--figures bench/figures.md] [--plots FOLDER]

The README has the largest of each kind between two comments, in place of what stands there; ``bench/figures.md`` has
all, with spreads and settings; the plots go into ``bench/plots``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from report import duration
from results import Bench, Measured, ResultsError, Run, load, newest
from svg import Axis, Bars, Look, Panel, Point, Series, draw

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
ABORTS = "abort rate"

Spread = tuple[float, float, float]
"""A median, and the lower and the upper quartile."""

# An engine has the same hue in all plots; what is not listed has one of those behind.
HUES = {"refdelta": 0, "deltalake": 1, "delta-spark": 2, "pyarrow": 3, "duckdb": 4, "polars": 5, "pyiceberg": 5}
GREY = ("floor", "bound")


# --- the tables ---

RIVALS = ("deltalake", "delta-spark", "floor")


def summary(run: Run, figures: str, plots: Sequence[str]) -> str:
    """What stands in the README: where it was measured, a row for the largest of each kind, the plots."""
    rows = [
        f"{where(run)} Medians; in bold refdelta's time over the other's within the same rounds: less than 1 is",
        f"faster. The floor is the least that any implementation must do. [All figures]({figures}), with their spread.",
        "",
        f"| | refdelta | {' | '.join(RIVALS)} | others | goals |",
        "|---|---|---|---|---|---|---|",
    ]
    rows += [f"| {' | '.join(_short(bench))} |" for bench in largest(run)]
    rows += [f"\n![{path.removesuffix('.svg').rpartition('/')[2]}]({path})" for path in plots]
    return "\n".join(rows)


def largest(run: Run) -> Iterator[Bench]:
    """The last of each kind, and before it those with a goal that it has not."""
    groups: dict[tuple[object, ...], list[Bench]] = {}
    for bench in run.benches:
        words = tuple(value for value in bench.sizes.values() if isinstance(value, str))
        groups.setdefault((bench.file, bench.function, bench.kinds, words), []).append(bench)
    for group in groups.values():
        shown, goals = [group[-1]], {goal.text for goal in group[-1].goals}
        for bench in reversed(group[:-1]):
            more = {goal.text for goal in bench.goals} - goals
            if more:
                shown.append(bench)
                goals |= more
        yield from reversed(shown)


def _short(bench: Bench) -> Iterator[str]:
    yield bench.title
    yield f"{duration(bench.own.middle)}{bench.per}"
    for name in RIVALS:
        yield _beside(bench, bench.engines[name]) if name in bench.engines else ""
    others = (engine for engine in bench.engines.values() if engine is not bench.own and engine.name not in RIVALS)
    yield "<br>".join(f"{engine.name}: {_beside(bench, engine)}" for engine in others)
    yield _goals(bench)


def _beside(bench: Bench, engine: Measured) -> str:
    return f"{duration(engine.middle)} **{_number(bench.ratio(engine.name).middle)}**"


def _goals(bench: Bench) -> str:
    return "<br>".join(f"{goal.text}: {'reached' if bench.reached(goal) else '**missed**'}" for goal in bench.goals)


def table(run: Run) -> str:
    """All figures: a row for each benchmark."""
    rows = [
        "# Figures of a run",
        "",
        f"{where(run)} Medians; refdelta's time over the other's within rounds, with the quartiles in brackets: less",
        "than 1 is faster. How each is set up: [README.md](README.md). Written by `make bench-report`.",
        "",
        "| | refdelta | refdelta takes, of the time of | goals |",
        "|---|---|---|---|",
    ]
    rows += [f"| {' | '.join(_cells(bench))} |" for bench in run.benches]
    return "\n".join(rows) + "\n"


def where(run: Run) -> str:
    """What was run, when and on what, with all versions."""
    packages = run.machine["packages"]
    shown = {name for bench in run.benches for engine in bench.engines for name in [engine.partition(",")[0]]}
    versions = ", ".join(f"{name} {version}" for name, version in packages.items() if name in shown)
    return f"`make {target(run)}` at {run.commit} on {run.time:%d %B %Y}, {machine(run)}: {versions}."


def target(run: Run) -> str:
    """The target of the Makefile that makes such a run."""
    return {"default": "bench", "full": "bench-full"}.get(run.size, f'bench BENCH="--size {run.size}"')


def machine(run: Run) -> str:
    cpu, memory = run.machine["cpu"], run.machine["memory"] / 2**30
    name = cpu.get("brand_raw", run.machine["machine"])
    return f"{run.machine['cores']} cores of {name}, {memory:.0f} GiB, Python {run.machine['python_version']}"


def _cells(bench: Bench) -> Iterator[str]:
    yield bench.title + (f" ({bench.note})" if bench.note else "")
    yield f"{duration(bench.own.middle)}{bench.per}{_settings(bench.own)}"
    others = (engine for engine in bench.engines.values() if engine is not bench.own)
    yield "<br>".join(f"{engine.name}: {_ratio(bench, engine)}{_settings(engine)}" for engine in others)
    yield _goals(bench)


def _ratio(bench: Bench, engine: Measured) -> str:
    found = bench.ratio(engine.name)
    return f"**{_number(found.middle)}** [{_number(found.low)} .. {_number(found.high)}], {duration(engine.middle)}"


def _number(ratio: float) -> str:
    return f"{ratio:.2g}" if ratio < 100 else f"{ratio:,.0f}"


def _settings(engine: Measured) -> str:
    told = [f"{name} {engine.figure(name):,.3g}" for name in engine.figures]
    return f" ({'; '.join(filter(None, [engine.settings, *told]))})" if engine.settings or told else ""


def replace(readme: str, text: str) -> str:
    """The README with this between its comments. Raises ``ResultsError`` where they are not there."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, behind = rest.partition(END)
    if not begin or not end:
        raise ResultsError(f"the README has no place for the figures: {BEGIN} and {END} are not both in it")
    return f"{before}{begin}\n\n{text}\n\n{end}{behind}"


# --- the plots ---


def plots(run: Run) -> Iterator[tuple[str, str]]:
    """Name and SVG of each plot for which the run has points."""
    seconds = Axis("seconds", duration, log=True)
    rate = Axis("commits per second")
    winners = _over(run, "bench_stale.py", "winners", seconds, _total)
    files = _over(run, "bench_snapshot.py", "files", seconds, _total)
    writers = _over(run, "bench_contention.py", "writers", rate, _rate)
    on_s3 = _over(run, "bench_s3.py", "writers", rate, _rate)
    for name, title, panels in (
        ("conflict-check", "A stale transaction commits over winners: time by their number", winners),
        ("snapshot", "A table is opened, or followed: time by the number of its files", files),
        ("throughput", "Commits per second by writers, local disk", writers),
        ("throughput-s3", "Commits per second by writers, S3", on_s3),
        ("abort-rate", "Transactions that end with a conflict, by what the writers do", _aborts(run)),
    ):
        if panels:
            yield name, draw(title, _note(run), panels)


def _note(run: Run) -> tuple[str, ...]:
    when = f"make {target(run)} at {run.commit}, {run.time:%d %B %Y}"
    return when, f"{machine(run)}. Medians, and quartiles as thin lines."


def _total(engine: Measured) -> Spread:
    low, high = engine.quartiles
    return engine.middle * engine.units, low * engine.units, high * engine.units


def _rate(engine: Measured) -> Spread:
    low, high = engine.quartiles
    return 1 / engine.middle, 1 / high, 1 / low


def _over(run: Run, file: str, size: str, y: Axis, value: Callable[[Measured], Spread]) -> list[Panel]:
    """A panel for each kind of work, over one size. One that has a single point is left out beside others."""
    groups: dict[str, list[Bench]] = {}
    for bench in run.benches:
        if bench.file == file and size in bench.sizes:
            groups.setdefault(bench.title_without(size), []).append(bench)
    several = {title: some for title, some in groups.items() if len({bench.sizes[size] for bench in some}) > 1}
    shown = several or groups
    labels = _labels(run, [bench for some in shown.values() for bench in some])

    def series(benches: Sequence[Bench]) -> tuple[Series, ...]:
        points: dict[str, list[Point]] = {}
        for bench in sorted(benches, key=lambda bench: bench.sizes[size]):
            for engine in bench.engines.values():
                points.setdefault(engine.name, []).append(Point(bench.sizes[size], *value(engine)))
        return tuple(Series(labels[name], look(run, name), tuple(some)) for name, some in points.items())

    return [Panel(title, Axis(size, log=True), y, series(some)) for title, some in shown.items()]


def _labels(run: Run, benches: Sequence[Bench]) -> dict[str, str]:
    """What the legend says of each engine: its version, and its settings over all of these benchmarks."""
    settings: dict[str, dict[str, None]] = {}
    for bench in benches:
        for engine in bench.engines.values():
            settings.setdefault(engine.name, {})[engine.settings] = None
    told = {name: "; ".join(filter(None, some)) for name, some in settings.items()}
    return {name: f"{run.version(name)}: {some}" if some else run.version(name) for name, some in told.items()}


def look(run: Run, engine: str) -> Look:
    """Its hue is that of the engine, its dashes that of the variant, by their order in the run."""
    name = engine.partition(",")[0].partition(" ")[0]
    names = list(dict.fromkeys(other for bench in run.benches for other in bench.engines))
    variants = [other for other in names if other.partition(",")[0].partition(" ")[0] == name]
    hue = -1 if name in GREY else HUES.get(name, len(HUES))
    return Look(hue, variants.index(engine))


def _aborts(run: Run) -> list[Bars]:
    """Bars by mix, a panel for each number of writers."""

    def rate(engine: Measured) -> float | None:
        found = engine.figure(ABORTS)
        return None if found is None else 100 * found

    told = [
        bench
        for bench in run.benches
        if bench.file == "bench_contention.py"
        and bench.sizes.get("writers", 1) > 1
        and any(rate(engine) is not None for engine in bench.engines.values())
    ]
    labels = _labels(run, told)
    axis = Axis("of the transactions that were tried", "{:.3g} %".format)
    panels = []
    for writers in sorted({bench.sizes["writers"] for bench in told}):
        benches = [bench for bench in told if bench.sizes["writers"] == writers]
        points: dict[str, list[Point]] = {}
        for number, bench in enumerate(benches):
            for name, engine in bench.engines.items():
                if (found := rate(engine)) is not None:
                    points.setdefault(name, []).append(Point(number, found, found, found))
        series = tuple(Series(labels[name], look(run, name), tuple(some)) for name, some in points.items())
        groups = tuple(bench.title_without("writers") for bench in benches)
        panels.append(Bars(f"{writers} writers", axis, 100, groups, series))
    return panels


# --- the program ---


def write(run: Run, readme: Path, figures: Path, folder: Path) -> list[Path]:
    """Write the tables and the plots. Returns the files that were written."""
    drawn = dict(plots(run))
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    paths = [folder / f"{name}.svg" for name in drawn]
    links = [os.path.relpath(path, readme.parent) for path in paths]
    text = replace(readme.read_text(), summary(run, os.path.relpath(figures, readme.parent), links))
    for path, plot in zip(paths, drawn.values(), strict=True):
        path.write_text(plot)
    figures.write_text(table(run))
    readme.write_text(text)
    return [readme, figures, *paths]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make bench-report", description="The README's table and plots of a run.")
    parser.add_argument("file", nargs="?", type=Path, help="a run's JSON; the newest unless said")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    parser.add_argument("--figures", type=Path, default=ROOT / "bench" / "figures.md")
    parser.add_argument("--plots", type=Path, default=ROOT / "bench" / "plots")
    given = parser.parse_args(arguments)
    try:
        file = given.file or newest()
        written = write(load(file), given.readme, given.figures, given.plots)
    except (OSError, ResultsError) as error:
        print(f"make bench-report: {error}", file=sys.stderr)
        return 1
    print(f"of {file}:", *written, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
