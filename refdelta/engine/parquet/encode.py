"""Encoding of data files: row groups are encoded, and their statistics collected, on a few threads.

A file is encoded by one thread at a time, in the order of its row groups. Several files are encoded in parallel, and
statistics in parallel with the encoding. The bytes that are queued or in work are bounded: a source that is faster than
the encoder waits.

Small files of one row group are encoded in memory, many in one task, and are synced together at the end, in parallel,
each folder once: the system makes many files durable in the time of a few. A single small file is encoded without
threads.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import cached_property
from typing import Any, BinaryIO, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from refdelta.engine.parquet.column_stats import StatsCollector, StatsLeaf
from refdelta.engine.parquet.dictionaries import dictionary_columns, with_dictionaries
from refdelta.engine.parquet.file_options import file_options, parquet_columns
from refdelta.engine.parquet.float_chunks import FloatChunks, float_leaves
from refdelta.engine.parquet.layout import CODECS
from refdelta.engine.work.executor import submitted
from refdelta.errors import DataFileError, InternalError, StoreError
from refdelta_storage.base import Store
from refdelta_storage.errors import StorageError

# The most Arrow bytes that are queued or in work: three row groups of up to 128 MiB, which keep two threads busy.
IN_FLIGHT_BYTES = 384 * 1024 * 1024
# The most files of one write that are open, those that are being closed included: a file descriptor each.
OPEN_FILES = 32
# A single file of fewer Arrow bytes is encoded on the caller's thread; several are encoded in one task, up to so many
# bytes and files.
SMALL_BYTES = 1024 * 1024
_SMALL_FILES = 64


class DataFile(msgspec.Struct, eq=False):
    """A data file that is being written.

    Attributes:
        key: its key in the store.
        stats: its statistics.
        floats: its column chunks of floating-point numbers with NaN or zeros.
        rows: the number of rows that were given to it.
        given: their size in Arrow's memory, in bytes.
        encoded: the size of the encoded row groups, in bytes.
        waiting: the size of the others in Arrow's memory, in bytes.
        size: the size of the closed file, in bytes.
        modified_ms: the time at which it was closed, in milliseconds since 1970.
    """

    key: str
    stats: StatsCollector
    floats: FloatChunks
    rows: int = 0
    given: int = 0
    encoded: int = 0
    waiting: int = 0
    size: int = -1
    modified_ms: int = 0
    jobs: deque[Callable[[], None]] = msgspec.field(default_factory=deque)
    busy: bool = False
    output: AbstractContextManager[BinaryIO] | None = None
    sink: _Sink | None = None
    writer: Any = None


class _Sink:
    """A stream to write to, of which the end can be held back and changed."""

    def __init__(self, stream: BinaryIO):
        self._stream = stream
        self._held: list[bytes] | None = None
        self.closed = False  # pyarrow asks for it

    def write(self, data: bytes) -> int:
        """Write bytes, or hold them back after :meth:`hold`."""
        if self._held is None:
            return self._stream.write(data)
        self._held.append(data)
        return len(data)

    def hold(self) -> None:
        """Hold back what is written from now on."""
        self._held = []

    def release(self, change: Callable[[bytes], bytes]) -> None:
        """Write what was held back, changed."""
        held, self._held = self._held or [], None
        self._stream.write(change(b"".join(held)))

    def flush(self) -> None:
        """Same as for the stream."""
        self._stream.flush()

    def tell(self) -> int:
        """Same as for the stream."""
        return self._stream.tell()


class _RowGroup(msgspec.Struct, eq=False):
    rows: pa.Table
    size: int
    open_parts: int = 2


class _SmallFile(msgspec.Struct, eq=False):
    file: DataFile
    rows: pa.Table


class Encoder:
    """Writes data files to a store.

    Args:
        store: the table's folder.
        schema: the Arrow schema of the data files.
        leaves: the columns with statistics.
        codec: one of ``layout.CODECS``.
        workers: the number of threads that encode.
        pages: the version of data pages, ``1.0`` or ``2.0``.
        most_open: the number of files that may be open, those that are being closed included, and one a thread.

    :meth:`write`, :meth:`write_whole` and :meth:`finish` raise the errors of the threads: ``StoreError`` if the store
    refused or failed, ``DataFileError`` if rows cannot be encoded. After any error the caller has to call
    :meth:`abort`.
    """

    def __init__(
        self,
        store: Store,
        schema: pa.Schema,
        leaves: Sequence[StatsLeaf],
        codec: str,
        workers: int,
        pages: Literal["1.0", "2.0"] = "1.0",
        most_open: int = OPEN_FILES,
    ):
        self._pages = pages
        self._store, self._schema, self._leaves, self._codec = store, schema, leaves, codec
        self._floats = float_leaves(schema)
        self._options = file_options()  # of the caller's context, which the threads have not
        self._arguments: dict[tuple[int | None, bool], dict[str, Any]] = {}  # of writers that were asked for before
        self._workers = max(1, workers)
        self._pool: ThreadPoolExecutor | None = None
        self._changed = threading.Condition()
        self._in_flight = 0
        self._tasks = 0
        # Each thread may have a small file open.
        self.most_open, self._open = max(1, most_open - self._workers), 0
        self._error: BaseException | None = None
        # Small files that no task has yet, and the keys of those that are not synced.
        self._small: list[_SmallFile] = []
        self._small_bytes = 0
        self._unsynced: list[str] = []
        self._raw = self._encoded = 0
        self.files: list[DataFile] = []

    def open(self, key: str) -> DataFile:
        """Begin a file; waits for others that are being closed while too many are open.

        It is created when its first row group is encoded.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._error or self._open < self.most_open)
            self._open += 1
        self._raise()
        file = DataFile(key, StatsCollector(self._leaves), FloatChunks(self._floats))
        self.files.append(file)
        return file

    def write(self, file: DataFile, rows: pa.Table, size: int) -> None:
        """Queue rows as one row group of a file; waits while too much is queued.

        Args:
            file: the file.
            rows: the rows.
            size: of the rows, in bytes.
        """
        group = _RowGroup(rows, max(1, size))
        with self._changed:
            self._wait_for_room(group.size)
            self._in_flight += group.size
            file.rows += rows.num_rows
            file.given += group.size
            file.waiting += group.size
        self._raise()
        self._queue(file, lambda: self._encode(file, group))
        self._submit(lambda: self._measure(file, group))

    def write_whole(self, key: str, rows: pa.Table, size: int) -> DataFile:
        """Write a file of one row group; it is durable after :meth:`finish`.

        Args:
            key: the key of the file.
            rows: all of its rows.
            size: of the rows, in bytes; at most :data:`SMALL_BYTES`.
        """
        file = DataFile(key, StatsCollector(self._leaves), FloatChunks(self._floats), rows.num_rows, max(1, size))
        self.files.append(file)
        self._small.append(_SmallFile(file, rows))
        self._small_bytes += file.given
        if len(self._small) >= _SMALL_FILES or self._small_bytes >= SMALL_BYTES:
            self._write_small()
        return file

    def close(self, file: DataFile) -> None:
        """Complete a file when all of its row groups are encoded; it has at least one."""
        self._queue(file, lambda: self._close(file))

    def expected_size(self, file: DataFile, more: int) -> float:
        """An estimate of the size of the file in bytes, when all of its rows and ``more`` bytes are encoded.

        Uses the compression of the rows that were encoded so far, and waits for the first of them.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._error or self._raw)
            return file.encoded + (file.waiting + more) * self._encoded / max(1, self._raw)

    def finish(self) -> list[DataFile]:
        """Wait until everything is written and durable. All files must have been closed."""
        self._write_small()
        with self._changed:
            self._changed.wait_for(lambda: not self._tasks)
        self._raise()
        self._shut_down()
        if self._unsynced:
            try:
                self._store.sync(self._unsynced)
            except StorageError as error:
                raise StoreError(f"cannot write {len(self._unsynced)} files to the disk: {error}") from error
        return self.files

    def abort(self) -> list[str]:
        """Stop, and discard the incomplete files.

        Returns:
            The keys of all files, for the caller to delete: a file whose completion failed may exist nevertheless.
        """
        with self._changed:
            self._error = self._error or InternalError(
                "rows were written to Parquet files after their write was aborted"
            )
            self._changed.wait_for(lambda: not self._tasks)
        self._shut_down()
        for file in self.files:
            _discard(file)
        return [file.key for file in self.files]

    # --- on the threads ------------------------------------------------------------------------------------------

    def _wait_for_room(self, size: int) -> None:
        self._changed.wait_for(lambda: self._error or not self._in_flight or self._in_flight + size <= IN_FLIGHT_BYTES)

    def _submit(self, task: Callable[[], None]) -> None:
        # Threads would take longer to start than a single small file to encode.
        alone = len(self.files) == 1 and self.files[0].given < SMALL_BYTES
        if self._pool is None and not alone:
            self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="refdelta-write")
            submitted(self._pool, int)  # fails at once if the system can start no thread
        with self._changed:
            self._tasks += 1
        if self._pool is None:
            self._run(task)
        else:
            submitted(self._pool, self._run, task)

    def _shut_down(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def _run(self, task: Callable[[], None]) -> None:
        try:
            if self._error is None:
                task()
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread, whatever it is
            with self._changed:
                self._error = self._error or error
        finally:
            with self._changed:
                self._tasks -= 1
                self._changed.notify_all()

    def _queue(self, file: DataFile, job: Callable[[], None]) -> None:
        with self._changed:
            file.jobs.append(job)
            start = not file.busy
            file.busy = True
        if start:
            self._submit(lambda: self._next(file))

    def _next(self, file: DataFile) -> None:
        # One job at a time, so that files take turns if there are more of them than threads.
        file.jobs.popleft()()
        with self._changed:
            file.busy = bool(file.jobs)
        if file.busy:
            self._submit(lambda: self._next(file))

    def _write_small(self) -> None:
        """Start a task for the small files that have none."""
        files, size = self._small, self._small_bytes
        self._small, self._small_bytes = [], 0
        if not files:
            return
        with self._changed:
            self._wait_for_room(size)
            self._in_flight += size
        self._raise()
        # A single file is synced as it is named.
        store = self._store if len(self.files) == 1 else self._store.hasty()
        if store is not self._store:
            self._unsynced += [small.file.key for small in files]
        self._submit(lambda: self._encode_small(store, files, size))

    def _encode_small(self, store: Store, files: Sequence[_SmallFile], size: int) -> None:
        for small in files:
            if self._error is not None:
                break
            file, rows = small.file, small.rows
            sink = pa.BufferOutputStream()
            try:
                most = self._options.row_group_rows or rows.num_rows
                file.floats.add(rows, most)
                # To write them without a dictionary takes less time than to change the footer.
                writer = self._writer(sink, rows, file.given, plain=file.floats.take_zeros())
                writer.write_table(rows, row_group_size=most)
                writer.close()
                data = sink.getvalue()
                if file.floats:
                    data = pa.py_buffer(file.floats.changed(data.to_pybytes()))
                file.stats.update(rows)
                with store.open_output(file.key) as output:
                    output.write(data)
            except (StorageError, OSError, pa.ArrowException) as error:
                raise _translated(error, file.key) from error
            file.size, file.modified_ms = data.size, time.time_ns() // 1_000_000
        with self._changed:
            self._in_flight -= size
            self._changed.notify_all()

    def _encode(self, file: DataFile, group: _RowGroup) -> None:
        try:
            if file.writer is None:
                self._create(file, group)
            before = file.sink.tell() if file.sink else 0
            rows = _as_before(group.rows, file.writer.schema)
            most = min(rows.num_rows, self._options.row_group_rows or rows.num_rows)
            file.writer.write_table(rows, row_group_size=most)
            file.floats.add(rows, most)
            grown = file.sink.tell() - before if file.sink else 0
        except (StorageError, OSError, pa.ArrowException) as error:
            raise _translated(error, file.key) from error
        with self._changed:
            file.encoded += grown
            file.waiting -= group.size
            self._raw += group.size
            self._encoded += grown
            self._done(group)

    def _measure(self, file: DataFile, group: _RowGroup) -> None:
        part = file.stats.measure(group.rows)
        with self._changed:
            file.stats.merge(part)
            self._done(group)

    def _done(self, group: _RowGroup) -> None:
        group.open_parts -= 1
        if not group.open_parts:
            self._in_flight -= group.size
        self._changed.notify_all()

    def _create(self, file: DataFile, group: _RowGroup) -> None:
        file.output = self._store.open_output(file.key)
        file.sink = _Sink(file.output.__enter__())
        file.writer = self._writer(file.sink, group.rows, group.size)

    def _writer(
        self, sink: _Sink | pa.NativeFile, rows: pa.Table, size: int, plain: Collection[int] = ()
    ) -> pq.ParquetWriter:
        """A writer for a file whose first row group has these rows, of so many bytes.

        ``plain`` has the numbers of the leaf columns that are written without a dictionary in any case.
        """
        schema, dictionaries = with_dictionaries(self._schema, rows.schema.types), dictionary_columns(rows)
        chosen = (_batch_size(rows.num_rows, size), dictionaries is True)
        arguments = self._arguments.get(chosen)
        if arguments is None:
            # As in Spark: decimals of up to 18 digits as integers, an index of pages, no Arrow schema.
            arguments = {
                "compression": CODECS[self._codec][0],
                "data_page_version": self._pages,
                "use_dictionary": dictionaries,
                "store_decimal_as_integer": True,
                "write_page_index": True,
                "write_batch_size": chosen[0],
                "store_schema": False,
                **self._options.of_writer(self._schema, dictionaries),
            }
            if dictionaries is True:  # most files
                self._arguments[chosen] = arguments
        if plain:
            asked = arguments["use_dictionary"]
            others = (path for number, path in enumerate(self._paths) if number not in plain)
            arguments = arguments | {"use_dictionary": [path for path in others if asked is True or path in asked]}
        return pq.ParquetWriter(sink, schema, **arguments)

    @cached_property
    def _paths(self) -> list[str]:
        """The paths of the leaf columns."""
        return [path for item in self._schema for path, _ in parquet_columns(item.name, item.type)]

    def _close(self, file: DataFile) -> None:
        try:
            if file.floats and file.sink:
                file.sink.hold()
                file.writer.close()
                file.sink.release(file.floats.changed)
            else:
                file.writer.close()
            size = file.sink.tell() if file.sink else 0
            if file.output:
                file.output.__exit__(None, None, None)
        except (StorageError, OSError, pa.ArrowException) as error:
            raise _translated(error, file.key) from error
        file.writer = file.sink = file.output = None
        file.modified_ms = time.time_ns() // 1_000_000
        file.size = size
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error


def _batch_size(rows: int, size: int) -> int | None:
    """The number of values that are encoded at once; None for pyarrow's 1,024. A page has at least so many values, so
    this is larger only for short rows.
    """
    return 8192 if size <= 256 * rows else None


def _as_before(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the dictionaries of the file's first row group, which may be those of other columns."""
    if rows.schema == schema:
        return rows
    return pa.table([column.cast(kind) for column, kind in zip(rows.columns, schema.types, strict=True)], schema=schema)


def _translated(error: Exception, key: str) -> Exception:
    if isinstance(error, (StorageError, OSError)):
        return StoreError(f"cannot write {key}: {error.strerror or error}")
    return DataFileError(f"cannot be written as Parquet: {error}", file=key)


def _discard(file: DataFile) -> None:
    """Discard an incomplete file; the store removes the written part."""
    if file.writer is not None:
        # An open writer would write its footer at garbage collection, to a closed sink.
        with suppress(OSError, ValueError, pa.ArrowException):
            file.writer.close()
        file.writer.is_open = False
    if file.output is not None:
        cause = StoreError(f"the write of {file.key} was given up")
        with suppress(OSError, ValueError, StoreError):
            file.output.__exit__(StoreError, cause, None)
    file.writer = file.sink = file.output = None
