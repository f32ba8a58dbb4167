"""What the verbs return: frozen values that are also mappings, so that ``result.version`` and
``result["num_added_files"]`` both work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from refdelta import arguments
from refdelta.core.commit.budget import RowBudget
from refdelta.errors import InvalidArgumentError

_NO_METRICS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class CommitResult(Mapping[str, Any]):
    """What a commit did.

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


class AppTransaction(Protocol):
    """An application's transaction: deltalake's ``Transaction`` and :class:`refdelta.core.log.actions.Txn` both are
    one.
    """

    @property
    def app_id(self) -> str:
        """The application's name."""

    @property
    def version(self) -> int:
        """The version of what it wrote."""


@dataclass(frozen=True)
class CommitProperties:
    """How to commit, and what to note in the commit. Has the names of deltalake's class, which is accepted in its
    place.

    Attributes:
        custom_metadata: further fields of the commitInfo; those that the engine writes itself cannot be replaced.
        user_metadata: the string that Spark's history shows as ``userMetadata``.
        max_commit_retries: how many times the log entry may be put again after it lost; None for the default.
        max_commit_seconds: for how long a commit may go on trying, in seconds; None for the default.
        app_transactions: versions of applications to record in the same commit (PROTOCOL.md, "Transaction
            Identifiers"). A write is skipped if the table records all of them already, each at this version or a later
            one; if it records some and not all, that is an ``InvalidArgumentError``, and nothing is written.
        row_level: whether rows decide over conflicts instead of files. None: where the table has deletion vectors
            enabled and no partition columns. Without deletion vectors they never do.
        row_budget: how much of other writers' new data may be looked at so that rows decide; None for the default.
    """

    custom_metadata: Mapping[str, Any] | None = None
    user_metadata: str | None = None
    max_commit_retries: int | None = None
    max_commit_seconds: float | None = None
    app_transactions: Sequence[AppTransaction] | None = None
    row_level: bool | None = None
    row_budget: RowBudget | None = None


def checked(properties: CommitProperties | None) -> CommitProperties:
    """The properties of a commit as our own class, those of nobody's choice where there are none.

    Raises:
        InvalidArgumentError: they are of another kind.
    """
    if properties is None:
        return CommitProperties()
    if not hasattr(properties, "max_commit_retries"):
        kind = type(properties).__name__
        raise InvalidArgumentError(f"commit_properties is a CommitProperties, not of type {kind}")
    own = CommitProperties(**{one.name: getattr(properties, one.name, None) for one in fields(CommitProperties)})
    arguments.text("user_metadata", own.user_metadata)
    try:
        msgspec.json.encode(dict(arguments.mapping("custom_metadata", own.custom_metadata) or {}))
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"custom_metadata is what JSON can hold: {error}") from error
    if (retries := arguments.whole("max_commit_retries", own.max_commit_retries)) is not None and retries < 0:
        raise InvalidArgumentError(f"max_commit_retries is not negative, but {retries} is")
    arguments.seconds("max_commit_seconds", own.max_commit_seconds)
    given = own.app_transactions or ()
    if not isinstance(given, Sequence) or not all(hasattr(t, "app_id") and hasattr(t, "version") for t in given):
        raise InvalidArgumentError(f"app_transactions is a list of refdelta.Transaction, not {given!r:.80}")
    if own.row_level is not None:
        arguments.flag("row_level", own.row_level)
    if not isinstance(own.row_budget, RowBudget | None):
        raise InvalidArgumentError(f"row_budget is a RowBudget, not {own.row_budget!r:.80}")
    return own


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
