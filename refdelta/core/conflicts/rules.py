"""The conflict rules: one winner's commit against one transaction (concurrency.md, "Validation, winner by winner, in
this order").

:data:`RULES` is an ordered table; the first rule that fires decides. A transaction is given by its reads and its staged
actions (:class:`~refdelta.core.conflicts.state.TransactionState`). Winners are checked one by one, in the order of the
log: merged into one, an OPTIMIZE between two of them would be lost.

:func:`check` is a function of three values and changes none of them. A rule may need further facts: the content of
deletion vectors, the new places of rows, or whether rows of new files match the reads. Then the verdict names them; the
caller adds them to the :class:`~refdelta.core.rows.touched.Facts`, and checks again.

Rule 6 of the contract fires only if VACUUM may delete files that a transaction adds. A compaction moves rows,
and :meth:`~refdelta.core.conflicts.state.TransactionState.advance` follows them, by their recorded places or by their
ids. If they cannot be followed, it counts as a removal of its inputs, for rules 8 and 9. Number 5 of the contract is no
rule: in-commit timestamps and the row ids of new files are assigned again after each winner
(:mod:`refdelta.core.commit.body`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from pyroaring import BitMap64

from refdelta.core import errors
from refdelta.core.conflicts.state import (
    FILES_DECIDE,
    ROWS_SORTED,
    AddedRows,
    ConflictCheck,
    TransactionState,
    Unlocated,
)
from refdelta.core.log.actions import DeletionVectorDescriptor
from refdelta.core.log.footprint import Footprint
from refdelta.core.log.replay import file_key
from refdelta.core.rows.sets import shown
from refdelta.core.rows.touched import Facts

FILES_KEPT = 20
"""The number of paths in a conflict. Bounds its size for winners that touch millions of files."""

_REPLACING = frozenset({
    "CREATE TABLE", "CREATE TABLE AS SELECT", "REPLACE TABLE", "REPLACE TABLE AS SELECT", "CREATE OR REPLACE TABLE",
    "CREATE OR REPLACE TABLE AS SELECT",
})  # fmt: skip
"""``commitInfo.operation`` of operations that create or replace a table, in this engine and in delta-spark."""


class Dispute(msgspec.Struct, frozen=True):
    """The finding of a rule: the files and rows in conflict.

    Attributes:
        files: paths, as the log writes them; may be empty.
        rows: the rows of some of these files, if they are known.
        because: the reason why the conflict was decided by files and not by rows, if it was.
    """

    files: tuple[str, ...] = ()
    rows: Mapping[str, BitMap64] = msgspec.field(default_factory=dict)
    because: str | None = None


class NeedVectors(msgspec.Struct, frozen=True):
    """The check needs these deletion vectors: in ``Facts.vectors``, or ``Facts.missing``."""

    descriptors: tuple[DeletionVectorDescriptor, ...]


class NeedRows(msgspec.Struct, frozen=True):
    """The check needs to match these rows with the reads: in ``Facts.matches``, or ``Facts.refusal``."""

    rows: tuple[AddedRows, ...]


class NeedPlaces(msgspec.Struct, frozen=True):
    """The check needs the new places of rows, located by their ids: in ``Facts.relocations`` or
    ``Facts.own_relocations``, and in ``Facts.sought`` in any case.
    """

    unlocated: Unlocated


class NeedConfirmation(msgspec.Struct, frozen=True):
    """The check needs to know whether the transaction would have read all of these rows, which it read before another
    writer moved them: in ``Facts.confirmed``.

    Attributes:
        rows: the rows.
        trusted: whether the winner's claim stands if that cannot be decided.
    """

    rows: tuple[AddedRows, ...]
    trusted: bool


Found = Dispute | NeedVectors | NeedRows | NeedPlaces | NeedConfirmation | None
"""None: the rule does not fire."""

Test = Callable[[ConflictCheck], Found]


class Rule(msgspec.Struct, frozen=True):
    """One row of the table.

    Attributes:
        number: its number in the contract.
        id: a short stable name; ``ConflictDetails.rule``.
        resource: the resource of the conflict, see :mod:`refdelta.core.conflicts.resources`.
        sentence: the message of the error.
        advice: one sentence on what the user can do.
        error: the class of the exception.
        test: the function that checks one winner against one transaction.
        repeats: whether the same statement, run again on the newest version, does what its user wants: no one has to
            look first.
        of_rows: whether rows can decide, and not files.
    """

    number: int
    id: str
    resource: str
    sentence: str
    advice: str
    error: type[errors.ConcurrentModificationError]
    test: Test
    repeats: bool = False
    of_rows: bool = False


@dataclass(frozen=True, slots=True)
class Clear:
    """The transaction may commit over this winner.

    Attributes:
        passed: the check, for :meth:`~refdelta.core.conflicts.state.TransactionState.advance`; None if the state does
            not change.
    """

    passed: ConflictCheck | None = field(default=None, compare=False, repr=False)


class Conflict(msgspec.Struct, frozen=True):
    """The transaction may not commit over this winner.

    Attributes:
        rule: the rule that fired.
        details: the details for the exception.
    """

    rule: Rule
    details: errors.ConflictDetails

    def error(self) -> errors.ConcurrentModificationError:
        """The exception to raise."""
        return self.rule.error(self.rule.sentence, self.details)


# --- the tests, in the order of the contract --------------------------------------------------------------------

_PLAIN = Dispute()


def _table_created(asked: ConflictCheck) -> Found:
    return _PLAIN if asked.state.read.version < 0 else None


def _table_replaced(asked: ConflictCheck) -> Found:
    both = asked.state.staged.operation in _REPLACING and asked.winner.operation in _REPLACING
    return _PLAIN if both and asked.winner.changes_table else None


def _protocol_changed(asked: ConflictCheck) -> Found:
    return _PLAIN if asked.winner.changes_protocol else None


def _metadata_changed(asked: ConflictCheck) -> Found:
    # Metadata that is written again unchanged is no change; but of two transactions that write it one fails, as in
    # delta-spark.
    state, metadata = asked.state, asked.winner.metadata
    if metadata is None or (not state.staged.changes_metadata and state.has_seen(metadata)):
        return None
    return _PLAIN


def _identity_columns(asked: ConflictCheck) -> Found:
    return _PLAIN if asked.state.one_writer else None


def _same_domain(asked: ConflictCheck) -> Found:
    state, winner = asked.state, asked.winner
    if state.read.every_domain:
        return _PLAIN if winner.domains or winner.row_marks else None
    return _PLAIN if state.domains & winner.domains else None


def _same_application(asked: ConflictCheck) -> Found:
    # Recording a version depends on the one before, even if the caller did not record that it read it.
    state, theirs = asked.state, asked.winner.app_ids
    return _PLAIN if theirs and (state.read.app_ids | state.staged.app_ids) & theirs else None


def _files_deleted(asked: ConflictCheck) -> Found:
    before = asked.winner.deletes_files_before
    if before is None:
        return None
    since = asked.state.deletable_since(removed_only=asked.winner.deletes_removed_only)
    return _PLAIN if since is not None and since <= before else None


def _with_rows(test: Test) -> Test:
    """A test on rows, which first needs their places, the deletion vectors, and a look at the places that a winner only
    claims.
    """

    def first(asked: ConflictCheck) -> Found:
        if asked.unlocated is not None:
            return NeedPlaces(asked.unlocated)
        if asked.vectors_needed:
            return NeedVectors(asked.vectors_needed)
        return NeedConfirmation(asked.unconfirmed, asked.touched.is_trusted) if asked.unconfirmed else test(asked)

    return first


def _files_added(asked: ConflictCheck) -> Found:
    if asked.overlooks:
        return None
    if not asked.state.changes.row_level:
        return _paths(
            (add.path for add in asked.should_have_read), FILES_DECIDE if asked.state.changes.vectors else None
        )
    certain, open_ = asked.added_rows()
    if certain or not open_:
        return _paths(add.path for add in certain)
    matches = asked.facts.matches
    unknown = [one for one in open_ if file_key(one.add) not in matches]
    if unknown:
        refusal = asked.state.read.undecidable or asked.facts.refusal
        if refusal is None:
            return NeedRows(tuple(unknown))
        return _paths((one.add.path for one in unknown), refusal)
    return _paths(one.add.path for one in open_ if matches[file_key(one.add)])


def _read_rows_removed(asked: ConflictCheck) -> Found:
    if asked.state.blind or asked.state.snapshot_isolation:
        return None
    # Removed, or moved to where it cannot be followed.
    lost = dict(itertools.islice(asked.touched.lost(), FILES_KEPT))
    found = _paths(lost)
    if found is None:
        return None
    because = asked.why_files(lost.keys())
    rows = {} if because else {path: rows for path, rows in lost.items() if isinstance(rows, BitMap64)}
    return msgspec.structs.replace(found, rows=rows, because=because)


def _deleted_by_both(asked: ConflictCheck) -> Found:
    # Includes files that we add again: adding a removed file would bring it back.
    found = _paths(asked.touched.disputed())
    if found is None or not any(group.scattered for group in asked.state.files.groups.values()):
        return found
    return msgspec.structs.replace(found, because=ROWS_SORTED)


def _append_skipped(asked: ConflictCheck) -> Found:
    skipped = asked.state.precedence.append_in_the_way(asked.winner)
    return None if skipped is None else _paths(add.path for add in skipped.adds) or _PLAIN


def _paths(paths: Iterable[str], because: str | None = None) -> Dispute | None:
    found = tuple(dict.fromkeys(itertools.islice(paths, FILES_KEPT)))
    return Dispute(found, because=because) if found else None


RULES: tuple[Rule, ...] = (
    Rule(
        1,
        "table-created",
        "table",
        "another writer created a table at this place first",
        "Open the table that is there now, and write to it with mode='append' or mode='overwrite'.",
        errors.ProtocolChangedException,
        _table_created,
    ),
    Rule(
        1,
        "table-replaced",
        "table",
        "another writer replaced the table at the same time",
        "Open the table again, and replace it once more if that is still wanted.",
        errors.ProtocolChangedException,
        _table_replaced,
    ),
    Rule(
        1,
        "protocol",
        "protocol",
        "another writer changed the protocol of the table",
        "Open the table again: it may need features now that this writer has to honour.",
        errors.ProtocolChangedException,
        _protocol_changed,
    ),
    Rule(
        2,
        "metadata",
        "metadata",
        "another writer changed the schema, the partitioning or a property of the table",
        "Open the table again, see that the data still fits its schema, and repeat the operation.",
        errors.MetadataChangedException,
        _metadata_changed,
    ),
    Rule(
        2,
        "identity",
        "identity values",
        "another writer committed to the table, whose identity columns admit one writer at a time",
        "Repeat the operation: it then takes values that are still free.",
        errors.MetadataChangedException,
        _identity_columns,
        repeats=True,
    ),
    Rule(
        3,
        "domain",
        "domains",
        "another writer changed a metadata domain that this transaction reads or changes, or that names a column which "
        "this transaction removes or retypes",
        "Open the table again and repeat the operation.",
        errors.ConcurrentTransactionException,
        _same_domain,
        repeats=True,
    ),
    Rule(
        4,
        "application",
        "applications",
        "another writer committed under the same application id",
        "Let one process at a time write under an application id; open the table again to see what it has recorded.",
        errors.ConcurrentTransactionException,
        _same_application,
    ),
    Rule(
        6,
        "files-deleted",
        "deleted files",
        "VACUUM deletes files for good, among which may be files that this transaction adds",
        "Repeat the operation: it then writes its files anew, or looks again whether they are there.",
        errors.ConcurrentDeleteReadException,
        _files_deleted,
        repeats=True,
    ),
    Rule(
        7,
        "files-added",
        "added rows",
        "another writer added files that this transaction should have read",
        "Repeat the operation: it then reads the new files.",
        errors.ConcurrentAppendException,
        _with_rows(_files_added),
        repeats=True,
        of_rows=True,
    ),
    Rule(
        8,
        "read-file-removed",
        "removed rows",
        "another writer removed rows or files that this transaction read",
        "Repeat the operation on what the table holds now.",
        errors.ConcurrentDeleteReadException,
        _with_rows(_read_rows_removed),
        repeats=True,
        of_rows=True,
    ),
    Rule(
        9,
        "deleted-by-both",
        "removed rows",
        "another writer removed files that this transaction removes",
        "Repeat the operation on what the table holds now.",
        errors.ConcurrentDeleteDeleteException,
        _with_rows(_deleted_by_both),
        repeats=True,
        of_rows=True,
    ),
    Rule(
        10,
        "append-skipped",
        "added rows",
        "another writer read rows that this transaction changes, and follows an append of rows that this transaction "
        "passed over: there is no order in which the two, and that append, can have run",
        "Repeat the operation: it then reads the appended rows.",
        errors.ConcurrentAppendException,
        _append_skipped,
        repeats=True,
    ),
)
"""The rules, in the order in which they are checked."""


Verdict = Clear | Conflict | NeedVectors | NeedRows | NeedPlaces | NeedConfirmation


def check(
    state: TransactionState, winner: Footprint, facts: Facts | None = None, rules: Sequence[Rule] = RULES
) -> Verdict:
    """Check one winner against a transaction.

    Args:
        state: the transaction after the winners before this one.
        winner: the next commit in the log.
        facts: further facts about the winner; None for those in its log file only.
        rules: the rules to check.

    Returns:
        Clear, a conflict, or the facts that the check needs.
    """
    asked = ConflictCheck(state, winner, Facts.of(winner) if facts is None else facts)
    if asked.is_apart:
        return Clear()
    for rule in rules:
        found = rule.test(asked)
        if isinstance(found, Dispute):
            return Conflict(rule, _details(rule, found, asked))
        if found is not None:
            return found
    return Clear(asked)


def _details(rule: Rule, dispute: Dispute, asked: ConflictCheck) -> errors.ConflictDetails:
    reasons = [*asked.facts.reasons, *([dispute.because] if dispute.because else [])]
    return errors.ConflictDetails(
        rule.id,
        asked.winner.version,
        asked.winner.operation,
        dispute.files,
        rule.advice,
        rows=sum(map(len, dispute.rows.values())) if dispute.rows else None,
        positions=shown(dispute.rows),
        fallbacks=tuple(dict.fromkeys(reasons)),
        member=asked.winner.member,
    )
