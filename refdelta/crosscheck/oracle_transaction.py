"""delta-spark's optimistic transactions, driven by hand: what a scenario's transaction is there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from refdelta.crosscheck import oracle
from refdelta.crosscheck.scenario_core import short
from refdelta.crosscheck.scenarios import Failure, Transaction


class OnSpark:
    """A transaction of delta-spark.

    Args:
        spark: the session.
        path: the table.
        transaction: what it reads.
        first: whether it is the first to commit. It meets no winner then, so of what it reads only that it does.
    """

    def __init__(self, spark: Any, path: Path, transaction: Transaction, *, first: bool) -> None:
        self.spark, self.delta = spark, spark._jvm.org.apache.spark.sql.delta  # noqa: SLF001
        self.path = path
        log = self.delta.DeltaLog.forTable(spark._jsparkSession, str(path))  # noqa: SLF001
        self.transaction = log.startTransaction()
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
        # Columns resolved, constants of the columns' types, conjunctions in parts: as an optimized plan has them.
        frame = self.spark.read.format("delta").load(str(self.path)).where(re.sub(r"\b(\d+)(?!')\b", r"\1L", words))
        condition = frame._jdf.queryExecution().analyzed().condition()  # noqa: SLF001
        found = self.transaction.filterFiles(oracle.scala_list(self.spark, _conjuncts(condition)), False)
        return [found.apply(index).path() for index in range(found.size())]

    def commit(self, actions: list[dict[str, Any]]) -> Failure | None:
        """Commit it, or say how it failed."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        decode = getattr(self.delta.actions, "Action$").__getattr__("MODULE$").fromJson
        operation = getattr(self.delta, "DeltaOperations$ManualUpdate$").__getattr__("MODULE$")
        staged = oracle.scala_list(self.spark, [decode(json.dumps(action)) for action in actions])
        try:
            self.transaction.commit(staged, operation)
        except PySparkException as error:
            return Failure(short(type(error).__name__), _first_line(str(error)))
        except Py4JJavaError as error:
            thrown = error.java_exception
            return Failure(short(thrown.getClass().getSimpleName()), _first_line(thrown.getMessage() or ""))
        return None


def _conjuncts(condition: Any) -> list[Any]:
    """The parts of a condition that hold together."""
    if condition.getClass().getSimpleName() != "And":
        return [condition]
    return [*_conjuncts(condition.left()), *_conjuncts(condition.right())]


def _first_line(message: str) -> str:
    return next((line.strip() for line in message.splitlines() if line.strip()), "")
