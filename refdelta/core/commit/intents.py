"""Intents: transactions that lie beside the log until one of the writers commits several of them as one version.

A writer puts its transaction under ``_delta_log/_intents/`` and waits. One of the writers *leads*: it reads the
intents, checks them in an order, and puts one version that has those that stand as its members. Nothing chooses the
leader but the put of the version. This module has the decisions, as functions on values: the intents that a leader may
take (:func:`left_out`), its duty to earlier tries of the same work (:func:`replaced`), and the meaning of a version to
a writer that waits (:func:`fate`). ``docs/commit-protocol.md``, "Intents", has the rules and why each is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

WINDOW: Final = 32
"""The number of versions after its base for which an intent is good."""
FRESH_MS: Final = 10_000
"""The age in milliseconds, by the clock of the store, at which no leader takes an intent any more."""
FILES_MS: Final = 86_400_000
"""The age in milliseconds of data files, when their intent is put or their writer leads, above which they are not
committed: VACUUM may be about to remove them.
"""
LISTING_SECONDS: Final = 5.0
"""The age of a listing, in seconds, after which a leader lists again instead of putting its version."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an intent that the rules need.

    Attributes:
        id: the id of its transaction, which is never used again.
        base: the newest version that its writer had read, and checked for conflicts, before it put the intent.
        base_hash: a hash of the commit file of that version.
        replaces: the ids of all earlier tries of the same work.
    """

    id: str
    base: int
    base_hash: str
    replaces: tuple[str, ...] = ()


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """The transactions that one version names.

    Attributes:
        members: those that it committed, in their order; of a commit alone, its own id.
        refused: those that conflict, with the reasons.
        withdrawn: those that will never be committed.
    """

    members: tuple[str, ...] = ()
    refused: Mapping[str, Any] = {}
    withdrawn: frozenset[str] = frozenset()

    def __contains__(self, txn_id: str) -> bool:
        return txn_id in self.members or txn_id in self.refused or txn_id in self.withdrawn


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An intent, and what a leader knows when it wants to take it.

    Attributes:
        head: the intent.
        version: the version that the leader is about to put.
        base_hash: the hash of the commit file of ``head.base`` in the leader's log; None if it is not there.
        chain: what each of the versions ``head.base + 1`` to ``version - 1`` names, by its commit file; None for one
            whose commit file is not there.
        age_ms: how long ago the intent was put, by the clock of the store, in milliseconds; None for the leader's own.
        files_ms: the age of its data files, in milliseconds: when the intent was put; now, for the leader's own.
        window: the number of versions for which an intent is good.
    """

    head: Head
    version: int
    base_hash: str | None
    chain: Sequence[Named | None]
    age_ms: int | None = None
    files_ms: int = 0
    window: int = WINDOW


Rule = Callable[[Candidate], bool]


def _has_another_base(one: Candidate) -> bool:
    return one.base_hash is not None and one.base_hash != one.head.base_hash


def _misses_a_commit(one: Candidate) -> bool:
    return one.base_hash is None or len(one.chain) != one.version - 1 - one.head.base or None in one.chain


def _is_named(one: Candidate) -> bool:
    return any(version is not None and one.head.id in version for version in one.chain)


def _is_past_its_window(one: Candidate) -> bool:
    return not in_window(one.head.base, one.version, one.window)


def _is_stale(one: Candidate) -> bool:
    return one.age_ms is not None and one.age_ms > FRESH_MS


def _has_old_files(one: Candidate) -> bool:
    return one.files_ms > FILES_MS


RULES: Final[Mapping[str, Rule]] = {
    "base": _has_another_base,
    "missing": _misses_a_commit,
    "named": _is_named,
    "window": _is_past_its_window,
    "stale": _is_stale,
    "files": _has_old_files,
}
"""The rules by which a leader leaves an intent out, in silence: its writer learns nothing from it, and may lead itself.

- ``base``: the version that the intent builds on is another commit; the table was removed and made anew.
- ``missing``: a commit file from the base to the new version is not there, so it is not known what it names.
- ``named``: one of these versions names the transaction: it was committed, refused or withdrawn.
- ``window``: the new version is past the intent's window, and its writer may have reported a failure.
- ``stale``: the intent is too old by the clock of the store; its writer may be dead, and its files removed.
- ``files``: its data files were too old when the intent was put, as those of a process that was suspended.
"""


def left_out(candidate: Candidate, rules: Mapping[str, Rule] = RULES) -> str | None:
    """The name of the first rule by which a leader may not take an intent; None if it may."""
    return next((name for name, applies in rules.items() if applies(candidate)), None)


def in_window(base: int, version: int, window: int = WINDOW) -> bool:
    """Whether an intent with this base may be a member of this version."""
    return base < version <= base + window


def committed_before(head: Head, chain: Iterable[Named | None]) -> str | None:
    """The id of an earlier try of the same work that one of these versions committed; None if there is none. A leader
    then names the later try as withdrawn, and its writer has committed.
    """
    members = {one for version in chain if version is not None for one in version.members}
    return next((one for one in head.replaces if one in members), None)


def replaced(heads: Iterable[Head]) -> frozenset[str]:
    """The earlier tries of the same work. A leader does not take them beside the later one, and a version that names
    the later one, whether as a member, refused or withdrawn, names them as withdrawn.
    """
    return frozenset(old for head in heads for old in head.replaces)


class Fate(msgspec.Struct, frozen=True):
    """The state of a transaction by the log.

    Attributes:
        kind: ``member``: it is committed. ``replaced``: an earlier try of the same work is. ``refused`` and
            ``withdrawn``: it is not, and never will be. ``passed``: its window has passed without it; it is not
            committed, and never will be. ``open``: it may still be. ``unknown``: the log cannot tell.
        version: the version that says so; None for ``open`` and ``unknown``.
        why: the reason of a refusal; the id of the earlier try that is committed.
    """

    kind: Literal["member", "replaced", "refused", "withdrawn", "passed", "open", "unknown"]
    version: int | None = None
    why: Any = None


def fate(head: Head, base_hash: str | None, chain: Sequence[Named | None], window: int = WINDOW) -> Fate:
    """The state of a transaction by the versions after its base.

    A verdict stands only if the base of the transaction is still the commit that its writer read, when asked *after*
    the versions were read: log cleanup begins with the oldest version, so all of them are then of this table.

    Args:
        head: the transaction.
        base_hash: the hash of the commit file of ``head.base``, read after the chain; None if it is not there.
        chain: what the versions from ``head.base + 1`` on name, up to the newest; None for a commit that is missing.
        window: the number of versions for which an intent is good.
    """
    if base_hash != head.base_hash:
        return Fate("unknown")
    for version, named in enumerate(chain, head.base + 1):
        if named is None:
            return Fate("unknown")
        if head.id in named.members:
            return Fate("member", version)
        if head.id in named.refused:
            return Fate("refused", version, named.refused[head.id])
        if (before := committed_before(head, (named,))) is not None:
            return Fate("replaced", version, before)
        if head.id in named.withdrawn:
            return Fate("withdrawn", version)
    if not in_window(head.base, head.base + len(chain) + 1, window):
        return Fate("passed", head.base + len(chain))
    return Fate("open")


def may_put(listing_seconds: float) -> bool:
    """Whether a leader may put the version that it made from a listing of this age, in seconds."""
    return listing_seconds <= LISTING_SECONDS
