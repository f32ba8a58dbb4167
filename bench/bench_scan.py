"""Scans of TPC-H's lineitem: whole and filtered, without deletion vectors and with them.

All engines read the same files, of a table that refdelta wrote: snappy, seven files at scale 1, in the page cache. Each
opens the table anew, and gives an Arrow table; bare pyarrow and DuckDB are told the files, and read deleted rows too.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pytest
from contest import Engine, ahead, within
from tables import check, copy, data_files, lineitem, write

import refdelta

SQL = "l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01' AND l_discount >= 0.05 AND l_quantity < 24"
_date = pc.field("l_shipdate")
EXPRESSION = (
    (_date >= dt.date(1994, 1, 1))
    & (_date < dt.date(1995, 1, 1))
    & (pc.field("l_discount") >= pa.scalar(Decimal("0.05"), pa.decimal128(15, 2)))
    & (pc.field("l_quantity") < pa.scalar(Decimal(24), pa.decimal128(15, 2)))
)
COLUMNS = ["l_extendedprice", "l_discount"]

Read = Callable[[], pa.Table]


@pytest.fixture(scope="session")
def plain(scratch, size) -> Path:
    """The table."""
    folder = scratch / "lineitem"
    write(folder, lineitem(size(smoke=0.01, default=1)), vectors=True)
    return folder


@pytest.fixture(scope="session")
def hidden(scratch, plain) -> Path:
    """The same, of which one row in a hundred is deleted, all over it."""
    folder = copy(plain, scratch / "lineitem-hidden")
    refdelta.DeltaTable(folder).delete("l_orderkey % 100 = 3")
    return folder


def readers(table: Path, *, filtered: bool) -> dict[str, Read]:
    """What each engine's users write for it."""
    files = data_files(table)
    columns, sql, expression = (COLUMNS, SQL, EXPRESSION) if filtered else (None, None, None)

    def by_duckdb() -> pa.Table:
        wanted, where = (", ".join(COLUMNS), f" WHERE {SQL}") if filtered else ("*", "")
        return duckdb.sql(f"SELECT {wanted} FROM read_parquet({files!r}){where}").to_arrow_table()

    def by_polars() -> pa.Table:
        frame = pl.scan_parquet(files)
        if filtered:
            frame = frame.filter(pl.sql_expr(SQL)).select(COLUMNS)
        return frame.collect().to_arrow()

    def by_deltalake() -> pa.Table:
        # Its own reader; what goes by pyarrow's datasets does not know deletion vectors.
        wanted, where = (", ".join(COLUMNS), f" WHERE {SQL}") if filtered else ("*", "")
        builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(table)))
        return pa.table(builder.execute(f"SELECT {wanted} FROM t{where}").read_all())

    return {
        "refdelta": lambda: refdelta.DeltaTable(table).to_pyarrow_table(columns=columns, filters=sql),
        "pyarrow": lambda: pyarrow.dataset.dataset(files).to_table(columns=columns, filter=expression),
        "deltalake": by_deltalake,
        "duckdb": by_duckdb,
        "polars": by_polars,
    }


def compare(contest, table: Path, goals: list, *, filtered: bool, dead: frozenset[str], rounds: int) -> None:
    """Let them read; those in ``dead`` read deleted rows too."""
    chosen = readers(table, filtered=filtered)
    live = chosen["refdelta"]().num_rows
    all_rows = chosen["pyarrow"]().num_rows
    found: dict[str, int] = {}

    def run(name: str) -> None:
        found[name] = chosen[name]().num_rows

    def after(name: str, _: object) -> None:
        check(found[name], all_rows if name in dead else live)

    engines = [
        Engine(
            name,
            partial(run, name),
            after=partial(after, name),
            settings="deleted rows too" * (name in dead),
            every=2 if name in ("duckdb", "polars") else 1,
        )
        for name in chosen
    ]
    sizes = {"rows": refdelta.DeltaTable(table).count(), "rows found": live}
    contest.run(engines, rounds=rounds, goals=goals, note="warm page cache", **sizes)


FILES_ALONE = frozenset({"pyarrow", "duckdb", "polars"})


def bench_scan(contest, plain):
    compare(contest, plain, [within("pyarrow", 1.1), ahead("deltalake")], filtered=False, dead=frozenset(), rounds=3)


def bench_filtered_scan(contest, plain):
    compare(contest, plain, [within("pyarrow", 0.8), ahead("deltalake")], filtered=True, dead=frozenset(), rounds=7)


def bench_scan_with_vectors(contest, hidden):
    compare(contest, hidden, [within("pyarrow", 1.15), ahead("deltalake")], filtered=False, dead=FILES_ALONE, rounds=3)


def bench_filtered_scan_with_vectors(contest, hidden):
    compare(contest, hidden, [within("pyarrow", 1.15), ahead("deltalake")], filtered=True, dead=FILES_ALONE, rounds=7)


def bench_scan_of_small_files(contest, size, folder):
    """Ten rows a file: what it takes to open one."""
    files = size(smoke=20, default=300, full=1_000)
    table = folder / "table"
    rows = pa.table({"id": pa.array(range(10), pa.int64()), "name": [f"name {n}" for n in range(10)]})
    for _ in range(files):
        refdelta.write_deltalake(table, rows, mode="append", storage_options={"fsync": "false"})
    paths = data_files(table)
    engines = [
        Engine("refdelta", lambda: check(refdelta.DeltaTable(table).to_pyarrow_table().num_rows, 10 * files)),
        Engine("pyarrow", lambda: check(pyarrow.dataset.dataset(paths).to_table().num_rows, 10 * files)),
        Engine(
            "deltalake",
            lambda: check(deltalake.DeltaTable(str(table)).to_pyarrow_table().num_rows, 10 * files),
            settings="by pyarrow's dataset",
        ),
    ]
    contest.run(engines, units=files, unit="file", goals=[within("pyarrow", 1.3), ahead("deltalake")], files=files)
