"""Which tests run when: the tiers ``check``, ``test`` and ``all``, and how much of a search each of them does.

A tier contains the ones before it: ``make check``, ``make test`` and ``make test-all`` give them by ``--tier``.
``pytest`` alone leaves nothing out, so that whatever is named on its command line runs, and runs whole.
``tests/README.md`` has the table.

A tier is the same set of tests on every day, so that one commit has one verdict. What ``all`` leaves out is run by
``make test-every``, before a release.

Four things can be said of a test:

- ``@pytest.mark.tier("test")``: the first tier that has it. Tests that need Java or a server have ``test`` by
  themselves (:func:`first_tier`).
- ``@pytest.mark.sample(check=10, test=40)``: of the cases of a parametrized test, how many a tier runs.
  ``of="name"`` counts the cases of several tests together.
- ``@pytest.mark.whole``: of what ``test`` leaves out, ``all`` runs a part (:data:`PART`), but these whole. Exhaustive
  searches have it.
- ``@examples(200)``: how many examples Hypothesis tries without a tier; a tier tries a part of them.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, TypeVar

import hypothesis

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pytest

T = TypeVar("T")

CHECK, TEST, ALL = TIERS = ("check", "test", "all")

PART: Final = 48
"""Of the tests that ``test`` leaves out, ``all`` runs one of so many, on Spark and of the others."""

FEWEST: Final = 5
"""Examples that any tier tries: below some five, Hypothesis tries little but the simplest."""

_SHARE: Final = {CHECK: 0.04, TEST: 0.15, ALL: 0.15}
_SERVICES: Final = {"spark", "s3_server", "azure_server", "gcs_server", "postgres_server", "simulator"}
_STORES: Final = {"s3", "azure", "gcs"}  # as cases name what a server stands for

# Module state, since decorators ask before there is any test: tests/conftest.py sets it from --tier.
_chosen: str | None = None


def choose(tier: str | None) -> None:
    """Make this the tier of the run; None for a run that leaves nothing out."""
    global _chosen  # noqa: PLW0603 - decorators have no other place to ask
    _chosen = tier


def chosen() -> str | None:
    """The tier of the run; None for one that leaves nothing out."""
    return _chosen


def budget(most: int, *, fewest: int = FEWEST) -> int:
    """How many of at most ``most`` examples, steps or inputs this tier tries; never fewer than ``fewest`` of them."""
    return max(min(most, fewest), round(most * _SHARE.get(_chosen or "", 1.0)))


def examples(most: int, *, fewest: int = FEWEST, **others: Any) -> hypothesis.settings:
    """Settings of a property.

    Args:
        most: the examples that a run without a tier tries.
        fewest: the examples that each tier tries at least.
        others: more of ``hypothesis.settings``.
    """
    return hypothesis.settings(max_examples=budget(most, fewest=fewest), **others)


def some(cases: Sequence[T], *, check: int, test: int, every: int | None = None) -> list[T]:
    """Of a search that one test does over all cases: so many of them in the smaller tiers, evenly spread.

    Args:
        cases: all of them, which a run without a tier has.
        check: the number in the first tier.
        test: the number in the second one.
        every: the number in the third one; None for all.
    """
    most = {CHECK: check, TEST: test, ALL: every}.get(_chosen or "")
    most = len(cases) if most is None else most
    return [case for at, case in enumerate(cases) if at * most // len(cases) != (at - 1) * most // len(cases)]


def first_tier(item: pytest.Item) -> str:
    """The first tier that has a test: what it is marked with, and not before ``test`` where it needs a service."""
    marked = [marker.args[0] for marker in item.iter_markers("tier")]
    named = {*getattr(item, "fixturenames", ()), *(marker.name for marker in item.iter_markers("spark"))}
    cases = getattr(getattr(item, "callspec", None), "params", {}).values()
    stores = {case.partition(" by ")[0] for case in cases if isinstance(case, str)}  # "s3 by obstore" is on S3
    if _SERVICES & named or (_SERVICES | _STORES) & stores:
        marked.append(TEST)
    return max(marked, key=TIERS.index, default=CHECK)


def left_out(items: Iterable[pytest.Item], tier: str) -> set[pytest.Item]:
    """The tests that this tier does not run.

    Of the cases of a test marked ``sample`` those are kept whose names have the smallest hashes: the same ones in each
    run, spread over all parameters, and hardly others where a case is added.
    """
    found = list(items)
    out = _left_out(found, tier)
    if tier == ALL:
        late = [item for item in _left_out(found, TEST) - out if not sample_of(item, ALL)]
        late = [item for item in late if not item.get_closest_marker("whole")]
        for on_spark in (False, True):
            kind = [item for item in late if bool(item.get_closest_marker("spark")) == on_spark]
            out.update(_spread(kind)[-(-len(kind) // PART) :])
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
        out.update(_spread(found)[sample_of(found[0], tier)[tier] :])
    return out


def _spread(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """By their hashes, those first that an earlier tier has."""
    return sorted(
        items, key=lambda item: (TIERS.index(first_tier(item)), hashlib.sha256(item.nodeid.encode()).digest())
    )


def sample_of(item: pytest.Item, tier: str) -> dict[str, Any]:
    """The arguments of the first marker ``sample`` that says something of a tier; none where there is none."""
    return next((marker.kwargs for marker in item.iter_markers("sample") if tier in marker.kwargs), {})
