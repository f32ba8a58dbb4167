"""Statements that change what a table is, or how its rows and its log are kept, but no row."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import spark_tables
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.api.transaction import WriteTransaction
from refdelta.crosscheck import oracle
from refdelta.spark import SparkExecutor
from refdelta.spark import write as write_on_spark
from together.model import DECLARED, State
from together.statements import Statement, data_for


class Upkeep(Statement):
    makers = ("spark", "engine")
    said = ""  # in Spark's SQL

    def theirs(self, spark: Any, path: Path) -> None:
        if self.said:
            spark_tables.sql(spark, path, self.said)


class Rename(Upkeep):
    def __init__(self, state: State, dice: random.Random) -> None:
        super().__init__(state, dice)
        self.role = dice.choice(["id", "a", "s", "part", "d", "x"])
        # Without a mapping names may not have blanks.
        self.new = f"{self.role}{'_' if 'drop' in state.features else ' '}{dice.randrange(100)}"
        self.column = state.sql(*(("s", "x") if self.role == "x" else (self.role,)))
        self.said = f"ALTER TABLE {{t}} RENAME COLUMN {self.column} TO `{self.new}`"

    def model(self, state: State) -> None:
        state.names[self.role] = self.new

    def stage(self, txn: WriteTransaction, path: Path) -> None:
        txn.rename_column(self.column, self.new)


class Columns(Upkeep):
    """A column is added, or dropped where columns are mapped."""

    def __init__(self, state: State, dice: random.Random) -> None:
        super().__init__(state, dice)
        free = [name for name in ("e1", "e2", "e3", "e4") if name not in state.extra]
        self.drops = bool(state.extra) and "mapping" in state.features and (not free or dice.random() < 0.5)
        self.column = dice.choice(state.extra if self.drops else free or ["none"])
        self.said = f"ALTER TABLE {{t}} {'DROP' if self.drops else 'ADD'} COLUMN {self.column}"
        self.said += "" if self.drops else " BIGINT"

    def model(self, state: State) -> None:
        if self.drops:
            state.extra.remove(self.column)
        else:
            state.extra.append(self.column)
        state.rows = {number: {**state.settled(row)} for number, row in state.rows.items()}

    def stage(self, txn: WriteTransaction, path: Path) -> None:
        if self.drops:
            txn.drop_columns(self.column)
        else:
            txn.add_columns(pa.field(self.column, pa.int64()))


class Widen(Upkeep):
    def __init__(self, state: State, dice: random.Random) -> None:
        super().__init__(state, dice)
        self.roles, self.kind = dice.choice(state.widenings)
        self.column = state.sql(*self.roles)
        self.said = f"ALTER TABLE {{t}} ALTER COLUMN {self.column} TYPE {self.kind}"

    def model(self, state: State) -> None:
        state.widenings.remove((self.roles, self.kind))

    def stage(self, txn: WriteTransaction, path: Path) -> None:
        txn.change_type(self.column, self.kind)


class Constrain(Upkeep):
    """A CHECK constraint comes or goes, or NOT NULL goes."""

    def __init__(self, state: State, dice: random.Random) -> None:
        super().__init__(state, dice)
        self.kind = dice.choice(["add", "add", *(["drop"] if state.limits else []), *(["null"] * state.not_null)])
        self.name = dice.choice(sorted(state.limits)) if self.kind == "drop" else f"c{dice.randrange(10**6)}"
        self.limit = 1000 + dice.randrange(10)
        self.check = f"{state.sql('b')} IS NULL OR {state.sql('b')} < {self.limit}"
        self.key = state.sql("id")
        self.said = {
            "add": f"ALTER TABLE {{t}} ADD CONSTRAINT {self.name} CHECK ({self.check})",
            "drop": f"ALTER TABLE {{t}} DROP CONSTRAINT {self.name}",
            "null": f"ALTER TABLE {{t}} ALTER COLUMN {self.key} DROP NOT NULL",
        }[self.kind]

    def model(self, state: State) -> None:
        if self.kind == "add":
            state.limits[self.name] = self.limit
        elif self.kind == "drop":
            del state.limits[self.name]
        else:
            state.not_null = False

    def stage(self, txn: WriteTransaction, path: Path) -> None:
        if self.kind == "add":
            txn.add_constraint({self.name: self.check})
        elif self.kind == "drop":
            txn.drop_constraint(self.name)
        else:
            txn.set_nullable(self.key)


class Violate(Statement):
    """A row, or an update, that the table cannot have: everybody refuses it, and nothing changes."""

    def __init__(self, state: State, dice: random.Random) -> None:
        super().__init__(state, dice)
        kinds = ["null"] * state.not_null + ["wrong"] * ("made" in state.names)
        if state.limits:
            kinds += ["limit", "limit"]
            kinds += ["update"] * any(row["b"] is not None for row in state.rows.values())
        self.kind = dice.choice(kinds or ["none"])
        self.state, self.change = state.copy(), {state.sql("b"): f"{state.sql('b')} + 5000"}
        if "num" in state.names and self.by == "executor":
            self.by = "engine"

    def data(self, path: Path) -> pa.Table:
        row = self.state.row(10**6)
        row |= {"null": {"id": None}, "limit": {"b": 5000}, "wrong": {"made": 77}}[self.kind]
        given = ("made",) if self.kind == "wrong" else ()
        left_out = tuple(role for role in DECLARED if role in self.state.names and role not in given)
        table = data_for(path, self.state, [row], left_out)
        return table.cast(pa.schema([field.with_nullable(True) for field in table.schema]))

    def run(self, spark: Any, path: Path) -> None:
        if self.kind == "none":
            return
        before = DeltaTable(path).version()
        error = Exception if spark is not None and self.by == "spark" else errors.ConstraintViolationError
        with pytest.raises(error):
            super().run(spark, path)
        assert DeltaTable(path).version() == before

    def ours(self, path: Path, spark: Any = None) -> None:
        if self.kind == "update":
            DeltaTable(path).update(self.change, executor=spark and SparkExecutor(spark))
        elif spark is None:
            write_deltalake(path, self.data(path), mode="append")
        else:
            write_on_spark(spark_tables.frame(spark, self.data(path)), str(path), mode="append")

    def theirs(self, spark: Any, path: Path) -> None:
        if self.kind == "update":
            ((column, value),) = self.change.items()
            spark_tables.sql(spark, path, f"UPDATE {{t}} SET {column} = {value}")
        else:
            spark_tables.write(spark, path, self.data(path))

    def __str__(self) -> str:
        return f"{self.by} Violate {self.kind}"


class Optimize(Statement):
    def __init__(self, state: State, dice: random.Random) -> None:
        super().__init__(state, dice)
        kinds = ["compact", "purge"] + (["cluster", "cluster"] if "clustering" in state.features else ["z_order"])
        self.kind, self.key = dice.choice(kinds), state.sql("id")

    def stage(self, txn: WriteTransaction, path: Path) -> None:
        if self.kind == "purge":
            txn.reorg_purge()
        elif self.kind == "z_order":
            txn.z_order([self.key])
        else:
            getattr(txn, self.kind)()

    def theirs(self, spark: Any, path: Path) -> None:
        said = {"purge": "REORG TABLE {t} APPLY (PURGE)", "z_order": f"OPTIMIZE {{t}} ZORDER BY ({self.key})"}
        spark_tables.sql(spark, path, said.get(self.kind, "OPTIMIZE {t}"))


class Checkpoint(Upkeep):
    def __init__(self, state: State, dice: random.Random) -> None:
        super().__init__(state, dice)
        self.form = dice.choice(["parquet", "json"]) if "v2" in state.features else "parquet"

    def ours(self, path: Path, spark: Any = None) -> None:
        DeltaTable(path).create_checkpoint(top_level=self.form)  # type: ignore[arg-type]

    def theirs(self, spark: Any, path: Path) -> None:
        name = "spark.databricks.delta.checkpointV2.topLevelFileFormat"
        spark.conf.set(name, self.form)
        oracle.checkpoint(spark, path)
        spark.conf.unset(name)


class CompactLog(Upkeep):
    """The commits of some last versions together in one file, which both read from then on."""

    makers = ("engine",)

    def __init__(self, state: State, dice: random.Random) -> None:
        super().__init__(state, dice)
        self.count, self.until = dice.randrange(2, 6), dice.randrange(2)

    def ours(self, path: Path, spark: Any = None) -> None:
        table = DeltaTable(path)
        end = table.version() - self.until
        if end >= 2:
            table.compact_logs(max(1, end - self.count), end)


class Restore(Upkeep):
    whole_rows = True

    def __init__(self, state: State, dice: random.Random, past: list[tuple[int, State]]) -> None:
        super().__init__(state, dice)
        self.version, self.state = dice.choice(past)
        self.said = f"RESTORE TABLE {{t}} TO VERSION AS OF {self.version}"

    def model(self, state: State) -> None:
        used = state.used
        vars(state).update(vars(self.state.copy()))
        state.used, state.touched = used, set(state.rows)

    def stage(self, txn: WriteTransaction, path: Path) -> None:
        txn.restore(self.version)

    def __str__(self) -> str:
        return f"{self.by} Restore {self.version}"


class Drop(Upkeep):
    """A feature leaves the table's protocol."""

    NAMES: ClassVar = {
        "mapping": "columnMapping",
        "vectors": "deletionVectors",
        "widening": "typeWidening",
        "tracking": "rowTracking",
        "constraints": "checkConstraints",
        "stamps": "inCommitTimestamp",
        "v2": "v2Checkpoint",
    }

    def __init__(self, state: State, dice: random.Random) -> None:
        super().__init__(state, dice)
        there = sorted(state.features & self.NAMES.keys())
        self.feature = dice.choice(there) if there else None
        self.limits = sorted(state.limits) if self.feature == "constraints" else []

    def model(self, state: State) -> None:
        state.features -= {self.feature}
        if self.feature == "constraints":
            state.limits = {}

    def ours(self, path: Path, spark: Any = None) -> None:
        if self.feature:
            for name in self.limits:
                DeltaTable(path).alter.drop_constraint(name)
            if self.feature == "constraints" and "checkConstraints" not in _features(path):
                return
            DeltaTable(path).alter.drop_feature(self.NAMES[self.feature])

    def theirs(self, spark: Any, path: Path) -> None:
        if self.feature:
            for name in self.limits:
                spark_tables.sql(spark, path, f"ALTER TABLE {{t}} DROP CONSTRAINT {name}")
            if self.feature == "constraints" and "checkConstraints" not in _features(path):
                return
            spark_tables.sql(spark, path, f"ALTER TABLE {{t}} DROP FEATURE {self.NAMES[self.feature]}")


def _features(path: Path) -> set[str]:
    return set(DeltaTable(path).protocol().writer_features or ())
