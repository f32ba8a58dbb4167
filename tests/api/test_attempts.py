"""``attempts=``: a statement that lost to another writer runs again on the newest version.

Tests of transaction.repeat.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.transaction import repeat
from refdelta.transaction.transaction import Transaction

ROWS = pa.table({"id": range(10), "v": [0] * 10})


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setitem(repeat.repeat.__kwdefaults__, "sleep", lambda _: None)


@pytest.fixture
def table(tmp_path):
    write_deltalake(tmp_path / "t", ROWS)
    write_deltalake(tmp_path / "t", ROWS, mode="append")
    return DeltaTable(tmp_path / "t")


@pytest.fixture
def beside(monkeypatch, table):
    """``beside(n)``: before each of the next n commits of the handle's table, another program changes the same rows."""
    whole, left = Transaction.commit, []

    def commit(self):
        if left:
            left.pop()
            uri, others = self.store.uri, list(left)
            left.clear()
            DeltaTable(uri).update({"v": "v + 100"})
            DeltaTable(uri).alter.set_table_properties({"who": f"{len(others)}"})
            left.extend(others)
        return whole(self)

    monkeypatch.setattr(Transaction, "commit", commit)
    return lambda count: left.extend([None] * count)


NEW = pa.table({"id": [1, 99], "v": [7, 7]})
STATEMENTS = {
    "delete": lambda table, **how: table.delete("id = 1", **how),
    "update": lambda table, **how: table.update({"v": "v + 1"}, predicate="id = 1", **how),
    "merge": lambda table, **how: table.merge(NEW, "t.id = s.id", **how).when_matched_update_all().execute(),
    "append": lambda table, **how: write_deltalake(table, NEW, mode="append", **how),
    "append by a path": lambda table, **how: write_deltalake(table.table_uri, NEW, mode="append", **how),
    "overwrite": lambda table, **how: write_deltalake(table, NEW, mode="overwrite", **how),
    "replace": lambda table, **how: write_deltalake(
        table, pa.table({"id": [1], "v": [7]}), mode="overwrite", predicate="id = 1", **how
    ),
    "z-order": lambda table, **how: table.optimize.z_order(["id"], **how),
    "restore": lambda table, **how: table.restore(0, **how),
    "alter": lambda table, **how: table.alter.add_constraint({"positive": "id >= 0"}, **how),
}


@pytest.mark.tier("test")
@pytest.mark.filterwarnings("ignore:z_order sorts rows")
@pytest.mark.parametrize("name", STATEMENTS)
def test_each_statement_runs_again(table, beside, name):
    statement = STATEMENTS[name]
    beside(1)
    with pytest.raises(errors.ConcurrentModificationError):
        statement(table)
    beside(2)
    with pytest.raises(errors.ConcurrentModificationError):
        statement(table, attempts=2)
    before = DeltaTable(table.table_uri).version()
    beside(2)
    result = statement(table, attempts=3)
    assert result.statement_attempts == result["statement_attempts"] == 3
    assert result.version == DeltaTable(table.table_uri).version() == before + 5


def test_the_handle_has_a_default_that_a_statement_overrides(table, beside):
    often = DeltaTable(table.table_uri, attempts=2)
    beside(1)
    assert often.delete("id = 1").statement_attempts == 2
    beside(1)
    with pytest.raises(errors.ConcurrentModificationError):
        often.delete("id = 2", attempts=1)
    assert table.delete("id = 3").statement_attempts == 1


def test_a_transaction_function_says_how_often_it_ran(table, beside):
    beside(2)
    assert table.transact(lambda txn: txn.delete("id = 1")).statement_attempts == 3


@pytest.mark.parametrize("attempts", [0, -1, "3", 1.5, True])
def test_attempts_is_a_number(table, attempts):
    with pytest.raises(errors.InvalidArgumentError, match="attempts"):
        table.delete("id = 1", attempts=attempts)


def test_a_transaction_is_not_repeated(table):
    with pytest.raises(TypeError, match=r"transact\(\) repeats a transaction"):
        table.begin(attempts=3)


def test_a_stream_is_read_once_and_not_merged_empty(table):
    for write in (
        lambda rows: write_deltalake(table, rows, mode="append", attempts=2),
        lambda rows: table.merge(rows, "t.id = s.id", attempts=2),
    ):
        with pytest.raises(errors.InvalidArgumentError, match="RecordBatchReader can perhaps be read only once"):
            write(NEW.to_reader())
    assert DeltaTable(table.table_uri).version() == 1


FOLLOWED = {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}


@pytest.mark.parametrize("left_out", [*FOLLOWED, None])
@pytest.mark.parametrize("statement", ["z_order", "cluster"])
def test_a_rewrite_that_would_lose_again_says_so_before_it_begins(tmp_path, statement, left_out):
    properties = {name: str(name != left_out).lower() for name in FOLLOWED}
    columns = {"cluster_by": ["id"]} if statement == "cluster" else {}
    write_deltalake(tmp_path / "t", ROWS, configuration=properties, **columns)
    table = DeltaTable(tmp_path / "t")
    call = {"z_order": lambda **how: table.optimize.z_order(["id"], **how), "cluster": table.optimize.cluster}[
        statement
    ]
    if left_out is not None:
        with pytest.raises(UserWarning, match=f"^{statement} sorts rows, .*{left_out}"):
            call(attempts=3)
        assert table.version() == 0, "it warns before the work"
        call()
    else:
        call(attempts=3)
    assert table.version() == 1


@pytest.mark.parametrize("left_out", [*FOLLOWED, None])
def test_a_rewrite_that_lost_says_what_would_have_followed_the_rows(tmp_path, left_out):
    write_deltalake(tmp_path / "t", ROWS, configuration={name: str(name != left_out).lower() for name in FOLLOWED})
    with DeltaTable(tmp_path / "t").begin() as txn:
        txn.z_order(["id"])
        DeltaTable(tmp_path / "t").delete("id = 1")
        if left_out is None:
            assert txn.commit().rebased_over == (1,)
            return
        with pytest.raises(errors.ConcurrentDeleteDeleteException, match=left_out):
            txn.commit()
