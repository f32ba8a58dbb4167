"""The commitInfo of a commit (PROTOCOL.md, "Commit Provenance Information"), and its application transactions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from refdelta import arguments
from refdelta._version import __version__
from refdelta.core.commit.intent_file import LEAD_MS, REFUSED, WITHDRAWN, WRITER
from refdelta.core.log.actions import Txn
from refdelta.core.log.lean import LeanInfo
from refdelta.errors import InvalidArgumentError

if TYPE_CHECKING:
    from refdelta.core.conflicts.isolation import IsolationLevel
    from refdelta.transaction.options import CommitProperties

_OWN_FIELDS = frozenset({
    "timestamp", "operationParameters", "operationMetrics", "userMetadata", "tags", REFUSED, WITHDRAWN, LEAD_MS, WRITER,
    *LeanInfo.__struct_encode_fields__
})  # fmt: skip
"""All by which other writers decide, and those that have an argument of their own."""

_PREDICATES = frozenset({"predicate", "matchedPredicates", "notMatchedPredicates", "notMatchedBySourcePredicates"})
"""The ``operationParameters`` that hold predicates."""


class CommitDescription(msgspec.Struct, frozen=True):
    """The description of a commit.

    Attributes:
        operation: the operation's name in Spark's history.
        parameters: its ``operationParameters``, each value a string as Spark writes it.
        operation_metrics: its ``operationMetrics``.
        metrics: the metrics of the result, by deltalake's names.
        always: whether the commit is made even if nothing is staged.
    """

    operation: str
    parameters: Mapping[str, str]
    operation_metrics: Mapping[str, int]
    metrics: Mapping[str, Any]
    always: bool = False

    def without_predicates(self) -> CommitDescription:
        """The same description without the parameters that hold predicates."""
        shown = {name: value for name, value in self.parameters.items() if name not in _PREDICATES}
        return msgspec.structs.replace(self, parameters=shown)


def texts(metrics: Mapping[str, int]) -> dict[str, str]:
    """Metrics in the form of the log: strings."""
    return {name: str(value) for name, value in metrics.items()}


def now_ms() -> int:
    """The time, in milliseconds since 1970 (UTC)."""
    return time.time_ns() // 1_000_000


def commit_info(
    described: CommitDescription,
    properties: CommitProperties,
    *,
    read_version: int | None,
    isolation: IsolationLevel,
    blind: bool,
    txn_id: str,
    tags: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The fields of a commitInfo.

    Args:
        described: the description of the commit.
        properties: the user's notes.
        read_version: the version that the transaction read; None if it creates the table.
        isolation: the level at which the commit is checked.
        blind: whether it is a blind append.
        txn_id: the unique id of the transaction.
        tags: the tags of PROTOCOL.md, for other engines.

    Raises:
        InvalidArgumentError: ``custom_metadata`` has a field that the engine writes.
    """
    custom = dict(properties.custom_metadata or {})
    taken = sorted(_OWN_FIELDS & custom.keys())
    if taken:
        raise InvalidArgumentError(f"custom_metadata cannot set fields that the engine writes: {', '.join(taken)}")
    info: dict[str, Any] = {"timestamp": now_ms(), "operation": described.operation}
    info["operationParameters"] = dict(described.parameters)
    if read_version is not None:
        info["readVersion"] = read_version
    info["isolationLevel"] = isolation.value
    info["isBlindAppend"] = blind
    info["operationMetrics"] = texts(described.operation_metrics)
    if tags:
        info["tags"] = dict(tags)
    if properties.user_metadata is not None:
        info["userMetadata"] = properties.user_metadata
    return {**info, "engineInfo": f"refdelta/{__version__}", "txnId": txn_id, **custom}


def application_transactions(
    properties: CommitProperties, app_id: str | None, app_version: int | None, now_ms: int
) -> tuple[Txn, ...]:
    """The versions of applications that a commit records (PROTOCOL.md, "Transaction Identifiers").

    Args:
        properties: the options of the commit, which may have application transactions.
        app_id: with ``app_version``, one more.
        app_version: see ``app_id``.
        now_ms: the time of those without a time of their own, in milliseconds since 1970.

    Raises:
        InvalidArgumentError: an application transaction lacks its id or its version, or there are two of one
            application.
    """
    if (app_id is None) != (app_version is None):
        raise InvalidArgumentError("app_id and app_version go together: give both or neither")
    given: list[tuple[Any, Any, int | None]]
    given = [(t.app_id, t.version, getattr(t, "last_updated", None)) for t in properties.app_transactions or ()]
    given += [] if app_id is None else [(app_id, app_version, None)]
    found: list[Txn] = []
    for given_id, given_version, updated in given:
        name, number = arguments.text("app_id", given_id), arguments.whole("app_version", given_version)
        if name is None or number is None:
            raise InvalidArgumentError("an application transaction needs an app_id and a version")
        found.append(Txn(app_id=name, version=number, last_updated=updated or now_ms))
    ids = [t.app_id for t in found]
    if twice := sorted({name for name in ids if ids.count(name) > 1}):
        raise InvalidArgumentError(
            f"one commit records at most one version of an application; {', '.join(map(repr, twice))} has several"
        )
    return tuple(found)


def unrecorded(applications: Iterable[Txn], known: Mapping[str, Txn]) -> list[Txn]:
    """The application transactions that a table does not record, neither this version nor a later one.

    Args:
        applications: the application transactions of a write.
        known: those that the table records, by the application's id.
    """
    return [t for t in applications if t.app_id not in known or known[t.app_id].version < t.version]


def check_recorded(applications: Sequence[Txn], known: Mapping[str, Txn]) -> None:
    """Refuse a write if the table records some, but not all, of its application transactions.

    To skip it would lose the rows of the others, and to repeat it would duplicate the recorded ones.

    Args:
        applications: the application transactions of the write.
        known: those that the table records, by the application's id.

    Raises:
        InvalidArgumentError: some are recorded and some are not; the message names both.
    """
    missing = unrecorded(applications, known)
    if len(missing) in (0, len(applications)):
        return
    recorded = [
        f"{t.app_id!r} at version {known[t.app_id].version} (asked: {t.version})"
        for t in applications
        if t not in missing
    ]
    open_ = [
        f"{t.app_id!r} version {t.version} (it has {known[t.app_id].version if t.app_id in known else 'none'})"
        for t in missing
    ]
    raise InvalidArgumentError(
        "the table records some of the application versions of this write, and not all: recorded are "
        f"{', '.join(recorded)}; not recorded are {', '.join(open_)}. A write is skipped only if all of its versions "
        "are recorded. Nothing was written; if its rows are not in the table, write them with the versions that are "
        "not recorded"
    )
