"""Which files a version needs, and which there are: by looks that share nothing with VACUUM."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from refdelta import DeltaTable
from refdelta.core.rows.deletion_vector import relative_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def objects(path: Path) -> set[str]:
    """The files of the table's folder, without those of the log that are not temporary."""
    found = (file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
    return {name for name in found if not name.startswith(("_delta_log/0", "_delta_log/_last_checkpoint"))}


def needs(table: DeltaTable, version: int) -> Iterator[str]:
    """The data files of a version, and the files of their deletion vectors."""
    for row in DeltaTable(table.table_uri, version=version)._handle.snapshot.files.to_pylist():
        yield unquote(row["path"])
        if row["deletionVector"] and row["deletionVector"]["storageType"] == "u":
            yield relative_key(row["deletionVector"]["pathOrInlineDv"])
