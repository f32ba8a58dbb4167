"""The conflict rules: one winner's commit against one transaction (concurrency.md, "Validation, winner by winner, in
this order").

Everything that decides whether a transaction may still commit over a winner is in :data:`RULES`, an ordered table;
the first rule that fires decides. A transaction is what it read (:class:`~refdelta.concurrency.read_set.ReadSet`) and
what it stages, folded like a winner (:class:`~refdelta.concurrency.summary.CommitSummary`). Winners are checked one
by one, in the order of the log.

The rules about files are conservative: whoever reads the table conflicts with every winner that changed data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from refdelta import errors
from refdelta.concurrency.read_set import ReadSet
from refdelta.concurrency.summary import CommitSummary

if TYPE_CHECKING:
    from refdelta.protocol.actions import Add, Remove
from refdelta.protocol.paths import same_path

_FILES_KEPT = 20
"""How many paths a conflict carries: enough to see what it is about, bounded for winners that touch millions of
files.
"""

Test = Callable[[ReadSet, CommitSummary, CommitSummary], Iterable[str] | None]
"""(what we read, what we stage, the winner) -> what the two disagree over (paths; may be empty), or None where the
rule does not fire.
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table.

    Attributes:
        id: a short name that stays the same over time; ``ConflictDetails.rule``.
        sentence: what happened, as the error says it.
        advice: what the user can do, in one sentence.
        error: the exception's class.
        test: see :data:`Test`.
    """

    id: str
    sentence: str
    advice: str
    error: type[errors.ConcurrentModificationError]
    test: Test


@dataclass(frozen=True, slots=True)
class Clear:
    """The transaction may commit over this winner as it is."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """The transaction may not commit over this winner.

    Attributes:
        rule: the row that decided.
        details: what the exception carries.
    """

    rule: Rule
    details: errors.ConflictDetails

    def error(self) -> errors.ConcurrentModificationError:
        """The exception to raise."""
        return self.rule.error(self.rule.sentence, self.details)


# --- the tests, in the order of the contract --------------------------------------------------------------------


def _table_created(read: ReadSet, _staged: CommitSummary, _winner: CommitSummary) -> Iterable[str] | None:
    return () if read.version < 0 else None


def _protocol_changed(_read: ReadSet, _staged: CommitSummary, winner: CommitSummary) -> Iterable[str] | None:
    return () if winner.changes_protocol else None


def _metadata_changed(_read: ReadSet, _staged: CommitSummary, winner: CommitSummary) -> Iterable[str] | None:
    return () if winner.changes_metadata else None


def _same_domain(_read: ReadSet, staged: CommitSummary, winner: CommitSummary) -> Iterable[str] | None:
    return () if staged.domains & winner.domains else None


def _same_application(read: ReadSet, staged: CommitSummary, winner: CommitSummary) -> Iterable[str] | None:
    # Recording a version rests on what was recorded before, whether or not the caller remembered to say that it looked.
    return () if (read.app_ids | staged.app_ids) & winner.app_ids else None


def _files_added(read: ReadSet, staged: CommitSummary, winner: CommitSummary) -> Iterable[str] | None:
    if read.blind or staged.rearranges:
        return None
    return _paths(winner.added_data)


def _read_file_removed(read: ReadSet, staged: CommitSummary, winner: CommitSummary) -> Iterable[str] | None:
    if read.blind or staged.rearranges:
        return None
    # Removed data counts though the file is not known to have been read: predicates are not evaluated here. A file
    # that was only compacted away must be one that was read. One that is added again with new statistics alone has no
    # remove: its rows are what they were.
    touched = [remove for remove in winner.removes if remove.data_change is not False or read.reads(remove)]
    return _paths(touched)


def _deleted_by_both(_read: ReadSet, staged: CommitSummary, winner: CommitSummary) -> Iterable[str] | None:
    ours = staged.removed_keys
    return _paths(remove for remove in winner.removes if same_path(remove.path) in ours)


def _paths(actions: Iterable[Add | Remove]) -> list[str] | None:
    return list(dict.fromkeys(action.path for action in actions)) or None


RULES: tuple[Rule, ...] = (
    Rule(
        "table-created",
        "another writer created a table at this place first",
        "Open the table that is there now, and write to it with mode='append' or mode='overwrite'.",
        errors.ProtocolChangedException,
        _table_created,
    ),
    Rule(
        "protocol",
        "another writer changed the protocol of the table",
        "Open the table again: it may need features now that this writer has to honour.",
        errors.ProtocolChangedException,
        _protocol_changed,
    ),
    Rule(
        "metadata",
        "another writer changed the schema, the partitioning or a property of the table",
        "Open the table again, see that the data still fits its schema, and repeat the operation.",
        errors.MetadataChangedException,
        _metadata_changed,
    ),
    Rule(
        "domain",
        "another writer changed a metadata domain that this transaction changes too",
        "Open the table again and repeat the operation.",
        errors.ConcurrentTransactionException,
        _same_domain,
    ),
    Rule(
        "application",
        "another writer committed under the same application id",
        "Let one process at a time write under an application id; open the table again to see what it has recorded.",
        errors.ConcurrentTransactionException,
        _same_application,
    ),
    Rule(
        "files-added",
        "another writer added files that this transaction should have read",
        "Repeat the operation: it then reads the new files.",
        errors.ConcurrentAppendException,
        _files_added,
    ),
    Rule(
        "read-file-removed",
        "another writer removed files that this transaction read",
        "Repeat the operation on what the table holds now.",
        errors.ConcurrentDeleteReadException,
        _read_file_removed,
    ),
    Rule(
        "deleted-by-both",
        "another writer removed files that this transaction removes",
        "Repeat the operation on what the table holds now.",
        errors.ConcurrentDeleteDeleteException,
        _deleted_by_both,
    ),
)
"""The rules, in the order in which they are asked."""


def check(read: ReadSet, staged: CommitSummary, winner: CommitSummary) -> Clear | Conflict:
    """Whether a transaction may commit over one winner.

    Args:
        read: what the transaction read.
        staged: what it is about to commit, folded.
        winner: a commit that it did not see.
    """
    for rule in RULES:
        files = rule.test(read, staged, winner)
        if files is not None:
            kept = tuple(files)[:_FILES_KEPT]
            return Conflict(rule, errors.ConflictDetails(rule.id, winner.version, winner.operation, kept, rule.advice))
    return Clear()
