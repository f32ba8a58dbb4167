"""``refdelta history``, ``detail``, ``files`` and ``log``: what a table is and how it came about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import click

from refdelta.cli.app import app
from refdelta.cli.group import at_a_version, named_version, on_a_table, open_table, store_of
from refdelta.cli.render import (
    cell,
    echo_json,
    echo_json_list,
    echo_pairs,
    echo_table,
    moment,
    on_a_terminal,
    say,
)
from refdelta.wording import counted, size

if TYPE_CHECKING:
    from refdelta.errors import InvalidLogError
    from refdelta_storage import Store

_SHOWN = 20
_AT_ONCE = 1_000  # commits whose notes, users and engines decide over the columns
_FILES = ("path", "partition_values", "size_bytes", "modification_time", "num_records", "num_deleted")
_WIDE = ("version", "time", "operation", "parameters", "metrics", "note", "user", "engine")
_NARROW = ("version", "time (UTC)", "operation", "user", "details")
_OPTIONAL = {"note": "userMetadata", "user": "userName", "engine": "engineInfo"}
_STYLES: dict[str, dict[str, Any]] = {
    "version": {"fg": "yellow"},
    "time": {"dim": True},
    "time (UTC)": {"dim": True},
    "operation": {"bold": True},
    "user": {"fg": "cyan"},
}
_SECOND = re.compile(r"\.\d{3} UTC$")

_TIMES = frozenset(
    {"timestamp", "modificationTime", "deletionTimestamp", "createdTime", "lastUpdated", "inCommitTimestamp"}
)


@app.command(
    examples=(
        "history flights --limit 5",
        "history flights --wide",
        "history s3://bucket/flights --json",
    ),
)
@on_a_table
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help=f"Only the newest so many versions; {_SHOWN} as text, all as JSON unless said.",
)
@click.option("--wide", is_flag=True, help="Cut nothing on a terminal: a version may take several lines.")
def history(table: str, storage_options: dict[str, str], as_json: bool, limit: int | None, wide: bool) -> None:
    """List the versions of TABLE, newest first: time, operation, user, note and parameters.

    Each transaction of a version with several is a line after it: 3.1 is member 1 of version 3, counted from 0. On a
    terminal, a line is cut at its end; in a pipe nothing is cut. Of a damaged log, the
    versions that can be read are shown, and the exit status is 1.
    """
    from refdelta.operations.maintenance.history import recorded_history

    damaged: list[InvalidLogError] = []
    # One version more than is shown tells whether there are more.
    asked = limit if as_json or limit is not None else _SHOWN + 1
    recorded = iter(recorded_history(store_of(table, storage_options), asked, damaged.append))
    if as_json:
        echo_json_list(recorded)
    else:
        shown = recorded if limit is not None else islice(recorded, _SHOWN)
        _show_history(shown, wide=wide or not on_a_terminal())
        if limit is None and next(recorded, None) is not None:
            say(f"... the newest {_SHOWN} versions; --limit N shows more", err=True)
    _report(damaged)


def _show_history(commits: Iterator[dict[str, Any]], *, wide: bool) -> None:
    from refdelta.operations.maintenance.history import with_members

    first = list(islice(commits, _AT_ONCE))
    # Users, notes and engines are columns only if a version has one.
    known = list(with_members(first))
    kept = {name for name, field in _OPTIONAL.items() if any(commit.get(field) is not None for commit in known)}
    names = [name for name in (_WIDE if wide else _NARROW) if name not in _OPTIONAL or name in kept]
    rows = ([_recorded(name, commit) for name in names] for commit in with_members(chain(first, commits)))
    styles = {name: style for name, style in _STYLES.items() if name in names}
    echo_table(names, rows, right=("version",), cut=() if wide else ("user", "details"), styles=styles)


def _recorded(name: str, commit: Mapping[str, Any]) -> Any:
    """The cell of a column of the history."""
    match name:
        case "time":
            return moment(commit.get("timestamp"))
        case "time (UTC)":
            return _SECOND.sub("", moment(commit.get("timestamp")) or "")
        case "metrics":
            return _brief(commit.get("operationMetrics"), but=("0", 0))
        case "parameters":
            return _brief(commit.get("operationParameters"))
        case "details":
            parts = (_recorded(part, commit) for part in ("note", "parameters", "metrics", "engine"))
            return " · ".join(cell(part) for part in parts if part)
    return commit.get(_OPTIONAL.get(name, name))


def _report(damaged: list[InvalidLogError]) -> None:
    """Raise an error that names what is damaged, if anything is."""
    if damaged:
        from refdelta.errors import InvalidLogError
        from refdelta.operations.maintenance.history import damaged_log

        raise InvalidLogError(damaged_log(damaged))


def _brief(values: Any, but: tuple[Any, ...] = ()) -> str:
    """``name=value`` pairs without empty values and those of ``but``; anything but a mapping is returned unchanged."""
    if values in (None, {}):
        return ""
    if not isinstance(values, dict):
        return cell(values)
    left_out = (None, "", "[]", "{}", *but)
    return ", ".join([f"{name}={value}" for name, value in values.items() if value not in left_out])


@app.command(
    examples=(
        "detail flights",
        "detail flights --version 2026-03-01 --json",
    ),
)
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


@app.command(
    examples=(
        "files flights --limit 100",
        "files flights --version 3 --json",
    ),
)
@on_a_table
@at_a_version
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help=f"Only so many files; {_SHOWN} as text, all as JSON unless said.",
)
def files(table: str, storage_options: dict[str, str], as_json: bool, version: str | None, limit: int | None) -> None:
    """List the data files that make up TABLE, the newest first, with their sizes, rows and partition values.

    Of a damaged log, the files of the versions after the damage are shown, and the exit status is 1.
    """
    from refdelta.arrow.python_values import python_rows
    from refdelta.operations.maintenance.newest_files import NewestFiles

    damaged: list[InvalidLogError] = []
    at = None if version is None else named_version(version)
    if isinstance(at, str):
        at = open_table(table, storage_options, version).version()
    live = NewestFiles(store_of(table, storage_options), at, damaged.append)
    asked = limit if as_json or limit is not None else _SHOWN
    rows = (row for some in live.tables() for row in python_rows(some, iso=as_json))
    shown = islice(rows, asked)
    if as_json:
        echo_json_list(shown)
    else:
        echo_table(_FILES, ([_listed(row[name]) for name in _FILES] for row in shown), right=_FILES[2:])
        if limit is None and next(rows, None) is not None:
            count = live.count()
            known = f"{_SHOWN} of {counted(count, 'file')}" if count is not None else f"the newest {_SHOWN} files"
            say(f"... {known}; --limit N shows more, --json all", err=True)
    _report(damaged)


@app.command(
    examples=(
        "log flights",
        "log flights --version 7 --json",
    ),
)
@on_a_table
@at_a_version
def log(table: str, storage_options: dict[str, str], as_json: bool, version: str | None) -> None:
    """Show the actions of one version of TABLE, the newest unless said: what its log file holds.

    Of a version with several transactions, it says of which ones each action is.
    """
    from refdelta.core.log.paths import commit_key

    damaged: list[InvalidLogError] = []
    number = _version(table, storage_options, version)
    actions = _actions(store_of(table, storage_options), number, damaged)
    if as_json:
        echo_json(actions)
        _report(damaged)
        return
    say(f"{commit_key(number)}: {counted(len(actions), 'action')}")
    members = _members(actions)
    for line, action in enumerate(actions):
        by = [number for number, lines in enumerate(members) if line in lines]
        of = f" of member{'s' if len(by) > 1 else ''} {', '.join(map(str, by))}" if by else ""
        for kind, fields in action.items():
            say(f"\n{kind}{of}", bold=True)
            shown = fields if isinstance(fields, dict) else {"": fields}
            echo_pairs((f"  {name}", _readable(name, value)) for name, value in shown.items() if value is not None)
    _report(damaged)


def _version(table: str, storage_options: dict[str, str], said: str | None) -> int:
    """The version that is asked for. Only a time needs the table to be read."""
    from refdelta.core.log.paths import parse_log_name
    from refdelta.engine.log.listing import list_log
    from refdelta.errors import TableNotFoundError

    at = None if said is None else named_version(said)
    if isinstance(at, int):
        return at
    if at is not None:
        return open_table(table, storage_options, said).version()
    store = store_of(table, storage_options)
    names = (parse_log_name(key) for key, _, _ in list_log(store))
    found = [name.version for name in names if name and (name.kind == "commit" or name.is_checkpoint)]
    if not found:
        raise TableNotFoundError(f"there is no Delta table at {store.uri}")
    return max(found)


def _readable(name: str, value: Any) -> Any:
    """Times as times, deletion vectors by where they are; everything else as the log has it."""
    from refdelta.core.log.footprint import MEMBERS

    if name in _TIMES and isinstance(value, int):
        return f"{value} ({moment(value)})"
    if name == "deletionVector":
        return _vector(value)
    if name == MEMBERS and isinstance(value, list):
        return _named_members(value)
    if name == "rowPlaces" and isinstance(value, dict):
        return f"of the rows of {counted(len(value), 'file')}; --json shows them"
    return value


def _members(actions: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """The lines of each member of a version, counted from 0; none without members."""
    from refdelta.core.log.footprint import MEMBERS, lines_of_member

    infos = [action["commitInfo"] for action in actions if isinstance(action.get("commitInfo"), dict)]
    entries = infos[0].get(MEMBERS) if infos else None
    return [lines_of_member(one, len(actions)) or [] for one in entries] if isinstance(entries, list) else []


def _named_members(entries: list[Any]) -> str:
    """``0: WRITE 5f...; 1: DELETE 8a...; --json shows them``: the number, operation and id of each."""
    named = []
    for number, entry in enumerate(entries):
        own = entry if isinstance(entry, dict) else {}
        named.append(" ".join([f"{number}:", *(cell(own[name]) for name in ("operation", "txnId") if name in own)]))
    return "; ".join([*named, "--json shows their commitInfo"])


def _vector(value: Any) -> Any:
    """``3 rows, deletion_vector_....bin, 36 bytes at 1``; as the log has it where it is none."""
    import msgspec

    from refdelta.core.log.actions import DeletionVectorDescriptor
    from refdelta.core.rows.deletion_vector import InlineBytes, RelativeKey, locate
    from refdelta.errors import InvalidLogError

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


def _actions(store: Store, version: int, damaged: list[InvalidLogError]) -> list[dict[str, Any]]:
    """The actions of a version as its log file holds them, unknown fields included; bad lines go into ``damaged``."""
    import msgspec

    from refdelta.core.log.codec import BAD_INPUT
    from refdelta.core.log.paths import commit_key
    from refdelta.engine.log.listing import has_log
    from refdelta.engine.parquet.files import store_errors
    from refdelta.errors import InvalidLogError, StoreError, TableNotFoundError, VersionNotFoundError
    from refdelta_storage import ObjectNotFoundError

    file = commit_key(version)
    try:
        with store_errors(f"read {file}"):
            data = store.get(file)
    except StoreError as error:
        if not isinstance(error.__cause__, ObjectNotFoundError):
            raise
        if not has_log(store):
            raise TableNotFoundError(f"there is no Delta table at {store.uri}") from error
        raise VersionNotFoundError(
            f"there is no version {version} in the log: it was cleaned up, or never was"
        ) from error
    actions = []
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            actions.append(msgspec.json.decode(line, type=dict[str, Any]))
        except BAD_INPUT as error:
            damaged.append(InvalidLogError(f"not an action: {error}", file=file, line=number))
    return actions
