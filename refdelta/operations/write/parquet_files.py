"""Parquet files without a log as a stream of rows: a folder, with or without partitions, or one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from refdelta.arrow.partition import parse_partition_column
from refdelta.engine.log.listing import has_log
from refdelta.engine.log.location import open_location
from refdelta.engine.parquet.files import store_errors
from refdelta.engine.scan.reader import ReadPlan, ScanFile, read_file
from refdelta.engine.work.executor import ThreadExecutor
from refdelta.errors import DataFileNotFoundError, InvalidArgumentError
from refdelta.operations.write.convert import SourceFile, data_files, footer, merged, partition_values
from refdelta.table.partition_values import parse_value
from refdelta.table.types import DATE, DOUBLE, INTEGER, LONG, STRING, DataType, StructField
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from refdelta_storage import Store
    from refdelta_storage.base import ObjectInfo


def open_parquet_files(path: str, storage_options: Mapping[str, Any] | None = None) -> pa.RecordBatchReader:
    """The rows of Parquet files, a file after the other, as Spark reads ``parquet.`path```.

    The columns are those of all files; partition columns come from folders such as ``year=2026``, with the narrowest of
    the types int, bigint, double, date and string that all values have. Names that begin with ``_`` or ``.`` are left
    out.

    Args:
        path: a folder, or a file.
        storage_options: options of the store.

    Raises:
        InvalidArgumentError: the folder has a Delta table, or folders of different partition columns.
        DataFileNotFoundError: there is no Parquet file.
        DataFileError: a file is not Parquet; the message names it.
        SchemaMismatchError: the files' schemas cannot be merged.
    """
    options = dict(storage_options or {})
    store, found = _found(path, options)
    partitions = _partitions(found)
    schema = merged(found, [schema for schema, _ in _footers(store, found)], partitions)
    columns = {item.name: item for item in partitions}
    plan = ReadPlan(tuple(schema), partition_columns=frozenset(columns))

    def batches() -> Iterator[pa.RecordBatch]:
        for file in found:
            values = {name: _scalar(text, columns[name]) for name, text in file.values.items()}
            yield from read_file(store, ScanFile(file.info.key, file.info.size, values), plan)

    return pa.RecordBatchReader.from_batches(plan.schema, batches())


def _found(path: str, options: Mapping[str, Any]) -> tuple[Store, list[SourceFile]]:
    """The store and its files, with the texts of their partition values."""
    parent, _, name = path.rstrip("/").rpartition("/")
    if "." in name and parent:
        store = open_location(parent, options)
        with store_errors(f"look for {path}"):
            try:
                return store, [SourceFile(store.head(name), {})]
            except ObjectNotFoundError:
                pass
    store = open_location(path, options)
    if has_log(store):
        raise InvalidArgumentError(f"{store.uri} is a Delta table: write delta.`{path}`, not parquet.`{path}`")
    files = list(data_files(store))
    if not files:
        raise DataFileNotFoundError("there is no Parquet file at this path", file=path)
    return store, [SourceFile(info, _texts(info)) for info in files]


def _texts(info: ObjectInfo) -> dict[str, str | None]:
    names = [unquote(folder.partition("=")[0]) for folder in info.key.split("/")[:-1] if "=" in folder]
    return partition_values(info.key, [StructField(name, STRING) for name in names], "hive")


def _partitions(found: Sequence[SourceFile]) -> list[StructField]:
    first = found[0]
    for file in found:
        if list(file.values) != list(first.values):
            raise InvalidArgumentError(
                f"{file.info.key!r} is in folders of the partition columns {list(file.values)}, but "
                f"{first.info.key!r} in those of {list(first.values)}"
            )
    return [StructField(name, _type([file.values[name] for file in found])) for name in first.values]


def _type(texts: Sequence[str | None]) -> DataType:
    """The narrowest type that all texts are values of."""
    known = {text for text in texts if text is not None}
    return next(
        (kind for kind in (INTEGER, LONG, DOUBLE, DATE) if known and all(_is(text, kind) for text in known)), STRING
    )


def _is(text: str, kind: DataType) -> bool:
    try:
        parse_value(text, kind)
    except ValueError:
        return False
    return True


def _scalar(text: str | None, column: StructField) -> pa.Scalar:
    return parse_partition_column(pa.array([text], pa.string()), column.type, column=column.name)[0]


def _footers(store: Store, found: Sequence[SourceFile]) -> Iterator[Any]:
    return ThreadExecutor.for_store(store).map(lambda file: footer(store, file.info), found)
