"""Row ids for the files of a table that had none so far (PROTOCOL.md, "Row Tracking"): what delta-spark calls backfill.

The files are added again as they are, each with ids for its rows, which the commit gives out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow.compute as pc

from refdelta.engine.executor import ThreadExecutor
from refdelta.engine.reader import ReadPlan, physical_rows
from refdelta.engine.scan import Scan, scan_files
from refdelta.engine.statistics import counted_add, num_records, whole_adds
from refdelta.protocol.row_tracking import is_assigned

if TYPE_CHECKING:
    import pyarrow as pa

    from refdelta.engine.snapshot import Snapshot
    from refdelta.protocol.actions import Add
    from refdelta.staging import Staging


def give_row_ids(txn: Staging, snapshot: Snapshot) -> None:
    """Stage that all files of a table have row ids: its rows are to be tracked in the same commit.

    Args:
        txn: the transaction. Others may add files without ids meanwhile unless the table supports row tracking already;
            then these count as read.
        snapshot: what it sees.

    Raises:
        DataFileNotFoundError: a file is gone that the log does not say the number of rows of.
        DataFileError: such a file is damaged or is not Parquet.
    """
    files = without_ids(snapshot)
    if files.num_rows or not is_assigned(snapshot.protocol, snapshot.metadata):
        txn.read_whole_table()
    txn.stage(msgspec.structs.replace(add, data_change=False) for add in _counted(snapshot, files))


def without_ids(snapshot: Snapshot) -> pa.Table:
    """The live files whose rows have no ids or no commit version."""
    files = snapshot.files
    lacking = [pc.is_null(files.column(name)) for name in ("baseRowId", "defaultRowCommitVersion")]
    return files.filter(pc.or_(*lacking))


def _counted(snapshot: Snapshot, files: pa.Table) -> list[Add]:
    """The entries of files, whose statistics say how many rows they have."""
    adds = whole_adds(files)
    unknown = [index for index, count in enumerate(num_records(files).to_pylist()) if count is None]
    if unknown:
        some = files.take(unknown)
        executor = ThreadExecutor.for_store(snapshot.store, some.column("size"))
        bare = Scan(snapshot, ReadPlan(()), some, executor=executor)
        counts = bare.footers.map(lambda file: physical_rows(snapshot.store, file), scan_files(bare))
        for place, (index, count) in enumerate(zip(unknown, counts, strict=True)):
            adds[index] = counted_add(some.slice(place, 1), count)
    return adds
