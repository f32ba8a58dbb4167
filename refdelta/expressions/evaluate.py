"""The evaluation of predicates and values, for one row and for columns.

For one row it is the reference. Values are internal values (see :mod:`refdelta.table.partition_values`), logic is
three-valued: True, False, and None for SQL's NULL. Floats are ordered as Spark orders them: NaN equals NaN and is above
all others. Strings are ordered by their UTF-8 bytes. A function that has no columns of its own is computed by its
definition: once for each distinct value of one column, or for each row of several. The twin for files is
``engine/scan/skipping``.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache, partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import ARROW_FALSE, ARROW_TRUE, array_of, concat, few_chunks, scalar_of
from refdelta.arrow.partition import from_internal, to_internal
from refdelta.arrow.schema import arrow_type
from refdelta.errors import ColumnNotFoundError, DeltaError, ExpressionError
from refdelta.expressions.casting import convert_column, convert_value, widen
from refdelta.expressions.columnar import bounded
from refdelta.expressions.expression import (
    And,
    BoolLiteral,
    Call,
    Case,
    Cast,
    Column,
    Comparison,
    Condition,
    Convert,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Predicate,
    Value,
    to_sql,
    walk,
)
from refdelta.expressions.functions import FUNCTIONS
from refdelta.expressions.like import like_matches, like_regex
from refdelta.expressions.ordering import compare, compare_columns, is_in
from refdelta.table.types import DATE, FRACTIONAL, TIMESTAMP, TIMESTAMP_NTZ, VOID, DataType, DecimalType

_SHOWN = 200

FLIPPED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<=", "<=>": "<=>"}

# --- one row -----------------------------------------------------------------------------------------------------


def evaluate(predicate: Predicate, row: Mapping[str, Any]) -> bool | None:
    """The predicate for one row, given as internal values by top-level column name; a struct is a mapping in turn."""
    match predicate:
        case BoolLiteral(value):
            return value
        case Not(child):
            inner = evaluate(child, row)
            return None if inner is None else not inner
        case And(children):
            return all_of(evaluate(child, row) for child in children)
        case Or(children):
            found = all_of(negated(evaluate(child, row)) for child in children)
            return negated(found)
        case Comparison(op, left, right):
            first = value_of(left, row)
            return None if first is None and op != "<=>" else compare(op, first, value_of(right, row))
        case In(child, items):
            return is_in(value_of(child, row), [item.value for item in items])
        case IsNull(child):
            return value_of(child, row) is None
        case Like(child, pattern, escape):
            text = value_of(child, row)
            return None if text is None else like_matches(text, pattern, escape)


def value_of(value: Value, row: Mapping[str, Any]) -> Any:
    """The internal value of a value for one row.

    Raises:
        ExpressionError: it has none, such as a division by zero.
    """
    match value:
        case Literal(constant):
            return constant
        case Cast(child, target):
            return widen(value_of(child, row), child.type, target)
        case Convert(child, target, lenient):
            return convert_value(value_of(child, row), child.type, target, lenient=lenient)
        case Condition(predicate):
            return evaluate(predicate, row)
        case Case(branches, otherwise):
            for condition, found in branches:
                if evaluate(condition, row) is True:
                    return value_of(found, row)
            return value_of(otherwise, row)
        case Call("coalesce", args):
            # Arguments after the first value are not computed.
            return next((found for found in (value_of(arg, row) for arg in args) if found is not None), None)
        case Call():
            return _called(value, row)
        case Column(path):
            here: Any = row
            for name in path:
                if here is None:
                    return None
                here = here[name]
            return here


def _called(call: Call, row: Mapping[str, Any]) -> Any:
    function = FUNCTIONS[call.name]
    found: dict[int, Any] = {}
    for place in function.order(len(call.args)):
        found[place] = value_of(call.args[place], row)
        if found[place] is None and function.strict:
            return None
    return function.of(call, [found[place] for place in range(len(call.args))])


def all_of(parts: Iterable[bool | None]) -> bool | None:
    """AND of truth values."""
    found: bool | None = True
    for part in parts:
        if part is False:
            return False
        if part is None:
            found = None
    return found


def negated(value: bool | None) -> bool | None:
    """NOT of a truth value."""
    return None if value is None else not value


# --- columns -----------------------------------------------------------------------------------------------------


def row_mask(predicate: Predicate, batch: pa.RecordBatch | pa.Table) -> pa.BooleanArray:
    """The predicate for every row: true, false, or null if it is unknown.

    Args:
        predicate: bound to the table's schema.
        batch: rows with at least the columns of the predicate, by logical name, in the types of
            :func:`refdelta.arrow.schema.to_arrow`.

    Returns:
        One boolean a row. ``filter`` drops the rows with false or null, as WHERE does.

    Raises:
        ColumnNotFoundError: the batch lacks a column.
        ExpressionError: a part of the predicate fails for some row; the message has the predicate.
    """
    with _evaluating(predicate):
        if isinstance(batch, pa.Table):
            return concat([_mask(predicate, chunk) for chunk in few_chunks(batch).to_batches()], pa.bool_())
        return _mask(predicate, batch)


def evaluate_value(value: Value, batch: pa.RecordBatch | pa.Table) -> pa.Array:
    """A value for every row.

    Args:
        value: bound to the table's schema.
        batch: see :func:`row_mask`; for a value of two relations it has two struct columns, named by the aliases.

    Returns:
        An array with one value a row, of the Arrow type of ``value.type``.

    Raises:
        ColumnNotFoundError: the batch lacks a column.
        ExpressionError: the expression fails for some row, such as a division by zero or a number that does not fit;
            the message has the expression.
    """
    kind = arrow_type(value.type)
    with _evaluating(value):
        if isinstance(batch, pa.Table):
            return concat([_typed(value, chunk, kind) for chunk in few_chunks(batch).to_batches()], kind)
        return _typed(value, batch, kind)


def _typed(value: Value, batch: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
    found = _array(value, batch)
    return found if found.type == kind else found.cast(kind)


@contextlib.contextmanager
def _evaluating(node: Expression) -> Iterator[None]:
    """Errors of an evaluation name the expression: a caller may read a file, and take other errors for its damage."""
    try:
        yield
    except ExpressionError as error:
        raise ExpressionError(f"{error}, in {_shortened(node)}") from None
    except (DeltaError, MemoryError):
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        raise ExpressionError(f"{_shortened(node)} cannot be computed: {type(error).__name__}: {reason}") from error


def _shortened(node: Expression) -> str:
    text = to_sql(node)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _mask(predicate: Predicate, batch: pa.RecordBatch) -> pa.BooleanArray:
    match predicate:
        case BoolLiteral(value):
            return pa.repeat(scalar_of(value, pa.bool_()), batch.num_rows)
        case And(children):
            return _combined(children, batch, pc.and_kleene, over=False)
        case Or(children):
            return _combined(children, batch, pc.or_kleene, over=True)
        case Not(child):
            return pc.invert(_mask(child, batch))
        case Comparison(op, left, right) if isinstance(left, Literal):
            return compare_columns(FLIPPED[op], _array(right, batch), values(left, batch))
        case Comparison(op, left, right):
            first = _array(left, batch)
            if op != "<=>" and can_fail(right):
                return compare_columns(op, first, _for_rows(first.is_valid(), batch, partial(_array, right)))
            return compare_columns(op, first, values(right, batch))
        case In(value, items):
            return _is_in(_array(value, batch), items)
        case IsNull(value):
            return _array(value, batch).is_null()
        case Like(value, pattern, escape):
            # By default RE2 anchors by text, not by line.
            return pc.match_substring_regex(_array(value, batch), f"^{like_regex(pattern, escape)}$")


def _combined(children: tuple[Predicate, ...], batch: pa.RecordBatch, combine: Any, *, over: bool) -> pa.BooleanArray:
    """AND or OR. Conditions that may fail are not evaluated for rows whose result is already ``over``."""
    found = _mask(children[0], batch)
    for child in children[1:]:
        if can_fail(child):
            rows = pc.invert(pc.fill_null(pc.equal(found, ARROW_TRUE if over else ARROW_FALSE), ARROW_FALSE))
            found = combine(found, _for_rows(rows, batch, partial(_mask, child)))
        else:
            found = combine(found, _mask(child, batch))
    return found


def _for_rows(rows: pa.BooleanArray, batch: pa.RecordBatch, function: Callable[[pa.RecordBatch], pa.Array]) -> pa.Array:
    """A function of some rows; null for the others, to which it is not applied."""
    if pc.all(rows, min_count=0).as_py():
        return function(batch)
    found = function(batch.filter(rows))
    places = pc.subtract(pc.cumulative_sum(rows.cast(pa.int64())), 1)
    return found.take(pc.if_else(rows, places, scalar_of(None, pa.int64())))


# --- values of columns -------------------------------------------------------------------------------------------


def values(value: Value, batch: pa.RecordBatch) -> Any:
    """A value as an array, a literal as a scalar.

    Raises:
        ColumnNotFoundError: the batch lacks a column.
        ExpressionError: the expression fails for some row.
    """
    match value:
        case Literal(constant, data_type):
            return scalar(constant, data_type)
        case Cast(child, target):
            return cast(_array(child, batch), child.type, target)
        case Convert(child, target, lenient):
            return convert_column(_array(child, batch), child.type, target, lenient=lenient)
        case Condition(predicate):
            return _mask(predicate, batch)
        case Case():
            return _case(value, batch)
        case Call("coalesce", args):
            return _coalesce(args, value.type, batch)
        case Call():
            return call(value, arguments(value, batch))
        case Column(path):
            index = batch.schema.get_field_index(path[0])
            if index < 0:
                raise ColumnNotFoundError(path[0], batch.schema.names, "the data")
            array = batch.column(index)
            return pc.struct_field(array, list(path[1:])) if len(path) > 1 else array


def call(node: Call, args: Sequence[pa.Array]) -> pa.Array:
    """A function of columns, all of the same length.

    Args:
        node: the call.
        args: its arguments; the first alone if the others are constants.

    Raises:
        ExpressionError: the function fails for some row, or makes too much text.
    """
    function, kind = FUNCTIONS[node.name], arrow_type(node.type)
    if function.constants and any(isinstance(arg, Literal) and arg.value is None for arg in node.args[1:]):
        return pa.nulls(len(args[0]), kind)
    if function.size is not None:
        bounded(node.name, function.size(node, *args), len(args[0]) if args else 1)
    found = None
    if function.columns is not None:
        with contextlib.suppress(pa.ArrowInvalid):  # the definition raises the proper message
            found = function.columns(node, *args)
    if found is None:
        found = by_value(node, args)
    return found if found.type == kind else found.cast(kind)


def by_value(node: Call, args: Sequence[pa.Array]) -> pa.Array:
    """The definition of a function, over columns; see :func:`call` for the arguments.

    Raises:
        ExpressionError: the function fails for some row.
    """
    function = FUNCTIONS[node.name]
    given = [arg.value if isinstance(arg, Literal) else None for arg in node.args]
    columns = (
        {0: args[0]}
        if function.constants
        else {place: args[place] for place, arg in enumerate(node.args) if not isinstance(arg, Literal)}
    )
    if not columns:
        return from_internal([function.of(node, given)], node.type).take(pa.repeat(0, len(args[0])))
    indices = None
    if len(columns) == 1:
        [(place, column)] = columns.items()
        if not pa.types.is_nested(column.type):
            encoded = column.dictionary_encode(null_encoding="encode")
            columns, indices = {place: encoded.dictionary}, encoded.indices
    found = []
    for row in zip(*(to_internal(column, node.args[place].type) for place, column in columns.items()), strict=True):
        for place, value in zip(columns, row, strict=True):
            given[place] = value
        found.append(function.of(node, given))
    array = from_internal(found, node.type)
    return array if indices is None else array.take(indices)


def arguments(node: Call, batch: pa.RecordBatch) -> list[pa.Array]:
    """A function's arguments. If a null argument makes the function null, further ones are not evaluated."""
    function = FUNCTIONS[node.name]
    if function.constants:
        return [_array(node.args[0], batch)]
    found: dict[int, pa.Array] = {}
    for place in function.order(len(node.args)):
        arg = node.args[place]
        if found and function.strict and can_fail(arg):
            rows = reduce(pc.and_, [array.is_valid() for array in found.values()])
            found[place] = _for_rows(rows, batch, partial(_array, arg))
        else:
            found[place] = _array(arg, batch)
    return [found[place] for place in range(len(node.args))]


def _array(value: Value, batch: pa.RecordBatch) -> pa.Array:
    found = values(value, batch)
    return _repeated(found, batch.num_rows) if isinstance(found, pa.Scalar) else found


def _repeated(constant: pa.Scalar, rows: int) -> pa.Array:
    _check_constant(constant, rows)
    return pa.repeat(constant, rows)


def _check_constant(constant: pa.Scalar, rows: int) -> None:
    """Refuse a constant that would take too much memory when it is repeated for each row."""
    bounded("a constant", pa.repeat(constant, 1).nbytes * rows, rows)


def _case(node: Case, batch: pa.RecordBatch) -> pa.Array:
    kind = arrow_type(node.type)
    found, open_ = pa.nulls(batch.num_rows, kind), pa.repeat(ARROW_TRUE, batch.num_rows)
    for condition, value in node.branches:
        mask = _for_rows(open_, batch, partial(_mask, condition)) if can_fail(condition) else _mask(condition, batch)
        hit = pc.and_(open_, pc.fill_null(mask, ARROW_FALSE))
        found = _chosen(hit, value, batch, found)
        open_ = pc.and_(open_, pc.invert(hit))
    return _chosen(open_, node.otherwise, batch, found)


def _coalesce(args: tuple[Value, ...], data_type: DataType, batch: pa.RecordBatch) -> pa.Array:
    found = pa.nulls(batch.num_rows, arrow_type(data_type))
    for arg in args:
        found = _chosen(found.is_null(), arg, batch, found)
    return found


def _chosen(rows: pa.BooleanArray, value: Value, batch: pa.RecordBatch, others: pa.Array) -> pa.Array:
    """The value for some rows; ``others`` for the rest."""
    found = _for_rows(rows, batch, partial(_array, value)) if can_fail(value) else values(value, batch)
    if isinstance(found, pa.Scalar):
        _check_constant(found, batch.num_rows)
    return pc.if_else(rows, found, others)


def can_fail(node: Expression) -> bool:
    """Whether an expression may fail for some rows."""
    return any(
        (isinstance(part, Call) and part.name in FUNCTIONS and FUNCTIONS[part.name].fails)
        or (isinstance(part, Convert) and not part.lenient)
        or (isinstance(part, Cast) and part.child.type == DATE)
        for part in walk(node)
    )


def compute_type(data_type: DataType) -> pa.DataType:
    """The Arrow type in which values are compared; a comparison may need more digits than a column can have."""
    if isinstance(data_type, DecimalType) and data_type.precision > 38:
        return pa.decimal256(data_type.precision, data_type.scale)
    return arrow_type(data_type)


def scalar(value: Any, data_type: DataType) -> pa.Scalar:
    """An internal value as an Arrow scalar."""
    if value is None:
        return scalar_of(value, compute_type(data_type))
    if isinstance(data_type, DecimalType):
        return _decimal(value, compute_type(data_type))
    return from_internal([value], data_type)[0]


@lru_cache(256)
def _decimal(value: Decimal, kind: pa.DataType) -> pa.Scalar:
    """A constant, which each batch asks for again: a decimal takes 14 µs, others 3."""
    return scalar_of(value, kind)


def cast(array: Any, source: DataType, target: DataType) -> Any:
    """An array in a wider type, see :class:`refdelta.expressions.predicate.Cast`.

    Raises:
        ExpressionError: a date is outside of the range of timestamps.
    """
    if source == VOID:
        return pa.nulls(len(array), compute_type(target))
    if source in (TIMESTAMP, TIMESTAMP_NTZ) and target in (TIMESTAMP, TIMESTAMP_NTZ):
        return array.cast(pa.int64()).cast(arrow_type(target))
    if source == DATE and target == TIMESTAMP:
        array, source = cast(array, DATE, TIMESTAMP_NTZ), TIMESTAMP_NTZ
        return cast(array, source, target)
    if isinstance(source, DecimalType) and target in FRACTIONAL:
        return convert_column(array, source, target)
    try:
        # A long is compared with doubles by the nearest double, as in Spark.
        return pc.cast(array, compute_type(target), safe=source == DATE)
    except pa.ArrowInvalid as error:
        raise ExpressionError(f"a value of type {source} is beyond {target}: {error}") from None


def _is_in(array: Any, items: tuple[Literal, ...]) -> pa.BooleanArray:
    constants = [item.value for item in items if item.value is not None]
    if any(isinstance(value, float) and value == 0 for value in constants):
        # Arrow compares the bits, and zero has two forms.
        constants += [0.0, -0.0]
    data_type = items[0].type
    if isinstance(data_type, DecimalType):
        known = array_of(constants, compute_type(data_type))
    else:
        known = from_internal(constants, data_type)
    found = pc.is_in(array, value_set=known)
    if any(isinstance(value, float) and math.isnan(value) for value in constants):
        found = pc.or_(found, pc.fill_null(pc.is_nan(array), ARROW_FALSE))
    if any(item.value is None for item in items):
        # Without a match the result is unknown, since null may equal the value.
        found = pc.if_else(found, found, scalar_of(None, pa.bool_()))
    return pc.if_else(pc.is_null(array), scalar_of(None, pa.bool_()), found)
