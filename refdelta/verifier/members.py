"""The members of a version (``commitInfo.members``), against the actions of its commit.

Later transactions are checked against one member after the other, and a transaction whose reply was lost finds itself
by the id of its member. If the members are wrong, conflicts are missed, and a commit that failed counts as one that
succeeded. Section 6 of ``docs/commit-protocol.md``.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from refdelta.core.log.actions import Add, Cdc, CommitInfo, Metadata, Protocol, Remove
from refdelta.core.log.claims import Engine, engine_of
from refdelta.core.log.footprint import LINES, MEMBERS, is_of_the_version, lines_of_member

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from refdelta.verifier.log_files import ActionLine, LoggedCommit

_OPERATIONS = ("WRITE", "DELETE", "UPDATE", "MERGE", "STREAMING UPDATE")
"""The operations that can share a version; the verifier has its own list, so that it finds an error in the other."""

LINES_CLAUSE = "action-21"
ALONE_CLAUSE = "action-22"

Finding = tuple[str, str, "ActionLine | None"]
"""A clause, a message, and the line."""


def members_findings(commit: LoggedCommit) -> Iterator[Finding]:
    """The contradictions between the members of a commit and its actions. Only commits of this engine have members: a
    field of that name of another engine means something else.
    """
    infos = [(line, line.action.fields) for line in commit.lines if isinstance(line.action, CommitInfo)]
    if not infos or engine_of(infos[0][1].get("engineInfo")) is not Engine.REFDELTA or MEMBERS not in infos[0][1]:
        return
    first, info = infos[0]
    entries = info[MEMBERS]
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        yield LINES_CLAUSE, f"{MEMBERS} of commitInfo is not a list of objects", first
        return
    yield from _ids(entries, first)
    owners: dict[int, list[int]] = defaultdict(list)
    for number, entry in enumerate(entries):
        lines = lines_of_member(entry, len(commit.lines))
        if lines is None:
            said = f"the lines of member {number} are {entry.get(LINES)!r}"
            yield LINES_CLAUSE, f"{said}, no ascending ranges of the lines 1 to {len(commit.lines) - 1}", first
            return
        read = entry.get("readVersion")
        if type(read) is not int or not 0 <= read < commit.version:
            yield LINES_CLAUSE, f"readVersion of member {number} is {read!r}, not an earlier version", first
        for line in lines:
            owners[line].append(number)
    yield from _lines(commit.lines, owners)
    yield from _alone(commit.lines, entries, owners)


def _ids(entries: Sequence[dict[str, Any]], first: ActionLine) -> Iterator[Finding]:
    seen: dict[str, int] = {}
    for number, entry in enumerate(entries):
        name = entry.get("txnId")
        if not isinstance(name, str) or not name:
            yield LINES_CLAUSE, f"member {number} has no txnId", first
        elif (other := seen.setdefault(name, number)) != number:
            yield LINES_CLAUSE, f"members {other} and {number} have the same txnId {name}", first


def _lines(lines: Sequence[ActionLine], owners: dict[int, list[int]]) -> Iterator[Finding]:
    for at, line in enumerate(lines):
        by = owners.get(at, [])
        if not by and not is_of_the_version(line.action):
            yield LINES_CLAUSE, "the action is of no member", line
        # Only a file can be changed by several: they deleted different rows of it.
        if len(by) > 1 and not isinstance(line.action, (Add, Remove)):
            yield LINES_CLAUSE, f"the action is of the members {_listed(by)}; only a file can be of several", line
    paths: dict[str, dict[type, list[int]]] = defaultdict(dict)
    for at, line in enumerate(lines):
        if isinstance(line.action, (Add, Remove)):
            paths[line.action.path][type(line.action)] = owners.get(at, [])
    for at, line in enumerate(lines):
        if isinstance(line.action, Add) and len(by := owners.get(at, [])) > 1:
            removed = paths[line.action.path].get(Remove)
            if removed is None or not {*by} <= {*removed}:
                message = f"{line.action.path!r} is added by the members {_listed(by)}, and not removed by each of them"
                yield LINES_CLAUSE, message, line


def _alone(
    lines: Sequence[ActionLine], entries: Sequence[dict[str, Any]], owners: dict[int, list[int]]
) -> Iterator[Finding]:
    if len(entries) < 2:
        return
    first = lines[0]
    for line in lines:
        if isinstance(line.action, (Metadata, Protocol)):
            name = "metaData" if isinstance(line.action, Metadata) else "protocol"
            yield ALONE_CLAUSE, f"a version with {len(entries)} members has a {name} action", line
    actions: list[list[Any]] = [[] for _ in entries]
    for at, by in owners.items():
        for number in by:
            actions[number].append(lines[at].action)
    for number, (entry, own) in enumerate(zip(entries, actions, strict=True)):
        if entry.get("operation") not in _OPERATIONS:
            yield ALONE_CLAUSE, f"member {number} is {entry.get('operation')!r}, which must have a version alone", first
        files = [one for one in own if isinstance(one, (Add, Remove))]
        if files and all(one.data_change is False for one in files):
            yield ALONE_CLAUSE, f"member {number} only rearranges files, and must have a version alone", first
    with_data = [number for number, own in enumerate(actions) if any(isinstance(one, (Add, Remove)) for one in own)]
    with_changes = [number for number in with_data if any(isinstance(one, Cdc) for one in actions[number])]
    if with_changes and with_changes != with_data:
        others = [number for number in with_data if number not in with_changes]
        message = f"members {_listed(with_changes)} have change files, and members {_listed(others)} have none"
        yield ALONE_CLAUSE, f"{message}: readers of the change feed see only the former", first


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
