"""``convert_to_deltalake``, where libraries import it from."""

from __future__ import annotations

from refdelta.compat.deltalake.writer.writer import convert_to_deltalake

__all__ = ["convert_to_deltalake"]
