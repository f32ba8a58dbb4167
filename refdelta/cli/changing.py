"""``refdelta delete`` and ``refdelta update``: change rows in one commit, or show what would change."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from refdelta import CommitProperties, DeltaTable
from refdelta.cli.app import app, isolation_level, on_a_table, open_table
from refdelta.cli.render import counted, echo_json
from refdelta.engine.snapshot import Snapshot
from refdelta.ops.delete import delete as stage_delete
from refdelta.ops.update import update as stage_update
from refdelta.protocol.features import check_writable
from refdelta.results import CommitResult
from refdelta.staging import Staging

Command = TypeVar("Command", bound=Callable[..., Any])
_FILES_SHOWN = 20


@dataclass(frozen=True)
class _Statement:
    """One statement: how it is staged, how it is run, and what it is called.

    Attributes:
        done: what it does to a row, as in "3 rows deleted".
        metric: which metric counts these rows.
        stage: stages it, for a dry run.
        run: runs it.
    """

    done: str
    metric: str
    stage: Callable[[Staging, Snapshot], None]
    run: Callable[[DeltaTable, str | None, CommitProperties | None], CommitResult]


def changing(command: Command) -> Command:
    """The options that every statement which changes rows has."""
    for decorate in (
        click.option("--message", metavar="TEXT", help="A note for the history (userMetadata)."),
        click.option("--dry-run", is_flag=True, help="Commit nothing: say what would change, in which files."),
        isolation_level,
    ):
        command = decorate(command)
    return command


def assignments(_context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Turn repeated ``column=SQL`` arguments into a mapping; a column is set once."""
    found: dict[str, str] = {}
    for text in values:
        column, equals, expression = text.partition("=")
        if not (equals and column.strip() and expression.strip()):
            raise click.BadParameter(f"{text!r} is not column=SQL", param=parameter)
        if column.strip() in found:
            raise click.BadParameter(f"{column.strip()} is set twice", param=parameter)
        found[column.strip()] = expression.strip()
    return found


@app.command()
@on_a_table
@click.option("--where", "predicate", metavar="SQL", required=True, help="Which rows; 'true' for all of them.")
@changing
def delete(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,
    predicate: str,
    isolation: str | None,
    dry_run: bool,
    message: str | None,
) -> None:
    """Delete the rows of TABLE for which a condition is true; where it is null they stay."""
    statement = _Statement(
        "deleted",
        "num_deleted_rows",
        lambda staging, snapshot: stage_delete(staging, snapshot, predicate),
        lambda handle, level, noted: handle.delete(predicate, isolation=level, commit_properties=noted),
    )
    _perform(open_table(table, storage_options), statement, isolation, message, dry_run=dry_run, as_json=as_json)


@app.command()
@on_a_table
@click.option(
    "--set",
    "updates",
    metavar="COLUMN=SQL",
    multiple=True,
    required=True,
    callback=assignments,
    help='A column\'s new value, e.g. "delay=delay + 1"; all see the old values. May be repeated.',
)
@click.option("--where", "predicate", metavar="SQL", help="Which rows; all of them unless said.")
@changing
def update(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,
    updates: dict[str, str],
    predicate: str | None,
    isolation: str | None,
    dry_run: bool,
    message: str | None,
) -> None:
    """Set columns in the rows of TABLE for which a condition is true."""
    statement = _Statement(
        "updated",
        "num_updated_rows",
        lambda staging, snapshot: stage_update(
            staging, snapshot, updates=updates, new_values=None, predicate=predicate
        ),
        lambda handle, level, noted: handle.update(
            updates, predicate=predicate, isolation=level, commit_properties=noted
        ),
    )
    _perform(open_table(table, storage_options), statement, isolation, message, dry_run=dry_run, as_json=as_json)


def _perform(
    table: DeltaTable,
    statement: _Statement,
    isolation: str | None,
    message: str | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    start = time.monotonic()
    if dry_run:
        _show_plan(_planned(table, statement, isolation), statement, as_json=as_json)
        return
    result = statement.run(table, isolation, CommitProperties(user_metadata=message) if message else None)
    if as_json:
        echo_json(dict(result))
    elif result.version is None:
        click.echo("no row matches: nothing was written")
    else:
        over = _listed("over version", result.rebased_over)
        click.echo(
            f"version {result.version}{over}: {counted(result.metrics[statement.metric], 'row')} {statement.done}, "
            f"{_files(result.metrics)}, {time.monotonic() - start:.1f} s"
        )


def _planned(table: DeltaTable, statement: _Statement, isolation: str | None) -> dict[str, Any]:
    """What the statement would do to the newest version. It is done and given up again: its files are removed."""
    snapshot = table.newest_for_writing()
    check_writable(snapshot.protocol, snapshot.metadata)
    staging = Staging(table.store, snapshot, isolation=isolation)
    try:
        statement.stage(staging, snapshot)
        description = staging.description
        everything = staging.reads.whole_table
        read = snapshot.files.column("path").to_pylist() if everything else sorted(staging.reads.files)
    finally:
        staging.abort()
    metrics = dict(description.metrics) if description else {}
    return {"dry_run": True, "read_version": snapshot.version, **metrics, "files": read}


def _show_plan(plan: Mapping[str, Any], statement: _Statement, *, as_json: bool) -> None:
    if as_json:
        echo_json(plan)
        return
    rows = counted(plan.get(statement.metric, 0), "row")
    click.echo(f"version {plan['read_version']} would have {rows} {statement.done}, {_files(plan)}; nothing was done")
    for path in plan["files"][:_FILES_SHOWN]:
        click.echo(f"  {path}")
    if len(plan["files"]) > _FILES_SHOWN:
        click.echo(f"  ... and {len(plan['files']) - _FILES_SHOWN:,} more; --json lists all")


def _files(metrics: Mapping[str, Any]) -> str:
    """``2 files removed, 1 written with 5 rows that stay``."""
    removed, added = metrics.get("num_removed_files", 0), metrics.get("num_added_files", 0)
    copied = metrics.get("num_copied_rows", 0)
    unchanged = f" ({counted(copied, 'row')} copied)" if copied else ""
    return f"{counted(removed, 'file')} removed, {added:,} written{unchanged}"


def _listed(what: str, versions: tuple[int, ...]) -> str:
    if not versions:
        return ""
    shown = ", ".join(map(str, versions)) if len(versions) <= 3 else f"{versions[0]} to {versions[-1]}"
    return f" ({what}{'' if len(versions) == 1 else 's'} {shown})"
