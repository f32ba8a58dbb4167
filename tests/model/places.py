"""The life of a place beside the work that follows a commit, and beside a commit: every point between two calls to the
store at which the table may be removed, made anew, moved away, or led elsewhere by a symbolic link.

A place is a store whose calls are counted. At the call of a given number an event happens, and the work goes on. At the
end the place must hold exactly the files of the table that was made there last, byte for byte. Only the hint of a new
table may be lost, where the folder stayed or there are no folders: a hint is replaced by one request, without a
condition. It is never wrong.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
from msgspec import structs

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.core.log.checksum import encode_checksum
from refdelta.engine.log import checkpoint_write
from refdelta.engine.log.checksum_write import put_checksum
from refdelta.engine.log.snapshot import Snapshot, load_snapshot
from refdelta.transaction import post_commit
from refdelta_storage import Capabilities, LocalStore, MemoryStore, Store, TracingStore, open_store

Files = dict[str, bytes]

ROW = pa.table({"n": pa.array([1], pa.int64())})


class Yielding(TracingStore):
    """Counts its calls; before the call of a given number something happens."""

    def __init__(self, inner: Store, *, remote: bool = False) -> None:
        super().__init__(inner)
        self.remote, self.count, self.happens = remote, 0, dict[int, Callable[[], None]]()

    @property
    def capabilities(self) -> Capabilities:
        inner = self.inner.capabilities
        return Capabilities(inner.put_if_absent, inner.list_after, inner.durable, self.remote or inner.remote)

    def _see(self, operation: Any, keys: list[str]) -> None:
        happens = self.happens.pop(self.count, None)
        self.count += 1
        if happens is not None:
            happens()
        super()._see(operation, keys)

    @contextmanager
    def open_output(self, key: str) -> Iterator[BinaryIO]:
        with super().open_output(key) as stream:
            yield stream
            self._see("open_output", [key])

    @contextmanager
    def create_output(self, key: str) -> Iterator[BinaryIO]:
        with super().create_output(key) as stream:
            yield stream
            self._see("open_output", [key])

    @contextmanager
    def pinned(self, folder: str) -> Iterator[Store]:
        self._see("local_path", [folder])
        with self.inner.pinned(folder) as inner:
            view = Yielding.__new__(Yielding)
            view.__dict__ = self.__dict__  # the counts are those of this store
            mine, self.inner = self.inner, inner
            try:
                yield view
            finally:
                self.inner = mine

    def hasty(self) -> Store:
        return self


class Place:
    """A place of a table: objects of a service, or a folder of a disk behind a symbolic link.

    Args:
        path: the folder of the link; None for objects.
        objects: the store of the objects, which is empty; one in memory unless given.
    """

    def __init__(self, path: Path | None = None, objects: Store | None = None) -> None:
        self.path, self.number = path, 0
        self.objects = MemoryStore(None) if objects is None else objects
        if path is not None:
            self._lead()
        self.store = Yielding(
            self.objects if path is None else LocalStore(path / "t", fsync=False), remote=path is None
        )

    def _lead(self) -> Path:
        """Lead the link to a new folder."""
        assert self.path is not None
        self.number += 1
        target, link = self.path / f"target{self.number}", self.path / "link"
        target.mkdir()
        link.symlink_to(target)
        link.rename(self.path / "t")
        return target

    def put(self, files: Files) -> None:
        for key, data in files.items():
            if self.path is None:
                self.objects.put(key, data)
            else:
                file = self.path / "t" / key
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)

    def remove(self) -> None:
        if self.path is None:
            self.objects.delete([info.key for info in self.objects.list()])
        else:
            for child in (self.path / "t").iterdir():
                if child.is_dir():
                    shutil.rmtree(child)
                else:
                    child.unlink()

    def empty(self) -> None:
        """Remove the files, and on a disk no folder."""
        if self.path is None:
            self.remove()
        else:
            for file in [*(self.path / "t").rglob("*")]:
                if file.is_file():
                    file.unlink()

    def lead_elsewhere(self) -> None:
        """On a disk, lead the link to another folder, or move the folder away: the table lives on."""
        self.remove() if self.path is None else self._lead()

    @property
    def files(self) -> Files:
        if self.path is None:
            return {info.key: self.objects.get(info.key) for info in self.objects.list()}
        root = self.path / "t"
        return {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}

    @property
    def folders(self) -> list[str]:
        root = (self.path or Path()) / "t"
        return (
            [] if self.path is None else sorted(str(one.relative_to(root)) for one in root.rglob("*") if one.is_dir())
        )


# --- the tables ---

_names = itertools.count()


def made(versions: int, *, checkpoint: int | None = None, v2: bool = False, bare: bool = False) -> Files:
    """The files of a table of one file a version.

    Args:
        versions: the number of its versions.
        checkpoint: the version of its checkpoint; None for none.
        v2: whether its checkpoints are of the policy v2.
        bare: whether it has neither checksums nor a hint, as tables of other libraries.
    """
    uri = f"memory://place-{next(_names)}"
    policy = {"delta.checkpointPolicy": "v2"} if v2 else {}
    write_deltalake(uri, ROW, configuration={"delta.checkpointInterval": "1000"} | policy)
    for _ in range(versions - 1):
        write_deltalake(uri, ROW, mode="append")
    store = open_store(uri)
    if checkpoint is not None:
        checkpoint_write.write_checkpoint(store, load_snapshot(store, checkpoint))
    files = {info.key: store.get(info.key) for info in store.list()}
    return {key: data for key, data in files.items() if not (bare and (key.endswith(".crc") or "_last" in key))}


# --- the work ---


def _maintenance(snapshot: Snapshot, whole: bool, compacted: int | None, cleanup: bool) -> None:
    post_commit._Maintenance(snapshot, snapshot.version, whole, compacted, cleanup).run()


def _checkpoint_by_the_user(snapshot: Snapshot) -> None:
    with contextlib.suppress(errors.DeltaError):
        checkpoint_write.write_checkpoint(snapshot.store, snapshot)


def _checksum(snapshot: Snapshot) -> None:
    with contextlib.suppress(errors.DeltaError):
        put_checksum(snapshot.store, snapshot, encode_checksum(snapshot.checksum()))


WORKS: dict[str, Callable[[Snapshot], None]] = {
    "checkpoint": lambda snapshot: _maintenance(snapshot, True, None, False),
    "checkpoint by the user": _checkpoint_by_the_user,
    "checksum": _checksum,
    "log compaction": lambda snapshot: _maintenance(snapshot, False, 2, False),
    "cleanup": lambda snapshot: _maintenance(snapshot, False, None, True),
}
"""The kinds of work. V2 checkpoints are the checkpoints of a table with that policy."""


class Case(NamedTuple):
    """A run.

    Attributes:
        work: the kind of work.
        old: the table that it belongs to.
        new: the tables that take its place.
        remote: whether the place is one of objects.
        objects: gives the store of the objects of each run; one in memory unless given.
    """

    work: Callable[[Snapshot], None]
    old: Files
    new: tuple[Files, ...]
    remote: bool
    objects: Callable[[], Store] = MemoryStore


def own(snapshot: Snapshot) -> Snapshot:
    """The snapshot as the writer of its version has it, which no listing has shown the commit to."""
    last = snapshot.segment.last_commit
    assert last is not None
    segment = structs.replace(snapshot.segment, last_commit=structs.replace(last, mtime_ms=None, tag=None))
    return dataclasses.replace(snapshot, segment=segment)


def wrong(case: Case, path: Path, every: int = 1) -> Iterator[str]:
    """Each fault that some order of events leaves. Of the orders, every so manieth is tried."""
    counted = _run(case, path / "count", {}, None, 0)[1]
    orders = [
        (new, way, first, second)
        for new in case.new
        for way in (("remove",) if case.remote else ("remove", "empty", "lead_elsewhere"))  # all the same to objects
        for first in range(counted + 1)
        # The new table comes at once, at some later call, or after the work.
        for second in sorted({first, *range(first + 1, counted + 1, 3), counted + 100})
    ]
    for number, (new, way, first, second) in enumerate(orders[::every]):
        found, _ = _run(case, path / str(number), new, way, first, second)
        yield from (f"{way} at {first}, made anew at {second}: {one}" for one in found)


def _run(case: Case, path: Path, new: Files, way: str | None, first: int, second: int = 0) -> tuple[list[str], int]:
    """Run the work beside two events; returns the faults, and the number of its calls."""
    path.mkdir()
    place = Place(None, case.objects()) if case.remote else Place(path)
    place.put(case.old)
    snapshot = own(load_snapshot(place.store))
    place.store.count, made_anew = 0, [False]
    place.store.calls.clear()

    def make() -> None:
        if not made_anew[0]:
            made_anew[0] = True
            place.put(new)

    def remove() -> None:
        getattr(place, str(way))()
        if second == first:
            make()

    if way is not None:
        place.store.happens = {first: remove} | ({second: make} if second != first else {})
    case.work(snapshot)
    count = place.store.count
    if way is None:
        return [], count
    if first >= count:
        remove()
    changes = {"put", "put_if_absent", "open_output", "delete"}
    early = first == second == 0 and any(operation in changes for operation, _ in place.store.calls)
    left_first = ["it wrote to a table that took the place before the work began"] * early
    left = [f"it has left {sorted(place.files)}"] if place.files and not made_anew[0] else []
    if way == "remove" and not made_anew[0] and first < count:
        left += [f"it has left {folder}" for folder in place.folders]
    make()
    files = place.files
    for key, data in new.items():
        if files.get(key) != data and not (key.endswith("_last_checkpoint") and (case.remote or way == "empty")):
            left.append(f"{key} of the new table is gone or another one")
    left += [f"{key} is left" for key in sorted(files.keys() - new.keys())]
    if case.work is not _checksum:  # its version was committed just before
        left += left_first
    shutil.rmtree(path)
    return left, count


# --- commits ---


def wrong_commits(old: Files, new: tuple[Files, ...], path: Path, *, remote: bool) -> Iterator[str]:
    """Each fault that a commit leaves in a table that is made anew before one of its calls."""
    runs = itertools.count()
    for table in new:
        for way in ("remove", "empty", "lead_elsewhere"):
            for at in itertools.count():
                found, count = _commit_run(old, table, way, at, path / str(next(runs)), remote=remote)
                yield from (f"{way} at {at}: {one}" for one in found)
                if at > count:
                    break


def _commit_run(old: Files, new: Files, way: str, at: int, path: Path, *, remote: bool) -> tuple[list[str], int]:
    path.mkdir()
    place = Place(None if remote else path)
    place.put(old)
    txn = DeltaTable.in_store(place.store).begin()
    txn.append(ROW)
    ends: dict[str, str | None] = {"event": None}

    def replace() -> None:
        getattr(place, way)()
        place.put(new)
        ends["event"] = place.store.calls[-1][1] if place.store.calls else ""

    place.store.calls.clear()
    place.store.count, place.store.happens = 0, {at: replace}
    outcome = "committed"
    with contextlib.suppress(errors.DeltaError):
        outcome = "failed"
        txn.commit()
        outcome = "committed"
    count = place.store.count
    if at >= count:
        return [], count
    files = place.files
    left = [f"{key} of the new table is gone or another one" for key, data in new.items() if files.get(key) != data]
    left += [f"{key} is left ({outcome})" for key in sorted(files.keys() - new.keys()) if key.startswith("_delta_log")]
    shutil.rmtree(path)
    return left, count
