"""Rows to a file or to standard output, batch by batch: memory is bounded by a batch, whatever the table's size."""

from __future__ import annotations

import base64
import contextlib
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from refdelta.arrow.python_values import has_far_times, python_rows, python_values
from refdelta.cli.render import echo_json_line, echo_table, to_json
from refdelta.errors import StoreError

if TYPE_CHECKING:
    from refdelta import Change


def limited(reader: pa.RecordBatchReader, limit: int | None) -> pa.RecordBatchReader:
    """The first ``limit`` rows of a stream; files after them are not read."""
    if limit is None:
        return reader

    def batches(left: int) -> Iterator[pa.RecordBatch]:
        while left > 0:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return
            yield batch.slice(0, left)
            left -= batch.num_rows

    return pa.RecordBatchReader.from_batches(reader.schema, batches(limit))


def echo_rows(reader: pa.RecordBatchReader, shown: int | None) -> bool:
    """Print rows as a table for people, at most ``shown`` of them; return whether there are more."""
    seen = 0

    def rows() -> Iterator[tuple[Any, ...]]:
        nonlocal seen
        # One row more than is shown tells whether there are more.
        for batch in limited(reader, None if shown is None else shown + 1):
            for row in python_rows(batch):
                seen += 1
                if shown is None or seen <= shown:
                    yield tuple(row.values())

    echo_table(reader.schema.names, rows(), right=numeric(reader.schema))
    return shown is not None and seen > shown


def echo_change(change: Change) -> None:
    """Print a change of a followed table as one line of JSON, at once."""
    rows = [row for batch in change.rows.to_batches() for row in python_rows(batch, iso=True)]
    about = {name: getattr(change, name) for name in ("version", "kind", "position", "app_version", "app_id")}
    echo_json_line({**about, "rows": rows})


def numeric(schema: pa.Schema) -> list[str]:
    """The columns that hold numbers."""
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return [field.name for field in schema if any(is_kind(field.type) for is_kind in kinds)]


def write_rows(reader: pa.RecordBatchReader, shape: str, output: str | None) -> None:
    """Write all rows of a stream for programs.

    Args:
        reader: the rows.
        shape: ``csv``, ``json`` (one object a line) or ``parquet``.
        output: a file, or None for standard output. The file appears whole or, after an error, not at all.
    """
    writers: dict[str, Callable[[pa.RecordBatchReader, IO[bytes]], None]]
    writers = {"csv": _csv, "json": _json_lines, "parquet": _parquet}
    with _sink(output) as sink:
        writers[shape](reader, sink)


@contextlib.contextmanager
def _sink(output: str | None) -> Iterator[IO[bytes]]:
    if output is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        return
    target = Path(output)
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        # A name that cannot be foreseen, and a file that was not there: a link that somebody planted leads nowhere.
        file = part.open("xb")
    except OSError as error:
        raise StoreError(f"cannot write {output}: {error.strerror}") from error
    try:
        with file:
            yield file
        if target.is_file():
            part.chmod(target.stat().st_mode)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _parquet(reader: pa.RecordBatchReader, sink: IO[bytes]) -> None:
    with pa.parquet.ParquetWriter(sink, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)


def _csv(reader: pa.RecordBatchReader, sink: IO[bytes]) -> None:
    schema = pa.schema([pa.field(field.name, _csv_type(field.type)) for field in reader.schema])
    with pa.csv.CSVWriter(sink, schema) as writer:
        for batch in reader:
            columns = [_csv_column(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
            if any(map(has_far_times, columns)):
                # Arrow's writer cannot write some of them, and writes none with a sign.
                columns = [_times_as_text(column) if has_far_times(column) else column for column in columns]
                rows = pa.RecordBatch.from_arrays(columns, schema.names)
                pa.csv.write_csv(rows, sink, pa.csv.WriteOptions(include_header=False))
            else:
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _times_as_text(column: pa.Array) -> pa.Array:
    near = column.cast(pa.string()).to_pylist()
    values = zip(python_values(column, iso=True), near, strict=True)
    return pa.array([value if isinstance(value, str) else text for value, text in values], pa.string())


def _csv_type(kind: pa.DataType) -> pa.DataType:
    plain = pa.types.is_primitive(kind) and not pa.types.is_decimal(kind)
    return kind if plain or pa.types.is_string(kind) else pa.string()


def _csv_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if pa.types.is_decimal(column.type) or pa.types.is_null(column.type):
        return column.cast(pa.string())
    # Nested values and bytes have no CSV of their own: they are written as JSON.
    values = python_values(column, iso=True)
    return pa.array([None if value is None else _unquoted(value) for value in values], pa.string())


def _unquoted(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else to_json(value)


def _json_lines(reader: pa.RecordBatchReader, sink: IO[bytes]) -> None:
    encoder = msgspec.json.Encoder()
    for batch in reader:
        sink.write(encoder.encode_lines(python_rows(batch, iso=True)))
