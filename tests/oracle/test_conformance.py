"""Cases of the conformance suite on delta-spark, whose statements wait before their commits, and on Delta Kernel.

Tests of conformance.engines.delta_spark, conformance.engines.delta_kernel.
"""

from __future__ import annotations

import pytest

from refdelta.conformance import cases, run
from refdelta.conformance.engines.delta_kernel import DeltaKernel
from refdelta.conformance.engines.delta_spark import DeltaSpark

CASES = {case.id: case for case in cases()}


@pytest.mark.tier("nightly")
@pytest.mark.spark
def test_statements_overlap_as_the_schedule_says(quick_spark):
    engine = DeltaSpark()
    engine._spark = quick_spark
    chosen = [CASES["lost-update@Serializable"], CASES["lost-update@WriteSerializable"]]
    results = run(engine, [*chosen, CASES["compaction-over-a-delete@Serializable"]])
    assert [(one.status, one.committed, [*one.failures]) for one in results[:2]] == [("sound", ("W",), ["T"])] * 2
    assert results[2].why == "an OPTIMIZE that waits before its commit"


@pytest.fixture(scope="module")
def kernel(spark):
    # The session has fetched the JARs, or was skipped.
    engine = DeltaKernel()
    yield engine
    engine.close()


@pytest.mark.tier("nightly")
@pytest.mark.spark
@pytest.mark.parametrize(
    ("case", "ended", "committed"),
    [
        ("append-append@Serializable", "sound", ("W", "T")),
        ("two-create-the-table-with-rows@default", "sound", ("W",)),
        ("same-application-same-version@Serializable", "sound", ("W",)),
        ("delete-delete-of-other-rows-of-a-file@Serializable", "needless", ("W",)),
        ("append-over-a-property@WriteSerializable", "needless", ("W",)),
        ("delete-over-compaction-of-its-file@WriteSerializable", "needless", ("W",)),
        ("same-application-later-version@WriteSerializable", "refused", ("W",)),
        ("property-over-metadata-that-changes-nothing@WriteSerializable", "refused", ()),
        ("restore-over-a-vacuum@WriteSerializable", "refused", ()),
    ],
)
def test_kernel_commits_actions(kernel, case, ended, committed):
    (result,) = run(kernel, [CASES[case]])
    assert (result.status, result.committed) == (ended, committed), result.why


@pytest.mark.tier("nightly")
@pytest.mark.spark
def test_kernel_runs_no_transaction_whose_reads_it_would_not_check(kernel):
    (result,) = run(kernel, [CASES["delete-over-another-insert@Serializable"]])
    assert (result.status, result.why) == ("refused", "the adapter runs no cases of statements")
    (result,) = run(kernel, [CASES["whole-table-read-then-a-delete@Serializable"]])
    assert (result.status, result.why) == ("refused", "a transaction of Kernel cannot say that it read: everything")
