"""``refdelta.rowLevelConcurrency``: one property of the table for every statement of every writer."""

from __future__ import annotations

import pyarrow as pa
import pytest

from refdelta import CommitProperties, DeltaTable, errors, write_deltalake

VECTORS = {"delta.enableDeletionVectors": "true"}
PROPERTY = "refdelta.rowLevelConcurrency"


def new_table(path, *, partitioned=True, **configuration):
    rows = pa.table({"id": range(100), "v": [0] * 100, "d": ["a"] * 100})
    write_deltalake(path, rows, partition_by=["d"] if partitioned else None, configuration={**VECTORS, **configuration})
    return DeltaTable(path)


def both(table, row=1, **options):
    """Two statements on different rows of one file; the error of the second, or None."""
    first, second = table.begin(**options), table.begin(**options)
    first.delete(f"id = {row}")
    second.update({"v": "5"}, predicate=f"id = {row + 50}")
    first.commit()
    try:
        second.commit()
    except errors.ConcurrentModificationError as error:
        return error
    return None


@pytest.mark.parametrize("partitioned", [True, False])
@pytest.mark.parametrize("said", [None, "true", "false"])
@pytest.mark.parametrize("asked", [None, True, False])
def test_the_commit_decides_then_the_table_then_its_partitioning(tmp_path, partitioned, said, asked):
    table = new_table(tmp_path / "t", partitioned=partitioned, **({} if said is None else {PROPERTY: said}))
    by_rows = asked if asked is not None else (said == "true" if said else not partitioned)
    error = both(table, commit_properties=CommitProperties(row_level=asked))
    assert (error is None) == by_rows
    if error is not None:
        assert error.conflict.fallbacks
        assert PROPERTY in str(error)


def test_it_is_set_and_unset_by_alter_and_shown(tmp_path):
    table = new_table(tmp_path / "t")
    assert both(table) is not None
    table.alter.set_table_properties({PROPERTY: "true"})
    assert table.detail()["properties"][PROPERTY] == "true"
    assert both(DeltaTable(tmp_path / "t"), row=2) is None
    table.alter.unset_table_properties([PROPERTY])
    assert both(DeltaTable(tmp_path / "t"), row=3) is not None
    with pytest.raises(errors.InvalidArgumentError, match=PROPERTY):
        table.alter.set_table_properties({PROPERTY: "perhaps"})


def test_a_new_file_that_should_have_been_read_says_why_files_decided(tmp_path):
    table = new_table(tmp_path / "t")
    first, second = table.begin(), table.begin()
    news = pa.table({"id": [1, 200], "v": [1, 1], "d": ["a", "a"]})
    first.merge(news, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()
    second.update({"v": "5"}, predicate="id = 50")
    first.commit()
    with pytest.raises(errors.ConcurrentModificationError, match=PROPERTY) as error:
        second.commit()
    assert error.value.conflict.fallbacks


def test_without_deletion_vectors_rows_could_not_have_decided(tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"id": range(100), "v": [0] * 100}), configuration={PROPERTY: "true"})
    error = both(DeltaTable(tmp_path / "t"))
    assert error is not None
    assert error.conflict.fallbacks == ()
