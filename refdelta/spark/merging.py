"""MERGE with a DataFrame as the source: collected where it is small, else left with Spark's workers.

A source that stays with the workers is shuffled with the table into buckets by the equalities of ON; the engine finds
in each bucket which rows match and which clause applies to them. The first pass shuffles only the columns that the
conditions use, and gives the positions of rows. The second shuffles the rows of the table that are updated and those of
the source. Rows of the source that match no row are inserted from where they are. Neither the driver nor a worker holds
more of the rows than its part.

The driver records what was read, and commits what is written, as for every MERGE.
"""

from __future__ import annotations

import dataclasses
import functools
import pickle
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.accumulators import AccumulatorParam

from refdelta.arrow.arrays import as_schema, empty_table, exact_sum, one_array
from refdelta.arrow.schema import to_arrow
from refdelta.engine.parquet.dv import to_bitmap, to_positions
from refdelta.engine.parquet.write import CHANGE
from refdelta.engine.scan.positions import stand
from refdelta.engine.scan.scan import plan_scan
from refdelta.errors import InvalidArgumentError
from refdelta.expressions.predicate import TRUE
from refdelta.expressions.sql_text import quoted
from refdelta.operations.merge.join import KeyValues
from refdelta.operations.merge.matches import Matcher, MergeMatches, gathered
from refdelta.operations.merge.result import INSERT_ROWS, ResultRows
from refdelta.operations.merge.strategy import Collected, needs_feed
from refdelta.operations.shared.rewrite import FileShare, chosen, shares, write_anew
from refdelta.operations.write.append import FileWriter
from refdelta.operations.write.target import Target
from refdelta.spark import frames, origins, tasks
from refdelta.spark.buckets import FILE, ID, ROW, as_engine, in_buckets
from refdelta.spark.columns import condition, means_the_same
from refdelta.spark.failures import SparkUnavailableError, raise_again, reported
from refdelta.spark.job import FrameRows, write_job
from refdelta.spark.types import arrow_schema, declared_schema, delta_schema, spark_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from refdelta.core.log.actions import Add
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.engine.scan.positions import RowsByFile
    from refdelta.expressions.expression import Predicate
    from refdelta.operations.merge.plan import MergePlan
    from refdelta.operations.merge.strategy import MergeStrategy
    from refdelta.operations.shared.row_rules import RowRules
    from refdelta.spark.buckets import Bucket
    from refdelta.spark.job import PartWriter
    from refdelta.transaction.transaction import Transaction


# The bytes of one bucket: rows of the source, in Arrow's memory, and files of the table, whose rows are streamed.
_BUCKET_BYTES, _TARGET_BYTES = 64 * 2**20, 512 * 2**20
# The bytes of the source's rows that are processed together outside of buckets.
PIECE_BYTES = 16 * 2**20


class ShuffledSource:
    """The :class:`~refdelta.operations.merge.strategy.MergeStrategy` of a source that stays with the workers.

    Args:
        spark: the session.
        source: the rows of the source.
        plan: the MERGE.
        keys: the keys of the source.
        size: the size of the source in bytes.
    """

    piece_bytes = PIECE_BYTES

    def __init__(self, spark: Any, source: KeptFrame, plan: MergePlan, keys: KeyValues, size: int):
        self.keys = keys
        self._spark, self._source, self._plan, self._size = spark, source, plan, size
        self._matched = BitMap64()  # the numbers of the source's rows that match

    def matching(self, rows: pa.Table) -> pa.Array:
        """See :class:`~refdelta.operations.merge.strategy.MergeStrategy`."""
        plan = self._plan
        source = self._source.columns(path[1] for path in plan.on.columns if path[0] == plan.source_alias)
        needed = {path[1] for path in plan.on.columns if path[0] == plan.target_alias}
        keys = rows.select([name for name in rows.column_names if name in needed])
        return to_positions(_matches(plan, source, keys)).cast(pa.int64())

    def find(self, txn: Transaction, table: Snapshot, read: Predicate) -> MergeMatches:  # noqa: ARG002 - Spark reads here
        """The first pass: the positions of the rows that match."""
        plan, names = self._plan, table.schema.names
        found = MergeMatches()
        if not table.files.num_rows:
            return found
        needed = plan.columns_to_find(plan.target_alias)
        columns = [name for name in names if name in needed] or names[:1]
        target = frames.scan_frame(self._spark, plan_scan(table, columns), file_column=FILE, row_column=ROW)
        if not plan.of_rest and read != TRUE and means_the_same(self._spark, read):
            target = target.where(condition(self._spark, read))
        source = self._source.columns(plan.columns_to_find(plan.source_alias))
        count = self._buckets(table)
        for part in self._collected(in_buckets(plan, source, target, count, _found, "part binary")):
            own, matched = part
            found.take_in(own)
            self._matched |= BitMap64.deserialize(matched)
        return found

    def write(self, txn: Transaction, table: Snapshot, found: MergeMatches) -> list[Add]:
        """The second pass: one Spark job writes changed and new rows. Without deletion vectors, tasks over the changed
        files copy the rows that stay.
        """
        feed = needs_feed(txn, found)
        changing = found.acting if feed else found.updated
        added: list[Add] = []
        if changing or self._plan.of_source:
            marks = self._spark.sparkContext.accumulator({}, _HighestNumbers(self._plan.rules))

            def made(then: PartWriter, schema: Any) -> Any:
                parts = [self._changed(txn, table, changing, feed, then, schema)] if changing else []
                if self._plan.of_source:
                    parts.append(self._inserted(table, feed, marks, then, schema))
                return functools.reduce(lambda one, other: one.unionAll(other), parts)

            target = Target(table.schema, tuple(table.partition_columns), table.properties, table.clustering_columns)
            writer = FileWriter(txn.store, target, feed=feed)
            with running():
                if table.partition_columns:
                    from pyspark.sql import functions as f

                    # Without the hint each task has rows of all partitions, and writes a file into each.
                    rows = made(iter, _schemas(table, feed)[0])
                    rows = rows.hint("rebalance", *(f.col(quoted(name)) for name in table.partition_columns))
                    written = FrameRows(rows).write(writer)
                else:
                    written = write_job(self._spark, writer, made)
            txn.stage_written([*written.adds, *written.changes])
            added += written.adds
            updated = sum(count for what, count in found.counts.items() if what.endswith("updated"))
            found.counts["inserted"] = written.rows - updated
            found.marks = marks.value
        if found.acting and not txn.vectors:
            added += _copy(txn, table, found)
        return added

    def _changed(
        self, txn: Transaction, table: Snapshot, rows: RowsByFile, feed: bool, then: PartWriter, schema: Any
    ) -> Any:
        """A DataFrame of the results of a function over the updated rows of each bucket, in the table's schema; with
        ``feed`` over all changed rows before and after the change, with their change type.
        """
        plan, numbers = self._plan, sorted(rows)
        files = chosen(table.files, numbers)
        target = _rows_of(self._spark, table, shares(txn, files, [rows[number] for number in numbers]))
        source = self._source.columns(plan.columns_to_change(plan.source_alias))
        if len(self._matched) < self.keys.rows // 2:  # else the filter costs more than it saves
            source = _matching(source, self._matched)
        expected, bare = _schemas(table, feed)[1], table.without_files()

        def change(bucket: Bucket) -> Iterator[pa.RecordBatch]:
            result = ResultRows(bucket.matcher.plan, bare, feed)
            for piece in gathered(bucket.target, bucket.matcher.piece_bytes):
                for batch in result.changed(bucket.matcher, piece.drop_columns([ROW])):
                    yield as_schema(batch.columns, expected)

        count = self._buckets(table.with_files(files))
        return in_buckets(plan, source, target, count, lambda bucket: then(change(bucket)), schema)

    def _inserted(self, table: Snapshot, feed: bool, marks: Any, then: PartWriter, schema: Any) -> Any:
        """A DataFrame of the results of a function over the inserted rows of each task, in the table's schema; with
        ``feed`` with their change type.

        The last values of identity columns are added to ``marks``.
        """
        plan, alias = self._plan, self._plan.source_alias
        looked_at = (clause.condition_columns | clause.value_columns for clause in plan.of_source)
        source = self._source.columns(path[1] for path in frozenset().union(*looked_at) if path[0] == alias)
        expected = _schemas(table, feed)[1]
        fields, bare, matched = delta_schema(source.schema), table.without_files(), self._matched

        def insert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            fit, result, first = as_engine(fields), ResultRows(plan.of_task(tasks.number()), bare, feed), 0
            with reported():
                for piece in gathered(map(fit, batches), PIECE_BYTES):
                    rows = piece.filter(pc.invert(_among(one_array(piece.column(ID)), matched)))
                    for batch in rows.drop_columns([ID]).to_batches(max_chunksize=INSERT_ROWS):
                        for new in result.inserted(batch, first):
                            first += new.num_rows
                            marks.add(result.plan.marks(first))
                            yield as_schema(new.columns, expected)

        return tasks.over(source, lambda batches: then(insert(batches)), schema)

    def _buckets(self, table: Snapshot) -> int:
        """The number of buckets: the source's rows of each fit into a worker's memory, and no worker is idle."""
        files = exact_sum(table.files.column("size"))
        at_once = self._spark.sparkContext.defaultParallelism
        return int(max(at_once, -(-self._size // _BUCKET_BYTES), -(-files // _TARGET_BYTES)))

    @staticmethod
    def _collected(frame: Any) -> Iterator[Any]:
        with running():
            rows = frame.collect()
        return (pickle.loads(row.part) for row in rows)  # noqa: S301 - of our own workers


class _HighestNumbers(AccumulatorParam):
    """An accumulator of the last values of identity columns; the same attempt may add its values twice."""

    def __init__(self, rules: RowRules):
        self._rules = rules

    def zero(self, value: dict[str, int]) -> dict[str, int]:  # noqa: ARG002 - the interface
        """The empty value."""
        return {}

    def addInPlace(self, value1: dict[str, int], value2: dict[str, int]) -> dict[str, int]:  # noqa: N802
        """The later values of both."""
        return self._rules.furthest((value1, value2))


# --- on the workers ----------------------------------------------------------------------------------------------


def _found(bucket: Bucket) -> Iterator[pa.RecordBatch]:
    """The first pass over a bucket."""
    found = MergeMatches()
    for piece in gathered(bucket.target, bucket.matcher.piece_bytes):
        # The shuffle has mixed the rows of files.
        rows = piece.sort_by([(FILE, "ascending"), (ROW, "ascending")])
        places = one_array(rows.column(FILE)), one_array(rows.column(ROW))
        bucket.matcher.find(found, rows.drop_columns([FILE, ROW]), *places)
    matched = to_bitmap(bucket.ids.take(found.matched).cast(pa.int64()))
    found.matched = pa.array([], pa.int64())
    yield pa.record_batch({"part": pa.array([pickle.dumps((found, matched.serialize()))], pa.binary())})


def _among(ids: pa.Array, numbers: BitMap64) -> pa.BooleanArray:
    """True for each of the ids that is in the set."""
    return pc.is_in(ids, value_set=to_positions(to_bitmap(ids) & numbers).cast(pa.int64()))


def _matching(source: Any, numbers: BitMap64) -> Any:
    """The rows of the source with these ids."""
    schema = source.schema

    def keep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.filter(_among(batch.column(ID), numbers))

    return tasks.over(source, keep, schema)


def _matches(plan: MergePlan, source: Any, piece: pa.Table) -> BitMap64:
    """The numbers of those rows in a piece of the table that match a row of the source."""
    fields = delta_schema(source.schema)

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fit = as_engine(fields)
        with reported():
            found = BitMap64()
            for rows in gathered(map(fit, batches), PIECE_BYTES):
                found |= to_bitmap(Matcher(plan, rows).pairs(piece).target)
            yield pa.record_batch({"rows": [found.serialize()]})

    with running():
        parts = tasks.over(source, look, "rows binary").collect()
    return BitMap64().union(*(BitMap64.deserialize(bytes(part[0])) for part in parts))


def _rows_of(spark: Any, table: Snapshot, shared: Sequence[FileShare]) -> Any:
    """Rows of the table with all columns and their index in the batch, read by the engine, which reads single rows by
    their positions.
    """
    schema = spark_schema(table.schema).add(ROW, "long")
    expected, bare = arrow_schema(schema), table.without_files()

    def read(share: FileShare) -> Iterator[pa.RecordBatch]:
        for batch in share.to_batches(bare):
            yield as_schema([*batch.columns, pa.arange(0, batch.num_rows)], expected)

    return tasks.frame(spark, read, list(shared), schema)


def _copy(txn: Transaction, table: Snapshot, found: MergeMatches) -> list[Add]:
    """Copy the rows that stay of the changed files to new files."""
    numbers = sorted(found.acting)
    files = chosen(table.files, numbers)
    bare = dataclasses.replace(plan_scan(table, []), files=files)
    staying = []
    for own in stand(bare, [found.acting[number] for number in numbers]):
        rows = BitMap64()
        rows.add_range(0, own.physical_rows)
        staying.append(rows - own.deleted - own.rows)
    some = [place for place, rows in enumerate(staying) if rows]
    work = shares(txn, chosen(files, some), [staying[place] for place in some])
    return write_anew(txn, table, work, _unchanged)


def _unchanged(table: Snapshot, share: FileShare) -> Iterator[pa.RecordBatch]:
    return share.to_batches(table)


# --- helpers ------------------------------------------------------------------------------------------------


def _schemas(table: Snapshot, feed: bool) -> tuple[Any, pa.Schema]:
    """Spark's schema of the table, and its Arrow schema; with ``feed`` with a further column for the change type."""
    schema = spark_schema(table.schema)
    if feed:
        schema = schema.add(CHANGE.name, "string")
    return schema, arrow_schema(schema)


_SIZE = "size\n"
_LOST = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"


class KeptFrame:
    """The rows of a DataFrame, computed once and kept on the workers' disks, each with an id.

    A MERGE reads them several times, and must see the same rows each time.
    """

    def __init__(self, frame: Any):
        from pyspark.sql import functions as f
        from pyspark.storagelevel import StorageLevel

        numbered = frame.select("*", f.monotonically_increasing_id().alias(ID))
        with running():
            # Computed at once: if a worker is lost before a result depends on its rows, they are computed again.
            self.frame = numbered.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)
        ended = weakref.finalize(self, _release, self.frame)
        ended.atexit = False

    def columns(self, names: Iterable[str]) -> Any:
        """Some of the columns, and the ids."""
        wanted = set(names)
        columns = [name for name in self.frame.columns if name in wanted]
        return self.frame.select(*map(quoted, columns), quoted(ID))


def _release(frame: Any) -> None:
    with suppress(Exception):  # the session may have ended
        frame._jdf.queryExecution().logical().rdd().unpersist(False)  # noqa: SLF001


@contextmanager
def running() -> Iterator[None]:
    """Around Spark's actions: raise the ``DeltaError`` of a worker, and name lost rows of the source."""
    try:
        with raise_again():
            yield
    except Exception as error:
        if _LOST not in str(error):
            raise
        raise SparkUnavailableError(
            "a worker that held rows of the source of the MERGE is lost; nothing is committed, run the MERGE again"
        ) from None


class FrameSource:
    """A DataFrame as the source of a MERGE.

    Args:
        spark: the session.
        frame: the DataFrame. It is computed once.
        broadcast_bytes: the maximum size in bytes, in Arrow's memory, up to which it is collected.

    Attributes:
        schema: the Arrow schema of its rows, with all fields nullable.

    Raises:
        InvalidArgumentError: it is a stream.
        UnsupportedTypeError: it has a type that Delta does not have.
    """

    def __init__(self, spark: Any, frame: Any, broadcast_bytes: int):
        if frame.isStreaming:
            raise InvalidArgumentError(
                "the source is a stream; writeStream.foreachBatch merges its batches, each once where the MERGE "
                "has app_id=... and app_version=batch_id"
            )
        self.schema = declared_schema(frame.schema)
        self._spark, self._frame, self._broadcast_bytes = spark, frame, broadcast_bytes

    def version_of(self, table: Snapshot) -> int | None:
        """The oldest version of a table from which the rows are made; None if they are not made from it. Rows of an
        unknown source count as made from ``table``.
        """
        return origins.version_of(self._frame, table, remembered=False)

    def versions_elsewhere(self) -> Callable[[str], int | None] | None:
        """As :meth:`refdelta.spark.job.FrameRows.versions_elsewhere`."""
        return origins.versions_read(self._frame)

    def strategy(self, plan: MergePlan) -> MergeStrategy:
        """The strategy by which its rows are matched with those of the table.

        Raises ``InvalidArgumentError`` for a large source where ON has no equality.
        """
        kept = KeptFrame(self._frame)
        keys, size = _measured(kept, plan)
        if size <= self._broadcast_bytes:
            with running():
                rows = kept.frame.drop(ID).toArrow()
            return Collected.of(plan, rows.to_reader())
        if not plan.on.keys:
            raise InvalidArgumentError(
                f"ON has no equality between the two sides ({plan.target_alias}.x = {plan.source_alias}.y): each row "
                "of the source is compared with each row of the table, so every worker needs the source in memory, "
                f"but its {size:,} bytes are more than the executor's broadcast_bytes, {self._broadcast_bytes:,}"
            )
        return ShuffledSource(self._spark, kept, plan, keys, size)


def _bytes(frame: Any) -> Any:
    """The size of each row of a DataFrame in Arrow's memory in bytes, for nested columns that of their text."""
    from pyspark.sql import functions as f

    fixed, sizes = 0, []
    for item in arrow_schema(frame.schema):
        column = f.col(quoted(item.name))
        if pa.types.is_string(item.type) or pa.types.is_binary(item.type):
            sizes.append(f.octet_length(column))
        elif pa.types.is_nested(item.type):
            sizes.append(f.octet_length(column.cast("string")))
        elif not pa.types.is_null(item.type):
            fixed += -(-item.type.bit_width // 8)
    known = (f.coalesce(size, f.lit(0)).cast("long") for size in sizes)
    return functools.reduce(lambda one, other: one + other, known, f.lit(fixed + 4 * len(sizes)).cast("long"))


def _measured(kept: KeptFrame, plan: MergePlan) -> tuple[KeyValues, int]:
    """The keys of the source, and the size of its rows in bytes. Only the keys pass through Python."""
    names = [path[1] for path in plan.on.columns if path[0] == plan.source_alias]
    own = kept.columns(names).schema  # with the ids, since rows without columns could not be counted
    fields = delta_schema(own)
    sized = kept.frame.select(*map(quoted, own.names), _bytes(kept.frame.drop(ID)).alias(_SIZE))

    def measure(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fit, size = as_engine(fields), 0

        def keys(batch: pa.RecordBatch) -> pa.RecordBatch:
            nonlocal size
            size += pc.sum(batch.column(_SIZE)).as_py() or 0
            return fit(batch.drop_columns([_SIZE]))

        with reported():
            found = KeyValues.of(plan.on, plan.source_alias, empty_table(to_arrow(fields)))
            for piece in gathered(map(keys, batches), PIECE_BYTES):
                found = found.and_of(KeyValues.of(plan.on, plan.source_alias, piece))
        yield pa.record_batch({"size": [size], "keys": [pickle.dumps(found)]})

    with running():
        parts = tasks.over(sized, measure, "size long, keys binary").collect()
    keys = KeyValues.of(plan.on, plan.source_alias, empty_table(to_arrow(fields)))
    for part in parts:
        keys = keys.and_of(pickle.loads(part.keys))  # noqa: S301 - of our own workers
    return keys, sum(part.size for part in parts)
