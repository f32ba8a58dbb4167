"""The number of rows of each file, from its statistics."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.engine.file_stats import view_stats
from refdelta.protocol.types import StructType


def num_records(files: pa.Table) -> pa.Array:
    """How many physical rows each file of a list has, deleted ones included; null where its statistics do not say.

    Implements PROTOCOL.md, "Per-file Statistics", ``numRecords``.
    """
    rows = view_stats(files, StructType(), ()).rows
    return pc.if_else(pc.greater_equal(rows, 0), rows, pa.scalar(None, pa.int64()))
