"""What a table asks of its rows: nullability, invariants, constraints, generated columns, identity."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from refdelta.core.expressions.expression import Call, Cast, Convert, Literal, children, walk
from refdelta.core.table.properties import CONSTRAINT_PREFIX
from refdelta.core.table.types import TIMESTAMP, StructField, StructType
from refdelta.engine.expressions.evaluate import row_mask
from refdelta.engine.expressions.sql import parse_predicate
from refdelta.errors import DeltaError, ExpressionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from refdelta.core.expressions.predicate import Predicate
    from refdelta.verifier.report import Report
    from refdelta.verifier.state import State

Find = "Callable[[str, str], None]"


@dataclass(frozen=True)
class RowCondition:
    """A condition that must be true for every row.

    Attributes:
        clause: the clause that is broken where it is not.
        name: what it is, for messages.
        predicate: the condition.
        zoned: whether the time zone of the writer's session may decide, which no table tells.
    """

    clause: str
    name: str
    predicate: Predicate
    zoned: bool


def rules_of(state: State, schema: StructType, report: Report) -> list[RowCondition]:
    """The conditions of a table; those that this engine does not understand are noted as unchecked."""
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
            predicate = parse_predicate(text, schema)
            rules.append(RowCondition(clause, name, predicate, _zoned(predicate)))
        except DeltaError as error:
            report.skip(f"{name}, whose expression this engine does not understand: {error}")
    return rules


def _zoned(predicate: Predicate) -> bool:
    """Whether points in time are written as text, or made into something else or of it."""
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
        found = json.loads(text)["expression"]["expression"]
    except (ValueError, TypeError, KeyError):
        return None
    return found if isinstance(found, str) else None


def check_rules(
    rules: list[RowCondition], live: pa.RecordBatch, find: Callable[[str, str], None], report: Report
) -> None:
    """Note which conditions some row of a batch breaks."""
    for rule in rules:
        try:
            held = row_mask(rule.predicate, live)
        except (ExpressionError, pa.ArrowException) as error:
            report.skip(f"{rule.name}, which has no value for some row: {error}")
            continue
        broken = live.num_rows - (pc.sum(pc.fill_null(held, False)).as_py() or 0)
        if broken and rule.zoned:
            report.skip(f"{rule.name}, which does not hold for some rows in UTC, but may where it was written")
        elif broken:
            find(rule.clause, f"{rule.name} does not hold for {broken} of {live.num_rows} rows")


def check_nulls(schema: StructType, live: pa.RecordBatch, find: Callable[[str, str], None]) -> None:
    """Note nulls where the schema has none, in columns and in fields of structs."""
    for item in schema:
        _nulls(item, live.column(item.name), item.name, find)


def _nulls(item: StructField, array: pa.Array, name: str, find: Callable[[str, str], None]) -> None:
    if not item.nullable and array.null_count:
        find("file-8", f"column {name} has {array.null_count} nulls, and may have none")
    if isinstance(item.type, StructType) and pa.types.is_struct(array.type):
        there = array.drop_null() if array.null_count else array
        for inner in item.type:
            if there.type.get_field_index(inner.name) >= 0:
                _nulls(inner, pc.struct_field(there, inner.name), f"{name}.{inner.name}", find)


class IdentityValues:
    """The values of an identity column that users may not give, of a file or of several.

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
        """Those of a table."""
        if not state.supports("identityColumns"):
            return []
        return [
            IdentityValues(item)
            for item in schema
            if item.metadata.get("delta.identity.allowExplicitInsert") is False
            and isinstance(item.metadata.get("delta.identity.start"), int)
            and item.metadata.get("delta.identity.step")
        ]

    def take(self, live: pa.RecordBatch, find: Callable[[str, str], None]) -> None:
        """Look at the values of a batch."""
        column = live.column(self.name).drop_null()
        if not len(column):
            return
        values = column.to_numpy(zero_copy_only=False).astype(np.int64)
        behind = values < self.start if self.step > 0 else values > self.start
        # What lies between two numbers of 64 bits fits into such a one without a sign.
        start, whole = np.uint64(self.start % 2**64), values.view(np.uint64)
        steps, rest = np.divmod(whole - start if self.step > 0 else start - whole, np.uint64(abs(self.step)))
        if rest.any() or behind.any():
            find("rows-9", f"a value of {self.name} is not {self.start} and a number of steps of {self.step}")
            return
        last = int(values.max() if self.step > 0 else values.min())
        if self.mark is None or (last > self.mark if self.step > 0 else last < self.mark):
            find("rows-8", f"{self.name} has the value {last}, and its high-water mark is {self.mark}")
        new = BitMap64(steps.tolist()) if len(set(steps.tolist())) == len(steps) else None
        if new is None or not self._seen.isdisjoint(new):
            find("rows-9", f"a value of {self.name} occurs twice")
        if new is not None:
            self._seen |= new

    def unite(self, file: IdentityValues, find: Callable[[str, str], None]) -> None:
        """Take in the values of a file."""
        if not self._seen.isdisjoint(file._seen):
            find("rows-9", f"a value of {self.name} occurs twice")
        self._seen |= file._seen
