"""Clocks that jump, back and forth: the times of versions rise all the same, and a time means one version."""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.engine.log.timestamps import version_at
from tiers import examples

ICT = {"delta.enableInCommitTimestamps": "true"}
SINCE_VERSION, SINCE_TIMESTAMP = (
    "delta.inCommitTimestampEnablementVersion",
    "delta.inCommitTimestampEnablementTimestamp",
)
ROW = pa.table({"n": pa.array([1], pa.int64())})
NOON = 1_790_000_000_000
DAY = 24 * 60 * 60 * 1000


class Clock:
    """The clock of this process, in milliseconds since 1970."""

    def __init__(self) -> None:
        self.now = NOON

    def time_ns(self) -> int:
        return self.now * 1_000_000


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "time_ns", clock.time_ns)
    return clock


def stamps(table: DeltaTable) -> list[int | None]:
    """The in-commit timestamp of each version, oldest first."""
    found = []
    for version in range(table.version() + 1):
        first = json.loads(table.store.get(f"_delta_log/{version:020d}.json").splitlines()[0])
        found.append(first["commitInfo"].get("inCommitTimestamp"))
    return found


def moment(milliseconds: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=milliseconds)


def check_times(table: DeltaTable, times: list[int]) -> None:
    """History tells these times, each of them means its version, and so does any up to the next one."""
    assert [entry["timestamp"] for entry in table.history()] == times[::-1]
    for version, (start, end) in enumerate(pairwise([*times, times[-1] + DAY])):
        assert version_at(table.store, start) == version
        assert version_at(table.store, end - 1) == version
    with pytest.raises(errors.VersionNotFoundError):
        version_at(table.store, times[0] - 1)
    assert DeltaTable(table.table_uri, version=moment(times[-1])).version() == len(times) - 1


# --- in-commit timestamps -----------------------------------------------------------------------------------------


@pytest.mark.tier("test")
@examples(25)
@given(jumps=st.lists(st.integers(-400 * DAY, 400 * DAY) | st.integers(-5, 5), min_size=1, max_size=6))
def test_in_commit_timestamps_rise_whatever_the_clock_does(fresh_path, jumps):
    clock = Clock()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(time, "time_ns", clock.time_ns)
        write_deltalake(fresh_path_now := fresh_path(), ROW, configuration=ICT)
        table, expected = DeltaTable(fresh_path_now), [NOON]
        for jump in jumps:
            clock.now += jump
            write_deltalake(table, ROW, mode="append")
            expected.append(max(clock.now, expected[-1] + 1))
    assert stamps(table) == expected
    check_times(table, expected)
    # A reader from nothing sees the same as the handle that wrote.
    assert DeltaTable(table.table_uri).detail()["last_modified"] == expected[-1] == table.detail()["last_modified"]


def test_a_loser_whose_clock_is_behind_comes_after_its_winners(tmp_path, clock):
    write_deltalake(tmp_path, ROW, configuration=ICT)
    late = DeltaTable(tmp_path).begin()
    late.append(ROW)
    clock.now += DAY
    for _ in range(3):
        write_deltalake(tmp_path, ROW, mode="append")
    clock.now -= 2 * DAY
    result = late.commit()
    assert (result.version, result.rebased_over) == (4, (1, 2, 3))
    assert stamps(DeltaTable(tmp_path)) == [NOON, NOON + DAY, NOON + DAY + 1, NOON + DAY + 2, NOON + DAY + 3]


@pytest.mark.breaks_tables
def test_a_winner_without_a_timestamp_does_not_stop_the_clock(tmp_path, clock):
    """It breaks the rules; we keep to them."""
    write_deltalake(tmp_path, ROW, configuration=ICT)
    late = DeltaTable(tmp_path).begin()
    late.append(ROW)
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_text('{"commitInfo":{"operation":"WRITE"}}\n')
    clock.now -= DAY
    assert late.commit().version == 2
    assert stamps(DeltaTable(tmp_path)) == [NOON, None, NOON + 1]


@pytest.mark.parametrize("last", [2**63 - 1, 2**70])
def test_behind_the_last_timestamp_of_all_there_is_no_other(tmp_path, last):
    write_deltalake(tmp_path, ROW, configuration=ICT)
    late = DeltaTable(tmp_path).begin()
    late.append(ROW)
    line = f'{{"commitInfo":{{"operation":"WRITE","inCommitTimestamp":{last}}}}}\n'
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_text(line)
    with pytest.raises(errors.InvalidLogError, match="timestamp"):
        late.commit()
    with pytest.raises(errors.InvalidLogError, match="imestamp"):
        write_deltalake(tmp_path, ROW, mode="append")
    assert len(list(tmp_path.glob("*.parquet"))) == 1


@pytest.mark.parametrize("jump", [-DAY, DAY])
def test_timestamps_that_are_turned_on_later_say_since_when(tmp_path, clock, jump):
    """Also where the commit that turns them on lands behind winners, which it did not see."""
    write_deltalake(tmp_path, ROW)
    table = DeltaTable(tmp_path)
    written = (tmp_path / "_delta_log" / f"{0:020d}.json").stat().st_mtime_ns // 10**6
    turn_on = table.begin()
    turn_on.set_table_properties(ICT)
    for _ in range(2):
        write_deltalake(tmp_path, ROW, mode="append")
    clock.now = written + jump
    assert turn_on.commit().version == 3
    table = DeltaTable(tmp_path)
    first = stamps(table)[3]
    assert stamps(table) == [None, None, None, first]
    # The second attempt says by how much it is later than the first.
    least = max(clock.now, written + 1)
    assert least <= first < least + DAY // 2
    configuration = table.metadata().configuration
    assert (configuration[SINCE_VERSION], configuration[SINCE_TIMESTAMP]) == ("3", str(first))
    assert "inCommitTimestamp" in table.protocol().writer_features
    # What is written anew of the table keeps what it says.
    write_deltalake(table, ROW, mode="overwrite", schema_mode="overwrite")
    table.alter.set_table_properties({"mine": "yes"})
    DeltaTable.create(tmp_path, table.schema(), mode="overwrite", configuration=ICT)
    table = DeltaTable(tmp_path)
    assert table.metadata().configuration == {**ICT, SINCE_VERSION: "3", SINCE_TIMESTAMP: str(first)}
    assert stamps(table)[3:] == sorted(stamps(table)[3:])
    times = [entry["timestamp"] for entry in table.history()]
    assert times[: len(times) - 3] == stamps(table)[:2:-1]
    assert version_at(table.store, first) == 3


def test_a_table_that_has_them_from_its_creation_says_no_more(tmp_path, clock):
    write_deltalake(tmp_path, ROW, configuration=ICT)
    table = DeltaTable(tmp_path)
    table.alter.set_table_properties({"mine": "yes"})
    assert table.metadata().configuration == {**ICT, "mine": "yes"}
    clock.now += 5
    assert DeltaTable.create(tmp_path, table.schema(), mode="overwrite", configuration=ICT).version() == 2
    assert DeltaTable(tmp_path).metadata().configuration == ICT
    check_times(DeltaTable(tmp_path), [NOON, NOON + 1, NOON + 5])


def test_timestamps_off_and_on_again(tmp_path, clock):
    write_deltalake(tmp_path, ROW, configuration=ICT)
    table = DeltaTable(tmp_path)
    table.alter.set_table_properties({"delta.enableInCommitTimestamps": "false"})
    write_deltalake(table, ROW, mode="append")
    table.alter.set_table_properties(ICT)
    clock.now += 1
    table.restore(1)
    assert "delta.inCommitTimestampEnablementVersion" not in table.metadata().configuration
    table.restore(3)
    assert [stamp is not None for stamp in stamps(table)] == [True, False, False, True, False, True]
    assert table.metadata().configuration[SINCE_VERSION] == "5"
    assert version_at(table.store, stamps(table)[5]) == 5


def test_statements_and_checkpoints_of_such_a_table(tmp_path, clock):
    write_deltalake(tmp_path, pa.table({"n": range(10)}), configuration={**ICT, "delta.enableDeletionVectors": "true"})
    table = DeltaTable(tmp_path)
    table.delete("n = 1")
    table.update({"n": "n + 100"}, predicate="n = 2")
    clock.now -= DAY
    table.merge(pa.table({"n": [3]}), "s.n = t.n").when_matched_delete().execute()
    table.optimize.compact()
    table.create_checkpoint()
    table.vacuum(dry_run=False)
    write_deltalake(table, ROW, mode="append")
    assert stamps(table) == [NOON + version for version in range(table.version() + 1)]
    assert sorted(DeltaTable(tmp_path).to_pyarrow_table()["n"].to_pylist()) == [0, 1, 4, 5, 6, 7, 8, 9, 102]
    crc = json.loads((tmp_path / "_delta_log" / f"{table.version():020d}.crc").read_text())
    assert crc["inCommitTimestampOpt"] == stamps(table)[-1]


# --- times of files -----------------------------------------------------------------------------------------------


@examples(20)
@given(jumps=st.lists(st.integers(-400 * DAY, 400 * DAY) | st.integers(-2, 2), min_size=1, max_size=6))
def test_file_times_that_jump_rise_too(fresh_path, jumps):
    """The server's clock, or a copy of the table, may give files any times."""
    path = fresh_path()
    write_deltalake(path, ROW)
    table, now, expected = DeltaTable(path), NOON, [NOON]
    for jump in jumps:
        write_deltalake(table, ROW, mode="append")
        now += jump
        expected.append(max(now, expected[-1] + 1))
    for version, file_time in enumerate(accumulated(NOON, jumps)):
        os.utime(path / "_delta_log" / f"{version:020d}.json", ns=(file_time * 10**6,) * 2)
    check_times(DeltaTable(path), expected)


def accumulated(start: int, jumps: list[int]) -> list[int]:
    return [start + sum(jumps[:count]) for count in range(len(jumps) + 1)]


# --- retention ----------------------------------------------------------------------------------------------------


@pytest.mark.tier("test")
def test_a_clock_that_is_years_ahead_takes_no_log_from_others(tmp_path, monkeypatch):
    """The housekeeping behind a commit goes by the time of the store, where ours is ahead."""
    keep = {"delta.checkpointInterval": "3", "delta.setTransactionRetentionDuration": "interval 30 days"}
    write_deltalake(tmp_path, ROW, configuration=keep)
    for version in range(1, 5):
        write_deltalake(tmp_path, ROW, mode="append", app_id="loader", app_version=version)
    ahead = time.time_ns() + 10 * 365 * DAY * 10**6
    monkeypatch.setattr(time, "time_ns", lambda: ahead)
    table = DeltaTable(tmp_path)
    write_deltalake(table, ROW, mode="overwrite")
    write_deltalake(table, ROW, mode="append")
    assert (tmp_path / "_delta_log" / f"{6:020d}.checkpoint.parquet").exists()
    assert [DeltaTable(tmp_path, version=version).version() for version in range(7)] == [*range(7)]
    again = DeltaTable(tmp_path)
    assert again.transaction_version("loader") == 4
    tombstones = again._handle.snapshot.tombstones()
    assert tombstones.num_rows == 5
