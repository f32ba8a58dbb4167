"""``refdelta bench``: how many commits a second a store of one's own takes."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import click

from refdelta import __version__
from refdelta.cli.group import app, rows_or_files, storage_options
from refdelta.cli.render import echo_json, echo_table
from refdelta.demo.mixes import ROWS, Mix
from refdelta.demo.worker_pool import RaceFailedError
from refdelta.status_line import StatusLine
from refdelta.throughput import Race, race

_COMMITS = 200
_ALL = "all"
_TEXT = {
    Mix.APPENDS: "each commit appends 10 rows",
    Mix.ROWS: "each deletes another row of one file",
    Mix.SAME_ROWS: "all update the same rows; a loser begins anew",
    Mix.OPTIMIZE: "each updates another row, beside OPTIMIZE",
}


@app.command("bench")
@click.argument("uri")
@click.option("--writers", type=click.IntRange(1, 64), default=4, show_default=True, help="How many processes commit.")
@click.option(
    "--commits",
    type=click.IntRange(1, ROWS),
    help=f"How many commits in all, {_COMMITS} unless said.",
)
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="For how long instead.")
@click.option(
    "--mix",
    "mixes",
    type=click.Choice([*(mix.value for mix in Mix), _ALL]),
    multiple=True,
    default=[Mix.APPENDS.value],
    show_default=True,
    help="; ".join(f"{mix}: {text}" for mix, text in _TEXT.items()) + ". May be repeated.",
)
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
    row_level: bool | None,
    threads: bool,
    storage_options: dict[str, str],
    as_json: bool,
) -> None:
    """Measure commits per second at URI: a folder, or a place in a store such as s3://bucket/scratch.

    Writers commit to one table at once, in a fresh folder that is removed at the end. Afterwards the log and the rows
    are compared with the acknowledgements: the exit status is 1 if a commit was lost or doubled.
    The clock starts with the first statement, after all writers are ready. The work is the same in each run: it depends
    on the number of the commit, and only the pauses after aborts are random.
    Latency is from the first try of a statement until it was acknowledged; an aborted statement is done again at once.
    """
    if commits is not None and seconds is not None:
        raise click.UsageError("--commits and --seconds are two ends of a race: say one")
    most = commits if commits is not None else _COMMITS if seconds is None else None
    chosen = [*Mix] if _ALL in mixes else [Mix(name) for name in dict.fromkeys(mixes)]
    races = []
    with StatusLine() as line:
        for mix in chosen:
            line.show(f"{mix}: making the table, starting {writers} writers", force=True)
            races.append(
                race(
                    uri,
                    mix=mix,
                    writers=writers,
                    commits=most,
                    seconds=seconds,
                    row_level=row_level,
                    threads=threads,
                    storage_options=storage_options,
                    watch=_progress(line, mix, most, seconds),
                )
            )
    if as_json:
        echo_json([_as_json(one) for one in races])
    else:
        _show(races)
    wrong = [f"{one.mix}: {problem}" for one in races for problem in one.problems]
    if wrong:
        raise RaceFailedError(f"the log or the rows differ from what was acknowledged: {'; '.join(wrong)}")


def _progress(line: StatusLine, mix: Mix, commits: int | None, seconds: float | None) -> Callable[[int], None]:
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
        "machine": _machine(),
    }


def _machine() -> dict[str, Any]:
    """Versions, the system and the number of CPUs: the figures depend on them, besides the store."""
    return {
        "refdelta": __version__,
        "pyarrow": version("pyarrow"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpus": os.cpu_count(),
    }


def _show(races: list[Race]) -> None:
    names = ("mix", "writers", "commits", "seconds", "commits/s", "aborts", "puts", "p50 ms", "p90 ms", "p99 ms")
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
            )
            for one in races
        ],
        right=names[1:],
    )
    for one in races:
        for error, count in one.aborts.items():
            click.echo(f"{one.mix}: {count:,} x {error}")
        if one.compactions:
            click.echo(f"{one.mix}: beside {one.compactions:,} compactions")
    machine = _machine()
    cpus = machine.pop("cpus")
    click.echo(f"with {', '.join(f'{name} {value}' for name, value in machine.items())}, {cpus} CPUs")
    if not any(one.problems for one in races):
        click.echo("no commit lost, none doubled: the log and the rows agree with what was acknowledged")
