"""A scan: which files of a snapshot are read, which need not be, and the rows as a stream."""

from __future__ import annotations

import itertools
import logging
import sys
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta import arguments
from refdelta.arrow.arrays import exact_sum, narrowed, scalar_of, take
from refdelta.arrow.partition import partition_table
from refdelta.core.log.paths import data_key
from refdelta.engine.log.state import to_descriptor
from refdelta.engine.parquet.dv import VectorLoader
from refdelta.engine.parquet.files import SMALL_BYTES
from refdelta.engine.scan.file_stats import num_deleted, num_records
from refdelta.engine.scan.origin import mark, note, noted
from refdelta.engine.scan.reader import FileReader, ReadPlan, ScanFile, count_rows
from refdelta.engine.work.executor import ThreadExecutor, at_most
from refdelta.errors import DataFileNotFoundError, InvalidArgumentError, UnsupportedFeatureError
from refdelta.table.column_names import named_path
from refdelta.table.row_tracking import ASKED, asked_columns, is_enabled, kind_of
from refdelta.table.schema_edit import Path, find_path
from refdelta.table.types import (
    INTERVAL_DAY_TIME,
    INTERVAL_YEAR_MONTH,
    StructField,
    StructType,
    known_parts,
    unknown_types,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.engine.scan.filters import RowFilter
    from refdelta.engine.scan.skipping import Pruned
    from refdelta_storage.base import Store


@dataclass(frozen=True)
class ScanExplanation:
    """The plan of a scan: ``str`` gives it as text, :meth:`as_dict` as plain values.

    Attributes:
        table: the table's URI.
        version: the version that is read.
        columns: the columns of the result.
        predicate: the predicate as text, or None.
        derived: the condition on generated partition columns that follows from it, as text, or None.
        rows_filtered: whether the predicate is applied to the rows of the files.
        files: the number of live files of the version.
        files_read: the number of files that are read.
        pruned_by_partition: the number of files excluded by partition values.
        pruned_by_stats: the number of files excluded by statistics.
        bytes: the size of the live files, in bytes.
        bytes_read: the size of the files that are read, in bytes.
        deletion_vectors: the number of files that are read and have a deletion vector.
        paths: the paths of the files that are read, as in the log.
        pruned: path and reason of each excluded file.
        readers: the readers of the files in ``to_polars``, ``to_duckdb`` and ``to_pyarrow_dataset``, by ``polars``,
            ``duckdb`` and ``pyarrow``; None unless it was asked for.
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
    readers: dict[str, str] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The attributes as plain values, for JSON."""
        return {
            name: [list(item) if isinstance(item, tuple) else item for item in value]
            if isinstance(value, tuple)
            else value
            for name, value in vars(self).items()
            if name != "readers" or value is not None
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
        lines += [f"  {engine}: {reader}" for engine, reader in (self.readers or {}).items()]
        lines += [f"    read    {path}" for path in self.paths[:_SHOWN]]
        lines += [f"    pruned  {path}  ({reason})" for path, reason in self.pruned[:_SHOWN]]
        more = max(0, len(self.paths) - _SHOWN) + max(0, len(self.pruned) - _SHOWN)
        if more:
            lines.append(f"    and {more} more")
        return "\n".join(lines)


log = logging.getLogger("refdelta")

_REASONS = ("partition", "stats")

ONLY = "only\n"
"""A further column of a list of files: a deletion vector of the only rows that are wanted, or null."""

_SHOWN = 20
_PART_BYTES = 16 * 2**20  # of a local file
_MOST_PARTS = 64


class RowStream(ABC):
    """Rows that are read while they are consumed; an Arrow stream."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""

    @abstractmethod
    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in batches."""

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a ``RecordBatchReader``. Errors as for :meth:`to_batches`."""
        return pa.RecordBatchReader.from_batches(self.schema, self._at_least_one())

    def _at_least_one(self) -> Iterator[pa.RecordBatch]:
        """The batches, or an empty one: some consumers of a reader take the schema from its first batch."""
        some = False
        for batch in self.to_batches():
            some = True
            yield batch
        if not some and len(self.schema):
            yield pa.RecordBatch.from_arrays([pa.nulls(0, item.type) for item in self.schema], schema=self.schema)

    def to_table(self) -> pa.Table:
        """All rows in memory. Errors as for :meth:`to_batches`."""
        return pa.Table.from_batches(list(self.to_batches()), self.schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as an Arrow C stream, read while they are consumed."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


@dataclass(frozen=True, eq=False, repr=False)
class Scan(RowStream):
    """A planned read of one version. It can be run any number of times.

    Consumers of Arrow streams accept a scan: it has ``__arrow_c_stream__``.

    Attributes:
        snapshot: the version that is read.
        plan: how each file is read.
        files: the rows of the snapshot's file list that are read, in its order.
        predicate: the filter, or None; ``plan.row_filter`` is None if pruning has applied it exactly.
        pruned: the result of pruning; None without a predicate.
        executor: the threads that read.
        parts: the columns of the result, some of them with a part of their fields; None if they are whole.
    """

    snapshot: Snapshot
    plan: ReadPlan
    files: pa.Table
    predicate: RowFilter | None = None
    pruned: Pruned | None = field(default=None, repr=False)
    executor: ThreadExecutor = field(default_factory=ThreadExecutor, repr=False)
    parts: tuple[StructField, ...] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        read = f"{self.files.num_rows} of {self.snapshot.files.num_rows} files"
        return f"<Scan of {self.store.uri}, version {self.snapshot.version}: {read}>"

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self.plan.schema if self.parts is None else replace(self.plan, columns=self.parts).schema

    @property
    def store(self) -> Any:
        """The table's folder."""
        return self.snapshot.store

    @property
    def footers(self) -> ThreadExecutor:
        """The executor that reads footers."""
        return ThreadExecutor.for_store(self.store) if self.store.capabilities.remote else self.executor

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in batches, in the order of the file list and of the rows in each file.

        Files, and the row groups of large files, are read in parallel; the waiting results are bounded by
        ``executor.LOOK_AHEAD_BYTES``.

        Raises:
            DataFileNotFoundError: a file that the log names does not exist.
            DataFileError: a file is damaged or is not Parquet.
            UnsafePathError: a path of the log leaves the table.
        """
        return self._batches(self.plan)

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a ``RecordBatchReader``, marked with the version. Errors as for :meth:`to_batches`."""
        return mark(super().to_reader(), [self.snapshot])

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as an Arrow C stream, read while they are consumed."""
        note(self.snapshot)
        return super().__arrow_c_stream__(requested_schema)

    def to_table(self) -> pa.Table:
        """All rows in memory. Errors as for :meth:`to_batches`."""
        # All rows are kept anyway, so that nothing is gained if readers wait.
        batches = self._batches(replace(self.plan, kept=True), budget=sys.maxsize)
        return pa.Table.from_batches(list(batches), self.schema)

    def _batches(self, plan: ReadPlan, budget: int | None = None) -> Iterator[pa.RecordBatch]:
        files = scan_files(self)
        if not self.store.capabilities.remote:
            files = [part for file in files for part in _parts(file)]
        batches = noted(read_files(self, files, plan, budget=budget), [self.snapshot])
        if self.parts is None:
            return batches
        return (narrowed(batch, self.schema) for batch in batches)

    def count(self) -> int:
        """The number of rows of the result.

        Without a filter on rows it follows from statistics, or from the footers of files without them. Errors as for
        :meth:`to_batches`.
        """
        note(self.snapshot)
        if self.plan.row_filter is not None:
            narrow = ReadPlan(
                (), self._filter_fields(), self.plan.partition_columns, self.plan.row_filter, self.plan.by_id
            )
            counting = Scan(self.snapshot, narrow, self.files, self.predicate, self.pruned, self.executor)
            return sum(batch.num_rows for batch in counting.to_batches())
        return sum(self.file_counts())

    def file_counts(self) -> list[int]:
        """For each file of the scan, the number of live rows, without regard to the filter.

        It follows from statistics, or from the footers of files without them. Errors as for :meth:`to_batches`.
        """
        rows, hidden = num_records(self.files), num_deleted(self.files)
        # A vector that hides more rows than its file has contradicts the statistics, and the footer decides.
        sound = pc.and_(pc.greater_equal(hidden, scalar_of(0, pa.int64())), pc.less_equal(hidden, rows))
        unknown_count = scalar_of(None, pa.int64())
        counts: list[int | None] = pc.if_else(sound, pc.subtract(rows, hidden), unknown_count).to_pylist()
        unknown = [index for index, count in enumerate(counts) if count is None]
        if unknown:
            rest = Scan(self.snapshot, ReadPlan(()), take(self.files, pa.array(unknown)), executor=self.executor)
            with missing_files(self.store, self.snapshot.version):
                found = self.footers.map(lambda file: count_rows(self.store, file), scan_files(rest))
                counts = [count if count is not None else next(found) for count in counts]
        return [count for count in counts if count is not None]

    def explain(self, *, readers: bool = False) -> ScanExplanation:
        """The files that are read, and those that are not, with the reasons.

        Args:
            readers: whether to name the readers of the files in ``to_polars``, ``to_duckdb`` and
                ``to_pyarrow_dataset``, too, for which the footers of all files are read.
        """
        from refdelta.engine.scan import foreign  # few ask

        files = self.snapshot.files
        by_reason: list[tuple[str, str]] = []
        if self.pruned is not None:
            dropped = pc.invert(self.pruned.keep)
            reasons = self.pruned.reason.filter(dropped).cast(pa.string()).to_pylist()
            by_reason = list(zip(files.column("path").filter(dropped).to_pylist(), reasons, strict=True))
        vectors = self.files.column("deletionVector")
        derived = getattr(self.predicate, "derived", None)
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
            bytes_read=exact_sum(self.files.column("size")),
            deletion_vectors=len(vectors) - vectors.null_count,
            paths=tuple(self.files.column("path").to_pylist()),
            pruned=tuple(by_reason),
            readers=foreign.readers(foreign.ForeignFiles(self.store, self.plan, scan_files(self))) if readers else None,
        )

    def _filter_fields(self) -> tuple[Any, ...]:
        wanted = self.predicate.columns if self.predicate is not None else frozenset()
        return tuple(item for item in _with_ids(self.snapshot) if item.name in wanted)


def check_whole(scan: Scan, engine: str) -> None:
    """Raise ``InvalidArgumentError`` if a scan for the reader of another engine has parts of columns."""
    if scan.parts is not None:
        raise InvalidArgumentError(
            f"columns names fields of structs, which {engine} selects by itself: name the whole columns"
        )


def _prunes(schema: StructType, name: str) -> bool:
    """Whether files may be left out by the value of a partition column: not by intervals, by the text of their RFC."""
    return schema.field(name).type not in (INTERVAL_YEAR_MONTH, INTERVAL_DAY_TIME)


def _with_known_parts(column: StructField) -> StructField:
    """A column as a filter reads it: without fields of types that this engine does not know."""
    known = known_parts(column.type)
    return column if known is column.type else replace(column, type=known)


def _check_known(columns: Sequence[StructField]) -> None:
    """Refuse columns of types that this engine does not know.

    Raises:
        UnsupportedFeatureError: there is one; the message says how to read the others.
    """
    for item in columns:
        for path, kind in unknown_types(item.type, item.name):
            hint = "scan(columns=[...]) reads the others"
            raise UnsupportedFeatureError([f"the type {kind} of column {path}"], "read", hint)


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
        columns: the columns of the result, in this order, by name in any case; None for all. An empty list gives rows
            without columns. ``s.a`` is the struct ``s`` with its field ``a`` alone, or with all fields of it that are
            named; backticks are of a name with a dot. A table with row tracking has the columns
            ``_metadata.row_id`` and ``_metadata.row_commit_version`` too, which None does not include. A predicate may
            always use them.
        predicate: SQL, deltalake's list form, a ``pyarrow.compute.Expression``, a bound predicate, or None. Rows for
            which it is unknown are left out.
        executor: the threads that read; None for the number that suits the store.

    Returns:
        The scan; nothing but the log has been read.

    Raises:
        ColumnNotFoundError: the table lacks a column.
        InvalidArgumentError: a column occurs twice, ``columns`` is no list of names, or it has row ids and the table
            does not track rows.
        PredicateError: the predicate cannot be parsed or bound.
        UnsupportedTypeError: a column has a type that this engine lacks.
        UnsupportedFeatureError: a column has a type that this engine does not know.
    """
    schema = snapshot.schema
    wanted = tuple(schema) if columns is None else _chosen(snapshot, columns)
    searched = schema if predicate is None else _with_ids(snapshot)
    files, pruned = snapshot.files, None
    flt: RowFilter | None = None
    if predicate is not None:
        from refdelta.engine.scan.filters import informed, row_filter  # with all functions of SQL

        flt = row_filter(predicate, searched)
    if flt is not None:
        flt = informed(flt, snapshot)
        # Statistics do not cover row ids, some of which a file may store.
        plain = StructType(tuple(i if kind_of(i) is None else StructField(i.name, i.type) for i in searched))
        pruned = flt.prune(files, plain, [name for name in snapshot.partition_columns if _prunes(schema, name)])
        files = files.filter(pruned.keep)
    rows = flt if pruned is not None and not pruned.exact else None
    names = {item.name for item in wanted}
    _check_known(wanted)
    searched = StructType(tuple(map(_with_known_parts, searched)))
    if flt is not None:
        _check_known([item for item in searched if item.name in flt.columns])
    # A column that is whole is that of the schema.
    whole = all(not isinstance(item.type, StructType) or schema.find(item.name) is item for item in wanted)
    parts = None if whole else wanted
    if parts is not None and rows is not None:
        # The filter looks at the whole column.
        found = {item.name: item for item in searched}
        wanted = tuple(found[item.name] if item.name in rows.columns else item for item in wanted)
    plan = ReadPlan(
        columns=wanted,
        filter_columns=tuple(i for i in searched if rows is not None and i.name in rows.columns - names),
        partition_columns=frozenset(snapshot.partition_columns),
        row_filter=rows,
        by_id=snapshot.column_mapping_mode == "id",
    )
    executor = executor or ThreadExecutor.for_store(snapshot.store, files.column("size"))
    if log.isEnabledFor(logging.DEBUG):
        by = {why: 0 if pruned is None else pc.sum(pc.equal(pruned.reason, why)).as_py() or 0 for why in _REASONS}
        log.debug(
            "%s: a scan of version %d reads %d of %d files; %d are excluded by partition values, %d by statistics",
            snapshot.store.uri,
            snapshot.version,
            files.num_rows,
            snapshot.files.num_rows,
            *by.values(),
        )
    return Scan(snapshot, plan, files, flt, pruned, executor, parts)


def _chosen(snapshot: Snapshot, columns: Sequence[str]) -> tuple[StructField, ...]:
    if isinstance(columns, str):
        raise InvalidArgumentError(f"columns must be a list of names, not the string {columns!r}")
    schema = snapshot.schema
    wanted: dict[str, tuple[StructField, list[Path]]] = {}
    for name in arguments.names("columns", columns) or ():
        # A name of the schema is the column, also one with dots, since operations name columns thus.
        item = schema.find(name)
        path: Sequence[str] = ()
        if item is None and name in ASKED:
            item = _of_rows(snapshot, name)
        elif item is None:
            names = named_path(name, schema)
            schema.field(names[0] if schema.find(names[0]) is not None else name)  # an error has the whole name
            whole, _ = find_path(schema, names)
            item, path = schema.field(whole[0]), whole[1:]
        _, paths = wanted.setdefault(item.name, (item, []))
        if any(one[: len(path)] == tuple(path)[: len(one)] for one in paths):
            raise InvalidArgumentError(f"the column {name!r} is asked for twice")
        paths.append(tuple(path))
    return tuple(_part(*one) for one in wanted.values())


def _part(item: StructField, paths: Sequence[Path]) -> StructField:
    """A column with the fields of these paths alone, in the order of the schema."""
    if () in paths:
        return item
    if not isinstance(item.type, StructType):
        raise InvalidArgumentError(
            f"column {item.name!r} is {item.type}, of which no part can be asked for: only fields of structs can"
        )
    parts = [(field, [path[1:] for path in paths if path[0] == field.name]) for field in item.type]
    return replace(item, type=StructType(tuple(_part(field, inner) for field, inner in parts if inner)))


def _of_rows(snapshot: Snapshot, name: str) -> StructField:
    """A column of row tracking, under its public name."""
    found = _with_ids(snapshot).find(name)
    if found is None:
        raise InvalidArgumentError(f"there is no {name}: the table does not track rows (delta.enableRowTracking)")
    return found


def _with_ids(snapshot: Snapshot) -> StructType:
    """The schema, followed by the columns of row tracking if the table has it."""
    if not is_enabled(snapshot.protocol, snapshot.metadata):
        return snapshot.schema
    kept = asked_columns(snapshot.metadata.configuration or {})
    return StructType((*snapshot.schema, *(item for item in kept if item.name not in snapshot.schema)))


def scan_files(scan: Scan) -> list[ScanFile]:
    """The files of a scan, each with everything that a worker needs to read it.

    Raises:
        UnsafePathError: a path leaves the table.
        InvalidLogError: a partition value is not of its column's type.
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


def _parts(file: ScanFile) -> list[ScanFile]:
    """A local file in parts of similar size, which are read in parallel; most files are one part."""
    count = min(max(1, round(file.size / _PART_BYTES)), _MOST_PARTS)
    # The size in the log may be wrong: so the last part has no end, and there are not too many.
    ends = [*(file.size * number // count for number in range(count)), sys.maxsize]
    return [file] if count == 1 else [replace(file, part=part) for part in itertools.pairwise(ends)]


def read_files(
    scan: Scan, files: Sequence[ScanFile], plan: ReadPlan | None = None, *, budget: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of some files or parts of files, in parallel and in their order. Errors as for :meth:`Scan.to_batches`.

    Args:
        scan: the table, and the threads.
        files: the files.
        plan: how they are read; None for that of the scan.
        budget: the most bytes of results that wait; None as for :meth:`ThreadExecutor.stream`.
    """
    tasks = read_together(scan.store, files)
    reader = FileReader(scan.store, plan or scan.plan, by_column=len(tasks) < 2 * scan.executor.workers)

    def read(some: Sequence[ScanFile]) -> Iterator[pa.RecordBatch]:
        for file in some:
            yield from reader.read(file)

    with missing_files(scan.store, scan.snapshot.version):
        yield from scan.executor.stream(read, tasks, weigh=lambda batch: int(batch.nbytes), budget=budget)


@contextmanager
def missing_files(store: Store, version: int) -> Iterator[None]:
    """Give the error of a missing file of a version its reason, if VACUUM removed it.

    Args:
        store: the table's folder.
        version: the version that is read.

    Raises:
        DataFileNotFoundError: the error, with the reason.
    """
    try:
        yield
    except DataFileNotFoundError as error:
        from refdelta.engine.log.removed_files import removed_by_vacuum  # few files are missing

        reason = removed_by_vacuum(store, version)
        if not reason or reason in error.reason:
            raise
        # The advice for a file that may be missing for any reason gives way to this one.
        missing = error.reason.partition("; ")[0]
        raise DataFileNotFoundError(f"{missing}: {reason}", file=error.file) from error


def read_together(store: Store, files: Sequence[ScanFile]) -> list[list[ScanFile]]:
    """Files by the thread that reads them: on a local disk, passing a small file to another thread takes longer than
    reading it.
    """
    return list(at_most(files, _weight, 0 if store.capabilities.remote else SMALL_BYTES))


def _weight(file: ScanFile) -> int:
    return file.size if file.part is None else SMALL_BYTES


def _listed(files: pa.Table, column: str, *, wanted: bool) -> list[Any]:
    """A column of a list of files as a list; Nones if it is not needed, since the list may be long."""
    return files.column(column).to_pylist() if wanted else [None] * files.num_rows
