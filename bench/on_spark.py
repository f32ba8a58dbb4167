"""refdelta on Spark, next to delta-spark and to bare Parquet: the same rows, the same files, one session.

    python bench/on_spark.py [--rounds 5] [--scale 1] [--only read,vectors,write,delete,merge] [--json FILE]

Every round runs every engine once, in turn, each time another one first, so that a slow minute of the machine hits all
of them. Rounds before the first warm up, five of reads and one of the others, and do not count. Shown are the median,
in brackets the fastest and the slowest round, and the median over the rounds of the ratio to the first engine named.

Read is TPC-H's lineitem as refdelta wrote it, of which one row in a hundred of every other file is deleted by vectors
in the second table: counted, summed up under a filter, and read whole, all columns of all rows. Opening the table and
planning is part of each figure, but the schema is given to bare Parquet, which reads deleted rows too. refdelta and
delta-spark count by the statistics in the log, and refdelta's format in Python counts rows. Written are the rows of
that table into a new one. Deleted is one row in a thousand, scattered over all files, and merged are 100,000 rows,
nine in ten of them updates; both from copies of the same table, with deletion vectors, and the rows that are left are
compared. refdelta syncs what it writes to the disk before it commits; the other two do not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from tables import CODEC, DATA, check, copied, lineitem, rotated, timed, write

import refdelta
import refdelta.spark
from refdelta.crosscheck import oracle
from refdelta.spark import SparkExecutor

FILTER = "l_shipdate >= DATE'1994-01-01' AND l_shipdate < DATE'1995-01-01' AND l_discount >= 0.05 AND l_quantity < 24"
MERGED = 100_000
# Java compiles what a read runs for as many rounds, and some seconds are long beside a count.
WARM = 5
DELETED = "l_orderkey % 1000 = 7"
KEYS = ("l_orderkey", "l_linenumber")

Samples = dict[str, list[float]]
Task = Callable[[Path], object]


def compare(engines: dict[str, Callable[[], object]], rounds: int, warm: int = 1) -> Samples:
    """Seconds of each engine in each round, behind some that warm up."""
    seconds: Samples = {name: [] for name in engines}
    for number in range(-warm, rounds):
        for name, run in rotated(engines, number):
            took = timed(run)
            if number >= 0:
                seconds[name].append(took)
    return seconds


class Readers:
    """The same table as DataFrames of each engine."""

    def __init__(self, spark: Any, table: Path):
        self.spark = spark
        self.schema = refdelta.spark.read(spark, table).schema
        self.files = [str(table / name) for name in refdelta.DeltaTable(table).scan().files["path"].to_pylist()]
        self.table = table

    def parquet(self, **_: Any) -> Any:
        return self.spark.read.schema(self.schema).parquet(*self.files)

    def refdelta(self, **planned: Any) -> Any:
        return refdelta.spark.read(self.spark, self.table, **planned)

    def source(self, **planned: Any) -> Any:
        return self.spark.read.format("refdelta").options(**planned).load(str(self.table))

    def delta(self, **_: Any) -> Any:
        return self.spark.read.format("delta").load(str(self.table))


def hide(folder: Path) -> None:
    """Delete one row in a hundred of every other file; keys ascend over the files."""
    table = refdelta.DeltaTable(folder)
    files = [folder / name for name in table.scan().files["path"].to_pylist()]
    spans = (pc.min_max(pq.read_table(file, columns=["l_orderkey"])["l_orderkey"]).as_py() for file in files)
    keys = sorted((span["min"], span["max"]) for span in spans)
    ranges = " OR ".join(f"l_orderkey BETWEEN {first} AND {last}" for first, last in keys[::2])
    table.delete(f"l_orderkey % 100 = 3 AND ({ranges})")


def reads(spark: Any, table: Path, rounds: int, *, vectors: bool) -> dict[str, Samples]:
    readers = Readers(spark, table)
    frames = {
        "bare Parquet": readers.parquet,
        "refdelta": readers.refdelta,
        "delta-spark": readers.delta,
        "refdelta, by the format": readers.source,
    }
    left = refdelta.DeltaTable(table).count()
    rows = {name: readers.parquet().count() if name == "bare Parquet" else left for name in frames}

    def counted(name: str) -> None:
        check(frames[name]().count(), rows[name])

    def summed(name: str) -> None:
        frames[name](filter=FILTER).where(FILTER).selectExpr("sum(l_extendedprice * l_discount)").collect()

    def whole(name: str) -> None:
        # Spark's sink for this, "noop", cannot take a table with vectors from delta-spark 4.4.
        check(frames[name]()._jdf.queryExecution().toRdd().count(), rows[name])  # noqa: SLF001

    what = {"count": counted, "filtered sum": summed, "all columns": whole}
    return {
        label + (" (vectors)" if vectors else ""): compare({name: partial(read, name) for name in frames}, rounds, WARM)
        for label, read in what.items()
    }


def writes(spark: Any, table: Path, rounds: int) -> dict[str, Samples]:
    readers = Readers(spark, table)
    target = table.with_name("written")

    def parquet(folder: Path) -> None:
        readers.parquet().write.option("compression", "snappy").parquet(str(folder))

    def ours(folder: Path) -> None:
        refdelta.spark.write(readers.parquet(), folder, configuration=CODEC)

    def delta(folder: Path) -> None:
        readers.parquet().write.format("delta").save(str(folder))

    def into(work: Task) -> None:
        shutil.rmtree(target, ignore_errors=True)
        work(target)

    engines = {"bare Parquet": parquet, "refdelta": ours, "delta-spark": delta}
    found = {"write": compare({name: partial(into, work) for name, work in engines.items()}, rounds)}
    shutil.rmtree(target)
    return found


def changed(table: Path, engines: dict[str, Task], rounds: int) -> Samples:
    """Seconds of statements, each on a fresh copy of the table; all must leave the same rows."""
    seconds: Samples = {name: [] for name in engines}
    left: set[tuple[int, int]] = set()
    for number in range(-1, rounds):
        for name, work in rotated(engines, number):
            with copied(table) as folder:
                took = timed(partial(work, folder))
                if number == -1:
                    rows = refdelta.DeltaTable(folder).to_pyarrow_table(columns=["l_suppkey"])
                    left.add((rows.num_rows, sum(rows["l_suppkey"].to_numpy().tolist())))
            if number >= 0:
                seconds[name].append(took)
    if len(left) != 1:
        raise SystemExit(f"the engines leave different rows: {left}")
    return seconds


def deletes(spark: Any, table: Path, rounds: int) -> dict[str, Samples]:
    engines: dict[str, Task] = {
        "delta-spark": lambda folder: spark.sql(f"DELETE FROM {oracle.identifier(folder)} WHERE {DELETED}"),
        "refdelta on Spark": lambda folder: refdelta.DeltaTable(folder).delete(DELETED, executor=SparkExecutor(spark)),
        "refdelta alone": lambda folder: refdelta.DeltaTable(folder).delete(DELETED),
    }
    return {"DELETE 0.1 %": changed(table, engines, rounds)}


def merges(spark: Any, table: Path, source: Path, rounds: int) -> dict[str, Samples]:
    on = " AND ".join(f"t.{key} = s.{key}" for key in KEYS)

    def delta(folder: Path) -> None:
        spark.read.parquet(str(source)).createOrReplaceTempView("merged")
        spark.sql(
            f"MERGE INTO {oracle.identifier(folder)} t USING merged s ON {on} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def ours(rows: Callable[[], Any], **where: Any) -> Task:
        def run(folder: Path) -> None:
            merger = refdelta.DeltaTable(folder).merge(rows(), on, source_alias="s", target_alias="t", **where)
            merger.when_matched_update_all().when_not_matched_insert_all().execute()

        return run

    engines = {
        "delta-spark": delta,
        "refdelta on Spark": ours(lambda: spark.read.parquet(str(source)), executor=SparkExecutor(spark)),
        "refdelta alone": ours(lambda: pq.read_table(source)),
    }
    return {"MERGE of 100,000": changed(table, engines, rounds)}


def merge_source(spark: Any, table: Path, folder: Path) -> None:
    """Rows to merge: nine in ten change a row of the table, the others are new."""
    frame = refdelta.spark.read(spark, table)
    share = min(MERGED, frame.count() // 10) / frame.count()
    chosen = frame.where(f"pmod(xxhash64({', '.join(KEYS)}), 1000000) < {int(share * 1_000_000)}")
    new = "CASE WHEN pmod(l_orderkey, 10) = 0 THEN -l_orderkey ELSE l_orderkey END AS l_orderkey"
    others = [f"`{name}`" for name in frame.columns if name not in ("l_orderkey", "l_suppkey")]
    chosen.selectExpr(new, "l_suppkey + 1 AS l_suppkey", *others).select(*frame.columns).coalesce(2).write.parquet(
        str(folder)
    )


def show(found: dict[str, Samples]) -> None:
    for label, engines in found.items():
        print(f"\n{label}")
        floor = next(iter(engines.values()))
        for name, seconds in engines.items():
            ratio = statistics.median(mine / its for mine, its in zip(seconds, floor, strict=True))
            spread = f"[{min(seconds):.2f} .. {max(seconds):.2f}]"
            print(f"  {name:<25}{statistics.median(seconds):>7.2f} s  {spread:<18}{ratio:>6.2f} x", flush=True)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1, help="of TPC-H; 1 has 6,001,215 rows of lineitem")
    parser.add_argument("--only", default="read,vectors,write,delete,merge", help="some of these, between commas")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(given)
    chosen, rounds = arguments.only.split(","), arguments.rounds
    DATA.mkdir(exist_ok=True)
    found: dict[str, Samples] = {}
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=DATA)))
        table = base / "table"
        write(table, lineitem(arguments.scale), vectors=True)
        conf = {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"}
        spark = stack.enter_context(oracle.session(memory="3g", conf=conf))
        refdelta.spark.register(spark)
        spark.conf.set("spark.databricks.delta.properties.defaults.enableDeletionVectors", "true")

        def add(more: dict[str, Samples]) -> None:
            show(more)
            found.update(more)

        if "read" in chosen:
            add(reads(spark, table, rounds, vectors=False))
        if "vectors" in chosen:
            hidden = base / "hidden"
            shutil.copytree(table, hidden)
            hide(hidden)
            add(reads(spark, hidden, rounds, vectors=True))
            shutil.rmtree(hidden)
        if "write" in chosen:
            add(writes(spark, table, rounds))
        if "delete" in chosen:
            add(deletes(spark, table, rounds))
        if "merge" in chosen:
            source = base / "source"
            merge_source(spark, table, source)
            add(merges(spark, table, source, rounds))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
