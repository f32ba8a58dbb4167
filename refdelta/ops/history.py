"""DESCRIBE HISTORY: who did what, from the commitInfo of each version that the log still has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from refdelta.engine.files import store_errors
from refdelta.errors import InvalidLogError
from refdelta.protocol.paths import LOG, commit_key, parse_log_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from refdelta.engine.snapshot import Snapshot

_AT_ONCE = 100
"""Commits fetched in one go: a few round trips for a long history, and memory bounded by as many commits."""


class _Line(msgspec.Struct, rename="camel"):
    commit_info: dict[str, Any] | None = None


_decoder = msgspec.json.Decoder(_Line)


def history(snapshot: Snapshot, limit: int | None = None) -> Iterator[dict[str, Any]]:
    """One mapping a version, newest first: the fields of its commitInfo, ``version``, and ``timestamp`` in
    milliseconds since 1970.

    A version whose commit has no commitInfo (the specification does not ask for one) has the time of its file.
    """
    with store_errors("list the log"):
        listed = [(item, parse_log_name(item.key.rpartition("/")[2])) for item in snapshot.store.list(f"{LOG}/")]
    commits = sorted(
        (
            (name.version, item.mtime_ms)
            for item, name in listed
            if name and name.kind == "commit" and "/" not in item.key[len(LOG) + 1 :]
        ),
        reverse=True,
    )
    commits = [c for c in commits if c[0] <= snapshot.version][:limit]
    for start in range(0, len(commits), _AT_ONCE):
        some = commits[start : start + _AT_ONCE]
        keys = [commit_key(version) for version, _ in some]
        with store_errors("read the log"):
            contents = snapshot.store.get_many(keys)
        for (version, mtime), key, data in zip(some, keys, contents, strict=True):
            info = _commit_info(data, key)
            yield {"timestamp": mtime, **info, "version": version}


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
