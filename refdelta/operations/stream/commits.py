"""The log of a table as a stream of commits, read on as new commits appear."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from refdelta.core.log.footprint import Footprint, fold_commit
from refdelta.core.log.paths import parse_log_name
from refdelta.core.log.segment import LogFile
from refdelta.engine.log.listing import list_log
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import InvalidArgumentError, VersionNotFoundError
from refdelta.operations.stream.offsets import SPARK
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from refdelta.operations.stream.offsets import StreamWords
    from refdelta_storage import Store

log = logging.getLogger("refdelta")

# The maximum of commits, and of their bytes, that are read at once: each is a request to a remote store.
_AT_ONCE = 32
_BYTES_AT_ONCE = 32 * 2**20


class CommitLog:
    """The commits of a table in their order.

    The log is listed when all known commits are read, and no further back than needed. Each listing must have the
    newest commit of the listing before unchanged: else the table may have been replaced by another one.

    Args:
        store: the folder of the table.
        table_id: the id of the table.
        complete: whether a missing commit is an error; otherwise the next one follows.
        words: the words of its errors.
    """

    def __init__(self, store: Store, table_id: str, *, complete: bool = True, words: StreamWords = SPARK):
        self._store, self._id, self._complete, self._words = store, table_id, complete, words
        self._known: dict[int, LogFile] = {}

    def commits(self, first: int, last: int | None = None) -> Iterator[Footprint]:
        """The commits from one version up to another or the newest, without statistics.

        Raises:
            VersionNotFoundError: one of them is not in the log any more, and the log must be complete; or the log ends
                before the version that precedes ``first``.
            InvalidArgumentError: the table was replaced by another one.
            InvalidLogError: a commit breaks the protocol.
        """
        self._forget(first)
        version, at_once = first, 1
        while last is None or version <= last:
            files = self._next(version, at_once if last is None else min(at_once, last - version + 1))
            if not files or (last is not None and files[0].version > last):
                return
            keys = [file.key for file in files]
            with store_errors("read the log"):
                try:
                    contents = self._store.get_many(keys)
                except ObjectNotFoundError:
                    if self._complete:
                        raise self._gone(version) from None
                    self._list_again(version)
                    continue
            for file, data in zip(files, contents, strict=True):
                yield fold_commit(file.version, data, file.key)
            # A caller that takes few commits does not wait for many.
            version, at_once = files[-1].version + 1, min(2 * at_once, _AT_ONCE)

    @property
    def newest_known(self) -> int | None:
        """The newest version that a listing has shown."""
        return max(self._known, default=None)

    def oldest(self) -> int:
        """The oldest version whose commit is in the log."""
        return min(_commits(self._store, 0), default=0)

    def _next(self, version: int, most: int) -> list[LogFile]:
        """The files of a commit and of some that follow; empty if it does not exist yet."""
        if version not in self._known:
            self._list(version)
        if version not in self._known and (self.newest_known or 0) > version:
            self._list(version)  # it may have appeared during the listing
            if version not in self._known:
                if self._complete:
                    raise self._gone(version)
                following = min(known for known in self._known if known > version)
                log.warning("the commits of versions %d to %d are not in the log any more", version, following - 1)
                version = following
        files: list[LogFile] = []
        size = 0
        while len(files) < most and (file := self._known.get(version + len(files))) is not None:
            size += file.size
            if files and size > _BYTES_AT_ONCE:
                break
            files.append(file)
        return files

    def _list(self, version: int) -> None:
        """List the log from the version before this one on."""
        found = _commits(self._store, max(version - 1, 0))
        newest = self.newest_known
        if newest is None:
            known = version == 0 or version - 1 in found or version in found
        else:
            known = found.get(newest) == self._known[newest]
        if not known:
            self._check_same(version, max(found, default=None))
        self._known.update(found)

    def _list_again(self, version: int) -> None:
        """List the log after a commit of it was removed. Raises ``VersionNotFoundError`` if the newest was."""
        newest = self.newest_known
        self._known = _commits(self._store, version)
        if newest not in self._known:
            raise self._gone(version)

    def _check_same(self, version: int, newest: int | None) -> None:
        """Raise an error unless the table has the same id, and at least as many versions."""
        now = load_snapshot(self._store)
        if now.metadata.id != self._id:
            raise replaced(self._store, self._id, now.metadata.id, self._words)
        if newest is None or newest < version - 1:
            raise VersionNotFoundError(
                f"the stream has read the table up to version {version - 1}, but its newest is {now.version}: commits "
                f"were removed, or the table was replaced by a copy; {self._words.anew}"
            )

    def _gone(self, version: int) -> VersionNotFoundError:
        return VersionNotFoundError(
            f"the commit of version {version}, which the stream has not read yet, is not in the log any more, whose "
            f"commits begin with version {self.oldest()}; {self._words.anew}, or go on after the lost commits by the "
            f"option {self._words.name('failOnDataLoss=false')}, or keep more of the log by delta.logRetentionDuration"
        )

    def _forget(self, first: int) -> None:
        """Remove the commits that are read; the newest is kept to recognize the table."""
        newest = self.newest_known
        self._known = {v: file for v, file in self._known.items() if v >= first or v == newest}


def replaced(store: Store, was: str, now: str, words: StreamWords) -> InvalidArgumentError:
    """The error for a table that was replaced by another one."""
    return InvalidArgumentError(
        f"the stream reads the table with the id {was}, but the table at {store.uri} now has the id {now}; {words.anew}"
    )


def _commits(store: Store, start: int) -> dict[int, LogFile]:
    found = {}
    for key, size, mtime_ms in list_log(store, start):
        name = parse_log_name(key)
        if name is not None and name.kind == "commit" and name.version >= start:
            found[name.version] = LogFile(key, size, mtime_ms, name.version, name.version)
    return found
