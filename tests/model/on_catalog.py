"""The real engine on a catalog-managed table: half of the versions of each log are published, the others are not."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, ClassVar

from model.cases import SCHEMA
from model.engine import Engine
from model.layouts import Layout
from refdelta import DeltaTable
from refdelta.api.table import create_in
from refdelta.core.log.paths import LOG, commit_key
from refdelta.engine.log.managed_log import STAGED, Exists, ManagedStore, Ratified, RatifiedCommit
from refdelta_storage import Committed, MemoryStore, StorageError


class Held:
    """The catalog's part for one table, in memory.

    Attributes:
        commits: the ratified commits from version 1 on.
        published_to: the versions up to this one are published, and are not held.
    """

    maintenance = None
    name = "the catalog"

    def __init__(self, *, inline: bool) -> None:
        self.inline = inline
        self.commits: list[RatifiedCommit] = []
        self.published_to = 0

    def ratified(self, first: int = 0) -> Ratified:
        return Ratified(len(self.commits), tuple(self.commits[max(first - 1, self.published_to, 0) :]))

    def propose(self, commit: RatifiedCommit) -> Committed | Exists:
        if commit.version > len(self.commits) + 1:
            raise StorageError(f"version {commit.version} is not the next one")
        if commit.version <= len(self.commits):
            return Exists(self.ratified(commit.version).commits)
        self.commits.append(commit)
        return Committed()

    def published(self, version: int) -> None:
        self.published_to = max(self.published_to, version)


class _Store(ManagedStore):
    """With the attributes of :class:`model.engine.BranchingStore`, which are those of the folder."""

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["inner"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("gone", "listed"):
            setattr(self.inner, name, value)
        else:
            object.__setattr__(self, name, value)


class OnCatalog(Engine):
    """One table of a catalog.

    Args:
        level: of the table.
        layout: of the table.
        inline: whether the catalog holds the contents of commits.
    """

    created_with: ClassVar[dict[str, Any]] = {"inCommitTimestamp": 1, "txnId": "created"}

    def __init__(self, level: str, layout: Layout, *, inline: bool) -> None:
        self._inline = inline
        super().__init__(level, layout)

    @staticmethod
    def _create(made: MemoryStore, **options: Any) -> DeltaTable:
        features = {
            "delta.feature.catalogManaged": "supported",
            "delta.feature.vacuumProtocolCheck": "supported",
            "delta.enableInCommitTimestamps": "true",
        }
        configuration = {**options.pop("configuration"), **features}
        return create_in(ManagedStore(made, Held(inline=True)), SCHEMA, configuration=configuration, **options)

    def check_out(self, log: tuple[bytes, ...], gone: frozenset[str] = frozenset()) -> None:
        folder = getattr(self.store, "inner", self.store)
        folder.gone = gone
        folder.delete([info.key for info in [*folder.list(f"{LOG}/")]])
        held = Held(inline=self._inline)
        held.published_to = (len(log) - 1) // 2
        for version, data in enumerate(log):
            if version <= held.published_to:
                folder.put(commit_key(version), data)
            if version:
                held.commits.append(self._ratified(folder, version, data))
        if not isinstance(self.store, _Store):
            self.store = _Store(folder, held)
        # Transactions that have begun keep the store; as a fresh one, it remembers nothing of other branches.
        ManagedStore.__init__(self.store, folder, held)
        self.store.ask()
        self._log = log

    def _ratified(self, folder: Any, version: int, data: bytes) -> RatifiedCommit:
        if self._inline:
            return RatifiedCommit(version, len(data), version, data=data)
        name = f"{version:020d}.{sha256(data).hexdigest()[:8]}.json"
        folder.put(f"{STAGED}/{name}", data)
        return RatifiedCommit(version, len(data), version, file_name=name)
