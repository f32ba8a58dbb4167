"""Scenarios on both engines, each on a table of its own, and their outcomes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from refdelta.crosscheck.scenario_transactions import CoreTransaction, SparkTransaction
from refdelta.crosscheck.scenarios import ALL_COMMIT, Failure, ScenarioCase, ScenarioTransaction
from refdelta.engine.log.snapshot import load_snapshot
from refdelta_storage import LocalStore

_AT_ONCE = 4
"""The number of scenarios that run at once: on Spark each mostly waits for tiny jobs."""


class BegunTransaction(Protocol):
    """A transaction in either engine after its reads. ``read``: the files that its predicates selected, if known."""

    read: frozenset[str] | None

    def commit(self, actions: list[dict[str, Any]]) -> Failure | None:
        """Commit it. Returns the failure, or None."""


@dataclass(frozen=True)
class ScenarioOutcome:
    """The outcome of a scenario in one engine.

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
        """The failed transactions with their errors, in the form of ``then`` of a scenario."""
        return ", ".join(f"{name} {failure.error}" for name, failure in self.failures.items()) or ALL_COMMIT


@dataclass(frozen=True)
class Replayed:
    """A scenario on both engines."""

    case: ScenarioCase
    refdelta: ScenarioOutcome
    delta_spark: ScenarioOutcome

    @property
    def alike(self) -> bool:
        """True if the same transactions failed with the same exceptions."""
        return self.refdelta.text == self.delta_spark.text


def prepare(case: ScenarioCase, path: Path) -> None:
    """Write version 0."""
    (path / "_delta_log").mkdir(parents=True)
    if case.exists:
        lines = [json.dumps(action) for action in case.beginning()]
        (path / "_delta_log" / f"{0:020d}.json").write_text("\n".join(lines) + "\n")


def play(
    case: ScenarioCase, path: Path, begin: Callable[[Path, ScenarioTransaction], BegunTransaction]
) -> ScenarioOutcome:
    """Run the steps of a scenario."""
    begun: dict[str, BegunTransaction] = {}
    failed: dict[str, Failure] = {}
    prepare(case, path)
    for verb, name in case.steps:
        if verb == "begin":
            begun[name] = begin(path, case.transactions[name])
        elif failure := begun[name].commit(case.actions(name)):
            failed[name] = failure
    live = load_snapshot(LocalStore(path)).files.column("path").to_pylist()
    read = {name: transaction.read for name, transaction in begun.items() if transaction.read is not None}
    return ScenarioOutcome(failed, read, frozenset(live))


def on_refdelta(case: ScenarioCase, path: Path) -> ScenarioOutcome:
    """Run a scenario on this engine's commit core.

    Args:
        case: the scenario.
        path: a folder that does not exist yet.
    """
    return play(case, path, lambda at, transaction: CoreTransaction(case, at, transaction))


def on_spark(spark: Any, case: ScenarioCase, path: Path) -> ScenarioOutcome:
    """Run a scenario on delta-spark.

    Args:
        spark: a session of :func:`refdelta.crosscheck.oracle.session`.
        case: the scenario.
        path: a folder that does not exist yet.
    """
    first = next(name for verb, name in case.steps if verb == "commit")
    return play(
        case, path, lambda at, transaction: SparkTransaction(spark, at, transaction, first=transaction.name == first)
    )


def replay(
    spark: Any, cases: Sequence[ScenarioCase], progress: Callable[[int], None] = lambda _: None
) -> list[Replayed]:
    """Run scenarios on both engines, in a scratch folder.

    Args:
        spark: a session of :func:`refdelta.crosscheck.oracle.session`.
        cases: the scenarios.
        progress: called with the number that are done.

    Returns:
        One outcome for each case, in their order.
    """
    with tempfile.TemporaryDirectory(prefix="refdelta-scenarios-") as scratch, ThreadPoolExecutor(_AT_ONCE) as pool:

        def both(numbered: tuple[int, ScenarioCase]) -> Replayed:
            number, case = numbered
            folder = Path(scratch) / str(number)
            return Replayed(case, on_refdelta(case, folder / "ours"), on_spark(spark, case, folder / "theirs"))

        done = []
        for replayed in pool.map(both, enumerate(cases)):
            done.append(replayed)
            progress(len(done))
        return done
