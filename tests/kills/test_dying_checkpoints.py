"""A checkpoint, or the hint to it, of which a dying process of another engine left a part: it may end anywhere."""

from __future__ import annotations

import shutil

import deltalake
import pytest

from kills.steps import rows
from refdelta import DeltaTable, write_deltalake
from refdelta.core.log.segment import parse_last_checkpoint

HINT = "_delta_log/_last_checkpoint"


def checkpoint(version):
    return f"_delta_log/{version:020d}.checkpoint.parquet"


def content(path, version=None):
    return sorted(tuple(row.values()) for row in DeltaTable(path, version).to_pyarrow_table().to_pylist())


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A table of versions 0 to 7, with checkpoints at 3 and 6; and the rows of each version."""
    path = tmp_path_factory.mktemp("checkpoints") / "t"
    for number in range(8):
        write_deltalake(path, rows(number, range(number), number), mode="append")
        if number in (3, 6):
            DeltaTable(path).create_checkpoint()
    return path, [content(path, version) for version in range(8)]


def ends(size):
    """Where files of so many bytes end, when their writer died: at once, in the magic, in pages, in the footer."""
    return sorted({0, 4, *range(0, size, size // 4 + 1), size - 9, size - 8, size - 4, size - 1})


@pytest.mark.sample(test=1)
@pytest.mark.tier("test")
@pytest.mark.parametrize("which", [checkpoint(6), checkpoint(3), HINT])
def test_a_part_of_a_file(base, tmp_path, which):
    table, versions = base
    whole = (table / which).read_bytes()
    for end in ends(len(whole)):
        path = tmp_path / str(end)
        shutil.copytree(table, path)
        (path / which).write_bytes(whole[:end])
        for version in (3, 5, 6):
            assert content(path, version) == versions[version], end
        assert content(path) == versions[-1], end
        # Others go on, and the next checkpoint mends it.
        write_deltalake(path, rows(9, [1], 9), mode="append")
        DeltaTable(path).create_checkpoint()
        assert parse_last_checkpoint((path / HINT).read_bytes()).version == 8
        assert content(path) == sorted([*versions[-1], (9, 1, 9)])
        assert len(deltalake.DeltaTable(path).file_uris()) == DeltaTable(path)._handle.snapshot.num_files


@pytest.mark.tier("test")
def test_a_checkpoint_whose_first_bytes_never_came(base, tmp_path):
    """As a file system leaves it that grew the file before it wrote: zeros."""
    table, versions = base
    path = tmp_path / "t"
    shutil.copytree(table, path)
    for which in (checkpoint(6), checkpoint(3), HINT):
        size = (path / which).stat().st_size
        for zeros in (size // 2, size):
            (path / which).write_bytes(bytes(zeros) + (table / which).read_bytes()[zeros:])
            assert [content(path, version) for version in range(8)] == versions


@pytest.mark.tier("test")
@pytest.mark.parametrize("parts", [{1}, {2}, {1, 3}])
def test_a_checkpoint_in_parts_of_which_some_are_missing(base, tmp_path, parts):
    table, versions = base
    path = tmp_path / "t"
    shutil.copytree(table, path)
    whole = (table / checkpoint(6)).read_bytes()
    (path / checkpoint(6)).unlink()
    for part in parts:
        (path / f"_delta_log/{7:020d}.checkpoint.{part:010d}.{3:010d}.parquet").write_bytes(whole)
    (path / HINT).write_text('{"version":7,"size":3,"parts":3}')
    assert [content(path, version) for version in range(8)] == versions
    assert content(path) == versions[-1]
