"""Expressions as a typed tree: values, conditions over them, and which columns both look at.

The tree says what was written, in Spark's words; :mod:`refdelta.expressions.predicate` says what a condition is
for one row, :mod:`refdelta.expressions.functions` what a function is. A tree comes from
:mod:`refdelta.expressions.binding`, which gives every value its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec
from msgspec import structs

from refdelta.expressions.sql_text import literal_sql, quoted, string_sql, type_sql
from refdelta.table.types import BOOLEAN, VOID, DataType

# --- values ------------------------------------------------------------------------------------------------------


class Column(msgspec.Struct, frozen=True):
    """A column or a field of a struct: its path of names, as the schema spells them once it is bound."""

    path: tuple[str, ...]
    type: DataType = VOID

    def __str__(self) -> str:
        return ".".join(quoted(part) for part in self.path)


class Literal(msgspec.Struct, frozen=True):
    """A constant; ``value`` is an internal value of ``type``, or None."""

    value: Any
    type: DataType

    def __str__(self) -> str:
        return literal_sql(self.value, self.type)


class Cast(msgspec.Struct, frozen=True):
    """A value in a wider type, if both sides of an operator need one. Keeps the order of values; added by binding, not
    by users.
    """

    child: Value
    type: DataType

    def __str__(self) -> str:
        return str(self.child)


class Convert(msgspec.Struct, frozen=True):
    """CAST as Spark's ANSI mode has it, where what does not fit is an error; or null, where ``lenient``: TRY_CAST."""

    child: Value
    type: DataType
    lenient: bool = False

    def __str__(self) -> str:
        return f"{'TRY_' if self.lenient else ''}CAST({self.child} AS {type_sql(self.type)})"


class Call(msgspec.Struct, frozen=True):
    """A function or an operator of :mod:`refdelta.expressions.functions`, by its name there."""

    name: str
    args: tuple[Value, ...]
    type: DataType = VOID

    def __str__(self) -> str:
        if self.name == "field":
            return f"{self.args[0]}.{quoted(str(getattr(self.args[1], 'value', '')))}"
        if self.name in ("array_concat", "array_reverse"):
            return f"{self.name[6:]}({', '.join(map(str, self.args))})"
        if self.name in FORMS:
            return FORMS[self.name].format(*self.args)
        if self.name in OPERATORS:
            shown = [f"{arg}" for arg in self.args]
            return f"(- {shown[0]})" if len(shown) == 1 else f"({shown[0]} {self.name} {shown[1]})"
        return f"{self.name}({', '.join(map(str, self.args))})"


OPERATORS = frozenset(["+", "-", "*", "/", "%", "div", "&", "|", "^"])
"""The calls that are written between their arguments; ``-`` before one, too."""

FORMS = {
    "~": "(~ {0})",
    "[]": "{0}[{1}]",
    "btrim": "trim(BOTH {1} FROM {0})",
    "ltrimmed": "trim(LEADING {1} FROM {0})",
    "rtrimmed": "trim(TRAILING {1} FROM {0})",
    "locate": "locate({1}, {0}, {2})",
    "seconds": "extract(SECOND FROM {0})",
    "yearofweek": "extract(YEAROFWEEK FROM {0})",
    "dayofweek_iso": "extract(DOW_ISO FROM {0})",
    "moved": "({0} + {1})",
    "moved back": "({0} - {1})",
    "apart": "({0} - {1})",
    "interval plus": "({0} + {1})",
    "interval minus": "({0} - {1})",
    "interval times": "({0} * {1})",
}
"""The calls that Spark's SQL writes in forms of their own."""


class Case(msgspec.Struct, frozen=True):
    """CASE: the value of the first branch whose condition is true, else ``otherwise``; the values of other branches are
    not computed for the row.
    """

    branches: tuple[tuple[Predicate, Value], ...]
    otherwise: Value
    type: DataType = VOID

    def __str__(self) -> str:
        parts = " ".join(f"WHEN {condition} THEN {value}" for condition, value in self.branches)
        return f"CASE {parts} ELSE {self.otherwise} END"


class Condition(msgspec.Struct, frozen=True):
    """A condition as a value."""

    predicate: Predicate
    type: DataType = BOOLEAN

    def __str__(self) -> str:
        return f"({self.predicate})"


Value: TypeAlias = Column | Literal | Cast | Convert | Call | Case | Condition

# --- conditions --------------------------------------------------------------------------------------------------


class BoolLiteral(msgspec.Struct, frozen=True):
    """True, False, or None for NULL."""

    value: bool | None

    def __str__(self) -> str:
        return "NULL" if self.value is None else str(self.value).upper()


class Comparison(msgspec.Struct, frozen=True):
    """``left op right``; ``op`` is one of = <> < <= > >= and <=>, which takes nulls for equal.

    A boolean value stands for a condition as ``value = TRUE``.
    """

    op: str
    left: Value
    right: Value

    def __str__(self) -> str:
        return f"{self.left} {self.op} {self.right}"


class In(msgspec.Struct, frozen=True):
    """``child IN (items)``; null among the items makes a miss unknown."""

    child: Value
    items: tuple[Literal, ...]

    def __str__(self) -> str:
        return f"{self.child} IN ({', '.join(map(str, self.items))})"


class IsNull(msgspec.Struct, frozen=True):
    """``child IS NULL``: never itself null."""

    child: Value

    def __str__(self) -> str:
        return f"{self.child} IS NULL"


class Like(msgspec.Struct, frozen=True):
    """``child LIKE pattern ESCAPE escape``."""

    child: Value
    pattern: str
    escape: str = "\\"

    def __str__(self) -> str:
        tail = "" if self.escape == "\\" else f" ESCAPE {string_sql(self.escape)}"
        return f"{self.child} LIKE {string_sql(self.pattern)}{tail}"


class Not(msgspec.Struct, frozen=True):
    """NOT: null stays null."""

    child: Predicate

    def __str__(self) -> str:
        return f"NOT ({self.child})"


class And(msgspec.Struct, frozen=True):
    """All of them: False if one is, else null if one is."""

    children: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " AND ".join(f"({child})" for child in self.children)


class Or(msgspec.Struct, frozen=True):
    """One of them: True if one is, else null if one is."""

    children: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " OR ".join(f"({child})" for child in self.children)


Predicate: TypeAlias = BoolLiteral | Comparison | In | IsNull | Like | Not | And | Or
Expression: TypeAlias = Value | Predicate

# --- the tree ----------------------------------------------------------------------------------------------------


def children(node: Expression) -> tuple[Expression, ...]:
    """The children of a node."""
    match node:
        case And(parts) | Or(parts):
            return parts
        case Comparison(_, left, right):
            return left, right
        case Call(_, args):
            return args
        case Case(branches, otherwise):
            return (*(part for branch in branches for part in branch), otherwise)
        case Condition(predicate):
            return (predicate,)
        case Not(child):
            return (child,)
        case In(value) | IsNull(value) | Like(value) | Cast(value) | Convert(value):
            return (value,)
    return ()


def rebuilt(node: Any, change: Callable[[Any], Any]) -> Any:
    """A tree in which ``change`` has replaced each node, the inner ones first."""

    def inner(child: Any) -> Any:
        return rebuilt(child, change)

    match node:
        case And(parts) | Or(parts):
            node = type(node)(tuple(map(inner, parts)))
        case Comparison(_, left, right):
            node = structs.replace(node, left=inner(left), right=inner(right))
        case Call(_, args):
            node = structs.replace(node, args=tuple(map(inner, args)))
        case Case(branches, otherwise):
            pairs = tuple((inner(condition), inner(value)) for condition, value in branches)
            node = structs.replace(node, branches=pairs, otherwise=inner(otherwise))
        case Condition(predicate):
            node = structs.replace(node, predicate=inner(predicate))
        case In(child) | IsNull(child) | Like(child) | Cast(child) | Convert(child) | Not(child):
            node = structs.replace(node, child=inner(child))
    return change(node)


def walk(node: Expression) -> Iterator[Expression]:
    """A node and all that is in it, in the order in which it is written."""
    todo = [node]
    while todo:
        node = todo.pop()
        yield node
        todo.extend(reversed(children(node)))


def column_refs(node: Expression) -> Iterator[Column]:
    """Every mention of a column."""
    return (part for part in walk(node) if isinstance(part, Column))


def columns(node: Expression) -> frozenset[tuple[str, ...]]:
    """The paths of the columns that an expression looks at."""
    return frozenset(column.path for column in column_refs(node))


def to_sql(node: Expression) -> str:
    """The expression in Spark's dialect; parsing it gives an equal tree."""
    return str(node)
