"""Identity columns: each new row gets a number that no row has had (PROTOCOL.md, "Identity Columns").

The number that was given last stands in the column's metadata. Whoever gives numbers changes it in the same commit, so
that a table with identity columns has one writer at a time: of two, one fails. Values that writers give themselves
leave it as it is, as in delta-spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from refdelta.core.log.actions import Metadata
from refdelta.core.table.types import LONG, StructType, parse_schema, physical_name, schema_json
from refdelta.errors import ConstraintViolationError, InvalidArgumentError, InvalidLogError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from refdelta.core.log.actions import AnyAction
    from refdelta.core.table.types import StructField
    from refdelta.transaction.transaction import Transaction

START = "delta.identity.start"
STEP = "delta.identity.step"
MARK = "delta.identity.highWaterMark"
EXPLICIT = "delta.identity.allowExplicitInsert"
_LEAST, _MOST = -(2**63), 2**63 - 1
# So many rows of a task have numbers one behind the other.
_BLOCK = 4096


@dataclass(frozen=True)
class Numbering:
    """How an identity column is numbered.

    Attributes:
        field: the column.
        start: the first number.
        step: from one number to the next.
        mark: the number that was given last; None where none was.
        explicit: whether writers may give numbers themselves.
        task: which of several tasks numbers rows, that know nothing of each other; None where all is one.
    """

    field: StructField
    start: int
    step: int
    mark: int | None
    explicit: bool
    task: int | None = None

    @classmethod
    def of(cls, field: StructField) -> Numbering | None:
        """That of a column; None where it is no identity column.

        Raises:
            InvalidLogError: its metadata is not what an identity column has.
        """
        metadata = field.metadata
        keys = [key for key in (START, STEP, EXPLICIT) if key in metadata]
        if not keys:
            return None
        start, step, mark, explicit = (metadata.get(key) for key in (START, STEP, MARK, EXPLICIT))
        whole = all(
            type(value) is int and _LEAST <= value <= _MOST for value in (start, step, 0 if mark is None else mark)
        )
        if not whole or step == 0 or not isinstance(explicit, bool) or field.type != LONG:
            raise InvalidLogError(f"column {field.name!r}, a {field.type}, is no identity column by {metadata}")
        return cls(field, start, step, mark, explicit)  # type: ignore[arg-type]

    def number(self, row: int) -> int:
        """The number of a row, by how many are numbered before it; it grows with that, in the step's direction.

        Raises:
            ConstraintViolationError: it does not fit into 64 bits.
        """
        first = self.start if self.mark is None else self.mark + self.step
        found: int = first + self._place(row) * self.step
        if not _LEAST <= found <= _MOST:
            raise ConstraintViolationError(f"the identity column {self.field.name!r} has no numbers left")
        return found

    def numbers(self, first: int, count: int) -> pa.Array:
        """The numbers of so many rows from one on. Raises as :meth:`number`."""
        if not count:
            return pa.array([], pa.int64())
        begin = self.number(first)
        self.number(first + count - 1)
        places = self._place(np.arange(first, first + count, dtype=np.int64))
        # What overflows in between comes out right again, as both ends fit.
        return pa.array((places - places[0]) * np.int64(self.step) + np.int64(begin))

    def _place(self, row: Any) -> Any:
        """The place of a row, or of an array of them, among the numbers to come.

        A task does not know how many others there are, nor how many rows these have. So the numbers are dealt in
        blocks, by Cantor's pairing of tasks and blocks: no two tasks get the same one, and where they have about as
        many blocks as there are tasks, about half of all are used.
        """
        if self.task is None:
            return row
        block, within = row // _BLOCK, row % _BLOCK
        diagonal = self.task + block
        return (diagonal * (diagonal + 1) // 2 + block) * _BLOCK + within

    def at_or_behind(self, number: int) -> int | None:
        """The first of the column's numbers that does not lie before this one; None where this one lies before the
        start.
        """
        if (number - self.start) * self.step < 0:
            return None
        return self.start - (self.start - number) // self.step * self.step

    def behind(self, mark: int) -> bool:
        """Whether a mark lies behind that of this column, in the direction of its numbers."""
        return self.mark is None or (mark - self.mark) * self.step > 0


def with_marks(metadata: Metadata, marks: Mapping[str, int]) -> Metadata:
    """A table's metadata with other marks for some of its identity columns, by physical name; none goes back."""
    schema = parse_schema(metadata.schema_string)
    fields = []
    for field in schema:
        known, mark = Numbering.of(field), marks.get(physical_name(field))
        forward = known is not None and mark is not None and known.behind(mark)
        fields.append(replace(field, metadata={**field.metadata, MARK: mark}) if forward else field)
    if tuple(fields) == schema.fields:
        return metadata
    return msgspec.structs.replace(metadata, schema_string=schema_json(StructType(tuple(fields))))


def changes_with_marks(
    changes: Iterable[AnyAction], metadata: Metadata | None, marks: Mapping[str, int]
) -> Sequence[AnyAction]:
    """The changes of a table, and with them its new marks.

    Args:
        changes: what else changes.
        metadata: the table's so far; None where ``changes`` has that of a new table.
        marks: the numbers that were given last, by physical name.
    """
    listed = list(changes)
    if not marks:
        return listed
    before = next((action for action in listed if isinstance(action, Metadata)), metadata)
    others = [action for action in listed if not isinstance(action, Metadata)]
    return listed if before is None else [*others, with_marks(before, marks)]


def check_numbers_once(txn: Transaction) -> None:
    """Refuse a second statement that may number rows: it would begin where the first one did.

    Raises ``InvalidArgumentError``.
    """
    if any(isinstance(action, Metadata) for action in txn.staged):
        raise InvalidArgumentError(
            "this transaction has numbered rows of the table's identity columns already, and each transaction does it "
            "once; commit it and begin another one"
        )


def without_marks(metadata: Metadata) -> Metadata:
    """A table's metadata as it would be, had no row been numbered."""
    if MARK not in metadata.schema_string:
        return metadata
    fields = []
    for field in parse_schema(metadata.schema_string):
        others = {key: value for key, value in field.metadata.items() if key != MARK}
        fields.append(replace(field, metadata=others))
    return msgspec.structs.replace(metadata, schema_string=schema_json(StructType(tuple(fields))))


def marks_of(schema: StructType) -> dict[str, int]:
    """The marks of the identity columns, by physical name."""
    found = ((physical_name(field), Numbering.of(field)) for field in schema)
    return {name: numbering.mark for name, numbering in found if numbering and numbering.mark is not None}
