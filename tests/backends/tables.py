"""What the tests of this folder share: tables at a place of any backend, opened, written and looked into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from refdelta import DeltaTable, write_deltalake
from refdelta.engine.log.location import open_location
from refdelta.transaction import background
from row_judge import listed

if TYPE_CHECKING:
    from refdelta.transaction.results import CommitResult
    from row_judge import Rows
    from servers.running import Place

VECTORS = {"delta.enableDeletionVectors": "true"}
NOW = {"retention_hours": 0, "enforce_retention_duration": False}
"""How to have VACUUM take what no live version needs."""


def opened(place: Place, version: Any = None) -> DeltaTable:
    """A new handle, at the newest version unless said."""
    return DeltaTable(place.uri, version=version, storage_options=place.options)


def write(place: Place, data: Any, **options: Any) -> CommitResult:
    """As ``write_deltalake``, and without a handle."""
    return write_deltalake(place.uri, data, storage_options=place.options, **options)


def numbers(*ids: int, p: str | None = None, v: int = 0) -> pa.Table:
    """Rows of these ids, with a partition and a value."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("p", pa.string())])
    return pa.table({"id": list(ids), "v": [v] * len(ids), "p": [p] * len(ids)}, schema)


def ids(place: Place, version: Any = None, filters: Any = None) -> list[int]:
    """The ids of a version, in order, that a new handle reads."""
    return sorted(opened(place, version).to_pyarrow_table(["id"], filters)["id"].to_pylist())


def held(place: Place, version: Any = None) -> Rows:
    """The rows of a version, as the judge in SQLite has them."""
    return listed(opened(place, version).to_pyarrow_table())


def objects(place: Place, prefix: str = "") -> set[str]:
    """The names of all objects there are, of the log and others, once nothing is under way."""
    background.settle()
    return {info.key for info in open_location(place.uri, place.options).list(prefix)}


def files(place: Place) -> set[str]:
    """The names of all objects that are not of the log."""
    return {key for key in objects(place) if not key.startswith("_delta_log/")}


def paths(place: Place, version: Any = None) -> list[str]:
    """The data files of a version, as the log writes their names."""
    found: list[str] = opened(place, version).files()["path"].to_pylist()
    return found
