"""A scenario on each of the engines, on a table of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from refdelta.engine.snapshot import load_snapshot
from refdelta.spark import oracle
from refdelta_storage import LocalStore
from scenarios.engine import OnRefdelta, short
from scenarios.scenario import ALL_COMMIT, Case, Transaction


class Begun(Protocol):
    """A transaction that has begun, in either engine. ``read``: the files that its predicates chose, where it knows."""

    read: frozenset[str] | None

    def commit(self, actions: list[dict[str, Any]]) -> str | None:
        """Commits it, or returns the name of the exception, without ``Exception``."""


@dataclass(frozen=True)
class Outcome:
    """How a scenario ended.

    Attributes:
        text: as ``then`` has it: the transactions that failed, and of what.
        read: the files that each transaction read.
        files: the names of the files that are live in the end.
    """

    text: str
    read: Mapping[str, frozenset[str]] = field(default_factory=dict)
    files: frozenset[str] = frozenset()


def prepare(case: Case, path: Path) -> None:
    """Write version 0."""
    (path / "_delta_log").mkdir(parents=True)
    if case.exists:
        lines = [json.dumps(action) for action in case.beginning()]
        (path / "_delta_log" / f"{0:020d}.json").write_text("\n".join(lines) + "\n")


def play(case: Case, path: Path, begin: Callable[[Path, Transaction], Begun]) -> Outcome:
    """Take the steps of a scenario."""
    begun: dict[str, Begun] = {}
    failed: dict[str, str] = {}
    prepare(case, path)
    for verb, name in case.steps:
        if verb == "begin":
            begun[name] = begin(path, case.transactions[name])
        elif error := begun[name].commit(case.actions(name)):
            failed[name] = error
    text = ", ".join(f"{name} {error}" for name, error in failed.items()) or ALL_COMMIT
    live = load_snapshot(LocalStore(path)).files.column("path").to_pylist()
    read = {name: transaction.read for name, transaction in begun.items() if transaction.read is not None}
    return Outcome(text, read, frozenset(live))


# --- refdelta ---


def on_refdelta(case: Case, path: Path) -> Outcome:
    """Run a scenario on refdelta's commit core."""
    return play(case, path, lambda at, transaction: OnRefdelta(case, at, transaction))


# --- delta-spark ---


class OnSpark:
    """A transaction of delta-spark.

    Args:
        spark: the session.
        path: the table.
        transaction: what it reads.
        first: whether it is the first to commit. It meets no winner then, so of what it reads only that it does.
    """

    def __init__(self, spark: Any, path: Path, transaction: Transaction, *, first: bool) -> None:
        self.spark, self.delta = spark, spark._jvm.org.apache.spark.sql.delta
        self.path = path
        self.transaction = self.delta.DeltaLog.forTable(spark._jsparkSession, str(path)).startTransaction()
        data = [words for words in transaction.reads if not words.startswith("app ")]
        for words in transaction.reads:
            if words not in data:
                self.transaction.txnVersion(words[4:])
        self.read: frozenset[str] | None = None
        if data and (first or "everything" in data):
            self.transaction.readWholeTable()
        elif data:
            self.read = frozenset(path for words in data for path in self._filter(words))

    def _filter(self, words: str) -> list[str]:
        # Conjunctions in parts, columns resolved, and constants of the columns' types: as an optimized plan has them.
        parts = [re.sub(r"\b(\d+)(?!')\b", r"\1L", part) for part in words.split(" AND ")]
        frame = self.spark.read.format("delta").load(str(self.path))
        resolved = [frame.where(part)._jdf.queryExecution().analyzed().condition() for part in parts]
        found = self.transaction.filterFiles(oracle.scala_list(self.spark, resolved), False)
        return [found.apply(index).path() for index in range(found.size())]

    def commit(self, actions: list[dict[str, Any]]) -> str | None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        decode = getattr(self.delta.actions, "Action$").__getattr__("MODULE$").fromJson
        operation = getattr(self.delta, "DeltaOperations$ManualUpdate$").__getattr__("MODULE$")
        staged = oracle.scala_list(self.spark, [decode(json.dumps(action)) for action in actions])
        try:
            self.transaction.commit(staged, operation)
        except PySparkException as error:
            return short(type(error).__name__)
        except Py4JJavaError as error:
            return short(error.java_exception.getClass().getSimpleName())
        return None


def on_spark(spark: Any, case: Case, path: Path) -> Outcome:
    """Run a scenario on delta-spark."""
    first = next(name for verb, name in case.steps if verb == "commit")
    return play(case, path, lambda at, transaction: OnSpark(spark, at, transaction, first=transaction.name == first))
