"""The real engine: transactions by hand on a store in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar
from unittest import mock

import pyarrow as pa

from model.branches import FAILED, Branches, Committed, Staged, Version
from model.cases import SCHEMA, Case, table, values_of
from model.entries import Wrong, entries_of
from model.facts import check_times
from model.layouts import HIDDEN, Layout
from model.operations import Values, data_of
from refdelta import CommitProperties, DeltaTable, errors, write_deltalake
from refdelta.api.table_transaction import TableTransaction
from refdelta.api.transaction import WriteTransaction
from refdelta.core.log.actions import Add, CommitInfo
from refdelta.core.log.codec import decode_commit, encode_commit
from refdelta.core.log.paths import LOG, commit_key, data_key, parse_log_name
from refdelta.core.rows.deletion_vector import relative_key
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.log.state import to_adds
from refdelta.engine.parquet import dv
from refdelta.engine.scan.scan import plan_scan
from refdelta.operations.maintenance.vacuum import VacuumRequest, vacuum
from refdelta.pruning.stats import load_stats
from refdelta.transaction.ownership import OwnedFiles
from refdelta_storage import MemoryStore
from refdelta_storage import base as storage
from refdelta_storage.base import ObjectInfo, PutOutcome
from refdelta_storage.errors import not_found
from waiting import next_moment

FILES_OF_VECTORS = mock.patch.object(dv, "INLINE_BYTES", 0)
"""Vectors in files, small as they are: so that it is seen which ones are written and removed."""

_AHEAD = 4_102_444_800_000


def time_of_file(version: int) -> int:
    """When the commit file of a version was made, in milliseconds since 1970. The clock of the store is decades
    ahead of those of the writers.
    """
    return _AHEAD + 1_000_000 * version


class BranchingStore(MemoryStore):
    """A store in which data files stay, since other branches may need what one of them drops; and a log of nothing but
    commits, whose files have the times of :func:`time_of_file`.

    Attributes:
        written: the keys of files apart from the log that were written since it was last emptied.
        dropped: likewise of those that were deleted, and are there all the same.
        gone: likewise of those that VACUUM has deleted in this branch; they are not found.
        listed: the keys that a listing has apart from the log; None for all.
    """

    def __init__(self) -> None:
        super().__init__()
        self.written: set[str] = set()
        self.dropped: set[str] = set()
        self.gone: frozenset[str] = frozenset()
        self.listed: set[str] | None = None

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        # A checksum would be found in other branches, too.
        return storage.Committed() if key.endswith(".crc") else super().put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> None:
        if key.startswith(LOG):
            super().put(key, data)
            return
        self.written.add(key)
        super().put(key, data)

    @contextmanager
    def open_output(self, key: str) -> Iterator[BinaryIO]:
        with super().open_output(key) as out:
            yield out
        self.written.add(key)

    def delete(self, keys: Iterable[str]) -> None:
        keys = set(keys)
        self.dropped |= {key for key in keys if not key.startswith(LOG)}
        super().delete(keys - self.dropped)

    def _find(self, key: str) -> tuple[bytes, int]:
        if key in self.gone:
            raise not_found(key, self.uri)
        return super()._find(key)

    def head(self, key: str) -> ObjectInfo:
        return _timed(super().head(key))

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[ObjectInfo]:
        if self.listed is None:
            return map(_timed, super().list(prefix, after))
        # A removal counts from the time of its commit's file: to VACUUM those decades ahead would be young.
        return (one for one in super().list(prefix, after) if one.key.startswith(LOG) or one.key in self.listed)


def _timed(info: ObjectInfo) -> ObjectInfo:
    name = parse_log_name(info.key)
    if name is None or name.kind != "commit":
        return info
    return ObjectInfo(info.key, info.size, time_of_file(name.version))


@dataclass(frozen=True)
class Begun:
    """A transaction that has run its statement, and the keys of the files that it wrote."""

    transaction: TableTransaction
    written: frozenset[str]


class Engine(Branches):
    """One table of the engine. A version's content is its snapshot.

    Before something is done at a version, the log of that version is put back. Data files are never overwritten, and
    serve all branches.
    """

    def __init__(self, level: str, layout: Layout):
        super().__init__(level, layout)
        self.store: Any = BranchingStore()
        self._log: tuple[bytes, ...] = ()
        self._rows: dict[tuple[str, str | None], list[Values]] = {}
        created = self._created()
        self.check_out((created,))
        snapshot = load_snapshot(self.store)
        with FILES_OF_VECTORS, WriteTransaction(TableTransaction(self.store, snapshot)) as transaction:
            transaction.delete(f"k = {HIDDEN[0]}")
            transaction.commit()
        if layout.wide:
            self._add_column()
        self._log = tuple(self.store.get(commit_key(version)) for version in range(3 if layout.wide else 2))
        entries, start = entries_of(*self._log), layout.start
        self.root = Version(self._log, load_snapshot(self.store), entries, state=start, start=start)

    def _add_column(self) -> None:
        snapshot = load_snapshot(self.store)
        with WriteTransaction(TableTransaction(self.store, snapshot)) as transaction:
            transaction.add_columns([pa.field("s", pa.int32())])
            transaction.commit()

    created_with: ClassVar[dict[str, Any]] = {}
    """Further fields of the commitInfo of version 0."""

    @staticmethod
    def _create(made: MemoryStore, **options: Any) -> DeltaTable:
        return DeltaTable.create(made.uri, SCHEMA, **options)

    def _created(self) -> bytes:
        """Version 0: files that the engine wrote, as one commit."""
        made = MemoryStore(f"judged-{id(self)}")
        written = self._create(
            made,
            partition_by=["a"] if self.layout.partitioned else None,
            cluster_by=["k"] if self.layout.clustered else None,
            configuration={
                "delta.isolationLevel": self.level,
                "delta.enableDeletionVectors": str(self.layout.vectors).lower(),
                "refdelta.inlineDeletionVectors": "true",
                "delta.enableRowTracking": str(self.layout.tracked).lower(),
                "delta.checkpointInterval": "1000",
            },
        )
        for values in self.layout.writes:
            write_deltalake(written, table(*values), mode="append")
        if self.layout.wide:
            alter = written.alter
            alter.set_table_properties({"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"})
            alter.set_domain_metadata("x", "0")
        snapshot = load_snapshot(written.store)
        for info in list(made.list()):
            if not info.key.startswith(LOG):
                self.store.put(info.key, made.get(info.key))
            made.delete([info.key])
        created = CommitInfo({"operation": "CREATE TABLE AS SELECT", **self.created_with})
        small = [snapshot.protocol, snapshot.metadata, *snapshot.domains.values()]
        return encode_commit([created, *small, *to_adds(snapshot.files)])

    def check_out(self, log: tuple[bytes, ...], gone: frozenset[str] = frozenset()) -> None:
        """Make this the log of the store, in which these files are not found."""
        self.store.gone = gone
        same = 0
        while same < min(len(log), len(self._log)) and log[same] is self._log[same]:
            same += 1
        self.store.delete([commit_key(version) for version in range(same, len(self._log))])
        for version in range(same, len(log)):
            self.store.put(commit_key(version), log[version])
        self._log = log

    def stage(self, version: Version, case: Case, isolation: str | None) -> Any:
        self.check_out(version.log, version.gone)
        self.store.written.clear()
        application = {"app_id": case.application, "app_version": 1} if case.application else {}
        properties = CommitProperties(row_level=self.layout.asked)
        transaction = TableTransaction(
            self.store, version.content, isolation=isolation, commit_properties=properties, **application
        )
        transaction._dropped.detach()  # its copies end, and a failed one leaves what it has written
        try:
            shown = case.call(WriteTransaction(transaction))
        except errors.DeltaError as error:
            if not (case.statement.fails(version.state) or _lacks(error, version)):
                raise
            return FAILED
        if case.statement.fails(version.state):
            raise Wrong(f"{case.name} did not fail; before it: {version}")
        if shown is not None:
            assert shown == data_of(case.statement.found(version.state)), (case.name, str(version))
        return Begun(transaction, frozenset(self.store.written))

    def attempt(self, version: Version, staged: Staged) -> Committed | None:
        self.check_out(version.log, version.gone)
        self.store.written.clear()
        self.store.dropped.clear()
        if staged.case.kind == "VACUUM":
            return self._vacuum(version, staged)
        transaction = _fork(staged.transaction.transaction)
        try:
            with FILES_OF_VECTORS:
                result = transaction.commit()
        except errors.ConcurrentModificationError:
            self._left_behind(version, staged, set())
            raise
        if result.version is None:
            self._left_behind(version, staged, set())
            return None
        data = self.store.get(commit_key(result.version))
        self._log = (*version.log, data)
        assert result.version == version.in_log + 1
        named = self._named(_adds(data))
        self._left_behind(version, staged, named)
        if named & version.gone:
            raise Wrong(f"{staged.name} names files that VACUUM has deleted: {named & version.gone}, {version}")
        if self.layout.wide:
            check_times(self._log, time_of_file)
        return Committed((data,), transaction.result_snapshot, list(result.rebased_over), version.gone)

    def _vacuum(self, version: Version, staged: Staged) -> Committed | None:
        """VACUUM looks for files at the version at which it began, and deletes them when it commits."""
        next_moment()  # so that what was removed, and what was written, is older than the retention
        self.store.listed = {key for data in version.log for key in self._named(_adds(data))}
        try:
            request = VacuumRequest(retention_hours=0, enforce_retention_duration=False)
            vacuum(staged.at.content, request, dry_run=False)
        finally:
            self.store.listed = None
        versions = range(version.in_log + 1, load_snapshot(self.store).version + 1)
        data = tuple(self.store.get(commit_key(number)) for number in versions)
        self._log = (*version.log, *data)
        if not data:
            return None
        live = self._named(version.entries.values())
        if live & self.store.dropped:
            raise Wrong(f"VACUUM deletes {live & self.store.dropped}, which {version} needs")
        if self.layout.wide:
            check_times(self._log, time_of_file)
        passed = list(range(staged.at.in_log + 1, version.in_log + 1))
        return Committed(data, load_snapshot(self.store), passed, version.gone | self.store.dropped)

    def _named(self, adds: Iterable[Add]) -> set[str]:
        """The keys of all files that these actions name."""
        adds = list(adds)
        vectors = [add.deletion_vector for add in adds]
        return {data_key(add.path, self.store.uri) for add in adds} | {
            relative_key(one.path_or_inline_dv) for one in vectors if one is not None
        }

    def _left_behind(self, version: Version, staged: Staged, named: set[str]) -> None:
        """Of what a transaction wrote, its commit names all that is left."""
        written = self.store.written | staged.transaction.written
        if written - self.store.dropped != written & named:
            raise Wrong(f"{staged.name} wrote {written}, dropped {self.store.dropped} and names {named}: {version}")

    def files(self, version: Version) -> list[tuple[str, dict[str, str | None], list[Values]]]:
        found = []
        if self.layout.tracked:
            ids = plan_scan(version.content, ["_metadata.row_id"]).to_table().column(0).to_pylist()
            if None in ids or len(set(ids)) < len(ids):
                raise Wrong(f"the ids of rows are {ids}: {version}")
        for i, add in enumerate(to_adds(version.content.files)):
            vector = add.deletion_vector
            name = add.path, vector and vector.unique_id
            if name not in self._rows:
                alone = version.content.with_files(version.content.files.slice(i, 1))
                self._rows[name] = values_of(plan_scan(alone).to_table())
                _check_statistics(add, self._rows[name])
            found.append((add.path, add.partition_values, self._rows[name]))
        return found


def _adds(data: bytes) -> list[Add]:
    return [action for action in decode_commit(data, "a commit") if isinstance(action, Add)]


def _lacks(error: errors.DeltaError, version: Version) -> bool:
    """Whether it says that a file is not found that VACUUM has deleted."""
    return isinstance(error, errors.DataFileNotFoundError) and error.file in version.gone


def _check_statistics(add: Add, rows: list[Values]) -> None:
    """Raise ``Wrong`` where the statistics of a file are not of these live rows."""
    stats = load_stats(add.stats)
    hidden = add.deletion_vector.cardinality if add.deletion_vector else 0
    if stats["numRecords"] - hidden != len(rows):
        raise Wrong(f"{add} should have {len(rows)} rows")
    least, greatest = stats.get("minValues", {}), stats.get("maxValues", {})
    for index, column in enumerate("ka"):
        values = [row[index] for row in rows if row[index] is not None]
        if values and column in least and not (least[column] <= min(values) and max(values) <= greatest[column]):
            raise Wrong(f"{add} holds {values} in column {column}")
    if hidden and stats.get("tightBounds", True):
        raise Wrong(f"{add} says that its bounds are tight")


def _fork(txn: TableTransaction) -> TableTransaction:
    """A copy of a transaction that has not ended, so that it can end in several ways. What is staged is never changed
    in place.
    """
    made = object.__new__(type(txn))
    for name, value in vars(txn).items():
        setattr(made, name, type(value)(value) if isinstance(value, (list, dict, set)) else value)
    made._own = OwnedFiles(txn.store)
    made._own.files = list(txn._own.files)
    return made
