"""Histories as the page to play with has them in its address, run by a table of :mod:`model`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from model.branches import Branches, Refusal

sys.path.append(str(Path(__file__).resolve().parents[2] / "docs"))

from play import outcomes

CASES = {one.id: one.case for one in outcomes.OPERATIONS}


@dataclass(frozen=True)
class Choice:
    """The choices of a visitor."""

    level: str
    table: str
    operations: tuple[str, ...]
    order: str

    @classmethod
    def of(cls, address: str) -> Choice:
        given = {name: values[0] for name, values in parse_qs(address).items()}
        return cls(given["level"], given["table"], tuple(given["do"].split(",")), given["order"])

    def __str__(self) -> str:
        return f"level={self.level}&table={self.table}&do={','.join(self.operations)}&order={self.order}"


@dataclass
class Played:
    """The outcome of a choice: each transaction in the order of the commits, and the rows of the last version, in
    all and by file.
    """

    results: list[dict[str, Any]] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    files: list[list[list[int]]] = field(default_factory=list)


def play(branches: Branches, choice: Choice) -> Played:
    """Run a history, and say what the page should."""
    versions = [branches.root]
    began: dict[str, int] = {}
    path: list[tuple[str, int]] = []
    played = Played()
    for event in choice.order:
        if event.isupper():
            began[event] = len(versions) - 1
            continue
        name = event.upper()
        operation = choice.operations["ABCD".index(name)]
        place = operation, began[name]
        staged = branches.begin(versions[began[name]], CASES[operation], copy=path.count(place))
        made = branches.commit(versions[-1], staged)
        result: dict[str, Any] = {"at": "ABCD".index(name), "kind": "nothing"}
        if isinstance(made, Refusal):
            winner = made.conflict.version - branches.root.in_log
            result |= {"kind": "refused", "rule": made.rule, "winner": winner, "error": made.error.__name__}
        elif made is not versions[-1]:
            versions.append(made)
            path.append(place)
            result |= {"kind": "committed", "version": len(path)}
        played.results.append(result)
    played.rows = [list(row) for row in branches.contents(versions[-1])]
    played.files = sorted(sorted(list(row) for row in rows) for rows in branches.rows(versions[-1]).values())
    return played


def shown(result: dict[str, Any]) -> dict[str, Any]:
    """The part of a result of the page that is compared."""
    wanted = {"committed": ("version",), "refused": ("rule", "winner", "error"), "nothing": ()}[result["kind"]]
    return {name: result[name] for name in ("at", "kind", *wanted)}


def live(version: dict[str, Any]) -> list[list[list[int]]]:
    """The rows of a version of the page, by file."""
    return sorted(
        sorted(row for at, row in enumerate(file["rows"]) if at not in file["hidden"]) for file in version["files"]
    )


def orders(count: int) -> list[str]:
    """All orders of so many beginnings and commits, but for those that differ in the order of beginnings only."""
    names = "ABCD"[:count]
    found: list[str] = []

    def grow(order: str) -> None:
        if len(order) == 2 * count:
            found.append(order)
            return
        for name in names:
            if name not in order and not (order and order[-1].isupper() and name < order[-1]):
                grow(order + name)
            elif name in order and name.lower() not in order:
                grow(order + name.lower())

    grow("")
    return found
