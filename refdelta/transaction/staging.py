"""What becomes a commit: one snapshot, what was read of it, the actions that are staged.

Verbs (``refdelta/operations``) stage actions here and never write the log themselves.
"""

from __future__ import annotations

import dataclasses
import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import msgspec
from pyroaring import BitMap64

from refdelta import arguments
from refdelta.core.commit.transaction import PreparedCommit
from refdelta.core.conflicts.isolation import level_of
from refdelta.core.conflicts.reads import ReadTable
from refdelta.core.conflicts.state import RowChanges
from refdelta.core.log.actions import Add, AnyAction, Cdc, Metadata, Remove
from refdelta.core.log.paths import same_path
from refdelta.core.pruning.row_predicate import row_predicate
from refdelta.core.rows.deletes import RowDelete, tombstone
from refdelta.core.rows.relocation import Group
from refdelta.core.rows.sets import ALL
from refdelta.core.table.change_feed import is_fed
from refdelta.core.table.clustering import DOMAIN as CLUSTERING_DOMAIN
from refdelta.core.table.clustering import FEATURE as CLUSTERING
from refdelta.core.table.evolution import keeps_columns, moved_changes, notes_version
from refdelta.core.table.features import features_of
from refdelta.core.table.properties import TableProperties
from refdelta.core.table.row_tracking import is_enabled
from refdelta.core.table.types import has_identity_columns
from refdelta.engine.expressions.sql import parse_predicate
from refdelta.engine.log.snapshot import Snapshot, follow, load_snapshot
from refdelta.engine.parquet.write import abort_files
from refdelta.engine.scan.executor import checked as checked_executor
from refdelta.transaction.commit_info import (
    Description,
    application_transactions,
    check_recorded,
    commit_info,
    now_ms,
    texts,
    unrecorded,
)
from refdelta.transaction.driver import CERTAIN_FAILURES, RetryPolicy, commit
from refdelta.transaction.post_commit import after_commit, failed
from refdelta.transaction.read_tracking import ReadRecord
from refdelta.transaction.requirements import TableAfter
from refdelta.transaction.results import CommitProperties, CommitResult, checked
from refdelta.transaction.row_matching import only

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from types import TracebackType

    from refdelta.core.conflicts.state import AddedRows
    from refdelta.core.log.actions import Txn
    from refdelta.core.rows.relocation import RelocationById
    from refdelta.engine.scan.executor import Executor
    from refdelta_storage import Store

    GroupMetrics = Callable[[Sequence[Group]], Mapping[str, int]]

log = logging.getLogger("refdelta")


class Staging(ReadRecord):
    """One snapshot, a read set, staged actions, one commit. As a context manager it aborts when the block raises.

    Args:
        store: the table's store.
        snapshot: what the transaction sees, or None where it creates the table.
        commit_properties: see :class:`~refdelta.transaction.results.CommitProperties`.
        app_id: with ``app_version``, the application transaction that this commit records.
        app_version: see ``app_id``.
        age: for how many seconds nobody has looked whether the snapshot is the newest one, or whether the log is still
            empty; None where that is not known.
        isolation: the level at which to commit: the table's, or a stricter one; None for the table's.
        executor: who reads and writes the files of statements; None for threads of this process.

    Raises:
        InvalidArgumentError: half an application transaction, or two of one application; several of which the
            snapshot records some and not all; a level that does not exist or is weaker than the table's.
    """

    def __init__(
        self,
        store: Store,
        snapshot: Snapshot | None,
        *,
        commit_properties: CommitProperties | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        age: float | None = 0.0,
        isolation: str | None = None,
        executor: Executor | None = None,
    ) -> None:
        super().__init__(snapshot)
        self.store = store
        self.snapshot = snapshot
        self.executor = checked_executor(executor)
        self.properties = checked(commit_properties)
        self.txn_id = str(uuid.uuid4())
        self.started_ms = now_ms()
        self._seen_at = None if age is None else time.monotonic() - age
        self.isolation = level_of(self._table_properties.isolation_level, arguments.text("isolation", isolation))
        self.description: Description | None = None
        self.result_snapshot: Snapshot | None = None
        self.alone = False
        self.kept_groups: tuple[Group, ...] = ()
        self._actions: list[AnyAction] = []
        self._edits: dict[str, RowDelete] = {}
        self._groups: list[Group] = []
        self._group_metrics: GroupMetrics | None = None
        self._written: list[Add | Cdc] = []
        self._applications = application_transactions(self.properties, app_id, app_version, self.started_ms)
        check_recorded(self._applications, self._recorded)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()

    @property
    def now(self) -> int:
        """What ``current_timestamp`` is for all statements of the transaction: its beginning, in microseconds since
        1970 (UTC).
        """
        return self.started_ms * 1000

    @property
    def already_recorded(self) -> bool:
        """Whether the snapshot records the application transactions already, each at this version or a later one."""
        return bool(self._applications) and not unrecorded(self._applications, self._recorded)

    @property
    def _recorded(self) -> Mapping[str, Txn]:
        return self.snapshot.txns if self.snapshot else {}

    @property
    def vectors(self) -> bool:
        """Whether rows are to be deleted by deletion vectors: ``delta.enableDeletionVectors`` is true."""
        return self._table_properties.enable_deletion_vectors

    @property
    def row_level(self) -> bool:
        """Whether rows decide over conflicts, not whole files."""
        asked = self.properties.row_level
        if asked is None:
            asked = self.snapshot is not None and not self.snapshot.partition_columns
        return self.vectors and asked

    def delete_rows(self, add: Add, rows: BitMap64, base: BitMap64) -> None:
        """Stage that rows of a file go, by its deletion vector. Whoever deletes rows has read them.

        Args:
            add: the log's entry. Its ``stats`` must have ``numRecords``, of all rows in the file.
            rows: their positions in the file, counted from 0. Several calls add up.
            base: the positions that the entry's deletion vector hides.
        """
        self.read_rows(add, rows)
        self._stage_edit(RowDelete(add, base, rows))

    def delete_files(self, adds: Iterable[Add]) -> None:
        """Stage that all live rows of these files go. Whoever deletes rows has read them."""
        files = list(adds)
        self.read_files(files)
        if not self.vectors:
            self.stage(tombstone(add, now_ms=now_ms(), data_change=True) for add in files)
            return
        for add in files:
            self._stage_edit(RowDelete(add, BitMap64(), ALL))

    def _stage_edit(self, edit: RowDelete) -> None:
        key = same_path(edit.add.path)
        known = self._edits.get(key)
        self._edits[key] = edit if known is None else known.and_rows(edit)

    def rearrange(self, groups: Sequence[Group], metrics: GroupMetrics | None = None) -> None:
        """Stage that files are replaced by others which hold the same rows.

        The outputs are files of this transaction (:meth:`own_files`). Where others delete rows of the inputs
        meanwhile, the outputs get deletion vectors; where an input is gone, its group is left out, and its outputs are
        removed. What was left is in ``kept_groups`` after the commit.

        Args:
            groups: inputs and outputs that belong together.
            metrics: the ``operationMetrics`` of those groups that are left. None: what :meth:`describe` says.
        """
        self._groups.extend(groups)
        self._group_metrics = metrics or self._group_metrics

    def stage(self, actions: Iterable[AnyAction]) -> None:
        """Add actions to the commit."""
        self._actions.extend(actions)

    @property
    def staged(self) -> tuple[AnyAction, ...]:
        """The actions that were added so far."""
        return tuple(self._actions)

    @property
    def table_to_come(self) -> Snapshot | None:
        """The snapshot with the metadata that is staged, if any; None where the table is new."""
        staged = self._staged_metadata
        return dataclasses.replace(self.snapshot, metadata=staged) if self.snapshot and staged else self.snapshot

    @property
    def is_fed(self) -> bool:
        """Whether what changes is to be recorded: ``delta.enableChangeDataFeed`` is true."""
        return self.snapshot is not None and is_fed(self.snapshot.metadata)

    @property
    def change_files(self) -> int:
        """How many change files are staged. Where there are any, readers take what changed from them alone."""
        return sum(isinstance(action, Cdc) for action in self._actions)

    def stage_written(self, files: Sequence[Add | Cdc]) -> None:
        """Add files that this transaction wrote, and will remove again if it does not commit."""
        self.own_files(files)
        self._actions.extend(files)

    def own_files(self, files: Iterable[Add | Cdc]) -> None:
        """Take charge of files that this transaction wrote: they are removed where the commit does not name them."""
        self._written.extend(files)

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """For a statement: if it raises, what it has staged is forgotten and the files that it wrote are removed.

        What it has read stays recorded: its error may have told the caller something about it.
        """
        actions, written, description = list(self._actions), list(self._written), self.description
        edits, groups = dict(self._edits), list(self._groups)
        try:
            yield
        except BaseException:
            ours = self._written[len(written) :]
            self._actions, self._written, self.description = actions, written, description
            self._edits, self._groups = edits, groups
            if ours:
                abort_files(self.store, ours)
            raise

    def abort(self) -> None:
        """Forget what was staged and remove the files that were written.

        Nothing of the transaction was ever visible.
        """
        written, self._written = self._written, []
        self._actions, self._edits, self._groups = [], {}, []
        if written:
            abort_files(self.store, written)

    def describe(
        self,
        operation: str,
        parameters: Mapping[str, str],
        operation_metrics: Mapping[str, int],
        metrics: Mapping[str, Any] | None = None,
        *,
        always: bool = False,
    ) -> None:
        """Say what the commit does, for its commitInfo and for its result.

        Args:
            operation: the name under which Spark's history knows the operation.
            parameters: its ``operationParameters``, each value a string as Spark writes it.
            operation_metrics: its ``operationMetrics``.
            metrics: what the caller is told, by deltalake's names.
            always: commit even where nothing is staged, as for a write without rows.
        """
        self.description = Description(operation, parameters, operation_metrics, metrics or {}, always)

    def commit(self) -> CommitResult:
        """Commit what is staged, over whatever was committed meanwhile and does not conflict.

        Where nothing is staged and no application's version is to be recorded, nothing is committed, and the version
        of the result is None.

        Raises:
            ConcurrentModificationError: a winner conflicts; the files that were written are removed.
            CommitRetriesExhaustedError: as above, because attempts or time ran out.
            CommitOutcomeUnknownError: nobody can tell; the files stay.
        """
        described = self.description or Description("WRITE", {}, {}, {})
        if not (self._changes or self._applications or described.always):
            return CommitResult(version=None, metrics=self._result_metrics(described, 0))
        try:
            prepared = self._prepared(described)
            outcome = commit(
                self.store,
                prepared,
                policy=RetryPolicy.of(self.properties),
                seen_at=self._seen_at,
                base=self.snapshot.segment.last_commit if self.snapshot else None,
                match_rows=self._match_rows,
                locate_rows=self._locate_rows,
                inline_vectors=self._table_properties.inline_deletion_vectors,
            )
        except CERTAIN_FAILURES:
            self.abort()
            raise
        except BaseException:
            self._written = []  # nobody may remove them: the log may name them, now or when a late request arrives
            raise
        abort_files(self.store, outcome.unused)
        written, self._written, self.kept_groups = self._written, [], outcome.groups
        if outcome.version is not None:
            self.result_snapshot = self._after(outcome.version, outcome.log, {add.path for add in written})
            newest = self.result_snapshot is not None and self.result_snapshot.version == outcome.version
            self.alone = newest and outcome.attempts == 1
        return CommitResult(
            version=outcome.version,
            attempts=outcome.attempts,
            rebased_over=outcome.rebased_over,
            fallbacks=outcome.fallbacks,
            metrics=self._result_metrics(described, outcome.attempts - 1),
        )

    @property
    def _changes(self) -> bool:
        """Whether anything is staged."""
        return bool(self._actions or self._edits or self._groups)

    def _prepared(self, described: Description) -> PreparedCommit:
        reads = self.reads
        if self._applications:
            reads = dataclasses.replace(reads, app_ids=frozenset(t.app_id for t in self._applications))
        after = TableAfter.of(self.snapshot, self._actions)
        return PreparedCommit(
            read_version=self.snapshot.version if self.snapshot else -1,
            read_set=reads,
            actions=[*self._actions, *self._applications],
            commit_info=commit_info(
                described,
                self.properties,
                read_version=self.snapshot.version if self.snapshot else None,
                isolation=self.isolation,
                blind=self._is_blind_append,
                txn_id=self.txn_id,
                tags=after.tags(),
            ),
            txn_id=self.txn_id,
            level=self.isolation,
            clock=after.clock(),
            row_ids=after.row_ids(),
            table=self._read_table(),
            rests_on=self._rests_on(),
            metadata_at=self._metadata_at(),
            changes=RowChanges(
                deletes=tuple(self._edits.values()),
                groups=tuple(self._groups),
                vectors=self.vectors,
                row_level=self.row_level,
                now_ms=now_ms(),
            ),
            group_metrics=self._metrics_of,
        )

    def _match_rows(self, rows: Sequence[AddedRows]) -> Iterator[bool]:
        return self.questions.look(self.snapshot, map(only, rows)) if self.snapshot else iter(())

    def _locate_rows(self, inputs: Sequence[Remove], outputs: Sequence[Add]) -> Mapping[str, RelocationById]:
        from refdelta.transaction.row_lookup import trace_rows

        return trace_rows(self.snapshot, inputs, outputs) if self.snapshot else {}

    def _metrics_of(self, groups: Sequence[Group]) -> dict[str, str] | None:
        return None if self._group_metrics is None else texts(self._group_metrics(groups))

    def _result_metrics(self, described: Description, retries: int) -> dict[str, Any]:
        elapsed = now_ms() - self.started_ms
        return {**described.metrics, "execution_time_ms": elapsed, "num_retries": retries}

    def _after(self, version: int, commits: Sequence[bytes] | None, written: Collection[str]) -> Snapshot | None:
        """The snapshot behind our commit, after what follows a commit. None where it cannot be read."""
        snapshot = None
        try:
            if commits is not None:
                snapshot = follow(self.store, self.snapshot, commits, new=written)
            else:
                snapshot = self.snapshot.advance() if self.snapshot else load_snapshot(self.store)
            after_commit(snapshot, committed=version)
        except Exception as error:  # noqa: BLE001
            failed(version, error)
        return snapshot

    @property
    def _table_properties(self) -> TableProperties:
        return self.snapshot.properties if self.snapshot else TableProperties.parse({})

    def _read_table(self) -> ReadTable | None:
        snapshot = self.snapshot
        if snapshot is None:
            return None
        schema = snapshot.schema
        columns = tuple(snapshot.partition_columns)
        return ReadTable(
            metadata=snapshot.metadata,
            parse=lambda sql: row_predicate(parse_predicate(sql, schema), schema, columns),
            one_writer=has_identity_columns(schema),
            tracks_rows=is_enabled(snapshot.protocol, snapshot.metadata),
            clustered=CLUSTERING in features_of(snapshot.protocol),
        )

    @property
    def _staged_metadata(self) -> Metadata | None:
        return next((action for action in reversed(self._actions) if isinstance(action, Metadata)), None)

    def _rests_on(self) -> frozenset[str]:
        """The metadata domains whose values name columns, where the transaction removes or retypes one."""
        metadata, seen = self._staged_metadata, self.snapshot.metadata if self.snapshot else None
        kept = metadata is None or (seen is not None and keeps_columns(seen, metadata))
        return frozenset() if kept else frozenset({CLUSTERING_DOMAIN})

    def _metadata_at(self) -> Callable[[Metadata, int], Metadata] | None:
        """What the staged metadata says where it becomes another version than the one behind the snapshot."""
        metadata, first = self._staged_metadata, self.reads.version + 1
        if metadata is None or not notes_version(metadata.schema_string, first):
            return None
        return lambda staged, version: msgspec.structs.replace(
            staged, schema_string=moved_changes(staged.schema_string, first, version)
        )

    @property
    def _is_blind_append(self) -> bool:
        removes = self._edits or self._groups or any(isinstance(a, Remove) for a in self._actions)
        return self.reads.blind and not removes
