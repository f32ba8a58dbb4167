"""The files that an open transaction owns: removed if it is dropped without an end, and untouched in a forked child."""

from __future__ import annotations

import _thread
import os
import sys
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING

from refdelta.engine.parquet.write import abort_files

if TYPE_CHECKING:
    from refdelta.core.log.actions import Add, Cdc
    from refdelta_storage import Store


class OwnedFiles:
    """The files of one transaction, apart from it, so that they can be removed when it is garbage.

    Attributes:
        store: the table's store.
        files: the files that it wrote.
        process: the id of the process that owns the files. A forked child has a copy of the transaction.
        began: the file and line of the call that began it, outside of this package; None if there is none.
    """

    __slots__ = ("began", "files", "process", "store")

    def __init__(self, store: Store) -> None:
        self.store = store
        self.files: list[Add | Cdc] = []
        self.process = os.getpid()
        self.began = caller()

    @property
    def inherited(self) -> bool:
        """Whether this is the copy of a forked child."""
        return os.getpid() != self.process

    def dropped(self) -> None:
        """Remove the files of a transaction that is garbage, with a ``ResourceWarning``, if there are any."""
        files, self.files = self.files, []
        if self.inherited or not files:
            return
        self._remove(files)
        where = "" if self.began is None else f" began at {self.began[0]}:{self.began[1]} and"
        warnings.warn(
            f"a transaction on {self.store.uri}{where} was dropped without commit() or abort(); nothing is committed, "
            f"and its {len(files)} files are removed",
            ResourceWarning,
            stacklevel=2,
        )

    def _remove(self, files: list[Add | Cdc]) -> None:
        # Garbage is collected at any point, where a client of a remote store may hold its locks.
        if self.store.capabilities.remote:
            with suppress(RuntimeError):  # the interpreter is ending
                _thread.start_new_thread(abort_files, (self.store, files))
                return
        abort_files(self.store, files)


def caller() -> tuple[str, int] | None:
    """The file and line of the innermost call from outside of this package; None if there is none."""
    frame = sys._getframe(2)  # noqa: SLF001 - the only way to it that is fast
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "refdelta":
        frame = frame.f_back  # type: ignore[assignment]
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)
