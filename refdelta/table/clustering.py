"""Clustered tables: by which columns files are to hold rows of like values (PROTOCOL.md, "Clustered Table").

A table is clustered where its protocol has the feature :data:`FEATURE`, and then it has no partition columns. The
columns stand in the metadata domain :data:`DOMAIN`, as paths of physical names; every other module has logical ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from refdelta.core.log.actions import DomainMetadata
from refdelta.core.log.json_text import read_json
from refdelta.errors import InvalidLogError
from refdelta.table.types import StructField, StructType, physical_name

FEATURE: Final = "clustering"
DOMAIN: Final = "delta.clustering"
_COLUMNS: Final = "clusteringColumns"

ColumnPath = tuple[str, ...]
"""The names that lead to a column, from the outermost struct inwards."""

_SHOWN: Final = 200
"""How many characters of a domain that says something else an error shows."""


def clustering_columns(domains: Mapping[str, DomainMetadata], schema: StructType) -> tuple[ColumnPath, ...]:
    """The clustering columns of a table, by logical names and in their order; none where it is not clustered.

    Columns that the schema lacks are passed over: delta-spark leaves the physical names of before there when it drops
    the mapping of a table's columns, and goes on to write to it.

    Args:
        domains: the metadata domains of the table.
        schema: its schema.

    Raises:
        InvalidLogError: the domain is not what PROTOCOL.md says.
    """
    domain = domains.get(DOMAIN)
    found = [] if domain is None else [_logical(path, schema) for path in _physical_paths(domain)]
    return tuple(path for path in found if path is not None)


def is_clustered_by(columns: tuple[ColumnPath, ...], domains: Mapping[str, DomainMetadata], schema: StructType) -> bool:
    """Whether the domain names these columns and no others, not even one that the schema lacks."""
    try:
        known = clustering_columns(domains, schema)
        named = len(_physical_paths(domains[DOMAIN])) if DOMAIN in domains else 0
    except InvalidLogError:
        return False
    return columns == known and named == len(known)


def clustering_domain(columns: Iterable[ColumnPath], schema: StructType) -> DomainMetadata:
    """The action that makes these the clustering columns, as delta-spark writes it.

    Args:
        columns: logical names, spelled as in the schema. None of them: the table has no clustering columns any more.
        schema: the table's schema.
    """
    physical = [[physical_name(field) for field in _fields(path, schema)] for path in columns]
    content = {_COLUMNS: physical, "domainName": DOMAIN}
    configuration = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    return DomainMetadata(domain=DOMAIN, configuration=configuration, removed=False)


def _physical_paths(domain: DomainMetadata) -> list[list[str]]:
    try:
        content: Any = read_json(domain.configuration)
    except ValueError:
        content = None
    listed = content.get(_COLUMNS) if isinstance(content, dict) else None
    # Engines write lists of names; the example in PROTOCOL.md has plain names.
    paths = [[path] if isinstance(path, str) else path for path in listed] if isinstance(listed, list) else [None]
    good = [path for path in paths if isinstance(path, list) and path and all(isinstance(name, str) for name in path)]
    if len(good) != len(paths):
        raise InvalidLogError(
            f"the metadata domain {DOMAIN} does not list columns: {domain.configuration[:_SHOWN]}; alter.cluster_by() "
            "sets others, and alter.cluster_by(None) none"
        )
    return good


def _logical(physical: list[str], schema: StructType) -> ColumnPath | None:
    names: list[str] = []
    here: Any = schema
    for name in physical:
        fields = here.fields if isinstance(here, StructType) else ()
        found = next((field for field in fields if physical_name(field).lower() == name.lower()), None)
        if found is None:
            return None
        names.append(found.name)
        here = found.type
    return tuple(names)


def _fields(path: ColumnPath, schema: StructType) -> list[StructField]:
    fields: list[StructField] = []
    here: Any = schema
    for name in path:
        fields.append(here.field(name))
        here = fields[-1].type
    return fields
