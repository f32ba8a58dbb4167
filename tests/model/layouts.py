"""The tables that histories are run on."""

from __future__ import annotations

from dataclasses import dataclass

from model.operations import metadata, rows

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


@dataclass(frozen=True)
class Layout:
    """How a table is made, and what its transactions ask for.

    Attributes:
        partitioned: whether by colour.
        vectors: whether deletion vectors are enabled.
        asked: whether transactions ask that rows decide over conflicts, or that files do; None: neither.
        tracked: whether rows keep ids.
    """

    partitioned: bool = False
    vectors: bool = False
    asked: bool | None = None
    tracked: bool = False

    @property
    def by_rows(self) -> bool:
        """Whether rows decide over conflicts."""
        return self.vectors and (not self.partitioned if self.asked is None else self.asked)

    @property
    def table(self) -> Layout:
        """The table alone, whatever transactions ask for."""
        return Layout(self.partitioned, self.vectors, tracked=self.tracked)

    def __str__(self) -> str:
        words = ["partitioned by colour" if self.partitioned else "unpartitioned"]
        if self.vectors:
            words.append("vectors")
        if self.tracked:
            words.append("tracked")
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
