"""How internal values compare: Spark's order, and three-valued comparisons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


def order(left: Any, right: Any) -> int:
    """-1, 0 or 1 as ``left`` is below, equal to or above ``right``; neither is null."""
    if isinstance(left, float) and isinstance(right, float) and (math.isnan(left) or math.isnan(right)):
        return int(math.isnan(left)) - int(math.isnan(right))
    return int(left > right) - int(left < right)


def compare(op: str, left: Any, right: Any) -> bool | None:
    """Two internal values of one type under a comparison operator."""
    if op == "<=>":
        return left is None and right is None if left is None or right is None else order(left, right) == 0
    if left is None or right is None:
        return None
    found = order(left, right)
    return {"=": found == 0, "<>": found != 0, "<": found < 0, "<=": found <= 0, ">": found > 0, ">=": found >= 0}[op]


def is_in(value: Any, items: Sequence[Any]) -> bool | None:
    """``value IN (items)``."""
    if value is None:
        return None
    if any(item is not None and order(value, item) == 0 for item in items):
        return True
    return None if None in items else False
