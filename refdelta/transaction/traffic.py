"""The other writers of a table, as this process has seen them: whether transactions share versions by intents."""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from refdelta.core.commit.intent_file import FOLDER, parse_intent_key
from refdelta.engine.parquet.dv import KeptVectors
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import StoreError
from refdelta.transaction import background

if TYPE_CHECKING:
    from collections.abc import Iterable

    from refdelta_storage import ObjectInfo, Store

SEEN_SECONDS = 2.0
"""The time for which a writer counts that was seen in a version."""
CROWD_SECONDS = 1.0
"""The time for which it counts that intents were seen."""
LOOK_SECONDS = 0.5
"""The time between two listings of the intents by a process whose transactions share no versions."""

_KEPT, _KEPT_BYTES = 8, 2**18

_PROCESS = os.urandom(4).hex()


class Traffic:
    """The writers of one table.

    Attributes:
        lead_seconds: the working time of leaders; None if none is known.
        came: the number of versions that came while the last transaction and its intent were written.
        vectors: the deletion vectors of the last versions.
    """

    def __init__(self) -> None:
        self.lead_seconds: float | None = None
        self.came = 0
        self.vectors = KeptVectors()
        self._others: dict[str, float] = {}
        self._crowd_at = self._looked_at = -10.0
        self._seen: set[str] = set()
        self._commits: dict[int, bytes] = {}

    def saw(self, writers: Iterable[str], now: float) -> None:
        """Note the writers of a version, at this time in seconds."""
        others = {name: at for name, at in self._others.items() if now - at <= SEEN_SECONDS}
        self._others = {**others, **dict.fromkeys(writers, now)}

    def shares(self, now: float, own: str) -> bool:
        """Whether two other writers than this one were seen of late, or several intents, or one that waits for long.
        With one other writer there is nothing to gain: a version that is lost costs less than an intent and the wait
        for its leader.
        """
        recent = sum(now - at <= SEEN_SECONDS for name, at in self._others.items() if name != own)
        return recent >= 2 or now - self._crowd_at <= CROWD_SECONDS

    def look(self, store: Store, now: float) -> None:
        """List the intents in the background, if that was not done of late: writers that share versions are seen by
        them also where they win every version.
        """
        if now - self._looked_at >= LOOK_SECONDS and not self.shares(now, name_of_writer()):
            self._looked_at = now
            background.run(store.uri, background.LOOKING, partial(self._look, store), unless_busy=True)

    def _look(self, store: Store) -> None:
        try:
            found = {info.key for info in listed(store)}
        except StoreError:
            return  # the commit will tell
        # One may be that of the only other writer, which wins as often; or it waits in vain.
        if len(found) >= 2 or found & self._seen:
            self._crowd_at = time.monotonic()
        self._seen = found

    def keep(self, version: int, data: bytes) -> None:
        """Keep a commit file that was read or put: a transaction that reads this version needs its hash."""
        if len(data) <= _KEPT_BYTES:
            self._commits = {**dict(list(self._commits.items())[1 - _KEPT :]), version: data}

    def kept(self, version: int) -> bytes | None:
        """The commit file of a version. It may be of a table that was in this place before."""
        return self._commits.get(version)


def listed(store: Store) -> list[ObjectInfo]:
    """The intents in a store. Raises ``StoreError``."""
    with store_errors("list the intents"):
        return [info for info in store.list(f"{FOLDER}/i-") if parse_intent_key(info.key) is not None]


_traffic: dict[str, Traffic] = {}
_lock = threading.Lock()


def traffic_of(store: Store) -> Traffic:
    """The traffic on a table of this process."""
    with _lock:
        return _traffic.setdefault(store.uri, Traffic())


def name_of_writer() -> str:
    """The name of this thread of this process, by which others count the writers."""
    return f"{_PROCESS}{threading.get_ident():x}"


def _in_child() -> None:
    global _PROCESS, _lock
    _PROCESS, _lock = os.urandom(4).hex(), threading.Lock()
    _traffic.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
