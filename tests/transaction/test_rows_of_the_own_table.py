"""Rows of a table that are written to the table itself are a read of it, whatever form they have and by whatever URI
the table was opened, at the version at which they were read.

Tests of engine.scan.origin, operations.write.source.
"""

import shutil
import threading

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import refdelta
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.engine.scan.origin import marks_of, note, noting

ROWS = pa.table({"id": [1, 2]})


@pytest.fixture
def path(tmp_path):
    place = tmp_path / "t"
    write_deltalake(place, ROWS, configuration={"delta.isolationLevel": "Serializable"})
    yield place
    refdelta.settle()


FORMS = {
    "a table": lambda table: table,
    "a reader": lambda table: table.to_record_batch_reader(filters="id > 0"),
    "a dataset": lambda table: table.to_pyarrow_dataset().filter(pc.field("id") > 0),
    "a reader of a scanner": lambda table: table.to_pyarrow_dataset().scanner().to_reader(),
    "a frame": lambda table: table.to_polars().filter(pl.col("id") > 0),
    "a relation": lambda table: table.to_duckdb(duckdb.connect()).project("id"),
}
OPENED = {
    "a path": lambda path, _: path,
    "a URI": lambda path, _: path.as_uri(),
    "a symbolic link": lambda path, link: link,
    "the URI of a symbolic link": lambda path, link: link.as_uri(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("opened", OPENED)
def test_a_write_begins_at_the_version_of_its_rows(path, tmp_path, form, opened):
    link = tmp_path / "link"
    link.symlink_to(path)
    rows = FORMS[form](DeltaTable(OPENED[opened](path, link)))
    write_deltalake(path, pa.table({"id": [3]}), mode="append")
    with pytest.raises(errors.ConcurrentAppendException) as caught:
        write_deltalake(path, rows, mode="append")
    assert caught.value.conflict.version == 1
    write_deltalake(path, FORMS[form](DeltaTable(OPENED[opened](path, link))), mode="append")
    assert DeltaTable(path).history(1)[0]["isBlindAppend"] is False


@pytest.mark.parametrize("form", FORMS)
def test_an_append_of_a_transaction_or_of_a_group_is_not_blind(path, form):
    table = DeltaTable(path)
    txn = table.begin()
    txn.append(FORMS[form](DeltaTable(path)))
    txn.commit()
    assert table.history(1)[0]["isBlindAppend"] is False
    rows = FORMS[form](DeltaTable(path))
    with table.group_commit() as group:
        write_deltalake(path, ROWS, mode="append")
        with pytest.raises((errors.InvalidArgumentError, errors.ConcurrentAppendException)):
            group.append(rows)


def test_a_stream_that_hides_its_table_is_read_at_the_version_of_the_transaction_or_refused(path):
    old = DeltaTable(path)
    hidden = pa.RecordBatchReader.from_stream(old.scan())
    write_deltalake(path, hidden, mode="append")
    assert DeltaTable(path).history(1)[0]["isBlindAppend"] is False
    with pytest.raises(errors.InvalidArgumentError, match=r"version 0 of this table, but .* version 1"):
        write_deltalake(path, pa.RecordBatchReader.from_stream(old.scan()), mode="append")
    assert DeltaTable(path).version() == 1


def test_a_copy_of_the_folder_is_another_table(path, tmp_path):
    shutil.copytree(path, tmp_path / "copy")
    write_deltalake(path, ROWS, mode="append")
    write_deltalake(path, DeltaTable(tmp_path / "copy"), mode="append")
    assert DeltaTable(path).count() == 6
    write_deltalake(tmp_path / "copy", ROWS, mode="append")
    write_deltalake(tmp_path / "copy", ROWS, mode="append")
    write_deltalake(path, DeltaTable(tmp_path / "copy"), mode="append")
    assert DeltaTable(path).count() == 12


def test_the_same_log_by_an_uri_that_nothing_compares(path, tmp_path, monkeypatch):
    """As of a file system that is mounted twice: the id is the same, and the newer version is there, too."""
    from refdelta.operations.write import source

    link = tmp_path / "link"
    link.symlink_to(path)
    old = DeltaTable(link)
    write_deltalake(path, ROWS, mode="append")
    monkeypatch.setattr(source, "same_place", lambda one, other: one == other)
    with pytest.raises(errors.InvalidArgumentError, match=r"version 0 of this table, but .* version 1"):
        write_deltalake(path, old, mode="append")
    write_deltalake(path, DeltaTable(link), mode="append")
    assert DeltaTable(path).history(1)[0]["isBlindAppend"] is False


@pytest.mark.parametrize("statement", ["SELECT id FROM s", "SELECT id FROM s ORDER BY id DESC", "TABLE s"])
def test_an_insert_from_the_table_by_another_name_is_a_read(path, tmp_path, statement):
    link = tmp_path / "link"
    link.symlink_to(path)
    refdelta.sql(f"INSERT INTO t {statement}", t=path, s=DeltaTable(link))
    assert DeltaTable(path).history(1)[0]["isBlindAppend"] is False
    stale = DeltaTable(path).to_polars()
    write_deltalake(path, ROWS, mode="append")
    with pytest.raises(errors.ConcurrentAppendException):
        refdelta.sql(f"INSERT INTO t {statement}", t=path, s=stale)


def test_an_insert_from_an_older_version_has_the_rows_of_that_version(path):
    write_deltalake(path, ROWS, mode="append")
    refdelta.sql("INSERT INTO t SELECT id FROM s", t=path, s=DeltaTable(path, version=0))
    assert DeltaTable(path).count() == 6
    assert DeltaTable(path).history(1)[0]["isBlindAppend"] is True


@pytest.mark.parametrize("form", FORMS)
def test_a_version_that_was_named_is_no_read(path, form):
    rows = FORMS[form](DeltaTable(path, version=0))
    write_deltalake(path, ROWS, mode="append")
    write_deltalake(path, rows, mode="append")
    assert DeltaTable(path).history(1)[0]["isBlindAppend"] is True


def test_a_handle_that_leaves_a_named_version_reads_the_table(path):
    table = DeltaTable(path, version=0)
    table.update_incremental()
    write_deltalake(path, table.scan(), mode="append")
    assert DeltaTable(path).history(1)[0]["isBlindAppend"] is False


def test_changes_of_versions_are_no_read_of_the_table(path):
    table = DeltaTable(path)
    table.alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    write_deltalake(path, ROWS, mode="append")
    changes = DeltaTable(path).load_cdf(starting_version=2, columns=["id"])
    followed = [change.rows for change in DeltaTable(path).follow(since=1, timeout=0, columns=["id"])]
    write_deltalake(path, ROWS, mode="append")
    write_deltalake(path, changes, mode="append")
    write_deltalake(path, followed[0], mode="append")
    assert [one["isBlindAppend"] for one in DeltaTable(path).history(2)] == [True, True]


def test_the_reads_of_another_thread_are_not_those_of_a_write(path):
    table = DeltaTable(path)
    with noting() as seen:
        thread = threading.Thread(target=table.count)
        thread.start()
        thread.join()
        assert seen == []
        with noting() as inner:
            table.count()
        assert [one.version for one in inner] == [one.version for one in seen] == [0]
    note(inner[0])  # outside of a block, nothing learns of it
    assert len(seen) == 1


def test_a_mark_ends_with_its_object(path):
    reader = DeltaTable(path).to_record_batch_reader()
    assert [one.version for one in marks_of(reader)] == [0]
    assert marks_of(ROWS) == ()
    number = id(reader)
    del reader
    from refdelta.engine.scan import origin

    assert number not in origin._marks
