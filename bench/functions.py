"""The gain of the columns of each function of SQL over its definition.

    python bench/functions.py [--rows 100000] [--below 3] [NAME ...]

times a call of every function that has columns of its own, as they are and by the definition, which is applied once to
each distinct value of one column, or to each row of several. ``many`` are columns whose values are mostly distinct,
``few`` have 50 distinct ones. The figures are milliseconds of process time of one run each, after one of a hundredth of
the rows; the gain is their quotient. Columns that gain less than three times for many distinct values are not worth
their code, and are not kept: their function is computed by the definition alone.

Functions with regular expressions are not measured: one function is both definition and columns.

With ``--below`` only the functions are shown whose gain for many values is less than that.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from refdelta.arrow.partition import from_internal
from refdelta.arrow.schema import to_arrow
from refdelta.expressions import evaluate
from refdelta.expressions.expression import Call, Value, walk
from refdelta.expressions.functions import FUNCTIONS
from refdelta.expressions.library.regular_expressions import REGULAR_EXPRESSIONS
from refdelta.expressions.sql import parse_expression
from refdelta.table.types import (
    BINARY,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)

DEC, DEC_UNIT = DecimalType(12, 2), Decimal("0.01")
SCHEMA = StructType(
    tuple(
        StructField(name, kind)
        for name, kind in {
            "i": INTEGER,
            "j": INTEGER,
            "l": LONG,
            "k": LONG,
            "d": DOUBLE,
            "g": DOUBLE,
            "dec": DEC,
            "s": STRING,
            "t": STRING,
            "bin": BINARY,
            "dt": DATE,
            "du": DATE,
            "ts": TIMESTAMP,
            "tt": TIMESTAMP,
            "ai": ArrayType(INTEGER),
            "aj": ArrayType(INTEGER),
            "xs": ArrayType(STRING),
            "aa": ArrayType(ArrayType(INTEGER)),
            "m": MapType(STRING, INTEGER),
        }.items()
    )
)

_DOUBLES = (
    "sqrt cbrt exp expm1 ln log2 log10 log1p sin cos tan cot sec csc atan sinh cosh tanh degrees radians rint sign"
)
_DATES = "year quarter month day dayofweek weekday dayofyear weekofyear last_day dayname monthname unix_date"
_TIMES = "hour minute second unix_micros unix_millis unix_seconds"
_TEXTS = "upper lower trim ltrim rtrim length reverse octet_length bit_length"
_ARRAYS = "size array_distinct array_min array_max sort_array array_sort array_compact reverse"
CALLS = [
    *("i + j", "d + g", "dec + dec", "l - k", "-l", "i * 3", "dec * dec", "d / g", "dec / dec", "i % j", "dec % dec"),
    *("i div j", "abs(l)", "abs(d)", "round(d, 2)", "round(dec, 1)", "round(l, -2)", "floor(d)", "ceil(dec)"),
    *("greatest(i, j)", "greatest(s, t)", "least(d, g)"),
    *(f"{name}(d)" for name in _DOUBLES.split()),
    *("asin(d / 1e9)", "acos(d / 1e9)", "log(d, g)", "power(d, 0.5)", "atan2(d, g)", "hypot(d, g)", "nanvl(d, g)"),
    *("pmod(i, j)", "i & j", "i | j", "i ^ j", "~l", "shiftleft(i, 3)", "shiftright(l, 3)", "shiftrightunsigned(l, 3)"),
    *("bit_count(l)", "bit_get(l, 3)", "try_add(i, j)", "try_subtract(l, k)", "try_multiply(i, j)", "try_divide(d, g)"),
    *("try_mod(i, j)", "try_add(dec, dec)"),
    *(f"{name}(s)" for name in _TEXTS.split()),
    *("concat(s, t)", "concat(s, '-', t)", "substring(s, 2, 3)", "left(s, 3)", "right(s, 3)", "replace(s, 'a', 'bc')"),
    *("lpad(s, 12, '-')", "rpad(s, 12)", "startswith(s, 'a')", "endswith(s, 'a')", "contains(s, 'an')", "repeat(s, 2)"),
    *("instr(s, 'n')", "locate('n', s)", "split_part(s, ' ', 2)", "concat_ws('-', s, t)", "elt(2, s, t)"),
    *("btrim(s, 'ab')", "ltrim('ab', s)", "rtrim('ab', s)", "encode(s, 'utf-8')"),
    *(f"{name}(dt)" for name in _DATES.split()),
    *(f"{name}(ts)" for name in _TIMES.split()),
    *("date_add(dt, i % 100)", "date_sub(dt, 3)", "add_months(dt, i % 10)", "datediff(dt, du)", "trunc(dt, 'month')"),
    *("date_format(ts, 'yyyy-MM-dd HH:mm:ss')", "from_unixtime(l)", "timestamp_micros(l)", "timestamp_millis(l)"),
    *("date_trunc('hour', ts)", "date_trunc('month', ts)", "extract(YEAROFWEEK FROM dt)", "extract(DOW_ISO FROM dt)"),
    *("extract(SECOND FROM ts)", "next_day(dt, 'Mon')", "months_between(ts, tt)", "date_from_unix_date(i)"),
    *(
        "timestamp_seconds(l)",
        "make_date(2000 + i % 30, 1 + i % 12, 1)",
        "make_timestamp(2000, 1, 2, i % 24, j % 60, 6.5)",
    ),
    *("make_timestamp_ntz(2000, 1, 2, i % 24, j % 60, 6.5)", "ts + make_dt_interval(i)", "ts - INTERVAL 1 DAY"),
    *("dt + make_ym_interval(0, i)", "dt - INTERVAL 1 MONTH", "ts - tt", "ts + (tt - ts)"),
    *("ts + INTERVAL 1 DAY * i", "ts + (INTERVAL 1 DAY * i + INTERVAL 1 HOUR)"),
    *("ts + (INTERVAL 1 DAY * i - INTERVAL 1 HOUR)",),
    *(f"{name}(ai)" for name in _ARRAYS.split()),
    *("array(i, j)", "map(s, i)", "named_struct('x', i, 'y', s)", "named_struct('x', i).x", "ai[0]", "m['a']"),
    *("element_at(ai, 1)", "try_element_at(ai, 3)", "get(ai, 1)", "array_contains(ai, 1)", "array_position(ai, 1)"),
    *("array_remove(ai, 1)", "array_join(xs, '-')", "arrays_overlap(ai, aj)", "slice(ai, 2, 2)", "flatten(aa)"),
    *("concat(ai, aj)", "map_keys(m)", "map_values(m)", "map_contains_key(m, 'a')", "array_max(xs)", "sort_array(xs)"),
]


MEASURED = {name for name, function in FUNCTIONS.items() if function.columns is not None} - {*REGULAR_EXPRESSIONS}


def values(kind: Any, chosen: random.Random) -> Any:
    """A random internal value, positive where it is a number."""
    match kind:
        case ArrayType():
            return [values(kind.element, chosen) for _ in range(chosen.choice([1, 2, 3, 5]))]
        case MapType():
            return [(key, values(kind.value, chosen)) for key in chosen.sample(["a", "b", "c", "d"], 2)]
    if kind == INTEGER:
        return chosen.randrange(1, 2**20)
    if kind == LONG:
        return chosen.randrange(1, 2**40)
    if kind == DOUBLE:
        return chosen.uniform(1, 700)
    if kind == DEC:
        return DEC_UNIT * chosen.randrange(1, 10**8)
    if kind == STRING:
        return "".join(chosen.choices("abcdefgn", k=chosen.randrange(3, 8))) + f" {chosen.randrange(10**6)}"
    if kind == BINARY:
        return chosen.randbytes(12)
    return chosen.randrange(20_000) if kind == DATE else chosen.randrange(2**50)


def batch(rows: int, distinct: int | None, seed: int) -> pa.RecordBatch:
    """Rows of random values, of which at most so many are distinct."""
    chosen = random.Random(seed)
    arrays = []
    for field in SCHEMA:
        found = [values(field.type, chosen) for _ in range(distinct or rows)]
        arrays.append(
            from_internal(found if distinct is None else [*found * (rows // distinct + 1)][:rows], field.type)
        )
    return pa.RecordBatch.from_arrays(arrays, schema=to_arrow(SCHEMA))


def seconds(function: Callable[..., Any], *args: Any) -> float:
    start = time.process_time()
    function(*args)
    return time.process_time() - start


def measured(value: Value, rows: pa.RecordBatch, names: set[str]) -> list[tuple[str, float, float]]:
    """Some functions of an expression: the seconds of their columns, and of the definition."""
    found = []
    for node in walk(value):
        if isinstance(node, Call) and node.name in names:
            args = evaluate.arguments(node, rows)
            short = [arg.slice(0, len(arg) // 100) for arg in args]
            for function in (evaluate.call, evaluate.by_value):
                function(node, short)
            found.append((node.name, seconds(evaluate.call, node, args), seconds(evaluate.by_value, node, args)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--below", type=float)
    chosen = parser.parse_args()
    many, few = batch(chosen.rows, None, 1), batch(chosen.rows, 50, 2)
    titles = "".join(f"{f'{kind}: columns':>14}{'values':>9}{'gain':>7}" for kind in ("many", "few"))
    print(f"{'function':22}{'call':40}{titles}")
    names, seen = set(chosen.names) or MEASURED, set()
    for text in CALLS:
        value = parse_expression(text, SCHEMA)
        for one, other in zip(measured(value, many, names), measured(value, few, names), strict=True):
            name = one[0]
            seen.add(name)
            gain = one[2] / max(one[1], 1e-6)
            if chosen.below is not None and gain >= chosen.below:
                continue
            figures = "".join(
                f"{columns * 1e3:>14.1f}{rows * 1e3:>9.1f}{rows / max(columns, 1e-6):>7.1f}"
                for _, columns, rows in (one, other)
            )
            print(f"{name:22}{text[:39]:40}{figures}", flush=True)
    if left := names - seen:
        print(f"not measured: {', '.join(sorted(left))}")


if __name__ == "__main__":
    main()
