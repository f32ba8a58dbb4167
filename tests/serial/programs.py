"""Programs by seed: a table, and transactions that begin and commit in an order that is drawn too."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from serial.expressions import All, Any, Column, Compare, Compute, Expression, IsNull, Literal
from serial.world import (
    FEATURES,
    AddColumn,
    AddConstraint,
    Append,
    Attempt,
    Clause,
    ClusterBy,
    Copy,
    Count,
    Create,
    Delete,
    DropColumn,
    DropConstraint,
    DropFeature,
    Merge,
    Overwrite,
    Read,
    Rearrange,
    RenameColumn,
    Restore,
    SetDomain,
    SetNotNull,
    SetProperty,
    Statement,
    Step,
    Tally,
    TallyDomain,
    TallyDomains,
    Transaction,
    Update,
    Vacuum,
    World,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

COLUMNS = ("id", "k", "v", "p")
LEVELS = ("Serializable", "WriteSerializable")
MAPPED = {"delta.columnMapping.mode": "name"}
NUMBER = "n"
"""The identity column of a table that numbers its rows. The oracle does not know it."""

ALONE = (Vacuum, DropFeature, Write, Create)
"""Steps that begin and commit by themselves, some several times, so that each is a transaction by itself."""

PAUSES = 4
"""At how many points the transactions beside such a step may go on."""

FEW_FILES = 0
"""A bound of the engine on what it remembers of winners' files, as some programs set it."""


@dataclass(frozen=True)
class Program:
    """A program.

    Attributes:
        seed: of which it was drawn.
        theme: what the draw favoured.
        level: the table's isolation level.
        properties: the table's properties.
        features: features that are named when it is created.
        partitioned: whether it is partitioned by ``p``.
        clustering: clustering columns, if any.
        setup: transactions that run one after the other, each of one step, ten days before the others.
        transactions: the transactions.
        schedule: their numbers, once for each of their points.
        lags: by how many milliseconds the clock of each is behind the store's.
        linked: whether the table is in a folder that has another name, too.
        forgetful: whether the engine remembers :data:`FEW_FILES` only.
        absent: whether there is no table before the transactions. Then there is no setup either.
        numbered: whether the table has the identity column :data:`NUMBER`.
    """

    seed: int
    theme: str
    level: str
    properties: Mapping[str, str] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    partitioned: bool = False
    clustering: tuple[str, ...] = ()
    setup: tuple[Step, ...] = ()
    transactions: tuple[Transaction, ...] = ()
    schedule: tuple[int, ...] = ()
    lags: tuple[int, ...] = ()
    linked: bool = False
    forgetful: bool = False
    absent: bool = False
    numbered: bool = False

    @property
    def world(self) -> World:
        """The table before the transactions, by the oracle."""
        features = set(self.features).union(*(FEATURES.get(name, ()) for name in self.properties))
        features |= {"clustering", "domainMetadata"} if self.clustering else set()
        world = World(
            () if self.absent else COLUMNS,
            exists=not self.absent,
            clustering=self.clustering or None,
            features=frozenset(features),
            partitioned=self.partitioned,
        )
        versions = {0: world}
        for version, step in enumerate(self.setup, start=1):
            world, _ = Transaction((step,)).on(world)
            versions[version] = world
        return World(**{**vars(world), "versions": versions})

    def __str__(self) -> str:
        told = [f"seed {self.seed}, theme {self.theme}, {self.level}, {dict(self.properties)}"]
        told += [f"features {list(self.features)}"] if self.features else []
        told += ["partitioned by p"] if self.partitioned else []
        told += [f"clustered by {', '.join(self.clustering)}"] if self.clustering else []
        told += ["the folder has a second name"] if self.linked else []
        told += ["few files are remembered"] if self.forgetful else []
        told += ["there is no table"] if self.absent else []
        told += [f"{NUMBER} is an identity column"] if self.numbered else []
        told += [f"version {version}: {shown(step)}" for version, step in enumerate(self.setup, start=1)]
        for number, one in enumerate(self.transactions):
            asked = f" at {one.isolation}" if one.isolation else ""
            asked += f" as {one.application}" if one.application else ""
            asked += f", clock {self.lags[number]} ms late" if any(self.lags) else ""
            told.append(f"T{number}{asked}: " + "; ".join(map(shown, one.steps)))
        told.append("schedule " + " ".join(f"T{number}" for number in self.schedule))
        return "\n".join(told)


def points(transaction: Transaction) -> int:
    """How often a transaction is in the schedule: begin, each step, commit."""
    return 1 + PAUSES if isinstance(transaction.steps[0], ALONE) else 2 + len(transaction.steps)


def shown(step: object) -> str:
    """A step, in short."""
    match step:
        case Read(predicate):
            return f"read({predicate or ''})"
        case Tally(id_, predicate):
            return f"append(id={id_}, count and sum(v) of read({predicate or ''}))"
        case TallyDomain(domain, predicate):
            return f"domain {domain} = count of read({predicate or ''})"
        case SetDomain(domain, configuration):
            return f"domain {domain} = {configuration!r}"
        case Count(domain, by_transaction):
            return f"domain {domain} + 1, as {'the transaction' if by_transaction else 'a handle'} reads it"
        case TallyDomains(id_):
            return f"append(id={id_}, count and sum of all domains)"
        case Create(columns, mode, properties):
            return f"create table({', '.join(columns)}; {mode}, {dict(properties)})"
        case Append(rows):
            return f"append{_rows(rows)}"
        case Copy(form, predicate):
            return f"append(copy of the table's rows where {predicate or 'TRUE'}, given as {form})"
        case Delete(predicate):
            return f"delete({predicate or ''})"
        case Update(values, predicate):
            return f"update({_values(values)} where {predicate or 'TRUE'})"
        case Merge(source, on, clauses):
            rows = shown(source)[7:-1] if isinstance(source, Copy) else _rows(source)
            return f"merge({rows}, on {on}; {'; '.join(map(_clause, clauses))})"
        case Overwrite(rows, predicate):
            return f"overwrite({_rows(rows)} where {predicate or 'TRUE'})"
        case Attempt(inner, well, failed):
            return f"try {shown(inner)} then append{_rows(well)} except append{_rows(failed)}"
        case AddConstraint(name, condition):
            return f"add constraint {name}: {condition}"
        case Write(rows, columns, mode, schema_mode, predicate):
            return (
                f"write({', '.join(columns)}: {_rows(rows)}, {mode}, schema {schema_mode}, where {predicate or 'TRUE'})"
            )
    return repr(step)


def _rows(rows: Sequence[Mapping[str, object]]) -> str:
    return "[" + ", ".join("(" + ", ".join(str(row.get(name)) for name in COLUMNS) + ")" for row in rows) + "]"


def _values(values: Mapping[str, Expression]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def _clause(clause: Clause) -> str:
    when = f"{clause.when}{f' and {clause.predicate}' if clause.predicate else ''}"
    if clause.values is None:
        return f"{when}: delete"
    return f"{when}: {'insert' if clause.when == 'not matched' else 'update'} {_values(clause.values)}"


# --- the draw --------------------------------------------------------------------------------------------------------

THEMES = (
    "rows",
    "rows",
    "merges",
    "tallies",
    "copies",
    "failures",
    "domains",
    "alters",
    "features",
    "restores",
    "upkeep",
    "cycles",
    "cycles",
    "times",
    "clusters",
)


def draw(seed: int) -> Program:
    """The program of a seed."""
    return Draw(seed).program()


class Draw:
    """Draws the program of a seed, by the first vocabulary. :mod:`serial.wider` has another one."""

    themes = THEMES
    partitioned_share = 0.15

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.theme = self.dice.choice(self.themes)
        self.ids = iter(range(1, 1000))
        self.domain_names = ("a", "b")

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def program(self) -> Program:
        dice, theme = self.dice, self.theme
        level = LEVELS[1] if theme == "cycles" else dice.choice(LEVELS)
        properties: dict[str, str] = {"delta.isolationLevel": level}
        vectors = self.chance(0.65)
        if vectors:
            properties["delta.enableDeletionVectors"] = "true"
        if self.chance(0.15):
            properties["delta.enableChangeDataFeed"] = "true"
        if self.chance(0.2) and theme != "features":
            properties["delta.enableRowTracking"] = "true"
        if theme in ("alters", "restores", "clusters") or self.chance(0.05):
            properties |= MAPPED
        if self.chance(0.1) and theme != "times":
            properties["delta.enableInCommitTimestamps"] = "true"
        self.partitioned = self.chance(self.partitioned_share)
        self.clustering: tuple[str, ...] = ()
        if theme == "clusters":
            self.partitioned, self.clustering = False, ("k",)
        if (
            not self.partitioned
            and self.chance({"upkeep": 0.4, "alters": 0.5, "restores": 0.3}.get(theme, 0.1))
            and theme != "features"
        ):
            self.clustering = dice.choice([("k",), ("v",), ("k", "v")])
        features = ("domainMetadata",) if theme in ("domains", "features", "cycles") or self.chance(0.3) else ()
        self.has_domains = bool(features or self.clustering or "delta.enableRowTracking" in properties)
        if features == ("domainMetadata",) and (self.clustering or "delta.enableRowTracking" in properties):
            features = ()
        setup = self.setup()
        self.versions = len(setup)
        count = dice.choices((2, 3, 4), (0, 4, 4) if theme == "cycles" else (4, 4, 2))[0]
        transactions = tuple(self.transaction(number) for number in range(count))
        tokens = [number for number, one in enumerate(transactions) for _ in range(points(one))]
        late = self.chance(0.8 if theme == "times" else 0.15)
        return Program(
            seed=self.seed,
            theme=theme,
            level=level,
            properties=properties,
            features=features,
            partitioned=self.partitioned,
            clustering=self.clustering,
            setup=setup,
            transactions=transactions,
            schedule=tuple(self.schedule(tokens)),
            lags=tuple(dice.choice((0, 60_000)) if late else 0 for _ in transactions),
            forgetful=theme == "cycles" and self.chance(0.5),
            linked=theme == "copies" and self.chance(0.25),
        )

    def schedule(self, tokens: list[int]) -> list[int]:
        if self.theme == "cycles" and self.chance(0.6):
            # The first one begins before the others, which see each other, and commits after them.
            return [*(number for number in tokens if number == 0)][:-1] + [n for n in tokens if n] + [0]
        if self.chance(0.3):
            # Each is begun before any is committed.
            firsts = list(dict.fromkeys(tokens))
            rest = list(tokens)
            for number in firsts:
                rest.remove(number)
            self.dice.shuffle(firsts)
            self.dice.shuffle(rest)
            return firsts + rest
        self.dice.shuffle(tokens)
        return tokens

    def setup(self) -> tuple[Step, ...]:
        steps: list[Step] = [Append(self.rows(1, 3)) for _ in range(self.dice.choice((1, 1, 2, 2, 3)))]
        if self.has_domains and self.chance(0.3):
            steps.append(SetDomain(self.dice.choice(self.domain_names), "0"))
        if self.chance(0.5):
            steps.append(self.dice.choice([self.delete, self.update])(safe=True))
        if self.theme == "restores":
            steps.append(self.dice.choice([Rearrange("compact"), Delete(None), Overwrite(self.rows(1, 2))]))
            if self.chance(0.2):
                steps.append(DropColumn("v") if "v" not in self.clustering else Append(self.rows(1, 2)))
            if self.chance(0.3):
                steps.append(AddColumn("w"))
        if self.theme == "alters" and self.chance(0.3):
            # A clause that no row has broken so far.
            steps.append(AddConstraint("c0", Compare("<", Column("id"), Literal(500))))
        return tuple(steps)

    # --- transactions ---

    def transaction(self, number: int) -> Transaction:
        kinds = {
            "rows": [(self.plain, 8), (self.tallied, 2)],
            "merges": [(self.merged, 6), (self.plain, 2), (self.tallied, 3)],
            "tallies": [(self.tallied, 6), (self.plain, 3), (self.merged, 2)],
            "copies": [(self.copied, 5), (self.plain, 4), (self.tallied, 2)],
            "failures": [(self.attempted, 6), (self.plain, 4)],
            "domains": [(self.with_domain, 6), (self.plain, 4), (self.compacted, 1)],
            "alters": [(self.altered, 5), (self.plain, 3), (self.tallied, 1), (self.restored, 1)],
            "features": [(self.dropped, 2), (self.with_domain, 3), (self.altered, 2), (self.plain, 2)],
            "restores": [(self.restored, 5), (self.vacuumed, 4), (self.altered, 1), (self.plain, 2)],
            "cycles": [(self.appended, 4), (self.statement_only, 4), (self.tallied_domain, 3), (self.tallied, 2)],
            "clusters": [(self.clustered, 4), (self.reshaped, 4), (self.restored, 1), (self.plain, 1)],
            "times": [(self.timed, 3), (self.plain, 5)],
            "upkeep": [(self.compacted, 5), (self.plain, 5), (self.vacuumed, 1)],
        }[self.theme]
        if self.theme == "cycles" and number < 2:
            kinds = [(self.appended, 1)] if number else [(self.statement_only, 1)]
        steps = self.pick(kinds)()
        isolation = "Serializable" if self.chance(0.12) else None
        if self.theme == "cycles":
            isolation = None
        alone = isinstance(steps[0], ALONE)
        application = None
        if not alone and self.chance(0.06):
            application = (self.dice.choice("xy"), self.dice.choice((1, 2)))
        return Transaction(tuple(steps), None if alone else isolation, application)

    def pick(self, kinds: Sequence[tuple[Callable[[], list[Step]], int]]) -> Callable[[], list[Step]]:
        return self.dice.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]

    def plain(self) -> list[Step]:
        draws = [(self.appended, 4), (self.statement_only, 5), (self.read_and, 2), (self.compacted, 1)]
        return self.pick(draws)()

    def appended(self) -> list[Step]:
        return [Append(self.rows(1, 2)) for _ in range(self.dice.choice((1, 1, 2)))]

    def statement_only(self) -> list[Step]:
        return [self.statement()]

    def read_and(self) -> list[Step]:
        steps: list[Step] = [Read(self.predicate()), self.dice.choice([Append(self.rows(1, 1)), self.statement()])]
        if self.chance(0.3):
            steps.append(Append(self.rows(1, 1)))
        return steps

    def tallied(self) -> list[Step]:
        steps: list[Step] = [Tally(next(self.ids), self.predicate()) for _ in range(self.dice.choice((1, 1, 2)))]
        if self.chance(0.5):
            steps.insert(self.dice.randint(0, len(steps)), self.statement())
        return steps

    def merged(self) -> list[Step]:
        steps: list[Step] = [self.merge()]
        if self.chance(0.35):
            steps.insert(self.dice.randint(0, 1), Tally(next(self.ids), self.predicate()))
        return steps

    def copied(self) -> list[Step]:
        if self.chance(0.35):
            return [self.merge(own=True)]
        steps: list[Step] = [Copy(*self.copy_source())]
        if self.chance(0.3):
            steps.append(self.statement())
        return steps

    def copy_source(self) -> tuple[str, Expression | None]:
        form = self.dice.choice(("scan", "handle", "read", "list", "generator", "link"))
        return form, None if form == "handle" else self.predicate()

    def attempted(self) -> list[Step]:
        inner = self.dice.choice([Read(self.failing()), self.delete(), self.update(), self.merge(), self.update()])
        well = self.rows(1, 1) if self.chance(0.5) else ()
        steps: list[Step] = [Attempt(inner, well, self.rows(1, 1))]
        if self.chance(0.2):
            steps.append(Append(self.rows(1, 1)))
        return steps

    def with_domain(self) -> list[Step]:
        names = list(self.domain_names)
        self.dice.shuffle(names)
        steps: list[Step] = [self.domain(names.pop())]
        if self.chance(0.2):
            steps.append(self.domain(names.pop()))
        if self.chance(0.5):
            more = [Append(self.rows(1, 1)), self.statement(), Rearrange("compact"), Read(self.predicate())]
            steps.insert(self.dice.randint(0, len(steps)), self.dice.choice(more))
        return steps

    def tallied_domain(self) -> list[Step]:
        return [self.domain(self.dice.choice(self.domain_names))]

    def clustered(self) -> list[Step]:
        return [ClusterBy(self.dice.choice((("v",), ("v",), ("k", "v"), ())))]

    def reshaped(self) -> list[Step]:
        names = self.dice.choice((("id", "k", "p"), (*COLUMNS, "w")))
        write = Write(self.rows(1, 2), names, "overwrite", "overwrite")
        return [self.dice.choice([DropColumn("v"), DropColumn("v"), DropColumn("k"), RenameColumn("v", "w"), write])]

    def timed(self) -> list[Step]:
        return [SetProperty("delta.enableInCommitTimestamps", "true")]

    def domain(self, name: str) -> Step:
        if self.chance(0.7):
            return TallyDomain(name, self.predicate())
        return SetDomain(name, str(self.dice.randint(0, 2)))

    def altered(self) -> list[Step]:
        columns = [name for name in ("k", "v") if name not in self.clustering]
        one = self.dice.choice(columns or ["k"])
        choices = [
            AddConstraint("c1", self.rule()),
            AddConstraint("c1", self.rule()),
            DropConstraint("c0"),
            DropColumn(one),
            DropColumn(one),
            RenameColumn(one, "w"),
            AddColumn("w"),
            SetNotNull(one),
            SetProperty("user.x", str(self.dice.randint(0, 2))),
            SetProperty("delta.enableInCommitTimestamps", "true"),
            SetProperty("delta.enableDeletionVectors", self.dice.choice(("true", "false"))),
            SetProperty("delta.enableRowTracking", "true"),
            *[ClusterBy((self.dice.choice(("k", "v", "w" if self.theme == "restores" else "v")),)) for _ in range(4)],
            ClusterBy(("k", "v")),
            ClusterBy(()),
            self.written(),
            self.written(),
        ]
        steps: list[Step] = [self.dice.choice(choices)]
        if isinstance(steps[0], ALONE):
            return steps
        if self.chance(0.2):
            steps.insert(0, Read(self.predicate()))
        if self.has_domains and self.chance(0.15):
            steps.insert(0, self.domain("a"))
        return steps

    def written(self) -> Write:
        rows = tuple({**row, "w": 1} for row in self.rows(1, 2))
        kinds = [
            Write(rows, COLUMNS, "append"),
            Write(rows, (*COLUMNS, "w"), "append", "merge"),
            Write(rows, ("id", "k", "p"), "overwrite", "overwrite"),
            Write(rows, ("id", "v", "p"), "overwrite", "overwrite"),
            Write(rows, (*COLUMNS, "w"), "overwrite", "overwrite"),
            Write(rows, (*COLUMNS, "w"), "overwrite", "merge", Compare("=", Column("w"), Literal(1))),
        ]
        return self.dice.choice(kinds)

    def dropped(self) -> list[Step]:
        names = ("domainMetadata", "domainMetadata", "deletionVectors", "checkConstraints", "rowTracking")
        return [DropFeature(self.dice.choice((*names, "inCommitTimestamp")))]

    def restored(self) -> list[Step]:
        steps: list[Step] = [Restore(self.dice.randint(0, self.versions))]
        if self.chance(0.15):
            steps.insert(0, Read(self.predicate()))
        return steps

    def vacuumed(self) -> list[Step]:
        return [Vacuum()]

    def compacted(self) -> list[Step]:
        how = ("compact", "compact", "purge", "cluster" if self.clustering else "z_order")
        steps: list[Step] = [Rearrange(self.dice.choice(how))]
        if self.has_domains and self.chance(0.35):
            steps.insert(self.dice.randint(0, 1), self.domain(self.dice.choice(self.domain_names)))
        elif self.chance(0.2):
            steps.insert(0, Read(self.predicate()))
        return steps

    # --- statements ---

    def statement(self) -> Statement:
        draws = [(self.delete, 4), (self.update, 4), (self.merge, 4), (self.overwrite, 1)]
        return self.pick(draws)()

    def delete(self, *, safe: bool = False) -> Delete:
        return Delete(self.predicate() if safe or self.theme != "failures" else self.failing())

    def update(self, *, safe: bool = False) -> Update:
        column = self.dice.choice(("k", "k", "v", "v", "p" if self.partitioned else "v"))
        options: list[Expression] = [Literal(self.small()), Compute("+", Column(column), Literal(1))]
        options.append(Column("v" if column == "k" else "k"))
        if column == "p":
            options = [Literal(0), Literal(1)]
        elif not safe and self.theme == "failures":
            options += [Compute("div", Literal(6), Column("v"))] * 4
        return Update({column: self.dice.choice(options)}, self.predicate())

    def overwrite(self) -> Overwrite:
        if self.chance(0.4):
            return Overwrite(self.rows(0, 2) or self.rows(1, 1))
        column = self.dice.choice(("k", "p"))
        value = self.dice.choice((0, 1))
        rows = tuple({**row, column: value} for row in self.rows(1, 2))
        return Overwrite(rows, Compare("=", Column(column), Literal(value)))

    def merge(self, *, own: bool = False) -> Merge:
        source = Copy(*self.copy_source()) if own or self.chance(0.2) else self.rows(1, 2)
        t, s = (lambda name: Column(f"t.{name}")), (lambda name: Column(f"s.{name}"))
        keys: list[Expression] = [
            Compare("=", t("k"), s("k")),
            Compare("=", t("k"), s("k")),
            Compare("<=>", t("k"), s("k")),
            Compare("<=>", t("k"), s("k")),
            Compare("=", t("id"), s("v")),
            All((Compare(">=", t("k"), s("k")), Compare("<=", t("k"), s("v")))),
            Compare("<", t("k"), s("k")),
            Compare("=", t("k"), Compute("+", s("k"), Literal(1))),
            All((Compare("<=>", t("k"), s("k")), Compare("<=>", t("v"), s("v")))),
        ]
        on = self.dice.choice(keys)
        if self.chance(0.25):
            own_part = self.dice.choice([Compare("=", t("p"), Literal(0)), Compare(">", t("v"), Literal(1))])
            on = All((on, own_part))
        values = {name: s(name) for name in COLUMNS}
        new = {**values, "id": Literal(next(self.ids))} if self.chance(0.5) else values
        clauses: list[Clause] = []
        if self.chance(0.75):
            predicate = self.dice.choice(
                [None, None, Compare("=", t("p"), Literal(1)), Compare("<", s("v"), Literal(2))]
            )
            update = self.dice.choice(
                [{"v": s("v")}, {"v": Compute("+", t("v"), Literal(1))}, {"k": Literal(self.small())}]
            )
            clauses.append(Clause("matched", None if self.chance(0.3) else update, predicate))
        if self.chance(0.7) or not clauses:
            predicate = Compare(">", s("v"), Literal(0)) if self.chance(0.2) else None
            clauses.append(Clause("not matched", new, predicate))
        if self.chance(0.15):
            predicate = self.dice.choice([None, Compare("=", t("k"), Literal(1))])
            clauses.append(Clause("by source", None if self.chance(0.5) else {"v": Literal(self.small())}, predicate))
        return Merge(source, on, tuple(clauses))

    # --- values ---

    def small(self) -> int | None:
        return self.dice.choice((0, 0, 1, 1, 2, None))

    def rows(self, least: int, most: int) -> tuple[dict[str, int | None], ...]:
        count = self.dice.randint(least, most)
        return tuple(
            {"id": next(self.ids), "k": self.small(), "v": self.small(), "p": self.dice.choice((0, 1))}
            for _ in range(count)
        )

    def predicate(self) -> Expression | None:
        if self.chance(0.25):
            return None
        one = self.atom()
        if self.chance(0.2):
            return self.dice.choice((All, Any))((one, self.atom()))
        return one

    def atom(self) -> Expression:
        column = Column(self.dice.choice(("k", "k", "v", "v", "p")))
        value = Literal(self.dice.choice((0, 0, 1, 1, 2)))
        draws = [
            (Compare("=", column, value), 8),
            (Compare("<", column, value), 2),
            (Compare(">=", column, value), 2),
            (Compare("<>", column, value), 1),
            (IsNull(column, self.chance(0.5)), 2),
            (Compare("<=>", column, Literal(self.small())), 2),
            (Compare("=", Column("k"), Column("v")), 1),
        ]
        return self.dice.choices([one for one, _ in draws], [weight for _, weight in draws])[0]

    def failing(self) -> Expression:
        """A condition that fails over a row with a zero."""
        column = Column(self.dice.choice(("k", "v")))
        return Compare(
            self.dice.choice((">", "=")), Compute("div", Literal(6), column), Literal(self.dice.choice((2, 3, 6)))
        )

    def rule(self) -> Expression:
        """The condition of a constraint."""
        column = Column(self.dice.choice(("k", "v")))
        bound = Compare("<", column, Literal(self.dice.choice((1, 2, 3))))
        return self.dice.choice([Any((bound, IsNull(column))), IsNull(column, negated=True), bound])
