"""DESCRIBE HISTORY: who did what, from the commitInfo of each version that the log still has."""

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
    from collections.abc import Iterator

    from refdelta.engine.log.snapshot import Snapshot

_AT_ONCE = 100
"""Commits fetched in one go: a few round trips for a long history, and memory bounded by as many commits."""


class _Line(msgspec.Struct, rename="camel"):
    commit_info: dict[str, Any] | None = None


_decoder = msgspec.json.Decoder(_Line)


def history(snapshot: Snapshot, limit: int | None = None) -> Iterator[dict[str, Any]]:
    """One mapping a version, newest first: the fields of its commitInfo where it has one, and its ``version``.

    ``timestamp`` is the time by which time travel finds the version, in milliseconds since 1970 (UTC), as in Spark's
    history: the in-commit timestamp where the table has them, else the time of the file. Where a compaction's rows went
    is left out: it is long, and for the conflict check alone.
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
