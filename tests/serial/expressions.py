"""Expressions over the rows of the small tables: evaluated in Python with SQL's three values, and written as SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

Value = int | bool | None


class UserError(Exception):
    """A statement that SQL does not allow, or that fails over a row."""


@dataclass(frozen=True)
class Column:
    """A column, by its name and in a MERGE the alias before it."""

    name: str

    def __str__(self) -> str:
        return self.name

    def of(self, row: Mapping[str, Value]) -> Value:
        try:
            return row[self.name]
        except KeyError:
            raise UserError(f"no column {self.name}") from None


@dataclass(frozen=True)
class Literal:
    value: Value

    def __str__(self) -> str:
        return "NULL" if self.value is None else str(self.value)

    def of(self, _row: Mapping[str, Value]) -> Value:
        return self.value


@dataclass(frozen=True)
class Compute:
    """``+`` or ``div`` of two expressions."""

    operator: str
    left: Expression
    right: Expression

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"

    def of(self, row: Mapping[str, Value]) -> Value:
        left, right = self.left.of(row), self.right.of(row)
        if left is None or right is None:
            return None
        if self.operator == "+":
            return left + right
        if right == 0:
            raise UserError("division by zero")
        return int(left / right)


@dataclass(frozen=True)
class Compare:
    """One of ``=``, ``<>``, ``<``, ``<=``, ``>``, ``>=``, ``<=>``."""

    operator: str
    left: Expression
    right: Expression

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"

    def of(self, row: Mapping[str, Value]) -> Value:
        left, right = self.left.of(row), self.right.of(row)
        if self.operator == "<=>":
            return left == right if (left is None) == (right is None) else False
        if left is None or right is None:
            return None
        match self.operator:
            case "=":
                return left == right
            case "<>":
                return left != right
            case "<":
                return left < right
            case "<=":
                return left <= right
            case ">":
                return left > right
        return left >= right


@dataclass(frozen=True)
class IsNull:
    operand: Expression
    negated: bool = False

    def __str__(self) -> str:
        return f"{self.operand} IS {'NOT ' if self.negated else ''}NULL"

    def of(self, row: Mapping[str, Value]) -> Value:
        return (self.operand.of(row) is None) != self.negated


@dataclass(frozen=True)
class All:
    """Conditions joined by AND."""

    parts: tuple[Expression, ...]

    def __str__(self) -> str:
        return " AND ".join(f"({part})" for part in self.parts)

    def of(self, row: Mapping[str, Value]) -> Value:
        values = [part.of(row) for part in self.parts]
        return False if False in values else None if None in values else True


@dataclass(frozen=True)
class Any:
    """Conditions joined by OR."""

    parts: tuple[Expression, ...]

    def __str__(self) -> str:
        return " OR ".join(f"({part})" for part in self.parts)

    def of(self, row: Mapping[str, Value]) -> Value:
        values = [part.of(row) for part in self.parts]
        return True if True in values else None if None in values else False


Expression = Column | Literal | Compute | Compare | IsNull | All | Any
