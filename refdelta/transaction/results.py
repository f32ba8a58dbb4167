"""The results of statements: frozen values that are also mappings, so that ``result.version`` and
``result["num_added_files"]`` both work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

_NO_METRICS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class CommitResult(Mapping[str, Any]):
    """The result of a commit.

    Attributes:
        version: the version that was created, or None if nothing was written.
        attempts: how many times the log entry was put, 1 where nobody else was writing.
        rebased_over: the winners' versions over which the commit was moved, in order.
        fallbacks: where a finer check fell back to a coarser one, the reasons.
        metrics: counts by the names that deltalake uses (``num_added_files``, ``num_added_rows``, ...); sizes in
            bytes, times in milliseconds.
    """

    version: int | None
    attempts: int = 0
    rebased_over: tuple[int, ...] = ()
    fallbacks: tuple[str, ...] = ()
    metrics: Mapping[str, Any] = field(default_factory=lambda: _NO_METRICS)

    def _items(self) -> dict[str, Any]:
        own = {"version": self.version, "attempts": self.attempts}
        lists = {"rebased_over": list(self.rebased_over), "fallbacks": list(self.fallbacks)}
        return {**own, **lists, **self.metrics}

    def __getitem__(self, key: str) -> Any:
        return self._items()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items())

    def __len__(self) -> int:
        return len(self._items())


class VacuumResult(list[str]):
    """What VACUUM removed, or would remove: keys relative to the table's folder, in their order. A list, as deltalake
    returns it.

    Attributes:
        dry_run: whether nothing was removed.
        size_bytes: the size of these files.
        untracked: how many more files ``full=True`` would remove: the log does not name them.
        version: the version of the VACUUM END in the history; None if nothing was removed.
    """

    def __init__(
        self, files: Iterable[str] = (), *, dry_run: bool, size_bytes: int, untracked: int, version: int | None = None
    ) -> None:
        super().__init__(files)
        self.dry_run, self.size_bytes, self.untracked, self.version = dry_run, size_bytes, untracked, version
