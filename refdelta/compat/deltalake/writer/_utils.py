"""Functions that libraries import from deltalake, although their module is private."""

from __future__ import annotations

from pathlib import Path

from refdelta.compat.deltalake.table import DeltaTable
from refdelta.errors import TableNotFoundError


def try_get_deltatable(table_uri: str | Path, storage_options: dict[str, str] | None) -> DeltaTable | None:
    """The table at a URI; None if there is none."""
    try:
        return DeltaTable(table_uri, storage_options=storage_options)
    except TableNotFoundError:
        return None


def try_get_table_and_table_uri(
    table_or_uri: str | Path | DeltaTable, storage_options: dict[str, str] | None = None
) -> tuple[DeltaTable | None, str]:
    """A table or a URI as both; no table if there is none. Raises ``ValueError`` for anything else."""
    if isinstance(table_or_uri, DeltaTable):
        return table_or_uri, table_or_uri.table_uri
    if not isinstance(table_or_uri, (str, Path)):
        raise ValueError("table_or_uri must be a str, Path or DeltaTable")  # noqa: TRY004 - as in deltalake
    return try_get_deltatable(table_or_uri, storage_options), str(table_or_uri)
