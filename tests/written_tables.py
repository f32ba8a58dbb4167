"""Tables whose log is written by hand, where that of another engine is needed; and their logs, read plainly."""

from __future__ import annotations

import json

import pyarrow as pa
from pyroaring import BitMap64

from refdelta import write_deltalake
from refdelta.core.rows.deletion_vector import serialize_bitmap, z85_encode


def commit_of(path, version):
    lines = (path / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    return [json.loads(line) for line in lines]


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
    bitmap = serialize_bitmap(BitMap64(gone))
    vector = {
        "storageType": "i",
        "pathOrInlineDv": z85_encode(bitmap),
        "sizeInBytes": len(bitmap),
        "cardinality": len(gone),
    }
    stats = json.loads(add["stats"]) | {"tightBounds": False}
    remove = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True, "size": add["size"]}
    lines = [{"remove": remove}, {"add": {**add, "stats": json.dumps(stats), "deletionVector": vector}}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (path / "_delta_log" / f"{1:020d}.json").write_text(text)
    return vector
