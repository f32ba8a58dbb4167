"""The ``await`` forms: same arguments, results and errors, and the event loop goes on."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import refdelta
from refdelta import DeltaTable, errors, write_deltalake, write_deltalake_async
from refdelta.api.merge_builder import TableMerger
from refdelta.api.transaction import WriteTransaction

ROWS = pa.table({"id": [1, 2, 3]})
OWNERS: tuple[Any, ...] = (DeltaTable, WriteTransaction, TableMerger, refdelta)


def test_each_form_does_what_its_method_does(tmp_path: Path) -> None:
    async def run() -> list[int]:
        await write_deltalake_async(tmp_path / "t", ROWS)
        table = await DeltaTable.open_async(tmp_path / "t", attempts=3)
        assert (await table.delete_async("id = 1")).version == 1
        assert (await table.update_async(updates={"id": "id + 10"}, predicate="id = 2")).version == 2
        assert (await table.transact_async(lambda txn: txn.append(pa.table({"id": [4]})))).version == 3
        merge = table.merge(pa.table({"id": [4]}), "t.id = s.id").when_matched_delete()
        assert (await merge.execute_async()).version == 4
        with table.begin() as txn:
            txn.append(pa.table({"id": [5]}))
            assert (await txn.commit_async()).version == 5
        found: list[int] = (await table.to_pyarrow_table_async(filters="id > 3"))["id"].to_pylist()
        return sorted(found)

    assert asyncio.run(run()) == [5, 12]


def test_errors_are_those_of_the_method(tmp_path: Path) -> None:
    async def run() -> None:
        with pytest.raises(errors.TableNotFoundError):
            await DeltaTable.open_async(tmp_path / "none")
        await write_deltalake_async(tmp_path / "t", ROWS)
        with pytest.raises(errors.TableAlreadyExistsError):
            await write_deltalake_async(tmp_path / "t", ROWS)

    asyncio.run(run())


def test_the_loop_goes_on_and_calls_run_at_once(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", ROWS)
    together = threading.Barrier(3)

    def wait(txn: WriteTransaction) -> None:
        together.wait(120)  # passes only if all three run at once
        txn.append(ROWS)

    async def run() -> set[int | None]:
        tables = [await DeltaTable.open_async(tmp_path / "t") for _ in range(3)]
        made: list[Awaitable[Any]] = [table.transact_async(wait, attempts=20) for table in tables]
        return {result.version for result in await asyncio.gather(*made)}

    assert asyncio.run(run()) == {1, 2, 3}


def test_a_cancelled_task_does_not_end_the_call(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", ROWS)
    began, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def slow(txn: WriteTransaction) -> None:
        began.set()
        go_on.wait(120)
        txn.append(ROWS)

    async def run() -> None:
        table = await DeltaTable.open_async(tmp_path / "t")
        task = asyncio.ensure_future(table.transact_async(slow))
        await asyncio.to_thread(began.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        done.set()

    asyncio.run(run())  # waits for the threads of its executor
    assert done.is_set()
    assert DeltaTable(tmp_path / "t").count() == 6


@pytest.mark.parametrize("owner", OWNERS, ids=lambda owner: owner.__name__)
def test_each_form_is_a_coroutine_and_names_its_method(owner: Any) -> None:
    forms = [name for name in dir(owner) if name.endswith("_async") and name != "open_async"]
    assert forms
    for name in forms:
        form, plain = getattr(owner, name), getattr(owner, name.removesuffix("_async"))
        assert inspect.iscoroutinefunction(form)
        assert form.__name__ == name
        assert plain.__name__ in form.__doc__
        assert inspect.signature(form).parameters == inspect.signature(plain).parameters
