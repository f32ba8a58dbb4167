"""What a table asks of its rows beyond their types: CHECK constraints and the invariants of columns.

Rules are SQL that somebody wrote into the log. They are read against the schema by which rows are written. One that
this engine cannot read is one that it cannot hold rows to, so it writes no row then.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.engine.evaluate import row_mask
from refdelta.engine.sql import parse_predicate
from refdelta.errors import (
    ColumnNotFoundError,
    ConstraintViolationError,
    InvalidArgumentError,
    InvalidLogError,
    PredicateError,
    UnsupportedFeatureError,
)
from refdelta.protocol.actions import AnyAction, Metadata
from refdelta.protocol.expression import column_refs
from refdelta.protocol.properties import CONSTRAINT_PREFIX
from refdelta.protocol.types import ArrayType, DataType, MapType, StructField, StructType, parse_schema

if TYPE_CHECKING:
    from refdelta.engine.snapshot import Snapshot
    from refdelta.protocol.predicate import Predicate

INVARIANTS = "delta.invariants"
_SHOWN = 200


@dataclass(frozen=True)
class Check:
    """What must be true of every row; null is not true.

    Attributes:
        feature: the table feature that asks for it.
        what: its kind and name, for errors.
        sql: as the log has it.
        predicate: the same, bound to the table's schema.
    """

    feature: str
    what: str
    sql: str
    predicate: Predicate

    def hold(self, rows: pa.RecordBatch) -> None:
        """Raise ``ConstraintViolationError`` for the first row of which it is not true."""
        broken = pc.invert(pc.fill_null(row_mask(self.predicate, rows), False))
        count = pc.sum(broken).as_py() or 0
        if count:
            first = self._first(rows, broken)
            raise ConstraintViolationError(
                f"{self.what} ({self.sql}) does not hold for {count} of the rows; the first has {first}"
            )

    def _first(self, rows: pa.RecordBatch, broken: pa.BooleanArray) -> str:
        names = dict.fromkeys(column.path[0] for column in column_refs(self.predicate)) or rows.schema.names[:8]
        row = rows.select(list(names)).filter(broken).slice(0, 1).to_pylist()[0]
        text = ", ".join(f"{name}={value!r}" for name, value in row.items())
        return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


@dataclass(frozen=True)
class RowRules:
    """The rules of a table's rows. They can be pickled: other processes write rows, too.

    Attributes:
        checks: what must be true of every row.
    """

    checks: tuple[Check, ...] = ()

    @classmethod
    def of(cls, schema: StructType, configuration: Mapping[str, str] | None, now: int | None = None) -> RowRules:
        """The rules of a table.

        Implements PROTOCOL.md, "CHECK Constraints" and "Column Invariants". They are held whether or not the protocol
        has their features, as by delta-spark.

        Args:
            schema: by which rows are written.
            configuration: the table's.
            now: what ``current_timestamp`` is, in microseconds since 1970 (UTC).

        Raises:
            UnsupportedFeatureError: a rule that this engine cannot read; it is named.
            InvalidLogError: an invariant that is none.
            InvalidArgumentError: a rule about a column that the schema lacks.
        """
        checks = [
            _check("checkConstraints", f"the CHECK constraint {name!r}", sql, schema, now)
            for name, sql in constraints(configuration).items()
        ]
        checks += [
            _check("invariants", f"the invariant of column {path}", _invariant(field, path), schema, now)
            for path, field in _marked(schema)
        ]
        return cls(tuple(checks)) if checks else NO_RULES

    @classmethod
    def after(cls, snapshot: Snapshot, changes: Iterable[AnyAction] = (), now: int | None = None) -> RowRules:
        """The rules of a table after some changes of it. Raises as :meth:`of`."""
        metadata = next((action for action in changes if isinstance(action, Metadata)), snapshot.metadata)
        same = metadata is snapshot.metadata
        schema = snapshot.schema if same else parse_schema(metadata.schema_string)
        return cls.of(schema, metadata.configuration, now)

    @property
    def features(self) -> tuple[str, ...]:
        """The table features that ask for them."""
        return tuple(sorted({check.feature for check in self.checks}))

    def hold(self, rows: pa.RecordBatch) -> None:
        """Check rows of the table's schema, which may have further columns.

        Raises:
            ConstraintViolationError: a rule that does not hold.
            ExpressionError: a rule that has no value for some row.
        """
        for check in self.checks:
            check.hold(rows)


NO_RULES = RowRules()


def constraints(configuration: Mapping[str, str] | None) -> dict[str, str]:
    """The CHECK constraints among a table's properties, by name."""
    return {
        key[len(CONSTRAINT_PREFIX) :]: sql
        for key, sql in (configuration or {}).items()
        if key.lower().startswith(CONSTRAINT_PREFIX)
    }


def _check(feature: str, what: str, sql: str, schema: StructType, now: int | None) -> Check:
    try:
        return Check(feature, what, sql, parse_predicate(sql, schema, now=now))
    except ColumnNotFoundError as error:
        raise InvalidArgumentError(f"{what} ({sql}) is about a column that is not there: {error}") from None
    except PredicateError as error:
        raise UnsupportedFeatureError([feature], "write to", f"{what} cannot be held: {error}") from None


def _invariant(field: StructField, path: str) -> str:
    """The SQL of a column's invariant."""
    try:
        return str(json.loads(field.metadata[INVARIANTS])["expression"]["expression"])
    except (ValueError, TypeError, KeyError):
        raise InvalidLogError(f"the invariant of column {path} is not one: {field.metadata[INVARIANTS]!r}") from None


def _marked(schema: StructType, above: str = "") -> Iterator[tuple[str, StructField]]:
    """The columns and fields of structs with an invariant."""
    for field in schema:
        path = f"{above}{field.name}"
        if INVARIANTS in field.metadata:
            yield path, field
        if isinstance(field.type, StructType):
            yield from _marked(field.type, f"{path}.")
        elif _hides_marks(field.type):
            raise UnsupportedFeatureError(["invariants"], "write to", f"there is one within the elements of {path}")


def _hides_marks(kind: DataType) -> bool:
    """Whether there are invariants within arrays or maps, where PROTOCOL.md gives them no meaning."""
    match kind:
        case ArrayType():
            return _has_marks(kind.element)
        case MapType():
            return _has_marks(kind.key) or _has_marks(kind.value)
    return False


def _has_marks(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(INVARIANTS in field.metadata or _has_marks(field.type) for field in kind)
    return _hides_marks(kind)
