"""Sets of rows of one data file: physical positions, counted from 0, whether or not a deletion vector hides them."""

from __future__ import annotations

import array
import enum
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyroaring import BitMap64

if TYPE_CHECKING:
    import numpy as np

MOST_ROWS: Final = 2**31
"""The greatest number of rows in a data file; a larger number in a log is invalid."""

SHOWN: Final = 3
"""The number of positions of a file in an error."""


class All(enum.Enum):
    """All rows of a file that were live when it was read, without their positions."""

    ROWS = "all live rows"


ALL: Final = All.ROWS

Rows: TypeAlias = BitMap64 | All
"""Some rows, or all that are live."""

NONE: Final = BitMap64()
"""No rows. Sets of rows are values here: none is ever changed."""


def union(one: Rows, other: Rows) -> Rows:
    """The rows of both."""
    if isinstance(one, All) or isinstance(other, All):
        return ALL
    return one | other


def common(rows: Rows, gone: BitMap64) -> BitMap64:
    """Those of ``gone``, live rows of a file, that are among ``rows``."""
    return gone if isinstance(rows, All) else rows & gone


def any_of(rows: Rows) -> bool:
    """Whether the set is not empty."""
    return isinstance(rows, All) or len(rows) > 0


def shown(rows: Mapping[str, BitMap64]) -> dict[str, tuple[int, ...]]:
    """The first few positions by file."""
    return {path: tuple(itertools.islice(found, SHOWN)) for path, found in rows.items()}


def renumber(rows: BitMap64, hidden: BitMap64, spans: Sequence[tuple[int, int, int]]) -> list[BitMap64]:
    """The positions of rows in a copy of the live rows of their file.

    Args:
        rows: positions in the file.
        hidden: the positions that were not live, and not copied.
        spans: the copied parts, as (number of the first row among the live rows, number of rows, position of the first
            row in the copy).

    Returns:
        For each span the positions in the copy. Rows that are hidden, or in no span, are left out.
    """
    import numpy as np

    positions, gone = _as_array(rows), _as_array(hidden)
    rank = np.searchsorted(gone, positions)
    if len(gone):
        live = gone[np.minimum(rank, len(gone) - 1)] != positions
        positions, rank = positions[live], rank[live]
    numbers = positions - rank.astype(np.uint64)
    found = []
    for start, count, place in spans:
        first, last = np.searchsorted(numbers, np.array([start, start + count], np.uint64))
        moved = numbers[first:last] - np.uint64(start) + np.uint64(place)
        found.append(BitMap64(array.array("Q", moved.tobytes())))
    return found


def carry(rows: Rows, at: bytes, to: bytes) -> BitMap64:
    """The positions of rows in another file, by a table of old and new positions.

    Args:
        rows: positions in the old file, or all rows in the table.
        at: the old positions, ascending, as unsigned 64-bit numbers in the byte order of the machine.
        to: the new position of each, likewise.

    Returns:
        The positions in the other file. Rows that are not in the table are left out.
    """
    import numpy as np

    places = np.frombuffer(to, np.uint64)
    if not isinstance(rows, All):
        places = places[np.isin(np.frombuffer(at, np.uint64), _as_array(rows), assume_unique=True)]
    return BitMap64(array.array("Q", np.sort(places).tobytes()))


def _as_array(rows: BitMap64) -> np.ndarray[Any, np.dtype[np.uint64]]:
    import numpy as np

    return np.frombuffer(rows.to_array(), np.uint64)
