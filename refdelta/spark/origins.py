"""The version of a table that the rows of a DataFrame are made from, by the plan of the DataFrame.

A write of rows that are made from the table itself is not a blind append: it must conflict with later changes of the
table. :func:`refdelta.spark.read` marks its DataFrames in their plans, and a write walks the analyzed plan of its rows,
node by node. The text of a plan is of no use: ``spark.sql.maxPlanStringLength`` cuts it.

Each leaf of the plan is judged. Rows of the driver, ranges, and sources with another place are not of the table. A leaf
that hides its source, such as a checkpoint, may be. Then the write counts as one of rows that were read at the oldest
version that this process has read since it last wrote to the table; where it has read none, at the newest one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pickle
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refdelta.api.handle import handle_of
from refdelta.operations.write.source import place_of, same_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from refdelta.api.table import DeltaTable
    from refdelta.engine.log.snapshot import Snapshot

_MARK = re.compile(r"refdelta_(\d+|named)_([0-9a-f]{32})_([0-9a-f]{32})")
# The number of nodes of a plan, or of RDDs, that are looked at. A larger plan hides its sources.
_NODES = 20_000
# The number of windows of reads that are remembered for a table.
_WINDOWS = 100

# Leaves of a plan without rows of a table: rows of the driver, numbers, a reference within the plan.
_OF_THE_DRIVER = {"LocalRelation", "OneRowRelation", "Range", "EmptyRelation", "CTERelationRef"}
# Relations and tables of other systems than file systems.
_OF_OTHER_SYSTEMS = {"JDBCRelation", "KafkaRelation", "JDBCTable", "KafkaTable", "RateStreamTable", "TextSocketTable"}
_FILE_TABLES = {"ParquetTable", "OrcTable", "AvroTable", "CSVTable", "JsonTable", "TextTable"}
_TEXT_RDDS = {"HadoopRDD", "NewHadoopRDD"}


# --- marks ---------------------------------------------------------------------------------------------------------


def marked(frame: Any, table: DeltaTable) -> Any:
    """A DataFrame with the rows of a table, marked in its plan as a read of the version of the table.

    The mark is the name of an alias, which stays in the plan of every DataFrame derived from this one. A version that
    the caller named never changes: a write of rows made from it depends on no newer version.
    """
    spark, uri, version = frame.sparkSession, table.store.uri, table.version()
    named = handle_of(table).snapshot.named
    if not named:
        _Reads.of(spark, uri).add(_moment(spark), version)
    said = "named" if named else str(version)
    return frame.alias(f"refdelta_{said}_{_digest(place_of(uri))}_{_digest(table.metadata().id)}")


def wrote(spark: Any, uri: str) -> None:
    """Note that this process has written to a table, or tried to: the reads until now were for this write."""
    _Reads.of(spark, uri).close()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _moment(spark: Any) -> int:
    """A number between those of the RDDs that the session has made and those that it will make."""
    return int(spark.sparkContext._jsc.sc().newRddId())  # noqa: SLF001 - PySpark's way to the context


class _Reads:
    """The versions of one table that this process has read as DataFrames, in windows that end with a write."""

    _all: dict[tuple[str, str], _Reads] = {}  # noqa: RUF012 - of the process

    def __init__(self) -> None:
        self._windows: list[tuple[int, int]] = []  # the moment of the first read, the oldest version
        self._closed, self._lock = True, threading.Lock()

    @classmethod
    def of(cls, spark: Any, uri: str) -> _Reads:
        return cls._all.setdefault((spark.sparkContext.applicationId, place_of(uri)), cls())

    def add(self, moment: int, version: int) -> None:
        with self._lock:
            if self._closed:
                self._windows.append((moment, version))
            else:
                first, oldest = self._windows[-1]
                self._windows[-1] = first, min(oldest, version)
            self._closed = False
            if len(self._windows) > _WINDOWS:
                (first, one), (_, other) = self._windows[:2]
                self._windows[:2] = [(first, min(one, other))]

    def close(self) -> None:
        with self._lock:
            self._closed = True

    def oldest(self, before: int | None) -> int | None:
        """The oldest version of the last window that began before a moment; None without such a window."""
        with self._lock:
            known = [version for moment, version in self._windows if before is None or moment < before]
        return known[-1] if known else None


# --- plans ---------------------------------------------------------------------------------------------------------


def version_of(frame: Any, snapshot: Snapshot, *, remembered: bool = True) -> int | None:
    """The oldest version of a table from which the rows of a DataFrame are made, or may be made.

    Args:
        frame: the DataFrame.
        snapshot: the newest version of the table.
        remembered: whether rows of an unknown source count as rows of the oldest version that this process has read
            since it last wrote to the table; else of ``snapshot``.

    Returns:
        The version; None if the rows are not made from the table.
    """
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - PySpark's way to the plan
    return _Target(frame.sparkSession, snapshot, remembered).of_plan(plan)


def versions_read(frame: Any) -> Callable[[str], int | None] | None:
    """The versions of tables from which the rows of a DataFrame are made, if its plan names the tables: by the marks
    of :func:`refdelta.spark.read`, and by the sources of the format ``refdelta``. A version that the caller named does
    not count, since it never changes.

    Returns:
        The oldest version of a table by the URI of its store, None for other tables; None if there is no such table.
    """
    found: dict[str, int] = {}
    for kind, node in _sources(frame._jdf.queryExecution().analyzed()):  # noqa: SLF001 - PySpark's way to the plan
        if kind == "SubqueryAlias":
            text, place, _ = _MARK.fullmatch(node.alias()).groups()  # type: ignore[union-attr]
            version = None if text == "named" else int(text)
        elif kind == "DataSourceV2Relation" and (source := _own_source(node.table())) is not None:
            place = _digest(place_of(source.place or ""))
            version = None if source.named or source.version is None else int(source.version)
        else:
            continue
        if version is not None:
            found[place] = min(version, found.get(place, version))
    return (lambda uri: found.get(_digest(place_of(uri)))) if found else None


def _own_source(table: Any) -> Any | None:
    """The source ``refdelta`` of a table in a plan; None for another table."""
    if kind_of(table) != "PythonTable" or table.name() != "refdelta":
        return None
    # Spark keeps the pickled source in private fields; it is of a worker of ours.
    return pickle.loads(_field(_field(table, "ds"), "dataSourceInPython").dataSource())  # noqa: S301


def _sources(plan: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of a plan and of its subqueries, by the names of their classes. Reads with a mark count as leaves."""
    nodes = [plan, *_each(plan.subqueriesAll())]
    for _ in range(_NODES):
        if not nodes:
            return
        node = nodes.pop()
        kind = kind_of(node)
        below = [] if kind == "SubqueryAlias" and _MARK.fullmatch(node.alias()) else list(_each(node.children()))
        if not below:
            yield kind, node
        nodes += below
    yield "a plan of many nodes", None


def _each(items: Any) -> Iterator[Any]:
    """The elements of a sequence of Scala."""
    return (items.apply(place) for place in range(items.size()))


def kind_of(one: Any) -> str:
    """The class of an object of the JVM, without its package."""
    return str(one.getClass().getName()).rpartition(".")[2]


@dataclasses.dataclass(frozen=True)
class _Target:
    """The table that is written."""

    spark: Any
    snapshot: Snapshot
    remembered: bool

    def of_plan(self, plan: Any) -> int | None:
        """The oldest version of the table that an analyzed plan has rows of; None for none."""
        found = (self._of_node(kind, node) for kind, node in _sources(plan))
        return min((version for version in found if version is not None), default=None)

    def _of_node(self, kind: str, node: Any) -> int | None:
        match kind:
            case "SubqueryAlias":
                return self._marked(node.alias())
            case "LogicalRelation":
                return self._of_relation(node.relation())
            case "DataSourceV2Relation":
                return self._of_table(node.table())
            case "LogicalRDD" | "ExternalRDD":
                return self._of_rdd(node.rdd())
            case "StreamingRelation":
                return self._of_stream(node.dataSource().options().get("path"))
            case "StreamingRelationV2":
                return self._of_table(node.table(), streams=True)
            case _ if kind in _OF_THE_DRIVER:
                return None
        return self._unknown()

    def _unknown(self, before: int | None = None) -> int:
        """The version for rows of an unknown source, which was made before a moment."""
        version = None
        if self.remembered:
            version = _Reads.of(self.spark, self.snapshot.store.uri).oldest(before)
        return self.snapshot.version if version is None else version

    def _marked(self, alias: str) -> int | None:
        version, place, table = _MARK.fullmatch(alias).groups()  # type: ignore[union-attr]
        if version == "named":
            return None
        if place == _digest(place_of(self.snapshot.store.uri)):
            return int(version)
        # The same id: a copy of the table, or the table itself under another URI.
        return self._unknown() if table == _digest(self.snapshot.metadata.id) else None

    def _of_relation(self, relation: Any) -> int | None:
        kind = kind_of(relation)
        if kind in _OF_OTHER_SYSTEMS:
            return None
        by_delta_spark = kind.startswith("DeltaLog$")  # a relation of files of its own
        if kind != "HadoopFsRelation" and not by_delta_spark:
            return self._unknown()
        if not self._has_files(relation.location().rootPaths()):
            return None
        # delta-spark chooses the version when the rows are computed, after this.
        return self.snapshot.version if by_delta_spark else self._unknown()

    def _of_stream(self, path: Any) -> int | None:
        return self._unknown() if path.isEmpty() or self._among([path.get()]) else None

    def _of_table(self, table: Any, *, streams: bool = False) -> int | None:
        kind = kind_of(table)
        if kind in _OF_OTHER_SYSTEMS:
            return None
        if kind in _FILE_TABLES:
            return self._unknown() if self._has_files(table.fileIndex().rootPaths()) else None
        source = _own_source(table)
        if source is None:
            return self._unknown()
        if source.place is None or source.named or not same_place(source.place, self.snapshot.store.uri):
            return None
        return self._unknown() if streams else int(source.version)

    def _of_rdd(self, rdd: Any) -> int | None:
        """None if all rows of an RDD are of the driver, or of files elsewhere."""
        if kind_of(rdd) == "SQLExecutionRDD" and (query := _query(self.spark)) is not None:
            return self.of_plan(query.analyzedPlan())
        oldest, known, rdds = rdd.id(), set(), [rdd]
        hidden = False
        while rdds and not hidden:
            one = rdds.pop()
            if one.id() in known:
                continue
            known.add(one.id())
            oldest, kind = min(oldest, one.id()), kind_of(one)
            below = [dependency.rdd() for dependency in _each(one.dependencies())]
            rdds += below
            # The lineage of a plan's rows lacks what was broadcast.
            hidden = kind == "SQLExecutionRDD" or one.checkpointData().isDefined() or len(known) > _NODES
            if not below and kind not in ("ParallelCollectionRDD", "EmptyRDD"):
                hidden = hidden or self._reads(kind, one)
        return self._unknown(oldest) if hidden else None

    def _reads(self, kind: str, rdd: Any) -> bool:
        """Whether an RDD without parents may have rows of the table."""
        if kind not in _TEXT_RDDS:
            return True
        folders = rdd.getConf().get("mapreduce.input.fileinputformat.inputdir")
        return folders is None or self._among(re.split(r"(?<!\\),", folders))

    def _has_files(self, paths: Any) -> bool:
        return self._among(paths.mkString("\0").split("\0"))

    def _among(self, paths: Iterable[str]) -> bool:
        """Whether one of these paths, as Spark writes them, is in the folder of the table or contains it."""
        own = place_of(self.snapshot.store.uri).rstrip("/") + "/"
        others = (_place_of_spark(path).rstrip("/") + "/" for path in paths)
        return any(other.startswith(own) or own.startswith(other) for other in others)


def _query(spark: Any) -> Any | None:
    """The streaming query of whose batches ``foreachBatch`` runs in this thread; None outside of it."""
    number = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    if number is None:
        return None
    queries = spark._jsparkSession.sharedState().activeStreamingQueries()  # noqa: SLF001
    return queries.get(spark._jvm.java.util.UUID.fromString(number))  # noqa: SLF001


def _field(one: Any, name: str) -> Any:
    field = one.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(one)


def _place_of_spark(path: str) -> str:
    """:func:`place_of` for a path of Spark, in which a local path is not encoded, and may have one slash only."""
    local = re.fullmatch(r"(?:file:(?://)?)?(/.*)", path, re.DOTALL)
    return place_of(Path(local.group(1)).as_uri() if local else path)
