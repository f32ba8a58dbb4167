"""Rows that a transaction takes out of files, and the actions that say so.

What is staged is "these rows of this file". It becomes a Remove and an Add with a larger deletion vector, or a Remove
alone where no row is left, each time the commit is encoded: by then the file may stand otherwise than it was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
from pyroaring import BitMap64

from refdelta.core.log.actions import Add, AnyAction, DeletionVectorDescriptor, Remove
from refdelta.core.log.footprint import Footprint
from refdelta.core.log.paths import same_path
from refdelta.core.log.replay import file_key
from refdelta.core.log.statistics import num_records, widened
from refdelta.core.rows.sets import All, Rows, union


@dataclass(frozen=True, slots=True)
class RowDelete:
    """Rows of one file that are to go.

    Attributes:
        add: the log's entry, as it was read. Its ``stats`` have ``numRecords``, unless all rows go.
        base: the rows that its deletion vector hid then.
        rows: the rows to hide, none of which is in ``base``.
    """

    add: Add
    base: BitMap64
    rows: Rows

    def __post_init__(self) -> None:
        if isinstance(self.rows, All):
            return
        vector = self.add.deletion_vector
        if len(self.base) != (0 if vector is None else vector.cardinality) or not self.base.isdisjoint(self.rows):
            raise ValueError(f"{self.add.path}: the rows to delete, or what is hidden already, are of another vector")
        if num_records(self.add) is None:
            raise ValueError(f"{self.add.path}: a file that gets a deletion vector needs numRecords")

    def and_rows(self, other: RowDelete) -> RowDelete:
        """This one, and the rows of another one of the same file."""
        return RowDelete(self.add, self.base, union(self.rows, other.rows))


def tombstone(add: Add, *, now_ms: int, data_change: bool) -> Remove:
    """The Remove of an entry of the log: it names the entry's deletion vector, else the logical file would live on
    (PROTOCOL.md, "Remove File").

    Args:
        add: the entry.
        now_ms: when it was removed, in milliseconds since 1970.
        data_change: whether rows of the table go with it.
    """
    return Remove(
        path=add.path,
        deletion_timestamp=now_ms,
        data_change=data_change,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        tags=add.tags,
        deletion_vector=add.deletion_vector,
        base_row_id=add.base_row_id,
        default_row_commit_version=add.default_row_commit_version,
    )


def with_vector(add: Add, vector: DeletionVectorDescriptor, *, records: int | None, data_change: bool) -> Add:
    """The entry with a larger deletion vector. Its bounds still hold, but need not be reached by a live row
    (PROTOCOL.md, "Per-file Statistics").

    Args:
        add: the entry.
        vector: its vector from now on.
        records: how many rows the file has, for an entry that does not say; every entry with a vector must.
        data_change: whether rows of the table go.
    """
    stats = widened(add.stats, records)
    return msgspec.structs.replace(add, deletion_vector=vector, stats=stats, data_change=data_change)


# --- files that a winner has refreshed ----------------------------------------------------------------------------
#
# A winner that adds a file again as it was, to say other words about it (statistics, tags, row ids), conflicts with
# nothing. What we say about the file takes over its words.


def known_vectors(staged: Footprint) -> dict[str, str | None]:
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
