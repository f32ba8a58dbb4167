"""Winners that change the order of rows, or do not say where these are, are followed by the rows' ids."""

from __future__ import annotations

import contextlib
import io
import itertools
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from refdelta import CommitProperties, DeltaTable, RowBudget, errors, write_deltalake
from refdelta.core.log.paths import commit_key
from refdelta.core.rows.relocation import LocatedRows, RelocationById, sizes
from refdelta.core.rows.sets import ALL, NONE, carry
from refdelta.verifier.run import verify_store
from refdelta_storage import MemoryStore
from tiers import examples

IDS = ["_metadata.row_id", "_metadata.row_commit_version"]


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array([-k for k in keys], pa.int64())})


def made(name: str, tracked: bool = True, **more: str) -> DeltaTable:
    configuration = {"delta.enableRowTracking": str(tracked).lower(), "delta.enableDeletionVectors": "true", **more}
    store = MemoryStore(name)
    DeltaTable.create(store.uri, rows(1).schema, configuration=configuration)
    for some in ((1, 2, 3), (4, 5), (6, 7, 8, 9)):
        write_deltalake(store.uri, rows(*some), mode="append")
    table = DeltaTable(store.uri)
    table.delete("k = 4")
    return table


def without_record(table: DeltaTable) -> None:
    """Make the newest version one of an engine that records no places."""
    key = commit_key(table.version())
    lines = [json.loads(line) for line in table.store.get(key).splitlines()]
    del lines[0]["commitInfo"]["rowPlaces"]
    table.store.put(key, "".join(json.dumps(line) + "\n" for line in lines).encode())


def sort(table: DeltaTable) -> None:
    table.optimize.z_order(["v"])


def compact(table: DeltaTable) -> None:
    table.optimize.compact()
    without_record(table)


def live(table: DeltaTable) -> dict[int, int]:
    table.update_incremental()
    found = table.to_pyarrow_table(columns=["k", "v"]).to_pylist()
    return {row["k"]: row["v"] for row in found}


START = {k: -k for k in (1, 2, 3, 5, 6, 7, 8, 9)}


@pytest.mark.tier("test")
@pytest.mark.parametrize("rearrange", [sort, compact])
def test_changes_that_lost_follow_the_rows(rearrange):
    table = made(f"follow-{rearrange.__name__}")
    delete, update, merge, append = (DeltaTable(table.store.uri).begin() for _ in range(4))
    delete.delete("k IN (2, 9)")
    update.update({"v": "v * 10"}, predicate="k IN (3, 6)")
    merge.merge(rows(5, 50), "s.k = t.k").when_matched_delete().when_not_matched_insert_all().execute()
    append.read(predicate="k = 7")
    append.append(rows(70))
    ids = {row["k"]: row[IDS[0]] for row in table.to_pyarrow_table(columns=["k", *IDS]).to_pylist()}
    rearrange(table)
    for transaction in (delete, update, merge, append):
        result = transaction.commit()
        assert result.fallbacks == ()
    assert live(table) == {1: -1, 3: -30, 6: -60, 7: -7, 8: -8, 50: -50, 70: -70}
    after = {row["k"]: row[IDS[0]] for row in table.to_pyarrow_table(columns=["k", *IDS]).to_pylist()}
    assert {k: after[k] for k in ids if k in after} == {k: ids[k] for k in ids if k in after}


def test_the_same_row_still_conflicts_through_a_sort():
    table = made("same")
    first, second = (DeltaTable(table.store.uri).begin() for _ in range(2))
    first.delete("k = 2")
    second.update({"v": "0"}, predicate="k = 2")
    sort(table)
    first.commit()
    with pytest.raises(errors.ConcurrentDeleteReadException) as caught:
        second.commit()
    assert caught.value.conflict.rows == 1
    assert live(table).keys() == START.keys() - {2}


def test_who_read_everything_goes_after_a_sort():
    table = made("everything")
    update = DeltaTable(table.store.uri).begin()
    update.update({"v": "1"})
    sort(table)
    update.commit()
    assert set(live(table).values()) == {1}
    assert len(live(table)) == len(START)


def test_a_sort_that_lost_hides_what_others_deleted():
    table = made("sort-lost")
    sorting = DeltaTable(table.store.uri).begin()
    sorting.z_order(["v"])
    table.delete("k = 7")
    table.update({"v": "5"}, predicate="k IN (1, 6)")
    result = sorting.commit()
    assert result.version == table.version() + 1
    assert result.fallbacks == ()
    assert live(table) == {1: 5, 2: -2, 3: -3, 5: -5, 6: 5, 8: -8, 9: -9}
    again = DeltaTable(table.store.uri).begin()
    again.z_order(["k"])
    sort(table)
    with pytest.raises(errors.ConcurrentDeleteDeleteException):
        again.commit()


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_sort_that_lost_a_whole_file_hides_its_rows(vectors):
    table = made(f"sort-lost-a-file-{vectors}")
    sorting = DeltaTable(table.store.uri).begin()
    sorting.z_order(["v"])
    table.delete("k = 8")
    table.delete("k IN (1, 2, 3)")
    if vectors == "false":  # a writer without vectors copies what it keeps of a file
        table.alter.set_table_properties({"delta.enableDeletionVectors": "false"})
        sorting.abort()
        sorting = DeltaTable(table.store.uri).begin()
        sorting.z_order(["v"])
        table.update({"v": "6"}, predicate="k = 6")
        with pytest.raises(errors.ConcurrentDeleteDeleteException):
            sorting.commit()
        return
    result = sorting.commit()
    assert result.version == table.version() + 1
    assert result.fallbacks == ()
    assert live(table) == {k: -k for k in (5, 6, 7, 9)}
    removed = [line for line in table.store.get(commit_key(table.version())).splitlines() if b'"remove"' in line]
    assert len(removed) == 2  # the third was removed already
    assert result["numFilesRemoved"] == 2
    assert table.history(1)[0]["operationMetrics"]["numRemovedFiles"] == "2"
    assert not verify_store(table.store).findings
    # The file comes back with its version, and has its rows itself.
    before, ids = table.version() - 2, table.to_pyarrow_table(columns=["k", *IDS]).sort_by("k")
    table.restore(before)
    assert live(table).keys() == {1, 2, 3, 5, 6, 7, 9}
    assert table.to_pyarrow_table(columns=["k", *IDS], filters="k > 3").sort_by("k") == ids
    assert not verify_store(table.store).findings


def test_a_sort_follows_what_others_moved_out_of_its_files():
    """Rows that a winner wrote anew, in place of a file that it removed, are the winner's."""
    table = made("sort-lost-rewritten")
    first, second = (DeltaTable(table.store.uri).begin() for _ in range(2))
    first.z_order(["v"])
    second.z_order(["v"])
    table.update({"v": "v * 10"}, predicate="k <= 5")
    write_deltalake(table, rows(100, 101), mode="overwrite", predicate="k >= 100")
    table.update_incremental()
    first.commit()
    expected = {k: -10 * k if k <= 5 else -k for k in START} | {100: -100, 101: -101}
    assert live(table) == expected
    assert second.commit().version is None  # by then it is sorted
    third = DeltaTable(table.store.uri).begin()
    third.z_order(["v"])
    table.delete()
    with pytest.raises(errors.ConcurrentDeleteDeleteException):
        third.commit()
    assert live(table) == {}


def test_without_row_ids_a_sort_is_a_removal():
    table = made("untracked", tracked=False)
    delete = DeltaTable(table.store.uri).begin()
    delete.delete("k = 2")
    sort(table)
    with pytest.raises(errors.ConcurrentDeleteReadException) as caught:
        delete.commit()
    assert "does not say where the rows are" in caught.value.conflict.fallbacks[0]


def test_beyond_the_budget_a_sort_is_a_removal():
    table = made("budget")
    properties = CommitProperties(row_budget=RowBudget(size=100))
    delete = DeltaTable(table.store.uri).begin(commit_properties=properties)
    delete.delete("k = 2")
    sort(table)
    with pytest.raises(errors.ConcurrentDeleteReadException) as caught:
        delete.commit()
    assert "budget of 100 bytes" in " ".join(caught.value.conflict.fallbacks)


def test_files_that_are_gone_cannot_be_followed():
    table = made("gone")
    delete = DeltaTable(table.store.uri).begin()
    delete.delete("k = 2")
    sort(table)
    table.update_incremental()
    table.store.delete(table.files().column("path").to_pylist())
    with pytest.raises(errors.ConcurrentDeleteReadException) as caught:
        delete.commit()
    assert "cannot be looked for" in " ".join(caught.value.conflict.fallbacks)


def test_rows_that_lost_their_ids_are_not_followed():
    """Another engine compacted, and kept no ids: the rows of its files are new ones as far as anybody can tell."""
    table = made("lost-ids")
    delete = DeltaTable(table.store.uri).begin()
    delete.delete("k = 2")
    names = dict(table.metadata().configuration)
    compact(table)
    key = commit_key(table.version())
    lines = [json.loads(line) for line in table.store.get(key).splitlines()]
    (add,) = [line["add"] for line in lines if "add" in line]
    bare = rows(*sorted(START))
    out = io.BytesIO()
    pq.write_table(bare, out)
    table.store.put(add["path"], out.getvalue())
    add["size"] = len(out.getvalue())
    table.store.put(key, "".join(json.dumps(line) + "\n" for line in lines).encode())
    assert names == table.metadata().configuration
    with pytest.raises(errors.ConcurrentDeleteReadException) as caught:
        delete.commit()
    assert "are in none of the new files" in " ".join(caught.value.conflict.fallbacks)


STATEMENTS = {
    "delete": lambda txn, k: txn.delete(f"k = {k}"),
    "update": lambda txn, k: txn.update({"v": "v - 1"}, predicate=f"k = {k}"),
    "delete some": lambda txn, k: txn.delete(f"k % 3 = {k % 3}"),
    "merge": lambda txn, k: (
        txn.merge(rows(k, k + 1), "s.k = t.k")
        .when_matched_update({"v": "t.v - 1"})
        .when_not_matched_insert_all()
        .execute()
    ),
}


_NUMBERS = itertools.count()


@pytest.mark.tier("test")
@examples(15)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(STATEMENTS)), st.integers(1, 9)), min_size=1, max_size=5),
    st.lists(st.sampled_from([sort, compact]), min_size=1, max_size=2),
    st.data(),
)
def test_what_commits_behind_sorts_is_what_would_have_been_done_there(statements, rearranging, data):
    """Each statement is one over its own rows: those that commit have done their work once, in the order of the log."""
    table = made(f"histories-{next(_NUMBERS)}")
    begun = []
    for name, k in statements:
        begun.append((name, k, DeltaTable(table.store.uri).begin()))
        STATEMENTS[name](begun[-1][2], k)
    expected = dict(START)
    order = data.draw(st.permutations([*begun, *rearranging]))
    for one in order:
        if callable(one):
            table.update_incremental()
            with contextlib.suppress(KeyError):  # nothing to compact
                one(table)
            continue
        name, k, transaction = one
        try:
            result = transaction.commit()
        except errors.ConcurrentModificationError:
            continue
        if result.version is None:  # it found no rows where it read, and is in no log: it comes before all winners
            continue
        if name == "delete":
            expected.pop(k, None)
        elif name == "update" and k in expected:
            expected[k] -= 1
        elif name == "delete some":
            expected = {key: v for key, v in expected.items() if key % 3 != k % 3}
        elif name == "merge":
            for key in (k, k + 1):
                expected[key] = expected[key] - 1 if key in expected else -key
        assert live(table) == expected, order
    assert live(table) == expected
    ids = table.to_pyarrow_table(columns=["_metadata.row_id"]).column(0).to_pylist()
    assert len(set(ids)) == len(ids) == len(expected)


@given(st.permutations(range(8)), st.sets(st.integers(0, 9)))
def test_rows_are_carried_one_by_one(order, wanted):
    at, to = np.arange(8, dtype=np.uint64), np.array(order, np.uint64)
    part = LocatedRows("o", at.tobytes(), to.tobytes(), 8)
    found, lost = RelocationById(None, (), parts=(part,)).follow(BitMap64(wanted), NONE)
    assert found.get("o", BitMap64()) == BitMap64(order[i] for i in wanted if i < 8)
    assert lost == len(wanted - set(range(8)))
    assert carry(ALL, part.at, part.to) == BitMap64(range(8))
    assert sizes({"i": RelocationById(None, (), parts=(part,))}) == {"o": 8}
