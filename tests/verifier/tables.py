"""Handmade sound tables, and the findings of a verification of them."""

from __future__ import annotations

import json
from typing import Any

from pyroaring import BitMap64

from handmade import Handmade, field, struct
from refdelta.core.rows.deletion_vector import encode_inline, serialize_bitmap
from refdelta.verifier.run import verify_store

SCHEMA = struct(field("id", "long"), field("part", "string"))
FEATURES = {"minReaderVersion": 3, "minWriterVersion": 7}


def protocol(*writer: str, reader: tuple[str, ...] = ()) -> dict[str, Any]:
    """A protocol of named features; those for readers are in both lists."""
    return {"protocol": {**FEATURES, "readerFeatures": list(reader), "writerFeatures": [*writer, *reader]}}


def add(path: str, rows: int = 3, **fields: Any) -> dict[str, Any]:
    """An add of a file that need not be there."""
    stats = {"numRecords": rows, "minValues": {"id": 1}, "maxValues": {"id": 9}, "nullCount": {"id": 0, "part": 0}}
    action = {"path": path, "partitionValues": {}, "size": 10, "modificationTime": 1, "dataChange": True}
    return {"add": action | {"stats": json.dumps(stats)} | fields}


def remove(path: str, **fields: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": 2**42, "dataChange": True} | fields}


_BITMAP = serialize_bitmap(BitMap64([3, 4, 7, 11, 18, 29]))


def vector(text: str | None = None, cardinality: int = 6) -> dict[str, Any]:
    """An inline deletion vector: the rows 3, 4, 7, 11, 18 and 29, unless another text is given."""
    text = encode_inline(_BITMAP) if text is None else text
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(_BITMAP), "cardinality": cardinality}


def table(*partition_columns: str, schema: dict[str, Any] | None = None, **options: Any) -> Handmade:
    return Handmade(SCHEMA if schema is None else schema, *partition_columns, **options)


def found(made: Handmade, **options: Any) -> list[tuple[str, int | None, int | None]]:
    """Clause, version and line of each finding about the log; data files are not looked at."""
    report = verify_store(made.store, sample=0, **options)
    return [(finding.clause, finding.version, finding.line) for finding in report.findings]
