"""The cost model: what its formula says is what the engine's commit loops do on a simulated store."""

import re
from pathlib import Path

import cost_model
import pytest

README = (Path(__file__).parents[2] / "bench" / "README.md").read_text()


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("writers", [1, 2, 8, 32])
@pytest.mark.parametrize("conflict", [0.0, 0.1])
@pytest.mark.parametrize("place", cost_model.PLACES.values(), ids=[*cost_model.PLACES])
def test_the_formula_is_within_its_tolerance_of_the_simulation(place, conflict, writers):
    told = cost_model.predict(place, writers, conflict)
    found = cost_model.simulate(place, writers, conflict, commits=250, seed=7)
    assert told.rate == pytest.approx(found.rate, rel=0.20)
    assert told.aborts == pytest.approx(found.aborts, abs=0.10)


def test_the_simulation_is_the_same_for_the_same_seed():
    first, again, other = (
        cost_model.simulate(cost_model.PLACES["s3"], 4, 0.1, commits=50, seed=seed) for seed in (3, 3, 4)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("place", cost_model.PLACES.values(), ids=[*cost_model.PLACES])
def test_writers_bring_a_table_to_its_bound(place):
    """One alone may come so near to it that the next ones bring nothing; what they cost then is bounded, too."""
    rates = [cost_model.predict(place, writers).rate for writers in (1, 2, 4, 8, 16, 64, 256)]
    bound = 1 / (place.list / 2 + place.get + place.put / 2 if place.nearby else place.put)
    assert all(rate > 0.85 * max(rates[: fewer + 1]) for fewer, rate in enumerate(rates))
    assert 0.75 * bound < max(rates) < bound
    alone = 1 / (place.think + place.list * place.nearby + place.work + place.put)
    assert rates[0] == pytest.approx(alone)


def test_conflicts_are_more_where_winners_are_more():
    shares = [cost_model.predict(cost_model.PLACES["s3"], writers, 0.05).aborts for writers in (1, 2, 4, 8, 16)]
    assert shares[0] == 0
    assert shares == sorted(set(shares))


@pytest.mark.tier("test")
def test_nobody_loses_for_ever():
    """A pause behind a look at the log made whoever paused lose again: with 32 writers it took 20 puts and more."""
    found = cost_model.simulate(cost_model.PLACES["s3-express"], 32, commits=300, seed=5)
    assert found.rate > 0.8 * cost_model.predict(cost_model.PLACES["s3-express"], 32).rate


def test_the_readme_says_what_the_formula_gives():
    for place in cost_model.PLACES.values():
        row = re.search(rf"^\| {place.name} \|.*$", README, re.MULTILINE).group()
        assert row == cost_model.row(place)


def test_a_store_of_ones_own_needs_all_three_latencies(capsys):
    with pytest.raises(SystemExit) as ended:
        cost_model.main(["--put", "60"])
    assert ended.value.code == 2
    assert "belong together" in capsys.readouterr().err


def test_the_program_prints_both(capsys, monkeypatch):
    monkeypatch.setattr(cost_model, "WRITERS", (1, 2))
    assert cost_model.main(["--put", "60", "--get", "25", "--list", "40", "--commits", "20"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("own")]) == 2 * len(cost_model.CONFLICTS)
    assert "8.3" in lines[3]
