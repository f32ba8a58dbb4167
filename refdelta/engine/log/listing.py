"""Listings of the log: the files that make a version, newer commits, and the times of commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refdelta.core.log.paths import LOG, VERSIONED, checksum_key, commit_key, last_checkpoint_key, parse_log_name
from refdelta.core.log.segment import (
    CheckpointFiles,
    LogFile,
    LogSegment,
    build_segment,
    complete_checkpoints,
    parse_last_checkpoint,
)
from refdelta.core.log.timestamps import in_commit_timestamp
from refdelta.engine.log.managed_log import listed, managed_by
from refdelta.engine.parquet.files import log_bytes, store_errors
from refdelta.errors import InvalidLogError, TableNotFoundError, VersionNotFoundError
from refdelta_storage.errors import ObjectNotFoundError, StorageError

if TYPE_CHECKING:
    from collections.abc import Collection

    from refdelta_storage.base import Store

Listing = list[tuple[str, int, int]]
"""Key, size in bytes, and modification time in milliseconds since 1970 of each file."""

Tagged = list[tuple[str, int, int, Any]]
"""The same with the tag of each file; see :class:`~refdelta.core.log.segment.LogFile`."""

# No engine writes a hint that is nearly as long; a sparse file may be longer than any memory.
_LONGEST_HINT = 2**24
# A local log that lacks a version is listed up to so many times, as long as the listing changes.
_LISTED_AGAIN = 20


def find_segment(
    store: Store, version: int | None = None, *, hinted: bool = True, unreadable: Collection[str] = ()
) -> LogSegment:
    """The files that make a version.

    The listing starts at the checkpoint of ``_last_checkpoint``. If that hint is missing, stale or corrupt, or if its
    checkpoint does not exist, the whole log is listed.

    Args:
        store: the table's folder.
        version: the version, or None for the newest.
        hinted: whether to read the hint.
        unreadable: keys of damaged checkpoint files; the version is built without them.

    Raises:
        TableNotFoundError: there is no log.
        VersionNotFoundError: the version does not exist, or can no longer be rebuilt.
        InvalidLogError: a commit is missing.
    """
    start = hinted_version(store) if hinted else None
    if start is not None and (version is None or start <= version):
        try:
            segment = build_segment(tagged_log(store, start), version=version)
        except (InvalidLogError, VersionNotFoundError):
            segment = None  # the hint may be to blame; the whole listing decides
        if segment is not None and segment.checkpoint is not None:
            return segment
    segment = _of_the_whole_log(store, version, unreadable)
    if segment is None:
        raise TableNotFoundError(f"there is no Delta table at {store.uri}: its folder {LOG} has no commit")
    return segment


def _of_the_whole_log(store: Store, version: int | None, unreadable: Collection[str]) -> LogSegment | None:
    listing = tagged_log(store)
    for _ in range(0 if store.capabilities.remote else _LISTED_AGAIN):
        try:
            return build_segment(listing, version=version, unreadable=unreadable)
        except InvalidLogError:
            # A listing that runs while files are written may show a version, but not the one before it.
            before, listing = listing, tagged_log(store)
            if listing == before:
                break
    return build_segment(listing, version=version, unreadable=unreadable)


def list_log(store: Store, start: int = 0) -> Listing:
    """The log's files of the versions from ``start`` on, by key."""
    return [(key, size, mtime_ms) for key, size, mtime_ms, _ in tagged_log(store, start)]


def tagged_log(store: Store, start: int = 0) -> Tagged:
    """The log's files of the versions from ``start`` on, by key.

    A store that can list by prefix only is asked for the versions that share all digits but the last two with
    ``start``, and for the next hundred versions. Where there may be more, it is asked for the whole log.
    """
    with store_errors("list the log"):
        if start and store.capabilities.remote and not store.capabilities.list_after:
            listing: Tagged = []
            for hundred in (start // 100, start // 100 + 1):
                listing += _listed(store, f"{LOG}/{hundred:018d}", start)
                if commit_key(100 * hundred + 99) not in (key for key, *_ in listing):
                    break
            else:
                return _listed(store, VERSIONED, start)
            # Without cleanup, versions have no gaps.
            if any(name.version == start for key, *_ in listing if (name := parse_log_name(key)) is not None):
                return listing
        return _listed(store, VERSIONED, start)


def _listed(store: Store, prefix: str, start: int) -> Tagged:
    return [(info.key, info.size, info.mtime_ms, info.tag) for info in store.list(prefix=prefix, after=_before(start))]


def _before(version: int) -> str | None:
    """The key after which a listing starts that is to show the versions from this one on."""
    return f"{LOG}/{version:020d}" if version else None


def newest_version(store: Store, after: int) -> int:
    """The newest version with a commit file, or ``after`` if there is none after it. Raises ``StoreError``."""
    if store.capabilities.remote:
        keys = [key for key, _, _ in list_log(store, max(after, 0))]
    else:
        with store_errors("list the log"):
            keys = store.list_keys(VERSIONED, _before(max(after, 0)))
    # Keys ascend, and so do versions.
    names = map(parse_log_name, reversed(keys))
    return next((name.version for name in names if name is not None and name.kind == "commit"), after)


def has_log(store: Store) -> bool:
    """Whether there is a log: a commit or a checkpoint, readable or not. One request for a log of any length."""
    with store_errors("list the log"):
        names = (parse_log_name(info.key) for info in store.list(prefix=VERSIONED))
        return any(name is not None and (name.kind == "commit" or name.is_checkpoint) for name in names)


def file_time(store: Store, key: str) -> int:
    """The modification time of a file of the log, as listings have it, in milliseconds since 1970 (UTC): some stores
    round the time that they return for a single object.

    Raises:
        InvalidLogError: the file does not exist.
    """
    with store_errors(f"look at {key}"):
        found = listed(store, key)
    if found is None:
        raise InvalidLogError("the commit file no longer exists", file=key)
    return found.mtime_ms


def timestamp_of_commit(store: Store, version: int) -> int:
    """The in-commit timestamp of a version, read from its commit file, in milliseconds since 1970 (UTC).

    Raises:
        InvalidLogError: the commit has none, or its file does not exist.
    """
    key = commit_key(version)
    try:
        return in_commit_timestamp(log_bytes(store, key), key)
    except ObjectNotFoundError as error:
        raise InvalidLogError("the commit file no longer exists", file=key) from error


def newer_commits(
    store: Store, segment: LogSegment, *, hinted: bool = False
) -> tuple[tuple[LogFile, ...], LogSegment] | None:
    """The commits after a segment, by one listing of the tail of the log.

    The tail begins with the newest commit that an earlier listing has shown. So the listing shows this transaction's
    own commits for the first time, and the commit before them, which proves that the table was not replaced.

    Args:
        store: the table's folder.
        segment: the log files of a version.
        hinted: whether the tail begins at the checkpoint of ``_last_checkpoint``, if that is newer than the segment's:
            another writer may have written it after its version was listed here.

    Returns:
        The newer commits, perhaps none, and the segment of the newest version, which is ``segment`` if there is nothing
        new. None if the commits do not continue the segment, or if the known commit is missing or has changed: the log
        was cleaned up, or the table was replaced.
    """
    known = segment.listed
    if known is None:
        return None
    base = -1 if segment.checkpoint is None else segment.checkpoint.version
    hint = hinted_version(store) if hinted else None
    listing = tagged_log(store, known.version if hint is None or hint <= base else min(hint, known.version))
    if not any(key == known.key and known.is_same(size, mtime_ms, tag) for key, size, mtime_ms, tag in listing):
        return None
    commits, highest = [], known.version
    for key, size, mtime_ms, tag in listing:
        name = parse_log_name(key)
        if name is None:
            continue
        highest = max(highest, name.version)
        if name.kind == "commit" and name.version > known.version:
            commits.append(LogFile(key, size, mtime_ms, name.version, name.hi, tag))
    ours = segment.version - known.version
    sizes = {file.version: file.size for file in segment.commits if file.version > known.version}
    if highest != known.version + len(commits) or len(commits) < ours:
        return None
    if any(file.size != sizes.get(file.version, file.size) for file in commits[:ours]):
        return None
    return tuple(commits[ours:]), _extended(segment, tuple(commits), listing) if commits or hinted else segment


def ratified_commits(store: Store, segment: LogSegment) -> tuple[tuple[LogFile, ...], LogSegment] | None:
    """The commits after a segment, as :func:`newer_commits` gives them, by one request to the table's catalog and none
    to its store.

    Only the catalog knows that a version is the newest one: files of the log may have been cleaned up since. None if
    some commits are published, so that the log has to be listed; or if no catalog manages the table.
    """
    managed = managed_by(store)
    if managed is None:
        return None
    with store_errors("ask for the newest version"):
        answer = managed.ask(segment.version + 1)
    if answer.latest - segment.version != len(answer.commits):
        return None
    commits = tuple(LogFile(*managed.shown(one), one.version, one.version) for one in answer.commits)
    if not commits:
        return (), segment
    newest = commits[-1]
    return commits, LogSegment(newest.version, segment.checkpoint, segment.commits + commits, None, newest, newest)


def still_newest(store: Store, segment: LogSegment) -> LogSegment | None:
    """The segment of the same version, if it is still the newest one; None if a listing is needed to know.

    Checks three single files, for a log of any length, to the same effect as the listing of :func:`newer_commits`: the
    commit of the version has the same size, the next commit does not exist, and the known commit is unchanged. (Cleanup
    begins with the oldest versions, so it leaves no gap.) The known commit comes last: if it is unchanged, what was
    seen before belongs to the same table. Not worth it for a remote store, where three requests take longer than one
    listing, and file times may be rounded.
    """
    known, last = segment.listed, segment.last_commit
    if known is None or last is None or last.version > known.version + 1:
        return None
    with store_errors("look at the log"):
        try:
            newest = None if last is known else store.head(last.key)
            if _is_file(store, commit_key(segment.version + 1)) or not is_unchanged(store, known):
                return None
        except ObjectNotFoundError:
            return None
    return segment if newest is None else segment.shown(newest.size, newest.mtime_ms, newest.tag)


def is_unchanged(store: Store, file: LogFile) -> bool:
    """Whether the file of a listing is there and is still the same object. Raises ``StorageError``."""
    try:
        found = store.head(file.key)
    except ObjectNotFoundError:
        return False
    return file.is_same(found.size, found.mtime_ms, found.tag)


def _is_file(store: Store, key: str) -> bool:
    try:
        store.head(key)
    except ObjectNotFoundError:
        return False
    return True


def _extended(segment: LogSegment, commits: tuple[LogFile, ...], listing: Tagged) -> LogSegment:
    """The segment extended by the commits that a listing shows; it starts at a newer checkpoint, if the listing has
    one.
    """
    version = commits[-1].version if commits else segment.version
    base = -1 if segment.checkpoint is None else segment.checkpoint.version
    try:
        newest = build_segment(listing, version=version)
    except InvalidLogError:
        newest = None
    if newest is not None and newest.checkpoint is not None and (commits or newest.checkpoint.version > base):
        return newest
    if not commits:
        return segment
    key = checksum_key(version)
    checksum = next((LogFile(*entry[:3], version, version) for entry in listing if entry[0] == key), None)
    before = tuple(file for file in segment.commits if file.version < commits[0].version)
    after = tuple(file for file in commits if file.version > base)
    return LogSegment(version, segment.checkpoint, before + after, checksum, commits[-1], commits[-1])


def newest_checkpoint_at(store: Store, first: int, last: int) -> CheckpointFiles | None:
    """The newest complete checkpoint of the versions from ``first`` to ``last``; None if there is none."""
    found = (one for one in complete_checkpoints(list_log(store, first)) if first <= one.version <= last)
    return max(found, key=lambda one: (one.version, one.kind == "uuid"), default=None)


def hinted_version(store: Store) -> int | None:
    """The version of the checkpoint to which ``_last_checkpoint`` points; None if the file is missing or malformed.

    The hint only saves time, so that errors are ignored here: if the store fails, the listing fails too.
    """
    try:
        hint = parse_last_checkpoint(store.get_range(last_checkpoint_key(), 0, _LONGEST_HINT))
    except StorageError:
        return None
    return None if hint is None else hint.version
