"""What the contract of a store checks with: races, readers beside writers; part of :mod:`refdelta_storage.testing`."""

# A contract asserts.
# ruff: noqa: S101

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from refdelta_storage.base import Created, ObjectInfo, PutOutcome, Store, Unknown
from refdelta_storage.errors import ObjectNotFoundError


class raises:  # noqa: N801 - reads as pytest's, which a user of the contract need not have
    """Fail unless the block ends by an exception of this type, which is put into the list that ``with`` gives."""

    def __init__(self, expected: type[BaseException]) -> None:
        self._expected = expected
        self._caught: list[BaseException] = []

    def __enter__(self) -> list[BaseException]:
        return self._caught

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if error is None:
            raise AssertionError(f"no {self._expected.__name__} was raised")
        self._caught.append(error)
        return isinstance(error, self._expected)


def assert_same_objects(listed: Iterable[ObjectInfo], looked_at: Iterable[ObjectInfo]) -> None:
    """Hold a listing against what the objects say one by one; some round those to seconds."""
    for one, other in zip(listed, looked_at, strict=True):
        assert (one.key, one.size) == (other.key, other.size)
        assert abs(one.mtime_ms - other.mtime_ms) < 1000, (one, other)


def race(store: Store, key: str, writers: int) -> list[tuple[bytes, PutOutcome]]:
    """Let threads put different bytes at one key, all at once; what each wanted and what it was told."""
    barrier = threading.Barrier(writers)

    def write(number: int) -> tuple[bytes, PutOutcome]:
        data = (f"writer {number}\n" * 200).encode()
        barrier.wait()
        return data, store.put_if_absent(key, data)

    with ThreadPoolExecutor(writers) as pool:
        return list(pool.map(write, range(writers)))


def assert_one_winner(store: Store, key: str, outcomes: Sequence[tuple[bytes, PutOutcome]]) -> None:
    """Hold the outcomes of a race against what is there.

    Nobody but the writer of the object may have been told ``Created``. The writer itself may have got ``Unknown``, or
    ``Exists`` if its request was resent on the way.
    """
    content = store.get(key)
    told = [data for data, outcome in outcomes if isinstance(outcome, Created)]
    assert len(told) <= 1, f"{len(told)} writers were told that they created {key!r}"
    assert content in {data for data, _ in outcomes}, f"{key!r} holds what nobody wrote"
    assert told in ([content], []), f"the writer that was told that it created {key!r} did not"
    undecided = [data for data, outcome in outcomes if isinstance(outcome, Unknown)]
    assert told or undecided, f"nobody was told that it created {key!r}, and nobody was left in doubt"


def watch(
    store: Store, keys: Sequence[str], values: Sequence[bytes], write: Callable[[int], None], writes: int
) -> None:
    """Read ``keys`` while ``write(0)``, ``write(1)``, ... run; fail if one is seen with other than ``values``."""
    whole, sizes = set(values), {len(value) for value in values}
    done = threading.Event()

    def look() -> str | None:
        while True:
            last = done.is_set()
            for key in keys:
                try:
                    content = store.get(key)
                    size = store.head(key).size
                    end = store.get_range(key, 0, 1 << 20)
                except ObjectNotFoundError:
                    continue
                if content not in whole or size not in sizes or end not in whole:
                    return f"{key!r} was seen with {len(content)} bytes, and with a size of {size}"
            for info in store.list():
                if info.key not in keys or info.size not in sizes:
                    return f"{info.key!r} was listed with {info.size} bytes"
            if last:
                return None

    with ThreadPoolExecutor(6) as pool:
        watchers = [pool.submit(look) for _ in range(2)]
        try:
            list(pool.map(write, range(writes)))
        finally:
            done.set()
        seen = [watcher.result() for watcher in watchers]
    assert not any(seen), next(filter(None, seen))
