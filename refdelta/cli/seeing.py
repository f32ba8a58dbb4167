"""``refdelta why``, ``timeline`` and ``diff``: the log of a table explained and drawn, and its versions compared."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from refdelta.cli.group import app, named_version, on_a_table, open_table, outside
from refdelta.cli.output import limited
from refdelta.cli.printable import printable
from refdelta.cli.render import cell, colored, counted, echo_json, echo_json_list, rows_of
from refdelta.engine.log.location import open_location, with_others

_SHOWN = 20


@app.command(
    examples=(
        "why flights 12 15",
        "why s3://bucket/flights 12 15 --json",
    ),
)
@on_a_table
@click.argument("a", type=click.IntRange(min=0))
@click.argument("b", type=click.IntRange(min=0))
def why(table: str, storage_options: dict[str, str], as_json: bool, a: int, b: int) -> None:
    """Explain whether version B of TABLE would have conflicted with version A, had it begun before A.

    The rules of commits are asked again, at both isolation levels, by rows and by files: which rule finds a conflict,
    over which files and rows, or why there is none. Nothing is written.
    """
    from refdelta.api.explain import explain_conflict

    found = explain_conflict(open_table(table, storage_options), a, b)
    if as_json:
        echo_json(found.as_dict())
        return
    verdict, rest = str(found).split("\n", 1)
    click.echo(colored(verdict, bold=True, fg="green" if found.conflict is None else "red"))
    click.echo(rest)


@app.command(
    examples=(
        "timeline flights",
        "timeline flights --version 100..140",
        "timeline flights --limit 50 --svg flights.svg",
    ),
)
@on_a_table
@click.option("--limit", type=click.IntRange(min=1), help="Only the newest so many versions; 20 as text unless said.")
@click.option("--version", "version", metavar="A..B", help="Only this version, or this range; A.. and ..B are open.")
@click.option("--svg", metavar="FILE", type=click.Path(dir_okay=False), help="Write the drawing to FILE, as SVG.")
def timeline(
    table: str, storage_options: dict[str, str], as_json: bool, limit: int | None, version: str | None, svg: str | None
) -> None:
    """Draw the versions of TABLE: which version each transaction began at, and which ones it was committed over.

    Time runs downwards. A lane beside the trunk leaves it at the version that the transaction read, and comes back at
    the version that it became. Only the log is read, also if it is damaged or of other engines.
    """
    from refdelta.operations.inspection.timeline import timeline as timeline_of
    from refdelta.operations.inspection.timeline import version_range

    store = with_others(open_location(table, storage_options or None), outside(), storage_options or None)
    found = timeline_of(store, limit, *version_range(version))
    if svg is not None:
        Path(svg).write_text(found.to_svg(), encoding="utf-8")
    elif as_json:
        echo_json_list(row for batch in found.to_batches() for row in batch.to_pylist())
    else:
        click.echo(found.draw(None if sys.stdout.isatty() else 80, colour=sys.stdout.isatty()))


@app.command(
    examples=(
        "diff flights 3 5",
        "diff flights 2026-11-01 2026-11-23 --limit 100",
    ),
)
@on_a_table
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--limit", type=click.IntRange(min=0), help="Only so many rows; 20 as text, all as JSON unless said.")
def diff(
    table: str, storage_options: dict[str, str], as_json: bool, before: str, after: str, limit: int | None
) -> None:
    """Show how version B of TABLE differs from version A: rows, columns, properties, protocol.

    A row with - is one that A has, and B has not, or less often; with +, the other way round. Rows that only moved to
    other files are not shown. A and B are versions or times.
    """
    handle = open_table(table, storage_options)
    found = handle.diff(named_version(before), named_version(after))
    summary = found.summary()
    shown = limit if as_json or limit is not None else _SHOWN
    if as_json:
        rows = rows_of(limited(found.to_reader(), shown).read_all())
        echo_json({**summary, "rows": rows})
        return
    for kind in ("columns", "properties", "protocol"):
        for name, (old, new) in summary[kind].items():
            noun = {"columns": "column ", "properties": "property ", "protocol": ""}[kind]
            click.echo(printable(f"{noun}{name}: {_said(old)} -> {_said(new)}"))
    changed = f"{counted(summary['deleted'], 'row')} less, {counted(summary['inserted'], 'row')} more"
    click.echo(f"{changed}, by the {summary['by']}")
    for row in rows_of(limited(found.to_reader(), shown).read_all()):
        gone = row.pop("_change_type") == "delete"
        text = f"{'-' if gone else '+'} {', '.join(f'{name}={cell(value)}' for name, value in row.items())}"
        click.echo(click.style(text.replace("\n", "\\n"), fg="red" if gone else "green"))
    if shown is not None and summary["deleted"] + summary["inserted"] > shown:
        click.echo(f"... the first {shown} rows; --limit N shows more, --json all", err=True)


def _said(value: object) -> str:
    return "(none)" if value is None else cell(value)
