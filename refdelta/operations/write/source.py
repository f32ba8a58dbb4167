"""The source of a write's rows: any Arrow data as one stream of record batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa

from refdelta.errors import InvalidArgumentError
from refdelta.operations.write.append import FileWriter, Rows, WrittenFiles
from refdelta.operations.write.data_frames import opened_frame

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction
    from refdelta_storage import Store

_ACCEPTED = (
    "an object with __arrow_c_stream__ or __arrow_c_array__ (pyarrow, polars, duckdb, pandas 2.2 or later), "
    "a pyarrow dataset, an iterable of record batches, a DeltaTable or a scan of one"
)


class TablesRead(msgspec.Struct):
    """The versions of Delta tables that rows come from. An iterable of tables opens them one after the other.

    Attributes:
        known: the snapshots that were opened so far.
        note: called with each snapshot that is opened later, before its rows are read; its errors end the write.
    """

    known: list[Snapshot] = []
    note: Callable[[Snapshot], None] | None = None

    def add(self, snapshot: Snapshot) -> None:
        """Add a snapshot that is opened."""
        self.known.append(snapshot)
        if self.note is not None:
            self.note(snapshot)

    def each(self, note: Callable[[Snapshot], None]) -> None:
        """Call ``note`` with each snapshot that was opened, and with each that will be opened."""
        for snapshot in self.known:
            note(snapshot)
        self.note = note

    def of(self, store: Store) -> Snapshot | None:
        """The first opened snapshot of the table in this store, or None."""
        return next((snapshot for snapshot in self.known if same_place(snapshot.store.uri, store.uri)), None)


class Source(Rows):
    """A stream of rows to write.

    Args:
        reader: the stream; it is read once.
        tables: the Delta tables that the rows come from.
    """

    def __init__(self, reader: pa.RecordBatchReader, tables: TablesRead) -> None:
        self.reader = reader
        self.schema = reader.schema
        self.tables = tables

    def write(self, writer: FileWriter) -> WrittenFiles:
        """Write the rows in this process."""
        return writer.write(self.reader.schema, self.reader)


def open_source(data: Any) -> Source:
    """Open ``data``, as :func:`refdelta.write_deltalake` takes it. Raises ``InvalidArgumentError`` for other data."""
    tables = TablesRead()
    return Source(_reader(data, tables), tables)


def record_reads(txn: Transaction, tables: TablesRead) -> None:
    """Record that a transaction writes rows of these tables. Rows of its own table count as a read of the whole table.

    Raises:
        InvalidArgumentError: rows are of the transaction's own table in another version than it reads.
    """

    def note(read: Snapshot) -> None:
        if same_place(read.store.uri, txn.store.uri):
            rest_on(txn, read.version)
        elif txn.snapshot is not None and read.metadata.id == txn.snapshot.metadata.id:
            # A copy of the table, or the table itself by another URI.
            txn.read_whole_table()

    tables.each(note)


def rest_on(txn: Transaction, version: int) -> None:
    """Record that the rows to write are made from a version of the transaction's own table.

    Raises:
        InvalidArgumentError: it is not the version that the transaction reads.
    """
    seen = txn.snapshot.version if txn.snapshot else -1
    if version != seen:
        raise InvalidArgumentError(
            f"the data are of version {version} of this table, but the transaction reads version {seen}; its read() "
            "returns rows of that version"
        )
    txn.read_whole_table()


def same_place(one: str, other: str) -> bool:
    """True if two URIs of stores name one folder; on local disk symbolic links are followed."""
    return one == other or (_is_local(one) and _is_local(other) and _real(one) == _real(other))


def _is_local(uri: str) -> bool:
    return uri.startswith("file:")


def _real(uri: str) -> str:
    return os.path.realpath(unquote(urlsplit(uri).path))


def _reader(data: Any, tables: TablesRead) -> pa.RecordBatchReader:
    if isinstance(data, pa.Table):
        return data.to_reader()
    if isinstance(data, pa.RecordBatchReader):
        return data
    if hasattr(data, "newest_for_writing"):  # a DeltaTable
        # A pinned version never changes, so it does not count as a read of the transaction's snapshot.
        return data.scan().to_reader() if data.pinned else _reader(data.scan(), tables)
    from refdelta.engine.scan.scan import Scan

    if isinstance(data, Scan):
        tables.add(data.snapshot)
        return data.to_reader()
    if (frame := opened_frame(data)) is not None:
        return frame
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data)
        if hasattr(data, "__arrow_c_array__"):
            batch = pa.record_batch(data)
            return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    except (pa.ArrowException, TypeError, OverflowError) as error:  # such as a single column, or unknown types
        raise InvalidArgumentError(f"the {type(data).__name__} cannot be read as an Arrow table: {error}") from error
    if hasattr(data, "scanner") and hasattr(data, "schema"):
        return data.scanner().to_reader()
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes, dict)):
        return _from_batches(iter(data), tables)
    raise InvalidArgumentError(f"cannot write a {type(data).__name__}; data must be {_ACCEPTED}")


def _from_batches(items: Iterator[Any], tables: TablesRead) -> pa.RecordBatchReader:
    first = next(items, None)
    if first is None:
        raise InvalidArgumentError(
            "cannot write an empty iterable: its schema is not known; pass a RecordBatchReader with a schema"
        )
    head = _batches(first, tables)
    schema = head.schema

    def rest() -> Iterator[pa.RecordBatch]:
        yield from head
        for item in items:
            for batch in _batches(item, tables):
                if not batch.schema.equals(schema):
                    raise InvalidArgumentError(f"the batches differ in schema: first {schema}, then {batch.schema}")
                yield batch

    return pa.RecordBatchReader.from_batches(schema, rest())


def _batches(item: Any, tables: TablesRead) -> pa.RecordBatchReader:
    if not any(hasattr(item, name) for name in ("__arrow_c_stream__", "__arrow_c_array__", "newest_for_writing")):
        raise InvalidArgumentError(f"cannot write an iterable of {type(item).__name__}; data must be {_ACCEPTED}")
    return _reader(item, tables)
