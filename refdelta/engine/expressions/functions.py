"""Functions over columns: the twins of :mod:`refdelta.core.expressions.functions`, which are the definitions.

A function that Arrow computes in another way than the definition is computed by the definition, once for each distinct
value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.expressions.expression import Call, Literal
from refdelta.core.expressions.predicate import value_of
from refdelta.core.table.types import INTEGRAL, DecimalType
from refdelta.engine.arrow.arrays import floor_divide, modulo
from refdelta.engine.arrow.schema import arrow_type
from refdelta.engine.expressions import arithmetic, calendars
from refdelta.engine.expressions.arithmetic import compare
from refdelta.engine.expressions.columnar import (
    MOST_BYTES,
    Columnar,
    bounded,
    by_value,
    checked,
    constant,
    dated,
    days,
    emptied,
    text,
)
from refdelta.engine.expressions.convert import convert
from refdelta.engine.expressions.library.arrays import ARRAYS
from refdelta.engine.expressions.library.arrays import GROWN as GROWN_ARRAYS
from refdelta.engine.expressions.library.numbers import NUMBERS
from refdelta.engine.expressions.library.text import GROWN, TEXT
from refdelta.engine.expressions.library.times import TIMES
from refdelta.engine.expressions.partition import to_internal
from refdelta.errors import ExpressionError


def call(node: Call, args: Sequence[pa.Array]) -> pa.Array:
    """A function of columns, all of the same length.

    Args:
        node: the call.
        args: its arguments; the first alone if the others are constants.

    Raises:
        ExpressionError: the function fails for some row, or makes too much text.
    """
    grown = _GROWN.get(node.name)
    if grown is not None:
        bounded(node.name, grown(node, *args), len(args[0]) if args else 1)
    try:
        found = _COLUMNAR[node.name](node, *args)
    except pa.ArrowInvalid as error:
        # The definition raises the proper message.
        _explain(node, args)
        raise ExpressionError(f"{node}: {error}") from None
    kind = arrow_type(node.type)
    return found if found.type == kind else found.cast(kind)


def _explain(node: Call, args: Sequence[pa.Array]) -> None:
    columns = [to_internal(array, arg.type) for array, arg in zip(args, node.args, strict=False)]
    for values in zip(*columns, strict=True):
        given = tuple(Literal(value, arg.type) for value, arg in zip(values, node.args, strict=False))
        value_of(Call(node.name, (*given, *node.args[len(given) :]), node.type), {})


# --- arithmetic --------------------------------------------------------------------------------------------------


def _nonzero(left: pa.Array, right: pa.Array) -> None:
    none = pa.scalar(Decimal(0) if pa.types.is_decimal(right.type) else 0, right.type)
    zero = pc.and_(pc.equal(right, none), left.is_valid())
    if pc.any(zero).as_py():
        raise pa.ArrowInvalid("division by zero")


def _binary(whole: Columnar, fraction: Columnar, *, divides: bool = False) -> Columnar:
    def function(node: Call, left: pa.Array, right: pa.Array) -> Any:
        if divides:
            _nonzero(left, right)
        if isinstance(node.type, DecimalType):
            return checked(node, arithmetic.compute(node.name, left, right, node.type))
        return (whole if node.type in INTEGRAL else fraction)(left, right)

    return function


def _remainder(left: pa.Array, right: pa.Array) -> pa.Array:
    # The quotient of the least integer and -1 overflows; the remainder by 1 is the same as by -1.
    divisor = pc.if_else(pc.equal(right, -1), pa.scalar(1, right.type), right)
    return pc.subtract(left, pc.multiply(pc.divide(left, divisor), divisor))


def _minus(node: Call, left: pa.Array, right: pa.Array | None = None) -> Any:
    if right is None:
        return _unary(pc.negate_checked, pc.negate)(node, left)
    return _binary(pc.subtract_checked, pc.subtract)(node, left, right)


def _unary(whole: Columnar, other: Columnar) -> Columnar:
    return lambda node, array: (whole if node.type in INTEGRAL else other)(array)


_ROUNDED = pa.decimal256(76, 40)


def _round(node: Call, array: pa.Array) -> Any:
    places = constant(node, 1)
    if node.type in INTEGRAL:
        if places >= 0:
            return array
        found = pc.round(arithmetic.wide(array), max(places, -60), "half_towards_infinity")
        return convert(found.cast(pa.decimal256(76, 0)), DecimalType(38, 0), node.type)
    if isinstance(node.type, DecimalType):
        found = pc.round(arithmetic.wide(array), max(min(places, array.type.scale), -30), "half_towards_infinity")
        return checked(node, arithmetic.fit(found, node.type))
    double = array.cast(pa.float64())
    size = pc.abs(double)
    usual = pc.or_(pc.equal(size, 0), pc.and_(pc.greater(size, 1e-20), pc.less(size, 1e22)))
    if not -20 <= places <= 20 or not pc.all(usual, min_count=0).as_py():
        return by_value(node, array)
    # The shortest text of a float is its exact value here.
    exact = double.cast(pa.string()).cast(_ROUNDED)
    found = pc.round(exact, places, "half_towards_infinity").cast(pa.string()).cast(pa.float64())
    return pc.add(found, 0.0).cast(arrow_type(node.type), safe=False)


def _whole(mode: str, function: Columnar) -> Columnar:
    def whole(node: Call, array: pa.Array) -> Any:
        if isinstance(node.type, DecimalType):
            return checked(node, arithmetic.fit(pc.round(arithmetic.wide(array), 0, mode), node.type))
        if not pa.types.is_floating(array.type):
            return array
        found = function(array)
        # As in Java: the nearest long, and 0 for NaN.
        sound = pc.and_(pc.greater_equal(found, -(2.0**63)), pc.less(found, 2.0**63))
        limit = pc.if_else(pc.less(found, 0.0), -(2**63), pc.if_else(pc.is_nan(found), 0, 2**63 - 1))
        return pc.if_else(sound, pc.if_else(sound, found, 0.0).cast(pa.int64(), safe=False), limit)

    return whole


# --- choosing ----------------------------------------------------------------------------------------------------


def _picked(op: str) -> Columnar:
    def pick(_: Call, *arrays: pa.Array) -> pa.Array:
        found = arrays[0]
        for array in arrays[1:]:
            better = pc.or_kleene(found.is_null(), pc.fill_null(compare(op, array, found), False))
            found = pc.if_else(better, array, found)
        return found

    return pick


# --- strings -----------------------------------------------------------------------------------------------------


def _cased(function: Columnar) -> Columnar:
    # Arrow maps each character to one; some become two, or depend on their neighbours.
    return lambda node, array: (
        function(array) if pc.all(pc.string_is_ascii(array), min_count=0).as_py() else by_value(node, array)
    )


def _concat(_: Call, *arrays: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*arrays, "", null_handling="emit_null")


def _length(_: Call, array: pa.Array) -> pa.Array:
    return pc.binary_length(array) if pa.types.is_binary(array.type) else pc.utf8_length(array)


def _substring(array: pa.Array, node: Call) -> pa.Array:
    start = constant(node, 1)
    count = constant(node, 2) if len(node.args) > 2 else 2**31 - 1
    if count <= 0:
        return emptied(array)
    if start >= 0:
        begin = max(start - 1, 0)
        return pc.utf8_slice_codeunits(array, begin, min(begin + count, 2**31))
    return pc.utf8_slice_codeunits(array, start, start + count if start + count < 0 else None)


def _left(array: pa.Array, node: Call) -> pa.Array:
    count = constant(node, 1)
    return pc.utf8_slice_codeunits(array, 0, count) if count > 0 else emptied(array)


def _right(array: pa.Array, node: Call) -> pa.Array:
    count = constant(node, 1)
    return pc.utf8_slice_codeunits(array, -count, None) if count > 0 else emptied(array)


def _replace(array: pa.Array, node: Call) -> pa.Array:
    old, new = constant(node, 1), constant(node, 2) if len(node.args) > 2 else ""
    return pc.replace_substring(array, old, new) if old else array


def _replaced(node: Call, array: pa.Array) -> int:
    """An upper bound of the bytes that ``replace`` makes."""
    old, new = constant(node, 1) or "", (constant(node, 2) if len(node.args) > 2 else "") or ""
    size: int = array.nbytes
    grows = len(new.encode()) - len(old.encode())
    if not old or grows <= 0 or size + size // len(old.encode()) * grows <= MOST_BYTES:
        return size
    return size + grows * int(pc.sum(pc.count_substring(array, old)).as_py() or 0)


def _padded(node: Call, array: pa.Array) -> int:
    """An upper bound of the bytes that ``lpad`` and ``rpad`` make."""
    count, filler = constant(node, 1) or 0, (constant(node, 2) if len(node.args) > 2 else " ") or ""
    size: int = array.nbytes
    one = len(filler.encode())
    if count <= 0 or size + len(array) * count * one <= MOST_BYTES:
        return size
    lack = int(pc.sum(pc.max_element_wise(pc.subtract(count, pc.utf8_length(array)), 0)).as_py() or 0)
    return size + lack * max(1, one // max(1, len(filler)))


def _pad(function: Columnar) -> Columnar:
    def pad(node: Call, array: pa.Array) -> Any:
        if len(node.args) > 2 and len(constant(node, 2) or "") != 1:
            return by_value(node, array)
        count, filler = max(constant(node, 1), 0), constant(node, 2) if len(node.args) > 2 else " "
        return pc.utf8_slice_codeunits(function(array, count, filler), 0, count) if count else emptied(array)

    return text(lambda texts, node: pad(node, texts))


# --- dates -------------------------------------------------------------------------------------------------------


def _of_date(function: Callable[[Any], Any]) -> Columnar:
    return lambda node, array: dated(node, calendars.over_integers(function, days(array)))


def _of_clock(size: int, many: int) -> Columnar:
    return lambda _, array: modulo(floor_divide(array.cast(pa.int64()), size), many)


def _moved(function: Columnar) -> Columnar:
    return lambda node, array, count: dated(node, function(days(array), count.cast(pa.int64())))


def _add_months(node: Call, array: pa.Array, count: pa.Array) -> pa.Array:
    return dated(node, calendars.over_integers(calendars.add_months, days(array), count.cast(pa.int64())))


def _trunc(node: Call, array: pa.Array) -> pa.Array:
    unit = constant(node, 1)
    return dated(node, calendars.over_integers(lambda days: calendars.trunc(days, unit), days(array)))


def _date_trunc(node: Call, _: pa.Array, array: pa.Array) -> pa.Array:
    return calendars.date_trunc(array.cast(pa.int64()), constant(node, 0)).cast(array.type)


def _date_format(array: pa.Array, node: Call) -> pa.Array:
    return calendars.date_format(array.cast(pa.int64()), constant(node, 1))


def _from_unixtime(array: pa.Array, node: Call) -> pa.Array:
    return calendars.date_format(pc.multiply(array, 1_000_000), constant(node, 1))


def _of_time(size: int) -> Columnar:
    return lambda _, array: floor_divide(array.cast(pa.int64()), size)


# Functions whose result may be much longer than their arguments, with a bound of its bytes.
_GROWN: dict[str, Callable[..., int]] = {
    "concat": lambda _, *arrays: sum(array.nbytes for array in arrays),
    "replace": _replaced,
    "lpad": _padded,
    "rpad": _padded,
    **GROWN,
    **GROWN_ARRAYS,
}

_COLUMNAR: dict[str, Columnar] = {
    "+": _binary(pc.add_checked, pc.add),
    "-": _minus,
    "*": _binary(pc.multiply_checked, pc.multiply),
    "/": _binary(pc.divide, pc.divide, divides=True),
    "%": _binary(_remainder, _remainder, divides=True),
    "div": _binary(pc.divide_checked, pc.divide, divides=True),
    "abs": _unary(pc.abs_checked, pc.abs),
    "round": _round,
    "floor": _whole("down", pc.floor),
    "ceil": _whole("up", pc.ceil),
    "greatest": _picked(">"),
    "least": _picked("<"),
    "concat": _concat,
    "upper": _cased(pc.ascii_upper),
    "lower": _cased(pc.ascii_lower),
    "trim": lambda _, array: pc.utf8_trim(array, " "),
    "ltrim": lambda _, array: pc.utf8_ltrim(array, " "),
    "rtrim": lambda _, array: pc.utf8_rtrim(array, " "),
    "length": _length,
    "substring": text(_substring),
    "left": text(_left),
    "right": text(_right),
    "replace": text(_replace),
    "lpad": _pad(pc.utf8_lpad),
    "rpad": _pad(pc.utf8_rpad),
    "startswith": text(lambda array, node: pc.starts_with(array, constant(node, 1))),
    "endswith": text(lambda array, node: pc.ends_with(array, constant(node, 1))),
    "contains": text(lambda array, node: pc.match_substring(array, constant(node, 1))),
    "year": _of_date(calendars.year),
    "quarter": _of_date(calendars.quarter),
    "month": _of_date(calendars.month),
    "day": _of_date(calendars.day),
    "dayofweek": _of_date(calendars.dayofweek),
    "weekday": _of_date(calendars.weekday),
    "dayofyear": _of_date(calendars.dayofyear),
    "weekofyear": _of_date(calendars.weekofyear),
    "last_day": _of_date(calendars.last_day),
    "hour": _of_clock(3_600_000_000, 24),
    "minute": _of_clock(60_000_000, 60),
    "second": _of_clock(1_000_000, 60),
    "date_add": _moved(pc.add),
    "date_sub": _moved(pc.subtract),
    "add_months": _add_months,
    "datediff": lambda _, end, start: pc.subtract(days(end), days(start)),
    "date_format": text(_date_format),
    "from_unixtime": text(_from_unixtime),
    "unix_micros": _of_time(1),
    "unix_millis": _of_time(1_000),
    "unix_seconds": _of_time(1_000_000),
    "timestamp_micros": lambda node, array: array.cast(arrow_type(node.type)),
    "timestamp_millis": lambda node, array: pc.multiply_checked(array, 1_000).cast(arrow_type(node.type)),
    "trunc": _trunc,
    "date_trunc": _date_trunc,
    "reverse": lambda _, array: pc.utf8_reverse(array),
    **NUMBERS,
    **TEXT,
    **TIMES,
    **ARRAYS,
}
