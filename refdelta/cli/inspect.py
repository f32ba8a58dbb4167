"""``refdelta history``, ``detail``, ``files`` and ``log``: what a table is and how it came about."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from refdelta import DeltaTable
from refdelta.cli.group import app, at_a_version, on_a_table, open_table
from refdelta.cli.output import numeric
from refdelta.cli.render import cell, counted, echo_json, echo_pairs, echo_table, moment, rows_of, size
from refdelta.core.log.actions import DeletionVectorDescriptor
from refdelta.core.log.paths import commit_key
from refdelta.core.rows.deletion_vector import InlineBytes, RelativeKey, locate
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import InvalidLogError, StoreError, VersionNotFoundError
from refdelta_storage import ObjectNotFoundError

_TIMES = frozenset(
    {"timestamp", "modificationTime", "deletionTimestamp", "createdTime", "lastUpdated", "inCommitTimestamp"}
)


@app.command()
@on_a_table
@click.option("--limit", type=click.IntRange(min=1), help="Only the newest so many versions.")
def history(table: str, storage_options: dict[str, str], as_json: bool, limit: int | None) -> None:
    """List the versions of TABLE, newest first: when, what, by which parameters."""
    commits = list(open_table(table, storage_options).history(limit))
    if as_json:
        echo_json(commits)
        return
    rows = [
        (
            commit.get("version"),
            moment(commit.get("timestamp")),
            commit.get("operation"),
            _brief(commit.get("operationParameters")),
            _brief(commit.get("operationMetrics")),
        )
        for commit in commits
    ]
    echo_table(("version", "time", "operation", "parameters", "metrics"), rows, right=("version",))


def _brief(values: Any) -> str:
    """``name=value`` pairs without empty values; anything but a mapping is returned unchanged."""
    if not isinstance(values, (dict, type(None))):
        return cell(values)
    return ", ".join(f"{name}={value}" for name, value in (values or {}).items() if value not in (None, "", "[]", "{}"))


@app.command()
@on_a_table
@at_a_version
def detail(table: str, storage_options: dict[str, str], as_json: bool, version: str | None) -> None:
    """Describe TABLE: name, size, partition columns, properties, protocol."""
    described = dict(open_table(table, storage_options, version).detail())
    if as_json:
        echo_json(described)
        return
    echo_pairs((name.replace("_", " "), _described(name, value)) for name, value in described.items() if value)


def _described(name: str, value: Any) -> Any:
    if name == "size_in_bytes":
        return f"{value:,} ({size(value)})"
    if name in ("created_at", "last_modified"):
        return moment(value)
    return _listed(value)


def _listed(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={cell(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(cell(item) for item in value)
    return cell(value)


@app.command()
@on_a_table
@at_a_version
def files(table: str, storage_options: dict[str, str], as_json: bool, version: str | None) -> None:
    """List the data files that make up TABLE, with their sizes, rows and partition values."""
    live = open_table(table, storage_options, version).files()
    rows = rows_of(live)
    if as_json:
        echo_json(rows)
    else:
        echo_table(
            live.column_names, ([_listed(value) for value in row.values()] for row in rows), right=numeric(live.schema)
        )


@app.command()
@on_a_table
@at_a_version
def log(table: str, storage_options: dict[str, str], as_json: bool, version: str | None) -> None:
    """Show the actions of one version of TABLE, the newest unless said: what its log file holds."""
    handle = open_table(table, storage_options, version)
    actions = _actions(handle)
    if as_json:
        echo_json(actions)
        return
    click.echo(f"{commit_key(handle.version())}: {counted(len(actions), 'action')}")
    for action in actions:
        for kind, fields in action.items():
            click.echo("\n" + click.style(kind, bold=True))
            shown = fields if isinstance(fields, dict) else {"": fields}
            echo_pairs((f"  {name}", _readable(name, value)) for name, value in shown.items() if value is not None)


def _readable(name: str, value: Any) -> Any:
    """Times as times, deletion vectors by where they are; everything else as the log has it."""
    if name in _TIMES and isinstance(value, int):
        return f"{value} ({moment(value)})"
    if name == "deletionVector":
        return _vector(value)
    if name == "rowPlaces" and isinstance(value, dict):
        return f"of the rows of {counted(len(value), 'file')}; --json shows them"
    return value


def _vector(value: Any) -> Any:
    """``3 rows, deletion_vector_....bin, 36 bytes at 1``; as the log has it where it is none."""
    try:
        vector = msgspec.convert(value, DeletionVectorDescriptor)
        place = locate(vector)
    except (msgspec.ValidationError, InvalidLogError):
        return value
    rows, length = counted(vector.cardinality, "row"), counted(vector.size_in_bytes, "byte")
    if isinstance(place, InlineBytes):
        return f"{rows}, {length} in the log"
    file = place.key if isinstance(place, RelativeKey) else place.uri
    return f"{rows}, {length} at {vector.offset or 0} of {file}"


def _actions(handle: DeltaTable) -> list[dict[str, Any]]:
    """The actions of the handle's version as its log file holds them, unknown fields included."""
    file = commit_key(handle.version())
    try:
        with store_errors(f"read {file}"):
            data = handle.store.get(file)
    except StoreError as error:
        if isinstance(error.__cause__, ObjectNotFoundError):
            raise VersionNotFoundError(
                f"version {handle.version()} has no log file any more: it was cleaned up"
            ) from error
        raise
    actions = []
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            actions.append(msgspec.json.decode(line, type=dict[str, Any]))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidLogError(f"not an action: {error}", file=file, line=number) from error
    return actions
