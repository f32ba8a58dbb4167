"""What a transaction read (concurrency.md, "What a transaction reads").

A winner conflicts with a transaction by what the transaction *read*; a read that is not recorded here is a conflict
that nobody sees.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from refdelta.protocol.predicate import TRUE, Predicate
from refdelta.protocol.replay import file_key

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from refdelta.protocol.actions import Add, Metadata, Remove
    from refdelta.protocol.types import StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTable:
    """The table as the transaction saw it: what its predicates are asked over.

    Attributes:
        schema: its schema.
        partition_columns: its partition columns.
        parse: makes a predicate of the SQL text that a winner recorded; raises ``DeltaError`` for what it cannot
            read. None where no winner's text is to be understood: each is taken to have read everything.
        metadata: its metaData. A winner that writes the same again changes nothing; None where any counts as a change.
    """

    schema: StructType
    partition_columns: tuple[str, ...] = ()
    parse: Callable[[str], Predicate] | None = None
    metadata: Metadata | None = None

    @property
    def has_identity_columns(self) -> bool:
        """Whether the table generates values that no two transactions may both take (PROTOCOL.md, "Identity
        Columns").
        """
        return any(name.startswith("delta.identity.") for column in self.schema for name in column.metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSet:
    """What one transaction read of one snapshot. The table's schema and properties do not count: they are read by
    every transaction.

    Attributes:
        version: the snapshot's version; -1 where the transaction creates the table.
        whole_table: every row was read, or might have been, and so was that there are no others.
        predicates: what chose the rows, bound to the table's schema: for each, that these rows and no others satisfy
            it. Where files were read and no predicate is known, every row might have been chosen.
        files: the files that were read, those in which a row matched: their paths, as
            :func:`~refdelta.protocol.paths.same_path` gives them, to the ids of their deletion vectors or None.
        statistics: by the same paths, the ``stats`` of those files that have them.
        app_ids: the application ids whose recorded version was read.
    """

    version: int
    whole_table: bool = False
    predicates: tuple[Predicate, ...] = ()
    files: Mapping[str, str | None] = field(default_factory=dict)
    statistics: Mapping[str, str] = field(default_factory=dict, repr=False)
    app_ids: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of_files(
        cls, version: int, files: Iterable[Add | Remove], *predicates: Predicate, app_ids: Iterable[str] = ()
    ) -> ReadSet:
        """The read set of a transaction that read these files, chosen by these predicates."""
        return cls(version=version, predicates=predicates, app_ids=frozenset(app_ids)).with_files(files)

    def with_files(self, files: Iterable[Add | Remove]) -> ReadSet:
        """This one, and rows of these files."""
        found, statistics = dict(self.files), dict(self.statistics)
        for file in files:
            path, vector = file_key(file)
            found[path] = vector
            if file.stats is not None:
                statistics[path] = file.stats
        return dataclasses.replace(self, files=found, statistics=statistics)

    def with_rows(self, files: Iterable[tuple[Add, BitMap64]]) -> ReadSet:
        """This one, and of these files these rows."""
        return self.with_files(file for file, _ in files)

    def with_predicate(self, predicate: Predicate) -> ReadSet:
        """This one, and the rows that satisfy ``predicate``; once is enough."""
        if predicate in self.predicates:
            return self
        return dataclasses.replace(self, predicates=(*self.predicates, predicate))

    def with_everything(self) -> ReadSet:
        """This one, and the whole table."""
        return dataclasses.replace(self, whole_table=True)

    @property
    def blind(self) -> bool:
        """Whether no file and no predicate was read: what a blind append must be, besides appending only."""
        return not (self.whole_table or self.predicates or self.files)

    @property
    def rows(self) -> tuple[Predicate, ...]:
        """Predicates of which every row that was read satisfies one; none where nothing was read."""
        if self.whole_table or (self.files and not self.predicates):
            return (TRUE,)
        return self.predicates

    def reads(self, file: Add | Remove) -> bool:
        """Whether this file, live at the snapshot, was read."""
        return self.whole_table or file_key(file)[0] in self.files
