"""Lazy readers of TPC-H's lineitem, and of small files, next to the bare Parquet reader of each library.

The floor of each contest is the library's own reader, which is told the same files, and reads deleted rows too. Rivals
are Polars' scan_delta and deltalake's to_pyarrow_dataset; DuckDB's delta_scan is left out, since its extension is
fetched from a server. Each opens the table anew; the files are in the page cache. The peak of memory is of one run in a
process of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import fresh
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pytest
from contest import Engine, ahead, within
from tables import check, copy, data_files, lineitem, write

import refdelta

QUESTIONS = ("full scan", "one percent", "ten rows")
TEN = [1, 7, 34, 100_000, 200_003, 300_000, 400_001, 500_000, 555_555, 600_000]
_NAMES = ["l_orderkey", "l_extendedprice", "l_comment"]


def _polars(frame: pl.LazyFrame, question: str, highest: int) -> int:
    key = pl.col("l_orderkey")
    if question == "full scan":
        return frame.collect().height
    found = key <= highest // 100 if question == "one percent" else key.is_in([n for n in TEN if n <= highest])
    return frame.filter(found).select(_NAMES).collect().height


def _duckdb(relation: Any, question: str, highest: int) -> int:
    if question == "full scan":
        return int(relation.to_arrow_table().num_rows)
    listed = ", ".join(str(n) for n in TEN if n <= highest)
    found = f"l_orderkey <= {highest // 100}" if question == "one percent" else f"l_orderkey IN ({listed})"
    return int(relation.filter(found).select(*_NAMES).to_arrow_table().num_rows)


def _pyarrow(dataset: Any, question: str, highest: int) -> int:
    key = pc.field("l_orderkey")
    if question == "full scan":
        return int(dataset.to_table().num_rows)
    found = key <= highest // 100 if question == "one percent" else key.isin([n for n in TEN if n <= highest])
    return int(dataset.to_table(columns=_NAMES, filter=found).num_rows)


def run(library: str, reader: str, table: str, question: str, highest: int, files: list[str]) -> int:
    """The number of rows found by a library with a reader of the table: refdelta, the floor (the files), or a rival."""
    path = Path(table)
    if library == "polars":
        if reader == "refdelta":
            frame = refdelta.DeltaTable(path).to_polars()
        else:
            frame = pl.scan_parquet(files) if reader == "floor" else pl.scan_delta(table)
        return _polars(frame, question, highest)
    if library == "duckdb":
        with duckdb.connect() as connection:
            if reader == "refdelta":
                return _duckdb(refdelta.DeltaTable(path).to_duckdb(connection), question, highest)
            return _duckdb(connection.read_parquet(files), question, highest)
    if reader == "refdelta":
        dataset = refdelta.DeltaTable(path).to_pyarrow_dataset()
    elif reader == "floor":
        dataset = pyarrow.dataset.dataset(files)
    else:
        dataset = deltalake.DeltaTable(table).to_pyarrow_dataset()
    return _pyarrow(dataset, question, highest)


RIVALS = {"polars": "scan_delta", "duckdb": None, "pyarrow": "deltalake"}


def compare(contest: Any, library: str, table: Path, question: str, *, vectors: bool, rounds: int) -> None:
    """Let the readers of a library answer a question; a rival that cannot read the table is left out."""
    highest = pc.max(refdelta.DeltaTable(table).to_pyarrow_table(["l_orderkey"])["l_orderkey"]).as_py()
    asked = (str(table), question, highest, data_files(table))  # the floor does not look for its files
    wanted = run(library, "refdelta", *asked)
    rival = RIVALS[library]
    names = ["refdelta", "floor"]
    if rival is not None:
        try:
            check(run(library, rival, *asked), wanted)
            names.append(rival)
        except Exception as error:  # noqa: BLE001 - whatever it says, it does not read this table
            warnings.warn(f"{rival} is left out: {str(error)[:200]}", stacklevel=1)

    def task(name: str) -> Callable[[], dict[str, float]]:
        peak = fresh.call("bench_lazy:run", library, name, *asked).peak / 1e6

        def work() -> dict[str, float]:
            found = run(library, name, *asked)
            if name == "refdelta" or not vectors:
                check(found, wanted)
            return {"peak MB": peak}

        return work

    engines = [Engine(name, task(name), settings="deleted rows too" * (vectors and name == "floor")) for name in names]
    goals = [within("floor", 1.2)] + ([ahead(rival)] if rival in names and rival is not None else [])
    contest.run(engines, rounds=rounds, goals=goals, note="warm page cache", **{"rows found": wanted})


@pytest.fixture(scope="session")
def plain(scratch, size) -> Path:
    """The table, without deletion vectors."""
    folder = scratch / "lazy"
    write(folder, lineitem(size(smoke=0.01, default=0.2, full=1)), file_size=8 * 2**20)
    return folder


@pytest.fixture(scope="session")
def hidden(scratch, plain) -> Path:
    """The same, of which one row in a hundred is deleted, all over it, by deletion vectors."""
    folder = copy(plain, scratch / "lazy-hidden")
    table = refdelta.DeltaTable(folder)
    table.alter.set_table_properties({"delta.enableDeletionVectors": "true"})
    table.delete("l_partkey % 100 = 3")
    return folder


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("library", list(RIVALS))
def bench_lazy(contest, plain, library, question):
    compare(contest, library, plain, question, vectors=False, rounds=7)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("library", ["polars", "duckdb"])
def bench_lazy_with_vectors(contest, hidden, library, question):
    compare(contest, library, hidden, question, vectors=True, rounds=7)


@pytest.mark.parametrize("library", list(RIVALS))
def bench_lazy_small_files(contest, size, folder, library):
    """Ten rows a file."""
    rows = pa.table({name: pa.array(range(10), pa.int64()) for name in _NAMES})
    for _ in range(size(smoke=20, default=300)):
        refdelta.write_deltalake(folder / "table", rows, mode="append", storage_options={"fsync": "false"})
    compare(contest, library, folder / "table", "full scan", vectors=False, rounds=7)
