"""The leader of the intents of a table: it reads them, and puts versions that have those that stand as members.

A writer leads for its own transaction first. Where there are intents of others, its leader then goes on in the
background (:meth:`Leader.go_on`): while the put of one version is under way it lists and reads the intents for the next
one. Nothing is built on a version before its put is settled; what is read ahead are intents only.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec

from refdelta.core.commit import effects, intent_file, intents
from refdelta.core.commit.intent_file import decode_intent, parse_intent_key, prepared_of
from refdelta.core.commit.leading import Chain, Listed, lead_loop
from refdelta.core.commit.member import Member
from refdelta.core.commit.transaction import CommitOutcome, PreparedCommit
from refdelta.core.conflicts.reads import ReadSet
from refdelta.engine.log.file_committer import FileCommitter
from refdelta.engine.parquet.dv import remove_vectors
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import DeltaError, StoreError
from refdelta.transaction import background, driver
from refdelta.transaction.commit_info import now_ms
from refdelta.transaction.driver import NO_CHECKS, RetryPolicy, RowChecks, run_loop
from refdelta.transaction.events import Watch
from refdelta.transaction.traffic import Traffic, listed
from refdelta_storage import ObjectInfo, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from refdelta_storage import Store

MOST_READ = 256
"""The number of intents that a leader reads."""
MOST_MEMBERS = 128
"""The number of members of a version."""

IDLE_SECONDS = 0.3
"""The time without intents after which a leader in the background ends."""
TERM_SECONDS = 60.0
"""The longest time that a leader goes on for others. It knows the time of the store by its own intent."""

_KEPT = intents.WINDOW + 1
"""The number of commit files that a leader in the background holds."""

log = logging.getLogger("refdelta")


class StaleError(StoreError):
    """The listing is too old for a put."""


class ReadIntent(msgspec.Struct, frozen=True):
    """An intent that was read.

    Attributes:
        intent: its content.
        prepared: its transaction.
        size: its size in bytes.
    """

    intent: intent_file.Intent
    prepared: PreparedCommit
    size: int


class Listing(msgspec.Struct, frozen=True):
    """The intents beside the log.

    Attributes:
        at: when the listing began, in seconds of the clock.
        infos: their files, the oldest first.
        now_ms: the time of the store, in milliseconds; None where it is not known, and so not the age of any.
        found: those that were read, by their keys.
    """

    at: float
    infos: Sequence[ObjectInfo]
    now_ms: int | None
    found: dict[str, ReadIntent]


class LeaderCommitter(FileCommitter):
    """A committer that reads each commit file once: several transactions are checked against the same ones."""

    def commit(self, version: int, data: bytes) -> effects.Committed | effects.Exists | effects.Unknown:
        """See :class:`FileCommitter`. An own version was seen when it was put."""
        outcome = super().commit(version, data)
        if isinstance(outcome, effects.Committed):
            self._seen[version] = self._clock()
        return outcome

    def read(self, first: int, last: int) -> tuple[bytes | None, ...]:
        """See :class:`FileCommitter`."""
        held = [self.held(version) for version in range(first, last + 1)]
        return tuple(held) if None not in held else super().read(first, last)

    def read_on(self, first: int, ahead: int) -> list[bytes]:
        """The commit files from a version on, up to a gap, of at most so many versions, which are read side by side."""
        if ahead <= 1 or self.held(first) is not None:
            found = self.read(first, first)[0]
            return [] if found is None else [found]
        there: list[bytes] = []
        for version, data in enumerate(self._each(range(first, first + ahead)), first):
            if data is None:
                break
            self._note(version, data)
            there.append(data)
        return there

    def newest(self, after: int) -> int:
        """See :class:`FileCommitter`; from the newest one on that is held."""
        while self.held(after + 1) is not None:
            after += 1
        return super().newest(after)

    def put_last(self, version: int) -> None:
        """Take an own version for the newest one: the put of the next one shows whether it is."""
        self._ahead.setdefault(version + 1, None)

    def forget(self, before: int) -> None:
        """Hold no commit files of versions before this one."""
        for version in [one for one in self._log if one < before]:
            self._log_bytes -= len(self._log.pop(version))


class Leader:
    """A leader of the intents of a table.

    Args:
        store: the table's store.
        committer: its log.
        chain: the commit files that were read.
        like: the transaction of the writer that leads, whose table, clock and free row ids the others get.
        policy: the limits and delays of retries.
        traffic: the writers of the table.
        times: the clock, in monotonic seconds; waits for some seconds; a random number between two.
        inline_vectors: whether small deletion vectors are stored in the log.

    Attributes:
        own: the key of the writer's own intent, and the time of this process, by two clocks, when it was put.
        put_seconds: the time of its last put.
    """

    def __init__(
        self,
        store: Store,
        committer: LeaderCommitter,
        chain: Chain,
        like: PreparedCommit,
        policy: RetryPolicy,
        traffic: Traffic,
        times: tuple[Any, Any, Any],
        *,
        inline_vectors: bool,
    ) -> None:
        self.store, self.committer, self.chain, self.like = store, committer, chain, like
        self.policy, self.traffic, self.inline_vectors = policy, traffic, inline_vectors
        self.clock, self.sleep, self.uniform = times
        self.own: tuple[str, float, float] = ("", 0.0, 0.0)
        self.put_seconds = 0.0
        self._own_ms: int | None = None
        self._read: dict[str, ReadIntent | None] = {}

    # --- the intents ---

    def look(self) -> Listing:
        """List the intents, and read those that are new. Raises ``StoreError``."""
        at = self.clock()
        infos = sorted(listed(self.store), key=lambda info: info.mtime_ms)
        key, put_at, wall = self.own
        mine = next((info.mtime_ms for info in infos if info.key == key), self._own_ms)
        if mine is None or not infos:
            return Listing(at, infos, None, {})  # without an object of its own it does not know the store's time
        self._own_ms = mine
        # The store's time: that of its own intent, and the time since then by the clock that went on furthest.
        since = max(self.clock() - put_at, time.time() - wall)
        now = max(mine + round(1000 * since), *(info.mtime_ms for info in infos))
        wanted = [info for info in infos if info.key != key and now - info.mtime_ms <= intents.FRESH_MS][:MOST_READ]
        self._read = {info.key: self._read[info.key] for info in wanted if info.key in self._read}
        for info, data in self._get([info for info in wanted if info.key not in self._read]):
            intent = decode_intent(data, info.key)
            prepared = None if intent is None else prepared_of(intent, self.like)
            usable = intent is not None and prepared is not None
            self._read[info.key] = ReadIntent(intent, prepared, len(data)) if usable else None  # type: ignore[arg-type]
        found = {info.key: one for info in wanted if (one := self._read.get(info.key)) is not None}
        return Listing(at, infos, now, found)

    def others(self, listing: Listing) -> list[Listed]:
        """The intents of other writers that may be members of the next version, the oldest first. Raises
        ``StoreError``.
        """
        named = self.chain.names
        taken: list[Listed] = []
        size = 0
        for info in listing.infos:
            one = listing.found.get(info.key)
            if one is None or listing.now_ms is None or one.intent.id in named or len(taken) >= MOST_MEMBERS - 1:
                continue
            size += one.size
            if (taken and size > intent_file.MAX_BYTES) or not self._has_read(one.intent):
                continue
            try:
                member = Member(one.prepared, self.policy)
            except DeltaError:
                continue
            files_ms = max(0, info.mtime_ms - one.intent.written_ms)
            taken.append(Listed(one.intent.head, member, listing.now_ms - info.mtime_ms, files_ms))
        return taken

    def _has_read(self, intent: intent_file.Intent) -> bool:
        """Whether all commits since an intent's base, and since the version that it read, are there."""
        own, chain = self.like.read_version, self.chain
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
        if not infos:
            return []
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

    def named_in(self, infos: Iterable[ObjectInfo], version: int) -> list[str]:
        """The keys of the intents that the versions up to this one name, and of those past their window."""
        keys = []
        for info in infos:
            found = parse_intent_key(info.key)
            if found is not None and (found[1] in self.chain.names or not intents.in_window(found[0], version + 1)):
                keys.append(info.key)
        return keys

    def forget(self, keys: Iterable[str]) -> None:
        """Delete intents."""
        try:
            self.store.delete(keys)
        except StorageError:
            return  # litter that the next leader deletes

    # --- versions ---

    def lead(
        self,
        own: Listed | Member,
        listing: Listing,
        others: Sequence[Listed],
        checks: RowChecks = NO_CHECKS,
        pool: ThreadPoolExecutor | None = None,
        watch: Watch | None = None,
    ) -> LeaderShell:
        """Put a version. Returns the shell that did it; the ends are the ``outcome`` of each transaction.

        Args:
            own: see :func:`~refdelta.core.commit.leading.lead_loop`, of which the errors are.
            listing: the listing.
            others: those of it that may be members.
            checks: looks at the rows of winners for its own transaction.
            pool: runs the next listing, as :attr:`LeaderShell.ahead`, while the put is under way; None for none.
            watch: measures the effects; None for no observer.

        Raises:
            StaleError: the listing is too old; nothing was put.
        """
        shell = LeaderShell(self, listing, {one.head.id for one in others}, checks, pool)
        working = lambda: round(1000 * (self.clock() - listing.at + self.put_seconds))  # noqa: E731
        limits = msgspec.structs.replace(self.policy, max_repeats=3)
        try:
            run_loop(lead_loop(own, others, self.chain, limits, working), (watch or Watch()).timed(shell.perform))
        except Exception as error:  # noqa: BLE001 - the caller has to clean up, whatever it is
            shell.error = error
        self.put_seconds = shell.put_seconds or self.put_seconds
        return shell

    def note(self, version: int) -> None:
        """Note a version that was put, in the chain and in the traffic."""
        data = self.committer.held(version)
        if data is not None:
            self.chain.note(version, data)
            self.traffic.saw(self.chain.writers[version], self.clock())
            self.traffic.keep(version, data)

    # --- in the background ---

    def go_on(self, listing: Listing, version: int) -> None:
        """Do the rest in the background, after an own version was put: delete the intents that it names, and go on for
        others until for a time there are no intents. Where another leader of this process does so, this one follows it.

        Args:
            listing: the listing of which the version was made.
            version: the version.
        """
        keys = self.named_in(listing.infos, version)
        if not any(info.key != self.own[0] for info in listing.infos):
            self.forget(keys)
            return
        self.committer.put_last(version)
        stay = functools.partial(self._stay, keys)
        if not background.run(self.store.uri, background.LEADING, stay, unless_busy=True):
            self.forget(keys)
            self.committer.waited()  # there will be further versions
            background.run(self.store.uri, background.LEADING, functools.partial(self._stay, []))

    def _stay(self, keys: Sequence[str]) -> None:
        like = self.like
        # A transaction that changes nothing: it follows the clock and the free row ids.
        beside = PreparedCommit(
            read_version=like.read_version,
            read_set=ReadSet(version=like.read_version),
            actions=[],
            commit_info={"operation": "WRITE"},
            txn_id=str(uuid.uuid4()),
            table=like.table,
            clock=like.clock,
            row_ids=like.row_ids,
            name_of=like.name_of,
        )
        try:
            with ThreadPoolExecutor(2, thread_name_prefix="refdelta-leader") as pool:
                pool.submit(self.forget, keys)
                self._rounds(Member(beside, self.policy), pool)
        except (DeltaError, RuntimeError) as error:
            # No writer waits for it: those whose intents it had lead themselves. No pool accepts anything in a process
            # that ends.
            log.debug("the leader of the intents of %s ends: %s", self.store.uri, error)

    def _rounds(self, beside: Member, pool: ThreadPoolExecutor) -> None:
        busy = self.clock()
        ahead: Future[Listing] | None = None
        while not background.is_awaited() and self.clock() - self.own[1] <= TERM_SECONDS:
            listing = (ahead or pool.submit(self.look)).result()
            ahead = None
            others = self.others(listing)
            if not others:
                if not self._waits(busy):
                    return
                continue
            if beside.clock is not None:
                beside.clock = msgspec.structs.replace(beside.clock, now_ms=now_ms())
            shell = self.lead(beside, listing, others, pool=pool)
            ahead = shell.ahead
            if isinstance(shell.error, StaleError):
                ahead = None
                continue
            found = [one.member.outcome for one in others if isinstance(one.member.outcome, CommitOutcome)]
            put = found[0].version if found else None
            if put is None or not shell.has_put(put):
                shell.clean_up()
                if shell.error is None and beside.outcome is None and shell.put is None:
                    # None of them can be a member; perhaps one that comes.
                    if not self._waits(busy):
                        return
                    continue
                # Another leader was faster, the metadata changed, the store failed, or the put is in doubt.
                log.debug("the leader of the intents of %s ends: %s", self.store.uri, shell.error or beside.outcome)
                return
            busy = self.clock()
            self.note(put)
            shell.clean_up()
            pool.submit(self.forget, self.named_in(listing.infos, put))
            self.committer.put_last(put)
            self.committer.forget(put - _KEPT)

    def _waits(self, busy: float) -> bool:
        """Wait before the next look. Returns False, at once, if the last version is too long ago."""
        if self.clock() - busy > IDLE_SECONDS:
            return False
        self.sleep(max(0.01, self.put_seconds / 4))
        return True


class LeaderShell(driver.Shell):
    """Carries out the effects of a leader. The rows of winners are compared with the leader's own reads only.

    Attributes:
        error: the error with which the loop ended, if it did.
        put: the version and the bytes of the last put.
        ahead: the next listing, which began with the last put.
    """

    def __init__(
        self,
        leader: Leader,
        listing: Listing | None,
        others: set[str],
        checks: RowChecks,
        pool: ThreadPoolExecutor | None,
    ) -> None:
        super().__init__(
            leader.store,
            leader.committer,
            {leader.like.txn_id: checks},
            leader.policy,
            leader.inline_vectors,
            leader.clock,
            leader.sleep,
            leader.uniform,
            leader.traffic.vectors,
        )
        self.leader, self.listing, self.others, self.pool = leader, listing, others, pool
        self.error: Exception | None = None
        self.put: tuple[int, bytes] | None = None
        self.ahead: Future[Listing] | None = None

    def perform(self, effect: effects.Effect) -> effects.Reply:
        """See :class:`refdelta.transaction.driver.Shell`."""
        if isinstance(effect, effects.TryCommit):
            if self.listing is not None and not intents.may_put(self.clock() - self.listing.at):
                return effects.Failed(StaleError("the listing of the intents is too old"))
            if self.pool is not None and (self.ahead is None or self.ahead.done()):
                with contextlib.suppress(RuntimeError):  # the process ends, and this put is the last one
                    self.ahead = self.pool.submit(self.leader.look)
            self.put = effect.version, effect.data
        if isinstance(effect, effects.MatchRows | effects.ConfirmRows) and effect.txn_id in self.others:
            return effects.Failed(StoreError("rows are compared by the transaction's own writer"))
        if isinstance(effect, effects.Pause) and effect.reason == "lost":
            return effects.Elapsed(self.clock() - self.started)
        return super().perform(effect)

    def has_put(self, version: int) -> bool:
        """Whether the version in the log is the one that was put."""
        return self.put is not None and self.put == (version, self.held(version))

    def clean_up(self, commits: Sequence[bytes] | None = None) -> None:
        """Remove the vectors that no version names, unless a put may still be carried out.

        Args:
            commits: the versions that may name them; None for the one that the last put was to be.
        """
        if commits is None:
            if self.error is not None or self.put is None:
                if self.error is not None and not isinstance(self.error, driver.CERTAIN_FAILURES):
                    return
                commits = ()
            elif (there := self.held(self.put[0])) is None:
                return
            else:
                commits = (there,)
        text = b"".join(commits)
        remove_vectors(self.store, [one for one in self.vectors if one.path_or_inline_dv.encode() not in text])
        self.vectors = []
