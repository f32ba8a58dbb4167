"""A rehearsal: the commit loop over one recorded winner, with nothing written. It explains conflicts, and shows before
data files are written that they would be written in vain.

The loop is the real one, and so are its rules. Its puts are answered as if the log ended with the winner: the put at
the winner's version loses, and the next one succeeds. Rows and deletion vectors are read from the store.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from msgspec import structs

from refdelta.core.commit import effects
from refdelta.core.commit.budget import Limits
from refdelta.core.commit.loop import commit_loop
from refdelta.core.conflicts.state import TransactionState
from refdelta.core.log.actions import CommitInfo, DeletionVectorDescriptor
from refdelta.core.log.codec import commit_info_of, encode_commit
from refdelta.core.log.footprint import fold_commit, lines_of_member
from refdelta.core.log.paths import commit_key
from refdelta.engine.log.file_committer import read_commit
from refdelta.engine.log.listing import newest_version
from refdelta.engine.parquet.dv import load_deletion_vectors
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import ConcurrentModificationError, DataFileError, DeltaError, InvalidLogError, StoreError
from refdelta.transaction.driver import RowChecks, run_loop
from refdelta.transaction.parties import described, info_of_member
from refdelta.wording import place_name
from refdelta_storage import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from refdelta.core.commit.transaction import CommitOutcome, PreparedCommit
    from refdelta.core.conflicts.state import AddedRows
    from refdelta.core.log.footprint import Footprint
    from refdelta_storage import Store


@dataclass(frozen=True)
class RecordedCommit:
    """A commit of the log, or one member of it.

    Attributes:
        version: its version.
        data: the content of its file; of a member, its part, as if it had the version for itself.
        member: the place of the member, counted from 0; None for the whole commit.
        committed: whether it is in the log; otherwise ``data`` is what its commit would have been.
    """

    version: int
    data: bytes
    member: int | None = None
    committed: bool = True

    @property
    def name(self) -> str:
        """``3``, or ``3.1`` for member 1 of version 3."""
        return place_name(self.version, self.member)

    @property
    def subject(self) -> str:
        """``version 3``, or ``the transaction`` of one that is not committed."""
        return f"version {self.name}" if self.committed else "the transaction"

    @property
    def footprint(self) -> Footprint:
        """Its effects on the table."""
        found = fold_commit(self.version, self.data, commit_key(self.version))
        return found if self.member is None else structs.replace(found, member=self.member)

    @property
    def members(self) -> tuple[RecordedCommit, ...]:
        """Its members; none if it has the version for itself, or is a member."""
        whole = self.footprint
        if whole.parts == (whole,):
            return ()
        info, lines = commit_info_of(self.data), [line for line in self.data.splitlines() if line.strip()]
        found = []
        for number, entry in enumerate(whole.members):
            fields = dict(info_of_member(info, number))
            own = [lines[line] for line in lines_of_member(entry, len(lines)) or ()]
            data = b"\n".join([encode_commit([CommitInfo(fields=fields)]).rstrip(), *own]) + b"\n"
            found.append(RecordedCommit(self.version, data, number))
        return tuple(found)


@dataclass(frozen=True)
class Rehearsal:
    """The outcome of one rehearsal.

    Attributes:
        prepared: the transaction.
        error: the conflict; None if the transaction could commit over the winner.
        outcome: the result of the pretended commit, if there was no conflict.
        rows_matched: the number of the winner's files of which rows were compared with the reads.
    """

    prepared: PreparedCommit
    error: ConcurrentModificationError | None
    outcome: CommitOutcome | None
    rows_matched: int

    @property
    def by_rows(self) -> bool:
        """Whether rows were compared, and not only files."""
        return self.prepared.changes.row_level

    @property
    def state(self) -> TransactionState:
        """The state of the transaction before the winner, for explanations."""
        prepared = self.prepared
        info = CommitInfo(fields={"operation": prepared.commit_info.get("operation")})
        actions = [info, *prepared.actions]
        return TransactionState(
            prepared.read_set, actions, prepared.level, prepared.table, prepared.changes, prepared.rests_on
        )


def rehearse(
    store: Store,
    prepared: PreparedCommit,
    winner: RecordedCommit,
    checks: RowChecks,
) -> Rehearsal:
    """Run the commit loop as if the winner were the only commit after the version that the transaction read.

    Args:
        store: the table's store, which is only read.
        prepared: the transaction, whose read version is the one before the winner.
        winner: the winner.
        checks: looks at the rows of the winner.

    Raises:
        DataFileError: a file that decides cannot be read, such as after VACUUM.
        InvalidLogError: the log is damaged.
        StoreError: the store failed.
    """
    # Timestamps and row ids never conflict, and a recorded commit may lack what it takes to assign them.
    bare = structs.replace(prepared, clock=None, row_ids=None, metadata_at=None)
    shell = _Pretence(store, winner, checks)
    try:
        outcome = run_loop(commit_loop(bare, Limits(max_repeats=1)), shell.perform)
    except ConcurrentModificationError as error:
        details = error.conflict
        if winner.member is not None:
            details = replace(details, member=winner.member)
        error.describe(described(details, prepared, winner.data, store.uri))
        return Rehearsal(prepared, error, None, shell.matched)
    return Rehearsal(prepared, None, outcome, shell.matched)


class _UndecidedError(Exception):
    """Rows would have to be looked for in the winner's files."""


def certain_conflict(
    store: Store,
    prepared: PreparedCommit,
    winner: RecordedCommit,
    match: Callable[[Sequence[AddedRows]], Iterable[bool]],
) -> ConcurrentModificationError | None:
    """The conflict of a transaction with a winner, if the log and the deletion vectors show that there is one. Only
    then are rows of its files read, since they may decide which conflict it is.

    Args:
        store: the table's store, which is only read.
        prepared: the transaction, whose read version is the one before the winner.
        winner: the winner.
        match: looks for rows that the transaction would have read, see
            :class:`~refdelta.transaction.driver.RowChecks`.

    Returns:
        The conflict, as the commit would raise it. None if there is none, if rows of data files would have to be read
        to find out, or if anything cannot be read: then the commit will tell.
    """

    def give_up(*_: object) -> NoReturn:
        raise _UndecidedError

    try:
        none_match = RowChecks(lambda rows: [False] * len(rows), give_up, give_up)
        if rehearse(store, prepared, winner, none_match).error is None:
            return None
        return rehearse(store, prepared, winner, RowChecks(match, give_up, give_up)).error
    except (_UndecidedError, DeltaError, StorageError):
        return None


@dataclass
class _Pretence:
    """Answers the effects of the loop from the store, as if the log ended with the winner."""

    store: Store
    winner: RecordedCommit
    checks: RowChecks
    matched: int = 0
    passed: bool = False

    def perform(self, effect: effects.Effect) -> effects.Reply:
        try:
            with store_errors("explain"):
                return self._of_log(effect) or self._of_rows(effect)
        except (StoreError, DataFileError, InvalidLogError) as error:
            return effects.Failed(error)

    def _of_log(self, effect: effects.Effect) -> effects.Reply | None:
        match effect:
            case effects.TryCommit(version, _):
                lost = version == self.winner.version
                return effects.Exists((self.winner.data,)) if lost else effects.Committed()
            case effects.VersionExists():
                return effects.Yes()
            case effects.Pause(reason=reason):
                self.passed = self.passed or reason == "lost"
                return effects.Elapsed(0.0)
            case effects.NewestVersion(after):
                # Before the winner is passed, the loop asks for the later vectors of files whose vectors are gone.
                return effects.Newest(self.winner.version if self.passed else newest_version(self.store, after))
            case effects.ReadCommits(first, last):
                return effects.Commits(tuple(read_commit(self.store, version) for version in range(first, last + 1)))
            case effects.CommitTime():
                return effects.Time(0)
        return None

    def _of_rows(self, effect: effects.Effect) -> effects.Reply:
        match effect:
            case effects.ReadVectors(descriptors):
                return effects.Vectors(tuple(load_deletion_vectors(self.store, descriptors)))
            case effects.WriteVectors(bitmaps):
                return effects.Descriptors(tuple(map(_unwritten, range(len(bitmaps)), map(len, bitmaps))))
            case effects.MatchRows(rows):
                self.matched += len(rows)
                return effects.Matches(tuple(self.checks.match(rows)), 0.0)
            case effects.LocateRows(inputs, outputs):
                return effects.Relocations(self.checks.locate(inputs, outputs))
            case effects.ConfirmRows(rows, trusted):
                return effects.Yes() if self.checks.confirm(rows, trusted) else effects.No()
        raise TypeError(f"{effect!r} is no effect")


def _unwritten(number: int, rows: int) -> DeletionVectorDescriptor:
    """The descriptor of a vector that is never written."""
    return DeletionVectorDescriptor(
        storage_type="u", path_or_inline_dv=f"unwritten-{number}", offset=1, size_in_bytes=0, cardinality=rows
    )
