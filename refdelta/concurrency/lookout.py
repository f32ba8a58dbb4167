"""Whether rows that winners added answer to what a transaction read: when they are looked at, and when files must do.

Looking costs reads of data files, so there is a budget; and not every predicate is looked at by rows. Where files
decide instead, the reason is kept: the result, or the error, says it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from pyroaring import BitMap64

from refdelta.concurrency.edits import num_records
from refdelta.concurrency.read_set import ReadSet
from refdelta.protocol.actions import Add, DeletionVectorDescriptor
from refdelta.protocol.deletion_vector import encode_inline, serialize_bitmap
from refdelta.protocol.predicate import Predicate, column_refs
from refdelta.protocol.replay import file_key
from refdelta.protocol.types import ArrayType, MapType, StructType

_TRACED_BYTES = 48
"""How many bytes it takes to find a row by its id, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBudget:
    """How much may be looked at. What needs deletion vectors only is not counted.

    Attributes:
        size: bytes of the data files, together.
        attempts: how often, once for each winner.
        seconds: how long, together.
    """

    size: int = 2**30
    attempts: int = 1000
    seconds: float = 60.0


@dataclass(slots=True)
class Lookout:
    """What was looked at so far.

    Attributes:
        budget: how much may be.
        unfit: why the rows of no file can be looked at; None where they can.
        answers: what was found, by file, for the winner that is being checked.
        reasons: why files had to do.
    """

    budget: RowBudget
    unfit: str | None = None
    answers: dict[tuple[str, str | None], bool] = field(default_factory=dict)
    reasons: dict[str, None] = field(default_factory=dict)
    _size: int = 0
    _attempts: int = 0
    _seconds: float = 0.0

    def refusal(self, files: list[Add]) -> str | None:
        """Why these files cannot be looked at; None where they can."""
        budget = self.budget
        if self.unfit is not None:
            return self.unfit
        if self._size + sum(add.size for add in files) > budget.size:
            return f"the rows of winners' new files are beyond the budget of {budget.size:,} bytes"
        if self._attempts >= budget.attempts:
            return (
                f"the rows of winners' new files were looked at {budget.attempts:,} times, which is all of the budget"
            )
        if self._seconds >= budget.seconds:
            return f"looking at winners' new files took all of the budget of {budget.seconds:g} seconds"
        return None

    def too_many_to_trace(self, files: Sequence[Add], *, limited: bool = True) -> str | None:
        """The reason why rows cannot be looked for by their ids in these files; None where they can.

        Args:
            files: the files.
            limited: whether the budget applies.
        """
        counts = [num_records(add) for add in files]
        known = [count for count in counts if count is not None]
        if len(known) < len(counts):
            return "files that winners rearranged do not say how many rows they have"
        if limited and sum(known) * _TRACED_BYTES > self.budget.size:
            return f"the rows of files that winners rearranged are beyond the budget of {self.budget.size:,} bytes"
        return None

    def knows(self, add: Add) -> bool:
        """Whether this file was looked at."""
        return file_key(add) in self.answers

    def matches(self, add: Add) -> bool:
        """What was found in this file."""
        return self.answers[file_key(add)]

    def answer(self, files: Sequence[Add], found: Sequence[bool], seconds: float) -> None:
        """Take note of what was found for the winner that is being checked; files behind the last one were not asked,
        as one with a row that matches is enough.
        """
        self._size += sum(add.size for add in files)
        self._attempts += 1
        self._seconds += seconds
        self.answers.update((file_key(add), bool(matches)) for add, matches in itertools.zip_longest(files, found))

    def fail(self, files: Sequence[Add], why: str) -> None:
        """Take note that these files could not be looked at, so that any row of theirs may match."""
        self.reasons[f"the rows of winners' new files cannot be looked at: {why}"] = None
        self.answers.update((file_key(add), True) for add in files)


def unfit(read: ReadSet) -> str | None:
    """Why rows cannot be asked what a transaction read; None where they can.

    Predicates on structs, arrays and maps are decided by files, as the documentation has it. Those whose value changes
    from one look to the next are refused when they are parsed.
    """
    for one in read.reads:
        if not one.finer and (names := _nested(one.predicate)):
            return f"the predicate is on a struct, an array or a map ({', '.join(names)})"
    return None


def _nested(predicate: Predicate) -> list[str]:
    found = column_refs(predicate)
    return sorted(
        {
            ".".join(column.path)
            for column in found
            if len(column.path) > 1 or isinstance(column.type, (StructType, ArrayType, MapType))
        }
    )


def only(add: Add, rows: BitMap64) -> Add:
    """The file with no other rows than these, by a deletion vector that hides the others and stands nowhere else."""
    records = num_records(add)
    if records is None:
        return add
    hidden = BitMap64(range(records)) - rows
    hidden.run_optimize()
    body = serialize_bitmap(hidden)
    vector = DeletionVectorDescriptor(
        storage_type="i", path_or_inline_dv=encode_inline(body), size_in_bytes=len(body), cardinality=len(hidden)
    )
    return msgspec.structs.replace(add, deletion_vector=vector)
