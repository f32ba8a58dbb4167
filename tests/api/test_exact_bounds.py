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
    36,
    10,
    27,
    39,
    26,
    40,
    5,
    17,
    39,
    39,
    21,
    40,
    39,
    23,
    39,
    28,
    35,
    40,
    37,
    11,
    36,
    40,
    2,
    14,
    14,
    33,
    39,
    3,
    37,
    40,
    18,
    26,
    20,
    40,
    34,
    37,
    0,
    34,
    16,
    37,
    12,
    11,
    11,
    16,
    37,
    19,
    20,
    40,
    36,
    21,
    6,
    27,
    9,
    10,
    13,
    21,
    16,
    38,
    6,
    38,
    38,
    14,
    1,
    37,
    0,
    0,
    23,
    39,
    40,
    16,
    37,
    3,
    12,
    13,
    20,
    16,
    36,
    6,
    9,
    37,
    25,
    20,
    38,
    37,
    27,
    36,
    40,
    16,
    10,
    26,
    39,
    3,
    8,
    38,
    0,
    36,
    39,
    29,
    37,
    37,
    15,
    10,
    35,
    31,
    7,
    40,
    39,
    40,
    39,
    23,
    8,
    39,
    29,
    13,
    21,
    33,
    11,
    37,
    38,
    39,
    40,
    17,
    34,
    23,
    39,
    33,
    16,
    10,
    17,
    14,
    16,
    37,
    12,
    7,
    10,
    38,
    5,
    35,
    14,
    9,
    30,
    40,
    15,
    37,
    10,
    5,
    14,
    37,
    7,
    12,
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
