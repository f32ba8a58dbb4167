"""deltalake's SQL in Spark's dialect, which refdelta reads.

In deltalake ``"name"`` is a column, a backslash is a character, and ``/`` of two integers is an integer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from refdelta.core.table.types import INTEGRAL
from refdelta.errors import PredicateError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from refdelta.core.table.types import StructType


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
        if isinstance(node, exp.Div) and whole(node.left) and whole(node.right):
            return exp.IntDiv(this=node.left, expression=node.right)
        if isinstance(node, exp.Concat):
            node.set("coalesce", False)
        if isinstance(node, exp.Bracket) and node.args.get("offset") == 1:
            node.set("offset", 0)
        return node

    return str(tree.transform(divided).sql(dialect="spark"))


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


def _column(name: str, schema: StructType) -> str:
    if name in schema:
        return f"`{name}`" if not name.isidentifier() else name
    from sqlglot import exp

    parts = [part.name for part in _parsed(name).find_all(exp.Identifier)]
    if len(parts) > 1 and parts[0] not in schema:
        parts = parts[1:]
    return ".".join(part if part.isidentifier() else f"`{part}`" for part in parts)
