"""Where the rows of a write come from: anything that speaks Arrow, as one stream of record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from refdelta.errors import InvalidArgumentError

if TYPE_CHECKING:
    from refdelta.engine.snapshot import Snapshot
    from refdelta.ops.append import FileWriter, Written

_ACCEPTED = (
    "an object with __arrow_c_stream__ or __arrow_c_array__ (pyarrow, polars, duckdb, pandas 2.2 or later), "
    "a pyarrow dataset, an iterable of record batches, a DeltaTable or a scan of one"
)


class Rows(Protocol):
    """Rows to write, wherever they are written."""

    @property
    def schema(self) -> pa.Schema:
        """Their Arrow schema."""

    def write(self, writer: FileWriter) -> Written:
        """Write them, once, as ``writer`` says: all of them here, or parts of them in other processes."""


@dataclass(frozen=True)
class Source:
    """The rows to write.

    Attributes:
        reader: the stream; it is read once.
        snapshot: the snapshot that the rows are read from, where they come from a Delta table.
    """

    reader: pa.RecordBatchReader
    snapshot: Snapshot | None = None

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self.reader.schema

    def write(self, writer: FileWriter) -> Written:
        """Write the rows in this process."""
        return writer.write(self.reader.schema, self.reader)


def open_source(data: Any) -> Source:
    """Open ``data`` as a stream. Raises ``InvalidArgumentError`` for what is not Arrow."""
    if isinstance(data, pa.Table):
        return Source(_reader(data))
    from refdelta.engine.scan import Scan

    if isinstance(data, Scan):
        return Source(data.to_reader(), data.snapshot)
    return Source(_reader(data))


def _reader(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data)
        if hasattr(data, "__arrow_c_array__"):
            batch = pa.record_batch(data)
            return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    except (pa.ArrowException, TypeError, OverflowError) as error:  # of a column that is no table, types of its own
        raise InvalidArgumentError(f"the {type(data).__name__} cannot be read as an Arrow table: {error}") from error
    if hasattr(data, "scanner") and hasattr(data, "schema"):
        return data.scanner().to_reader()
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes, dict)):
        return _from_batches(iter(data))
    raise InvalidArgumentError(f"cannot write a {type(data).__name__}; data must be {_ACCEPTED}")


def _from_batches(items: Iterator[Any]) -> pa.RecordBatchReader:
    first = next(items, None)
    if first is None:
        raise InvalidArgumentError(
            "cannot write an empty iterable: its schema is not known; pass a RecordBatchReader with a schema"
        )
    head = _batches(first)
    schema = head.schema

    def rest() -> Iterator[pa.RecordBatch]:
        yield from head
        for item in items:
            for batch in _batches(item):
                if not batch.schema.equals(schema):
                    raise InvalidArgumentError(f"the batches differ in schema: first {schema}, then {batch.schema}")
                yield batch

    return pa.RecordBatchReader.from_batches(schema, rest())


def _batches(item: Any) -> pa.RecordBatchReader:
    if not hasattr(item, "__arrow_c_stream__") and not hasattr(item, "__arrow_c_array__"):
        raise InvalidArgumentError(f"cannot write an iterable of {type(item).__name__}; data must be {_ACCEPTED}")
    return _reader(item)
