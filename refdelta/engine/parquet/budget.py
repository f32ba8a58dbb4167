"""The memory that files which are held together may take, all of them together.

A bound for one file is none if a log can name many: the parts and sidecars of a checkpoint, deletion vectors.
"""

from __future__ import annotations

import threading
from typing import Final

HELD_BYTES: Final = 2**30
"""The limit of the files of a checkpoint together, in bytes, beyond :data:`HELD_UNFOLDED` times the size of each."""

HELD_UNFOLDED: Final = 100
"""A file that is held whole may take so many times its size in any case."""

VECTOR_BYTES: Final = 2**32
"""The limit of the stored bytes of deletion vectors that are held together."""


class Budget:
    """A number of bytes of which several files take. Thread-safe.

    Args:
        what: the files, for errors.
        most: the number.
    """

    def __init__(self, what: str, most: int) -> None:
        self._what, self._most, self._left = what, most, most
        self._lock = threading.Lock()

    def take(self, count: int) -> None:
        """Take some bytes. Raises ``ValueError`` if there are not so many left."""
        with self._lock:
            self._left -= count
            if self._left < 0:
                raise ValueError(f"{self._what} would take more than {self._most:,} bytes together")

    def of_file(self, size: int) -> FileBudget:
        """The budget for what is made of a file of ``size`` bytes, and held."""
        return FileBudget(self, HELD_UNFOLDED * size)


class FileBudget:
    """The bytes that one file may take: some in any case, and what is beyond them of a common budget.

    Args:
        common: the budget.
        free: the bytes that are not counted. The verdict does not depend on the order in which files are read.
    """

    def __init__(self, common: Budget, free: int) -> None:
        self._common, self._free = common, free

    def take(self, count: int) -> None:
        """Same as :meth:`Budget.take`."""
        counted, self._free = max(0, count - self._free), max(0, self._free - count)
        if counted:
            self._common.take(counted)


def checkpoint_budget() -> Budget:
    """The budget of a checkpoint that is held."""
    return Budget(f"the files of the checkpoint, beyond {HELD_UNFOLDED} times their sizes,", HELD_BYTES)
