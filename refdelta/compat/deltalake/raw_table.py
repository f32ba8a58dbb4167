"""``RawDeltaTable``, which deltalake has inside of a ``DeltaTable``: a private class whose methods libraries call.

It has those that read, and ``create_write_transaction``. Statements have their own names on ``DeltaTable``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

import refdelta
from refdelta.arrow.schema import from_arrow, to_arrow
from refdelta.compat.deltalake.arrow import given, stream
from refdelta.compat.deltalake.commit import (
    AddAction,
    CommitProperties,
    PostCommitHookProperties,
    RemoveAction,
    options_of,
)
from refdelta.compat.deltalake.history import in_their_form
from refdelta.compat.deltalake.schema import Schema
from refdelta.compat.deltalake.sql import in_texts, to_spark
from refdelta.compat.deltalake.statement_context import statement
from refdelta.engine.log.timestamps import version_at, version_since
from refdelta.errors import VersionNotFoundError
from refdelta.schema import struct_of
from refdelta.transaction.time_travel import milliseconds

if TYPE_CHECKING:
    import os
    from datetime import datetime
    from pathlib import Path

    from refdelta.arguments import ReplaceMode, SchemaMode
    from refdelta.table.types import StructType

_LOCAL = "fsync"  # the option of refdelta's local store; deltalake's has none


def options_for(uri: Any, options: Mapping[str, str] | None) -> dict[str, str] | None:
    """The storage options for a URI, without those that deltalake passes over: all but refdelta's for a local path, and
    ``provider``, which identifies a configuration of Dagster.
    """
    text = str(uri)
    local = "://" not in text or text.startswith("file://")
    return {k: v for k, v in (options or {}).items() if (k == _LOCAL if local else k != "provider")} or None


def named_as_listed(uris: pa.Array) -> pa.Array:
    """URIs of files as ``file_uris`` has them: those of local files are not percent-encoded."""
    return pa.array([unquote(uri) if uri.startswith("file://") else uri for uri in uris.to_pylist()], uris.type)


class RawDeltaTable:
    """A table at a version, by the methods of deltalake's core in Rust.

    Args:
        table_uri: its URI.
        version: the version; None for the newest one.
        storage_options: the options of its store, by deltalake's names.

    Attributes:
        engine: refdelta's table.
        storage_options: the options, as they were given.

    Raises:
        TableNotFoundError: there is no table.
    """

    def __init__(
        self,
        table_uri: str | Path | os.PathLike[str],
        version: int | None = None,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        self.storage_options = storage_options
        with statement():
            self.engine = refdelta.DeltaTable(table_uri, version, options_for(table_uri, storage_options))

    @property
    def struct(self) -> StructType:
        """The schema in refdelta's own form."""
        return self.engine.schema().struct

    def pruning(self, predicate: Any) -> Any:
        """A predicate for files in refdelta's form: translated SQL, or conditions with strings where columns have."""
        return to_spark(predicate, self.struct) if isinstance(predicate, str) else in_texts(predicate, self.struct)

    # --- metadata ---

    @staticmethod
    def is_deltatable(table_uri: str | Path | os.PathLike[str], storage_options: dict[str, str] | None) -> bool:
        """True if the location has a table."""
        return refdelta.DeltaTable.is_deltatable(table_uri, options_for(table_uri, storage_options))

    def table_uri(self) -> str:
        """The table's URI, with a slash at its end."""
        return f"{self.engine.table_uri}/"

    def version(self) -> int:
        """The version of the handle."""
        return self.engine.version()

    def get_latest_version(self) -> int:
        """The newest version of the table."""
        return RawDeltaTable(self.engine.table_uri, storage_options=self.storage_options).version()

    @property
    def schema(self) -> Schema:
        """The schema."""
        return Schema.of(self.struct)

    def metadata(self) -> Any:
        """The metadata, by the names of ``deltalake.Metadata``."""
        return self.engine.metadata()

    def protocol_versions(self) -> tuple[int, int, list[str] | None, list[str] | None]:
        """The versions of the protocol, and the features of writers and readers."""
        found = self.engine.protocol()
        writer, reader = found.writer_features, found.reader_features
        return (
            found.min_reader_version,
            found.min_writer_version,
            None if writer is None else list(writer),
            None if reader is None else list(reader),
        )

    def table_config(self) -> tuple[bool, int, bool]:
        """The options with which deltalake opens a table."""
        return False, 32, False

    def history(self, limit: int | None) -> tuple[int, list[str]]:
        """The version of the handle, and the commits as JSON, newest first."""
        return self.version(), [json.dumps(in_their_form(commit), default=str) for commit in self.engine.history(limit)]

    def transaction_version(self, app_id: str) -> int | None:
        """The last version that an application recorded."""
        return self.engine.transaction_version(app_id)

    # --- versions ---

    def load_version(self, version: int) -> None:
        """Move the handle to a version."""
        with statement():
            self.engine.load_as_version(version)

    def load_with_datetime(self, ds: str) -> None:
        """Move the handle to the version at a time."""
        self.engine.load_as_version(self.moment(ds))

    def moment(self, version: int | str | datetime) -> int:
        """The number of a version, by number or time. A time before the oldest one means the oldest one."""
        if isinstance(version, int):
            return version
        moment = milliseconds(version)
        try:
            return version_at(self.engine.store, moment)
        except VersionNotFoundError:
            return version_since(self.engine.store, moment)

    def update_incremental(self) -> None:
        """Move the handle to the newest version."""
        self.engine.update_incremental()

    # --- files ---

    def file_uris(self, file_pruning_predicate: Any = None) -> list[str]:
        """The URIs of the files that can hold rows for which a predicate is true."""
        return self.engine.file_uris(self.pruning(file_pruning_predicate))

    files = file_uris

    def get_add_file_sizes(self) -> dict[str, int]:
        """The sizes of the live files in bytes, by their paths as :meth:`file_uris` ends."""
        sizes = self.engine.get_add_actions().column("size_bytes").to_pylist()
        return dict(zip(self._paths(None), sizes, strict=True))

    def get_add_actions(self, flatten: bool) -> Any:
        """The live files with statistics; ``modification_time`` is a number of milliseconds."""
        table = self.engine.get_add_actions(flatten)
        index = table.schema.get_field_index("modification_time")
        times = table.column(index).cast(pa.int64())
        return given("Table", table.set_column(index, "modification_time", times))

    def partitions(self, predicate: Any = None) -> list[dict[str, str]]:
        """The partitions, with values as the log writes them."""
        scan = self.engine.scan(predicate=self.pruning(predicate))
        found = {tuple(pairs): None for pairs in scan.files.column("partitionValues").to_pylist() if pairs}
        physical = "delta.columnMapping.physicalName"
        names = {str(item.metadata.get(physical, item.name)): item.name for item in self.struct.fields}
        return [{names[name]: value for name, value in pairs} for pairs in found]

    def get_active_partitions(self, file_pruning_predicate: Any = None) -> frozenset[frozenset[tuple[str, str]]]:
        """The partitions as sets of columns with values."""
        return frozenset(frozenset(found.items()) for found in self.partitions(file_pruning_predicate))

    def dataset_partitions(self, schema: Any, file_pruning_predicate: Any = None) -> list[tuple[str, Any]]:
        """The paths of files, and the conditions of pyarrow that all their rows meet."""
        dataset = self.engine.to_pyarrow_dataset(
            schema=pa.schema(schema), file_pruning_predicate=self.pruning(file_pruning_predicate)
        )
        return [(one.path, one.partition_expression) for one in dataset.get_fragments()]

    def deletion_vectors(self) -> Any:
        """Stream the deletion vectors: the URI of a file, and a list with false for each deleted row.

        The path of a local file is as in :meth:`file_uris`, by which Polars looks for it.
        """
        reader = self.engine.deletion_vectors()
        named = (batch.set_column(0, "filepath", named_as_listed(batch.column(0))) for batch in reader)
        return given("RecordBatchReader", pa.RecordBatchReader.from_batches(reader.schema, named))

    # --- rows ---

    def scan(self, columns: list[str] | None = None, predicate: str | None = None) -> Any:
        """Stream rows."""
        return stream(self.engine.to_record_batch_reader(columns, to_spark(predicate, self.struct)))

    def load_cdf(
        self,
        columns: list[str] | None = None,
        predicate: str | None = None,
        starting_version: int = 0,
        ending_version: int | None = None,
        starting_timestamp: str | None = None,
        ending_timestamp: str | None = None,
        allow_out_of_range: bool = False,
    ) -> Any:
        """Stream the change data feed; ``_commit_version`` is unsigned, and ``_commit_timestamp`` without a zone."""
        first = None if starting_timestamp is not None and starting_version == 0 else starting_version
        with statement():
            reader = self.engine.load_cdf(
                first,
                ending_version,
                starting_timestamp,
                ending_timestamp,
                columns,
                to_spark(predicate, self.struct),
                allow_out_of_range,
            )
        return stream(reader, {"_commit_version": pa.uint64(), "_commit_timestamp": pa.timestamp("ms")})

    # --- commits ---

    def create_write_transaction(
        self,
        actions: list[Any],
        mode: str,
        partition_by: list[str] | None,  # noqa: ARG002
        schema: Any,
        partitions_filters: Any = None,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Commit data files that are in the table's folder. As in deltalake, an overwrite replaces the schema, too, all
        other modes append, and ``partition_by`` is not compared with the table.
        """
        options = options_of("create_write_transaction", (), commit_properties, post_commithook_properties)
        for action in actions:
            if not isinstance(action, (AddAction, RemoveAction)):
                raise TypeError(f"an action must be an AddAction or a RemoveAction, not a {type(action).__name__}")
        files = schema.engine if isinstance(schema, Schema) else schema
        self.update_incremental()
        how: ReplaceMode = "overwrite" if mode == "overwrite" else "append"
        evolution: SchemaMode | None = None
        if how == "overwrite" and not self._has_columns_of(struct_of(files)):
            evolution = "merge" if partitions_filters else "overwrite"
        if how == "overwrite" and partitions_filters:
            # The other files stay.
            again = {action.path for action in actions}
            replaced = [path for path in self._paths(partitions_filters) if path not in again]
            actions, how = [*actions, *(RemoveAction(path, True, 0) for path in replaced)], "append"
        with statement():
            self.engine.create_write_transaction(actions, how, files, schema_mode=evolution, **options)

    def _has_columns_of(self, files: StructType) -> bool:
        """True if files have the columns of the table, in any order; partition columns may be missing."""
        left_out = {*self.engine.metadata().partition_columns} - {*files.names}
        own, given = from_arrow(to_arrow(self.struct)), from_arrow(to_arrow(files))
        return {item.name: item for item in own if item.name not in left_out} == {item.name: item for item in given}

    def _paths(self, predicate: Any) -> list[str]:
        root = self.table_uri().removeprefix("file://")
        return [uri.removeprefix(root) for uri in self.file_uris(predicate)]

    def create_checkpoint(self) -> None:
        """Write a checkpoint of this version."""
        self.engine.create_checkpoint()

    def compact_logs(self, starting_version: int, ending_version: int) -> None:
        """Write a log compaction file."""
        self.update_incremental()
        self.engine.compact_logs(starting_version, ending_version)

    def cleanup_metadata(self) -> None:
        """Remove log files that are older than the retention."""
        self.update_incremental()
        self.engine.cleanup_metadata()

    def generate(self) -> None:
        """Write lists of files for engines that read no Delta log."""
        self.engine.generate()
