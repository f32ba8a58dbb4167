"""Log cleanup: removing files of the log after their retention (PROTOCOL.md, "Metadata Cleanup").

A version is kept while its commit is younger than ``delta.logRetentionDuration``, counted from the last midnight (UTC)
as in delta-spark. All files before the newest complete checkpoint from which the oldest kept version can be built are
removed; that checkpoint and its own commit are kept, so that the versions between the two remain readable.

Sidecars are removed when no kept checkpoint names them. If the checkpoints of a table have names that old readers do
not know, the newest one gets a classic name too before commits are removed: old readers then find the protocol, and
report that they cannot read the table.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from refdelta.core.commit.intent_file import FOLDER, parse_intent_key
from refdelta.core.commit.intents import in_window
from refdelta.core.log.paths import SIDECARS, VERSIONED, checkpoint_key, parse_log_name
from refdelta.core.log.segment import build_segment, complete_checkpoints
from refdelta.engine.log.checkpoint import sidecars_of
from refdelta.engine.log.checkpoint_write import write_checkpoint
from refdelta.engine.log.identity import placed
from refdelta.engine.log.listing import list_log
from refdelta.engine.log.managed_log import STAGED, folder_of, maintenance_refused, managed_by, staged_version
from refdelta.engine.log.snapshot import Snapshot, load_snapshot
from refdelta.engine.parquet.files import log_errors, open_parquet, store_errors
from refdelta.errors import InvalidLogError, VersionNotFoundError
from refdelta.table.features import features_of
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from refdelta.core.log.segment import CheckpointFiles, LogFile
    from refdelta.engine.log.identity import Placement
    from refdelta_storage.base import ObjectInfo, Store

log = logging.getLogger("refdelta")

_DAY_MS = 24 * 60 * 60 * 1000
_MINUTE_MS = 60 * 1000


def cleanup_log(store: Store, snapshot: Snapshot, now_ms: int, *, retention_ms: int | None = None) -> list[str]:
    """Delete the expired files of the log: commits, checkpoints with their sidecars, checksums and compacted commits.

    Args:
        store: the table's folder.
        snapshot: the newest version, with the properties.
        now_ms: the time at which retention ends, in milliseconds since 1970.
        retention_ms: the retention in milliseconds, applied to the minute, even if cleanup is disabled; None for that
            of the properties.

    Returns:
        The deleted keys; none if ``delta.enableExpiredLogCleanup`` is false, if the table's catalog does not permit it,
        or if no checkpoint covers the versions before the kept ones.

    Raises:
        InvalidLogError: the sidecars of a kept checkpoint cannot be read; then no sidecar is deleted.
        StoreError: the store refused or failed. Files are deleted from the oldest on, so that no gap remains.
    """
    properties = snapshot.properties
    if maintenance_refused(store) is not None:
        return []
    if retention_ms is not None:
        expired_before = (now_ms - retention_ms) // _MINUTE_MS * _MINUTE_MS
    elif properties.enable_expired_log_cleanup:
        expired_before = (now_ms - properties.log_retention_ms) // _DAY_MS * _DAY_MS
    else:
        return []
    listing, oldest_kept = _expired(snapshot, store, expired_before)
    names = [(name, info.key) for info in listing if (name := parse_log_name(info.key)) is not None]
    if all(name.hi >= oldest_kept for name, _ in names):
        return []
    keep = _first_needed(store, listing, oldest_kept)
    # With checkpointProtection, the versions before the protected one may only be removed all together.
    if keep is None or keep < properties.require_checkpoint_protection_before_version:
        return []
    infos = {info.key: info for info in listing}
    # A compacted file that begins before the checkpoint goes, too: no kept version is built from it.
    keys = [key for _, key in sorted((name.version, key) for name, key in names if name.version < keep)]
    v2 = "v2Checkpoint" in features_of(snapshot.protocol)
    with placed(store, snapshot.identity, snapshot.version) as placement:
        if v2:
            _name_one_classic(placement, now_ms)
            placement.check()
        with store_errors("clean up the log"):
            if snapshot.is_managed:
                placement.store.delete(keys)  # of what its catalog has ratified
            else:
                placement.store.delete_unchanged([infos[key] for key in keys])
    keys += _clean_staged(store, min(expired_before, now_ms - _DAY_MS))
    keys += _clean_intents(store, keep)
    if v2 and any(name.is_checkpoint for name, key in names if name.hi < keep):
        keys += _clean_sidecars(store, min(expired_before, now_ms - _DAY_MS))
    log.debug("%s: removed %d expired files of the log; it begins with version %d now", store.uri, len(keys), keep)
    return keys


def _name_one_classic(placement: Placement, now_ms: int) -> None:
    """Write the newest checkpoint with a classic name too (PROTOCOL.md, "Metadata Cleanup")."""
    store = placement.store
    checkpoints = complete_checkpoints(list_log(store))
    newest = max((checkpoint.version for checkpoint in checkpoints), default=-1)
    there = [checkpoint for checkpoint in checkpoints if checkpoint.version == newest]
    if not there or any(checkpoint.kind != "uuid" for checkpoint in there):
        return
    key = there[0].files[0].key
    if key.endswith(".parquet"):
        with store_errors(f"copy {key}"):
            data = store.get(key)
            placement.writes(checkpoint_key(newest), data)
            store.put_if_absent(checkpoint_key(newest), data)
        return
    write_checkpoint(store, load_snapshot(store, newest), now_ms=now_ms, policy="classic")


def _clean_intents(store: Store, oldest: int) -> list[str]:
    """Delete the intents that no version from the oldest kept one on may have as members."""
    with store_errors("clean up the intents"):
        found = [(parse_intent_key(info.key), info.key) for info in store.list(prefix=f"{FOLDER}/i-")]
        keys = [key for name, key in found if name is not None and not in_window(name[0], oldest)]
        store.delete(keys)
    return keys


def _clean_sidecars(store: Store, written_before: int) -> list[str]:
    """Delete old sidecars that no checkpoint names. Younger ones may belong to a checkpoint that is being written."""
    with store_errors("list the sidecars"):
        found = [info.key for info in store.list(prefix=f"{SIDECARS}/") if info.mtime_ms < written_before]
    # Names in folders, and hidden ones, are temporary files of other programs.
    old = [key for key in found if (name := key.removeprefix(f"{SIDECARS}/"))[:1] not in "._" and "/" not in name]
    if not old:
        return []
    checkpoints = complete_checkpoints(list_log(store))
    named = {key for checkpoint in checkpoints for key in _sidecars_of(store, checkpoint)}
    keys = [key for key in old if key not in named]
    with store_errors("clean up the sidecars"):
        store.delete(keys)
    return keys


def _clean_staged(store: Store, written_before: int) -> list[str]:
    """Delete old staged commits of a catalog-managed table: those that were published, and those that lost."""
    managed = managed_by(store)
    if managed is None:
        return []
    answer = managed.ask()
    needed = {f"{STAGED}/{commit.file_name}" for commit in answer.commits}
    with store_errors("clean up the staged commits"):
        old = [
            info.key
            for info in store.list(prefix=f"{STAGED}/")
            if info.mtime_ms < written_before and info.key not in needed and staged_version(info.key) <= answer.latest
        ]
        store.delete(old)
    return old


def _sidecars_of(store: Store, checkpoint: CheckpointFiles) -> list[str]:
    try:
        return [] if checkpoint.kind == "multipart" else sidecars_of(store, checkpoint)
    except ObjectNotFoundError:
        return []  # another cleanup removed it meanwhile


def _expired(snapshot: Snapshot, store: Store, expired_before: int) -> tuple[list[ObjectInfo], int]:
    """The log's files up to the oldest version whose commit has not expired, and that version. The newest version never
    expires.

    The time of a commit is that of its file, moved forward where needed so that times rise with versions. The listing
    ends at that version: the names of a version's other files sort before the name of its commit.
    """
    latest, newest = 0, snapshot.version
    listing: list[ObjectInfo] = []
    with store_errors("list the log"):
        # The time of a commit in a catalog is that of its writer's clock, which may be slow.
        files = folder_of(store).list(prefix=VERSIONED) if snapshot.is_managed else ()
        made = {info.key: info.mtime_ms for info in files}
        for info in store.list(prefix=VERSIONED):
            listing.append(info)
            name = parse_log_name(info.key)
            if name is None or name.kind != "commit":
                continue
            latest = max(latest, info.mtime_ms, made.get(info.key, 0))
            if latest > expired_before or name.version >= newest:
                return listing, min(name.version, newest)
    return listing, newest


def _first_needed(store: Store, listing: list[ObjectInfo], version: int) -> int | None:
    """The version of the checkpoint from which ``version`` is built, or None if it is built from commits alone.

    A name is not enough: a checkpoint with an unreadable Parquet footer, or with a missing sidecar, does not count.
    """
    damaged: set[str] = set()
    files = [(info.key, info.size, info.mtime_ms) for info in listing]
    while True:
        try:
            segment = build_segment(files, version=version, unreadable=damaged)
        except (InvalidLogError, VersionNotFoundError):
            return None
        if segment is None or segment.checkpoint is None:
            return None
        parts = segment.checkpoint.files
        bad = [file.key for file in parts if not _sound(store, file)] or (
            [] if _whole(store, segment.checkpoint) else [file.key for file in parts]
        )
        if not bad:
            return segment.checkpoint.version
        damaged.update(bad)


def _whole(store: Store, checkpoint: CheckpointFiles) -> bool:
    """Whether all sidecars of a checkpoint exist."""
    try:
        named = _sidecars_of(store, checkpoint)
    except InvalidLogError:
        return False
    with store_errors("list the sidecars"):
        return not named or set(named) <= {info.key for info in store.list(prefix=f"{SIDECARS}/")}


def _sound(store: Store, file: LogFile) -> bool:
    if not file.key.endswith(".parquet"):
        return True
    try:
        with log_errors(file.key):
            open_parquet(store, file.key, file.size, footer_only=True)
    except (InvalidLogError, ObjectNotFoundError):
        return False
    return True
