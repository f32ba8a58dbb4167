"""Features that meet in one table: column mapping, vectors, widened types, tracked rows, partitions. Programs of random
statements, each run by delta-spark, by the engine, or by the engine on Spark; rows are those of a model in Python.
"""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa
import pytest

import spark_tables
from comparison import assert_same_table
from refdelta import DeltaTable, write_deltalake
from refdelta import spark as on_spark
from refdelta.spark import SparkExecutor, oracle

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("a", pa.int32()),
        ("s", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("l", pa.list_(pa.int16())),
        ("part", pa.string()),
        ("d", pa.decimal128(5, 2)),
    ]
)
# Each once; the type in SQL and for the engine.
WIDENINGS = [(("a",), "bigint"), (("s", "x"), "bigint"), (("l", "element"), "int"), (("d",), "decimal(8,3)")]
IDS = ["_metadata.row_id", "_metadata.row_commit_version"]


class Play:
    """One table, what its rows are to be, and what its columns are called by now."""

    def __init__(self, spark, path, seed):
        self.spark, self.path, self.dice = spark, path, random.Random(seed)
        dice = self.dice
        self.mapped = dice.random() < 0.8
        self.tracked = dice.random() < 0.5
        self.widening = dice.random() < 0.7
        partition_by = ["part"] if dice.random() < 0.6 else []
        properties = {
            "delta.columnMapping.mode": dice.choice(["name", "id"]) if self.mapped else "none",
            "delta.enableDeletionVectors": dice.choice(["true", "false"]),
            "delta.enableRowTracking": str(self.tracked).lower(),
            "delta.enableTypeWidening": str(self.widening).lower(),
            "delta.checkpointInterval": "4",
        }
        self.said = [str((properties, partition_by))]
        if dice.random() < 0.5:
            spark_tables.create(spark, path, SCHEMA, partition_by, properties)
        else:
            write_deltalake(path, SCHEMA.empty_table(), partition_by=partition_by, configuration=properties)
        self.names = {name: name for name in SCHEMA.names}
        self.names["x"] = "x"
        self.extra: list[str] = []
        self.left = list(WIDENINGS)
        self.rows: dict[int, int | None] = {}
        self.next = 0
        self.past: list[tuple[int, dict, dict, list, list]] = []

    def play(self, steps):
        statements = [self.insert, self.insert, self.update, self.delete, self.merge, self.rename, self.add_or_drop,
                      self.widen, self.optimize, self.replace, self.restore]  # fmt: skip
        self.insert()
        for step in range(steps):
            statement = self.dice.choice(statements)
            statement()
            DeltaTable(self.path).create_checkpoint() if self.dice.random() < 0.1 else None
            self.past.append((DeltaTable(self.path).version(), dict(self.rows), dict(self.names),
                              list(self.extra), list(self.left)))  # fmt: skip
            if step % 3 == 2 or step == steps - 1:
                self.check()

    def check(self):
        table = DeltaTable(self.path)
        ours = table.to_pyarrow_table()
        assert dict(zip(*(ours[self.names[name]].to_pylist() for name in ("id", "a")), strict=True)) == self.rows
        assert ours.num_rows == len(self.rows)
        assert_same_table(ours, oracle.read_table(self.spark, self.path))
        if self.tracked:
            mine = table.to_pyarrow_table(columns=[self.names["id"], *IDS])
            theirs = self.sql(f"SELECT {self.quoted('id')}, {', '.join(IDS)} FROM {{t}}").collect()
            assert sorted(zip(*(c.to_pylist() for c in mine.columns), strict=True)) == sorted(map(tuple, theirs))

    # --- statements ---

    def who(self, *others):
        return self.dice.choice(["spark", "engine", "engine", *others])

    def sql(self, statement):
        self.said.append(statement)
        return spark_tables.sql(self.spark, self.path, statement)

    def quoted(self, *path):
        return ".".join(f"`{self.names.get(name, name)}`" for name in path)

    def data(self, ids, part=None):
        """Rows of the table's schema, as it is by now."""
        schema = DeltaTable(self.path).schema().to_arrow()
        roles = {name: role for role, name in self.names.items() if role != "x"}
        columns = []
        for field in schema:
            role = roles.get(field.name)
            made = {
                "id": lambda n: n, "a": lambda n: n % 50, "part": lambda n: part or f"p{n % 3}",
                "s": lambda n: None if n % 4 == 0 else {self.names["x"]: n, "y": f"y{n}"},
                "l": lambda n: [n % 9, None][: n % 3], "d": lambda n: Decimal(n % 99) / 4,
            }.get(role, lambda n: n)  # fmt: skip
            columns.append(pa.array([made(n) for n in ids], field.type))
        return pa.table(columns, schema=schema)

    def new_ids(self, count=6):
        self.next += count
        return list(range(self.next - count, self.next))

    def insert(self):
        ids = self.new_ids(8)
        data = self.data(ids)
        match self.who("executor"):
            case "spark":
                spark_tables.write(self.spark, self.path, data)
            case "engine":
                write_deltalake(self.path, data, mode="append")
            case _:
                on_spark.write(spark_tables.frame(self.spark, data), str(self.path), mode="append")
        self.said.append(f"insert {ids}")
        self.rows |= {n: n % 50 for n in ids}

    def executor(self, engine):
        return SparkExecutor(self.spark) if engine == "executor" else None

    def update(self):
        rest, key = self.dice.randrange(3), self.quoted("id")
        engine, condition = self.who("executor"), f"{key} % 3 = {rest}"
        if engine == "spark":
            self.sql(f"UPDATE {{t}} SET {self.quoted('a')} = {key} * 2 % 100 WHERE {condition}")
        else:
            self.said.append(f"{engine} update {condition}")
            changes = {self.quoted("a"): f"CAST({key} * 2 % 100 AS INT)"}
            DeltaTable(self.path).update(changes, predicate=condition, executor=self.executor(engine))
        self.rows |= {n: n * 2 % 100 for n in self.rows if n % 3 == rest}

    def delete(self):
        rest, engine = self.dice.randrange(7), self.who("executor")
        condition = f"{self.quoted('id')} % 7 = {rest}"
        if engine == "spark":
            self.sql(f"DELETE FROM {{t}} WHERE {condition}")
        else:
            self.said.append(f"{engine} delete {condition}")
            DeltaTable(self.path).delete(condition, executor=self.executor(engine))
        self.rows = {n: value for n, value in self.rows.items() if n % 7 != rest}

    def merge(self):
        engine, key, a = self.who("executor"), self.quoted("id"), self.quoted("a")
        ids = [*self.dice.sample(sorted(self.rows), min(4, len(self.rows))), *self.new_ids(3)]
        source = pa.table({"k": pa.array(ids, pa.int64()), "v": pa.array([-n for n in ids], pa.int32())})
        if engine == "spark":
            spark_tables.frame(self.spark, source).createOrReplaceTempView("source_of_merge")
            self.sql(
                f"MERGE INTO {{t}} t USING source_of_merge s ON s.k = t.{key} WHEN MATCHED THEN UPDATE SET {a} = s.v "
                f"WHEN NOT MATCHED THEN INSERT ({key}, {a}) VALUES (s.k, s.v)"
            )
        else:
            self.said.append(f"{engine} merge {ids}")
            merging = DeltaTable(self.path).merge(source, f"s.k = t.{key}", executor=self.executor(engine))
            merging = merging.when_matched_update({a: "s.v"})
            merging.when_not_matched_insert({key: "s.k", a: "s.v"}).execute()
        self.rows |= {n: -n for n in ids}

    def rename(self):
        if not self.mapped:
            return
        role = self.dice.choice(["id", "a", "s", "part", "d", "x"])
        path = ("s", "x") if role == "x" else (role,)
        new = f"{role} {self.dice.randrange(100)}"
        if self.who() == "spark":
            self.sql(f"ALTER TABLE {{t}} RENAME COLUMN {self.quoted(*path)} TO `{new}`")
        else:
            self.said.append(f"rename {path} {new}")
            DeltaTable(self.path).alter.rename_column(self.quoted(*path), new)
        self.names[role] = new

    def add_or_drop(self):
        engine = self.who()
        if self.mapped and self.extra and self.dice.random() < 0.5:
            name = self.extra.pop()
            self.said.append(f"{engine} drop {name}")
            if engine == "spark":
                self.sql(f"ALTER TABLE {{t}} DROP COLUMN {name}")
            else:
                DeltaTable(self.path).alter.drop_columns(name)
            return
        name = self.dice.choice([n for n in ("e1", "e2", "e3", "e4") if n not in self.extra] or ["none"])
        if name == "none":
            return
        self.extra.append(name)
        self.said.append(f"{engine} add {name}")
        if engine == "spark":
            self.sql(f"ALTER TABLE {{t}} ADD COLUMNS ({name} BIGINT)")
        else:
            DeltaTable(self.path).alter.add_columns(pa.field(name, pa.int64()))

    def widen(self):
        if not (self.widening and self.left):
            return
        path, kind = self.left.pop(self.dice.randrange(len(self.left)))
        if self.who() == "spark":
            self.sql(f"ALTER TABLE {{t}} ALTER COLUMN {self.quoted(*path)} TYPE {kind}")
        else:
            self.said.append(f"widen {path} {kind}")
            DeltaTable(self.path).alter.change_type(self.quoted(*path), kind)

    def optimize(self):
        engine = self.who("executor")
        self.said.append(f"{engine} optimize")
        if engine == "spark":
            self.sql("OPTIMIZE {t}")
        elif self.dice.random() < 0.5:
            DeltaTable(self.path).optimize.compact(executor=self.executor(engine))
        else:
            DeltaTable(self.path).optimize.z_order([self.quoted("id")], executor=self.executor(engine))

    def replace(self):
        """Replace the rows of one value of the column that may partition the table."""
        ids, condition = self.new_ids(3), f"{self.quoted('part')} = 'gone'"
        again = [n for n in self.rows if n in getattr(self, "replaced", ())]
        if self.who() == "spark":
            self.said.append(f"spark replaces {again} by {ids}")
            data = spark_tables.frame(self.spark, self.data(ids, "gone")).write.format("delta").mode("overwrite")
            data.option("replaceWhere", condition).save(str(self.path))
        else:
            self.said.append(f"engine replaces {again} by {ids}")
            write_deltalake(self.path, self.data(ids, "gone"), mode="overwrite", predicate=condition)
        self.rows = {n: value for n, value in self.rows.items() if n not in again} | {n: n % 50 for n in ids}
        self.replaced = set(ids)

    def restore(self):
        if not self.past:
            return
        version, rows, names, extra, left = self.dice.choice(self.past)
        if self.who() == "spark":
            self.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {version}")
        else:
            self.said.append(f"restore {version}")
            DeltaTable(self.path).restore(version)
        self.rows, self.names, self.extra, self.left = dict(rows), dict(names), list(extra), list(left)
        part = DeltaTable(self.path).to_pyarrow_table(columns=[self.names["id"], self.names["part"]])
        self.replaced = {n for n, p in zip(*(c.to_pylist() for c in part.columns), strict=True) if p == "gone"}


@pytest.mark.parametrize("seed", range(4))
def test_features_meet(quick_spark, tmp_path, seed):
    play = Play(quick_spark, tmp_path / "t", seed)
    try:
        play.play(8)
    except BaseException:
        print("\n".join(play.said))
        raise
