"""The identity of a commit: by it, work that rests on a version finds out whether its table is still there.

A folder can be removed and made anew, by any program and at any moment; then version N exists, and is another commit.
So a version is compared by the object that was read: by its tag (:class:`refdelta_storage.base.ObjectInfo`), or where
that is unknown or differs, by the content of its ``commitInfo``, which holds the time and the transaction's id.

The same bytes can be another object, too: a put that was on its way while log cleanup removed the version creates its
file anew, and no reader has it. So where the time shows another object, the log has to go on from it.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from refdelta.core.log.actions import CommitInfo
from refdelta.core.log.codec import decode_line
from refdelta.core.log.paths import LOG, SIDECARS, VERSIONED, parse_log_name
from refdelta.engine.log.managed_log import folder_of, managed_by
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import InvalidLogError, VersionNotFoundError
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from refdelta.core.commit.effects import No, Replaced, Yes
    from refdelta.core.log.segment import LogFile
    from refdelta_storage.base import Store


_LONG = 32
"""Ids of transactions that are at least as long are taken for unique: those of UUIDs are."""


_ROUNDED_MS = 1000
"""Object stores round the time in a reply to HEAD to seconds."""

_BEGINNING = 2**16
"""So many bytes of a commit file are looked at first, since the commitInfo of most engines is at the beginning."""


class CommitIdentity(msgspec.Struct, frozen=True):
    """A version of a table as it was read.

    Attributes:
        file: the file of its commit, by a listing.
        info: its commitInfo, where the commit was read.
    """

    file: LogFile
    info: CommitInfo | None

    def stands(self, store: Store) -> bool:
        """Whether the log in a store still has this commit. See :meth:`look`."""
        from refdelta.core.commit.effects import Yes

        return isinstance(self.look(store), Yes)

    def look(self, store: Store) -> Yes | No | Replaced:
        """Look whether the log in a store still has this commit. One request, two if the object has another tag, and a
        listing if it has another time. Of a version that is not published, the catalog is asked.

        Raises ``StorageError``.
        """
        from refdelta.core.commit.effects import No, Replaced, Yes  # reading a table needs no commits

        managed = managed_by(store)
        if managed is not None and (holds := managed.holds(self.file.version)) is not None:
            return Yes() if holds else Replaced()
        store = store if managed is None else managed.inner
        file, same = self.file, False
        anew = False
        try:
            if file.tag is not None or self.info is None:
                found = store.head(file.key)
                if store.capabilities.remote and None in (file.tag, found.tag):
                    # Object stores round the time in a reply to HEAD, but not in a listing.
                    same = self.info is None and found.size == file.size
                else:
                    same = file.is_same(found.size, found.mtime_ms, found.tag)
                # Of an own commit that was not listed yet, the time is not known.
                if file.mtime_ms is not None:
                    remote = store.capabilities.remote
                    anew = abs(found.mtime_ms - file.mtime_ms) >= _ROUNDED_MS if remote else not same
            if not same and not self.is_content(store):
                return Replaced()
            return No() if anew and not self._goes_on(store) else Yes()
        except ObjectNotFoundError:
            return No()

    def _goes_on(self, store: Store) -> bool:
        """Whether the log has the next version, or none after this one: cleanup removes the oldest versions, so a file
        of one that it has removed stands apart.
        """
        names = [parse_log_name(info.key) for info in store.list(VERSIONED, after=self.file.key)]
        later = [one for one in names if one is not None and one.version > self.file.version]
        following = self.file.version + 1
        return not later or any(one.kind == "commit" and one.version == following for one in later)

    def located(self, store: Store) -> CommitIdentity | None:
        """The same with the tag of the object, by which it is compared at less cost; None if the log in a store no
        longer has this commit.
        """
        if self.file.tag is not None:
            return self if self.stands(store) else None
        try:
            found = folder_of(store).head(self.file.key)
        except ObjectNotFoundError:
            return None
        # If the content is that of this commit now, it was when the tag was asked for.
        return structs.replace(self, file=structs.replace(self.file, tag=found.tag)) if self.stands(store) else None

    def is_commit(self, data: bytes) -> bool:
        """Whether these are the bytes of this commit; False where its commitInfo is not known."""
        return self.info is not None and _info_of(data, self.file.key) == self.info

    def is_content(self, store: Store) -> bool:
        """Whether the commit file has the same commitInfo. Raises ``ObjectNotFoundError``."""
        if self.info is None:
            return False
        txn_id, key = self.info.fields.get("txnId"), self.file.key
        if not isinstance(txn_id, str) or len(txn_id) < _LONG:
            return _info_of(store.get(key), key) == self.info
        first = store.get_range(key, 0, _BEGINNING)
        return txn_id.encode() in first or (len(first) == _BEGINNING and txn_id.encode() in store.get(key))


def _info_of(data: bytes, file: str) -> CommitInfo | None:
    for line in data.splitlines():
        if b'"commitInfo"' in line:
            try:
                action = decode_line(line, file)
            except InvalidLogError:
                return None
            if isinstance(action, CommitInfo):
                return action
    return None


class Placement:
    """Files that are written beside a log because of one of its versions: a checkpoint, a checksum, and the like.

    Args:
        store: where to write them. On a disk it writes into the folder of the log that was there at the beginning.
        identity: the version; None if the log has no commit of it any more, so that there is nothing to compare.
        version: its number.
    """

    def __init__(self, store: Store, identity: CommitIdentity | None, version: int) -> None:
        self.store, self._identity, self._version = store, identity, version
        self._written: dict[str, bytes | None] = {}

    def stands(self) -> bool:
        """Whether the version is still there."""
        return self._identity is None or self._identity.stands(self.store)

    def locate(self) -> None:
        """Raise ``VersionNotFoundError`` unless the version is still there; further looks cost less."""
        if self._identity is not None:
            self._identity = self._identity.located(self.store)
            if self._identity is None:
                raise self.gone()

    def check(self) -> None:
        """Raise ``VersionNotFoundError`` unless the version is still there."""
        if not self.stands():
            raise self.gone()

    def gone(self) -> VersionNotFoundError:
        """The error for a version that is no longer there."""
        return VersionNotFoundError(
            f"version {self._version} is no longer in the log: it was cleaned up, or the table was removed or replaced"
        )

    def writes(self, key: str, mark: bytes | None = None) -> None:
        """Note that a file is about to be written.

        Args:
            key: its key.
            mark: bytes that are in its content, and in that of no other file of this key; None if no other file can
                have the key.
        """
        self._written[key] = mark

    def remove(self) -> None:
        """Remove the files that were written, but none that another writer has put in their place."""
        for key, mark in self._written.items():
            try:
                found = self.store.head(key)
                if mark is None or mark in self.store.get(key):
                    self.store.delete_unchanged([found])
            except ObjectNotFoundError:
                continue
        for folder in (SIDECARS, LOG):
            self.store.remove_empty(folder)


@contextmanager
def placed(store: Store, identity: CommitIdentity | None, version: int) -> Iterator[Placement]:
    """A block that writes files beside the log because of a version, which is compared before and after.

    If the version is no longer there at the end, what was written belongs to no table, or to another one than the one
    that has the place now, and is removed again.

    Args:
        store: the table's folder.
        identity: the commit of the version; None if it was cleaned up.
        version: the version.

    Raises:
        VersionNotFoundError: the version is no longer in the log; nothing of the block is left.
        StoreError: the store refused or failed.
    """
    with ExitStack() as stack:
        placement = Placement(store, identity, version)
        with store_errors("look at the log"):
            try:
                placement.store = stack.enter_context(store.pinned(LOG))
            except ObjectNotFoundError:
                raise placement.gone() from None
            placement.locate()
        stands = True
        try:
            yield placement
        finally:
            with store_errors("look at the log"):
                stands = placement.stands()
                if not stands:
                    placement.remove()
        if not stands:
            raise placement.gone()
