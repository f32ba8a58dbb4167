"""Data skipping: the files that a predicate excludes, by their partition values and by their statistics.

A file is kept unless no row of it can make the predicate true. :mod:`refdelta.pruning.file_match` is the
definition for a single file; a property-based test holds this module equal to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import ARROW_FALSE, ARROW_TRUE, ARROW_ZERO, array_of, concat, one_array, pieces, scalar_of
from refdelta.arrow.partition import partition_table
from refdelta.engine.scan.file_stats import Bounds, FileStatsView, view_stats
from refdelta.errors import ExpressionError
from refdelta.expressions.casting import convert_column
from refdelta.expressions.evaluate import cast, compute_type, evaluate_value, row_mask, scalar
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
)
from refdelta.expressions.like import like_prefix
from refdelta.expressions.ordering import compare_columns, order
from refdelta.expressions.predicate import push_not
from refdelta.pruning.file_match import KEEP_ORDER, nan_cases
from refdelta.table.types import FRACTIONAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from refdelta.table.types import DataType, StructType

# No column of a table has a line break in its name.
_ROWS = "rows\n"
# Each item of an IN costs a pass over the files; of longer lists only the smallest and the largest item are used.
_MAX_ITEMS = 200
_MOST_FAILURES = 100
# The number of rows of a file without that statistic. No count of nulls equals it, except the count for a value that
# partition values make null in every row.
_UNCOUNTED = scalar_of(-(2**63), pa.int64())

_REASONS = array_of(["partition", "stats"], pa.string())
_BY_PARTITION, _BY_STATS = array_of([0, 1], pa.int32()).cast(pa.int8())


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result of pruning a list of files.

    Attributes:
        keep: for each file, whether it must be read; never null.
        reason: for each file, ``"partition"`` or ``"stats"`` if it is excluded, null if it is kept.
        exact: whether all rows of all kept files meet the predicate, so that it need not be applied to rows.
    """

    keep: pa.BooleanArray
    reason: pa.Array
    exact: bool = False


def prune(files: pa.Table, schema: StructType, partition_columns: Sequence[str], predicate: Predicate | None) -> Pruned:
    """The files that can hold a row for which the predicate is true.

    Args:
        files: a list of live files, with ``partitionValues`` and ``stats`` or ``stats_parsed``.
        schema: the table's.
        partition_columns: by logical name.
        predicate: bound to the schema; None keeps everything.

    Raises:
        InvalidLogError: a partition value is not of its column's type.
    """
    if predicate is None or files.num_rows == 0:
        return Pruned(pa.repeat(ARROW_TRUE, files.num_rows), _reasons(files.num_rows))
    predicate = push_not(predicate)
    found = [_pruned(piece, schema, partition_columns, predicate) for piece in pieces(files)]
    return Pruned(concat(part.keep for part in found), concat(part.reason for part in found))


def _pruned(files: pa.Table, schema: StructType, partition_columns: Sequence[str], predicate: Predicate) -> Pruned:
    folded = {name.lower() for name in partition_columns}
    paths = sorted(columns(predicate))
    used = [path[0] for path in paths if path[0].lower() in folded]
    data = [path for path in paths if path[0].lower() not in folded]
    partitions = partition_table(files, schema, used)
    nothing = FileStatsView(pa.nulls(files.num_rows, pa.int64()), {})
    by_partition = _Pruner(files.num_rows, partitions, nothing).may(predicate)
    if not data:
        return Pruned(by_partition, _reasons(files.num_rows, by_partition))
    view = view_stats(files, schema, data)
    pruner = _Pruner(files.num_rows, partitions, view)
    keep = pruner.may(predicate)
    if view.exact is not None and not pc.all(pc.or_(view.exact, keep), min_count=0).as_py():
        unmarked = pc.invert(view.exact)
        for case in nan_cases(predicate) if any(column.type in FRACTIONAL for column in column_refs(predicate)) else ():
            keep = pc.or_(keep, pc.and_(unmarked, pruner.may(case)))
    return Pruned(pc.and_(keep, by_partition), _reasons(files.num_rows, by_partition, keep))


def _reasons(rows: int, by_partition: Any = None, by_stats: Any = None) -> pa.DictionaryArray:
    codes: Any = pa.nulls(rows, pa.int8())
    if by_stats is not None:
        codes = pc.if_else(by_stats, codes, _BY_STATS)
    if by_partition is not None:
        codes = pc.if_else(by_partition, codes, _BY_PARTITION)
    return pa.DictionaryArray.from_arrays(codes, _REASONS)


class _Pruner:
    """Decides for all files at once whether a condition can be true in them. Without a view, data columns may have any
    values.
    """

    def __init__(self, rows: int, partitions: pa.Table, view: FileStatsView):
        self.rows = rows
        self.partitions, self.view = partitions, view
        self.counts = pc.fill_null(view.rows, _UNCOUNTED)

    def may(self, predicate: Predicate) -> pa.BooleanArray:
        match predicate:
            case And(children):
                return reduce(pc.and_, map(self.may, children))
            case Or(children):
                return reduce(pc.or_, map(self.may, children))
            case BoolLiteral(value):
                return self._all(value is True)
        names = {column.path[0] for column in column_refs(predicate)}
        if names <= set(self.partitions.column_names):
            # Where it fails, rows may not reach the failing expression.
            mask, fails = self._of_partitions(partial(row_mask, predicate), pa.bool_())
            return pc.or_(pc.fill_null(mask, ARROW_FALSE), fails)
        if not self.view.bounds:
            return self._all(True)
        # Unknown is possible.
        return pc.fill_null(self._atom(predicate), ARROW_TRUE)

    def _all(self, value: bool) -> pa.BooleanArray:
        return pa.repeat(ARROW_TRUE if value else ARROW_FALSE, self.rows)

    def _atom(self, atom: Predicate) -> Any:
        match atom:
            case Comparison(op, left, right):
                return self._comparison(op, left, right)
            case Not(Comparison(_, left, right)):
                return self._distinct(left, right)
            case IsNull(value):
                return self._has_null(value)
            case Not(IsNull(value)):
                return self._has_value(value)
            case In(value, items):
                return self._in(value, items)
            case Not(In(value, items)):
                return self._not_in(value, items)
            case Like(value, pattern, escape):
                return self._like(value, pattern, escape)
            case Not(Like(value)):
                return self._has_value(value)
        return self._all(True)

    # --- bounds of values ---

    def _bounds(self, value: Value) -> Bounds:
        match value:
            case Literal(constant, data_type):
                fixed = pa.repeat(scalar(constant, data_type), self.rows)
                return Bounds(fixed, fixed, pa.repeat(ARROW_ZERO, self.rows))
            case Column(path) if path[0] not in self.partitions.column_names:
                return self.view.bounds[path]
            case Cast(child, target):
                return self._moved(child, target, partial(cast, source=child.type, target=target))
            case Convert(child, target) if (child.type, target) in KEEP_ORDER:
                return self._moved(child, target, partial(convert_column, source=child.type, target=target))
        return self._computed(value)

    def _moved(self, child: Value, target: DataType, function: Callable[[pa.Array], pa.Array]) -> Bounds:
        """The bounds after a cast that keeps the order of values."""
        inner = self._bounds(child)
        try:
            return Bounds(function(inner.low), function(inner.high), inner.nulls, inner.nested)
        except ExpressionError:
            return self._nothing(target)

    def _nothing(self, data_type: DataType) -> Bounds:
        unknown = pa.nulls(self.rows, compute_type(data_type))
        return Bounds(unknown, unknown, pa.nulls(self.rows, pa.int64()), nested=True)

    def _computed(self, value: Value) -> Bounds:
        """The bounds of a value that depends on partition values only, and so is the same for all rows of a file. The
        bounds of other values are unknown.
        """
        if not {path[0] for path in columns(value)} <= set(self.partitions.column_names):
            return self._nothing(value.type)
        # Where it fails, another condition may keep rows from reaching the failing expression.
        fixed, fails = self._of_partitions(partial(evaluate_value, value), compute_type(value.type))
        # The count of nulls is none, or all of them.
        counts = pc.if_else(fails, scalar_of(None, pa.int64()), pc.if_else(fixed.is_null(), self.counts, ARROW_ZERO))
        return Bounds(fixed, fixed, counts)

    @cached_property
    def _partition_rows(self) -> pa.RecordBatch:
        """The partition values, one row a file."""
        names = self.partitions.column_names
        rows = pa.nulls(self.rows)  # keeps the row count if there are no partition columns
        return pa.record_batch([*(one_array(self.partitions[name]) for name in names), rows], names=[*names, _ROWS])

    def _of_partitions(
        self, evaluate: Callable[[pa.RecordBatch], pa.Array], data_type: pa.DataType
    ) -> tuple[pa.Array, pa.BooleanArray]:
        """Evaluate an expression over the partition values, one row a file.

        Where it fails it is evaluated in halves, so that a partition value for which it fails does not keep the files
        of the others. After :data:`_MOST_FAILURES` it counts as failing for the remaining files.

        Returns:
            The values, null where it fails, and for which files it fails.
        """
        left = _MOST_FAILURES

        def parts(rows: pa.RecordBatch) -> Iterator[tuple[pa.Array, pa.Array]]:
            nonlocal left
            many = rows.num_rows
            if left > 0:
                try:
                    yield evaluate(rows), pa.repeat(ARROW_FALSE, many)
                except ExpressionError:
                    if many > 1:
                        yield from parts(rows.slice(0, many // 2))
                        yield from parts(rows.slice(many // 2))
                        return
                    left -= 1
                else:
                    return
            yield pa.nulls(many, data_type), pa.repeat(ARROW_TRUE, many)

        values, fails = zip(*parts(self._partition_rows), strict=True)
        return concat(values), concat(fails)

    def _has_null(self, value: Value) -> Any:
        bounds = self._bounds(value)
        return self._all(True) if bounds.nested else pc.not_equal(bounds.nulls, ARROW_ZERO)

    def _has_value(self, value: Value) -> Any:
        """True for files in which some row has a value that is not null; null if that is unknown."""
        return pc.not_equal(self._bounds(value).nulls, self.counts)

    # --- conditions ---

    def _comparison(self, op: str, left: Value, right: Value) -> Any:
        one, other = self._bounds(left), self._bounds(right)
        if op == "<=>":
            both_null = pc.and_kleene(self._has_null(left), self._has_null(right))
            return pc.or_kleene(self._comparison("=", left, right), both_null)
        if op == "=":
            found = pc.and_kleene(
                compare_columns("<=", one.low, other.high), compare_columns("<=", other.low, one.high)
            )
        elif op == "<>":
            found = pc.invert(_constant_and_equal(one, other))
        elif op in ("<", "<="):
            found = compare_columns(op, one.low, other.high)
        else:
            found = compare_columns(op, one.high, other.low)
        for value in (left, right):
            found = pc.and_kleene(found, self._has_value(value)) if not isinstance(value, Literal) else found
        return found

    def _distinct(self, left: Value, right: Value) -> Any:
        """NOT <=>: false in all rows only if both sides are the same constant, and never null."""
        equal = _constant_and_equal(self._bounds(left), self._bounds(right))
        nulls = [self._has_null(value) for value in (left, right) if not isinstance(value, Literal)]
        return reduce(pc.or_kleene, nulls, pc.invert(equal))

    def _in(self, value: Value, items: tuple[Literal, ...]) -> Any:
        known = [item for item in items if item.value is not None]
        bounds = self._bounds(value)
        found = self._all(False)
        if len(known) > _MAX_ITEMS:
            low, high = known[0], known[0]
            for item in known:
                low = item if order(item.value, low.value) < 0 else low
                high = item if order(item.value, high.value) > 0 else high
            found = self._meets(bounds, low, high)
        else:
            for item in known:
                found = pc.or_kleene(found, self._meets(bounds, item, item))
        return pc.and_kleene(found, self._has_value(value))

    def _meets(self, bounds: Bounds, low: Literal, high: Literal) -> Any:
        below = compare_columns("<=", bounds.low, scalar(high.value, high.type))
        return pc.and_kleene(below, compare_columns(">=", bounds.high, scalar(low.value, low.type)))

    def _not_in(self, value: Value, items: tuple[Literal, ...]) -> Any:
        if any(item.value is None for item in items):
            return self._all(False)
        parts = [self._comparison("<>", value, item) for item in items[:_MAX_ITEMS]]
        return reduce(pc.and_kleene, parts, self._has_value(value))

    def _like(self, value: Value, pattern: str, escape: str) -> Any:
        prefix, exact = like_prefix(pattern, escape)
        if exact:
            return self._comparison("=", value, Literal(prefix, value.type))
        bounds, least = self._bounds(value), scalar_of(prefix, pa.string())
        high_enough = pc.greater_equal(bounds.high, least)
        low_enough = pc.or_(pc.less_equal(bounds.low, least), pc.starts_with(bounds.low, prefix))
        return reduce(pc.and_kleene, [high_enough, low_enough, self._has_value(value)])


def _constant_and_equal(one: Bounds, other: Bounds) -> Any:
    """True for files in which both sides are the same constant in all rows that are not null."""
    parts = [
        compare_columns("=", one.low, one.high),
        compare_columns("=", other.low, other.high),
        compare_columns("=", one.low, other.low),
    ]
    return pc.fill_null(reduce(pc.and_kleene, parts), ARROW_FALSE)
