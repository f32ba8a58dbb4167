"""Files that VACUUM may delete: what is looked up before a transaction adds files that it did not write just now.

The commit itself conflicts with each VACUUM START among the winners (:mod:`refdelta.core.conflicts.rules`). A VACUUM
that was in progress at the snapshot is no winner, so it is looked for in the log.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from refdelta.core.conflicts.rules import RULES
from refdelta.core.log.codec import commit_info_of
from refdelta.core.log.paths import commit_key, parse_log_name
from refdelta.core.log.vacuums import (
    LONGEST_MS,
    VACUUM_END,
    VACUUM_START,
    Vacuum,
    deletes_before,
    ended_by,
    in_progress,
    is_vacuum,
)
from refdelta.engine.log.listing import list_log
from refdelta.engine.log.store_clock import earlier, store_time, time_of_newest
from refdelta.engine.parquet.files import store_errors
from refdelta.engine.work.executor import ThreadExecutor
from refdelta.errors import ConflictDetails
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta_storage import Store

_WORKERS = 16
_AT_ONCE = 100
"""The number of commits that are fetched at once: few round trips for a long history, and bounded memory."""

_FIRST_AT_ONCE, _GROWTH = 10, 10
"""The number of versions that are looked at first, and the factor to the next ones."""

_CLOCKS_DIFFER_MS = {False: 10, True: 2_000}
"""For a local and for a remote store, the rounding of times up to which a VACUUM is found that began when its files
became unreferenced: a kernel's clock ticks every few milliseconds, and S3 counts seconds.
"""

_EVER: Final = -(2**63)

_ADVICE: Final = (
    "Repeat the operation when that VACUUM has ended. If it was interrupted, run VACUUM once more, with the same "
    f"arguments: it ends the interrupted one, which otherwise counts as ended after {LONGEST_MS // 3_600_000} hours."
)


def check_no_vacuum_in_progress(snapshot: Snapshot, since_ms: int) -> None:
    """Refuse to add files that a VACUUM in progress may delete.

    Args:
        snapshot: the table whose VACUUM may delete them: the snapshot of the transaction.
        since_ms: the earliest time at which one of the files may have become unreferenced, in milliseconds since 1970.

    Raises:
        ConcurrentDeleteReadException: a VACUUM is in progress, and may delete one of the files.
    """
    known, oldest_ms = snapshot.newest_checkpoint, _oldest_ms(snapshot, since_ms)
    version, time_ms = known.without_vacuum
    if snapshot.version <= version and time_ms <= oldest_ms:
        return
    if snapshot.timestamp_ms < oldest_ms:  # no VACUUM in the log is later than the removal of the files
        known.without_vacuum = snapshot.version, oldest_ms
        return
    found = [one for one in vacuums_in_progress(snapshot, since_ms) if since_ms <= one.before_ms]
    if found:
        rule = next(rule for rule in RULES if rule.id == "files-deleted")
        raise rule.error(rule.sentence, ConflictDetails(rule.id, found[-1].version, VACUUM_START, (), _ADVICE))


def vacuums_in_progress(snapshot: Snapshot, since_ms: int = 0, now_ms: int | None = None) -> list[Vacuum]:
    """The VACUUMs of a table that may still delete files, see :func:`refdelta.core.log.vacuums.in_progress`.

    Args:
        snapshot: the table.
        since_ms: VACUUMs that began until then, and those that cannot delete files which became unreferenced later, may
            be left out. A recent time makes the look at the log short.
        now_ms: the time, in milliseconds since 1970; None for that of the store.
    """
    if now_ms is None:
        # By a clock that is hours ahead a VACUUM in progress would have ended. An earlier time costs no request, and by
        # it at most more of them are in progress.
        found = vacuums_in_progress(snapshot, since_ms, _earlier_time(snapshot))
        return found and vacuums_in_progress(snapshot, since_ms, store_time(snapshot.store))
    known = snapshot.newest_checkpoint
    oldest_ms = max(_oldest_ms(snapshot, since_ms), now_ms - LONGEST_MS)
    # Otherwise each of many commits of old files would look at all commits of a day.
    seen_to = known.without_vacuum[0] if known.without_vacuum[1] <= oldest_ms else -1
    read: list[tuple[int, int, dict[str, Any]]] = []
    named, unnamed, uncertain = set[int](), False, False
    for version, time_ms, look in _newest_first(snapshot, seen_to):
        early = version <= seen_to or time_ms < oldest_ms
        if time_ms < now_ms - 2 * LONGEST_MS or (early and not uncertain):
            break
        info = look()
        read.append((version, time_ms, info if is_vacuum(info) else {}))
        if info.get("operation") == VACUUM_END:
            ended = ended_by(info)
            named.update(ended or ())
            unnamed = unnamed or ended is None
        elif info.get("operation") == VACUUM_START and version not in named:
            # Of several STARTs before an END without names it is not known which one it ends.
            uncertain = uncertain or (unnamed and since_ms <= deletes_before(info, time_ms))
        if version == seen_to + 1 and not uncertain:
            break
    if not any(info for _, _, info in read):
        # A commit that is too old to be of a VACUUM in progress is so later, too.
        known.without_vacuum = snapshot.version, _EVER if oldest_ms == now_ms - LONGEST_MS else oldest_ms
    return in_progress(reversed(read), now_ms)


def _oldest_ms(snapshot: Snapshot, since_ms: int) -> int:
    return since_ms - _CLOCKS_DIFFER_MS[snapshot.store.capabilities.remote]


def _earlier_time(snapshot: Snapshot) -> int:
    """The present by the clock of the store, or an earlier time, in milliseconds since 1970."""
    segment, now_ms = snapshot.segment, time.time_ns() // 1_000_000
    # The time of a commit in a catalog is that of its writer's clock; checkpoints and version 0 have the store's.
    files = segment.checkpoint.files if segment.checkpoint else [one for one in segment.commits[:1] if not one.version]
    made_ms = files[0].mtime_ms if snapshot.is_managed and files else None
    # By a time that is much earlier, a long log would be read.
    if made_ms is not None and now_ms - made_ms < LONGEST_MS:
        return earlier(now_ms, made_ms)
    return time_of_newest(snapshot)


def _newest_first(snapshot: Snapshot, seen_to: int) -> Iterator[tuple[int, int, Callable[[], dict[str, Any]]]]:
    """Version, file time and a function that returns the commitInfo of the commits up to a snapshot, newest first. Most
    callers end after those that follow ``seen_to``.
    """
    store = snapshot.store
    if store.capabilities.remote:
        alone = (one for one in snapshot.segment.commits if one.version == one.hi)
        shown = {one.version: one.mtime_ms for one in alone if one.mtime_ms is not None}
        yield from _at_once(store, snapshot.version + 1, min(_FIRST_AT_ONCE, snapshot.version - seen_to), shown)
        return
    # A listing of a long log takes longer than a look at its last files.
    with store_errors("read the log"), suppress(ObjectNotFoundError):  # older versions were cleaned up
        for version in range(snapshot.version, -1, -1):
            key = commit_key(version)
            yield version, store.head(key).mtime_ms, partial(_commit_info, store, key)


def _commit_info(store: Store, key: str) -> dict[str, Any]:
    with store_errors("read the log"):
        return commit_info_of(store.get(key))


def _at_once(
    store: Store, end: int, count: int, shown: Mapping[int, int]
) -> Iterator[tuple[int, int, Callable[[], dict[str, Any]]]]:
    """The same of the commits before ``end`` with few round trips: ``count`` commits first, then more and more. The log
    is listed for those whose time is not in ``shown``.
    """
    while end > 0:
        start = max(0, end - count)
        times = [(version, shown[version]) for version in range(start, end) if version in shown]
        if len(times) < end - start:
            names = ((parse_log_name(key), mtime_ms) for key, _, mtime_ms in list_log(store, start))
            times = [(name.version, ms) for name, ms in names if name and name.kind == "commit" and name.version < end]
        if not times:
            return  # older versions were cleaned up
        for at in range(0, len(times), _AT_ONCE):
            some = times[::-1][at : at + _AT_ONCE]
            with store_errors("read the log"):
                try:
                    contents = store.get_many([commit_key(version) for version, _ in some])
                except ObjectNotFoundError:  # cleaned up
                    if not shown:
                        raise
                    contents = []
            if not contents:
                yield from _at_once(store, some[0][0] + 1, count, {})
                return
            for (version, time_ms), data in zip(some, contents, strict=True):
                yield version, time_ms, partial(commit_info_of, data)
        end, count = start, count * _GROWTH


def unreferenced_since(snapshot: Snapshot, files: pa.Table) -> int:
    """The earliest time at which one of these files was removed, in milliseconds since 1970; 0 if a tombstone is gone,
    since checkpoints leave out expired ones.

    Args:
        snapshot: the newest version.
        files: files of an earlier version that are not live in it.
    """
    removed = snapshot.tombstones().select(["path", "deletionTimestamp"])
    times = files.select(["path"]).join(removed, "path", join_type="left outer")["deletionTimestamp"]
    return 0 if times.null_count else pc.min(times).as_py() or 0


def missing_keys(store: Store, keys: list[str]) -> list[str]:
    """Those of the keys that have no object, sorted; each is asked for."""

    def is_missing(key: str) -> bool:
        try:
            store.head(key)
        except ObjectNotFoundError:
            return True
        return False

    with store_errors("look for the files of the table"):
        found = ThreadExecutor(_WORKERS).map(is_missing, keys)
        return sorted(key for key, missing in zip(keys, found, strict=True) if missing)
