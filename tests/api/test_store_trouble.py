"""A file too large, a folder that may not be used or that is gone: one clear error, nothing half-written or revived.

The disk that is full: tests/kills/test_full_disk.py.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

from api.needed import needs
from refdelta import DeltaTable, errors, write_deltalake

SMALL = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", None, "c"]})


def everything(path):
    return sorted(p.relative_to(path).as_posix() for p in path.rglob("*"))


def child(code, *arguments, prepare=None):
    """Run code in another process, so that its limits and its user id are its own."""
    program = textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        check=False,
        text=True,
        preexec_fn=prepare,
        timeout=300,
    )


APPEND = """
    import sys, pyarrow as pa
    import refdelta
    from refdelta import errors
    rows = int(sys.argv[2])
    data = pa.table({"id": range(rows), "x": [str(i * 7919) for i in range(rows)]})
    try:
        refdelta.write_deltalake(sys.argv[1], data, mode="append")
    except errors.StoreError as error:
        print("StoreError:", error)
"""


@pytest.mark.tier("test")
def test_a_file_too_large(tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"id": range(10), "x": [str(i) for i in range(10)]}))
    before = everything(path)

    def limit():
        # Python ignores the signal that comes with it.
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    done = child(APPEND, path, 300_000, prepare=limit)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("StoreError:"), done.stdout
    assert "parquet" in done.stdout
    assert done.stdout.count("\n") == 1
    assert everything(path) == before
    assert DeltaTable(path).count() == 10


# --- permissions ---

AS_NOBODY = """
    import importlib, json, os, pkgutil, sys
    import pyarrow as pa
    import refdelta
    from refdelta import DeltaTable, errors, write_deltalake
    path, said = sys.argv[1], {}
    # What is imported with its first use may lie where nobody may look.
    for module in pkgutil.walk_packages(refdelta.__path__, "refdelta."):
        if not module.name.startswith(("refdelta.spark", "refdelta.cli", "refdelta.__main__")):
            importlib.import_module(module.name)
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    row = pa.table({"id": pa.array([7], pa.int64())})
    for name, operation in {
        "read": lambda: DeltaTable(path).to_pyarrow_table(),
        "append": lambda: write_deltalake(path, row, mode="append"),
        "delete": lambda: DeltaTable(path).delete("id = 3"),
        "compact": lambda: DeltaTable(path).optimize.compact(),
        "checkpoint": lambda: DeltaTable(path).create_checkpoint(),
        "vacuum": lambda: DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True),
        "create": lambda: write_deltalake(path + "-new", row),
    }.items():
        try:
            operation()
            said[name] = None
        except errors.DeltaError as error:
            said[name] = type(error).__name__ + ": " + str(error)
    print(json.dumps(said))
"""
EVERYTHING = {"read", "append", "delete", "compact", "checkpoint", "vacuum", "create"}


def grant(table, *, write=True):
    for file in (table, *table.rglob("*")):
        file.chmod((0o777 if write else 0o755) if file.is_dir() else (0o666 if write else 0o644))


def sticky(table):
    DeltaTable(table).create_checkpoint()
    for folder in (table, table / "_delta_log"):
        folder.chmod(0o1777)


FORBIDDEN = {
    # What nobody may do, and which operations that forbids.
    "write": (lambda table: grant(table, write=False), EVERYTHING - {"read"}),
    "write the log": (lambda table: (table / "_delta_log").chmod(0o755), EVERYTHING - {"read"}),
    "write data": (lambda table: table.chmod(0o755), EVERYTHING - {"read", "checkpoint"}),
    "list the log": (lambda table: (table / "_delta_log").chmod(0o711), EVERYTHING),
    "read a commit": (lambda table: (table / f"_delta_log/{1:020d}.json").chmod(0), EVERYTHING),
    "read data": (lambda table: [f.chmod(0) for f in table.glob("*.parquet")], {"read", "delete", "compact", "create"}),
    # As in /tmp: files of others can be neither removed nor replaced.
    "remove files of others": (sticky, {"checkpoint", "vacuum", "create"}),
}


@pytest.mark.sample(test=3)
@pytest.mark.tier("test")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which alone may become another user")
@pytest.mark.parametrize("forbidden", FORBIDDEN)
def test_what_may_not_be_done(forbidden):
    # Not in pytest's own folder, into which nobody may look.
    with tempfile.TemporaryDirectory(prefix="refdelta-") as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "t"
        vectors = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "1000"}
        for first in (0, 10, 20):
            write_deltalake(path, pa.table({"id": range(first, first + 10)}), mode="append", configuration=vectors)
        DeltaTable(path).delete("id = 1")
        (path / "leftover.parquet").write_bytes(b"of a writer that was killed")
        grant(path)
        forbid, refused = FORBIDDEN[forbidden]
        forbid(path)
        held, before = DeltaTable(path).count(), set(everything(path))

        done = child(AS_NOBODY, path)
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert {name for name, error in said.items() if error} == refused
        for error in filter(None, said.values()):
            assert error.startswith("StoreError: ")
            assert "Permission denied" in error or "Operation not permitted" in error
            assert "\n" not in error
        table = DeltaTable(path)
        assert table.count() == held + ("append" not in refused) - ("delete" not in refused)
        # What a refused operation wrote is gone again.
        new = {name for name in set(everything(path)) - before if not name.startswith("_delta_log/")}
        assert new <= set(needs(table, table.version())) | set(needs(table, table.version() - 1))
        assert not (Path(folder) / "t-new").exists()


# --- a folder that is removed while it is in use ---


def vacuum_everything(table):
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


USES = {
    "append": lambda table: write_deltalake(table, SMALL, mode="append"),
    "overwrite": lambda table: write_deltalake(table, SMALL, mode="overwrite"),
    "delete": lambda table: table.delete("id = 1"),
    "delete all": lambda table: table.delete(),
    "alter": lambda table: table.alter.set_table_properties({"mine": "yes"}),
    "compact": lambda table: table.optimize.compact(),
    "restore": lambda table: table.restore(1),
    "checkpoint": lambda table: table.create_checkpoint(),
    "vacuum": vacuum_everything,
    "read": lambda table: table.to_pyarrow_table(),
    "history": lambda table: table.history(),
    "refresh": lambda table: table.update_incremental(),
}
STAGED = {
    "append": lambda txn: txn.append(SMALL),
    "delete": lambda txn: txn.delete("id = 1"),
    "delete all": lambda txn: txn.delete(),
    "compact": lambda txn: txn.compact(),
    "alter": lambda txn: txn.set_table_properties({"mine": "yes"}),
}
REMOVED = (errors.TableNotFoundError, errors.DataFileNotFoundError, errors.CommitFailedError, errors.StoreError)


@pytest.fixture
def table(tmp_path):
    vectors = {"delta.enableDeletionVectors": "true"}
    for _ in range(3):
        write_deltalake(tmp_path / "t", SMALL, mode="append", configuration=vectors)
    return DeltaTable(tmp_path / "t")


@pytest.mark.parametrize("use", USES)
def test_a_folder_that_was_removed(table, tmp_path, use):
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(REMOVED) as caught:
        USES[use](table)
    assert "\n" not in str(caught.value)
    assert everything(tmp_path) == []


@pytest.mark.sample(check=3)
@pytest.mark.parametrize("what", ["all", "log"])
@pytest.mark.parametrize("when", ["before the statement", "before the commit"])
@pytest.mark.parametrize("statement", STAGED)
def test_a_folder_that_is_removed_in_the_midst_of_a_transaction(table, tmp_path, statement, when, what):
    path = tmp_path / "t"
    txn = table.begin()
    if when == "before the commit":
        STAGED[statement](txn)
    shutil.rmtree(path if what == "all" else path / "_delta_log")

    def go_on():
        if when == "before the statement":
            STAGED[statement](txn)
        txn.commit()

    with pytest.raises(REMOVED):
        go_on()
    # Nothing of it comes back: neither a log that begins in the middle, nor an empty folder.
    assert [name for name in everything(tmp_path) if "/" not in name] == ([] if what == "all" else ["t"])
    assert not (path / "_delta_log").exists()


def test_a_table_that_is_replaced_in_the_midst_of_a_transaction(table, tmp_path):
    path = tmp_path / "t"
    txns = {name: table.begin() for name in STAGED}
    for name, txn in txns.items():
        STAGED[name](txn)
    shutil.rmtree(path)
    for _ in range(3):
        write_deltalake(path, SMALL, mode="append")
    before = everything(path)
    for txn in txns.values():
        with pytest.raises(errors.CommitFailedError, match="the table was removed or replaced"):
            txn.commit()
    assert everything(path) == before
    assert DeltaTable(path).count() == 9


def test_a_new_table_in_the_place_of_one_that_was_removed(table, tmp_path):
    path = tmp_path / "t"
    shutil.rmtree(path)
    assert write_deltalake(path, SMALL).version == 0
    with pytest.raises(errors.DeltaError):
        table.to_pyarrow_table()
    table.update_incremental()
    assert table.version() == 0
    assert table.count() == 3
