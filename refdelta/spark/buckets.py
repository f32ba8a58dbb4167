"""Buckets of a distributed MERGE: rows of both sides that can match by the equalities of ON are in the same bucket.

A bucket is a partition after one shuffle of both sides together, sorted so that the rows of the source come first: a
task holds the source's rows of its bucket in memory and streams those of the table, however many there are. The engine
finds in each bucket which rows match; the shuffle only requires that equal keys have equal hashes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import as_schema, empty_table, few_chunks, one_array
from refdelta.arrow.schema import to_arrow
from refdelta.engine.parquet.fit import plan_fit
from refdelta.expressions.expression import Cast, Column
from refdelta.expressions.sql_text import quoted
from refdelta.operations.merge.join import joinable, side
from refdelta.operations.merge.matches import Matcher
from refdelta.spark import tasks
from refdelta.spark.failures import reported
from refdelta.spark.types import arrow_schema, delta_schema, spark_schema
from refdelta.table.types import StructField, is_exact, is_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from refdelta.engine.parquet.fit import Fitter
    from refdelta.expressions.expression import Value
    from refdelta.operations.merge.join import JoinCondition
    from refdelta.operations.merge.plan import MergePlan
    from refdelta.table.types import StructType

# Names that no column of a table has: these may not contain line breaks.
ID, FILE, ROW = "id\n", "file\n", "row\n"
_SIDE, _SOURCE, _TARGET, _SPREAD = "side\n", "source\n", "target\n", "spread\n"


@dataclass(frozen=True)
class Bucket:
    """The rows of both sides in one task.

    Attributes:
        matcher: finds the matches with the source's rows of the bucket.
        ids: the ids of these rows, in their order.
        target: the rows of the table, which can be iterated once.
    """

    matcher: Matcher
    ids: pa.Array
    target: Iterator[pa.RecordBatch]


def in_buckets(
    plan: MergePlan,
    source: Any,
    target: Any,
    count: int,
    work: Callable[[Bucket], Iterator[pa.RecordBatch]],
    schema: Any,
) -> Any:
    """A DataFrame of the results of a function over buckets.

    Args:
        plan: the MERGE.
        source: rows of the source as a DataFrame, with the columns that the work needs and :data:`ID`. Rows of which
            a key is null may be absent.
        target: rows of the table, with :data:`ROW`, and with what else the work needs.
        count: the number of buckets.
        work: the function, which runs on a worker. Its ``DeltaError`` reaches the driver.
        schema: the schema of its batches, a Spark ``StructType`` or its text.
    """
    frame, sources, targets = _shuffled(plan, source, target, count), _fields(source), _fields(target)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with reported():
            yield from work(_bucket(plan, batches, sources, targets))

    return tasks.over(frame, run, schema)


def _fields(frame: Any) -> StructType:
    return delta_schema(frame.schema)


def _bucket(
    plan: MergePlan, batches: Iterator[pa.RecordBatch], source_fields: StructType, target_fields: StructType
) -> Bucket:
    """The bucket of the batches of one partition, in which the rows of the source come first."""
    fit, fit_target = as_engine(source_fields), as_engine(target_fields)
    held: list[pa.RecordBatch] = []
    rest: Iterator[pa.RecordBatch] = iter(())
    for batch in batches:
        length = pc.sum(pc.equal(batch.column(_SIDE), 0)).as_py() or 0
        if length:
            held.append(fit(_unpacked(batch.slice(0, length), _SOURCE)))
        if length < batch.num_rows:
            following = itertools.chain([batch.slice(length)], batches)
            rest = (fit_target(_unpacked(rows, _TARGET)) for rows in following)
            break
    source = few_chunks(pa.Table.from_batches(held, to_arrow(source_fields)))
    return Bucket(Matcher(plan, source.drop_columns([ID])), one_array(source.column(ID)), rest)


def _unpacked(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(batch.column(name))


def as_engine(fields: StructType) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function that converts batches from Spark, all of one schema, to the engine's Arrow types of these columns."""
    fitters: list[Fitter] = []

    def apply(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not fitters:
            fitters.append(plan_fit(batch.schema, fields))
        return fitters[0].apply(batch)

    return apply


# --- the shuffle -------------------------------------------------------------------------------------------------


def _shuffled(plan: MergePlan, source: Any, target: Any, count: int) -> Any:
    from pyspark.sql import functions as f

    keyed = _keyed_by_spark if _in_spark(plan.on) else _keyed_here
    left, right = keyed(plan, source, target=False), keyed(plan, target, target=True)
    keys = [f.col(quoted(name)) for name in left.columns if name not in source.columns]
    # A row with a null key (unless compared by <=>) matches no row: its bucket does not matter.
    void = f.lit(False)
    for index, key in enumerate(plan.on.keys):
        if not key.nulls:
            void |= f.col(quoted(_key(f"k{index}"))).isNull()
    nothing = f.lit(None)
    left = left.where(~void).select(
        *keys,
        nothing.cast("long").alias(_SPREAD),
        f.lit(0).alias(_SIDE),
        _packed(source).alias(_SOURCE),
        nothing.cast(target.schema).alias(_TARGET),
    )
    right = right.select(
        *keys,
        # Such rows of the table are spread over all buckets, since there may be many.
        f.when(void, f.col(quoted(ROW))).alias(_SPREAD),
        f.lit(1).alias(_SIDE),
        nothing.cast(source.schema).alias(_SOURCE),
        _packed(target).alias(_TARGET),
    )
    both = left.unionAll(right).repartition(count, *keys, f.col(quoted(_SPREAD)))
    columns = [f.col(quoted(name)) for name in (_SIDE, _SOURCE, _TARGET)]
    return both.sortWithinPartitions(columns[0]).select(*columns)


def _packed(frame: Any) -> Any:
    from pyspark.sql import functions as f

    return f.struct(*(f.col(quoted(name)) for name in frame.columns))


def _key(name: str) -> str:
    return f"{name}\n"


def _in_spark(on: JoinCondition) -> bool:
    return all(_plain(key.source) is not None and _plain(key.target) is not None for key in on.keys)


def _plain(value: Value) -> Column | None:
    """The column that an expression consists of, perhaps cast to a wider type. None for any other expression, and for a
    type whose equal values may have different hashes.
    """
    if not is_plain(value.type):
        return None
    if isinstance(value, Cast) and is_exact(value.type) and is_exact(value.child.type):
        return _plain(value.child)
    return value if isinstance(value, Column) else None


def _keyed_by_spark(plan: MergePlan, frame: Any, *, target: bool) -> Any:
    """The frame with its keys as further columns, by Spark's own expressions."""
    from pyspark.sql import functions as f

    for index, key in enumerate(plan.on.keys):
        value = key.target if target else key.source
        column = _plain(value)
        assert column is not None  # noqa: S101 - checked before
        kind = spark_schema([StructField("key", value.type)])[0].dataType
        path = ".".join(quoted(name) for name in column.path[1:])
        frame = frame.withColumn(_key(f"k{index}"), f.col(path).cast(kind))
    return frame


def _keyed_here(plan: MergePlan, frame: Any, *, target: bool) -> Any:
    """The frame with its keys as further columns, computed by the engine as its join compares them."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType as SparkStruct

    alias = plan.target_alias if target else plan.source_alias
    fields, on = _fields(frame), plan.on
    empty = side(alias, empty_table(to_arrow(fields)))
    made = pa.schema([(_key(name), a.type) for name, a in joinable(on, empty, target=target).items()])
    schema = SparkStruct([*frame.schema.fields, *from_arrow_schema(made).fields])
    expected = arrow_schema(schema)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fit = as_engine(fields)
        with reported():
            for batch in batches:
                own = fit(batch)
                keys = list(joinable(on, side(alias, own), target=target).values())
                yield as_schema([*own.columns, *keys], expected)

    return tasks.over(frame, run, schema)
