"""The group ``refdelta`` and what its commands share: the table's address, storage options, ``--json``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from refdelta import CommitProperties, DeltaTable, __version__
from refdelta.core.conflicts.isolation import IsolationLevel
from refdelta.core.table.properties import parse_size
from refdelta.errors import InvalidArgumentError

_OUTSIDE = "refdelta.outside"
Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="refdelta")
def app() -> None:
    """Delta Lake tables, read and written in pure Python.

    A table is a folder: a path, or a URI such as s3://bucket/flights, abfss://container@account.dfs.core.windows.net/x
    or file:///data/flights. The options of a store come from the environment (AWS_..., AZURE_...) or from
    --storage-option. With --json, every command prints one JSON document ('read' and 'changes': one JSON object a
    row).
    """


def pairs(_context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Turn repeated ``name=value`` arguments into a mapping."""
    found = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not name=value", param=parameter)
        found[name] = value
    return found


def names(_context: click.Context, _parameter: click.Parameter, text: str | None) -> list[str] | None:
    """Turn ``a,b,c`` into a list."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def storage_options(command: Command) -> Command:
    """The option ``--storage-option``, which may be repeated."""
    return click.option(
        "--storage-option",
        "storage_options",
        metavar="NAME=VALUE",
        multiple=True,
        callback=pairs,
        help="An option of the store, e.g. a region. May be repeated. Credentials are better left to the environment, "
        "AWS_... and AZURE_...: other users of a machine can see command lines.",
    )(command)


def _noted(context: click.Context, _parameter: click.Parameter, folders: tuple[str, ...]) -> None:
    context.meta[_OUTSIDE] = folders


def outside() -> tuple[str, ...]:
    """The folders that the option ``--outside`` of the command at work names."""
    found: tuple[str, ...] = click.get_current_context().meta.get(_OUTSIDE, ())
    return found


def on_a_table(command: Command) -> Command:
    """The argument TABLE and the options of every command on a table. The folders of ``--outside`` are returned
    by :func:`outside`, and are not an argument of the command.
    """
    for decorate in (
        click.option("--json", "as_json", is_flag=True, help="JSON for programs."),
        click.option(
            "--outside",
            metavar="FOLDER",
            multiple=True,
            expose_value=False,
            callback=_noted,
            help="Another folder from which files may be read where the log names them: of a shallow clone, the table "
            "that was cloned. May be repeated.",
        ),
        storage_options,
        click.argument("table"),
    ):
        command = decorate(command)
    return command


def at_a_version(command: Command) -> Command:
    """The option ``--version``: a number, or a time."""
    return click.option(
        "--version",
        "version",
        metavar="N|TIME",
        help="Read the table as it was: a version, or a time such as 2026-03-01T12:00:00Z.",
    )(command)


def isolation_level(command: Command) -> Command:
    """The option ``--isolation``."""
    return click.option(
        "--isolation",
        metavar="LEVEL",
        type=click.Choice([level.value for level in IsolationLevel], case_sensitive=False),
        help="WriteSerializable or Serializable: stricter than the table's own level, never weaker.",
    )(command)


def rows_or_files(command: Command) -> Command:
    """The option ``--row-level``."""
    return click.option(
        "--row-level/--no-row-level",
        "row_level",
        default=None,
        help="Whether rows decide over conflicts and not files; where there are deletion vectors and no partition "
        "columns unless said.",
    )(command)


def in_bytes(_context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Turn ``134217728`` or ``128mb`` into bytes, as in table properties."""
    try:
        return None if text is None else parse_size(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: it {error}", param=parameter) from None


def named_version(text: str) -> int | str:
    """The value of ``--version``: a version, or a time."""
    if text.startswith("-"):
        raise InvalidArgumentError(f"--version takes a version number or a time, not {text!r}")
    return int(text) if text.isdecimal() else text


def open_table(table: str, storage_options: dict[str, str], version: str | None = None) -> DeltaTable:
    """The handle for ``table``, at a version or time if one was asked for."""
    at = None if version is None else named_version(version)
    return DeltaTable(table, version=at, storage_options=storage_options or None, outside=outside())


def properties(message: str | None, row_level: bool | None = None) -> CommitProperties:
    """The commit properties from the options of the command."""
    return CommitProperties(user_metadata=message or None, row_level=row_level)
