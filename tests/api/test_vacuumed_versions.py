"""A version whose files VACUUM removed: the error of each read says so, and which versions can be read.

Tests of engine.log.removed_files.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.engine.log import removed_files

SAID = (
    r"the VACUUM of version \d+ removed files of version {}; (version|versions) .* can be read\. .*deletedFileRetention"
)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": pa.array([f"n{one}" for one in ids], pa.string())})


def problem_of(uri, version) -> str | None:
    """The error of reading a version; None if it can be read."""
    try:
        DeltaTable(uri, version=version).to_pyarrow_table()
    except errors.DataFileNotFoundError as error:
        return str(error)
    return None


@pytest.fixture(params=["plain", "vectors", "fed", "mapped"])
def table(request, tmp_path):
    """Version 0 creates, 1 appends, 2 deletes, 3 updates, 4 rewrites; its VACUUM is versions 5 and 6."""
    own = {
        "plain": {"delta.enableDeletionVectors": "false"},
        "vectors": {"delta.enableDeletionVectors": "true"},
        "fed": {"delta.enableChangeDataFeed": "true"},
        "mapped": {"delta.columnMapping.mode": "name"},
    }[request.param]
    DeltaTable.create(tmp_path / "t", rows().schema, configuration=own)
    table = DeltaTable(tmp_path / "t")
    write_deltalake(table, rows(*range(10)), mode="append")
    table.delete("id = 3")
    table.update({"name": "'x'"}, predicate="id = 4")
    table.optimize.compact() if request.param == "plain" else table.reorg_purge()
    if table.version() == 3:
        write_deltalake(table, rows(1), mode="overwrite")
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    return table


def of_a_scan(table):
    DeltaTable(table.table_uri, version=1).scan(predicate="id > 0").to_table()


def in_batches(table):
    list(DeltaTable(table.table_uri, version=1).scan().to_batches())


def as_a_table(table):
    DeltaTable(table.table_uri, version=1).to_pyarrow_table()


def as_a_frame(table):
    DeltaTable(table.table_uri, version=1).to_pandas()


def after_a_load(table):
    table.load_as_version(1)
    table.to_pyarrow_table()


def filtered_count(table):
    DeltaTable(table.table_uri, version=1).count("name = 'n1'")


def as_a_dataset(table):
    DeltaTable(table.table_uri, version=1).to_pyarrow_dataset().to_table()


def as_a_lazy_frame(table):
    DeltaTable(table.table_uri, version=1).to_polars().collect()


def as_a_relation(table):
    DeltaTable(table.table_uri, version=1).to_duckdb()


def by_restore(table):
    table.restore(1)


def by_a_clone(table):
    table.shallow_clone(f"{table.table_uri}-clone", version=1)


def by_a_diff(table):
    pa.table(table.diff(0, 1))


READS = [of_a_scan, in_batches, as_a_table, as_a_frame, after_a_load, filtered_count, as_a_dataset, as_a_lazy_frame]
READS += [as_a_relation, by_restore, by_a_clone, by_a_diff]


@pytest.mark.parametrize("read", READS)
def test_each_read_names_the_vacuum_and_the_versions_that_are_left(table, read):
    if read is as_a_dataset and "delta.columnMapping.mode" in table.metadata().configuration:
        with pytest.raises(errors.InvalidArgumentError, match="column mapping"):  # before a file is opened
            read(table)
        return
    if read is as_a_lazy_frame:
        kinds = (errors.DataFileNotFoundError, Exception)  # Polars wraps errors of sources in its own
    elif read is by_a_diff:
        kinds = (errors.DataFileNotFoundError, OSError)  # so does a C stream
    else:
        kinds = (errors.DataFileNotFoundError,)
    with pytest.raises(kinds, match=SAID.format(1)):
        read(table)


def test_the_change_feed_says_so(tmp_path):
    write_deltalake(tmp_path / "t", rows(*range(10)), configuration={"delta.enableChangeDataFeed": "true"})
    table = DeltaTable(tmp_path / "t")
    table.update({"name": "'x'"}, predicate="id = 4")
    table.update({"name": "'y'"}, predicate="id = 4")
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises((errors.DataFileNotFoundError, OSError), match=SAID.format("[01]")):
        table.load_cdf(0).read_all()


@pytest.mark.tier("test")
def test_versions_that_are_named_can_be_read():
    """Random histories: the named versions can be read, and a version before them is named by the error."""
    chosen = random.Random(41)
    unreadable = 0
    for history in range(6):
        uri = f"memory://vacuumed-{history}"
        write_deltalake(uri, rows(*range(20)))
        table = DeltaTable(uri)
        for _ in range(8):
            step = chosen.choice(["append", "delete", "compact", "vacuum"])
            if step == "append":
                write_deltalake(table, rows(chosen.randrange(20)), mode="append")
            elif step == "delete":
                table.delete(f"id = {chosen.randrange(20)}")
            elif step == "compact":
                table.optimize.compact()
            else:
                table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        for version in range(table.version() + 1):
            error = problem_of(uri, version)
            if error is None:
                continue
            unreadable += 1
            first = re.search(r"; versions? (\d+)", error)
            assert first, error
            assert version < int(first[1]) <= table.version()
            assert [problem_of(uri, later) for later in range(int(first[1]), table.version() + 1)] == [None] * (
                table.version() + 1 - int(first[1])
            )
    assert unreadable > 10


def test_a_file_that_no_vacuum_removed_is_only_missing(tmp_path):
    write_deltalake(tmp_path / "t", rows(1))
    write_deltalake(tmp_path / "t", rows(2), mode="append")
    table = DeltaTable(tmp_path / "t")
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    Path(DeltaTable(tmp_path / "t", version=0).file_uris()[0].removeprefix("file://")).unlink()
    found = problem_of(tmp_path / "t", 1)
    assert "; if VACUUM removed it, read a newer version; else" in found
    assert "the VACUUM of" not in found


def test_without_the_look_at_the_log_nothing_is_said(table, monkeypatch):
    monkeypatch.setattr(removed_files, "removed_by_vacuum", lambda *_: "")
    with pytest.raises(errors.DataFileNotFoundError) as caught:
        as_a_table(table)
    assert "the VACUUM of" not in str(caught.value)
