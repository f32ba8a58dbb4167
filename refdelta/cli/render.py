"""How values are shown: tables for people, JSON for programs."""

from __future__ import annotations

import datetime as dt
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal

import click

from refdelta.wording import listed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_SHOWN = 20
_MEASURED = 1_000  # rows that decide over the widths of columns
_GAP = 3  # columns between two cells
_LINES = 3  # of a wrapped cell
_NARROWEST = 8  # columns of a cell that is cut


def to_json(value: Any) -> str:
    """One JSON text on one line: times in ISO 8601, decimals as exact strings, bytes in base64, NaN as null."""
    import msgspec

    return msgspec.json.encode(value, enc_hook=_plain).decode()


def say(text: str = "", *, err: bool = False, **style: Any) -> None:
    """Print text for people: the only way to a terminal but for the tables of this module.

    Control characters, and those that change the direction of text, are shown as escapes: names, comments and errors
    come from tables, catalogs and servers, which may be hostile.

    Args:
        text: one or more lines.
        err: print it on standard error.
        style: as :func:`colored` takes it.
    """
    shown = escaped(text)
    click.echo(colored(shown, **style) if style else shown, err=err)


def escaped(text: str) -> str:
    """The text with escapes for control characters; see :func:`refdelta.errors.printable`."""
    if text.isprintable():
        return text
    from refdelta.errors import printable

    return printable(text)


def say_painted(text: str) -> None:
    """Print lines that have their colours, and whose parts were escaped before they got them."""
    click.echo(text)


def echo_json(value: Any) -> None:
    """Print one indented JSON document."""
    import msgspec

    click.echo(msgspec.json.format(to_json(value), indent=2))


def echo_json_line(value: Any) -> None:
    """Print one JSON document on one line, at once."""
    click.echo(to_json(value))


def echo_json_list(values: Iterable[Any]) -> None:
    """Print a JSON list as :func:`echo_json` does, one value at a time; nothing if the first one is an error."""
    import msgspec

    opening = "["
    for value in values:
        text = msgspec.json.format(to_json(value), indent=2)
        click.echo(opening + "\n  " + text.replace("\n", "\n  "), nl=False)
        opening = ","
    click.echo("[]" if opening == "[" else "\n]")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)


def cell(value: Any) -> str:
    """One value for people."""
    if isinstance(value, str):
        return escaped(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ", timespec="milliseconds" if value.microsecond else "seconds")
    if isinstance(value, (int, float, dt.date)) or type(value).__name__ == "Decimal":
        return str(value)
    return escaped(to_json(value))


def moment(milliseconds: Any) -> str | None:
    """Milliseconds since 1970 as a readable time; other values unchanged."""
    from refdelta.arrow.python_values import time_text

    if milliseconds is None:
        return None
    if type(milliseconds) is not int:
        return cell(milliseconds)
    return time_text(milliseconds, 3, "UTC")


def moved_over(versions: Sequence[int]) -> str:
    """`` (over versions 5, 6)`` for a commit that was moved over these; nothing for one that was not."""
    if not versions:
        return ""
    return f" (over version{'' if len(versions) == 1 else 's'} {listed(versions)})"


def echo_some(lines: Sequence[str]) -> None:
    """Print a screenful of lines, indented, and how many more there are."""
    for line in lines[:_SHOWN]:
        say(f"  {line}")
    if len(lines) > _SHOWN:
        say(f"  ... and {len(lines) - _SHOWN:,} more; --json lists all")


def echo_table(
    names: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    right: Iterable[str] = (),
    cut: Collection[str] = (),
    styles: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Print a table with a heading.

    Rows are printed as they come: the first thousand decide how wide the columns are. In a pipe nothing is cut or
    wrapped. On a terminal, the longest cells are wrapped if a row is too long for it, and if they would take many
    lines, each row is a list of names and values.

    Args:
        names: the names of the columns.
        rows: the cells of each row.
        right: the columns that are aligned to the right.
        cut: the columns whose cells are cut on a terminal, so that each row is one line; none: nothing is cut.
        styles: the styles of columns on a terminal, as :func:`colored` takes them.
    """
    from rich.cells import cell_len
    from rich.console import Console

    aligned = {at for at, name in enumerate(names) if name in set(right)}
    heading = [escaped(name) for name in names]
    texts = ([cell(value).expandtabs() for value in row] for row in rows)
    console = Console(file=sys.stdout, highlight=False)
    block, above, number = list(islice(texts, _MEASURED)), True, 0
    widths = [
        max((cell_len(line) for row in (heading, *block) for line in row[at].split("\n")), default=0)
        for at in range(len(names))
    ]
    layout = _layout(widths, console.width) if console.is_terminal else "lines"
    if layout != "lines" and cut:
        widths, layout = _shrunk(widths, {at for at, name in enumerate(names) if name in cut}, console.width), "lines"
        texts = ([_cut(text, width) for text, width in zip(row, widths, strict=True)] for row in chain(block, texts))
        block = list(islice(texts, _MEASURED))
    painted = {names.index(name): style for name, style in (styles or {}).items()} if console.is_terminal else {}
    while block or above:
        if layout == "wrapped":
            console.print(_wrapped(heading, block, aligned))
        elif layout == "records":
            _echo_records(heading, block, number)
        else:
            lines = []
            if above:
                lines += [_bold(line, console) for line in _lines(heading, widths, aligned)]
                lines.append("─" * (sum(widths) + _GAP * (len(widths) - 1)))
            plain = (" " * _GAP).join(f"{{:{'>' if at in aligned else '<'}{width}}}" for at, width in enumerate(widths))
            for row in block:
                # Most rows are one line without styles, and as wide as they have characters.
                text = "".join(row)
                if text.isascii() and "\n" not in text and not painted:
                    lines.append(plain.format(*row).rstrip())
                else:
                    lines += _lines(row, widths, aligned, painted)
            say_painted("\n".join(lines))
        number += len(block)
        block, above = list(islice(texts, _MEASURED)), False


def on_a_terminal() -> bool:
    """Whether the output goes to a terminal, or is said to by the environment (``FORCE_COLOR``)."""
    from rich.console import Console

    return Console(file=sys.stdout).is_terminal


def _layout(widths: Sequence[int], width: int) -> Literal["lines", "wrapped", "records"]:
    """How rows of columns with these widths are shown on a terminal. The widest column is the one that is wrapped."""
    left = width - sum(widths) - _GAP * (len(widths) - 1)
    if left >= 0:
        return "lines"
    longest = max(widths)
    return "wrapped" if longest <= _LINES * (left + longest) else "records"


def _shrunk(widths: Sequence[int], cut: Collection[int], width: int) -> list[int]:
    """The widths of columns that fit into a line of ``width``: the widest of those that may be cut shrink first."""
    fixed = sum(width for at, width in enumerate(widths) if at not in cut) + _GAP * (len(widths) - 1)
    most = min(max((widths[at] for at in cut), default=0), width)
    while most > _NARROWEST and fixed + sum(min(widths[at], most) for at in cut) > width:
        most -= 1
    return [min(width, most) if at in cut else width for at, width in enumerate(widths)]


def _cut(text: str, width: int) -> str:
    """A cell as one line of at most ``width`` columns."""
    from rich.cells import cell_len, set_cell_size

    line = " ".join(text.split("\n"))
    return line if cell_len(line) <= width else f"{set_cell_size(line, max(width - 1, 0))}…"


def _lines(
    row: Sequence[str], widths: Sequence[int], right: Collection[int], styles: Mapping[int, Mapping[str, Any]] = {}
) -> list[str]:
    """The lines of a row; a cell that is wider than its column moves the rest of its line."""
    from rich.cells import cell_len

    cells = [text.split("\n") for text in row]
    found = []
    for at in range(max(map(len, cells), default=1)):
        padded = []
        for column, lines in enumerate(cells):
            text = lines[at] if at < len(lines) else ""
            space = " " * (widths[column] - cell_len(text))
            text = colored(text, **styles[column]) if text and column in styles else text
            padded.append(space + text if column in right else text + space)
        found.append((" " * _GAP).join(padded).rstrip())
    return found


def _wrapped(heading: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for at, name in enumerate(heading):
        table.add_column(Text(name), justify="right" if at in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _echo_records(heading: Sequence[str], rows: Iterable[Sequence[str]], before: int) -> None:
    """Print each row as a list of names and values, without empty values, under its number."""
    width = max(map(len, heading), default=0)
    for number, row in enumerate(rows, start=before + 1):
        say(f"─── {number:,} ", bold=True)
        for name, text in zip(heading, row, strict=True):
            if text:
                say_painted(f"{colored(f'{name:<{width}}', fg='cyan')}  {text}")


def colored(text: str, **style: Any) -> str:
    """The text with a style for terminals, unless colours are unwanted."""
    return text if without_colors() else click.style(text, **style)


def without_colors() -> bool:
    """Whether the environment has ``NO_COLOR`` (https://no-color.org)."""
    return bool(os.environ.get("NO_COLOR"))


def _bold(line: str, console: Console) -> str:
    return colored(line, bold=True) if console.is_terminal else line


def echo_pairs(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print ``name  value`` lines, the names in one column."""
    shown = [(name, cell(value)) for name, value in pairs]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        say(f"{name:<{width}}  {value}".rstrip())
