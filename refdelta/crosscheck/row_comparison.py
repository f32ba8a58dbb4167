"""Comparison of the rows of two readers, in any order. Spark computes it, and spills to disk where memory ends."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_SHOWN = 3


@dataclass(frozen=True)
class RowsCompared:
    """The difference between refdelta's rows and delta-spark's.

    Attributes:
        refdelta: the number of rows of refdelta.
        only_refdelta: the number of them that delta-spark did not return.
        only_delta_spark: the number of rows that delta-spark returned and refdelta did not.
        examples: rows that one engine returned more often, each with the name of the engine, as text.
    """

    refdelta: int
    only_refdelta: int
    only_delta_spark: int
    examples: tuple[str, ...] = ()

    @property
    def alike(self) -> bool:
        """True if both returned the same rows, each as often."""
        return not (self.only_refdelta or self.only_delta_spark)


def compare_rows(spark: Any, ours: pa.RecordBatchReader, theirs: Any, scratch: Path) -> RowsCompared:
    """Compare rows exactly: ``NaN`` equals itself, ``-0.0`` differs from ``0.0``, the order of map entries is ignored.

    Args:
        spark: a session.
        ours: the rows of refdelta. They are written to ``scratch`` a batch at a time.
        theirs: the rows of delta-spark, a DataFrame of the same columns in the same order.
        scratch: a folder that exists.

    Returns:
        The difference.
    """
    from pyspark.sql import functions as f

    names = [f"c{place}" for place in range(len(theirs.columns))]
    renamed = theirs.toDF(*names)
    count = _spool(ours, scratch / "rows.parquet", names)
    mine = spark.read.schema(renamed.schema).parquet(str(scratch / "rows.parquet"))
    kinds = [(name, renamed.schema[name].dataType) for name in names]
    sides = [
        side.select(*(_comparable(f.col(name), kind).alias(name) for name, kind in kinds), f.lit(sign).alias("n"))
        for side, sign in ((mine, 1), (renamed, -1))
    ]
    counted = sides[0].unionAll(sides[1]).groupBy(*names).agg(f.sum("n").alias("n")).where("n <> 0")
    more, less = counted.agg(f.sum(f.greatest("n", f.lit(0))), f.sum(f.greatest(-f.col("n"), f.lit(0)))).collect()[0]
    only_refdelta, only_delta_spark = more or 0, less or 0
    differ = counted.limit(_SHOWN).collect() if only_refdelta or only_delta_spark else []
    shown = (f"only {'refdelta' if row['n'] > 0 else 'delta-spark'}: {tuple(row)[:-1]}" for row in differ)
    return RowsCompared(count, only_refdelta, only_delta_spark, tuple(shown))


def _spool(rows: pa.RecordBatchReader, file: Path, names: list[str]) -> int:
    """Write the rows as Parquet with generated column names: Spark's reader may parse those of the table as paths."""
    schema = pa.schema([pa.field(name, field.type) for name, field in zip(names, rows.schema, strict=True)])
    count = 0
    with pq.ParquetWriter(file, schema) as writer:
        for batch in rows:
            count += batch.num_rows
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    return count


def _comparable(column: Any, kind: Any) -> Any:
    """A column in a form by which Spark can group, and in which distinct values stay distinct."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    match kind:
        case t.FloatType() | t.DoubleType():
            return column.cast("string")  # grouping takes -0.0 and 0.0 for one
        case t.StructType():
            parts = [_comparable(column.getField(part.name), part.dataType).alias(part.name) for part in kind.fields]
            return f.when(column.isNotNull(), f.struct(*parts))
        case t.ArrayType():
            return f.transform(column, lambda item: _comparable(item, kind.elementType))
        case t.MapType():

            def entry(pair: Any) -> Any:
                key, value = _comparable(pair["key"], kind.keyType), _comparable(pair["value"], kind.valueType)
                return f.struct(key.alias("key"), value.alias("value"))

            return f.array_sort(f.transform(f.map_entries(column), entry))
        case _:
            return column
