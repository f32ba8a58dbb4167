"""What the fuzzers found, each as the smallest input that shows it."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from handmade import PROTOCOL, VECTORS, Handmade, field, metadata, parquet, struct
from refdelta import DeltaTable
from refdelta.arrow.arrays import check_values
from refdelta.arrow.schema import to_arrow
from refdelta.core.log.codec import decode_commit
from refdelta.core.log.lean import decode_lean
from refdelta.core.log.segment import parse_last_checkpoint
from refdelta.core.rows.deletion_vector import encode_inline, serialize_bitmap
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.log.statistics import read_statistics
from refdelta.errors import DataFileError, DeltaError, InvalidLogError, PredicateError, StoreError, UnsupportedTypeError
from refdelta.expressions.sql import parse_expression
from refdelta.pruning.stats import load_stats, statistic
from refdelta.table.partition_values import parse, parse_timestamp
from refdelta.table.types import DOUBLE, LONG, TIMESTAMP, DecimalType, StructField, StructType, parse_schema
from refdelta_storage import MemoryStore

IDS = struct(field("id", "long"))


# --- messages ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [InvalidLogError, StoreError, PredicateError, DeltaError])
def test_a_message_is_one_line_that_does_not_steer_a_terminal(kind):
    text = str(kind("what the log says: 'a\nb\x1b[2Jc\u202ed\udc80é'"))
    assert text == r"what the log says: 'a\nb\x1b[2Jc\u202ed\udc80é'"


def test_a_message_does_not_flood_a_terminal():
    text = str(InvalidLogError("x" * 100_000 + "the end", file="f.json", line=3))
    assert len(text) < 2_000
    assert text.startswith("f.json, line 3: xxx")
    assert text.endswith("the end")
    assert "characters left out" in text


def test_sql_that_cannot_be_shown_is_refused_in_one_line():
    with pytest.raises(PredicateError) as caught:
        parse_expression("name || 'a\0\n", StructType())
    assert str(caught.value).isprintable()


def test_sql_that_its_parser_reads_and_cannot_write():
    schema = StructType((StructField("id", LONG),))
    with pytest.raises(PredicateError, match="not supported here"):
        parse_expression("CAST(id AS DECIMAL(ok))", schema)


# --- values ------------------------------------------------------------------------------------------------------


def test_an_exponent_that_no_decimal_has_is_no_statistic():
    text = '{"numRecords": 3, "maxValues": {"x": 1.5e99999999999999999999}}'
    assert load_stats(text) is None
    assert statistic("1e99999999999999999999", DOUBLE) == float("inf")


def test_a_statistic_of_a_decimal_that_does_not_fit_its_type():
    kind = DecimalType(38, 38)
    texts = [
        '{"x": 0.5}',
        '{"x": -9223372036854775808}',
        '{"x": 1e30}',
        '{"x": 99999999999999999999999999999999999999}',
    ]
    _, (found,) = read_statistics(pa.chunked_array([pa.array(texts)]), [(("x",), kind)])
    assert found.to_pylist() == [Decimal("0.5"), None, None, None]


@pytest.mark.parametrize(
    "text", ['{"x": 12', '{"x": 12, "y": {}', '{"x": 12}, "y": 3', '{"x": 12}, {"x": 13}', "", " ", '{"x": 12}]']
)
def test_statistics_that_are_cut_off_are_none(text):
    for texts in ([text], [text, '{"x": 5}'], ['{"x": 5}', text, None]):
        known, (found,) = read_statistics(pa.chunked_array([pa.array(texts)]), [(("x",), LONG)])
        assert known.to_pylist() == [one == '{"x": 5}' for one in texts]
        assert found.to_pylist() == [5 if one == '{"x": 5}' else None for one in texts]


@pytest.mark.parametrize("text", ["294247-01-10 04:00:54.775808", "-290308-12-21 19:59:05.224191", "999999-12-31"])
def test_a_partition_value_beyond_64_bits(text):
    with pytest.raises(InvalidLogError, match="is beyond what a timestamp can be"):
        parse(text, TIMESTAMP, column="at")
    assert parse_timestamp("294247-01-10 04:00:54.775807") == 2**63 - 1
    assert parse_timestamp("-290308-12-21 19:59:05.224192") == -(2**63)


@pytest.mark.parametrize(
    "text", [r'{"name": "\ud800", "type": "long"}', r'{"name": "a", "type": "long", "metadata": {"m": "\udc00"}}']
)
def test_half_of_a_character_in_a_schema(text):
    with pytest.raises(InvalidLogError, match="half of a character"):
        parse_schema(f'{{"type": "struct", "fields": [{text}]}}')
    parse_schema(r'{"type": "struct", "fields": [{"name": "\ud83d\ude00", "type": "long"}]}')


@pytest.mark.parametrize(
    "text", [r'"tags": {"a": "\ud800"}', r'"checkpointSchema": ["\udc00"]', r'"checksum": "x", "x": "\ud800"']
)
def test_half_of_a_character_in_a_hint(text):
    assert parse_last_checkpoint(f'{{"version": 3, "size": 1, {text}}}'.encode()) is None
    assert parse_last_checkpoint(b'{"version": 3, "size": 1, "tags": {"a": "\\ud83d\\ude00"}}') is not None


def test_a_map_whose_keys_have_no_type():
    text = '{"type": "map", "keyType": "void", "valueType": "long", "valueContainsNull": true}'
    schema = parse_schema(f'{{"type": "struct", "fields": [{{"name": "m", "type": {text}}}]}}')
    with pytest.raises(UnsupportedTypeError, match="column m: maps without keys"):
        to_arrow(schema)


# --- files -------------------------------------------------------------------------------------------------------

LATIN = pa.Array.from_buffers(pa.string(), 1, [None, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xe9")])


def test_text_of_a_checkpoint_that_is_not_utf8():
    made = Handmade(IDS)
    key = made.checkpoint(
        0, [{"add": {"path": "f", "partitionValues": {}, "size": 1, "dataChange": True, "stats": "{}"}}]
    )
    whole = pq.read_table(pa.BufferReader(made.store.get(key)))
    add = whole["add"].combine_chunks()
    fields = [LATIN if name.name == "stats" else add.field(name.name) for name in add.type]
    made.put(key, parquet(pa.table({"add": pa.StructArray.from_arrays(fields, [name.name for name in add.type])})))
    made.store.delete([f"_delta_log/{0:020d}.json"])
    with pytest.raises(InvalidLogError, match=rf"{key}: cannot be read: .*UTF8"):
        load_snapshot(made.store)


def test_a_checkpoint_with_an_add_without_its_size():
    made = Handmade(IDS, store=MemoryStore("without-size"))
    added = made.data("f.parquet", pa.table({"id": [1]}))["add"]
    key = made.checkpoint(0, [PROTOCOL, metadata(IDS), {"add": added | {"size": None}}])
    made.store.delete([f"_delta_log/{0:020d}.json"])
    with pytest.raises(InvalidLogError, match=f"{key}: .*an add without size"):
        DeltaTable(made.store.uri).to_pyarrow_table()


@pytest.mark.parametrize("kind", ["metaData", "txn"])
def test_a_field_with_the_name_under_which_unknown_fields_are_kept(kind):
    body = {"metaData": metadata(IDS)["metaData"], "txn": {"appId": "a", "version": 1}}[kind]
    data = json.dumps({kind: body | {"extra": {"a": 1}}}).encode()
    (action,) = decode_commit(data, "f.json")
    assert action.extra == {"extra": {"a": 1}}
    assert decode_lean(data, "f.json").others == [action]


def test_which_text_is_looked_at():
    sound = pa.array(["", "abc", None, "\U0001f600é"])
    for start in range(4):
        check_values(pa.record_batch({"a": sound.slice(start), "b": sound.slice(start).cast(pa.large_string())}))
    check_values(pa.record_batch({"a": pa.array([], pa.string()), "n": pa.nulls(0)}))
    # "é" cut in two: as one text it would do.
    offsets = pa.array([0, 1, 2], pa.int32()).buffers()[1]
    halves = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer("é".encode())])
    for column in (LATIN, halves, halves.slice(1), pa.StructArray.from_arrays([halves], ["x"])):
        with pytest.raises(pa.ArrowInvalid, match="UTF8"):
            check_values(pa.record_batch({"a": column}))


def test_a_long_text_is_looked_at_to_its_ends():
    many = pa.array([b"x" * 30] * 1000)
    for odd in (0, 1, 998, 999):
        column = pa.concat_arrays([many.slice(0, odd), pa.array([b"\xff"]), many.slice(odd)]).view(pa.string())
        with pytest.raises(pa.ArrowInvalid, match="UTF8"):
            check_values(pa.record_batch({"a": column}))
        check_values(pa.record_batch({"a": column.slice(odd + 1)}))
        check_values(pa.record_batch({"a": column.slice(0, odd)}))


def test_text_of_a_data_file_that_is_not_utf8():
    made = Handmade(struct(field("name", "string")), store=MemoryStore("latin"))
    made.commit(made.data("f.parquet", pa.table({"name": LATIN})))
    with pytest.raises(DataFileError, match=r"f.parquet: cannot be read as Parquet: .*UTF8"):
        DeltaTable("memory://latin").to_pyarrow_table()


def test_decimals_of_too_many_digits():
    """A filter may look at them, and none comes out."""
    long = pa.Array.from_buffers(pa.decimal128(3, 1), 2, pa.array([15, 20_000], pa.decimal128(38, 0)).buffers())
    made = Handmade(struct(field("price", "decimal(3,1)")), store=MemoryStore("digits"))
    made.commit(made.data("f.parquet", pa.table({"price": long})))
    table = DeltaTable("memory://digits")
    assert table.to_pyarrow_table(filters="price < 2")["price"].to_pylist() == [Decimal("1.5")]
    for filters in (None, "price > 2"):
        with pytest.raises(DataFileError, match=r"f.parquet: cannot be read as Parquet: .*(precision|fit)"):
            table.to_pyarrow_table(filters=filters)


def test_a_file_is_live_twice_with_two_vectors():
    switched_on = {"delta.enableDeletionVectors": "true"}
    made = Handmade(IDS, protocol=VECTORS, configuration=switched_on, store=MemoryStore("twice"))
    one = made.data("f.parquet", pa.table({"id": [1, 2, 3]}))
    bitmap = serialize_bitmap(BitMap64([1]))
    vector = {"storageType": "i", "pathOrInlineDv": encode_inline(bitmap), "sizeInBytes": len(bitmap), "cardinality": 1}
    made.commit(one, made.data("g.parquet", pa.table({"id": [4]})))
    made.commit({"add": one["add"] | {"deletionVector": vector}})
    table = DeltaTable(made.store.uri)
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [
        1,
        1,
        2,
        3,
        3,
        4,
    ]  # as the protocol has it: two logical files
    merge = table.merge(pa.table({"id": [3]}), "s.id = t.id", source_alias="s", target_alias="t")
    for statement in (
        table.optimize.compact,
        lambda: table.optimize.z_order(["id"]),
        lambda: table.delete("id = 3"),
        lambda: table.update({"id": "30"}, predicate="id = 3"),
        merge.when_matched_delete().execute,
    ):
        with pytest.raises(InvalidLogError, match=r"'f\.parquet' is live twice"):
            statement()
