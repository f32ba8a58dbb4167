"""``DeltaStorageHandler``, where libraries import it from."""

from __future__ import annotations

from refdelta.compat.deltalake.fs import DeltaStorageHandler

PYARROW_AVAILABLE = True

__all__ = ["PYARROW_AVAILABLE", "DeltaStorageHandler"]
