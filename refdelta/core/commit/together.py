"""A transaction over several tables: the commits of all of them take place together, or none does.

Each table has its own commit loop (:mod:`refdelta.core.commit.loop`), which checks the winners of that table. This
generator runs them side by side. As soon as each of them asks for its put, it asks for all puts at once::

    loop of a: ... TryCommit(a, N+1) --+
                                       +-- TryTogether -- all Committed -------> both end
    loop of b: ... TryCommit(b, M+1) --+              |-- a Exists, b Deferred -> a checks its winners, b asks again
                                                      +-- both Unknown ---------> each reads its version back

The shell carries out ``TryTogether`` as one transaction of a catalog's database: every table is still at the version
before, and all of them move; or nothing changes.

**Why both levels hold over all tables.** Each loop runs at the level Serializable, so what a transaction read of any
table still stands at the version before its own there; and the catalog moves all tables at one moment. So at
Serializable the transactions are in the order of their ratifications. A table that was only read takes part, too: its
version must still be the one up to which the reads were checked, or two transactions that each read what the other one
writes would both commit.

At WriteSerializable a transaction over one table may take its place before a blind append that it did not see
(:mod:`refdelta.core.conflicts.precedence`). It is then moved in front of all that follows the append in the log of its
table, and need not be compared with transactions that touch only other tables, as it touches none of these. A
transaction over several tables is never moved, and skips no append. Where it only reads a table whose transactions may
skip appends, its reads are recorded there by a commit without files: a transaction that it read may have to come
before such an append, though no row of the table shows that. On a table that is Serializable no append is skipped,
and its version is only pinned.

The commitInfo of each part names the others (:data:`GROUP`).
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from refdelta.core.commit import effects
from refdelta.core.commit.transaction import CommitOutcome
from refdelta.core.errors import CommitOutcomeUnknownError
from refdelta.core.log.actions import CommitInfo
from refdelta.core.log.codec import commit_info_of, encode_action

GROUP = "transactionGroup"
"""The field of commitInfo by which a part of a transaction over several tables names them all: ``transactionId``,
``participants`` (of each the ``tableId``, its ``tableName`` and its ``proposedVersion``), ``coordinatingCatalog``.

The names are those of an action that is proposed for the protocol (delta-io/delta #7437). It is not accepted yet, and
an action or a feature that no other engine knows would close the tables to them; unknown fields of commitInfo do not.
"""

TAG = "delta.multiTableTransaction.transactionId"
"""The tag of commitInfo with the same id, as proposed there."""


class TryTogether(msgspec.Struct, frozen=True):
    """Make each of these bytes the version of its table, or none of them. Reply: :class:`Together`.

    Attributes:
        tries: by the number of the table in the transaction, what its loop asks for.
    """

    tries: Mapping[int, effects.TryCommit]


class Together(msgspec.Struct, frozen=True):
    """The replies to the tries, by table: ``Committed`` for all of them, ``Unknown`` for all of them, or ``Exists`` for
    at least one and ``Deferred`` for the others; ``Failed`` for all of them if it is certain that nothing was
    committed.
    """

    replies: Mapping[int, effects.Reply]


class OfTable(msgspec.Struct, frozen=True):
    """An effect of the loop of one table. Reply: that of the effect.

    Attributes:
        table: the number of the table in the transaction.
        effect: the effect.
    """

    table: int
    effect: effects.Effect


Ask: TypeAlias = OfTable | TryTogether
Run: TypeAlias = Generator[Ask, "effects.Reply | Together", dict[int, CommitOutcome]]

_EXISTS = effects.Exists()


def commit_together(loops: Sequence[effects.Steps[CommitOutcome]], pinned: Collection[int] = ()) -> Run:
    """Commit the parts of a transaction over several tables: a generator, as each of their loops is.

    Args:
        loops: the commit loop of each part (:func:`refdelta.core.commit.loop.commit_loop`).
        pinned: the numbers of the parts that write nothing, not even a commit. The put of such a loop asks only
            whether its version is still free, which the reply ``Committed`` confirms.

    Returns:
        The outcomes of the parts that are not pinned, by number.

    Raises:
        CommitOutcomeUnknownError: the transaction may have been committed or not.
        Exception: an error of a loop; nothing was committed, in no table.
    """
    return _Together(loops, frozenset(pinned)).run()


class _Together:
    """One run.

    Attributes:
        tries: what each loop that waits asks for.
        outcomes: those of the loops that have ended.
        stands: whether it is certain that the transaction is committed.
    """

    def __init__(self, loops: Sequence[effects.Steps[CommitOutcome]], pinned: frozenset[int]) -> None:
        self.loops, self.pinned = loops, pinned
        self.tries: dict[int, effects.TryCommit] = {}
        self.outcomes: dict[int, CommitOutcome] = {}
        self.stands = False

    def run(self) -> Run:
        try:
            for table in range(len(self.loops)):
                yield from self._advance(table, None)
            while not self.stands or len(self.outcomes) < len(self.loops) - len(self.pinned):
                yield from self._try()
        finally:
            for loop in self.loops:
                loop.close()
        return self.outcomes

    def _try(self) -> Generator[Ask, effects.Reply | Together, None]:
        tries = dict(self.tries)
        if self.stands:
            # The database has carried out all of it. A loop that has not found its commit yet looks again.
            replies: Mapping[int, effects.Reply] = dict.fromkeys(tries.keys() - self.pinned, _EXISTS)
        else:
            reply = yield TryTogether(tries)
            if not isinstance(reply, Together):
                raise TypeError(f"{reply!r} is no reply to commits of several tables")
            replies = reply.replies
            self.stands = all(isinstance(one, effects.Committed) for one in replies.values())
        for table, found in replies.items():
            if table not in self.pinned:
                yield from self._advance(table, found)
            elif not self.stands:
                # Whether a pinned version was taken cannot be read back.
                yield from self._advance(table, effects.Deferred() if isinstance(found, effects.Unknown) else found)

    def _advance(self, table: int, reply: effects.Reply | None) -> Generator[Ask, effects.Reply | Together, None]:
        """Go on with a loop, up to its put or its end."""
        before = self.tries.pop(table, None)
        try:
            effect = self.loops[table].send(reply)  # type: ignore[arg-type]
            while not isinstance(effect, effects.TryCommit):
                effect = self.loops[table].send((yield from self._of_table(table, effect)))
        except StopIteration as ended:
            self.outcomes[table] = ended.value
            self.stands = self.stands or ended.value.version is not None
            return
        except CommitOutcomeUnknownError:
            raise
        except Exception as error:
            if self.stands and before is not None:
                raise self._torn(before, str(error)) from error
            raise
        if self.stands and before is not None and effect.version != before.version:
            raise self._torn(before, "another commit has the version")
        self.tries[table] = effect

    @staticmethod
    def _of_table(table: int, effect: effects.Effect) -> Generator[Ask, effects.Reply | Together, effects.Reply]:
        reply = yield OfTable(table, effect)
        if isinstance(reply, Together):
            raise TypeError(f"{reply!r} is no reply to an effect of one table")
        return reply

    @staticmethod
    def _torn(put: effects.TryCommit, why: str) -> CommitOutcomeUnknownError:
        txn_id = str(commit_info_of(put.data).get("txnId"))
        said = f"other tables of the transaction have it, and this one has not: {why}"
        return CommitOutcomeUnknownError(said, put.version, txn_id)


def with_group(data: bytes, group: Mapping[str, Any]) -> bytes:
    """A commit whose commitInfo names the transaction over several tables that it is a part of.

    Args:
        data: the commit, with its commitInfo first.
        group: the value of :data:`GROUP`.
    """
    first, _, others = data.partition(b"\n")
    info = commit_info_of(first)
    tags = {**(info.get("tags") or {}), TAG: group["transactionId"]}
    return encode_action(CommitInfo(fields={**info, "tags": tags, GROUP: dict(group)})) + b"\n" + others
