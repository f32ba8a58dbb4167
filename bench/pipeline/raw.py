"""The raw files: TPC-H by tpchgen-cli, and refresh sets as TPC-H's refresh functions make them, delivered untidily.

tpchgen-cli has no refresh sets, so they are made of the rows that it gives. Orders' keys come in blocks of 32, of which
the first 8 are in use; the gaps are what TPC-H leaves for new orders. A hundred blocks, 3,200 keys, form a stripe, and
every block of a stripe has its part: one order in a hundred is deleted (RF2), one changes once, one changes with every
refresh, one in a hundred is copied into the gap next to it for every refresh (RF1), and the upper half of each stripe
no refresh touches.

Raw files hold events: a row, its ``sequence`` in time. A changed row comes twice within its file, half changed and
changed, and every file of changes comes a second time, late: after the refresh that follows it.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import duckdb
from tables import tpchgen

DIMENSIONS = ("customer", "supplier", "nation", "region")
KEYS = {"orders": ("o_orderkey",), "lineitem": ("l_orderkey", "l_linenumber")}
DELETES = "deletes"
PARTS = 4
MOST_REFRESHES = 40
STRIPE, BLOCK, IN_USE = 3200, 32, 8
_FIRST_COPIED = 3  # the blocks before it are deleted, changed once, changed always

# Where a refresh changes a row, first to what it is half-way, then to what it is in the end.
_CHANGES = {
    "orders": (
        "'P' AS o_orderstatus",
        "'F' AS o_orderstatus, CAST(o_totalprice + {refresh} AS DECIMAL(15, 2)) AS o_totalprice",
    ),
    "lineitem": (
        "'I' AS l_linestatus",
        "'F' AS l_linestatus, CAST(l_quantity + {refresh} AS DECIMAL(15, 2)) AS l_quantity",
    ),
}


@dataclass(frozen=True)
class RawFiles:
    """The raw files in the order in which they arrive.

    Attributes:
        folder: where they are.
        loads: by table, the files of the first load.
        refreshes: by table, the files of all refreshes.
        rows: how many rows they all hold, dimensions included.
        bytes: their size.
    """

    folder: Path
    loads: dict[str, list[Path]]
    refreshes: dict[str, list[Path]]
    rows: int
    bytes: int


def generate(folder: Path, scale: float, refreshes: int) -> RawFiles:
    """Make all raw files in an empty folder.

    Args:
        folder: where to.
        scale: of TPC-H; 1 has 6,001,215 rows of lineitem.
        refreshes: how many refresh sets, 1 to 40.
    """
    tpch, raw = folder / "tpch", folder / "raw"
    tpchgen(tpch, scale, ",".join(DIMENSIONS))
    tpchgen(tpch, scale, ",".join(KEYS), "--parts", str(PARTS))
    loads = {name: [tpch / f"{name}.parquet"] for name in DIMENSIONS}
    changes: dict[str, list[Path]] = {}
    with quiet_duckdb() as db:
        for table in KEYS:
            loads[table] = [
                _write(db, raw / table / f"load-{part}.parquet", _load(tpch, table, part)) for part in _numbers(PARTS)
            ]
            events = [
                _write(db, raw / table / f"refresh-{number}.parquet", _refresh(tpch, table, number, refreshes))
                for number in _numbers(refreshes)
            ]
            changes[table] = list(_delivered(events))
        changes[DELETES] = [
            _write(db, raw / DELETES / f"refresh-{number}.parquet", _deletes(tpch, number, refreshes))
            for number in _numbers(refreshes)
        ]
        files = [file for listed in (*loads.values(), *changes.values()) for file in listed]
        rows = db.sql(f"SELECT sum(num_rows) FROM parquet_file_metadata({[str(file) for file in files]})").fetchall()
    for listed in (*loads.values(), *changes.values()):
        for moment, file in enumerate(listed):
            os.utime(file, (_EPOCH + moment, _EPOCH + moment))  # by which Spark orders the files of a folder
    return RawFiles(raw, loads, changes, rows[0][0], sum(file.stat().st_size for file in files))


def quiet_duckdb() -> duckdb.DuckDBPyConnection:
    """A DuckDB in memory that draws nothing on the terminal."""
    db = duckdb.connect()
    db.sql("SET enable_progress_bar = false")
    return db


_EPOCH = 1_767_225_600  # 2026-01-01


def _write(db: duckdb.DuckDBPyConnection, file: Path, query: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    db.sql(f"COPY ({query}) TO '{file}' (FORMAT parquet)")
    return file


def _numbers(count: int) -> range:
    return range(1, count + 1)


def _load(tpch: Path, table: str, part: int) -> str:
    return f"SELECT *, 0::BIGINT AS sequence FROM '{tpch / table / table}.{part}.parquet'"


def _refresh(tpch: Path, table: str, number: int, refreshes: int) -> str:
    """What becomes of a table in one refresh: rows that change, twice each, and new ones."""
    rows, key = f"'{tpch / table}/*.parquet'", KEYS[table][0]
    half, whole = (change.format(refresh=number) for change in _CHANGES[table])
    changes = f"({_in_block(key, 2)} OR {_in_block(key, 1)} AND {_of_refresh(key, number, refreshes)})"
    copied = _in_block(key, _FIRST_COPIED + number - 1)
    new = f"{key} + {IN_USE} AS {key}"
    return " UNION ALL ".join(
        (
            f"SELECT * REPLACE ({half}), {2 * number}::BIGINT AS sequence FROM {rows} WHERE {changes}",
            f"SELECT * REPLACE ({whole}), {2 * number + 1}::BIGINT AS sequence FROM {rows} WHERE {changes}",
            f"SELECT * REPLACE ({new}), {2 * number}::BIGINT AS sequence FROM {rows} WHERE {copied}",
        )
    )


def _deletes(tpch: Path, number: int, refreshes: int) -> str:
    wanted = f"{_in_block('o_orderkey', 0)} AND {_of_refresh('o_orderkey', number, refreshes)}"
    return f"SELECT o_orderkey, {2 * number}::BIGINT AS sequence FROM '{tpch / 'orders'}/*.parquet' WHERE {wanted}"


def _in_block(key: str, block: int) -> str:
    return f"{key} % {STRIPE} // {BLOCK} = {block}"


def _of_refresh(key: str, number: int, refreshes: int) -> str:
    return f"{key} // {STRIPE} % {refreshes} = {number - 1}"


def _delivered(files: list[Path]) -> list[Path]:
    """Each file, and a copy of it behind the one that follows."""
    copies = []
    for file in files:
        copies.append(file.with_name(f"{file.stem}-again.parquet"))
        shutil.copyfile(file, copies[-1])
    arrived = [files[0]]
    for file, late in zip(files[1:], copies, strict=False):
        arrived += [file, late]
    return [*arrived, copies[-1]]
