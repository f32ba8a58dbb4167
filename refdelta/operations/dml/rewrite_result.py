"""The result of a rewrite. It has a module of its own, so that a plain append need not import the rewrite itself."""

from __future__ import annotations

from dataclasses import dataclass

from refdelta.core.log.actions import Add


@dataclass(frozen=True)
class RewriteResult:
    """The result of a statement that selects rows, in files and counts.

    Attributes:
        removed: the files that were removed.
        added: the files that were written in their place.
        copied_rows: the number of unchanged rows in the added files.
        matched_rows: the number of rows that the predicate selected.
        vectors_added: the number of files that got a new deletion vector.
        vectors_updated: the number of these that had a deletion vector before.
    """

    removed: list[Add]
    added: list[Add]
    copied_rows: int
    matched_rows: int = 0
    vectors_added: int = 0
    vectors_updated: int = 0

    @property
    def removed_bytes(self) -> int:
        """The size of the removed files, in bytes."""
        return sum(add.size for add in self.removed)

    @property
    def added_bytes(self) -> int:
        """The size of the added files, in bytes."""
        return sum(add.size for add in self.added)

    @property
    def vectors_removed(self) -> int:
        """The number of deletion vectors that are no longer live."""
        return self.vectors_updated + sum(add.deletion_vector is not None for add in self.removed)

    def vector_metrics(self) -> dict[str, int]:
        """The metrics about deletion vectors."""
        return {
            "num_deletion_vectors_added": self.vectors_added,
            "num_deletion_vectors_updated": self.vectors_updated,
            "num_deletion_vectors_removed": self.vectors_removed,
        }
