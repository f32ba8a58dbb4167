"""What a commit says of itself: its commitInfo (PROTOCOL.md, "Commit Provenance Information")."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from refdelta._version import __version__
from refdelta.errors import InvalidArgumentError
from refdelta.protocol.actions import AnyAction, Metadata, Protocol
from refdelta.protocol.in_commit_timestamp import CommitClock, enablement, kept
from refdelta.protocol.row_tracking import PRESERVED, RowIds, is_assigned, is_enabled

if TYPE_CHECKING:
    from refdelta.concurrency.isolation import IsolationLevel
    from refdelta.engine.snapshot import Snapshot
    from refdelta.results import CommitProperties

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
    custom = dict(getattr(properties, "custom_metadata", None) or {})
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
    user = getattr(properties, "user_metadata", None)
    if user is not None:
        info["userMetadata"] = user
    return {**info, "engineInfo": f"refdelta/{__version__}", "txnId": txn_id, **custom}


def commit_clock(snapshot: Snapshot | None, staged: Iterable[AnyAction]) -> CommitClock | None:
    """What a commit has to know of time, where each commit of the table behind it has a timestamp; else None.

    Args:
        snapshot: the version that it saw; None where it creates the table.
        staged: what it does.

    Raises:
        InvalidLogError: the table has timestamps, and the commit of this version has none.
    """
    protocol, metadata = _behind(snapshot, staged)
    if protocol is None or metadata is None or not kept(protocol, metadata):
        return None
    if snapshot is None:
        return CommitClock(now_ms=now_ms(), creates=True)
    since = enablement(snapshot.protocol, snapshot.metadata)
    return CommitClock(now_ms=now_ms(), latest=snapshot.timestamp_ms, since=since)


def row_ids(snapshot: Snapshot | None, staged: Iterable[AnyAction]) -> RowIds | None:
    """What a commit has to know to give row ids to new files, where those of the table behind it have them; else None.
    Arguments as for :func:`commit_clock`.

    Raises:
        InvalidLogError: the table's highest row id cannot be read.
    """
    protocol, metadata = _behind(snapshot, staged)
    if protocol is None or metadata is None or not is_assigned(protocol, metadata):
        return None
    return RowIds.of(snapshot.domains if snapshot else {})


def row_tags(snapshot: Snapshot | None, staged: Iterable[AnyAction]) -> dict[str, str]:
    """The tags of a commit which say that rows kept their ids; none where the table behind it does not keep them.
    Arguments as for :func:`commit_clock`.

    All that this engine writes keeps them (PROTOCOL.md, "Writer Requirements for Row Tracking").
    """
    protocol, metadata = _behind(snapshot, staged)
    if protocol is None or metadata is None or not is_enabled(protocol, metadata):
        return {}
    return {PRESERVED: "true"}


def _behind(snapshot: Snapshot | None, staged: Iterable[AnyAction]) -> tuple[Protocol | None, Metadata | None]:
    """Protocol and metadata behind a commit."""
    protocol: Protocol | None = snapshot.protocol if snapshot else None
    metadata: Metadata | None = snapshot.metadata if snapshot else None
    for action in staged:
        if isinstance(action, Protocol):
            protocol = action
        elif isinstance(action, Metadata):
            metadata = action
    return protocol, metadata
