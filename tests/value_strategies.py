"""Random values over the schema of predicate_strategies: what users write in SET and WHERE, of every kind."""

from __future__ import annotations

import math
from decimal import Decimal

from hypothesis import strategies as st

from predicate_strategies import DEC, VALUES
from refdelta.expressions.expression import (
    And,
    Call,
    Case,
    Column,
    Comparison,
    Condition,
    Convert,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
)
from refdelta.table.types import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DecimalType,
)

WIDE, NARROW, FINE = DecimalType(38, 6), DecimalType(3, 1), DecimalType(38, 18)
NUMBERS = [BYTE, SHORT, INTEGER, LONG, FLOAT, DOUBLE, DEC, WIDE, NARROW, FINE]
TEXTS = ["", " a ", "b", "straße", "İΣ", "1", " -7 ", "3.55", "1e3", "2020-02-29", "2020-02-30", "2021-1", "true", "no"]
TEXTS += ["2020-01-01 10:11:12.5", "x" * 40, "NaN", "99999999999"]


def columns(*names):
    return st.sampled_from([Column(tuple(name.split("."))) for name in names])


def constants(kind, values):
    return st.sampled_from([Literal(value, kind) for value in values])


def call(name, *args):
    return st.tuples(*args).map(lambda found: Call(name, found))


def cast(child, kinds):
    return st.builds(Convert, child, st.sampled_from(kinds), st.booleans())


def chosen(inner, conditions):
    branch = st.tuples(conditions, inner)
    return st.one_of(
        st.builds(lambda found, last: Case(tuple(found), last), st.lists(branch, min_size=1, max_size=2), inner),
        st.builds(lambda found: Case((found,), Literal(None, VOID)), branch),
        st.lists(inner, min_size=2, max_size=3).map(lambda found: Call("coalesce", tuple(found))),
        st.lists(inner, min_size=2, max_size=3).map(lambda found: Call("greatest", tuple(found))),
        st.lists(inner, min_size=2, max_size=3).map(lambda found: Call("least", tuple(found))),
    )


INTS = constants(INTEGER, [0, 1, 2, 3, 7, -1, -3, 2**31 - 1])
SMALL = constants(INTEGER, [0, 1, 2, -1, 5, -3, 30])
NUMBER_LEAVES = st.one_of(
    columns("by", "i", "l", "f", "d", "dec", "p", "st.x"),
    columns("i", "l", "dec", "d"),
    INTS,
    constants(LONG, [2, 2**63 - 1, 10]),
    constants(DOUBLE, [0.0, 0.5, 2.675, -1e300, math.nan]),
    constants(DecimalType(3, 2), [Decimal("0.05"), Decimal("1.50"), Decimal("-3.33")]),
    constants(DecimalType(20, 10), [Decimal("0.0000000001"), Decimal("1234567890.1234567890")]),
)
STRING_LEAVES = st.one_of(columns("s", "q", "st.y"), constants(STRING, TEXTS))
DATE_LEAVES = st.one_of(columns("dt"), constants(DATE, VALUES[DATE]))
TIME_LEAVES = st.one_of(columns("ts"), constants(TIMESTAMP, VALUES[TIMESTAMP]))
CONDITION_LEAVES = st.one_of(
    columns("b").map(lambda column: Comparison("=", column, Literal(True, BOOLEAN))),
    columns("i", "s", "dt", "ts", "d").map(IsNull),
)


def _more_conditions(inner, numbers, strings, dates):
    ops = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])
    return st.one_of(
        st.builds(Comparison, ops, numbers, numbers),
        st.builds(Comparison, ops, strings, strings),
        st.builds(Comparison, ops, dates, dates),
        st.builds(Like, strings, st.sampled_from(["a%", "%b%", "_", "%"])),
        inner.map(Not),
        st.tuples(inner, inner).map(And),
        st.tuples(inner, inner).map(Or),
    )


PATTERNS = [
    "yyyy-MM",
    "yyyy-MM-dd",
    "yyyy-MM-dd-HH",
    "yyyyMMdd'T'HHmmss.SSSSSS",
    "y yy yyy yyyyy yyyyyy",
    "E, EEEE d MMM; MMMM LLLL L",
    "D DDD Q qq QQQ",
    "h:mm a, k K kk KK S SSSSSSSSS",
    "d'' 'of' M, 'o''clock'",
]


def _level(below):
    numbers, strings, dates, times, conditions = below
    whole = st.sampled_from([Literal(n, INTEGER) for n in (0, 1, 2, -1, -2, 5)])
    units = ["year", "quarter", "month", "week", "day", "hour", "minute", "second", "mm", "YYYY", "millisecond"]
    more_numbers = st.one_of(
        numbers,
        st.builds(
            lambda op, a, b: Call(op, (a, b)), st.sampled_from(["+", "-", "*", "/", "%", "div"]), numbers, numbers
        ),
        st.builds(lambda op, a, b: Call(op, (a, b)), st.sampled_from(["+", "-", "*", "/"]), numbers, numbers),
        st.builds(lambda name, a: Call(name, (a,)), st.sampled_from(["-", "abs", "floor", "ceil", "round"]), numbers),
        call("round", numbers, whole),
        cast(numbers, NUMBERS),
        cast(strings, NUMBERS),
        chosen(numbers, conditions),
        call("length", strings),
        st.builds(
            lambda name, a: Call(name, (a,)),
            st.sampled_from(["year", "quarter", "month", "day", "dayofweek", "weekday", "dayofyear", "weekofyear"]),
            dates,
        ),
        st.builds(lambda name, a: Call(name, (a,)), st.sampled_from(["hour", "minute", "second", "year"]), times),
        call("datediff", dates, dates),
        st.builds(
            lambda name, a: Call(name, (a,)), st.sampled_from(["unix_micros", "unix_millis", "unix_seconds"]), times
        ),
        conditions.map(lambda found: Convert(Condition(found), INTEGER)),
    )
    more_strings = st.one_of(
        strings,
        call("concat", strings, strings),
        st.builds(
            lambda name, a: Call(name, (a,)), st.sampled_from(["upper", "lower", "trim", "ltrim", "rtrim"]), strings
        ),
        call("substring", strings, SMALL),
        call("substring", strings, SMALL, SMALL),
        call("lpad", strings, SMALL, constants(STRING, ["", "*", "é-"])),
        call("rpad", strings, SMALL),
        call("date_format", times, constants(STRING, PATTERNS)),
        call("from_unixtime", columns("l", "i"), constants(STRING, PATTERNS)),
        call("left", strings, SMALL),
        call("right", strings, SMALL),
        call("replace", strings, constants(STRING, ["a", "", "ab", "x"]), constants(STRING, ["", "yy"])),
        cast(st.one_of(columns("i", "l", "dec", "b"), dates, times), [STRING]),
        chosen(strings, conditions),
    )
    more_dates = st.one_of(
        dates,
        call("date_add", dates, SMALL),
        call("date_sub", dates, columns("by")),  # far enough, Spark's dates wrap round
        call("add_months", dates, SMALL),
        call("last_day", dates),
        call("trunc", dates, constants(STRING, ["year", "MM", "week", "quarter"])),
        cast(st.one_of(times, strings, columns("n")), [DATE]),
        st.builds(lambda op, a, b: Call(op, (a, b)), st.sampled_from(["+", "-"]), dates, SMALL),
        chosen(dates, conditions),
    )
    more_times = st.one_of(
        times,
        call("date_trunc", constants(STRING, units), times),
        call("timestamp_millis", columns("l", "i")),
        call("timestamp_micros", columns("l", "i")),
        cast(st.one_of(dates, columns("n"), constants(STRING, TEXTS)), [TIMESTAMP, TIMESTAMP_NTZ]),
        chosen(times, conditions),
    )
    return (
        more_numbers,
        more_strings,
        more_dates,
        more_times,
        st.one_of(conditions, _more_conditions(conditions, numbers, strings, dates)),
    )


_LEVEL = (NUMBER_LEAVES, STRING_LEAVES, DATE_LEAVES, TIME_LEAVES, CONDITION_LEAVES)
for _ in range(2):
    _LEVEL = _level(_LEVEL)

SEARCHED = [
    st.builds(
        lambda name, a, b: Call(name, (a, b)),
        st.sampled_from(["startswith", "endswith", "contains"]),
        _LEVEL[1],
        constants(STRING, ["", "a", "ab", "%"]),
    )
]
VALUE_TREES = st.one_of(*_LEVEL[:4], *_LEVEL[:1], *SEARCHED, _LEVEL[4].map(Condition))
CONDITIONS = _LEVEL[4]
