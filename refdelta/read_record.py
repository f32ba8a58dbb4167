"""What a transaction records of its reads: that is what the commit is checked against."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyroaring import BitMap64

from refdelta.concurrency.read_set import ReadSet
from refdelta.protocol.paths import same_path
from refdelta.questions import Matches, Questions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from refdelta.protocol.actions import Add
    from refdelta.protocol.predicate import Predicate


class ReadRecord:
    """The reads of one transaction.

    Args:
        version: the version that it sees; -1 where it creates the table.
    """

    def __init__(self, version: int) -> None:
        self._reads = ReadSet(version=version)
        self._rows_read: dict[str, tuple[Add, BitMap64]] = {}
        self.questions = Questions()

    @property
    def reads(self) -> ReadSet:
        """What was read so far."""
        return self._reads.with_rows(self._rows_read.values()) if self._rows_read else self._reads

    def read_whole_table(self) -> None:
        """Record that what the transaction does rests on every row of its snapshot."""
        self._reads = self._reads.with_everything()

    def read_predicate(self, predicate: Predicate, matches: Matches | None = None) -> None:
        """Record that what the transaction does rests on the rows for which ``predicate`` is true, and on there being
        no others.

        Args:
            predicate: bound to the table's schema.
            matches: a finer question than the predicate. It is asked of the live rows of a file that another writer
                added, in batches of the table's schema. Without it, a row matches where the predicate is true.
        """
        self._reads = self._reads.with_predicate(predicate, finer=matches is not None)
        self.questions.add(predicate, matches)

    def read_files(self, files: Iterable[Add]) -> None:
        """Record that rows of these files were read, and that it may have been any of their live rows. A file without
        a row that was wanted was not read.
        """
        self._reads = self._reads.with_files(files)

    def read_rows(self, add: Add, rows: BitMap64) -> None:
        """Record that rows of a file were read: those that matched, whether or not they change.

        Args:
            add: the log's entry.
            rows: their positions in the file, counted from 0, hidden rows included. Several calls add up.
        """
        if not len(rows):
            return
        key = same_path(add.path)
        _, known = self._rows_read.get(key, (add, BitMap64()))
        self._rows_read[key] = add, known | rows
