"""Random column types, values and predicates in Spark's SQL, all drawn from one ``random.Random``.

A table's columns are one :class:`Struct`; columns of any depth are named by paths in it, as ``("a", "element", "x")``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Plain:
    """A type without parts, as SQL writes it."""

    sql: str


@dataclass(frozen=True)
class Struct:
    fields: tuple[tuple[str, Type], ...]

    def names(self) -> list[str]:
        return [name for name, _ in self.fields]

    def field(self, name: str) -> Type:
        return dict(self.fields)[name]


@dataclass(frozen=True)
class Array:
    element: Type


@dataclass(frozen=True)
class Map:
    key: Type
    value: Type


Type = Plain | Struct | Array | Map
Path = tuple[str, ...]

VOID = Plain("VOID")
TEXTS = ["CHAR(3)", "CHAR(60)", "VARCHAR(60)", "STRING", "STRING", "STRING"]
WHOLE = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
DECIMALS = ["DECIMAL(5,2)", "DECIMAL(18,4)", "DECIMAL(38,10)"]
OTHERS = ["FLOAT", "DOUBLE", "BINARY", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"]
PLAIN = [*TEXTS, *WHOLE, *DECIMALS, *OTHERS]
KEYS = ["STRING", "INT", "SMALLINT", "DATE", "DECIMAL(5,2)", "BIGINT", "CHAR(3)"]
WIDER = {
    "TINYINT": ["SMALLINT", "INT", "BIGINT", "DECIMAL(10,0)", "DECIMAL(12,2)", "DOUBLE"],
    "SMALLINT": ["INT", "BIGINT", "DECIMAL(10,0)", "DOUBLE"],
    "INT": ["BIGINT", "DECIMAL(10,0)", "DECIMAL(14,3)", "DOUBLE"],
    "BIGINT": ["DECIMAL(20,0)", "DECIMAL(25,4)"],
    "FLOAT": ["DOUBLE"],
    "DECIMAL(5,2)": ["DECIMAL(7,2)", "DECIMAL(12,4)", "DECIMAL(30,10)"],
    "DECIMAL(18,4)": ["DECIMAL(20,4)", "DECIMAL(38,10)"],
    "DATE": ["TIMESTAMP_NTZ"],
    "CHAR(3)": ["VARCHAR(60)", "STRING"],
    "VARCHAR(60)": ["VARCHAR(90)", "STRING"],
}

_STRINGS = ["", "a", "é", "a/b", "x=1", "%41", "zz'z", " ", "~", "\U0001f600", "null", "1", "A" * 40, "a b", "a\\b"]
_STRINGS += ["\U0001f600" * 33, "__HIVE_DEFAULT_PARTITION__", "a:b", "ab  ", '"q"', "x\ty", "2020-01-01"]
_FLOATS = ["0", "-0.0", "1.5", "NaN", "Infinity", "-Infinity", "1e-7", "3.4e38", "0.1", "1e10"]
_DAYS = ["2020-01-01", "1970-01-01", "1582-10-04", "1582-10-15", "0001-01-01", "9999-12-31", "1900-03-01"]
_TIMES = [
    "2020-01-01 00:00:00.123456",
    "2020-01-01 00:00:00.1239",
    "1970-01-01 00:00:00",
    "1582-10-04 12:00:00",
    "0001-01-02 00:00:00",
    "9999-12-30 23:59:59.999999",
    "1969-12-31 23:59:59.999999",
    "2020-03-29 02:30:00",
]
_BINARY = ["X''", "X'00FF'", "X'41'", "X'C3A9'"]


def sql_type(kind: Type, *, bare: bool = False) -> str:
    """The type in SQL; ``bare`` has STRING for char and varchar, as casts want it."""
    match kind:
        case Plain(sql):
            return "STRING" if bare and "CHAR" in sql else sql
        case Struct(fields):
            return f"STRUCT<{', '.join(f'{quoted(name)}: {sql_type(of, bare=bare)}' for name, of in fields)}>"
        case Array(element):
            return f"ARRAY<{sql_type(element, bare=bare)}>"
        case Map(key, value):
            return f"MAP<{sql_type(key, bare=bare)}, {sql_type(value, bare=bare)}>"


def quoted(*path: str) -> str:
    """A column's path in SQL."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in path)


def walk(kind: Type, path: Path = ()) -> Iterator[tuple[Path, Type]]:
    """Every part of a type with its path, the type itself first."""
    yield path, kind
    match kind:
        case Struct(fields):
            parts = list(fields)
        case Array(element):
            parts = [("element", element)]
        case Map(key, value):
            parts = [("key", key), ("value", value)]
        case _:
            parts = []
    for name, part in parts:
        yield from walk(part, (*path, name))


def within(columns: Struct) -> list[tuple[Path, Type]]:
    """Columns and fields of structs that no array or map holds: what SQL can name and what may have statistics."""
    found: list[tuple[Path, Type]] = []

    def look(fields: tuple[tuple[str, Type], ...], path: Path) -> None:
        for name, kind in fields:
            found.append(((*path, name), kind))
            if isinstance(kind, Struct):
                look(kind.fields, (*path, name))

    look(columns.fields, ())
    return found


def changed(kind: Type, path: Path, change: Callable[[Type], Type]) -> Type:
    """The type with another part at a path."""
    if not path:
        return change(kind)
    first, rest = path[0], path[1:]
    match kind:
        case Struct(fields):
            return Struct(tuple((n, changed(of, rest, change) if n == first else of) for n, of in fields))
        case Array(element):
            return Array(changed(element, rest, change))
        case Map():
            return replace(kind, **{first: changed(getattr(kind, first), rest, change)})
    raise KeyError(path)


class Maker:
    """Makes names, types, values and predicates.

    Attributes:
        dice: where everything comes from.
        odd_names: whether names may have characters that Parquet files are not to have: columns are mapped.
        odd_fields: whether fields of structs may have names that SQL quotes; then there are no char and varchar in
            nested types, where Spark notes them without quotes and then cannot read the table.
    """

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.odd_names = False
        self.odd_fields = self.chance(0.5)
        self._named = 0

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def name(self, *, of_field: bool = False) -> str:
        """A name that no other column has or had."""
        self._named += 1
        if of_field and not self.odd_fields:
            return f"c{self._named}"
        if self.odd_names and self.chance(0.5):
            return f"c{self._named}" + self.dice.choice([" x", ".y", "é", "=;", "%20", "A/b", ",(", "`", "'"])
        return f"c{self._named}" + self.dice.choice(["", "", "_X", "é", "-a"])

    def type(self, depth: int = 0) -> Type:
        found = self.dice.random()
        if depth < 2 and found < 0.14:
            count = self.dice.randint(1, 3)
            return Struct(tuple((self.name(of_field=True), self.type(depth + 1)) for _ in range(count)))
        if depth < 2 and found < 0.2:
            return Array(self.type(depth + 1))
        if depth < 2 and found < 0.26:
            return Map(self._plain(KEYS, nested=True), self.type(depth + 1))
        return self._plain(PLAIN, nested=depth > 0)

    def _plain(self, kinds: list[str], *, nested: bool) -> Plain:
        return Plain(self.dice.choice([of for of in kinds if not (nested and self.odd_fields and "CHAR" in of)]))

    # --- values ---

    def value(self, kind: Type, nulls: float = 0.2) -> str:
        """An expression of the type, null now and then."""
        if kind == VOID or self.chance(nulls):
            return f"CAST(NULL AS {sql_type(kind, bare=True)})"
        match kind:
            case Plain(sql):
                return self.literal(sql)
            case Struct(fields):
                items = ", ".join(f"{text(name)}, {self.value(of)}" for name, of in fields)
                return f"named_struct({items})"
            case Array(element):
                items = ", ".join(self.value(element) for _ in range(self.dice.randint(0, 3)))
                return f"CAST(array({items}) AS {sql_type(kind, bare=True)})"
            case Map(key, of):
                keys = dict.fromkeys(self.value(key, 0) for _ in range(self.dice.randint(0, 2)))
                items = ", ".join(f"{one}, {self.value(of)}" for one in keys)
                return f"CAST(map({items}) AS {sql_type(kind, bare=True)})"

    def literal(self, sql: str) -> str:
        """A constant of a plain type."""
        choice = self.dice.choice
        if sql == "STRING":
            return text(choice(_STRINGS))
        if "CHAR" in sql:
            return text(choice([s for s in _STRINGS if len(s) <= int(sql[sql.index("(") + 1 : -1])]))
        if sql in WHOLE:
            most = 2 ** WHOLE[sql]
            return f"CAST('{choice([0, 1, -1, 5, 100, most - 1, -most])}' AS {sql})"
        if sql in ("FLOAT", "DOUBLE"):
            return f"CAST('{choice(_FLOATS)}' AS {sql})"
        if sql.startswith("DECIMAL"):
            precision, scale = map(int, sql[8:-1].split(","))
            most = "9" * (precision - scale) + ("." + "9" * scale if scale else "")
            return f"CAST('{choice(['0', '1', '-1', most, '-' + most, '0.01' if scale else '7', '12'])}' AS {sql})"
        if sql == "BINARY":
            return choice(_BINARY)
        if sql == "BOOLEAN":
            return choice(["true", "false"])
        return f"{sql} '{choice(_DAYS if sql == 'DATE' else _TIMES)}'"

    # --- predicates ---

    def predicate(self, columns: Struct, depth: int = 0) -> str:
        """A condition on columns and fields of structs, of every type that can be compared."""
        if depth < 2 and self.chance(0.25):
            left, right = self.predicate(columns, depth + 1), self.predicate(columns, depth + 1)
            return self.dice.choice([f"({left}) AND ({right})", f"({left}) OR ({right})", f"NOT ({left})"])
        known = within(columns)
        path, kind = self.dice.choice(known)
        if not isinstance(kind, Plain) or self.chance(0.2):
            return f"{quoted(*path)} IS {self.dice.choice(['', 'NOT '])}NULL"
        return self._comparison(path, kind, [p for p, other in known if other == kind])

    def _comparison(self, path: Path, kind: Plain, alike: list[Path]) -> str:
        column, found = quoted(*path), self.dice.random()
        if kind == VOID:
            return f"{column} IS NULL"
        if found < 0.12:
            return f"{column} IN ({', '.join(self.value(kind, 0.1) for _ in range(self.dice.randint(1, 3)))})"
        if found < 0.2:
            return f"{column} BETWEEN {self.literal(kind.sql)} AND {self.literal(kind.sql)}"
        if found < 0.28 and kind.sql == "STRING":
            return f"{column} LIKE '{self.dice.choice(['a%', '%b', '_', 'A%A', '%'])}'"
        if found < 0.3 and kind.sql in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
            return f"year({column}) >= {self.dice.choice([1, 1970, 2020])}"
        operator = self.dice.choice(["=", "<", "<=", ">", ">=", "<>", "<=>"])
        other = quoted(*self.dice.choice(alike)) if found > 0.9 else self.literal(self._comparable(kind.sql))
        return f"{column} {operator} {other}"

    def _comparable(self, sql: str) -> str:
        """The type or another one that Spark compares with it."""
        if self.chance(0.8):
            return sql
        for group in ([*WHOLE, "DECIMAL(5,2)", "DECIMAL(18,4)", "DOUBLE"], ["FLOAT", "DOUBLE"], OTHERS[4:]):
            if sql in group:
                return self.dice.choice(group)
        return sql


def text(value: str) -> str:
    """A string in SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
