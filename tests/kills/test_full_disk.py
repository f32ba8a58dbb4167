"""The disk is full from some moment on: each moment, of each operation."""

from __future__ import annotations

import errno
import io
import os
import random
import shutil
import subprocess
import tempfile

import pytest

import refdelta_storage.disk
import refdelta_storage.local
import refdelta_storage.naming
import refdelta_storage.pinned
from api.killed_writers import OPERATIONS
from api.needed import needs, objects
from kills.steps import rows
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.transaction.driver import RetryPolicy
from refdelta_storage.disk import OutputFile


class FullDisk:
    """In the place of ``os``: after so many calls that need space, all of them fail. Removing files works.

    The one that comes too late writes half of what it should, as disks do.
    """

    def __init__(self, room):
        self.room = room

    def __getattr__(self, name):
        return getattr(os, name)

    def _needs_space(self):
        self.room -= 1
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write_part(self, write, data):
        if self.room == 1 and len(data) > 1:
            data = memoryview(data).cast("B")[: len(data) // 2]
        self._needs_space()
        return write(data)

    def write(self, descriptor, data):
        return self.write_part(lambda part: os.write(descriptor, part), data)

    def open(self, path, flags, *mode, **within):
        nameless = getattr(os, "O_TMPFILE", os.O_CREAT)
        if flags & os.O_CREAT or flags & nameless == nameless:
            self._needs_space()
        return os.open(path, flags, *mode, **within)

    def fsync(self, _descriptor):
        self._needs_space()  # nothing here outlives the power, so there is nothing to wait for

    def link(self, *paths, **options):
        self._needs_space()
        os.link(*paths, **options)

    def replace(self, *paths, **within):
        self._needs_space()
        os.replace(*paths, **within)  # noqa: PTH105

    def mkdir(self, path, **within):
        self._needs_space()
        os.mkdir(path, **within)  # noqa: PTH102


@pytest.fixture
def disk(monkeypatch):
    """Makes the disk full after so many calls; None is a disk with room."""

    def fill(room):
        full = FullDisk(10**9 if room is None else room)

        class Raw(io.FileIO):
            def write(self, data, /):
                return full.write_part(super().write, data)

        class File(OutputFile, Raw):
            pass

        for module in (refdelta_storage.local, refdelta_storage.pinned):
            monkeypatch.setattr(module, "OutputFile", File)
        # What fails is tried again a few times, in the hope that there is room by then.
        monkeypatch.setattr(RetryPolicy, "delay", lambda *_, **__: 0.0)
        for module in (refdelta_storage.local, refdelta_storage.naming, refdelta_storage.disk, refdelta_storage.pinned):
            monkeypatch.setattr(module, "os", full)

    return fill


def state(path):
    table = DeltaTable(path)
    return sorted(tuple(row.values()) for row in table.to_pyarrow_table().to_pylist()), table.metadata()


@pytest.fixture(scope="module")
def base(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("full") / "base"
    # The version that each operation commits gets a checkpoint, and a commit may not fail for it.
    properties = {
        "delta.enableDeletionVectors": str(request.param == "vectors").lower(),
        "delta.checkpointInterval": "5",
    }
    write_deltalake(path, rows(0, range(300), 1), configuration=properties)
    table = DeltaTable(path)
    table.delete("id % 5 = 2 and id < 200")
    for owner in (1, 2):
        write_deltalake(path, rows(owner, range(10), 2), mode="append")
    table.delete("owner = 2")
    return path


@pytest.mark.sample(test=2)
@pytest.mark.tier("test")
@pytest.mark.parametrize(
    ("base", "name"),
    [
        *(("vectors", name) for name in ("append", "delete", "update", "merge", "compact", "checkpoint", "vacuum")),
        *(("files", name) for name in ("overwrite", "update", "restore")),
    ],
    indirect=["base"],
)
def test_full_from_each_moment_on(base, tmp_path, disk, name):
    before, known = state(base), objects(base)
    whole = tmp_path / "whole"
    shutil.copytree(base, whole)
    OPERATIONS[name](str(whole))
    done = state(whole)

    refused, room = 0, 0
    while True:
        path = tmp_path / f"after-{room}"
        shutil.copytree(base, path)
        disk(room)
        try:
            OPERATIONS[name](str(path))
            error = None
        except errors.StoreError as refusal:
            error = str(refusal)
        finally:
            complete = refdelta_storage.local.os.room >= 0
            disk(None)
        if complete:
            break
        table = DeltaTable(path)
        if error is None:
            assert state(path) == done, f"{name} with room for {room}"
        else:
            refused += 1
            assert "No space left on device" in error
            assert "\n" not in error
            assert state(path) == (before if table.version() == 4 else done), f"{name} with room for {room}"
        # Nothing lies about that no version needs, if it did not before.
        assert objects(path) <= known | set(needs(table, table.version())), f"{name} with room for {room}"
        if table.version() == 4 and room % 4 == 1:
            OPERATIONS[name](str(path))
            assert state(path) == done, f"{name} with room for {room}, and with more"
        room += 1
    assert error is None
    assert refused >= 4


@pytest.fixture
def small_disk(tmp_path):
    """A file system of half a mebibyte."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", tmp_path], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("needs root and a system that lets it mount a tmpfs")
    yield tmp_path
    subprocess.run(["umount", "--lazy", tmp_path], check=True)


def append_until_full(path, count, held):
    while True:
        try:
            write_deltalake(path, rows(1, range(count), held), mode="append")
        except errors.StoreError:
            return held
        held += count


@pytest.mark.tier("test")
def test_a_disk_that_fills_up(small_disk):
    path = small_disk / "t"
    write_deltalake(path, rows(0, range(10), 0), configuration={"delta.enableDeletionVectors": "true"})
    table = DeltaTable(path)
    table.delete("id = 3")
    with (small_disk / "ballast").open("wb", buffering=0) as ballast:
        ballast.write(bytes(100_000))
    held = append_until_full(path, 400, held=9)
    held = append_until_full(path, 1, held)  # what is left of the last block
    assert DeltaTable(path).count() == len(DeltaTable(path).to_pyarrow_table()) == held
    for operation in (
        lambda t: t.delete("id % 2 = 0"),
        lambda t: t.optimize.compact(),
        lambda t: t.create_checkpoint(),
    ):
        with pytest.raises(errors.StoreError, match="No space left on device"):
            operation(DeltaTable(path))
    assert DeltaTable(path).count() == held
    (small_disk / "ballast").unlink()
    table = DeltaTable(path)
    table.optimize.compact()
    assert table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    write_deltalake(path, rows(1, range(400), held), mode="append")
    assert len(DeltaTable(path).to_pyarrow_table()) == held + 400


def test_no_room_on_this_machine_for_what_goes_to_s3(small_disk, monkeypatch, s3_server):
    """Files for an object store are collected here first, as nobody else can give up an upload."""
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    place = s3_server.place()
    write_deltalake(place.uri, rows(0, range(10), 0), storage_options=place.options)
    numbers = random.Random(1)
    large = rows(1, [numbers.getrandbits(62) for _ in range(200_000)], 0)
    with pytest.raises(errors.StoreError, match="No space left on device"):
        write_deltalake(place.uri, large, mode="append", storage_options=place.options)
    table = DeltaTable(place.uri, storage_options=place.options)
    assert (table.version(), table.count()) == (0, 10)
    assert table.vacuum(0, enforce_retention_duration=False, full=True) == []
    assert not any(small_disk.iterdir())
