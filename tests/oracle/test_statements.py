"""The log entries of statements: the same as delta-spark's, or a row of the register has the difference.

The rows are in ``spec_notes/divergences.md``, section "Statements", and are held to what happens both ways.

Tests of api.statements.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import spark_tables
from refdelta import DeltaTable, errors, write_deltalake

ROOT = Path(__file__).resolve().parents[2]
DATA = pa.table({"k": [1, 2, 3], "v": [10, 20, 30], "p": ["a", "a", "b"]})
SOURCE = pa.table({"k": [1, 9], "v": [11, 99], "p": ["a", "b"]})
WIDER = SOURCE.append_column("n", pa.array([5, 6]))
NOTHING = SOURCE.slice(0, 0)
APPLICATION = {"app_id": "loader", "app_version": 1}


@dataclass(frozen=True)
class Statement:
    """A statement in both engines: its SQL, and the call.

    ``application``: whether it is given an application id. ``vectors``: whether the table has deletion vectors enabled,
    and one of its files such a vector.
    """

    sql: str
    call: Callable[..., Any]
    application: bool = False
    vectors: bool = False


def merge(table: DeltaTable, source: pa.Table, on: str = "t.k = s.k", **options: Any) -> Any:
    return table.merge(source, on, **options)


EVOLVES = "MERGE WITH SCHEMA EVOLUTION INTO {t} t USING wider s ON t.k = s.k WHEN MATCHED"

STATEMENTS = {
    "delete-all": Statement("DELETE FROM {t}", lambda t: t.delete()),
    "delete-some": Statement("DELETE FROM {t} WHERE k = 1", lambda t: t.delete("k = 1")),
    "delete-none": Statement("DELETE FROM {t} WHERE k = 77", lambda t: t.delete("k = 77")),
    "update-all": Statement("UPDATE {t} SET v = 1", lambda t: t.update({"v": "1"})),
    "update-some": Statement("UPDATE {t} SET v = v WHERE k = 1", lambda t: t.update({"v": "v"}, predicate="k = 1")),
    "update-none": Statement("UPDATE {t} SET v = 1 WHERE k = 77", lambda t: t.update({"v": "1"}, predicate="k = 77")),
    "merge": Statement(
        "MERGE INTO {t} t USING source s ON t.k = s.k WHEN MATCHED AND s.v > 5 THEN UPDATE SET * "
        "WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE AND t.v > 20 THEN DELETE",
        lambda t: (
            merge(t, SOURCE)
            .when_matched_update_all("s.v > 5")
            .when_not_matched_insert_all()
            .when_not_matched_by_source_delete("t.v > 20")
            .execute()
        ),
    ),
    "merge-none": Statement(
        "MERGE INTO {t} t USING source s ON t.k = s.k + 70 WHEN MATCHED THEN DELETE",
        lambda t: merge(t, SOURCE, "t.k = s.k + 70").when_matched_delete().execute(),
    ),
    "delete-none-under-an-application-id": Statement(
        "DELETE FROM {t} WHERE k = 77", lambda t: t.delete("k = 77", **APPLICATION), application=True
    ),
    "update-none-under-an-application-id": Statement(
        "UPDATE {t} SET v = 1 WHERE k = 77",
        lambda t: t.update({"v": "1"}, predicate="k = 77", **APPLICATION),
        application=True,
    ),
    "merge-none-under-an-application-id": Statement(
        "MERGE INTO {t} t USING source s ON t.k = s.k + 70 WHEN MATCHED THEN DELETE",
        lambda t: merge(t, SOURCE, "t.k = s.k + 70", **APPLICATION).when_matched_delete().execute(),
        application=True,
    ),
    # A MERGE that evolves the schema: what its expressions may name.
    "merge-condition-names-a-new-column-of-the-table": Statement(
        f"{EVOLVES} AND t.n IS NULL THEN UPDATE SET *",
        lambda t: merge(t, WIDER, merge_schema=True).when_matched_update_all("t.n IS NULL").execute(),
    ),
    "merge-condition-names-a-new-column": Statement(
        f"{EVOLVES} AND n = 5 THEN UPDATE SET *",
        lambda t: merge(t, WIDER, merge_schema=True).when_matched_update_all("n = 5").execute(),
    ),
    "merge-value-names-a-new-column-of-the-table": Statement(
        f"{EVOLVES} THEN UPDATE SET n = coalesce(t.n, s.n)",
        lambda t: merge(t, WIDER, merge_schema=True).when_matched_update({"n": "coalesce(t.n, s.n)"}).execute(),
    ),
    "set-a-property-as-it-is": Statement(
        "ALTER TABLE {t} SET TBLPROPERTIES ('note' = '1')", lambda t: t.alter.set_table_properties({"note": "1"})
    ),
    "unset-a-property": Statement(
        "ALTER TABLE {t} UNSET TBLPROPERTIES ('note')", lambda t: t.alter.unset_table_properties(["note"])
    ),
    "unset-a-property-that-is-not-there": Statement(
        "ALTER TABLE {t} UNSET TBLPROPERTIES ('other')", lambda t: t.alter.unset_table_properties(["other"])
    ),
    "append-none": Statement(
        "INSERT INTO {t} SELECT * FROM source WHERE k = 77", lambda t: write_deltalake(t, NOTHING, mode="append")
    ),
    "replace-where": Statement(
        "INSERT INTO {t} REPLACE WHERE k = 1 SELECT * FROM source WHERE k = 1",
        lambda t: write_deltalake(t, SOURCE.slice(0, 1), mode="overwrite", predicate="k = 1"),
    ),
}

HIDING = [
    "delete-all",
    "delete-some",
    "delete-none",
    "update-all",
    "update-some",
    "merge",
    "merge-none",
    "replace-where",
]
STATEMENTS |= {f"{name}-by-vectors": dataclasses.replace(STATEMENTS[name], vectors=True) for name in HIDING}
STATEMENTS |= {
    "delete-a-partition-by-vectors": Statement(
        "DELETE FROM {t} WHERE p = 'a'", lambda t: t.delete("p = 'a'"), vectors=True
    ),
    "delete-the-rest-of-a-file-by-vectors": Statement(
        "DELETE FROM {t} WHERE p = 'a' AND k < 3", lambda t: t.delete("p = 'a' AND k < 3"), vectors=True
    ),
}

SQL_TEXTS = {"predicate", "matchedPredicates", "notMatchedPredicates", "notMatchedBySourcePredicates"}
"""Parameters with SQL in them. delta-spark writes what its analyser makes of it, numbers of columns included."""


def left_behind(path: Path, error: bool, before: int) -> dict[str, str]:
    """The log entry: the operation, its parameters except SQL, counts, the version of the application."""
    if error:
        return {"ends with": "an error"}
    commit = DeltaTable(path).history(1)[0]
    if commit["version"] == before:
        return {"ends with": "no commit"}
    assert commit["version"] == before + 1
    found = {"ends with": "a commit", "operation": commit["operation"], "blind": str(commit["isBlindAppend"])}
    for name, value in (commit.get("operationParameters") or {}).items():
        if name not in SQL_TEXTS:
            found[name] = str(value).lower()
        elif name != "predicate":
            found[name] = " ".join(clause["actionType"] for clause in json.loads(value))
        elif value == '["true"]':
            found[name] = value
    counts = {name: value for name, value in (commit.get("operationMetrics") or {}).items() if is_count(name)}
    return {**found, **counts, "application": str(DeltaTable(path).transaction_version("loader"))}


def is_count(metric: str) -> bool:
    return metric.startswith("num") and "Bytes" not in metric


def difference(theirs: Mapping[str, str], ours: Mapping[str, str]) -> tuple[str, str] | None:
    """Where the two differ, in the words of the register; None where they do not."""
    names = ["ends with"] if theirs["ends with"] != ours["ends with"] else theirs.keys() & ours.keys()
    if theirs["ends with"] == ours["ends with"] != "a commit":
        return None
    other = sorted(name for name in names if theirs[name] != ours[name])
    if not other:
        return None
    if other == ["ends with"]:
        return theirs["ends with"], ours["ends with"]
    return tuple(", ".join(f"`{name}` {side[name]}" for name in other) for side in (theirs, ours))


def register() -> dict[str, list[str]]:
    """The rows by statement: what delta-spark does, what refdelta does, why, and the test of it."""
    _, _, section = (ROOT / "spec_notes" / "divergences.md").read_text().partition("\n## Statements\n")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines()]
    return {row[0].strip("`"): row[1:] for row in rows if re.match(r"`[a-z-]+`$", row[0])}


REGISTER = register()


def test_the_register_names_statements_that_are_tried_and_tests_that_exist():
    assert REGISTER.keys() <= STATEMENTS.keys()
    for theirs, ours, why, test in REGISTER.values():
        assert theirs != ours
        assert len(why) > 20
        file, _, name = test.strip("`").partition("::")
        tree = ast.parse((ROOT / file).read_text())
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, test


@pytest.mark.tier("nightly")
@pytest.mark.spark
def test_statements_leave_the_same_commit_or_the_register_says_otherwise(quick_spark, fresh_path):
    spark = quick_spark
    spark_tables.frame(spark, SOURCE).createOrReplaceTempView("source")
    spark_tables.frame(spark, WIDER).createOrReplaceTempView("wider")
    found = {}
    for name, statement in STATEMENTS.items():
        paths = fresh_path(), fresh_path()
        for path in paths:
            before = begin(path, statement)
        failed = on_spark(spark, paths[0], statement), on_refdelta(paths[1], statement)
        theirs, ours = (left_behind(path, error, before) for path, error in zip(paths, failed, strict=True))
        if theirs["ends with"] == ours["ends with"] != "an error":
            assert rows(paths[0]) == rows(paths[1]), name
        if (between := difference(theirs, ours)) is not None:
            found[name] = between
    assert found == {name: (theirs, ours) for name, (theirs, ours, _, _) in REGISTER.items()}


def begin(path: Path, statement: Statement) -> int:
    """The table before a statement; its version."""
    configuration = {"note": "1"}
    if not statement.vectors:
        return write_deltalake(path, DATA, partition_by=["p"], configuration=configuration).version
    data = pa.concat_tables([DATA, pa.table({"k": [0], "v": [0], "p": ["a"]})])
    configuration["delta.enableDeletionVectors"] = "true"
    write_deltalake(path, data, partition_by=["p"], configuration=configuration)
    return DeltaTable(path).delete("k = 0").version


def rows(path: Path) -> list[dict[str, Any]]:
    return DeltaTable(path).to_pyarrow_table().sort_by("k").to_pylist()


def on_spark(spark: Any, path: Path, statement: Statement) -> bool:
    """Runs it; whether it was refused."""
    settings = {"txnAppId": "loader", "txnVersion": "1"} if statement.application else {}
    for name, value in settings.items():
        spark.conf.set(f"spark.databricks.delta.write.{name}", value)
    try:
        spark_tables.sql(spark, path, statement.sql)
    except Exception as error:
        # The text of an error of Delta's own does not arrive whole, but its name does.
        if not any(word in str(error) for word in ("DELTA_", "UNRESOLVED")):
            raise
        return True
    finally:
        for name in settings:
            spark.conf.unset(f"spark.databricks.delta.write.{name}")
    return False


def on_refdelta(path: Path, statement: Statement) -> bool:
    """Runs it; whether it was refused."""
    try:
        statement.call(DeltaTable(path))
    except (errors.ColumnNotFoundError, errors.InvalidArgumentError):
        return True
    return False
