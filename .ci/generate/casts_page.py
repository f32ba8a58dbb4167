"""``make generate NAME=casts``: the tables of ``docs/guide/casts.md``, by asking refdelta and deltalake what they
store.
``ARGS=--spark`` asks delta-spark again, whose answers are kept in ``casts_in_spark.json``.

Each pair of types is asked with values that the column's type has and with values that it does not have.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from formatting import formatted

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.arrow.partition import to_internal
from refdelta.arrow.schema import arrow_type, delta_type
from refdelta.engine.parquet.fit import plan_fit
from refdelta.expressions.exact_cast import fitted_value
from refdelta.expressions.sql_text import type_sql
from refdelta.table.evolution import may_fit
from refdelta.table.types import STRING, DataType, StructField, StructType

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "casts.md"
RECORD = Path(__file__).with_name("casts_in_spark.json")
_numbers = itertools.count()

DAY = dt.date(2024, 1, 2)
NIGHT, TIME = dt.datetime(2024, 1, 2), dt.datetime(2024, 1, 2, 3, 4, 5)
UTC = dt.UTC

VALUES: dict[str, pa.Array] = {
    "byte": pa.array([1, 0, -100], "int8"),
    "short": pa.array([1, 0, 300], "int16"),
    "integer": pa.array([1, 0, 70_000, 2**24 + 1], "int32"),
    "long": pa.array([1, 0, 2**40, 2**62 + 1], "int64"),
    "float": pa.array([1, 0.5, 1e20, math.nan], "float32"),
    "double": pa.array([1, 0.5, 0.1, 1e300, math.nan], "float64"),
    "decimal(10,2)": pa.array([Decimal("1.00"), Decimal("1.50"), Decimal("12345678.91")], pa.decimal128(10, 2)),
    "decimal(12,2)": pa.array([Decimal("1.00"), Decimal("1.50"), Decimal("1234567890.12")], pa.decimal128(12, 2)),
    "boolean": pa.array([True, False]),
    "string": pa.array(["1", "300", "1.5", "true", "2024-01-02", "2024-01-02 03:04:05", "2024-01-02 03:04:05Z", "x"]),
    "binary": pa.array([b"1", b"\xff"]),
    "date": pa.array([DAY]),
    "timestamp": pa.array([NIGHT.replace(tzinfo=UTC), TIME.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
    "timestamp_ntz": pa.array([NIGHT, TIME], pa.timestamp("us")),
    "uint32": pa.array([1, 0, 2**32 - 1], "uint32"),
    "uint64": pa.array([1, 0, 2**64 - 1], "uint64"),
}
"""Values by type: of columns, and two further types of data."""

UNSIGNED = ("uint32", "uint64")
TARGETS = {name: delta_type(array.type, name) for name, array in VALUES.items() if name not in UNSIGNED}

# What pairs of types are: the first word of each is the sign of a cell.
SIGNS = {
    "=": "every value is stored",
    "≤": "a value is stored if the column's type has it; any other value is an error, and nothing is written",
    "~": "a value that the column's type does not have is stored as another value, or as null",
    "+": "stored in a form of the engine's own: another text than refdelta's, or a pair that refdelta refuses",
    "-": "the pair is refused",
}

COMMON = [
    ("long", "integer", "`[1, 2**40]`: pandas' `dt.month` is a 32-bit integer, Python's integers have 64 bits"),
    ("integer", "long", "`[70000]`"),
    ("uint32", "long", "`[2**32 - 1]`"),
    ("uint32", "integer", "`[2**32 - 1]`"),
    ("uint64", "long", "`[2**64 - 1]`"),
    ("double", "long", "`[1.0, 0.5]`: pandas makes integers with missing values doubles"),
    ("long", "double", "`[2**62 + 1]`"),
    ("double", "float", "`[0.5, 0.1]`"),
    ("decimal(12,2)", "decimal(10,2)", "`[1.50, 1234567890.12]`"),
    ("double", "decimal(10,2)", "`[0.5, 1e300]`"),
    ("long", "string", "`[1]`"),
    ("double", "string", "`[0.5]`: its digits differ between engines"),
    ("string", "long", '`["1", "x"]`'),
    ("string", "date", '`["2024-01-02", "x"]`'),
    ("string", "timestamp", '`["2024-01-02 03:04:05", "x"]`, in UTC'),
    ("date", "timestamp", "`[2024-01-02]`, at midnight in UTC"),
    ("timestamp", "date", "`[2024-01-02 00:00, 2024-01-02 03:04:05]`"),
    ("timestamp", "timestamp_ntz", "`[2024-01-02 03:04:05]`: its time zone is not known"),
    ("date", "string", "`[2024-01-02]`"),
    ("boolean", "integer", "`[true]`"),
    ("string", "boolean", '`["true", "x"]`'),
    ("binary", "string", r'`[b"1", b"\xff"]`'),
]

Store = Callable[[pa.Array, DataType], "pa.Array | None"]
"""Stores values in a column of a type and reads them back; None if the engine refuses."""


def sign(source: str, target: str, store: Store) -> str:
    """The sign of a pair of types."""
    kind, values = TARGETS[target], VALUES[source]
    own = delta_type(values.type, source)
    whole = store(values, kind)
    parts = [whole] if whole is not None else [store(values[at : at + 1], kind) for at in range(len(values))]
    if all(part is None for part in parts):
        return "-"
    if not may_fit(own, kind):
        return "+"
    refused = any(part is None for part in parts)
    asked_for = to_internal(values.cast(arrow_type(own)), own)
    kept = [whole is not None or part is not None for part in parts]
    given = asked_for if whole is not None else list(itertools.compress(asked_for, kept))
    stored = [value for part in parts if part is not None for value in to_internal(part.cast(arrow_type(kind)), kind)]
    lost = not all(_is_kept(value, found, own, kind) for value, found in zip(given, stored, strict=True))
    if lost:
        return "+" if kind == STRING else "~"
    return "≤" if refused else "="


def _is_kept(value: Any, found: Any, own: DataType, kind: DataType) -> bool:
    try:
        return same(fitted_value(value, own, kind), found)
    except errors.ExpressionError:
        return False


def same(one: Any, other: Any) -> bool:
    """Equality of internal values, of which NaN is equal to itself."""
    nan = isinstance(one, float) and math.isnan(one) and isinstance(other, float) and math.isnan(other)
    return nan or one == other


def in_refdelta(values: pa.Array, kind: DataType) -> pa.Array | None:
    """Append by refdelta."""
    uri = f"memory://cast-{next(_numbers)}"
    table = DeltaTable.create(uri, pa.schema([("i", "int64"), ("x", arrow_type(kind))]))
    try:
        write_deltalake(table, _rows(values), mode="append")
    except errors.SchemaMismatchError:
        return None
    return table.to_pyarrow_table().sort_by("i")["x"].combine_chunks()


def by_fitting(values: pa.Array, kind: DataType) -> pa.Array | None:
    """The first step of each append, without a table."""
    rows = pa.record_batch({"x": values})
    try:
        return plan_fit(rows.schema, StructType((StructField("x", kind),))).apply(rows).column(0)
    except errors.SchemaMismatchError:
        return None


def in_deltalake(folder: Path) -> Store:
    """Append by deltalake, to tables in a folder."""

    def store(values: pa.Array, kind: DataType) -> pa.Array | None:
        path = str(folder / str(next(_numbers)))
        schema = pa.schema([("i", "int64"), ("x", arrow_type(kind))])
        deltalake.write_deltalake(path, schema.empty_table())
        try:
            deltalake.write_deltalake(path, _rows(values), mode="append")
        except Exception:
            return None
        return DeltaTable(path).to_pyarrow_table().sort_by("i")["x"].combine_chunks()

    return store


def in_spark(spark: Any, folder: Path) -> Store:
    """``INSERT INTO ... SELECT`` by delta-spark, into one table in a folder."""
    refused: set[tuple[str, DataType]] = set()
    path, inputs = folder / "table", folder / "inputs"
    inputs.mkdir(parents=True)
    names = {kind: f"c{number}" for number, kind in enumerate(TARGETS.values())}
    columns = ", ".join(f"{name} {type_sql(kind)}" for kind, name in names.items())
    feature = "TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')"
    spark.sql(f"CREATE TABLE delta.`{path}` (i BIGINT, ask BIGINT, {columns}) USING delta {feature}")

    def store(values: pa.Array, kind: DataType) -> pa.Array | None:
        if (str(values.type), kind) in refused:
            return None
        ask = next(_numbers)
        pq.write_table(_rows(values), inputs / f"{ask}.parquet")
        rows = f"SELECT i, CAST({ask} AS BIGINT), x FROM parquet.`{inputs / str(ask)}.parquet`"
        try:
            spark.sql(f"INSERT INTO delta.`{path}` (i, ask, {names[kind]}) {rows}")
        except Exception:
            return None
        try:
            found = DeltaTable(path).to_pyarrow_table(columns=["i", names[kind]], filters=f"ask = {ask}")
        except errors.DataFileError:
            return pa.nulls(len(values), arrow_type(kind))  # bytes that are no string
        return found.sort_by("i")[names[kind]].combine_chunks()

    return store


def _rows(values: pa.Array) -> pa.Table:
    return pa.table({"i": pa.array(range(len(values)), "int64"), "x": values})


def pairs(*, unsigned: bool = True) -> Iterator[tuple[str, str]]:
    """All pairs of a type of data and another type of a column."""
    for source, target in itertools.product(VALUES, TARGETS):
        if source != target and (unsigned or source not in UNSIGNED):
            yield source, target


def asked(store: Store, which: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The signs of pairs, by ``source > target``."""
    return {f"{source} > {target}": sign(source, target, store) for source, target in which}


def recorded() -> dict[str, str]:
    """The answers of delta-spark."""
    return json.loads(RECORD.read_text())["signs"]  # type: ignore[no-any-return]


def answers() -> dict[str, dict[str, str]]:
    """The signs of all pairs, by library."""
    with tempfile.TemporaryDirectory() as folder:
        theirs = asked(in_deltalake(Path(folder)), pairs())
    return {"refdelta": asked(in_refdelta, pairs()), "deltalake": theirs, "delta-spark": recorded()}


def page(text: str, found: dict[str, dict[str, str]]) -> str:
    """The page with the tables of these answers."""
    versions = json.loads(RECORD.read_text())["versions"]
    common = [
        "| data | column | refdelta | deltalake | delta-spark | values, for example |",
        "|---|---|---|---|---|---|",
        *(f"| {source} | {target} | {_cells(found, source, target)} | {values} |" for source, target, values in COMMON),
    ]
    titles = {
        "refdelta": "refdelta",
        "deltalake": f"deltalake {deltalake.__version__}",
        "delta-spark": f"delta-spark {versions['delta-spark']} on Spark {versions['spark']}",
    }
    matrices = [f"### {title}\n\n{_matrix(found[name])}\n" for name, title in titles.items()]
    signs = ["| sign | meaning |", "|---|---|", *(f"| {mark} | {meaning} |" for mark, meaning in SIGNS.items())]
    for name, body in (("signs", signs), ("pairs", common), ("matrices", matrices)):
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        before, rest = text.split(begin)
        text = "\n".join([f"{before}{begin}", *body, "", end]) + rest.split(end)[1]
    return formatted(text)


def _cells(found: dict[str, dict[str, str]], source: str, target: str) -> str:
    return " | ".join(_sign(found[name], source, target) for name in ("refdelta", "deltalake", "delta-spark"))


def _sign(found: dict[str, str], source: str, target: str) -> str:
    return " " if source == target else found.get(f"{source} > {target}", " ")


def _matrix(found: dict[str, str]) -> str:
    sources = [name for name in VALUES if any(key.startswith(f"{name} > ") for key in found)]
    rows = [f"| {source} | {' | '.join(_sign(found, source, target) for target in TARGETS)} |" for source in sources]
    return "\n".join([f"| | {' | '.join(TARGETS)} |", "|---" * (len(TARGETS) + 1) + "|", *rows])


def _ask_spark() -> None:
    import pyspark

    from refdelta.crosscheck import oracle

    session = oracle.start_session(conf=oracle.QUICK)
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = asked(in_spark(session, Path(folder) / "casts"), pairs(unsigned=False))
    finally:
        oracle.stop_session(session)
    versions = {"spark": pyspark.__version__, "delta-spark": oracle.MAVEN_PACKAGE.split(":")[-1]}
    whole = {"command": "make generate NAME=casts ARGS=--spark", "versions": versions, "signs": found}
    RECORD.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    if "--spark" in sys.argv:
        _ask_spark()
    PAGE.write_text(page(PAGE.read_text(), answers()))
