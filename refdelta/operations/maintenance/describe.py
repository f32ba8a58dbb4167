"""DESCRIBE DETAIL, and the list of live files in several forms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import exact_sum
from refdelta.arrow.partition import partition_table
from refdelta.arrow.python_values import python_rows
from refdelta.core.log.paths import data_key
from refdelta.engine.log.multi_root import uri_of
from refdelta.engine.log.statistics import stats_parsed
from refdelta.engine.parquet.dv import live_rows
from refdelta.engine.parquet.files import store_errors
from refdelta.engine.scan.file_stats import num_deleted, num_records
from refdelta.engine.scan.scan import scan_files
from refdelta.table.column_names import dotted
from refdelta.table.features import features_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.engine.scan.scan import Scan


def detail(snapshot: Snapshot) -> dict[str, Any]:
    """The columns of Spark's DESCRIBE DETAIL, and the numbers of deletion vectors and deleted rows.

    Times are in milliseconds since 1970 (UTC), sizes in bytes.
    """
    metadata, protocol = snapshot.metadata, snapshot.protocol
    return {
        "format": "delta",
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "location": snapshot.store.uri,
        "created_at": metadata.created_time,
        "last_modified": snapshot.timestamp_ms,
        "version": snapshot.version,
        "partition_columns": list(snapshot.partition_columns),
        "clustering_columns": [dotted(path) for path in snapshot.clustering_columns],
        "num_files": snapshot.num_files,
        "size_in_bytes": snapshot.size_bytes,
        "num_deletion_vectors": snapshot.num_files - snapshot.files.column("deletionVector").null_count,
        "num_deleted_rows": exact_sum(num_deleted(snapshot.files)),
        "properties": dict(metadata.configuration or {}),
        "min_reader_version": protocol.min_reader_version,
        "min_writer_version": protocol.min_writer_version,
        "table_features": sorted(features_of(protocol)),
    }


def files(snapshot: Snapshot) -> pa.Table:
    """The live files, a row each: path, partition values, size in bytes, modification time, number of physical rows,
    number of rows that a deletion vector hides.
    """
    return listed(snapshot.files)


def listed(files: pa.Table) -> pa.Table:
    """The columns of :func:`files`, of a list of files as a snapshot has it."""
    return pa.table(
        {
            "path": files.column("path"),
            "partition_values": files.column("partitionValues"),
            "size_bytes": files.column("size"),
            "modification_time": _times(files),
            "num_records": num_records(files),
            "num_deleted": num_deleted(files),
        }
    )


def file_uris(snapshot: Snapshot, files: pa.Table | None = None) -> list[str]:
    """The live files, or some of them, as paths if the table is local, else as URIs."""
    store = snapshot.store
    paths = (snapshot.files if files is None else files).column("path")
    keys = (data_key(path, store.uri) for path in paths.to_pylist())
    with store_errors("name the table's files"):
        return [store.local_path(key) or uri_of(store, key) for key in keys]


def add_actions(snapshot: Snapshot, *, flatten: bool) -> pa.Table:
    """The columns of deltalake's ``get_add_actions``: path, size_bytes, modification_time, num_records, null_count,
    min, max, partition.
    """
    stats = pa.Table.from_struct_array(
        stats_parsed(
            snapshot.files,
            snapshot.schema,
            snapshot.partition_columns,
            snapshot.properties,
            snapshot.clustering_columns,
        )
    )
    columns: dict[str, Any] = {
        "path": snapshot.files.column("path"),
        "size_bytes": snapshot.files.column("size"),
        "modification_time": _times(snapshot.files),
        "num_records": stats.column("numRecords"),
    }
    for theirs, name in (("null_count", "nullCount"), ("min", "minValues"), ("max", "maxValues")):
        if name in stats.column_names:
            columns[theirs] = stats.column(name)
    if snapshot.partition_columns:
        typed = partition_table(snapshot.files, snapshot.schema, snapshot.partition_columns)
        columns["partition"] = typed.to_struct_array()
    table = pa.table(columns)
    while flatten and any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table


def partitions(snapshot: Snapshot, files: pa.Table | None = None) -> list[dict[str, Any]]:
    """The distinct partitions of the live files, or of some of them, in no order; empty if the table has no partition
    columns.
    """
    if not snapshot.partition_columns:
        return []
    typed = partition_table(snapshot.files if files is None else files, snapshot.schema, snapshot.partition_columns)
    return python_rows(typed.group_by(typed.column_names).aggregate([]))


VECTORS = pa.schema({"filepath": pa.string(), "selection_vector": pa.list_(pa.bool_())})


def deletion_vectors(scan: Scan) -> pa.RecordBatchReader:
    """For each file of a scan with a deletion vector, a batch with its URI and, for each row, whether it is live."""
    with_vector = replace(scan, files=scan.files.filter(pc.is_valid(scan.files.column("deletionVector"))))

    def batches() -> Iterator[pa.RecordBatch]:
        for file, live in zip(scan_files(with_vector), with_vector.file_counts(), strict=True):
            if file.deletion_vector is not None and file.vectors is not None:
                deleted = file.vectors.load(file.deletion_vector)
                mask = live_rows(0, live + len(deleted), deleted)
                lists = pa.ListArray.from_arrays(pa.array([0, len(mask)], pa.int32()), mask)
                with store_errors("name the table's files"):
                    local = scan.store.local_path(file.key)
                uri = uri_of(scan.store, file.key) if local is None else Path(local).as_uri()
                yield pa.record_batch([pa.array([uri]), lists], schema=VECTORS)

    return pa.RecordBatchReader.from_batches(VECTORS, batches())


def _times(files: pa.Table) -> pa.ChunkedArray:
    return pc.cast(files.column("modificationTime"), pa.timestamp("ms", "UTC"))
