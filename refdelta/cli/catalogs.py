"""``refdelta catalog``: the tables of a catalog: their names, folders, and which of their commits are published."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from refdelta.cli.group import (
    CATALOG_VARIABLE,
    FOLDER,
    Command,
    ShownGroup,
    app,
    catalog_in_use,
    in_a_catalog,
    storage_options,
)
from refdelta.cli.render import counted, echo_json

if TYPE_CHECKING:
    from refdelta.catalog import Catalog


@app.group("catalog", cls=ShownGroup)
def catalog_commands() -> None:
    """List, name, publish and drop the tables of a catalog.

    Every command on a TABLE takes --catalog, too: TABLE is then a name. 'refdelta create' creates a table in a catalog.
    """


def _in_a_catalog(command: Command) -> Command:
    for decorate in (click.option("--json", "as_json", is_flag=True, help="JSON for programs."), storage_options):
        command = decorate(command)
    return in_a_catalog(command)


def _opened(options: dict[str, str]) -> Catalog:
    found = catalog_in_use(options)
    if found is None:
        raise click.UsageError(f"say which catalog: --catalog URL, or {CATALOG_VARIABLE} in the environment")
    return found


@catalog_commands.command(
    "tables",
    examples=(
        "catalog tables --catalog sqlite:///catalog.db",
        "catalog tables sales --json",
    ),
)
@click.argument("namespace", required=False)
@_in_a_catalog
def tables(namespace: str | None, storage_options: dict[str, str], as_json: bool) -> None:
    """List the names of the tables, all of them or those in NAMESPACE."""
    found = _opened(storage_options).tables(namespace)
    if as_json:
        echo_json(found)
        return
    for name in found:
        click.echo(name)


@catalog_commands.command(examples=("catalog register sales.old_orders s3://bucket/orders",))
@click.argument("name")
@click.argument("folder", type=FOLDER)
@_in_a_catalog
def register(name: str, folder: str, storage_options: dict[str, str], as_json: bool) -> None:
    """Give the table in FOLDER a NAME. Its commits do not go through the catalog."""
    table = _opened(storage_options).register_table(name, folder)
    if as_json:
        echo_json({"name": name, "location": table.table_uri, "version": table.version()})
    else:
        click.echo(f"{name}: {table.table_uri}, version {table.version()}")


@catalog_commands.command(examples=("catalog rename sales.orders sales.orders_2025",))
@click.argument("name")
@click.argument("new")
@_in_a_catalog
def rename(name: str, new: str, storage_options: dict[str, str], as_json: bool) -> None:
    """Rename the table NAME. Programs that have it open go on."""
    _opened(storage_options).rename_table(name, new)
    if as_json:
        echo_json({"name": new})
    else:
        click.echo(f"{name} is {new} now")


@catalog_commands.command(
    examples=(
        "catalog drop sales.orders",
        "catalog drop sales.orders --purge",
    ),
)
@click.argument("name")
@click.option("--purge", is_flag=True, help="Delete its files, too.")
@_in_a_catalog
def drop(name: str, purge: bool, storage_options: dict[str, str], as_json: bool) -> None:
    """Remove the table NAME from the catalog. Without --purge its files stay."""
    _opened(storage_options).drop_table(name, purge=purge)
    if as_json:
        echo_json({"name": name, "purged": purge})
    else:
        click.echo(f"{name} is dropped" + (", and its files are deleted" if purge else "; its files stay"))


@catalog_commands.command(examples=("catalog publish sales.orders",))
@click.argument("name")
@_in_a_catalog
def publish(name: str, storage_options: dict[str, str], as_json: bool) -> None:
    """Write the ratified commits of the table NAME into its log, as writers do in the background."""
    count = _opened(storage_options).publish(name)
    if as_json:
        echo_json({"published": count})
    else:
        click.echo(f"{counted(count, 'commit')} published")
