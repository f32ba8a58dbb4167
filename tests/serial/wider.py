"""Programs of three more vocabularies, by seeds of their own: the seeds of the first one stay what they are.

:class:`Wider` has what the first lacks: domains that are counted up and removed, files that get row ids beside
statements which remove them, features that are added beside writes, files rewritten without deletion vectors, tables
that several transactions create or replace, identity columns, and sources that turn out late to be the table itself.
:class:`Orders` is about blind appends that are skipped, and :class:`Merging` about MERGE.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from serial.expressions import All, Any, Column, Compare, Expression, IsNull, Literal
from serial.programs import COLUMNS, LEVELS, Draw, Program, draw, points
from serial.world import (
    AddFeature,
    Append,
    Backfill,
    Clause,
    Count,
    Create,
    Delete,
    DropFeature,
    Merge,
    Read,
    Rearrange,
    RemoveDomain,
    SetDomain,
    Statement,
    Step,
    TallyDomains,
    Transaction,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Wider(Draw):
    """Draws the program of a seed."""

    themes = (
        "counts", "counts", "backfills", "additions", "rewrites", "replacements", "creations", "numbers", "sources",
        "applications",
    )  # fmt: skip

    def program(self) -> Program:
        """The program."""
        dice, theme = self.dice, self.theme
        level = dice.choice(LEVELS)
        properties = {"delta.isolationLevel": level}
        if theme != "rewrites" and self.chance(0.5):
            properties["delta.enableDeletionVectors"] = "true"
        if self.chance(0.1):
            properties["delta.enableChangeDataFeed"] = "true"
        if theme in ("counts", "rewrites") and self.chance(0.2):
            properties["delta.enableRowTracking"] = "true"
        self.partitioned = theme in ("rewrites", "backfills", "sources") and self.chance(0.4)
        self.clustering = ()
        self.has_domains = theme == "counts"
        features = ("domainMetadata",) if theme == "counts" and "delta.enableRowTracking" not in properties else ()
        setup = () if theme == "creations" else self.setup()
        transactions = tuple(self.transaction(number) for number in range(dice.choices((2, 3, 4), (4, 4, 2))[0]))
        tokens = [number for number, one in enumerate(transactions) for _ in range(points(one))]
        return Program(
            seed=self.seed,
            theme=theme,
            level=level,
            properties=properties,
            features=features,
            partitioned=self.partitioned,
            setup=setup,
            transactions=transactions,
            schedule=tuple(self.schedule(tokens)),
            lags=(0,) * len(transactions),
            absent=theme == "creations",
            numbered=theme == "numbers",
            linked=theme == "sources" and self.chance(0.3),
        )

    def schedule(self, tokens: list[int]) -> list[int]:
        """The order of the points; where there is no table, one that creates it comes first."""
        turns = super().schedule(tokens)
        if self.theme == "creations" and self.chance(0.7):
            turns.remove(0)
            return [0, *turns]
        return turns

    def setup(self) -> tuple[Step, ...]:
        """The transactions before the others."""
        if self.theme == "replacements" and self.chance(0.5):
            return ()
        steps: list[Step] = [Append(self.rows(1, 2)) for _ in range(self.dice.choice((1, 2, 3)))]
        if self.theme == "counts":
            steps += [SetDomain(name, str(self.dice.randint(0, 2))) for name in self.domain_names if self.chance(0.6)]
        if self.theme == "backfills":
            steps.append(Append(self.rows(1, 2)))
            steps += [AddFeature("rowTracking")] if self.chance(0.9) else []
        return tuple(steps)

    def transaction(self, number: int) -> Transaction:
        """One of the transactions."""
        kinds: list[tuple[Callable[[], list[Step]], int]] = {
            "counts": [(self.counted, 6), (self.removed, 2), (self.tallied_domains, 4), (self.plain, 2)],
            "backfills": [(self.backfilled, 5), (self.changed, 6), (self.compacted, 2)],
            "additions": [(self.added, 4), (self.appended, 4), (self.plain, 4)],
            "rewrites": [(self.compacted, 5), (self.changed, 7), (self.tallied, 2)],
            "replacements": [(self.replaced, 6), (self.appended, 4), (self.plain, 2), (self.tallied, 1)],
            "creations": [(self.made, 6), (self.appended, 3), (self.statement_only, 2), (self.tallied, 1)],
            "numbers": [(self.appended_once, 6), (self.changed, 3), (self.statement_only, 2), (self.compacted, 1)],
            "sources": [(self.copied, 5), (self.plain, 4)],
            "applications": [(self.appended, 5), (self.plain, 4), (self.tallied, 2)],
        }[self.theme]
        if self.theme == "creations" and number == 0:
            kinds = [(self.made, 1)]
        if self.theme == "backfills" and number == 0:
            kinds = [(self.backfilled, 1)]
        steps = self.pick(kinds)()
        alone = isinstance(steps[0], Create | Write | DropFeature)
        isolation = "Serializable" if not alone and self.theme != "creations" and self.chance(0.12) else None
        application = None
        if self.theme == "applications" and self.chance(0.8):
            application = (self.dice.choice("xy"), self.dice.choice((1, 2)))
        return Transaction(tuple(steps), isolation, application)

    def counted(self) -> list[Step]:
        """A domain is counted up, perhaps beside something else."""
        steps: list[Step] = [Count(self.dice.choice(self.domain_names), self.chance(0.5))]
        if self.chance(0.4):
            more = [Append(self.rows(1, 1)), self.statement(), Rearrange("compact"), Read(self.predicate())]
            steps.insert(self.dice.randint(0, 1), self.dice.choice(more))
        return steps

    def removed(self) -> list[Step]:
        """A domain is removed."""
        return [RemoveDomain(self.dice.choice(self.domain_names))]

    def tallied_domains(self) -> list[Step]:
        """A row that holds what domains say."""
        return [TallyDomains(next(self.ids))]

    def backfilled(self) -> list[Step]:
        """Files get row ids."""
        return [*([Read(self.predicate())] if self.chance(0.1) else []), Backfill()]

    def changed(self) -> list[Step]:
        """Rows are changed, or removed file by file."""
        draws = [(self.delete, 4), (self.update, 3), (lambda: Delete(None), 2), (self.overwrite, 1)]
        return [self.pick(draws)()]

    def added(self) -> list[Step]:
        """A feature is added, or goes."""
        if self.chance(0.15):
            return [DropFeature("rowTracking")]
        return [AddFeature(self.dice.choice(("rowTracking", "rowTracking", "domainMetadata", "deletionVectors")))]

    def appended_once(self) -> list[Step]:
        """Rows are appended by one statement: a transaction numbers rows once."""
        return [Append(self.rows(1, 3))]

    def copy_source(self) -> tuple[str, Expression | None]:
        """How rows of the table itself are given."""
        form = self.dice.choice(("late", "late", "link", "link", "scan", "list"))
        return form, self.predicate()

    # --- tables that are made ---

    def replaced(self) -> list[Step]:
        """The table is replaced by an empty one, or its rows and schema are overwritten."""
        if self.chance(0.2):
            return [Write(self.rows(1, 2), self.columns(), "overwrite", "overwrite")]
        return [Create(self.columns(), "overwrite", self.own_properties())]

    def made(self) -> list[Step]:
        """A table is created, by whoever comes first."""
        if self.chance(0.4):
            mode = self.dice.choice(("error", "append", "append", "overwrite", "ignore"))
            return [Write(self.rows(1, 2), COLUMNS, mode)]
        mode = self.dice.choice(("error", "error", "overwrite", "ignore"))
        return [Create(COLUMNS, mode, self.own_properties())]

    def columns(self) -> tuple[str, ...]:
        """The columns of the new table."""
        return self.dice.choice((COLUMNS, COLUMNS, ("id", "k", "p"), (*COLUMNS, "w")))

    def own_properties(self) -> dict[str, str]:
        """What users set."""
        return {"user.x": str(self.dice.randint(0, 2))} if self.chance(0.5) else {}


class Orders(Draw):
    """Draws a program about the order of transactions around a blind append that one of them skips.

    The first transaction begins first and commits last; the second is the append. The others count rows and append the
    count. Some of them ask to be Serializable, and predicates are few, so that many of them meet.
    """

    themes = ("cycles",)

    def program(self) -> Program:
        """The program, of the first vocabulary otherwise."""
        program = super().program()
        first, append, *others = program.transactions
        transactions = (first, append, *(self.asking(one) for one in others))
        turns = [number for number in program.schedule if number]
        last = program.schedule.count(0)
        return dataclasses.replace(
            program,
            properties={"delta.isolationLevel": LEVELS[1], "delta.enableDeletionVectors": "true"},
            partitioned=False,
            clustering=(),
            features=("domainMetadata",),
            transactions=transactions,
            schedule=(*[0] * (last - 1), *turns, 0),
        )

    def asking(self, one: Transaction) -> Transaction:
        """A transaction, perhaps at the stricter level."""
        return dataclasses.replace(one, isolation=LEVELS[0] if self.chance(0.3) else None)

    def predicate(self) -> Expression | None:
        """One of few."""
        return Compare("=", Column(self.dice.choice("kv")), Literal(self.dice.choice((0, 1))))

    def statement(self) -> Statement:
        """A DELETE, or an UPDATE."""
        return self.dice.choice((self.delete, self.update))()


def draw_wider(seed: int) -> Program:
    """The program of a seed, of the second vocabulary."""
    return Wider(seed).program()


def draw_orders(seed: int) -> Program:
    """The program of a seed, about orders."""
    return Orders(seed).program()


class Merging(Draw):
    """Programs of MERGE: null-safe keys in all their forms, and clauses by source with conditions, on tables that have
    partitions of nulls.
    """

    themes = ("merges", "merges", "tallies", "rows")
    partitioned_share = 0.6

    def rows(self, least: int, most: int) -> tuple[dict[str, int | None], ...]:
        """New rows; some have a null in the column of the partitions."""
        return tuple({**row, "p": self.dice.choice((0, 1, None))} for row in super().rows(least, most))

    def merge(self, *, own: bool = False) -> Merge:
        """A MERGE with clauses by source."""
        made = super().merge(own=own)
        on: list[Expression] = [made.on_, *(self.same(name) for name in ("k", "p", "id"))]
        on += [All((self.same("p"), self.same(self.dice.choice(("k", "v")))))] * 2
        clauses = [clause for clause in made.clauses if clause.when != "by source"]
        for _ in range(self.dice.choice((0, 1, 1, 2, 2))):
            values = None if self.chance(0.5) else {"v": Literal(self.small())}
            clauses.append(Clause("by source", values, self.condition()))
        return dataclasses.replace(made, on_=self.dice.choice(on), clauses=tuple(clauses))

    def condition(self) -> Expression:
        """The condition of a clause by source."""
        column = Column(f"t.{self.dice.choice(('p', 'p', 'p', 'k', 'v'))}")
        one = self.dice.choice([Compare("=", column, Literal(self.dice.choice((0, 1)))), IsNull(column)])
        return All((one, Compare(">=", Column("t.v"), Literal(1)))) if self.chance(0.3) else one

    def same(self, name: str) -> Expression:
        """Equality, null-safe equality or its spelled-out form, with its parts in any order."""
        sides: list[Expression] = [Column(f"t.{name}"), Column(f"s.{name}")]
        self.dice.shuffle(sides)
        form = self.dice.choice(("=", "<=>", "spelled out", "spelled out"))
        if form != "spelled out":
            return Compare(form, *sides)
        nulls = [IsNull(side) for side in sides]
        self.dice.shuffle(nulls)
        parts = [Compare("=", *sides), All(tuple(nulls))]
        self.dice.shuffle(parts)
        return Any(tuple(parts))


def draw_merging(seed: int) -> Program:
    """The program of a seed, by the vocabulary of MERGE."""
    return Merging(seed).program()


DRAWS: dict[str, Callable[[int], Program]] = {
    "first": draw,
    "wider": draw_wider,
    "orders": draw_orders,
    "merging": draw_merging,
}
"""How programs are drawn, by the name of the vocabulary."""
