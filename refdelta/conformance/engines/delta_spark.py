"""delta-spark, step by step: statements in Spark's SQL, actions by its optimistic transactions.

A statement runs in a thread of its own. An observer of delta-spark's own (``PhaseLockingTransactionExecutionObserver``)
stops it when it has read its rows and written its files, before it tries its version; ``commit`` lets it go on.
"""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

from refdelta.conformance.cases import Case, Failure
from refdelta.conformance.core_transactions import short
from refdelta.conformance.engines import (
    WITHOUT_S3A,
    EngineUnavailableError,
    Left,
    NotSupportedError,
    Session,
    one_statement,
)
from refdelta.conformance.engines.refdelta_engine import as_pairs
from refdelta.conformance.judge import SERIALIZABLE, WRITE_SERIALIZABLE
from refdelta.conformance.replay import spark_session
from refdelta.conformance.statements import Statement
from refdelta.crosscheck import oracle
from refdelta.errors import InternalError

_PHASES = ("analysisPhase", "initialPhase", "preparePhase", "commitPhase", "backfillPhase", "postCommitPhase")
_BEFORE_COMMIT = 3
_LOOK_SECONDS = 0.02
_PATIENCE_SECONDS = 300.0
_CONFLICT = re.compile(r"\b((?:Concurrent|MetadataChanged|ProtocolChanged)\w*)Exception\b")


class DeltaSpark:
    """delta-spark, with the defaults of its release."""

    name = "delta-spark"
    kinds: tuple[str, ...] = ("statements", "actions")
    why_local = WITHOUT_S3A

    def __init__(self) -> None:
        self._spark: Any = None

    def version(self) -> str:
        """The version of delta-spark and of Spark."""
        if reason := oracle.availability():
            raise EngineUnavailableError(reason)
        import pyspark

        return f"{oracle.MAVEN_PACKAGE.split(':')[-1]} on Spark {pyspark.__version__}"

    @property
    def spark(self) -> Any:
        """The session, which starts when it is first asked for."""
        if self._spark is None:
            self._spark = oracle.start_session(conf=oracle.QUICK)
        return self._spark

    def open(self, case: Case, folder: Path) -> Session:
        """Make the table."""
        if case.kind == "statements":
            return _Statements(self.spark, case, folder)
        return spark_session(self.spark, case, folder)

    def close(self) -> None:
        """Stop the session."""
        if self._spark is not None:
            oracle.stop_session(self._spark)
            self._spark = None


class _Statements:
    def __init__(self, spark: Any, case: Case, folder: Path) -> None:
        self.spark, self.case, self.folder = spark, case, folder
        self.table = oracle.identifier(folder)
        self.begun: dict[str, _Held] = {}
        own = {"delta.isolationLevel": case.level} if case.level == SERIALIZABLE else {}
        properties = {**own, **case.table.get("properties", {})}
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        parts = f" PARTITIONED BY ({', '.join(case.partition_columns)})" if case.partition_columns else ""
        settings = f" TBLPROPERTIES ({listed})" if listed else ""
        spark.sql(f"CREATE TABLE {self.table} (k BIGINT, a BIGINT) USING delta{parts}{settings}")
        if case.level == WRITE_SERIALIZABLE:
            self._weaken(folder)
        for rows in case.table["rows"]:
            # One file for each list of rows, and not one for each core.
            insert = Statement("insert", tuple(tuple(row) for row in rows)).sql(self.table)
            spark.sql(insert.replace(" VALUES ", " SELECT /*+ COALESCE(1) */ * FROM VALUES ", 1))

    def _weaken(self, folder: Path) -> None:
        """Write WriteSerializable into version 0: delta-spark heeds it, but lets no statement set it."""
        path = folder / "_delta_log" / f"{0:020d}.json"
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            if "metaData" in action:
                action["metaData"]["configuration"]["delta.isolationLevel"] = WRITE_SERIALIZABLE
        path.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
        for checksum in path.parent.glob("*.crc"):
            checksum.unlink()
        for checksum in path.parent.glob(".*.crc"):
            checksum.unlink()
        oracle.clear_cache(self.spark)

    def begin(self, name: str) -> None:
        statement = one_statement(self.case, name)
        if statement.verb != "optimize":
            self.begun[name] = _Held(self.spark, statement.sql(self.table), name)
        elif self.case.steps[self.case.steps.index(("begin", name)) + 1] != ("commit", name):
            # It begins two transactions in a thread, and the observer knows one.
            raise NotSupportedError("an OPTIMIZE that waits before its commit")

    def commit(self, name: str) -> Failure | None:
        if name not in self.begun:
            self.spark.sql(one_statement(self.case, name).sql(self.table))
            return None
        error = self.begun[name].go_on()
        if error is None:
            return None
        found = _CONFLICT.search(f"{type(error).__name__} {error}")
        if found is None:
            raise error
        message = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        return Failure(short(found[0]), message)

    def left(self) -> Left:
        return as_pairs(oracle.read_table(self.spark, self.folder))

    def close(self) -> None:
        for held in self.begun.values():
            held.go_on()


class _Held:
    """A statement in a thread, which waits before its commit."""

    def __init__(self, spark: Any, sql: str, name: str) -> None:
        self.spark, self.sql = spark, sql
        self.error: Exception | None = None
        self.delta = spark._jvm.org.apache.spark.sql.delta  # noqa: SLF001
        self.phases = self.delta.fuzzer.OptimisticTransactionPhases.forName(name)
        for phase in _PHASES[:_BEFORE_COMMIT]:
            getattr(self.phases, phase)().entryBarrier().unblock()
        self.thread = threading.Thread(target=self._run, name=f"case {name}", daemon=True)
        self.thread.start()
        for _ in range(int(_PATIENCE_SECONDS / _LOOK_SECONDS)):
            self.thread.join(_LOOK_SECONDS)
            # A statement that changes nothing ends without a commit.
            if not self.thread.is_alive() or self.phases.commitPhase().hasReached():
                return
        raise InternalError(f"{sql} reached no commit within {_PATIENCE_SECONDS:.0f} seconds")

    def _run(self) -> None:
        observers = self.delta.TransactionExecutionObserver
        observers.setObserver(self.delta.fuzzer.PhaseLockingTransactionExecutionObserver(self.phases))
        try:
            self.spark.sql(self.sql).collect()
        except Exception as error:  # noqa: BLE001 - it is raised where the statement commits
            self.error = error

    def go_on(self) -> Exception | None:
        """Let it commit. Returns its error, or None."""
        for phase in _PHASES:
            barrier = getattr(self.phases, phase)().entryBarrier()
            if "Blocked" in str(barrier.load().toString()) or "Requested" in str(barrier.load().toString()):
                barrier.unblock()
        self.thread.join()
        return self.error
