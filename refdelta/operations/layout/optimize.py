"""OPTIMIZE, OPTIMIZE ZORDER BY and REORG: the same rows in other files. All actions have ``dataChange`` false."""

from __future__ import annotations

import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from refdelta import arguments
from refdelta.arrow.arrays import empty_table
from refdelta.engine.log.managed_log import check_maintenance
from refdelta.engine.log.state import FILE_SCHEMA
from refdelta.engine.parquet.column_stats import stats_leaves
from refdelta.engine.parquet.write import TARGET_FILE_SIZE
from refdelta.engine.work.executor import ThreadExecutor
from refdelta.errors import ColumnNotFoundError, InvalidArgumentError
from refdelta.operations.layout.bins import (
    Bin,
    BinFiles,
    BinPlan,
    cube_columns,
    partition_filter,
    plan_bins,
    plan_clusters,
)
from refdelta.operations.layout.compaction import Rewriter
from refdelta.operations.shared.clustering import check_not_clustered, clustered_by
from refdelta.table.column_names import find_column
from refdelta.table.row_tracking import is_enabled
from refdelta.table.types import VARIANT, ArrayType, MapType, StructType
from refdelta.transaction.results import CommitResult

if TYPE_CHECKING:
    from refdelta.core.log.actions import Add
    from refdelta.core.rows.relocation import Group
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.engine.scan.filters import RowFilter
    from refdelta.engine.scan.zorder import Column
    from refdelta.operations.layout import Aim
    from refdelta.transaction.transaction import Transaction

# The default number of bins that are rewritten at once; each takes a few hundred megabytes if its files are large.
_TASKS = 4

Progress = Callable[[int, int], None]
"""Called with the number of finished bins and the number of all bins."""


@dataclass(frozen=True, kw_only=True)
class OptimizeRequest:
    """The aim of a rewrite and its arguments; see :class:`refdelta.api.optimizer.TableOptimizer`.

    Attributes:
        aim: the aim of the rewrite.
        filters: the partitions, as :func:`~refdelta.operations.layout.bins.partition_filter` takes them; None for all.
        columns: the columns to sort by, for the aim ``sort``.
        target_size: the approximate size of a file, in bytes; None for ``delta.targetFileSize``, or 128 MiB.
        min_size: the size in bytes from which a file is rewritten only if many of its rows are deleted; None for the
            target.
        tasks: the number of bins that are rewritten at once; None for one per processor, at most 4.
        memory: the number of bytes that are sorted at once; None for 256 MiB.
        disk: the maximum size of the temporary files of a task, in bytes; None for no limit.
        full: also cluster files that were clustered by other columns.
        auto: whether it is an auto-compaction.
        progress: called with the progress of the rewrite.
    """

    aim: Aim
    filters: Any = None
    columns: Sequence[str] = ()
    target_size: int | None = None
    min_size: int | None = None
    tasks: int | None = None
    memory: int | None = None
    disk: int | None = None
    full: bool = False
    auto: bool = False
    progress: Progress | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        amounts = {"target_size": self.target_size, "max_concurrent_tasks": self.tasks, "max_spill_size": self.memory}
        for name, amount in amounts.items():
            if (number := arguments.whole(name, amount)) is not None and number <= 0:
                raise InvalidArgumentError(f"{name} is {amount}; it must be positive")
        for name, amount in {"min_file_size": self.min_size, "max_temp_directory_size": self.disk}.items():
            if (number := arguments.whole(name, amount)) is not None and number < 0:
                raise InvalidArgumentError(f"{name} is {amount}; it cannot be negative")
        arguments.names("columns", self.columns)


@dataclass
class OptimizeWork:
    """The state of a rewrite that is committed in several parts.

    Attributes:
        seconds: the time after which a part begins no further bin; it takes at least one. None for all bins.
        plan: the plan; None before the first part.
        left: the bins that no part has taken yet.
        done: the bins that were committed, with their groups.
    """

    seconds: float | None = None
    plan: BinPlan | None = None
    left: deque[Bin] = field(default_factory=deque)
    done: list[tuple[Bin, Group]] = field(default_factory=list)

    def skip(self) -> None:
        """Drop the rest of the work, since the application's version is recorded already."""
        self.plan = self.plan or BinPlan(empty_table(FILE_SCHEMA), [])
        self.left.clear()


Report = Callable[[Sequence["Group"]], dict[str, Any]]
"""Called after the commit with its kept groups; returns the metrics of the result, by deltalake's names."""


def optimize(
    txn: Transaction, snapshot: Snapshot, request: OptimizeRequest, work: OptimizeWork | None = None
) -> Report:
    """Stage a rewrite of files; nothing if no file needs it.

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        request: the aim of the rewrite and its arguments.
        work: the work that earlier transactions left, which this one continues; None to rewrite all.

    Returns:
        A function that returns the metrics after the commit, for ``txn.kept_groups``.

    Raises:
        InvalidArgumentError: the filter uses a column that is not a partition column; a column to sort by does not
            exist, is a partition column, or has no order or no statistics; a size is not positive.
        PredicateError: the filter cannot be parsed or bound.
        DataFileError: a file cannot be read.
        UnsupportedFeatureError: the catalog of the table does not permit maintenance.
    """
    check_maintenance(snapshot.store, "optimize")
    columns, filters, target = _settled(request, snapshot)
    work = OptimizeWork() if work is None else work
    plan = work.plan
    if plan is None:
        plan = work.plan = planned(snapshot, request)
        work.left.extend(plan.bins)
    else:
        # Bins with files that other writers changed since the plan are left out.
        work.left = deque(plan.unchanged(work.left, snapshot))
    done = _rewrite(txn, snapshot, request, plan, work, columns, target)
    txn.replace_files([group for _, group in done], _operation_metrics)
    _describe(txn, request, filters, columns)

    def report(kept: Sequence[Group]) -> dict[str, Any]:
        bins = {one.add.path: each for each, group in done for one in group.inputs}
        work.done.extend((bins[group.inputs[0].add.path], group) for group in kept)
        return _metrics(request, work)

    return report


def planned(snapshot: Snapshot, request: OptimizeRequest) -> BinPlan:
    """The plan of a rewrite, by the log alone. Errors are those of :func:`optimize`, except ``DataFileError``."""
    _, filters, target = _settled(request, snapshot)
    if request.aim == "cluster":
        return plan_clusters(snapshot, target, full=request.full)
    min_size = target if request.min_size is None else request.min_size
    return plan_bins(snapshot, request.aim, filters=filters, target=target, min_size=min_size)


def check_followed(snapshot: Snapshot, statement: str) -> None:
    """Warn, before the work, if changes of rows by other writers conflict with a rewrite that sorts them.

    Args:
        snapshot: the snapshot that it reads.
        statement: the name of the statement.
    """
    if snapshot.properties.enable_deletion_vectors and is_enabled(snapshot.protocol, snapshot.metadata):
        return
    warnings.warn(
        f"{statement} sorts rows, and each DELETE, UPDATE or MERGE that changes them meanwhile conflicts with it, in "
        "every attempt. Enable deletion vectors and row tracking, by which rows are followed "
        "(delta.enableDeletionVectors, delta.enableRowTracking), or sort while no other writer changes rows",
        UserWarning,
        stacklevel=4,
    )


def _settled(request: OptimizeRequest, snapshot: Snapshot) -> tuple[tuple[Column, ...], RowFilter | None, int]:
    """The columns to sort by, the partition filter and the target size of a request."""
    columns: tuple[Column, ...] = ()
    if request.aim == "sort":
        columns = sort_columns(snapshot, _listed(request.columns))
    elif request.aim == "cluster":
        columns = clustered_by(snapshot.clustering_columns)
    target = request.target_size or snapshot.properties.target_file_size or TARGET_FILE_SIZE
    return columns, partition_filter(request.filters, snapshot), target


def sort_columns(snapshot: Snapshot, names: Sequence[str]) -> tuple[Column, ...]:
    """The paths of the columns to sort by, spelled as in the schema; they may be fields of structs.

    Raises:
        InvalidArgumentError: the table is clustered; there is no column; one is named twice, does not exist, is a
            partition column, has no order, or has no statistics, so that no file could be skipped by it.
    """
    check_not_clustered(snapshot.protocol, snapshot.clustering_columns)
    if not names:
        raise InvalidArgumentError("z_order needs at least one column to sort by")
    columns: list[Column] = []
    for name in names:
        column = _sort_column(snapshot, name)
        if column in columns:
            raise InvalidArgumentError(f"the column {name!r} is named twice")
        columns.append(column)
    return tuple(columns)


def _sort_column(snapshot: Snapshot, name: str) -> Column:
    found = find_column(snapshot.schema, name)
    if found is None:
        raise ColumnNotFoundError(name, snapshot.schema.names)
    path, here = found
    if path[0] in snapshot.partition_columns:
        raise InvalidArgumentError(f"cannot sort by {name!r}: it is a partition column, with one value in each file")
    if isinstance(here, (StructType, ArrayType, MapType)) or here == VARIANT:
        raise InvalidArgumentError(f"cannot sort by {name!r}: it is {_article(here)}, which has no order")
    if path not in {leaf.path for leaf in _leaves(snapshot)}:
        raise InvalidArgumentError(
            f"cannot sort by {name!r}: it has no statistics, so that no file could be skipped by it; "
            "delta.dataSkippingStatsColumns or delta.dataSkippingNumIndexedCols set the columns with statistics"
        )
    return path


def _leaves(snapshot: Snapshot) -> Iterator[Any]:
    return iter(stats_leaves(snapshot.schema, snapshot.partition_columns, snapshot.properties))


def _article(kind: Any) -> str:
    return {StructType: "a struct", ArrayType: "an array", MapType: "a map"}.get(type(kind), "a variant")


def _listed(columns: Sequence[str]) -> list[str]:
    return [columns] if isinstance(columns, str) else list(columns)


def _rewrite(
    txn: Transaction,
    snapshot: Snapshot,
    request: OptimizeRequest,
    plan: BinPlan,
    work: OptimizeWork,
    columns: tuple[Column, ...],
    target: int,
) -> list[tuple[Bin, Group]]:
    cores = os.cpu_count() or 1
    tasks = min(request.tasks or min(_TASKS, cores), max(1, len(work.left)))
    executor = txn.executor or ThreadExecutor(tasks)
    # With an executor of the user, which decides how many bins are rewritten at once, each bin uses all processors.
    workers = max(1, min(8, cores) // tasks) if txn.executor is None else None
    bare = snapshot.tracked().without_files()
    clusters = request.aim == "cluster"
    rewriter = Rewriter(bare, target, workers, columns, clusters, memory=request.memory, disk=request.disk)
    total, done, taken = len(work.left), [], deque[Bin]()

    def own(group: Group) -> None:
        txn.own_files(output.add for output in group.outputs)

    def tell() -> Iterator[BinFiles]:
        for each in _taken(work):
            taken.append(each)
            yield plan.files_of(each)

    for group in executor.map(rewriter.rewrite, tell(), done=own, writes=txn.store):
        done.append((taken.popleft(), group))
        if request.progress:
            request.progress(len(done), total)
    return done


def _taken(work: OptimizeWork) -> Iterator[Bin]:
    """The bins that are left, until the time of the part is over."""
    started = time.monotonic()
    while work.left:
        yield work.left.popleft()
        if work.seconds is not None and time.monotonic() - started >= work.seconds:
            return


# --- the description of the commit -------------------------------------------------------------------------------


def _describe(
    txn: Transaction, request: OptimizeRequest, filters: RowFilter | None, columns: tuple[Column, ...]
) -> None:
    predicate = msgspec.json.encode([] if filters is None else [str(filters)]).decode()
    if request.aim == "purge":
        operation, parameters = "REORG", {"predicate": predicate, "applyPurge": "true"}
    else:
        sorted_by = msgspec.json.encode(_listed(request.columns)).decode()
        clustered = cube_columns(columns) if request.aim == "cluster" else "[]"
        operation, parameters = "OPTIMIZE", {"predicate": predicate, "zOrderBy": sorted_by, "clusterBy": clustered}
        parameters["auto"] = str(request.auto).lower()
    txn.describe(operation, parameters, {})


def _files(groups: Iterable[Group]) -> tuple[list[Add], list[Add]]:
    """The added files and the removed files."""
    groups = list(groups)
    added = [output.add for group in groups for output in group.outputs]
    return added, [each.add for group in groups for each in group.inputs]


def _metrics(request: OptimizeRequest, work: OptimizeWork) -> dict[str, Any]:
    added, removed = _files(group for _, group in work.done)
    considered = work.plan.files.num_rows if work.plan else 0
    return {
        "numFilesAdded": len(added),
        "numFilesRemoved": len(removed),
        "filesAdded": _sizes(added),
        "filesRemoved": _sizes(removed),
        "partitionsOptimized": len({each.partition for each, _ in work.done}),
        "numBatches": len(work.done),
        "totalConsideredFiles": considered,
        "totalFilesSkipped": considered - len(removed),
        "preserveInsertionOrder": request.aim not in ("sort", "cluster"),
        "numDeletionVectorsRemoved": sum(add.deletion_vector is not None for add in removed),
    }


def _operation_metrics(groups: Sequence[Group]) -> dict[str, int]:
    """The ``operationMetrics`` of the history, by Spark's names."""
    added, removed = _files(groups)
    vectors = [add.deletion_vector for add in removed if add.deletion_vector is not None]
    counts = {
        "numAddedFiles": len(added),
        "numRemovedFiles": len(removed),
        "numAddedBytes": sum(add.size for add in added),
        "numRemovedBytes": sum(add.size for add in removed),
        "numDeletionVectorsRemoved": len(vectors),
    }
    if not added:
        return counts
    sizes, count = sorted(add.size for add in added), len(added)
    quartiles = {
        "p25FileSize": sizes[count // 4],
        "p50FileSize": sizes[count // 2],
        "p75FileSize": sizes[count * 3 // 4],
    }
    return {**counts, "minFileSize": sizes[0], **quartiles, "maxFileSize": sizes[-1]}


def _sizes(files: list[Add]) -> dict[str, Any]:
    """The sizes of some files in bytes, by deltalake's names."""
    sizes = [add.size for add in files]
    total = sum(sizes)
    return {
        "avg": total / len(sizes) if sizes else 0.0,
        "max": max(sizes, default=0),
        "min": min(sizes, default=0),
        "totalFiles": len(sizes),
        "totalSize": total,
    }


def combined(results: Sequence[CommitResult]) -> CommitResult:
    """One result for a rewrite that was committed in several parts, in their order."""
    times = {
        name: sum(result.metrics.get(name, 0) for result in results) for name in ("execution_time_ms", "num_retries")
    }
    return CommitResult(
        version=max((result.version for result in results if result.version is not None), default=None),
        attempts=sum(result.attempts for result in results),
        rebased_over=tuple(version for result in results for version in result.rebased_over),
        fallbacks=tuple(dict.fromkeys(reason for result in results for reason in result.fallbacks)),
        # The metrics of the last part include those of the parts before.
        metrics={**results[-1].metrics, **times},
    )
