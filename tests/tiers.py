"""Which tests run when: the tiers ``check``, ``test`` and ``all``, and how much of a search each of them does.

A tier contains the ones before it. ``pytest`` alone is ``all``, so that whatever is named on its command line runs, and
runs whole; ``make check`` and ``make test`` give the other two by ``--tier``. ``tests/README.md`` has the table.

Three things can be said of a test:

- ``@pytest.mark.tier("test")``: the first tier that has it. Tests that need Java, a server, or another process for
  long have ``test`` by themselves (:func:`first_tier`).
- ``@pytest.mark.sample(check=10, test=40)``: of the cases of a parametrized test, how many a tier runs.
- ``@examples(200)``: how many examples Hypothesis tries; the smaller tiers try a part of them.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import hypothesis

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

CHECK, TEST, ALL = TIERS = ("check", "test", "all")

FEWEST: Final = 5
"""Examples that any tier tries: below some five, Hypothesis tries little but the simplest."""

_SHARE: Final = {CHECK: 0.1, TEST: 0.25, ALL: 1.0}
_SERVICES: Final = {"spark", "s3_server", "azure_server"}

# Module state, since decorators ask before there is any test: tests/conftest.py sets it from --tier.
_chosen = ALL


def choose(tier: str) -> None:
    """Make this the tier of the run; the budgets of the profile follow."""
    global _chosen  # noqa: PLW0603
    _chosen = tier


def chosen() -> str:
    """The tier of the run."""
    return _chosen


def budget(most: int, *, fewest: int = FEWEST) -> int:
    """How many of at most ``most`` examples, steps or inputs this tier tries; never fewer than ``fewest`` of them."""
    return max(min(most, fewest), round(most * _SHARE[_chosen]))


def examples(most: int, *, fewest: int = FEWEST, **others: Any) -> hypothesis.settings:
    """Settings of a property.

    Args:
        most: the examples that ``test-all`` tries.
        fewest: the examples that each tier tries at least.
        others: more of ``hypothesis.settings``.
    """
    return hypothesis.settings(max_examples=budget(most, fewest=fewest), **others)


def first_tier(item: pytest.Item) -> str:
    """The first tier that has a test: what it is marked with, and not before ``test`` where it needs a service."""
    marked = [marker.args[0] for marker in item.iter_markers("tier")]
    needs = _SERVICES & {*getattr(item, "fixturenames", ()), *(marker.name for marker in item.iter_markers("spark"))}
    backend = getattr(getattr(item, "callspec", None), "params", {}).get("backend")
    if needs or backend in ("s3", "azure"):
        marked.append(TEST)
    return max(marked, key=TIERS.index, default=CHECK)


def left_out(items: Iterable[pytest.Item], tier: str) -> set[pytest.Item]:
    """The tests that this tier does not run.

    Of the cases of a test marked ``sample`` those are kept whose names have the smallest hashes: the same ones in each
    run, spread over all parameters, and hardly others where a case is added.
    """
    out: set[pytest.Item] = set()
    cases: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if TIERS.index(first_tier(item)) > TIERS.index(tier):
            out.add(item)
        elif any(tier in marker.kwargs for marker in item.iter_markers("sample")):
            cases[item.nodeid.partition("[")[0], tier].append(item)
    for found in cases.values():
        most = next(marker.kwargs[tier] for marker in found[0].iter_markers("sample") if tier in marker.kwargs)
        ordered = sorted(found, key=lambda item: hashlib.sha256(item.nodeid.encode()).digest())
        out.update(ordered[most:])
    return out
