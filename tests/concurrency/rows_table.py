"""A table that is a list of rows, and transactions upon it through the real commit loop.

A data file is a list of rows, a deletion vector a set of positions; nothing else of the engine is here. Every commit is
held against what it was meant to do to the rows, and every log entry against the live files: a remove names one of
them with its vector, and no path is live twice.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
from pyroaring import BitMap64

from concurrency.commits import FLAT, SERIALIZABLE
from concurrency.commits import where_flat as where
from refdelta.core.commit import effects
from refdelta.core.commit.loop import commit_loop, group_loop
from refdelta.core.commit.member import Member
from refdelta.core.commit.transaction import CommitOutcome, PreparedCommit
from refdelta.core.conflicts.isolation import IsolationLevel
from refdelta.core.conflicts.reads import ReadSet
from refdelta.core.conflicts.state import AddedRows, RowChanges
from refdelta.core.log.actions import Add, AnyAction, CommitInfo, DeletionVectorDescriptor, Remove
from refdelta.core.log.codec import decode_commit, encode_commit
from refdelta.core.log.replay import file_key
from refdelta.core.rows.deletes import RowDelete
from refdelta.core.rows.deletion_vector import locate, parse_bitmap
from refdelta.core.rows.relocation import CopiedRows, Group, Input, Output
from refdelta.core.rows.sets import ALL
from refdelta.errors import DataFileNotFoundError

Row = tuple[int, int]
"""An id and a colour, which is column ``a``."""

Live = dict[str, Add]


@dataclass(kw_only=True)
class Transaction:
    """What is staged at one version.

    ``reads``: the rows that were read; ``deletes`` and ``adds``: what happens to rows; ``selects``: whether a row would
    have been read. ``whole`` is for those that replace files and cannot follow a compaction.
    """

    name: str
    saw: int
    read_set: ReadSet
    actions: list[AnyAction] = field(default_factory=list)
    work: RowChanges = field(default_factory=RowChanges)
    reads: frozenset[Row] = frozenset()
    deletes: frozenset[Row] = frozenset()
    adds: frozenset[Row] = frozenset()
    selects: Callable[[Row], bool] = lambda _: False
    blind: bool = False
    restores: bool = False

    @property
    def rearranges(self) -> bool:
        return bool(self.work.groups)

    @property
    def permutes(self) -> bool:
        return any(group.permuted for group in self.work.groups)


class Table:
    """A log, and what is in its files and vectors."""

    def __init__(self, *files: Iterable[Row], row_level: bool = True, vectors: bool = True):
        self.files: dict[str, tuple[Row, ...]] = {}
        self.vectors: dict[str, BitMap64] = {}
        self.vacuumed: set[str] = set()
        self.versions: list[Live] = []
        self.log: list[bytes] = []
        self.row_level, self.can = row_level, vectors
        self.names = itertools.count()
        self.ids = itertools.count(1000)
        self.looks = 0
        self._append([self.write(rows) for rows in files], {})

    # --- files ---

    def write(self, rows: Iterable[Row]) -> Add:
        held = tuple(rows)
        path = f"f{next(self.names)}"
        self.files[path] = held
        colours = [colour for _, colour in held]
        stats = {"numRecords": len(held), "minValues": {"a": min(colours)}, "maxValues": {"a": max(colours)}}
        return Add(
            path=path, partition_values={}, size=10, modification_time=1, data_change=True,
            stats=json.dumps(stats | {"nullCount": {"a": 0}}),
        )  # fmt: skip

    def vector(self, rows: BitMap64) -> DeletionVectorDescriptor:
        name = f"v{next(self.names)}"
        found = DeletionVectorDescriptor(
            storage_type="u", path_or_inline_dv=name, offset=1, size_in_bytes=40, cardinality=len(rows)
        )
        self.vectors[found.unique_id] = rows
        return found

    def hidden(self, vector: DeletionVectorDescriptor | None) -> BitMap64:
        if vector is None:
            return BitMap64()
        if vector.storage_type == "i":
            return parse_bitmap(locate(vector).data, file="inline", cardinality=vector.cardinality)
        return self.vectors[vector.unique_id]

    def rows_of(self, add: Add) -> list[Row]:
        hidden = self.hidden(add.deletion_vector)
        return [row for position, row in enumerate(self.files[add.path]) if position not in hidden]

    def rows_among(self, asked: AddedRows) -> list[Row]:
        """Of rows that a winner brought, those that are live."""
        if asked.rows is None:
            return self.rows_of(asked.add)
        return [self.files[asked.add.path][at] for at in asked.rows - self.hidden(asked.add.deletion_vector)]

    def rows(self, version: int) -> frozenset[Row]:
        found = [row for add in self.versions[version].values() for row in self.rows_of(add)]
        assert len(found) == len(set(found)), "a row is there twice"
        return frozenset(found)

    def positions(self, add: Add, wanted: Callable[[Row], bool]) -> BitMap64:
        hidden = self.hidden(add.deletion_vector)
        found = enumerate(self.files[add.path])
        return BitMap64([at for at, row in found if at not in hidden and wanted(row)])

    # --- transactions ---

    def _version(self, age: int) -> int:
        return max(0, len(self.versions) - 1 - age)

    def insert(self, colours: Sequence[int], age: int = 0) -> Transaction:
        saw = self._version(age)
        rows = [(next(self.ids), colour) for colour in colours]
        return Transaction(
            name="WRITE", saw=saw, read_set=ReadSet(version=saw), actions=[self.write(rows)], adds=frozenset(rows),
            blind=True,
        )  # fmt: skip

    def change(
        self, colour: int, age: int = 0, *, deletes: Callable[[Row], bool] = lambda _: True, to: int | None = None
    ) -> Transaction:
        """Read the rows of a colour; take away those for which ``deletes`` is true; add as many of another colour."""
        saw = self._version(age)
        read = ReadSet(version=saw).with_predicate(where(f"a = {colour}"))
        edits, seen, gone = [], set(), set()
        for add in self.versions[saw].values():
            hit = self.positions(add, lambda row: row[1] == colour)
            if not len(hit):
                continue
            read = read.with_rows([(add, hit)])
            seen |= {self.files[add.path][at] for at in hit}
            taken = BitMap64([at for at in hit if deletes(self.files[add.path][at])])
            gone |= {self.files[add.path][at] for at in taken}
            if len(taken):
                edits.append(RowDelete(add, self.hidden(add.deletion_vector), taken))
        new = [] if to is None else [(next(self.ids), to) for _ in sorted(gone)]
        return Transaction(
            name="MERGE", saw=saw, read_set=read, actions=[self.write(new)] if new else [],
            work=self._work(deletes=tuple(edits)), reads=frozenset(seen), deletes=frozenset(gone), adds=frozenset(new),
            selects=lambda row: row[1] == colour,
        )  # fmt: skip

    def copy(self, colour: int | None, age: int = 0, *, to: int = 9, by_rows: bool = True) -> Transaction:
        """A query, whose answer is appended; of all rows where ``colour`` is None."""
        saw = self._version(age)
        read, seen = ReadSet(version=saw), []
        for add in self.versions[saw].values():
            hit = self.positions(add, lambda row: colour in {None, row[1]})
            seen += [self.files[add.path][at] for at in hit]
            if len(hit) and colour is not None:
                # Where files are noted and not rows, all that is live in them may have been read.
                seen += [] if by_rows else self.rows_of(add)
                read = read.with_rows([(add, hit if by_rows else ALL)])
        read = read.with_everything() if colour is None else read.with_predicate(where(f"a = {colour}"))
        new = [(next(self.ids), to)]
        return Transaction(
            name="WRITE", saw=saw, read_set=read, actions=[self.write(new)], work=self._work(), reads=frozenset(seen),
            adds=frozenset(new), selects=lambda row: colour in {None, row[1]},
        )  # fmt: skip

    def truncate(self, age: int = 0) -> Transaction:
        saw = self._version(age)
        live = self.versions[saw].values()
        edits = tuple(RowDelete(add, BitMap64(), ALL) for add in live)
        return Transaction(
            name="DELETE", saw=saw, read_set=ReadSet(version=saw).with_everything().with_files(live),
            work=self._work(deletes=edits), reads=self.rows(saw), deletes=self.rows(saw), selects=lambda _: True,
        )  # fmt: skip

    def compact(self, age: int = 0, *, size: int = 2, split: int = 3, permuted: bool = False) -> Transaction:
        """Each group of ``size`` files into files of at most ``split`` rows."""
        saw = self._version(age)
        live = list(self.versions[saw].values())
        groups = [self._group(live[at : at + size], split, permuted) for at in range(0, len(live), size)]
        return Transaction(
            name="OPTIMIZE", saw=saw, read_set=ReadSet(version=saw), work=self._work(groups=tuple(groups))
        )

    def _group(self, adds: list[Add], split: int, permuted: bool) -> Group:
        inputs = tuple(Input(add, self.hidden(add.deletion_vector)) for add in adds)
        rows = [(add, at, row) for add in adds for at, row in enumerate(self.rows_of(add))]
        outputs = []
        for first in range(0, len(rows), split):
            part = rows[first : first + split]
            runs = itertools.groupby(part, key=lambda one: one[0].path)
            found = [(path, list(run)) for path, run in runs]
            places = tuple(CopiedRows(path, run[0][0].deletion_vector, run[0][1], len(run)) for path, run in found)
            written = [row for _, _, row in part]
            outputs.append(Output(self.write(written[::-1] if permuted else written), () if permuted else places))
        return Group(inputs, tuple(outputs), permuted)

    def restore(self, version: int, age: int = 0) -> Transaction:
        saw = self._version(age)
        now, then = self.versions[saw], self.versions[min(version, saw)]
        keys = [{path: file_key(add) for path, add in live.items()} for live in (now, then)]
        changed = [path for path in {**now, **then} if keys[0].get(path) != keys[1].get(path)]
        removes = [
            Remove(path=path, deletion_timestamp=1, data_change=True, deletion_vector=now[path].deletion_vector)
            for path in changed
            if path in now
        ]
        adds = [msgspec.structs.replace(then[path], data_change=True) for path in changed if path in then]
        return Transaction(
            name="RESTORE", saw=saw, read_set=ReadSet(version=saw).with_everything(), actions=[*removes, *adds],
            reads=self.rows(saw), deletes=self.rows(saw) - self.rows(min(version, saw)),
            adds=self.rows(min(version, saw)) - self.rows(saw), selects=lambda _: True, restores=True,
        )  # fmt: skip

    def _work(self, **more) -> RowChanges:
        return RowChanges(vectors=self.can, row_level=self.row_level, now_ms=7, **more)

    # --- vacuum ---

    def vacuum(self) -> None:
        """Remove the data files and vectors that the newest version does not name; inline vectors stand in the log."""
        live = self.versions[-1].values()
        vectors = {add.deletion_vector.unique_id for add in live if add.deletion_vector}
        self.vacuumed |= (self.files.keys() - {add.path for add in live}) | (self.vectors.keys() - vectors)

    def is_there(self, add: Add) -> bool:
        """Whether a file can be read, with its vector."""
        vector = add.deletion_vector
        return add.path not in self.vacuumed and (vector is None or vector.unique_id not in self.vacuumed)

    # --- the loop ---

    def commit(self, txn: Transaction, level: IsolationLevel = SERIALIZABLE, **limits) -> CommitOutcome:
        """Run the commit loop. Raises what it raises; what it puts becomes the next version, and is checked."""
        before = self.rows(-1)
        prepared = self.prepared(txn, level)
        outcome = self._run(commit_loop(prepared, **limits), {prepared.txn_id: txn})
        if outcome.version is None:
            assert not txn.actions
            assert not txn.work.deletes
            return outcome
        assert outcome.version == len(self.versions) - 1
        assert self.rows(-1) == before - txn.deletes | txn.adds, "the commit did something else than it was meant to"
        return outcome

    def commit_together(
        self, txns: Sequence[Transaction], level: IsolationLevel = SERIALIZABLE, before_put: Callable[[], None] = int
    ) -> list[CommitOutcome | Exception]:
        """Run the loop until each of the transactions has an outcome, which are returned in their order. Each version
        is checked: it is what its members leave one after the other.

        ``before_put``: called before each put; may commit another transaction, which then wins.
        """
        members = [Member(self.prepared(txn, level)) for txn in txns]
        names = {member.prepared.txn_id: txn for member, txn in zip(members, txns, strict=True)}
        while any(member.outcome is None for member in members):
            self._run(group_loop(members), names, before_put)
        ended = [(member.outcome, txn) for member, txn in zip(members, txns, strict=True)]
        for version in {one.version for one, _ in ended if isinstance(one, CommitOutcome)} - {None}:
            sharing = [(one.member or 0, txn) for one, txn in ended if getattr(one, "version", -1) == version]
            assert sorted(number for number, _ in sharing) == list(range(len(sharing)))
            rows = self.rows(version - 1)
            for _, txn in sorted(sharing, key=lambda one: one[0]):
                assert txn.deletes <= rows, "a member deletes rows that are not there"
                rows = rows - txn.deletes | txn.adds
            assert self.rows(version) == rows, "the version is not what its members leave"
        return [one for one, _ in ended]

    def prepared(self, txn: Transaction, level: IsolationLevel = SERIALIZABLE) -> PreparedCommit:
        """A transaction for the loop."""
        info = {
            "operation": txn.name, "readVersion": txn.saw, "isBlindAppend": txn.blind,
            "isolationLevel": level.value, "engineInfo": "refdelta/1.0",
        }  # fmt: skip
        return PreparedCommit(
            read_version=txn.saw, read_set=txn.read_set, actions=txn.actions, commit_info=info,
            txn_id=f"t{next(self.names)}", level=level, table=FLAT, changes=txn.work,
        )  # fmt: skip

    def _run(
        self, loop: effects.Steps, txns: dict[str, Transaction], before_put: Callable[[], None] = int
    ) -> CommitOutcome:
        reply = None
        while True:
            try:
                effect = loop.send(reply)
            except StopIteration as done:
                return done.value
            if isinstance(effect, effects.TryCommit):
                before_put()
            reply = self._answer(effect, txns)

    def _answer(self, effect: effects.Effect, txns: dict[str, Transaction]) -> effects.Reply:
        match effect:
            case effects.TryCommit(version, data):
                if version < len(self.log):
                    return effects.Exists()
                self._put(data)
                return effects.Committed()
            case effects.ReadCommits(first, last):
                return effects.Commits(tuple(self.log[first : last + 1]))
            case effects.NewestVersion():
                return effects.Newest(len(self.log) - 1)
            case effects.Pause():
                return effects.Elapsed(0.0)
            case effects.ReadVectors(descriptors):
                if any(one.unique_id in self.vacuumed for one in descriptors):
                    return effects.Failed(DataFileNotFoundError("it does not exist", file="v"))
                return effects.Vectors(tuple(map(self.hidden, descriptors)))
            case effects.WriteVectors(bitmaps):
                return effects.Descriptors(tuple(map(self.vector, bitmaps)))
            case effects.MatchRows(rows, name):
                self.looks += 1
                if not all(self.is_there(one.add) for one in rows):
                    return effects.Failed(DataFileNotFoundError("it does not exist", file="f"))
                return effects.Matches(tuple(any(map(txns[name].selects, self.rows_among(one))) for one in rows), 0.0)
            case effects.ConfirmRows(rows, _, name):
                found = [self.files[one.add.path][at] for one in rows for at in one.rows]
                return effects.Yes() if all(map(txns[name].selects, found)) else effects.No()
        return effects.Yes()

    def _put(self, data: bytes) -> None:
        actions = decode_commit(data, "new")
        live = dict(self.versions[-1])
        for action in actions:
            if isinstance(action, Remove):
                known = live.pop(action.path)
                assert known.deletion_vector == action.deletion_vector, "a remove that names another vector"
        for action in actions:
            if isinstance(action, Add):
                assert action.path not in live, "a path that is live twice"
                self._check(action)
                live[action.path] = action
        self.log.append(data)
        self.versions.append(live)

    def _check(self, add: Add) -> None:
        stats = json.loads(add.stats)
        assert stats["numRecords"] == len(self.files[add.path])
        vector = add.deletion_vector
        if vector is not None:
            assert stats["tightBounds"] is False
            assert 0 < vector.cardinality < len(self.files[add.path])
            assert vector.cardinality == len(self.hidden(vector))

    def _append(self, adds: list[Add], info: dict) -> None:
        self.versions.append({add.path: add for add in adds})
        self.log.append(encode_commit([CommitInfo(fields=info), *adds]))

    def info(self, version: int) -> dict:
        return decode_commit(self.log[version], str(version))[0].fields


@dataclass
class Change:
    """What a version did to rows."""

    txn: Transaction
    removed: frozenset[Row]
    added: frozenset[Row]


def justified(txn: Transaction, winners: Sequence[Change]) -> bool:
    """Whether a conflict is to be: a winner took a row away that was read, or brought one that would have been."""
    return any(one.removed & txn.reads or any(map(txn.selects, one.added)) for one in winners)
