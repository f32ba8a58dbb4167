"""Places of the code where one small change makes it wrong."""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PACKAGES: Final = ("refdelta", "storage/refdelta_storage")
# The demo and the adapters of benchmarks are shown and measured rather than tested line by line.
_LEFT_OUT: Final = ("refdelta/demo", "refdelta/racing")

_TURNED: Final = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}


@dataclass(frozen=True)
class Mutation:
    """One change of one file.

    Attributes:
        file: below the root of the project.
        kind: ``comparison`` turned, ``condition`` negated, ``connective`` exchanged (``and`` for ``or``), ``error`` not
            raised, ``rule`` removed from a table, ``statement`` left out.
        start: where the text that is replaced begins, in characters of the file.
        end: where it ends.
        new: what stands there instead.
        line: of the file, from 1.
        old: the text that is replaced.
    """

    file: str
    kind: str
    start: int
    end: int
    new: str
    line: int
    old: str

    def apply(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]

    def __str__(self) -> str:
        short = [" ".join(part.split()) for part in (self.old, self.new)]
        return f"{self.file}:{self.line} {self.kind}: {short[0][:60]} -> {short[1][:60] or 'nothing'}"


class _Finder(ast.NodeVisitor):
    def __init__(self, file: str, text: str) -> None:
        self.file, self.text, self.found = file, text, list[Mutation]()
        self._lines = [0]
        for line in text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def _at(self, line: int, column: int) -> int:
        start = self._lines[line - 1]
        line_of_text = self.text[start : self._lines[line]] if line < len(self._lines) else self.text[start:]
        return start + len(line_of_text.encode()[:column].decode())

    def _add(self, kind: str, node: ast.expr | ast.stmt, new: str, *, comma: bool = False) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start, end = self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)
        if comma:
            end += len(self.text[end:]) - len(self.text[end:].lstrip().removeprefix(","))
        self.found.append(Mutation(self.file, kind, start, end, new, node.lineno, self.text[start:end]))

    def _source(self, node: ast.expr) -> str:
        # As ast.get_source_segment, which takes the whole text apart for each node.
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.text[self._at(node.lineno, node.col_offset) : self._at(node.end_lineno, node.end_col_offset)]

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            left, right = self._source(node.left), self._source(node.comparators[0])
            self._add("comparison", node, f"(({left}) {_TURNED[type(node.ops[0])]} ({right}))")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word = " or " if isinstance(node.op, ast.And) else " and "
        self._add("connective", node, "(" + word.join(f"({self._source(value)})" for value in node.values) + ")")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if not isinstance(node.test, ast.NamedExpr) and "match" not in self._source(node.test)[:6]:
            self._add("condition", node.test, f"not ({self._source(node.test)})")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        if node.exc is not None:
            self._add("error", node, "pass")

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._add("statement", node, "pass")
        self.generic_visit(node)

    def visit_Tuple(self, node: ast.Tuple) -> None:
        if len(node.elts) > 2 and all(isinstance(item, ast.Call) for item in node.elts):
            for item in node.elts:
                self._add("rule", item, "", comma=True)
        self.generic_visit(node)


def in_text(file: str, text: str) -> list[Mutation]:
    """Every mutation of a file; a few of them do not compile."""
    finder = _Finder(file, text)
    finder.visit(ast.parse(text))
    return finder.found


def _compiles(mutation: Mutation, text: str) -> bool:
    try:
        ast.parse(mutation.apply(text))
    except SyntaxError:
        return False
    return True


def drawn(root: Path, seed: int, count: int) -> list[Mutation]:
    """So many mutations, spread evenly over the folders of the packages and the kinds, the same ones for a seed."""
    dice = random.Random(seed)
    by_folder: dict[str, dict[str, list[Mutation]]] = defaultdict(lambda: defaultdict(list))
    for file in _files(root):
        name = file.relative_to(root).as_posix()
        for one in in_text(name, file.read_text()):
            by_folder[str(Path(name).parent)][one.kind].append(one)
    found: list[Mutation] = []
    folders = sorted(by_folder)
    while len(found) < count:
        folder = folders[len(found) % len(folders)]
        kinds = by_folder[folder]
        of_kind = kinds[dice.choice(sorted(kinds))]
        one = of_kind.pop(dice.randrange(len(of_kind)))
        if _compiles(one, (root / one.file).read_text()):
            found.append(one)
        for kind in [kind for kind, left in kinds.items() if not left]:
            del kinds[kind]
        if not kinds:
            folders.remove(folder)
    return found


def _files(root: Path) -> Iterator[Path]:
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            if not file.relative_to(root).as_posix().startswith(_LEFT_OUT):
                yield file
