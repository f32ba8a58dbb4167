"""Reading the change data feed: from change files, or from the data files that versions add and remove.

The feed of some versions is read as two tables: one of change files, which store the kind of change of each row, and
one of data files, all rows of which changed in the same way. Values that all rows of a file share, such as the version
and its time, are partition columns of these tables.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from refdelta import arguments
from refdelta.arrow.arrays import narrowed
from refdelta.core.log.actions import Add
from refdelta.engine.log.state import FILE_SCHEMA, LiveFiles, adds_table
from refdelta.engine.scan.filters import row_filter
from refdelta.engine.scan.reader import read_file
from refdelta.engine.scan.scan import ONLY, RowStream, Scan, missing_files, plan_scan, scan_files
from refdelta.table.change_feed import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    FEED_COLUMNS,
    FileChange,
    check_columns,
)
from refdelta.table.column_names import named_path
from refdelta.table.features import GENERATION
from refdelta.table.partition_values import format_timestamp
from refdelta.table.types import StructField, StructType, schema_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.engine.scan.reader import ReadPlan, ScanFile

_AT_ONCE = 20_000  # changed files that are objects at the same time
VERSION = "version\n"
"""A further column of a list of files: the version that changed them."""
RECORDED = "recorded\n"
"""A further column of a list of files: whether it is a change file."""


@dataclass(frozen=True)
class VersionChanges:
    """The changes of one version.

    Attributes:
        version: the version.
        time_ms: its commit time, in milliseconds since 1970 (UTC).
        changes: the changed rows, by file.
    """

    version: int
    time_ms: int
    changes: Sequence[FileChange]


@dataclass(frozen=True, eq=False)
class ChangeScan(RowStream):
    """A planned read of the change data feed. It can be run any number of times.

    Consumers of Arrow streams accept it: it has ``__arrow_c_stream__``.

    Attributes:
        recorded: the scan of change files.
        derived: the scan of data files all rows of which were inserted, or all deleted.
    """

    recorded: Scan
    derived: Scan

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows: the requested columns, or all of them followed by those of the feed."""
        return self.derived.schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in batches, version by version.

        Raises:
            DataFileNotFoundError: a file that the log names does not exist; VACUUM removes files of old versions.
            DataFileError: a file is damaged or is not Parquet.
            UnsafePathError: a path of the log leaves the table.
        """
        tasks = [
            (version, file, scan.plan)
            for scan in (self.recorded, self.derived)
            for version, file in zip(scan.files.column(VERSION).to_pylist(), scan_files(scan), strict=True)
        ]
        tasks.sort(key=lambda task: task[0])
        batches = self.derived.executor.stream(self._read, tasks, weigh=lambda batch: int(batch.nbytes))
        return batches if self.derived.parts is None else (narrowed(batch, self.schema) for batch in batches)

    def _read(self, task: tuple[int, ScanFile, ReadPlan]) -> Iterator[pa.RecordBatch]:
        version, file, plan = task
        with missing_files(self.derived.store, version):
            yield from read_file(self.derived.store, file, plan)

    def of(self, changes: pa.Table) -> ChangeScan:
        """The same columns of other changes, as :func:`changes_table` returns them, without a predicate."""
        recorded, derived = _parted(changes)
        return ChangeScan(
            dataclasses.replace(self.recorded, files=recorded), dataclasses.replace(self.derived, files=derived)
        )


def plan_changes(
    snapshot: Snapshot, changes: pa.Table, columns: Sequence[str] | None = None, predicate: Any = None
) -> ChangeScan:
    """Plan a read of the changes of some versions.

    Implements PROTOCOL.md, "Change Data Files".

    Args:
        snapshot: the version whose schema the rows get.
        changes: the changes, as :func:`changes_table` returns them.
        columns: the columns of the result, in this order, including those of the feed; None for all.
        predicate: as for ``scan.plan_scan``; it may use the columns of the feed, too.

    Raises:
        InvalidArgumentError: the table has a column with the name of a column of the feed.
        ColumnNotFoundError: there is no such column.
        PredicateError: the predicate cannot be parsed or bound.
    """
    check_columns(snapshot.schema)
    # Files of other versions may have been written with other expressions.
    fields = (dataclasses.replace(item, metadata=_without_expression(item)) for item in snapshot.schema)
    schema = StructType((*fields, *FEED_COLUMNS))
    # Change files do not store row ids.
    for name in arguments.names("columns", columns) or ():
        path = (name,) if name in schema else named_path(name, schema)
        schema.field(path[0] if path[0] in schema else name, "the change data feed")
    row_filter(predicate, schema)
    return ChangeScan(
        *(
            plan_scan(_as_table(snapshot, schema, files, alike), columns, predicate)
            for files, alike in zip(_parted(changes), (FEED_COLUMNS[1:], FEED_COLUMNS), strict=True)
        )
    )


def _without_expression(item: StructField) -> dict[str, Any]:
    return {key: value for key, value in item.metadata.items() if key != GENERATION}


def changes_table(versions: Iterable[VersionChanges]) -> pa.Table:
    """The changes of versions as a list of files in their order: of ``state.FILE_SCHEMA``, with further columns."""
    changed = ((one, change) for one in versions for change in one.changes)
    parts = iter(lambda: list(itertools.islice(changed, _AT_ONCE)), [])
    return pa.concat_tables([_table_of(part) for part in parts] or [_table_of([])])


def _table_of(changed: Sequence[tuple[VersionChanges, FileChange]]) -> pa.Table:
    adds = [
        Add(
            path=change.path,
            partition_values={**change.partition_values, **_feed_values(version, change)},
            size=change.size,
            modification_time=version.time_ms,
            data_change=True,
            deletion_vector=change.deletion_vector,
        )
        for version, change in changed
    ]
    files, only = adds_table(adds), pa.nulls(len(adds), FILE_SCHEMA.field("deletionVector").type)
    if any(change.only is not None for _, change in changed):
        wanted = [
            msgspec.structs.replace(add, deletion_vector=change.only)
            for add, (_, change) in zip(adds, changed, strict=True)
        ]
        only = adds_table(wanted).column("deletionVector")
    files = files.append_column(ONLY, only)
    files = files.append_column(VERSION, pa.array([version.version for version, _ in changed], pa.int64()))
    return files.append_column(RECORDED, pa.array([change.kind is None for _, change in changed], pa.bool_()))


def _parted(changes: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Change files, and files all rows of which changed in the same way."""
    recorded = changes.column(RECORDED)
    return changes.filter(recorded), changes.filter(pc.invert(recorded))


def _as_table(snapshot: Snapshot, schema: StructType, files: pa.Table, alike: Sequence[StructField]) -> Snapshot:
    """The feed as a version of a table, and a named one: the changes of a range of versions never change."""
    metadata = msgspec.structs.replace(
        snapshot.metadata,
        schema_string=schema_json(schema),
        partition_columns=[*snapshot.partition_columns, *(field.name for field in alike)],
    )
    return dataclasses.replace(snapshot, metadata=metadata, live=LiveFiles(files), named=True)


def _feed_values(version: VersionChanges, change: FileChange) -> dict[str, str | None]:
    return {
        COMMIT_VERSION.name: str(version.version),
        COMMIT_TIMESTAMP.name: format_timestamp(version.time_ms * 1_000, zone=True),
        CHANGE_TYPE.name: change.kind,
    }
