"""Changes of the types of columns (PROTOCOL.md, "Type Widening")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refdelta.core.table.types import (
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    INTEGRAL,
    LONG,
    SHORT,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    DecimalType,
    StructType,
    parse_schema,
)
from refdelta.errors import DeltaError
from refdelta.verifier.schemas import Part, fields, parts

if TYPE_CHECKING:
    from refdelta.verifier.tables import TableCheck

_CHANGES = "delta.typeChanges"
# Parquet holds these alike, and engines let columns pass from one to the next before there was a feature for it.
_SMALL = (BYTE, SHORT, INTEGER)


def may_widen(narrow: DataType, wide: DataType) -> bool:
    """Whether the specification has this change of a type."""
    match narrow, wide:
        case DecimalType(), DecimalType():
            more, further = wide.precision - narrow.precision, wide.scale - narrow.scale
            return more >= further >= 0
        case _, DecimalType() if narrow in INTEGRAL:
            digits = 20 if narrow == LONG else 10
            return wide.precision - digits >= wide.scale >= 0
    if narrow in INTEGRAL and wide in INTEGRAL:
        return INTEGRAL[narrow] < INTEGRAL[wide]
    return (narrow, wide) in {(FLOAT, DOUBLE), (DATE, TIMESTAMP_NTZ), *((small, DOUBLE) for small in _SMALL)}


def check_changes(table: TableCheck, before: str | None, schema: StructType) -> None:
    """Look at the changes that fields record, and at columns that are of another type than under the schema before.

    What counts is the type that a column had when a live file was written: where a version is restored, the files with
    wider values are gone.
    """
    now = {part.path: part for part in parts(schema)}
    if table.state.supports("typeWidening") or table.state.supports("typeWidening-preview"):
        for part in fields(schema):
            _recorded(table, part)
    old = _parsed(before)
    anew = set() if old is None else {was.path for was in parts(old) if _other_type(was, now)}
    seen = set()
    for text in table.state.schemas_of_files() if anew else ():
        for was in parts(_parsed(text) or StructType()):
            if was.path in anew and _other_type(was, now) and (was.path, was.type) not in seen:
                seen.add((was.path, was.type))
                _changed(table, was, now[was.path])


def _other_type(was: Part, now: dict[tuple[str, ...], Part]) -> bool:
    found = now.get(was.path)
    return found is not None and found.leaf and was.leaf and was.type not in (found.type, VOID)


def _parsed(text: str | None) -> StructType | None:
    try:
        return None if text is None else parse_schema(text)
    except DeltaError:
        return None


def _recorded(table: TableCheck, part: Part) -> None:
    changes = part.field.metadata.get(_CHANGES)
    if changes is None:
        return
    for change in changes if isinstance(changes, list) else [changes]:
        types = _types(change)
        if types is None:
            table.find("widen-1", f"a change of column {part.name} is not recorded as it should be: {change!r}")
        elif not may_widen(*types):
            table.find("widen-1", f"column {part.name} changed from {types[0]} to {types[1]}, which is no widening")


def _types(change: Any) -> tuple[DataType, DataType] | None:
    if not isinstance(change, dict):
        return None
    found = []
    for key in ("fromType", "toType"):
        schema = _parsed(_WRAP % change[key]) if isinstance(change.get(key), str) and '"' not in change[key] else None
        if schema is None:
            return None
        found.append(schema.fields[0].type)
    return found[0], found[1]


_WRAP = '{"type":"struct","fields":[{"name":"x","type":"%s","nullable":true,"metadata":{}}]}'


def _changed(table: TableCheck, was: Part, now: Part) -> None:
    what = f"column {now.name} changed from {was.type} to {now.type}"
    if not may_widen(was.type, now.type):
        table.find("widen-3", f"{what}, and files that were there stay")
        return
    if was.type in _SMALL and now.type in _SMALL:
        return
    if not (table.state.supports("typeWidening") or table.state.supports("typeWidening-preview")):
        table.find("widen-3", f"{what}, and the protocol has no typeWidening")
        return
    path = ".".join(now.within)
    changes = now.field.metadata.get(_CHANGES)
    recorded = [_types(c) for c in changes if c.get("fieldPath", "") == path] if isinstance(changes, list) else []
    if not recorded or recorded[-1] is None or recorded[-1][1] != now.type:
        table.find("widen-3", f"{what}, and its field does not record it")
