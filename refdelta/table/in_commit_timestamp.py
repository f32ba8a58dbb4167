"""The start of in-commit timestamps in a table's metadata (PROTOCOL.md, "In-Commit Timestamps")."""

from __future__ import annotations

from refdelta.core.log.actions import Metadata, Protocol
from refdelta.core.log.assigned import SINCE_TIMESTAMP, SINCE_VERSION, Enablement
from refdelta.errors import InvalidLogError
from refdelta.table.features import features_of
from refdelta.table.properties import get


def kept(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether every commit of such a table has a timestamp."""
    on = get(metadata.configuration or {}, "delta.enableInCommitTimestamps")
    return bool(on) and "inCommitTimestamp" in features_of(protocol)


def enablement(protocol: Protocol, metadata: Metadata) -> Enablement | None:
    """Since when the table has in-commit timestamps; None if it has none.

    Raises:
        InvalidLogError: a property of theirs is not a number, or one of two is missing.
    """
    configuration = metadata.configuration or {}
    if not kept(protocol, metadata):
        return None
    version = get(configuration, SINCE_VERSION)
    timestamp = get(configuration, SINCE_TIMESTAMP)
    if (version is None) != (timestamp is None):
        raise InvalidLogError(
            "of the two properties that say since when in-commit timestamps are on, one is missing; "
            "alter.unset_table_properties(['delta.enableInCommitTimestamps']) turns them off"
        )
    return Enablement(0, None) if version is None else Enablement(version, timestamp)
