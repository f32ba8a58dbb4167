"""Whole tables of which one file is the input. They are opened, read in every way and written to."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa

from fuzz.targets import CORPUS, Target, shown
from handmade import CHECKPOINT_SCHEMA, _as_arrow, parquet
from refdelta import DeltaTable, write_deltalake
from refdelta.core.log.codec import decode_commit
from refdelta.core.log.replay import Replay
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.log.state import to_adds
from refdelta.engine.parquet import ranged
from refdelta.engine.parquet.files import data_errors, open_parquet
from refdelta.engine.parquet.limits import BoundedParquetFile
from refdelta.errors import DeltaError
from refdelta_storage import LocalStore, MemoryStore
from refdelta_storage.base import Capabilities

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "fuzz"
URI = f"memory://{NAME}"
LOG = "_delta_log/"

Objects = dict[str, bytes]


# --- the sound table ---------------------------------------------------------------------------------------------


def _rows(numbers: list[int], part: str | None) -> pa.Table:
    count = len(numbers)
    inner = pa.struct([("x", pa.int32()), ("l", pa.list_(pa.string()))])
    columns = {
        "id": pa.array(numbers, pa.int64()),
        "part": pa.array([part] * count, pa.string()),
        "at": pa.array([n * 86_400_000_000 for n in numbers], pa.timestamp("us", "UTC")),
        "price": pa.array([f"{n}.50" for n in numbers], pa.string()).cast(pa.decimal128(10, 2)),
        "s": pa.array([{"x": n, "l": ["a", None]} for n in numbers], inner),
        "m": pa.array([[("k", float(n))] for n in numbers], pa.map_(pa.string(), pa.float64())),
    }
    return pa.table(columns)


@cache
def sound() -> Objects:
    """A small table with partitions, vectors in a file, a transaction, tombstones and, at version 4, a checkpoint."""
    store = MemoryStore("fuzz-sound")
    uri = store.uri
    properties = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "1000"}
    options: Any = {"partition_by": ["part"], "configuration": properties}
    write_deltalake(uri, _rows([1, 2, 3, 4], "a"), **options)
    write_deltalake(uri, _rows([5, 6, 7], None), mode="append")
    DeltaTable(uri).delete("id = 2")
    write_deltalake(uri, _rows([8, 9], "b c"), mode="append", app_id="app", app_version=3)
    DeltaTable(uri).update({"part": "'z'"}, predicate="id = 9")
    table = DeltaTable(uri)
    table.create_checkpoint()
    write_deltalake(uri, _rows([10], "a"), mode="append")
    table.update_incremental()
    table.delete("id in (3, 7)")
    return {info.key: store.get(info.key) for info in store.list()}


@cache
def answer() -> list[int]:
    """The ids of the sound table."""
    return _ids(_opened(sound()))


def _ids(table: DeltaTable) -> list[int]:
    return sorted(table.to_pyarrow_table(columns=["id"])["id"].to_pylist())


def _opened(objects: Objects) -> DeltaTable:
    _place(objects)
    return DeltaTable(URI)


def _place(objects: Objects) -> MemoryStore:
    store = MemoryStore(NAME)
    store.delete([info.key for info in store.list()])
    for key, data in objects.items():
        store.put(key, data)
    return store


def _key(version: int, suffix: str = ".json") -> str:
    return f"{LOG}{version:020d}{suffix}"


def _commits() -> list[bytes]:
    return [data for key, data in sorted(sound().items()) if key.startswith(LOG) and key.endswith(".json")]


# --- what is done to a table -------------------------------------------------------------------------------------


def _all(*steps: Callable[[], Any]) -> tuple[bool, ...]:
    """Take steps, each of which may end in a DeltaError; say which did."""
    return tuple(_one(step) for step in steps)


def _one(step: Callable[[], Any]) -> bool:
    try:
        step()
    except DeltaError as error:
        shown(str(error))
        return False
    return True


def read(table: DeltaTable) -> Any:
    """Read a table in every way that there is."""
    done = _all(
        table.schema,
        table.detail,
        table.history,
        table.files,
        table.file_uris,
        table.get_add_actions,
        lambda: table.get_add_actions(flatten=True),
        table.partitions,
        table.to_pyarrow_table,
        lambda: table.to_pyarrow_table(filters="id > 2 AND at < TIMESTAMP '2020-01-01' AND price <> 3.5"),
        lambda: table.to_pyarrow_table(columns=["id"], filters=[("part", "=", "a")]),
        table.count,
        lambda: str(table.scan(predicate="part = 'a' AND s.x > 1").explain()),
        lambda: table.vacuum(dry_run=True),
        lambda: DeltaTable(URI, version="2099-01-01"),
    )
    return table.version(), len(table.schema().fields) if done[0] else -1, done


def write(table: DeltaTable) -> Any:
    """Write to a table in most ways that there are."""
    rows = _rows([20], "a")
    return _all(
        lambda: write_deltalake(URI, rows, mode="append"),
        lambda: table.delete("id = 1"),
        lambda: table.update({"id": "id + 100"}, predicate="part = 'a'"),
        table.optimize.compact,
        table.create_checkpoint,
        table.cleanup_metadata,
        lambda: write_deltalake(URI, rows, mode="overwrite", predicate="part = 'a'"),
        lambda: (
            table.merge(rows, "target.id = source.id", source_alias="source", target_alias="target")
            .when_matched_delete()
            .execute()
        ),
        lambda: table.restore(0),
        lambda: table.vacuum(retention_hours=200),
    )


# --- targets -----------------------------------------------------------------------------------------------------


def _with_last(data: bytes) -> Objects:
    """The table whose last commit is the input; the checkpoint is left out."""
    objects = {
        key: value for key, value in sound().items() if ".checkpoint." not in key and "_last_checkpoint" not in key
    }
    return objects | {_key(6): data}


def log(data: bytes) -> Any:
    """A commit, in a table: its files are those of the plain definition."""
    table = _opened(_with_last(data))
    plain = Replay()
    for commit in [*_commits()[:6], data]:
        plain.apply(decode_commit(commit, "x"))
    assert len(to_adds(load_snapshot(table.store).files)) == len(plain.files)
    return read(table)


def statements(data: bytes) -> Any:
    """A commit, in a table that is written to."""
    return write(_opened(_with_last(data)))


def first(data: bytes) -> Any:
    """A table's only commit."""
    return read(_opened({key: value for key, value in sound().items() if not key.startswith(LOG)} | {_key(0): data}))


def _only_checkpoint(key: str, data: bytes) -> Objects:
    gone = [_key(version) for version in range(5)]
    objects = {
        k: v for k, v in sound().items() if k not in gone and ".checkpoint." not in k and "_last_checkpoint" not in k
    }
    return objects | {key: data}


def checkpoint(data: bytes) -> Any:
    """A checkpoint, of a table that cannot do without it; through a stream and as a local file."""
    objects = _only_checkpoint(_key(4, ".checkpoint.parquet"), data)
    table = _opened(objects)
    done = read(table)
    _one(table.create_checkpoint)
    return done


def shapes(data: bytes) -> Any:
    """A checkpoint of actions in JSON, whose columns have the types that these take in Arrow."""
    rows = []
    for line in data.split(b"\n"):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and row:
            rows.append(row)
    try:
        content = _table(rows, inferred=len(data) % 2 == 1)
    except (pa.ArrowException, ValueError, TypeError, OverflowError, RecursionError, AttributeError, KeyError):
        return None  # Arrow has no such columns
    return checkpoint(content)


def _table(rows: list[dict[str, Any]], *, inferred: bool) -> bytes:
    arrays = {}
    for name in dict.fromkeys(key for row in rows for key in row):
        values = [_as_arrow(row.get(name)) for row in rows]
        known = None if inferred or name not in CHECKPOINT_SCHEMA.names else CHECKPOINT_SCHEMA.field(name).type
        try:
            arrays[name] = pa.array(values, known)
        except (pa.ArrowException, ValueError, TypeError):
            arrays[name] = pa.array(values)
    return parquet(pa.table(arrays))


def manifest(data: bytes) -> Any:
    """A V2 checkpoint in JSON."""
    return read(_opened(_only_checkpoint(_key(4, ".checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json"), data)))


def last_checkpoint(data: bytes) -> Any:
    """The hint, in a table: the answer is right whatever it says."""
    table = _opened(sound() | {f"{LOG}_last_checkpoint": data})
    assert _ids(table) == answer()
    table.create_checkpoint()
    assert _ids(DeltaTable(URI)) == answer()
    return None


def crc(data: bytes) -> Any:
    """A version checksum, in a table: the answer is right whatever it says, and so is the next commit."""
    table = _opened(sound() | {_key(6, ".crc"): data})
    assert _ids(table) == answer()
    table.delete("id = 1")
    assert _ids(DeltaTable(URI)) == answer()[1:]
    return None


def vectors(data: bytes) -> Any:
    """A file of vectors: its checksums see every change."""
    key = next(key for key in sorted(sound()) if key.endswith(".bin"))
    table = _opened(sound() | {key: data})
    done = _one(lambda: _right(_ids(table)))
    _all(table.count, lambda: table.delete("id = 4"), table.optimize.compact)
    return done


def _right(found: list[int]) -> None:
    assert found == answer()


def _vector_files() -> list[bytes]:
    return [data for key, data in sorted(sound().items()) if key.endswith(".bin")]


def data_file(data: bytes) -> Any:
    """A data file: through a stream and as a local file it is the same, rows or an error."""
    key = "f.parquet"
    rest = {"size": len(data), "modificationTime": 1, "dataChange": True}
    add = {"path": key, "partitionValues": {"part": "a"}, **rest}
    first_commit = _commits()[0].split(b"\n")
    lines = [line for line in first_commit if b'"add"' not in line and line]
    objects = {_key(0): b"\n".join([*lines, json.dumps({"add": add}).encode()]), key: data}
    table = _opened(objects)
    outcome = _rows_or_none(table)
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder:
        local = LocalStore(folder)
        for name, content in objects.items():
            local.put(name, content)
        found = _rows_or_none(DeltaTable(folder))
    assert (outcome is None) == (found is None)
    assert outcome is None or outcome.equals(found) or _has_nan(outcome)
    return outcome is None, _all(
        table.count,
        lambda: table.to_pyarrow_table(filters="id > 2 AND s.x < 4"),
        lambda: table.to_pyarrow_table(columns=[]),
        lambda: table.delete("id = 3"),
        lambda: table.optimize.z_order(["id"]),
    )


class _Far(MemoryStore):
    """A store to which every request is a round trip."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, remote=True)


def far(data: bytes) -> Any:
    """A data file over a network, of which no more is fetched than its footer says: as many rows as at once."""
    store = _Far()
    store.put("f", data)
    with patch.multiple(ranged, WHOLE_BYTES=64, FOOTER_BYTES=512, GAP_BYTES=16, REQUEST_BYTES=256, CHUNK_BYTES=600):
        found = _batches(lambda: open_parquet(store, "f", len(data)))
    expected = _batches(
        lambda: BoundedParquetFile(pa.BufferReader(data), lambda start, length: data[start : start + length])
    )
    # Where the levels of a list are damaged, what comes of it depends on which row groups are read together.
    assert found is None or expected is None or found.num_rows == expected.num_rows
    return found is None


def _batches(opened: Callable[[], BoundedParquetFile]) -> pa.Table | None:
    try:
        with data_errors("f"), opened() as file:
            batches = list(file.iter_batches(7))
            return pa.Table.from_batches(batches) if batches else None
    except DeltaError as error:
        shown(str(error))
        return None


def _has_nan(table: pa.Table) -> bool:
    return "nan" in str(table["m"].to_pylist())


def _memory_folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _rows_or_none(table: DeltaTable) -> pa.Table | None:
    try:
        found = table.to_pyarrow_table()
    except DeltaError as error:
        shown(str(error))
        return None
    found.validate(full=True)
    return found


def _data_files() -> list[bytes]:
    some = [data for key, data in sorted(sound().items()) if key.endswith(".parquet") and not key.startswith(LOG)][:2]
    rows = _rows(list(range(40)), "a").drop_columns(["part"])
    ways = ("none", True, "1.0"), ("snappy", False, "2.0"), ("zstd", True, "2.0")
    return some + [
        parquet(rows, compression=codec, row_group_size=15, use_dictionary=words, data_page_version=version)
        for codec, words, version in ways
    ]


def listing(data: bytes) -> Any:
    """Names in the log's folder that nobody expects: the answer is the right one, or an error."""
    names = data.decode("utf-8", "replace").split("\n")[:20]
    store = _place(sound())
    for name in names:
        try:
            store.put(LOG + name, b"{}")
        except Exception:
            continue
    if any(LOG + name in sound() for name in names):
        return None
    return read(DeltaTable(URI))


def _corpus(name: str) -> Callable[[], list[bytes]]:
    return lambda: [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]


def _checkpoints() -> list[bytes]:
    return [data for key, data in sorted(sound().items()) if key.endswith(".checkpoint.parquet")]


def _checkpoint_lines() -> list[bytes]:
    actions = [line for commit in _commits()[:5] for line in commit.split(b"\n") if line and b"commitInfo" not in line]
    return [b"\n".join(actions), b"\n".join(line for line in actions if b'"remove"' not in line)]


def _manifests() -> list[bytes]:
    return [lines + b'\n{"checkpointMetadata":{"version":4}}\n' for lines in _checkpoint_lines()]


_WORDS = b"add remove path schema metaData partitionValues list key_value id ARROW:schema PAR1".split()
_SIZES = (b"\x15\x80\x80\x80\x80\x10", b"\xff\xff\xff\xff\x0f")

TARGETS = [
    Target("log", log, "json", 2, lambda: [*_commits()[5:], *_corpus("commit")()]),
    Target("statements", statements, "json", 1, lambda: _commits()[5:]),
    Target("first", first, "json", 2, lambda: [*_commits()[:1], *_corpus("commit")()]),
    Target("checkpoint", checkpoint, "parquet", 2, _checkpoints, (*_WORDS, *_SIZES), outside=True),
    Target("shapes", shapes, "json", 2, _checkpoint_lines),
    Target("manifest", manifest, "json", 1, _manifests),
    Target("hint-in-table", last_checkpoint, "json", 1, _corpus("hint")),
    Target("crc-in-table", crc, "json", 1, _corpus("checksum")),
    Target("vectors", vectors, "bytes", 1, lambda: _vector_files()[:1]),
    Target("data-file", data_file, "parquet", 3, _data_files, (*_WORDS, *_SIZES), outside=True),
    Target("far", far, "parquet", 4, _data_files, (*_WORDS, *_SIZES), outside=True),
    Target("listing", listing, "text", 1, _corpus("names")),
]
