"""Other engines take a table's rows as a stream and give theirs, wherever it is and whoever calls."""

from __future__ import annotations

import asyncio
import pickle

import duckdb
import pandas as pd
import polars as pl
import pytest

from backends.tables import VECTORS, ids, numbers, opened, write
from refdelta import DeltaTable, write_deltalake
from refdelta.transaction import background


@pytest.fixture
def table(place):
    """0 to 9 in two files, without 3."""
    write(place, numbers(*range(5), p="a"), configuration=VECTORS)
    write(place, numbers(*range(5, 10), p="b"), mode="append")
    handle = opened(place)
    handle.delete("id = 3")
    return handle


def test_duckdb_polars_and_pandas(place, table):
    connection = duckdb.connect()
    connection.register("t", table.scan(predicate="p = 'a'").to_reader())
    assert connection.sql("select count(*), sum(id) from t").fetchall() == [(4, 7)]
    assert pl.DataFrame(table)["id"].sum() == 42
    assert sorted(table.to_pandas()["id"]) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    write(place, pl.DataFrame({"id": [20], "v": [0], "p": ["c"]}), mode="append")
    write(place, pd.DataFrame({"id": [21], "v": [0], "p": ["c"]}), mode="append")
    write(place, connection.sql("select 22::bigint as id, 0::bigint as v, 'c' as p"), mode="append")
    write(place, opened(place).scan(predicate="id > 20"), mode="append")
    assert ids(place, filters="id > 9") == [20, 21, 21, 22, 22]


def test_from_within_an_event_loop(place, table):
    """As in a notebook, where everything runs in one."""

    async def work():
        table.update({"v": "1"}, predicate="id = 4")
        write_deltalake(table, numbers(30), mode="append")
        others = [asyncio.to_thread(opened(place).to_pyarrow_table, ["id"]) for _ in range(4)]
        return [rows.num_rows for rows in await asyncio.gather(*others)]

    assert asyncio.run(work()) == [10] * 4
    # Another loop, after the first is closed.
    assert asyncio.run(work()) == [11] * 4
    assert ids(place, filters="v = 1") == [4]


def test_a_store_that_was_pickled_shows_the_same_objects(place, table):
    background.settle()
    store = pickle.loads(pickle.dumps(table.store))
    assert [info.key for info in store.list("_delta_log/")] == [info.key for info in table.store.list("_delta_log/")]
    assert DeltaTable.for_path(place.uri, place.options).count() == 9
