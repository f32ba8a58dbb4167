"""Conditions in SQL that follow from expressions of Polars, of which not every one is understood."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from refdelta.table.char_varchar import NOTE
from refdelta.table.types import BYTE, DATE, INTEGER, LONG, SHORT, STRING, TIMESTAMP, TIMESTAMP_NTZ, DataType

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from refdelta.table.types import StructField, StructType

_OPERATORS = {"Eq": "=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_BOUNDS = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}
_NULLS = {"IsNull": "IS NULL", "IsNotNull": "IS NOT NULL"}
_WHOLE = (BYTE, SHORT, INTEGER, LONG)
_HIGHEST = 2**63 - 1
_DAY_0, _MOST_LISTED = dt.datetime(1970, 1, 1), 1_000  # noqa: DTZ001 - times have no zone, or UTC
_MICROSECONDS = {"Milliseconds": 1_000, "Microseconds": 1}


def condition_of(predicate: pl.Expr, schema: StructType, names: Sequence[str]) -> str | None:
    """A condition in SQL that is true for every row for which an expression is; None if none is known.

    Args:
        predicate: the expression.
        schema: the table's columns.
        names: the columns of the frame.
    """
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
    except Exception:  # noqa: BLE001 - an expression that Polars cannot write down prunes nothing
        return None
    return _Condition(schema, frozenset(names)).of(tree)


@dataclass(frozen=True)
class _Condition:
    """Conditions in SQL from the JSON of expressions; parts that are not understood may have any value."""

    schema: StructType
    names: frozenset[str]

    def of(self, node: Any) -> str | None:
        if not isinstance(node, dict):
            return None
        if isinstance(node.get("BinaryExpr"), dict):
            return self._binary(**node["BinaryExpr"])
        if isinstance(node.get("Function"), dict):
            call = node["Function"]
            return self._function(call.get("function"), call.get("input"))
        return None

    def _binary(self, op: str, left: Any, right: Any) -> str | None:
        if op in ("And", "Or"):
            parts = [self.of(left), self.of(right)]
            known = [part for part in parts if part is not None]
            if op == "And":
                return f"({' AND '.join(known)})" if known else None
            return f"({' OR '.join(known)})" if len(known) == len(parts) else None
        if op not in _OPERATORS:
            return None
        sign = _OPERATORS[op]
        return self._comparison(left, sign, right) or self._comparison(right, _TURNED[sign], left)

    def _function(self, function: Any, operands: Any) -> str | None:
        kind = function.get("Boolean") if isinstance(function, dict) else None
        found = self._column(operands[0]) if isinstance(operands, list) and operands else None
        if found is None:
            return None
        if isinstance(kind, str) and kind in _NULLS:
            return f"{_quoted(found)} {_NULLS[kind]}"
        if not isinstance(kind, dict):
            return None
        if "IsBetween" in kind and len(operands) == 3:
            low, high = _BOUNDS.get(kind["IsBetween"].get("closed"), (None, None))
            sides = [(low, operands[1]), (high, operands[2])]
            known = [one for sign, side in sides if sign and (one := self._comparison(operands[0], sign, side))]
            return f"({' AND '.join(known)})" if known else None
        if "IsIn" in kind and len(operands) == 2 and not kind["IsIn"].get("nulls_equal"):
            texts = [_text(found.type, value) for value in _listed(operands[1]) or []]
            known = [text for text in texts if text is not None]
            if known and len(known) == len(texts):
                return f"{_quoted(found)} IN ({', '.join(known)})"
        return None

    def _comparison(self, column: Any, sign: str, literal: Any) -> str | None:
        found = self._column(column)
        text = None if found is None else _text(found.type, _constant(literal))
        return None if found is None or text is None else f"{_quoted(found)} {sign} {text}"

    def _column(self, node: Any) -> StructField | None:
        name = node.get("Column") if isinstance(node, dict) else None
        found = self.schema.find(name) if name in self.names else None
        return None if found is None or NOTE in found.metadata else found  # strings of char(n) are padded


def _quoted(column: StructField) -> str:
    return "`" + column.name.replace("`", "``") + "`"


def _text(kind: DataType, value: Any) -> str | None:
    """A constant in SQL, of the column's type; None for one that is not understood."""
    if kind in _WHOLE and isinstance(value, int) and not isinstance(value, bool) and -_HIGHEST <= value <= _HIGHEST:
        return str(value)
    if kind == STRING and isinstance(value, str) and value.isprintable():
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if kind == DATE and isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, dt.datetime) and kind == TIMESTAMP and value.tzinfo is not None:
        return f"TIMESTAMP '{value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(' ')}+00:00'"
    if isinstance(value, dt.datetime) and kind == TIMESTAMP_NTZ and value.tzinfo is None:
        return f"TIMESTAMP_NTZ '{value.isoformat(' ')}'"
    return None


def _constant(node: Any) -> Any:
    """The value of a literal; None if it is not understood."""
    literal = node.get("Literal") if isinstance(node, dict) else None
    for kind in ("Dyn", "Scalar"):
        value = literal.get(kind) if isinstance(literal, dict) else None
        if isinstance(value, dict) and len(value) == 1:
            ((name, constant),) = value.items()
            if name.startswith(("Int", "UInt")) or name in ("String", "Str"):
                return constant
            return _moment(name, constant)
    return None


def _moment(name: str, value: Any) -> dt.date | None:
    try:
        if name == "Date":
            return (_DAY_0 + dt.timedelta(days=value)).date()
        if name == "Datetime" and value[1] in _MICROSECONDS:
            moment = _DAY_0 + dt.timedelta(microseconds=value[0] * _MICROSECONDS[value[1]])
            return moment if value[2] is None else moment.replace(tzinfo=dt.UTC)
    except (OverflowError, TypeError, LookupError):  # outside of the years 1 to 9999
        pass
    return None


def _listed(node: Any) -> list[Any] | None:
    """The values of a list, without nulls, which equal nothing."""
    literal = node.get("Literal") if isinstance(node, dict) else None
    scalar = literal.get("Scalar") if isinstance(literal, dict) else None
    data = scalar.get("List") if isinstance(scalar, dict) else None
    try:
        values = pa.ipc.open_stream(bytes(data or [])).read_all().column(0).to_pylist()
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    known = [value for value in values if value is not None]
    return known if len(known) <= _MOST_LISTED else None
