"""Checkpoints and checksums say exactly what the log says, and are told apart from it by nothing but their form.

Tests of engine.log.checksum_write.
"""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from decimal import Decimal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta.core.log.actions import (
    Add,
    CheckpointMetadata,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from refdelta.core.log.checksum import decode_checksum, encode_checksum
from refdelta.core.log.codec import decode_commit, encode_commit
from refdelta.core.log.paths import checkpoint_key, checksum_key, commit_key, last_checkpoint_key
from refdelta.core.log.segment import parse_last_checkpoint
from refdelta.engine.log.checkpoint_write import write_checkpoint
from refdelta.engine.log.checksum_write import put_checksum
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.log.state import to_adds, to_removes
from refdelta.engine.parquet.files import open_parquet
from refdelta.errors import InvalidArgumentError, StoreError
from refdelta_storage import LocalStore, MemoryStore
from refdelta_storage.wrappers import Fault, FaultyStore

NOW = 1_800_000_000_000
DAY = 24 * 60 * 60 * 1000

FIELDS = [
    ("id", "long"),
    ("day", "date"),
    ("at", "timestamp"),
    ("d", "decimal(38,2)"),
    ("x", "double"),
    ("p", "integer"),
    ("s", {"type": "struct", "fields": [{"name": "y", "type": "date", "nullable": True, "metadata": {}}]}),
]
SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in FIELDS]}
)
LEGACY = Protocol(min_reader_version=1, min_writer_version=2)
FEATURES = ["deletionVectors", "v2Checkpoint"]
MODERN = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=FEATURES,
    writer_features=[*FEATURES, "appendOnly", "domainMetadata"],
)
STATS = json.dumps(
    {
        "numRecords": 3,
        "minValues": {
            "id": 1,
            "day": "2020-01-01",
            "at": "2020-01-01T00:00:00.123Z",
            "d": 1.5,
            "x": 0.5,
            "s": {"y": "1999-12-31"},
        },
        "maxValues": {"id": 3},
        "nullCount": {"id": 0, "s": {"y": 2}},
    }
).replace("1.5", "12345678901234567890123456789012345.25")


def add(name, p="1", **rest):
    fields = {"size": 10, "modification_time": 5, "data_change": True, "stats": STATS}
    return Add(path=name, partition_values={"p": p}, **(fields | rest))


def remove(name, at, **rest):
    fields = {"data_change": True, "extended_file_metadata": True, "partition_values": {"p": "1"}, "size": 10}
    return Remove(path=name, deletion_timestamp=at, **(fields | rest))


def metadata(**configuration):
    return Metadata(
        id="the-id",
        schema_string=SCHEMA,
        partition_columns=["p"],
        configuration={f"delta.{name}": value for name, value in configuration.items()},
        created_time=7,
    )


def table(store, *commits, protocol=LEGACY, **configuration):
    first, *rest = commits or ([],)
    for version, actions in enumerate([[protocol, metadata(**configuration), *first], *rest]):
        store.put_if_absent(commit_key(version), encode_commit([CommitInfo({"txnId": f"t{version}"}), *actions]))
    return load_snapshot(store)


def only_the_checkpoint(store, version):
    """The table as those see it who come after cleanup."""
    store.delete([commit_key(v) for v in range(version + 1)])
    return load_snapshot(store)


VECTOR = DeletionVectorDescriptor(
    storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", offset=1, size_in_bytes=36, cardinality=2
)


@pytest.mark.parametrize("protocol", [LEGACY, MODERN])
@pytest.mark.parametrize("configuration", [{}, {"checkpoint.writeStatsAsStruct": "true"}])
def test_a_checkpoint_holds_the_whole_state(protocol, configuration):
    store = MemoryStore(None)
    modern = protocol is MODERN
    snapshot = table(
        store,
        [add("a"), add("gone"), Txn(app_id="app", version=1, last_updated=9), Txn(app_id="other", version=4)],
        [remove("gone", NOW), add("b%20c", None, tags={"k": "v", "n": None}, base_row_id=4, stats=None)],
        [
            Txn(app_id="app", version=2),
            add("e", "", clustering_provider="z", default_row_commit_version=2),
            *([DomainMetadata(domain="my.domain", configuration="{}", removed=False)] if modern else []),
            *([add("a", deletion_vector=VECTOR), remove("a", NOW)] if modern else []),
        ],
        protocol=protocol,
        **configuration,
    )
    tombstones = to_removes(snapshot.tombstones())
    info = write_checkpoint(store, snapshot, now_ms=NOW)
    assert info.version == 2
    assert info.adds == 3
    assert info.actions == 3 + len(tombstones) + 2 + 2 + 2 * modern
    assert info.size == store.head(checkpoint_key(2)).size
    again = only_the_checkpoint(store, 2)
    assert again.segment.checkpoint.kind == "classic"
    assert (again.protocol, again.metadata.id, again.metadata.schema_string) == (protocol, "the-id", SCHEMA)
    assert again.metadata.configuration == snapshot.metadata.configuration
    assert (again.txns, again.domains) == (snapshot.txns, snapshot.domains)

    def quiet(actions):
        return {repr(msgspec_replace(action)) for action in actions}

    assert quiet(to_adds(again.files)) == quiet(to_adds(snapshot.files))
    assert quiet(to_removes(again.tombstones())) == quiet(tombstones)
    assert len(tombstones) == 2 if modern else 1
    parquet = open_parquet(store, checkpoint_key(2)).read()
    assert ("checkpointMetadata" in parquet.column_names) is modern
    if modern:
        assert [row for row in parquet["checkpointMetadata"].to_pylist() if row] == [{"version": 2, "tags": None}]
    # One action a row, and none that says that it changes data.
    assert all(sum(value is not None for value in row.values()) == 1 for row in parquet.to_pylist())
    assert {row["dataChange"] for name in ("add", "remove") for row in parquet[name].to_pylist() if row} == {False}


def msgspec_replace(action):
    import msgspec

    return msgspec.structs.replace(action, data_change=False, tags=None if isinstance(action, Remove) else action.tags)


def test_only_fresh_tombstones_are_kept():
    store = MemoryStore(None)
    commits = [
        [add(name) for name in "abcd"],
        [remove("a", NOW - 3 * DAY), remove("b", NOW - 3 * DAY + 1), remove("c", None), remove("d", NOW)],
    ]
    snapshot = table(store, *commits, deletedFileRetentionDuration="interval 3 days")
    write_checkpoint(store, snapshot, now_ms=NOW)
    assert sorted(r.path for r in to_removes(only_the_checkpoint(store, 1).tombstones())) == ["b", "d"]


def test_expired_application_ids_are_left_out():
    store = MemoryStore(None)
    txns = [
        Txn(app_id="old", version=1, last_updated=NOW - 2 * DAY),
        Txn(app_id="new", version=1, last_updated=NOW),
        Txn(app_id="timeless", version=1),
    ]
    snapshot = table(store, txns, setTransactionRetentionDuration="interval 1 days")
    write_checkpoint(store, snapshot, now_ms=NOW)
    assert set(only_the_checkpoint(store, 0).txns) == {"new", "timeless"}
    assert snapshot.checksum().set_transactions is None


def test_statistics_by_property():
    def adds(**configuration):
        store = MemoryStore(None)
        write_checkpoint(store, table(store, [add("a"), add("b", None, stats=None)], **configuration), now_ms=NOW)
        return [row for row in open_parquet(store, checkpoint_key(0)).read()["add"].to_pylist() if row]

    assert [row["stats"] for row in adds()] == [STATS, None]
    assert "stats_parsed" not in adds()[0]
    structs = {"checkpoint.writeStatsAsStruct": "true"}
    without = adds(**structs, **{"checkpoint.writeStatsAsJson": "false"})
    assert "stats" not in without[0]
    first, second = adds(**structs)
    assert (first["stats"], second["stats"]) == (STATS, None)
    assert [first["partitionValues_parsed"], second["partitionValues_parsed"]] == [{"p": 1}, {"p": None}]
    assert second["stats_parsed"] is None
    parsed = first["stats_parsed"]
    assert parsed == without[0]["stats_parsed"]
    assert parsed["numRecords"] == 3
    assert parsed["minValues"] == {
        "id": 1,
        "day": dt.date(2020, 1, 1),
        "at": dt.datetime(2020, 1, 1, 0, 0, 0, 123000, dt.UTC),
        "d": Decimal("12345678901234567890123456789012345.25"),
        "x": 0.5,
        "s": {"y": dt.date(1999, 12, 31)},
    }
    assert parsed["maxValues"]["id"] == 3
    assert parsed["maxValues"]["s"] == {"y": None} or parsed["maxValues"]["s"] is None
    assert parsed["nullCount"]["s"] == {"y": 2}


ODD = [
    "not json",
    "[1]",
    "",
    "  ",
    '{"numRecords":1}{"numRecords":2}',
    '{"numRecords":"x","minValues":7}',
    '{"numRecords":1,\n "minValues":{"x":"NaN","id":"one","day":"no","at":"yes","d":"1.25","s":5}}',
    '{"numRecords":1e0,"maxValues":{"id":99999999999999999999,"d":1e80}}',
    "[[[[",
]


def test_odd_statistics_spoil_no_others():
    store = MemoryStore(None)
    files = [add(f"f{i}", stats=text) for i, text in enumerate(ODD)] + [add("good"), add("none", stats=None)]
    snapshot = table(store, files, **{"checkpoint.writeStatsAsStruct": "true"})
    write_checkpoint(store, snapshot, now_ms=NOW)
    rows = [row["stats_parsed"] for row in open_parquet(store, checkpoint_key(0)).read()["add"].to_pylist() if row]
    assert rows[-2]["numRecords"] == 3
    assert rows[-2]["minValues"]["day"] == dt.date(2020, 1, 1)
    assert rows[-1] is None
    assert [rows[i] for i in (0, 1, 2, 3, 4, 8)] == [None] * 6
    assert rows[5]["numRecords"] is None
    # Whatever the text is, what cannot be a value of the column is no value.
    assert rows[6]["numRecords"] == 1
    bounds = rows[6]["minValues"]
    assert [bounds[name] for name in ("id", "day", "at", "s")] == [None] * 4
    assert bounds["d"] == Decimal("1.25")
    assert rows[7]["maxValues"] is None  # nothing in it is of its type


def test_statistics_that_are_structs_only_survive():
    store = MemoryStore(None)
    configuration = {"checkpoint.writeStatsAsStruct": "true", "checkpoint.writeStatsAsJson": "false"}
    write_checkpoint(store, table(store, [add("a")], **configuration), now_ms=NOW)
    store.put_if_absent(commit_key(1), encode_commit([add("b")]))
    write_checkpoint(store, load_snapshot(store), now_ms=NOW)
    rows = [row for row in open_parquet(store, checkpoint_key(1)).read()["add"].to_pylist() if row]
    assert [(row["path"], row["stats_parsed"]["numRecords"]) for row in rows] == [("a", 3), ("b", 3)]
    # The properties change; what no JSON says is kept as it is.
    store.put_if_absent(commit_key(2), encode_commit([metadata(), add("c")]))
    write_checkpoint(store, load_snapshot(store), now_ms=NOW)
    rows = {row["path"]: row for row in open_parquet(store, checkpoint_key(2)).read()["add"].to_pylist() if row}
    assert rows["a"]["stats_parsed"]["minValues"]["id"] == 1
    assert rows["c"]["stats"] == STATS


def test_an_empty_table_has_a_checkpoint_too():
    store = MemoryStore(None)
    info = write_checkpoint(store, table(store), now_ms=NOW)
    assert (info.actions, info.adds) == (2, 0)
    assert only_the_checkpoint(store, 0).num_files == 0


@pytest.mark.tier("test")
def test_many_files_make_row_groups_that_readers_can_hold(tmp_path):
    store = LocalStore(tmp_path / "t", create=True, fsync=False)
    snapshot = table(store, [add(f"f{i}", stats=None) for i in range(70_000)])
    write_checkpoint(store, snapshot, now_ms=NOW)
    metadata_ = pq.read_metadata(tmp_path / "t" / checkpoint_key(0))
    assert metadata_.num_rows == 70_002
    assert max(metadata_.row_group(i).num_rows for i in range(metadata_.num_row_groups)) <= 65_536
    assert only_the_checkpoint(store, 0).num_files == 70_000


def test_the_hint_points_to_the_newest_checkpoint():
    store = MemoryStore(None)
    old = table(store, [add("a")])
    store.put_if_absent(commit_key(1), encode_commit([add("b")]))
    info = write_checkpoint(store, load_snapshot(store), now_ms=NOW)
    hint = parse_last_checkpoint(store.get(last_checkpoint_key()))
    assert (hint.version, hint.size, hint.size_in_bytes, hint.num_of_add_files) == (1, info.actions, info.size, 2)
    assert "checksum" in json.loads(store.get(last_checkpoint_key()))
    write_checkpoint(store, old, now_ms=NOW)
    assert parse_last_checkpoint(store.get(last_checkpoint_key())).version == 1
    # A corrupt hint is replaced.
    store.put(last_checkpoint_key(), b"{")
    write_checkpoint(store, old, now_ms=NOW)
    assert parse_last_checkpoint(store.get(last_checkpoint_key())).version == 0


def test_a_failed_checkpoint_leaves_nothing():
    inner = MemoryStore(None)
    snapshot = table(inner, [add("a")])
    with pytest.raises(StoreError, match=r"checkpoint\.parquet"):
        write_checkpoint(FaultyStore(inner, [Fault("fail", "open_output")]), snapshot, now_ms=NOW)
    assert [info.key for info in inner.list()] == [commit_key(0)]


# --- checksums ---------------------------------------------------------------------------------------------------


def test_a_checksum_is_what_the_version_adds_up_to():
    store = MemoryStore(None)
    snapshot = table(
        store,
        [add("a"), add("b", size=5), Txn(app_id="app", version=1)],
        [add("a", size=7, deletion_vector=VECTOR), remove("a", NOW)],
        [DomainMetadata(domain="d", configuration="c", removed=False)],
        protocol=MODERN,
    )
    assert put_checksum(store, snapshot, encode_checksum(snapshot.checksum()))
    checksum = decode_checksum(store.get(checksum_key(2)), "crc")
    assert (checksum.table_size_bytes, checksum.num_files) == (12, 2)
    assert (checksum.num_deletion_vectors, checksum.num_deleted_records) == (1, 2)
    assert checksum.deleted_record_counts == (1, 1, 0, 0, 0, 0, 0, 0, 0, 0)
    assert (checksum.protocol, checksum.metadata) == (snapshot.protocol, snapshot.metadata)
    assert checksum.set_transactions == (Txn(app_id="app", version=1),)
    assert [domain.domain for domain in checksum.domain_metadata] == ["d"]
    assert checksum.txn_id == "t2"
    # No deletion vectors in the protocol, no counts of them.
    plain = table(MemoryStore(None), [add("a")]).checksum()
    assert plain.num_deletion_vectors is None
    assert plain.num_deleted_records is None


def test_files_by_how_many_of_their_rows_are_deleted():
    """The edges of the bins of PROTOCOL.md, "Deleted Record Counts Histogram Schema"."""
    counts = [1, 9, 10, 99, 100, 9_999_999, 10_000_000, 2**31 - 2, 2**31 - 1, 2**40]
    adds = [
        add(
            f"f{count}",
            deletion_vector=msgspec.structs.replace(VECTOR, path_or_inline_dv=str(count), cardinality=count),
        )
        for count in counts
    ]
    checksum = table(MemoryStore(None), [add("a"), *adds], protocol=MODERN).checksum()
    assert checksum.deleted_record_counts == (1, 2, 2, 1, 0, 0, 0, 1, 2, 2)


def test_a_checksum_that_another_commit_has_left_is_replaced():
    """A commit that its catalog has forgotten had the same version."""
    store = MemoryStore(None)
    snapshot = table(store, [add("a")], [add("b")])
    own = snapshot.checksum()
    data, lost = encode_checksum(own), encode_checksum(msgspec.structs.replace(own, txn_id="of another"))
    store.put(checksum_key(1), lost)
    assert put_checksum(store, snapshot, data)
    assert store.get(checksum_key(1)) == data
    store.put(checksum_key(1), lost)
    store.put(commit_key(1), store.get(commit_key(0)))
    assert not put_checksum(store, snapshot, data), "the version is another commit's by now"
    assert store.get(checksum_key(1)) == lost


def test_a_checksum_is_never_overwritten():
    store = MemoryStore(None)
    snapshot = table(store, [add("a")])
    store.put(checksum_key(0), b"somebody else's")
    assert not put_checksum(store, snapshot, encode_checksum(snapshot.checksum()))
    assert store.get(checksum_key(0)) == b"somebody else's"


def test_long_lists_are_left_out():
    txns = [Txn(app_id=f"app{i}", version=1) for i in range(101)]
    assert table(MemoryStore(None), txns).checksum().set_transactions is None
    assert len(table(MemoryStore(None), txns[:100]).checksum().set_transactions) == 100


def test_an_empty_table_adds_up_to_nothing():
    checksum = table(MemoryStore(None)).checksum()
    assert (checksum.table_size_bytes, checksum.num_files) == (0, 0)


@pytest.mark.tier("test")
def test_a_process_that_writes_one_does_not_wait_for_pandas(tmp_path):
    """Arrow imports it to convert values: two hundred milliseconds, and more memory than the checkpoint takes."""
    table, rows = tmp_path / "table", tmp_path / "rows"
    data = pa.table({"x": [1, 2], "n": [0.5, None], "f": pa.array([None, 1], pa.float32())})
    with pa.ipc.new_file(rows, data.schema) as sink:
        sink.write_table(data)
    write_deltalake(table, data, configuration={"delta.checkpointInterval": "2"})
    write_deltalake(table, data, mode="overwrite")
    code = "import sys, pyarrow as pa, refdelta; rows = pa.ipc.open_file(sys.argv[2]).read_all(); "
    code += "refdelta.write_deltalake(sys.argv[1], rows, mode='append'); sys.exit('pandas' in sys.modules)"
    subprocess.run([sys.executable, "-c", code, table, rows], check=True)
    assert (table / "_delta_log" / f"{2:020}.checkpoint.parquet").exists()


# --- the policy v2 -----------------------------------------------------------------------------------------------


@pytest.mark.sample(check=3)
@pytest.mark.parametrize("top_level", ["parquet", "json"])
@pytest.mark.parametrize("listed", [2, 100])
@pytest.mark.parametrize("configuration", [{}, {"checkpoint.writeStatsAsStruct": "true"}])
def test_a_v2_checkpoint_has_a_name_of_its_own_and_sidecars(monkeypatch, top_level, listed, configuration):
    monkeypatch.setattr("refdelta.engine.log.checkpoint_write._LISTED", listed)
    store = MemoryStore(None)
    snapshot = table(
        store,
        [*(add(f"f{i}") for i in range(5)), Txn(app_id="app", version=1)],
        [*(remove(f"f{i}", NOW) for i in range(3)), add("f4", deletion_vector=VECTOR), remove("f4", NOW)],
        [DomainMetadata(domain="my.domain", configuration="{}", removed=False)],
        protocol=MODERN,
        checkpointPolicy="v2",
        **configuration,
    )
    tombstones = snapshot.tombstones()
    info = write_checkpoint(store, snapshot, now_ms=NOW, top_level=top_level)
    apart = list(store.list("_delta_log/_sidecars/"))
    # Two live files and four tombstones, at most two in each sidecar, or as few sidecars as there are kinds.
    assert len(apart) == {("parquet", 2): 3, ("json", 2): 3, ("parquet", 100): 0, ("json", 100): 2}[top_level, listed]
    assert info.key.endswith(f".{top_level}")
    assert info.key != checkpoint_key(2)
    assert info.size == store.head(info.key).size + sum(one.size for one in apart)
    assert info.actions == 5 + len(apart) + info.adds + tombstones.num_rows
    hint = parse_last_checkpoint(store.get(last_checkpoint_key()))
    assert (hint.version, hint.size, hint.size_in_bytes, hint.num_of_add_files) == (2, info.actions, info.size, 2)

    if top_level == "json":
        marks = [one for one in decode_commit(store.get(info.key), info.key) if isinstance(one, CheckpointMetadata)]
        assert marks == [CheckpointMetadata(version=2)]
    else:
        column = pq.read_table(pa.BufferReader(store.get(info.key)))["checkpointMetadata"]
        assert [mark["version"] for mark in column.to_pylist() if mark is not None] == [2]

    again = only_the_checkpoint(store, 2)
    assert (again.segment.checkpoint.kind, again.segment.checkpoint.files[0].key) == ("uuid", info.key)
    assert (again.protocol, again.metadata.configuration) == (MODERN, snapshot.metadata.configuration)
    assert (again.txns, again.domains) == (snapshot.txns, snapshot.domains)
    order = [("path", "ascending")]
    assert again.files.select(["path", "size", "stats", "deletionVector"]).sort_by(order) == snapshot.files.select(
        ["path", "size", "stats", "deletionVector"]
    ).sort_by(order)
    columns = ["path", "deletionTimestamp", "size", "deletionVector"]
    assert again.tombstones().select(columns).sort_by(order) == tombstones.select(columns).sort_by(order)
    for one in apart:
        schema = open_parquet(store, one.key, one.size).schema_arrow
        assert schema.names == ["add", "remove"]
        assert ("stats_parsed" in [item.name for item in schema.field("add").type]) == bool(configuration)


@pytest.mark.sample(check=2)
@pytest.mark.parametrize(("codec", "stored"), [(None, "SNAPPY"), ("zstd", "ZSTD"), ("none", "UNCOMPRESSED")])
@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_its_files_are_compressed_as_the_table_says(codec, stored, policy, monkeypatch):
    monkeypatch.setattr("refdelta.engine.log.checkpoint_write._LISTED", 1)
    properties = {"delta.checkpointPolicy": policy, "delta.parquet.format.version": "2.12.0"}
    if codec:
        properties["delta.parquet.compression.codec"] = codec
    store = MemoryStore(f"codec-{codec}-{policy}")
    for n in range(2):
        write_deltalake(
            store.uri,
            pa.table({"a": range(50 * n, 50 * n + 50)}),
            mode="append",
            configuration=None if n else properties,
        )
    DeltaTable(store.uri).create_checkpoint()
    found = [one.key for one in store.list("_delta_log/") if one.key.endswith(".parquet")]
    assert len(found) == (1 if policy == "classic" else 3)
    for key in found:
        footer = open_parquet(store, key).metadata
        assert {footer.row_group(0).column(i).compression for i in range(footer.num_columns)} == {stored}
        start = footer.row_group(0).column(0).data_page_offset
        assert store.get_range(key, start, 2) == b"\x15\x06"
    assert DeltaTable(store.uri).count() == 100


def test_json_is_for_the_policy_v2(tmp_path):
    write_deltalake(tmp_path, pa.table({"a": [1]}))
    with pytest.raises(InvalidArgumentError, match=r"delta\.checkpointPolicy"):
        DeltaTable(tmp_path).create_checkpoint(top_level="json")
    assert not list(tmp_path.glob("_delta_log/*checkpoint*"))
    # Without the feature, the property alone changes nothing.
    store = MemoryStore(None)
    info = write_checkpoint(store, table(store, [add("a")], checkpointPolicy="v2"), now_ms=NOW)
    assert info.key == checkpoint_key(0)
    assert "checkpointMetadata" not in pq.read_schema(pa.BufferReader(store.get(info.key))).names


@pytest.mark.tier("test")
def test_floats_of_a_checkpoint_have_no_bounds_in_its_footer(tmp_path):
    """pyarrow leaves NaN out of them: a reader that looks for files by them would miss those with NaN."""
    rows = pa.table({"p": [1.0, float("nan")], "s": pa.array([{"x": 1.5}, {"x": float("nan")}]), "n": [1, 2]})
    structs = {"delta.checkpoint.writeStatsAsStruct": "true"}
    write_deltalake(tmp_path, rows, partition_by=["p"], configuration=structs)
    DeltaTable(tmp_path).create_checkpoint()
    (path,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    floats = [column for column in columns if column.physical_type in ("FLOAT", "DOUBLE")]
    assert {column.path_in_schema for column in floats} == {
        "add.partitionValues_parsed.p",
        "add.stats_parsed.minValues.s.x",
        "add.stats_parsed.maxValues.s.x",
    }
    assert not any(column.is_stats_set for column in floats)
    assert all(column.is_stats_set for column in columns if column not in floats)
    assert pq.read_table(path).num_rows == 4
