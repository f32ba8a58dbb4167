"""Matching of a predicate with one file, by its partition values and then by its statistics.

This is the reference, file by file, for the few files of a conflict check; its columnar twin for whole tables is
``engine/scan/skipping``. Missing, malformed or contradictory statistics (PROTOCOL.md, "Per-file Statistics") exclude
nothing.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from refdelta.core.log.actions import Add, Remove
from refdelta.core.log.claims import EXACT_BOUNDS, null_count, row_count
from refdelta.errors import DeltaError, ExpressionError
from refdelta.expressions.casting import convert_value, widen
from refdelta.expressions.evaluate import evaluate, value_of
from refdelta.expressions.expression import (
    And,
    BoolLiteral,
    Cast,
    Column,
    Comparison,
    Convert,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Predicate,
    Value,
    column_refs,
    columns,
    rebuilt,
)
from refdelta.expressions.like import like_prefix
from refdelta.expressions.ordering import order
from refdelta.expressions.predicate import FALSE, NULL, TRUE, conjunction, disjunction, possible, push_not
from refdelta.pruning.stats import load_stats, lookup, statistic
from refdelta.pruning.stats_source import StatsSource
from refdelta.table import partition_values
from refdelta.table.types import (
    DATE,
    FRACTIONAL,
    LONG,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    StructType,
    physical_name,
)

KEEP_ORDER: frozenset[tuple[DataType, DataType]] = frozenset(
    {(TIMESTAMP, DATE), (TIMESTAMP_NTZ, DATE), (TIMESTAMP, TIMESTAMP_NTZ), (TIMESTAMP_NTZ, TIMESTAMP)}
)
"""Casts that keep the order of values, so that bounds stay bounds."""

_MOST_NAN = 3
"""So many columns may be NaN or not, in any combination."""


def may_match(predicate: Predicate, file: Add | Remove, schema: StructType, partition_columns: Sequence[str]) -> bool:
    """Whether the file can hold a row for which the predicate is true; in doubt it can.

    Args:
        predicate: bound to the schema.
        file: with its partition values and, if it has them, its statistics. They are parsed only where the partition
            values leave the answer open.
        schema: the table's.
        partition_columns: by logical name.
    """
    return FileMatcher(predicate, schema, partition_columns).may_match(file)


class FileMatcher:
    """:func:`may_match` for many files and one predicate.

    Args:
        predicate: bound to the schema.
        schema: the table's.
        partition_columns: by logical name.
    """

    def __init__(self, predicate: Predicate, schema: StructType, partition_columns: Sequence[str]) -> None:
        self.predicate = push_not(predicate)
        names = {name.lower() for name in partition_columns}
        self._partitions = [item for item in schema if item.name.lower() in names]
        self._data = {path: StatsSource.of(schema, path) for path in columns(predicate) if path[0].lower() not in names}
        self._floats = [path for path, source in self._data.items() if source.type in FRACTIONAL]

    @property
    def partition_names(self) -> list[str]:
        """The names of the partition columns in a file's partition values."""
        return [physical_name(column) for column in self._partitions]

    def may_match(self, file: Add | Remove) -> bool:
        """See :func:`may_match`; a tombstone without partition values may match."""
        if file.partition_values is None:
            return True
        known = self.partition_values(file.partition_values)
        if known is None:
            return True
        if True not in possible(self.predicate, known):
            return False
        return not self._data or self.may_match_stats(self.residual(known), known, file.stats)

    def partition_values(self, values: Mapping[str, str | None]) -> dict[str, Any] | None:
        """A file's partition values as internal values by logical name; None where the log holds one that is none of
        its column's type.
        """
        try:
            return {c.name: partition_values.of_column(values.get(physical_name(c)), c) for c in self._partitions}
        except DeltaError:
            return None

    def residual(self, known: Mapping[str, Any]) -> Predicate:
        """The residual of the predicate in a partition, for the statistics of files: conditions on partition columns
        only are replaced by their values.

        Args:
            known: see :meth:`partition_values`.
        """
        return _residual(self.predicate, known)

    def may_match_stats(self, residual: Predicate, known: Mapping[str, Any], text: str | None) -> bool:
        """Whether the statistics of a file leave it possible.

        Args:
            residual: see :meth:`residual`.
            known: see :meth:`partition_values`.
            text: ``add.stats``.
        """
        found = load_stats(text)
        file = _File(known, found if isinstance(found, dict) else {}, self._data)
        if file.may(residual):
            return True
        return not file.exact and bool(self._floats) and any(map(file.may, nan_cases(residual)))


def _residual(predicate: Predicate, known: Mapping[str, Any]) -> Predicate:
    if isinstance(predicate, And | Or):
        # The value that decides the whole, and the neutral one.
        decides, idle = (FALSE, TRUE) if isinstance(predicate, And) else (TRUE, FALSE)
        parts = [_residual(child, known) for child in predicate.children]
        left = [part for part in parts if part != idle]
        if decides in left:
            return decides
        return conjunction(left) if isinstance(predicate, And) else disjunction(left)
    if not all(path[0] in known for path in columns(predicate)):
        return predicate
    try:
        return TRUE if evaluate(predicate, known) is True else FALSE
    except ExpressionError:
        return TRUE  # it may fail, which only its rows decide


@functools.lru_cache(maxsize=256)
def nan_cases(predicate: Predicate) -> tuple[Predicate, ...]:
    """The predicate for rows that bounds of floats and doubles say nothing about, as some of these columns are NaN.

    Such a row meets the predicate if it meets that in which NaN stands in the place of these columns. So a range of a
    column, which NaN is not in, still excludes files whose bounds may leave out NaN.

    Returns:
        The predicate for each choice of columns that are NaN, without those that are never true. Of more than
        :data:`_MOST_NAN` columns it is one that is always true.
    """
    floats = sorted({column for column in column_refs(predicate) if column.type in FRACTIONAL}, key=_path)
    if len(floats) > _MOST_NAN:
        return (TRUE,)
    chosen = itertools.chain.from_iterable(itertools.combinations(floats, n + 1) for n in range(len(floats)))
    cases = [_where_nan(predicate, frozenset(some)) for some in chosen]
    return tuple(case for case in cases if case not in (FALSE, NULL))


def _path(column: Column) -> tuple[str, ...]:
    return column.path


def _where_nan(predicate: Predicate, nan: frozenset[Column]) -> Predicate:
    def changed(part: Any) -> Any:
        if part in nan:
            return Literal(math.nan, part.type)
        if isinstance(part, Predicate) and not columns(part):
            try:
                return BoolLiteral(evaluate(part, {}))
            except ExpressionError:
                return TRUE
        return part

    found: Predicate = rebuilt(predicate, changed)
    return found


class _Known(msgspec.Struct, frozen=True):
    """Knowledge about a value in a file: bounds, None if unknown, and whether a row may have null or a value."""

    low: Any = None
    high: Any = None
    has_null: bool = True
    has_value: bool = True

    @property
    def constant(self) -> bool:
        """Whether all rows that have a value have the same."""
        return self.low is not None and self.high is not None and order(self.low, self.high) == 0


class _File:
    """Answers for one file with statistics."""

    def __init__(
        self,
        known: Mapping[str, Any],
        stats: dict[str, Any],
        sources: Mapping[tuple[str, ...], StatsSource],
    ) -> None:
        self.known, self.stats, self.sources = known, stats, sources
        self.rows = row_count(statistic(stats.get("numRecords"), LONG))
        self.exact = stats.get(EXACT_BOUNDS) is True
        self._columns: dict[tuple[str, ...], _Known] = {}

    def may(self, predicate: Predicate) -> bool:
        match predicate:
            case And(children):
                return all(map(self.may, children))
            case Or(children):
                return any(map(self.may, children))
            case BoolLiteral(value):
                return value is True
        return self._atom(predicate)

    def _atom(self, atom: Predicate) -> bool:
        match atom:
            case Comparison(op, left, right):
                return self._comparison(op, self._value(left), self._value(right))
            case Not(Comparison(_, left, right)):
                one, other = self._value(left), self._value(right)
                return one.has_null or other.has_null or not _same(one, other)
            case IsNull(value):
                return self._value(value).has_null
            case Not(IsNull(value)) | Not(Like(value)):
                return self._value(value).has_value
            case In(value, items):
                found = self._value(value)
                return any(self._comparison("=", found, _constant(item.value)) for item in items)
            case Not(In(value, items)):
                found = self._value(value)
                return all(
                    item.value is not None and self._comparison("<>", found, _constant(item.value)) for item in items
                )
            case Like(value, pattern, escape):
                return self._like(self._value(value), *like_prefix(pattern, escape))
        return True

    # --- what is known of a value ---

    def _value(self, value: Value) -> _Known:
        match value:
            case Literal(constant):
                return _constant(constant)
            case Column(path) if path in self.sources:
                if path not in self._columns:
                    self._columns[path] = self._column(self.sources[path])
                return self._columns[path]
            case Cast(child, target):
                return _moved(self._value(child), lambda bound: widen(bound, child.type, target))
            case Convert(child, target) if (child.type, target) in KEEP_ORDER:
                return _moved(self._value(child), lambda bound: convert_value(bound, child.type, target))
        if not all(path[0] in self.known for path in columns(value)):
            return _Known()
        try:
            return _constant(value_of(value, self.known))
        except ExpressionError:
            return _Known()

    def _column(self, source: StatsSource) -> _Known:
        low, high = (
            statistic(lookup(self.stats, (side, *source.physical)), source.type) if source.bounded else None
            for side in ("minValues", "maxValues")
        )
        nulls = null_count(
            statistic(lookup(self.stats, ("nullCount", *source.physical)), LONG),
            self.rows,
            bounded=low is not None or high is not None,
        )
        # Under wide bounds a count of nulls that is neither 0 nor all rows says nothing, and nothing is made of it.
        has_null = source.nested or nulls != 0
        has_value = nulls is None or nulls != self.rows
        low, high = source.lower(low, exact=self.exact), source.upper(high, exact=self.exact)
        if low is not None and high is not None and order(low, high) > 0:
            # Bounds in the wrong order are no bounds: some writers let times wrap round.
            low = high = None
        return _Known(low, high, has_null, has_value)

    # --- conditions ---

    def _comparison(self, op: str, one: _Known, other: _Known) -> bool:
        if op == "<=>":
            return (one.has_null and other.has_null) or self._comparison("=", one, other)
        if not (one.has_value and other.has_value):
            return False
        match op:
            case "=":
                return _at_most(one.low, other.high) and _at_most(other.low, one.high)
            case "<>":
                return not _same(one, other)
            case "<":
                return _at_most(one.low, other.high, strict=True)
            case "<=":
                return _at_most(one.low, other.high)
            case ">":
                return _at_most(other.low, one.high, strict=True)
        return _at_most(other.low, one.high)

    def _like(self, known: _Known, prefix: str, exact: bool) -> bool:
        if exact:
            return self._comparison("=", known, _constant(prefix))
        if not known.has_value:
            return False
        low, high = known.low, known.high
        return (high is None or high >= prefix) and (low is None or low <= prefix or low.startswith(prefix))


def _constant(value: Any) -> _Known:
    return _Known(value, value, has_null=value is None, has_value=value is not None)


def _moved(known: _Known, function: Callable[[Any], Any]) -> _Known:
    """The knowledge about a value after a cast that keeps the order of values."""
    try:
        return _Known(function(known.low), function(known.high), known.has_null, known.has_value)
    except ExpressionError:
        return _Known()


def _at_most(low: Any, high: Any, *, strict: bool = False) -> bool:
    if low is None or high is None:
        return True
    return order(low, high) < (0 if strict else 1)


def _same(one: _Known, other: _Known) -> bool:
    return one.constant and other.constant and order(one.low, other.low) == 0
