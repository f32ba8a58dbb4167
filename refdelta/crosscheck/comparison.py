"""Comparison of a table as refdelta reads it with the same table as delta-spark reads it."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from refdelta.api.handle import handle_of
from refdelta.api.table import DeltaTable
from refdelta.core.log.paths import data_key
from refdelta.crosscheck import oracle
from refdelta.crosscheck.local_copy import COPY_LIMIT, copied
from refdelta.crosscheck.published import Published, by_path, coordinate
from refdelta.crosscheck.row_comparison import compare_rows
from refdelta.errors import DeltaError, InvalidArgumentError
from refdelta.wording import counted

VERSIONS: Final = 10
"""The default number of versions whose rows are counted and whose history is compared."""

_DETAIL: Final = {
    "format": "format",
    "id": "id",
    "name": "name",
    "description": "description",
    "createdAt": "created_at",
    "lastModified": "last_modified",
    "partitionColumns": "partition_columns",
    "clusteringColumns": "clustering_columns",
    "numFiles": "num_files",
    "sizeInBytes": "size_in_bytes",
    "properties": "properties",
    "minReaderVersion": "min_reader_version",
    "minWriterVersion": "min_writer_version",
    "tableFeatures": "table_features",
}
"""The columns of DESCRIBE DETAIL that do not depend on the engine, with their names in refdelta."""

_HISTORY: Final = (
    "timestamp", "operation", "operationParameters", "readVersion", "isolationLevel", "isBlindAppend",
    "operationMetrics", "userMetadata", "engineInfo",
)  # fmt: skip


@dataclass(frozen=True)
class ComparisonResult:
    """One comparison.

    Attributes:
        what: the subject of the comparison.
        found: the result of both engines, or of each, in a few words.
        problem: the difference, or None if there is none.
    """

    what: str
    found: str = ""
    problem: str | None = None


@dataclass(frozen=True)
class ComparedTable:
    """A table, and its location for delta-spark.

    Args:
        spark: a session of :func:`refdelta.crosscheck.oracle.session`.
        table: the table at the version to compare.
        place: its folder or URI for delta-spark.
    """

    spark: Any
    table: DeltaTable
    place: str

    @cached_property
    def frame(self) -> Any:
        """delta-spark's rows at that version."""
        return oracle.frame(self.spark, self.place, self.table.version())

    @cached_property
    def root(self) -> str:
        """The common prefix of the paths of its files in delta-spark."""
        return _path(self.place).rstrip("/") + "/"


def place_of(table: DeltaTable, spark_path: str | None = None) -> str | None:
    """The location of a table for delta-spark.

    Args:
        table: the table.
        spark_path: the path that the user gives, or None.

    Returns:
        The location; None without ``spark_path`` if only this engine can read the table, or its store.
    """
    if spark_path is not None:
        return spark_path if "://" in spark_path else str(Path(spark_path).absolute())
    if _is_managed(table):
        return None
    log = table.store.local_path("_delta_log")
    return None if log is None else str(Path(log).parent)


@contextmanager
def reachable(
    table: DeltaTable,
    spark_path: str | None = None,
    *,
    versions: int = VERSIONS,
    limit: int = COPY_LIMIT,
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[str]:
    """The location of a table for delta-spark, for the duration of the block: a copy if only this engine can read it.

    Args:
        table: the table.
        spark_path: the path that the user gives, or None.
        versions: the number of versions whose rows will be counted.
        limit: the maximum of bytes to copy.
        progress: called with a message on the size of the copy.

    Raises:
        InvalidArgumentError: the size exceeds the limit, or a catalog-managed table has a ``spark_path``.
    """
    if spark_path is not None and _is_managed(table):
        raise InvalidArgumentError(
            f"delta-spark cannot open {table.table_uri}, which a catalog manages: without a path, a copy is compared"
        )
    place = place_of(table, spark_path)
    if place is not None:
        yield place
        return
    with copied(table, _numbers(table, versions), limit=limit, progress=progress) as folder:
        yield folder


def _numbers(table: DeltaTable, versions: int) -> range:
    """The numbers of the last versions up to that of the handle, newest first."""
    return range(table.version(), max(-1, table.version() - versions), -1)


def compare_table(
    spark: Any,
    table: DeltaTable,
    *,
    place: str | None = None,
    versions: int = VERSIONS,
    predicates: Sequence[str] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[ComparisonResult]:
    """Compare a table as refdelta and delta-spark read it, at the version of the handle.

    Compared are the schema, the rows, the number of rows at the newest versions, the history, DESCRIBE DETAIL (if the
    version is the newest), and for filters the number of matching rows and the files that are read. A difference in the
    files is reported, and is not a problem if the rows are the same.

    Args:
        spark: a session of :func:`refdelta.crosscheck.oracle.session`.
        table: the table.
        place: the location for delta-spark, if it differs; see :func:`reachable`.
        versions: the number of versions whose rows are counted and whose history is compared; 0 for none.
        predicates: the filters; None for filters from the statistics and partition values of the table.
        progress: called with the subject of the next comparison.

    Returns:
        An iterator over the results. An operation that one of the engines cannot do is a problem of its comparison.

    Raises:
        InvalidArgumentError: ``place`` is None, and the table is not in a local folder, or a catalog manages it.
    """
    place = place_of(table, place)
    if place is None:
        raise InvalidArgumentError(f"delta-spark cannot open {table.table_uri}: reachable() makes a copy")
    newest = DeltaTable.in_store(table.store).version() if table.pinned else table.version()
    both = ComparedTable(spark, table, place)
    numbers = _numbers(table, versions)
    with _opened_by_path(spark, table):
        progress("schema")
        schema = _checked("schema", lambda: _schema(both))
        yield schema
        progress("rows")
        yield (
            ComparisonResult("rows", problem="not compared: the schemas differ")
            if schema.problem
            else _checked("rows", lambda: _rows(both))
        )
        for version in numbers:
            progress(f"count at version {version}")
            yield _count(both, version)
        if numbers:
            progress("history")
            yield _checked("history", lambda: _history(both, numbers))
        if table.version() == newest:
            progress("detail")
            yield _checked("detail", lambda: _detail(both))
        for predicate in [None, *(probes(table) if predicates is None else predicates)]:
            what = "files" if predicate is None else f"where {predicate}"
            progress(what)
            yield _checked(what, lambda predicate=predicate: _skipping(both, predicate))  # type: ignore[misc]


def _is_managed(table: DeltaTable) -> bool:
    return handle_of(table).snapshot.is_managed


def _opened_by_path(spark: Any, table: DeltaTable) -> AbstractContextManager[None]:
    """delta-spark opens copies of catalog-managed tables within the block."""
    if not _is_managed(table):
        return nullcontext()
    coordinate(spark, Published(spark))
    return by_path(spark)


def _checked(what: str, look: Callable[[], tuple[str, str | None]]) -> ComparisonResult:
    """Run one comparison. An error of one of the engines is its problem."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return ComparisonResult(what, *look())
    except DeltaError as error:
        return ComparisonResult(what, problem=f"refdelta: {_line(error)}")
    except (PySparkException, Py4JError) as error:
        return ComparisonResult(what, problem=f"delta-spark: {_line(error)}")


def _line(error: Exception) -> str:
    """The first line with information; errors of Java begin with a line without it."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith("An error occurred while calling")]
    return (said or [type(error).__name__])[0]


def _schema(both: ComparedTable) -> tuple[str, str | None]:
    ours, theirs = json.loads(both.table.schema().to_json()), json.loads(both.frame.schema.json())
    mine, other = ([_field(field) for field in schema["fields"]] for schema in (ours, theirs))
    found = counted(len(mine), "column")
    return found, None if mine == other else _first_difference(mine, other)


def _field(field: dict[str, Any]) -> dict[str, Any]:
    """A column without its metadata, of which Spark shows only a part."""
    return {"name": field["name"], "type": _kind(field["type"]), "nullable": field["nullable"]}


def _kind(kind: Any) -> Any:
    if not isinstance(kind, dict):
        return kind
    if kind.get("type") == "struct":
        return {"type": "struct", "fields": [_field(field) for field in kind["fields"]]}
    return {name: _kind(value) for name, value in kind.items()}


def _first_difference(ours: Sequence[Any], theirs: Sequence[Any]) -> str:
    for mine, other in zip(ours, theirs, strict=False):
        if mine != other:
            return f"{mine} in refdelta, {other} in delta-spark"
    return f"{len(ours)} in refdelta, {len(theirs)} in delta-spark"


def _rows(both: ComparedTable) -> tuple[str, str | None]:
    with tempfile.TemporaryDirectory(prefix="refdelta-crosscheck-") as scratch:
        try:
            found = compare_rows(both.spark, both.table.to_record_batch_reader(), both.frame, Path(scratch))
        except DeltaError:
            theirs = _checked("rows", lambda: (_read(both.frame), None))
            if theirs.problem:
                return "readable in neither", None
            raise
    if found.alike:
        return f"{counted(found.refdelta, 'row')}, each in both", None
    counts = f"{found.only_refdelta:,} only in refdelta, {found.only_delta_spark:,} only in delta-spark"
    return f"{counted(found.refdelta, 'row')} in refdelta", f"{counts}; {'; '.join(found.examples)}"


def _read(frame: Any) -> str:
    """Read every row and keep none."""
    frame.write.format("noop").mode("overwrite").save()
    return "read"


def _count(both: ComparedTable, version: int) -> ComparisonResult:
    """The number of rows of one version; a version that neither engine can read is equal, too."""
    what = f"count at version {version}"
    mine = _checked(what, lambda: (str(DeltaTable.in_store(both.table.store, version).count()), None))
    other = _checked(what, lambda: (str(oracle.frame(both.spark, both.place, version).count()), None))
    if mine.problem and other.problem:
        return ComparisonResult(what, "readable in neither")
    if mine.problem or other.problem:
        return ComparisonResult(what, mine.found or other.found, mine.problem or other.problem)
    counts = counted(int(mine.found), "row")
    differ = f"{counts} in refdelta, {int(other.found):,} in delta-spark"
    return ComparisonResult(what, counts, None if mine.found == other.found else differ)


def _history(both: ComparedTable, numbers: range) -> tuple[str, str | None]:
    # The whole history of both: with a limit the times of files are adjusted from there on, not from the first version.
    ours, theirs = (
        {entry["version"]: _commit(entry) for entry in entries if entry["version"] in numbers}
        for entries in (both.table.history(), oracle.history(both.spark, both.place))
    )
    found = counted(len(ours), "commit")
    if ours.keys() != theirs.keys():
        return found, f"versions {sorted(ours)} in refdelta, {sorted(theirs)} in delta-spark"
    return found, next(
        (
            f"version {version}: {difference}"
            for version in sorted(ours)
            if (difference := _difference(ours[version], theirs[version]))
        ),
        None,
    )


def _commit(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(entry.get(name)) for name in _HISTORY}


def _plain(value: Any) -> Any:
    """Times as milliseconds since 1970; values of mappings as text, as in Spark; None for an empty mapping."""
    if isinstance(value, dt.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, Mapping):
        texts = {name: part if isinstance(part, str) else json.dumps(part) for name, part in value.items()}
        return {name: text for name, text in texts.items() if text != "null"} or None
    return value


def _difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str | None:
    """The first of several named values in which the two engines differ."""
    differ = (name for name in ours if ours[name] != theirs[name])
    return next((f"{name} is {ours[name]!r} in refdelta, {theirs[name]!r} in delta-spark" for name in differ), None)


def _detail(both: ComparedTable) -> tuple[str, str | None]:
    ours, theirs = both.table.detail(), oracle.detail(both.spark, both.place)
    mine = {name: _sorted(_plain(ours[here])) for name, here in _DETAIL.items()}
    other = {name: _sorted(_plain(theirs.get(name))) for name in _DETAIL}
    return f"{counted(mine['numFiles'], 'file')}, {mine['sizeInBytes']:,} bytes", _difference(mine, other)


def _path(file: str) -> str:
    """A path without scheme and host. delta-spark shows files as Hadoop's paths, which are not percent-encoded."""
    return re.sub(r"^[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?(?=/)", "", file)


def _sorted(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) else value


def _skipping(both: ComparedTable, predicate: str | None) -> tuple[str, str | None]:
    """Compare the files that are read for a filter, and the number of matching rows; without a filter, all files."""
    scan = both.table.scan(predicate=predicate)
    explained = scan.explain()
    ours = {data_key(path, both.table.table_uri) for path in explained.paths}
    rows = both.frame if predicate is None else both.frame.where(predicate)
    theirs = {_path(file).removeprefix(both.root) for file in rows.inputFiles()}
    if predicate is None:
        differ = sorted(ours ^ theirs)
        return counted(len(ours), "file"), f"only one of the two has {', '.join(differ[:3])}" if differ else None
    matching, other = scan.count(), rows.count()
    counts = counted(matching, "row")
    if ours == theirs:
        files = f"both read {len(ours):,} of {counted(explained.files, 'file')}"
    else:
        files = f"refdelta reads {len(ours):,} of {counted(explained.files, 'file')}, delta-spark {len(theirs):,}"
    return f"{counts}; {files}", None if matching == other else f"{counts} in refdelta, {other:,} in delta-spark"


# --- filters ------------------------------------------------------------------------------------------------------


_AT_MOST: Final = 4


def probes(table: DeltaTable) -> list[str]:
    """Filters on one column each, in SQL, which let an engine skip files.

    Args:
        table: the table.

    Returns:
        For up to four columns, partition columns first, ``column = value`` with a value from the statistics or the
        partition values of a file; and ``column IS NULL`` for the first.
    """
    adds = table.get_add_actions(flatten=True)
    partitioned = list(table.metadata().partition_columns)
    names = [*partitioned, *(name for name in table.schema().names if name not in partitioned)]
    found = []
    for name in names:
        known = f"partition.{name}" if name in partitioned else f"min.{name}"
        if known not in adds.column_names:
            continue
        values = adds.column(known).drop_null()
        text = _sql_literal(values[len(values) // 2].as_py()) if len(values) else None
        if text is not None:
            quoted = "`" + name.replace("`", "``") + "`"
            found.append(f"{quoted} = {text}")
            if len(found) == 1:
                found.append(f"{quoted} IS NULL")
        if len(found) > _AT_MOST:
            break
    return found


def _sql_literal(value: Any) -> str | None:
    """A value as SQL text, or None if it has no simple literal."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case decimal.Decimal():
            return f"{value:f}BD"
        case str() if value.isprintable():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case dt.date() if not isinstance(value, dt.datetime):
            return f"DATE'{value.isoformat()}'"
        case _:
            return None
