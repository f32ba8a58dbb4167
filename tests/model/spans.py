"""VACUUM as a span, beside transactions: the real operations on a store in memory, and any order of their requests
that change the store.

An actor is a function that runs in a thread of its own. It pauses before each put of a commit, each put of a deletion
vector and each deletion of a file, so a VACUUM of two files has five steps: it lists the files, commits VACUUM START,
deletes twice, and commits VACUUM END. A schedule says whose turn it is. The clock belongs to the world, too: each step
takes a minute, and an actor can let a week pass.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from refdelta import errors, write_deltalake
from refdelta.api.table_transaction import TableTransaction
from refdelta.api.transaction import WriteTransaction
from refdelta.core.log.actions import Cdc
from refdelta.core.log.codec import decode_commit
from refdelta.core.log.paths import LOG, commit_key, data_key
from refdelta.core.log.vacuums import LONGEST_MS
from refdelta.engine.log.references import referenced_keys
from refdelta.engine.log.snapshot import Snapshot, load_snapshot
from refdelta.engine.parquet import dv
from refdelta.operations.maintenance import vacuum as vacuum_module
from refdelta.operations.maintenance.vacuum import VacuumRequest, find_candidates, list_objects, vacuum
from refdelta.operations.write.prepared_files import AddAction
from refdelta_storage import MemoryStore
from refdelta_storage.base import Committed, PutOutcome

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
WEEK = 7 * 24 * HOUR
_BEGINNING = 1_700_000_000_000

Actor = Callable[["World"], None]


class _Abandoned(BaseException):
    """The schedule has ended: the process of this actor dies."""


class _Runner:
    """The thread of an actor, and the baton."""

    def __init__(self, name: str, actor: Actor, world: World) -> None:
        self.name, self.world = name, world
        self.ended, self.abandoned = False, False
        self.error: BaseException | None = None
        self._mine, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(actor,), daemon=True)
        self._thread.start()

    def _run(self, actor: Actor) -> None:
        _current.runner = self
        self._mine.acquire()
        try:
            if not self.abandoned:
                actor(self.world)
        except (errors.DeltaError, _Abandoned) as error:
            self.error = error
        except BaseException as error:
            self.error = AssertionError(f"{self.name}: {error!r}")
        self.ended = True
        self._back.release()

    def step(self) -> None:
        self._mine.release()
        self._back.acquire()

    def pause(self) -> None:
        if self.abandoned:
            raise _Abandoned
        self._back.release()
        self._mine.acquire()
        if self.abandoned:
            raise _Abandoned

    def abandon(self) -> None:
        if not self.ended:
            self.abandoned = True
            self.step()
            while not self.ended:
                self.step()
        self._thread.join()


_current = threading.local()


def pause() -> None:
    """Let the schedule go on with another actor."""
    runner = getattr(_current, "runner", None)
    if runner is not None:
        runner.pause()


class SpanStore(MemoryStore):
    """A store that pauses before each commit, and before each file of a deletion vector."""

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        if key.startswith(f"{LOG}/") and key.endswith(".json"):
            pause()
        return super().put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> None:
        if "deletion_vector" in key:
            pause()
        super().put(key, data)


@dataclass
class World:
    """A table in memory, and the clock.

    Attributes:
        store: the table's store.
        now: the time, in milliseconds since 1970.
        committed: the number of transactions whose commit was acknowledged.
    """

    store: SpanStore = field(default_factory=lambda: SpanStore(uuid.uuid4().hex))
    now: int = _BEGINNING
    committed: int = 0

    def snapshot(self, version: int | None = None) -> Snapshot:
        return load_snapshot(self.store, version)

    def begin(self) -> WriteTransaction:
        return WriteTransaction(TableTransaction(self.store, self.snapshot()))

    def put_commit(self, info: Mapping[str, Any]) -> int:
        """Commit a commitInfo as another engine does, after whatever is there. Returns the version."""
        while True:
            version = self.snapshot().version + 1
            data = json.dumps({"commitInfo": {"timestamp": self.now, **info}}).encode() + b"\n"
            if isinstance(self.store.put_if_absent(commit_key(version), data), Committed):
                return version

    def missing(self) -> list[str]:
        """The files that the newest version needs, and its change data, and that do not exist."""
        snapshot = self.snapshot()
        needed = referenced_keys(snapshot.files, self.store.uri).to_pylist()
        key = commit_key(snapshot.version)
        changes = (action for action in decode_commit(self.store.get(key), key) if isinstance(action, Cdc))
        needed += [data_key(action.path, self.store.uri) for action in changes]
        there = {info.key for info in self.store.list()}
        return sorted({key for key in needed if key not in there})


@contextlib.contextmanager
def clock_of(world: World) -> Iterator[None]:
    """The world's clock in the place of the machine's."""
    with (
        mock.patch("time.time_ns", side_effect=lambda: world.now * 1_000_000),
        mock.patch("time.time", side_effect=lambda: world.now / 1_000),
        mock.patch.object(vacuum_module, "_KEYS_AT_ONCE", 1),
        mock.patch.object(dv, "INLINE_BYTES", 0),
    ):
        yield


# --- the table -------------------------------------------------------------------------------------------------------


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def make(world: World, *, vectors: bool = False, feed: bool = False) -> None:
    """A table with a file, which version 1 has removed, and a file of its own in version 1."""
    configuration = {
        "delta.enableDeletionVectors": str(vectors).lower(),
        "delta.enableChangeDataFeed": str(feed).lower(),
        "delta.checkpointInterval": "1000",
    }
    made = _made.get((vectors, feed))
    if made is None:
        write_deltalake(world.store.uri, rows(1, 2, 3), configuration=configuration)
        world.now += MINUTE
        write_deltalake(world.store.uri, rows(4, 5, 6), mode="overwrite")
        made = _made[vectors, feed] = [(info.key, world.store.get(info.key)) for info in world.store.list()]
    else:
        for key, data in made:
            world.store.put(key, data)
        world.now += MINUTE
    world.now += MINUTE


_made: dict[tuple[bool, bool], list[tuple[str, bytes]]] = {}
"""The objects of tables, which are made once."""


# --- the actors: each VACUUM is a span, each transaction begins and commits ------------------------------------------


class _Inline:
    """Runs tasks in the thread of the caller, and pauses before each of them."""

    group_bytes = None

    def map(self, function: Any, tasks: Iterable[Any], **_others: Any) -> Iterator[Any]:
        for task in tasks:
            pause()
            yield function(task)


def vacuums(hours: float | None = 0, *, full: bool = False) -> Actor:
    """VACUUM of this engine; the default retention is a week."""

    def run(world: World) -> None:
        request = VacuumRequest(retention_hours=hours, enforce_retention_duration=False, full=full)
        vacuum(world.snapshot(), request, dry_run=False, executor=_Inline())

    return run


def foreign_vacuum(hours: int | None = 0) -> Actor:
    """VACUUM of another engine: all files that the log does not need, and an END that names no START."""

    def run(world: World) -> None:
        retention = WEEK if hours is None else hours * HOUR
        expired, objects = world.now - retention, list_objects(world.store)
        parameters = {"retentionCheckEnabled": "false", "defaultRetentionMillis": str(WEEK)}
        if hours is not None:
            parameters["specifiedRetentionMillis"] = str(retention)
        started = world.put_commit({"operation": "VACUUM START", "operationParameters": parameters})
        # What came back until then stays; delta-spark does not look again.
        found = find_candidates(world.snapshot(started), objects, expired_ms=expired, full=True)
        until = world.now + LONGEST_MS
        for key in found.objects.column("key").to_pylist():
            pause()
            # It counts as interrupted after that time, so it has to be.
            if world.now <= until:
                world.store.delete([key])
        world.put_commit({"operation": "VACUUM END", "operationParameters": {"status": "COMPLETED"}})

    return run


def a_week(world: World) -> None:
    """Eight days pass."""
    world.now += 8 * 24 * HOUR


def an_hour(world: World) -> None:
    world.now += HOUR


def transaction(stage: Callable[[World, WriteTransaction], Any]) -> Actor:
    """A transaction that stages its statement, pauses, and commits."""

    def run(world: World) -> None:
        with world.begin() as txn:
            stage(world, txn)
            txn.commit()
        world.committed += 1

    return run


def prepared(world: World) -> None:
    """Files of another program: written, and committed later."""
    buffer = io.BytesIO()
    pq.write_table(rows(9), buffer)
    name = f"prepared-{uuid.uuid4().hex}.parquet"
    world.store.put(name, buffer.getvalue())
    add = AddAction(name, len(buffer.getvalue()), {}, world.now, True, '{"numRecords":1}')
    pause()
    with world.begin() as txn:
        from refdelta.operations.write.prepared_files import PreparedFiles
        from refdelta.operations.write.target import WriteRequest

        txn._transaction.write(PreparedFiles([add], rows().schema), WriteRequest(mode="append"))
        txn.commit()
    world.committed += 1


TRANSACTIONS: Mapping[str, Actor] = {
    "restore": transaction(lambda world, txn: txn.restore(0)),
    "append": transaction(lambda world, txn: txn.append(rows(7))),
    "update": transaction(lambda world, txn: txn.update({"id": "70"}, predicate="id = 5")),
    "delete": transaction(lambda world, txn: txn.delete("id = 5")),
    "prepared": prepared,
}


# --- schedules -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What came of a schedule.

    Attributes:
        steps: the names of the actors, in the order of their steps.
        missing: the files that a version needs, and that do not exist.
        committed: the number of transactions that committed.
        refused: the number of those that conflicted, or found that a file is gone.
    """

    steps: tuple[str, ...]
    missing: tuple[str, ...]
    committed: int
    refused: int


def play(actors: Mapping[str, Actor], choose: Callable[[Sequence[str]], str | None], **table: bool) -> Outcome:
    """Run actors on a new table, a step at a time, and look for missing files after each step.

    Args:
        actors: by name.
        choose: the next of these actors, which have not ended; None if those that are left die.
        table: as for :func:`make`.

    Raises:
        AssertionError: an actor fails otherwise than by an error of this engine.
    """
    world = World()
    with clock_of(world):
        make(world, **table)
        runners = {name: _Runner(name, actor, world) for name, actor in actors.items()}
        steps: list[str] = []
        missing: list[str] = []
        while not missing and (left := [name for name, runner in runners.items() if not runner.ended]):
            name = choose(left)
            if name is None:
                break
            world.now += MINUTE
            runners[name].step()
            steps.append(name)
            missing = world.missing()
        for runner in runners.values():
            runner.abandon()
    errors_ = [runner.error for runner in runners.values()]
    for error in errors_:
        if isinstance(error, AssertionError):
            raise error
    refused = sum(isinstance(error, errors.DeltaError) for error in errors_)
    return Outcome(tuple(steps), tuple(missing), world.committed, refused)


def schedules(actors: Mapping[str, Actor], most: int, seed: int, **table: bool) -> Iterator[Outcome]:
    """At most this number of schedules, drawn with a seed; each is played once."""
    draw = random.Random(seed)
    seen = set[tuple[str, ...]]()
    for _ in range(most):
        found = play(actors, lambda left: draw.choice(left) if draw.random() > 0.03 else None, **table)
        if found.steps not in seen:
            seen.add(found.steps)
            yield found
