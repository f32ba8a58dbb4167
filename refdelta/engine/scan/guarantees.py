"""Conditions that all rows of a file meet, as expressions of pyarrow: by them a dataset leaves files out.

They follow from the partition values and from the statistics in the log. pyarrow understands a comparison of a column
with a constant, alone or with ``| is_null``.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from refdelta.arrow.arrays import ARROW_ZERO, pieces
from refdelta.engine.scan.file_stats import Bounds, view_stats
from refdelta.table.types import BINARY, FRACTIONAL, VARIANT, VOID, is_nested

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from refdelta.engine.scan.reader import ScanFile
    from refdelta.engine.scan.scan import Scan
    from refdelta.table.types import StructType

MOST_BOUNDS = 30_000
"""The most pairs of a file and a column that have conditions, each of which takes some 3 kB."""


def guarantees(scan: Scan, files: Sequence[ScanFile], schema: pa.Schema) -> Iterator[pc.Expression]:
    """The condition of each file of a scan. Floating-point columns have none: no statistics cover ``NaN``.

    Of a long list of files only the first columns have bounds: see :data:`MOST_BOUNDS`.

    Args:
        scan: the scan.
        files: its files, with their partition values.
        schema: the schema of the dataset, to which constants are cast.
    """
    known = scan.snapshot.schema
    names = [item.name for item in known if _is_bounded(known, item.name, scan, schema)]
    names = names[: MOST_BOUNDS // max(1, len(files))]
    bounds = _bounds(scan, names, schema)
    for file in files:
        conditions = [_equals(name, value) for name, value in file.partition_values.items()]
        conditions += next(bounds)
        yield reduce(and_, conditions) if conditions else pc.scalar(True)


def _is_bounded(known: StructType, name: str, scan: Scan, schema: pa.Schema) -> bool:
    kind = known.field(name).type
    plain = not (is_nested(kind) or kind in FRACTIONAL or kind in (BINARY, VARIANT, VOID))
    stored = name not in scan.plan.partition_columns and name in scan.plan.schema.names
    # A schema of the caller may give the column another type, to which its bounds cannot be cast.
    return plain and stored and name in schema.names and _same_values(scan.plan.schema, schema, name)


def _same_values(own: pa.Schema, given: pa.Schema, name: str) -> bool:
    kind, other = own.field(name).type, given.field(name).type
    return bool(kind == other or (pt.is_string(kind) and pt.is_large_string(other)))


def _equals(name: str, value: pa.Scalar) -> pc.Expression:
    return pc.field(name) == value if value.is_valid else pc.field(name).is_null()


def _bounds(scan: Scan, names: Sequence[str], schema: pa.Schema) -> Iterator[list[pc.Expression]]:
    """The conditions of each file on columns with statistics."""
    for piece in pieces(scan.files) if names else [scan.files]:
        columns: list[Iterator[list[pc.Expression]]] = []
        if names:
            view = view_stats(piece, scan.snapshot.schema, [(name,) for name in names])
            columns = [_conditions(schema.field(name), view.bounds[name,], view.rows) for name in names]
        for _ in range(piece.num_rows):
            yield [one for column in columns for one in next(column)]


def _conditions(column: pa.Field, bounds: Bounds, rows: pa.Array) -> Iterator[list[pc.Expression]]:
    """The conditions of each file on a column."""
    field = pc.field(column.name)
    null, valid = field.is_null(), field.is_valid()
    nulls = zip(pc.equal(bounds.nulls, rows).to_pylist(), pc.equal(bounds.nulls, ARROW_ZERO).to_pylist(), strict=True)
    for low, high, (all_null, none_null) in zip(
        *(side.cast(column.type) for side in (bounds.low, bounds.high)), nulls, strict=True
    ):
        found: list[Any] = [field >= low] if low.is_valid else []
        found += [field <= high] if high.is_valid else []
        if none_null:
            yield [*found, valid]
        else:
            yield [null] if all_null else [one | null for one in found]
