"""``DeltaTable`` with deltalake's methods, over :class:`refdelta.DeltaTable`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

import refdelta
from refdelta.api.table import create_at
from refdelta.compat.deltalake._util import by_position
from refdelta.compat.deltalake.arrow import columns_of, given, stream, writable
from refdelta.compat.deltalake.builders import (  # TableFeatures is a name of deltalake.table
    TableAlterer,
    TableFeatures,  # noqa: F401
    TableMerger,
    TableOptimizer,
)
from refdelta.compat.deltalake.commit import (
    HOOKS_FIRST,
    AddAction,
    CommitProperties,
    PostCommitHookProperties,
    RemoveAction,
    metrics_of,
    no_effect,
    options_of,
)
from refdelta.compat.deltalake.history import in_their_form
from refdelta.compat.deltalake.properties import known_properties, with_version
from refdelta.compat.deltalake.schema import Schema, generated_columns
from refdelta.compat.deltalake.sql import assignments, in_texts, to_spark, tried
from refdelta.compat.deltalake.statement_context import statement
from refdelta.engine.log.timestamps import version_at, version_since
from refdelta.errors import InvalidArgumentError, VersionNotFoundError
from refdelta.table.types import StructType
from refdelta.transaction.time_travel import milliseconds

if TYPE_CHECKING:
    import os

    import pandas as pd

    from refdelta.arguments import ReplaceMode
    from refdelta.compat.deltalake.writer.properties import WriterProperties
    from refdelta.operations.write.append import Rows

FilterLiteralType = tuple[str, str, Any]
FilterConjunctionType = list[FilterLiteralType]
FilterDNFType = list[FilterConjunctionType]
FilterType = FilterConjunctionType | FilterDNFType
FilePruningPredicateType = FilterType | str
PartitionFilterType = list[tuple[str, str, str | list[str]]]

_STORE = "the store of the table reads its files; see storage_options"
_LOCAL = "fsync"  # the option of refdelta's local store; deltalake's has none


class ProtocolVersions(NamedTuple):
    """The protocol of a table."""

    min_reader_version: int
    min_writer_version: int
    writer_features: list[str] | None
    reader_features: list[str] | None


class DeltaTableConfig(NamedTuple):
    """The arguments with which a table was opened."""

    without_files: bool
    log_buffer_size: int
    skip_stats: bool = False


class Metadata:
    """The metadata of a table."""

    def __init__(self, table: Any) -> None:
        self._metadata = table.metadata()

    @property
    def id(self) -> Any:
        """The table's id."""
        return self._metadata.id

    @property
    def name(self) -> Any:
        """The table's name."""
        return self._metadata.name

    @property
    def description(self) -> Any:
        """The table's description."""
        return self._metadata.description

    @property
    def partition_columns(self) -> list[str]:
        """The partition columns."""
        return list(self._metadata.partition_columns or ())

    @property
    def created_time(self) -> Any:
        """The time of creation, in milliseconds since 1970."""
        return self._metadata.created_time

    @property
    def configuration(self) -> dict[str, str]:
        """The table properties."""
        return dict(self._metadata.configuration or {})

    def __str__(self) -> str:
        return (
            f"Metadata(id: {self.id}, name: {self.name}, description: {self.description}, partition_columns: "
            f"{self.partition_columns}, created_time: {self.created_time}, configuration: {self.configuration})"
        )


class InnerTable:
    """The methods of deltalake's inner table that Polars and Daft call."""

    def __init__(self, table: DeltaTable) -> None:
        self.table = table

    def table_uri(self) -> str:
        """The table's URI."""
        return self.table.table_uri

    def get_add_file_sizes(self) -> dict[str, int]:
        """The sizes of the live files in bytes, by path."""
        return self.table.file_sizes()

    def create_write_transaction(
        self,
        actions: list[Any],
        mode: ReplaceMode,
        partition_by: list[str],
        schema: Any,
        partitions_filters: Any = None,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Commit data files, by the arguments in the order of the inner table."""
        self.table.create_write_transaction(
            actions,
            mode,
            schema,
            partition_by,
            partitions_filters,
            commit_properties=commit_properties,
            post_commithook_properties=post_commithook_properties,
        )


def options_for(uri: Any, options: Mapping[str, str] | None) -> dict[str, str] | None:
    """The storage options for a URI, without those that deltalake passes over: all but refdelta's for a local path, and
    ``provider``, which identifies a configuration of Dagster.
    """
    text = str(uri)
    local = "://" not in text or text.startswith("file://")
    return {k: v for k, v in (options or {}).items() if (k == _LOCAL if local else k != "provider")} or None


def _as_listed(uris: pa.Array) -> pa.Array:
    return pa.array([unquote(uri) if uri.startswith("file://") else uri for uri in uris.to_pylist()], uris.type)


def _merged(name: str, old: Any, new: Any) -> Any:
    if old is None:
        return new
    if new is not None:
        raise InvalidArgumentError(f"`{name}` is deprecated; pass only `file_pruning_predicate`")
    warnings.warn(f"`{name}` is deprecated; use `file_pruning_predicate` instead", DeprecationWarning, stacklevel=3)
    return old


class DeltaTable:
    """A table, as deltalake shows it."""

    def __init__(
        self,
        table_uri: str | Path | os.PathLike[str],
        version: int | None = None,
        storage_options: dict[str, str] | None = None,
        without_files: bool = False,
        log_buffer_size: int | None = None,
        skip_stats: bool = False,
    ) -> None:
        for name, is_given in (
            ("without_files", without_files),
            ("log_buffer_size", log_buffer_size is not None),
            ("skip_stats", skip_stats),
        ):
            if is_given:
                warnings.warn(f"The '{name}' parameter is deprecated and ignored.", DeprecationWarning, stacklevel=2)
        self._storage_options = storage_options
        self._table = InnerTable(self)
        self._own = refdelta.DeltaTable(table_uri, version, options_for(table_uri, storage_options))

    def engine(self) -> refdelta.DeltaTable:
        """The table of refdelta at its newest version, as every statement takes it."""
        self._own.update_incremental()
        return self._own

    @property
    def _struct(self) -> StructType:
        return self._own.schema().struct

    @property
    def table_config(self) -> DeltaTableConfig:
        """The arguments with which the table was opened; deprecated."""
        warnings.warn("The 'table_config' property is deprecated.", DeprecationWarning, stacklevel=2)
        return DeltaTableConfig(False, 32)

    @staticmethod
    def is_deltatable(table_uri: str | Path | os.PathLike[str], storage_options: dict[str, str] | None = None) -> bool:
        """True if the location has a table."""
        return refdelta.DeltaTable.is_deltatable(table_uri, options_for(table_uri, storage_options))

    @classmethod
    def create(
        cls,
        table_uri: str | Path,
        schema: Any,
        mode: Literal["error", "append", "overwrite", "ignore"] = "error",
        partition_by: list[str] | str | None = None,
        name: str | None = None,
        description: str | None = None,
        configuration: Mapping[str, str | None] | None = None,
        storage_options: dict[str, str] | None = None,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
        raise_if_key_not_exists: bool = True,
    ) -> DeltaTable:
        """Create a table without rows; see :meth:`refdelta.DeltaTable.create`."""
        options = options_of("create", args[:2], commit_properties, post_commithook_properties)
        [strict] = by_position("create", args[2:], raise_if_key_not_exists=(raise_if_key_not_exists, True))
        if strict:
            known_properties(configuration or {})
        create_table(
            table_uri,
            schema,
            mode,
            storage_options,
            partition_by=partition_by,
            name=name,
            description=description,
            configuration=configuration,
            **options,
        )
        return cls(table_uri, storage_options=storage_options)

    # --- metadata ---

    def version(self) -> int:
        """The version of the handle."""
        return self._own.version()

    @property
    def table_uri(self) -> str:
        """The table's URI, with a slash at its end."""
        return f"{self._own.table_uri}/"

    def schema(self) -> Schema:
        """The schema."""
        return Schema.of(self._struct)

    def metadata(self) -> Metadata:
        """The metadata."""
        return Metadata(self._own)

    def protocol(self) -> ProtocolVersions:
        """The protocol, which can be unpacked."""
        found = self._own.protocol()
        writer, reader = found.writer_features, found.reader_features
        return ProtocolVersions(
            found.min_reader_version,
            found.min_writer_version,
            None if writer is None else list(writer),
            None if reader is None else list(reader),
        )

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The commits, newest first."""
        return [in_their_form(commit) for commit in self._own.history(limit)]

    def count(self) -> int:
        """The number of rows."""
        return self._own.count()

    def transaction_version(self, app_id: str) -> int | None:
        """The last version that an application recorded."""
        return self._own.transaction_version(app_id)

    def get_add_actions(self, flatten: bool = False) -> Any:
        """The live files with statistics; ``modification_time`` is a number of milliseconds."""
        table = self._own.get_add_actions(flatten)
        index = table.schema.get_field_index("modification_time")
        times = table.column(index).cast(pa.int64())
        return given("Table", table.set_column(index, "modification_time", times))

    def _sql(self, predicate: Any) -> Any:
        return to_spark(predicate, self._struct)

    def _pruned(self, predicate: Any) -> Any:
        """A predicate, or a list of conditions, in which values for a column of strings are strings."""
        return self._sql(predicate) if isinstance(predicate, str) else in_texts(predicate, self._struct)

    def partitions(self, partition_filters: Any = None, *, file_pruning_predicate: Any = None) -> list[dict[str, str]]:
        """The partitions, with values as the log writes them."""
        filters = self._pruned(_merged("partition_filters", partition_filters, file_pruning_predicate))
        scan = self._own.scan(predicate=filters)
        found = {tuple(pairs): None for pairs in scan.files.column("partitionValues").to_pylist() if pairs}
        physical = "delta.columnMapping.physicalName"
        names = {str(item.metadata.get(physical, item.name)): item.name for item in self._struct.fields}
        return [{names[name]: value for name, value in pairs} for pairs in found]

    def file_uris(self, partition_filters: Any = None, *, file_pruning_predicate: Any = None) -> list[str]:
        """The files that can hold rows for which the predicate is true."""
        filters = _merged("partition_filters", partition_filters, file_pruning_predicate)
        return self._own.file_uris(self._pruned(filters))

    def file_sizes(self) -> dict[str, int]:
        """The sizes of the live files in bytes, by their paths as :meth:`file_uris` ends."""
        uris, sizes = self._own.file_uris(), self._own.get_add_actions().column("size_bytes").to_pylist()
        root = self.table_uri.removeprefix("file://")
        return {uri.removeprefix(root): size for uri, size in zip(uris, sizes, strict=True)}

    def deletion_vectors(self) -> Any:
        """Stream the deletion vectors: the URI of a file, and a list with false for each deleted row.

        The path of a local file is as in :meth:`file_uris`, by which Polars looks for it.
        """
        reader = self._own.deletion_vectors()
        named = (batch.set_column(0, "filepath", _as_listed(batch.column(0))) for batch in reader)
        return given("RecordBatchReader", pa.RecordBatchReader.from_batches(reader.schema, named))

    def repair(
        self,
        dry_run: bool = False,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> dict[str, Any]:
        """Remove the entries of files that are gone, or list them."""
        options = options_of("repair", args, commit_properties, post_commithook_properties, HOOKS_FIRST)
        found = metrics_of(self.engine().repair(dry_run, **options))
        return {name: found[name] for name in ("dry_run", "files_removed")}

    def generate(self) -> None:
        """Write lists of files for engines that read no Delta log; see :meth:`refdelta.DeltaTable.generate`."""
        self._own.generate()

    # --- reading ---

    def load_as_version(self, version: int | str | datetime) -> None:
        """Move the handle to a version or a time."""
        if not isinstance(version, (int, str, datetime)):
            raise TypeError("Invalid datatype provided for version, only int, str or datetime are accepted.")
        self._own.load_as_version(self._moment(version))

    def _moment(self, version: int | str | datetime) -> int:
        """The number of a version, by number or time. A time before the oldest one means the oldest one."""
        if isinstance(version, int):
            return version
        moment = milliseconds(version)
        try:
            return version_at(self._own.store, moment)
        except VersionNotFoundError:
            return version_since(self._own.store, moment)

    def update_incremental(self) -> None:
        """Move the handle to the newest version."""
        self._own.update_incremental()

    def scan(self, columns: list[str] | None = None, predicate: str | None = None) -> Any:
        """Stream rows."""
        return stream(self._own.to_record_batch_reader(columns, self._sql(predicate)))

    def to_pyarrow_table(
        self,
        partitions: Any = None,
        columns: list[str] | None = None,
        filesystem: Any = None,
        filters: Any = None,
    ) -> pa.Table:
        """All rows as a table."""
        if filesystem is not None:
            no_effect("filesystem", _STORE)
        if partitions is not None:
            warnings.warn("`partitions` is deprecated; use `filters` instead", DeprecationWarning, stacklevel=2)
            table = self._own.to_pyarrow_table(columns, self._pruned(partitions)) if filters is None else None
            if table is not None:
                return table
            raise InvalidArgumentError("give either partitions or filters")
        return self._own.to_pyarrow_table(columns, filters)

    def to_pandas(
        self,
        partitions: Any = None,
        columns: list[str] | None = None,
        filesystem: Any = None,
        filters: Any = None,
        types_mapper: Any = None,
    ) -> pd.DataFrame:
        """All rows as a pandas data frame."""
        table = self.to_pyarrow_table(partitions, columns, filesystem, filters)
        return table.to_pandas(types_mapper=types_mapper)

    def to_pyarrow_dataset(
        self,
        partitions: Any = None,
        filesystem: Any = None,
        parquet_read_options: Any = None,
        schema: Any = None,
        as_large_types: bool = False,
        file_pruning_predicate: Any = None,
    ) -> Any:
        """The table as a pyarrow dataset; see :meth:`refdelta.DeltaTable.to_pyarrow_dataset`."""
        given_schema = None if schema is None else pa.schema(schema)
        file_pruning_predicate = _merged("partitions", partitions, file_pruning_predicate)
        return self._own.to_pyarrow_dataset(
            None,
            filesystem,
            parquet_read_options,
            given_schema,
            as_large_types,
            self._pruned(file_pruning_predicate),
        )

    def __datafusion_table_provider__(self, session: Any = None) -> Any:
        """Refuse: a table provider is a structure of Rust.

        Raises:
            InvalidArgumentError: names what DataFusion reads instead.
        """
        raise InvalidArgumentError(
            "DataFusion takes no DeltaTable of refdelta: a table provider is a structure of Rust; use "
            "context.register_dataset(name, table.to_pyarrow_dataset()), or for tables that a dataset refuses "
            "context.from_arrow(table.to_pyarrow_table(), name)"
        )

    def load_cdf(
        self,
        starting_version: int = 0,
        ending_version: int | None = None,
        starting_timestamp: str | None = None,
        ending_timestamp: str | None = None,
        columns: list[str] | None = None,
        predicate: str | None = None,
        allow_out_of_range: bool = False,
    ) -> Any:
        """Stream the change data feed; ``_commit_version`` is unsigned, and ``_commit_timestamp`` without a zone."""
        first = None if starting_timestamp is not None and starting_version == 0 else starting_version
        with statement():
            reader = self._own.load_cdf(
                first,
                ending_version,
                starting_timestamp,
                ending_timestamp,
                columns,
                self._sql(predicate),
                allow_out_of_range,
            )
        return stream(reader, {"_commit_version": pa.uint64(), "_commit_timestamp": pa.timestamp("ms")})

    # --- statements ---

    def delete(
        self,
        predicate: str | None = None,
        writer_properties: WriterProperties | None = None,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> dict[str, Any]:
        """Delete rows."""
        options = options_of("delete", args, commit_properties, post_commithook_properties, HOOKS_FIRST)
        table = self.engine()
        with statement(writer_properties):
            return metrics_of(table.delete(self._sql(predicate), **options))

    def update(
        self,
        updates: dict[str, str] | None = None,
        new_values: dict[str, Any] | None = None,
        predicate: str | None = None,
        writer_properties: WriterProperties | None = None,
        error_on_type_mismatch: bool = True,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> dict[str, Any]:
        """Set columns of rows."""
        options = options_of("update", args, commit_properties, post_commithook_properties, HOOKS_FIRST)
        if updates is not None and new_values is not None:
            raise InvalidArgumentError("Passing updates and new_values at same time is not allowed, pick one.")
        if updates is None and new_values is None:
            raise InvalidArgumentError("Either updates or new_values need to be passed to update the table.")
        if any(not isinstance(text, str) for pair in (updates or {}).items() for text in pair):
            raise TypeError(
                f"The values of the updates parameter must all be SQL strings. Got {updates}. Did you mean to use the "
                "new_values parameter?"
            )
        table = self.engine()
        changes = None if updates is None else assignments(updates, self._struct)
        if changes is not None and not error_on_type_mismatch:
            changes = tried(changes, self._struct)
        with statement(writer_properties):
            return metrics_of(table.update(changes, new_values, self._sql(predicate), **options))

    def merge(
        self,
        source: Any,
        predicate: str,
        source_alias: str | None = None,
        target_alias: str | None = None,
        merge_schema: bool = False,
        error_on_type_mismatch: bool = True,
        writer_properties: WriterProperties | None = None,
        streamed_exec: bool = True,
        max_spill_size: int | None = None,
        max_temp_directory_size: int | None = None,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> TableMerger:
        """Begin a MERGE."""
        options = options_of("merge", args, commit_properties, post_commithook_properties, HOOKS_FIRST)
        if not streamed_exec:
            no_effect("streamed_exec", "the source is always streamed")
        for name, value in (("max_spill_size", max_spill_size), ("max_temp_directory_size", max_temp_directory_size)):
            if value is not None:
                no_effect(name, "memory is bounded by the engine itself")
        table, rows, columns = self.engine(), writable(source), None
        found = columns_of(rows)
        computed = [] if not found.fields else [name for name in generated_columns(self._struct) if name not in found]
        if not error_on_type_mismatch:
            rows = pa.RecordBatchReader.from_stream(rows)
            columns = rows.schema
        builder = table.merge(
            rows,
            to_spark(predicate, self._struct),
            source_alias or "source",
            target_alias or "target",
            merge_schema,
            **options,
        )
        return TableMerger(builder, self._struct, columns, source_alias or "source", writer_properties, computed)

    def restore(
        self,
        target: int | datetime | str,
        *,
        ignore_missing_files: bool = False,
        protocol_downgrade_allowed: bool = False,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> dict[str, Any]:
        """Restore an earlier version."""
        options = options_of("restore", (), commit_properties, post_commithook_properties)
        if protocol_downgrade_allowed:
            no_effect("protocol_downgrade_allowed", "a table keeps its features")
        table = self.engine()
        found = table.restore(self._moment(target), ignore_missing_files=ignore_missing_files, **options)
        return metrics_of(found)

    def vacuum(
        self,
        retention_hours: int | None = None,
        dry_run: bool = True,
        enforce_retention_duration: bool = True,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
        full: bool = False,
        keep_versions: list[int] | None = None,
    ) -> list[str]:
        """Remove, or list, the files that no retained version needs."""
        options = options_of("vacuum", args[:2], commit_properties, post_commithook_properties, HOOKS_FIRST)
        full, keep_versions = by_position("vacuum", args[2:], full=(full, False), keep_versions=(keep_versions, None))
        if retention_hours is not None and retention_hours < 0:
            raise InvalidArgumentError("The retention periods should be positive.")
        with statement():
            found = self.engine().vacuum(
                retention_hours, dry_run, enforce_retention_duration, full=full, keep_versions=keep_versions, **options
            )
        return list(found)

    def create_write_transaction(
        self,
        actions: list[Any],
        mode: ReplaceMode,
        schema: Any,
        partition_by: list[str] | str | None = None,
        partition_filters: Any = None,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Commit data files that are in the table's folder."""
        options = options_of("create_write_transaction", args, commit_properties, post_commithook_properties)
        if partition_filters is not None:
            raise InvalidArgumentError("partition_filters is not supported: overwrite the whole table, or use delete()")
        for action in actions:
            if not isinstance(action, (AddAction, RemoveAction)):
                raise TypeError(f"an action must be an AddAction or a RemoveAction, not a {type(action).__name__}")
        files = schema.engine if isinstance(schema, Schema) else schema
        with statement():
            self.engine().create_write_transaction(actions, mode, files, partition_by, **options)

    def create_checkpoint(self) -> None:
        """Write a checkpoint of this version."""
        self._own.create_checkpoint()

    def compact_logs(self, starting_version: int, ending_version: int) -> None:
        """Write a log compaction file."""
        self.engine().compact_logs(starting_version, ending_version)

    def cleanup_metadata(self) -> None:
        """Remove log files that are older than the retention."""
        self.engine().cleanup_metadata()

    @property
    def optimize(self) -> TableOptimizer:
        """OPTIMIZE."""
        return TableOptimizer(self)

    @property
    def alter(self) -> TableAlterer:
        """ALTER TABLE."""
        return TableAlterer(self)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._own.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"DeltaTable({self.table_uri!r})"


def create_table(
    table_uri: str | Path,
    schema: Any,
    mode: Any,
    storage_options: dict[str, str] | None,
    *,
    configuration: Mapping[str, str | None] | None,
    rows: Rows | None = None,
    **described: Any,
) -> None:
    """Create a table, or replace one, in one commit; see :meth:`DeltaTable.create` for the other arguments.

    Args:
        table_uri: its URI.
        schema: its schema.
        mode: the behaviour if the table exists.
        storage_options: the options of its store.
        configuration: its properties.
        rows: its rows; None for none.
        described: its partition columns, name and description, and how to commit.
    """
    if mode == "append":
        if DeltaTable.is_deltatable(table_uri, storage_options):
            raise InvalidArgumentError("mode='append' is not supported by create; use write_deltalake to append")
        mode = "error"
    own = schema.engine if isinstance(schema, Schema) else schema
    made: dict[str, str] = {}
    if isinstance(schema, Schema):
        own, made = schema.without_expressions()
    with statement():
        create_at(
            table_uri,
            own,
            mode,
            options_for(table_uri, storage_options),
            rows=rows,
            configuration=with_version(configuration, generated=bool(made)),
            generated=made or None,
            **described,
        )
