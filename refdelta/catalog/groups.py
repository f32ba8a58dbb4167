"""The transactions of a server's clients that share versions: a group of each table, whose members come as intents.

A client sends what it would put beside the log of a table without a catalog. The server checks it with those of other
clients (:class:`~refdelta.transaction.group.CommitGroup`); while one version is being ratified, the next one forms. It
reads no data files: a conflict that rows may refute is no answer, and the client goes alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn

from msgspec import structs

from refdelta.catalog import delta_api as api
from refdelta.core.commit.group import goes_alone
from refdelta.core.commit.intent_file import Intent, prepared_of
from refdelta.core.commit.member import Member
from refdelta.core.commit.transaction import CommitOutcome, PreparedCommit
from refdelta.core.log.codec import decode_commit
from refdelta.core.log.paths import commit_key
from refdelta.engine.log.snapshot import Snapshot, next_snapshot
from refdelta.errors import (
    CommitFailedError,
    CommitOutcomeUnknownError,
    ConcurrentModificationError,
    InvalidArgumentError,
    StoreError,
)
from refdelta.transaction.commit_info import now_ms
from refdelta.transaction.driver import CERTAIN_FAILURES, RowChecks
from refdelta.transaction.group import CommitGroup
from refdelta.transaction.options import CommitProperties
from refdelta.transaction.prepared_commit import like

MOST_MEMBERS = 128
"""The number of members of a version."""

_OLDEST = 64
"""A transaction that read so many versions ago goes alone: the group holds no more commits."""

_LARGEST_LOG = 2**18
"""The size in bytes of the commits that an answer has."""


def _refused(*_: Any) -> NoReturn:
    raise StoreError("rows are compared by the transaction's own writer")


_CHECKS = RowChecks(match=_refused, locate=_refused, confirm=_refused)


class TableGroup(CommitGroup):
    """The transactions of clients on one table that commit together.

    Args:
        snapshot: the newest version that is known, without its files.
        look: gives the newest version, without its files.
        count: called with the number of the members of each version.
    """

    def __init__(
        self, snapshot: Snapshot, look: Callable[[], Snapshot], count: Callable[[int], None] = lambda _: None
    ) -> None:
        super().__init__(snapshot, max_wait=0, max_transactions=MOST_MEMBERS)
        self._count = count
        self._look_up = look
        self._running: dict[str, Future[api.TransactionReply]] = {}
        self._running_lock = threading.Lock()
        self._like: tuple[Snapshot, PreparedCommit] | None = None

    def transact(self, intent: Intent, check: Callable[[Snapshot, PreparedCommit], None]) -> api.TransactionReply:
        """Commit a transaction, with those of other clients. One that is sent again while it is under way gets the same
        answer; one that was committed before is found in the log by its id.

        Args:
            intent: the transaction.
            check: raises for one that readers would refuse.

        Raises:
            CommitOutcomeUnknownError: it may be committed or not.
            InvalidArgumentError: it reads a version that does not exist.
        """
        own: Future[api.TransactionReply] = Future()
        with self._running_lock:
            running = self._running.setdefault(intent.id, own)
        if running is not own:
            return running.result()
        try:
            own.set_result(self._transact(intent, check))
        except BaseException as error:
            own.set_exception(error)
            raise
        finally:
            with self._running_lock:
                del self._running[intent.id]
        return own.result()

    def _transact(self, intent: Intent, check: Callable[[Snapshot, PreparedCommit], None]) -> api.TransactionReply:
        with self.call("commit"):
            if intent.read_version > self.snapshot.version and intent.read_version > self.newest().version:
                raise InvalidArgumentError(
                    f"the transaction reads version {intent.read_version}, and the latest is {self.snapshot.version}"
                )
            snapshot, beside = self._beside()
            prepared = prepared_of(intent, beside)
            if prepared is None:
                return _alone("it has read other metadata than the latest version has")
            if goes_alone(Member(prepared)):
                return _alone("its version cannot have other transactions")
            if snapshot.version - intent.read_version > _OLDEST:
                return _alone(f"it reads version {intent.read_version}, and the latest is {snapshot.version}")
            check(snapshot, prepared)
            try:
                return self._reply(intent, self.commit(prepared, _CHECKS, CommitProperties(), ()))
            except ConcurrentModificationError as error:
                if not error.conflict.fallbacks:
                    return api.TransactionReply(outcome="conflict", conflict=error.conflict)
                return _alone(str(error))
            except CommitOutcomeUnknownError:
                raise
            except CERTAIN_FAILURES as error:
                return _alone(str(error))

    def _beside(self) -> tuple[Snapshot, PreparedCommit]:
        """The newest version that is known, and an empty transaction that reads it at this time."""
        snapshot, known = self.snapshot, self._like
        if known is None or known[0] is not snapshot:
            known = self._like = snapshot, like(snapshot)
        clock = known[1].clock
        if clock is None:
            return known
        return snapshot, structs.replace(known[1], clock=structs.replace(clock, now_ms=now_ms()))

    def _reply(self, intent: Intent, outcome: CommitOutcome) -> api.TransactionReply:
        version = outcome.version
        if version is None:
            raise CommitFailedError("a transaction that changes rows has a version")
        log = self.held(intent.read_version + 1, version)
        short = log is not None and sum(map(len, log)) <= _LARGEST_LOG
        return api.TransactionReply(
            outcome="committed",
            version=version,
            member=outcome.member,
            attempts=outcome.attempts,
            rebased_over=list(outcome.rebased_over),
            leads=not outcome.member and not outcome.recovered,
            log=[one.decode() for one in log] if log is not None and short else None,
        )

    # --- the snapshot has no files, and the client of the first member does the work after a version ---

    def _advanced(self) -> Snapshot:
        return self._look_up()

    def _followed(self, base: Snapshot, log: Sequence[bytes], new: set[str]) -> Snapshot:
        del new
        for data in log:
            base = next_snapshot(self.store, base, decode_commit(data, commit_key(base.version + 1)), len(data))
        return base

    def _run_hooks(self, moved: Any, ended: Any) -> None:
        outcomes = [one.member.outcome for one in ended]
        self._count(sum(isinstance(one, CommitOutcome) and one.version == moved[1] for one in outcomes))


def _alone(why: str) -> api.TransactionReply:
    return api.TransactionReply(outcome="alone", why=why)
