"""The real engine: transactions by hand on a store in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from model.branches import FILES, Branches, Committed, Staged, Version
from model.cases import SCHEMA, Case, table, values_of
from model.operations import Values, data_of
from refdelta import DeltaTable, write_deltalake
from refdelta.engine.scan import plan_scan
from refdelta.engine.snapshot import load_snapshot
from refdelta.engine.state import to_adds
from refdelta.protocol.actions import CommitInfo
from refdelta.protocol.codec import encode_commit
from refdelta.protocol.paths import LOG, commit_key
from refdelta.staging import Staging
from refdelta.transaction import WriteTransaction
from refdelta_storage import MemoryStore


class BranchingStore(MemoryStore):
    """A store in which data files stay, since other branches may need what one of them drops; and a log of nothing but
    commits.
    """

    def put(self, key: str, data: bytes) -> None:
        if not key.endswith(".crc"):
            super().put(key, data)

    def delete(self, keys: Iterable[str]) -> None:
        super().delete([key for key in keys if key.startswith(LOG)])


class Engine(Branches):
    """One table of the engine. A version's content is its snapshot.

    Before something is done at a version, the log of that version is put back. Data files are never overwritten, and
    serve all branches.
    """

    def __init__(self, level: str, *, partitioned: bool):
        super().__init__(level, partitioned=partitioned)
        self.store = BranchingStore()
        self._log: tuple[bytes, ...] = ()
        self._rows: dict[str, list[Values]] = {}
        log = (self._first_version(),)
        self.check_out(log)
        self.root = Version(log, load_snapshot(self.store))

    def _first_version(self) -> bytes:
        """Two files, written by the engine, as one commit."""
        made = MemoryStore(f"judged-{id(self)}")
        DeltaTable.create(
            made.uri,
            SCHEMA,
            partition_by=["a"] if self.partitioned else None,
            configuration={"delta.isolationLevel": self.level},
        )
        # One write makes a file for each partition.
        writes = [[row for file in FILES for row in file]] if self.partitioned else FILES
        for values in writes:
            write_deltalake(made.uri, table(*values), mode="append")
        snapshot = load_snapshot(made)
        adds = to_adds(snapshot.files)
        assert len(adds) == 2
        for info in list(made.list()):
            if not info.key.startswith(LOG):
                self.store.put(info.key, made.get(info.key))
            made.delete([info.key])
        created = CommitInfo({"operation": "CREATE TABLE AS SELECT"})
        return encode_commit([created, snapshot.protocol, snapshot.metadata, *adds])

    def check_out(self, log: tuple[bytes, ...]) -> None:
        """Make this the log of the store."""
        same = 0
        while same < min(len(log), len(self._log)) and log[same] is self._log[same]:
            same += 1
        self.store.delete([commit_key(version) for version in range(same, len(self._log))])
        for version in range(same, len(log)):
            self.store.put(commit_key(version), log[version])
        self._log = log

    def stage(self, version: Version, case: Case, isolation: str | None) -> WriteTransaction:
        self.check_out(version.log)
        application = {"app_id": case.application, "app_version": 1} if case.application else {}
        staging = Staging(self.store, version.content, isolation=isolation, **application)
        transaction = WriteTransaction(staging, version.content)
        shown = case.call(transaction)
        if shown is not None:
            assert shown == data_of(case.statement.found(version.state)), (case.name, str(version))
        return transaction

    def attempt(self, version: Version, staged: Staged) -> Committed | None:
        self.check_out(version.log)
        transaction = _fork(staged.transaction)
        result = transaction.commit()
        if result.version is None:
            return None
        data = self.store.get(commit_key(result.version))
        self._log = (*version.log, data)
        assert result.version == version.number + 1
        return Committed(data, transaction._staging.result_snapshot, list(result.rebased_over))

    def files(self, version: Version) -> list[tuple[str, dict[str, str | None], list[Values]]]:
        found = []
        for i, add in enumerate(to_adds(version.content.files)):
            name = repr((add.path, add.deletion_vector))
            if name not in self._rows:
                alone = dataclasses.replace(version.content, files=version.content.files.slice(i, 1))
                self._rows[name] = values_of(plan_scan(alone).to_table())
            found.append((add.path, add.partition_values, self._rows[name]))
        return found


def _fork(txn: WriteTransaction) -> WriteTransaction:
    """A copy of a transaction that has not ended, so that it can end in several ways."""
    result = _copied(txn)
    result._staging = _copied(txn._staging)
    return result


def _copied(thing):
    made = object.__new__(type(thing))
    for name, value in vars(thing).items():
        setattr(made, name, type(value)(value) if isinstance(value, (list, dict, set)) else value)
    return made
