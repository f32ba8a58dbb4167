"""What is in the files of the worlds of :mod:`model.explorer`: rows, and the deletion vectors that writers make."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyroaring import BitMap64

from model.entries import Entries, Wrong, entries_behind, entries_of
from refdelta.core.log.actions import Add, DeletionVectorDescriptor

Log = tuple[tuple[int, bytes], ...]


class Violation(AssertionError):
    """A world that must not be, with the steps that lead to it."""


@dataclass(frozen=True)
class Rows:
    """What is in the files that the writers know.

    Attributes:
        files: by path the rows of each file, deleted ones included; none at all, and nobody asks.
        vectors: the deletion vectors that are there at the beginning, by their ids.
        deleted: by writer the rows that it deletes.
        matches: whether a row of a winner's file answers to what a writer read.
    """

    files: Mapping[str, tuple[Hashable, ...]] = field(default_factory=dict)
    vectors: Mapping[str, BitMap64] = field(default_factory=dict)
    deleted: Mapping[int, Collection[Hashable]] = field(default_factory=dict)
    matches: Callable[[Add], bool] = lambda _: True


class Contents:
    """The rows behind each log, and what each deletion vector hides, whether or not it is still there.

    Args:
        rows: what is in the files.
        first: the versions that exist at the beginning.
        markers: for each writer what a version of it has among its bytes.
    """

    def __init__(self, rows: Rows, first: Mapping[int, bytes], markers: Sequence[bytes]):
        self.rows, self.markers = rows, markers
        self.bitmaps = dict(rows.vectors)
        self._start = [data for _, data in sorted(first.items())] if rows.files else []
        self._logs: dict[Log, Entries] = {}

    def write(self, index: int, node: int, bitmaps: Sequence[BitMap64]) -> tuple[DeletionVectorDescriptor, ...]:
        """Where a writer's vectors are, which it writes in this state of it."""
        found = tuple(
            DeletionVectorDescriptor(
                storage_type="u",
                path_or_inline_dv=f"{_mark(index)}{node}-{number}",
                offset=1,
                size_in_bytes=1,
                cardinality=len(bitmap),
            )
            for number, bitmap in enumerate(bitmaps)
        )
        self.bitmaps.update((one.unique_id, bitmap) for one, bitmap in zip(found, bitmaps, strict=True))
        return found

    @staticmethod
    def of_writer(index: int, vectors: Collection[str]) -> set[str]:
        """Those of these vectors that a writer wrote."""
        return {vector for vector in vectors if _mark(index) in vector}

    def check(self, log: Log, vectors: Collection[str]) -> None:
        """Raise ``Violation`` unless the log holds the rows that it should, and the vectors that it names are there."""
        if not self.rows.files:
            return
        live = [add.deletion_vector for add in self._live(log).values()]
        gone = {one.unique_id for one in live if one is not None}.difference(vectors)
        if gone:
            raise Violation(f"the log names vectors that are gone: {gone}")

    def _live(self, log: Log) -> Entries:
        if not log:
            return {}
        if log not in self._logs:
            version, data = log[-1]
            try:
                entries = entries_behind(self._live(log[:-1]), data, f"version {version}")
            except Wrong as wrong:
                raise Violation(str(wrong)) from None
            self._check_rows(log, entries)
            self._logs[log] = entries
        return self._logs[log]

    def _check_rows(self, log: Log, entries: Entries) -> None:
        committed = [i for i, marker in enumerate(self.markers) if any(marker in data for _, data in log)]
        gone = {row for index in committed for row in self.rows.deleted.get(index, ())}
        expected = sorted(set(self._rows_of(entries_of(*self._start).values())) - gone)
        found = sorted(self._rows_of(entries.values()))
        if found != expected:
            raise Violation(f"the rows are {found}, they should be {expected}")

    def _rows_of(self, adds: Iterable[Add]) -> list[Hashable]:
        return [
            row
            for add in adds
            for position, row in enumerate(self.rows.files[add.path])
            if add.deletion_vector is None or position not in self.bitmaps[add.deletion_vector.unique_id]
        ]


def _mark(index: int) -> str:
    """What is in the ids of a writer's vectors."""
    return f"writer-{index}-"
