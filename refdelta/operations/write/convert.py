"""CONVERT: a folder of Parquet files becomes a table as it is. No file is moved or written but the log's first.

The schema is that of all files together, and the values of partition columns are what the names of folders say. As
in delta-spark, names that begin with ``_`` or ``.`` are passed over, unless they are a partition's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

import pyarrow as pa

from refdelta.core.expressions.partition_values import parse_value
from refdelta.core.log.actions import Add
from refdelta.core.log.paths import encode_path
from refdelta.core.pruning.partition_folders import HIVE_NULL
from refdelta.core.table.evolution import as_nullable, merge_schemas
from refdelta.core.table.types import StructField, StructType
from refdelta.engine.arrow.schema import from_arrow
from refdelta.engine.parquet.column_stats import StatsCollector, stats_leaves
from refdelta.engine.parquet.files import data_errors, open_parquet, store_errors
from refdelta.engine.scan.executor import ThreadExecutor
from refdelta.engine.scan.reader import ReadPlan, ScanFile, read_file
from refdelta.errors import DataFileError, DeltaError, InvalidArgumentError, SchemaMismatchError
from refdelta.operations.alter.change import in_json
from refdelta.operations.write.target import new_table

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
        values: of the partition columns, as its folders say them.
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
    """Stage version 0 of a table whose files are there already.

    Args:
        txn: the transaction, of a folder without a log.
        partition_by: the partition columns, in the order of the folders.
        strategy: whether folders are ``column=value``, or the values alone.
        configuration: properties of the table.
        name: its name.
        description: its description.
        collect_stats: whether all files are read for the bounds and null counts of their columns; else only how many
            rows they have is known.

    Raises:
        InvalidArgumentError: there is no file; folders that do not fit the partition columns; mapped columns.
        DataFileError: a file that is not Parquet.
        SchemaMismatchError: files whose columns do not go together, or whose names Delta cannot store.
        UnsupportedFeatureError: a property needs a feature that this engine cannot honour.
    """
    store = txn.store
    found = [SourceFile(info, _values(info.key, partition_by, strategy)) for info in _data_files(store)]
    if not found:
        raise InvalidArgumentError(f"there is no Parquet file at {store.uri}")
    footers = list(ThreadExecutor.for_store(store).map(lambda file: _footer(store, file.info), found))
    schema = _merged(found, [schema for schema, _ in footers], partition_by)
    names = [item.name for item in partition_by]
    target = new_table(schema, partition_by=names, configuration=configuration, name=name, description=description)
    if target.rules.features:
        raise InvalidArgumentError("a constraint is added with add_constraint, which looks into the files")
    if target.properties.column_mapping_mode != "none":
        raise InvalidArgumentError(
            "files that are there have their columns by name: a converted table begins with delta.columnMapping.mode "
            "= none, and can be mapped later"
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


def _data_files(store: Store) -> Iterator[ObjectInfo]:
    with store_errors("list the folder"):
        for info in store.list():
            *folders, name = info.key.split("/")
            hidden = name[:1] in "_." or any(folder[:1] in "_." and "=" not in folder for folder in folders)
            if not hidden and info.size:
                yield info


def _values(key: str, columns: Sequence[StructField], strategy: Strategy) -> dict[str, str | None]:
    """The values of the partition columns, by the folders of a file."""
    folders = key.split("/")[:-1]
    if strategy == "hive":
        parts = [folder.partition("=") for folder in folders if "=" in folder]
        named, texts = [unquote(name) for name, _, _ in parts], [text for _, _, text in parts]
        if [name.lower() for name in named] != [item.name.lower() for item in columns]:
            raise InvalidArgumentError(
                f"{key!r} is in folders of the partition columns {named}, and partition_by names "
                f"{[item.name for item in columns]}"
            )
    else:
        texts = folders
        if len(texts) != len(columns):
            raise InvalidArgumentError(
                f"{key!r} is in {len(texts)} folders, and partition_by names {len(columns)} columns"
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
            f"{key!r}: {value!r} is no {column.type} for column {column.name!r}: {error}"
        ) from None
    return value


# --- the schema of all files ---


def _footer(store: Store, info: ObjectInfo) -> tuple[StructType, int]:
    """The schema of a file, and how many rows it has."""
    with data_errors(info.key), open_parquet(store, info.key, info.size, footer_only=True) as parquet:
        described = parquet.schema
        columns = iter([described.column(number) for number in range(len(described))])
        fields = [item.with_type(_type(item.type, columns)) for item in described.to_arrow_schema()]
        rows = int(parquet.footer.num_rows)
    try:
        return from_arrow(pa.schema(fields)), rows
    except DeltaError as error:
        raise DataFileError(str(error), file=info.key) from error


def _type(kind: pa.DataType, columns: Iterator[Any]) -> pa.DataType:
    """The type of a column; the oldest form of timestamps, INT96, has a zone for all engines, but does not say so."""
    if pa.types.is_struct(kind):
        return pa.struct([item.with_type(_type(item.type, columns)) for item in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_type(kind.value_type, columns)))
    if pa.types.is_map(kind):
        key = kind.key_field.with_type(_type(kind.key_type, columns))
        return pa.map_(key, kind.item_field.with_type(_type(kind.item_type, columns)))
    return pa.timestamp("us", "UTC") if next(columns).physical_type == _INT96 else kind


def _merged(
    found: Sequence[SourceFile], schemas: Sequence[StructType], partition_by: Sequence[StructField]
) -> StructType:
    merged = StructType(())
    for schema, files in itertools.groupby(zip(schemas, found, strict=True), key=lambda pair: pair[0]):
        nullable = StructType(tuple(replace(f, type=as_nullable(f.type), nullable=True) for f in schema.fields))
        try:
            merged = merge_schemas(merged, nullable, changes="refused")
        except SchemaMismatchError as error:
            key = next(files)[1].info.key
            raise SchemaMismatchError(
                f"the columns of {key!r} do not go with those of the files before: {error}"
            ) from None
    # What the files have of a partition column, the folders say.
    by_name = {item.name.lower(): item for item in partition_by}
    kept = [by_name.pop(item.name.lower(), item) for item in merged.fields]
    return StructType((*kept, *by_name.values()))


# --- what they hold ---


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
    told: Iterator[str] = (f'{{"numRecords":{count}}}' for count in rows)
    if leaves:
        told = ThreadExecutor.for_store(store, sizes).map(stats, found)
    for file, text in zip(found, told, strict=True):
        yield Add(
            path=encode_path(file.info.key),
            partition_values=dict(file.values),
            size=file.info.size,
            modification_time=file.info.mtime_ms,
            data_change=True,
            stats=text,
        )
