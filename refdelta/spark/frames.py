"""A read of a table as a Spark DataFrame: planned by the engine, scanned by Spark.

Spark's own reader of Parquet is several times as fast as rows that pass through Python, and takes pushed-down columns
and filters. Delta's own information comes by joins: partition values and the number of a file by its path, bitmaps of
deleted rows by the number of the file and the position in it. Where Spark's reader cannot be used (a store that it has
no file system for, columns found by field id) workers read by the engine's reader.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.api.handle import handle_of
from refdelta.api.table import DeltaTable
from refdelta.arrow.arrays import concat, few_chunks
from refdelta.engine.parquet.dv import load_deletion_vectors, to_positions
from refdelta.engine.parquet.files import missing_file
from refdelta.engine.scan.filters import BoundFilter
from refdelta.engine.scan.reader import ScanFile, read_file
from refdelta.engine.scan.scan import check_whole, plan_scan, scan_files
from refdelta.engine.work.executor import at_most
from refdelta.errors import InvalidArgumentError, StoreError
from refdelta.expressions.sql_text import quoted
from refdelta.spark import origins, tasks
from refdelta.spark.columns import condition, means_the_same
from refdelta.spark.failures import check_session
from refdelta.spark.job import shared_store
from refdelta.spark.types import has_void, physical, spark_schema
from refdelta.table.char_varchar import padding_of
from refdelta.table.row_tracking import kind_of
from refdelta.table.types import FRACTIONAL, LONG, STRING, DataType, StructField, StructType

if TYPE_CHECKING:
    import os

    from refdelta.core.log.actions import DeletionVectorDescriptor
    from refdelta.engine.scan.scan import Scan
    from refdelta_storage import Store


# The number of deleted rows up to which they are broadcast, 8 bytes each; more are joined by a shuffle.
_BROADCAST_ROWS = 5_000_000
# The number of deleted rows that one task reads.
_TASK_ROWS = 1_000_000
# The key of a row has the number of its file, and in the low bits its position: 40 bits are 10**12 rows.
_PLACE_BITS = 40
# The key has the size of a file modulo this number instead, if these are distinct.
_SIZES = 2**23
# Deleted rows are broadcast as bitmaps, one for each block of rows that has any, in words of 64 rows: with so many
# blocks 32 MiB. If they are in more blocks, the keys of rows are joined.
_BLOCK_BITS = 12
_BLOCK_WORDS = 2**_BLOCK_BITS // 64
_BLOCKS = 2**16
# The bytes of files without deleted rows up to which these are read together with the other files of the table: the
# look-up of a bitmap for each row costs less than a second DataFrame.
_TOGETHER_BYTES = 256 * 2**20
# The bytes of data files that one task of the engine's own reader reads.
_TASK_BYTES = 128 * 2**20

# Options that override the settings of the session: no file is skipped, and no date is rebased.
_STRICTLY = {
    "recursiveFileLookup": "true",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}

# Names that no column of a table has: these may not contain line breaks.
_FILE, _PATH, _PLANNED, _ROW, _KEY = "file\n", "path\n", "planned\n", "row\n", "key\n"
_MARK, _PLACE, _WORDS = "mark\n", "place\n", "words\n"

METADATA = "_metadata"
"""The column with the file of a row, as Spark calls it."""

_ASCII = 0x7F


def read(
    spark: Any,
    uri: str | os.PathLike[str] | DeltaTable,
    *,
    version: Any = None,
    columns: Sequence[str] | None = None,
    filter: str | None = None,  # noqa: A002 - the name that users of readers know
    storage_options: Mapping[str, str] | None = None,
    outside: Sequence[str | os.PathLike[str]] = (),
    metadata: bool = False,
) -> Any:
    """A version of a table as a DataFrame.

    ``filter`` prunes files at once, with the statistics of the table; a ``where`` on the DataFrame prunes row groups
    only, by columns without floats. The version is determined at once, too: every action on the DataFrame sees the
    same rows. Without a filter, its ``count`` follows from the log and starts no job, unless it is cached. Errors of
    workers leave Spark's actions as Spark's exceptions; within ``refdelta.spark.typed_errors()`` they are raised as
    ``DeltaError``.

    Args:
        spark: the session.
        uri: the path or URI of the table; or a ``DeltaTable``, such as one of a catalog.
        version: the number of a version, or a time; None for the newest, or for that of a ``DeltaTable``.
        columns: the columns of the DataFrame, in this order; None for all.
        filter: a predicate in Spark's dialect, evaluated by the engine, in UTC.
        storage_options: options of the store.
        outside: as for :class:`refdelta.DeltaTable`.
        metadata: whether the DataFrame has a further column ``_metadata``, a struct of the file of each row with the
            fields ``file_path``, ``file_name``, ``file_size`` in bytes, ``file_modification_time``, and ``row_index``,
            the position of the row in the file. delta-spark hides this column until it is selected by name.

    Returns:
        The DataFrame.

    Raises:
        TableNotFoundError: there is no table.
        VersionNotFoundError: there is no such version.
        ColumnNotFoundError: there is no such column.
        PredicateError: the filter cannot be parsed or bound.
        UnsupportedFeatureError: the table needs a feature that this engine lacks.
        DataFileNotFoundError: a file that the log names does not exist.
        InvalidArgumentError: arguments that exclude each other, or ``metadata`` of a table with a column ``_metadata``.

    Example::

        late = refdelta.spark.read(spark, "flights", columns=["carrier"], filter="delay > 60")
        late.groupBy("carrier").count().show()
    """
    check_session(spark)
    if filter is not None and not isinstance(filter, str):
        raise InvalidArgumentError(f"filter must be SQL text, not {type(filter).__name__}")
    if not isinstance(uri, DeltaTable):
        table = DeltaTable(uri, version=version, storage_options=storage_options, outside=outside)
    elif storage_options or outside:
        raise InvalidArgumentError("storage_options and outside go with a path; a DeltaTable has its store already")
    else:
        shared_store(uri, None)  # raises for a table in memory
        table = uri if version is None else DeltaTable.in_store(uri.store, version)
    scan = plan_scan(handle_of(table).snapshot, columns, filter)
    check_whole(scan, "Spark")
    frame = _with_metadata(spark, scan) if metadata else scan_frame(spark, scan)
    frame = origins.marked(frame, table)
    if scan.plan.row_filter is not None:
        return frame
    from refdelta.spark.counted import counted  # imports pyspark

    return counted(frame, scan)


def _with_metadata(spark: Any, scan: Scan) -> Any:
    """The rows of a scan with the column ``_metadata``.

    Spark has such a column for its own files, but no projection or join keeps it, and the engine's reader has none.
    """
    names = [item.name for item in scan.plan.columns]
    if any(name.lower() == METADATA for name in names):
        raise InvalidArgumentError(f"the table has a column {METADATA} of its own: read it without metadata=True")
    f = _functions()
    located = scan_frame(spark, scan, file_column=_FILE, row_column=_ROW)
    described = located.join(f.broadcast(_descriptions(spark, scan)), _FILE)
    column = f.col(quoted(_PLACE)).withField("row_index", f.col(quoted(_ROW)))
    return described.select(*map(quoted, names), column.alias(METADATA))


def _descriptions(spark: Any, scan: Scan) -> Any:
    """A DataFrame with the number of each file of a scan and its description."""
    paths, sizes, times = (scan.files.column(name).to_pylist() for name in ("path", "size", "modificationTime"))
    found = []
    for file, path in zip(scan_files(scan), paths, strict=True):
        local = scan.store.local_path(file.key)
        if local is not None:
            found.append("file:" + _encoded(local))
        else:
            found.append(path if ":" in path.split("/")[0] else f"{scan.store.uri.rstrip('/')}/{path}")
    fields = {
        "file_path": pa.array(found, pa.string()),
        "file_name": pa.array([path.rpartition("/")[2] for path in found], pa.string()),
        "file_size": pa.array(sizes, pa.int64()),
        "file_modification_time": pa.array(times, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
    }
    described = pa.StructArray.from_arrays(list(fields.values()), list(fields))
    return of_arrow(spark, pa.table({_FILE: pa.array(range(len(found)), pa.int64()), _PLACE: described}))


def _encoded(path: str) -> str:
    """The path of a local file as Java writes it in a URI: letters of other scripts stay."""
    return "".join(char if ord(char) > _ASCII else quote(char, safe="/-_.!~'()*,;:$&+=@") for char in path)


def scan_frame(spark: Any, scan: Scan, *, file_column: str | None = None, row_column: str | None = None) -> Any:
    """A planned read as a DataFrame.

    Args:
        spark: the session.
        scan: the read.
        file_column: the name of a further column with the number of the row's file in the scan, a long.
        row_column: the name of a further column with the position of the row in its file, a long; deleted rows count.

    Returns:
        The DataFrame: the scan's columns, then the further ones. An error of a worker leaves Spark's actions on it as
        Spark's exception; within :func:`~refdelta.spark.failures.raise_again` it is raised as ``DeltaError``.

    Raises:
        DataFileNotFoundError: a file that the log names does not exist.
    """
    located = {name: column for name, column in ((file_column, _FILE), (row_column, _ROW)) if name is not None}
    files = scan_files(scan)
    # Hadoop parses the part of a file name before a colon as the scheme of a URI.
    natively = _is_native(spark, scan) and not any(":" in file.key.rpartition("/")[2] for file in files)
    frame = _native(spark, scan, files, located=bool(located)) if natively else None
    if frame is None:
        frame = _by_engine(spark, scan, files)
    elif isinstance(scan.plan.row_filter, BoundFilter):
        frame = frame.where(condition(spark, scan.plan.row_filter.predicate))
    wanted = [item.name for item in scan.plan.columns]
    if not located and frame.columns == wanted:  # each named column is a call into Java
        return frame
    further = (_functions().col(quoted(inner)).alias(name) for name, inner in located.items())
    return frame.select(*map(quoted, wanted), *further)


def _is_native(spark: Any, scan: Scan) -> bool:
    """True if Spark's own reader finds the files and the columns, and evaluates the filter as the engine does."""
    plan = scan.plan
    if plan.by_id or not scan.files.num_rows or scan.store.local_path("x") is None:
        return False
    if (
        any(has_void(item.type) or padding_of(item) or kind_of(item) for item in plan.read)
        or spark.conf.get("spark.sql.caseSensitive") == "true"
    ):
        return False
    if plan.row_filter is None:
        return True
    return isinstance(plan.row_filter, BoundFilter) and means_the_same(spark, plan.row_filter.predicate)


# --- Spark's own reader ------------------------------------------------------------------------------------------


def _native(spark: Any, scan: Scan, files: Sequence[ScanFile], *, located: bool) -> Any | None:
    """The rows by Spark's own reader, unfiltered; None if it does not find the planned files."""
    hidden = [number for number, file in enumerate(files) if file.deletion_vector is not None]
    if located or not hidden or len(hidden) == len(files):
        return _parquet(spark, scan, files, range(len(files)), located=located)
    plain = sorted(set(range(len(files))) - set(hidden))
    small = sum(files[number].size for number in plain) <= _TOGETHER_BYTES
    if small and not _partitions(scan) and _size_marks(scan, files, range(len(files))) is not None:
        return _parquet(spark, scan, files, range(len(files)), located=False)
    whole = _parquet(spark, scan, files, plain, located=False)
    rest = _parquet(spark, scan, files, hidden, located=False)
    return None if whole is None or rest is None else whole.union(rest)


def _parquet(spark: Any, scan: Scan, files: Sequence[ScanFile], numbers: Sequence[int], *, located: bool) -> Any | None:
    """Some files of a scan, by their numbers, without the rows that their deletion vectors delete: the columns that the
    scan reads, in their order, and with ``located`` the number of the file and the position of the row in it.
    """
    f = _functions()
    frame = _opened(spark, scan, files, numbers)
    found = _found(frame, scan, files, numbers)
    if found is None:
        return None
    place = frame.metadataColumn("_metadata")
    gone = {number: vector for number in numbers if (vector := files[number].deletion_vector) is not None}
    partitions = _partitions(scan)
    if not located and not partitions:
        if not gone:
            return _named(frame, _stored(scan))
        if (marks := _size_marks(scan, files, numbers)) is not None:
            mark = place["file_size"].bitwiseAND(f.lit(_SIZES - 1))
            frame = frame.select("*", mark.alias(_MARK), place["row_index"].alias(_PLACE))
            hidden = [(marks[number], vector) for number, vector in gone.items()]
            return _named(_without_deleted(spark, scan.store, frame, hidden), _stored(scan))
    located_rows = frame.select("*", place["file_path"].alias(_PATH), place["row_index"].alias(_ROW))
    frame = _named(located_rows, _stored(scan), _PATH, _ROW)
    path, planned = f.col(quoted(_PATH)), f.col(quoted(_PLANNED))
    places = f.broadcast(_places(spark, files, found, partitions))
    # A join by integers is several times as fast as one by strings; the strings are compared below.
    frame = frame.join(places, f.xxhash64(path) == f.xxhash64(planned), "left")
    # A row with an unknown path would lose its partition values, and deleted rows would return: raise an error instead.
    unknown = f.raise_error(f.lit("refdelta: a file of this scan has another path than was planned"))
    known = {
        name: f.when(planned == path, f.col(quoted(name))).otherwise(unknown).alias(name)
        for name in (_FILE, *(item.name for item in partitions))
    }
    columns = [known.get(item.name, quoted(item.name)) for item in scan.plan.read]
    if located:
        columns += [known[_FILE], quoted(_ROW)]
    if not gone:
        return frame.select(*columns)
    frame = frame.select(*columns, known[_FILE].alias(_MARK), f.col(quoted(_ROW)).alias(_PLACE))
    return _without_deleted(spark, scan.store, frame, list(gone.items()))


def _without_deleted(spark: Any, store: Store, frame: Any, gone: Sequence[tuple[int, DeletionVectorDescriptor]]) -> Any:
    """The rows of a DataFrame that no deletion vector deletes.

    Args:
        spark: the session.
        store: the table's folder.
        frame: the rows, with the columns :data:`_MARK`, the number of the row's file, and :data:`_PLACE`, its position
            there. Both are dropped.
        gone: the numbers of the files that have vectors, each with the vector.
    """
    f = _functions()
    mark, place = f.col(quoted(_MARK)), f.col(quoted(_PLACE))
    if (blocks := _blocks(store, gone)) is None:
        keyed = frame.select("*", _key(mark, place).alias(_KEY))
        return keyed.join(_hidden_rows(spark, store, gone), _KEY, "left_anti").drop(_KEY, _MARK, _PLACE)
    keyed = frame.select("*", _key(mark, f.shiftright(place, _BLOCK_BITS)).alias(_KEY))
    frame = keyed.join(f.broadcast(of_arrow(spark, blocks)), _KEY, "left")
    word = f.get(f.col(quoted(_WORDS)), f.shiftright(place, 6).bitwiseAND(f.lit(_BLOCK_WORDS - 1)).cast("int"))
    deleted = f.getbit(word, place.bitwiseAND(f.lit(63)).cast("int"))
    # A block without deleted rows has no bitmap.
    return frame.where(f.coalesce(deleted, f.lit(0)) == 0).drop(_KEY, _MARK, _PLACE, _WORDS)


def _blocks(store: Store, gone: Sequence[tuple[int, DeletionVectorDescriptor]]) -> pa.Table | None:
    """The deleted rows as bitmaps of blocks of rows: the key of each block that has deleted rows, and its words of 64
    rows. None if there are too many rows to load them here, or if they are so scattered that bitmaps would be large.

    A bitmap is found with one look-up in a small table, while a table of all deleted rows is larger than the caches of
    a processor.
    """
    if sum(vector.cardinality for _, vector in gone) > _TASK_ROWS:
        return None
    vectors = load_deletion_vectors(store, [vector for _, vector in gone])
    places = [to_positions(rows).to_numpy().view(np.int64) for rows in vectors]
    marks = np.repeat(np.array([number for number, _ in gone], np.int64), [len(own) for own in places])
    rows = np.concatenate(places)
    keys = (marks << _PLACE_BITS) + (rows >> _BLOCK_BITS)
    new = np.diff(keys, prepend=-1) != 0
    count = int(np.count_nonzero(new))
    if count > _BLOCKS:
        return None
    words = np.zeros(count * _BLOCK_WORDS, np.uint64)
    word = (np.cumsum(new) - 1) * _BLOCK_WORDS + (rows >> 6 & (_BLOCK_WORDS - 1))
    first = np.flatnonzero(np.diff(word, prepend=-1))
    words[word[first]] = np.bitwise_or.reduceat(np.left_shift(np.uint64(1), (rows & 63).astype(np.uint64)), first)
    bitmaps = pa.FixedSizeListArray.from_arrays(pa.array(words.view(np.int64)), _BLOCK_WORDS)
    return pa.table({_KEY: pa.array(keys[new]), _WORDS: bitmaps.cast(pa.list_(pa.int64()))})


def _key(file: Any, row: Any) -> Any:
    """The number of the file and the position of a row, or of a block, as one number."""
    return _functions().shiftleft(file, _PLACE_BITS) + row


def _size_marks(scan: Scan, files: Sequence[ScanFile], numbers: Iterable[int]) -> dict[int, int] | None:
    """Of these files, the sizes modulo :data:`_SIZES` of those that have deletion vectors; None if another one of the
    files has the same, or if a file has another size than the log says.

    Spark has the size of a row's file as a number, and its path as a string: a join by strings costs several times as
    much.
    """
    marks, others = {}, set()
    for number in numbers:
        path, size = _local(scan.store, files[number].key), files[number].size
        if Path(path).stat().st_size != size:
            return None
        if files[number].deletion_vector is None:
            others.add(size % _SIZES)
        else:
            marks[number] = size % _SIZES
    distinct = set(marks.values())
    return marks if len(distinct) == len(marks) and distinct.isdisjoint(others) else None


def _partitions(scan: Scan) -> list[StructField]:
    return [item for item in scan.plan.read if item.name in scan.plan.partition_columns]


def _stored(scan: Scan) -> list[StructField]:
    return [item for item in scan.plan.read if item.name not in scan.plan.partition_columns]


def _named(frame: Any, items: Sequence[StructField], *others: str) -> Any:
    """Columns of files under the names of the table, at all depths; by floats Spark skips no rows of the files."""
    stored, table = spark_schema(map(physical, items)), spark_schema(items)
    if stored == table and not any(_has_floats(item.type) for item in items):
        return frame
    column = _functions().col
    columns = [
        _opaque(column(quoted(own.name)).cast(there.dataType), item.type).alias(there.name)
        for own, there, item in zip(stored, table, items, strict=True)
    ]
    return frame.select(*columns, *(quoted(name) for name in others))


def _has_floats(kind: DataType) -> bool:
    """True for a type by whose floats Spark may skip rows of a file: it does not look into arrays and maps."""
    return any(_has_floats(item.type) for item in kind) if isinstance(kind, StructType) else kind in FRACTIONAL


def _opaque(column: Any, kind: DataType) -> Any:
    """The same values, as expressions by which Spark cannot skip rows of a file.

    It compares constants with the bounds in footers and with dictionaries as if NaN were within the bounds, and as if
    the two zeros differed; most writers leave NaN out of the bounds.
    """
    if kind in FRACTIONAL:
        return column * _functions().lit(1).cast(str(kind))
    if isinstance(kind, StructType):
        for item in kind:
            if _has_floats(item.type):
                column = column.withField(quoted(item.name), _opaque(column.getField(item.name), item.type))
    return column


def _opened(spark: Any, scan: Scan, files: Sequence[ScanFile], numbers: Sequence[int]) -> Any:
    """Files in Spark's reader, independently of the settings of the session."""
    reader = spark.read.schema(spark_schema(map(physical, _stored(scan)))).options(**_STRICTLY)
    try:
        return reader.parquet(*(_pattern(_local(scan.store, files[number].key)) for number in numbers))
    except Exception as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        raise _gone(scan.store, [files[number].key for number in numbers]) from None


def _found(frame: Any, scan: Scan, files: Sequence[ScanFile], numbers: Sequence[int]) -> dict[str, int] | None:
    """The number of each file by the path that Spark gives its rows; None unless Spark finds exactly these files, and
    reads them by the version of its reader that gives paths and positions of rows.
    """
    # A session without parquet in spark.sql.sources.useV1SourceList has another reader, without the column _metadata.
    if origins.kind_of(frame._jdf.queryExecution().analyzed()) != "LogicalRelation":  # noqa: SLF001
        return None
    wanted = {_local(scan.store, files[number].key): number for number in numbers}
    found = {_plain(path): path for path in frame.inputFiles()}
    if found.keys() != wanted.keys() or len(wanted) != len(numbers):
        return None
    return {_in_metadata(path): wanted[plain] for plain, path in found.items()}


def _places(spark: Any, files: Sequence[ScanFile], found: Mapping[str, int], partitions: Sequence[StructField]) -> Any:
    """A DataFrame with path, number and partition values of files."""
    columns: dict[str, Any] = {
        _PLANNED: pa.array(list(found), pa.string()),
        _FILE: pa.array(list(found.values()), pa.int64()),
    }
    for item in partitions:
        values = [files[number].partition_values[item.name] for number in found.values()]
        columns[item.name] = concat([pa.repeat(value, 1) for value in values])
    schema = spark_schema([StructField(_PLANNED, STRING), StructField(_FILE, LONG), *partitions])
    return of_arrow(spark, pa.table(columns), schema)


def _hidden_rows(spark: Any, store: Store, gone: Sequence[tuple[int, DeletionVectorDescriptor]]) -> Any:
    """A DataFrame with the keys of deleted rows; where there are many, workers read the deletion vectors."""

    def keys(group: Sequence[tuple[int, DeletionVectorDescriptor]]) -> Iterator[pa.RecordBatch]:
        vectors = load_deletion_vectors(store, [vector for _, vector in group])
        for (number, _), rows in zip(group, vectors, strict=True):
            places = to_positions(rows).cast(pa.int64())
            yield pa.record_batch({_KEY: pc.add(places, pa.scalar(number << _PLACE_BITS, pa.int64()))})

    schema = spark_schema([StructField(_KEY, LONG)])
    count = sum(vector.cardinality for _, vector in gone)
    if count <= _TASK_ROWS:  # faster than the start of a task
        frame = of_arrow(spark, few_chunks(pa.Table.from_batches(keys(gone))), schema)
    else:
        frame = tasks.frame(spark, keys, list(at_most(gone, lambda one: one[1].cardinality, _TASK_ROWS)), schema)
    return _functions().broadcast(frame) if count <= _BROADCAST_ROWS else frame


def of_arrow(spark: Any, rows: pa.Table, schema: Any = None) -> Any:
    """Rows of the driver as a DataFrame, with this schema or with that of the rows."""
    if int(spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")) > 0:
        return spark.createDataFrame(rows, schema)
    # By this value there is no limit, but PySpark 4.2 passes it on to Arrow as the limit, which refuses it.
    from pyspark.sql.pandas.types import from_arrow_schema

    values = (tuple(row.values()) for row in rows.to_pylist())
    return spark.createDataFrame(list(values), schema or from_arrow_schema(rows.schema))


def _local(store: Store, key: str) -> str:
    path = store.local_path(key)
    assert path is not None  # noqa: S101 - checked before
    return path


def _pattern(path: str) -> str:
    """A path escaped for Spark's reader, which takes patterns."""
    escaped = "".join(f"\\{char}" if char in "\\*?[]{}" else char for char in path)
    return f"file://{escaped}"


def _plain(uri: str) -> str:
    return unquote(uri.removeprefix("file:").removeprefix("//"))


def _in_metadata(uri: str) -> str:
    """The value of ``_metadata.file_path`` for an input file: a local one has one slash there, and three here."""
    return "file:/" + uri.removeprefix("file:///") if uri.startswith("file:///") else uri


def _gone(store: Store, keys: Sequence[str]) -> Exception:
    for key in keys:
        try:
            store.head(key)
        except FileNotFoundError:
            return missing_file(key)
    return StoreError(f"Spark finds none of the files in {store.uri}")


# --- the engine's own reader -------------------------------------------------------------------------------------


def _by_engine(spark: Any, scan: Scan, files: Sequence[ScanFile]) -> Any:
    """The filtered rows, read by workers with the engine's reader, with their files' numbers and positions."""
    store, plan = scan.store, dataclasses.replace(scan.plan, positions=True)

    def rows(group: list[tuple[int, ScanFile]]) -> Iterator[pa.RecordBatch]:
        for number, file in group:
            for batch in read_file(store, file, plan):
                yield _numbered(batch, number)

    groups = list(at_most(enumerate(files), lambda one: one[1].size, _TASK_BYTES))
    located = (StructField(_FILE, LONG), StructField(_ROW, LONG))
    return tasks.frame(spark, rows, groups, spark_schema([*plan.columns, *located]))


def _numbered(batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    *columns, row = batch.columns
    file = pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows)
    names = [*batch.schema.names[:-1], _FILE, _ROW]
    return pa.RecordBatch.from_arrays([*columns, file, row.cast(pa.int64())], names=names)


def _functions() -> Any:
    from pyspark.sql import functions

    return functions
