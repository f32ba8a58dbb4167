"""``DeltaTable``: versions and times, what it tells of itself, and reading.

Tests of api.handle, api.reading, api.table_scan, operations.maintenance.describe, schema, transaction.time_travel.
"""

from __future__ import annotations

import datetime as dt
import os
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from refdelta import DeltaTable, Schema, errors, write_deltalake

SMALL = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", None, "c"]})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "table"


@pytest.fixture
def versions(path):
    """Five versions, one row each, committed one hour apart from 2024-01-01 00:00 UTC on."""
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    for version in range(5):
        write_deltalake(path, pa.table({"v": [version]}), mode="append")
        file = path / "_delta_log" / f"{version:020d}.json"
        stamp = (start + dt.timedelta(hours=version)).timestamp()
        os.utime(file, (stamp, stamp))
    return path


def test_time_travel_by_version(versions):
    for version in range(5):
        table = DeltaTable(versions, version=version)
        assert table.version() == version
        assert table.count() == version + 1
    with pytest.raises(errors.VersionNotFoundError, match="5"):
        DeltaTable(versions, version=5)
    with pytest.raises(errors.VersionNotFoundError):
        DeltaTable(versions, version=-1)
    with pytest.raises(errors.InvalidArgumentError, match="ISO 8601"):
        DeltaTable(versions, version="yesterday")
    with pytest.raises(errors.InvalidArgumentError):
        DeltaTable(versions, version=True)


def test_a_scan_counts_the_live_rows_of_each_file_and_is_a_stream_of_rows(path):
    write_deltalake(path, SMALL, configuration={"delta.enableDeletionVectors": "true"})
    write_deltalake(path, pa.table({"id": [4], "name": ["d"]}), mode="append")
    DeltaTable(path).delete("id = 2")
    table = DeltaTable(path)
    assert sorted(table.scan().file_counts()) == [1, 2]
    assert table.scan(predicate="id = 3").file_counts() == [2]  # without regard to the filter of rows
    assert pa.table(table.scan(["id"], predicate="id < 4")).to_pydict() == {"id": [1, 3]}


@pytest.mark.parametrize(
    ("moment", "version"),
    [
        ("2024-01-01T00:00:00Z", 0),
        ("2024-01-01T02:59:59.999+00:00", 2),
        ("2024-01-01 03:00:00", 3),
        (dt.datetime(2024, 1, 1, 4, 0, tzinfo=dt.timezone(dt.timedelta(hours=1))), 3),
        ("2024-01-01T04:00:00", 4),
    ],
)
def test_time_travel_by_time(versions, moment, version):
    assert DeltaTable(versions, version=moment).version() == version


def test_a_time_before_the_history_is_an_error_that_names_its_ends(versions):
    with pytest.raises(errors.VersionNotFoundError, match="2024-01-01T00:00:00"):
        DeltaTable(versions, version="2023-12-31")


def test_a_time_after_the_history_is_an_error_that_names_the_newest_version(versions):
    with pytest.raises(errors.VersionNotFoundError, match=r"after the newest version, 4 .*leave out the time"):
        DeltaTable(versions, version="2124-01-01T00:00:00Z")
    table = DeltaTable(versions)
    newest = dt.datetime.fromtimestamp(table.history(1)[0]["timestamp"] / 1000, dt.UTC)
    assert DeltaTable(versions, version=newest).version() == 4
    with pytest.raises(errors.VersionNotFoundError, match="after the newest version"):
        table.load_as_version(newest + dt.timedelta(milliseconds=1))
    assert (table.version(), table.pinned) == (4, False)
    with pytest.raises(errors.VersionNotFoundError, match="after the newest version"):
        table.diff(0, "2124-01-01T00:00:00Z")
    with pytest.raises(errors.VersionNotFoundError, match="after the newest version"):
        table.restore("2124-01-01T00:00:00Z")


@pytest.mark.parametrize("time", ["2124-01-01", dt.datetime(2124, 1, 1)])
def test_a_time_without_a_zone_is_utc_and_its_error_says_so(versions, time):
    with pytest.raises(errors.VersionNotFoundError, match=r"has no zone, and is read as UTC; add one, such as Z"):
        DeltaTable(versions, version=time)
    with pytest.raises(errors.VersionNotFoundError, match=r"has no zone, and is read as Europe/Berlin$"):
        DeltaTable(versions, version=time, timezone="Europe/Berlin")


def test_a_time_without_a_zone_has_that_of_the_handle(versions):
    table = DeltaTable(versions, timezone="Pacific/Kiritimati")  # 14 hours before UTC
    first, last = (dt.datetime.fromtimestamp(table.history()[place]["timestamp"] / 1000, dt.UTC) for place in (-1, 0))
    for moment, version in ((first, 0), (last, 4)):
        local = (moment + dt.timedelta(hours=14)).replace(tzinfo=None)
        for time in (local, local.isoformat()):
            assert DeltaTable(versions, version=time, timezone="Pacific/Kiritimati").version() == version
            table.load_as_version(time)
            assert table.version() == version
            assert table.diff(time, 4).before.version == version
        assert DeltaTable(versions, version=moment, timezone="Pacific/Kiritimati").version() == version


def test_a_time_from_the_history_leads_to_its_version(path):
    for version in range(5):
        write_deltalake(path, pa.table({"v": [version]}), mode="append")
    for entry in DeltaTable(path).history():
        moment = dt.datetime.fromtimestamp(entry["timestamp"] / 1000, dt.UTC)
        assert DeltaTable(path, version=moment).version() == entry["version"]


def test_a_handle_moves_only_when_told(versions):
    table = DeltaTable(versions)
    write_deltalake(versions, pa.table({"v": [5]}), mode="append")
    assert table.count() == 5
    table.update_incremental()
    assert (table.version(), table.count()) == (5, 6)
    table.load_as_version(1)
    assert (table.version(), table.count(), table.pinned) == (1, 2, True)
    table.update_incremental()
    assert (table.version(), table.pinned) == (5, False)


def test_reading_columns_and_filters(path):
    data = pa.table({"id": list(range(100)), "p": ["even", "odd"] * 50, "x": [i / 2 for i in range(100)]})
    write_deltalake(path, data, partition_by="p")
    table = DeltaTable(path)
    assert table.to_pyarrow_table(columns=["x", "id"]).column_names == ["x", "id"]
    for filters in (
        "p = 'odd' AND id < 10",
        [("p", "=", "odd"), ("id", "<", 10)],
        (pc.field("p") == "odd") & (pc.field("id") < 10),
    ):
        assert sorted(table.to_pyarrow_table(columns=["id"], filters=filters)["id"].to_pylist()) == [1, 3, 5, 7, 9]
    assert table.to_pandas(columns=["id"], filters="id = 7")["id"].tolist() == [7]
    assert pa.table(table).num_rows == 100
    assert sum(b.num_rows for b in table.to_record_batch_reader(["id"])) == 100
    assert "partition" in str(table.scan(predicate="p = 'odd'").explain())
    with pytest.raises(errors.ColumnNotFoundError, match="nope"):
        table.to_pyarrow_table(columns=["nope"])
    with pytest.raises(errors.DeltaError, match="nope"):
        table.to_pyarrow_table(filters="nope = 1")
    with pytest.raises(errors.PredicateError):
        table.to_pyarrow_table(filters="id = (SELECT 1)")
    with pytest.raises(errors.PredicateError):
        table.to_pyarrow_table(filters="id = ")


def test_counts_files_and_partitions_by_a_condition(path):
    for name in ("a", "b"):
        write_deltalake(path, pa.table({"id": [1, 2], "name": [name] * 2}), mode="append", partition_by="name")
    table = DeltaTable(path)
    assert (table.count(), table.count("id = 1"), table.count([("name", "=", "a")])) == (4, 2, 2)
    assert table.partitions("name = 'b'") == [{"name": "b"}]
    assert [Path(uri).parent.name for uri in table.file_uris("name = 'a'")] == ["name=a"]
    assert table.file_uris("id > 2") == []  # by statistics
    assert len(table.file_uris("id > 1")) == 2
    with pytest.raises(errors.PredicateError):
        table.file_uris("id = ")


def test_deletion_vectors_are_masks_by_file(path):
    write_deltalake(path, SMALL, configuration={"delta.enableDeletionVectors": "true"})
    write_deltalake(path, SMALL.slice(0, 1), mode="append")
    table = DeltaTable(path)
    assert table.deletion_vectors().read_all().num_rows == 0
    file = next(
        uri
        for uri, rows in zip(table.file_uris(), table.get_add_actions()["num_records"], strict=True)
        if rows.as_py() == 3
    )
    table.delete("id >= 2 AND id < 3")
    vectors = table.deletion_vectors().read_all()
    assert vectors["filepath"].to_pylist() == [Path(file).as_uri()]
    assert vectors["selection_vector"].to_pylist() == [[True, False, True]]


def test_what_a_table_says_of_itself(path):
    DeltaTable.create(path, SMALL.schema, partition_by="name", name="n", description="d", configuration={"k": "v"})
    with pytest.raises(errors.TableAlreadyExistsError):
        DeltaTable.create(path, SMALL.schema)
    assert DeltaTable.create(path, SMALL.schema, mode="ignore").version() == 0
    write_deltalake(path, SMALL, mode="append")
    table = DeltaTable.for_path(path)
    assert table.history()[-1]["operation"] == "CREATE TABLE"
    detail = table.detail()
    assert detail["num_files"] == 3
    assert detail["partition_columns"] == ["name"]
    assert detail["properties"] == {"k": "v"}
    assert detail["size_in_bytes"] == sum(Path(f).stat().st_size for f in table.file_uris())
    assert table.schema() == Schema.from_arrow(SMALL.schema)
    assert Schema.from_json(table.schema().to_json()) == table.schema()
    assert pa.schema(table.schema()) == table.schema().to_arrow()
    actions = table.get_add_actions()
    assert sorted(actions["num_records"].to_pylist()) == [1, 1, 1]
    flat = table.get_add_actions(flatten=True)
    assert sorted(flat["min.id"].to_pylist()) == [1, 2, 3]
    assert {"path", "size_bytes", "modification_time", "null_count.id", "max.id", "partition.name"} <= set(
        flat.column_names
    )
    assert table.metadata().name == "n"
    assert table.protocol().min_writer_version == 2
    assert repr(table) == f"DeltaTable({table.table_uri!r}, version=1)"
    assert DeltaTable.is_deltatable(path)
    assert not DeltaTable.is_deltatable(path.parent)


@pytest.mark.breaks_tables
def test_checkpoint_and_cleanup(path):
    for _ in range(3):
        write_deltalake(path, SMALL, mode="append", configuration=None)
    table = DeltaTable(path)
    table.create_checkpoint()
    for version in range(3):
        (path / "_delta_log" / f"{version:020d}.json").unlink()
    write_deltalake(path, SMALL, mode="append")
    assert DeltaTable(path).count() == 12
    with pytest.raises(errors.DeltaError):
        DeltaTable(path, version=0)


def test_old_log_files_go_after_their_retention(path):
    write_deltalake(path, SMALL, configuration={"delta.logRetentionDuration": "interval 1 days"})
    for _ in range(5):
        write_deltalake(path, SMALL, mode="append")
    old = dt.datetime.now(dt.UTC).timestamp() - 5 * 86400
    for file in (path / "_delta_log").iterdir():
        os.utime(file, (old, old))
    table = DeltaTable(path)
    table.create_checkpoint()
    write_deltalake(path, SMALL, mode="append")
    DeltaTable(path).cleanup_metadata()
    left = sorted(f.name for f in (path / "_delta_log").iterdir() if f.suffix == ".json")
    assert f"{0:020d}.json" not in left
    assert f"{6:020d}.json" in left
    assert DeltaTable(path).count() == 21


def test_memory_tables_and_pickled_results():
    uri = "memory://table-api-test/x"
    result = write_deltalake(uri, SMALL)
    assert pickle.loads(pickle.dumps(result)) == result or dict(pickle.loads(pickle.dumps(result))) == dict(result)
    assert DeltaTable(uri).count() == 3
