"""Where rows are after a compaction: against a copy made row by row, and through the record."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from concurrency.commits import add, remove, vector, where
from refdelta.core.conflicts.reads import Read, ReadSet
from refdelta.core.log.actions import CommitInfo
from refdelta.core.log.footprint import fold
from refdelta.core.rows.relocation import (
    ROW_PLACES,
    CopiedRows,
    Group,
    Input,
    Output,
    record,
    recorded_relocations,
    relocations,
)
from refdelta.core.rows.sets import ALL, renumber
from refdelta.expressions.expression import Column, IsNull
from refdelta.pruning.row_predicate import row_predicate
from refdelta.table.types import LONG, ArrayType, MapType, StructField, StructType
from tiers import examples

POSITIONS = st.sets(st.integers(0, 40))


@examples(300)
@given(
    rows=POSITIONS, hidden=POSITIONS, sizes=st.lists(st.integers(1, 12), max_size=5), far=st.sampled_from([0, 2**33])
)
def test_rows_go_where_a_copy_row_by_row_puts_them(rows, hidden, sizes, far):
    live = [far + at for at in range(50) if at not in hidden]
    spans, start = [], 0
    for size in sizes:
        spans.append((start, size, 100 * len(spans)))
        start += size
    number = {row: place for place, row in enumerate(live)}
    wanted = [far + at for at in rows]
    # What is hidden below ``far``, too, is not in the way.
    gone = BitMap64([far + at for at in hidden])
    live_below = far
    found = renumber(BitMap64(wanted), gone, [(live_below + begin, size, to) for begin, size, to in spans])
    for (begin, size, to), part in zip(spans, found, strict=True):
        inside = (number[row] for row in wanted if row in number)
        assert list(part) == sorted(to + at - begin for at in inside if begin <= at < begin + size)


def two_files() -> Group:
    """Rows 0 to 5 of one file, of which 1 and 4 are hidden, and two of another; in outputs of three rows."""
    dv = vector("v", 2)
    first, second = add("a", dv=dv), add("b")
    outputs = (
        Output(add("x"), (CopiedRows("a", dv, 0, 3),)),
        Output(add("y%20z"), (CopiedRows("a", dv, 3, 1), CopiedRows("b", None, 0, 2))),
    )
    return Group((Input(first, BitMap64([1, 4])), Input(second, BitMap64())), outputs)


def recorded(field, *actions):
    """What a winner with these actions and this record says."""
    return recorded_relocations(fold(1, [CommitInfo({"operation": "OPTIMIZE", ROW_PLACES: field}), *actions]))


def two_files_moved():
    dv = vector("v", 2)
    yield from (remove("a", dv=dv, changes=False), remove("b", changes=False))
    yield from (add("x", changes=False), add("y%20z", changes=False))


def test_rows_are_followed_through_the_record():
    fields = json.loads(json.dumps(record([two_files()])))
    assert list(fields) == [ROW_PLACES]
    found = recorded(fields[ROW_PLACES], *two_files_moved())
    assert found == relocations((output.add.path, output.places) for output in two_files().outputs)
    hidden = BitMap64([1, 4])
    assert found["a"].follow(BitMap64([0, 3, 5]), hidden) == ({"x": BitMap64([0, 2]), "y z": BitMap64([0])}, 0)
    assert found["a"].follow(ALL, BitMap64()) == ({"x": BitMap64([0, 1, 2]), "y z": BitMap64([0])}, 0)
    assert found["b"].follow(BitMap64([1]), BitMap64()) == ({"y z": BitMap64([2])}, 0)
    # A row that was hidden, and one behind the end, are nowhere.
    assert found["a"].follow(BitMap64([0, 4, 9]), hidden) == ({"x": BitMap64([0])}, 2)
    assert found["a"].within({"y z"}).follow(BitMap64([0, 5]), hidden) == ({"y z": BitMap64([0])}, 1)


def test_nothing_is_recorded_of_rows_that_changed_their_order():
    group = two_files()
    assert record([Group(group.inputs, group.outputs, permuted=True)]) == {}
    assert record([]) == {}


@pytest.mark.parametrize(
    "places",
    [
        [CopiedRows("a", None, 1, 2)],
        [CopiedRows("a", None, 0, 2), CopiedRows("a", None, 1, 2)],
        [CopiedRows("a", None, 0, 2), CopiedRows("a", None, 3, 1)],
        [CopiedRows("a", None, 0, 2), CopiedRows("a", vector("v"), 2, 1)],
        [CopiedRows("a", None, 0, 0)],
        [CopiedRows("a", None, -1, 1)],
    ],
)
def test_places_that_contradict_each_other_are_none(places):
    with pytest.raises(ValueError, match="'a'"):
        relocations([("x", places)])
    field = record([Group((), (Output(add("x"), tuple(places)),))])[ROW_PLACES]
    assert recorded(field, remove("a", changes=False), add("x", changes=False)) == {}


@pytest.mark.parametrize(
    "field", [None, 1, "x", [], {"x": 1}, {"x": [{"path": "a"}]}, {"x": [{"path": 1, "start": 0}]}]
)
def test_a_field_of_that_name_that_is_something_else_is_no_record(field):
    assert recorded(field, remove("a", changes=False), add("x", changes=False)) == {}


@pytest.mark.parametrize(
    "claim", [{"rows": 2**62}, {"rows": 2**65}, {"rows": 2**31 + 1}, {"start": -1}, {"start": 2**40}]
)
def test_a_claim_of_more_rows_than_a_file_has_is_no_record(claim):
    field = {"x": [{"path": "a", "start": 0, "rows": 2**31} | claim]}
    assert recorded(field, remove("a", changes=False), add("x", changes=False)) == {}


def test_outputs_of_more_rows_than_a_file_has_are_no_record():
    field = {"x": [{"path": name, "start": 0, "rows": 2**31} for name in "ab"]}
    assert recorded(field, remove("a", changes=False), remove("b", changes=False), add("x", changes=False)) == {}


def test_a_record_beside_a_change_of_rows_is_none():
    field = record([two_files()])[ROW_PLACES]
    assert recorded(field, *two_files_moved())
    assert recorded(field, *two_files_moved(), add("new")) == {}


SCHEMA = StructType(
    (
        StructField("a", LONG),
        StructField("s", StructType((StructField("x", LONG),))),
        StructField("l", ArrayType(LONG, True)),
        StructField("m", MapType(LONG, LONG, True)),
    )
)
STRUCT = StructType((StructField("x", LONG),))


@pytest.mark.parametrize(
    ("column", "nested"),
    [
        (Column(("a",), LONG), False),
        (Column(("s", "x"), LONG), True),
        (Column(("s",), STRUCT), True),
        (Column(("l",), ArrayType(LONG, True)), True),
        (Column(("m",), MapType(LONG, LONG, True)), True),
    ],
)
def test_predicates_on_nested_columns_are_left_to_files(column, nested):
    asked = row_predicate(IsNull(column), SCHEMA, ())
    read = ReadSet(version=0).with_predicate(asked)
    assert (read.undecidable is not None) is nested
    if nested:
        assert column.path[0] in read.undecidable
        # Unless the shell has a finer question.
        assert ReadSet(version=0).with_predicate(asked, finer=True).undecidable is None


def test_a_predicate_that_is_asked_plainly_once_is_not_finer():
    predicate = where("a IS NULL")
    for order in ([True, False], [False, True], [True, False, True]):
        read = ReadSet(version=0)
        for finer in order:
            read = read.with_predicate(predicate, finer=finer)
        assert read.reads == (Read(predicate),)
    twice = ReadSet(version=0).with_predicate(predicate, finer=True).with_predicate(predicate, finer=True)
    assert twice.reads == (Read(predicate, finer=True),)
