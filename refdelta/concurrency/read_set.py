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


@dataclass(frozen=True, slots=True)
class Read:
    """One read of rows: the rows that satisfy a predicate, and that there are no others.

    Attributes:
        predicate: bound to the table's schema. Every row that was read satisfies it.
        finer: whether the shell asks new rows a finer question than the predicate (the keys of a MERGE). Without one,
            each row that satisfies the predicate is one that this read would have seen.
    """

    predicate: Predicate
    finer: bool = False


EVERYTHING = Read(TRUE)
"""The read of all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSet:
    """What one transaction read of one snapshot: rows, and other resources that commits write. The table's schema and
    properties do not count: they are read by every transaction.

    Attributes:
        version: the snapshot's version; -1 where the transaction creates the table.
        reads: the reads of rows. Each of them counts: a new row conflicts where any of them would have seen it. Where
            files were read and there is no read of rows, every row might have been read.
        files: the files that were read, those in which a row matched, by path as
            :func:`~refdelta.protocol.paths.same_path` gives it.
        statistics: by the same paths, the ``stats`` of those files that have them.
        app_ids: the application ids whose recorded version was read.
        domains: the metadata domains that were read.
        every_domain: whether all metadata domains were read, and so was that there are no others.
        unowned_since: the time, in milliseconds since 1970, since when files that the transaction adds and did not
            write may have been unreferenced, so that VACUUM may delete them; None where it adds no such file.
    """

    version: int
    reads: tuple[Read, ...] = ()
    files: Mapping[str, ReadFile] = field(default_factory=dict)
    statistics: Mapping[str, str] = field(default_factory=dict, repr=False)
    app_ids: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()
    every_domain: bool = False
    unowned_since: int | None = None

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
        """This one, and a :class:`Read` of the rows that satisfy ``predicate``.

        Args:
            predicate: bound to the table's schema; once is enough.
            finer: see :class:`Read`.
        """
        read, whole = Read(predicate, finer), Read(predicate)
        if read in self.reads or whole in self.reads:
            return self
        # A read of all rows that satisfy a predicate contains a finer one.
        others = tuple(one for one in self.reads if one.predicate != predicate)
        return dataclasses.replace(self, reads=(*others, read))

    def with_everything(self) -> ReadSet:
        """This one, and the whole table."""
        return self.with_predicate(TRUE)

    @property
    def whole_table(self) -> bool:
        """Whether every row was read, and so was that there are no others."""
        return EVERYTHING in self.reads

    @property
    def blind(self) -> bool:
        """Whether nothing was read that other transactions write values to, neither rows nor metadata domains: what a
        blind append must be, besides appending only.
        """
        return not (self.reads or self.files or self.domains or self.every_domain)

    @property
    def rows(self) -> tuple[Read, ...]:
        """The reads of rows, of which every row that was read satisfies one; none where nothing was read."""
        return self.reads or ((EVERYTHING,) if self.files else ())
