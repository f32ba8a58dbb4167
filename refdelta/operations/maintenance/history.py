"""DESCRIBE HISTORY: the commitInfo of each version whose commit is in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from refdelta.core.log.paths import LOG, commit_key, parse_log_name
from refdelta.core.log.timestamps import commit_timestamps, rising
from refdelta.core.rows.relocation import ROW_PLACES
from refdelta.core.table.in_commit_timestamp import enablement
from refdelta.engine.log.listing import list_log
from refdelta.engine.parquet.files import log_errors, store_errors
from refdelta.errors import InvalidLogError, TableNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    names = [(parse_log_name(key.rpartition("/")[2]), mtime_ms) for key, _, mtime_ms in listing]
    listed = [(name.version, mtime_ms) for name, mtime_ms in names if name and name.kind == "commit"]
    commits = [commit for commit in rising(listed) if commit[0] <= snapshot.version]
    commits = commits[::-1][:limit]
    since = enablement(snapshot.protocol, snapshot.metadata)
    for start in range(0, len(commits), _AT_ONCE):
        some = dict(commits[start : start + _AT_ONCE])
        keys = [commit_key(version) for version in some]
        with store_errors("read the log"):
            contents = snapshot.store.get_many(keys)
        infos = {}
        for version, key, data in zip(some, keys, contents, strict=True):
            with log_errors(key):
                infos[version] = _commit_info(data, key)
        stamps = {v: info.get("inCommitTimestamp", some[v]) for v, info in infos.items()}
        times = dict(commit_timestamps(reversed(some.items()), since, stamps.__getitem__))
        for version, info in infos.items():
            info.pop(ROW_PLACES, None)
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
        damage: called for each commit that is missing between two others, or has a line that is not an action.

    Raises:
        TableNotFoundError: there is no log.
    """
    names = [(parse_log_name(key.rpartition("/")[2]), mtime_ms) for key, _, mtime_ms in list_log(store)]
    commits = rising((name.version, mtime_ms) for name, mtime_ms in names if name and name.kind == "commit")[::-1]
    if not commits:
        raise TableNotFoundError(f"there is no Delta table at {store.uri}: its folder {LOG} has no commit")
    newer = commits[0][0] + 1
    commits = commits[:limit]
    for start in range(0, len(commits), _AT_ONCE):
        some = commits[start : start + _AT_ONCE]
        keys = [commit_key(version) for version, _ in some]
        with store_errors("read the log"):
            contents = store.get_many(keys)
        for (version, mtime_ms), key, data in zip(some, keys, contents, strict=True):
            for gone in range(newer - 1, version, -1):
                damage(InvalidLogError("the commit file is missing", file=commit_key(gone)))
            newer = version
            info: dict[str, Any] = {}
            try:
                info = _commit_info(data, key)
            except InvalidLogError as error:
                damage(error)
            info.pop(ROW_PLACES, None)
            stamp = info.get("inCommitTimestamp")
            yield {**info, "timestamp": stamp if isinstance(stamp, int) else mtime_ms, "version": version}


def _commit_info(data: bytes, key: str) -> dict[str, Any]:
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            info = _decoder.decode(line).commit_info
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidLogError(f"not an action: {error}", file=key, line=number) from error
        if info is not None:
            return info
    return {}
