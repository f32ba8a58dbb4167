"""From the store's listing of the log to the files that make a version, and those files' actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refdelta.core.log.codec import decode_commit
from refdelta.core.log.paths import LOG, VERSIONED, checksum_key, commit_key, last_checkpoint_key, parse_log_name
from refdelta.core.log.segment import LogFile, LogSegment, build_segment, parse_last_checkpoint
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import InvalidLogError, StoreError, TableNotFoundError, VersionNotFoundError
from refdelta_storage.errors import ObjectNotFoundError, StorageError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from refdelta.core.log.actions import AnyAction
    from refdelta_storage.base import Store

Listing = list[tuple[str, int, int]]

# Files of the log are read whole. No engine writes any that is near to this; a file with a hole in it may be longer
# than any memory.
_LONGEST_COMMIT = 2**31
_LONGEST_HINT = 2**24

_LISTED_AGAIN = 20
"""How many times a log of this machine that lacks a version is listed, as long as that shows something else."""


def find_segment(
    store: Store, version: int | None = None, *, hinted: bool = True, unreadable: Collection[str] = ()
) -> LogSegment:
    """The files that make a version.

    The listing starts at the checkpoint that ``_last_checkpoint`` names; where the hint is missing, stale or corrupt,
    or where it names a checkpoint that is not there, all of the log is listed.

    Args:
        store: the table's folder.
        version: the version, or None for the newest.
        hinted: whether to look at the hint at all.
        unreadable: keys of checkpoint files that turned out to be damaged; the version is built without them.

    Raises:
        TableNotFoundError: there is no log.
        VersionNotFoundError: the version does not exist, or can no longer be rebuilt.
        InvalidLogError: a commit is missing.
    """
    start = _hint(store) if hinted else None
    if start is not None and (version is None or start <= version):
        try:
            segment = build_segment(list_log(store, start), version=version)
        except (InvalidLogError, VersionNotFoundError):
            segment = None  # the hint may be to blame; the whole listing decides
        if segment is not None and segment.checkpoint is not None:
            return segment
    segment = _of_the_whole_log(store, version, unreadable)
    if segment is None:
        raise TableNotFoundError(f"there is no Delta table at {store.uri}: its folder {LOG} has no commit")
    return segment


def _of_the_whole_log(store: Store, version: int | None, unreadable: Collection[str]) -> LogSegment | None:
    listing = list_log(store)
    for _ in range(0 if store.capabilities.remote else _LISTED_AGAIN):
        try:
            return build_segment(listing, version=version, unreadable=unreadable)
        except InvalidLogError:
            # A folder that is listed while files come may show a version, and not the one that came before it.
            before, listing = listing, list_log(store)
            if listing == before:
                break
    return build_segment(listing, version=version, unreadable=unreadable)


def list_log(store: Store, start: int = 0) -> Listing:
    """Key, size in bytes and modification time in milliseconds of the log's files of the versions from ``start`` on.

    A store that can only list what begins with a prefix is asked for the versions that share all digits with ``start``
    but the last two, and then for the next hundred. Where that may not be all, it is asked for the whole log.
    """
    with store_errors("list the log"):
        if start and store.capabilities.remote and not store.capabilities.list_after:
            listing: Listing = []
            for hundred in (start // 100, start // 100 + 1):
                listing += _listed(store, f"{LOG}/{hundred:018d}", start)
                if commit_key(100 * hundred + 99) not in (key for key, _, _ in listing):
                    break
            else:
                return _listed(store, VERSIONED, start)
            # Versions follow on from each other, unless cleanup has been here.
            if any(key.startswith(f"{LOG}/{start:020d}.") for key, _, _ in listing):
                return listing
        return _listed(store, VERSIONED, start)


def _listed(store: Store, prefix: str, start: int) -> Listing:
    return [(info.key, info.size, info.mtime_ms) for info in store.list(prefix=prefix, after=_before(start))]


def _before(version: int) -> str | None:
    """What keys are listed after, for those of the versions from this one on."""
    return f"{LOG}/{version:020d}" if version else None


def newest_version(store: Store, after: int) -> int:
    """The newest version of which there is a commit file, or ``after`` where none is newer. Raises ``StoreError``."""
    if store.capabilities.remote:
        keys = [key for key, _, _ in list_log(store, max(after, 0))]
    else:
        with store_errors("list the log"):
            keys = store.list_keys(VERSIONED, _before(max(after, 0)))
    # Keys ascend, and so do versions.
    names = map(parse_log_name, reversed(keys))
    return next((name.version for name in names if name is not None and name.kind == "commit"), after)


def has_log(store: Store) -> bool:
    """Whether there is a log: a commit or a checkpoint, readable or not. Costs one request, however long the log."""
    with store_errors("list the log"):
        names = (parse_log_name(info.key) for info in store.list(prefix=VERSIONED))
        return any(name is not None and (name.kind == "commit" or name.is_checkpoint) for name in names)


def read_commits(store: Store, files: Sequence[LogFile]) -> list[list[AnyAction]]:
    """The actions of each commit or compacted commit, in order.

    Raises:
        ObjectNotFoundError: a file is gone, which log cleanup may do while we read.
        InvalidLogError: a file breaks the protocol.
    """
    return [decode_commit(data, file.key) for file, data in zip(files, commit_contents(store, files), strict=True)]


def commit_contents(store: Store, files: Sequence[LogFile]) -> list[bytes]:
    """The content of each, in order. Raises as :func:`read_commits`."""
    for file in files:
        if file.size > _LONGEST_COMMIT:
            raise InvalidLogError(f"it has {file.size:,} bytes; at most {_LONGEST_COMMIT:,} are read", file=file.key)
    try:
        return list(store.get_many([file.key for file in files]))
    except ObjectNotFoundError:
        raise
    except StorageError as error:
        raise StoreError(f"cannot read the log: {error}") from error


def newer_commits(store: Store, segment: LogSegment) -> tuple[tuple[LogFile, ...], LogSegment] | None:
    """What was committed after a segment, by one listing of the log's tail.

    The tail begins with the newest commit that an earlier listing has shown. So commits of our own are seen here for
    the first time, and what precedes them tells whether this is still the same table.

    Returns:
        The commits after it, none if there are none, with the segment of the newest version: the same one where nothing
        is new. None where they do not follow on from it, or where the commit by which it is known is gone or is another
        one: the log was cleaned up, or the table was replaced.
    """
    known = segment.listed
    if known is None:
        return None
    listing = list_log(store, known.version)
    if (known.key, known.size, known.mtime_ms) not in listing:
        return None
    commits, highest = [], known.version
    for key, size, mtime_ms in listing:
        name = parse_log_name(key)
        if name is None:
            continue
        highest = max(highest, name.version)
        if name.kind == "commit" and name.version > known.version:
            commits.append(LogFile(key, size, mtime_ms, name.version, name.hi))
    ours = segment.version - known.version
    sizes = [file.size for file in segment.commits[len(segment.commits) - ours :]]
    if highest != known.version + len(commits) or [file.size for file in commits[:ours]] != sizes:
        return None
    return tuple(commits[ours:]), _extended(segment, tuple(commits), listing) if commits else segment


def still_newest(store: Store, segment: LogSegment) -> LogSegment | None:
    """The segment of the same version, if that is the newest and the table is the same one. None: only a listing tells.

    Three looks at single files, however long the log. They tell what the listing of :func:`newer_commits` does: the
    commit by which the log is known is there as it was, that of the version is as long as it was, and behind it there
    is none. (Cleanup begins with the oldest versions: it leaves no gap.) A store far away answers to three requests
    no sooner than to one listing, and rounds the times of files.
    """
    known, last = segment.listed, segment.last_commit
    if known is None or last is None or last.version > known.version + 1:
        return None
    with store_errors("look at the log"):
        try:
            found = store.head(known.key)
            if (found.size, found.mtime_ms) != (known.size, known.mtime_ms):
                return None
            if last is not known:
                found = store.head(last.key)
        except ObjectNotFoundError:
            return None
        try:
            store.head(commit_key(segment.version + 1))
        except ObjectNotFoundError:
            return segment if last is known else segment.shown(found.size, found.mtime_ms)
    return None


def _extended(segment: LogSegment, commits: tuple[LogFile, ...], listing: Listing) -> LogSegment:
    """The segment with the commits that a listing shows behind those it has shown before; from a newer checkpoint on,
    if there is one by now.
    """
    version = commits[-1].version
    try:
        newest = build_segment(listing, version=version)
    except InvalidLogError:
        newest = None
    if newest is not None and newest.checkpoint is not None:
        return newest
    key = checksum_key(version)
    checksum = next((LogFile(*entry, version, version) for entry in listing if entry[0] == key), None)
    before = segment.commits[: len(segment.commits) - (segment.version - commits[0].version + 1)]
    return LogSegment(version, segment.checkpoint, before + commits, checksum, commits[-1], commits[-1])


def _hint(store: Store) -> int | None:
    """The version that ``_last_checkpoint`` names, if it is there and makes sense.

    One that cannot be read is none: it only saves time. Where the store is what fails, the listing tells.
    """
    try:
        hint = parse_last_checkpoint(store.get_range(last_checkpoint_key(), 0, _LONGEST_HINT))
    except StorageError:
        return None
    return None if hint is None else hint.version
