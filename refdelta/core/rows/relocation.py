"""Row relocation: the places of the rows of a compaction's inputs in its outputs, and their record in the commit.

A compaction writes the live rows of its inputs one after the other, in the order of each file. So the place of a row
follows from its number among the live rows of its input, as the compaction read it: from the record here, and never
from the removes of the log, whose vectors may have grown since (concurrency.md, "Validation", number 6).

Without a record, rows of tables with row tracking are located by their ids, see :class:`RelocationById`.

Both are claims of the winner (:mod:`refdelta.core.log.claims`). A record counts only if it :func:`agrees <agrees>` with
the actions of its commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from pyroaring import BitMap64

from refdelta.core.log.actions import Add, DeletionVectorDescriptor
from refdelta.core.log.footprint import Footprint
from refdelta.core.log.paths import same_path
from refdelta.core.log.statistics import num_records
from refdelta.core.rows.sets import MOST_ROWS, NONE, All, Rows, carry, renumber

ROW_PLACES = "rowPlaces"
"""The field of commitInfo with the record: output path to its :class:`CopiedRows` values, in order."""


class CopiedRows(msgspec.Struct, frozen=True):
    """Rows of one input, in one output.

    Attributes:
        path: the input's path, as the log writes it.
        vector: the deletion vector that the compaction read; None if there was none.
        start: the number of the first of these rows among the input's live rows, from 0, in the order of the file.
        rows: the number of consecutive rows.
    """

    path: str
    vector: DeletionVectorDescriptor | None
    start: int
    rows: int


class Input(msgspec.Struct, frozen=True):
    """A file that a compaction read.

    Attributes:
        add: its add action.
        base: the rows that its deletion vector hides, as the compaction read it; empty if it has none.
    """

    add: Add
    base: BitMap64


class Output(msgspec.Struct, frozen=True):
    """A file that a compaction wrote.

    Attributes:
        add: its add action.
        places: the sources of its rows, all of them and in their order. Empty if the group is permuted.
    """

    add: Add
    places: tuple[CopiedRows, ...] = ()


class Group(msgspec.Struct, frozen=True):
    """Inputs and outputs that belong together: the outputs hold all live rows of the inputs, and only these.

    Attributes:
        inputs: the files that are removed.
        outputs: the files that are added.
        permuted: whether rows were sorted (ZORDER), so that only their ids can locate them.
    """

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    permuted: bool = False


class Span(msgspec.Struct, frozen=True):
    """Consecutive rows of one input in one output.

    Attributes:
        output: the normalized path of the output (:func:`~refdelta.core.log.paths.same_path`).
        start: the number of the first of them among the input's live rows.
        rows: their number.
        offset: the position of the first of them in the output.
    """

    output: str
    start: int
    rows: int
    offset: int


class Relocation(msgspec.Struct, frozen=True):
    """The new places of all live rows of one input.

    Attributes:
        vector: its deletion vector as the compaction read it.
        spans: the places in the order of the input, without gaps, from its first live row on.
        copied: the number of rows that the compaction copied, also to outputs that ``spans`` leave out; None if it is
            not recorded.
    """

    vector: DeletionVectorDescriptor | None
    spans: tuple[Span, ...]
    copied: int | None = None

    @property
    def outputs(self) -> Collection[str]:
        """The normalized paths of the outputs."""
        return {span.output for span in self.spans}

    @property
    def extents(self) -> Iterator[tuple[str, int]]:
        """Outputs, and the least number of rows that each must have."""
        return ((span.output, span.offset + span.rows) for span in self.spans)

    def within(self, outputs: Container[str]) -> Relocation:
        """The relocation to these outputs only; rows in others are lost."""
        spans = tuple(span for span in self.spans if span.output in outputs)
        return Relocation(self.vector, spans, self.copied)

    def follow(self, rows: Rows, hidden: BitMap64) -> tuple[dict[str, BitMap64], int]:
        """The new places of rows of the input.

        Args:
            rows: positions in the input, or all rows that the compaction copied.
            hidden: the rows that ``vector`` hides; not needed for all rows.

        Returns:
            The positions by output, and the number of rows that are in none of them.
        """
        found: dict[str, BitMap64] = {}
        if isinstance(rows, All):
            parts = [BitMap64(range(span.offset, span.offset + span.rows)) for span in self.spans]
            lost = 0
        else:
            parts = renumber(rows, hidden, [(span.start, span.rows, span.offset) for span in self.spans])
            lost = len(rows) - sum(map(len, parts))
        for span, part in zip(self.spans, parts, strict=True):
            if len(part):
                found[span.output] = found.get(span.output, NONE) | part
        return found, lost


class LocatedRows(msgspec.Struct, frozen=True):
    """Single rows of an input in one output.

    Attributes:
        output: the normalized path of the output.
        at: their positions in the input, ascending, in the form of :func:`~refdelta.core.rows.sets.carry`.
        to: their positions in the output, likewise.
        records: the number of rows of the output.
    """

    output: str
    at: bytes
    to: bytes
    records: int


class RelocationById(Relocation, frozen=True, kw_only=True):
    """The new places of the live rows of one input, located by their row ids (PROTOCOL.md, "Row Tracking").

    Attributes:
        parts: by output.
    """

    parts: tuple[LocatedRows, ...]

    @property
    def outputs(self) -> Collection[str]:
        """The normalized paths of the outputs."""
        return {part.output for part in self.parts}

    @property
    def extents(self) -> Iterator[tuple[str, int]]:
        """Outputs, and their numbers of rows."""
        return ((part.output, part.records) for part in self.parts)

    def follow(self, rows: Rows, hidden: BitMap64) -> tuple[dict[str, BitMap64], int]:  # noqa: ARG002
        """As :meth:`Relocation.follow`; ``hidden`` is not needed."""
        found = {part.output: carry(rows, part.at, part.to) for part in self.parts}
        lost = 0 if isinstance(rows, All) else len(rows) - sum(map(len, found.values()))
        return {output: places for output, places in found.items() if len(places)}, lost


def relocations(outputs: Iterable[tuple[str, Sequence[CopiedRows]]]) -> dict[str, Relocation]:
    """The new places of the rows of each input, by its normalized path.

    Args:
        outputs: the path of each output, and the sources of its rows.

    Raises:
        ValueError: the places contradict each other.
    """
    spans: dict[str, list[Span]] = {}
    vectors: dict[str, DeletionVectorDescriptor | None] = {}
    for path, places in outputs:
        offset = 0
        for place in places:
            key = same_path(place.path)
            if vectors.setdefault(key, place.vector) != place.vector or place.start < 0 or place.rows <= 0:
                raise ValueError(f"places of {place.path!r} that do not go together")
            spans.setdefault(key, []).append(Span(same_path(path), place.start, place.rows, offset))
            offset += place.rows
            if offset > MOST_ROWS:
                raise ValueError(f"{path!r} has more than {MOST_ROWS:,} rows")
    found = {}
    for key, parts in spans.items():
        parts.sort(key=lambda span: span.start)
        ends = [0, *(span.start + span.rows for span in parts)]
        if any(span.start != end for span, end in zip(parts, ends, strict=False)):
            raise ValueError(f"a row of {key!r} that is in no output, or in two")
        found[key] = Relocation(vectors[key], tuple(parts), ends[-1])
    return found


def sizes(found: Mapping[str, Relocation]) -> dict[str, int]:
    """The least number of rows that each output must have, by its normalized path."""
    least: dict[str, int] = {}
    for relocation in found.values():
        for output, rows in relocation.extents:
            least[output] = max(rows, least.get(output, 0))
    return least


# --- the record -------------------------------------------------------------------------------------------------


def record(groups: Iterable[Group]) -> dict[str, Any]:
    """The fields of commitInfo with the places of the rows of these groups; empty if all are permuted."""
    outputs = [output for group in groups if not group.permuted for output in group.outputs]
    if not outputs:
        return {}
    return {ROW_PLACES: {output.add.path: [_json(place) for place in output.places] for output in outputs}}


def _json(place: CopiedRows) -> dict[str, Any]:
    vector = {} if place.vector is None else {"deletionVector": msgspec.to_builtins(place.vector)}
    return {"path": place.path, **vector, "start": place.start, "rows": place.rows}


# Bounds the ranges of rows that a hostile log can name.
_Rows = Annotated[int, msgspec.Meta(ge=0, le=MOST_ROWS)]


class _Recorded(msgspec.Struct, rename="camel"):
    path: str
    start: _Rows
    rows: _Rows
    deletion_vector: DeletionVectorDescriptor | None = None


msgspec.json.Decoder(_Recorded)  # see decode_json


def recorded_relocations(winner: Footprint) -> dict[str, Relocation]:
    """The recorded places of the rows that a winner has compacted, by normalized path of the input. Empty if it moves
    no rows, has no valid record, or one with an input that it does not remove. See also :func:`agrees`.
    """
    if winner.row_places is None or not winner.rearranges:
        return {}
    try:
        outputs = msgspec.convert(winner.row_places, dict[str, list[_Recorded]])
        found = relocations(
            (path, [CopiedRows(one.path, one.deletion_vector, one.start, one.rows) for one in copied])
            for path, copied in outputs.items()
        )
    except (msgspec.ValidationError, ValueError):
        return {}
    if not found.keys() <= winner.removed.keys():
        return {}
    # An output without a live row is recorded, and not added.
    return {path: rows.within(winner.added) for path, rows in found.items()}


def agrees(found: Mapping[str, Relocation], winner: Footprint, records: Callable[[str], int | None]) -> bool:
    """Whether a record does not contradict the actions of its commit: the runs of each output are all of its rows, and
    those of each input all rows that were live under the recorded vector. Unknown numbers contradict nothing.

    Args:
        found: the record, from :func:`recorded_relocations`.
        winner: the commit.
        records: gives the number of rows of an input, by its normalized path; None where it is not known.
    """
    for path, relocation in found.items():
        removed, hidden = winner.removed[path].deletion_vector, _cardinality(relocation.vector)
        rows = records(path)
        # Vectors of inputs only grow while a compaction runs: it drops a group in which rows came back.
        if hidden > _cardinality(removed) or (rows is not None and relocation.copied != rows - hidden):
            return False
    outputs = sizes(found)
    there = ((num_records(winner.with_statistics(winner.added[path], len(outputs))), outputs[path]) for path in outputs)
    return all(records is None or records == rows for records, rows in there)


def _cardinality(vector: DeletionVectorDescriptor | None) -> int:
    return 0 if vector is None else vector.cardinality
