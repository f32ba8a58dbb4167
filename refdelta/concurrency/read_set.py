"""What a transaction read (concurrency.md, "What a transaction reads").

A winner conflicts with a transaction by what the transaction *read*; a read that is not recorded here is a conflict
that nobody sees.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from refdelta.concurrency.rows import ALL, Rows, union
from refdelta.protocol.actions import Add, DeletionVectorDescriptor, Metadata, Remove
from refdelta.protocol.paths import same_path
from refdelta.protocol.predicate import TRUE, Predicate

if TYPE_CHECKING:
    from refdelta.protocol.types import StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTable:
    """The table as the transaction saw it: what its predicates are asked over.

    Attributes:
        schema: its schema.
        partition_columns: its partition columns.
        parse: makes a predicate of the SQL text that a winner recorded; raises ``DeltaError`` for what it cannot
            read. None where no winner's text is to be understood: each is taken to have read everything.
        tracks_rows: whether rows keep ids, by which they can be found in whichever files they are.
        clustered: whether its protocol has the feature of clustered tables. No file of such a table is sorted but by
            OPTIMIZE without ZORDER BY, which must not conflict where rows are tracked.
        metadata: its metaData. A winner that writes the same again changes nothing; None where any counts as a change.
    """

    schema: StructType
    partition_columns: tuple[str, ...] = ()
    parse: Callable[[str], Predicate] | None = None
    metadata: Metadata | None = None
    tracks_rows: bool = False
    clustered: bool = False

    @property
    def has_identity_columns(self) -> bool:
        """Whether the table generates values that no two transactions may both take (PROTOCOL.md, "Identity
        Columns").
        """
        return any(name.startswith("delta.identity.") for column in self.schema for name in column.metadata)


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file of which rows were read.

    Attributes:
        vector: its deletion vector.
        rows: the rows that were read; all where that is not known more exactly.
    """

    vector: DeletionVectorDescriptor | None = None
    rows: Rows = ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSet:
    """What one transaction read of one snapshot. The table's schema and properties do not count: they are read by
    every transaction.

    Attributes:
        version: the snapshot's version; -1 where the transaction creates the table.
        whole_table: every row was read, or might have been, and so was that there are no others.
        predicates: what chose the rows, bound to the table's schema: for each, that these rows and no others satisfy
            it. Where files were read and no predicate is known, every row might have been chosen.
        finer: those of them that the shell asks a finer question than the predicate itself (the keys of a MERGE).
        files: the files that were read, those in which a row matched, by path as
            :func:`~refdelta.protocol.paths.same_path` gives it.
        statistics: by the same paths, the ``stats`` of those files that have them.
        app_ids: the application ids whose recorded version was read.
    """

    version: int
    whole_table: bool = False
    predicates: tuple[Predicate, ...] = ()
    finer: frozenset[Predicate] = field(default_factory=frozenset)
    files: Mapping[str, ReadFile] = field(default_factory=dict)
    statistics: Mapping[str, str] = field(default_factory=dict, repr=False)
    app_ids: frozenset[str] = field(default_factory=frozenset)

    def with_files(self, files: Iterable[Add | Remove]) -> ReadSet:
        """This one, and any rows of these files."""
        return self.with_rows((file, ALL) for file in files)

    def with_rows(self, files: Iterable[tuple[Add | Remove, Rows]]) -> ReadSet:
        """This one, and of these files these rows."""
        found, statistics = dict(self.files), dict(self.statistics)
        for file, rows in files:
            path = same_path(file.path)
            known = found.get(path)
            found[path] = ReadFile(file.deletion_vector, rows if known is None else union(known.rows, rows))
            if file.stats is not None:
                statistics[path] = file.stats
        return dataclasses.replace(self, files=found, statistics=statistics)

    def with_predicate(self, predicate: Predicate, *, finer: bool = False) -> ReadSet:
        """This one, and the rows that satisfy ``predicate``.

        Args:
            predicate: once is enough.
            finer: whether the shell asks a finer question each time that it is given this predicate.
        """
        known = predicate in self.predicates
        fine = self.finer - {predicate}
        if finer and (not known or predicate in self.finer):
            fine |= {predicate}
        if known:
            return dataclasses.replace(self, finer=fine) if fine != self.finer else self
        return dataclasses.replace(self, predicates=(*self.predicates, predicate), finer=fine)

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
