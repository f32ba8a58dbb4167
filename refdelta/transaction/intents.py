"""Commits by intents: a transaction is put beside the log, and one of the writers commits those that are there.

The shell of :mod:`refdelta.core.commit.intents` and :mod:`refdelta.core.commit.leading`, as
:mod:`refdelta.transaction.driver` is that of a commit alone.
"""

from __future__ import annotations

import dataclasses
import os
import random
import threading
import time
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from refdelta.core.commit import effects, intent_file, intents
from refdelta.core.commit.group import goes_alone
from refdelta.core.commit.intent_file import decode_intent, encode_intent, intent_key, parse_intent_key, prepared_of
from refdelta.core.commit.leading import Chain, Listed, check_loop, lead_loop
from refdelta.core.commit.member import Member
from refdelta.core.commit.transaction import CommitOutcome, PreparedCommit
from refdelta.core.errors import ConflictDetails
from refdelta.engine.log.file_committer import FileCommitter
from refdelta.engine.log.managed_log import managed_by
from refdelta.engine.parquet.dv import remove_vectors
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
from refdelta.transaction.driver import NO_CHECKS, RetryPolicy, RowChecks, run_loop
from refdelta_storage import ObjectInfo, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from refdelta.engine.log.identity import CommitIdentity
    from refdelta_storage import Store

    Withdraw: TypeAlias = Callable[[Store, str, tuple[str, ...]], intents.Fate | None]

MOST_READ = 256
"""The number of intents that a leader reads."""
MOST_MEMBERS = 128
"""The number of members of a version."""

_FIRST_SECONDS = 0.15
"""The working time of a leader, in seconds, before one is known."""
_FIRST_SECONDS_NEARBY = 0.02
_LATE = 16
"""A transaction that read so many versions ago is committed alone: its intent's window would soon be over."""


class Traffic:
    """The writers of one table, as this process has seen them: whether sharing versions pays.

    Attributes:
        lead_seconds: the working time of leaders.
        shares: whether transactions share versions.
    """

    def __init__(self) -> None:
        self.lead_seconds: float | None = None
        self.lists_at = -1.0
        self._others: dict[str, float] = {}
        self._members_at = -10.0

    def saw(self, writers: Iterable[str], now: float, *, shared: bool = False) -> None:
        """Note other writers, seen at this time in seconds; ``shared`` where versions have several members."""
        self._others = {name: at for name, at in self._others.items() if now - at <= 2.0}
        self._others.update(dict.fromkeys(writers, now))
        if shared:
            self._members_at = now

    def shares(self, now: float, own: str) -> bool:
        """Whether two other writers were seen in the last 2 seconds, or a version with members in the last one."""
        recent = sum(now - at <= 2.0 for name, at in self._others.items() if name != own)
        return recent >= 2 or now - self._members_at <= 1.0


_PROCESS = os.urandom(4).hex()
_traffic: dict[str, Traffic] = {}
_lock = threading.Lock()


def traffic_of(store: Store) -> Traffic:
    """The traffic on a table of this process."""
    with _lock:
        return _traffic.setdefault(store.uri, Traffic())


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
    if (log := managed_by(store)) is not None and not replaces and not goes_alone(Member(prepared)):
        given = {"checks": checks, "inline_vectors": inline_vectors, "clock": clock, "sleep": sleep, "uniform": uniform}
        return served.commit(log, store, prepared, base=base, policy=policy, seen_at=seen_at, **given)
    own = f"{_PROCESS}{threading.get_ident():x}"
    prepared = msgspec.structs.replace(prepared, commit_info={**prepared.commit_info, intent_file.WRITER: own})
    traffic, now = traffic_of(store), clock()
    alone = managed_by(store) is not None or base is None or goes_alone(Member(prepared))
    if not alone and not always and not traffic.shares(now, own) and now - traffic.lists_at >= 0.5:
        traffic.lists_at = now
        if any(_listing(store)):
            traffic.saw((), now, shared=True)
    share = always or bool(replaces) or traffic.shares(now, own)
    writer: _Writer | None = None
    if not alone and share and base is not None:
        shell = (checks, inline_vectors, withdraw)
        writer = _Writer(store, prepared, base, policy, seen_at, replaces, traffic, (clock, sleep, uniform), shell)
        found = writer.run()
        if found is not None:
            return found
    if replaces and not (writer is not None and writer.passed):
        raise CommitFailedError(
            "a transaction that replaces another one has to be put as an intent, which this one cannot be: it "
            "changes more than rows, is too large, or the table has a catalog. Nothing was committed; withdraw the "
            "other one by DeltaTable.outcome(..., withdraw=True), and commit without replaces"
        )
    outcome = driver.commit(
        store,
        prepared,
        policy=policy,
        seen_at=seen_at,
        base=base,
        checks=checks,
        inline_vectors=inline_vectors,
        clock=clock,
        sleep=sleep,
        uniform=uniform,
    )
    winners = (outcome.log or ())[: len(outcome.rebased_over)]
    traffic.saw((intent_file.names_in(data)[2] for data in winners), clock())
    return outcome


def _listing(store: Store) -> list[ObjectInfo]:
    with store_errors("list the intents"):
        return [info for info in store.list(f"{intent_file.FOLDER}/i-") if parse_intent_key(info.key) is not None]


class _Stale(StoreError):
    """The listing is too old for a put."""


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
        chain: the commit files that were read.
        newest: the last of them, in order from the base.
    """

    def __init__(
        self,
        store: Store,
        prepared: PreparedCommit,
        base: CommitIdentity,
        policy: RetryPolicy,
        seen_at: float | None,
        replaces: tuple[str, ...],
        traffic: Traffic,
        time_and_chance: tuple[Any, Any, Any],
        shell: tuple[RowChecks, bool, Withdraw],
    ) -> None:
        self.store, self.prepared, self.base, self.policy, self.replaces = store, prepared, base, policy, replaces
        self.clock, self.sleep, self.uniform = time_and_chance
        self.traffic = traffic
        self.checks, self.inline_vectors, self.withdraw = shell
        self.committer = _Committer(store, prepared.read_version, seen_at=seen_at, base=base, clock=self.clock)
        self.chain, self.newest = Chain(), prepared.read_version
        self.began, self.put_seconds = self.clock(), 0.0
        self.listed_at: float | None = None
        self.shells: list[driver.Shell] = []
        self.in_doubt = self.passed = False
        self.rebased: tuple[int, ...] = ()

    # --- the writer ---

    def run(self) -> CommitOutcome | None:
        """Commit; None, with nothing done, where it has to go alone."""
        read = self.prepared.read_version
        with store_errors("commit"):
            data = self.committer.read(read, read)[0]
        if data is None or not self.base.is_commit(data):
            return None
        self.chain.note(read, data)
        if self._read_on(most=_LATE) >= _LATE:
            return None
        now_ms = time.time_ns() // 1_000_000
        body = encode_intent(self.prepared, read, self.chain.hashes[read], replaces=self.replaces, now_ms=now_ms)
        if body is None:
            return None
        self.head = intents.Head(
            id=self.prepared.txn_id, base=read, base_hash=self.chain.hashes[read], replaces=self.replaces
        )
        self.key = intent_key(read, self.prepared.txn_id)
        self.put_at = self.clock(), time.time()
        try:
            self.store.put_if_absent(self.key, body)
        except StorageError:
            return None  # nothing was created
        try:
            return self._wait()
        except _Passed:
            self.passed = True
            return None
        except _Ended as ended:
            self._remove_vectors(())
            self._forget([self.key])
            raise ended.error from ended.error.__cause__

    def _wait(self) -> CommitOutcome:
        losses, failures = 0, 0
        patience = self.clock() + self._patience(0)
        while True:
            try:
                fresh = self._read_on()
                ended = self._fate()
                if ended is None and self.clock() >= patience:
                    ended = self._lead()
                    losses += 1
                    patience = self.clock() + self._patience(losses)
                    fresh = 1
            except (StoreError, InvalidLogError, CommitFailedError) as error:
                # Its own failures end nothing: another leader may have the intent in its list.
                failures += 1
                if failures > self.policy.max_repeats:
                    raise self._unknown(f"its intent may be committed, and the store failed: {error}") from error
                fresh, ended = 0, None
            if ended is not None:
                return ended
            now = self.clock()
            if now - self.began > self.policy.max_seconds:
                raise self._unknown("it waited for its leader, or to lead, longer than max_commit_seconds")
            if not fresh:
                self.sleep(min(self._lead_seconds / 4, max(0.001, patience - now)))
                self.committer.waited()

    @property
    def _lead_seconds(self) -> float:
        if self.chain.lead_ms is not None:
            self.traffic.lead_seconds = self.chain.lead_ms / 1000
        first = _FIRST_SECONDS_NEARBY if self.committer.nearby else _FIRST_SECONDS
        return max(0.002, self.traffic.lead_seconds or first)

    def _patience(self, losses: int) -> float:
        return float(self.uniform(1.5, 3.0) * self._lead_seconds * min(8, 2**losses))

    def _read_on(self, most: int = 2**20) -> int:
        """Read the versions that came since. Returns how many there were."""
        count = 0
        with store_errors("commit"):
            while count < most and (data := self.committer.read(self.newest + 1, self.newest + 1)[0]) is not None:
                self.newest += 1
                count += 1
                self.chain.note(self.newest, data)
                members = self.chain.named[self.newest].members
                if self.prepared.txn_id not in members:
                    self.traffic.saw([self.chain.writers[self.newest]], self.clock(), shared=len(members) > 1)
        return count

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
        read = self.prepared.read_version
        return CommitOutcome(
            version=version,
            member=self._place(version),
            attempts=max(1, len(self.shells)),
            rebased_over=tuple(range(read + 1, version)),
            recovered=self.in_doubt,
            puts=0,
            log=self.committer.log_after(read, version),
        )

    def _place(self, version: int) -> int | None:
        """The place of this transaction, or of an earlier try of it, in a version with several."""
        members = self.chain.named[version].members if version in self.chain.named else ()
        names = (self.prepared.txn_id, *self.head.replaces)
        return next((place for place, name in enumerate(members) if name in names), None) if len(members) > 1 else None

    def _refusal(self, found: intents.Fate) -> Exception:
        """The error of the conflict. The writer's own check over the same versions has all its details."""
        member = Member(self.prepared, self.policy)
        rest = (found.version or 0) - 1
        shell = _Shell(self, {})
        try:
            run_loop(check_loop(member, rest), shell.perform)
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
        began = self.listed_at = self.clock()
        infos = sorted(_listing(self.store), key=lambda info: info.mtime_ms)
        own = Listed(self.head, Member(self.prepared, self.policy), files_ms=self._files_ms())
        others = self._read_intents(infos)
        working = lambda: round(1000 * (self.clock() - began + self.put_seconds))  # noqa: E731
        shell = _Shell(self, {one.head.id: one for one in others})
        self.shells.append(shell)
        limits = msgspec.structs.replace(self.policy, max_repeats=3)
        try:
            run_loop(lead_loop(own, others, self.chain, limits, working), shell.perform)
        except (_Stale, CommitRetriesExhaustedError):
            return None
        except CommitOutcomeUnknownError:
            self.in_doubt = True  # the names in the next version decide
            return None
        except InvalidLogError:
            if not others:
                raise
            return None
        finally:
            self.put_seconds = shell.put_seconds or self.put_seconds
            self.newest = max(self.newest, self._contiguous())
        found = own.member.outcome
        if isinstance(found, CommitOutcome) and found.version is not None:
            self._note_own(found.version)
            self._sweep(infos, found.version)
            ended = self._outcome(found.version)
            return dataclasses.replace(
                found, attempts=ended.attempts, log=ended.log, rebased_over=ended.rebased_over, vectors=()
            )
        if isinstance(found, Exception):
            return self._withdraw(found)
        return None

    def _contiguous(self) -> int:
        newest = self.newest
        while newest + 1 in self.chain.named:
            newest += 1
        return newest

    def _note_own(self, version: int) -> None:
        data = self.committer.held(version)
        if data is not None:
            self.chain.note(version, data)
            self.newest = max(self.newest, self._contiguous())
            members = self.chain.named[version].members
            self.traffic.saw((), self.clock(), shared=len(members) > 1)

    def _withdraw(self, error: Exception) -> CommitOutcome | None:
        """The leader's own transaction fails. It may still lie in another leader's list, so a version must say it."""
        if self.withdraw(self.store, self.prepared.txn_id, self.replaces) is not None:
            self._read_on()  # another leader has decided
            return self._fate()
        raise _Ended(_Shell(self, {}).described(error, self.prepared))

    def _files_ms(self) -> int:
        written = self.prepared.read_set.written_since
        return 0 if written is None else max(0, time.time_ns() // 1_000_000 - written)

    def _read_intents(self, infos: list[ObjectInfo]) -> list[Listed]:
        """The intents of others, the oldest first, without those that are too old."""
        mine = next((info.mtime_ms for info in infos if info.key == self.key), None)
        if mine is None:
            return []  # without an object of its own it does not know the store's time
        # The store's time: that of its own intent, and the time since then by the clock that went on furthest.
        since = max(self.clock() - self.put_at[0], time.time() - self.put_at[1])
        now_ms = max(mine + round(1000 * since), *(info.mtime_ms for info in infos))
        wanted = [info for info in infos if info.key != self.key and now_ms - info.mtime_ms <= intents.FRESH_MS]
        found: list[Listed] = []
        size = 0
        for info, data in self._get(wanted[:MOST_READ]):
            intent = decode_intent(data, info.key)
            prepared = None if intent is None else prepared_of(intent, self.prepared)
            if intent is None or prepared is None or len(found) >= MOST_MEMBERS - 1:
                continue
            size += len(data)
            if (found and size > intent_file.MAX_BYTES) or not self._has_read(intent):
                continue
            try:
                member = Member(prepared, self.policy)
            except DeltaError:
                continue
            files_ms = max(0, info.mtime_ms - intent.written_ms)
            found.append(Listed(intent.head, member, now_ms - info.mtime_ms, files_ms))
        return found

    def _has_read(self, intent: intent_file.Intent) -> bool:
        """Whether all commits since an intent's base, and since the version that it read, are there."""
        own, chain = self.prepared.read_version, self.chain
        first = min(intent.base, intent.read_version + 1)
        if first <= own - intents.WINDOW:
            return False
        missing = [version for version in range(first, own) if version not in chain.named]
        if missing:
            with store_errors("commit"):
                for version, data in enumerate(self.committer.read(missing[0], missing[-1]), missing[0]):
                    if data is not None:
                        chain.note(version, data)
        return all(version in chain.named for version in range(first, own))

    def _get(self, infos: list[ObjectInfo]) -> list[tuple[ObjectInfo, bytes]]:
        try:
            return list(zip(infos, self.store.get_many([info.key for info in infos]), strict=True))
        except StorageError:
            found = []  # some are gone by now: each by itself
            for info in infos:
                try:
                    found.append((info, self.store.get(info.key)))
                except StorageError:
                    continue
            return found

    def _sweep(self, infos: list[ObjectInfo], version: int) -> None:
        """Delete the intents that the versions name, and those past their window."""
        named = {name for one in self.chain.named.values() for name in (*one.members, *one.refused, *one.withdrawn)}
        keys = []
        for info in infos:
            found = parse_intent_key(info.key)
            if found is not None and (found[1] in named or not intents.in_window(found[0], version + 1)):
                keys.append(info.key)
        self._forget(keys)

    def _forget(self, keys: Iterable[str]) -> None:
        try:
            self.store.delete(keys)
        except StorageError:
            return  # litter that the next leader deletes

    def _remove_vectors(self, commits: Iterable[bytes]) -> None:
        """Remove the vectors that this writer wrote as a leader, and that the version does not name."""
        text = b"".join(commits)
        for shell in self.shells:
            vectors = [one for one in shell.vectors if one.path_or_inline_dv.encode() not in text]
            remove_vectors(self.store, vectors)
            shell.vectors = []


class _Committer(FileCommitter):
    """A committer that reads each commit file once: several transactions are checked against the same ones."""

    def read(self, first: int, last: int) -> tuple[bytes | None, ...]:
        held = [self.held(version) for version in range(first, last + 1)]
        return tuple(held) if None not in held else super().read(first, last)


class _Shell(driver.Shell):
    """Carries out the effects of a leader. The rows of winners are compared with the leader's own reads only."""

    def __init__(self, writer: _Writer, others: dict[str, Listed]) -> None:
        super().__init__(
            writer.store,
            writer.committer,
            {writer.prepared.txn_id: writer.checks},
            writer.policy,
            writer.inline_vectors,
            writer.clock,
            writer.sleep,
            writer.uniform,
        )
        self.writer, self.others = writer, others

    def perform(self, effect: effects.Effect) -> effects.Reply:
        if isinstance(effect, effects.TryCommit):
            listed = self.writer.listed_at
            if listed is not None and not intents.may_put(self.clock() - listed):
                return effects.Failed(_Stale("the listing of the intents is too old"))
        if isinstance(effect, effects.MatchRows | effects.ConfirmRows) and effect.txn_id in self.others:
            return effects.Failed(StoreError("rows are compared by the transaction's own writer"))
        if isinstance(effect, effects.Pause) and effect.reason == "lost":
            return effects.Elapsed(self.clock() - self.started)
        return super().perform(effect)


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
