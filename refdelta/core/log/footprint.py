"""The footprint of a commit: its effects on the table that can matter to another transaction.

Both sides of a rule have one: the winner from the bytes of its log file, the transaction from its staged actions.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from refdelta.core.log import claims
from refdelta.core.log.actions import Add, AnyAction, CommitInfo, DomainMetadata, Metadata, Protocol, Remove, Txn
from refdelta.core.log.assigned import DOMAIN as ROW_TRACKING
from refdelta.core.log.codec import decode_commit
from refdelta.core.log.lean import FileLine, LeanCommit, LeanInfo, decode_lean, lean_info, of_lines, whole_add
from refdelta.core.log.paths import same_path, same_paths
from refdelta.core.log.statistics import num_records
from refdelta.core.log.vacuums import VACUUM_START, deletes_before, deletes_removed_only

READ_PREDICATES = "readPredicates"
"""The field of commitInfo in which this engine records the reads of a transaction: a list of SQL predicates, one of
which is true for every row that was read. A transaction that read nothing sets ``isBlindAppend`` instead.
"""

READ_DOMAINS = "readDomains"
"""The field of commitInfo in which this engine records the metadata domains that a transaction read: a list of names.
Without it they are unknown, unless the commit is a blind append.
"""

MEMBERS = "members"
"""The field of commitInfo of a version with several transactions: a list with the commitInfo of each, in their order,
as if those before it were versions of their own.
"""

LINES = "lines"
"""The field of a member with the lines of the commit file that are its actions, as ranges ``[first, end)``, counted
from 0. A line may be of several members: they changed the same file.
"""

_LOOKED_UP = 4
"""Up to this number of files of a commit are looked up one by one; for more, the whole commit is decoded."""


class CommitFile:
    """The content of a commit file, for the fields that its footprint leaves out.

    Args:
        data: the bytes.
        name: the name of the file, for errors.
    """

    __slots__ = ("_adds", "_all", "data", "name")

    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name = data, name
        self._adds: dict[str, Add] = {}
        self._all = False

    def actions(self) -> list[AnyAction]:
        """All actions with all their fields."""
        return decode_commit(self.data, self.name)

    def whole(self, add: Add, among: int) -> Add:
        """An add with its statistics and tags; see :meth:`Footprint.with_statistics`."""
        known = self._adds
        if add.path not in known and not self._all:
            if max(among, len(known) + 1) <= _LOOKED_UP:
                known[add.path] = whole_add(self.data, self.name, add.path) or add
            else:
                known.update((one.path, one) for one in self.actions() if isinstance(one, Add))
                self._all = True
        return known.get(add.path, add)


class Footprint(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The parts of a commit that the conflict rules need.

    Attributes:
        version: the version of the commit; for a transaction before its commit, the version that it read.
        operation: ``commitInfo.operation``.
        txn_id: ``commitInfo.txnId``.
        members: ``commitInfo.members`` (:data:`MEMBERS`), which is free JSON.
        member: its place among the members of its version, counted from 0; None for a version as a whole.
        read_version: ``commitInfo.readVersion``: the version that the transaction read.
        read_predicates: the recorded reads (:data:`READ_PREDICATES`); None if the commit has none.
        read_domains: the recorded reads of metadata domains (:data:`READ_DOMAINS`), likewise.
        level: ``commitInfo.isolationLevel``.
        changes_protocol: whether it has a protocol action, even an equal one.
        metadata: its metaData action.
        app_ids: the application ids of its txn actions.
        domains: the metadata domains that it sets or removes, except the one of row tracking.
        row_marks: the actions of the domain of row tracking, which are merged and never conflict.
        adds: its add actions, without statistics if they come from a log file.
        removes: its remove actions, likewise.
        paths: the paths of its adds and then of its removes, normalized by :func:`~refdelta.core.log.paths.same_path`.
        only_files: whether it has only file actions, the mark of their row ids, and commitInfo.
        says_blind_append: ``commitInfo.isBlindAppend`` is true. A commit of another engine without it is not blind.
        engine: its writer.
        is_staged: whether these are the staged actions of a transaction, which are what they claim.
        in_commit_timestamp: ``commitInfo.inCommitTimestamp``, in milliseconds since 1970.
        spans_tables: whether it is the part for one table of a transaction over several, by its
            ``commitInfo.transactionGroup`` (:mod:`refdelta.core.commit.together`).
        row_places: ``commitInfo.rowPlaces``, in which a compaction of this engine records where it moved rows.
        source: the commit file, if it comes from one.
    """

    version: int
    operation: str | None = None
    txn_id: str | None = None
    members: Any = None
    member: int | None = None
    read_version: int | None = None
    read_predicates: tuple[str, ...] | None = None
    read_domains: frozenset[str] | None = None
    level: str | None = None
    changes_protocol: bool = False
    metadata: Metadata | None = None
    app_ids: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()
    row_marks: tuple[DomainMetadata, ...] = ()
    adds: Sequence[Add] = ()
    removes: Sequence[Remove] = ()
    paths: Sequence[str] = ()
    only_files: bool = False
    says_blind_append: bool = False
    in_commit_timestamp: int | None = None
    spans_tables: bool = False
    row_places: Any = None
    source: CommitFile | None = None
    engine: claims.Engine = claims.Engine.OTHER
    is_staged: bool = False

    @functools.cached_property
    def txn_ids(self) -> tuple[str, ...]:
        """The ids of its transactions: of its members, in their order, or its own."""
        return tuple(_members_ids(self.members)) or (() if self.txn_id is None else (self.txn_id,))

    @functools.cached_property
    def parts(self) -> tuple[Footprint, ...]:
        """The footprints of its members, in their order; itself if it has none, or its claims contradict each other. A
        transaction is checked against one after the other.
        """
        return _parts(self) or (self,)

    @functools.cached_property
    def added_data(self) -> tuple[Add, ...]:
        """The adds with ``dataChange``."""
        return tuple(add for add in self.adds if add.data_change)

    @functools.cached_property
    def removed_data(self) -> tuple[Remove, ...]:
        """The removes with ``dataChange``, which is true unless it is given, as in delta-spark."""
        return tuple(remove for remove in self.removes if remove.data_change is not False)

    @property
    def changes_data(self) -> bool:
        """Whether it changes data."""
        return bool(self.added_data or self.removed_data)

    @property
    def writes_values(self) -> bool:
        """Whether it writes values that other transactions can read and derive writes from: rows, metadata domains,
        versions of applications; or may write such values to other tables.
        """
        return (
            self.spans_tables
            or bool(self.domains or self.app_ids)
            or (bool(self.adds or self.removes) and not self.moves_only)
        )

    @functools.cached_property
    def deletes_files_before(self) -> int | None:
        """For VACUUM START, the time in milliseconds since 1970 until which a file must have become unreferenced to be
        physically deleted, see :func:`~refdelta.core.log.vacuums.deletes_before`. None for other commits.
        """
        return deletes_before(self._info) if self.operation == VACUUM_START else None

    @property
    def deletes_removed_only(self) -> bool:
        """For VACUUM START, see :func:`~refdelta.core.log.vacuums.deletes_removed_only`."""
        return deletes_removed_only(self._info)

    @property
    def _info(self) -> Mapping[str, Any]:
        """The last commitInfo of its file; empty without one."""
        actions = self.source.actions() if self.source else ()
        return next((action.fields for action in reversed(actions) if isinstance(action, CommitInfo)), {})

    @property
    def rearranges(self) -> bool:
        """Whether there are file actions, and none of them changes data: a compaction, a refresh of statistics."""
        return bool(self.adds or self.removes) and not self.changes_data

    @functools.cached_property
    def moves_only(self) -> bool:
        """Whether it :attr:`rearranges` files, and this is believed: no row came or went."""
        if (self.adds and self.adds[0].data_change) or (self.removes and self.removes[0].data_change is not False):
            return False  # as of nearly all commits
        if not self.rearranges or self.is_staged:
            return self.rearranges
        adds, removes = bool(self.adds), bool(self.removes)
        return claims.only_moves(self.engine, self.operation, adds=adds, removes=removes) and self._keeps_rows()

    def _keeps_rows(self) -> bool:
        """Whether the number of live rows stays the same, where the commit records it."""
        if not self.removed.keys().isdisjoint(self.added):
            return False
        if self.engine is claims.Engine.REFDELTA or self.source is None or not self.removes:
            return True  # removes of this engine have no statistics
        actions = self.source.actions()
        added = [_live_rows(one) for one in actions if isinstance(one, Add)]
        removed = [_live_rows(one) for one in actions if isinstance(one, Remove)]
        return None in added or None in removed or sum(filter(None, added)) == sum(filter(None, removed))

    @property
    def removed_rows(self) -> Sequence[Remove]:
        """The removes that may take rows out of the table."""
        return () if self.moves_only else self.removes

    @property
    def changes_metadata(self) -> bool:
        """Whether it has a metaData action, even an equal one."""
        return self.metadata is not None

    @property
    def changes_table(self) -> bool:
        """Whether it changes metadata or protocol."""
        return self.changes_metadata or self.changes_protocol

    @property
    def blind(self) -> bool:
        """Whether it is a blind append. One that says so and does something else is not."""
        return self.says_blind_append and not self.removes and self._reads_nothing

    @functools.cached_property
    def _reads_nothing(self) -> bool:
        recorded = bool(self.read_predicates or self.read_domains)
        adds_data = all(add.data_change for add in self.adds)
        return claims.reads_nothing(self.operation, recorded=recorded, adds_data=adds_data)

    @functools.cached_property
    def added(self) -> dict[str, Add]:
        """Its adds by path."""
        return dict(zip(self.paths, self.adds, strict=False))

    @functools.cached_property
    def removed(self) -> dict[str, Remove]:
        """Its removes by path."""
        return dict(zip(self.paths[len(self.adds) :], self.removes, strict=True))

    @functools.cached_property
    def new_rows(self) -> tuple[Add, ...]:
        """The adds that may hold rows which the table did not have before.

        Excludes files of a compaction, and files that are added again with a deletion vector that only grew: their rows
        were there before. Both are claims (:mod:`refdelta.core.log.claims`).
        """
        return tuple(add for add in self.adds if self.brings_rows(add))

    def brings_rows(self, add: Add) -> bool:
        """Whether one of the adds is among the :attr:`new_rows`."""
        return not (self.moves_only or self.only_hides(add))

    def only_hides(self, add: Add) -> bool:
        """Whether one of the adds replaces the same file with a deletion vector that certainly only grew."""
        if add.deletion_vector is None or not claims.only_deletes(self.engine, self.operation):
            return False
        removed = self.removed.get(same_path(add.path))
        if removed is None:
            return False
        before = removed.deletion_vector.cardinality if removed.deletion_vector else 0
        return add.deletion_vector.cardinality > before

    def with_statistics(self, add: Add, among: int = 1) -> Add:
        """One of the adds with its statistics and tags.

        Args:
            add: the add.
            among: the approximate number of adds for which the caller asks.
        """
        return add if self.source is None else self.source.whole(add, among)


def _live_rows(file: Add | Remove) -> int | None:
    """The number of its live rows; None if its statistics do not have it."""
    rows = num_records(file)
    return None if rows is None else rows - (file.deletion_vector.cardinality if file.deletion_vector else 0)


def fold(version: int, actions: Iterable[AnyAction], *, is_staged: bool = False) -> Footprint:
    """The footprint of actions. Actions that no rule uses (cdc, sidecar, ...) are ignored.

    Args:
        version: see :class:`Footprint`.
        actions: the actions.
        is_staged: whether they are the staged actions of a transaction.
    """
    adds: list[Add] = []
    removes: list[Remove] = []
    infos: list[LeanInfo] = []
    others: list[Any] = []
    for action in actions:
        match action:
            case Add():
                adds.append(action)
            case Remove():
                removes.append(action)
            case CommitInfo():
                infos.append(lean_info(action.fields))
            case _:
                others.append(action)
    found = _folded(version, LeanCommit(adds, removes, infos, others))
    return msgspec.structs.replace(found, is_staged=True) if is_staged else found


def fold_commit(version: int, data: bytes, file: str, lines: Sequence[FileLine] = ()) -> Footprint:
    """The footprint of a commit file.

    Args:
        version: the file's version.
        data: its bytes.
        file: its name, for errors.
        lines: its lines, if it was decoded before.

    Raises:
        InvalidLogError: the file breaks PROTOCOL.md, "Delta Log Entries"; with file and line.
    """
    return _folded(version, of_lines(lines) or decode_lean(data, file), CommitFile(data, file))


def fold_together(version: int, commits: Sequence[Sequence[FileLine]]) -> tuple[Footprint, list[LeanInfo]] | None:
    """One footprint of consecutive commits, with the files of all and the commitInfo of the last one; and all their
    commitInfos. None if one of them has other actions than of files, or is a VACUUM START.

    Args:
        version: the version of the last one.
        commits: the lines of each.
    """
    found = of_lines(list(itertools.chain.from_iterable(commits))) if all(commits) else None
    if found is None or any(info.operation == VACUUM_START for info in found.infos):
        return None
    return _folded(version, found), found.infos


def _folded(version: int, commit: LeanCommit, source: CommitFile | None = None) -> Footprint:
    info = commit.infos[0] if len(commit.infos) == 1 else _agreed(commit.infos)
    # Most commits have files and commitInfo, and nothing else.
    others = _others(commit.others) if commit.others else {"only_files": True}
    return Footprint(
        version=version,
        operation=_text(info.operation),
        txn_id=_text(info.txn_id),
        members=info.members,
        read_version=claims.version_read(whole_number(info.read_version), version),
        read_predicates=_texts(info.read_predicates),
        read_domains=None if (names := _texts(info.read_domains)) is None else frozenset(names),
        level=_text(info.isolation_level),
        adds=commit.adds,
        removes=commit.removes,
        paths=same_paths([add.path for add in commit.adds] + [remove.path for remove in commit.removes]),
        says_blind_append=info.is_blind_append is True,
        in_commit_timestamp=whole_number(info.in_commit_timestamp),
        spans_tables=info.transaction_group is not None,
        row_places=info.row_places,
        engine=claims.engine_of(info.engine_info),
        source=source,
        **others,
    )


def _agreed(infos: Sequence[LeanInfo]) -> LeanInfo:
    """The commitInfo of a commit that has none, or several: of these nothing is believed that depends on the writer."""
    if not infos:
        return _NO_INFO
    last = infos[-1]
    return LeanInfo(
        operation=last.operation,
        txn_id=last.txn_id,
        in_commit_timestamp=last.in_commit_timestamp,
        members=last.members,
    )


_NO_INFO = LeanInfo()


def txn_ids(infos: Sequence[LeanInfo]) -> list[Any]:
    """The ids of the transactions of commits, and of their members; an id may be any JSON. Most commits have no
    members, and a long transaction passes thousands, so nothing is done for each of these.
    """
    shared = [info.members for info in infos if info.members is not None]
    return [info.txn_id for info in infos] + list(itertools.chain.from_iterable(map(_members_ids, shared)))


def _members_ids(members: Any) -> list[str]:
    entries = members if isinstance(members, list) else []
    names = (entry.get("txnId") for entry in entries if isinstance(entry, dict))
    return [name for name in names if isinstance(name, str)]


def _parts(commit: Footprint) -> tuple[Footprint, ...]:
    """The footprints of the members of a commit, whose lines together have all of its actions; else none."""
    if commit.source is None or commit.engine is not claims.Engine.REFDELTA or not isinstance(commit.members, list):
        return ()
    actions, found, seen = commit.source.actions(), list[Footprint](), set[int]()
    for number, entry in enumerate(commit.members):
        lines = lines_of_member(entry, len(actions))
        if lines is None:
            return ()
        seen.update(lines)
        part = fold(commit.version, [CommitInfo(fields=entry), *(actions[line] for line in lines)])
        found.append(
            msgspec.structs.replace(
                part,
                engine=commit.engine,
                source=commit.source,
                in_commit_timestamp=commit.in_commit_timestamp,
                members=None,
                member=number,
            )
        )
    left = (action for line, action in enumerate(actions) if line not in seen)
    return tuple(found) if all(map(is_of_the_version, left)) else ()


def lines_of_member(entry: Any, count: int) -> list[int] | None:
    """The lines of a member (:data:`LINES`), ascending, in a file with ``count`` actions; None if the entry has none,
    or ranges that are not ascending or not in the file.
    """
    ranges = entry.get(LINES) if isinstance(entry, dict) else None
    if not isinstance(ranges, list):
        return None
    found: list[int] = []
    for one in ranges:
        if not (isinstance(one, list) and len(one) == 2 and all(type(number) is int for number in one)):
            return None
        first, end = one
        if not (found[-1] if found else 0) < first < end <= count:
            return None
        found.extend(range(first, end))
    return found


def is_of_the_version(action: AnyAction) -> bool:
    """Whether an action is of no member: the commitInfo, and the mark of row ids."""
    return isinstance(action, CommitInfo) or (isinstance(action, DomainMetadata) and action.domain == ROW_TRACKING)


def _others(actions: Sequence[AnyAction]) -> dict[str, Any]:
    """The fields of a footprint that come from other actions than of files."""
    domains = [action for action in actions if isinstance(action, DomainMetadata)]
    marks = tuple(domain for domain in domains if domain.domain == ROW_TRACKING and not domain.removed)
    return {
        "only_files": len(marks) == len(actions),
        "row_marks": marks,
        "changes_protocol": any(isinstance(action, Protocol) for action in actions),
        "metadata": next((action for action in reversed(actions) if isinstance(action, Metadata)), None),
        "app_ids": frozenset(action.app_id for action in actions if isinstance(action, Txn)),
        "domains": frozenset(domain.domain for domain in domains) - {ROW_TRACKING},
    }


def _text(value: Any) -> str | None:
    return value if type(value) is str else None


def whole_number(value: Any) -> int | None:
    """A field of free JSON if it is an integer, else None."""
    return value if type(value) is int else None


def _texts(value: Any) -> tuple[str, ...] | None:
    return tuple(value) if isinstance(value, list) and all(isinstance(text, str) for text in value) else None
