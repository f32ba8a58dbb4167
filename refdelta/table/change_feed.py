"""The change data feed: which rows a version inserted, deleted and updated (PROTOCOL.md, "Change Data Files",
"Add CDC File").

A version that has change files says so in them, and in nothing else. Of any other version the files that it added were
inserted, and those that it removed were deleted, of a file that came back with another deletion vector the rows that
one vector hides and the other does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from refdelta.core.log.actions import Add, AnyAction, Cdc, CommitInfo, DeletionVectorDescriptor, Metadata, Remove
from refdelta.core.log.paths import same_path
from refdelta.errors import InvalidArgumentError, InvalidLogError, SchemaMismatchError
from refdelta.table.column_mapping import mode_of
from refdelta.table.properties import LastCall, records_changes
from refdelta.table.types import (
    LONG,
    STRING,
    TIMESTAMP,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    parse_schema,
    physical_name,
)

INSERT: Final = "insert"
DELETE: Final = "delete"
BEFORE_UPDATE: Final = "update_preimage"
AFTER_UPDATE: Final = "update_postimage"

CHANGE_TYPE: Final = StructField("_change_type", STRING)
COMMIT_VERSION: Final = StructField("_commit_version", LONG)
COMMIT_TIMESTAMP: Final = StructField("_commit_timestamp", TIMESTAMP)
FEED_COLUMNS: Final = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
"""The columns of the feed after the columns of the table."""

FOLDER: Final = "_change_data/"
"""The folder of change files."""


@dataclass(frozen=True)
class FileChange:
    """Rows of one file that a version changed.

    Attributes:
        path: the file, as the log writes it.
        partition_values: as in the log.
        size: in bytes.
        kind: ``insert`` or ``delete`` for all of the rows; None for a change file, which says it of each.
        deletion_vector: the rows that are left out.
        only: a vector of the rows that are wanted; None for all of the others.
    """

    path: str
    partition_values: Mapping[str, str | None]
    size: int
    kind: str | None
    deletion_vector: DeletionVectorDescriptor | None = None
    only: DeletionVectorDescriptor | None = None


@LastCall
def is_fed(metadata: Metadata) -> bool:
    """Whether a table records what changes."""
    return records_changes(metadata.configuration or {})


def check_recorded(metadata: Metadata, version: int) -> None:
    """Raises ``InvalidArgumentError`` where a version does not record what changes."""
    if not is_fed(metadata):
        raise InvalidArgumentError(
            f"what changed in version {version} was not recorded: delta.enableChangeDataFeed is not true there"
        )


def check_columns(schema: StructType) -> None:
    """Raises ``InvalidArgumentError`` for a table with a column that has a name of the feed's own."""
    for field in FEED_COLUMNS:
        if field.name in schema:
            raise InvalidArgumentError(
                f"the table has a column {field.name}, which is the name of one of the change data feed's own: "
                "rename it, or do without delta.enableChangeDataFeed"
            )


# --- which rows a version changed --------------------------------------------------------------------------------


def changes_of(actions: Sequence[AnyAction], version: int) -> list[FileChange]:
    """The rows that a version changed.

    Args:
        actions: its commit's.
        version: its number, for errors.

    Returns:
        Where there are change files, these; else what was deleted, then what was inserted.

    Raises:
        InvalidLogError: a remove that does not say what is needed to read its rows.
    """
    recorded = [
        FileChange(action.path, action.partition_values, action.size, None)
        for action in actions
        if isinstance(action, Cdc)
    ]
    if recorded:
        return recorded
    if _changed_nothing(actions):
        return []
    adds = {same_path(a.path): a for a in actions if isinstance(a, Add) and a.data_change}
    # One that does not say counts as one that changes data, as in delta-spark.
    removes = {same_path(a.path): a for a in actions if isinstance(a, Remove) and a.data_change is not False}
    deleted = [change for path, remove in removes.items() for change in _deleted(remove, adds.get(path), version)]
    return deleted + [change for path, add in adds.items() for change in _inserted(add, removes.get(path))]


def inserted(adds: Iterable[Add]) -> list[FileChange]:
    """All rows of files, as if a version had inserted them."""
    return [change for add in adds for change in _inserted(add, None)]


def _inserted(add: Add, remove: Remove | None) -> list[FileChange]:
    if remove is None:
        only = None
    elif remove.deletion_vector is None:
        return []  # none was hidden that could have come back
    else:
        only = remove.deletion_vector
    return [FileChange(add.path, add.partition_values, add.size, INSERT, add.deletion_vector, only)]


def _deleted(remove: Remove, add: Add | None, version: int) -> list[FileChange]:
    if add is not None and add.deletion_vector is None:
        return []
    size, values = (remove.size, remove.partition_values) if add is None else (add.size, add.partition_values)
    if size is None or values is None:
        raise InvalidLogError(
            f"version {version} removes {remove.path} without extended file metadata (partition values and size), so "
            "the rows that it deleted are unknown"
        )
    only = None if add is None else add.deletion_vector
    return [FileChange(remove.path, values, size, DELETE, remove.deletion_vector, only)]


_ROWS_OF_MERGE = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


def _changed_nothing(actions: Iterable[AnyAction]) -> bool:
    """Whether this is a MERGE that wrote files anew and changed no row of them, as old versions of delta-spark do."""
    info = next((action.fields for action in actions if isinstance(action, CommitInfo)), {})
    metrics: Any = info.get("operationMetrics")
    return isinstance(metrics, dict) and is_merge_without_changes(info.get("operation"), metrics)


def is_merge_without_changes(operation: object, metrics: Mapping[str, object]) -> bool:
    """Whether readers of the feed, here and in delta-spark, pass over the files of a commit without change files: a
    MERGE that inserted, updated and deleted no row.

    Args:
        operation: ``commitInfo.operation``.
        metrics: ``commitInfo.operationMetrics``, whose numbers may be strings.
    """
    return operation == "MERGE" and all(str(metrics.get(name)) == "0" for name in _ROWS_OF_MERGE)


# --- whether they can be read as the table is now ----------------------------------------------------------------


def check_compatible(then: Metadata, now: Metadata, version: int) -> None:
    """See that rows of a version can be read with a later schema: that only columns came since.

    Args:
        then: of the version.
        now: with which the rows are read.
        version: the version.

    Raises:
        SchemaMismatchError: columns were renamed, dropped, made not null or of another type, or other ones partition
            the table.
    """
    old, new = parse_schema(then.schema_string), parse_schema(now.schema_string)
    problem = _struct_problem(old, new, "")
    if problem is None and not _is_mapped(now) and _is_mapped(then):
        problem = "column mapping was given up"
    if problem is None and _partitioning(then) != _partitioning(now):
        problem = f"it was partitioned by ({', '.join(then.partition_columns)})"
    if problem is not None:
        raise SchemaMismatchError(
            f"the changes of version {version} cannot be read with the schema of the version that is read: {problem}. "
            "Read the versions before and after such a change separately, the former with a table that is loaded at "
            "their last version"
        )


def _is_mapped(metadata: Metadata) -> bool:
    return mode_of(metadata) != "none"


def _partitioning(metadata: Metadata) -> list[str]:
    schema = parse_schema(metadata.schema_string)
    found = [schema.find(name) for name in metadata.partition_columns]
    return [physical_name(field) for field in found if field is not None]


def _struct_problem(old: StructType, new: StructType, path: str) -> str | None:
    by_name = {physical_name(field): field for field in new}
    for field in old:
        here = f"{path}{field.name}"
        after = by_name.get(physical_name(field))
        if after is None:
            return f"column {here} is not there any more"
        if after.name != field.name:
            return f"column {here} is called {after.name}"
        if field.nullable and not after.nullable:
            return f"column {here} has no nulls any more"
        problem = _type_problem(field.type, after.type, here)
        if problem is not None:
            return problem
    return None


def _type_problem(old: DataType, new: DataType, path: str) -> str | None:
    if isinstance(old, StructType) and isinstance(new, StructType):
        return _struct_problem(old, new, f"{path}.")
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return _type_problem(old.element, new.element, f"{path}.element")
    if isinstance(old, MapType) and isinstance(new, MapType):
        key = _type_problem(old.key, new.key, f"{path}.key")
        return key if key is not None else _type_problem(old.value, new.value, f"{path}.value")
    return None if old == new else f"column {path} was of type {old}"
