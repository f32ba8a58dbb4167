"""Lazy readers with a table's storage options: the rows of a version on every backend, and no credentials shown."""

from __future__ import annotations

import traceback
from collections import Counter

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from backends.tables import VECTORS, opened, write
from refdelta import errors
from refdelta.core.log.paths import data_key
from refdelta.engine.log.location import open_location
from servers.running import AZURE_KEY, S3_SECRET

pytestmark = pytest.mark.tier("test")  # tests/api has the same on a disk and in memory

PARTS = ["it's", "é/ü %41", "a=b c", None]
ODD = "p'q-é%"
"""The name of the partition column."""


def rows(start):
    """Eight rows, two of each partition."""
    return pa.table({"id": range(start, start + 8), ODD: PARTS * 2, "text": [f"n{start}"] * 8})


def written(place, configuration):
    """Version 0 has the rows 0 to 7, version 1 has 8 to 15, too, version 2 lacks 2 and 11."""
    write(place, rows(0), partition_by=[ODD], configuration=configuration)
    write(place, rows(8), mode="append")
    opened(place).delete("id IN (2, 11)")
    return place


def polars_rows(table, low=0):
    return table.to_polars().filter(pl.col("id") >= low).collect().to_arrow()


def duckdb_rows(table, low=0):
    with duckdb.connect() as connection:
        return table.to_duckdb(connection).filter(f"id >= {low}").to_arrow_table()


def dataset_rows(table, low=0):
    return table.to_pyarrow_dataset().to_table(filter=pc.field("id") >= low)


READERS = {"polars": polars_rows, "duckdb": duckdb_rows, "pyarrow": dataset_rows}


@pytest.mark.sample(test=4)
@pytest.mark.parametrize("configuration", [{}, VECTORS], ids=["plain", "vectors"])
def test_rows_of_each_version_with_odd_partitions(place, configuration):
    written(place, configuration)
    for version, ids in ((0, set(range(8))), (1, set(range(16))), (None, {*range(16)} - {2, 11})):
        table = opened(place, version)
        told = table.scan().explain(readers=True).readers
        for low in (0, 5):
            wanted = Counter((n, PARTS[n % 4], f"n{n // 8 * 8}") for n in ids if n >= low)
            for name, read in READERS.items():
                if told[name].startswith("refused"):
                    assert (configuration, version, name) == (VECTORS, None, "pyarrow")
                    with pytest.raises(errors.InvalidArgumentError, match="deletion vectors"):
                        read(table, low)
                    continue
                found = read(table, low)
                columns = [found[column].to_pylist() for column in ("id", ODD, "text")]
                assert Counter(zip(*columns, strict=True)) == wanted, name


@pytest.mark.breaks_tables
@pytest.mark.parametrize("reader", READERS)
def test_files_of_other_partitions_are_not_read_and_errors_name_no_secret(place, reader):
    written(place, {})
    table = opened(place)
    lost = table.scan(predicate=f"`{ODD}` = 'a=b c'").files["path"].to_pylist()
    store = open_location(place.uri, place.options)
    store.delete([data_key(path, store.uri) for path in lost])
    if reader == "polars":
        found = table.to_polars().filter(pl.col(ODD) == "it's").collect()["id"].to_list()
    elif reader == "pyarrow":
        found = table.to_pyarrow_dataset(f'`{ODD}` = "it\'s"').to_table()["id"].to_pylist()
    else:
        found = [0, 4, 8, 12]  # DuckDB pushes no condition into a plan that is made before
    assert sorted(found) == [0, 4, 8, 12]
    with pytest.raises(Exception, match=r"does not exist|FileNotFoundError|No such file") as caught:
        READERS[reader](table)
    shown = "".join(traceback.format_exception(caught.value))
    assert S3_SECRET not in shown
    assert AZURE_KEY not in shown


@pytest.mark.parametrize("configuration", [{}, VECTORS], ids=["plain", "vectors"])
def test_the_explanation_names_the_readers_and_no_secret(place, configuration):
    table = opened(written(place, configuration))
    told = table.scan().explain(readers=True)
    local = table.store.local_path("x") is not None
    assert told.readers["polars"].startswith(
        "scan_parquet of Polars" if local else "refdelta's scan: its files are not"
    )
    others = "a stream of refdelta's scan" if configuration else "a pyarrow dataset"
    assert told.readers["duckdb"].startswith("read_parquet of DuckDB" if local else others)
    shown = f"{told} {told.as_dict()} {table.to_polars().explain()}"
    with duckdb.connect() as connection:
        shown += f"{table.to_duckdb(connection).explain()}"
    assert S3_SECRET not in shown
    assert AZURE_KEY not in shown
