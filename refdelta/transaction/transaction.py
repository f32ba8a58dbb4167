"""A transaction: one snapshot, its reads, its staged actions, its commit.

It knows no operation. The operations of ``refdelta/operations`` record their reads and stage their actions here, and
never write the log themselves.
"""

from __future__ import annotations

import dataclasses
import time
import uuid
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, Self, TypeVar, Unpack

from msgspec import structs
from pyroaring import BitMap64

from refdelta import arguments
from refdelta.core.commit.intent_file import WITHDRAWN
from refdelta.core.commit.transaction import CommitTally
from refdelta.core.conflicts.isolation import IsolationLevel, level_of
from refdelta.core.conflicts.reads import EVERY_ROW, ReadSet
from refdelta.core.conflicts.state import RowChanges
from refdelta.core.log.actions import Add, AnyAction, Cdc, Metadata, Protocol, Remove
from refdelta.core.log.paths import same_path
from refdelta.core.rows.deletes import RowDelete, tombstone
from refdelta.core.rows.relocation import Group
from refdelta.core.rows.sets import ALL
from refdelta.engine.log.file_committer import read_commit
from refdelta.engine.log.managed_log import check_place, managed_by
from refdelta.engine.log.snapshot import Snapshot, follow, load_snapshot
from refdelta.engine.parquet.write import abort_files
from refdelta.engine.work.executor import checked as checked_executor
from refdelta.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidArgumentError,
    InvalidLogError,
    NotCopyableError,
    TableNotFoundError,
)
from refdelta.table.change_feed import is_fed
from refdelta.table.properties import TableProperties, invalid_properties
from refdelta.transaction import background
from refdelta.transaction.commit_info import (
    CommitDescription,
    application_transactions,
    check_recorded,
    now_ms,
    texts,
    unrecorded,
)
from refdelta.transaction.driver import CERTAIN_FAILURES, RetryPolicy, RowChecks, commit
from refdelta.transaction.events import watching
from refdelta.transaction.options import CommitOptions, check_options, checked
from refdelta.transaction.ownership import OwnedFiles
from refdelta.transaction.post_commit import after_commit, failed
from refdelta.transaction.prepared_commit import prepare_commit
from refdelta.transaction.results import CommitResult
from refdelta.transaction.row_matching import Matches, RowMatching, only
from refdelta_storage import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from refdelta.core.commit.intents import Fate
    from refdelta.core.commit.transaction import CommitOutcome, PreparedCommit
    from refdelta.core.conflicts.state import AddedRows
    from refdelta.core.log.actions import Txn
    from refdelta.core.rows.relocation import RelocationById
    from refdelta.expressions.expression import Predicate
    from refdelta.transaction.group import CommitGroup
    from refdelta.transaction.rehearsal import RecordedCommit, Rehearsal
    from refdelta.transaction.together import Part
    from refdelta_storage import Store

    GroupMetrics = Callable[[Sequence[Group]], Mapping[str, int]]

P = ParamSpec("P")
R = TypeVar("R")

_WORTH_A_REQUEST = 16 * 2**20
"""The bytes of files whose rewriting takes much longer than a request to a remote store."""


class Transaction:
    """One snapshot, a read set, staged actions, one commit.

    As a context manager it is aborted if the block ends without a commit. If it has written files and is dropped
    without an end, a ``ResourceWarning`` says where it began, and the files are removed. It cannot be copied or
    pickled, and a forked child cannot end it.

    Args:
        store: the table's store.
        snapshot: the snapshot that it reads; None if it creates the table.
        age: seconds since the snapshot was last seen to be the newest one, or since the log was seen to be empty; None
            if that is not known, which costs the commit one more request.
        options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

    Attributes:
        invalid: the properties of the table whose values do not fit, see
            :func:`~refdelta.table.properties.invalid_properties`. The snapshot is without them, and the commit
            fails unless a statement replaces them.
        reads_elsewhere: records that rows of another table are written; None if other tables are no part of it.
        made_elsewhere: the same for rows of other processes, by the versions of the tables that were read for them.

    Raises:
        UnsupportedFeatureError: the table needs a feature that this engine cannot write.
        InvalidArgumentError: an option has a wrong type or value; an isolation level does not exist or is weaker than
            the table's; the snapshot records some, but not all, of the application transactions.
    """

    def __init__(
        self, store: Store, snapshot: Snapshot | None, *, age: float | None = 0.0, **options: Unpack[CommitOptions]
    ) -> None:
        check_options(options)
        self.invalid: Mapping[str, str] = {}
        if snapshot is not None:
            try:
                snapshot.check_writable()
                _ = snapshot.properties
            except InvalidLogError:
                # A statement may replace the properties that are not valid.
                self.invalid = invalid_properties(snapshot.metadata.configuration or {})
                snapshot = snapshot.with_valid_properties()
                snapshot.check_writable()
        else:
            background.settle(store.uri)  # of a table that was there before
        self._kept_invalid = tuple(self.invalid)
        self.store = store
        self.snapshot = snapshot
        self.executor = checked_executor(options.get("executor"))
        self.properties = checked(options.get("commit_properties"))
        self.isolation = level_of(
            self._table_properties.isolation_level, arguments.text("isolation", options.get("isolation"))
        )
        self.txn_id = str(uuid.uuid4())
        self.withdraws: tuple[str, ...] = ()  # the ids of transactions that it withdraws
        self.started_ms = now_ms()
        self.description: CommitDescription | None = None
        self.row_matching = RowMatching()
        self.result_snapshot: Snapshot | None = None
        self.alone = False
        self.group: CommitGroup | None = None
        self.reads_elsewhere: Callable[[Snapshot], None] | None = None
        self.made_elsewhere: Callable[[Callable[[str], int | None]], None] | None = None
        self.commits_at_once = False  # by the call that stages its statement; see lose_early
        self.kept_groups: tuple[Group, ...] = ()
        self._seen_at = None if age is None else time.monotonic() - age
        self._ended: str | None = None
        self._statement: str | None = None
        version = -1 if snapshot is None else snapshot.version
        self._reads = ReadSet(version=version, written_since=self.started_ms)
        self._rows_read: dict[str, tuple[Add, BitMap64]] = {}
        self._actions: list[AnyAction] = []
        self._row_deletes: dict[str, RowDelete] = {}
        self._groups: list[Group] = []
        self._group_metrics: GroupMetrics | None = None
        self._own = OwnedFiles(store)
        self._dropped = weakref.finalize(self, self._own.dropped)
        self._applications = application_transactions(
            self.properties, options.get("app_id"), options.get("app_version"), self.started_ms
        )
        check_recorded(self._applications, self._recorded)
        if self.properties.group == "intents" and snapshot is not None:
            from refdelta.transaction import intents

            intents.look(store)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended is None:
            self.abort()

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise NotCopyableError(
            f"a transaction cannot be copied or pickled: two copies would own the same files of {self.store.uri}; "
            "begin one in each process, or pass the table or its URI"
        )

    # --- the snapshot ---

    @property
    def existing(self) -> Snapshot:
        """The snapshot. Raises ``TableNotFoundError`` if the transaction creates the table."""
        if self.snapshot is None:
            raise TableNotFoundError(f"there is no table at {self.store.uri} yet: this transaction creates it")
        return self.snapshot

    @property
    def version(self) -> int:
        """The version that the transaction reads."""
        return self.existing.version

    @property
    def now(self) -> int:
        """The value of ``current_timestamp`` in all statements of the transaction: its beginning, in microseconds since
        1970 (UTC).
        """
        return self.started_ms * 1000

    @property
    def already_recorded(self) -> bool:
        """True if the snapshot records the application transactions already, each at this version or a later one."""
        return bool(self._applications) and not unrecorded(self._applications, self._recorded)

    @property
    def vectors(self) -> bool:
        """True if rows are deleted by deletion vectors: ``delta.enableDeletionVectors`` is true."""
        return self._table_properties.enable_deletion_vectors

    @property
    def row_level(self) -> bool:
        """True if conflicts are detected by row, False if by file; see ``CommitProperties.row_level``."""
        asked = self.properties.row_level
        if asked is None and self.snapshot is not None:
            asked = self._table_properties.row_level_concurrency
            asked = not self.snapshot.partition_columns if asked is None else asked
        return self.vectors and bool(asked)

    @property
    def is_fed(self) -> bool:
        """True if changes are recorded for the change data feed: ``delta.enableChangeDataFeed`` is true."""
        return self.snapshot is not None and is_fed(self.snapshot.metadata)

    @property
    def _recorded(self) -> Mapping[str, Txn]:
        return self.snapshot.txns if self.snapshot else {}

    @property
    def _table_properties(self) -> TableProperties:
        return self.snapshot.properties if self.snapshot else TableProperties.parse({})

    # --- read tracking ---

    @property
    def reads(self) -> ReadSet:
        """The reads so far."""
        return self._reads.with_rows(self._rows_read.values()) if self._rows_read else self._reads

    def read_whole_table(self) -> None:
        """Record that the transaction depends on every row of its snapshot."""
        self._reads = self._reads.with_everything()

    def read_predicate(self, predicate: Predicate, matches: Matches | None = None) -> None:
        """Record that the transaction depends on the rows for which ``predicate`` is true, and on the absence of
        further ones.

        Args:
            predicate: a predicate, bound to the table's schema.
            matches: a finer test than the predicate, for the live rows of a file that another writer added, in batches
                of the table's schema. Without it, a row matches if the predicate is true.
        """
        from refdelta.pruning.row_predicate import row_predicate

        table = self.snapshot
        asked = EVERY_ROW if table is None else row_predicate(predicate, table.schema, table.partition_columns)
        self._reads = self._reads.with_predicate(asked, finer=matches is not None)
        self.row_matching.add(predicate, matches)

    @contextmanager
    def reading(
        self, predicate: Predicate, files: Callable[[], Iterable[Add]], matches: Matches | None = None
    ) -> Iterator[None]:
        """Record a read before it runs, so that a read that fails half-way counts, too.

        Args:
            predicate: see :meth:`read_predicate`, which is called before the block runs.
            files: returns the files that the block reads. It is called if the block raises: then any of their rows may
                have been read. A block that does not raise records the rows that it read itself.
            matches: see :meth:`read_predicate`.
        """
        self.read_predicate(predicate, matches)
        try:
            yield
        except BaseException:
            self.read_files(files())
            raise

    def read_domains(self, names: Iterable[str] | None = None) -> None:
        """Record a read of metadata domains; None for all domains, and the absence of further ones."""
        if names is None:
            self._reads = dataclasses.replace(self._reads, every_domain=True)
        else:
            self._reads = dataclasses.replace(self._reads, domains=self._reads.domains | {*names})

    def rest_on_files(self, since_ms: int) -> None:
        """Record that the transaction adds files that it did not write just now, and that VACUUM may delete.

        To be recorded before the files are looked up, so that a VACUUM that begins afterwards is a conflict. One that
        is in progress at the snapshot is looked for at the commit.

        Args:
            since_ms: the earliest time at which one of them may have become unreferenced, in milliseconds since 1970:
                it was removed, or written if no version has named it.
        """
        self._reads = self._reads.resting_on(since_ms)

    def read_files(self, files: Iterable[Add]) -> None:
        """Record that rows of these files were read, possibly all of their live rows. A file without a matching row
        does not count as read.
        """
        self._reads = self._reads.with_files(files)

    def read_rows(self, add: Add, rows: BitMap64) -> None:
        """Record that rows of a file were read: the rows that matched, even if they do not change.

        Args:
            add: the log's entry of the file.
            rows: their positions in the file, counted from 0, hidden rows included. Several calls add up.
        """
        if not len(rows):
            return
        key = same_path(add.path)
        _, known = self._rows_read.get(key, (add, BitMap64()))
        self._rows_read[key] = add, known | rows

    # --- statements ---

    def run(
        self, statement: str, stage: Callable[Concatenate[Self, Snapshot, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R | None:
        """Run a statement. If it raises, nothing of it is staged, and another one can follow.

        Args:
            statement: its name, for messages.
            stage: an operation, which reads the snapshot and stages actions.
            *args: arguments of the operation.
            **kwargs: keyword arguments of the operation.

        Returns:
            The result of ``stage``; None if it is skipped because the application's version is recorded already.

        Raises:
            InvalidArgumentError: the transaction has ended, or holds a statement already.
        """
        with self.statement(statement):
            return None if self.already_recorded else stage(self, self.existing, *args, **kwargs)

    @contextmanager
    def statement(self, name: str) -> Iterator[None]:
        """Run the block as the one statement of the transaction. If it raises, nothing of it is staged.

        Args:
            name: its name, for messages.

        Raises:
            InvalidArgumentError: the transaction has ended, or holds a statement already.
        """
        self.check_open(name)
        if self._statement is not None:
            raise InvalidArgumentError(
                f"cannot {name}: this transaction holds a statement already ({self._statement}), and it can hold only "
                "one besides reads and appends; commit it and begin another one"
            )
        with self.all_or_nothing():
            yield
        self._statement = name

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Undo the block if it raises: its staged actions are dropped, and the files that it wrote are removed.

        Its reads stay recorded, since the error may depend on the rows.
        """
        own = self._own
        actions, written, description = list(self._actions), list(own.files), self.description
        deletes, groups = dict(self._row_deletes), list(self._groups)
        try:
            yield
        except BaseException:
            ours = own.files[len(written) :]
            self._actions, own.files, self.description = actions, written, description
            self._row_deletes, self._groups = deletes, groups
            if ours:
                abort_files(self.store, ours)
            raise

    def replaces_properties(self, names: Collection[str] | None) -> None:
        """State that the statement gives properties another value or removes them, so that their old values do not
        count.

        Args:
            names: the properties, as they are stored; None for all.

        Raises:
            InvalidLogError: another property of the table is not valid.
        """
        self._kept_invalid = () if names is None else tuple(name for name in self.invalid if name not in names)
        self.check_valid()

    def check_valid(self) -> None:
        """Raise ``InvalidLogError`` with the :attr:`invalid` properties that no statement replaces."""
        if self._kept_invalid:
            raise InvalidLogError("; ".join(self.invalid[name] for name in self._kept_invalid))

    # --- staging ---

    def stage(self, actions: Iterable[AnyAction]) -> None:
        """Add actions to the commit."""
        self._actions.extend(actions)

    @property
    def staged(self) -> tuple[AnyAction, ...]:
        """The actions that were added so far."""
        return tuple(self._actions)

    @property
    def change_files(self) -> int:
        """The number of staged change files. If there are any, readers of the change data feed read only these."""
        return sum(isinstance(action, Cdc) for action in self._actions)

    @property
    def table_to_come(self) -> Snapshot | None:
        """The snapshot with the staged metadata, if any; None if the table is new."""
        staged = next((action for action in reversed(self._actions) if isinstance(action, Metadata)), None)
        return dataclasses.replace(self.snapshot, metadata=staged) if self.snapshot and staged else self.snapshot

    def stage_written(self, files: Sequence[Add | Cdc]) -> None:
        """Stage files that this transaction wrote. They are removed if it does not commit."""
        self.own_files(files)
        self._actions.extend(files)

    def own_files(self, files: Iterable[Add | Cdc]) -> None:
        """Register files that this transaction wrote. They are removed if the commit does not name them."""
        self._own.files.extend(files)

    def delete_rows(self, add: Add, rows: BitMap64, base: BitMap64) -> None:
        """Stage the deletion of rows of a file by its deletion vector. They count as read.

        Args:
            add: the log's entry of the file. Its ``stats`` must have ``numRecords``, the number of all rows in the
                file.
            rows: their positions in the file, counted from 0. Several calls add up.
            base: the positions that the entry's deletion vector hides.
        """
        self.read_rows(add, rows)
        self._stage_delete(RowDelete(add, base, rows))

    def delete_files(self, adds: Iterable[Add]) -> None:
        """Stage the deletion of all live rows of these files. They count as read."""
        files = list(adds)
        self.read_files(files)
        if not self.vectors:
            self.stage(tombstone(add, now_ms=now_ms(), data_change=True) for add in files)
            return
        for add in files:
            self._stage_delete(RowDelete(add, BitMap64(), ALL))

    def _stage_delete(self, delete: RowDelete) -> None:
        key = same_path(delete.add.path)
        known = self._row_deletes.get(key)
        self._row_deletes[key] = delete if known is None else known.and_rows(delete)

    def replace_files(self, groups: Sequence[Group], metrics: GroupMetrics | None = None) -> None:
        """Stage the replacement of files by others that hold the same rows.

        The outputs are files of this transaction (:meth:`own_files`). If another writer deletes rows of the inputs
        meanwhile, the outputs get deletion vectors. If it removes an input, the group is left out, and its outputs are
        removed. The kept groups are in ``kept_groups`` after the commit.

        Args:
            groups: the groups of inputs and outputs.
            metrics: the ``operationMetrics`` for the kept groups; None for those of :meth:`describe`.
        """
        self._groups.extend(groups)
        self._group_metrics = metrics or self._group_metrics

    def describe(
        self,
        operation: str,
        parameters: Mapping[str, str],
        operation_metrics: Mapping[str, int],
        metrics: Mapping[str, Any] | None = None,
        *,
        always: bool = False,
    ) -> None:
        """Describe the commit, for its commitInfo and for its result.

        Args:
            operation: the operation's name in Spark's history.
            parameters: its ``operationParameters``, each value a string as Spark writes it.
            operation_metrics: its ``operationMetrics``.
            metrics: the metrics of the result, by deltalake's names.
            always: commit even if nothing is staged, as for a write without rows.
        """
        self.description = CommitDescription(operation, parameters, operation_metrics, metrics or {}, always)

    # --- the end ---

    def abort(self) -> None:
        """End the transaction without a commit. The files that it wrote are removed. In a forked child it does nothing,
        since the transaction is its parent's.

        Raises:
            InvalidArgumentError: the transaction has ended already.
        """
        if self._own.inherited:
            return
        self.check_open("abort")
        self._ended = "aborted"
        self._dropped.detach()
        self._discard()

    def commit(self) -> CommitResult:
        """Commit the staged actions, after the other writers' commits that do not conflict.

        Returns:
            The result of the commit; ``version`` is None if nothing was written: nothing is staged and there is no
            application transaction to record, or it is recorded already.

        Raises:
            ConcurrentModificationError: another writer's commit conflicts; nothing is visible, and the files that were
                written are removed.
            CommitRetriesExhaustedError: the limit of attempts or of time was reached; the files are removed, too.
            CommitOutcomeUnknownError: it is not known whether the commit happened; the files stay.
            InvalidLogError: a property of the table is not valid, and no statement replaces it.
            InvalidArgumentError: the transaction has ended already, or this process is a forked child of the one in
                which it began.
        """
        self.end()
        described = self._described
        if self.already_recorded:
            result = CommitResult(version=None)
        elif self.commits:
            result = self._committed(described)
        else:
            result = CommitResult(version=None, metrics=self._result_metrics(described, 0))
        self._ended = "committed"
        return result

    @property
    def commits(self) -> bool:
        """Whether there is something to commit."""
        return self._has_changes or bool(self._applications) or self._described.always

    @property
    def _described(self) -> CommitDescription:
        return self.description or CommitDescription("WRITE", {}, {}, {})

    def end(self) -> None:
        """Take no more statements, as the commit begins. Raises as :meth:`commit`, before anything is committed."""
        self.check_open("commit")
        self.check_valid()
        if self.invalid and not any(isinstance(action, Metadata) for action in self._actions):
            self._actions.append(self.existing.metadata)  # without the properties that were not valid
        self._ended = "ended by a commit that failed"
        self._dropped.detach()

    # --- as a part of a transaction over several tables ---

    @property
    def has_read(self) -> bool:
        """Whether rows, or metadata domains, were read."""
        return not self.reads.blind

    def part(self, name: str, table_id: str) -> Part:
        """Its part of a transaction over several tables, which :func:`~refdelta.transaction.together.commit_parts`
        commits. To be called after :meth:`end`, and followed by :meth:`succeeded` or :meth:`failed`.

        A transaction that changes nothing records its reads by a commit, unless no append can be skipped in this
        table; see :mod:`refdelta.core.commit.together`.

        Args:
            name: the table's name in its catalog.
            table_id: its id there.
        """
        from refdelta.transaction.together import Part

        managed = managed_by(self.store)
        if managed is None:
            raise InternalError("a table of the file system has no part in a transaction over several tables")
        files = [action for action in self._actions if isinstance(action, (Add, Remove))]
        if self._groups or (files and not self._row_deletes and not any(one.data_change for one in files)):
            raise InvalidArgumentError(
                f"{name}: {self._described.operation} moves rows and changes none, so it goes alone: run it on the "
                "table"
            )
        self._check_no_vacuum()
        described = self._described if self.commits else CommitDescription("READ", {}, {}, {})
        prepared = self._prepared(described, spans_tables=True)
        given = self._for_driver()
        # Other writers do not skip appends of a table that is Serializable.
        pinned = not self.commits and level_of(self._table_properties.isolation_level) is IsolationLevel.SERIALIZABLE
        return Part(
            log=managed,
            name=name,
            table_id=table_id,
            prepared=prepared,
            pinned=pinned,
            placed=self.placed,
            **given,
        )

    def succeeded(self, outcome: CommitOutcome | None) -> CommitResult:
        """Conclude the commit of its part.

        Args:
            outcome: its outcome; None if it committed nothing.
        """
        self._ended = "committed"
        if outcome is None:
            return CommitResult(version=None, metrics=self._result_metrics(self._described, 0))
        return self._concluded(self._described, outcome)

    def failed(self, error: BaseException) -> None:
        """Conclude the commit of its part, which has failed: its files are removed, if it is certain that nothing names
        them.
        """
        if isinstance(error, CERTAIN_FAILURES):
            self._discard()
        else:
            self._own.files = []  # the files stay: the log may name them, now or after a late request arrives

    def placed(self, error: BaseException) -> None:
        """Add to a conflict of this table what is known of its rows."""
        if isinstance(error, ConcurrentModificationError):
            error.describe(self.row_matching.placed(error.conflict))

    def rehearse(self, winner: RecordedCommit, levels: Iterable[IsolationLevel]) -> list[Rehearsal]:
        """Run the commit loop over one winner without writing anything, see
        :func:`~refdelta.transaction.rehearsal.rehearse`: at each level by rows, if the table has deletion vectors, and
        then by files. The transaction stays open.

        Args:
            winner: the commit that is to have happened after the snapshot, as the next version.
            levels: the isolation levels, which may be weaker than the transaction's own.
        """
        from refdelta.transaction.rehearsal import rehearse

        prepared = self._prepared(self.description or CommitDescription("WRITE", {}, {}, {}))
        found = []
        for level in levels:
            for row_level in (True, False) if self.vectors else (False,):
                changes = dataclasses.replace(prepared.changes, row_level=row_level)
                asked = structs.replace(prepared, level=level, changes=changes)
                found.append(rehearse(self.store, asked, winner, self._checks))
        return found

    def lose_early(self, operation: str) -> None:
        """Raise the conflict that the commit would raise, if the next version is there already and conflicts with what
        is staged. To be called before files are written, which would be in vain.

        It looks only if the transaction ``commits_at_once``, so that the caller gets the same error from the same call;
        and on a remote store, only if the request is short beside the rewriting.

        Args:
            operation: the operation's name, as for :meth:`describe`.

        Raises:
            ConcurrentModificationError: the next version conflicts.
        """
        if not self.commits_at_once or (self.store.capabilities.remote and self._removed_bytes < _WORTH_A_REQUEST):
            return
        try:
            data = read_commit(self.store, self.version + 1)
        except StorageError:  # the commit will tell
            return
        if data is None:
            return
        from refdelta.transaction.rehearsal import RecordedCommit, certain_conflict

        prepared = self._prepared(CommitDescription(operation, {}, {}, {}))
        winner = RecordedCommit(self.version + 1, data)
        error = certain_conflict(self.store, prepared, winner, self._match_rows)
        if error is not None:
            error.describe(self.row_matching.placed(error.conflict))
            with watching(self.store.uri, prepared, CommitTally(winners=1)):
                raise error

    @property
    def _removed_bytes(self) -> int:
        """The size of the files of which rows are to be removed."""
        removes = (action.size or 0 for action in self._actions if isinstance(action, Remove))
        return sum(removes) + sum(delete.add.size for delete in self._row_deletes.values())

    def _committed(self, described: CommitDescription) -> CommitResult:
        try:
            self._check_no_vacuum()
            prepared = self._prepared(described)
            group = self.group if self.group is not None and self.group.takes(self.properties) else None
            if group is not None:
                base = self.snapshot.identity if self.snapshot else None
                outcome = group.commit(prepared, self._checks, self.properties, self._own.files, base)
            else:
                outcome = self._driven(prepared)
        except BaseException as error:
            self.failed(error)
            self.placed(error)
            raise
        return self._concluded(described, outcome, group)

    def _check_no_vacuum(self) -> None:
        if self.snapshot is not None and self._reads.unowned_since is not None:
            from refdelta.transaction.deleted_files import check_no_vacuum_in_progress

            check_no_vacuum_in_progress(self.snapshot, self._reads.unowned_since)

    def _for_driver(self) -> dict[str, Any]:
        return {
            "policy": RetryPolicy.of(self.properties),
            "seen_at": self._seen_at,
            "base": self.snapshot.identity if self.snapshot else None,
            "checks": self._checks,
            "inline_vectors": self._table_properties.inline_deletion_vectors,
        }

    @property
    def _checks(self) -> RowChecks:
        return RowChecks(self._match_rows, self._locate_rows, self._confirm_rows)

    def _driven(self, prepared: PreparedCommit) -> CommitOutcome:
        """Commit, alone or by an intent."""
        given = self._for_driver()
        if self.properties.group is None:
            return commit(self.store, prepared, **given)
        from refdelta.transaction import intents

        always, replaces = self.properties.group == "always", tuple(self.properties.replaces)
        return intents.commit(self.store, prepared, always=always, replaces=replaces, withdraw=withdraw, **given)

    def _concluded(
        self, described: CommitDescription, outcome: CommitOutcome, group: CommitGroup | None = None
    ) -> CommitResult:
        abort_files(self.store, outcome.unused)
        written, self._own.files, self.kept_groups = self._own.files, [], outcome.groups
        if group is not None:
            # The hooks after a version run once, and so does an auto-compaction: with its first transaction.
            self.result_snapshot = None if outcome.member else group.snapshot
        elif outcome.version is not None:
            # Of a version with members, the first one does the work after it: a leader may be none of them.
            new = {add.path for add in written}
            self.result_snapshot = self._after(outcome.version, outcome.log, new, works=not outcome.member)
            newest = self.result_snapshot is not None and self.result_snapshot.version == outcome.version
            self.alone = newest and outcome.attempts == 1
        return CommitResult(
            version=outcome.version,
            attempts=outcome.attempts,
            rebased_over=outcome.rebased_over,
            fallbacks=outcome.fallbacks,
            metrics=self._result_metrics(described, outcome.attempts - 1),
            member=outcome.member,
        )

    def _prepared(self, described: CommitDescription, *, spans_tables: bool = False) -> PreparedCommit:
        for protocol in (action for action in self._actions if isinstance(action, Protocol)):
            metadata = [action for action in self._actions if isinstance(action, Metadata)]
            check_place(self.store, protocol, metadata[-1] if metadata else self.existing.metadata)
        prepared = prepare_commit(
            self.snapshot,
            self._actions,
            self._applications,
            reads=self._with_own_files(self.reads),
            changes=RowChanges(
                deletes=tuple(self._row_deletes.values()),
                groups=tuple(self._groups),
                vectors=self.vectors,
                row_level=self.row_level,
                now_ms=now_ms(),
            ),
            described=described,
            properties=self.properties,
            isolation=IsolationLevel.SERIALIZABLE if spans_tables else self.isolation,
            blind=self._is_blind_append and not spans_tables,
            txn_id=self.txn_id,
            group_metrics=self._metrics_of,
            spans_tables=spans_tables,
        )
        if not self.withdraws:
            return prepared
        return structs.replace(prepared, commit_info={**prepared.commit_info, WITHDRAWN: [*self.withdraws]})

    def _with_own_files(self, reads: ReadSet) -> ReadSet:
        """These reads, and those of the files that the transaction wrote: VACUUM may delete them once they are older
        than its retention.
        """
        written = self._own.files
        times = [one.modification_time for one in written if isinstance(one, Add)]
        since_ms = min([self.started_ms, *times])
        if since_ms < self.started_ms:
            # The tasks of another program have written them before the transaction began.
            reads = dataclasses.replace(reads, written_since=since_ms)
        # Any VACUUM takes files of the change data feed.
        return reads.resting_on(since_ms) if len(times) < len(written) else reads

    @property
    def _has_changes(self) -> bool:
        return bool(self._actions or self._row_deletes or self._groups)

    @property
    def _is_blind_append(self) -> bool:
        removes = self._row_deletes or self._groups or any(isinstance(a, Remove) for a in self._actions)
        return self.reads.blind and not removes

    def _match_rows(self, rows: Sequence[AddedRows]) -> Iterator[bool]:
        return self.row_matching.look(self.snapshot, map(only, rows)) if self.snapshot else iter(())

    def _confirm_rows(self, rows: Sequence[AddedRows], trusted: bool) -> bool:
        return self.snapshot is not None and self.row_matching.confirms(self.snapshot, rows, trusted=trusted)

    def _locate_rows(self, inputs: Sequence[Remove], outputs: Sequence[Add]) -> Mapping[str, RelocationById]:
        from refdelta.transaction.row_lookup import trace_rows

        return trace_rows(self.snapshot, inputs, outputs) if self.snapshot else {}

    def _metrics_of(self, groups: Sequence[Group]) -> dict[str, str] | None:
        return None if self._group_metrics is None else texts(self._group_metrics(groups))

    def _result_metrics(self, described: CommitDescription, retries: int) -> dict[str, Any]:
        elapsed = now_ms() - self.started_ms
        return {**described.metrics, "execution_time_ms": elapsed, "num_retries": retries}

    def _after(
        self, version: int, commits: Sequence[bytes] | None, written: Collection[str], *, works: bool
    ) -> Snapshot | None:
        """Run the post-commit hooks, if ``works``; returns the snapshot after the commit, or None if it cannot be
        read.
        """
        snapshot = None
        try:
            if commits is not None:
                snapshot = follow(self.store, self.snapshot, commits, new=written)
            else:
                snapshot = self.snapshot.advance() if self.snapshot else load_snapshot(self.store)
            if works:
                checkpoint, cleanup = self.properties.create_checkpoint, self.properties.cleanup_expired_logs
                after_commit(snapshot, committed=version, checkpoint=checkpoint, cleanup=cleanup)
        except Exception as error:  # noqa: BLE001
            failed(version, error)
        return snapshot

    def _discard(self) -> None:
        written, self._own.files = self._own.files, []
        self._actions, self._row_deletes, self._groups = [], {}, []
        if written:
            abort_files(self.store, written)

    def check_open(self, verb: str) -> None:
        """Raise ``InvalidArgumentError`` if the transaction has ended, or is the copy of a forked child.

        Args:
            verb: the call that needs an open transaction, for the message.
        """
        if self._own.inherited:
            raise InvalidArgumentError(
                f"cannot {verb}: this transaction began in process {self._own.process}, of which this one is a fork; "
                "begin a transaction here"
            )
        if self._ended is not None:
            raise InvalidArgumentError(
                f"cannot {verb}: this transaction was {self._ended} already; begin() starts another one"
            )


def withdraw(store: Store, txn_id: str, replaces: tuple[str, ...] = ()) -> Fate | None:
    """Commit an empty version that names a transaction as withdrawn, unless the log names it already.

    Args:
        store: the table's store.
        txn_id: the id of the transaction, which was put as an intent.
        replaces: the ids of earlier tries of the same work, which are withdrawn, too.

    Returns:
        The fate that the log had for it before; None if it is withdrawn now.

    Raises:
        DeltaError: as :meth:`Transaction.commit`.
    """
    from refdelta.transaction.intents import find

    before = find(store, txn_id)
    if before.kind != "open":
        return before
    with Transaction(store, load_snapshot(store)) as transaction:
        transaction.withdraws = (txn_id, *replaces)
        transaction.describe("WRITE", {}, {}, always=True)
        committed = transaction.commit()
    after = find(store, txn_id)
    return None if after.kind == "withdrawn" and after.version == committed.version else after
