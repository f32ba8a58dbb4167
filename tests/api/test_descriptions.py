"""Names, descriptions and the metadata of columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake

ROWS = pa.table({"id": [1], "s": [{"x": 1, "l": [{"y": 2}]}]})


@pytest.fixture
def table(tmp_path):
    write_deltalake(tmp_path, ROWS, name="old", configuration={"delta.columnMapping.mode": "name"})
    return DeltaTable(tmp_path)


def test_a_table_has_a_name_and_a_description(table):
    assert table.alter.set_table_name("new").version == 1
    assert table.alter.set_table_name("new").version is None
    table.alter.set_table_description("what it is")
    assert (table.metadata().name, table.metadata().description) == ("new", "what it is")
    assert table.detail()["name"] == "new"
    assert table.history(1)[0]["operation"] == "UPDATE TABLE METADATA"
    table.alter.set_table_name(None)
    assert table.metadata().name is None
    with pytest.raises(errors.InvalidArgumentError, match="name"):
        table.alter.set_table_name(7)


def test_columns_are_described_at_any_depth(table):
    before = table.schema().struct
    table.alter.set_column_metadata("ID", {"comment": "who", "rank": 1})
    table.alter.set_column_metadata("s.l.element.y", {"comment": "why"})
    after = table.schema().struct
    assert {"comment": "who", "rank": 1}.items() <= after.field("id").metadata.items()
    # How the column is mapped stays.
    assert before.field("id").metadata.items() < after.field("id").metadata.items()
    assert after.field("s").type.field("l").type.element.field("y").metadata["comment"] == "why"
    assert table.alter.set_column_metadata("id", {"rank": 1}).version is None
    table.alter.set_column_metadata("id", {"rank": None, "comment": None})
    assert table.schema().struct.field("id") == before.field("id")
    assert table.to_pyarrow_table().num_rows == 1


@pytest.mark.parametrize(
    ("column", "metadata", "error"),
    [
        ("nope", {"comment": "x"}, errors.ColumnNotFoundError),
        ("s.l.element", {"comment": "x"}, errors.InvalidArgumentError),
        ("id", {}, errors.InvalidArgumentError),
        ("id", {"delta.columnMapping.id": 7}, errors.InvalidArgumentError),
        ("id", {"CURRENT_DEFAULT": "1"}, errors.InvalidArgumentError),
        ("id", {"comment": ["x"]}, errors.InvalidArgumentError),
    ],
)
def test_what_cannot_be_said_of_a_column(table, column, metadata, error):
    with pytest.raises(error):
        table.alter.set_column_metadata(column, metadata)
    assert table.version() == 0
