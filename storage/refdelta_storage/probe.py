"""Trying whether a place creates an object for one writer only, before anything is written there."""

from __future__ import annotations

import builtins
import contextlib
import os
import threading
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import BinaryIO

from refdelta_storage.base import Capabilities, Committed, Exists, ObjectInfo, PutOutcome, Store, Unknown
from refdelta_storage.errors import ReadOnlyStoreError, StorageError
from refdelta_storage.wrappers import WrapperStore

WRITERS = 8
_PREFIX = ".refdelta-probe-"
_TRIES = 5
_HOW = "if you know better, say so with the storage option put_if_absent=true"


class Probed(WrapperStore):
    """A store that is written to once it has shown that of writers that race for one key one wins.

    The probe runs before the first write of a process to a place, and not when the store is opened; it creates objects
    whose names begin with ``.refdelta-probe-`` beside the data and removes them. A probe that finds nothing is no
    proof; one that fails is.

    Args:
        inner: a store whose ``put_if_absent`` claims to be one.
        place: what shares one answer in a process, such as the service and the bucket.
        rounds: how many races are run: 13 requests with one, and 9 for each more.
        exempt: tells, at the first write, whether the place needs no probe.
    """

    def __init__(self, inner: Store, place: str, rounds: int, exempt: Callable[[Store], bool] | None = None) -> None:
        super().__init__(inner)
        self.place = place
        self.rounds = rounds
        self.exempt = exempt

    def __repr__(self) -> str:
        return repr(self.inner)

    @property
    def capabilities(self) -> Capabilities:
        inner = self.inner.capabilities
        # Assumed until it is tried, which happens before any write.
        allowed = _verdicts.found.get(self.place) is None
        return replace(inner, put_if_absent=inner.put_if_absent and allowed)

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        self._try()
        return self.inner.put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> None:
        self._try()
        self.inner.put(key, data)

    def open_output(self, key: str) -> AbstractContextManager[BinaryIO]:
        self._try()
        return self.inner.open_output(key)

    def create_output(self, key: str) -> AbstractContextManager[BinaryIO]:
        self._try()
        return self.inner.create_output(key)

    def delete(self, keys: Iterable[str]) -> None:
        self._try()
        self.inner.delete(keys)

    def delete_unchanged(self, infos: Iterable[ObjectInfo]) -> None:
        self._try()
        self.inner.delete_unchanged(infos)

    def _try(self) -> None:
        with _verdicts.lock:
            if self.place not in _verdicts.found:
                spared = self.exempt is not None and self.exempt(self.inner)
                _verdicts.found[self.place] = None if spared else probe(self.inner, self.rounds)
            why = _verdicts.found[self.place]
        if why is not None:
            raise ReadOnlyStoreError(f"cannot write to {self.uri}: {why}; {_HOW}")


class _Verdicts:
    """The results of this process: None for a place that passed, else the reason why it failed."""

    def __init__(self) -> None:
        self.found: dict[str, str | None] = {}
        self.renew()

    def renew(self) -> None:
        """Answers stay true in a forked child; a lock that another thread held would stay locked."""
        self.lock = threading.Lock()


_verdicts = _Verdicts()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_verdicts.renew)


def probe(store: Store, rounds: int) -> str | None:
    """Let writers meet at fresh keys, first in turn and then at once. None if one won each time, else what happened.

    Raises:
        StorageError: nothing could be found out: requests failed.
    """
    keys = [f"{_PREFIX}{uuid.uuid4()}" for _ in range(rounds + 1)]
    used: builtins.list[str] = []
    try:
        for number, key in enumerate(keys):
            why = _settled(store, key, _one_after_the_other if number == 0 else _at_once, used)
            if why is not None:
                return why
    finally:
        # A remaining object does no harm: no table names it.
        with contextlib.suppress(StorageError):
            store.delete(used)
    return None


_Race = Callable[[Store, str], builtins.list[tuple[bytes, PutOutcome]]]


def _settled(store: Store, key: str, race: _Race, used: builtins.list[str]) -> str | None:
    """Run a race until its outcomes are certain; why it is lost, or None."""
    for attempt in range(_TRIES):
        used.append(f"{key}-{attempt}")
        outcomes = race(store, used[-1])
        created = [data for data, outcome in outcomes if isinstance(outcome, Committed)]
        if len(created) > 1:
            return f"{len(created)} of {len(outcomes)} writers got a success for the same object"
        doubts = [outcome.cause for _, outcome in outcomes if isinstance(outcome, Unknown)]
        # One writer succeeded and another was refused; unknown outcomes of the rest do not matter.
        if created and any(isinstance(outcome, Exists) for _, outcome in outcomes):
            kept = store.get(used[-1]) == created[0]
            return None if kept else "an object that one writer created was overwritten by another"
    raise StorageError(
        f"cannot try whether {store.uri} creates an object for one writer only: "
        f"{doubts[0] if doubts else 'no writer got a success'}"
    )


def _one_after_the_other(store: Store, key: str) -> builtins.list[tuple[bytes, PutOutcome]]:
    return [(data, store.put_if_absent(key, data)) for data in (b"first", b"second")]


def _at_once(store: Store, key: str) -> builtins.list[tuple[bytes, PutOutcome]]:
    barrier = threading.Barrier(WRITERS)

    def write(number: int) -> tuple[bytes, PutOutcome]:
        data = f"writer {number}".encode()
        barrier.wait()
        return data, store.put_if_absent(key, data)

    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(write, range(WRITERS)))
