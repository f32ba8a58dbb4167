"""``refdelta delete``, ``update`` and ``merge``: change rows in one commit, or show what would change."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from refdelta.cli.app import app
from refdelta.cli.group import (
    file_format,
    is_table,
    isolation_level,
    most_attempts,
    note,
    on_a_table,
    open_table,
    properties,
    rows_or_files,
    zone_of_times,
)
from refdelta.cli.render import echo_json, echo_some, moved_over, say
from refdelta.wording import counted

if TYPE_CHECKING:
    from refdelta import CommitProperties, DeltaTable, arguments
    from refdelta.api.merge_builder import TableMerger
    from refdelta.cli.inputs import InputOptions
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.options import StatementOptions
    from refdelta.transaction.results import CommitResult
    from refdelta.transaction.transaction import Transaction

Command = TypeVar("Command", bound=Callable[..., Any])
Result = TypeVar("Result")


@dataclass(frozen=True)
class _Statement:
    """One statement: how it is staged, how it is run, and what it is called.

    Attributes:
        says: what it does, by its metrics, as in "3 rows deleted, 1 file removed".
        stage: stages it, for a dry run.
        run: runs it.
    """

    says: Callable[[Mapping[str, Any]], str]
    stage: Callable[[Transaction, Snapshot], None]
    run: Callable[[DeltaTable, StatementOptions], CommitResult]


def changing(command: Command) -> Command:
    """The options that every statement which changes rows has."""
    for decorate in (
        note,
        click.option("--dry-run", is_flag=True, help="Commit nothing: say what would change, in which files."),
        rows_or_files,
        most_attempts,
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


@app.command(
    examples=(
        "delete flights --where 'delay is null' --dry-run",
        "delete flights --where 'year < 2020' --message 'retention'",
    ),
)
@on_a_table
@click.option("--where", "predicate", metavar="SQL", required=True, help="Which rows; 'true' for all of them.")
@zone_of_times
@changing
def delete(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,
    predicate: str,
    timezone: str | None,
    isolation: arguments.Isolation | None,
    attempts: int | None,
    row_level: bool | None,
    dry_run: bool,
    message: str | None,
) -> None:
    """Delete the rows of TABLE for which a condition is true; where it is null they stay."""
    from refdelta.operations.dml.delete import delete as stage_delete

    statement = _Statement(
        lambda metrics: f"{counted(metrics.get('num_deleted_rows', 0), 'row')} deleted, {_files(metrics)}",
        lambda staging, snapshot: stage_delete(staging, snapshot, predicate),
        lambda handle, options: handle.delete(predicate, **options),
    )
    options = _options(isolation, attempts, properties(message, row_level))
    _perform(open_table(table, storage_options, None, timezone), statement, options, dry_run=dry_run, as_json=as_json)


@app.command(
    examples=("update flights --set 'delay=delay + 1' --where \"carrier = 'UA'\"",),
)
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
@zone_of_times
@changing
def update(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,
    updates: dict[str, str],
    predicate: str | None,
    timezone: str | None,
    isolation: arguments.Isolation | None,
    attempts: int | None,
    row_level: bool | None,
    dry_run: bool,
    message: str | None,
) -> None:
    """Set columns in the rows of TABLE for which a condition is true."""
    from refdelta.operations.dml.update import update as stage_update

    statement = _Statement(
        lambda metrics: f"{counted(metrics.get('num_updated_rows', 0), 'row')} updated, {_files(metrics)}",
        lambda staging, snapshot: stage_update(
            staging, snapshot, updates=updates, new_values=None, predicate=predicate
        ),
        lambda handle, options: handle.update(updates, predicate=predicate, **options),
    )
    options = _options(isolation, attempts, properties(message, row_level))
    _perform(open_table(table, storage_options, None, timezone), statement, options, dry_run=dry_run, as_json=as_json)


@app.command(
    examples=(
        "merge towns new.csv --on 's.id = t.id' --update-all --insert-all",
        "merge towns new.parquet --on 's.id = t.id' --delete-when s.gone --update 'name=upper(s.name)' --dry-run",
        "merge towns staged-towns --on 's.id = t.id' --update-all --update-when 's.at > t.at' --insert-all",
    ),
)
@on_a_table
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", type=click.Path())
@click.option("--on", "condition", metavar="SQL", required=True, help="The condition that pairs rows s and t.")
@click.option("--delete-when", metavar="SQL", help="Paired rows: delete those for which it is true ('true' for all).")
@click.option("--update-all", is_flag=True, help="Paired rows: set all columns to the source's of the same names.")
@click.option(
    "--update",
    "updates",
    metavar="COLUMN=SQL",
    multiple=True,
    callback=assignments,
    help='Paired rows: set a column, e.g. "n=t.n + s.n". May be repeated.',
)
@click.option("--update-when", metavar="SQL", help="Of the paired rows, update only those for which it is true.")
@click.option("--insert-all", is_flag=True, help="Rows of the source alone: insert them.")
@click.option(
    "--insert",
    "inserts",
    metavar="COLUMN=SQL",
    multiple=True,
    callback=assignments,
    help="Rows of the source alone: insert a row with this column. May be repeated.",
)
@click.option("--insert-when", metavar="SQL", help="Of these, insert only those for which it is true.")
@click.option("--delete-missing-when", metavar="SQL", help="Rows of TABLE alone: delete those for which it is true.")
@click.option(
    "--update-missing",
    "missing",
    metavar="COLUMN=SQL",
    multiple=True,
    callback=assignments,
    help="Rows of TABLE alone: set a column. May be repeated.",
)
@click.option("--update-missing-when", metavar="SQL", help="Of these, update only those for which it is true.")
@click.option("--schema-mode", type=click.Choice(["merge"]), help="Add the columns to TABLE that only the source has.")
@file_format
@zone_of_times
@changing
def merge(
    table: str,
    sources: tuple[str, ...],
    storage_options: dict[str, str],
    as_json: bool,
    condition: str,
    schema_mode: str | None,
    shape: str | None,
    nulls: tuple[str, ...],
    delimiter: str,
    timezone: str | None,
    isolation: arguments.Isolation | None,
    attempts: int | None,
    row_level: bool | None,
    dry_run: bool,
    message: str | None,
    **clauses: Any,
) -> None:
    """Update, insert and delete rows of TABLE by the rows of SOURCE: files, or another table (MERGE).

    In SQL, s is the row of the source and t that of TABLE. A paired row is deleted if --delete-when is true for it,
    else updated.
    """
    import pyarrow as pa

    from refdelta.api.merge_builder import TableMerger
    from refdelta.cli.inputs import InputOptions, one_character
    from refdelta.operations.merge.execution import merge as stage_merge
    from refdelta.operations.merge.plan import MergeRequest
    from refdelta.schema import struct_of

    add = _clauses(**clauses)
    handle = open_table(table, storage_options, None, timezone)
    given = InputOptions(shape, nulls, one_character(delimiter), struct_of(handle.schema()), timezone)
    source = _source(sources, given, storage_options)
    if attempts is not None and isinstance(source, pa.RecordBatchReader):
        source = source.read_all()  # a further attempt reads it again
    request = MergeRequest.of(condition, "s", "t", schema_mode == "merge", timezone)
    statement = _Statement(
        _merged,
        lambda staging, snapshot: add(
            TableMerger(request, lambda whole: stage_merge(staging, snapshot, source, whole))
        ).execute(),
        lambda handle, options: add(
            handle.merge(source, condition, merge_schema=request.merge_schema, timezone=timezone, **options)
        ).execute(),
    )
    options = _options(isolation, attempts, properties(message, row_level))
    _perform(handle, statement, options, dry_run=dry_run, as_json=as_json)


def _clauses(
    *,
    delete_when: str | None,
    update_all: bool,
    updates: dict[str, str],
    update_when: str | None,
    insert_all: bool,
    inserts: dict[str, str],
    insert_when: str | None,
    delete_missing_when: str | None,
    missing: dict[str, str],
    update_missing_when: str | None,
) -> Callable[[TableMerger[Result]], TableMerger[Result]]:
    """Add the clauses that the options say to a MERGE, those that delete before those that update."""
    if update_all and updates:
        raise click.UsageError("--update-all and --update exclude each other")
    if insert_all and inserts:
        raise click.UsageError("--insert-all and --insert exclude each other")
    for given, option, needed in (
        (update_when, "--update-when", update_all or updates),
        (insert_when, "--insert-when", insert_all or inserts),
        (update_missing_when, "--update-missing-when", missing),
    ):
        if given is not None and not needed:
            raise click.UsageError(f"{option} goes with {option.removesuffix('-when')}")
    if not (delete_when or update_all or updates or insert_all or inserts or delete_missing_when or missing):
        raise click.UsageError("say what to do: --update-all, --insert-all, --delete-when SQL and others")

    def add(merger: TableMerger[Result]) -> TableMerger[Result]:
        if delete_when:
            merger.when_matched_delete(delete_when)
        if update_all:
            merger.when_matched_update_all(update_when)
        elif updates:
            merger.when_matched_update(updates, update_when)
        if insert_all:
            merger.when_not_matched_insert_all(insert_when)
        elif inserts:
            merger.when_not_matched_insert(inserts, insert_when)
        if delete_missing_when:
            merger.when_not_matched_by_source_delete(delete_missing_when)
        if missing:
            merger.when_not_matched_by_source_update(missing, update_missing_when)
        return merger

    return add


def _source(sources: tuple[str, ...], options: InputOptions, storage_options: dict[str, str]) -> Any:
    """A table, or the rows of files."""
    from refdelta import DeltaTable
    from refdelta.cli.inputs import open_inputs

    if len(sources) == 1 and is_table(sources[0], storage_options):
        return DeltaTable(sources[0], storage_options=storage_options or None)
    return open_inputs(sources, options)


def _merged(metrics: Mapping[str, Any]) -> str:
    """``2 rows updated, 1 inserted, 0 deleted; 1 file removed, 2 written``."""
    updated, inserted, deleted, removed, added = (
        metrics.get(f"num_target_{name}", 0)
        for name in ("rows_updated", "rows_inserted", "rows_deleted", "files_removed", "files_added")
    )
    rows = f"{counted(updated, 'row')} updated, {inserted:,} inserted, {deleted:,} deleted"
    return f"{rows}; {counted(removed, 'file')} removed, {added:,} written"


def _options(
    isolation: arguments.Isolation | None, attempts: int | None, commit_properties: CommitProperties
) -> StatementOptions:
    return {"isolation": isolation, "attempts": attempts, "commit_properties": commit_properties}


def _perform(
    table: DeltaTable,
    statement: _Statement,
    options: StatementOptions,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    start = time.monotonic()
    if dry_run:
        _show_plan(_planned(table, statement, options.get("isolation")), statement, as_json=as_json)
        return
    result = statement.run(table, options)
    if as_json:
        echo_json(dict(result))
    elif result.version is None:
        say("no row matches: nothing was written")
    else:
        changed, over = statement.says(result.metrics), moved_over(result.rebased_over)
        say(f"version {result.version}{over}: {changed}, {time.monotonic() - start:.1f} s")
        for reason in result.fallbacks:
            say(f"  files decided over conflicts, not rows: {reason}")


def _planned(table: DeltaTable, statement: _Statement, isolation: arguments.Isolation | None) -> dict[str, Any]:
    """The effect of the statement on the newest version. It is run and rolled back: its files are removed."""
    from refdelta.api.handle import handle_of
    from refdelta.table.features import check_writable
    from refdelta.transaction.transaction import Transaction

    snapshot = handle_of(table).newest_for_writing()
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
    say(f"version {plan['read_version']} would have {statement.says(plan)}; nothing was done")
    echo_some(plan["files"])


def _files(metrics: Mapping[str, Any]) -> str:
    """``2 files removed, 1 written (5 rows copied), 3 given a deletion vector``."""
    removed, added = metrics.get("num_removed_files", 0), metrics.get("num_added_files", 0)
    copied, hidden = metrics.get("num_copied_rows", 0), metrics.get("num_deletion_vectors_added", 0)
    unchanged = f" ({counted(copied, 'row')} copied)" if copied else ""
    vectors = f", {hidden:,} given a deletion vector" if hidden else ""
    return f"{counted(removed, 'file')} removed, {added:,} written{unchanged}{vectors}"
