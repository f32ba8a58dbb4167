"""Random rows and random predicates over one schema that has a column of every type that can be compared."""

from __future__ import annotations

import math
import struct
from decimal import Decimal

import msgspec
import pyarrow as pa
from hypothesis import strategies as st

from refdelta.arrow.partition import from_internal
from refdelta.arrow.schema import to_arrow
from refdelta.expressions.expression import And, BoolLiteral, Column, Comparison, In, IsNull, Like, Literal, Not, Or
from refdelta.table.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DecimalType,
    StructField,
    StructType,
)

DEC = DecimalType(6, 2)
TINY = "\U0001f680"
LONG_TEXT = "x" * 31


def schema_of(**columns):
    return StructType(tuple(StructField(name, kind) for name, kind in columns.items()))


INNER = schema_of(x=LONG, y=STRING)
SCHEMA = schema_of(
    by=BYTE,
    i=INTEGER,
    l=LONG,
    f=FLOAT,
    d=DOUBLE,
    s=STRING,
    dec=DEC,
    dt=DATE,
    ts=TIMESTAMP,
    n=TIMESTAMP_NTZ,
    b=BOOLEAN,
    bin=BINARY,
    st=INNER,
    p=INTEGER,
    q=STRING,
)
PARTITIONS = ["p", "q"]


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


_FLOATS = [0.0, -0.0, 0.1, 1.0, -1.5, 2.0, 1e10, math.inf, -math.inf, math.nan]
_STRINGS = [
    "",
    "a",
    "ab",
    "b",
    "a%",
    "a_b",
    "\u00e4",
    "\ufffd",
    TINY,
    LONG_TEXT + "a",
    LONG_TEXT + "ab",
    LONG_TEXT + "a" + TINY,
    LONG_TEXT + "b" * 9,
    "a\nb",
]
_MICROS = [
    0,
    1,
    999,
    1_000,
    1_001,
    -1,
    -1_000,
    -86_400_000_000,
    86_400_000_000,
    1_600_000_000_123_456,
    -(2**55),
    253_402_300_799_999_999,
]

VALUES = {
    BYTE: [0, 1, 2, -128, 127],
    INTEGER: [0, 1, 2, 3, -1, 2**31 - 1, -(2**31)],
    LONG: [0, 1, 2, 3, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)],
    FLOAT: [float32(v) for v in _FLOATS],
    DOUBLE: _FLOATS,
    STRING: _STRINGS,
    DEC: [Decimal(v) for v in ("0.00", "1.00", "1.50", "-2.25", "9999.99", "-9999.99")],
    DATE: [0, 1, -1, 18_262, -719_162, 2_932_896],
    TIMESTAMP: _MICROS,
    TIMESTAMP_NTZ: _MICROS,
    BOOLEAN: [True, False],
    BINARY: [b"", b"a", b"\x00", b"\xff", b"ab"],
}

# Literals of other types that Spark compares with a column: they widen one side or both.
MIXED = {
    BYTE: [(300, INTEGER), (Decimal("1.5"), DecimalType(2, 1)), (1.0, DOUBLE), ("1", STRING)],
    INTEGER: [
        (2**40, LONG),
        (Decimal("1.5"), DecimalType(2, 1)),
        (Decimal("2.0"), DecimalType(2, 1)),
        (math.nan, DOUBLE),
        ("2", STRING),
    ],
    LONG: [(1, INTEGER), (Decimal("1.5"), DecimalType(2, 1)), (2.0**53, DOUBLE), ("-1", STRING)],
    FLOAT: [(1, INTEGER), (0.1, DOUBLE), (Decimal("0.1"), DecimalType(1, 1)), ("0.1", STRING)],
    DOUBLE: [(1, INTEGER), (Decimal("0.1"), DecimalType(1, 1)), ("nan", STRING), (2**53 + 1, LONG)],
    STRING: [],
    DEC: [(1, INTEGER), (Decimal("1.505"), DecimalType(4, 3)), (1.5, DOUBLE), (10**12, LONG), ("1.5", STRING)],
    DATE: [("2020-01-01", STRING), (0, TIMESTAMP), (1, TIMESTAMP_NTZ)],
    TIMESTAMP: [("1970-01-01T00:00:00.001Z", STRING), (0, DATE), (1_000, TIMESTAMP_NTZ)],
    TIMESTAMP_NTZ: [("1970-01-01 00:00:00.001", STRING), (1, DATE), (1_000, TIMESTAMP)],
    BOOLEAN: [("true", STRING)],
    BINARY: [("a", STRING)],
}

COLUMNS = [((f.name,), f.type) for f in SCHEMA if f.type != INNER] + [(("st", f.name), f.type) for f in INNER]
PAIRS = [
    (left, right)
    for left, kind in COLUMNS
    for right, other in COLUMNS
    if kind == other
    or {kind, other} <= {BYTE, INTEGER, LONG, DEC}
    or {kind, other} <= {FLOAT, DOUBLE, LONG, DEC}
    or {kind, other} <= {DATE, TIMESTAMP, TIMESTAMP_NTZ}
]


def maybe(strategy):
    return st.one_of(st.none(), strategy, strategy, strategy)


def literals(kind):
    own = st.sampled_from([Literal(value, kind) for value in [*VALUES[kind], None]])
    mixed = [Literal(value, other) for value, other in MIXED[kind]]
    return st.one_of(own, own, st.sampled_from(mixed)) if mixed else own


OPS = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])


@st.composite
def atoms(draw):
    path, kind = draw(st.sampled_from(COLUMNS))
    column = Column(path)
    match draw(st.integers(0, 9)):
        case 0:
            return IsNull(Column(path[:1]) if draw(st.booleans()) else column)
        case 1:
            return In(column, tuple(draw(st.lists(literals(kind), max_size=4))))
        case 2:
            left, right = draw(st.sampled_from(PAIRS))
            return Comparison(draw(OPS), Column(left), Column(right))
        case 3:
            column = Column(draw(st.sampled_from([("s",), ("st", "y"), ("q",)])))
            pattern = draw(
                st.sampled_from(
                    [
                        "a%",
                        "%",
                        "_",
                        "a",
                        "ab%b",
                        "a\\%",
                        "a\\_b",
                        LONG_TEXT + "a%",
                        TINY + "%",
                        "",
                        "\u00e4_%",
                        "%a",
                        "a_b",
                    ]
                )
            )
            return Like(column, pattern)
        case 4:
            return BoolLiteral(draw(st.sampled_from([True, False, None])))
        case 5:
            return Comparison(draw(OPS), draw(literals(kind)), column)
        case _:
            return Comparison(draw(OPS), column, draw(literals(kind)))


PREDICATES = st.recursive(
    atoms(),
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts))),
    ),
    max_leaves=6,
)


def sayable(predicate):
    """The predicate without lists of no items, which Spark's grammar does not have."""
    match predicate:
        case And(children) | Or(children):
            return msgspec.structs.replace(predicate, children=tuple(map(sayable, children)))
        case Not(child):
            return Not(sayable(child))
        case In(child, ()):
            return In(child, (Literal(None, LONG),))
    return predicate


def rows(schema=SCHEMA):
    """Rows as internal values by column; each value is drawn from few, so that comparisons meet."""
    return st.fixed_dictionaries(
        {
            f.name: maybe(rows(f.type) if isinstance(f.type, StructType) else st.sampled_from(VALUES[f.type]))
            for f in schema
        }
    )


def column_array(values, kind):
    if isinstance(kind, StructType):
        children = [column_array([None if v is None else v[f.name] for v in values], f.type) for f in kind]
        mask = pa.array([v is None for v in values], pa.bool_())
        return pa.StructArray.from_arrays(children, fields=list(to_arrow(kind)), mask=mask)
    return from_internal(values, kind)


def batch_of(found, schema=SCHEMA):
    columns = [column_array([row[f.name] for row in found], f.type) for f in schema]
    return pa.record_batch(columns, schema=to_arrow(schema))
