"""The real engine: transactions by hand on a store in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO
from unittest import mock

from model.branches import Branches, Committed, Staged, Version
from model.cases import SCHEMA, Case, table, values_of
from model.entries import Wrong, entries_of
from model.layouts import HIDDEN, WRITES, Layout
from model.operations import Values, data_of
from refdelta import CommitProperties, DeltaTable, errors, write_deltalake
from refdelta.core.log.actions import Add, CommitInfo
from refdelta.core.log.codec import decode_commit, encode_commit
from refdelta.core.log.paths import LOG, commit_key, data_key
from refdelta.core.rows.deletion_vector import relative_key
from refdelta.engine import dv
from refdelta.engine.scan import plan_scan
from refdelta.engine.snapshot import load_snapshot
from refdelta.engine.state import to_adds
from refdelta.protocol.stats import load_stats
from refdelta.staging import Staging
from refdelta.transaction import WriteTransaction
from refdelta_storage import MemoryStore

FILES_OF_VECTORS = mock.patch.object(dv, "INLINE_BYTES", 0)
"""Vectors in files, small as they are: so that it is seen which ones are written and removed."""


class BranchingStore(MemoryStore):
    """A store in which data files stay, since other branches may need what one of them drops; and a log of nothing but
    commits.

    Attributes:
        written: the keys of files apart from the log that were written since it was last emptied.
        dropped: likewise of those that were deleted, and are there all the same.
    """

    def __init__(self) -> None:
        super().__init__()
        self.written: set[str] = set()
        self.dropped: set[str] = set()

    def put(self, key: str, data: bytes) -> None:
        if key.startswith(LOG):
            if not key.endswith(".crc"):
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


@dataclass(frozen=True)
class Begun:
    """A transaction that has run its statement, and the keys of the files that it wrote."""

    transaction: WriteTransaction
    written: frozenset[str]


class Engine(Branches):
    """One table of the engine. A version's content is its snapshot.

    Before something is done at a version, the log of that version is put back. Data files are never overwritten, and
    serve all branches.
    """

    def __init__(self, level: str, layout: Layout):
        super().__init__(level, layout)
        self.store = BranchingStore()
        self._log: tuple[bytes, ...] = ()
        self._rows: dict[tuple[str, str | None], list[Values]] = {}
        created = self._created()
        self.check_out((created,))
        snapshot = load_snapshot(self.store)
        with FILES_OF_VECTORS, WriteTransaction(Staging(self.store, snapshot), snapshot) as transaction:
            transaction.delete(f"k = {HIDDEN[0]}")
            transaction.commit()
        self._log = (created, self.store.get(commit_key(1)))
        self.root = Version(self._log, load_snapshot(self.store), entries_of(*self._log))

    def _created(self) -> bytes:
        """Version 0: files that the engine wrote, as one commit."""
        made = MemoryStore(f"judged-{id(self)}")
        DeltaTable.create(
            made.uri,
            SCHEMA,
            partition_by=["a"] if self.layout.partitioned else None,
            configuration={
                "delta.isolationLevel": self.level,
                "delta.enableDeletionVectors": str(self.layout.vectors).lower(),
                "refdelta.inlineDeletionVectors": "true",
                "delta.enableRowTracking": str(self.layout.tracked).lower(),
            },
        )
        for values in WRITES:
            write_deltalake(made.uri, table(*values), mode="append")
        snapshot = load_snapshot(made)
        for info in list(made.list()):
            if not info.key.startswith(LOG):
                self.store.put(info.key, made.get(info.key))
            made.delete([info.key])
        created = CommitInfo({"operation": "CREATE TABLE AS SELECT"})
        small = [snapshot.protocol, snapshot.metadata, *snapshot.domains.values()]
        return encode_commit([created, *small, *to_adds(snapshot.files)])

    def check_out(self, log: tuple[bytes, ...]) -> None:
        """Make this the log of the store."""
        same = 0
        while same < min(len(log), len(self._log)) and log[same] is self._log[same]:
            same += 1
        self.store.delete([commit_key(version) for version in range(same, len(self._log))])
        for version in range(same, len(log)):
            self.store.put(commit_key(version), log[version])
        self._log = log

    def stage(self, version: Version, case: Case, isolation: str | None) -> Begun:
        self.check_out(version.log)
        self.store.written.clear()
        application = {"app_id": case.application, "app_version": 1} if case.application else {}
        properties = CommitProperties(row_level=self.layout.asked)
        staging = Staging(self.store, version.content, isolation=isolation, commit_properties=properties, **application)
        transaction = WriteTransaction(staging, version.content)
        shown = case.call(transaction)
        if shown is not None:
            assert shown == data_of(case.statement.found(version.state)), (case.name, str(version))
        return Begun(transaction, frozenset(self.store.written))

    def attempt(self, version: Version, staged: Staged) -> Committed | None:
        self.check_out(version.log)
        self.store.written.clear()
        self.store.dropped.clear()
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
        self._left_behind(version, staged, self._named(data))
        return Committed(data, transaction._staging.result_snapshot, list(result.rebased_over))

    def _named(self, data: bytes) -> set[str]:
        """The keys of all files that a commit adds."""
        adds = [action for action in decode_commit(data, "a commit") if isinstance(action, Add)]
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


def _check_statistics(add: Add, rows: list[Values]) -> None:
    """Raise ``Wrong`` where the statistics of a file are not of these live rows."""
    stats = load_stats(add.stats)
    hidden = add.deletion_vector.cardinality if add.deletion_vector else 0
    if stats["numRecords"] - hidden != len(rows):
        raise Wrong(f"{add} should have {len(rows)} rows")
    for index, column in enumerate("ka"):
        values = [row[index] for row in rows]
        if column in stats["minValues"] and not (
            stats["minValues"][column] <= min(values) and max(values) <= stats["maxValues"][column]
        ):
            raise Wrong(f"{add} holds {values} in column {column}")
    if hidden and stats.get("tightBounds", True):
        raise Wrong(f"{add} says that its bounds are tight")


def _fork(txn: WriteTransaction) -> WriteTransaction:
    """A copy of a transaction that has not ended, so that it can end in several ways. What is staged is never changed
    in place.
    """
    result = _copied(txn)
    result._staging = _copied(txn._staging)
    return result


def _copied(thing):
    made = object.__new__(type(thing))
    for name, value in vars(thing).items():
        setattr(made, name, type(value)(value) if isinstance(value, (list, dict, set)) else value)
    return made
