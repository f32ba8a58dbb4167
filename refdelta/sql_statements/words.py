"""The words of a statement, read from left to right: keywords, names, constants, types, and expressions as written.

sqlglot makes the words. Expressions stay strings, which the methods of the API parse, so that they mean there what they
mean everywhere else.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Iterable

from sqlglot import Token, TokenType
from sqlglot.errors import SqlglotError

from refdelta.arguments import is_unicode
from refdelta.errors import InvalidArgumentError, PredicateError
from refdelta.expressions.sql_dialect import Dialect
from refdelta.table.types import ArrayType, DataType, MapType, StructField, StructType, type_named

MOST_CHARACTERS = 10_000_000
_OPENING, _CLOSING = ("(", "[", "CASE"), (")", "]", "END")
DEEPEST_TYPE = 100


class Words:
    """The words of one statement.

    Args:
        sql: the statement; a semicolon may end it.

    Raises:
        PredicateError: it is no string, too long, or not SQL; every method raises it where the statement has other
            words, with the place.
    """

    def __init__(self, sql: str):
        if not isinstance(sql, str):
            raise PredicateError(f"a statement is SQL text, not a {type(sql).__name__}")
        if not is_unicode(sql):
            raise PredicateError(f"the statement holds half a character, which no Unicode text can: {sql!r:.80}")
        if len(sql) > MOST_CHARACTERS:
            raise PredicateError(f"the statement has {len(sql)} characters; at most {MOST_CHARACTERS} are taken")
        self._sql, self._place = sql, 0
        try:
            self._tokens = [word for token in Dialect().tokenize(sql) for word in _split(token, sql)]
        except SqlglotError as error:
            raise PredicateError(f"the statement is not SQL: {str(error).splitlines()[0]}") from None
        while self._tokens and self._tokens[-1].token_type == TokenType.SEMICOLON:
            self._tokens.pop()

    def statements(self, end: str) -> list[Words]:
        """The statements up to this keyword, which is the last word; a semicolon is after each of them."""
        found, first = list[Words](), self._place
        while self._place < len(self._tokens):
            if self._tokens[self._place].token_type == TokenType.SEMICOLON:
                if first < self._place:
                    found.append(self._of(first, self._place))
                first = self._place + 1
            self._place += 1
        self._place = first
        self.need(end)
        self.end()
        return found

    def _of(self, first: int, last: int) -> Words:
        """Some of the words as a statement of its own, whose errors have the same places."""
        one = copy.copy(self)
        vars(one).update(_tokens=self._tokens[first:last], _place=0)
        return one

    # --- keywords ---

    def at(self, *words: str) -> bool:
        """Whether these keywords come next."""
        found = self._tokens[self._place : self._place + len(words)]
        return len(found) == len(words) and all(_is(token, word) for token, word in zip(found, words, strict=True))

    def take(self, *words: str) -> bool:
        """Pass over these keywords, if they come next."""
        there = self.at(*words)
        if there:
            self._place += len(words)
        return there

    def need(self, *words: str) -> None:
        """Pass over these keywords."""
        for word in words:
            if not self.take(word):
                raise self.expected(" ".join(words))

    def one_of(self, *words: str) -> str:
        """Pass over one of these keywords."""
        for word in words:
            if self.take(word):
                return word
        raise self.expected(" or ".join(words))

    def end(self) -> None:
        """Nothing follows."""
        if self._place < len(self._tokens):
            raise self.expected("the end of the statement")

    # --- names and constants ---

    def name(self, what: str = "a name") -> str:
        """A name, in backticks or without."""
        token = self._next()
        if token is None or not self.at_a_name():
            raise self.expected(what)
        self._place += 1
        return token.text

    def at_a_name(self) -> bool:
        """Whether a name comes next, or a keyword that may be one."""
        token = self._next()
        return token is not None and (token.token_type == TokenType.IDENTIFIER or _is_word(token))

    def path(self, what: str = "a name") -> tuple[str, ...]:
        """Names that are joined by dots."""
        found = [self.name(what)]
        while self.take("."):
            found.append(self.name(what))
        return tuple(found)

    def table(self) -> tuple[str, ...]:
        """The name of a table, or its path in quotes, which is that of ``delta.`path```."""
        token = self._next()
        if token is not None and token.token_type == TokenType.STRING:
            return ("delta", self.string())
        return self.path("a table")

    def column(self) -> str:
        """A column, or a field of one, as the API takes it: names with a dot in backticks."""
        return ".".join(f"`{part}`" if "." in part else part for part in self.path("a column"))

    def string(self, what: str = "a string in quotes") -> str:
        """A string constant."""
        token = self._next()
        if token is None or token.token_type != TokenType.STRING:
            raise self.expected(what)
        self._place += 1
        return token.text

    def whole(self, what: str = "a whole number") -> int:
        """A whole number."""
        negative = self.take("-")
        token = self._next()
        if token is None or token.token_type != TokenType.NUMBER or not token.text.isdecimal() or len(token.text) > 19:
            raise self.expected(what)
        self._place += 1
        return -int(token.text) if negative else int(token.text)

    def count(self, clause: str) -> int:
        """The number of rows of LIMIT or OFFSET.

        Args:
            clause: its name, for the error that the number is negative, or none of 64 bits.
        """
        before = self._place
        found = self.whole(f"a number of rows, from 0 on, after {clause}")
        if not 0 <= found < 1 << 63:
            self._place = before
            raise self.refused(f"{clause} is a number of rows, from 0 on, not {found}")
        return found

    def constant(self) -> str:
        """The value of a property: a string, a number, or a word such as ``true``."""
        token = self._next()
        if token is not None and token.token_type == TokenType.STRING:
            return self.string()
        negative = "-" if self.take("-") else ""
        token = self._next()
        if token is None or not (token.token_type == TokenType.NUMBER or _is_word(token)):
            raise self.expected("a value")
        self._place += 1
        return negative + token.text

    def property_name(self) -> str:
        """The name of a property: a string, or words with dots."""
        token = self._next()
        if token is not None and token.token_type == TokenType.STRING:
            return self.string()
        return ".".join(self.path("a property"))

    # --- expressions and lists ---

    def expression(self, *stops: str, commas: bool = False) -> str:
        """The text up to one of some keywords outside of brackets and CASE, up to a closing bracket, or the end.

        Args:
            stops: the keywords; ``ORDER BY`` is one.
            commas: whether a comma ends it, too.
        """
        first, depth = self._place, 0
        while (token := self._next()) is not None:
            if depth == 0 and (
                (commas and _is(token, ","))
                or any(_is(token, word) for word in (")", "]"))
                or any(self.at(*stop.split()) for stop in stops)
            ):
                break
            depth += any(_is(token, word) for word in _OPENING)
            depth -= depth > 0 and any(_is(token, word) for word in _CLOSING)
            self._place += 1
        if first == self._place:
            raise self.expected("an expression")
        return self._sql[self._tokens[first].start : self._tokens[self._place - 1].end + 1]

    def listed(self, *stops: str) -> list[str]:
        """Expressions with commas between them."""
        found = [self.expression(*stops, commas=True)]
        while self.take(","):
            found.append(self.expression(*stops, commas=True))
        return found

    def in_brackets(self) -> list[str]:
        """Expressions with commas between them, in brackets."""
        self.need("(")
        found = self.listed()
        self.need(")")
        return found

    def columns(self) -> list[str]:
        """Columns with commas between them, in brackets."""
        self.need("(")
        found = [self.column()]
        while self.take(","):
            found.append(self.column())
        self.need(")")
        self.once("column", found)
        return found

    def once(self, what: str, names: Iterable[str]) -> None:
        """Refuse a name, in any case of letters, that was read twice in one list; ``what`` is its kind."""
        seen: set[str] = set()
        for name in names:
            if name.lower() in seen:
                raise PredicateError(f"{what} {name} is named twice in one list")
            seen.add(name.lower())

    def properties(self) -> dict[str, str]:
        """``('name' = 'value', ...)``; a name may be words with dots, and a value a number or a word."""
        found: list[tuple[str, str]] = []
        self.need("(")
        while True:
            name = self.property_name()
            self.take("=")
            found.append((name, self.constant()))
            if not self.take(","):
                break
        self.need(")")
        self.once("property", (name for name, _ in found))
        return dict(found)

    # --- types ---

    def data_type(self, depth: int = 0) -> DataType:
        """A type: ``BIGINT``, ``DECIMAL(10, 2)``, ``ARRAY<INT>``, ``MAP<STRING, INT>`` or ``STRUCT<a: INT, ...>``."""
        if depth > DEEPEST_TYPE:
            raise self.expected("a type that nests less deeply")
        before = self._place
        kind = self.name("a type").lower()
        if kind == "array" and self.take("<"):
            element = self.data_type(depth + 1)
            self._close()
            return ArrayType(element)
        if kind == "map" and self.take("<"):
            key = self.data_type(depth + 1)
            self.need(",")
            value = self.data_type(depth + 1)
            self._close()
            return MapType(key, value)
        if kind == "struct" and self.take("<"):
            fields = [self._field(depth)]
            while self.take(","):
                fields.append(self._field(depth))
            self._close()
            return StructType(tuple(fields))
        parameters = ",".join(self.in_brackets()) if self.at("(") else ""
        try:
            return type_named(f"{kind}({parameters})" if parameters else kind)
        except InvalidArgumentError as error:
            self._place = before
            raise PredicateError(f"{self._here()}: {error}") from None

    def _field(self, depth: int) -> StructField:
        name = self.name("a field")
        self.take(":")
        kind = self.data_type(depth + 1)
        nullable = not self.take("NOT", "NULL")
        return StructField(name, kind, nullable, {"comment": self.string()} if self.take("COMMENT") else {})

    def _close(self) -> None:
        """One ``>``; sqlglot takes two of them for one word."""
        token = self._next()
        if token is not None and token.text == ">>":
            self._tokens[self._place] = Token(TokenType.GT, ">", token.line, token.col, token.end, token.end)
            return
        self.need(">")

    # --- errors ---

    def expected(self, what: str) -> PredicateError:
        """The error that something else comes next."""
        return PredicateError(f"{self._here()}: expected {what}")

    def refused(self, what: str) -> PredicateError:
        """The error that something is not supported; it is the words that were read last."""
        return PredicateError(f"{self._here()}: {what}")

    def _here(self) -> str:
        if (token := self._next()) is None:
            return "at the end of the statement"
        column = token.start - self._sql.rfind("\n", 0, token.start)
        return f"line {token.line}, column {column}, at {self._sql[token.start : token.end + 1]:.40}"

    def _next(self) -> Token | None:
        return self._tokens[self._place] if self._place < len(self._tokens) else None


def _split(token: Token, sql: str) -> list[Token]:
    """The words of a token: sqlglot takes ``ORDER BY`` and others for one."""
    if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) or not any(map(str.isspace, token.text)):
        return [token]
    return [
        Token(
            TokenType.VAR, found[0], token.line, token.col, token.start + found.start(), token.start + found.end() - 1
        )
        for found in re.finditer(r"\S+", sql[token.start : token.end + 1])
    ]


def _like(token: Token, text: str, start: int) -> Token:
    return Token(TokenType.VAR, text, token.line, token.col, start, start + len(text) - 1)


def _is(token: Token, word: str) -> bool:
    return token.text.upper() == word and token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)


def _is_word(token: Token) -> bool:
    quoted = token.token_type in (TokenType.STRING, TokenType.NUMBER)
    return not quoted and token.text.replace("_", "a").isalnum() and not token.text[0].isdecimal()


def without(names: Collection[str]) -> Callable[[str], str]:
    """A function that removes these names, in any case, where they qualify a column: ``t.id`` becomes ``id``."""
    known = {name.lower() for name in names}

    def plain(sql: str) -> str:
        if not known or "." not in sql:
            return sql
        tokens, parts, begun = Dialect().tokenize(sql), [], 0
        for place, token in enumerate(tokens[:-2]):
            after_dot = place > 0 and tokens[place - 1].text == "."
            named = token.token_type == TokenType.IDENTIFIER or _is_word(token)
            if named and not after_dot and token.text.lower() in known and tokens[place + 1].text == ".":
                parts.append(sql[begun : token.start])
                begun = tokens[place + 1].end + 1
        return "".join([*parts, sql[begun:]])

    return plain
