"""Variant columns: how they are stored, and their bounds in statistics.

PROTOCOL.md, "Variant Data Type" and "Statistics for Variant Columns".
"""

from __future__ import annotations

import datetime as dt
import json
import re
from base64 import b85decode
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from refdelta.arrow.variant import STORED
from refdelta.core.rows.deletion_vector import TO_B85
from refdelta.pruning.stats import lookup
from refdelta.table.types import VARIANT, StructField, StructType, leaves
from refdelta.table.variant import decode, parted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Find = Callable[[str, str], None]
    Bounds = dict[str, Any]


_VERSION = 1  # of the variant encoding, in the low four bits of the first byte of the metadata


def bare(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with variants in their storage type, which Arrow can compute with."""
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
    """Check that the variant column of a file is not shredded."""
    if isinstance(kind, pa.ExtensionType):
        kind = kind.storage_type
    names = {inner.name for inner in kind} if pt.is_struct(kind) else set()
    if names != set(STORED.names):
        what = f"a struct of {', '.join(sorted(names))}" if names else f"of type {kind}"
        find("variant-2", f"the variant column {item.name} is {what}, and the table does not support variantShredding")


def check_values(schema: StructType, live: pa.RecordBatch, find: Callable[[str, str], None]) -> None:
    """Report invalid variants: without a value, or with metadata of an unknown version."""
    for item in schema:
        if item.type != VARIANT:
            continue
        column = live.column(item.name).drop_null()
        metadata, value = (pc.struct_field(column, name) for name in STORED.names)
        heads = pc.unique(pc.binary_slice(metadata, 0, 1)).to_pylist()
        strange = [head for head in heads if head is None or not head or head[0] & 0xF != _VERSION]
        if strange:
            find(
                "variant-2",
                f"the metadata of a variant in column {item.name} begins with {strange[0]!r}, not version {_VERSION}",
            )
        elif value.null_count or pc.any(pc.equal(pc.binary_length(value), 0)).as_py():
            find("variant-2", f"a variant in column {item.name} has no value")


# --- bounds ----------------------------------------------------------------------------------------------------------


# RFC 9535, "Normalized Paths".
_STEP: Final = r"\['(?:[^'\\\x00-\x1f]|\\(?:['\\bfnrt]|u00[01][0-9a-f]))*'\]|\[(?:0|[1-9][0-9]*)\]"
_PATH: Final = re.compile(rf"\$(?:{_STEP})*")
_NO_PRIMITIVES: Final = (dict, list, type(None))
_SHORTEST: Final = 8  # the least length to which engines truncate strings
_MILLISECOND: Final = dt.timedelta(milliseconds=1)


def check_form(stats: dict[str, Any], schema: StructType, find: Find) -> None:
    """Check the form of a file's bounds of variants, independently of its rows.

    Args:
        stats: the JSON of ``add.stats``.
        schema: the schema of the table.
        find: takes clause and message of a finding.
    """
    for path, item in leaves(schema, physical=True):
        if item.type != VARIANT:
            continue
        low, high = (_bounds(stats, part, path, find) for part in ("minValues", "maxValues"))
        for name in low.keys() & high.keys():
            if _kind(low[name]) != _kind(high[name]):
                find(
                    "stats-7",
                    f"the bounds of {name} of {'.'.join(path)} are of two types: {low[name]!r} and {high[name]!r}",
                )


def _bounds(stats: dict[str, Any], part: str, path: Sequence[str], find: Find) -> Bounds:
    text, name = lookup(stats.get(part), path), ".".join(path)
    if text is None:
        return {}
    try:
        found = decode(*parted(b85decode(text.encode().translate(TO_B85))))
    except (ValueError, AttributeError) as error:
        find("stats-7", f"{part} of {name} is {text!r}, which is not a variant in Z85: {error}")
        return {}
    if not isinstance(found, dict):
        find("stats-7", f"{part} of {name} is {found!r}, which is not a variant object")
        return {}
    for key, value in found.items():
        if not _PATH.fullmatch(key):
            find("stats-7", f"{part} of {name} has {key!r}, which is not a normalized JSON path")
        elif isinstance(value, _NO_PRIMITIVES):
            find("stats-7", f"{part} of {name} has {value!r} for {key}, which is not a primitive value")
    return {key: value for key, value in found.items() if _PATH.fullmatch(key)}


class VariantRows:
    """The check of the bounds of one variant column against the rows of a file.

    Args:
        path: the column's logical path.
        physical: its physical path.
        stats: the JSON of ``add.stats``, whose form was checked before.
        find: takes clause and message of a finding.
    """

    def __init__(self, path: Sequence[str], physical: Sequence[str], stats: dict[str, Any], find: Find):
        self.path, self.find = path, find
        low, high = (_bounds(stats, part, physical, lambda *_: None) for part in ("minValues", "maxValues"))
        self.bounds = [
            (name, [_step(step) for step in re.findall(_STEP, name)], low.get(name), high.get(name))
            for name in sorted(low.keys() | high.keys())
        ]

    def take(self, live: pa.RecordBatch) -> None:
        """Check live rows, one by one: the structure of each may differ."""
        if not self.bounds:
            return
        column = live.column(self.path[0])
        for step in self.path[1:]:
            column = column.field(step)
        for row in column.to_pylist():
            try:
                value = None if row is None else decode(row["metadata"], row["value"])
            except (ValueError, TypeError):
                continue  # an invalid variant, which is a finding already
            for name, steps, low, high in self.bounds:
                self._hold(name, _at(value, steps), low, high)

    def _hold(self, name: str, value: Any, low: Any, high: Any) -> None:
        if isinstance(value, _NO_PRIMITIVES):
            return
        for bound, upper in ((low, False), (high, True)):
            if bound is None:
                continue
            where = f"{name} of {'.'.join(self.path)}"
            if _kind(bound) != _kind(value):
                self.find("stats-7", f"{where} has the bound {bound!r}, and a live row has {value!r}, of another type")
            elif (bound < value if upper else bound > value) and not _cut(bound, value):
                self.find("stats-1", f"{where} has the bound {bound!r}, and a live row has {value!r}")


def _step(text: str) -> str | int:
    inner = text[1:-1]
    if not inner.startswith("'"):
        return int(inner)
    plain: str = json.loads('"' + inner[1:-1].replace("\\'", "'").replace('"', '\\"') + '"')
    return plain


def _at(value: Any, steps: Sequence[str | int]) -> Any:
    for step in steps:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def _kind(value: Any) -> object:
    """The type of a primitive value. Integers and decimals of all widths are one type."""
    if isinstance(value, dt.datetime):
        return dt.datetime, value.tzinfo is None
    return Decimal if type(value) is int else type(value)


def _cut(bound: Any, value: Any) -> bool:
    """True if a value lies outside of a bound only because of a truncation that the specification allows."""
    if isinstance(value, str):
        return len(bound) >= _SHORTEST and value.startswith(bound)
    return isinstance(value, dt.datetime) and bool(dt.timedelta() <= value - bound < _MILLISECOND)
