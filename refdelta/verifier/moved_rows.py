"""The rows that a compaction moved, against the record of their places (``commitInfo.rowPlaces``).

A DELETE that began before the compaction follows the record to the new places of its rows. If the record is wrong, it
deletes other rows, and no later check of the table shows that.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from refdelta.core.log.actions import Add, CommitInfo, Remove
from refdelta.core.log.footprint import fold
from refdelta.core.log.paths import data_key
from refdelta.core.log.statistics import num_records
from refdelta.core.rows.relocation import Relocation, agrees, recorded_relocations
from refdelta.engine.scan.reader import read_file
from refdelta.errors import DeltaError, InvalidLogError
from refdelta.verifier.change_files import ChangedFile, FileReads, chosen, row_numbers, row_sum
from refdelta.verifier.variants import bare

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from refdelta.core.log.actions import Metadata
    from refdelta.verifier.commits import StateBefore
    from refdelta.verifier.log_files import LoggedCommit
    from refdelta.verifier.report import Report
    from refdelta.verifier.state import State
    from refdelta_storage.base import Store

CLAUSE = "action-20"

_Run = tuple[int, int]
"""The first row of a run in its file, and the number of rows."""


@dataclass(frozen=True)
class Compaction:
    """A commit that records the places of the rows that it moved.

    Attributes:
        version: its version.
        metadata: the metadata in force.
        by_id: whether columns are mapped by id.
        inputs: the files whose rows it moved, with the recorded vectors, by normalized path.
        outputs: the files that hold these rows, without vectors, by normalized path.
        places: the recorded places of the rows of each input, by its normalized path.
    """

    version: int
    metadata: Metadata
    by_id: bool
    inputs: Mapping[str, ChangedFile]
    outputs: Mapping[str, ChangedFile]
    places: Mapping[str, Relocation]

    def paths(self) -> Iterable[str]:
        """The paths of all these files, as the log writes them."""
        return [part.path for part in (*self.inputs.values(), *self.outputs.values())]


def compaction(commit: LoggedCommit, before: StateBefore, after: State, report: Report) -> Compaction | None:
    """The record of a commit, if it has one that agrees with its actions; one that does not is reported.

    Args:
        commit: the commit.
        before: the state before it.
        after: the state after it.
        report: takes the findings.
    """
    if after.metadata is None or not any(
        isinstance(one, CommitInfo) and "rowPlaces" in one.fields for one in commit.actions
    ):
        return None
    winner = fold(commit.version, [one for one in commit.actions if isinstance(one, Add | Remove | CommitInfo)])
    if not winner.rearranges:
        return None
    places, live = recorded_relocations(winner), {path: adds[0] for path, adds in before.live.items() if adds}
    counts = {path: num_records(add) for path, add in live.items()}
    if not places or not agrees(places, winner, counts.get):
        report.find(CLAUSE, "rowPlaces contradicts the files of its commit", version=commit.version, file=commit.key)
        return None
    if not places.keys() <= live.keys():
        return None  # reported as removes of files that are not live
    by_id = after.supports("columnMapping") and after.property("delta.columnMapping.mode") == "id"
    inputs = {path: _file(live[path], places[path]) for path in places}
    outputs = {output: _file(winner.added[output]) for moved in places.values() for output in moved.outputs}
    return Compaction(commit.version, after.metadata, by_id, inputs, outputs, places)


def _file(add: Add, moved: Relocation | None = None) -> ChangedFile:
    vector = None if moved is None else moved.vector
    return ChangedFile(add.path, add.size, add.partition_values, 1, vector)


class MovedRowsCheck:
    """The check of records.

    Args:
        store: the table's folder.
        report: takes the findings.
        sizes: the sizes of the files that exist, by key: VACUUM removes the inputs.
    """

    def __init__(self, store: Store, report: Report, sizes: Mapping[str, int]):
        self.store, self.report, self.sizes = store, report, sizes

    def run(self, compactions: Sequence[Compaction], sample: int | None) -> None:
        """Compare the rows at the recorded places with those of the inputs, in a sample of compactions whose files all
        exist.

        Args:
            compactions: the compactions.
            sample: the number of files to read; None for all.
        """
        left = sample
        for one in chosen([one for one in compactions if self._is_whole(one)], sample):
            count = len(list(one.paths()))
            if left is None or count <= left:
                left = None if left is None else left - count
                self._compare(one)

    def _is_whole(self, one: Compaction) -> bool:
        return all(self._key(path) in self.sizes for path in one.paths())

    def _key(self, path: str) -> str | None:
        try:
            return data_key(path, self.store.uri)
        except InvalidLogError:
            return None

    def _compare(self, one: Compaction) -> None:
        sources: dict[str, list[_Run]] = defaultdict(list)
        targets: dict[str, list[_Run]] = defaultdict(list)
        runs: list[tuple[str, _Run, str, _Run]] = []
        for path, moved in one.places.items():
            for span in moved.spans:
                source, target = (span.start, span.rows), (span.offset, span.rows)
                sources[path].append(source)
                targets[span.output].append(target)
                runs.append((path, source, span.output, target))
        try:
            reads = FileReads(one.metadata, by_id=one.by_id)
            before = {path: self._digests(reads, one.inputs[path], sources[path]) for path in sources}
            after = {path: self._digests(reads, one.outputs[path], targets[path]) for path in targets}
        except (DeltaError, pa.ArrowException) as error:
            self.report.skip(f"the rows that version {one.version} moved: {error}")
            return
        self.report.checked["compactions"] += 1
        wrong = [run for run in runs if before[run[0]].get(run[1]) != after[run[2]].get(run[3])]
        if wrong:
            path, (start, rows), output, (offset, _) = wrong[0]
            message = (
                f"the rows {offset} to {offset + rows - 1} are not the live rows {start} to {start + rows - 1} of "
                f"{one.inputs[path].path}, which rowPlaces names"
            )
            self.report.find(CLAUSE, message, version=one.version, file=one.outputs[output].path)

    def _digests(self, reads: FileReads, part: ChangedFile, runs: Sequence[_Run]) -> dict[_Run, int]:
        """A hash of each run, which depends on the order of its rows. The file is read in batches."""
        found: dict[_Run, int] = dict.fromkeys(runs, 0)
        ordered, number, begin = sorted(runs), 0, 0
        for batch in read_file(self.store, reads.file(part, data_key(part.path, self.store.uri)), reads.of(part)):
            hashes, end = row_numbers(bare(batch)), begin + batch.num_rows
            while number < len(ordered) and ordered[number][0] < end:
                start, count = ordered[number]
                first, last = max(start, begin), min(start + count, end)
                if first < last:
                    places = np.arange(first - start, last - start, dtype=np.uint64)
                    found[start, count] += row_sum(hashes[first - begin : last - begin], places)
                if start + count > end:
                    break
                number += 1
            begin = end
        # A run that goes beyond the file equals none.
        return {run: value % 2**64 for run, value in found.items() if sum(run) <= begin}
