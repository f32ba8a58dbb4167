"""Rows of other writers' new files, looked at through the public interface: whose predicate are they for?"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyroaring import BitMap64

from refdelta import CommitProperties, DeltaTable, RowBudget, errors, write_deltalake
from refdelta.core.conflicts.state import AddedRows
from refdelta.core.log.actions import Add
from refdelta.core.rows.deletion_vector import locate, parse_bitmap
from refdelta.engine.log.state import to_adds
from refdelta.expressions.predicate import TRUE
from refdelta.transaction.row_matching import RowMatching, only

PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.isolationLevel": "Serializable"}


def table(path, rows=None, **options) -> DeltaTable:
    rows = rows or {"a": list(range(10)), "b": [0] * 10}
    write_deltalake(path, pa.table(rows), configuration=PROPERTIES, **options)
    return DeltaTable(path)


def insert(path, **columns) -> None:
    write_deltalake(path, pa.table(columns), mode="append")


def test_an_insert_is_in_the_way_by_its_rows_not_by_its_statistics(tmp_path):
    for value, conflict in ((3, False), (4, True)):
        path = tmp_path / str(value)
        table(path)
        late = DeltaTable(path).begin()
        late.delete("a = 4")
        # Statistics say that 4 may be among them.
        insert(path, a=[1, value, 9], b=[1, 1, 1])
        if conflict:
            with pytest.raises(errors.ConcurrentAppendException) as caught:
                late.commit()
            assert caught.value.conflict.fallbacks == ()
        else:
            assert late.commit().rebased_over == (1,)
            assert DeltaTable(path).count() == 12


def test_a_row_that_is_hidden_already_is_not_in_the_way(tmp_path):
    table(tmp_path)
    late = DeltaTable(tmp_path).begin()
    late.update({"b": "5"}, predicate="a = 20")
    late.append(late.read(predicate="a = 20 OR a = 1"))
    insert(tmp_path, a=[20, 40], b=[1, 1])
    with DeltaTable(tmp_path).begin() as other:
        other.delete("a = 20")
        other.commit()
    with pytest.raises(errors.ConcurrentAppendException):
        late.commit()
    fresh = DeltaTable(tmp_path).begin()
    fresh.append(fresh.read(predicate="a = 20 OR a = 1"))
    with DeltaTable(tmp_path).begin() as other:
        other.update({"b": "7"}, predicate="a = 40")
        other.commit()
    assert fresh.commit().version == 4


def test_a_merge_asks_for_the_keys_of_its_source(tmp_path):
    for key, conflict in ((5, False), (6, True)):
        path = tmp_path / str(key)
        table(path, {"a": [0, 2, 8], "b": [0, 0, 0]})
        late = DeltaTable(path).begin()
        source = pa.table({"a": [2, 6, 8], "b": [1, 1, 1]})
        merge = late.merge(source, "s.a = t.a").when_matched_update_all().when_not_matched_insert_all()
        merge.execute()
        # Between the smallest and the largest key of the source.
        insert(path, a=[key], b=[9])
        if conflict:
            with pytest.raises(errors.ConcurrentAppendException):
                late.commit()
        else:
            late.commit()
            assert sorted(DeltaTable(path).to_pyarrow_table()["a"].to_pylist()) == [0, 2, 5, 6, 8]


def test_a_predicate_on_a_field_of_a_struct_is_decided_by_files_and_the_error_says_so(tmp_path):
    table(tmp_path, {"a": [1, 2], "s": [{"x": 1}, {"x": 5}]})
    late = DeltaTable(tmp_path).begin()
    late.delete("s.x = 5")
    insert(tmp_path, a=[1, 2], s=[{"x": 4}, {"x": 6}])
    with pytest.raises(errors.ConcurrentAppendException) as caught:
        late.commit()
    (reason,) = caught.value.conflict.fallbacks
    assert "s.x" in reason
    assert reason in str(caught.value)


def test_the_budget_is_the_callers(tmp_path):
    for size, conflict in ((10**6, False), (100, True)):
        path = tmp_path / str(size)
        table(path)
        late = DeltaTable(path).begin(commit_properties=CommitProperties(row_budget=RowBudget(size=size)))
        late.delete("a = 4")
        insert(path, a=[1, 9], b=[1, 1])
        if conflict:
            with pytest.raises(errors.ConcurrentAppendException, match="beyond the budget of 100 bytes"):
                late.commit()
        else:
            late.commit()


def test_rows_are_compared_only_where_that_is_wanted(tmp_path):
    cases = ((None, None, False), (False, None, True), (None, ["b"], True), (True, ["b"], False))
    for wanted, partitions, conflict in cases:
        path = tmp_path / f"{wanted}-{partitions}"
        table(path, partition_by=partitions)
        late, other = (DeltaTable(path).begin(commit_properties=CommitProperties(row_level=wanted)) for _ in range(2))
        late.delete("a = 4")
        other.delete("a = 5")
        other.commit()
        if conflict:
            with pytest.raises(errors.ConcurrentDeleteReadException, match="row_level"):
                late.commit()
        else:
            late.commit()
            assert DeltaTable(path).count() == 8


def test_files_that_cannot_be_looked_at_are_in_the_way(tmp_path):
    table(tmp_path)
    late = DeltaTable(tmp_path).begin()
    late.delete("a = 4")
    before = {*tmp_path.glob("*.parquet")}
    insert(tmp_path, a=[1, 9], b=[1, 1])
    (new,) = {*tmp_path.glob("*.parquet")} - before
    new.write_bytes(b"not Parquet")
    with pytest.raises(errors.ConcurrentAppendException, match="cannot be looked at"):
        late.commit()


@pytest.mark.parametrize("claim", [2**31 + 1, 2**62, 2**65, -1])
def test_a_number_of_rows_that_no_file_has_makes_no_bitmap(claim):
    file = Add(
        path="f", partition_values={}, size=1, modification_time=0, data_change=True, stats=f'{{"numRecords":{claim}}}'
    )
    assert only(AddedRows(file, BitMap64([1]))) is file


def test_some_rows_of_a_file_are_asked_by_a_vector_that_hides_the_others():
    file = Add(path="f", partition_values={}, size=1, modification_time=0, data_change=True, stats='{"numRecords":4}')
    assert only(AddedRows(file)) is file
    vector = only(AddedRows(file, BitMap64([1, 3]))).deletion_vector
    assert list(parse_bitmap(locate(vector).data, file="f")) == [0, 2]


def test_a_predicate_that_fails_over_a_new_row_matches_it(tmp_path):
    table(tmp_path)
    late = DeltaTable(tmp_path).begin()
    late.delete("100 / (a + 1) = 50")
    insert(tmp_path, a=[-1, 9], b=[1, 1])
    with pytest.raises(errors.ConcurrentAppendException):
        late.commit()


def test_the_finer_test_sees_all_rows_that_moved_to_a_file_at_once(tmp_path):
    snapshot = table(tmp_path)._handle.snapshot
    (add,) = to_adds(snapshot.files)
    asked = []

    def odd(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Array]:
        for batch in batches:
            asked.append(batch.column("a").to_pylist())
            yield pc.indices_nonzero(pc.bit_wise_and(batch.column("a"), 1))

    matching = RowMatching()
    matching.add(TRUE, odd)
    for rows, confirmed in (([1, 3, 7], True), ([1, 4], False)):
        moved = [AddedRows(add, BitMap64(rows))]
        assert matching.confirms(snapshot, moved, trusted=False) == confirmed
    assert asked == [[1, 3, 7], [1, 4]]
