"""The specification of the commit protocol in spec_notes/quint: its runs, and their replay through the commit loop.

Runs need Quint, which ``make servers`` installs. The traces in ``traces.json`` are replayed without it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from model.specification import (
    FOLDER,
    KEPT,
    WITNESSES,
    Differs,
    IntentReplay,
    Loop,
    Replay,
    Run,
    differing,
    kept_traces,
)
from refdelta.core.commit import effects, loop
from refdelta.core.commit.loop import Loop as CommitLoop
from refdelta.core.commit.loop import group_loop
from refdelta.core.conflicts.rules import Clear
from tiers import budget

pytestmark = pytest.mark.xdist_group("specification")  # so that the runs are made once

RULES = ("absent", "id", "settle", "check", "order", "any id", "confirm", "object", "withdraw")
"""The rules of loop.qnt."""


@pytest.fixture(scope="module")
def traced(simulator: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of the loop."""
    # A seed by whose few samples every witness is found: that of a log cleanup during a put is rare.
    return simulator("scenarios", tmp_path_factory.mktemp("traces"), budget(500, fewest=200), seed=2)


def is_whole(found: Run, main: str) -> bool:
    """Whether every invariant holds, each rule is needed, and the runs come to where something may happen."""
    assert found.broken is None
    assert [name for name in WITNESSES[main] if not found.witnesses[name]] == []
    return True


def followed(traces: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """The traces in which no rule is left out."""
    return [states for states in traces if not states[0]["world"]["without"]]


def test_the_loop_of_the_specification_holds_and_needs_each_rule(traced):
    assert is_whole(traced, "scenarios")


def test_each_rule_of_the_loop_may_be_left_out():
    text = (FOLDER / "loop.qnt").read_text()
    named = text[text.index("RULES: Set[str] = Set(") : text.index("type Effect")]
    assert re.findall(r'^    "([a-z ]+)"', named, re.MULTILINE) == [*RULES]
    assert text.count("val without") == len(RULES)


def test_the_loop_does_what_the_specification_says(traced):
    traces = followed(traced.traces)
    replays = [Replay(states).run() for states in traces]
    print(f"{len(traces)} traces, {sum(one.steps for one in replays)} effects")
    assert len(traces) > 70
    asked = Counter(state["last"]["effect"][0] for states in traces for state in states)
    assert asked.keys() >= {"VersionExists", "TryCommit", "ReadCommits", "NewestVersion", "Pause", "Withdraw"}
    ends = {
        outcome["kind"]
        for states in traces
        for writer in states[-1]["writers"].values()
        for outcome in writer["outcomes"].values()
    }
    assert ends >= {"open", "committed", "conflict", "failed", "refused", "unknown"}


@pytest.mark.parametrize("rule", RULES)
def test_the_loop_does_not_do_what_the_specification_says_without_a_rule(traced, rule):
    traces = [states for states in traced.traces if states[0]["world"]["without"] == rule]
    assert next(differing(traces), None) is not None


# --- loops that leave a rule out -----------------------------------------------------------------------------------


def answering(change: Callable[[effects.Effect, effects.Reply], effects.Reply]) -> Loop:
    """The loop, with other replies."""

    def changed(members, limits):
        steps = group_loop(members, limits)
        try:
            effect = next(steps)
            while True:
                reply = yield effect
                effect = steps.send(change(effect, reply))
        except StopIteration:
            return

    return changed


def withdraws_nothing(members, limits):
    """The loop, which does not carry out a withdrawal."""
    steps = group_loop(members, limits)
    try:
        effect = next(steps)
        while True:
            effect = steps.send(effects.Yes() if isinstance(effect, effects.Withdraw) else (yield effect))
    except StopIteration:
        return


def nothing(*_: Any, **__: Any) -> Iterator[Any]:
    yield from ()


def unchecked(self, member, before):
    yield from ()
    return member.copy()


def of_the_first(self, commit):
    return self.members[0].is_in(commit)


UNKNOWN_IS_SUCCESS = answering(lambda _, reply: effects.Committed() if isinstance(reply, effects.Unknown) else reply)
EXISTS_IS_SUCCESS = answering(lambda _, reply: effects.Committed() if isinstance(reply, effects.Exists) else reply)
REPLACED_IS_THERE = answering(lambda _, reply: effects.Yes() if isinstance(reply, effects.Replaced) else reply)

BROKEN: dict[str, tuple[Loop, tuple[Any, str, Any] | None]] = {
    "id": (group_loop, (CommitLoop, "_is_ours", lambda self, commit: False)),
    "settle": (UNKNOWN_IS_SUCCESS, None),
    "exists": (EXISTS_IS_SUCCESS, None),
    "check": (group_loop, ("refdelta.core.commit.member", "check", lambda *_: Clear(None))),
    "order": (group_loop, (CommitLoop, "_after", unchecked)),
    "any id": (group_loop, (CommitLoop, "_is_ours", of_the_first)),
    "confirm": (group_loop, (CommitLoop, "_confirm_created", nothing)),
    "before": (group_loop, (CommitLoop, "_confirm_base", nothing)),
    "object": (REPLACED_IS_THERE, None),
    "withdraw": (withdraws_nothing, None),
    "in doubt": (group_loop, (CommitLoop, "in_doubt", property(lambda self: False, lambda self, value: None))),
    "in order": (group_loop, (loop, "in_order", list)),
    "share": (group_loop, (loop, "may_share", lambda member, others: True)),
}
"""Loops that leave a rule out: as replies are taken, or a part of the loop that is replaced."""


def leave_out(name: str, monkeypatch: pytest.MonkeyPatch) -> Loop:
    broken, patch = BROKEN[name]
    if patch is not None:
        where, attribute, value = patch
        if isinstance(where, str):
            monkeypatch.setattr(f"{where}.{attribute}", value)
        else:
            monkeypatch.setattr(where, attribute, value, raising=False)
    return broken


@pytest.mark.parametrize("name", BROKEN)
def test_a_loop_without_a_rule_fails_the_replay(traced, name, monkeypatch):
    wrong = leave_out(name, monkeypatch)
    assert next(differing(followed(traced.traces), wrong), None) is not None


# --- catalogs and intents ------------------------------------------------------------------------------------------


def test_a_catalog_holds_and_needs_each_of_its_rules(simulator, tmp_path):
    assert is_whole(simulator("staged", tmp_path, budget(250, fewest=100)), "staged")


def test_intents_hold_and_a_leader_does_what_the_specification_says(simulator, tmp_path):
    """Those that wait end as the specification says, too."""
    found = simulator("beside", tmp_path, budget(500, fewest=200))
    assert is_whole(found, "beside")
    replays = [IntentReplay(states).run() for states in found.traces if not states[0]["without"]]
    led, ended = sum(one.led for one in replays), sum(one.ended for one in replays)
    print(f"{len(replays)} traces, {led} versions of leaders, {ended} ends")
    assert min(led, ended) > 100
    # The other two rules are not those of a leader, but of the writer of an intent.
    wrong = {states[0]["without"] for states in found.traces if differs(states)}
    assert wrong == {"3 named", "5 window", "7 order", "10 settle"}


def differs(states: list[dict[str, Any]]) -> bool:
    try:
        IntentReplay(states).run()
    except Differs:
        return True
    return False


# --- the traces that are kept --------------------------------------------------------------------------------------


def test_the_kept_traces_are_replayed_without_quint():
    assert [*differing(kept_traces())] == []
    assert KEPT.stat().st_size < 200_000


@pytest.mark.parametrize("name", BROKEN)
def test_a_loop_without_a_rule_fails_the_replay_of_the_kept_traces(name, monkeypatch):
    wrong = leave_out(name, monkeypatch)
    assert next(differing(kept_traces(), wrong), None) is not None


def test_a_replay_says_at_which_step_it_differs(monkeypatch):
    monkeypatch.setattr(CommitLoop, "_confirm_base", nothing)
    replay = Replay(kept_traces()[0])
    with pytest.raises(Differs, match=r"step \d+, .*the loop asks \('TryCommit', \d\)"):
        replay.run()
