"""The live files of a log, the newest first, in a stream that reads the log from its newest commit back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refdelta.core.log.actions import Add, Remove
from refdelta.core.log.checksum import decode_checksum
from refdelta.core.log.codec import decode_commit
from refdelta.core.log.paths import parse_log_name
from refdelta.core.log.segment import LogFile
from refdelta.engine.log.checkpoint import iter_files
from refdelta.engine.log.commits import commit_contents
from refdelta.engine.log.listing import find_segment, list_log
from refdelta.engine.log.state import adds_table, key_of, without_keys
from refdelta.engine.parquet.files import log_bytes
from refdelta.errors import DeltaError, InvalidLogError
from refdelta.operations.maintenance.describe import listed
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from refdelta.core.log.actions import AnyAction
    from refdelta.core.log.segment import CheckpointFiles
    from refdelta_storage import Store

_AT_ONCE = 100
"""The number of commits that are fetched at once."""


class NewestFiles:
    """The live files of a version, the newest first, of a log that may be damaged.

    A file is live if the newest action that names it adds it, so that the files of the newest commits are known before
    older ones are read. Where a commit is missing or cannot be read, the stream ends: it may have removed any of the
    older files.

    Args:
        store: the table's folder.
        version: the version; None for the newest.
        damage: called for what is damaged.

    Raises:
        TableNotFoundError: there is no log.
        VersionNotFoundError: the version does not exist, or no longer.
    """

    def __init__(self, store: Store, version: int | None, damage: Callable[[InvalidLogError], None]):
        self._store, self._damage = store, damage
        self._commits: Sequence[LogFile]
        self._checkpoint: CheckpointFiles | None = None
        self._checksum: LogFile | None = None
        try:
            segment = find_segment(store, version)
        except InvalidLogError as error:
            damage(error)
            self._commits = self._newest_in_a_row(version)
        else:
            self._commits, self._checkpoint, self._checksum = segment.commits, segment.checkpoint, segment.checksum

    def count(self) -> int | None:
        """The number of live files, by the version's checksum file; None if there is none that can be read."""
        if self._checksum is None:
            return None
        try:
            return decode_checksum(log_bytes(self._store, self._checksum.key), self._checksum.key).num_files
        except (DeltaError, ObjectNotFoundError):
            return None

    def tables(self) -> Iterator[pa.Table]:
        """The files, in the columns of :func:`refdelta.operations.maintenance.describe.files`, some at once.

        Raises:
            StoreError: the store refused or failed.
        """
        seen: set[str] = set()
        try:
            for end in range(len(self._commits), 0, -_AT_ONCE):
                some = self._commits[max(0, end - _AT_ONCE) : end]
                for file, data in zip(reversed(some), reversed(commit_contents(self._store, some)), strict=True):
                    yield from _added(decode_commit(data, file.key), seen)
            for table in iter_files(self._store, self._checkpoint) if self._checkpoint else ():
                yield listed(without_keys(table, seen))
        except InvalidLogError as error:
            self._damage(error)
        except ObjectNotFoundError as error:
            self._damage(InvalidLogError(f"a file of the log is gone: {error}"))

    def _newest_in_a_row(self, version: int | None) -> list[LogFile]:
        """The commits up to the version without a gap, oldest first, of a log that lacks some."""
        named = ((parse_log_name(key), key, size, mtime_ms) for key, size, mtime_ms in list_log(self._store))
        commits = {
            name.version: LogFile(key, size, mtime_ms, name.version, name.version)
            for name, key, size, mtime_ms in named
            if name is not None and name.kind == "commit"
        }
        at = max(commits, default=-1) if version is None else version
        found = []
        while at in commits:
            found.append(commits[at])
            at -= 1
        return found[::-1]


def _added(actions: Sequence[AnyAction], seen: set[str]) -> Iterator[pa.Table]:
    """The files that a commit added, but for those that a newer one names, which are in ``seen``."""
    adds = []
    for action in reversed([one for one in actions if isinstance(one, (Add, Remove))]):
        if (key := key_of(action)) not in seen:
            seen.add(key)
            if isinstance(action, Add):
                adds.append(action)
    if adds:
        yield listed(adds_table(adds))
