"""Commits by the server of a catalog, which commits the transactions of several clients as one version.

The server gets the same content that an intent beside the log has. It answers with the outcome, or that the transaction
is to go alone. Where the answer is lost, the log decides: the transaction is committed alone *under the same id*.
Client and server read all versions since the one that the transaction read before they commit it at another one, and
find the id if the other side was faster; so it is committed at most once.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from refdelta.core.commit.intent_file import encode_intent
from refdelta.core.commit.transaction import CommitOutcome
from refdelta.engine.log.managed_log import SharingRatifier
from refdelta.errors import CommitOutcomeUnknownError, ConcurrentModificationError
from refdelta.transaction import driver

if TYPE_CHECKING:
    from refdelta.core.commit.transaction import CommitTally, PreparedCommit
    from refdelta.engine.log.managed_log import ManagedStore
    from refdelta.transaction.driver import RetryPolicy
    from refdelta.transaction.events import Watch
    from refdelta_storage import Store, Unknown


def commit(
    log: ManagedStore,
    store: Store,
    prepared: PreparedCommit,
    *,
    policy: RetryPolicy,
    watched: tuple[Watch, CommitTally],
    **given: Any,
) -> CommitOutcome:
    """Commit a transaction by the server of its catalog; alone, if the server does not take it.

    Args:
        log: the log of the table.
        store: the table's store.
        prepared: the transaction.
        policy: the limits and delays of retries.
        watched: measures the commit, and counts.
        given: the other arguments of :func:`refdelta.transaction.driver.commit`, of which the errors are.
    """
    found = _shared(log, prepared, policy)
    if isinstance(found, CommitOutcome):
        tally = watched[1]
        tally.attempts, tally.winners = found.attempts, len(found.rebased_over)
        return found
    try:
        outcome = driver.commit(store, prepared, policy=policy, watched=watched, **given)
    except ConcurrentModificationError:
        # The server finds the conflict, too, whichever version it would commit at.
        raise
    except driver.CERTAIN_FAILURES as error:
        if found is None:
            raise
        # It is certain that this process has not committed it; the server still may, at this version or a later one.
        why = f"the server of the catalog may commit it, and its answer was lost ({found.cause}); then: {error}"
        raise CommitOutcomeUnknownError(why, log.latest + 1, prepared.txn_id, store.uri) from error
    return outcome if found is None else dataclasses.replace(outcome, recovered=True)


def _shared(log: ManagedStore, prepared: PreparedCommit, policy: RetryPolicy) -> CommitOutcome | Unknown | None:
    ratifier = log.ratifier
    if not isinstance(ratifier, SharingRatifier):
        return None
    intent = encode_intent(prepared, prepared.read_version, "", now_ms=time.time_ns() // 1_000_000)
    return None if intent is None else ratifier.share(intent, policy.max_seconds)
