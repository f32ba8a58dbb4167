"""Functions of intervals, and of dates and times with them.

An interval of days and times is its number of microseconds, one of years and months its number of months. Columns of
tables cannot hold them.
"""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import floor_divide, modulo
from refdelta.arrow.schema import arrow_type
from refdelta.errors import ExpressionError, PredicateError
from refdelta.expressions import calendar_math
from refdelta.expressions.arithmetic import Typed
from refdelta.expressions.casting import to_micros
from refdelta.expressions.coercion import coerce
from refdelta.expressions.columnar import dated, days, over_integers
from refdelta.expressions.expression import Call, Literal, Value
from refdelta.expressions.interval_types import DAY_TIME, DAYS, INTERVALS, YEAR_MONTH
from refdelta.expressions.library.times import HOUR, MINUTE, SECOND, seconds_as_micros
from refdelta.expressions.signature import CLOCK_TYPES, Columns, Function, takes
from refdelta.table.partition_values import DAY
from refdelta.table.types import DATE, INTEGER, INTEGRAL, LONG, TIMESTAMP, TIMESTAMP_NTZ, DataType, DecimalType

# --- dates and times with intervals ------------------------------------------------------------------------------


def moved(value: int, kind: DataType, interval: int, interval_type: DataType) -> int:
    """A date or a time, later by an interval.

    Raises:
        ExpressionError: there is none that is so far.
    """
    if interval_type == YEAR_MONTH:
        if kind == DATE:
            return calendar_math.add_months(value, interval)
        return to_micros(calendar_math.add_months(value // DAY, interval) * DAY + value % DAY)
    if kind == DATE:
        return calendar_math.add_days(value, interval // DAY)
    return to_micros(value + interval)


def _moved_types(_: str, args: tuple[Value, ...]) -> Typed:
    value, interval = args
    if value.type == DATE and interval.type == DAY_TIME:
        value = coerce(value, TIMESTAMP)
    return (value, interval), value.type


def _moved(call: Call, value: int, interval: int) -> int:
    sign = 1 if call.name == "moved" else -1
    return moved(value, call.type, sign * interval, call.args[1].type)


def _moved_columns(sign: int) -> Columns:
    def moved(node: Call, array: pa.Array, interval: pa.Array) -> pa.Array:
        by = pc.multiply_checked(interval, sign) if sign < 0 else interval
        if node.args[1].type == YEAR_MONTH:
            start = days(array) if node.type == DATE else floor_divide(array.cast(pa.int64()), DAY)
            found = over_integers(calendar_math.add_months_array, start, by)
            if node.type == DATE:
                return dated(node, found)
            found.cast(pa.int32())  # as a date, it has to exist
            rest = modulo(array.cast(pa.int64()), DAY)
            return pc.add_checked(pc.multiply_checked(found, DAY), rest).cast(arrow_type(node.type))
        if node.type == DATE:
            return dated(node, pc.add_checked(days(array), floor_divide(by, DAY)))
        return pc.add_checked(array.cast(pa.int64()), by).cast(arrow_type(node.type))

    return moved


def _apart_types(_: str, args: tuple[Value, ...]) -> Typed:
    left, right = args
    if left.type == right.type == DATE:
        return args, DAYS
    kind = TIMESTAMP if TIMESTAMP in (left.type, right.type) else TIMESTAMP_NTZ
    return (coerce(left, kind), coerce(right, kind)), DAY_TIME


def _apart(call: Call, one: int, other: int) -> int:
    return _fit((one - other) * (DAY if call.type == DAYS else 1), call.type)


def _apart_columns(node: Call, one: pa.Array, other: pa.Array) -> pa.Array:
    if node.type == DAYS:
        return pc.multiply_checked(pc.subtract(days(one), days(other)), DAY)
    return pc.subtract_checked(one.cast(pa.int64()), other.cast(pa.int64()))


# --- intervals ---------------------------------------------------------------------------------------------------


def _fit(value: int, kind: DataType) -> int:
    limit = 2**31 if kind == YEAR_MONTH else 2**63
    if not -limit <= value < limit:
        raise ExpressionError(f"the {kind} does not fit into {'32' if kind == YEAR_MONTH else '64'} bits")
    return value


def _limited(function: Columns) -> Columns:
    def limited(node: Call, *arrays: pa.Array) -> pa.Array:
        found = function(*arrays)
        if node.type == YEAR_MONTH:
            found.cast(pa.int32())  # raises ArrowInvalid for what does not fit
        return found

    return limited


def _sum_types(_: str, args: tuple[Value, ...]) -> Typed:
    kinds = {arg.type for arg in args}
    return args, kinds.pop() if len(kinds) == 1 else DAY_TIME


def _many_types(_: str, args: tuple[Value, ...]) -> Typed:
    interval, count = args
    return (interval, coerce(count, LONG)), YEAR_MONTH if interval.type == YEAR_MONTH else DAY_TIME


_FRACTION = DecimalType(18, 6)


def _make_day_time(_: Call, days: int, hours: int, minutes: int, seconds: Decimal) -> int:
    return _fit(days * DAY + hours * HOUR + minutes * MINUTE + int(seconds * SECOND), DAY_TIME)


def _make_day_time_columns(_: Call, *columns: pa.Array) -> pa.Array:
    found = seconds_as_micros(columns[3])
    for column, size in zip(columns[:3], (DAY, HOUR, MINUTE), strict=True):
        found = pc.add_checked(found, pc.multiply_checked(column.cast(pa.int64()), size))
    return found


def _make_types(name: str, args: tuple[Value, ...]) -> Typed:
    filled = (*args, *[Literal(0, INTEGER)] * (4 - len(args)))
    return takes(INTEGER, INTEGER, INTEGER, _FRACTION, gives=DAY_TIME)(name, filled)


def _make_months_types(name: str, args: tuple[Value, ...]) -> Typed:
    return takes(INTEGER, INTEGER, gives=YEAR_MONTH)(name, (*args, *[Literal(0, INTEGER)] * (2 - len(args))))


def _make_months(years: pa.Array, months: pa.Array) -> pa.Array:
    return pc.add(pc.multiply(years.cast(pa.int64()), 12), months.cast(pa.int64()))


# --- operators ---------------------------------------------------------------------------------------------------


def interval_call(op: str, args: tuple[Value, ...]) -> tuple[str, tuple[Value, ...]] | None:
    """The function that an operator means if a date, a time or an interval is among its operands; None if it does not.

    Raises:
        PredicateError: the operator does not go with these operands.
    """
    kinds = [arg.type for arg in args]
    moments = [kind in (DATE, *CLOCK_TYPES) for kind in kinds]
    intervals = [kind in INTERVALS for kind in kinds]
    if not any(intervals) and not (op == "-" and len(args) == 2 and all(moments)):
        return None
    if len(args) == 1 and op == "-":
        return "interval times", (args[0], Literal(-1, LONG))
    if len(args) == 2:
        if moments[0] and intervals[1] and op in "+-":
            return ("moved" if op == "+" else "moved back"), args
        if intervals[0] and moments[1] and op == "+":
            return "moved", (args[1], args[0])
        if op == "-" and all(moments):
            return "apart", args
        if op in "+-" and all(intervals) and (kinds[0] == YEAR_MONTH) == (kinds[1] == YEAR_MONTH):
            return ("interval plus" if op == "+" else "interval minus"), args
        if op == "*" and intervals[0] and kinds[1] in INTEGRAL:
            return "interval times", args
        if op == "*" and intervals[1] and kinds[0] in INTEGRAL:
            return "interval times", (args[1], args[0])
    shown = f" {op} ".join(f"{arg} ({arg.type})" for arg in args)
    raise PredicateError(f"{shown} is not supported here; dates, times and intervals can be added and subtracted")


INTERVAL_FUNCTIONS: dict[str, Function] = {
    "make_dt_interval": Function((0, 4), _make_types, _make_day_time, fails=True, columns=_make_day_time_columns),
    "make_ym_interval": Function(
        (0, 2),
        _make_months_types,
        lambda _, years, months: _fit(years * 12 + months, YEAR_MONTH),
        fails=True,
        columns=_limited(_make_months),
    ),
    "moved": Function((2, 2), _moved_types, _moved, fails=True, columns=_moved_columns(1)),
    "moved back": Function((2, 2), _moved_types, _moved, fails=True, columns=_moved_columns(-1)),
    "apart": Function((2, 2), _apart_types, _apart, fails=True, columns=_apart_columns),
    "interval plus": Function(
        (2, 2), _sum_types, lambda call, a, b: _fit(a + b, call.type), fails=True, columns=_limited(pc.add_checked)
    ),
    "interval minus": Function(
        (2, 2), _sum_types, lambda call, a, b: _fit(a - b, call.type), fails=True, columns=_limited(pc.subtract_checked)
    ),
    "interval times": Function(
        (2, 2),
        _many_types,
        lambda call, a, b: _fit(a * b, call.type),
        fails=True,
        columns=_limited(pc.multiply_checked),
    ),
}
