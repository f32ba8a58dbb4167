"""``DeltaTable.follow``: what is there, then each version's changes, once each, from any position on."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from refdelta import Change, DeltaTable, errors, write_deltalake
from refdelta.api import following
from refdelta.catalog import SqlCatalog
from refdelta_storage import TracingStore
from refdelta_storage.wrappers import WrapperStore
from waiting import GENEROUS, until

FED = {"delta.enableChangeDataFeed": "true"}


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def append(table: DeltaTable, *ids: int) -> None:
    write_deltalake(table.table_uri, rows(*ids), mode="append")


def ids(change: Change) -> list[int]:
    found: list[int] = sorted(change.rows.column("id").to_pylist())
    return found


def told(changes: Any) -> list[tuple[int, str, list[int]]]:
    return [(change.version, change.kind, ids(change)) for change in changes]


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    """Versions 0 and 1, with the rows 1, 2 and 3."""
    write_deltalake(tmp_path / "t", rows(1, 2))
    write_deltalake(tmp_path / "t", rows(3), mode="append")
    return DeltaTable(tmp_path / "t")


@pytest.fixture
def fed(tmp_path: Path) -> DeltaTable:
    """A table that records its changes, with the rows 1 and 2."""
    write_deltalake(tmp_path / "fed", rows(1, 2), configuration=FED)
    return DeltaTable(tmp_path / "fed")


def test_the_snapshot_comes_first_and_then_each_version_that_adds_rows(table: DeltaTable) -> None:
    follower = table.follow(timeout=0)
    assert told(follower) == [(1, "snapshot", [1, 2, 3])]
    append(table, 4, 5)
    table.optimize.compact()
    append(table, 6)
    assert told(follower) == [(2, "changes", [4, 5]), (4, "changes", [6])]
    assert told(follower) == []


def test_a_position_goes_on_after_its_change(table: DeltaTable) -> None:
    for number in range(4, 8):
        append(table, number)
    whole = list(table.follow(since=0, timeout=0))
    assert told(whole) == [(1, "changes", [3]), *[(n - 2, "changes", [n]) for n in range(4, 8)]]
    for taken, change in enumerate(whole, 1):
        assert told(table.follow(change.position, 0)) == told(whole[taken:])


def test_the_numbers_of_changes_grow_so_that_a_change_is_not_written_twice(table: DeltaTable, tmp_path: Path) -> None:
    position = None
    for number in range(4, 8):
        for _ in range(2):  # as if a writer was killed before the position was stored
            for change in table.follow(position, 0, max_bytes=1):
                write_deltalake(
                    tmp_path / "copy", change.rows, mode="append", app_id="copy", app_version=change.app_version
                )
        position = change.position
        append(table, number)
    assert sorted(DeltaTable(tmp_path / "copy").to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3, 4, 5, 6]
    numbers = [change.app_version for change in table.follow(timeout=0, max_bytes=1)]
    numbers += [change.app_version for change in table.follow(table.version(), 0)]
    assert numbers == sorted(set(numbers))


def test_a_version_is_divided_at_the_files_only(table: DeltaTable) -> None:
    parts = list(table.follow(timeout=0, max_bytes=1))
    assert sorted(told(parts)) == [(1, "snapshot", [1, 2]), (1, "snapshot", [3])]
    assert told(table.follow(parts[0].position, 0, max_bytes=1)) == told(parts[1:])
    assert told(table.follow(parts[0].position, 0)) == told(parts[1:])


def test_the_change_feed_has_the_kind_of_each_change(fed: DeltaTable) -> None:
    follower = fed.follow(timeout=0)
    (first,) = follower
    assert (first.kind, first.rows.column("_change_type").to_pylist()) == ("snapshot", ["insert", "insert"])
    fed.update(updates={"id": "id + 10"}, predicate="id = 1")
    fed.delete("id = 2")
    changed = [
        (change.version, row["id"], row["_change_type"]) for change in follower for row in change.rows.to_pylist()
    ]
    assert changed == [(1, 1, "update_preimage"), (1, 11, "update_postimage"), (2, 2, "delete")]
    only = fed.follow(0, 0, columns=["id", "_change_type"], filters="_change_type = 'delete'")
    assert [change.rows.to_pylist() for change in only] == [[{"id": 2, "_change_type": "delete"}]]


def test_the_feed_is_left_where_the_options_are_those_of_added_rows(fed: DeltaTable) -> None:
    fed.delete()
    append(fed, 3)
    for option in ("ignore_deletes", "ignore_changes", "skip_change_commits"):
        assert told(fed.follow(0, 0, **{option: True})) == [(2, "changes", [3])]
    with pytest.raises(errors.InvalidArgumentError, match="change_feed=True reads all changes: remove ignore_deletes"):
        fed.follow(change_feed=True, ignore_deletes=True)


def test_columns_and_filters(tmp_path: Path) -> None:
    two = pa.table({"id": [1, 2], "town": ["Ulm", "Bonn"], "p": ["a", "b"]})
    write_deltalake(tmp_path / "t", two, partition_by="p")
    table = DeltaTable(tmp_path / "t")
    write_deltalake(table, two, mode="append")
    found = [
        (change.version, change.rows.to_pylist()) for change in table.follow(-1, 0, columns=["town"], filters="id > 1")
    ]
    assert found == [(0, [{"town": "Bonn"}]), (1, [{"town": "Bonn"}])]
    assert list(table.follow(-1, 0, filters="p = 'c'")) == []


def test_a_commit_that_changes_rows_stops_it_unless_an_option_says_otherwise(table: DeltaTable) -> None:
    table.delete("id = 1")
    append(table, 4)
    follower = table.follow(1, 0)
    for _ in range(2):
        with pytest.raises(
            errors.StreamStoppedError, match=r"version 2 \(DELETE\).*skip_change_commits=True"
        ) as caught:
            next(follower)
        assert not caught.value.reload
    assert told(table.follow(follower.position, 0, skip_change_commits=True)) == [(3, "changes", [4])]
    assert told(table.follow(1, 0, ignore_changes=True)) == [(2, "changes", [2]), (3, "changes", [4])]


def test_a_new_schema_stops_it_and_the_position_goes_on_with_the_new_one(table: DeltaTable) -> None:
    follower = table.follow(1, 0)
    append(table, 4)
    write_deltalake(table, pa.table({"id": [5], "town": ["Ulm"]}), mode="append", schema_mode="merge")
    assert told([next(follower)]) == [(2, "changes", [4])]
    with pytest.raises(errors.StreamStoppedError, match=r"version 3 changes .*follow\(since=position\)") as caught:
        next(follower)
    assert caught.value.reload
    (change,) = table.follow(follower.position, 0)
    assert change.rows.to_pylist() == [{"id": 5, "town": "Ulm"}]


class Watched(TracingStore):
    """The store of a table that is followed."""

    def await_looks(self) -> None:
        """Wait until a follower has looked again, several times: so it has waited in between."""
        before = len(self.calls)
        until(lambda: len(self.calls) > before + 10)


def watched(table: DeltaTable) -> tuple[DeltaTable, Watched]:
    store = Watched(table.store)
    return DeltaTable.in_store(store), store


def test_it_waits_for_the_next_version_and_ends_after_silence(table: DeltaTable) -> None:
    followed, store = watched(table)
    follower = followed.follow(1, timeout=GENEROUS, interval=0.01)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(next, follower)
        store.await_looks()
        assert not found.done()
        append(table, 4)
        assert told([found.result()]) == [(2, "changes", [4])]
    assert list(table.follow(2, timeout=0.2, interval=0.05)) == []


def test_another_thread_ends_the_wait(table: DeltaTable) -> None:
    followed, store = watched(table)
    with followed.follow(1, interval=0.01) as follower, ThreadPoolExecutor(1) as pool:
        found = pool.submit(list, follower)
        store.await_looks()
        follower.close()
        assert found.result() == []


def test_a_cancelled_task_loses_no_change(table: DeltaTable) -> None:
    followed, store = watched(table)

    async def run() -> list[tuple[int, str, list[int]]]:
        follower = followed.follow(1, interval=0.01)
        waiting = asyncio.ensure_future(anext(follower))
        await asyncio.to_thread(store.await_looks)
        waiting.cancel()
        append(table, 4)
        found = []
        async for change in follower:
            found.append(change)
            if change.version == 3:
                follower.close()
            else:
                append(table, 5)
        return told(found)

    assert asyncio.run(run()) == [(2, "changes", [4]), (3, "changes", [5])]


def test_the_event_loop_goes_on_while_it_looks(table: DeltaTable) -> None:
    looking, go_on = threading.Event(), threading.Event()

    class Held(WrapperStore):
        def list_keys(self, prefix: str = "", after: str | None = None) -> Any:
            self._hold()
            return super().list_keys(prefix, after)

        def list(self, prefix: str = "", after: str | None = None) -> Any:
            self._hold()
            return super().list(prefix, after)

        def _hold(self) -> None:
            looking.set()
            assert go_on.wait(GENEROUS)

    go_on.set()
    follower = DeltaTable.in_store(Held(table.store)).follow(1, interval=0.01)
    go_on.clear()
    looking.clear()

    async def run() -> list[Change]:
        async def beside() -> None:
            assert await asyncio.to_thread(looking.wait, GENEROUS)
            go_on.set()
            follower.close()

        going = asyncio.ensure_future(beside())
        found = [change async for change in follower]
        await going
        return found

    assert asyncio.run(run()) == []


def test_a_pinned_handle_begins_with_its_version(table: DeltaTable) -> None:
    pinned = DeltaTable(table.table_uri, version=0)
    assert told(pinned.follow(timeout=0)) == [(0, "snapshot", [1, 2]), (1, "changes", [3])]


@pytest.mark.parametrize("commits", ["staged", "inline"])
def test_a_table_of_a_catalog(tmp_path: Path, commits: Any) -> None:
    with SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse") as catalog:
        table = catalog.create_table("a.b", rows(1).schema, commits=commits)
        write_deltalake(table, rows(1), mode="append")
        follower = table.follow(timeout=0)
        assert told(follower) == [(1, "snapshot", [1])]
        write_deltalake(catalog.table("a.b"), rows(2), mode="append")
        assert told(follower) == [(2, "changes", [2])]


def test_files_that_vacuum_removed_end_it(table: DeltaTable) -> None:
    append(table, 4)
    table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(errors.DataFileNotFoundError, match="follow the table anew, without since"):
        list(table.follow(0, 0))


def test_lost_commits_are_an_error_unless_they_are_passed_over(table: DeltaTable, tmp_path: Path) -> None:
    append(table, 4)
    append(table, 5)
    table.update_incremental()
    table.create_checkpoint()
    for version in (0, 1, 2):
        (tmp_path / "t" / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(errors.VersionNotFoundError, match=r"version 1.*fail_on_data_loss=False"):
        list(table.follow(0, 0))
    assert told(table.follow(0, 0, fail_on_data_loss=False)) == [(3, "changes", [5])]


def test_a_table_made_anew_is_another_one(table: DeltaTable, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_deltalake(other, rows(1))
    position = table.follow().position
    with pytest.raises(errors.InvalidArgumentError, match="follow the table anew"):
        DeltaTable(other).follow(position)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"since": 9}, errors.VersionNotFoundError, "since is 9; the table has the versions 0 to 1"),
        ({"since": -2}, errors.VersionNotFoundError, "since is -2"),
        ({"since": "x"}, errors.InvalidArgumentError, "since is a version or the position of a change, not 'x'"),
        ({"since": "{}"}, errors.InvalidArgumentError, "since is a version or the position"),
        ({"since": 1.5}, errors.InvalidArgumentError, "since"),
        ({"timeout": -1}, errors.InvalidArgumentError, "timeout must be a number of seconds"),
        ({"interval": 0}, errors.InvalidArgumentError, "interval must be a number of seconds above 0"),
        ({"max_bytes": 0}, errors.InvalidArgumentError, "max_bytes must be a positive number"),
        ({"columns": ["town"]}, errors.ColumnNotFoundError, "town"),
        ({"filters": "town = 1"}, errors.ColumnNotFoundError, "town"),
        ({"change_feed": True}, errors.InvalidArgumentError, "enableChangeDataFeed"),
        ({"change_feed": "no"}, errors.InvalidArgumentError, "change_feed"),
        ({"skip_change_commits": "no"}, errors.InvalidArgumentError, "skip_change_commits"),
    ],
)
def test_arguments_that_are_none_are_refused_at_once(
    table: DeltaTable, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        table.follow(**arguments)


def test_positions_are_json_with_the_id_of_the_table(table: DeltaTable) -> None:
    assert json.loads(table.follow().position)["reservoirId"] == table.metadata().id


def test_silence_is_measured_since_the_last_change(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(following, "time", SimpleNamespace(monotonic=lambda: clock.now))
    follower = table.follow(timeout=10, interval=0.05)
    next(follower)
    clock.now += 100
    append(table, 4)
    assert told([next(follower)]) == [(2, "changes", [4])]
