"""The new positions of rows whose files were rewritten, by their row ids (PROTOCOL.md, "Row Tracking").

A rewrite of files, such as a compaction or a sort, keeps the ids of the rows. So each live row of a removed file is
found in one of the added files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from refdelta.arrow.arrays import one_array
from refdelta.core.log.paths import data_key, same_path
from refdelta.core.log.statistics import num_records
from refdelta.core.rows.relocation import LocatedRows, RelocationById
from refdelta.engine.parquet.dv import VectorLoader
from refdelta.engine.scan.reader import POSITION, ReadPlan, ScanFile, read_file
from refdelta.errors import InvalidLogError
from refdelta.table.row_tracking import ROW_ID, hidden_columns

if TYPE_CHECKING:
    from refdelta.core.log.actions import Add, DeletionVectorDescriptor, Remove
    from refdelta.engine.log.snapshot import Snapshot

    Numbers = np.ndarray[Any, np.dtype[Any]]


def trace_rows(snapshot: Snapshot, inputs: Sequence[Remove], outputs: Sequence[Add]) -> dict[str, RelocationById]:
    """The new positions of the rows of removed files.

    Args:
        snapshot: a snapshot of a table that tracks rows.
        inputs: the log's entries of the removed files.
        outputs: the log's entries of the files that hold their rows.

    Returns:
        The relocation of each input, by its path. An input is left out if the id of one of its live rows was not found;
        all are left out if an id was found twice.

    Raises:
        DataFileError: a file cannot be read.
        InvalidLogError: an entry lacks the file's size, or rows have no ids.
    """
    read = _Reader.of(snapshot, [*inputs, *outputs])
    found = [read.ids(add) for add in outputs]
    if not found:
        return {}
    ids = np.concatenate([own for own, _ in found])
    places = np.concatenate([positions for _, positions in found])
    files = np.repeat(np.arange(len(found)), [len(own) for own, _ in found])
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    if len(ids) and (ids[1:] == ids[:-1]).any():
        return {}
    moves = {}
    for remove in inputs:
        wanted, at = read.ids(remove)
        index = np.searchsorted(ids, wanted)
        if len(wanted) and (not len(ids) or (ids[np.minimum(index, len(ids) - 1)] != wanted).any()):
            continue
        rows = order[index]
        moves[same_path(remove.path)] = RelocationById(
            None, (), parts=tuple(_parts(outputs, files[rows], at, places[rows]))
        )
    return moves


def _parts(outputs: Sequence[Add], files: Numbers, at: Numbers, to: Numbers) -> Sequence[LocatedRows]:
    found = []
    for number in np.unique(files).tolist():
        own, add = files == number, outputs[number]
        found.append(LocatedRows(same_path(add.path), at[own].tobytes(), to[own].tobytes(), num_records(add) or 0))
    return found


class _Reader:
    """Reads the row ids of files."""

    def __init__(self, snapshot: Snapshot, plan: ReadPlan, vectors: VectorLoader) -> None:
        self._store, self._plan, self._vectors = snapshot.store, plan, vectors

    @classmethod
    def of(cls, snapshot: Snapshot, files: Sequence[Add | Remove]) -> _Reader:
        column = next(f for f in hidden_columns(snapshot.metadata.configuration or {}) if f.name == ROW_ID)
        plan = ReadPlan((column,), by_id=snapshot.column_mapping_mode == "id", positions=True)
        vectors: list[DeletionVectorDescriptor] = [f.deletion_vector for f in files if f.deletion_vector is not None]
        return cls(snapshot, plan, VectorLoader(snapshot.store, vectors))

    def ids(self, entry: Add | Remove) -> tuple[Numbers, Numbers]:
        """The ids of a file's live rows, and their positions, ascending."""
        if entry.size is None:
            raise InvalidLogError(f"the log's entry of {entry.path} has no size")
        file = ScanFile(
            key=data_key(entry.path, self._store.uri),
            size=entry.size,
            deletion_vector=entry.deletion_vector,
            vectors=None if entry.deletion_vector is None else self._vectors,
            base_row_id=entry.base_row_id,
        )
        batches = list(read_file(self._store, file, self._plan))
        table = pa.Table.from_batches(batches, self._plan.schema)
        if table.column(ROW_ID).null_count:
            raise InvalidLogError(f"{entry.path} has rows without ids")
        ids, positions = (one_array(table.column(name)) for name in (ROW_ID, POSITION.name))
        return ids.to_numpy(zero_copy_only=False), positions.to_numpy(zero_copy_only=False)
