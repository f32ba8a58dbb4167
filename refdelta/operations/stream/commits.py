"""The log of a table as a stream of commits, read on as new commits appear."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from refdelta.core.commit.effects import Replaced, Yes
from refdelta.core.commit.intent_file import hash_of
from refdelta.core.log.footprint import Footprint, fold_commit
from refdelta.core.log.paths import commit_key, parse_log_name
from refdelta.core.log.segment import LogFile
from refdelta.engine.log.identity import CommitIdentity
from refdelta.engine.log.listing import tagged_log
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.parquet.files import log_bytes, store_errors
from refdelta.errors import InvalidArgumentError, VersionNotFoundError
from refdelta.operations.stream.offsets import SPARK
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.stream.offsets import StreamWords
    from refdelta_storage import Store

log = logging.getLogger("refdelta")

# The maximum of commits, and of their bytes, that are read at once: each is a request to a remote store.
_AT_ONCE = 32
_BYTES_AT_ONCE = 32 * 2**20


@dataclass(frozen=True)
class ReadCommit:
    """A commit of the log as it was read.

    Attributes:
        version: its version.
        digest: the hash of its file.
        file: its file, as the last listing has it; None if that is unknown.
    """

    version: int
    digest: str
    file: LogFile | None = None


class CommitLog:
    """The commits of a table in their order.

    The log is listed when all known commits are read, and no further back than needed. A folder can be removed and made
    anew, or restored from a copy, at any moment; then a version is another commit. So each listing must have the commit
    that was read last, by its content; and after commits were read, the newest one of their listing must still be
    there.

    Args:
        made: the version of the table that was loaded for this.
        complete: whether a missing commit is an error; otherwise the next one follows.
        words: the words of its errors.
    """

    def __init__(self, made: Snapshot, *, complete: bool = True, words: StreamWords = SPARK):
        self._store, self._made, self._complete, self._words = made.store, made, complete, words
        self._known: dict[int, LogFile] = {}
        self._read: ReadCommit | None = None

    def commits(
        self, first: int, last: int | None = None, before: str | None = None
    ) -> Iterator[tuple[Footprint, str]]:
        """The commits from one version up to another or the newest, without statistics, each with its hash.

        Args:
            first: the first version.
            last: the last one; None for the newest.
            before: the hash of the commit of the version before the first; None if it is not known.

        Raises:
            VersionNotFoundError: one of them is not in the log any more, and the log must be complete; or the log ends
                before the version that precedes ``first``.
            InvalidArgumentError: the table was replaced by another one, or restored from a copy.
            InvalidLogError: a commit breaks the protocol.
        """
        self._go_to(first - 1, before)
        version, at_once = first, 1
        while last is None or version <= last:
            files = self._next(version, at_once if last is None else min(at_once, last - version + 1))
            if not files or (last is not None and files[0].version > last):
                return
            keys = [file.key for file in files]
            with store_errors("read the log"):
                try:
                    contents = list(self._store.get_many(keys))
                except ObjectNotFoundError:
                    if self._complete:
                        raise self._missing(version) from None
                    self._list_again(version)
                    continue
            if not self._stands(version):
                continue
            for file, data in zip(files, contents, strict=True):
                self._read = ReadCommit(file.version, hash_of(data), file)
                yield fold_commit(file.version, data, file.key), self._read.digest
            # A caller that takes few commits does not wait for many.
            version, at_once = files[-1].version + 1, min(2 * at_once, _AT_ONCE)

    def digest(self, version: int) -> str | None:
        """The hash of the commit of a version up to the loaded one; None if it is not in the log any more.

        Raises ``InvalidArgumentError`` if the table was replaced since it was loaded.
        """
        if version < 0:
            return None
        try:
            data = log_bytes(self._store, commit_key(version))
        except ObjectNotFoundError:
            data = None
        self._check_made()
        if data is None:
            return None
        file = self._made.segment.last_commit if version == self._made.version else None
        self._read = ReadCommit(version, hash_of(data), file)
        return self._read.digest

    def confirm(self, version: int, digest: str | None) -> None:
        """Check that the log still has the commit of a version. Errors are those of :meth:`commits`.

        Args:
            version: the version.
            digest: the hash of its commit; None if it is not known, so that nothing is checked.
        """
        if digest is None:
            return
        read = self._read
        if read is not None and (read.version, read.digest) == (version, digest) and self._has(read.file):
            return
        self._go_to(version, digest)
        self._list(version + 1)

    def check_has(self, version: int) -> None:
        """Check that the table has the same id, and this version. Errors are those of :meth:`commits`."""
        self._check_same(version + 1, None)

    @property
    def newest_known(self) -> int | None:
        """The newest version that a listing has shown."""
        return max(self._known, default=None)

    def oldest(self) -> int:
        """The oldest version whose commit is in the log."""
        return min(_commits(self._store, 0), default=0)

    def _go_to(self, version: int, digest: str | None) -> None:
        """Let a version be the one that was read last, by the hash of its commit."""
        read = self._read
        if read is None or (read.version, read.digest) != (version, digest):
            self._known = {}
            self._read = None if digest is None else ReadCommit(version, digest)
        self._known = {known: file for known, file in self._known.items() if known >= version}

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
        if self._read is not None:
            self._compare(version, found)
        elif version > 0 and version not in found and version - 1 not in found:
            self._check_same(version, max(found, default=None))
        else:
            self._check_made()
        self._known = found

    def _compare(self, version: int, found: dict[int, LogFile]) -> None:
        """Check that a listing has the commit that was read last."""
        read = self._read
        assert read is not None  # noqa: S101 - the caller has looked
        file = found.get(read.version)
        if file is not None and file == read.file:
            return
        try:
            data = log_bytes(self._store, commit_key(read.version))
        except ObjectNotFoundError:
            self._check_same(version, max(found, default=None))
            if self._complete and version in found:
                raise VersionNotFoundError(
                    f"the commit of version {read.version}, which the stream has read last, is not in the log any "
                    f"more, so that it cannot be compared with what was read; {self._words.anew}, or go on without "
                    f"that by the option {self._words.name('failOnDataLoss=false')}"
                ) from None
            self._read = None
            return
        if hash_of(data) != read.digest:
            raise self.changed(read.version)
        self._read = dataclasses.replace(read, file=file)

    def _stands(self, version: int) -> bool:
        """Whether the commits that were read from the last listing, from a version on, are still those of the table:
        its newest one is. If it is not, the log is listed anew.
        """
        newest = max(self._known)
        file = self._known[newest]
        if self._has(file):
            return True
        self._list(version)
        # Some stores show an object in a listing otherwise than by itself.
        return self._known.get(newest) == file

    def _has(self, file: LogFile | None) -> bool:
        """Whether the log still has the object of a listing."""
        if file is None:
            return False
        with store_errors("look at the log"):
            return CommitIdentity(file, None).stands(self._store)

    def _list_again(self, version: int) -> None:
        """List the log after a commit of it was removed. Raises ``VersionNotFoundError`` if the newest was."""
        newest = self.newest_known
        self._list(version)
        if newest not in self._known:
            raise self._gone(version)

    def _missing(self, version: int) -> Exception:
        """The error for a listed commit that is not there."""
        now = load_snapshot(self._store)
        return self._gone(version) if now.metadata.id == self._made.metadata.id else self._replaced(now)

    def _check_made(self) -> None:
        """Raise an error unless the log still has the version that was loaded, or it was cleaned up."""
        identity = self._made.identity
        if identity is None:
            return
        with store_errors("look at the log"):
            answer = identity.look(self._store)
        if isinstance(answer, Yes):
            return
        self._check_same(self._made.version + 1, None)
        if isinstance(answer, Replaced):
            raise self.changed(self._made.version)

    def _check_same(self, version: int, newest: int | None) -> None:
        """Raise an error unless the table has the same id, and at least as many versions.

        Args:
            version: the version after the last one that was read.
            newest: the newest version by a listing; None if that is unknown.
        """
        now = load_snapshot(self._store)
        if now.metadata.id != self._made.metadata.id:
            raise self._replaced(now)
        if max(-1 if newest is None else newest, now.version) < version - 1:
            raise VersionNotFoundError(
                f"the stream has read the table up to version {version - 1}, but its newest is {now.version}: commits "
                f"were removed, or the table was replaced by a copy; {self._words.anew}"
            )

    def _replaced(self, now: Snapshot) -> InvalidArgumentError:
        return replaced(self._store, self._made.metadata.id, now.metadata.id, self._words)

    def changed(self, version: int) -> InvalidArgumentError:
        """The error for a version that is not the commit that was read: of another table, or of a copy of the table."""
        now = load_snapshot(self._store)
        if now.metadata.id != self._made.metadata.id:
            return self._replaced(now)
        return InvalidArgumentError(
            f"version {version} of the table at {self._store.uri} is another commit than the one that the stream has "
            f"read: the table was restored from a copy, and went on in another way; {self._words.anew}"
        )

    def _gone(self, version: int) -> VersionNotFoundError:
        return VersionNotFoundError(
            f"the commit of version {version}, which the stream has not read yet, is not in the log any more, whose "
            f"commits begin with version {self.oldest()}; {self._words.anew}, or go on after the lost commits by the "
            f"option {self._words.name('failOnDataLoss=false')}, or keep more of the log by delta.logRetentionDuration"
        )


def replaced(store: Store, was: str, now: str, words: StreamWords) -> InvalidArgumentError:
    """The error for a table that was replaced by another one."""
    return InvalidArgumentError(
        f"the stream reads the table with the id {was}, but the table at {store.uri} now has the id {now}; {words.anew}"
    )


def _commits(store: Store, start: int) -> dict[int, LogFile]:
    found = {}
    for key, size, mtime_ms, tag in tagged_log(store, start):
        name = parse_log_name(key)
        if name is not None and name.kind == "commit" and name.version >= start:
            found[name.version] = LogFile(key, size, mtime_ms, name.version, name.version, tag)
    return found
