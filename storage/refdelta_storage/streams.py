"""Streams of stores whose reads and writes are requests: one over ranged reads, one that collects what is sent."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from refdelta_storage.disk import OutputFile
from refdelta_storage.errors import StorageError

READ_AHEAD = 256 << 10
"""The least number of bytes of a request, since readers of file formats read a few bytes at a time."""

_BUFFER = 1 << 20


class RangedInput(io.RawIOBase):
    """A stream that fetches what is read, with some bytes more, and keeps the last piece.

    Args:
        fetch: gives ``length`` bytes from ``start``, fewer only where the object ends.
        size: the size of the object in bytes. Nothing is fetched before the first read.
    """

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        super().__init__()
        self._fetch = fetch
        self._size = size
        self._position = 0
        self._piece, self._piece_start = b"", 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The position of the next read."""
        self._open()
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a position, as any stream does; no request."""
        self._open()
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"negative position {base + offset}")
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to ``size`` bytes, all that are left without it; one request at most."""
        self._open()
        left = max(0, self._size - self._position)
        length = left if size is None or size < 0 else min(size, left)
        if not length:
            return b""
        offset = self._position - self._piece_start
        if offset < 0 or offset + length > len(self._piece):
            self._piece = self._fetch(self._position, min(left, max(length, READ_AHEAD)))
            self._piece_start, offset = self._position, 0
        data = self._piece[offset : offset + length]
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        """All that is left."""
        return self.read(-1)

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer with the remaining bytes, up to its size."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Forget the piece that is kept."""
        self._piece = b""
        super().close()

    def _open(self) -> None:
        if self.closed:
            raise ValueError("the stream is closed")


@contextmanager
def collecting(translate: Callable[[OSError], StorageError], send: Callable[[BinaryIO], None]) -> Iterator[BinaryIO]:
    """A stream into a file of this machine, which is sent when the block ends well.

    An upload that is begun at once would have to be given up after an exception, which no two services do alike; this
    way nothing is asked of them before the object is whole. The file has no name where the system allows it, so that
    it goes with the process, however that ends.

    Args:
        translate: makes a ``StorageError`` of what goes wrong with the file.
        send: is called with the finished file, open for reading.
    """
    try:
        file = tempfile.TemporaryFile(prefix="refdelta-", buffering=0)  # noqa: SIM115 - closed below
        descriptor = os.dup(file.fileno())
    except OSError as error:
        raise translate(error) from error
    with file:
        with io.BufferedWriter(OutputFile(descriptor, translate), _BUFFER) as stream:
            yield cast("BinaryIO", stream)
        file.seek(0)
        send(cast("BinaryIO", file))


class CollectingStream(io.BytesIO):
    """A stream whose content outlives a ``close``, since the libraries that write to it like to close it."""

    content = b""

    def close(self) -> None:
        """Close it, and keep what was written."""
        if not self.closed:
            self.content = self.getvalue()
        super().close()
