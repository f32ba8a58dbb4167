"""Items that follow each other, taken together by what they weigh."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

# Of a remote object: ranges with no more than that between them are one request, as the bytes between take less time
# than another request.
GAP_BYTES = 256 * 2**10
# A longer range is several requests, which run in parallel: one connection alone is slow.
REQUEST_BYTES = 8 * 2**20


def at_most(items: Iterable[Item], weigh: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """Portions that weigh no more than ``most``, each as large as it can be; one item may weigh more alone."""
    portion: list[Item] = []
    weight = 0
    for item in items:
        own = weigh(item)
        if portion and weight + own > most:
            yield portion
            portion, weight = [], 0
        portion.append(item)
        weight += own
    if portion:
        yield portion


def at_least(items: Iterable[Item], weigh: Callable[[Item], int], least: int) -> Iterator[list[Item]]:
    """Portions that weigh ``least`` or more, each ended as soon as it does; the last one may weigh less."""
    portion: list[Item] = []
    weight = 0
    for item in items:
        portion.append(item)
        weight += weigh(item)
        if weight >= least:
            yield portion
            portion, weight = [], 0
    if portion:
        yield portion
