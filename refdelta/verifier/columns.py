"""The columns of a schema at any depth: their physical names, ids and types, now and in the versions before.

PROTOCOL.md, "Column Mapping" and "Type Widening".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from refdelta.errors import DeltaError
from refdelta.table.types import (
    BYTE,
    DATE,
    DOUBLE,
    FIELD_ID,
    FLOAT,
    INTEGER,
    INTEGRAL,
    LONG,
    PHYSICAL_NAME,
    SHORT,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    is_nested,
    parse_schema,
    physical_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from refdelta.verifier.state import State

    Find = Callable[[str, str], None]


NESTED_IDS = "delta.columnMapping.nested.ids"


@dataclass(frozen=True)
class SchemaPart:
    """A field of the schema, or the element, key or value type within it.

    Attributes:
        name: the dotted path of logical names; ``element``, ``key`` and ``value`` within arrays and maps.
        path: the path of physical names.
        type: its type.
        field: the nearest enclosing field, which has the metadata; the field itself if it is one.
        within: the path from that field to this part: empty for the field itself.
        parents: the enclosing fields, from the outermost inwards.
    """

    name: str
    path: tuple[str, ...]
    type: DataType
    field: StructField
    within: tuple[str, ...] = ()
    parents: tuple[StructField, ...] = ()

    @property
    def leaf(self) -> bool:
        """True if its type has no parts."""
        return not is_nested(self.type)


def parts(schema: StructType) -> Iterator[SchemaPart]:
    """All fields at any depth, and the elements, keys and values of arrays and maps."""
    yield from _of_struct(schema, "", (), ())


def _of_struct(
    struct: StructType, name: str, path: tuple[str, ...], parents: tuple[StructField, ...]
) -> Iterator[SchemaPart]:
    for item in struct:
        own = SchemaPart(f"{name}{item.name}", (*path, physical_name(item)), item.type, item, (), parents)
        yield own
        yield from _inside(own, (*parents, item))


def _inside(part: SchemaPart, parents: tuple[StructField, ...]) -> Iterator[SchemaPart]:
    match part.type:
        case StructType():
            yield from _of_struct(part.type, f"{part.name}.", part.path, parents)
        case ArrayType(element):
            yield from _step(part, "element", element, parents)
        case MapType(key, value):
            yield from _step(part, "key", key, parents)
            yield from _step(part, "value", value, parents)


def _step(part: SchemaPart, name: str, kind: DataType, parents: tuple[StructField, ...]) -> Iterator[SchemaPart]:
    inner = SchemaPart(f"{part.name}.{name}", (*part.path, name), kind, part.field, (*part.within, name), parents)
    yield inner
    yield from _inside(inner, parents)


def fields(schema: StructType) -> Iterator[SchemaPart]:
    """The fields at any depth, without elements, keys and values."""
    return (part for part in parts(schema) if not part.within)


def nested_ids(part: SchemaPart) -> dict[str, Any]:
    """The ids of the elements, keys and values within a field, by their paths as its metadata writes them."""
    found = part.field.metadata.get(NESTED_IDS)
    return dict(found) if isinstance(found, dict) else {}


# --- column mapping --------------------------------------------------------------------------------------------------


_MAX_ID = "delta.columnMapping.maxColumnId"


@dataclass
class KnownNames:
    """The physical names and ids of columns, over all versions so far.

    Attributes:
        ids: physical path to id, since column mapping was last enabled.
        paths: id to physical path, likewise.
        highest: the greatest ``maxColumnId``, likewise.
        columns: pairs of physical path and id of all columns of all versions.
    """

    ids: dict[tuple[str, ...], int] = field(default_factory=dict)
    paths: dict[int, tuple[str, ...]] = field(default_factory=dict)
    highest: int = 0
    columns: set[tuple[tuple[str, ...], int]] = field(default_factory=set)


class MappingCheck:
    """The check of a schema with column mapping.

    Args:
        state: the state of the version.
        schema: its schema.
        known: the names and ids of columns of earlier versions; those of the schema are added.
        find: takes clause and message of a finding.
    """

    def __init__(self, state: State, schema: StructType, known: KnownNames, find: Find):
        self.state, self.schema, self.known, self.find = state, schema, known, find

    def run(self) -> None:
        """Report violations."""
        state = self.state
        if not state.supports("columnMapping") or state.property("delta.columnMapping.mode") == "none":
            # Columns get new ids when mapping is enabled again.
            self.known.ids.clear()
            self.known.paths.clear()
            self.known.highest = 0
            return
        ids: dict[int, str] = {}
        paths: dict[tuple[str, ...], str] = {}
        for part in fields(self.schema):
            number = part.field.metadata.get(FIELD_ID)
            if not isinstance(number, int) or isinstance(number, bool) or not -(2**31) <= number < 2**31:
                self.find("map-2", f"the id of column {part.name} is {number!r}, not a 32-bit integer")
            else:
                self._id(part, number, ids)
            if not isinstance(part.field.metadata.get(PHYSICAL_NAME), str):
                self.find("map-2", f"column {part.name} has no physical name")
            twin = paths.setdefault(part.path, part.name)
            if twin != part.name:
                self.find("map-2", f"columns {twin} and {part.name} have the physical name {part.path[-1]!r}")
        self._nested(ids)
        self._highest(max(ids, default=0))

    def _id(self, part: SchemaPart, number: int, ids: dict[int, str]) -> None:
        twin = ids.setdefault(number, part.name)
        if twin != part.name:
            self.find("map-2", f"columns {twin} and {part.name} have the id {number}")
            return
        # RESTORE returns a column with its old name and id, also from before column mapping was removed.
        again = (part.path, number) in self.known.columns
        self.known.columns.add((part.path, number))
        before = self.known.ids.setdefault(part.path, number)
        if before != number and not again:
            self.find("map-6", f"the id of column {part.name} changed from {before} to {number}")
        path = self.known.paths.setdefault(number, part.path)
        if path != part.path and not again:
            was = ".".join(path)
            self.find("map-6", f"the id {number} of column {part.name} was the id of column {was} before")
        self.known.ids[part.path], self.known.paths[number] = number, part.path

    def _nested(self, ids: dict[int, str]) -> None:
        """Check the ids of elements, keys and values, which icebergCompatV2 requires."""
        state = self.state
        wanted = state.supports("icebergCompatV2") and state.is_on("delta.enableIcebergCompatV2")
        for part in parts(self.schema):
            if not part.within:
                continue
            own = part.path[len(part.path) - len(part.within) - 1 :]
            number = nested_ids(part).get(".".join(own))
            if number is None:
                if wanted:
                    self.find("iceberg-5", f"{part.name} has no id, which icebergCompatV2 requires")
            elif not isinstance(number, int) or ids.setdefault(number, part.name) != part.name:
                self.find(
                    "iceberg-5",
                    f"the id {number!r} of {part.name} is not an integer, or is the id of {ids.get(number)}",
                )

    def _highest(self, used: int) -> None:
        metadata = self.state.metadata
        stored = ((metadata.configuration if metadata else None) or {}).get(_MAX_ID)
        if stored is None or not stored.isdecimal():
            self.find("map-3", f"{_MAX_ID} is {stored!r}, not a number; the highest id of a column is {used}")
            return
        highest = int(stored)
        if highest < used:
            self.find("map-3", f"{_MAX_ID} is {highest}, lower than the highest id of a column, {used}")
        if highest < self.known.highest:
            self.find("map-3", f"{_MAX_ID} decreased from {self.known.highest} to {highest}")
        self.known.highest = max(self.known.highest, highest)


# --- type widening ---------------------------------------------------------------------------------------------------


_CHANGES = "delta.typeChanges"
# Parquet stores these alike, and engines widened columns among them before there was a feature for it.
_SMALL = (BYTE, SHORT, INTEGER)


def may_widen(narrow: DataType, wide: DataType) -> bool:
    """True if the specification allows this change of a type."""
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


def check_changes(state: State, before: str | None, schema: StructType, find: Find) -> None:
    """Check the type changes that fields record, and the columns whose type differs from the schema before.

    A change counts from the type that a column had when a live file was written: after a version is restored, the files
    with wider values are no longer live.
    """
    now = {part.path: part for part in parts(schema)}
    if _widens(state):
        for part in fields(schema):
            _recorded(part, find)
    old = _parsed(before)
    anew = set() if old is None else {was.path for was in parts(old) if _other_type(was, now)}
    seen = set()
    for text in state.schemas_of_files() if anew else ():
        for was in parts(_parsed(text) or StructType()):
            if was.path in anew and _other_type(was, now) and (was.path, was.type) not in seen:
                seen.add((was.path, was.type))
                _changed(was, now[was.path], state, find)


def _widens(state: State) -> bool:
    return state.supports("typeWidening") or state.supports("typeWidening-preview")


def _other_type(was: SchemaPart, now: dict[tuple[str, ...], SchemaPart]) -> bool:
    found = now.get(was.path)
    return found is not None and found.leaf and was.leaf and was.type not in (found.type, VOID)


def _parsed(text: str | None) -> StructType | None:
    try:
        return None if text is None else parse_schema(text)
    except DeltaError:
        return None


def _recorded(part: SchemaPart, find: Find) -> None:
    changes = part.field.metadata.get(_CHANGES)
    if changes is None:
        return
    for change in changes if isinstance(changes, list) else [changes]:
        types = _types(change)
        if types is None:
            find("widen-1", f"column {part.name} records a type change that has not the specified form: {change!r}")
        elif not may_widen(*types):
            find(
                "widen-1",
                f"column {part.name} records a change from {types[0]} to {types[1]}, which is not a supported widening",
            )


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


def _changed(was: SchemaPart, now: SchemaPart, state: State, find: Find) -> None:
    what = f"column {now.name} changed from {was.type} to {now.type}"
    if not may_widen(was.type, now.type):
        find("widen-3", f"{what}, which is not a widening, and live files have the old type")
        return
    if was.type in _SMALL and now.type in _SMALL:
        return
    if not _widens(state):
        find("widen-3", f"{what}, and the table does not support typeWidening")
        return
    path = ".".join(now.within)
    changes = now.field.metadata.get(_CHANGES)
    recorded = [_types(c) for c in changes if c.get("fieldPath", "") == path] if isinstance(changes, list) else []
    if not recorded or recorded[-1] is None or recorded[-1][1] != now.type:
        find("widen-3", f"{what}, and its field does not record the change in {_CHANGES}")
