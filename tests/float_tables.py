"""Tables of floating-point numbers, predicates over them, and other readers of their files, each with and without the
pruning that it does by the footers of files.

Values are NaN, both zeros, the infinities, the largest and the smallest numbers, and a few between. A part of the rows
draws them from few values, so that bounds exclude something.
"""

from __future__ import annotations

import functools
import math
import operator
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from hypothesis import strategies as st

from predicate_strategies import schema_of
from refdelta import DeltaTable, write_deltalake
from refdelta.arrow.schema import to_arrow
from refdelta.engine.parquet.file_options import FileOptions, files_written_with
from refdelta.expressions.evaluate import row_mask
from refdelta.expressions.expression import And, Column, Comparison, In, IsNull, Literal, Not, Or
from refdelta.table.types import DOUBLE, FLOAT, LONG

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from refdelta.expressions.expression import Predicate

NAN, INFINITY = math.nan, math.inf


def _float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


LARGEST = {DOUBLE: 1.7976931348623157e308, FLOAT: 3.4028234663852886e38}
SMALLEST = {DOUBLE: 5e-324, FLOAT: 1.401298464324817e-45}
VALUES = {
    kind: [NAN, 0.0, -0.0, 1.0, -1.5, _float32(0.1) if kind == FLOAT else 0.1, INFINITY, -INFINITY]
    + [sign * extreme for extreme in (LARGEST[kind], SMALLEST[kind]) for sign in (1, -1)]
    for kind in (DOUBLE, FLOAT)
}
INNER = schema_of(d=DOUBLE, f=FLOAT)
SCHEMA = schema_of(n=LONG, d=DOUBLE, f=FLOAT, s=INNER)
COLUMNS = {("d",): DOUBLE, ("f",): FLOAT, ("s", "d"): DOUBLE, ("s", "f"): FLOAT}
#: The schema of the files, with columns that predicates do not name.
ARROW = pa.schema(
    [
        *to_arrow(SCHEMA),
        ("list", pa.list_(pa.float64())),
        ("map", pa.map_(pa.string(), pa.float32())),
        ("deep", pa.list_(pa.struct([("x", pa.float64()), ("y", pa.list_(pa.float32()))]))),
    ]
)

# --- rows --------------------------------------------------------------------------------------------------------


@st.composite
def parts(draw: st.DrawFn) -> pa.Table:
    """Up to 16 rows, of which each column has few distinct values."""
    count = draw(st.integers(1, 16))

    def column(kind: Any) -> st.SearchStrategy[list[float | None]]:
        few = st.lists(st.sampled_from([*VALUES[kind], None]), min_size=1, max_size=3)
        return few.flatmap(lambda some: st.lists(st.sampled_from(some), min_size=count, max_size=count))

    found = {path: draw(column(kind)) for path, kind in COLUMNS.items()}
    d, f = found["d",], found["f",]
    return pa.table(
        {
            "n": pa.array(range(count), pa.int64()),
            "d": d,
            "f": f,
            "s": [
                None if left is None and right is None else {"d": left, "f": right}
                for left, right in zip(found["s", "d"], found["s", "f"], strict=True)
            ],
            "list": [[value, 1.0] if n % 3 else None for n, value in enumerate(d)],
            "map": [[("a", value), ("b", 0.0)] if n % 4 else [] for n, value in enumerate(f)],
            "deep": [[{"x": value, "y": [value, None]}] for value in f],
        },
        ARROW,
    )


def tables() -> st.SearchStrategy[list[pa.Table]]:
    """The parts that are appended one after the other, with numbers that no two rows share."""
    return st.lists(parts(), min_size=2, max_size=4).map(_numbered)


def _numbered(found: list[pa.Table]) -> list[pa.Table]:
    starts = [sum(part.num_rows for part in found[:i]) for i in range(len(found))]
    return [
        part.set_column(0, "n", pa.array(range(start, start + part.num_rows), pa.int64()))
        for start, part in zip(starts, found, strict=True)
    ]


VECTORS = {"delta.enableDeletionVectors": "true"}
WAYS: dict[str, Callable[[DeltaTable], Any] | None] = {
    "appended": None,
    "deleted, rewritten": lambda table: table.delete("n % 5 = 1"),
    "deleted, vectors": lambda table: table.delete("n % 5 = 1"),
    "updated": lambda table: table.update(
        {"d": "CASE WHEN n % 2 = 0 THEN double('NaN') ELSE d END"}, predicate="n % 3 = 0"
    ),
    "merged": lambda table: (
        table.merge(_source(), "old.n = new.n", source_alias="new", target_alias="old")
        .when_matched_update({"d": "new.d", "f": "float('NaN')"})
        .when_not_matched_insert_all()
        .execute()
    ),
    "compacted": lambda table: table.optimize.compact(),
    "z-ordered": lambda table: table.optimize.z_order(["d", "f"]),
    "partitioned": None,
}


def _source() -> pa.Table:
    more = {"d": [NAN, -0.0, 7.0], "f": [1.0, NAN, None], "s": [{"d": NAN, "f": -0.0}, None, {"d": 1.0, "f": NAN}]}
    empty = {name: pa.nulls(3, ARROW.field(name).type) for name in ("list", "map", "deep")}
    return pa.table({"n": [0, 3, 1000], **more, **empty}, ARROW)


def write(path: Path, way: str, appended: Sequence[pa.Table], group_rows: int | None = 5) -> DeltaTable:
    """A table whose files were written in one of the ways, with row groups of so many rows."""
    with files_written_with(FileOptions(row_group_rows=group_rows)):
        for part in appended:
            write_deltalake(
                path,
                part,
                mode="append",
                partition_by=["f"] if way == "partitioned" else None,
                configuration=VECTORS if way == "deleted, vectors" else {},
            )
        table = DeltaTable(path)
        if (change := WAYS[way]) is not None:
            change(table)
    return DeltaTable(path)


# --- predicates --------------------------------------------------------------------------------------------------


def literals(kind: Any) -> st.SearchStrategy[Literal]:
    return st.sampled_from([Literal(value, kind) for value in VALUES[kind]])


OPERATORS = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])


@st.composite
def atoms(draw: st.DrawFn) -> Predicate:
    path, kind = draw(st.sampled_from(list(COLUMNS.items())))
    column = Column(path)
    match draw(st.integers(0, 9)):
        case 0:
            return IsNull(column)
        case 1 | 2:
            return In(column, tuple(draw(st.lists(literals(kind), min_size=1, max_size=3))))
        case 3:
            low, high = draw(literals(kind)), draw(literals(kind))
            return And((Comparison(">=", column, low), Comparison("<=", column, high)))
        case 4:
            return Comparison("<=>", column, Literal(NAN, kind))  # isnan
        case 5:
            return Comparison(draw(OPERATORS), draw(literals(kind)), column)
        case _:
            return Comparison(draw(OPERATORS), column, draw(literals(kind)))


PREDICATES = st.recursive(
    atoms(),
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, min_size=2, max_size=2).map(lambda found: And(tuple(found))),
        st.lists(inner, min_size=2, max_size=2).map(lambda found: Or(tuple(found))),
    ),
    max_leaves=3,
)


def rows_that_meet(predicate: Predicate, rows: pa.Table, column: str = "n") -> list[int]:
    """The numbers, in a column, of the rows that meet a predicate, by the engine's evaluation of each row."""
    batch = rows.combine_chunks().to_batches()[0] if rows.num_rows else None
    return [] if batch is None else sorted(rows.filter(row_mask(predicate, batch)).column(column).to_pylist())


# --- other readers -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Words:
    """A predicate in the words of other libraries."""

    duckdb: str
    polars: pl.Expr
    pyarrow: pc.Expression


_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def words(predicate: Predicate) -> Words:
    """Translate a predicate of :data:`PREDICATES`."""
    match predicate:
        case Not(child):
            inner = words(child)
            return Words(f"(NOT {inner.duckdb})", ~inner.polars, ~inner.pyarrow)
        case And(children) | Or(children):
            joined, sign = ("AND", operator.and_) if isinstance(predicate, And) else ("OR", operator.or_)
            found = [words(child) for child in children]
            return Words(
                f"({f' {joined} '.join(one.duckdb for one in found)})",
                functools.reduce(sign, [one.polars for one in found]),
                functools.reduce(sign, [one.pyarrow for one in found]),
            )
        case IsNull(child):
            own = _operand(child)
            return Words(f"({own.duckdb} IS NULL)", own.polars.is_null(), own.pyarrow.is_null())
        case In(child, items):
            own, kind = _operand(child), _arrow(items[0].type)
            values = [item.value for item in items]
            typed = pl.Series(pa.array(values, kind))
            return Words(
                f"({own.duckdb} IN ({', '.join(_operand(item).duckdb for item in items)}))",
                own.polars.is_in(typed.implode()),
                own.pyarrow.isin(pa.array(values, kind)),
            )
        case Comparison("<=>", left, right):
            a, b = _operand(left), _operand(right)
            literal = left if isinstance(left, Literal) else right
            column = b if literal is left else a
            arrow = column.pyarrow.is_nan() if math.isnan(literal.value) else a.pyarrow == b.pyarrow
            return Words(f"({a.duckdb} IS NOT DISTINCT FROM {b.duckdb})", a.polars.eq_missing(b.polars), arrow)
        case Comparison(sign, left, right):
            a, b, compare = _operand(left), _operand(right), _SIGNS[sign]
            return Words(f"({a.duckdb} {sign} {b.duckdb})", compare(a.polars, b.polars), compare(a.pyarrow, b.pyarrow))
    raise TypeError(predicate)


def _operand(part: Any) -> Words:
    if isinstance(part, Literal):
        kind = _arrow(part.type)
        short = {DOUBLE: ("DOUBLE", pl.Float64), FLOAT: ("FLOAT", pl.Float32)}[part.type]
        return Words(
            f"'{part.value}'::{short[0]}",
            pl.lit(part.value, short[1]()),
            pc.scalar(pa.scalar(part.value, kind)),
        )
    outer, *inner = part.path
    polars = functools.reduce(lambda value, name: value.struct.field(name), inner, pl.col(outer))
    return Words(".".join(part.path), polars, pc.field(*part.path))


def _arrow(kind: Any) -> pa.DataType:
    return pa.float64() if kind == DOUBLE else pa.float32()


Numbers = list[int]


@functools.cache
def _connection(*, pruned: bool) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    if not pruned:
        connection.execute("SET disabled_optimizers = 'filter_pushdown,statistics_propagation'")
    return connection


def by_duckdb(paths: Sequence[str], one: Words, *, pruned: bool) -> Numbers:
    query = f"SELECT n FROM read_parquet({list(paths)}) WHERE {one.duckdb}"
    return sorted(number for (number,) in _connection(pruned=pruned).execute(query).fetchall())


def by_polars(paths: Sequence[str], one: Words, *, pruned: bool) -> Numbers:
    scanned = pl.scan_parquet(list(paths), use_statistics=pruned).filter(one.polars)
    return sorted(scanned.select("n").collect()["n"].to_list())


def by_pyarrow(paths: Sequence[str], one: Words, *, pruned: bool) -> Numbers:
    dataset = ds.dataset(list(paths), format="parquet")
    if not pruned:
        dataset = ds.dataset(dataset.to_table())
    return sorted(dataset.to_table(columns=["n"], filter=one.pyarrow).column("n").to_pylist())


READERS: dict[str, Callable[..., Numbers]] = {"duckdb": by_duckdb, "polars": by_polars, "pyarrow": by_pyarrow}
