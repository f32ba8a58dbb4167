"""DELETE, MERGE and OPTIMIZE on Spark's workers, at growing scales of TPC-H: what is left for the driver.

    python bench/distributed.py [--scale 1 --scale 10] [--only merge] [--memory 3g] [--scratch DIR] [--json FILE]

The table is lineitem in files of 16 MiB with deletion vectors. Deleted is one row in a thousand, scattered over all
files; merged is a DataFrame with one row in a hundred, nine in ten of them updates, which stays with the workers if it
is larger than what ``SparkExecutor`` collects; OPTIMIZE joins files up to 128 MiB. Each statement runs in a process of
its own, with a Spark of its own that has run the same on a table of 60,000 rows before, on a copy of the table, and the
rows left are counted.

The driver's memory is what the resident memory of its Python rises by during the statement. Java is the driver's and
the workers' at once in a local Spark; its memory is bounded by ``--memory``, and its processor seconds stand apart. A
worker's memory is the highest of any Python worker. "Alone" are the seconds in which no job of Spark's was running:
the log is read, and the statement is planned and committed.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fresh
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tables import CODEC, DATA, VECTORS, check, copied, plain, tpchgen

import refdelta
from refdelta.crosscheck import oracle
from refdelta.spark import SparkExecutor

FILE_SIZE, JOINED_SIZE = 16 * 2**20, 128 * 2**20
DELETED = "l_orderkey % 1000 = 7"
KEYS = ("l_orderkey", "l_linenumber")
SMALL = 0.01
_BATCH = 64 * 1024


# --- the driver, in a process of its own -------------------------------------------------------------------------


def drive(statement: str, warm: str, folder: str, memory: str) -> dict[str, Any]:
    """Run a statement on Spark's workers, first on the table in one folder, and tell what it took in the other."""
    conf = {"spark.ui.enabled": "false", "spark.ui.retainedJobs": "100000"}
    with oracle.session(memory=memory, conf=conf) as spark:
        executor = SparkExecutor(spark)

        def run(place: str) -> Any:
            return WORK[statement](refdelta.DeltaTable(f"{place}/copy"), spark, f"{place}/source", executor)

        run(warm)
        processes = _Processes(spark)
        before, began = processes.cpu(), time.time()
        with fresh.Highest() as driver:
            metrics = run(folder)
        ended, after = time.time(), processes.cpu()
        return {
            "seconds": ended - began,
            "alone": ended - began - _busy(spark, began, ended),
            "cpu": {
                "driver": after["driver"] - before["driver"],
                "workers": _more(before["workers"], after["workers"]),
                "java": after["java"] - before["java"],
            },
            "driver": driver.peak,
            "worker": processes.highest_of_workers(),
            "metrics": {name: value for name, value in metrics.items() if isinstance(value, int)},
        }


def _delete(table: refdelta.DeltaTable, _spark: Any, _source: str, executor: SparkExecutor) -> Any:
    return table.delete(DELETED, executor=executor)


def _merge(table: refdelta.DeltaTable, spark: Any, source: str, executor: SparkExecutor) -> Any:
    on = " AND ".join(f"t.{key} = s.{key}" for key in KEYS)
    merger = table.merge(spark.read.parquet(source), on, source_alias="s", target_alias="t", executor=executor)
    return merger.when_matched_update_all().when_not_matched_insert_all().execute()


def _optimize(table: refdelta.DeltaTable, _spark: Any, _source: str, executor: SparkExecutor) -> Any:
    return table.optimize.compact(target_size=JOINED_SIZE, executor=executor)


WORK: dict[str, Callable[..., Any]] = {"delete": _delete, "merge": _merge, "optimize": _optimize}


class _Processes:
    """The processes of a local Spark: this one, Java, and the Python workers below it."""

    def __init__(self, spark: Any):
        self._java = spark.sparkContext._gateway.proc.pid  # noqa: SLF001 - nothing else knows it

    def cpu(self) -> dict[str, Any]:
        """Processor seconds so far; of the Python workers by process."""
        workers = {pid: fresh.times(pid) for pid in _below(self._java)}
        return {"driver": time.process_time(), "java": sum(fresh.times(self._java)[:2]), "workers": workers}

    def highest_of_workers(self) -> int:
        """The bytes of the largest Python worker, at its highest."""
        found = [0]
        for pid in _below(self._java):
            with suppress(OSError):  # it has ended
                found.append(fresh.highest(pid))
        return max(found)


def _below(pid: int) -> Iterator[int]:
    """The processes that a process has started, and those that they have started."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:  # it has ended
        return
    for child in children:
        yield child
        yield from _below(child)


def _more(before: dict[int, list[float]], after: dict[int, list[float]]) -> float:
    """The seconds that some processes took in between. Spark ends idle workers: their seconds move to the process that
    started them, if it waits for them, or are lost.
    """
    own = sum(sum(times[:2]) - sum(before.get(pid, [0.0])[:2]) for pid, times in after.items())
    ended = sum(sum(times[2:]) - sum(before.get(pid, [0.0])[2:]) for pid, times in after.items())
    known = sum(sum(times[:2]) for pid, times in before.items() if pid not in after)
    return own + max(0.0, ended - known)


def _busy(spark: Any, began: float, ended: float) -> float:
    """The seconds in which a job of Spark's was running."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)  # noqa: SLF001 - PySpark has no times of jobs
    spans = []
    for at in range(jobs.size()):
        job = jobs.apply(at)
        if job.submissionTime().isDefined():
            last = job.completionTime().get().getTime() / 1000 if job.completionTime().isDefined() else ended
            spans.append((max(began, job.submissionTime().get().getTime() / 1000), min(ended, last)))
    total, until = 0.0, began
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


# --- tables ------------------------------------------------------------------------------------------------------


def make(folder: Path, scale: float, file_size: int = FILE_SIZE) -> int:
    """The table, in files of so many bytes, and the source of the MERGE beside it. Returns how many rows the table has.

    TPC-H comes in parts of one scale each, so that no more than a part is on the disk twice, and a batch in memory.
    """
    parts, rows = max(1, math.ceil(scale)), 0
    (folder / "source").mkdir(parents=True)
    for part in range(1, parts + 1):
        raw = folder / "raw"
        tpchgen(raw, scale, "lineitem", *(["--parts", str(parts), "--part", str(part)] if parts > 1 else []))
        for file in sorted(raw.rglob("*.parquet")):
            rows += pq.read_metadata(file).num_rows
            _write(file, folder, part, file_size)
        shutil.rmtree(raw)
    return rows


def _write(file: Path, folder: Path, part: int, file_size: int) -> None:
    """Append a file of TPC-H to the table, and one row in a hundred to the source, a tenth of them with new keys."""
    parquet = pq.ParquetFile(file)
    schema = plain(parquet.schema_arrow)
    with pq.ParquetWriter(folder / "source" / f"{part}.parquet", schema) as source:

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in parquet.iter_batches(_BATCH):
                rows = batch.cast(schema)
                source.write_batch(_merged(rows))
                yield rows

        refdelta.write_deltalake(
            folder / "table",
            pa.RecordBatchReader.from_batches(schema, batches()),
            mode="append",
            configuration={**CODEC, **VECTORS},
            target_file_size=file_size,
        )


def _merged(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Keys of orders are 1 to 8 of every 32; a tenth of the chosen ones become negative, which are new."""
    chosen = rows.filter(pa.array(rows["l_orderkey"].to_numpy() // 32 % 100 == 5))
    key = chosen["l_orderkey"].to_numpy()
    new = pa.array(np.where(key // 3200 % 10 == 0, -key, key))
    changed = pc.add(chosen["l_suppkey"], 1).cast(chosen.schema.field("l_suppkey").type)
    columns = {**dict(zip(chosen.schema.names, chosen.columns, strict=True)), "l_orderkey": new, "l_suppkey": changed}
    return pa.record_batch(columns).cast(rows.schema)


# --- the run -----------------------------------------------------------------------------------------------------


def measure(statement: str, warm: Path, base: Path, rows: int, memory: str) -> dict[str, Any]:
    """Run a statement on a copy of the table, and check how many rows are left."""
    with copied(warm / "table"), copied(base / "table") as folder:
        told = fresh.call("distributed:drive", statement, str(warm), str(base), memory).result
        metrics = told["metrics"]
        inserted = metrics.get("num_target_rows_inserted", 0)
        left = rows - metrics.get("num_deleted_rows", 0) + inserted
        check(refdelta.DeltaTable(folder).count(), left)
    return {"rows": rows, **told}


def line(scale: float, statement: str, told: dict[str, Any]) -> str:
    cpu, wall = told["cpu"], told["seconds"]
    share = cpu["driver"] / sum(cpu.values())
    return (
        f"{scale:>5g} {told['rows']:>12,}  {statement:<9}{wall:8.1f}{told['alone']:8.1f}"
        f"{cpu['driver']:8.2f}{cpu['workers']:9.1f}{cpu['java']:8.1f}{share:8.1%}"
        f"{told['driver'] / 1e6:9.0f}{told['worker'] / 1e6:9.0f}"
    )


HEAD = (
    f"{'':29}{'':8}{'':>8}{'cpu s of':>25}{'driver':>8}{'MB of':>18}\n"
    f"{'scale':>5} {'rows':>12}  {'':9}{'s':>8}{'alone':>8}{'driver':>8}{'workers':>9}{'Java':>8}{'share':>8}"
    f"{'driver':>9}{'worker':>9}"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, action="append", help="of TPC-H, repeatable; 1 and 10 by default")
    parser.add_argument("--only", action="append", choices=WORK, help="this statement; repeatable")
    parser.add_argument("--file-size", type=int, default=FILE_SIZE, help="of the table's files, in bytes (16 MiB)")
    parser.add_argument("--memory", default="3g", help="of Java, in its notation (3g)")
    parser.add_argument("--scratch", type=Path, default=DATA, help="where the tables are")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    asked = parser.parse_args()
    if any(scale <= 0 for scale in asked.scale or ()):
        parser.error("--scale is more than 0")
    if asked.file_size <= 0:
        parser.error("--file-size is more than 0")
    asked.scratch.mkdir(exist_ok=True)
    found = []
    print(HEAD)
    with tempfile.TemporaryDirectory(prefix="distributed-", dir=asked.scratch) as name:
        warm, base = Path(name, "warm"), Path(name, "table")
        make(warm, SMALL, FILE_SIZE // 64)
        for scale in asked.scale or (1, 10):
            rows = make(base, scale, asked.file_size)
            for statement in asked.only or WORK:
                told = measure(statement, warm, base, rows, asked.memory)
                found.append({"scale": scale, "statement": statement, **told})
                print(line(scale, statement, told), flush=True)
            shutil.rmtree(base)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
