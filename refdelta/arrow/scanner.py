"""Scanners of pyarrow as readers, without the deadlock of ``Scanner.to_reader``.

pyarrow (21 to 26 at least) starts the scan of ``Scanner.to_reader`` while the calling thread holds the interpreter's
lock. A thread of Arrow that has finished a file opens the next one with a lock of the scan in its hands. If the file
system is in Python, it then waits for the interpreter's lock, and the calling thread for the lock of the scan: neither
ever ends. ``Scanner.to_batches`` gives up the interpreter's lock for the start and for each batch.
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
