"""One data file, read as batches of the table's columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyroaring import BitMap64

from refdelta.core.table.row_tracking import ROW_ID, kind_of
from refdelta.core.table.types import StructField, StructType, physical_name
from refdelta.engine.arrow.arrays import check_decimals, check_texts, filter_rows, take_rows
from refdelta.engine.arrow.schema import arrow_field
from refdelta.engine.log.state import STATS_PARSED
from refdelta.engine.parquet.columns import plan_columns
from refdelta.engine.parquet.dv import VectorLoader, kept_rows, load_deletion_vector, mostly_live
from refdelta.engine.parquet.files import data_errors, open_parquet
from refdelta.engine.parquet.legacy_calendar import legacy_calendar
from refdelta.engine.parquet.limits import BATCH_BYTES, unfolding
from refdelta.errors import UnsupportedTypeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from refdelta.core.log.actions import DeletionVectorDescriptor
    from refdelta.engine.parquet.columns import ColumnSource
    from refdelta.engine.parquet.limits import BoundedParquetFile
    from refdelta.engine.scan.filters import RowFilter
    from refdelta_storage.base import Store

# Rows of a batch: many enough to make the overhead of a batch negligible, few enough for some megabytes.
BATCH_ROWS = 64 * 1024
_MANY_ROWS = 8 * 1024  # of a file
# The column of positions. No column of a table has a line break in its name.
POSITION = pa.field("position\n", pa.uint64(), nullable=False)
_LIVE = "live\n"


@dataclass(frozen=True)
class ScanFile:
    """A data file to read.

    Attributes:
        key: its key in the store.
        size: in bytes, by the log.
        partition_values: a typed scalar for each partition column that is read, by logical name.
        deletion_vector: the deleted rows.
        vectors: loads the vectors of all files that are read together; None if the file is read alone.
        rows: the positions of the wanted rows; None for all.
        base_row_id: the id of the first row, unless the row stores one.
        commit_version: the version in which the rows were changed last, unless they store one.
        only: a deletion vector with the positions of the wanted rows; None for all.
    """

    key: str
    size: int
    partition_values: Mapping[str, pa.Scalar] = field(default_factory=dict)
    deletion_vector: DeletionVectorDescriptor | None = None
    vectors: VectorLoader | None = field(default=None, repr=False, compare=False)
    rows: BitMap64 | None = None
    base_row_id: int | None = None
    commit_version: int | None = None
    only: DeletionVectorDescriptor | None = None


@dataclass(frozen=True)
class ReadPlan:
    """How each file of a scan is read.

    Attributes:
        columns: the columns of the result, with their logical names.
        filter_columns: further columns that only the filter uses.
        partition_columns: the logical names of the partition columns.
        row_filter: the filter on rows; None for all rows.
        by_id: whether the files' columns are found by field id.
        encoded: the string columns that may be dictionaries in the result, if they are in the file; for callers that
            move rows without looking at them.
        positions: whether :data:`POSITION` is a last column of the result: the position of a row in its file, counted
            from 0, deleted rows included.
    """

    columns: tuple[StructField, ...]
    filter_columns: tuple[StructField, ...] = ()
    partition_columns: frozenset[str] = frozenset()
    row_filter: RowFilter | None = None
    by_id: bool = False
    encoded: frozenset[str] = frozenset()
    positions: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result, without dictionaries."""
        return pa.schema([*(arrow_field(item) for item in self.columns), *([POSITION] if self.positions else [])])

    @property
    def read(self) -> tuple[StructField, ...]:
        """The columns that are read, beginning with those of the result."""
        return self.columns + self.filter_columns


@dataclass(frozen=True)
class OpenFile:
    """An open data file.

    Attributes:
        physical_rows: the number of rows by its footer, deleted ones included.
        deleted: the positions of the rows that its deletion vector hides.
        batches: the rows, see :func:`read_file`; to be consumed once, while the file is open.
    """

    physical_rows: int
    deleted: BitMap64
    batches: Iterator[pa.RecordBatch]


@contextmanager
def open_file(store: Store, file: ScanFile, plan: ReadPlan) -> Iterator[OpenFile]:
    """Open a file and its deletion vector. Arguments and errors as for :func:`read_file`."""
    deleted = deleted_rows(store, file)
    if file.only is not None:
        file = replace(file, rows=load_deletion_vector(store, file.only) - deleted)
    with data_errors(file.key), _opened(store, file) as parquet:
        batches = _rows(parquet, plan, file, deleted)
        yield OpenFile(int(parquet.metadata.num_rows), deleted, batches)


def read_file(store: Store, file: ScanFile, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """The rows of a file that are not deleted and meet the filter.

    Args:
        store: the table's folder.
        file: the file.
        plan: how it is read.

    Returns:
        Batches of the plan's schema, in the order of the file; none of them is empty.

    Raises:
        DataFileNotFoundError: the file or its deletion vector does not exist.
        DataFileError: the file is not Parquet, is damaged, or has columns whose types do not fit the table's.
    """
    with open_file(store, file, plan) as opened:
        yield from opened.batches


def deleted_rows(store: Store, file: ScanFile) -> BitMap64:
    """The positions of the rows that a file's deletion vector hides. Errors as for ``dv.load_deletion_vector``."""
    if file.deletion_vector is None:
        return BitMap64()
    if file.vectors is None:
        return load_deletion_vector(store, file.deletion_vector)
    return file.vectors.load(file.deletion_vector)


def count_rows(store: Store, file: ScanFile) -> int:
    """The number of live rows of a file, by its footer. Errors as for :func:`read_file`."""
    rows = physical_rows(store, file)
    return rows if file.deletion_vector is None else rows - file.deletion_vector.cardinality


def physical_rows(store: Store, file: ScanFile) -> int:
    """The number of rows of a file by its footer, deleted ones included. Errors as for :func:`read_file`."""
    with data_errors(file.key), _opened(store, file, footer_only=True) as parquet:
        return int(parquet.metadata.num_rows)


def _opened(store: Store, file: ScanFile, *, footer_only: bool = False) -> Any:
    # In nanoseconds, pyarrow's default, INT96 would overflow outside the years 1677 to 2262.
    return open_parquet(store, file.key, file.size, footer_only=footer_only, coerce_int96_timestamp_unit="us")


def _rows(parquet: Any, plan: ReadPlan, file: ScanFile, deleted: BitMap64) -> Iterator[pa.RecordBatch]:
    columns = _Columns(parquet, plan, file)
    schema = pa.schema([columns.field(item) for item in plan.read])
    groups = None
    if plan.row_filter is not None:
        groups = groups_to_read(parquet, plan.row_filter, columns.stored, plan.read)
    if file.rows is not None:
        groups = _groups_with(file.rows, parquet.metadata, groups)
    # A filter that cannot fail is applied before few deleted rows are removed, which copies less, and before decimals
    # are checked for too many digits, since few rows may remain.
    late = columns.as_stored and plan.row_filter is not None and not plan.row_filter.can_fail and file.rows is None
    for start, physical in _batches(parquet, columns.physical_names, groups, columns.batch_rows):
        check_texts(physical)
        if not late:
            check_decimals(physical)
        stop = start + physical.num_rows
        live = mostly_live(start, stop, deleted) if late else None
        positions = kept_rows(start, stop, deleted, file.rows) if live is None else None
        if positions is None:
            rows = physical
        elif len(positions) == 0:
            continue
        else:
            rows = take_rows(physical, pc.subtract(positions, pa.scalar(start, pa.uint64())))
        arrays = columns.of(rows)
        if plan.positions or columns.kept:
            places = pa.arange(start, stop).cast(pa.uint64()) if positions is None else positions
            arrays = columns.with_defaults(arrays, places) + [places] * plan.positions
        batch = _finish(arrays, rows.num_rows, schema, plan, live)
        if late:
            check_decimals(batch)
        if batch.num_rows:
            yield batch


def _groups_with(rows: BitMap64, footer: Any, groups: list[int] | None) -> list[int]:
    """The row groups among ``groups``, all if None, that hold a row of ``rows``."""
    found = []
    wanted = frozenset(range(footer.num_row_groups) if groups is None else groups)
    start = 0
    for group in range(footer.num_row_groups):
        stop = start + footer.row_group(group).num_rows
        if group in wanted and rows.range_cardinality(start, stop):
            found.append(group)
        start = stop
    return found


def _batches(
    parquet: Any, names: Sequence[str], groups: list[int] | None, most: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of row groups, all if None, of at most ``most`` rows, each with the position of its first row."""
    for first, run in [(0, None)] if groups is None else _runs(groups, parquet.metadata):
        start = first
        for batch in parquet.iter_batches(most, row_groups=run, columns=names):
            rows = unfolding(batch)
            if rows == batch.num_rows:
                yield start, batch
            else:
                yield from ((start + at, batch.slice(at, rows)) for at in range(0, batch.num_rows, rows))
            start += batch.num_rows


def _runs(groups: list[int], footer: Any) -> Iterator[tuple[int, list[int]]]:
    """Ascending row groups as runs of consecutive ones, each with the position of its first row."""
    first, start, run = 0, 0, list[int]()
    wanted = frozenset(groups)
    for group in range(footer.num_row_groups):
        if group in wanted:
            start = start if run else first
            run.append(group)
        elif run:
            yield start, run
            run = []
        first += footer.row_group(group).num_rows
    if run:
        yield start, run


class _Columns:
    """The source of each column of a plan in one file: a column of the file, or a partition value."""

    def __init__(self, parquet: Any, plan: ReadPlan, file: ScanFile):
        stored = [item for item in plan.read if item.name not in plan.partition_columns]
        self.kept = {index: kind for index, item in enumerate(plan.read) if (kind := kind_of(item)) is not None}
        self._file = file
        try:
            calendar = legacy_calendar(parquet.metadata)
            sources = plan_columns(parquet.schema_arrow, stored, by_id=plan.by_id, calendar=calendar)
        except UnsupportedTypeError as error:
            raise ValueError(str(error)) from error
        self.stored = {item.name: (item, source) for item, source in zip(stored, sources, strict=True)}
        kept = self._dictionaries(parquet, plan)
        self._encoded = frozenset(name for name, small in kept.items() if small and name in plan.encoded)
        decoded = {
            name: replace(self.stored[name][1], convert=lambda array: array.dictionary_decode())
            for name in kept.keys() - self._encoded
        }
        self._columns: list[ColumnSource | _Constant] = [
            decoded.get(item.name, self.stored[item.name][1])
            if item.name in self.stored
            else _Constant(file.partition_values[item.name])
            for item in plan.read
        ]
        # Without conversions, no row can fail.
        self.as_stored = all(source.convert is None for source in sources)
        self.physical_names = list({source.name: None for source in sources if source.name is not None})

    def _dictionaries(self, parquet: Any, plan: ReadPlan) -> dict[str, bool]:
        """The columns that are read as dictionaries, and whether these are small. To decode many strings here is faster
        than in Parquet's reader.
        """
        chosen = self.stored.keys() if parquet.metadata.num_rows >= _MANY_ROWS else plan.encoded
        names = {
            name: source.name
            for name, (_, source) in self.stored.items()
            # A name with a dot may be the path of a field of another column.
            if name in chosen and source.name is not None and source.is_text and "." not in source.name
        }
        kept = parquet.keep_dictionaries(list(names.values())) if names else {}
        return {name: kept[physical] for name, physical in names.items() if physical in kept}

    @property
    def batch_rows(self) -> int:
        """The most rows of a batch: each repeats the partition values, which may be long."""
        width = sum(column.width for column in self._columns if isinstance(column, _Constant))
        return max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, width)))

    def field(self, item: StructField) -> pa.Field:
        """The field of a column in the result."""
        plain = arrow_field(item)
        return plain.with_type(pa.dictionary(pa.int32(), plain.type)) if item.name in self._encoded else plain

    def of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [column.read(batch) for column in self._columns]

    def with_defaults(self, arrays: list[pa.Array], positions: pa.Array) -> list[pa.Array]:
        """The columns, with default row ids and commit versions for rows that store none.

        Implements PROTOCOL.md, "Reader Requirements for Row Tracking".
        """
        found = list(arrays)
        for index, kind in self.kept.items():
            if kind == ROW_ID:
                default = pc.add(positions.cast(pa.int64()), pa.scalar(self._file.base_row_id, pa.int64()))
            else:
                default = pa.scalar(self._file.commit_version, pa.int64())
            found[index] = pc.coalesce(arrays[index], default)
        return found


class _Constant:
    """A partition column: one value of ``width`` bytes, repeated once for the longest batch, and sliced for others."""

    def __init__(self, value: pa.Scalar):
        self._value = value
        self._array = pa.nulls(0, value.type)
        self.width = pa.repeat(value, 1).nbytes if value.is_valid else 0

    def read(self, batch: pa.RecordBatch) -> pa.Array:
        rows = batch.num_rows
        if len(self._array) < rows:
            valid = self._value.is_valid
            self._array = pa.repeat(self._value, rows) if valid else pa.nulls(rows, self._value.type)
        return self._array.slice(0, rows)


def _finish(
    arrays: list[pa.Array], rows: int, schema: pa.Schema, plan: ReadPlan, live: pa.BooleanArray | None
) -> pa.RecordBatch:
    if not arrays:
        return rows_only(rows)
    if plan.positions:
        schema = schema.append(POSITION)
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    if plan.row_filter is None:
        return batch
    if live is not None:
        batch = batch.append_column(_LIVE, live)
    batch = plan.row_filter.apply(batch)
    if live is not None:
        batch = filter_rows(batch, batch.column(_LIVE))
    wanted = [item.name for item in plan.columns] + [POSITION.name] * plan.positions
    if len(wanted) == batch.num_columns:
        return batch
    return batch.select(wanted) if wanted else rows_only(batch.num_rows)


def rows_only(rows: int) -> pa.RecordBatch:
    """A batch with rows and without columns."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))


# --- row groups that a filter excludes ---------------------------------------------------------------------------


def groups_to_read(
    parquet: BoundedParquetFile,
    row_filter: RowFilter,
    columns: Mapping[str, tuple[StructField, ColumnSource]],
    fields: tuple[StructField, ...],
) -> list[int]:
    """The row groups that may hold a row that meets a filter, by the statistics in the footer.

    Args:
        parquet: the file.
        row_filter: the filter.
        columns: the table's columns that are stored in the file, by logical name, each with its source.
        fields: these and the partition columns; they include all columns of the filter.

    Returns:
        The numbers of the row groups, ascending; all of them if nothing is known.

    Raises:
        ValueError: the file's footer contradicts itself.
    """
    footer = parquet.footer
    everything = list(range(footer.num_row_groups))
    places = {name: leaf for name, leaf in _leaves(footer).items() if leaf not in parquet.without_bounds}
    usable = [
        (item, source, places[source.name])
        for item, source in columns.values()
        if item.name in row_filter.columns
        and _has_bounds(source)
        and source.name in places
        # A file holds only those row ids that differ from the default.
        and kind_of(item) is None
    ]
    if len(everything) < 2 or not usable:
        return everything
    groups = [footer.row_group(number) for number in everything]
    low, high, nulls = {}, {}, {}
    for item, source, place in usable:
        statistics = [group.column(place).statistics for group in groups]
        name = physical_name(item)
        low[name] = _bounds(statistics, "min", source.type)
        high[name] = _bounds(statistics, "max", source.type)
        nulls[name] = pa.array([s.null_count if s is not None and s.has_null_count else None for s in statistics])
    stats = _struct(
        {
            "numRecords": pa.array([group.num_rows for group in groups], pa.int64()),
            "minValues": _struct(low),
            "maxValues": _struct(high),
            "nullCount": _struct({name: counts.cast(pa.int64()) for name, counts in nulls.items()}),
        }
    )
    # To the pruner, a row group is a small file. Partition values hold for the whole file, which was pruned by them.
    partitions = pa.nulls(len(groups), pa.map_(pa.string(), pa.string()))
    listed = pa.table({"partitionValues": partitions, STATS_PARSED: stats})
    keep = row_filter.prune(listed, StructType(fields), ()).keep
    return [number for number, kept in zip(everything, keep.to_pylist(), strict=True) if kept]


def _leaves(footer: Any) -> dict[str, int]:
    """The number of each leaf column by its path. Paths with a dot are left out: it may be part of a name, or separate
    two names.
    """
    names = [footer.schema.column(i).path for i in range(footer.num_columns)]
    return {name: i for i, name in enumerate(names) if "." not in name and names.count(name) == 1}


def _has_bounds(source: ColumnSource) -> bool:
    # Bounds of a converted column have another type; bounds of floats ignore NaN, which is the greatest value.
    kind = source.type
    return (
        source.name is not None
        and source.convert is None
        and not (pt.is_nested(kind) or pt.is_floating(kind) or pt.is_binary(kind) or pt.is_null(kind))
    )


def _bounds(statistics: list[Any], side: str, kind: pa.DataType) -> pa.Array:
    try:
        return pa.array([getattr(s, side) if s is not None and s.has_min_max else None for s in statistics], kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return pa.nulls(len(statistics), kind)  # a value that Python lacks, such as a date after the year 9999


def _struct(columns: dict[str, pa.Array]) -> pa.StructArray:
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
