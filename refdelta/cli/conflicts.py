"""``refdelta conflicts``: which operations conflict, as the rules have it, and why."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from refdelta.cli.app import app
from refdelta.cli.render import echo_json, echo_table
from refdelta.concurrency.conflict import RULES
from refdelta.concurrency.isolation import DEFAULT, IsolationLevel
from refdelta.concurrency.matrix import Explanation, explain, matrix

_LEVELS = tuple(level.value for level in IsolationLevel)
_TITLES = {
    True: "with row-level concurrency (deletion vectors, no partition columns)",
    False: "without row-level concurrency",
}


@app.command()
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
@click.option(
    "--explain",
    "pair",
    nargs=2,
    metavar="OURS WINNER",
    help="Why OURS does or does not conflict with WINNER that committed first, e.g. UPDATE DELETE.",
)
@click.option(
    "--isolation",
    metavar="LEVEL",
    type=click.Choice(_LEVELS, case_sensitive=False),
    help=f"With --explain: {' or '.join(_LEVELS)}; {DEFAULT.value} unless said.",
)
@click.option(
    "--row-level/--no-row-level",
    default=None,
    help="Only this one of the documentation's two matrices; both unless said.",
)
def conflicts(as_json: bool, pair: tuple[str, str] | None, isolation: str | None, row_level: bool | None) -> None:
    """Show which operations conflict when one commits first.

    The matrices are those of the documentation. Next to each of its cells stands what the rules of this engine answer
    when they are asked: never, or can, where the two meet in files that one of them read or removed.
    """
    if pair is not None:
        found = explain(*pair, isolation or DEFAULT.value, row_level=bool(row_level))
        if as_json:
            echo_json(asdict(found))
        else:
            _show(found)
        return
    if isolation is not None:
        raise click.UsageError("--isolation goes with --explain: the matrices show both levels")
    wanted = [kind for kind in (True, False) if row_level in (None, kind)]
    if as_json:
        echo_json([_as_json(kind) for kind in wanted])
        return
    for place, kind in enumerate(wanted):
        click.echo(("\n" if place else "") + _TITLES[kind])
        rows = [
            (cell.one, cell.other, cell.documented, *(cell.verdicts[level] for level in _LEVELS))
            for cell in matrix(row_level=kind)
        ]
        echo_table(("one", "the other", "documented", *(f"here, {level}" for level in _LEVELS)), rows)
    click.echo("\nHere, files decide in both cases; refdelta conflicts --explain UPDATE DELETE says why.")


def _as_json(row_level: bool) -> dict[str, Any]:
    return {"row_level": row_level, "cells": [asdict(cell) for cell in matrix(row_level=row_level)]}


def _show(found: Explanation) -> None:
    click.echo(f"{found.ours}, after {found.winner} committed first, at {found.isolation}: {found.verdict}")
    click.echo(f"  {found.sentence}")
    known = {rule.id: rule for rule in RULES}
    for name in found.rules:
        click.echo(f"  rule {name} raises {known[name].error.__name__}: {known[name].advice}")
    if found.documented is not None:
        click.echo(f"  the documentation: {found.documented}")
