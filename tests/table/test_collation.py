"""Columns whose strings have a collation: read as they are, and never compared."""

import json

import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta.errors import DeltaError, PredicateError
from refdelta.table.collation import compared_as, has_collation
from refdelta.table.types import LONG, STRING, StructField

# The proposal's form and Spark's.
NOTES = [{"collations": {"collation": "ICU.en_US.72"}}, {"__COLLATIONS": {"c": "icu.UNICODE_CI"}}]
BINARY = [
    {},
    {"collations": {"collation": "spark.UTF8_BINARY"}},
    {"__COLLATIONS": {"c": "UTF8_BINARY"}},
    {"collations": 1},
]


@pytest.mark.parametrize("note", NOTES)
def test_a_column_with_a_collation_compares_as_no_string(note):
    assert has_collation(compared_as(StructField("c", STRING, True, note)))
    assert compared_as(StructField("c", LONG, True, note)) == LONG


@pytest.mark.parametrize("note", BINARY)
def test_bytes_are_the_collation_of_all_others(note):
    assert compared_as(StructField("c", STRING, True, note)) == STRING


@pytest.fixture(params=NOTES)
def table(tmp_path, request):
    """A table with the note at a column and in a struct; what its statistics say is of another order than bytes."""
    rows = pa.table({"c": ["a", "A", None], "s": [{"x": "b"}, None, {"x": "B"}], "plain": ["p", "q", "r"]})
    write_deltalake(tmp_path / "t", rows)
    log = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            schema["fields"][0]["metadata"] = schema["fields"][1]["type"]["fields"][0]["metadata"] = request.param
            action["metaData"]["schemaString"] = json.dumps(schema)
        if "add" in action:
            stats = json.loads(action["add"]["stats"])
            stats["minValues"]["c"] = stats["maxValues"]["c"] = "a"
            action["add"]["stats"] = json.dumps(stats)
    log.write_text("\n".join(map(json.dumps, actions)))
    return tmp_path / "t"


def test_its_values_are_read(table):
    rows = DeltaTable(table).to_pyarrow_table()
    assert rows["c"].to_pylist() == ["a", "A", None]
    assert rows.schema.field("c").type == pa.string()
    for predicate, count in [("c IS NULL", 1), ("c IS NOT NULL", 2), ("plain = 'q'", 1), ("s.x IS NULL", 1)]:
        assert DeltaTable(table).to_pyarrow_table(filters=predicate).num_rows == count


@pytest.mark.sample(check=8)
@pytest.mark.parametrize(
    "predicate",
    ["c = 'A'", "'A' <> c", "c < plain", "c IN ('a', 'A')", "c LIKE 'a%'", "upper(c) = 'A'", "s.x = 'B'", "c = c",
     "CASE WHEN plain = 'q' THEN c ELSE c END = 'A'", "coalesce(c, plain) = 'A'", "CAST(c AS INT) = 1",
     "c || plain = 'ap'"],
)  # fmt: skip
def test_comparing_them_is_refused_by_name(table, predicate):
    with pytest.raises(PredicateError, match=r"string collate (ICU\.en_US\.72|icu\.UNICODE_CI)"):
        DeltaTable(table).to_pyarrow_table(filters=predicate)


def test_nothing_is_changed_by_a_comparison(table):
    for change in (
        lambda: DeltaTable(table).delete("c = 'A'"),
        lambda: DeltaTable(table).update(updates={"plain": "'z'"}, predicate="s.x = 'B'"),
        lambda: (
            DeltaTable(table)
            .merge(pa.table({"c": ["A"]}), "t.c = s.c", source_alias="s", target_alias="t")
            .when_matched_delete()
            .execute()
        ),
        lambda: write_deltalake(table, pa.table({"c": ["A"]}), mode="overwrite", predicate="c = 'A'"),
    ):
        with pytest.raises(DeltaError, match="string collate"):
            change()
    assert DeltaTable(table).version() == 0


def test_its_values_can_be_copied(table):
    DeltaTable(table).update(updates={"plain": "c", "c": "'new'"}, predicate="c IS NOT NULL")
    rows = DeltaTable(table).to_pyarrow_table()
    assert sorted(zip(rows["plain"].to_pylist(), rows["c"].to_pylist(), strict=True), key=str) == [
        ("A", "new"),
        ("a", "new"),
        ("r", None),
    ]
