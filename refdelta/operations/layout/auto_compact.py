"""Auto-compaction: a compaction after a write, if ``delta.autoOptimize.autoCompact`` is set.

As in delta-spark, a partition to which the commit added files is compacted when it has 50 small files. A file is small
below half of the target size, ``delta.targetFileSize`` or 128 MiB. Clustered files are not touched, and nothing is
sorted; ``optimize.cluster()`` does that. The write is committed before. If the compaction fails, that is only logged.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from refdelta.arrow.arrays import is_among, one_array
from refdelta.engine.parquet.write import TARGET_FILE_SIZE
from refdelta.transaction.transaction import Transaction

if TYPE_CHECKING:
    import pyarrow as pa

    from refdelta.engine.log.snapshot import Snapshot

log = logging.getLogger("refdelta")

# The number of small files of a partition from which it is compacted.
MIN_FILES = 50


def auto_compact(txn: Transaction, snapshot: Snapshot) -> None:
    """Compact small files after a commit. Errors are logged, not raised.

    Args:
        txn: the committed transaction; its ``result_snapshot`` becomes the snapshot after the compaction.
        snapshot: the one after the commit.
    """
    try:
        compacted = _compact(txn, snapshot)
        txn.result_snapshot, txn.alone = compacted or snapshot, False  # others may have committed meanwhile
    except Exception as error:  # noqa: BLE001 - the write stands
        log.warning("version %d is committed, but auto-compaction failed: %s", snapshot.version, error)


def _compact(txn: Transaction, snapshot: Snapshot) -> Snapshot | None:
    from refdelta.operations.layout.bins import plan_bins
    from refdelta.operations.layout.optimize import OptimizeRequest, OptimizeWork, optimize

    target = snapshot.properties.target_file_size or TARGET_FILE_SIZE
    plan = plan_bins(
        snapshot,
        "compact",
        filters=None,
        target=target,
        min_size=target // 2,
        fresh=_fresh(snapshot.files, txn.snapshot),
        least=MIN_FILES,
    )
    if not plan.bins:
        return None
    with Transaction(txn.store, snapshot, executor=txn.executor) as compaction:
        work = OptimizeWork(plan=plan, left=deque(plan.bins))
        report = optimize(compaction, snapshot, OptimizeRequest(aim="compact", target_size=target, auto=True), work)
        compaction.commit()
    metrics = report(compaction.kept_groups)
    log.info("auto-compaction merged %d files into %d", metrics["numFilesRemoved"], metrics["numFilesAdded"])
    return compaction.result_snapshot


def _fresh(files: pa.Table, before: Snapshot | None) -> pa.Array:
    """A mask of the files that are not in the transaction's snapshot. A file with a new deletion vector is not new."""
    known = (files.slice(0, 0) if before is None else before.files).column("path")
    return one_array(pc.invert(is_among(files.column("path"), known)))
