"""``refdelta demo``: the main job, step by step, and its results."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from refdelta.cli.app import app
from refdelta.cli.group import storage_options
from refdelta.cli.render import colored, echo_json, echo_table, escaped, say, say_painted
from refdelta.status_line import StatusLine
from refdelta.wording import counted, size

if TYPE_CHECKING:
    import pyarrow as pa

    from refdelta.demo import changes as demo_changes
    from refdelta.demo import rows as demo_rows
    from refdelta.demo import run as demo
    from refdelta.demo.run import TableLocation

_HISTORY = 5


@dataclass(frozen=True)
class Summary:
    """The figures of one run; sizes in bytes, times in seconds."""

    table: str
    writers: int
    commits: int
    retries: int
    rows: int
    files: int
    size: int
    seconds: float
    commits_per_second: float
    rows_per_second: float


@app.command(
    "demo",
    examples=(
        "demo",
        "demo --json",
    ),
)
@click.option(
    "--path",
    metavar="DIR|URI",
    help="A new or empty folder, here or in a store as s3://bucket/folder; the next in ./demo-table unless said.",
)
@storage_options
@click.option("--writers", type=click.IntRange(1, 12), default=4, show_default=True, help="How many processes write.")
@click.option("--spark/--no-spark", default=True, help="Whether delta-spark reads the table too, where it is there.")
@click.option(
    "--spark-folder",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Where delta-spark finds the table that --path names by a URI: the folder that the store serves it from.",
)
@click.option(
    "--changes/--no-changes",
    default=True,
    help="Whether to write more tables: one for each isolation level, with updates and deletes, and one of a catalog.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
def run(
    path: str | None,
    storage_options: dict[str, str],
    writers: int,
    spark: bool,
    spark_folder: str | None,
    changes: bool,
    as_json: bool,
) -> None:
    """Write a year of flights from several processes at once, then check everything.

    Reads the table back and compares it with the source, now and at earlier versions, and has delta-spark read it too
    where Java is there. Then the same again at each isolation level, while one more process updates late flights and
    another deletes cancelled ones. Then four processes update and delete different rows of the same files, while one
    more runs OPTIMIZE: no conflict, and how many there would have been by files. The outcome is compared with that of a
    serial run. In a folder, the flights are also written to a table of a catalog in one SQLite file. Last, a hundred
    threads append some flights each, by themselves and in a group. The exit status is 1 if a comparison fails. The
    tables stay for you to look at.
    """
    from refdelta.demo import changes as demo_changes
    from refdelta.demo import run as demo

    place = demo.fresh_place(path, storage_options)
    tables = demo_changes.places(place) if changes else {}
    source = demo.flights()
    if not as_json:
        say(f"{source.num_rows:,} flights, {writers} writer processes, one table: {place}")
    demo.create(place, source)
    written = demo.write_concurrently(place, source, writers)
    summary = _summary(place, writers, written)
    if not as_json:
        _show_figures(summary)
        _show_history(place)
    checks = demo.verify(place, source, written)
    if not as_json:
        say()
        _show_checks(checks)
    levels = _levels(tables, source, writers, show=not as_json) if tables else []
    checks += itertools.chain.from_iterable(level.checks for level in levels)
    managed = _with_catalog(place, source, writers, show=not as_json) if changes and "://" not in place.uri else []
    checks += managed
    checks += _small_writers(place, source, show=not as_json) if changes else []
    others = {level.rows.level: level.left for level in levels}
    more, not_compared = _second_opinion(place, spark_folder, source, others) if spark else ([], "--no-spark")
    checks += more
    if as_json:
        shown = [{"what": check.what, "ok": check.problem is None, "problem": check.problem} for check in checks]
        described = [_as_json(level) for level in levels]
        echo_json({**asdict(summary), "levels": described, "checks": shown, "not_compared_with_spark": not_compared})
    else:
        say()
        _show_checks(more)
        if not_compared:
            say(f"    -  not compared with delta-spark: {not_compared}")
        _show_what_next(place, summary.commits // 2)
    failed = [check for check in checks if check.problem]
    if failed:
        raise demo.DemoFailedError(f"{len(failed)} of {len(checks)} checks failed, the first: {failed[0].what}")


@dataclass(frozen=True)
class Level:
    """The results for the table of one isolation level.

    Attributes:
        changes: while flights were appended.
        rows: afterwards, to different rows of the same files.
        by_files: the same with files that decide over conflicts.
        checks: whether it is right.
        left: what the table must hold in the end.
    """

    changes: demo_changes.ChangesOutcome
    rows: demo_rows.RowsOutcome
    by_files: demo_rows.FileLevelReplay
    checks: list[demo.DemoCheck]
    left: pa.Table


def _levels(tables: Mapping[str, TableLocation], source: pa.Table, writers: int, *, show: bool) -> list[Level]:
    """Write and change the tables of both isolation levels, and check them."""
    from refdelta.demo import changes as demo_changes
    from refdelta.demo import rows as demo_rows

    changed = []
    for changes in demo_changes.change_concurrently(tables, source, writers):
        checks = demo_changes.verify(tables[changes.level], source, changes)
        changed.append((changes, checks, demo_changes.expected(source, changes)))
        if show:
            _show_outcome(changes)
            _show_checks(checks)
    levels = []
    for (changes, checks, before), rows in zip(changed, demo_rows.change_rows(tables), strict=True):
        by_files = demo_rows.replay(source, rows)
        more = [*demo_rows.verify(tables[rows.level], before, rows), by_files.check]
        levels.append(Level(changes, rows, by_files, [*checks, *more], demo_rows.expected(before, rows)))
        if show:
            _show_rows(rows, by_files)
            _show_checks(more)
    return levels


def _with_catalog(place: TableLocation, source: pa.Table, writers: int, *, show: bool) -> list[demo.DemoCheck]:
    """Write the flights to a table of a catalog beside this one, and check it."""
    from refdelta.demo import run as demo
    from refdelta.demo import with_catalog as demo_catalog

    managed = demo_catalog.beside(place)
    Path(managed.uri).mkdir(parents=True)
    demo.create(managed, source)
    written = demo.write_concurrently(managed, source, writers)
    checks = demo_catalog.verify(managed, source, written)
    if show:
        say(
            f"\n{managed}: {counted(len(written.appends), 'append')} by {writers} processes, "
            f"{counted(written.retries, 'version')} lost to others, {written.seconds:.2f} s"
        )
        _show_checks(checks)
    return checks


def _small_writers(place: TableLocation, source: pa.Table, *, show: bool) -> list[demo.DemoCheck]:
    """Let a hundred threads append to two tables beside this one, and check them."""
    from refdelta.demo import groups as demo_groups

    outcomes, checks = demo_groups.append_small(place, source)
    if show:
        say(f"\n{demo_groups.WRITERS} threads of one program, an append each")
        for one in outcomes:
            how = "in a group" if one.grouped else "each by itself"
            say(f"    {how}: {counted(len(set(one.versions)), 'version')}, {one.seconds:.2f} s")
        _show_checks(checks)
    return checks


def _as_json(level: Level) -> dict[str, Any]:
    by_rows = {**asdict(level.rows), "conflicts_by_files": dict(level.by_files.conflicts)}
    return {**asdict(level.changes), "serial_order": level.changes.serial_order, "rows": by_rows}


def _summary(place: TableLocation, writers: int, written: demo.AppendsOutcome) -> Summary:
    described = place.open().detail()
    commits, seconds = len(written.appends), written.seconds
    return Summary(
        table=place.uri,
        writers=writers,
        commits=commits,
        retries=written.retries,
        rows=written.rows,
        files=described["num_files"],
        size=described["size_in_bytes"],
        seconds=round(seconds, 3),
        commits_per_second=round(commits / seconds, 1),
        rows_per_second=round(written.rows / seconds),
    )


def _show_figures(summary: Summary) -> None:
    say()
    figures = {
        "commits": f"{summary.commits:,}",
        "retries": f"{summary.retries:,}",
        "rows": f"{summary.rows:,}",
        "files": f"{summary.files:,}",
        "size": size(summary.size),
        "seconds": f"{summary.seconds:.2f}",
        "commits/s": f"{summary.commits_per_second:.1f}",
        "rows/s": f"{summary.rows_per_second:,}",
    }
    echo_table(list(figures), [list(figures.values())], right=figures)


def _show_history(place: TableLocation) -> None:
    say(f"\nhistory, the newest {_HISTORY} versions")
    commits = place.open().history(_HISTORY)
    echo_table(
        ("version", "operation", "read version", "rows", "note"),
        [
            (
                commit.get("version"),
                commit.get("operation"),
                commit.get("readVersion"),
                (commit.get("operationMetrics") or {}).get("numOutputRows"),
                commit.get("userMetadata"),
            )
            for commit in commits
        ],
        right=("version", "read version", "rows"),
    )


def _show_checks(checks: list[demo.DemoCheck]) -> None:
    for check in checks:
        mark = colored("FAIL", fg="red", bold=True) if check.problem else colored("  ok", fg="green")
        say_painted(f" {mark}  {escaped(check.what)}" + (f": {escaped(check.problem)}" if check.problem else ""))


def _show_outcome(outcome: demo_changes.ChangesOutcome) -> None:
    """Show the updates and deletes of one table: their places in the serial order, and their conflicts."""
    from refdelta.demo import changes as demo_changes

    conflicts = sum(len(change.conflicts) for change in outcome.changes)
    say(
        f"\n{outcome.level}: {counted(len(outcome.appends), 'append')}, "
        f"{len(outcome.changes):,} updates and deletes, "
        f"{counted(conflicts, 'conflict')}, {outcome.seconds:.2f} s: {outcome.table}"
    )
    passed_over = {} if outcome.level == demo_changes.SERIALIZABLE else outcome.passed_over
    rows = [
        (
            change.version,
            f"{'update late' if change.who == demo_changes.UPDATER else 'delete cancelled'}, month {change.month}",
            change.rows,
            change.read_version,
            _ranges(change.rebased_over),
            ", ".join(f"{conflict.winner} ({conflict.rule})" for conflict in change.conflicts),
            f"before {min(passed_over[change.version])}" if change.version in passed_over else "",
        )
        for change in outcome.changes
    ]
    names = ("version", "what", "rows", "saw", "moved over", "repeated after a conflict with", "serial place")
    echo_table(names, rows, right=("version", "rows", "saw"))


def _show_rows(rows: demo_rows.RowsOutcome, by_files: demo_rows.FileLevelReplay) -> None:
    """Show the changes of different rows, next to the same schedule with conflicts decided by files."""
    from refdelta.demo import rows as demo_rows

    kinds = (demo_rows.UPDATE, demo_rows.DELETE, demo_rows.OPTIMIZE)
    counts = ", ".join(f"{rows.counted(kind)} {kind}" for kind in kinds)
    say(
        f"\n{rows.level}, different rows of the same files: {counts} by {len(demo_rows.AIRLINES) + 1} processes, "
        f"{rows.moved:,} moved over others, {rows.seconds:.2f} s"
    )
    lost = ", ".join(f"{by_files.conflicts[kind]} of {kind}" for kind in kinds if by_files.conflicts.get(kind))
    found = [
        ("rows", len(rows.conflicts), ""),
        (f"files, on the same schedule over every {demo_rows.REPLAYED_PART}th flight", by_files.total, lost),
    ]
    echo_table(("what is compared", "conflicts", "of which"), found, right=("conflicts",))


def _ranges(versions: Iterable[int]) -> str:
    """``9-14, 16`` for 9, 10, 11, 12, 13, 14 and 16."""
    groups = [
        [version for _, version in group]
        for _, group in itertools.groupby(enumerate(versions), lambda item: item[1] - item[0])
    ]
    return ", ".join(str(group[0]) if len(group) == 1 else f"{group[0]}-{group[-1]}" for group in groups)


def _second_opinion(
    place: TableLocation, spark_folder: str | None, source: pa.Table, others: Mapping[str, pa.Table]
) -> tuple[list[demo.DemoCheck], str | None]:
    """delta-spark's checks, or why there are none; on CI (``CI=true``) there is no such excuse.

    ``others`` is what the tables beside it hold, by level.
    """
    from refdelta.crosscheck import oracle
    from refdelta.demo import run as demo

    if "://" in place.uri and spark_folder is None:
        return [], "it reads folders of this machine, and --spark-folder names none"
    folder = Path(spark_folder or place.uri)
    beside = {level: (Path(f"{folder}-{level.lower()}"), left) for level, left in others.items()}
    try:
        with StatusLine() as line:
            line.show("delta-spark reads the table (its first start fetches its JARs)", force=True)
            return demo.verify_with_spark(folder, source, beside), None
    except oracle.OracleUnavailableError as error:
        if os.environ.get("CI", "").lower() == "true":
            raise
        return [], str(error)


def _show_what_next(place: TableLocation, version: int) -> None:
    table = shlex.quote(place.uri)
    as_here = ", each with the --storage-option of this call" if place.options else ""
    say(f"\nThe table is in {place}. To look at it{as_here}:")
    for command in (
        f"read {table} --where \"carrier = 'AA' and dep_delay > 600\" --columns month,day,flight,dest,dep_delay",
        f"read {table} --version {version} --limit 3",
        f"history {table}",
        f"log {table}",
    ):
        say(f"  {_program()} {command}")


def _program() -> str:
    """How this program is called here: by its name only where the shell would find it."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return "python -m refdelta"
    return called.name if shutil.which(called.name) else str(called)
