"""Row ids as the files have them: no two live rows may share one (PROTOCOL.md, "Row IDs")."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from refdelta.engine.parquet.dv import kept_rows, to_bitmap
from refdelta.engine.parquet.files import data_errors, open_parquet
from refdelta.verifier.tracking import ID_COLUMN, enabled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from refdelta.core.log.actions import Add
    from refdelta.verifier.state import State
    from refdelta_storage.base import Store


class StableIds:
    """The ids of the live rows of a file, or of several.

    Args:
        state: the version.
    """

    def __init__(self, state: State):
        configuration = (state.metadata.configuration if state.metadata else None) or {}
        self.column = configuration.get(ID_COLUMN) if enabled(state) else None
        self._seen = BitMap64()

    def take(
        self, store: Store, key: str, add: Add, rows: int, deleted: BitMap64, find: Callable[[str, str], None]
    ) -> None:
        """Look at the ids of a file."""
        if self.column is None or add.base_row_id is None:
            return
        for start, ids in _ids(store, key, self.column, add.base_row_id, rows):
            kept = kept_rows(start, start + len(ids), deleted)
            live = ids if kept is None else ids.take(pc.subtract(kept, pa.scalar(start, pa.uint64())))
            if not len(live):
                continue
            if pc.min(live).as_py() < 0:
                find("track-6", "a row has a negative id")
                return
            new = to_bitmap(live.cast(pa.uint64()))
            if len(new) != len(live) or not self._seen.isdisjoint(new):
                find("track-6", "a row has an id that another live row has, too")
            self._seen |= new

    def unite(self, file: StableIds, find: Callable[[str, str], None]) -> None:
        """Take in the ids of a file."""
        if not self._seen.isdisjoint(file._seen):
            find("track-6", "a row has an id that another live row has, too")
        self._seen |= file._seen


def _ids(store: Store, key: str, column: str, base: int, rows: int) -> Iterator[tuple[int, pa.Array]]:
    with data_errors(key):
        parquet = open_parquet(store, key)
        if column not in parquet.schema_arrow.names:
            yield 0, pa.array(np.arange(base, base + rows))
            return
        start = 0
        for batch in parquet.iter_batches(columns=[column]):
            usual = pa.array(np.arange(base + start, base + start + batch.num_rows))
            yield start, pc.coalesce(batch.column(0).cast(pa.int64()), usual)
            start += batch.num_rows
