"""The source of a write's rows: any Arrow data as one stream of record batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from urllib.parse import quote, unquote

import msgspec
import pyarrow as pa

from refdelta.arrow.conversion import conversion
from refdelta.arrow.scanner import reader_of
from refdelta.core.log.paths import SAME_STORE, commit_key
from refdelta.engine.parquet.files import store_errors
from refdelta.engine.scan.origin import marks_of, noting
from refdelta.errors import InvalidArgumentError
from refdelta.operations.write.append import FileWriter, Rows, WrittenFiles
from refdelta.operations.write.data_frames import has_no_rows, opened_frame, tables_in_plan, untyped
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.table.types import StructType
    from refdelta.transaction.transaction import Transaction
    from refdelta_storage import Store

_ACCEPTED = (
    "an object with __arrow_c_stream__ or __arrow_c_array__ (pyarrow, polars, duckdb, pandas 2.2 or later), "
    "a LazyFrame, a pyarrow dataset or scanner, an iterable of record batches, a DeltaTable or a scan of one"
)


class TablesRead(msgspec.Struct):
    """The versions of Delta tables that rows come from, but for versions that the caller has named.

    Some are known before the rows are read. Those of an iterable of tables, or of a stream of another library that
    reads tables, are known when it comes to their rows.

    Attributes:
        known: the snapshots that are known so far.
        note: called with each snapshot that is found later; its errors end the write.
    """

    known: list[Snapshot] = []
    note: Callable[[Snapshot], None] | None = None

    def add(self, snapshots: Iterable[Snapshot]) -> None:
        """Add snapshots that rows come from."""
        for snapshot in snapshots:
            if not any(one is snapshot for one in self.known):
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
        without_rows: whether they are a frame of pandas without rows, whose columns have no types of their own.
    """

    def __init__(self, reader: pa.RecordBatchReader, tables: TablesRead, *, without_rows: bool = False) -> None:
        self.reader = reader
        self.schema = reader.schema
        self.tables = tables
        self._without_rows = without_rows

    def convert_for(self, table: StructType | None, timezone: str | None) -> None:
        """Convert the values whose type depends on the table; see :func:`refdelta.arrow.conversion.conversion`.

        Args:
            table: the table's schema; None for a new one.
            timezone: the zone of times without one; None refuses them where the table has points in time.
        """
        if self._without_rows and table is not None:
            self.reader = untyped(self.schema, table).empty_table().to_reader()
            self.schema = self.reader.schema
        converted = conversion(self.schema, table, timezone)
        if converted.changes:
            self.reader = pa.RecordBatchReader.from_batches(converted.schema, converted.apply(self.reader))
            self.schema = converted.schema

    def write(self, writer: FileWriter) -> WrittenFiles:
        """Write the rows in this process."""
        return writer.write(self.reader.schema, self.reader)


class OfTables(Protocol):
    """Rows that other processes have, and that may be made from Delta tables."""

    def version_of(self, table: Snapshot) -> int | None:
        """The oldest version of a table from which the rows are made; None if they are not made from it. Rows of an
        unknown source count as made from ``table``.
        """

    def versions_elsewhere(self) -> Callable[[str], int | None] | None:
        """The oldest version of any table that was read for these rows, by the URI of its store, if the rows name
        the table; None if they name none.
        """


class DistributedRows(Rows, OfTables):
    """Rows that other processes have, and write."""


@runtime_checkable
class DistributedWriter(Protocol):
    """An executor whose processes write rows."""

    def rows_of(self, data: Any) -> DistributedRows | None:
        """The data as rows of other processes; None for data that is read in this process."""


def open_rows(txn: Transaction, data: Any) -> Rows:
    """Open ``data`` for a transaction: rows that the processes of its executor have, whose reads are recorded, or a
    stream, whose reads are recorded by :func:`record_reads`.

    Raises:
        InvalidArgumentError: it is other data, or rows of the transaction's own table in another version.
    """
    executor: object = txn.executor
    rows = executor.rows_of(data) if isinstance(executor, DistributedWriter) else None
    if rows is None:
        return open_source(data)
    record_reads_of(txn, rows)
    return rows


def record_reads_of(txn: Transaction, rows: OfTables) -> None:
    """Record that a transaction writes rows of other processes, as :func:`record_reads` does for rows of this one."""
    version = None if txn.snapshot is None else rows.version_of(txn.snapshot)
    if version is not None:
        rest_on(txn, version)
    if txn.made_elsewhere is not None and (versions := rows.versions_elsewhere()) is not None:
        txn.made_elsewhere(versions)


def open_source(data: Any) -> Source:
    """Open ``data``, as :func:`refdelta.write_deltalake` takes it. Raises ``InvalidArgumentError`` for other data."""
    tables = TablesRead()
    with noting() as seen:
        reader = _reader(data, tables)
    tables.add(seen)
    if not isinstance(data, (pa.Table, pa.RecordBatch)):
        reader = _noted(reader, tables)
    return Source(reader, tables, without_rows=has_no_rows(data))


def _noted(reader: pa.RecordBatchReader, tables: TablesRead) -> pa.RecordBatchReader:
    """The same rows; the tables that give them, in the thread that reads them, are added to ``tables``."""

    def batches() -> Iterator[pa.RecordBatch]:
        while True:
            try:
                with noting() as seen:
                    batch = next(reader, None)
            finally:
                tables.add(seen)
            if batch is None:
                return
            yield batch

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def record_reads(txn: Transaction, tables: TablesRead) -> None:
    """Record that a transaction writes rows of these tables. Rows of its own table count as a read of the whole table,
    and so do those of another table of the same transaction.

    Raises:
        InvalidArgumentError: rows are of the transaction's own table in another version than it reads.
    """

    def note(read: Snapshot) -> None:
        own = txn.snapshot
        if same_place(read.store.uri, txn.store.uri):
            rest_on(txn, read.version)
        elif own is not None and read.metadata.id == own.metadata.id:
            if read.version == own.version or not _is_alias(read, own):
                txn.read_whole_table()
            else:
                rest_on(txn, read.version)
        elif txn.reads_elsewhere is not None:
            txn.reads_elsewhere(read)

    tables.each(note)


def _is_alias(one: Snapshot, other: Snapshot) -> bool:
    """Whether two snapshots with the same id, of different versions, are of one table by two URIs. The other case is a
    copy of its folder, which lacks the later version, or has another commit in its place.
    """
    key = commit_key(max(one.version, other.version))
    with store_errors("compare the source with the table"):
        try:
            return bool(one.store.get(key) == other.store.get(key))
        except ObjectNotFoundError:
            return False


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
    """True if two URIs of stores name one folder."""
    return one == other or place_of(one) == place_of(other)


def place_of(uri: str) -> str:
    """The URI of a store in one spelling: symbolic links of local paths are followed, and of the schemes that name one
    service one is taken.
    """
    scheme, mark, rest = uri.partition("://")
    if scheme == "file":
        return f"file://{quote(os.path.realpath(unquote(rest)))}"
    return f"{SAME_STORE.get(scheme, scheme)}{mark}{rest}"


def _reader(data: Any, tables: TablesRead) -> pa.RecordBatchReader:
    reader = _of_one(data, tables)
    if reader is not None:
        return reader
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes, dict)):
        return _from_batches(data, tables)
    raise _refused(data, f"a {type(data).__name__}")


def _of_one(data: Any, tables: TablesRead) -> pa.RecordBatchReader | None:
    """The rows of one object; None for an iterable of batches, and for other data."""
    tables.add(marks_of(data))
    if isinstance(data, pa.Table):
        return data.to_reader()
    if isinstance(data, pa.RecordBatchReader):
        return data
    if hasattr(data, "pinned") and hasattr(data, "scan"):  # a DeltaTable
        return _of_one(data.scan(), tables)
    from refdelta.engine.scan.scan import Scan

    held = getattr(data, "_scan", data)  # that of a DeltaTable's scan
    if isinstance(held, Scan):
        return _of_one(held.to_reader(), tables)
    tables.add(tables_in_plan(data))
    if (frame := opened_frame(data)) is not None:
        return frame
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data)
        if hasattr(data, "__arrow_c_array__"):
            batch = pa.record_batch(data)
            return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    except (pa.ArrowException, TypeError, OverflowError) as error:  # such as a single column, or unknown types
        problem = f"the {type(data).__name__} cannot be read as an Arrow table: {error}"
        raise InvalidArgumentError(problem + _hint(data, "; ")) from error
    if hasattr(data, "scanner"):  # a dataset, or a fragment of one
        return reader_of(data.scanner())
    if hasattr(data, "projected_schema") and hasattr(data, "to_batches"):  # a scanner
        return reader_of(data)
    return None


def _from_batches(data: Iterable[Any], tables: TablesRead) -> pa.RecordBatchReader:
    items = iter(data)
    first = next(items, None)
    if first is None:
        raise InvalidArgumentError(
            "cannot write an empty iterable: its schema is not known; pass a RecordBatchReader with a schema"
        )
    head = _batches(data, first, tables)
    schema = head.schema

    def rest() -> Iterator[pa.RecordBatch]:
        yield from head
        for item in items:
            for batch in _batches(data, item, tables):
                if not batch.schema.equals(schema):
                    raise InvalidArgumentError(f"the batches differ in schema: first {schema}, then {batch.schema}")
                yield batch

    return pa.RecordBatchReader.from_batches(schema, rest())


def _batches(data: Iterable[Any], item: Any, tables: TablesRead) -> pa.RecordBatchReader:
    reader = _of_one(item, tables)
    if reader is None:
        raise _refused(data, f"an iterable of {type(item).__name__}", item)
    return reader


def _refused(data: Any, what: str, item: Any = None) -> InvalidArgumentError:
    return InvalidArgumentError(f"cannot write {what}{_hint(data, ': ', item)}; data must be {_ACCEPTED}")


def _hint(data: Any, before: str, item: Any = None) -> str:
    """The call that makes rows of some data that is refused; empty if none is known."""
    kind = type(data)
    library = kind.__module__.partition(".")[0]
    advice = None
    if isinstance(data, (str, os.PathLike)):
        advice = "read the file first, for example with pyarrow.dataset.dataset(path)"
    elif isinstance(data, dict):
        advice = "pyarrow.table(data) makes a table of columns, pyarrow.Table.from_pylist([data]) of a row"
    elif isinstance(item, dict):
        advice = "pyarrow.Table.from_pylist(list(data)) makes a table of them"
    elif library == "numpy" and getattr(data.dtype, "names", None):
        advice = "pyarrow.table({name: data[name] for name in data.dtype.names}) makes a table of them"
    elif library == "numpy" or isinstance(item, (list, tuple)):
        advice = "columns need names; pyarrow.table() takes them by name"
    elif kind.__name__ == "Series":
        advice = "a column is no table: data.to_frame()"
    elif library == "pyarrow":
        advice = 'pyarrow.table({"name": data})'
    elif kind.__name__ == "DuckDBPyConnection":
        advice = "connection.sql(query) makes a relation, which is accepted"
    elif library == "pyspark":
        advice = (
            "refdelta.spark.write(data, uri) writes it on the cluster, and so does a transaction that was begun with "
            "executor=refdelta.spark.SparkExecutor(spark); data.toArrow() makes a table in memory"
        )
    else:
        calls = ("to_arrow_reader", "to_pyarrow_batches", "to_arrow", "to_pyarrow", "fetch_record_batch", "to_pandas")
        found = next((name for name in calls if callable(getattr(data, name, None))), None)
        advice = found and f"its {found}() may give rows"
    return f"{before}{advice}" if advice else ""
