"""A Spark DataFrame as the source of a MERGE: small enough to be collected, or left with the workers."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from refdelta.engine.arrow.arrays import empty_table
from refdelta.engine.arrow.schema import to_arrow
from refdelta.errors import InvalidArgumentError
from refdelta.operations.merge.collected import Collected
from refdelta.operations.merge.pieces import gathered
from refdelta.operations.merge.reads import KeyValues
from refdelta.spark import origin, tasks
from refdelta.spark.buckets import ID, as_engine
from refdelta.spark.failures import reported
from refdelta.spark.kept import Kept, running
from refdelta.spark.merging import PIECE_BYTES, Shuffled
from refdelta.spark.types import delta_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from refdelta.operations.merge.execution import MergeStrategy
    from refdelta.operations.merge.plan import MergePlan


class FrameSource:
    """A DataFrame as the source of a MERGE.

    Args:
        spark: the session.
        frame: the DataFrame. It is computed once.
        broadcast_bytes: up to how many bytes of rows, in Arrow's memory, are collected.

    Attributes:
        schema: the Arrow schema of its rows, all of it nullable.

    Raises:
        InvalidArgumentError: it is a stream.
        UnsupportedTypeError: it has a type that no table can have.
    """

    def __init__(self, spark: Any, frame: Any, broadcast_bytes: int):
        if frame.isStreaming:
            raise InvalidArgumentError(
                "the source is a stream; writeStream.foreachBatch merges its batches, each once where the MERGE "
                "has app_id=... and app_version=batch_id"
            )
        self.schema = to_arrow(delta_schema(frame.schema))
        self._spark, self._frame, self._broadcast_bytes = spark, frame, broadcast_bytes

    def version_of(self, uri: str) -> int | None:
        """The oldest version of the table at ``uri`` from which the rows are made; None where they are not."""
        return origin.oldest_version(self._frame, uri)

    def strategy(self, plan: MergePlan) -> MergeStrategy:
        """How its rows come together with those of the table.

        Raises ``InvalidArgumentError`` for a large source where ON has no equality.
        """
        kept = Kept(self._frame)
        keys, size = _measured(kept, plan)
        if size <= self._broadcast_bytes:
            with running():
                rows = kept.frame.drop(ID).toArrow()
            return Collected.of(plan, rows.to_reader())
        if not plan.on.keys:
            raise InvalidArgumentError(
                f"ON has no equality between the two sides ({plan.target_alias}.x = {plan.source_alias}.y): each row "
                "of the source is held against each of the table, and so the source is held in memory by every worker, "
                f"but its {size:,} bytes are more than the executor's broadcast_bytes, {self._broadcast_bytes:,}"
            )
        return Shuffled(self._spark, kept, plan, keys, size)


def _measured(kept: Kept, plan: MergePlan) -> tuple[KeyValues, int]:
    """The keys of the source and the size of its rows in bytes."""
    fields = delta_schema(kept.frame.drop(ID).schema)

    def measure(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fit, size = as_engine(fields), 0
        with reported():
            found = KeyValues.of(plan.on, plan.source_alias, empty_table(to_arrow(fields)))
            for piece in gathered((fit(batch.drop_columns([ID])) for batch in batches), PIECE_BYTES):
                found = found.and_of(KeyValues.of(plan.on, plan.source_alias, piece))
                size += piece.nbytes
        yield pa.record_batch({"size": [size], "keys": [pickle.dumps(found)]})

    with running():
        parts = tasks.over(kept.frame, measure, "size long, keys binary").collect()
    keys = KeyValues.of(plan.on, plan.source_alias, empty_table(to_arrow(fields)))
    for part in parts:
        keys = keys.and_of(pickle.loads(part.keys))  # noqa: S301 - of our own workers
    return keys, sum(part.size for part in parts)
