"""Which tests run when: ``make check`` and ``make test`` run a tier each, ``make nightly`` runs everything.

``check`` has what needs only Python and is quick, ``test`` is the gate: everything that a change can break. ``pytest``
alone leaves nothing out, so that whatever is named on its command line runs, and runs whole. ``tests/README.md`` has
the table. A tier is the same set of tests on every day, so that one commit has one verdict.

Four things can be said of a test:

- ``@pytest.mark.tier("test")``: the first tier that has it; ``"nightly"`` for none. Of the tests that need Java, a
  server or a browser, the gate has one file for each of these (:data:`STANDS_FOR`), and the night has the others.
- ``@pytest.mark.sample(check=10, test=40)``: of the cases of a parametrized test, how many a tier runs, where these are
  not :data:`CASES`. None runs all of them.
- ``@examples(200)``: how many examples Hypothesis tries at night; a tier tries a part of them.
- ``tiers.seed(7)``: a seed that is the same in each tier, and another one each night.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, TypeVar

import hypothesis

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import pytest

T = TypeVar("T")

CHECK, TEST, NIGHTLY = "check", "test", "nightly"
TIERS: Final = (CHECK, TEST)

CASES: Final = {CHECK: 4, TEST: 8}
"""Of the cases of one parametrized test, how many a tier runs unless the test says otherwise."""

FEWEST: Final = 5
"""Examples that any tier tries: below some five, Hypothesis tries little but the simplest."""

STANDS_FOR: Final = {
    "spark": "tests/oracle/test_one_table.py",
    "s3": "tests/backends/test_conflicts.py",
    "azure": "tests/backends/test_conflicts.py",
    "gcs": "tests/storage/test_gcs.py",
    "postgres": "tests/catalog/test_contract.py",
    "browser": "tests/docs_site/test_play.py",
    "simulator": None,
}
"""The file of tests by which each service is in the gate. All other tests that need the service run at night."""

_SHARE: Final = {CHECK: 0.04, TEST: 0.1}
_ORDER: Final = (*TIERS, NIGHTLY)
_OF_FILE: Final = re.compile(r"^pytestmark = (.*|\[[^]]*\])$", re.MULTILINE)

# Module state, since decorators ask before there is any test: tests/conftest.py sets it from --tier.
_chosen: str | None = None


def choose(tier: str | None) -> None:
    """Make this the tier of the run; None for a run that leaves nothing out."""
    global _chosen  # noqa: PLW0603 - decorators have no other place to ask
    _chosen = tier


def chosen() -> str | None:
    """The tier of the run; None for one that leaves nothing out."""
    return _chosen


def seed(fixed: int) -> int:
    """This seed, or at night one that depends on the commit (``REFDELTA_SEED``), too."""
    return fixed + int(os.environ.get("REFDELTA_SEED", "0"))


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


def some(cases: Sequence[T], *, check: int, test: int) -> list[T]:
    """Of a search that one test does over all cases: so many of them in the tiers, evenly spread.

    Args:
        cases: all of them, which a run without a tier has.
        check: the number in the first tier.
        test: the number in the second one.
    """
    most = {CHECK: check, TEST: test}.get(_chosen or "", len(cases))
    return [case for at, case in enumerate(cases) if at * most // len(cases) != (at - 1) * most // len(cases)]


def leaves_out(file: Path, tier: str) -> bool:
    """True if a file of tests says of itself that the tier has none of them, so that it need not be imported."""
    marks = _OF_FILE.search(file.read_text())
    if marks is None:
        return False
    found = [_ORDER.index(name) for name in re.findall(r"mark\.tier\(\"(\w+)\"\)", marks[1])]
    if "mark.spark" in marks[1]:
        found.append(_ORDER.index(TEST if str(file).endswith(str(STANDS_FOR["spark"])) else NIGHTLY))
    return max(found, default=0) > _ORDER.index(tier)


def services(item: pytest.Item) -> set[str]:
    """The services that a test needs, by its fixtures, marks and cases: "s3 by obstore" is on S3."""
    cases = getattr(getattr(item, "callspec", None), "params", {}).values()
    named = {
        *(name.removesuffix("_server") for name in getattr(item, "fixturenames", ())),
        *(marker.name for marker in item.iter_markers("spark")),
        *(case.partition(" by ")[0].removesuffix("_server") for case in cases if isinstance(case, str)),
    }
    return named & STANDS_FOR.keys()


def first_tier(item: pytest.Item) -> str:
    """The first tier that has a test: what it is marked with, and not before those of the services that it needs."""
    file = item.nodeid.partition("::")[0]
    found = [marker.args[0] for marker in item.iter_markers("tier")]
    found += [TEST if STANDS_FOR[service] == file else NIGHTLY for service in services(item)]
    return max(found, key=_ORDER.index, default=CHECK)


def rank(item: pytest.Item) -> int:
    """0 for a test of ``check``, 1 for one of ``test``, 2 for another."""
    return _ORDER.index(first_tier(item))


def left_out(items: Iterable[pytest.Item], tier: str) -> set[pytest.Item]:
    """The tests that this tier does not run.

    Of the cases of a test those are kept whose names have the smallest hashes: the same ones in each run, spread over
    all parameters, and hardly others where a case is added.
    """
    out: set[pytest.Item] = set()
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if rank(item) > _ORDER.index(tier):
            out.add(item)
        else:
            cases[item.nodeid.partition("[")[0]].append(item)
    for found in cases.values():
        most = most_cases(found[0], tier)
        out.update(_spread(found)[len(found) if most is None else most :])
    return out


def _spread(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """By their hashes, those first that an earlier tier has."""
    return sorted(items, key=lambda item: (rank(item), hashlib.sha256(item.nodeid.encode()).digest()))


def most_cases(item: pytest.Item, tier: str) -> int | None:
    """The number of cases of this test that the tier runs; None for all. Those of ``check`` are in ``test``, too."""
    asked: dict[str, int | None] = {}
    for marker in item.iter_markers("sample"):
        asked = marker.kwargs | asked
    most = asked.get(tier, CASES[tier])
    other = asked.get(CHECK if tier == TEST else TEST, most)
    if most is None or other is None:
        return None if tier == TEST or most is None else most
    return max(most, other) if tier == TEST else min(most, other)
