"""The field in one picture: engines of Delta, Iceberg, Lance and DuckLake at the same work, by ``refdelta bench``.

    python bench/field.py [--engines refdelta,lance,deltalake:tuned] [--mixes appends] [--writers 1,8] [--commits 200]
                          [--uri /var/tmp] [--tables 8] [--storage-option NAME=VALUE] [--latency put=60,get=25,list=40]
                          [--postgres postgresql://...] [--python lance=PATH] [--to runs.jsonl] [--page docs/field.md]

Each combination is a process of ``refdelta bench --json``, and the engines take turns: what slows the machine down
slows all of them. A result is a line in ``--to``, which later runs add to; ``--page`` writes the page and its picture
of all lines, with the command of each. An engine whose package is not in this environment has a Python of its own by
``--python``. Engines of one process have threads, as their users have to. Storage options go to all engines: those of
S3 by deltalake's names, which all of them know. With a latency the requests of a commit are counted, too. An engine has
its defaults, and with ``:tuned`` what its own documentation offers to many writers; with ``@postgres`` its catalog is
in the database of ``--postgres``.

A failed run is told, and is no figure: an engine that cannot do a mix, and one whose rows are wrong afterwards.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from charts import LOOKS, svg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

ROOT = Path(__file__).parents[1]
ENGINES = (
    *("refdelta", "refdelta-files", "refdelta-catalog", "refdelta-intents", "refdelta-group"),
    *("deltalake", "deltalake:tuned", "delta-spark", "pyiceberg", "pyiceberg:tuned", "lance"),
    *("ducklake", "ducklake:tuned"),
)
THREADS = {"refdelta-group", "delta-spark"}
LONG = 1_000
"""A run of at least so many commits is a work of its own: it shows what the age of a table costs."""
MIXES = ("appends", "batches", "ycsb-a", "ycsb-f", "payments", "late", "upserts")

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Work:
    """One run: who does what, with how many writers."""

    engine: str
    mix: str
    writers: int


def works(engines: Sequence[str], mixes: Sequence[str], writers: Sequence[int], rounds: int) -> Iterator[Work]:
    """All runs, in the order in which they are done: each round begins with another engine."""
    for number in range(rounds):
        first = number % len(engines)
        for mix in mixes:
            for count in writers:
                for engine in [*engines[first:], *engines[:first]]:
                    yield Work(engine, mix, count)


def run(
    work: Work,
    uri: str,
    commits: int,
    seconds: float,
    pythons: Mapping[str, str],
    seed: int,
    more: Sequence[str] = (),
    postgres: str | None = None,
) -> dict[str, Any]:
    """One run's result: the JSON of ``refdelta bench``, or ``failed`` with the reason.

    Args:
        work: what is run.
        uri: where.
        commits: the number of commits.
        seconds: the time after which a run is no figure.
        pythons: the Pythons of engines that have one of their own.
        seed: of the run.
        more: more arguments of the command.
        postgres: the database of engines ``@postgres``.
    """
    told = {"engine": work.engine, "mix": work.mix, "writers": work.writers, "uri": uri.partition("?")[0]}
    if "--tables" in more:
        told["mix"] += f" over {more[list(more).index('--tables') + 1]} tables"
    if commits >= LONG:
        told["mix"] += f", {commits:,} commits"
    if "--latency" in more:
        told["distance"] = more[list(more).index("--latency") + 1]
    engine, settings, place = _parts(work.engine)
    command = [
        *(pythons.get(engine, sys.executable), "-m", "refdelta", "bench", uri, "--json", "--seed", str(seed)),
        *("--engine", engine, "--mix", work.mix, "--writers", str(work.writers), "--commits", str(commits)),
        *(("--engine-option", f"settings={settings}") if settings else ()),
        *(("--engine-option", f"database={postgres}") if place else ()),
        *(("--threads",) if engine in THREADS else ()),
        *more,
    ]
    path = os.pathsep.join([str(ROOT), str(ROOT / "storage"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": path}
    pipe = subprocess.PIPE
    # The writers are processes of that one, and end with it: one that goes on would slow down all runs after it.
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True
    ) as done:
        try:
            out, errors = done.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return {**told, "failed": f"not done after {seconds:g} s"}
        finally:
            if done.poll() is None:
                os.killpg(done.pid, signal.SIGKILL)
    if done.returncode:
        lines = errors.strip().splitlines() or [f"status {done.returncode}"]
        return {**told, "failed": lines[-1].removeprefix("refdelta: ")}
    return {**json.loads(out)[0], **told}


# --- the page --------------------------------------------------------------------------------------------------------

BOUNDS = {
    "refdelta": "one conditional put a version: at most 1/P commits a second, P the time of a put. A change of rows "
    "hides them by a deletion vector and adds a small file, which later changes read, too, until OPTIMIZE",
    "refdelta-files": "the same, and a change of a row writes its file anew",
    "refdelta-catalog": "one put of a staged commit and one transaction of the database a version; the log is written "
    "after it",
    "refdelta-intents": "one conditional put a version, which carries the transactions of several processes",
    "refdelta-group": "one conditional put a version, which carries the transactions of the threads of a process",
    "deltalake": "one conditional put a version; a change of a row writes its file anew",
    "delta-spark": "one conditional put a version, made by a job of Spark",
    "pyiceberg": "three files (manifest, list, metadata), then a transaction of the catalog; losers wait 0.1 s or more",
    "lance": "one conditional put of a manifest that names all fragments",
    "ducklake": "one transaction of the database, which holds the metadata and the rows of small inserts, too",
}
"""By engine, the bound of its commits."""


def groups(lines: Iterable[Line]) -> dict[tuple[str, str, int], list[Line]]:
    """The runs of each engine, mix and number of writers."""
    found: dict[tuple[str, str, int], list[Line]] = defaultdict(list)
    for line in lines:
        found[line["engine"], line["mix"], line["writers"]].append(line)
    return found


def _middle(lines: Sequence[Line], name: str) -> float | None:
    values = [line[name] for line in lines if line.get(name) is not None]
    return statistics.median(values) if values else None


def page(lines: Sequence[Line]) -> str:
    """The page: for each place and mix a table of the engines, at each number of writers."""
    asked = " and ".join(f"`{one}`" for one in dict.fromkeys(line.get("asked") for line in lines) if one)
    parts = [
        _HEAD.format(alt=ALT, picture=PICTURE, asked=asked, when=_when(lines), machine=_machine(lines)),
        _bounds(groups(lines)),
    ]
    for place, here in by_place(lines).items():
        parts.append(f"## {place}\n")
        if put := re.search(r"put=(\d+)", here[0].get("distance") or ""):
            parts.append(_ONE_PUT.format(put=int(put[1]), rate=1000 / int(put[1])))
        for mix in dict.fromkeys(line["mix"] for line in here):
            by = groups(here)
            parts.append(f"### {place}: {mix}\n")
            counts = sorted({writers for _, one, writers in by if one == mix})
            parts += [_table(by, mix, writers) for writers in counts]
    # Its links are from its own folder, where the site shows it, too.
    return "\n".join([*parts, _PUBLISHED.read_text().replace("](../docs/", "](")])


def by_place(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """The runs on each place: a disk of this machine, or a store with its distance."""
    found: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        scheme, _, rest = line["uri"].partition("://")
        place = _STORES.get(scheme, scheme) if rest else "Local disk"
        distance = line.get("distance")
        found[f"{place}, {distance.replace(',', ', ').replace('=', ' ')} ms" if distance else place].append(line)
    return found


_STORES = {"s3": "S3", "s3a": "S3", "abfs": "Azure", "abfss": "Azure", "az": "Azure", "gs": "GCS"}

_PUBLISHED = Path(__file__).with_name("published.md")


_HEAD = """# The field

Engines of table formats at the same work, on one machine, each at its defaults, or, as `:tuned`, with
what its own documentation offers to many writers ([which](guide/command-line.md#measure-a-store)):
committed transactions a second, the latency from the first try until the acknowledgement, aborted
tries a commit, processor time of the writers a commit, and the median latency of the last tenth of the
commits over that of the first; where a proxy stood before a store, its requests a commit, and the price
of a thousand commits in US dollars at S3's list prices. An aborted try is repeated. After each run the
rows are compared with what was acknowledged; "wrong" has the reason. Medians of the rounds.

By `python bench/field.py` with {asked}, {when}; {machine}. [How to run it](guide/command-line.md#measure-a-store).

![{alt}]({picture})
"""

_ONE_PUT = """At P = {put} ms a put, one conditional put a version allows 1/P = {rate:.1f} versions a second of a
table, whatever the format. A writer that loses the put reads what it has lost to and puts again, so that
the rate of many writers is below that, and rises beyond it only where a version has several transactions.
"""

PICTURE, ALT = "pictures/field.svg", "Commits a second of each engine at each work, a point a number of writers"


_OF_MACHINE = ("python", "system", "processor", "cpus", "memory_bytes", "time")


def _when(lines: Sequence[Line]) -> str:
    days = sorted({line["machine"]["time"][:10] for line in lines if "machine" in line})
    return " and ".join(dict.fromkeys([days[0], days[-1]])) if days else "not run"


def _machine(lines: Sequence[Line]) -> str:
    versions: dict[str, str] = {}
    machines: dict[str, None] = {}
    for line in lines:
        found = line.get("machine", {})
        if found:
            machines[f"{found['cpus']} cores ({found.get('processor')})"] = None
        versions |= {name: value for name, value in found.items() if name not in _OF_MACHINE}
    named = ", ".join(f"{name} {value}" for name, value in sorted(versions.items()))
    return f"{' and, later, '.join(machines)}, {named}" if machines else "no machine"


def _bounds(by: Mapping[tuple[str, str, int], Sequence[Line]]) -> str:
    engines = list(dict.fromkeys(_parts(engine)[0] for engine, _, _ in by))
    rows = [f"| {engine} | {BOUNDS.get(engine, '')} |" for engine in engines]
    return "\n".join(["| engine | what bounds its commits |", "|---|---|", *rows, ""])


_LONGEST_REASON = 100
"""In characters; of a longer one the innermost cause is shown."""

_COLUMNS = ("commits/s", "p50 ms", "p99 ms", "aborts a commit", "CPU ms", "growth", "requests", "$ a thousand")


def _table(by: Mapping[tuple[str, str, int], Sequence[Line]], mix: str, writers: int) -> str:
    """A table of the engines, the fastest first, of the columns of which some engine has a figure."""
    shown = {engine: lines for (engine, one, count), lines in by.items() if (one, count) == (mix, writers)}
    cells = {engine: _cells(good) if (good := _good(lines)) else None for engine, lines in shown.items()}
    columns = [at for at in range(len(_COLUMNS)) if any(one and one[at] for one in cells.values())] or [0]
    rows = [["engine", *(_COLUMNS[at] for at in columns)]]
    for engine in sorted(shown, key=lambda engine: -(_rate(shown[engine]) or 0)):
        if found := cells[engine]:
            rows.append([engine, *(found[at] for at in columns)])
        else:
            failed = [line["failed"] for line in shown[engine] if "failed" in line]
            rows.append([engine, _reason(max(failed, key=_is_wrong)), *[""] * (len(columns) - 1)])
    head, *lines = (f"| {' | '.join(row)} |" for row in rows)
    lines = [head, "|---" * (len(columns) + 1) + "|", *lines]
    return "\n".join([f"{writers} writer{'s' * (writers > 1)}:\n", *lines, ""])


def _good(lines: Sequence[Line]) -> list[Line]:
    """The runs that have figures; none of them if one run was wrong."""
    wrong = any(_is_wrong(line.get("failed", "")) for line in lines)
    return [] if wrong else [line for line in lines if "failed" not in line]


def _cells(good: Sequence[Line]) -> list[str]:
    """The figures of an engine, one a column; empty where it has none."""
    waits = [statistics.median(line["latency"][name] for line in good) for name in ("p50", "p99")]
    aborts = statistics.median(sum(line["aborts"].values()) / line["commits"] for line in good)
    costs = [line["costs"] for line in good if line.get("costs")]
    requests = [sum(one["requests"].values()) for one in costs]
    return [
        f"{_middle(good, 'commits_per_second'):,.1f}",
        *(f"{wait:,.0f}" for wait in waits),
        f"{aborts:.2f}",
        *("" if (value := _middle(good, name)) is None else f"{value:,.2f}" for name in ("cpu_ms", "growth")),
        f"{statistics.median(requests):.1f}" if costs else "",
        f"{_middle(costs, 'dollars'):.4f}" if costs else "",
    ]


def _is_wrong(text: str) -> bool:
    return "than the commits explain" in text or "not in the log" in text


def _reason(text: str) -> str:
    if _is_wrong(text):
        return f"**wrong**: {text.rpartition(': ')[2]}"
    # DuckDB adds a stack trace to the message of an internal error.
    told = text.partition(r"\n")[0].rpartition("Error: ")[2]
    short = told if len(told) <= _LONGEST_REASON else told.rpartition(": ")[2]
    return f"no figure: {short[:_LONGEST_REASON]}".replace("|", "\\|")


def plot(lines: Iterable[Line]) -> Figure:
    """The field in one picture: of each place and mix the commits a second of each engine, a point a number of writers.

    An engine without a figure has no point. The engines of a panel are in the order of their most writers.
    """
    panels = [
        (f"{place.partition(',')[0]}: {mix}", groups(line for line in here if line["mix"] == mix))
        for place, here in by_place(lines).items()
        for mix in dict.fromkeys(line["mix"] for line in here)
    ]
    counts = sorted({count for _, by in panels for *_, count in by})
    looks = dict(zip(counts, itertools.cycle([LOOKS["floor"], *LOOKS.values()]), strict=False))
    names = [list(dict.fromkeys(engine for engine, *_ in by)) for _, by in panels]
    rows = [max(map(len, names[at : at + 2])) for at in range(0, len(panels), 2)]
    figure = Figure(figsize=(9, 0.8 + sum(0.6 + 0.2 * row for row in rows)), layout="constrained")
    grid = figure.subplots(len(rows), 2, squeeze=False, gridspec_kw={"height_ratios": [3 + row for row in rows]})
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes, (title, by), engines in zip(grid.flat, panels, names, strict=False):
        rates = {(engine, count): _rate(found) for (engine, _, count), found in by.items()}
        engines.sort(key=lambda engine: [rates.get((engine, count)) or 0 for count in reversed(counts)])
        for count, look in looks.items():
            points = [(rate, at) for at, engine in enumerate(engines) if (rate := rates.get((engine, count)))]
            if points:
                label = f"{count} writer{'s' * (count > 1)}"
                axes.plot(*zip(*points, strict=True), look.marker, color=look.light, label=label)
        axes.set_title(title, loc="left", x=-0.3, fontsize="medium")
        axes.set_yticks(range(len(engines)), engines)
        axes.set_ylim(-0.7, len(engines) - 0.3)
        axes.set_xscale("log")
        for ticks in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
            ticks(FuncFormatter(lambda value, _: f"{value:,.3g}" if f"{value:e}"[0] in "125" else ""))
        axes.grid(axis="y")
        axes.set_xlabel("commits a second")
    known = {
        label: handle for axes in grid.flat for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(known.values(), known, loc="outside upper right", ncols=len(known), frameon=False)
    return figure


def _rate(lines: Sequence[Line]) -> float | None:
    return _middle(_good(lines), "commits_per_second")


def _parts(engine: str) -> tuple[str, str, str]:
    """An engine's name, its settings and the place of its catalog, both of which may be empty."""
    how, _, place = engine.partition("@")
    name, _, settings = how.partition(":")
    return name, settings, place


def main(given: Sequence[str] | None = None) -> int:
    """Run what is asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--mixes", default=",".join(MIXES))
    parser.add_argument("--writers", default="1,8")
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=300, help="after which a run is no figure")
    parser.add_argument("--uri", default="/var/tmp")
    parser.add_argument("--storage-option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--latency", metavar="put=MS,get=MS,...", help="as of refdelta bench")
    parser.add_argument("--tables", type=int, help="as of refdelta bench")
    parser.add_argument("--postgres", metavar="URL", help="the database of engines @postgres")
    parser.add_argument("--python", action="append", default=[], metavar="ENGINE=PATH")
    parser.add_argument("--to", type=Path, default=ROOT / "bench/data/field.jsonl")
    parser.add_argument("--page", type=Path, help="write this page, and its picture into the folder pictures beside it")
    arguments = parser.parse_args(given)
    pythons = dict(text.split("=", 1) for text in arguments.python)
    engines, mixes = (text.split(",") if text else [] for text in (arguments.engines, arguments.mixes))
    if any(_parts(engine)[2] != ("postgres" if arguments.postgres else "") for engine in engines if "@" in engine):
        parser.error("an engine has its catalog elsewhere by @postgres, with --postgres")
    writers = [int(text) for text in arguments.writers.split(",")]
    more = [word for option in arguments.storage_option for word in ("--storage-option", option)]
    for name in ("latency", "tables"):
        more += [] if (value := getattr(arguments, name)) is None else [f"--{name}", str(value)]
    names = ("mixes", "writers", "commits", "rounds", "seconds", "latency", "tables")
    asked = " ".join(f"--{name} {value}" for name in names if (value := getattr(arguments, name)) is not None)
    arguments.to.parent.mkdir(parents=True, exist_ok=True)
    for number, work in enumerate(works(engines, mixes, writers, arguments.rounds) if engines else ()):
        told = run(work, arguments.uri, arguments.commits, arguments.seconds, pythons, number, more, arguments.postgres)
        rate = told.get("commits_per_second")
        print(
            f"{work.mix} x {work.writers}, {work.engine}: {told.get('failed') or f'{rate:,.1f} a second'}", flush=True
        )
        with arguments.to.open("a") as file:
            file.write(json.dumps({**told, "asked": asked}) + "\n")
    if arguments.page is not None:
        lines = [json.loads(line) for line in arguments.to.read_text().splitlines()]
        arguments.page.write_text(page(lines))
        subprocess.run([sys.executable, ROOT / ".ci/generate/formatting.py", arguments.page], check=True)
        picture = arguments.page.parent / PICTURE
        picture.parent.mkdir(exist_ok=True)
        picture.write_text(svg(plot(lines), ALT))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
