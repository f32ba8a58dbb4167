"""The driver of a transaction over several tables: one loop a table, and one ratification for all of them."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from refdelta.core.commit import effects
from refdelta.core.commit.loop import commit_loop
from refdelta.core.commit.together import OfTable, Together, TryTogether, commit_together, with_group
from refdelta.core.commit.transaction import CommitTally
from refdelta.engine.log.managed_committer import ManagedCommitter
from refdelta.engine.log.managed_log import CatalogReplacedError, Proposal
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import CommitOutcomeUnknownError, ConcurrentModificationError, InvalidLogError, StoreError
from refdelta.transaction.driver import NO_CHECKS, RetryPolicy, RowChecks, Shell
from refdelta.transaction.events import watching
from refdelta_storage.base import Committed, Unknown
from refdelta_storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from refdelta.core.commit.transaction import CommitOutcome, PreparedCommit
    from refdelta.engine.log.identity import CommitIdentity
    from refdelta.engine.log.managed_log import Exists, ManagedStore

_TRIES = 2
_GONE = "a table that the transaction creates is gone, or is there already"


@dataclass(frozen=True, kw_only=True)
class Part:
    """The commit of one table of a transaction over several. The fields without a description are arguments of
    :func:`refdelta.transaction.driver.commit`.

    Attributes:
        log: the table's log.
        name: the table, for the logs of all tables of the transaction.
        table_id: its id in the catalog, likewise.
        prepared: its part of the transaction.
        pinned: whether it commits nothing, and its reads only have to stand.
        placed: adds to a conflict of this table what is known of its rows.
    """

    log: ManagedStore
    name: str
    table_id: str
    prepared: PreparedCommit
    pinned: bool = False
    placed: Callable[[BaseException], None]
    policy: RetryPolicy
    seen_at: float | None = None
    base: CommitIdentity | None = None
    checks: RowChecks = NO_CHECKS
    inline_vectors: bool = False


Ratify: TypeAlias = "Callable[[Sequence[Proposal]], Sequence[Committed | Exists | Unknown | None]]"
"""Ratifies the next versions of several tables at one moment: all of them or none. Returns the outcome of each:
``Committed`` for all, ``Unknown`` for all, or ``Exists`` for each table that has a later version than the one before,
and None for the others, which were not tried. Raises ``StorageError`` if it is certain that nothing was ratified.
"""


def commit_parts(
    ratify: Ratify,
    catalog: str,
    transaction_id: str,
    parts: Sequence[Part],
    created: Sequence[Proposal] = (),
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    uniform: Callable[[float, float], float] = random.uniform,
) -> dict[int, CommitOutcome]:
    """Commit the parts of a transaction over several tables of one catalog: all of them or none.

    Args:
        ratify: ratifies the versions of all parts.
        catalog: the name of the catalog, without credentials, for the logs of all tables.
        transaction_id: the unique id of the transaction, for the logs of all its tables.
        parts: the parts, at least one of which is not pinned; none if tables are only created.
        created: the tables that come into being together with these commits, without one of their own.
        clock: monotonic seconds.
        sleep: waits for some seconds.
        uniform: a random number between two.

    Returns:
        The outcomes of the parts that are not pinned, by their numbers.

    Raises:
        As :func:`refdelta.transaction.driver.commit`. The error of one part is that of all.
    """
    shells, failed = [], list[int]()
    for part in parts:
        committer = ManagedCommitter(
            part.log, part.prepared.read_version, seen_at=part.seen_at, base=part.base, clock=clock
        )
        checks = {part.prepared.txn_id: part.checks}
        shells.append(Shell(part.log, committer, checks, part.policy, part.inline_vectors, clock, sleep, uniform))
    tallies = [CommitTally() for _ in parts]
    pinned = {number for number, part in enumerate(parts) if part.pinned}

    def noted(number: int) -> effects.Steps[CommitOutcome]:
        try:
            return (yield from commit_loop(parts[number].prepared, parts[number].policy, tallies[number]))
        except Exception:
            failed.append(number)
            raise

    ratification = _Ratification(ratify, catalog, transaction_id, parts, [shell.committer for shell in shells], created)
    if not parts:
        ratification.of_created()
        return {}
    try:
        with ExitStack() as stack:
            watches = {
                number: stack.enter_context(watching(part.log.uri, part.prepared, tallies[number]))
                for number, part in enumerate(parts)
                if number not in pinned
            }
            performs = [
                watches[number].timed(shell.perform) if number in watches else shell.perform
                for number, shell in enumerate(shells)
            ]
            outcomes = _run(commit_together([noted(n) for n in range(len(parts))], pinned), performs, ratification)
            for number, watch in watches.items():
                watch.ended = outcomes[number]
    except Exception as error:
        for number, shell in enumerate(shells):
            if number not in failed:
                shell.failed(error, None)
        for number in failed:
            parts[number].placed(error)
            if isinstance(error, ConcurrentModificationError):
                error.describe(replace(error.conflict, table=parts[number].name))
            shells[number].failed(error, parts[number].prepared)
        raise
    return {number: shells[number].ended(outcome, parts[number].prepared) for number, outcome in outcomes.items()}


def _run(
    run: Any, performs: Sequence[Callable[[effects.Effect], effects.Reply]], ratify: Callable[[TryTogether], Together]
) -> dict[int, CommitOutcome]:
    try:
        ask = next(run)
        while True:
            match ask:
                case TryTogether():
                    ask = run.send(ratify(ask))
                case OfTable(table, effect):
                    ask = run.send(performs[table](effect))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


class _Ratification:
    """Carries out :class:`~refdelta.core.commit.together.TryTogether` on a catalog."""

    def __init__(
        self,
        ratify: Ratify,
        catalog: str,
        transaction_id: str,
        parts: Sequence[Part],
        committers: Sequence[Any],
        created: Sequence[Proposal],
    ) -> None:
        self.ratify, self.catalog, self.transaction_id = ratify, catalog, transaction_id
        self.parts, self.committers, self.created = parts, committers, created

    def __call__(self, asked: TryTogether) -> Together:
        try:
            with store_errors("commit"):
                return Together(self._replies(asked.tries))
        except (StoreError, InvalidLogError) as error:
            return Together(dict.fromkeys(asked.tries, effects.Failed(error)))

    def of_created(self) -> None:
        """Make the tables that are created without a commit of their own, where there are no others.

        Raises:
            StoreError: none of them was made.
            CommitOutcomeUnknownError: all of them were made, or none.
        """
        with store_errors("commit"):
            outcomes = self._ratify([])
            lost = next((one for one in outcomes if isinstance(one, Unknown)), None)
            if lost is None and not all(isinstance(one, Committed) for one in outcomes):
                raise StorageError(_GONE)
        if lost is not None:
            raise CommitOutcomeUnknownError(
                f"{lost.cause} (the catalog lists the new tables if it was)", 0, self.transaction_id
            )

    def _replies(self, tries: Mapping[int, effects.TryCommit]) -> dict[int, effects.Reply]:
        written = {n: one for n, one in tries.items() if not self.parts[n].pinned}
        group = {
            "transactionId": self.transaction_id,
            "participants": [
                {"tableId": part.table_id, "tableName": part.name, "proposedVersion": one.version}
                for one, part in ((one, self.parts[n]) for n, one in written.items())
            ],
            "coordinatingCatalog": self.catalog,
        }
        contents = {n: with_group(one.data, group) for n, one in written.items()}
        proposals = {n: self._proposal(n, one.version, contents.get(n)) for n, one in tries.items()}
        outcomes = dict(zip(tries, self._ratify([*proposals.values()]), strict=False))
        if not any(outcomes.values()):
            raise StorageError(_GONE)
        return dict(self._concluded(proposals, contents, outcomes))

    def _proposal(self, number: int, version: int, data: bytes | None) -> Proposal:
        log = self.parts[number].log
        if data is None:
            log.look(version)
        return Proposal(log.ratifier, version - 1, None if data is None else log.proposal(version, data))

    def _ratify(self, proposals: Sequence[Proposal]) -> Sequence[Committed | Exists | Unknown | None]:
        for _ in range(_TRIES):
            try:
                return self.ratify([*proposals, *self.created])
            except CatalogReplacedError:
                for part in self.parts:
                    part.log.ask()  # compares the database with the folder
        try:
            return self.ratify([*proposals, *self.created])
        except StorageError:
            for part in self.parts:
                part.log.ask()  # a catalog that has gone back is named
            raise

    def _concluded(
        self, proposals: Mapping[int, Proposal], contents: Mapping[int, bytes], outcomes: Mapping[int, Any]
    ) -> Iterator[tuple[int, effects.Reply]]:
        for number, proposal in proposals.items():
            outcome, committer = outcomes[number], self.committers[number]
            if outcome is None:
                yield number, effects.Deferred()
            elif proposal.commit is None:
                yield number, committer.reply(proposal.before + 1, outcome)
            else:
                self.parts[number].log.concluded(proposal.commit, outcome)
                yield number, committer.reply(proposal.before + 1, outcome, contents[number])
