"""The judge knows the classic anomalies, and those that the contract of the engine names."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from model.histories import by_rows, by_rows_and_precedence, interleavings, run
from model.operations import (
    colour,
    copy,
    data_of,
    delete,
    everything,
    insert,
    key,
    merge,
    metadata,
    paint,
    read_then_insert,
    rearrange,
    replace,
    rows,
    set_property,
    show,
    update,
)
from refdelta.conformance.judge import (
    LEVELS,
    SERIALIZABLE,
    WRITE_SERIALIZABLE,
    Effect,
    History,
    Transaction,
    accepts,
    apply,
    play,
    serial_order,
)

TWO = rows((0, 0), (1, 1))


def verdicts(start, *transactions):
    history = History(start, transactions)
    return accepts(history, SERIALIZABLE), accepts(history, WRITE_SERIALIZABLE)


def test_what_runs_one_after_the_other_is_accepted():
    history = History(TWO, (Transaction("A", paint(0, 1), 0, 1), Transaction("B", paint(1, 0), 1, 2)))
    assert [data_of(state) for state in play(history)[0]] == [[(0, 0), (1, 1)], [(0, 1), (1, 1)], [(0, 0), (1, 0)]]
    assert serial_order(history, SERIALIZABLE) == serial_order(history, WRITE_SERIALIZABLE) == ("A", "B")


def test_lost_update():
    def increment(k, a):
        return k, a + 1

    both = (Transaction("A", update(key(0), increment), 0, 1), Transaction("B", update(key(0), increment), 0, 2))
    assert verdicts(TWO, *both) == (False, False)


def test_write_skew_with_two_colours():
    assert verdicts(TWO, Transaction("A", paint(0, 1), 0, 1), Transaction("B", paint(1, 0), 0, 2)) == (False, False)
    # With a third colour one of them may come first.
    three = (Transaction("A", paint(0, 1), 0, 1), Transaction("B", paint(1, 2), 0, 2))
    assert verdicts(TWO, *three) == (False, True)
    assert serial_order(History(TWO, three), WRITE_SERIALIZABLE) == ("B", "A")


def test_write_skew_over_a_sum():
    """Each takes one row away because the other one is still there."""

    def take(k):
        def operation(_name, state):
            return Effect(frozenset(row for row in state if row.values[0] == k), frozenset(), state)

        return operation

    both = (Transaction("A", take(0), 0, 1), Transaction("B", take(1), 0, 2))
    assert verdicts(TWO, *both) == (False, False)


def test_read_skew():
    """Half of what it saw is older than the transfer, half is newer: no engine with snapshots does that."""
    transfer = Transaction("W", update(key(0, 1), lambda k, a: (k, a + (1 if k else -1))), 0, 1)
    before, after = play(History(TWO, (transfer,)))[0]
    mixed = frozenset(r for r in before if r.values[0] == 0) | frozenset(r for r in after if r.values[0] == 1)
    for committed, expected in ((None, (False, True)), (2, (False, False))):
        statement = read_then_insert(everything, (9, 9)) if committed else show(everything)
        seen = statement("R", mixed)
        reader = Transaction("R", statement, 0, committed, observed=seen)
        # Who only reads is not asked at WriteSerializable.
        assert verdicts(TWO, transfer, reader) == expected
        for version, state in enumerate((before, after)):
            whole = Transaction("R", statement, version, committed, observed=statement("R", state))
            assert accepts(History(TWO, (transfer, whole)), WRITE_SERIALIZABLE)
            assert accepts(History(TWO, (transfer, whole)), SERIALIZABLE) is (committed is None or version == 1)


def test_phantom():
    """Both look for a key, find none and add it."""
    found_none = merge({7: 0}, matched="nothing")
    assert verdicts(TWO, Transaction("A", found_none, 0, 1), Transaction("B", found_none, 0, 2)) == (False, False)
    other = merge({8: 0}, matched="nothing")
    assert verdicts(TWO, Transaction("A", found_none, 0, 1), Transaction("B", other, 0, 2)) == (True, True)


def test_the_documentations_timeline():
    """A DELETE begins, an INSERT of matching rows commits, the DELETE commits."""
    deletes, inserts = Transaction("t0", delete(colour(0)), 0, 2), Transaction("t1", insert((5, 0)), 0, 1)
    history = History(TWO, (deletes, inserts))
    assert (accepts(history, SERIALIZABLE), accepts(history, WRITE_SERIALIZABLE)) == (False, True)
    assert serial_order(history, WRITE_SERIALIZABLE) == ("t0", "t1")
    versions = play(history)[0]
    assert data_of(versions[2]) == [(1, 1), (5, 0)]
    # A reader of version 1 saw a state that this order never had: the price of the level.
    serial = [TWO, apply(TWO, deletes.operation("t0", TWO)), versions[2]]
    assert versions[1] not in serial
    assert accepts(
        History(TWO, (*history.transactions, Transaction("R", show(everything), 1, None))), "WriteSerializable"
    )


def cycle_of_three():
    return (
        Transaction("D", delete(colour(0)), 0, 3),
        Transaction("I", insert((5, 0)), 0, 1),
        Transaction("N", copy(colour(0), lambda k, _: (k + 10, 1)), 1, 2),
    )


def test_the_cycle_over_a_blind_append():
    d, i, n = cycle_of_three()
    assert verdicts(TWO, d, i, n) == (False, False)
    # Each pair has an order; and so has the whole, had N read other rows.
    history = History(TWO, (d, i, Transaction("N", copy(colour(1), lambda k, _: (k + 10, 1)), 1, 2)))
    assert serial_order(history, WRITE_SERIALIZABLE) is not None
    assert not accepts(history, SERIALIZABLE)


def cycle_of_four():
    return (
        Transaction("I", insert((5, 0)), 0, 1),
        Transaction("Y", read_then_insert(lambda k, a: k == 5 or a == 2, (8, 4)), 1, 2),
        Transaction("Z", read_then_insert(colour(3), (9, 2)), 0, 3),
        Transaction("T", paint(0, 3), 0, 4),
    )


def test_the_longer_cycle():
    i, y, z, t = cycle_of_four()
    assert verdicts(TWO, i, y, z, t) == (False, False)
    # Any link less, and there is an order.
    assert serial_order(History(TWO, (i, y, z)), WRITE_SERIALIZABLE) == ("I", "Y", "Z")
    late = Transaction("T", t.operation, 1, 4)
    reads_nothing = Transaction("Z", read_then_insert(colour(6), (9, 2)), 0, 3)
    for others in ((i, y, z, late), (i, y, reads_nothing, t)):
        assert accepts(History(TWO, others), WRITE_SERIALIZABLE)
    # Z did not see the append.
    assert not apply(TWO, i.operation("I", TWO)) & play(History(TWO, (i, y, z, t)))[1]["Z"].seen[1]


def attempt_in_order(transactions, check):
    """Whether a checker lets all of them commit in the order of the log."""
    order = sorted(transactions, key=lambda t: t.committed)
    events = sorted(
        [(t.began + 0.5, 0, i) for i, t in enumerate(order)] + [(t.committed, 1, i) for i, t in enumerate(order)]
    )
    return len(run(TWO, [t.operation for t in order], [i for _, _, i in events], check)) == len(order)


@pytest.mark.parametrize("cycle", [cycle_of_three(), cycle_of_four()], ids=["three", "four"])
def test_a_checker_without_the_rule_accepts_both_cycles(cycle):
    assert attempt_in_order(cycle, by_rows)
    assert not attempt_in_order(cycle, by_rows_and_precedence)


def test_a_transaction_may_ask_for_more_than_its_table():
    deletes, inserts = Transaction("D", delete(colour(0)), 0, 2, strict=True), Transaction("I", insert((5, 0)), 0, 1)
    assert verdicts(TWO, deletes, inserts) == (False, False)
    # It binds what the log has before it, not what follows.
    i, late = Transaction("I", insert((5, 0)), 0, 1, strict=True), Transaction("D", delete(colour(0)), 0, 2)
    assert verdicts(TWO, i, late) == (False, True)


def test_metadata_is_read_by_all_that_write():
    start = TWO | {metadata()}
    sets = Transaction("P", set_property(), 0, 1)
    assert verdicts(start, sets, Transaction("I", insert((5, 0)), 0, 2)) == (False, True)
    assert verdicts(start, sets, Transaction("I", insert((5, 0)), 1, 2)) == (True, True)
    assert verdicts(start, sets, Transaction("Q", set_property(), 0, 2)) == (False, False)


@pytest.mark.parametrize("level", LEVELS)
def test_rearranging_rows_changes_nothing(level):
    statements = (delete(colour(0)), paint(1, 0), insert((5, 0)), replace(everything, (9, 0)))
    for statement in statements:
        for began in (0, 1):
            both = (Transaction("C", rearrange(), 0, 1), Transaction("A", statement, began, 2))
            assert accepts(History(TWO, both), level)


def test_the_judge_does_not_depend_on_the_order_in_which_it_is_told():
    for order in permutations(cycle_of_three()):
        assert verdicts(TWO, *order) == (False, False)


def test_a_log_has_no_gaps():
    with pytest.raises(ValueError, match="made version 2, but the log has 1 next"):
        accepts(History(TWO, (Transaction("A", insert((5, 0)), 0, 2),)), SERIALIZABLE)


def ten_operations():
    """For each of two colours: insert, delete, update to the other one, and both ways to insert a copy."""
    for c in (0, 1):
        yield insert((5 + c, c))
        yield delete(colour(c))
        yield paint(c, 1 - c)
        yield copy(colour(c), lambda k, a: (k + 10, 1 - a))
        yield copy(colour(c), lambda k, a: (k + 10, a))


@pytest.mark.tier("nightly")
def test_the_contracts_count_of_histories_that_break_without_the_rule(capsys):
    """All histories of three small transactions over two rows: 72 of 90,000."""
    histories = {by_rows: [0, 0, 0], by_rows_and_precedence: [0, 0, 0]}
    for check, counted in histories.items():
        for operations, interleaving in product(product(ten_operations(), repeat=3), interleavings(3)):
            took_place = run(TWO, operations, interleaving, check)
            counted[0] += 1
            counted[1] += len(took_place) == 3
            counted[2] += not accepts(History(TWO, took_place), WRITE_SERIALIZABLE)
    with capsys.disabled():
        print()
        for check, (all_of_them, whole, wrong) in histories.items():
            print(f"{check.__name__}: {all_of_them:,} histories, all three commit in {whole:,}, {wrong} violations")
    assert histories[by_rows][0] == 90_000
    assert histories[by_rows][2] == 72
    assert histories[by_rows_and_precedence][2] == 0
