"""What the tasks of the data source read: some files each, as batches of the form that Spark expects."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from refdelta.engine.arrow.arrays import as_schema
from refdelta.engine.scan.portions import at_most
from refdelta.engine.scan.reader import ReadPlan, ScanFile, read_file
from refdelta.engine.scan.scan import scan_files
from refdelta.errors import InvalidArgumentError
from refdelta.spark.types import spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from refdelta.engine.scan.scan import Scan
    from refdelta_storage import Store

# Bytes of data files that one task reads, and how many it counts as to open a file: the numbers of Spark's own readers.
_TASK_BYTES = 128 * 2**20
_OPEN_BYTES = 4 * 2**20


class Part(InputPartition):
    """What one task reads: some files, and what to make of them."""

    def __init__(self, files: list[ScanFile], plan: ReadPlan):
        super().__init__(files)
        self.plan = plan


def parts(scan: Scan) -> list[Part]:
    """The files of a scan, as many together as make a task. Raises as ``scan_files``."""
    files = (dataclasses.replace(file, vectors=None) for file in scan_files(scan))
    return [Part(some, scan.plan) for some in at_most(files, lambda file: file.size + _OPEN_BYTES, _TASK_BYTES)]


def check_types(schema: Any, plan: ReadPlan) -> None:
    """See that the columns of a plan have the types that a Spark schema asks for.

    Raises ``InvalidArgumentError`` for one that has not, and for no columns at all, for Spark would see no rows.
    """
    if not len(schema):
        raise InvalidArgumentError("the schema that was asked for has no column")
    for asked, there in zip(schema, spark_schema(plan.columns), strict=True):
        if asked.dataType != there.dataType:
            raise InvalidArgumentError(
                f"column {there.name} is of type {there.dataType.simpleString()}, "
                f"not {asked.dataType.simpleString()} as the schema says that was asked for"
            )


def rows(store: Store, part: Part, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a part as batches of exactly this schema. Raises as ``read_file``."""
    for file in part.value:
        for batch in read_file(store, file, part.plan):
            yield as_schema(batch.columns, schema)
