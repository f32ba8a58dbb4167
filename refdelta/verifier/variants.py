"""Columns of variants: how they are stored, and the bytes of each (PROTOCOL.md, "Variant Data Type")."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from refdelta.core.table.types import VARIANT, StructField, StructType
from refdelta.engine.arrow.variant import STORED

if TYPE_CHECKING:
    from collections.abc import Callable

_VERSION = 1  # of the form of variants, in the low half of the first byte of their metadata


def bare(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with variants as what they are stored as: Arrow computes with that."""
    kinds = [_bare(item.type) for item in batch.schema]
    if kinds == batch.schema.types:
        return batch
    columns = [column.cast(kind) for column, kind in zip(batch.columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _bare(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.ExtensionType):
        return STORED
    inner = [_bare(kind.field(at).type) for at in range(kind.num_fields)]
    if inner == [kind.field(at).type for at in range(kind.num_fields)]:
        return kind
    if pt.is_struct(kind):
        return pa.struct([pa.field(kind.field(at).name, one) for at, one in enumerate(inner)])
    return pa.list_(inner[0]) if pt.is_list(kind) else pa.map_(_bare(kind.key_type), _bare(kind.item_type))


def check_stored(item: StructField, kind: pa.DataType, find: Callable[[str, str], None]) -> None:
    """Hold the column of a file against the form that is not shredded."""
    if isinstance(kind, pa.ExtensionType):
        kind = kind.storage_type
    names = {inner.name for inner in kind} if pt.is_struct(kind) else set()
    if names != set(STORED.names):
        what = f"a struct of {', '.join(sorted(names))}" if names else f"of type {kind}"
        find("variant-2", f"the variant {item.name} is {what}, and the table has no variantShredding")


def check_values(schema: StructType, live: pa.RecordBatch, find: Callable[[str, str], None]) -> None:
    """Note variants that are none: without bytes, or with metadata of an unknown version."""
    for item in schema:
        if item.type != VARIANT:
            continue
        column = live.column(item.name).drop_null()
        metadata, value = (pc.struct_field(column, name) for name in STORED.names)
        heads = pc.unique(pc.binary_slice(metadata, 0, 1)).to_pylist()
        strange = [head for head in heads if head is None or not head or head[0] & 0xF != _VERSION]
        if strange:
            find("variant-2", f"the metadata of a variant of {item.name} begins with {strange[0]!r}")
        elif value.null_count or pc.any(pc.equal(pc.binary_length(value), 0)).as_py():
            find("variant-2", f"a variant of {item.name} has no value")
