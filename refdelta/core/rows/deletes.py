"""Row deletes of a transaction, and the actions that they become.

A transaction stages the rows to delete by file. Each time the commit is encoded they become a Remove and an Add with a
larger deletion vector, or only a Remove if no row is left: winners may have changed the file since it was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
from pyroaring import BitMap64

from refdelta.core.errors import InvalidLogError
from refdelta.core.log.actions import Add, AnyAction, DeletionVectorDescriptor, Remove
from refdelta.core.log.footprint import Footprint
from refdelta.core.log.paths import same_path
from refdelta.core.log.replay import file_key
from refdelta.core.log.statistics import num_records, widened
from refdelta.core.rows.sets import All, Rows, union


@dataclass(frozen=True, slots=True)
class RowDelete:
    """Rows of one file to delete.

    Attributes:
        add: the add action that was read. Its ``stats`` have ``numRecords``, unless all rows are deleted.
        base: the rows that its deletion vector hid.
        rows: the rows to hide, none of them in ``base``.
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
        """The rows of both deletes, which are of the same file.

        Raises:
            InvalidLogError: they are of two adds of one file, so that its rows are live twice.
        """
        if self.add.deletion_vector != other.add.deletion_vector:
            raise live_twice(self.add.path)
        return RowDelete(self.add, self.base, union(self.rows, other.rows))


def live_twice(path: str) -> InvalidLogError:
    """The error for a file of which a version has two adds, with two deletion vectors. A commit has no two actions of a
    path, so no commit can remove both.
    """
    return InvalidLogError(
        f"the file {path!r} is live twice, with two deletion vectors: it can be read, but not changed; restore a "
        "version without it"
    )


def tombstone(add: Add, *, now_ms: int, data_change: bool) -> Remove:
    """The Remove of a file. It has the deletion vector of the add, which identifies the logical file (PROTOCOL.md,
    "Add File and Remove File").

    Args:
        add: the add action of the file.
        now_ms: the time of the removal, in milliseconds since 1970.
        data_change: whether the removal takes rows out of the table.
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
    """The add of a file with a larger deletion vector, and with wide bounds (PROTOCOL.md, "Per-file Statistics").

    Args:
        add: the add action of the file.
        vector: its new vector.
        records: the rows of the file, for statistics without ``numRecords``, which files with vectors need.
        data_change: whether the change takes rows out of the table.
    """
    stats = widened(add.stats, records)
    return msgspec.structs.replace(add, deletion_vector=vector, stats=stats, data_change=data_change)


# --- files that a winner has refreshed ----------------------------------------------------------------------------
#
# A winner that adds a file again with other statistics, tags or row ids conflicts with nothing. Our actions for the
# file take these over.


def known_vectors(staged: Footprint) -> dict[str, str | None]:
    """The files that a transaction removes or adds again as a whole, with the ids of their deletion vectors."""
    return {**dict(map(file_key, staged.adds)), **dict(map(file_key, staged.removes))}


def take_over(actions: Sequence[AnyAction], news: Mapping[str, Add]) -> list[AnyAction]:
    """Our actions, with the tags, statistics and row ids that the winner gave the same files, by path."""
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
