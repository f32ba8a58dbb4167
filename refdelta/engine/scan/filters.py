"""Filters of scans, from any form of a predicate: the columns that they need, and the rows and files that they keep."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import concat, empty_table, filter_rows, one_batch, pieces, scalar_of
from refdelta.arrow.partition import partition_table
from refdelta.arrow.schema import to_arrow
from refdelta.engine.scan.skipping import Pruned, prune
from refdelta.errors import ColumnNotFoundError, ExpressionError, PredicateError
from refdelta.expressions.evaluate import can_fail, row_mask
from refdelta.expressions.expression import And, Call, Case, Column, Condition, Convert, Predicate, walk
from refdelta.expressions.expression import columns as predicate_columns
from refdelta.expressions.sql import from_filters, parse_expression
from refdelta.pruning.generated_partitions import Generated, implied
from refdelta.table.char_varchar import NOTE
from refdelta.table.features import GENERATION, features_of
from refdelta.table.types import StructType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from refdelta.engine.log.snapshot import Snapshot


# A column beside the partition columns of a list of files; no column of a table has a line break in its name.
_POSITION = "position\n"


class RowFilter(Protocol):
    """A predicate on rows. Rows for which it is unknown (null) are left out, as in SQL."""

    @property
    def columns(self) -> frozenset[str]:
        """The top-level columns that it uses, by their names in the schema."""

    @property
    def can_fail(self) -> bool:
        """Whether it may raise an error for some rows."""

    @property
    def only_compares(self) -> bool:
        """True if it compares columns and constants, and computes nothing else."""

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that meet it."""

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """A mask of a batch: true for the rows that satisfy the filter, false or null for the others."""

    def prune(self, files: pa.Table, schema: StructType, partition_columns: Sequence[str]) -> Pruned:
        """The files of a list that may hold such rows."""


def row_filter(predicate: Any, schema: StructType) -> RowFilter | None:
    """A filter from SQL, deltalake's lists, a pyarrow ``Expression``, or a bound predicate; None for None.

    Raises:
        PredicateError: the predicate cannot be parsed or bound to the schema.
        ColumnNotFoundError: it names a column that the table lacks.
    """
    if predicate is None:
        return None
    if isinstance(predicate, pc.Expression):
        return ExpressionFilter.of(predicate, schema)
    if isinstance(predicate, (str, list, tuple)):
        return BoundFilter(from_filters(predicate, schema))
    if not isinstance(predicate, get_args(Predicate)):
        raise PredicateError(
            f"a predicate is SQL text, a list of conditions or a pyarrow Expression, not a {type(predicate).__name__}"
        )
    return BoundFilter(predicate)


@dataclass(frozen=True)
class BoundFilter:
    """A filter by a typed predicate, bound to the table's schema.

    Attributes:
        predicate: the predicate.
        derived: the condition on partition columns that it implies, or None; see
            :mod:`refdelta.pruning.generated_partitions`.
    """

    predicate: Any
    derived: Any = None

    # A walk through the predicate, which a scan would ask for many times for each file.
    @cached_property
    def columns(self) -> frozenset[str]:
        """See :class:`RowFilter`."""
        return frozenset(path[0] for path in predicate_columns(self.predicate))

    @cached_property
    def can_fail(self) -> bool:
        """See :class:`RowFilter`."""
        return can_fail(self.predicate)

    @cached_property
    def only_compares(self) -> bool:
        """See :class:`RowFilter`."""
        return not any(isinstance(part, (Call, Case, Condition, Convert)) for part in walk(self.predicate))

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """See :class:`RowFilter`."""
        return filter_rows(batch, self.mask(batch))

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """See :class:`RowFilter`."""
        return row_mask(self.predicate, batch)

    def prune(self, files: pa.Table, schema: StructType, partition_columns: Sequence[str]) -> Pruned:
        """See :class:`RowFilter`."""
        if self.columns <= set(partition_columns):
            return _exactly(self, files, schema, partition_columns)
        predicate = self.predicate
        if self.derived is not None and {path[0] for path in predicate_columns(self.derived)} <= set(partition_columns):
            predicate = And((predicate, self.derived))
        return prune(files, schema, partition_columns, predicate)

    def __str__(self) -> str:
        return str(self.predicate)


@dataclass(frozen=True)
class ExpressionFilter:
    """A filter by a pyarrow ``Expression``. Its parts cannot be inspected, so that it prunes only if partition columns
    are all that it uses.
    """

    expression: Any
    columns: frozenset[str]

    @classmethod
    def of(cls, expression: Any, schema: StructType) -> ExpressionFilter:
        """Find the columns of the expression, by its application to empty tables.

        Raises:
            PredicateError: it does not fit the table's schema.
        """
        empty = empty_table(to_arrow(schema))
        problem = _problem(expression, empty)
        if problem is not None:
            raise PredicateError(f"the expression {expression} does not fit the table: {problem}")
        needed = [name for name in empty.column_names if _problem(expression, empty.drop_columns([name])) is not None]
        return cls(expression, frozenset(needed))

    @property
    def can_fail(self) -> bool:
        """See :class:`RowFilter`."""
        return True

    @property
    def only_compares(self) -> bool:
        """See :class:`RowFilter`."""
        return False

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """See :class:`RowFilter`."""
        try:
            return batch.filter(self.expression)
        except (pa.ArrowException, TypeError, ValueError) as error:
            # Not an error of the file whose rows these are.
            raise ExpressionError(f"{str(error).splitlines()[0]}, in {self.expression}") from error

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """See :class:`RowFilter`."""
        numbered = batch.append_column(_POSITION, pa.arange(0, batch.num_rows))
        found = np.zeros(batch.num_rows, dtype=bool)
        found[self.apply(numbered).column(_POSITION).to_numpy()] = True
        return pa.array(found)

    def prune(self, files: pa.Table, schema: StructType, partition_columns: Sequence[str]) -> Pruned:
        """See :class:`RowFilter`."""
        if self.columns <= set(partition_columns):
            return _exactly(self, files, schema, partition_columns)
        nothing = pa.nulls(files.num_rows, pa.string())
        return Pruned(pa.repeat(pa.scalar(True), files.num_rows), nothing)

    def __str__(self) -> str:
        return str(self.expression)


def _problem(expression: Any, table: pa.Table) -> str | None:
    try:
        table.filter(expression)
    except (pa.ArrowException, TypeError, ValueError) as error:
        return str(error).splitlines()[0]
    return None


def _exactly(flt: RowFilter, files: pa.Table, schema: StructType, partition_columns: Sequence[str]) -> Pruned:
    """Pruning by a predicate over partition columns alone, which is the same for all rows of a file."""
    names = [name for name in partition_columns if name in flt.columns]
    keep = concat(_kept(flt, piece, schema, names) for piece in pieces(files))
    reasons = pc.if_else(keep, scalar_of(None, pa.string()), scalar_of("partition", pa.string()))
    return Pruned(keep, reasons, exact=True)


def _kept(flt: RowFilter, files: pa.Table, schema: StructType, names: Sequence[str]) -> pa.BooleanArray:
    indices = pa.arange(0, files.num_rows)
    values = partition_table(files, schema, names)
    rows = pa.table([indices, *values.columns], [_POSITION, *values.column_names])
    return pc.is_in(indices, value_set=flt.apply(one_batch(rows)).column(_POSITION))


# --- generated partition columns ---------------------------------------------------------------------------------


def informed(row_filter: RowFilter, snapshot: Snapshot) -> RowFilter:
    """The same filter, which prunes also by partition columns that are generated from its columns."""
    if not isinstance(row_filter, BoundFilter) or row_filter.columns <= set(snapshot.partition_columns):
        return row_filter
    generated = generated_partitions(snapshot)
    found = implied(row_filter.predicate, generated) if generated else None
    return row_filter if found is None else replace(row_filter, derived=found)


def generated_partitions(snapshot: Snapshot) -> list[Generated]:
    """The partition columns of a table that are generated by expressions that this engine supports.

    Implements PROTOCOL.md, "Generated Columns".
    """
    schema = snapshot.schema
    fields = [item for name in snapshot.partition_columns if GENERATION in (item := schema.field(name)).metadata]
    # Old writers kept the metadata without computing the columns, so that the feature decides.
    if not fields or "generatedColumns" not in features_of(snapshot.protocol):
        return []
    others = StructType(tuple(item for item in schema if GENERATION not in item.metadata))
    found = []
    for item in fields:
        try:
            value = parse_expression(str(item.metadata[GENERATION]), others, now=0, recorded=True)
        except (PredicateError, ColumnNotFoundError):
            continue
        # A value that is generated from char(n), or is of it, may be padded or not.
        sources = (item, *map(others.field, {path[0] for path in predicate_columns(value)}))
        if value.type == item.type and not any(NOTE in source.metadata for source in sources):
            found.append(Generated(Column((item.name,), item.type), value))
    return found
