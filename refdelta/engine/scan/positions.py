"""Positions of rows in their files: finding the positions that a filter selects, and reading rows by position.

A position is the number of a row in its data file, counted from 0, deleted rows included, as in deletion vectors.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from refdelta.engine.parquet.dv import to_bitmap
from refdelta.engine.scan.reader import POSITION, FileReader, ReadPlan, ScanFile, deleted_rows, physical_rows
from refdelta.engine.scan.scan import read_files, read_together, scan_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from refdelta.engine.scan.scan import Scan
    from refdelta.engine.work.executor import Executor
    from refdelta_storage.base import Store


@dataclass(frozen=True)
class FileRows:
    """Some live rows of a file, with its deleted rows and its size.

    Attributes:
        rows: the positions of the rows.
        deleted: the positions of the rows that its deletion vector hides.
        physical_rows: the number of rows by its footer, deleted ones included.
    """

    rows: BitMap64
    deleted: BitMap64
    physical_rows: int

    @property
    def live_rows(self) -> int:
        """The number of rows that are not deleted."""
        return self.physical_rows - len(self.deleted)


class RowsByFile(dict[int, BitMap64]):
    """Positions of rows, by the index of their file in a list."""

    def note(self, files: pa.Array, positions: pa.Array) -> None:
        """Add rows.

        Args:
            files: the index of each row's file, ascending.
            positions: the position of each row in its file.
        """
        runs = pc.run_end_encode(files, run_end_type=pa.int64())
        start = 0
        for number, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            self.add(number, to_bitmap(positions.slice(start, end - start)))
            start = end

    def add(self, number: int, rows: BitMap64) -> None:
        """Add the rows of one file, by its index."""
        if number in self:
            self[number] |= rows
        else:
            self[number] = rows


def find_rows(scan: Scan, executor: Executor | None = None) -> Iterator[FileRows]:
    """The positions of the rows of a scan, file by file in their order. Files are read in parallel.

    Only the columns of the filter are read. Errors as for :meth:`Scan.to_batches`.

    Args:
        scan: the files and the filter.
        executor: runs the reads; None for the executor of the scan.
    """
    plan = dataclasses.replace(
        scan.plan,
        columns=(),
        filter_columns=tuple(
            item
            for item in scan.plan.read
            if scan.plan.row_filter is not None and item.name in scan.plan.row_filter.columns
        ),
        positions=True,
    )

    files = scan_files(dataclasses.replace(scan, plan=plan))
    tasks = read_together(scan.store, files) if executor is None else [[file] for file in files]
    found = (executor or scan.executor).map(functools.partial(_find, scan.store, plan), tasks)
    return itertools.chain.from_iterable(found)


def _find(store: Store, plan: ReadPlan, files: Sequence[ScanFile]) -> list[FileRows]:
    reader, found = FileReader(store, plan), []
    for file in files:
        with reader.open(file) as opened:
            rows = BitMap64()
            for batch in opened.batches:
                rows |= to_bitmap(batch.column(POSITION.name))
            rows.run_optimize()
            found.append(FileRows(rows, opened.deleted, opened.physical_rows))
    return found


def stand(scan: Scan, rows: Sequence[BitMap64]) -> Iterator[FileRows]:
    """The files of a scan with given rows. Only footers and deletion vectors are read.

    Errors as for :meth:`Scan.to_batches`.

    Args:
        scan: the files.
        rows: the positions of the rows, one set a file.
    """
    bare = dataclasses.replace(scan, plan=ReadPlan(()))

    def look(task: tuple[ScanFile, BitMap64]) -> FileRows:
        file, known = task
        return FileRows(known, deleted_rows(scan.store, file), physical_rows(scan.store, file))

    return scan.footers.map(look, zip(scan_files(bare), rows, strict=True))


def read_rows(scan: Scan, rows: Sequence[BitMap64 | None]) -> Iterator[pa.RecordBatch]:
    """Some rows of the files of a scan, in their order.

    Errors as for :meth:`Scan.to_batches`.

    Args:
        scan: the columns and the files; its filter applies too.
        rows: for each file the positions of the rows to read; None for all live rows.
    """
    files = [dataclasses.replace(file, rows=own) for file, own in zip(scan_files(scan), rows, strict=True)]
    return read_files(scan, files)
