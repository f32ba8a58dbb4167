"""A model checker for commit loops: several writers over one log, every interleaving of their effects, faults included.

A world is a value: the log, the puts that are still on their way, how far each writer is. From a world every possible
step is taken; worlds that were reached before are not explored again, and the number of schedules is counted along
the way instead of being run one by one. Of steps that commute with all others only one order is explored. A claim
that a writer makes is checked in every world after it; so is that each version names only deletion vectors that are
there, and holds the rows that it should.

A writer is any generator function that speaks the alphabet of ``refdelta.core.commit.effects``, so wrong ones can be
explored too, to see that the checker finds them out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pyroaring import BitMap64

from model.contents import Contents, Log, Rows, Violation
from model.search import Search
from refdelta.core.commit.effects import (
    Commits,
    Committed,
    ConfirmRows,
    Descriptors,
    Effect,
    Elapsed,
    Exists,
    Failed,
    Matches,
    MatchRows,
    Newest,
    NewestVersion,
    No,
    Pause,
    ReadCommits,
    ReadVectors,
    Reply,
    TryCommit,
    Unknown,
    Vectors,
    VersionExists,
    Withdraw,
    WriteVectors,
    Yes,
)
from refdelta.core.commit.transaction import CommitOutcome, PreparedCommit
from refdelta.core.log.actions import DeletionVectorDescriptor
from refdelta.errors import CommitOutcomeUnknownError, DeltaError, StoreError
from refdelta.transaction.driver import CERTAIN_FAILURES

Loop = Callable[[PreparedCommit], Generator[Effect, Reply, CommitOutcome]]

REFUSED = Failed(StoreError("refused"))
UNKNOWN = Unknown()
FAULTS = ("lost request", "lost reply", "resent", "late", "refused", "crash", "crash after")


@dataclass(slots=True)
class Node:
    """A writer after some replies: what it asks next, or how it ended."""

    path: tuple[Reply, ...]
    effect: Effect | None = None
    result: CommitOutcome | DeltaError | None = None
    children: dict[Hashable, int] = field(default_factory=dict)


class Writer:
    """A loop as a tree of its local states. Generators cannot be copied, so a state is reached by its replies."""

    def __init__(self, loop: Loop, prepared: PreparedCommit):
        self.loop, self.prepared = loop, prepared
        self.nodes: list[Node] = []
        self.live: dict[int, Generator[Effect, Reply, CommitOutcome]] = {}
        self._reach((), None)

    def step(self, node: int, reply: Reply) -> int:
        key = tuple(map(tuple, reply.bitmaps)) if isinstance(reply, Vectors) else reply
        known = self.nodes[node].children.get(key)
        if known is None:
            known = self._reach((*self.nodes[node].path, reply), self.live.pop(node, None))
            self.nodes[node].children[key] = known
        return known

    def _reach(self, path: tuple[Reply, ...], running: Generator[Effect, Reply, CommitOutcome] | None) -> int:
        node = Node(path)
        replies: list[Reply | None] = [path[-1]] if running is not None else [None, *path]
        running = running or self.loop(self.prepared)
        try:
            for reply in replies:
                node.effect = running.send(reply)  # type: ignore[arg-type]
        except StopIteration as done:
            node.effect, node.result = None, done.value
        except DeltaError as error:
            node.effect, node.result = None, error
        self.nodes.append(node)
        self.live[len(self.nodes) - 1] = running
        return len(self.nodes) - 1


@dataclass(frozen=True, slots=True)
class Local:
    """How far one writer is: a state of its tree, how many faults may still befall it, whether it is dead."""

    node: int
    faults: int
    dead: bool = False
    # A fault after which the writer may rightly say that it failed.
    excused: bool = False


@dataclass(frozen=True, slots=True)
class World:
    log: Log
    locals: tuple[Local, ...]
    # Puts that were sent, and may arrive: (writer, version, bytes).
    late: frozenset[tuple[int, int, bytes]] = frozenset()
    # How many of the first versions cleanup has removed.
    cleaned: int = 0
    # The deletion vectors that are there, by their ids.
    vectors: frozenset[str] = frozenset()
    # Of :class:`CleanedUp`: all versions that the table has had, and those whose files were created anew after cleanup.
    table: Log = ()
    anew: frozenset[int] = frozenset()


class Explorer(Search[World]):
    """Every schedule of these writers.

    Args:
        loop: the commit loop.
        prepared: one transaction a writer.
        first: the versions that exist at the beginning, with their bytes.
        faults: how many may befall each writer.
        kinds: which ones.
        cleanup: how many of the first versions a concurrent log cleanup removes, oldest first.
        must_commit: whether each writer that is neither dead nor refused by the store has to commit in the end.
        rows: what is in the files.
    """

    def __init__(
        self,
        loop: Loop,
        prepared: list[PreparedCommit],
        first: dict[int, bytes],
        *,
        faults: int = 1,
        kinds: tuple[str, ...] = FAULTS,
        cleanup: int = 0,
        must_commit: bool = True,
        rows: Rows | None = None,
    ):
        super().__init__()
        self.writers = [Writer(loop, transaction) for transaction in prepared]
        self.kinds, self.cleanup, self.must_commit = frozenset(kinds), cleanup, must_commit
        markers = [transaction.txn_id.encode() for transaction in prepared]
        self.contents = Contents(rows or Rows(), first, markers)
        self.start = World(
            tuple(sorted(first.items())),
            tuple(Local(0, faults) for _ in prepared),
            vectors=frozenset(self.contents.bitmaps),
        )
        self.first = first

    # --- steps ---

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Every step that is possible, with a name for it."""
        for index, local in enumerate(world.locals):
            effect = self.effect(index, local)
            if effect is not None and self._commutes(world, effect):
                # One order with the steps of the others is as good as another, so theirs can wait.
                yield from self._named(world, index, local, effect)
                return
        for index, local in enumerate(world.locals):
            if (effect := self.effect(index, local)) is not None:
                yield from self._named(world, index, local, effect)
        for sent in world.late:
            index, version, data = sent
            arrived = replace(world, late=world.late - {sent}, log=_put(world.log, version, data)[0])
            yield f"{index} late put of {version} arrives", arrived
        if world.cleaned < self.cleanup:
            gone = sorted(self.first)[world.cleaned]
            log = tuple(entry for entry in world.log if entry[0] != gone)
            yield f"cleanup of {gone}", replace(world, log=log, cleaned=world.cleaned + 1)

    def _commutes(self, world: World, effect: Effect) -> bool:
        """Whether no step of another writer changes the reply, and no step of another depends on this one."""
        if isinstance(effect, Pause | MatchRows | ConfirmRows | WriteVectors | ReadVectors):
            # A vector gets a name that nobody has used, and stays as long as a version names it.
            return True
        if self.cleanup:
            return False
        if isinstance(effect, ReadCommits):
            # Files that are there stay, and stay as they are.
            return {version for version, _ in world.log}.issuperset(range(effect.first, effect.last + 1))
        return isinstance(effect, VersionExists) and effect.version >= 0

    def _named(self, world: World, index: int, local: Local, effect: Effect) -> Iterator[tuple[str, World]]:
        return ((f"{index} {name}", after) for name, after in self._of_writer(world, index, local, effect))

    def effect(self, index: int, local: Local) -> Effect | None:
        return None if local.dead else self.writers[index].nodes[local.node].effect

    def _of_writer(self, world: World, index: int, local: Local, effect: Effect) -> Iterator[tuple[str, World]]:
        is_put = isinstance(effect, TryCommit)
        log, reply = world.log, self._answer(world.log, effect)
        if isinstance(effect, TryCommit):
            log, created = _put(world.log, effect.version, effect.data)
            reply = Committed() if created else Exists()
        elif isinstance(effect, Withdraw):
            log = tuple(entry for entry in log if entry[0] != effect.version)
        carried_out = replace(world, log=log)
        if isinstance(effect, WriteVectors):
            reply = Descriptors(self.contents.write(index, local.node, effect.bitmaps))
            carried_out = replace(world, vectors=world.vectors | {one.unique_id for one in reply.descriptors})
        elif isinstance(effect, ReadVectors):
            reply = Vectors(tuple(self._read(world, index, one) for one in effect.descriptors))
        elif isinstance(effect, MatchRows):
            reply = Matches(tuple(self.contents.rows.matches(one.add) for one in effect.rows), 0.0)
        elif isinstance(effect, ConfirmRows):
            reply = Yes() if effect.trusted else No()
        yield f"{effect_name(effect)} {type(reply).__name__}", self._reply(carried_out, index, reply)
        if not local.faults or isinstance(effect, Pause | VersionExists):
            # A crash before the next effect is the same; a refused VersionExists is asked again like any read.
            return
        if "crash" in self.kinds:
            yield "crash", self._local(world, index, replace(local, faults=0, dead=True))
        if "refused" in self.kinds:
            yield f"{effect_name(effect)} refused", self._reply(world, index, REFUSED, fault=True, excused=is_put)
        if is_put:
            yield from self._put_faults(world, carried_out, index, local, effect)
        if isinstance(effect, WriteVectors):
            if "lost reply" in self.kinds:
                yield "vectors written, reply lost", self._reply(carried_out, index, REFUSED, fault=True)
            if "crash after" in self.kinds:
                yield "vectors written, crash", self._local(carried_out, index, replace(local, faults=0, dead=True))

    def _read(self, world: World, index: int, descriptor: DeletionVectorDescriptor) -> BitMap64:
        if descriptor.unique_id not in world.vectors:
            raise Violation(f"writer {index} reads the vector {descriptor.unique_id}, which is gone")
        return self.contents.bitmaps[descriptor.unique_id]

    def _left(self, world: World, index: int, result: CommitOutcome | DeltaError | None) -> World:
        """The world after a writer's shell has removed the vectors that its commit does not name, as soon as it is
        certain what became of it.
        """
        if not isinstance(result, (CommitOutcome, *CERTAIN_FAILURES)):
            return world
        named = {one.unique_id for one in result.vectors} if isinstance(result, CommitOutcome) else set()
        return replace(world, vectors=world.vectors - (self.contents.of_writer(index, world.vectors) - named))

    def _put_faults(
        self, world: World, carried_out: World, index: int, local: Local, effect: TryCommit
    ) -> Iterator[tuple[str, World]]:
        name = effect_name(effect)
        if "lost request" in self.kinds:
            yield f"{name} lost", self._reply(world, index, UNKNOWN, fault=True)
        if "lost reply" in self.kinds:
            yield f"{name} reply lost", self._reply(carried_out, index, UNKNOWN, fault=True)
        if "resent" in self.kinds:
            yield f"{name} resent", self._reply(carried_out, index, Exists(), fault=True)
        if "late" in self.kinds:
            sent = replace(world, late=world.late | {(index, effect.version, effect.data)})
            yield f"{name} late", self._reply(sent, index, UNKNOWN, fault=True)
        if "crash after" in self.kinds:
            yield f"{name} crash after", self._local(carried_out, index, replace(local, faults=0, dead=True))

    def _reply(self, world: World, index: int, reply: Reply, *, fault: bool = False, excused: bool = False) -> World:
        local = world.locals[index]
        node = self.writers[index].step(local.node, reply)
        world = self._left(world, index, self.writers[index].nodes[node].result)
        return self._local(world, index, Local(node, local.faults - fault, excused=local.excused or excused))

    @staticmethod
    def _local(world: World, index: int, local: Local) -> World:
        return replace(world, locals=(*world.locals[:index], local, *world.locals[index + 1 :]))

    @staticmethod
    def _answer(log: Log, effect: Effect) -> Reply:
        versions = dict(log)
        match effect:
            case VersionExists(version):
                return Yes() if (version in versions if version >= 0 else not versions) else No()
            case ReadCommits(first, last):
                return Commits(tuple(versions.get(version) for version in range(first, last + 1)))
            case NewestVersion(after):
                return Newest(max(after, *versions) if versions else after)
            case Pause():
                return Elapsed(0.0)
            case _:
                return Yes()

    # --- what must hold ---

    def check(self, world: World, *, at_end: bool) -> None:
        """Raise ``Violation`` unless the log is whole and every writer's claim is true."""
        versions = dict(world.log)
        retained = sorted(version for version in versions if version >= self.cleanup)
        if retained != list(range(self.cleanup, self.cleanup + len(retained))):
            raise Violation(f"a gap: {retained}")
        # Below what cleanup left there is no table: a request that was on its way for longer than cleanup waits (hours
        # at least) can leave a file there that nobody reads.
        owners = [data for version, data in world.log if version >= self.cleanup]
        if len(set(owners)) != len(owners):
            raise Violation("a transaction is in the log twice")
        for index, local in enumerate(world.locals):
            self._check_claim(world, index, local, at_end=at_end)
        self.contents.check(world.log, world.vectors)

    def _check_claim(self, world: World, index: int, local: Local, *, at_end: bool) -> None:
        writer = self.writers[index]
        node = writer.nodes[local.node]
        if local.dead:
            return
        if at_end and node.result is None:
            raise Violation(f"writer {index} never ends")
        marker = writer.prepared.txn_id.encode()
        places = [version for version, data in world.log if marker in data and version >= self.cleanup]
        if isinstance(node.result, CommitOutcome):
            if places != [node.result.version]:
                raise Violation(f"writer {index} was told version {node.result.version}, and is at {places}")
        elif node.result is not None and not isinstance(node.result, CommitOutcomeUnknownError) and places:
            raise Violation(f"writer {index} was told {node.result!r}, and is at {places}")
        if at_end and self.must_commit and not local.excused and not isinstance(node.result, CommitOutcome):
            raise Violation(f"writer {index} did not commit: {node.result!r}")

    def is_over(self, world: World) -> bool:
        return not world.late and not any(self.effect(index, local) for index, local in enumerate(world.locals))

    def results(self, world: World) -> Iterator[object]:
        return (self.writers[i].nodes[local.node].result for i, local in enumerate(world.locals) if not local.dead)


class CleanedUp(Explorer):
    """Every schedule of writers whose own versions log cleanup removes, too: up to so many of the oldest ones, and
    never the newest. A request can be on its way for longer than cleanup waits: its writer, or the network, slept.

    A put at a version that was cleaned up creates a file of no table; the shell tells it from the one that was there by
    its time. A commit counts if the table has had it.
    """

    def __init__(self, *args: Any, keeps_times: bool = True, **more: Any) -> None:
        super().__init__(*args, must_commit=False, **more)
        self.keeps_times = keeps_times
        self.start = replace(self.start, table=self.start.log)

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Those of the writers, and cleanup of the oldest version."""
        own = replace(world, cleaned=self.cleanup)  # without the cleanup of the first versions
        for name, after in super().steps(own):
            yield name, self._with_table(world, replace(after, cleaned=world.cleaned))
        oldest = world.cleaned
        if oldest < min(self.cleanup, world.table[-1][0]) and dict(world.log).get(oldest) is not None:
            log = tuple(entry for entry in world.log if entry[0] != oldest)
            yield f"cleanup of {oldest}", replace(world, log=log, cleaned=oldest + 1, anew=world.anew - {oldest})

    @staticmethod
    def _with_table(before: World, after: World) -> World:
        had = dict(before.log)
        table, anew = before.table, after.anew & {version for version, _ in after.log}
        for version, data in after.log:
            if version not in had and version > table[-1][0]:
                table = (*table, (version, data))
            elif version not in had:
                anew |= {version}
        return replace(after, table=table, anew=anew)

    def _of_writer(self, world: World, index: int, local: Local, effect: Effect) -> Iterator[tuple[str, World]]:
        if isinstance(effect, VersionExists) and effect.version in world.anew and self.keeps_times:
            yield f"{effect_name(effect)} No", self._reply(world, index, No())
            return
        yield from super()._of_writer(world, index, local, effect)

    def check(self, world: World, *, at_end: bool) -> None:
        """Raise ``Violation`` unless every writer's claim is true of the table."""
        owners = [data for _, data in world.table]
        if len(set(owners)) != len(owners):
            raise Violation("a transaction is in the table twice")
        for index, local in enumerate(world.locals):
            self._check_claim(replace(world, log=world.table), index, local, at_end=at_end)

    def _check_claim(self, world: World, index: int, local: Local, *, at_end: bool) -> None:
        cleanup, self.cleanup = self.cleanup, 0  # of the table, all versions count
        try:
            super()._check_claim(world, index, local, at_end=at_end)
        finally:
            self.cleanup = cleanup


def effect_name(effect: Effect) -> str:
    return f"put {effect.version}" if isinstance(effect, TryCommit) else str(effect)


def _put(log: Log, version: int, data: bytes) -> tuple[Log, bool]:
    if any(version == taken for taken, _ in log):
        return log, False
    return tuple(sorted((*log, (version, data)))), True
