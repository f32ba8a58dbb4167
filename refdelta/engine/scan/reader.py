"""One data file, read as batches of the table's columns."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyroaring import BitMap64

from refdelta.arrow.arrays import (
    ARROW_FALSE,
    ARROW_TRUE,
    array_of,
    check_decimals,
    check_texts,
    check_values,
    filter_rows,
    is_flat,
    scalar_of,
)
from refdelta.arrow.schema import arrow_field
from refdelta.core.log.claims import EXACT_BOUNDS
from refdelta.engine.log.state import STATS_PARSED
from refdelta.engine.parquet.columns import ColumnSource, plan_columns
from refdelta.engine.parquet.dictionaries import decoded
from refdelta.engine.parquet.dv import VectorLoader, live_mask, load_deletion_vector
from refdelta.engine.parquet.files import data_errors, open_parquet
from refdelta.engine.parquet.legacy_calendar import legacy_calendar
from refdelta.engine.parquet.limits import BATCH_BYTES, FEW_ROWS, chunk_start, unfolding
from refdelta.engine.work.executor import at_least, sharing
from refdelta.errors import InvalidLogError, UnsupportedTypeError
from refdelta.table.char_varchar import padding_of
from refdelta.table.row_tracking import ROW_ID, kind_of
from refdelta.table.types import StructField, StructType, physical_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from refdelta.core.log.actions import DeletionVectorDescriptor
    from refdelta.engine.parquet.limits import BoundedParquetFile
    from refdelta.engine.parquet.metadata import FooterForm
    from refdelta.engine.scan.filters import RowFilter
    from refdelta_storage.base import Store

    _Live = Callable[[int, int], pa.BooleanArray | None]  # a mask of the live rows of a range; None if all are

# Rows of a batch: many enough to make the overhead of a batch small, few enough for some megabytes, and for what
# expressions make of them.
BATCH_ROWS = 64 * 1024
# Of a batch of a table in memory, so many times as many.
_LARGER = 2
# Row groups are searched together until they have so many rows.
_SEARCHED_ROWS = BATCH_ROWS
# The column of positions. No column of a table has a line break in its name.
POSITION = pa.field("position\n", pa.uint64(), nullable=False)
_MOST_LAYOUTS = 64


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
        part: the bytes of the file, from the first to before the last, whose row groups are read: those that begin
            there. None for all.
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
    part: tuple[int, int] | None = None


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
        kept: whether all rows are kept in memory and nothing is computed of a batch, so that batches may be larger.
    """

    columns: tuple[StructField, ...]
    filter_columns: tuple[StructField, ...] = ()
    partition_columns: frozenset[str] = frozenset()
    row_filter: RowFilter | None = None
    by_id: bool = False
    encoded: frozenset[str] = frozenset()
    positions: bool = False
    kept: bool = False

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
        batches: the rows, see :meth:`FileReader.read`; to be consumed once, while the file is open.
    """

    physical_rows: int
    deleted: BitMap64
    batches: Iterator[pa.RecordBatch]


class FileReader:
    """Reads the files of one scan. Files with the same schema and notes share the plan of their columns. Thread-safe.

    Args:
        store: the table's folder.
        plan: how each file is read.
        by_column: whether the columns of a file are decoded in parallel. That costs some work, and helps only if
            fewer files are read at once than there are cores.
    """

    def __init__(self, store: Store, plan: ReadPlan, *, by_column: bool = True):
        self._store, self._plan, self._by_column = store, plan, by_column
        self._layouts: dict[FooterForm, _Layout] = {}
        self._footers: dict[str, _SharedFooter] = {}

    @contextmanager
    def open(self, file: ScanFile) -> Iterator[OpenFile]:
        """Open a file and its deletion vector. Errors as for :meth:`read`."""
        deleted = deleted_rows(self._store, file)
        if file.only is not None:
            file = replace(file, rows=load_deletion_vector(self._store, file.only) - deleted)
        if file.part is None:
            with data_errors(file.key), _opened(self._store, file) as parquet:
                layout = self._layout(parquet)
                yield self._opened_file(file, parquet, layout, _searched_groups(parquet, layout), deleted)
            return
        shared = self._shared(file)
        with data_errors(file.key), ExitStack() as opened:
            with shared.lock:
                options = {} if shared.metadata is None else {"metadata": shared.metadata}
                parquet = opened.enter_context(_opened(self._store, file, **options))
                if shared.metadata is not None:
                    parquet.examined = shared.examined
                layout = self._layout(parquet)
                if shared.metadata is None:
                    shared.groups = _searched_groups(parquet, layout)
                    shared.metadata, shared.examined = parquet.metadata, parquet.examined
            groups = _groups_in(file.part, parquet.footer, shared.groups)
            yield self._opened_file(file, parquet, layout, groups, deleted)

    def _opened_file(
        self, file: ScanFile, parquet: BoundedParquetFile, layout: _Layout, groups: list[int] | None, deleted: BitMap64
    ) -> OpenFile:
        parquet.use_threads = self._by_column
        columns = _Columns(layout, parquet, file)
        return OpenFile(int(parquet.metadata.num_rows), deleted, _rows(parquet, columns, file, groups, deleted))

    def read(self, file: ScanFile) -> Iterator[pa.RecordBatch]:
        """The rows of a file that are not deleted and meet the filter.

        Returns:
            Batches of the plan's schema, in the order of the file; none of them is empty.

        Raises:
            DataFileNotFoundError: the file or its deletion vector does not exist.
            DataFileError: the file is not Parquet, is damaged, or has columns whose types do not fit the table's.
        """
        with self.open(file) as opened:
            yield from opened.batches

    def _shared(self, file: ScanFile) -> _SharedFooter:
        """The footer of a file of which parts are read; the last one frees it."""
        if file.part is not None and file.part[1] < sys.maxsize:
            return self._footers.setdefault(file.key, _SharedFooter())
        return self._footers.pop(file.key, None) or _SharedFooter()

    def _layout(self, parquet: BoundedParquetFile) -> _Layout:
        form = parquet.form
        layout = None if form is None else self._layouts.get(form)
        if layout is None:
            layout = _Layout(parquet, self._plan)
            if form is not None and len(self._layouts) < _MOST_LAYOUTS:
                self._layouts[form] = layout
        return layout


class _SharedFooter:
    """The footer of a file of which several parts are read.

    Attributes:
        lock: held by the thread that opens a part: the first one fills in the rest.
        metadata: the footer; None if no part was opened.
        examined: the result of its check.
        groups: the row groups that the filter leaves; None for all.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.metadata: Any = None
        self.examined: Any = None
        self.groups: list[int] | None = None


def read_file(store: Store, file: ScanFile, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """Same as :meth:`FileReader.read`, for a single file."""
    return FileReader(store, plan).read(file)


def deleted_rows(store: Store, file: ScanFile) -> BitMap64:
    """The positions of the rows that a file's deletion vector hides. Errors as for ``dv.load_deletion_vector``."""
    if file.deletion_vector is None:
        return BitMap64()
    if file.vectors is None:
        return load_deletion_vector(store, file.deletion_vector)
    return file.vectors.load(file.deletion_vector)


def count_rows(store: Store, file: ScanFile) -> int:
    """The number of live rows of a file, by its footer.

    Errors as for :meth:`FileReader.read`, and ``InvalidLogError`` for a deletion vector that hides more rows than the
    file has.
    """
    rows = physical_rows(store, file)
    hidden = 0 if file.deletion_vector is None else file.deletion_vector.cardinality
    if not 0 <= hidden <= rows:
        raise InvalidLogError(f"the deletion vector of {file.key} hides {hidden} rows, but the file has {rows}")
    return rows - hidden


def physical_rows(store: Store, file: ScanFile) -> int:
    """The number of rows of a file by its footer, deleted ones included. Errors as for :meth:`FileReader.read`."""
    with data_errors(file.key), _opened(store, file, footer_only=True) as parquet:
        return int(parquet.metadata.num_rows)


def _opened(store: Store, file: ScanFile, *, footer_only: bool = False, **options: Any) -> Any:
    # In nanoseconds, pyarrow's default, INT96 would overflow outside the years 1677 to 2262.
    options["coerce_int96_timestamp_unit"] = "us"
    return open_parquet(store, file.key, file.size, footer_only=footer_only, **options)


def _rows(
    parquet: BoundedParquetFile, columns: _Columns, file: ScanFile, groups: list[int] | None, deleted: BitMap64
) -> Iterator[pa.RecordBatch]:
    row_filter = columns.layout.plan.row_filter
    if file.rows is not None:
        groups = _groups_with(file.rows, parquet.metadata, groups)
    live = partial(live_mask, deleted=deleted, wanted=file.rows)
    if row_filter is None:
        return _live_rows(parquet, columns, groups, live)
    # A filter that cannot fail is applied to deleted rows too, and before decimals are checked for too many digits:
    # that copies less, and few rows may remain.
    late = columns.searched_as_stored and not row_filter.can_fail and file.rows is None
    return _matching_rows(parquet, columns, row_filter, groups, live, late=late)


def _live_rows(
    parquet: BoundedParquetFile, columns: _Columns, groups: list[int] | None, live: _Live
) -> Iterator[pa.RecordBatch]:
    for start, physical in _batches(parquet, columns.names, groups, columns.batch_rows):
        stop = start + physical.num_rows
        mask = live(start, stop)
        if mask is None:
            check_values(physical)
        elif not mask.true_count:
            continue
        else:
            physical = _chosen(physical, mask)  # noqa: PLW2901 - the other rows are freed
        yield columns.batch([physical], physical.num_rows, columns.positions(start, stop, mask))


def _matching_rows(
    parquet: BoundedParquetFile,
    columns: _Columns,
    row_filter: RowFilter,
    groups: list[int] | None,
    live: _Live,
    *,
    late: bool,
) -> Iterator[pa.RecordBatch]:
    """The rows that meet a filter. Its columns are decoded first, and the others only where a row meets it."""
    for start, searched, others in _searches(parquet, columns, groups):
        mask = live(start, start + searched.num_rows)
        if mask is not None and not mask.true_count:
            continue
        check_texts(searched)
        if not late:
            check_decimals(searched)
        mask = _matches(searched, start, columns, row_filter, mask, late=late)
        if not mask.true_count:
            continue
        first, wanted = start, columns.of_result(searched)
        for physical in others(start, start + searched.num_rows):
            rows = searched.num_rows if physical is None else physical.num_rows
            part = mask.slice(first - start, rows)
            count = part.true_count
            if count:
                parts = [filter_rows(wanted.slice(first - start, rows), part)]
                if late:
                    check_decimals(parts[0])
                if physical is not None:
                    parts.append(_chosen(physical, part))
                yield columns.batch(parts, count, columns.positions(first, first + rows, part))
            first += rows


def _matches(
    searched: pa.RecordBatch,
    start: int,
    columns: _Columns,
    row_filter: RowFilter,
    live: pa.BooleanArray | None,
    *,
    late: bool,
) -> pa.BooleanArray:
    """A mask of the rows that are live and meet the filter; the others are false or null."""
    stop = start + searched.num_rows
    if late or live is None:
        found = row_filter.mask(columns.searched_batch(searched, columns.positions(start, stop, None, searched=True)))
        return found if live is None else pc.and_(pc.fill_null(found, ARROW_FALSE), live)
    rows = filter_rows(searched, live)
    found = row_filter.mask(columns.searched_batch(rows, columns.positions(start, stop, live, searched=True)))
    return pc.replace_with_mask(live, live, pc.fill_null(found, ARROW_FALSE))


def _chosen(physical: pa.RecordBatch, mask: pa.BooleanArray) -> pa.RecordBatch:
    """Some rows of a batch, which are valid. Flat columns are checked after the others were left out."""
    flat = all(is_flat(kind) for kind in physical.schema.types)
    if not flat:
        check_values(physical)
    rows = filter_rows(physical, mask)
    if flat:
        check_values(rows)
    return rows


def _searches(
    parquet: BoundedParquetFile, columns: _Columns, groups: list[int] | None
) -> Iterator[tuple[int, pa.RecordBatch, Callable[[int, int], Iterator[pa.RecordBatch | None]]]]:
    """Batches of the columns of the filter, each with the position of its first row, and a function.

    The function reads the other columns for a range of the batch's rows, as consecutive batches. A None stands for
    all rows of the range if the first batch has the other columns too: in a file with few rows, in one that is far,
    which would take more requests, and if there are no others.
    """
    names, others = columns.searched_names, [name for name in columns.names if name not in columns.searched_names]
    most = columns.batch_rows
    if not names or not others or parquet.far or parquet.metadata.num_rows < FEW_ROWS:
        for start, physical in _batches(parquet, columns.names, groups, most):
            yield start, physical, lambda *_: iter([None])
        return
    for start, run in _search_runs(groups, parquet.footer):
        # Both readers of a file have one size of batches.
        rows = parquet.batch_rows(most, run, columns.names)
        rest = _Following(_run_batches(parquet, others, start, run, rows))
        for first, physical in _run_batches(parquet, names, start, run, rows):
            yield first, physical, rest.rows


class _Following:
    """Columns that are decoded where they are asked for, and from the first row to that.

    Args:
        batches: consecutive batches of these columns, each with the position of its first row.
    """

    def __init__(self, batches: Iterator[tuple[int, pa.RecordBatch]]):
        self._batches = batches
        self._first, self._held = 0, pa.record_batch([])

    def rows(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """The rows from one position to before another. Calls ask for ascending ranges.

        Raises:
            ValueError: there are fewer rows.
        """
        while start < stop:
            end = self._first + self._held.num_rows
            if start < end:
                last = min(stop, end)
                yield self._held.slice(start - self._first, last - start)
                start = last
            else:
                found = next(self._batches, None)
                if found is None:
                    raise ValueError("a column has fewer rows than another one")
                self._first, self._held = found


def _search_runs(groups: list[int] | None, footer: Any) -> Iterator[tuple[int, list[int]]]:
    """Same as :func:`_runs`; the runs are cut after some rows, to be searched one after the other."""
    sizes = {number: footer.row_group(number).num_rows for number in range(footer.num_row_groups)}
    for start, run in _runs(list(sizes) if groups is None else groups, footer):
        first = start
        for part in at_least(run, sizes.__getitem__, _SEARCHED_ROWS):
            yield first, part
            first += sum(map(sizes.__getitem__, part))


def _searched_groups(parquet: BoundedParquetFile, layout: _Layout) -> list[int] | None:
    """The row groups that the filter leaves; None for all."""
    plan = layout.plan
    return None if plan.row_filter is None else groups_to_read(parquet, plan.row_filter, layout.stored, plan.read)


def _groups_in(part: tuple[int, int], footer: Any, groups: list[int] | None) -> list[int]:
    """The row groups among ``groups``, all if None, that begin in a part of the file."""
    first, last = part
    among = range(footer.num_row_groups) if groups is None else groups
    return [group for group in among if first <= _first_byte(footer.row_group(group)) < last]


def _first_byte(group: Any) -> int:
    # A row group without columns, or whose numbers are wrong, is read with the first part.
    return max(0, chunk_start(group.column(0))) if group.num_columns else 0


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
    parquet: BoundedParquetFile, names: Sequence[str], groups: list[int] | None, most: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of row groups, all if None, of at most ``most`` rows, each with the position of its first row."""
    for start, run in [(0, None)] if groups is None else _runs(groups, parquet.metadata):
        yield from _run_batches(parquet, names, start, run, most)


def _run_batches(
    parquet: BoundedParquetFile, names: Sequence[str], start: int, run: list[int] | None, most: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Same as :func:`_batches`, for consecutive row groups, all if None, from the position ``start`` on."""
    for batch in parquet.iter_batches(most, row_groups=run, columns=names):
        rows, bytes_ = unfolding(batch)
        with sharing(bytes_):
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


class _Layout:
    """The sources of the columns of a plan in all files of one form.

    Attributes:
        plan: the plan.
        stored: the table's columns that are not partition columns, by logical name, each with its source.
        kept: the indexes and kinds of columns of row tracking.
        searched: the indexes of the columns that the filter uses.
        names: the file's columns.
        searched_names: those that the filter uses.
        result_names: those that the result needs.
        searched_as_stored: whether the columns of the filter need no conversion, which could fail.
        schema: of the result, without dictionaries.
        searched_schema: of the columns that the filter uses.
        most_rows: the most rows of a batch, if its partition values are short.
    """

    def __init__(self, parquet: BoundedParquetFile, plan: ReadPlan):
        self.plan = plan
        stored = [item for item in plan.read if item.name not in plan.partition_columns]
        try:
            calendar = legacy_calendar(parquet.metadata)
            sources = plan_columns(parquet.schema_arrow, stored, by_id=plan.by_id, calendar=calendar)
        except UnsupportedTypeError as error:
            raise ValueError(str(error)) from error
        self.stored = {item.name: (item, source) for item, source in zip(stored, sources, strict=True)}
        self.kept = {index: kind for index, item in enumerate(plan.read) if (kind := kind_of(item)) is not None}
        wanted = frozenset() if plan.row_filter is None else plan.row_filter.columns
        self.searched = [index for index, item in enumerate(plan.read) if item.name in wanted]
        searched = [self.stored[name][1] for name in self.stored if name in wanted]
        self.names = list({source.name: None for source in sources if source.name is not None})
        self.searched_names = list({source.name: None for source in searched if source.name is not None})
        self.result_names = {self.stored[item.name][1].name for item in plan.columns if item.name in self.stored}
        self.searched_as_stored = all(source.convert is None for source in searched)
        self.schema = plan.schema
        self.searched_schema = pa.schema([arrow_field(plan.read[index]) for index in self.searched])
        # Strings that need no conversion. A name with a dot may be the path of a field of another column.
        self.texts = {
            name: source.name
            for name, (_, source) in self.stored.items()
            if source.name is not None and source.is_text and "." not in source.name
        }
        # Padding and most functions make more bytes of a row than the file has.
        simple = plan.row_filter is None or plan.row_filter.only_compares
        larger = plan.kept and simple and all(padding_of(item) is None for item in stored)
        self.most_rows = BATCH_ROWS * (_LARGER if larger else 1)


class _Columns:
    """The source of each column of a plan in one file: a column of the file, or a partition value."""

    def __init__(self, layout: _Layout, parquet: BoundedParquetFile, file: ScanFile):
        plan = layout.plan
        self.layout, self._file = layout, file
        self.names, self.searched_names = layout.names, layout.searched_names
        self.searched_as_stored = layout.searched_as_stored
        kept = self._dictionaries(parquet)
        searched = {plan.read[index].name for index in layout.searched}
        encoded = {name for name, small in kept.items() if small and name in plan.encoded and name not in searched}
        self._columns: list[ColumnSource | _Constant] = [
            _Constant(file.partition_values[item.name])
            if item.name not in layout.stored
            else replace(layout.stored[item.name][1], convert=decoded)
            if item.name in kept and item.name not in encoded
            else layout.stored[item.name][1]
            for item in plan.read
        ]
        self._schema = layout.schema
        if encoded:
            fields = [
                item.with_type(pa.dictionary(pa.int32(), item.type)) if item.name in encoded else item
                for item in self._schema
            ]
            self._schema = pa.schema(fields)

    def _dictionaries(self, parquet: BoundedParquetFile) -> dict[str, bool]:
        """The columns that are read as dictionaries, and whether these are small. To decode many strings here is faster
        than in Parquet's reader.
        """
        texts, encoded = self.layout.texts, self.layout.plan.encoded
        if texts and parquet.metadata.num_rows < FEW_ROWS:
            texts = {name: source for name, source in texts.items() if name in encoded}
        kept = parquet.keep_dictionaries(list(texts.values())) if texts else {}
        return {name: kept[physical] for name, physical in texts.items() if physical in kept}

    @property
    def batch_rows(self) -> int:
        """The most rows of a batch: each repeats the partition values, which may be long."""
        width = sum(column.width for column in self._columns if isinstance(column, _Constant))
        return max(1, min(self.layout.most_rows, BATCH_BYTES // max(1, width)))

    def positions(
        self, start: int, stop: int, mask: pa.BooleanArray | None, *, searched: bool = False
    ) -> pa.Array | None:
        """The positions of a range of rows, or of those for which a mask is true; None if no column needs them, or none
        of those that are searched.
        """
        if not (self.layout.kept or (self.layout.plan.positions and not searched)):
            return None
        if mask is None:
            return pa.arange(start, stop).cast(pa.uint64())
        return pc.add(pc.indices_nonzero(mask), scalar_of(start, pa.int64()).cast(pa.uint64()))

    def of_result(self, physical: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of a batch of the file that the result needs; at least one, which has the number of rows."""
        names = [name for name in physical.schema.names if name in self.layout.result_names]
        return physical if len(names) == physical.num_columns else physical.select(names or physical.schema.names[:1])

    def searched_batch(self, physical: pa.RecordBatch, positions: pa.Array | None) -> pa.RecordBatch:
        """The columns that the filter uses."""
        arrays = [self._read(index, physical, positions) for index in self.layout.searched]
        return pa.RecordBatch.from_arrays(arrays, schema=self.layout.searched_schema)

    def batch(self, parts: Sequence[pa.RecordBatch], rows: int, positions: pa.Array | None) -> pa.RecordBatch:
        """The rows of the result.

        Args:
            parts: the file's columns, in one or two batches of the same rows.
            rows: the number of rows.
            positions: their positions, if they are needed.
        """
        arrays = []
        for index in range(len(self.layout.plan.columns)):
            column = self._columns[index]
            name = column.name if isinstance(column, ColumnSource) else None
            part = parts[0] if len(parts) == 1 or name is None or name in self.searched_names else parts[1]
            arrays.append(self._read(index, part, positions))
        if self.layout.plan.positions:
            arrays.append(positions)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema) if arrays else rows_only(rows)

    def _read(self, index: int, physical: pa.RecordBatch, positions: pa.Array | None) -> pa.Array:
        """A column; rows that store no row id, or no commit version, have the defaults.

        Implements PROTOCOL.md, "Reader Requirements for Row Tracking".
        """
        array, kind = self._columns[index].read(physical), self.layout.kept.get(index)
        if kind is None or positions is None:
            return array
        if kind == ROW_ID:
            default = pc.add(positions.cast(pa.int64()), scalar_of(self._file.base_row_id, pa.int64()))
        else:
            default = scalar_of(self._file.commit_version, pa.int64())
        return pc.coalesce(array, default)


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
        The numbers of the row groups, ascending; all if nothing is known.

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
        counts = [s.null_count if s is not None and s.has_null_count else None for s in statistics]
        nulls[name] = array_of(counts, pa.int64())
    stats = _struct(
        {
            "numRecords": array_of([group.num_rows for group in groups], pa.int64()),
            "minValues": _struct(low),
            "maxValues": _struct(high),
            "nullCount": _struct(nulls),
            # The library that wrote the file computed them, of the stored values; floats have none here.
            EXACT_BOUNDS: pa.repeat(ARROW_TRUE, len(groups)),
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
    counts = Counter(names)
    return {name: i for i, name in enumerate(names) if "." not in name and counts[name] == 1}


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
        return array_of([getattr(s, side) if s is not None and s.has_min_max else None for s in statistics], kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return pa.nulls(len(statistics), kind)  # a value that Python lacks, such as a date after the year 9999


def _struct(columns: dict[str, pa.Array]) -> pa.StructArray:
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
