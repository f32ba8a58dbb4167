"""A log that says odd things: every command shows what can be shown, or ends in one short error."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from handmade import write_commit
from refdelta import DeltaTable, errors, write_deltalake
from written_tables import commit_file

DEEP = {"domain": "delta.clustering", "configuration": "[[[[", "removed": False}


@pytest.fixture
def odd(tmp_path):
    """A table whose version 1 has times that no calendar has, and parameters that are a list."""
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"a": [1]}), configuration={"delta.feature.domainMetadata": "supported"})
    (add,) = (line for line in commit_file(path, 0).read_text().splitlines() if line.startswith('{"add"'))
    again = json.loads(add)["add"] | {"modificationTime": 2**63 - 1, "dataChange": False}
    info = {"operation": "X", "timestamp": 2**70, "inCommitTimestamp": -(2**70), "operationParameters": [1, 2]}
    write_commit(path, 1, {"commitInfo": info}, {"add": again})
    return path


def test_log_shows_times_that_no_calendar_has_and_the_rest_of_the_commit(cli, odd):
    shown = cli("log", odd, "--version", "1").out
    assert f"{2**70} ({2**70} ms)" in shown
    assert f"{2**63 - 1} ({2**63 - 1} ms)" in shown
    assert "dataChange" in shown


def test_history_shows_parameters_that_are_a_list(cli, odd):
    assert "[1,2]" in cli("history", odd).out
    assert json.loads(cli("history", odd, "--json").out)[0]["operationParameters"] == [1, 2]


def test_files_shows_a_modification_time_that_no_calendar_has(cli, odd):
    assert "+292278994-08-17 07:12:55.807" in cli("files", odd).out


def test_a_clustering_domain_of_brackets_is_one_short_finding_or_error(cli, fails, odd):
    write_commit(odd, 2, {"commitInfo": {"operation": "Y"}}, {"domainMetadata": DEEP})
    said = fails("detail", odd)
    assert "does not list columns" in said
    assert len(said) < 1_000
    found = cli("verify", odd).out
    assert "cluster-1" in found
    assert len(found) < 10_000


def test_a_varchar_of_thousands_of_digits_is_none(tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"s": ["x", "y"]}))
    lines = commit_file(path, 0).read_text().splitlines()
    note = json.dumps(json.dumps({"__CHAR_VARCHAR_TYPE_STRING": f"varchar({'9' * 5_000})"}))[1:-1]
    commit_file(path, 0).write_text(
        "\n".join(line.replace('\\"metadata\\":{}', f'\\"metadata\\":{note}') for line in lines)
    )
    assert "9" * 5_000 in commit_file(path, 0).read_text()
    assert DeltaTable(path).scan(predicate="s = 'x'").to_reader().read_all().num_rows == 1


def test_a_checksum_that_contradicts_the_log_is_told_in_a_line(tmp_path, caplog):
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"a": [1]}))
    checksum = path / "_delta_log" / f"{0:020d}.crc"
    said = json.loads(checksum.read_text())
    histogram = said["histogramOpt" if "histogramOpt" in said else "fileSizeHistogram"]
    histogram["fileCounts"][0] += 1
    checksum.write_text(json.dumps(said | {"numFiles": 7}))
    with caplog.at_level("WARNING", "refdelta"):
        assert DeltaTable(path).count() == 1
    (line,) = [record.getMessage() for record in caplog.records]
    assert "numFiles is 7 by the checksum, 1 by the log" in line
    assert "fileSizeHistogram in the checksum differs from the log" in line
    assert len(line) < 1_000


def test_a_mark_of_row_ids_that_says_nothing_is_one_short_error(tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"a": [1]}), configuration={"delta.enableRowTracking": "true"})
    mark = {"domain": "delta.rowTracking", "configuration": "x" * 100_000, "removed": False}
    write_commit(path, 1, {"commitInfo": {"operation": "Y"}}, {"domainMetadata": mark})
    with pytest.raises(errors.InvalidLogError, match="rowIdHighWaterMark") as caught:
        write_deltalake(path, pa.table({"a": [2]}), mode="append")
    assert len(str(caught.value)) < 1_000
