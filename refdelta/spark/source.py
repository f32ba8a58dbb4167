"""The data source ``refdelta``: tables by ``spark.read.format("refdelta")`` and ``df.write.format("refdelta")``.

Spark runs it in separate processes and keeps only the text of their errors; :mod:`refdelta.spark.failures` restores
them. All rows pass through Python: :func:`refdelta.spark.read` is several times as fast. Filters are not pushed down,
since Spark 4.2 reuses the pruned files in the next action on the same DataFrame; the option ``filter`` prunes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)

from refdelta.api.table import DeltaTable
from refdelta.engine.log.location import with_others
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.scan.change_scan import changes_table, plan_changes
from refdelta.engine.scan.scan import plan_scan
from refdelta.errors import TableNotFoundError
from refdelta.operations.inspection.feed_range import changes
from refdelta.spark import options as source_options
from refdelta.spark.failures import reported
from refdelta.spark.job import source_store
from refdelta.spark.source_readers import StreamReader, TableReader, check_types
from refdelta.spark.source_writers import StreamWriter, TableWriter
from refdelta.spark.types import delta_schema, spark_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta_storage import Store


class RefdeltaSource(DataSource):
    """A table as a source and a sink of Spark.

    Attributes:
        place: the URI of the table's folder, if there is a table.
        named: whether the options name the version that is read.
        version: the version that is read; None if there was no table.
    """

    def __init__(self, options: Mapping[str, str]):
        super().__init__(options)
        self.version: int | None = None
        self.place: str | None = None
        with reported():
            named = source_options.version_of(options)
            self.named = named is not None
            try:
                # Determined once, so that every action on one DataFrame, also a self-join, sees one version.
                table = self._table(named)
                self.version, self.place = table.version(), table.store.uri
            except TableNotFoundError:  # allowed for a write; a read raises it again
                if named is not None:
                    raise

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "refdelta"

    def schema(self) -> Any:
        """Spark's schema of the version that is read."""
        with reported():
            if not source_options.reads_feed(self.options):
                return spark_schema(plan_scan(self._snapshot()).plan.columns)
            ends = self.options.get("endingVersion") or self.options.get("endingTimestamp")
            snapshot = self._snapshot()
            # Only a batch has an end, which determines the schema.
            asked = source_options.range_of(self.options) if ends else None
            scan = plan_changes(snapshot, changes_table([])) if asked is None else changes(snapshot, asked)
            return spark_schema(scan.derived.plan.columns)

    def reader(self, schema: Any) -> DataSourceReader:
        """A reader of the columns of ``schema``, which are columns of the table."""
        with reported():
            source_options.check_names(self.options, source_options.READ, "reads")
            names, predicate = [item.name for item in delta_schema(schema)], self.options.get("filter")
            asked = source_options.range_of(self.options)
            if asked is None:
                scans = [plan_scan(self._snapshot(), names, predicate)]
            else:
                feed = changes(self._snapshot(), asked, columns=names, predicate=predicate)
                scans = [feed.recorded, feed.derived]
            check_types(schema, scans[-1].plan)
            return TableReader(scans, schema)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        """A writer of rows; ``overwrite`` is the save mode."""
        with reported():
            source_options.check_names(self.options, source_options.WRITE, "writes")
            return TableWriter(self.options, schema, overwrite=overwrite)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader of the table as a stream, of the columns of ``schema``, which are columns of the table."""
        with reported():
            source_options.check_names(self.options, source_options.STREAM_READ, "streams")
            version = self._table(None).version() if self.version is None else self.version
            return StreamReader(self._store(), version, schema, source_options.stream_of(self.options))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark's name
        """A writer of the batches of a stream; ``overwrite`` is the output mode ``complete``."""
        with reported():
            source_options.check_names(self.options, source_options.STREAM_WRITE, "streams into a table")
            return StreamWriter(self.options, schema, overwrite=overwrite)

    def _snapshot(self) -> Snapshot:
        return load_snapshot(self._store(), self.version)

    def _store(self) -> Store:
        given = source_options.storage_options(self.options)
        return with_others(source_store(self.options), source_options.outside_of(self.options), given)

    def _table(self, version: int | str | None) -> DeltaTable:
        return DeltaTable.in_store(self._store(), version)
