"""A bound that this engine wrote is exact: a scan reads the same files as before foreign bounds had margins."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

import claimed_tables as claimed
from refdelta import DeltaTable, write_deltalake

FILES = 40
READ = [
    int(number)
    for number in """
38 12 38 21 18 8 23 39 4 7 40 3 33 38 3 7 38 14 29 21 36 23 40 28 17 33 18 10 36 39 39 35 34 37 0 36 7 11 12
33 27 5 16 37 35 37 37 1 32 16 21 10 6 35 7 7 7 21 38 38 4 7 40 21 37 31 10 3 11 18 36 39 38 32 21 26 19 39 18
8 28 29 16 38 34 38 39 15 38 40 20 39 0 4 5 21 38 40 12 36 38 39 3 18 16 38 39 27 7 13 40 30 9 18 35 40 17 35
4 37 38 37 39 36 5 39 10 3 38 35 40 8 0 12 32 14 10 1 10 19 18 17 6 35 20 37 10 21 36 38
""".split()  # noqa: SIM905 - numbers are easier to read so
]
"""The files that are read for each predicate, counted before foreign bounds had margins (commit 4be16f8)."""


def table(path: Path, **configuration: str) -> list[str]:
    """Write a table of 40 files; returns predicates."""
    draw = random.Random(7)
    groups = [claimed.rows_of(draw) for _ in range(FILES)]
    rows = pa.concat_tables(
        claimed.arrow(group).append_column("p", pa.array([number] * len(group), pa.int32()))
        for number, group in enumerate(groups)
    )
    write_deltalake(path, rows, partition_by=["p"], configuration=configuration)
    return [claimed.predicate(draw.choice(groups), draw) for _ in range(150)]


def counts(path: Path, predicates: list[str]) -> list[int]:
    found = DeltaTable(path)
    return [len(found.file_uris(predicate)) for predicate in predicates]


@pytest.mark.tier("test")
def test_the_same_files_are_read(tmp_path):
    assert counts(tmp_path / "t", table(tmp_path / "t")) == READ


@pytest.mark.tier("test")
def test_the_same_files_are_read_from_a_checkpoint_with_structs_only(tmp_path):
    path = tmp_path / "t"
    options = {"delta.checkpoint.writeStatsAsJson": "false", "delta.checkpoint.writeStatsAsStruct": "true"}
    predicates = table(path, **options)
    DeltaTable(path).create_checkpoint()
    (path / "_delta_log" / f"{0:020d}.json").unlink()
    assert counts(path, predicates) == READ
