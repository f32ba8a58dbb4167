"""Row tracking: stable ids of rows (PROTOCOL.md, "Row Tracking").

The rows of a file have default ids, counted from the ``baseRowId`` of its add action, and the default commit version of
the add. A copied or updated row keeps its values in two columns of its file, which are not in the schema. A table that
*supports* row tracking assigns ids to all files; one that has it *enabled* also keeps the ids of rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import msgspec

from refdelta.core.log.actions import Metadata, Protocol
from refdelta.errors import InvalidArgumentError, InvalidLogError
from refdelta.table.features import features_of
from refdelta.table.properties import get
from refdelta.table.types import LONG, PHYSICAL_NAME, StructField, StructType

FEATURE: Final = "rowTracking"
ENABLED: Final = "delta.enableRowTracking"
SUSPENDED: Final = "delta.rowTrackingSuspended"
ID_COLUMN: Final = "delta.rowTracking.materializedRowIdColumnName"
VERSION_COLUMN: Final = "delta.rowTracking.materializedRowCommitVersionColumnName"
PRESERVED: Final = "delta.rowTracking.preserved"
"""The tag of a commit that kept the ids of all rows that it moved or changed."""

ROW_ID: Final = "row_id\n"
ROW_COMMIT_VERSION: Final = "row_commit_version\n"
"""The columns of a row's id and commit version; the line break keeps any column of a table from having the name."""

ASKED: Final = {"_metadata.row_id": ROW_ID, "_metadata.row_commit_version": ROW_COMMIT_VERSION}
"""The names of these columns for users, as in Spark."""

_KIND: Final = "refdelta.rowTracking"
_PREFIXES: Final = {ID_COLUMN: "_row-id-col-", VERSION_COLUMN: "_row-commit-version-col-"}
MATERIALIZED: Final = tuple(_PREFIXES.values())
"""The prefixes of the physical names of the columns with ids and versions of moved rows, as in delta-spark."""


# --- what a table has ---------------------------------------------------------------------------------------------


def is_assigned(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether each file that is committed gets row ids: the table supports row tracking, and it is not suspended."""
    return FEATURE in features_of(protocol) and not get(metadata.configuration or {}, SUSPENDED)


def is_enabled(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether the rows of the table keep their ids."""
    return is_assigned(protocol, metadata) and bool(get(metadata.configuration or {}, ENABLED))


def hidden_columns(configuration: Mapping[str, str]) -> tuple[StructField, ...]:
    """The columns of data files with the ids and versions of moved rows, as fields after those of the schema.

    Args:
        configuration: of a table that has row tracking enabled.

    Raises:
        InvalidLogError: it does not name them.
    """
    missing = [name for name in _PREFIXES if not configuration.get(name)]
    if missing:
        raise InvalidLogError(f"row tracking is enabled, but the table has no property {missing[0]}")
    return tuple(
        StructField(name, LONG, True, {PHYSICAL_NAME: configuration[key], _KIND: name})
        for name, key in ((ROW_ID, ID_COLUMN), (ROW_COMMIT_VERSION, VERSION_COLUMN))
    )


def asked_columns(configuration: Mapping[str, str]) -> tuple[StructField, ...]:
    """The same with the names for users. Raises as :func:`hidden_columns`."""
    hidden = {field.name: field for field in hidden_columns(configuration)}
    return tuple(replace(hidden[inner], name=name) for name, inner in ASKED.items())


def kind_of(field: StructField) -> str | None:
    """``ROW_ID`` or ``ROW_COMMIT_VERSION`` of a field of :func:`hidden_columns`, however it is called; else None."""
    found: str | None = field.metadata.get(_KIND)
    return found


def without_hidden(schema: StructType) -> StructType:
    """The schema without :func:`hidden_columns`."""
    return StructType(tuple(field for field in schema if kind_of(field) is None))


def named_columns(metadata: Metadata, before: Mapping[str, str] | None = None) -> Metadata:
    """Metadata that enables row tracking, with names for the two columns; other metadata unchanged.

    Args:
        metadata: the new metadata.
        before: the old properties, whose names are kept, since existing files have columns of these names.

    Raises:
        InvalidArgumentError: row tracking would be enabled and suspended at once; a column has one of the names.
    """
    configuration = dict(metadata.configuration or {})
    if not get(configuration, ENABLED):
        return metadata
    if get(configuration, SUSPENDED):
        raise InvalidArgumentError(f"a table cannot have both {ENABLED} and {SUSPENDED}: rows need ids to keep")
    for key, prefix in _PREFIXES.items():
        name = (before or {}).get(key) or configuration.get(key) or prefix + str(uuid.uuid4())
        if f'"{name}"' in metadata.schema_string:
            raise InvalidArgumentError(f"the column name {name!r} is that of the column in which rows keep their ids")
        configuration[key] = name
    return msgspec.structs.replace(metadata, configuration=configuration)


def enables(properties: object) -> bool:
    """Whether these properties, as a user gives them, enable row tracking."""
    given = properties if isinstance(properties, Mapping) else {}
    return any(str(name).lower() == ENABLED.lower() and str(value).lower() == "true" for name, value in given.items())
