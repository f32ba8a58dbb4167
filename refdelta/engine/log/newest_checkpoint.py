"""The newest checkpoint that a handle knows, also of a version whose listing is long past.

Checkpoints are written in the background, after the commit of their version. The successive snapshots of a handle share
one :class:`NewestCheckpoint`, so that the next of them begins at the new checkpoint without another listing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refdelta.core.log.actions import Sidecar
    from refdelta.core.log.segment import CheckpointFiles


@dataclass(frozen=True, slots=True)
class Layout:
    """The sidecars of a checkpoint that list the first rows of a list of live files, in their order.

    Attributes:
        key: the key of the checkpoint's file.
        lineage: the :attr:`~refdelta.engine.log.state.LiveFiles.lineage` of the list.
        sidecars: the sidecars, each with the number of its rows.
    """

    key: str
    lineage: object
    sidecars: tuple[tuple[Sidecar, int], ...]


class NewestCheckpoint:
    """The checkpoint that was written or found last.

    Attributes:
        files: the checkpoint; None if it is that of the snapshot's own listing.
        layout: its sidecars, if they are known to list the first rows of the snapshot's files.
        asked: the last version for which a checkpoint was due and somebody took care of it.
        without_vacuum: a version and a time in milliseconds since 1970: none of the commits from this time up to this
            version is of a VACUUM.
    """

    __slots__ = ("asked", "files", "layout", "without_vacuum")

    def __init__(self, layout: Layout | None = None) -> None:
        self.files: CheckpointFiles | None = None
        self.layout = layout
        self.asked = -1
        self.without_vacuum = (-1, 0)
