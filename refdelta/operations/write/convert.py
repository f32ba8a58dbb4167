"""CONVERT: create a table from a folder of Parquet files. Only the log is written.

The schema is the union of the files' schemas, and partition values come from the names of folders. As in delta-spark,
names that begin with ``_`` or ``.`` are ignored, except folders of partitions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

import pyarrow as pa

from refdelta.arrow.field_metadata import declared_schema
from refdelta.core.log.actions import Add
from refdelta.core.log.paths import encode_path
from refdelta.engine.parquet.column_stats import StatsCollector, stats_leaves
from refdelta.engine.parquet.files import data_errors, open_parquet, store_errors
from refdelta.engine.scan.reader import ReadPlan, ScanFile, read_file
from refdelta.engine.work.executor import ThreadExecutor
from refdelta.errors import DataFileError, DeltaError, InvalidArgumentError, SchemaMismatchError
from refdelta.operations.shared.change import in_json
from refdelta.operations.write.target import new_table
from refdelta.pruning.partition_folders import HIVE_NULL
from refdelta.table.evolution import as_nullable, merge_schemas
from refdelta.table.partition_values import parse_value
from refdelta.table.types import StructField, StructType

if TYPE_CHECKING:
    from refdelta.operations.write.target import Target
    from refdelta.transaction.transaction import Transaction
    from refdelta_storage import Store
    from refdelta_storage.base import ObjectInfo

Strategy = Literal["hive", "directory"]
_INT96 = "INT96"


@dataclass(frozen=True)
class SourceFile:
    """A file of the folder.

    Attributes:
        info: its key, size and time.
        values: the partition values by column, from the names of its folders.
    """

    info: ObjectInfo
    values: Mapping[str, str | None]


def convert(
    txn: Transaction,
    partition_by: Sequence[StructField],
    *,
    strategy: Strategy = "hive",
    configuration: Mapping[str, str | None] | None = None,
    name: str | None = None,
    description: str | None = None,
    collect_stats: bool = True,
) -> None:
    """Stage version 0 of a table whose files exist already.

    Args:
        txn: the transaction, of a folder without a log.
        partition_by: the partition columns, in the order of the folders.
        strategy: ``hive`` for folders ``column=value``, ``directory`` for the values alone.
        configuration: table properties.
        name: the table's name.
        description: the table's description.
        collect_stats: read all files for the minimum, maximum and null count of their columns; else only the numbers of
            rows are collected.

    Raises:
        InvalidArgumentError: there is no file; folders do not fit the partition columns; a property asks for column
            mapping or for a constraint.
        DataFileError: a file is not Parquet.
        SchemaMismatchError: the files' schemas cannot be merged, or Delta cannot store the name of a column.
        UnsupportedFeatureError: a property needs a feature that this engine does not support.
    """
    store = txn.store
    found = [SourceFile(info, partition_values(info.key, partition_by, strategy)) for info in data_files(store)]
    if not found:
        raise InvalidArgumentError(f"there is no Parquet file at {store.uri} to convert")
    footers = list(ThreadExecutor.for_store(store).map(lambda file: footer(store, file.info), found))
    schema = merged(found, [schema for schema, _ in footers], partition_by)
    names = [item.name for item in partition_by]
    target = new_table(schema, partition_by=names, configuration=configuration, name=name, description=description)
    if target.rules.features:
        raise InvalidArgumentError(
            "a constraint cannot be set by the conversion; add it afterwards with add_constraint, which checks the rows"
        )
    if target.properties.column_mapping_mode != "none":
        raise InvalidArgumentError(
            "the conversion cannot set delta.columnMapping.mode, since the files name their columns; set it afterwards"
        )
    adds = list(_adds(store, found, [rows for _, rows in footers], target, collect_stats=collect_stats))
    txn.stage([*target.changes, *adds])
    parameters: dict[str, Any] = {
        "numFiles": len(adds),
        "partitionedBy": in_json(names),
        "collectStats": collect_stats,
        "sourceFormat": "parquet",
    }
    rows = sum(count for _, count in footers)
    metrics = {"num_converted_files": len(adds), "num_added_files": len(adds), "num_added_rows": rows}
    txn.describe("CONVERT", parameters, {"numConvertedFiles": len(adds)}, metrics)


# --- files and their folders ---


def data_files(store: Store) -> Iterator[ObjectInfo]:
    """The files of a folder, but for those whose names, or those of their folders, begin with ``_`` or ``.``."""
    with store_errors("list the folder"):
        for info in store.list():
            *folders, name = info.key.split("/")
            hidden = name[:1] in "_." or any(folder[:1] in "_." and "=" not in folder for folder in folders)
            if not hidden and info.size:
                yield info


def partition_values(key: str, columns: Sequence[StructField], strategy: Strategy) -> dict[str, str | None]:
    """The partition values by column, from the folders of a file."""
    folders = key.split("/")[:-1]
    if strategy == "hive":
        parts = [folder.partition("=") for folder in folders if "=" in folder]
        named, texts = [unquote(name) for name, _, _ in parts], [text for _, _, text in parts]
        if [name.lower() for name in named] != [item.name.lower() for item in columns]:
            raise InvalidArgumentError(
                f"{key!r} is in folders of the partition columns {named}, but partition_by names "
                f"{[item.name for item in columns]}"
            )
    else:
        texts = folders
        if len(texts) != len(columns):
            raise InvalidArgumentError(
                f"{key!r} is in {len(texts)} folders, but partition_by names {len(columns)} columns"
            )
    return {item.name: _value(text, item, key) for item, text in zip(columns, texts, strict=True)}


def _value(text: str, column: StructField, key: str) -> str | None:
    if text in (HIVE_NULL, ""):
        return None
    value = unquote(text)
    try:
        parse_value(value, column.type)
    except ValueError as error:
        raise InvalidArgumentError(
            f"{key!r}: the value {value!r} of column {column.name!r} is not a valid {column.type}: {error}"
        ) from None
    return value


# --- the schema of all files ---


def footer(store: Store, info: ObjectInfo) -> tuple[StructType, int]:
    """The schema of a file, and its number of rows."""
    with data_errors(info.key), open_parquet(store, info.key, info.size, footer_only=True) as parquet:
        described = parquet.schema
        columns = iter([described.column(number) for number in range(len(described))])
        fields = [item.with_type(_type(item.type, columns)) for item in described.to_arrow_schema()]
        rows = int(parquet.footer.num_rows)
    try:
        return declared_schema(pa.schema(fields), of_file=True), rows
    except DeltaError as error:
        raise DataFileError(str(error), file=info.key) from error


def _type(kind: pa.DataType, columns: Iterator[Any]) -> pa.DataType:
    """The type of a column. INT96 timestamps have no zone in their type, but all engines read them as UTC."""
    if pa.types.is_struct(kind):
        return pa.struct([item.with_type(_type(item.type, columns)) for item in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_type(kind.value_type, columns)))
    if pa.types.is_map(kind):
        key = kind.key_field.with_type(_type(kind.key_type, columns))
        return pa.map_(key, kind.item_field.with_type(_type(kind.item_type, columns)))
    return pa.timestamp("us", "UTC") if next(columns).physical_type == _INT96 else kind


def merged(
    found: Sequence[SourceFile], schemas: Sequence[StructType], partition_by: Sequence[StructField]
) -> StructType:
    """The schema of all files, whose columns are nullable; a partition column has the type that is given.

    Raises:
        SchemaMismatchError: two of them cannot be merged; a file is named.
    """
    whole = StructType(())
    for schema, files in itertools.groupby(zip(schemas, found, strict=True), key=lambda pair: pair[0]):
        nullable = StructType(tuple(replace(f, type=as_nullable(f.type), nullable=True) for f in schema.fields))
        try:
            whole = merge_schemas(whole, nullable, changes="refused")
        except SchemaMismatchError as error:
            key = next(files)[1].info.key
            raise SchemaMismatchError(
                f"the columns of {key!r} cannot be merged with those of the files before it: {error}"
            ) from None
    # A partition column's values come from the folders, even if the files have the column.
    by_name = {item.name.lower(): item for item in partition_by}
    kept = [by_name.pop(item.name.lower(), item) for item in whole.fields]
    return StructType((*kept, *by_name.values()))


# --- statistics ---


def _adds(
    store: Store, found: Sequence[SourceFile], rows: Sequence[int], target: Target, *, collect_stats: bool
) -> Iterator[Add]:
    leaves = stats_leaves(target.schema, target.partition_columns, target.properties) if collect_stats else []
    wanted = {leaf.path[0] for leaf in leaves}
    plan = ReadPlan(tuple(item for item in target.schema.fields if item.name in wanted))

    def stats(file: SourceFile) -> str:
        collector = StatsCollector(leaves)
        for batch in read_file(store, ScanFile(file.info.key, file.info.size), plan):
            collector.update(batch)
        return collector.json()

    sizes = pa.chunked_array([pa.array([file.info.size for file in found], pa.int64())])
    texts: Iterator[str] = (f'{{"numRecords":{count}}}' for count in rows)
    if leaves:
        texts = ThreadExecutor.for_store(store, sizes).map(stats, found)
    for file, text in zip(found, texts, strict=True):
        yield Add(
            path=encode_path(file.info.key),
            partition_values=dict(file.values),
            size=file.info.size,
            modification_time=file.info.mtime_ms,
            data_change=True,
            stats=text,
        )
