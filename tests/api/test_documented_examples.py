"""The examples of the published documentation of isolation levels and write conflicts, with real rows."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake

LEVELS = ("WriteSerializable", "Serializable")
DAYS = [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]


def rows(table):
    return sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: tuple(map(str, row.values())))


@pytest.mark.parametrize("level", LEVELS)
def test_a_delete_that_began_before_an_insert(tmp_path, level):
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"id": [1, 2]}), configuration={"delta.isolationLevel": level})
    delete = DeltaTable(path).begin()
    delete.delete("id > 0")
    insert = DeltaTable(path).begin()
    insert.append(pa.table({"id": [3]}))
    assert insert.commit().version == 1
    assert rows(DeltaTable(path, version=1)) == [{"id": 1}, {"id": 2}, {"id": 3}]  # what a reader saw then
    if level == "Serializable":
        with pytest.raises(errors.ConcurrentAppendException) as caught:
            delete.commit()
        assert caught.value.conflict.version == 1
        assert len(rows(DeltaTable(path))) == 3
    else:
        result = delete.commit()
        assert (result.version, result.rebased_over) == (2, (1,))
        assert rows(DeltaTable(path)) == [{"id": 3}]


@pytest.mark.parametrize("level", LEVELS)
def test_merges_whose_conditions_name_a_date_and_a_country(tmp_path, level):
    path = tmp_path / "t"
    places = pa.table(
        {"user": [1, 1, 2], "date": [DAYS[0], DAYS[1], DAYS[0]], "country": ["NO", "SE", "SE"], "n": [0, 0, 0]}
    )
    write_deltalake(path, places, partition_by=["date", "country"], configuration={"delta.isolationLevel": level})

    def merge(txn, user, day, country):
        source = pa.table({"user": [user, 9], "date": [day, day], "country": [country] * 2, "n": [1, 1]})
        condition = f"s.user = t.user AND t.date = DATE '{day}' AND t.country = '{country}'"
        clauses = txn.merge(source, condition, source_alias="s", target_alias="t")
        clauses.when_matched_update_all().when_not_matched_insert_all().execute()

    one, other = DeltaTable(path).begin(), DeltaTable(path).begin()
    merge(one, 1, DAYS[0], "NO")
    merge(other, 1, DAYS[1], "SE")
    assert one.commit().version == 1
    assert other.commit().rebased_over == (1,)
    found = {(r["user"], r["date"], r["country"]): r["n"] for r in rows(DeltaTable(path))}
    touched = {(1, DAYS[0], "NO"): 1, (9, DAYS[0], "NO"): 1, (1, DAYS[1], "SE"): 1, (9, DAYS[1], "SE"): 1}
    assert found == {**touched, (2, DAYS[0], "SE"): 0}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("partition_by", [None, ["date"]])
def test_an_update_and_a_delete_on_either_side_of_a_date(tmp_path, level, partition_by):
    path = tmp_path / "t"
    data = pa.table({"id": [1, 2], "date": DAYS})
    write_deltalake(path, data, partition_by=partition_by, configuration={"delta.isolationLevel": level})
    update, delete = DeltaTable(path).begin(), DeltaTable(path).begin()
    update.update(updates={"id": "10"}, predicate=f"date < DATE '{DAYS[1]}'")
    delete.delete(f"date >= DATE '{DAYS[1]}'")
    assert update.commit().version == 1
    if partition_by:
        assert delete.commit().rebased_over == (1,)
    else:
        # One file holds both rows, and files are rewritten.
        with pytest.raises(errors.ConcurrentModificationError):
            delete.commit()
        DeltaTable(path).delete(f"date >= DATE '{DAYS[1]}'")
    assert rows(DeltaTable(path)) == [{"id": 10, "date": DAYS[0]}]
