"""The commits of a table, one after another as they are made, for whoever follows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refdelta.core.log.footprint import Footprint, fold_commit
from refdelta.core.log.paths import parse_log_name
from refdelta.core.log.segment import LogFile
from refdelta.engine.log.listing import list_log
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import InvalidArgumentError, VersionNotFoundError
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from refdelta_storage import Store

# Up to so many commits, of so many bytes together, are read at once: each is a request where the store is remote.
_AT_ONCE = 32
_BYTES_AT_ONCE = 32 * 2**20
_ADVICE = "start a new stream of it, with a new checkpoint"


class CommitLog:
    """The commits of a table in their order.

    The log is listed when those that are known are used up, and no further back than needed. Each listing has to show
    the newest commit of the one before it as it was: else the table may have been replaced by another one.

    Args:
        store: the table's folder.
        table_id: the table's id.
    """

    def __init__(self, store: Store, table_id: str):
        self._store, self._id = store, table_id
        self._known: dict[int, LogFile] = {}

    def commits(self, first: int, last: int | None = None) -> Iterator[Footprint]:
        """The commits from one version up to another or the newest. Without statistics.

        Raises:
            VersionNotFoundError: one of them is not in the log any more, or the log ends before the version that
                precedes ``first``.
            InvalidArgumentError: the table is not the one that it was.
            InvalidLogError: a commit breaks the protocol.
        """
        self._forget(first)
        version, at_once = first, 1
        while last is None or version <= last:
            files = self._next(version, at_once if last is None else min(at_once, last - version + 1))
            if not files:
                return
            keys = [file.key for file in files]
            with store_errors("read the log"):
                try:
                    contents = self._store.get_many(keys)
                except ObjectNotFoundError:
                    raise self._gone(version) from None
            for file, data in zip(files, contents, strict=True):
                yield fold_commit(file.version, data, file.key)
            # Whoever takes little of it is not made to wait for much.
            version, at_once = version + len(files), min(2 * at_once, _AT_ONCE)

    @property
    def newest_known(self) -> int | None:
        """The newest version that a listing has shown."""
        return max(self._known, default=None)

    def oldest(self) -> int:
        """The oldest version whose commit is in the log."""
        return min(_commits(self._store, 0), default=0)

    def _next(self, version: int, most: int) -> list[LogFile]:
        """The commit of a version and some that follow; none where it is not there yet."""
        if version not in self._known:
            self._list(version)
        if version not in self._known and (self.newest_known or 0) > version:
            self._list(version)  # it may have come while the listing was made
            if version not in self._known:
                raise self._gone(version)
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

    def _check_same(self, version: int, newest: int | None) -> None:
        """Raise an error unless this is the table that it was: with its id, and at least as many versions."""
        now = load_snapshot(self._store)
        if now.metadata.id != self._id:
            raise replaced(self._store, self._id, now.metadata.id)
        if newest is None or newest < version - 1:
            raise VersionNotFoundError(
                f"the stream has read the table up to version {version - 1}, but its newest is {now.version}: commits "
                f"were taken back, or a copy was put in its place; {_ADVICE}"
            )

    def _gone(self, version: int) -> VersionNotFoundError:
        return VersionNotFoundError(
            f"the commit of version {version}, which the stream has not read yet, is not in the log any more, whose "
            f"commits begin with version {self.oldest()}; {_ADVICE}, or keep more of the log by "
            "delta.logRetentionDuration"
        )

    def _forget(self, first: int) -> None:
        """Forget what will not be read again; the newest is kept to know the table again by."""
        newest = self.newest_known
        self._known = {v: file for v, file in self._known.items() if v >= first or v == newest}


def replaced(store: Store, was: str, now: str) -> InvalidArgumentError:
    """The error that says that at this place there is another table now."""
    return InvalidArgumentError(
        f"the stream reads the table with the id {was}, but at {store.uri} is one with the id {now} by now; {_ADVICE}"
    )


def _commits(store: Store, start: int) -> dict[int, LogFile]:
    found = {}
    for key, size, mtime_ms in list_log(store, start):
        name = parse_log_name(key)
        if name is not None and name.kind == "commit" and name.version >= start:
            found[name.version] = LogFile(key, size, mtime_ms, name.version, name.version)
    return found
