"""DataFrames that know their number of rows from the log: Spark would read each file to count the rows left in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.classic.dataframe import DataFrame

if TYPE_CHECKING:
    from refdelta.engine.scan.scan import Scan


def counted(frame: Any, scan: Scan) -> Any:
    """The DataFrame of a read without a filter on rows, with a ``count`` that needs no Spark job."""
    return _CountedFrame(frame, scan) if isinstance(frame, DataFrame) else frame


class _CountedFrame(DataFrame):
    """A DataFrame whose rows the engine counts. DataFrames that are derived from it are counted by Spark."""

    def __init__(self, frame: DataFrame, scan: Scan):
        super().__init__(frame._jdf, frame.sparkSession)  # noqa: SLF001
        self._scan = scan

    def count(self) -> int:
        """The number of rows, by statistics, or by the footers of files without them."""
        # A count is the usual way to fill a cache.
        return super().count() if self.is_cached else self._scan.count()
