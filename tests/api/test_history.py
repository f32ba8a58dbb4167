"""``DeltaTable.history``: reads the commits that it returns, and names what is damaged."""

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake

pytestmark = pytest.mark.breaks_tables


@pytest.fixture
def table(tmp_path):
    """Six versions with a checkpoint at version 3: the handle opens whatever the state of the commits before it."""
    for number in range(6):
        write_deltalake(tmp_path, pa.table({"id": [number]}), mode="append")
        if number == 3:
            DeltaTable(tmp_path).create_checkpoint()
    return tmp_path


def test_a_damaged_commit_matters_only_where_it_is_asked_for(table):
    damaged = table / "_delta_log" / f"{1:020}.json"
    lines = damaged.read_text().splitlines()
    damaged.write_text("{broken\n" + "\n".join(lines))
    assert [commit["version"] for commit in DeltaTable(table).history(4)] == [5, 4, 3, 2]
    with pytest.raises(errors.InvalidLogError, match=r"0001\.json, line 1: .*not an action"):
        DeltaTable(table).history()


def test_a_commit_that_was_removed_is_left_out(table):
    (table / "_delta_log" / f"{1:020}.json").unlink()
    assert [commit["version"] for commit in DeltaTable(table).history()] == [5, 4, 3, 2, 0]
