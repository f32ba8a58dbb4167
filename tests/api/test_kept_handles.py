"""Appends by a handle that takes what was the newest version a moment ago for the newest: as if it had looked."""

from __future__ import annotations

import dataclasses
import uuid

import pyarrow as pa
import pytest

from refdelta import CommitProperties, DeltaTable, errors, write_deltalake
from refdelta.transaction import background
from refdelta_storage.memory import MemoryStore

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


@pytest.fixture(autouse=True)
def far(monkeypatch):
    """A store behind a network, where a moment is long."""
    near = MemoryStore.capabilities
    monkeypatch.setattr(
        MemoryStore, "capabilities", property(lambda self: dataclasses.replace(near.fget(self), remote=True))
    )
    monkeypatch.setattr("refdelta.api.handle._MOMENT", 600.0)
    yield
    background.settle()


@pytest.fixture
def place():
    uri = f"memory://{uuid.uuid4()}/t"
    write_deltalake(uri, ROWS)
    return uri


def keys(place):
    background.settle()
    return [info.key for info in DeltaTable(place).store.list()]


@pytest.fixture
def kept(place):
    """A handle whose own commit is the newest version."""
    table = DeltaTable(place)
    assert table._handle.recent() is not None
    write_deltalake(table, ROWS, mode="append")
    assert table._handle.recent() is not None
    return table


def test_other_appends_are_stepped_over(place, kept):
    for _ in range(3):
        write_deltalake(place, ROWS, mode="append")
    result = write_deltalake(kept, ROWS, mode="append")
    assert (result.version, result.rebased_over) == (5, (2, 3, 4))
    assert kept.count() == DeltaTable(place).count() == 12
    # Somebody else writes, too: the next one looks.
    assert kept._handle.recent() is None
    write_deltalake(place, ROWS, mode="append")
    assert write_deltalake(kept, ROWS, mode="append").rebased_over == ()
    assert kept._handle.recent() is not None


def test_columns_that_others_have_added_are_known(place, kept):
    DeltaTable(place).alter.add_columns(pa.schema([("more", pa.string())]))
    assert write_deltalake(kept, ROWS.append_column("more", [["x", "y"]]), mode="append").version == 3
    assert DeltaTable(place).to_pyarrow_table(filters="more is not null").num_rows == 2


def test_a_schema_that_others_have_replaced_is_held_to(place, kept):
    write_deltalake(place, pa.table({"other": [1]}), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(errors.SchemaMismatchError, match="no column id"):
        write_deltalake(kept, ROWS, mode="append")
    assert kept.version() == 2
    assert len([key for key in keys(place) if key.endswith(".parquet")]) == 3  # nothing stays written


def test_an_error_that_the_newest_version_gives_too_is_raised(place, kept):
    with pytest.raises(errors.SchemaMismatchError, match="more"):
        write_deltalake(kept, ROWS.append_column("more", [["x", "y"]]), mode="append")
    assert kept.version() == 1


def test_an_applications_version_that_others_have_recorded_is_known(place, kept):
    write_deltalake(place, ROWS, mode="append", app_id="job", app_version=3)
    assert write_deltalake(kept, ROWS, mode="append", app_id="job", app_version=3).version is None
    assert DeltaTable(place).count() == 6


def test_a_stream_of_rows_is_read_once_so_its_append_looks_first(place, kept):
    DeltaTable(place).alter.add_columns(pa.schema([("more", pa.string())]))
    assert write_deltalake(kept, ROWS.to_reader(), mode="append").version == 3
    assert DeltaTable(place).count() == 6


def test_an_append_of_which_nobody_knows_whether_it_was_committed_is_not_repeated(place, kept, monkeypatch):
    put = MemoryStore.put_if_absent

    def put_and_run_out_of_memory(store, key, data):
        put(store, key, data)
        raise errors.NotEnoughMemoryError("no memory is left to read the reply")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryStore, "put_if_absent", put_and_run_out_of_memory)
        with pytest.raises(errors.NotEnoughMemoryError):
            write_deltalake(kept, ROWS, mode="append")
    assert (DeltaTable(place).version(), DeltaTable(place).count()) == (2, 6)


def test_statements_that_rest_on_rows_look_first(place, kept):
    write_deltalake(place, ROWS, mode="append")
    assert kept.delete().metrics["num_deleted_rows"] == 6
    write_deltalake(place, ROWS, mode="append")
    write_deltalake(kept, ROWS, mode="overwrite")
    assert DeltaTable(place).count() == 2


def test_after_a_while_it_looks(kept, monkeypatch):
    monkeypatch.setattr("refdelta.api.handle._MOMENT", 0.0)
    assert kept._handle.recent() is None


def test_a_handle_goes_on_from_its_own_checkpoint_without_a_look(place, kept):
    kept.alter.set_table_properties({"delta.checkpointInterval": "10"})
    while kept.version() < 12:
        write_deltalake(kept, ROWS, mode="append")
        assert kept._handle.recent() is not None
    assert f"_delta_log/{10:020}.checkpoint.parquet" in keys(place)
    assert len(kept._handle.snapshot.segment.commits) == 2


def test_a_checkpoint_that_is_due_is_looked_for(place, kept):
    kept.alter.set_table_properties({"delta.checkpointInterval": "10"})
    while kept.version() < 10:
        write_deltalake(kept, ROWS, mode="append", commit_properties=CommitProperties(create_checkpoint=False))
        assert (kept._handle.recent() is None) == (kept.version() == 10)
    DeltaTable(place).create_checkpoint()
    for _ in range(2):
        write_deltalake(kept, ROWS, mode="append")
    assert len(kept._handle.snapshot.segment.commits) == 2


def test_checksums_come_behind_the_commits(place, kept):
    write_deltalake(kept, ROWS, mode="append")
    assert [key for key in keys(place) if key.endswith(".crc")] == [f"_delta_log/{v:020}.crc" for v in range(3)]


def test_on_this_machine_it_looks(tmp_path):
    write_deltalake(tmp_path, ROWS)
    table = DeltaTable(tmp_path)
    write_deltalake(table, ROWS, mode="append")
    assert table._handle.recent() is None


@pytest.mark.parametrize(("own", "others"), [(1, 1), (1, 3), (2, 2), (2, 1)])
def test_own_commits_that_a_restored_folder_lacks_are_no_versions(tmp_path, own, others):
    """Others have the same size, and the commit that was listed last is still there."""
    write_deltalake(tmp_path, pa.table({"id": [1]}))
    kept = DeltaTable(tmp_path)
    for number in range(own):
        write_deltalake(kept, pa.table({"id": [40 + number]}), mode="append")
    for file in (tmp_path / "_delta_log").glob("*.*"):
        if file.name[:20].isdecimal() and int(file.name[:20]) >= 1:
            file.unlink()
    for number in range(others):
        write_deltalake(tmp_path, pa.table({"id": [50 + number]}), mode="append")
    kept.update_incremental()
    assert sorted(kept.to_pyarrow_table()["id"].to_pylist()) == [1, *range(50, 50 + others)]
