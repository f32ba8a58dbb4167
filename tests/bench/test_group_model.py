"""The cost model of groups: its formulas are near to a simulation whose figures are known, and never beyond a bound."""

import group_model
import pytest
from cost_model import PLACES
from group_model import Machine

S3 = PLACES["s3"]


@pytest.mark.parametrize(
    ("way", "writers", "simulated"),
    [
        *(("intents", 1, 8), ("intents", 2, 10), ("intents", 4, 16), ("intents", 8, 31), ("intents", 16, 62)),
        *(("intents", 64, 215), ("intents", 256, 430), ("a group of threads", 16, 92), ("a group of threads", 64, 278)),
        ("a group of threads", 256, 420),
    ],
)
def test_the_formulas_are_within_a_fifth_of_a_simulation(way, writers, simulated):
    assert group_model.WAYS[way](S3, writers, Machine()).rate == pytest.approx(simulated, rel=0.2)


@pytest.mark.parametrize("name", [name for name, place in PLACES.items() if not place.nearby])
@pytest.mark.parametrize("way", ["a group of threads", "intents"])
def test_more_writers_bring_more_until_the_processor_is_full(name, way):
    machine = Machine(cpu=0.005, member=0.001, cores=2)
    rates = [group_model.WAYS[way](PLACES[name], writers, machine).rate for writers in group_model.WRITERS]
    assert all(rate > 0.85 * max(rates[: fewer + 1]) for fewer, rate in enumerate(rates))
    assert rates[-1] <= 2 / 0.005


def test_nobody_alone_is_slower_by_intents():
    for place in (place for place in PLACES.values() if not place.nearby):
        for writers in (1, 2, 4):
            alone = group_model.single(place, writers)
            assert group_model.intents(place, writers).rate >= alone.rate


def test_what_pays_pays_from_there_on():
    for way in ("a group of threads", "intents"):
        first = group_model.pays_from(S3, way, Machine())
        assert 1 < first <= 8
        for writers in (first, 2 * first, 64):
            rate = group_model.WAYS[way](S3, writers, Machine()).rate
            assert rate >= group_model.PAYS * group_model.single(S3, writers).rate


@pytest.mark.tier("test")
def test_the_program_prints_and_draws(capsys, tmp_path):
    assert group_model.main(["--picture", str(tmp_path / "p.svg")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(group_model.WRITERS) + 2
    assert "single commits" in (tmp_path / "p.svg").read_text()


@pytest.mark.parametrize("given", [["--put", "60"], ["--cpu", "0"], ["--cores", "0"]])
def test_figures_that_are_none_are_refused(given, capsys):
    with pytest.raises(SystemExit) as ended:
        group_model.main(given)
    assert ended.value.code == 2
    assert "more than 0" in capsys.readouterr().err
