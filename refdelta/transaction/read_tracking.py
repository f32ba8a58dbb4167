"""What a transaction records of its reads: that is what the commit is checked against."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from refdelta.core.conflicts.reads import EVERY_ROW, ReadSet
from refdelta.core.log.paths import same_path
from refdelta.core.pruning.row_predicate import row_predicate
from refdelta.transaction.row_matching import Matches, Questions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from refdelta.core.expressions.predicate import Predicate
    from refdelta.core.log.actions import Add
    from refdelta.engine.log.snapshot import Snapshot


class ReadRecord:
    """The reads of one transaction.

    Args:
        snapshot: what it sees; None where it creates the table.
    """

    def __init__(self, snapshot: Snapshot | None) -> None:
        self._table = snapshot
        self._reads = ReadSet(version=-1 if snapshot is None else snapshot.version)
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
        table = self._table
        asked = EVERY_ROW if table is None else row_predicate(predicate, table.schema, table.partition_columns)
        self._reads = self._reads.with_predicate(asked, finer=matches is not None)
        self.questions.add(predicate, matches)

    @contextmanager
    def reading(
        self, predicate: Predicate, files: Callable[[], Iterable[Add]], matches: Matches | None = None
    ) -> Iterator[None]:
        """For a read that may fail half-way: what it may have seen is recorded, whether or not it ends well.

        Args:
            predicate: see :meth:`read_predicate`, which this does before the block runs.
            files: gives the files that the block reads; called where the block raises. Then any of their rows may have
                been seen. A block that ends well records itself which rows it has read.
            matches: see :meth:`read_predicate`.
        """
        self.read_predicate(predicate, matches)
        try:
            yield
        except BaseException:
            self.read_files(files())
            raise

    def read_domains(self, names: Iterable[str] | None = None) -> None:
        """Record that metadata domains were read; None for all of them, and that there are no others."""
        if names is None:
            self._reads = dataclasses.replace(self._reads, every_domain=True)
        else:
            self._reads = dataclasses.replace(self._reads, domains=self._reads.domains | {*names})

    def rest_on_files(self, since_ms: int) -> None:
        """Record that the transaction adds files which it has not written, and which VACUUM may delete.

        Args:
            since_ms: the earliest time at which one of them may have become unreferenced, in milliseconds since 1970.
        """
        known = self._reads.unowned_since
        self._reads = dataclasses.replace(
            self._reads, unowned_since=since_ms if known is None else min(known, since_ms)
        )

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
