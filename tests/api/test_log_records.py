"""Ordinary work logs at DEBUG: facts, and no values of rows. Without the level, nothing is measured."""

from __future__ import annotations

import logging
import os
from unittest import mock

import pyarrow as pa
import pytest

from refdelta import CommitProperties, DeltaTable, errors, settle, write_deltalake
from refdelta.transaction import events

SECRET = "Ada Lovelace"
VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.fixture
def said(caplog):
    """The DEBUG messages since the last call."""
    caplog.set_level(logging.DEBUG, "refdelta")

    def take():
        found = [(record.levelno, record.getMessage()) for record in caplog.records if record.name == "refdelta"]
        caplog.clear()
        assert not [text for _, text in found if SECRET in text]
        return [text for level, text in found if level == logging.DEBUG]

    return take


@pytest.fixture
def table(tmp_path):
    for part, properties in ((1, VECTORS), (2, None)):
        rows = pa.table({"id": [part * 10, part * 10 + 1], "part": [part] * 2, "name": [SECRET, SECRET]})
        write_deltalake(tmp_path, rows, mode="append", partition_by="part", configuration=properties)
    settle()
    return DeltaTable(tmp_path)


def one(texts, words):
    (found,) = [text for text in texts if words in text]
    return found


def test_opening_says_the_version_and_from_what_it_was_read(table, said):
    said()
    DeltaTable(table.table_uri)
    assert said() == [f"{table.table_uri}: opened version 1, from the checkpoint of version None and 2 commit files"]
    table.create_checkpoint()
    assert "wrote the checkpoint _delta_log/00000000000000000001.checkpoint.parquet of version 1: " in one(
        said(), "checkpoint"
    )
    DeltaTable(table.table_uri)
    assert one(said(), "opened").endswith("from the checkpoint of version 1 and 0 commit files")


def test_a_scan_says_how_many_files_it_reads_and_why_not_the_others(table, said):
    said()
    table.to_pyarrow_table(filters=f"part = 2 and id < 30 and name = '{SECRET}'")
    table.to_pyarrow_table(filters="id > 15")
    table.to_pyarrow_table()
    first, second, third = (text.partition("reads ")[2] for text in said() if "a scan" in text)
    assert first == "1 of 2 files; 1 are excluded by partition values, 0 by statistics"
    assert second == "1 of 2 files; 0 are excluded by partition values, 1 by statistics"
    assert third == "2 of 2 files; 0 are excluded by partition values, 0 by statistics"


def test_a_commit_says_its_attempts_and_what_it_was_checked_against(table, said):
    late, later = (table.begin(commit_properties=CommitProperties(row_level=True)) for _ in range(2))
    late.delete(f"id = 10 and name = '{SECRET}'")
    later.update({"name": "'x'"}, predicate="id = 11")
    table.delete("id = 20")
    said()
    late.commit()
    committed = one(said(), "DELETE of version 1")
    assert "committed, version 3, after" in committed
    assert "; 1 commits of others were checked by" in committed
    again = table.begin()
    again.update({"name": "'y'"}, predicate="id = 11")
    later.commit()
    said()
    with pytest.raises(errors.ConcurrentModificationError):
        again.commit()
    conflict = one(said(), "UPDATE of version")
    assert ": conflict, version None, after" in conflict
    assert ", winner 4" in conflict


def test_a_cleanup_of_the_log_says_where_it_begins(table, said, tmp_path):
    table.create_checkpoint()
    for commit in (tmp_path / "_delta_log").glob("*.json"):
        os.utime(commit, (0, 0))
    write_deltalake(table, pa.table({"id": [1], "part": [1], "name": [SECRET]}), mode="append")
    settle()
    said()
    table.update_incremental()
    table.cleanup_metadata()
    assert one(said(), "expired files").endswith("of the log; it begins with version 1 now")


def test_a_vacuum_says_what_it_finds(table, said):
    write_deltalake(table, pa.table({"id": [1], "part": [1], "name": [SECRET]}), mode="overwrite")
    settle()
    said()
    table.vacuum(retention_hours=0, enforce_retention_duration=False)
    told = one(said(), "VACUUM at version 2 finds ")
    assert "needs; dry run: True" in told
    assert " finds 2 files of " in told


def test_without_the_level_no_commit_is_measured(caplog):
    caplog.set_level(logging.INFO, "refdelta")
    with events.watching("table", mock.Mock(), mock.Mock()) as watch:
        assert type(watch) is events.Watch
