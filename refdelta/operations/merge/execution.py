"""The execution of a MERGE, in two passes.

The first pass reads the columns of the conditions, and finds the rows that change. With deletion vectors, the second
pass reads only these rows, and the old ones are hidden; without, it reads all rows of their files and rewrites these.
This module records the reads and stages the removals. The join of both sides is a :class:`MergeStrategy`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.expressions.predicate import FALSE, disjunction
from refdelta.core.pruning.stats import load_stats, lookup
from refdelta.engine.expressions.evaluate import row_mask
from refdelta.engine.log.state import to_adds
from refdelta.engine.scan.filters import BoundFilter, informed
from refdelta.engine.scan.positions import stand
from refdelta.engine.scan.scan import plan_scan
from refdelta.operations.dml.rewrite import FileMatch, chosen, hide_rows, remove_files
from refdelta.operations.dml.rewrite_result import RewriteResult
from refdelta.operations.merge.join import side
from refdelta.operations.merge.pieces import MergeMatches
from refdelta.operations.merge.reads import read_predicate

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator, Sequence

    from pyroaring import BitMap64

    from refdelta.core.expressions.predicate import Predicate
    from refdelta.core.log.actions import Add
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.merge.plan import MergePlan
    from refdelta.operations.merge.reads import KeyValues
    from refdelta.transaction.transaction import Transaction


class MergeStrategy(Protocol):
    """The join of a MERGE's source with the table: in this process, or in others."""

    @property
    def keys(self) -> KeyValues:
        """The keys of the source."""

    def matching(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.Array]:
        """The numbers of those of these rows, of the table's schema, that match a row of the source, each piece when
        it is found. A number may come twice.
        """

    def find(self, txn: Transaction, table: Snapshot, read: Predicate) -> MergeMatches:
        """The first pass.

        Args:
            txn: the transaction.
            table: the table with the files to read; files are numbered by their places in its list.
            read: a predicate that is true for all rows that can match or change.
        """

    def write(self, txn: Transaction, table: Snapshot, found: MergeMatches) -> list[Add]:
        """The second pass: write and stage the updated and the inserted rows; without deletion vectors, also the
        unchanged rows of rewritten files. The number of inserted rows is put into ``found``.

        Args:
            txn: the transaction.
            table: as for :meth:`find`, with the new schema.
            found: the result of the first pass.

        Returns:
            The data files.
        """


@dataclass
class MergeExecution:
    """The state of a MERGE's execution.

    Attributes:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        plan: the bound MERGE.
        strategy: the join of both sides.
        candidates: the files that may have matching rows.
        found: the result of the first pass.
    """

    txn: Transaction
    snapshot: Snapshot
    plan: MergePlan
    strategy: MergeStrategy
    candidates: pa.Table = field(init=False)
    found: MergeMatches = field(default_factory=MergeMatches)

    @property
    def counts(self) -> Counter[str]:
        """The numbers of rows by the action on them."""
        return self.found.counts

    def find(self) -> None:
        """The first pass: find the rows that match and those that change, and record the reads."""
        snapshot = self.snapshot
        read = read_predicate(self.plan, self.strategy.keys)
        flt = informed(BoundFilter(read), snapshot)
        keep = flt.prune(snapshot.files, snapshot.schema, snapshot.partition_columns).keep
        self.candidates = snapshot.files.filter(keep)
        # A row that matches would have changed the result, so the absence of such rows is recorded by the matcher.
        every = any(clause.condition is None for clause in self.plan.of_rest)
        finer = None if every else self._concerns
        with self.txn.reading(read, lambda: to_adds(self.candidates), finer):
            self.found = found = self.strategy.find(self.txn, snapshot.with_files(self.candidates), read)
        for number, acting in found.acting.items():
            found.matching[number] = found.matching[number] | acting if number in found.matching else acting
        numbers = sorted(found.matching)
        for number, add in zip(numbers, to_adds(chosen(self.candidates, numbers)), strict=True):
            self.txn.read_rows(add, found.matching[number])

    def _concerns(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.Array]:
        """The numbers of those of these rows, of the table's schema, that match a row of the source, or satisfy the
        condition of a WHEN NOT MATCHED BY SOURCE clause.
        """
        alias = self.plan.target_alias
        condition = disjunction(clause.condition for clause in self.plan.of_rest if clause.condition is not None)
        changed: list[pa.Array] = []

        def noted() -> Iterator[pa.RecordBatch]:
            before = 0
            for batch in rows:
                if condition != FALSE:
                    numbers = pc.indices_nonzero(row_mask(condition, side(alias, batch)))
                    changed.append(pc.add(numbers.cast(pa.int64()), before))
                before += batch.num_rows
                yield batch

        for numbers in self.strategy.matching(noted()):
            yield numbers
            yield from changed
            changed.clear()

    def write(self, snapshot: Snapshot) -> RewriteResult:
        """The second pass: write the rows that change and the rows that are inserted.

        Args:
            snapshot: the snapshot with the new schema.
        """
        numbers = sorted(self.found.acting)
        touched = chosen(self.candidates, numbers)
        if self.txn.vectors:
            done = self._hide(touched, [self.found.acting[number] for number in numbers])
        else:
            done = RewriteResult(to_adds(touched), [], 0)
            remove_files(self.txn, done.removed)
        self.txn.lose_early("MERGE")
        added = self.strategy.write(self.txn, snapshot.with_files(self.candidates), self.found)
        written = sum(int(lookup(load_stats(add.stats), ("numRecords",))) for add in added)
        changed = sum(count for what, count in self.counts.items() if what == "inserted" or what.endswith("updated"))
        return dataclasses.replace(done, added=added, copied_rows=written - changed)

    def _hide(self, touched: pa.Table, rows: Sequence[BitMap64]) -> RewriteResult:
        """Stage deletion vectors for the rows that change."""
        bare = dataclasses.replace(plan_scan(self.snapshot, []), files=touched)
        found = enumerate(stand(bare, rows))
        return hide_rows(self.txn, [FileMatch.of_rows(touched.slice(index, 1), own) for index, own in found])


def needs_feed(txn: Transaction, found: MergeMatches) -> bool:
    """True if a MERGE must write change files, since readers cannot derive its changes from data files.

    If rows are only inserted, or hidden by deletion vectors, no change files are needed.
    """
    return txn.is_fed and bool(found.updated if txn.vectors else found.acting)
