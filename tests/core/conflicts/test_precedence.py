"""Rule 10: blind appends that were skipped, and the cycles that they may close."""

from __future__ import annotations

import pytest

from concurrency.commits import SERIALIZABLE, add, commit, ours, remove, run
from refdelta.core.conflicts.reads import ReadTable
from refdelta.core.conflicts.rules import RULES

WITHOUT = [rule for rule in RULES if rule.number != 10]


def deletion(**options):
    """Deletes the rows of p = 0, which are in one file. It sees version 0."""
    return ours(remove("zero", 0), reads=["p = 0"], files=[remove("zero", 0)], **options)


APPEND = commit(1, add("zero-too", 0), saw=0, blind=True)


def test_the_contracts_first_cycle():
    # D begins; I appends a row of p = 0; N inserts a row for each row of p = 0 that it reads, I's row among them.
    # D skips I, so it is before I, which is before N; and N is before D, for it still saw the row that D deletes.
    copies = commit(2, add("copies", 1), reads=["p = 0"], saw=1, blind=False)
    assert run(deletion(), APPEND, copies) == ("append-skipped", 2)
    assert run(deletion(), APPEND, copies, rules=WITHOUT) is None
    assert run(deletion(level=SERIALIZABLE), APPEND, copies) == ("files-added", 1)
    # Where the copies are rows of p = 0 again, D would have read them.
    copies = commit(2, add("copies", 0), reads=["p = 0"], saw=1, blind=False)
    assert run(deletion(), APPEND, copies) == ("files-added", 2)


def longer(rules=RULES, *, t_adds=3, y_reads="p = 0", y_saw=1, z_reads="p = 3", z_adds=4):
    """T (a query of p = 0, whose answer it appends) skips I; Y read I; Z did not begin late enough to see I, but added
    a row that Y would have read; T wrote a row that Z would have read.
    """
    t = ours(add("t", t_adds), reads=["p = 0"])
    y = commit(2, add("y", 5), reads=[y_reads, "p = 4"], saw=y_saw, blind=False)
    z = commit(3, add("z", z_adds), reads=[z_reads], saw=0, blind=False)
    return run(t, APPEND, y, z, rules=rules)


def test_the_contracts_longer_cycle():
    assert longer() == ("append-skipped", 3)
    assert longer(WITHOUT) is None


@pytest.mark.parametrize(
    "but", [{"t_adds": 8}, {"y_reads": "p = 7"}, {"y_saw": 0}, {"z_reads": "p = 9"}, {"z_adds": 6}]
)
def test_without_one_of_its_links_the_longer_cycle_is_none(but):
    assert longer(**but) is None


def test_a_winner_that_does_not_say_what_it_read_has_read_everything():
    silent = commit(2, add("new", 5), saw=1, blind=False)
    assert run(deletion(), APPEND, silent) == ("append-skipped", 2)
    assert run(deletion(), silent) is None
    assert run(deletion(), commit(1, add("elsewhere", 3), blind=True), silent) is None


@pytest.mark.parametrize("table", [None, ReadTable()])
def test_who_cannot_read_predicates_takes_them_for_everything(table):
    apart = commit(2, add("new", 5), reads=["p = 9"], saw=1, blind=False)
    assert run(deletion(), APPEND, apart) is None
    state = ours(remove("zero", 0), reads=["p = 0"], files=[remove("zero", 0)], table=table)
    assert run(state, APPEND, apart) == ("append-skipped", 2)


@pytest.mark.parametrize("text", ["no such column = 1", "((", "x = 1"])
def test_words_that_cannot_be_read_count_as_everything(text):
    strange = commit(2, add("new", 5), reads=[text], saw=1, blind=False)
    assert run(deletion(), APPEND, strange) == ("append-skipped", 2)


def test_who_came_too_early_to_see_the_append_may_be_moved_in_front_of_it_as_well():
    # It reads what we delete, so it is before us; but it did not see I: both take their place before it.
    early = commit(2, add("new", 5), reads=["p = 0"], saw=0, blind=False)
    late = commit(2, add("new", 5), reads=["p = 0"], saw=1, blind=False)
    unknown = commit(2, add("new", 5), reads=["p = 0"], blind=False)
    assert run(deletion(), APPEND, early) is None
    assert run(deletion(), APPEND, late) == ("append-skipped", 2)
    assert run(deletion(), APPEND, unknown) == ("append-skipped", 2)


def test_appends_moves_and_records_close_no_cycle():
    others = [
        commit(2, add("more", 0), saw=1, blind=True),
        commit(3, remove("x", 9, changes=False), add("y", 9, changes=False), saw=2, operation="OPTIMIZE"),
        commit(4, saw=3),
    ]
    assert run(deletion(), APPEND, *others) is None


def test_winners_before_the_append_do_not_count():
    # They precede both.
    before = commit(1, add("new", 5), reads=["p = 0"], saw=0, blind=False)
    assert run(deletion(), before, commit(2, add("zero-too", 0), saw=1, blind=True)) is None


def test_one_who_waits_on_the_first_append_is_caught_behind_the_second():
    reader = commit(3, add("new", 5), reads=["p = 0"], saw=1, blind=False)
    assert run(deletion(), APPEND, commit(2, add("zero-3", 0), saw=0, blind=True), reader) == ("append-skipped", 3)


def test_past_the_budget_nothing_is_followed(monkeypatch):
    monkeypatch.setattr("refdelta.core.conflicts.precedence._FILES_KEPT", 1)
    early = commit(2, add("new", 5), reads=["p = 0"], saw=0, blind=False)
    assert run(deletion(), APPEND, early) is None
    assert run(deletion(), APPEND, commit(2, add("new", 5), reads=["p = 9"], saw=1, blind=False), early) == (
        "append-skipped",
        2,
    )


def test_statistics_say_what_a_removed_file_held():
    # The winner read rows that cannot have been in it.
    held = add("zero", 0, a=(1, 5))
    for bound, expected in ((9, None), (4, ("append-skipped", 2))):
        state = ours(remove("zero", 0), reads=["p = 0"], files=[held])
        other = commit(2, add("new", 5), reads=[f"a > {bound}"], saw=1, blind=False)
        assert run(state, APPEND, other) == expected
        assert state.actions[1].stats is None


def test_who_deletes_other_rows_of_a_file_than_those_that_were_read_is_not_in_the_way():
    # The same file, but no row of it was read by the one and deleted by the other.
    other = commit(2, add("new", 5), reads=["p = 0 AND a > 7"], saw=1, blind=False)
    for deleted, expected in (("a < 5", None), ("a < 9", ("append-skipped", 2))):
        state = ours(remove("zero", 0), reads=[f"p = 0 AND {deleted}"], files=[remove("zero", 0)])
        assert run(state, APPEND, other) == expected
