"""Statements that change rows: on the model, staged in a transaction of refdelta, and by delta-spark."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa

import spark_tables
from refdelta import DeltaTable, write_deltalake
from refdelta.api.transaction import WriteTransaction
from refdelta.spark import SparkExecutor
from refdelta.spark import write as write_on_spark
from together.model import DECLARED, Row, State, change, condition


class Statement:
    """One statement. ``by`` says who runs it: spark, engine, or executor, which is the engine on Spark."""

    makers = ("spark", "engine", "engine", "executor")
    whole_rows = False  # whether its changes are deletes and inserts, whatever the ids of rows

    def __init__(self, state: State, dice: random.Random) -> None:
        self.by = dice.choice(self.makers)

    def model(self, state: State) -> None:
        """Do it to the model; a statement of maintenance changes no row."""

    def stage(self, txn: WriteTransaction, path: Path) -> None:
        """Do it within a transaction on the table at ``path``."""

    def ours(self, path: Path, spark: Any = None) -> None:
        """Do it by the engine; with a session, on Spark's workers."""
        with DeltaTable(path).begin(executor=spark and SparkExecutor(spark)) as txn:
            self.stage(txn, path)
            txn.commit()

    def theirs(self, spark: Any, path: Path) -> None:
        """Do it by delta-spark."""

    def run(self, spark: Any, path: Path) -> None:
        if spark is None or self.by == "engine":
            self.ours(path)
        elif self.by == "executor":
            self.ours(path, spark)
        else:
            self.theirs(spark, path)

    def __str__(self) -> str:
        told = {name: value for name, value in vars(self).items() if name != "by" and not callable(value)}
        return f"{self.by} {type(self).__name__} {told}"


def data_for(path: Path, state: State, rows: list[Row], left_out: tuple[str, ...] = ()) -> pa.Table:
    """Rows for a table as it is by now, without the columns whose values are the table's own."""
    columns, fields = [], []
    roles = {state.name(role): role for role in state.columns}
    for field in DeltaTable(path).schema().to_arrow():
        role = roles[field.name]
        if role in left_out:
            continue
        values = [row[role] for row in rows]
        if role == "s":
            values = [v and {state.name("x"): v["x"], "y": v["y"]} for v in values]
        columns.append(pa.array(values, field.type))
        fields.append(field)
    return pa.table(columns, schema=pa.schema(fields))


class Insert(Statement):
    def __init__(self, state: State, dice: random.Random) -> None:
        super().__init__(state, dice)
        self.left_out = tuple(role for role in DECLARED if role in state.names)
        notes: dict[str, Any] = {}
        if "note" in self.left_out and dice.random() < 0.3:
            notes, self.left_out = {"note": "given"}, tuple(role for role in self.left_out if role != "note")
        self.state, self.ids, self.notes = state.copy(), state.new_ids(8), notes
        if "num" in state.names and self.by == "executor":
            self.by = "engine"  # workers of Spark do not number rows

    def rows(self) -> list[Row]:
        return [self.state.row(number, **self.notes) for number in self.ids]

    def model(self, state: State) -> None:
        state.put(self.rows())

    def stage(self, txn: WriteTransaction, path: Path) -> None:
        txn.append(self.data(path))

    def data(self, path: Path) -> pa.Table:
        return data_for(path, self.state, self.rows(), self.left_out)

    def ours(self, path: Path, spark: Any = None) -> None:
        if spark is None:
            write_deltalake(path, self.data(path), mode="append")
        else:
            frame = spark_tables.frame(spark, self.data(path)).repartition(2)
            write_on_spark(frame, str(path), mode="append")

    def theirs(self, spark: Any, path: Path) -> None:
        spark_tables.write(spark, path, self.data(path))

    def __str__(self) -> str:
        return f"{self.by} Insert {self.ids[0]}..{self.ids[-1]} {self.notes}"


class Update(Statement):
    def __init__(self, state: State, dice: random.Random) -> None:
        super().__init__(state, dice)
        self.where, self.test = condition(state, dice)
        self.changes, self.change = change(state, dice)

    def model(self, state: State) -> None:
        state.put([{**row, **self.change(row)} for row in state.rows.values() if self.test(row)])

    def stage(self, txn: WriteTransaction, path: Path) -> None:
        txn.update(self.changes, predicate=self.where)

    def theirs(self, spark: Any, path: Path) -> None:
        changes = ", ".join(f"{column} = {value}" for column, value in self.changes.items())
        spark_tables.sql(spark, path, f"UPDATE {{t}} SET {changes} WHERE {self.where}")


class Delete(Statement):
    def __init__(self, state: State, dice: random.Random) -> None:
        super().__init__(state, dice)
        self.where, self.test = condition(state, dice)

    def model(self, state: State) -> None:
        state.remove(number for number, row in list(state.rows.items()) if self.test(row))

    def stage(self, txn: WriteTransaction, path: Path) -> None:
        txn.delete(self.where)

    def theirs(self, spark: Any, path: Path) -> None:
        spark_tables.sql(spark, path, f"DELETE FROM {{t}} WHERE {self.where}")


class Merge(Statement):
    """Rows come, change and go; with some dice also those that the source does not have."""

    def __init__(self, state: State, dice: random.Random) -> None:
        super().__init__(state, dice)
        self.ids = [*dice.sample(sorted(state.rows), min(5, len(state.rows))), *state.new_ids(3)]
        self.deletes, self.part_of_insert = dice.random() < 0.5, dice.random() < 0.5
        self.left = dice.choice([None, None, "update", "delete"])
        self.in_frame = dice.random() < 0.5 and "num" not in state.names
        self.key, self.a, self.b, self.part = (state.sql(role) for role in ("id", "a", "b", "part"))
        self.without_default = ["note"] if "note" in state.names else []

    def source(self) -> pa.Table:
        return pa.table({"k": pa.array(self.ids, pa.int64()), "v": pa.array([-n for n in self.ids], pa.int32())})

    def clauses(self) -> list[tuple[str, str, dict[str, str] | None, str | None]]:
        """When, what, the columns, and for which rows."""
        found: list[tuple[str, str, dict[str, str] | None, str | None]] = []
        if self.deletes:
            found.append(("matched", "delete", None, "s.k % 3 = 0"))
        found.append(("matched", "update", {self.a: "s.v", self.b: f"t.{self.b} + 1"}, None))
        found.append(
            ("not matched", "insert", {self.key: "s.k", self.a: "s.v", self.b: "s.k % 9"},
             "s.k % 2 = 0" if self.part_of_insert else None)
        )  # fmt: skip
        if self.left == "update":
            found.append(("not matched by source", "update", {self.part: "'left'"}, f"t.{self.key} % 5 = 1"))
        elif self.left == "delete":
            found.append(("not matched by source", "delete", None, f"t.{self.key} % 9 = 4"))
        return found

    def model(self, state: State) -> None:
        present = set(state.rows)
        for number, row in list(state.rows.items()):
            if number in self.ids:
                if self.deletes and number % 3 == 0:
                    state.remove([number])
                else:
                    state.put([{**row, "a": -number, "b": None if row["b"] is None else row["b"] + 1}])
            elif self.left == "update" and number % 5 == 1:
                state.put([{**row, "part": "left"}])
            elif self.left == "delete" and number % 9 == 4:
                state.remove([number])
        default = dict.fromkeys(self.without_default, "none")
        state.put(
            {"id": number, "a": -number, "b": number % 9, **default}
            for number in self.ids
            if number not in present and (number % 2 == 0 or not self.part_of_insert)
        )

    def stage(self, txn: WriteTransaction, path: Path, source: Any = None) -> None:
        merger = txn.merge(self.source() if source is None else source, f"s.k = t.{self.key}")
        for when, what, values, where in self.clauses():
            method = getattr(merger, f"when_{when.replace(' ', '_')}_{what}")
            merger = method(where) if values is None else method(values, where)
        merger.execute()

    def ours(self, path: Path, spark: Any = None) -> None:
        source = None
        if spark is not None and self.in_frame:
            source = spark_tables.frame(spark, self.source())
        with DeltaTable(path).begin(executor=spark and SparkExecutor(spark)) as txn:
            self.stage(txn, path, source)
            txn.commit()

    def theirs(self, spark: Any, path: Path) -> None:
        spark_tables.frame(spark, self.source()).createOrReplaceTempView("source_of_merge")
        said = [f"MERGE INTO {{t}} t USING source_of_merge s ON s.k = t.{self.key}"]
        for when, what, values, where in self.clauses():
            said.append(f"WHEN {when.upper()}" + (f" AND {where}" if where else "") + " THEN")
            if values is None:
                said.append("DELETE")
            elif what == "update":
                said.append("UPDATE SET " + ", ".join(f"{column} = {value}" for column, value in values.items()))
            else:
                said.append(f"INSERT ({', '.join(values)}) VALUES ({', '.join(values.values())})")
        spark_tables.sql(spark, path, " ".join(said))


class Replace(Insert):
    """An overwrite of some rows: of those that a condition selects, or of the partitions that get new ones."""

    def __init__(self, state: State, dice: random.Random) -> None:
        super().__init__(state, dice)
        del self.ids[3:]
        self.dynamic = bool(state.partitions) and dice.random() < 0.5
        self.values: Row = {}
        if self.dynamic:
            self.where = ""
        elif dice.random() < 0.5:
            self.take_partition(state)
        else:
            self.where, self.values = f"{state.sql('b')} BETWEEN 20 AND 50", {"b": 33}

    def take_partition(self, state: State) -> None:
        """Replace what may be a partition, and says so by a predicate."""
        self.dynamic, self.where, self.values = False, f"{state.sql('part')} = 'p1'", {"part": "p1"}

    def rows(self) -> list[Row]:
        return [self.state.row(number, **self.notes, **self.values) for number in self.ids]

    def model(self, state: State) -> None:
        new = self.rows()
        there = {tuple(row[role] for role in state.partitions) for row in new}

        def goes(row: Row) -> bool:
            if self.dynamic:
                return tuple(row[role] for role in state.partitions) in there
            return row["part"] == "p1" if "part" in self.values else row["b"] is not None and 20 <= row["b"] <= 50

        state.remove(number for number, row in list(state.rows.items()) if goes(row))
        state.put(new)

    def stage(self, txn: WriteTransaction, path: Path) -> None:
        txn.overwrite(self.data(path), predicate=self.where)

    def ours(self, path: Path, spark: Any = None) -> None:
        how = {"partition_overwrite": "dynamic"} if self.dynamic else {"predicate": self.where}
        if spark is None:
            write_deltalake(path, self.data(path), mode="overwrite", **how)  # type: ignore[arg-type]
        else:
            frame = spark_tables.frame(spark, self.data(path))
            write_on_spark(frame, str(path), mode="overwrite", **how)  # type: ignore[arg-type]

    def theirs(self, spark: Any, path: Path) -> None:
        how = {"partitionOverwriteMode": "dynamic"} if self.dynamic else {"replaceWhere": self.where}
        spark_tables.write(spark, path, self.data(path), mode="overwrite", options=how)

    def __str__(self) -> str:
        return f"{self.by} Replace {self.where or 'partitions'} {self.ids} {self.notes}"
