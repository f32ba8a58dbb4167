"""The conclusions of the table of claims hold for what delta-spark writes today."""

from __future__ import annotations

from pathlib import Path

import pytest

from by_path import loaded

claims = loaded(Path(__file__).parents[1] / "core" / "log" / "test_claims.py")


@pytest.mark.parametrize("zone", claims.measure.ZONES)
def test_the_conclusions_hold_for_what_delta_spark_writes(quick_spark, tmp_path, zone):
    claims.measure.source(tmp_path)
    claims.check(list(claims.measure.of_spark(quick_spark, tmp_path, zone)))
