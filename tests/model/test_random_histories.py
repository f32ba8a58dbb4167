"""Longer histories than can all be tried: random operations, interleavings and levels.

``REFDELTA_RANDOM_HISTORIES`` says how many.
"""

from __future__ import annotations

import os
from functools import cache

from hypothesis import event, given, settings
from hypothesis import strategies as st

from model.branches import Refusal
from model.cases import MORE
from model.core import Core
from model.engine import Engine
from model.judge import LEVELS, SERIALIZABLE
from model.operations import data_of
from refdelta.engine.scan import plan_scan
from refdelta.engine.snapshot import load_snapshot

MANY = int(os.environ.get("REFDELTA_RANDOM_HISTORIES", "1000"))


@st.composite
def schedules(draw, most):
    """Who begins and who commits, in which order; who does what, and who asks for more than the table's level."""
    count = draw(st.integers(3, most))
    waiting, running, events = list(range(count)), [], []
    while waiting or running:
        if waiting and (not running or draw(st.booleans())):
            running.append(waiting.pop(0))
            events.append(("begin", running[-1]))
        else:
            events.append(("commit", running.pop(draw(st.integers(0, len(running) - 1)))))
    some = draw(st.lists(st.sampled_from(MORE), min_size=2, max_size=5, unique=True))
    cases = draw(st.lists(st.sampled_from(some), min_size=count, max_size=count))
    strict = draw(st.lists(st.integers(0, 5).map(lambda n: n == 0), min_size=count, max_size=count))
    return events, cases, strict


@cache
def table(kind, level, partitioned):
    """One for all examples: what two of them share is run once."""
    return kind(level, partitioned=partitioned)


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


@settings(max_examples=MANY)
@given(st.sampled_from(LEVELS), st.booleans(), schedules(6))
def test_through_the_rules(level, partitioned, schedule):
    run(table(Core, level, partitioned), schedule)


@settings(max_examples=MANY // 5)
@given(st.sampled_from(LEVELS), st.booleans(), schedules(5))
def test_through_the_engine(level, partitioned, schedule):
    engine = table(Engine, level, partitioned)
    version = run(engine, schedule)
    # Once more with nothing kept from before: the log as it is in the store, and each file read anew.
    engine.check_out(version.log)
    rows = plan_scan(load_snapshot(engine.store)).to_table()
    assert sorted(zip(rows["k"].to_pylist(), rows["a"].to_pylist(), strict=True)) == data_of(version.state)
