"""Rows per second, written and read: refdelta, deltalake and bare pyarrow on the same rows and the same files.

    python bench/throughput.py [--rounds 5] [--scale 1] [--only flights|lineitem] [--json FILE]

Every round runs every engine once, in turn, so that a slow minute of the machine hits all of them. Written are rows
that are in memory, into a fresh folder, as one commit; read is the table that refdelta wrote, by all three. All write
the same codec. Shown are the median and, in brackets, the slowest and the fastest round. refdelta's writes are synced
to the disk before the commit, the others' are not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet

import refdelta
from refdelta.demo import flights

CODEC = "snappy"
DATA = Path(__file__).parent / "data"


def lineitem(scale: float) -> pa.Table:
    """TPC-H lineitem, generated once by tpchgen-cli."""
    folder = DATA / f"tpch-{scale:g}"
    file = folder / "lineitem.parquet"
    if not file.exists():
        tool = Path(sys.executable).with_name("tpchgen-cli")
        command = [tool, "parquet", "--scale-factor", f"{scale:g}", "--tables", "lineitem", "--output-dir", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    table = pa.parquet.read_table(file)
    # Strings in the layout that all engines take as it is.
    plain = [f.with_type(pa.string()) if f.type == pa.string_view() else f for f in table.schema]
    return table.cast(pa.schema(plain))


def write_pyarrow(folder: Path, rows: pa.Table) -> None:
    folder.mkdir()
    pa.parquet.write_table(rows, folder / "rows.parquet", compression=CODEC)


def write_deltalake(folder: Path, rows: pa.Table) -> None:
    properties = deltalake.WriterProperties(compression=CODEC.upper())
    deltalake.write_deltalake(str(folder), rows, writer_properties=properties)


def write_refdelta(folder: Path, rows: pa.Table) -> None:
    refdelta.write_deltalake(folder, rows, configuration={"delta.parquet.compression.codec": CODEC})


def read_pyarrow(folder: Path) -> int:
    return pa.dataset.dataset(sorted(map(str, folder.rglob("*.parquet")))).to_table().num_rows


def read_deltalake(folder: Path) -> int:
    return deltalake.DeltaTable(str(folder)).to_pyarrow_table().num_rows


def read_refdelta(folder: Path) -> int:
    return refdelta.DeltaTable(folder).to_pyarrow_table().num_rows


WRITERS: dict[str, Callable[[Path, pa.Table], None]] = {
    "pyarrow": write_pyarrow,
    "deltalake": write_deltalake,
    "refdelta": write_refdelta,
}
READERS: dict[str, Callable[[Path], int]] = {
    "pyarrow": read_pyarrow,
    "deltalake": read_deltalake,
    "refdelta": read_refdelta,
}


def measure(rows: pa.Table, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Rows per second of every round: ``{"write": {engine: [...]}, "read": {engine: [...]}}``."""
    found: dict[str, dict[str, list[float]]] = {
        "write": {engine: [] for engine in WRITERS},
        "read": {engine: [] for engine in READERS},
    }
    base = Path(tempfile.mkdtemp(prefix="bench-", dir=DATA))
    try:
        shared = base / "shared"
        write_refdelta(shared, rows)
        for number in range(-1, rounds):  # the round before the first warms up, and does not count
            for engine, write in rotated(WRITERS, number):
                folder = base / f"{engine}-{number}"
                seconds = timed(lambda write=write, folder=folder: write(folder, rows))
                shutil.rmtree(folder)
                if number >= 0:
                    found["write"][engine].append(rows.num_rows / seconds)
            for engine, read in rotated(READERS, number):
                seconds = timed(lambda read=read: check(read(shared), rows.num_rows))
                if number >= 0:
                    found["read"][engine].append(rows.num_rows / seconds)
    finally:
        shutil.rmtree(base)
    return found


def rotated(engines: dict[str, Any], number: int) -> list[tuple[str, Any]]:
    """Another engine first in every round: what one leaves in the caches must not always meet the same other."""
    items = list(engines.items())
    start = number % len(items)
    return items[start:] + items[:start]


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def check(got: int, expected: int) -> None:
    if got != expected:
        raise SystemExit(f"{got} rows were read, not {expected}: no figure is worth anything")


def show(name: str, rows: pa.Table, found: dict[str, dict[str, list[float]]]) -> None:
    print(f"\n{name}: {rows.num_rows:,} rows, {rows.num_columns} columns, {rows.nbytes / 1e6:,.0f} MB in memory")
    for what, engines in found.items():
        baseline = statistics.median(engines["pyarrow"])
        for engine, rates in engines.items():
            middle = statistics.median(rates)
            figure = f"{middle / 1e6:>7.2f} M rows/s  [{min(rates) / 1e6:.2f} .. {max(rates) / 1e6:.2f}]"
            print(f"  {what:<6}{engine:<10}{figure:<36}{middle / baseline:>6.0%} of pyarrow")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1, help="of TPC-H; 1 has 6,001,215 rows of lineitem")
    parser.add_argument("--only", choices=("flights", "lineitem"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    DATA.mkdir(exist_ok=True)
    report = {}
    sources = {"flights": flights, "lineitem": lambda: lineitem(arguments.scale)}
    for name, source in sources.items():
        if arguments.only in (None, name):
            rows = source()
            report[name] = measure(rows, arguments.rounds)
            show(name, rows, report[name])
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
