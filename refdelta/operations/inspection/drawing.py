"""Drawings of a timeline: a string for terminals, and SVG.

Each version is one line, and of a version with members each member, as ``3.0`` and ``3.1``. A commit that was moved
over others has a lane: it leaves the trunk at the version that the transaction read, and returns to it at its own
version; what lies between are the versions that it was moved over.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from refdelta.arrow.python_values import time_text
from refdelta.errors import printable
from refdelta.wording import counted, listed, place_name, size

_MOST_LANES = 12
"""The most lanes; commits beyond have no lane, and say in words which versions they were moved over."""

_COLOURS = (36, 33, 35, 32, 34, 31)
"""Colours of lanes on a terminal: cyan, yellow, magenta, green, blue, red."""

_PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9")
"""Colours of lanes in SVG, which colour-blind readers can distinguish."""


@dataclass(frozen=True)
class Lane:
    """The way of one transaction beside the trunk.

    Attributes:
        number: the lane, counted from 0.
        start: the line of the version that it read, of its last member; -1 if that is before the drawing.
        end: its own line.
    """

    number: int
    start: int
    end: int


def lanes_of(rows: Sequence[dict[str, Any]]) -> list[Lane]:
    """The lanes of the commits that were moved over others, without those that find no place.

    Args:
        rows: the rows of a timeline, oldest first.
    """
    at = {row["version"]: line for line, row in enumerate(rows)}
    spans = []
    for line, row in enumerate(rows):
        if row["passed"]:
            read = row["read_version"]
            # Of a version that is missing, the lane begins at the one before it.
            start = at.get(read, max((place for version, place in at.items() if version < read), default=-1))
            if line - start > 1:
                spans.append((start, line))
    free: list[int] = []
    found = []
    for start, end in sorted(spans):
        number = next((lane for lane, until in enumerate(free) if until < start), len(free))
        if number >= _MOST_LANES:
            continue
        free[number : number + 1] = [end]
        found.append(Lane(number, start, end))
    return found


# --- terminals -------------------------------------------------------------------------------------------------------


def draw(rows: Sequence[dict[str, Any]], width: int, *, colour: bool = False) -> list[str]:
    """The lines of a drawing.

    Args:
        rows: the rows of a timeline, oldest first.
        width: the number of columns of a line.
        colour: whether to use the colours of a terminal.
    """
    lanes = lanes_of(rows)
    paint = _painted if colour else _plain
    count = max((lane.number + 1 for lane in lanes), default=0)
    graphs = [_graph(line, lanes, count, paint) for line in range(len(rows))]
    names = [place_name(row["version"], row["member"]) for row in rows]
    digits = max(map(len, names), default=1)
    left = digits + 2 + 1 + 2 * count + 2
    minutes = 16 if width < 100 else 19
    cells = [(time_text(row["timestamp"])[:minutes], _short(row["user"] or "", 12)) for row in rows]
    users = max((_width(user) for _, user in cells), default=0)
    times = max((len(time) for time, _ in cells), default=0) if width >= 60 else 0
    longest = max((_width(printable(what(row)[:1_000], keep="")) for row in rows), default=0)
    room = max(10, width - left - (times + 2 if times else 0) - (users + 2 if users else 0))
    room, lines = min(room, longest), []
    for name, row, graph, (time, user) in zip(names, rows, graphs, cells, strict=True):
        words = _fitted(what(row), room)
        line = f"{name:>{digits}}  {graph}  {words}"
        if times:
            line += f"  {paint(f'{time:<{times}}', 2)}"
        if users:
            line += f"  {user}"
        lines.append(line.rstrip())
    return lines


def what(row: dict[str, Any]) -> str:
    """The operation of a version, its predicate, the versions that it was moved over, its size, the tables of its
    transaction, and any damage.
    """
    words = [row["operation"] or "(no commitInfo)"]
    words += [f"where {row['predicate']}"] if row["predicate"] else []
    words += [f"over {listed(row['passed'])}"] if row["passed"] else []
    sizes = [counted(row["rows"], "row")] if row["rows"] is not None else []
    sizes += [size(row["bytes_added"])] if row["bytes_added"] else []
    words += [f"({', '.join(sizes)})"] if sizes else []
    words += [f"in {', '.join(row['tables'])}"] if row["tables"] else []
    words += [f"{row['note']!r}"] if row["note"] else []
    words += [f"DAMAGED: {row['damage']}"] if row["damage"] else []
    return " ".join(words)


def _graph(line: int, lanes: Sequence[Lane], count: int, paint: Callable[[str, int], str]) -> str:
    """The trunk and the lanes at one line."""
    begins = {lane.number for lane in lanes if lane.start == line}
    ends = {lane.number for lane in lanes if lane.end == line}
    passes = {lane.number for lane in lanes if lane.start < line < lane.end}
    last = max(begins | ends, default=-1)
    found = [paint("●", 1)]
    for number in range(count):
        colour = _COLOURS[number % len(_COLOURS)]
        reached = number <= last
        found.append(paint("─", _COLOURS[last % len(_COLOURS)]) if reached else " ")
        if number in begins:
            found.append(paint("┐" if number == last else "┬", colour))
        elif number in ends:
            found.append(paint("┘" if number == last else "┴", colour))
        elif number in passes:
            found.append(paint("┼" if reached else "│", colour))
        else:
            found.append(paint("─", _COLOURS[last % len(_COLOURS)]) if reached else " ")
    return "".join(found)


def _plain(text: str, _colour: int) -> str:
    return text


def _painted(text: str, colour: int) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if text.strip() else text


def _width(text: str) -> int:
    """The number of columns of a string on a terminal."""
    wide = sum(unicodedata.east_asian_width(one) in "WF" for one in text)
    return len(text) + wide - sum(unicodedata.combining(one) > 0 for one in text)


def _short(text: str, room: int) -> str:
    """A string, escaped and cut to a number of columns."""
    text = printable(text[:1_000], keep="")
    if _width(text) <= room:
        return text
    while _width(text) > room - 1:
        text = text[:-1]
    return f"{text}…"


def _fitted(text: str, room: int) -> str:
    """A string of exactly a number of columns."""
    text = _short(text, room)
    return text + " " * (room - _width(text))


# --- SVG -------------------------------------------------------------------------------------------------------------

_ROW, _LANE, _LEFT = 24, 18, 64
_STYLE = """
  .timeline { font: 13px ui-monospace, Menlo, Consolas, monospace; color: #1a1a1a; background: #ffffff }
  .timeline text { fill: currentColor } .timeline .faint { opacity: 0.65 } .timeline .damage { fill: #c00000 }
  .timeline path { fill: none; stroke-width: 2.5 } .timeline .trunk { stroke: currentColor; opacity: 0.5 }
  .timeline .version { fill: currentColor }
  @media (prefers-color-scheme: dark) {
    .timeline { color: #e6e6e6; background: #161616 } .timeline .damage { fill: #ff7070 }
  }
"""


def to_svg(rows: Sequence[dict[str, Any]], name: str) -> str:
    """A drawing as an SVG document.

    Args:
        rows: the rows of a timeline, oldest first.
        name: the name of the table.
    """
    lanes = lanes_of(rows)
    moved = sum(1 for row in rows if row["passed"])
    count = max((lane.number + 1 for lane in lanes), default=0)
    words = _LEFT + _LANE * count + 20
    labels = [_short(what(row), 110) for row in rows]
    longest = max((_width(label) for label in labels), default=0)
    times = words + 8 * longest + 16
    users = [_short(row["user"] or "", 20) for row in rows]
    width, height = times + 8 * 20 + 8 * max(map(_width, users), default=0) + 24, _ROW * (len(rows) + 2)
    of = f"versions {rows[0]['version']} to {rows[-1]['version']}" if rows else "no version"
    title = f"{_short(name, 60)}, {of}: {moved} committed over versions that they had not seen"
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="timeline" {size} role="img">',
        f"<title>{_xml(title)}</title><style>{_STYLE}</style>",
        f'<text x="12" y="20" font-weight="bold">{_xml(title)}</text>',
        f'<path class="trunk" d="M{_LEFT} {_y(0)}V{_y(max(len(rows) - 1, 0))}"/>',
    ]
    for lane in sorted(lanes, key=lambda one: -one.number):
        x, end = _LEFT + _LANE * (lane.number + 1), _y(lane.end)
        begin = f"M{x} {_y(0) - _ROW // 2}" if lane.start < 0 else f"M{_LEFT} {_y(lane.start)}H{x - 6}q6 0 6 6"
        colour = _PALETTE[lane.number % len(_PALETTE)]
        parts.append(f'<path stroke="{colour}" d="{begin}V{end - 6}q0 6 -6 6H{_LEFT}"/>')
    for line, (row, label, user) in enumerate(zip(rows, labels, users, strict=True)):
        y = _y(line)
        kind = ' class="damage"' if row["damage"] else ""
        parts += [
            f'<text x="{_LEFT - 16}" y="{y + 4}" text-anchor="end">{place_name(row["version"], row["member"])}</text>',
            f'<circle class="version" cx="{_LEFT}" cy="{y}" r="5"/>',
            f'<text x="{words}" y="{y + 4}"{kind}>{_xml(label)}</text>',
            f'<text x="{times}" y="{y + 4}" class="faint">{_xml(time_text(row["timestamp"]))}</text>',
            f'<text x="{times + 8 * 20}" y="{y + 4}">{_xml(user)}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _y(line: int) -> int:
    return _ROW * (line + 2) - 4


def _xml(text: str) -> str:
    """A string for XML, which has no place for some characters even as escapes."""
    return html.escape("".join(one if one.isprintable() else "�" for one in text))
