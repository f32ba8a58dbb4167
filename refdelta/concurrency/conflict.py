"""The conflict rules: one winner's commit against one transaction (concurrency.md, "Validation, winner by winner, in
this order").

Everything that decides whether a transaction may still commit over a winner is in :data:`RULES`, an ordered table;
the first rule that fires decides. A transaction is what it read and what it stages
(:class:`~refdelta.concurrency.standing.Standing`). Winners are checked one by one, in the order of the log: folded
into one, an OPTIMIZE between two of them would be lost.

The rules look at files, not at rows. So a compaction (number 6 of the contract) is a removal of its inputs: who read or
removes one of them conflicts, and nobody else does. Number 5, row ids and in-commit timestamps, belongs to features
that are refused for writing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from refdelta import errors
from refdelta.concurrency.standing import Standing
from refdelta.concurrency.summary import CommitSummary
from refdelta.protocol.actions import Add, Remove
from refdelta.protocol.paths import same_path
from refdelta.protocol.replay import file_key

FILES_KEPT = 20
"""How many paths a conflict carries: enough to see what it is about, bounded for winners that touch millions of
files.
"""

ROW_TRACKING = "delta.rowTracking"
"""The one metadata domain that two commits may both write: its high-water marks are merged."""

_REPLACING = frozenset({
    "CREATE TABLE", "CREATE TABLE AS SELECT", "REPLACE TABLE", "REPLACE TABLE AS SELECT", "CREATE OR REPLACE TABLE",
    "CREATE OR REPLACE TABLE AS SELECT",
})  # fmt: skip
"""``commitInfo.operation`` of those who create or replace a table, in this engine and in delta-spark."""

Test = Callable[[Standing, CommitSummary], Iterable[str] | None]
"""(how the transaction stands, the winner) -> what the two disagree over (paths; may be empty), or None where the rule
does not fire.
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table.

    Attributes:
        number: the contract's.
        id: a short name that stays the same over time; ``ConflictDetails.rule``.
        sentence: what happened, as the error says it.
        advice: what the user can do, in one sentence.
        error: the exception's class.
        test: see :data:`Test`.
    """

    number: int
    id: str
    sentence: str
    advice: str
    error: type[errors.ConcurrentModificationError]
    test: Test


@dataclass(frozen=True, slots=True)
class Clear:
    """The transaction may commit over this winner."""


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


def _table_created(ours: Standing, _winner: CommitSummary) -> Iterable[str] | None:
    return () if ours.read.version < 0 else None


def _table_replaced(ours: Standing, winner: CommitSummary) -> Iterable[str] | None:
    both = ours.staged.operation in _REPLACING and winner.operation in _REPLACING
    return () if both and winner.changes_table else None


def _protocol_changed(_ours: Standing, winner: CommitSummary) -> Iterable[str] | None:
    return () if winner.changes_protocol else None


def _metadata_changed(ours: Standing, winner: CommitSummary) -> Iterable[str] | None:
    # What is written again as it was is no change; but of two who write it one fails, as in delta-spark.
    if winner.metadata is None or (not ours.staged.changes_metadata and ours.has_seen(winner.metadata)):
        return None
    return ()


def _identity_columns(ours: Standing, _winner: CommitSummary) -> Iterable[str] | None:
    return () if ours.table is not None and ours.table.has_identity_columns else None


def _same_domain(ours: Standing, winner: CommitSummary) -> Iterable[str] | None:
    return () if (ours.staged.domains & winner.domains) - {ROW_TRACKING} else None


def _same_application(ours: Standing, winner: CommitSummary) -> Iterable[str] | None:
    # Recording a version rests on what was recorded before, whether or not the caller remembered to say that it looked.
    return () if (ours.read.app_ids | ours.staged.app_ids) & winner.app_ids else None


def _files_added(ours: Standing, winner: CommitSummary) -> Iterable[str] | None:
    if ours.blind or ours.snapshot_isolation or ours.may_skip(winner):
        return None
    return _paths(ours.should_have_read(winner))


def _read_file_removed(ours: Standing, winner: CommitSummary) -> Iterable[str] | None:
    if ours.blind or ours.snapshot_isolation:
        return None
    # Whether data was removed or only moved: rows cannot be followed to their new places.
    return _paths(file for file in _changed(ours, winner) if ours.has_read(same_path(file.path)))


def _deleted_by_both(ours: Standing, winner: CommitSummary) -> Iterable[str] | None:
    # What we add again must be there still, too: else we would bring it back.
    touched = ours.staged.removed.keys() | {same_path(add.path) for add in ours.staged.adds}
    return _paths(file for file in _changed(ours, winner) if same_path(file.path) in touched)


def _append_skipped(ours: Standing, winner: CommitSummary) -> Iterable[str] | None:
    skipped = ours.precedence.append_in_the_way(winner)
    return None if skipped is None else _paths(skipped.adds) or ()


def _changed(ours: Standing, winner: CommitSummary) -> Iterable[Add | Remove]:
    """The files that the winner removed, and those that it gave another deletion vector than we know."""
    yield from winner.removes
    for add in winner.adds:
        path, vector = file_key(add)
        if path in ours.known and ours.known[path] != vector and path not in winner.removed:
            yield add


def _paths(actions: Iterable[Add | Remove]) -> list[str] | None:
    return list(dict.fromkeys(action.path for action in itertools.islice(actions, FILES_KEPT))) or None


RULES: tuple[Rule, ...] = (
    Rule(
        1,
        "table-created",
        "another writer created a table at this place first",
        "Open the table that is there now, and write to it with mode='append' or mode='overwrite'.",
        errors.ProtocolChangedException,
        _table_created,
    ),
    Rule(
        1,
        "table-replaced",
        "another writer replaced the table at the same time",
        "Open the table again, and replace it once more if that is still wanted.",
        errors.ProtocolChangedException,
        _table_replaced,
    ),
    Rule(
        1,
        "protocol",
        "another writer changed the protocol of the table",
        "Open the table again: it may need features now that this writer has to honour.",
        errors.ProtocolChangedException,
        _protocol_changed,
    ),
    Rule(
        2,
        "metadata",
        "another writer changed the schema, the partitioning or a property of the table",
        "Open the table again, see that the data still fits its schema, and repeat the operation.",
        errors.MetadataChangedException,
        _metadata_changed,
    ),
    Rule(
        2,
        "identity",
        "another writer committed to the table, whose identity columns admit one writer at a time",
        "Repeat the operation: it then takes values that nobody has taken.",
        errors.MetadataChangedException,
        _identity_columns,
    ),
    Rule(
        3,
        "domain",
        "another writer changed a metadata domain that this transaction changes too",
        "Open the table again and repeat the operation.",
        errors.ConcurrentTransactionException,
        _same_domain,
    ),
    Rule(
        4,
        "application",
        "another writer committed under the same application id",
        "Let one process at a time write under an application id; open the table again to see what it has recorded.",
        errors.ConcurrentTransactionException,
        _same_application,
    ),
    Rule(
        7,
        "files-added",
        "another writer added files that this transaction should have read",
        "Repeat the operation: it then reads the new files.",
        errors.ConcurrentAppendException,
        _files_added,
    ),
    Rule(
        8,
        "read-file-removed",
        "another writer removed files that this transaction read",
        "Repeat the operation on what the table holds now.",
        errors.ConcurrentDeleteReadException,
        _read_file_removed,
    ),
    Rule(
        9,
        "deleted-by-both",
        "another writer removed files that this transaction removes",
        "Repeat the operation on what the table holds now.",
        errors.ConcurrentDeleteDeleteException,
        _deleted_by_both,
    ),
    Rule(
        10,
        "append-skipped",
        "another writer read rows that this transaction changes, and follows an append of rows that this transaction "
        "passed over: there is no order in which the two, and that append, can have run",
        "Repeat the operation: it then reads the appended rows.",
        errors.ConcurrentAppendException,
        _append_skipped,
    ),
)
"""The rules, in the order in which they are asked."""


def check(ours: Standing, winner: CommitSummary, rules: Sequence[Rule] = RULES) -> Clear | Conflict:
    """Whether a transaction may commit over one winner, after those that it has passed.

    Args:
        ours: how the transaction stands; it is left as it is (see :meth:`Standing.advance`).
        winner: a commit that it did not see, the next one of the log.
        rules: the rules to ask.
    """
    for rule in rules:
        files = rule.test(ours, winner)
        if files is not None:
            found = errors.ConflictDetails(rule.id, winner.version, winner.operation, tuple(files), rule.advice)
            return Conflict(rule, found)
    return Clear()
