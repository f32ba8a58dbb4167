"""Identity columns: each new row gets a number that no row had before (PROTOCOL.md, "Identity Columns").

The last number is in the column's metadata, the high watermark. A commit that numbers rows changes it, so that of two
concurrent writers to such a table one fails. Numbers that writers give themselves do not change it, as in delta-spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from refdelta.core.log.actions import Metadata
from refdelta.errors import ConstraintViolationError, InvalidArgumentError, InvalidLogError
from refdelta.table.types import LONG, StructType, parse_schema, physical_name, schema_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from refdelta.core.log.actions import AnyAction
    from refdelta.table.types import StructField
    from refdelta.transaction.transaction import Transaction

START = "delta.identity.start"
STEP = "delta.identity.step"
MARK = "delta.identity.highWaterMark"
EXPLICIT = "delta.identity.allowExplicitInsert"
_LEAST, _MOST = -(2**63), 2**63 - 1
# The number of rows of a task that are numbered without a gap.
_BLOCK = 4096


class Numbering(msgspec.Struct, frozen=True):
    """The numbering of an identity column.

    Attributes:
        field: the column.
        start: the first number.
        step: the difference of successive numbers.
        mark: the high watermark: the last number; None if no row is numbered yet.
        explicit: whether writers may give numbers themselves.
        task: the number of this task, if several tasks number rows independently; None if there is only one.
    """

    field: StructField
    start: int
    step: int
    mark: int | None
    explicit: bool
    task: int | None = None

    @classmethod
    def of(cls, field: StructField) -> Numbering | None:
        """The numbering of a column; None if it is not an identity column.

        Raises:
            InvalidLogError: its metadata is not valid for an identity column.
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
            raise InvalidLogError(
                f"column {field.name!r}, a {field.type}, has invalid metadata for an identity column: {metadata}; "
                'a write with mode="overwrite" and schema_mode="overwrite" replaces the columns'
            )
        return cls(field, start, step, mark, explicit)  # type: ignore[arg-type]

    def number(self, row: int) -> int:
        """The number of a row.

        Args:
            row: the row's index among the new rows, from 0. A later row has a further number, in the step's direction.

        Raises:
            ConstraintViolationError: the number does not fit into 64 bits.
        """
        first = self.start if self.mark is None else self.mark + self.step
        found: int = first + self._place(row) * self.step
        if not _LEAST <= found <= _MOST:
            raise ConstraintViolationError(
                f"the identity column {self.field.name!r} has no numbers left: the next one does not fit into 64 bits"
            )
        return found

    def numbers(self, first: int, count: int) -> pa.Array:
        """The numbers of ``count`` rows, from the row ``first`` on. Raises as :meth:`number`."""
        if not count:
            return pa.array([], pa.int64())
        begin = self.number(first)
        self.number(first + count - 1)
        places = self._place(np.arange(first, first + count, dtype=np.int64))
        # An intermediate overflow cancels out, since the first and the last number fit.
        return pa.array((places - places[0]) * np.int64(self.step) + np.int64(begin))

    def _place(self, row: Any) -> Any:
        """The place of a row, or of an array of rows, in the sequence of further numbers.

        A task knows neither the number of other tasks nor the number of their rows. So the sequence is divided into
        blocks, which are assigned by Cantor's pairing function of task and block: no block belongs to two tasks. If the
        tasks use about as many blocks each as there are tasks, about half of the numbers are used.
        """
        if self.task is None:
            return row
        block, within = row // _BLOCK, row % _BLOCK
        diagonal = self.task + block
        return (diagonal * (diagonal + 1) // 2 + block) * _BLOCK + within

    def at_or_behind(self, number: int) -> int | None:
        """The first number of the column that is equal to ``number`` or after it, in the step's direction; None if
        ``number`` is before the start.
        """
        if (number - self.start) * self.step < 0:
            return None
        return self.start - (self.start - number) // self.step * self.step

    def behind(self, mark: int) -> bool:
        """True if ``mark`` is after the column's own mark, in the step's direction."""
        return self.mark is None or (mark - self.mark) * self.step > 0


def with_marks(metadata: Metadata, marks: Mapping[str, int]) -> Metadata:
    """A table's metadata with new marks of identity columns, by physical name. A mark never moves back."""
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
) -> tuple[AnyAction, ...]:
    """The changes of a table, with its new marks.

    Args:
        changes: the other changes.
        metadata: the table's metadata so far; None if ``changes`` has the metadata of a new table.
        marks: the last numbers of the identity columns, by physical name.
    """
    listed = tuple(changes)
    before = next((action for action in listed if isinstance(action, Metadata)), metadata)
    others = [action for action in listed if not isinstance(action, Metadata)]
    return listed if before is None else (*others, with_marks(before, marks))


def check_numbers_once(txn: Transaction) -> None:
    """Refuse a second statement that may number rows, since it would use the same numbers.

    Raises:
        InvalidArgumentError: the transaction has numbered rows already.
    """
    if any(isinstance(action, Metadata) for action in txn.staged):
        raise InvalidArgumentError(
            "this transaction has numbered rows of the table's identity columns already, and can do it only once; "
            "commit it and begin another one"
        )


def without_marks(metadata: Metadata) -> Metadata:
    """A table's metadata without the marks of identity columns."""
    if MARK not in metadata.schema_string:
        return metadata
    fields = []
    for field in parse_schema(metadata.schema_string):
        others = {key: value for key, value in field.metadata.items() if key != MARK}
        fields.append(replace(field, metadata=others))
    return msgspec.structs.replace(metadata, schema_string=schema_json(StructType(tuple(fields))))


def marks_of(schema: StructType) -> dict[str, int]:
    """The marks of the identity columns, by physical name. A column whose metadata is not valid has none."""

    def mark(field: StructField) -> int | None:
        try:
            numbering = Numbering.of(field)
        except InvalidLogError:
            return None
        return None if numbering is None else numbering.mark

    found = ((physical_name(field), mark(field)) for field in schema)
    return {name: mark for name, mark in found if mark is not None}
