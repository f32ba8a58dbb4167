"""ALTER TABLE: what a table and its columns are called and said to be. It means nothing to any engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from refdelta import arguments
from refdelta.core.table.schema_edit import edited, find_path, with_field
from refdelta.core.table.types import StructField, StructType
from refdelta.errors import InvalidArgumentError
from refdelta.operations.alter.change import change_schema, change_table, in_json
from refdelta.operations.alter.names import dotted, split_path

if TYPE_CHECKING:
    from refdelta.core.table.types import DataType
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction

# Metadata of fields that has a meaning, and statements of its own: mapping, generated columns, defaults, and so on.
_MEANING = ("delta.", "parquet.", "current_default", "exists_default", "__char_varchar")


def set_table_name(txn: Transaction, snapshot: Snapshot, name: str | None) -> None:
    """Stage that the table has this name, or with None no name."""
    txn.describe("UPDATE TABLE METADATA", {"name": arguments.text("name", name) or ""}, {})
    change_table(txn, snapshot, msgspec.structs.replace(snapshot.metadata, name=name))


def set_table_description(txn: Transaction, snapshot: Snapshot, description: str | None) -> None:
    """Stage that the table has this description, or with None none."""
    txn.describe("UPDATE TABLE METADATA", {"description": arguments.text("description", description) or ""}, {})
    change_table(txn, snapshot, msgspec.structs.replace(snapshot.metadata, description=description))


def set_column_metadata(txn: Transaction, snapshot: Snapshot, column: str, metadata: Mapping[str, Any]) -> None:
    """Stage what stands beside a column in the schema; what is there under other keys stays.

    Args:
        txn: the transaction.
        snapshot: what it sees.
        column: its name, or a path to a field of a struct; ``element``, ``key`` and ``value`` lead into arrays and
            maps.
        metadata: keys and values; None takes a key away. Spark shows ``comment``.

    Raises:
        ColumnNotFoundError: there is no such column.
        InvalidArgumentError: a key that has a meaning of its own, or a value that is no plain one.
    """
    given = arguments.mapping("metadata", metadata)
    if not given:
        raise InvalidArgumentError("there is no metadata to set: metadata is empty")
    for key, value in given.items():
        if not isinstance(key, str) or key.lower().startswith(_MEANING):
            raise InvalidArgumentError(f"the metadata {key!r} of a column is not for users to set: it means something")
        if value is not None and not isinstance(value, (str, int, float, bool)):
            raise InvalidArgumentError(f"the metadata {key!r} of a column is a text, a number or a truth value")
    path, _ = find_path(snapshot.schema, split_path(column))

    def described(holder: DataType, name: str) -> DataType:
        if not isinstance(holder, StructType):
            raise InvalidArgumentError(f"{column!r} is part of an array or a map, and no field: it has no metadata")
        return with_field(holder, name, changed)

    def changed(item: StructField) -> StructField:
        after = {**item.metadata, **given}
        return replace(item, metadata={key: value for key, value in after.items() if value is not None})

    schema = edited(snapshot.schema, path, described)
    txn.describe("UPDATE FIELD METADATA", {"column": dotted(path), "metadata": in_json(dict(given))}, {})
    if schema != snapshot.schema:
        change_schema(txn, snapshot, schema)
