"""``refdelta why``, ``timeline``, ``diff`` and ``conflicts``: the log of a table explained and drawn, its versions
compared, and which operations conflict by the rules.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from refdelta.cli.app import app
from refdelta.cli.group import LEVELS, isolation_level, named_version, on_a_table, open_table, store_of
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
from refdelta.wording import counted, place_name

if TYPE_CHECKING:
    from refdelta import DeltaTable, arguments
    from refdelta.core.conflicts.matrix import Cell, PairExplanation
    from refdelta.operations.inspection.explanation import Explanation

_SHOWN = 20


def _place(text: str) -> int | tuple[int, int]:
    """A version, or a member of one: ``3``, ``3.1``."""
    version, dot, member = text.partition(".")
    numbers = [version, member] if dot else [version]
    if not all(one.isascii() and one.isdecimal() and len(one) < 20 for one in numbers):
        raise click.UsageError(f"{text!r} is no version such as 3, and no member of one such as 3.1")
    return (int(version), int(member)) if dot else int(version)


@app.command(
    examples=(
        "why flights 12 15",
        "why flights 12.1 15",
        "why s3://bucket/flights 12 15 --json",
        "why conflict.json",
        "why flights --reads \"carrier = 'UA'\" --since 12",
    ),
)
@on_a_table
@click.argument("places", metavar="[A B]", nargs=-1)
@click.option("--reads", metavar="SQL", help="Instead of A and B: the rows that a transaction read.")
@click.option("--since", type=click.IntRange(min=0), metavar="VERSION", help="With --reads: the version that it read.")
@isolation_level
def why(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,
    places: tuple[str, ...],
    reads: str | None,
    since: int | None,
    isolation: arguments.Isolation | None,
) -> None:
    """Explain why a transaction on TABLE failed, or would have conflicted with another one.

    Of versions A and B: whether B would have conflicted with A, had it begun before A. 3.1 is member 1, counted from 0,
    of a version 3 with several transactions; of 3, all of them are looked at.

    Of a FILE in the place of A and B, or alone: the conflict that it holds, as error.conflict.as_json() writes it in
    Python, and --json on the command line. The table is looked up by its address in the file unless TABLE names it.

    With --reads and --since: with which later versions a transaction conflicts that read these rows at that version.

    The rules of commits are asked again, at both isolation levels, by rows and by files: which rule finds a conflict,
    over which files and rows, or why there is none. Nothing is written.
    """
    if (reads is None) != (since is None):
        raise click.UsageError("--reads and --since go together")
    if isolation is not None and reads is None:
        raise click.UsageError("--isolation goes with --reads")
    if reads is not None and since is not None:
        if places:
            raise click.UsageError("--reads goes without A and B")
        _why_reads(open_table(table, storage_options), reads, since, isolation, as_json=as_json)
    elif len(places) == 2:
        from refdelta import explain_conflict

        first, second = map(_place, places)
        _show_explanation(explain_conflict(open_table(table, storage_options), first, second), as_json=as_json)
    elif len(places) < 2:
        file = places[0] if places else table
        _show_explanation(_of_file(file, table if places else None, storage_options), as_json=as_json)
    else:
        raise click.UsageError("give two versions, A and B")


def _of_file(file: str, table: str | None, storage_options: dict[str, str]) -> Explanation:
    """The explanation of a conflict in a file, with what the table still has of it."""
    from refdelta import explain_conflict
    from refdelta.errors import ConflictDetails, DeltaError, InvalidArgumentError
    from refdelta.operations.inspection.explanation import as_recorded
    from refdelta_storage import StorageError

    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise click.UsageError(
            f"give two versions, A and B, or a file with a conflict: {file}: {error.strerror}"
        ) from error
    try:
        conflict = ConflictDetails.from_json(data)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{file}: {error}") from error
    if conflict.attempt is None and table is None:
        return as_recorded(conflict, "the file does not name the table")
    place = table or (conflict.attempt.uri if conflict.attempt is not None else "")
    try:
        return explain_conflict(open_table(place, storage_options), conflict)
    except (DeltaError, StorageError) as error:
        return as_recorded(conflict, f"the table could not be asked again: {error}")


def _why_reads(
    table: DeltaTable, reads: str, since: int, isolation: arguments.Isolation | None, *, as_json: bool
) -> None:
    from refdelta.api.explain import explain_reads

    found = explain_reads(table, reads, since, isolation)
    if as_json:
        echo_json([one.as_dict() for one in found])
        return
    newest = table.version()
    if not found:
        say(f"no conflict: of the versions after {since}, up to {newest}, none concerns it", bold=True, fg="green")
        return
    _show_explanation(found[0], as_json=False)
    if others := [place_name(one.winner.version or 0, one.winner.member) for one in found[1:]]:
        say(f"further conflicts: version{'' if len(others) == 1 else 's'} {', '.join(others)}")


def _show_explanation(found: Explanation, *, as_json: bool) -> None:
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
    from refdelta.arrow.python_values import python_rows
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
    from refdelta.arrow.python_values import python_rows
    from refdelta.cli.output import limited

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
    type=click.Choice(LEVELS, case_sensitive=False),
    help=f"With --explain: {' or '.join(LEVELS)}; {LEVELS[0]} unless said.",
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
        from refdelta.core.conflicts.matrix import explain

        found = explain(*pair, isolation or LEVELS[0], row_level=bool(row_level), vectors=vectors)
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
        echo_table(("one", "the other", "documented", *(f"here, {level}" for level in LEVELS)), _rows(kind))
    say("\nWhere it says can, refdelta conflicts --explain UPDATE DELETE says when, and what is raised.")


def _rows(row_level: bool) -> list[tuple[str, ...]]:
    """The cells of a matrix, as they are shown."""
    from refdelta.core.conflicts.matrix import matrix

    pairs = zip(matrix(row_level=row_level), matrix(row_level=row_level, vectors=True), strict=True)
    return [
        (pair.one, pair.other, pair.documented, *(_verdicts(pair, with_vectors, level) for level in LEVELS))
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
    from refdelta.core.conflicts.matrix import matrix

    cells = [asdict(pair) for pair in matrix(row_level=row_level, vectors=vectors)]
    return {"row_level": row_level, "deletion_vectors": vectors, "cells": cells}


def _show(found: PairExplanation) -> None:
    from refdelta.core.conflicts.rules import RULES

    say(f"{found.ours}, after {found.winner} committed first, at {found.isolation}: {found.verdict}")
    say(f"  {found.sentence}")
    known = {rule.id: rule for rule in RULES}
    for name in found.rules:
        say(f"  rule {name} raises {known[name].error.__name__}: {known[name].advice}")
    if found.documented is not None:
        say(f"  the documentation: {found.documented}")
