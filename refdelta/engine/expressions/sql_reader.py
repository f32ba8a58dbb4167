"""Reading an expression in Spark's SQL into a typed tree.

sqlglot parses the text. A construct is accepted only if a table here, in :mod:`refdelta.engine.expressions.sql_dialect`
or in :mod:`refdelta.core.expressions.functions` lists it; every other one is refused with its position. To support a
further construct, add an entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlglot import exp
from sqlglot.errors import SqlglotError

from refdelta.core.expressions import partition_values
from refdelta.core.expressions.binding import bind, bind_value, cast_literal
from refdelta.core.expressions.expression import Expression, children
from refdelta.core.expressions.functions import ALIASES, FUNCTIONS
from refdelta.core.expressions.predicate import (
    NULL,
    And,
    BoolLiteral,
    Call,
    Case,
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
)
from refdelta.core.expressions.scope import Scope
from refdelta.core.table.types import BINARY, BOOLEAN, DATE, DOUBLE, STRING, VOID, DataType, DecimalType, is_numeric
from refdelta.engine.expressions.sql_dialect import (
    ARITHMETIC,
    CAST_FUNCTIONS,
    CLOCKS,
    COMPARISONS,
    EXTRACTED,
    SHORTHANDS,
    TYPES,
    SqlText,
    is_decimal,
    number_literal,
    written,
)
from refdelta.errors import ColumnNotFoundError, PredicateError, suggestion

# The most levels of a tree: recursive functions need some frames for each, and Python has about a thousand.
_MAX_DEPTH = 150
# The most nodes that repeated operands may add to a tree.
_MOST_REPEATED = 20_000
_T = TypeVar("_T", Predicate, Value)
_NOTHING = Literal(None, VOID)


class SqlReader:
    """Reads one expression in a scope; see :func:`refdelta.engine.expressions.sql.parse_predicate`."""

    def __init__(self, sql: str, scope: Scope, now: int, what: str = "predicate"):
        self.text, self.scope, self.now = SqlText(sql, what), scope, now
        self._conditions: dict[type[exp.Expr], Callable[[Any], Predicate]] = {
            exp.And: self._both,
            exp.Or: self._both,
            exp.Not: lambda node: Not(self._condition(node.this)),
            exp.In: self._membership,
            exp.Between: self._between,
            exp.Is: self._is_test,
            exp.NullSafeNEQ: lambda node: Not(Comparison("<=>", *self._sides(node))),
            exp.Escape: self._escape,
            exp.Like: self._like,
        }
        self._values: dict[type[exp.Expr], Callable[[Any], Value]] = {
            exp.Paren: lambda node: self._value(node.this),
            exp.Column: self._column,
            exp.Dot: self._column,
            exp.Literal: lambda node: Literal(node.name, STRING) if node.is_string else number_literal(node.name),
            exp.RawString: lambda node: Literal(node.name, STRING),
            exp.Null: lambda _: _NOTHING,
            exp.Boolean: lambda node: Literal(bool(node.this), BOOLEAN),
            exp.HexString: lambda node: Literal(self._hex(node), BINARY),
            exp.Neg: self._negative,
            exp.Concat: lambda node: self._concat(node.expressions),
            exp.DPipe: lambda node: self._concat([node.this, node.expression]),
            exp.Cast: self._cast,
            exp.TryCast: self._cast,
            exp.Case: self._case,
            exp.If: self._if,
            exp.Anonymous: self._function,
            exp.Extract: self._extract,
            exp.Trim: self._trim,
            exp.Substring: self._substring,
        }

    def read(self) -> Predicate:
        """The text as a predicate, bound. Raises ``PredicateError`` and ``ColumnNotFoundError``."""
        return self._read(lambda tree: bind(self._bounded(self._condition(tree)), self.scope))

    def read_value(self) -> Value:
        """The text as a value, bound. Raises ``PredicateError`` and ``ColumnNotFoundError``."""
        return self._read(lambda tree: bind_value(self._bounded(self._value(tree)), self.scope))

    def _read(self, made: Callable[[exp.Expr], _T]) -> _T:
        tree = self.text.parsed()
        try:
            found = made(tree)
        except ColumnNotFoundError:
            raise
        except RecursionError:
            raise self.text.too_deep() from None
        except PredicateError as error:
            raise PredicateError(f"{self.text.quoted}: {error}") from None
        except SqlglotError:
            # sqlglot cannot write what it has parsed, so that it is unsupported here too.
            raise PredicateError(f"{self.text.quoted} holds something that is not supported here") from None
        if _Size.of(found).levels > _MAX_DEPTH:
            raise self.text.too_deep()
        return found

    def _bounded(self, tree: _T) -> _T:
        """The tree, unless it is too deep or repeats operands too often: BETWEEN, nullif, IN and CASE with an operand
        use it several times, and nested in each other thousands of times.
        """
        size = _Size.of(tree)
        if size.levels > _MAX_DEPTH:
            raise PredicateError("it nests too deeply")
        if size.all - size.distinct > _MOST_REPEATED:
            raise PredicateError("operands of BETWEEN, nullif, IN or CASE are nested in each other too deeply")
        return tree

    # --- conditions ---

    def _condition(self, node: exp.Expr) -> Predicate:
        op = COMPARISONS.get(type(node))
        if op is not None:
            return Comparison(op, *self._sides(node))
        reader = self._conditions.get(type(node))
        if reader is not None:
            return reader(node)
        match node:
            case exp.Paren():
                return self._condition(node.this)
            case exp.Literal():
                raise self.text.unsupported(node)
        value = self._value(node)
        if isinstance(value, Literal) and (value.value is None or value.type == BOOLEAN):
            return BoolLiteral(value.value)
        return Comparison("=", value, Literal(True, BOOLEAN))

    def _sides(self, node: exp.Expr) -> tuple[Value, Value]:
        return self._value(node.this), self._value(node.expression)

    def _both(self, node: exp.Expr) -> Predicate:
        # The tree of a long chain is deep on its left side.
        kind = type(node)
        parts: list[exp.Expr] = []
        while isinstance(node, kind):
            parts.append(node.expression)
            node = node.this
        parts.append(node)
        children = tuple(self._condition(part) for part in reversed(parts))
        return And(children) if kind is exp.And else Or(children)

    def _membership(self, node: exp.In) -> Predicate:
        if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
            raise self.text.unsupported(node)
        value = self._value(node.this)
        items = [self._value(item) for item in node.expressions]
        constants = tuple(item for item in items if isinstance(item, Literal))
        if len(constants) == len(items):
            return In(value, constants)
        return Or(tuple(Comparison("=", value, item) for item in items))

    def _between(self, node: exp.Between) -> Predicate:
        if node.args.get("symmetric"):
            raise self.text.unsupported(node, "BETWEEN SYMMETRIC")
        value = self._value(node.this)
        low, high = self._value(node.args["low"]), self._value(node.args["high"])
        return And((Comparison(">=", value, low), Comparison("<=", value, high)))

    def _is_test(self, node: exp.Is) -> Predicate:
        right = node.expression
        if isinstance(right, exp.Null):
            return IsNull(self._value(node.this))
        if isinstance(right, exp.Boolean):
            return Comparison("<=>", self._value(node.this), Literal(bool(right.this), BOOLEAN))
        raise self.text.unsupported(node)

    def _escape(self, node: exp.Escape) -> Predicate:
        if not isinstance(node.this, exp.Like) or not isinstance(node.expression, exp.Literal):
            raise self.text.unsupported(node)
        if len(node.expression.name) != 1:
            raise PredicateError(f"ESCAPE takes one character, not {node.expression.name!r}{self.text.place(node)}")
        return self._like(node.this, node.expression.name)

    def _like(self, node: exp.Like, escape: str = "\\") -> Predicate:
        pattern = node.expression
        if isinstance(pattern, exp.Null):
            return NULL
        if not isinstance(pattern, exp.Literal | exp.RawString):
            raise self.text.unsupported(node, "LIKE with anything but a constant pattern")
        like = Like(self._value(node.this), pattern.name, escape)
        return Not(like) if node.args.get("negate") else like

    # --- values ---

    def _value(self, node: exp.Expr) -> Value:
        if type(node) in ARITHMETIC:
            return self._arithmetic(node)
        reader = self._values.get(type(node))
        if reader is not None:
            return reader(node)
        if type(node) in COMPARISONS or type(node) in self._conditions:
            return Condition(self._condition(node))
        raise self.text.unsupported(node)

    def _arithmetic(self, node: exp.Expr) -> Value:
        # The tree of a long sum is deep on its left side.
        operands: list[tuple[str, exp.Expr]] = []
        while (op := ARITHMETIC.get(type(node))) is not None:
            operands.append((op, node.expression))
            node = node.this
        value = self._value(node)
        for op, operand in reversed(operands):
            value = Call(op, (value, self._value(operand)))
        return value

    def _column(self, node: exp.Expr) -> Value:
        if isinstance(node, exp.Column) and not node.args.get("table") and not node.this.args.get("quoted"):
            # Spark accepts these names without brackets, unless a column has the name.
            name = node.name.lower()
            if name in CLOCKS and not any(name in schema for _, schema in self.scope.relations):
                return self._clock(name)
        return Column(tuple(self._path(node)))

    def _path(self, node: exp.Expr) -> Iterator[str]:
        match node:
            case exp.Dot():
                yield from self._path(node.this)
                yield from self._path(node.expression)
            case exp.Column():
                for part in node.parts:
                    yield from self._path(part)
            case exp.Identifier():
                yield node.name
            case _:
                raise self.text.unsupported(node)

    def _clock(self, name: str) -> Literal:
        kind = CLOCKS[name]
        return Literal(self.now // partition_values.DAY if kind == DATE else self.now, kind)

    def _concat(self, parts: list[exp.Expr]) -> Value:
        values = tuple(self._value(part) for part in parts)
        texts = [value.value for value in values if isinstance(value, Literal) and value.type == STRING]
        # Adjacent strings are one string.
        return Literal("".join(texts), STRING) if len(texts) == len(values) else Call("concat", values)

    def _negative(self, node: exp.Neg) -> Value:
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return number_literal("-" + inner.name)
        if isinstance(inner, exp.Cast) and isinstance(inner.this, exp.Literal) and not inner.args.get("safe"):
            # The suffix of -9223372036854775808L is parsed as a cast, and the number without its sign does not fit.
            inner = inner.copy()
            inner.this.set("this", "-" + inner.this.name)
            return self._cast(inner)
        value = self._value(inner)
        if isinstance(value, Literal) and value.value is not None and is_numeric(value.type):
            return Literal(-value.value, value.type)
        return Call("-", (value,))

    def _hex(self, node: exp.HexString) -> bytes:
        digits = node.name
        try:
            return bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits)
        except ValueError:
            raise PredicateError(f"X'{digits}' is not hexadecimal{self.text.place(node)}") from None

    def _cast(self, node: exp.Cast) -> Value:
        target = self._type(node.args["to"], node)
        value = self._value(node.this)
        lenient = bool(node.args.get("safe"))
        if isinstance(value, Literal) and not lenient:
            return Literal(cast_literal(value.value, value.type, target), target)
        return Convert(value, target, lenient)

    def _type(self, node: exp.DataType, where: exp.Expr) -> DataType:
        name = node.this.value if isinstance(node.this, exp.DType) else str(node.this)
        if name == "DECIMAL":
            texts = [part.this.name for part in node.expressions]
            numbers = [int(text) for text in texts if text.isdecimal() and len(text) < 10]
            if not node.expressions and isinstance(where.this, exp.Literal):
                return number_literal(where.this.name).type if is_decimal(where.this.name) else DecimalType(10, 0)
            precision, scale = (*numbers, *(10, 0)[len(numbers) :])[:2]
            if len(numbers) != len(node.expressions) or not (1 <= precision <= 38 and scale <= precision):
                raise self.text.unsupported(where, written(node))
            return DecimalType(precision, scale)
        if node.expressions or name not in TYPES:
            raise self.text.unsupported(where, f"the type {written(node)}")
        return TYPES[name]

    def _case(self, node: exp.Case) -> Value:
        branches = []
        operand = None if node.this is None else self._value(node.this)
        for branch in node.args["ifs"]:
            if operand is None:
                condition = self._condition(branch.this)
            else:
                condition = Comparison("=", operand, self._value(branch.this))
            branches.append((condition, self._value(branch.args["true"])))
        default = node.args.get("default")
        return Case(tuple(branches), _NOTHING if default is None else self._value(default))

    def _if(self, node: exp.If) -> Value:
        if node.args.get("false") is None:
            raise self.text.unsupported(node, "IF without a third argument")
        return Case(((self._condition(node.this), self._value(node.args["true"])),), self._value(node.args["false"]))

    # --- functions ---

    def _function(self, node: exp.Anonymous) -> Value:
        name, args = str(node.this).lower(), node.expressions
        if name in CLOCKS and not args:
            return self._clock(name)
        if name in CAST_FUNCTIONS and len(args) == 1:
            return Convert(self._value(args[0]), CAST_FUNCTIONS[name])
        if len(args) == SHORTHANDS.get(name):
            return self._shorthand(name, [self._value(arg) for arg in args])
        name = ALIASES.get(name, name)
        if name not in FUNCTIONS:
            advice = suggestion(name, [*FUNCTIONS, *ALIASES, *SHORTHANDS, *CAST_FUNCTIONS, *CLOCKS])
            raise self.text.unsupported(node, advice=advice)
        return Call(name, tuple(self._value(arg) for arg in args))

    def _shorthand(self, name: str, args: list[Value]) -> Value:
        first = args[0]
        match name:
            case "isnull":
                return Condition(IsNull(first))
            case "isnotnull":
                return Condition(Not(IsNull(first)))
            case "isnan":
                return Condition(Comparison("<=>", first, Literal(math.nan, DOUBLE)))
            case "nullif":
                return Case(((Comparison("=", first, args[1]), _NOTHING),), first)
        return Case(((Not(IsNull(first)), args[1]),), args[2])

    def _extract(self, node: exp.Extract) -> Value:
        name = EXTRACTED.get(node.name.lower())
        if name is None:
            raise self.text.unsupported(node)
        return Call(name, (self._value(node.expression),))

    def _trim(self, node: exp.Trim) -> Value:
        if node.args.get("expression") is not None:
            raise self.text.unsupported(node, "TRIM of anything but blanks")
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position")), "trim")
        return Call(name, (self._value(node.this),))

    def _substring(self, node: exp.Substring) -> Value:
        parts = (node.this, node.args.get("start"), node.args.get("length"))
        return Call("substring", tuple(self._value(part) for part in parts if part is not None))


@dataclass(frozen=True, slots=True)
class _Size:
    """The size of a tree.

    Attributes:
        distinct: the number of nodes.
        all: the number of nodes if a shared node counts each time.
        levels: the depth.
    """

    distinct: int
    all: int
    levels: int

    @classmethod
    def of(cls, root: Expression) -> _Size:
        # Without recursion, since the tree may be too deep for the stack.
        found: dict[int, tuple[int, int]] = {}
        todo: list[tuple[Expression, bool]] = [(root, False)]
        while todo:
            node, below_is_known = todo.pop()
            if id(node) in found:
                continue
            below = children(node)
            if below_is_known:
                sizes = [found[id(child)] for child in below]
                found[id(node)] = (
                    1 + sum(count for count, _ in sizes),
                    1 + max((level for _, level in sizes), default=0),
                )
            else:
                todo.append((node, True))
                todo.extend((child, False) for child in below)
        return cls(len(found), *found[id(root)])
