"""``DeltaTable.follow``: what is there, then each version's changes, once each, from any position on."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta import Change, DeltaTable, errors, write_deltalake
from refdelta.api import following
from refdelta.catalog import SqlCatalog
from refdelta.operations.stream.offsets import Offset, part_end
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


def test_positions_have_the_id_of_the_table_and_the_hash_of_the_commit(table: DeltaTable, tmp_path: Path) -> None:
    position = json.loads(table.follow().position)
    commit = (tmp_path / "t" / "_delta_log" / f"{1:020d}.json").read_bytes()
    assert (position["reservoirId"], position["commit"]) == (table.metadata().id, hashlib.sha256(commit).hexdigest())


# --- each change once -------------------------------------------------------------------------------------------------


class Copy:
    """A target that refuses the numbers which it has recorded of an application, and the readers that fill it."""

    def __init__(self, source: DeltaTable, app_id: str | None = None) -> None:
        self.source, self.app_id, self.position = source, app_id, None
        self.recorded: dict[str, int] = {}
        self.ids: list[int] = []

    def run(self, die_after: int | None = None, **options: Any) -> None:
        """Copy what is there. A reader that dies does so before it has stored the position of its last change."""
        follower = DeltaTable(self.source.table_uri).follow(self.position, 0, **options)
        self.position = follower.position
        for number, change in enumerate(follower, 1):
            app_id = self.app_id or change.app_id
            if self.recorded.get(app_id, -1) < change.app_version:
                self.recorded[app_id] = change.app_version
                self.ids += ids(change)
            if number == die_after:
                return
            self.position = change.position


LIMITS = [(None, 1), (1, None), (1, 3000), (3000, 1), (1100, 2**62), (3000, 1, None), (1100, None, 1)]


def many_files(uri: Path, *first: int, **options: Any) -> DeltaTable:
    """Versions of five files each, whose rows begin with these ids."""
    for number in first:
        numbers = range(number, number + 5)
        rows = pa.table({"id": pa.array(numbers, pa.int64()), "p": [str(one) for one in numbers], "s": ["x"] * 5})
        write_deltalake(uri, rows, mode="append", partition_by="p", **options)
    return DeltaTable(uri)


@pytest.mark.parametrize("limits", LIMITS)
def test_readers_with_other_limits_copy_each_row_once(tmp_path: Path, limits: tuple[int | None, ...]) -> None:
    source = many_files(tmp_path / "t", 0)
    copies = [Copy(source) for _ in range(2)]
    for die_after, copy in enumerate(copies, 1):
        copy.run(die_after, max_bytes=limits[0])
    many_files(tmp_path / "t", 10)
    for limit in limits[1:]:
        for die_after, copy in enumerate(copies, 2):
            copy.run(die_after, max_bytes=limit)
    for copy in copies:
        copy.run()
        assert sorted(copy.ids) == [number + one for number in (0, 10) for one in range(5)]


def test_a_larger_limit_counts_from_the_end_of_the_table_on(tmp_path: Path) -> None:
    source = many_files(tmp_path / "t", 0)
    first = source.follow(timeout=0, max_bytes=1)
    next(first)
    later = source.follow(first.position, 0)
    assert len(list(later)) == 4
    many_files(tmp_path / "t", 10)
    assert [len(ids(change)) for change in later] == [5]
    assert "maxBytes" not in later.position


def test_a_change_has_one_number_with_the_feed_and_without(tmp_path: Path) -> None:
    source = many_files(tmp_path / "t", 0, 10, configuration=FED)
    plain, fed = ([one.app_version for one in source.follow(-1, 0, change_feed=feed)] for feed in (False, True))
    assert plain == fed
    copy = Copy(source)
    copy.run()
    many_files(tmp_path / "t", 20)
    for feed in (True, False, True):
        copy.run(1, change_feed=feed)
    assert sorted(copy.ids) == [number + one for number in (0, 10, 20) for one in range(5)]


def test_numbers_do_not_depend_on_the_beginning(table: DeltaTable) -> None:
    append(table, 4)
    append(table, 5)
    of_versions = {change.version: change.app_version for change in table.follow(-1, 0)}
    for since in (0, 1, 2):
        assert {one.version: one.app_version for one in table.follow(since, 0)}.items() <= of_versions.items()
    (snapshot,) = table.follow(timeout=0)
    assert snapshot.app_version == of_versions[3]
    assert list(of_versions.values()) == sorted(of_versions.values())
    assert max(of_versions.values()) < 2**63


@pytest.mark.parametrize("created", [-(2**62), 0, following._EPOCH_MS, 2**62])
def test_numbers_of_a_table_whose_creation_has_an_odd_time_fit(created: int) -> None:
    after = Offset("id", 2**31, -1, False)
    assert 2**31 << 20 <= following._number(created, after, 1) < 2**63


def test_a_table_that_does_not_say_when_it_was_created_has_numbers_that_grow(tmp_path: Path) -> None:
    commit_more(tmp_path, 0, 1)
    first = tmp_path / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    for action in actions:
        action.get("metaData", {}).pop("createdTime", None)
    first.write_text("".join(json.dumps(action) + "\n" for action in actions))
    first.with_suffix(".crc").unlink()
    copy = Copy(DeltaTable(tmp_path))
    copy.run(1)
    commit_more(tmp_path, 1, 2)
    copy.run(2)
    copy.run()
    assert copy.ids == [0, 1, 2]


def test_a_version_of_very_many_files_has_as_many_parts_as_there_are_numbers() -> None:
    ends = np.arange(1, 3 * 2**20 + 1)
    parts, index = [], 0
    while index < len(ends) and len(parts) < 5:
        index = part_end(ends, index, 1)
        parts.append(index)
    assert parts == [4, 8, 12, 16, 20]
    assert part_end(ends, len(ends) - 2, 1) == len(ends)
    offset = Offset("id", 7, len(ends) - 5, True)
    assert following._number(0, offset, len(ends)) < following._number(0, offset.after(7), len(ends))


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=40), st.integers(0, 12), st.integers(0, 12), st.integers(0, 39)
)
def test_the_places_of_a_larger_limit_are_among_those_of_a_smaller_one(
    sizes: list[int], one: int, other: int, begin: int
) -> None:
    ends = np.cumsum(sizes)

    def places(limit: int, index: int = 0) -> list[int]:
        found = []
        while index < len(ends):
            found.append(index := part_end(ends, index, limit))
        return found

    small, large = 2 ** min(one, other), 2 ** max(one, other)
    assert {*places(large)} <= {*places(small)}
    assert places(small, begin) == [place for place in places(small) if place > begin]


# --- another table in its place ---------------------------------------------------------------------------------------


def restore(uri: Path, copy: Path) -> None:
    shutil.rmtree(uri)
    shutil.copytree(copy, uri)


def commit_more(uri: Path, first: int, count: int, configuration: Any = None) -> None:
    for number in range(first, first + count):
        write_deltalake(uri, rows(number), mode="append", configuration=configuration)


@pytest.mark.parametrize("feed", [False, True])
@pytest.mark.parametrize("midway", [False, True])
@pytest.mark.parametrize("versions", [1, 4, 6, 9])
def test_a_table_made_anew_under_a_follower_is_an_error(
    tmp_path: Path, feed: bool, midway: bool, versions: int
) -> None:
    uri = tmp_path / "t"
    commit_more(uri, 0, 6, FED if feed else None)
    follower = DeltaTable(uri).follow(-1, 0)
    taken = [next(follower) for _ in range(3)]
    shutil.rmtree(uri)
    commit_more(uri, 100, versions, FED if feed else None)
    with pytest.raises(errors.InvalidArgumentError, match="follow the table anew"):
        list(follower if midway else DeltaTable(uri).follow(taken[-1].position, 0))
    (anew,) = DeltaTable(uri).follow(timeout=0)
    assert anew.app_id != taken[-1].app_id
    assert anew.app_version > taken[-1].app_version


@pytest.mark.parametrize("feed", [False, True])
@pytest.mark.parametrize("midway", [False, True])
@pytest.mark.parametrize(("backup", "later"), [(2, 0), (2, 1), (2, 3), (2, 5), (4, 1), (5, 0), (5, 3)])
def test_a_copy_goes_on_only_if_it_has_the_commit_that_was_read(
    tmp_path: Path, feed: bool, midway: bool, backup: int, later: int
) -> None:
    """Version 3 was read last. The copy ends at version ``backup``, and so many other commits follow."""
    uri, copy = tmp_path / "t", tmp_path / "copy"
    for number in range(6):
        commit_more(uri, number, 1, FED if feed else None)
        if number == backup:
            shutil.copytree(uri, copy)
    follower = DeltaTable(uri).follow(-1, 0)
    taken = [next(follower) for _ in range(4)]
    restore(uri, copy)
    commit_more(uri, 100, later)
    if not midway:
        follower = DeltaTable(uri).follow(taken[-1].position, 0)
    if backup < 3:
        kinds = (errors.InvalidArgumentError, errors.VersionNotFoundError)
        with pytest.raises(kinds, match="follow the table anew"):
            list(follower)
    else:
        found = [number for change in follower for number in ids(change)]
        assert found == [*range(4, backup + 1), *range(100, 100 + later)]


@pytest.mark.parametrize("since", [None, 0])
def test_a_part_of_a_version_is_of_its_commit(tmp_path: Path, since: int | None) -> None:
    uri = tmp_path / "t"
    many_files(uri, 0)
    shutil.copytree(uri, tmp_path / "copy")
    many_files(uri, 10)
    follower = DeltaTable(uri).follow(since, 0, max_bytes=1)
    first = next(follower)
    restore(uri, tmp_path / "copy")
    many_files(uri, 20)
    for again in (follower, DeltaTable(uri).follow(first.position, 0)):
        with pytest.raises(errors.InvalidArgumentError, match=r"version 1 .* is another commit"):
            list(again)


def test_the_same_version_after_a_copy_is_another_source(tmp_path: Path) -> None:
    """All rows come again, and none of them is taken for one that the target has."""
    uri = tmp_path / "t"
    commit_more(uri, 0, 2)
    shutil.copytree(uri, tmp_path / "copy")
    commit_more(uri, 2, 2)
    copy = Copy(DeltaTable(uri))
    copy.run()
    restore(uri, tmp_path / "copy")
    commit_more(uri, 100, 1)
    copy.position = None
    copy.run()
    assert 100 in copy.ids


def test_a_plain_application_id_skips_nothing_of_a_table_made_anew(tmp_path: Path) -> None:
    uri = tmp_path / "t"
    copy = Copy(DeltaTable(write_deltalake(uri, rows(0)) and uri), app_id="copy")
    commit_more(uri, 1, 4)
    copy.run()
    shutil.rmtree(uri)
    commit_more(uri, 100, 2)
    copy.position = None
    copy.run()
    commit_more(uri, 102, 2)
    copy.run()
    assert copy.ids == [*range(5), 100, 101, 102, 103]


def test_positions_of_version_0_2_go_on(table: DeltaTable) -> None:
    append(table, 4)
    append(table, 5)
    changes = list(table.follow(1, 0))
    position = json.loads(changes[0].position)
    old = {name: position[name] for name in ("sourceVersion", "reservoirId", "reservoirVersion", "index")}
    old |= {"isStartingVersion": False, "begun": {"version": 2, "snapshot": False}}
    follower = table.follow(json.dumps(old), 0)
    assert told([*follower]) == told(changes[1:])
    assert json.loads(follower.position)["commit"] == json.loads(changes[-1].position)["commit"]


@pytest.mark.parametrize("field", [{"maxBytes": 0}, {"maxBytes": 2**63}, {"commit": 1}, {"more": 1}])
def test_a_position_that_is_none_is_refused(table: DeltaTable, field: dict[str, Any]) -> None:
    position = json.loads(table.follow().position)
    with pytest.raises(errors.InvalidArgumentError, match="is not an offset"):
        table.follow(json.dumps(position | field))


def test_a_commit_that_was_read_and_is_gone_cannot_be_compared(table: DeltaTable, tmp_path: Path) -> None:
    for number in (4, 5, 6):
        append(table, number)
    follower = table.follow(1, 0)
    position = next(follower).position  # of version 2
    table.update_incremental()
    table.create_checkpoint()
    for version in (0, 1, 2):
        (tmp_path / "t" / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(errors.VersionNotFoundError, match=r"version 2.*fail_on_data_loss=False"):
        list(table.follow(position, 0))
    assert told(table.follow(position, 0, fail_on_data_loss=False)) == [(3, "changes", [5]), (4, "changes", [6])]


@pytest.mark.breaks_tables  # the folder of the first one stays
@pytest.mark.parametrize("commits", ["staged", "inline"])
@pytest.mark.parametrize("midway", [False, True])
def test_a_table_of_a_catalog_that_is_made_anew(tmp_path: Path, commits: Any, midway: bool) -> None:
    with SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse") as catalog:
        for first in (0, 100):
            table = catalog.create_table("a.b", rows(1).schema, commits=commits)
            for number in range(first, first + 4):
                write_deltalake(table, rows(number), mode="append")
            if not first:
                follower = table.follow(-1, 0)
                position = next(follower).position
                catalog.drop_table("a.b", purge=True)
        with pytest.raises(errors.DeltaError):
            list(follower if midway else catalog.table("a.b").follow(position, 0))


def test_silence_is_measured_since_the_last_change(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(following, "time", SimpleNamespace(monotonic=lambda: clock.now))
    follower = table.follow(timeout=10, interval=0.05)
    next(follower)
    clock.now += 100
    append(table, 4)
    assert told([next(follower)]) == [(2, "changes", [4])]
