"""Where rows are after a compaction: against a copy made row by row, and through the record."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from concurrency.commits import add, vector
from refdelta.concurrency.lookout import unfit
from refdelta.concurrency.places import ROW_PLACES, Group, Input, Output, Place, moves, record, recorded_moves
from refdelta.concurrency.read_set import Read, ReadSet
from refdelta.concurrency.rows import ALL, renumber
from refdelta.protocol.predicate import Column, IsNull
from refdelta.protocol.types import LONG, ArrayType, MapType, StructField, StructType
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
        Output(add("x"), (Place("a", dv, 0, 3),)),
        Output(add("y%20z"), (Place("a", dv, 3, 1), Place("b", None, 0, 2))),
    )
    return Group((Input(first, BitMap64([1, 4])), Input(second, BitMap64())), outputs)


def test_rows_are_followed_through_the_record():
    fields = json.loads(json.dumps(record([two_files()])))
    assert list(fields) == [ROW_PLACES]
    found = recorded_moves(fields[ROW_PLACES])
    assert found == moves((output.add.path, output.places) for output in two_files().outputs)
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
        [Place("a", None, 1, 2)],
        [Place("a", None, 0, 2), Place("a", None, 1, 2)],
        [Place("a", None, 0, 2), Place("a", None, 3, 1)],
        [Place("a", None, 0, 2), Place("a", vector("v"), 2, 1)],
        [Place("a", None, 0, 0)],
        [Place("a", None, -1, 1)],
    ],
)
def test_places_that_contradict_each_other_are_none(places):
    with pytest.raises(ValueError, match="'a'"):
        moves([("x", places)])
    assert recorded_moves(record([Group((), (Output(add("x"), tuple(places)),))])[ROW_PLACES]) == {}


@pytest.mark.parametrize(
    "field", [None, 1, "x", [], {"x": 1}, {"x": [{"path": "a"}]}, {"x": [{"path": 1, "start": 0}]}]
)
def test_a_field_of_that_name_that_is_something_else_is_no_record(field):
    assert recorded_moves(field) == {}


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
    read = ReadSet(version=0).with_predicate(IsNull(column))
    assert (unfit(read) is not None) is nested
    if nested:
        assert column.path[0] in unfit(read)
        # Unless the shell has a finer question.
        assert unfit(ReadSet(version=0).with_predicate(IsNull(column), finer=True)) is None


def test_a_predicate_that_is_asked_plainly_once_is_not_finer():
    predicate = IsNull(Column(("a",), LONG))
    for order in ([True, False], [False, True], [True, False, True]):
        read = ReadSet(version=0)
        for finer in order:
            read = read.with_predicate(predicate, finer=finer)
        assert read.reads == (Read(predicate),)
    twice = ReadSet(version=0).with_predicate(predicate, finer=True).with_predicate(predicate, finer=True)
    assert twice.reads == (Read(predicate, finer=True),)
