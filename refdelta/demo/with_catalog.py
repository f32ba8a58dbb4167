"""The last part of the main job: the same appends to a table of a catalog, whose commits go through one SQLite file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from refdelta.api.table import DeltaTable
from refdelta.demo import run as demo
from refdelta.demo.run import AppendsOutcome, DemoCheck, TableLocation
from refdelta.transaction.time_travel import Version

if TYPE_CHECKING:
    import pyarrow as pa

    from refdelta.catalog import SqlCatalog

_NAME = "demo.flights"


@dataclass(frozen=True)
class CatalogLocation(TableLocation):
    """The location of a table of a catalog, whose commits the catalog holds until they are published.

    Attributes:
        database: the URL of the catalog's database.
    """

    database: str = ""

    def __str__(self) -> str:
        return f"{_NAME} of the catalog {self.database}"

    def open(self, version: Version | None = None) -> DeltaTable:
        """The table, at its newest version unless said."""
        return _catalog(self.database).table(_NAME, version)

    def create(self, schema: pa.Schema, **options: Any) -> DeltaTable:
        """An empty table; ``options`` as :meth:`refdelta.catalog.Catalog.create_table` takes them."""
        options.pop("name", None)
        return _catalog(self.database).create_table(_NAME, schema, self.uri, commits="inline", **options)

    def publish(self) -> int:
        """Publish the commits that are not published yet; returns how many these were."""
        return _catalog(self.database).publish(_NAME)


def beside(place: TableLocation) -> CatalogLocation:
    """The location of a table of a catalog in a folder beside this one, with the catalog's SQLite file."""
    return CatalogLocation(f"{place.uri}-catalog/flights", place.options, f"sqlite:///{place.uri}-catalog/catalog.db")


def verify(place: CatalogLocation, source: pa.Table, written: AppendsOutcome) -> list[DemoCheck]:
    """Compare the table with the source and the reported appends: before the last commits are published, and after."""
    before = demo.verify(place, source, written)
    place.publish()
    after = [
        demo.check("all commits are published", place.publish(), 0),
        demo.check("the same sums after that", demo.by_carrier(_rows(place)), demo.by_carrier(source)),
    ]
    return _named([*before, *after])


def _rows(place: CatalogLocation) -> pa.Table:
    return place.open().to_pyarrow_table()


def _named(checks: Sequence[DemoCheck]) -> list[DemoCheck]:
    return [replace(check, what=f"catalog: {check.what}") for check in checks]


@lru_cache
def _catalog(database: str) -> SqlCatalog:
    """One of each process."""
    from refdelta.catalog import SqlCatalog

    return SqlCatalog(database)
