"""Requirements of tables that can be read as Iceberg tables (PROTOCOL.md, "Iceberg Compatibility V1", "... V2").

They apply to data files, too: these have the partition columns (:mod:`refdelta.engine.parquet.layout`), ids for the
elements of arrays and maps (:mod:`refdelta.table.column_mapping`), their number of rows, and times as INT64.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from refdelta.core.log.actions import Metadata
from refdelta.errors import InvalidArgumentError
from refdelta.table.column_mapping import MODE
from refdelta.table.evolution import type_changes, widens_in_iceberg
from refdelta.table.properties import get
from refdelta.table.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructType,
    parse_schema,
    physical_name,
)

PROPERTIES: Final[Mapping[int, str]] = {1: "delta.enableIcebergCompatV1", 2: "delta.enableIcebergCompatV2"}
_VECTORS = "delta.enableDeletionVectors"
_ALLOWED_IN_2 = frozenset(
    (BYTE, SHORT, INTEGER, LONG, FLOAT, DOUBLE, STRING, BINARY, BOOLEAN, TIMESTAMP, TIMESTAMP_NTZ, DATE)
)


def version_of(configuration: Mapping[str, str] | None) -> int:
    """Which compatibility a table with these properties has: 1, 2, or 0 for none.

    Raises:
        InvalidArgumentError: both, which exclude each other.
    """
    active = [version for version, name in PROPERTIES.items() if get(configuration or {}, name)]
    if len(active) > 1:
        raise InvalidArgumentError(f"{' and '.join(PROPERTIES.values())} exclude each other")
    return active[0] if active else 0


def with_mapping(metadata: Metadata) -> Metadata:
    """The metadata of a new table, mapped by name where its compatibility needs that and nothing else is said."""
    configuration = metadata.configuration or {}
    if not version_of(configuration) or MODE.lower() in {key.lower() for key in configuration}:
        return metadata
    return msgspec.structs.replace(metadata, configuration={**configuration, MODE: "name"})


def check_compatible(
    features: Collection[str],
    metadata: Metadata,
    before: Metadata | None = None,
    *,
    keeps_files: bool = True,
) -> None:
    """Check a new version of a table against the Iceberg compatibility that it has enabled.

    Args:
        features: the features of the new protocol.
        metadata: the new metadata.
        before: the old metadata; None for a table to be created.
        keeps_files: whether the new version keeps existing files.

    Raises:
        InvalidArgumentError: it could not be read as an Iceberg table; with the reason.
    """
    version = version_of(metadata.configuration)
    problem = next(_problems(version, features, metadata, before, bound=keeps_files), None)
    if version and problem:
        raise InvalidArgumentError(f"a table with {PROPERTIES[version]} {problem}")


def _problems(
    version: int, features: Collection[str], metadata: Metadata, before: Metadata | None, *, bound: bool
) -> Iterator[str]:
    configuration = metadata.configuration or {}
    if get(configuration, MODE) == "none":
        yield f"has mapped columns: set {MODE}=name"
    if get(configuration, _VECTORS):
        yield f"writes no deletion vectors: set {_VECTORS}=false"
    if version == 1 and "deletionVectors" in features:
        yield "does not support the feature deletionVectors, and this one does"
    schema = parse_schema(metadata.schema_string)
    odd = next(_odd_types(version, schema), None)
    if odd is not None:
        yield f"has no column of type {odd}"
    for item, old, new in type_changes(schema):
        if not widens_in_iceberg(old, new):
            yield f"changes no type from {old} to {new}, as column {item.name!r} did: Iceberg does not know that"
    if before is None:
        return
    if before.partition_columns and before.partition_columns != metadata.partition_columns:
        old = parse_schema(before.schema_string)
        # A column that is renamed is the same one; in another type it may have a new physical name.
        was_held = [physical_name(old.field(name)) for name in before.partition_columns]
        if was_held != [physical_name(schema.field(name)) for name in metadata.partition_columns]:
            yield f"keeps its partition columns: {', '.join(before.partition_columns)}"
    was = version_of(before.configuration)
    if bound and version == 2 and was != 2:
        yield "has files that all were written for it: reorg_upgrade_uniform(2) rewrites them"
    if bound and version == 1 and was == 0 and before.partition_columns:
        yield "has the partition columns in all of its files, and those of this one do not"


def _odd_types(version: int, data_type: DataType) -> Iterator[DataType]:
    """The types within a type that a compatibility does not allow."""
    match data_type:
        case StructType():
            for item in data_type:
                yield from _odd_types(version, item.type)
        case ArrayType() | MapType() if version == 1:
            yield data_type
        case ArrayType():
            yield from _odd_types(version, data_type.element)
        case MapType():
            yield from _odd_types(version, data_type.key)
            yield from _odd_types(version, data_type.value)
        case DecimalType():
            pass
        case _ if data_type == VOID or (version == 2 and data_type not in _ALLOWED_IN_2):
            yield data_type
