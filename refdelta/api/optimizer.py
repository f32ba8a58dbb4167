"""``DeltaTable.optimize``: fewer and better files for the same rows."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Unpack

from refdelta.errors import InvalidArgumentError
from refdelta.operations.layout.optimize import Progress, Request, Work, combined
from refdelta.transaction.options import records_applications

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from refdelta.api.transaction import WriteTransaction
    from refdelta.transaction.options import CommitOptions
    from refdelta.transaction.results import CommitResult


class TableOptimizer:
    """Rearranges one table; made by :attr:`refdelta.DeltaTable.optimize`.

    No data changes, and readers and streams notice nothing. On a table with deletion vectors neither is anybody's
    DELETE, UPDATE or MERGE in the way, nor is a compaction in theirs (concurrency.md, number 6). The same holds for
    :meth:`cluster` where the table tracks rows too; :meth:`z_order` may conflict with them.
    """

    def __init__(self, begin: Callable[..., WriteTransaction]):
        self._begin = begin

    def compact(
        self,
        partition_filters: Any = None,
        target_size: int | None = None,
        max_concurrent_tasks: int | None = None,
        max_spill_size: int | None = None,
        max_temp_directory_size: int | None = None,
        min_commit_interval: float | dt.timedelta | None = None,
        *,
        min_file_size: int | None = None,
        progress: Progress | None = None,
        **options: Unpack[CommitOptions],
    ) -> CommitResult:
        """Put small files together (OPTIMIZE), and rewrite those of which more than one row in twenty is deleted.

        The files of a partition are put together in the order in which they were written, up to the target size, and
        rows keep their order. A second run finds nothing to do.

        Of a clustered table these are the files that are not clustered yet; it takes :meth:`cluster` to sort them. A
        clustered file of which many rows are deleted is rewritten by itself, and stays clustered.

        Args:
            partition_filters: which partitions: SQL over partition columns, or deltalake's list of conditions.
            target_size: about how many bytes a file should have; None for ``delta.targetFileSize``, or else 128 MiB,
                the size at which a write here completes a file: what is full already is not written again.
            max_concurrent_tasks: how many files are put together at once; None for one a processor, at most 4. Each
                takes some hundred megabytes of memory where files are large.
            max_spill_size: as for :meth:`z_order`; nothing is sorted here.
            max_temp_directory_size: likewise.
            min_commit_interval: commit after so many seconds what is done by then, and go on; 0 for a commit per bin
                of files. None for one commit of everything.
            min_file_size: files of so many bytes are left alone, unless many of their rows are deleted; None for the
                target size.
            progress: called with the number of bins that are done, and of all.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`. An ``executor`` decides
                how many bins are put together at once.

        Returns:
            What was committed; its version is None where there was nothing to do, and the last one where there were
            several. Metrics: ``numFilesAdded``, ``numFilesRemoved``, ``filesAdded`` and ``filesRemoved`` (``avg``,
            ``min``, ``max``, ``totalFiles``, ``totalSize`` in bytes), ``partitionsOptimized``, ``numBatches`` (bins),
            ``totalConsideredFiles``, ``totalFilesSkipped``, ``preserveInsertionOrder``, ``numDeletionVectorsRemoved``.

        Raises:
            InvalidArgumentError: a filter over columns that are no partition columns, or sizes that are not positive.
            PredicateError: the filter cannot be parsed or bound.
            ConcurrentModificationError: another writer's commit conflicts; on a table with deletion vectors only one
                that changed the table itself.
        """
        request = Request(
            aim="compact",
            filters=partition_filters,
            target_size=target_size,
            min_size=min_file_size,
            tasks=max_concurrent_tasks,
            memory=max_spill_size,
            disk=max_temp_directory_size,
            progress=progress,
        )
        return self._run(request, min_commit_interval, options)

    def z_order(
        self,
        columns: Sequence[str] | str,
        partition_filters: Any = None,
        target_size: int | None = None,
        max_concurrent_tasks: int | None = None,
        max_spill_size: int | None = None,
        max_temp_directory_size: int | None = None,
        min_commit_interval: float | dt.timedelta | None = None,
        *,
        progress: Progress | None = None,
        **options: Unpack[CommitOptions],
    ) -> CommitResult:
        """Rewrite all files, with the rows of each partition in the order of a Z-curve (OPTIMIZE ZORDER BY).

        Rows that are near in all of the columns come to lie in the same files, so that a query over any of them skips
        most files. A partition that does not fit into memory is sorted by way of temporary files. Every run rewrites
        everything.

        Args:
            columns: by which to sort; fields of structs by a path with dots.
            partition_filters: as for :meth:`compact`, like the arguments that are not named here.
            target_size: see :meth:`compact`.
            max_concurrent_tasks: how many partitions are sorted at once.
            max_spill_size: how many bytes of a partition are sorted in memory; None for 256 MiB.
            max_temp_directory_size: how many bytes of temporary files sorting a partition may take.
            min_commit_interval: see :meth:`compact`; a bin is a partition.
            progress: see :meth:`compact`.
            options: see :meth:`compact`.

        Returns:
            What was committed, with the metrics of :meth:`compact`.

        Raises:
            InvalidArgumentError: a column that does not exist, partitions the table, is a struct, an array or a map,
                or has no statistics; and as :meth:`compact`.
            ConcurrentModificationError: another writer's commit conflicts: it changed or removed one of the files.
        """
        request = Request(
            aim="sort",
            columns=columns,
            filters=partition_filters,
            target_size=target_size,
            tasks=max_concurrent_tasks,
            memory=max_spill_size,
            disk=max_temp_directory_size,
            progress=progress,
        )
        return self._run(request, min_commit_interval, options)

    def cluster(
        self,
        target_size: int | None = None,
        max_concurrent_tasks: int | None = None,
        max_spill_size: int | None = None,
        max_temp_directory_size: int | None = None,
        min_commit_interval: float | dt.timedelta | None = None,
        *,
        full: bool = False,
        progress: Progress | None = None,
        **options: Unpack[CommitOptions],
    ) -> CommitResult:
        """Cluster the files of a clustered table by its clustering columns (OPTIMIZE; liquid clustering).

        Rows that are near in all of these columns come to lie in the same files, along Hilbert's curve. Only files are
        taken that are not clustered yet, and those of earlier runs that came to less than a hundred times the target
        size: a second run finds nothing to do. Files that another kind of clustering has made are left to it.

        A clustered table has deletion vectors and tracks rows unless its creator said otherwise. Then this never
        conflicts with UPDATE, DELETE and MERGE, nor with another rewrite of the same files: rows are followed by their
        ids, rows that were deleted meanwhile are hidden in the new files, and runs of which another writer has
        rewritten a file are left out. Finding a row by its id takes about 48 bytes of memory for each row of the new
        files. Without deletion vectors or without row tracking (``delta.enableRowTracking``) it can conflict.

        Args:
            target_size: as for :meth:`compact`, like the arguments that are not named here.
            max_concurrent_tasks: how many runs are sorted at once; a run has up to 150 times the target size.
            max_spill_size: as for :meth:`z_order`.
            max_temp_directory_size: as for :meth:`z_order`.
            min_commit_interval: see :meth:`compact`; a bin is a run.
            full: take files as well that were clustered by other columns.
            progress: see :meth:`compact`.
            options: see :meth:`compact`.

        Returns:
            What was committed, with the metrics of :meth:`compact`.

        Raises:
            InvalidArgumentError: the table has no clustering columns; and as :meth:`compact`.
            ConcurrentModificationError: another writer's commit conflicts: it changed the table itself; or, where the
                table has no deletion vectors or tracks no rows, it changed or removed one of the files.
        """
        request = Request(
            aim="cluster",
            full=full,
            target_size=target_size,
            tasks=max_concurrent_tasks,
            memory=max_spill_size,
            disk=max_temp_directory_size,
            progress=progress,
        )
        return self._run(request, min_commit_interval, options)

    def purge(
        self,
        partition_filters: Any = None,
        target_size: int | None = None,
        max_concurrent_tasks: int | None = None,
        min_commit_interval: float | dt.timedelta | None = None,
        *,
        progress: Progress | None = None,
        **options: Unpack[CommitOptions],
    ) -> CommitResult:
        """As :meth:`refdelta.DeltaTable.reorg_purge`."""
        request = Request(
            aim="purge",
            filters=partition_filters,
            target_size=target_size,
            tasks=max_concurrent_tasks,
            progress=progress,
        )
        return self._run(request, min_commit_interval, options)

    def _run(self, request: Request, interval: float | dt.timedelta | None, options: CommitOptions) -> CommitResult:
        if interval is not None and records_applications(options):
            raise InvalidArgumentError(
                "the version of an application is recorded by one commit: no min_commit_interval"
            )
        work, results = Work(_seconds(interval)), []
        while work.plan is None or work.left:
            with self._begin(**options) as txn:
                txn.optimize(request, work)
                results.append(txn.commit())
        return combined(results)


def _seconds(interval: float | dt.timedelta | None) -> float | None:
    if isinstance(interval, dt.timedelta):
        interval = interval.total_seconds()
    if interval is not None and interval < 0:
        raise InvalidArgumentError(f"min_commit_interval is {interval}; it cannot be negative")
    return interval
