"""Row tracking: ids and versions of files in the log, and the ids of their rows (PROTOCOL.md, "Row Tracking")."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from refdelta.core.log.actions import Add, DomainMetadata
from refdelta.core.log.json_text import read_json
from refdelta.core.log.paths import same_path
from refdelta.engine.log.state import to_adds
from refdelta.engine.log.statistics import read_statistics
from refdelta.engine.parquet.dv import kept_rows, to_bitmap
from refdelta.engine.parquet.files import data_errors, open_parquet
from refdelta.table.types import LONG, physical_name
from refdelta.verifier.columns import fields
from refdelta.verifier.commits import CommitFindings
from refdelta.verifier.state import physical_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from refdelta.table.types import StructType
    from refdelta.verifier.commits import StateBefore
    from refdelta.verifier.log_files import ActionLine, LoggedCommit
    from refdelta.verifier.report import Report
    from refdelta.verifier.state import State
    from refdelta_storage.base import Store


DOMAIN = "delta.rowTracking"
ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"


def supported(state: State) -> bool:
    """True if every add must have row ids."""
    return state.supports("rowTracking") and not suspended(state)


def suspended(state: State) -> bool:
    """True if row tracking is suspended."""
    configuration = (state.metadata.configuration if state.metadata else None) or {}
    return configuration.get("delta.rowTrackingSuspended", "").lower() == "true"


def enabled(state: State) -> bool:
    """True if every row has an id."""
    return state.supports("rowTracking") and state.is_on("delta.enableRowTracking")


def high_water_mark(domain: DomainMetadata | None) -> int | None:
    """The highest row id assigned so far, by the domain."""
    try:
        mark = read_json(domain.configuration)["rowIdHighWaterMark"] if domain is not None else None
    except (ValueError, TypeError, KeyError):
        return None
    return mark if isinstance(mark, int) and not isinstance(mark, bool) else None


class TrackingCheck(CommitFindings):
    """The check of a commit to a table with row tracking.

    Args:
        commit: the commit.
        before: the state before it.
        mark: the high-water mark before.
        after: the state after it.
        report: takes the findings.
    """

    def __init__(self, commit: LoggedCommit, before: StateBefore, mark: int | None, after: State, report: Report):
        self.commit, self.before, self.mark, self.after, self.report = commit, before, mark, after, report

    def run(self) -> None:
        """Report violations."""
        if not supported(self.after):
            return
        mark = high_water_mark(self.after.domains.get(DOMAIN))
        for line in self.commit.lines:
            if isinstance(line.action, Add):
                self._add(line, line.action, mark)
        new = mark if mark is not None else -1
        if self.mark is not None and new < self.mark:
            self.find("track-2", f"the high-water mark of row ids decreased from {self.mark} to {mark}")

    def _add(self, line: ActionLine, add: Add, mark: int | None) -> None:
        if add.base_row_id is None:
            self.find("track-1", f"{add.path!r} has no baseRowId", line)
            return
        old = [one for one in self.before.live.get(same_path(add.path), ()) if one.base_row_id is not None]
        if old:
            wanted = (old[0].base_row_id, old[0].default_row_commit_version)
            if (add.base_row_id, add.default_row_commit_version) != wanted:
                self.find(
                    "track-4", f"baseRowId and defaultRowCommitVersion of {add.path!r} were {wanted}, and changed", line
                )
            return
        if same_path(add.path) in self.before.known_paths:
            return  # RESTORE adds it again
        if add.default_row_commit_version != self.commit.version:
            has = add.default_row_commit_version
            self.find(
                "track-3", f"the new file {add.path!r} has the defaultRowCommitVersion {has}, not its version", line
            )
        rows = physical_rows(add)
        last = add.base_row_id + max(rows or 1, 1) - 1
        if mark is None or (rows != 0 and last > mark):
            self.find("track-2", f"{add.path!r} has row ids up to {last}, and the high-water mark is {mark}", line)
        if self.mark is not None and add.base_row_id <= self.mark:
            message = f"{add.path!r} has row ids from {add.base_row_id}; the high-water mark before was {self.mark}"
            self.find("track-2", message, line)


class RowIdRanges:
    """The default row ids of live files, as ranges; none may occur twice."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: dict[int, tuple[int, str]] = {}

    def take(self, start: int, rows: int, path: str) -> str | None:
        """Add the ids of a file. Returns the path of another file that has some of them, or None."""
        if rows <= 0:
            return None
        at = bisect_left(self._starts, start)
        if at < len(self._starts) and self._starts[at] < start + rows:
            return self._ends[self._starts[at]][1]
        if at and self._ends[self._starts[at - 1]][0] > start:
            return self._ends[self._starts[at - 1]][1]
        insort(self._starts, start)
        self._ends[start] = start + rows, path
        return None


def check_state(state: State, schema: StructType | None, report: Report) -> None:
    """Check the row ids of all live files of a version."""
    if not state.supports("rowTracking"):
        return
    on = enabled(state)
    if on and suspended(state):
        report.find("track-10", "row tracking is enabled and suspended at once", version=state.version)
    if _perhaps_wrong(state, on=on):
        _check_files(state, report, on=on)
    configuration = (state.metadata.configuration if state.metadata else None) or {}
    for key in (ID_COLUMN, VERSION_COLUMN) if on else ():
        name = configuration.get(key)
        taken = schema is not None and any(name == physical_name(part.field) for part in fields(schema))
        if not name or taken:
            what = "is not set" if not name else f"is {name!r}, the name of a column of the table"
            report.find("track-5", f"{key} {what}", version=state.version)


def _perhaps_wrong(state: State, *, on: bool) -> bool:
    """False if the columns show that :func:`_check_files` finds nothing."""
    starts: list[NDArray[np.int64]] = []
    rows: list[NDArray[np.int64]] = []
    for batch in state.files.batches():
        base = batch["baseRowId"]
        if base.null_count or (on and batch["defaultRowCommitVersion"].null_count):
            return True
        (known,) = read_statistics(pa.chunked_array([batch["stats"]]), [(("numRecords",), LONG)])[1]
        if known.null_count:
            return True
        starts.append(np.asarray(base))
        rows.append(np.asarray(known))
    if not starts:
        return False
    first, count = np.concatenate(starts), np.concatenate(rows)
    order = np.argsort(first, kind="stable")
    first, count = first[order], count[order]
    return bool((count <= 0).any() or (first[1:] - first[:-1] < count[:-1]).any())


def _check_files(state: State, report: Report, *, on: bool) -> None:
    ranges = RowIdRanges()
    adds = [add for batch in state.files.batches() for add in to_adds(pa.Table.from_batches([batch]))]
    for add in sorted(adds, key=lambda add: add.base_row_id or 0):
        if on and (add.base_row_id is None or add.default_row_commit_version is None):
            message = "row tracking is enabled, and the file has no baseRowId or no defaultRowCommitVersion"
            report.find("track-5", message, version=state.version, file=add.path)
        if add.base_row_id is not None:
            other = ranges.take(add.base_row_id, physical_rows(add) or 0, add.path)
            if other is not None:
                message = f"its default row ids from {add.base_row_id} are also those of {other!r}"
                report.find("track-1", message, version=state.version, file=add.path)


# --- ids in the files ------------------------------------------------------------------------------------------------


class StableIds:
    """The ids of the live rows in one or more files: no two live rows may share one.

    Args:
        state: the state of the version.
    """

    def __init__(self, state: State):
        configuration = (state.metadata.configuration if state.metadata else None) or {}
        self.column = configuration.get(ID_COLUMN) if enabled(state) else None
        self._seen = BitMap64()

    def take(
        self, store: Store, key: str, add: Add, rows: int, deleted: BitMap64, find: Callable[[str, str], None]
    ) -> None:
        """Check the ids of a file."""
        if self.column is None or add.base_row_id is None:
            return
        for start, ids in _ids(store, key, self.column, add.base_row_id, rows):
            kept = kept_rows(start, start + len(ids), deleted)
            live = ids if kept is None else ids.take(pc.subtract(kept, pa.scalar(start, pa.uint64())))
            if not len(live):
                continue
            if pc.min(live).as_py() < 0:
                find("track-6", "a row has a negative row id")
                return
            new = to_bitmap(live.cast(pa.uint64()))
            if len(new) != len(live) or not self._seen.isdisjoint(new):
                find("track-6", "two live rows have the same row id")
            self._seen |= new

    def unite(self, file: StableIds, find: Callable[[str, str], None]) -> None:
        """Add the ids of a file."""
        if not self._seen.isdisjoint(file._seen):
            find("track-6", "two live rows have the same row id")
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
