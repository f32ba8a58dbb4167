"""The two transactions of a conflict as their commits describe them, for people. Only conflicts pay for it."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from refdelta.core.commit.body import info_of
from refdelta.core.commit.member import Member
from refdelta.core.commit.together import GROUP
from refdelta.core.conflicts.reads import EVERY_ROW
from refdelta.core.conflicts.rules import RULES
from refdelta.core.log.actions import Add, Cdc, CommitInfo, Remove
from refdelta.core.log.codec import commit_info_of, encode_commit
from refdelta.core.log.footprint import LINES, MEMBERS, READ_PREDICATES
from refdelta.core.rows.relocation import ROW_PLACES
from refdelta.errors import ConflictDetails, ConflictParty, FailedTransaction

if TYPE_CHECKING:
    from refdelta.core.commit.transaction import PreparedCommit


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

_OF_THE_VERSION = ("engineInfo", "tags", "inCommitTimestamp")
"""The fields of commitInfo that members do not have, since they are the same for all of a version."""

_SPARK_ID = re.compile(r"(?<=[\w`])#\d+L?\b")
"""The number of an expression that delta-spark writes after the name of a column: ``id#481L``."""


_FILE_ACTIONS = 200
"""The number of file actions of a failed transaction that are kept."""

_AGAIN = "attempts=5 of a statement, or transact() of several, does so by itself."
_VECTORS = "With deletion vectors (delta.enableDeletionVectors=true), rows decide, and not files."


def described(details: ConflictDetails, prepared: PreparedCommit, winner: bytes | None, uri: str) -> ConflictDetails:
    """The details of a conflict with both transactions, and with what its user can do.

    Args:
        details: the details without them.
        prepared: the transaction that lost.
        winner: the commit file of the winner, if it is at hand.
        uri: the table, without credentials.
    """
    info = {} if winner is None else info_of_member(commit_info_of(winner), details.member)
    reads = prepared.read_set.rows
    own = ConflictParty(
        operation=text_of(prepared.commit_info.get("operation")),
        predicate=any_of_texts([one.predicate.text for one in reads]),
        isolation_level=prepared.level.value,
        note=text_of(prepared.commit_info.get("userMetadata")),
    )
    described_winner = party(details.version, {"operation": details.operation, **info}, details.member)
    advice = " ".join(filter(None, (details.advice, *_advice(details, prepared))))
    return replace(details, winner=described_winner, own=own, advice=advice, attempt=_attempt(prepared, uri))


def _advice(details: ConflictDetails, prepared: PreparedCommit) -> Iterator[str]:
    """What else helps than the advice of the rule: to run the statement again, and to let rows decide."""
    rule = next((rule for rule in RULES if rule.id == details.rule), None)
    if rule is None:
        return
    if rule.repeats:
        yield _AGAIN
    if rule.of_rows and details.files and prepared.table is not None and not prepared.changes.vectors:
        yield _VECTORS


def _attempt(prepared: PreparedCommit, uri: str) -> FailedTransaction:
    """The transaction as its commit would have it."""
    member = Member(structs.replace(prepared, records_predicates=True))
    actions = member.state.written({})
    files = sorted((one for one in actions if isinstance(one, (Add, Remove))), key=lambda one: isinstance(one, Add))
    kept = [structs.replace(one, stats=None) for one in files[:_FILE_ACTIONS]]  # removals first, which may conflict
    info = info_of(member)
    if len(kept) < len(files):
        info.pop(ROW_PLACES, None)
    others = [one for one in actions if not isinstance(one, (Add, Remove, Cdc))]
    lines = encode_commit([CommitInfo(fields=info), *others, *kept]).splitlines()
    return FailedTransaction(
        uri=uri,
        read_version=prepared.read_version,
        row_level=prepared.changes.row_level,
        actions=tuple(msgspec.json.decode(line) for line in lines),
        left_out=len(files) - len(kept),
    )


def info_of_member(info: Mapping[str, Any], member: int | None) -> Mapping[str, Any]:
    """The commitInfo of a member of a version, with the fields that are the same for all members.

    Args:
        info: the commitInfo of the version.
        member: the place of the member, counted from 0. For None, or where there is no such member, the commitInfo of
            the version.
    """
    entries = info.get(MEMBERS)
    if (
        member is None
        or not isinstance(entries, list)
        or member >= len(entries)
        or not isinstance(entries[member], dict)
    ):
        return info
    own = {name: value for name, value in entries[member].items() if name != LINES}
    return {name: info[name] for name in _OF_THE_VERSION if name in info} | own


def party(version: int, info: Mapping[str, Any], member: int | None = None) -> ConflictParty:
    """A commit by its commitInfo, which is free JSON: a field of another type counts as missing.

    Args:
        version: the version of the commit.
        info: the fields of its commitInfo.
        member: its place among the members of the version; None if it has the version for itself.
    """
    return ConflictParty(
        operation=text_of(info.get("operation")),
        predicate=predicate_of(info),
        version=version,
        user=text_of(info.get("userName")) or text_of(info.get("userId")),
        time=commit_time(info),
        isolation_level=text_of(info.get("isolationLevel")),
        note=text_of(info.get("userMetadata")),
        tables=tables_of(info),
        member=member,
    )


def tables_of(info: Mapping[str, Any]) -> tuple[str, ...]:
    """The tables of a transaction over several, by the commitInfo of one of its commits, as name and version:
    ``sales.orders@7``; empty for other transactions. A table without a name has its id.
    """
    group = info.get(GROUP)
    entries = group.get("participants") if isinstance(group, dict) else None
    found = []
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            name = text_of(entry.get("tableName")) or text_of(entry.get("tableId"))
            found.append(f"{name}@{entry.get('proposedVersion')}")
    return tuple(found)


def predicate_of(info: Mapping[str, Any]) -> str | None:
    """The predicate that a commit recorded, else the one in its ``operationParameters``; None if it has neither."""
    texts = info.get(READ_PREDICATES)
    if isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts):
        return any_of_texts(texts)
    return stated_predicate(info)


def any_of_texts(texts: Sequence[str]) -> str | None:
    """Predicates as one; None if there is none."""
    unlike = list(dict.fromkeys(texts))
    if EVERY_ROW.text in unlike:
        return EVERY_ROW.text
    return " OR ".join(f"({text})" for text in unlike) if len(unlike) > 1 else next(iter(unlike), None)


def stated_predicate(info: Mapping[str, Any]) -> str | None:
    """The predicate in ``operationParameters``, as delta-spark, delta-rs and this engine write it, without the numbers
    that delta-spark gives to columns; None if there is none.
    """
    parameters = info.get("operationParameters")
    if not isinstance(parameters, dict):
        return None
    text = text_of(parameters.get("predicate")) or text_of(parameters.get("mergePredicate"))
    if text is not None and text.startswith("["):
        try:
            text = " AND ".join(msgspec.json.decode(text, type=list[str]))
        except msgspec.DecodeError:
            return None
    return _SPARK_ID.sub("", text) if text else None


def commit_time(info: Mapping[str, Any]) -> dt.datetime | None:
    """The time of a commit: its in-commit timestamp, else the time at which its writer made it."""
    stamp = info.get("inCommitTimestamp", info.get("timestamp"))
    try:
        return _EPOCH + dt.timedelta(milliseconds=stamp) if type(stamp) is int else None
    except OverflowError:
        return None


def text_of(value: Any) -> str | None:
    """A field of free JSON if it is a string that is not empty, else None."""
    return value if isinstance(value, str) and value else None
