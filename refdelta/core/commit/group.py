"""Several transactions in one version: which of them may share it, their actions united, and their commitInfo.

A version may have **members**. They are in an order, and each is checked against those before it as if these were
versions of their own. The version is one legal commit: at most one add and one remove of a path, with the deletion
vectors of several members united. ``commitInfo.members`` has the commitInfo that each would have had alone, and the
lines of the file that are its actions (:data:`~refdelta.core.log.footprint.MEMBERS`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from refdelta.core.commit.member import Member
from refdelta.core.conflicts.isolation import IsolationLevel
from refdelta.core.log.actions import Add, AnyAction, Cdc, DomainMetadata, Remove, Txn
from refdelta.core.log.footprint import LINES, MEMBERS, READ_DOMAINS, READ_PREDICATES
from refdelta.core.log.paths import same_path

_SHARED = frozenset({"WRITE", "DELETE", "UPDATE", "MERGE", "STREAMING UPDATE"})
"""The operations that may share a version. All others must be seen by name, or change more than rows."""

GROUP = "GROUP"
"""``commitInfo.operation`` of a version whose members are of several operations."""

_OF_THE_VERSION = frozenset({"engineInfo", "tags"})
"""The fields of commitInfo that are the same for all members."""


def goes_alone(member: Member) -> bool:
    """Whether a transaction must have a version for itself: it changes metadata or the protocol, creates the table,
    assigns values of identity columns, rearranges files, is a part of a transaction over several tables, or its
    operation must be seen by name.
    """
    state, prepared = member.state, member.prepared
    return (
        prepared.read_version < 0
        or prepared.spans_tables
        or state.staged.changes_table
        or state.one_writer
        or state.snapshot_isolation
        or bool(prepared.changes.groups)
        or state.staged.operation not in _SHARED
    )


def may_share(member: Member, others: Iterable[Member]) -> bool:
    """Whether readers understand a version that a transaction shares with these, which share one already.

    Readers draw conclusions from a version as a whole. The change feed of a version is its ``cdc`` actions, if it has
    any, and otherwise its adds and removes. A stream of added rows ends at a version that removes rows, or passes over
    it with the rows that it adds. So changes with ``cdc`` actions do not share a version with changes without, and
    transactions that only append share one with such transactions only.
    """
    others = list(others)
    if not others:
        return True
    if any(map(goes_alone, (member, *others))):
        return False
    changing = [one for one in (member, *others) if one.state.staged.changes_data]
    return len({(_has_cdc(one), _removes(one)) for one in changing}) <= 1


def _has_cdc(member: Member) -> bool:
    return any(isinstance(action, Cdc) for action in member.prepared.actions)


def _removes(member: Member) -> bool:
    return bool(member.state.staged.removed_data)


def in_order(members: Iterable[Member]) -> list[Member]:
    """The order in which members share a version best: a blind append before a transaction that reads may have rows
    that this should have read, one after it has not.
    """
    return sorted(members, key=lambda one: one.state.blind)


def united(members: Sequence[Sequence[AnyAction]]) -> tuple[list[AnyAction], list[list[list[int]]]]:
    """Unite the actions of the members of a version.

    Args:
        members: the actions of each, in order, as if those before it were versions of their own.

    Returns:
        The actions, and for each member the lines of the commit file with its actions, as ranges ``[first, end)``; the
        first line, which is number 0, is commitInfo.
    """
    placed: dict[Any, AnyAction] = {}
    owners: dict[Any, set[int]] = {}
    for number, actions in enumerate(members):
        removed = {same_path(action.path) for action in actions if isinstance(action, Remove)}
        for action in actions:
            key = _key(action, number)
            owners.setdefault(key, set()).add(number)
            # Of several changes of a file, the first one removed the entry that the version before has.
            if not isinstance(action, Remove):
                placed[key] = action
            else:
                placed.setdefault(key, action)
        added = {same_path(action.path) for action in actions if isinstance(action, Add)}
        for path in removed - added:
            # It has no row left: the add of an earlier member is not written.
            placed.pop((Add, path), None)
    lines: list[list[list[int]]] = [[] for _ in members]
    for line, key in enumerate(placed, 1):
        for number in sorted(owners[key]):
            ranges = lines[number]
            if ranges and ranges[-1][1] == line:
                ranges[-1][1] = line + 1
            else:
                ranges.append([line, line + 1])
    return list(placed.values()), lines


def _key(action: AnyAction, member: int) -> Any:
    match action:
        case Add() | Remove():
            return type(action), same_path(action.path)
        case Txn():
            return Txn, action.app_id
        case DomainMetadata():
            return DomainMetadata, action.domain
    return id(action), member


def united_info(infos: Sequence[Mapping[str, Any]], lines: Sequence[Sequence[Sequence[int]]]) -> dict[str, Any]:
    """The commitInfo of a version with members. Its own fields are right for readers that know no members, if coarse.

    Args:
        infos: the commitInfo that each would have alone.
        lines: the lines of each, see :func:`united`.
    """
    first = infos[0]
    same = all(info.get("operation") == first.get("operation") for info in infos)
    found = dict(first) | {"timestamp": max(info.get("timestamp", 0) for info in infos)}
    found["operation"] = first.get("operation") if same else GROUP
    parameters = [info.get("operationParameters") for info in infos]
    found["operationParameters"] = parameters[0] if same and parameters.count(parameters[0]) == len(infos) else {}
    found["operationMetrics"] = _summed([info.get("operationMetrics") or {} for info in infos])
    found["readVersion"] = min(info["readVersion"] for info in infos)
    strict = any(info.get("isolationLevel") != IsolationLevel.WRITE_SERIALIZABLE.value for info in infos)
    found["isolationLevel"] = (IsolationLevel.SERIALIZABLE if strict else IsolationLevel.WRITE_SERIALIZABLE).value
    found["isBlindAppend"] = all(info.get("isBlindAppend") is True for info in infos)
    for field in (READ_PREDICATES, READ_DOMAINS):
        found.pop(field, None)
        reading = [info for info in infos if info.get("isBlindAppend") is not True]
        # Without the field they are unknown, which counts as everything.
        if reading and all(field in info for info in reading):
            found[field] = list(dict.fromkeys(itertools.chain.from_iterable(info[field] for info in reading)))
    if any(info.get("userMetadata") != first.get("userMetadata") for info in infos):
        found.pop("userMetadata", None)
    found[MEMBERS] = [
        {name: value for name, value in info.items() if name not in _OF_THE_VERSION} | {LINES: ranges}
        for info, ranges in zip(infos, lines, strict=True)
    ]
    return found


def _summed(metrics: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The sums of the counts that all members have; times are not added."""
    names = [name for name in metrics[0] if not name.endswith("Ms") and all(name in one for one in metrics)]
    return {name: str(sum(int(one[name]) for one in metrics)) for name in names}
