"""The options that commands share: the table's address, storage options, ``--json``, how to commit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from refdelta.cli.app import COMMIT, PLACE, PanelOption

# Functions import the engine when they are called: the help and the completion of a command do without.
if TYPE_CHECKING:
    from refdelta import CommitProperties, DeltaTable
    from refdelta.catalog import Catalog
    from refdelta_storage import Store

FORMATS = ("parquet", "csv", "json")
"""The formats of files that are written into a table."""

LEVELS = ("WriteSerializable", "Serializable")
"""The isolation levels, as :class:`refdelta.core.conflicts.isolation.IsolationLevel` has them."""

_OUTSIDE, _CATALOG = "refdelta.outside", "refdelta.catalog"
_TIMEOUT, _LOCATIONS = "refdelta.catalog_timeout", "refdelta.locations"
CATALOG_VARIABLE, TIMEOUT_VARIABLE = "REFDELTA_CATALOG", "REFDELTA_CATALOG_TIMEOUT"
"""The environment variables that name the catalog, and the seconds after which a wait for its database ends."""

LOCATIONS_VARIABLE = "REFDELTA_LOCATIONS"
"""The environment variable that names the folders below which a catalog's tables are opened, separated by spaces."""

FOLDER = click.Path()
"""The type of a table's address, so that shells complete it. It is not checked, since it may be a URI."""
Command = TypeVar("Command", bound=Callable[..., Any])

_place_option = partial(click.option, cls=PanelOption, panel=PLACE)
_commit_option = partial(click.option, cls=PanelOption, panel=COMMIT)


def in_pairs(form: str) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], dict[str, str]]:
    """A callback that turns repeated arguments of a form such as ``name=value`` into a mapping; a name occurs once."""

    def parsed(_context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
        found: dict[str, str] = {}
        for text in values:
            name, equals, value = text.partition("=")
            if not equals or not name:
                raise click.BadParameter(f"{text!r} is not {form}", param=parameter)
            if name in found:
                raise click.BadParameter(f"{name} is given twice", param=parameter)
            found[name] = value
        return found

    return parsed


pairs = in_pairs("name=value")


def names(_context: click.Context, _parameter: click.Parameter, text: str | None) -> list[str] | None:
    """Turn ``a,b,c`` into a list."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def storage_options(command: Command) -> Command:
    """The option ``--storage-option``, which may be repeated."""
    return _place_option(
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


def _catalog_noted(context: click.Context, _parameter: click.Parameter, url: str | None) -> None:
    context.meta[_CATALOG] = url or None


def _timeout_noted(context: click.Context, _parameter: click.Parameter, seconds: float | None) -> None:
    context.meta[_TIMEOUT] = seconds


def catalog_timeout(**settings: Any) -> Callable[[Command], Command]:
    """The option ``--catalog-timeout``."""
    return _place_option(
        "--catalog-timeout",
        metavar="SECONDS",
        type=float,
        envvar=TIMEOUT_VARIABLE,
        help="End a wait for the catalog's database after this time: for a connection, for a lock that another "
        f"session holds, for a statement, for an answer. Default: 30. {TIMEOUT_VARIABLE} in the environment says it "
        "for all commands.",
        **settings,
    )


def _locations_noted(context: click.Context, _parameter: click.Parameter, folders: tuple[str, ...]) -> None:
    context.meta[_LOCATIONS] = folders


def in_a_catalog(command: Command) -> Command:
    """The options ``--catalog``, by which TABLE is a name, ``--locations`` and ``--catalog-timeout``. The catalog is
    returned by :func:`catalog_in_use`, and is not an argument of the command.
    """
    command = catalog_timeout(expose_value=False, callback=_timeout_noted)(command)
    command = _place_option(
        "--locations",
        metavar="FOLDER",
        multiple=True,
        envvar=LOCATIONS_VARIABLE,
        expose_value=False,
        callback=_locations_noted,
        help="With --catalog: a folder below which tables are opened, a path or a URI. Without one, it is the folder "
        "of a SQLite file, or where the server gives credentials. May be repeated; "
        f"{LOCATIONS_VARIABLE} in the environment has several, with spaces between them.",
    )(command)
    return _place_option(
        "--catalog",
        metavar="URL",
        envvar=CATALOG_VARIABLE,
        expose_value=False,
        callback=_catalog_noted,
        help="The catalog that has the table, whose name is then TABLE: the URL of its database, or of a server of "
        f"Unity Catalog's interface. {CATALOG_VARIABLE} in the environment says it for all commands, and shows no "
        "password to other users; REFDELTA_TOKEN is the server's token.",
    )(command)


def catalog_in_use(storage_options: dict[str, str] | None = None) -> Catalog | None:
    """The catalog that the option ``--catalog`` or the environment names; None without one.

    Args:
        storage_options: options of the stores of its tables.
    """
    url = click.get_current_context().meta.get(_CATALOG)
    if url is None:
        return None
    from refdelta.catalog import open_catalog

    noted = click.get_current_context().meta
    return open_catalog(url, storage_options or None, noted.get(_LOCATIONS) or None, timeout=noted.get(_TIMEOUT))


def only_by_path(what: str) -> None:
    """Refuse a catalog where a command needs the path of a folder."""
    if catalog_in_use() is not None:
        raise click.UsageError(f"{what} takes the path of a folder, and no --catalog")


def on_a_table(command: Command) -> Command:
    """The argument TABLE and the options of every command on a table. The folders of ``--outside`` are returned
    by :func:`outside`, the catalog by :func:`catalog_in_use`: they are no arguments of the command.
    """
    for decorate in (
        click.option("--json", "as_json", is_flag=True, help="JSON for programs."),
        in_a_catalog,
        _place_option(
            "--outside",
            metavar="FOLDER",
            multiple=True,
            expose_value=False,
            callback=_noted,
            help="Another folder from which files may be read where the log names them: of a shallow clone, the table "
            "that was cloned. May be repeated.",
        ),
        storage_options,
        click.argument("table", type=FOLDER),
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


def note(command: Command) -> Command:
    """The option ``--message``."""
    return _commit_option("--message", metavar="TEXT", help="A note for the history (userMetadata).")(command)


def table_properties(table: str = "the table") -> Callable[[Command], Command]:
    """The option ``--property``, which may be repeated."""
    return click.option(
        "--property",
        "configuration",
        metavar="NAME=VALUE",
        multiple=True,
        callback=pairs,
        help=f"A property of {table}, e.g. delta.checkpointInterval=20. May be repeated.",
    )


def isolation_level(command: Command) -> Command:
    """The option ``--isolation``."""
    return _commit_option(
        "--isolation",
        metavar="LEVEL",
        type=click.Choice(LEVELS, case_sensitive=False),
        help="WriteSerializable or Serializable: stricter than the table's own level, never weaker.",
    )(command)


def most_attempts(command: Command) -> Command:
    """The option ``--attempts``."""
    return _commit_option(
        "--attempts",
        type=click.IntRange(min=1),
        metavar="N",
        help="How often the statement may run: after a conflict again, on the newest version; once unless said.",
    )(command)


def zone_of_times(command: Command) -> Command:
    """The option ``--timezone``."""
    return click.option(
        "--timezone",
        metavar="ZONE",
        help="The zone of times that have none, such as Europe/Berlin or UTC: of values in files, of partition values "
        "in the log, and of versions that are named by a time. Times in SQL are in UTC.",
    )(command)


def file_format(command: Command) -> Command:
    """The options that say how files are read."""
    for decorate in (
        click.option("--delimiter", default=",", show_default=True, help="CSV: what separates fields."),
        click.option(
            "--null", "nulls", metavar="TEXT", multiple=True, help="CSV: a string that means null. May be repeated."
        ),
        click.option(
            "--format",
            "shape",
            type=click.Choice(FORMATS),
            help="The files' format; by their endings unless said. Standard input needs it.",
        ),
    ):
        command = decorate(command)
    return command


def rows_or_files(command: Command) -> Command:
    """The option ``--row-level``."""
    return _commit_option(
        "--row-level/--no-row-level",
        "row_level",
        default=None,
        help="Whether rows decide over conflicts and not files; where there are deletion vectors and no partition "
        "columns unless said.",
    )(command)


def in_bytes(_context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Turn ``134217728`` or ``128mb`` into bytes, as in table properties."""
    from refdelta.table.properties import parse_size

    try:
        return None if text is None else parse_size(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: it {error}", param=parameter) from None


def named_version(text: str) -> int | str:
    """The value of ``--version``: a version, or a time."""
    if text.startswith("-"):
        from refdelta.errors import InvalidArgumentError

        raise InvalidArgumentError(f"--version takes a version number or a time, not {text!r}")
    return int(text) if text.isdecimal() else text


def open_table(
    table: str, storage_options: dict[str, str], version: str | None = None, timezone: str | None = None
) -> DeltaTable:
    """The handle for ``table``, which is a name if there is a catalog; at a version or time if one was asked for, with
    the zone of times that have none.
    """
    from refdelta import DeltaTable

    at = None if version is None else named_version(version)
    if (catalog := catalog_in_use(storage_options)) is not None:
        if outside():
            raise click.UsageError("--outside goes with a folder, and not with --catalog")
        return catalog.table(table, at, timezone=timezone)
    return DeltaTable(table, version=at, storage_options=storage_options or None, outside=outside(), timezone=timezone)


def store_of(table: str, storage_options: dict[str, str]) -> Store:
    """The store of ``table``, of which nothing has been read yet."""
    if catalog_in_use() is not None:
        return open_table(table, storage_options).store
    from refdelta.engine.log.location import open_location, with_others

    return with_others(open_location(table, storage_options or None), outside(), storage_options or None)


def is_table(name: str, storage_options: dict[str, str]) -> bool:
    """Whether there is a table there, and not a file."""
    from pathlib import Path

    from refdelta import DeltaTable

    return not Path(name).is_file() and DeltaTable.is_deltatable(name, storage_options=storage_options or None)


def properties(message: str | None, row_level: bool | None = None) -> CommitProperties:
    """The commit properties from the options of the command."""
    from refdelta import CommitProperties

    return CommitProperties(user_metadata=message or None, row_level=row_level)
