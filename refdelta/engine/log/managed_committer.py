"""The committer of catalogs: a version is committed when its catalog has ratified it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refdelta.core.commit import effects
from refdelta.core.log.paths import commit_key
from refdelta.engine.log.file_committer import FileCommitter
from refdelta.engine.log.managed_log import Exists, managed_by
from refdelta.errors import InternalError
from refdelta_storage import base as storage
from refdelta_storage.base import Committed, Unknown
from refdelta_storage.errors import StorageError

if TYPE_CHECKING:
    from refdelta.engine.log.managed_log import ManagedStore, RatifiedCommit


class ManagedCommitter(FileCommitter):
    """The committer of catalogs: what a version is, the catalog knows, and never forgets."""

    @property
    def _log_of(self) -> ManagedStore:
        managed = managed_by(self._store)
        if managed is None:
            raise InternalError("the committer of catalogs is for catalog-managed tables")
        return managed

    def commit(self, version: int, data: bytes) -> effects.Committed | effects.Exists | effects.Unknown:
        """Propose the commit; version 0 is put into the log, and registered by the caller."""
        if version == 0:
            return super().commit(version, data)
        return self.reply(version, self._store.put_if_absent(commit_key(version), data), data)

    def reply(
        self, version: int, outcome: storage.PutOutcome, data: bytes | None = None
    ) -> effects.Committed | effects.Exists | effects.Unknown:
        """The reply to a put of this version, by the outcome of its proposal.

        Args:
            version: the version.
            outcome: the outcome.
            data: the content that was proposed; None if it was only asked whether the version is free.
        """
        match outcome:
            case Committed():
                if data is not None:
                    self._hold(version, data)
                return effects.Committed()
            case Exists(winners):
                return effects.Exists(self._contents(version, winners))
            case storage.Exists():
                return effects.Exists()
            case Unknown(cause):
                return effects.Unknown(cause)

    def exists(self, version: int) -> bool | effects.Answer:
        """Whether it is ratified, even if its file was cleaned up: the next version follows it all the same."""
        if version < 0:
            return super().exists(version)
        return version <= self._log_of.latest or version <= self._log_of.ask(version + 1).latest

    def newest(self, after: int) -> int:
        """The latest ratified version."""
        return max(after, self._log_of.ask(after + 1).latest)

    def withdraw(self, version: int) -> None:
        """Never: a ratified commit stands."""
        raise StorageError(f"version {version} is ratified, and cannot be withdrawn")

    @property
    def nearby(self) -> bool:
        """A commit whose content the catalog holds needs no request to the store."""
        return self._log_of.ratifier.inline or super().nearby

    def _contents(self, version: int, winners: tuple[RatifiedCommit, ...]) -> tuple[bytes, ...]:
        found: list[bytes] = []
        for commit in winners:
            if commit.version != version + len(found) or commit.data is None:
                break
            self._note(commit.version, commit.data)  # as one that was read
            found.append(commit.data)
        return tuple(found)
