"""A model checker for transactions over several tables: the steps of the writers interleave in every order, and each
ratification may lose its request or its reply, arrive late, be refused, or be the last thing that its writer does.

A world is a value: the logs of all tables, the ratifications that are on their way, how far each writer is. In every
world each transaction is in all of its logs or in none, and what a writer was told is true.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from model.contents import Violation
from model.search import Search
from refdelta.core.commit import effects
from refdelta.core.commit.budget import Limits
from refdelta.core.commit.loop import commit_loop
from refdelta.core.commit.together import OfTable, Together, TryTogether, commit_together
from refdelta.core.commit.transaction import PreparedCommit
from refdelta.errors import CommitOutcomeUnknownError, DeltaError, StoreError

KINDS = ("lost request", "lost reply", "late", "refused", "crash", "crash after")
REFUSED = effects.Failed(StoreError("refused"))
UNKNOWN = effects.Unknown()

Put = tuple[tuple[int, int, bytes | None], ...]
"""A ratification: by table, the version that has to be the next one, and its commit; None if it is only pinned."""


@dataclass(frozen=True)
class Transaction:
    """A transaction: its part in each table, and the numbers of the tables that are only pinned."""

    parts: tuple[tuple[int, PreparedCommit], ...]
    pinned: frozenset[int] = frozenset()

    @property
    def markers(self) -> dict[int, bytes]:
        """By table, what its commit has in it."""
        return {table: part.txn_id.encode() for table, part in self.parts if table not in self.pinned}


@dataclass(slots=True)
class Node:
    """A writer after some replies."""

    path: tuple[Any, ...]
    ask: Any = None
    result: Any = None
    children: dict[Any, int] = field(default_factory=dict)


class Writer:
    """A run as a tree of its local states, as :class:`model.explorer.Writer` is."""

    def __init__(self, transaction: Transaction, run: Callable[..., Any]) -> None:
        self.transaction, self.run = transaction, run
        self.tables = [table for table, _ in transaction.parts]
        self.nodes: list[Node] = []
        self._reach(())

    def step(self, node: int, reply: Any) -> int:
        key = (
            tuple(sorted((n, repr(one)) for n, one in reply.replies.items())) if isinstance(reply, Together) else reply
        )
        if key not in self.nodes[node].children:
            self.nodes[node].children[key] = self._reach((*self.nodes[node].path, reply))
        return self.nodes[node].children[key]

    def _reach(self, path: tuple[Any, ...]) -> int:
        node = Node(path)
        pinned = [n for n, table in enumerate(self.tables) if table in self.transaction.pinned]
        loops = [commit_loop(part, Limits(max_repeats=2)) for _, part in self.transaction.parts]
        running = self.run(loops, pinned)
        try:
            for reply in (None, *path):
                node.ask = running.send(reply)
        except StopIteration as done:
            node.ask, node.result = None, done.value
        except DeltaError as error:
            node.ask, node.result = None, error
        self.nodes.append(node)
        return len(self.nodes) - 1


@dataclass(frozen=True, slots=True)
class Local:
    """How far a writer is, and how many faults may still befall it."""

    node: int
    faults: int
    dead: bool = False
    excused: bool = False


@dataclass(frozen=True, slots=True)
class World:
    logs: tuple[tuple[bytes, ...], ...]
    locals: tuple[Local, ...]
    late: frozenset[tuple[int, Put]] = frozenset()


class TogetherExplorer(Search[World]):
    """Every schedule of these transactions.

    Args:
        transactions: one a writer.
        first: version 0 of each table.
        faults: how many may befall each writer.
        kinds: which ones.
        run: the coordinator.
        torn: whether the catalog ratifies table by table, which is wrong.
    """

    def __init__(
        self,
        transactions: Sequence[Transaction],
        first: Sequence[bytes],
        *,
        faults: int = 1,
        kinds: Collection[str] = KINDS,
        run: Callable[..., Any] = commit_together,
        torn: bool = False,
    ) -> None:
        super().__init__()
        self.writers = [Writer(one, run) for one in transactions]
        self.kinds, self.torn = frozenset(kinds), torn
        self.start = World(tuple((data,) for data in first), tuple(Local(0, faults) for _ in transactions))

    # --- steps ---

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        for index, local in enumerate(world.locals):
            ask = self._ask(index, local)
            if isinstance(ask, OfTable) and isinstance(ask.effect, effects.Pause | effects.VersionExists):
                # No step of another one changes the reply.
                yield f"{index} {ask}", self._told(world, index, self._answer(world, index, ask))
                return
        for index, local in enumerate(world.locals):
            ask = self._ask(index, local)
            if isinstance(ask, OfTable):
                yield f"{index} {ask.effect} of {ask.table}", self._told(world, index, self._answer(world, index, ask))
            elif isinstance(ask, TryTogether):
                yield from self._puts(world, index, local, ask)
        for sent in world.late:
            index, put = sent
            logs, _ = self._carried_out(world.logs, put)
            yield f"{index} late {put} arrives", replace(world, logs=logs, late=world.late - {sent})

    def _puts(self, world: World, index: int, local: Local, ask: TryTogether) -> Iterator[tuple[str, World]]:
        writer = self.writers[index]
        put: Put = tuple(
            (writer.tables[n], one.version, None if writer.tables[n] in writer.transaction.pinned else one.data)
            for n, one in ask.tries.items()
        )
        name = f"{index} ratifies {[(table, version) for table, version, _ in put]}"
        logs, taken = self._carried_out(world.logs, put)
        after = replace(world, logs=logs)
        replies: dict[int, effects.Reply] = dict.fromkeys(ask.tries, effects.Committed())
        if taken:
            replies = {n: effects.Exists() if writer.tables[n] in taken else effects.Deferred() for n in ask.tries}
        yield name, self._told(after, index, Together(replies))
        if not local.faults:
            return
        unknown = Together(dict.fromkeys(ask.tries, UNKNOWN))
        if "lost request" in self.kinds:
            yield f"{name}, request lost", self._told(world, index, unknown, fault=True)
        if "lost reply" in self.kinds:
            yield f"{name}, reply lost", self._told(after, index, unknown, fault=True)
        if "late" in self.kinds:
            sent = replace(world, late=world.late | {(index, put)})
            yield f"{name}, late", self._told(sent, index, unknown, fault=True)
        if "refused" in self.kinds:
            refused = Together(dict.fromkeys(ask.tries, REFUSED))
            yield f"{name}, refused", self._told(world, index, refused, fault=True, excused=True)
        if "crash" in self.kinds:
            yield f"{index} crashes", self._at(world, index, replace(local, dead=True))
        if "crash after" in self.kinds:
            yield f"{name}, crashes", self._at(after, index, replace(local, dead=True))

    def _carried_out(
        self, logs: tuple[tuple[bytes, ...], ...], put: Put
    ) -> tuple[tuple[tuple[bytes, ...], ...], frozenset[int]]:
        """The logs after a ratification, and the tables whose version was taken; these keep all as it was."""
        taken = frozenset(table for table, version, _ in put if version != len(logs[table]))
        if taken and not self.torn:
            return logs, taken
        made = {table: data for table, _, data in put if data is not None and table not in taken}
        return tuple((*log, made[table]) if table in made else log for table, log in enumerate(logs)), taken

    def _answer(self, world: World, index: int, ask: OfTable) -> effects.Reply:
        log = world.logs[self.writers[index].tables[ask.table]]
        match ask.effect:
            case effects.VersionExists(version):
                return effects.Yes() if version < len(log) else effects.No()
            case effects.ReadCommits(first, last):
                return effects.Commits(tuple(log[v] if v < len(log) else None for v in range(first, last + 1)))
            case effects.NewestVersion(after):
                return effects.Newest(max(after, len(log) - 1))
            case effects.Pause():
                return effects.Elapsed(0.0)
        raise AssertionError(ask)

    def _told(self, world: World, index: int, reply: Any, *, fault: bool = False, excused: bool = False) -> World:
        local = world.locals[index]
        node = self.writers[index].step(local.node, reply)
        return self._at(world, index, Local(node, local.faults - fault, excused=local.excused or excused))

    @staticmethod
    def _at(world: World, index: int, local: Local) -> World:
        return replace(world, locals=(*world.locals[:index], local, *world.locals[index + 1 :]))

    def _ask(self, index: int, local: Local) -> Any:
        return None if local.dead else self.writers[index].nodes[local.node].ask

    # --- what must hold ---

    def check(self, world: World, *, at_end: bool) -> None:
        for index, local in enumerate(world.locals):
            writer = self.writers[index]
            node = writer.nodes[local.node]
            places = {
                table: [version for version, data in enumerate(world.logs[table]) if marker in data]
                for table, marker in writer.transaction.markers.items()
            }
            counts = {len(found) for found in places.values()}
            if counts not in ({0}, {1}):
                raise Violation(f"transaction {index} is in some of its tables only, or twice: {places}")
            if local.dead or node.ask is not None:
                continue
            if isinstance(node.result, CommitOutcomeUnknownError):
                continue
            if isinstance(node.result, DeltaError):
                if counts == {1}:
                    raise Violation(f"writer {index} was told {node.result!r}, and is at {places}")
                if at_end and not local.excused:
                    raise Violation(f"writer {index} did not commit: {node.result!r}")
            else:
                told = {writer.tables[n]: [outcome.version] for n, outcome in node.result.items()}
                if told != places:
                    raise Violation(f"writer {index} was told {told}, and is at {places}")

    def is_over(self, world: World) -> bool:
        return not world.late and not any(self._ask(index, local) for index, local in enumerate(world.locals))

    def results(self, world: World) -> Iterator[object]:
        return (self.writers[i].nodes[local.node].result for i, local in enumerate(world.locals) if not local.dead)
