"""INSERT OVERWRITE: the whole table, the rows of a predicate (replaceWhere), or the partitions that the data has."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import concat, one_array
from refdelta.arrow.partition import partition_table, to_internal
from refdelta.core.log.actions import Add, Metadata
from refdelta.engine.log.state import adds_table, to_adds
from refdelta.errors import InvalidArgumentError
from refdelta.expressions.expression import Column, Comparison, Literal, Predicate
from refdelta.expressions.predicate import conjunction, disjunction, with_nulls
from refdelta.expressions.sql import parse_predicate
from refdelta.operations.shared.rewrite import RewriteResult, delete_where, record_inserts, remove_files, requires
from refdelta.operations.write.append import WrittenFiles, append

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.write.append import Rows
    from refdelta.operations.write.target import Target
    from refdelta.table.types import StructType
    from refdelta.transaction.transaction import Transaction


def overwrite(
    txn: Transaction, source: Rows, target: Target, *, target_file_size: int | None = None
) -> tuple[WrittenFiles, RewriteResult]:
    """Replace all rows. The whole table counts as read.

    So a concurrent append of rows conflicts, unless it is blind and the level is ``WriteSerializable``: then the
    overwrite counts as the earlier one, and the rows of the append stay.

    Args:
        txn: the transaction.
        source: the new rows.
        target: the table after the write.
        target_file_size: the size in bytes at which a file is completed; None for the table's own.

    Returns:
        The files that were written, and those that were removed.
    """
    removed = source.replaced(to_adds(txn.snapshot.files)) if txn.snapshot else []
    txn.read_whole_table()
    remove_files(txn, removed)
    return append(txn, source, target, target_file_size=target_file_size), RewriteResult(removed, [], 0)


def replace_where(
    txn: Transaction, source: Rows, target: Target, sql: str, *, target_file_size: int | None = None
) -> tuple[WrittenFiles, RewriteResult]:
    """Replace the rows for which ``sql`` is true. The other arguments are those of :func:`overwrite`.

    Raises:
        ConstraintViolationError: ``sql`` is not true for a new row; the files are removed.
    """
    predicate = parse_predicate(sql, target.schema, now=txn.now)
    written = append(txn, source, target, target_file_size=target_file_size, check=requires(predicate, sql))
    if txn.snapshot is None:
        return written, RewriteResult([], [], 0)
    # Rows are deleted under the new schema: a column that the write adds is null in the old rows.
    changed = next((a for a in target.changes if isinstance(a, Metadata)), txn.snapshot.metadata)
    to_come = dataclasses.replace(txn.snapshot, metadata=changed)
    # The read is recorded over the old schema, with null for new columns, so that it covers the files of concurrent
    # writers, which lack these columns. A writer that changed the schema conflicts anyway.
    gone = delete_where(txn, to_come, predicate, reads=with_nulls(predicate, txn.snapshot.schema))
    record_inserts(txn, written.adds)
    return written, gone


def overwrite_partitions(
    txn: Transaction, source: Rows, target: Target, *, target_file_size: int | None = None
) -> tuple[WrittenFiles, RewriteResult]:
    """Replace the partitions of which the data has rows. The arguments are those of :func:`overwrite`.

    Raises:
        InvalidArgumentError: the table has no partition columns.
    """
    if not target.partition_columns:
        raise InvalidArgumentError('partition_overwrite="dynamic" needs a table with partition columns')
    written = append(txn, source, target, target_file_size=target_file_size)
    removed = _in_same_partitions(txn.snapshot, written.adds, target.schema) if txn.snapshot else []
    if txn.snapshot:
        txn.read_predicate(_partitions_of(written.adds, target))
    remove_files(txn, removed)
    return written, RewriteResult(removed, [], 0)


def _partitions_of(adds: list[Add], target: Target) -> Predicate:
    """A predicate that is true for the rows of these files' partitions."""
    columns = [target.schema.field(name) for name in target.partition_columns]
    typed = partition_table(adds_table(adds), target.schema, target.partition_columns)
    distinct = typed.group_by(typed.column_names).aggregate([])
    values = [to_internal(one_array(distinct.column(f.name)), f.type) for f in columns]
    return disjunction(
        conjunction(
            Comparison("<=>", Column((f.name,), f.type), Literal(value, f.type))
            for f, value in zip(columns, row, strict=True)
        )
        for row in zip(*values, strict=True)
    )


def _in_same_partitions(snapshot: Snapshot, adds: list[Add], schema: StructType) -> list[Add]:
    if not adds or snapshot.files.num_rows == 0:
        return []
    columns = list(snapshot.partition_columns)
    # Typed values are compared, since the log can have the same timestamp in several spellings.
    new = partition_table(adds_table(adds), schema, columns)
    old = partition_table(snapshot.files, schema, columns)
    codes = functools.reduce(_combined, (_codes(old[c], new[c]) for c in columns))
    return to_adds(snapshot.files.filter(pc.is_in(codes[: old.num_rows], value_set=codes[old.num_rows :])))


def _codes(old: pa.ChunkedArray, new: pa.ChunkedArray) -> pa.Array:
    values = pa.chunked_array([*old.chunks, *new.chunks], type=old.type)
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))  # -0.0 and 0.0 are equal
    codes = values.dictionary_encode(null_encoding="encode")
    return concat((chunk.indices for chunk in codes.chunks), pa.int32()).cast(pa.int64())


def _combined(left: pa.Array, right: pa.Array) -> pa.Array:
    """One code for each pair of codes, dense again so that it never overflows."""
    pairs = pc.add(pc.multiply(left, pc.add(pc.max(right), 1)), right)
    return pairs.dictionary_encode().indices.cast(pa.int64())
