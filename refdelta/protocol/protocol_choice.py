"""Which protocol a table gets: a new one, and one whose metadata asks for more than before.

PROTOCOL.md, "Table Features for New and Existing Tables".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from refdelta.errors import InvalidArgumentError, UnsupportedFeatureError
from refdelta.protocol.actions import Metadata, Protocol
from refdelta.protocol.features import (
    MAX_READER,
    MAX_WRITER,
    REGISTRY,
    Facts,
    activated,
    can_write,
    features_of,
    hints,
)
from refdelta.protocol.properties import PROTOCOL_KEYS, get, requested_features
from refdelta.protocol.types import StructType, schema_json

_BY_LOWER: Final = {name.lower(): row for name, row in REGISTRY.items()}

# Every table of delta-spark starts at (1, 2), which implies these.
_BASE: Final = frozenset(("appendOnly", "invariants"))
_LEGACY: Final = tuple(
    Protocol(min_reader_version=reader, min_writer_version=writer)
    for reader, writer in ((1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (2, 5), (1, 6), (2, 6))
)


def minimal_protocol(features: Collection[str]) -> Protocol:
    """The lowest protocol that supports just these features and those that they require.

    A pair of old versions where one implies exactly these; else it names them. delta-spark normalizes likewise.

    Raises:
        InvalidArgumentError: a feature that does not exist.
    """
    wanted = with_requirements(features)
    return next((protocol for protocol in _LEGACY if features_of(protocol) == wanted), _named(wanted, 1))


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
    lower = {key.lower(): value for key, value in configuration.items()}
    reader, writer = (_version(lower, key) for key in PROTOCOL_KEYS[:2])
    if reader > MAX_READER or writer > MAX_WRITER or (reader == MAX_READER and writer < MAX_WRITER):
        raise InvalidArgumentError(f"there is no protocol with reader version {reader} and writer version {writer}")
    facts = Facts.of(text, configuration)
    wanted = {
        *_BASE,
        *(row.name for row in REGISTRY.values() if row.active(facts)),
        *map(_known, (*features, *requested_features(configuration))),
    }
    if writer < MAX_WRITER:
        wanted |= features_of(Protocol(min_reader_version=reader, min_writer_version=writer))
    lacking = sorted(name for name in with_requirements(wanted) if not can_write(name, facts))
    if lacking:
        raise UnsupportedFeatureError(lacking, "create", hints(lacking))
    protocol = minimal_protocol(wanted)
    return _named(with_requirements(wanted), reader) if protocol.min_writer_version < writer == MAX_WRITER else protocol


def upgraded(protocol: Protocol, metadata: Metadata, requested: Iterable[str] = ()) -> Protocol:
    """The protocol that a table needs with this metadata: its own, and what properties and types add.

    Versions never go down and no feature is lost. Whether this engine can write the result is :func:`check_writable`'s.

    Args:
        protocol: the table's own.
        metadata: what the table is to be.
        requested: features that the user asks for by name.

    Raises:
        InvalidArgumentError: a feature that does not exist.
    """
    facts = Facts.of(metadata.schema_string, metadata.configuration)
    have = features_of(protocol)
    added = (activated(facts) | {_known(name) for name in requested}) - have
    if not added:
        return protocol
    wanted = with_requirements(have | added)
    if protocol.min_writer_version >= MAX_WRITER:
        return _named(wanted, protocol.min_reader_version)
    fits = (p for p in _LEGACY if features_of(p) == wanted and p.min_reader_version >= protocol.min_reader_version)
    return next(fits, _named(wanted, protocol.min_reader_version))


def _version(lower: Mapping[str, str], key: str) -> int:
    value = get({key: lower[key.lower()]}, key) if key.lower() in lower else 1
    return int(value)


def _known(name: str) -> str:
    row = _BY_LOWER.get(name.lower())
    if row is None:
        raise InvalidArgumentError(f"there is no table feature {name!r}")
    return row.name


def with_requirements(features: Collection[str]) -> frozenset[str]:
    """The features, and what they require. A feature that this registry lacks requires nothing that it could know."""
    found: set[str] = set()
    todo = list(features)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo.extend(REGISTRY[name].requires if name in REGISTRY else ())
    return frozenset(found)


def _named(features: Collection[str], at_least_reader: int) -> Protocol:
    rows = [REGISTRY[_known(name)] for name in sorted(features)]
    readers = [row for row in rows if row.kind == "reader_writer"]
    reader = max(at_least_reader, 1, *(row.legacy[0] if row.legacy else MAX_READER for row in readers))
    return Protocol(
        min_reader_version=reader,
        min_writer_version=MAX_WRITER,
        reader_features=[row.name for row in readers] if reader >= MAX_READER else None,
        writer_features=[row.name for row in rows],
    )
