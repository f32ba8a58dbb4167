"""A text in SQL: parsed by sqlglot, and what is wrong with it in words."""

from __future__ import annotations

from dataclasses import dataclass

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import ParseError, SqlglotError

from refdelta.arguments import is_unicode
from refdelta.engine.expressions.sql_words import NAMES, SUBQUERIES, SUBQUERY_ADVICE, Dialect
from refdelta.errors import PredicateError

_MAX_LENGTH = 1_000_000
_MOST_TYPES = 8
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET}


@dataclass(frozen=True)
class SqlText:
    """A text.

    Attributes:
        sql: the text.
        what: what it is, for errors.
    """

    sql: str
    what: str

    def parsed(self) -> exp.Expr:
        """Its tree. Raises ``PredicateError``."""
        if not isinstance(self.sql, str):
            raise PredicateError(f"the {self.what} is SQL text, not a {type(self.sql).__name__}")
        if not is_unicode(self.sql):
            raise PredicateError(f"the {self.what} holds half a character, which no Unicode text can: {self.sql!r:.80}")
        if len(self.sql) > _MAX_LENGTH:
            raise PredicateError(f"the {self.what} has {len(self.sql)} characters; at most {_MAX_LENGTH} are taken")
        try:
            self._check_types()
            return sqlglot.parse_one(self.sql, dialect=Dialect, into=exp.Condition)
        except ParseError as error:
            raise PredicateError(f"{self.quoted}: {_complaint(error)}") from None
        except RecursionError:
            raise self.too_deep() from None
        except SqlglotError as error:
            raise PredicateError(f"{self.quoted} is not SQL: {_first_line(error)}") from None

    def _check_types(self) -> None:
        """Refuse names of types that open brackets in each other's brackets, as in ``int(int(...``. The parser tries
        each of them as a type and as a function, which takes twice as long, or longer, for each level.
        """
        if sum(map(self.sql.count, "([")) <= _MOST_TYPES:
            return
        levels: list[bool] = []
        types, before = 0, False
        for token in Dialect().tokenize(self.sql):
            if token.token_type in _OPENING:
                levels.append(before)
                types += before
                if types > _MOST_TYPES:
                    raise self.too_deep()
            elif token.token_type in _CLOSING and levels:
                types -= levels.pop()
            before = token.token_type in Dialect.parser_class.TYPE_TOKENS

    def too_deep(self) -> PredicateError:
        """The error that it nests too deeply."""
        return PredicateError(f"{self.quoted} nests too deeply")

    @property
    def quoted(self) -> str:
        """What it is, and as much of it as fits into a line."""
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
        """Where a node stands, as well as sqlglot knows."""
        starts = [n.meta["start"] for n in node.walk() if "start" in n.meta]
        if not starts:
            found = self.sql.lower().find(written(node).lower())
            starts = [found] if found >= 0 else []
        return f", at character {min(starts) + 1}" if starts else ""


def written(node: exp.Expr) -> str:
    """A node as SQL again. Raises ``SqlglotError`` alone, where sqlglot cannot write what it has read."""
    try:
        return node.sql(dialect="spark")
    except ValueError as error:  # the length of a type that is no number, say
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
