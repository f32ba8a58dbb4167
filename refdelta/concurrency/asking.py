"""How the commit loop asks its shell, and how it becomes certain.

**A put at N+1 counts only where N exists.** ``PutIfAbsent`` alone cannot tell a version that is still to come from
one that log cleanup removed long ago, or from the log of a table that was deleted and created anew. So each put
stands between two ``Confirm(N)``:

* the one before it fails the commit of a stale handle with nothing written;
* the one after it is for a process that was suspended in between for so long that cleanup went past it. A file of ours
  behind which the next version is missing although newer ones exist is dead: it is withdrawn, and the commit failed.
  Where that cannot be told the outcome is unknown.

The shell may answer ``Confirm`` from what it saw moments ago: cleanup removes what is hours old at least
(PROTOCOL.md, "Metadata Cleanup"). So it costs a request only where a handle is old or the put was slow. On a disk of
this machine the shell looks every time, for a folder may be removed at any moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from refdelta.concurrency.effects import (
    Answer,
    Commits,
    Confirm,
    Effect,
    Elapsed,
    Failed,
    Newest,
    NewestVersion,
    No,
    Pause,
    ReadCommits,
    Reply,
    Withdraw,
    Yes,
)
from refdelta.concurrency.prepared import Limits, PreparedCommit
from refdelta.errors import CommitFailedError, CommitOutcomeUnknownError, DataFileNotFoundError

if TYPE_CHECKING:
    from collections.abc import Generator

R = TypeVar("R", bound=Reply)


def ask(effect: Effect, kind: type[R]) -> Generator[Effect, Reply, R | Failed]:
    """Yield an effect and see that the reply is of its kind: a shell that mixes them up must not pass for an answer."""
    reply = yield effect
    if isinstance(reply, (kind, Failed)):
        return reply
    raise TypeError(f"{reply!r} is no reply to {effect!r}")


@dataclass(slots=True)
class Asking:
    """A transaction that is to become the version after ``base``.

    Attributes:
        prepared: the transaction.
        limits: how often and how long to ask.
        base: the version after which the next put goes.
        waited: seconds since the first effect, when that was last asked.
        in_doubt: whether a put at base+1 may have been carried out, or may yet be, for all we know.
    """

    prepared: PreparedCommit
    limits: Limits
    base: int
    waited: float = 0.0
    in_doubt: bool = False

    def _insist(self, effect: Effect, kind: type[R]) -> Generator[Effect, Reply, R]:
        """Ask again where the store fails; in the end its error is the outcome, unless a put of ours is in doubt."""
        repeat = 0
        while True:
            reply = yield from ask(effect, kind)
            if not isinstance(reply, Failed):
                return reply
            repeat += 1
            # A file that does not exist will not come to exist; everything else may be a store in trouble.
            passing = not isinstance(reply.error, DataFileNotFoundError) and repeat < self.limits.max_repeats
            if passing and not (yield from self._out_of_time(Pause(repeat, "undecided"))):
                continue
            if self.in_doubt:
                raise self._outcome_unknown(self.base + 1, f"the store failed: {reply.error}") from reply.error
            raise reply.error

    def _out_of_time(self, pause: Pause) -> Generator[Effect, Reply, bool]:
        elapsed = yield from ask(pause, Elapsed)
        if isinstance(elapsed, Elapsed):
            self.waited = elapsed.seconds
        return self.waited > self.limits.max_seconds

    def _outcome_unknown(self, version: int, why: str) -> CommitOutcomeUnknownError:
        return CommitOutcomeUnknownError(why, version, self.prepared.txn_id)

    # --- a put at N+1 counts only where N exists ---

    def _confirm_base(self) -> Generator[Effect, Reply, None]:
        if self.base < 0 and self.in_doubt:
            # The log may have stopped being empty by our own put.
            return
        if not isinstance((yield from self._insist(Confirm(self.base), Answer)), No):
            return
        if self.in_doubt:
            raise self._outcome_unknown(self.base + 1, f"version {self.base} is no longer in the log")
        if self.base < 0:
            first = yield from self._insist(ReadCommits(0, 0), Commits)
            if first.data[0] is not None:
                # The put will lose to it, and the rules will say so with all details.
                return
            raise CommitFailedError(
                "there is a table at this place already, whose first versions were cleaned up; nothing was committed"
            )
        raise CommitFailedError(
            f"version {self.base}, on which this commit builds, is no longer in the log: it was cleaned up, or the "
            "table was removed or replaced. Nothing was committed; open the table again and repeat the operation"
        )

    def _confirm_created(self, version: int) -> Generator[Effect, Reply, None]:
        if self.base < 0:
            return
        doubted, self.in_doubt = self.in_doubt, True
        if isinstance((yield from self._insist(Confirm(self.base), Answer)), No):
            newest = (yield from self._insist(NewestVersion(version), Newest)).version
            following = yield from self._insist(ReadCommits(version + 1, version + 1), Commits)
            if newest == version or following.data[0] is not None:
                raise self._outcome_unknown(version, f"it was written, but version {self.base} is no longer in the log")
            yield from self._insist(Withdraw(version), Yes)
            raise CommitFailedError(
                f"while this commit waited, the log went on to version {newest} and was cleaned up; the file for "
                f"version {version} was withdrawn. Nothing was committed; open the table again and repeat the operation"
            )
        self.in_doubt = doubted
