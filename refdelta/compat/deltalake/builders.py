"""The builders of MERGE, ALTER TABLE and OPTIMIZE, with deltalake's arguments; ``deltalake.table`` has them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from refdelta.compat.deltalake.commit import (
    HOOKS_FIRST,
    HOOKS_LAST,
    CommitProperties,
    PostCommitHookProperties,
    metrics_of,
    options_of,
)
from refdelta.compat.deltalake.properties import known_properties, with_version
from refdelta.compat.deltalake.schema import Field, Schema
from refdelta.compat.deltalake.sql import assignments, quoted, to_spark, tried
from refdelta.compat.deltalake.statement_context import statement
from refdelta.errors import DeltaError, InvalidArgumentError
from refdelta.schema import struct_of

if TYPE_CHECKING:
    import pyarrow as pa

    import refdelta
    from refdelta.api.merge_builder import TableMerger as MergeBuilder
    from refdelta.compat.deltalake.writer.properties import WriterProperties
    from refdelta.table.types import StructType


class TableFeatures(Enum):
    """Table features by deltalake's names."""

    ColumnMapping = "ColumnMapping"
    DeletionVectors = "DeletionVectors"
    TimestampWithoutTimezone = "TimestampWithoutTimezone"
    V2Checkpoint = "V2Checkpoint"
    AppendOnly = "AppendOnly"
    Invariants = "Invariants"
    CheckConstraints = "CheckConstraints"
    ChangeDataFeed = "ChangeDataFeed"
    GeneratedColumns = "GeneratedColumns"
    IdentityColumns = "IdentityColumns"
    RowTracking = "RowTracking"
    DomainMetadata = "DomainMetadata"
    IcebergCompatV1 = "IcebergCompatV1"
    VariantType = "VariantType"
    VariantTypePreview = "VariantTypePreview"


class _Table(Protocol):
    """The ``DeltaTable`` of this package."""

    def engine(self) -> refdelta.DeltaTable:
        """The table of refdelta at its newest version."""


class TableMerger:
    """The builder of a MERGE."""

    def __init__(
        self,
        builder: MergeBuilder[Any],
        table: StructType,
        columns: pa.Schema | None = None,
        alias: str = "source",
        writer_properties: WriterProperties | None = None,
        computed: Sequence[str] = (),
    ) -> None:
        """Build a MERGE.

        Args:
            builder: refdelta's builder.
            table: the columns of the table.
            columns: the columns of the source, if values that do not fit become null; None if they are an error.
            alias: the alias of the source.
            writer_properties: the properties of Parquet files.
            computed: the generated columns that the source lacks, which an assignment of all columns leaves out.
        """
        self._builder, self._struct, self._columns, self._alias = builder, table, columns, alias
        self._writer_properties, self._computed = writer_properties, computed

    def _sql(self, predicate: str | None) -> Any:
        return to_spark(predicate, self._struct)

    def _left_out(self, except_cols: list[str] | None) -> list[str] | None:
        return [*(except_cols or ()), *self._computed] if self._computed else except_cols

    def _values(self, updates: dict[str, str]) -> dict[str, str]:
        values = assignments(updates, self._struct)
        return values if self._columns is None else tried(values, self._struct)

    def _all(self, columns: pa.Schema, except_cols: list[str] | None) -> dict[str, str]:
        """The assignments of all columns that the source has."""
        left_out = {name.lower() for name in except_cols or ()}
        chosen = [name for name in columns.names if name.lower() not in left_out]
        given = {item.name: item.type for item in struct_of(columns)}
        same = {item.name for item in self._struct if given.get(item.name) == item.type}
        values = {quoted(name): f"{quoted(self._alias)}.{quoted(name)}" for name in chosen}
        return tried(values, self._struct, but=same)

    def when_matched_update(self, updates: dict[str, str], predicate: str | None = None) -> TableMerger:
        """Update matched rows."""
        self._builder.when_matched_update(self._values(updates), self._sql(predicate))
        return self

    def when_matched_update_all(
        self, predicate: str | None = None, except_cols: list[str] | None = None
    ) -> TableMerger:
        """Set all columns of matched rows."""
        if self._columns is None:
            self._builder.when_matched_update_all(self._sql(predicate), self._left_out(except_cols))
        else:
            self._builder.when_matched_update(self._all(self._columns, except_cols), self._sql(predicate))
        return self

    def when_matched_delete(self, predicate: str | None = None) -> TableMerger:
        """Delete matched rows."""
        self._builder.when_matched_delete(self._sql(predicate))
        return self

    def when_not_matched_insert(self, updates: dict[str, str], predicate: str | None = None) -> TableMerger:
        """Insert rows of the source that match nothing."""
        self._builder.when_not_matched_insert(self._values(updates), self._sql(predicate))
        return self

    def when_not_matched_insert_all(
        self, predicate: str | None = None, except_cols: list[str] | None = None
    ) -> TableMerger:
        """Insert rows of the source that match nothing, with all columns."""
        if self._columns is None:
            self._builder.when_not_matched_insert_all(self._sql(predicate), self._left_out(except_cols))
        else:
            self._builder.when_not_matched_insert(self._all(self._columns, except_cols), self._sql(predicate))
        return self

    def when_not_matched_by_source_update(self, updates: dict[str, str], predicate: str | None = None) -> TableMerger:
        """Update rows that no row of the source matches."""
        self._builder.when_not_matched_by_source_update(self._values(updates), self._sql(predicate))
        return self

    def when_not_matched_by_source_delete(self, predicate: str | None = None) -> TableMerger:
        """Delete rows that no row of the source matches."""
        self._builder.when_not_matched_by_source_delete(self._sql(predicate))
        return self

    def execute(self) -> dict[str, Any]:
        """Run the MERGE."""
        with statement(self._writer_properties):
            return metrics_of(self._builder.execute())


class TableAlterer:
    """The statements of ALTER TABLE."""

    def __init__(self, table: _Table) -> None:
        self.table = table

    def _run(self, method: str, args: tuple[Any, ...], commit: Any, hooks: Any, *values: Any, **named: Any) -> None:
        # deltalake's constraints, unlike its other ALTER statements, took the steps after the commit first.
        order = HOOKS_FIRST if method in ("add_constraint", "drop_constraint") else HOOKS_LAST
        options = options_of(method, args, commit, hooks, order)
        with statement():
            getattr(self.table.engine().alter, method)(*values, **named, **options)

    def add_feature(
        self,
        feature: TableFeatures | list[TableFeatures],
        allow_protocol_versions_increase: bool = False,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Add table features."""
        hooks = post_commithook_properties
        self._run("add_feature", args, commit_properties, hooks, feature, allow_protocol_versions_increase)

    def add_columns(
        self,
        fields: Field | list[Field],
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Add columns."""
        listed = fields if isinstance(fields, list) else [fields]
        own = struct_of(Schema(listed).engine).fields if all(isinstance(f, Field) for f in listed) else listed
        self._run("add_columns", args, commit_properties, post_commithook_properties, list(own))

    def add_constraint(
        self,
        constraints: dict[str, str],
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Add constraints, in one commit."""
        struct = self.table.engine().schema().struct
        translated = {name: to_spark(text, struct) for name, text in constraints.items()}
        self._run("add_constraint", args, commit_properties, post_commithook_properties, translated)

    def drop_constraint(
        self,
        name: str,
        raise_if_not_exists: bool = True,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Drop a constraint."""
        hooks = post_commithook_properties
        self._run("drop_constraint", args, commit_properties, hooks, name, raise_if_not_exists)

    def drop_column_not_null(
        self,
        column_name: str,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Allow nulls in a column."""
        field = self.table.engine().schema().struct.find(column_name)
        if field is not None and field.nullable:
            raise DeltaError(f"column {column_name!r} is nullable already")
        self._run("drop_column_not_null", (), commit_properties, post_commithook_properties, column_name)

    def set_table_properties(
        self,
        properties: dict[str, str],
        raise_if_not_exists: bool = True,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Set table properties. Names that are not Delta's are refused unless ``raise_if_not_exists`` is false."""
        if raise_if_not_exists:
            known_properties(properties)
        table = self.table.engine()
        changed = with_version(properties, least=table.protocol().min_writer_version) or {}
        self._run("set_table_properties", args, commit_properties, post_commithook_properties, changed)

    def set_table_name(
        self,
        name: str,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Set the table's name."""
        if not 1 <= len(name) <= 255:
            raise DeltaError(
                "Table metadata is invalid: name: Table name cannot be empty and cannot exceed 255 characters"
            )
        self._run("set_table_name", args, commit_properties, post_commithook_properties, name)

    def set_table_description(
        self,
        description: str,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Set the table's description."""
        if len(description) > 4000:
            raise DeltaError("Table metadata is invalid: description: Table description cannot exceed 4000 characters")
        self._run("set_table_description", args, commit_properties, post_commithook_properties, description)

    def set_column_metadata(
        self,
        column: str,
        metadata: dict[str, str],
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Set entries of a column's metadata."""
        self._run("set_column_metadata", args, commit_properties, post_commithook_properties, column, metadata)


class TableOptimizer:
    """OPTIMIZE."""

    def __init__(self, table: _Table) -> None:
        self.table = table

    def _with(self, name: str, properties: WriterProperties | None, *args: Any, **options: Any) -> Any:
        with statement(properties):
            return getattr(self.table.engine().optimize, name)(*args, **options)

    def compact(
        self,
        partition_filters: Any = None,
        target_size: int | None = None,
        max_concurrent_tasks: int | None = None,
        max_spill_size: int | None = None,
        max_temp_directory_size: int | None = None,
        min_commit_interval: int | timedelta | None = None,
        writer_properties: WriterProperties | None = None,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> dict[str, Any]:
        """Merge small files."""
        options = options_of("compact", args, commit_properties, post_commithook_properties, HOOKS_FIRST)
        found = self._with(
            "compact",
            writer_properties,
            partition_filters,
            _size(target_size),
            max_concurrent_tasks,
            max_spill_size,
            max_temp_directory_size,
            min_commit_interval,
            **options,
        )
        return _optimized(found)

    def z_order(
        self,
        columns: Iterable[str],
        partition_filters: Any = None,
        target_size: int | None = None,
        max_concurrent_tasks: int | None = None,
        max_spill_size: int | None = None,
        max_temp_directory_size: int | None = None,
        min_commit_interval: int | timedelta | None = None,
        writer_properties: WriterProperties | None = None,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> dict[str, Any]:
        """Sort rows along a Z-curve."""
        options = options_of("z_order", args, commit_properties, post_commithook_properties, HOOKS_FIRST)
        found = self._with(
            "z_order",
            writer_properties,
            list(columns),
            partition_filters,
            _size(target_size),
            max_concurrent_tasks,
            max_spill_size,
            max_temp_directory_size,
            min_commit_interval,
            **options,
        )
        return _optimized(found)


_LARGEST = 2**63 - 1


def _size(target_size: int | None) -> int | None:
    if target_size is not None and not 1 <= target_size <= _LARGEST:
        raise InvalidArgumentError(f"target_file_size must be between 1 and {_LARGEST}, not {target_size}")
    return target_size


def _optimized(result: Any) -> dict[str, Any]:
    """The metrics; those of sizes are JSON, as in deltalake."""
    found = metrics_of(result)
    sizes = {name: json.dumps(dict(found[name]), separators=(",", ":")) for name in ("filesAdded", "filesRemoved")}
    return {**found, **sizes}
