"""Parquet, CSV and JSON files as one stream of record batches, for ``refdelta write``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from refdelta import arguments
from refdelta.cli.group import FORMATS
from refdelta.errors import DataFileError, DataFileNotFoundError, InvalidArgumentError

_ENDINGS = {"parquet": "parquet", "pq": "parquet", "csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json"}


@dataclass(frozen=True)
class InputOptions:
    """The options by which files are read.

    Attributes:
        format: one of ``FORMATS``, or None to go by each file's ending.
        nulls: strings that mean null in CSV files, besides the empty one.
        delimiter: the separator of fields in CSV files.
        types: the table's columns where the table exists: CSV and JSON are read as these types and not guessed.
        timezone: the zone of times that have none.
    """

    format: str | None = None
    nulls: Sequence[str] = ()
    delimiter: str = ","
    types: pa.Schema | None = None
    timezone: str | None = None


def one_character(delimiter: str) -> str:
    """The option ``--delimiter``, checked."""
    if len(delimiter) != 1:
        raise InvalidArgumentError(f"--delimiter is one character, not {delimiter!r}")
    return delimiter


def open_inputs(files: Sequence[str], options: InputOptions) -> pa.RecordBatchReader:
    """All rows of the files, one file after the other, a block at a time.

    Raises:
        DataFileNotFoundError: a file is not there.
        DataFileError: a file is not what its format says; before the first batch, or at the batch where it shows.
        InvalidArgumentError: the format is unknown, or the files' columns differ.
    """
    readers = [_opener(name, options) for name in files]
    first = readers[0]()
    schema = first.schema

    def batches() -> Iterator[pa.RecordBatch]:
        for place, name in enumerate(files):
            reader = first if place == 0 else readers[place]()
            if reader.schema.names != schema.names or reader.schema.types != schema.types:
                raise InvalidArgumentError(f"{name} and {files[0]} differ: {_difference(schema, reader.schema)}")
            yield from _named(reader, name)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _opener(name: str, options: InputOptions) -> Callable[[], pa.RecordBatchReader]:
    path = Path(name)
    arguments.timezone("--timezone", options.timezone)
    kind = options.format or _ENDINGS.get(path.suffix.removeprefix(".").lower())
    if kind is None:
        raise InvalidArgumentError(f"{name}: say --format {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    if kind == "json" and options.timezone is not None:
        # Arrow's reader leaves out the offsets of times.
        raise InvalidArgumentError(
            f"{name}: --timezone goes with CSV and Parquet files; in JSON files write each time with its offset"
        )
    if not path.exists():
        raise DataFileNotFoundError("no such file", file=name)
    if path.is_dir():
        raise DataFileError("this is a folder, not a file", file=name)
    read = {"parquet": _parquet, "csv": _csv, "json": _json}[kind]

    def open_file() -> pa.RecordBatchReader:
        try:
            return _microseconds(read(path, options))
        except (pa.ArrowException, OSError) as error:
            raise DataFileError(f"not readable as {kind}: {_with_advice(error)}", file=name) from error

    return open_file


def _named(reader: pa.RecordBatchReader, name: str) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except (pa.ArrowException, OSError) as error:
            raise DataFileError(_with_advice(error), file=name) from error
        yield batch


def _with_advice(error: Exception) -> str:
    text, _, more = str(error).partition(". If these timestamps are in local time")
    if more:
        return f"{text}; --timezone says the zone of such times"
    if "expected no zone offset" in text:
        return f"{text}; without --timezone, all times of a column have an offset"
    return text


def _parquet(path: Path, _options: InputOptions) -> pa.RecordBatchReader:
    file = pa.parquet.ParquetFile(path)
    return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())


def _csv(path: Path, options: InputOptions) -> pa.RecordBatchReader:
    convert = pa.csv.ConvertOptions(
        null_values=["", *options.nulls],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        column_types=options.types if options.timezone is None else _local(options.types),
    )
    return pa.csv.open_csv(
        path, parse_options=pa.csv.ParseOptions(delimiter=options.delimiter), convert_options=convert
    )


def _local(types: pa.Schema | None) -> pa.Schema | None:
    """The types with timestamps as they are written: without a zone."""
    if types is None:
        return None
    kinds = [pa.timestamp(kind.unit) if pa.types.is_timestamp(kind) else kind for kind in types.types]
    return pa.schema(list(zip(types.names, kinds, strict=True)))


def _json(path: Path, options: InputOptions) -> pa.RecordBatchReader:
    return pa.json.open_json(path, parse_options=pa.json.ParseOptions(explicit_schema=options.types))


def _microseconds(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Guessed times may come out in nanoseconds, which Delta does not have; digits that would be lost are an error."""
    schema = pa.schema([pa.field(field.name, _delta_type(field.type), field.nullable) for field in reader.schema])
    return reader if schema.types == reader.schema.types else reader.cast(schema)


def _delta_type(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) and kind.unit == "ns" else kind


def _difference(one: pa.Schema, other: pa.Schema) -> str:
    for left, right in zip(one, other, strict=False):
        if (left.name, left.type) != (right.name, right.type):
            return f"column {right.name} is {right.type}, but {left.name} is {left.type} in the first"
    return f"{len(other)} columns, but {len(one)} in the first"
