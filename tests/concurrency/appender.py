"""What each process of the race does. A module of its own, so that spawned processes can import it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from refdelta import DeltaTable, write_deltalake
from refdelta.core.commit.transaction import CommitOutcome, PreparedCommit
from refdelta.core.conflicts.reads import ReadSet
from refdelta.core.log.actions import Add, AnyAction, Metadata, Protocol
from refdelta.transaction.driver import RetryPolicy, commit

if TYPE_CHECKING:
    from refdelta_storage import Store

CREATE: list[AnyAction] = [
    Protocol(min_reader_version=1, min_writer_version=2),
    Metadata(id="race", schema_string='{"type":"struct","fields":[]}', partition_columns=[]),
]


def prepare(name: str, version: int, actions: list[AnyAction] | None = None, **reads: object) -> PreparedCommit:
    add = Add(path=f"{name}.parquet", partition_values={}, size=1, modification_time=1, data_change=True)
    return PreparedCommit(
        read_version=version,
        read_set=ReadSet(version=version, **reads),
        actions=[add] if actions is None else actions,
        commit_info={"operation": "WRITE"},
        txn_id=name,
    )


def append(store: Store, name: str, version: int, policy: RetryPolicy | None = None) -> CommitOutcome:
    return commit(store, prepare(name, version), policy=policy)


ROWS = pa.schema([("process", pa.int64()), ("number", pa.int64())])
QUICKLY = {"fsync": "false"}


def race(uri: str, process: int, appends: int) -> list[int]:
    """Append a row at a time, of this process and a number. Catches no error. Returns the versions that it was told.

    Every other process opens the table for each append; the others keep a handle.
    """
    table = DeltaTable(uri, storage_options=QUICKLY) if process % 2 else uri
    rows = (pa.table({"process": [process], "number": [number]}, schema=ROWS) for number in range(appends))
    return [write_deltalake(table, row, mode="append", storage_options=QUICKLY).version for row in rows]
