"""Catalogs of catalog-managed tables (PROTOCOL.md, "Catalog-managed tables").

:class:`SqlCatalog` keeps names, locations and ratified commits in a database: SQLite for one machine, PostgreSQL for
several. :class:`UnityCatalog` is a client of a server that speaks Unity Catalog's Delta API. A table of a catalog is a
:class:`refdelta.DeltaTable` with every verb.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from refdelta.catalog.base import Catalog
    from refdelta.catalog.sql import SqlCatalog
    from refdelta.catalog.unity import UnityCatalog

__all__ = ["Catalog", "SqlCatalog", "UnityCatalog"]

_HOMES = {"Catalog": "base", "SqlCatalog": "sql", "UnityCatalog": "unity"}


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
