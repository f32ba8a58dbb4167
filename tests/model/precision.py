"""How often the engine lets a transaction commit where the judge would. ``make precision`` writes the tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import product
from pathlib import Path

from by_path import generator
from model import delta_spark, plain, tables
from model.branches import Refusal, Version, supposed
from model.cases import ALL, BASIC, CYCLE, Case
from model.core import Core
from model.engine import Engine
from model.exhaustive import explore, pairs
from model.layouts import (
    FILES,
    LAYOUTS,
    PARTITIONED,
    PARTITIONED_FILES,
    PARTITIONED_ROWS,
    PLAIN,
    ROWS,
    TRACKED,
    TRACKED_FILES,
    TRACKING,
    Layout,
)
from refdelta.conformance.judge import LEVELS, WRITE_SERIALIZABLE, accepts
from refdelta.core.commit.transaction import CommitOutcome

NOTES = Path(__file__).resolve().parents[2] / "spec_notes" / "precision.md"

HEAD = """# Precision

Written by `make precision`; a test holds it to the engine. `tests/model` has what they count.

Two transactions begin at the same version; one commits, then the other one wants to. Each cell is
about all variants of two kinds of operation ({operations} operations in all, over a table of four rows in two
files, of which one had a row more), and says in how many histories the second one commits. The
judge tries all serial orders, row by row; the engine never accepts what the judge does not. Only
histories that the judge accepts are counted.

- **By files**: files decide over conflicts, where the table has no deletion vectors, or where rows
  were not to be compared.
- **By rows**: rows decide, as they do by default on a table with deletion vectors and without
  partition columns.
- **Plain**: plain checking by files conflicts over the removal of any file that statistics did not
  rule out for a read, and over any new file that its partition does not rule out. A file that gets
  another deletion vector is removed and new.
- **delta-spark**: its own optimistic transactions (`make search NAME=precision-spark`). The second operation
  reads by its predicate, then the first one's commit is put into the log as the engine made it,
  then delta-spark commits what the engine has staged. Of a MERGE the predicate is the keys of its
  source, although delta-spark's own MERGE would go through all files here. It stays below plain
  checking where it counts compacted files as added, and where it skips files for a list of keys by
  the least and the greatest of them.

Why the engine is below the judge where it is:

- Without deletion vectors, or where rows are not compared, operations on different rows of one file
  conflict.
- By rows, a MERGE that matches a row and leaves it alone has read it: it conflicts with an UPDATE
  of that row, although it would find the row again.
- RESTORE and overwrites read everything, and OPTIMIZE ZORDER does not say where rows went; these
  tables do not track rows, by whose ids it could be followed. Those at the end do.
- A change of properties fails every concurrent write, as the documentation promises, even where an
  order exists.
- At WriteSerializable only blind appends change their place in the order, and transactions that
  skip them. The judge takes any order.
- A new file of a table without deletion vectors holds rows that were only copied, too, and
  statistics cannot distinguish them from new ones.
"""


@dataclass
class Cell:
    """Histories, how many of them the judge accepts, and how many of these others accept."""

    all: int = 0
    judge: int = 0
    engine: int = 0
    plain: int = 0
    spark: int = 0

    def __add__(self, other: Cell) -> Cell:
        return Cell(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))


Table = dict[tuple[str, str], Cell]


def measure(engine: Engine, cases: Sequence[Case] = ALL) -> Table:
    """Every ordered pair of operations that begin at the same version, by their kinds. Nobody has asked delta-spark
    about tables that track rows.
    """
    table: Table = {}
    answers = None if engine.layout.tracked else delta_spark.recorded(engine.level, engine.layout)
    for first, second, winner, staged in pairs(engine, cases):
        kinds = first.kind, second.kind
        commits = isinstance(engine.commit(winner, staged), Version)
        cell = Cell(all=1)
        if accepts(supposed(winner, staged), engine.level):
            answer = answers[first.name, second.name] if answers is not None else ""
            assert answer != delta_spark.UNASKED, "run make search NAME=precision-spark"
            cell = Cell(1, 1, commits, plain.accepts(engine, winner, staged), answer == delta_spark.COMMITS)
        else:
            assert not commits
        table[kinds] = table.get(kinds, Cell()) + cell
    return table


def whole(table: Table) -> Cell:
    """All cells together."""
    return sum(table.values(), Cell())


def next_to_delta_spark(measured: Iterable[Table]) -> str:
    """In how many cells the engine is above delta-spark, and in how many it is not."""
    cells = [cell for table in measured for cell in table.values() if cell.judge]
    above, below = (sum(sign * (c.engine - c.spark) > 0 for c in cells) for sign in (1, -1))
    equal = len(cells) - above - below
    return f"Of {len(cells)} cells, the engine is above delta-spark in {above}, equal in {equal}, below in {below}."


@dataclass(frozen=True)
class Section:
    """What is measured of one table: by files, and where it has deletion vectors by rows as well."""

    title: str
    files: Table
    rows: Table | None

    def summary(self) -> str:
        cell, rows = whole(self.files), None if self.rows is None else whole(self.rows).engine
        found = (cell.engine, rows, cell.plain, cell.spark)
        shares = ["-" if accepted is None else f"{accepted / cell.judge:.0%}" for accepted in found]
        return f"| {self.title} | {cell.judge:,} | " + " | ".join(shares) + " |"

    def cell(self, kinds: tuple[str, str]) -> str:
        found = self.files[kinds]
        if not found.judge:
            return "-"
        engine = f"{found.engine}" if self.rows is None else f"{self.rows[kinds].engine} / {found.engine}"
        return f"{engine} / {found.judge} ({found.plain}, {found.spark})"

    def lines(self) -> Iterator[str]:
        kinds = list(dict.fromkeys(first for first, _ in self.files))
        yield f"\n## {self.title}\n"
        yield (
            "By rows / by files / judge (plain, delta-spark)\n"
            if self.rows
            else "Engine / judge (plain, delta-spark)\n"
        )
        yield "| first \\ second | " + " | ".join(kinds) + " |"
        yield "|---" * (len(kinds) + 1) + "|"
        for first in kinds:
            yield f"| {first} | " + " | ".join(self.cell((first, second)) for second in kinds) + " |"


SECTIONS: tuple[tuple[Layout, Layout | None], ...] = (
    (PLAIN, None),
    (FILES, ROWS),
    (PARTITIONED, None),
    (PARTITIONED_FILES, PARTITIONED_ROWS),
)
"""Of each table how files decide, and how rows do."""


def tracked_rows(by_files: Table, by_rows: Table, untracked: Table) -> Iterator[str]:
    """The table of histories on a table that tracks rows, next to one that does not."""
    kinds = list(dict.fromkeys(first for first, _ in by_rows))
    yield "| first \\ second | " + " | ".join(kinds) + " |"
    yield "|---" * (len(kinds) + 1) + "|"
    for first in kinds:
        cells = []
        for pair in ((first, second) for second in kinds):
            found = by_rows[pair]
            same = f"{found.engine} / {by_files[pair].engine} / {found.judge} ({untracked[pair].engine})"
            cells.append(same if found.judge else "-")
        yield f"| {first} | " + " | ".join(cells) + " |"


def where_rows_are_tracked(measured: Mapping[tuple[str, Layout], Table]) -> Iterator[str]:
    """What ids of rows change: operations are followed that do not say where rows went."""
    yield "\n## Tables that track rows, unpartitioned, vectors\n"
    yield "By rows / by files / judge (by rows, where rows are not tracked). Delta-spark was not asked about"
    yield "these.\n"
    yield "| level | judge | by files | by rows | by rows, not tracked |"
    yield "|---|---|---|---|---|"
    found = {level: [measured[level, one] for one in (TRACKED_FILES, TRACKED, ROWS)] for level in LEVELS}
    for level, tables_of_level in found.items():
        cells = [whole(table) for table in tables_of_level]
        shares = " | ".join(f"{cell.engine / cell.judge:.0%}" for cell in cells)
        yield f"| {level} | {cells[1].judge:,} | {shares} |"
    for level, tables_of_level in found.items():
        yield f"\n### {level}, rows tracked\n"
        yield from tracked_rows(*tables_of_level)


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
    yield "A transaction that skipped a blind append may have no place in any order (rule `append-skipped`). Of"
    yield "the commits that this rule refuses, each in another history, how many would the judge have refused?\n"
    yield "| histories | refused by the rule | by the judge too |"
    yield "|---|---|---|"
    for (count, cases), layout in product(((3, BASIC), (4, CYCLE)), (PARTITIONED, ROWS)):
        table = Core(WRITE_SERIALIZABLE, layout)
        explore(table, cases, count)
        found = [fine for rule, fine in refusals(table.root, table.level) if rule == "append-skipped"]
        yield f"| {count} of {len(cases)} operations, {layout} | {len(found)} | {found.count(False)} |"


@dataclass
class Pairs:
    """Ordered pairs of operations that wait at once.

    Attributes:
        all: how many.
        judge: of how many it accepts one order or the other.
        single: how often both commit where each has a version for itself, in this order.
        both: how often both commit in a group.
        shared: of these, how often as members of one version.
        worse: how often a group fails one, and single commits do not.
    """

    all: int = 0
    judge: int = 0
    single: int = 0
    both: int = 0
    shared: int = 0
    worse: int = 0

    def __add__(self, other: Pairs) -> Pairs:
        return Pairs(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))


def in_groups(table: Core, cases: Sequence[Case] = ALL) -> dict[tuple[str, str], Pairs]:
    """What becomes of every ordered pair of operations that wait for one version, by their kinds."""
    found: dict[tuple[str, str], Pairs] = {}
    for first, second, winner, staged in pairs(table, cases):
        waiting = table.begin(table.root, first)
        ends = table.together(table.root, [waiting, staged])
        versions = {one.version for one in ends if isinstance(one, CommitOutcome)}
        both = not any(isinstance(one, Exception) for one in ends)
        single = isinstance(table.commit(winner, staged), Version)
        other = table.commit(table.root, staged)
        orders = [supposed(winner, staged)] + ([supposed(other, waiting)] if isinstance(other, Version) else [])
        judge = any(accepts(order, table.level) for order in orders)
        assert judge or not both
        kinds = first.kind, second.kind
        pair = Pairs(1, judge, single, both, both and len(versions) == 1, single and not both)
        found[kinds] = found.get(kinds, Pairs()) + pair
    return found


def as_members() -> Iterator[str]:
    """How often two that wait at once both commit in a group, and share a version."""
    yield "\n## Members of one version\n"
    yield "Two transactions that read the same version wait for the next one. Each row is about all ordered"
    yield "pairs: in how many the judge accepts one order or the other; in how many both commit, each with a"
    yield "version for itself in this order; in how many both commit in a group, which may choose the order;"
    yield "and in how many of these as members of one version. The rows of each version are held to those of"
    yield "its members one after the other.\n"
    yield "| table | judge | single commits | group | in one version |"
    yield "|---|---|---|---|---|"
    measured = {(level, layout): in_groups(tables.core(level, layout)) for level, layout in product(LEVELS, LAYOUTS)}
    for (level, layout), found in measured.items():
        whole_of = sum(found.values(), Pairs())
        shares = " | ".join(f"{n / whole_of.judge:.0%}" for n in (whole_of.single, whole_of.both, whole_of.shared))
        yield f"| {level}, {layout} | {whole_of.judge:,} | {shares} |"
    found = measured[WRITE_SERIALIZABLE, ROWS]
    yield f"\n### {WRITE_SERIALIZABLE}, {ROWS}\n"
    yield "In one version / both commit / judge. Operations that must be seen by name, and those that rearrange"
    yield "rows, go alone.\n"
    kinds = list(dict.fromkeys(first for first, _ in found))
    yield "| first \\ second | " + " | ".join(kinds) + " |"
    yield "|---" * (len(kinds) + 1) + "|"
    for first in kinds:
        row = [found[first, second] for second in kinds]
        cells = [f"{one.shared} / {one.both} / {one.judge}" if one.judge else "-" for one in row]
        yield f"| {first} | " + " | ".join(cells) + " |"


def report() -> str:
    """The whole file."""
    measured = {table: measure(tables.engine(*table)) for table in product(LEVELS, LAYOUTS)}
    sections = [
        Section(delta_spark.title(level, files), measured[level, files], measured[level, rows] if rows else None)
        for level, (files, rows) in product(LEVELS, SECTIONS)
    ]
    lines = [HEAD.format(operations=len(ALL))]
    lines += ["| table | judge | by files | by rows | plain | delta-spark |", "|---|---|---|---|---|---|"]
    lines += [section.summary() for section in sections]
    lines += ["", next_to_delta_spark(measured.values())]
    for section in sections:
        lines += section.lines()
    lines += skipped_appends()
    tracked = {table: measure(tables.engine(*table)) for table in product(LEVELS, TRACKING)}
    lines += where_rows_are_tracked(measured | tracked)
    lines += as_members()
    return generator("formatting").formatted("\n".join(lines) + "\n")


if __name__ == "__main__":
    NOTES.write_text(report())
