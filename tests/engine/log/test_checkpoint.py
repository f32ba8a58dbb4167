"""Checkpoints of every kind, read; and damaged ones, done without where that is possible.

Tests of engine.parquet.budget.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from handmade import (
    CHECKPOINT_SCHEMA,
    MAPPED,
    PROTOCOL,
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
from refdelta.core.log.segment import CheckpointFiles, LogFile
from refdelta.engine.log.checkpoint import iter_files, read_tombstones, sidecars_of
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.log.state import FILE_SCHEMA, STATS_PARSED
from refdelta.engine.parquet import budget
from refdelta.errors import InvalidLogError, UnsafePathError, UnsupportedFeatureError
from refdelta_storage import CountingStore

SCHEMA = struct(field("x", "long"))
UUID = "01234567-89ab-cdef-0123-456789abcdef"
SMALL = [
    PROTOCOL,
    metadata(SCHEMA, configuration={"k": "v"}),
    {"txn": {"appId": "app", "version": 3}},
    {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
    {"domainMetadata": {"domain": "gone", "configuration": "{}", "removed": True}},
]
VECTOR = {"storageType": "u", "pathOrInlineDv": "v", "offset": 1, "sizeInBytes": 2, "cardinality": 3}
FILES = [
    add("a", rows=1),
    add("b%20c", rows=2, partitionValues={"p": None}, deletionVector=VECTOR),
    remove("r", partitionValues={}, size=5),
]


def paths(snapshot):
    return snapshot.files.column("path").to_pylist()


def check_content(snapshot):
    assert snapshot.files.schema.names[: len(FILE_SCHEMA)] == FILE_SCHEMA.names
    assert paths(snapshot) == ["a", "b%20c"]
    assert snapshot.files.column("deletionVector").to_pylist() == [None, VECTOR | {"maxRowIndex": None}]
    assert snapshot.files.column("partitionValues").to_pylist() == [[], [("p", None)]]
    assert snapshot.metadata.configuration == {"k": "v"}
    assert snapshot.txns["app"].version == 3
    assert set(snapshot.domains) == {"d"}
    assert snapshot.tombstones().column("path").to_pylist() == ["r"]


def test_classic():
    table = Handmade()
    table.checkpoint(5, SMALL + FILES)
    snapshot = load_snapshot(table.store)
    assert snapshot.version == 5
    check_content(snapshot)


def test_multi_part_and_a_part_that_is_missing():
    table = Handmade(SCHEMA)
    for _ in range(5):
        table.commit(add("old"))
    name = "_delta_log/00000000000000000004.checkpoint.{:010d}.0000000003.parquet"
    table.checkpoint(4, SMALL, name.format(1))
    table.checkpoint(4, FILES[:1], name.format(2))
    assert paths(load_snapshot(table.store, 4)) == ["old"]  # incomplete: the commits count
    table.checkpoint(4, FILES[1:], name.format(3))
    check_content(load_snapshot(table.store, 4))


@pytest.mark.parametrize("suffix", ["json", "parquet"])
@pytest.mark.parametrize("sidecars", [0, 2])
def test_v2(suffix, sidecars):
    table = Handmade()
    main = [{"checkpointMetadata": {"version": 7}}, *SMALL]
    for i in range(sidecars):
        part = FILES[:1] if i == 0 else FILES[1:]
        table.put(f"_delta_log/_sidecars/s{i}.parquet", checkpoint_file(part))
        main.append({"sidecar": {"path": f"s{i}.parquet", "sizeInBytes": 1, "modificationTime": 1}})
    if not sidecars:
        main += FILES
    content = lines(*main) if suffix == "json" else checkpoint_file(main)
    table.put(f"_delta_log/00000000000000000007.checkpoint.{UUID}.{suffix}", content)
    check_content(load_snapshot(table.store))


@pytest.mark.parametrize("spelling", ["s0.parquet", "./s0.parquet", "%730.parquet"])
@pytest.mark.parametrize("suffix", ["json", "parquet"])
def test_a_sidecar_that_is_listed_twice_is_refused(suffix, spelling):
    """Else a checkpoint of some bytes could make any number of files of one sidecar."""
    table = Handmade()
    table.put("_delta_log/_sidecars/s0.parquet", checkpoint_file(FILES))
    names = ["s0.parquet", spelling]
    sidecars = [{"sidecar": {"path": name, "sizeInBytes": 1, "modificationTime": 1}} for name in names]
    main = [{"checkpointMetadata": {"version": 7}}, *SMALL, *sidecars]
    content = lines(*main) if suffix == "json" else checkpoint_file(main)
    key = f"_delta_log/00000000000000000007.checkpoint.{UUID}.{suffix}"
    table.put(key, content)
    with pytest.raises(InvalidLogError, match=r"lists the sidecar '.*' twice") as caught:
        load_snapshot(table.store)
    assert caught.value.file == key
    checkpoint = CheckpointFiles(7, (LogFile(key, len(content), 0, 7, 7),), "uuid")
    for reads in (read_tombstones, sidecars_of, lambda *at: list(iter_files(*at))):
        with pytest.raises(InvalidLogError, match="twice"):
            reads(table.store, checkpoint)


def _three_parts(table, each):
    name = "_delta_log/00000000000000000004.checkpoint.{:010d}.0000000003.parquet"
    table.checkpoint(4, SMALL, name.format(1))
    table.checkpoint(4, each, name.format(2))
    table.checkpoint(4, each, name.format(3))


def _sidecars_of_one_size(table, each):
    main = [{"checkpointMetadata": {"version": 7}}, *SMALL]
    for name in ("s0.parquet", "s1.parquet"):
        table.put(f"_delta_log/_sidecars/{name}", checkpoint_file(each))
        main.append({"sidecar": {"path": name, "sizeInBytes": 1, "modificationTime": 1}})
    table.put(f"_delta_log/00000000000000000007.checkpoint.{UUID}.json", lines(*main))


@pytest.mark.parametrize("made_of", [_three_parts, _sidecars_of_one_size])
def test_parts_that_unfold_have_one_budget_together(made_of, monkeypatch):
    monkeypatch.setattr(budget, "HELD_UNFOLDED", 1)
    table = Handmade()
    made_of(table, [add("x" * 2**16, rows=1)] * 64)  # 4 MiB of paths in a few kB
    for bytes_, fits in ((2**23 + 2**20, True), (2**22 + 2**20, False)):
        monkeypatch.setattr(budget, "HELD_BYTES", bytes_)
        if fits:
            assert len(paths(load_snapshot(table.store))) == 128
            continue
        with pytest.raises(InvalidLogError, match=r"the files of the checkpoint, .* would take more than 5,242,880"):
            load_snapshot(table.store)


def test_actions_that_become_values_count_as_such(monkeypatch):
    """An action as a Python object is larger than its row."""
    monkeypatch.setattr(budget, "HELD_UNFOLDED", 1)
    monkeypatch.setattr(budget, "HELD_BYTES", 2**20)
    table = Handmade()
    table.checkpoint(5, [*SMALL, *({"txn": {"appId": "a", "version": 1}} for _ in range(2000))])
    with pytest.raises(InvalidLogError, match="would take more than"):
        load_snapshot(table.store)


def test_a_sidecar_elsewhere_is_refused():
    table = Handmade()
    sidecar = {"sidecar": {"path": "../../other.parquet", "sizeInBytes": 1, "modificationTime": 1}}
    content = lines({"checkpointMetadata": {"version": 7}}, *SMALL, sidecar)
    table.put(f"_delta_log/00000000000000000007.checkpoint.{UUID}.json", content)
    with pytest.raises(UnsafePathError, match=r"other\.parquet"):
        load_snapshot(table.store)


def test_statistics_that_are_only_a_struct():
    table = Handmade()
    kind = pa.struct([("numRecords", pa.int64()), ("minValues", pa.struct([("x", pa.int64())]))])
    file = pa.struct(
        [item for item in CHECKPOINT_SCHEMA.field("add").type if item.name != "stats"] + [pa.field(STATS_PARSED, kind)]
    )
    schema = CHECKPOINT_SCHEMA.set(CHECKPOINT_SCHEMA.get_field_index("add"), pa.field("add", file))
    rows = [add("a", stats_parsed={"numRecords": 4, "minValues": {"x": 1}}), add("b")]
    table.put("_delta_log/00000000000000000003.checkpoint.parquet", checkpoint_file(SMALL + rows, schema))
    table.version = 3
    table.commit(add("c", rows=9))

    files = load_snapshot(table.store).files

    assert files.column("path").to_pylist() == ["a", "b", "c"]
    assert files.column("stats").to_pylist() == [None, None, '{"numRecords": 9}']
    assert files.column(STATS_PARSED).to_pylist() == [{"numRecords": 4, "minValues": {"x": 1}}, None, None]


def test_json_statistics_win_over_a_struct_and_the_struct_is_not_read():
    table = Handmade()
    kind = pa.struct([("numRecords", pa.int64())])
    file = pa.struct([*CHECKPOINT_SCHEMA.field("add").type, pa.field(STATS_PARSED, kind)])
    schema = CHECKPOINT_SCHEMA.set(CHECKPOINT_SCHEMA.get_field_index("add"), pa.field("add", file))
    rows = [add("a", rows=4, stats_parsed={"numRecords": 4})]
    table.put("_delta_log/00000000000000000003.checkpoint.parquet", checkpoint_file(SMALL + rows, schema))
    assert load_snapshot(table.store).files.schema == FILE_SCHEMA


def test_other_physical_types_and_missing_fields():
    """Writers disagree on string types, on nullability and on which fields there are at all."""
    table = Handmade()
    kind = pa.struct(
        [
            ("size", pa.int32()),
            ("path", pa.large_string()),
            ("partitionValues", pa.map_(pa.string(), pa.large_string())),
        ]
    )
    column = pa.array([{"size": 3, "path": "a", "partitionValues": [("p", "1")]}, None], kind)
    name = "_delta_log/00000000000000000002.checkpoint.{:010d}.0000000002.parquet"
    table.put(name.format(1), checkpoint_file(SMALL))
    table.put(name.format(2), parquet(pa.table({"add": column}), store_schema=True))
    files = load_snapshot(table.store).files
    assert files.schema == FILE_SCHEMA
    assert files.select(["path", "size", "partitionValues"]).to_pylist() == [
        {"path": "a", "size": 3, "partitionValues": [("p", "1")]}
    ]


def test_a_property_that_is_null_is_not_set():
    table = Handmade()
    table.checkpoint(2, [PROTOCOL, metadata(SCHEMA, configuration={"k": "v", "unset": None}), add("a")])
    assert load_snapshot(table.store).metadata.configuration == {"k": "v"}


DAMAGE = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "not Parquet": lambda content: b"PAR1 is what it should begin with",
    "flipped": lambda content: content[:8] + bytes(byte ^ 255 for byte in content[8:200]) + content[200:],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_done_without_where_the_commits_are_there(damage):
    table = Handmade(SCHEMA)
    for i in range(4):
        table.commit(add(f"f{i}"))
    key = table.checkpoint(4, SMALL + FILES)
    good = table.store.get(key)
    table.put(key, DAMAGE[damage](good))
    table.hint(4)
    assert paths(load_snapshot(table.store)) == ["f0", "f1", "f2", "f3"]

    # An older checkpoint stands in too; and where nothing does, the error names what is broken.
    table.store.delete(["_delta_log/00000000000000000000.json"])
    with pytest.raises(InvalidLogError) as caught:
        load_snapshot(table.store)
    assert caught.value.file == key
    table.checkpoint(2, [*SMALL, add("old")])
    assert paths(load_snapshot(table.store)) == ["old", "f2", "f3"]


def test_a_checkpoint_of_the_wrong_shape_names_its_file():
    table = Handmade()
    key = "_delta_log/00000000000000000002.checkpoint.parquet"
    for column in (pa.array([1]), pa.array([{"size": 1}])):
        table.put(key, parquet(pa.table({"add": column})))
        with pytest.raises(InvalidLogError, match="'add'") as caught:
            load_snapshot(table.store)
        assert caught.value.file == key


def test_a_checkpoint_without_metadata_or_protocol():
    for missing in ("protocol", "metaData"):
        table = Handmade()
        table.checkpoint(2, [row for row in SMALL if missing not in row])
        with pytest.raises(InvalidLogError, match=f"no {missing}"):
            load_snapshot(table.store)


def test_protocol_in_a_checkpoint_is_checked():
    table = Handmade()
    table.checkpoint(2, [{"protocol": {"minReaderVersion": 9, "minWriterVersion": 9}}, *SMALL[1:]])
    with pytest.raises(UnsupportedFeatureError):
        load_snapshot(table.store)


def test_only_what_is_needed_is_read():
    table = Handmade(SCHEMA, protocol=MAPPED)
    for i in range(6):
        table.commit(add(f"f{i}"))
    table.checkpoint(5, [MAPPED, SMALL[1], *(add(f"f{i}") for i in range(5))])
    table.hint(5)
    store = CountingStore(table.store)
    assert paths(load_snapshot(store)) == [f"f{i}" for i in range(6)]
    log_reads = sum(count for name, count in store.counts.items() if name in ("get", "get_many"))
    assert log_reads <= 2  # the hint, and the one commit after the checkpoint


@pytest.mark.parametrize("options", [{}, {"write_statistics": False}])
def test_a_row_group_for_each_action(options):
    table = Handmade(SCHEMA)
    key = table.checkpoint(4, SMALL + FILES)
    rows = pq.read_table(pa.BufferReader(table.store.get(key)))
    table.put(key, parquet(rows, row_group_size=1, **options))
    check_content(load_snapshot(table.store))


def test_row_groups_without_tombstones_are_not_read_for_them():
    table = Handmade()
    key = table.checkpoint(4, SMALL + FILES)
    rows = pq.read_table(pa.BufferReader(table.store.get(key)))
    content = bytearray(parquet(rows, row_group_size=1))
    snapshot = load_snapshot(table.store)
    last = pq.ParquetFile(pa.BufferReader(bytes(content))).metadata.row_group(len(SMALL + FILES) - 1)
    begin = min(last.column(i).data_page_offset for i in range(last.num_columns))
    content[4 : begin - 100] = bytes(begin - 104)
    table.put(key, bytes(content))
    assert snapshot.tombstones().column("path").to_pylist() == ["r"]
    with pytest.raises(InvalidLogError):
        load_snapshot(table.store)
