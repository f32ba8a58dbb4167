"""Table properties as deltalake takes them."""

from __future__ import annotations

from collections.abc import Mapping

from refdelta.errors import InvalidArgumentError

_VERSION = "delta.minWriterVersion"
_FEED = "delta.enableChangeDataFeed"
_LEGACY = 4
"""The writer version with the change data feed and generated columns, which deltalake gives a table for these."""

_FEATURES = ("delta.min", "delta.feature.", "delta.enable", "delta.columnMapping.", "delta.checkpointPolicy")
"""Beginnings of properties that choose a protocol, or may need a higher one."""


def known_properties(given: Mapping[str, object]) -> None:
    """Refuse names that are not Delta's. Raises ``DeltaError``."""
    if unknown := [name for name in given if not name.startswith("delta.")]:
        raise InvalidArgumentError(f"Error parsing property '{unknown[0]}':'{given[unknown[0]]}'")


def with_version(
    given: Mapping[str, str | None] | None, *, least: int = 1, generated: bool = False
) -> Mapping[str, str | None] | None:
    """Properties with the writer version that deltalake gives a table with a change data feed or generated columns.

    Args:
        given: the properties.
        least: the writer version that the table has.
        generated: whether the table has generated columns.
    """
    values = given or {}
    asked = generated or str(values.get(_FEED)).lower() == "true"
    decided = any(name != _FEED and name.startswith(_FEATURES) for name in values)
    return {**values, _VERSION: str(_LEGACY)} if asked and least < _LEGACY and not decided else given
