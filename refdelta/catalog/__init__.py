"""Catalogs of catalog-managed tables (PROTOCOL.md, "Catalog-managed tables").

:class:`SqlCatalog` keeps names, locations and ratified commits in a database: SQLite for one machine, PostgreSQL for
several. :class:`UnityCatalog` is a client of a server that speaks Unity Catalog's Delta API. A table of a catalog is a
:class:`refdelta.DeltaTable` with every verb.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from refdelta.catalog.base import Catalog
    from refdelta.catalog.sql import SqlCatalog
    from refdelta.catalog.unity import UnityCatalog

__all__ = ["Catalog", "SqlCatalog", "UnityCatalog", "open_catalog"]

_HOMES = {"Catalog": "base", "SqlCatalog": "sql", "UnityCatalog": "unity"}


def open_catalog(
    url: str,
    storage_options: "Mapping[str, str] | None" = None,
    locations: "Iterable[str] | None" = None,
    *,
    timeout: float | None = None,
) -> "Catalog":
    """The catalog at a URL: a :class:`UnityCatalog` for ``http`` and ``https``, a :class:`SqlCatalog` for all others.

    Args:
        url: the URL of the server or of the database. The token for a server comes from the environment,
            ``REFDELTA_TOKEN``.
        storage_options: options of the stores of its tables.
        locations: the folders below which tables are opened; None for those that each class has by default.
        timeout: of a database, after how many seconds a wait for it ends, as for :class:`SqlCatalog`; None for its
            default.

    Raises:
        InvalidArgumentError: the URL is wrong, or a package is not installed, or ``timeout`` is given for a server.
        StoreError: the database cannot be reached.

    Example::

        from refdelta.catalog import open_catalog

        open_catalog(f"sqlite:///{folder}/catalog.db").tables()
    """
    if url.partition("://")[0].lower() not in {"http", "https"}:
        from refdelta.catalog.sql import SqlCatalog

        return SqlCatalog(url, None, storage_options, locations=locations, timeout=timeout)
    import os

    from refdelta.catalog.unity import UnityCatalog
    from refdelta.errors import InvalidArgumentError

    if timeout is not None:
        raise InvalidArgumentError(f"timeout is for the database of a catalog, and {url} is a server")

    return UnityCatalog(url, os.environ.get("REFDELTA_TOKEN") or None, storage_options, locations=locations)


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
