"""Chunking: consecutive items grouped by weight, such as files by their size in bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

# Of a remote object: ranges with a gap of at most so many bytes are one request, since the bytes between them take less
# time than another request.
GAP_BYTES = 256 * 2**10
# A longer range is split into several requests, which run in parallel: a single connection is slow.
REQUEST_BYTES = 8 * 2**20


def at_most(items: Iterable[Item], weigh: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """Chunks that weigh at most ``most``, each as large as possible. A single heavier item is a chunk of its own."""
    chunk: list[Item] = []
    weight = 0
    for item in items:
        own = weigh(item)
        if chunk and weight + own > most:
            yield chunk
            chunk, weight = [], 0
        chunk.append(item)
        weight += own
    if chunk:
        yield chunk


def at_least(items: Iterable[Item], weigh: Callable[[Item], int], least: int) -> Iterator[list[Item]]:
    """Chunks that weigh at least ``least``, each as small as possible. The last one may weigh less."""
    chunk: list[Item] = []
    weight = 0
    for item in items:
        chunk.append(item)
        weight += weigh(item)
        if weight >= least:
            yield chunk
            chunk, weight = [], 0
    if chunk:
        yield chunk
