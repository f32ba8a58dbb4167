"""``TableScan``: a planned read of one version of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from refdelta.engine.scan.scan import Scan, ScanExplanation


class TableScan:
    """A planned read of one version; made by :meth:`refdelta.DeltaTable.scan`. It can be run any number of times.

    Consumers of Arrow streams accept it: it has ``__arrow_c_stream__``.

    Example::

        scan = table.scan(columns=["id"], predicate="day >= DATE '2026-01-01'")
        print(scan.explain())
        scan.to_table()
    """

    def __init__(self, scan: Scan):
        self._scan = scan

    def __repr__(self) -> str:
        return repr(self._scan)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as an Arrow C stream, read while they are consumed."""
        return self._scan.__arrow_c_stream__(requested_schema)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self._scan.schema

    @property
    def files(self) -> pa.Table:
        """The log's entries of the files that are read, in the columns of :meth:`refdelta.DeltaTable.files`."""
        return self._scan.files

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in batches, in the order of the file list and of the rows in each file.

        Files, and the row groups of large files, are read in parallel; the memory of waiting results is bounded.

        Raises:
            DataFileNotFoundError: a file that the log names does not exist.
            DataFileError: a file is damaged or is not Parquet.
            UnsafePathError: a path of the log leaves the table.

        Example::

            for batch in table.scan(columns=["id"]).to_batches():
                batch.num_rows
        """
        return self._scan.to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a ``RecordBatchReader``. Errors as for :meth:`to_batches`.

        Example::

            table.scan().to_reader().schema
        """
        return self._scan.to_reader()

    def to_table(self) -> pa.Table:
        """All rows in memory. Errors as for :meth:`to_batches`.

        Example::

            table.scan(predicate="id = 3").to_table().num_rows
        """
        return self._scan.to_table()

    def count(self) -> int:
        """The number of rows of the result.

        Without a filter on rows it follows from statistics, or from the footers of files without them. Errors as for
        :meth:`to_batches`.

        Example::

            table.scan(predicate="id = 3").count()
        """
        return self._scan.count()

    def file_counts(self) -> list[int]:
        """For each file of the scan, the number of live rows, without regard to the filter.

        It follows from statistics, or from the footers of files without them. Errors as for :meth:`to_batches`.

        Example::

            sum(table.scan().file_counts())
        """
        return self._scan.file_counts()

    def explain(self, *, readers: bool = False) -> ScanExplanation:
        """The files that are read, and those that are not, with the reasons.

        Args:
            readers: whether to name the readers of the files in ``to_polars``, ``to_duckdb`` and
                ``to_pyarrow_dataset``, too, for which the footers of all files are read.

        Example::

            print(table.scan(predicate="id = 3").explain())
        """
        return self._scan.explain(readers=readers)
