"""The content of a table: its rows, and its files on the disk and in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refdelta import DeltaTable

if TYPE_CHECKING:
    from pathlib import Path


def rows_of(uri: Path) -> list[tuple[Any, ...]]:
    table = DeltaTable(uri).to_pyarrow_table()
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)


def data_files(uri: Path) -> set[str]:
    """The names of the files that are there, wanted or not."""
    return {path.name for path in uri.rglob("*.parquet") if "_delta_log" not in path.parts}


def committed(uri: Path) -> set[str]:
    """The names of the files that the newest version has."""
    return {path.rsplit("/", 1)[-1] for path in DeltaTable(uri).file_uris()}
