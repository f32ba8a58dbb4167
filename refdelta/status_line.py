"""Watching work while it runs: a live line on a terminal, nothing at all in a pipe or a log file.

Imports only the standard library, so that anything may report progress without asking for the ``cli`` extra.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    import pyarrow as pa

_REDRAW_SECONDS = 0.1


class StatusLine:
    """One line that is drawn over itself: ``with StatusLine() as line: line.show("3 of 12")``.

    Args:
        stream: where the line goes, standard error unless said. Where that is no terminal nothing is ever written.
    """

    def __init__(self, stream: TextIO | None = None):
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._last = 0.0

    def show(self, text: str, *, force: bool = False) -> None:
        """Replace the line; calls that come quicker than the eye reads are dropped unless ``force``."""
        now = time.monotonic()
        if not self._live or (now - self._last < _REDRAW_SECONDS and not force):
            return
        self._last = now
        import shutil  # not before a line is drawn

        self._stream.write("\r\x1b[2K" + text[: shutil.get_terminal_size().columns - 1])
        self._stream.flush()

    def clear(self) -> None:
        """Take the line off the screen."""
        if self._live:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()


def watched(reader: pa.RecordBatchReader, line: StatusLine, what: str) -> pa.RecordBatchReader:
    """The same stream of batches, which shows how many rows went through it as they go."""
    import pyarrow as pa

    def batches() -> Iterator[pa.RecordBatch]:
        rows, start = 0, time.monotonic()
        for batch in reader:
            yield batch
            rows += batch.num_rows
            seconds = max(time.monotonic() - start, 1e-9)
            line.show(f"{what} {rows:,} rows, {rows / seconds:,.0f} rows/s")

    return pa.RecordBatchReader.from_batches(reader.schema, batches())
