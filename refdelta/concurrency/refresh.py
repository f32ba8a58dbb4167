"""A winner that adds a file again as it was, to refresh what the log says about it: statistics, tags, row ids.

It conflicts with nothing. What we say about the file takes over its words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from refdelta.concurrency.summary import CommitSummary
from refdelta.protocol.actions import Add, AnyAction, Remove
from refdelta.protocol.paths import same_path
from refdelta.protocol.replay import file_key
from refdelta.protocol.stats import widened


def known_vectors(staged: CommitSummary) -> dict[str, str | None]:
    """The files that a transaction removes or adds again as a whole, each with the id of the deletion vector it had."""
    return {**dict(map(file_key, staged.adds)), **dict(map(file_key, staged.removes))}


def take_over(actions: Sequence[AnyAction], news: Mapping[str, Add]) -> list[AnyAction]:
    """Our actions, with what the winner says about the same files."""
    return [_take_over(action, news) for action in actions]


def _take_over(action: AnyAction, news: Mapping[str, Add]) -> AnyAction:
    if not isinstance(action, (Add, Remove)) or same_path(action.path) not in news:
        return action
    theirs = news[same_path(action.path)]
    if isinstance(action, Remove):
        return msgspec.structs.replace(
            action,
            tags=theirs.tags,
            base_row_id=theirs.base_row_id,
            default_row_commit_version=theirs.default_row_commit_version,
        )
    own = msgspec.structs.replace(theirs, path=action.path, data_change=action.data_change)
    if file_key(action) == file_key(theirs):
        return own
    return msgspec.structs.replace(own, deletion_vector=action.deletion_vector, stats=widened(theirs.stats))
