"""Table features, and the support of this engine for each (PROTOCOL.md, "Table Features").

A feature is one row of :data:`REGISTRY`. The protocol of a table has the features that it *supports*; its metadata
shows which of them are *active*. A writer must honour a feature as soon as it is supported, but most of them have no
effect until they are active; ``write`` has the difference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from refdelta.core.log.actions import Metadata, Protocol
from refdelta.errors import InvalidLogError, UnsupportedFeatureError
from refdelta.table.change_feed import check_columns, is_fed
from refdelta.table.properties import CONSTRAINT_PREFIX, LastCall, get, records_changes
from refdelta.table.types import is_written, parse_schema

GENERATION: Final = "delta.generationExpression"
"""The metadata of a generated column that hold its expression (PROTOCOL.md, "Generated Columns")."""


class ActivationFacts(msgspec.Struct, frozen=True):
    """The parts of a table's metadata that activate features.

    Attributes:
        configuration: its properties.
        keys: the keys of the metadata of all its fields, at any depth.
        types: the names of all primitive types in its schema, at any depth.
    """

    configuration: Mapping[str, str]
    keys: frozenset[str] = msgspec.field(default_factory=frozenset)
    types: frozenset[str] = msgspec.field(default_factory=frozenset)

    @classmethod
    def of(cls, schema_string: str, configuration: Mapping[str, str] | None) -> ActivationFacts:
        """Read them from the parts of a metaData action.

        Raises:
            InvalidLogError: the schema is not JSON.
        """
        keys: set[str] = set()
        types: set[str] = set()
        try:
            # Iteratively: a schema may be nested deeper than the stack.
            todo: list[Any] = [json.loads(schema_string)]
        except (ValueError, RecursionError) as error:
            raise InvalidLogError(f"the schema of the table is not valid JSON: {error}") from None
        while todo:
            part = todo.pop()
            if isinstance(part, dict):
                if isinstance(part.get("metadata"), dict):
                    keys.update(part["metadata"])
                todo.extend(part.get(name) for name in ("type", "elementType", "keyType", "valueType", "fields"))
            elif isinstance(part, list):
                todo.extend(part)
            elif isinstance(part, str):
                types.add(part)
        return cls(configuration or {}, frozenset(keys), frozenset(types))


Active = Callable[[ActivationFacts], bool]


def _on(name: str) -> Active:
    return lambda facts: get(facts.configuration, name) is True


def _field_key(*keys: str) -> Active:
    return lambda facts: not facts.keys.isdisjoint(keys)


def _type(*names: str) -> Active:
    # Parametrized types come with their parameters: geometry(OGC:CRS84).
    return lambda facts: any(kind.split("(")[0] in names for kind in facts.types)


def _never(_: ActivationFacts) -> bool:
    return False


def _constrained(facts: ActivationFacts) -> bool:
    return any(key.lower().startswith(CONSTRAINT_PREFIX) for key in facts.configuration)


class Feature(msgspec.Struct, frozen=True):
    """A table feature.

    Attributes:
        name: as PROTOCOL.md or its RFC writes it.
        kind: ``writer``: readers need not know it. ``reader_writer``: they must.
        legacy: the reader and writer versions that imply it; None for those that are only ever named.
        requires: features that must come with it.
        read: whether this engine reads tables with it.
        write: whether this engine writes tables with it: ``always``, only while it is ``inactive``, ``never``.
        active: whether a table's metadata uses it.
        preview: the name that it had before it was accepted. A table under that name is not given this one.
        drop: how it goes from a protocol again. ``plain``: from one version to the next. ``history``: readers need it
            for the versions before. ``never``: it cannot be dropped.
        hint: the reason for missing support, if the name is not enough.
    """

    name: str
    kind: Literal["writer", "reader_writer"]
    legacy: tuple[int, int] | None = None
    requires: tuple[str, ...] = ()
    read: bool = True
    write: Literal["always", "inactive", "never"] = "inactive"
    active: Active = _never
    preview: str = ""
    drop: Literal["never", "plain", "history"] = "never"
    hint: str = ""


def _writer(name: str, **rest: Any) -> Feature:
    return Feature(name, "writer", **rest)


def _both(name: str, **rest: Any) -> Feature:
    return Feature(name, "reader_writer", **rest)


def _unknown_here(name: str, kind: Literal["writer", "reader_writer"], **rest: Any) -> Feature:
    return Feature(name, kind, read=kind == "writer", write="never", **rest)


def _set(name: str) -> Active:
    return lambda facts: bool(get(facts.configuration, name))


_COLLATIONS = "strings are compared by their bytes here"
_CATALOG = "its commits go through a catalog, never straight to the store"
_REDIRECT = "the table is at another place, which only a catalog can check"

_ROWS: tuple[Feature, ...] = (
    # PROTOCOL.md: implied by old versions.
    _writer("appendOnly", legacy=(1, 2), write="always", active=_on("delta.appendOnly")),
    _writer("invariants", legacy=(1, 2), write="always", active=_field_key("delta.invariants")),
    _writer("checkConstraints", legacy=(1, 3), write="always", active=_constrained, drop="plain"),
    _writer("changeDataFeed", legacy=(1, 4), write="always", active=lambda facts: records_changes(facts.configuration)),
    _writer("generatedColumns", legacy=(1, 4), write="always", active=_field_key(GENERATION)),
    _both(
        "columnMapping",
        legacy=(2, 5),
        write="always",
        active=lambda facts: get(facts.configuration, "delta.columnMapping.mode") != "none",
        drop="history",
    ),
    _writer(
        "identityColumns",
        legacy=(1, 6),
        write="always",
        active=_field_key("delta.identity.start", "delta.identity.step"),
    ),
    # PROTOCOL.md: named.
    _writer("allowColumnDefaults", write="always", active=_field_key("CURRENT_DEFAULT")),
    _writer("domainMetadata", write="always", drop="plain"),
    _writer(
        "rowTracking",
        requires=("domainMetadata",),
        write="always",
        active=_on("delta.enableRowTracking"),
        drop="plain",
    ),
    _writer("icebergCompatV1", requires=("columnMapping",), write="always", active=_on("delta.enableIcebergCompatV1")),
    _writer("icebergCompatV2", requires=("columnMapping",), write="always", active=_on("delta.enableIcebergCompatV2")),
    _writer("clustering", requires=("domainMetadata",), write="always"),
    _writer("inCommitTimestamp", write="always", active=_on("delta.enableInCommitTimestamps"), drop="plain"),
    _both("deletionVectors", write="always", active=_on("delta.enableDeletionVectors"), drop="history"),
    _both("timestampNtz", write="always", active=_type("timestamp_ntz")),
    _both(
        "v2Checkpoint",
        write="always",
        active=lambda facts: get(facts.configuration, "delta.checkpointPolicy") == "v2",
        drop="history",
    ),
    _both("vacuumProtocolCheck", write="always", drop="history"),
    _both(
        "typeWidening",
        write="always",
        active=lambda facts: _on("delta.enableTypeWidening")(facts) or "delta.typeChanges" in facts.keys,
        preview="typeWidening-preview",
        drop="history",
    ),
    _both("catalogManaged", requires=("inCommitTimestamp",), write="always"),
    _both("variantType", write="always", active=_type("variant"), preview="variantType-preview"),
    _both(
        "variantShredding",
        requires=("variantType",),
        write="always",
        active=_on("delta.enableVariantShredding"),
        preview="variantShredding-preview",
    ),
    # Proposed (protocol_rfcs), or under a preview name.
    _both("typeWidening-preview", write="always", drop="history"),
    _writer(
        "checkpointProtection",
        write="always",
        active=lambda facts: get(facts.configuration, "delta.requireCheckpointProtectionBeforeVersion") > 0,
        drop="plain",
    ),
    _writer(
        "materializePartitionColumns",
        write="always",
        active=_on("delta.enableMaterializePartitionColumnsFeature"),
        drop="plain",
    ),
    _unknown_here(
        "icebergCompatV3",
        "writer",
        requires=("columnMapping", "rowTracking"),
        active=_on("delta.enableIcebergCompatV3"),
    ),
    _writer("icebergWriterCompatV1", requires=("icebergCompatV2",), active=_on("delta.enableIcebergWriterCompatV1")),
    _unknown_here("columnMappingUsageTracking", "writer"),
    _unknown_here("collations", "writer", hint=_COLLATIONS),
    _unknown_here("concurrentIdentityColumns", "writer"),
    _unknown_here(
        "redirectWriterOnly-preview", "writer", active=_set("delta.redirectWriterOnly-preview"), hint=_REDIRECT
    ),
    _unknown_here(
        "redirectReaderWriter-preview",
        "reader_writer",
        active=_set("delta.redirectReaderWriter-preview"),
        hint=_REDIRECT,
    ),
    _unknown_here("catalogOwned-preview", "reader_writer", requires=("inCommitTimestamp",), hint=_CATALOG),
    _unknown_here(
        "coordinatedCommits-preview",
        "writer",
        requires=("inCommitTimestamp", "vacuumProtocolCheck"),
        active=_set("delta.coordinatedCommits.commitCoordinator-preview"),
        hint=_CATALOG,
    ),
    _both("variantType-preview", write="always"),
    _both("variantShredding-preview", write="always"),
    _unknown_here("geospatial", "reader_writer", active=_type("geometry", "geography")),
    _unknown_here("geospatial-dev", "reader_writer"),
    _unknown_here("timestampNanos", "reader_writer"),
    _unknown_here("adaptiveMetadata-preview", "reader_writer"),
)
REGISTRY: Final[Mapping[str, Feature]] = {row.name: row for row in _ROWS}
_PREVIEWS: Final = frozenset(row.preview for row in _ROWS if row.preview)

MAX_READER: Final = 3
MAX_WRITER: Final = 7


# --- what a protocol says ----------------------------------------------------------------------------------------


@LastCall
def features_of(protocol: Protocol) -> frozenset[str]:
    """The features that a protocol supports: the named ones, or those that its old versions imply."""
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if writer >= MAX_WRITER:
        return frozenset((*(protocol.reader_features or ()), *(protocol.writer_features or ())))
    return frozenset(
        row.name for row in _ROWS if row.legacy and row.legacy[0] <= max(reader, 1) and row.legacy[1] <= writer
    )


def validate_protocol(protocol: Protocol, *, file: str | None = None) -> None:
    """Hold a protocol against the rules of PROTOCOL.md, "Table Features for New and Existing Tables".

    Raises:
        InvalidLogError: versions and lists of features that do not go together, or a feature without those it requires.
    """
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    problem = None
    named = set(protocol.writer_features or ())
    if reader < 1 or writer < 1:
        problem = "versions start at 1"
    elif reader >= MAX_READER and writer < MAX_WRITER:
        problem = "reader version 3 needs writer version 7"
    elif protocol.writer_features is None if writer >= MAX_WRITER else protocol.writer_features:
        problem = "writerFeatures belong to writer version 7, and to no other"
    elif protocol.reader_features is None if reader >= MAX_READER else protocol.reader_features:
        problem = "readerFeatures belong to reader version 3, and to no other"
    elif not set(protocol.reader_features or ()) <= named:
        problem = "a reader feature is missing among the writerFeatures"
    else:
        for name in sorted(named & REGISTRY.keys()):
            row = REGISTRY[name]
            lacking = [other for other in row.requires if other not in named]
            if lacking:
                problem = f"{name} needs {', '.join(lacking)}"
            elif reader >= MAX_READER and row.kind == "reader_writer" and name not in (protocol.reader_features or ()):
                problem = f"{name} is missing among the readerFeatures"
    if problem:
        raise InvalidLogError(f"the protocol ({reader}, {writer}) is not valid: {problem}", file=file)


def check_readable(protocol: Protocol) -> None:
    """Refuse a table that this engine would read wrongly.

    Raises:
        UnsupportedFeatureError: naming the reader features, or the version, that it lacks.
        InvalidLogError: the features of the table are not known, since its two versions do not go together.
    """
    reader = protocol.min_reader_version
    if reader > MAX_READER:
        raise UnsupportedFeatureError([f"reader version {reader}"], "read")
    if reader < MAX_READER:
        return
    if protocol.min_writer_version < MAX_WRITER:
        validate_protocol(protocol)
    lacking = [name for name in protocol.reader_features or () if name not in REGISTRY or not REGISTRY[name].read]
    if lacking:
        raise UnsupportedFeatureError(lacking, "read", hints(lacking))


def check_writable(protocol: Protocol, metadata: Metadata) -> None:
    """Refuse a table that this engine would write wrongly.

    Raises:
        UnsupportedFeatureError: naming the features, or the version, that it cannot honour.
        InvalidLogError: the protocol or the metadata is not valid.
        InvalidArgumentError: what changes is recorded, and a column has a name that the record needs.
    """
    check_readable(protocol)
    if protocol.min_writer_version > MAX_WRITER:
        raise UnsupportedFeatureError([f"writer version {protocol.min_writer_version}"], "write to")
    validate_protocol(protocol)
    facts = ActivationFacts.of(metadata.schema_string, metadata.configuration)
    supported = features_of(protocol)
    lacking = sorted(name for name in supported if not can_write(name, facts))
    # A property may ask for what the protocol does not have: the engine that set it broke the rules, but meant it. A
    # mapping does not count then, and would be another one once it did.
    asked = activated(facts, supported) - supported
    lacking += sorted(name for name in asked if REGISTRY[name].write != "always" or name == "columnMapping")
    if lacking:
        raise UnsupportedFeatureError(lacking, "write to", hints(lacking))
    if unknown := sorted(name for name in facts.types if not is_written(name)):
        raise UnsupportedFeatureError([f"the type {name[:100]} of a column" for name in unknown[:5]], "write to")
    if is_fed(metadata):
        check_columns(parse_schema(metadata.schema_string))


def activated(facts: ActivationFacts, supported: Collection[str]) -> set[str]:
    """As :func:`active`, but marks on fields mean nothing where the protocol lacks their feature.

    delta-spark reads a generation expression that an old table carries likewise.
    """
    return active(ActivationFacts(facts.configuration, types=facts.types), supported)


def active(facts: ActivationFacts, supported: Collection[str]) -> set[str]:
    """The features that metadata uses. One that is ``supported`` under its preview's name is not meant by its own, and
    a preview's name is never meant otherwise.
    """
    return {
        row.name for row in _ROWS if row.name not in _PREVIEWS and row.active(facts) and row.preview not in supported
    }


def can_write(name: str, facts: ActivationFacts) -> bool:
    """Whether this engine writes a table that supports the feature and whose metadata says this."""
    row = REGISTRY.get(name)
    if row is None or row.write == "never":
        return False
    return row.write == "always" or not row.active(facts)


def hints(names: Iterable[str]) -> str:
    """The reasons why these features are not supported, without features whose names are enough."""
    return "; ".join(sorted({REGISTRY[name].hint for name in names if name in REGISTRY and REGISTRY[name].hint}))
