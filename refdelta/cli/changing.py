"""``refdelta delete`` and ``refdelta update``: change rows in one commit, or show what would change."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from refdelta import CommitProperties, DeltaTable, arguments
from refdelta.cli.group import app, isolation_level, on_a_table, open_table, properties, rows_or_files
from refdelta.cli.render import counted, echo_json, echo_some, moved_over
from refdelta.core.table.features import check_writable
from refdelta.engine.log.snapshot import Snapshot
from refdelta.operations.dml.delete import delete as stage_delete
from refdelta.operations.dml.update import update as stage_update
from refdelta.transaction.results import CommitResult
from refdelta.transaction.transaction import Transaction

Command = TypeVar("Command", bound=Callable[..., Any])


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
    stage: Callable[[Transaction, Snapshot], None]
    run: Callable[[DeltaTable, arguments.Isolation | None, CommitProperties], CommitResult]


def changing(command: Command) -> Command:
    """The options that every statement which changes rows has."""
    for decorate in (
        click.option("--message", metavar="TEXT", help="A note for the history (userMetadata)."),
        click.option("--dry-run", is_flag=True, help="Commit nothing: say what would change, in which files."),
        rows_or_files,
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
    isolation: arguments.Isolation | None,
    row_level: bool | None,
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
    how = properties(message, row_level)
    _perform(open_table(table, storage_options), statement, isolation, how, dry_run=dry_run, as_json=as_json)


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
    isolation: arguments.Isolation | None,
    row_level: bool | None,
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
    how = properties(message, row_level)
    _perform(open_table(table, storage_options), statement, isolation, how, dry_run=dry_run, as_json=as_json)


def _perform(
    table: DeltaTable,
    statement: _Statement,
    isolation: arguments.Isolation | None,
    how: CommitProperties,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    start = time.monotonic()
    if dry_run:
        _show_plan(_planned(table, statement, isolation), statement, as_json=as_json)
        return
    result = statement.run(table, isolation, how)
    if as_json:
        echo_json(dict(result))
    elif result.version is None:
        click.echo("no row matches: nothing was written")
    else:
        changed = f"{counted(result.metrics[statement.metric], 'row')} {statement.done}, {_files(result.metrics)}"
        over = moved_over(result.rebased_over)
        click.echo(f"version {result.version}{over}: {changed}, {time.monotonic() - start:.1f} s")
        for reason in result.fallbacks:
            click.echo(f"  files decided over conflicts, not rows: {reason}")


def _planned(table: DeltaTable, statement: _Statement, isolation: arguments.Isolation | None) -> dict[str, Any]:
    """The effect of the statement on the newest version. It is run and rolled back: its files are removed."""
    snapshot = table.newest_for_writing()
    check_writable(snapshot.protocol, snapshot.metadata)
    staging = Transaction(table.store, snapshot, isolation=isolation)
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
    echo_some(plan["files"])


def _files(metrics: Mapping[str, Any]) -> str:
    """``2 files removed, 1 written (5 rows copied), 3 given a deletion vector``."""
    removed, added = metrics.get("num_removed_files", 0), metrics.get("num_added_files", 0)
    copied, hidden = metrics.get("num_copied_rows", 0), metrics.get("num_deletion_vectors_added", 0)
    unchanged = f" ({counted(copied, 'row')} copied)" if copied else ""
    vectors = f", {hidden:,} given a deletion vector" if hidden else ""
    return f"{counted(removed, 'file')} removed, {added:,} written{unchanged}{vectors}"
