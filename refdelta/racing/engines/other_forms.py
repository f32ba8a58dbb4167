"""refdelta in its other forms: conflicts by files, a catalog, a group of threads, intents."""

from __future__ import annotations

import atexit
import multiprocessing
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from refdelta import DeltaTable
from refdelta.api.group_commit import GroupCommit
from refdelta.errors import InvalidArgumentError
from refdelta.racing.mixes import SCHEMA, Mix, Statement
from refdelta.racing.throughput import Hands, Own, OwnEngine, Tally, check, do_merge, fill, prepare
from refdelta.transaction.options import CommitProperties


class FilesEngine(OwnEngine):
    """Without deletion vectors, and conflicts by files: what other engines do at their defaults."""

    def __init__(self) -> None:
        super().__init__(False, "refdelta-files")

    def prepare(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> None:
        """See :meth:`refdelta.racing.BenchEngine.prepare`."""
        prepare(folder, mix, storage_options, vectors=False)


class IntentsEngine(OwnEngine):
    """Writers put intents beside the log, of which one of them commits all: ``CommitProperties(group="intents")``."""

    def __init__(self) -> None:
        super().__init__(None, "refdelta-intents")

    def open(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> Hands:
        """See :meth:`refdelta.racing.BenchEngine.open`."""
        return Own(folder, mix, None, storage_options, "intents")


class GroupEngine(OwnEngine):
    """Threads of one process that commit in a group."""

    def __init__(self) -> None:
        super().__init__(None, "refdelta-group")

    def open(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> Hands:
        """See :meth:`refdelta.racing.BenchEngine.open`."""
        of_one_process(self.name)
        table = DeltaTable(folder, storage_options=storage_options)
        with _LOCK:
            group, members = _GROUPS.setdefault(folder, (table.group_commit(), []))
            hands = Grouped(folder, table, group, mix)
            members.append(hands)
            return hands


_LOCK = threading.Lock()
_GROUPS: dict[str, tuple[GroupCommit, list[Grouped]]] = {}
"""By folder, the group of a running race and its threads: an engine is handed to its writers by pickling."""


def of_one_process(name: str) -> None:
    """Raise InvalidArgumentError in a process of a race whose writers must be threads."""
    if multiprocessing.parent_process() is not None:
        raise InvalidArgumentError(f"the engine {name} is of the threads of one process: add --threads")


class Grouped(Own):
    """A thread's handle on a group. It compacts by itself, since OPTIMIZE shares no version."""

    def __init__(self, folder: str, table: DeltaTable, group: GroupCommit, mix: Mix) -> None:
        super().__init__(table, mix)
        self._folder, self._together = folder, group

    def _do(self, wanted: Statement, how: CommitProperties) -> Any:
        match wanted.what:
            case "read":
                return super()._do(wanted, how)
            case "append":
                return self._together.append(wanted.rows, commit_properties=how)
            case "delete":
                return self._together.transact(lambda txn: txn.delete(wanted.predicate), commit_properties=how)
            case "update":
                value, where = {"n": wanted.value}, wanted.predicate
                return self._together.transact(lambda txn: txn.update(value, predicate=where), commit_properties=how)
            case "merge":
                return self._together.transact(lambda txn: do_merge(txn, wanted), commit_properties=how)

    def close(self) -> None:
        """See :class:`refdelta.racing.Hands`: the last thread closes the group."""
        with _LOCK:
            _, members = _GROUPS[self._folder]
            members.remove(self)
            if members:
                return
            del _GROUPS[self._folder]
        self._together.close()


def own_database() -> str:
    """The URL of a fresh file of SQLite, which is removed at the end of the process."""
    folder = tempfile.mkdtemp(prefix="refdelta-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return f"sqlite:///{folder}/catalog.db"


class CatalogEngine(OwnEngine):
    """A table of a :class:`refdelta.catalog.SqlCatalog`.

    Args:
        database: the URL of the catalog's database, as SQLAlchemy writes it; a file of SQLite that is removed at the
            end of the process by default.
    """

    def __init__(self, database: str = "") -> None:
        super().__init__(None, "refdelta-catalog")
        if not database:
            database = own_database()
        self._database = database

    def __reduce__(self) -> Any:
        return type(self), (self._database,)

    def prepare(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> None:
        """See :meth:`refdelta.racing.BenchEngine.prepare`."""
        vectors = {"delta.enableDeletionVectors": "true"}
        fill(self._catalog(folder, storage_options).create_table(name_of(folder), SCHEMA, configuration=vectors), mix)

    def open(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> Hands:
        """See :meth:`refdelta.racing.BenchEngine.open`."""
        return Own(self._catalog(folder, storage_options).table(name_of(folder)), mix)

    def check(
        self, folder: str, mix: Mix, tallies: Sequence[Tally], storage_options: Mapping[str, str]
    ) -> Sequence[str]:
        """See :meth:`refdelta.racing.BenchEngine.check`."""
        return check(self._catalog(folder, storage_options).table(name_of(folder)), mix, tallies)

    def _catalog(self, folder: str, storage_options: Mapping[str, str]) -> Any:
        from refdelta.catalog import SqlCatalog

        return SqlCatalog(self._database, warehouse=folder, storage_options=dict(storage_options))


def name_of(folder: str) -> str:
    """The name of the table of a race in a catalog."""
    return f"bench.t{folder.rstrip('/').rpartition('-')[2].replace('/', '_')}"
