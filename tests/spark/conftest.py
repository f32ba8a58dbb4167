"""The session of Spark, as programs that use refdelta's data source have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def session(spark: Any) -> Iterator[Any]:
    """Spark with the data source ``refdelta``. Streams that a file of tests leaves running are stopped after it."""
    from refdelta.spark import register

    register(spark)
    yield spark
    for query in spark.streams.active:
        query.stop()
