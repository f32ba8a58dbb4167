"""Delta Kernel (Java), below SQL: cases of actions, by its transactions, in a Java process of their own.

A transaction of Kernel fixes its snapshot when it is built, at ``begin``, and takes the rows of actions at ``commit``.
It has no means to say what it read. So a transaction that read rows runs only if no other one touched a file meanwhile,
or if both removed the same file, which Kernel looks for. That its own version of an application is not recorded yet is
all that it can say of applications; so if a lower one is recorded meanwhile, the case is refused, too.
"""

from __future__ import annotations

import json
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

from refdelta.conformance.cases import Action, Case, CaseTransaction, Failure
from refdelta.conformance.core_transactions import short
from refdelta.conformance.engines import WITHOUT_S3A, EngineUnavailableError, NotSupportedError, Session
from refdelta.conformance.replay import local_session
from refdelta.crosscheck import oracle

_ENGINE_INFO = "conformance"
_CONFLICTS = "io.delta.kernel.exceptions.ConcurrentWriteException"


class DeltaKernel:
    """Delta Kernel with its default engine, at the version that delta-spark comes with."""

    name = "delta-kernel"
    kinds: tuple[str, ...] = ("actions",)
    why_local = WITHOUT_S3A

    def version(self) -> str:
        """The version of Kernel."""
        if reason := oracle.availability():
            raise EngineUnavailableError(
                reason.replace("delta-spark needs", "Delta Kernel, by delta-spark's JARs, needs")
            )
        return oracle.MAVEN_PACKAGE.split(":")[-1]

    @cached_property
    def java(self) -> Any:
        """The Java process, which starts when it is first asked for."""
        return oracle.start_java()

    @property
    def kernel(self) -> Any:
        """The package ``io.delta.kernel``."""
        return self.java.jvm.io.delta.kernel

    @cached_property
    def engine(self) -> Any:
        """Kernel's default engine, on the local disk."""
        return self.kernel.defaults.engine.DefaultEngine.create(self.java.jvm.org.apache.hadoop.conf.Configuration())

    def open(self, case: Case, folder: Path) -> Session:
        """Make the table."""
        winners: list[list[Action]] = []
        return local_session(case, folder, lambda one: _Transaction(self, case, folder, one, winners))

    def rows(self, actions: list[Action]) -> Any:
        """Actions as rows of Kernel, which its own reader of JSON makes of them."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "actions.json")
            file.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
            status = self.kernel.utils.FileStatus.of(str(file), file.stat().st_size, 0)
            batches = self.engine.getJsonHandler().readJsonFiles(
                self.kernel.internal.util.Utils.singletonCloseableIterator(status),
                self.kernel.internal.actions.SingleAction.FULL_SCHEMA,
                self.java.jvm.java.util.Optional.empty(),
            )
            iterable = self.kernel.utils.CloseableIterable
            return (
                iterable.inMemoryIterable(batches.next().getRows()) if batches.hasNext() else iterable.emptyIterable()
            )

    def close(self) -> None:
        """Stop the process."""
        self.__dict__.pop("engine", None)
        if java := self.__dict__.pop("java", None):
            oracle.stop_java(java)


class _Transaction:
    """A transaction of Kernel. ``winners``: the actions of all transactions that have committed so far, in order."""

    read: frozenset[str] | None = None

    def __init__(
        self, kernel: DeltaKernel, case: Case, path: Path, transaction: CaseTransaction, winners: list[list[Action]]
    ) -> None:
        self.kernel, self.case, self.path, self.winners = kernel, case, path, winners
        self.reads, self.actions, self.begun = transaction.reads, case.actions(transaction.name), len(winners)
        if "vacuum" in transaction.does:
            raise NotSupportedError("a VACUUM: Kernel has none")
        if any("protocol" in action for action in self.actions) and not self.creates:
            raise NotSupportedError("a protocol: Kernel sets it by itself, as properties need it")
        if case.exists and case.metadata() in self.actions:
            raise NotSupportedError("a metaData that changes nothing: Kernel does not write it")
        self.failure: Failure | None = None
        try:
            self.transaction = self._build()
        except _java_errors() as error:
            self.failure = self._conflict(error)
            if self.failure is None:
                raise NotSupportedError(f"Kernel begins no such transaction: {_reason(error)}") from None

    @property
    def creates(self) -> bool:
        """True if it makes the table."""
        return any("protocol" in action for action in self.actions) and any("metaData" in a for a in self.actions)

    def _build(self) -> Any:
        kernel, engine = self.kernel.kernel, self.kernel.engine
        changes = [action["metaData"] for action in self.actions if "metaData" in action]
        if self.creates:
            schema = kernel.internal.types.DataTypeJsonSerDe.deserializeStructType(changes[0]["schemaString"])
            builder = kernel.TableManager.buildCreateTableTransaction(str(self.path), schema, _ENGINE_INFO)
            return builder.withTableProperties(self._map(changes[0]["configuration"])).build(engine)
        snapshot = kernel.Table.forPath(engine, str(self.path)).getLatestSnapshot(engine)
        builder = snapshot.buildUpdateTableTransaction(_ENGINE_INFO, kernel.Operation.MANUAL_UPDATE)
        for change in changes:
            before = self.case.metadata()["metaData"]
            if change["schemaString"] != before["schemaString"]:
                schema = kernel.internal.types.DataTypeJsonSerDe.deserializeStructType(change["schemaString"])
                builder = builder.withUpdatedSchema(schema)
            else:
                added = dict(change["configuration"].items() - before["configuration"].items())
                builder = builder.withTablePropertiesAdded(self._map(added))
        for action in self.actions:
            if "txn" in action:
                builder = builder.withTransactionId(action["txn"]["appId"], action["txn"]["version"])
        return builder.build(engine)

    def _map(self, properties: dict[str, str]) -> Any:
        found = self.kernel.java.jvm.java.util.HashMap()
        for key, value in properties.items():
            found.put(key, value)
        return found

    def commit(self, actions: list[Action]) -> Failure | None:
        """Commit it. Returns the failure, or None."""
        if self.failure is not None:
            return self.failure
        self._check_reads([action for winner in self.winners[self.begun :] for action in winner])
        try:
            for action in actions:
                if "domainMetadata" in action:
                    one = action["domainMetadata"]
                    self.transaction.addDomainMetadata(one["domain"], one["configuration"])
            files = [action for action in actions if action.keys() & {"add", "remove"}]
            self.transaction.commit(self.kernel.engine, self.kernel.rows(files))
        except _java_errors() as error:
            failure = self._conflict(error)
            if failure is None:
                raise
            return failure
        self.winners.append(actions)
        return None

    def _check_reads(self, meanwhile: list[Action]) -> None:
        """Raise ``NotSupportedError`` if its reads make a difference to what was committed since it began."""
        touched = _paths(meanwhile, "add", "remove")
        checked = _paths(meanwhile, "remove") & _paths(self.actions, "remove")
        own = {action["txn"]["appId"]: action["txn"]["version"] for action in self.actions if "txn" in action}
        lower = {
            f"app {action['txn']['appId']}"
            for action in meanwhile
            if "txn" in action and action["txn"]["version"] < own.get(action["txn"]["appId"], float("inf"))
        }
        unsaid = [
            words for words in self.reads if (words in lower if words.startswith("app ") else touched and not checked)
        ]
        if unsaid:
            raise NotSupportedError(f"a transaction of Kernel cannot say that it read: {', '.join(unsaid)}")

    def _conflict(self, error: Exception) -> Failure | None:
        """The conflict that Kernel found; None if it is another error."""
        thrown = error.java_exception  # type: ignore[attr-defined]
        if not self.kernel.java.jvm.java.lang.Class.forName(_CONFLICTS).isInstance(thrown):
            return None
        return Failure(short(thrown.getClass().getSimpleName()), _reason(error))


def _java_errors() -> type[Exception]:
    from py4j.protocol import Py4JJavaError

    return Py4JJavaError  # type: ignore[no-any-return]


def _reason(error: Any) -> str:
    return " ".join((error.java_exception.getMessage() or error.java_exception.getClass().getSimpleName()).split())


def _paths(actions: list[Action], *kinds: str) -> set[str]:
    """The files of actions of these kinds."""
    return {action[kind]["path"] for action in actions for kind in kinds if kind in action}
