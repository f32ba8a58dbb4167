"""Row matching: whether a transaction would have read rows that another writer added."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec
import pyarrow as pa
from pyroaring import BitMap64

from refdelta.core.log.actions import DeletionVectorDescriptor
from refdelta.core.log.statistics import num_records
from refdelta.core.rows.deletion_vector import encode_inline, serialize_bitmap
from refdelta.core.rows.sets import MOST_ROWS, shown
from refdelta.engine.log.state import adds_table
from refdelta.engine.parquet.dv import to_bitmap, to_positions
from refdelta.errors import DeltaError, ExpressionError

if TYPE_CHECKING:
    from refdelta.core.conflicts.state import AddedRows
    from refdelta.core.log.actions import Add
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.errors import ConflictDetails
    from refdelta.expressions.expression import Predicate

Item = TypeVar("Item")

_CONFIRMED = 10_000
"""The most rows that are confirmed in a file."""

Matches: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.Array]]
"""A finer test than a predicate: the numbers of those rows that would have been read, of rows in batches of the
table's schema. They come in any order, and may come twice.
"""


@dataclass
class RowMatching:
    """The tests of a transaction, one for each of its reads. A row matches if one of them is true."""

    asked: list[tuple[Predicate, Matches | None]] = field(default_factory=list)
    # The file with the last row that matched, alone in a snapshot, and the predicate that the row satisfies.
    _matched: tuple[Add, Snapshot, Predicate] | None = None

    def add(self, predicate: Predicate, matches: Matches | None) -> None:
        """Add a test: the rows for which ``predicate`` is true, and of these the rows that ``matches`` finds."""
        self.asked.append((predicate, matches))

    def look(self, snapshot: Snapshot, files: Iterable[Add]) -> Iterator[bool]:
        """For each file, whether one of its live rows matches; the last result is the first True.

        Args:
            snapshot: a snapshot with the table's schema.
            files: data files of the table, which need not be live.

        Raises:
            DataFileError: a file cannot be read.
        """
        for add in files:
            alone = snapshot.with_files(adds_table([add]))
            found = next((one for one in self.asked if _matches(alone, *one)), None)
            yield found is not None
            if found is not None:
                predicate, matches = found
                self._matched = (add, alone, predicate) if matches is None else None
                return

    def confirms(self, snapshot: Snapshot, moved: Iterable[AddedRows], *, trusted: bool) -> bool:
        """Whether each of these rows matches.

        Args:
            snapshot: a snapshot with the table's schema.
            moved: rows of data files of the table, with their positions.
            trusted: whether a row matches if that cannot be decided. Then the finer tests are left out, which are of
                rows for which the predicate is true.

        Raises:
            DataFileError: a file cannot be read.
        """
        return all(self._each_matches(snapshot.with_files(adds_table([only(one)])), one, trusted) for one in moved)

    def _each_matches(self, alone: Snapshot, wanted: AddedRows, trusted: bool) -> bool:
        from refdelta.engine.scan.positions import find_rows
        from refdelta.engine.scan.scan import plan_scan

        if wanted.rows is None or wanted.count > _CONFIRMED:
            return trusted
        left = wanted.rows if self.asked or not trusted else BitMap64()
        for predicate, matches in self.asked:
            try:
                for found in find_rows(plan_scan(alone, [], predicate)):
                    rows = found.rows
                    if matches is not None and not trusted:
                        rows = _finer(alone, wanted, rows, matches)
                    left = left - rows
            except ExpressionError:
                return trusted
        return not left

    def placed(self, conflict: ConflictDetails) -> ConflictDetails:
        """The details of a conflict with the rows that match, if it is over the file in which one was found."""
        from refdelta.engine.scan.positions import find_rows
        from refdelta.engine.scan.scan import plan_scan

        if self._matched is None or conflict.positions or self._matched[0].path not in conflict.files:
            return conflict
        add, alone, predicate = self._matched
        try:
            found = next(iter(find_rows(plan_scan(alone, [], predicate))), None)
        except DeltaError:
            found = None  # the rows are for the message only
        if found is None or not found.rows:
            return conflict
        return dataclasses.replace(conflict, rows=len(found.rows), positions=shown({add.path: found.rows}))


def _matches(alone: Snapshot, predicate: Predicate, matches: Matches | None) -> bool:
    from refdelta.engine.scan.scan import plan_scan

    scan = plan_scan(alone, [] if matches is None else None, predicate)
    if not scan.files.num_rows:
        return False
    batches = scan.to_batches()
    with closing(_generator(batches if matches is None else filter(len, matches(batches)))) as found:
        try:
            return next(found, None) is not None
        except ExpressionError:
            # The statement would have failed on such a row, so its result would have been another one.
            return True


def _finer(alone: Snapshot, file: AddedRows, rows: BitMap64, matches: Matches) -> BitMap64:
    """Those of some rows of a file that a finer test finds."""
    from refdelta.engine.scan.scan import plan_scan

    some = alone.with_files(adds_table([only(dataclasses.replace(file, rows=rows))]))
    positions = to_positions(rows)
    found = BitMap64()
    for numbers in matches(plan_scan(some).to_batches()):
        found |= to_bitmap(positions.take(numbers))
    return found


def _generator(items: Iterator[Item]) -> Generator[Item, None, None]:
    yield from items


def only(rows: AddedRows) -> Add:
    """An entry of a file with only these rows: an inline deletion vector, which is not in the log, hides the others."""
    records = num_records(rows.add)
    if rows.rows is None or records is None or not 0 <= records <= MOST_ROWS:
        return rows.add
    hidden = BitMap64(range(records)) - rows.rows
    hidden.run_optimize()
    body = serialize_bitmap(hidden)
    vector = DeletionVectorDescriptor(
        storage_type="i", path_or_inline_dv=encode_inline(body), size_in_bytes=len(body), cardinality=len(hidden)
    )
    return msgspec.structs.replace(rows.add, deletion_vector=vector)
