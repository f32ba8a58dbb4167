"""The reads of a transaction (concurrency.md, "What a transaction reads").

Conflicts depend on the *reads* of a transaction: with a read that is not recorded here, a conflict is missed. The rules
use predicates only by the interface :class:`RowPredicate`, which each engine implements.
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
"""The number of characters of predicates in a commit. Longer ones become TRUE (every row), also when they are read from
a commit of another writer.
"""


class RowPredicate(Protocol):
    """A condition on the rows of one table. Equal ones select the same rows."""

    @property
    def text(self) -> str:
        """The condition in the syntax of :attr:`ReadTable.parse`: SQL, for this engine and others."""

    @property
    def undecidable(self) -> str | None:
        """The reason why it cannot be evaluated on single rows, so that files decide; None if it can."""

    def candidates(self, files: Sequence[Add]) -> Sequence[Add]:
        """A fast preselection of the files that may hold a row which satisfies it. The files have no statistics;
        :meth:`may_match` decides.
        """

    def may_match(self, file: Add | Remove, with_statistics: Callable[[Add], Add] | None = None) -> bool:
        """Whether a row of the file may satisfy it; True in doubt.

        Args:
            file: an action with partition values; a tombstone without them may match.
            with_statistics: gives an add with its statistics, at some cost, if it was decoded without them.
        """

    def is_disjoint(self, other: RowPredicate) -> bool:
        """Whether no row satisfies both; False in doubt. The other one is of the same engine, or :data:`EVERY_ROW`."""


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
        """Whether the other condition is one that no row satisfies."""
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
    """The properties of the table that the rules need, in the version that the transaction read.

    Attributes:
        metadata: its metaData, which a winner may write again unchanged; None if any metaData counts as a change.
        parse: parses a recorded predicate of a winner; raises ``DeltaError`` if it cannot. None if recorded predicates
            are ignored: each winner then counts as having read everything.
        one_writer: whether the table admits one writer at a time, since it has identity columns, whose values only one
            transaction may take (PROTOCOL.md, "Identity Columns").
        tracks_rows: whether rows have ids, by which they can be located in any file.
        clustered: whether its protocol has the feature of clustered tables. There OPTIMIZE without ZORDER BY sorts
            files, and must not conflict if rows are tracked.
    """

    metadata: Metadata | None = None
    parse: Callable[[str], RowPredicate] | None = None
    one_writer: bool = False
    tracks_rows: bool = False
    clustered: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """One read of rows: all rows that satisfy a predicate.

    Attributes:
        predicate: the predicate.
        finer: whether new rows must also satisfy a finer condition (the keys of a MERGE). Otherwise each new row that
            satisfies the predicate is one that this read would have seen.
    """

    predicate: RowPredicate
    finer: bool = False


EVERYTHING: Final = Read(EVERY_ROW)
"""The read of all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSet:
    """The reads of one transaction in one snapshot: rows, and other resources that commits write. The schema and the
    properties of the table are not included: every transaction reads them.

    Attributes:
        version: the snapshot's version; -1 if the transaction creates the table.
        reads: the reads of rows. A new row conflicts if any of them would have seen it. If files were read and there is
            no read of rows, every row might have been read.
        files: the files in which a row matched, by normalized path (:func:`~refdelta.core.log.paths.same_path`).
        statistics: the ``stats`` of these files, likewise, without files that have none.
        app_ids: the application ids whose recorded version was read.
        domains: the metadata domains that were read.
        every_domain: whether all metadata domains were read, and that there are no others.
        unowned_since: the earliest time, in milliseconds since 1970, at which files that the transaction adds and did
            not write just now may have become unreferenced, so that any VACUUM may delete them; None if it adds no such
            file. The caller sees to it that no VACUUM was in progress at the snapshot that may do so.
        written_since: the earliest time at which it may have written the data files that it adds, likewise; None if
            it wrote none of them. The log does not name them yet, so that they go by a VACUUM that deletes such files.
    """

    version: int
    reads: tuple[Read, ...] = ()
    files: Mapping[str, ReadFile] = field(default_factory=dict)
    statistics: Mapping[str, str] = field(default_factory=dict, repr=False)
    app_ids: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()
    every_domain: bool = False
    unowned_since: int | None = None
    written_since: int | None = None

    def with_files(self, files: Iterable[Add | Remove]) -> ReadSet:
        """These reads, and all rows of these files."""
        return self.with_rows((file, ALL) for file in files)

    def with_rows(self, files: Iterable[tuple[Add | Remove, Rows]]) -> ReadSet:
        """These reads, and these rows of these files."""
        found, statistics = dict(self.files), dict(self.statistics)
        for file, rows in files:
            path = same_path(file.path)
            known = found.get(path)
            found[path] = ReadFile(file.deletion_vector, rows if known is None else union(known.rows, rows))
            if file.stats is not None:
                statistics[path] = file.stats
        return dataclasses.replace(self, files=found, statistics=statistics)

    def with_predicate(self, predicate: RowPredicate, *, finer: bool = False) -> ReadSet:
        """These reads, and a :class:`Read` of the rows that satisfy ``predicate``.

        Args:
            predicate: the predicate; adding it again changes nothing.
            finer: see :class:`Read`.
        """
        read, whole = Read(predicate, finer), Read(predicate)
        if read in self.reads or whole in self.reads:
            return self
        # A read of all rows that satisfy a predicate contains a finer one.
        others = tuple(one for one in self.reads if one.predicate != predicate)
        return dataclasses.replace(self, reads=(*others, read))

    def with_everything(self) -> ReadSet:
        """These reads, and the whole table."""
        return self.with_predicate(EVERY_ROW)

    def resting_on(self, since_ms: int) -> ReadSet:
        """These reads, and :attr:`unowned_since` this time or an earlier one."""
        known = self.unowned_since
        return dataclasses.replace(self, unowned_since=since_ms if known is None else min(known, since_ms))

    @property
    def whole_table(self) -> bool:
        """Whether every row was read, and that there are no others."""
        return EVERYTHING in self.reads

    @property
    def blind(self) -> bool:
        """Whether neither rows nor metadata domains were read, as required of a blind append."""
        return not (self.reads or self.files or self.domains or self.every_domain)

    @property
    def rows(self) -> tuple[Read, ...]:
        """The reads of rows: every row that was read satisfies one. Empty if no row was read."""
        return self.reads or ((EVERYTHING,) if self.files else ())

    @property
    def undecidable(self) -> str | None:
        """The reason why single rows cannot be matched with the reads; None if they can."""
        return next((why for one in self.reads if not one.finer and (why := one.predicate.undecidable)), None)


def recorded_reads(predicates: Sequence[RowPredicate], domains: Iterable[str] | None) -> dict[str, Any]:
    """The fields of commitInfo that record the reads of a transaction, for the conflict checks of others.

    Args:
        predicates: every row that was read satisfies one of these.
        domains: the metadata domains that were read; None for all of them.
    """
    texts = [predicate.text for predicate in predicates]
    fields: dict[str, Any] = {READ_PREDICATES: texts if sum(map(len, texts)) <= PREDICATE_TEXT else [EVERY_ROW.text]}
    if domains is not None:
        fields[READ_DOMAINS] = sorted(domains)
    return fields
