"""When a checkpoint is due: reading the commits after the last one would cost as much as writing another one.

A table with the property ``delta.checkpointInterval`` has one at each multiple of it, as in delta-spark. Of other
tables the costs decide, so that whole checkpoints become seldom as a table grows, and reading the commits never takes
longer than writing what would spare it. All writers of a version decide the same, from the log alone.
"""

from __future__ import annotations

import msgspec

from refdelta.core.log.segment import LogSegment

EVERY = 10
"""Where the costs decide, they are compared at the multiples of this version number, so that one writer decides about
each, and a checkpoint that fails is made up for soon.
"""

MOST = 2_000
"""More commits than this are never left without a checkpoint, whatever a checkpoint costs: each reader has to fetch
them, and other engines fetch them one by one.
"""

LISTED_ITSELF = 5_000
"""The most files that a checkpoint of the policy v2 lists itself. Of more, sidecars list them, which later checkpoints
keep.
"""


class Costs(msgspec.Struct, frozen=True):
    """The costs of a log, in microseconds. They were measured; only their ratios count.

    Attributes:
        commit: reading one commit file.
        byte: decoding one byte of it.
        checkpoint: writing a checkpoint without files.
        file: writing one file's entry.
    """

    commit: float
    byte: float
    checkpoint: float
    file: float


NEAR = Costs(commit=50, byte=0.005, checkpoint=5_000, file=0.8)
"""A disk of this machine: a checkpoint each 100 small commits of a new table, each 450 or so at 20,000 files."""

FAR = Costs(commit=2_000, byte=0.025, checkpoint=240_000, file=2)
"""An object store, at 60 ms a request: 32 commits are read at once, a checkpoint takes four requests in a row."""


def is_due(segment: LogSegment, files: int, *, interval: int | None, remote: bool, version: int | None = None) -> bool:
    """True if a checkpoint is due.

    Args:
        segment: the log files from which a reader builds the version.
        files: the number of file entries that the checkpoint would write.
        interval: ``delta.checkpointInterval``; None if the table does not have the property.
        remote: whether the log is in an object store.
        version: the version whose writer asks; None for that of the segment, which may be a later one.
    """
    at = segment.version if version is None else version
    base = -1 if segment.checkpoint is None else segment.checkpoint.version
    if at <= 0 or base >= at:
        return False
    if interval is not None:
        return at % interval == 0
    if at % EVERY:
        return False
    if at - base >= MOST:
        return True
    costs = FAR if remote else NEAR
    size = sum(file.size for file in segment.commits)
    return len(segment.commits) * costs.commit + size * costs.byte >= costs.checkpoint + files * costs.file
