"""``DeltaTable`` with deltalake's methods, over :class:`refdelta.DeltaTable`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import pyarrow as pa

import refdelta
from refdelta.api.table import create_at
from refdelta.compat.deltalake._util import by_position, deprecate_positional_commit_args
from refdelta.compat.deltalake.arrow import columns_of, writable
from refdelta.compat.deltalake.builders import (  # TableFeatures is a name of deltalake.table
    TableAlterer,
    TableFeatures,  # noqa: F401
    TableMerger,
    TableOptimizer,
)
from refdelta.compat.deltalake.commit import (
    HOOKS_FIRST,
    CommitProperties,
    PostCommitHookProperties,
    metrics_of,
    no_effect,
    options_of,
)
from refdelta.compat.deltalake.history import in_their_form
from refdelta.compat.deltalake.properties import known_properties, with_version
from refdelta.compat.deltalake.raw_table import RawDeltaTable, options_for
from refdelta.compat.deltalake.schema import Schema, generated_columns
from refdelta.compat.deltalake.sql import assignments, to_spark, tried
from refdelta.compat.deltalake.statement_context import statement
from refdelta.errors import InvalidArgumentError

if TYPE_CHECKING:
    import os

    import pandas as pd

    from refdelta.compat.deltalake.writer.properties import WriterProperties
    from refdelta.operations.write.append import Rows
    from refdelta.table.types import StructType

FilterLiteralType = tuple[str, str, Any]
FilterConjunctionType = list[FilterLiteralType]
FilterDNFType = list[FilterConjunctionType]
FilterType = FilterConjunctionType | FilterDNFType
FilePruningPredicateType = FilterType | str
PartitionFilterType = list[tuple[str, str, str | list[str]]]

MAX_SUPPORTED_PYARROW_WRITER_VERSION = 7
NOT_SUPPORTED_PYARROW_WRITER_VERSIONS = [3, 4, 5, 6]
SUPPORTED_WRITER_FEATURES = {"appendOnly", "invariants", "timestampNtz", "variantType", "variantType-preview"}
MAX_SUPPORTED_READER_VERSION = 3
NOT_SUPPORTED_READER_VERSION = -1
SUPPORTED_READER_FEATURES = {"timestampNtz", "variantType", "variantType-preview"}
"""The protocols that a reader of Parquet, or pyarrow's writer, can handle without deltalake's help.

Libraries such as Polars ask for them before they read the files by themselves. refdelta's own limits are wider.
"""

FSCK_METRICS_FILES_REMOVED_LABEL = "files_removed"

_STORE = "the store of the table reads its files; see storage_options"


class ProtocolVersions(NamedTuple):
    """The protocol of a table."""

    min_reader_version: int
    min_writer_version: int
    writer_features: list[str] | None
    reader_features: list[str] | None


class _Config(NamedTuple):
    without_files: bool
    log_buffer_size: int
    skip_stats: bool = False


class DeltaTableConfig(_Config):
    """The arguments with which a table was opened; deprecated."""

    def __new__(cls, without_files: bool, log_buffer_size: int, skip_stats: bool = False) -> Self:
        """Make it, with a warning."""
        warnings.warn("The class DeltaTableConfig is deprecated.", DeprecationWarning, stacklevel=2)
        return super().__new__(cls, without_files, log_buffer_size, skip_stats)


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
        self._table = RawDeltaTable(table_uri, version, storage_options)

    def engine(self) -> refdelta.DeltaTable:
        """The table of refdelta at its newest version, as every statement takes it."""
        self._table.update_incremental()
        return self._own

    @property
    def _own(self) -> refdelta.DeltaTable:
        return self._table.engine

    @property
    def _struct(self) -> StructType:
        return self._table.struct

    @property
    def table_config(self) -> DeltaTableConfig:
        """The arguments with which the table was opened; deprecated."""
        warnings.warn("The 'table_config' property is deprecated.", DeprecationWarning, stacklevel=2)
        return DeltaTableConfig(*self._table.table_config())

    @staticmethod
    def is_deltatable(table_uri: str | Path | os.PathLike[str], storage_options: dict[str, str] | None = None) -> bool:
        """True if the location has a table."""
        return RawDeltaTable.is_deltatable(table_uri, storage_options)

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
        return self._table.version()

    @property
    def table_uri(self) -> str:
        """The table's URI, with a slash at its end."""
        return self._table.table_uri()

    def schema(self) -> Schema:
        """The schema."""
        return self._table.schema

    def metadata(self) -> Metadata:
        """The metadata."""
        return Metadata(self._table)

    def protocol(self) -> ProtocolVersions:
        """The protocol, which can be unpacked."""
        return ProtocolVersions(*self._table.protocol_versions())

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The commits, newest first."""
        return [in_their_form(commit) for commit in self._own.history(limit)]

    def count(self) -> int:
        """The number of rows."""
        return self._own.count()

    def transaction_version(self, app_id: str) -> int | None:
        """The last version that an application recorded."""
        return self._table.transaction_version(app_id)

    def get_add_actions(self, flatten: bool = False) -> Any:
        """The live files with statistics; ``modification_time`` is a number of milliseconds."""
        return self._table.get_add_actions(flatten)

    def _sql(self, predicate: Any) -> Any:
        return to_spark(predicate, self._struct)

    def partitions(self, partition_filters: Any = None, *, file_pruning_predicate: Any = None) -> list[dict[str, str]]:
        """The partitions, with values as the log writes them."""
        return self._table.partitions(_merged("partition_filters", partition_filters, file_pruning_predicate))

    def file_uris(self, partition_filters: Any = None, *, file_pruning_predicate: Any = None) -> list[str]:
        """The files that can hold rows for which the predicate is true."""
        filters = _merged("partition_filters", partition_filters, file_pruning_predicate)
        return self._table.file_uris(filters)

    def deletion_vectors(self) -> Any:
        """Stream the deletion vectors: the URI of a file, and a list with false for each deleted row."""
        return self._table.deletion_vectors()

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
        self._table.generate()

    # --- reading ---

    def load_as_version(self, version: int | str | datetime) -> None:
        """Move the handle to a version or a time."""
        if not isinstance(version, (int, str, datetime)):
            raise TypeError("Invalid datatype provided for version, only int, str or datetime are accepted.")
        with statement():
            self._own.load_as_version(self._table.moment(version))

    def update_incremental(self) -> None:
        """Move the handle to the newest version."""
        self._table.update_incremental()

    def scan(self, columns: list[str] | None = None, predicate: str | None = None) -> Any:
        """Stream rows."""
        return self._table.scan(columns, predicate)

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
            table = self._own.to_pyarrow_table(columns, self._table.pruning(partitions)) if filters is None else None
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
        with statement():
            return self._own.to_pyarrow_dataset(
                None,
                filesystem,
                parquet_read_options,
                given_schema,
                as_large_types,
                self._table.pruning(file_pruning_predicate),
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
        return self._table.load_cdf(
            columns,
            predicate,
            starting_version,
            ending_version,
            starting_timestamp,
            ending_timestamp,
            allow_out_of_range,
        )

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
        found = table.restore(self._table.moment(target), ignore_missing_files=ignore_missing_files, **options)
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
        mode: str,
        schema: Any,
        partition_by: list[str] | str | None = None,
        partition_filters: Any = None,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Commit data files that are in the table's folder; see :meth:`RawDeltaTable.create_write_transaction`."""
        commit, hooks = deprecate_positional_commit_args(
            "create_write_transaction", args, commit_properties, post_commithook_properties
        )
        columns = [partition_by] if isinstance(partition_by, str) else partition_by
        self._table.create_write_transaction(actions, mode, columns, schema, partition_filters, commit, hooks)

    def create_checkpoint(self) -> None:
        """Write a checkpoint of this version."""
        self._table.create_checkpoint()

    def compact_logs(self, starting_version: int, ending_version: int) -> None:
        """Write a log compaction file."""
        self._table.compact_logs(starting_version, ending_version)

    def cleanup_metadata(self) -> None:
        """Remove log files that are older than the retention."""
        self._table.cleanup_metadata()

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
            with statement():
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
