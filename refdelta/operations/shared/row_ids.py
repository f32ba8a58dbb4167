"""Row ids for the files of a table without row tracking so far (PROTOCOL.md, "Row Tracking"): backfill in delta-spark.

The files are added again, each with ids for its rows, which the commit assigns. For a table with many files, several
commits precede the one that enables row tracking. The first of them adds the feature to the protocol: from then on,
every writer gives ids to the files that it adds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import take
from refdelta.engine.log.statistics import counted_add, whole_adds
from refdelta.engine.scan.file_stats import num_records
from refdelta.engine.scan.reader import ReadPlan, physical_rows
from refdelta.engine.scan.scan import Scan, scan_files
from refdelta.engine.work.executor import ThreadExecutor
from refdelta.table.features import check_writable
from refdelta.table.properties import get
from refdelta.table.protocol_choice import upgraded
from refdelta.table.row_tracking import FEATURE, SUSPENDED, is_assigned

if TYPE_CHECKING:
    from collections.abc import Iterable

    from refdelta.core.log.actions import Add
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction


def give_row_ids(txn: Transaction, snapshot: Snapshot) -> None:
    """Stage row ids for all files of a table, whose rows are tracked from this commit on.

    Args:
        txn: the transaction. If the table does not support row tracking yet, other writers may add files without ids,
            so the whole table counts as read.
        snapshot: the snapshot that it reads.

    Raises:
        DataFileNotFoundError: the log lacks the number of rows of a file, and the file is gone.
        DataFileError: the log lacks it, and the file is damaged or is not Parquet.
    """
    if not is_assigned(snapshot.protocol, snapshot.metadata):
        txn.read_whole_table()
    txn.stage(_again(snapshot, without_ids(snapshot)))


def backfill(txn: Transaction, snapshot: Snapshot, most: int) -> bool:
    """Stage one of the commits that precede the enabling of row tracking on a table with many files.

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        most: the maximum number of files that a commit adds again.

    Returns:
        True if something was staged; False if the rest of the files fits into the commit that enables row tracking.

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
    """Entries of an earlier version, with row ids that their files got later.

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
    """The entries of files, with their numbers of rows, which are read from the files if the log lacks them."""
    adds = whole_adds(files)
    unknown = [index for index, count in enumerate(num_records(files).to_pylist()) if count is None]
    if unknown:
        some = take(files, pa.array(unknown))
        executor = ThreadExecutor.for_store(snapshot.store, some.column("size"))
        bare = Scan(snapshot, ReadPlan(()), some, executor=executor)
        counts = bare.footers.map(lambda file: physical_rows(snapshot.store, file), scan_files(bare))
        for place, (index, count) in enumerate(zip(unknown, counts, strict=True)):
            adds[index] = counted_add(some.slice(place, 1), count)
    return adds
