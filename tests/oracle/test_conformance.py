"""Cases of the conformance suite on delta-spark, whose statements wait before their commits.

Tests of conformance.engines.delta_spark.
"""

from __future__ import annotations

import pytest

from refdelta.conformance import cases, run
from refdelta.conformance.engines.delta_spark import DeltaSpark

CASES = {case.id: case for case in cases()}


@pytest.mark.tier("all")
@pytest.mark.spark
def test_statements_overlap_as_the_schedule_says(quick_spark):
    engine = DeltaSpark()
    engine._spark = quick_spark
    chosen = [CASES["lost-update@Serializable"], CASES["lost-update@WriteSerializable"]]
    results = run(engine, [*chosen, CASES["compaction-over-a-delete@Serializable"]])
    assert [(one.status, one.committed, [*one.failures]) for one in results[:2]] == [("sound", ("W",), ["T"])] * 2
    assert results[2].why == "an OPTIMIZE that waits before its commit"
