"""Programs in which features meet, as ``tests/oracle/test_features_together.py`` plays them with delta-spark: that any
two features have one, and what comes of them where refdelta is alone.
"""

from __future__ import annotations

import itertools

import pytest

from together.features import APART, SEEDS, VERBS, chosen
from together.play import Play
from together.programs import Program, Transactions
from together.statements import Statement


def statements(seed: int) -> list[Statement]:
    """Those of a program whose transactions all commit, in turn; the rows are the model's, and there is no table."""
    program, found = Program(seed), []
    for version, statement in enumerate(program.statements()):
        parts = [statement.winner, *statement.begun] if isinstance(statement, Transactions) else [statement]
        for part in parts:
            part.model(program.state)
        program.past.append((version, program.state.copy()))
        found += parts
    return found


def test_any_two_features_meet():
    met = {pair for seed in SEEDS for pair in itertools.combinations(sorted(chosen(seed)), 2)}
    assert met == set(itertools.combinations(sorted(VERBS), 2)) - {tuple(sorted(pair)) for pair in APART}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_program_uses_its_features(seed):
    program = Program(seed)
    assert {verb for feature in program.features for verb in VERBS[feature]} <= set(program.verbs)
    kinds = {type(statement).__name__ for statement in statements(seed)}
    assert {"Insert", "Update", "Delete"} <= kinds
    for feature, kind in (("merge", "Merge"), ("replace", "Replace"), ("mapping", "Rename"), ("widening", "Widen")):
        assert feature not in program.features or kind in kinds


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_is_a_program(seed):
    assert list(map(str, statements(seed))) == list(map(str, statements(seed)))


@pytest.mark.tier("nightly")
@pytest.mark.sample(test=3)
@pytest.mark.parametrize("seed", SEEDS)
def test_refdelta_plays_them_alone(tmp_path, seed):
    Play(seed, tmp_path / "t").play()
