"""``make generate NAME=map``: the rooms of ``docs/map.md``, and their drawing, from the imports of the code.

A room is a folder of ``refdelta``, or of ``core``, ``engine`` or ``operations``. The page and
``docs/pictures/map.svg`` are compared with the code by ``tests/packaging/test_code_map.py``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path

from formatting import formatted

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "map.md"
PICTURE = ROOT / "docs" / "pictures" / "map.svg"
DIVIDED = ("refdelta.core", "refdelta.engine", "refdelta.operations")
"""The folders that consist of rooms."""
STORES = "refdelta_storage"
_BLOCK = re.compile(r"(<!-- map: rooms -->\n).*?(<!-- end -->)", re.DOTALL)

Imports = Mapping[str, set[str]]


def modules() -> dict[str, Path]:
    """The modules of both packages, by name."""
    found = {}
    for above in (ROOT, ROOT / "storage"):
        for package in ("refdelta", STORES):
            for path in sorted((above / package).rglob("*.py")):
                name = ".".join(path.relative_to(above).with_suffix("").parts)
                found[name.removesuffix(".__init__")] = path
    return found


def room_of(module: str, known: Mapping[str, Path]) -> str | None:
    """The room of a module; None for modules that lie in no room, such as ``refdelta.errors``.

    A public name of ``refdelta`` itself is one of its API.
    """
    parts = module.split(".")
    if parts[0] == STORES:
        return STORES
    if parts[0] != "refdelta" or len(parts) < 2:
        return None
    if f"refdelta.{parts[1]}" not in known:
        return "refdelta.api"
    room = ".".join(parts[: 3 if f"refdelta.{parts[1]}" in DIVIDED else 2])
    return room if room in known and known[room].name == "__init__.py" and room not in DIVIDED else None


def imports() -> dict[str, set[str]]:
    """The rooms that each room imports, also within functions, and not for types only."""
    known = modules()
    found: dict[str, set[str]] = {}
    for module, path in known.items():
        here = room_of(module, known)
        if here is not None:
            there = {room_of(name, known) for name in _imported(ast.parse(path.read_text()))} - {None, here}
            found.setdefault(here, set()).update(there)
    return found


def _imported(tree: ast.AST) -> Iterator[str]:
    todo = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
            continue
        match node:
            case ast.Import():
                yield from (one.name for one in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module
                yield from (f"{module}.{one.name}" for one in node.names)
        todo += ast.iter_child_nodes(node)


def levels(found: Imports) -> dict[str, int]:
    """The level of each room: one above the highest that it imports; 0 for those that import none.

    Raises:
        ValueError: rooms that import each other.
    """
    known: dict[str, int] = {}

    def level(room: str, above: tuple[str, ...]) -> int:
        if room in above:
            raise ValueError(f"rooms import each other: {' > '.join((*above, room))}")
        if room not in known:
            known[room] = max((level(one, (*above, room)) + 1 for one in found[room]), default=0)
        return known[room]

    for room in found:
        level(room, ())
    return known


def direct(found: Imports) -> dict[str, set[str]]:
    """The imports without those that follow from others: A imports C, if A imports B and B imports C."""

    def reached(room: str) -> set[str]:
        return found[room].union(*(reached(one) for one in found[room]))

    return {room: there - set().union(*(reached(one) for one in there)) for room, there in found.items()}


# --- the table ----------------------------------------------------------------------------------------------------


def page(text: str) -> str:
    """The page, with its table written anew."""
    return formatted(_BLOCK.sub(lambda block: f"{block[1]}\n{table()}\n{block[2]}", text))


def table() -> str:
    """The rooms in the order of imports, each with the first sentence of its docstring."""
    found, paths = imports(), modules()
    above, at = direct(found), levels(found)
    lines = ["| room | content | imports |", "|---|---|---|"]
    for room in sorted(found, key=lambda room: (at[room], room)):
        folder = paths[room].parent.relative_to(ROOT).as_posix()
        there = ", ".join(sorted(map(_short, above[room]))) or "none"
        lines.append(f"| [`{folder}`](../{folder}) | {_sentence(paths[room])} | {there} |")
    return "\n".join(lines) + "\n"


def _sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    first = " ".join(text.partition("\n\n")[0].split())
    return re.sub(r":\w+:`~?([\w.]+)`", r"`\1`", first).replace("``", "`").replace("|", "\\|")


def _short(room: str) -> str:
    return room.removeprefix("refdelta.").replace(".", "/")


# --- the drawing --------------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT, _BOX, _BEND = 1000, 62, 28, 26
_COLOURS = {"core": "#dbe7f6", "engine": "#e4f1e1", "operations": "#fbeecd"}


def drawing() -> str:
    """An SVG: each room above the rooms that it imports; the lines are :func:`direct` imports."""
    lines, rows = _layout()
    across = _across(rows, lines)
    height = _HEIGHT * len(rows) + 20
    where = {
        node: (across[node], height - 10 - _HEIGHT * (level + 0.5)) for level, row in enumerate(rows) for node in row
    }
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif">',
        "<title>The rooms of refdelta: each is above those that it imports</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        '<g font-size="13">',
    ]
    for node in sorted(where):
        (x, y), half = where[node], 0 if _is_bend(node) else _BOX / 2
        for other in sorted(lines[node]):
            u, v = where[other]
            top, bottom = y + half, v - (0 if _is_bend(other) else _BOX / 2)
            parts.append(
                f'<path d="M{x:.0f} {top:.0f}C{x:.0f} {top + _BEND:.0f} {u:.0f} {bottom - _BEND:.0f} '
                f'{u:.0f} {bottom:.0f}" fill="none" stroke="#8a94a6"/>'
            )
    for node in sorted(where):
        if not _is_bend(node):
            (x, y), name, wide = where[node], _short(node), _wide(node)
            colour = _COLOURS.get(name.partition("/")[0], "#f3f4f6")
            parts.append(
                f'<rect x="{x - wide / 2:.0f}" y="{y - _BOX / 2:.0f}" width="{wide}" height="{_BOX}" rx="5" '
                f'fill="{colour}" stroke="#59647a"/>'
                f'<text x="{x:.0f}" y="{y + 4.5:.0f}" text-anchor="middle" fill="#1f2733">{escape(name)}</text>'
            )
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"


def _layout() -> tuple[Imports, list[list[str]]]:
    """The lines and the rows, the lowest first. A line over several rows has a bend in each row that it crosses."""
    found = imports()
    at, above = levels(found), direct(found)
    for room in [room for room in found if not found[room]]:
        users = [at[one] for one in found if room in above[one]]
        at[room] = min(users, default=1) - 1
    rows: list[list[str]] = [[room for room in found if at[room] == level] for level in range(max(at.values()) + 1)]
    lines: dict[str, set[str]] = {room: set() for room in found}
    for room, there in above.items():
        for other in there:
            last = room
            for level in range(at[room] - 1, at[other], -1):
                bend = f"{room}>{other}>{level}"
                rows[level].append(bend)
                lines[bend] = set()
                lines[last].add(bend)
                last = bend
            lines[last].add(other)
    return lines, rows


def _is_bend(node: str) -> bool:
    return ">" in node


def _wide(node: str) -> int:
    return 4 if _is_bend(node) else round(len(_short(node)) * 7.3) + 18


def _across(rows: list[list[str]], lines: Imports) -> dict[str, float]:
    """The middle of each node: rows from the top, each node below those that lead to it, if there is space."""
    users: dict[str, list[str]] = {}
    for node, there in lines.items():
        for one in there:
            users.setdefault(one, []).append(node)
    found: dict[str, float] = {}
    for row in reversed(rows):
        wanted = {node: _mean([found[one] for one in users.get(node, ())]) for node in row}
        row.sort(key=lambda node: (wanted[node], node))
        widths = list(map(_wide, row))
        gap = min(60.0, (_WIDTH - sum(widths)) / (len(row) + 1))
        whole = sum(widths) + gap * (len(row) - 1)
        left = min(max(gap, _mean(list(wanted.values())) - whole / 2), _WIDTH - gap - whole)
        for node, wide in zip(row, widths, strict=True):
            found[node] = left + wide / 2
            left += wide + gap
    return found


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else _WIDTH / 2


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    PICTURE.write_text(drawing())
