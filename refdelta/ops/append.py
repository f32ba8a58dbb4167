"""INSERT: new rows, as new files. Without reads of the table it is a blind append, which conflicts with no data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from refdelta.engine.fit import plan_fit
from refdelta.engine.schema import to_arrow
from refdelta.engine.write import write_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from refdelta.ops.source import Source
    from refdelta.ops.target import Target
    from refdelta.protocol.actions import Add
    from refdelta.staging import Staging


@dataclass(frozen=True)
class Written:
    """The files of one stream of rows.

    Attributes:
        adds: their actions.
        rows: how many rows they hold.
    """

    adds: list[Add]
    rows: int

    @property
    def size(self) -> int:
        """Their size in bytes."""
        return sum(add.size for add in self.adds)


def append(
    txn: Staging,
    source: Source,
    target: Target,
    *,
    target_file_size: int | None = None,
    check: Callable[[pa.RecordBatch], None] | None = None,
) -> Written:
    """Write the rows as files of the table and stage them.

    Args:
        txn: the transaction.
        source: the rows; their columns are found by name, and may come in any order.
        target: what the table will be.
        target_file_size: in bytes; None for the table's own.
        check: called with every batch in the table's schema before it is written; raises what it objects to.

    Raises:
        SchemaMismatchError: before a byte is written, with all that does not fit.
        ConstraintViolationError: a null where the schema has none; the files are removed again.
    """
    fitter = plan_fit(source.reader.schema, target.schema)
    rows = 0

    def fitted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in source.reader:
            rows += batch.num_rows
            fit = fitter.apply(batch)
            if check:
                check(fit)
            yield fit

    txn.stage(target.changes)
    reader = pa.RecordBatchReader.from_batches(to_arrow(target.schema), fitted())
    adds = write_files(
        txn.store,
        reader,
        schema=target.schema,
        partition_columns=list(target.partition_columns),
        properties=target.properties,
        clustering=target.clustering_columns,
        target_file_size=target_file_size,
    )
    txn.stage_written(adds)
    return Written(adds, rows)
