"""File systems and stores that the tests of the stores share."""

import io
import threading
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem


class HonestFileSystem(MemoryFileSystem):
    """fsspec's memory file system, made safe.

    There an exclusive create is a check followed by a write, and all readers share one position.
    """

    protocol = "honest"
    cachable = False
    lock = threading.RLock()

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.store = {}
        self.pseudo_dirs = [""]

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("honest://"))

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        with self.lock:
            super().pipe_file(path, value, mode=mode, **kwargs)

    def put_file(self, lpath, rpath, **kwargs):
        self.pipe_file(rpath, Path(lpath).read_bytes())

    def _open(self, path, mode="rb", **kwargs):
        with self.lock:
            opened = super()._open(path, mode=mode, **kwargs)
            return io.BytesIO(opened.getvalue()) if mode == "rb" else opened


@pytest.fixture
def honest():
    return HonestFileSystem()
