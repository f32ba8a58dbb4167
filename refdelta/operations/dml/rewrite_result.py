"""What became of files whose rows a statement selected: apart from how that is done, which a write may never need."""

from __future__ import annotations

from dataclasses import dataclass

from refdelta.core.log.actions import Add


@dataclass(frozen=True)
class RewriteResult:
    """What became of files whose rows a statement selected.

    Attributes:
        removed: the files that left the table.
        added: the files that were written for what was in them.
        copied_rows: how many rows of these are as they were.
        matched_rows: how many rows the predicate selected.
        vectors_added: how many files got another deletion vector than before, or a first one.
        vectors_updated: how many of these had one before.
    """

    removed: list[Add]
    added: list[Add]
    copied_rows: int
    matched_rows: int = 0
    vectors_added: int = 0
    vectors_updated: int = 0

    @property
    def removed_bytes(self) -> int:
        """The size of the files that left."""
        return sum(add.size for add in self.removed)

    @property
    def added_bytes(self) -> int:
        """The size of the files that came."""
        return sum(add.size for add in self.added)

    @property
    def vectors_removed(self) -> int:
        """How many deletion vectors are live no more."""
        return self.vectors_updated + sum(add.deletion_vector is not None for add in self.removed)

    def vector_metrics(self) -> dict[str, int]:
        """What the caller is told of deletion vectors."""
        return {
            "num_deletion_vectors_added": self.vectors_added,
            "num_deletion_vectors_updated": self.vectors_updated,
            "num_deletion_vectors_removed": self.vectors_removed,
        }
