"""How work gets faster with more cores: its time on one core and on more, and the serial share by Amdahl's law.

    python bench/cores.py [--scale 1] [--rounds 7] [--only scan] [--cores 1,2] [--without deltalake] [--scratch DIR]

Each engine has a process for each number of cores, which may use these cores alone, and all of them do the same work in
turn. Tables are in memory (/dev/shm) if there is such a place. Work that took T seconds on one core and U on n cores
has the serial share (n U / T - 1) / (n - 1). With the share s, n cores are 1 / (s + (1 - s) / n) times as fast as one.

Other programs spoil such figures. So a sample counts if they used less than a tenth of its cores' time; if there are
none, the shortest sample does, and the line is marked by ``~``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

BENCH = Path(__file__).parent
PREDICTED = (4, 16, 64)
_QUIET = 0.1
_TICK = os.sysconf("SC_CLK_TCK")


class Sample(NamedTuple):
    """One run: its seconds, the processor seconds of the process, and those of others on the same cores."""

    seconds: float
    own: float
    others: float


# --- in the processes that are measured --------------------------------------------------------------------------


def scanning(engine: str, table: str, *, filtered: bool = False) -> Callable[[], Any]:
    from bench_scan import readers

    return readers(Path(table), filtered=filtered)[engine]


def small_files(engine: str, table: str) -> Callable[[], Any]:
    return scanning(engine, table)


def streaming(engine: str, table: str) -> Callable[[], Any]:
    """Batches that nobody keeps."""
    if engine == "refdelta":
        import refdelta

        return lambda: sum(batch.num_rows for batch in refdelta.DeltaTable(table).to_record_batch_reader())
    import pyarrow.dataset
    from tables import data_files

    files = data_files(Path(table))
    return lambda: sum(batch.num_rows for batch in pyarrow.dataset.dataset(files).to_batches())


def changing(engine: str, table: str, statement: str) -> Callable[[Path], Any]:
    """A statement on a copy of the table."""
    import bench_dml

    source = str(Path(table).with_name("source.parquet"))
    if engine == "pyarrow":  # the same rows read and written by it alone, without a log
        return lambda copy: bench_dml.by_pyarrow(statement, str(copy), source)
    if engine == "refdelta":
        return lambda copy: bench_dml.by_refdelta(statement, str(copy), source, fsync=False)
    return lambda copy: bench_dml.by_deltalake(statement, str(copy), source)


def writing(engine: str, table: str) -> Callable[[Path], Any]:
    import deltalake
    import pyarrow.parquet

    import refdelta

    rows = pyarrow.parquet.read_table(Path(table).with_name("rows.parquet"))
    if engine == "pyarrow":
        return lambda folder: pyarrow.parquet.write_table(rows, folder / "new.parquet")
    if engine == "refdelta":
        return lambda folder: refdelta.write_deltalake(folder / "new", rows, storage_options={"fsync": "false"})
    return lambda folder: deltalake.write_deltalake(str(folder / "new"), rows)


@dataclass(frozen=True)
class Work:
    """Some work.

    Attributes:
        table: the table that it reads, by the name of its folder.
        prepare: gives a function to time, of an engine and a table.
        changes: whether the function gets a copy of the table.
        engines: the engines that can do it.
    """

    table: str
    prepare: Callable[[str, str], Callable[..., Any]]
    changes: bool = False
    engines: tuple[str, ...] = ("refdelta", "pyarrow", "deltalake")


WORKS = {
    "scan": Work("lineitem", scanning),
    "scan as a stream": Work("lineitem", streaming, engines=("refdelta", "pyarrow")),
    "filtered scan": Work("lineitem", partial(scanning, filtered=True)),
    "scan with vectors": Work("hidden", scanning),
    "filtered scan with vectors": Work("hidden", partial(scanning, filtered=True)),
    "small files": Work("small", small_files),
    "write": Work("small", writing, changes=True),
    "compaction": Work("pieces", partial(changing, statement="OPTIMIZE"), changes=True),
    "merge": Work("lineitem", partial(changing, statement="MERGE"), changes=True, engines=("refdelta", "deltalake")),
}


def serve(engine: str, work: str, table: str, cores: list[int]) -> None:
    """Do some work on some cores each time that a line comes in, and answer with a sample."""
    os.sched_setaffinity(0, cores)  # libraries count the cores when they are imported
    import pyarrow as pa
    from tables import copied

    pa.set_cpu_count(len(cores))
    function = WORKS[work].prepare(engine, table)
    print("ready", flush=True)
    for _ in sys.stdin:
        if WORKS[work].changes:
            with copied(Path(table), name=f"copy-{os.getpid()}") as folder:
                sample = measured(partial(function, folder))
        else:
            sample = measured(function)
        print(json.dumps(sample), flush=True)


def measured(function: Callable[[], Any]) -> Sample:
    mine = os.sched_getaffinity(0)
    busy, own, began = _busy(mine), time.process_time(), time.perf_counter()
    function()
    seconds, own = time.perf_counter() - began, time.process_time() - own
    return Sample(seconds, own, max(0.0, _busy(mine) - busy - own))


def _busy(cores: set[int]) -> float:
    """The seconds that some cores have worked, for any process."""
    lines = (line.split() for line in Path("/proc/stat").read_text().splitlines())
    # user, nice, system, idle, iowait, irq, softirq, steal
    ticks = {name: [int(part) for part in parts[:8]] for name, *parts in lines if name.startswith("cpu")}
    return sum(sum(ticks[f"cpu{core}"]) - sum(ticks[f"cpu{core}"][3:5]) for core in cores) / _TICK


# --- tables ------------------------------------------------------------------------------------------------------


def make_tables(folder: Path, scale: float, files: int) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet
    from tables import copy, lineitem, write

    import refdelta

    rows = lineitem(scale)
    write(folder / "lineitem", rows, vectors=True)
    refdelta.DeltaTable(copy(folder / "lineitem", folder / "hidden")).delete("l_orderkey % 100 = 3")
    write(folder / "pieces", rows.slice(0, rows.num_rows // 4), file_size=2**20)
    pa.parquet.write_table(rows.slice(0, rows.num_rows // 3), folder / "rows.parquet")
    chosen = rows.take(np.sort(np.random.default_rng(7).choice(rows.num_rows, rows.num_rows // 10, replace=False)))
    pa.parquet.write_table(chosen, folder / "source.parquet")
    few = pa.table({"id": pa.array(range(10), pa.int64()), "name": [f"name {n}" for n in range(10)]})
    for _ in range(files):
        refdelta.write_deltalake(folder / "small", few, mode="append", storage_options={"fsync": "false"})


# --- figures -----------------------------------------------------------------------------------------------------


def serial_share(one: float, many: float, cores: int) -> float:
    """By Amdahl's law, from the seconds on one core and on many."""
    return (cores * many / one - 1) / (cores - 1)


def speedup(share: float, cores: int) -> float:
    """How many times as fast as one core: cores beyond those that were measured do not make work slower."""
    share = min(1.0, max(0.0, share))
    return 1 / (share + (1 - share) / cores)


def seconds(samples: list[Sample], cores: int) -> tuple[float, bool]:
    """The median of the samples that nothing disturbed, and True; or else the least, and False."""
    quiet = [one.seconds for one in samples if one.others < _QUIET * cores * one.seconds]
    return (statistics.median(quiet), True) if quiet else (min(one.seconds for one in samples), False)


def lines(found: dict[str, dict[int, list[Sample]]]) -> list[str]:
    """The figures of one kind of work: a line for each engine."""
    told = []
    for engine, by_cores in found.items():
        times = {cores: seconds(samples, cores) for cores, samples in by_cores.items()}
        most, sure = max(times), all(quiet for _, quiet in times.values())
        shown = "".join(f"{taken:9.3f}" for taken, _ in times.values())
        share = serial_share(times[1][0], times[most][0], most)
        predicted = "".join(f"{speedup(share, cores):7.1f}" for cores in PREDICTED)
        told.append(f"  {engine:10} {shown} {share:8.0%} {predicted} {'' if sure else ' ~'}")
    return told


# --- the run -----------------------------------------------------------------------------------------------------


class Process:
    """A process with an engine and some cores, ready for some work."""

    def __init__(self, engine: str, work: str, table: Path, cores: list[int]):
        command = [sys.executable, "cores.py", "--serve", engine, work, str(table), json.dumps(cores)]
        path = os.pathsep.join([str(BENCH), *filter(None, [os.environ.get("PYTHONPATH")])])
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, cwd=BENCH, env={**os.environ, "PYTHONPATH": path}, stdin=pipe, stdout=pipe
        )
        self._answer()

    def _answer(self) -> str:
        line = self._process.stdout.readline()
        if not line:
            raise subprocess.CalledProcessError(self._process.wait(), self._process.args)
        return line.decode()

    def run(self) -> Sample:
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return Sample(*json.loads(self._answer()))

    def end(self) -> None:
        self._process.communicate()


def measure(work: str, table: Path, engines: list[str], counts: list[int], rounds: int) -> dict[str, Any]:
    """The samples of each engine by the number of cores."""
    mine = sorted(os.sched_getaffinity(0))
    processes = {(engine, cores): Process(engine, work, table, mine[:cores]) for engine in engines for cores in counts}
    found: dict[str, dict[int, list[Sample]]] = {engine: {cores: [] for cores in counts} for engine in engines}
    for process in processes.values():
        process.run()  # what only the first run does
    order = list(processes)
    for number in range(rounds):
        start = number % len(order)
        for engine, cores in order[start:] + order[:start]:
            found[engine][cores].append(processes[engine, cores].run())
    for process in processes.values():
        process.end()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1, help="of lineitem; 1 has 6 million rows")
    parser.add_argument("--files", type=int, default=300, help="the number of small files")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", action="append", choices=WORKS, help="this work; repeatable")
    parser.add_argument("--without", action="append", default=[], help="an engine that is left out; repeatable")
    parser.add_argument("--cores", help="numbers of cores, such as 1,2,16; by default 1, 2, 4 and so on, and all")
    parser.add_argument("--scratch", default="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        engine, work, table, cores = asked.serve
        serve(engine, work, table, json.loads(cores))
        return
    every = len(os.sched_getaffinity(0))
    usual = {1, every, *(2**power for power in range(every.bit_length()) if 2**power <= every)}
    counts = sorted({1, *map(int, asked.cores.split(","))} if asked.cores else usual)
    if counts[-1] > every or len(counts) < 2:
        parser.error(f"this process may use {every} cores; the share needs two, and no more than there are")
    folder = Path(tempfile.mkdtemp(prefix="cores-", dir=asked.scratch))
    try:
        make_tables(folder, asked.scale, asked.files)
        heads = "".join(f"{f'{count} core' + 's' * (count > 1):>9}" for count in counts)
        print(f"{'seconds on':12} {heads}   serial  faster on {', '.join(map(str, PREDICTED))} cores")
        for name in asked.only or WORKS:
            engines = [engine for engine in WORKS[name].engines if engine not in asked.without]
            print(name, flush=True)
            found = measure(name, folder / WORKS[name].table, engines, counts, asked.rounds)
            print("\n".join(lines(found)), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
