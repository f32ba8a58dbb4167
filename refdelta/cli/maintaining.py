"""``refdelta optimize``, ``vacuum`` and ``restore``: compaction, removal of unneeded files, earlier versions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from refdelta.cli.app import app
from refdelta.cli.group import (
    in_bytes,
    isolation_level,
    most_attempts,
    named_version,
    names,
    note,
    on_a_table,
    open_table,
    properties,
)
from refdelta.cli.render import echo_json, echo_some, moved_over, say
from refdelta.status_line import StatusLine
from refdelta.wording import counted, size

if TYPE_CHECKING:
    from refdelta import DeltaTable, arguments
    from refdelta.operations.layout.optimize import OptimizeRequest
    from refdelta.transaction.results import CommitResult, VacuumResult


@app.command(
    examples=(
        "optimize flights --target-size 128mb",
        "optimize flights --z-order-by origin,dest --where 'year = 2026'",
        "optimize flights --purge --dry-run",
    ),
)
@on_a_table
@click.option(
    "--z-order-by", "columns", metavar="A,B", callback=names, help="Sort all rows along a Z-curve over these."
)
@click.option("--cluster", is_flag=True, help="Sort the files that are not clustered yet by the clustering columns.")
@click.option("--full", is_flag=True, help="With --cluster: those too that were clustered by other columns.")
@click.option("--purge", is_flag=True, help="Rewrite the files that have deletion vectors, and no others (REORG).")
@click.option("--where", "predicate", metavar="SQL", help="Which partitions; a condition over partition columns.")
@click.option(
    "--target-size",
    callback=in_bytes,
    metavar="SIZE",
    help="About how large files should be: bytes, or a size such as 128mb.",
)
@click.option("--min-file-size", metavar="SIZE", callback=in_bytes, help="Leave files alone that are as large as this.")
@click.option("--tasks", type=click.IntRange(min=1), metavar="N", help="How many bins of files are written at once.")
@click.option("--dry-run", is_flag=True, help="Write nothing: say which files would be rewritten.")
@most_attempts
@note
def optimize(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,
    columns: list[str] | None,
    cluster: bool,
    full: bool,
    purge: bool,
    predicate: str | None,
    target_size: int | None,
    min_file_size: int | None,
    tasks: int | None,
    dry_run: bool,
    attempts: int | None,
    message: str | None,
) -> None:
    """Put small files of TABLE together; or sort its rows, or free it of rows that were deleted.

    No data changes, and readers notice nothing. On a table with deletion vectors neither do writers, unless rows are
    sorted.
    """
    from refdelta.api.handle import handle_of
    from refdelta.api.optimizer import optimized
    from refdelta.operations.layout.optimize import OptimizeRequest

    others = {"--purge": purge, "--z-order-by": columns is not None, "--cluster": cluster}
    chosen = [name for name, given in others.items() if given]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} exclude each other")
    if min_file_size is not None and chosen:
        raise click.UsageError(f"--min-file-size goes without {chosen[0]}, which takes files of any size")
    if cluster and predicate is not None:
        raise click.UsageError("--where goes without --cluster: a clustered table has no partitions")
    if full and not cluster:
        raise click.UsageError("--full goes with --cluster")
    start = time.monotonic()
    handle = open_table(table, storage_options)
    with StatusLine() as line:
        request = OptimizeRequest(
            aim="purge" if purge else "cluster" if cluster else "compact" if columns is None else "sort",
            full=full,
            filters=predicate,
            columns=columns or (),
            target_size=target_size,
            min_size=min_file_size,
            tasks=tasks,
            progress=_progress(line, "bins are rewritten"),
        )
        if dry_run:
            _show_rewrite(_as_planned(handle, request), as_json=as_json)
            return
        result = optimized(handle_of(handle), request, {"attempts": attempts, "commit_properties": properties(message)})
    if as_json:
        echo_json(dict(result))
    else:
        say(_rewritten(result, time.monotonic() - start))


def _progress(line: StatusLine, what: str) -> Callable[[int, int], None]:
    return lambda done, total: line.show(f"{done:,} of {total:,} {what}")


def _rewritten(result: CommitResult, seconds: float) -> str:
    if result.version is None:
        lost = "others have rewritten these files meanwhile" if result.attempts else "no file is worth rewriting"
        return f"{lost}: nothing was written"
    before, after = result["filesRemoved"], result["filesAdded"]
    old = f"{counted(before['totalFiles'], 'file')} of {size(before['totalSize'])}"
    new = f"{after['totalFiles']:,} of {size(after['totalSize'])}"
    return f"version {result.version}{moved_over(result.rebased_over)}: {old} rewritten as {new}, {seconds:.1f} s"


def _as_planned(table: DeltaTable, request: OptimizeRequest) -> dict[str, Any]:
    from refdelta.api.handle import handle_of
    from refdelta.operations.layout.optimize import planned

    plan = planned(handle_of(table).newest_for_writing(), request)
    bins = [
        {"files": one.files.column("path").to_pylist(), "size_bytes": sum(one.files.column("size").to_pylist())}
        for one in map(plan.files_of, plan.bins)
    ]
    considered = plan.files.num_rows
    return {"dry_run": True, "read_version": table.version(), "num_considered_files": considered, "bins": bins}


def _show_rewrite(plan: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        echo_json(plan)
        return
    files = [name for one in plan["bins"] for name in one["files"]]
    say(
        f"version {plan['read_version']} would have {len(files):,} of {counted(plan['num_considered_files'], 'file')} "
        f"rewritten, {size(sum(one['size_bytes'] for one in plan['bins']))} in {counted(len(plan['bins']), 'bin')}; "
        "nothing was done"
    )
    echo_some(files)


def versions(_context: click.Context, parameter: click.Parameter, text: str | None) -> list[int] | None:
    """Turn ``3,5`` into version numbers."""
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    wrong = [part for part in parts if not part.isdecimal()]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is no version", param=parameter)
    return [int(part) for part in parts] or None


@app.command(
    examples=(
        "vacuum flights",
        "vacuum flights --no-dry-run --retention-hours 336",
    ),
)
@on_a_table
@click.option(
    "--dry-run/--no-dry-run", default=True, show_default=True, help="Say which files would go, or remove them."
)
@click.option(
    "--retention-hours",
    type=click.FloatRange(min=0),
    metavar="HOURS",
    help="Keep what a version needs that was the newest so recently; the table's own retention, a week, unless said.",
)
@click.option(
    "--enforce-retention-duration/--no-enforce-retention-duration",
    default=True,
    show_default=True,
    help="Refuse a retention below the table's own. Without it, there must be no writers, nor readers of old versions.",
)
@click.option("--full", is_flag=True, help="Also remove files of any origin that the log does not name.")
@click.option(
    "--keep-versions", metavar="N,M", callback=versions, help="Versions that can be read afterwards, however old."
)
@note
def vacuum(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,
    dry_run: bool,
    retention_hours: float | None,
    enforce_retention_duration: bool,
    full: bool,
    keep_versions: list[int] | None,
    message: str | None,
) -> None:
    """Show which files in TABLE's folder no version within the retention needs; with --no-dry-run, remove them.

    Older versions can no longer be read afterwards.
    """
    start = time.monotonic()
    with StatusLine() as line:
        result = open_table(table, storage_options).vacuum(
            retention_hours=retention_hours,
            dry_run=dry_run,
            enforce_retention_duration=enforce_retention_duration,
            full=full,
            keep_versions=keep_versions,
            commit_properties=properties(message),
            progress=_progress(line, "files are removed"),
        )
    if as_json:
        facts = {"dry_run": result.dry_run, "version": result.version, "size_bytes": result.size_bytes}
        echo_json({**facts, "untracked": result.untracked, "files": list(result)})
    else:
        _show_removed(result, time.monotonic() - start)


def _show_removed(result: VacuumResult, seconds: float) -> None:
    what = f"{counted(len(result), 'file')} of {size(result.size_bytes)}"
    if not result:
        say("there is no file that can be removed")
    elif result.dry_run:
        say(f"{what} would be removed; nothing was done, --no-dry-run removes them")
        echo_some(result)
    else:
        say(f"version {result.version}: {what} removed, {seconds:.1f} s")
    if result.untracked:
        say(f"{counted(result.untracked, 'file')} more that the log does not name: --full takes them too")


@app.command(
    examples=(
        "restore flights --version 7",
        "restore flights --version 2026-03-01T12:00:00Z",
    ),
)
@on_a_table
@click.option("--version", "version", metavar="N|TIME", required=True, help="A version, or a time, to go back to.")
@click.option("--ignore-missing-files", is_flag=True, help="Restore what is left where files of it are gone.")
@isolation_level
@note
def restore(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,
    version: str,
    ignore_missing_files: bool,
    isolation: arguments.Isolation | None,
    message: str | None,
) -> None:
    """Make TABLE what it was at an earlier version or time, in a new version: rows, schema and properties."""
    start = time.monotonic()
    result = open_table(table, storage_options).restore(
        named_version(version),
        ignore_missing_files=ignore_missing_files,
        isolation=isolation,
        commit_properties=properties(message),
    )
    if as_json:
        echo_json(dict(result))
    elif result.version is None:
        say("the table is so already: nothing was written")
    else:
        back, gone = result["num_restored_files"], result["num_removed_files"]
        say(
            f"version {result.version}{moved_over(result.rebased_over)}: {counted(back, 'file')} restored, "
            f"{gone:,} removed, {time.monotonic() - start:.1f} s"
        )
