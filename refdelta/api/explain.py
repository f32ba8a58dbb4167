"""``explain_conflict``: why two transactions of a table conflict, or would have, or why not."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from refdelta import arguments
from refdelta.core.commit.budget import RowBudget
from refdelta.core.conflicts.isolation import level_of
from refdelta.core.log.actions import Add, CommitInfo
from refdelta.core.log.codec import encode_commit
from refdelta.core.log.footprint import READ_DOMAINS, READ_PREDICATES
from refdelta.core.log.paths import same_path
from refdelta.engine.log.file_committer import read_commit
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import (
    ConflictDetails,
    ConflictParty,
    DataFileNotFoundError,
    InvalidArgumentError,
    VersionNotFoundError,
)
from refdelta.expressions.sql import parse_predicate
from refdelta.operations.inspection.explanation import Explanation, explain
from refdelta.operations.inspection.recorded_transaction import files_at, rebuild
from refdelta.transaction.parties import any_of_texts, party
from refdelta.transaction.rehearsal import RecordedCommit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from refdelta.api.table import DeltaTable
    from refdelta.api.transaction import WriteTransaction
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta_storage import Store

# A write by which a transaction with reads is one that matters.
_SOMETHING = Add(path="unwritten", partition_values={}, size=0, modification_time=0, data_change=True)


def explain_conflict(
    table: DeltaTable,
    a: int | tuple[int, int] | ConflictDetails,
    b: int | tuple[int, int] | Callable[[WriteTransaction], Any] | None = None,
    *,
    budget: RowBudget | None = None,
) -> Explanation:
    """Explain whether a transaction would have conflicted with version ``a``, had it begun before.

    The transaction is that of a later version, or a statement. It is rebuilt at version ``a - 1``, and the commit loop
    with its rules runs over version ``a``, at both isolation levels, by rows and by files. Nothing is committed. The
    reads of a version are those which its commit records: all of them for commits of this engine, the predicate of
    ``operationParameters`` for others; without it, every row counts as read, and a note says so.

    A version may have several transactions as members; ``(3, 1)`` is member 1 of version 3, counted from 0. Of a
    version without a member, the members are looked at one after the other, and the first one that conflicts is in the
    answer: ``winner.member``, ``own.member``.

    Args:
        table: the table.
        a: the version that is to have been committed first, or ``(version, member)``. Or the ``conflict`` of a
            ``ConcurrentModificationError``, which has both transactions, then without ``b``.
        b: a later version, ``(version, member)`` of a later version, or a function that stages a statement on a
            transaction, as :meth:`DeltaTable.transact` takes it. Files that the statement writes are removed again.
        budget: limits the bytes of data files that are read to compare rows; None for the default of a commit.

    Returns:
        The verdict, the rule, files and rows, both predicates, or the reason why there is no conflict.

    Raises:
        InvalidArgumentError: ``b`` is not of a later version than ``a``, or is neither a version nor a function; or the
            version has no such member; or the conflict does not have the transaction that failed.
        VersionNotFoundError: a commit is not in the log, or version ``a - 1`` cannot be rebuilt any more.
        InvalidLogError: one of the two commits is damaged.
        DataFileNotFoundError: VACUUM removed a deletion vector without which rows cannot be compared.
        UnsupportedFeatureError: the table needs a feature that this engine cannot write.

    Example::

        table.delete("id = 1")
        table.update({"amount": "0.0"}, predicate="id <= 2")
        why = explain_conflict(table, table.version() - 1, table.version())
        why.rule  # read-file-removed
        print(why)
    """
    store = table.store
    if isinstance(a, ConflictDetails):
        return _of_failed(store, a, budget or RowBudget())
    first, member = _place("a", a)
    winner = _commit(store, first, member)
    if callable(b):
        return _of_statement(store, winner, b)
    second, own_member = _place("b", b)
    if second <= first:
        raise InvalidArgumentError(
            f"version {second} is not later than version {first}: a must be the earlier version"
            + (", and members of one version were checked against each other" if second == first else "")
        )
    commit = _commit(store, second, own_member)
    before = _before(store, first)
    found: list[Explanation] = []
    for one in commit.members or (commit,):
        with _vacuumed(first):
            rebuilt = rebuild(store, before, winner.footprint, one, budget or RowBudget())
            notes = [*_history(winner, one), *_between(before, winner, one), *rebuilt.notes]
            found.append(explain(rebuilt.txn, before, winner, party(second, rebuilt.info, one.member), notes))
        if found[-1].conflict is not None:
            return _with_shared_files(store, found[-1])
    if len(found) > 1:
        others = ", ".join(one.name for one in commit.members[1:])
        return replace(found[0], notes=(*found[0].notes, f"nor do the other members of version {second}: {others}"))
    return found[0]


def _of_failed(store: Store, conflict: ConflictDetails, budget: RowBudget) -> Explanation:
    """Explain a conflict of a transaction that failed."""
    attempt = conflict.attempt
    if attempt is None:
        raise InvalidArgumentError("the conflict does not have the transaction that failed")
    data = b"".join(msgspec.json.encode(action) + b"\n" for action in attempt.actions)
    seen = f"it is looked at as if it had begun at version {conflict.version - 1}"
    notes = [f"the transaction began at version {attempt.read_version}; {seen}"]
    if attempt.left_out:
        notes.append(f"{attempt.left_out:,} of its file actions are not recorded")
    winner = _commit(store, conflict.version, conflict.member)
    return _of_uncommitted(store, winner, data, conflict.own, notes, budget, by_rows=attempt.row_level)


def _of_uncommitted(
    store: Store,
    winner: RecordedCommit,
    data: bytes,
    own: ConflictParty,
    notes: list[str],
    budget: RowBudget,
    by_rows: bool | None = None,
) -> Explanation:
    """Explain whether a transaction that is not in the log conflicts with a version.

    Args:
        store: the table's store.
        winner: the version.
        data: what the commit of the transaction would have been.
        own: the description of the transaction.
        notes: sentences to add.
        budget: limits the bytes of data files that are read.
        by_rows: whether its conflicts are decided by rows; None for what the table says.
    """
    before = _before(store, winner.version)
    with _vacuumed(winner.version):
        commit = RecordedCommit(winner.version + 1, data, committed=False)
        rebuilt = rebuild(store, before, winner.footprint, commit, budget)
        found = explain(rebuilt.txn, before, winner, own, [*notes, *rebuilt.notes], by_rows)
        return _with_shared_files(store, found)


def explain_reads(
    table: DeltaTable,
    predicate: str,
    since: int,
    isolation: arguments.Isolation | None = None,
    *,
    budget: RowBudget | None = None,
) -> list[Explanation]:
    """Explain with which versions a transaction conflicts that read some rows at a version, and writes what depends on
    them.

    Args:
        table: the table.
        predicate: SQL that is true for each row which it read.
        since: the version that it read.
        isolation: its isolation level; None for the table's own.
        budget: limits the bytes of data files that are read to compare rows, for each version.

    Returns:
        An explanation for each later version that conflicts, in the order of the log: the first one makes the
        transaction fail. Empty if it could be committed.

    Raises:
        PredicateError: the predicate cannot be parsed or bound.
        InvalidArgumentError: there is no such isolation level, or ``since`` is no version.
        VersionNotFoundError: a version is not in the log, or not any more.

    Example::

        table.delete("id = 1")
        [one.winner.version for one in explain_reads(table, "id < 3", table.version() - 1)]
    """
    store = table.store
    first = arguments.whole("since", since)
    newest = load_snapshot(store)
    if first is None or not 0 <= first <= newest.version:
        raise InvalidArgumentError(f"since is a version of the table, from 0 to {newest.version}, not {since!r}")
    level = level_of(newest.properties.isolation_level, arguments.text("isolation", isolation))
    parse_predicate(predicate, load_snapshot(store, first).schema)
    info = {"operation": "a transaction", READ_PREDICATES: [predicate], READ_DOMAINS: [], "isolationLevel": level.value}
    own = ConflictParty(operation="a transaction", predicate=predicate, isolation_level=level.value)
    data = encode_commit([CommitInfo(fields=info), _SOMETHING])
    found = []
    for version in range(first + 1, newest.version + 1):
        winner = _commit(store, version, None)
        one = _of_uncommitted(store, winner, data, own, [], budget or RowBudget())
        if one.conflict is not None:
            found.append(one)
    return found


def _with_shared_files(store: Store, found: Explanation) -> Explanation:
    """An explanation with a note if the log cannot tell which member of the winner deleted the rows that decide."""
    conflict = found.conflict
    if conflict is None or conflict.member is None:
        return found
    files = {same_path(path) for path in conflict.files}
    members = _commit(store, conflict.version, None).members
    named = [one.name for one in members if not files.isdisjoint(one.footprint.removed)]
    if len(named) < 2:
        return found
    note = f"{' and '.join(named)} deleted rows of the same files: the log has their rows together, so it may be either"
    return replace(found, notes=(*found.notes, note))


@contextmanager
def _vacuumed(version: int) -> Iterator[None]:
    """Say why a file that the log names may be missing."""
    try:
        yield
    except DataFileNotFoundError as error:
        reason = (
            f"{error.reason}; VACUUM may have removed it, so what happened at version {version} is not known any more"
        )
        raise DataFileNotFoundError(reason, file=error.file) from error


def _of_statement(store: Store, winner: RecordedCommit, statement: Callable[[WriteTransaction], Any]) -> Explanation:
    from refdelta.api.table_transaction import TableTransaction
    from refdelta.api.transaction import WriteTransaction

    before = _before(store, winner.version)
    if before is None:
        raise InvalidArgumentError("version 0 created the table: no statement can have begun before it")
    with TableTransaction(store, before) as txn:
        with _vacuumed(winner.version):
            statement(WriteTransaction(txn))
        texts = [one.predicate.text for one in txn.reads.rows]
        operation = txn.description.operation if txn.description else "WRITE"
        own = ConflictParty(operation=operation, predicate=any_of_texts(texts), isolation_level=txn.isolation.value)
        with _vacuumed(winner.version):
            return _with_shared_files(store, explain(txn, before, winner, own, []))


def _place(name: str, value: Any) -> tuple[int, int | None]:
    """The version and the member that an argument names."""
    version, member = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
    number, own = arguments.whole(name, version), arguments.whole(name, member)
    if number is None or number < 0 or (own is not None and own < 0):
        raise InvalidArgumentError(f"{name} is a version of the table, or (version, member), not {value!r}")
    return number, own


def _commit(store: Store, version: int, member: int | None) -> RecordedCommit:
    with store_errors("read the log"):
        data = read_commit(store, version)
    if data is None:
        raise VersionNotFoundError(
            f"there is no commit of version {version} in the log: it was cleaned up, or never was"
        )
    whole = RecordedCommit(version, data)
    if member is None:
        return whole
    if member >= len(members := whole.members):
        there = f"0 to {len(members) - 1}" if members else "none"
        raise InvalidArgumentError(f"version {version} has no member {member}; its members: {there}")
    return members[member]


def _before(store: Store, version: int) -> Snapshot | None:
    return None if version == 0 else load_snapshot(store, version - 1)


def _history(winner: RecordedCommit, commit: RecordedCommit) -> list[str]:
    """Notes on the real history: whether the later commit saw the earlier one."""
    a, b = winner.name, commit.name
    own, theirs = commit.footprint, winner.footprint
    said = f"version {b} does not record which version it read"
    if own.read_version is not None:
        saw = "so it saw" if own.read_version >= winner.version else "and was committed over"
        said = f"version {b} began at version {own.read_version}, {saw} version {a}"
    added = theirs.added.keys() - theirs.removed.keys()
    if theirs.changes_data and not added.isdisjoint(own.removed):
        return [said, f"version {b} removes rows that version {a} added: it builds on version {a}"]
    return [said]


def _between(before: Snapshot | None, winner: RecordedCommit, commit: RecordedCommit) -> Iterator[str]:
    """A note about files that the later commit removes, and that were added between the two commits."""
    theirs, removed = winner.footprint, commit.footprint.removed.keys()
    new = removed - theirs.added.keys()
    count = len(new) - (0 if before is None else files_at(before, new).num_rows)
    if count:
        files = "1 file" if count == 1 else f"{count:,} files"
        yield (
            f"version {commit.name} removes rows of {files} that versions between {winner.name} and "
            f"{commit.name} added; the answer leaves these out"
        )
