"""``write_deltalake`` and ``convert_to_deltalake`` with deltalake's arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

import refdelta
from refdelta.compat.deltalake.arrow import columns_of, writable
from refdelta.compat.deltalake.commit import CommitProperties, PostCommitHookProperties, options_of
from refdelta.compat.deltalake.properties import with_version
from refdelta.compat.deltalake.raw_table import options_for
from refdelta.compat.deltalake.schema import Schema
from refdelta.compat.deltalake.sql import to_spark
from refdelta.compat.deltalake.statement_context import statement
from refdelta.compat.deltalake.table import DeltaTable
from refdelta.compat.deltalake.writer._utils import try_get_table_and_table_uri  # noqa: F401 - libraries import it from here
from refdelta.errors import InvalidArgumentError

if TYPE_CHECKING:
    from refdelta.compat.deltalake.writer.properties import WriterProperties
    from refdelta.table.types import StructType


def write_deltalake(
    table_or_uri: str | Path | DeltaTable,
    data: Any,
    *,
    partition_by: list[str] | str | None = None,
    mode: Literal["error", "append", "overwrite", "ignore"] = "error",
    name: str | None = None,
    description: str | None = None,
    configuration: Mapping[str, str | None] | None = None,
    schema_mode: Literal["merge", "overwrite"] | None = None,
    storage_options: dict[str, str] | None = None,
    predicate: str | None = None,
    target_file_size: int | None = None,
    writer_properties: WriterProperties | None = None,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Write rows to a table, which is created if it does not exist; see :func:`refdelta.write_deltalake`."""
    if not isinstance(table_or_uri, (str, Path, DeltaTable)):
        raise InvalidArgumentError("table_or_uri must be a str, Path or DeltaTable")
    table = table_or_uri if isinstance(table_or_uri, DeltaTable) else None
    where: Any = table.engine() if table else table_or_uri
    if isinstance(data, Sequence):
        batches = [pa.record_batch(batch) for batch in data]
        data = pa.Table.from_batches(batches)
    rows, columns = writable(data), None
    if predicate is not None:
        target = table
        if isinstance(where, (str, Path)) and DeltaTable.is_deltatable(where, storage_options):
            target = DeltaTable(where, storage_options=storage_options)
        columns = columns_of(rows) if target is None else target.schema().engine.struct

    def fields() -> tuple[StructType, StructType]:
        target = table or DeltaTable(where, storage_options=storage_options)
        return columns_of(rows), target.schema().engine.struct

    with statement(writer_properties, fields):
        refdelta.write_deltalake(
            where,
            rows,
            mode=mode,
            partition_by=partition_by,
            schema_mode=schema_mode,
            predicate=None if columns is None else to_spark(predicate, columns),
            configuration=with_version(configuration),
            name=name,
            description=description,
            storage_options=options_for(table_or_uri, storage_options) if table is None else None,
            target_file_size=target_file_size,
            **options_of("write_deltalake", (), commit_properties, post_commithook_properties),
        )


def convert_to_deltalake(
    uri: str | Path,
    mode: Literal["error", "ignore"] = "error",
    partition_by: Schema | None = None,
    partition_strategy: Literal["hive", "directory"] | None = None,
    name: str | None = None,
    description: str | None = None,
    configuration: Mapping[str, str | None] | None = None,
    storage_options: dict[str, str] | None = None,
    *args: Any,
    collect_stats: bool = True,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Create a table from a folder of Parquet files; see :func:`refdelta.convert_to_deltalake`."""
    if partition_by is not None and partition_strategy is None:
        raise InvalidArgumentError("Partition strategy has to be provided with partition_by.")
    with statement():
        refdelta.convert_to_deltalake(
            uri,
            mode,
            partition_by.engine if isinstance(partition_by, Schema) else partition_by,
            partition_strategy,
            name,
            description,
            with_version(configuration),
            options_for(uri, storage_options),
            collect_stats=collect_stats,
            **options_of("convert_to_deltalake", args, commit_properties, post_commithook_properties),
        )
