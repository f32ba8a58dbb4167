"""Binding: names are found in a scope, and every value gets the type that it has in Spark.

In a comparison a literal takes the other side's type where it fits there exactly. Otherwise both sides are cast to the
wider common type: integers and decimals to a decimal with room for both, anything with a double to double. Strings
become dates, timestamps, numbers or booleans when they are compared with one: bigint for integers, double for other
numbers. A string that is none is then an error, as in Spark's ANSI mode. The session's time zone is UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from refdelta.errors import ExpressionError, PredicateError, UnsupportedFeatureError
from refdelta.expressions.casting import cast_literal, cast_string, convert_value, convertible
from refdelta.expressions.coercion import MAX_PRECISION, coerce, common_type, literal_as, wider, with_string
from refdelta.expressions.evaluate import evaluate, value_of
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
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Predicate,
    Value,
    columns,
)
from refdelta.expressions.functions import typed_call
from refdelta.expressions.library.intervals import interval_call
from refdelta.expressions.like import like_tokens
from refdelta.expressions.ordering import compare
from refdelta.expressions.predicate import FALSE, NULL, disjunction
from refdelta.expressions.scope import Scope
from refdelta.table import partition_values
from refdelta.table.char_varchar import padded
from refdelta.table.collation import has_collation
from refdelta.table.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    FRACTIONAL,
    INTEGER,
    INTEGRAL,
    LONG,
    STRING,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    StructType,
    UnknownType,
    is_nested,
    is_numeric,
)

__all__ = ["bind", "bind_value", "cast_literal", "cast_string", "resolve_column"]


def bind(predicate: Predicate, schema: StructType | Scope) -> Predicate:
    """The predicate with its columns found in ``schema`` and its values typed.

    Args:
        predicate: columns have paths in any case, and literals the types that they were written with.
        schema: the table's, or a scope of several relations.

    Raises:
        ColumnNotFoundError: a column that the schema does not have.
        PredicateError: types that cannot be compared or computed with.
    """
    scope = Scope.of(schema)
    match predicate:
        case And(children):
            return And(tuple(bind(child, scope) for child in children))
        case Or(children):
            return Or(tuple(bind(child, scope) for child in children))
        case Not(inner):
            return Not(bind(inner, scope))
        case Comparison(op, left, right):
            sides = (_folded(bind_value(left, scope)), _folded(bind_value(right, scope)))
            return _comparison(op, *_of_one_length(sides, scope))
        case In(value, items):
            first, *others = _of_one_length((bind_value(value, scope), *items), scope)
            return _in(first, [item for item in others if isinstance(item, Literal)])
        case IsNull(value):
            found = bind_value(value, scope)
            return BoolLiteral(found.value is None) if isinstance(found, Literal) else IsNull(found)
        case Like(value, pattern, escape):
            return _like(bind_value(value, scope), pattern, escape)
        case BoolLiteral():
            return predicate


def bind_value(value: Value, schema: StructType | Scope) -> Value:
    """The value with its columns found and its type; see :func:`bind`."""
    scope = Scope.of(schema)
    match value:
        case Column(path):
            found = scope.resolve(path)
            if isinstance(found.type, UnknownType):
                raise UnsupportedFeatureError([f"the type {found.type} of column {'.'.join(found.path)}"], "read")
            return found
        case Cast(child):
            return bind_value(child, scope)
        case Convert(child, target, lenient):
            return _convert(bind_value(child, scope), target, lenient)
        case Call(name, args):
            return _call(name, tuple(bind_value(arg, scope) for arg in args))
        case Case(branches, otherwise):
            bound = [(bind(condition, scope), bind_value(found, scope)) for condition, found in branches]
            return _case(bound, bind_value(otherwise, scope))
        case Condition(predicate):
            return as_value(bind(predicate, scope))
    return value


def resolve_column(path: tuple[str, ...], schema: StructType) -> Column:
    """Find a column or a field of a struct, its names in any case; its type is that of what it stores.

    Raises:
        ColumnNotFoundError: there is none.
        PredicateError: the path goes into an array or a map.
    """
    found = Scope.of(schema).resolve(path)
    return Column(found.path, STRING) if has_collation(found.type) else found


def as_value(predicate: Predicate) -> Value:
    """A condition as a boolean value."""
    return Literal(predicate.value, BOOLEAN) if isinstance(predicate, BoolLiteral) else Condition(predicate)


# --- values ------------------------------------------------------------------------------------------------------


def _convert(value: Value, target: DataType, lenient: bool) -> Value:
    if value.type == target:
        return value
    if not convertible(value.type, target):
        raise PredicateError(f"cannot cast {value} ({value.type}) to {target}")
    if not isinstance(value, Literal):
        return Convert(value, target, lenient)
    if lenient:
        return Literal(convert_value(value.value, value.type, target, lenient=True), target)
    return literal_as(value, target)


def _call(name: str, args: tuple[Value, ...]) -> Value:
    for arg in args:
        _no_collation(arg)  # what a function makes of it has the collation, too
    kinds = [arg.type for arg in args]
    if name in ("+", "-", "*") and (found := interval_call(name, args)) is not None:
        return typed_call(*found)
    if name in ("concat", "reverse") and any(isinstance(kind, ArrayType) for kind in kinds):
        return typed_call(f"array_{name}", args)
    if name in ("+", "-") and DATE in kinds and len(args) == 2:
        return _date_arithmetic(name, args)
    call = typed_call(name, args)
    if call.name == "coalesce" and len(call.args) == 1:
        return call.args[0]
    return call


def _date_arithmetic(name: str, args: tuple[Value, ...]) -> Value:
    left, right = args
    if name == "+" and right.type == DATE:
        left, right = right, left
    if left.type != DATE or right.type not in INTEGRAL:
        raise PredicateError(f"{args[0]} ({args[0].type}) {name} {args[1]} ({args[1].type}) is not supported here")
    return typed_call("date_add" if name == "+" else "date_sub", (left, right))


def _case(branches: Sequence[tuple[Predicate, Value]], otherwise: Value) -> Value:
    kind = common_type([value for _, value in branches] + [otherwise], "CASE")
    return Case(tuple((condition, coerce(value, kind)) for condition, value in branches), coerce(otherwise, kind), kind)


def _folded(value: Value) -> Value:
    """A value of constants as one constant, where it has one; so that it can be looked up in statistics."""
    if isinstance(value, Literal) or columns(value):
        return value
    try:
        return Literal(value_of(value, {}), value.type)
    except ExpressionError:
        return value


# --- conditions --------------------------------------------------------------------------------------------------


def _comparison(op: str, left: Value, right: Value) -> Predicate:
    _comparable(left)
    _comparable(right)
    if isinstance(left, Literal) and isinstance(right, Literal):
        common = _common(left, right)
        return BoolLiteral(compare(op, literal_as(left, common).value, literal_as(right, common).value))
    for one, other in ((left, right), (right, left)):
        if _always_null(one):
            if op != "<=>":
                return NULL
            return (
                BoolLiteral(_always_null(other)) if _always_null(other) or isinstance(other, Literal) else IsNull(other)
            )
    common = _common(left, right)
    return Comparison(op, _as(left, common), _as(right, common))


def _of_one_length(sides: tuple[Value, ...], scope: Scope) -> tuple[Value, ...]:
    """The sides of a comparison, with char(n) columns and constants padded to the longest of all.

    Sides of other kinds leave all of them unchanged.
    """
    lengths = [scope.char_length(side) for side in sides]
    if all(length is None for length in lengths):
        return sides
    known = [length for length in lengths if length is not None]
    if len(known) + sum(isinstance(side, Literal) for side in sides) < len(sides):
        return sides
    texts = [side.value for side in sides if isinstance(side, Literal) and isinstance(side.value, str)]
    longest = max(known + [len(text) for text in texts])
    return tuple(_padded(side, length, longest) for side, length in zip(sides, lengths, strict=True))


def _padded(side: Value, length: int | None, longest: int) -> Value:
    if isinstance(side, Literal) and isinstance(side.value, str):
        return Literal(padded(side.value, longest), STRING)
    return side if length is None or length == longest else typed_call("rpad", (side, Literal(longest, INTEGER)))


def _always_null(value: Value) -> bool:
    return value.value is None if isinstance(value, Literal) else value.type == VOID


def _in(value: Value, items: Sequence[Literal]) -> Predicate:
    if isinstance(value, Literal):
        return disjunction(_comparison("=", value, item) for item in items)
    _comparable(value)
    if not items:
        return FALSE
    if _always_null(value):
        return NULL
    common = value.type
    # Spark widens the type of a string from item to item, in their order.
    for other in [item.type if value.type == STRING else _common(value, item) for item in items]:
        found = wider(common, other) or _with_string(common, other)
        common = found or _refuse(Literal(None, common), Literal(None, other))
    if value.type == STRING and isinstance(common, DecimalType) and common.precision > MAX_PRECISION:
        raise PredicateError(f"{_shown(value)} cannot be compared with numbers of so many digits; cast it")
    return In(_as(value, common), tuple(dict.fromkeys(literal_as(item, common) for item in items)))


def _like(value: Value, pattern: str, escape: str) -> Predicate:
    if value.type != STRING:
        raise PredicateError(f"LIKE needs a string, and {_shown(value)} is not")
    like_tokens(pattern, escape)
    if isinstance(value, Literal):
        return BoolLiteral(evaluate(Like(value, pattern, escape), {}))
    return Like(value, pattern, escape)


def _comparable(value: Value) -> None:
    if is_nested(value.type) or value.type == VARIANT:
        raise PredicateError(f"{_named(value)} is {value.type}; only IS NULL can be asked of it")
    _no_collation(value)


def _no_collation(value: Value) -> None:
    if has_collation(value.type):
        raise PredicateError(
            f"{_named(value)} is {value.type}; strings are compared by their bytes here, so only IS NULL can be asked"
        )


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
    return wider(left.type, right.type) or _with_string(left.type, right.type) or _refuse(left, right)


def _with_string(left: DataType, right: DataType) -> DataType | None:
    """The type in which strings are compared with another type; None if they are not."""
    found = with_string(left, right)
    if found is None or isinstance(found, DecimalType) or not convertible(STRING, found):
        return None
    return found


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


def _refuse(left: Value, right: Value) -> DataType:
    raise PredicateError(f"{_shown(left)} and {_shown(right)} cannot be compared; cast the literal, or quote it")


def _shown(value: Value) -> str:
    if isinstance(value, Literal):
        return str(value.type) if value.value is None else f"{value} ({value.type})"
    return f"{_named(value)} ({value.type})"


def _named(value: Value) -> str:
    return f"column {value}" if isinstance(value, Column) else str(value)


def _as(value: Value, target: DataType) -> Value:
    if isinstance(value, Literal):
        return literal_as(value, target)
    if value.type == target:
        return value
    return Convert(value, target) if value.type == STRING else Cast(value, target)
