"""``refdelta bench``: how many commits a second a store of one's own takes."""

from __future__ import annotations

import datetime as dt
import functools
import importlib.util
import os
import platform
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from refdelta.cli.app import app
from refdelta.cli.group import in_pairs, rows_or_files, storage_options
from refdelta.cli.render import echo_json, echo_table, say
from refdelta.status_line import StatusLine
from refdelta.wording import counted

# The races are imported when one begins.
if TYPE_CHECKING:
    from refdelta.racing.costs import Costs
    from refdelta.racing.throughput import BenchEngine, Race

_COMMITS = 200
_MOST_COMMITS, _MOST_TABLES = 100_000, 1_000
_ALL = ("appends", "rows", "same-rows", "optimize")

# The help names them without their modules, which import Arrow; a test compares the two.
ENGINES: Final = (
    *("refdelta", "refdelta-files", "refdelta-catalog", "refdelta-group", "refdelta-intents", "deltalake"),
    *("delta-spark", "pyiceberg", "lance", "ducklake"),
)
"""The engines that are known by name: those of :data:`refdelta.racing.engines.ENGINES`."""

MIXES: Final = {
    "appends": "each commit appends 10 rows",
    "rows": "each deletes another row of one file",
    "same-rows": "all update the same rows; a loser begins anew",
    "optimize": "each updates another row, beside OPTIMIZE",
    "batches": "each commit appends 20,000 rows",
    "ycsb-a": "half reads, half new values of hot rows",
    "ycsb-b": "reads, and one new value of a hot row in twenty",
    "ycsb-f": "half reads, half increments of hot rows",
    "payments": "each moves 1 between two of a thousand accounts",
    "late": "appends, and late corrections of 50 rows",
    "upserts": "each merges 10 rows, beside OPTIMIZE",
}
"""The texts of the mixes of :data:`refdelta.racing.mixes.MIXES`."""

_FACTS = ("system", "processor", "cpus", "memory_bytes", "time")


@app.command(
    "bench",
    examples=(
        "bench /mnt/scratch --writers 8 --mix all",
        "bench s3://bucket/scratch --seconds 30 --json",
        "bench /mnt/scratch --mix append=6,update=3,same-rows=1 --seed 7",
        "bench /mnt/scratch --mix nightly.toml --plot nightly.svg",
        "bench s3://bucket/scratch --storage-option endpoint_url=http://127.0.0.1:9000 --latency put=60,get=25,list=40",
    ),
)
@click.argument("uri")
@click.option("--writers", type=click.IntRange(1, 64), default=4, show_default=True, help="How many processes commit.")
@click.option(
    "--commits",
    type=click.IntRange(1, _MOST_COMMITS),
    help=f"How many commits in all, {_COMMITS} unless said.",
)
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="For how long instead.")
@click.option(
    "--mix",
    "mixes",
    metavar="NAME|WEIGHTS|FILE",
    multiple=True,
    default=["appends"],
    show_default=True,
    help="; ".join(f"{name}: {text}" for name, text in MIXES.items())
    + "; all: the first four; every; weights such as append=6,delete=1,update=3,same-rows=1; or a TOML file of "
    "weights, rows, files and optimize = true. May be repeated.",
)
@click.option(
    "--warm-up",
    type=click.IntRange(0, 1_000),
    default=2,
    show_default=True,
    help="How many commits each writer makes to another table before the clock starts.",
)
@click.option("--seed", type=click.IntRange(0), help="Of the pauses and of weighted mixes; drawn unless said.")
@click.option(
    "--engine",
    "engine_name",
    metavar="NAME",
    default="refdelta",
    show_default=True,
    help=f"Another engine: {', '.join(ENGINES)}; an entry point of the group refdelta.bench_engines; or module:object.",
)
@click.option(
    "--engine-option",
    "engine_options",
    metavar="NAME=VALUE",
    multiple=True,
    callback=in_pairs("a pair: say NAME=VALUE"),
    help="An argument of the engine, such as database=postgresql+psycopg://... of those with a catalog.",
)
@click.option(
    "--latency",
    metavar="put=MS,get=MS,...",
    help="Milliseconds that each put, get, list or delete takes longer, by a proxy before the store's endpoint, which "
    "counts requests, too; jitter=0.2 varies them, and beyond rate=3500 requests a second to a prefix the store says "
    "to slow down.",
)
@click.option(
    "--tables",
    type=click.IntRange(1, _MOST_TABLES),
    default=1,
    show_default=True,
    help="So many tables: each has its share of the commits, and every writer writes to all of them in turn.",
)
@click.option("--plot", metavar="FILE", help="Draw the figures: .svg, .png or .pdf; needs matplotlib.")
@rows_or_files
@click.option("--threads", is_flag=True, help="Threads of one process instead of processes.")
@storage_options
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
def bench(
    uri: str,
    writers: int,
    commits: int | None,
    seconds: float | None,
    mixes: tuple[str, ...],
    warm_up: int,
    seed: int | None,
    engine_name: str,
    engine_options: dict[str, str],
    latency: str | None,
    tables: int,
    plot: str | None,
    row_level: bool | None,
    threads: bool,
    storage_options: dict[str, str],
    as_json: bool,
) -> None:
    """Measure commits per second at URI: a folder, or a place in a store such as s3://bucket/scratch.

    Writers commit to one table at once, in a fresh folder that is removed at the end. Afterwards the log and the rows
    are compared with the acknowledgements: the exit status is 1 if a commit was lost or doubled.
    The clock starts with the first statement, after all writers are ready and have warmed up. The work is the same in
    each run with the same seed: it depends on the number of the commit.
    Latency is from the first try of a statement until it was acknowledged; an aborted statement is done again at once.
    """
    from refdelta.errors import DeltaError
    from refdelta.proxy.latency import Latency
    from refdelta.racing.crew import RaceFailedError
    from refdelta.racing.mixes import mix_of
    from refdelta.racing.throughput import OwnEngine, find_engine, race

    if commits is not None and seconds is not None:
        raise click.UsageError("--commits and --seconds are two ends of a race: say one")
    if row_level is not None and engine_name != "refdelta":
        raise click.UsageError("--row-level is of refdelta, not of another --engine")
    distance = None if latency is None else Latency.parse(latency)
    draw = _drawing(plot)
    most = commits if commits is not None else _COMMITS if seconds is None else None
    seed = secrets.randbelow(2**31) if seed is None else seed
    several = {"all": _ALL, "every": tuple(MIXES)}
    named = [name for given in mixes for name in several.get(given, (given,))]
    chosen = [mix_of(name, seed) for name in dict.fromkeys(named)]
    engine = find_engine(engine_name, **engine_options)
    if isinstance(engine, OwnEngine) and row_level is not None:
        engine = replace(engine, row_level=row_level)
    races: list[Race] = []
    failure: DeltaError | None = None
    with StatusLine() as line:
        for mix in chosen:
            line.show(f"{mix}: making the tables, starting {writers} writers, warming up", force=True)
            try:
                told = race(
                    uri,
                    mix=mix,
                    writers=writers,
                    commits=most,
                    seconds=seconds,
                    threads=threads,
                    storage_options=storage_options,
                    watch=_progress(line, str(mix), most, seconds),
                    warm_up=warm_up,
                    seed=seed,
                    engine=engine,
                    latency=distance,
                    tables=tables,
                )
            except DeltaError as error:
                failure = error  # the figures of the mixes before it are shown nevertheless
                break
            races.append(told)
    settings = {
        "uri": uri.partition("?")[0],
        "threads": threads,
        "row_level": row_level,
        "seed": seed,
        "latency": latency,
    }
    if races and as_json:
        echo_json([{**_as_json(one), "machine": _machine(engine), "settings": settings} for one in races])
    elif races:
        _show(races, _machine(engine))
    if races and draw is not None:
        draw(races)
    if failure is not None:
        raise failure
    wrong = [f"{one.mix}: {problem}" for one in races for problem in one.problems]
    if wrong:
        raise RaceFailedError(f"the log or the rows differ from what was acknowledged: {'; '.join(wrong)}")


def _progress(line: StatusLine, mix: str, commits: int | None, seconds: float | None) -> Callable[[int], None]:
    """Draws how far it is. The clock begins with the first commit: before it the writers start."""
    began: list[float] = []

    def show(taken: int) -> None:
        if not taken:
            return
        if not began:
            began.append(time.monotonic())
        passed = time.monotonic() - began[0]
        end = f"{min(taken, commits):,} of {commits:,} commits" if commits else f"{taken:,} commits, {passed:.0f} s"
        of = f" of {seconds:g} s" if seconds else ""
        line.show(f"{mix}: {end}{of}" + (f", {taken / passed:,.0f} a second" if passed > 1 else ""))

    return show


def _as_json(one: Race) -> dict[str, Any]:
    return {
        **asdict(one),
        "commits_per_second": round(one.commits_per_second, 3),
        "abort_rate": round(one.abort_rate, 6),
    }


def _machine(engine: BenchEngine) -> dict[str, Any]:
    """Versions, the system, the processor and the memory: the figures depend on them, besides the store."""
    return {
        **engine.versions,
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "time": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    }


def _processor() -> str:
    """The model of the processor, as Linux names it; else the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def _drawing(plot: str | None) -> Callable[[list[Race]], None] | None:
    """The function that draws into a file; None without one. It is looked at before anything is measured."""
    if plot is None:
        return None
    if Path(plot).suffix not in (".svg", ".png", ".pdf"):
        raise click.UsageError(f"--plot {plot}: its name ends with .svg, .png or .pdf")
    if not Path(plot).absolute().parent.is_dir():
        raise click.UsageError(f"--plot {plot}: there is no such folder")
    if importlib.util.find_spec("matplotlib") is None:
        from refdelta.arguments import missing_package

        raise missing_package("--plot", "matplotlib", extra="plot")
    return functools.partial(_draw, plot)


def _draw(plot: str, races: list[Race]) -> None:
    """Commits per second and latencies of each mix."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.9 + 0.5 * len(races)), layout="constrained")
    rates, waits = figure.subplots(1, 2, sharey=True)
    mixes = [one.mix for one in races]
    bars = rates.barh(mixes, [one.commits_per_second for one in races], color="#4477aa")
    rates.bar_label(bars, fmt="{:,.0f}", padding=3)
    rates.set_xlabel("commits per second")
    rates.invert_yaxis()
    for name, colour in (("p50", "#4477aa"), ("p90", "#ccbb44"), ("p99", "#ee6677")):
        waits.plot([one.latency[name] for one in races], mixes, "o", color=colour, label=name)
    waits.set_xlim(left=0)
    waits.set_xlabel("latency in ms")
    figure.legend(loc="outside lower right", ncols=3)
    first = races[0]
    tables = f", {first.tables} tables" if first.tables > 1 else ""
    figure.suptitle(f"{first.engine}, {first.writers} writers{tables}: {len(races)} mixes, seed {first.seed}")
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(plot)


def _shown(costs: Costs) -> str:
    """The costs in one line."""
    by_method = ", ".join(f"{count:.3g} {method}" for method, count in costs.requests.items())
    refused = f"; {counted(costs.refused, 'request')} refused beyond the rate" if costs.refused else ""
    return (
        f"{sum(costs.requests.values()):.3g} requests a commit ({by_method}), {costs.bytes_up:,.0f} bytes up and "
        f"{costs.bytes_down:,.0f} down; 1,000 commits cost ${costs.dollars:.4f} at S3's list prices{refused}"
    )


def _show(races: list[Race], machine: dict[str, Any]) -> None:
    names = (
        *("mix", "writers", "commits", "seconds", "commits/s", "aborts", "puts", "p50 ms", "p90 ms", "p99 ms"),
        "CPU ms",
    )
    echo_table(
        names,
        [
            (
                one.mix,
                one.writers,
                f"{one.commits:,}",
                f"{one.seconds:.2f}",
                f"{one.commits_per_second:,.1f}",
                f"{sum(one.aborts.values()):,}",
                f"{one.attempts:,}",
                *(f"{value:,.1f}" for value in one.latency.values()),
                "" if one.cpu_ms is None else f"{one.cpu_ms:,.1f}",
            )
            for one in races
        ],
        right=names[1:],
    )
    for one in races:
        for error, count in one.aborts.items():
            say(f"{one.mix}: {count:,} x {error}, the first: {one.first_errors.get(error, '')}")
        if one.reads:
            say(f"{one.mix}: beside {one.reads:,} reads")
        if one.growth is not None:
            say(f"{one.mix}: the last tenth of the commits took {one.growth:.2f} times as long as the first")
        if one.costs is not None:
            say(f"{one.mix}: {_shown(one.costs)}")
        if one.compactions:
            say(f"{one.mix}: beside {one.compactions:,} compactions")
    versions = ", ".join(f"{name} {value}" for name, value in machine.items() if name not in _FACTS)
    memory = f"{machine['memory_bytes'] / 2**30:.0f} GiB"
    say(f"with {versions}; {machine['cpus']} CPUs ({machine['processor']}), {memory}, {machine['system']}")
    over = f"; {races[0].tables} tables" if races[0].tables > 1 else ""
    say(f"after {counted(races[0].warm_up, 'commit')} to warm up; seed {races[0].seed}{over}")
    if not any(one.problems for one in races):
        say("no commit lost, none doubled: the log and the rows agree with what was acknowledged")
