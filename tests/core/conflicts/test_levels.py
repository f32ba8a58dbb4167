"""What each level makes of what winners added and removed: partitions, statistics, blind appends, vectors.

Tests of core.log.footprint.
"""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from concurrency.commits import (
    FLAT,
    LEVELS,
    SERIALIZABLE,
    WRITE_SERIALIZABLE,
    add,
    commit,
    ours,
    remove,
    run,
    vector,
)
from refdelta.core.conflicts.reads import ReadTable
from refdelta.core.log import footprint
from refdelta.core.log.actions import Add, DomainMetadata, Metadata, Protocol, Txn

METADATA = Metadata(id="m", schema_string="{}", partition_columns=[])
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
DELETE_1 = {"reads": ["p = 1"], "files": [remove("old", 1)]}


def test_the_documentations_timeline():
    # t0 a DELETE starts, t1 an INSERT starts, t2 the INSERT commits rows that match, t3 the DELETE tries to commit.
    insert = commit(1, add("new", 1), saw=0, blind=True)
    assert run(ours(remove("old", 1), level=SERIALIZABLE, **DELETE_1), insert) == ("files-added", 1)
    assert run(ours(remove("old", 1), level=WRITE_SERIALIZABLE, **DELETE_1), insert) is None


@pytest.mark.parametrize("level", LEVELS)
def test_inserts_never_conflict_with_data(level):
    winners = [
        commit(1, add("x"), blind=True),
        commit(2, add("y"), remove("x"), reads=["true"]),
        commit(3, add("z", changes=False), remove("y", changes=False)),
    ]
    assert run(ours(add("n"), level=level), *winners) is None


@pytest.mark.parametrize("level", LEVELS)
def test_disjoint_partitions_never_conflict(level):
    # Two MERGEs whose conditions each add a literal.
    other = commit(1, remove("theirs", 2), add("new", 2), reads=["p = 2"], saw=0, operation="MERGE")
    here = commit(2, remove("old", 1), add("new1", 1), reads=["p = 1"], saw=0, operation="MERGE")
    assert run(ours(remove("old", 1), add("n", 1), level=level, **DELETE_1), other) is None
    assert run(ours(remove("old", 1), add("n", 1), level=level, **DELETE_1), other, here) == ("files-added", 2)


@pytest.mark.parametrize(
    ("blind", "removes", "conflict"),
    [(True, False, False), (False, False, True), (None, False, True), (True, True, True)],
)
def test_who_counts_as_a_blind_append(blind, removes, conflict):
    # A commit that does not say so is not blind, nor is one that says so and removes files.
    actions = [add("new", 1), *([remove("elsewhere", 9)] if removes else [])]
    found = run(ours(remove("old", 1), **DELETE_1), commit(1, *actions, blind=blind))
    assert found == (("files-added", 1) if conflict else None)


@pytest.mark.parametrize("change", [METADATA, PROTOCOL])
def test_who_changes_the_table_may_skip_no_append(change):
    insert = commit(1, add("new", 1), blind=True)
    assert run(ours(remove("old", 1), change, **DELETE_1), insert) == ("files-added", 1)
    # Setting a property reads no rows.
    assert run(ours(change), insert) is None


def test_reads_without_a_predicate_may_be_of_any_row():
    update = commit(1, add("new", 7), blind=False)
    assert run(ours(add("n"), files=[add("old", 1)]), update) == ("files-added", 1)
    # Removing without saying what was read, too.
    assert run(ours(remove("old", 1)), update) == ("files-added", 1)
    assert run(ours(remove("old", 1)), commit(1, remove("other", 7))) == ("read-file-removed", 1)


def test_a_moved_row_is_a_new_row():
    # An UPDATE moves a row into our predicate: out of a file that we did not read, into one that we would have.
    moved = commit(1, remove("elsewhere", 2), add("here", 1), blind=False, operation="UPDATE")
    assert run(ours(remove("old", 1), **DELETE_1), moved) == ("files-added", 1)


def test_who_read_everything_does_not_read_what_it_skipped():
    # The appended file was never seen: it stands behind us, and so does whoever removes it.
    whole = {"whole_table": True, "level": WRITE_SERIALIZABLE}
    insert = commit(1, add("new"), saw=0, blind=True)
    gone = commit(2, remove("new"), reads=["p = 5"], saw=1, operation="DELETE")
    assert run(ours(add("n", 1), **whole), insert, gone) is None
    assert run(ours(add("n", 1), **whole), gone) == ("read-file-removed", 2)


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_a_file_without_a_matching_row_was_not_read(level):
    mine = {"reads": ["a = 1"], "files": [add("read")], "table": FLAT, "level": level}
    assert run(ours(remove("read"), **mine), commit(1, remove("other"), operation="DELETE")) is None
    assert run(ours(remove("read"), **mine), commit(1, remove("read"))) == ("read-file-removed", 1)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("before", "after", "operation", "conflict"),
    [
        (None, vector("d", 1), "DELETE", False),
        (vector("d", 1), vector("e", 2), "DELETE", False),
        # Rows may have come back.
        (vector("d", 1), vector("e", 2), "RESTORE", True),
        (vector("d", 1), vector("e", 2), None, True),
        (vector("d", 2), vector("e", 1), "DELETE", True),
        (vector("d", 2), vector("e", 2), "DELETE", True),
        (vector("d", 1), None, "RESTORE", True),
    ],
)
def test_a_path_with_another_vector_is_new_only_where_rows_may_have_come_back(
    level, before, after, operation, conflict
):
    winner = commit(1, remove("f", 1, dv=before), add("f", 1, dv=after), blind=False, operation=operation)
    found = run(ours(remove("old", 1), level=level, **DELETE_1), winner)
    assert found == (("files-added", 1) if conflict else None)


def test_hidden_rows_of_a_file_that_was_read():
    winner = commit(1, remove("old", 1), add("old", 1, dv=vector("d")), blind=False, operation="DELETE")
    assert run(ours(remove("old", 1), **DELETE_1), winner) == ("read-file-removed", 1)


def test_a_vector_that_changes_without_a_remove_is_noticed():
    broken = commit(1, add("old", 1, dv=vector("d"), changes=False), operation="COMPUTE STATS")
    assert run(ours(remove("old", 1), **DELETE_1), broken) == ("read-file-removed", 1)
    compaction = ours(remove("old", 1, changes=False), add("n", 1, changes=False))
    assert run(compaction, broken) == ("deleted-by-both", 1)


# --- what only rearranges -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_a_compaction_that_won_conflicts_with_those_who_read_its_inputs(level):
    compaction = commit(1, remove("old", 1, changes=False), add("big", 1, changes=False), operation="OPTIMIZE")
    assert run(ours(remove("old", 1), level=level, **DELETE_1), compaction) == ("read-file-removed", 1)
    elsewhere = commit(1, remove("x", 1, changes=False), add("big", 1, changes=False), operation="OPTIMIZE")
    assert run(ours(remove("old", 1), level=level, **DELETE_1), elsewhere) is None


@pytest.mark.parametrize("level", LEVELS)
def test_a_compaction_conflicts_over_its_inputs_only(level):
    def compaction():
        actions = [remove("old", 1, changes=False), add("big", 1, changes=False)]
        return ours(*actions, reads=["true"], files=[remove("old", 1)], level=level)

    assert compaction().level_name == "SnapshotIsolation"
    assert run(compaction(), commit(1, add("new", 1), blind=False), commit(2, remove("new", 1))) is None
    assert run(compaction(), commit(1, remove("old", 1))) == ("deleted-by-both", 1)
    assert run(compaction(), commit(1, remove("old", 1, changes=False))) == ("deleted-by-both", 1)
    hidden = commit(1, remove("old", 1), add("old", 1, dv=vector("d")), operation="DELETE")
    assert run(compaction(), hidden) == ("deleted-by-both", 1)


def test_a_rearrangement_that_changes_the_table_is_none():
    state = ours(METADATA, add("old", 1, changes=False), whole_table=True)
    assert state.level_name == "WriteSerializable"
    assert run(state, commit(1, add("new", 1), blind=True)) == ("files-added", 1)


def test_what_is_added_again_must_be_there_still():
    refresh = ours(add("f", 1, changes=False))
    assert run(refresh, commit(1, remove("f", 1))) == ("deleted-by-both", 1)


# --- refreshed metadata ---------------------------------------------------------------------------------------------

FRESH = {"tags": {"t": "1"}, "base_row_id": 7, "default_row_commit_version": 3}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("changes", [True, False])
def test_a_refresh_of_files_that_were_read_conflicts_with_nothing(level, changes):
    refresh = commit(1, add("old", 1, changes=changes, **FRESH), blind=False)
    state = ours(remove("old", 1), level=level, **DELETE_1)
    assert run(state, refresh) is None
    assert state.staged.removes[0].base_row_id == 7
    assert state.staged.removes[0].tags == {"t": "1"}


def test_our_add_of_a_refreshed_file_copies_the_winners():
    refresh = commit(1, add("f", 1, a=(1, 2), changes=False, **FRESH))
    state = ours(add("f", 1, changes=False, a=(0, 9)))
    assert run(state, refresh) is None
    assert state.actions[1] == add("f", 1, a=(1, 2), changes=False, **FRESH)


def test_our_add_with_another_vector_keeps_the_vector_and_says_that_bounds_are_wide():
    refresh = commit(1, add("f", 1, a=(1, 2), changes=False, **FRESH))
    mine = [remove("f", 1), add("f", 1, dv=vector("mine"), a=(0, 9))]
    state = ours(*mine, reads=["p = 1"], files=[add("f", 1)])
    assert run(state, refresh) is None
    taken, again = state.staged.removes[0], state.staged.adds[0]
    assert (taken.base_row_id, taken.deletion_vector) == (7, None)
    assert (again.base_row_id, again.deletion_vector, again.data_change) == (7, vector("mine"), True)
    assert '"tightBounds":false' in again.stats
    assert '"minValues":{"a":1}' in again.stats


# --- the table itself -----------------------------------------------------------------------------------------------


def test_metadata_that_is_written_again_as_it_was_is_no_change():
    table = dataclasses.replace(FLAT, metadata=METADATA)
    again = commit(1, METADATA, add("new"), blind=True)
    assert run(ours(add("n"), table=table), again) is None
    assert run(ours(add("n"), table=FLAT), again) == ("metadata", 1)
    # Of two who write it one fails.
    assert run(ours(METADATA, table=table), again) == ("metadata", 1)
    for changed in ({"schema_string": "[]"}, {"configuration": {"x": "1"}}, {"name": "t"}, {"extra": {"x": 1}}):
        other = commit(1, msgspec.structs.replace(METADATA, **changed))
        assert run(ours(add("n"), table=table), other) == ("metadata", 1)


def test_identity_columns_admit_no_winner():
    table = ReadTable(one_writer=True)
    assert run(ours(add("n"), table=table), commit(1, Txn(app_id="a", version=1))) == ("identity", 1)


def test_two_who_replace_the_table():
    replaced = commit(1, METADATA, add("new"), operation="CREATE OR REPLACE TABLE")
    both = ours(METADATA, add("n"), whole_table=True, operation="REPLACE TABLE")
    assert run(both, replaced) == ("table-replaced", 1)
    assert run(ours(add("n")), replaced) == ("metadata", 1)
    assert run(both, commit(1, METADATA, operation="SET TBLPROPERTIES")) == ("metadata", 1)


def test_the_domain_of_row_tracking_is_no_conflict_of_its_own():
    mine = DomainMetadata(domain="delta.rowTracking", configuration="{}", removed=False)
    assert run(ours(add("n"), mine), commit(1, mine)) is None


@pytest.mark.parametrize("p", ["x", ""])
def test_a_partition_value_that_is_none_rules_nothing_out_and_null_does(p):
    odd = Add(path="x", partition_values={"p": p}, size=1, modification_time=1, data_change=True)
    found = run(ours(remove("old", 1), **DELETE_1), commit(1, odd, blind=False))
    assert found == (("files-added", 1) if p else None)


# --- statistics -----------------------------------------------------------------------------------------------------

READ_SMALL = {"reads": ["a < 10"], "files": [remove("old")], "level": SERIALIZABLE, "table": FLAT}


@pytest.mark.parametrize(("bounds", "conflict"), [((10, 20), False), ((9, 20), True), ((0, 5), True), (None, True)])
def test_statistics_clear_files_apart_from_the_predicate(bounds, conflict):
    found = run(ours(remove("old"), **READ_SMALL), commit(1, add("new", a=bounds), blind=True))
    assert found == (("files-added", 1) if conflict else None)


def test_statistics_are_decoded_only_where_partitions_leave_the_answer_open(monkeypatch):
    decoded = []
    real = footprint.whole_add
    monkeypatch.setattr(footprint, "whole_add", lambda *args: decoded.append(args[1:]) or real(*args))
    monkeypatch.delattr(footprint, "decode_commit")
    state = ours(remove("old", 1), reads=["p = 1 AND a < 10"], files=[remove("old", 1)], level=SERIALIZABLE)
    assert run(state, commit(1, add("x", 2, a=(0, 5)), add("y", 3, a=(0, 5)))) is None
    assert decoded == []
    open_ones = [add("x", 2, a=(0, 5)), add("y", 1, a=(50, 60)), add("z", 1, a=(70, 80))]
    assert run(state, commit(2, *open_ones)) is None
    assert decoded == [("2.json", "y"), ("2.json", "z")]
    assert run(state, commit(3, add("y", 1, a=(5, 60)))) == ("files-added", 3)
    # Where the partition alone makes the predicate true, too.
    del decoded[:]
    whole = ours(remove("old", 1), reads=["p = 1"], files=[remove("old", 1)], level=SERIALIZABLE)
    assert run(whole, commit(4, add("y", 1, a=(50, 60)))) == ("files-added", 4)
    assert decoded == []


def test_statistics_of_many_files_are_decoded_together(monkeypatch):
    decoded = []
    real = footprint.decode_commit
    monkeypatch.setattr(footprint, "decode_commit", lambda *args: decoded.append(args[1]) or real(*args))
    state = ours(remove("old"), **READ_SMALL)
    assert run(state, commit(1, *(add(f"f{number}", a=(10, 20)) for number in range(20)))) is None
    assert decoded == ["1.json"]
    assert run(state, commit(2, *(add(f"f{number}", a=(29 - number, 50)) for number in range(21)))) is not None


def test_statistics_that_are_nonsense_clear_nothing():
    for text in ("", "{", "[]", '{"minValues":3}', '{"minValues":{"a":"x"},"maxValues":{"a":[]}}'):
        broken = Add(path="new", partition_values={}, size=1, modification_time=1, data_change=True, stats=text)
        assert run(ours(remove("old"), **READ_SMALL), commit(1, broken)) == ("files-added", 1)


def test_a_predicate_that_fails_for_a_partition_rules_nothing_out():
    state = ours(remove("old", 1), reads=["1 / p = 1"], files=[remove("old", 1)])
    assert run(state, commit(1, add("new", 0), blind=False)) == ("files-added", 1)
