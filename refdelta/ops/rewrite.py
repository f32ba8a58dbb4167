"""Copy on write: the rows of a predicate leave their files, and what else these files hold is written anew."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.engine.evaluate import row_mask
from refdelta.engine.scan import plan_scan
from refdelta.engine.schema import to_arrow
from refdelta.engine.skipping import prune
from refdelta.engine.state import to_adds
from refdelta.engine.write import write_files
from refdelta.errors import ConstraintViolationError
from refdelta.protocol.actions import Add, Remove
from refdelta.protocol.predicate import Predicate, columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from refdelta.engine.snapshot import Snapshot
    from refdelta.transaction import WriteTransaction


@dataclass(frozen=True)
class Rewritten:
    """What a rewrite did.

    Attributes:
        removed: the files that left the table.
        added: the files that hold what remains of them.
        copied_rows: how many rows these hold.
    """

    removed: list[Add]
    added: list[Add]
    copied_rows: int


def remove_files(txn: WriteTransaction, adds: list[Add]) -> None:
    """Stage tombstones. Each names its file's deletion vector, else the logical file would live on (PROTOCOL.md,
    "Remove File").

    Raises ``ConstraintViolationError`` where the table is append-only (PROTOCOL.md, "Append-only Tables").
    """
    if not adds:
        return
    if txn.snapshot is not None and txn.snapshot.properties.append_only:
        raise ConstraintViolationError(
            "the table is append-only (delta.appendOnly=true): rows cannot be deleted or overwritten"
        )
    now_ms = time.time_ns() // 1_000_000
    txn.stage(
        Remove(
            path=add.path,
            deletion_timestamp=now_ms,
            data_change=True,
            extended_file_metadata=True,
            partition_values=add.partition_values,
            size=add.size,
            tags=add.tags,
            deletion_vector=add.deletion_vector,
            base_row_id=add.base_row_id,
            default_row_commit_version=add.default_row_commit_version,
        )
        for add in adds
    )


def delete_where(txn: WriteTransaction, snapshot: Snapshot, predicate: Predicate) -> Rewritten:
    """Stage the removal of all rows for which ``predicate`` is true; rows for which it is false or null stay.

    Files are pruned by partition values and statistics first, then those columns are read that the predicate needs,
    and only a file that holds rows of both kinds is written anew. Memory is bounded by a batch.
    """
    partitioning = list(snapshot.partition_columns)
    candidates = snapshot.files.filter(prune(snapshot.files, snapshot.schema, partitioning, predicate).keep)
    needed = {path[0].lower() for path in columns(predicate)}
    if needed <= {c.lower() for c in partitioning}:
        # Partition values decide for every row of a file alike.
        removed = to_adds(candidates)
        remove_files(txn, removed)
        return Rewritten(removed, [], 0)
    touched: list[pa.Table] = []
    mixed: list[pa.Table] = []
    for index in range(candidates.num_rows):
        file = candidates.slice(index, 1)
        rows, matched = _count(dataclasses.replace(snapshot, files=file), predicate, needed)
        if matched:
            touched.append(file)
            if matched < rows:
                mixed.append(file)
    copied = 0

    def kept() -> Iterator[pa.RecordBatch]:
        nonlocal copied
        for file in mixed:
            for batch in plan_scan(dataclasses.replace(snapshot, files=file)).to_reader():
                rest = batch.filter(_other(row_mask(predicate, batch)))
                copied += rest.num_rows
                yield rest

    added = write_files(
        txn.store,
        pa.RecordBatchReader.from_batches(to_arrow(snapshot.schema), kept()),
        schema=snapshot.schema,
        partition_columns=partitioning,
        properties=snapshot.properties,
    )
    txn.stage_written(added)
    removed = [add for file in touched for add in to_adds(file)]
    remove_files(txn, removed)
    return Rewritten(removed, added, copied)


def requires(predicate: Predicate, sql: str) -> Callable[[pa.RecordBatch], None]:
    """A check that every row of a batch satisfies ``predicate``, as replaceWhere asks.

    Raises ``ConstraintViolationError``.
    """

    def check(batch: pa.RecordBatch) -> None:
        others = _other(row_mask(predicate, batch))
        outside = pc.sum(others).as_py() or 0
        if outside:
            row = batch.filter(others).slice(0, 1).to_pylist()[0]
            raise ConstraintViolationError(
                f"the data holds rows outside of the predicate {sql!r} ({outside} in one batch); "
                f"the first is {_shown(row)}"
            )

    return check


def _count(snapshot: Snapshot, predicate: Predicate, needed: set[str]) -> tuple[int, int]:
    rows = matched = 0
    names = [f.name for f in snapshot.schema.fields if f.name.lower() in needed]
    for batch in plan_scan(snapshot, columns=names).to_reader():
        rows += batch.num_rows
        matched += pc.sum(row_mask(predicate, batch)).as_py() or 0
    return rows, matched


def _other(mask: pa.BooleanArray) -> pa.BooleanArray:
    """The rows that a predicate does not select: those where it is false and those where it is null."""
    return pc.invert(pc.fill_null(mask, False))


def _shown(row: dict[str, object]) -> str:
    text = ", ".join(f"{name}={value!r}" for name, value in list(row.items())[:8])
    return text if len(text) <= 200 else text[:200] + "..."
