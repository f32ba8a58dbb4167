"""Statements in SQL by refdelta and by delta-spark, on equal tables: the same rows, the same answer of a SELECT.

The statements are the forms of delta-spark's documentation, and random ones.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from refdelta import DeltaTable, sql, write_deltalake
from refdelta.errors import DeltaError
from refdelta.spark import SparkExecutor

pytestmark = pytest.mark.spark

TARGET = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, 5, 6], pa.int64()),
        "town": ["Ulm", "Bonn", None, "Kiel", "Ulm", ""],
        "n": pa.array([10, 20, -1, None, 0, 7], pa.int32()),
        "p": ["a", "b", "a", "b", "a", "b"],
    }
)
SOURCE = pa.table(
    {
        "id": pa.array([2, 3, 7, 8], pa.int64()),
        "town": ["Hof", "Rom", "Oslo", None],
        "n": pa.array([1, None, 3, 4], pa.int32()),
        "p": ["b", "a", "a", "c"],
    }
)
CHANGES = [
    "INSERT INTO {t} VALUES (9, 'Jena', 1, 'a'), (10, NULL, NULL, 'z')",
    "INSERT INTO {t} (id, p) VALUES (9, 'a')",
    "INSERT INTO {t} (n, p, town, id) SELECT n, p, town, id + 100 FROM {s}",
    "INSERT INTO {t} SELECT * FROM {s} WHERE n > 1",
    "INSERT INTO {t} BY NAME SELECT p, 1L AS id, town FROM {s}",
    "INSERT INTO {t} SELECT id + 10, town, n, p FROM {t} WHERE p = 'a'",
    "INSERT OVERWRITE {t} SELECT * FROM {s}",
    "INSERT OVERWRITE TABLE {t} VALUES (1, 'x', 2, 'q')",
    "INSERT INTO {t} REPLACE WHERE p = 'a' SELECT * FROM {s} WHERE p = 'a'",
    "DELETE FROM {t} WHERE id = 2 OR town IS NULL",
    "DELETE FROM {t} AS x WHERE x.n BETWEEN 0 AND 10 AND x.p <> 'b'",
    "DELETE FROM {t}",
    "UPDATE {t} SET n = coalesce(n, 0) + 1",
    "UPDATE {t} SET town = upper(town), n = CASE WHEN n < 0 THEN 0 ELSE n END WHERE p = 'a'",
    "UPDATE {t} AS x SET x.town = concat(x.town, '-', x.p) WHERE x.id IN (1, 4, 6)",
    "MERGE INTO {t} t USING {s} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    (
        "MERGE INTO {t} AS t USING {s} AS s ON t.id = s.id AND t.p = s.p WHEN MATCHED AND s.n IS NULL THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET t.n = t.n + s.n, town = s.town"
    ),
    (
        "MERGE INTO {t} t USING (SELECT id, town FROM {s} WHERE id > 2) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id, town, p) VALUES (s.id, lower(s.town), 'new')"
    ),
    (
        "MERGE INTO {t} t USING {s} s ON t.id = s.id WHEN NOT MATCHED BY SOURCE AND t.n > 5 THEN UPDATE SET n = 0 "
        "WHEN NOT MATCHED BY SOURCE THEN DELETE"
    ),
    (
        "MERGE INTO {t} t USING {s} s ON t.town <=> s.town WHEN MATCHED THEN UPDATE SET p = s.p "
        "WHEN NOT MATCHED BY TARGET AND s.n > 3 THEN INSERT *"
    ),
    "ALTER TABLE {t} ADD COLUMNS (extra DOUBLE COMMENT 'more')",
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'false', 'own.key' = 'x')",
    "ALTER TABLE {t} ADD CONSTRAINT known CHECK (id > 0)",
    "ALTER TABLE {t} ALTER COLUMN n COMMENT 'a number'",
    "ALTER TABLE {t} ALTER COLUMN town FIRST",
    "OPTIMIZE {t}",
    "OPTIMIZE {t} WHERE p = 'a'",
    "OPTIMIZE {t} ZORDER BY (id, n)",
    "RESTORE TABLE {t} TO VERSION AS OF 0",
    "VACUUM {t} RETAIN 200 HOURS",
    "REORG TABLE {t} APPLY (PURGE)",
]
QUERIES = [
    "SELECT * FROM {t}",
    "SELECT id, n * 2 AS twice, upper(town) AS big FROM {t} WHERE n >= 0 ORDER BY twice DESC, id",
    "SELECT id FROM {t} ORDER BY town, id",
    "SELECT id FROM {t} ORDER BY town DESC NULLS FIRST, id DESC LIMIT 3",
    "SELECT x.id, x.p FROM {t} x WHERE x.town LIKE 'U%' OR x.n IS NULL ORDER BY 1",
    "SELECT count(*) FROM {t} WHERE p = 'a'",
    "SELECT id FROM {t} ORDER BY id LIMIT 2 OFFSET 3",
    "SELECT id + 1, -n, p || 'x' FROM {t} ORDER BY id",
    "SELECT id FROM {t} VERSION AS OF 0 WHERE id > 3 ORDER BY id",
    "VALUES (1, 'a', 1.5), (2, NULL, 2)",
]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a target in two versions and of a source."""
    folder = tmp_path_factory.mktemp("tables")
    for half in (TARGET.slice(0, 3), TARGET.slice(3)):
        write_deltalake(folder / "t", half, mode="append", partition_by="p")
    write_deltalake(folder / "s", SOURCE)
    return folder


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*table.to_pydict().values(), strict=True))


def state(folder: Path) -> tuple[list[str], list[tuple[Any, ...]]]:
    found = DeltaTable(folder / "t").to_pyarrow_table()
    return found.column_names, sorted(rows(found), key=repr)


def named(statement: str, folder: Path) -> str:
    return statement.format(t=f"delta.`{folder}/t`", s=f"delta.`{folder}/s`")


def by_both(quick_spark: Any, tables: Path, folder: Path, statement: str) -> None:
    """Run a statement by each engine on a copy of the tables, and compare the tables afterwards."""
    outcomes = []
    for engine, run in (("refdelta", sql), ("spark", quick_spark.sql)):
        shutil.copytree(tables, folder / engine)
        try:
            run(named(statement, folder / engine))
            outcomes.append(state(folder / engine))
        except DeltaError as error:
            raise AssertionError(f"{statement}: {error}") from error
    assert outcomes[0] == outcomes[1], statement


@pytest.mark.parametrize("statement", CHANGES)
def test_a_statement_leaves_the_same_table(quick_spark: Any, tables: Path, tmp_path: Path, statement: str) -> None:
    by_both(quick_spark, tables, tmp_path, statement)


@pytest.mark.parametrize("statement", [one for one in CHANGES if "{s}" in one or one.startswith(("DELETE", "UPDATE"))])
def test_on_the_workers_it_leaves_the_same_table(
    quick_spark: Any, tables: Path, tmp_path: Path, statement: str
) -> None:
    """The rows are a DataFrame, and the executor is that of Spark."""
    for engine in ("refdelta", "spark"):
        shutil.copytree(tables, tmp_path / engine)
    frame = quick_spark.createDataFrame(SOURCE)
    sql(
        statement.format(t="t", s="s"),
        t=tmp_path / "refdelta" / "t",
        s=frame,
        executor=SparkExecutor(quick_spark, broadcast_bytes=0),
    )
    quick_spark.sql(named(statement, tmp_path / "spark"))
    assert state(tmp_path / "refdelta") == state(tmp_path / "spark"), statement


@pytest.mark.parametrize("statement", QUERIES)
def test_a_query_has_the_same_rows(quick_spark: Any, tables: Path, statement: str) -> None:
    text = named(statement, tables)
    ours, theirs = sql(text), quick_spark.sql(text).toArrow()
    mine, other = rows(ours), rows(theirs)
    if "ORDER BY" not in statement:
        mine, other = sorted(mine, key=repr), sorted(other, key=repr)
    assert mine == other
    assert [field.type for field in ours.schema] == [field.type for field in theirs.schema]


# --- random statements -------------------------------------------------------------------------------------------

_CONDITIONS = [
    *("{q}id > 3", "{q}n IS NULL", "{q}town = 'Ulm'", "{q}p <=> 'a'", "{q}n % 2 = 0", "NOT ({q}id = 1 AND {q}n = 10)"),
    *("{q}town LIKE '%o%'", "{q}id IN (1, 5, 9)", "length({q}town) < 4", "coalesce({q}n, 0) >= 0"),
]
_NUMBERS = ["{q}n + 1", "NULL", "CASE WHEN {q}id > 3 THEN 1 ELSE {q}n END", "abs({q}n)", "CAST({q}id AS INT)"]
_STRINGS = ["upper({q}town)", "'it''s'", "concat({q}p, {q}town)", "substring({q}town, 2)", "CAST({q}n AS STRING)"]


def random_statement(dice: random.Random) -> str:
    """A statement that changes the table, of a random form with random expressions."""

    def one(of: list[str], q: str = "") -> str:
        return dice.choice(of).format(q=q)

    match dice.randrange(5):
        case 0:
            return f"DELETE FROM {{t}} WHERE {one(_CONDITIONS)} AND {one(_CONDITIONS)}"
        case 1:
            return f"UPDATE {{t}} SET n = {one(_NUMBERS)}, town = {one(_STRINGS)} WHERE {one(_CONDITIONS)}"
        case 2:
            columns = f"id + 20, {one(_STRINGS)}, {one(_NUMBERS)}, p"
            return f"INSERT INTO {{t}} SELECT {columns} FROM {{s}} WHERE {one(_CONDITIONS)}"
        case 3:
            return f"INSERT INTO {{t}} (id, n, p) VALUES (30, {dice.randrange(9)}, 'a'), (31, NULL, 'k')"
    clauses = []
    if dice.random() < 0.7:
        clauses.append(f"WHEN MATCHED AND {one(_CONDITIONS, 's.')} THEN UPDATE SET n = {one(_NUMBERS, 't.')}")
    clauses.append(dice.choice(["WHEN MATCHED THEN UPDATE SET *", "WHEN MATCHED THEN DELETE"]))
    if dice.random() < 0.7:
        clauses.append(f"WHEN NOT MATCHED AND {one(_CONDITIONS, 's.')} THEN INSERT *")
    if dice.random() < 0.5:
        clauses.append(f"WHEN NOT MATCHED BY SOURCE AND {one(_CONDITIONS, 't.')} THEN DELETE")
    return f"MERGE INTO {{t}} t USING {{s}} s ON t.id = s.id {' '.join(clauses)}"


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("seed", range(40))
def test_a_random_statement_leaves_the_same_table(quick_spark: Any, tables: Path, tmp_path: Path, seed: int) -> None:
    by_both(quick_spark, tables, tmp_path, random_statement(random.Random(seed)))
