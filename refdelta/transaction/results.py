"""The results of statements: frozen values that are also mappings, so that ``result.version`` and
``result["num_added_files"]`` both work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from refdelta.wording import one_line, table

_NO_METRICS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False, repr=False)
class CommitResult(Mapping[str, Any]):
    """The result of a commit.

    Attributes:
        version: the version that was created, or None if nothing was written.
        attempts: the number of attempts to put the log entry; 1 if no other writer came first.
        statement_attempts: how often the statement ran; more than 1 after conflicts, if it was to be repeated.
        rebased_over: the winners' versions over which the commit was rebased, in order.
        fallbacks: for each conflict check that was done by file instead of by row, the reason.
        metrics: counts by deltalake's names (``num_added_files``, ``num_added_rows``, ...); sizes in bytes, times in
            milliseconds.
        member: the place of the transaction in a version that it shares with others, from 0, see
            :meth:`refdelta.DeltaTable.group_commit`; None if it has the version for itself.

    Example::

        result = table.delete("id = 3")
        result.version, result.metrics["num_deleted_rows"]
        result["num_deleted_rows"]  # the same, as deltalake has it
    """

    version: int | None
    attempts: int = 0
    rebased_over: tuple[int, ...] = ()
    fallbacks: tuple[str, ...] = ()
    metrics: Mapping[str, Any] = field(default_factory=lambda: _NO_METRICS)
    statement_attempts: int = 1
    member: int | None = None

    def _items(self) -> dict[str, Any]:
        own = {"version": self.version, "attempts": self.attempts, "statement_attempts": self.statement_attempts}
        lists = {"rebased_over": list(self.rebased_over), "fallbacks": list(self.fallbacks)}
        return {**own, **lists, **self.metrics}

    def __getitem__(self, key: str) -> Any:
        return self._items()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items())

    def __len__(self) -> int:
        return len(self._items())

    def __repr__(self) -> str:
        return one_line(type(self).__name__, {"version": self.version, **self._notable()})

    def _repr_html_(self) -> str:
        done = "nothing was committed" if self.version is None else f"version {self.version}"
        return table(self._notable().items(), caption=done)

    def _notable(self) -> dict[str, Any]:
        """The facts that differ from one commit to the next: no zeros, and not that the first attempt succeeded."""
        items = {name: value for name, value in self._items().items() if name != "version" and value}
        return {name: value for name, value in items.items() if value != 1 or not name.endswith("attempts")}


class VacuumResult(list[str]):
    """The files that VACUUM removed, or would remove: a sorted list of keys relative to the table's folder.

    Attributes:
        dry_run: whether the files were only listed.
        size_bytes: the total size of the files.
        untracked: the number of further files that ``full=True`` would remove, since the log does not name them.
        version: the version of the VACUUM END commit; None if nothing was removed.
    """

    def __init__(
        self, files: Iterable[str] = (), *, dry_run: bool, size_bytes: int, untracked: int, version: int | None = None
    ) -> None:
        super().__init__(files)
        self.dry_run, self.size_bytes, self.untracked, self.version = dry_run, size_bytes, untracked, version
