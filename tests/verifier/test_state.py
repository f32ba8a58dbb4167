"""Checkpoints, checksums, compacted files and the hint: sound ones of refdelta, and each broken in one way.

Tests of verifier.adds, verifier.checksums.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from handmade import Handmade, checkpoint_file, metadata
from refdelta import AppTransaction, CommitProperties, DeltaTable, write_deltalake
from refdelta.verifier.checkpoints import spark_hash
from refdelta.verifier.run import verify
from verifier.tables import SCHEMA, add, found, protocol, remove, table

ROWS = pa.table({"id": [1, 2, 3], "part": ["x", "y", None]})


@pytest.fixture
def path(tmp_path):
    """A table of refdelta with six versions: files, vectors, a domain, an application, a checkpoint at version 4."""
    uri = tmp_path / "table"
    on = {"delta.enableDeletionVectors": "true", "delta.enableInCommitTimestamps": "true"}
    write_deltalake(uri, ROWS, configuration=on)
    for _ in range(2):
        write_deltalake(uri, ROWS, mode="append")
    handle = DeltaTable(uri)
    handle.delete("id = 2")
    properties = CommitProperties(app_transactions=[AppTransaction(app_id="app", version=7)])
    write_deltalake(uri, ROWS, mode="append", commit_properties=properties)
    handle = DeltaTable(uri)
    handle.create_checkpoint()
    handle.update(predicate="id = 1", updates={"id": "9"})
    return uri


def clauses(uri):
    report = verify(uri, sample=0)
    return {(finding.clause, finding.version) for finding in report.findings}


def test_a_sound_table_of_refdelta(path):
    report = verify(path, sample=0)
    assert report.findings == []
    assert report.checked["commits"] == 6
    assert report.checked["checkpoints"] == 1
    assert report.checked["checksums"] == 6
    assert (report.oldest, report.newest) == (0, 5)


def log(path, name):
    return path / "_delta_log" / name


def test_a_log_that_begins_with_its_checkpoint(path):
    for version in range(4):
        log(path, f"{version:020d}.json").unlink()
        log(path, f"{version:020d}.crc").unlink()
    report = verify(path, sample=0)
    assert report.findings == []
    assert (report.oldest, report.checked["commits"]) == (4, 2)
    log(path, f"{4:020d}.json").unlink()
    assert clauses(path) == {("check-7", 4)}


# --- checkpoints -------------------------------------------------------------------------------------------------


def broken(path, change):
    """Write the checkpoint again, its rows as a function leaves them."""
    name = log(path, f"{4:020d}.checkpoint.parquet")
    data = pq.read_table(name)
    rows = change(data.to_pylist())
    pq.write_table(pa.Table.from_pylist(rows, schema=data.schema), name)


def change_first(kind, **fields):
    def change(rows):
        row = next(row for row in rows if row[kind] is not None)
        row[kind] |= fields
        return rows

    return change


def without_first(kind):
    def change(rows):
        rows.remove(next(row for row in rows if row[kind] is not None))
        return rows

    return change


CHANGES = {
    "a live file is missing": without_first("add"),
    "a tombstone is missing": without_first("remove"),
    "an application is missing": without_first("txn"),
    "two protocols": lambda rows: [*rows, next(row for row in rows if row["protocol"])],
    "no metadata": without_first("metaData"),
    "another size": change_first("add", size=1),
    "another time": change_first("add", modificationTime=1),
    "other statistics": change_first("add", stats='{"numRecords":1}'),
    "other tags": change_first("add", tags=[("a", "b")]),
    "a partition": change_first("add", partitionValues=[("a", "b")]),
    "an unknown file": change_first("add", path="x"),
    "an unknown tombstone": change_first("remove", path="x"),
    "another application": change_first("txn", version=6),
    "another schema": change_first("metaData", schemaString="{}"),
}


@pytest.mark.sample(check=5)
@pytest.mark.parametrize("name", CHANGES)
def test_a_checkpoint_that_is_not_the_state(path, name):
    broken(path, CHANGES[name])
    assert clauses(path) == {("check-1", 4)}


def test_a_checkpoint_that_cannot_be_read(path):
    log(path, f"{4:020d}.checkpoint.parquet").write_bytes(b"PAR1")
    assert clauses(path) == {("check-1", 4)}


@pytest.mark.tier("test")
def test_features_in_a_checkpoint(path):
    broken(path, change_first("protocol", readerFeatures=None))
    assert clauses(path) == {("check-1", 4), ("check-10", 4)}


class TestStructs:
    """Statistics and partition values that a checkpoint has as structs, too."""

    @pytest.fixture
    def path(self, tmp_path):
        uri = tmp_path / "structs"
        write_deltalake(uri, ROWS, partition_by=["part"], configuration={"delta.checkpoint.writeStatsAsStruct": "true"})
        DeltaTable(uri).create_checkpoint()
        return uri

    def spoilt(self, path, change):
        name = log(path, f"{0:020d}.checkpoint.parquet")
        data = pq.read_table(name)
        rows = change(data.to_pylist())
        pq.write_table(pa.Table.from_pylist(rows, schema=data.schema), name)
        return clauses(path)

    def change(self, *names, value):
        def changed(rows):
            here = next(row for row in rows if row["add"] is not None)["add"]
            for name in names[:-1]:
                here = here[name]
            assert here[names[-1]] != value
            here[names[-1]] = value
            return rows

        return changed

    def test_sound(self, path):
        assert clauses(path) == set()

    @pytest.mark.parametrize(
        ("names", "value"),
        [
            (("stats_parsed", "numRecords"), 7),
            (("stats_parsed", "minValues", "id"), -1),
            (("stats_parsed", "nullCount", "id"), 1),
            (("partitionValues_parsed", "part"), "other"),
        ],
    )
    def test_each(self, path, names, value):
        assert self.spoilt(path, self.change(*names, value=value)) == {("check-14", 0)}

    def test_they_are_there_where_they_have_to_be(self, path):
        name = log(path, f"{0:020d}.checkpoint.parquet")
        data = pq.read_table(name)
        adds = [
            None if row is None else {key: item for key, item in row.items() if key != "stats_parsed"}
            for row in data["add"].to_pylist()
        ]
        kind = data.schema.field("add").type
        kind = pa.struct([kind.field(i) for i in range(kind.num_fields) if kind.field(i).name != "stats_parsed"])
        at = data.column_names.index("add")
        pq.write_table(data.set_column(at, "add", pa.array(adds, kind)), name)
        assert clauses(path) == {("check-14", 0)}


class TestForms:
    """Checkpoints by hand."""

    V2 = protocol(reader=("v2Checkpoint",))
    NAME = f"_delta_log/{1:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"

    def table(self, start=None):
        made = table(protocol=start or self.V2)
        made.commit(add("a"))
        return made

    def write(self, made, *actions, name=NAME):
        made.put(name, b"".join(json.dumps(action).encode() + b"\n" for action in actions))
        return found(made)

    @property
    def state(self):
        return [self.V2, metadata(SCHEMA), {"add": add("a")["add"] | {"dataChange": False}}]

    def sidecar(self, made, *actions):
        data = checkpoint_file(list(actions))
        made.put("_delta_log/_sidecars/s.parquet", data)
        return {"sidecar": {"path": "s.parquet", "sizeInBytes": len(data), "modificationTime": 1}}

    def test_sound(self):
        assert self.write(self.table(), *self.state, {"checkpointMetadata": {"version": 1}}) == []

    def test_sound_with_a_sidecar(self):
        made = self.table()
        small = self.state[:2]
        assert self.write(made, *small, {"checkpointMetadata": {"version": 1}}, self.sidecar(made, self.state[2])) == []

    @pytest.mark.parametrize(
        ("clause", "more"),
        [
            ("check-12", []),
            ("check-12", [{"checkpointMetadata": {"version": 1}}] * 2),
            ("check-12", [{"checkpointMetadata": {"version": 2}}]),
            ("check-8", [{"checkpointMetadata": {"version": 1}}, {"commitInfo": {}}]),
            ("check-9", [{"checkpointMetadata": {"version": 1}}, remove("gone", tags={"a": "b"})]),
        ],
    )
    def test_forms_that_are_none(self, clause, more):
        names = self.write(self.table(), *self.state, *more)
        assert {name for name, *_ in names} - {"check-1"} == {clause}

    def test_the_feature_is_there(self):
        versions = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
        names = self.write(self.table(versions), versions, *self.state[1:], {"checkpointMetadata": {"version": 1}})
        assert names == [("check-11", 1, None)]

    @pytest.mark.parametrize("change", ["gone", "size", "both", "other"])
    def test_sidecars(self, change):
        made = self.table()
        sidecar = self.sidecar(made, *(self.state[1:] if change == "other" else self.state[2:]))
        actions = [*self.state[:2], {"checkpointMetadata": {"version": 1}}, sidecar]
        if change == "gone":
            made.store.delete(["_delta_log/_sidecars/s.parquet"])
        elif change == "size":
            sidecar["sidecar"]["sizeInBytes"] += 1
        elif change == "both":
            actions.append(self.state[2])
        clause = "check-16" if change == "gone" else "check-13"
        assert clause in {name for name, *_ in self.write(made, *actions)}


class TestParts:
    """A checkpoint in two parts, the files in them by Spark's hash."""

    PATHS = tuple("abcdefgh")

    def test_the_hash_is_that_of_spark(self):
        assert spark_hash("Spark") == 228093765
        assert spark_hash(None) == 42

    def made(self, of):
        made = table()
        first = [json.loads(line) for line in made.store.get(f"_delta_log/{0:020d}.json").splitlines()]
        adds = [add(path) for path in self.PATHS]
        made.commit(*adds)
        parts = [[*first], []]
        for one in adds:
            parts[of(one["add"]["path"])].append(one)
        for number, actions in enumerate(parts, start=1):
            name = f"_delta_log/{1:020d}.checkpoint.{number:010d}.{2:010d}.parquet"
            made.put(name, checkpoint_file(actions))
        return found(made)

    def test_sound(self):
        assert self.made(lambda path: spark_hash(path) % 2) == []
        assert self.made(lambda path: 1 - spark_hash(path) % 2) == []

    def test_files_spread_in_another_way(self):
        assert self.made(lambda path: ord(path) % 2) == [("check-18", 1, None)]


# --- the hint ----------------------------------------------------------------------------------------------------


@pytest.mark.tier("test")
@pytest.mark.sample(check=2)
@pytest.mark.parametrize(
    ("clause", "text"),
    [
        ("check-17", '{"version":3,"size":1}'),
        ("check-17", '{"version":4,"size":1,"parts":2}'),
        ("check-6", "{"),
        *(("check-6", text) for text in ("7", "[]", "null", '"checksum"')),
        ("check-6", '{"version":4,"size":1,"checksum":"x"}'),
    ],
)
def test_a_hint_that_leads_nowhere(path, clause, text):
    log(path, "_last_checkpoint").write_text(text)
    assert clauses(path) == {(clause, None)}


# --- checksums ---------------------------------------------------------------------------------------------------

FIELDS = {
    "tableSizeBytes": ("crc-2", 1),
    "numFiles": ("crc-2", 9),
    "numDeletedRecordsOpt": ("crc-2", 9),
    "numDeletionVectorsOpt": ("crc-2", 9),
    "setTransactions": ("crc-2", []),
    "domainMetadata": ("crc-2", [{"domain": "x", "configuration": "", "removed": False}]),
    "deletedRecordCountsHistogramOpt": ("crc-2", {"deletedRecordCounts": [0] * 10}),
    "fileSizeHistogram": ("crc-6", {"sortedBinBoundaries": [1], "fileCounts": [4], "totalBytes": [4]}),
    "protocol": ("crc-2", {"minReaderVersion": 1, "minWriterVersion": 2}),
    "metadata": ("crc-2", metadata(SCHEMA)["metaData"]),
    "inCommitTimestampOpt": ("crc-2", 7),
    "numMetadata": ("crc-4", 2),
    "allFiles": ("crc-2", []),
}


@pytest.mark.sample(check=5)
@pytest.mark.parametrize("name", FIELDS)
def test_a_checksum_that_is_not_the_state(path, name):
    file = log(path, f"{5:020d}.crc")
    clause, value = FIELDS[name]
    file.write_text(json.dumps(json.loads(file.read_text()) | {name: value}))
    assert clauses(path) == {(clause, 5)}


def test_a_histogram_that_is_not_the_state(path):
    file = log(path, f"{5:020d}.crc")
    text = {"sortedBinBoundaries": [0, 10], "fileCounts": [1, 3], "totalBytes": [5, 6]}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"fileSizeHistogram": text}))
    assert clauses(path) == {("crc-2", 5)}


@pytest.mark.tier("test")
def test_a_checksum_without_its_timestamp(path):
    file = log(path, f"{5:020d}.crc")
    fields = json.loads(file.read_text())
    del fields["inCommitTimestampOpt"]
    file.write_text(json.dumps(fields))
    assert clauses(path) == {("crc-5", 5)}


def test_what_is_no_checksum(path):
    log(path, f"{5:020d}.crc").write_text("{")
    assert clauses(path) == {("crc-4", 5)}


# --- compacted files ---------------------------------------------------------------------------------------------


def compacted(*actions):
    made = Handmade(SCHEMA)
    made.commit(add("a"), {"commitInfo": {}})
    made.commit(add("b"), remove("a"))
    made.put(
        f"_delta_log/{1:020d}.{2:020d}.compacted.json",
        b"".join(json.dumps(action).encode() + b"\n" for action in actions),
    )
    return found(made)


def test_a_sound_compacted_file():
    assert compacted(add("b"), remove("a")) == []


@pytest.mark.parametrize(
    "actions", [[add("b")], [add("a"), add("b")], [add("b", 4), remove("a")], [add("b"), remove("a"), metadata(SCHEMA)]]
)
def test_a_compacted_file_that_is_not_its_commits(actions):
    assert {name for name, *_ in compacted(*actions)} == {"log-8"}


def test_a_compacted_file_with_a_commit_info():
    assert compacted(add("b"), remove("a"), {"commitInfo": {}}) == [("log-9", 2, 3)]
