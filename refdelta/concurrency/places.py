"""Where the rows of a compaction's inputs are in its outputs, and how a commit records that.

A compaction writes the live rows of its inputs one after the other, in the order of each file. So the place of a row
follows from its number among the live rows of its input, as the compaction read it: from the record here, and never
from the removes of the log, whose vectors may have grown since (concurrency.md, "Validation", number 6).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
from pyroaring import BitMap64

from refdelta.protocol.actions import Add, DeletionVectorDescriptor

ROW_PLACES = "rowPlaces"
"""The field of commitInfo with the record: output path to its :class:`Place` values, in order."""


@dataclass(frozen=True, slots=True)
class Place:
    """Rows of one input, in one output.

    Attributes:
        path: the input's path, as the log writes it.
        vector: its deletion vector as the compaction read it; None where it had none.
        start: the number of the first of these rows among the input's live rows, from 0, in the order of the file.
        rows: how many rows, one after the other.
    """

    path: str
    vector: DeletionVectorDescriptor | None
    start: int
    rows: int


@dataclass(frozen=True, slots=True)
class Input:
    """A file that a compaction read.

    Attributes:
        add: the log's entry.
        base: the rows that its deletion vector hides, as the compaction read it; empty where it has none.
    """

    add: Add
    base: BitMap64


@dataclass(frozen=True, slots=True)
class Output:
    """A file that a compaction wrote.

    Attributes:
        add: its action.
        places: where its rows are from: the file holds the rows of these, in their order, and no others. Empty where
            the group is permuted.
    """

    add: Add
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Inputs and outputs that belong together: the outputs hold all live rows of the inputs, and only these.

    Attributes:
        inputs: the files that go.
        outputs: the files that come.
        permuted: whether rows changed their order (ZORDER), so that nobody can say where one is.
    """

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    permuted: bool = False


def record(groups: Iterable[Group]) -> dict[str, Any]:
    """The fields of commitInfo that say where the rows of these groups went; none where nobody can say."""
    outputs = [output for group in groups if not group.permuted for output in group.outputs]
    if not outputs:
        return {}
    return {ROW_PLACES: {output.add.path: [_json(place) for place in output.places] for output in outputs}}


def _json(place: Place) -> dict[str, Any]:
    vector = {} if place.vector is None else {"deletionVector": msgspec.to_builtins(place.vector)}
    return {"path": place.path, **vector, "start": place.start, "rows": place.rows}
