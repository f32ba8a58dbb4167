"""What Spark refuses for data sources in Python: each call is a row of the guide, and raises one sentence."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.spark import SparkExecutor, SparkJobCancelledError, register, typed_errors, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.spark

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "spark.md"
CANCELLED = "`cancelJobGroup`, `cancelJobsWithTag`, `cancelAllJobs`, `interruptAll`"
JAVA = re.compile(r"\n|py4j|Py4J|org\.apache|Traceback|SQLSTATE|\.scala")


@pytest.fixture(scope="module")
def at(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A session, a table with a view of it, a DataFrame, and the place of another table."""
    register(spark)
    folder = tmp_path_factory.mktemp("refused")
    uri = str(folder / "t")
    write_deltalake(uri, pa.table({"id": [1, 2, 3], "s": ["a", "b", None]}))
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW viewed USING refdelta OPTIONS (path '{uri}')")
    df = spark.createDataFrame([(4, "d")], "id long, s string")
    df.createOrReplaceTempView("news")
    yield SimpleNamespace(
        sql=spark.sql, spark=spark, uri=uri, new=str(folder / "new"), folder=folder, df=df,
        sink=lambda: df.write.format("refdelta"),
        stream=lambda: spark.readStream.format("rate").load().writeStream.format("refdelta"),
    )  # fmt: skip
    spark.catalog.dropTempView("viewed")
    assert DeltaTable(uri).version() == 0, "nothing is written"
    assert not (folder / "new").exists(), "nor created"


def streamed(at: Any, mode: str) -> None:
    query = at.stream().outputMode(mode).option("checkpointLocation", str(at.folder / mode)).start(at.new)
    query.processAllAvailable()


def calls() -> Iterator[tuple[str, Callable[[Any], Any], str]]:
    """Each with the first cell of its row in the guide, and what is said."""
    row = "`UPDATE`, `DELETE`, `MERGE INTO` a view"
    yield row, lambda at: at.sql("UPDATE viewed SET s = 'x' WHERE id = 1"), "update and merge of refdelta.DeltaTable"
    yield row, lambda at: at.sql("DELETE FROM viewed WHERE id = 1"), "update and merge of refdelta.DeltaTable"
    for action in ("WHEN MATCHED THEN DELETE", "WHEN NOT MATCHED THEN INSERT *"):
        yield (
            row,
            lambda at, action=action: at.sql(f"MERGE INTO viewed v USING news n ON v.id = n.id {action}"),
            "update and merge of refdelta.DeltaTable",
        )
    row = "`INSERT INTO` a view `REPLACE WHERE`, `writeTo(view).overwritePartitions()`"
    yield row, lambda at: at.sql("INSERT INTO viewed REPLACE WHERE id = 1 SELECT 9L, 'z'"), "refdelta.spark.write does"
    yield row, lambda at: at.df.writeTo("viewed").overwritePartitions(), "refdelta.spark.write does"
    row = '`` SELECT ... FROM refdelta.`path` ``, `` spark.table("refdelta.`path`") ``'
    yield row, lambda at: at.sql(f"SELECT * FROM refdelta.`{at.uri}`"), "CREATE TEMPORARY VIEW"
    yield row, lambda at: at.sql(f"SELECT * FROM refdelta.`{at.uri}` VERSION AS OF 0"), "CREATE TEMPORARY VIEW"
    yield row, lambda at: at.spark.table(f"refdelta.`{at.uri}`"), "CREATE TEMPORARY VIEW"
    row = '`` INSERT INTO refdelta.`path` ``, `` df.write.insertInto("refdelta.`path`") ``'
    yield row, lambda at: at.sql(f"INSERT INTO refdelta.`{at.uri}` SELECT 1L, 'a'"), "refdelta.spark.write does"
    yield row, lambda at: at.df.write.insertInto(f"refdelta.`{at.uri}`"), "refdelta.spark.write does"
    yield row, lambda at: at.df.writeTo(f"refdelta.`{at.uri}`").append(), "refdelta.spark.write does"
    row = "`CREATE TABLE ... USING refdelta` without columns, `... AS SELECT`, `saveAsTable`, `writeTo(...).create()`"
    said = "refdelta.spark.write creates a table by its path"
    yield row, lambda at: at.sql("CREATE TABLE refused USING refdelta"), said
    yield row, lambda at: at.sql("CREATE TABLE refused USING refdelta AS SELECT 1 AS id"), said
    yield row, lambda at: at.sql(f"CREATE TABLE refused USING refdelta LOCATION '{at.new}' AS SELECT 1 AS id"), said
    yield row, lambda at: at.sink().saveAsTable("refused"), said
    yield row, lambda at: at.df.writeTo("refused").using("refdelta").create(), said
    row = '`mode("error")`, the default, and `mode("ignore")` of `df.write`'
    yield row, lambda at: at.sink().save(at.new), "refdelta.spark.write has all"
    yield row, lambda at: at.sink().mode("ignore").save(at.new), "refdelta.spark.write has all"
    row = "`df.write.partitionBy(...)`, `clusterBy(...)`"
    yield row, lambda at: at.sink().mode("append").partitionBy("s").save(at.new), "option('partitionBy', 'a,b')"
    yield row, lambda at: at.sink().mode("append").clusterBy("s").save(at.new), "option('partitionBy', 'a,b')"
    row = "`df.write.bucketBy(...)`"
    yield row, lambda at: at.sink().mode("append").bucketBy(2, "id").save(at.new), "cluster_by="
    row = "`INSERT OVERWRITE DIRECTORY ... USING refdelta`"
    yield row, lambda at: at.sql(f"INSERT OVERWRITE DIRECTORY '{at.new}' USING refdelta SELECT 1 AS id"), "by its path"
    row = "`VERSION AS OF`, `TIMESTAMP AS OF` of a view"
    yield row, lambda at: at.sql("SELECT * FROM viewed VERSION AS OF 0"), "versionAsOf"
    yield row, lambda at: at.sql("SELECT * FROM viewed TIMESTAMP AS OF '2030-01-01'"), "versionAsOf"
    row = "`_metadata` of a view"
    yield row, lambda at: at.spark.table("viewed").select("_metadata.file_path"), "metadata=True"
    row = '`outputMode("update")`'
    yield row, lambda at: streamed(at, "update"), "DeltaTable.merge in foreachBatch"


CALLS = [*calls()]


@pytest.mark.sample(test=8)
@pytest.mark.parametrize(("row", "call", "said"), CALLS, ids=range(len(CALLS)))
def test_each_refusal_is_one_sentence_with_the_alternative(
    at: SimpleNamespace, row: str, call: Callable[[Any], Any], said: str
) -> None:
    assert f"| {row} |" in GUIDE.read_text()
    with pytest.raises(errors.InvalidArgumentError) as caught, typed_errors():
        call(at)
    assert said in str(caught.value)
    assert JAVA.search(str(caught.value)) is None


def test_each_row_of_the_guide_is_tried() -> None:
    lines = GUIDE.read_text().split("## What Spark refuses")[1].split("\n## ")[0].splitlines()
    rows = [line.split(" | ")[0].removeprefix("| ") for line in lines if line.startswith("| `")]
    assert set(rows) == {row for row, _, _ in CALLS} | {CANCELLED}


CANCELS: dict[str, Callable[[Any], Any]] = {
    "cancelAllJobs": lambda spark: spark.sparkContext.cancelAllJobs(),
    "cancelJobGroup": lambda spark: spark.sparkContext.cancelJobGroup("of a test"),
    "cancelJobsWithTag": lambda spark: spark.sparkContext.cancelJobsWithTag("of a test"),
    "interruptAll": lambda spark: spark.interruptAll(),
}


def endless(begun: str) -> None:
    """Say that the task has begun, by a file, and work until it is killed."""
    Path(begun).touch()
    threading.Event().wait(300)


def merged(at: Any, df: Any) -> None:
    by = SparkExecutor(at.spark, broadcast_bytes=0)
    merge = DeltaTable(at.uri).merge(df, "t.id = s.id", source_alias="s", target_alias="t", executor=by)
    merge.when_matched_update_all().execute()


WORK: dict[str, Callable[[Any, Any], object]] = {
    "write": lambda at, df: write(df, at.new),
    "MERGE": merged,
    "executor": lambda at, _: list(SparkExecutor(at.spark).map(endless, [at.begun] * 2)),
    "source": lambda at, df: df.write.format("refdelta").mode("append").save(at.new),
}


@pytest.mark.sample(test=3)
@pytest.mark.parametrize("cancel", CANCELS)
@pytest.mark.parametrize("work", WORK)
def test_a_cancelled_job_is_told_in_one_sentence_and_leaves_nothing(
    at: SimpleNamespace, tmp_path: Path, work: str, cancel: str
) -> None:
    from waiting import until  # the workers of Spark import this module, and have no other one of the tests

    context = at.spark.sparkContext
    begun = str(tmp_path / "begun")
    here = SimpleNamespace(**{**vars(at), "new": str(tmp_path / "new"), "begun": begun})

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            endless(begun)
            yield batch

    df = at.df.repartition(2).mapInArrow(slow, "id long, s string")

    def when_running() -> None:
        until(Path(begun).exists)
        CANCELS[cancel](at.spark)

    canceller = threading.Thread(target=when_running)
    context.setJobGroup("of a test", "")
    context.addJobTag("of a test")
    canceller.start()
    try:
        said = r"^a Spark job was cancelled \(.*not committed"
        with pytest.raises(SparkJobCancelledError, match=said) as caught, typed_errors():
            WORK[work](here, df)
    finally:
        canceller.join()
        context.removeJobTag("of a test")
        context.setLocalProperty("spark.jobGroup.id", None)
    assert JAVA.search(str(caught.value)) is None
    assert DeltaTable(at.uri).version() == 0
    assert list(tmp_path.rglob("*.parquet")) == []
    assert not (tmp_path / "new" / "_delta_log").exists()
