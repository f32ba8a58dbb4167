"""Commits by intents: a transaction is put beside the log, and one of the writers commits those that are there.

The shell of :mod:`refdelta.core.commit.intents`, as :mod:`refdelta.transaction.driver` is that of a commit alone. The
leader is in :mod:`refdelta.transaction.leader`.
"""

from __future__ import annotations

import dataclasses
import random
import time
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from refdelta.core.commit import effects, intent_file, intents
from refdelta.core.commit.group import goes_alone
from refdelta.core.commit.intent_file import encode_intent, intent_key
from refdelta.core.commit.leading import Chain, Listed, check_loop
from refdelta.core.commit.member import Member
from refdelta.core.commit.transaction import CommitOutcome, CommitTally, PreparedCommit
from refdelta.core.errors import ConflictDetails
from refdelta.engine.log.managed_log import managed_by
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import (
    CommitFailedError,
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    ConcurrentModificationError,
    DeltaError,
    InternalError,
    InvalidLogError,
    StoreError,
)
from refdelta.transaction import driver, served
from refdelta.transaction.driver import NO_CHECKS, HandedOnError, RetryPolicy, RowChecks, run_loop
from refdelta.transaction.events import watching
from refdelta.transaction.leader import MOST_MEMBERS, Leader, LeaderCommitter, LeaderShell, Listing, StaleError
from refdelta.transaction.traffic import Traffic, name_of_writer, traffic_of
from refdelta_storage import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from refdelta.engine.log.file_committer import FileCommitter
    from refdelta.engine.log.identity import CommitIdentity
    from refdelta.transaction.events import Watch
    from refdelta_storage import Store

    Withdraw: TypeAlias = Callable[[Store, str, tuple[str, ...]], intents.Fate | None]

_FIRST_SECONDS = 0.15
"""The working time of a leader, in seconds, before one is known."""
_FIRST_SECONDS_NEARBY = 0.02
_LATE = 16
"""A transaction that read so many versions ago moves up before it is put, or is committed alone: its intent's window
would soon be over.
"""
_RECENT_SECONDS = 1.0
"""A snapshot of this age is taken for younger than that."""
_LOSSES = 8
"""The number of versions that a transaction loses alone before it is put as an intent."""
_MOST_AHEAD = 8
"""The number of versions that are asked for at once, after the put of an intent."""
_PASSED_OVER = 4
"""The number of versions of leaders that have had room for a transaction, and not taken it, after which it leads."""
_FRESH_SECONDS = intents.FRESH_MS / 1000
"""The time for which others may take an intent. Its writer waits no longer for them."""


def commit(
    store: Store,
    prepared: PreparedCommit,
    *,
    base: CommitIdentity | None,
    policy: RetryPolicy,
    seen_at: float | None = None,
    always: bool = False,
    replaces: tuple[str, ...] = (),
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    uniform: Callable[[float, float], float] = random.uniform,
    checks: RowChecks = NO_CHECKS,
    inline_vectors: bool = False,
    withdraw: Withdraw,
) -> CommitOutcome:
    """Commit a transaction by an intent where others write, too; else alone, as
    :func:`refdelta.transaction.driver.commit`, of which the other arguments and the errors are. In a table of a catalog
    the server gets the intent, if it shares versions (:mod:`refdelta.transaction.served`).

    Args:
        store: the table's store.
        prepared: the transaction.
        base: the identity of the version that it read.
        policy: the limits and delays of retries.
        seen_at: when that version was seen to be the newest.
        always: share without looking whether there are other writers.
        replaces: the ids of earlier tries of the same work.
        clock: monotonic seconds.
        sleep: waits for some seconds.
        uniform: a random number between two.
        checks: looks at the rows of winners.
        inline_vectors: whether small deletion vectors are stored in the log.
        withdraw: :func:`refdelta.transaction.transaction.withdraw`, which is a commit itself.
    """
    tally = CommitTally()
    with watching(store.uri, prepared, tally) as watch:
        given: dict[str, Any] = {
            "policy": policy,
            "seen_at": seen_at,
            "base": base,
            "checks": checks,
            "inline_vectors": inline_vectors,
            "clock": clock,
            "sleep": sleep,
            "uniform": uniform,
            "watched": (watch, tally),
        }
        log = managed_by(store)
        if log is not None and not replaces and not goes_alone(Member(prepared)):
            outcome = served.commit(log, store, prepared, **given)
        else:
            outcome = _commit(store, prepared, given, always=always, replaces=replaces, withdraw=withdraw)
        watch.ended = outcome
    return outcome


def _commit(
    store: Store,
    prepared: PreparedCommit,
    given: dict[str, Any],
    *,
    always: bool,
    replaces: tuple[str, ...],
    withdraw: Withdraw,
) -> CommitOutcome:
    """Commit by an intent, or alone, with these arguments of :func:`refdelta.transaction.driver.commit`."""
    own, base, clock = name_of_writer(), given["base"], given["clock"]
    prepared = msgspec.structs.replace(prepared, commit_info={**prepared.commit_info, intent_file.WRITER: own})
    traffic = traffic_of(store)
    alone = managed_by(store) is not None or base is None or goes_alone(Member(prepared))
    share = always or bool(replaces) or traffic.shares(clock(), own)

    def by_intent() -> tuple[CommitOutcome | None, bool]:
        """The outcome, None for none; and whether its window passed."""
        if base is None:
            return None, False
        writer = _Writer(store, prepared, replaces, traffic, withdraw, **given)
        return writer.run(), writer.passed

    following = prepared.read_version + 1

    def lost(committer: FileCommitter, count: int) -> None:
        """Look at the writers that were faster. Where one wins all versions, only intents show the others."""
        nonlocal following
        while (data := committer.held(following)) is not None:
            traffic.saw(intent_file.names_in(data)[2], clock())
            following += 1
        if count >= _LOSSES or traffic.shares(clock(), own):
            raise HandedOnError("it is put as an intent, since others write, too")

    found, passed = by_intent() if share and not alone else (None, False)
    if found is not None:
        return found
    if replaces and not passed:
        raise CommitFailedError(
            "a transaction that replaces another one has to be put as an intent, which this one cannot be: it "
            "changes more than rows, is too large, or the table has a catalog. Nothing was committed; withdraw the "
            "other one by DeltaTable.outcome(..., withdraw=True), and commit without replaces"
        )
    outcome: CommitOutcome | None = None
    try:
        outcome = driver.commit(store, prepared, **given, lost=None if alone or share else lost)
    except HandedOnError:
        outcome = by_intent()[0]
    if outcome is None:
        outcome = driver.commit(store, prepared, **given)
    for version, data in enumerate(outcome.log or (), prepared.read_version + 1):
        traffic.keep(version, data)
        if version in outcome.rebased_over and version != outcome.version:
            traffic.saw(intent_file.names_in(data)[2], clock())
    return outcome


def look(store: Store) -> None:
    """Look in the background for intents of other writers, as a transaction begins that may share its version."""
    if managed_by(store) is None:
        traffic_of(store).look(store, time.monotonic())


class _Passed(Exception):
    """The window has passed without the transaction, which is free to be committed alone."""


class _Ended(Exception):
    """The log says that the transaction is not committed, and never will be."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class _Writer:
    """One transaction that is committed by its intent.

    Attributes:
        prepared: the transaction. It may have moved up from the version that it read.
        read: the version that it read.
        chain: the commit files that were read.
        newest: the last of them, in order from the base.
    """

    def __init__(
        self,
        store: Store,
        prepared: PreparedCommit,
        replaces: tuple[str, ...],
        traffic: Traffic,
        withdraw: Withdraw,
        *,
        base: CommitIdentity,
        policy: RetryPolicy,
        seen_at: float | None,
        checks: RowChecks,
        inline_vectors: bool,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        uniform: Callable[[float, float], float],
        watched: tuple[Watch, CommitTally],
    ) -> None:
        self.store, self.prepared, self.base, self.policy, self.replaces = store, prepared, base, policy, replaces
        self.clock, self.sleep, self.uniform = clock, sleep, uniform
        self.traffic, self.checks, self.withdraw = traffic, checks, withdraw
        self.watch, self.tally = watched
        self.committer = LeaderCommitter(store, prepared.read_version, seen_at=seen_at, base=base, clock=clock)
        self.chain, self.read, self.newest = Chain(), prepared.read_version, prepared.read_version
        times = clock, sleep, uniform
        self.leader = Leader(
            store, self.committer, self.chain, prepared, policy, traffic, times, inline_vectors=inline_vectors
        )
        self.began, self.seen_at = self.clock(), seen_at
        self.shells: list[LeaderShell] = []
        self.in_doubt = self.passed = False
        self.put_at = self.put_seconds = 0.0

    # --- the writer ---

    def run(self) -> CommitOutcome | None:
        """Commit; None, with nothing done, where it has to go alone."""
        read = self.prepared.read_version
        data = self.traffic.kept(read)
        if data is None or not self.base.is_commit(data):
            with store_errors("commit"):
                data = self._commit_file(read)
            if data is None or not self.base.is_commit(data):
                return None
            self.traffic.keep(read, data)
        self.chain.note(read, data)
        recent = self.seen_at is not None and self.began - self.seen_at < _RECENT_SECONDS
        if not recent and self._read_on(most=_LATE) >= _LATE:
            if not self._moved_up():
                return None
            read = self.prepared.read_version
        now_ms = time.time_ns() // 1_000_000
        body = encode_intent(self.prepared, read, self.chain.hashes[read], replaces=self.replaces, now_ms=now_ms)
        if body is None:
            return None
        self.head = intents.Head(
            id=self.prepared.txn_id, base=read, base_hash=self.chain.hashes[read], replaces=self.replaces
        )
        self.key = intent_key(read, self.prepared.txn_id)
        began = self.clock()
        self.leader.own = self.key, began, time.time()
        self.tally.puts, self.tally.bytes = self.tally.puts + 1, self.tally.bytes + len(body)
        try:
            with self.watch.timing(effects.TryCommit):
                self.store.put_if_absent(self.key, body)
        except StorageError:
            return None  # nothing was created
        self.put_at, self.put_seconds = began, max(0.008, self.clock() - began)
        try:
            return self._wait()
        except _Passed:
            self.passed = True
            return None
        except _Ended as ended:
            self._remove_vectors(())
            self.leader.forget([self.key])
            raise ended.error from ended.error.__cause__

    def _moved_up(self) -> bool:
        """Let a blind append build on the newest version, once it is checked against all versions since the one that it
        read: it depends on nothing else there. So the rows of a job that took long can share a version. Its commitInfo
        names the version that was read, as ever.

        Returns:
            False, and nothing has changed, if it is no blind append, conflicts, or replaces an earlier try, whose
            writer has to have read all versions since the base of that.
        """
        member = self._member()
        if self.replaces or not member.state.blind:
            return False
        with store_errors("commit"):
            newest = self.committer.newest(self.newest)
        run_loop(check_loop([member], newest), self.watch.timed(self._shell().perform))
        with store_errors("commit"):
            data = self._commit_file(newest)
        if member.outcome is not None or data is None:
            return False
        self.prepared = self.leader.like = msgspec.structs.replace(
            self.prepared,
            read_version=newest,
            read_set=dataclasses.replace(self.prepared.read_set, version=newest),
            clock=member.clock,
            row_ids=member.row_ids,
        )
        self.chain.note(newest, data)
        self.traffic.keep(newest, data)
        self.newest = newest
        return True

    def _wait(self) -> CommitOutcome:
        # Versions that are there already have not passed over it.
        losses, failures, passed_over, first = 0, 0, 0, True
        patience = self.clock() + self._patience(0)
        while True:
            before, has_led = self.newest, False
            try:
                came = self._read_on(ahead=min(_MOST_AHEAD, self.traffic.came + 1) if first else 1)
                if first:
                    self.traffic.came = came
                ended = self._fate()
                led = [] if first else self._led_after(before)
                first = False
                if ended is None and led:
                    # A leader is there, and may not have seen the intent yet.
                    passed_over += sum(len(self.chain.named[version].members) < MOST_MEMBERS for version in led)
                    late = passed_over >= _PASSED_OVER or self.clock() - self.put_at > _FRESH_SECONDS
                    patience = self.clock() + (0.0 if late else self._patience(losses))
                if ended is None and self.clock() >= patience:
                    ended = self._lead()
                    losses, passed_over = losses + 1, 0
                    patience = self.clock() + self._patience(losses)
                    has_led = True
            except (StoreError, InvalidLogError, CommitFailedError) as error:
                # Its own failures end nothing: another leader may have the intent in its list.
                failures += 1
                if failures > self.policy.max_repeats:
                    raise self._unknown(f"its intent may be committed, and the store failed: {error}") from error
                ended = None
            if ended is not None:
                return ended
            now = self.clock()
            if now - self.began > self.policy.max_seconds:
                raise self._unknown("it waited for its leader, or to lead, longer than max_commit_seconds")
            if not has_led:
                with self.watch.timing(effects.Pause):
                    self.sleep(min(self._lead_seconds / 4, self.put_seconds / 4, max(0.001, patience - now)))
                self.committer.waited()

    def _led_after(self, version: int) -> list[int]:
        """The versions of leaders after this one."""
        return [one for one in range(version + 1, self.newest + 1) if one in self.chain.led]

    @property
    def _lead_seconds(self) -> float:
        if self.chain.lead_ms is not None:
            self.traffic.lead_seconds = self.chain.lead_ms / 1000
        first = _FIRST_SECONDS_NEARBY if self.committer.nearby else _FIRST_SECONDS
        return max(0.002, self.traffic.lead_seconds or first)

    def _patience(self, losses: int) -> float:
        """The time to wait for a leader, in seconds. One of a machine that stalls may have worked for a minute."""
        return float(self.uniform(0.5, 1.0) * min(_FRESH_SECONDS, 3 * self._lead_seconds * min(8, 2**losses)))

    def _read_on(self, most: int = 2**20, *, ahead: int = 1) -> int:
        """Read the versions that came since, the first ones side by side. Returns how many there were."""
        count = 0
        with store_errors("commit"):
            while count < most and (found := self._commit_files(self.newest + 1, ahead)):
                for data in found:
                    self.newest += 1
                    count += 1
                    self.chain.note(self.newest, data)
                    self.traffic.saw(self.chain.writers[self.newest], self.clock())
                    self.traffic.keep(self.newest, data)
                if len(found) < ahead:
                    break
        return count

    def _commit_files(self, first: int, ahead: int = 1) -> list[bytes]:
        with self.watch.timing(effects.ReadCommits):
            return self.committer.read_on(first, ahead)

    def _commit_file(self, version: int) -> bytes | None:
        return next(iter(self._commit_files(version)), None)

    def _member(self) -> Member:
        """The transaction, to be checked anew against all versions since the one that it read."""
        self.tally.winners = 0
        return Member(self.prepared, self.policy, self.tally)

    def _fate(self) -> CommitOutcome | None:
        """The end of the transaction by the versions that were read; None while it is open.

        Raises:
            ConcurrentModificationError: it was refused.
            CommitFailedError: it was withdrawn, or its window has passed.
            CommitOutcomeUnknownError: the table was replaced, or the log cleaned up.
        """
        read = self.prepared.read_version
        found = intents.fate(self.head, self.head.base_hash, self.chain.between(read, self.newest + 1))
        if found.kind == "open":
            return None
        with store_errors("commit"):
            stands = self.committer.exists(read)
        if not (stands is True or isinstance(stands, effects.Yes)):
            raise self._unknown(f"version {read}, which the intent builds on, is no longer in the log")
        if found.kind in ("member", "replaced"):
            return self._outcome(found.version)
        if found.kind == "refused":
            raise _Ended(self._refusal(found))
        if found.kind == "passed":
            raise _Passed
        raise _Ended(
            CommitFailedError(
                f"version {found.version} withdraws this transaction, as DeltaTable.outcome(..., withdraw=True) asks "
                "for: nothing was committed"
            )
        )

    def _outcome(self, version: int | None) -> CommitOutcome:
        if version is None:
            raise InternalError("a transaction that was committed has a version")
        data = self.committer.held(version)
        self._remove_vectors([] if data is None else [data])
        rebased_over = tuple(range(self.read + 1, version))
        self.tally.attempts, self.tally.winners = max(1, self.tally.attempts), len(rebased_over)
        return CommitOutcome(
            version=version,
            member=self._place(version),
            attempts=self.tally.attempts,
            rebased_over=rebased_over,
            recovered=self.in_doubt,
            puts=0,
            log=self.committer.log_after(self.read, version),
        )

    def _place(self, version: int) -> int | None:
        """The place of this transaction, or of an earlier try of it, in a version with several."""
        members = self.chain.named[version].members if version in self.chain.named else ()
        names = (self.prepared.txn_id, *self.head.replaces)
        return next((place for place, name in enumerate(members) if name in names), None) if len(members) > 1 else None

    def _refusal(self, found: intents.Fate) -> Exception:
        """The error of the conflict. The writer's own check over the same versions has all its details."""
        member = self._member()
        rest = (found.version or 0) - 1
        shell = self._shell()
        try:
            run_loop(check_loop([member], rest), self.watch.timed(shell.perform))
            if isinstance(member.outcome, Exception):
                raise member.outcome
        except DeltaError as error:
            if isinstance(error, ConcurrentModificationError):
                return shell.described(error, self.prepared)
        why = found.why if isinstance(found.why, dict) else {}
        return ConcurrentModificationError(
            f"the leader of version {found.version} found a conflict ({why.get('rule')}); nothing was committed",
            ConflictDetails(version=why.get("version", rest), operation=None, rule="refused"),
        )

    def _unknown(self, why: str) -> CommitOutcomeUnknownError:
        return CommitOutcomeUnknownError(why, self.newest + 1, self.prepared.txn_id, self.store.uri)

    # --- the leader ---

    def _lead(self) -> CommitOutcome | None:
        """Put a version with what is there. None where another leader was faster."""
        listing = self.leader.look()
        others = self.leader.others(listing)
        own, shell = self._lead_with(listing, others)
        if isinstance(shell.error, StaleError):
            # The age of the others is not known any more, and on a machine this slow may never be in time.
            listing, others = msgspec.structs.replace(listing, at=self.clock(), found={}), []
            own, shell = self._lead_with(listing, others)
        match shell.error:
            case None:
                pass
            case StaleError() | CommitRetriesExhaustedError():
                return None
            case CommitOutcomeUnknownError():
                self.in_doubt = True  # the names in the next version decide
                return None
            case InvalidLogError() if others:
                return None
            case error:
                raise error
        found = own.member.outcome
        if isinstance(found, CommitOutcome) and found.version is not None:
            self.leader.note(found.version)
            self.newest = max(self.newest, self._contiguous())
            ended = self._outcome(found.version)
            if shell.has_put(found.version):
                self.leader.go_on(listing, found.version)
            return dataclasses.replace(
                found, attempts=ended.attempts, log=ended.log, rebased_over=ended.rebased_over, vectors=()
            )
        if isinstance(found, Exception):
            return self._withdraw(found)
        return None

    def _lead_with(self, listing: Listing, others: Sequence[Listed]) -> tuple[Listed, LeaderShell]:
        """Put a version with some of the intents of a listing. Returns the own transaction, and the shell."""
        own = Listed(self.head, self._member(), files_ms=self._files_ms())
        shell = self.leader.lead(own, listing, others, self.checks, watch=self.watch)
        self.shells.append(shell)
        self.newest = max(self.newest, self._contiguous())
        return own, shell

    def _shell(self) -> LeaderShell:
        return LeaderShell(self.leader, None, set(), self.checks, None)

    def _contiguous(self) -> int:
        newest = self.newest
        while newest + 1 in self.chain.named:
            newest += 1
        return newest

    def _withdraw(self, error: Exception) -> CommitOutcome | None:
        """The leader's own transaction fails. It may still lie in another leader's list, so a version must say it."""
        if self.withdraw(self.store, self.prepared.txn_id, self.replaces) is not None:
            self._read_on()  # another leader has decided
            return self._fate()
        raise _Ended(self._shell().described(error, self.prepared))

    def _files_ms(self) -> int:
        written = self.prepared.read_set.written_since
        return 0 if written is None else max(0, time.time_ns() // 1_000_000 - written)

    def _remove_vectors(self, commits: Sequence[bytes]) -> None:
        """Remove the vectors that this writer wrote as a leader, and that the version does not name."""
        for shell in self.shells:
            shell.clean_up(commits)


# --- from outside -----------------------------------------------------------------------------------------------------


def find(store: Store, txn_id: str) -> intents.Fate:
    """The fate of a transaction by all commit files that the log has: the first version that names it decides."""
    from refdelta.engine.log.file_committer import list_versions

    with store_errors("read the log"):
        versions = list(list_versions(store, -1))
        for start in range(0, len(versions), 256):
            some = versions[start : start + 256]
            datas = store.get_many([f"_delta_log/{version:020d}.json" for version in some])
            for version, data in zip(some, datas, strict=True):
                named = intent_file.names_in(data)[0]
                if txn_id in named.members:
                    return intents.Fate("member", version)
                if txn_id in named.refused:
                    return intents.Fate("refused", version, named.refused[txn_id])
                if txn_id in named.withdrawn:
                    return intents.Fate("withdrawn", version)
    return intents.Fate("open")
