"""delta-spark as a second writer of catalog-managed tables: a commit coordinator of delta-spark that asks our catalogs.

delta-spark 4.4 commits to a catalog-managed table through a ``CommitCoordinatorClient`` of its catalog. The one here
is written in Python and called over Py4J: it stages what delta-spark wants to commit, and proposes it to the catalog as
refdelta's own commits are proposed.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from refdelta.crosscheck.published import Published, coordinate
from refdelta.engine.log.managed_log import STAGED, Exists, ManagedStore, managed_by
from refdelta_storage import Committed

if TYPE_CHECKING:
    from refdelta import DeltaTable


class Coordinator(Published):
    """Commits of delta-spark, by the folder of the table."""

    def __init__(self, spark: Any) -> None:
        super().__init__(spark)
        self._stores: dict[str, ManagedStore] = {}
        self._lock = threading.Lock()
        self.refused = 0
        self.ratified = 0
        self.before_commit: list[Any] = []
        """Called before the next commit of delta-spark is proposed, and taken off."""

    def serve(self, table: DeltaTable) -> None:
        """Answer for this table from now on."""
        managed = managed_by(table.store)
        assert managed is not None
        self._stores[_folder(managed.uri)] = managed

    # --- io.delta.storage.commit.CommitCoordinatorClient ---

    def commit(self, _logs: Any, _conf: Any, table: Any, version: int, actions: Any, updated: Any) -> Any:
        """Stage and propose a commit."""
        lines = []
        while actions.hasNext():
            lines.append(actions.next())
        store = self._store(table)
        while self.before_commit:
            self.before_commit.pop()()
        outcome = store.propose(version, "".join(f"{line}\n" for line in lines).encode())
        if isinstance(outcome, Exists):
            self.refused += 1
            self._throw(f"version {version} is ratified already")
        assert isinstance(outcome, Committed), outcome
        self.ratified += 1
        stamp = updated.getCommitInfo().getCommitTimestamp()
        mine = next(one for one in store.ask(version).commits if one.version == version)
        return self._jvm.io.delta.storage.commit.CommitResponse(self._commit(store, mine, stamp))

    def getCommits(self, table: Any, first: Any, last: Any) -> Any:
        """The ratified commits that are not published."""
        found, latest = self._jvm.java.util.ArrayList(), 0
        store = self._stores.get(_folder(table.getLogPath().getParent().toString()))
        if store is not None:
            answer = store.ask()
            latest = answer.latest
            for one in answer.commits:
                if (first is None or one.version >= first) and (last is None or one.version <= last):
                    found.add(self._commit(store, one, one.timestamp_ms))
        return self._jvm.io.delta.storage.commit.GetCommitsResponse(found, latest)

    def backfillToVersion(self, _logs: Any, _conf: Any, table: Any, _version: int, _known: Any) -> None:
        """Publish."""
        self._store(table).publish()

    # --- for these ---

    def _store(self, table: Any) -> ManagedStore:
        return self._stores[_folder(table.getLogPath().getParent().toString())]

    def _commit(self, store: ManagedStore, one: Any, stamp: int) -> Any:
        jvm = self._jvm
        path = jvm.org.apache.hadoop.fs.Path(f"file://{_folder(store.uri)}/{STAGED}/{one.file_name}")
        status = jvm.org.apache.hadoop.fs.FileStatus(one.size, False, 1, 128 << 20, stamp, path)
        return jvm.io.delta.storage.commit.Commit(one.version, status, stamp)

    def _throw(self, message: str) -> None:
        from py4j.protocol import Py4JJavaError

        raise Py4JJavaError(message, self._jvm.io.delta.storage.commit.CommitFailedException(True, True, message))


def connect(spark: Any) -> Coordinator:
    """The coordinator of this session, which asks our catalogs."""
    known = getattr(spark, "_refdelta_coordinator", None) or Coordinator(spark)
    spark._refdelta_coordinator = known
    coordinate(spark, known)
    return known


def _folder(uri: str) -> str:
    return "/" + uri.removeprefix("file:").lstrip("/").rstrip("/")
