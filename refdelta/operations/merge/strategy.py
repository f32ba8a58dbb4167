"""The strategy of a MERGE: where the rows of both sides meet.

A source in memory is joined with the table in this process, or in tasks of an executor (:class:`Collected`): the table
is read in pieces of about the source's size, so that memory is bounded by the source and a piece, for tables of any
size. A source whose rows are in other processes brings a strategy of its own (:class:`DistributedSource`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import concat, one_array
from refdelta.arrow.schema import to_arrow
from refdelta.engine.parquet.fit import plan_fit
from refdelta.engine.scan.reader import POSITION, read_file
from refdelta.engine.scan.scan import plan_scan, scan_files
from refdelta.engine.work.executor import ThreadExecutor, at_least, group_limit, grouped
from refdelta.operations.merge.join import KeyValues
from refdelta.operations.merge.matches import Matcher, MergeMatches, piece_of
from refdelta.operations.merge.result import Portion, count_inserted, result_rows
from refdelta.operations.shared.rewrite import chosen, shares, write_anew
from refdelta.operations.write.source import OfTables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from refdelta.core.log.actions import Add
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.expressions.expression import Predicate
    from refdelta.operations.merge.plan import MergePlan
    from refdelta.transaction.transaction import Transaction


class MergeStrategy(Protocol):
    """The join of a MERGE's source with the table: in this process, or in others."""

    @property
    def keys(self) -> KeyValues:
        """The keys of the source."""

    @property
    def piece_bytes(self) -> int:
        """The size of a piece of the table in Arrow's memory, in bytes."""

    def matching(self, rows: pa.Table) -> pa.Array:
        """The numbers of the rows of a piece that match a row of the source. A number may occur twice.

        Args:
            rows: the piece, of the table's schema.
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


class DistributedSource(OfTables, Protocol):
    """A source whose rows are not in this process."""

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""

    def strategy(self, plan: MergePlan) -> MergeStrategy:
        """The join with the table."""


@runtime_checkable
class DistributedExecutor(Protocol):
    """An executor with sources in other processes."""

    def source_of(self, data: Any) -> DistributedSource | None:
        """The data as a source in other processes; None for data that is read in this process."""


@dataclass(frozen=True)
class Collected:
    """The strategy of a source that is held in memory; a :class:`MergeStrategy`.

    Attributes:
        matcher: finds the matches.
    """

    matcher: Matcher

    @classmethod
    def of(cls, plan: MergePlan, reader: pa.RecordBatchReader) -> Collected:
        """The strategy with all rows of a stream, which is read to its end."""
        # In pyarrow 21 a schema with metadata, such as that of pandas, has no hash.
        fitter = plan_fit(reader.schema.remove_metadata(), plan.source)
        batches, count = [], 0
        for batch in reader:
            batches.append(fitter.apply(batch, count))
            count += batch.num_rows
        return cls(Matcher(plan, pa.Table.from_batches(batches, to_arrow(plan.source)), whole=True))

    @cached_property
    def keys(self) -> KeyValues:
        """The keys of the source."""
        plan = self.matcher.plan
        return KeyValues.of(plan.on, plan.source_alias, self.matcher.source)

    @property
    def piece_bytes(self) -> int:
        """See :class:`MergeStrategy`."""
        return self.matcher.piece_bytes

    def matching(self, rows: pa.Table) -> pa.Array:
        """See :class:`MergeStrategy`."""
        return self.matcher.pairs(rows).target

    def find(self, txn: Transaction, table: Snapshot, read: Predicate) -> MergeMatches:  # noqa: ARG002 - the join is as exact
        """The first pass; see :class:`MergeStrategy`."""
        found, plan = MergeMatches(), self.matcher.plan
        names = table.schema.names
        needed = plan.columns_to_find(plan.target_alias)
        columns = [name for name in names if name in needed] or names[:1]
        groups = grouped(txn.executor, table.files.column("size").to_pylist())
        look = functools.partial(_look, table.without_files(), self.matcher, columns)
        looked = (txn.executor or ThreadExecutor()).map(look, [chosen(table.files, group) for group in groups])
        for group, own in zip(groups, looked, strict=True):
            found.take_in(own, group)
        return found

    def write(self, txn: Transaction, table: Snapshot, found: MergeMatches) -> list[Add]:
        """The second pass; see :class:`MergeStrategy`."""
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
        found.marks = self.matcher.plan.marks(sum(map(len, inserts)))
        return write_anew(txn, table, work, functools.partial(result_rows, self.matcher, txn.vectors, feed), feed=feed)

    def _inserts(self, txn: Transaction, found: MergeMatches) -> Iterator[pa.Array]:
        """For each task that inserts rows, the numbers of the source's rows that match no row of the table."""
        source = self.matcher.source
        if not self.matcher.plan.of_source:
            return
        numbers = pa.arange(0, source.num_rows)
        rows = numbers.filter(pc.invert(pc.is_in(numbers, value_set=found.matched)))
        found.counts["inserted"] = count_inserted(self.matcher.plan, source, rows)
        if not found.counts["inserted"]:
            return
        most = group_limit(txn.executor)
        length = len(rows) if most is None else max(1, most * source.num_rows // max(1, source.nbytes))
        for start in range(0, len(rows), length):
            # Copied, since a slice is pickled with its whole array.
            yield rows.take(pa.arange(start, min(len(rows), start + length)))


def _look(snapshot: Snapshot, matcher: Matcher, columns: Sequence[str], files: pa.Table) -> MergeMatches:
    """The matches in some files, which are numbered by their places in ``files``."""
    scan = plan_scan(snapshot.with_files(files), columns=columns)
    plan = dataclasses.replace(scan.plan, positions=True)
    batches = scan.executor.stream(
        lambda task: zip(itertools.repeat(task[0]), read_file(scan.store, task[1], plan), strict=False),
        list(enumerate(scan_files(scan))),
        weigh=lambda item: int(item[1].nbytes),
    )
    found = MergeMatches()
    for held in at_least(batches, lambda item: int(item[1].nbytes), matcher.piece_bytes):
        numbers = concat([pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows) for number, batch in held])
        rows = piece_of([batch for _, batch in held])
        matcher.find(found, rows.drop_columns([POSITION.name]), numbers, one_array(rows.column(POSITION.name)))
    return found


def needs_feed(txn: Transaction, found: MergeMatches) -> bool:
    """True if a MERGE must write change files, since readers cannot derive its changes from data files.

    If rows are only inserted, or hidden by deletion vectors, no change files are needed.
    """
    return txn.is_fed and bool(found.updated if txn.vectors else found.acting)
