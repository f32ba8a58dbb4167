"""Transactions over several tables: all histories of two and three over two tables, and random ones over three, are
held to the judge; and each rule that is left out is found by it.

Tests of core.commit.together.
"""

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from model.branches import Refusal
from model.entries import Wrong
from model.layouts import PARTITIONED, PLAIN, ROWS
from model.several import Rules, Several
from model.several_cases import DOUBLE, SINGLE, random_program
from refdelta.conformance.judge import LEVELS, SERIALIZABLE, WRITE_SERIALIZABLE
from tiers import examples

MIXED = (SERIALIZABLE, WRITE_SERIALIZABLE)


@pytest.mark.tier("test")
@pytest.mark.parametrize("layout", [pytest.param(PLAIN, marks=pytest.mark.tier("test")), ROWS], ids=str)
@pytest.mark.parametrize("levels", [(one, one) for one in LEVELS], ids=str)
def test_all_histories_of_two_transactions_over_two_tables(levels, layout, say):
    tally = Several(levels, layout).explore(SINGLE + DOUBLE, 2)
    say(str(tally))
    assert 0 < tally["in which all commit"] < tally["histories"]


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("levels", [*((one, one) for one in LEVELS), MIXED, MIXED[::-1]], ids=str)
def test_all_histories_of_three_transactions_over_two_tables(levels, say):
    tally = Several(levels, ROWS).explore(SINGLE + DOUBLE, 3, DOUBLE)
    say(str(tally))
    assert 0 < tally["in which all commit"] < tally["histories"]


@pytest.mark.tier("test")
@pytest.mark.parametrize(
    ("level", "rules"),
    [
        (SERIALIZABLE, Rules(traces=False, pins=False)),
        (WRITE_SERIALIZABLE, Rules(traces=False)),
        (WRITE_SERIALIZABLE, Rules(skips=True)),
    ],
    ids=["reads of other tables are not checked", "reads leave no trace", "several tables skip an append"],
)
def test_a_rule_that_is_left_out_is_found(level, rules):
    with pytest.raises(Wrong, match="accepted though no serial order explains it"):
        Several((level, level), ROWS, rules).explore([*SINGLE[:2], *DOUBLE[:3]], 3, DOUBLE)


@st.composite
def schedules(draw):
    """Three tables, who begins and who commits in which order, and who does what."""
    count = draw(st.integers(3, 6))
    waiting, running, events = list(range(count)), [], []
    while waiting or running:
        if waiting and (not running or draw(st.booleans())):
            running.append(waiting.pop(0))
            events.append(("begin", running[-1]))
        else:
            events.append(("commit", running.pop(draw(st.integers(0, len(running) - 1)))))
    some = [random_program(draw, 3) for _ in range(draw(st.integers(2, 4)))]
    return events, draw(st.lists(st.sampled_from(some), min_size=count, max_size=count))


@pytest.mark.tier("test")
@examples(400)
@given(
    st.lists(st.sampled_from(LEVELS), min_size=3, max_size=3), st.sampled_from([PLAIN, ROWS, PARTITIONED]), schedules()
)
def test_random_histories_over_three_tables(levels, layout, schedule):
    tables = Several(levels, layout)
    world, running, refused = tables.root, {}, 0
    events, programs = schedule
    for what, who in events:
        if what == "begin":
            running[who] = tables.begin(world, programs[who], who)
            continue
        outcome = tables.commit(world, running[who])
        refused += isinstance(outcome, Refusal)
        world = world if isinstance(outcome, Refusal) else outcome
    event(f"{world.number} committed, {refused} refused")
