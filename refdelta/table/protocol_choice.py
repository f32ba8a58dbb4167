"""Which protocol a table gets: a new one, and one whose metadata asks for more than before.

PROTOCOL.md, "Table Features for New and Existing Tables".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from refdelta.core.log.actions import Metadata, Protocol
from refdelta.errors import InvalidArgumentError, UnsupportedFeatureError, unknown_name
from refdelta.table.features import (
    MAX_READER,
    MAX_WRITER,
    REGISTRY,
    ActivationFacts,
    activated,
    active,
    can_write,
    check_writable,
    features_of,
    hints,
)
from refdelta.table.iceberg_compat import check_compatible
from refdelta.table.in_commit_timestamp import kept
from refdelta.table.properties import PROTOCOL_KEYS, get, requested_features
from refdelta.table.types import StructType, schema_json

_BY_LOWER: Final = {name.lower(): row for name, row in REGISTRY.items()}

# Every table of delta-spark starts here, unless its properties ask for other versions.
_START: Final = Protocol(min_reader_version=1, min_writer_version=2)
_NOTHING: Final = Protocol(min_reader_version=1, min_writer_version=1)
_LEGACY: Final = tuple(
    Protocol(min_reader_version=reader, min_writer_version=writer)
    for reader, writer in ((1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (2, 5), (1, 6), (2, 6))
)


def minimal_protocol(features: Collection[str]) -> Protocol:
    """The lowest protocol that supports just these features and those that they require.

    A pair of old versions where one implies exactly these; else it names them, and the reader version is as high as
    they need. delta-spark normalizes every protocol that it writes likewise.

    Raises:
        InvalidArgumentError: a feature that does not exist.
    """
    wanted = with_requirements(features)
    return next((protocol for protocol in _LEGACY if features_of(protocol) == wanted), _named(wanted))


def protocol_for_new_table(
    schema: StructType | str, configuration: Mapping[str, str], features: Iterable[str] = ()
) -> Protocol:
    """The protocol of a table that is created with this schema and these properties, as delta-spark chooses it.

    Args:
        schema: the table's schema, typed or as the log's JSON.
        configuration: the properties that the user gives, ``delta.feature.*`` and the minimum versions among them.
        features: what the table needs beside, by name.

    Raises:
        UnsupportedFeatureError: the schema or a property needs a feature that this engine does not write.
        InvalidArgumentError: a feature or a version that does not exist.
    """
    text = schema if isinstance(schema, str) else schema_json(schema)
    facts = ActivationFacts.of(text, configuration)
    protocol = new_protocol(facts, features)
    lacking = sorted(name for name in features_of(protocol) if not can_write(name, facts))
    if lacking:
        raise UnsupportedFeatureError(lacking, "create", hints(lacking))
    return protocol


def new_protocol(facts: ActivationFacts, features: Iterable[str] = ()) -> Protocol:
    """As :func:`protocol_for_new_table`, whether or not this engine can write the table."""
    lower = {key.lower(): value for key, value in facts.configuration.items()}
    start = _NOTHING if lower.get("delta.ignoreprotocoldefaults", "").strip().lower() == "true" else _START
    asked = frozenset((*map(known_feature, features), *asked_features(facts.configuration, start)))
    return minimal_protocol(asked | active(facts, asked))


def asked_features(configuration: Mapping[str, str], protocol: Protocol) -> frozenset[str]:
    """The features that a user's properties name, ``delta.feature.*``, and those that their versions imply.

    Versions of table features imply nothing, as in delta-spark.

    Args:
        configuration: the properties that the user gives.
        protocol: whose versions count where the properties have none.

    Raises:
        InvalidArgumentError: a feature or a version that does not exist, or versions that do not go together.
    """
    lower = {key.lower(): value for key, value in configuration.items()}
    named = frozenset(map(known_feature, requested_features(configuration)))
    given = [_version(lower, key) for key in PROTOCOL_KEYS[:2]]
    reader, writer = given[0] or protocol.min_reader_version, given[1] or protocol.min_writer_version
    if reader > MAX_READER or writer > MAX_WRITER or (reader == MAX_READER and writer < MAX_WRITER):
        raise InvalidArgumentError(f"there is no protocol with reader version {reader} and writer version {writer}")
    if writer == MAX_WRITER:
        return named
    return named | features_of(Protocol(min_reader_version=reader, min_writer_version=writer))


def upgraded(protocol: Protocol, metadata: Metadata, requested: Iterable[str] = ()) -> Protocol:
    """The protocol that a table needs with this metadata: its own, and what properties and types add.

    No feature is lost. If one is added, the protocol is written in its lowest form, as delta-spark normalizes it;
    otherwise it is unchanged. :func:`check_writable` checks whether this engine can write the result.

    Args:
        protocol: the table's own.
        metadata: what the table is to be.
        requested: features that the user asks for by name.

    Raises:
        InvalidArgumentError: a feature that does not exist.
    """
    facts = ActivationFacts.of(metadata.schema_string, metadata.configuration)
    have = features_of(protocol)
    asked = {known_feature(name) for name in requested}
    added = (activated(facts, have | asked) | asked) - have
    return minimal_protocol(have | added) if added else protocol


def without(protocol: Protocol, feature: str) -> Protocol:
    """The protocol in its lowest form that supports all but this feature."""
    return minimal_protocol(features_of(protocol) - {feature})


def settled(
    protocol: Protocol,
    metadata: Metadata,
    requested: Iterable[str] = (),
    before: Metadata | None = None,
    *,
    keeps_files: bool = True,
) -> Protocol:
    """The protocol of :func:`upgraded`, of a table that this engine can write and that keeps what it promises.

    Args:
        protocol: the table's own.
        metadata: what the table is to be.
        requested: features that are asked for by name.
        before: as for :func:`~refdelta.table.iceberg_compat.check_compatible`, like the argument that follows.
        keeps_files: see there.

    Raises:
        InvalidArgumentError: a feature that does not exist; what Iceberg could not read, and the table says it can; a
            catalog's table without in-commit timestamps.
        UnsupportedFeatureError: the table would need a feature that this engine cannot honour.
    """
    after = upgraded(protocol, metadata, requested)
    check_writable(after, metadata)
    if "catalogManaged" in features_of(protocol) and not kept(after, metadata):
        raise InvalidArgumentError(
            "the table's commits go through a catalog, and have in-commit timestamps: delta.enableInCommitTimestamps "
            "must stay true"
        )
    check_compatible(features_of(after), metadata, before, keeps_files=keeps_files)
    return after


def _version(lower: Mapping[str, str], key: str) -> int | None:
    """The version that properties ask for, by lower-case name; None where they do not."""
    return int(get({key: lower[key.lower()]}, key)) if key.lower() in lower else None


def known_feature(name: str) -> str:
    """A feature's name as the registry spells it. Raises ``InvalidArgumentError`` where there is none."""
    row = _BY_LOWER.get(name.lower())
    if row is None:
        raise InvalidArgumentError(unknown_name("table feature", name, REGISTRY))
    return row.name


def with_requirements(features: Collection[str]) -> frozenset[str]:
    """The features, together with those that they require. A feature that is not in the registry requires none."""
    found: set[str] = set()
    todo = list(features)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo.extend(REGISTRY[name].requires if name in REGISTRY else ())
    return frozenset(found)


def _named(features: Collection[str]) -> Protocol:
    rows = [REGISTRY[known_feature(name)] for name in sorted(features)]
    readers = [row for row in rows if row.kind == "reader_writer"]
    reader = max((row.legacy[0] if row.legacy else MAX_READER for row in readers), default=1)
    return Protocol(
        min_reader_version=reader,
        min_writer_version=MAX_WRITER,
        reader_features=[row.name for row in readers] if reader >= MAX_READER else None,
        writer_features=[row.name for row in rows],
    )
