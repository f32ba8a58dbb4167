"""``DeltaTable.diff``: the rows that only one of two versions has, compared with counts of all rows of both."""

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.arrow.row_hashes import row_hashes
from refdelta.operations.inspection import diff as module
from tiers import examples

CONFIGURATIONS = {
    "vectors": {"delta.enableDeletionVectors": "true"},
    "files": {},
    "feed": {"delta.enableChangeDataFeed": "true"},
    "names": {"delta.columnMapping.mode": "name"},
}


def rows(ids):
    """Some rows are equal, and there are nested values and nulls."""
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "text": [None if i % 5 == 0 else "x" * (i % 3) for i in ids],
            "list": pa.array([None if i % 4 == 0 else list(range(i % 3)) for i in ids], pa.list_(pa.int64())),
            "item": [{"a": i % 2 == 0, "b": str(i % 3)} for i in ids],
        }
    )


def counted(table):
    return Counter(map(repr, table.to_pylist()))


def expected(uri, before, after):
    one, two = (counted(DeltaTable(uri, version=version).to_pyarrow_table()) for version in (before, after))
    return one - two, two - one


def found(diff):
    table = diff.to_table()
    plain = table.drop_columns(["_change_type"])
    kinds = table.column("_change_type")
    return tuple(counted(plain.filter(pa.compute.equal(kinds, kind))) for kind in ("delete", "insert"))


@pytest.mark.tier("test")
@pytest.mark.sample(test=4)
@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_it_is_the_difference_of_two_multisets(tmp_path, monkeypatch, kind, passes):
    if passes > 1:
        monkeypatch.setattr(module, "_PASS", 7)
    random_ = random.Random(f"{kind}{passes}")
    write_deltalake(tmp_path, rows(range(12)), configuration=CONFIGURATIONS[kind])
    table = DeltaTable(tmp_path)
    steps = [
        lambda: table.delete(f"id % 7 = {random_.randrange(7)}"),
        lambda: table.update({"id": "id + 1"}, predicate=f"id % 5 = {random_.randrange(5)}"),
        lambda: write_deltalake(table, rows(random_.choices(range(12), k=4)), mode="append"),
        table.optimize.compact,
        lambda: table.restore(random_.randrange(table.version() + 1)),
    ]
    for _ in range(9):
        random_.choice(steps)()
        table.update_incremental()
    newest = table.version()
    for before, after in [(0, newest), (newest, 0), (newest // 2, newest), (newest, newest)]:
        difference = table.diff(before, after)
        assert found(difference) == expected(tmp_path, before, after), (before, after)
        assert difference.by_feed == (kind == "feed" and before < after)


def test_columns_properties_and_protocol(tmp_path):
    write_deltalake(tmp_path, rows([1, 2]))
    table = DeltaTable(tmp_path)
    table.alter.add_columns(pa.schema({"more": pa.string()}))
    table.alter.set_table_properties({"delta.appendOnly": "true"})
    assert table.diff(0).summary() == {
        "versions": [0, 2],
        "by": "files",
        "deleted": 0,
        "inserted": 0,
        "columns": {"more": [None, "string"]},
        "properties": {"delta.appendOnly": [None, "true"]},
        "protocol": {},
    }
    assert table.diff(0).to_table().column_names == [*rows([]).column_names, "more", "_change_type"]


def test_columns_that_both_have_alike_are_compared(tmp_path):
    write_deltalake(tmp_path, pa.table({"id": [1, 2], "v": [1, 2]}))
    write_deltalake(tmp_path, pa.table({"id": [2, 3], "v": ["a", "b"]}), mode="overwrite", schema_mode="overwrite")
    difference = DeltaTable(tmp_path).diff(0)
    assert difference.columns == {"v": ("long", "string")}
    assert difference.to_table().to_pylist() == [
        {"id": 1, "_change_type": "delete"},
        {"id": 3, "_change_type": "insert"},
    ]


def test_versions_that_do_not_exist(tmp_path):
    write_deltalake(tmp_path, rows([1]))
    with pytest.raises(errors.VersionNotFoundError):
        DeltaTable(tmp_path).diff(7)


# --- hashes ----------------------------------------------------------------------------------------------------------

TYPES = {
    pa.int8(): st.integers(-128, 127),
    pa.bool_(): st.booleans(),
    pa.float64(): st.floats(allow_nan=False).filter(lambda value: value != 0),
    pa.decimal128(30, 2): st.decimals(-(10**20), 10**20, places=2),
    pa.string(): st.text(max_size=4),
    pa.binary(): st.binary(max_size=3),
    pa.date32(): st.dates(),
    pa.list_(pa.string()): st.lists(st.text(max_size=2) | st.none(), max_size=3),
    pa.struct({"a": pa.int16(), "b": pa.list_(pa.bool_())}): st.fixed_dictionaries(
        {
            "a": st.integers(0, 2) | st.none(),
            "b": st.lists(st.booleans(), max_size=2),
        }
    ),
    pa.map_(pa.string(), pa.int64()): st.lists(
        st.tuples(st.text(max_size=1), st.integers(0, 2)), max_size=2, unique_by=lambda pair: pair[0]
    ),
}


@pytest.mark.tier("test")
@examples(100)
@given(st.data())
def test_hashes_are_equal_where_rows_are(data):
    kind = data.draw(st.sampled_from(list(TYPES)))
    values = data.draw(st.lists(TYPES[kind] | st.none(), min_size=1, max_size=12))
    start = data.draw(st.integers(0, len(values)))
    values += values[:3]
    column = pa.array(values, kind)
    hashes = row_hashes(pa.record_batch({"a": column, "n": pa.nulls(len(column))}))
    for one in range(len(values)):
        for other in range(len(values)):
            assert (hashes[one] == hashes[other]) == (column[one].equals(column[other])), (values[one], values[other])
    sliced = row_hashes(pa.record_batch({"a": column.slice(start), "n": pa.nulls(len(column) - start)}))
    assert np.array_equal(hashes[start:], sliced)


def test_columns_are_not_interchangeable():
    one, two = (row_hashes(pa.record_batch({"a": [x], "b": [y]})) for x, y in ((1, 2), (2, 1)))
    assert one[0] != two[0]
