"""DESCRIBE HISTORY: the commitInfo of each version whose commit is in the log."""

from __future__ import annotations

import logging
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from refdelta.arrow.python_values import time_text
from refdelta.core.log.codec import BAD_INPUT, decode_info
from refdelta.core.log.footprint import MEMBERS
from refdelta.core.log.paths import LOG, VERSIONED, commit_key, parse_log_name
from refdelta.core.log.timestamps import rising
from refdelta.core.rows.relocation import ROW_PLACES
from refdelta.engine.log.listing import Listing, has_log, hinted_version, list_log
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import InvalidLogError, TableNotFoundError
from refdelta.table.in_commit_timestamp import enablement
from refdelta.wording import place_name, table
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta_storage import Store

    Damage = Callable[[InvalidLogError], None]

log = logging.getLogger("refdelta")

_AT_ONCE = 100
"""The number of commits that are fetched at once: few round trips for a long history, and bounded memory."""

_FEW = 1_000
"""Up to so many commits are looked up one by one, without the times of all files of the log."""


class History(list[dict[str, Any]]):
    """The commits of a log, the newest first: a list with a mapping for each, and the damage that was found.

    Attributes:
        damage: an error for each gap between two versions, and for each commit that cannot be read; empty if the part
            of the log that was read is sound.
    """

    def __init__(self, commits: Iterable[dict[str, Any]] = (), damage: Iterable[InvalidLogError] = ()):
        super().__init__(commits)
        self.damage = tuple(damage)

    def _repr_html_(self) -> str:
        names = ("version", "timestamp", "operation", "operationParameters", "engineInfo")
        rows = [[entry.get(name) for name in names] for entry in with_members(self)]
        for row in rows:
            if type(row[1]) is int:
                row[1] = time_text(row[1], zone="UTC")
            if isinstance(row[3], dict):
                row[3] = ", ".join(f"{name}: {value}" for name, value in row[3].items())
        return table(rows, head=("version", "time", "operation", "parameters", "engine"))


def with_members(commits: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The lines of a table of the history: each version, and after it each of its members, with ``3.1`` as the version
    of member 1 of version 3, and without the time, which is that of the version.
    """
    for commit in commits:
        yield commit
        entries = commit.get(MEMBERS)
        for number, entry in enumerate(entries if isinstance(entries, list) else ()):
            own = entry if isinstance(entry, dict) else {}
            yield {**own, "timestamp": None, "version": place_name(commit["version"], number)}


def history(snapshot: Snapshot, limit: int | None = None, damage: Damage | None = None) -> Iterator[dict[str, Any]]:
    """The versions, newest first: a mapping each, with the fields of its commitInfo, if it has one, and ``version``.

    ``timestamp`` is the time of the version for time travel, in milliseconds since 1970 (UTC), as in Spark's history:
    the in-commit timestamp if the table has it, else the time of the file, made rising over the versions that are
    returned. A version with several transactions has them in ``members``, in their order: the commitInfo of each, and
    the ``lines`` of the commit file that are its actions. The field with the new places of a compaction's rows is left
    out, since it is long and only for conflict checks.

    Args:
        snapshot: the newest version.
        limit: the maximum number of versions; None for all. Older versions are neither listed nor read.
        damage: called for each gap between two versions, and for each commit with a line that is not an action; the
            rest is returned. Without it, such a commit is an error, and gaps are passed over.

    Raises:
        TableNotFoundError: the log is gone.
        InvalidLogError: a commit is not valid JSON, and ``damage`` is None.
    """
    store = snapshot.store
    commits = _commits(store, snapshot.version, limit)
    if not commits and not has_log(store):
        raise TableNotFoundError(f"there is no Delta table at {store.uri} any more: its folder {LOG} is gone")
    since = enablement(snapshot.protocol, snapshot.metadata)

    def stamped(version: int) -> bool:
        return since is not None and version >= since.version

    return _entries(store, commits, stamped, damage)


def recorded_history(store: Store, limit: int | None, damage: Damage) -> Iterator[dict[str, Any]]:
    """The versions of a log, newest first, as :func:`history` gives them, without loading a snapshot.

    It works on logs of which no version can be read. The time of a version is the in-commit timestamp of its
    commitInfo, if it has one, else that of its file.

    Args:
        store: the table's folder.
        limit: the maximum number of versions; None for all.
        damage: as for :func:`history`.

    Raises:
        TableNotFoundError: there is no log.
    """
    commits = _commits(store, None, limit)
    if not commits and not has_log(store):
        raise TableNotFoundError(f"there is no Delta table at {store.uri}: its folder {LOG} has no commit")
    return _entries(store, commits, lambda _: True, damage)


def collected(uri: str, read: Callable[[Damage], Iterable[dict[str, Any]]]) -> History:
    """All entries that ``read`` returns, with the damage that it reports, which is also logged as a warning."""
    damage: list[InvalidLogError] = []
    found = History(read(damage.append))
    found.damage = tuple(damage)
    if damage:
        log.warning("%s: %s", uri, damaged_log(damage))
    return found


def damaged_log(damage: Sequence[InvalidLogError]) -> str:
    """A sentence about the damage of a log of which the rest is shown."""
    more = f" (and {len(damage) - 1:,} more places)" if len(damage) > 1 else ""
    return f"the log is damaged: {damage[0]}{more}; what can be read is shown"


def _entries(
    store: Store, commits: Sequence[tuple[int, int]], stamped: Callable[[int], bool], damage: Damage | None
) -> Iterator[dict[str, Any]]:
    """The entries of these versions, newest first; ``stamped`` says for which the in-commit timestamp counts."""
    newer = commits[0][0] + 1 if commits else 0
    for version, mtime_ms, data in chain.from_iterable(_chunks(store, commits)):
        if damage is not None and version < newer - 1:
            # One report for all of them: two files can be 2^63 versions apart.
            several = f", and those of all versions from {version + 1} on" if version < newer - 2 else ""
            damage(InvalidLogError(f"the commit file is missing{several}", file=commit_key(newer - 1)))
        newer = version
        info, bad = _commit_info(data, commit_key(version), whole=damage is not None)
        if bad is not None and damage is None:
            raise bad
        if bad is not None and damage is not None:
            damage(bad)
        stamp = info.get("inCommitTimestamp") if stamped(version) else None
        yield {**info, "timestamp": stamp if type(stamp) is int else mtime_ms, "version": version}


def _commits(store: Store, newest: int | None, limit: int | None) -> list[tuple[int, int]]:
    """Version and file time of the newest commits, newest first.

    Args:
        store: the table's folder.
        newest: the newest version, if it is known; later ones are left out.
        limit: the maximum number of commits; None for all. Of a long log, few file times are looked up then.
    """
    if limit is None or limit > _FEW:
        return _newest_first(list_log(store), newest)[:limit]
    known = hinted_version(store) if newest is None else newest
    start = max(0, (known or 0) - limit + 1)
    if store.capabilities.remote:
        found = _newest_first(list_log(store, start), newest)
        return found[:limit] if len(found) >= limit or not start else _newest_first(list_log(store), newest)[:limit]
    # On a disk, the time of each file of a listing is a call of the system, so that names come first.
    found = [] if newest is None else _with_times(store, range(newest, start - 1, -1))
    for after in dict.fromkeys((start, 0)) if not found else ():
        names = map(parse_log_name, reversed(store.list_keys(VERSIONED, f"{LOG}/{after:020d}" if after else None)))
        versions = (one.version for one in names if one is not None and one.kind == "commit")
        wanted = list(islice((version for version in versions if newest is None or version <= newest), limit))
        if len(wanted) == limit or not after:
            found = _with_times(store, wanted)
            break
    return found or _newest_first(list_log(store), newest)[:limit]


def _with_times(store: Store, versions: Sequence[int]) -> list[tuple[int, int]]:
    """The versions with the times of their commit files, newest first; empty if one of the files does not exist."""
    with store_errors("look at the log"), suppress(ObjectNotFoundError):
        return rising((version, store.head(commit_key(version)).mtime_ms) for version in reversed(versions))[::-1]
    return []


def _newest_first(listing: Listing, newest: int | None) -> list[tuple[int, int]]:
    """Version and file time of each commit of a listing, but for those after ``newest``."""
    names = ((parse_log_name(key), mtime_ms) for key, _, mtime_ms in listing)
    commits = rising((name.version, mtime_ms) for name, mtime_ms in names if name and name.kind == "commit")
    return [commit for commit in reversed(commits) if newest is None or commit[0] <= newest]


def _chunks(store: Store, commits: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int, bytes]]]:
    """Version, file time and content of commits, some at once."""
    for start in range(0, len(commits), _AT_ONCE):
        some = commits[start : start + _AT_ONCE]
        with store_errors("read the log"):
            contents = store.get_many([commit_key(version) for version, _ in some])
        yield [(*commit, data) for commit, data in zip(some, contents, strict=True)]


def _commit_info(data: bytes, key: str, *, whole: bool) -> tuple[dict[str, Any], InvalidLogError | None]:
    """The fields of the commitInfo, but for the new places of a compaction's rows; none without a commitInfo. And the
    first line that is not an action; unless ``whole``, of those up to the commitInfo.
    """
    info: dict[str, Any] | None = None
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found = decode_info(line).commit_info
        except BAD_INPUT as error:
            return info or {}, InvalidLogError(f"not an action: {error}", file=key, line=number)
        if info is None and found is not None:
            found.pop(ROW_PLACES, None)
            info = found
        if info is not None and not whole:
            break
    return info or {}, None
