"""Frames of pandas and Polars as rows to write: what Arrow would change in silence is decided here, or refused by name.

- pandas: an index without a name is left out; one with a name is a column. Columns of objects get the type of their
  values. A missing value (None, NaN, NaT, NA) is null. In a frame without rows, a column of float64 may be of any type.
- Polars: types without a type in Arrow are refused. NaN stays NaN. A LazyFrame is collected in batches.
- Objects that are UUIDs become their canonical strings.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import sys
import uuid
from collections.abc import Callable
from decimal import Decimal
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from refdelta.engine.scan.origin import marks_of
from refdelta.errors import InvalidArgumentError, UnsupportedTypeError
from refdelta.table.evolution import may_fit
from refdelta.table.types import DOUBLE

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.table.types import StructType

_POLARS_ADVICE = {
    "Object": "cast it to a type of values, such as String",
    "Int128": "cast it to Int64, or to Decimal(38, 0)",
    "UInt128": "cast it to UInt64, or to Decimal(38, 0)",
}
_SHOWN = 100


def opened_frame(data: Any) -> pa.RecordBatchReader | None:
    """The rows of a frame of pandas or Polars; None for other data.

    Raises:
        InvalidArgumentError: the values of a column have no common type; column and row are named.
        UnsupportedTypeError: a column has a type that Arrow does not have.
    """
    # A program that has such a frame has imported the library.
    pandas: Any = sys.modules.get("pandas")
    polars: Any = sys.modules.get("polars")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return _of_pandas(data).to_reader()
    if polars is not None and isinstance(data, polars.DataFrame):
        return _of_polars(data)
    if polars is not None and isinstance(data, polars.LazyFrame):
        return _of_lazy(data, polars)
    return None


def has_no_rows(data: Any) -> bool:
    """True for a frame of pandas without rows."""
    pandas: Any = sys.modules.get("pandas")
    return pandas is not None and isinstance(data, pandas.DataFrame) and not len(data)


def untyped(schema: pa.Schema, table: StructType) -> pa.Schema:
    """The schema of a frame without rows on the way to a table: pandas gives float64 to columns that never had a value,
    which fit a column of any type.
    """
    return pa.schema(
        field.with_type(pa.null())
        if pt.is_float64(field.type) and (own := table.find(field.name)) and not may_fit(DOUBLE, own.type)
        else field
        for field in schema
    )


def _of_polars(frame: Any) -> pa.RecordBatchReader:
    for name, kind in frame.schema.items():
        if str(kind) == "Object" and _are_uuids(frame[name].to_list()):
            texts = [value and str(value) for value in frame[name].to_list()]
            frame = frame.with_columns(type(frame[name])(name, texts, dtype=sys.modules["polars"].String))
        else:
            _check_polars(kind, name)
    return pa.RecordBatchReader.from_stream(frame)


def _of_lazy(frame: Any, polars: Any) -> pa.RecordBatchReader:
    """The rows of a LazyFrame in batches, by the streaming engine; older versions of Polars collect it as a whole."""
    schema = frame.collect_schema()
    if not hasattr(frame, "collect_batches") or polars.Object in schema.values():
        return _of_polars(frame.collect())
    first = _of_polars(polars.DataFrame(schema=schema)).schema

    def batches() -> Iterator[pa.RecordBatch]:
        for part in frame.collect_batches(maintain_order=True, lazy=True, engine="streaming"):
            yield from pa.RecordBatchReader.from_stream(part)

    return pa.RecordBatchReader.from_batches(first, batches())


def tables_in_plan(data: Any) -> Iterator[Snapshot]:
    """The versions of tables that a LazyFrame of Polars reads, by its plan; nothing for other data.

    A reader of a table is a function, which Polars calls when the frame is collected, in any thread.
    """
    polars: Any = sys.modules.get("polars")
    if polars is None or not isinstance(data, polars.LazyFrame):
        return
    nodes = data._ldf.visit()  # noqa: SLF001 - as Polars' engines do; nothing else shows the functions
    left = [nodes.get_node()]
    while left:
        nodes.set_node(left.pop())
        left += nodes.get_inputs()
        with contextlib.suppress(NotImplementedError):  # a kind of node that is not shown, and is no reader
            for function in _functions(nodes.view_current_node()):
                yield from marks_of(function)


def _functions(node: Any) -> Iterator[object]:
    """The function of a node that reads rows in Python, and the objects that it has."""
    function = next(iter(getattr(node, "options", None) or ()), None) if type(node).__name__ == "PythonScan" else None
    if function is None:
        return
    yield function
    yield from getattr(function, "args", ())  # of a partial function, such as for a dataset
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # it is empty
            yield cell.cell_contents


def _are_uuids(values: list[Any]) -> bool:
    kinds = {type(value) for value in values if value is not None}
    return kinds == {uuid.UUID}


def _check_polars(kind: Any, path: str) -> None:
    name = type(kind).__name__ if not isinstance(kind, type) else kind.__name__
    if name in _POLARS_ADVICE:
        raise UnsupportedTypeError(f"column {path}: Delta has no type for Polars' {name}; {_POLARS_ADVICE[name]}")
    if (inner := getattr(kind, "inner", None)) is not None:
        _check_polars(inner, f"{path}.element")
    for field in getattr(kind, "fields", ()):
        _check_polars(field.dtype, f"{path}.{field.name}")


def _of_pandas(frame: Any) -> pa.Table:
    names = list(frame.index.names)
    named = [name for name in names if name is not None]
    for name in named:
        if str(name) in map(str, frame.columns):
            raise InvalidArgumentError(
                f"the index and a column of the DataFrame are both named {name!r}; reset_index(drop=True) leaves out "
                "the index"
            )
    unnamed = [level for level, name in enumerate(names) if name is None]
    if named and unnamed:
        frame = frame.reset_index(level=unnamed, drop=True)
    for place, (_, column) in enumerate(_columns(frame)):
        if column.dtype != object:
            continue
        present = column.dropna()
        # Older versions of Arrow have no type for them.
        if _are_uuids(present.head(1).to_list()) and _are_uuids(present.to_list()):
            frame = frame.copy(deep=False)
            frame.isetitem(place, column.map(str, na_action="ignore"))
    try:
        table = pa.Table.from_pandas(frame, preserve_index=bool(named))
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        for name, column in _objects(frame):
            _check_convertible(name, column)
        raise InvalidArgumentError(f"the DataFrame cannot be read as an Arrow table: {error}") from error
    for place, (name, column) in enumerate(_columns(frame)):
        if column.dtype == object:
            _check_alike(name, column, table.schema.field(place).type)
    return table


def _columns(frame: Any) -> Iterator[tuple[Hashable, Any]]:
    return ((name, frame.iloc[:, place]) for place, name in enumerate(frame.columns))


def _objects(frame: Any) -> Iterator[tuple[Hashable, Any]]:
    return ((name, column) for name, column in _columns(frame) if column.dtype == object)


def _check_convertible(name: Hashable, column: Any) -> None:
    """Raise for the first value of a column of objects that has no type in common with those before it."""
    if _converts(column):
        return
    fits, fails = 0, len(column)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if _converts(column.iloc[:middle]):
            fits = middle
        else:
            fails = middle
    raise _mixed(name, column, fits)


def _converts(column: Any) -> bool:
    try:
        pa.array(column, from_pandas=True)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return False
    return True


def _check_alike(name: Hashable, column: Any, kind: pa.DataType) -> None:
    """Raise if Arrow has reinterpreted values: times and numbers as dates, strings as bytes, local times as UTC, ..."""
    belongs = next((belongs for is_kind, belongs in _KINDS if is_kind(kind)), None)
    if belongs is None:
        return
    missing, types = column.isna().to_numpy(dtype=bool), column.map(type)
    wrong = types.isin([one for one in types.unique() if not belongs(one)]).to_numpy(dtype=bool)
    if pt.is_timestamp(kind):
        local = column.map(lambda value: getattr(value, "tzinfo", None) is None).to_numpy(dtype=bool)
        wrong = wrong | (local != (kind.tz is None))
    wrong = wrong & ~missing  # not in place: under copy-on-write, which pandas 3 always has, the array is read-only
    if wrong.any():
        raise _mixed(name, column, int(wrong.argmax()))


def _one_of(*kinds: type, without: tuple[type, ...] = ()) -> Callable[[type], bool]:
    return lambda found: issubclass(found, kinds) and not issubclass(found, without)


_BOOLEANS = (bool, np.bool_)
_KINDS: list[tuple[Callable[[pa.DataType], bool], Callable[[type], bool]]] = [
    (pt.is_date, _one_of(dt.date, without=(dt.datetime,))),
    (pt.is_timestamp, _one_of(dt.datetime, np.datetime64)),
    (lambda kind: pt.is_binary(kind) or pt.is_large_binary(kind), _one_of(object, without=(str,))),
    (
        lambda kind: pt.is_floating(kind) or pt.is_integer(kind) or pt.is_decimal(kind),
        _one_of(Number, Decimal, np.number, without=_BOOLEANS),
    ),
    (pt.is_boolean, _one_of(*_BOOLEANS)),
]
"""Types of Arrow to which it also converts values of other types, and the types that belong to them."""


def _mixed(name: Hashable, column: Any, place: int) -> InvalidArgumentError:
    value, before = column.iloc[place], column.iloc[:place].dropna()
    text = repr(value)
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    problem = f"row {place} of column {str(name)!r} has {shown} ({type(value).__name__})"
    if len(before):
        other = type(before.iloc[0]).__name__
        same = " of another zone or size" if other == type(value).__name__ else ""
        return InvalidArgumentError(f"{problem}, and rows before it have {other}{same}; convert the column to one type")
    return InvalidArgumentError(f"{problem}, for which there is no type; convert the column")
