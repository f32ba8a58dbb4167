"""Every setting of a session, one at a time: ``python -m spark.settings``, or ``make search NAME=spark-settings``.

    python -m spark.settings [--only TEXT] [--internal] [--together 8] [--part 1/2]

Reads, writes, changes and streams of tables with all types are done at Spark's defaults, then with one setting changed:
each boolean that ``SET -v`` lists is turned around, and other settings get the values of :data:`VALUES`. Each answer
must be the one at the defaults. Beside each read the same query runs over bare Parquet files of the same rows: where
that answer changes too, Spark means something else by the setting, and it is told as such. Prints what differs, and
fails where a table of refdelta differs and Parquet does not.
"""

from __future__ import annotations

import argparse
import datetime as dt
import functools
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from refdelta import DeltaTable, write_deltalake

VALUES: dict[str, tuple[str, ...]] = {
    "spark.sql.autoBroadcastJoinThreshold": ("-1",),
    "spark.sql.binaryOutputStyle": ("HEX",),
    "spark.sql.execution.arrow.maxRecordsPerBatch": ("1", "0"),
    "spark.sql.execution.arrow.maxBytesPerBatch": ("1",),
    "spark.sql.execution.arrow.compression.codec": ("lz4", "zstd"),
    "spark.sql.execution.pandas.structHandlingMode": ("dict",),
    "spark.sql.execution.rangeExchange.sampleSizePerPartition": ("1",),
    "spark.sql.files.maxPartitionBytes": ("1000",),
    "spark.sql.files.minPartitionNum": ("7",),
    "spark.sql.leafNodeDefaultParallelism": ("5",),
    "spark.sql.legacy.timeParserPolicy": ("LEGACY", "CORRECTED"),
    "spark.sql.mapKeyDedupPolicy": ("LAST_WIN",),
    "spark.sql.maxPlanStringLength": ("20",),
    "spark.sql.optimizer.inSetConversionThreshold": ("0",),
    "spark.sql.parquet.compression.codec": ("gzip", "uncompressed"),
    "spark.sql.parquet.columnarReaderBatchSize": ("1",),
    "spark.sql.parquet.datetimeRebaseModeInRead": ("LEGACY", "CORRECTED"),
    "spark.sql.parquet.datetimeRebaseModeInWrite": ("LEGACY", "CORRECTED"),
    "spark.sql.parquet.int96RebaseModeInRead": ("LEGACY",),
    "spark.sql.parquet.outputTimestampType": ("INT96", "TIMESTAMP_MILLIS"),
    "spark.sql.parquet.pushdown.inFilterThreshold": ("0", "1"),
    "spark.sql.session.timeZone": ("America/New_York", "Asia/Kolkata"),
    "spark.sql.shuffle.partitions": ("1", "17"),
    "spark.sql.sources.default": ("csv",),
    "spark.sql.sources.partitionOverwriteMode": ("DYNAMIC",),
    "spark.sql.sources.useV1SourceList": ("",),
    "spark.sql.sources.v2.bucketing.enabled": ("true",),
    "spark.sql.storeAssignmentPolicy": ("LEGACY", "STRICT"),
    "spark.sql.timestampType": ("TIMESTAMP_NTZ",),
    "spark.sql.defaultCollation": ("UTF8_LCASE",),
    "spark.sql.pyspark.udf.profiler": ("perf",),
}
"""Settings that are not boolean, with the values that are tried."""

UTC = dt.UTC
Answer = Any
Question = Callable[["Tables"], Answer]


def typed_rows() -> pa.Table:
    """Rows of all types that both sides have, with their extremes."""
    ids = list(range(8))
    day, moment = dt.date, dt.datetime
    columns = {
        "id": pa.array(ids, pa.int64()),
        "t": pa.array([1, -128, 127, None, 0, 1, 2, 3], pa.int8()),
        "i": pa.array([1, -(2**31), 2**31 - 1, None, 0, 1, 2, 3], pa.int32()),
        "f": pa.array([1.5, float("nan"), -0.0, 0.0, None, float("inf"), -float("inf"), 3.0], pa.float32()),
        "d": pa.array([float("nan"), 7.5, 0.0, -0.0, None, float("inf"), -float("inf"), 3.0], pa.float64()),
        "b": pa.array([True, False, None, True, False, True, False, True]),
        "s": pa.array(["a", "a ", "${spark.app.name}", "x\\ny", None, "", "é%_", "A"]),
        "y": pa.array([b"a", b"\x00\xff", b"", None, b"1", b"2", b"3", b"4"]),
        "n": pa.array([Decimal("1.10"), Decimal("-9.99"), None, *map(Decimal, range(5))], pa.decimal128(5, 2)),
        "w": pa.array([Decimal("0." + "1" * 38), *[None] * 6, Decimal("-0." + "9" * 38)], pa.decimal128(38, 38)),
        "day": pa.array([day(1, 1, 1), day(1582, 10, 4), day(1900, 2, 28), None, *[day(2024, 2, 29)] * 3, day.max]),
        "ts": pa.array(
            [moment(1, 1, 2, tzinfo=UTC), moment(1582, 10, 4, 12, tzinfo=UTC), moment(2024, 3, 10, 7, 30, tzinfo=UTC),
             None, moment(2024, 11, 3, 5, 30, tzinfo=UTC), moment(2024, 11, 3, 6, 30, tzinfo=UTC),
             moment(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), moment(9999, 12, 30, tzinfo=UTC)],
            pa.timestamp("us", "UTC"),
        ),
        "plain": pa.array(
            [moment(1, 1, 2), moment(1582, 10, 4, 12), moment(2024, 3, 10, 2, 30), None,
             *[moment(2024, 11, 3, 1, 30)] * 3, moment(9999, 12, 30)],
            pa.timestamp("us"),
        ),
        "v": pa.array(
            [{"a": 1, "f": float("nan"), "l": [1, None]}, {"a": None, "f": -0.0, "l": []}, None,
             *({"a": number, "f": 0.5, "l": [number]} for number in range(5))],
            pa.struct({"a": pa.int64(), "f": pa.float64(), "l": pa.list_(pa.int32())}),
        ),
        "m": pa.array(
            [[("k", 1)], [("k", None), ("ü", 2)], [], None, *[[("a.b", 3)]] * 4], pa.map_(pa.string(), pa.int64())
        ),
    }  # fmt: skip
    return pa.table(columns)


FILTERS = (
    "id > 3", "d > 5", "d = double('nan')", "isnan(d)", "d = 0", "d <=> -0.0D", "f <= 0", "v.f > 1", "v.a = 1",
    "n > 1.05", "n IN (1, 2.00)", "w > 0.1", "s = 'a'", "s = '${spark.app.name}'", r"s = 'x\\ny'", "s LIKE '%a%'",
    "s LIKE 'é!%!_' ESCAPE '!'", "s IN ('a', 'A', NULL)", "NOT (s <=> NULL)", "day < '1600-01-01'",
    "day = '2024-02-29'", "ts = '2024-11-03 05:30:00'", "ts < '1970-01-01'", "plain = '2024-11-03 01:30:00'",
    "cast(s AS int) IS NULL AND id = 100", "id % 2 = 1 AND b", "t + 1 > 3 OR t < 0 AND i < 100 AND i > 0",
    "CASE WHEN b THEN id ELSE -id END < 0", "y = X'00ff'", "year(ts) = 2024", "upper(s) = 'A'", "size(v.l) > 0",
)  # fmt: skip


@dataclass
class Tables:
    """What is read and written.

    Attributes:
        spark: the session.
        folder: where all of it is.
        rows: a DataFrame of rows of all types, made at the defaults.
        bare: the place of Parquet files with the rows of the table ``typed``.
        numbers: gives each write a place of its own.
    """

    spark: Any
    folder: Path
    rows: Any = None
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(10**9)))

    def make(self) -> None:
        """Write the tables, by the engine alone."""
        from pyspark.sql.pandas.types import from_arrow_schema

        rows = typed_rows()
        vectors = {"delta.enableDeletionVectors": "true"}
        write_deltalake(self.at("typed"), rows, configuration=vectors)
        write_deltalake(self.at("typed"), rows.slice(2), mode="append")
        DeltaTable(self.at("typed")).delete("id = 6")
        write_deltalake(self.at("parts"), rows, partition_by=["s", "day", "ts", "d"], configuration=vectors)
        mapped = {"delta.columnMapping.mode": "id", **vectors}
        write_deltalake(self.at("mapped"), rows, partition_by=["b"], configuration=mapped)
        padded = pa.field("c", pa.string(), metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(4)"})
        schema = pa.schema([pa.field("id", pa.int64()), padded])
        write_deltalake(self.at("padded"), pa.table([[1, 2, 3], ["ab", "cd  ", None]], schema=schema))
        write_deltalake(self.at("broken"), rows.select(["id"]))
        next(self.folder.joinpath("broken").glob("*.parquet")).unlink()
        for name in ("typed", "parts"):
            (self.folder / f"bare-{name}").mkdir()
            left = DeltaTable(self.at(name)).to_pyarrow_table()
            place = self.folder / f"bare-{name}" / "x.parquet"
            # Bounds without NaN, as pyarrow writes them, would cost Spark rows.
            pq.write_table(left.replace_schema_metadata(None), place, write_statistics=False)
        kinds = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
        self.rows = self.spark.createDataFrame(rows, kinds)

    def at(self, name: str) -> str:
        """The path of a table."""
        return str(self.folder / name)

    def new(self) -> str:
        """A path at which nothing is."""
        return self.at(f"new{next(self.numbers)}")

    def copy(self, name: str) -> str:
        """The path of a copy of a table."""
        place = self.new()
        shutil.copytree(self.at(name), place)
        return place

    def bare(self, name: str) -> Any:
        """The rows of a table in Spark's own Parquet reader."""
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(typed_rows().schema, prefer_timestamp_ntz=True)
        return self.spark.read.schema(schema).options(datetimeRebaseMode="CORRECTED").parquet(self.at(f"bare-{name}"))


# --- questions -----------------------------------------------------------------------------------------------------


def collected(frame: Any) -> list[str]:
    """The rows of a DataFrame, with its columns by the order of their names."""
    names = sorted(frame.columns)
    return sorted(repr(tuple(row[name] for name in names)) for row in frame.collect())


def of_engine(place: str, *, schema: bool = True) -> list[str]:
    """The rows of a table as the engine reads them, and its schema."""
    table = DeltaTable(place).to_pyarrow_table()
    table = table.select(sorted(table.column_names))
    described = [str(table.schema.remove_metadata())] if schema else []
    return described + sorted(repr(tuple(row.values())) for row in table.to_pylist())


def conditions() -> dict[str, Callable[[], Any]]:
    """Conditions that the user builds, of Spark's columns."""
    from pyspark.sql import functions as f

    return {
        "d > 5": lambda: f.col("d") > 5,
        "d is NaN": lambda: f.isnan("d"),
        "d = 0": lambda: f.col("d") == 0,
        "f <=> -0.0": lambda: f.col("f").eqNullSafe(f.lit(-0.0)),
        "v.f > 1": lambda: f.col("v.f") > 1,
        "n > 1.05": lambda: f.col("n") > f.lit(Decimal("1.05")),
        "day < 1600": lambda: f.col("day") < f.lit(dt.date(1600, 1, 1)),
        "ts = a moment": lambda: f.unix_micros("ts") == 1_730_611_800_000_000,
        "s = 'a'": lambda: f.col("s") == "a",
        "s in": lambda: f.col("s").isin("a", "", "é%_"),
        "id in": lambda: f.col("id").isin(1, 5, 7),
        "b": lambda: f.col("b"),
        "t is null": lambda: f.col("t").isNull(),
    }


def reads() -> Iterator[tuple[str, Question, Question | None]]:
    """Reads, each with the same by Parquet where there is one."""
    from refdelta.spark import read

    def by_read(tables: Tables, name: str, **given: Any) -> Any:
        return read(tables.spark, tables.at(name), **given)

    def by_source(tables: Tables, name: str, **options: str) -> Any:
        return tables.spark.read.format("refdelta").options(**options).load(tables.at(name))

    for name in ("typed", "parts"):
        whole, where = partial(bare, name, collected), partial(bare, name, chosen)
        yield f"read {name}", lambda tables, name=name: collected(by_read(tables, name)), whole
        yield f"read {name} where", lambda tables, name=name: chosen(by_read(tables, name)), where
        yield f"count {name}", lambda tables, name=name: by_read(tables, name).count(), None
        yield f"source {name}", lambda tables, name=name: collected(by_source(tables, name)), whole
    where = partial(bare, "typed", chosen)
    yield "source typed where", lambda tables: chosen(by_source(tables, "typed")), where
    yield "count of source typed", lambda tables: by_source(tables, "typed").count(), None
    yield "read(filter=)", filtered, None
    yield "source(filter=)", lambda tables: collected(by_source(tables, "typed", filter="d > 5 OR s = 'a'")), None
    yield "read mapped", lambda tables: collected(by_read(tables, "mapped")), None
    yield "read padded", lambda tables: collected(by_read(tables, "padded")), None
    yield "read padded(filter=)", lambda tables: collected(by_read(tables, "padded", filter="c = 'ab'")), None
    yield "read padded where", lambda tables: collected(by_read(tables, "padded").where("c = 'ab'").select("id")), None
    yield (
        "_metadata",
        lambda tables: collected(by_read(tables, "typed", metadata=True).select("id", "_metadata.row_index")),
        None,
    )
    yield "views", viewed, None
    yield "error of a worker", failed, None


def chosen(frame: Any) -> list[str]:
    """For each condition that a user builds, the ids of the rows; in one action, which is faster."""
    from pyspark.sql import functions as f

    each = (frame.where(made()).select(f.lit(said).alias("said"), "id") for said, made in conditions().items())
    return collected(functools.reduce(lambda one, other: one.unionAll(other), each))


def bare(name: str, answered: Callable[[Any], Answer], tables: Tables) -> Answer:
    """The same question to Parquet files of the same rows."""
    return answered(tables.bare(name))


def filtered(tables: Tables) -> Answer:
    """For each filter, the ids of the rows."""
    from pyspark.sql import functions as f

    from refdelta.spark import read

    each = [
        read(tables.spark, tables.at(name), filter=text).select(f.lit(text).alias("said"), "id")
        for name, texts in (("typed", FILTERS), ("parts", ("ts < '1970-01-01' AND (d > 5 OR day < '1600-01-01')",)))
        for text in texts
    ]
    return collected(functools.reduce(lambda one, other: one.unionAll(other), each))


def viewed(tables: Tables) -> Answer:
    from refdelta.spark import read

    tables.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING refdelta OPTIONS (path '{tables.at('typed')}')")
    read(tables.spark, tables.at("parts")).createOrReplaceTempView("w")
    return collected(tables.spark.sql("SELECT v.id, w.s, count(*) AS c FROM v JOIN w ON v.id = w.id GROUP BY ALL"))


def failed(tables: Tables) -> Answer:
    """The error of a table of which a file is missing."""
    from refdelta.errors import DeltaError
    from refdelta.spark import typed_errors

    try:
        with typed_errors():
            tables.spark.read.format("refdelta").load(tables.at("broken")).collect()
    except DeltaError as error:
        return type(error).__name__
    return "no error"


def changes(only: str) -> Iterator[tuple[str, Question, Question | None]]:
    """Writes and statements, whose tables the engine reads."""
    for name, made in (
        ("write in partitions", lambda tables: written(tables, partition_by=["day", "s"])),
        ("write by the format", sunk),
        ("writes of rows of the table", from_itself),
        ("MERGE, shuffled", lambda tables: merged(tables, 0)),
        ("MERGE, collected", lambda tables: merged(tables, 2**26)),
        ("DELETE, UPDATE and OPTIMIZE", changed),
        *([("a stream", streamed)] if "stream" in only else []),
    ):
        yield name, made, None


def written(tables: Tables, **options: Any) -> Answer:
    from refdelta.spark import write

    place = tables.new()
    write(tables.rows, place, **options)
    return of_engine(place)


def sunk(tables: Tables) -> Answer:
    place = tables.new()
    tables.rows.write.format("refdelta").mode("append").option("partitionBy", "ts,f").save(place)
    tables.rows.where("id < 3").write.format("refdelta").mode("append").save(place)
    return of_engine(place)


def from_itself(tables: Tables) -> Answer:
    """Whether the commit of an append of rows of the table says that it is blind."""
    from refdelta.spark import read, write

    place = tables.copy("typed")
    write(read(tables.spark, place).where("id < 3"), place, mode="append")
    first = DeltaTable(place).history(1)[0]["isBlindAppend"]
    write(tables.rows, place, mode="append")
    return [first, DeltaTable(place).history(1)[0]["isBlindAppend"], *of_engine(place)]


def merged(tables: Tables, broadcast_bytes: int) -> Answer:
    from refdelta.spark import SparkExecutor

    place = tables.copy("typed")
    by = SparkExecutor(tables.spark, broadcast_bytes=broadcast_bytes)
    news = tables.rows.where("id > 4").union(tables.rows.selectExpr("id + 100", *tables.rows.columns[1:]))
    statement = DeltaTable(place).merge(news, "t.ts = s.ts AND t.d = s.d AND t.id <=> s.id", "s", "t", executor=by)
    statement.when_matched_update_all("s.id > 5").when_matched_delete("s.d > 5").when_not_matched_insert(
        {"id": "s.id + 1000", "s": "s.s", "ts": "s.ts", "day": "s.day", "d": "s.d"}, "s.id > 4"
    ).execute()
    return of_engine(place)


def changed(tables: Tables) -> Answer:
    from refdelta.spark import SparkExecutor

    by = SparkExecutor(tables.spark)
    place = tables.copy("typed")
    DeltaTable(place).delete("d > 5 OR ts < '1000-01-01'", executor=by)
    DeltaTable(place).update({"n": "n + 1", "plain": "plain + INTERVAL 1 DAY"}, predicate="s = 'a'", executor=by)
    DeltaTable(place).optimize.compact(executor=by)
    return of_engine(place)


def streamed(tables: Tables) -> Answer:
    source, place = tables.copy("typed"), tables.new()
    stream = tables.spark.readStream.format("refdelta").option("maxFilesPerTrigger", 1).load(source)
    query = (
        stream.writeStream.format("refdelta")
        .option("checkpointLocation", f"{place}-checkpoint")
        .trigger(availableNow=True)
        .start(place)
    )
    query.awaitTermination(120)
    query.stop()
    return of_engine(place)


# --- the search ----------------------------------------------------------------------------------------------------


def answer(question: Question, tables: Tables) -> Answer:
    """What a question has for an answer; an error is one."""
    try:
        return question(tables)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:600]}"


def settings(spark: Any, *, internal: bool) -> Iterator[tuple[str, str]]:
    """Each setting with a value to try."""
    if internal:
        entries = spark._jvm.org.apache.spark.sql.internal.SQLConf.getConfigEntries()
        found = {entry.key(): entry.defaultValueString() for entry in entries}
    else:
        found = {row["key"]: row["value"] for row in spark.sql("SET -v").collect()}
    for name in sorted(found):
        if name in VALUES:
            yield from ((name, value) for value in VALUES[name] if value != found[name])
        elif found[name] in ("true", "false") and spark.conf.isModifiable(name):
            yield name, "false" if spark.conf.get(name, found[name]) == "true" else "true"


def difference(before: Answer, now: Answer) -> str:
    """Where two answers differ."""
    if isinstance(before, list) and isinstance(now, list):
        gone, come = [one for one in before if one not in now], [one for one in now if one not in before]
        return f"{len(gone)} of {len(before)} went, {len(come)} of {len(now)} came: {gone[:1]} {come[:1]}"
    return f"{before!r:.300} became {now!r:.700}"


@dataclass
class Search:
    """A run: what is asked, and what the answers at the defaults are."""

    tables: Tables
    asked: list[tuple[str, Question, Question | None]]
    wrong: int = 0
    alike: int = 0

    def __post_init__(self) -> None:
        self.expected = {name: answer(question, self.tables) for name, question, _ in self.asked}
        for name, _, control in self.asked:
            found = self.expected[name]
            beside = None if control is None else answer(control, self.tables)
            if (isinstance(found, str) and name != "error of a worker") or beside not in (None, found):
                print(f"at the defaults: {name}: {found!r:.600} {beside!r:.300}", flush=True)
                self.wrong += 1

    def tries(self, some: list[tuple[str, str]]) -> None:
        """Try settings, together; where an answer differs, each half of them."""
        began, conf = time.monotonic(), self.tables.spark.conf
        before = {name: conf.get(name, None) for name, _ in some}
        lines, same = [], 0
        try:
            for name, value in some:
                conf.set(name, value)
            for what, question, control in self.asked:
                now = answer(question, self.tables)
                if now == self.expected[what]:
                    continue
                alike = control is not None and answer(control, self.tables) == now
                same += alike
                lines.append(f"    {'Spark means: ' if alike else ''}{what}: {difference(self.expected[what], now)}")
                if len(some) > 1:
                    break
        finally:
            for name, value in before.items():
                conf.unset(name) if value is None else conf.set(name, value)
            for path in self.tables.folder.glob("new*"):
                shutil.rmtree(path, ignore_errors=True)
        if len(some) > 1 and lines:
            self.tries(some[: len(some) // 2])
            self.tries(some[len(some) // 2 :])
            return
        self.alike += same
        self.wrong += len(lines) - same
        print(
            f"{time.monotonic() - began:.0f} s: {', '.join('='.join(one) for one in some)}",
            *lines,
            sep="\n",
            flush=True,
        )


def session() -> Any:
    """A session at Spark's defaults, but small."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("settings")
    small = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:TieredStopAtLevel=1",
    }
    for name, value in small.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def main() -> int:
    """Run it."""
    from refdelta.spark import register

    parser = argparse.ArgumentParser(prog="spark.settings", description=__doc__)
    parser.add_argument("--only", default="", help="settings with this in their names")
    parser.add_argument("--questions", default="", help="questions with this in their names")
    parser.add_argument("--internal", action="store_true", help="settings that Spark does not document, too")
    parser.add_argument(
        "--together", type=int, default=1, help="so many at once; one at a time where an answer differs"
    )
    parser.add_argument("--part", default="1/1", help="the first of two halves: 1/2")
    given = parser.parse_args()
    os.environ["TZ"] = "UTC"
    time.tzset()
    spark = session()
    register(spark)
    with tempfile.TemporaryDirectory(prefix="settings-") as folder:
        tables = Tables(spark, Path(folder))
        tables.make()
        run = Search(tables, [one for one in (*reads(), *changes(given.only)) if given.questions in one[0]])
        part, parts = map(int, given.part.split("/"))
        some = [one for one in settings(spark, internal=given.internal) if given.only in one[0]][part - 1 :: parts]
        print(f"{len(some)} settings, {len(run.asked)} questions", flush=True)
        for start in range(0, len(some), given.together):
            run.tries(some[start : start + given.together])
    print(f"{run.wrong} answers differ; {run.alike} that Spark means otherwise, as for Parquet")
    spark.stop()
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
