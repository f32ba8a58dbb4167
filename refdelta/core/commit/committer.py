"""The interface of a log, by which bytes become a version.

That of file systems puts a file where none is; that of a catalog asks it. The loop knows neither: it names versions,
and a committer finds them. See ``docs/examples/foreign_engine.py`` for one over a SQLite file.
"""

from __future__ import annotations

from typing import Protocol

from refdelta.core.commit.effects import (
    Commits,
    Committed,
    CommitTime,
    Effect,
    Exists,
    Newest,
    NewestVersion,
    No,
    ReadCommits,
    Reply,
    Time,
    TryCommit,
    Unknown,
    VersionExists,
    Withdraw,
    Yes,
)


class Committer(Protocol):
    """The log of one table. A method that raises has changed nothing."""

    def commit(self, version: int, data: bytes) -> Committed | Exists | Unknown:
        """Make these bytes this version, if nothing is it yet.

        Returns:
            ``Committed`` where they are it now; ``Exists`` where the version is there already, with the commits from it
            on where the reply brings them along; ``Unknown`` where that is open, as when no reply came. An error
            that is raised says that they are not it and never will be.
        """

    def exists(self, version: int) -> bool:
        """Whether this version exists. For -1: whether the log is empty."""

    def newest(self, after: int) -> int:
        """The newest version, which is this one or a later one."""

    def read(self, first: int, last: int) -> tuple[bytes | None, ...]:
        """The commits of ``first`` to ``last``, both included; None for one that does not exist."""

    def withdraw(self, version: int) -> None:
        """Take back the commit of this version, which is ours and belongs to no table."""

    def time_ms(self, version: int) -> int:
        """When this version was committed, as readers see it, in milliseconds since 1970."""


def carry_out(effect: Effect, committer: Committer) -> Reply | None:
    """Carry out an effect on the log; None for an effect that is of something else: rows, vectors, time.

    Raises:
        Exception: what the committer raises; the loop is to be sent :class:`~refdelta.core.commit.effects.Failed`.
    """
    match effect:
        case TryCommit(version, data):
            return committer.commit(version, data)
        case VersionExists(version):
            return Yes() if committer.exists(version) else No()
        case NewestVersion(after):
            return Newest(committer.newest(after))
        case ReadCommits(first, last):
            return Commits(committer.read(first, last))
        case CommitTime(version):
            return Time(committer.time_ms(version))
        case Withdraw(version):
            committer.withdraw(version)
            return Yes()
    return None
