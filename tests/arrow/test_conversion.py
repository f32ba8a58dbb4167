"""Extension types of Arrow on the way to a table: their storage types, at every depth."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

import refdelta
from refdelta import DeltaTable, sql, write_deltalake
from refdelta.arrow.schema import from_arrow
from refdelta.table.types import BOOLEAN, LONG, STRING, ArrayType, StructField, StructType


class Tagged(pa.ExtensionType):
    """An extension type with a parameter, which is not registered."""

    def __init__(self, storage, tag):
        self.tag = tag
        super().__init__(storage, "tests.tagged")

    def __arrow_ext_serialize__(self):
        return self.tag.encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls(storage, serialized.decode())


def of(kind, values):
    return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))


BOOLS = of(pa.bool8(), [1, 0, None, -3])
TEXTS = of(pa.json_(), ["{}", None, "[1]", '"x"'])
TAGS = of(Tagged(pa.int64(), "metres"), [1, None, 3, 4])
LISTS = pa.ListArray.from_arrays(pa.array([0, None, 1, 1, 2], pa.int32()), BOOLS.take(pa.array([0, 2])))
NESTED = pa.ExtensionArray.from_storage(Tagged(LISTS.type, "of bools"), LISTS)
TENSORS = of(pa.fixed_shape_tensor(pa.int64(), (2,)), [[1, 2], None, [3, 4], [5, 6]])
PLAIN = {
    "bool8": (BOOLS, [True, False, None, True]),
    "json": (TEXTS, ["{}", None, "[1]", '"x"']),
    "a parameter": (TAGS, [1, None, 3, 4]),
    "a list": (NESTED, [[True], None, [], [None]]),
    "tensors": (TENSORS, [[1, 2], None, [3, 4], [5, 6]]),
    "in a struct": (
        pa.StructArray.from_arrays([BOOLS, TAGS], names=["b", "t"]),
        [{"b": b, "t": t} for b, t in zip([True, False, None, True], [1, None, 3, 4], strict=True)],
    ),
    "in a list": (pa.ListArray.from_arrays([0, 2, 2, 4, 4], TEXTS), [["{}", None], [], ["[1]", '"x"'], []]),
    "in a map": (
        pa.MapArray.from_arrays([0, 1, 1, 2, 2], TEXTS.take(pa.array([0, 2])), BOOLS.take(pa.array([0, 1]))),
        [[("{}", True)], [], [("[1]", False)], []],
    ),
    "dictionaries": (
        pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1]), TEXTS.take(pa.array([0, 2]))),
        ["[1]", None, "{}", "[1]"],
    ),
}


@pytest.mark.sample(check=None)
@pytest.mark.parametrize("kind", PLAIN)
def test_an_extension_type_is_stored_as_its_storage_type(tmp_path, kind):
    array, expected = PLAIN[kind]
    data = pa.table({"k": [0, 1, 2, 3], "x": array})
    write_deltalake(tmp_path, data)
    write_deltalake(tmp_path, data.slice(1, 2), mode="append")
    DeltaTable(tmp_path).merge(data, "s.k = t.k").when_matched_update_all().execute()
    found = DeltaTable(tmp_path).to_pyarrow_table().sort_by("k")
    assert found["x"].to_pylist() == [expected[0], *[expected[1]] * 2, *[expected[2]] * 2, expected[3]]
    assert sql("SELECT x FROM s WHERE k = 3", s=data)["x"].to_pylist() == expected[3:]


def test_the_schema_of_extension_types():
    schema = pa.schema({"b": pa.bool8(), "j": pa.list_(pa.json_()), "t": Tagged(pa.int64(), "metres"), "u": pa.uuid()})
    fields = {"b": BOOLEAN, "j": ArrayType(STRING), "t": LONG, "u": STRING}
    assert from_arrow(schema) == StructType(tuple(StructField(name, kind) for name, kind in fields.items()))
    assert refdelta.Schema.from_arrow(schema).struct == from_arrow(schema)


def test_what_duckdb_gives_with_lossless_conversion(tmp_path):
    connection = duckdb.connect()
    connection.execute("SET arrow_lossless_conversion = true")
    data = connection.sql("SELECT true AS b, '{\"a\": 1}'::JSON AS j, [false] AS l, {'b': true} AS s").to_arrow_table()
    write_deltalake(tmp_path, data)
    row = {"b": True, "j": '{"a": 1}', "l": [False], "s": {"b": True}}
    assert DeltaTable(tmp_path).to_pyarrow_table().to_pylist() == [row]
