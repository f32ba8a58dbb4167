"""Compactions against other writers: on a table with deletion vectors "OPTIMIZE cannot conflict", whoever is first, and
the rows are exactly those that the two leave behind one after the other.
"""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta import DeltaTable, write_deltalake
from refdelta.errors import ConcurrentDeleteDeleteException, ConcurrentDeleteReadException, ConcurrentModificationError
from tiers import examples

VECTORS = {"delta.enableDeletionVectors": "true"}
LEVELS = [None, "Serializable"]


def rows(*ids, value=0, p=None):
    columns = {"id": pa.array(ids, pa.int64()), "v": pa.array([value] * len(ids), pa.int64())}
    return pa.table(columns if p is None else {**columns, "p": [p] * len(ids)})


def held(path):
    found = DeltaTable(path).to_pyarrow_table().select(["id", "v"]).to_pylist()
    return sorted((row["id"], row["v"]) for row in found)


def made(path, *, files=4, configuration=None, partition=None):
    """Files of five rows: 0 to 4, 5 to 9, ..., all with v = 0."""
    for i in range(files):
        data = rows(*range(5 * i, 5 * i + 5), p=None if partition is None else partition(i))
        write_deltalake(
            path,
            data,
            mode="append",
            partition_by=None if partition is None else ["p"],
            configuration=configuration if i == 0 else None,
        )
    return path


@pytest.fixture
def path(tmp_path):
    """Four files of five rows, of which row 19 is deleted by a vector."""
    where = made(tmp_path / "t", configuration=VECTORS)
    DeltaTable(where).delete("id = 19")
    return where


BEFORE = [(i, 0) for i in range(19)]


def data_files(path):
    return {file.name for file in path.rglob("*.parquet") if "_delta_log" not in file.parts}


# Each changes the rows 3 and 7, which are in two files.


def delete(txn):
    txn.delete("id IN (3, 7)")


def update(txn):
    txn.update({"v": "9"}, predicate="id IN (3, 7)")


def merge(txn):
    merging = txn.merge(rows(3, 7, 50, value=9), "s.id = t.id")
    merging.when_matched_update_all().when_not_matched_insert_all().execute()


def overwrite_some(txn):
    txn.overwrite(rows(3, 7, value=9), "id IN (3, 7)")


def after(change):
    kept = [row for row in BEFORE if row[0] not in (3, 7)]
    return sorted({delete: kept, merge: [*kept, (3, 9), (7, 9), (50, 9)]}.get(change, [*kept, (3, 9), (7, 9)]))


CHANGES = [delete, update, merge, overwrite_some]


def compact(txn):
    txn.compact()


def purge(txn):
    txn.reorg_purge()


def z_order(txn):
    txn.z_order(["v", "id"])


# --- never -------------------------------------------------------------------------------------------------------


@pytest.mark.sample(check=6)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("rearrange", [compact, purge])
@pytest.mark.parametrize("level", LEVELS)
def test_a_change_that_lost_to_a_compaction_follows_the_rows(path, change, rearrange, level):
    table = DeltaTable(path)
    late, early = table.begin(isolation=level), table.begin()
    change(late)
    rearrange(early)
    first = early.commit().version
    assert late.commit().rebased_over == (first,)
    assert held(path) == after(change)
    assert DeltaTable(path).count() == len(after(change))


@pytest.mark.sample(check=6)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("rearrange", [compact, purge])
@pytest.mark.parametrize("level", LEVELS)
def test_a_compaction_that_lost_to_a_change_takes_its_deletions_along(path, change, rearrange, level):
    DeltaTable(path).delete("id = 4")
    table = DeltaTable(path)
    late, early = table.begin(), table.begin(isolation=level)
    rearrange(late)
    change(early)
    first = early.commit().version
    result = late.commit()
    assert result.version == first + 1
    assert held(path) == [row for row in after(change) if row[0] != 4]
    assert result["numFilesRemoved"] == (4 if rearrange is compact else 2)
    assert DeltaTable(path).count() == len(held(path))


@pytest.mark.sample(check=3)
@pytest.mark.parametrize("rearrange", [compact, purge, z_order])
@pytest.mark.parametrize("level", LEVELS)
def test_an_append_is_never_in_the_way(path, rearrange, level):
    table = DeltaTable(path)
    for late_is_append in (True, False):
        one, two = table.begin(isolation=level), table.begin(isolation=level)
        rearrange(one)
        two.append(rows(100 + late_is_append))
        for txn in (one, two) if late_is_append else (two, one):
            txn.commit()
        DeltaTable(path).delete("id = 0")
    assert held(path) == sorted([*BEFORE[1:], (100, 0), (101, 0)])


def test_a_transaction_that_only_read_and_appends(path):
    table = DeltaTable(path)
    for level in LEVELS:
        reader, compaction = table.begin(isolation=level), table.begin()
        total = sum(reader.read(predicate="id < 10")["id"].to_pylist())
        reader.append(rows(total))
        compaction.compact()
        compaction.commit()
        reader.commit()
        write_deltalake(path, rows(1000), mode="append")
    assert [row[0] for row in held(path) if row[0] > 19] == [45, 45, 1000, 1000]


@pytest.mark.tier("test")
def test_many_in_a_row(path):
    """A DELETE that loses to compactions, deletes and updates by turns, each of them late itself."""
    table = DeltaTable(path)
    late = table.begin()
    late.delete("id IN (0, 6, 18)")
    for number in (1, 2, 3):
        compaction, deletion = table.begin(), table.begin()
        compaction.compact()
        deletion.delete(f"id = {number}")
        deletion.commit()
        compaction.commit()
        DeltaTable(path).update({"v": "v + 1"}, predicate="id >= 10 AND id < 15")
        write_deltalake(path, rows(100 + number), mode="append")
    result = late.commit()
    assert len(result.rebased_over) == 12
    gone = {0, 1, 2, 3, 6, 18}
    kept = [(i, 3 if 10 <= i < 15 else 0) for i in range(19) if i not in gone]
    assert held(path) == [*kept, (101, 0), (102, 0), (103, 0)]
    assert DeltaTable(path).count() == len(held(path))


@pytest.mark.tier("test")
def test_a_compaction_that_loses_to_many(path):
    table = DeltaTable(path)
    late = table.begin()
    late.compact()
    for number in range(6):
        DeltaTable(path).delete(f"id = {3 * number}")
    DeltaTable(path).update({"v": "7"}, predicate="id = 1")
    result = late.commit()
    assert len(result.rebased_over) == 7
    gone = {0, 3, 6, 9, 12, 15}
    assert held(path) == [(i, 7 if i == 1 else 0) for i in range(19) if i not in gone]
    assert result["numFilesRemoved"] == 4
    assert DeltaTable(path).files().num_rows == 2


def test_a_row_that_was_matched_and_left_alone_stays(path):
    """Read and deleted are two things: a MERGE that matched the rows 3 and 8, and deletes the first of them only."""
    table = DeltaTable(path)
    late = table.begin()
    merging = late.merge(rows(3, 8, value=5), "s.id = t.id")
    merging.when_matched_delete("t.id = 3").execute()
    DeltaTable(path).optimize.compact()
    DeltaTable(path).delete("id = 12")
    write_deltalake(path, rows(60), mode="append")
    DeltaTable(path).optimize.compact()
    late.commit()
    assert held(path) == sorted([(i, 0) for i in range(19) if i not in (3, 12)] + [(60, 0)])


def test_the_same_row_still_conflicts_through_a_compaction(path):
    table = DeltaTable(path)
    late = table.begin()
    late.update({"v": "1"}, predicate="id = 8")
    DeltaTable(path).optimize.compact()
    DeltaTable(path).delete("id = 8")
    with pytest.raises(ConcurrentModificationError):
        late.commit()
    assert held(path) == [row for row in BEFORE if row[0] != 8]


# --- two compactions ---------------------------------------------------------------------------------------------


def test_of_two_compactions_of_the_same_files_the_second_has_nothing_left_to_do(path):
    table = DeltaTable(path)
    one, two = table.begin(), table.begin()
    one.compact()
    two.compact()
    version = one.commit().version
    before = data_files(path)
    result = two.commit()
    assert (result.version, result["numFilesRemoved"], result["numFilesAdded"]) == (None, 0, 0)
    assert DeltaTable(path).version() == version
    assert held(path) == BEFORE
    # What it wrote is gone again.
    assert len(before - data_files(path)) == 1


def test_the_loser_keeps_the_groups_that_are_whole(tmp_path):
    path = made(tmp_path / "t", files=6, configuration=VECTORS, partition=lambda i: "ab"[i % 2])
    table = DeltaTable(path)
    one, two = table.begin(), table.begin()
    one.compact("p = 'a'")
    two.compact()
    one.commit()
    result = two.commit()
    assert (result.version, result["numFilesRemoved"], result["partitionsOptimized"]) == (7, 3, 1)
    assert DeltaTable(path).history(1)[0]["operationMetrics"]["numRemovedFiles"] == "3"
    assert DeltaTable(path).files().num_rows == 2
    assert held(path) == [(i, 0) for i in range(30)]


def test_a_group_whose_file_was_overwritten_is_dropped_and_the_others_commit(tmp_path):
    path = made(tmp_path / "t", files=6, configuration=VECTORS, partition=lambda i: "ab"[i % 2])
    table = DeltaTable(path)
    compaction = table.begin()
    compaction.compact()
    write_deltalake(path, rows(77, p="a"), mode="overwrite", predicate="p = 'a'")
    compaction.commit()
    assert held(path) == sorted([(i, 0) for i in range(30) if i // 5 % 2] + [(77, 0)])


# --- ZORDER, and tables without vectors --------------------------------------------------------------------------


@pytest.mark.sample(check=2)
@pytest.mark.parametrize("change", CHANGES)
def test_sorting_may_conflict(path, change):
    table = DeltaTable(path)
    late, early = table.begin(), table.begin()
    change(late)
    z_order(early)
    early.commit()
    with pytest.raises((ConcurrentDeleteReadException, ConcurrentDeleteDeleteException)):
        late.commit()
    assert held(path) == BEFORE

    late, early = DeltaTable(path).begin(), DeltaTable(path).begin()
    z_order(late)
    change(early)
    early.commit()
    files = data_files(path)
    with pytest.raises(ConcurrentModificationError):
        late.commit()
    assert held(path) == after(change)
    assert len(files - data_files(path)) == 1


@pytest.mark.sample(check=2)
@pytest.mark.parametrize("rearrange", [compact, z_order])
@pytest.mark.parametrize("compaction_first", [True, False])
def test_without_vectors_files_decide(tmp_path, rearrange, compaction_first):
    path = made(tmp_path / "t")
    table = DeltaTable(path)
    compaction, change = table.begin(), table.begin()
    rearrange(compaction)
    change.delete("id = 3")
    first, second = (compaction, change) if compaction_first else (change, compaction)
    first.commit()
    with pytest.raises((ConcurrentDeleteReadException, ConcurrentDeleteDeleteException)):
        second.commit()
    assert len(held(path)) == 20 - (not compaction_first)


def test_without_vectors_two_compactions_of_the_same_files_conflict(tmp_path):
    path = made(tmp_path / "t")
    table = DeltaTable(path)
    one, two = table.begin(), table.begin()
    one.compact()
    two.compact()
    one.commit()
    with pytest.raises(ConcurrentDeleteDeleteException):
        two.commit()
    assert held(path) == [(i, 0) for i in range(20)]


def test_without_vectors_other_files_are_no_matter(tmp_path):
    path = made(tmp_path / "t", partition=lambda i: "ab"[i % 2])
    table = DeltaTable(path)
    compaction, change = table.begin(), table.begin()
    compaction.compact("p = 'a'")
    change.delete("p = 'b' AND id = 7")
    change.commit()
    compaction.commit()
    assert held(path) == [(i, 0) for i in range(20) if i != 7]


@pytest.mark.tier("test")
def test_partitioned_with_vectors_compaction_never_conflicts(tmp_path):
    for change in (delete, update, merge_by_partition):
        for compaction_first in (True, False):
            path = made(
                tmp_path / f"{change.__name__}{compaction_first}", configuration=VECTORS, partition=lambda _: "a"
            )
            table = DeltaTable(path)
            compaction, dml = table.begin(), table.begin()
            compaction.compact()
            change(dml)
            for txn in (compaction, dml) if compaction_first else (dml, compaction):
                txn.commit()
            untouched = [(i, 0) for i in range(20) if i not in (3, 7)]
            assert held(path) == sorted(untouched + ([] if change is delete else [(3, 9), (7, 9)]))


def merge_by_partition(txn):
    txn.merge(rows(3, 7, value=9, p="a"), "s.id = t.id AND s.p = t.p").when_matched_update_all().execute()


# --- any schedule ------------------------------------------------------------------------------------------------

# Each transaction: what it does, to which row in what is its own share, and whether it is committed before the next
# one begins.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["delete", "update", "compact", "purge", "append"]), st.integers(0, 39), st.integers(0, 4)
    ),
    min_size=2,
    max_size=8,
)


@pytest.mark.tier("test")
@examples(25)
@given(steps=STEPS)
def test_any_schedule_of_changes_of_different_rows(fresh_path, steps):
    path = made(fresh_path(), files=4, configuration=VECTORS)
    model = dict.fromkeys(range(20), 0)
    waiting = []
    taken = set()

    def finish(most):
        while len(waiting) > most:
            waiting.pop(0).commit()

    for number, (what, key, most) in enumerate(steps):
        txn = DeltaTable(path).begin()
        row = key % 20
        if what in ("compact", "purge"):
            {"compact": compact, "purge": purge}[what](txn)
        elif what == "append" or row in taken:
            txn.append(rows(100 + number))
            model[100 + number] = 0
        elif what == "delete":
            txn.delete(f"id = {row}")
            taken.add(row)
            model.pop(row)
        else:
            txn.update({"v": "1"}, predicate=f"id = {row}")
            taken.add(row)
            model[row] = 1
        waiting.append(txn)
        finish(most)
    finish(0)
    assert held(path) == sorted(model.items())
    assert DeltaTable(path).count() == len(model)
    DeltaTable(path).reorg_purge()
    assert held(path) == sorted(model.items())


@pytest.mark.tier("test")
def test_writers_and_a_compaction_that_never_rests(tmp_path):
    path = made(tmp_path / "t", files=8, configuration=VECTORS)
    over, troubles = threading.Event(), []

    def change(share):
        try:
            for number in range(share, 40, 4):
                if number % 3:
                    DeltaTable(path).delete(f"id = {number}")
                else:
                    DeltaTable(path).update({"v": "1"}, predicate=f"id = {number}")
        except Exception as error:
            troubles.append(error)

    def compact_on_and_on():
        try:
            while not over.is_set():
                DeltaTable(path).optimize.compact()
        except Exception as error:
            troubles.append(error)

    writers = [threading.Thread(target=change, args=(share,)) for share in range(4)]
    compaction = threading.Thread(target=compact_on_and_on)
    for thread in (*writers, compaction):
        thread.start()
    for thread in writers:
        thread.join()
    over.set()
    compaction.join()
    assert troubles == []
    assert held(path) == [(number, 1) for number in range(0, 40, 3)]
