"""Builders that are forgotten, and how they are shown."""

import warnings

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake

ROWS = pa.table({"id": [1, 2]})


@pytest.fixture
def table(tmp_path):
    write_deltalake(tmp_path / "t", ROWS)
    return DeltaTable(tmp_path / "t")


def test_a_merge_without_execute_warns_where_it_began(table):
    with pytest.warns(UserWarning, match=r"execute\(\)") as seen:
        table.merge(ROWS, "s.id = t.id").when_matched_delete()
    assert seen[0].filename == __file__
    with table.begin() as txn, pytest.warns(UserWarning, match=r"execute\(\)"):
        txn.merge(ROWS, "s.id = t.id")
    assert table.version() == 0


def test_a_merge_that_ran_or_failed_does_not_warn(table):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.merge(ROWS, "s.id = t.id").when_matched_delete("s.id = 1").execute()
        with pytest.raises(errors.ColumnNotFoundError):
            table.merge(ROWS, "s.no = t.id").when_matched_delete().execute()
        with pytest.raises(errors.InvalidArgumentError):
            table.merge(ROWS, "s.id = t.id").when_matched_update("id")


def test_displays_say_what_it_is(table):
    merge = table.merge(ROWS, "s.id = t.id").when_matched_delete("s.id = 1")
    assert "MERGE on 's.id = t.id'" in repr(merge)
    merge.execute()
    for shown, word in ((table.optimize, "OPTIMIZE"), (table.alter, "ALTER TABLE")):
        assert word in repr(shown)
        assert table.table_uri.rpartition("/")[2] in repr(shown)
