"""``DeltaTable.history``: reads the commits that it returns, names what is damaged, and returns the rest.

Tests of operations.maintenance.history.
"""

import json
import logging
import os
from dataclasses import replace

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.core.log.paths import commit_key
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.operations.maintenance.history import history, recorded_history
from refdelta_storage import open_store
from refdelta_storage.wrappers import TracingStore

pytestmark = pytest.mark.breaks_tables


@pytest.fixture
def table(tmp_path):
    """Six versions with a checkpoint at version 3: the handle opens whatever the state of the commits before it."""
    for number in range(6):
        write_deltalake(tmp_path, pa.table({"id": [number]}), mode="append")
        if number == 3:
            DeltaTable(tmp_path).create_checkpoint()
    for number in range(6):  # with a limit, equal times are adjusted from there on
        os.utime(tmp_path / commit_key(number), (1_000 + number, 1_000 + number))
    return tmp_path


def versions(history):
    return [commit["version"] for commit in history]


def test_a_damaged_commit_is_named_and_the_rest_is_returned(table, caplog):
    damaged = table / commit_key(1)
    lines = damaged.read_text().splitlines()
    damaged.write_text("{broken\n" + "\n".join(lines))
    with caplog.at_level(logging.WARNING, "refdelta"):
        found = DeltaTable(table).history()
        assert versions(found) == [5, 4, 3, 2, 1, 0]
        assert "operation" not in found[4]
        (error,) = found.damage
        assert isinstance(error, errors.InvalidLogError)
        assert f"{commit_key(1)}, line 1: not an action" in str(error)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert str(table) in warning
    assert str(error) in warning
    assert warning.endswith("what can be read is shown")
    assert json.loads(json.dumps(found)) == found, "a list as any other"


def test_a_bad_line_after_the_commit_info_is_named_too(table):
    damaged = table / commit_key(1)
    damaged.write_text(damaged.read_text() + '{"add": {"path"\n')
    found = DeltaTable(table).history()
    assert found[4]["operation"] == "WRITE"
    (error,) = found.damage
    assert f"{commit_key(1)}, line " in str(error)


def test_a_damaged_commit_matters_only_where_it_is_asked_for(table, caplog):
    (table / commit_key(1)).write_text("{broken\n")
    found = DeltaTable(table).history(4)
    assert (versions(found), found.damage, caplog.records) == ([5, 4, 3, 2], (), [])


def test_a_commit_that_is_missing_is_named(table):
    (table / commit_key(1)).unlink()
    found = DeltaTable(table).history()
    assert versions(found) == [5, 4, 3, 2, 0]
    assert [str(error) for error in found.damage] == [f"{commit_key(1)}: the commit file is missing"]
    assert versions(DeltaTable(table).history(5)) == [5, 4, 3, 2, 0], "as many commits as were asked for"
    (table / commit_key(0)).unlink()
    assert DeltaTable(table).history().damage == (), "the oldest versions go by cleanup"


def test_the_history_of_a_table_that_cannot_be_opened(table):
    (table / commit_key(4)).unlink()
    with pytest.raises(errors.InvalidLogError):
        DeltaTable(table)
    found = DeltaTable.read_history(table)
    assert versions(found) == [5, 3, 2, 1, 0]
    assert [str(error) for error in found.damage] == [f"{commit_key(4)}: the commit file is missing"]
    assert versions(DeltaTable.read_history(table, limit=1)) == [5]
    with pytest.raises(errors.InvalidArgumentError, match="negative"):
        DeltaTable.read_history(table, limit=-1)
    with pytest.raises(errors.TableNotFoundError):
        DeltaTable.read_history(table / "elsewhere")


def test_a_handle_whose_log_is_damaged_later(table):
    handle = DeltaTable(table)
    (table / commit_key(5)).write_bytes(b"\0\n")
    (table / commit_key(2)).unlink()
    found = handle.history()
    assert versions(found) == [5, 4, 3, 1, 0]
    assert len(found.damage) == 2


@pytest.mark.parametrize("limit", [0, 1, 3, 6, 7])
def test_a_limit_gives_the_newest_of_all_commits(table, limit):
    handle = DeltaTable(table)
    assert handle.history(limit) == handle.history()[:limit]
    assert DeltaTable.read_history(table, limit) == DeltaTable.read_history(table)[:limit]
    handle.load_as_version(2)
    assert versions(handle.history(limit)) == [2, 1, 0][:limit], "of the version that the handle reads"


class FarStore(TracingStore):
    """A local folder in place of an object store: names and times come from listings."""

    @property
    def capabilities(self):
        return replace(self.inner.capabilities, remote=True)


@pytest.mark.parametrize("kind", [TracingStore, FarStore])
def test_a_limit_reads_what_it_shows_and_nothing_else(table, kind):
    store = kind(open_store(str(table)))
    snapshot = load_snapshot(store)
    store.calls.clear()
    assert versions(history(snapshot, 2)) == [5, 4]
    looks = {"head", "get_many"} if kind is TracingStore else {"list", "get_many"}
    assert {operation for operation, _ in store.calls} == looks
    assert {key for operation, key in store.calls if operation != "list"} == {commit_key(5), commit_key(4)}
    store.calls.clear()
    assert versions(recorded_history(store, 2, lambda error: pytest.fail(str(error)))) == [5, 4]
    read = {key for operation, key in store.calls if operation in ("get_many", "head", "get")}
    assert read == {commit_key(5), commit_key(4)}


def test_times_rise_over_the_versions_that_are_returned(table):
    for version, seconds in ((3, 3_000), (4, 2_000), (5, 2_000)):
        os.utime(table / commit_key(version), (seconds, seconds))
    assert [commit["timestamp"] for commit in DeltaTable(table).history(3)] == [3_000_002, 3_000_001, 3_000_000]
