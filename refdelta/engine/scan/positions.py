"""Rows by their positions in their files: which ones a filter selects, and reading these alone.

A position is the number of a row in its data file, counted from 0, deleted rows included. It is what deletion vectors
hold.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from refdelta.engine.parquet.dv import to_bitmap
from refdelta.engine.scan.reader import POSITION, ReadPlan, ScanFile, deleted_rows, open_file, physical_rows, read_file
from refdelta.engine.scan.scan import scan_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from refdelta.engine.scan.executor import Executor
    from refdelta.engine.scan.scan import Scan
    from refdelta_storage.base import Store


@dataclass(frozen=True)
class FileRows:
    """Some live rows of a file, and how the file stands.

    Attributes:
        rows: the positions of the rows.
        deleted: those that its deletion vector hides.
        physical_rows: how many rows it has by its footer, deleted ones included.
    """

    rows: BitMap64
    deleted: BitMap64
    physical_rows: int

    @property
    def live_rows(self) -> int:
        """How many rows are not deleted."""
        return self.physical_rows - len(self.deleted)


class RowsByFile(dict[int, BitMap64]):
    """Positions of rows, by the number of their file in some list."""

    def note(self, files: pa.Array, positions: pa.Array) -> None:
        """Add rows.

        Args:
            files: the number of each row's file, ascending.
            positions: the row's place in it.
        """
        runs = pc.run_end_encode(files, run_end_type=pa.int64())
        start = 0
        for number, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            rows = to_bitmap(positions.slice(start, end - start))
            self[number] = self[number] | rows if number in self else rows
            start = end


def find_rows(scan: Scan, executor: Executor | None = None) -> Iterator[FileRows]:
    """The rows that a scan gives, by position: for each of its files in their order, which are read in parallel.

    Only the columns that the filter looks at are read. Raises as :meth:`Scan.to_batches`.

    Args:
        scan: which rows of which files.
        executor: who reads; None for the scan's own.
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
    return (executor or scan.executor).map(functools.partial(_find, scan.store, plan), files)


def _find(store: Store, plan: ReadPlan, file: ScanFile) -> FileRows:
    with open_file(store, file, plan) as opened:
        rows = BitMap64()
        for batch in opened.batches:
            rows |= to_bitmap(batch.column(POSITION.name))
        rows.run_optimize()
        return FileRows(rows, opened.deleted, opened.physical_rows)


def stand(scan: Scan, rows: Sequence[BitMap64]) -> Iterator[FileRows]:
    """How the files of a scan stand of which these rows are known, one set a file; only footers and vectors are read.

    Raises as :meth:`Scan.to_batches`.
    """
    bare = dataclasses.replace(scan, plan=ReadPlan(()))

    def look(task: tuple[ScanFile, BitMap64]) -> FileRows:
        file, known = task
        return FileRows(known, deleted_rows(scan.store, file), physical_rows(scan.store, file))

    return scan.footers.map(look, zip(scan_files(bare), rows, strict=True))


def read_rows(scan: Scan, rows: Sequence[BitMap64 | None]) -> Iterator[pa.RecordBatch]:
    """Some rows of the files of a scan, in their order.

    Args:
        scan: which columns of which files; its filter holds too.
        rows: for each file the positions of the rows to read; None for all that are live.

    Raises as :meth:`Scan.to_batches`.
    """
    tasks = [dataclasses.replace(file, rows=own) for file, own in zip(scan_files(scan), rows, strict=True)]
    return scan.executor.stream(
        lambda file: read_file(scan.store, file, scan.plan), tasks, weigh=lambda batch: int(batch.nbytes)
    )
