"""Random Delta tables: schemas of every type and data that sits on the edges, as Arrow values.

Nothing here knows refdelta or Spark, so a bug of either cannot hide in what it is tested with.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import string
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")

PRIMITIVES = [
    pa.string(),
    pa.int64(),
    pa.int32(),
    pa.int16(),
    pa.int8(),
    pa.float64(),
    pa.float32(),
    pa.bool_(),
    pa.binary(),
    pa.date32(),
    TIMESTAMP,
    TIMESTAMP_NTZ,
]

FIRST_DAY, LAST_DAY = dt.date(1, 1, 1), dt.date(9999, 12, 31)
FIRST_INSTANT, LAST_INSTANT = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)

# Names that some layer could trip over: case, keywords, dots, quotes, characters of other planes, URI syntax.
COLUMN_NAMES = [
    "id",
    "Name",
    "select",
    "a.b",
    "x-1",
    "_c",
    "größe",
    "日本",
    "😀",
    "a`b",
    "a'b",
    "a%20b",
    "a/b",
    "a:b",
    "a#b",
    "a+b?",
]

_LONG = "the first thirty-two characters are the prefix that statistics keep"
_TEXTS = [
    "",
    " ",
    "a",
    "A",
    "\x7f",
    "ÿ",
    "null",
    "__HIVE_DEFAULT_PARTITION__",
    "\uffff" * 40,
    "😀" * 40,
    "\U0010ffff" * 33,
    _LONG,
    _LONG[:32],
    _LONG[:31] + "\U0010ffffx",
    "a\tb\nc",
    "'\"`\\",
    "Z\u0301",
]


@dataclass(frozen=True)
class RandomTable:
    """One schema and several parts that all have it.

    Attributes:
        schema: the columns, partition columns among them, in any order.
        parts: the data of one commit each.
        partition_by: names of the partition columns.
    """

    schema: pa.Schema
    parts: list[pa.Table]
    partition_by: list[str]

    @property
    def whole(self) -> pa.Table:
        """What a reader sees after every part was appended."""
        return self.seen(*self.parts)

    def seen(self, *parts: pa.Table) -> pa.Table:
        """What a reader sees of some parts. PROTOCOL.md, "Partition Value Serialization": an empty value is a null."""
        whole = pa.concat_tables(parts) if parts else self.schema.empty_table()
        for name in self.partition_by:
            column = whole[name]
            if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
                nulled = pc.if_else(pc.equal(pc.binary_length(column), 0), pa.scalar(None, column.type), column)
                whole = whole.set_column(whole.column_names.index(name), self.schema.field(name), nulled)
        return whole


@st.composite
def decimals(draw: st.DrawFn) -> pa.DataType:
    precision = draw(st.sampled_from([1, 5, 9, 10, 18, 19, 38]) | st.integers(1, 38))
    return pa.decimal128(precision, draw(st.sampled_from([0, precision]) | st.integers(0, precision)))


def primitives() -> st.SearchStrategy[pa.DataType]:
    return st.sampled_from(PRIMITIVES) | decimals()


@st.composite
def structs(draw: st.DrawFn, children: st.SearchStrategy[pa.DataType]) -> pa.DataType:
    names = draw(st.lists(st.sampled_from(["a", "b", "C", "größe"]), min_size=1, max_size=3, unique=True))
    return pa.struct([pa.field(name, draw(children)) for name in names])


def lists(children: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return children.map(lambda child: pa.list_(pa.field("element", child)))


def maps(children: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    keys = st.sampled_from([pa.string(), pa.int64(), pa.int32(), pa.date32(), pa.decimal128(10, 2), TIMESTAMP])
    return st.builds(pa.map_, keys, children)


def data_types() -> st.SearchStrategy[pa.DataType]:
    """Any type of Delta, nested up to about three levels."""
    nested = st.recursive(primitives(), lambda inner: structs(inner) | lists(inner) | maps(inner), max_leaves=4)
    return primitives() | nested


def texts(*, longest: int = 60) -> st.SearchStrategy[str]:
    # NUL is left out: as a partition value no file system can carry it.
    anything = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=longest)
    return st.sampled_from([text[:longest] for text in _TEXTS]) | st.text(string.ascii_letters, max_size=4) | anything


def doubles(width: int) -> st.SearchStrategy[float]:
    edges = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, -1.5]
    return st.sampled_from(edges) | st.floats(width=width)  # type: ignore[arg-type]


def _integers(bits: int) -> st.SearchStrategy[int]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return st.sampled_from([low, high, 0, -1, 1]) | st.integers(low, high) | st.integers(-5, 5)


def _decimal_values(of: pa.DataType) -> st.SearchStrategy[decimal.Decimal]:
    edge = 10**of.precision - 1
    unscaled = st.sampled_from([0, 1, -1, edge, -edge]) | st.integers(-edge, edge)
    return unscaled.map(lambda n: decimal.Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -of.scale)))


def _instants() -> st.SearchStrategy[dt.datetime]:
    edges = [
        FIRST_INSTANT,
        LAST_INSTANT,
        dt.datetime(1582, 10, 4, 23, 59, 59, 999999),
        dt.datetime(1582, 10, 15),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
        dt.datetime(1970, 1, 1),
        dt.datetime(2024, 2, 29, 12, 0, 0, 1),
        dt.datetime(2024, 2, 29, 12, 0, 0, 999),
    ]
    return st.sampled_from(edges) | st.datetimes(FIRST_INSTANT, LAST_INSTANT)


def _days() -> st.SearchStrategy[dt.date]:
    edges = [
        FIRST_DAY,
        LAST_DAY,
        dt.date(1582, 10, 4),
        dt.date(1582, 10, 15),
        dt.date(1969, 12, 31),
        dt.date(1970, 1, 1),
    ]
    return st.sampled_from(edges) | st.dates(FIRST_DAY, LAST_DAY)


def values(of: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of one type, none of them null at the top; inside nested ones nulls appear."""
    if pa.types.is_string(of):
        return texts()
    if pa.types.is_binary(of):
        return st.sampled_from([b"", b"\0", b"\xff" * 40]) | st.binary(max_size=40)
    if pa.types.is_boolean(of):
        return st.booleans()
    if pa.types.is_integer(of):
        return _integers(of.bit_width)
    if pa.types.is_floating(of):
        return doubles(of.bit_width)
    if pa.types.is_decimal(of):
        return _decimal_values(of)
    if pa.types.is_date(of):
        return _days()
    if pa.types.is_timestamp(of):
        return _instants().map(lambda at: at.replace(tzinfo=dt.UTC)) if of.tz else _instants()
    return _nested_values(of)


def _nested_values(of: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(of):
        return st.fixed_dictionaries({f.name: maybe(values(f.type)) if f.nullable else values(f.type) for f in of})
    if pa.types.is_map(of):
        return st.dictionaries(values(of.key_type), maybe(values(of.item_type)), max_size=3).map(
            lambda pairs: list(pairs.items())
        )
    return st.lists(maybe(values(of.value_type)), max_size=3)


def maybe(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A null now and then."""
    return st.none() | inner | inner | inner


def partition_values(of: pa.DataType) -> st.SearchStrategy[Any]:
    """Few different values, so that partitions have several rows, and short ones: they become names of folders."""
    if pa.types.is_string(of):
        awkward = [
            "",
            " ",
            "a b",
            "a/b",
            "..",
            "x=1",
            "100%",
            "a%20b",
            "#?&",
            "a:b",
            "日本",
            "😀",
            "tab\tnew\nline",
            "'\"\\",
            "{}[]^",
            "é",
            "e\u0301",
            "\x7f",
        ]
        return st.sampled_from(awkward) | texts(longest=12)
    if pa.types.is_binary(of):  # as text in the log; beyond ASCII the specification and Spark read it differently
        return st.text(string.printable, max_size=6).map(str.encode)
    return values(of)


@st.composite
def tables(
    draw: st.DrawFn,
    *,
    parts: tuple[int, int] = (1, 3),
    partitions: tuple[int, int] = (0, 2),
    types: st.SearchStrategy[pa.DataType] | None = None,
    not_null: bool = True,
    columns: int = 7,
    rows: int = 8,
) -> RandomTable:
    """A schema with data for a few commits.

    Args:
        draw: hypothesis's own.
        parts: the fewest and the most commits.
        partitions: the fewest and the most partition columns.
        types: the types of the other columns; any by default.
        not_null: whether columns may refuse nulls.
        columns: the most columns outside the partition columns; there is at least one.
        rows: the most rows of a part.
    """
    keys = draw(st.integers(*partitions))
    names = draw(st.lists(st.sampled_from(COLUMN_NAMES), min_size=keys + 1, max_size=keys + columns, unique=True))
    partition_by = names[:keys]
    fields = []
    for name in draw(st.permutations(names)):
        of = draw(primitives() if name in partition_by else data_types() if types is None else types)
        nullable = not not_null or name in partition_by or draw(st.sampled_from([True, True, False]))
        fields.append(pa.field(name, of, nullable))
    schema = pa.schema(fields)
    data = [_part(draw, schema, partition_by, rows) for _ in range(draw(st.integers(*parts)))]
    return RandomTable(schema, data, partition_by)


def _part(draw: st.DrawFn, schema: pa.Schema, partition_by: list[str], most: int) -> pa.Table:
    count = draw(st.integers(0, most) | st.integers(1, most))
    arrays = []
    for field in schema:
        inner = values(field.type)
        if field.name in partition_by:
            inner = st.sampled_from(draw(st.lists(maybe(partition_values(field.type)), min_size=1, max_size=3)))
        elif field.nullable:
            inner = maybe(inner)
        arrays.append(pa.array(draw(st.lists(inner, min_size=count, max_size=count)), field.type))
    return pa.Table.from_arrays(arrays, schema=schema) if arrays else pa.table({})
