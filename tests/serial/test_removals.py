"""Each rule, each kind of read and each resource is needed: without it a program of a known seed goes wrong.

The seeds are found by ``python -m serial --words first|wider|orders|merging --without NAME --seeds A-B``. Where others
do the same work, these are removed with it, and the table says why.
"""

from dataclasses import dataclass

import pytest

from refdelta.core.conflicts.resources import RESOURCES
from refdelta.core.conflicts.rules import RULES
from serial.__main__ import described
from serial.check import judged
from serial.play import play
from serial.removals import REMOVALS, without
from serial.wider import DRAWS


@dataclass(frozen=True)
class Found:
    """A program that finds a removal.

    Attributes:
        words: the vocabulary of which it is drawn.
        seed: its seed.
        others: what is removed with it; without them no program can find it.
        because: why that is so.
    """

    words: str
    seed: int
    others: tuple[str, ...] = ()
    because: str = ""


FOUND = {
    "rule table-created": Found(
        "wider",
        65,
        ("rule protocol", "rule metadata"),
        "version 0 has a protocol and a metaData action, which these rules refuse",
    ),
    "rule table-replaced": Found(
        "wider",
        1854,
        ("rule metadata", "rule files-added"),
        "a commit that replaces the table has a metaData action, and one that replaces it has read all of its rows",
    ),
    "rule protocol": Found("wider", 4),
    "rule metadata": Found("wider", 71),
    "rule identity": Found(
        "wider",
        9,
        ("rule metadata",),
        "a commit that numbers rows notes the last number in the metaData action, and one that does not takes none",
    ),
    "rule domain": Found("wider", 19),
    "rule application": Found("wider", 5),
    "rule files-deleted": Found("first", 540),
    "rule files-added": Found("wider", 15),
    "rule read-file-removed": Found("wider", 105),
    "rule deleted-by-both": Found("wider", 21),
    "rule append-skipped": Found("first", 238),
    "read of rows by a predicate": Found("wider", 47),
    "read of the whole table": Found("wider", 122),
    "read of rows by their positions": Found("wider", 105),
    "read of files": Found("first", 12208),
    "read of a domain": Found("first", 243),
    "read of all domains": Found("first", 785),
    "read of application ids": Found(
        "wider", 5, ("write of application ids",), "one that records the version of an application reads and writes it"
    ),
    "write of application ids": Found(
        "wider", 5, ("read of application ids",), "one that records the version of an application reads and writes it"
    ),
    "write of a domain": Found("wider", 28),
    "rest on files of others": Found("first", 540),
    "reads beside a finer one": Found("first", 85),
    "reads of a statement that fails": Found("first", 621),
    "reads by a source that is the table": Found("wider", 122),
    "reads by a source under another name": Found("wider", 141),
    "reads by a source that is opened late": Found("wider", 122),
    "reads of clauses by source": Found("merging", 15),
    "reads of the second clause by source": Found("merging", 15),
    "rows of others that a clause by source changes": Found("merging", 168),
    "nulls of null-safe keys": Found("merging", 31),
    "reads of what is stored in a domain beside a compaction": Found("first", 2052),
    "domains that name columns": Found("first", 119),
    "the time before the first timestamp": Found("first", 322),
    "domains and applications in an order": Found("first", 2066),
    "the answer past the bound on files": Found("first", 238),
    "transactions that keep their place in an order": Found("orders", 549),
    "resource protocol": Found("wider", 4),
    "resource metadata": Found("wider", 71),
    "resource identity values": Found(
        "wider", 9, ("rule metadata",), "as for the rule: numbers are noted in the metaData action"
    ),
    "resource domains": Found("wider", 19),
    "resource applications": Found("wider", 5),
    "resource deleted files": Found("first", 540),
    "resource added rows": Found("wider", 15),
    "resource removed rows": Found("wider", 13),
    "resource moved rows": Found("wider", 21),
    "resource row ids": Found("wider", 22),
    "resource commit time": Found("first", 672),
}

NINE = {
    1: ("reads beside a finer one",),
    2: ("domains that name columns",),
    3: ("read of all domains",),
    4: ("the time before the first timestamp",),
    5: ("rest on files of others", "rule files-deleted"),
    6: (
        "reads by a source that is the table",
        "reads by a source under another name",
        "reads by a source that is opened late",
    ),
    7: ("reads of what is stored in a domain beside a compaction", "domains and applications in an order"),
    8: ("reads of a statement that fails",),
    9: ("the answer past the bound on files",),
}
"""What the first engine got wrong, by the numbers of concurrency.md, "Reads and footprints", and what it lacked."""


def findings(found, *removed):
    program = DRAWS[found.words](found.seed)
    with without(*removed):
        outcome = play(program)
    wrong = judged(outcome)
    return wrong, "\n".join([described(program, outcome), *map(str, wrong)])


@pytest.mark.sample(check=1, test=10)
@pytest.mark.parametrize("name", FOUND)
def test_a_removal_is_found(name):
    found = FOUND[name]
    wrong, told = findings(found)
    assert not wrong, told
    wrong, told = findings(found, name, *found.others)
    assert wrong, told


@pytest.mark.sample(check=1, test=3)
@pytest.mark.parametrize("name", [name for name, found in FOUND.items() if found.others])
def test_others_do_the_same_work_and_either_is_enough(name):
    found = FOUND[name]
    for removed in ((name,), found.others):
        wrong, told = findings(found, *removed)
        assert not wrong, told


def test_each_removal_is_looked_for():
    assert FOUND.keys() == REMOVALS.keys()
    assert {name.removeprefix("rule ") for name in FOUND if name.startswith("rule ")} == {rule.id for rule in RULES}
    assert all(bool(found.others) == bool(found.because) for found in FOUND.values())


def test_each_resource_that_a_rule_asks_for_is_removed():
    # Of the resource "table" a footprint has no field of its own: its rules are removed.
    asked = {name for name, one in RESOURCES.items() if one.unruled is None} - {"table"}
    assert {f"resource {name}" for name in asked} <= FOUND.keys()


def test_each_of_the_nine_is_among_them():
    assert sorted(NINE) == list(range(1, 10))
    assert {name for names in NINE.values() for name in names} <= FOUND.keys()
