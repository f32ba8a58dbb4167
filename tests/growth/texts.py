"""Shapes of SQL texts that can be made of any size: chains and lists over all operators, functions and types, and many
small nests beside each other. A text of any size is one that every reader of SQL can read: its depth is bounded.

Which function takes what is found by asking the reader of SQL, so that a further function is in the search at once.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from refdelta.errors import DeltaError
from refdelta.expressions.functions import ALIASES, FUNCTIONS
from refdelta.expressions.sql import parse_expression
from refdelta.expressions.sql_dialect import CAST_FUNCTIONS, SHORTHANDS, TYPES, Dialect
from refdelta.table.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    DecimalType,
    StructField,
    StructType,
)

COLUMNS = StructType(
    (
        StructField("n", LONG),
        StructField("x", DOUBLE),
        StructField("m", DecimalType(10, 2)),
        StructField("s", STRING),
        StructField("b", BOOLEAN),
        StructField("d", DATE),
        StructField("t", TIMESTAMP),
        StructField("y", BINARY),
    )
)
OTHERS = ["n", "s", "d", "1", "'x'", "'year'"]
OPERATORS = ["+", "-", "*", "/", "%", "||", "=", "<>", "<", ">=", "<=>", "!=", "div", "&", "|", "^"]
CONDITIONS = [
    "NOT {}", "{} IS NULL", "{} IS NOT NULL", "{} IS TRUE", "{} BETWEEN n AND 7", "1 BETWEEN {} AND 9", "{} IN (1, 2)",
    "{} IN (n, 3)", "{} NOT IN ('x')", "{} LIKE '%a_'", "{} LIKE 'x!%' ESCAPE '!'", "{} <=> NULL",
    "{} IS DISTINCT FROM 1",
]  # fmt: skip
FORMS = [
    "({})", "-{}", "+{}", "CASE WHEN {} THEN 1 ELSE 2 END", "CASE {} WHEN 1 THEN 2 WHEN 3 THEN 4 END",
    "CASE WHEN b THEN {} END", "CASE WHEN b THEN n ELSE {} END", "EXTRACT(year FROM {})", "TRIM({})",
    "SUBSTRING({}, 1, 3)", "n[{}]", "{}[0]", "{}.n", "INTERVAL {} DAY", "ARRAY({})", "MAP({}, 1)", "STRUCT({})",
    "NAMED_STRUCT('a', {})", "{} :: bigint", "DATE {}", "TIMESTAMP {}", "x -> {}", "{}, 1", "`{}`", "/* {} */ n",
]  # fmt: skip

LEVELS, TERMS, WORDS = 4, 20, 12
"""The most levels of a nest, terms of a chain of operators, and words without a bracket around them."""

Shape = Callable[[int], str]
"""Makes a text of about so many characters."""


@dataclass(frozen=True)
class Wrap:
    """A text with one hole, and the types of what is in it and of what comes out."""

    text: str
    takes: str
    gives: str


def _type(text: str) -> str | None:
    try:
        return str(parse_expression(text, COLUMNS).type)
    except DeltaError:
        return None


@functools.cache
def wraps() -> list[Wrap]:
    """Every construct around an operand, as the reader takes it: by type, so that they fit into each other."""
    names = [item.name for item in COLUMNS]
    forms = [*FORMS, *CONDITIONS, *(f"CAST({{}} AS {name.lower()})" for name in TYPES)]
    forms += [f"TRY_CAST({{}} AS {name.lower()})" for name in TYPES]
    forms += [f"{{}} {op} {other}" for op in OPERATORS for other in names]
    for name in [*FUNCTIONS, *ALIASES, *SHORTHANDS, *CAST_FUNCTIONS]:
        if not name.isidentifier():
            continue
        forms.append(f"{name}({{}})")
        for other in OTHERS:
            forms += [f"{name}({{}}, {other})", f"{name}({other}, {{}})", f"{name}({{}}, {other}, {other})"]
        forms += [f"{name}({{}}, 1, 'x')", f"{name}({{}}, 1, 2)"]
    kinds = {item.name: str(item.type) for item in COLUMNS}
    # The first constants that a function takes are enough: the others make no other shape.
    seen: dict[tuple[str, str], int] = defaultdict(int)
    found = []
    for form in forms:
        head = form.partition("(")[0] if "(" in form else form
        for name in names:
            if seen[head, name] < 3 and (gives := _type(form.format(name))) is not None:
                seen[head, name] += 1
                found.append(Wrap(form, kinds[name], gives))
    return found


def shape(dice: Random) -> tuple[str, Shape]:
    """A shape that is drawn, and what it is called."""
    kind = dice.choice(["nest", "nest", "nest of any", "chain", "chain", "clauses", "list", "long", "words"])
    match kind:
        case "nest":
            parts = _fitting(dice, dice.randint(1, 3))
            return f"nests of {parts}", lambda size: _beside(_nested(parts), size)
        case "nest of any":
            some = [
                dice.choice([*FORMS, *CONDITIONS, *(one.text for one in dice.sample(wraps(), 5))]) for _ in range(2)
            ]
            return f"nests of {some}", lambda size: _beside(_nested(some), size)
        case "chain":
            op, item = dice.choice(["AND", "OR", *OPERATORS]), _item(dice)
            if op in ("AND", "OR"):
                return f"chain of {op!r} over {item}", lambda size: _joined(f" {op} ", item, size)
            terms = f" {op} ".join([item.replace("{}", "7")] * TERMS)
            return f"chains of {op!r} over {item}", lambda size: _beside(terms, size)
        case "clauses":
            width, item = dice.choice([2, 3, 10]), _item(dice)
            outer, inner = dice.choice([("AND", "OR"), ("OR", "AND")])
            return f"{outer} of {width} {inner} over {item}", lambda size: _clauses(outer, inner, width, item, size)
        case "list":
            head = dice.choice(["n IN (", "s NOT IN ('x', ", "coalesce(", "greatest(n, ", "concat(s, ", "n IN (n, "])
            item = dice.choice(["{}", "'{}'", "n + {}", "-{}", "NULL", "{}.5"])
            return f"list of {head}{item}", lambda size: head + _joined(", ", item, size) + ")"
        case "long":
            form = dice.choice(["s = '{}'", "n = {}", "s LIKE '{}'", "n = 1e{}", "{} = 1", "`{}` = 1", "y = X'{}'",
                                "date_format(t, '{}') = s", "n = CAST(x AS decimal({}))", "s = r'{}'"])  # fmt: skip
            some = ["9", "a", "%", "_", "%a", "\\\\", "''", "ab ", "é", "a.", "--", "\n"]
            piece = dice.choice([*some, "/*", "(", "["] if "'{}'" in form else some)
            return f"{form} of {piece!r}", lambda size: form.replace("{}", piece * (size // len(piece)))
    words = dice.choices(_words(), k=dice.randint(1, WORDS))
    return f"words {words}", lambda size: " ".join(words)


@functools.cache
def _words() -> list[str]:
    """Words of the dialect, and signs."""
    signs = [*"()[]{},.:;=<>+-*/%|&^~!?@#$`'\"\\", "--", "/*", "*/", "::", "->", "=>", "<=>", "||"]
    return sorted({*Dialect.tokenizer_class.KEYWORDS, *(name for name in FUNCTIONS if name.isidentifier())}) + signs * 5


def _fitting(dice: Random, many: int) -> list[str]:
    """Constructs of which each takes what the one before gives, and the first what the last gives, if that is found."""
    first = dice.choice(wraps())
    parts, kind = [first], first.gives
    for _ in range(many - 1):
        parts.append(dice.choice([one for one in wraps() if one.takes == kind] or [first]))
        kind = parts[-1].gives
    closing = [one for one in wraps() if one.takes == kind and one.gives == first.takes]
    if kind != first.takes and closing:
        parts.append(dice.choice(closing))
    return [part.text for part in parts]


def _item(dice: Random) -> str:
    """A short condition or value, with a hole for a number."""
    some = ["n = {}", "n <> {}", "n < {}", "s = '{}'", "s LIKE '{}%'", "b", "n IN ({}, 7)", "n BETWEEN {} AND 9", "n",
            "{}", "x <> {}.5", "NOT n = {}", "n IS NULL", "d = '2024-01-01'", "n + {} > 3", "s", "'{}'",
            "m <= {}"]  # fmt: skip
    found = dice.choice(some)
    return dice.choice([found, f"({found})", f"({found}) AND ({dice.choice(some)})", f"NOT ({found})"])


def _nested(parts: list[str]) -> str:
    head, tail = list[str](), list[str]()
    for number in range(LEVELS):
        before, _, after = parts[number % len(parts)].partition("{}")
        head.append(before)
        tail.append(after)
    core = next((item.name for item in COLUMNS if _type(parts[0].replace("{}", item.name))), "n")
    return "".join(reversed(head)) + core + "".join(tail)


def _joined(op: str, item: str, size: int) -> str:
    many = max(1, size // (len(item) + len(op) + 2))
    return op.join(item.replace("{}", str(number)) for number in range(many))


def _beside(text: str, size: int) -> str:
    """The same text many times, each in brackets."""
    return _joined(" AND ", f"({text}) IS NULL", size)


def _clauses(outer: str, inner: str, width: int, item: str, size: int) -> str:
    many = max(1, size // ((len(item) + 5) * width))
    return f" {outer} ".join(
        "(" + f" {inner} ".join(item.replace("{}", str(number * width + one)) for one in range(width)) + ")"
        for number in range(many)
    )
