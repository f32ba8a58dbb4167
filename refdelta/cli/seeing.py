"""``refdelta why``, ``timeline``, ``diff`` and ``conflicts``: the log of a table explained and drawn, its versions
compared, and which operations conflict by the rules.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from refdelta.arrow.python_values import python_rows
from refdelta.cli.group import app, named_version, on_a_table, open_table, store_of
from refdelta.cli.output import limited
from refdelta.cli.render import (
    cell,
    echo_json,
    echo_json_list,
    echo_table,
    on_a_terminal,
    say,
    say_painted,
    without_colors,
)
from refdelta.core.conflicts.isolation import DEFAULT, IsolationLevel
from refdelta.core.conflicts.matrix import Cell, PairExplanation, explain, matrix
from refdelta.core.conflicts.rules import RULES
from refdelta.wording import counted

_SHOWN = 20


class _Place(click.ParamType):  # type: ignore[type-arg] # click 8.2 takes no argument there
    """A version, or a member of one: ``3``, ``3.1``."""

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | tuple[int, int]:
        """The version, or the version and the member."""
        version, dot, member = str(value).partition(".")
        numbers = [version, member] if dot else [version]
        if not all(one.isascii() and one.isdecimal() and len(one) < 20 for one in numbers):
            self.fail(f"{value!r} is no version such as 3, and no member of one such as 3.1", param, ctx)
        return (int(version), int(member)) if dot else int(version)


@app.command(
    examples=(
        "why flights 12 15",
        "why flights 12.1 15",
        "why s3://bucket/flights 12 15 --json",
    ),
)
@on_a_table
@click.argument("a", type=_Place())
@click.argument("b", type=_Place())
def why(
    table: str, storage_options: dict[str, str], as_json: bool, a: int | tuple[int, int], b: int | tuple[int, int]
) -> None:
    """Explain whether version B of TABLE would have conflicted with version A, had it begun before A.

    The rules of commits are asked again, at both isolation levels, by rows and by files: which rule finds a conflict,
    over which files and rows, or why there is none. Nothing is written. 3.1 is member 1, counted from 0, of a version 3
    with several transactions; of 3, all of them are looked at.
    """
    from refdelta.api.explain import explain_conflict

    found = explain_conflict(open_table(table, storage_options), a, b)
    if as_json:
        echo_json(found.as_dict())
        return
    verdict, rest = str(found).split("\n", 1)
    say(verdict, bold=True, fg="green" if found.conflict is None else "red")
    say(rest)


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

    found = timeline_of(store_of(table, storage_options), limit, *version_range(version))
    if svg is not None:
        Path(svg).write_text(found.to_svg(), encoding="utf-8")
    elif as_json:
        echo_json_list(row for batch in found.to_batches() for row in python_rows(batch, iso=True))
    else:
        say_painted(found.draw(None if sys.stdout.isatty() else 80, colour=on_a_terminal() and not without_colors()))


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
        rows = python_rows(limited(found.to_reader(), shown).read_all(), iso=True)
        echo_json({**summary, "rows": rows})
        return
    for kind in ("columns", "properties", "protocol"):
        for name, (old, new) in summary[kind].items():
            noun = {"columns": "column ", "properties": "property ", "protocol": ""}[kind]
            say(f"{noun}{name}: {_said(old)} -> {_said(new)}")
    changed = f"{counted(summary['deleted'], 'row')} less, {counted(summary['inserted'], 'row')} more"
    say(f"{changed}, by the {summary['by']}")
    for row in python_rows(limited(found.to_reader(), shown).read_all()):
        gone = row.pop("_change_type") == "delete"
        text = f"{'-' if gone else '+'} {', '.join(f'{name}={cell(value)}' for name, value in row.items())}"
        say(text.replace("\n", "\\n"), fg="red" if gone else "green")
    if shown is not None and summary["deleted"] + summary["inserted"] > shown:
        say(f"... the first {shown} rows; --limit N shows more, --json all", err=True)


def _said(value: object) -> str:
    return "(none)" if value is None else cell(value)


# --- which operations conflict ----------------------------------------------------------------------------------------

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
        say(("\n" if place else "") + _TITLES[kind])
        echo_table(("one", "the other", "documented", *(f"here, {level}" for level in _LEVELS)), _rows(kind))
    say("\nWhere it says can, refdelta conflicts --explain UPDATE DELETE says when, and what is raised.")


def _rows(row_level: bool) -> list[tuple[str, ...]]:
    """The cells of a matrix, as they are shown."""
    pairs = zip(matrix(row_level=row_level), matrix(row_level=row_level, vectors=True), strict=True)
    return [
        (pair.one, pair.other, pair.documented, *(_verdicts(pair, with_vectors, level) for level in _LEVELS))
        for pair, with_vectors in pairs
    ]


def _verdicts(pair: Cell, with_vectors: Cell, level: str) -> str:
    """``never (ZORDER BY: can)``: the verdict, and where deletion vectors or ZORDER BY make it another one."""
    plain, hidden = pair.verdicts[level], with_vectors.verdicts[level]
    sorted_by = with_vectors.with_zorder.get(level, hidden)
    others = [f"deletion vectors: {hidden}"] if hidden != plain else []
    others += [f"ZORDER BY: {sorted_by}"] if sorted_by != hidden else []
    return plain + (f" ({', '.join(others)})" if others else "")


def _as_json(row_level: bool, vectors: bool) -> dict[str, Any]:
    cells = [asdict(pair) for pair in matrix(row_level=row_level, vectors=vectors)]
    return {"row_level": row_level, "deletion_vectors": vectors, "cells": cells}


def _show(found: PairExplanation) -> None:
    say(f"{found.ours}, after {found.winner} committed first, at {found.isolation}: {found.verdict}")
    say(f"  {found.sentence}")
    known = {rule.id: rule for rule in RULES}
    for name in found.rules:
        say(f"  rule {name} raises {known[name].error.__name__}: {known[name].advice}")
    if found.documented is not None:
        say(f"  the documentation: {found.documented}")
