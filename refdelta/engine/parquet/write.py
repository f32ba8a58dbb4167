"""Writing rows as data files and change files: streamed, split by partition, near the target size, with statistics.

Memory is bounded. Rows are buffered by partition until they fill a row group; if all buffers together are too large,
the largest are written first, so that row groups are large where most rows are. At most :data:`OPEN_FILES` files are
open, those that are being completed included; the least recently written one is completed when another is needed.
A partition whose rows are few until the end is written as a whole: its file is open for one call.

Small parts of a batch share one copy of it, so that a few rows may keep many in memory. These copies are counted, and
if they are too large, the rows that are still buffered are copied once more. Batches grow with the number of
partitions, so that parts are not tiny: each takes about as much memory as a hundred rows.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import array_of, few_chunks, take
from refdelta.core.log.actions import Add, Cdc
from refdelta.core.log.paths import data_key, encode_path
from refdelta.engine.parquet.column_stats import stats_leaves
from refdelta.engine.parquet.dictionaries import joined, text_size
from refdelta.engine.parquet.encode import OPEN_FILES, SMALL_BYTES, DataFile, Encoder
from refdelta.engine.parquet.file_options import file_options
from refdelta.engine.parquet.layout import FileLayout, PartitionKey, codec_of, file_name, pages_of, shares_copies
from refdelta.engine.work.executor import cores
from refdelta.errors import DeltaError, InvalidArgumentError
from refdelta.table.change_feed import BEFORE_UPDATE, CHANGE_TYPE, DELETE, FOLDER
from refdelta.table.clustering import ColumnPath
from refdelta.table.properties import TableProperties
from refdelta.table.row_tracking import without_hidden
from refdelta.table.types import StructType
from refdelta_storage.base import Store
from refdelta_storage.errors import StorageError

# The default, which is that of delta-spark's auto-compaction. Plain writes of delta-spark have no target; those of
# deltalake have 100 MiB.
TARGET_FILE_SIZE = 128 * 1024 * 1024
# A row group has at most pyarrow's default number of rows, and so many bytes of Arrow's memory, for wide tables.
ROW_GROUP_ROWS = 1024 * 1024
ROW_GROUP_BYTES = 128 * 1024 * 1024
_LEAST_ROW_GROUP_BYTES = 32 * 1024
# The most bytes of buffered rows, over all partitions.
BUFFER_BYTES = 256 * 1024 * 1024
# Batches that are smaller by both are merged before they are split: into more partitions, into larger batches.
_SMALL_ROWS, _SMALL_BYTES = 64 * 1024, 8 * 1024 * 1024
_PART_ROWS, _MANY_BYTES = 256, 64 * 1024 * 1024


@contextmanager
def names_holding(text: str) -> Iterator[None]:
    """A context in which the names of all written files contain a string that identifies the writer among processes.

    Args:
        text: the string; no other writer may have the same.
    """
    numbers = itertools.count()
    token = _names.set(lambda: f"{text}-{next(numbers)}")
    try:
        yield
    finally:
        _names.reset(token)


_names: ContextVar[Callable[[], str]] = ContextVar("names", default=lambda: str(uuid.uuid4()))


def write_files(
    store: Store,
    data: pa.RecordBatchReader | Iterable[pa.RecordBatch],
    *,
    schema: StructType,
    partition_columns: Sequence[str],
    properties: TableProperties,
    clustering: Collection[ColumnPath] = (),
    target_file_size: int | None = None,
    data_change: bool = True,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
    unique: str | None = None,
) -> list[Add]:
    """Write rows as data files of a table; nothing is committed.

    Implements PROTOCOL.md, "Data Files", "Per-file Statistics" and "Partition Value Serialization".

    Args:
        store: the table's folder.
        data: record batches of exactly the Arrow schema of ``schema``; see :mod:`refdelta.engine.parquet.fit`. Strings
            may be dictionaries, also with equal entries.
        schema: the table's schema.
        partition_columns: the columns by which files are split; files store them only if a property says so.
        properties: the table's properties: statistics, codec and target size.
        clustering: its clustering columns, which have statistics in any case.
        target_file_size: the approximate size of a file, in bytes; None for ``delta.targetFileSize``, or else 128 MiB.
        data_change: whether the rows are new; False if they are moved from other files.
        workers: the number of threads that encode; None for one a processor, at most 8.
        progress: called with the number of rows of each batch.
        unique: the unique part of the files' names; None for that of :func:`names_holding`, or a new UUID.

    Returns:
        One action a file, in the order in which the files were begun; none for no rows.

    Raises:
        StoreError: the store refused or failed.
        DataFileError: Parquet cannot store the rows.
        InvalidArgumentError: an unknown codec, a target size that is not positive, or a path that is too long.

    After any error, those of ``data`` included, the written files are removed, if the store permits it.
    """
    target = _target_size(properties, target_file_size)
    layout = FileLayout.of(schema, partition_columns, materialized=properties.writes_partition_columns)
    codec = codec_of(file_options().codec or properties.compression_codec)
    leaves = stats_leaves(without_hidden(schema), partition_columns, properties, clustering)
    encoder = Encoder(store, layout.schema, leaves, codec, workers or min(8, cores()), pages_of(properties), OPEN_FILES)
    router = _Router(layout, encoder, codec, target, unique or _names.get()())
    try:
        for batch in _even(data, router):
            router.add(batch)
            if progress:
                progress(batch.num_rows)
        files = router.finish()
    except BaseException:
        _delete(store, encoder.abort())
        raise
    return _adds(layout, files, data_change)


class Form(Protocol):
    """The properties of a table on which its files depend; a snapshot has them, and a table that is being created."""

    @property
    def schema(self) -> StructType:
        """The table's schema."""

    @property
    def partition_columns(self) -> Sequence[str]:
        """Its partition columns."""

    @property
    def properties(self) -> TableProperties:
        """Its properties."""

    @property
    def clustering_columns(self) -> Collection[ColumnPath]:
        """Its clustering columns."""


def write_changes(
    store: Store,
    data: Iterable[pa.RecordBatch],
    table: Form,
    *,
    target_file_size: int | None = None,
    feed: bool = True,
    only: bool = False,
    unique: str | None = None,
) -> tuple[list[Add], list[Cdc]]:
    """Write rows that are marked by the kind of their change as data files and change files; nothing is committed.

    Implements PROTOCOL.md, "Change Data Files".

    Args:
        store: the table's folder.
        data: record batches of ``schema`` with a last column :data:`CHANGE`. A row is written to a change file unless
            the mark is null, and to a data file unless the mark says that the row is removed.
        table: the table. Change files leave out row ids, which may be in its schema.
        target_file_size: as for :func:`write_files`.
        feed: False for rows without marks; then there are no change files.
        only: whether only change files are written.
        unique: as for :func:`write_files`.

    Returns:
        One action a data file, and one a change file.

    Raises:
        DeltaError: the errors of :func:`write_files`.
    """
    if not feed:
        files = write_files(
            store,
            data,
            schema=table.schema,
            partition_columns=table.partition_columns,
            properties=table.properties,
            clustering=table.clustering_columns,
            target_file_size=target_file_size,
            unique=unique,
        )
        return files, []
    properties, partition_columns = table.properties, table.partition_columns
    target = _target_size(properties, target_file_size)
    codec = codec_of(file_options().codec or properties.compression_codec)
    own, materialized = without_hidden(table.schema), properties.writes_partition_columns
    layout = FileLayout.of(table.schema, partition_columns, materialized=materialized)
    recorded = FileLayout.of(StructType((*own, CHANGE_TYPE)), partition_columns, materialized=materialized)
    leaves = stats_leaves(own, partition_columns, properties, table.clustering_columns)
    workers = max(1, min(8, cores()) // 2)
    encoders = [
        Encoder(store, layout.schema, leaves, codec, workers, pages_of(properties), OPEN_FILES // 2),
        Encoder(store, recorded.schema, [], codec, workers, pages_of(properties), OPEN_FILES // 2),
    ]
    unique = unique or _names.get()()
    rows = _Router(layout, encoders[0], codec, target, unique)
    changes = _Router(recorded, encoders[1], codec, target, unique, changes=True)
    try:
        for batch in _even(data, rows):
            stay = batch.slice(0, 0) if only else rows_that_stay(batch)
            if stay.num_rows:
                rows.add(stay)
            changed = batch.filter(pc.is_valid(batch.column(CHANGE.name)))
            if changed.num_rows:
                changes.add(changed.rename_columns([*changed.schema.names[:-1], CHANGE_TYPE.name]))
        made, change_files = rows.finish(), changes.finish()
    except BaseException:
        _delete(store, [key for encoder in encoders for key in encoder.abort()])
        raise
    cdcs = [
        Cdc(path=encode_path(file.key), partition_values=recorded.values(key), size=file.size, data_change=False)
        for key, file in change_files
    ]
    return _adds(layout, made, True), cdcs


CHANGE = pa.field("change_type\n", pa.string())
"""The column with the kind of a row's change, or null. No column of a table can have a name with a line break."""
_GONE = array_of([DELETE, BEFORE_UPDATE], pa.string())


def marked(batch: pa.RecordBatch, kind: str | None) -> pa.RecordBatch:
    """Rows with the same mark in a column :data:`CHANGE`."""
    kinds = pa.nulls(batch.num_rows, CHANGE.type) if kind is None else pa.repeat(kind, batch.num_rows)
    return batch.append_column(CHANGE, kinds)


def rows_that_stay(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The marked rows that are not removed, without the column of marks."""
    gone = pc.is_in(batch.column(CHANGE.name), value_set=_GONE)
    return batch.drop_columns([CHANGE.name]).filter(pc.invert(gone))


def _target_size(properties: TableProperties, asked: int | None) -> int:
    target = properties.target_file_size or TARGET_FILE_SIZE if asked is None else asked
    if target <= 0:
        raise InvalidArgumentError(f"target_file_size is {target}; it must be positive")
    return target


def _adds(layout: FileLayout, files: Iterable[tuple[PartitionKey, DataFile]], data_change: bool) -> list[Add]:
    return [
        Add(
            path=encode_path(file.key),
            partition_values=layout.values(key),
            size=file.size,
            modification_time=file.modified_ms,
            data_change=data_change,
            stats=file.stats.json(),
        )
        for key, file in files
    ]


def abort_files(store: Store, files: Iterable[Add | Cdc]) -> None:
    """Remove the files of actions that will not be committed, if the store permits it."""
    keys = []
    for file in files:
        with suppress(DeltaError):
            keys.append(data_key(file.path, store.uri))
    _delete(store, keys)


def _delete(store: Store, keys: list[str]) -> None:
    # Best effort: remaining files are invisible, and VACUUM removes them.
    with suppress(StorageError):
        if keys:
            store.delete(keys)


class _Partition(msgspec.Struct, eq=False):
    key: PartitionKey
    folder: str
    chunks: list[pa.RecordBatch] = []
    rows: int = 0
    size: int = 0
    file: DataFile | None = None


class _Router:
    """Distributes rows to the files of their partitions."""

    def __init__(
        self, layout: FileLayout, encoder: Encoder, codec: str, target: int, unique: str, *, changes: bool = False
    ):
        self._changes = changes
        self._layout, self._encoder, self._codec, self._target = layout, encoder, codec, target
        # A quarter of the files may be in the course of completion, so that others need not wait for them.
        self._most_open = max(1, encoder.most_open * 3 // 4)
        self.row_group_bytes = max(_LEAST_ROW_GROUP_BYTES, min(ROW_GROUP_BYTES, target))
        self._partitions: dict[PartitionKey, _Partition] = {}
        # Partitions with an open file, least recently written first.
        self._open: dict[PartitionKey, _Partition] = {}
        self._buffered = 0
        # The most bytes that buffered rows may keep in memory, as parts of shared copies.
        self._shared = 0
        # The number of partitions of the last batch.
        self.parts = 0
        self._unique = unique
        self._files: list[tuple[PartitionKey, DataFile]] = []

    def add(self, batch: pa.RecordBatch) -> None:
        parts = added = 0
        for key, rows in self._layout.split(batch):
            partition = self._partitions.get(key)
            if partition is None:
                partition = self._partitions[key] = _Partition(key, self._layout.folder(key))
            size = text_size(rows)
            if partition.rows + rows.num_rows > ROW_GROUP_ROWS or partition.size + size > self.row_group_bytes:
                self._flush(partition)
            partition.chunks.append(rows)
            partition.rows += rows.num_rows
            partition.size += size
            parts += 1
            added += size
        self.parts = parts
        self._buffered += added
        if shares_copies(batch.num_rows, parts):
            self._shared += added
        if self._buffered > BUFFER_BYTES:
            for partition in sorted(self._partitions.values(), key=lambda p: -p.size):
                self._flush(partition)
                if self._buffered <= BUFFER_BYTES // 2:
                    break
        if self._shared > BUFFER_BYTES:
            for partition in self._partitions.values():
                if partition.rows:
                    partition.chunks = _copied(partition.chunks)
            self._shared = 0

    def finish(self) -> list[tuple[PartitionKey, DataFile]]:
        for partition in self._partitions.values():
            if partition.file is None and 0 < partition.size <= SMALL_BYTES:
                rows, size = self._taken(partition)
                file = self._encoder.write_whole(self._next_key(partition), rows, size)
                self._files.append((partition.key, file))
                continue
            self._flush(partition)
            # Closed at once: with thousands of partitions, the open files would be as many.
            self._close(partition)
        self._encoder.finish()
        return self._files

    def _flush(self, partition: _Partition) -> None:
        """Write the buffered rows of a partition as one row group."""
        if partition.rows:
            rows, size = self._taken(partition)
            self._encoder.write(self._file(partition, size), rows, size)

    def _taken(self, partition: _Partition) -> tuple[pa.Table, int]:
        """The buffered rows of a partition, which are no longer buffered, and their size."""
        rows, size = joined(partition.chunks), partition.size
        if len(partition.chunks) > 1 and partition.rows < len(partition.chunks) * 4096:
            rows = few_chunks(rows)
        self._buffered -= size
        partition.chunks, partition.rows, partition.size = [], 0, 0
        return rows, size

    def _file(self, partition: _Partition, size: int) -> DataFile:
        """The file for the next row group of a partition: the open one unless it is full."""
        file = partition.file
        # A file whose rows have fewer bytes than the target is not full: encoding seldom makes rows larger.
        if file and file.given + size > self._target and self._encoder.expected_size(file, size // 2) > self._target:
            self._close(partition)
            file = None
        if file is None:
            if len(self._open) >= self._most_open:
                self._close(next(iter(self._open.values())))
            file = partition.file = self._encoder.open(self._next_key(partition))
            self._files.append((partition.key, file))
        self._open.pop(partition.key, None)
        self._open[partition.key] = partition
        return file

    def _next_key(self, partition: _Partition) -> str:
        name = file_name(len(self._files), self._unique, self._codec, changes=self._changes)
        return (FOLDER if self._changes else "") + partition.folder + name

    def _close(self, partition: _Partition) -> None:
        if partition.file:
            self._encoder.close(partition.file)
            partition.file = None
            del self._open[partition.key]


def _copied(chunks: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The same rows in one batch, which shares no memory with others."""
    rows = joined(chunks)
    copied: list[pa.RecordBatch] = take(rows, pa.arange(0, rows.num_rows)).to_batches()
    return copied


def _even(data: Iterable[pa.RecordBatch], router: _Router) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are neither tiny, by the number of partitions, nor larger than a row group."""
    most = router.row_group_bytes
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in data:
        if not batch.num_rows:
            continue
        if held and batch.schema != held[0].schema:
            yield from _pieces(held, rows, size, most)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        enough = router.parts * _PART_ROWS
        full = rows >= _SMALL_ROWS or size >= min(_SMALL_BYTES, most)
        if full and (rows >= enough or size >= min(_MANY_BYTES, most)):
            yield from _pieces(held, rows, size, most)
            held, rows, size = [], 0, 0
    if held:
        yield from _pieces(held, rows, size, most)


def _pieces(held: list[pa.RecordBatch], rows: int, size: int, most: int) -> Iterator[pa.RecordBatch]:
    batch = few_chunks(pa.Table.from_batches(held))
    count = max(-(-size // most), -(-rows // ROW_GROUP_ROWS))
    step = -(-rows // count)
    for start in range(0, rows, step):
        yield from batch.slice(start, step).to_batches()
