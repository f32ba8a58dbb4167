"""All histories of a few operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import product

from model.branches import Branches, Refusal, Staged, Version
from model.cases import Case
from model.histories import interleavings

Shape = tuple[tuple[int, ...], tuple[int, ...]]
"""Who tries to commit in which order, and for each of them how many of the others had tried before it began."""


def shapes(count: int) -> Counter[Shape]:
    """The interleavings of so many transactions; those are one in which only the beginnings that follow each other are
    in another order.
    """
    found: Counter[Shape] = Counter()
    for interleaving in interleavings(count):
        began, order = {}, []
        for i in interleaving:
            if i in began:
                order.append(i)
            else:
                began[i] = len(order)
        found[tuple(order), tuple(began[i] for i in order)] += 1
    return found


class Tally(Counter[str]):
    """Histories by outcome."""

    def __str__(self) -> str:
        return ", ".join(f"{count:,} {what}" for what, count in self.items())


def explore(engine: Branches, cases: Sequence[Case], count: int, among: Collection[Case] = ()) -> Tally:
    """Run every sequence of ``count`` operations in every interleaving.

    The engine checks each version that it makes, and raises at the first that is wrong.

    Args:
        engine: the table.
        cases: the operations.
        count: how many of them make a history.
        among: only histories in which one of these takes part; none of them: all histories.
    """
    tally = Tally({"histories": 0, "distinct": 0, "in which all commit": 0, "refusals": 0})
    memo: dict[object, int] = {}
    all_shapes = shapes(count)
    for chosen in product(cases, repeat=count):
        if among and not any(case in among for case in chosen):
            continue
        for (order, began), times in all_shapes.items():
            tried = tuple(chosen[i] for i in order), began
            if tried not in memo:
                memo[tried] = follow(engine, *tried)
                tally["distinct"] += 1
            refused = memo[tried]
            tally["histories"] += times
            tally["in which all commit"] += times * (not refused)
            tally["refusals"] += times * refused
    return tally


def follow(engine: Branches, cases: Sequence[Case], began: Sequence[int]) -> int:
    """Run one history, operations in the order of their commits. Returns how many were refused."""
    refused = 0
    versions = [engine.root]
    begun: Counter[tuple[Case, Version]] = Counter()
    for case, tries in zip(cases, began, strict=True):
        at = versions[tries]
        copy = begun[case, at]
        begun[case, at] += 1
        outcome = engine.commit(versions[-1], engine.begin(at, case, copy))
        if isinstance(outcome, Refusal):
            refused += 1
            outcome = versions[-1]
        versions.append(outcome)
    return refused


def pairs(engine: Branches, cases: Sequence[Case]) -> Iterator[tuple[Case, Case, Version, Staged]]:
    """Every two operations that begin at the root and both have something to write: both, the version that the first
    one has made, and the second one, which wants to commit behind it.
    """
    winners = [(case, engine.commit(engine.root, engine.begin(engine.root, case))) for case in cases]
    writing = [(case, made) for case, made in winners if made is not engine.root]
    for (first, winner), (second, _) in product(writing, repeat=2):
        assert isinstance(winner, Version)
        yield first, second, winner, engine.begin(engine.root, second, copy=int(first is second))
