"""Figures of deletion vectors on TPC-H lineitem: a DELETE of one row in a thousand, scattered over the whole table, and
a scan of a table of which one row in ten is deleted.

    python bench/rows.py [--rounds 3] [--scale 1] [--without-spark]

Deleted is from copies of one table that refdelta wrote with ``delta.enableDeletionVectors=true``: by refdelta, and by
delta-spark, a warm session; and from the same table without that property by deltalake, which writes files anew, as it
does not write vectors. Each engine's first DELETE does not count. Bytes are those of all files that the DELETE left
behind, the log's entry among them. Scanned is the same table with and
without vectors, in turn, by refdelta and by bare pyarrow (all rows, deleted ones too).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import deltalake
from throughput import DATA, check, lineitem, read_pyarrow, read_refdelta, rotated, timed

import refdelta
from refdelta.spark import oracle

VECTORS = {"delta.enableDeletionVectors": "true"}
CODEC = {"delta.parquet.compression.codec": "snappy"}
FILE_SIZE = 32 * 2**20


def delete_refdelta(folder: Path, condition: str) -> None:
    refdelta.DeltaTable(folder).delete(condition)


def delete_deltalake(folder: Path, condition: str) -> None:
    deltalake.DeltaTable(str(folder)).delete(condition)


def with_spark(stack: ExitStack) -> Callable[[Path, str], None]:
    spark = stack.enter_context(oracle.session(memory="3g"))

    def delete(folder: Path, condition: str) -> None:
        spark.sql(f"DELETE FROM {oracle.identifier(folder)} WHERE {condition}")

    return delete


@contextmanager
def copied(table: Path) -> Iterator[Path]:
    folder = table.with_name("copy")
    shutil.copytree(table, folder)
    yield folder
    shutil.rmtree(folder)


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.name.endswith(".crc"))


def deletes(table: Path, plain: Path, rounds: int, engines: dict[str, Callable[[Path, str], None]]) -> None:
    rows, files = refdelta.DeltaTable(table).count(), refdelta.DeltaTable(table).detail()["num_files"]
    condition = "l_orderkey % 1000 = 7"
    left = rows - refdelta.DeltaTable(table).scan(predicate=condition).count()
    seconds: dict[str, list[float]] = {engine: [] for engine in engines}
    written: dict[str, int] = {}
    for number in range(-1, rounds):
        for engine, delete in rotated(engines, number):
            with copied(plain if engine == "deltalake" else table) as folder:
                before = size_of(folder)
                took = timed(lambda delete=delete, folder=folder: delete(folder, condition))
                check(refdelta.DeltaTable(folder).count(), left)
                written[engine] = size_of(folder) - before
            if number >= 0:
                seconds[engine].append(took)
    print(f"\nDELETE of {rows - left:,} of {rows:,} rows, scattered over {files} files")
    for engine, times in seconds.items():
        spread = f"[{min(times):.2f} .. {max(times):.2f}]"
        print(f"  {engine:<12}{statistics.median(times):>6.2f} s  {spread:<18}{written[engine]:>14,} bytes written")


def scans(table: Path, rounds: int) -> None:
    rows = refdelta.DeltaTable(table).count()
    hidden = table.with_name("hidden")
    shutil.copytree(table, hidden)
    refdelta.DeltaTable(hidden).delete("l_orderkey % 10 = 3")
    left = refdelta.DeltaTable(hidden).count()
    cases: dict[str, tuple[Callable[[Path], int], Path, int]] = {
        "pyarrow": (read_pyarrow, table, rows),
        "refdelta": (read_refdelta, table, rows),
        "refdelta, vectors": (read_refdelta, hidden, left),
    }
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(-1, rounds):
        for name, (read, folder, expected) in rotated(cases, number):
            took = timed(lambda read=read, folder=folder, expected=expected: check(read(folder), expected))
            if number >= 0:
                seconds[name].append(took)
    baseline = statistics.median(seconds["refdelta"])
    print(f"\nscan of {rows:,} rows, all columns; with vectors {rows - left:,} of them are deleted")
    for name, times in seconds.items():
        middle = statistics.median(times)
        spread = f"[{min(times):.2f} .. {max(times):.2f}]"
        print(f"  {name:<18}{middle:>6.2f} s  {spread:<18}{middle / baseline:>6.2f} of refdelta without vectors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1, help="of TPC-H; 1 has 6,001,215 rows of lineitem")
    parser.add_argument("--without-spark", action="store_true")
    arguments = parser.parse_args()
    DATA.mkdir(exist_ok=True)
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=DATA)))
        table, plain = base / "table", base / "plain"
        lines = lineitem(arguments.scale)
        for folder, properties in ((table, {**CODEC, **VECTORS}), (plain, CODEC)):
            refdelta.write_deltalake(folder, lines, configuration=properties, target_file_size=FILE_SIZE)
        del lines
        engines = {"refdelta": delete_refdelta, "deltalake": delete_deltalake}
        if not arguments.without_spark:
            engines["delta-spark"] = with_spark(stack)
        deletes(table, plain, arguments.rounds, engines)
        scans(table, arguments.rounds)


if __name__ == "__main__":
    main()
