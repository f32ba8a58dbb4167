"""``make generate NAME=spec-map``: how many clauses of the contracts have code and a test, and which do not.

Reads ``spec_notes/clauses.md``, ``concurrency.md`` and ``acid.md`` there. A row has an id, a clause, and in its last
two columns code and tests: ``file`` or ``file::name``, several separated by commas. It is covered if the code is there
and each test exists by that name. "not yet" in both columns counts apart. Ends with status 1 where a clause is neither.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
REGISTERS = [ROOT / "spec_notes" / name for name in ("clauses.md", "concurrency.md", "acid.md")]
NOT_YET = "not yet"


@dataclass(frozen=True)
class Clause:
    """One row of a register.

    Attributes:
        id: its id, e.g. ``rule-7``.
        section: the heading that it stands under.
        text: what stands behind its id: the clause, or its level.
        code: where it is carried out.
        tests: what would fail without it.
    """

    id: str
    section: str
    text: str
    code: tuple[str, ...]
    tests: tuple[str, ...]

    @property
    def later(self) -> bool:
        """Whether it is announced for later."""
        return self.code == self.tests == (NOT_YET,)


def clauses(text: str) -> Iterator[Clause]:
    """The rows of a register."""
    section = ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif re.match(r"\| [a-z]+-\d+[a-z]? \|", line):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            cells += [""] * (4 - len(cells))
            yield Clause(cells[0], section, cells[1], _names(cells[-2]), _names(cells[-1]))


def _names(cell: str) -> tuple[str, ...]:
    return tuple(name.strip().strip("`") for name in cell.split(",") if name.strip())


def problems(clause: Clause, root: Path | None = None) -> list[str]:
    """What keeps a clause from being covered; nothing for one that is, or that is announced for later."""
    if clause.later:
        return []
    found = [f"no {what}" for what, names in (("code", clause.code), ("test", clause.tests)) if not names]
    found += [f"{name} is announced for one column only" for name in {*clause.code, *clause.tests} if name == NOT_YET]
    for name in (*clause.code, *clause.tests):
        if name != NOT_YET and not _exists(root or ROOT, name):
            found.append(f"{name} does not exist")
    found += [f"{name} names no test" for name in clause.tests if name != NOT_YET and "::test_" not in name]
    return found


def _exists(root: Path, name: str) -> bool:
    file, _, inside = name.partition("::")
    path = root / file
    return path.is_file() and (not inside or inside in _definitions(path))


@functools.cache
def _definitions(path: Path) -> frozenset[str]:
    kinds = (ast.FunctionDef, ast.ClassDef)
    return frozenset(node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds))


def main() -> int:
    """Print the coverage, section by section."""
    found = [clause for register in REGISTERS for clause in clauses(register.read_text())]
    wrong = {clause.id: problems(clause) for clause in found if problems(clause)}
    wrong |= {name: ["occurs twice"] for name, count in Counter(clause.id for clause in found).items() if count > 1}
    print(f"{'section':<50} {'clauses':>8} {'covered':>8} {'not yet':>8}")
    for section in dict.fromkeys(clause.section for clause in found):
        own = [clause for clause in found if clause.section == section]
        later = sum(clause.later for clause in own)
        covered = len(own) - later - sum(clause.id in wrong for clause in own)
        print(f"{section:<50} {len(own):>8} {covered:>8} {later:>8}")
    later = sum(clause.later for clause in found)
    print(f"{'all':<50} {len(found):>8} {len(found) - later - len(wrong):>8} {later:>8}")
    for name, reasons in wrong.items():
        print(f"uncovered: {name}: {'; '.join(reasons)}")
    return 1 if wrong or not found else 0


if __name__ == "__main__":
    sys.exit(main())
