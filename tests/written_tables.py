"""Tables whose log is written by hand, where that of another engine is needed; and their logs, read plainly."""

from __future__ import annotations

import json

import pyarrow as pa
from pyroaring import BitMap64

from refdelta import DeltaTable, write_deltalake
from refdelta.core.rows.deletion_vector import serialize_bitmap, z85_encode
from refdelta.table.types import parse_schema


def id_rows(*ids):
    """Rows of these ids, without other columns."""
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids_of(path, **options):
    """The ids of a table's rows in order, as a new handle with these options reads them."""
    return sorted(DeltaTable(path, **options).to_pyarrow_table().column("id").to_pylist())


def schema_of(path):
    """The schema in the metadata of the newest version, with the metadata of its fields."""
    return parse_schema(DeltaTable(path)._handle.snapshot.metadata.schema_string)


def commit_file(path, version):
    return path / "_delta_log" / f"{version:020d}.json"


def commit_of(path, version):
    return [json.loads(line) for line in commit_file(path, version).read_text().splitlines()]


def inline_vector(deleted):
    """The descriptor of a deletion vector in the log that deletes the rows at these positions."""
    body = serialize_bitmap(BitMap64(deleted))
    return {
        "storageType": "i",
        "pathOrInlineDv": z85_encode(body + bytes(-len(body) % 4)),
        "sizeInBytes": len(body),
        "cardinality": len(deleted),
    }


def actions(path, version, kind):
    return [line[kind] for line in commit_of(path, version) if kind in line]


def with_vector(path, gone):
    """A table of one file with the values 0 to 9, where a vector like one of another engine's deletes some; new ones
    are not enabled.
    """
    write_deltalake(
        path, pa.table({"id": list(range(10))}), configuration={"delta.feature.deletionVectors": "supported"}
    )
    (add,) = actions(path, 0, "add")
    vector = inline_vector(gone)
    stats = json.loads(add["stats"]) | {"tightBounds": False}
    remove = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True, "size": add["size"]}
    lines = [{"remove": remove}, {"add": {**add, "stats": json.dumps(stats), "deletionVector": vector}}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    commit_file(path, 1).write_text(text)
    return vector
