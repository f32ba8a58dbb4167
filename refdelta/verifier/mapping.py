"""Column mapping: physical names and ids of columns, now and over all versions (PROTOCOL.md, "Column Mapping")."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from refdelta.core.table.types import FIELD_ID, PHYSICAL_NAME
from refdelta.verifier.schemas import Part, fields, nested_ids, parts

if TYPE_CHECKING:
    from refdelta.core.table.types import StructType
    from refdelta.verifier.tables import TableCheck

_MAX_ID = "delta.columnMapping.maxColumnId"


@dataclass
class KnownNames:
    """What columns have been called, over all versions that were seen.

    Attributes:
        ids: physical path to id, since columns were mapped last.
        paths: id to physical path, likewise.
        highest: the greatest ``maxColumnId``, likewise.
        columns: physical path and id of all columns that have been.
    """

    ids: dict[tuple[str, ...], int] = field(default_factory=dict)
    paths: dict[int, tuple[str, ...]] = field(default_factory=dict)
    highest: int = 0
    columns: set[tuple[tuple[str, ...], int]] = field(default_factory=set)


class MappingCheck:
    """Looks at the schema of a table whose columns are mapped.

    Args:
        table: the check that it is part of.
        schema: the schema.
        known: what columns have been called before; the schema's are noted there.
    """

    def __init__(self, table: TableCheck, schema: StructType, known: KnownNames):
        self.table, self.schema, self.known = table, schema, known

    def run(self) -> None:
        """Note what breaks a rule."""
        state = self.table.state
        if not state.supports("columnMapping") or state.property("delta.columnMapping.mode") == "none":
            # Columns that are mapped anew get new ids.
            self.known.ids.clear()
            self.known.paths.clear()
            self.known.highest = 0
            return
        ids: dict[int, str] = {}
        paths: dict[tuple[str, ...], str] = {}
        for part in fields(self.schema):
            number = part.field.metadata.get(FIELD_ID)
            if not isinstance(number, int) or isinstance(number, bool) or not -(2**31) <= number < 2**31:
                self.table.find("map-2", f"column {part.name} has no id of 32 bits: {number!r}")
            else:
                self._id(part, number, ids)
            if not isinstance(part.field.metadata.get(PHYSICAL_NAME), str):
                self.table.find("map-2", f"column {part.name} has no physical name")
            twin = paths.setdefault(part.path, part.name)
            if twin != part.name:
                self.table.find("map-2", f"columns {twin} and {part.name} have the physical name {part.path[-1]!r}")
        self._nested(ids)
        self._highest(max(ids, default=0))

    def _id(self, part: Part, number: int, ids: dict[int, str]) -> None:
        twin = ids.setdefault(number, part.name)
        if twin != part.name:
            self.table.find("map-2", f"columns {twin} and {part.name} have the id {number}")
            return
        # RESTORE brings a column back as it was, from before a mapping that was given up, too.
        again = (part.path, number) in self.known.columns
        self.known.columns.add((part.path, number))
        before = self.known.ids.setdefault(part.path, number)
        if before != number and not again:
            self.table.find("map-6", f"the id of column {part.name} was {before}, and is {number}")
        path = self.known.paths.setdefault(number, part.path)
        if path != part.path and not again:
            was = ".".join(path)
            self.table.find("map-6", f"the id {number} of column {part.name} was that of the column {was}")
        self.known.ids[part.path], self.known.paths[number] = number, part.path

    def _nested(self, ids: dict[int, str]) -> None:
        """Ids of elements, keys and values, where icebergCompatV2 asks for them."""
        state = self.table.state
        wanted = state.supports("icebergCompatV2") and state.is_on("delta.enableIcebergCompatV2")
        for part in parts(self.schema):
            if not part.within:
                continue
            own = part.path[len(part.path) - len(part.within) - 1 :]
            number = nested_ids(part).get(".".join(own))
            if number is None:
                if wanted:
                    self.table.find("iceberg-5", f"{part.name} has no id")
            elif not isinstance(number, int) or ids.setdefault(number, part.name) != part.name:
                self.table.find("iceberg-5", f"the id {number!r} of {part.name} is that of {ids.get(number)}")

    def _highest(self, used: int) -> None:
        metadata = self.table.state.metadata
        stored = ((metadata.configuration if metadata else None) or {}).get(_MAX_ID)
        if stored is None or not stored.isdecimal():
            self.table.find("map-3", f"{_MAX_ID} is {stored!r}, and columns have ids up to {used}")
            return
        highest = int(stored)
        if highest < used:
            self.table.find("map-3", f"{_MAX_ID} is {highest}, and columns have ids up to {used}")
        if highest < self.known.highest:
            self.table.find("map-3", f"{_MAX_ID} went down from {self.known.highest} to {highest}")
        self.known.highest = max(self.known.highest, highest)
