"""Features that meet in one table, which delta-spark, the engine, and the engine on Spark write in turns.

Each program is a seed: ``tests/together`` draws its features and its statements, has them played, and says which rows,
ids of rows and changes there are to be. ``tests/api/test_programs.py`` has refdelta play programs alone.
"""

from __future__ import annotations

import pytest

from together.features import SEEDS
from together.play import Play

pytestmark = pytest.mark.spark


@pytest.mark.sample(test=0)
@pytest.mark.parametrize("seed", SEEDS)
def test_features_meet(quick_spark, tmp_path, seed):
    Play(seed, tmp_path / "t", quick_spark).play()
