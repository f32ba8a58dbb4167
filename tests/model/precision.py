"""How often the engine lets a transaction commit where the judge would. ``make precision`` writes the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from model import plain
from model.branches import Refusal, Version, supposed
from model.cases import ALL, BASIC, CYCLE, Case
from model.core import Core
from model.engine import Engine
from model.exhaustive import explore
from model.judge import LEVELS, WRITE_SERIALIZABLE, accepts

NOTES = Path(__file__).resolve().parents[2] / "spec_notes" / "precision.md"

HEAD = """# Precision

Written by `make precision`; a test holds it to the engine. What the numbers are of is in `tests/model`.

Two transactions begin at the same version; one commits, then the other one wants to. Each cell is about all variants
of two kinds of operation ({operations} operations in all, over a table of three rows in two files), and says in how
many histories the second one commits: **in the engine / by the judge (by plain checking of files)**. The judge tries
all serial orders, row by row; the engine never accepts what the judge does not. Plain checking conflicts over the
removal of any file that statistics did not rule out for a read, and over any new file that its partition does not
rule out; that is how delta-spark checks. Where it would accept what the judge rejects, it is not counted.

Why the engine is below the judge where it is:

- Two operations on different rows of one file conflict, since files are rewritten.
- A change of properties fails every concurrent write, as the documentation promises, even where an order exists.
- At WriteSerializable only blind appends change their place in the order, and transactions that skip them. The judge
  takes any order.
- A new file holds rows that were only copied, too, and statistics cannot tell them from new ones.
"""


@dataclass
class Cell:
    """Histories that the judge accepts, and how many of them others accept."""

    judge: int = 0
    engine: int = 0
    plain: int = 0

    def add(self, other: Cell) -> None:
        self.judge += other.judge
        self.engine += other.engine
        self.plain += other.plain

    def __str__(self) -> str:
        return f"{self.engine} / {self.judge} ({self.plain})" if self.judge else "-"

    def shares(self) -> str:
        return f"{self.judge:,} | {self.engine / self.judge:.0%} | {self.plain / self.judge:.0%}"


Table = dict[tuple[str, str], Cell]


def measure(engine: Engine, cases: Sequence[Case] = ALL) -> Table:
    """Every ordered pair of operations that begin at the same version, by their kinds."""
    table: Table = {}
    for first in cases:
        winner = engine.commit(engine.root, engine.begin(engine.root, first))
        assert isinstance(winner, Version)
        for second in cases:
            staged = engine.begin(engine.root, second, copy=int(first is second))
            cell = table.setdefault((first.kind, second.kind), Cell())
            if accepts(supposed(winner, staged), engine.level):
                engines = isinstance(engine.commit(winner, staged), Version)
                cell.add(Cell(1, engines, plain.accepts(engine, winner, staged)))
            else:
                assert not isinstance(engine.commit(winner, staged), Version)
    return table


def whole(table: Table) -> Cell:
    """All cells together."""
    cell = Cell()
    for each in table.values():
        cell.add(each)
    return cell


def render(level: str, layout: str, table: Table) -> Iterator[str]:
    kinds = list(dict.fromkeys(first for first, _ in table))
    yield f"\n## {level}, {layout}\n"
    yield "| first \\ second | " + " | ".join(kinds) + " |"
    yield "|---" * (len(kinds) + 1) + "|"
    for first in kinds:
        yield f"| {first} | " + " | ".join(str(table[first, second]) for second in kinds) + " |"


def refusals(version: Version, level: str) -> Iterator[tuple[str, bool]]:
    """For every commit that was refused behind this version: by which rule, and whether the judge would have accepted
    it.
    """
    for staged, outcome in version.children.items():
        if isinstance(outcome, Refusal):
            yield outcome.rule, accepts(supposed(version, staged), level)
        elif outcome is not version:
            yield from refusals(outcome, level)


def skipped_appends() -> Iterator[str]:
    yield "\n## Blind appends that are skipped, at WriteSerializable\n"
    yield "A transaction that skipped a blind append may have no place in any order (rule `append-skipped`). Of the"
    yield "commits that this rule refuses, each in another history, how many would the judge have refused?\n"
    yield "| histories | refused by the rule | by the judge too |"
    yield "|---|---|---|"
    for count, cases in ((3, BASIC), (4, CYCLE)):
        for partitioned in (False, True):
            table = Core(WRITE_SERIALIZABLE, partitioned=partitioned)
            explore(table, cases, count)
            found = [fine for rule, fine in refusals(table.root, table.level) if rule == "append-skipped"]
            layout = "partitioned" if partitioned else "unpartitioned"
            yield f"| {count} of {len(cases)} operations, {layout} | {len(found)} | {found.count(False)} |"


def report() -> str:
    """The whole file."""
    measured = {
        (level, "partitioned by colour" if partitioned else "unpartitioned"): measure(
            Engine(level, partitioned=partitioned)
        )
        for level in LEVELS
        for partitioned in (False, True)
    }
    lines = [HEAD.format(operations=len(ALL)), "| level | table | judge | engine | plain |", "|---|---|---|---|---|"]
    lines += [f"| {level} | {layout} | {whole(table).shares()} |" for (level, layout), table in measured.items()]
    for (level, layout), table in measured.items():
        lines += render(level, layout, table)
    lines += skipped_appends()
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    NOTES.write_text(report())
