"""``refdelta write``, ``refdelta convert`` and ``refdelta checkpoint``."""

from __future__ import annotations

import contextlib
import itertools
import time
from typing import TYPE_CHECKING, Any

import click

from refdelta.cli.app import app
from refdelta.cli.group import (
    catalog_in_use,
    file_format,
    isolation_level,
    names,
    note,
    on_a_table,
    only_by_path,
    open_table,
    outside,
    pairs,
    properties,
    table_properties,
    zone_of_times,
)
from refdelta.cli.render import echo_json, say
from refdelta.status_line import StatusLine, watched
from refdelta.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from refdelta import DeltaTable, arguments
    from refdelta.cli.inputs import BadRows
    from refdelta.table.types import StructType
    from refdelta.transaction.results import CommitResult


@app.command(
    examples=(
        "write flights january.parquet february.parquet --partition-by year,month",
        "write flights late.csv --mode append --null NA --message 'late arrivals'",
        "write flights march.parquet --mode overwrite --where 'month = 3'",
        "write flights 2026-03-01.csv --mode append --app-id nightly --app-version 20260301",
        "write flights landing/ --mode append --bad-rows bad.ndjson",
        "write flights 'landing/2026-*.csv.gz' --mode append",
        "write flights - --format json --mode append < rows.ndjson",
    ),
)
@on_a_table
@click.argument("inputs", nargs=-1, required=True, metavar="FILE...", type=click.Path())
@click.option(
    "--mode",
    type=click.Choice(["error", "append", "overwrite", "ignore"]),
    default="error",
    show_default=True,
    help="The action where the table exists.",
)
@file_format
@click.option(
    "--bad-rows",
    metavar="FILE",
    help="CSV and JSON: rows that cannot be loaded go to this file, one JSON object a line with the place and the "
    "reason, and the others are loaded; without it the first of them stops the load.",
)
@click.option("--partition-by", metavar="A,B", callback=names, help="Partition columns of a new table.")
@click.option("--cluster-by", metavar="A,B", callback=names, help="Clustering columns of a new table.")
@click.option(
    "--schema-mode",
    type=click.Choice(["merge", "overwrite"]),
    help="Add new columns to the table's schema, or replace it; refused unless said.",
)
@click.option("--where", "predicate", metavar="SQL", help="With --mode overwrite: replace only the rows that match.")
@click.option("--dynamic", is_flag=True, help="With --mode overwrite: replace only the partitions that the files have.")
@table_properties("a new table")
@click.option("--name", help="The name of a new table.")
@click.option("--description", help="The description of a new table.")
@note
@click.option(
    "--target-file-size", type=click.IntRange(min=1), metavar="BYTES", help="When to begin another data file."
)
@zone_of_times
@click.option(
    "--app-id",
    metavar="NAME",
    help="With --app-version: write nothing if the table records this version of this application, or a later one.",
)
@click.option("--app-version", type=int, metavar="N", help="A number that rises from run to run, such as 20260301.")
@isolation_level
def write(
    table: str,
    inputs: tuple[str, ...],
    storage_options: dict[str, str],
    as_json: bool,
    mode: arguments.WriteMode,
    shape: str | None,
    nulls: tuple[str, ...],
    delimiter: str,
    bad_rows: str | None,
    partition_by: list[str] | None,
    cluster_by: list[str] | None,
    schema_mode: arguments.SchemaMode | None,
    predicate: str | None,
    dynamic: bool,
    configuration: dict[str, str],
    name: str | None,
    description: str | None,
    message: str | None,
    target_file_size: int | None,
    timezone: str | None,
    app_id: str | None,
    app_version: int | None,
    isolation: arguments.Isolation | None,
) -> None:
    """Write Parquet, CSV or JSON files into TABLE, in one commit: files, folders, patterns, or - for standard input.

    JSON is one object a line, or an array of objects. CSV and JSON may be compressed (.gz, .zst). They have the types
    of the table that they go to; where there is none, the types are guessed from all their values.
    """
    from refdelta import write_deltalake
    from refdelta.cli.inputs import BadRows, InputOptions, one_character, open_inputs
    from refdelta.transaction.results import CommitResult

    start = time.monotonic()
    target: str | DeltaTable = table
    place: dict[str, Any] = {"storage_options": storage_options or None, "outside": outside()}
    if catalog_in_use() is not None:
        target, place = open_table(table, storage_options, None, timezone), {}
    options = InputOptions(
        shape, nulls, one_character(delimiter), _types(target, storage_options, schema_mode), timezone
    )
    with StatusLine() as line, contextlib.nullcontext() if bad_rows is None else BadRows(bad_rows) as bad:
        rows = open_inputs(inputs, options, bad, lambda text: say(text, err=True))
        # With an application's version the load is recorded, and an earlier one is not repeated: then nothing is read.
        if mode == "append" and options.types is not None and app_id is None:
            rows, empty = _peeked(rows)
            if empty:
                _echo_written(CommitResult(version=None), bad, start, as_json=as_json)
                return
        result = write_deltalake(
            target,
            watched(rows, line, "writing"),
            mode=mode,
            partition_by=partition_by,
            cluster_by=cluster_by,
            schema_mode=schema_mode,
            predicate=predicate,
            partition_overwrite="dynamic" if dynamic else None,
            configuration=configuration or None,
            name=name,
            description=description,
            commit_properties=properties(message),
            target_file_size=target_file_size,
            timezone=timezone,
            app_id=app_id,
            app_version=app_version,
            isolation=isolation,
            **place,
        )
    _echo_written(result, bad, start, as_json=as_json)


def _peeked(rows: pa.RecordBatchReader) -> tuple[pa.RecordBatchReader, bool]:
    """The same rows, and whether there are none."""
    import pyarrow as pa

    first = next(rows, None)
    if first is None:
        return rows, True
    return pa.RecordBatchReader.from_batches(rows.schema, itertools.chain([first], rows)), False


def _echo_written(result: CommitResult, bad: BadRows | None, start: float, *, as_json: bool) -> None:
    diverted = "" if bad is None or not bad.count else f"; {counted(bad.count, 'bad row')} in {bad.name}"
    if as_json:
        echo_json(dict(result) if bad is None else {**result, "num_bad_rows": bad.count})
    elif result.version is None:
        say(f"nothing was written{diverted}")
    else:
        added = counted(result.metrics["num_added_rows"], "row")
        files = counted(result.metrics["num_added_files"], "file")
        say(f"version {result.version}: {added} in {files}, {time.monotonic() - start:.1f} s{diverted}")


def _types(
    table: str | DeltaTable, storage_options: dict[str, str], schema_mode: arguments.SchemaMode | None
) -> StructType | None:
    from refdelta import DeltaTable
    from refdelta.schema import struct_of

    options = storage_options or None
    if schema_mode == "overwrite":
        return None
    if isinstance(table, DeltaTable):
        return struct_of(table.schema())
    if not DeltaTable.is_deltatable(table, storage_options=options):
        return None
    return struct_of(DeltaTable(table, storage_options=options).schema())


@app.command(
    examples=(
        "convert flights",
        "convert flights --partition year=integer --partition month=integer",
    ),
)
@on_a_table
@click.option(
    "--partition",
    "partition_by",
    metavar="NAME=TYPE",
    multiple=True,
    callback=pairs,
    help="A partition column that the folders name, e.g. year=integer, in their order. May be repeated.",
)
@click.option("--values-only", is_flag=True, help="The folders are 2026/3 and not year=2026/month=3.")
@click.option("--no-stats", is_flag=True, help="Read only the footers of the files: quicker, but queries skip no file.")
@table_properties()
@note
def convert(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,
    partition_by: dict[str, str],
    values_only: bool,
    no_stats: bool,
    configuration: dict[str, str],
    message: str | None,
) -> None:
    """Make a table of the Parquet files in TABLE. They are not changed; only the log is written."""
    from refdelta import convert_to_deltalake

    only_by_path("convert")
    start = time.monotonic()
    result = convert_to_deltalake(
        table,
        partition_by=partition_by or None,
        partition_strategy="directory" if values_only else None,
        configuration=configuration or None,
        storage_options=storage_options or None,
        collect_stats=not no_stats,
        commit_properties=properties(message),
    )
    if as_json:
        echo_json(dict(result))
    else:
        rows = counted(result.metrics["num_added_rows"], "row")
        files = counted(result.metrics["num_converted_files"], "file")
        say(f"version {result.version}: {rows} in {files}, {time.monotonic() - start:.1f} s")


@app.command(
    examples=("checkpoint flights",),
)
@on_a_table
def checkpoint(table: str, storage_options: dict[str, str], as_json: bool) -> None:
    """Write a checkpoint of TABLE's newest version, so that readers need not replay the log before it."""
    handle = open_table(table, storage_options)
    handle.create_checkpoint()
    if as_json:
        echo_json({"version": handle.version()})
    else:
        say(f"checkpoint of version {handle.version()} written")
