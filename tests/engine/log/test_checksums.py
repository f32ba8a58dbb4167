"""A checksum that contradicts its version is told of, and never becomes a checkpoint."""

from __future__ import annotations

import dataclasses
import json
import logging

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, verify, write_deltalake
from refdelta.core.log.paths import checksum_key
from refdelta_storage import LocalStore

CAPABILITIES = LocalStore.capabilities.fget
PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.enableInCommitTimestamps": "true"}


@pytest.fixture
def path(tmp_path):
    write_deltalake(tmp_path, pa.table({"a": [1, 2, 3]}), configuration=PROPERTIES, cluster_by="a")
    write_deltalake(tmp_path, pa.table({"a": [4]}), mode="append", app_id="app", app_version=3)
    DeltaTable(tmp_path).delete("a = 2")
    return tmp_path


def change(path, **fields):
    file = path / checksum_key(2)
    stored = json.loads(file.read_text())
    assert set(fields) <= set(stored)
    stored.update(fields)
    file.write_text(json.dumps(stored))


def test_every_version_of_ours_agrees(path, caplog):
    with caplog.at_level(logging.WARNING):
        for version in range(3):
            assert DeltaTable(path, version=version)._handle.snapshot.contradictions() == []
    assert not caplog.records
    stored = json.loads((path / checksum_key(2)).read_text())
    histogram = stored["fileSizeHistogram"]
    assert (sum(histogram["fileCounts"]), sum(histogram["totalBytes"])) == (2, stored["tableSizeBytes"])
    assert sum(stored["deletedRecordCountsHistogramOpt"]["deletedRecordCounts"]) == 2


@pytest.mark.sample(check=4)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("numFiles", 3),
        ("tableSizeBytes", 0),
        ("inCommitTimestampOpt", 1),
        ("numDeletedRecordsOpt", 0),
        ("numDeletionVectorsOpt", 2),
        ("deletedRecordCountsHistogramOpt", {"deletedRecordCounts": [2] + [0] * 9}),
        ("setTransactions", []),
        ("setTransactions", [{"appId": "app", "version": 2}]),
        ("domainMetadata", []),
        ("protocol", {"minReaderVersion": 1, "minWriterVersion": 2}),
    ],
)
def test_what_contradicts(path, caplog, field, value):
    change(path, **{field: value})
    with caplog.at_level(logging.WARNING):
        table = DeltaTable(path)
    (record,) = caplog.records
    assert "version 2" in record.getMessage()
    assert field in record.getMessage()
    assert table.to_pyarrow_table()["a"].to_pylist().count(4) == 1  # and it is read all the same
    with pytest.raises(errors.InvalidLogError, match=field):
        table.create_checkpoint()
    assert not list(path.glob("_delta_log/*checkpoint*"))
    write_deltalake(table, pa.table({"a": [5]}), mode="append")
    table.create_checkpoint()  # the next version's says the truth


def test_metadata_and_histogram(path):
    stored = json.loads((path / checksum_key(2)).read_text())
    spelled = json.dumps(json.loads(stored["metadata"]["schemaString"]), indent=1)
    change(path, metadata=stored["metadata"] | {"schemaString": spelled})
    assert DeltaTable(path)._handle.snapshot.contradictions() == []
    change(path, metadata=stored["metadata"] | {"id": "another"})
    assert DeltaTable(path)._handle.snapshot.contradictions() == ["metadata in the checksum differs from the log"]
    bins = stored["fileSizeHistogram"]
    counts = [2, *bins["fileCounts"][1:-1], 1]
    change(path, metadata=stored["metadata"], fileSizeHistogram=bins | {"fileCounts": counts})
    (found,) = DeltaTable(path)._handle.snapshot.contradictions()
    assert found == "fileSizeHistogram in the checksum differs from the log"
    # Other bins are another engine's business, and so is what it leaves out.
    change(path, fileSizeHistogram={"sortedBinBoundaries": [0], "fileCounts": [7], "totalBytes": [7]})
    assert DeltaTable(path)._handle.snapshot.contradictions() == []
    change(path, setTransactions=None, domainMetadata=None, numDeletedRecordsOpt=None)
    assert DeltaTable(path)._handle.snapshot.contradictions() == []


@pytest.mark.parametrize("data", [b"", b"{", b'{"numFiles": 3}'])
def test_one_that_cannot_be_read_is_none(path, caplog, data):
    (path / checksum_key(2)).write_bytes(data)
    with caplog.at_level(logging.WARNING):
        DeltaTable(path).create_checkpoint()
    assert not caplog.records


def test_over_a_network_readers_compare_nothing(path, caplog, monkeypatch):
    change(path, numFiles=3)
    monkeypatch.setattr(
        LocalStore, "capabilities", property(lambda store: dataclasses.replace(CAPABILITIES(store), remote=True))
    )
    with caplog.at_level(logging.WARNING):
        table = DeltaTable(path)
        assert table.to_pyarrow_table().num_rows == 3
    assert not caplog.records
    # Whoever makes something that stands for the log does, and whoever asks.
    with pytest.raises(errors.InvalidLogError, match="numFiles"):
        table.create_checkpoint()
    assert [finding.clause for finding in verify(path).findings] == ["crc-2"]


def test_the_list_of_all_files_is_not_believed(path):
    assert "allFiles" not in json.loads((path / checksum_key(2)).read_text())
    file = path / checksum_key(2)
    file.write_text(json.dumps({**json.loads(file.read_text()), "allFiles": [{"path": "gone.parquet"}]}))
    assert DeltaTable(path)._handle.snapshot.contradictions() == []
    assert sorted(DeltaTable(path).to_pyarrow_table()["a"].to_pylist()) == [1, 3, 4]
