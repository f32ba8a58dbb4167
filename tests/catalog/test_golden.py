"""A table of Unity Catalog's kind that refdelta did not write: test data of Delta Kernel's crate
``delta-kernel-unity-catalog``, pinned, with version 0 published and the versions 1 and 2 staged.

``make search NAME=clients`` fetches it by cargo; no tier does.
"""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, verify, write_deltalake
from refdelta.catalog import SqlCatalog
from refdelta.core.log.timestamps import in_commit_timestamp
from refdelta.engine.log.managed_log import STAGED, RatifiedCommit
from refdelta_storage import Committed

pytestmark = pytest.mark.tier("nightly")

CRATE = "delta-kernel-unity-catalog"
VERSION = "0.2.0"
FOLDER = f"{CRATE}-{VERSION}/tests/data/catalog_managed_0"


@pytest.fixture
def folder(tmp_path):
    """A copy of the table."""
    cargo = shutil.which("cargo")
    if cargo is None or not os.environ.get("REFDELTA_RUST"):
        pytest.skip("`make search NAME=clients` runs it; it needs cargo (https://rustup.rs)")
    subprocess.run([cargo, "info", "-q", f"{CRATE}@{VERSION}"], cwd=tmp_path, check=True, capture_output=True)
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    (archive, *_) = home.glob(f"registry/cache/*/{CRATE}-{VERSION}.crate")
    with tarfile.open(archive) as crate:
        crate.extractall(tmp_path, [one for one in crate if one.name.startswith(FOLDER)], filter="data")
    return tmp_path / FOLDER


@pytest.fixture
def table(folder, tmp_path):
    """The table in a catalog that has ratified what is staged."""
    with SqlCatalog(f"sqlite:///{tmp_path}/catalog.db") as catalog:
        entry = catalog._reserve("golden", str(folder), "staged")
        catalog._activate(entry)
        ratifier = catalog._ratifier(entry)
        for file in sorted((folder / STAGED).iterdir()):
            data = file.read_bytes()
            stamp = in_commit_timestamp(data, file.name)
            commit = RatifiedCommit(int(file.name[:20]), len(data), stamp, file.name, data)
            assert isinstance(ratifier.propose(commit), Committed)
        yield catalog.table("golden")


def rows(*numbers):
    return sorted((number // 100, number) for number in numbers)


def read(table):
    return sorted((row["part1"], row["col1"]) for row in table.to_pyarrow_table().to_pylist())


def test_all_versions_are_read(table, folder):
    assert table.version() == 2
    assert read(table) == rows(*range(200))
    assert read(DeltaTable.in_store(table.store, 1)) == rows(*range(100))
    assert read(DeltaTable.in_store(table.store, 0)) == []
    assert [entry["operation"] for entry in table.history()] == ["WRITE", "WRITE", "CREATE TABLE"]
    assert table.to_pyarrow_table(filters="part1 = 1 AND col1 < 110").num_rows == 10
    assert not verify(table, sample=None).findings
    with pytest.raises(errors.UnsupportedFeatureError, match="catalogManaged"):
        DeltaTable(folder)


def test_it_is_written_to_and_published(table, folder):
    more = pa.table({"part1": pa.array([2], pa.int32()), "col1": pa.array([200], pa.int32())})
    write_deltalake(table, more, mode="append")
    table.delete("col1 < 150")
    assert read(table) == rows(*range(150, 201))
    table.optimize.compact()
    table.create_checkpoint()
    published = sorted(file.name for file in (folder / "_delta_log").glob("*.json"))
    assert published == [f"{version:020d}.json" for version in range(table.version() + 1)]
    assert read(table) == rows(*range(150, 201))
    assert not verify(table, sample=None).findings
