"""Statements that change rows of TPC-H's lineitem, and those that rearrange its files.

Each run has a copy of the table of its own, in the page cache, and opens it. refdelta and delta-spark, in a warm
session, write deletion vectors; deltalake, which does not, writes files anew. The floor of those that rearrange files
is pyarrow, which reads the rows, sorts them where they are to be sorted, and writes one file of row groups of 2^20 rows
or less, as deltalake and refdelta do: it takes a row group only as a whole. Bytes are those of all files that the
statement left behind, the log's entry among them. The peak of memory is of one run in a process of its own, above what
its imports take; Spark's Java is not measured. deltalake and delta-spark do not sync what they write to the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

import deltalake
import fresh
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from contest import Engine, ahead
from tables import CODEC, check, copy, lineitem, size_of, write

import refdelta
from refdelta.crosscheck import oracle

DELETED = "l_orderkey % 1000 = 7"
UPDATED = "l_orderkey % 100 = 7"
ON = "t.l_orderkey = s.l_orderkey AND t.l_linenumber = s.l_linenumber"
SORTED = ["l_partkey", "l_shipdate"]
FULL = 128 * 2**20
GROUP = 2**20
SNAPPY = deltalake.WriterProperties(compression="SNAPPY")
Source = str | None


def open_refdelta(folder: str, *, fsync: bool) -> refdelta.DeltaTable:
    return refdelta.DeltaTable(folder, storage_options=None if fsync else {"fsync": "false"})


def merged(merger: Any) -> None:
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


REFDELTA: dict[str, Callable[[refdelta.DeltaTable, Source], object]] = {
    "DELETE": lambda table, _: table.delete(DELETED),
    "UPDATE": lambda table, _: table.update({"l_suppkey": "l_suppkey + 1"}, predicate=UPDATED),
    "MERGE": lambda table, source: merged(table.merge(pq.read_table(source), ON)),
    "OPTIMIZE": lambda table, _: table.optimize.compact(target_size=FULL),
    "ZORDER": lambda table, _: table.optimize.z_order(SORTED, target_size=FULL),
}
DELTALAKE: dict[str, Callable[[deltalake.DeltaTable, Source], object]] = {
    "DELETE": lambda table, _: table.delete(DELETED, writer_properties=SNAPPY),
    "UPDATE": lambda table, _: table.update({"l_suppkey": "l_suppkey + 1"}, None, UPDATED, SNAPPY),
    "MERGE": lambda table, source: merged(table.merge(pq.read_table(source), ON, "s", "t", writer_properties=SNAPPY)),
    "OPTIMIZE": lambda table, _: table.optimize.compact(target_size=FULL, writer_properties=SNAPPY),
    "ZORDER": lambda table, _: table.optimize.z_order(SORTED, target_size=FULL, writer_properties=SNAPPY),
}
SPARK = {
    "DELETE": f"DELETE FROM {{table}} WHERE {DELETED}",
    "UPDATE": f"UPDATE {{table}} SET l_suppkey = l_suppkey + 1 WHERE {UPDATED}",
    "MERGE": f"MERGE INTO {{table}} t USING parquet.`{{source}}` s ON {ON} "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "OPTIMIZE": "OPTIMIZE {table}",
    "ZORDER": f"OPTIMIZE {{table}} ZORDER BY ({', '.join(SORTED)})",
}


def by_refdelta(statement: str, folder: str, source: Source, fsync: bool) -> None:
    REFDELTA[statement](open_refdelta(folder, fsync=fsync), source)


def by_deltalake(statement: str, folder: str, source: Source) -> None:
    DELTALAKE[statement](deltalake.DeltaTable(folder), source)


def by_pyarrow(statement: str, folder: str, _: Source) -> None:
    """The rows of all data files in one more file, without a commit."""
    files = sorted(str(file) for file in Path(folder).glob("*.parquet"))
    with pq.ParquetWriter(f"{folder}/all", pq.read_schema(files[0]), compression="snappy") as writer:
        if statement == "ZORDER":
            rows = pq.read_table(files)
            order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in SORTED])
            writer.write_table(rows.take(order), GROUP)
            return
        held: list[pa.RecordBatch] = []
        for file in files:
            for batch in pq.ParquetFile(file).iter_batches():
                if sum(one.num_rows for one in held) + batch.num_rows > GROUP:
                    writer.write_table(pa.Table.from_batches(held), GROUP)
                    held.clear()
                held.append(batch)
        writer.write_table(pa.Table.from_batches(held), GROUP)


def by_spark(spark: Any, statement: str, folder: str, source: Source) -> None:
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(FULL))
    spark.sql(SPARK[statement].format(table=oracle.identifier(Path(folder)), source=source)).collect()


@pytest.fixture(scope="session")
def rows(size) -> pa.Table:
    """Of the table."""
    return lineitem(size(smoke=0.01, default=1))


@pytest.fixture(scope="session")
def part(rows, size) -> pa.Table:
    """Of these, those that statements work on which write all of them."""
    return rows.slice(0, rows.num_rows * size(smoke=100, default=25, full=100) // 100)


@pytest.fixture(scope="session")
def tables(scratch, rows, part) -> dict[str, Path]:
    """The table with deletion vectors and without, in files of 32 MiB, and a part of it in small ones."""
    made = {name: scratch / f"dml-{name}" for name in ("vectors", "plain", "small")}
    write(made["vectors"], rows, vectors=True)
    write(made["plain"], rows)
    write(made["small"], part, file_size=2 * 2**20)
    return made


@pytest.fixture(scope="session")
def source(scratch, rows) -> str:
    """Rows to merge: nine in ten change a row of the table, the others are new."""
    count = min(100_000, rows.num_rows // 10)
    chosen = rows.take(np.sort(np.random.default_rng(7).choice(rows.num_rows, count, replace=False)))
    keys = chosen["l_orderkey"]
    keys = pc.if_else(pc.equal(pa.array(np.arange(count) % 10), 0), pc.negate(keys), keys)
    at = chosen.schema.get_field_index
    chosen = chosen.set_column(at("l_orderkey"), "l_orderkey", keys)
    chosen = chosen.set_column(at("l_suppkey"), "l_suppkey", pc.add(chosen["l_suppkey"], 1))
    path = str(scratch / "merged.parquet")
    pq.write_table(chosen.cast(rows.schema), path)
    return path


def left(folder: Path) -> tuple[int, int]:
    """What shows that the statement did what it should: all engines leave the same rows."""
    keys = refdelta.DeltaTable(folder).to_pyarrow_table(columns=["l_suppkey"])["l_suppkey"]
    return len(keys), pc.sum(keys).as_py()


def compare(
    contest,
    statement: str,
    folder: Path,
    spark: Any,
    *,
    table: Path,
    plain: Path,
    source: Source = None,
    rounds: int = 3,
) -> None:
    rivals = {
        "refdelta": (table, partial(by_refdelta, fsync=False), "no fsync"),
        "refdelta, fsync": (table, partial(by_refdelta, fsync=True), "as by default"),
        "deltalake": (plain, by_deltalake, "no fsync"),
        **({"delta-spark": (table, partial(by_spark, spark), "no fsync, a warm session")} if spark else {}),
        **(
            {"floor": (table, by_pyarrow, "pyarrow, no fsync, no commit")}
            if statement in ("OPTIMIZE", "ZORDER")
            else {}
        ),
    }
    expected = None

    def peak(name: str) -> float:
        others = {"deltalake": ("by_deltalake", ()), "floor": ("by_pyarrow", ())}
        chosen, extra = others.get(name, ("by_refdelta", (name != "refdelta",)))
        target = copy(rivals[name][0], folder / "peak")
        told = fresh.call(f"bench_dml:{chosen}", statement, str(target), source, *extra)
        rmtree(target)
        return told.peak / 1e6

    def engine(name: str) -> Engine:
        base, work, settings = rivals[name]
        known = {} if name == "delta-spark" else {"peak MB": peak(name)}
        before = size_of(base)

        def run(target: Path) -> dict[str, float]:
            work(statement, str(target), source)
            return known | {"bytes": size_of(target) - before}

        def after(target: Path) -> None:
            nonlocal expected
            found = left(target)
            expected = expected or found
            check(found, expected)
            rmtree(target)

        return Engine(
            name,
            run,
            before=lambda: copy(base, folder / "run"),
            after=after,
            settings=settings,
            every=3 if name == "delta-spark" else 1,
        )

    goals = [ahead("deltalake"), ahead("delta-spark"), ahead("deltalake", figure="peak MB")]
    sizes = {"rows": refdelta.DeltaTable(table).count()}
    # Nothing is warmed up by a round of its own: the tables have just been written.
    contest.run([engine(name) for name in rivals], rounds=rounds, warm=0, goals=goals, **sizes)


def bench_write(contest, folder, part):
    """Rows in memory, into a new table."""

    def by_pyarrow(target: Path) -> None:
        target.mkdir()
        pq.write_table(part, target / "rows.parquet", compression="snappy")

    def by_deltalake(target: Path) -> None:
        deltalake.write_deltalake(str(target), part, writer_properties=SNAPPY)

    def by_refdelta(target: Path, **options: Any) -> None:
        refdelta.write_deltalake(target, part, configuration=CODEC, storage_options=options)

    writers = {
        "refdelta": (partial(by_refdelta, fsync="false"), "no fsync"),
        "refdelta, fsync": (by_refdelta, "as by default"),
        "pyarrow": (by_pyarrow, "one file, no fsync"),
        "deltalake": (by_deltalake, "no fsync"),
    }
    engines = [
        Engine(name, work, before=lambda: folder / "written", after=rmtree, settings=settings)
        for name, (work, settings) in writers.items()
    ]
    contest.run(engines, rounds=3, goals=[ahead("deltalake")], rows=part.num_rows)


def bench_delete_of_a_thousandth(contest, folder, spark, tables):
    compare(contest, "DELETE", folder, spark, table=tables["vectors"], plain=tables["plain"])


def bench_update_of_a_hundredth(contest, folder, spark, tables):
    compare(contest, "UPDATE", folder, spark, table=tables["vectors"], plain=tables["plain"], rounds=2)


def bench_merge_of_100_000(contest, folder, spark, tables, source):
    chosen = {"table": tables["vectors"], "plain": tables["plain"]}
    compare(contest, "MERGE", folder, spark, **chosen, source=source, rounds=2)


def bench_compaction(contest, folder, spark, tables):
    compare(contest, "OPTIMIZE", folder, spark, table=tables["small"], plain=tables["small"])


def bench_zorder(contest, folder, spark, tables):
    compare(contest, "ZORDER", folder, spark, table=tables["small"], plain=tables["small"], rounds=2)
