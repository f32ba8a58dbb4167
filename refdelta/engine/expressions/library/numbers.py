"""Functions of numbers over columns: the twin of :mod:`refdelta.core.expressions.library.numbers`."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.expressions.expression import Call
from refdelta.core.table.types import INTEGRAL, DecimalType
from refdelta.engine.arrow.schema import arrow_type
from refdelta.engine.expressions import arithmetic
from refdelta.engine.expressions.columnar import Columnar, by_value, constant, text
from refdelta.engine.expressions.convert import convert

# --- doubles -----------------------------------------------------------------------------------------------------


def doubles(array: pa.Array) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The doubles of a column as numpy's, 0 for null."""
    filled = pc.fill_null(array, 0.0) if array.null_count else array
    return np.frombuffer(filled.buffers()[1] or b"", np.float64)[filled.offset : filled.offset + len(filled)]


def _numpy(function: Callable[..., Any]) -> Columnar:
    """A function of numpy, or of :mod:`math` for each distinct value, of columns of doubles."""

    def columnar(_: Call, *arrays: pa.Array) -> pa.Array:
        with np.errstate(all="ignore"):
            found = pa.array(np.ascontiguousarray(function(*map(doubles, arrays)), np.float64), from_pandas=False)
        for array in arrays:
            found = pc.if_else(array.is_valid(), found, None) if array.null_count else found
        return found

    return columnar


def _cbrt(values: Any) -> Any:
    found = np.cbrt(values)
    whole = np.rint(found)
    return np.where((whole != 0) & (whole * whole * whole == values), whole, found)


def _logarithm(function: Columnar, least: float = 0.0) -> Columnar:
    def logarithm(_: Call, array: pa.Array) -> pa.Array:
        return pc.if_else(pc.less_equal(array, least), pa.scalar(None, pa.float64()), function(array))

    return logarithm


def _log(_: Call, base: pa.Array, value: pa.Array | None = None) -> pa.Array:
    if value is None:
        return _logarithm(pc.ln)(_, base)
    outside = pc.or_(pc.less_equal(base, 0.0), pc.less_equal(value, 0.0))
    return pc.if_else(outside, pa.scalar(None, pa.float64()), pc.divide(pc.ln(value), pc.ln(base)))


def _power(_: Call, base: pa.Array, exponent: pa.Array) -> pa.Array:
    found = pc.power(base, exponent)
    odd = pc.or_(pc.is_nan(exponent), pc.and_(pc.equal(pc.abs(base), 1.0), pc.is_inf(exponent)))
    return pc.if_else(odd, math.nan, found)


def _sign(_: Call, array: pa.Array) -> pa.Array:
    return pc.if_else(pc.or_(pc.equal(array, 0.0), pc.is_nan(array)), array, pc.sign(array))


# --- integers ----------------------------------------------------------------------------------------------------


def _integers(array: pa.Array) -> tuple[Any, int]:
    bits = array.type.bit_width
    filled = pc.fill_null(array, 0) if array.null_count else array
    kind = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}[bits]
    return np.frombuffer(filled.buffers()[1] or b"", kind)[filled.offset : filled.offset + len(filled)], bits


def _shifted(*, left: bool, signed: bool = True) -> Columnar:
    def shifted(node: Call, array: pa.Array, count: pa.Array) -> pa.Array:
        values, bits = _integers(array)
        by = (_integers(count)[0].astype(np.int64) % bits).astype(values.dtype)
        if left:
            found = np.left_shift(values, by)
        elif signed:
            found = np.right_shift(values, by)
        else:
            kind = np.uint32 if bits == 32 else np.uint64
            found = np.right_shift(values.view(kind), by.astype(kind)).view(values.dtype)
        result = pa.array(found, arrow_type(node.type))
        valid = pc.and_(array.is_valid(), count.is_valid())
        return pc.if_else(valid, result, pa.scalar(None, result.type))

    return shifted


def _bit_count(_: Call, array: pa.Array) -> pa.Array:
    if pa.types.is_boolean(array.type):
        return array.cast(pa.int32())
    values = _integers(array)[0].view(np.uint64)
    size = len(values)
    counted = np.unpackbits(values.view(np.uint8)).reshape(size, 64).sum(axis=1, dtype=np.int32)
    return pc.if_else(array.is_valid(), pa.array(counted, pa.int32()), None)


def _bit_get(array: pa.Array, node: Call) -> pa.Array:
    # Arrow shifts by one bit less than there are at most.
    found = np.right_shift(_integers(array)[0], constant(node, 1)) & 1
    return pc.if_else(array.is_valid(), pa.array(found.astype(np.int8)), None)


def _fmod(one: pa.Array, other: pa.Array) -> pa.Array:
    return _numpy(np.fmod)(None, one, other)


def remainder(node: Call, one: pa.Array, other: pa.Array) -> pa.Array:
    """The remainder of floats, with the sign of the dividend."""
    kind = arrow_type(node.type)
    return _fmod(one.cast(pa.float64()), other.cast(pa.float64())).cast(kind)


def _pmod(_: Call, one: pa.Array, other: pa.Array) -> pa.Array:
    if one.type.bit_width < 32:
        # Their sums do not fit.
        return _pmod(_, one.cast(pa.int32()), other.cast(pa.int32())).cast(one.type)
    if pc.any(pc.and_(pc.equal(other, 0), one.is_valid()), min_count=0).as_py():
        raise pa.ArrowInvalid("division by zero")

    def rest(dividend: pa.Array) -> pa.Array:
        # The quotient of the least integer and -1 overflows; the remainder by 1 is the same as by -1.
        divisor = pc.if_else(pc.equal(other, -1), pa.scalar(1, other.type), other)
        return pc.subtract(dividend, pc.multiply(pc.divide(dividend, divisor), divisor))

    first = rest(one)
    negative = pc.fill_null(pc.less(first, 0), False)
    # A negative remainder is nearer to zero than the divisor; only with another sign does the sum count.
    nothing = pa.scalar(None, first.type)
    total = pc.add(pc.if_else(negative, first, nothing), pc.if_else(negative, other, nothing))
    return pc.if_else(negative, rest(total), first)


# --- arithmetic that gives null ----------------------------------------------------------------------------------


def _tried(op: str) -> Columnar:
    def tried(node: Call, one: pa.Array, other: pa.Array) -> pa.Array:
        nothing = pa.scalar(None, arrow_type(node.type))
        if op in "/%":
            decimal = pa.types.is_decimal(other.type)
            zero, unit = (pa.scalar(Decimal(n) if decimal else n, other.type) for n in (0, 1))
            by_zero = pc.fill_null(pc.equal(other, zero), False)
            if pc.any(by_zero, min_count=0).as_py():
                found = tried(node, one, pc.if_else(by_zero, unit, other))
                return pc.if_else(by_zero, nothing, found)
        if isinstance(node.type, DecimalType):
            found, bad = arithmetic.compute(op, one, other, node.type)
            return pc.if_else(bad, nothing, found)
        if node.type in INTEGRAL:
            wide = DecimalType(38, 0)
            return convert(arithmetic.compute(op, one, other, wide)[0], wide, node.type, lenient=True)
        if op == "%":
            return remainder(node, one, other)
        return {"+": pc.add, "-": pc.subtract, "*": pc.multiply, "/": pc.divide}[op](one, other)

    return tried


def _hex(node: Call, array: pa.Array) -> pa.Array:
    return by_value(node, array)


NUMBERS: dict[str, Columnar] = {
    "sqrt": lambda _, array: pc.sqrt(array),
    "cbrt": _numpy(_cbrt),
    "exp": lambda _, array: pc.exp(array),
    "expm1": lambda _, array: pc.expm1(array),
    "ln": _logarithm(pc.ln),
    "log": _log,
    "log2": _logarithm(pc.log2),
    "log10": _logarithm(pc.log10),
    "log1p": _logarithm(pc.log1p, -1.0),
    "power": _power,
    "sin": lambda _, array: pc.sin(array),
    "cos": lambda _, array: pc.cos(array),
    "tan": lambda _, array: pc.tan(array),
    "cot": lambda _, array: pc.divide(1.0, pc.tan(array)),
    "sec": lambda _, array: pc.divide(1.0, pc.cos(array)),
    "csc": lambda _, array: pc.divide(1.0, pc.sin(array)),
    "asin": lambda _, array: pc.asin(array),
    "acos": lambda _, array: pc.acos(array),
    "atan": lambda _, array: pc.atan(array),
    "atan2": lambda _, y, x: pc.atan2(pc.add(y, 0.0), pc.add(x, 0.0)),
    "sinh": lambda _, array: pc.sinh(array),
    "cosh": lambda _, array: pc.cosh(array),
    "tanh": lambda _, array: pc.tanh(array),
    "degrees": _numpy(lambda values: values * (180.0 / math.pi)),
    "radians": _numpy(lambda values: values * (math.pi / 180.0)),
    "hypot": _numpy(np.hypot),
    "rint": _numpy(np.rint),
    "sign": _sign,
    "nanvl": lambda _, one, other: pc.if_else(pc.fill_null(pc.is_nan(one), False), other, one),
    "bround": by_value,
    "pmod": _pmod,
    "factorial": by_value,
    "&": lambda _, one, other: pc.bit_wise_and(one, other),
    "|": lambda _, one, other: pc.bit_wise_or(one, other),
    "^": lambda _, one, other: pc.bit_wise_xor(one, other),
    "~": lambda _, array: pc.bit_wise_not(array),
    "shiftleft": _shifted(left=True),
    "shiftright": _shifted(left=False),
    "shiftrightunsigned": _shifted(left=False, signed=False),
    "bit_count": _bit_count,
    "bit_get": text(_bit_get),
    "bin": by_value,
    "hex": _hex,
    "unhex": by_value,
    "try_add": _tried("+"),
    "try_subtract": _tried("-"),
    "try_multiply": _tried("*"),
    "try_divide": _tried("/"),
    "try_mod": _tried("%"),
}
