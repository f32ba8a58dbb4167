"""A catalog or a folder that is restored from a copy, at any point of any history: no acknowledged commit is lost
silently; and each rule that this needs is found again when it is left out.
"""

from __future__ import annotations

import random
from collections import Counter
from unittest import mock

import pytest

from model import going_back
from model.contents import Violation
from model.going_back import OPS, World, histories, play
from refdelta.engine.log import managed_log
from refdelta.engine.log.identity import Placement
from refdelta.engine.log.managed_log import ManagedStore
from refdelta.errors import CatalogMismatchError
from refdelta_storage import Committed

WAYS = [(inline, checksums) for inline in (False, True) for checksums in (False, True)]
LATE = "bcdl"
WORLDS = pytest.mark.parametrize(("inline", "checksums"), WAYS)


def explore(length: int, copy: str, **options: bool) -> Counter[str]:
    ends = Counter(play(history, **options) for history in histories(length, copy))
    print(f"{ends.total():,} histories: {dict(ends)}")
    return ends


@pytest.mark.tier("test")
@WORLDS
@pytest.mark.parametrize("copy", ["sr", "SR"])
def test_a_copy_is_restored_among_two_operations(copy, inline, checksums):
    ends = explore(2, copy, inline=inline, checksums=checksums)
    assert ends["whole"] > 100
    assert ends["refused"] > 20


@pytest.mark.tier("test")
@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("copy", ["sr", "SR"])
def test_a_copy_is_restored_before_late_checksums(copy, inline):
    assert Counter(play(one, inline=inline, checksums=True) for one in histories(3, copy, LATE))["whole"] > 100


@pytest.mark.tier("test")
@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("copy", ["sr", "SR"])
def test_a_copy_is_restored_after_lost_proposals(copy, inline):
    assert Counter(play(one, inline=inline) for one in histories(4, copy, "abe"))["whole"] > 100


@pytest.mark.tier("test")
@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("copy", ["sx", "sy", "so"])
def test_a_copy_is_restored_while_another_program_is_at_work(copy, inline):
    assert explore(2, copy, inline=inline)["refused"] > 20


@pytest.mark.sample(test=2)
@pytest.mark.tier("test")
@WORLDS
@pytest.mark.parametrize("copy", ["sr", "SR"])
def test_a_copy_is_restored_among_three_operations(copy, inline, checksums):
    explore(3, copy, inline=inline, checksums=checksums)


@pytest.mark.tier("nightly")
@WORLDS
@pytest.mark.parametrize("copy", ["sr", "SR"])
def test_a_copy_is_restored_among_four_operations(copy, inline, checksums):
    explore(4, copy, inline=inline, checksums=checksums)


@pytest.mark.tier("test")
@pytest.mark.parametrize("copy", ["sr", "SR"])
@WORLDS
def test_several_restores_and_adoptions(copy, inline, checksums):
    dice = random.Random(f"{copy} {inline} {checksums}")
    for _ in range(100):
        others = "".join(dice.choice(f"{OPS}{OPS}{copy}{copy}AD") for _ in range(dice.randint(4, 12)))
        play(copy[0] + others, inline=inline, checksums=checksums)


def test_a_handle_that_has_seen_more_than_the_catalog_knows_is_refused():
    """Also where the database cannot be told from another one, as behind a proxy."""
    world = World(inline=True, checksums=False)
    world.database.session = 0
    for op in "saa":
        world.step(op)
    world.database.rows = world.copies["s"]
    for use in (world.open["a"].commit, world.open["a"].log.publish):
        with pytest.raises(CatalogMismatchError, match="the latest version is 0 by the catalog, before it was 2"):
            use()


# --- each rule is needed ---


def publishes_what_is_there(log: ManagedStore, commit):
    return isinstance(log.inner.put_if_absent(managed_log.commit_key(commit.version), log.content(commit)), Committed)


def compares_no_tip(log: ManagedStore, seen: int) -> None:
    answer = log._ask()
    log._check(answer, [*log.inner.list(managed_log.VERSIONED)], None)
    log._confirm(answer)


def takes_any_publication(log: ManagedStore, commit) -> bool:
    return len(log.inner.get(managed_log.commit_key(commit.version))) == commit.size


LEFT_OUT = {
    "the listing is compared": ("sr", ManagedStore, "_check", lambda *_: None),
    "a version is compared by its content": ("so", ManagedStore, "is_published", takes_any_publication),
    "a published file is compared before it is forgotten": ("so", ManagedStore, "_publish", publishes_what_is_there),
    "the first one that is published follows on the folder": (
        "SR",
        ManagedStore,
        "_to_publish",
        ManagedStore.unpublished,
    ),
    "another database is compared before a commit": ("sx", going_back.Part, "_check", lambda _: None),
    "what a handle has seen is compared with another database": ("sr", ManagedStore, "_compare", compares_no_tip),
    "a version is not another commit than before": ("sr", managed_log, "_differ", lambda *_: False),
    "the version of a checksum is looked for after it was written": ("sr", Placement, "stands", lambda _: True),
    "a catalog is asked for the version of a checksum": ("sr", ManagedStore, "holds", lambda *_: True),
}


@pytest.mark.sample(test=3)
@pytest.mark.tier("test")
@pytest.mark.parametrize("rule", LEFT_OUT)
def test_a_rule_that_is_left_out_is_found(rule):
    copy, *wrong = LEFT_OUT[rule]

    def search() -> None:
        for length, ops in ((2, OPS), (3, LATE), (3, OPS)):
            for inline in (False, True):
                for history in histories(length, copy, ops):
                    play(history, inline=inline, checksums=ops == LATE)

    with mock.patch.object(*wrong), pytest.raises(Violation):
        search()
