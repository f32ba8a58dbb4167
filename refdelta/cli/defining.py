"""``refdelta create``, ``clone`` and ``alter``: tables without rows, tables of another's files, and ALTER TABLE."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import click

from refdelta.cli.app import app
from refdelta.cli.group import (
    FOLDER,
    Command,
    at_a_version,
    catalog_in_use,
    in_pairs,
    is_table,
    isolation_level,
    named_version,
    names,
    note,
    on_a_table,
    open_table,
    pairs,
    properties,
    table_properties,
)
from refdelta.cli.render import echo_json, moved_over, say
from refdelta.wording import counted

if TYPE_CHECKING:
    from refdelta import Schema, arguments
    from refdelta.api.alter import TableAlterer
    from refdelta.table.types import StructField
    from refdelta.transaction.results import CommitResult

_COLUMN = in_pairs("name=type")
_EXPRESSION = in_pairs("name=SQL")


@app.command(
    examples=(
        "create towns --column id=long --column name=string --not-null id",
        "create flights --like january.parquet --partition-by year,month",
        "create orders --column id=long --column day=date --identity id --property delta.enableDeletionVectors=true",
        "create sales.orders --catalog sqlite:///catalog.db --location orders --column id=long",
    ),
)
@on_a_table
@click.option(
    "--column",
    "columns",
    metavar="NAME=TYPE",
    multiple=True,
    callback=_COLUMN,
    help="A column: long, string, date, timestamp, 'decimal(12,2)' and so on. May be repeated.",
)
@click.option(
    "--like",
    metavar="FILE|TABLE",
    type=click.Path(),
    help="The columns of a Parquet, CSV or JSON file, or of another table.",
)
@click.option("--not-null", metavar="A,B", callback=names, help="Columns without nulls.")
@click.option("--partition-by", metavar="A,B", callback=names, help="Partition columns.")
@click.option("--cluster-by", metavar="A,B", callback=names, help="Clustering columns.")
@click.option(
    "--generated",
    metavar="NAME=SQL",
    multiple=True,
    callback=_EXPRESSION,
    help="A generated column: its value by the other columns. May be repeated.",
)
@click.option(
    "--default",
    "defaults",
    metavar="NAME=SQL",
    multiple=True,
    callback=_EXPRESSION,
    help="The value of a column where a writer leaves it out. May be repeated.",
)
@click.option(
    "--identity", metavar="A,B", callback=names, help="Columns of type long in which the table numbers its rows."
)
@table_properties()
@click.option("--name", help="The table's name.")
@click.option("--description", help="The table's description.")
@click.option(
    "--mode",
    type=click.Choice(["error", "ignore", "overwrite"]),
    default="error",
    show_default=True,
    help="The action where the table exists; overwrite replaces its columns, properties and rows.",
)
@click.option("--location", metavar="FOLDER", help="With --catalog: the folder of the table.")
@click.option("--inline", is_flag=True, help="With --catalog: the catalog holds commits until they are published.")
@note
def create(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,
    columns: dict[str, str],
    like: str | None,
    not_null: list[str] | None,
    partition_by: list[str] | None,
    cluster_by: list[str] | None,
    generated: dict[str, str],
    defaults: dict[str, str],
    identity: list[str] | None,
    configuration: dict[str, str],
    name: str | None,
    description: str | None,
    mode: Literal["error", "ignore", "overwrite"],
    location: str | None,
    inline: bool,
    message: str | None,
) -> None:
    """Create TABLE without rows. Its columns are those of --like, then those of --column.

    With --catalog, the catalog decides about the commits of the table, and TABLE is its name.
    """
    from refdelta import DeltaTable, Identity

    schema = _schema(columns, like, not_null or [], storage_options)
    stated: dict[str, Any] = {
        "partition_by": partition_by,
        "cluster_by": cluster_by,
        "generated": generated or None,
        "defaults": defaults or None,
        "identity": {column: Identity() for column in identity or ()} or None,
        "configuration": configuration or None,
        "description": description,
        "commit_properties": properties(message),
    }
    if (catalog := catalog_in_use(storage_options)) is not None:
        if mode != "error" or name is not None:
            raise click.UsageError("--mode and --name go with a folder, and not with --catalog")
        made = catalog.create_table(table, schema, location, commits="inline" if inline else "staged", **stated)
    elif location is not None or inline:
        raise click.UsageError("--location and --inline go with --catalog")
    else:
        made = DeltaTable.create(table, schema, mode=mode, name=name, storage_options=storage_options or None, **stated)
    if as_json:
        echo_json({"version": made.version(), "location": made.table_uri, "columns": made.schema().names})
    else:
        say(f"version {made.version()}: {counted(len(made.schema().fields), 'column')}")


def _schema(
    columns: Mapping[str, str], like: str | None, not_null: list[str], storage_options: dict[str, str]
) -> Schema:
    from refdelta import Schema
    from refdelta.errors import InvalidArgumentError
    from refdelta.table.types import StructField, StructType, type_named

    fields = [] if like is None else _columns_of(like, storage_options)
    fields += [StructField(column, type_named(kind), True) for column, kind in columns.items()]
    if not fields:
        raise InvalidArgumentError("a table needs columns: say --column NAME=TYPE, or --like FILE")
    schema = StructType(tuple(fields))
    for column in not_null:
        schema.field(column)  # an error that names the column, and one like it
    strict = {schema.field(column).name for column in not_null}
    return Schema(StructType(tuple(StructField(f.name, f.type, f.nullable and f.name not in strict) for f in fields)))


def _columns_of(like: str, storage_options: dict[str, str]) -> list[StructField]:
    """The columns of a table or a file, without the metadata that is its own."""
    from refdelta import DeltaTable, Schema
    from refdelta.cli.inputs import InputOptions, open_inputs
    from refdelta.table.types import StructField

    if is_table(like, storage_options):
        found = DeltaTable(like, storage_options=storage_options or None).schema()
    else:
        found = Schema.from_arrow(open_inputs([like], InputOptions()).schema)
    return [StructField(field.name, field.type, field.nullable) for field in found]


@app.command(
    examples=(
        "clone flights flights-trial",
        "clone flights flights-in-march --version 2026-03-31",
        "read flights-trial --outside flights",
    ),
)
@on_a_table
@click.argument("target", type=FOLDER)
@at_a_version
@note
def clone(
    table: str,
    target: str,
    storage_options: dict[str, str],
    as_json: bool,
    version: str | None,
    message: str | None,
) -> None:
    """Create the table TARGET with the rows of TABLE, whose files it refers to (SHALLOW CLONE): nothing is copied.

    Later changes of one do not change the other. Commands on the clone need --outside TABLE. VACUUM of TABLE removes
    files that only the clone needs.
    """
    made = open_table(table, storage_options).shallow_clone(
        target,
        None if version is None else named_version(version),
        storage_options=storage_options or None,
        commit_properties=properties(message),
    )
    described = made.detail()
    if as_json:
        echo_json({name: described[name] for name in ("version", "location", "num_files", "size_in_bytes")})
    else:
        files = counted(described["num_files"], "file")
        say(f"version {described['version']}: {files} of {table}; read it with --outside {table}")


# --- ALTER TABLE ---------------------------------------------------------------------------------------------------


def _changes(command: Command) -> Command:
    """The options of ``alter``, each of which is a statement."""
    for decorate in (
        click.option("--drop-feature", metavar="NAME", help="Drop a table feature; its traces are removed first."),
        click.option("--add-feature", metavar="A,B", callback=names, help="Add table features."),
        click.option("--cluster-by", metavar="A,B", callback=names, help="The clustering columns; '' for none."),
        click.option("--description", help="The table's description; '' removes it."),
        click.option("--name", help="The table's name; '' removes it."),
        click.option("--drop-constraint", metavar="NAME", help="Drop a CHECK constraint."),
        click.option(
            "--add-constraint",
            metavar="NAME=SQL",
            multiple=True,
            callback=_EXPRESSION,
            help="Add a CHECK constraint: a condition that is true for every row.",
        ),
        click.option("--comment", metavar="NAME=TEXT", multiple=True, callback=pairs, help="Comment on a column."),
        click.option("--drop-default", metavar="NAME", help="Remove the default of a column."),
        click.option(
            "--set-default",
            metavar="NAME=SQL",
            multiple=True,
            callback=_EXPRESSION,
            help="Set the default of a column.",
        ),
        click.option("--nullable", metavar="NAME", help="Let a column have nulls."),
        click.option("--not-null", metavar="NAME", help="Let a column have no nulls; the rows are checked first."),
        click.option("--first", metavar="NAME", help="Make a column the first one."),
        click.option(
            "--move-after", metavar="NAME=OTHER", multiple=True, callback=pairs, help="Move a column after another."
        ),
        click.option(
            "--change-type", metavar="NAME=TYPE", multiple=True, callback=_COLUMN, help="Widen the type of a column."
        ),
        click.option("--drop-column", metavar="A,B", callback=names, help="Drop columns."),
        click.option("--rename-column", metavar="NAME=NEW", multiple=True, callback=pairs, help="Rename a column."),
        click.option(
            "--add-column",
            metavar="NAME=TYPE",
            multiple=True,
            callback=_COLUMN,
            help="Add a column. May be repeated.",
        ),
        click.option("--unset-property", metavar="A,B", callback=names, help="Remove properties."),
        click.option(
            "--set-property",
            metavar="NAME=VALUE",
            multiple=True,
            callback=pairs,
            help="Set a table property. May be repeated.",
        ),
    ):
        command = decorate(command)
    return command


@app.command(
    examples=(
        "alter flights --set-property delta.enableDeletionVectors=true",
        "alter flights --add-column note=string --add-column checked=boolean",
        "alter flights --rename-column note=remark",
        "alter flights --add-constraint 'plausible=delay > -120'",
        "alter flights --drop-feature deletionVectors",
    ),
)
@on_a_table
@_changes
@click.option(
    "--allow-protocol-versions-increase",
    is_flag=True,
    help="With --add-feature: allow higher protocol versions, which exclude older readers and writers.",
)
@click.option("--truncate-history", is_flag=True, help="With --drop-feature: remove the versions that need it.")
@isolation_level
@note
def alter(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,
    allow_protocol_versions_increase: bool,
    truncate_history: bool,
    isolation: arguments.Isolation | None,
    message: str | None,
    **asked: Any,
) -> None:
    """Change properties, columns, constraints or features of TABLE: one kind of change in one commit (ALTER TABLE).

    To rename or drop columns, set delta.columnMapping.mode=name first; to change a type, delta.enableTypeWidening=true.
    """
    given = {name: value for name, value in asked.items() if value is not None and value != {}}
    options = [f"--{name.replace('_', '-')}" for name in given]
    if len(given) != 1:
        raise click.UsageError(
            f"{' and '.join(options)} are changes of their own: one in a call" if given else "say what to change"
        )
    for flag, said, name in (
        ("--allow-protocol-versions-increase", allow_protocol_versions_increase, "add_feature"),
        ("--truncate-history", truncate_history, "drop_feature"),
    ):
        if said and name not in given:
            raise click.UsageError(f"{flag} goes with --{name.replace('_', '-')}")
    ((name, value),) = given.items()
    if name in _ONE_COLUMN and len(value) > 1:
        raise click.UsageError(f"{options[0]} is a change of its own each time: once in a call")
    how: dict[str, Any] = {"isolation": isolation, "commit_properties": properties(message)}
    if name == "add_feature":
        how["allow_protocol_versions_increase"] = allow_protocol_versions_increase
    if name == "drop_feature":
        how["truncate_history"] = truncate_history
    start = time.monotonic()
    result = _STATEMENTS[name](open_table(table, storage_options).alter, value, how)
    if as_json:
        echo_json(dict(result))
    elif result.version is None:
        say("the table is so already: nothing was written")
    else:
        say(f"version {result.version}{moved_over(result.rebased_over)}, {time.monotonic() - start:.1f} s")


def _one(values: Mapping[str, str]) -> tuple[str, str]:
    (pair,) = values.items()
    return pair


_ONE_COLUMN = {"rename_column", "change_type", "move_after", "set_default", "comment", "add_constraint"}
"""The options that may be given once, since each is a statement of one column or constraint."""

_STATEMENTS: dict[str, Callable[[TableAlterer, Any, dict[str, Any]], CommitResult]] = {
    "set_property": lambda alter, values, how: alter.set_table_properties(values, **how),
    "unset_property": lambda alter, names, how: alter.unset_table_properties(names, **how),
    "add_column": lambda alter, types, how: alter.add_columns(_schema(types, None, [], {}), **how),
    "rename_column": lambda alter, names, how: alter.rename_column(*_one(names), **how),
    "drop_column": lambda alter, names, how: alter.drop_columns(names, **how),
    "change_type": lambda alter, types, how: alter.change_type(*_one(types), **how),
    "move_after": lambda alter, names, how: alter.move_column(_one(names)[0], after=_one(names)[1], **how),
    "first": lambda alter, name, how: alter.move_column(name, **how),
    "not_null": lambda alter, name, how: alter.set_nullable(name, False, **how),
    "nullable": lambda alter, name, how: alter.set_nullable(name, True, **how),
    "set_default": lambda alter, values, how: alter.set_default(*_one(values), **how),
    "drop_default": lambda alter, name, how: alter.drop_default(name, **how),
    "comment": lambda alter, texts, how: alter.set_column_metadata(
        _one(texts)[0], {"comment": _one(texts)[1] or None}, **how
    ),
    "add_constraint": lambda alter, conditions, how: alter.add_constraint(conditions, **how),
    "drop_constraint": lambda alter, name, how: alter.drop_constraint(name, **how),
    "name": lambda alter, text, how: alter.set_table_name(text or None, **how),
    "description": lambda alter, text, how: alter.set_table_description(text or None, **how),
    "cluster_by": lambda alter, columns, how: alter.cluster_by(columns, **how),
    "add_feature": lambda alter, names, how: alter.add_feature(names, **how),
    "drop_feature": lambda alter, name, how: alter.drop_feature(name, **how),
}
