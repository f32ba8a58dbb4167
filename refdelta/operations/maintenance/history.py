"""DESCRIBE HISTORY: the commitInfo of each version whose commit is in the log."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from refdelta.core.log.codec import BAD_INPUT
from refdelta.core.log.paths import LOG, commit_key, parse_log_name
from refdelta.core.log.timestamps import commit_timestamps, rising
from refdelta.core.rows.relocation import ROW_PLACES
from refdelta.core.table.in_commit_timestamp import enablement
from refdelta.engine.log.listing import Listing, list_log
from refdelta.engine.parquet.files import log_errors, store_errors
from refdelta.errors import InvalidLogError, TableNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta_storage import Store

_AT_ONCE = 100
"""The number of commits that are fetched at once: few round trips for a long history, and bounded memory."""


class _Line(msgspec.Struct, rename="camel"):
    commit_info: dict[str, Any] | None = None


_decoder = msgspec.json.Decoder(_Line)


def history(snapshot: Snapshot, limit: int | None = None) -> Iterator[dict[str, Any]]:
    """The versions, newest first: a mapping each, with the fields of its commitInfo, if it has one, and ``version``.

    ``timestamp`` is the time of the version for time travel, in milliseconds since 1970 (UTC), as in Spark's history:
    the in-commit timestamp if the table has it, else the time of the file. The field with the new places of a
    compaction's rows is left out, since it is long and only for conflict checks.

    Args:
        snapshot: the newest version.
        limit: the maximum number of versions; None for all.

    Raises:
        TableNotFoundError: the log is gone.
        InvalidLogError: a commit is not valid JSON.
    """
    listing = list_log(snapshot.store)
    if not listing:
        raise TableNotFoundError(f"there is no Delta table at {snapshot.store.uri} any more: its folder {LOG} is gone")
    commits = [commit for commit in _newest_first(listing) if commit[0] <= snapshot.version][:limit]
    since = enablement(snapshot.protocol, snapshot.metadata)
    for chunk in _chunks(snapshot.store, commits):
        some = {version: mtime_ms for version, mtime_ms, _ in chunk}
        infos = {}
        for version, _, data in chunk:
            with log_errors(commit_key(version)):
                infos[version] = _commit_info(data, commit_key(version))
        stamps = {v: info.get("inCommitTimestamp", some[v]) for v, info in infos.items()}
        times = dict(commit_timestamps(reversed(some.items()), since, stamps.__getitem__))
        for version, info in infos.items():
            yield {**info, "timestamp": times[version], "version": version}


def recorded_history(
    store: Store, limit: int | None, damage: Callable[[InvalidLogError], None]
) -> Iterator[dict[str, Any]]:
    """The versions of a log, newest first, as :func:`history` gives them, without loading a snapshot.

    It works on damaged logs: the damage is reported, and the rest is returned. The time of a version is the in-commit
    timestamp of its commitInfo, if it has one, else that of its file.

    Args:
        store: the table's folder.
        limit: the maximum number of versions; None for all.
        damage: called for each gap between two versions, and for each commit that has a line that is not an action.

    Raises:
        TableNotFoundError: there is no log.
    """
    commits = _newest_first(list_log(store))
    if not commits:
        raise TableNotFoundError(f"there is no Delta table at {store.uri}: its folder {LOG} has no commit")
    newer = commits[0][0] + 1
    for version, mtime_ms, data in chain.from_iterable(_chunks(store, commits[:limit])):
        if version < newer - 1:
            # One report for all of them: two files can be 2^63 versions apart.
            several = f", and those of all versions from {version + 1} on" if version < newer - 2 else ""
            damage(InvalidLogError(f"the commit file is missing{several}", file=commit_key(newer - 1)))
        newer = version
        info: dict[str, Any] = {}
        try:
            info = _commit_info(data, commit_key(version))
        except InvalidLogError as error:
            damage(error)
        stamp = info.get("inCommitTimestamp")
        yield {**info, "timestamp": stamp if isinstance(stamp, int) else mtime_ms, "version": version}


def _newest_first(listing: Listing) -> list[tuple[int, int]]:
    """Version and file time of each commit of a listing."""
    names = ((parse_log_name(key), mtime_ms) for key, _, mtime_ms in listing)
    return rising((name.version, mtime_ms) for name, mtime_ms in names if name and name.kind == "commit")[::-1]


def _chunks(store: Store, commits: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int, bytes]]]:
    """Version, file time and content of commits, some at once."""
    for start in range(0, len(commits), _AT_ONCE):
        some = commits[start : start + _AT_ONCE]
        with store_errors("read the log"):
            contents = store.get_many([commit_key(version) for version, _ in some])
        yield [(*commit, data) for commit, data in zip(some, contents, strict=True)]


def _commit_info(data: bytes, key: str) -> dict[str, Any]:
    """The fields of the commitInfo, but for the new places of a compaction's rows; none without a commitInfo."""
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            info = _decoder.decode(line).commit_info
        except BAD_INPUT as error:
            raise InvalidLogError(f"not an action: {error}", file=key, line=number) from error
        if info is not None:
            info.pop(ROW_PLACES, None)
            return info
    return {}
