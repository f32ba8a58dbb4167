"""Cases of actions on both engines, each on a table of its own, and their outcomes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from refdelta.conformance.cases import ALL_COMMIT, Case, CaseTransaction, Failure
from refdelta.conformance.core_transactions import CoreTransaction, SparkTransaction
from refdelta.core.log.actions import DeletionVectorDescriptor
from refdelta.core.log.paths import commit_key
from refdelta.engine.log.listing import has_log
from refdelta.engine.log.location import open_location
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.log.state import to_adds
from refdelta.engine.parquet.dv import load_deletion_vector
from refdelta_storage import LocalStore, Store
from refdelta_storage.base import committed_or_raise

_AT_ONCE = 4
"""The number of cases that run at once: on Spark each mostly waits for tiny jobs."""


class BegunTransaction(Protocol):
    """A transaction in either engine after its reads. ``read``: the files that its predicates selected, if known."""

    read: frozenset[str] | None

    def commit(self, actions: list[dict[str, Any]]) -> Failure | None:
        """Commit it. Returns the failure, or None."""


@dataclass(frozen=True)
class CaseOutcome:
    """The outcome of a case in one engine.

    Attributes:
        failures: the failures by the name of the transaction, in the order of their commits.
        read: the files that each transaction read.
        files: the paths of the live files at the end.
    """

    failures: Mapping[str, Failure] = field(default_factory=dict)
    read: Mapping[str, frozenset[str]] = field(default_factory=dict)
    files: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The failed transactions with their errors, in the form of ``delta_spark`` of a case."""
        return ", ".join(f"{name} {failure.error}" for name, failure in self.failures.items()) or ALL_COMMIT


@dataclass(frozen=True)
class Replayed:
    """A case on both engines."""

    case: Case
    refdelta: CaseOutcome
    delta_spark: CaseOutcome

    @property
    def alike(self) -> bool:
        """True if the same transactions failed with the same exceptions."""
        return self.refdelta.text == self.delta_spark.text


def prepare(case: Case, store: Store) -> None:
    """Write version 0."""
    if case.exists:
        lines = "".join(f"{json.dumps(action)}\n" for action in case.beginning())
        committed_or_raise(commit_key(0), store.uri, store.put_if_absent(commit_key(0), lines.encode()))


class LogSession:
    """A case of actions on one table, by an engine that checks conflicts by the log alone.

    Args:
        case: the case.
        store: the store of the table, which has no log yet.
        begin: begins a transaction of the engine.
    """

    def __init__(self, case: Case, store: Store, begin: Callable[[CaseTransaction], BegunTransaction]) -> None:
        self.case, self.store, self._begin = case, store, begin
        self.begun: dict[str, BegunTransaction] = {}
        self._seen: dict[str, dict[str, DeletionVectorDescriptor | None]] = {}
        prepare(case, store)

    def begin(self, name: str) -> None:
        """Begin a transaction, and let it read."""
        self._seen[name] = self._vectors() if has_log(self.store) else {}
        self.begun[name] = self._begin(self.case.transactions[name])

    def commit(self, name: str) -> Failure | None:
        """Commit it. Returns the failure, or None."""
        actions = self.case.actions(name)
        for action in actions:
            if "remove" in action and (path := action["remove"]["path"]) in self._seen[name]:
                # A file is removed with the vector that it had when the transaction began.
                action["remove"].pop("deletionVector", None)
                if vector := self._seen[name][path]:
                    action["remove"]["deletionVector"] = msgspec.to_builtins(vector)
        return self.begun[name].commit(actions)

    def left(self) -> dict[str, frozenset[int]]:
        """The live files, each with the rows that its deletion vector deletes."""
        live = self._vectors().items()
        return {path: frozenset(load_deletion_vector(self.store, dv)) if dv else frozenset() for path, dv in live}

    def _vectors(self) -> dict[str, DeletionVectorDescriptor | None]:
        """The deletion vectors of the live files."""
        snapshot = load_snapshot(self.store)
        return {add.path: add.deletion_vector for add in to_adds(snapshot.files)}

    def close(self) -> None:
        """Nothing is open."""


def core_session(case: Case, place: Path | str, storage_options: Mapping[str, Any] | None = None) -> LogSession:
    """A case on this engine's commit core.

    Args:
        case: the case.
        place: a folder that does not exist yet, or the URI of one in a store.
        storage_options: the options of the store; None for a local folder.
    """

    def opened() -> Store:
        return _local(place) if storage_options is None else open_location(place, storage_options)

    return LogSession(case, opened(), lambda transaction: CoreTransaction(case, opened(), transaction))


def spark_session(spark: Any, case: Case, path: Path) -> LogSession:
    """A case on delta-spark.

    Args:
        spark: a session of :func:`refdelta.crosscheck.oracle.session`.
        case: the case.
        path: a folder that does not exist yet.
    """
    first = case.commits[0]

    def begin(transaction: CaseTransaction) -> SparkTransaction:
        return SparkTransaction(spark, path, transaction, first=transaction.name == first)

    return local_session(case, path, begin)


def local_session(case: Case, path: Path, begin: Callable[[CaseTransaction], BegunTransaction]) -> LogSession:
    """A case on an engine that has its table in a local folder.

    Args:
        case: the case.
        path: a folder that does not exist yet; it has a ``_delta_log`` afterwards.
        begin: begins a transaction of the engine.
    """
    (path / "_delta_log").mkdir(parents=True)
    return LogSession(case, _local(path), begin)


def _local(path: Path | str) -> Store:
    return LocalStore(path, fsync=False)


def play(session: LogSession) -> CaseOutcome:
    """Run the steps of a case."""
    failed: dict[str, Failure] = {}
    for verb, name in session.case.steps:
        if verb == "begin":
            session.begin(name)
        elif failure := session.commit(name):
            failed[name] = failure
    read = {name: transaction.read for name, transaction in session.begun.items() if transaction.read is not None}
    return CaseOutcome(failed, read, frozenset(session.left()))


def replay(spark: Any, cases: Sequence[Case], progress: Callable[[int], None] = lambda _: None) -> list[Replayed]:
    """Run cases on both engines, in a scratch folder.

    Args:
        spark: a session of :func:`refdelta.crosscheck.oracle.session`.
        cases: the cases.
        progress: called with the number that are done.

    Returns:
        One outcome for each case, in their order.
    """
    with tempfile.TemporaryDirectory(prefix="refdelta-cases-") as scratch, ThreadPoolExecutor(_AT_ONCE) as pool:

        def both(numbered: tuple[int, Case]) -> Replayed:
            number, case = numbered
            folder = Path(scratch) / str(number)
            ours, theirs = core_session(case, folder / "ours"), spark_session(spark, case, folder / "theirs")
            return Replayed(case, play(ours), play(theirs))

        done = []
        for replayed in pool.map(both, enumerate(cases)):
            done.append(replayed)
            progress(len(done))
        return done
