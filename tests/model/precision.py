"""How often the engine lets a transaction commit where the judge would. ``make precision`` writes the tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from model import delta_spark, plain
from model.branches import Refusal, Version, supposed
from model.cases import ALL, BASIC, CYCLE, Case
from model.core import Core
from model.engine import Engine
from model.exhaustive import explore, pairs
from model.judge import LEVELS, WRITE_SERIALIZABLE, accepts

NOTES = Path(__file__).resolve().parents[2] / "spec_notes" / "precision.md"

HEAD = """# Precision

Written by `make precision`; a test holds it to the engine. What the numbers are of is in `tests/model`.

Two transactions begin at the same version; one commits, then the other one wants to. Each cell is about all variants
of two kinds of operation ({operations} operations in all, over a table of three rows in two files), and says in how
many histories the second one commits: **in the engine / by the judge (by plain checking of files, by delta-spark)**.
The judge tries all serial orders, row by row; the engine never accepts what the judge does not. Plain checking
conflicts over the removal of any file that statistics did not rule out for a read, and over any new file that its
partition does not rule out. Where it would accept what the judge rejects, it is not counted.

delta-spark's number is of its own optimistic transactions (`make precision-spark`), on every history that the judge
accepts: the second operation reads by its predicate, then the first one's commit is put into the log as the engine made
it, then delta-spark commits what the engine has staged. Of a MERGE the predicate is the keys of its source, although
delta-spark's own MERGE would go through all files here. It stays below plain checking where it counts compacted files
as added, and where it skips files for a list of keys by the least and the greatest of them.

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
    spark: int = 0

    def add(self, other: Cell) -> None:
        self.judge += other.judge
        self.engine += other.engine
        self.plain += other.plain
        self.spark += other.spark

    def __str__(self) -> str:
        return f"{self.engine} / {self.judge} ({self.plain}, {self.spark})" if self.judge else "-"

    def shares(self) -> str:
        shares = [f"{accepted / self.judge:.0%}" for accepted in (self.engine, self.plain, self.spark)]
        return " | ".join([f"{self.judge:,}", *shares])


Table = dict[tuple[str, str], Cell]


def measure(engine: Engine, cases: Sequence[Case] = ALL) -> Table:
    """Every ordered pair of operations that begin at the same version, by their kinds."""
    table: Table = {}
    answers = delta_spark.recorded(engine.title)
    for first, second, winner, staged in pairs(engine, cases):
        cell = table.setdefault((first.kind, second.kind), Cell())
        commits = isinstance(engine.commit(winner, staged), Version)
        if accepts(supposed(winner, staged), engine.level):
            answer = answers[first.name, second.name]
            assert answer != delta_spark.UNASKED, "run make precision-spark"
            cell.add(Cell(1, commits, plain.accepts(engine, winner, staged), answer == delta_spark.COMMITS))
        else:
            assert not commits
    return table


def whole(table: Table) -> Cell:
    """All cells together."""
    cell = Cell()
    for each in table.values():
        cell.add(each)
    return cell


def next_to_delta_spark(tables: Iterable[Table]) -> str:
    """In how many cells the engine is above delta-spark, and in how many it is not."""
    cells = [cell for table in tables for cell in table.values() if cell.judge]
    above, below = (sum(sign * (c.engine - c.spark) > 0 for c in cells) for sign in (1, -1))
    equal = len(cells) - above - below
    return f"Of {len(cells)} cells, the engine is above delta-spark in {above}, equal in {equal}, below in {below}."


def render(title: str, table: Table) -> Iterator[str]:
    kinds = list(dict.fromkeys(first for first, _ in table))
    yield f"\n## {title}\n"
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
    engines = [Engine(level, partitioned=partitioned) for level in LEVELS for partitioned in (False, True)]
    tables = {engine.title: measure(engine) for engine in engines}
    lines = [HEAD.format(operations=len(ALL))]
    lines += ["| table | judge | engine | plain | delta-spark |", "|---|---|---|---|---|"]
    lines += [f"| {title} | {whole(table).shares()} |" for title, table in tables.items()]
    lines += ["", next_to_delta_spark(tables.values())]
    for title, table in tables.items():
        lines += render(title, table)
    lines += skipped_appends()
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    NOTES.write_text(report())
