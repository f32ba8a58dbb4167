"""The functions of SQL that expressions may call: what they take, what they give, and what they are for one row.

A further function is a further entry here, and one in ``engine/expressions/functions``, its columnar twin. Values are
internal values; unless said otherwise, a null among the arguments makes a null.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from refdelta.core.expressions import arithmetic, calendar_math
from refdelta.core.expressions.arithmetic import Typed
from refdelta.core.expressions.coercion import coerce, common_type
from refdelta.core.expressions.expression import Call, Literal, Value
from refdelta.core.expressions.library.arrays import ARRAYS
from refdelta.core.expressions.library.numbers import NUMBERS
from refdelta.core.expressions.library.text import TEXT
from refdelta.core.expressions.library.times import TIMES
from refdelta.core.expressions.ordering import order
from refdelta.core.expressions.signature import (
    ANY_NUMBER,
    CLOCK_TYPES,
    Function,
    bounded_text,
    constant_pattern,
    constants,
    simple,
    takes,
)
from refdelta.core.expressions.time_format import format_time, parts_of
from refdelta.core.table.char_varchar import LONGEST
from refdelta.core.table.types import (
    BINARY,
    BOOLEAN,
    DATE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    DataType,
)
from refdelta.errors import PredicateError, suggestion

# --- what functions take -----------------------------------------------------------------------------------------


def _pad(name: str, args: tuple[Value, ...]) -> Typed:
    found, gives = constants(takes(STRING, INTEGER, STRING, gives=STRING))(name, args)
    count = found[1]
    # Bounds the size of the output: a batch of rows has to fit into memory.
    if isinstance(count, Literal) and count.value is not None and count.value > LONGEST:
        raise PredicateError(f"{name} makes strings of {LONGEST} characters at most here, not {count}")
    return found, gives


def _strings(_: str, args: tuple[Value, ...]) -> Typed:
    return tuple(coerce(arg, STRING, "concat") for arg in args), STRING


def _length(name: str, args: tuple[Value, ...]) -> Typed:
    return (args[0] if args[0].type == BINARY else coerce(args[0], STRING, name),), INTEGER


def _clock(name: str, args: tuple[Value, ...]) -> Typed:
    value = args[0]
    return (value if value.type in CLOCK_TYPES else coerce(value, TIMESTAMP, name),), INTEGER


def _alike(name: str, args: tuple[Value, ...]) -> Typed:
    kind = common_type(args, name)
    return tuple(coerce(arg, kind, name) for arg in args), kind


def _unit(value: Value, name: str, allowed: Sequence[str]) -> Literal:
    known = calendar_math.UNITS.get(str(value.value).lower()) if isinstance(value, Literal) else None
    if known not in allowed:
        near = suggestion(value.value, allowed) if isinstance(value, Literal) else ""
        raise PredicateError(f"{name} takes one of {', '.join(allowed)} as a constant, not {value}{near}")
    return Literal(known, STRING)


def _trunc(name: str, args: tuple[Value, ...]) -> Typed:
    return (coerce(args[0], DATE, name), _unit(args[1], name, ["year", "quarter", "month", "week"])), DATE


def _date_trunc(name: str, args: tuple[Value, ...]) -> Typed:
    units = list(dict.fromkeys(calendar_math.UNITS.values()))
    return (_unit(args[0], name, units), coerce(args[1], TIMESTAMP, name)), TIMESTAMP


def _date_format(name: str, args: tuple[Value, ...]) -> Typed:
    pattern = constant_pattern(name, args[1], parts_of)
    return (coerce(args[0], TIMESTAMP, name), pattern), STRING


def _from_unixtime(name: str, args: tuple[Value, ...]) -> Typed:
    pattern = args[1] if len(args) > 1 else Literal("yyyy-MM-dd HH:mm:ss", STRING)
    (_, pattern), gives = _date_format(name, (Literal(None, TIMESTAMP), pattern))
    return (coerce(args[0], LONG, name), pattern), gives


# --- what they are -----------------------------------------------------------------------------------------------


def substring(text: str, start: int, count: int = 2**31 - 1) -> str:
    """Characters from ``start``, counted from 1 or, negative, from the end."""
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    end = begin + count
    return text[max(begin, 0) : end] if end > max(begin, 0) else ""


def lpad(text: str, count: int, pad: str = " ") -> str:
    """A string of so many characters: cut, or with ``pad`` before it as often as need be."""
    return _padding(text, count, pad) + text[: max(count, 0)]


def rpad(text: str, count: int, pad: str = " ") -> str:
    """A string of ``count`` characters: cut, or with ``pad`` repeated after it."""
    return text[: max(count, 0)] + _padding(text, count, pad)


def _padding(text: str, count: int, pad: str) -> str:
    lack = count - len(text)
    return (pad * (lack // len(pad) + 1))[:lack] if lack > 0 and pad else ""


def _picked(sign: int) -> Callable[..., Any]:
    def pick(_: Call, *values: Any) -> Any:
        found = None
        for value in values:
            if value is not None and (found is None or order(value, found) * sign > 0):
                found = value
        return found

    return pick


def seconds_to_micros(seconds: int) -> int:
    """As Spark's ``from_unixtime`` has it, which turns round beyond 64 bits."""
    return (seconds * 1_000_000 + 2**63) % 2**64 - 2**63


def _millis_to_micros(_: Call, millis: int) -> int:
    return int(arithmetic.fit(millis * 1_000, LONG))


def _concat(_: Call, *values: Any) -> Any:
    # All of them are computed, even after a null.
    if None in values:
        return None
    bounded_text("concat", sum(map(len, values)))
    return "".join(values)


def replace(text: str, old: str, new: str = "") -> str:
    """The string with each ``old``, from the left, replaced by ``new``; unchanged if ``old`` is empty."""
    if not old:
        return text
    if len(new) > len(old):
        bounded_text("replace", len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


def _negative(call: Call, value: Any) -> Any:
    return arithmetic.fit(-value, call.type)


def _minus(call: Call, *values: Any) -> Any:
    return arithmetic.binary("-", call.type, *values) if len(values) == 2 else _negative(call, *values)


def _minus_types(name: str, args: tuple[Value, ...]) -> Typed:
    return arithmetic.unary_types(name, args) if len(args) == 1 else arithmetic.binary_types(name, args)


def _operator(op: str, *, backwards: bool = False) -> Function:
    def plain(call: Call, a: Any, b: Any) -> Any:
        return arithmetic.binary(op, call.type, a, b)

    return Function((2, 2), arithmetic.binary_types, plain, fails=True, backwards=backwards)


def _of_date(function: Callable[[int], int], gives: DataType = INTEGER) -> Function:
    return Function((1, 1), takes(DATE, gives=gives), simple(function))


def _of_clock(size: int, many: int) -> Function:
    return Function((1, 1), _clock, simple(lambda micros: micros // size % many))


def _of_time(size: int) -> Function:
    return Function((1, 1), takes(TIMESTAMP, gives=LONG), simple(lambda micros: micros // size))


def _of_string(function: Callable[[str], Any], gives: DataType = STRING) -> Function:
    return Function((1, 1), takes(STRING, gives=gives), simple(function))


def _with_text(function: Callable[..., Any], *more: DataType, gives: DataType = STRING, least: int = 0) -> Function:
    arity = (least or 1 + len(more), 1 + len(more))
    return Function(arity, constants(takes(STRING, *more, gives=gives)), simple(function), constants=True)


FUNCTIONS: dict[str, Function] = {
    "+": _operator("+"),
    "-": Function((1, 2), _minus_types, _minus, fails=True),
    "*": _operator("*"),
    "/": _operator("/", backwards=True),
    "%": _operator("%", backwards=True),
    "div": _operator("div", backwards=True),
    "abs": Function(
        (1, 1), arithmetic.unary_types, lambda call, value: arithmetic.fit(abs(value), call.type), fails=True
    ),
    "round": Function(
        (1, 2),
        arithmetic.round_types,
        lambda call, value, places: arithmetic.rounded(call.type, value, places),
        fails=True,
        constants=True,
    ),
    "floor": Function(
        (1, 1), arithmetic.whole_types, lambda call, value: arithmetic.whole(call.type, value, math.floor)
    ),
    "ceil": Function((1, 1), arithmetic.whole_types, lambda call, value: arithmetic.whole(call.type, value, math.ceil)),
    "greatest": Function((2, ANY_NUMBER), _alike, _picked(1), strict=False),
    "least": Function((2, ANY_NUMBER), _alike, _picked(-1), strict=False),
    # Evaluation stops at the first value: later arguments are not computed.
    "coalesce": Function(
        (1, ANY_NUMBER), _alike, lambda _, *values: next((v for v in values if v is not None), None), strict=False
    ),
    "concat": Function((0, ANY_NUMBER), _strings, _concat, strict=False),
    "upper": _of_string(str.upper),
    "lower": _of_string(str.lower),
    "trim": _of_string(lambda text: text.strip(" ")),
    "ltrim": _of_string(lambda text: text.lstrip(" ")),
    "rtrim": _of_string(lambda text: text.rstrip(" ")),
    "length": Function((1, 1), _length, simple(len)),
    "substring": _with_text(substring, INTEGER, INTEGER, least=2),
    "left": _with_text(lambda text, count: text[: max(count, 0)], INTEGER),
    "right": _with_text(lambda text, count: text[-count:] if count > 0 else "", INTEGER),
    "replace": _with_text(replace, STRING, STRING, least=2),
    "lpad": Function((2, 3), _pad, simple(lpad), constants=True),
    "rpad": Function((2, 3), _pad, simple(rpad), constants=True),
    "startswith": _with_text(str.startswith, STRING, gives=BOOLEAN),
    "endswith": _with_text(str.endswith, STRING, gives=BOOLEAN),
    "contains": _with_text(lambda text, part: part in text, STRING, gives=BOOLEAN),
    "year": _of_date(calendar_math.year),
    "quarter": _of_date(calendar_math.quarter),
    "month": _of_date(calendar_math.month),
    "day": _of_date(calendar_math.day),
    "dayofweek": _of_date(calendar_math.dayofweek),
    "weekday": _of_date(calendar_math.weekday),
    "dayofyear": _of_date(calendar_math.dayofyear),
    "weekofyear": _of_date(calendar_math.weekofyear),
    "last_day": _of_date(calendar_math.last_day, DATE),
    "hour": _of_clock(3_600_000_000, 24),
    "minute": _of_clock(60_000_000, 60),
    "second": _of_clock(1_000_000, 60),
    "date_add": Function((2, 2), takes(DATE, INTEGER, gives=DATE), simple(calendar_math.add_days), fails=True),
    "date_sub": Function(
        (2, 2),
        takes(DATE, INTEGER, gives=DATE),
        simple(lambda days, count: calendar_math.add_days(days, -count)),
        fails=True,
    ),
    "add_months": Function((2, 2), takes(DATE, INTEGER, gives=DATE), simple(calendar_math.add_months), fails=True),
    "datediff": Function((2, 2), takes(DATE, DATE, gives=INTEGER), simple(lambda end, start: end - start)),
    "date_format": Function((2, 2), _date_format, simple(format_time), constants=True),
    "from_unixtime": Function(
        (1, 2),
        _from_unixtime,
        simple(lambda seconds, pattern: format_time(seconds_to_micros(seconds), pattern)),
        constants=True,
    ),
    "unix_micros": _of_time(1),
    "unix_millis": _of_time(1_000),
    "unix_seconds": _of_time(1_000_000),
    "timestamp_micros": Function((1, 1), takes(LONG, gives=TIMESTAMP), simple(lambda micros: micros)),
    "timestamp_millis": Function((1, 1), takes(LONG, gives=TIMESTAMP), _millis_to_micros, fails=True),
    "trunc": Function((2, 2), _trunc, simple(calendar_math.trunc), constants=True),
    "date_trunc": Function((2, 2), _date_trunc, simple(lambda unit, micros: calendar_math.date_trunc(micros, unit))),
    "reverse": _of_string(lambda text: text[::-1]),
    **NUMBERS,
    **TEXT,
    **TIMES,
    **ARRAYS,
}

ALIASES = {
    "ucase": "upper",
    "lcase": "lower",
    "char_length": "length",
    "character_length": "length",
    "len": "length",
    "substr": "substring",
    "dayofmonth": "day",
    "dateadd": "date_add",
    "date_diff": "datediff",
    "ceiling": "ceil",
    "mod": "%",
    "negative": "-",
    "nvl": "coalesce",
    "ifnull": "coalesce",
    "pow": "power",
    "signum": "sign",
    "getbit": "bit_get",
    "char": "chr",
    "sha": "sha1",
    "regexp": "rlike",
    "regexp_like": "rlike",
    "cardinality": "size",
    "array_size": "size",
    "unix_timestamp": "to_unix_timestamp",
}
"""Other names of the same functions."""


_OF_STRINGS = {
    *("concat", "left", "right", "substring", "lpad", "rpad", "overlay", "elt", "startswith", "endswith", "contains"),
}
"""Functions that have another form for binaries in Spark."""


def typed_call(name: str, args: tuple[Value, ...]) -> Call:
    """A call with its types found; the name is one of :data:`FUNCTIONS`.

    Raises:
        PredicateError: these arguments are not what the function takes.
    """
    function = FUNCTIONS[name]
    least, most = function.arity
    if not least <= len(args) <= most:
        many = f"{least}" if least == most else f"at least {least}" if most == ANY_NUMBER else f"{least} to {most}"
        raise PredicateError(f"{name} takes {many} argument{'' if many == '1' else 's'}, not {len(args)}")
    binary = next((arg for arg in args if arg.type == BINARY), None) if name in _OF_STRINGS else None
    if binary is not None:
        raise PredicateError(f"{name} of a binary is not supported here; cast {binary} to a string")
    found, kind = function.typing(name, args)
    return Call(name, found, kind)
