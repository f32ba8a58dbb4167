"""The types of intervals, which values of expressions have and columns of tables do not."""

from __future__ import annotations

from refdelta.table.types import DataType, PrimitiveType

DAYS: DataType = PrimitiveType("interval day")
"""Whole days, as microseconds; with it a date stays a date."""

DAY_TIME: DataType = PrimitiveType("interval day to second")
"""Days and times, as microseconds."""

YEAR_MONTH: DataType = PrimitiveType("interval year to month")
"""Years and months, as months."""

INTERVALS: frozenset[DataType] = frozenset({DAYS, DAY_TIME, YEAR_MONTH})
