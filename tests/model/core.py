"""The conflict rules alone: the commit loop over a log in memory, and files that hold their rows in a dictionary.

What a statement stages is what the engine makes of it, so the rules decide as they do there; but no data file is
written or read, and many more histories can be run.
"""

from __future__ import annotations

import array
import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from pyroaring import BitMap64

from model.branches import FAILED, Branches, Committed, Refusal, Staged, Version
from model.calls import CLUSTERING, DOMAIN, DOMAINS, Condition, Failed, On, Played, Setting
from model.cases import BY_HAND, COMPACT, PURGE, REFRESH, SORT, Case, refreshed
from model.entries import Wrong, entries_of
from model.layouts import HIDDEN, START, Layout
from model.operations import METADATA, Values, Where, data_of, delete, in_order
from model.operations import key as key_is
from refdelta.conformance.judge import WRITE_SERIALIZABLE, Effect
from refdelta.core.commit import effects
from refdelta.core.commit.budget import Limits
from refdelta.core.commit.loop import commit_loop, group_loop
from refdelta.core.commit.member import Member
from refdelta.core.commit.transaction import CommitOutcome, PreparedCommit
from refdelta.core.conflicts.isolation import level_of
from refdelta.core.conflicts.reads import ReadSet, ReadTable
from refdelta.core.conflicts.state import RowChanges
from refdelta.core.log.actions import (
    Add,
    AnyAction,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from refdelta.core.log.codec import decode_commit, encode_commit
from refdelta.core.log.replay import file_key
from refdelta.core.rows.deletes import RowDelete, tombstone
from refdelta.core.rows.deletion_vector import encode_inline, locate, parse_bitmap, serialize_bitmap
from refdelta.core.rows.relocation import CopiedRows, Group, Input, LocatedRows, Output, RelocationById
from refdelta.core.rows.sets import ALL, Rows
from refdelta.expressions.sql import parse_predicate
from refdelta.pruning.row_predicate import row_predicate
from refdelta.table.types import parse_schema

FIELDS = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("k", "a")]
ADDED_FIELD = {"name": "s", "type": "integer", "nullable": True, "metadata": {}}


def _schema_string(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "struct", "fields": fields})


SCHEMA = parse_schema(_schema_string(*FIELDS))

T = TypeVar("T")

OPERATIONS = {
    **dict.fromkeys(("INSERT", "INSERT SELECT", "overwrite", "replaceWhere"), "WRITE"),
    "OPTIMIZE ZORDER": "OPTIMIZE",
    "REORG PURGE": "REORG",
}
"""The engine's names of operations, where the kinds of cases have others."""

BIN, COMPACTED = 3, 2
"""How many files a compaction rewrites together, and how many rows it puts into one: the rows of an input go to several
outputs, and those of several inputs to one.
"""


@dataclass(frozen=True)
class File:
    """A data file as it stands in a version: its entry, what would be in it, and which rows are hidden."""

    add: Add
    rows: tuple[Values, ...]
    hidden: BitMap64 = field(default_factory=BitMap64)

    @property
    def path(self) -> str:
        return self.add.path

    @property
    def live(self) -> list[Values]:
        return [row for _, row in self.numbered()]

    def numbered(self) -> Iterator[tuple[int, Values]]:
        """The live rows, with their positions."""
        return ((i, row) for i, row in enumerate(self.rows) if i not in self.hidden)

    def positions(self, wanted: Iterable[Values]) -> BitMap64:
        return BitMap64(i for i, row in self.numbered() if row in wanted)


@dataclass
class _Staging:
    """What a transaction stages, what it read, and what a program asks of new rows."""

    reads: ReadSet
    actions: list[AnyAction] = field(default_factory=list)
    edits: list[RowDelete] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    asks: list[Where] = field(default_factory=list)

    def read_rows(self, file: File, rows: BitMap64) -> None:
        if rows:
            self.reads = self.reads.with_rows([(file.add, rows)])


class Core(Branches):
    """One table. A version's content is its files by path, as its log has them.

    Args:
        level: of the table.
        layout: of the table.
        limits: of each commit.
    """

    bin = BIN
    compacted = COMPACTED

    def __init__(self, level: str, layout: Layout, limits: Limits | None = None):
        super().__init__(level, layout)
        self.limits = limits
        self._numbers = count()
        self._predicates = {}
        self._rows: dict[str, tuple[Values, ...]] = {}
        self._ids: dict[str, tuple[int, ...]] = {}
        self._bitmaps: dict[str, BitMap64] = {}
        self._asks: dict[str, list[Where]] = {}
        self._table = ReadTable(
            parse=self._parse,
            tracks_rows=layout.tracked,
        )
        adds = [add for rows in layout.writes for add in self._write(rows)]
        created = encode_commit([CommitInfo({"operation": "CREATE TABLE"}), *self._table_created(), *adds])
        self.created = self._behind({}, created)
        first = Version((created,), self.created, entries_of(created), state=layout.created)
        key = HIDDEN[0]
        case = Case("hide", "DELETE", delete(key_is(key)), lambda _: None, f"k = {key}", {"k": (key,)})
        hidden = self.attempt(first, Staged(case, first, False, self.stage(first, case, None)))
        assert hidden is not None
        log = (created, *hidden.data)
        if layout.wide:
            added = encode_commit([CommitInfo({"operation": "ADD COLUMNS"}), self._metadata(ADDED_FIELD)])
            log = (*log, added)
        self.root = Version(log, hidden.content, entries_of(*log), state=layout.start, start=layout.start)

    def _table_created(self) -> Iterator[AnyAction]:
        if not self.layout.wide:
            yield Protocol(min_reader_version=1, min_writer_version=2)
            yield self._metadata()
            return
        features = [DOMAINS, "clustering"] if self.layout.clustered else [DOMAINS]
        yield Protocol(min_reader_version=1, min_writer_version=7, writer_features=features)
        yield self._metadata()
        yield _domain("x", "0")
        if self.layout.clustered:
            yield _domain(CLUSTERING, "k")

    def _parse(self, sql: str):
        if sql not in self._predicates:
            columns = ("a",) if self.layout.partitioned else ()
            self._predicates[sql] = row_predicate(parse_predicate(sql, SCHEMA), SCHEMA, columns)
        return self._predicates[sql]

    def _metadata(self, *fields: dict[str, Any]) -> Metadata:
        return Metadata(
            id="table",
            schema_string=_schema_string(*FIELDS, *fields),
            partition_columns=["a"] if self.layout.partitioned else [],
            configuration={},
        )

    # --- files ---

    def _write(
        self, rows: Iterable[Values], *, data_change: bool = True, ids: Iterable[int] | None = None
    ) -> list[Add]:
        by_partition = defaultdict(list)
        for row, row_id in zip(rows, self._numbers if ids is None else ids, strict=False):
            by_partition[row[1] if self.layout.partitioned else None].append((row, row_id))
        return [self._file(a, held, data_change) for a, held in by_partition.items()]

    def _file(self, a: int | None, held: Sequence[tuple[Values, int]], data_change: bool) -> Add:
        rows = tuple(row for row, _ in held)
        columns = {"k": [k for k, _ in rows]}
        if not self.layout.partitioned:
            columns["a"] = [a for _, a in rows]
        given = {name: [value for value in values if value is not None] for name, values in columns.items()}
        stats = {
            "numRecords": len(rows),
            "minValues": {name: min(values) for name, values in given.items() if values},
            "maxValues": {name: max(values) for name, values in given.items() if values},
            "nullCount": {name: len(rows) - len(values) for name, values in given.items()},
        }
        path = f"file-{next(self._numbers)}"
        self._rows[path] = rows
        self._ids[path] = tuple(row_id for _, row_id in held)
        return Add(
            path=path,
            partition_values={"a": None if a is None else str(a)} if self.layout.partitioned else {},
            size=1,
            modification_time=1,
            data_change=data_change,
            stats=json.dumps(stats),
        )

    def _standing(self, add: Add) -> File:
        return File(add, self._rows[add.path], self._bitmap(add.deletion_vector))

    def _bitmap(self, vector: DeletionVectorDescriptor | None) -> BitMap64:
        if vector is None:
            return BitMap64()
        if vector.unique_id not in self._bitmaps:
            self._bitmaps[vector.unique_id] = parse_bitmap(locate(vector).data, file="a vector")
        return self._bitmaps[vector.unique_id]

    def _behind(self, content: dict[str, File], data: bytes) -> dict[str, File]:
        """What is live behind one more commit, as its bytes say."""
        actions = decode_commit(data, "a commit")
        gone = {action.path for action in actions if isinstance(action, Remove)}
        added = {action.path: self._standing(action) for action in actions if isinstance(action, Add)}
        return {path: file for path, file in content.items() if path not in gone} | added

    # --- statements ---

    def stage(self, version: Version, case: Case, isolation: str | None) -> Any:
        effect = case.statement("T", version.state)
        staging = _Staging(ReadSet(version=version.in_log))
        if case.program is not None:
            return self._run(staging, version, case, isolation)
        if case.application and effect.writes:
            staging.actions.append(Txn(app_id=case.application, version=1))
            staging.reads = dataclasses.replace(staging.reads, app_ids=frozenset({case.application}))
        if case.statement.alters:
            staging.actions.append(self._metadata(*([ADDED_FIELD] if self.layout.wide else [])))
        elif case is BY_HAND:
            self._compact_by_hand(staging, version)
        elif case is REFRESH:
            staging.actions = [refreshed(file.add) for file in version.content.values()]
        elif case.rearranges:
            staging.groups = [self._group(inputs, case) for inputs in self._inputs(version, case)]
        elif case.kind == "RESTORE":
            self._restore(staging, version)
        else:
            self._change(staging, version, case, effect)
        if not (staging.actions or staging.edits or staging.groups):
            return None
        return self._prepared(staging, version, case, isolation)

    def _run(self, staging: _Staging, version: Version, case: Case, isolation: str | None) -> Any:
        assert case.program is not None
        try:
            case.program(_Calls(self, version, staging))
        except Failed:
            return FAILED
        if not (staging.actions or staging.edits or staging.groups):
            return None
        prepared = self._prepared(staging, version, case, isolation)
        self._asks[prepared.txn_id] = staging.asks
        return prepared

    def _prepared(self, staging: _Staging, version: Version, case: Case, isolation: str | None) -> PreparedCommit:
        table_level = None if self.level == WRITE_SERIALIZABLE else self.level
        return PreparedCommit(
            read_version=version.in_log,
            read_set=staging.reads,
            actions=staging.actions,
            commit_info={
                "operation": OPERATIONS.get(case.kind, case.kind),
                "readVersion": version.in_log,
                "isolationLevel": self.level,
                "isBlindAppend": _is_blind(staging) if case.program else case.sql is None and case.kind == "INSERT",
                "engineInfo": "refdelta/1.0",
            },
            txn_id=str(next(self._numbers)),
            level=level_of(table_level, isolation),
            table=self._table,
            changes=RowChanges(
                deletes=tuple(staging.edits),
                groups=tuple(staging.groups),
                vectors=self.layout.vectors,
                row_level=self.layout.by_rows,
                now_ms=1,
            ),
        )

    def _change(self, staging: _Staging, version: Version, case: Case, effect: Effect) -> None:
        found, gone = ({row.values for row in rows} for rows in (case.statement.found(version.state), effect.removed))
        if case.sql is not None:
            finer = case.kind == "MERGE"
            reads = staging.reads
            staging.reads = (
                reads.with_predicate(self._parse(case.sql), finer=finer) if case.sql else reads.with_everything()
            )
        live = list(version.content.values())
        if case.kind in {"INSERT SELECT", "MERGE"}:
            for file in live:
                staging.read_rows(file, file.positions(found))
        touched = [file for file in live if gone.intersection(file.live)]
        # As the engine does it: what is left of the files and what became of their rows, then what is new; a MERGE
        # writes both at once.
        before = {row.identity for row in effect.removed}
        merges = case.kind == "MERGE"
        changed = frozenset(row for row in effect.added if merges or row.identity[1] in before)
        # Where partition values decide, nobody looks at rows.
        decides = {"a"} if self.layout.partitioned else set()
        whole = case.kind != "MERGE" and case.asks is not None and case.asks.keys() <= decides
        for file in touched:
            self._take(staging, file, ALL if whole else file.positions(gone))
        kept = [] if self.layout.vectors else [row for file in touched for row in file.live if row not in gone]
        staging.actions += self._write([*kept, *data_of(changed)]) + self._write(data_of(effect.added - changed))

    def _take(self, staging: _Staging, file: File, rows: Rows) -> None:
        """Rows leave a file: by its vector, or with all of it."""
        if self.layout.vectors:
            staging.reads = staging.reads.with_rows([(file.add, rows)])
            staging.edits.append(RowDelete(file.add, BitMap64() if rows is ALL else file.hidden, rows))
        else:
            staging.reads = staging.reads.with_files([file.add])
            staging.actions.append(tombstone(file.add, now_ms=1, data_change=True))

    def _compact_by_hand(self, staging: _Staging, version: Version) -> None:
        live = list(version.content.values())
        staging.reads = staging.reads.with_files(file.add for file in live)
        staging.actions += [tombstone(file.add, now_ms=1, data_change=False) for file in live]
        rows = [(row, self._ids[file.path][place]) for file in live for place, row in file.numbered()]
        staging.actions += self._write([row for row, _ in rows], data_change=False, ids=[row_id for _, row_id in rows])

    def _restore(self, staging: _Staging, version: Version) -> None:
        """Files that are not as they were in version 0 go, and come as they were."""
        now, then = version.content, self.created
        staging.reads = staging.reads.with_everything()
        same = {path for path in now.keys() & then.keys() if file_key(now[path].add) == file_key(then[path].add)}
        for path, file in now.items():
            if path not in same:
                staging.reads = staging.reads.with_files([file.add])
                self._take(staging, file, ALL)
        staging.actions += [file.add for path, file in then.items() if path not in same]
        if not {row for row in version.state if row.values[0] == METADATA} <= START:
            staging.actions.append(self._metadata())

    def _inputs(self, version: Version, case: Case) -> Iterator[Sequence[File]]:
        """What is rewritten together: a few files of one partition, or all of them where they are sorted."""
        by_partition = defaultdict(list)
        for file in version.content.values():
            if file.hidden or case is not PURGE:
                by_partition[file.add.partition_values.get("a")].append(file)
        for files in by_partition.values():
            if case is SORT:
                yield files
                continue
            for bin_ in _pieces(files, self.bin):
                if len(bin_) > 1 or bin_[0].hidden:
                    yield bin_

    def _group(self, files: Sequence[File], case: Case) -> Group:
        rows = [(file, number, row) for file in files for number, row in enumerate(file.live)]
        ids = {file.path: [self._ids[file.path][place] for place, _ in file.numbered()] for file in files}
        if case is SORT:
            rows.sort(key=lambda one: one[2])
        outputs = []
        for held in _pieces(rows, self.compacted):
            kept = [ids[file.path][number] for file, number, _ in held]
            (add,) = self._write([row for _, _, row in held], data_change=False, ids=kept)
            outputs.append(Output(add, () if case is SORT else tuple(_places(held))))
        return Group(tuple(Input(file.add, file.hidden) for file in files), tuple(outputs), permuted=case is SORT)

    # --- the commit ---

    def attempt(self, version: Version, staged: Staged) -> Committed | None:
        if staged.transaction is None:
            return None
        loop = commit_loop(staged.transaction, self.limits)
        puts, outcome = self._run_loop(loop, version, [staged])
        if outcome.version is None:
            return None
        assert outcome.version == version.in_log + 1
        return Committed((puts[-1],), self._behind(version.content, puts[-1]), list(outcome.rebased_over))

    def together(self, version: Version, queued: Sequence[Staged]) -> list[CommitOutcome | Exception]:
        """What becomes of transactions that a group commits, with ``version`` as the newest one. The rows of each
        version are held to those of the versions that its members make one after the other.
        """
        members = [Member(staged.transaction, self.limits) for staged in queued]
        puts: list[bytes] = []
        while not all(one.outcome for one in members):
            made, _ = self._run_loop(group_loop(members, self.limits), version, queued, puts)
            puts += made
        ends = [one.outcome for one in members]
        alone, content = version, version.content
        for number, data in enumerate(puts, version.in_log + 1):
            content = self._behind(content, data)
            inside = [one for one in zip(ends, queued, strict=True) if getattr(one[0], "version", None) == number]
            for _, staged in sorted(inside, key=lambda one: one[0].member or 0):
                following = self.commit(alone, staged)
                if isinstance(following, Refusal):
                    raise Wrong(f"{staged.name} is a member behind {alone}, which alone it could not follow")
                alone = following
            if in_order(row for file in content.values() for row in file.live) != data_of(alone.state):
                raise Wrong(f"the rows of the version with members are not those of {alone}")
        return [end for end in ends if end is not None]

    def _run_loop(
        self, loop: Any, version: Version, queued: Sequence[Staged], before: Sequence[bytes] = ()
    ) -> tuple[list[bytes], Any]:
        """Run a loop after ``version`` and those put before: the bytes of the versions that it puts, and its result."""
        puts: list[bytes] = []
        reply = None
        while True:
            try:
                effect = loop.send(reply)
            except StopIteration as done:
                return puts, done.value
            reply = self._reply((*version.log, *before, *puts), queued, effect)
            if isinstance(reply, effects.Committed):
                puts.append(effect.data)

    def _reply(self, log: Sequence[bytes], queued: Sequence[Staged], effect: effects.Effect) -> effects.Reply:
        staged = next((one for one in queued if one.transaction.txn_id == getattr(effect, "txn_id", None)), queued[0])
        match effect:
            case effects.VersionExists():
                return effects.Yes()
            case effects.TryCommit(number):
                return effects.Exists() if number < len(log) else effects.Committed()
            case effects.ReadCommits(first, last):
                return effects.Commits(tuple(log[first : last + 1]))
            case effects.NewestVersion():
                return effects.Newest(len(log) - 1)
            case effects.ReadVectors(descriptors):
                return effects.Vectors(tuple(map(self._bitmap, descriptors)))
            case effects.WriteVectors(bitmaps):
                return effects.Descriptors(tuple(map(inline, bitmaps)))
            case effects.MatchRows(asked):
                asks = self._asks.get(staged.transaction.txn_id) or [staged.case.statement.reads]
                found = (
                    [row for at, row in self._standing(one.add).numbered() if one.rows is None or at in one.rows]
                    for one in asked
                )
                return effects.Matches(
                    tuple(any(_answers(one, row) for row in rows for one in asks) for rows in found), 0.0
                )
            case effects.ConfirmRows(moved):
                asks = self._asks.get(staged.transaction.txn_id) or [staged.case.statement.reads]
                rows = [self._rows[one.add.path][at] for one in moved for at in one.rows]
                return effects.Yes() if all(any(_answers(one, row) for one in asks) for row in rows) else effects.No()
            case effects.LocateRows(inputs, outputs):
                return effects.Relocations(self._traces(inputs, outputs))
            case effects.Pause():
                return effects.Elapsed(0.0)
        raise AssertionError(effect)

    def _traces(self, inputs: Sequence[Remove], outputs: Sequence[Add]) -> dict[str, RelocationById]:
        places = {row_id: (add.path, i) for add in outputs for i, row_id in enumerate(self._ids[add.path])}
        found = {}
        for remove in inputs:
            hidden = self._bitmap(remove.deletion_vector)
            live = [(at, row_id) for at, row_id in enumerate(self._ids[remove.path]) if at not in hidden]
            if any(row_id not in places for _, row_id in live):
                continue
            where = [(at, *places[row_id]) for at, row_id in live]
            found[remove.path] = RelocationById(
                None,
                (),
                parts=tuple(
                    LocatedRows(
                        path,
                        *(_numbers(one[n] for one in where if one[1] == path) for n in (0, 2)),
                        len(self._rows[path]),
                    )
                    for path in sorted({path for _, path, _ in where})
                ),
            )
        return found

    def files(self, version: Version) -> list[tuple[str, dict[str, str | None], list[Values]]]:
        return [(path, file.add.partition_values, file.live) for path, file in version.content.items()]


def _numbers(numbers: Iterable[int]) -> bytes:
    return array.array("Q", numbers).tobytes()


def _pieces(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _places(rows: Iterable[tuple[File, int, Values]]) -> Iterator[CopiedRows]:
    """Where the rows of an output are from."""
    starts: dict[str, list] = {}
    for file, number, _ in rows:
        starts.setdefault(file.path, [file, number, 0])[2] += 1
    for file, start, many in starts.values():
        yield CopiedRows(file.path, file.add.deletion_vector, start, many)


def inline(rows: BitMap64) -> DeletionVectorDescriptor:
    body = serialize_bitmap(rows)
    return DeletionVectorDescriptor(
        storage_type="i", path_or_inline_dv=encode_inline(body), size_in_bytes=len(body), cardinality=len(rows)
    )


def _answers(asks: Where, row: Values) -> bool:
    """Whether a row is one that was asked for, or one over which the statement would have failed."""
    try:
        return bool(asks(*row))
    except ZeroDivisionError:
        return True


def _is_blind(staging: _Staging) -> bool:
    removes = staging.edits or staging.groups or any(isinstance(action, Remove) for action in staging.actions)
    return staging.reads.blind and not removes


def _domain(name: str, value: str | None) -> DomainMetadata:
    if name != CLUSTERING:
        return DomainMetadata(domain=name, configuration=value or "", removed=value is None)
    configuration = json.dumps({"clusteringColumns": [[value]]})
    return DomainMetadata(domain="delta.clustering", configuration=configuration, removed=False)


class _Calls(Played):
    """The calls of a program: what they do is known from the judge's world, and here it is staged and recorded."""

    def __init__(self, core: Core, version: Version, staging: _Staging) -> None:
        super().__init__("T", version.state, core.layout.created)
        self.core, self.staging = core, staging
        self.files = list(version.content.values())
        self.version = version

    # --- rows ---

    def read(self, where: Condition) -> list[Values]:
        self._look(where)
        return super().read(where)

    def append(self, *values: Values) -> None:
        super().append(*values)
        self.staging.actions += self.core._write(values)

    def append_own(self, way: str) -> None:
        self.staging.reads = self.staging.reads.with_everything()
        super().append_own(way)
        self.staging.actions += self.core._write(row for file in self.files for row in file.live)

    def delete(self, where: Condition) -> None:
        found = self._look(where)
        super().delete(where)
        self._rewrite(found, {}, [], whole="k" not in where.sql)

    def update(self, where: Condition, to: Setting) -> None:
        found = self._look(where)
        super().update(where, to)
        changed = {row: (row[0], to.makes(row[0])) for row in found}
        self._rewrite(found, changed, [], whole="k" not in where.sql)

    def merge(self, source: Sequence[Values], on: On, *, update: bool = False, insert: bool = True) -> None:
        keys = [k for k, _ in source if k is not None] if on.sql == "t.k = s.k" else None
        sql = "TRUE" if keys is None else f"k IN ({', '.join(map(str, keys))})"
        colours = self._match(sql, on, source)
        super().merge(source, on, update=update, insert=insert)
        missing = [one for one in source if not any(on.holds(row[0], one[0]) for row in self._all())]
        found = set(colours) if update else set()
        changed = {row: (row[0], colours[row]) for row in found}
        self._rewrite(found, changed, missing if insert else [])

    def merge_own(self, on: On, shift: int) -> None:
        self.staging.reads = self.staging.reads.with_everything()
        rows = self._all()
        self._match("TRUE", on, rows)
        super().merge_own(on, shift)
        missing = [one for one in rows if not any(on.holds(row[0], one[0]) for row in rows)]
        self.staging.actions += self.core._write((k if k is None else k + shift, a) for k, a in missing)

    def fails(self, call: Callable[[], object]) -> bool:
        staging = self.staging
        before = list(staging.actions), list(staging.edits), list(staging.groups)
        failed = super().fails(call)
        if failed:
            staging.actions, staging.edits, staging.groups = before
        return failed

    def _all(self) -> list[Values]:
        return [row for file in self.files for row in file.live]

    def _look(self, where: Condition) -> set[Values]:
        """Record a read of these rows, and return them. Where it fails, any row may have been seen."""
        staging = self.staging
        staging.reads = staging.reads.with_predicate(self.core._parse(where.sql))
        staging.asks.append(where.holds)
        try:
            found = {row for row in self._all() if where.holds(*row)}
        except ZeroDivisionError:
            staging.reads = staging.reads.with_files(file.add for file in self.files)
            raise Failed from None
        for file in self.files:
            staging.read_rows(file, file.positions(found))
        return found

    def _match(self, sql: str, on: On, source: Sequence[Values]) -> dict[Values, int | None]:
        """Record what a MERGE reads, and return the rows that match, with the colours of the source's rows."""
        staging = self.staging
        staging.reads = staging.reads.with_predicate(self.core._parse(sql), finer=True)
        staging.asks.append(lambda k, _: any(on.holds(k, one) for one, _ in source))
        found = {row: a for row in self._all() for k, a in source if on.holds(row[0], k)}
        for file in self.files:
            staging.read_rows(file, file.positions(found))
        return found

    def _rewrite(
        self, gone: set[Values], changed: dict[Values, Values], new: list[Values], *, whole: bool = False
    ) -> None:
        """Rows go from their files, and others come, with what is left of the files where these are written anew."""
        core, staging = self.core, self.staging
        touched = [file for file in self.files if gone.intersection(file.live)]
        for file in touched:
            core._take(staging, file, ALL if whole and core.layout.partitioned else file.positions(gone))
        kept = [] if core.layout.vectors else [row for file in touched for row in file.live if row not in gone]
        came = [changed[row] for file in touched for row in file.live if row in changed]
        staging.actions += core._write([*kept, *came, *new])

    # --- the rest of the table ---

    def domains(self) -> dict[str, str]:
        self.staging.reads = dataclasses.replace(self.staging.reads, every_domain=True)
        return super().domains()

    def compact(self) -> None:
        self.staging.groups = [self.core._group(inputs, COMPACT) for inputs in self.core._inputs(self.version, COMPACT)]

    def _set_domain(self, name: str, value: str | None) -> None:
        super()._set_domain(name, value)
        if self._of(DOMAIN, name, value or ""):
            reads = self.staging.reads
            domain = _domain(name, value).domain
            self.staging.reads = dataclasses.replace(reads, domains=reads.domains | {domain})
        else:
            self.staging.actions.append(_domain(name, value))
