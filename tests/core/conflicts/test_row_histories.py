"""Random histories by rows, against a table that is a list of rows: what commits does exactly what it was meant to do,
and a conflict is raised exactly where a winner touched what was read.

Tests of core.commit.vectors, core.conflicts.state.
"""

from __future__ import annotations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from concurrency.rows_table import Change, Table, Transaction, justified
from refdelta.core.commit.transaction import CommitOutcome
from refdelta.core.log.actions import Add
from refdelta.errors import ConcurrentModificationError
from tiers import examples

COLOUR = st.integers(0, 5)
ODD = {"deletes": lambda row: row[0] % 2}
CHANGE = st.one_of(
    st.tuples(st.just("change"), COLOUR, st.sampled_from([{}, ODD, {"deletes": lambda _: False}])),
    st.tuples(st.just("change"), COLOUR, st.builds(lambda to: {"to": to}, COLOUR)),
)
SIZES = st.builds(lambda size, split: {"size": size, "split": split}, st.integers(1, 3), st.integers(1, 4))
COMPACT = st.tuples(st.just("compact"), st.none(), SIZES)
OPERATIONS = st.one_of(
    CHANGE,
    COMPACT,
    st.tuples(st.just("insert"), st.lists(COLOUR, min_size=1, max_size=3), st.just({})),
    st.tuples(st.just("copy"), COLOUR | st.none(), st.sampled_from([{}, {"by_rows": False}])),
    st.tuples(st.just("truncate"), st.none(), st.just({})),
    st.tuples(st.just("compact"), st.none(), st.just({"permuted": True})),
    st.tuples(st.just("restore"), st.integers(0, 4), st.just({})),
)
VACUUM = ("vacuum", None, {})
HISTORIES = st.lists(st.tuples(OPERATIONS, st.integers(0, 5)), min_size=2, max_size=8)
FILES = [[(10 * file + at, (3 * file + 5 * at) % 6) for at in range(8)] for file in range(4)]
# Few rows and few colours, where everything meets; and more of both, where most passes.
SMALL = [[(0, 0), (1, 1), (2, 0), (3, 2), (4, 1)], [(5, 0), (6, 1), (7, 2), (8, 2)], [(9, 1), (10, 2), (11, 0)]]


def begin(table: Table, operation: tuple, age: int) -> Transaction:
    verb, argument, more = operation
    if verb in {"truncate", "compact"}:
        return getattr(table, verb)(age, **more)
    return getattr(table, verb)(argument, age, **more)


def may_refuse(txn: Transaction, winners: list[Change]) -> bool:
    if txn.rearranges:
        return txn.permutes and any(one.removed or one.txn.rearranges or one.txn.restores for one in winners)
    if txn.restores or any(one.txn.restores or one.txn.permutes for one in winners):
        # These replace whole files, so that no row of theirs can be followed.
        return bool(winners) and not txn.blind
    return justified(txn, winners)


def play(table: Table, history, may_refuse=may_refuse) -> None:
    changes: list[Change] = []
    for operation, age in history:
        if operation is VACUUM:
            table.vacuum()
            continue
        txn = begin(table, operation, age)
        if not (txn.actions or txn.work.deletes or txn.work.groups):
            continue
        if txn.restores and not all(table.is_there(one) for one in txn.actions if isinstance(one, Add)):
            continue
        winners, before = changes[txn.saw :], table.rows(-1)
        outcome, refused = attempt(table, txn)
        if outcome is None:
            event(refused)
            assert may_refuse(txn, winners), f"{txn.name} should have committed: {refused}"
            continue
        if outcome.version is None:
            event("no group left")
            continue
        assert txn.rearranges or not justified(txn, winners), f"{txn.name} should have conflicted"
        event(f"{txn.name} over {min(len(winners), 3)}")
        after = table.rows(-1)
        changes.append(Change(txn, before - after, after - before))


def attempt(table: Table, txn: Transaction) -> tuple[CommitOutcome | None, str]:
    try:
        return table.commit(txn), ""
    except ConcurrentModificationError as error:
        return None, error.conflict.rule


@pytest.mark.tier("test")
@examples(500)
@given(st.sampled_from([FILES, SMALL]), HISTORIES)
def test_rows_decide_exactly(files, history):
    play(Table(*files), history)


@pytest.mark.tier("test")
@examples(300)
@given(
    st.sampled_from([FILES, SMALL]), st.lists(st.tuples(CHANGE | COMPACT, st.integers(0, 9)), min_size=3, max_size=10)
)
def test_deep_sequences_of_changes_and_compactions(files, history):
    play(Table(*files), history)


VACUUMS = st.just((VACUUM, 0))


@examples(300)
@given(
    st.sampled_from([FILES, SMALL]), st.lists(st.tuples(CHANGE, st.integers(0, 9)) | VACUUMS, min_size=3, max_size=10)
)
def test_rows_decide_exactly_where_superseded_vectors_were_vacuumed(files, history):
    # The newest vector of a file decides for those before it.
    play(Table(*files), history)


@examples(300)
@given(
    st.sampled_from([FILES, SMALL]),
    st.lists(st.tuples(OPERATIONS, st.integers(0, 5)) | VACUUMS, min_size=3, max_size=10),
)
def test_what_cannot_be_compared_after_a_vacuum_is_a_conflict(files, history):
    # Neither an error about files that are gone, nor a commit that should have conflicted.
    table = Table(*files)
    play(table, history, lambda txn, winners: bool(table.vacuumed and winners) or may_refuse(txn, winners))
