"""The request of a write, and its description in the history: the operation ``WRITE`` for all kinds of INSERT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from refdelta import arguments
from refdelta.engine.arrow.field_metadata import declared_schema
from refdelta.engine.arrow.schema import from_arrow
from refdelta.errors import InvalidArgumentError, TableAlreadyExistsError, suggestion
from refdelta.operations.write.target import Target, existing_table, new_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from refdelta.core.table.types import StructType
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.dml.rewrite_result import RewriteResult
    from refdelta.operations.write.append import WrittenFiles
    from refdelta.transaction.transaction import Transaction

MODES = {"error": "ErrorIfExists", "ignore": "Ignore", "append": "Append", "overwrite": "Overwrite"}
"""The names of the modes in Spark's history."""


class WriteRequest(msgspec.Struct, frozen=True):
    """The arguments of a write, without those of its commit; see :func:`refdelta.write_deltalake`."""

    mode: str = "error"
    partition_by: Sequence[str] | str | None = None
    cluster_by: Sequence[str] | str | None = None
    schema_mode: str | None = None
    predicate: str | None = None
    configuration: Mapping[str, str | None] | None = None
    name: str | None = None
    description: str | None = None
    target_file_size: int | None = None
    partition_overwrite: str | None = None
    timezone: str | None = None

    def __post_init__(self) -> None:
        _one_of("mode", self.mode, tuple(MODES))
        _one_of("schema_mode", self.schema_mode, (None, "merge", "overwrite"))
        _one_of("partition_overwrite", self.partition_overwrite, (None, "dynamic"))
        arguments.text("predicate", self.predicate)
        arguments.timezone("timezone", self.timezone)
        if (size := arguments.whole("target_file_size", self.target_file_size)) is not None and size <= 0:
            raise InvalidArgumentError(f"target_file_size is a positive number of bytes, not {self.target_file_size}")
        overwrites = self.mode == "overwrite"
        for given, what in (
            (self.predicate is not None, "predicate"),
            (self.partition_overwrite is not None, "partition_overwrite"),
            (self.schema_mode == "overwrite", 'schema_mode="overwrite"'),
        ):
            if given and not overwrites:
                raise InvalidArgumentError(f'{what} goes with mode="overwrite", not with mode="{self.mode}"')
        if self.predicate is not None and self.partition_overwrite is not None:
            raise InvalidArgumentError(
                "predicate and partition_overwrite exclude each other: both choose the rows that are replaced"
            )
        if self.schema_mode == "overwrite" and (self.predicate is not None or self.partition_overwrite is not None):
            raise InvalidArgumentError(
                'schema_mode="overwrite" replaces the whole table: leave out predicate and partition_overwrite'
            )

    def goes_ahead(self, snapshot: Snapshot | None) -> bool:
        """True if there is something to write; False if the table exists and the mode is ``ignore``.

        Raises:
            TableAlreadyExistsError: the table exists and the mode is ``error``.
        """
        if snapshot is not None and self.mode == "error":
            raise TableAlreadyExistsError(
                f'there is a table at {snapshot.store.uri}; mode="append" or mode="overwrite" writes to it'
            )
        return snapshot is None or self.mode != "ignore"

    def kept_schema(self, snapshot: Snapshot | None) -> StructType | None:
        """The schema of the columns that the table keeps; None if the rows decide its schema."""
        return None if snapshot is None or self.schema_mode == "overwrite" else snapshot.schema

    def target(self, snapshot: Snapshot | None, schema: pa.Schema) -> Target:
        """The table after the write of data with this schema.

        Raises:
            As :func:`~refdelta.operations.write.target.new_table` and
            :func:`~refdelta.operations.write.target.existing_table`.
        """
        # Else the schema and its declarations are the table's own.
        data = declared_schema(schema) if snapshot is None or self.schema_mode else from_arrow(schema)
        if snapshot is None:
            return new_table(
                data,
                partition_by=self.partition_by,
                cluster_by=self.cluster_by,
                configuration=self.configuration,
                name=self.name,
                description=self.description,
            )
        return existing_table(
            snapshot,
            data,
            schema_mode=self.schema_mode,
            partition_by=self.partition_by,
            cluster_by=self.cluster_by,
            configuration=self.configuration,
        )


def describe_write(
    txn: Transaction,
    target: Target,
    written: WrittenFiles,
    rewritten: RewriteResult,
    *,
    mode: str,
    predicate: str | None = None,
    dynamic: bool = False,
    always: bool = False,
) -> None:
    """Describe a write for commitInfo and for its result.

    Args:
        txn: the transaction.
        target: the table after the write.
        written: the new rows.
        rewritten: the rows that they replace.
        mode: a key of :data:`MODES`.
        predicate: the predicate of replaceWhere.
        dynamic: whether the partitions of the data were replaced.
        always: commit even without rows, as deltalake does (spec_notes/divergences.md, "Statements").
    """
    parameters = {"mode": MODES[mode], "partitionBy": _json(list(target.partition_columns))}
    if predicate is not None:
        parameters["predicate"] = predicate
    if dynamic:
        parameters["isDynamicPartitionOverwrite"] = "true"
    noted = {
        "numFiles": len(written.adds),
        "numOutputRows": written.rows,
        "numOutputBytes": written.size,
    }
    if mode == "overwrite":
        noted["numRemovedFiles"] = len(rewritten.removed)
        noted["numRemovedBytes"] = rewritten.removed_bytes
    if predicate is not None:
        # As in Spark, the figures include both new rows and rows copied from rewritten files.
        noted["numFiles"] += len(rewritten.added)
        noted["numOutputRows"] += rewritten.copied_rows
        noted["numOutputBytes"] += rewritten.added_bytes
        noted["numCopiedRows"] = rewritten.copied_rows
        noted["numDeletedRows"] = rewritten.matched_rows
        noted["numAddedChangeFiles"] = txn.change_files
    metrics = {
        "num_added_files": len(written.adds) + len(rewritten.added),
        "num_removed_files": len(rewritten.removed),
        "num_partitions": len({_json(add.partition_values) for add in written.adds}) if target.partition_columns else 0,
        "num_added_rows": written.rows,
        "num_copied_rows": rewritten.copied_rows,
        **rewritten.vector_metrics(),
    }
    txn.describe("WRITE", parameters, noted, metrics, always=always)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _one_of(what: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        near = suggestion(value, filter(None, allowed))
        raise InvalidArgumentError(f"{what} is one of {', '.join(map(repr, allowed))}, not {value!r}{near}")
