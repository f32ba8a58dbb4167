"""SHALLOW CLONE: a table that names the files of another one, and what it takes to read it.

Tests of engine.log.location, engine.log.multi_root.
"""

from __future__ import annotations

import json
import pickle
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute
import pytest

import refdelta
from comparison import assert_same_table
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.core.log.paths import ELSEWHERE, Place, data_key
from refdelta.engine.log.multi_root import MultiRootStore
from refdelta_storage import open_store

ROWS = pa.table({"id": list(range(10)), "p": ["a b", "c%"] * 5})
VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.fixture(params=["with vectors", "without"])
def source(request, new_place):
    place = new_place()
    write_deltalake(
        place.uri,
        ROWS,
        partition_by="p",
        configuration=VECTORS if request.param == "with vectors" else {"mine": "1"},
        storage_options=place.options or None,
    )
    table = DeltaTable(place.uri, storage_options=place.options or None)
    table.delete("id = 3")
    return table, place.options or None


@pytest.fixture
def backend():
    return "local"


def rows(table):
    return sorted(table.to_pyarrow_table()["id"].to_pylist())


@pytest.mark.tier("test")
@pytest.mark.sample(check=1)
def test_a_clone_begins_as_its_source_and_goes_its_own_way(source, tmp_path):
    table, options = source
    clone = table.shallow_clone(tmp_path / "clone", storage_options=options)
    assert_same_table(clone.to_pyarrow_table(), table.to_pyarrow_table())
    assert clone.version() == 0
    assert clone.metadata().id != table.metadata().id
    assert clone.metadata().configuration == table.metadata().configuration
    entry = clone.history()[0]
    assert (entry["operation"], entry["operationParameters"]["isShallow"]) == ("CLONE", True)
    assert not list((tmp_path / "clone").glob("**/*.parquet"))
    before = sorted(table.file_uris())
    assert sorted(clone.file_uris()) == before

    clone.delete("id = 4")
    clone.update({"id": "id + 100"}, predicate="id = 5")
    write_deltalake(clone, ROWS.slice(0, 1), mode="append")
    assert rows(clone) == [0, 0, 1, 2, 6, 7, 8, 9, 105]
    clone.create_checkpoint()
    again = DeltaTable(tmp_path / "clone", storage_options=options, outside=[table.table_uri])
    assert rows(again) == rows(clone)
    again.optimize.compact()
    again.restore(0)
    assert rows(again) == rows(table) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    # Of the source nothing is changed or removed, whatever the clone does.
    again.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert sorted(table.file_uris()) == before
    assert rows(DeltaTable(table.table_uri, storage_options=options)) == rows(table)
    assert rows(again) == rows(table)


def test_only_who_names_the_folder_reads_it(source, tmp_path):
    table, options = source
    table.shallow_clone(tmp_path / "clone", storage_options=options)
    for outside in ((), [tmp_path / "other"]):
        refused = DeltaTable(tmp_path / "clone", storage_options=options, outside=outside)
        with pytest.raises(errors.UnsafePathError, match=r"outside=\[\.\.\.\]"):
            refused.to_pyarrow_table()
        with pytest.raises(errors.UnsafePathError):
            refused.delete("id = 1")


def test_older_versions_and_clones_of_clones(source, tmp_path):
    table, options = source
    first = table.shallow_clone(tmp_path / "first", version=0, storage_options=options)
    assert rows(first) == list(range(10))
    write_deltalake(first, ROWS.slice(0, 1), mode="append")
    second = first.shallow_clone(tmp_path / "second", storage_options=options)
    assert rows(second) == rows(first) == [0, 0, *range(1, 10)]
    both = [tmp_path / "first", table.table_uri]
    assert rows(DeltaTable(tmp_path / "second", storage_options=options, outside=both)) == rows(first)


def test_what_cannot_be_cloned(source, tmp_path):
    table, options = source
    write_deltalake(tmp_path / "there", ROWS)
    with pytest.raises(errors.TableAlreadyExistsError):
        table.shallow_clone(tmp_path / "there", storage_options=options)
    assert rows(DeltaTable(tmp_path / "there")) == list(range(10))


IDS = ["id", "_metadata.row_id", "_metadata.row_commit_version"]


def test_rows_that_are_tracked_get_ids_of_the_clones_own(tmp_path):
    write_deltalake(tmp_path / "t", ROWS, configuration={"delta.enableRowTracking": "true"})
    table = DeltaTable(tmp_path / "t")
    table.update({"id": "id + 100"}, predicate="id = 2")  # carries its old id in a column of the file
    table.delete("id < 2")
    table.optimize.compact()
    clone = table.shallow_clone(tmp_path / "clone")
    found = clone.to_pyarrow_table(columns=IDS).sort_by("_metadata.row_id").to_pydict()
    assert found["_metadata.row_id"] == list(range(8))
    assert set(found["_metadata.row_commit_version"]) == {0}
    assert rows(clone) == rows(table)
    names = {key: value for key, value in table.metadata().configuration.items() if "materialized" in key}
    assert len(names) == 2
    assert not names.items() & clone.metadata().configuration.items()
    clone.update({"id": "id + 1"}, predicate="id = 9")
    write_deltalake(clone, ROWS, mode="append")
    ids = set(clone.to_pyarrow_table(columns=IDS)["_metadata.row_id"].to_pylist())
    assert len(ids) == 18
    assert ids >= set(range(8))
    assert not refdelta.verify(tmp_path / "clone", sample=None, outside=[tmp_path / "t"]).findings


# --- wherever a clone may be named ---


@pytest.fixture
def cloned(tmp_path):
    write_deltalake(tmp_path / "t", ROWS, configuration=VECTORS)
    DeltaTable(tmp_path / "t").delete("id = 3")
    DeltaTable(tmp_path / "t").shallow_clone(tmp_path / "clone")
    return str(tmp_path / "clone"), str(tmp_path / "t")


def test_rows_are_replaced_where_the_folder_is_named(cloned):
    clone, table = cloned
    five = ROWS.filter(pa.compute.equal(ROWS["id"], 5))
    replace = {"mode": "overwrite", "predicate": "id = 5"}
    with pytest.raises(errors.UnsafePathError):
        write_deltalake(clone, five, **replace)
    write_deltalake(clone, five, **replace, outside=[table])
    assert rows(DeltaTable(clone, outside=[table])) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    with pytest.raises(
        errors.InvalidArgumentError, match="outside goes with a URI; a DeltaTable takes it in its constructor"
    ):
        write_deltalake(DeltaTable(clone), five, mode="append", outside=[table])


def test_the_verifier_looks_into_the_folder(cloned):
    clone, table = cloned
    without = refdelta.verify(clone, sample=None)
    assert without.sound
    assert any("outside of the table's folder" in what for what in without.unchecked)
    report = refdelta.verify(clone, sample=None, outside=[table])
    assert (report.findings, report.unchecked) == ([], [])
    [file] = DeltaTable(table).file_uris()
    with Path(file).open("ab") as data:
        data.write(b"x")
    assert [finding.clause for finding in refdelta.verify(clone, sample=0, outside=[table]).findings] == []
    found = refdelta.verify(clone, outside=[table]).findings
    assert found[0].clause == "file-1"
    assert "clone" not in found[0].file
    Path(file).unlink()
    [gone] = refdelta.verify(clone, outside=[table]).findings
    assert "does not exist" in gone.message


def test_every_command_takes_the_folder(cloned):
    from click.testing import CliRunner

    from refdelta.cli.app import app

    clone, table = cloned

    def run(*arguments):
        return CliRunner().invoke(app, [*arguments])

    refused = run("read", clone)
    assert isinstance(refused.exception, errors.UnsafePathError)
    there = ("--outside", table)
    assert run("read", clone, "--format", "json", *there).output.count("\n") == 9
    for command in ("history", "detail", "files", "log", "verify"):
        assert run(command, clone, *there).exit_code == 0, command
    assert run("update", clone, "--set", "id=id+100", "--where", "id=4", *there).exit_code == 0
    assert run("delete", clone, "--where", "id=5", *there).exit_code == 0
    assert rows(DeltaTable(clone, outside=[table])) == [0, 1, 2, 6, 7, 8, 9, 104]


def test_other_folders_are_read_and_never_written_to(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "a b").write_bytes(b"12345")
    store = MultiRootStore(open_store(str(tmp_path / "own")), [open_store(str(tmp_path / "there"))])
    key = data_key(f"{(tmp_path / 'there').as_uri()}/a%20b", store.uri)
    assert key == f"{ELSEWHERE}0/a b"
    for view in (store, store.steady(), store.hasty(), pickle.loads(pickle.dumps(store))):
        assert (view.get(key), view.get_range(key, 1, 2), view.head(key).size) == (b"12345", b"23", 5)
        assert view.get_ranges(key, [(0, 1), (4, 1)]) == [b"1", b"5"]
        assert view.get_many([key, key]) == [b"12345"] * 2
        with view.open_input(key) as file:
            assert file.read() == b"12345"
        view.delete([key])
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the store says of such a name
            view.put(key, b"")
    assert store.get(key) == b"12345"
    assert list(store.list()) == []
    assert pickle.loads(pickle.dumps(store.uri)).others == store.uri.others


@pytest.mark.parametrize(
    "raw", ["file:///there/../elsewhere/f", "file:///therefore/x", "file:///there", "file:///there/", "s3://there/x"]
)
def test_no_path_reaches_beyond_the_folders_that_were_named(raw):
    with pytest.raises(errors.UnsafePathError):
        data_key(raw, Place("file:///own", ["file:///there"]))


def vacuumed(path):
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)


def test_a_clone_of_files_that_are_gone_is_refused(tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"id": [1]}))
    write_deltalake(tmp_path / "t", pa.table({"id": [2]}), mode="overwrite")
    vacuumed(tmp_path / "t")
    with pytest.raises(errors.DataFileNotFoundError, match="version 0 cannot be cloned"):
        DeltaTable(tmp_path / "t").shallow_clone(tmp_path / "c", version=0)
    assert not DeltaTable.is_deltatable(tmp_path / "c")
    assert DeltaTable(tmp_path / "t").shallow_clone(tmp_path / "c").count() == 1


def test_a_clone_of_files_that_vacuum_may_delete_is_refused(tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"id": [1]}))
    write_deltalake(tmp_path / "t", pa.table({"id": [2]}), mode="overwrite")
    start = {"operation": "VACUUM START", "operationParameters": {"specifiedRetentionMillis": "0"}}
    info = {"commitInfo": start | {"timestamp": round(time.time() * 1000)}}
    (tmp_path / "t" / "_delta_log" / f"{2:020}.json").write_text(json.dumps(info) + "\n")
    with pytest.raises(errors.ConcurrentDeleteReadException, match="version 2"):
        DeltaTable(tmp_path / "t").shallow_clone(tmp_path / "c", version=0)
    assert DeltaTable(tmp_path / "t").shallow_clone(tmp_path / "c").count() == 1
