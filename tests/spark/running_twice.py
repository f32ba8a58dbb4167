"""A Spark program whose workers are killed when their files are written, and whose tasks Spark tries again.

``python -m spark.running_twice FOLDER`` writes a JSON object for each statement: the rows of the table afterwards, the
files that the killed worker had written, and those in the folder that no commit names, or the other way round.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def main(folder: Path) -> None:
    os.environ["REFDELTA_STRUCK"] = str(folder)
    hook = str(Path(__file__).parent / "struck")
    from pyspark.sql import SparkSession

    from refdelta import DeltaTable
    from refdelta import spark as on_spark

    builder = SparkSession.builder.master("local[2,4]").config(map=SETTINGS)
    builder = builder.config("spark.local.dir", str(folder / "local")).config("spark.executorEnv.PYTHONPATH", hook)
    spark = builder.config("spark.executorEnv.REFDELTA_STRUCK", str(folder)).getOrCreate()
    print(spark.sparkContext._gateway.proc.pid, flush=True)
    spark.sparkContext.setLogLevel("OFF")
    on_spark.register(spark)
    path = str(folder / "table")
    executor = on_spark.SparkExecutor(spark, group_bytes=1, broadcast_bytes=0)
    rows = spark.range(0, 40, 1, 4).selectExpr("id", "cast(id as string) as name")
    more = spark.range(38, 44, 1, 3).selectExpr("id", "'merged' as name")

    def merge() -> Any:
        made = DeltaTable(path).merge(more, "s.id = t.id", executor=executor)
        return made.when_matched_update_all().when_not_matched_insert_all().execute()

    def update() -> Any:
        return DeltaTable(path).update({"name": "'updated'"}, predicate="id % 10 = 0", executor=executor)

    statements: dict[str, Callable[[], Any]] = {
        "write": lambda: on_spark.write(rows, path),
        "update": update,
        "merge": merge,
        "compact": lambda: DeltaTable(path).optimize.compact(executor=executor),
        "source": lambda: rows.limit(3).write.format("refdelta").mode("append").save(path),
    }
    for name, run in statements.items():
        (folder / "armed").touch()
        run()
        left = (folder / "left").read_text().split("\n") if (folder / "left").exists() else []
        (folder / "left").unlink(missing_ok=True)
        named = {
            action["add"]["path"]
            for version in Path(path, "_delta_log").glob("*.json")
            for action in map(json.loads, version.read_text().splitlines())
            if "add" in action
        }
        there = {file.name for file in Path(path).glob("*.parquet")}
        table = DeltaTable(path).to_pyarrow_table().sort_by("id").to_pydict()
        print(
            json.dumps(
                {
                    "statement": name,
                    "rows": list(zip(table["id"], table["name"], strict=True)),
                    "left": left,
                    "unnamed": sorted(there - named),
                    "missing": sorted(named - there),
                }
            ),
            flush=True,
        )
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
