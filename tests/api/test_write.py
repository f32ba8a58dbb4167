"""``write_deltalake``: modes, schemas, partitions, and what every misuse says.

Tests of api.writer, operations.write.append, operations.write.source, operations.write.target.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from refdelta import AppTransaction, CommitProperties, DeltaTable, errors, write_deltalake
from written_tables import commit_of


def rows(table, *keys):
    return sorted(table.to_pyarrow_table().to_pylist(), key=lambda r: tuple(str(r[k]) for k in keys or r))


def info_of(path, version):
    return next(a["commitInfo"] for a in commit_of(path, version) if "commitInfo" in a)


def data_files(path):
    return sorted(p.relative_to(path).as_posix() for p in path.rglob("*.parquet") if "_delta_log" not in p.parts)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "table"


SMALL = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", None, "c"]})


def test_a_new_table_holds_what_was_written(path):
    result = write_deltalake(path, SMALL)
    assert result.version == 0
    assert result["num_added_files"] == 1
    assert result["num_added_rows"] == 3
    table = DeltaTable(path)
    assert table.version() == 0
    assert table.to_pyarrow_table().equals(SMALL)
    assert table.count() == 3


def test_each_mode(path):
    with pytest.raises(errors.InvalidArgumentError, match="mode is one of"):
        write_deltalake(path, SMALL, mode="upsert")
    write_deltalake(path, SMALL)
    with pytest.raises(errors.TableAlreadyExistsError):
        write_deltalake(path, SMALL)
    assert write_deltalake(path, SMALL, mode="ignore").version is None
    assert write_deltalake(path, SMALL, mode="append").version == 1
    assert DeltaTable(path).count() == 6
    assert write_deltalake(path, SMALL.slice(0, 1), mode="overwrite").version == 2
    assert rows(DeltaTable(path)) == [{"id": 1, "name": "a"}]
    assert DeltaTable(path, version=1).count() == 6


def test_commit_info_is_what_spark_would_note(path):
    write_deltalake(path, SMALL)
    write_deltalake(
        path, SMALL, mode="append", commit_properties=CommitProperties(user_metadata="why", custom_metadata={"job": 7})
    )
    info = info_of(path, 1)
    assert info["operation"] == "WRITE"
    assert info["operationParameters"] == {"mode": "Append", "partitionBy": "[]"}
    assert info["operationMetrics"]["numOutputRows"] == "3"
    assert info["operationMetrics"]["numFiles"] == "1"
    assert info["readVersion"] == 0
    assert info["isBlindAppend"] is True
    assert info["isolationLevel"] == "WriteSerializable"
    assert info["userMetadata"] == "why"
    assert info["job"] == 7
    assert info["engineInfo"].startswith("refdelta/")
    assert len(info["txnId"]) == 36
    assert commit_of(path, 1)[0].keys() == {"commitInfo"}
    write_deltalake(path, SMALL, mode="overwrite")
    assert info_of(path, 2)["isBlindAppend"] is False
    assert info_of(path, 2)["operationMetrics"]["numRemovedFiles"] == "2"
    history = DeltaTable(path).history()
    assert [h["version"] for h in history] == [2, 1, 0]
    assert history[1]["userMetadata"] == "why"
    assert [h["version"] for h in DeltaTable(path).history(limit=1)] == [2]


def test_a_write_without_a_row_is_a_commit(path):
    write_deltalake(path, SMALL)
    assert write_deltalake(path, SMALL.slice(0, 0), mode="append").version == 1
    assert [action for action in commit_of(path, 1) if "commitInfo" not in action] == []
    assert info_of(path, 1)["operationMetrics"] == {"numFiles": "0", "numOutputRows": "0", "numOutputBytes": "0"}


def test_replace_where_notes_what_spark_would(path):
    write_deltalake(path, pa.table({"id": [1, 2, 3], "p": ["a", "a", "b"]}), partition_by="p")
    write_deltalake(path, pa.table({"id": [1], "p": ["a"]}), mode="overwrite", predicate="id = 1")
    info = info_of(path, 1)
    assert info["operationParameters"] == {"mode": "Overwrite", "partitionBy": '["p"]', "predicate": "id = 1"}
    counts = {"numFiles": "2", "numOutputRows": "2", "numCopiedRows": "1", "numDeletedRows": "1"}
    assert counts.items() <= info["operationMetrics"].items()
    sizes = sum(action["add"]["size"] for action in commit_of(path, 1) if "add" in action)
    assert info["operationMetrics"]["numOutputBytes"] == str(sizes)


def test_custom_metadata_cannot_replace_the_engines_own_fields(path):
    with pytest.raises(errors.InvalidArgumentError, match="txnId"):
        write_deltalake(path, SMALL, commit_properties=CommitProperties(custom_metadata={"txnId": "x"}))
    assert not DeltaTable.is_deltatable(path)
    assert data_files(path) == []


def test_partitioning_null_and_escaping(path):
    values = ["x", None, "a/b=c d", "ü%", ""]
    data = pa.table({"id": list(range(5)), "p": values, "d": [dt.date(2024, 1, i + 1) for i in range(5)]})
    write_deltalake(path, data, partition_by=["p", "d"])
    got = rows(DeltaTable(path), "id")
    assert [r["p"] for r in got] == ["x", None, "a/b=c d", "ü%", None]
    assert [r["d"] for r in got] == data["d"].to_pylist()
    adds = [a["add"] for a in commit_of(path, 0) if "add" in a]
    assert all(set(a["partitionValues"]) == {"p", "d"} for a in adds)
    assert any("__HIVE_DEFAULT_PARTITION__" in a["path"] for a in adds)
    assert sorted(str(p["p"]) for p in DeltaTable(path).partitions()) == sorted(["x", "None", "a/b=c d", "ü%", "None"])
    with pytest.raises(errors.InvalidArgumentError, match="partitioned by"):
        write_deltalake(path, data, mode="append", partition_by="p")
    with pytest.raises(errors.ColumnNotFoundError, match="nope"):
        write_deltalake(path.parent / "other", data, partition_by="nope")
    with pytest.raises(errors.InvalidArgumentError, match="every column"):
        write_deltalake(path.parent / "other", SMALL, partition_by=["id", "name"])


@pytest.mark.parametrize("level", ["WriteSerializable", "Serializable", None])
def test_a_write_may_ask_for_a_stricter_level(path, level):
    write_deltalake(path, SMALL)

    def while_another_appends():
        write_deltalake(path, SMALL.slice(0, 1), mode="append")
        yield from SMALL.to_batches()

    data = pa.RecordBatchReader.from_batches(SMALL.schema, while_another_appends())
    if level == "Serializable":
        with pytest.raises(errors.ConcurrentAppendException):
            write_deltalake(path, data, mode="overwrite", isolation=level)
        assert DeltaTable(path).count() == 4
        return
    assert write_deltalake(path, data, mode="overwrite", isolation=level).rebased_over == (1,)
    # The appended row came after the overwrite.
    assert DeltaTable(path).count() == 4
    assert info_of(path, 2)["isolationLevel"] == "WriteSerializable"
    assert [action["remove"]["path"] for action in commit_of(path, 2) if "remove" in action] == [
        action["add"]["path"] for action in commit_of(path, 0) if "add" in action
    ]


def test_a_write_may_not_ask_for_a_weaker_level(path):
    write_deltalake(path, SMALL, configuration={"delta.isolationLevel": "Serializable"})
    for mode in ("append", "overwrite"):
        with pytest.raises(errors.InvalidArgumentError, match="weaker than the table's"):
            write_deltalake(path, SMALL, mode=mode, isolation="WriteSerializable")
    with pytest.raises(errors.InvalidArgumentError, match="'chaos' does not exist; isolation levels: "):
        write_deltalake(path.parent / "other", SMALL, isolation="chaos")
    assert DeltaTable(path).version() == 0
    assert not DeltaTable.is_deltatable(path.parent / "other")


def test_replace_where_on_a_partition_and_on_data(path):
    data = pa.table({"id": list(range(6)), "p": ["a", "a", "b", "b", "c", None]})
    write_deltalake(path, data, partition_by="p")
    new = pa.table({"id": [100], "p": ["a"]})
    result = write_deltalake(path, new, mode="overwrite", predicate="p = 'a'")
    assert result["num_removed_files"] == 1
    assert sorted(r["id"] for r in rows(DeltaTable(path))) == [2, 3, 4, 5, 100]
    assert info_of(path, 1)["operationParameters"]["predicate"] == "p = 'a'"
    result = write_deltalake(
        path, pa.table({"id": [3], "p": ["z"]}), mode="overwrite", predicate="id >= 3 AND id < 100"
    )
    got = sorted((r["id"], r["p"]) for r in rows(DeltaTable(path)) if r["id"] != 100)
    assert got == [(2, "b"), (3, "z")]
    assert result["num_copied_rows"] == 1


def test_replace_where_keeps_rows_for_which_the_predicate_is_null(path):
    write_deltalake(path, pa.table({"id": [1, 2, 3], "v": [10, None, 30]}))
    write_deltalake(path, pa.table({"id": [9], "v": [25]}), mode="overwrite", predicate="v > 5")
    assert [(r["id"], r["v"]) for r in rows(DeltaTable(path), "id")] == [(2, None), (9, 25)]


def with_column(*values):
    return pa.table({"id": pa.array([9] * len(values), pa.int64()), "new": pa.array(values, pa.int64())})


ADDED = [
    # the predicate, the new value, which of the rows 1, 2, 3 it replaces, and whether of a row 5 that is added
    ("new = 1", 1, set(), False),
    ("new IS NULL", None, {1, 2, 3}, True),
    ("new <=> 1 AND id > 0", 1, set(), False),
    ("new = 1 OR id = 2", 1, {2}, False),
    ("new = 1 OR id > 2", 1, {3}, True),
    ("coalesce(new, 1) = 1", 1, {1, 2, 3}, True),
    ("NOT (new = 1)", 2, set(), False),
]


@pytest.mark.sample(check=6)
@pytest.mark.parametrize("vectors", ["false", "true"])
@pytest.mark.parametrize(("predicate", "value", "gone", "_meets"), ADDED)
def test_replace_where_over_a_column_that_the_write_adds(path, vectors, predicate, value, gone, _meets):
    properties = {"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": "true"}
    write_deltalake(path, SMALL, configuration=properties)
    write_deltalake(path, with_column(value), mode="overwrite", predicate=predicate, schema_mode="merge")
    kept = [{"id": row["id"], "name": row["name"], "new": None} for row in SMALL.to_pylist() if row["id"] not in gone]
    assert rows(DeltaTable(path), "id") == [*kept, {"id": 9, "name": None, "new": value}]
    with pytest.raises(errors.ColumnNotFoundError, match="newer"):
        write_deltalake(path, with_column(1), mode="overwrite", predicate="newer = 1", schema_mode="merge")


@pytest.mark.sample(check=6)
@pytest.mark.parametrize("vectors", ["false", "true"])
@pytest.mark.parametrize(("predicate", "value", "_gone", "meets"), ADDED)
def test_files_of_others_hold_null_in_a_column_that_a_replace_where_adds(path, vectors, predicate, value, _gone, meets):
    write_deltalake(path, SMALL, configuration={"delta.enableDeletionVectors": vectors})

    def meanwhile():
        write_deltalake(path, pa.table({"id": pa.array([5], pa.int64())}), mode="append")
        yield from with_column(value).to_batches()

    data = pa.RecordBatchReader.from_batches(with_column(value).schema, meanwhile())
    more = {"mode": "overwrite", "predicate": predicate, "schema_mode": "merge"}
    if meets:
        with pytest.raises(errors.ConcurrentAppendException):
            write_deltalake(path, data, **more)
    else:
        assert write_deltalake(path, data, **more).rebased_over == (1,)
        assert {5, 9} <= {row["id"] for row in rows(DeltaTable(path))}


def test_replace_where_over_a_field_that_the_write_adds_to_a_struct(path):
    write_deltalake(path, pa.table({"s": [{"a": 1}, None]}))
    data = pa.table({"s": [{"a": 2, "b": 3}]})
    write_deltalake(path, data, mode="overwrite", predicate="s.b = 3 OR s.a = 7", schema_mode="merge")
    assert rows(DeltaTable(path)) == [{"s": None}, {"s": {"a": 1, "b": None}}, {"s": {"a": 2, "b": 3}}]


def test_replace_where_refuses_rows_outside_of_it_and_leaves_nothing(path):
    write_deltalake(path, SMALL)
    before = data_files(path)
    with pytest.raises(errors.ConstraintViolationError, match="id=1"):
        write_deltalake(path, SMALL, mode="overwrite", predicate="id > 1")
    with pytest.raises(errors.ConstraintViolationError):
        write_deltalake(path, SMALL, mode="overwrite", predicate="name = 'a' or name = 'c'")
    assert data_files(path) == before
    assert DeltaTable(path).version() == 0


def test_dynamic_partition_overwrite(path):
    write_deltalake(
        path, pa.table({"id": [1, 2, 3, 4], "p": ["a", "b", None, "c"], "q": [1, 1, 1, 2]}), partition_by=["p", "q"]
    )
    result = write_deltalake(
        path, pa.table({"id": [10, 30], "p": ["a", None], "q": [1, 1]}), mode="overwrite", partition_overwrite="dynamic"
    )
    assert sorted(r["id"] for r in rows(DeltaTable(path))) == [2, 4, 10, 30]
    assert result["num_removed_files"] == 2
    with pytest.raises(errors.InvalidArgumentError, match="partition columns"):
        write_deltalake(path.parent / "flat", SMALL, mode="overwrite", partition_overwrite="dynamic")


@pytest.mark.parametrize("widening", ["false", "true"])
def test_merging_lets_small_integers_grow(path, widening):
    def data(kind, value):
        inner = pa.array([[value, None]], pa.list_(kind))
        return pa.table({"a": pa.array([value], kind), "l": inner, "p": pa.array([value], kind)})

    configuration = {"delta.enableTypeWidening": widening}
    write_deltalake(path, data(pa.int8(), -7), partition_by=["p"], configuration=configuration)
    with pytest.raises(errors.SchemaMismatchError, match=r"the value 70000 of column a .* does not fit into byte"):
        write_deltalake(path, data(pa.int32(), 70_000), mode="append")
    write_deltalake(path, data(pa.int32(), 70_000), mode="append", schema_mode="merge")
    write_deltalake(path, data(pa.int16(), 9), mode="append", schema_mode="merge")
    table = DeltaTable(path)
    assert table.schema().to_arrow().field("a").type == pa.int32()
    assert [(r["a"], r["l"][0], r["p"]) for r in rows(table, "a")] == [(-7,) * 3, (70_000,) * 3, (9,) * 3]
    assert table.to_pyarrow_table(filters="a < 0 and p = -7").num_rows == 1
    (item, *_) = (f for f in table.schema().fields if f.name == "l")
    recorded = [{"fromType": "byte", "toType": "integer", "fieldPath": "element"}]
    assert item.metadata == ({"delta.typeChanges": recorded} if widening == "true" else {})


def test_schema_mode_merge_and_overwrite(path):
    write_deltalake(path, SMALL)
    wider = pa.table({"id": [4], "extra": [1.5]})
    with pytest.raises(errors.SchemaMismatchError, match="extra"):
        write_deltalake(path, wider, mode="append")
    write_deltalake(path, wider, mode="append", schema_mode="merge")
    assert rows(DeltaTable(path), "id")[-1] == {"id": 4, "name": None, "extra": 1.5}
    with pytest.raises(errors.SchemaMismatchError, match="id"):
        write_deltalake(path, pa.table({"id": ["x"]}), mode="append", schema_mode="merge")
    with pytest.raises(errors.InvalidArgumentError, match="overwrite"):
        write_deltalake(path, SMALL, mode="append", schema_mode="overwrite")
    write_deltalake(path, pa.table({"z": ["only"]}), mode="overwrite", schema_mode="overwrite")
    assert rows(DeltaTable(path)) == [{"z": "only"}]
    assert DeltaTable(path, version=1).schema().names == ["id", "name", "extra"]


def test_types_and_nulls_are_refused_before_a_byte_is_written(path):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int32())])
    DeltaTable.create(path, schema)
    for bad, match in (
        (pa.table({"id": ["x"], "v": pa.array([1], pa.int32())}), "id"),
        (pa.table({"v": pa.array([1], pa.int32())}), "id"),
        (pa.table({"id": [1], "v": pa.array([2**40], pa.int64())}), "v"),
        (pa.table({"id": [1], "w": [1]}), "w"),
        (pa.table({"id": pa.array([1]), "v": pa.array([dt.time(1)])}), "v"),
    ):
        with pytest.raises(errors.SchemaMismatchError, match=match):
            write_deltalake(path, bad, mode="append")
    with pytest.raises(errors.ConstraintViolationError, match="id"):
        write_deltalake(path, pa.table({"id": pa.array([1, None], pa.int64())}), mode="append")
    assert data_files(path) == []
    assert DeltaTable(path).version() == 0


def test_columns_are_found_by_name_in_any_order_and_case(path):
    write_deltalake(path, SMALL)
    write_deltalake(path, pa.table({"NAME": ["z"], "ID": [9]}), mode="append")
    assert rows(DeltaTable(path), "id")[-1] == {"id": 9, "name": "z"}


def test_arrow_types_that_delta_lacks_are_mapped_or_refused(path):
    data = pa.table(
        {
            "u": pa.array([1, 2**32 - 1], pa.uint32()),
            "big": pa.array(["x", "y"], pa.large_string()),
            "dic": pa.array(["x", None]).dictionary_encode(),
            "view": pa.array(["v", "w"], pa.string_view()),
            "s": pa.array([0, 1], pa.timestamp("s", "UTC")),
        }
    )
    write_deltalake(path, data)
    got = DeltaTable(path).to_pyarrow_table()
    assert got["u"].to_pylist() == [1, 2**32 - 1]
    assert got["dic"].to_pylist() == ["x", None]
    assert got.schema.field("s").type == pa.timestamp("us", "UTC")
    for name, bad in (("t", pa.array([dt.time(1)])), ("n", pa.array([1], pa.duration("us")))):
        with pytest.raises(errors.UnsupportedTypeError, match=name):
            write_deltalake(path.parent / "no", pa.table({name: bad}))


def test_sources_of_every_kind(path):
    import duckdb
    import pandas as pd
    import polars as pl

    batches = SMALL.to_batches()
    frame = pd.DataFrame({"id": [1, 2, 3], "name": ["a", None, "c"]})
    connection = duckdb.connect()
    for source in (
        SMALL,
        batches[0],
        SMALL.to_reader(),
        batches,
        iter(batches),
        pl.from_arrow(SMALL),
        frame,
        connection.sql("select 1::bigint as id, 'a' as name union all values (2, null), (3, 'c')"),
        pa.dataset.dataset(SMALL) if hasattr(pa, "dataset") else SMALL,
    ):
        write_deltalake(path, source, mode="overwrite")
        assert rows(DeltaTable(path), "id") == SMALL.to_pylist()
    for wrong in (5, "text", {"id": [1]}, [1, 2], []):
        with pytest.raises(errors.InvalidArgumentError):
            write_deltalake(path, wrong, mode="append")


def test_a_failing_source_leaves_nothing(path):
    write_deltalake(path, SMALL)
    before = data_files(path)

    def broken():
        yield SMALL.to_batches()[0]
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        write_deltalake(path, pa.RecordBatchReader.from_batches(SMALL.schema, broken()), mode="append")
    assert data_files(path) == before
    assert DeltaTable(path).version() == 0


def test_an_insert_that_reads_its_own_table_is_not_blind(path):
    write_deltalake(path, SMALL, configuration={"delta.isolationLevel": "Serializable"})
    table = DeltaTable(path)
    write_deltalake(path, table.scan(predicate="id > 1"), mode="append")
    assert info_of(path, 1)["isBlindAppend"] is False
    assert DeltaTable(path).count() == 5
    stale = DeltaTable(path)
    write_deltalake(path, SMALL, mode="append")
    with pytest.raises(errors.ConcurrentAppendException) as caught:
        write_deltalake(path, stale.scan(), mode="append")
    assert caught.value.conflict.version == 2
    other = path.parent / "other"
    write_deltalake(other, table)
    assert info_of(other, 0)["isBlindAppend"] is True


def test_idempotent_writes_by_application(path):
    assert write_deltalake(path, SMALL, app_id="job", app_version=1).version == 0
    assert write_deltalake(path, SMALL, mode="append", app_id="job", app_version=1).version is None
    assert write_deltalake(path, SMALL, mode="append", app_id="job", app_version=2).version == 1
    assert write_deltalake(path, SMALL, mode="append", app_id="job", app_version=1).version is None
    table = DeltaTable(path)
    assert table.transaction_version("job") == 2
    assert table.transaction_version("nobody") is None
    with pytest.raises(errors.InvalidArgumentError, match="go together"):
        write_deltalake(path, SMALL, mode="append", app_id="job")
    properties = CommitProperties(app_transactions=[AppTransaction(app_id="x", version=5)])
    write_deltalake(path, SMALL, mode="append", commit_properties=properties)
    assert DeltaTable(path).transaction_version("x") == 5


def test_configuration_of_a_new_table(path):
    write_deltalake(
        path, SMALL, configuration={"delta.checkpointInterval": "3", "mine": "x"}, name="n", description="d"
    )
    metadata = DeltaTable(path).metadata()
    assert metadata.configuration == {"delta.checkpointInterval": "3", "mine": "x"}
    assert (metadata.name, metadata.description) == ("n", "d")
    write_deltalake(path, SMALL, mode="append", configuration={"mine": "x"})
    with pytest.raises(errors.InvalidArgumentError, match="mine"):
        write_deltalake(path, SMALL, mode="append", configuration={"mine": "y"})
    with pytest.raises(errors.InvalidArgumentError, match="checkpointInterval"):
        write_deltalake(path.parent / "o", SMALL, configuration={"delta.checkpointInterval": "no"})
    with pytest.raises(errors.InvalidArgumentError, match=r"delta\.noSuchThing"):
        write_deltalake(path.parent / "o", SMALL, configuration={"delta.noSuchThing": "1"})
    for _ in range(4):
        write_deltalake(path, SMALL, mode="append")
    assert (path / "_delta_log" / f"{3:020d}.checkpoint.parquet").exists()
    assert json.loads((path / "_delta_log" / "_last_checkpoint").read_text())["version"] == 3
    assert DeltaTable(path).count() == 18


def test_append_only_tables_refuse_overwrites(path):
    write_deltalake(path, SMALL, configuration={"delta.appendOnly": "true"})
    write_deltalake(path, SMALL, mode="append")
    before = data_files(path)
    with pytest.raises(errors.ConstraintViolationError, match="append-only"):
        write_deltalake(path, SMALL, mode="overwrite")
    with pytest.raises(errors.ConstraintViolationError, match="append-only"):
        write_deltalake(path, SMALL.slice(0, 1), mode="overwrite", predicate="id = 1")
    assert data_files(path) == before


@pytest.mark.parametrize(
    ("properties", "feature"),
    [
        ({"delta.enableIcebergCompatV3": "true"}, "icebergCompatV3"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(path, properties, feature):
    with pytest.raises(errors.UnsupportedFeatureError, match=feature):
        write_deltalake(path, SMALL, configuration=properties)
    assert not path.exists() or data_files(path) == []


def test_timestamps_without_zone_bring_their_feature(path):
    stamps = pa.array([dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)], pa.timestamp("us"))
    write_deltalake(path, SMALL)
    write_deltalake(path, pa.table({"id": [7, 8], "t": stamps}), mode="append", schema_mode="merge")
    protocol = DeltaTable(path).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert "timestampNtz" in protocol.reader_features
    assert [r["t"] for r in rows(DeltaTable(path), "id")[-2:]] == stamps.to_pylist()


@pytest.mark.tier("test")
def test_target_file_size_splits_and_streaming_reads_back(path):
    wide = pa.table({"id": range(200_000), "x": pc.random(200_000)})
    write_deltalake(path, wide.to_reader(max_chunksize=10_000), target_file_size=300_000)
    table = DeltaTable(path)
    assert table.files().num_rows > 3
    assert table.count() == 200_000
    assert pc.sum(table.to_pyarrow_table(columns=["id"])["id"]).as_py() == sum(range(200_000))
    with pytest.raises(errors.InvalidArgumentError, match="target_file_size"):
        write_deltalake(path, wide, mode="append", target_file_size=0)


def test_decimals_keep_their_digits_in_statistics(path):
    big = decimal.Decimal("12345678901234567890123456.789012345678")
    write_deltalake(path, pa.table({"d": pa.array([big, None], pa.decimal128(38, 12))}))
    text = next(a["add"]["stats"] for a in commit_of(path, 0) if "add" in a)
    assert "12345678901234567890123456.789012345678" in text
    assert DeltaTable(path).scan(predicate=f"d = {big}").to_table().num_rows == 1


def test_a_handle_follows_its_own_writes(path):
    write_deltalake(path, SMALL)
    table = DeltaTable(path)
    write_deltalake(table, SMALL, mode="append")
    assert table.version() == 1
    pinned = DeltaTable(path, version=0)
    with pytest.raises(errors.ReadOnlyTableError, match="version 0"):
        write_deltalake(pinned, SMALL, mode="append")


def test_results_are_values_and_mappings(path):
    result = write_deltalake(path, SMALL)
    assert dict(result)["version"] == result["version"] == result.version == 0
    assert result.attempts == 1
    assert result.rebased_over == ()
    with pytest.raises(KeyError):
        result["nothing"]
