"""Rewrite of one bin of files, with the rows in their order or in the order of a curve.

If the rows keep their order, their places are recorded: the rows of each input that are in each output. So a compaction
and concurrent DELETE, UPDATE and MERGE can both commit, in either order (concurrency.md, number 6). Places are counted
from the rows that were read and written, never from statistics.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from refdelta.arrow.arrays import nested_array
from refdelta.core.log.paths import same_path
from refdelta.core.rows.deletes import live_twice
from refdelta.core.rows.relocation import CopiedRows, Group, Input, Output
from refdelta.engine.log.state import FILE_SCHEMA, to_adds
from refdelta.engine.parquet.dv import load_deletion_vectors
from refdelta.engine.parquet.write import write_files
from refdelta.engine.scan.reader import read_file
from refdelta.engine.scan.scan import plan_scan, read_together, scan_files
from refdelta.engine.scan.zorder import Column, z_ordered
from refdelta.engine.work.executor import ThreadExecutor
from refdelta.operations.layout.bins import (
    CUBE_COLUMNS_TAG,
    CUBE_TAG,
    INSERTION_TAG,
    PROVIDER,
    TARGET_TAG,
    cube_columns,
)
from refdelta.pruning.stats import load_stats, lookup
from refdelta.table.types import STRING, physical_name

if TYPE_CHECKING:
    from refdelta.core.log.actions import Add
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.engine.scan.reader import ScanFile
    from refdelta.operations.layout.bins import BinFiles


@dataclass(frozen=True)
class Rewriter:
    """Rewrites bins.

    Attributes:
        snapshot: the table, with the metadata by which files are written.
        target: the approximate size of a new file, in bytes.
        workers: the number of reading threads, and of writing threads, for one bin; None for all processors.
        columns: the columns of the curve; empty to keep the order of the rows.
        clusters: whether these are the table's clustering columns, and the curve is Hilbert's.
        memory: the number of bytes that are sorted at once; None for the default.
        disk: the maximum size of temporary files, in bytes; None for no limit.
        reads: the table by which files are read, if its columns have other physical names there; None for ``snapshot``.
    """

    snapshot: Snapshot
    target: int
    workers: int | None
    columns: tuple[Column, ...] = ()
    clusters: bool = False
    memory: int | None = None
    disk: int | None = None
    reads: Snapshot | None = None

    def rewrite(self, bin_: BinFiles) -> Group:
        """Write the live rows of a bin's files to new files, in the order of the files or of the curve.

        Raises:
            DataFileNotFoundError: a file that the log names is gone.
            DataFileError: a file is damaged or is not Parquet.
            InvalidLogError: a file is in the bin twice.
            StoreError: the store refused or failed.
        """
        inputs = to_adds(bin_.files)
        _check_once(inputs)
        readers = ThreadExecutor.for_store(self.snapshot.store, bin_.files.column("size"), workers=self.workers)
        source = _Source(self._source, bin_.files, readers, {name for name, *_ in self.columns})
        rows = source.in_order() if not self.columns else self._sorted(source)
        tags: dict[str, str | None] = {TARGET_TAG: str(self.target), INSERTION_TAG: str(bin_.inserted)}
        provider = None
        if self.clusters:
            tags |= {CUBE_TAG: str(uuid.uuid4()), CUBE_COLUMNS_TAG: cube_columns(self.columns)}
            provider = PROVIDER
        elif not self.columns and len(inputs) == 1 and inputs[0].clustering_provider is not None:
            # Its rows keep their clustered order.
            tags, provider = {**(inputs[0].tags or {}), **tags}, inputs[0].clustering_provider
        added = self._write(rows, tags, provider)
        outputs = tuple(Output(add, ()) for add in added) if self.columns else placed(inputs, source.rows, added)
        vectors = load_deletion_vectors(self.snapshot.store, [add.deletion_vector for add in inputs])
        read = tuple(Input(add, deleted) for add, deleted in zip(inputs, vectors, strict=True))
        return Group(read, outputs, permuted=bool(self.columns))

    @property
    def _source(self) -> Snapshot:
        return self.reads or self.snapshot

    def _sorted(self, source: _Source) -> Iterator[pa.RecordBatch]:
        return z_ordered(source.columns, self.columns, hilbert=self.clusters, memory=self.memory, disk=self.disk)

    def _write(self, rows: Iterator[pa.RecordBatch], tags: dict[str, str | None], provider: str | None) -> list[Add]:
        snapshot = self.snapshot
        added = write_files(
            snapshot.store,
            rows,
            schema=snapshot.schema,
            partition_columns=list(snapshot.partition_columns),
            properties=snapshot.properties,
            clustering=self._source.clustering_columns,
            # A bin has about the target size by an estimate; the margin avoids a second, tiny file.
            target_file_size=self.target + self.target // 8,
            data_change=False,
            workers=self.workers,
        )
        return [msgspec.structs.replace(add, tags=tags, clustering_provider=provider) for add in added]


def _check_once(inputs: Sequence[Add]) -> None:
    paths = [same_path(add.path) for add in inputs]
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise live_twice(twice)


class _Source:
    """The live rows of some files, file by file, and the number of rows that were read from each.

    Strings are read as dictionaries if the files have them so, except the columns ``looked_at``.
    """

    def __init__(self, snapshot: Snapshot, files: pa.Table, executor: ThreadExecutor, looked_at: Collection[str]):
        # All files get the same spelling of the partition values, so that rows are not split by the spelling.
        names = {physical_name(snapshot.schema.field(name)) for name in snapshot.partition_columns}
        first = [item for item in files.column("partitionValues")[0].as_py() if item[0] in names]
        same = nested_array([first], FILE_SCHEMA.field("partitionValues").type).take(pa.array([0] * files.num_rows))
        index = files.schema.get_field_index("partitionValues")
        self._snapshot = snapshot.with_files(files.set_column(index, "partitionValues", same))
        self._executor = executor
        texts = [item.name for item in snapshot.schema if item.type == STRING]
        self._encoded = frozenset(texts).difference(looked_at, snapshot.partition_columns)
        self.rows = [0] * files.num_rows

    def in_order(self) -> Iterator[pa.RecordBatch]:
        """All columns, in the order of the files and of the rows in each."""
        for index, batch in self._numbered(None):
            self.rows[index] += batch.num_rows
            yield batch

    def columns(self, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Some columns; can be called several times."""
        return (batch for _, batch in self._numbered(names))

    def _numbered(self, names: Sequence[str] | None) -> Iterator[tuple[int, pa.RecordBatch]]:
        scan = plan_scan(self._snapshot, names)
        store, plan = scan.store, replace(scan.plan, encoded=self._encoded)
        numbers = itertools.count()
        tasks = [[(next(numbers), file) for file in some] for some in read_together(store, scan_files(scan))]

        def read(task: list[tuple[int, ScanFile]]) -> Iterator[tuple[int, pa.RecordBatch]]:
            for number, file in task:
                for batch in read_file(store, file, plan):
                    yield number, batch

        return self._executor.stream(read, tasks, weigh=lambda item: int(item[1].nbytes))


def placed(inputs: Sequence[Add], rows: Sequence[int], added: Sequence[Add]) -> tuple[Output, ...]:
    """The places of the rows of some files, which were written one after the other.

    Args:
        inputs: the files.
        rows: the number of live rows of each.
        added: the new files with all of these rows, in order; their statistics have ``numRecords``.
    """
    outputs, index, start = [], 0, 0
    for add in added:
        room, places = int(lookup(load_stats(add.stats), ("numRecords",))), []
        while room:
            taken = min(room, rows[index] - start)
            if taken:
                places.append(CopiedRows(inputs[index].path, inputs[index].deletion_vector, start, taken))
            room, start = room - taken, start + taken
            if start == rows[index]:
                index, start = index + 1, 0
        outputs.append(Output(add, tuple(places)))
    return tuple(outputs)
