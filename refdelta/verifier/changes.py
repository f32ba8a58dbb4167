"""Change files: that they say what their version changed (PROTOCOL.md, "Change Data Files")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.log.actions import Add, Cdc, Remove
from refdelta.core.log.paths import data_key, same_path
from refdelta.core.log.replay import file_key
from refdelta.core.table.change_feed import AFTER_UPDATE, BEFORE_UPDATE, CHANGE_TYPE, DELETE, INSERT
from refdelta.core.table.types import StructType, parse_schema, physical_name
from refdelta.engine.expressions.partition import parse_partition_column
from refdelta.engine.parquet.files import data_errors, open_parquet
from refdelta.engine.scan.executor import ThreadExecutor
from refdelta.engine.scan.reader import ReadPlan, ScanFile, read_file
from refdelta.errors import DataFileError, DeltaError, InvalidLogError
from refdelta.verifier.report import Report
from refdelta.verifier.row_hashes import row_sum
from refdelta.verifier.variants import bare

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from refdelta.core.log.actions import DeletionVectorDescriptor, Metadata
    from refdelta.verifier.history import Before
    from refdelta.verifier.log_files import Commit
    from refdelta.verifier.state import State
    from refdelta_storage.base import Store

_SIGNS = {INSERT: 1, AFTER_UPDATE: 1, DELETE: -1, BEFORE_UPDATE: -1}


@dataclass(frozen=True)
class Part:
    """A file whose rows came (1) or went (-1) with a version; 0: it is a change file, which says so of each."""

    path: str
    size: int
    partition_values: Mapping[str, str | None]
    sign: int
    deletion_vector: DeletionVectorDescriptor | None = None


@dataclass(frozen=True)
class Changed:
    """What a version with change files changed.

    Attributes:
        version: the version.
        metadata: in force in it.
        by_id: whether columns are mapped by id.
        recorded: its change files.
        rows: the files that it added and removed; None where the log does not say which rows these have.
    """

    version: int
    metadata: Metadata
    by_id: bool
    recorded: tuple[Part, ...]
    rows: tuple[Part, ...] | None

    def paths(self) -> Iterable[str]:
        """Of all files, as the log has them."""
        return [part.path for part in (*self.recorded, *(self.rows or ()))]


@dataclass(frozen=True)
class _Sum:
    """Rows that came less those that went: how many, and the sum of their numbers."""

    rows: int
    numbers: int

    def __add__(self, other: _Sum) -> _Sum:
        return _Sum(self.rows + other.rows, (self.numbers + other.numbers) % 2**64)


class ChangesCheck:
    """Looks at change files.

    Args:
        store: the table's folder.
        report: takes the findings.
        sizes: of the files that are there; VACUUM takes change files after a while, and files that were removed.
    """

    def __init__(self, store: Store, report: Report, sizes: Mapping[str, int]):
        self.store, self.report, self.sizes = store, report, sizes

    def run(self, changes: list[Changed], sample: int | None) -> None:
        """Look at the kinds of changes of so many change files, and at all changes of versions with so many files."""
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

    def _executor(self, parts: Iterable[Part]) -> ThreadExecutor:
        sizes = pa.array([part.size for part in parts], pa.int64())
        return ThreadExecutor.for_store(self.store, pa.chunked_array([sizes]))

    def _key(self, path: str) -> str | None:
        try:
            return data_key(path, self.store.uri)
        except InvalidLogError:
            return None

    def _is_whole(self, one: Changed) -> bool:
        return one.rows is not None and all(self._key(path) in self.sizes for path in one.paths())

    # --- kinds -----------------------------------------------------------------------------------------------------

    def _kinds(self, task: tuple[Changed, Part]) -> Report:
        report, (one, part) = Report(self.report.uri), task
        key = data_key(part.path, self.store.uri)
        report.checked["change files"] += 1
        try:
            with data_errors(key):
                found = _strange(open_parquet(self.store, key))
        except DataFileError as error:
            found = error.reason
        if found is not None:
            report.find("cdf-4", found, version=one.version, file=key)
        return report

    # --- the difference of two versions ----------------------------------------------------------------------------

    def _difference(self, one: Changed) -> None:
        parts = (*one.recorded, *(one.rows or ()))
        try:
            plan = _Plan(one)
            sums = list(self._executor(parts).map(lambda part: self._sum(plan, part), parts))
        except (DeltaError, pa.ArrowException) as error:
            self.report.skip(f"what version {one.version} changed: {error}")
            return
        self.report.checked["versions with change files"] += 1
        told = sum(sums[: len(one.recorded)], _Sum(0, 0))
        done = sum(sums[len(one.recorded) :], _Sum(0, 0))
        if told != done:
            what = f"tell of {told.rows:+} rows, and its data files make {done.rows:+}"
            if told.rows == done.rows:
                what = "have other rows than those by which its data files differ from the version before"
            self.report.find("cdf-3", f"its change files {what}", version=one.version, file=one.recorded[0].path)

    def _sum(self, plan: _Plan, part: Part) -> _Sum:
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


def what_changed(commit: Commit, before: Before, after: State) -> Changed | None:
    """What a version changed; None where it has no change files."""
    actions = commit.actions
    if after.metadata is None or not any(isinstance(action, Cdc) for action in actions):
        return None
    recorded = tuple(Part(one.path, one.size, one.partition_values, 0) for one in actions if isinstance(one, Cdc))
    rows: list[Part] = []
    known = True
    for action in actions:
        if isinstance(action, Add):
            again = [add for add in before.live[same_path(action.path)] if file_key(add) == file_key(action)]
            rows += [] if again else [_part(action, 1)]
        elif isinstance(action, Remove):
            gone = [add for add in before.live[same_path(action.path)] if file_key(add) == file_key(action)]
            rows += [_part(add, -1) for add in gone]
            known = known and bool(gone)
    by_id = after.supports("columnMapping") and after.property("delta.columnMapping.mode") == "id"
    return Changed(commit.version, after.metadata, by_id, recorded, tuple(rows) if known else None)


def _part(add: Add, sign: int) -> Part:
    return Part(add.path, add.size, add.partition_values, sign, add.deletion_vector)


class _Plan:
    """How the files of a version are read."""

    def __init__(self, one: Changed):
        self.schema = parse_schema(one.metadata.schema_string)
        found = (self.schema.find(name) for name in one.metadata.partition_columns)
        self.partitions = [item for item in found if item is not None]
        self.by_id = one.by_id

    def of(self, part: Part) -> ReadPlan:
        columns = self.schema if part.sign else StructType((*self.schema, CHANGE_TYPE))
        names = frozenset(item.name for item in self.partitions)
        return ReadPlan(columns=tuple(columns), partition_columns=names, by_id=self.by_id)

    def file(self, part: Part, key: str) -> ScanFile:
        values = {}
        for item in self.partitions:
            text = part.partition_values.get(physical_name(item))
            values[item.name] = parse_partition_column(pa.array([text], pa.string()), item.type, column=item.name)[0]
        return ScanFile(key, part.size, values, part.deletion_vector)


def chosen(files: list[Any], sample: int | None) -> list[Any]:
    """So many files, spread evenly over all."""
    if sample is None or sample >= len(files):
        return files
    return [files[number * len(files) // sample] for number in range(sample)]


def _signed(rows: pa.RecordBatch, sign: int) -> _Sum:
    return _Sum(sign * rows.num_rows, sign * row_sum(rows) % 2**64)


def _strange(parquet: Any) -> str | None:
    """What is wrong with the kinds of changes of a file."""
    if CHANGE_TYPE.name not in parquet.schema_arrow.names:
        return f"it has no column {CHANGE_TYPE.name}"
    for batch in parquet.iter_batches(columns=[CHANGE_TYPE.name]):
        kinds = set(pc.unique(batch.column(0).cast(pa.string())).to_pylist())
        if not kinds <= _SIGNS.keys():
            return f"its {CHANGE_TYPE.name} has {sorted(map(str, kinds - _SIGNS.keys()))}"
    return None
