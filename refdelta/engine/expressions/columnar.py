"""The shared parts of columnar functions: constants, bounds, and the definition applied to distinct values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.expressions.expression import Call, Literal
from refdelta.core.expressions.predicate import value_of
from refdelta.engine.arrow.schema import arrow_type
from refdelta.engine.expressions.partition import from_internal, to_internal
from refdelta.errors import ExpressionError

Columnar = Callable[..., Any]

MOST_BYTES = 2**30
"""The most bytes of text that a function makes for a batch, as much as is read for one."""


def bounded(name: str, size: int, rows: int) -> None:
    """Raise ``ExpressionError`` if a function would make more than :data:`MOST_BYTES` of text.

    Args:
        name: the function, for the message.
        size: the bytes of its result.
        rows: the number of rows.
    """
    if size > MOST_BYTES:
        raise ExpressionError(
            f"{name} would make {size:,} bytes of text for {rows:,} rows; at most {MOST_BYTES:,} are made at once"
        )


def constant(node: Call, place: int) -> Any:
    """The value of an argument that is a constant."""
    arg = node.args[place]
    return arg.value if isinstance(arg, Literal) else None


def by_value(node: Call, array: pa.Array) -> pa.Array:
    """The definition, once for each distinct value of the first argument; the others are constants."""
    encoded = array.dictionary_encode()
    first, *rest = node.args
    values = to_internal(encoded.dictionary, first.type)
    found = [value_of(Call(node.name, (Literal(v, first.type), *rest), node.type), {}) for v in values]
    return from_internal(found, node.type).take(encoded.indices)


def checked(node: Call, found: tuple[pa.Array, pa.Array]) -> pa.Array:
    """Values, unless a mask says that one of them does not fit: then ``ArrowInvalid``."""
    result, bad = found
    if pc.any(bad).as_py():
        raise pa.ArrowInvalid(f"a value does not fit into {node.type}")
    return result


def text(function: Callable[[pa.Array, Call], pa.Array]) -> Columnar:
    """A function of one column and constants; null for all rows if a constant is null."""

    def with_constants(node: Call, array: pa.Array) -> pa.Array:
        if any(constant(node, place) is None for place in range(1, len(node.args))):
            return pa.nulls(len(array), arrow_type(node.type))
        return function(array, node)

    return with_constants


by_value_with_constants: Columnar = text(lambda array, node: by_value(node, array))
"""The definition, as :func:`by_value`; null for all rows if a constant is null."""


def all_valid(columns: Sequence[pa.Array]) -> pa.BooleanArray:
    """A mask of the rows in which no column is null."""
    return functools.reduce(pc.and_, (column.is_valid() for column in columns))


def emptied(array: pa.Array) -> pa.Array:
    """An empty string for each value."""
    return pc.if_else(array.is_valid(), "", pa.scalar(None, array.type))


def days(array: pa.Array) -> pa.Array:
    """Dates as 64-bit integers."""
    return array.cast(pa.int32()).cast(pa.int64())


def dated(node: Call, found: Any) -> Any:
    """Days since 1970 as what the call gives. Raises ``ArrowInvalid`` if they do not fit."""
    kind = arrow_type(node.type)
    return found.cast(pa.int32()).view(kind) if pa.types.is_date(kind) else found
