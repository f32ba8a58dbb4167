"""Tables written by delta-spark from Arrow data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hypothesis

from refdelta.crosscheck import oracle
from tiers import examples

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa


def tries(most: int) -> hypothesis.settings:
    """How many tables a property tries. A try takes about a second, so a failure is shrunk but not explained."""
    phases = [phase for phase in hypothesis.Phase if phase is not hypothesis.Phase.explain]
    return examples(most, fewest=1, phases=phases)


def create(
    spark: Any,
    path: Path,
    schema: pa.Schema,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> None:
    """Create an empty table; unlike a write of a DataFrame this keeps NOT NULL."""
    from delta.tables import DeltaTable

    builder = DeltaTable.create(spark).location(str(path)).addColumns(frame(spark, schema.empty_table()).schema)
    for key, value in (properties or {}).items():
        builder = builder.property(key, value)
    builder.partitionedBy(*partition_by).execute()


def write(
    spark: Any,
    path: Path,
    data: pa.Table,
    mode: str = "append",
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    files: int = 1,
) -> None:
    """Write one commit, of at most ``files`` files a partition."""
    writer = frame(spark, data).coalesce(files).write.format("delta").mode(mode).options(**(options or {}))
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.save(str(path))


def frame(spark: Any, data: pa.Table) -> Any:
    """A DataFrame of Arrow data, timestamps with and without zone kept apart."""
    from pyspark.sql.pandas.types import from_arrow_schema

    # PySpark 4.2 loses the rows that come after an empty chunk.
    data = data.combine_chunks()
    return spark.createDataFrame(data, schema=from_arrow_schema(data.schema, prefer_timestamp_ntz=True))


def sql(spark: Any, path: Path, statement: str) -> Any:
    """Run a statement in which ``{t}`` stands for the table."""
    return spark.sql(statement.replace("{t}", oracle.identifier(path)))
