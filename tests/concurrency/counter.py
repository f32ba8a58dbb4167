"""A counter in one row that threads or processes increase. A module of its own, for spawned processes to import."""

from __future__ import annotations

import pyarrow as pa

from refdelta import DeltaTable, write_deltalake

QUICKLY = {"fsync": "false"}


def create(uri: str, *, vectors: bool) -> None:
    configuration = {"delta.enableDeletionVectors": str(vectors).lower()}
    write_deltalake(uri, pa.table({"id": [1, 2], "n": [0, 0]}), configuration=configuration, storage_options=QUICKLY)


def increase(uri: str, times: int) -> int:
    """Increase the counter so often by a read and a write of what was read; return how many attempts it took."""
    table = DeltaTable(uri, storage_options=QUICKLY)
    calls = 0

    def one(txn) -> None:
        nonlocal calls
        calls += 1
        (value,) = txn.read(["n"], predicate="id = 1").column("n").to_pylist()
        txn.update({"n": str(value + 1)}, predicate="id = 1")

    for _ in range(times):
        assert table.transact(one, attempts=200).version is not None
    return calls


def value(uri: str) -> int:
    (found,) = DeltaTable(uri).to_pyarrow_table(columns=["n"], filters="id = 1").column("n").to_pylist()
    return found
