"""The margins of bounds of decimals, by columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.log.claims import DECIMAL_SHIFT, SATURATED

if TYPE_CHECKING:
    Words = np.ndarray[Any, np.dtype[np.uint64]]

_BYTES = 16
_WIDTH = 64
_SIGN = np.uint64(_WIDTH - 1)
_ONES = 2**_WIDTH - 1


def decimal_margins(bounds: pa.Array, *, up: bool) -> pa.Array:
    """The twin of :func:`refdelta.core.log.claims.decimal_low` and, with ``up``, of its ``decimal_high``.

    Args:
        bounds: an array of ``decimal128``.
        up: whether they are maxima.
    """
    buffer = bounds.buffers()[1]
    if buffer is None or not len(bounds):
        return bounds
    words = np.frombuffer(buffer, np.uint64, 2 * len(bounds), _BYTES * bounds.offset)
    low, high = words[0::2], words[1::2]
    negative = (high >> _SIGN).astype(bool)
    shifted = (low >> np.uint64(DECIMAL_SHIFT)) | (high << np.uint64(_WIDTH - DECIMAL_SHIFT))
    shifted_high = (high.astype(np.int64) >> DECIMAL_SHIFT).astype(np.uint64)
    # The absolute value of the quotient, and one, is the margin: that of a negative one is its complement and two.
    flip = np.where(negative, np.uint64(_ONES), np.uint64(0))
    margin = _plus(shifted ^ flip, shifted_high ^ flip, np.where(negative, np.uint64(2), np.uint64(1)), np.uint64(0))
    if not up:
        margin = _plus(~margin[0], ~margin[1], np.uint64(1), np.uint64(0))
    found = _plus(low, high, *margin)
    saturated = None
    for number in SATURATED:
        unscaled = number * 10**bounds.type.scale
        if -(2 ** (2 * _WIDTH - 1)) <= unscaled < 2 ** (2 * _WIDTH - 1):
            equal = (low == np.uint64(unscaled & _ONES)) & (high == np.uint64(unscaled >> _WIDTH & _ONES))
            saturated = equal if saturated is None else saturated | equal
    limit = 10**bounds.type.precision - 1
    found = _clamped(*found, limit if up else -limit, up=up)
    data = np.empty(2 * len(bounds), np.uint64)
    data[0::2], data[1::2] = found
    moved = pa.Array.from_buffers(bounds.type, len(bounds), [None, pa.py_buffer(data)])
    known = bounds.is_valid() if saturated is None else pc.and_(bounds.is_valid(), pa.array(~saturated))
    return pc.if_else(known, moved, pa.scalar(None, bounds.type))


def _plus(low: Any, high: Any, other_low: Any, other_high: Any) -> tuple[Words, Words]:
    """The sum of numbers of 128 bits, each in two words."""
    total = low + other_low
    return total, high + other_high + (total < low)


def _clamped(low: Words, high: Words, limit: int, *, up: bool) -> tuple[Words, Words]:
    limit_low, limit_high = np.uint64(limit & _ONES), np.uint64(limit >> _WIDTH & _ONES)
    signed, signed_limit = high.astype(np.int64), limit_high.astype(np.int64)
    if up:
        beyond = (signed > signed_limit) | ((signed == signed_limit) & (low > limit_low))
    else:
        beyond = (signed < signed_limit) | ((signed == signed_limit) & (low < limit_low))
    return np.where(beyond, limit_low, low), np.where(beyond, limit_high, high)
