"""Random data files with statistics as other writers leave them: true values, each with the roundings that were seen.

What was seen is in ``spec_notes/other_writers.md``. A rounding is switched on by its name, so that a search can say
which of them it takes to lose a row.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import random
import struct
from collections.abc import Sequence
from decimal import Decimal, localcontext
from typing import Any, Self

import pyarrow as pa

DOUBLES = "decimals through a double"
NAN = "NaN left out"
OFFSETS = "zone offsets cut to minutes"
LATE = "a minimum of timestamps a few milliseconds late"
SECONDS = "times before 1970 a second late"
CUT = "strings cut"
REPLACED = "strings cut, with U+FFFD"
SATURATED = "whole decimals beyond 64 bits saturated"
COUNTS = "counts that contradict the bounds"
NEGATIVE = "negative counts"
ROUNDINGS = (DOUBLES, NAN, OFFSETS, LATE, SECONDS, CUT, REPLACED, SATURATED, COUNTS, NEGATIVE)

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("m", pa.decimal128(38, 18)),
        ("c", pa.decimal128(18, 2)),
        ("e", pa.decimal128(5, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("w", pa.timestamp("us")),
        ("s", pa.string()),
        ("st", pa.struct([("d", pa.float64()), ("m", pa.decimal128(38, 0))])),
    ]
)
KINDS = {
    "n": pa.int64(),
    "f": pa.float32(),
    "d": pa.float64(),
    "m": pa.decimal128(38, 18),
    "c": pa.decimal128(18, 2),
    "e": pa.decimal128(5, 2),
    "at": pa.timestamp("us", "UTC"),
    "w": pa.timestamp("us"),
    "s": pa.string(),
    "st.d": pa.float64(),
    "st.m": pa.decimal128(38, 0),
}
TEXTS = ["", "a", *("zz" * 20, "b" * 31, "b" * 32, "b" * 33), *("\U0010ffff" * 40, "b" + "\U0001f680" * 40)]
DECIMALS, FLOATS = ("m", "c", "st.m"), ("f", "d", "st.d")
TOUCHED = {
    DOUBLES: DECIMALS,
    NAN: FLOATS,
    OFFSETS: ("at",),
    LATE: ("at", "w"),
    SECONDS: ("at", "w"),
    CUT: ("s",),
    REPLACED: ("s",),
    SATURATED: ("st.m",),
    COUNTS: tuple(KINDS),
    NEGATIVE: tuple(KINDS),
}
"""The columns whose statistics a rounding changes."""

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
Row = dict[str, Any]


def _float32(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


def value_of(kind: pa.DataType, draw: random.Random) -> Any:
    """A value of a type. Decimals are integers in units of their last digit, timestamps microseconds."""
    if pa.types.is_decimal(kind):
        digits = draw.choice([kind.precision, draw.randint(1, kind.precision)])
        found = draw.choice([10**digits - 1, draw.randrange(10**digits)])
        return draw.choice([found, -found])
    if pa.types.is_floating(kind):
        found = draw.choice([0.0, -0.0, 1.0, -1.5, 0.1, 2.0, 7.0, 1e30, math.inf, -math.inf, math.nan, math.nan])
        return _float32(found) if kind == pa.float32() else found
    if pa.types.is_timestamp(kind):
        day = draw.choice([-3_786_825_600, -3_786_825_600, 1_684_886_485, 0])
        return day * 1_000_000 + draw.choice([0, 10_301, 14_302, 999, -1, draw.randrange(90_000_000)])
    if kind == pa.string():
        return draw.choice(
            [
                "",
                "a",
                "zz" * 20,
                "b" * 31,
                "b" * 32,
                "b" * 33,
                "b" * 40 + draw.choice("ab"),
                "\U0010ffff" * 40,
                "b" + "\U0001f680" * 40,
            ]
        )
    return draw.randint(-3, 3)


def rows_of(draw: random.Random) -> list[Row]:
    """The rows of a file: by column, those of the struct by ``st.d`` and ``st.m``."""
    found: list[Row] = []
    for _ in range(draw.randint(1, 3)):
        row = {name: value_of(kind, draw) if draw.random() < 0.9 else None for name, kind in KINDS.items()}
        if found and draw.random() < 0.6:
            row |= {name: found[0][name] for name in KINDS if draw.random() < 0.5}
        found.append(row)
    return found


def arrow(rows: list[Row]) -> pa.Table:
    """The rows as a table of :data:`SCHEMA`."""
    columns = {name: _array([row[name] for row in rows], kind) for name, kind in KINDS.items()}
    inner = pa.StructArray.from_arrays([columns.pop("st.d"), columns.pop("st.m")], fields=list(SCHEMA.field("st").type))
    return pa.table([*columns.values(), inner], schema=SCHEMA)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind):
        return pa.array([None if v is None else decimal_of(v, kind) for v in values], kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


def decimal_of(unscaled: int, kind: pa.DataType) -> Decimal:
    with localcontext(prec=80):
        return Decimal(unscaled).scaleb(-kind.scale)


# --- statistics --------------------------------------------------------------------------------------------------


def stats_of(rows: list[Row], roundings: frozenset[str], draw: random.Random) -> dict[str, Any]:
    """The statistics of rows as a writer with these roundings leaves them."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for name, kind in KINDS.items():
        present = [row[name] for row in rows if row[name] is not None]
        _put(nulls, name, len(rows) - len(present))
        if pa.types.is_floating(kind) and NAN in roundings:
            present = [value for value in present if not math.isnan(value)]
        if not present:
            continue
        least, most = min(present, key=_order), max(present, key=_order)
        _put(low, name, bound_of(least, kind, roundings, draw, upper=False))
        _put(high, name, bound_of(most, kind, roundings, draw, upper=True))
        if COUNTS in roundings and draw.random() < 0.3:
            _put(nulls, name, len(rows))
    found = {"numRecords": len(rows), "minValues": low, "maxValues": high, "nullCount": nulls}
    if NEGATIVE in roundings and draw.random() < 0.3:
        found |= {"numRecords": -1, "nullCount": _negative(nulls)}
    return found


def _negative(counts: dict[str, Any]) -> dict[str, Any]:
    return {name: _negative(value) if isinstance(value, dict) else -1 for name, value in counts.items()}


def _order(value: Any) -> Any:
    return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value)


def _put(tree: dict[str, Any], name: str, value: Any) -> None:
    *parents, last = name.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
    if value is not None:
        tree[last] = value


def bound_of(value: Any, kind: pa.DataType, roundings: frozenset[str], draw: random.Random, *, upper: bool) -> Any:
    """A bound in the JSON of statistics."""
    if pa.types.is_decimal(kind):
        if kind.scale == 0 and SATURATED in roundings:
            return max(-(2**63), min(2**63 - 1, value))
        # As deltalake: the integer becomes a double, which is divided by a power of ten.
        return float(value) / 10.0**kind.scale if DOUBLES in roundings else Number(decimal_of(value, kind))
    if pa.types.is_floating(kind):
        text = {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN" if math.isnan(value) else None)
        return value if text is None else text
    if pa.types.is_timestamp(kind):
        return _time(value, roundings, draw, zone=kind.tz is not None, upper=upper)
    if kind == pa.string() and REPLACED in roundings and upper:
        # As older delta-spark: 32 UTF-16 units, where half of a character becomes "?".
        units = value.encode("utf-16-le")
        return (
            value if len(units) <= 64 else units[:64].decode("utf-16-le", "replace").replace("\ufffd", "?") + "\ufffd"
        )
    if kind == pa.string() and (CUT in roundings or REPLACED in roundings):
        return value[:32]
    return value if kind != pa.string() or len(value) <= 32 or not upper else None


def _time(value: int, roundings: frozenset[str], draw: random.Random, *, zone: bool, upper: bool) -> str:
    if LATE in roundings and not upper:
        value += draw.choice([0, 3_700])
    value = value // 1000 * 1000
    if SECONDS in roundings and value < 0 and value % 1_000_000:
        value += 1_000_000
    offset = draw.choice([0, 4_332]) if OFFSETS in roundings and zone else 0  # 01:12:12, Stockholm's until 1879
    local = EPOCH.replace(tzinfo=None) + dt.timedelta(microseconds=value + offset * 1_000_000)
    suffix = "" if not zone else "Z" if not offset else f"+{offset // 3600:02}:{offset // 60 % 60:02}"
    return local.isoformat(timespec="milliseconds") + suffix


class Number(float):
    """A decimal that is written into JSON as it is."""

    def __new__(cls, value: Decimal) -> Self:
        self = super().__new__(cls, value)
        self.text = f"{value:f}"
        return self

    def __repr__(self) -> str:
        return self.text


def text_of(stats: dict[str, Any]) -> str:
    """The JSON of statistics."""
    return _Encoder().encode(stats)


class _Encoder(json.JSONEncoder):
    def encode(self, o: Any) -> str:
        if isinstance(o, dict):
            return "{" + ",".join(f"{json.dumps(name)}:{self.encode(value)}" for name, value in o.items()) + "}"
        return o.text if isinstance(o, Number) else super().encode(o)


# --- predicates --------------------------------------------------------------------------------------------------


def literal(value: Any, kind: pa.DataType) -> str:
    """A constant in SQL."""
    if pa.types.is_decimal(kind):
        return f"{decimal_of(value, kind):f}BD"
    if pa.types.is_floating(kind):
        name = "float" if kind == pa.float32() else "double"
        text = "NaN" if math.isnan(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, value)
        return f"{name}('{text}')"
    if pa.types.is_timestamp(kind):
        name = "timestamp_ntz" if kind.tz is None else "timestamp"
        start = EPOCH.replace(tzinfo=None) if kind.tz is None else EPOCH
        return f"{name}'{(start + dt.timedelta(microseconds=value)).isoformat()}'"
    return f"'{value}'" if kind == pa.string() else str(value)


def atom(rows: list[Row], draw: random.Random, names: Sequence[str] = tuple(KINDS)) -> str:
    """A condition on one of some columns, near to the values of the rows."""
    name = draw.choice(names)
    kind = KINDS[name]
    present = [row[name] for row in rows if row[name] is not None] or [value_of(kind, draw)]

    def constant() -> str:
        value = draw.choice(present) if draw.random() < 0.7 else value_of(kind, draw)
        if isinstance(value, int) and draw.random() < 0.3:
            value += draw.choice([-1, 1])
        if pa.types.is_decimal(kind):
            value = max(-(10**kind.precision) + 1, min(10**kind.precision - 1, value))
        return literal(value, kind)

    match draw.randrange(8):
        case 0:
            return f"{name} in ({constant()}, {constant()})"
        case 1:
            return f"{name} not in ({constant()})"
        case 2:
            return f"{name} is {draw.choice(['', 'not '])}null"
        case 3:
            return f"{name} between {constant()} and {constant()}"
    return f"{name} {draw.choice(['=', '<>', '<', '<=', '>', '>=', '<=>'])} {constant()}"


def predicate(rows: list[Row], draw: random.Random, names: Sequence[str] = tuple(KINDS)) -> str:
    """One to three conditions."""
    found = atom(rows, draw, names)
    for _ in range(draw.choice([0, 0, 1, 2])):
        found = f"({found}) {draw.choice(['and', 'or'])} ({atom(rows, draw, names)})"
    return f"not ({found})" if draw.random() < 0.2 else found
