"""The outcomes that the page to play with has are those of the engine, which writes real files for them."""

from __future__ import annotations

import random
from itertools import product

import pytest

from docs_site.conftest import PRESETS
from docs_site.histories import Choice, orders, outcomes, play
from model.engine import Engine
from refdelta.conformance.judge import LEVELS

PAIRS = [(one.id, two.id) for one, two in product(outcomes.OPERATIONS, repeat=2)]


@pytest.mark.tier("test")
@pytest.mark.sample(test=1)
@pytest.mark.parametrize("table", outcomes.LAYOUTS)
@pytest.mark.parametrize("level", LEVELS)
def test_every_pair_is_decided_as_the_engine_does(level, table):
    core, engine = (made(level, outcomes.LAYOUTS[table]) for made in (outcomes.PlayedCore, Engine))
    for pair, order in product(PAIRS, orders(2)):
        choice = Choice(level, table, pair, order)
        assert play(core, choice) == play(engine, choice), choice


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("table", outcomes.LAYOUTS)
@pytest.mark.parametrize("level", LEVELS)
def test_random_histories_of_three_and_four_are_decided_as_the_engine_does(level, table):
    """But for a second OPTIMIZE, of which the engine decides by clocks whether it is worthwhile."""
    core, engine = (made(level, outcomes.LAYOUTS[table]) for made in (outcomes.PlayedCore, Engine))
    rng = random.Random(f"{level} {table}")
    names = [one.id for one in outcomes.OPERATIONS]
    few = [one.id for one in outcomes.OPERATIONS if one.among_four]
    for count, offered in ((3, names), (4, few)):
        every = orders(count)
        for _ in range(100):
            choice = Choice(level, table, tuple(rng.choices(offered, k=count)), rng.choice(every))
            if choice.operations.count("compact") < 2:
                assert play(core, choice) == play(engine, choice), choice


@pytest.mark.tier("test")
def test_every_preset_is_decided_as_the_engine_does():
    for choice in PRESETS.values():
        core, engine = (made(choice.level, outcomes.LAYOUTS[choice.table]) for made in (outcomes.PlayedCore, Engine))
        assert play(core, choice) == play(engine, choice), choice


@pytest.mark.parametrize(
    ("preset", "kinds"),
    [
        ("two-writers", ["committed", "committed"]),
        ("without-vectors", ["committed", "refused"]),
        ("same-row", ["committed", "refused"]),
        ("compaction", ["committed", "committed", "committed"]),
        ("blind-append", ["committed", "committed"]),
        ("blind-append-serializable", ["committed", "refused"]),
        ("cycle", ["committed", "committed", "refused"]),
        ("swap", ["committed", "refused"]),
        ("partitions", ["committed", "committed"]),
        ("properties", ["committed", "refused"]),
    ],
)
def test_presets_end_as_the_documents_say(preset, kinds):
    choice = PRESETS[preset]
    core = outcomes.PlayedCore(choice.level, outcomes.LAYOUTS[choice.table])
    assert [result["kind"] for result in play(core, choice).results] == kinds


@pytest.mark.tier("test")
def test_a_table_has_every_choice_and_what_it_says_of_serial_orders_is_the_judges():
    table = outcomes.table("Serializable", outcomes.LAYOUTS["files"], most=2)
    count = len(outcomes.OPERATIONS)
    assert len(table.nodes[0]) == 1 + count
    assert all(len(node) == 1 + 2 * count and None not in node for node in table.nodes[1:])
    kinds = {outcome["kind"] for outcome in table.outcomes}
    assert kinds == {"committed", "refused", "nothing"}
    for outcome in table.outcomes:
        if outcome["kind"] == "committed":
            assert outcome["order"] == sorted(outcome["order"])  # at this level, the order of the log
        if outcome["kind"] == "refused":
            assert bool(outcome["order"]) != bool(outcome["why"])
