"""Functions of numbers: arithmetic, roots, powers, logarithms, trigonometry, bits, and arithmetic that gives null
instead of an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import as_numpy
from refdelta.arrow.schema import arrow_type
from refdelta.errors import ExpressionError, PredicateError
from refdelta.expressions import arithmetic
from refdelta.expressions.arithmetic import Typed, compute_decimals
from refdelta.expressions.casting import convert_column, decimal_column, wide
from refdelta.expressions.coercion import coerce, common_type, wider
from refdelta.expressions.columnar import checked, constant
from refdelta.expressions.expression import Call, Literal, Value
from refdelta.expressions.ordering import compare_columns, order
from refdelta.expressions.signature import ANY_NUMBER, Columns, Function, simple, takes
from refdelta.table.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DOUBLE,
    FLOAT,
    FRACTIONAL,
    INTEGER,
    INTEGRAL,
    LONG,
    SHORT,
    STRING,
    VOID,
    DataType,
    DecimalType,
)

# --- arithmetic --------------------------------------------------------------------------------------------------


def _negative(call: Call, value: Any) -> Any:
    return arithmetic.fit(-value, call.type)


def _minus(call: Call, *values: Any) -> Any:
    return arithmetic.binary("-", call.type, *values) if len(values) == 2 else _negative(call, *values)


def _minus_types(name: str, args: tuple[Value, ...]) -> Typed:
    return arithmetic.unary_types(name, args) if len(args) == 1 else arithmetic.binary_types(name, args)


def _operator(op: str, columns: Columns, *, backwards: bool = False) -> Function:
    def value(call: Call, a: Any, b: Any) -> Any:
        return arithmetic.binary(op, call.type, a, b)

    return Function((2, 2), arithmetic.binary_types, value, columns, fails=True, backwards=backwards)


def _nonzero(left: pa.Array, right: pa.Array) -> None:
    none = pa.scalar(Decimal(0) if pa.types.is_decimal(right.type) else 0, right.type)
    zero = pc.and_(pc.equal(right, none), left.is_valid())
    if pc.any(zero).as_py():
        raise pa.ArrowInvalid("division by zero")


def _binary_columns(whole: Columns, fraction: Columns, *, divides: bool = False) -> Columns:
    def function(node: Call, left: pa.Array, right: pa.Array) -> Any:
        if divides:
            _nonzero(left, right)
        if isinstance(node.type, DecimalType):
            return checked(node, compute_decimals(node.name, left, right, node.type))
        return (whole if node.type in INTEGRAL else fraction)(left, right)

    return function


def _remainder(left: pa.Array, right: pa.Array) -> pa.Array:
    # The quotient of the least integer and -1 overflows; the remainder by 1 is the same as by -1.
    divisor = pc.if_else(pc.equal(right, -1), pa.scalar(1, right.type), right)
    return pc.subtract(left, pc.multiply(pc.divide(left, divisor), divisor))


def _minus_columns(node: Call, left: pa.Array, right: pa.Array | None = None) -> Any:
    if right is None:
        return _unary_columns(pc.negate_checked, pc.negate)(node, left)
    return _binary_columns(pc.subtract_checked, pc.subtract)(node, left, right)


def _unary_columns(whole: Columns, other: Columns) -> Columns:
    return lambda node, array: (whole if node.type in INTEGRAL else other)(array)


_ROUNDED = pa.decimal256(76, 40)


def _round_columns(node: Call, array: pa.Array) -> Any:
    places = constant(node, 1)
    if node.type in INTEGRAL:
        if places >= 0:
            return array
        found = pc.round(wide(array), max(places, -60), "half_towards_infinity")
        return convert_column(found.cast(pa.decimal256(76, 0)), DecimalType(38, 0), node.type)
    if isinstance(node.type, DecimalType):
        found = pc.round(wide(array), max(min(places, array.type.scale), -30), "half_towards_infinity")
        return checked(node, decimal_column(found, node.type))
    double = array.cast(pa.float64())
    size = pc.abs(double)
    usual = pc.or_(pc.equal(size, 0), pc.and_(pc.greater(size, 1e-20), pc.less(size, 1e22)))
    if not -20 <= places <= 20 or not pc.all(usual, min_count=0).as_py():
        return None
    # The shortest text of a float is its exact value here.
    exact = double.cast(pa.string()).cast(_ROUNDED)
    found = pc.round(exact, places, "half_towards_infinity").cast(pa.string()).cast(pa.float64())
    return pc.add(found, 0.0).cast(arrow_type(node.type), safe=False)


def _whole_columns(mode: str, function: Columns) -> Columns:
    def whole(node: Call, array: pa.Array) -> Any:
        if isinstance(node.type, DecimalType):
            return checked(node, decimal_column(pc.round(wide(array), 0, mode), node.type))
        if not pa.types.is_floating(array.type):
            return array
        found = function(array)
        # As in Java: the nearest long, and 0 for NaN.
        sound = pc.and_(pc.greater_equal(found, -(2.0**63)), pc.less(found, 2.0**63))
        limit = pc.if_else(pc.less(found, 0.0), -(2**63), pc.if_else(pc.is_nan(found), 0, 2**63 - 1))
        return pc.if_else(sound, pc.if_else(sound, found, 0.0).cast(pa.int64(), safe=False), limit)

    return whole


# --- choosing ----------------------------------------------------------------------------------------------------


def _alike(name: str, args: tuple[Value, ...]) -> Typed:
    kind = common_type(args, name)
    return tuple(coerce(arg, kind, name) for arg in args), kind


def _picked(sign: int) -> Callable[..., Any]:
    def pick(_: Call, *values: Any) -> Any:
        found = None
        for value in values:
            if value is not None and (found is None or order(value, found) * sign > 0):
                found = value
        return found

    return pick


def _picked_columns(op: str) -> Columns:
    def pick(_: Call, *arrays: pa.Array) -> pa.Array:
        found = arrays[0]
        for array in arrays[1:]:
            better = pc.or_kleene(found.is_null(), pc.fill_null(compare_columns(op, array, found), False))
            found = pc.if_else(better, array, found)
        return found

    return pick


# --- doubles -----------------------------------------------------------------------------------------------------


def doubles(array: pa.Array) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The doubles of a column as numpy's, 0 for null."""
    filled = pc.fill_null(array, 0.0) if array.null_count else array
    return as_numpy(filled, np.float64)


def _guarded(function: Callable[..., float], otherwise: float = math.nan) -> Callable[..., Any]:
    """A function of :mod:`math` with NaN outside of its domain, and infinity for an overflow, as in C."""

    def guarded(_: Call, *values: float) -> float:
        try:
            return float(function(*values))
        except OverflowError:
            return math.inf
        except ValueError:
            return otherwise

    return guarded


def _numpy(function: Callable[..., Any]) -> Columns:
    """A function of numpy, or of :mod:`math` for each distinct value, of columns of doubles."""

    def columnar(_: Call, *arrays: pa.Array) -> pa.Array:
        with np.errstate(all="ignore"):
            found = pa.array(np.ascontiguousarray(function(*map(doubles, arrays)), np.float64), from_pandas=False)
        for array in arrays:
            found = pc.if_else(array.is_valid(), found, None) if array.null_count else found
        return found

    return columnar


def _logarithm(function: Callable[[float], float], least: float = 0.0) -> Callable[..., Any]:
    def logarithm(_: Call, value: float) -> float | None:
        return None if value <= least else function(value)  # NaN is not below

    return logarithm


def _logarithm_columns(function: Columns, least: float = 0.0) -> Columns:
    def logarithm(_: Call, array: pa.Array) -> pa.Array:
        return pc.if_else(pc.less_equal(array, least), pa.scalar(None, pa.float64()), function(array))

    return logarithm


def log_of_base(base: float, value: float) -> float | None:
    """The logarithm of ``value``; null unless both are positive."""
    if base <= 0 or value <= 0:
        return None
    return quotient(math.log(value), math.log(base))


def quotient(one: float, other: float) -> float:
    """The quotient of doubles, as IEEE 754 has it."""
    if other == 0:
        return math.nan if one == 0 or math.isnan(one) else math.copysign(math.inf, one) * math.copysign(1, other)
    return one / other


def _power(base: float, exponent: float) -> float:
    # Java has NaN where C has 1 for an infinite exponent of 1 or -1, and for NaN.
    if exponent == 0:
        return 1.0
    if math.isnan(exponent) or (abs(base) == 1 and math.isinf(exponent)):
        return math.nan
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf
    except ValueError:
        if base == 0:
            return math.copysign(math.inf, base) if exponent % 2 == 1 else math.inf
        return math.nan


def _power_columns(_: Call, base: pa.Array, exponent: pa.Array) -> pa.Array:
    found = pc.power(base, exponent)
    odd = pc.or_(pc.is_nan(exponent), pc.and_(pc.equal(pc.abs(base), 1.0), pc.is_inf(exponent)))
    return pc.if_else(odd, math.nan, found)


def _cbrt(value: float) -> float:
    found = math.cbrt(value)
    whole = float(round(found)) if math.isfinite(found) else found
    return whole if whole and whole**3 == value else found


def _cbrt_columns(values: Any) -> Any:
    found = np.cbrt(values)
    whole = np.rint(found)
    return np.where((whole != 0) & (whole * whole * whole == values), whole, found)


def _sinh(value: float) -> float:
    try:
        return math.sinh(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _sign(_: Call, value: float) -> float:
    return value if value == 0 or math.isnan(value) else math.copysign(1.0, value)


def _sign_columns(_: Call, array: pa.Array) -> pa.Array:
    return pc.if_else(pc.or_(pc.equal(array, 0.0), pc.is_nan(array)), array, pc.sign(array))


def _rint(value: float) -> float:
    return math.copysign(float(round(value)), value) if math.isfinite(value) else value


def _of_double(function: Callable[..., Any], many: int = 1, *, columns: Columns) -> Function:
    return Function((many, many), takes(*[DOUBLE] * many, gives=DOUBLE), function, columns)


def _log_types(name: str, args: tuple[Value, ...]) -> Typed:
    return tuple(coerce(arg, DOUBLE, name) for arg in args), DOUBLE


def _log(_: Call, *values: float) -> float | None:
    return log_of_base(*values) if len(values) > 1 else None if values[0] <= 0 else math.log(values[0])


def _log_columns(_: Call, base: pa.Array, value: pa.Array | None = None) -> pa.Array:
    if value is None:
        return _logarithm_columns(pc.ln)(_, base)
    outside = pc.or_(pc.less_equal(base, 0.0), pc.less_equal(value, 0.0))
    return pc.if_else(outside, pa.scalar(None, pa.float64()), pc.divide(pc.ln(value), pc.ln(base)))


def _nanvl_types(name: str, args: tuple[Value, ...]) -> Typed:
    kind = FLOAT if all(arg.type == FLOAT for arg in args) else DOUBLE
    return tuple(coerce(arg, kind, name) for arg in args), kind


def _nanvl(_: Call, one: float | None, other: float | None) -> float | None:
    return other if one is not None and math.isnan(one) else one


# --- integers ----------------------------------------------------------------------------------------------------


def _integers(array: pa.Array) -> tuple[Any, int]:
    bits = array.type.bit_width
    filled = pc.fill_null(array, 0) if array.null_count else array
    kind = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}[bits]
    return as_numpy(filled, kind), bits


def _bits_types(name: str, args: tuple[Value, ...]) -> Typed:
    """Integers in their common type."""
    kind: DataType = VOID
    for arg in args:
        found = wider(kind, arg.type) if arg.type in INTEGRAL or arg.type == VOID else None
        if found is None:
            raise PredicateError(f"{name} takes integers, and {arg} is {arg.type}")
        kind = found
    kind = INTEGER if kind == VOID else kind
    return tuple(coerce(arg, kind, name) for arg in args), kind


def _shift_types(name: str, args: tuple[Value, ...]) -> Typed:
    value, count = args
    if value.type != LONG:
        value = coerce(value, INTEGER, name) if value.type in (*INTEGRAL, VOID) else value
    if value.type not in (INTEGER, LONG) or count.type not in (INTEGER, SHORT, BYTE, VOID):
        raise PredicateError(f"{name} takes an int or a bigint, and an int; not {args[0].type} and {count.type}")
    return (value, coerce(count, INTEGER, name)), value.type


def _shifted(call: Call, value: int, count: int, *, left: bool, signed: bool = True) -> int:
    bits = INTEGRAL[call.type]
    count %= bits
    if left:
        value <<= count
    else:
        value = (value if signed else value % (1 << bits)) >> count
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _shifted_columns(*, left: bool, signed: bool = True) -> Columns:
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


def _bit_count_types(name: str, args: tuple[Value, ...]) -> Typed:
    if args[0].type != BOOLEAN and args[0].type not in INTEGRAL and args[0].type != VOID:
        raise PredicateError(f"{name} takes an integer or a boolean, and {args[0]} is {args[0].type}")
    return (coerce(args[0], LONG, name) if args[0].type != BOOLEAN else args[0],), INTEGER


def _bit_count_columns(_: Call, array: pa.Array) -> pa.Array:
    if pa.types.is_boolean(array.type):
        return array.cast(pa.int32())
    values = _integers(array)[0].view(np.uint64)
    size = len(values)
    counted = np.unpackbits(values.view(np.uint8)).reshape(size, 64).sum(axis=1, dtype=np.int32)
    return pc.if_else(array.is_valid(), pa.array(counted, pa.int32()), None)


def _bit_get_types(name: str, args: tuple[Value, ...]) -> Typed:
    value, place = args
    if value.type not in INTEGRAL or not isinstance(place, Literal):
        raise PredicateError(f"{name} takes an integer and a constant, not {value.type} and {place}")
    bits = INTEGRAL[value.type]
    place = coerce(place, INTEGER, name)
    if isinstance(place, Literal) and place.value is not None and not 0 <= place.value < bits:
        raise PredicateError(f"{name}: {value} has bits 0 to {bits - 1}, not {place.value}")
    return (value, place), BYTE


def _bit_get_columns(node: Call, array: pa.Array) -> pa.Array:
    # Arrow shifts by one bit less than there are at most.
    found = np.right_shift(_integers(array)[0], constant(node, 1)) & 1
    return pc.if_else(array.is_valid(), pa.array(found.astype(np.int8)), None)


def _pmod_types(name: str, args: tuple[Value, ...]) -> Typed:
    found, kind = arithmetic.binary_types("%", args)
    if isinstance(kind, DecimalType):
        raise PredicateError(f"{name} of decimals is not supported here, and {args[0]} is {args[0].type}")
    return found, kind


def _pmod(call: Call, one: Any, other: Any) -> Any:
    rest = arithmetic.binary("%", call.type, one, other)
    if rest >= 0:
        return rest
    total = rest + other
    if call.type in (INTEGER, LONG):  # which turn round, as in Java; smaller ones are computed as int
        bits = INTEGRAL[call.type]
        total = (total + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
    rest = abs(total) % abs(other)
    return -rest if total < 0 else rest


def _pmod_columns(_: Call, one: pa.Array, other: pa.Array) -> pa.Array:
    if one.type.bit_width < 32:
        # Their sums do not fit.
        return _pmod_columns(_, one.cast(pa.int32()), other.cast(pa.int32())).cast(one.type)
    if pc.any(pc.and_(pc.equal(other, 0), one.is_valid()), min_count=0).as_py():
        raise pa.ArrowInvalid("division by zero")
    first = _remainder(one, other)
    negative = pc.fill_null(pc.less(first, 0), False)
    # A negative remainder is nearer to zero than the divisor; only with another sign does the sum count.
    nothing = pa.scalar(None, first.type)
    total = pc.add(pc.if_else(negative, first, nothing), pc.if_else(negative, other, nothing))
    return pc.if_else(negative, _remainder(total, other), first)


def _bin(_: Call, value: int) -> str:
    return f"{value % (1 << 64):b}"


def hexadecimal(_: Call, value: Any) -> str:
    """As Spark's ``hex``: of a number its 64 bits, of a string its UTF-8 bytes."""
    if isinstance(value, int):
        return f"{value % (1 << 64):X}"
    return (value.encode() if isinstance(value, str) else bytes(value)).hex().upper()


def _hex_types(name: str, args: tuple[Value, ...]) -> Typed:
    kind = args[0].type
    if kind in (STRING, BINARY):
        return args, STRING
    if kind not in INTEGRAL and kind != VOID:
        raise PredicateError(f"{name} takes an integer, a string or a binary, and {args[0]} is {kind}")
    return (coerce(args[0], LONG, name),), STRING


def unhexadecimal(text: str) -> bytes | None:
    """The bytes that a string shows in hexadecimal; None if it is none."""
    digits = text if len(text) % 2 == 0 else "0" + text
    if not all(char in "0123456789abcdefABCDEF" for char in digits):
        return None
    return bytes.fromhex(digits)


def _factorial(value: int) -> int | None:
    return math.factorial(value) if 0 <= value <= 20 else None


# --- arithmetic that gives null ----------------------------------------------------------------------------------


def _tried(op: str) -> Function:
    def value(call: Call, one: Any, other: Any) -> Any:
        try:
            return arithmetic.binary(op, call.type, one, other)
        except ExpressionError:
            return None

    def typed(name: str, args: tuple[Value, ...]) -> Typed:
        try:
            return arithmetic.binary_types(op, args)
        except PredicateError as error:
            raise PredicateError(f"{name}: {error}") from None

    return Function((2, 2), typed, value, _tried_columns(op))


def _tried_columns(op: str) -> Columns:
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
            found, bad = compute_decimals(op, one, other, node.type)
            return pc.if_else(bad, nothing, found)
        if node.type in INTEGRAL:
            exact = DecimalType(38, 0)
            return convert_column(compute_decimals(op, one, other, exact)[0], exact, node.type, lenient=True)
        return {"+": pc.add, "-": pc.subtract, "*": pc.multiply, "/": pc.divide}[op](one, other)

    return tried


def _even_types(name: str, args: tuple[Value, ...]) -> Typed:
    found, kind = arithmetic.round_types(name, args)
    if kind in FRACTIONAL:
        raise PredicateError(f"{name} of a float is not supported here; cast {args[0]} to a decimal")
    return found, kind


def _even(call: Call, value: Any, places: int) -> Any:
    if isinstance(call.type, DecimalType):
        scale = places if places < 0 else call.type.scale
        rounded = value.quantize(
            Decimal((0, (1,), -scale)), ROUND_HALF_EVEN, Context(prec=400, Emax=999999, Emin=-999999)
        )
        return arithmetic.fit(rounded, call.type)
    if places >= 0:
        return value
    unit = 10**-places
    return arithmetic.fit(int((Decimal(value) / unit).quantize(Decimal(1), ROUND_HALF_EVEN)) * unit, call.type)


NUMBERS: dict[str, Function] = {
    "+": _operator("+", _binary_columns(pc.add_checked, pc.add)),
    "-": Function((1, 2), _minus_types, _minus, fails=True, columns=_minus_columns),
    "*": _operator("*", _binary_columns(pc.multiply_checked, pc.multiply)),
    "/": _operator("/", _binary_columns(pc.divide, pc.divide, divides=True), backwards=True),
    "%": _operator("%", _binary_columns(_remainder, _remainder, divides=True), backwards=True),
    "div": _operator("div", _binary_columns(pc.divide_checked, pc.divide, divides=True), backwards=True),
    "abs": Function(
        (1, 1),
        arithmetic.unary_types,
        lambda call, value: arithmetic.fit(abs(value), call.type),
        fails=True,
        columns=_unary_columns(pc.abs_checked, pc.abs),
    ),
    "round": Function(
        (1, 2),
        arithmetic.round_types,
        lambda call, value, places: arithmetic.rounded(call.type, value, places),
        fails=True,
        constants=True,
        columns=_round_columns,
    ),
    "floor": Function(
        (1, 1),
        arithmetic.whole_types,
        lambda call, value: arithmetic.whole(call.type, value, math.floor),
        columns=_whole_columns("down", pc.floor),
    ),
    "ceil": Function(
        (1, 1),
        arithmetic.whole_types,
        lambda call, value: arithmetic.whole(call.type, value, math.ceil),
        columns=_whole_columns("up", pc.ceil),
    ),
    "greatest": Function((2, ANY_NUMBER), _alike, _picked(1), strict=False, columns=_picked_columns(">")),
    "least": Function((2, ANY_NUMBER), _alike, _picked(-1), strict=False, columns=_picked_columns("<")),
    "coalesce": Function(
        (1, ANY_NUMBER), _alike, lambda _, *values: next((v for v in values if v is not None), None), strict=False
    ),
    "sqrt": _of_double(_guarded(math.sqrt), columns=lambda _, array: pc.sqrt(array)),
    "cbrt": _of_double(simple(_cbrt), columns=_numpy(_cbrt_columns)),
    "exp": _of_double(_guarded(math.exp), columns=lambda _, array: pc.exp(array)),
    "expm1": _of_double(_guarded(math.expm1), columns=lambda _, array: pc.expm1(array)),
    "ln": _of_double(_logarithm(math.log), columns=_logarithm_columns(pc.ln)),
    "log": Function((1, 2), _log_types, _log, columns=_log_columns),
    "log2": _of_double(_logarithm(math.log2), columns=_logarithm_columns(pc.log2)),
    "log10": _of_double(_logarithm(math.log10), columns=_logarithm_columns(pc.log10)),
    "log1p": _of_double(_logarithm(math.log1p, -1.0), columns=_logarithm_columns(pc.log1p, -1.0)),
    "power": _of_double(simple(_power), 2, columns=_power_columns),
    "sin": _of_double(_guarded(math.sin), columns=lambda _, array: pc.sin(array)),
    "cos": _of_double(_guarded(math.cos), columns=lambda _, array: pc.cos(array)),
    "tan": _of_double(_guarded(math.tan), columns=lambda _, array: pc.tan(array)),
    "cot": _of_double(
        _guarded(lambda value: quotient(1.0, math.tan(value))), columns=lambda _, array: pc.divide(1.0, pc.tan(array))
    ),
    "sec": _of_double(
        _guarded(lambda value: quotient(1.0, math.cos(value))), columns=lambda _, array: pc.divide(1.0, pc.cos(array))
    ),
    "csc": _of_double(
        _guarded(lambda value: quotient(1.0, math.sin(value))), columns=lambda _, array: pc.divide(1.0, pc.sin(array))
    ),
    "asin": _of_double(_guarded(math.asin), columns=lambda _, array: pc.asin(array)),
    "acos": _of_double(_guarded(math.acos), columns=lambda _, array: pc.acos(array)),
    "atan": _of_double(_guarded(math.atan), columns=lambda _, array: pc.atan(array)),
    "atan2": _of_double(
        _guarded(lambda y, x: math.atan2(y + 0.0, x + 0.0)),
        2,
        columns=lambda _, y, x: pc.atan2(pc.add(y, 0.0), pc.add(x, 0.0)),
    ),
    "sinh": _of_double(simple(_sinh), columns=lambda _, array: pc.sinh(array)),
    "cosh": _of_double(_guarded(math.cosh), columns=lambda _, array: pc.cosh(array)),
    "tanh": _of_double(_guarded(math.tanh), columns=lambda _, array: pc.tanh(array)),
    "degrees": _of_double(_guarded(math.degrees), columns=_numpy(lambda values: values * (180.0 / math.pi))),
    "radians": _of_double(_guarded(math.radians), columns=_numpy(lambda values: values * (math.pi / 180.0))),
    "hypot": _of_double(_guarded(math.hypot), 2, columns=_numpy(np.hypot)),
    "rint": _of_double(simple(_rint), columns=_numpy(np.rint)),
    "sign": _of_double(_sign, columns=_sign_columns),
    "nanvl": Function(
        (2, 2),
        _nanvl_types,
        _nanvl,
        strict=False,
        columns=lambda _, one, other: pc.if_else(pc.fill_null(pc.is_nan(one), False), other, one),
    ),
    "bround": Function((1, 2), _even_types, _even, fails=True, constants=True),
    "pmod": Function((2, 2), _pmod_types, _pmod, fails=True, backwards=True, columns=_pmod_columns),
    "factorial": Function((1, 1), takes(INTEGER, gives=LONG), simple(_factorial)),
    "&": Function(
        (2, 2),
        _bits_types,
        simple(lambda one, other: one & other),
        columns=lambda _, one, other: pc.bit_wise_and(one, other),
    ),
    "|": Function(
        (2, 2),
        _bits_types,
        simple(lambda one, other: one | other),
        columns=lambda _, one, other: pc.bit_wise_or(one, other),
    ),
    "^": Function(
        (2, 2),
        _bits_types,
        simple(lambda one, other: one ^ other),
        columns=lambda _, one, other: pc.bit_wise_xor(one, other),
    ),
    "~": Function((1, 1), _bits_types, simple(lambda value: ~value), columns=lambda _, array: pc.bit_wise_not(array)),
    "shiftleft": Function(
        (2, 2), _shift_types, lambda call, a, b: _shifted(call, a, b, left=True), columns=_shifted_columns(left=True)
    ),
    "shiftright": Function(
        (2, 2), _shift_types, lambda call, a, b: _shifted(call, a, b, left=False), columns=_shifted_columns(left=False)
    ),
    "shiftrightunsigned": Function(
        (2, 2),
        _shift_types,
        lambda call, a, b: _shifted(call, a, b, left=False, signed=False),
        columns=_shifted_columns(left=False, signed=False),
    ),
    "bit_count": Function(
        (1, 1), _bit_count_types, simple(lambda value: (int(value) % (1 << 64)).bit_count()), columns=_bit_count_columns
    ),
    "bit_get": Function(
        (2, 2),
        _bit_get_types,
        simple(lambda value, place: value >> place & 1),
        constants=True,
        columns=_bit_get_columns,
    ),
    "bin": Function((1, 1), takes(LONG, gives=STRING), _bin),
    "hex": Function((1, 1), _hex_types, hexadecimal, size=lambda _, array: array.nbytes * 2),
    "unhex": Function((1, 1), takes(STRING, gives=BINARY), simple(unhexadecimal)),
    "try_add": _tried("+"),
    "try_subtract": _tried("-"),
    "try_multiply": _tried("*"),
    "try_divide": _tried("/"),
    "try_mod": _tried("%"),
}
