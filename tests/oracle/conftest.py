"""Fixtures of the tests in which delta-spark runs many small statements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from refdelta.crosscheck.oracle import QUICK

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def quick_spark(spark: Any) -> Iterator[Any]:
    """The session of the run, spared checksums and tasks without work; as it was again afterwards."""
    before = {name: spark.conf.get(name, None) for name in QUICK}
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


@pytest.fixture
def with_checksums(quick_spark: Any) -> Iterator[Any]:
    """The session, writing checksums again."""
    name = "spark.databricks.delta.writeChecksumFile.enabled"
    before = quick_spark.conf.get(name)
    quick_spark.conf.set(name, "true")
    yield quick_spark
    quick_spark.conf.set(name, before)
