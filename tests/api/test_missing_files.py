"""A file that the log names and that is gone or broken: each reader names it, and says what to do."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.fs
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.compat import deltalake as compat

ROWS = pa.table({"id": range(100), "m": pa.array([[("a", 1)]] * 100, pa.map_(pa.string(), pa.int64()))})
FILES = {"data": "part-*.parquet", "vector": "deletion_vector_*.bin", "change": "_change_data/*.parquet"}
ADVICE = {
    "data": r"names this file, but it does not exist; if VACUUM removed it, .* repair\(\)",
    "vector": r"names this deletion vector, but it does not exist; if VACUUM removed it, .* put the file back",
    "change": r"names this change file, but it does not exist; VACUUM removes those of old versions",
}


def by_duckdb(source):
    with duckdb.connect() as connection:
        return connection.from_arrow(source).fetchall()


def duckdb_relation(table):
    with duckdb.connect() as connection:
        return table.to_duckdb(connection).fetchall()


NATIVE = {
    "reader": lambda table: table.to_record_batch_reader().read_all(),
    "batches": lambda table: list(table.to_record_batch_reader()),
    "table": lambda table: table.to_pyarrow_table(),
    "pandas": lambda table: table.to_pandas(),
    "scan": lambda table: list(table.scan().to_batches()),
    "Polars": lambda table: table.to_polars().collect(),
    "Polars, of a reader": lambda table: pl.from_arrow(table.to_record_batch_reader()),
    "DuckDB": duckdb_relation,
}
"""Readers of rows that call Python: the error is refdelta's."""

STREAMS = {
    "pyarrow": pa.table,
    "pyarrow, a reader": lambda table: pa.RecordBatchReader.from_stream(table).read_all(),
    "Polars": pl.DataFrame,
    "DuckDB": lambda table: by_duckdb(table.scan()),
    "compat": lambda table: pa.table(compat.DeltaTable(table.table_uri).scan()),
}
"""Readers of rows by Arrow's C stream, which carries a text: the error is the consumer's, with refdelta's sentence."""

FEEDS = {
    "reader": lambda table: table.load_cdf(0).read_all(),
    "batches": lambda table: list(table.load_cdf(0)),
    "pandas": lambda table: table.load_cdf(0).read_pandas(),
    "Polars": lambda table: pl.from_arrow(table.load_cdf(0)),
}
FEED_STREAMS = {
    "DuckDB": lambda table: by_duckdb(table.load_cdf(0)),
    "compat": lambda table: pa.table(compat.DeltaTable(table.table_uri).load_cdf(0)),
}
CASES = [
    *((kind, f"{name}", read, True) for kind in ("data", "vector") for name, read in NATIVE.items()),
    *((kind, f"{name} by stream", read, False) for kind in ("data", "vector") for name, read in STREAMS.items()),
    *(("change", name, read, True) for name, read in FEEDS.items()),
    *(("change", f"{name} by stream", read, False) for name, read in FEED_STREAMS.items()),
]


def broken(path: Path, kind: str, how: str) -> DeltaTable:
    vectors = str(kind == "vector").lower()
    write_deltalake(
        path,
        ROWS,
        configuration={"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": vectors},
    )
    table = DeltaTable(path)
    table.delete("id = 3")
    for file in path.glob(FILES[kind]):
        if how == "missing":
            file.unlink()
        else:
            os.truncate(file, file.stat().st_size // 2)
    return table


@pytest.mark.breaks_tables
@pytest.mark.parametrize("how", ["missing", "cut"])
@pytest.mark.parametrize(("kind", "name", "read", "native"), CASES, ids=[f"{case[0]}, {case[1]}" for case in CASES])
def test_a_reader_names_the_file(tmp_path, kind, name, read, native, how):
    table = broken(tmp_path / "t", kind, how)
    wanted = (errors.DataFileNotFoundError if how == "missing" else errors.DataFileError) if native else Exception
    with pytest.raises(wanted, match=ADVICE[kind] if how == "missing" else "cannot be read|ends after") as caught:
        read(table)
    assert {"data": ".parquet: ", "vector": ".bin: ", "change": "_change_data/"}[kind] in str(caught.value)
    assert isinstance(caught.value, errors.DeltaError) == native


@pytest.mark.breaks_tables
def test_a_file_that_goes_after_the_dataset_was_made(tmp_path):
    uri = "memory://missing-files"
    write_deltalake(uri, ROWS)
    table = DeltaTable(uri)
    dataset = table.to_pyarrow_dataset()
    (path,) = table.scan().files["path"].to_pylist()
    table.store.delete([path])
    with pytest.raises(FileNotFoundError, match=ADVICE["data"]):
        dataset.to_table()


@pytest.mark.breaks_tables
@pytest.mark.parametrize("how", ["missing", "cut"])
def test_a_checkpoint_that_is_gone_or_broken(tmp_path, how):
    write_deltalake(tmp_path, ROWS)
    table = DeltaTable(tmp_path)
    table.create_checkpoint()
    log = tmp_path / "_delta_log"
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    for commit in log.glob("*.json"):
        commit.unlink()
    for sum_ in log.glob("*.crc"):
        sum_.unlink()
    if how == "missing":
        checkpoint.unlink()
    else:
        os.truncate(checkpoint, checkpoint.stat().st_size // 2)
    with pytest.raises(errors.DeltaError, match=r"no Delta table|checkpoint"):
        DeltaTable(tmp_path).to_pyarrow_table()
