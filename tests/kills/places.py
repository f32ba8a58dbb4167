"""Where a table of the campaigns is that a catalog manages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from refdelta import DeltaTable
    from refdelta.catalog import SqlCatalog


@dataclass(frozen=True)
class CatalogPlace:
    """A table of a catalog.

    Attributes:
        url: of the catalog's database.
        folder: the table's.
        commits: ``staged`` or ``inline``.
        name: the table's.
    """

    url: str
    folder: str
    commits: Any
    name: str = "kills.t"

    def create(self, schema: pa.Schema, **options: Any) -> DeltaTable:
        return _catalog(self.url).create_table(self.name, schema, self.folder, commits=self.commits, **options)

    def open(self) -> DeltaTable:
        return _catalog(self.url).table(self.name)


@lru_cache
def _catalog(url: str) -> SqlCatalog:
    """One of each process."""
    from refdelta.catalog import SqlCatalog

    return SqlCatalog(url, locations=["/"])
