"""The state of a table as the verifier keeps it: the plain definition of reconciliation, and sums over it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from refdelta.core.log.actions import Add, Remove
from refdelta.core.log.paths import same_path
from refdelta.core.log.replay import FileKey, Replay, file_key
from refdelta.core.pruning.stats import load_stats
from refdelta.core.table.features import features_of
from refdelta.core.table.properties import get
from refdelta.errors import InvalidLogError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from refdelta.core.log.actions import AnyAction


@dataclass
class Sums:
    """What the live files add up to."""

    files: int = 0
    size: int = 0
    vectors: int = 0
    deleted: int = 0

    def take(self, add: Add, sign: int) -> None:
        """Count a file in (1) or out (-1)."""
        self.files += sign
        self.size += sign * add.size
        if add.deletion_vector is not None:
            self.vectors += sign
            self.deleted += sign * add.deletion_vector.cardinality


class State(Replay):
    """A table's state at a version.

    Attributes:
        version: the version; -1 before the first.
        sums: over the live files.
        live_at: path to the keys of the live files that have it; more than one only where the log breaks the rules.
        paths: every path that any version has had, to the place in ``schemas`` of the one it was written under.
        schemas: the schemas that the table has had, in their order; the rows of a file stay as its first add brought
            them.
        timestamp: the in-commit timestamp of the version; None where it has none, or where that is not known.
    """

    def __init__(self) -> None:
        super().__init__()
        self.version = -1
        self.sums = Sums()
        self.live_at: dict[str, set[FileKey]] = defaultdict(set)
        self.paths: dict[str, int] = {}
        self.schemas: list[str] = []
        self.timestamp: int | None = None

    def step(self, version: int, actions: Iterable[AnyAction]) -> None:
        """Apply the commit of a version, or a checkpoint as the first of all."""
        actions = list(actions)
        keys = {file_key(action) for action in actions if isinstance(action, (Add, Remove))}
        for key in keys:
            self._count(key, -1)
        self.apply(actions)
        for key in keys:
            self._count(key, 1)
        schema = self.metadata.schema_string if self.metadata is not None else ""
        if not self.schemas or schema != self.schemas[-1]:
            self.schemas.append(schema)
        for path, _ in keys:
            self.paths.setdefault(path, len(self.schemas) - 1)
        self.version = version

    def _count(self, key: FileKey, sign: int) -> None:
        add = self.files.get(key)
        if add is None:
            return
        self.sums.take(add, sign)
        if sign > 0:
            self.live_at[key[0]].add(key)
            return
        self.live_at[key[0]].discard(key)
        if not self.live_at[key[0]]:
            del self.live_at[key[0]]

    def live(self, path: str) -> list[Add]:
        """The live files of a path of the log."""
        return [self.files[key] for key in self.live_at.get(same_path(path), ())]

    def schemas_of_files(self) -> list[str]:
        """The schemas under which the live files were written."""
        return [self.schemas[place] for place in sorted({self.paths[path] for path in self.live_at})]

    def supports(self, feature: str) -> bool:
        """Whether the protocol has a feature."""
        return self.protocol is not None and feature in features_of(self.protocol)

    def property(self, name: str) -> object:
        """A property of the table, typed; its default before the first metaData, or where it makes no sense."""
        configuration = (self.metadata.configuration if self.metadata is not None else None) or {}
        try:
            return get(configuration, name)
        except InvalidLogError:
            return get({}, name)

    def is_on(self, name: str) -> bool:
        """Whether a property is true."""
        return self.property(name) is True


def rows_of(add: Add) -> int | None:
    """How many live rows a file has by the log; None where it does not say."""
    count = physical_rows(add)
    if count is None or add.deletion_vector is None:
        return count
    return count - add.deletion_vector.cardinality


def physical_rows(add: Add) -> int | None:
    """``numRecords`` of a file; None where there is none."""
    stats = load_stats(add.stats)
    count = stats.get("numRecords") if isinstance(stats, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) else None
