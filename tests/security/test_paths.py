"""No path in a log reaches an object outside of the table's folder: to read it, to name it, to delete it.

The policy is in SECURITY.md: what would need such an object is refused, with an error that names the path.
"""

from __future__ import annotations

import functools
import os
import stat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from handmade import (
    CHECKPOINT_SCHEMA,
    VECTORS,
    Handmade,
    add,
    checkpoint_file,
    field,
    lines,
    metadata,
    parquet,
    remove,
    struct,
)
from refdelta import DeltaTable, write_deltalake
from refdelta.core.log.actions import Remove
from refdelta.engine.log.references import referenced_keys
from refdelta.engine.log.state import removes_table
from refdelta.errors import DataFileNotFoundError, DeltaError, StoreError, UnsafePathError
from refdelta_storage import LocalStore, StorageError, local, open_store

COLUMNS = struct(field("a", "long"))
SECRET = 666
UUID = "ab^-aqEH.-t@S}K{vb[*"  # of the file deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin

# Each names the object `outside.parquet` beside the table's folder to somebody: to a shell, a URI, Hadoop, Windows.
ELSEWHERE = {
    "parent": "../outside.parquet",
    "parent, below": "p=1/../../outside.parquet",
    "parent, encoded": "%2e%2e/outside.parquet",
    "parent, all encoded": "%2E%2E%2Foutside.parquet",
    "parent after ./": "./../outside.parquet",
    "parent in a folder of the log": "_delta_log/../../outside.parquet",
    "parent by backslash": "..\\outside.parquet",
    "parent by backslash, encoded": "p=1%5C..%5C..%5Coutside.parquet",
    "slash, encoded": "%2F{path}/outside.parquet",
    "absolute": "/{path}/outside.parquet",
    "absolute with two slashes": "//{path}/outside.parquet",
    "file": "file:///{path}/outside.parquet",
    "file with one slash": "file:/{path}/outside.parquet",
    "file of a host": "file://host/{path}/outside.parquet",
    "file through the table": "{uri}/../outside.parquet",
    "a folder whose name begins as the table's": "{uri}2/outside.parquet",
    "nul": "outside.parquet%00x",
    "another store": "s3://another/outside.parquet",
    "a server": "http://192.0.2.1/latest/data",
    "data": "data:application/octet-stream;base64,UEFSMQ==",
    "nothing": "",
    "the table": ".",
    "not utf-8": "%c0%ae%c0%ae/outside.parquet",
}
# These look alike, and are names like any other: nothing has them, in the table or elsewhere.
NAMES = {
    "wide dots": "\uff0e\uff0e/outside.parquet",
    "dot leaders": "\u2024\u2024/outside.parquet",
    "a wide slash": "..\uff0foutside.parquet",
    "encoded twice": "%252e%252e/outside.parquet",
    "three dots": ".../outside.parquet",
    "tilde": "~/outside.parquet",
    "variable": "$HOME/outside.parquet",
    "a scheme, encoded": "file%3A%2F%2F/outside.parquet",
    "pattern": "*/outside.parquet",
    "query": "x.parquet?versionId=1",
}


@pytest.fixture
def outside(place):
    """A store around the table's folder, which holds what no table may reach."""
    around = open_store(place.uri.rpartition("/")[0], place.options)
    content = parquet(pa.table({"a": [SECRET]}))
    around.put("outside.parquet", content)
    around.put("t2/outside.parquet", content)
    return around


def written(place, raw: str) -> str:
    uri = open_store(place.uri, place.options).uri
    return raw.replace("{uri}", uri).replace("{path}", uri.partition("://")[2].strip("/").rpartition("/")[0])


def everything(place) -> list[BaseException | object]:
    """What each verb that follows paths of the log does with the table."""

    table = functools.partial(DeltaTable, place.uri, storage_options=place.options)
    verbs = (
        lambda: table().to_pyarrow_table(),
        lambda: table().to_pyarrow_table(filters=f"a = {SECRET}"),
        lambda: table().file_uris(),
        lambda: table().delete(f"a = {SECRET}"),
        lambda: table().update({"a": "a + 1"}, predicate=f"a = {SECRET}"),
        lambda: table().optimize.compact(),  # noqa: PLW0108 - a fresh handle each time
        lambda: table().vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=True),
        lambda: table().vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True),
    )
    # Paths become keys before any store sees them; what is left for the remote ones is that names stay names.
    some = verbs[:1] + verbs[-1:] if place.options else verbs
    found: list[BaseException | object] = []
    for verb in some:
        try:
            found.append(verb())
        except DeltaError as error:
            found.append(error)
    return found


@pytest.mark.sample(check=15, test=40)
@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_data_file_elsewhere(name, place, outside):
    made = Handmade(COLUMNS, store=open_store(place.uri, place.options))
    made.commit(made.data("good.parquet", pa.table({"a": [1]})), add(written(place, ELSEWHERE[name]), rows=1))
    results = everything(place)
    assert [type(result).__name__ for result in results if not isinstance(result, DeltaError)] == []
    if name != "not utf-8":
        assert {type(result) for result in results} == {UnsafePathError}
    assert DeltaTable(place.uri, storage_options=place.options).version() == 1
    assert {"outside.parquet", "t2/outside.parquet"} <= {info.key for info in outside.list()}


@pytest.mark.sample(check=8)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_looks_like_a_way_out(name, place, outside):
    store = open_store(place.uri, place.options)
    made = Handmade(COLUMNS, store=store)
    made.commit(made.data("good.parquet", pa.table({"a": [1]})), add(NAMES[name], rows=1))
    read, *_ = everything(place)
    assert isinstance(read, DeltaError)
    assert {"outside.parquet", "t2/outside.parquet"} <= {info.key for info in outside.list()}
    # And where there is such an object in the table, it is this one that is read.
    made.commit(remove("good.parquet"), remove(NAMES[name]), made.data("again.parquet", pa.table({"a": [2]})))
    assert DeltaTable(place.uri, storage_options=place.options).to_pyarrow_table().column("a").to_pylist() == [2]


def test_a_shallow_clone_is_refused_by_name(tmp_path):
    write_deltalake(tmp_path / "source", pa.table({"a": [1]}))
    source = DeltaTable(tmp_path / "source").file_uris()[0]
    made = Handmade(COLUMNS, store=LocalStore(tmp_path / "clone"))
    made.commit(add(f"file://{source}", rows=1))
    with pytest.raises(UnsafePathError, match="shallow clone"):
        DeltaTable(tmp_path / "clone").to_pyarrow_table()


# --- the other paths of a log ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("p", "file:///{path}/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"),
        ("p", "/{path}/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"),
        ("p", "{uri}/../deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"),
        ("p", "http://192.0.2.1/latest/data"),
        ("p", "../deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"),
        ("u", "../" + UUID),
        ("u", ".." + UUID),
        ("u", "/" + UUID),
        ("u", "a/../../" + UUID),
        ("u", "..\\" + UUID),
        ("u", "file:" + UUID),
        ("u", "a\0b" + UUID),
    ],
)
def test_a_deletion_vector_elsewhere(kind, text, tmp_path):
    store = LocalStore(tmp_path / "t")
    made = Handmade(COLUMNS, store=store, protocol=VECTORS)
    (tmp_path / "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin").write_bytes(b"\1" + b"\0" * 50)
    vector = {
        "storageType": kind,
        "pathOrInlineDv": text.replace("{uri}", store.uri).replace("{path}", str(tmp_path)[1:]),
        "offset": 1,
        "sizeInBytes": 36,
        "cardinality": 1,
    }
    made.commit(made.data("x.parquet", pa.table({"a": [1, 2]}), deletionVector=vector))
    for verb in (
        lambda table: table.to_pyarrow_table(),
        lambda table: table.delete("a = 1"),
        lambda table: table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False),
    ):
        with pytest.raises(DeltaError) as caught:
            verb(DeltaTable(tmp_path / "t"))
        assert isinstance(caught.value, UnsafePathError) or "legal key" in str(caught.value)
    assert (tmp_path / "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin").exists()


SIDECARS = ["../../outside.parquet", "%2e%2e/x.parquet", "file:///{path}/outside.parquet", "/{path}/outside.parquet"]


@pytest.mark.parametrize("sidecar", SIDECARS)
@pytest.mark.parametrize("shape", ["json", "parquet"])
def test_a_sidecar_elsewhere(sidecar, shape, tmp_path):
    features = {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}
    v2 = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    made = Handmade(COLUMNS, store=LocalStore(tmp_path / "t"), protocol=v2)
    (tmp_path / "outside.parquet").write_bytes(checkpoint_file([add("x.parquet", rows=1)]))
    actions = [
        v2,
        metadata(COLUMNS),
        {"checkpointMetadata": {"version": 0}},
        {"sidecar": {"path": sidecar.replace("{path}", str(tmp_path)[1:]), "sizeInBytes": 1, "modificationTime": 1}},
    ]
    name = f"_delta_log/{0:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.{shape}"
    if shape == "json":
        made.put(name, lines(*actions))
    else:
        made.put(name, _checkpoint_with_features(actions))
    made.store.delete([f"_delta_log/{0:020d}.json"])
    with pytest.raises(UnsafePathError):
        DeltaTable(tmp_path / "t").to_pyarrow_table()


def _checkpoint_with_features(actions):
    features = pa.list_(pa.string())
    schema = pa.schema(
        [
            (
                "protocol",
                pa.struct(
                    [
                        ("minReaderVersion", pa.int32()),
                        ("minWriterVersion", pa.int32()),
                        ("readerFeatures", features),
                        ("writerFeatures", features),
                    ]
                ),
            ),
            *(item for item in _schema_of(actions[1:])),
        ]
    )
    return checkpoint_file(actions, schema)


def _schema_of(actions):
    return [item for item in CHECKPOINT_SCHEMA if any(item.name in action for action in actions)]


def test_restore_brings_nothing_back_from_elsewhere(tmp_path):
    (tmp_path / "outside.parquet").write_bytes(parquet(pa.table({"a": [SECRET]})))
    made = Handmade(COLUMNS, store=LocalStore(tmp_path / "t"))
    made.commit(add("../outside.parquet", rows=1))
    made.commit(remove("../outside.parquet"), made.data("x.parquet", pa.table({"a": [1]})))
    with pytest.raises(UnsafePathError):
        DeltaTable(tmp_path / "t").restore(1)
    with pytest.raises(UnsafePathError):
        DeltaTable(tmp_path / "t").restore(1, ignore_missing_files=True)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().column("a").to_pylist() == [1]


def test_vacuum_deletes_only_what_is_in_the_folder(tmp_path):
    """Removed long ago, so that a VACUUM that went by the log's entries would take them."""
    (tmp_path / "outside.parquet").write_bytes(b"x")
    made = Handmade(COLUMNS, store=LocalStore(tmp_path / "t"))
    gone = [
        "../outside.parquet",
        f"file://{tmp_path}/outside.parquet",
        f"{tmp_path}/outside.parquet",
        "%2e%2e/outside.parquet",
    ]
    made.commit(*(remove(path) for path in gone), made.data("x.parquet", pa.table({"a": [1]})))
    made.put("garbage.parquet", b"x")
    os.utime(tmp_path / "t" / "garbage.parquet", (1, 1))
    (tmp_path / "t" / "link").symlink_to(tmp_path)
    (tmp_path / "t" / "link.parquet").symlink_to(tmp_path / "outside.parquet")
    for full in (False, True):
        DeltaTable(tmp_path / "t").vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=full)
    assert (tmp_path / "outside.parquet").exists()
    assert not (tmp_path / "t" / "garbage.parquet").exists()
    assert DeltaTable(tmp_path / "t").count() == 1


def test_every_odd_path_is_looked_at():
    """VACUUM takes most paths as they stand, by one expression over all of them: it must not miss any of these."""
    for raw in ELSEWHERE.values():
        path = raw.replace("{uri}", "memory://somewhere/t").replace("{path}", "somewhere")
        with pytest.raises(DeltaError):
            referenced_keys(removes_table([Remove(path=path)]), "memory://somewhere/t").to_pylist()


# --- what is in the folder, and leads out of it ------------------------------------------------------------------


def test_links_out_of_the_folder_are_not_followed(tmp_path):
    pq.write_table(pa.table({"a": [SECRET]}), tmp_path / "outside.parquet")
    (tmp_path / "log").mkdir()
    made = Handmade(COLUMNS, store=LocalStore(tmp_path / "t"))
    (tmp_path / "t" / "x.parquet").symlink_to(tmp_path / "outside.parquet")
    (tmp_path / "t" / "folder").symlink_to(tmp_path)
    made.commit(add("x.parquet", rows=1))
    made.commit(remove("x.parquet"), add("folder/outside.parquet", rows=1))
    for version in (1, 2):
        with pytest.raises(StoreError, match="symbolic link"):
            DeltaTable(tmp_path / "t", version).to_pyarrow_table()
    made.commit(remove("folder/outside.parquet"))
    # A commit that stands elsewhere is none.
    (tmp_path / "log" / "x.json").write_bytes(lines(made.data("y.parquet", pa.table({"a": [1]}))))
    (tmp_path / "t" / "_delta_log" / f"{4:020d}.json").symlink_to(tmp_path / "log" / "x.json")
    assert DeltaTable(tmp_path / "t").version() == 3


def test_a_log_that_is_a_link_is_not_followed(tmp_path):
    write_deltalake(tmp_path / "real", pa.table({"a": [SECRET]}))
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "_delta_log").symlink_to(tmp_path / "real" / "_delta_log")
    with pytest.raises(DeltaError):
        DeltaTable(tmp_path / "t")
    with pytest.raises(DeltaError):
        write_deltalake(tmp_path / "t", pa.table({"a": [1]}), mode="append")
    assert DeltaTable(tmp_path / "real").version() == 0


def test_nodes_that_are_no_files_are_not_opened(tmp_path, monkeypatch):
    """They are refused before they are opened. Sockets, which cannot be opened, stand for all kinds."""
    made = Handmade(COLUMNS, store=LocalStore(tmp_path))
    made.commit(made.data("x.parquet", pa.table({"a": [1]})), add("node.parquet", rows=1))
    nodes = {"node.parquet", f"{2:020d}.json", f"{1:020d}.crc", "_last_checkpoint"}
    for name in nodes:
        os.mknod(tmp_path / ("" if name == "node.parquet" else "_delta_log") / name, stat.S_IFSOCK | 0o600)
    (tmp_path / "another.parquet").symlink_to(tmp_path / "node.parquet")

    def checked(own):
        def opens(path, *args, **options):
            assert Path(path).name not in nodes
            return own(path, *args, **options)

        return opens

    monkeypatch.setattr(os, "open", checked(os.open))
    monkeypatch.setattr(local, "open", checked(open), raising=False)
    table = DeltaTable(tmp_path)
    assert table.version() == 1
    for verb in (table.to_pyarrow_table, table.file_uris, table.optimize.compact):
        with pytest.raises(DeltaError):
            verb()
    for key in ("node.parquet", "another.parquet", "_delta_log/_last_checkpoint"):
        with pytest.raises(StorageError, match="a pipe, a socket or a device"):
            table.store.get(key)


def test_names_that_no_file_can_have(tmp_path):
    made = Handmade(COLUMNS, store=LocalStore(tmp_path))
    made.commit(add("a" * 5000, rows=1))
    made.commit(remove("a" * 5000), add("folder/" * 2000 + "x", rows=1))
    made.commit(remove("folder/" * 2000 + "x"), add(".x.parquet.crc", rows=1))
    for version in (1, 2, 3):
        with pytest.raises((StoreError, DataFileNotFoundError)):
            DeltaTable(tmp_path, version).to_pyarrow_table()


def test_partition_values_and_column_names_make_no_way_out(tmp_path):
    data = pa.table({"../x": ["../../../x", "..", "/elsewhere/x", "a\\..\\..\\b", "%2e%2e"], "a": [1, 2, 3, 4, 5]})
    write_deltalake(tmp_path / "t", data, partition_by=["../x"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t"]
    table = DeltaTable(tmp_path / "t")
    assert table.to_pyarrow_table().sort_by("a").column("../x").to_pylist() == data.column("../x").to_pylist()
    assert all(Path(uri).is_relative_to(tmp_path / "t") for uri in table.file_uris())
    table.delete("a < 3")
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t"]
    assert table.count() == 3
