"""The committer of file systems: a version is committed by put-if-absent (PROTOCOL.md, "Delta Log Entries")."""

from __future__ import annotations

import contextlib
import functools
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, assert_never

import refdelta_storage as storage
from refdelta.core.commit import effects
from refdelta.core.commit.effects import Committed, Exists, Unknown
from refdelta.core.log.paths import VERSIONED, commit_key, parse_log_name
from refdelta.engine.log.listing import newest_version
from refdelta.engine.log.timestamps import commit_time
from refdelta.engine.work.executor import ThreadExecutor, submitted
from refdelta_storage import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from refdelta.engine.log.identity import CommitIdentity
    from refdelta_storage import Store

_TRUSTED_SECONDS = 60.0
"""For so long, a version that was seen on a remote store is assumed to exist. Log cleanup keeps versions for hours at
least.
"""

_HELD_BYTES = 32 * 2**20
"""The most bytes of commit files that are held for the snapshot after the commit, which then need not read them."""


class FileCommitter:
    """A :class:`~refdelta.core.commit.committer.Committer` for one transaction on the log in a store.

    Args:
        store: the table's store.
        read_version: the version that the transaction read; -1 if it creates the table.
        seen_at: the time of the last listing that showed it as the newest version (for a new table: an empty log), in
            seconds of ``clock``. After a minute, or with None, a commit costs one more request.
        base: the identity of that version. Another commit in its place shows that the table was replaced. None: it is
            not compared.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        store: Store,
        read_version: int,
        *,
        seen_at: float | None = None,
        base: CommitIdentity | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._base, self._clock, self._fresh_at = store, base, clock, seen_at
        # The time at which each version was last seen.
        self._seen: dict[int, float] = {} if seen_at is None else {read_version: seen_at}
        # Commit files that were read ahead; None for a file that did not exist.
        self._ahead: dict[int, bytes | None] = {}
        # The last version that was lost to another writer.
        self._lost: int | None = None
        # The commit files that were read or written, up to _HELD_BYTES.
        self._log: dict[int, bytes] = {}
        self._log_bytes = 0
        # The hashes of those that are not held.
        self._hashes: dict[int, int] = {}

    # --- the committer ---

    def commit(self, version: int, data: bytes) -> Committed | Exists | Unknown:
        """Put the file if it does not exist."""
        outcome, winner = self._put(version, data)
        match outcome:
            case storage.Committed():
                self._hold(version, data)
                return Committed()
            case storage.Exists():
                self._lost = version
                if winner is None:
                    return Exists()
                self._note(version, winner)
                # The put of the next version shows as soon as a look would whether it exists.
                self._ahead.setdefault(version + 1, None)
                return Exists((winner,))
            case storage.Unknown(cause):
                return Unknown(cause)
            case _:
                assert_never(outcome)

    def exists(self, version: int) -> bool | effects.Answer:
        """Look for the file, unless it was seen within the last minute."""
        # A local look is cheap, and shows that the folder was removed meanwhile. (A version that is known by its
        # checkpoint alone, and version -1, have no file.)
        trusting = self._store.capabilities.remote or self._base is None
        last_seen = self._seen.get(version)
        if trusting and last_seen is not None and self._clock() - last_seen < _TRUSTED_SECONDS:
            return True
        if version < 0:
            return next(list_versions(self._store, -1), None) is None
        answer = self._look(version)
        if isinstance(answer, effects.Yes):
            self._seen[version] = self._clock()
        else:
            self.waited()  # so long that the log was cleaned up, or replaced
        return answer

    def newest(self, after: int) -> int:
        """By a listing, or by asking for the next file."""
        # A recent version is mostly at most one version old. Asking for the next file is faster than a listing, and as
        # certain, since cleanup keeps recent versions.
        if after + 1 not in self._ahead and self._is_fresh:
            self._ahead[after + 1] = read_commit(self._store, after + 1)
        if self._ahead.get(after + 1, b"") is None:
            del self._ahead[after + 1]
            return after
        return newest_version(self._store, after)

    def read(self, first: int, last: int) -> tuple[bytes | None, ...]:
        """Read the files."""
        found = self._read(first, last)
        for version, content in enumerate(found, first):
            if content is not None:
                self._note(version, content)
        return found

    def withdraw(self, version: int) -> None:
        """Delete the file, unless another one has taken its place by now."""
        found, content = self._store.head(commit_key(version)), read_commit(self._store, version)
        if content is not None and self._is_same(version, content):
            self._store.delete_unchanged([found])

    def time_ms(self, version: int) -> int:
        """By the modification times of the files."""
        return commit_time(self._store, version)

    # --- for the driver ---

    @property
    def nearby(self) -> bool:
        """Whether an attempt takes milliseconds, and no round trip to a remote store."""
        return not self._store.capabilities.remote

    def waited(self) -> None:
        """Forget that files did not exist, since time has passed."""
        self._ahead = {version: data for version, data in self._ahead.items() if data is not None}

    def log_after(self, read: int, committed: int | None) -> tuple[bytes, ...] | None:
        """The commit files after the version that was read, up to our own; None if some of them are not held."""
        versions = range(read + 1, read if committed is None else committed + 1)
        return tuple(self._log[v] for v in versions) if versions and self._log.keys() >= {*versions} else None

    def held(self, version: int) -> bytes | None:
        """The commit file of a version that was read, if it is still held."""
        return self._log.get(version)

    # --- details ---

    def _put(self, version: int, data: bytes) -> tuple[storage.PutOutcome, bytes | None]:
        """Put the file; returns the file that was there, too, if that is known.

        Over a network, a transaction that has lost a version reads the file while it puts the next one, since it may
        lose again. Then it can try the one after it at once: the round trips of the put and of the read are one.
        """
        key = commit_key(version)
        if self._lost is None or not self._store.capabilities.remote:
            return self._store.put_if_absent(key, data), None
        with ThreadPoolExecutor(1, thread_name_prefix="refdelta") as pool:
            reading = submitted(pool, copy_context().run, read_commit, self._store, version)
            outcome = self._store.put_if_absent(key, data)
        if isinstance(outcome, storage.Exists):
            with contextlib.suppress(storage.StorageError):  # it will be read again
                return outcome, reading.result()
        return outcome, None

    def _note(self, version: int, content: bytes) -> None:
        """Remember a file that was read."""
        self._seen[version] = self._clock()
        self._hold(version, content)

    def _hold(self, version: int, data: bytes) -> None:
        held = self._log.get(version)
        if held is None and self._log_bytes + len(data) <= _HELD_BYTES:
            self._log[version] = data
            self._log_bytes += len(data)
        elif held != data:
            self._hashes[version] = hash(data)

    def _is_same(self, version: int, content: bytes) -> bool:
        """Whether a file that was read or written is still the same."""
        known = self._hashes.get(version)
        return content == self._log.get(version) if known is None else hash(content) == known

    def _look(self, version: int) -> effects.Answer:
        """Compare the version with the one that was read: the base by its identity, a winner by its content.

        Winners that were read belong to this table only if the base is there after them.
        """
        base = self._base
        if base is None:
            return self._of_content(version)
        answer = self._or_replaced(base.file.version, base.look(self._store))
        if isinstance(answer, effects.Replaced) or base.file.version == version:
            return answer
        return self._or_replaced(version, self._of_content(version))

    def _of_content(self, version: int) -> effects.Answer:
        try:
            if version not in self._log and version not in self._hashes:
                self._store.head(commit_key(version))
                return effects.Yes()
            same = self._is_same(version, self._store.get(commit_key(version)))
        except ObjectNotFoundError:
            return effects.No()
        return effects.Yes() if same else effects.Replaced()

    def _or_replaced(self, version: int, answer: effects.Answer) -> effects.Answer:
        """``Replaced`` for a version that is missing though log cleanup cannot have removed it."""
        return effects.Replaced() if isinstance(answer, effects.No) and not self._is_cleaned_up(version) else answer

    def _is_cleaned_up(self, version: int) -> bool:
        """Whether log cleanup can have removed a version: it begins with the oldest, and leaves a checkpoint."""
        names = [name for info in self._store.list(VERSIONED) if (name := parse_log_name(info.key)) is not None]
        older = any(name.kind == "commit" and name.version < version for name in names)
        return not older and any(name.is_checkpoint and name.version >= version for name in names)

    @property
    def _is_fresh(self) -> bool:
        return self._fresh_at is not None and self._clock() - self._fresh_at < _TRUSTED_SECONDS

    def _read(self, first: int, last: int) -> tuple[bytes | None, ...]:
        known = self._ahead.pop(first, None)
        if known is not None:
            return (known, *(self._read(first + 1, last) if first < last else ()))
        if first == last:
            return (self._read_lost(first) if first == self._lost else read_commit(self._store, first),)
        versions = range(first, last + 1)
        with contextlib.suppress(ObjectNotFoundError):
            return tuple(self._store.get_many(map(commit_key, versions)))
        # Rare: a gap, or cleanup. Each file is read by itself.
        return tuple(self._each(versions))

    def _read_lost(self, version: int) -> bytes | None:
        """The winner's file. Over a network the next file, which is needed afterwards, is read in parallel."""
        if not (self._store.capabilities.remote and self._is_fresh):
            return read_commit(self._store, version)
        both = self._each(range(version, version + 2))
        found = next(both)
        with contextlib.suppress(storage.StorageError):  # it will be read again
            self._ahead[version + 1] = next(both)
        return found

    def _each(self, versions: range) -> Iterator[bytes | None]:
        return ThreadExecutor.for_store(self._store).map(functools.partial(read_commit, self._store), versions)


def read_commit(store: Store, version: int) -> bytes | None:
    """The commit file of a version, or None if it does not exist. Raises ``StorageError``."""
    try:
        return store.get(commit_key(version))
    except ObjectNotFoundError:
        return None


def list_versions(store: Store, after: int) -> Iterator[int]:
    """The versions after a version that have a commit file, ascending. Raises ``StorageError``."""
    for info in store.list(VERSIONED, after=commit_key(after) if after >= 0 else None):
        name = parse_log_name(info.key)
        if name is not None and name.kind == "commit":
            yield name.version
