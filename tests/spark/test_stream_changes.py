"""The files of a stream of a table, computed from the log alone: no Spark in here.

Tests of operations.stream.changes, operations.stream.commits, operations.stream.offsets.
"""

from __future__ import annotations

import datetime as dt
import json
import pickle
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.engine.log.location import open_location
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.operations.stream.changes import TableStream
from refdelta.operations.stream.offsets import Allowance, Offset, StreamOptions, byte_count
from tiers import examples


def changes(uri: Path, version: int | None = None, **options: Any) -> TableStream:
    return TableStream(load_snapshot(open_location(uri), version), StreamOptions(**options))


def append(uri: Path, *ids: int, **arguments: Any) -> None:
    write_deltalake(uri, pa.table({"id": pa.array(ids, pa.int64())}), mode="append", **arguments)


def paths(files: pa.Table) -> list[str]:
    found: list[str] = files.column("path").to_pylist()
    return found


def batches(
    stream: TableStream, start: Offset | None = None, last: int | None = None
) -> list[tuple[Offset, list[str]]]:
    """All batches from an offset on: where each ends, and its files."""
    found = []
    start = start or stream.first()
    while True:
        end = stream.latest(start, stream._options.allowance(), last)
        if end == start:
            return found
        found.append((end, paths(stream.files(start, end))))
        start = end


def actions(uri: Path, version: int) -> list[dict[str, Any]]:
    text = (uri / "_delta_log" / f"{version:020d}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def added(uri: Path, version: int) -> list[str]:
    """The paths that a version's commit adds, by its own words."""
    return [a["add"]["path"] for a in actions(uri, version) if a.get("add", {}).get("dataChange")]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Versions 0 to 3, a row and a file each."""
    uri = tmp_path / "t"
    for number in range(4):
        append(uri, number)
    return uri


def test_a_stream_is_the_snapshot_in_order_and_then_the_commits(table: Path) -> None:
    stream = changes(table, max_files=3)
    in_order = sorted(
        (action["add"]["modificationTime"], action["add"]["path"])
        for version in range(4)
        for action in actions(table, version)
        if "add" in action
    )
    found = batches(stream)
    assert [(end.version, end.index, end.snapshot) for end, _ in found] == [(3, 2, True), (4, -1, False)]
    assert [files for _, files in found] == [[path for _, path in in_order[:3]], [in_order[3][1]]]
    append(table, 4)
    append(table, 5)
    more = batches(stream, found[-1][0])
    assert [(end.version, files) for end, files in more] == [(6, added(table, 4) + added(table, 5))]
    assert batches(stream, more[-1][0]) == []


def test_a_batch_goes_on_over_the_end_of_the_snapshot(table: Path) -> None:
    stream = changes(table, max_files=5)
    append(table, 4)
    append(table, 5)
    assert [(end.version, end.snapshot, len(files)) for end, files in batches(stream)] == [(5, False, 5), (6, False, 1)]


def test_limits_of_bytes_take_one_file_at_least() -> None:
    sizes = pa.chunked_array([[5, 5], [5, 20, 1]])
    assert Allowance(size=1).admit(sizes) == 1
    assert Allowance(size=10).admit(sizes) == 2
    assert Allowance(size=11).admit(sizes) == 3
    assert Allowance(files=2, size=11).admit(sizes) == 2
    assert Allowance().admit(sizes) == 5
    both = Allowance(files=9, size=16)
    assert both.admit(sizes) == 4
    assert (both.files, both.size, both.admit(sizes)) == (5, -19, 0)
    assert [byte_count(text) for text in ("7", "1k", " 2MB ", "1g")] == [7, 1024, 2 * 2**20, 2**30]
    for text in ("", "m", "1.5m", "-1", "1x", "1bb"):
        with pytest.raises(errors.InvalidArgumentError, match="number of bytes"):
            byte_count(text)


def test_what_only_moves_rows_passes_by(table: Path) -> None:
    stream = changes(table)
    start = batches(stream)[-1][0]
    DeltaTable(table).optimize.compact()
    append(table, 4)
    assert [files for _, files in batches(stream, start)] == [added(table, 5)]
    # The offset advances over an empty commit, too: the log before it may be cleaned up.
    write_deltalake(table, pa.table({"id": pa.array([], pa.int64())}), mode="append")
    assert [(end.version, files) for end, files in batches(changes(table), stream.first().after(5))] == [(7, [])]


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_commit_that_changes_rows_stops_the_stream(tmp_path: Path, vectors: str) -> None:
    uri = tmp_path / "t"
    append(uri, 1, 2, configuration={"delta.enableDeletionVectors": vectors})
    append(uri, 3)
    append(uri, 4)
    DeltaTable(uri).delete("id = 2")
    append(uri, 5)
    stream = changes(uri, starting_version=1)
    start = stream.latest(stream.first(), Allowance())
    assert (start.version, paths(stream.files(stream.first(), start))) == (3, added(uri, 1) + added(uri, 2))
    for options in ({}, {"ignore_deletes": True}):
        with pytest.raises(errors.StreamStoppedError, match=r"version 3 \(DELETE\) changes rows") as caught:
            changes(uri, starting_version=1, **options).latest(start, Allowance())
        assert "ignoreDeletes" in str(caught.value)
        assert "skipChangeCommits" in str(caught.value)
        assert (caught.value.version, caught.value.reload) == (3, False)
    skipping = changes(uri, starting_version=1, skip_change_commits=True)
    assert [files for _, files in batches(skipping, start)] == [added(uri, 4)]


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_with_ignore_changes_files_that_were_rewritten_are_read_again(tmp_path: Path, vectors: str) -> None:
    uri = tmp_path / "t"
    append(uri, 1, 2, configuration={"delta.enableDeletionVectors": vectors})
    DeltaTable(uri).delete("id = 2")
    append(uri, 3)
    DeltaTable(uri).delete("id = 3")
    DeltaTable(uri).optimize.compact()
    stream = changes(uri, starting_version=0, ignore_changes=True)
    assert [files for _, files in batches(stream)] == [added(uri, 0) + added(uri, 1) + added(uri, 2)]
    both = changes(uri, starting_version=0, ignore_changes=True, skip_change_commits=True)
    assert [files for _, files in batches(both)] == [added(uri, 0) + added(uri, 2)]


@pytest.mark.parametrize("pattern", ["k=k1", "^k=k1/", "k=k[^0]", "(?i)K=K1/part", "k=k(1|2)"])
def test_excluded_files_are_left_out_and_count_to_the_limits(tmp_path: Path, pattern: str) -> None:
    uri = tmp_path / "t"
    for number in range(6):
        rows = pa.table({"id": [number], "k": [f"k{number % 2}"]})
        write_deltalake(uri, rows, mode="append", partition_by="k")
    every = batches(changes(uri, 2, max_files=2))
    some = batches(changes(uri, 2, max_files=2, exclude=pattern))
    assert [end for end, _ in some] == [end for end, _ in every]
    assert [files for _, files in some] == [[path for path in files if "k=k1" not in path] for _, files in every]
    assert sum(len(files) for _, files in some) == 3


@pytest.mark.parametrize("pattern", ["a(", "(?=a)", r"(a)\1", "a{2,1}", "[a", "x" * 10_001])
def test_an_expression_that_has_no_linear_time_or_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="excludeRegex: "):
        StreamOptions(exclude=pattern)


def test_a_commit_that_removes_whole_files_stops_the_stream(table: Path) -> None:
    DeltaTable(table).delete("id = 1")
    append(table, 9)
    stream = changes(table, 3)
    start = batches(stream, last=3)[-1][0]
    with pytest.raises(errors.StreamStoppedError, match=r"version 4 \(DELETE\) removes rows") as caught:
        stream.latest(start, Allowance())
    assert caught.value.version == 4
    for options in ({"ignore_deletes": True}, {"skip_change_commits": True}):
        assert [files for _, files in batches(changes(table, 3, **options), start)] == [added(table, 5)]
    # A stream that begins after it does not read it.
    assert len(batches(changes(table))[0][1]) == 4


def test_a_commit_that_changes_the_table_stops_the_stream_until_it_is_loaded_again(table: Path) -> None:
    stream = changes(table)
    start = stream.first()
    append(table, 4)
    DeltaTable(table).alter.set_table_properties({"delta.appendOnly": "true"})
    append(table, 5)
    end = stream.latest(start, Allowance())
    assert end.version == 5
    with pytest.raises(errors.StreamStoppedError, match=r"version 5 changes the table's schema.*Load") as caught:
        stream.latest(end, Allowance())
    again = pickle.loads(pickle.dumps(caught.value))
    for error in (caught.value, again):
        assert (error.version, error.reload, str(error)) == (5, True, str(caught.value))
    assert [files for _, files in batches(changes(table), end)] == [added(table, 6)]


def test_a_replayed_batch_has_the_same_files_whatever_came_since(table: Path) -> None:
    stream = changes(table, max_files=5)
    append(table, 4)
    first = stream.first()
    end = stream.latest(first, stream._options.allowance())
    files = paths(stream.files(first, end))
    assert (end.version, len(files)) == (5, 5)
    DeltaTable(table).optimize.compact()
    DeltaTable(table).create_checkpoint()
    append(table, 5)
    later = changes(table, skip_change_commits=True)
    # Spark asks anew where the stream begins, and gets another answer than at first.
    assert later.first() != first
    assert paths(later.files(later.first(), end)) == files
    assert paths(later.files(first, end)) == files


def test_offsets_are_those_of_delta_spark(table: Path) -> None:
    first = changes(table).first()
    stored = first.as_dict()
    begun, commit = stored.pop("begun"), stored.pop("commit")
    theirs = {"sourceVersion": 1, "reservoirVersion": 3, "index": -1, "isStartingVersion": True}
    assert stored == {**theirs, "reservoirId": first.table_id}
    assert Offset.parse({**stored, "begun": begun, "commit": commit}) == first
    # One of its streams goes on here, and a first batch that it did not end begins where it would begin it.
    append(table, 4)
    stream = changes(table)
    end = stream.parse({**stored, "index": 1})
    newest = stream.latest(end, Allowance()).as_dict()
    assert newest.pop("commit") != commit
    assert newest == {**stored, "reservoirVersion": 5, "isStartingVersion": False}
    assert paths(stream.files(stream.first(), end)) == paths(changes(table, 3).files(first, end))
    done = stream.parse({**stored, "reservoirVersion": 4, "isStartingVersion": False})
    assert len(paths(stream.files(stream.first(), done))) == 4
    from_one = changes(table, starting_version=1)
    assert len(paths(from_one.files(from_one.first(), done))) == 3
    for odd in ({"sourceVersion": 3, "index": -20}, {"reservoirVersion": "3"}, {"other": 1}):
        with pytest.raises(errors.InvalidArgumentError, match="the checkpoint belongs to another source"):
            stream.parse({**stored, **odd})


def test_starting_points(table: Path) -> None:
    def begins(**options: Any) -> tuple[int, bool]:
        first = changes(table, **options).first()
        assert first.index == -1
        return first.version, first.snapshot

    assert begins() == (3, True)
    assert begins(starting_version=0) == (0, False)
    assert begins(starting_version=3) == (3, False)
    assert begins(starting_version="latest") == (4, False)
    history = {commit["version"]: commit["timestamp"] for commit in DeltaTable(table).history()}
    for version in range(4):
        at = dt.datetime.fromtimestamp(history[version] / 1000, dt.UTC)
        assert begins(starting_timestamp=at.isoformat()) == (version, False)
        expected = (version + 1, False)
        if version < 3:
            assert begins(starting_timestamp=(at + dt.timedelta(milliseconds=1)).isoformat()) == expected
    assert begins(starting_timestamp="2001-01-01") == (0, False)
    with pytest.raises(errors.InvalidArgumentError, match="version 3, which is the newest"):
        begins(starting_timestamp="2901-01-01 00:00:00")
    with pytest.raises(errors.InvalidArgumentError, match="startingTimestamp is a time"):
        begins(starting_timestamp="soon")
    with pytest.raises(errors.VersionNotFoundError, match="0 to 3"):
        begins(starting_version=4)
    with pytest.raises(errors.InvalidArgumentError, match="give one"):
        begins(starting_version=1, starting_timestamp="2001-01-01")


def test_a_table_in_any_store_is_followed(place: Any) -> None:
    rows = pa.table({"id": [1]})

    def again() -> TableStream:
        store = open_location(place.uri, place.options)
        return TableStream(load_snapshot(store, 1), StreamOptions(max_files=1))

    for _ in range(4):
        write_deltalake(place.uri, rows, mode="append", storage_options=place.options)
    found = batches(again())
    assert [(end.version, end.index, end.snapshot) for end, _ in found] == [
        (1, 0, True), (2, -1, False), (3, -1, False), (4, -1, False)
    ]  # fmt: skip
    stream = again()
    start = found[-1][0]
    assert stream.latest(start, Allowance()) == start
    write_deltalake(place.uri, rows, mode="append", storage_options=place.options)
    assert [end.version for end, _ in batches(stream, start)] == [5]


@pytest.mark.tier("test")
def test_a_stream_keeps_up_with_writers_at_work(table: Path) -> None:
    def write(first: int) -> None:
        for number in range(first, first + 15):
            append(table, number)
            if number % 5 == 0 and first == 100:  # two compactions at once conflict
                DeltaTable(table).optimize.compact()

    stream = changes(table, max_files=2)
    start, found = stream.first(), []
    with ThreadPoolExecutor() as pool:
        writers = [pool.submit(write, first) for first in (100, 200)]
        while True:
            at_work = not all(writer.done() for writer in writers)
            end = stream.latest(start, stream._options.allowance())
            found += paths(stream.files(start, end))
            if end == start and not at_work:
                break
            start = end
    for writer in writers:
        writer.result()
    newest = DeltaTable(table).version()
    assert start.version == newest + 1
    assert found[4:] == [path for version in range(4, newest + 1) for path in added(table, version)]
    assert len(found) == 4 + 30


def test_another_table_in_its_place_is_an_error(table: Path) -> None:
    stream = changes(table)
    end = batches(stream)[-1][0]
    shutil.rmtree(table)
    with pytest.raises(errors.TableNotFoundError):
        stream.latest(end, Allowance())
    for number in range(6):
        append(table, number)
    with pytest.raises(errors.InvalidArgumentError, match="the stream reads the table with the id"):
        stream.latest(end, Allowance())
    with pytest.raises(errors.InvalidArgumentError, match="the stream reads the table with the id"):
        changes(table).parse(end.as_dict())
    with pytest.raises(errors.InvalidArgumentError, match="the checkpoint belongs to another source"):
        stream.parse({"version": 1})


def test_a_batch_of_another_copy_of_the_table_is_not_put_together(table: Path) -> None:
    """Spark repeats a batch by the offsets in its checkpoint."""
    shutil.copytree(table, table.with_name("copy"))
    start = changes(table, starting_version=3).first()
    append(table, 4)
    stream = changes(table)
    end = stream.latest(start, Allowance())
    assert len(paths(stream.files(start, end))) == 2
    shutil.rmtree(table)
    shutil.copytree(table.with_name("copy"), table)
    with pytest.raises(errors.VersionNotFoundError, match="up to version 4, but its newest is 3"):
        changes(table).files(start, end)
    append(table, 5)
    for reader in (stream, changes(table)):
        with pytest.raises(errors.InvalidArgumentError, match=r"version 4 .* is another commit"):
            reader.latest(end, Allowance())
    with pytest.raises(errors.InvalidArgumentError, match=r"version 4 .* is another commit"):
        changes(table).files(start, end)


def test_a_table_that_lost_commits_is_an_error(table: Path) -> None:
    stream = changes(table)
    end = batches(stream)[-1][0]
    (table / "_delta_log" / f"{3:020d}.json").unlink()
    for reader in (stream, changes(table)):
        with pytest.raises(errors.VersionNotFoundError, match="up to version 3, but its newest is 2"):
            reader.latest(end, Allowance())


def test_a_commit_that_cleanup_took_is_an_error(table: Path) -> None:
    start = changes(table, starting_version=1).first()
    DeltaTable(table).create_checkpoint()
    for version in (0, 1, 2):
        (table / "_delta_log" / f"{version:020d}.json").unlink()
    append(table, 4)
    with pytest.raises(errors.VersionNotFoundError, match=r"version 1, which the stream has not read.*begin with .* 3"):
        changes(table).latest(start, Allowance())
    with pytest.raises(errors.VersionNotFoundError, match="3 to 4"):
        changes(table, starting_version=1).first()
    begun = Offset.first(start.table_id, Offset.parse({**start.as_dict(), "isStartingVersion": True}).begun)
    with pytest.raises(errors.VersionNotFoundError, match="not read all of version 1"):
        changes(table).latest(begun.at(1, 0, snapshot=True), Allowance())


def lose(uri: Path, *versions: int) -> None:
    for version in versions:
        (uri / "_delta_log" / f"{version:020d}.json").unlink()


def test_without_fail_on_data_loss_a_stream_continues_after_the_lost_commits(
    table: Path, caplog: pytest.LogCaptureFixture
) -> None:
    early = changes(table, 1).first().after(1)  # versions 0 and 1 are read
    append(table, 4)
    DeltaTable(table).create_checkpoint()
    append(table, 5)
    append(table, 6)
    lose(table, 0, 1, 2, 3)
    with pytest.raises(errors.VersionNotFoundError, match="failOnDataLoss=false"):
        changes(table).latest(early, Allowance())
    stream = changes(table, fail_on_data_loss=False, max_files=2)
    found = batches(stream, early)
    assert [files for _, files in found] == [added(table, 4) + added(table, 5), added(table, 6)]
    assert "versions 2 to 3 are not in the log" in caplog.text
    assert paths(changes(table, fail_on_data_loss=False).files(early, found[0][0])) == found[0][1]
    # The end of a batch may be lost, too, and the stream end in the gap.
    assert batches(stream, early, last=3) == []


def test_lost_commits_after_the_stream_was_loaded_stop_it_until_it_is_loaded_again(table: Path) -> None:
    stream = changes(table, fail_on_data_loss=False)
    start = batches(stream)[-1][0]
    for number in range(4, 7):
        append(table, number)
    DeltaTable(table).create_checkpoint()
    append(table, 7)
    lose(table, 4, 5)
    with pytest.raises(errors.StreamStoppedError, match="versions 4 to 5 are not in the log") as caught:
        stream.latest(start, Allowance())
    assert caught.value.reload
    assert [files for _, files in batches(changes(table, fail_on_data_loss=False), start)] == [
        added(table, 6) + added(table, 7)
    ]


def test_files_that_are_partitioned_otherwise_are_an_error(tmp_path: Path) -> None:
    uri = tmp_path / "t"
    rows = pa.table({"id": [1, 2], "k": [1, 2]})
    write_deltalake(uri, rows)
    write_deltalake(uri, rows, mode="overwrite", partition_by="k", schema_mode="overwrite")
    stream = changes(uri, starting_version=0, skip_change_commits=True)
    with pytest.raises(errors.SchemaMismatchError, match=r"version 0 are partitioned by \(\), the table by \(k\)"):
        stream.latest(stream.first(), Allowance())


_STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "compact", "delete", "property"]), st.integers(1, 4)), min_size=1, max_size=6
)


@pytest.mark.tier("test")
@examples(25)
@given(before=_STEPS, after=_STEPS, limit=st.integers(1, 5), data=st.data())
def test_batches_put_together_are_the_stream_and_each_can_be_replayed(
    fresh_path: Callable[[], Path], before: Any, after: Any, limit: int, data: st.DataObject
) -> None:
    uri = fresh_path()
    append(uri, 0)
    numbers = iter(range(1, 1000))

    def change(steps: list[tuple[str, int]]) -> None:
        for what, count in steps:
            if what == "append":
                rows = pa.table({"id": [next(numbers) for _ in range(count)], "k": list(range(count))})
                write_deltalake(uri, rows, mode="append", schema_mode="merge", target_file_size=1)
            elif what == "compact":
                DeltaTable(uri).optimize.compact()
            elif what == "delete":
                DeltaTable(uri).delete(f"id % 7 = {count}")
            else:
                DeltaTable(uri).alter.set_table_properties({"delta.dataSkippingNumIndexedCols": str(next(numbers))})

    change(before)
    made = DeltaTable(uri).version()
    change(after)
    options = {"max_files": limit, "skip_change_commits": True}
    if data.draw(st.booleans()):
        options["starting_version"] = data.draw(st.integers(0, made))
    stream = changes(uri, made, **options)
    expected = [] if "starting_version" in options else sorted(DeltaTable(uri, version=made).file_uris())
    first_version = options.get("starting_version", made + 1)
    newest, found, start = DeltaTable(uri).version(), [], stream.first()
    whole: list[str] = []
    stops: list[tuple[bool, bool]] = []
    loaded = made
    for _ in range(200):
        try:
            end = stream.latest(start, stream._options.allowance())
        except errors.StreamStoppedError as error:
            stops.append((error.reload, error.version > loaded))
            loaded = data.draw(st.integers(error.version, newest))
            stream = changes(uri, loaded, **options)
            continue
        if end == start:
            break
        files = paths(stream.files(start, end))
        assert len(files) <= limit
        found.append((start, end, files))
        whole += files
        start = end
    assert start.version == newest + 1
    assert set(stops) <= {(True, True)}
    tail = []
    for version in range(first_version, newest + 1):
        removes = [a for a in actions(uri, version) if a.get("remove", {}).get("dataChange")]
        tail += [] if removes else added(uri, version)
    assert sorted(f"{uri}/{path}" for path in whole[: len(expected)]) == [
        path.removeprefix("file://") for path in expected
    ]
    assert whole[len(expected) :] == tail
    for start, end, files in found:
        assert paths(changes(uri, **options).files(start, end)) == files


@pytest.mark.tier("test")
@pytest.mark.parametrize("dropped", [False, True])
def test_files_with_other_names_are_an_error(tmp_path: Path, dropped: bool) -> None:
    uri = tmp_path / "t"
    write_deltalake(uri, pa.table({"old": [1]}), configuration={"delta.columnMapping.mode": "name"})
    table = DeltaTable(uri)
    before = TableStream(table._handle.snapshot, StreamOptions()).first()
    table.alter.rename_column("old", "id")
    append(uri, 2)
    if dropped:
        table.alter.drop_feature("columnMapping")
    else:
        table.alter.set_table_properties({"delta.columnMapping.mode": "none"})
    append(uri, 3)
    newest = DeltaTable(uri).version()
    # What it has not read by the time that the mapping ended cannot be read by the names of today.
    for stream, start in (
        (changes(uri), before),
        (changes(uri, starting_version=1), None),
        (changes(uri, starting_version=2), None),
    ):
        with pytest.raises(errors.SchemaMismatchError, match="were mapped then"):
            batches(stream, start)
    assert [files for _, files in batches(changes(uri))] == [DeltaTable(uri).files()["path"].to_pylist()]
    assert [files for _, files in batches(changes(uri, starting_version=newest))] == [added(uri, newest)]


def test_names_that_never_differed_are_none(tmp_path: Path) -> None:
    uri = tmp_path / "t"
    append(uri, 1)
    table = DeltaTable(uri)
    table.alter.set_table_properties({"delta.columnMapping.mode": "name"})
    append(uri, 2)
    table.alter.set_table_properties({"delta.columnMapping.mode": "none"})
    append(uri, 3)
    found = batches(changes(uri, starting_version=0))
    assert [path for _, files in found for path in files] == [*added(uri, 0), *added(uri, 2), *added(uri, 4)]
