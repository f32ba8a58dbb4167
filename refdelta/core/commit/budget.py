"""The limits of a commit: attempts, time, and how much data of winners it may read to match rows.

Matching rows costs reads of data files. Beyond the budget conflicts are decided by files, and the result or the error
has the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from refdelta.core.errors import InvalidArgumentError
from refdelta.core.log.actions import Add
from refdelta.core.log.statistics import num_records

_LOCATED_BYTES = 48
"""The approximate number of bytes of memory for locating one row by its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBudget:
    """The limits on reading winners' data files. Deletion vectors are not counted.

    Attributes:
        size: bytes of all data files that are read.
        attempts: the number of reads, one for each winner.
        seconds: the time for all reads.
    """

    size: int = 2**30
    attempts: int = 1000
    seconds: float = 60.0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the commit loop. Transactions without conflicts only lose races, so the defaults are generous.

    Attributes:
        max_attempts: the number of versions to try.
        max_seconds: the time, counted from the first effect.
        max_repeats: the number of repeats of a put or a read without a certain answer of the store.
        budget: the limits on reading data of winners, by which conflicts are decided by rows and not by files.
    """

    max_attempts: int = 10_000
    max_seconds: float = 600.0
    max_repeats: int = 10
    budget: RowBudget = RowBudget()

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or self.max_repeats < 1:
            raise InvalidArgumentError("a commit needs at least one attempt, and each attempt at least one put")


class RowCheckBudget(msgspec.Struct):
    """The remaining part of a :class:`RowBudget`."""

    budget: RowBudget
    _size: int = 0
    _attempts: int = 0
    _seconds: float = 0.0

    def refusal(self, files: Iterable[Add]) -> str | None:
        """The reason why these files may not be read; None if they may."""
        budget = self.budget
        if self._size + sum(add.size for add in files) > budget.size:
            return f"the rows of winners' new files are beyond the budget of {budget.size:,} bytes"
        if self._attempts >= budget.attempts:
            return (
                f"the rows of winners' new files were looked at {budget.attempts:,} times, which is all of the budget"
            )
        if self._seconds >= budget.seconds:
            return f"looking at winners' new files took all of the budget of {budget.seconds:g} seconds"
        return None

    def spend(self, files: Iterable[Add], seconds: float) -> None:
        """Count the reads of these files and their time."""
        self._size += sum(add.size for add in files)
        self._attempts += 1
        self._seconds += seconds

    def too_many_to_locate(self, files: Sequence[Add], *, limited: bool = True) -> str | None:
        """The reason why rows may not be located by their ids in these files; None if they may.

        Args:
            files: the files.
            limited: whether the budget applies.
        """
        counts = [num_records(add) for add in files]
        known = [count for count in counts if count is not None]
        if len(known) < len(counts):
            return "files that winners rearranged do not say how many rows they have"
        if limited and sum(known) * _LOCATED_BYTES > self.budget.size:
            return f"the rows of files that winners rearranged are beyond the budget of {self.budget.size:,} bytes"
        return None
