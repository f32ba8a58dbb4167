"""``DeltaTable.optimize``: rewrites of data files that change no row."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Unpack

from refdelta import arguments
from refdelta.errors import InvalidArgumentError
from refdelta.operations.layout import STATEMENTS
from refdelta.operations.layout.optimize import OptimizeRequest, OptimizeWork, Progress, check_followed, combined
from refdelta.transaction.options import records_applications, without_attempts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from refdelta.api.handle import Handle
    from refdelta.transaction.options import StatementOptions
    from refdelta.transaction.results import CommitResult


class TableOptimizer:
    """OPTIMIZE; made by :attr:`refdelta.DeltaTable.optimize`.

    The commits change no data, so streams skip them. On a table with deletion vectors, :meth:`compact` does not
    conflict with concurrent DELETE, UPDATE and MERGE (concurrency.md, number 6); neither does :meth:`cluster` if the
    table also tracks rows. :meth:`z_order` can conflict with them.

    Example::

        result = table.optimize.compact(min_file_size=1 << 20)
        result["numFilesRemoved"]
    """

    def __init__(self, handle: Handle):
        self._handle = handle

    def __repr__(self) -> str:
        return f"<OPTIMIZE of {self._handle.store.uri}: compact(), z_order(), cluster()>"

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
        **options: Unpack[StatementOptions],
    ) -> CommitResult:
        """Merge small files (OPTIMIZE), and rewrite files of which more than one row in twenty is deleted.

        The files of a partition are merged in the order in which they were written, up to the target size; rows keep
        their order. A second run has nothing to do.

        On a clustered table only the files that are not clustered yet are merged; :meth:`cluster` sorts them. A
        clustered file with many deleted rows is rewritten alone, and stays clustered.

        Args:
            partition_filters: the partitions: SQL over partition columns, or deltalake's list of conditions.
            target_size: the approximate size of a file in bytes; None for ``delta.targetFileSize``, or 128 MiB if that
                is not set. Writes complete a file at the same size, so that full files are not rewritten.
            max_concurrent_tasks: the number of bins that are merged at once; None for one per processor, at most 4.
                Each takes a few hundred megabytes of memory if files are large.
            max_spill_size: accepted as for :meth:`z_order`, but not used: nothing is sorted.
            max_temp_directory_size: accepted as for :meth:`z_order`, but not used.
            min_commit_interval: commit the finished bins after this many seconds, and continue; 0 for a commit for each
                bin. None for one commit at the end.
            min_file_size: files of at least this many bytes are not rewritten, unless many of their rows are deleted;
                None for the target size.
            progress: called with the number of finished bins and the number of all bins.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`. An ``executor`` decides
                how many bins are merged at once.

        Returns:
            The result of the last commit; ``version`` is None if there was nothing to do. Metrics, over all commits:
            ``numFilesAdded``, ``numFilesRemoved``, ``filesAdded`` and ``filesRemoved`` (``avg``, ``min``, ``max``,
            ``totalFiles``, ``totalSize`` in bytes), ``partitionsOptimized``, ``numBatches`` (bins),
            ``totalConsideredFiles``, ``totalFilesSkipped``, ``preserveInsertionOrder``, ``numDeletionVectorsRemoved``.

        Raises:
            InvalidArgumentError: a filter uses a column that is not a partition column, or a size is not positive.
            PredicateError: the filter cannot be parsed or bound.
            ConcurrentModificationError: another writer's commit conflicts; on a table with deletion vectors, only one
                that changed the table's metadata or protocol.

        Example::

            table.optimize.compact(partition_filters=None, target_size=64 << 20)
        """
        request = OptimizeRequest(
            aim="compact",
            filters=partition_filters,
            target_size=target_size,
            min_size=min_file_size,
            tasks=max_concurrent_tasks,
            memory=max_spill_size,
            disk=max_temp_directory_size,
            progress=progress,
        )
        return optimized(self._handle, request, options, min_commit_interval)

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
        **options: Unpack[StatementOptions],
    ) -> CommitResult:
        """Rewrite all files, with the rows of each partition in the order of a Z-curve (OPTIMIZE ZORDER BY).

        Rows that are close in all of the columns get into the same files, so that a query over any of them skips most
        files. A partition that does not fit into memory is sorted with temporary files. Every run rewrites all files.

        A DELETE, UPDATE or MERGE that commits meanwhile conflicts with it, unless the table has deletion vectors and
        row tracking (``delta.enableRowTracking``), by which rows are followed. If ``attempts`` asks for more than one
        attempt on such a table, there is a ``UserWarning`` before the work.

        Args:
            columns: the columns to sort by; a field of a struct is a path with dots.
            partition_filters: see :meth:`compact`.
            target_size: see :meth:`compact`.
            max_concurrent_tasks: the number of partitions that are sorted at once.
            max_spill_size: the number of bytes of a partition that are sorted in memory; None for 256 MiB.
            max_temp_directory_size: the maximum size of temporary files of a partition, in bytes.
            min_commit_interval: see :meth:`compact`; a bin is a partition.
            progress: see :meth:`compact`.
            options: see :meth:`compact`.

        Returns:
            The result of the last commit, with the metrics of :meth:`compact`.

        Raises:
            InvalidArgumentError: a column does not exist, is a partition column, is a struct, an array or a map, or has
                no statistics; and as :meth:`compact`.
            ConcurrentModificationError: another writer's commit conflicts: it changed or removed one of the files.

        Example::

            table.optimize.z_order(["day", "amount"])
        """
        request = OptimizeRequest(
            aim="sort",
            columns=columns,
            filters=partition_filters,
            target_size=target_size,
            tasks=max_concurrent_tasks,
            memory=max_spill_size,
            disk=max_temp_directory_size,
            progress=progress,
        )
        return optimized(self._handle, request, options, min_commit_interval)

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
        **options: Unpack[StatementOptions],
    ) -> CommitResult:
        """Cluster the files of a clustered table by its clustering columns (OPTIMIZE; liquid clustering).

        Rows that are close in all of these columns get into the same files, along Hilbert's curve. Rewritten are the
        files that are not clustered yet, and runs of earlier calls of less than a hundred times the target size. A
        second call has nothing to do. Files that another clustering provider wrote are not touched.

        A clustered table has deletion vectors and row tracking by default. Then this never conflicts with UPDATE,
        DELETE and MERGE, nor with another rewrite of the same files: rows are located by their ids, rows that were
        deleted meanwhile are hidden in the new files, and a run is left out if another writer rewrote one of its files.
        Locating rows takes about 48 bytes of memory for each row of the new files. Without deletion vectors or row
        tracking (``delta.enableRowTracking``), this can conflict, with a warning as for :meth:`z_order`.

        Args:
            target_size: see :meth:`compact`.
            max_concurrent_tasks: the number of runs that are sorted at once; a run has up to 150 times the target size.
            max_spill_size: see :meth:`z_order`.
            max_temp_directory_size: see :meth:`z_order`.
            min_commit_interval: see :meth:`compact`; a bin is a run.
            full: also rewrite files that were clustered by other columns.
            progress: see :meth:`compact`.
            options: see :meth:`compact`.

        Returns:
            The result of the last commit, with the metrics of :meth:`compact`.

        Raises:
            InvalidArgumentError: the table has no clustering columns; and as :meth:`compact`.
            ConcurrentModificationError: another writer's commit conflicts: it changed the table's metadata or protocol;
                or, without deletion vectors or row tracking, it changed or removed one of the files.

        Example::

            table.alter.cluster_by("day")
            table.optimize.cluster()
        """
        request = OptimizeRequest(
            aim="cluster",
            full=full,
            target_size=target_size,
            tasks=max_concurrent_tasks,
            memory=max_spill_size,
            disk=max_temp_directory_size,
            progress=progress,
        )
        return optimized(self._handle, request, options, min_commit_interval)

    def purge(
        self,
        partition_filters: Any = None,
        target_size: int | None = None,
        max_concurrent_tasks: int | None = None,
        min_commit_interval: float | dt.timedelta | None = None,
        *,
        progress: Progress | None = None,
        **options: Unpack[StatementOptions],
    ) -> CommitResult:
        """Same as :meth:`refdelta.DeltaTable.reorg_purge`, and with further arguments, as :meth:`compact`.

        Example::

            table.optimize.purge(min_commit_interval=60)
        """
        request = OptimizeRequest(
            aim="purge",
            filters=partition_filters,
            target_size=target_size,
            tasks=max_concurrent_tasks,
            progress=progress,
        )
        return optimized(self._handle, request, options, min_commit_interval)


def optimized(
    handle: Handle, request: OptimizeRequest, options: StatementOptions, interval: float | dt.timedelta | None = None
) -> CommitResult:
    """Rewrite files, and commit; after a conflict again, as ``attempts`` says.

    Args:
        handle: the handle on the table.
        request: which files, and how.
        options: how to commit.
        interval: how often to commit meanwhile, in seconds; None for once, at the end.
    """
    if interval is not None and records_applications(options):
        raise InvalidArgumentError(
            "min_commit_interval makes several commits, and an application's version is recorded by one: "
            "leave out min_commit_interval, or app_id and app_transactions"
        )
    attempts = handle.most_attempts(options)
    if request.aim in ("sort", "cluster") and isinstance(attempts, int) and attempts > 1:
        check_followed(handle.newest_for_writing(), STATEMENTS[request.aim])
    results: list[CommitResult] = []
    own = without_attempts(options)

    def attempt() -> CommitResult:
        work = OptimizeWork(_seconds(interval))
        while work.plan is None or work.left:
            with handle.begin(**own) as txn:
                txn.optimize(request, work)
                results.append(txn.commit())
        return combined(results)

    return handle.repeated(attempt, options)


def _seconds(interval: float | dt.timedelta | None) -> float | None:
    if isinstance(interval, dt.timedelta):
        interval = interval.total_seconds()
    return arguments.seconds("min_commit_interval", interval)
