"""OPTIMIZE, OPTIMIZE ZORDER BY and REORG: the same rows in other files. No data changes, and every action says so."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from refdelta import arguments
from refdelta.core.table.types import VARIANT, ArrayType, MapType, StructType
from refdelta.engine.parquet.column_stats import stats_leaves
from refdelta.engine.parquet.write import TARGET_FILE_SIZE
from refdelta.engine.scan.executor import ThreadExecutor
from refdelta.errors import ColumnNotFoundError, InvalidArgumentError
from refdelta.operations.alter.names import find_column
from refdelta.operations.layout.bins import Bin, Plan, cube_columns, live, partition_filter, plan_bins, plan_clusters
from refdelta.operations.layout.clustering import check_not_clustered, clustered_by
from refdelta.operations.layout.compaction import Rewriter
from refdelta.transaction.results import CommitResult

if TYPE_CHECKING:
    from refdelta.core.log.actions import Add
    from refdelta.core.rows.relocation import Group
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.engine.scan.filters import RowFilter
    from refdelta.engine.scan.zorder import Column
    from refdelta.operations.layout.bins import Aim
    from refdelta.transaction.transaction import Transaction

# Bins that are rewritten at once, unless said; each holds some hundred megabytes where its files are large.
_TASKS = 4

STATEMENTS: Mapping[Aim, str] = {
    "compact": "compact",
    "sort": "z_order",
    "purge": "reorg_purge",
    "cluster": "cluster",
    "upgrade": "reorg_upgrade_uniform",
}
"""What users call it."""

Progress = Callable[[int, int], None]
"""Called with the number of bins that are done, and of all."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to rewrite, and how.

    Attributes:
        aim: why.
        filters: which partitions, in any form that :func:`~refdelta.operations.layout.bins.partition_filter` takes;
            None for all.
        columns: what to sort by, where that is the aim.
        target_size: about how many bytes a file should have; None for ``delta.targetFileSize``, or else 128 MiB.
        min_size: files of so many bytes are left alone unless many of their rows are deleted; None for the target.
        tasks: how many bins are rewritten at once; None for one a processor, at most 4.
        memory: how many bytes are sorted at once; None for 256 MiB.
        disk: how many bytes of temporary files each task may take to sort; None for no limit.
        full: whether to cluster files as well that were clustered otherwise.
        auto: whether a write has set it off.
        progress: is told how far it is.
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
class Work:
    """What is left to do of a rewrite that is committed in several parts.

    Attributes:
        seconds: for how long a part goes on taking bins; it takes one at least. None for all of them.
        plan: what there was to do, once the first part has begun.
        left: the bins that no part has taken.
        done: those that the parts have committed.
    """

    seconds: float | None = None
    plan: Plan | None = None
    left: deque[Bin] = field(default_factory=deque)
    done: list[tuple[Bin, Group]] = field(default_factory=list)

    def skip(self) -> None:
        """Leave nothing to do: the application's version was recorded already."""
        self.plan = self.plan or Plan([], 0)
        self.left.clear()


Report = Callable[[Sequence["Group"]], dict[str, Any]]
"""Called after the commit with the groups that came to it: what the caller is told, by deltalake's names."""


def optimize(txn: Transaction, snapshot: Snapshot, request: Request, work: Work | None = None) -> Report:
    """Stage a rewrite of files. Nothing is staged where nothing is worth it.

    Args:
        txn: the transaction.
        snapshot: what it sees.
        request: what to rewrite.
        work: what earlier transactions left to do, and what this one leaves; None to do all.

    Returns:
        What gives the metrics once it is committed, with ``txn.kept_groups``.

    Raises:
        InvalidArgumentError: a filter over columns that are no partition columns, a column to sort by that does not
            exist, partitions the table, has no order or no statistics, sizes that are not positive.
        PredicateError: the filter cannot be parsed or bound.
        DataFileError: a file that cannot be read.
    """
    columns, filters, target = _settled(request, snapshot)
    work = Work() if work is None else work
    if work.plan is None:
        work.plan = planned(snapshot, request)
        work.left.extend(work.plan.bins)
    else:
        # What others have changed meanwhile is not what was planned any more.
        work.left = deque(live(work.left, snapshot))
    done = _rewrite(txn, snapshot, request, work, columns, target)
    txn.replace_files([group for _, group in done], _operation_metrics)
    _describe(txn, request, filters, columns)

    def report(kept: Sequence[Group]) -> dict[str, Any]:
        bins = {one.add.path: each for each, group in done for one in group.inputs}
        work.done.extend((bins[group.inputs[0].add.path], group) for group in kept)
        return _metrics(request, work)

    return report


def planned(snapshot: Snapshot, request: Request) -> Plan:
    """What a rewrite would take, by the log alone. Errors are those of :func:`optimize`, but for files."""
    _, filters, target = _settled(request, snapshot)
    if request.aim == "cluster":
        return plan_clusters(snapshot, target, full=request.full)
    min_size = target if request.min_size is None else request.min_size
    return plan_bins(snapshot, request.aim, filters=filters, target=target, min_size=min_size)


def _settled(request: Request, snapshot: Snapshot) -> tuple[tuple[Column, ...], RowFilter | None, int]:
    """What to sort by, which partitions, and up to which size."""
    columns: tuple[Column, ...] = ()
    if request.aim == "sort":
        columns = sort_columns(snapshot, _listed(request.columns))
    elif request.aim == "cluster":
        columns = clustered_by(snapshot.clustering_columns)
    target = request.target_size or snapshot.properties.target_file_size or TARGET_FILE_SIZE
    return columns, partition_filter(request.filters, snapshot), target


def sort_columns(snapshot: Snapshot, names: Sequence[str]) -> tuple[Column, ...]:
    """The paths of columns to sort by, spelled as in the schema; fields of structs too.

    Raises:
        InvalidArgumentError: the table is clustered; there is no column; one is named twice, does not exist, partitions
            the table, has no order, or has no statistics, without which sorted files are no better than others.
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
        raise InvalidArgumentError(f"cannot sort by {name!r}: it is a partition column, and each file has one value")
    if isinstance(here, (StructType, ArrayType, MapType)) or here == VARIANT:
        raise InvalidArgumentError(f"cannot sort by {name!r}: it is {_article(here)}, which has no order")
    if path not in {leaf.path for leaf in _leaves(snapshot)}:
        raise InvalidArgumentError(
            f"cannot sort by {name!r}: the table keeps no statistics of it, so that no file could be skipped for it; "
            "delta.dataSkippingStatsColumns or delta.dataSkippingNumIndexedCols say of which columns it does"
        )
    return path


def _leaves(snapshot: Snapshot) -> Iterator[Any]:
    return iter(stats_leaves(snapshot.schema, snapshot.partition_columns, snapshot.properties))


def _article(kind: Any) -> str:
    return {StructType: "a struct", ArrayType: "an array", MapType: "a map"}.get(type(kind), "a variant")


def _listed(columns: Sequence[str]) -> list[str]:
    return [columns] if isinstance(columns, str) else list(columns)


def _rewrite(
    txn: Transaction, snapshot: Snapshot, request: Request, work: Work, columns: tuple[Column, ...], target: int
) -> list[tuple[Bin, Group]]:
    cores = os.cpu_count() or 1
    tasks = min(request.tasks or min(_TASKS, cores), max(1, len(work.left)))
    executor = txn.executor or ThreadExecutor(tasks)
    # Where another than this decides how many bins are rewritten at once, each takes what threads there are.
    workers = max(1, min(8, cores) // tasks) if txn.executor is None else None
    # A bin has its own files: of the list of all, which may be long, no task needs more.
    bare = snapshot.tracked().without_files()
    clusters = request.aim == "cluster"
    rewriter = Rewriter(bare, target, workers, columns, clusters, memory=request.memory, disk=request.disk)
    total, done, taken = len(work.left), [], deque[Bin]()

    def own(group: Group) -> None:
        txn.own_files(output.add for output in group.outputs)

    def tell() -> Iterator[Bin]:
        for each in _taken(work):
            taken.append(each)
            yield each

    for group in executor.map(rewriter.rewrite, tell(), done=own, writes=txn.store):
        done.append((taken.popleft(), group))
        if request.progress:
            request.progress(len(done), total)
    return done


def _taken(work: Work) -> Iterator[Bin]:
    """The bins that are left, until the time is over."""
    started = time.monotonic()
    while work.left:
        yield work.left.popleft()
        if work.seconds is not None and time.monotonic() - started >= work.seconds:
            return


# --- what the commit says ----------------------------------------------------------------------------------------


def _describe(txn: Transaction, request: Request, filters: RowFilter | None, columns: tuple[Column, ...]) -> None:
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
    """The files that came, and those that went."""
    groups = list(groups)
    added = [output.add for group in groups for output in group.outputs]
    return added, [each.add for group in groups for each in group.inputs]


def _metrics(request: Request, work: Work) -> dict[str, Any]:
    added, removed = _files(group for _, group in work.done)
    considered = work.plan.considered if work.plan else 0
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
    """What the history is told, by Spark's names."""
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
    """What deltalake says of the sizes of some files, in bytes."""
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
        # The last one counts what the parts before it did too.
        metrics={**results[-1].metrics, **times},
    )
