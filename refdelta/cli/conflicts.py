"""``refdelta conflicts``: which operations conflict, as the rules have it, and why."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from refdelta.cli.group import app
from refdelta.cli.render import echo_json, echo_table
from refdelta.core.conflicts.isolation import DEFAULT, IsolationLevel
from refdelta.core.conflicts.matrix import Cell, PairExplanation, explain, matrix
from refdelta.core.conflicts.rules import RULES

_LEVELS = tuple(level.value for level in IsolationLevel)
_TITLES = {
    True: "with row-level concurrency (deletion vectors, no partition columns)",
    False: "without row-level concurrency",
}
# Which matrices there are: whether rows decide, and whether there are deletion vectors.
_KINDS = ((True, True), (False, True), (False, False))


@app.command(
    examples=(
        "conflicts",
        "conflicts --explain UPDATE DELETE --row-level",
    ),
)
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
    help="Only this one of the documentation's two matrices; with --explain, whether rows decide and not files.",
)
@click.option(
    "--deletion-vectors/--no-deletion-vectors",
    "vectors",
    default=None,
    help="With --explain: whether the table has deletion vectors; where rows decide unless said.",
)
def conflicts(
    as_json: bool, pair: tuple[str, str] | None, isolation: str | None, row_level: bool | None, vectors: bool | None
) -> None:
    """Show which operations conflict when one commits first.

    The matrices are those of the documentation. Next to each of its cells stands what the rules of this engine answer
    when they are asked: never, or can, where the two meet in rows, or in files that one of them read or removed.
    """
    if pair is not None:
        found = explain(*pair, isolation or DEFAULT.value, row_level=bool(row_level), vectors=vectors)
        if as_json:
            echo_json(asdict(found))
        else:
            _show(found)
        return
    if isolation is not None or vectors is not None:
        raise click.UsageError("--isolation and --deletion-vectors go with --explain: the matrices show all")
    wanted = [kind for kind in _KINDS if row_level in (None, kind[0])]
    if as_json:
        echo_json([_as_json(*kind) for kind in wanted])
        return
    for place, kind in enumerate(dict.fromkeys(by_rows for by_rows, _ in wanted)):
        click.echo(("\n" if place else "") + _TITLES[kind])
        echo_table(("one", "the other", "documented", *(f"here, {level}" for level in _LEVELS)), _rows(kind))
    click.echo("\nWhere it says can, refdelta conflicts --explain UPDATE DELETE says when, and what is raised.")


def _rows(row_level: bool) -> list[tuple[str, ...]]:
    """The cells of a matrix, as they are shown."""
    pairs = zip(matrix(row_level=row_level), matrix(row_level=row_level, vectors=True), strict=True)
    return [
        (cell.one, cell.other, cell.documented, *(_said(cell, with_vectors, level) for level in _LEVELS))
        for cell, with_vectors in pairs
    ]


def _said(cell: Cell, with_vectors: Cell, level: str) -> str:
    """``never (ZORDER BY: can)``: the verdict, and where deletion vectors or ZORDER BY make it another one."""
    plain, hidden = cell.verdicts[level], with_vectors.verdicts[level]
    sorted_by = with_vectors.with_zorder.get(level, hidden)
    others = [f"deletion vectors: {hidden}"] if hidden != plain else []
    others += [f"ZORDER BY: {sorted_by}"] if sorted_by != hidden else []
    return plain + (f" ({', '.join(others)})" if others else "")


def _as_json(row_level: bool, vectors: bool) -> dict[str, Any]:
    cells = [asdict(cell) for cell in matrix(row_level=row_level, vectors=vectors)]
    return {"row_level": row_level, "deletion_vectors": vectors, "cells": cells}


def _show(found: PairExplanation) -> None:
    click.echo(f"{found.ours}, after {found.winner} committed first, at {found.isolation}: {found.verdict}")
    click.echo(f"  {found.sentence}")
    known = {rule.id: rule for rule in RULES}
    for name in found.rules:
        click.echo(f"  rule {name} raises {known[name].error.__name__}: {known[name].advice}")
    if found.documented is not None:
        click.echo(f"  the documentation: {found.documented}")
