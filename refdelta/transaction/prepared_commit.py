"""A transaction's commit as a value for the core: reads, actions, commitInfo, and the table's state that it needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from refdelta.core.commit.transaction import PreparedCommit
from refdelta.core.conflicts.reads import ReadSet, ReadTable
from refdelta.core.log.actions import AnyAction, Metadata, Protocol, Txn
from refdelta.core.log.assigned import CommitClock, RowIds
from refdelta.table.clustering import DOMAIN as CLUSTERING_DOMAIN
from refdelta.table.clustering import FEATURE as CLUSTERING
from refdelta.table.evolution import keeps_columns, moved_changes, notes_version
from refdelta.table.features import features_of
from refdelta.table.in_commit_timestamp import enablement, kept
from refdelta.table.properties import get
from refdelta.table.row_tracking import PRESERVED, is_assigned, is_enabled
from refdelta.table.types import has_identity_columns
from refdelta.transaction.commit_info import CommitDescription, commit_info, now_ms

if TYPE_CHECKING:
    from refdelta.core.conflicts.isolation import IsolationLevel
    from refdelta.core.conflicts.reads import RowPredicate
    from refdelta.core.conflicts.state import RowChanges
    from refdelta.core.rows.relocation import Group
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.options import CommitProperties


def prepare_commit(
    snapshot: Snapshot | None,
    actions: Sequence[AnyAction],
    applications: Sequence[Txn],
    *,
    reads: ReadSet,
    changes: RowChanges,
    described: CommitDescription,
    properties: CommitProperties,
    isolation: IsolationLevel,
    blind: bool,
    txn_id: str,
    group_metrics: Callable[[Sequence[Group]], dict[str, str] | None],
    spans_tables: bool = False,
) -> PreparedCommit:
    """The input of the commit loop.

    Args:
        snapshot: the snapshot that the transaction reads; None if it creates the table.
        actions: the staged actions.
        applications: the application transactions to record; they count as read.
        reads: the other reads.
        changes: the rows that are deleted, and the files that are replaced.
        described: the description of the commit.
        properties: the user's notes.
        isolation: the level at which the commit is checked.
        blind: whether it is a blind append.
        txn_id: the unique id of the transaction.
        group_metrics: the ``operationMetrics`` for the groups that are kept; None for those of ``described``.
        spans_tables: whether it is the part for one table of a transaction over several.

    Raises:
        InvalidArgumentError: ``custom_metadata`` has a field that the engine writes.
        InvalidLogError: the table has in-commit timestamps or row ids, and the log lacks the last ones.
    """
    protocol: Protocol | None = snapshot.protocol if snapshot else None
    metadata: Metadata | None = snapshot.metadata if snapshot else None
    staged: Metadata | None = None
    for action in actions:
        if isinstance(action, Protocol):
            protocol = action
        elif isinstance(action, Metadata):
            metadata = staged = action
    if applications:
        reads = dataclasses.replace(reads, app_ids=frozenset(t.app_id for t in applications))
    records = metadata is None or get(metadata.configuration or {}, "refdelta.recordPredicates")
    return PreparedCommit(
        read_version=snapshot.version if snapshot else -1,
        read_set=reads,
        actions=[*actions, *applications],
        commit_info=commit_info(
            described if records else described.without_predicates(),
            properties,
            read_version=snapshot.version if snapshot else None,
            isolation=isolation,
            blind=blind,
            txn_id=txn_id,
            tags=_tags(protocol, metadata),
        ),
        txn_id=txn_id,
        level=isolation,
        clock=_clock(snapshot, protocol, metadata),
        row_ids=_row_ids(snapshot, protocol, metadata),
        table=None if snapshot is None else _read_table(snapshot),
        rests_on=_domains_of_columns(snapshot, staged),
        metadata_at=_metadata_at(staged, reads.version + 1),
        records_predicates=records,
        changes=changes,
        group_metrics=group_metrics,
        spans_tables=spans_tables,
    )


def like(snapshot: Snapshot) -> PreparedCommit:
    """An empty transaction that reads a version: others get its table, clock and free row ids
    (:func:`~refdelta.core.commit.intent_file.prepared_of`).

    Raises:
        InvalidLogError: the table has in-commit timestamps or row ids, and the log lacks the last ones.
    """
    return PreparedCommit(
        read_version=snapshot.version,
        read_set=ReadSet(version=snapshot.version),
        actions=[],
        commit_info={},
        txn_id="",
        clock=_clock(snapshot, snapshot.protocol, snapshot.metadata),
        row_ids=_row_ids(snapshot, snapshot.protocol, snapshot.metadata),
        table=_read_table(snapshot),
    )


def _clock(snapshot: Snapshot | None, protocol: Protocol | None, metadata: Metadata | None) -> CommitClock | None:
    """The state of in-commit timestamps if the table has them after the commit; else None."""
    if protocol is None or metadata is None or not kept(protocol, metadata):
        return None
    if snapshot is None:
        return CommitClock(now_ms=now_ms(), creates=True)
    since = enablement(snapshot.protocol, snapshot.metadata)
    return CommitClock(now_ms=now_ms(), latest=snapshot.timestamp_ms, since=since)


def _row_ids(snapshot: Snapshot | None, protocol: Protocol | None, metadata: Metadata | None) -> RowIds | None:
    """The state of row ids if new files get them; else None."""
    if protocol is None or metadata is None or not is_assigned(protocol, metadata):
        return None
    return RowIds.of(snapshot.domains if snapshot else {})


def _tags(protocol: Protocol | None, metadata: Metadata | None) -> dict[str, str]:
    """The tags of the commit. If the table tracks rows, a tag states that rows kept their ids, as in every commit of
    this engine (PROTOCOL.md, "Writer Requirements for Row Tracking").
    """
    if protocol is None or metadata is None or not is_enabled(protocol, metadata):
        return {}
    return {PRESERVED: "true"}


def _read_table(snapshot: Snapshot) -> ReadTable:
    schema, columns = snapshot.schema, tuple(snapshot.partition_columns)

    def parse(sql: str) -> RowPredicate:
        from refdelta.expressions.sql import parse_predicate  # only predicates of winners are parsed
        from refdelta.pruning.row_predicate import row_predicate

        return row_predicate(parse_predicate(sql, schema, recorded=True), schema, columns)

    return ReadTable(
        metadata=snapshot.metadata,
        parse=parse,
        one_writer=has_identity_columns(schema),
        tracks_rows=is_enabled(snapshot.protocol, snapshot.metadata),
        clustered=CLUSTERING in features_of(snapshot.protocol),
    )


def _domains_of_columns(snapshot: Snapshot | None, staged: Metadata | None) -> frozenset[str]:
    """The metadata domains whose values name columns, if the commit removes or retypes a column."""
    seen = snapshot.metadata if snapshot else None
    keeps = staged is None or (seen is not None and keeps_columns(seen, staged))
    return frozenset() if keeps else frozenset({CLUSTERING_DOMAIN})


def _metadata_at(staged: Metadata | None, first: int) -> Callable[[Metadata, int], Metadata] | None:
    """The change of the staged metadata if the commit becomes a later version than ``first``; None for no change."""
    if staged is None or not notes_version(staged.schema_string, first):
        return None
    return lambda metadata, version: msgspec.structs.replace(
        metadata, schema_string=moved_changes(metadata.schema_string, first, version)
    )
