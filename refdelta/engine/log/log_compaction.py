"""Writing log compaction files: what some commits come to, in one file (PROTOCOL.md, "Log Compaction Files").

A reader who finds one reads it instead of the commits, which stay. It stands for a piece of the log in the midst of
others, so it keeps what earlier versions may have to be told of: that files were removed, and domains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from refdelta.core.log.actions import Add, AnyAction, DomainMetadata, Metadata, Protocol, Remove, Txn
from refdelta.core.log.codec import encode_commit
from refdelta.core.log.paths import compacted_key, parse_log_name
from refdelta.core.log.replay import FileKey, file_key
from refdelta.core.log.segment import LogFile
from refdelta.engine.log.commits import read_commits
from refdelta.engine.log.listing import find_segment, list_log
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import InvalidArgumentError, VersionNotFoundError
from refdelta_storage.base import Created

if TYPE_CHECKING:
    from collections.abc import Iterable

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta_storage.base import Store

MOST_BYTES = 64 * 1024 * 1024
"""Commits of no more bytes than this are compacted into one file: all of them are held at once. More of them are what
a checkpoint is for."""


def reconciled(commits: Iterable[Iterable[AnyAction]]) -> list[AnyAction]:
    """What commits in a row come to: of all that refers to one thing, the newest.

    Implements PROTOCOL.md, "Action Reconciliation", for a part of the log. As in a checkpoint, no action says that data
    changes, there is no commitInfo and no cdc; other than in one, removed domains stay, and tombstones of any age.
    """
    few: dict[tuple[type, str], AnyAction] = {}
    files: dict[FileKey, Add | Remove] = {}
    for action in (action for commit in commits for action in commit):
        match action:
            case Add() | Remove():
                key = file_key(action)
                files.pop(key, None)
                files[key] = structs.replace(action, data_change=False)
            case Protocol() | Metadata():
                few[type(action), ""] = action
            case Txn():
                few[Txn, action.app_id] = action
            case DomainMetadata():
                few[DomainMetadata, action.domain] = action
    return [*few.values(), *files.values()]


def compact_log(store: Store, snapshot: Snapshot, start: int | None = None, end: int | None = None) -> str | None:
    """Write the compaction file of some versions.

    Args:
        store: the table's folder.
        snapshot: the newest version.
        start: the first one; None for the one behind the newest checkpoint.
        end: the last one; None for the snapshot's.

    Returns:
        The file's key; None where it is there already, where the commits come to nothing, or where there is only one
        version and nothing was said.

    Raises:
        VersionNotFoundError: a commit is not there, or not any more.
        InvalidArgumentError: versions in no order, or commits of more than :data:`MOST_BYTES`.
        InvalidLogError: a commit breaks the protocol.
        StoreError: the store refused or failed.
    """
    lo = _behind_the_checkpoint(store) if start is None else start
    hi = snapshot.version if end is None else end
    if start is None and lo >= hi:
        return None
    if not 0 <= lo < hi:
        raise InvalidArgumentError(f"versions {lo} to {hi} are no two versions or more in a row")
    files = _commits(store, lo, hi)
    size = sum(file.size for file in files)
    if size > MOST_BYTES:
        raise InvalidArgumentError(
            f"the commits of versions {lo} to {hi} have {size:,} bytes, and at most {MOST_BYTES:,} are put together; a "
            "checkpoint takes any number"
        )
    actions = reconciled(read_commits(store, files))
    if not actions:
        return None  # readers take no file without actions
    key = compacted_key(lo, hi)
    with store_errors(f"write {key}"):
        return key if isinstance(store.put_if_absent(key, encode_commit(actions)), Created) else None


def _behind_the_checkpoint(store: Store) -> int:
    checkpoint = find_segment(store).checkpoint
    return 0 if checkpoint is None else checkpoint.version + 1


def _commits(store: Store, lo: int, hi: int) -> list[LogFile]:
    found = {}
    for key, size, mtime_ms in list_log(store, lo):
        name = parse_log_name(key)
        if name is not None and name.kind == "commit" and lo <= name.version <= hi:
            found[name.version] = LogFile(key, size, mtime_ms, name.version, name.hi)
    missing = next((version for version in range(lo, hi + 1) if version not in found), None)
    if missing is not None:
        raise VersionNotFoundError(f"there is no commit of version {missing}")
    return [found[version] for version in range(lo, hi + 1)]
