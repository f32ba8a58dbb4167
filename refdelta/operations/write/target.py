"""The request of a write, and the table after it: schema, partitioning, metadata and protocol, decided before a file is
written.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import msgspec

from refdelta import arguments
from refdelta.arrow.field_metadata import declared_schema
from refdelta.arrow.schema import from_arrow
from refdelta.core.log.actions import AnyAction, Format, Metadata
from refdelta.engine.parquet.fit import plan_fit
from refdelta.errors import (
    ColumnNotFoundError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableAlreadyExistsError,
    suggestion,
)
from refdelta.operations.shared.change import noted_version
from refdelta.operations.shared.clustering import check_not_partitioned, chosen_columns, kept_columns
from refdelta.operations.shared.property_rules import check_properties
from refdelta.operations.shared.row_rules import NO_RULES, RowRules
from refdelta.operations.write.column_declarations import (
    check_added,
    check_declared,
    check_expressions,
    of_another_table,
)
from refdelta.table.clustering import FEATURE, clustering_domain
from refdelta.table.column_mapping import completed, mode_of, schema_of
from refdelta.table.column_names import dotted, named_path
from refdelta.table.evolution import Changes, merge_schemas
from refdelta.table.features import (
    MAX_READER,
    MAX_WRITER,
    ActivationFacts,
    active,
    check_writable,
    features_of,
)
from refdelta.table.field_names import check_field_names
from refdelta.table.iceberg_compat import check_compatible, version_of, with_mapping
from refdelta.table.properties import PROPERTIES, TableProperties, get, validate
from refdelta.table.protocol_choice import protocol_for_new_table, settled
from refdelta.table.row_tracking import ENABLED as _TRACKING
from refdelta.table.row_tracking import SUSPENDED, named_columns
from refdelta.table.types import (
    VARIANT,
    ArrayType,
    MapType,
    StructType,
    parse_schema,
    schema_json,
)
from refdelta.transaction.commit_info import now_ms

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.table.clustering import ColumnPath

_VECTORS = "delta.enableDeletionVectors"
_FEATURE = "delta.feature."
_WIDENING = ("typeWidening", "typeWidening-preview")


MODES = {"error": "ErrorIfExists", "ignore": "Ignore", "append": "Append", "overwrite": "Overwrite"}
"""The names of the modes in Spark's history."""


class Target(msgspec.Struct, frozen=True):
    """The table after a write.

    Attributes:
        schema: its schema.
        partition_columns: its partition columns, in order.
        properties: its properties.
        clustering_columns: its clustering columns, in order.
        changes: the protocol, metaData and domainMetadata actions of the change; empty if nothing changes.
        rules: the rules of its rows.
    """

    schema: StructType
    partition_columns: tuple[str, ...]
    properties: TableProperties
    clustering_columns: tuple[ColumnPath, ...] = ()
    changes: tuple[AnyAction, ...] = ()
    rules: RowRules = NO_RULES

    def check_fits(self, data: pa.Schema) -> None:
        """Refuse data that cannot be written, by its schema.

        Raises:
            SchemaMismatchError: the data does not fit the table.
            ConstraintViolationError: the data has an identity column whose values the table gives.
        """
        self.rules.check_given(data.names)
        plan_fit(data, self.schema, self.rules.left_out(data.names))


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
            As :func:`new_table` and :func:`existing_table`.
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


def new_table(
    schema: StructType,
    *,
    partition_by: Sequence[str] | str | None = None,
    cluster_by: Sequence[str] | str | None = None,
    configuration: Mapping[str, str | None] | None = None,
    name: str | None = None,
    description: str | None = None,
    replaced: Snapshot | None = None,
) -> Target:
    """A table that does not exist yet.

    A clustered table gets deletion vectors and row tracking, unless the configuration disables or excludes them. A
    table with Iceberg compatibility gets column mapping.

    Args:
        schema: its schema.
        partition_by: its partition columns, in order.
        cluster_by: its clustering columns, in order.
        configuration: its properties.
        name: its name.
        description: its description.
        replaced: the table that it replaces, in the same history: ids of that table's columns are not used again.

    Raises:
        InvalidArgumentError: a property does not exist; a column cannot be a partition or clustering column; there are
            both kinds of columns.
        SchemaMismatchError: Delta cannot store the name of a column, or there is no column.
    """
    arguments.text("name", name)
    arguments.text("description", description)
    given = {
        key: str(value)
        for key, value in (arguments.mapping("configuration", configuration) or {}).items()
        if value is not None
    }
    clustering = chosen_columns(schema, arguments.names("cluster_by", cluster_by) or ())
    properties = validate(given)
    if clustering:
        properties = _with_clustering_defaults(properties)
    if not schema.fields:
        raise SchemaMismatchError("a table needs at least one column")
    schema = of_another_table(schema)
    columns = _partition_columns(schema, arguments.names("partition_by", partition_by) or ())
    check_declared(schema, columns)
    features = (FEATURE,) if clustering else ()
    check_not_partitioned(features, columns)
    metadata = Metadata(
        id=str(uuid.uuid4()),
        name=name,
        description=description,
        format=Format(),
        schema_string=schema_json(schema),
        partition_columns=list(columns),
        configuration=properties,
        created_time=now_ms(),
    )
    check_properties(properties, metadata)
    metadata = with_mapping(metadata)
    check_field_names(schema, mapped=mode_of(metadata) != "none")
    given |= metadata.configuration or {}
    metadata = completed(metadata, None if replaced is None else replaced.metadata, replacing=True)
    metadata = named_columns(metadata, None if replaced is None else replaced.metadata.configuration)
    schema, properties = parse_schema(metadata.schema_string), metadata.configuration or {}
    protocol = protocol_for_new_table(schema, given, features)
    check_writable(protocol, metadata)
    supported = features_of(protocol)
    check_compatible(supported, metadata)
    domain = (clustering_domain(clustering, schema),) if clustering else ()
    rules = RowRules.of(schema, properties, protocol)
    check_expressions(schema)
    read = TableProperties.parse(properties, supported)
    return Target(schema, columns, read, clustering, (protocol, metadata, *domain), rules)


def _with_clustering_defaults(properties: dict[str, str]) -> dict[str, str]:
    """The properties of a new clustered table, with those that it has by default."""
    properties = dict(properties)
    if _VECTORS not in properties and not version_of(properties):
        # Conflicts are detected by row only with deletion vectors.
        properties[_VECTORS] = "true"
    if get(properties, _VECTORS) and _TRACKING not in properties and not get(properties, SUSPENDED):
        # Clustering permutes rows: concurrent changes of rows are located by row ids only.
        properties[_TRACKING] = "true"
    return properties


def existing_table(
    snapshot: Snapshot,
    data: StructType,
    *,
    schema_mode: str | None,
    partition_by: Sequence[str] | str | None,
    cluster_by: Sequence[str] | str | None = None,
    configuration: Mapping[str, str | None] | None = None,
) -> Target:
    """An existing table after a write.

    Args:
        snapshot: the table.
        data: the schema of the data; with ``schema_mode``, the metadata of its fields counts.
        schema_mode: None keeps the table's schema, ``merge`` adds columns, ``overwrite`` replaces the schema.
        partition_by: the partition columns; other ones than the table's need ``schema_mode="overwrite"``.
        cluster_by: the clustering columns, likewise.
        configuration: properties, which the table must have already.

    Raises:
        UnsupportedFeatureError: the table needs a feature that this engine cannot write.
        InvalidArgumentError: the table has other partition columns, clustering columns or properties; the metadata of a
            column declares what it cannot have.
        SchemaMismatchError: the schemas cannot be merged.
    """
    snapshot.check_writable()
    _same_configuration(snapshot, configuration)
    partition_by, cluster_by = arguments.names("partition_by", partition_by), arguments.names("cluster_by", cluster_by)
    current = snapshot.schema
    partitioning = tuple(snapshot.partition_columns)
    clustering = snapshot.clustering_columns
    declared: Collection[str] = ()
    schema = data if schema_mode == "overwrite" else _merged(snapshot, data) if schema_mode == "merge" else current
    if schema_mode == "overwrite":
        partitioning = _partition_columns(schema, partitioning if partition_by is None else partition_by)
        check_declared(schema, partitioning)
        declared = active(ActivationFacts.of(schema_json(schema), {}), features_of(snapshot.protocol))
        kept = list(map(dotted, clustering))
        clustering = kept_columns(schema, kept) if cluster_by is None else chosen_columns(schema, cluster_by)
    elif partition_by is not None and _lower(partition_by) != _lower(partitioning):
        raise InvalidArgumentError(
            f"the table is partitioned by {list(partitioning)}, not by {partition_by}; "
            'mode="overwrite" with schema_mode="overwrite" changes it'
        )
    elif cluster_by is not None and chosen_columns(schema, cluster_by) != clustering:
        raise InvalidArgumentError(
            f"the table is clustered by {list(map(dotted, clustering))}, not by {cluster_by}; "
            'mode="overwrite" with schema_mode="overwrite" changes it'
        )
    changes = with_schema(snapshot, schema, partitioning, clustering, declared)
    rules = RowRules.after(snapshot, changes)
    if schema_mode == "overwrite":
        check_expressions(schema)
    made = next((action for action in changes if isinstance(action, Metadata)), None)
    if made is None:
        return Target(snapshot.stored_schema, partitioning, snapshot.properties, clustering, changes, rules)
    return Target(
        schema_of(made),
        partitioning,
        TableProperties.parse(made.configuration, features_of(snapshot.protocol)),
        clustering,
        changes,
        rules,
    )


def with_schema(
    snapshot: Snapshot,
    schema: StructType,
    partition_columns: Sequence[str] | None = None,
    clustering: tuple[ColumnPath, ...] | None = None,
    features: Collection[str] = (),
) -> tuple[AnyAction, ...]:
    """The actions that change the schema of a table; empty if nothing changes.

    Args:
        snapshot: the table.
        schema: the new schema.
        partition_columns: the new partition columns; None for the table's.
        clustering: the new clustering columns; None for the table's.
        features: table features of the declarations in the schema; without them these have no meaning.

    Raises:
        UnsupportedFeatureError: the schema needs a feature that this engine cannot write.
        SchemaMismatchError: Delta cannot store the name of a column.
        InvalidArgumentError: the table would be clustered and partitioned.
    """
    partitioning = snapshot.partition_columns if partition_columns is None else list(partition_columns)
    same_clustering = clustering is None or clustering == snapshot.clustering_columns
    if schema == snapshot.schema and partitioning == snapshot.partition_columns and same_clustering:
        return ()
    check_field_names(schema, mapped=snapshot.column_mapping_mode != "none", before=snapshot.schema)
    metadata = msgspec.structs.replace(
        snapshot.metadata, schema_string=schema_json(schema), partition_columns=partitioning
    )
    metadata = named_columns(completed(metadata, snapshot.metadata), snapshot.metadata.configuration)
    schema = parse_schema(metadata.schema_string)
    asked = {*features, *((FEATURE,) if clustering else ())}
    protocol = settled(snapshot.protocol, metadata, asked, snapshot.metadata)
    check_not_partitioned(features_of(protocol), partitioning)
    changes: tuple[AnyAction, ...] = (metadata,) if protocol == snapshot.protocol else (protocol, metadata)
    return changes if clustering is None or same_clustering else (*changes, clustering_domain(clustering, schema))


def _merged(snapshot: Snapshot, data: StructType) -> StructType:
    check_added(snapshot.schema, data)
    features = features_of(snapshot.protocol)
    changes: Changes = "silent"
    if snapshot.properties.enable_type_widening and not features.isdisjoint(_WIDENING):
        changes = "recorded"
    return merge_schemas(snapshot.schema, data, changes=changes, version=noted_version(snapshot), casts=True)


def _same_configuration(snapshot: Snapshot, configuration: Mapping[str, str | None] | None) -> None:
    """Check that the table has these properties already, by their meaning: ``TRUE`` is ``true``, and its protocol has
    the features and versions that are asked for.
    """
    wanted = arguments.mapping("configuration", configuration)
    if not wanted:
        return
    current = {key.lower(): value for key, value in (snapshot.metadata.configuration or {}).items()}
    features = {name.lower() for name in features_of(snapshot.protocol)}
    versions = {
        "delta.minreaderversion": snapshot.protocol.min_reader_version,
        "delta.minwriterversion": snapshot.protocol.min_writer_version,
    }
    for key, value in wanted.items():
        if value is None:
            continue
        asked, name = str(value), key.lower()
        if name in versions:
            # The versions of table features imply nothing, so that a table which was created with them has lower ones.
            highest = MAX_READER if name == "delta.minreaderversion" else MAX_WRITER
            if asked.strip().isdecimal() and int(asked) in {*range(versions[name] + 1), highest}:
                continue
            has: object = versions[name]
        elif name.startswith(_FEATURE):
            if name.removeprefix(_FEATURE) in features:
                validate({key: asked})
                continue
            has = None
        else:
            has = current.get(name)
            if has is not None and (
                has == asked or (name in PROPERTIES and _meaning(key, str(has)) == _meaning(key, asked))
            ):
                continue
        raise InvalidArgumentError(
            f"configuration has {key}={value}, but the table has {has}; configuration is for a new "
            "table, alter.set_table_properties() changes an existing one"
        )


def _meaning(key: str, value: str) -> object:
    return get(validate({key: value}), key)


def _lower(columns: Iterable[str]) -> list[str]:
    return [name.lower() for name in columns]


def _partition_columns(schema: StructType, partition_by: Iterable[str]) -> tuple[str, ...]:
    columns: list[str] = []
    by_name = {f.name.lower(): f for f in schema.fields}
    for name in partition_by:
        path = named_path(name, schema)
        if len(path) > 1 and path[0] in schema:
            raise InvalidArgumentError(f"{name!r} cannot partition the table: only whole columns can, not their fields")
        field = by_name.get(path[0].lower()) if len(path) == 1 else None
        if field is None:
            raise ColumnNotFoundError(name, schema.names, where="the data, and cannot partition the table")
        if isinstance(field.type, (StructType, ArrayType, MapType)):
            raise InvalidArgumentError(f"column {field.name!r} cannot partition the table: it is nested")
        if field.type == VARIANT:
            raise InvalidArgumentError(f"column {field.name!r} cannot partition the table: variants cannot be compared")
        if field.name in columns:
            raise InvalidArgumentError(f"partition_by names column {field.name!r} twice")
        columns.append(field.name)
    if columns and len(columns) == len(schema.fields):
        raise InvalidArgumentError("partition_by names every column; at least one must be left for the data files")
    return tuple(columns)


def _one_of(what: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        near = suggestion(value, filter(None, allowed))
        raise InvalidArgumentError(f"{what} is one of {', '.join(map(repr, allowed))}, not {value!r}{near}")
