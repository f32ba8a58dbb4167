"""The rules of a table for its rows: nullability, invariants, constraints, generated columns, identity columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from refdelta.core.log.json_text import read_json
from refdelta.errors import DeltaError, ExpressionError
from refdelta.expressions.evaluate import row_mask
from refdelta.expressions.expression import Call, Cast, Convert, Literal, children, walk
from refdelta.expressions.sql import parse_predicate
from refdelta.table.properties import CONSTRAINT_PREFIX
from refdelta.table.types import TIMESTAMP, StructField, StructType

if TYPE_CHECKING:
    from collections.abc import Callable

    from refdelta.expressions.expression import Predicate
    from refdelta.verifier.report import Report
    from refdelta.verifier.state import State


@dataclass(frozen=True)
class RowCondition:
    """A condition that must be true for every row.

    Attributes:
        clause: the clause that is broken if it is false for a row.
        name: its name in messages.
        predicate: the condition.
        zoned: whether its value depends on the time zone of the writer's session, which the table does not record.
    """

    clause: str
    name: str
    predicate: Predicate
    zoned: bool


def rules_of(state: State, schema: StructType, report: Report) -> list[RowCondition]:
    """The conditions of a table. Those that this engine does not understand are reported as unchecked."""
    texts: list[tuple[str, str, str]] = []
    if state.supports("checkConstraints"):
        configuration = (state.metadata.configuration if state.metadata else None) or {}
        texts += [
            ("rows-2", f"the constraint {key[len(CONSTRAINT_PREFIX) :]}", text)
            for key, text in configuration.items()
            if key.lower().startswith(CONSTRAINT_PREFIX)
        ]
    for item in schema:
        if state.supports("invariants") and "delta.invariants" in item.metadata:
            text = _invariant(item.metadata["delta.invariants"])
            if text is not None:
                texts.append(("rows-1", f"the invariant of {item.name}", text))
        if state.supports("generatedColumns") and "delta.generationExpression" in item.metadata:
            quoted = item.name.replace("`", "``")
            text = f"`{quoted}` <=> ({item.metadata['delta.generationExpression']})"
            texts.append(("rows-5", f"the generated column {item.name}", text))
    rules = []
    for clause, name, text in texts:
        try:
            predicate = parse_predicate(text, schema, recorded=True)
            rules.append(RowCondition(clause, name, predicate, _zoned(predicate)))
        except DeltaError as error:
            report.skip(f"{name}: this engine does not understand its expression: {error}")
    return rules


def _zoned(predicate: Predicate) -> bool:
    """True if a predicate has a literal timestamp, or converts timestamps from or to another type."""
    for node in walk(predicate):
        if isinstance(node, Literal) and node.type == TIMESTAMP:
            return True
        if isinstance(node, (Call, Cast, Convert)):
            kinds = [getattr(part, "type", None) for part in (node, *children(node))]
            if TIMESTAMP in kinds:
                return True
    return False


def _invariant(text: Any) -> str | None:
    try:
        found = read_json(text)["expression"]["expression"]
    except (ValueError, TypeError, KeyError):
        return None
    return found if isinstance(found, str) else None


def check_rules(
    rules: list[RowCondition], live: pa.RecordBatch, find: Callable[[str, str], None], report: Report
) -> None:
    """Report the conditions that a row of a batch breaks."""
    for rule in rules:
        try:
            held = row_mask(rule.predicate, live)
        except (ExpressionError, pa.ArrowException) as error:
            report.skip(f"{rule.name}: it cannot be evaluated for a row: {error}")
            continue
        broken = live.num_rows - (pc.sum(pc.fill_null(held, False)).as_py() or 0)
        if broken and rule.zoned:
            report.skip(
                f"{rule.name}: it is false for some rows in UTC, and may be true in the time zone of the writer"
            )
        elif broken:
            find(rule.clause, f"{rule.name} is not true for {broken} of {live.num_rows} rows")


def check_nulls(schema: StructType, live: pa.RecordBatch, find: Callable[[str, str], None]) -> None:
    """Report nulls in columns and struct fields that the schema declares as not nullable."""
    for item in schema:
        _nulls(item, live.column(item.name), item.name, find)


def _nulls(item: StructField, array: pa.Array, name: str, find: Callable[[str, str], None]) -> None:
    if not item.nullable and array.null_count:
        find("file-8", f"column {name} is not nullable, and has {array.null_count} nulls")
    if isinstance(item.type, StructType) and pa.types.is_struct(array.type):
        there = array.drop_null() if array.null_count else array
        for inner in item.type:
            if there.type.get_field_index(inner.name) >= 0:
                _nulls(inner, pc.struct_field(there, inner.name), f"{name}.{inner.name}", find)


IDENTITY_MARKS: Final = ("delta.identity.start", "delta.identity.step", "delta.identity.highWaterMark")
"""The properties of identity columns that are 64-bit integers."""


def is_long(value: Any) -> bool:
    """Whether a value from JSON is a 64-bit integer."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


class IdentityValues:
    """The values of an identity column without explicit inserts, of one file or of several.

    Args:
        item: the column.
    """

    def __init__(self, item: StructField):
        marks = item.metadata
        self.name = item.name
        self.start, self.step = int(marks["delta.identity.start"]), int(marks["delta.identity.step"])
        self.mark = marks.get("delta.identity.highWaterMark")
        self._seen = BitMap64()

    @staticmethod
    def of(state: State, schema: StructType) -> list[IdentityValues]:
        """The identity columns of a table without explicit inserts, whose properties are valid."""
        if not state.supports("identityColumns"):
            return []
        return [
            IdentityValues(item)
            for item in schema
            if item.metadata.get("delta.identity.allowExplicitInsert") is False
            and "delta.identity.start" in item.metadata
            and item.metadata.get("delta.identity.step")
            and all(is_long(item.metadata[mark]) for mark in IDENTITY_MARKS if mark in item.metadata)
        ]

    def take(self, live: pa.RecordBatch, find: Callable[[str, str], None]) -> None:
        """Check the values of a batch."""
        column = live.column(self.name).drop_null()
        if not len(column):
            return
        values = column.to_numpy(zero_copy_only=False).astype(np.int64)
        outside = values < self.start if self.step > 0 else values > self.start
        # The difference of two signed 64-bit numbers fits into an unsigned one.
        start, whole = np.uint64(self.start % 2**64), values.view(np.uint64)
        steps, rest = np.divmod(whole - start if self.step > 0 else start - whole, np.uint64(abs(self.step)))
        if rest.any() or outside.any():
            find(
                "rows-9",
                f"a value of the identity column {self.name} is not {self.start} plus a multiple of {self.step}",
            )
            return
        last = int(values.max() if self.step > 0 else values.min())
        if self.mark is None or (last > self.mark if self.step > 0 else last < self.mark):
            find(
                "rows-8",
                f"the identity column {self.name} has the value {last}, and its high-water mark is {self.mark}",
            )
        new = BitMap64(steps.tolist()) if len(set(steps.tolist())) == len(steps) else None
        if new is None or not self._seen.isdisjoint(new):
            find("rows-9", f"a value of the identity column {self.name} occurs twice")
        if new is not None:
            self._seen |= new

    def unite(self, file: IdentityValues, find: Callable[[str, str], None]) -> None:
        """Add the values of a file."""
        if not self._seen.isdisjoint(file._seen):
            find("rows-9", f"a value of the identity column {self.name} occurs twice")
        self._seen |= file._seen
