"""The two engines under the pipeline: what each does with a table. All else is the same code for both."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import refdelta
import refdelta.spark
from refdelta.crosscheck import oracle
from refdelta.errors import ConcurrentModificationError
from refdelta.spark import SparkExecutor

# Both engines mark deleted rows in vectors; that is what lets refdelta tell rows of one file apart.
PROPERTIES = {"delta.enableDeletionVectors": "true"}
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# Jobs of several threads share the cores, instead of waiting for each other.
CONF = {
    "spark.scheduler.mode": "FAIR",
    "spark.sql.shuffle.partitions": "2",
    # In runs of minutes the better code of Java's second compiler does not make up for the time that it takes.
    JAVA_OPTIONS: "-Duser.timezone=UTC -XX:TieredStopAtLevel=1",
}
# A session as any user of PySpark has it: no JAR but Spark's own.
WITHOUT_DELTA = {"spark.jars.packages": "", "spark.sql.extensions": "", "spark.sql.catalog.spark_catalog": "builtin"}


@dataclass(frozen=True)
class Commit:
    """A line of a table's history: its version, the version that its writer had read, and what it did."""

    version: int
    read_version: int | None
    operation: str

    @property
    def rebased(self) -> bool:
        """Whether it was moved over versions that its writer had not read."""
        return self.read_version is not None and self.read_version < self.version - 1


class Engine(ABC):
    """Tables under one folder or URI, each by its name, as ``silver/orders``.

    Args:
        root: the folder or URI.
        options: what the store of a URI needs.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    """The name of the engine's data source."""
    conf: ClassVar[Mapping[str, str]]
    """What its Spark session is to have."""

    def __init__(self, root: str, options: Mapping[str, str] | None = None):
        self.root = root
        self.options = dict(options or {})

    def uri(self, table: str) -> str:
        """Where a table is."""
        return f"{self.root}/{table}"

    def stream(self, spark: Any, table: str, files_per_batch: int) -> Any:
        """A table as a stream of its rows, from the first on."""
        reader = self._configured(spark.readStream.format(self.source), table)
        return reader.option("maxFilesPerTrigger", files_per_batch).load(self.uri(table))

    def sink(self, stream: Any, table: str, checkpoint: str) -> Any:
        """A writer that appends a stream to a table."""
        writer = self._configured(stream.writeStream.format(self.source), table)
        return writer.option("checkpointLocation", checkpoint)

    def _configured(self, one: Any, table: str) -> Any:  # noqa: ARG002 - it is for the other engine
        return one

    @property
    @abstractmethod
    def conflicts(self) -> tuple[type[Exception], ...]:
        """What a statement raises that another writer's commit has beaten."""

    @abstractmethod
    def prepare(self, spark: Any) -> None:
        """Make the engine known to a session."""

    @abstractmethod
    def create(self, spark: Any, table: str, schema: Any) -> None:
        """An empty table with deletion vectors."""

    @abstractmethod
    def read(self, spark: Any, table: str) -> Any:
        """A table as a DataFrame."""

    @abstractmethod
    def write(self, frame: Any, table: str) -> None:
        """A new table of the rows of a DataFrame."""

    @abstractmethod
    def upsert(self, table: str, rows: Any, keys: Sequence[str]) -> None:
        """MERGE: rows whose ``sequence`` is higher than that of the row with their keys replace it; new ones go in."""

    @abstractmethod
    def remove(self, table: str, rows: Any, condition: str) -> None:
        """MERGE: delete the rows of the table, ``t``, that one of these, ``s``, fits."""

    @abstractmethod
    def update(self, spark: Any, table: str, values: Mapping[str, str], condition: str) -> None:
        """UPDATE."""

    @abstractmethod
    def optimize(self, spark: Any, table: str) -> None:
        """OPTIMIZE: put small files together."""

    @abstractmethod
    def count(self, spark: Any, table: str) -> int:
        """How many rows a table has."""

    @abstractmethod
    def history(self, spark: Any, table: str) -> list[Commit]:
        """All commits."""


class Refdelta(Engine):
    """refdelta: Spark reads, joins and runs the tasks over files; commits are made in this process."""

    name = source = "refdelta"
    conf = CONF | WITHOUT_DELTA

    @property
    def conflicts(self) -> tuple[type[Exception], ...]:
        return (ConcurrentModificationError,)

    def prepare(self, spark: Any) -> None:
        refdelta.spark.register(spark)

    def create(self, spark: Any, table: str, schema: Any) -> None:
        empty = spark.createDataFrame([], schema)
        refdelta.spark.write(empty, self.uri(table), configuration=PROPERTIES, storage_options=self.options)

    def read(self, spark: Any, table: str) -> Any:
        return refdelta.spark.read(spark, self.uri(table), storage_options=self.options)

    def write(self, frame: Any, table: str) -> None:
        refdelta.spark.write(frame, self.uri(table), storage_options=self.options)

    def upsert(self, table: str, rows: Any, keys: Sequence[str]) -> None:
        values = {name: f"s.{name}" for name in rows.columns}
        merger = self._merger(table, rows, _equal(keys))
        merger.when_matched_update(values, NEWER).when_not_matched_insert(values).execute()

    def remove(self, table: str, rows: Any, condition: str) -> None:
        self._merger(table, rows, condition).when_matched_delete().execute()

    def _merger(self, table: str, rows: Any, condition: str) -> Any:
        executor = SparkExecutor(rows.sparkSession)
        return self.table(table).merge(rows, condition, source_alias="s", target_alias="t", executor=executor)

    def update(self, spark: Any, table: str, values: Mapping[str, str], condition: str) -> None:
        self.table(table).update(updates=values, predicate=condition, executor=SparkExecutor(spark))

    def optimize(self, spark: Any, table: str) -> None:
        self.table(table).optimize.compact(executor=SparkExecutor(spark))

    def count(self, spark: Any, table: str) -> int:  # noqa: ARG002 - it needs no Spark
        return self.table(table).count()

    def history(self, spark: Any, table: str) -> list[Commit]:  # noqa: ARG002
        return [_commit(entry) for entry in self.table(table).history()]

    def table(self, table: str) -> refdelta.DeltaTable:
        """The table without Spark."""
        return refdelta.DeltaTable(self.uri(table), storage_options=self.options)

    def _configured(self, one: Any, table: str) -> Any:  # noqa: ARG002
        return one.option("storageOptions", json.dumps(self.options)) if self.options else one


class DeltaSpark(Engine):
    """delta-spark, on folders of this machine."""

    name = "delta-spark"
    source = "delta"
    conf = CONF

    @property
    def conflicts(self) -> tuple[type[Exception], ...]:
        from delta.exceptions import base

        return (
            base.ConcurrentAppendException,
            base.ConcurrentDeleteDeleteException,
            base.ConcurrentDeleteReadException,
            base.ConcurrentTransactionException,
            base.ConcurrentWriteException,
            base.MetadataChangedException,
            base.ProtocolChangedException,
        )

    def prepare(self, spark: Any) -> None:  # noqa: ARG002
        """Its JARs came with the session; its exceptions come out of Java as Python's once their module is there."""
        import delta.exceptions  # noqa: F401

    def create(self, spark: Any, table: str, schema: Any) -> None:
        spark.createDataFrame([], schema).write.format("delta").options(**PROPERTIES).save(self.uri(table))

    def read(self, spark: Any, table: str) -> Any:
        return oracle.frame(spark, self.uri(table))

    def write(self, frame: Any, table: str) -> None:
        frame.write.format("delta").save(self.uri(table))

    def upsert(self, table: str, rows: Any, keys: Sequence[str]) -> None:
        values = {name: f"s.{name}" for name in rows.columns}
        merger = self._merger(table, rows, _equal(keys))
        merger.whenMatchedUpdate(NEWER, values).whenNotMatchedInsert(values=values).execute()

    def remove(self, table: str, rows: Any, condition: str) -> None:
        self._merger(table, rows, condition).whenMatchedDelete().execute()

    def _merger(self, table: str, rows: Any, condition: str) -> Any:
        return self._table(rows.sparkSession, table).alias("t").merge(rows.alias("s"), condition)

    def update(self, spark: Any, table: str, values: Mapping[str, str], condition: str) -> None:
        self._table(spark, table).update(condition, dict(values))

    def optimize(self, spark: Any, table: str) -> None:
        self._table(spark, table).optimize().executeCompaction()

    def count(self, spark: Any, table: str) -> int:
        return int(self.read(spark, table).count())

    def history(self, spark: Any, table: str) -> list[Commit]:
        return [_commit(entry) for entry in oracle.history(spark, self.uri(table))]

    def _table(self, spark: Any, table: str) -> Any:
        from delta.tables import DeltaTable

        return DeltaTable.forPath(spark, self.uri(table))


NEWER = "s.sequence > t.sequence"


def _equal(keys: Sequence[str]) -> str:
    return " AND ".join(f"t.{key} = s.{key}" for key in keys)


def _commit(entry: Mapping[str, Any]) -> Commit:
    return Commit(entry["version"], entry.get("readVersion"), entry["operation"])
