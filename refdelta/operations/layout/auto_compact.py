"""Compaction that a write sets off, where ``delta.autoOptimize.autoCompact`` asks for it.

As in delta-spark: a partition to which the commit added files is compacted once it has 50 small ones. Small is below
half of what compaction aims at: ``delta.targetFileSize``, or else 128 MiB. As any compaction here it leaves alone what
is clustered, and sorts nothing: that waits for ``optimize.cluster()``. The write is committed by then, and whatever
befalls the compaction leaves it so: trouble is a line in the program's log.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from refdelta.engine.arrow.arrays import one_array
from refdelta.engine.parquet.write import TARGET_FILE_SIZE
from refdelta.transaction.transaction import Transaction

if TYPE_CHECKING:
    import pyarrow as pa

    from refdelta.engine.log.snapshot import Snapshot

log = logging.getLogger("refdelta")

# How many small files a partition has before it is compacted.
MIN_FILES = 50
# What the property may say. The platforms differ in what "auto" and "legacy" tune; both are "on".
_ON, _OFF = frozenset({"true", "auto", "legacy"}), frozenset({"false", ""})


def auto_compact(txn: Transaction) -> None:
    """Compact what a transaction that has just committed left in small pieces, where the table asks for it.

    ``txn.result_snapshot`` becomes the version that the compaction made. Nothing is ever raised for what goes wrong.
    """
    snapshot = txn.result_snapshot
    if snapshot is None:
        return
    try:
        if _asked_for(snapshot):
            compacted = _compact(txn, snapshot)
            txn.result_snapshot, txn.alone = compacted or snapshot, False  # it may have taken long
    except Exception as error:  # noqa: BLE001 - the write stands
        log.warning("version %d is committed, but auto-compaction failed: %s", snapshot.version, error)


def _asked_for(snapshot: Snapshot) -> bool:
    configuration = snapshot.metadata.configuration or {}
    # The older name says it for the whole group of properties, as in delta-spark.
    if configuration.get("delta.autoOptimize", "").lower() == "true":
        return True
    value = configuration.get("delta.autoOptimize.autoCompact", "").strip().lower()
    if value not in _ON | _OFF:
        log.warning("delta.autoOptimize.autoCompact is %r, which means nothing here: no auto-compaction", value)
    return value in _ON


def _compact(txn: Transaction, snapshot: Snapshot) -> Snapshot | None:
    from refdelta.operations.layout.bins import plan_bins
    from refdelta.operations.layout.optimize import Request, Work, optimize

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
        work = Work(plan=plan, left=deque(plan.bins))
        report = optimize(compaction, snapshot, Request(aim="compact", target_size=target, auto=True), work)
        compaction.commit()
    told = report(compaction.kept_groups)
    log.info("auto-compaction put %d files into %d", told["numFilesRemoved"], told["numFilesAdded"])
    return compaction.result_snapshot


def _fresh(files: pa.Table, before: Snapshot | None) -> pa.Array:
    """Which files are not in the version that the transaction saw. A file that only got a vector is no new one."""
    known = one_array((files.slice(0, 0) if before is None else before.files).column("path"))
    return pc.invert(pc.is_in(one_array(files.column("path")), value_set=known))
