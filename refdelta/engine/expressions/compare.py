"""Comparisons of columns: the twin of :func:`refdelta.core.expressions.ordering.compare`, which is the definition."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def compare(op: str, left: Any, right: Any) -> pa.BooleanArray:
    """Two columns, or a column and a scalar, under a comparison operator."""
    if pa.types.is_null(left.type) and pa.types.is_null(right.type):
        # Arrow has no comparison for a type that has no values, such as that of bounds that are not kept.
        left, right = pc.cast(left, pa.bool_()), pc.cast(right, pa.bool_())
    match op:
        case "=":
            return _equal(left, right)
        case "<>":
            return pc.invert(_equal(left, right))
        case "<":
            return _less(left, right)
        case ">":
            return _less(right, left)
        case "<=":
            return pc.invert(_less(right, left))
        case ">=":
            return pc.invert(_less(left, right))
        case _:
            both_null = pc.and_(pc.is_null(left), pc.is_null(right))
            return pc.coalesce(_equal(left, right), both_null)


def _floating(value: Any) -> bool:
    return bool(pa.types.is_floating(value.type))


def _equal(left: Any, right: Any) -> pa.BooleanArray:
    found = pc.equal(left, right)
    if _floating(left):
        # Arrow follows IEEE, where NaN equals nothing; in Spark it equals itself.
        return pc.or_(found, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return found


def _less(left: Any, right: Any) -> pa.BooleanArray:
    found = pc.less(left, right)
    if _floating(left):
        return pc.or_(found, pc.and_(pc.invert(pc.is_nan(left)), pc.is_nan(right)))
    return found
