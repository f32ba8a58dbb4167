"""The explanation of a conflict, or of its absence: the rules of commits, asked about a winner of the log."""

from __future__ import annotations

import html
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyroaring import BitMap64

from refdelta.core.conflicts.isolation import IsolationLevel
from refdelta.core.conflicts.rules import RULES
from refdelta.core.log.codec import commit_info_of
from refdelta.core.log.paths import same_path
from refdelta.engine.log.state import adds_table
from refdelta.engine.log.statistics import whole_adds
from refdelta.engine.scan.positions import read_rows
from refdelta.engine.scan.scan import plan_scan
from refdelta.errors import ConflictDetails, ConflictParty, DeltaError, printable
from refdelta.operations.inspection.recorded_transaction import files_at
from refdelta.transaction.parties import party
from refdelta.wording import place_name, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from refdelta.core.log.footprint import Footprint
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.rehearsal import RecordedCommit, Rehearsal
    from refdelta.transaction.transaction import Transaction

_RULES = {rule.id: rule for rule in RULES}
_SHOWN = 10
"""The number of rows and of files that are shown."""

_LOOKED_AT = 10_000
"""The number of a winner's files of which it is found out what rules them out."""


@dataclass(frozen=True)
class ConflictAnswer:
    """The answer of the rules at one isolation level, by rows or by files.

    Attributes:
        isolation_level: the level.
        by_rows: whether rows were compared; otherwise files.
        conflict: the conflict; None if both transactions commit.
        error: the name of the exception of the conflict.
        sentence: the reason in one sentence.
        reasons: without a conflict, ids of what rules it out: ``nothing changed``, ``blind append``, ``rearranged``,
            ``level``, ``rows``, ``partition values``, ``statistics``, ``not read``.
    """

    isolation_level: str
    by_rows: bool
    conflict: ConflictDetails | None
    error: str | None
    sentence: str
    reasons: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The attributes as plain values, for JSON."""
        return {
            "isolation_level": self.isolation_level,
            "by_rows": self.by_rows,
            "conflict": self.conflict and self.conflict.as_dict(),
            "error": self.error,
            "sentence": self.sentence,
            "reasons": list(self.reasons),
        }


@dataclass(frozen=True)
class Explanation:
    """The reason why a transaction conflicts with a commit that it did not see, or why it does not.

    Attributes:
        winner: the commit that comes first; of several transactions in its version, the one that conflicts.
        own: the transaction that comes second.
        isolation_level: the level of the transaction.
        by_rows: whether conflicts of the transaction are decided by rows.
        answers: the answers at both levels, by rows if the table has deletion vectors, and by files.
        advice: what to do; empty if both commit.
        rows: some of the rows that decide, as they were before the winner or as it added them; None if no rows decide.
        notes: what really happened, what the log does not record, and what was assumed instead.
    """

    winner: ConflictParty
    own: ConflictParty
    isolation_level: str
    by_rows: bool
    answers: tuple[ConflictAnswer, ...]
    advice: str = ""
    rows: pa.Table | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()

    @property
    def answer(self) -> ConflictAnswer:
        """The answer at the transaction's own level."""
        own = (self.isolation_level, self.by_rows)
        return next(one for one in self.answers if (one.isolation_level, one.by_rows) == own)

    @property
    def conflict(self) -> ConflictDetails | None:
        """The conflict at the transaction's own level; None if both commit."""
        return self.answer.conflict

    @property
    def rule(self) -> str | None:
        """The id of the rule that finds the conflict; None if both commit."""
        return None if self.conflict is None else self.conflict.rule

    def as_dict(self) -> dict[str, Any]:
        """The attributes as plain values, for JSON."""
        return {
            "conflict": self.conflict is not None,
            "rule": self.rule,
            "winner": msgspec.to_builtins(self.winner),
            "own": msgspec.to_builtins(self.own),
            "isolation_level": self.isolation_level,
            "by_rows": self.by_rows,
            "answers": [answer.as_dict() for answer in self.answers],
            "advice": self.advice,
            "rows": None if self.rows is None else self.rows.to_pylist(maps_as_pydicts="lossy"),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return printable("\n".join(self._lines()), keep="\n")

    def _repr_html_(self) -> str:
        lines = "<br>".join(html.escape(line) for line in [self._verdict(), *self._parties()])
        rest = "".join(f"<p>{html.escape(line)}</p>" for line in [*self._details(), *self.notes])
        return f"<div><p>{lines}</p>{rest}{table(self._answers())}</div>"

    def _lines(self) -> Iterator[str]:
        yield self._verdict()
        yield from (f"  {line}" for line in self._parties())
        if self.conflict is not None:
            yield ""
            yield from self._details()
        yield ""
        found, told = list(self._answers()), {self.answer.sentence}
        width = max(len(where) for where, _, _ in found)
        for where, verdict, why in found:
            yield f"  {where:<{width}}  {verdict}"
            if why not in told:
                told.add(why)
                yield f"    {why}"
        if self.notes:
            yield ""
            yield from (f"note: {note}" for note in self.notes)

    def _verdict(self) -> str:
        return f"{'conflict' if self.conflict else 'no conflict'}: {self.answer.sentence}"

    def _parties(self) -> Iterator[str]:
        for one, order in ((self.winner, "first "), (self.own, "second")):
            named = "the statement" if one.version is None else f"version {place_name(one.version, one.member)}"
            said = [f"{order}  {named}: {one.operation or 'an operation without a name'}"]
            said += [f"where {one.predicate}"] if one.predicate else []
            said += [f"by {one.user}"] if one.user else []
            said += [f"at {one.time:%Y-%m-%d %H:%M:%S} UTC"] if one.time else []
            said += [f"in {', '.join(one.tables)}"] if one.tables else []
            said += [f"({one.note})"] if one.note else []
            yield " ".join(said)

    def _details(self) -> Iterator[str]:
        conflict = self.conflict
        if conflict is not None:
            yield f"{self.answer.error} by the rule {conflict.rule}"
            yield from (f"  {path}" for path in conflict.files[:_SHOWN])
            if len(conflict.files) > _SHOWN:
                yield f"  and {len(conflict.files) - _SHOWN} more files"
            if self.rows is not None:
                more = (
                    ""
                    if conflict.rows in {None, self.rows.num_rows}
                    else f" ({self.rows.num_rows} of {conflict.rows:,})"
                )
                yield f"  rows that decide{more}:"
                yield from (f"    {_short(row)}" for row in self.rows.to_pylist(maps_as_pydicts="lossy"))
            yield self.advice

    def _answers(self) -> Iterator[tuple[str, str, str]]:
        for one in self.answers:
            where = f"{one.isolation_level}, by {'rows' if one.by_rows else 'files'}"
            yield where, "no conflict" if one.conflict is None else f"conflict ({one.conflict.rule})", one.sentence


def _short(row: dict[str, Any]) -> str:
    text = ", ".join(f"{name}={value!r:.60}" for name, value in row.items())
    return text if len(text) <= 200 else f"{text[:197]}..."


def explain(
    txn: Transaction,
    before: Snapshot | None,
    winner: RecordedCommit,
    own: ConflictParty,
    notes: list[str],
    by_rows: bool | None = None,
) -> Explanation:
    """Explain the outcome of a transaction that read the version before a winner.

    Args:
        txn: the transaction, with its reads and its staged actions.
        before: the version that it read; None if the winner created the table.
        winner: the winner.
        own: the description of the transaction.
        notes: sentences to add.
        by_rows: whether conflicts of the transaction were decided by rows; None for what the table says.

    Raises:
        DataFileError: a file that decides cannot be read.
    """
    levels = (IsolationLevel.WRITE_SERIALIZABLE, IsolationLevel.SERIALIZABLE)
    rehearsals = txn.rehearse(winner, levels)
    footprint = winner.footprint
    conflicts = {(one.prepared.level, one.by_rows): one.error for one in rehearsals}
    answers = []
    for one in rehearsals:
        if one.error is not None:
            details = replace(one.error.conflict, attempt=None)
            sentence = _RULES[details.rule].sentence
            answers.append(
                ConflictAnswer(one.prepared.level.value, one.by_rows, details, type(one.error).__name__, sentence)
            )
            continue
        reasons = dict(_reasons(one, footprint, conflicts))
        sentence = "; ".join(reasons.values())
        answers.append(ConflictAnswer(one.prepared.level.value, one.by_rows, None, None, sentence, tuple(reasons)))
    level = own.isolation_level if own.isolation_level in {one.value for one in levels} else txn.isolation.value
    found = Explanation(
        party(winner.version, commit_info_of(winner.data), winner.member),
        own,
        str(level),
        txn.row_level if by_rows is None else by_rows and txn.vectors,
        tuple(answers),
        notes=tuple(notes),
    )
    conflict = found.conflict
    if conflict is None:
        return found
    rows = None if before is None else _deciding_rows(txn, before, footprint, conflict)
    # Of a winner with members, the one that conflicts.
    advice = _advice(found, conflict)
    return replace(found, winner=conflict.winner, rows=rows, advice=advice)


def as_recorded(conflict: ConflictDetails, note: str) -> Explanation:
    """The explanation of a conflict by its details alone, without the table.

    Args:
        conflict: the details.
        note: a sentence to add.
    """
    rule = _RULES.get(conflict.rule)
    error, sentence = (rule.error.__name__, rule.sentence) if rule else (None, "another writer's commit conflicts")
    level = conflict.own.isolation_level or IsolationLevel.SERIALIZABLE.value
    by_rows = conflict.attempt is not None and conflict.attempt.row_level
    answer = ConflictAnswer(level, by_rows, replace(conflict, attempt=None), error, sentence)
    winner = replace(conflict.winner, version=conflict.version, member=conflict.member)
    return Explanation(winner, conflict.own, level, by_rows, (answer,), conflict.advice, notes=(note,))


def _advice(found: Explanation, conflict: ConflictDetails) -> str:
    """The advice to the user: that of the conflict, and the settings with which both would commit."""
    said = [conflict.advice]
    clear = {(one.isolation_level, one.by_rows) for one in found.answers if one.conflict is None}
    if (found.isolation_level, True) in clear:
        said.append("Decided by rows (CommitProperties(row_level=True)), both commit.")
    if (IsolationLevel.WRITE_SERIALIZABLE.value, found.by_rows) in clear:
        said.append("At WriteSerializable, both commit.")
    return " ".join(said)


# --- why there is no conflict ----------------------------------------------------------------------------------------


def _reasons(one: Rehearsal, winner: Footprint, conflicts: Any) -> Iterator[tuple[str, str]]:
    """The ids and sentences of what rules out a conflict. The rules have decided already: this only looks for words."""
    state, level = one.state, one.prepared.level
    named = f"version {place_name(winner.version, winner.member)}"
    if not (winner.changes_data or winner.rearranges or winner.changes_table or winner.domains or winner.app_ids):
        yield (
            "nothing changed",
            f"{named} changes nothing that another transaction can read",
        )
        return
    staged = state.staged
    if state.blind and not (staged.adds or staged.changes_table or staged.domains or staged.app_ids):
        yield (
            "not read",
            f"it reads and removes nothing that was there before {named}",
        )
        return
    if state.blind:
        yield "blind append", "it read nothing of the table and removes nothing, so no other commit concerns it"
        return
    if one.outcome is not None and one.outcome.version is None:
        yield (
            "rearranged",
            f"its compaction is left out, since {named} changed its files",
        )
        return
    if state.snapshot_isolation:
        yield (
            "rearranged",
            f"it only rearranges rows; rows that {named} deleted are hidden in its new files",
        )
        return
    if winner.rearranges:
        yield (
            "rearranged",
            f"{named} only moved rows, to places where they are found again",
        )
        return
    if level is IsolationLevel.WRITE_SERIALIZABLE and conflicts.get((IsolationLevel.SERIALIZABLE, one.by_rows)):
        yield (
            "level",
            f"at WriteSerializable it takes its place before the blind append of {named}",
        )
        return
    if one.by_rows and conflicts.get((level, False)):
        yield (
            "rows",
            "both concern the same files, and different rows of them"
            + (
                f"; the rows of {one.rows_matched} new files were read, and none is one that it would have read"
                if one.rows_matched
                else ""
            ),
        )
        return
    yield from _apart(state.predicates, winner)


def _apart(predicates: Any, winner: Footprint) -> Iterator[tuple[str, str]]:
    """The reasons why the files of a winner have no rows that satisfy the predicates."""
    partition = statistics = 0
    named = f"version {place_name(winner.version, winner.member)}"
    for add in islice(winner.new_rows, _LOOKED_AT):
        if not any(one.may_match(add) for one in predicates):
            partition += 1
        elif not any(one.may_match(winner.with_statistics(add, len(winner.adds))) for one in predicates):
            statistics += 1
    if partition:
        yield (
            "partition values",
            f"by their partition values, {partition} new files hold no row that it would have read",
        )
    if statistics:
        yield "statistics", f"by their statistics, {statistics} new files hold no row that it would have read"
    if winner.removed_data or not (partition or statistics):
        yield (
            "not read",
            f"it read none of the rows that {named} removed or changed",
        )


# --- the rows that decide --------------------------------------------------------------------------------------------


def _deciding_rows(txn: Transaction, before: Snapshot, winner: Footprint, conflict: ConflictDetails) -> pa.Table | None:
    """The first rows of a conflict, as they were before the winner, or as it added them; None if they are not known."""
    try:
        if conflict.positions:
            live = {
                same_path(add.path): add for add in whole_adds(files_at(before, {*map(same_path, conflict.positions)}))
            }
            wanted = {path: rows for path, rows in conflict.positions.items() if same_path(path) in live}
            scan = plan_scan(before.with_files(adds_table([live[same_path(path)] for path in wanted])))
            return _first(read_rows(scan, [BitMap64(rows) for rows in wanted.values()]), scan.schema)
        if conflict.rule == "files-added":
            adds = [winner.with_statistics(winner.added[same_path(path)]) for path in conflict.files]
            there = before.with_files(adds_table(adds))
            for predicate, _ in txn.row_matching.asked:
                scan = plan_scan(there, None, predicate)
                rows = _first(scan.to_batches(), scan.schema)
                if rows.num_rows:
                    return rows
    except DeltaError:
        return None  # files that VACUUM removed
    return None


def _first(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    found, count = [], 0
    for batch in batches:
        found.append(batch.slice(0, _SHOWN - count))
        count += found[-1].num_rows
        if count >= _SHOWN:
            break
    return pa.Table.from_batches(found, schema)
