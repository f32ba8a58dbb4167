"""Reading an expression in Spark's SQL into a typed tree.

sqlglot parses the text. A construct is accepted only if a table here, in :mod:`refdelta.expressions.sql_dialect`
or in :mod:`refdelta.expressions.functions` lists it; every other one is refused with its position. To support a
further construct, add an entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlglot import exp
from sqlglot.errors import SqlglotError

from refdelta.errors import ColumnNotFoundError, PredicateError, suggestion, unknown_name
from refdelta.expressions.binding import bind, bind_value, cast_literal
from refdelta.expressions.expression import (
    FORMS,
    And,
    BoolLiteral,
    Call,
    Case,
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
    children,
)
from refdelta.expressions.functions import ALIASES, FUNCTIONS
from refdelta.expressions.interval_text import UNITS, interval_literal
from refdelta.expressions.interval_types import DAY_TIME, DAYS, YEAR_MONTH
from refdelta.expressions.predicate import NULL
from refdelta.expressions.scope import Scope
from refdelta.expressions.sql_dialect import (
    ARITHMETIC,
    BITWISE,
    CAST_FUNCTIONS,
    CLOCKS,
    COMPARISONS,
    CONSTANTS,
    EXTRACTED,
    LENIENT_CASTS,
    SHORTHANDS,
    TYPES,
    SqlText,
    is_decimal,
    number_literal,
    written,
)
from refdelta.table import partition_values
from refdelta.table.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    VOID,
    DataType,
    DecimalType,
    StructType,
    is_numeric,
)

# The most levels of a tree: recursive functions need some frames for each, and Python has about a thousand.
MOST_LEVELS = 150
# The most nodes that repeated operands may add to a tree.
MOST_REPEATED = 20_000
_T = TypeVar("_T", Predicate, Value)
_NOTHING = Literal(None, VOID)
_REWRITTEN = (
    "position", "date_part", "datepart", "timestampadd", "timestampdiff", "unix_timestamp", "make_interval", "decode",
)  # fmt: skip

KNOWN = frozenset(
    {
        *(name for name in FUNCTIONS if name.isidentifier() and name not in FORMS),
        *(name for name in FORMS if name in ("locate", "btrim")),
        *ALIASES,
        *SHORTHANDS,
        *CAST_FUNCTIONS,
        *LENIENT_CASTS,
        *CLOCKS,
        *CONSTANTS,
        *_REWRITTEN,
    }
    - {"field", "moved", "apart", "array_concat", "array_reverse", "div"}
)
"""The names of all functions that SQL can call."""


class SqlReader:
    """Reads one expression in a scope; see :func:`refdelta.expressions.sql.parse_predicate`."""

    def __init__(self, sql: str, scope: Scope, now: int, what: str = "predicate", *, recorded: bool = False):
        self.text, self.scope, self.now, self.recorded = SqlText(sql, what), scope, now, recorded
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
            exp.ILike: self._like,
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
            exp.RegexpLike: lambda node: Call("rlike", self._sides(node)),
            exp.BitwiseNot: lambda node: Call("~", (self._value(node.this),)),
            exp.Bracket: self._element,
            exp.Interval: self._interval,
        }

    def read(self) -> Predicate:
        """The text as a predicate, bound. Raises ``PredicateError`` and ``ColumnNotFoundError``."""
        return self._read(lambda tree: bind(self._bounded(self._condition(tree, whole=True)), self.scope))

    def read_value(self) -> Value:
        """The text as a value, bound. Raises ``PredicateError`` and ``ColumnNotFoundError``."""
        return self._read(lambda tree: bind_value(self._bounded(self._value(tree)), self.scope))

    def _read(self, made: Callable[[exp.Expr], _T]) -> _T:
        tree = self.text.parsed(self._is_name)
        if not self.recorded:
            self.text.check_quotes(self._is_column)
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
        if _Size.of(found).levels > MOST_LEVELS:
            raise self.text.too_deep()
        return found

    def _is_column(self, name: str) -> bool:
        return any(name in schema for _, schema in self.scope.relations)

    def _is_name(self, name: str) -> bool:
        return self._is_column(name) or any(name.lower() == alias.lower() for alias, _ in self.scope.relations)

    def _bounded(self, tree: _T) -> _T:
        """The tree, unless it is too deep or repeats operands too often: BETWEEN, nullif, IN and CASE with an operand
        use it several times, and nested in each other thousands of times.
        """
        size = _Size.of(tree)
        if size.levels > MOST_LEVELS:
            raise PredicateError("it nests too deeply")
        if size.all - size.distinct > MOST_REPEATED:
            raise PredicateError("operands of BETWEEN, nullif, IN or CASE are nested in each other too deeply")
        return tree

    # --- conditions ---

    def _condition(self, node: exp.Expr, *, whole: bool = False) -> Predicate:
        """A condition; ``whole`` says whether it is the predicate itself, which is no string."""
        op = COMPARISONS.get(type(node))
        if op is not None:
            return Comparison(op, *self._sides(node))
        reader = self._conditions.get(type(node))
        if reader is not None:
            return reader(node)
        match node:
            case exp.Paren():
                return self._condition(node.this, whole=whole)
            case exp.Literal():
                raise self.text.unsupported(node)
        value = self._value(node)
        if isinstance(value, Literal) and (value.value is None or value.type == BOOLEAN):
            return BoolLiteral(value.value)
        if isinstance(value, Condition):
            return value.predicate
        kind = bind_value(value, self.scope).type
        if kind not in (BOOLEAN, VOID, STRING) or (whole and kind == STRING):
            raise PredicateError(
                f"{written(node)}{self.text.place(node)} is {kind}, where a condition is expected: something that is "
                "true or false, such as a comparison"
            )
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
        if not isinstance(node.this, exp.Like | exp.ILike) or not isinstance(node.expression, exp.Literal):
            raise self.text.unsupported(node)
        if len(node.expression.name) != 1:
            raise PredicateError(f"ESCAPE takes one character, not {node.expression.name!r}{self.text.place(node)}")
        return self._like(node.this, node.expression.name)

    def _like(self, node: exp.Like | exp.ILike, escape: str = "\\") -> Predicate:
        pattern = node.expression
        if isinstance(pattern, exp.Any | exp.All):
            inner = pattern.this
            patterns = inner.expressions if isinstance(inner, exp.Tuple) else [inner.unnest()]
            many = tuple(self._like_one(node, one, escape) for one in patterns)
            return Or(many) if isinstance(pattern, exp.Any) else And(many)
        return self._like_one(node, pattern, escape)

    def _like_one(self, node: exp.Like | exp.ILike, pattern: exp.Expr, escape: str) -> Predicate:
        if isinstance(pattern, exp.Null):
            return NULL
        if not isinstance(pattern, exp.Literal | exp.RawString) or (
            isinstance(pattern, exp.Literal) and not pattern.is_string
        ):
            raise self.text.unsupported(node, "LIKE with anything but a constant pattern")
        value = self._value(node.this)
        if isinstance(node, exp.ILike):
            # As Spark has it: both in lower case.
            like = Like(Call("lower", (value,)), pattern.name.lower(), escape)
        else:
            like = Like(value, pattern.name, escape)
        return Not(like) if node.args.get("negate") else like

    # --- values ---

    def _value(self, node: exp.Expr) -> Value:
        if type(node) in ARITHMETIC:
            return self._arithmetic(node)
        if type(node) in BITWISE:
            return self._bitwise(node)
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

    def _bitwise(self, node: exp.Expr) -> Value:
        # sqlglot gives all of them one precedence, and Spark does not.
        for side in (node.this, node.expression):
            if type(side) in BITWISE and type(side) is not type(node):
                raise self.text.unsupported(node, "a mix of bitwise operators without brackets")
        operands: list[exp.Expr] = []
        kind = type(node)
        while type(node) is kind:
            operands.append(node.expression)
            node = node.this
        value = self._value(node)
        for operand in reversed(operands):
            value = Call(BITWISE[kind], (value, self._value(operand)))
        return value

    def _element(self, node: exp.Bracket) -> Value:
        if len(node.expressions) != 1 or node.args.get("offset") is not None:
            raise self.text.unsupported(node, f"{written(node)}")
        value, key = self._value(node.this), node.expressions[0]
        if isinstance(key, exp.Literal) and key.is_string and isinstance(value, Column):
            found = self.scope.find(value.path)
            if found is not None and isinstance(found.type, StructType):
                return Column((*value.path, key.name))
        return Call("[]", (value, self._value(key)))

    def _interval(self, node: exp.Interval) -> Value:
        unit = node.args.get("unit")
        if not isinstance(node.this, exp.Literal):
            raise self.text.unsupported(node, f"{written(node)}", "; write n * INTERVAL '1' DAY for n days")
        return interval_literal(node.this.name, unit.sql().upper() if unit is not None else "")

    def _column(self, node: exp.Expr) -> Value:
        if isinstance(node, exp.Dot) and not isinstance(node.this, exp.Column | exp.Dot | exp.Identifier):
            return self._field(node)
        if isinstance(node, exp.Dot) and any(
            isinstance(part, exp.Bracket | exp.Anonymous | exp.Paren) for part in node.walk()
        ):
            return self._field(node)
        if isinstance(node, exp.Column) and not node.args.get("table") and not node.this.args.get("quoted"):
            # Spark accepts these names without brackets, unless a column has the name.
            name = node.name.lower()
            if name in CLOCKS and not any(name in schema for _, schema in self.scope.relations):
                return self._clock(name)
        return Column(tuple(self._path(node)))

    def _field(self, node: exp.Dot) -> Value:
        if not isinstance(node.expression, exp.Identifier):
            raise self.text.unsupported(node)
        value = self._value(node.this)
        if isinstance(value, Column):
            return Column((*value.path, node.expression.name))
        return Call("field", (value, Literal(node.expression.name, STRING)))

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
        texts = [value.value for value in values if isinstance(value, Literal) and isinstance(value.value, str)]
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
        name = node.this.value if isinstance(node.this, exp.DataType.Type) else str(node.this)
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
        if name in CONSTANTS and not args:
            return Literal(CONSTANTS[name], DOUBLE)
        if name in LENIENT_CASTS and len(args) == 1:
            return Convert(self._value(args[0]), LENIENT_CASTS[name], True)
        rewritten: Callable[[list[exp.Expr]], Value | None] | None = getattr(self, f"_write_{name}", None)
        if rewritten is not None and (found := rewritten(args)) is not None:
            return found
        if name in CAST_FUNCTIONS and len(args) == 1:
            return Convert(self._value(args[0]), CAST_FUNCTIONS[name])
        if len(args) == SHORTHANDS.get(name):
            return self._shorthand(name, [self._value(arg) for arg in args])
        name = ALIASES.get(name, name)
        if name not in FUNCTIONS or (name not in KNOWN and str(node.this).lower() not in KNOWN):
            advice = suggestion(name, sorted(KNOWN))
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
            case "zeroifnull":
                return Call("coalesce", (first, Literal(0, INTEGER)))
            case "nullifzero":
                return Case(((Comparison("=", first, Literal(0, INTEGER)), _NOTHING),), first)
            case "equal_null":
                return Condition(Comparison("<=>", first, args[1]))
            case "positive":
                return first
            case "nullif":
                return Case(((Comparison("=", first, args[1]), _NOTHING),), first)
        return Case(((Not(IsNull(first)), args[1]),), args[2])

    def _extract(self, node: exp.Extract) -> Value:
        name = EXTRACTED.get(node.name.lower())
        if name is None:
            raise self.text.unsupported(node)
        return Call(name, (self._value(node.expression),))

    # --- functions whose arguments have another order or form in Spark ---

    def _write_ltrim(self, args: list[exp.Expr]) -> Value | None:
        return Call("ltrimmed", (self._value(args[1]), self._value(args[0]))) if len(args) == 2 else None

    def _write_rtrim(self, args: list[exp.Expr]) -> Value | None:
        return Call("rtrimmed", (self._value(args[1]), self._value(args[0]))) if len(args) == 2 else None

    def _write_btrim(self, args: list[exp.Expr]) -> Value | None:
        return Call("trim", (self._value(args[0]),)) if len(args) == 1 else None

    def _write_locate(self, args: list[exp.Expr]) -> Value | None:
        if len(args) == 1 and isinstance(args[0], exp.In) and args[0].args.get("field") is not None:
            args = [args[0].this, args[0].args["field"]]
        if len(args) not in (2, 3):
            raise PredicateError(f"locate takes 2 to 3 arguments, not {len(args)}")
        part, text, *start = (self._value(arg) for arg in args)
        if any(isinstance(place, Literal) and place.value is None for place in start):
            raise PredicateError("locate takes the number of a character to start at, not NULL")
        return Call("locate", (text, part, *(start or [Literal(1, INTEGER)])))

    _write_position = _write_locate

    def _write_date_part(self, args: list[exp.Expr]) -> Value | None:
        if len(args) != 2 or not isinstance(args[0], exp.Literal):
            raise PredicateError("date_part takes the name of a field as a constant, and a date or a time")
        name = EXTRACTED.get(args[0].name.lower())
        if name is None:
            raise PredicateError(f"date_part: {unknown_name('field', args[0].name, sorted(EXTRACTED))}")
        return Call(name, (self._value(args[1]),))

    _write_datepart = _write_date_part

    def _unit(self, args: list[exp.Expr]) -> str | None:
        first = args[0] if len(args) == 3 else None
        return first.name.lower() if isinstance(first, exp.Column) and first.name.lower() in UNITS else None

    def _write_timestampadd(self, args: list[exp.Expr]) -> Value | None:
        unit = self._unit(args)
        if unit is None:
            return None
        kind, size = UNITS[unit]
        interval = Call("*", (Literal(size, DAY_TIME if kind == DAYS else kind), self._value(args[1])))
        value = self._value(args[2])
        return Call("+", (Call("coalesce", (value, Literal(None, TIMESTAMP))), interval))

    _write_dateadd = _write_date_add = _write_timestampadd

    def _write_timestampdiff(self, args: list[exp.Expr]) -> Value | None:
        unit = self._unit(args)
        if unit is None:
            return None
        kind, size = UNITS[unit]
        if kind == YEAR_MONTH:
            raise PredicateError("the difference of times in months is not supported here; use months_between")
        ends = [Call("unix_micros", (self._value(arg),)) for arg in (args[2], args[1])]
        return Call("div", (Call("-", tuple(ends)), Literal(size, LONG)))

    _write_datediff = _write_date_diff = _write_timestampdiff

    def _write_unix_timestamp(self, args: list[exp.Expr]) -> Value | None:
        if not args:
            return Literal(self.now // 1_000_000, LONG)
        if len(args) > 2:
            return None
        value = self._value(args[0])
        pattern = self._value(args[1]) if len(args) > 1 else Literal("yyyy-MM-dd HH:mm:ss", STRING)
        return Call("to_unix_timestamp", (value, pattern))

    _write_to_unix_timestamp = _write_unix_timestamp

    def _write_decode(self, args: list[exp.Expr]) -> Value | None:
        if len(args) < 3:
            return None
        first, *rest = (self._value(arg) for arg in args)
        pairs = zip(rest[::2], rest[1::2], strict=False)
        branches = tuple((Comparison("<=>", first, one), value) for one, value in pairs)
        return Case(branches, rest[-1] if len(rest) % 2 else _NOTHING)

    def _write_make_interval(self, args: list[exp.Expr]) -> Value | None:
        values = [self._value(arg) for arg in args]
        numbers = [int(v.value) if isinstance(v, Literal) and isinstance(v.value, int) else None for v in values]
        filled = [*numbers, *[0] * (4 - len(numbers))]
        (years, months, weeks, days), clock = filled[:4], filled[4:]
        if None in numbers or any(clock) or ((years or months) and (weeks or days)):
            raise PredicateError(
                "make_interval takes constants here, of years and months or of weeks and days; for others there are "
                "make_dt_interval(days, hours, minutes, seconds) and make_ym_interval(years, months)"
            )
        if weeks or days:
            return Literal(((weeks or 0) * 7 + (days or 0)) * partition_values.DAY, DAYS)
        return Literal((years or 0) * 12 + (months or 0), YEAR_MONTH)

    def _trim(self, node: exp.Trim) -> Value:
        if node.args.get("expression") is not None:
            name = {"LEADING": "ltrimmed", "TRAILING": "rtrimmed"}.get(str(node.args.get("position")), "btrim")
            return Call(name, (self._value(node.this), self._value(node.args["expression"])))
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
