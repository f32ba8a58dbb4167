"""The time from which a retention counts back, when files are deleted for their age.

The times of files are those of the store, so their ages are judged by its clock: by that of this machine, if it is days
ahead, files that were written just now would be old. Where both are known the earlier one counts, so that neither of
them deletes anything young. Clocks that differ by less than a minute are taken for the same, since some stores round
the times of files to seconds.
"""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from refdelta.core.log.paths import LOG
from refdelta.engine.log.managed_log import folder_of
from refdelta.engine.parquet.files import store_errors
from refdelta_storage.errors import StorageError

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta_storage.base import Store

SAME_MS: Final = 60_000
"""Clocks that differ by so many milliseconds are taken for the same."""

_NAME: Final = f"{LOG}/.refdelta-clock-"


def store_time(store: Store, own_ms: int | None = None) -> int:
    """The time, in milliseconds since 1970 (UTC): the earlier one of this machine's clock and of the store's, which is
    the time of an object that is put, looked at and deleted.

    Args:
        store: the table's folder.
        own_ms: the time by the clock of this machine; None for now.

    Raises:
        StoreError: the store refused or failed, so the time is not known and nothing may be deleted.
    """
    folder, key = folder_of(store), f"{_NAME}{uuid.uuid4()}"
    with store_errors("ask the store for the time"):
        folder.hasty().put(key, b"")
        try:
            made_ms = folder.head(key).mtime_ms
        finally:
            with suppress(StorageError):
                folder.delete([key])
    return earlier(time.time_ns() // 1_000_000 if own_ms is None else own_ms, made_ms)


def time_of_newest(snapshot: Snapshot) -> int:
    """The earlier one of this machine's clock and of the newest commit's file, in milliseconds since 1970 (UTC).

    It is not later than that of :func:`store_time`, and costs no request where that commit was listed.
    """
    store, listed = snapshot.store, snapshot.segment.listed
    # The time of a commit in a catalog is that of its writer's clock.
    if snapshot.is_managed or listed is None or listed.mtime_ms is None:
        return store_time(store)
    return earlier(time.time_ns() // 1_000_000, listed.mtime_ms)


def earlier(own_ms: int, store_ms: int) -> int:
    """The time of this machine, or that of the store if this machine is more than :data:`SAME_MS` ahead."""
    return store_ms if store_ms < own_ms - SAME_MS else own_ms
