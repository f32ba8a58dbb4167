"""Lazy readers of TPC-H's lineitem, and of small files, next to the bare Parquet reader of each library.

The floor of each contest is the library's own reader, which is told the same files, and reads deleted rows too. Rivals
are Polars' scan_delta, deltalake's to_pyarrow_dataset, and DuckDB's delta_scan where its extension is installed: the
package duckdb-ext-delta has it for DuckDB 1.4. Each opens the table anew, on a connection of DuckDB that is open; the
files are in the page cache. The peak of memory is of one run in a process of its own. A rival that cannot read a table
is named in the note of the contest.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
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

MAPPED = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}
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


def run(
    library: str, reader: str, table: str, question: str, highest: int, files: list[str], connection: Any = None
) -> int:
    """The number of rows found by a library with a reader of the table: refdelta, the floor (the files), or a rival."""
    path = Path(table)
    if library == "polars":
        if reader == "refdelta":
            frame = refdelta.DeltaTable(path).to_polars()
        else:
            frame = pl.scan_parquet(files) if reader == "floor" else pl.scan_delta(table)
        return _polars(frame, question, highest)
    if library == "duckdb":
        connection = connect(reader) if connection is None else connection
        if reader == "refdelta":
            relation = refdelta.DeltaTable(path).to_duckdb(connection)
        elif reader == "floor":
            relation = connection.read_parquet(files)
        else:
            relation = connection.table_function("delta_scan", [table])
        return _duckdb(relation, question, highest)
    if reader == "refdelta":
        dataset = refdelta.DeltaTable(path).to_pyarrow_dataset()
    elif reader == "floor":
        dataset = pyarrow.dataset.dataset(files)
    else:
        dataset = deltalake.DeltaTable(table).to_pyarrow_dataset()
    return _pyarrow(dataset, question, highest)


def connect(reader: str) -> Any:
    """A connection of DuckDB, with its extension for Delta if the reader is delta_scan: that of the package
    duckdb-ext-delta, if it is installed.
    """
    if reader != "delta_scan":
        return duckdb.connect()
    found = find_spec("duckdb_ext")
    places = [] if found is None else list(found.submodule_search_locations or ())
    connection = duckdb.connect(config={"extension_directory": str(Path(places[0]) / "extensions")} if places else {})
    connection.execute("LOAD delta")
    return connection


RIVALS = {"polars": "scan_delta", "duckdb": "delta_scan", "pyarrow": "deltalake"}


def compare(
    contest: Any, library: str, table: Path, question: str, *, vectors: bool, memory: bool, floor: bool = True
) -> None:
    """Let the readers of a library answer a question; a rival that cannot read the table is left out."""
    highest = pc.max(refdelta.DeltaTable(table).to_pyarrow_table(["l_orderkey"])["l_orderkey"]).as_py()
    asked = (str(table), question, highest, data_files(table))  # the floor does not look for its files
    wanted = run(library, "refdelta", *asked)
    rival, names, note = RIVALS[library], ["refdelta", "floor"] if floor else ["refdelta"], "warm page cache"
    try:
        check(run(library, rival, *asked), wanted)
        names.append(rival)
    except Exception as error:  # noqa: BLE001 - whatever it says, it does not read this table
        reason = str(error).splitlines()[0]
        # The text of a failed download names the host, which is that of the machine of the run.
        reason = "its extension could not be fetched" if "://" in reason else reason[:120]
        note += f"; without {rival}: {reason}"
        print(f"{rival} is left out: {reason}", file=sys.stderr)

    def engine(name: str) -> Engine:
        told = {"peak MB": fresh.call("bench_lazy:run", library, name, *asked).peak / 1e6} if memory else {}

        def work(connection: Any) -> dict[str, float]:
            found = run(library, name, *asked, connection)
            if name == "refdelta" or not vectors:
                check(found, wanted)
            return told

        settings = "deleted rows too" * (vectors and name == "floor")
        if library == "duckdb":  # to connect takes longer than a short query, and loading the extension a second
            return Engine(name, work, lambda: connect(name), lambda connection: connection.close(), settings)
        return Engine(name, lambda: work(None), settings=settings)

    engines = [engine(name) for name in names]
    goals = [within("floor", 1.2), ahead(rival)]  # those of engines that take part
    contest.run(engines, rounds=7, goals=goals, note=note, **{"rows found": wanted})


@pytest.fixture(scope="session")
def memory(size) -> bool:
    """Whether memory is measured: each figure takes a process of its own."""
    return bool(size(smoke=False, default=True))


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
def bench_lazy(contest, plain, memory, library, question):
    compare(contest, library, plain, question, vectors=False, memory=memory)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("library", ["polars", "duckdb"])
def bench_lazy_with_vectors(contest, hidden, memory, library, question):
    compare(contest, library, hidden, question, vectors=True, memory=memory)


@pytest.mark.parametrize("library", ["polars", "duckdb"])
def bench_lazy_mapped(contest, size, scratch, memory, library):
    """Column mapping, a renamed column and deletion vectors: no file can be read without the table's log."""
    folder = scratch / f"lazy-mapped-{library}"
    rows = lineitem(size(smoke=0.01, default=0.2, full=1))
    refdelta.write_deltalake(folder, rows, configuration=MAPPED, target_file_size=8 * 2**20)
    table = refdelta.DeltaTable(folder)
    table.alter.rename_column("l_comment", "remark")
    table.alter.rename_column("l_shipinstruct", "l_comment")
    table.delete("l_partkey % 100 = 3")
    compare(contest, library, folder, "ten rows", vectors=True, memory=memory, floor=False)


@pytest.mark.parametrize("library", list(RIVALS))
def bench_lazy_small_files(contest, size, folder, memory, library):
    """Ten rows a file."""
    rows = pa.table({name: pa.array(range(10), pa.int64()) for name in _NAMES})
    for _ in range(size(smoke=20, default=300)):
        refdelta.write_deltalake(folder / "table", rows, mode="append", storage_options={"fsync": "false"})
    compare(contest, library, folder / "table", "full scan", vectors=False, memory=memory)
