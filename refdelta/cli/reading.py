"""``refdelta read``, ``changes`` and ``follow``: rows of a table as text, CSV, JSON lines or Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from refdelta.cli.app import app
from refdelta.cli.group import Command, at_a_version, names, on_a_table, open_table, zone_of_times
from refdelta.cli.render import echo_json, say
from refdelta.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("table", "csv", "json", "parquet")
"""The formats of rows that are printed."""

ENDINGS = {"csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json", "parquet": "parquet", "pq": "parquet"}
"""The format of an output file by its ending; JSON is one object a line."""

_SHOWN = 20


def _rows(command: Command) -> Command:
    """The options that say which rows are printed, and how."""
    for decorate in (
        click.option(
            "-o", "--output", metavar="FILE", type=click.Path(dir_okay=False), help="A file instead of standard output."
        ),
        click.option(
            "--format",
            "shape",
            type=click.Choice(FORMATS),
            help="How rows are written; 'table' unless said, 'json' with --json.",
        ),
        click.option(
            "--limit", type=click.IntRange(min=0), help=f"At most so many rows; a table shows {_SHOWN} unless said."
        ),
        click.option(
            "--where", "predicate", metavar="SQL", help="Only rows that match, e.g. \"carrier = 'UA' and month < 3\"."
        ),
        click.option("--columns", metavar="A,B", callback=names, help="Only these columns, in this order."),
        zone_of_times,
    ):
        command = decorate(command)
    return command


@app.command(
    examples=(
        "read flights --where \"carrier = 'UA' and month < 3\" --columns id,delay",
        "read flights --version 3 --output flights.parquet",
        "read flights --where 'day = 5' --explain",
    ),
)
@on_a_table
@at_a_version
@_rows
@click.option("--explain", is_flag=True, help="Read nothing: say which files would be read, and which not and why.")
def read(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,
    version: str | None,
    columns: list[str] | None,
    predicate: str | None,
    timezone: str | None,
    limit: int | None,
    shape: str | None,
    output: str | None,
    explain: bool,
) -> None:
    """Print rows of TABLE."""
    shape = _shape(shape, output, as_json)
    scan = open_table(table, storage_options, version, timezone).scan(columns=columns, predicate=predicate)
    if explain:
        told = scan.explain()
        if as_json:
            echo_json(told.as_dict())
        else:
            say(str(told))
    else:
        _print(scan.to_reader(), shape, limit, output)


@app.command(
    examples=(
        "changes flights --from 5 --to 9",
        "changes flights --from 2026-03-01 --where \"_change_type = 'delete'\" --json",
    ),
)
@on_a_table
@click.option("--from", "first", metavar="N|TIME", help="The first version, or since when; version 0 unless said.")
@click.option("--to", "last", metavar="N|TIME", help="The last version, or until when; the newest unless said.")
@_rows
def changes(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,
    first: str | None,
    last: str | None,
    columns: list[str] | None,
    predicate: str | None,
    timezone: str | None,
    limit: int | None,
    shape: str | None,
    output: str | None,
) -> None:
    """Print what changed in TABLE, row by row: its change data feed.

    After the columns of the table come _change_type, _commit_version and _commit_timestamp. Versions at which
    delta.enableChangeDataFeed was not true have no feed.
    """
    shape = _shape(shape, output, as_json)
    opened = open_table(table, storage_options, None, timezone)
    rows = opened.load_cdf(**_end("starting", first), **_end("ending", last), columns=columns, predicate=predicate)
    _print(rows, shape, limit, output)


@app.command(
    examples=(
        "follow flights --timeout 0 --where 'delay > 60'",
        "follow flights --since 41 --json",
        'follow flights --since "$(cat position)" --timeout 60 --json',
    ),
)
@on_a_table
@click.option(
    "--since",
    metavar="N|POSITION",
    help="A version whose rows are known, or the position of the last change; all rows come first unless said.",
)
@click.option("--timeout", type=float, metavar="SECONDS", help="End if nothing comes for so long; 0: what is there.")
@click.option("--columns", metavar="A,B", callback=names, help="Only these columns, in this order.")
@click.option("--where", "predicate", metavar="SQL", help="Only rows that match.")
@zone_of_times
@click.option("--skip-change-commits", is_flag=True, help="Pass over commits that remove or change rows.")
@click.option("--ignore-changes", is_flag=True, help="Of commits that change rows, print all rows of files they add.")
@click.option("--ignore-deletes", is_flag=True, help="Pass over commits that only remove whole files.")
@click.option(
    "--fail-on-data-loss/--no-fail-on-data-loss",
    default=True,
    help="Whether commits that the log does not have any more are an error; it is unless said.",
)
def follow(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,
    since: str | None,
    timeout: float | None,
    columns: list[str] | None,
    predicate: str | None,
    timezone: str | None,
    **options: bool,
) -> None:
    """Print the rows of TABLE, then the changes of each version as they are committed, until Ctrl-C.

    The changes are those of the change data feed if the table records it, else the rows that are added: a commit that
    removes or changes rows is an error then, unless an option says otherwise. With --json each change is one line:
    version, kind, position, app_version, app_id and rows. The position of the last line is where --since goes on.
    """
    from refdelta.cli.output import echo_change, echo_rows

    known: str | int | None = int(since) if since is not None and since.lstrip("-").isdecimal() else since
    opened = open_table(table, storage_options, None, timezone)
    for change in opened.follow(known, timeout, columns=columns, filters=predicate, **options):
        if as_json:
            echo_change(change)
        else:
            say(f"version {change.version}, {change.kind}: {counted(change.rows.num_rows, 'row')}")
            if echo_rows(change.rows.to_reader(), _SHOWN):
                say(f"... the first {_SHOWN} rows; --json has all", err=True)
            say()


def _end(which: str, said: str | None) -> dict[str, Any]:
    """One end of a range of versions, as ``load_cdf`` takes it."""
    number = said is not None and said.isdecimal()
    return {f"{which}_version": int(said)} if said and number else {f"{which}_timestamp": said}


def _print(rows: pa.RecordBatchReader, shape: str, limit: int | None, output: str | None) -> None:
    from refdelta.cli.output import echo_rows, limited, write_rows

    if shape == "table":
        if echo_rows(rows, _SHOWN if limit is None else limit) and limit is None:
            say(f"... the first {_SHOWN} rows; --limit N shows more", err=True)
    else:
        write_rows(limited(rows, limit), shape, output)


def _shape(shape: str | None, output: str | None, as_json: bool) -> str:
    """The format: as said, else by the output file's ending, else a table; combinations without sense are refused."""
    from refdelta.errors import InvalidArgumentError

    if as_json and shape not in (None, "json"):
        raise InvalidArgumentError(f"--json and --format {shape} exclude each other")
    if shape is None and output is not None and not as_json:
        shape = ENDINGS.get(Path(output).suffix.removeprefix(".").lower())
        if shape is None:
            raise InvalidArgumentError(f"{output}: say --format csv, json or parquet")
    shape = shape or ("json" if as_json else "table")
    if shape == "parquet" and output is None:
        raise InvalidArgumentError("--format parquet needs --output FILE")
    if shape == "table" and output is not None:
        raise InvalidArgumentError("--format table is for the screen; --output takes csv, json or parquet")
    return shape
