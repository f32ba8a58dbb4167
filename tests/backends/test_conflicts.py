"""Two handles on one table: what commits together, and each conflict, the same on every backend."""

from __future__ import annotations

import pyarrow as pa
import pytest

from backends.tables import VECTORS, files, ids, numbers, objects, opened, write
from refdelta import AppTransaction, CommitProperties, errors

SERIALIZABLE = {"delta.isolationLevel": "Serializable"}


def table_of_two_files(place, **options):
    """0 to 9 in partition ``a``, 10 to 19 in ``b``: two files, in two commits."""
    write(place, numbers(*range(10), p="a"), mode="append", **options)
    write(place, numbers(*range(10, 20), p="b"), mode="append", **options)


# --- what commits together ---


def test_changes_of_different_rows_of_one_file_all_commit(place):
    write(place, numbers(*range(20)), configuration=VECTORS)
    (file,) = files(place)
    staged = [opened(place).begin() for _ in range(4)]
    delete, update, merge, append = staged
    delete.delete("id < 3")
    update.update({"v": "v + 1"}, predicate="id = 5 or id = 6")
    merge.merge(numbers(8, 100, v=7), "s.id = t.id").when_matched_update_all().when_not_matched_insert_all().execute()
    append.append(numbers(200))
    results = [txn.commit() for txn in (delete, update, append, merge)]
    assert [result.version for result in results] == [1, 2, 3, 4]
    assert [result.rebased_over for result in results] == [(), (1,), (1, 2), (1, 2, 3)]
    wanted = dict.fromkeys(range(3, 20), 0) | {5: 1, 6: 1, 8: 7, 100: 7, 200: 0}
    table = opened(place).to_pyarrow_table()
    assert dict(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True)) == wanted
    assert table.num_rows == len(wanted)
    assert file in files(place)


def test_a_delete_is_moved_through_a_compaction(place):
    table_of_two_files(place, configuration=VECTORS)
    delete, compact = opened(place).begin(), opened(place).begin()
    delete.delete("id % 5 = 0")
    compact.compact()
    assert compact.commit().version == 2
    assert delete.commit().rebased_over == (2,)
    assert ids(place) == [i for i in range(20) if i % 5]
    assert len(opened(place).file_uris()) == 1


def test_different_partitions_and_blind_appends_pass_each_other(place):
    table_of_two_files(place, partition_by=["p"])
    update, delete, append = (opened(place).begin() for _ in range(3))
    update.update({"v": "1"}, predicate="p = 'a' and id = 1")
    delete.delete("p = 'b'")
    append.append(numbers(30, p="b"))
    assert [txn.commit().version for txn in (append, update, delete)] == [2, 3, 4]
    # At WriteSerializable the delete comes before the append that it did not see.
    assert ids(place) == [*range(10), 30]
    assert ids(place, filters="v = 1") == [1]


def test_a_read_decides_what_an_append_rests_on(place):
    write(place, numbers(1, 2))
    copy = opened(place).begin()
    copy.append(numbers(*(10 * i for i in copy.read(["id"], "id = 1")["id"].to_pylist())))
    opened(place).delete("id = 1")
    with pytest.raises(errors.ConcurrentDeleteReadException):
        copy.commit()
    assert ids(place) == [2]


# --- the conflicts ---


def change_metadata(table):
    table.alter.set_table_properties({"mine": "1"})


def upgrade(table):
    table.alter.set_table_properties(VECTORS)


def recorded(version):
    return CommitProperties(app_transactions=[AppTransaction(app_id="stream", version=version)])


STAGED = {
    "delete 3": lambda txn: txn.delete("id = 3"),
    "delete in a": lambda txn: txn.delete("p = 'a' and id > 7"),
    "update 3": lambda txn: txn.update({"v": "9"}, predicate="id = 3"),
    "compact": lambda txn: txn.compact(),
    "z-order": lambda txn: txn.z_order(["id"]),
    "append": lambda txn: txn.append(numbers(50, p="a")),
    "append for the stream": lambda txn: txn.append(numbers(50, p="a")),
    "overwrite": lambda txn: txn.overwrite(numbers(50, p="a")),
}
WINS = {
    "delete 3": lambda place: opened(place).delete("id = 3"),
    "delete a": lambda place: opened(place).delete("p = 'a'"),
    "update into a": lambda place: opened(place).update({"v": "8"}, predicate="p = 'a' and id = 9"),
    "update 3": lambda place: opened(place).update({"v": "8"}, predicate="id = 3"),
    "z-order": lambda place: opened(place).optimize.z_order(["v"]),
    "append": lambda place: write(place, numbers(60, p="a"), mode="append"),
    "metadata": lambda place: change_metadata(opened(place)),
    "upgrade": lambda place: upgrade(opened(place)),
    "append for the stream": lambda place: write(
        place, numbers(60, p="a"), mode="append", commit_properties=recorded(1)
    ),
}


@pytest.mark.sample(check=8, test=12)
@pytest.mark.parametrize(
    ("winner", "loser", "error", "properties"),
    [
        ("update into a", "delete in a", "ConcurrentAppendException", {}),
        ("append", "overwrite", "ConcurrentAppendException", SERIALIZABLE),
        ("append", "delete in a", "ConcurrentAppendException", SERIALIZABLE | VECTORS),
        ("update 3", "delete 3", "ConcurrentAppendException", VECTORS),
        ("delete a", "delete 3", "ConcurrentDeleteReadException", {}),
        ("delete 3", "update 3", "ConcurrentDeleteReadException", VECTORS),
        ("z-order", "compact", "ConcurrentDeleteDeleteException", {}),
        ("delete 3", "z-order", "ConcurrentDeleteDeleteException", {}),
        ("metadata", "append", "MetadataChangedException", {}),
        ("metadata", "delete 3", "MetadataChangedException", VECTORS),
        ("upgrade", "append", "ProtocolChangedException", {}),
        ("append for the stream", "append for the stream", "ConcurrentTransactionException", {}),
    ],
)
def test_each_conflict_leaves_nothing_of_the_one_that_lost(place, winner, loser, error, properties):
    table_of_two_files(place, configuration=properties)
    properties = recorded(1) if "stream" in loser else None
    lost = opened(place).begin(commit_properties=properties)
    written_before = files(place)
    STAGED[loser](lost)
    mine = files(place) - written_before
    WINS[winner](place)
    after, rows = objects(place) - mine, held_of(place)
    with pytest.raises(errors.ConcurrentModificationError) as caught:
        lost.commit()
    assert caught.type.__name__ == error
    assert caught.value.conflict.version == 2
    assert objects(place) == after, "what the loser wrote is removed"
    assert held_of(place) == rows
    assert opened(place).version() == 2


def held_of(place):
    table = opened(place).to_pyarrow_table(["id", "v"])
    return sorted(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))


def test_of_two_that_create_a_table_one_wins_and_says_so(place):
    def rows_while_another_creates():
        write(place, numbers(1))
        yield from numbers(2).to_batches()

    data = pa.RecordBatchReader.from_batches(numbers().schema, rows_while_another_creates())
    with pytest.raises(errors.ProtocolChangedException):
        write(place, data)
    assert ids(place) == [1]
    assert len(files(place)) == 1
