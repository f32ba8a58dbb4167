"""Reconciliation: from the actions of commits to the state of the table (PROTOCOL.md, "Action Reconciliation").

This is the reference. The engine does the same with columns of files, in ``refdelta/engine/log/state.py``; a
property-based test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from refdelta.core.errors import InvalidLogError
from refdelta.core.log.actions import (
    Add,
    AnyAction,
    Cdc,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Sidecar,
    Txn,
)
from refdelta.core.log.paths import same_path

FileKey = tuple[str, str | None]


def file_key(action: Add | Remove) -> FileKey:
    """The identity of a logical file: its normalized path and the id of its deletion vector, or None."""
    vector = action.deletion_vector
    return same_path(action.path), None if vector is None else vector.unique_id


class Replay:
    """The state of a table, built by applying commits from the oldest to the newest.

    The newest action counts for each logical file (:func:`file_key`), application id and metadata domain.

    Attributes:
        protocol: the newest protocol; None before the first.
        metadata: the newest metaData; None before the first.
        txns: application id to its newest ``txn``.
        domains: domain to its newest ``domainMetadata``, without removed domains.
        files: the live files, in the order of their newest action.
        tombstones: the removed files that were not added again, likewise.
        commit_info: the commitInfo of the last commit.
    """

    def __init__(self) -> None:
        self.protocol: Protocol | None = None
        self.metadata: Metadata | None = None
        self.txns: dict[str, Txn] = {}
        self.domains: dict[str, DomainMetadata] = {}
        self.files: dict[FileKey, Add] = {}
        self.tombstones: dict[FileKey, Remove] = {}
        self.commit_info: CommitInfo | None = None

    def apply(self, actions: Iterable[AnyAction]) -> None:
        """Apply one commit, or a checkpoint as the first of all."""
        self.commit_info = None
        for action in actions:
            match action:
                case Add():
                    self._refer(action)
                    self.files[file_key(action)] = action
                case Remove():
                    self._refer(action)
                    self.tombstones[file_key(action)] = action
                case Protocol():
                    self.protocol = action
                case Metadata():
                    self.metadata = action
                case Txn():
                    self.txns[action.app_id] = action
                case DomainMetadata():
                    self.domains.pop(action.domain, None)
                    if not action.removed:
                        self.domains[action.domain] = action
                case CommitInfo():
                    self.commit_info = action
                case Cdc() | Sidecar() | CheckpointMetadata():
                    pass  # of a commit's changes and of a checkpoint's layout, not of the state

    def _refer(self, action: Add | Remove) -> None:
        key = file_key(action)
        self.files.pop(key, None)
        self.tombstones.pop(key, None)


def validate_commit(actions: Iterable[AnyAction], version: int | None = None) -> None:
    """Check a commit before it is written against the requirements of PROTOCOL.md on every commit.

    Args:
        actions: the commit's actions.
        version: its version, if that is known: the first one needs protocol and metaData.

    Raises:
        InvalidLogError: the rule that it breaks. Nothing is to be written then.
    """
    found: dict[type, list[Any]] = {}
    for action in actions:
        found.setdefault(type(action), []).append(action)
    for kind, name in ((Protocol, "protocol"), (Metadata, "metaData"), (CommitInfo, "commitInfo")):
        if len(found.get(kind, ())) > 1:
            raise _illegal(f"it has {len(found[kind])} {name} actions; one is allowed")
        if version == 0 and kind not in found and kind is not CommitInfo:
            raise _illegal(f"the first version of a table needs a {name} action")
    for unique, key, what in _ONCE:
        if len(some := found.get(unique, ())) > 1:
            _once((getattr(action, key) for action in some), f"more than one {what}")
    adds, removes, changes = found.get(Add, ()), found.get(Remove, ()), found.get(Cdc, ())
    if adds and removes:
        added = set(map(file_key, adds))
        both = next((key for key in map(file_key, removes) if key in added), None)
        if both is not None:
            raise _illegal(f"it both adds and removes {both[0]!r} with the same deletion vector")
    if Sidecar in found or CheckpointMetadata in found:
        raise _illegal("it has an action that belongs in a checkpoint")
    if not all(a.path for files in (adds, removes, changes) for a in files):
        raise _illegal("it has a file without a path")
    for cdc in changes:
        if cdc.data_change:
            raise _illegal(f"the cdc file {cdc.path!r} says dataChange")


_ONCE = (
    (Txn, "app_id", "txn for the application"),
    (DomainMetadata, "domain", "domainMetadata for the domain"),
    (Add, "path", "add of the path"),
    (Remove, "path", "remove of the path"),
)


def _once(names: Iterable[str], reason: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise _illegal(f"it has {reason} {name!r}")
        seen.add(name)


def _illegal(reason: str) -> InvalidLogError:
    return InvalidLogError(f"the commit would break the protocol: {reason}")
