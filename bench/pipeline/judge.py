"""Whether the tables are right: silver as DuckDB works it out of the raw files, and every table next to the other's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from pipeline.engines import DeltaSpark, Refdelta
from pipeline.raw import DELETES, KEYS, RawFiles, quiet_duckdb
from pipeline.stages import TABLES, corrections
from refdelta.crosscheck.row_comparison import compare_rows


@dataclass(frozen=True)
class Compared:
    """One table next to what it should hold.

    Attributes:
        table: its name.
        judge: who says what it should hold.
        rows: how many rows refdelta's has.
        missing: how many rows it lacks.
        surplus: how many it has too many.
        examples: some of these rows.
    """

    table: str
    judge: str
    rows: int
    missing: int
    surplus: int
    examples: tuple[str, ...] = ()

    @property
    def alike(self) -> bool:
        """Whether it holds just that."""
        return not (self.missing or self.surplus)


def with_duckdb(tables: Refdelta, raw: RawFiles, refreshes: int) -> Iterator[Compared]:
    """Silver, next to what DuckDB makes of all raw files at once."""
    with quiet_duckdb() as db:
        for name, keys in KEYS.items():
            db.register("found", tables.table(f"silver/{name}").to_record_batch_reader())
            db.sql("CREATE OR REPLACE TEMP TABLE found_rows AS SELECT * FROM found")
            db.sql(f"CREATE OR REPLACE TEMP TABLE wanted_rows AS {silver_query(raw, name, keys, refreshes)}")
            missing, lacks = _more(db, "wanted_rows", "found_rows")
            surplus, has = _more(db, "found_rows", "wanted_rows")
            count = db.sql("SELECT count(*) FROM found_rows").fetchall()[0][0]
            yield Compared(f"silver/{name}", "DuckDB", count, missing, surplus, (*lacks, *has))


def _more(db: duckdb.DuckDBPyConnection, one: str, other: str) -> tuple[int, tuple[str, ...]]:
    """How many rows one table has that the other has not as often, and the first of them."""
    db.sql(f"CREATE OR REPLACE TEMP TABLE more AS SELECT * FROM {one} EXCEPT ALL SELECT * FROM {other}")
    count = db.sql("SELECT count(*) FROM more").fetchall()[0][0]
    return count, tuple(f"only in {one}: {row}" for row in db.sql("SELECT * FROM more LIMIT 1").fetchall())


def silver_query(raw: RawFiles, name: str, keys: tuple[str, ...], refreshes: int) -> str:
    """DuckDB's query for what a table of silver holds in the end."""
    files = [str(file) for file in (*raw.loads[name], *raw.refreshes[name])]
    deletes = [str(file) for file in raw.refreshes[DELETES]]
    newest = f"""
        SELECT * FROM read_parquet({files})
        WHERE {keys[0]} NOT IN (SELECT o_orderkey FROM read_parquet({deletes}))
        QUALIFY row_number() OVER (PARTITION BY {", ".join(keys)} ORDER BY sequence DESC) = 1"""
    rows = f"SELECT *, NULL::VARCHAR AS note FROM ({newest})"
    for values, condition in corrections(refreshes) if name == "lineitem" else ():
        changed = ", ".join(
            f"CASE WHEN {condition} THEN {sql} ELSE {column} END AS {column}" for column, sql in values.items()
        )
        rows = f"SELECT * REPLACE ({changed}) FROM ({rows})"
    return rows


def with_delta_spark(spark: Any, ours: Refdelta, theirs: DeltaSpark, scratch: Path) -> Iterator[Compared]:
    """Every table, as refdelta reads its own and delta-spark its own."""
    for table in TABLES:
        frame = theirs.read(spark, table)
        reader = ours.table(table).to_record_batch_reader(columns=frame.columns)
        found = compare_rows(spark, reader, frame, scratch)
        missing, surplus = found.only_delta_spark, found.only_refdelta
        yield Compared(table, theirs.name, found.refdelta, missing, surplus, found.examples)
