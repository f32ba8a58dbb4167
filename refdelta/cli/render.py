"""How values are shown: tables for people, JSON for programs."""

from __future__ import annotations

import datetime as dt
import decimal
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
import msgspec
import pyarrow as pa

from refdelta.cli.printable import printable

_SHOWN = 20
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DIGITS = 24


def to_json(value: Any) -> str:
    """One JSON text on one line: times in ISO 8601, decimals as exact strings, bytes in base64, NaN as null."""
    return msgspec.json.encode(value, enc_hook=_plain).decode()


def echo_json(value: Any) -> None:
    """Print one indented JSON document."""
    click.echo(msgspec.json.format(to_json(value), indent=2))


def echo_json_list(values: Iterable[Any]) -> None:
    """Print a JSON list as :func:`echo_json` does, one value at a time; nothing if the first one is an error."""
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
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ", timespec="milliseconds" if value.microsecond else "seconds")
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, (int, float, decimal.Decimal, dt.date)):
        return str(value)
    return printable(to_json(value))


def moment(milliseconds: Any) -> str | None:
    """Milliseconds since 1970 as a readable time; as a number outside of the calendar."""
    if milliseconds is None:
        return None
    if type(milliseconds) is not int:
        return cell(milliseconds)
    try:
        time = _EPOCH + dt.timedelta(seconds=milliseconds // 1000)
    except OverflowError:
        text = str(milliseconds)
        return f"{text[:_DIGITS]}... ms" if len(text) > _DIGITS else f"{text} ms"
    return f"{time:%Y-%m-%d %H:%M:%S}.{milliseconds % 1000:03} UTC"


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table; times that are none of the calendar are milliseconds."""
    rows: list[dict[str, Any]]
    try:
        rows = table.to_pylist(maps_as_pydicts="lossy")
    except (ValueError, OverflowError):
        for at, field in enumerate(table.schema):
            if pa.types.is_timestamp(field.type):
                table = table.set_column(at, field.name, table.column(at).cast(pa.int64()))
        rows = table.to_pylist(maps_as_pydicts="lossy")
    return rows


def counted(count: int, noun: str) -> str:
    """``1 file``, ``2,000 files``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def moved_over(versions: Sequence[int]) -> str:
    """`` (over versions 5, 6)`` for a commit that was moved over these; nothing for one that was not."""
    if not versions:
        return ""
    shown = ", ".join(map(str, versions)) if len(versions) <= 3 else f"{versions[0]} to {versions[-1]}"
    return f" (over version{'' if len(versions) == 1 else 's'} {shown})"


def echo_some(lines: Sequence[str]) -> None:
    """Print a screenful of lines, indented, and how many more there are."""
    for line in lines[:_SHOWN]:
        click.echo(f"  {printable(line)}")
    if len(lines) > _SHOWN:
        click.echo(f"  ... and {len(lines) - _SHOWN:,} more; --json lists all")


def size(count: int | None) -> str:
    """A number of bytes for people: ``8.3 MB``, in powers of ten."""
    if count is None:
        return ""
    number = float(min(max(count, -(2**1000)), 2**1000))
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(number) < 1000 or unit == "TB":
            break
        number /= 1000
    return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"


def echo_table(names: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Iterable[str] = ()) -> None:
    """Print a table with a heading; columns named in ``right`` are aligned to the right.

    On a terminal the columns share its width; in a pipe nothing is cut or wrapped, whatever the width.
    """
    from rich import box
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    aligned = set(right)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in names:
        table.add_column(Text(printable(name)), justify="right" if name in aligned else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))
    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        endless = Console(file=sys.stdout, highlight=False, width=1_000_000)
        console = Console(
            file=sys.stdout, highlight=False, width=Measurement.get(endless, endless.options, table).maximum
        )
    console.print(table)


def echo_pairs(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print ``name  value`` lines, the names in one column."""
    shown = [(name, cell(value)) for name, value in pairs]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"{name:<{width}}  {value}".rstrip())
