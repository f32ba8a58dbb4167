"""Sets of rows of one data file: physical positions, counted from 0, whether or not a deletion vector hides them."""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

from pyroaring import BitMap64


class All(enum.Enum):
    """Every live row of a file, without saying which ones these are."""

    ROWS = "all live rows"


ALL: Final = All.ROWS

Rows: TypeAlias = BitMap64 | All
"""Some rows, or all that are live."""


def union(one: Rows, other: Rows) -> Rows:
    """The rows of both, as a new set."""
    return ALL if isinstance(one, All) or isinstance(other, All) else one | other
