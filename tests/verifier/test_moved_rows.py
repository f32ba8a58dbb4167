"""The record of the places of rows that a compaction moved, against the rows."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import refdelta
from refdelta import DeltaTable, write_deltalake

CLAUSE = "action-20"


def compacted(path, *, partitioned=False):
    """Two files of each partition, of which one has a vector, in one."""
    for low in (0, 10):
        data = pa.table({"id": list(range(low, low + 10)), "p": ["a", "b"] * 5, "name": [f"n{i}" for i in range(10)]})
        write_deltalake(
            path,
            data,
            mode="append",
            partition_by=["p"] if partitioned else None,
            configuration={"delta.enableDeletionVectors": "true"},
        )
    DeltaTable(path).delete("id = 2")
    DeltaTable(path).optimize.compact()
    return path


def found(path, **options):
    report = refdelta.verify(path, **options)
    return [(finding.clause, finding.version) for finding in report.findings]


def edited(path, change):
    log = path / "_delta_log" / f"{3:020d}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    change(lines[0]["commitInfo"]["rowPlaces"])
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for crc in log.parent.glob("*.crc"):
        crc.unlink()


@pytest.mark.parametrize("partitioned", [False, True])
def test_rows_at_the_recorded_places(tmp_path, partitioned):
    path = compacted(tmp_path / "t", partitioned=partitioned)
    report = refdelta.verify(path)
    assert report.sound
    assert report.checked["compactions"] == 1


def backwards(places):
    for runs in places.values():
        runs.reverse()


def inputs_swapped(places):
    """As many rows of each, from the wrong places."""
    for runs in places.values():
        one, other = runs
        shorter = one if one["rows"] < other["rows"] else other
        longer = other if shorter is one else one
        parts = [{**longer, "rows": 1}, {**longer, "start": 1, "rows": longer["rows"] - 1}]
        runs[:] = [parts[0], shorter, parts[1]]


def too_few(places):
    for runs in places.values():
        runs[0]["rows"] -= 1


def no_vectors(places):
    for runs in places.values():
        for run in runs:
            run.pop("deletionVector", None)


@pytest.mark.parametrize("change", [backwards, inputs_swapped])
def test_rows_that_are_not_at_the_recorded_places(tmp_path, change):
    path = compacted(tmp_path / "t")
    edited(path, change)
    assert found(path) == [(CLAUSE, 3)]
    assert found(path, sample=0) == []  # the sums are right


@pytest.mark.parametrize("change", [too_few, no_vectors])
def test_a_record_that_contradicts_its_commit(tmp_path, change):
    path = compacted(tmp_path / "t")
    edited(path, change)
    assert found(path, sample=0) == [(CLAUSE, 3)]


def test_inputs_that_are_gone_are_left_aside(tmp_path):
    path = compacted(tmp_path / "t")
    edited(path, backwards)
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert found(path) == []


@pytest.mark.tier("test")
def test_rows_are_compared_over_several_batches(tmp_path):
    path, size = tmp_path / "t", 200_000
    for low in (0, size):
        write_deltalake(path, pa.table({"id": pa.array(range(low, low + size))}), mode="append")
    DeltaTable(path).optimize.compact()
    assert refdelta.verify(path).sound
    log = path / "_delta_log" / f"{2:020d}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for runs in lines[0]["commitInfo"]["rowPlaces"].values():
        runs.reverse()
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert (CLAUSE, 2) in found(path)
