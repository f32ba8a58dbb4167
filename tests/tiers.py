"""Which tests run when: the tiers ``check``, ``test`` and ``all``, and how much of a search each of them does.

A tier contains the ones before it: ``make check``, ``make test`` and ``make test-all`` give them by ``--tier``.
``pytest`` alone leaves nothing out, so that whatever is named on its command line runs, and runs whole.
``tests/README.md`` has the table.

Five things can be said of a test:

- ``@pytest.mark.tier("test")``: the first tier that has it. Tests that need Java or a server have ``test`` by
  themselves (:func:`first_tier`).
- ``@pytest.mark.sample(check=10, test=40)``: of the cases of a parametrized test, how many a tier runs.
- ``@pytest.mark.sample(test=2, all=4, daily=True)``: a part that is another one each day. ``of="name"`` counts the
  cases of several tests together.
- ``@pytest.mark.every_day``: of what ``test`` leaves out, ``all`` runs a part that is another one each day
  (:data:`TURNS`), but these always. Exhaustive searches have it.
- ``@examples(200)``: how many examples Hypothesis tries; the smaller tiers try a part of them, and ``all`` tries all of
  them on every third day.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import sys
import zlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, TypeVar

import hypothesis

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pytest

T = TypeVar("T")

CHECK, TEST, ALL = TIERS = ("check", "test", "all")

TURNS: Final = {"spark": 9, "other": 4}
"""Of the tests on Spark that ``test`` leaves out, ``all`` runs a ninth, another one each day: what delta-spark
answers changes with its pinned version only. Of the others it runs a quarter.
"""

FEWEST: Final = 5
"""Examples that any tier tries: below some five, Hypothesis tries little but the simplest."""

_SHARE: Final = {CHECK: 0.04, TEST: 0.15, ALL: 1.0}

WHOLE_EVERY: Final = 3
"""In ``all``, the random tests of a file try all their examples on every third day, and two fifths on the others."""

_OTHER_DAYS: Final = 0.4
_SERVICES: Final = {"spark", "s3_server", "azure_server", "postgres_server"}
_STORES: Final = {"s3", "azure"}  # as cases name what a server stands for

# Module state, since decorators ask before there is any test: tests/conftest.py sets it from --tier.
_chosen = ALL
_by_turns = False


def choose(tier: str | None) -> None:
    """Make this the tier of the run; None for a run that leaves nothing out."""
    global _chosen, _by_turns
    _chosen, _by_turns = tier or ALL, tier == ALL


def chosen() -> str:
    """The tier of the run."""
    return _chosen


def budget(most: int, *, fewest: int = FEWEST) -> int:
    """How many of at most ``most`` examples, steps or inputs this tier tries; never fewer than ``fewest`` of them."""
    share = _SHARE[_chosen]
    if _by_turns:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals["__name__"] == __name__:
            frame = frame.f_back
        share = 1.0 if whole_today(frame.f_globals["__name__"]) else _OTHER_DAYS
    return max(min(most, fewest), round(most * share))


def whole_today(module: str) -> bool:
    """Whether it is the turn of this module's random tests to try all their examples."""
    return (zlib.crc32(module.encode()) + today().toordinal()) % WHOLE_EVERY == 0


def examples(most: int, *, fewest: int = FEWEST, **others: Any) -> hypothesis.settings:
    """Settings of a property.

    Args:
        most: the examples that ``test-all`` tries.
        fewest: the examples that each tier tries at least.
        others: more of ``hypothesis.settings``.
    """
    return hypothesis.settings(max_examples=budget(most, fewest=fewest), **others)


def some(cases: Sequence[T], *, check: int, test: int) -> list[T]:
    """Of a search that one test does over all cases: so many of them in the smaller tiers, evenly spread, else all."""
    most = {CHECK: check, TEST: test}.get(_chosen, len(cases))
    return [case for at, case in enumerate(cases) if at * most // len(cases) != (at - 1) * most // len(cases)]


def first_tier(item: pytest.Item) -> str:
    """The first tier that has a test: what it is marked with, and not before ``test`` where it needs a service."""
    marked = [marker.args[0] for marker in item.iter_markers("tier")]
    named = {*getattr(item, "fixturenames", ()), *(marker.name for marker in item.iter_markers("spark"))}
    cases = getattr(getattr(item, "callspec", None), "params", {}).values()
    if (_SERVICES & named) or any(case in _SERVICES | _STORES for case in cases if isinstance(case, str)):
        marked.append(TEST)
    return max(marked, key=TIERS.index, default=CHECK)


def left_out(items: Iterable[pytest.Item], tier: str) -> set[pytest.Item]:
    """The tests that this tier does not run.

    Of the cases of a test marked ``sample`` those are kept whose names have the smallest hashes: the same ones in each
    run, spread over all parameters, and hardly others where a case is added. What is drawn by the day takes turns: each
    day has the ones after those of the day before.
    """
    found = list(items)
    out = _left_out(found, tier)
    if tier == ALL:
        late = [item for item in _left_out(found, TEST) - out if not sample_of(item, ALL)]
        late = [item for item in late if not item.get_closest_marker("every_day")]
        for kind, turns in TURNS.items():
            some_kind = [item for item in late if bool(item.get_closest_marker("spark")) == (kind == "spark")]
            out.update(set(some_kind) - set(_turn(some_kind, -(-len(some_kind) // turns))))
    return out


def _left_out(items: Iterable[pytest.Item], tier: str) -> set[pytest.Item]:
    out: set[pytest.Item] = set()
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if TIERS.index(first_tier(item)) > TIERS.index(tier):
            out.add(item)
        elif asked := sample_of(item, tier):
            cases[asked.get("of") or item.nodeid.partition("[")[0]].append(item)
    for found in cases.values():
        asked = sample_of(found[0], tier)
        out.update(set(found) - set(_turn(found, asked[tier]) if asked.get("daily") else _spread(found)[: asked[tier]]))
    return out


def _spread(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """By their hashes, those first that an earlier tier has."""
    return sorted(
        items, key=lambda item: (TIERS.index(first_tier(item)), hashlib.sha256(item.nodeid.encode()).digest())
    )


def _turn(items: Iterable[pytest.Item], count: int) -> list[pytest.Item]:
    """Those whose turn it is today, so many each day."""
    ordered = _spread(items)
    first = today().toordinal() * count % len(ordered) if ordered else 0
    return [*ordered[first:], *ordered[:first]][:count]


def sample_of(item: pytest.Item, tier: str) -> dict[str, Any]:
    """The arguments of the first marker ``sample`` that says something of a tier; none where there is none."""
    return next((marker.kwargs for marker in item.iter_markers("sample") if tier in marker.kwargs), {})


def today() -> dt.date:
    """The day that draws parts of campaigns: that of the run, or ``REFDELTA_DAY``."""
    return dt.date.fromisoformat(os.environ.get("REFDELTA_DAY") or dt.datetime.now(dt.UTC).date().isoformat())
