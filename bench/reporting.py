"""``make bench-report``: the README's five lines, all figures and the plots, of the newest run or of FILE.

    python bench/reporting.py [FILE ...] [--readme README.md] [--figures bench/figures.md] [--plots FOLDER]

The lines of the README stand between two comments, and replace what was there. ``bench/figures.md`` gets the largest of
each kind with the plots, then all figures with spreads and settings; the plots go into ``bench/plots``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from charts import machine, plots, svg, target, titled
from report import duration
from results import Bench, Measured, ResultsError, Run, load, newest

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


# --- the tables ---

RIVALS = ("deltalake", "delta-spark", "floor")
# The lines of the README, by the benchmark and its mix. In the last one others are faster.
HEADLINES = {
    ("bench_contention", "rows"): "change different rows of one file",
    ("bench_appends_of_ten_rows", ""): "append ten rows",
    ("bench_delete_of_a_thousandth", ""): "delete a thousandth",
    ("bench_merge_of_100_000", ""): "merge 100,000 rows",
    ("bench_scan", ""): "scan all columns",
}
_BOLD = "Medians; in bold, the time of refdelta divided by that of the other, in the same rounds: below 1 is faster."


def headlines(run: Run, figures: str, guide: str) -> str:
    """The lines of the README: where it was measured, and a row for each of ``HEADLINES`` that the run has."""
    found = {(bench.function, str(bench.sizes.get("mix", ""))): bench for bench in largest(run) if not bench.kinds}
    rows = [
        f"{where(run)}",
        f"{_BOLD} [All figures]({figures}), with their spread and plots; [how they are made]({guide}).",
        "",
    ]
    shown = [(words, found[key]) for key, words in HEADLINES.items() if key in found]
    if shown:
        rows += ["| | refdelta | deltalake | delta-spark |", "|---|---|---|---|"]
    for words, bench in shown:
        beside = [_beside(bench, bench.engines[name]) if name in bench.engines else "" for name in RIVALS[:2]]
        sizes = [
            f"{value:,} {name}"
            for name, value in bench.sizes.items()
            if name == "writers" or (name == "rows" and value > 10)
        ]
        told = f"{words}: {sizes[0]}" if sizes else words
        rows.append(f"| {' | '.join([told, f'{duration(bench.own.middle)}{bench.per}', *beside])} |")
    return "\n".join(rows).rstrip()


def summary(run: Run, plots: Sequence[tuple[str, str]]) -> str:
    """A row for the largest of each kind, then the plots: title and place of each."""
    rows = [
        f"{_BOLD} The floor is the least that any implementation must do.",
        "",
        f"| | refdelta | {' | '.join(RIVALS)} | others | goals |",
        "|---|---|---|---|---|---|---|",
    ]
    rows += [f"| {' | '.join(_short(bench))} |" for bench in largest(run)]
    rows += [f"\n![{title}]({path})" for title, path in plots]
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


def table(run: Run, plots: Sequence[tuple[str, str]] = ()) -> str:
    """The page of figures: the largest of each kind, the plots, and a row for each benchmark."""
    rows = [
        "# Figures of a run",
        "",
        where(run),
        "How each is set up: [README.md](README.md). Written by `make bench-report`.",
        "",
        "## The largest of each kind",
        "",
        summary(run, plots),
        "",
        "## All",
        "",
        "Medians; in bold, the time of refdelta divided by that of the other within rounds, with the quartiles in",
        "brackets: below 1 is faster.",
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
    times = f", {run.runs} runs," if run.runs > 1 else ""
    return f"`make {target(run)}`{times} at {run.commit} on {run.time:%d %B %Y}, {machine(run)}: {versions}."


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


# --- the program ---


def write(run: Run, readme: Path, figures: Path, folder: Path) -> list[Path]:
    """Write the tables and the plots. Returns the files that were written."""
    drawn = {folder / f"{name}.svg": (titled(figure), figure) for name, figure in plots(run)}
    guide = Path(__file__).with_name("README.md")
    text = headlines(run, os.path.relpath(figures, readme.parent), os.path.relpath(guide, readme.parent))
    text = replace(readme.read_text(), text)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    for path, (title, figure) in drawn.items():
        path.write_text(svg(figure, title))
    links = [(title, os.path.relpath(path, figures.parent)) for path, (title, _) in drawn.items()]
    figures.write_text(table(run, links))
    readme.write_text(text)
    subprocess.run([sys.executable, ROOT / ".ci/generate/formatting.py", readme, figures], check=True)
    return [readme, figures, *drawn]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make bench-report", description="The tables and plots of a run.")
    parser.add_argument("files", nargs="*", type=Path, help="the JSON of a run, or of several; the newest unless said")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    parser.add_argument("--figures", type=Path, default=ROOT / "bench" / "figures.md")
    parser.add_argument("--plots", type=Path, default=ROOT / "bench" / "plots")
    given = parser.parse_args(arguments)
    try:
        files = given.files or [newest()]
        written = write(load(*files), given.readme, given.figures, given.plots)
    except (OSError, ResultsError) as error:
        print(f"make bench-report: {error}", file=sys.stderr)
        return 1
    print(f"of {', '.join(map(str, files))}:", *written, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
