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
"""How many rows a data file may have. A larger number in a log is no number of rows."""

SHOWN: Final = 3
"""How many positions of a file an error shows."""


class All(enum.Enum):
    """Every row of a file that was live when it was read, without saying which ones these are."""

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
    """Whether there are any."""
    return isinstance(rows, All) or len(rows) > 0


def shown(rows: Mapping[str, BitMap64]) -> dict[str, tuple[int, ...]]:
    """The first few positions by file."""
    return {path: tuple(itertools.islice(found, SHOWN)) for path, found in rows.items()}


def renumber(rows: BitMap64, hidden: BitMap64, spans: Sequence[tuple[int, int, int]]) -> list[BitMap64]:
    """Where rows of a file are after its live rows were copied.

    Args:
        rows: positions in the file.
        hidden: the positions that were not live, and not copied.
        spans: which live rows went where, as (number of the first among the live rows, how many, position of the first
            in the copy).

    Returns:
        For each span the positions in the copy. Rows that are hidden, or in no span, are in none of them.
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
    """Where rows of a file are of which it is known where each one went.

    Args:
        rows: positions in the file, or all rows that went somewhere.
        at: positions in the file, ascending, as unsigned 64-bit numbers of this machine.
        to: for each the position in the other file, likewise.

    Returns:
        Positions in the other file. Rows that went nowhere are left out.
    """
    import numpy as np

    places = np.frombuffer(to, np.uint64)
    if not isinstance(rows, All):
        places = places[np.isin(np.frombuffer(at, np.uint64), _as_array(rows), assume_unique=True)]
    return BitMap64(array.array("Q", np.sort(places).tobytes()))


def _as_array(rows: BitMap64) -> np.ndarray[Any, np.dtype[np.uint64]]:
    import numpy as np

    return np.frombuffer(rows.to_array(), np.uint64)
