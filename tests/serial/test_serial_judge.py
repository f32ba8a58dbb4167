"""The oracle of serial orders: histories that it must reject, and histories that it must accept."""

import dataclasses
from collections import Counter

import pytest

from serial.expressions import All, Any, Column, Compare, Compute, IsNull, Literal, UserError
from serial.judge import Committed, explain, orders
from serial.programs import COLUMNS
from serial.wider import DRAWS
from serial.world import (
    AddConstraint,
    Append,
    Attempt,
    Clause,
    Copy,
    Count,
    Create,
    Delete,
    DropColumn,
    Merge,
    Overwrite,
    Read,
    Rearrange,
    RemoveDomain,
    Restore,
    SetDomain,
    Tally,
    TallyDomain,
    TallyDomains,
    Transaction,
    Update,
    World,
    Write,
)

S, W = "Serializable", "WriteSerializable"
K_IS_0 = Compare("=", Column("k"), Literal(0))


def row(id_, k=0, v=0, p=0):
    return {"id": id_, "k": k, "v": v, "p": p}


def table(*rows):
    return World(
        COLUMNS, tuple(tuple(one[name] for name in COLUMNS) for one in rows), features=frozenset({"domainMetadata"})
    )


def did(name, *steps, began=0, version=None, observed=(), isolation=None):
    return Committed(name, Transaction(steps, isolation), began, version, tuple(observed))


def verdict(level, start, end, *history):
    return explain(history, start, end, level)


def after(start, *transactions):
    for one in transactions:
        start, _ = one.transaction.on(start)
    return start


# --- the documented example: a DELETE begins, an INSERT commits, the DELETE tries to commit --------------------------

INSERT = did("INSERT", Append((row(2),)), began=0, version=1)
DELETE = did("DELETE", Delete(K_IS_0), began=0, version=2)


def test_a_delete_that_did_not_see_an_append_is_in_order_at_write_serializable():
    start, end = table(row(1)), table(row(2))
    assert verdict(W, start, end, INSERT, DELETE) is None


def test_and_not_at_serializable():
    start, end = table(row(1)), table(row(2))
    assert "rows" in verdict(S, start, end, INSERT, DELETE)
    assert verdict(S, start, table(), INSERT, DELETE) is None


def test_nor_where_the_delete_asked_to_be_serializable():
    strict = dataclasses.replace(DELETE, transaction=Transaction(DELETE.transaction.steps, S))
    assert verdict(W, table(row(1)), table(row(2)), INSERT, strict)


def test_an_append_that_was_seen_is_not_moved():
    late = dataclasses.replace(DELETE, began=1)
    assert verdict(W, table(row(1)), table(row(2)), INSERT, late)


# --- wrong histories ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [S, W])
def test_write_skew(level):
    start = table(row(1))
    one, two = did("A", Tally(10), version=1), did("B", Tally(11), version=2)
    skewed = World(COLUMNS, (*start.rows, (10, 1, 0, 0), (11, 1, 0, 1)))
    assert verdict(level, start, skewed, one, two)
    assert verdict(level, start, after(start, one, two), one, two) is None


@pytest.mark.parametrize("level", [S, W])
def test_a_lost_update(level):
    start = table(row(1))
    add = Update({"v": Compute("+", Column("v"), Literal(1))}, None)
    one, two = did("A", add, version=1), did("B", add, version=2)
    assert verdict(level, start, table(row(1, v=1)), one, two)
    assert verdict(level, start, table(row(1, v=2)), one, two) is None


@pytest.mark.parametrize("level", [S, W])
def test_a_failure_that_would_not_have_been(level):
    start = table(row(1))
    division = Update({"v": Compute("div", Literal(6), Column("v"))}, None)
    one = did("A", Delete(None), version=1)
    two = did("B", Attempt(division, (), (row(9),)), version=2)
    assert verdict(level, start, table(row(9)), one, two)
    assert verdict(level, start, table(), one, two) is None


@pytest.mark.parametrize("level", [S, W])
def test_a_statement_that_would_have_failed(level):
    start = table(row(1))
    one = did("A", Update({"k": Literal(5)}, None), version=1)
    two = did("B", AddConstraint("c", Compare("<", Column("k"), Literal(3))), version=2)
    end = dataclasses.replace(table(row(1, k=5)), constraints={"c": None})
    assert "would have failed" in verdict(level, start, end, one, two)


def test_a_cycle_over_a_skipped_append():
    """The first of the contract: D before I, I before N, N before D."""
    start = table(row(1), row(2, k=1))
    insert = did("I", Append((row(3),)), began=0, version=1)
    copy = did("N", Copy("scan", K_IS_0), began=1, version=2)
    delete = did("D", Delete(K_IS_0), began=0, version=3)
    end = table(row(2, k=1), row(3), row(1), row(3))
    assert verdict(W, start, end, insert, copy, delete)


def test_a_cycle_through_a_transaction_that_writes_a_domain_only():
    start = table(row(1))
    insert = did("I", Append((row(2),)), began=0, version=1)
    count = did("R", TallyDomain("a"), began=1, version=2)
    delete = did("D", Delete(K_IS_0), began=0, version=3)
    end = dataclasses.replace(table(row(2)), domains={"a": "2"})
    assert verdict(W, start, end, insert, count, delete)
    before = dataclasses.replace(count, began=0)
    without = dataclasses.replace(table(row(2)), domains={"a": "1"})
    assert verdict(W, start, without, insert, before, delete) is None


def test_two_transactions_change_places_only_by_an_append():
    start = table(row(1))
    one = did("A", Tally(10), began=0, version=1)
    two = did("B", Delete(K_IS_0), began=0, version=2)
    assert [[one.name for one in order] for order in orders([two, one])] == [["A", "B"]]
    assert verdict(W, start, World(COLUMNS, ((10, 0, 0, 0),)), one, two), "only B before A explains it"


def test_reads_count_at_serializable():
    start = table(row(1))
    one = did("A", Append((row(2),)), version=1)
    read = did("B", Read(), Append((row(3),)), began=0, version=2, observed=[Counter(start.rows)])
    end = table(row(1), row(2), row(3))
    assert "read" in verdict(S, start, end, one, read)
    assert verdict(W, start, end, one, read) is None


@pytest.mark.parametrize(("level", "isolation"), [(S, None), (W, S)])
def test_what_only_rearranges_files_is_under_snapshot_isolation(level, isolation):
    start = table(row(1), row(2, k=1))
    delete = did("A", Delete(K_IS_0), version=1)
    steps, saw = (Read(), Rearrange("compact")), [Counter(start.rows)]
    compact = did("B", *steps, began=0, version=2, observed=saw, isolation=isolation)
    assert verdict(level, start, table(row(2, k=1)), delete, compact) is None
    more = did("B", *steps, SetDomain("a", "1"), began=0, version=2, observed=saw, isolation=isolation)
    end = dataclasses.replace(table(row(2, k=1)), domains={"a": "1"})
    assert "read" in verdict(level, start, end, delete, more)


def test_what_wrote_nothing_stands_at_its_snapshot():
    start = table(row(1, k=1))
    insert = did("A", Append((row(2),)), version=1)
    nothing = did("B", Delete(K_IS_0), began=0)
    assert verdict(S, start, table(row(1, k=1), row(2)), insert, nothing) is None
    assert verdict(S, start, table(row(1, k=1), row(2)), insert, dataclasses.replace(nothing, began=1))


@pytest.mark.parametrize("level", [S, W])
@pytest.mark.parametrize("by_transaction", [True, False])
def test_a_lost_count_in_a_domain(level, by_transaction):
    start = table(row(1))
    one, two = did("A", Count("a", by_transaction), version=1), did("B", Count("a", by_transaction), version=2)
    lost = dataclasses.replace(start, domains={"a": "1"})
    assert "domains" in verdict(level, start, lost, one, two)
    assert verdict(level, start, dataclasses.replace(start, domains={"a": "2"}), one, two) is None


@pytest.mark.parametrize("level", [S, W])
def test_a_domain_is_removed_once(level):
    start = dataclasses.replace(table(row(1)), domains={"a": "1"})
    one, two = did("A", RemoveDomain("a"), version=1), did("B", RemoveDomain("a"), version=2)
    assert "would have failed" in verdict(level, start, table(row(1)), one, two)
    assert verdict(level, start, table(row(1)), one) is None


@pytest.mark.parametrize("level", [S, W])
def test_a_row_of_domains_that_another_has_set(level):
    start = table(row(1))
    one, two = did("A", SetDomain("a", "3"), version=1), did("B", TallyDomains(10), version=2)
    stale = dataclasses.replace(table(row(1), row(10, 0, 0)), domains={"a": "3"})
    assert verdict(level, start, stale, one, two)
    right = dataclasses.replace(table(row(1), row(10, 1, 3)), domains={"a": "3"})
    assert verdict(level, start, right, one, two) is None


NO_TABLE = World((), exists=False)


@pytest.mark.parametrize("level", [S, W])
def test_two_create_one_table(level):
    one = did("A", Create(COLUMNS, "error"), began=-1, version=0)
    two = did("B", Create(COLUMNS, "error"), began=-1, version=1)
    assert "would have failed" in verdict(level, NO_TABLE, World(COLUMNS), one, two)
    assert verdict(level, NO_TABLE, World(COLUMNS), one) is None


def test_an_append_that_creates_the_table_is_not_moved():
    """What came before it would have found no table."""
    one = did("A", Write((row(1),), COLUMNS, "append"), began=-1, version=0)
    two = did("B", Write((row(2),), COLUMNS, "append"), began=-1, version=1)
    delete = did("C", Delete(K_IS_0), began=-1, version=2)
    assert [[one.name for one in order] for order in orders([one, two, delete])] == [["A", "B", "C"]]


def test_rows_that_were_replaced_are_gone():
    start = table(row(1))
    append = did("A", Append((row(2),)), version=1)
    replace = did("B", Create(("id", "k"), "overwrite", {"user.x": "1"}), began=0, version=2)
    end = World(("id", "k"), properties={"user.x": "1"})
    assert verdict(S, start, end, append, replace) is None
    assert "rows" in verdict(S, start, dataclasses.replace(end, rows=((2, 0),)), append, replace)


def test_a_table_that_is_there_is_ignored():
    start = table(row(1))
    nothing = did("A", Create(COLUMNS, "ignore"), began=0)
    assert verdict(S, start, start, nothing) is None
    assert "would have written" in verdict(S, NO_TABLE, NO_TABLE, dataclasses.replace(nothing, began=-1))


def test_without_a_table_nothing_can_be_done():
    with pytest.raises(UserError):
        Transaction((Append((row(1),)),)).on(NO_TABLE)


# --- what statements mean -------------------------------------------------------------------------------------------


def test_null_is_not_true_and_not_false():
    null, one = Literal(None), Literal(1)
    assert Compare("=", null, one).of({}) is None
    assert Compare("<=>", null, null).of({}) is True
    assert Compare("<=>", null, one).of({}) is False
    assert All((Compare("=", null, one), Compare("=", one, Literal(2)))).of({}) is False
    assert Any((Compare("=", null, one), Compare("=", one, one))).of({}) is True
    assert IsNull(null).of({}) is True


def test_division_fails_over_a_zero_and_not_over_a_null():
    division = Compute("div", Literal(6), Column("k"))
    assert division.of({"k": None}) is None
    assert division.of({"k": 4}) == 1
    with pytest.raises(UserError):
        division.of({"k": 0})


@pytest.mark.parametrize(("operator", "count"), [("=", 1), ("<=>", 2)])
def test_a_merge_matches_nulls_by_the_null_safe_operator(operator, count):
    start = table(row(1, k=None), row(2, k=1))
    on = Compare(operator, Column("t.k"), Column("s.k"))
    merge = Merge((row(3, k=None), row(4, k=1)), on, (Clause("matched", {"v": Literal(7)}),))
    [end, _] = Transaction((merge,)).on(start)
    assert sum(one[2] == 7 for one in end.rows) == count


def test_a_merge_refuses_two_matches_for_one_row():
    merge = Merge((row(3), row(4)), Compare("=", Column("t.k"), Column("s.k")), (Clause("matched", {"v": Literal(7)}),))
    with pytest.raises(UserError):
        Transaction((merge,)).on(table(row(1)))


def test_an_overwrite_replaces_what_its_predicate_names():
    [end, _] = Transaction((Overwrite((row(3),), K_IS_0),)).on(table(row(1), row(2, k=1)))
    assert Counter(end.rows) == Counter(table(row(2, k=1), row(3)).rows)
    with pytest.raises(UserError):
        Transaction((Overwrite((row(3, k=2),), K_IS_0),)).on(table(row(1)))


def test_a_restored_table_has_its_columns_again():
    start = table(row(1))
    start = dataclasses.replace(start, versions={0: start}, features=frozenset({"columnMapping"}))
    [dropped, _] = Transaction((DropColumn("v"),)).on(start)
    assert dropped.columns == ("id", "k", "p")
    [back, _] = Transaction((Restore(0),)).on(dropped)
    assert (back.columns, back.rows) == (start.columns, start.rows)


def test_a_compaction_changes_nothing():
    start = table(row(1))
    assert Transaction((Rearrange("compact"),)).on(start)[0].outcome() == start.outcome()


@pytest.mark.parametrize("words", DRAWS)
def test_a_seed_gives_the_same_program_each_time(words):
    draw = DRAWS[words]
    assert draw(7) == draw(7)
    assert str(draw(7)) == str(draw(7))
