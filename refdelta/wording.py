"""Results and numbers for people: counts with their noun, sizes, a line at a prompt, a table in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LINE = 100
"""The number of characters of a line at a prompt, after which the rest is counted."""


def counted(count: int, noun: str) -> str:
    """``1 file``, ``2,000 files``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def size(count: int | None) -> str:
    """A number of bytes in powers of ten, ``8.3 MB``; nothing for None."""
    if count is None:
        return ""
    number = float(min(max(count, -(2**1000)), 2**1000))  # a log may say any number
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(number) < 1000 or unit == "TB":
            break
        number /= 1000
    return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"


def listed(versions: Sequence[int]) -> str:
    """``5, 6``, or ``5 to 12`` where there are more than three."""
    return ", ".join(map(str, versions)) if len(versions) <= 3 else f"{versions[0]} to {versions[-1]}"


def place_name(version: int, member: int | None) -> str:
    """``3``, or ``3.1`` for member 1 of version 3; members are counted from 0."""
    return f"{version}" if member is None else f"{version}.{member}"


def one_line(name: str, facts: Mapping[str, Any]) -> str:
    """``Name(fact=value, ...)`` with as many facts as fit a line.

    Args:
        name: of the class.
        facts: in the order of their importance.
    """
    parts, length = [], len(name) + 2
    for number, (key, value) in enumerate(facts.items()):
        part = f"{key}={value!r}"
        length += len(part) + 2
        if length > LINE - len(", ... 99 more"):
            parts.append(f"... {len(facts) - number} more")
            break
        parts.append(part)
    return f"{name}({', '.join(parts)})"


def table(rows: Iterable[Sequence[Any]], head: Sequence[str] = (), caption: str = "") -> str:
    """An HTML table. All text is escaped.

    Args:
        rows: the cells of each row; None is an empty cell.
        head: the names of the columns.
        caption: stands above it.
    """
    import html  # few programs show a table in a notebook

    above = f"<p>{html.escape(caption)}</p>" if caption else ""
    names = f"<tr>{_cells('th', head)}</tr>" if head else ""
    lines = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    return f"{above}<table>{names}{lines}</table>"


def _cells(tag: str, texts: Iterable[Any]) -> str:
    import html

    return "".join(f"<{tag}>{html.escape('' if text is None else str(text))}</{tag}>" for text in texts)
