"""One MERGE under way.

A first pass reads the columns that the conditions look at and finds the rows in which anything changes. A second one
reads these rows alone, where deletion vectors hide the old ones, or else all rows of their files, which are written
anew. What was read is recorded here, and what goes is staged; how the rows of both sides come together is another
matter, see :class:`MergeStrategy`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from refdelta.core.expressions.predicate import TRUE
from refdelta.core.pruning.stats import load_stats, lookup
from refdelta.engine.log.state import to_adds
from refdelta.engine.scan.filters import BoundFilter, informed
from refdelta.engine.scan.positions import stand
from refdelta.engine.scan.scan import plan_scan
from refdelta.operations.dml.rewrite import Match, chosen, hide_rows, remove_files
from refdelta.operations.dml.rewrite_result import RewriteResult
from refdelta.operations.merge.pieces import MergeMatches
from refdelta.operations.merge.reads import target_predicate

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from pyroaring import BitMap64

    from refdelta.core.expressions.predicate import Predicate
    from refdelta.core.log.actions import Add
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.merge.plan import MergePlan
    from refdelta.operations.merge.reads import KeyValues
    from refdelta.transaction.transaction import Transaction


class MergeStrategy(Protocol):
    """How the rows of a MERGE's source and those of the table come together."""

    @property
    def keys(self) -> KeyValues:
        """The keys of the source."""

    def matches_any(self, rows: Iterable[pa.RecordBatch]) -> bool:
        """Whether some of these rows, of the table's schema, match a row of the source."""

    def find(self, txn: Transaction, table: Snapshot, read: Predicate) -> MergeMatches:
        """The first pass.

        Args:
            txn: the transaction.
            table: with the files that are looked at, by whose places in it they are numbered.
            read: what every row satisfies that matters.
        """

    def write(self, txn: Transaction, table: Snapshot, found: MergeMatches) -> list[Add]:
        """The second pass: write rows that change and are inserted, without deletion vectors also those that stay of
        files in which anything changes, and stage the files. How many are inserted is noted in ``found``.

        Args:
            txn: the transaction.
            table: as for :meth:`find`, with the schema to come.
            found: by the first pass.
        """


@dataclass
class MergeExecution:
    """One MERGE under way.

    Attributes:
        txn: the transaction.
        snapshot: what it sees.
        plan: what is asked for.
        strategy: how the sides come together.
        candidates: the files that may hold rows which match.
        found: what the first pass found in them.
    """

    txn: Transaction
    snapshot: Snapshot
    plan: MergePlan
    strategy: MergeStrategy
    candidates: pa.Table = field(init=False)
    found: MergeMatches = field(default_factory=MergeMatches)

    @property
    def counts(self) -> Counter[str]:
        """How many rows there are, by what becomes of them."""
        return self.found.counts

    def find(self) -> None:
        """Find out which rows match and in which rows something changes, and record what was read."""
        snapshot = self.snapshot
        read: Predicate = TRUE
        if self.plan.of_rest:
            self.candidates = snapshot.files
        else:
            read = target_predicate(self.plan.on, self.plan.target_alias, self.strategy.keys)
            flt = informed(BoundFilter(read), snapshot)
            keep = flt.prune(snapshot.files, snapshot.schema, snapshot.partition_columns).keep
            self.candidates = snapshot.files.filter(keep)
        # Had a row been there that matches, the MERGE would have gone otherwise.
        finer = None if self.plan.of_rest else self.strategy.matches_any
        with self.txn.reading(read, lambda: to_adds(self.candidates), finer):
            self.found = found = self.strategy.find(self.txn, snapshot.with_files(self.candidates), read)
        for number, acting in found.acting.items():
            found.matching[number] = found.matching[number] | acting if number in found.matching else acting
        numbers = sorted(found.matching)
        for number, add in zip(numbers, to_adds(chosen(self.candidates, numbers)), strict=True):
            self.txn.read_rows(add, found.matching[number])

    def write(self, snapshot: Snapshot) -> RewriteResult:
        """Write the rows that change and those that are inserted; ``snapshot`` has the schema to come."""
        numbers = sorted(self.found.acting)
        touched = chosen(self.candidates, numbers)
        if self.txn.vectors:
            done = self._hide(touched, [self.found.acting[number] for number in numbers])
        else:
            done = RewriteResult(to_adds(touched), [], 0)
            remove_files(self.txn, done.removed)
        added = self.strategy.write(self.txn, snapshot.with_files(self.candidates), self.found)
        written = sum(int(lookup(load_stats(add.stats), ("numRecords",))) for add in added)
        changed = sum(count for what, count in self.counts.items() if what == "inserted" or what.endswith("updated"))
        return dataclasses.replace(done, added=added, copied_rows=written - changed)

    def _hide(self, touched: pa.Table, rows: Sequence[BitMap64]) -> RewriteResult:
        """Stage deletion vectors for the rows that change."""
        bare = dataclasses.replace(plan_scan(self.snapshot, []), files=touched)
        found = enumerate(stand(bare, rows))
        return hide_rows(self.txn, [Match.of_rows(touched.slice(index, 1), own) for index, own in found])


def needs_feed(txn: Transaction, found: MergeMatches) -> bool:
    """Whether a MERGE has to write change files: else what it does would seem to be something else.

    Rows that are only inserted, or hidden by deletion vectors, need none.
    """
    return txn.is_fed and bool(found.updated if txn.vectors else found.acting)
