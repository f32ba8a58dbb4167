"""Live files that are carried on over commits are those that reconciliation gives, and add up to the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.core.log.actions import Add, DeletionVectorDescriptor, Remove
from refdelta.engine.log import state
from refdelta.engine.log.state import FILE_SCHEMA, LiveFiles, Totals, reconcile


def added(path, size=1, hidden=None):
    vector = hidden and DeletionVectorDescriptor(
        storage_type="u", path_or_inline_dv=f"{hidden}", offset=1, size_in_bytes=9, cardinality=hidden
    )
    return Add(path=path, partition_values={}, size=size, modification_time=0, data_change=True, deletion_vector=vector)


def removed(path):
    return Remove(path=path, deletion_timestamp=0, data_change=True)


commits = st.lists(
    st.tuples(
        st.sampled_from(["new", "new", "foreign", "spelled", "pair", "again", "hidden", "removed", "nothing"]),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=12,
)


@given(commits, st.sampled_from([0, 3, 100_000]))
def test_files_and_totals_are_those_of_reconciliation(steps, held):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(state, "_KEYS_HELD", held)
        follow(steps)


def follow(steps):
    table = FILE_SCHEMA.empty_table()
    files = LiveFiles(table)
    for counter, (kind, number, look) in enumerate(steps, 1):
        before = f"n{min(number, counter - 1)}"
        actions, new = {
            "new": ([added(f"n{counter}", 3 * 4096 * counter)], {f"n{counter}"}),
            "foreign": ([added(f"n{counter}", counter)], set()),
            "spelled": ([added(before.replace("n", "%6E"), 4)], set()),
            "pair": ([added(f"n{counter}", 2), added(f"m{counter}", 3)], {f"m{counter}"}),
            "again": ([added(before, 7)], set()),
            "hidden": ([added(f"h{counter}", 3, hidden=10**number)], {f"h{counter}"}),
            "removed": ([removed(before)], set()),
            "nothing": ([], set()),
        }[kind]
        # Another list may follow the same one: that of another handle, or of an attempt that was given up.
        files.after([[added("elsewhere")]])
        earlier, table, files = files, reconcile(table, [actions]), files.after([actions], new)
        if files.lineage is earlier.lineage:
            assert files.table.slice(0, earlier.table.num_rows).equals(earlier.table)
        if look:
            assert files.totals == Totals.of(table)
    assert files.totals == Totals.of(table)
    assert files.table.equals(table)


def test_new_files_are_compared_with_nothing_and_kept_beside_the_table(monkeypatch):
    def looked(*_):
        raise AssertionError("looked through the table")

    files = LiveFiles(reconcile(FILE_SCHEMA.empty_table(), [[added("a"), added("b", 5, hidden=3)]]))
    assert files.totals == Totals(2, 6, 3, 1, (1, 1, *[0] * 8), ((2, *[0] * 94), (6, *[0] * 94)))
    monkeypatch.setattr(state, "reconcile", looked)
    monkeypatch.setattr(state, "appended", looked)
    more = files.after([[added("c", 10)]], {"c"}).after([[added("d", 8192)]], {"d"})
    sizes = (3, 1, *[0] * 93), (16, 8192, *[0] * 93)
    assert more.totals == Totals(4, 16 + 8192, 3, 1, (3, 1, *[0] * 8), sizes)
    monkeypatch.undo()
    assert more.table.column("path").to_pylist() == ["a", "b", "c", "d"]
    assert files.table.num_rows == 2
    assert more.table is more.table


def test_not_many_stand_beside_the_table(monkeypatch):
    monkeypatch.setattr(state, "_BESIDE", 3)
    files = LiveFiles(FILE_SCHEMA.empty_table())
    for number in range(8):
        files = files.after([[added(f"{number}")]], {f"{number}"})
        assert len(files._parts[1]) <= 3
    assert files.table.num_rows == files.totals.files == 8


def test_other_files_are_compared_with_keys_that_are_collected_once(monkeypatch):
    collected = []
    keys_of = state.keys_of
    monkeypatch.setattr(state, "keys_of", lambda table: collected.append(table.num_rows) or keys_of(table))
    files = LiveFiles(reconcile(FILE_SCHEMA.empty_table(), [[added(f"f{number}") for number in range(10)]]))
    for number in range(10, 300):
        files = files.after([[added(f"f{number}")]])
    assert collected == [10]
    assert files.table.num_rows == files.totals.files == 300
    again = files.after([[added("f250", 7)]])
    assert (again.table.num_rows, again.totals.size) == (300, 306)
    assert again.lineage is not files.lineage


def test_a_handle_that_compares_once_holds_no_keys():
    files = LiveFiles(reconcile(FILE_SCHEMA.empty_table(), [[added(f"f{number}") for number in range(10)]]))
    once = files.after([[added("g")]])
    assert once._keys is None
    assert once.table.num_rows == 11
    twice = once.after([[added("h")]])
    assert twice._keys == {f"f{number}" for number in range(10)} | {"g", "h"}


@pytest.mark.parametrize("last", ["removed", "again", "same commit twice"])
def test_a_list_continues_another_one_if_no_row_is_gone(last):
    files = LiveFiles(reconcile(FILE_SCHEMA.empty_table(), [[added("a"), added("b")]]))
    more = files.after([[added("c")]], {"c"}).after([[added("d")]]).after([[added("e", hidden=3)]])
    assert more.lineage is files.lineage
    commit = {"removed": [removed("a")], "again": [added("b", 5)], "same commit twice": [added("x"), added("x")]}[last]
    assert more.after([commit]).lineage is not files.lineage
    assert more.after([[removed("unknown")]]).lineage is files.lineage
