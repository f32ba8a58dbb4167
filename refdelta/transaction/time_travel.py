"""The snapshot at a version or at a time."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from refdelta.engine.log.snapshot import Snapshot, load_snapshot
from refdelta.engine.log.timestamps import version_at
from refdelta.errors import InvalidArgumentError, VersionNotFoundError
from refdelta.table.partition_values import names_zone, parse_timestamp

if TYPE_CHECKING:
    from refdelta_storage import Store

Version = int | str | dt.datetime


def snapshot_at(store: Store, version: Version, timezone: str | None = None) -> Snapshot:
    """The snapshot at a version, or at a time: the last version committed at or before it. It counts as named.

    Args:
        store: the table's store.
        version: a version, or a time as a datetime or an ISO 8601 string.
        timezone: the zone of a time without one, and of partition values without one; None for UTC.

    Raises:
        InvalidArgumentError: it is neither a version nor a time.
        VersionNotFoundError: the table has no such version, or no longer; the time is before the first version that can
            be read, or after the newest one.
    """
    if isinstance(version, bool):
        raise InvalidArgumentError(f"version is an integer, a datetime or an ISO 8601 string, not {version!r}")
    if isinstance(version, int):
        return dataclasses.replace(load_snapshot(store, version).in_zone(timezone), named=True)
    given = _parsed(version)
    try:
        found = version_at(store, milliseconds(given, timezone), past_newest=False)
    except VersionNotFoundError as error:
        if given.tzinfo is not None:
            raise
        advice = "" if timezone else "; add one, such as Z or +02:00"
        raise VersionNotFoundError(
            f"{error}; {version} has no zone, and is read as {timezone or 'UTC'}{advice}"
        ) from None
    return dataclasses.replace(load_snapshot(store, found).in_zone(timezone), named=True)


def zoned(time: str | dt.datetime, timezone: str | None) -> dt.datetime:
    """A time with its zone, or with this one if it has none; None stands for UTC.

    Raises:
        InvalidArgumentError: it is not a time.
    """
    moment = _parsed(time)
    if moment.tzinfo is not None:
        return moment
    return moment.replace(tzinfo=dt.UTC if timezone is None or timezone == "UTC" else ZoneInfo(timezone))


def milliseconds(time: str | dt.datetime, timezone: str | None = None) -> int:
    """A time in milliseconds since 1970 (UTC), rounded down. Arguments and errors are those of :func:`zoned`."""
    return (zoned(time, timezone) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


def _parsed(time: str | dt.datetime) -> dt.datetime:
    try:
        return time if isinstance(time, dt.datetime) else dt.datetime.fromisoformat(time)
    except (TypeError, ValueError) as error:
        if (named := _with_zone(time)) is not None:
            return named
        raise InvalidArgumentError(f"version is an integer, a datetime or an ISO 8601 string, not {time!r}") from error


def _with_zone(time: object) -> dt.datetime | None:
    """A time that names its zone as SQL has it, such as ``2026-03-01 12:00:00 Europe/Berlin``; None for others."""
    if not isinstance(time, str):
        return None
    try:
        if not names_zone(time):
            return None
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=parse_timestamp(time))
    except (ValueError, OverflowError):
        return None
