"""A scan: which files of a snapshot are read, which need not be, and the rows as a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta import arguments
from refdelta.core.log.paths import data_key
from refdelta.core.table.row_tracking import ASKED, asked_columns, is_enabled, kind_of
from refdelta.core.table.types import StructField, StructType
from refdelta.engine.expressions.partition import partition_table
from refdelta.engine.log.state import to_descriptor
from refdelta.engine.parquet.dv import VectorLoader
from refdelta.engine.scan.chunking import at_most
from refdelta.engine.scan.executor import ThreadExecutor
from refdelta.engine.scan.file_stats import num_records
from refdelta.engine.scan.filters import BoundFilter, informed, row_filter
from refdelta.engine.scan.reader import ReadPlan, ScanFile, count_rows, read_file
from refdelta.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.engine.scan.filters import Pruned, RowFilter


@dataclass(frozen=True)
class ScanExplanation:
    """What a scan does, for people as text (``str``), for programs as :meth:`as_dict`.

    Attributes:
        table: the table's URI.
        version: the version that is read.
        columns: the columns that come out.
        predicate: the predicate as text, or None.
        derived: what it says of partition columns that are generated, as text, or None.
        rows_filtered: whether rows of the files that are read are looked at one by one.
        files: how many live files the version has.
        files_read: how many of them are read.
        pruned_by_partition: how many are left out for their partition values.
        pruned_by_stats: how many are left out for their statistics.
        bytes: the size of the live files.
        bytes_read: the size of those that are read.
        deletion_vectors: how many of those that are read have a deletion vector.
        paths: those that are read, as the log writes their paths.
        pruned: path and reason of those that are not.
    """

    table: str
    version: int
    columns: tuple[str, ...]
    predicate: str | None
    derived: str | None
    rows_filtered: bool
    files: int
    files_read: int
    pruned_by_partition: int
    pruned_by_stats: int
    bytes: int
    bytes_read: int
    deletion_vectors: int
    paths: tuple[str, ...] = field(repr=False)
    pruned: tuple[tuple[str, str], ...] = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, fit for JSON."""
        return {
            name: [list(item) if isinstance(item, tuple) else item for item in value]
            if isinstance(value, tuple)
            else value
            for name, value in vars(self).items()
        }

    def __str__(self) -> str:
        pruned = f"{self.pruned_by_partition} pruned by partition, {self.pruned_by_stats} by statistics"
        lines = [
            f"scan of {self.table}, version {self.version}",
            f"  columns: {', '.join(self.columns) or '(none)'}",
            f"  predicate: {self.predicate or '(none)'}"
            + (", applied to the rows of the files read" if self.rows_filtered else ""),
            f"  files: {self.files_read} of {self.files} read, {pruned}",
            f"  bytes: {self.bytes_read:,} of {self.bytes:,} in these files",
        ]
        if self.derived is not None:
            lines.insert(3, f"  of generated partition columns: {self.derived}")
        if self.deletion_vectors:
            lines.append(f"  deletion vectors: on {self.deletion_vectors} of the files read")
        lines += [f"    read    {path}" for path in self.paths[:_SHOWN]]
        lines += [f"    pruned  {path}  ({reason})" for path, reason in self.pruned[:_SHOWN]]
        more = max(0, len(self.paths) - _SHOWN) + max(0, len(self.pruned) - _SHOWN)
        if more:
            lines.append(f"    and {more} more")
        return "\n".join(lines)


ONLY = "only\n"
"""A further column of a list of files: a deletion vector that names the rows which are wanted of each, or null."""

_SHOWN = 20
_SMALL_BYTES = 2**18


class RowStream(ABC):
    """Rows that are read while they are consumed, by whoever takes Arrow streams."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""

    @abstractmethod
    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in batches."""

    def to_reader(self) -> pa.RecordBatchReader:
        """As :meth:`to_batches`, as a ``RecordBatchReader``."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """All rows in memory. Raises as :meth:`to_batches`."""
        return pa.Table.from_batches(list(self.to_batches()), self.schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as an Arrow C stream, read while they are consumed."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


@dataclass(frozen=True, eq=False)
class Scan(RowStream):
    """A read of one version, planned and not yet begun. It may be run as often as wanted.

    Anything that takes Arrow streams takes a scan: it has ``__arrow_c_stream__``.

    Attributes:
        snapshot: the version that is read.
        plan: what is made of each file.
        files: the rows of the snapshot's file list that are read, in its order.
        predicate: the filter, or None; ``plan.row_filter`` is None where pruning already did all of it.
        pruned: which files pruning kept; None without a predicate.
        executor: who reads.
    """

    snapshot: Snapshot
    plan: ReadPlan
    files: pa.Table
    predicate: RowFilter | None = None
    pruned: Pruned | None = field(default=None, repr=False)
    executor: ThreadExecutor = field(default_factory=ThreadExecutor, repr=False)

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self.plan.schema

    @property
    def store(self) -> Any:
        """The table's folder."""
        return self.snapshot.store

    @property
    def footers(self) -> ThreadExecutor:
        """Who reads what is small of each file."""
        return ThreadExecutor.for_store(self.store) if self.store.capabilities.remote else self.executor

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in batches, in the order of the file list and of the rows in each file.

        Files are read in parallel; what waits for its turn is bounded (``executor.LOOK_AHEAD_BYTES``).

        Raises:
            DataFileNotFoundError: a file that the log names is gone.
            DataFileError: a file is damaged or is not Parquet.
            UnsafePathError: a path of the log leaves the table.
        """
        files = scan_files(self)
        # Where no file is waited for, it takes longer to hand a small one to another thread than to read it.
        most = 0 if self.store.capabilities.remote else _SMALL_BYTES
        tasks = list(at_most(files, lambda file: file.size, most))
        return self.executor.stream(self._read, tasks, weigh=lambda batch: int(batch.nbytes))

    def _read(self, files: Sequence[ScanFile]) -> Iterator[pa.RecordBatch]:
        for file in files:
            yield from read_file(self.store, file, self.plan)

    def count(self) -> int:
        """How many rows come out.

        Without a filter on rows it is known from statistics, or from footers where a file has none. Raises as
        :meth:`to_batches`.
        """
        if self.plan.row_filter is not None:
            narrow = ReadPlan(
                (), self._filter_fields(), self.plan.partition_columns, self.plan.row_filter, self.plan.by_id
            )
            counting = Scan(self.snapshot, narrow, self.files, self.predicate, self.pruned, self.executor)
            return sum(batch.num_rows for batch in counting.to_batches())
        return sum(self.file_counts())

    def file_counts(self) -> list[int]:
        """How many live rows each file of the scan has, whether or not they meet the filter.

        It is known from statistics, or from footers where a file has none. Raises as :meth:`to_batches`.
        """
        cardinalities = pc.coalesce(pc.struct_field(self.files.column("deletionVector"), "cardinality"), 0)
        counts: list[int | None] = pc.subtract(num_records(self.files), cardinalities).to_pylist()
        unknown = [index for index, count in enumerate(counts) if count is None]
        if unknown:
            rest = Scan(self.snapshot, ReadPlan(()), self.files.take(unknown), executor=self.executor)
            found = self.footers.map(lambda file: count_rows(self.store, file), scan_files(rest))
            counts = [count if count is not None else next(found) for count in counts]
        return [count for count in counts if count is not None]

    def explain(self) -> ScanExplanation:
        """Which files are read, which are not, and why."""
        files = self.snapshot.files
        by_reason: list[tuple[str, str]] = []
        if self.pruned is not None:
            dropped = pc.invert(self.pruned.keep)
            reasons = self.pruned.reason.filter(dropped).cast(pa.string()).to_pylist()
            by_reason = list(zip(files.column("path").filter(dropped).to_pylist(), reasons, strict=True))
        vectors = self.files.column("deletionVector")
        derived = self.predicate.derived if isinstance(self.predicate, BoundFilter) else None
        return ScanExplanation(
            table=self.store.uri,
            version=self.snapshot.version,
            columns=tuple(self.schema.names),
            predicate=None if self.predicate is None else str(self.predicate),
            derived=None if derived is None else str(derived),
            rows_filtered=self.plan.row_filter is not None,
            files=files.num_rows,
            files_read=self.files.num_rows,
            pruned_by_partition=sum(reason == "partition" for _, reason in by_reason),
            pruned_by_stats=sum(reason == "stats" for _, reason in by_reason),
            bytes=self.snapshot.size_bytes,
            bytes_read=pc.sum(self.files.column("size")).as_py() or 0,
            deletion_vectors=len(vectors) - vectors.null_count,
            paths=tuple(self.files.column("path").to_pylist()),
            pruned=tuple(by_reason),
        )

    def _filter_fields(self) -> tuple[Any, ...]:
        wanted = self.predicate.columns if self.predicate is not None else frozenset()
        return tuple(item for item in _with_ids(self.snapshot) if item.name in wanted)


def plan_scan(
    snapshot: Snapshot,
    columns: Sequence[str] | None = None,
    predicate: Any = None,
    *,
    executor: ThreadExecutor | None = None,
) -> Scan:
    """Plan a read.

    Args:
        snapshot: the version to read.
        columns: the columns that come out, in this order, by name in any case; None for all. An empty list gives rows
            without columns. Where the table tracks rows, ``_metadata.row_id`` and ``_metadata.row_commit_version`` are
            columns, too, but not among all. A predicate may ask for them in any case.
        predicate: SQL, deltalake's list form, a ``pyarrow.compute.Expression``, a bound predicate, or None. Rows for
            which it is unknown are left out.
        executor: who reads; None for threads, as many as the store wants.

    Returns:
        The scan; nothing but the log has been read.

    Raises:
        ColumnNotFoundError: there is no such column.
        InvalidArgumentError: a column is asked for twice, or ``columns`` is no list of names; row ids of a table that
            does not track rows.
        PredicateError: the predicate cannot be parsed or bound.
        UnsupportedTypeError: a column has a type that this engine lacks.
    """
    schema = snapshot.schema
    wanted = tuple(schema) if columns is None else _chosen(snapshot, columns)
    searched = schema if predicate is None else _with_ids(snapshot)
    files, flt, pruned = snapshot.files, row_filter(predicate, searched), None
    if flt is not None:
        flt = informed(flt, snapshot)
        # Statistics say nothing of row ids, of which a file may hold some.
        plain = StructType(tuple(i if kind_of(i) is None else StructField(i.name, i.type) for i in searched))
        pruned = flt.prune(files, plain, snapshot.partition_columns)
        files = files.filter(pruned.keep)
    rows = flt if pruned is not None and not pruned.exact else None
    names = {item.name for item in wanted}
    plan = ReadPlan(
        columns=wanted,
        filter_columns=tuple(i for i in searched if rows is not None and i.name in rows.columns - names),
        partition_columns=frozenset(snapshot.partition_columns),
        row_filter=rows,
        by_id=snapshot.column_mapping_mode == "id",
    )
    executor = executor or ThreadExecutor.for_store(snapshot.store, files.column("size"))
    return Scan(snapshot, plan, files, flt, pruned, executor)


def _chosen(snapshot: Snapshot, columns: Sequence[str]) -> tuple[StructField, ...]:
    if isinstance(columns, str):
        raise InvalidArgumentError(f"columns must be a list of names, not the string {columns!r}")
    schema = snapshot.schema
    wanted = tuple(
        _of_rows(snapshot, name) if name in ASKED and name not in schema else schema.field(name)
        for name in arguments.names("columns", columns) or ()
    )
    twice = [name for name, count in Counter(item.name for item in wanted).items() if count > 1]
    if twice:
        raise InvalidArgumentError(f"the column {twice[0]!r} is asked for twice")
    return wanted


def _of_rows(snapshot: Snapshot, name: str) -> StructField:
    """What rows keep, under the name by which it is asked for."""
    found = _with_ids(snapshot).find(name)
    if found is None:
        raise InvalidArgumentError(f"there is no {name}: the table does not track rows (delta.enableRowTracking)")
    return found


def _with_ids(snapshot: Snapshot) -> StructType:
    """The schema, and behind it what rows keep, where they keep it."""
    if not is_enabled(snapshot.protocol, snapshot.metadata):
        return snapshot.schema
    kept = asked_columns(snapshot.metadata.configuration or {})
    return StructType((*snapshot.schema, *(item for item in kept if item.name not in snapshot.schema)))


def scan_files(scan: Scan) -> list[ScanFile]:
    """The files of a scan, each with all that a worker needs to read it.

    Raises:
        UnsafePathError: a path leaves the table.
        InvalidLogError: a partition value is no value of its column's type.
    """
    files, schema = scan.files, scan.snapshot.schema
    partitions = [item.name for item in scan.plan.read if item.name in scan.plan.partition_columns]
    values = partition_table(files, schema, partitions)
    columns = {name: values.column(name) for name in partitions}
    uri, kept = scan.store.uri, any(kind_of(item) is not None for item in scan.plan.read)
    rows = zip(
        files.column("path").to_pylist(),
        files.column("size").to_pylist(),
        files.column("deletionVector").to_pylist(),
        _listed(files, "baseRowId", wanted=kept),
        _listed(files, "defaultRowCommitVersion", wanted=kept),
        _listed(files, ONLY, wanted=ONLY in files.column_names),
        strict=True,
    )
    planned = [
        ScanFile(
            key=data_key(path, uri),
            size=size,
            partition_values={name: column[i] for name, column in columns.items()},
            deletion_vector=None if vector is None else to_descriptor(vector),
            base_row_id=base,
            commit_version=since,
            only=None if only is None else to_descriptor(only),
        )
        for i, (path, size, vector, base, since, only) in enumerate(rows)
    ]
    vectors = VectorLoader(scan.store, [file.deletion_vector for file in planned if file.deletion_vector is not None])
    return [file if file.deletion_vector is None else replace(file, vectors=vectors) for file in planned]


def _listed(files: pa.Table, column: str, *, wanted: bool) -> list[Any]:
    """A column of a list of files, which may be long; None for each file where nobody wants it."""
    return files.column(column).to_pylist() if wanted else [None] * files.num_rows
