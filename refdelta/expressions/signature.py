"""Entries of SQL functions: their signature, their definition on values, and their columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from refdelta.errors import ExpressionError, PredicateError
from refdelta.expressions.arithmetic import Typed
from refdelta.expressions.coercion import coerce
from refdelta.expressions.expression import Call, Literal, Value
from refdelta.table.types import (
    BOOLEAN,
    BYTE,
    DOUBLE,
    INTEGER,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
)

# --- what functions take -----------------------------------------------------------------------------------------

Typing = Callable[[str, tuple[Value, ...]], Typed]
CLOCK_TYPES: tuple[DataType, ...] = (TIMESTAMP, TIMESTAMP_NTZ)


def int_argument(name: str, value: Value) -> Value:
    """An argument that is an int, or that Spark makes one of.

    Raises:
        PredicateError: it is of another type.
    """
    if value.type not in (INTEGER, SHORT, BYTE, STRING, VOID):
        raise PredicateError(f"{name} takes an int, and {value} is {value.type}")
    return coerce(value, INTEGER, name)


def constant_pattern(name: str, value: Value, check: Callable[[str], object]) -> Literal:
    """An argument that is a constant pattern, or NULL.

    Args:
        name: the function.
        value: the argument.
        check: raises ``PredicateError`` for a pattern that is not supported.

    Raises:
        PredicateError: it is not a constant, or not a string.
    """
    if not isinstance(value, Literal) or value.type not in (STRING, VOID):
        raise PredicateError(f"{name} takes a constant pattern, not {value}")
    if value.value is not None:
        check(value.value)
    return Literal(value.value, STRING)


def takes(*kinds: DataType, gives: DataType) -> Typing:
    """Arguments of these types, or what Spark makes them of."""

    def typed(name: str, args: tuple[Value, ...]) -> Typed:
        pairs = list(zip(args, kinds, strict=False))
        if any(arg.type == BOOLEAN and kind == DOUBLE for arg, kind in pairs):
            raise PredicateError(f"{name} takes numbers, not a boolean")
        return tuple(int_argument(name, a) if k == INTEGER else coerce(a, k, name) for a, k in pairs), gives

    return typed


def constants(typing: Typing) -> Typing:
    """All arguments but the first are constants."""

    def typed(name: str, args: tuple[Value, ...]) -> Typed:
        found, gives = typing(name, args)
        for arg in found[1:]:
            if not isinstance(arg, Literal):
                raise PredicateError(f"{name} takes constants after its first argument, not {arg}")
        return found, gives

    return typed


# --- functions ---------------------------------------------------------------------------------------------------

ANY_NUMBER = 255
"""As the largest number of arguments: any."""

LONGEST_TEXT = 2**28
"""The greatest number of characters in the output of a function: the results of nested calls grow with each level."""


def bounded_text(name: str, characters: int) -> None:
    """Raise ``ExpressionError`` if a function would make a string of more than :data:`LONGEST_TEXT` characters."""
    if characters > LONGEST_TEXT:
        raise ExpressionError(f"{name} would make a string of {characters:,} characters; the limit is {LONGEST_TEXT:,}")


def simple(function: Callable[..., Any]) -> Callable[..., Any]:
    """The definition of a function that needs its values alone, and not the call."""
    return lambda _, *values: function(*values)


Columns = Callable[..., Any]
"""A function of the call and of Arrow arrays, which gives an array. None: the definition decides."""


@dataclass(frozen=True, slots=True)
class Function:
    """One function.

    Attributes:
        arity: the least and the largest number of arguments.
        typing: puts the arguments into the types that it takes, and says what it gives; refuses others.
        value: the definition: the value of a call, from the call and the values of its arguments.
        columns: the same for columns, where Arrow or numpy is at least three times as fast as the definition. It gets
            the call and its arguments as arrays of one length, the first alone with ``constants``. Where it returns
            None or raises ``ArrowInvalid``, the definition is applied to the column.
        size: an upper bound of the bytes that it makes of columns, for functions whose result may be much longer than
            their arguments; it gets what ``columns`` gets.
        strict: whether a null argument makes a null, and further ones are not computed then.
        fails: whether there are values for which it raises ``ExpressionError``.
        backwards: whether the last argument is computed first, as Spark does with divisors.
        constants: whether all arguments but the first are constants.
    """

    arity: tuple[int, int]
    typing: Typing
    value: Callable[..., Any]
    columns: Columns | None = None
    size: Callable[..., int] | None = None
    strict: bool = True
    fails: bool = False
    backwards: bool = False
    constants: bool = False

    def order(self, many: int) -> range:
        """The places of so many arguments, in the order in which they are computed."""
        return range(many - 1, -1, -1) if self.backwards else range(many)

    def of(self, call: Call, values: Sequence[Any]) -> Any:
        """The value of a call.

        Raises:
            ExpressionError: it has none.
        """
        if self.strict and any(value is None for value in values):
            return None
        return self.value(call, *values)


def of_string(function: Callable[[str], Any], gives: DataType = STRING, **more: Any) -> Function:
    """A function of one string; the further arguments are fields of :class:`Function`."""
    return Function((1, 1), takes(STRING, gives=gives), simple(function), **more)


def with_constants(
    function: Callable[..., Any], *kinds: DataType, gives: DataType = STRING, least: int = 0, **more: Any
) -> Function:
    """A function of a string and constants of some types, of which the last may be left out from ``least`` on."""
    typing = constants(takes(STRING, *kinds, gives=gives))
    return Function((least or 1 + len(kinds), 1 + len(kinds)), typing, simple(function), constants=True, **more)
