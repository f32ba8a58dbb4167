"""A model checker for the committer of catalogs: its real code over a catalog and a folder that are values.

Each participant is a writer (the driver, the commit loop and ``ManagedCommitter``), a publisher or a reader. It runs
until it calls the catalog or the folder; there it stops, and every interleaving of these calls is explored, with
faults.
Code cannot be copied while it runs, so a participant is brought to a state by running it again with the replies that
led there.

Beside what :mod:`model.explorer` checks of every world, here each file of the log must be the ratified commit of its
version, published in order; the catalog must hold what is not published; and a reader that comes at this moment must
find exactly the ratified versions.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

from model.contents import Violation
from model.explorer import Local
from model.search import Search
from refdelta.core.commit.transaction import CommitOutcome, PreparedCommit
from refdelta.core.log.paths import LOG, commit_key
from refdelta.engine.log import managed_log
from refdelta.engine.log.managed_log import STAGED, Exists, ManagedStore, Ratified, RatifiedCommit, staged_version
from refdelta.errors import CommitOutcomeUnknownError, DeltaError
from refdelta.transaction.driver import RetryPolicy, commit
from refdelta_storage import Committed, MemoryStore, ObjectInfo, ObjectNotFoundError, StorageError, Unknown

FAULTS = ("lost request", "lost reply", "resent", "late", "refused", "crash", "crash after")

Files = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the catalog or of the folder."""

    what: str
    args: tuple[Hashable, ...]

    def __str__(self) -> str:
        return f"{self.what} {', '.join(str(one)[:60] for one in self.args[:1])}"


@dataclass(frozen=True, slots=True)
class Raised:
    """A reply that is an error."""

    kind: type[Exception]
    text: str = "refused"


class Suspended(BaseException):
    """A call that has no reply yet."""

    def __init__(self, call: Call) -> None:
        self.call = call


class Tape:
    """Replies to the calls of one participant, in order."""

    def __init__(self, replies: tuple[Any, ...]) -> None:
        self._replies = replies
        self._at = 0
        self.pending: Call | None = None

    def call(self, what: str, *args: Any) -> Any:
        if self.pending is None and self._at < len(self._replies):
            reply = self._replies[self._at]
            self._at += 1
            if isinstance(reply, Raised):
                raise reply.kind(reply.text)
            return reply
        # Blocks that run while it stops call nothing more.
        self.pending = self.pending or Call(what, args)
        raise Suspended(self.pending)


class Folder(MemoryStore):
    """The table's folder, through a tape."""

    def __init__(self, tape: Tape) -> None:
        super().__init__("explored")
        self._tape = tape

    def put_if_absent(self, key: str, data: bytes) -> Any:
        return self._tape.call("put", key, data)

    def get(self, key: str) -> bytes:
        return self._tape.call("get", key)

    def head(self, key: str) -> ObjectInfo:
        return self._tape.call("head", key)

    def get_many(self, keys: Any) -> list[bytes]:
        return [self.get(key) for key in keys]

    def list(self, prefix: str = "", after: str | None = None) -> Any:
        return iter(self._tape.call("list", prefix, after))


class Catalog:
    """The catalog's part for the table, through a tape."""

    maintenance = None
    name = "the catalog"

    def __init__(self, tape: Tape, *, inline: bool) -> None:
        self._tape, self.inline = tape, inline

    def ratified(self, first: int = 0) -> Ratified:
        return self._tape.call("ratified", first)

    def propose(self, commit: RatifiedCommit) -> Any:
        return self._tape.call("propose", commit)

    def published(self, version: int) -> None:
        self._tape.call("published", version)


Program = Callable[[ManagedStore], Any]


def writes(prepared: PreparedCommit, *, publishes: bool = False, **limits: int) -> Program:
    """A writer, which publishes after its commit if ``publishes``."""
    policy = RetryPolicy(**{"max_repeats": 2, **limits})

    def program(store: ManagedStore) -> CommitOutcome:
        store._latest = prepared.read_version
        outcome = commit(
            store, prepared, policy=policy, sleep=lambda _: None, clock=lambda: 0.0, uniform=lambda low, _: low
        )
        outcome = replace(outcome, log=None)
        if publishes:
            with contextlib.suppress(StorageError):  # the commit stands
                store.publish(yields=True)
        return outcome

    return program


def publishes(*, yields: bool = False) -> Program:
    """A publisher; with ``yields`` one that stops where it meets another."""

    def program(store: ManagedStore) -> int:
        return store.publish(yields=yields)

    return program


def reads(store: ManagedStore) -> tuple[bytes, ...]:
    """A reader: a listing, and then each commit."""
    keys = [info.key for info in store.list(f"{LOG}/0")]
    return tuple(store.get(key) for key in keys)


@dataclass(slots=True)
class Node:
    """A participant after some replies: what it calls next, or how it ended."""

    path: tuple[Any, ...]
    call: Call | None = None
    result: Any = None
    children: dict[Hashable, int] = field(default_factory=dict)


class Participant:
    """A program as a tree of its states."""

    def __init__(self, name: str, program: Program, *, inline: bool) -> None:
        self.name, self.program, self.inline = name, program, inline
        self.nodes: list[Node] = []
        self._ends: dict[Hashable, int] = {}
        self._reach(())

    def step(self, node: int, reply: Any) -> int:
        known = self.nodes[node].children.get(reply)
        if known is None:
            known = self.nodes[node].children[reply] = self._reach((*self.nodes[node].path, reply))
        return known

    def end(self, node: int) -> int:
        """Of the states that ended in the same way, always the same one."""
        result = self.nodes[node].result
        how = result.version if isinstance(result, CommitOutcome) else result
        return self._ends.setdefault(type(how) if isinstance(how, Exception) else (type(result), how), node)

    def _reach(self, path: tuple[Any, ...]) -> int:
        tape = Tape(path)
        store = ManagedStore(Folder(tape), Catalog(tape, inline=self.inline))
        numbers = iter(range(100))
        # Staged files have the same names in each run.
        names = types.SimpleNamespace(uuid4=lambda: f"{self.name}-{next(numbers)}")
        node = Node(path)
        with mock.patch.object(managed_log, "uuid", names):
            try:
                node.result = self.program(store)
            except Suspended as suspended:
                node.call = suspended.call
            except (DeltaError, StorageError) as error:
                node.result = error
        self.nodes.append(node)
        return len(self.nodes) - 1


@dataclass(frozen=True, slots=True)
class World:
    """The catalog, the folder, the requests on their way, and how far each participant is.

    Attributes:
        ratified: the ratified commits, from version 1 on.
        noted: the versions up to this one are known to be published, and are not held any more.
        files: the files of the log.
        locals: the participants.
        left: how many faults may still happen.
        late: proposals that were sent and may arrive.
    """

    ratified: tuple[RatifiedCommit, ...]
    noted: int
    files: Files
    locals: tuple[Local, ...]
    late: frozenset[tuple[int, RatifiedCommit]] = frozenset()
    # How many faults may still happen in all.
    left: int = 0

    @property
    def latest(self) -> int:
        return len(self.ratified)

    def answer(self, first: int) -> Ratified:
        held = tuple(one for one in self.ratified if one.version > self.noted and one.version >= first)
        return Ratified(self.latest, held)


class CatalogExplorer(Search[World]):
    """Every schedule of these participants, from version 0 on.

    Args:
        programs: what each does, by its name.
        prepared: the transactions, by the names of their writers.
        inline: whether the catalog holds the contents of commits.
        winners: whether a refusal brings the winners.
        faults: how many may befall each participant.
        in_all: how many may happen; None for no further limit.
        kinds: which ones.
        cleanup: whether staged files that nobody needs are removed at any moment.
        must_commit: whether each writer that is neither dead nor refused has to commit in the end.
    """

    def __init__(
        self,
        programs: dict[str, Program],
        prepared: dict[str, PreparedCommit],
        first: bytes,
        *,
        inline: bool,
        winners: bool = True,
        faults: int = 1,
        in_all: int | None = None,
        kinds: tuple[str, ...] = FAULTS,
        cleanup: bool = False,
        must_commit: bool = True,
    ) -> None:
        super().__init__()
        self.participants = [Participant(name, program, inline=inline) for name, program in programs.items()]
        self.prepared = [prepared.get(name) for name in programs]
        self.first, self.inline, self.winners = first, inline, winners
        self.kinds, self.cleanup, self.must_commit = frozenset(kinds), cleanup, must_commit
        left = faults * len(programs) if in_all is None else in_all
        self.start = World((), 0, ((commit_key(0), first),), tuple(Local(0, faults) for _ in programs), left=left)
        self._sound: set[tuple[Any, ...]] = set()

    # --- steps ---

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Every step that is possible, with a name for it."""
        calls = [(index, self._call(index, local)) for index, local in enumerate(world.locals)]
        at_work = [(index, call) for index, call in calls if call is not None]
        for index, call in at_work:
            if self._commutes(world, call):
                # One order with the steps of the others is as good as another.
                yield from self._of(world, index, call)
                return
        for index, call in at_work:
            yield from self._of(world, index, call)
        for sent in world.late:
            arrived = self._proposed(replace(world, late=world.late - {sent}), sent[1])[0]
            yield f"{self.participants[sent[0]].name}: late proposal of {sent[1].version} arrives", arrived
        if self.cleanup:
            needed = {f"{STAGED}/{one.file_name}" for one in world.answer(0).commits}
            for key, _ in world.files:
                if key.startswith(STAGED) and key not in needed and staged_version(key) <= world.latest:
                    left = tuple(file for file in world.files if file[0] != key)
                    yield f"cleanup of {key}", replace(world, files=left)

    def _call(self, index: int, local: Local) -> Call | None:
        return None if local.dead else self.participants[index].nodes[local.node].call

    def _commutes(self, world: World, call: Call) -> bool:
        """Whether no step of another participant changes the reply, and none depends on this one."""
        key = call.args[0]
        if not isinstance(key, str):
            return False
        staged = key.startswith(STAGED)
        if call.what == "put":
            return staged  # under a name of its own
        # Files that are there stay as they are.
        return call.what in ("get", "head") and not (staged and self.cleanup) and key in dict(world.files)

    def _of(self, world: World, index: int, call: Call) -> Iterator[tuple[str, World]]:
        name, local = self.participants[index].name, world.locals[index]
        after, reply = self._carried_out(world, call)
        yield f"{name}: {call} {type(reply).__name__}", self._reply(after, index, reply)
        if not local.faults or not world.left:
            return
        world, after = replace(world, left=world.left - 1), replace(after, left=world.left - 1)
        changes = call.what in ("put", "propose", "published")
        dead = replace(local, faults=0, dead=True)
        if "crash" in self.kinds:
            yield f"{name}: crash before {call}", self._local(world, index, dead)
        if "crash after" in self.kinds and changes:
            yield f"{name}: {call}, crash", self._local(after, index, dead)
        if "refused" in self.kinds:
            refused = Raised(StorageError)
            yield f"{name}: {call} refused", self._reply(world, index, refused, fault=True, excused=True)
        if call.what == "published" and "lost reply" in self.kinds:
            failed = Raised(StorageError)
            yield f"{name}: {call}, reply lost", self._reply(after, index, failed, fault=True, excused=True)
        if call.what in ("put", "propose"):
            yield from self._lost(world, after, index, call)

    def _lost(self, world: World, after: World, index: int, call: Call) -> Iterator[tuple[str, World]]:
        name = self.participants[index].name
        if "lost request" in self.kinds:
            yield f"{name}: {call} lost", self._reply(world, index, Unknown(), fault=True)
        if "lost reply" in self.kinds:
            yield f"{name}: {call}, reply lost", self._reply(after, index, Unknown(), fault=True)
        if "resent" in self.kinds:
            again, reply = self._carried_out(after, call)
            yield f"{name}: {call} resent", self._reply(again, index, reply, fault=True)
        if "late" in self.kinds and call.what == "propose":
            sent = replace(world, late=world.late | {(index, call.args[0])})
            yield f"{name}: {call} late", self._reply(sent, index, Unknown(), fault=True)

    def _carried_out(self, world: World, call: Call) -> tuple[World, Any]:
        files, key = dict(world.files), call.args[0]
        match call.what:
            case "put" if key in files:
                return world, Exists()
            case "put":
                return replace(world, files=tuple(sorted({**files, key: call.args[1]}.items()))), Committed()
            case "get":
                return world, files[key] if key in files else Raised(ObjectNotFoundError, str(key))
            case "head":
                found = ObjectInfo(key, len(files.get(key, b"")), 1)
                return world, found if key in files else Raised(ObjectNotFoundError, str(key))
            case "list":
                return world, _listed(files, *call.args)
            case "ratified":
                return world, world.answer(key)
            case "propose":
                return self._proposed(world, key)
            case "published":
                return replace(world, noted=max(world.noted, key)), None
        raise AssertionError(call)

    def _proposed(self, world: World, commit: RatifiedCommit) -> tuple[World, Any]:
        if commit.version == world.latest + 1:
            return replace(world, ratified=(*world.ratified, commit)), Committed()
        if commit.version <= world.latest:
            return world, Exists(world.answer(commit.version).commits if self.winners else ())
        return world, Raised(StorageError, f"version {commit.version} is not the next one")

    def _reply(self, world: World, index: int, reply: Any, *, fault: bool = False, excused: bool = False) -> World:
        local = world.locals[index]
        node = self.participants[index].step(local.node, reply)
        return self._local(world, index, Local(node, local.faults - fault, excused=local.excused or excused))

    def _local(self, world: World, index: int, local: Local) -> World:
        # How a participant came to its end makes no difference any more.
        if local.dead:
            local = Local(0, 0, dead=True)
        elif self._call(index, local) is None:
            local = Local(self.participants[index].end(local.node), 0, excused=local.excused)
        return replace(world, locals=(*world.locals[:index], local, *world.locals[index + 1 :]))

    # --- what must hold ---

    def check(self, world: World, *, at_end: bool) -> None:
        """Raise ``Violation`` unless the table is whole and every claim is true."""
        contents = self._check_table(world)
        for index, local in enumerate(world.locals):
            if not local.dead:
                self._check_claim(index, local, contents, at_end=at_end)

    def _check_table(self, world: World) -> tuple[bytes, ...]:
        """The contents of all versions, as a reader of this moment finds them."""
        versions = [one.version for one in world.ratified]
        if versions != [*range(1, world.latest + 1)]:
            raise Violation(f"the catalog has ratified {versions}")
        files = dict(world.files)
        contents = (self.first, *(self._ratified(files, one) for one in world.ratified))
        known = (world.ratified, world.noted, world.files)
        if known in self._sound:
            return contents
        if len(set(contents)) != len(contents):
            raise Violation("a transaction is ratified twice")
        published = sorted(key for key in files if not key.startswith(STAGED))
        if published != [commit_key(version) for version in range(len(published))]:
            raise Violation(f"published out of order: {published}")
        for version, key in enumerate(published):
            if version > world.latest or files[key] != contents[version]:
                raise Violation(f"{key} is not what was ratified")
        if world.noted >= len(published):
            raise Violation(f"version {world.noted} is said to be published, and is not")
        if self._seen(world) != contents:
            raise Violation("a reader does not find the ratified versions")
        self._sound.add(known)
        return contents

    def _ratified(self, files: dict[str, bytes], commit: RatifiedCommit) -> bytes:
        """The content that was ratified; once a staged file is cleaned up, the published one."""
        if commit.data is not None:
            return commit.data
        key = f"{STAGED}/{commit.file_name}"
        found = files.get(key, files.get(commit_key(commit.version)))
        if found is None or staged_version(key) != commit.version:
            raise Violation(f"the content of version {commit.version} is nowhere, or of another version")
        return found

    def _seen(self, world: World) -> tuple[bytes, ...]:
        """What a reader sees if nobody else does anything."""
        reader = Participant("now", reads, inline=self.inline)
        node = 0
        while (call := reader.nodes[node].call) is not None:
            node = reader.step(node, self._carried_out(world, call)[1])
        result = reader.nodes[node].result
        if isinstance(result, Exception):
            raise Violation(f"a reader fails: {result!r}")
        return result

    def _check_claim(self, index: int, local: Local, contents: tuple[bytes, ...], *, at_end: bool) -> None:
        participant, prepared = self.participants[index], self.prepared[index]
        node = participant.nodes[local.node]
        if at_end and node.call is not None:
            raise Violation(f"{participant.name} never ends")
        if node.call is not None:
            return
        read = node.result if participant.program is reads and isinstance(node.result, tuple) else ()
        if contents[: len(read)] != read:
            raise Violation(f"{participant.name} has read what is no version")
        if prepared is None:
            return
        marker = prepared.txn_id.encode()
        places = [version for version, data in enumerate(contents) if marker in data]
        if isinstance(node.result, CommitOutcome):
            if places != [node.result.version]:
                raise Violation(f"{participant.name} was told version {node.result.version}, and is at {places}")
        elif not isinstance(node.result, CommitOutcomeUnknownError) and places:
            raise Violation(f"{participant.name} was told {node.result!r}, and is at {places}")
        if at_end and self.must_commit and not local.excused and not isinstance(node.result, CommitOutcome):
            raise Violation(f"{participant.name} did not commit: {node.result!r}")

    def is_over(self, world: World) -> bool:
        return not any(self._call(index, local) for index, local in enumerate(world.locals))

    def results(self, world: World) -> Iterator[object]:
        for index, local in enumerate(world.locals):
            if not local.dead and self.prepared[index] is not None:
                yield self.participants[index].nodes[local.node].result


def _listed(files: dict[str, bytes], prefix: str, after: str | None) -> tuple[ObjectInfo, ...]:
    return tuple(
        ObjectInfo(key, len(data), 1)
        for key, data in sorted(files.items())
        if key.startswith(prefix) and (after is None or key > after)
    )
