"""The snapshot at a version or at a time."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from refdelta.engine.log.snapshot import Snapshot, load_snapshot
from refdelta.engine.log.timestamps import version_at
from refdelta.errors import InvalidArgumentError

if TYPE_CHECKING:
    from refdelta_storage import Store

Version = int | str | dt.datetime


def snapshot_at(store: Store, version: Version) -> Snapshot:
    """The snapshot at a version, or at a time: the last version committed at or before it.

    Args:
        store: the table's store.
        version: a version, or a time as a datetime or an ISO 8601 string (UTC if it names no zone).

    Raises:
        InvalidArgumentError: it is neither a version nor a time.
        VersionNotFoundError: the table has no such version, or no longer.
    """
    if isinstance(version, bool):
        raise InvalidArgumentError(f"version is an integer, a datetime or an ISO 8601 string, not {version!r}")
    if isinstance(version, int):
        return load_snapshot(store, version)
    return load_snapshot(store, version_at(store, milliseconds(version)))


def milliseconds(time: str | dt.datetime) -> int:
    """A time in milliseconds since 1970 (UTC), rounded down. Raises ``InvalidArgumentError``."""
    try:
        moment = time if isinstance(time, dt.datetime) else dt.datetime.fromisoformat(time)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"version is an integer, a datetime or an ISO 8601 string, not {time!r}") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)
