"""``optimize.cluster()`` against other writers. On a clustered table as it is created by default (with deletion vectors
and row tracking) OPTIMIZE never conflicts, though it permutes rows: rows are followed by their ids.
"""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta import CommitProperties, DeltaTable, RowBudget, errors, verify, write_deltalake
from refdelta_storage import MemoryStore
from tiers import examples
from written_tables import actions

LEVELS = [None, "Serializable"]
TRACKING = "delta.enableRowTracking"


def rows(*ids, value=0):
    # The order of the values is not that of the ids, so that clustering by them permutes the rows.
    data = {"id": ids, "place": [i * 7 % 41 for i in ids], "v": [value] * len(ids)}
    return pa.table({name: pa.array(column, pa.int64()) for name, column in data.items()})


def made(path, **configuration):
    """Files of the rows 0 to 19, 20 to 39 and 40 to 44, of which row 39 is hidden by a vector."""
    write_deltalake(path, rows(*range(20)), cluster_by=["place", "id"], configuration=configuration)
    write_deltalake(path, rows(*range(20, 40)), mode="append")
    write_deltalake(path, rows(*range(40, 45)), mode="append")
    DeltaTable(path).delete("id = 39")
    return path


def held(path):
    return sorted((row["id"], row["v"]) for row in DeltaTable(path).to_pyarrow_table().to_pylist())


def row_ids(path):
    found = DeltaTable(path).to_pyarrow_table(columns=["id", "_metadata.row_id"]).to_pylist()
    return {row["id"]: row["_metadata.row_id"] for row in found}


def upsert(txn, *ids):
    merging = txn.merge(rows(*ids, value=9), "s.id = t.id")
    merging.when_matched_update_all().when_not_matched_insert_all().execute()


def replace_the_rest(txn):
    merging = txn.merge(rows(*range(20), value=5), "s.id = t.id")
    merging.when_matched_update_all().when_not_matched_by_source_delete().execute()


CHANGES = {
    "DELETE of rows": lambda txn: txn.delete("id IN (3, 25)"),
    "DELETE of a file": lambda txn: txn.delete("id < 20"),
    "DELETE of everything": lambda txn: txn.delete(),
    "UPDATE of rows": lambda txn: txn.update({"v": "9"}, predicate="id IN (3, 25)"),
    "UPDATE of a file": lambda txn: txn.update({"v": "9"}, predicate="id < 20"),
    "UPDATE of everything": lambda txn: txn.update({"v": "9"}),
    "UPDATE of the place": lambda txn: txn.update({"place": "40 - place"}, predicate="v = 0 AND id % 2 = 0"),
    "MERGE of rows": lambda txn: upsert(txn, 3, 25, 100),
    "MERGE of everything": lambda txn: upsert(txn, *range(60)),
    "MERGE that replaces": replace_the_rest,
}
OF_ALL_ROWS = {"DELETE of everything", "UPDATE of everything", "MERGE of everything", "MERGE that replaces"}
REARRANGING = {
    "cluster": lambda txn: txn.cluster(),
    "compact": lambda txn: txn.compact(),
    "purge": lambda txn: txn.reorg_purge(),
}


def one_after_the_other(path, *actions):
    """What is in the table where each of them begins when those before it have committed."""
    made(path)
    for action in actions:
        with DeltaTable(path).begin() as txn:
            action(txn)
            txn.commit()
    return held(path)


# --- never -------------------------------------------------------------------------------------------------------


@pytest.mark.tier("test")
@pytest.mark.sample(check=2)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("level", LEVELS)
def test_a_change_that_lost_to_a_clustering_follows_the_rows(tmp_path, change, level):
    path = made(tmp_path / "t")
    late, early = (DeltaTable(path).begin(isolation=level) for _ in range(2))
    CHANGES[change](late)
    early.cluster()
    first = early.commit().version
    result = late.commit()
    assert (result.rebased_over, result.fallbacks) == ((first,), ())
    assert held(path) == one_after_the_other(tmp_path / "o", CHANGES[change])
    assert not verify(path, sample=None).findings


@pytest.mark.tier("test")
@pytest.mark.sample(check=2)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("level", LEVELS)
def test_a_clustering_that_lost_to_a_change_hides_the_rows_that_are_gone(tmp_path, change, level):
    path = made(tmp_path / "t")
    before = row_ids(path)
    late, early = (DeltaTable(path).begin(isolation=level) for _ in range(2))
    late.cluster()
    CHANGES[change](early)
    first = early.commit().version
    result = late.commit()
    assert result.fallbacks == ()
    assert held(path) == one_after_the_other(tmp_path / "o", CHANGES[change])
    after = row_ids(path)
    assert {i: after[i] for i in before if i in after} == {i: before[i] for i in before if i in after}
    # Where the change has left no row of any file that was to be clustered, nothing is left to be done.
    left = change not in OF_ALL_ROWS
    assert result.version == (first + 1 if left else None)
    assert bool(result["numFilesAdded"]) == left
    assert not verify(path, sample=None).findings


@pytest.mark.sample(check=4)
@pytest.mark.parametrize(
    ("one", "other"), [(name, "cluster") for name in REARRANGING] + [("cluster", "compact"), ("cluster", "purge")]
)
@pytest.mark.parametrize("level", LEVELS)
def test_two_that_rearrange_the_same_files_both_commit(tmp_path, one, other, level):
    """The later one leaves out what the earlier one has taken."""
    path = made(tmp_path / "t")
    before, ids = held(path), row_ids(path)
    late, early = (DeltaTable(path).begin(isolation=level) for _ in range(2))
    REARRANGING[one](late)
    REARRANGING[other](early)
    early.commit()
    result = late.commit()
    assert (result.version, result["numFilesAdded"], result["numFilesRemoved"]) == (None, 0, 0)
    assert (held(path), row_ids(path)) == (before, ids)
    # The files that it wrote for nothing are gone.
    on_disk = {file.name for file in path.glob("*.parquet")}
    assert on_disk == {add["path"] for version in range(5) for add in actions(path, version, "add")}
    assert not verify(path, sample=None).findings


@pytest.mark.parametrize("level", LEVELS)
def test_an_append_and_a_clustering_both_commit(tmp_path, level):
    path = made(tmp_path / "t")
    before = held(path)
    for number in (100, 101):
        one, two = (DeltaTable(path).begin(isolation=level) for _ in range(2))
        one.cluster()
        two.append(rows(number))
        for txn in (one, two) if number == 100 else (two, one):
            assert txn.commit().version is not None
    assert held(path) == [*before, (100, 0), (101, 0)]


def test_no_budget_applies(tmp_path):
    """It bounds what may be looked at to decide; "never" is promised whatever that costs."""
    none = CommitProperties(row_budget=RowBudget(size=0, attempts=0, seconds=0))
    path = made(tmp_path / "t")
    delete, update = (DeltaTable(path).begin(commit_properties=none) for _ in range(2))
    delete.delete("id = 3")
    update.update({"v": "9"}, predicate="id = 4")
    DeltaTable(path).optimize.cluster()
    assert delete.commit().fallbacks == update.commit().fallbacks == ()
    clustering = DeltaTable(path).begin(commit_properties=none)
    clustering.cluster()
    DeltaTable(path).delete("id IN (4, 5, 25)")
    result = clustering.commit()
    assert (result.version, result.fallbacks) == (DeltaTable(path).version(), ())
    assert held(path) == [(i, 0) for i in range(45) if i not in (3, 4, 5, 25, 39)]


def test_the_same_row_conflicts_through_a_clustering(tmp_path):
    path = made(tmp_path / "t")
    first, second = (DeltaTable(path).begin() for _ in range(2))
    first.delete("id = 3")
    second.update({"v": "9"}, predicate="id IN (3, 4)")
    DeltaTable(path).optimize.cluster()
    first.commit()
    with pytest.raises(errors.ConcurrentDeleteReadException) as caught:
        second.commit()
    assert caught.value.conflict.rows == 1


_NUMBERS = itertools.count()
STATEMENTS = {
    "delete": lambda txn, i: txn.delete(f"id = {i}"),
    "update": lambda txn, i: txn.update({"v": "9", "place": "place + 1"}, predicate=f"id = {i}"),
    "merge": upsert,
    "append": lambda txn, i: txn.append(rows(1000 + i)),
}


@pytest.mark.tier("test")
@examples(20)
@given(
    st.dictionaries(st.integers(0, 50), st.sampled_from(sorted(STATEMENTS)), max_size=6),
    st.lists(st.sampled_from(sorted(REARRANGING)), min_size=1, max_size=3),
    st.sampled_from(LEVELS),
    st.data(),
)
def test_any_schedule_of_changes_of_different_rows_commits(statements, rearranging, level, data):
    """Each begins and commits at any point; none of them conflicts, and each has done its work once."""
    uri = MemoryStore(f"clustering-conflicts-{next(_NUMBERS)}").uri
    made(uri)
    work = [*statements.items(), *((None, name) for name in rearranging)]
    steps = data.draw(st.permutations([number for number in range(len(work)) for _ in range(2)]))
    begun = {}
    for number in steps:
        key, name = work[number]
        if number in begun:
            begun[number].commit()
            continue
        begun[number] = DeltaTable(uri).begin(isolation=level)
        if key is None:
            REARRANGING[name](begun[number])
        else:
            STATEMENTS[name](begun[number], key)
    expected = {i: 0 for i in range(45) if i != 39}
    for i, name in statements.items():
        if name == "delete":
            expected.pop(i, None)
        elif name == "append":
            expected[1000 + i] = 0
        elif name == "merge" or i in expected:
            expected[i] = 9
    assert held(uri) == sorted(expected.items())
    assert len(set(row_ids(uri).values())) == len(expected)
    assert not verify(uri, sample=None).findings


# --- where it can ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("configuration", [{TRACKING: "false"}, {"delta.enableDeletionVectors": "false"}])
def test_without_row_ids_or_vectors_it_can_conflict(tmp_path, configuration):
    path = made(tmp_path / "t", **configuration)
    for clusters_first in (True, False):
        change, clustering = (DeltaTable(path).begin() for _ in range(2))
        clustering.cluster()
        change.delete("id = 3" if clusters_first else "id = 4")
        first, second = (clustering, change) if clusters_first else (change, clustering)
        first.commit()
        with pytest.raises(errors.ConcurrentModificationError):
            second.commit()
        write_deltalake(path, rows(200 + clusters_first), mode="append")


def test_a_table_that_is_clustered_later_has_no_row_ids_until_they_are_asked_for(tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, rows(*range(20)), configuration={"delta.enableDeletionVectors": "true"})
    table = DeltaTable(path)
    table.alter.cluster_by("place")
    assert "rowTracking" not in table.protocol().writer_features
    assert TRACKING not in table.metadata().configuration
    late = DeltaTable(path).begin()
    late.cluster()
    table.delete("id = 3")
    with pytest.raises(errors.ConcurrentDeleteDeleteException):
        late.commit()

    table.alter.set_table_properties({TRACKING: "true"})
    late = DeltaTable(path).begin()
    late.cluster()
    table.delete("id = 4")
    assert late.commit().version == table.version() + 1
    assert held(path) == [(i, 0) for i in range(20) if i not in (3, 4)]
