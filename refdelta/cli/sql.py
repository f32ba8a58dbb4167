"""``refdelta sql``: one statement in Spark's SQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from refdelta.cli.app import app
from refdelta.cli.group import catalog_in_use, in_a_catalog, in_pairs, storage_options
from refdelta.cli.render import cell, echo_json, echo_pairs, echo_table, moment, say

_SHOWN = 100


@app.command(
    "sql",
    examples=(
        "sql 'SELECT carrier, delay FROM f WHERE delay > 60 ORDER BY delay DESC LIMIT 5' f=flights",
        "sql \"DELETE FROM delta.`flights` WHERE carrier = 'UA'\"",
        "sql 'INSERT INTO sales.orders VALUES (1, 2)' --catalog sqlite:///catalog.db",
    ),
)
@click.option("--json", "as_json", is_flag=True, help="JSON for programs; rows are one object a line.")
@in_a_catalog
@storage_options
@click.argument("statement")
@click.argument("names", metavar="[NAME=TABLE]...", nargs=-1, callback=in_pairs("NAME=TABLE"))
def run(statement: str, names: dict[str, str], storage_options: dict[str, str], as_json: bool) -> None:
    """Run one statement in Spark's SQL, such as SELECT, INSERT, MERGE or ALTER TABLE.

    Tables are named by their path, delta.`path`, by NAME=TABLE, or by their name in a catalog.
    """
    import pyarrow as pa

    import refdelta
    from refdelta.cli.output import echo_rows, write_rows

    tables: dict[str, Any] = {**names}
    found = refdelta.sql(
        statement, catalog=catalog_in_use(storage_options), storage_options=storage_options or None, **tables
    )
    if isinstance(found, pa.Table):
        if as_json:
            write_rows(found.to_reader(), "json", None)
        elif echo_rows(found.to_reader(), _SHOWN):
            say(f"... the first {_SHOWN} rows; --json has all", err=True)
    elif isinstance(found, refdelta.DeltaTable):
        _show({"table": found.table_uri, "version": found.version()}, as_json)
    elif found is not None:
        _show(found, as_json)


def _show(found: Any, as_json: bool) -> None:
    """Print a result that is no table: metrics, a description, commits or paths."""
    if as_json:
        echo_json(found)
    elif isinstance(found, Mapping) and all(isinstance(value, Mapping) for value in found.values()):
        rows = ((name, one["version"], one["attempts"]) for name, one in found.items())
        echo_table(("table", "version", "attempts"), rows, right=["version", "attempts"])
    elif isinstance(found, Mapping):
        echo_pairs((name, cell(value)) for name, value in found.items())
    elif found and isinstance(found[0], Mapping):
        rows = ((one["version"], moment(one.get("timestamp")), one.get("operation")) for one in found)
        echo_table(("version", "time", "operation"), rows, right=["version"])
    else:
        for line in found:
            say(str(line))
