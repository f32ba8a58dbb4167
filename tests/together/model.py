"""What a table holds, in plain Python, and random parts of statements as SQL and as functions of rows."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

Row = dict[str, Any]
Test = Callable[[Row], bool]

TYPES: Final[Mapping[str, pa.DataType]] = {
    "id": pa.int64(),
    "a": pa.int32(),
    "b": pa.int64(),
    "s": pa.struct([("x", pa.int32()), ("y", pa.string())]),
    "l": pa.list_(pa.int16()),
    "part": pa.string(),
    "d": pa.decimal128(5, 2),
    "made": pa.int64(),  # generated from b
    "note": pa.string(),  # has a default
    "num": pa.int64(),  # an identity column
}
DECLARED: Final = {"made": "generated", "note": "defaults", "num": "identity"}
GENERATION: Final = "b % 3"
DEFAULT: Final = "none"
WIDENINGS: Final = ((("a",), "bigint"), (("s", "x"), "bigint"), (("l", "element"), "int"), (("d",), "decimal(8,3)"))


@dataclass
class State:
    """A table as it should be. Columns have roles; what they are called by now is in ``names``."""

    features: frozenset[str]
    partitions: tuple[str, ...] = ()
    rows: dict[int, Row] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    extra: list[str] = field(default_factory=list)
    widenings: list[tuple[tuple[str, ...], str]] = field(default_factory=lambda: list(WIDENINGS))
    limits: dict[str, int] = field(default_factory=dict)
    not_null: bool = False
    used: int = 0
    touched: set[int] = field(default_factory=set)

    @classmethod
    def new(cls, features: frozenset[str], dice: random.Random) -> State:
        state = cls(features, not_null="constraints" in features)
        columns = [name for name in TYPES if DECLARED.get(name, name) == name or DECLARED[name] in features]
        state.names = {name: name for name in [*columns, "x"]}
        if "partitions" in features:
            layouts: list[tuple[str, ...]] = [("part",)]
            if "generated" in features:
                layouts += [("part", "made"), ("made",)]
            state.partitions = dice.choice(layouts)
        return state

    @property
    def columns(self) -> list[str]:
        return [*(name for name in self.names if name != "x"), *self.extra]

    def copy(self) -> State:
        return copy.deepcopy(self)

    def name(self, role: str) -> str:
        return self.names.get(role, role)

    def sql(self, *path: str) -> str:
        return ".".join(f"`{self.name(role)}`" for role in path)

    def new_ids(self, count: int) -> list[int]:
        self.used += count
        return list(range(self.used - count, self.used))

    def row(self, number: int, **given: Any) -> Row:
        """The row that is inserted with an id, unless told otherwise."""
        made = {
            "id": number,
            "a": number % 50,
            "b": number * 7 % 100,
            "s": None if number % 4 == 0 else {"x": number, "y": f"y{number}"},
            "l": [number % 9, None][: number % 3],
            "part": None if number % 11 == 5 else f"p{number % 3}",
            "d": Decimal(number % 99) / 4,
            "note": DEFAULT,
        }
        return self.settled({**{name: made.get(name, number) for name in self.columns}, **given})

    def settled(self, row: Row) -> Row:
        """A row with what follows from it; numbers are the table's to give."""
        row = {name: row.get(name) for name in self.columns}
        if "made" in row:
            row["made"] = None if row["b"] is None else row["b"] % 3
        row.pop("num", None)
        return row

    def put(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.rows[row["id"]] = self.settled(row)
            self.touched.add(row["id"])

    def remove(self, ids: Iterable[int]) -> None:
        for number in list(ids):
            del self.rows[number]


def condition(state: State, dice: random.Random) -> tuple[str, Test]:
    """Which rows: SQL, and the same in Python."""
    key, rest, low = state.sql("id"), dice.randrange(3), dice.randrange(state.used + 1)
    part, b = state.sql("part"), state.sql("b")
    kinds: list[tuple[str, Test]] = [
        (f"{key} % 3 = {rest}", lambda row: row["id"] % 3 == rest),
        (f"{key} % 7 = {rest}", lambda row: row["id"] % 7 == rest),
        (f"{key} BETWEEN {low} AND {low + 4}", lambda row: low <= row["id"] <= low + 4),
        (f"{part} = 'p{rest}'", lambda row: row["part"] == f"p{rest}"),
        (f"{part} IS NULL", lambda row: row["part"] is None),
        (f"{b} > 70", lambda row: row["b"] is not None and row["b"] > 70),
        (f"{part} = 'p{rest}' AND {key} % 2 = 0", lambda row: row["part"] == f"p{rest}" and row["id"] % 2 == 0),
        (f"{key} % 5 = 1 OR {b} < 10", lambda row: row["id"] % 5 == 1 or (row["b"] is not None and row["b"] < 10)),
    ]
    return dice.choice(kinds)


def change(state: State, dice: random.Random) -> tuple[dict[str, str], Callable[[Row], Row]]:
    """What an update sets: SQL by column, and the same in Python."""
    key, b = state.sql("id"), state.sql("b")
    kinds: list[tuple[dict[str, str], Callable[[Row], Row]]] = [
        ({state.sql("a"): f"CAST({key} * 2 % 100 AS INT)"}, lambda row: {"a": row["id"] * 2 % 100}),
        ({b: f"{b} + 3"}, lambda row: {"b": None if row["b"] is None else row["b"] + 3}),
        ({state.sql("part"): "'moved'"}, lambda row: {"part": "moved"}),
        ({state.sql("d"): "NULL", state.sql("s"): "NULL"}, lambda row: {"d": None, "s": None}),
        ({state.sql("l"): "NULL", b: f"{key} % 40"}, lambda row: {"l": None, "b": row["id"] % 40}),
    ]
    if "note" in state.names:
        kinds += [
            ({state.sql("note"): "'new'"}, lambda row: {"note": "new"}),
            ({state.sql("note"): "DEFAULT", state.sql("a"): "7"}, lambda row: {"note": DEFAULT, "a": 7}),
        ]
    return dice.choice(kinds)
