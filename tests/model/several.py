"""Transactions over several tables, through the rules alone: each table is one of :mod:`model.core`, and what the
catalog ratifies at one moment is one step of a world. Every step is held to the judge, in whose world all tables are
one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from msgspec import structs

from model.branches import Refusal, Staged, Version
from model.cases import Case
from model.core import Core, _Staging
from model.entries import Wrong
from model.exhaustive import Tally, shapes
from model.layouts import Layout
from model.operations import data_of
from refdelta import errors
from refdelta.conformance.judge import (
    LEVELS,
    SERIALIZABLE,
    Effect,
    History,
    Operation,
    Row,
    State,
    Transaction,
    accepts,
    apply,
)
from refdelta.core.commit import effects
from refdelta.core.commit.loop import commit_loop
from refdelta.core.commit.together import Together, TryTogether, commit_together, with_group
from refdelta.core.commit.transaction import PreparedCommit
from refdelta.core.conflicts.isolation import IsolationLevel
from refdelta.core.conflicts.reads import ReadSet


@dataclass(frozen=True, eq=False)
class Program:
    """A transaction: by table, what it does there."""

    parts: Mapping[int, Case]

    @property
    def name(self) -> str:
        return " + ".join(f"{case.name} in {'abc'[table]}" for table, case in self.parts.items())


@dataclass(eq=False)
class World:
    """All tables at one moment.

    Attributes:
        tables: each table's version.
        transactions: those that made it of the first world, in the judge's world; and those that only read.
        number: how many ratifications led to it.
    """

    tables: tuple[Version, ...]
    transactions: tuple[Transaction, ...] = ()
    number: int = 0
    begun: dict[tuple[Program, int], Begun] = field(default_factory=dict)
    children: dict[Begun, World | Refusal] = field(default_factory=dict)


@dataclass(eq=False)
class Begun:
    """A transaction that has begun and run its statements."""

    program: Program
    at: World
    parts: dict[int, Staged]


@dataclass(frozen=True)
class Rules:
    """What a transaction over several tables does; each one left out is a mutation that the judge has to find.

    Attributes:
        traces: whether it records what it only read in the logs of tables in which appends may be skipped.
        pins: whether the versions of tables that it only read are compared at the ratification.
        skips: whether it may itself skip appends.
        blind: whether its appends count as blind for others. The engine is stricter than it would have to be: no
            history was found in which that breaks a level.
    """

    traces: bool = True
    pins: bool = True
    skips: bool = False
    blind: bool = False


class Several:
    """Some tables of one catalog.

    Args:
        levels: of each table.
        layout: of all tables.
        rules: what transactions over several of them do.
    """

    def __init__(self, levels: Sequence[str], layout: Layout, rules: Rules | None = None) -> None:
        # The weaker one is that of the history, and transactions over one table of the other are strict.
        self.level, self.rules = max(levels, key=LEVELS.index), rules or Rules()
        self.cores = [Core(level, layout) for level in levels]
        self.root = World(tuple(core.root for core in self.cores))
        self.start = frozenset().union(*(_lifted(n, one.state) for n, one in enumerate(self.root.tables)))

    # --- steps ---

    def begin(self, world: World, program: Program, copy: int = 0) -> Begun:
        key = program, copy
        if key not in world.begun:
            parts = {}
            for table, case in program.parts.items():
                core, version = self.cores[table], world.tables[table]
                alone = len(program.parts) == 1
                staged = core.stage(version, case, None) if alone else self._part(core, version, case)
                parts[table] = Staged(case, version, False, staged)
            world.begun[key] = Begun(program, world, parts)
        return world.begun[key]

    def _part(self, core: Core, version: Version, case: Case) -> PreparedCommit:
        staging = _Staging(ReadSet(version=version.in_log))
        core._change(staging, version, case, case.statement("T", version.state))
        prepared = core._prepared(staging, version, case, None)
        blind = self.rules.blind and prepared.commit_info["isBlindAppend"]
        return structs.replace(
            prepared,
            level=prepared.level if self.rules.skips else IsolationLevel.SERIALIZABLE,
            commit_info={**prepared.commit_info, "isBlindAppend": blind},
            spans_tables=not blind,
        )

    def commit(self, world: World, begun: Begun) -> World | Refusal:
        if begun not in world.children:
            try:
                data = self._committed(world, begun)
            except errors.ConcurrentModificationError as error:
                world.children[begun] = Refusal(type(error), error.conflict)
            else:
                world.children[begun] = self._made(world, begun, data)
        return world.children[begun]

    def _committed(self, world: World, begun: Begun) -> dict[int, bytes]:
        """The commits by table; empty if it only reads."""
        if len(begun.parts) == 1:
            ((table, staged),) = begun.parts.items()
            made = self.cores[table].attempt(world.tables[table], staged)
            return {} if made is None else {table: made.data[0]}
        if not any(_writes(staged) for staged in begun.parts.values()):
            return {}
        taking = {t: one for t, one in begun.parts.items() if _writes(one) or self.rules.pins or self._traces(t)}
        tables = list(taking)
        pinned = {n for n, t in enumerate(tables) if not _writes(taking[t]) and not self._traces(t)}
        run = commit_together([commit_loop(taking[t].transaction) for t in tables], pinned)
        found: dict[int, bytes] = {}
        reply: Any = None
        while True:
            try:
                ask = run.send(reply)
            except StopIteration:
                return {tables[n]: data for n, data in found.items()}
            if not isinstance(ask, TryTogether):
                table = tables[ask.table]
                reply = self.cores[table]._reply(world.tables[table].log, [taking[table]], ask.effect)
                continue
            lost = {n for n, one in ask.tries.items() if one.version <= world.tables[tables[n]].in_log}
            if lost:
                reply = Together({n: effects.Exists() if n in lost else effects.Deferred() for n in ask.tries})
                continue
            group = {"transactionId": begun.program.name, "participants": [], "coordinatingCatalog": "model"}
            found = {n: self._grouped(one.data, group) for n, one in ask.tries.items() if n not in pinned}
            reply = Together({n: effects.Committed() for n in ask.tries})

    def _grouped(self, data: bytes, group: dict[str, Any]) -> bytes:
        return data if self.rules.blind and b'"isBlindAppend":true' in data else with_group(data, group)

    def _traces(self, table: int) -> bool:
        return self.rules.traces and self.cores[table].level != SERIALIZABLE

    def _made(self, world: World, begun: Begun, data: dict[int, bytes]) -> World:
        name = f"V{len(world.transactions) + 1} {begun.program.name}"
        operation = _operation(begun.program)
        number = world.number + 1 if data else None
        strict = len(begun.parts) == 1 and self.cores[min(begun.parts)].level == SERIALIZABLE
        made = Transaction(name, operation, begun.at.number, number, strict=strict)
        tables = list(world.tables)
        for table, staged in begun.parts.items():
            effect = staged.case.statement(name, staged.at.state)
            before, core = world.tables[table], self.cores[table]
            if table not in data:
                if data and effect.writes:
                    raise Wrong(f"{name} did not write to {table}")
                continue
            content = core._behind(before.content, data[table])
            after = Version((*before.log, data[table]), content, before.entries, state=apply(before.state, effect))
            tables[table] = after
            if core.contents(after) != data_of(after.state):
                raise Wrong(f"table {table} has {core.contents(after)}, it should have {data_of(after.state)}: {name}")
        new = World(tuple(tables), (*world.transactions, made), world.number if number is None else number)
        if not accepts(History(self.start, new.transactions), self.level):
            steps = ", ".join(f"{one.name} (from {one.began})" for one in new.transactions)
            raise Wrong(f"at {self.level}, accepted though no serial order explains it: {steps}")
        return new

    # --- histories ---

    def explore(self, programs: Sequence[Program], count: int, among: Collection[Program] = ()) -> Tally:
        """Run every sequence of so many transactions in every interleaving; see :func:`model.exhaustive.explore`."""
        tally = Tally({"histories": 0, "in which all commit": 0, "refusals": 0})
        for chosen in product(programs, repeat=count):
            if among and not any(one in among for one in chosen):
                continue
            for (order, began), times in shapes(count).items():
                refused = self.follow([chosen[i] for i in order], began)
                tally["histories"] += times
                tally["in which all commit"] += times * (not refused)
                tally["refusals"] += times * refused
        return tally

    def follow(self, programs: Sequence[Program], began: Sequence[int]) -> int:
        """Run one history; returns how many were refused."""
        refused, worlds = 0, [self.root]
        begun: Counter[tuple[Program, World]] = Counter()
        for program, tries in zip(programs, began, strict=True):
            at = worlds[tries]
            copy = begun[program, at]
            begun[program, at] += 1
            outcome = self.commit(worlds[-1], self.begin(at, program, copy))
            if isinstance(outcome, Refusal):
                refused += 1
                outcome = worlds[-1]
            worlds.append(outcome)
        return refused


def _writes(staged: Staged) -> bool:
    return staged.case.statement("T", staged.at.state).writes


def _lifted(table: int, state: State) -> State:
    return frozenset(Row((table, row.identity), (table, *row.values)) for row in state)


def _of(table: int, state: State) -> State:
    return frozenset(Row(row.identity[1], row.values[1:]) for row in state if row.values[0] == table)


def _operation(program: Program) -> Operation:
    """What a program does, in the judge's world: the caller sees what it sees in all tables."""

    def does(name: str, state: State) -> Effect:
        found = {table: case.statement(name, _of(table, state)) for table, case in program.parts.items()}
        return Effect(
            frozenset().union(*(_lifted(table, one.removed) for table, one in found.items())),
            frozenset().union(*(_lifted(table, one.added) for table, one in found.items())),
            tuple(one.seen for one in found.values()),
        )

    return does
