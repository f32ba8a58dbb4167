"""CREATE and CREATE OR REPLACE beside other writers: who comes second is told so, and the table is the first one's."""

from __future__ import annotations

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.operations.write import create as creation

ROWS = pa.table({"id": [1, 2]})
OTHER = pa.schema([("name", pa.string())])


@pytest.fixture
def meanwhile(monkeypatch):
    """Let something happen between what a CREATE has seen and its commit."""

    def set_up(act):
        for name in ("create", "replace"):
            staged = getattr(creation, name)

            def stage(*arguments, staged=staged, **options):
                staged(*arguments, **options)
                monkeypatch.undo()
                act()

            monkeypatch.setattr(creation, name, stage)

    return set_up


def create(path, mode="error", schema=OTHER):
    return DeltaTable.create(path, schema, mode=mode)


@pytest.mark.parametrize("mine", ["error", "overwrite"])
@pytest.mark.parametrize("theirs", ["error", "overwrite", "write"])
def test_of_two_that_create_a_table_the_first_has_it(tmp_path, meanwhile, mine, theirs):
    path = tmp_path / "t"
    meanwhile(lambda: write_deltalake(path, ROWS) if theirs == "write" else create(path, theirs, ROWS.schema))
    with pytest.raises(errors.ProtocolChangedException) as caught:
        create(path, mine)
    assert caught.value.conflict.version == 0
    assert DeltaTable(path).schema().names == ["id"]
    assert DeltaTable(path).version() == 0


def test_whoever_wants_a_table_only_where_there_is_none_takes_the_other_one(tmp_path, meanwhile):
    path = tmp_path / "t"
    meanwhile(lambda: write_deltalake(path, ROWS))
    table = create(path, "ignore")
    assert (table.version(), table.schema().names, table.count()) == (0, ["id"], 2)


@pytest.mark.parametrize(
    ("theirs", "error"),
    [
        (lambda table: create(table.table_uri, "overwrite"), errors.ProtocolChangedException),
        (lambda table: write_deltalake(table, ROWS, mode="append"), errors.ConcurrentAppendException),
        (lambda table: table.delete("id = 1"), errors.ConcurrentModificationError),
        (lambda table: table.alter.set_table_properties({"mine": "1"}), errors.MetadataChangedException),
        (lambda table: table.alter.add_feature("deletionVectors", True), errors.ProtocolChangedException),
    ],
)
def test_a_replacement_passes_over_nobody(tmp_path, meanwhile, theirs, error):
    write_deltalake(tmp_path, ROWS)
    meanwhile(lambda: theirs(DeltaTable(tmp_path)))
    with pytest.raises(error):
        create(tmp_path, "overwrite", pa.schema([("third", pa.int8())]))
    assert "third" not in DeltaTable(tmp_path).schema().names
    assert DeltaTable(tmp_path).version() == 1


def test_whoever_writes_to_a_table_that_is_replaced_is_told(tmp_path):
    write_deltalake(tmp_path, ROWS)
    append, delete = DeltaTable(tmp_path).begin(), DeltaTable(tmp_path).begin()
    append.append(ROWS)
    delete.delete("id = 1")
    create(tmp_path, "overwrite")
    for txn in (append, delete):
        with pytest.raises((errors.MetadataChangedException, errors.ProtocolChangedException)):
            txn.commit()
    assert DeltaTable(tmp_path).count() == 0


def test_a_replacement_with_rows_rests_on_all_that_it_replaces(tmp_path):
    write_deltalake(tmp_path, ROWS)
    table = DeltaTable(tmp_path)
    with table.begin() as txn:
        txn.overwrite(ROWS.slice(0, 1))
        write_deltalake(tmp_path, ROWS, mode="append")
        # Under WriteSerializable a blind append may be ordered behind it; under Serializable it may not.
        assert txn.commit().rebased_over == (1,)
    with table.begin(isolation="Serializable") as txn:
        txn.overwrite(ROWS.slice(0, 1))
        write_deltalake(tmp_path, ROWS, mode="append")
        with pytest.raises(errors.ConcurrentAppendException):
            txn.commit()
