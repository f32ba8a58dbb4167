"""Longer histories than can all be tried: random operations, interleavings and levels.

``REFDELTA_RANDOM_HISTORIES`` says how many.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from model import tables
from model.branches import Refusal
from model.cases import BY_HAND, MORE, values_of
from model.layouts import LAYOUTS, TRACKING, WIDER
from model.operations import data_of
from model.program_cases import STATEMENTS, of_rows_and_domains, programs
from refdelta.conformance.judge import LEVELS, SERIALIZABLE
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.scan.scan import plan_scan
from tiers import examples

MANY = int(os.environ.get("REFDELTA_RANDOM_HISTORIES", "1000"))


@st.composite
def schedules(draw, most, cases=MORE):
    """Who begins and who commits, in which order; who does what, and who asks for more than the table's level."""
    count = draw(st.integers(3, most))
    waiting, running, events = list(range(count)), [], []
    while waiting or running:
        if waiting and (not running or draw(st.booleans())):
            running.append(waiting.pop(0))
            events.append(("begin", running[-1]))
        else:
            events.append(("commit", running.pop(draw(st.integers(0, len(running) - 1)))))
    some = draw(st.lists(st.sampled_from(cases), min_size=2, max_size=5, unique=True))
    chosen = draw(st.lists(st.sampled_from(some), min_size=count, max_size=count))
    strict = draw(st.lists(st.integers(0, 5).map(lambda n: n == 0), min_size=count, max_size=count))
    return events, chosen, strict


def run(table, schedule):
    """Run a history; every version is judged as it is made. Returns the last one."""
    events, cases, strict = schedule
    version, running, refused = table.root, {}, 0
    for what, who in events:
        if what == "begin":
            running[who] = table.begin(version, cases[who], who, strict=strict[who] or table.level == SERIALIZABLE)
            continue
        outcome = table.commit(version, running[who])
        refused += isinstance(outcome, Refusal)
        version = version if isinstance(outcome, Refusal) else outcome
    event(f"{table.level}: {version.number} committed, {refused} refused")
    return version


@pytest.mark.tier("test")
@examples(MANY)
@given(st.sampled_from(LEVELS), st.sampled_from(LAYOUTS), schedules(6))
def test_through_the_rules(level, layout, schedule):
    run(tables.core(level, layout), schedule)


@pytest.mark.tier("test")
@examples(MANY // 5)
@given(st.sampled_from(LEVELS), st.sampled_from(LAYOUTS), schedules(5))
def test_through_the_engine(level, layout, schedule):
    through_the_engine(level, layout, schedule)


@examples(MANY // 5)
@given(st.sampled_from(LEVELS), st.sampled_from(TRACKING), schedules(6))
def test_through_the_rules_where_rows_are_tracked(level, layout, schedule):
    run(tables.core(level, layout), schedule)


# By hand, rows lose their ids.
@pytest.mark.tier("test")
@examples(MANY // 20)
@given(st.sampled_from(LEVELS), st.sampled_from(TRACKING), schedules(5, tuple(c for c in MORE if c is not BY_HAND)))
def test_through_the_engine_where_rows_are_tracked(level, layout, schedule):
    through_the_engine(level, layout, schedule)


@pytest.mark.tier("test")
@examples(MANY // 5)
@given(st.sampled_from(LEVELS), st.sampled_from(WIDER), st.data())
def test_programs_through_the_rules(level, layout, data):
    run(tables.core(level, layout), data.draw(schedules(6, (*of_rows_and_domains(layout), *STATEMENTS))))


@pytest.mark.tier("test")
@examples(MANY // 20)
@given(st.sampled_from(LEVELS), st.sampled_from(WIDER), st.data())
def test_programs_through_the_engine(level, layout, data):
    through_the_engine(level, layout, data.draw(schedules(5, (*programs(layout), *STATEMENTS))))


def through_the_engine(level, layout, schedule):
    engine = tables.engine(level, layout)
    version = run(engine, schedule)
    # Once more with nothing kept from before: the log as it is in the store, and each file read anew.
    engine.check_out(version.log, version.gone)
    rows = plan_scan(load_snapshot(engine.store)).to_table()
    assert values_of(rows) == data_of(version.state)
