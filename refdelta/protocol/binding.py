"""Binding: a predicate's columns are found in a schema, and both sides of every comparison get one type, as in Spark.

A literal takes the column's type where it fits there exactly. Otherwise the column is cast to the wider common type:
integers and decimals to a decimal with room for both, anything with a double to double. Strings become dates,
timestamps, numbers or booleans when they are compared with one. The session's time zone is UTC.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from refdelta.errors import ColumnNotFoundError, PredicateError
from refdelta.protocol import partition_values
from refdelta.protocol.like import like_tokens
from refdelta.protocol.predicate import (
    FALSE,
    NULL,
    And,
    BoolLiteral,
    Cast,
    Column,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Predicate,
    Value,
    cast_value,
    compare,
    disjunction,
)
from refdelta.protocol.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    FRACTIONAL,
    INTEGRAL,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    DataType,
    DecimalType,
    StructType,
    is_nested,
    is_numeric,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_PRECISION = 76  # what Arrow's wider decimals hold; a comparison may need more digits than a column can have
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
_YEAR_OR_MONTH = re.compile(r"(\d{4})(?:-(\d{1,2}))?", re.ASCII)


def bind(predicate: Predicate, schema: StructType) -> Predicate:
    """The predicate with its columns found in ``schema`` and its comparisons typed.

    Args:
        predicate: columns have paths in any case, and literals the types that they were written with.
        schema: the table's.

    Raises:
        ColumnNotFoundError: a column that the schema does not have.
        PredicateError: types that cannot be compared.
    """
    match predicate:
        case And(children):
            return And(tuple(bind(child, schema) for child in children))
        case Or(children):
            return Or(tuple(bind(child, schema) for child in children))
        case Not(inner):
            return Not(bind(inner, schema))
        case Comparison(op, left, right):
            return _comparison(op, _resolve(left, schema), _resolve(right, schema))
        case In(value, items):
            return _in(_resolve(value, schema), items)
        case IsNull(column):
            return IsNull(resolve_column(column.path, schema))
        case Like(column, pattern, escape):
            return _like(resolve_column(column.path, schema), pattern, escape)
        case BoolLiteral():
            return predicate


def resolve_column(path: tuple[str, ...], schema: StructType) -> Column:
    """Find a column or a field of a struct, its names in any case.

    Raises:
        ColumnNotFoundError: there is none.
        PredicateError: the path goes into an array or a map.
    """
    found: list[str] = []
    here: DataType = schema
    for name in path:
        if not isinstance(here, StructType):
            raise PredicateError(f"column {'.'.join(found)} is {here}, and has no field {name!r}")
        item = here.find(name)
        if item is None:
            whole = ".".join((*found, name))
            raise ColumnNotFoundError(whole, [".".join((*found, other)) for other in here.names])
        found.append(item.name)
        here = item.type
    return Column(tuple(found), here)


def _resolve(value: Value, schema: StructType) -> Value:
    match value:
        case Column(path):
            return resolve_column(path, schema)
        case Cast(child):
            return resolve_column(child.path, schema)
    return value


def _comparison(op: str, left: Value, right: Value) -> Predicate:
    _comparable(left)
    _comparable(right)
    if isinstance(left, Literal) and isinstance(right, Literal):
        common = _common(left, right)
        return BoolLiteral(compare(op, _literal(left, common).value, _literal(right, common).value))
    for one, other in ((left, right), (right, left)):
        if _always_null(one):
            if op != "<=>":
                return NULL
            return IsNull(other) if isinstance(other, Column) else BoolLiteral(_always_null(other))
    common = _common(left, right)
    return Comparison(op, _as(left, common), _as(right, common))


def _always_null(value: Value) -> bool:
    return value.value is None if isinstance(value, Literal) else value.type == VOID


def _in(value: Value, items: Sequence[Literal]) -> Predicate:
    if not isinstance(value, Column):
        return disjunction(_comparison("=", value, item) for item in items)
    _comparable(value)
    if not items:
        return FALSE
    if _always_null(value):
        return NULL
    types = [_common(value, item) for item in items]
    common = types[0]
    for other in types[1:]:
        common = _wider(common, other) or _refuse(Literal(None, common), Literal(None, other))
    bound = []
    for item in items:
        literal = _literal(item, common)
        if literal not in bound or len(items) > 1000:
            bound.append(literal)
    child = value if value.type == common else Cast(value, common)
    return In(child, tuple(bound))


def _like(column: Column, pattern: str, escape: str) -> Predicate:
    if column.type != STRING:
        raise PredicateError(f"LIKE needs a string, and column {column} is {column.type}")
    like_tokens(pattern, escape)
    return Like(column, pattern, escape)


def _comparable(value: Value) -> None:
    if isinstance(value, Column) and (is_nested(value.type) or value.type == VARIANT):
        raise PredicateError(f"column {value} is {value.type}; only IS NULL can be asked of it")


# --- types -------------------------------------------------------------------------------------------------------


def _common(left: Value, right: Value) -> DataType:
    """The type in which two values are compared; that of the column where the literal fits it exactly."""
    if isinstance(left, Literal) and not isinstance(right, Literal):
        left, right = right, left
    if isinstance(right, Literal) and not isinstance(left, Literal):
        if right.value is None or right.type == VOID:
            return left.type
        if right.type == STRING and left.type != STRING:
            return _of_string(left, right)
        if is_numeric(left.type) and _fits(right, left.type):
            return left.type
    if STRING in (left.type, right.type) and isinstance(left, Literal) and isinstance(right, Literal):
        other = right.type if left.type == STRING else left.type
        return LONG if other in INTEGRAL else other
    return _wider(left.type, right.type) or _refuse(left, right)


def _of_string(column: Value, literal: Literal) -> DataType:
    """The type that a string takes when it is compared with a column."""
    if column.type in INTEGRAL:
        # Spark widens both to 64 bits; the column is wide enough where the number is.
        number = cast_string(literal.value, LONG)
        return column.type if _fits(Literal(number, LONG), column.type) else LONG
    # Spark compares strings with decimals and floats as doubles.
    return DOUBLE if column.type == FLOAT or isinstance(column.type, DecimalType) else column.type


def _fits(literal: Literal, target: DataType) -> bool:
    """Whether a numeric literal is a value of ``target``, and Spark would not compare the two as doubles."""
    value = literal.value
    if not is_numeric(literal.type):
        return False
    if literal.type in FRACTIONAL or target in FRACTIONAL:
        return target in (DOUBLE, literal.type)
    if target in INTEGRAL:
        whole = value == int(value)
        return bool(whole) and -(1 << INTEGRAL[target] - 1) <= value < 1 << INTEGRAL[target] - 1
    if isinstance(target, DecimalType):
        try:
            partition_values.fit_decimal(Decimal(value), target)
        except ValueError:
            return False
        return True
    return False


def _wider(left: DataType, right: DataType) -> DataType | None:
    if right in (left, VOID):
        return left
    if left == VOID:
        return right
    if is_numeric(left) and is_numeric(right):
        return _wider_number(left, right)
    pair = {left, right}
    if pair <= {DATE, TIMESTAMP, TIMESTAMP_NTZ}:
        return TIMESTAMP if TIMESTAMP in pair else TIMESTAMP_NTZ
    return None


def _wider_number(left: DataType, right: DataType) -> DataType:
    if left in FRACTIONAL or right in FRACTIONAL:
        return DOUBLE
    if left in INTEGRAL and right in INTEGRAL:
        return left if INTEGRAL[left] >= INTEGRAL[right] else right
    one, other = _as_decimal(left), _as_decimal(right)
    scale = max(one.scale, other.scale)
    precision = max(one.precision - one.scale, other.precision - other.scale) + scale
    if precision > _MAX_PRECISION:
        raise PredicateError(f"{left} and {right} cannot be compared exactly: that takes {precision} digits")
    return DecimalType(precision, scale)


def _as_decimal(data_type: DataType) -> DecimalType:
    return data_type if isinstance(data_type, DecimalType) else DecimalType(_DIGITS[INTEGRAL[data_type]], 0)


def _refuse(left: Value, right: Value) -> DataType:
    raise PredicateError(f"{_shown(left)} and {_shown(right)} cannot be compared; cast the literal, or quote it")


def _shown(value: Value) -> str:
    if isinstance(value, Literal):
        return str(value.type) if value.value is None else f"{value} ({value.type})"
    return f"column {value} ({value.type})"


def _as(value: Value, target: DataType) -> Value:
    match value:
        case Literal():
            return _literal(value, target)
        case Column() if value.type != target:
            return Cast(value, target)
    return value


def _literal(literal: Literal, target: DataType) -> Literal:
    if literal.value is None:
        return Literal(None, target)
    return Literal(cast_literal(literal.value, literal.type, target), target)


def cast_literal(value: Any, source: DataType, target: DataType) -> Any:
    """CAST of a constant, strict as in Spark's ANSI mode: what does not fit is an error.

    Raises:
        PredicateError: the value is none of the target type.
    """
    if value is None or source == target:
        return value
    if source == STRING:
        return cast_string(value, target)
    if target == STRING:
        return _text_of(value, source)
    try:
        if is_numeric(source) and target in INTEGRAL:
            return partition_values.parse_integer(str(int(value)), INTEGRAL[target])
        if is_numeric(source) and isinstance(target, DecimalType):
            # By its shortest text, as Spark takes a double.
            return partition_values.fit_decimal(Decimal(str(value)), target)
    except (ValueError, OverflowError) as error:
        raise PredicateError(f"cannot cast {value} to {target}: {error}") from None
    widened = _wider(source, target)
    if widened == target or (is_numeric(source) and target in FRACTIONAL):
        return cast_value(value, source, target)
    if source in (TIMESTAMP, TIMESTAMP_NTZ) and target == DATE:
        return value // partition_values.DAY
    if source == TIMESTAMP and target == TIMESTAMP_NTZ:
        return value
    raise PredicateError(f"cannot cast a literal of type {source} to {target}")


def _text_of(value: Any, source: DataType) -> str:
    text = partition_values.serialize(value, source)
    if source in (TIMESTAMP, TIMESTAMP_NTZ) or text is None or source in FRACTIONAL:
        raise PredicateError(f"cannot cast a literal of type {source} to string: write the string")
    return text


def cast_string(text: str, target: DataType) -> Any:
    """The internal value of a string literal in another type, as Spark's ANSI mode reads it.

    Raises:
        PredicateError: the string is no value of the type.
    """
    try:
        if isinstance(target, DecimalType):
            return partition_values.fit_decimal(_number(text), target)
        if target in (DATE, TIMESTAMP, TIMESTAMP_NTZ):
            return _moment(text, target)
        if target == BINARY:
            return text.encode()
        if target in INTEGRAL or target in FRACTIONAL or target == BOOLEAN:
            return partition_values.parse_value(text, target)
    except ValueError as error:
        if isinstance(error, PredicateError):
            raise
        raise PredicateError(f"cannot cast {text!r} to {target}: {error}") from None
    raise PredicateError(f"cannot cast {text!r} to {target}")


def _number(text: str) -> Decimal:
    if not re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\s*", text, re.ASCII):
        raise PredicateError(f"{text!r} is not a number")
    return Decimal(text.strip())


def _moment(text: str, target: DataType) -> int:
    short = _YEAR_OR_MONTH.fullmatch(text.strip())
    body = f"{short[1]}-{short[2] or '01'}-01" if short else text.strip()
    if target == DATE:
        # Spark lets a time follow, and ignores it.
        return partition_values.parse_date(re.split(r"[ T]", body, maxsplit=1)[0])
    return partition_values.parse_timestamp(body, zone=target == TIMESTAMP)
