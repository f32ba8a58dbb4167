"""Results as deltalake gives them: objects of arro3, or of pyarrow where arro3 is not installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def given(kind: str, value: Any) -> Any:
    """A value of pyarrow as arro3's class of this name, such as ``Table``; the value itself without arro3."""
    try:
        cls = getattr(import_module("arro3.core"), kind)
    except ModuleNotFoundError:
        return value
    return cls.from_stream(value) if kind == "RecordBatchReader" else cls.from_arrow(value)
