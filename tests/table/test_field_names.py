"""A schema in which two columns have one place in files is refused, and the message names both."""

from __future__ import annotations

import json

import pytest

from refdelta.errors import InvalidLogError
from refdelta.table.field_names import check_distinct
from refdelta.table.types import FIELD_ID, PHYSICAL_NAME, StructType, parse_schema


def column(name, kind="long", **marks):
    metadata = {{"id": FIELD_ID, "physical": PHYSICAL_NAME}[key]: value for key, value in marks.items()}
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def schema(*columns) -> StructType:
    return parse_schema(json.dumps({"type": "struct", "fields": list(columns)}))


def struct(*columns):
    return {"type": "struct", "fields": list(columns)}


def array(element):
    return {"type": "array", "elementType": element, "containsNull": True}


def map_of(value):
    return {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": True}


SAME_PHYSICAL = (column("a", id=1, physical="x"), column("b", id=2, physical="x"))
SAME_ID = (column("a", id=1, physical="x"), column("b", id=1, physical="y"))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ((column("a"), column("a")), "columns 'a' and 'a' have the same name"),
        ((column("a"), column("A")), "columns 'a' and 'A' have the same name"),
        (SAME_PHYSICAL, f"columns 'a' and 'b' have the same physical name, {PHYSICAL_NAME} 'x'"),
        (
            (column("a", id=1, physical="col-x"), column("b", id=2, physical="COL-X")),
            "columns 'a' and 'b' have the same physical name",
        ),
        ((column("a", id=1, physical="b"), column("b", id=2)), "columns 'a' and 'b' have the same physical name"),
        (SAME_ID, f"columns 'a' and 'b' have the same id, {FIELD_ID} 1"),
        ((column("s", struct(*SAME_PHYSICAL), id=9, physical="s"),), "columns 's.a' and 's.b' have the same physical"),
        (
            (column("l", array(array(struct(*SAME_PHYSICAL))), id=9, physical="l"),),
            "columns 'l.element.element.a' and 'l.element.element.b' have the same physical name",
        ),
        (
            (column("m", map_of(struct(*SAME_PHYSICAL)), id=9, physical="m"),),
            "columns 'm.value.a' and 'm.value.b' have the same physical name",
        ),
        ((column("a", id=-1, physical="a"),), f"column 'a' has the {FIELD_ID} -1"),
        ((column("a", id=2**31, physical="a"),), f"column 'a' has the {FIELD_ID} {2**31}"),
        ((column("a", id="1", physical="a"),), f"column 'a' has the {FIELD_ID} '1'"),
        ((column("a", id=True, physical="a"),), f"column 'a' has the {FIELD_ID} True"),
    ],
)
def test_two_columns_of_one_place_are_refused_and_named(columns, said):
    with pytest.raises(InvalidLogError) as caught:
        check_distinct(schema(*columns), mapped=True)
    assert said in str(caught.value)


@pytest.mark.parametrize("columns", [SAME_PHYSICAL, SAME_ID, (column("a", id=-1),)])
def test_marks_of_a_mapping_that_a_table_does_not_use_do_not_count(columns):
    check_distinct(schema(*columns), mapped=False)


def test_columns_of_different_structs_may_have_one_physical_name_and_one_id():
    inner = struct(column("x", id=0, physical="x"))
    check_distinct(
        schema(
            column("x", id=0, physical="x"),
            column("s", inner, id=2, physical="s"),
            column("t", struct(column("x", id=5, physical="x")), id=4, physical="t"),
        ),
        mapped=True,
    )
