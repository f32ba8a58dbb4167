"""One MERGE under way.

The source is held in memory; the table is read in pieces about as large, so that memory is bounded by the source and a
piece, whatever the table's size. A first pass reads the columns that the conditions look at and finds the rows in
which anything changes. A second one reads these rows alone, where deletion vectors hide the old ones, or else all rows
of their files, which are written anew.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.engine.executor import ThreadExecutor, grouped
from refdelta.engine.filters import BoundFilter
from refdelta.engine.positions import stand
from refdelta.engine.scan import plan_scan
from refdelta.engine.state import to_adds
from refdelta.ops.merge_pieces import Found, Pieces, Portion
from refdelta.ops.merge_reads import target_predicate
from refdelta.ops.rewrite import Match, Rewritten, chosen, hide_rows, remove_files, shares, write_anew
from refdelta.protocol.stats import load_stats, lookup

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, Sequence

    from pyroaring import BitMap64

    from refdelta.engine.snapshot import Snapshot
    from refdelta.ops.merge_join import Matcher
    from refdelta.staging import Staging


@dataclass
class Run:
    """One MERGE under way.

    Attributes:
        txn: the transaction.
        snapshot: what it sees.
        pieces: the clauses, and what finds the pairs.
        candidates: the files that may hold rows which match.
        found: what the first pass found in them.
    """

    txn: Staging
    snapshot: Snapshot
    pieces: Pieces
    candidates: pa.Table = field(init=False)
    found: Found = field(default_factory=Found)

    @property
    def matcher(self) -> Matcher:
        """What finds the pairs."""
        return self.pieces.matcher

    @property
    def counts(self) -> Counter[str]:
        """How many rows there are, by what becomes of them."""
        return self.found.counts

    # --- the first pass ---

    def find(self) -> None:
        """Find out which rows match and in which rows something changes, and record what was read."""
        snapshot, pieces, found = self.snapshot, self.pieces, self.found
        if pieces.of_rest:
            self.txn.read_whole_table()
            self.candidates = snapshot.files
        else:
            read = target_predicate(self.matcher)
            # Had such a row been there, the MERGE would have gone otherwise.
            self.txn.read_predicate(read, pieces.matches_any)
            keep = BoundFilter(read).prune(snapshot.files, snapshot.schema, snapshot.partition_columns).keep
            self.candidates = snapshot.files.filter(keep)
        groups = grouped(self.txn.executor, self.candidates.column("size").to_pylist())
        bare = dataclasses.replace(snapshot, files=snapshot.files.schema.empty_table())
        look = functools.partial(_look, bare, pieces, self._columns())
        looked = (self.txn.executor or ThreadExecutor()).map(look, [self._files(group) for group in groups])
        for group, own in zip(groups, looked, strict=True):
            found.take_in(own, group)
        for number, acting in found.acting.items():
            found.matching[number] = found.matching[number] | acting if number in found.matching else acting
        numbers = sorted(found.matching)
        for number, add in zip(numbers, to_adds(self._files(numbers)), strict=True):
            self.txn.read_rows(add, found.matching[number])

    def _columns(self) -> list[str]:
        """What the conditions look at."""
        pieces, alias = self.pieces, self.matcher.target_alias
        conditions = (clause.condition_columns for clause in (*pieces.of_pairs, *pieces.of_rest))
        needed = {path[:2] for path in self.matcher.on.columns.union(*conditions)}
        names = self.snapshot.schema.names
        return [name for name in names if (alias, name) in needed] or names[:1]

    def _files(self, numbers: Sequence[int]) -> pa.Table:
        return chosen(self.candidates, numbers)

    # --- the second pass ---

    def write(self, snapshot: Snapshot) -> Rewritten:
        """Write the rows that change and those that are inserted; ``snapshot`` has the schema to come."""
        found, numbers = self.found, sorted(self.found.acting)
        touched = self._files(numbers)
        if self.txn.vectors:
            done = self._hide(touched, [found.acting[number] for number in numbers])
            numbers = sorted(found.updated)
            sources = shares(self.txn, self._files(numbers), [found.updated[number] for number in numbers])
        else:
            done = Rewritten(to_adds(touched), [], 0)
            remove_files(self.txn, done.removed)
            sources = shares(self.txn, touched, [None] * touched.num_rows)
        nothing = pa.array([], pa.int64())
        work = [Portion(share, nothing) for share in sources]
        inserts = list(self._inserts())
        if len(work) == len(inserts) == 1 and self._in_one:
            work = [Portion(sources[0], inserts[0])]
        else:
            work += [Portion(None, rows) for rows in inserts]
        added = write_anew(self.txn, snapshot, work, functools.partial(_anew, self.pieces, self.txn.vectors))
        written = sum(int(lookup(load_stats(add.stats), ("numRecords",))) for add in added)
        changed = sum(count for what, count in self.counts.items() if what == "inserted" or what.endswith("updated"))
        return dataclasses.replace(done, added=added, copied_rows=written - changed)

    @property
    def _in_one(self) -> bool:
        return self.txn.executor is None or self.txn.executor.group_bytes is None

    def _inserts(self) -> Iterator[pa.Array]:
        """The numbers of the source's rows that match none, for each task that inserts rows."""
        source = self.matcher.source
        if not self.pieces.of_source:
            return
        numbers = pa.arange(0, source.num_rows)
        rows = numbers.filter(pc.invert(pc.is_in(numbers, value_set=self.found.matched)))
        self.counts["inserted"] = self.pieces.count_inserted(rows)
        if not self.counts["inserted"]:
            return
        most = None if self.txn.executor is None else self.txn.executor.group_bytes
        length = len(rows) if most is None else max(1, most * source.num_rows // max(1, source.nbytes))
        for start in range(0, len(rows), length):
            # Taken, for a slice is pickled with all that it is a slice of.
            yield rows.take(pa.arange(start, min(len(rows), start + length)))

    def _hide(self, touched: pa.Table, rows: list[BitMap64]) -> Rewritten:
        """Stage deletion vectors for the rows that change."""
        bare = dataclasses.replace(plan_scan(self.snapshot, []), files=touched)
        found = enumerate(stand(bare, rows))
        return hide_rows(self.txn, [Match.of_rows(touched.slice(index, 1), own) for index, own in found])


def _look(snapshot: Snapshot, pieces: Pieces, columns: Sequence[str], files: pa.Table) -> Found:
    return pieces.find(dataclasses.replace(snapshot, files=files), columns)


def _anew(pieces: Pieces, vectors: bool, snapshot: Snapshot, portion: Portion) -> Iterator[pa.RecordBatch]:
    return pieces.anew(snapshot, portion, vectors=vectors)
