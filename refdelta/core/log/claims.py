"""The claims of a commit, and the conclusions that may be drawn from them: one table, and the functions that decide.

A commit states more than its files: statistics, ``dataChange``, ``isBlindAppend`` and so on. Where such a statement is
wrong, rows are lost to filters, to DML and to the conflict rules. So each field has a row in :data:`TABLE`, by writer,
with the conclusion and its margin; the functions below apply it. Pruning, DML, the conflict rules and lazy readers call
them, and contain no such decision themselves. ``make claims`` writes the table into ``spec_notes/other_writers.md``.

**Bounds.** A bound is believed to the last digit only where this engine wrote it. The evidence is a member of the
statistics themselves, :data:`EXACT_BOUNDS`. It stays with the bounds where another engine copies them, for instance to
add a deletion vector, and it is gone where another engine computes them anew. ``commitInfo.engineInfo`` is no evidence
of that: a DELETE of another engine adds files again whose bounds the first writer computed, and the other way round.
"""

from __future__ import annotations

import msgspec


class Claim(msgspec.Struct, frozen=True):
    """A row of the table.

    Attributes:
        field: the field of the log, with the type of the column where that matters.
        writer: the engines and versions.
        concluded: the conclusion that may be drawn, and its margin.
        measured: the observation, with versions.
    """

    field: str
    writer: str
    concluded: str
    measured: str


OURS = "refdelta (marked)"
OTHERS = "any other"

TABLE: tuple[Claim, ...] = (
    Claim("stats bounds of float and double", OURS, "Exact. A file with NaN has no maximum.", ""),
    Claim(
        "stats bounds of float and double",
        OTHERS,
        "They bound the values that are not NaN; any row may be NaN, which is the greatest value. A minimum that is NaN "
        "is unknown.",
        "",
    ),
    Claim("stats bounds of decimals of at most 15 digits", OTHERS, "Exact: such a decimal survives a double.", ""),
    Claim("stats bounds of decimals of more than 15 digits", OURS, "Exact.", ""),
    Claim(
        "stats bounds of decimals of more than 15 digits",
        OTHERS,
        "Rounded through doubles: moved outwards by 2^-49 of the bound, at least eight steps of a double, and by one unit "
        "of the last digit, but not beyond the type. A bound beyond the type is unknown.",
        "",
    ),
    Claim("stats bounds of timestamp", OURS, "The maximum holds to the end of its millisecond.", ""),
    Claim("stats bounds of timestamp", OTHERS, "As before, and a minute on each side.", ""),
    Claim("stats bounds of string", OURS, "Exact, or cut with a maximum that is above all that it stands for.", ""),
    Claim(
        "stats bounds of string",
        OTHERS,
        "The minimum may be a prefix. A maximum of 32 characters or more stands for every string that begins with it.",
        "",
    ),
)
"""The table: a row for each field and writer."""

EXACT_BOUNDS = "refdeltaExactBounds"
"""The member of the statistics of a file (``stats``, ``stats_parsed``) by which this engine marks its own bounds."""
