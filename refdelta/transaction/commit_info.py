"""What a commit says of itself: its commitInfo (PROTOCOL.md, "Commit Provenance Information")."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from refdelta import arguments
from refdelta._version import __version__
from refdelta.core.log.actions import Txn
from refdelta.errors import InvalidArgumentError

if TYPE_CHECKING:
    from refdelta.core.conflicts.isolation import IsolationLevel
    from refdelta.transaction.options import CommitProperties

_OWN_FIELDS = frozenset({
    "timestamp", "operation", "operationParameters", "operationMetrics", "readVersion", "isolationLevel",
    "isBlindAppend", "readPredicates", "rowPlaces", "engineInfo", "txnId", "inCommitTimestamp", "userMetadata", "tags",
})  # fmt: skip


@dataclass(frozen=True)
class Description:
    """What a commit does.

    Attributes:
        operation: the name under which Spark's history knows the operation.
        parameters: its ``operationParameters``, each value a string as Spark writes it.
        operation_metrics: its ``operationMetrics``.
        metrics: what the caller is told, by deltalake's names.
        always: whether it is made even where nothing is staged.
    """

    operation: str
    parameters: Mapping[str, str]
    operation_metrics: Mapping[str, int]
    metrics: Mapping[str, Any]
    always: bool = False


def texts(metrics: Mapping[str, int]) -> dict[str, str]:
    """Metrics as the log has them."""
    return {name: str(value) for name, value in metrics.items()}


def now_ms() -> int:
    """The time, in milliseconds since 1970 (UTC)."""
    return time.time_ns() // 1_000_000


def commit_info(
    described: Description,
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
        described: what the commit does.
        properties: what its user wants to be noted.
        read_version: the version that it saw; None where it creates the table.
        isolation: the level at which it is checked.
        blind: whether it is a blind append.
        txn_id: unique to the transaction.
        tags: what the engine tells other engines, by PROTOCOL.md's names.

    Raises:
        InvalidArgumentError: ``custom_metadata`` has a field that the engine writes.
    """
    custom = dict(properties.custom_metadata or {})
    taken = sorted(_OWN_FIELDS & custom.keys())
    if taken:
        raise InvalidArgumentError(f"custom_metadata cannot replace what the engine writes: {', '.join(taken)}")
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
        properties: may name some.
        app_id: with ``app_version``, one more.
        app_version: see ``app_id``.
        now_ms: when they were made, where that is not said, in milliseconds since 1970.

    Raises:
        InvalidArgumentError: half an application transaction, or two of one application.
    """
    if (app_id is None) != (app_version is None):
        raise InvalidArgumentError("app_id and app_version go together: give both or neither")
    told: list[tuple[Any, Any, int | None]]
    told = [(t.app_id, t.version, getattr(t, "last_updated", None)) for t in properties.app_transactions or ()]
    told += [] if app_id is None else [(app_id, app_version, None)]
    found: list[Txn] = []
    for given_id, given_version, updated in told:
        name, number = arguments.text("app_id", given_id), arguments.whole("app_version", given_version)
        if name is None or number is None:
            raise InvalidArgumentError("an application's transaction has a name and a version")
        found.append(Txn(app_id=name, version=number, last_updated=updated or now_ms))
    if len({t.app_id for t in found}) != len(found):
        raise InvalidArgumentError("one commit records at most one version of an application")
    return tuple(found)


def unrecorded(applications: Iterable[Txn], known: Mapping[str, Txn]) -> list[Txn]:
    """Those of the versions of applications that a table does not record: neither this version nor a later one.

    Args:
        applications: what a write is to record.
        known: what the table records, by the application's id.
    """
    return [t for t in applications if t.app_id not in known or known[t.app_id].version < t.version]


def check_recorded(applications: Sequence[Txn], known: Mapping[str, Txn]) -> None:
    """Refuse a write of which the table records a part: skipping it would lose the rest, and repeating it would double
    the part.

    Args:
        applications: what the write is to record.
        known: what the table records, by the application's id.

    Raises:
        InvalidArgumentError: it records some of them and not all; names both.
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
