"""The tables that benchmarks of rows work on, and the small things that they share."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

import refdelta

DATA = Path(__file__).parent / "data"
VECTORS = {"delta.enableDeletionVectors": "true"}
CODEC = {"delta.parquet.compression.codec": "snappy"}
FILE_SIZE = 32 * 2**20


def lineitem(scale: float) -> pa.Table:
    """TPC-H lineitem, generated once by tpchgen-cli; 1 has 6,001,215 rows."""
    folder = DATA / f"tpch-{scale:g}"
    file = folder / "lineitem.parquet"
    if not file.exists():
        tpchgen(folder, scale, "lineitem")
    table = pa.parquet.read_table(file)
    return table.cast(plain(table.schema))


def tpchgen(folder: Path, scale: float, tables: str, *more: str) -> None:
    """Tables of TPC-H as Parquet, their names between commas; ``more`` are further arguments of tpchgen-cli."""
    tool = Path(sys.executable).with_name("tpchgen-cli")
    command = [tool, "parquet", "-q", "-s", f"{scale:g}", "-T", tables, "-o", folder, *more]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def plain(schema: pa.Schema) -> pa.Schema:
    """The same with strings in the layout that all engines take as it is."""
    return pa.schema([f.with_type(pa.string()) if f.type == pa.string_view() else f for f in schema])


def write(folder: Path, rows: pa.Table, *, vectors: bool = False, file_size: int = FILE_SIZE) -> None:
    """A table of these rows, for all engines, whose new files are of the same codec."""
    properties = {**CODEC, **(VECTORS if vectors else {})}
    refdelta.write_deltalake(folder, rows, configuration=properties, target_file_size=file_size)


def data_files(table: Path) -> list[str]:
    """The paths of its data files."""
    return [str(table / name) for name in refdelta.DeltaTable(table).scan().files["path"].to_pylist()]


def copy(table: Path, folder: Path) -> Path:
    """The same table again. Nobody changes a data file, so these are linked; the log is copied."""
    shutil.copytree(table, folder, copy_function=os.link, ignore=shutil.ignore_patterns("_delta_log"))
    shutil.copytree(table / "_delta_log", folder / "_delta_log")
    return folder


@contextmanager
def copied(table: Path, name: str = "copy") -> Iterator[Path]:
    """A copy for a while."""
    folder = copy(table, table.with_name(name))
    yield folder
    shutil.rmtree(folder)


def size_of(folder: Path) -> int:
    """The bytes of all files, but for those that only Hadoop writes beside them."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.name.endswith(".crc"))


def rotated(engines: dict[str, Any], number: int) -> list[tuple[str, Any]]:
    """Another engine first in every round: what one leaves in the caches must not always meet the same other."""
    items = list(engines.items())
    start = number % len(items)
    return items[start:] + items[:start]


def timed(work: Callable[[], Any]) -> float:
    """The seconds that it takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def check(got: object, expected: object) -> None:
    """Raises ``AssertionError`` where an engine did the wrong work: then no figure is worth anything."""
    if got != expected:
        raise AssertionError(f"{got} was found, not {expected}")
