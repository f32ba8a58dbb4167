"""``BaseDeltaStorageHandler``, from which deltalake's handler is derived."""

from __future__ import annotations

from refdelta.compat.deltalake.fs import DeltaStorageHandler as BaseDeltaStorageHandler

__all__ = ["BaseDeltaStorageHandler"]
