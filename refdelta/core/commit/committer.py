"""The interface of a log, which makes bytes a version.

The committer of file systems puts a file if it is absent; that of a catalog asks the catalog. The loop only uses
versions. ``docs/examples/foreign_engine.py`` has a committer over a SQLite file.
"""

from __future__ import annotations

from typing import Protocol

from refdelta.core.commit import effects


class Committer(Protocol):
    """The log of one table. A method that raises has changed nothing."""

    def commit(self, version: int, data: bytes) -> effects.Committed | effects.Exists | effects.Unknown:
        """Make these bytes this version, if it does not exist yet.

        Returns:
            ``Committed`` on success; ``Exists`` if the version exists already, optionally with the commits from it on;
            ``Unknown`` if the outcome is not known, such as without a reply. Raises an error only if it is certain that
            the bytes are not the version and never will be.
        """

    def exists(self, version: int) -> bool | effects.Answer:
        """Whether this version exists, as the transaction has read it. For -1: whether the log is empty.

        Returns:
            ``Replaced`` if the version is another commit than the one that was read, or is missing though log cleanup
            cannot have removed it. A log that cannot be removed and made anew has no need of this reply.
        """

    def newest(self, after: int) -> int:
        """The newest version, which is this one or a later one."""

    def read(self, first: int, last: int) -> tuple[bytes | None, ...]:
        """The commits of ``first`` to ``last``, both included; None for one that does not exist."""

    def withdraw(self, version: int) -> None:
        """Delete the commit of this version, which is ours and belongs to no table."""

    def time_ms(self, version: int) -> int:
        """The time of this version for readers, in milliseconds since 1970."""


def carry_out(effect: effects.Effect, committer: Committer) -> effects.Reply | None:
    """Carry out an effect on the log; None for other effects: rows, vectors, time.

    Raises:
        Exception: the error of the committer; send the loop :class:`~refdelta.core.commit.effects.Failed`.
    """
    match effect:
        case effects.TryCommit(version, data):
            return committer.commit(version, data)
        case effects.VersionExists(version):
            found = committer.exists(version)
            return found if isinstance(found, effects.Answer) else effects.Yes() if found else effects.No()
        case effects.NewestVersion(after):
            return effects.Newest(committer.newest(after))
        case effects.ReadCommits(first, last):
            return effects.Commits(committer.read(first, last))
        case effects.CommitTime(version):
            return effects.Time(committer.time_ms(version))
        case effects.Withdraw(version):
            committer.withdraw(version)
            return effects.Yes()
    return None
