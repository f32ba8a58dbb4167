"""The strategy of a MERGE whose source is held in memory.

The table is read in pieces of about the source's size, so that memory is bounded by the source and a piece, for tables
of any size.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.engine.arrow.schema import to_arrow
from refdelta.engine.parquet.fit import plan_fit
from refdelta.engine.scan.executor import ThreadExecutor, group_limit, grouped
from refdelta.operations.dml.rewrite import chosen, shares, write_anew
from refdelta.operations.merge.execution import needs_feed
from refdelta.operations.merge.pieces import MergeMatches, Pieces, Portion, count_inserted
from refdelta.operations.merge.reads import KeyValues

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from refdelta.core.expressions.predicate import Predicate
    from refdelta.core.log.actions import Add
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.merge.plan import MergePlan
    from refdelta.transaction.transaction import Transaction


@dataclass(frozen=True)
class Collected:
    """The whole source in memory; a :class:`~refdelta.operations.merge.execution.MergeStrategy`.

    Attributes:
        pieces: the clauses, and the matcher of rows.
    """

    pieces: Pieces

    @classmethod
    def of(cls, plan: MergePlan, reader: pa.RecordBatchReader) -> Collected:
        """The strategy with all rows of a stream, which is read to its end."""
        # In pyarrow 21 a schema with metadata, such as that of pandas, has no hash.
        fitter = plan_fit(reader.schema.remove_metadata(), plan.source)
        batches, count = [], 0
        for batch in reader:
            batches.append(fitter.apply(batch, count))
            count += batch.num_rows
        return cls(Pieces.of(plan, pa.Table.from_batches(batches, to_arrow(plan.source)), whole=True))

    @cached_property
    def keys(self) -> KeyValues:
        """The keys of the source."""
        return KeyValues.of(self.pieces.plan.on, self.pieces.plan.source_alias, self._source)

    @property
    def _source(self) -> pa.Table:
        return self.pieces.matcher.source

    def matching(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.Array]:
        """See :class:`~refdelta.operations.merge.execution.MergeStrategy`."""
        return self.pieces.matching(rows)

    def find(self, txn: Transaction, table: Snapshot, read: Predicate) -> MergeMatches:  # noqa: ARG002 - the join is as exact
        """The first pass; see :class:`~refdelta.operations.merge.execution.MergeStrategy`."""
        found, plan = MergeMatches(), self.pieces.plan
        names = table.schema.names
        needed = plan.columns_to_find(plan.target_alias)
        columns = [name for name in names if name in needed] or names[:1]
        groups = grouped(txn.executor, table.files.column("size").to_pylist())
        look = functools.partial(_look, table.without_files(), self.pieces, columns)
        looked = (txn.executor or ThreadExecutor()).map(look, [chosen(table.files, group) for group in groups])
        for group, own in zip(groups, looked, strict=True):
            found.take_in(own, group)
        return found

    def write(self, txn: Transaction, table: Snapshot, found: MergeMatches) -> list[Add]:
        """The second pass; see :class:`~refdelta.operations.merge.execution.MergeStrategy`."""
        feed = needs_feed(txn, found)
        some = found.acting if feed else found.updated
        rows = some if txn.vectors else dict.fromkeys(found.acting)
        numbers = sorted(rows)
        sources = shares(txn, chosen(table.files, numbers), [rows[number] for number in numbers])
        nothing = pa.array([], pa.int64())
        work = [Portion(share, nothing) for share in sources]
        inserts = list(self._inserts(txn, found))
        if len(work) == len(inserts) == 1 and group_limit(txn.executor) is None:
            work = [Portion(sources[0], inserts[0])]
        else:
            places = itertools.accumulate(map(len, inserts), initial=0)
            work += [Portion(None, rows, first) for rows, first in zip(inserts, places, strict=False)]
        found.marks = self.pieces.plan.marks(sum(map(len, inserts)))
        return write_anew(txn, table, work, functools.partial(_anew, self.pieces, txn.vectors, feed), feed=feed)

    def _inserts(self, txn: Transaction, found: MergeMatches) -> Iterator[pa.Array]:
        """For each task that inserts rows, the numbers of the source's rows that match no row of the table."""
        source = self._source
        if not self.pieces.plan.of_source:
            return
        numbers = pa.arange(0, source.num_rows)
        rows = numbers.filter(pc.invert(pc.is_in(numbers, value_set=found.matched)))
        found.counts["inserted"] = count_inserted(self.pieces.plan, source, rows)
        if not found.counts["inserted"]:
            return
        most = group_limit(txn.executor)
        length = len(rows) if most is None else max(1, most * source.num_rows // max(1, source.nbytes))
        for start in range(0, len(rows), length):
            # Copied, since a slice is pickled with its whole array.
            yield rows.take(pa.arange(start, min(len(rows), start + length)))


def _look(snapshot: Snapshot, pieces: Pieces, columns: Sequence[str], files: pa.Table) -> MergeMatches:
    return pieces.find(pieces.located(snapshot.with_files(files), columns))


def _anew(pieces: Pieces, vectors: bool, feed: bool, snapshot: Snapshot, portion: Portion) -> Iterator[pa.RecordBatch]:
    return pieces.anew(snapshot, portion, vectors=vectors, feed=feed)
