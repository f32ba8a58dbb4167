"""Which tests come by the place of a mutation: one run of the tests over code that notes it.

Before the statement of each mutation a call is inserted, which appends the number of the mutation and the name of the
running test to a file. Processes that a test starts inherit its name, and note it, too.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mutations.sites import Mutation

VARIABLE: Final = "REFDELTA_MUTATIONS_REACHED"
"""The variable of the environment that names the file."""

_NOTE: Final = f'''
import os

_noted = set()


def note(number):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if (number, test) not in _noted:
        _noted.add((number, test))
        if file := os.environ.get("{VARIABLE}"):
            with open(file, "a") as stream:
                stream.write(f"{{number}}\\t{{test}}\\n")
'''
_PACKAGES: Final = {"refdelta": "refdelta", "storage": "storage/refdelta_storage"}


def instrument(root: Path, mutations: Mapping[int, Mutation]) -> set[int]:
    """Insert the calls.

    Args:
        root: a copy of the project.
        mutations: the mutations by their numbers.

    Returns:
        The numbers of those that run when their module is imported: every test reaches these.
    """
    at_import: set[int] = set()
    by_file: dict[str, list[int]] = defaultdict(list)
    for number, one in mutations.items():
        by_file[one.file].append(number)
    for file, numbers in by_file.items():
        path = root / file
        text = path.read_text()
        tree, lines = ast.parse(text), text.splitlines(keepends=True)
        package = Path(_PACKAGES[file.partition("/")[0]]).name
        inserted: list[tuple[int, str]] = []
        for number in numbers:
            place = _statement(tree, mutations[number].line)
            if place is None:
                at_import.add(number)
                continue
            call = f'__import__("{package}._reached", fromlist=["note"]).note({number})'
            inserted.append((place.lineno, f"{' ' * place.col_offset}{call}\n"))
        for line, call in sorted(inserted, reverse=True):
            lines.insert(line - 1, call)
        path.write_text("".join(lines))
    for folder in _PACKAGES.values():
        (root / folder / "_reached.py").write_text(_NOTE)
    return at_import


def _statement(tree: ast.Module, line: int) -> ast.stmt | None:
    """The innermost statement of a function that has this line, before which another one can stand."""
    found: ast.stmt | None = None

    def look(body: Sequence[ast.stmt], *, inside: bool) -> None:
        nonlocal found
        for one in body:
            if one.lineno <= line <= (one.end_lineno or one.lineno):
                if inside and not _is_docstring(one, body):
                    found = one
                into(one, inside=inside or isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))

    def into(one: ast.stmt, *, inside: bool) -> None:
        look(getattr(one, "body", []), inside=inside)
        otherwise = getattr(one, "orelse", [])
        if isinstance(one, ast.If) and len(otherwise) == 1 and isinstance(otherwise[0], ast.If):
            into(otherwise[0], inside=inside)  # perhaps an `elif`, before which no statement can stand
        else:
            look(otherwise, inside=inside)
        look(getattr(one, "finalbody", []), inside=inside)
        for part in (*getattr(one, "handlers", ()), *getattr(one, "cases", ())):
            look(part.body, inside=inside)

    look(tree.body, inside=False)
    return found


def _is_docstring(statement: ast.stmt, body: Sequence[ast.stmt]) -> bool:
    return statement is body[0] and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def read(file: Path) -> dict[int, list[str]]:
    """The tests by the numbers of the mutations that they reach, in the order in which they ran."""
    found: dict[int, dict[str, None]] = defaultdict(dict)
    if file.exists():
        for line in file.read_text().splitlines():
            number, _, test = line.partition("\t")
            if "::" in test:
                # Without the group that pytest-xdist puts at its end.
                found[int(number)][re.sub(r"@[^@\]]*$", "", test)] = None
    return {number: [*tests] for number, tests in found.items()}
