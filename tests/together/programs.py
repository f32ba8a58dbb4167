"""Programs: what is done with a table, one statement after the other, drawn by a seed and what happened so far."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import spark_tables
from refdelta import DeltaTable, Identity
from together.features import chosen, verbs
from together.model import DEFAULT, GENERATION, TYPES, State
from together.statements import Delete, Insert, Merge, Replace, Statement, Update
from together.upkeep import (
    Checkpoint,
    Columns,
    CompactLog,
    Constrain,
    Drop,
    Optimize,
    Rename,
    Restore,
    Violate,
    Widen,
)

SIMPLE: Final[dict[str, type[Statement]]] = {
    "insert": Insert,
    "update": Update,
    "delete": Delete,
    "merge": Merge,
    "replace": Replace,
    "rename": Rename,
    "columns": Columns,
    "widen": Widen,
    "constrain": Constrain,
    "violate": Violate,
    "optimize": Optimize,
    "checkpoint": Checkpoint,
    "compact_log": CompactLog,
    "drop": Drop,
}


class Transactions(Statement):
    """Transactions of the engine that began before another statement, whoever runs that, and commit behind it."""

    makers = ("spark", "engine")

    def __init__(self, state: State, dice: random.Random) -> None:
        super().__init__(state, dice)
        common = [Insert, Update, Update, Delete, Merge, *([Replace] if "replace" in state.features else [])]
        # What is drawn for one has ids of its own; nobody sees the others' rows.
        self.begun = [dice.choice([*common, Optimize])(state, dice) for _ in range(dice.choice([1, 2]))]
        for one in self.begun:
            if isinstance(one, Replace):
                one.take_partition(state)  # a transaction has no dynamic overwrite
        winners: list[type[Statement]] = [*common, Optimize, Optimize]
        winners += [Columns, *([Constrain] if "constraints" in state.features else [])]
        self.winner = dice.choice(winners)(state, dice)
        self.winner.by = self.by

    def __str__(self) -> str:
        return f"begun: {'; '.join(map(str, self.begun))}; meanwhile: {self.winner}"


class Program:
    """The features of a seed, a table with them, and the statements for it.

    Attributes:
        past: versions, and what the table was then.
    """

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.features = chosen(seed)
        self.state = State.new(self.features, self.dice)
        self.past: list[tuple[int, State]] = []
        self.verbs = verbs(self.features, self.dice, 3)
        self.by_spark = self.dice.random() < 0.5
        self.configuration = self._configuration()

    def __str__(self) -> str:
        return f"{sorted(self.features)} {self.state.partitions} {self.configuration}, by Spark: {self.by_spark}"

    def statements(self) -> Iterator[Statement]:
        """One after the other; who takes them changes ``state`` and ``past`` by each before the next."""
        for verb in self.verbs:
            if verb == "restore":
                yield Restore(self.state, self.dice, self.past)
            elif verb.endswith("transactions"):
                yield Transactions(self.state, self.dice)
            elif verb != "widen" or self.state.widenings:
                yield SIMPLE[verb](self.state, self.dice)

    def _configuration(self) -> dict[str, str]:
        dice, has = self.dice, self.features
        found = {
            "delta.enableDeletionVectors": str("vectors" in has).lower(),
            # A clustered table that refdelta creates tracks rows unless this says otherwise.
            "delta.enableRowTracking": str("tracking" in has).lower(),
            "delta.checkpointInterval": "4",
        }
        if "mapping" in has:
            found["delta.columnMapping.mode"] = dice.choice(["name", "id"])
        if "v2" in has:
            found["delta.checkpointPolicy"] = "v2"
        for feature, name in (
            ("widening", "delta.enableTypeWidening"),
            ("feed", "delta.enableChangeDataFeed"),
            ("stamps", "delta.enableInCommitTimestamps"),
        ):
            if feature in has:
                found[name] = "true"
        return found

    def create(self, spark: Any, path: Path) -> None:
        state = self.state
        if spark is not None and self.by_spark:
            columns = [f"{role} {_SQL[role]}{self._declared(role)}" for role in state.columns]
            properties = dict(self.configuration)
            if "defaults" in self.features:
                properties["delta.feature.allowColumnDefaults"] = "supported"
            said = f"CREATE TABLE {{t}} ({', '.join(columns)}) USING delta"
            if state.partitions:
                said += f" PARTITIONED BY ({', '.join(state.partitions)})"
            if "clustering" in self.features:
                said += " CLUSTER BY (id, a)"
            pairs = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
            spark_tables.sql(spark, path, f"{said} TBLPROPERTIES ({pairs})")
        else:
            never_null = {"id"} if state.not_null else set()
            DeltaTable.create(
                path,
                pa.schema([pa.field(role, TYPES[role], role not in never_null) for role in state.columns]),
                partition_by=list(state.partitions),
                cluster_by=["id", "a"] if "clustering" in self.features else None,
                configuration=self.configuration,
                generated={"made": GENERATION} if "made" in state.names else None,
                defaults={"note": f"'{DEFAULT}'"} if "note" in state.names else None,
                identity={"num": Identity(1, 2)} if "num" in state.names else None,
            )

    def _declared(self, role: str) -> str:
        return {
            "id": " NOT NULL" if self.state.not_null else "",
            "made": f" GENERATED ALWAYS AS ({GENERATION})",
            "note": f" DEFAULT '{DEFAULT}'",
            "num": " GENERATED ALWAYS AS IDENTITY (START WITH 1 INCREMENT BY 2)",
        }.get(role, "")


_SQL: Final = {
    "id": "BIGINT",
    "a": "INT",
    "b": "BIGINT",
    "s": "STRUCT<x: INT, y: STRING>",
    "l": "ARRAY<SMALLINT>",
    "part": "STRING",
    "d": "DECIMAL(5,2)",
    "made": "BIGINT",
    "note": "STRING",
    "num": "BIGINT",
}
