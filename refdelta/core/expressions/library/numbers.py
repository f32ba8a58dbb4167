"""Functions of numbers: roots, powers, logarithms, trigonometry, bits, and arithmetic that gives null instead of an
error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from refdelta.core.expressions import arithmetic
from refdelta.core.expressions.arithmetic import Typed
from refdelta.core.expressions.coercion import coerce, wider
from refdelta.core.expressions.expression import Call, Literal, Value
from refdelta.core.expressions.signature import Function, simple, takes
from refdelta.core.table.types import (
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
from refdelta.errors import ExpressionError, PredicateError

# --- doubles -----------------------------------------------------------------------------------------------------


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


def _logarithm(function: Callable[[float], float], least: float = 0.0) -> Callable[..., Any]:
    def logarithm(_: Call, value: float) -> float | None:
        return None if value <= least else function(value)  # NaN is not below

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


def _cbrt(value: float) -> float:
    found = math.cbrt(value)
    whole = float(round(found)) if math.isfinite(found) else found
    return whole if whole and whole**3 == value else found


def _sinh(value: float) -> float:
    try:
        return math.sinh(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _sign(_: Call, value: float) -> float:
    return value if value == 0 or math.isnan(value) else math.copysign(1.0, value)


def _rint(value: float) -> float:
    return math.copysign(float(round(value)), value) if math.isfinite(value) else value


def _of_double(function: Callable[..., Any], many: int = 1) -> Function:
    return Function((many, many), takes(*[DOUBLE] * many, gives=DOUBLE), function)


def _log_types(name: str, args: tuple[Value, ...]) -> Typed:
    return tuple(coerce(arg, DOUBLE, name) for arg in args), DOUBLE


def _log(_: Call, *values: float) -> float | None:
    return log_of_base(*values) if len(values) > 1 else None if values[0] <= 0 else math.log(values[0])


def _nanvl_types(name: str, args: tuple[Value, ...]) -> Typed:
    kind = FLOAT if all(arg.type == FLOAT for arg in args) else DOUBLE
    return tuple(coerce(arg, kind, name) for arg in args), kind


def _nanvl(_: Call, one: float | None, other: float | None) -> float | None:
    return other if one is not None and math.isnan(one) else one


# --- integers ----------------------------------------------------------------------------------------------------


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


def _bit_count_types(name: str, args: tuple[Value, ...]) -> Typed:
    if args[0].type != BOOLEAN and args[0].type not in INTEGRAL and args[0].type != VOID:
        raise PredicateError(f"{name} takes an integer or a boolean, and {args[0]} is {args[0].type}")
    return (coerce(args[0], LONG, name) if args[0].type != BOOLEAN else args[0],), INTEGER


def _bit_get_types(name: str, args: tuple[Value, ...]) -> Typed:
    value, place = args
    if value.type not in INTEGRAL or not isinstance(place, Literal):
        raise PredicateError(f"{name} takes an integer and a constant, not {value.type} and {place}")
    bits = INTEGRAL[value.type]
    place = coerce(place, INTEGER, name)
    if isinstance(place, Literal) and place.value is not None and not 0 <= place.value < bits:
        raise PredicateError(f"{name}: {value} has bits 0 to {bits - 1}, not {place.value}")
    return (value, place), BYTE


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
    def plain(call: Call, one: Any, other: Any) -> Any:
        try:
            return arithmetic.binary(op, call.type, one, other)
        except ExpressionError:
            return None

    def typed(name: str, args: tuple[Value, ...]) -> Typed:
        try:
            return arithmetic.binary_types(op, args)
        except PredicateError as error:
            raise PredicateError(f"{name}: {error}") from None

    return Function((2, 2), typed, plain)


def _even_types(name: str, args: tuple[Value, ...]) -> Typed:
    found, kind = arithmetic.round_types(name, args)
    if kind in FRACTIONAL:
        raise PredicateError(f"{name} of a float is not supported here; cast {args[0]} to a decimal")
    return found, kind


def _even(call: Call, value: Any, places: int) -> Any:
    from decimal import ROUND_HALF_EVEN, Context, Decimal

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
    "sqrt": _of_double(_guarded(math.sqrt)),
    "cbrt": _of_double(simple(_cbrt)),
    "exp": _of_double(_guarded(math.exp)),
    "expm1": _of_double(_guarded(math.expm1)),
    "ln": _of_double(_logarithm(math.log)),
    "log": Function((1, 2), _log_types, _log),
    "log2": _of_double(_logarithm(math.log2)),
    "log10": _of_double(_logarithm(math.log10)),
    "log1p": _of_double(_logarithm(math.log1p, -1.0)),
    "power": _of_double(simple(_power), 2),
    "sin": _of_double(_guarded(math.sin)),
    "cos": _of_double(_guarded(math.cos)),
    "tan": _of_double(_guarded(math.tan)),
    "cot": _of_double(_guarded(lambda value: quotient(1.0, math.tan(value)))),
    "sec": _of_double(_guarded(lambda value: quotient(1.0, math.cos(value)))),
    "csc": _of_double(_guarded(lambda value: quotient(1.0, math.sin(value)))),
    "asin": _of_double(_guarded(math.asin)),
    "acos": _of_double(_guarded(math.acos)),
    "atan": _of_double(_guarded(math.atan)),
    "atan2": _of_double(_guarded(lambda y, x: math.atan2(y + 0.0, x + 0.0)), 2),
    "sinh": _of_double(simple(_sinh)),
    "cosh": _of_double(_guarded(math.cosh)),
    "tanh": _of_double(_guarded(math.tanh)),
    "degrees": _of_double(_guarded(math.degrees)),
    "radians": _of_double(_guarded(math.radians)),
    "hypot": _of_double(_guarded(math.hypot), 2),
    "rint": _of_double(simple(_rint)),
    "sign": _of_double(_sign),
    "nanvl": Function((2, 2), _nanvl_types, _nanvl, strict=False),
    "bround": Function((1, 2), _even_types, _even, fails=True, constants=True),
    "pmod": Function((2, 2), _pmod_types, _pmod, fails=True, backwards=True),
    "factorial": Function((1, 1), takes(INTEGER, gives=LONG), simple(_factorial)),
    "&": Function((2, 2), _bits_types, simple(lambda one, other: one & other)),
    "|": Function((2, 2), _bits_types, simple(lambda one, other: one | other)),
    "^": Function((2, 2), _bits_types, simple(lambda one, other: one ^ other)),
    "~": Function((1, 1), _bits_types, simple(lambda value: ~value)),
    "shiftleft": Function((2, 2), _shift_types, lambda call, a, b: _shifted(call, a, b, left=True)),
    "shiftright": Function((2, 2), _shift_types, lambda call, a, b: _shifted(call, a, b, left=False)),
    "shiftrightunsigned": Function(
        (2, 2), _shift_types, lambda call, a, b: _shifted(call, a, b, left=False, signed=False)
    ),
    "bit_count": Function((1, 1), _bit_count_types, simple(lambda value: (int(value) % (1 << 64)).bit_count())),
    "bit_get": Function((2, 2), _bit_get_types, simple(lambda value, place: value >> place & 1), constants=True),
    "bin": Function((1, 1), takes(LONG, gives=STRING), _bin),
    "hex": Function((1, 1), _hex_types, hexadecimal),
    "unhex": Function((1, 1), takes(STRING, gives=BINARY), simple(unhexadecimal)),
    "try_add": _tried("+"),
    "try_subtract": _tried("-"),
    "try_multiply": _tried("*"),
    "try_divide": _tried("/"),
    "try_mod": _tried("%"),
}
