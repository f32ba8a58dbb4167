"""Whether the versions that the log still has show a feature in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refdelta.core.log.actions import Add, Metadata, Remove
from refdelta.core.log.paths import parse_log_name
from refdelta.core.log.segment import LogFile
from refdelta.core.table.features import REGISTRY, Facts
from refdelta.engine.log.listing import list_log, read_commits
from refdelta.engine.log.snapshot import load_snapshot

if TYPE_CHECKING:
    from refdelta.core.log.actions import AnyAction
    from refdelta.engine.log.listing import Listing
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.alter.removals import Removal

_AT_ONCE = 100


def oldest_commit(listing: Listing) -> int:
    """The oldest version of which there is a commit. Raises ``ValueError`` where there is none."""
    names = (parse_log_name(key) for key, _, _ in listing)
    return min(name.version for name in names if name is not None and name.kind == "commit")


def history_has_traces(snapshot: Snapshot, name: str, removal: Removal) -> bool:
    """Whether a version that can still be read, or a commit that is still there, shows the feature in use.

    Args:
        snapshot: the newest version, which is known to be clean.
        name: the feature.
        removal: what it leaves in a table.
    """
    listing = list_log(snapshot.store)
    names = [(found, entry) for entry in listing if (found := parse_log_name(entry[0])) is not None]
    if name == "v2Checkpoint" and any(found.kind == "uuid" for found, _ in names):
        return True
    oldest = oldest_commit(listing)
    if oldest > 0:
        first = load_snapshot(snapshot.store, oldest)
        if _used_by(name, first.metadata) or removal.left(first):
            return True
    commits = [
        LogFile(*entry, found.version, found.hi)
        for found, entry in names
        if found.kind == "commit" and found.version <= snapshot.version
    ]
    for start in range(0, len(commits), _AT_ONCE):
        for actions in read_commits(snapshot.store, commits[start : start + _AT_ONCE]):
            if any(_shows(name, action) for action in actions):
                return True
    return False


def _shows(name: str, action: AnyAction) -> bool:
    if isinstance(action, Metadata):
        return _used_by(name, action)
    if name == "deletionVectors" and isinstance(action, (Add, Remove)):
        return action.deletion_vector is not None
    return False


def _used_by(name: str, metadata: Metadata) -> bool:
    return REGISTRY[name].active(Facts.of(metadata.schema_string, metadata.configuration))
