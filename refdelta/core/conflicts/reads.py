"""What a transaction read (concurrency.md, "What a transaction reads").

Whether a winner conflicts depends on what the transaction *read*; a read that is not recorded here is a conflict that
is not found. The rules need of a predicate no more than :class:`RowPredicate` has, so that each engine brings its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from refdelta.core.log.actions import Add, Metadata, Remove
from refdelta.core.log.footprint import READ_DOMAINS, READ_PREDICATES
from refdelta.core.log.paths import same_path
from refdelta.core.rows.file_state import ReadFile
from refdelta.core.rows.sets import ALL, Rows, union

PREDICATE_TEXT = 16_384
"""How many characters of predicates a commit carries. Longer ones become TRUE: every row; and so they are read, where
another writer recorded more.
"""


class RowPredicate(Protocol):
    """A condition on the rows of one table, as the rules need it. Two that are equal select the same rows."""

    @property
    def text(self) -> str:
        """The condition in the words that :attr:`ReadTable.parse` understands: SQL, for this engine and others."""

    @property
    def undecidable(self) -> str | None:
        """Why it cannot be asked of single rows, so that files decide; None where it can."""

    def candidates(self, files: Sequence[Add]) -> Sequence[Add]:
        """Those of the files that may hold a row which satisfies it, as far as that is quick to see. The files have no
        statistics; :meth:`may_match` decides.
        """

    def may_match(self, file: Add | Remove, with_statistics: Callable[[Add], Add] | None = None) -> bool:
        """Whether a row of the file may satisfy it; in doubt it may.

        Args:
            file: with partition values; a tombstone that has none may match.
            with_statistics: gives an add with its statistics, at some cost, where it was folded without them.
        """

    def is_disjoint(self, other: RowPredicate) -> bool:
        """Whether no row satisfies both; in doubt one does. The other one is of the same engine, or
        :data:`EVERY_ROW`.
        """


class EveryRow:
    """The condition that each row satisfies."""

    text: Final = "TRUE"
    undecidable: Final = None

    def candidates(self, files: Sequence[Add]) -> Sequence[Add]:
        """All of them."""
        return files

    def may_match(self, file: Add | Remove, with_statistics: Callable[[Add], Add] | None = None) -> bool:  # noqa: ARG002
        """True."""
        return True

    def is_disjoint(self, other: RowPredicate) -> bool:
        """Only from a condition that no row satisfies, which says so itself."""
        return other is not self and other.is_disjoint(self)


EVERY_ROW: Final = EveryRow()


class AnyOf:
    """Rows that satisfy one of some predicates; none where there are no predicates."""

    __slots__ = ("predicates",)

    def __init__(self, predicates: Iterable[RowPredicate]) -> None:
        self.predicates = tuple(predicates)

    def candidates(self, files: Sequence[Add]) -> Sequence[Add]:
        """See :meth:`RowPredicate.candidates`."""
        if len(self.predicates) == 1:
            return self.predicates[0].candidates(files)
        found = [some for predicate in self.predicates if (some := predicate.candidates(files))]
        if len(found) < 2:
            return found[0] if found else ()
        wanted = {id(file) for some in found for file in some}
        return [file for file in files if id(file) in wanted]

    def may_match(self, file: Add | Remove, with_statistics: Callable[[Add], Add] | None = None) -> bool:
        """See :meth:`RowPredicate.may_match`."""
        return any(predicate.may_match(file, with_statistics) for predicate in self.predicates)

    def is_disjoint(self, other: AnyOf) -> bool:
        """Whether no row satisfies a predicate of both."""
        return all(one.is_disjoint(two) for one in self.predicates for two in other.predicates)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTable:
    """The table as the transaction saw it, as far as the rules need to know.

    Attributes:
        metadata: its metaData. A winner that writes the same again changes nothing; None where any counts as a change.
        parse: makes a predicate of the text that a winner recorded; raises ``DeltaError`` for what it cannot read. None
            where no winner's text is to be understood: each is taken to have read everything.
        one_writer: whether the table admits one writer at a time: it has identity columns, whose values no two
            transactions may both take (PROTOCOL.md, "Identity Columns").
        tracks_rows: whether rows keep ids, by which they can be found in whichever files they are.
        clustered: whether its protocol has the feature of clustered tables. No file of such a table is sorted but by
            OPTIMIZE without ZORDER BY, which must not conflict where rows are tracked.
    """

    metadata: Metadata | None = None
    parse: Callable[[str], RowPredicate] | None = None
    one_writer: bool = False
    tracks_rows: bool = False
    clustered: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """One read of rows: the rows that satisfy a predicate, and that there are no others.

    Attributes:
        predicate: every row that was read satisfies it.
        finer: whether new rows are asked a finer question than the predicate (the keys of a MERGE). Without one, each
            row that satisfies the predicate is one that this read would have seen.
    """

    predicate: RowPredicate
    finer: bool = False


EVERYTHING: Final = Read(EVERY_ROW)
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
            :func:`~refdelta.core.log.paths.same_path` gives it.
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

    def with_predicate(self, predicate: RowPredicate, *, finer: bool = False) -> ReadSet:
        """This one, and a :class:`Read` of the rows that satisfy ``predicate``.

        Args:
            predicate: once is enough.
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
        return self.with_predicate(EVERY_ROW)

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

    @property
    def undecidable(self) -> str | None:
        """Why single rows cannot be asked whether they were read; None where they can."""
        return next((why for one in self.reads if not one.finer and (why := one.predicate.undecidable)), None)


def recorded_reads(predicates: Sequence[RowPredicate], domains: Iterable[str] | None) -> dict[str, Any]:
    """The fields of commitInfo that say what a transaction read, so that transactions which lose to it need not guess.

    Args:
        predicates: of which each row that was read satisfies one.
        domains: the metadata domains that were read; None for all of them.
    """
    texts = [predicate.text for predicate in predicates]
    fields: dict[str, Any] = {READ_PREDICATES: texts if sum(map(len, texts)) <= PREDICATE_TEXT else [EVERY_ROW.text]}
    if domains is not None:
        fields[READ_DOMAINS] = sorted(domains)
    return fields
