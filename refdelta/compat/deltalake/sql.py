"""deltalake's SQL in Spark's dialect, which refdelta reads.

In deltalake ``"name"`` is a column, a backslash is a character, and ``/`` of two integers is an integer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from refdelta.compat.deltalake._util import encode_partition_value
from refdelta.errors import InvalidArgumentError, PredicateError
from refdelta.table.types import INTEGRAL, STRING, PrimitiveType

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from refdelta.table.types import StructType


def to_spark(text: Any, schema: StructType) -> Any:
    """An expression or a predicate of deltalake as Spark's; anything but a string is returned unchanged.

    Args:
        text: the SQL.
        schema: the columns, by whose types a division is one of integers.

    Raises:
        PredicateError: the text cannot be parsed.
    """
    if not isinstance(text, str):
        return text
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = _parsed(text)
    except SqlglotError as error:
        raise PredicateError(f"cannot parse {text!r}: {str(error).splitlines()[0]}") from error
    integral = {field.name for field in schema.fields if field.type in INTEGRAL}
    strings = {field.name for field in schema.fields if field.type == STRING}

    def whole(node: Any) -> bool:
        match node:
            case exp.Literal():
                return not node.is_string and node.this.isdigit()
            case exp.Column():
                return node.name in integral
            case exp.Paren() | exp.Neg():
                return whole(node.this)
            case exp.Cast():
                return bool(node.is_type(*exp.DataType.INTEGER_TYPES))
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Mod() | exp.Div() | exp.IntDiv():
                return whole(node.left) and whole(node.right)
        return False

    def divided(node: Any) -> Any:
        if isinstance(node, (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between)):
            _coerce(node, strings)
        if isinstance(node, exp.Div) and whole(node.left) and whole(node.right):
            return exp.IntDiv(this=node.left, expression=node.right)
        if isinstance(node, exp.Concat):
            node.set("coalesce", False)
        if isinstance(node, exp.Bracket) and node.args.get("offset") == 1:
            node.set("offset", 0)
        return node

    return str(tree.transform(divided).sql(dialect="spark"))


def _coerce(node: Any, strings: Collection[str]) -> None:
    """Cast columns of strings that a node compares with numbers, as DataFusion does."""
    from sqlglot import exp

    sides = [node.this, *node.expressions, *(node.args.get(name) for name in ("expression", "low", "high"))]
    kinds = {kind for side in sides if (kind := _number(side))}
    for side in sides if kinds else []:
        if isinstance(side, exp.Column) and side.name in strings:
            side.replace(exp.cast(side.copy(), max(kinds)))


def _number(node: Any) -> str | None:
    """The type in which strings are compared with a literal; None for anything but a number."""
    from sqlglot import exp

    inner = node.this if isinstance(node, exp.Neg) else node
    if not isinstance(inner, exp.Literal) or inner.is_string:
        return None
    return "bigint" if inner.this.isdigit() else "double"


def _parsed(text: str) -> Any:
    """The tree of an expression in DataFusion's SQL: that of PostgreSQL, where backticks quote names, too."""
    from sqlglot.dialects.postgres import Postgres

    class Tokens(Postgres.Tokenizer):
        IDENTIFIERS: ClassVar = ['"', "`"]

    class DataFusion(Postgres):
        Tokenizer = Tokens

    (tree,) = DataFusion().parse(text)
    return tree


def assignments(values: Mapping[str, str] | None, schema: StructType) -> dict[str, str]:
    """Assignments by column: names without the alias of their table and without quotes, expressions as Spark's."""
    if values is None:
        return {}
    return {_column(name, schema): to_spark(value, schema) for name, value in values.items()}


def quoted(name: str) -> str:
    """A name in backticks."""
    return f"`{name.replace('`', '``')}`"


def tried(values: Mapping[str, str], schema: StructType, *, but: Collection[str] = ()) -> dict[str, str]:
    """Assignments in which a value that does not fit its column is null.

    Args:
        values: the assignments, in Spark's SQL.
        schema: the columns. Those with fields or elements are not changed.
        but: columns whose values fit.
    """
    plain = {
        spelled: field.type
        for field in schema
        if isinstance(field.type, PrimitiveType) and field.name not in but
        for spelled in (field.name, quoted(field.name))
    }
    return {
        name: f"try_cast(({value}) AS {_spark_type(plain[name])})" if name in plain else value
        for name, value in values.items()
    }


def _spark_type(kind: Any) -> str:
    return {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}.get(str(kind), str(kind))


def in_texts(filters: Any, schema: StructType) -> Any:
    """A list of conditions, with values for columns of strings as partition values are written.

    Raises:
        ValueError: a list within the list is empty, or the list has both conditions and lists of them.
    """
    if not isinstance(filters, (list, tuple)):
        return filters
    nested = [isinstance(one, list) for one in filters]
    if any(nested):
        if not all(nested):
            raise InvalidArgumentError("filters are conditions, or lists of conditions, and not a mix of both")
        if not all(filters):
            raise InvalidArgumentError("an empty conjunction in the filters: leave it out")
        return [in_texts(one, schema) for one in filters]
    return [_in_text(one, schema) for one in filters]


def _in_text(condition: Any, schema: StructType) -> Any:
    if len(condition) != 3:
        return condition
    name, operator, value = condition
    field = schema.find(name) if isinstance(name, str) else None
    if field is None or field.type != STRING or value is None:
        return condition
    many = isinstance(value, (list, tuple, set, frozenset))
    return name, operator, [encode_partition_value(one) for one in value] if many else encode_partition_value(value)


def _column(name: str, schema: StructType) -> str:
    if name in schema:
        return f"`{name}`" if not name.isidentifier() else name
    from sqlglot import exp

    parts = [part.name for part in _parsed(name).find_all(exp.Identifier)]
    if len(parts) > 1 and parts[0] not in schema:
        parts = parts[1:]
    return ".".join(part if part.isidentifier() else f"`{part}`" for part in parts)
