"""The dialect of SQL: its text parsed by sqlglot, the words that are supported, and errors that quote the text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError

from refdelta.arguments import is_unicode
from refdelta.errors import PredicateError
from refdelta.expressions.expression import Literal
from refdelta.table.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
)

MOST_CHARACTERS = 1_000_000
MOST_TYPES = 8
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET}
_HEX = "[0-9a-fA-F]"
_ESCAPE = rf"\\(u{_HEX}{{4}}|U(?:000{_HEX}|0010){_HEX}{{4}}|[01][0-7]{{2}}|.)"
_ESCAPES = {quote: re.compile(f"{quote}{quote}|{_ESCAPE}", re.DOTALL) for quote in "'\""}
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": r"\%", "_": r"\_"}


class Dialect(Spark):
    """Spark's dialect, in which two quotes inside a string are one quote, as in Spark 4.

    sqlglot's own parsers of functions are switched off: they exist for translation between dialects, and change the
    text. Every function keeps its name and its arguments.
    """

    class Tokenizer(Spark.Tokenizer):  # noqa: D106
        STRING_ESCAPES = ["'", '"', "\\"]  # noqa: RUF012 - the form that sqlglot has
        COMMANDS = set()  # noqa: RUF012 - of statements, whose first word takes the rest as a string

    class Parser(Spark.Parser):  # type: ignore[valid-type, misc]  # noqa: D106
        FUNCTIONS: dict[str, object] = {}  # noqa: RUF012
        NO_PAREN_FUNCTIONS: dict[object, object] = {}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012 - those with a grammar of their own
            name: Spark.Parser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING")
        }

    def tokenize(self, sql: str, *options: Any) -> list[Token]:
        """The tokens of SQL. sqlglot before 30.30 does not decode most of Spark's escapes in a string, so that
        they are decoded here from the text, by one rule for all versions.
        """
        found: list[Token] = []
        for token in super().tokenize(sql, *options):
            if token.token_type == TokenType.DOT and found and found[-1].token_type == TokenType.IN:
                # Before 30.30 a column named in needs backticks.
                found[-1] = _like(found[-1], TokenType.VAR, found[-1].text)
            if token.token_type == TokenType.STRING:
                text = unescaped(sql[token.start : token.end + 1])
                found.append(token if text is None else _like(token, TokenType.STRING, text))
            elif token.token_type == TokenType.VAR and found and sql[found[-1].start : token.end + 1].upper() == "0BD":
                # sqlglot before 30.30 takes 0B for the prefix of bits, and reads 1BD as 1::DECIMAL.
                found += [_like(token, TokenType.DCOLON, "::"), _like(token, TokenType.DECIMAL, "DECIMAL")]
            else:
                found.append(token)
        return found


def _like(token: Token, kind: TokenType, text: str) -> Token:
    """A token at the place of another."""
    return Token(kind, text, token.line, token.col, token.start, token.end, token.comments)


def unescaped(quoted: str) -> str | None:
    """The value of a string in quotes, with Spark's escapes; None without a backslash. Two surrogates are one
    character, a single one is a question mark.
    """
    if "\\" not in quoted or (escapes := _ESCAPES.get(quoted[0])) is None:
        return None

    def character(found: re.Match[str]) -> str:
        code = found[1]
        if code is None:
            return quoted[0]
        if code[0] in "uU" and len(code) > 1:
            return chr(int(code[1:], 16))
        return chr(int(code, 8)) if len(code) == 3 else _ESCAPED.get(code, code)

    text = escapes.sub(character, quoted[1:-1]).encode("utf-16-le", "surrogatepass")
    return text.decode("utf-16-le", "surrogatepass").encode("utf-8", "replace").decode()


COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}

ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "div",
    exp.Mod: "%",
}

BITWISE: dict[type[exp.Expr], str] = {
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
    exp.BitwiseLeftShift: "shiftleft",
    exp.BitwiseRightShift: "shiftright",
}

TYPES: dict[str, DataType] = {
    "TINYINT": BYTE,
    "SMALLINT": SHORT,
    "INT": INTEGER,
    "BIGINT": LONG,
    "FLOAT": FLOAT,
    "DOUBLE": DOUBLE,
    "BOOLEAN": BOOLEAN,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPTZ": TIMESTAMP,
    "TIMESTAMPLTZ": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP_NTZ,
    "TEXT": STRING,
    "VARCHAR": STRING,
    "BINARY": BINARY,
    "VARBINARY": BINARY,
}

CLOCKS: dict[str, DataType] = {
    "current_date": DATE,
    "curdate": DATE,
    "current_timestamp": TIMESTAMP,
    "now": TIMESTAMP,
    "localtimestamp": TIMESTAMP_NTZ,
}
"""Functions of the time at which a statement begins."""

CAST_FUNCTIONS: dict[str, DataType] = {
    "to_date": DATE,
    "date": DATE,
    "to_timestamp": TIMESTAMP,
    "timestamp": TIMESTAMP,
    "to_timestamp_ltz": TIMESTAMP,
    "to_timestamp_ntz": TIMESTAMP_NTZ,
    "tinyint": BYTE,
    "smallint": SHORT,
    "int": INTEGER,
    "bigint": LONG,
    "float": FLOAT,
    "double": DOUBLE,
    "string": STRING,
    "boolean": BOOLEAN,
    "binary": BINARY,
}
"""Functions of one argument that are casts."""

LENIENT_CASTS: dict[str, DataType] = {"try_to_date": DATE, "try_to_timestamp": TIMESTAMP}
"""The same, with null where there is no value."""

CONSTANTS = {"pi": math.pi, "e": math.e}
"""Functions without arguments that are a double."""

SHORTHANDS = {
    "isnull": 1,
    "isnotnull": 1,
    "isnan": 1,
    "nullif": 2,
    "nvl2": 3,
    "zeroifnull": 1,
    "nullifzero": 1,
    "equal_null": 2,
    "positive": 1,
}
"""Functions that are short for a condition or a CASE, and how many arguments they have."""

EXTRACTED = {
    "year": "year",
    "y": "year",
    "quarter": "quarter",
    "month": "month",
    "week": "weekofyear",
    "day": "day",
    "d": "day",
    "doy": "dayofyear",
    "dow": "dayofweek",
    "hour": "hour",
    "minute": "minute",
    "second": "seconds",
    "s": "seconds",
    "sec": "seconds",
    "seconds": "seconds",
    "secs": "seconds",
    "years": "year",
    "yr": "year",
    "yrs": "year",
    "yearofweek": "yearofweek",
    "qtr": "quarter",
    "mon": "month",
    "mons": "month",
    "months": "month",
    "weeks": "weekofyear",
    "w": "weekofyear",
    "days": "day",
    "dayofweek": "dayofweek",
    "dayofweek_iso": "dayofweek_iso",
    "dow_iso": "dayofweek_iso",
    "h": "hour",
    "hours": "hour",
    "hr": "hour",
    "hrs": "hour",
    "m": "minute",
    "min": "minute",
    "mins": "minute",
    "minutes": "minute",
}
"""The fields of EXTRACT and date_part, and their functions; seconds have a fraction there."""

SUBQUERIES = (exp.Exists, exp.Subquery, exp.Select, exp.In)
SUBQUERY_ADVICE = "; read first, in the same transaction, and write with the values that were found"

NAMES: dict[type[exp.Expr], str] = {
    exp.Anonymous: "the function",
    exp.Exists: "a subquery",
    exp.Subquery: "a subquery",
    exp.Select: "a subquery",
    exp.In: "IN with a subquery",
    exp.Interval: "an interval",
    exp.Placeholder: "a parameter",
    exp.Literal: "a constant as a condition",
    exp.Window: "a window function",
    exp.Tuple: "a tuple",
}
"""Names of unsupported constructs, for errors."""


def is_decimal(text: str) -> bool:
    """Whether a string is a number in SQL."""
    return re.fullmatch(r"-?(\d+(?:\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", text, re.ASCII) is not None


def number_literal(text: str) -> Literal:
    """A number with its type in Spark: the narrowest of int, bigint and decimal; double if it has an exponent.

    Raises:
        PredicateError: it is not a number, or beyond the range of the types.
    """
    shown = text if len(text) <= 60 else text[:60] + "..."
    if not is_decimal(text):
        raise PredicateError(f"{shown} is not a number")
    if "e" in text.lower():
        number = float(text)
        if math.isinf(number):
            raise PredicateError(f"{shown} is beyond the range of a double")
        return Literal(number, DOUBLE)
    value = Decimal(text)
    _, digits, exponent = value.as_tuple()
    scale = max(-int(exponent), 0)
    if "." not in text and -(2**63) <= value < 2**63:
        return Literal(int(value), INTEGER if -(2**31) <= value < 2**31 else LONG)
    precision = max(len(digits), scale)
    if precision > 38:
        raise PredicateError(f"{shown} has more than 38 digits")
    return Literal(value, DecimalType(precision, scale))


# --- keywords as names --------------------------------------------------------------------------------------------

_CONSTANT_WORDS = {"null", "true", "false"}
_VALUES = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER}
_AFTER_OPERANDS = frozenset(
    "and or is in like ilike rlike regexp between div then else end when as not xor".split()  # noqa: SIM905
)
_NEGATED = {"in", "like", "ilike", "rlike", "regexp", "between"}


def keyword_columns(tokens: Sequence[Token], is_column: Callable[[str], bool]) -> frozenset[int]:
    """The places of keywords that are names of columns, as Spark has them, which reserves no word.

    A keyword is a name after a dot, and where an operand can begin, if the next token can only follow an operand.

    Args:
        tokens: the tokens of an expression.
        is_column: tells the names of columns and relations.
    """
    found = set()
    complete = negated = False  # whether the tokens so far end with an operand, and with an operand and NOT
    last_when = max((place for place, one in enumerate(tokens) if one.text.lower() == "when"), default=-1)
    for place, one in enumerate(tokens):
        before = tokens[place - 1] if place else None
        after = tokens[place + 1] if place + 1 < len(tokens) else None
        named = False
        if _is_keyword(one):
            if before is not None and before.token_type == TokenType.DOT:
                named = after is None or after.token_type != TokenType.L_PAREN
            elif not complete and not negated and one.text.lower() not in _CONSTANT_WORDS and is_column(one.text):
                typed = before is not None and (before.token_type == TokenType.DCOLON or before.text.lower() == "as")
                typed = typed and place - 1 not in found
                named = not typed and _is_operand(tokens, place, last_when)
        if named:
            found.add(place)
        word = one.text.lower()
        negated = complete and not named and word == "not"  # as in x NOT IN
        complete = named or one.token_type in _VALUES or one.token_type in _CLOSING or word in _CONSTANT_WORDS | {"end"}
    return frozenset(found)


def _is_operand(tokens: Sequence[Token], place: int, last_when: int) -> bool:
    """True if the token after a word can only follow an operand; ``last_when`` is the place of the last WHEN."""
    if place + 1 == len(tokens):
        return True
    word, after = tokens[place].text.lower(), tokens[place + 1]
    following = after.text.lower()
    if after.token_type in _VALUES or after.token_type == TokenType.L_PAREN:
        return False
    if after.token_type in (TokenType.DASH, TokenType.PLUS):
        # Of the words that begin a condition or an operand, these may have a sign after them.
        begins = word == "when" and place > 0 and tokens[place - 1].text.lower() == "case"
        return not (begins or word == "not" or (word == "case" and place < last_when))
    if following == "not":
        return place + 2 < len(tokens) and tokens[place + 2].text.lower() in _NEGATED
    if following == "when":
        return word not in ("case", "when")
    return not following.isidentifier() or following in _AFTER_OPERANDS


def _is_keyword(token: Token) -> bool:
    """True for a word without quotes that is more than a name for sqlglot."""
    plain = token.end - token.start + 1 == len(token.text)
    special = token.token_type not in _VALUES or token.text.upper() in Dialect.Parser.NO_PAREN_FUNCTION_PARSERS
    return plain and special and token.text.isidentifier()


# --- SQL text ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SqlText:
    """An expression in SQL.

    Attributes:
        sql: its text.
        what: its name in errors, such as ``predicate``.
    """

    sql: str
    what: str

    def parsed(self, is_column: Callable[[str], bool] = lambda _: False) -> exp.Expr:
        """The tree of the text.

        Args:
            is_column: tells the names of columns and relations, some of which are keywords of SQL.

        Raises:
            PredicateError: it is not SQL, too long, or nests too deeply.
        """
        if not isinstance(self.sql, str):
            raise PredicateError(f"the {self.what} is SQL text, not a {type(self.sql).__name__}")
        if not is_unicode(self.sql):
            raise PredicateError(f"the {self.what} holds half a character, which no Unicode text can: {self.sql!r:.80}")
        if len(self.sql) > MOST_CHARACTERS:
            raise PredicateError(f"the {self.what} has {len(self.sql)} characters; at most {MOST_CHARACTERS} are taken")
        try:
            self._check_types()
            return self._tree(is_column)
        except ParseError as error:
            raise PredicateError(f"{self.quoted}: {_complaint(error)}{self._hint(is_column)}") from None
        except RecursionError:
            raise self.too_deep() from None
        except SqlglotError as error:
            raise PredicateError(f"{self.quoted} is not SQL: {_first_line(error)}") from None

    def _tree(self, is_column: Callable[[str], bool]) -> exp.Expr:
        tokens = Dialect().tokenize(self.sql)
        places = keyword_columns(tokens, is_column)
        try:
            return self._condition(
                [
                    _like(one, TokenType.IDENTIFIER, one.text) if place in places else one
                    for place, one in enumerate(tokens)
                ]
            )
        except ParseError:
            if not places:
                raise
            return self._condition(tokens)  # they were keywords after all

    def _condition(self, tokens: list[Token]) -> exp.Expr:
        # sqlglot 28 parses the text before a semicolon, and drops the rest.
        if any(token.token_type == TokenType.SEMICOLON for token in tokens[:-1]):
            raise ParseError("several statements are not supported here")
        found = Dialect().parser().parse_into(exp.Condition, tokens, self.sql)
        if len(found) > 1:
            raise ParseError("more than one expression is not supported")
        if not found or found[0] is None or isinstance(found[0], exp.Command):
            raise ParseError("it is no expression")
        return found[0]

    def _hint(self, is_column: Callable[[str], bool]) -> str:
        """The advice to quote a keyword that may be a column."""
        tokens = Dialect().tokenize(self.sql)
        taken = keyword_columns(tokens, is_column)
        left = [one.text for place, one in enumerate(tokens) if place not in taken and _is_keyword(one)]
        named = [text for text in left if is_column(text)]
        named += [tokens[place].text for place in sorted(keyword_columns(tokens, lambda _: True))]
        if not named:
            return ""
        return f"; {named[0].upper()} is a keyword of SQL: write the column of this name in backticks, `{named[0]}`"

    def _check_types(self) -> None:
        """Refuse names of types that are nested with brackets more than :data:`MOST_TYPES` deep. The check comes before
        the parser, whose time is not bounded by the length of such an expression.
        """
        if sum(map(self.sql.count, "([")) <= MOST_TYPES:
            return
        levels: list[bool] = []
        types, before = 0, False
        for token in Dialect().tokenize(self.sql):
            if token.token_type in _OPENING:
                levels.append(before)
                types += before
                if types > MOST_TYPES:
                    raise self.too_deep()
            elif token.token_type in _CLOSING and levels:
                types -= levels.pop()
            before = token.token_type in Dialect.parser_class.TYPE_TOKENS

    def check_quotes(self, is_column: Callable[[str], bool]) -> None:
        """Refuse a string in double quotes that is the name of a column: other engines take it for the column.

        Raises:
            PredicateError: there is one; the message has its position.
        """
        if '"' not in self.sql:
            return
        for token in Dialect().tokenize(self.sql):
            if token.token_type == TokenType.STRING and self.sql[token.start] == '"' and is_column(token.text):
                name = token.text.replace("`", "``")
                raise PredicateError(
                    f'{self.quoted}: "{token.text}" at character {token.start + 1} is a string in Spark\'s SQL, and '
                    f"there is a column of this name: write `{name}` for the column, or single quotes for a string"
                )

    def too_deep(self) -> PredicateError:
        """The error that it nests too deeply."""
        return PredicateError(f"{self.quoted} nests too deeply")

    @property
    def quoted(self) -> str:
        """The name of the text, and its first 200 characters."""
        text = self.sql if len(self.sql) <= 200 else self.sql[:200] + "..."
        return f"{self.what} {text!r}"

    def unsupported(self, node: exp.Expr, what: str | None = None, advice: str = "") -> PredicateError:
        """The error for a part that is not supported; ``what`` names it, where its kind does not say enough, and
        ``advice`` ends the message.
        """
        fragment = _short(written(node))
        kind = "the function" if isinstance(node, exp.Func) else type(node).__name__
        name = _short(what) if what else f"{NAMES.get(type(node), kind)} ({fragment})"
        if what is None and isinstance(node, SUBQUERIES):
            advice = SUBQUERY_ADVICE
        return PredicateError(f"{name} is not supported here{self.place(node)}{advice}")

    def place(self, node: exp.Expr) -> str:
        """The position of a node for messages, if sqlglot has one."""
        starts = [n.meta["start"] for n in node.walk() if "start" in n.meta]
        if not starts:
            found = self.sql.lower().find(written(node).lower())
            starts = [found] if found >= 0 else []
        return f", at character {min(starts) + 1}" if starts else ""


def written(node: exp.Expr) -> str:
    """A node as SQL. Raises only ``SqlglotError``, if sqlglot cannot write what it has parsed."""
    try:
        return node.sql(dialect="spark")
    except ValueError as error:  # for example a length of a type that is no number
        raise SqlglotError(str(error)) from None


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:80] + "..."


def _complaint(error: ParseError) -> str:
    for item in error.errors:
        place = f" at line {item.get('line')}, column {item.get('col')}" if item.get("line") else ""
        near = f" near {item['highlight']!r}" if item.get("highlight") else ""
        return f"it cannot be parsed{place}{near}"
    return f"it cannot be parsed: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
