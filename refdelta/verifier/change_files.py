"""Change files against the rows that their version changed (PROTOCOL.md, "Change Data Files")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from refdelta.arrow.partition import parse_partition_column
from refdelta.core.log.actions import Add, Cdc, Remove
from refdelta.core.log.paths import data_key, same_path
from refdelta.core.log.replay import file_key
from refdelta.engine.parquet.files import data_errors, open_parquet
from refdelta.engine.scan.reader import ReadPlan, ScanFile, read_file
from refdelta.engine.work.executor import ThreadExecutor
from refdelta.errors import DataFileError, DeltaError, InvalidLogError
from refdelta.table.change_feed import AFTER_UPDATE, BEFORE_UPDATE, CHANGE_TYPE, DELETE, INSERT
from refdelta.table.types import StructType, parse_schema, physical_name
from refdelta.verifier.report import Report
from refdelta.verifier.variants import bare

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from refdelta.core.log.actions import DeletionVectorDescriptor, Metadata
    from refdelta.verifier.commits import StateBefore
    from refdelta.verifier.log_files import LoggedCommit
    from refdelta.verifier.state import State
    from refdelta_storage.base import Store

    Numbers = NDArray[np.uint64]


_SIGNS = {INSERT: 1, AFTER_UPDATE: 1, DELETE: -1, BEFORE_UPDATE: -1}


@dataclass(frozen=True)
class ChangedFile:
    """A file whose rows a version added (sign 1) or removed (-1), or a change file (0), whose rows have their own."""

    path: str
    size: int
    partition_values: Mapping[str, str | None]
    sign: int
    deletion_vector: DeletionVectorDescriptor | None = None


@dataclass(frozen=True)
class VersionChange:
    """The change files of a version, and the data files that it added and removed.

    Attributes:
        version: the version.
        metadata: the metadata in force.
        by_id: whether columns are mapped by id.
        recorded: its change files.
        rows: the data files that it added and removed; None if the log does not say which rows these have.
    """

    version: int
    metadata: Metadata
    by_id: bool
    recorded: tuple[ChangedFile, ...]
    rows: tuple[ChangedFile, ...] | None

    def paths(self) -> Iterable[str]:
        """The paths of all these files, as the log writes them."""
        return [part.path for part in (*self.recorded, *(self.rows or ()))]


@dataclass(frozen=True)
class _Sum:
    """The added rows minus the removed rows: their number, and the sum of their hashes modulo 2**64."""

    rows: int
    hashes: int

    def __add__(self, other: _Sum) -> _Sum:
        return _Sum(self.rows + other.rows, (self.hashes + other.hashes) % 2**64)


class ChangesCheck:
    """The check of change files.

    Args:
        store: the table's folder.
        report: takes the findings.
        sizes: the sizes of the files that exist, by key: VACUUM removes old change files and removed data files.
    """

    def __init__(self, store: Store, report: Report, sizes: Mapping[str, int]):
        self.store, self.report, self.sizes = store, report, sizes

    def run(self, changes: list[VersionChange], sample: int | None) -> None:
        """Check the change types in a sample of change files, and all changes of a sample of versions.

        Args:
            changes: the versions with change files.
            sample: the number of change files to read, and again the number of files for whole versions; None for all.
        """
        files = [(one, part) for one in changes for part in one.recorded if self._key(part.path) in self.sizes]
        some, strange = chosen(files, sample), set[int | None]()
        for report in self._executor(part for _, part in some).map(self._kinds, some):
            self.report.take(report)
            strange |= {finding.version for finding in report.findings}
        left = sample
        for one in chosen([one for one in changes if one.version not in strange and self._is_whole(one)], sample):
            count = len(list(one.paths()))
            if left is None or count <= left:
                left = None if left is None else left - count
                self._difference(one)

    def _executor(self, parts: Iterable[ChangedFile]) -> ThreadExecutor:
        sizes = pa.array([part.size for part in parts], pa.int64())
        return ThreadExecutor.for_store(self.store, pa.chunked_array([sizes]))

    def _key(self, path: str) -> str | None:
        try:
            return data_key(path, self.store.uri)
        except InvalidLogError:
            return None

    def _is_whole(self, one: VersionChange) -> bool:
        return one.rows is not None and all(self._key(path) in self.sizes for path in one.paths())

    # --- change types ------------------------------------------------------------------------------------------------

    def _kinds(self, task: tuple[VersionChange, ChangedFile]) -> Report:
        report, (one, part) = Report(self.report.uri), task
        key = data_key(part.path, self.store.uri)
        report.checked["change files"] += 1
        try:
            with data_errors(key):
                found = _unknown_kinds(open_parquet(self.store, key))
        except DataFileError as error:
            found = error.reason
        if found is not None:
            report.find("cdf-4", found, version=one.version, file=key)
        return report

    # --- the difference of two versions ------------------------------------------------------------------------------

    def _difference(self, one: VersionChange) -> None:
        parts = (*one.recorded, *(one.rows or ()))
        try:
            plan = FileReads(one.metadata, by_id=one.by_id)
            sums = list(self._executor(parts).map(lambda part: self._sum(plan, part), parts))
        except (DeltaError, pa.ArrowException) as error:
            self.report.skip(f"the change files of version {one.version}: {error}")
            return
        self.report.checked["versions with change files"] += 1
        recorded = sum(sums[: len(one.recorded)], _Sum(0, 0))
        changed = sum(sums[len(one.recorded) :], _Sum(0, 0))
        if recorded != changed:
            message = f"the change files add up to {recorded.rows:+} rows, and the data files to {changed.rows:+}"
            if recorded.rows == changed.rows:
                message = "the rows of the change files are not the difference of the data files to the version before"
            self.report.find("cdf-3", message, version=one.version, file=one.recorded[0].path)

    def _sum(self, plan: FileReads, part: ChangedFile) -> _Sum:
        result = _Sum(0, 0)
        for batch in read_file(self.store, plan.file(part, data_key(part.path, self.store.uri)), plan.of(part)):
            rows = bare(batch)
            if part.sign:
                result += _signed(rows, part.sign)
                continue
            kinds = rows.column(CHANGE_TYPE.name)
            rows = rows.drop_columns([CHANGE_TYPE.name])
            for kind, sign in _SIGNS.items():
                result += _signed(rows.filter(pc.equal(kinds, kind)), sign)
        return result


def version_change(commit: LoggedCommit, before: StateBefore, after: State) -> VersionChange | None:
    """The change files and the changed data files of a version; None if it has no change files."""
    actions = commit.actions
    if after.metadata is None or not any(isinstance(action, Cdc) for action in actions):
        return None
    recorded = tuple(
        ChangedFile(one.path, one.size, one.partition_values, 0) for one in actions if isinstance(one, Cdc)
    )
    rows: list[ChangedFile] = []
    known = True
    for action in actions:
        if isinstance(action, Add):
            again = [add for add in before.live[same_path(action.path)] if file_key(add) == file_key(action)]
            rows += [] if again else [_changed_file(action, 1)]
        elif isinstance(action, Remove):
            gone = [add for add in before.live[same_path(action.path)] if file_key(add) == file_key(action)]
            rows += [_changed_file(add, -1) for add in gone]
            known = known and bool(gone)
    by_id = after.supports("columnMapping") and after.property("delta.columnMapping.mode") == "id"
    return VersionChange(commit.version, after.metadata, by_id, recorded, tuple(rows) if known else None)


def _changed_file(add: Add, sign: int) -> ChangedFile:
    return ChangedFile(add.path, add.size, add.partition_values, sign, add.deletion_vector)


class FileReads:
    """The way in which the files of a version are read.

    Args:
        metadata: the metadata in force.
        by_id: whether columns are mapped by id.
    """

    def __init__(self, metadata: Metadata, *, by_id: bool):
        self.schema = parse_schema(metadata.schema_string)
        found = (self.schema.find(name) for name in metadata.partition_columns)
        self.partitions = [item for item in found if item is not None]
        self.by_id = by_id

    def of(self, part: ChangedFile) -> ReadPlan:
        """The columns to read of a file."""
        columns = self.schema if part.sign else StructType((*self.schema, CHANGE_TYPE))
        names = frozenset(item.name for item in self.partitions)
        return ReadPlan(columns=tuple(columns), partition_columns=names, by_id=self.by_id)

    def file(self, part: ChangedFile, key: str) -> ScanFile:
        """A file with its partition values."""
        values = {}
        for item in self.partitions:
            text = part.partition_values.get(physical_name(item))
            values[item.name] = parse_partition_column(pa.array([text], pa.string()), item.type, column=item.name)[0]
        return ScanFile(key, part.size, values, part.deletion_vector)


def chosen(files: list[Any], sample: int | None) -> list[Any]:
    """A sample of files, spread evenly over all; all of them if ``sample`` is None."""
    if sample is None or sample >= len(files):
        return files
    return [files[number * len(files) // sample] for number in range(sample)]


def _signed(rows: pa.RecordBatch, sign: int) -> _Sum:
    return _Sum(sign * rows.num_rows, sign * row_sum(row_numbers(rows)) % 2**64)


def _unknown_kinds(parquet: Any) -> str | None:
    """The message if a change file lacks ``_change_type`` or has other values in it; None if it is valid."""
    if CHANGE_TYPE.name not in parquet.schema_arrow.names:
        return f"the change file has no column {CHANGE_TYPE.name}"
    for batch in parquet.iter_batches(columns=[CHANGE_TYPE.name]):
        kinds = set(pc.unique(batch.column(0).cast(pa.string())).to_pylist())
        if not kinds <= _SIGNS.keys():
            return f"{CHANGE_TYPE.name} has the invalid values {sorted(map(str, kinds - _SIGNS.keys()))}"
    return None


# --- hashes of sets of rows ------------------------------------------------------------------------------------------


_NULL, _STEP = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def row_numbers(batch: pa.RecordBatch) -> Numbers:
    """A hash for each row."""
    rows = np.zeros(batch.num_rows, np.uint64)
    for column in batch.columns:
        rows = _mixed(rows * _STEP + numbers(column))
    return rows


def row_sum(rows: Numbers, places: Numbers | None = None) -> int:
    """The sum of the hashes of rows, modulo 2**64.

    Two multisets of rows have the same sum if they are equal, and almost never otherwise. So sets can be compared of
    which neither is in memory as a whole.

    Args:
        rows: the hashes.
        places: the number of each row, if their order counts.
    """
    return int((rows if places is None else _mixed(rows + places * _NULL)).sum(dtype=np.uint64))


def numbers(array: pa.Array) -> Numbers:
    """A hash for each value. Equal values have equal hashes in all of Arrow's layouts."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pt.is_dictionary(array.type):
        array = array.dictionary_decode()
    found = _mixed(_valid(array))
    if array.null_count:
        found[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return found


def _valid(array: pa.Array) -> Numbers:
    """Hashes of values that are not null; at nulls the result is undefined."""
    kind = array.type
    if pt.is_null(kind):
        return np.zeros(len(array), np.uint64)
    if pt.is_struct(kind):
        found = np.zeros(len(array), np.uint64)
        for inner in array.flatten():
            found = _mixed(found * _STEP + numbers(inner))
        return found
    if pt.is_map(kind):
        # The order of entries has no meaning.
        return _within(_mixed(numbers(array.keys) * _STEP + numbers(array.items)), array.offsets)
    if pt.is_list(kind) or pt.is_large_list(kind):
        return _within(numbers(array.values), array.offsets, ordered=True)
    if kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary(), pa.string_view(), pa.binary_view()):
        return _texts(array.cast(pa.large_binary()))
    if pt.is_boolean(kind):
        array = array.cast(pa.uint8())
    width = array.type.bit_width // 8
    data, at = array.buffers()[1], array.offset
    if data is None:
        return np.zeros(len(array), np.uint64)
    raw = np.frombuffer(data, np.uint8)[at * width : (at + len(array)) * width]
    if pt.is_floating(kind):
        return _floats(raw.view(f"f{width}"))
    if width > np.uint64().itemsize:  # decimals
        parts = raw.view(np.uint64).reshape(-1, width // 8)
        return _mixed(parts[:, 0]) * _STEP + parts[:, 1]
    return raw.view(f"i{width}").astype(np.int64).view(np.uint64)


def _floats(values: NDArray[Any]) -> Numbers:
    """Hashes of floating-point values: all NaN are equal, and so are the two zeros."""
    wide = values.astype(np.float64) + 0.0
    wide[np.isnan(wide)] = np.nan
    return wide.view(np.uint64)


def _texts(array: pa.Array) -> Numbers:
    _, ends, data = array.buffers()
    offsets = np.frombuffer(ends, np.int64)[array.offset : array.offset + len(array) + 1]
    begin, end = int(offsets[0]), int(offsets[-1])
    if data is None or begin == end:
        return np.zeros(len(array), np.uint64)
    text = np.frombuffer(data, np.uint8)[begin:end].astype(np.uint64) + np.uint64(1)
    return _sums(text * _powers(offsets), offsets - begin)


def _within(inner: Numbers, offsets: pa.Array, *, ordered: bool = False) -> Numbers:
    ends = offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    inner = inner[ends[0] : ends[-1]]
    lengths = np.diff(ends).astype(np.uint64)
    if ordered and len(inner):
        inner = _mixed(inner + _powers(ends))
    found: Numbers = _sums(inner, ends - ends[0]) + lengths
    return found


def _powers(offsets: NDArray[np.int64]) -> Numbers:
    """A number for each element of consecutive lists, which depends on its index in its list."""
    lengths = np.diff(offsets)
    places = np.arange(offsets[-1] - offsets[0]) - np.repeat(offsets[:-1] - offsets[0], lengths)
    powers: Numbers = np.cumprod(np.full(int(lengths.max(initial=0)), _STEP), dtype=np.uint64)
    at_places: Numbers = powers[places]
    return at_places


def _sums(values: Numbers, offsets: NDArray[np.int64]) -> Numbers:
    running: Numbers = np.concatenate((np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)))
    sums: Numbers = running[offsets[1:]] - running[offsets[:-1]]
    return sums


def _mixed(values: Numbers) -> Numbers:
    """Mix each number: every bit of the result depends on all of its bits."""
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    mixed: Numbers = values ^ (values >> np.uint64(31))
    return mixed
