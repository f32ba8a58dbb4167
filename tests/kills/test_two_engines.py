"""refdelta and deltalake append to, delete from and compact one table at the same time, from processes of their own."""

from __future__ import annotations

import deltalake
import pyarrow as pa
import pytest

from kills.engines import SCHEMA, one, race
from refdelta import DeltaTable, write_deltalake

WRITERS = ("refdelta-0", "deltalake-0", "refdelta-1", "deltalake-1")


def listed(table):
    return sorted(tuple(row.values()) for row in table.select(SCHEMA.names).to_pylist())


def read_by_deltalake(uri, options=None):
    table = deltalake.DeltaTable(uri, storage_options=options)
    return pa.table(deltalake.QueryBuilder().register("t", table).execute("select * from t").read_all())


def assert_all_there(uri, expected, mine=None, theirs=None):
    """That each commit that was acknowledged is there once, and none that was refused; both engines see the same."""
    table = DeltaTable(uri, storage_options=mine)
    found = listed(table.to_pyarrow_table())
    assert found == sorted({("first", 0), *expected})
    assert listed(read_by_deltalake(uri, theirs)) == found
    versions = [info["version"] for info in table.history()]
    assert versions == list(range(table.version(), -1, -1))


@pytest.mark.tier("test")
@pytest.mark.parametrize("created_by", ["refdelta", "deltalake"])
def test_at_once_on_local_disk(tmp_path, created_by):
    path = str(tmp_path / "t")
    create = write_deltalake if created_by == "refdelta" else deltalake.write_deltalake
    create(path, one("first", 0))
    expected, refused = race(path, WRITERS, 10)
    assert refused < 10, "most calls are done"
    assert_all_there(path, expected)


def test_at_once_on_s3(s3_server):
    place = s3_server.place()
    theirs = s3_server.of_deltalake()
    write_deltalake(place.uri, one("first", 0), storage_options=place.options)
    expected, _ = race(place.uri, WRITERS, 5, {"refdelta": place.options, "deltalake": theirs})
    assert_all_there(place.uri, expected, place.options, theirs)
