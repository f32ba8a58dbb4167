"""The rules by rows, one situation at a time, through the real commit loop.

Tests of core.commit.budget, core.rows.deletes, core.rows.file_state, core.rows.rebase, core.rows.sets,
core.rows.touched.
"""

from __future__ import annotations

import dataclasses
import json

import msgspec
import pytest
from pyroaring import BitMap64

from concurrency.commits import LEVELS, WRITE_SERIALIZABLE, where
from concurrency.rows_table import Table, Transaction
from refdelta import errors
from refdelta.core.commit.budget import Limits, RowBudget
from refdelta.core.conflicts.reads import EVERY_ROW, ReadSet
from refdelta.core.log.actions import Add, CommitInfo, Remove
from refdelta.core.log.codec import decode_commit, encode_commit
from refdelta.core.rows.deletes import RowDelete, tombstone
from refdelta.core.rows.sets import ALL

# One file: colours 0 to 3, two rows each. A second one: colour 9.
ROWS = [(number, number % 4) for number in range(8)]
OTHERS = [(number, 9) for number in (20, 21)]


def table(**options) -> Table:
    return Table(ROWS, OTHERS, **options)


def refused(made: Table, txn: Transaction, **options) -> errors.ConflictDetails:
    with pytest.raises(errors.ConcurrentModificationError) as caught:
        made.commit(txn, **options)
    return caught.value.conflict


def actions(made: Table, version: int = -1) -> tuple[list[Add], list[Remove]]:
    found = decode_commit(made.log[version], "commit")
    return [a for a in found if isinstance(a, Add)], [a for a in found if isinstance(a, Remove)]


# --- rows of one file -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_who_changes_other_rows_of_one_file_passes_and_unites_the_vectors(level):
    made = table()
    late = [made.change(colour, to=colour + 4) for colour in (1, 2, 3)]
    first = made.commit(made.change(0), level)
    outcomes = [made.commit(txn, level) for txn in late]
    assert [outcome.rebased_over for outcome in outcomes] == [(1,), (1, 2), (1, 2, 3)]
    # The last one took all that was left: no vector, the file goes.
    assert [len(outcome.vectors) for outcome in (first, *outcomes)] == [1, 1, 1, 0]
    adds, removes = actions(made)
    assert [add.deletion_vector for add in adds] == [None]
    assert [len(made.hidden(remove.deletion_vector)) for remove in removes] == [6]


def test_the_same_row_is_a_conflict_that_names_it():
    made = table()
    late = made.change(2, deletes=lambda row: row[0] == 6)
    made.commit(made.change(2, deletes=lambda row: row[0] == 6))
    found = refused(made, late)
    assert (found.rule, found.rows, found.positions) == ("read-file-removed", 1, {"f0": (6,)})
    assert found.files == ("f0",)


def test_a_row_that_was_read_and_left_alone_counts():
    made = table()
    late = made.change(2, deletes=lambda row: row[0] == 6)
    made.commit(made.change(2, deletes=lambda row: row[0] == 2))
    assert refused(made, late).positions == {"f0": (2,)}


def test_a_winner_that_moves_a_row_into_the_predicate_is_a_conflict():
    made = table()
    late = made.change(2)
    made.commit(made.change(3, to=2))
    assert refused(made, late).rule == "files-added"
    # Else the statistics of the new file say no, or its rows do.
    late = made.change(1)
    made.commit(made.insert([0, 2]))
    made.commit(made.change(9, to=3))
    made.looks = 0
    assert made.commit(late).version == 4
    assert made.looks == 1


def test_what_is_rebased_is_written_anew_only_where_a_vector_changed():
    made = table()
    both = made.change(0)
    more = made.change(9, deletes=lambda row: row[0] == 20)
    both.work = both_of(both, more)
    both.deletes, both.reads = both.deletes | more.deletes, both.reads | more.reads
    both.read_set = (
        ReadSet(version=0)
        .with_predicate(where("a = 0 OR a = 9"))
        .with_rows([(edit.add, edit.rows) for edit in both.work.deletes])
    )
    writes = []
    vector = made.vector
    made.vector = lambda rows: writes.append(rows) or vector(rows)
    made.commit(made.change(1))
    made.commit(both)
    # One for the winner; two, and again the one in which the winner deleted.
    assert [len(rows) for rows in writes] == [2, 2, 1, 4]


def both_of(one: Transaction, other: Transaction):
    return dataclasses.replace(one.work, deletes=(*one.work.deletes, *other.work.deletes))


# --- compactions that won ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_a_row_that_a_merge_leaves_alone_between_two_compactions_and_a_delete_stays(level):
    made = table()
    late = made.change(2, deletes=lambda row: row[0] == 6, to=5)
    made.commit(made.compact(split=3), level)
    made.commit(made.change(0), level)
    made.commit(made.compact(size=3, split=4), level)
    assert made.commit(late, level).rebased_over == (1, 2, 3)
    assert (2, 2) in made.rows(-1)
    assert (6, 2) not in made.rows(-1)


def test_a_row_that_was_deleted_between_two_compactions_is_a_conflict():
    made = table()
    late = made.change(2, deletes=lambda row: row[0] == 6)
    made.commit(made.compact(split=3))
    made.commit(made.change(2, deletes=lambda row: row[0] == 2))
    made.commit(made.compact(size=3, split=4))
    found = refused(made, late)
    assert (found.rule, found.version, found.rows) == ("read-file-removed", 2, 1)


def test_places_come_from_the_vector_as_the_compaction_read_it():
    made = table()
    late = made.change(3)
    old = made.compact()
    # The compaction does not see this one: its remove names a vector that hides rows which it has copied.
    made.commit(made.change(0))
    assert made.commit(old).rebased_over == (1,)
    (add, *_), (remove, *_) = actions(made)
    recorded = [place for places in made.info(2)["rowPlaces"].values() for place in places if place["path"] == "f0"]
    assert remove.deletion_vector is not None
    assert all("deletionVector" not in place for place in recorded)
    assert add.deletion_vector is not None
    made.commit(late)
    assert not [row for row in made.rows(-1) if row[1] in {0, 3}]


def test_a_record_with_a_vector_says_so():
    made = table()
    made.commit(made.change(0))
    late = made.change(3)
    made.commit(made.compact())
    places = [place for found in made.info(2)["rowPlaces"].values() for place in found]
    assert {place["path"]: "deletionVector" in place for place in places} == {"f0": True, "f1": False}
    made.commit(late)


def without_record(made: Table, change=lambda places: None) -> None:
    """Take the record of the newest version away, or change it."""
    lines = [json.loads(line) for line in made.log[-1].splitlines()]
    info = lines[0]["commitInfo"]
    found = change(info.pop("rowPlaces"))
    if found is not None:
        info["rowPlaces"] = found
    made.log[-1] = b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def shifted(places):
    return {path: [{**one, "start": one["start"] + 1} for one in found] for path, found in places.items()}


def overlapping(places):
    return {path: [*found, *found] for path, found in places.items()}


def elsewhere(places):
    return {f"{path}-not": found for path, found in places.items()}


@pytest.mark.parametrize(
    "change", [lambda _: None, lambda _: 5, lambda _: {"x": [{}]}, shifted, overlapping, elsewhere]
)
def test_a_compaction_that_does_not_say_where_its_rows_are_is_a_removal(change):
    made = table()
    late = made.change(3)
    made.commit(made.compact(split=20))
    without_record(made, change)
    found = refused(made, late)
    assert (found.rule, found.version) == ("read-file-removed", 1)
    if change is not elsewhere:
        assert found.fallbacks == ("version 1 does not say where the rows are that it moved",)


def test_who_read_every_row_goes_after_a_compaction_but_did_not_read_what_it_skipped():
    made = table()
    late = made.copy(None)
    made.commit(made.insert([7]), WRITE_SERIALIZABLE)
    # The appended row is in one file with rows that were read.
    made.commit(made.compact(size=3, split=20), WRITE_SERIALIZABLE)
    made.commit(made.change(7), WRITE_SERIALIZABLE)
    made.commit(made.compact(size=3, split=20), WRITE_SERIALIZABLE)
    second = made.copy(None, age=4)
    assert made.commit(late, WRITE_SERIALIZABLE).rebased_over == (1, 2, 3, 4)
    made.commit(made.change(1), WRITE_SERIALIZABLE)
    assert refused(made, second, level=WRITE_SERIALIZABLE).rule == "files-added"


def test_a_compaction_of_skipped_appends_alone_was_not_read_either():
    made = Table(ROWS)
    late = made.copy(None)
    for colour in (5, 6):
        made.commit(made.insert([colour]), WRITE_SERIALIZABLE)
    appended = made.compact(size=1)
    appended.work = groups_of(appended, slice(1, None))
    made.commit(appended, WRITE_SERIALIZABLE)
    made.commit(made.change(5), WRITE_SERIALIZABLE)
    assert made.commit(late, WRITE_SERIALIZABLE).version == 5


def groups_of(txn: Transaction, which: slice):
    return dataclasses.replace(txn.work, groups=txn.work.groups[which])


def test_rows_of_two_files_in_one_output_are_all_known():
    for gone in (1, 11):
        made = Table([(0, 0), (1, 5)], [(10, 0), (11, 5)])
        late = made.change(5, to=4)
        made.commit(made.compact(split=4))
        made.commit(made.change(5, deletes=lambda row, gone=gone: row[0] == gone))
        assert refused(made, late).positions == {"f3": (1 if gone == 1 else 3,)}


def test_what_is_replaced_as_a_whole_cannot_go_after_a_compaction():
    made = table()
    (add,) = (add for add in made.versions[0].values() if add.path == "f0")
    late = made.copy(1, by_rows=False)
    late.actions.append(tombstone(add, now_ms=1, data_change=True))
    made.commit(made.compact())
    assert refused(made, late).rule == "read-file-removed"


def test_all_rows_of_a_file_move_as_rows_of_another():
    made = table()
    late = made.truncate()
    made.commit(made.compact(size=2, split=4))
    made.commit(late)
    assert made.rows(-1) == frozenset()
    assert actions(made)[0] == []


# --- compactions of ours ----------------------------------------------------------------------------------------------


def test_a_compaction_hides_in_its_outputs_what_others_deleted_meanwhile():
    made = table()
    late = made.compact(split=3)
    made.commit(made.change(0))
    made.commit(made.change(9, deletes=lambda row: row[0] == 20))
    outcome = made.commit(late)
    adds, removes = actions(made)
    assert outcome.rebased_over == (1, 2)
    assert all(not action.data_change for action in (*adds, *removes))
    assert sum(len(made.hidden(add.deletion_vector)) for add in adds) == 3
    assert len(outcome.vectors) == sum(add.deletion_vector is not None for add in adds)


def test_an_output_of_which_no_row_is_left_is_not_committed():
    made = Table([(0, 0), (1, 1)], [(2, 1)])
    late = made.compact(split=1)
    reader = made.change(1)
    made.commit(made.change(0))
    outcome = made.commit(late)
    assert [made.rows_of(add) for add in actions(made)[0]] == [[(1, 1)], [(2, 1)]]
    assert [made.files[unused.path] for unused in outcome.unused] == [((0, 0),)]
    assert len(made.info(-1)["rowPlaces"]) == 3
    # Its place is in the record all the same; who has rows in another output finds them.
    made.commit(reader)


def test_a_group_that_lost_an_input_is_left_out_and_the_others_commit():
    made = table()
    late = made.compact(size=1)
    made.commit(made.change(9))
    outcome = made.commit(late)
    assert [one.add.path for group in outcome.groups for one in group.inputs] == ["f0"]
    assert {made.files[unused.path] for unused in outcome.unused} == {tuple(OTHERS)}
    assert list(made.info(-1)["rowPlaces"]) == [add.path for add in actions(made)[0]]


def test_of_two_compactions_the_second_keeps_what_is_whole_or_commits_nothing():
    made = table()
    first, second, third = made.compact(size=1), made.compact(size=1), made.compact(size=2)
    first.work = groups_of(first, slice(0, 1))
    made.commit(first)
    assert [len(group.inputs) for group in made.commit(second).groups] == [1]
    outcome = made.commit(third)
    assert (outcome.version, outcome.groups, len(made.versions)) == (None, (), 3)
    assert len(outcome.unused) == sum(len(group.outputs) for group in third.work.groups)


def test_a_group_whose_rows_came_back_is_left_out():
    made = table()
    made.commit(made.change(0))
    late = made.compact(size=1)
    made.commit(made.restore(0))
    assert [one.add.path for group in made.commit(late).groups for one in group.inputs] == ["f1"]
    assert made.rows(-1) == frozenset([*ROWS, *OTHERS])


def test_a_permuted_group_conflicts_over_its_inputs():
    made = table()
    late, other = made.compact(size=1, permuted=True), made.compact(size=1, permuted=True)
    other.work = groups_of(other, slice(1, None))
    made.commit(made.change(0))
    assert refused(made, late).rule == "deleted-by-both"
    made.commit(other)
    reader = made.change(9, age=1)
    assert refused(made, reader).rule == "read-file-removed"


# --- rows that come back ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("deleted", "conflict"), [(2, True), (3, False)])
def test_rows_that_a_restore_uncovers_are_new_rows(deleted, conflict):
    made = table()
    made.commit(made.change(2, deletes=lambda row: row[0] == deleted))
    made.commit(made.change(3, deletes=lambda row: row[0] == deleted))
    late = made.change(2, deletes=lambda row: row[0] == 6)
    made.commit(made.restore(0))
    if conflict:
        assert refused(made, late).rule == "files-added"
        return
    # Of the file only those rows are looked at, not the ones that the transaction knows itself.
    made.commit(late)
    assert made.looks == 1


def test_rows_that_come_back_in_a_file_that_was_not_held():
    for colour, conflict in ((9, True), (8, False)):
        made = Table(ROWS, [(20, 9), (21, 7), (22, 9)])
        made.commit(made.change(9, deletes=lambda row: row[0] == 20))
        made.commit(made.change(9, deletes=lambda row: row[0] == 22))
        late = made.copy(colour)
        made.commit(made.restore(1))
        if conflict:
            assert refused(made, late).rule == "files-added"
        else:
            made.commit(late)


def test_rows_that_come_back_where_all_were_read_are_a_conflict():
    made = table()
    made.commit(made.change(2))
    late = made.copy(1, by_rows=False)
    made.commit(made.restore(0))
    assert refused(made, late).rule == "files-added"


# --- where files decide -----------------------------------------------------------------------------------------------


def test_without_row_level_files_decide_and_compactions_still_pass():
    made = table(row_level=False)
    late, other = made.change(1), made.change(2)
    made.commit(made.compact(split=3))
    made.commit(late)
    found = refused(made, other)
    assert found.rule == "read-file-removed"
    assert "row_level" in found.fallbacks[0]
    # A compaction needs the vectors only.
    made = table(row_level=False)
    late = made.compact()
    made.commit(made.change(1))
    assert made.commit(late).version == 2


def test_without_vectors_readers_go_after_compactions_and_compactions_conflict():
    made = table(row_level=False, vectors=False)
    late, compaction = made.copy(1), made.compact()
    made.commit(made.compact())
    made.commit(late)
    assert refused(made, compaction).rule == "deleted-by-both"


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (RowBudget(size=15), "budget of 15 bytes"),
        (RowBudget(attempts=1), "1 times"),
        (RowBudget(seconds=0.0), "budget of 0 seconds"),
    ],
)
def test_past_the_budget_files_decide_and_the_error_says_so(budget, reason):
    made = table()
    late = made.change(2)
    made.commit(made.change(1, to=4))
    for _ in range(2):
        made.commit(made.insert([1, 3]))
    found = refused(made, late, limits=Limits(budget=budget))
    assert found.rule == "files-added"
    assert any(reason in text for text in found.fallbacks)


def test_no_budget_is_needed_for_vectors():
    made = table()
    late = made.change(2)
    made.commit(made.change(1))
    made.commit(made.compact())
    made.commit(made.change(3))
    made.commit(late, limits=Limits(budget=RowBudget(size=0, attempts=0, seconds=0.0)))


def test_a_finer_question_clears_what_the_predicate_cannot():
    made = table()
    for finer in (True, False):
        late = made.change(2)
        late.read_set = (
            ReadSet(version=late.saw)
            .with_predicate(EVERY_ROW, finer=finer)
            .with_rows([(edit.add, edit.rows) for edit in late.work.deletes])
        )
        made.commit(made.insert([5]))
        if finer:
            made.commit(late)
            made.commit(made.restore(0))
        else:
            assert refused(made, late).rule == "files-added"


# --- what is written --------------------------------------------------------------------------------------------------


def refresh(made: Table, path: str, **fields) -> None:
    """Another writer adds a file again as it is, with other words about it."""
    live = made.versions[-1]
    add = msgspec.structs.replace(live[path], data_change=False, **fields)
    made.versions[-1] = {name: one for name, one in live.items() if name != path}
    made._put(encode_commit([CommitInfo(fields={"operation": "COMPUTE STATS"}), add]))


def test_what_the_log_says_of_a_file_is_taken_over():
    made = table()
    late, compaction = made.change(1), made.compact()
    words = {"tags": {"t": "1"}, "base_row_id": 7, "default_row_commit_version": 3}
    stats = '{"numRecords":8,"minValues":{"a":0},"maxValues":{"a":3},"nullCount":{"a":0},"other":[1.10]}'
    refresh(made, "f0", stats=stats, **words)
    made.commit(late)
    (add,), (remove,) = actions(made)
    for action in (add, remove):
        assert (action.tags, action.base_row_id, action.default_row_commit_version) == ({"t": "1"}, 7, 3)
    assert add.stats == stats[:-1] + ',"tightBounds":false}'
    made.commit(compaction)
    removes = {one.path: one for one in actions(made)[1]}
    assert removes["f0"].base_row_id == 7


def test_a_winner_without_statistics_gets_them_from_us():
    made = table()
    late = made.change(1)
    made.commit(made.change(0))
    made.log[-1] = b"".join(line + b"\n" for line in (drop_stats(line) for line in made.log[-1].splitlines()))
    made.commit(late)
    (add,), _ = actions(made)
    assert json.loads(add.stats) == {"numRecords": 8, "tightBounds": False}


def drop_stats(line: bytes) -> bytes:
    found = json.loads(line)
    found.get("add", {}).pop("stats", None)
    return json.dumps(found).encode()


def test_an_edit_that_cannot_be_right_is_refused_when_it_is_made():
    add = table().versions[0]["f0"]
    with pytest.raises(ValueError, match="another vector"):
        RowDelete(add, BitMap64([1]), BitMap64([2]))
    with pytest.raises(ValueError, match="numRecords"):
        RowDelete(msgspec.structs.replace(add, stats=None), BitMap64(), BitMap64([2]))
    RowDelete(msgspec.structs.replace(add, stats=None), BitMap64(), ALL)


def test_an_output_without_statistics_gets_them_from_its_places():
    made = table()
    late = made.change(1)
    made.commit(made.compact(split=20))
    made.log[-1] = b"".join(drop_stats(line) + b"\n" for line in made.log[-1].splitlines())
    made.commit(late)
    (add,), _ = actions(made)
    assert json.loads(add.stats) == {"numRecords": 10, "tightBounds": False}
