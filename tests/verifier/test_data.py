"""Data files: each thing that can be wrong with them, once; and sound ones of every kind.

Tests of verifier.data_files, verifier.row_rules, verifier.row_tracking, verifier.statistics.
"""

from __future__ import annotations

import datetime as dt
import json
import struct as bits
import zlib
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from handmade import field, parquet, struct
from refdelta import DeltaTable, write_deltalake
from refdelta.core.rows.deletion_vector import NATIVE_MAGIC, encode_inline, encode_relative, serialize_bitmap
from refdelta.verifier.run import verify, verify_store
from tiers import examples
from verifier.tables import add, protocol, table

DATA = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "part": ["x", "y", None]})
STATS = {
    "numRecords": 3,
    "minValues": {"id": 1, "part": "x"},
    "maxValues": {"id": 3, "part": "y"},
    "nullCount": {"id": 0, "part": 1},
}


def found(made, sample=None):
    report = verify_store(made.store, sample=sample)
    assert report.unchecked == []
    return [finding.clause for finding in report.findings]


def file(made, data=DATA, stats=STATS, name="a.parquet", **fields):
    content = parquet(data)
    made.put(name, content)
    text = stats if isinstance(stats, str) else json.dumps(stats)
    return add(name, size=len(content), stats=text, **fields)


def test_sound():
    made = table()
    made.commit(file(made))
    assert found(made) == []


def test_cut_bounds_of_padded_strings():
    def of(low, high):
        mark = {"__CHAR_VARCHAR_TYPE_STRING": "char(60)"}
        made = table(schema=struct(field("id", "long"), field("part", "string", **mark)))
        bounds = {"minValues": {"part": low}, "maxValues": {"part": high}}
        made.commit(file(made, pa.table({"id": [1, 2], "part": ["a" + " " * 59, "é" + " " * 59]}), bounds))
        return found(made)

    spaces = " " * 31
    assert of("a", "é") == of("a" + spaces, "é" + spaces + "\x7f") == []
    assert of("b" + spaces, "é") == of("a", "b" + spaces + "\x7f") == ["stats-1"]
    assert of("a", "éa" + spaces[1:] + "\x7f") == ["stats-3"]


def test_a_file_that_is_gone_and_one_of_another_size():
    made = table()
    made.commit(add("gone"))
    assert found(made) == ["file-1"]
    made = table()
    one = file(made)
    one["add"]["size"] += 1
    made.commit(one)
    assert found(made) == ["file-1"]


def test_a_sample_looks_for_all_files_and_into_some():
    made = table()
    for number in range(10):
        made.commit(file(made, name=f"{number}.parquet"))
    report = verify_store(made.store, sample=3)
    assert (report.checked["files"], report.checked["rows"]) == (10, 9)
    assert verify_store(made.store, sample=0).checked["files"] == 0
    made.store.delete(["9.parquet"])
    assert [finding.file for finding in verify_store(made.store, sample=1).findings] == ["9.parquet"]


def changed(part, /, **values):
    return STATS | {part: STATS[part] | values}


WRONG = [
    ("stats-4", STATS | {"numRecords": 4}),
    ("stats-1", changed("minValues", id=2)),
    ("stats-1", changed("maxValues", id=2)),
    ("stats-1", changed("minValues", part="y")),
    ("stats-1", changed("maxValues", part="x")),
    ("stats-3", changed("minValues", id=0)),
    ("stats-3", changed("maxValues", part="z")),
    ("stats-5", changed("nullCount", part=0)),
    ("stats-5", changed("nullCount", id=3)),
    ("stats-6", changed("minValues", id="x")),
    ("stats-1", changed("minValues", id=2) | {"tightBounds": False}),
    ("stats-5", changed("nullCount", part=0) | {"tightBounds": False}),
    ("stats-5", changed("nullCount", part=3) | {"tightBounds": False}),
]


@pytest.mark.parametrize(("clause", "stats"), WRONG)
def test_statistics_that_are_not_the_rows(clause, stats):
    made = table()
    made.commit(file(made, stats=stats))
    assert set(found(made)) == {clause}


def test_wide_bounds_only_bound():
    made = table()
    wide = {"minValues": {"id": 0}, "maxValues": {"id": 9}, "nullCount": {"part": 2}, "tightBounds": False}
    made.commit(file(made, stats=STATS | wide))
    assert found(made) == []


KINDS = struct(
    *(
        field(name, name if name != "decimal" else "decimal(5,2)")
        for name in ("byte", "double", "float", "date", "timestamp", "boolean", "string", "decimal")
    ),
    field("s", struct(field("x", "long"))),
)


def kinds():
    noon = dt.datetime(2020, 1, 1, 12, 0, 0, 123456)
    return {
        "byte": pa.array([1, 2], pa.int8()),
        "double": pa.array([1.5, float("nan")]),
        "float": pa.array([0.1, 0.2], pa.float32()),
        "date": [dt.date(1500, 1, 1), dt.date(9999, 12, 31)],
        "timestamp": pa.array([noon, noon], pa.timestamp("us", "UTC")),
        "boolean": [True, False],
        "string": ["a" * 40, "z" * 40],
        "decimal": [Decimal("1.10"), Decimal("2.00")],
        "s": [{"x": 1}, None],
    }


LOW = {
    "byte": 1,
    "double": 1.5,
    "float": 0.1,
    "date": "1500-01-01",
    "timestamp": "2020-01-01T12:00:00.123Z",
    "boolean": False,
    "string": "a" * 32,
    "decimal": 1.1,
    "s": {"x": 1},
}
HIGH = LOW | {
    "byte": 2,
    "double": "NaN",
    "float": 0.2,
    "date": "9999-12-31",
    "boolean": True,
    "string": "z" * 32 + "\x7f",
    "decimal": 2,
}


def of_kinds(low=LOW, high=HIGH, nulls=None):
    made = table(schema=KINDS)
    stats = {"numRecords": 2, "minValues": low, "maxValues": high, "nullCount": nulls or {"s": {"x": 1}}}
    made.commit(file(made, pa.table(kinds()), stats))
    return found(made)


def test_bounds_of_every_kind():
    assert of_kinds() == []
    assert of_kinds(nulls={"s": {"x": 0}}) == ["stats-5"]


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("byte", 2, 1),
        ("double", 1.6, 1.4),
        ("float", 0.11, 0.19),
        ("date", "1500-01-02", "9999-12-30"),
        ("timestamp", "2020-01-01T12:00:00.124Z", "2020-01-01T12:00:00.122Z"),
        ("boolean", True, False),
        ("string", "b", "y"),
        ("decimal", 1.11, 1.99),
        ("s", {"x": 2}, {"x": 0}),
    ],
)
def test_bounds_that_are_none(name, low, high):
    assert of_kinds(low=LOW | {name: low}) == ["stats-1"]
    assert of_kinds(high=HIGH | {name: high}) == ["stats-1"]


@examples(12)
@given(st.data())
def test_what_refdelta_writes_is_sound(fresh_path, data):
    columns = {
        "i": st.integers(-(2**63), 2**63 - 1),
        "f": st.floats(),
        "s": st.text(max_size=70),
        "d": st.dates(),
        "t": st.datetimes(timezones=st.just(dt.UTC)),
        "n": st.decimals(-99, 99, places=3),
        "b": st.booleans(),
    }
    schema = pa.schema(
        [
            ("i", pa.int64()),
            ("f", pa.float64()),
            ("s", pa.string()),
            ("d", pa.date32()),
            ("t", pa.timestamp("us", "UTC")),
            ("n", pa.decimal128(9, 3)),
            ("b", pa.bool_()),
        ]
    )
    row = st.fixed_dictionaries({name: st.none() | kind for name, kind in columns.items()})
    rows = data.draw(st.lists(row, min_size=1, max_size=6))
    path = fresh_path()
    write_deltalake(path, pa.Table.from_pylist(rows, schema=schema))
    report = verify(path, sample=None)
    assert report.findings == []
    assert report.checked["rows"] == len(rows)


class TestColumns:
    def test_a_column_that_the_table_lacks(self):
        made = table()
        made.commit(file(made, DATA.append_column("more", DATA["id"])))
        assert found(made) == ["file-2"]

    def test_ids_of_rows_that_are_tracked_no_longer(self, tmp_path):
        write_deltalake(tmp_path, DATA, configuration={"delta.enableRowTracking": "true"})
        handle = DeltaTable(tmp_path)
        handle.update({"id": "id"})
        handle.alter.drop_feature("rowTracking")
        assert verify(tmp_path, sample=None).findings == []

    def test_a_column_that_the_file_lacks(self):
        made = table()
        made.commit(file(made, DATA.select(["id"]), {"numRecords": 3}))
        assert found(made) == []

    def test_another_type(self):
        made = table()
        made.commit(file(made, pa.table({"id": [{"x": 1}], "part": ["x"]}), {"numRecords": 1}))
        assert found(made) == ["file-7"]

    def test_what_is_no_parquet(self):
        made = table()
        made.put("a", b"PAR1")
        made.commit(add("a", size=4))
        assert found(made) == ["file-7"]

    def test_nulls_where_there_are_none(self):
        made = table(schema=struct(field("id", "long"), field("part", "string", nullable=False)))
        made.commit(file(made))
        assert found(made) == ["file-8"]
        inner = struct(field("x", "long", nullable=False))
        made = table(schema=struct(field("s", inner)))
        made.commit(file(made, pa.table({"s": [{"x": 1}, None]}), {"numRecords": 2}))
        assert found(made) == []
        made = table(schema=struct(field("s", inner)))
        made.commit(file(made, pa.table({"s": [{"x": 1}, {"x": None}]}), {"numRecords": 2}))
        assert found(made) == ["file-8"]

    def test_partition_values_are_read(self):
        made = table("part", schema=struct(field("id", "long"), field("part", "date")))
        data = DATA.select(["id"])
        made.commit(file(made, data, {"numRecords": 3}, partitionValues={"part": "2020-01-01"}))
        assert found(made) == []

    @pytest.mark.parametrize(
        ("mode", "number", "clauses"),
        [("name", 1, []), ("name", 2, ["map-4"]), ("id", 1, []), ("id", None, ["map-4"]), ("name", None, [])],
    )
    def test_field_ids(self, mode, number, clauses):
        marks = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "x"}
        kind = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "1"}
        versions = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
        made = table(schema=struct(field("id", "long", **marks)), protocol=versions, configuration=kind)
        note = None if number is None else {"PARQUET:field_id": str(number)}
        data = pa.table([DATA["id"]], pa.schema([pa.field("x", pa.int64(), metadata=note)]))
        stats = {"numRecords": 3, "minValues": {"x": 1}, "maxValues": {"x": 3}}
        made.commit(file(made, data, stats if number == 1 else {"numRecords": 3}))
        assert found(made) == clauses

    def test_iceberg_wants_partition_columns_in_the_files(self):
        def marks(number, name):
            return {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": name}

        kind = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
        made = table(
            "part",
            schema=struct(field("id", "long", **marks(1, "id")), field("part", "string", **marks(2, "p"))),
            protocol=protocol("icebergCompatV1", reader=("columnMapping",)),
            configuration=kind | {"delta.enableIcebergCompatV1": "true"},
        )
        made.commit(file(made, DATA.select(["id"]), {"numRecords": 3}, partitionValues={"p": "x"}))
        assert found(made) == ["iceberg-3"]


NO_VARIANT = {"metadata": b"\2\0\0", "value": b"\0"}
VARIANT = {"metadata": b"\1\0\0", "value": b"\0"}


def with_variants(values, *features, stats=None, nullable=True, kind=None):
    """A file of three rows, the second of which is deleted."""
    made = table(
        schema=struct(field("id", "long"), {"name": "v", "type": "variant", "nullable": nullable, "metadata": {}}),
        protocol=protocol(reader=("variantType", "deletionVectors", *features)),
        configuration={"delta.enableDeletionVectors": "true"},
    )
    data = pa.table({"id": DATA["id"], "v": pa.array(values, kind)})
    descriptor = vector_of(ONE)
    stats = {"numRecords": 3, "tightBounds": False} | (stats or {})
    made.commit(file(made, data, stats, deletionVector=descriptor))
    return found(made)


def vector_of(body):
    return {"storageType": "i", "pathOrInlineDv": encode_inline(body), "sizeInBytes": len(body), "cardinality": 1}


def test_columns_of_variants():
    assert with_variants([VARIANT] * 3) == []
    assert with_variants([VARIANT, NO_VARIANT, None]) == []  # the second row is deleted
    assert with_variants([VARIANT] * 3, stats={"minValues": {"id": 2}}) == ["stats-1"]
    assert with_variants([VARIANT, None, VARIANT], stats={"nullCount": {"v": 3}}) == ["stats-5"]
    assert with_variants([None, VARIANT, None], nullable=False) == ["file-8"]
    assert with_variants([NO_VARIANT, VARIANT, None]) == ["variant-2"]
    assert with_variants([VARIANT | {"value": b""}, VARIANT, None]) == ["variant-2"]


def test_shredded_variants_need_their_feature():
    typed = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int64())])
    values = [{"metadata": b"\1\0\0", "value": None, "typed_value": 7}] * 3
    assert with_variants(values, kind=typed) == ["variant-2"]
    assert with_variants(values, "variantShredding", kind=typed) == []


# --- deletion vectors --------------------------------------------------------------------------------------------


def with_vector(body, *, cardinality=1, framed=None, version=b"\x01", size=None, inline=False):
    """A file of three rows with a vector, of which a test may spoil each part."""
    configuration = {"delta.enableDeletionVectors": "true"}
    made = table(protocol=protocol(reader=("deletionVectors",)), configuration=configuration)
    size = len(body) if size is None else size
    descriptor = {"storageType": "i", "pathOrInlineDv": encode_inline(body)}
    if not inline:
        identity = UUID(int=1)
        frame = bits.pack(">i", len(body)) + body + bits.pack(">I", zlib.crc32(body))
        made.put(f"deletion_vector_{identity}.bin", version + (framed or frame))
        descriptor = {"storageType": "u", "pathOrInlineDv": encode_relative(identity), "offset": 1}
    descriptor |= {"sizeInBytes": size, "cardinality": cardinality}
    made.commit(file(made, stats=STATS | {"tightBounds": False}, deletionVector=descriptor))
    return made


ONE = serialize_bitmap(BitMap64([1]))


@pytest.mark.parametrize("inline", [True, False])
def test_a_sound_vector(inline):
    assert found(with_vector(ONE, inline=inline)) == []


def native(body):
    """The same rows in the older form."""
    return bits.pack("<iii", NATIVE_MAGIC, 1, len(body) - 16) + body[16:]


@pytest.mark.parametrize(
    ("clause", "spoilt"),
    [
        ("dv-2", {"body": ONE, "cardinality": 2}),
        ("dv-2", {"body": ONE, "framed": bits.pack(">i", len(ONE)) + ONE + b"\0\0\0\0"}),
        ("dv-2", {"body": ONE, "framed": b"\0"}),
        ("dv-3", {"body": ONE, "version": b"\x02"}),
        ("dv-3", {"body": native(ONE)}),
        ("dv-8", {"body": serialize_bitmap(BitMap64([3]))}),
    ],
)
def test_vectors_that_are_none(clause, spoilt):
    assert found(with_vector(**spoilt)) == [clause]


def test_a_vector_that_is_gone():
    made = with_vector(ONE)
    made.store.delete([info.key for info in made.store.list(prefix="deletion_vector")])
    assert found(made) == ["dv-2"]


def test_bounds_are_of_live_rows():
    made = with_vector(ONE)  # the row 2, y is gone
    live = STATS | {"maxValues": {"id": 3, "part": "x"}, "tightBounds": False}
    one = json.loads(made.store.get(f"_delta_log/{1:020d}.json"))
    one["add"]["stats"] = json.dumps(live)
    made.put(f"_delta_log/{1:020d}.json", json.dumps(one).encode())
    assert found(made) == []


# --- rules -------------------------------------------------------------------------------------------------------


def ruled(marks, feature, configuration=None, data=None):
    made = table(
        schema=struct(field("id", "long", **marks), field("part", "string")),
        protocol=protocol(feature),
        configuration=configuration,
    )
    made.commit(file(made, data or DATA, {"numRecords": 3}))
    return found(made)


def test_invariants():
    def of(text):
        return ruled({"delta.invariants": json.dumps({"expression": {"expression": text}})}, "invariants")

    assert of("id > 0") == []
    assert of("id > 1") == ["rows-1"]


def test_constraints():
    def of(text):
        return ruled({}, "checkConstraints", {"delta.constraints.c": text})

    assert of("id > 0") == []
    assert of("id > 1") == ["rows-2"]
    assert of("part > 'a'") == ["rows-2"]  # null is not true


def test_generated_columns():
    def of(text):
        return ruled({"delta.generationExpression": text}, "generatedColumns")

    assert of("id") == []
    assert of("CASE WHEN part = 'x' THEN 1 WHEN part = 'y' THEN 2 ELSE 3 END") == []
    assert of("length(part)") == ["rows-5"]


def test_what_the_writers_time_zone_decides_is_said_to_be_unchecked():
    def unchecked(text):
        made = table(
            schema=struct(field("at", "timestamp"), field("day", "date", **{"delta.generationExpression": text})),
            protocol=protocol("generatedColumns"),
        )
        at = pa.array([dt.datetime(2020, 1, 1, 23, tzinfo=dt.UTC)], pa.timestamp("us", "UTC"))
        made.commit(file(made, pa.table({"at": at, "day": [dt.date(2020, 1, 2)]}), {"numRecords": 1}))
        report = verify_store(made.store)
        return [finding.clause for finding in report.findings], len(report.unchecked)

    assert unchecked("CAST(at AS DATE)") == ([], 1)  # it was 2020-01-02 in Kathmandu
    assert unchecked("DATE '2020-01-02'") == ([], 0)
    assert unchecked("DATE '2020-01-01'") == (["rows-5"], 0)


def test_a_rule_that_nobody_here_understands_is_said_to_be_unchecked():
    made = table(protocol=protocol("checkConstraints"), configuration={"delta.constraints.c": "my_function(id)"})
    made.commit(file(made))
    report = verify_store(made.store)
    assert report.findings == []
    assert len(report.unchecked) > 0


@pytest.mark.parametrize(
    ("marks", "clauses"),
    [
        ({"start": 1, "step": 1, "highWaterMark": 3}, []),
        ({"start": 3, "step": -1, "highWaterMark": 1}, []),
        ({"start": 1, "step": 1, "highWaterMark": 2}, ["rows-8"]),
        ({"start": 3, "step": -1, "highWaterMark": 2}, ["rows-8"]),
        ({"start": 1, "step": 2, "highWaterMark": 3}, ["rows-9"]),
        ({"start": 2, "step": 1, "highWaterMark": 3}, ["rows-9"]),
    ],
)
def test_identity(marks, clauses):
    all_marks = {f"delta.identity.{name}": value for name, value in marks.items()}
    assert ruled(all_marks | {"delta.identity.allowExplicitInsert": False}, "identityColumns") == clauses
    assert ruled(all_marks | {"delta.identity.allowExplicitInsert": True}, "identityColumns") == []


@pytest.mark.parametrize("number", [2**63, 10**20, -(2**63) - 1, True, "1", None])
@pytest.mark.parametrize("name", ["start", "step", "highWaterMark"])
def test_identity_of_no_64_bits_is_said_once(name, number):
    marks = {"start": 1, "step": 1, "highWaterMark": 3, "allowExplicitInsert": False} | {name: number}
    assert ruled({f"delta.identity.{name}": value for name, value in marks.items()}, "identityColumns") == ["rows-8"]


@pytest.mark.parametrize(("start", "step"), [(-(2**62) * 2, 2**62), (2**63 - 1, -(2**62)), (-(2**63), 2**63 - 1)])
def test_identity_goes_through_all_numbers(start, step):
    values = [start, start + step, start + 2 * step]
    marks = {"start": start, "step": step, "highWaterMark": values[-1], "allowExplicitInsert": False}
    marks = {f"delta.identity.{name}": value for name, value in marks.items()}
    for ids, clauses in ((values, []), ([values[1] - 1], ["rows-9"])):
        data = pa.table({"id": pa.array(ids, pa.int64()), "part": ["x"] * len(ids)})
        made = table(schema=struct(field("id", "long", **marks), field("part", "string")), protocol=IDENTITY)
        made.commit(file(made, data, {"numRecords": len(ids)}))
        assert found(made) == clauses


IDENTITY = protocol("identityColumns")


def test_a_value_of_an_identity_occurs_once():
    marks = {"start": 1, "step": 1, "highWaterMark": 3, "allowExplicitInsert": False}
    made = table(
        schema=struct(field("id", "long", **{f"delta.identity.{k}": v for k, v in marks.items()})),
        protocol=protocol("identityColumns"),
    )
    data = DATA.select(["id"])
    made.commit(file(made, data, {"numRecords": 3}, name="a"), file(made, data, {"numRecords": 3}, name="b"))
    assert found(made) == ["rows-9"]


# --- ids of rows and changes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "clauses"), [([7, None, 8], []), ([7, 7, 8], ["track-6"]), ([12, None, 8], ["track-6"])]
)
def test_ids_of_rows(ids, clauses):
    made = table(
        protocol=protocol("rowTracking", "domainMetadata"),
        configuration={
            "delta.enableRowTracking": "true",
            "delta.rowTracking.materializedRowIdColumnName": "_id",
            "delta.rowTracking.materializedRowCommitVersionColumnName": "_version",
        },
    )
    data = DATA.append_column("_id", pa.array(ids, pa.int64()))
    mark = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":12}', "removed": False}
    fields = {"defaultRowCommitVersion": 1}
    made.commit(
        file(made, data, baseRowId=9, **fields, name="a"),
        file(made, DATA.slice(0, 1), {"numRecords": 1}, baseRowId=12, **fields, name="b"),
        {"domainMetadata": mark},
    )
    assert found(made) == clauses


@pytest.mark.parametrize(
    ("kinds", "clauses"), [(["insert", "delete"], []), (["insert", None], ["cdf-4"]), (["i", "i"], ["cdf-4"])]
)
def test_change_files(kinds, clauses):
    made = table()
    content = parquet(pa.table({"id": [1, 1], "_change_type": kinds}))
    made.put("_change_data/c", content)
    cdc = {"path": "_change_data/c", "partitionValues": {}, "size": len(content), "dataChange": False}
    made.commit({"cdc": cdc})
    assert found(made) == clauses


def test_change_files_name_the_kind():
    made = table()
    content = parquet(pa.table({"id": [1]}))
    made.put("_change_data/c", content)
    made.commit({"cdc": {"path": "_change_data/c", "partitionValues": {}, "size": len(content), "dataChange": False}})
    assert found(made) == ["cdf-4"]
