"""What a transaction read (concurrency.md, "What a transaction reads").

A winner conflicts with a transaction by what the transaction *read*; a read that is not recorded here is a conflict
that nobody sees.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from refdelta.protocol.paths import same_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from refdelta.protocol.actions import Add, Remove


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSet:
    """What one transaction read of one snapshot. The table's schema and properties do not count: they are read by
    every transaction.

    Attributes:
        version: the snapshot's version; -1 where the transaction creates the table.
        whole_table: every file was read, or might have been.
        predicates: what chose the files, each as SQL text.
        files: the files that were read, as :func:`~refdelta.protocol.paths.same_path` gives their paths.
        app_ids: the application ids whose recorded version was read.
    """

    version: int
    whole_table: bool = False
    predicates: tuple[str, ...] = ()
    files: frozenset[str] = field(default_factory=frozenset)
    app_ids: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of_files(
        cls, version: int, files: Iterable[Add | Remove], *predicates: str, app_ids: Iterable[str] = ()
    ) -> ReadSet:
        """The read set of a transaction that read these files, chosen by these predicates."""
        keys = frozenset(same_path(file.path) for file in files)
        return cls(version=version, predicates=predicates, files=keys, app_ids=frozenset(app_ids))

    @property
    def blind(self) -> bool:
        """Whether no file and no predicate was read: what a blind append must be, besides appending only."""
        return not (self.whole_table or self.predicates or self.files)

    def reads(self, file: Add | Remove) -> bool:
        """Whether this file, live at the snapshot, was read."""
        return self.whole_table or same_path(file.path) in self.files
