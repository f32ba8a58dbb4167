"""Row ids for the files of a table that had none so far (PROTOCOL.md, "Row Tracking"): what delta-spark calls backfill.

The files are added again as they are, each with ids for its rows, which the commit gives out. Of a table of many files
that takes several commits, which come before the one that enables row tracking: from the first of them on, which makes
the table support it, whoever adds a file gives it ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.table.features import check_writable
from refdelta.core.table.properties import get
from refdelta.core.table.protocol_choice import upgraded
from refdelta.core.table.row_tracking import FEATURE, SUSPENDED, is_assigned
from refdelta.engine.log.statistics import counted_add, whole_adds
from refdelta.engine.scan.executor import ThreadExecutor
from refdelta.engine.scan.file_stats import num_records
from refdelta.engine.scan.reader import ReadPlan, physical_rows
from refdelta.engine.scan.scan import Scan, scan_files

if TYPE_CHECKING:
    from collections.abc import Iterable

    from refdelta.core.log.actions import Add
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction


def give_row_ids(txn: Transaction, snapshot: Snapshot) -> None:
    """Stage that all files of a table have row ids: its rows are to be tracked in the same commit.

    Args:
        txn: the transaction. Where others may add files without ids meanwhile, since the table does not support row
            tracking yet, all of them count as read.
        snapshot: what it sees.

    Raises:
        DataFileNotFoundError: a file is gone that the log does not say the number of rows of.
        DataFileError: such a file is damaged or is not Parquet.
    """
    if not is_assigned(snapshot.protocol, snapshot.metadata):
        txn.read_whole_table()
    txn.stage(_again(snapshot, without_ids(snapshot)))


def backfill(txn: Transaction, snapshot: Snapshot, most: int) -> bool:
    """Stage one of the commits that come first where a table of many files is to track its rows.

    Args:
        txn: the transaction.
        snapshot: what it sees.
        most: how many files a commit adds again at most.

    Returns:
        Whether there was one to make: there are more files without ids than fit into the commit that enables it.

    Raises:
        DataFileNotFoundError, DataFileError: as :func:`give_row_ids`.
    """
    files = without_ids(snapshot)
    if files.num_rows <= most or get(snapshot.metadata.configuration or {}, SUSPENDED):
        return False
    if not is_assigned(snapshot.protocol, snapshot.metadata):
        protocol = upgraded(snapshot.protocol, snapshot.metadata, [FEATURE])
        check_writable(protocol, snapshot.metadata)
        txn.stage([protocol])
        txn.describe("UPGRADE PROTOCOL", {"newProtocol": msgspec.json.encode(protocol).decode()}, {})
        return True
    again = _again(snapshot, files.slice(0, most))
    txn.read_files(again)
    txn.stage(again)
    txn.describe("ROW TRACKING BACKFILL", {"batchId": "0"}, {})
    return True


def _again(snapshot: Snapshot, files: pa.Table) -> list[Add]:
    return [msgspec.structs.replace(add, data_change=False) for add in counted(snapshot, files)]


def as_last_known(snapshot: Snapshot, adds: Iterable[Add]) -> list[Add]:
    """Entries of an earlier version, with the row ids that their files were given since, if they had none then.

    Implements PROTOCOL.md, "Writer Requirements for Row Tracking": a file that is added again keeps its ids.
    """
    entries = list(adds)
    lacking = pa.array({add.path for add in entries if add.base_row_id is None}, pa.string())
    if not len(lacking) or not is_assigned(snapshot.protocol, snapshot.metadata):
        return entries
    known: dict[str, tuple[int | None, int | None]] = {}
    for table in (snapshot.tombstones(), snapshot.files):
        some = table.filter(pc.is_in(table.column("path"), value_set=lacking))
        columns = [some.column(name).to_pylist() for name in ("path", "baseRowId", "defaultRowCommitVersion")]
        known.update((path, (base, since)) for path, base, since in zip(*columns, strict=True) if base is not None)
    return [_with_ids(add, *known[add.path]) if add.path in known else add for add in entries]


def _with_ids(add: Add, base: int | None, since: int | None) -> Add:
    return msgspec.structs.replace(add, base_row_id=base, default_row_commit_version=since)


def without_ids(snapshot: Snapshot) -> pa.Table:
    """The live files whose rows have no ids or no commit version."""
    files = snapshot.files
    lacking = [pc.is_null(files.column(name)) for name in ("baseRowId", "defaultRowCommitVersion")]
    return files.filter(pc.or_(*lacking))


def counted(snapshot: Snapshot, files: pa.Table) -> list[Add]:
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
