"""How engines take turns, and how what they take is compared."""

from dataclasses import replace
from types import SimpleNamespace

import contest
import pytest
from contest import Contest, Engine, Goal, Ratio, ahead, ratio, within
from results import Bench, Measured


class Benchmark:
    """What a contest needs of pytest-benchmark's fixture: it times refdelta."""

    def __init__(self):
        self.extra_info = {}
        self.stats = SimpleNamespace(stats=SimpleNamespace(data=[]))

    def pedantic(self, work, *, setup, teardown, rounds, warmup_rounds):
        for number in range(-warmup_rounds, rounds):
            given, named = setup()
            work(*given, **named)
            teardown(*given, **named)
            if number >= 0:
                self.stats.stats.data.append(1.0)


@pytest.fixture(autouse=True)
def garbage_stays(monkeypatch):
    """A process of the tests holds much, through which a contest would look before each run."""
    monkeypatch.setattr(contest, "gc", SimpleNamespace(collect=lambda: None))


@pytest.fixture
def clock(monkeypatch):
    """Rivals take as long as they say."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(contest.time, "perf_counter", lambda: now.seconds)
    return now


def play(engines, *, rounds=6, skipped=(), given_rounds=None, **more):
    benchmark = Benchmark()
    found = Contest(benchmark, given_rounds, frozenset(skipped), 7).run(engines, rounds=rounds, **more)
    return found, benchmark.extra_info


def recorded(*names, **every):
    calls = []
    engines = [Engine(name, lambda name=name: calls.append(name), every=every.get(name, 1)) for name in names]
    return calls, engines


@pytest.mark.tier("test")
@pytest.mark.sample(test=1)
@pytest.mark.parametrize("place", range(3))
def test_each_round_runs_every_engine_once_and_begins_with_another(place):
    names = ["a", "b"]
    names.insert(place, "refdelta")
    calls, engines = recorded(*names)
    found, _ = play(engines, warm=1)
    rounds = [calls[start : start + 3] for start in range(3, len(calls), 3)]  # the first three are the warm one
    assert len(calls) == 21
    assert all(sorted(one) == sorted(names) for one in rounds)
    assert [one[0] for one in rounds] == names * 2
    assert all(set(samples.seconds) == set(range(6)) for samples in found.values())


def test_a_slow_rival_may_do_a_share_of_the_work(clock):
    def work():
        clock.seconds += 2.0

    found, _ = play([Engine("refdelta", lambda: None), Engine("slow", work, share=0.1)], rounds=1)
    assert list(found["slow"].seconds.values()) == [pytest.approx(20.0)]


@pytest.mark.tier("nightly")
def test_slow_rivals_take_part_in_some_rounds_only():
    calls, engines = recorded("refdelta", "slow", slow=4)
    found, _ = play(engines, rounds=7, warm=2)
    assert set(found["slow"].seconds) == {0, 4}
    assert calls.count("slow") == 4  # and in the two that warm


def test_what_before_returns_goes_to_run_and_after():
    seen = []
    engines = [
        Engine(
            name,
            lambda given, name=name: seen.append((name, "run", given)),
            before=lambda name=name: f"of {name}",
            after=lambda given, name=name: seen.append((name, "after", given)),
        )
        for name in ("refdelta", "other")
    ]
    play(engines, rounds=1, warm=0)
    assert seen == [(n, part, f"of {n}") for n in ("refdelta", "other") for part in ("run", "after")]


@pytest.mark.tier("test")
def test_only_the_run_of_a_rival_is_timed(clock):
    def takes(seconds):
        def work(*_):
            clock.seconds += seconds

        return work

    rival = Engine("other", takes(2), before=takes(100), after=takes(1_000))
    found, _ = play([Engine("refdelta", takes(1)), rival], rounds=2)
    assert found["other"].seconds == {0: 2.0, 1: 2.0}


@pytest.mark.tier("test")
def test_figures_of_counted_rounds_are_kept():
    numbers = iter(range(100))
    engines = [Engine("refdelta", lambda: {"bytes": next(numbers)}), Engine("other", lambda: "no figures")]
    found, _ = play(engines, rounds=3, warm=2)
    assert found["refdelta"].figures == {"bytes": [2.0, 3.0, 4.0]}
    assert found["other"].figures == {}


@pytest.mark.tier("test")
def test_engines_that_are_left_out_do_not_run_and_have_no_goals():
    calls, engines = recorded("refdelta", "deltalake", "floor")
    found, told = play(engines, skipped=["deltalake"], goals=[ahead("deltalake", 20), within("floor", 2)], winners=5)
    assert "deltalake" not in calls
    assert set(found) == set(told["engines"]) == {"refdelta", "floor"}
    assert [goal["rival"] for goal in told["goals"]] == ["floor"]
    assert (told["sizes"], told["seed"]) == ({"winners": 5}, 7)


def test_refdelta_alone_runs_without_its_variants_too():
    calls, engines = recorded("refdelta, fsync", "refdelta", "floor")
    benchmark = Benchmark()
    found = Contest(benchmark, None, frozenset(), 7, alone=True).run(engines, rounds=2, warm=0)
    assert calls == ["refdelta"] * 2
    assert list(found) == ["refdelta"]


def test_a_wish_for_rounds_overrides_the_benchmark():
    calls, engines = recorded("refdelta")
    play(engines, rounds=50, given_rounds=2, warm=0)
    assert len(calls) == 2


def test_a_failed_check_ends_the_benchmark():
    def wrong(_):
        raise AssertionError("rows are missing")

    with pytest.raises(AssertionError, match="rows are missing"):
        play([Engine("refdelta", lambda: None), Engine("other", lambda: None, after=wrong)])


def test_ratios_are_taken_within_rounds():
    """The machine was ten times as slow in half of the rounds, for all: the medians alone would tell nonsense."""
    slow = [1, 10, 1, 10, 10]
    own = {number: 2.0 * factor for number, factor in enumerate(slow)}
    other = {number: 4.0 * factor for number, factor in enumerate(slow)} | {9: 1e9}
    assert ratio(own, other) == Ratio(0.5, 0.5, 0.5)
    assert ratio(own, {1: 4.0 * slow[1], 2: 1.0}) == Ratio(1.25, 0.5, 2.0)


def test_the_spread_is_of_quartiles():
    own = {number: float(number + 1) for number in range(9)}
    assert ratio(own, dict.fromkeys(range(9), 1.0)) == Ratio(5.0, 3.0, 7.0)


def test_goals_are_reached_at_their_bound():
    assert ahead("deltalake", 20).reached(0.05)
    assert not ahead("deltalake", 20).reached(0.051)
    assert ahead("deltalake").reached(1.0)
    assert within("floor", 1.5).reached(1.5)
    assert not within("floor", 1.5).reached(1.51)
    assert (ahead("x").text, ahead("x", 4).text, within("y", 1.5).text) == ("ahead of x", "4 x x", "at most 1.5 x y")
    assert ahead("x", engine="refdelta, fsync", figure="MB").text == "refdelta, fsync: MB: ahead of x"


@pytest.mark.parametrize(
    ("goal", "value"),
    [
        (within("other", 1), 0.5),
        (within("other", 1, engine="refdelta, fsync"), 1.5),
        (ahead("other", figure="MB"), 0.25),
        (Goal("seconds a unit", 1), 0.2),
        (Goal("MB", 1, figure="MB"), 10.0),
        (Goal("of its own", 1, figure="MB", over="median"), 2.0),
    ],
    ids=lambda part: part.text if isinstance(part, Goal) else "",
)
def test_a_goal_is_of_seconds_or_of_a_figure_alone_or_divided_by_another(goal, value):
    engines = {
        "refdelta": Measured("refdelta", "", {0: 1.0, 1: 2.0, 2: 3.0}, {"MB": [9, 10, 99], "median": [5]}, 10),
        "refdelta, fsync": Measured("refdelta, fsync", "", {0: 3.0, 1: 6.0, 2: 9.0}, {}, 10),
        "other": Measured("other", "", {0: 2.0, 1: 4.0, 2: 6.0}, {"MB": [40]}, 10),
    }
    bench = Bench("bench_x.py", "bench_x", (), {}, "", "", (goal,), engines)
    assert bench.reached(replace(goal, most=value))
    assert not bench.reached(replace(goal, most=value * 0.99))
