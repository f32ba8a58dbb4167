"""Parquet, CSV and JSON files as one stream of record batches, for ``refdelta write`` and ``refdelta merge``.

CSV and JSON files are read twice where their columns or types are not known: once for these, of all files, and once for
the rows. Memory is bounded by a block.
"""

from __future__ import annotations

import base64
import contextlib
import glob
import gzip
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import click
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet

from refdelta import arguments
from refdelta.arrow.schema import arrow_type
from refdelta.cli.group import FORMATS
from refdelta.cli.json_values import Misfits, Shape, all_columns, columns_of, loaded_type
from refdelta.cli.text_files import Bad, Block, CsvBlock, CsvFile, JsonBlock, JsonFile
from refdelta.cli.text_types import reason, typed
from refdelta.errors import DataFileError, DataFileNotFoundError, InvalidArgumentError, StoreError
from refdelta.operations.shared.row_rules import DEFAULT
from refdelta.table.features import GENERATION
from refdelta.table.types import STRING, StructField, StructType, is_nested

ENDINGS = {"parquet": "parquet", "pq": "parquet", "csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json"}
"""The format of files with an ending, before which ``.gz`` and ``.zst`` are left out."""

STDIN = "-"
_COMPRESSED = (".gz", ".zst")
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_MOST_NAMED = 5
_IDENTITY = "delta.identity."


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
    types: StructType | None = None
    timezone: str | None = None


def one_character(delimiter: str) -> str:
    """The option ``--delimiter``, checked."""
    if len(delimiter.encode(errors="replace")) != 1 or delimiter in '"\r\n':
        raise InvalidArgumentError(f"--delimiter is one character of ASCII, and no quote or line end: {delimiter!r}")
    return delimiter


# --- bad rows ----------------------------------------------------------------------------------------------------


class BadRows:
    """The file to which bad rows go, one JSON object on a line.

    It has ``file``, ``line``, ``column``, ``reason`` and ``text``, the record as it was; of a record that is not UTF-8
    ``base64`` and no ``text``.

    The file replaces an earlier one when all rows are read, before the commit. A load that reads nothing leaves it.

    Args:
        name: its path.

    Attributes:
        count: the number of bad rows so far.
    """

    def __init__(self, name: str) -> None:
        self.name, self.count = name, 0
        self._target = Path(name)
        self._part = self._target.with_name(f".{self._target.name}.{uuid.uuid4().hex}.part")
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        if self._target.is_dir() or not self._target.absolute().parent.is_dir():
            raise StoreError(f"cannot write {self.name}: it must be a file in a folder that exists")
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._part.unlink(missing_ok=True)

    def add(self, file: str, rows: Sequence[Bad]) -> None:
        """Write bad rows of a file."""
        self.count += len(rows)
        self._opened().write(msgspec.json.Encoder().encode_lines([_described(file, one) for one in rows]))

    def finish(self) -> None:
        """Put the file in its place."""
        self._opened().close()
        self._part.replace(self._target)
        self._file = None

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            try:
                self._file = self._part.open("xb")
            except OSError as error:
                raise StoreError(f"cannot write {self.name}: {error.strerror}") from error
        return self._file


def _described(file: str, bad: Bad) -> dict[str, Any]:
    found: dict[str, Any] = {"file": file, "line": bad.line, "column": bad.column, "reason": bad.reason}
    try:
        found["text"] = bad.text.decode()
    except UnicodeDecodeError:
        found["base64"] = base64.b64encode(bad.text).decode()
    return found


# --- files -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _File:
    """A file to load.

    Attributes:
        name: its path as the user knows it.
        kind: one of ``FORMATS``.
        spool: the descriptor of a file with the bytes of standard input.
    """

    name: str
    kind: str
    spool: int | None = None

    @contextlib.contextmanager
    def raw(self) -> Iterator[IO[bytes]]:
        """The bytes, from the first on."""
        # A copy of the descriptor, since readers close their file.
        with Path(self.name).open("rb") if self.spool is None else os.fdopen(os.dup(self.spool), "rb") as file:
            file.seek(0)
            yield file

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """The bytes of a text file, decompressed."""
        try:
            with self.raw() as raw:
                start = raw.read(4)
                raw.seek(0)
                if start.startswith(_GZIP):
                    yield gzip.GzipFile(fileobj=raw)  # type: ignore[misc]
                elif start == _ZSTD:
                    yield pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd")
                else:
                    yield raw
        except OSError as error:
            raise DataFileError(f"cannot be read: {error}", file=self.name) from error

    def csv(self, file: IO[bytes], options: InputOptions) -> CsvFile:
        """A CSV file that is opened."""
        return CsvFile(file, self.name, options.delimiter, options.nulls)

    def blocks(self, options: InputOptions) -> Iterator[CsvBlock | JsonBlock]:
        """The records of a text file."""
        with self.opened() as file:
            yield from self.csv(file, options).blocks() if self.kind == "csv" else JsonFile(file, self.name).blocks()

    def parquet(self) -> pa.RecordBatchReader:
        """The rows of a Parquet file. Times in nanoseconds become microseconds, or an error where digits are lost."""
        try:
            file = pa.parquet.ParquetFile(self.name if self.spool is None else os.fdopen(os.dup(self.spool), "rb"))
            reader = pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())
            schema = pa.schema([one.with_type(_microseconds(one.type)).remove_metadata() for one in reader.schema])
            return reader if schema.types == reader.schema.types else reader.cast(schema)
        except (pa.ArrowException, OSError) as error:
            raise DataFileError(f"not readable as parquet: {error}", file=self.name) from error


def _microseconds(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) and kind.unit == "ns" else kind


def _kind_of(name: str) -> str | None:
    """The format of a file by its ending."""
    path = Path(name)
    bare = path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path
    return ENDINGS.get(bare.suffix.removeprefix(".").lower())


def _found(inputs: Sequence[str], options: InputOptions, note: Callable[[str], None]) -> list[_File]:
    """The files that arguments name: files, folders, patterns, or standard input."""
    found = [file for one in inputs for file in _files_of(one, options, note)]
    seen: set[Path] = set()
    for file in found:
        place = Path(file.name).resolve()
        if place in seen:
            raise InvalidArgumentError(f"{file.name} is named twice")
        seen.add(place)
    return found


def _files_of(one: str, options: InputOptions, note: Callable[[str], None]) -> list[_File]:
    path = Path(one)
    if one == STDIN:
        if options.format is None:
            raise InvalidArgumentError(f"standard input: say --format {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
        return [_File(STDIN, options.format, _spooled(sys.stdin.buffer))]
    if path.is_dir():
        return _chosen(path, sorted(path.rglob("*")), options, note, one)
    if not path.exists():
        if not glob.has_magic(one):
            raise DataFileNotFoundError("no such file", file=one)
        names = sorted(glob.glob(one, recursive=True))  # noqa: PTH207 - the pattern may be absolute
        if not names:
            raise DataFileNotFoundError("no file matches the pattern", file=one)
        return _chosen(None, [Path(name) for name in names], options, note, one)
    kind = options.format or _kind_of(one)
    if kind is None:
        raise InvalidArgumentError(f"{one}: say --format {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    return [_File(one, kind)]


def _chosen(
    folder: Path | None, paths: Sequence[Path], options: InputOptions, note: Callable[[str], None], asked: str
) -> list[_File]:
    """The files of a folder or a pattern that have a known ending; the others are named in a note."""
    found, others = [], []
    for path in paths:
        parts = (path if folder is None else path.relative_to(folder)).parts
        if folder is not None and "_delta_log" in parts:
            raise InvalidArgumentError(f"{asked} is a Delta table, or contains one; its files are no input")
        if folder is not None and (pair := next((part for part in parts[:-1] if "=" in part), None)) is not None:
            raise InvalidArgumentError(
                f"{asked} has a folder {pair}, whose value is in no file: name the files, with the column in them"
            )
        if not path.is_file() or any(part.startswith((".", "_")) for part in parts if part not in (".", "..")):
            continue
        kind = _kind_of(path.name)
        if options.format is not None and (kind == options.format or (kind is None and folder is None)):
            found.append(_File(str(path), options.format))
        elif options.format is None and kind is not None:
            found.append(_File(str(path), kind))
        else:
            others.append(str(path))
    if not found:
        wanted = options.format or "parquet, csv or json"
        raise DataFileNotFoundError(f"there is no {wanted} file, by their endings", file=asked)
    if others:
        more = ", ..." if len(others) > _MOST_NAMED else ""
        note(f"left out, by their endings: {', '.join(others[:_MOST_NAMED])}{more} ({len(others)} of {len(paths)})")
    return found


def _spooled(stream: IO[bytes]) -> int:
    """Standard input in a temporary file without a name, since it may have to be read twice."""
    file = click.get_current_context().with_resource(tempfile.TemporaryFile())  # noqa: SIM115 - it is closed with the context
    shutil.copyfileobj(stream, file)
    file.flush()
    return file.fileno()


# --- rows --------------------------------------------------------------------------------------------------------


def open_inputs(
    inputs: Sequence[str],
    options: InputOptions,
    bad_rows: BadRows | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> pa.RecordBatchReader:
    """All rows of files, one file after the other, a block at a time.

    Args:
        inputs: files, folders, patterns of names, or ``-`` for standard input. The files of a folder or a pattern come
            in the order of their paths.
        options: how they are read.
        bad_rows: where rows go that cannot be loaded; None makes the first of them an error.
        note: called with a sentence about files that are left out.

    Raises:
        DataFileNotFoundError: a file is not there.
        DataFileError: a file is not what its format says, or a row is bad; before the first batch, or at the batch
            where it shows.
        InvalidArgumentError: the format is unknown, or the files' columns differ.
    """
    arguments.timezone("--timezone", options.timezone)
    if list(inputs).count(STDIN) > 1:
        raise InvalidArgumentError("standard input is named twice")
    load = _Load(_found(inputs, options, note), options, bad_rows)
    return pa.RecordBatchReader.from_batches(load.schema, load.batches())


class _Load:
    """The rows of some files in one schema."""

    def __init__(self, files: list[_File], options: InputOptions, bad_rows: BadRows | None) -> None:
        self.files, self.options, self.bad_rows = files, options, bad_rows
        self.zone = options.timezone
        self.guessed: set[str] = set()
        tables = {file.name: file.parquet().schema for file in files if file.kind == "parquet"}
        first = files[0]
        if len(tables) < len(files):
            self.columns = self._text_columns()
            self.schema = pa.schema([pa.field(one.name, arrow_type(one.type)) for one in self.columns])
            first = next(file for file in files if file.kind != "parquet")
        else:
            self.schema = tables[first.name]
        for name, schema in tables.items():
            if schema.names != self.schema.names or schema.types != self.schema.types:
                raise InvalidArgumentError(f"{name} and {first.name} differ: {_difference(self.schema, schema)}")

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows."""
        for file in self.files:
            if file.kind == "parquet":
                yield from _named(file.parquet(), file.name)
                continue
            for block in file.blocks(self.options):
                if (batch := self._batch(file, block)).num_rows:
                    yield batch
        if self.bad_rows is not None:
            self.bad_rows.finish()

    # --- columns ---

    def _text_columns(self) -> StructType:
        """The columns of CSV and JSON files: the names by the files, the types by the table, or else by all values."""
        table = self.options.types
        shape, names, header = Shape(), dict[str, None](), ""
        for file in self.files:
            if file.kind == "csv":
                own = self._header(file)
                if not header:
                    header, names = file.name, dict.fromkeys(own)
                elif names.keys() != set(own):
                    raise InvalidArgumentError(f"{file.name} and {header} differ: {_other_names(list(names), own)}")
        known = {} if table is None else {one.name.lower(): one for one in table}
        unknown = [name for name in names if name.lower() not in known]
        for file in self.files:
            if file.kind == "json" or (file.kind == "csv" and unknown):
                self._survey(file, shape, unknown)
        if header and (more := [name for name in shape.fields if name not in names]):
            raise InvalidArgumentError(f"the JSON files have a column {more[0]}, which {header} has not")
        found = all_columns(shape, table, self.zone)
        self.guessed = {one.name for one in found if one.name.lower() not in known}
        if not header:
            missing = [one for one in known.values() if one.name not in found and _is_needed(one)]
            return self._checked(StructType((*found, *_loaded(missing))))
        return self._checked(StructType(tuple(self._csv_field(name, known, found) for name in names)))

    def _header(self, file: _File) -> list[str]:
        with file.opened() as opened:
            return file.csv(opened, self.options).names

    def _csv_field(self, name: str, known: dict[str, StructField], found: StructType) -> StructField:
        item = known.get(name.lower())
        if item is None or name in found.names:
            return found.field(name) if name in found.names else StructField(name, Shape().type(None, None))
        return StructField(name, STRING if is_nested(item.type) else loaded_type(item.type), item.nullable)

    def _survey(self, file: _File, shape: Shape, unknown: Sequence[str]) -> None:
        for block in file.blocks(self.options):
            if block.bad and self.bad_rows is None:
                raise block.bad[0].error(file.name)
            if isinstance(block, JsonBlock):
                shape.add(block.values, self.options.types or StructType())
            else:
                for name in unknown:
                    shape.fields.setdefault(name, Shape()).guess.add(block.columns[name])

    def _checked(self, columns: StructType) -> StructType:
        """The columns. Without any value, nothing is known of a new table's."""
        if self.options.types is not None:
            return columns if columns.fields else StructType(tuple(_loaded(self.options.types)))
        if not columns.fields or (self._no_values(columns) and not self._has_rows()):
            raise DataFileError(
                "there are no rows by which the types of a new table's columns could be found; refdelta create makes "
                "a table without rows",
                file=self.files[0].name,
            )
        return columns

    def _no_values(self, columns: StructType) -> bool:
        return all(str(one.type) == "void" for one in columns)

    def _has_rows(self) -> bool:
        return any(
            next(iter(block.columns.values())) if isinstance(block, CsvBlock) else block.values
            for file in self.files
            if file.kind != "parquet"
            for block in file.blocks(self.options)
        )

    # --- values ---

    def _batch(self, file: _File, block: CsvBlock | JsonBlock) -> pa.RecordBatch:
        """The rows of a block; those that are bad go to their file."""
        misfits: Misfits = {}
        if isinstance(block, JsonBlock):
            columns, misfits = columns_of(block.values, self.columns, self.zone)
        else:
            columns = [self._csv_column(block, one, misfits) for one in self.columns]
        for item, column in zip(self.columns, columns, strict=True):
            if not item.nullable and column.null_count:
                for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
                    misfits.setdefault(row, (item.name, "there is no value, and the column is not null in the table"))
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if not misfits and not block.bad:
            return batch
        bad = sorted([*block.bad, *self._located(block, misfits)], key=lambda one: one.line)
        if self.bad_rows is None:
            raise bad[0].error(file.name)
        self.bad_rows.add(file.name, bad)
        if not misfits:
            return batch
        good = np.ones(batch.num_rows, np.bool_)
        good[list(misfits)] = False
        return batch.filter(pa.array(good))

    def _located(self, block: Block, misfits: Misfits) -> Iterator[Bad]:
        for row, (column, problem) in misfits.items():
            guessed = column.partition(".")[0] in self.guessed
            yield block.at(
                row, column, f"{problem}; the type is guessed from the values before" if guessed else problem
            )

    def _csv_column(self, block: CsvBlock, item: StructField, misfits: Misfits) -> pa.Array:
        texts = block.columns[item.name]
        found = typed(texts, item.type, self.zone)
        if found.misfits is not None:
            for row in np.flatnonzero(found.misfits).tolist():
                misfits.setdefault(row, (item.name, reason(texts[row].as_py(), item.type, self.zone)))
        return found.column


def _loaded(columns: Iterable[StructField]) -> Iterator[StructField]:
    """Columns of a table as they are read from files."""
    return (StructField(one.name, loaded_type(one.type), one.nullable) for one in columns)


def _is_needed(column: StructField) -> bool:
    """Whether rows without the column cannot be written."""
    made = column.metadata.keys() & {GENERATION, DEFAULT} or any(key.startswith(_IDENTITY) for key in column.metadata)
    return not column.nullable and not made


def _named(reader: pa.RecordBatchReader, name: str) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except (pa.ArrowException, OSError) as error:
            raise DataFileError(str(error), file=name) from error
        yield batch


def _difference(one: pa.Schema, other: pa.Schema) -> str:
    for left, right in zip(one, other, strict=False):
        if (left.name, left.type) != (right.name, right.type):
            return f"column {right.name} is {right.type}, but {left.name} is {left.type} in the first"
    return _other_names(one.names, other.names)


def _other_names(first: Sequence[str], names: Sequence[str]) -> str:
    if len(first) == len(names):
        return f"one has {', '.join(names)}, the first {', '.join(first)}"
    return f"{len(names)} columns, but {len(first)} in the first"
