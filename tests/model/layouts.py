"""The tables that histories are run on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from model.calls import CLUSTERING, COLUMN, DOMAIN, DOMAINS, FEATURE
from model.operations import METADATA, Values, metadata, rows
from refdelta.conformance.judge import Row, State

HIDDEN = (9, 0)
"""A row of version 0 that version 1 deletes, at which all histories begin. It is the first one of its file: with a
deletion vector, no row's place in a copy is its place in the file.
"""

WRITES = ((HIDDEN, (2, 1), (0, 0), (1, 1)), ((3, 1),))
"""What version 0 was written from. Each makes a file, and a partitioned table a file for each colour of each: two files
in a partition, of which one holds two rows.
"""

CREATED = rows(*(row for write in WRITES for row in write)) | {metadata()}
"""Version 0, in the judge's world."""

START = frozenset(row for row in CREATED if row.values != HIDDEN)
"""Version 1."""

WIDE_WRITES = (*WRITES, ((None, 1), (4, 2)))
"""The same of a wide table, which has a row without a key."""

ADDED_COLUMN = frozenset({Row(COLUMN, (COLUMN, "s", "integer")), Row("metadata of version 2", (METADATA,))})
"""What a wide table has from version 2 on, at which its histories begin: a column, and so other metadata."""


def _wide(*, clustered: bool) -> State:
    """Version 0 of a wide table."""
    others = [(DOMAIN, "x", "0"), (FEATURE, DOMAINS), *([(DOMAIN, CLUSTERING, "k")] if clustered else [])]
    data = rows(*(row for write in WIDE_WRITES for row in write))
    return data | {metadata()} | {Row(values, values) for values in others}


@dataclass(frozen=True)
class Layout:
    """How a table is made, and what its transactions ask for.

    Attributes:
        partitioned: whether by colour.
        vectors: whether deletion vectors are enabled.
        asked: whether transactions ask that rows decide over conflicts, or that files do; None: neither.
        tracked: whether rows keep ids.
        wide: whether it has a row without a key, a column ``s``, a metadata domain, and columns that can be altered.
        clustered: whether by the key; only wide tables are.
    """

    partitioned: bool = False
    vectors: bool = False
    asked: bool | None = None
    tracked: bool = False
    wide: bool = False
    clustered: bool = False

    @property
    def by_rows(self) -> bool:
        """Whether rows decide over conflicts."""
        return self.vectors and (not self.partitioned if self.asked is None else self.asked)

    @property
    def table(self) -> Layout:
        """The table alone, whatever transactions ask for."""
        return replace(self, asked=None)

    @property
    def writes(self) -> tuple[tuple[Values, ...], ...]:
        """What version 0 is written from."""
        return WIDE_WRITES if self.wide else WRITES

    @property
    def created(self) -> State:
        """Version 0, in the judge's world."""
        return _wide(clustered=self.clustered) if self.wide else CREATED

    @property
    def start(self) -> State:
        """The version at which histories begin."""
        if not self.wide:
            return START
        before = self.created - {metadata()}
        return frozenset(row for row in before if row.values != HIDDEN) | ADDED_COLUMN

    def __str__(self) -> str:
        words = ["partitioned by colour" if self.partitioned else "unpartitioned"]
        words += [word for word in ("vectors", "tracked", "wide", "clustered") if getattr(self, word)]
        if self.asked is not None:
            words.append("by rows" if self.asked else "by files")
        return ", ".join(words)


PLAIN, PARTITIONED = Layout(), Layout(partitioned=True)
ROWS, PARTITIONED_ROWS = Layout(vectors=True), Layout(partitioned=True, vectors=True, asked=True)
FILES, PARTITIONED_FILES = Layout(vectors=True, asked=False), Layout(partitioned=True, vectors=True)

TRACKED, TRACKED_FILES = Layout(vectors=True, tracked=True), Layout(vectors=True, asked=False, tracked=True)

LAYOUTS = (PLAIN, PARTITIONED, ROWS, FILES, PARTITIONED_ROWS, PARTITIONED_FILES)

TRACKING = (TRACKED, TRACKED_FILES)
"""Likewise of tables that track rows."""

WIDE, WIDE_PARTITIONED = Layout(wide=True), Layout(partitioned=True, wide=True)
WIDE_ROWS, CLUSTERED = Layout(vectors=True, wide=True), Layout(vectors=True, wide=True, clustered=True)

WIDER = (WIDE_ROWS, CLUSTERED, WIDE, WIDE_PARTITIONED)
"""Likewise of wide tables."""

CLUSTERED_TRACKED = replace(CLUSTERED, tracked=True)
"""A clustered table as it is made by default: OPTIMIZE is followed by the ids of rows."""


def each(*layouts: Layout) -> pytest.MarkDecorator:
    """Run a test over each of these layouts."""
    return pytest.mark.parametrize("layout", layouts, ids=lambda layout: str(layout).replace(", ", "-"))
