"""Scanners of pyarrow as readers, for files that a file system in Python reads.

pyarrow (21 to 26 at least) keeps the interpreter's lock while ``Scanner.to_reader`` starts a scan, which on a busy
machine could wait for ever for threads of Arrow that need the lock. ``Scanner.to_batches`` gives it up for the start
and for each batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator


def reader_of(scanner: Any) -> pa.RecordBatchReader:
    """The rows of a scanner as a reader. No file is opened before the first batch is read."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield from scanner.to_batches()

    return pa.RecordBatchReader.from_batches(scanner.projected_schema, batches())
