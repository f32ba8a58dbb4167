"""The claims of a commit, and the conclusions that may be drawn from them: one table, and the functions that decide.

A commit states more than its files: statistics, ``dataChange``, ``isBlindAppend`` and so on. Where such a statement is
wrong, rows are lost to filters, to DML and to the conflict rules. So each field has a row in :data:`TABLE`, by writer,
with the conclusion and its margin; the functions below apply it. Pruning, DML, the conflict rules and lazy readers call
them, and contain no such decision themselves. ``make generate NAME=claims`` writes the table into
``spec_notes/other_writers.md``.

**Bounds.** A bound is believed to the last digit only where this engine wrote it. The evidence is a member of the
statistics themselves, :data:`EXACT_BOUNDS`. It stays with the bounds where another engine copies the text, and it is
gone where another engine writes them anew, for instance in its own time zone. ``commitInfo.engineInfo`` is no evidence
of that: a DELETE of another engine adds files again whose bounds the first writer computed, and the other way round.
"""

from __future__ import annotations

import enum
import functools
from typing import Final

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
    Claim(
        "stats bounds of float and double",
        OURS,
        "Exact. A file with NaN has no maximum.",
        "The mark is in the statistics of every file that has bounds of such a column.",
    ),
    Claim(
        "stats bounds of float and double",
        OTHERS,
        "They bound the values that are not NaN; any row may be NaN, which is the greatest value. A minimum of NaN is "
        "unknown.",
        "deltalake 1.6.6 leaves NaN out of both bounds, and has none where a value is infinite. delta-spark 3.2.1 to "
        "4.4.0 has a maximum of NaN. Delta Kernel 4.0.1 has no bounds where a value is NaN. -0.0 and 0.0, which are "
        "equal, may stand for each other.",
    ),
    Claim(
        "stats bounds of decimals of at most 15 digits",
        OTHERS,
        "Exact.",
        "deltalake 1.6.6 rounds them through a double, which such a decimal survives.",
    ),
    Claim("stats bounds of decimals of more than 15 digits", OURS, "Exact.", "As for floats."),
    Claim(
        "stats bounds of decimals of more than 15 digits",
        OTHERS,
        "Rounded through doubles: moved outwards by 2^-49 of the bound, at least eight steps of a double, and by one "
        "unit of the last digit, but not beyond the type. A bound that the type does not have is unknown, and so is "
        "one of -2^63 or 2^63-1, which stand for all numbers beyond them.",
        "deltalake 1.6.6: at most 2.2 steps in 2,305 random decimals of 38 digits and every scale; it moves a rounded "
        "bound by one more step where it would have too many digits, and saturates whole numbers to 64 bits. "
        "delta-spark 3.2.1 to 4.4.0 and Delta Kernel 4.0.1 are exact.",
    ),
    Claim(
        "stats bounds of timestamp and timestamp_ntz",
        OURS,
        "The maximum holds to the end of its millisecond.",
        "Maxima are rounded up, minima down, to milliseconds.",
    ),
    Claim(
        "stats bounds of timestamp and timestamp_ntz",
        OTHERS,
        "The maximum holds to the end of its millisecond; then a minute on each side, in structs of checkpoints too.",
        "delta-spark 3.2.1 and 3.3.2 cut an offset of +00:53:28 to +00:53, 4.0.1 and later do not; which zone a struct "
        "was made from is not known. All cut both bounds to milliseconds. Delta Kernel 4.0.1 makes times before 1970 "
        "a second late. delta-rs 0.11 (issue_1374) has a minimum that is 3.7 ms above the least value. Local times end "
        "in Z in Kernel; deltalake 1.6.6 has a space before the time of day.",
    ),
    Claim(
        "stats bounds of string",
        OURS,
        "Exact; or cut, and the maximum is above all that it replaces.",
        "At most 32 characters and one that is greater than the next; 64 where there is none.",
    ),
    Claim(
        "stats bounds of string",
        OTHERS,
        "The minimum may be a prefix. A maximum of 8 characters or more stands for every string that begins with it, "
        "up to 32 of the greatest character. U+FFFD at its end stands for any character; after U+10FFFF the "
        "maximum is unknown.",
        "delta-spark 3.2.1 cuts after 32 UTF-16 units and appends U+FFFD, which is below emoji and U+10FFFF; 3.3.2 to "
        "4.4.0 appends U+007F or U+10FFFF. Delta Kernel 4.0.1 keeps whole strings. deltalake 1.6.6 cuts after 64 bytes "
        "and raises the last character. The protocol lets both bounds be cut at a fixed length.",
    ),
    Claim(
        "stats.numRecords and stats.nullCount",
        OTHERS,
        "A count of nulls says that there is none (0) or nothing else (numRecords). A negative count, more nulls than "
        "rows, and a column of nulls that has bounds say nothing. A field of a struct that may be null may have nulls "
        "that are not counted.",
        "deltalake 1.6.6, delta-spark 3.2.1 to 4.4.0 and Delta Kernel 4.0.1 count rightly, where they count: deltalake "
        "leaves out binary columns, Kernel floats with NaN.",
    ),
    Claim(
        "stats of a file that another engine adds again",
        OTHERS,
        "Those of this engine without the mark are those of another writer.",
        "delta-spark 3.2.1 to 4.4.0 writes the statistics of a file anew where it adds a deletion vector, in the time "
        "zone of its session and without the mark, also from a checkpoint with structs only.",
    ),
    Claim(
        "commitInfo.engineInfo",
        "any",
        "Names the writer: refdelta/VERSION, Apache-Spark/VERSION Delta-Lake/VERSION, Databricks-Runtime/VERSION, "
        "delta-rs:VERSION. Every other value, a commit without it, and a commit with two commitInfos is of any other "
        "writer. It can be imitated; an engine that takes another's name answers for it.",
        "deltalake 1.6 writes delta-rs:py-1.6.6; older golden tables have none, or <unknown>.",
    ),
    Claim(
        "deletionVector with more rows than the one before",
        "refdelta: DELETE, UPDATE, MERGE, WRITE; delta-spark and Databricks: DELETE, UPDATE, MERGE",
        "Hides all rows that the one before hid, and more.",
        "All 11 in the golden tables whose vectors are there, by Databricks 16 and 17.",
    ),
    Claim(
        "deletionVector with more rows than the one before",
        "any other writer or operation",
        "Nothing: both vectors are read. Rows that the new one does not hide are added rows.",
        "CLONE and RESTORE give a file any vector that it had before.",
    ),
    Claim(
        "dataChange=false of all files",
        "refdelta, delta-spark: OPTIMIZE, REORG, COMPUTE STATS, ROW TRACKING BACKFILL; delta-rs, Databricks: OPTIMIZE",
        "The added files hold the rows of the removed ones. Not believed where the files contradict it: a rewrite that "
        "removes no file, or adds a path that it removes; a refresh that removes files; or, except by refdelta, "
        "numbers of live rows that differ, where all statistics have them.",
        "In the golden tables, all 8 compactions (Databricks) keep the number of rows, and their removes have "
        "statistics. Those of deltalake 1.6 have none.",
    ),
    Claim(
        "dataChange=false of all files",
        "any other writer or operation",
        "Nothing: rows of added files may be new, as with dataChange=true. In Spark it is an option of each write.",
        "",
    ),
    Claim(
        "dataChange=false of some files",
        "any",
        "Nothing: rows of all added files may be new.",
        "Only files that a user prepared mix both in one commit.",
    ),
    Claim(
        "isBlindAppend=true",
        "any",
        "The transaction read nothing. Not believed of a commit that removes a file, adds one with dataChange=false, "
        "records reads, or is a DELETE, UPDATE, MERGE, RESTORE, OPTIMIZE or REORG. Beyond that only the writer knows.",
        "deltalake 1.6 never writes it: none of its appends is blind. All 262 in the golden tables (delta-spark, "
        "Databricks) pass these tests.",
    ),
    Claim(
        "commitInfo.readPredicates, commitInfo.readDomains",
        "refdelta",
        "All rows and domains that the transaction read.",
        "",
    ),
    Claim(
        "commitInfo.readPredicates, commitInfo.readDomains",
        "any other",
        "Nothing: the transaction may have read everything.",
        "No other engine is known to write them.",
    ),
    Claim(
        "commitInfo.readVersion",
        "refdelta, delta-spark",
        "The transaction saw no later version. A number that is no version before its own says nothing.",
        "All 222 in the golden tables are of an earlier version.",
    ),
    Claim(
        "commitInfo.readVersion",
        "any other",
        "Nothing: the transaction may have seen every version before its own.",
        "deltalake 1.6 writes it for OPTIMIZE, DELETE, UPDATE, MERGE and RESTORE, not for WRITE.",
    ),
    Claim(
        "commitInfo.isolationLevel",
        "any",
        "WriteSerializable: the transaction may be moved in front of an append in the serial order. Anything else, and "
        "nothing: it keeps its place.",
        "deltalake 1.6 does not write it.",
    ),
    Claim(
        "commitInfo.txnId",
        "any",
        "The commit with the id of a transaction is its commit. The id is a new random UUID, so that only a copy of "
        "that commit can have it.",
        "",
    ),
    Claim(
        "commitInfo.rowPlaces",
        "refdelta: OPTIMIZE, REORG",
        "Rows are at these places, if the record agrees with the actions: the runs of an output are its numRecords; "
        "those of an input are without gap or overlap, and are its numRecords less the rows of the recorded vector, "
        "which hides no more than the vector of the remove; every input is removed. Else the files were removed; so, "
        "too, if rows that the transaction read do not satisfy its reads at their new places.",
        "",
    ),
    Claim(
        "commitInfo.rowPlaces",
        "any other writer or operation",
        "The same, with numRecords of each input known, and only where the rows that the transaction read satisfy its "
        "reads at their new places too, and it changes all of them or none.",
        "An engine written from the documents recorded wrong places in its first race.",
    ),
    Claim(
        "row ids of rewritten files",
        "refdelta, delta-spark: OPTIMIZE, REORG",
        "Rows keep their ids, unless those that the transaction read do not satisfy its reads at their new places.",
        "",
    ),
    Claim(
        "row ids of rewritten files",
        "any other writer or operation",
        "Rows keep their ids only where those that the transaction read satisfy its reads at their new places too.",
        "",
    ),
)
"""The table: a row for each field and writer."""


# --- bounds ------------------------------------------------------------------------------------------------------

EXACT_BOUNDS = "refdeltaExactBounds"
"""The member of the statistics of a file (``stats``, ``stats_parsed``) by which this engine marks its own bounds."""

DOUBLE_DIGITS = 15
"""Every decimal of so many digits survives a double."""

DECIMAL_SHIFT = 49
"""The margin of a decimal is the bound times 2^-49: a double has 53 significant bits, so this is at least eight of its
steps. The roundings that were measured take up to 2.2.
"""

MILLISECOND = 1_000
"""Times are cut to milliseconds in statistics; in microseconds."""

TIME_MARGIN = 60_000_000
"""The margin of a time: offsets of time zones are cut to minutes, times before 1970 are a second late; in
microseconds.
"""

CUT_LENGTH = 8
"""The fewest characters to which strings are cut in statistics."""

REPLACED = "\ufffd"
"""The character that older Spark appended to a maximum that it had cut after 32 UTF-16 units. It is below emoji."""

LAST_CHARACTER = "\U0010ffff"
"""The greatest character, which is none of any script."""

TEXT_MARGIN = LAST_CHARACTER * 32
"""The margin of a string that may be cut: what is appended to it."""

_LAST_TIME = 2**63 - 1


_CLAIMED = frozenset({"float", "double", "timestamp", "timestamp_ntz"})


def needs_mark(type_name: str | None, precision: int, low: str | None, high: str | None) -> bool:
    """True if the bounds of a column would have a margin without :data:`EXACT_BOUNDS`.

    Args:
        type_name: the type's name in a schema, such as ``double``; a decimal's is ``decimal``.
        precision: a decimal's digits; else any.
        low: the minimum as JSON; None if there is none.
        high: the maximum, likewise.
    """
    if type_name == "string":
        return high is not None and len(high) >= CUT_LENGTH + len('""')
    claimed = type_name in ("float", "double", "timestamp", "timestamp_ntz") or (
        type_name == "decimal" and precision > DOUBLE_DIGITS
    )
    return claimed and not (low is None and high is None)


def decimal_margin(unscaled: int) -> int:
    """The margin of a bound, where decimals have more than :data:`DOUBLE_DIGITS` digits.

    Args:
        unscaled: the bound in units of the last digit.

    Returns:
        The margin in the same units.
    """
    return abs(unscaled >> DECIMAL_SHIFT) + 1


def decimal_low(unscaled: int, precision: int, scale: int) -> int | None:
    """The lower bound that follows from a minimum of another writer; None if it says nothing.

    Args:
        unscaled: the minimum, in units of the last digit, as is the result.
        precision: the digits of the type.
        scale: those after the decimal point.
    """
    if precision <= DOUBLE_DIGITS:
        return unscaled
    if is_saturated(unscaled, scale):
        return None
    return max(unscaled - decimal_margin(unscaled), -_most(precision))


def decimal_high(unscaled: int, precision: int, scale: int) -> int | None:
    """The upper bound that follows from a maximum of another writer; see :func:`decimal_low`."""
    if precision <= DOUBLE_DIGITS:
        return unscaled
    if is_saturated(unscaled, scale):
        return None
    return min(unscaled + decimal_margin(unscaled), _most(precision))


def _most(precision: int) -> int:
    return int(10**precision) - 1


SATURATED = (-(2**63), 2**63 - 1)
"""The numbers that stand for all decimals beyond them."""


def is_saturated(unscaled: int, scale: int) -> bool:
    """True if a bound of a decimal may stand for any number beyond it."""
    return unscaled in [number * 10**scale for number in SATURATED]


def time_low(micros: int, *, exact: bool) -> int:
    """The lower bound that follows from the minimum of a time, in microseconds.

    Args:
        micros: the minimum.
        exact: whether the statistics are marked.
    """
    return micros if exact else max(micros - TIME_MARGIN, -_LAST_TIME - 1)


def time_high(micros: int, *, exact: bool) -> int:
    """The upper bound that follows from the maximum of a time; see :func:`time_low`."""
    if micros % MILLISECOND == 0:
        micros = micros + MILLISECOND - 1 if micros <= _LAST_TIME - MILLISECOND else micros
    return micros if exact else min(micros + TIME_MARGIN, _LAST_TIME)


def text_high(text: str, *, exact: bool) -> str | None:
    """The upper bound that follows from the maximum of a string; None if it says nothing."""
    cut = text.endswith(REPLACED)
    if cut:
        text = text[:-1].removesuffix("?")  # half of an emoji became "?"
    if exact:
        return text + LAST_CHARACTER if cut else text
    if not cut and len(text) < CUT_LENGTH:
        return text
    return None if cut and text.endswith(LAST_CHARACTER) else text + TEXT_MARGIN


# --- counts ------------------------------------------------------------------------------------------------------


def row_count(rows: int | None) -> int | None:
    """The number of rows of a file that follows from ``numRecords``; None if it says nothing."""
    return None if rows is None or rows < 0 else rows


def null_count(nulls: int | None, rows: int | None, *, bounded: bool) -> int | None:
    """The number of nulls of a column that follows from ``nullCount``; None if it says nothing.

    Args:
        nulls: ``nullCount``.
        rows: see :func:`row_count`.
        bounded: whether the column has a minimum or a maximum.

    Returns:
        Only 0 and the number of rows have a meaning.
    """
    if nulls is None or nulls < 0 or (rows is not None and (nulls > rows or (nulls == rows and bounded))):
        return None
    return nulls


# --- commitInfo, dataChange, vectors -------------------------------------------------------------------------------


class Engine(enum.Enum):
    """The writer of a commit, by ``commitInfo.engineInfo``. A writer that takes another's name is believed like it."""

    REFDELTA = "refdelta"
    DELTA_SPARK = "delta-spark"
    DATABRICKS = "Databricks"
    DELTA_RS = "delta-rs"
    OTHER = "any other"


def engine_of(engine_info: object) -> Engine:
    """The writer of a commit.

    Args:
        engine_info: ``commitInfo.engineInfo``, of any type.
    """
    return _engine_of(engine_info) if type(engine_info) is str else Engine.OTHER


@functools.lru_cache(64)
def _engine_of(engine_info: str) -> Engine:
    if engine_info.startswith("refdelta/"):
        return Engine.REFDELTA
    if engine_info.startswith("Apache-Spark/") and " Delta-Lake/" in engine_info:
        return Engine.DELTA_SPARK
    if engine_info.startswith("Databricks-Runtime/"):
        return Engine.DATABRICKS
    return Engine.DELTA_RS if engine_info.startswith("delta-rs:") else Engine.OTHER


_DELETING = {
    # An overwrite of ours by a predicate hides rows, too; a vector that a user prepared is refused.
    Engine.REFDELTA: frozenset({"DELETE", "UPDATE", "MERGE", "WRITE"}),
    Engine.DELTA_SPARK: frozenset({"DELETE", "UPDATE", "MERGE"}),
    Engine.DATABRICKS: frozenset({"DELETE", "UPDATE", "MERGE"}),
}

_REWRITES: Final = frozenset({"OPTIMIZE", "REORG"})
_REFRESHES: Final = frozenset({"COMPUTE STATS", "ROW TRACKING BACKFILL"})

_MOVING = {
    Engine.REFDELTA: _REWRITES | _REFRESHES,
    Engine.DELTA_SPARK: _REWRITES | _REFRESHES,
    Engine.DATABRICKS: frozenset({"OPTIMIZE"}),
    Engine.DELTA_RS: frozenset({"OPTIMIZE"}),
}

_READING: Final = frozenset({"DELETE", "UPDATE", "MERGE", "RESTORE", "OPTIMIZE", "REORG"})


def only_deletes(engine: Engine, operation: str | None) -> bool:
    """Whether a deletion vector of more rows hides all rows that the one before it hid."""
    return operation in _DELETING.get(engine, ())


def only_moves(engine: Engine, operation: str | None, *, adds: bool, removes: bool) -> bool:
    """Whether files with ``dataChange=false`` hold the rows that were there before, and no others.

    Args:
        engine: the writer.
        operation: ``commitInfo.operation``.
        adds: whether files are added.
        removes: whether files are removed.
    """
    if operation not in _MOVING.get(engine, ()):
        return False
    # A rewrite puts files in the place of files; a refresh adds the live files again.
    return not (adds and removes) if operation in _REFRESHES else removes or not adds


def reads_nothing(operation: str | None, *, recorded: bool, adds_data: bool) -> bool:
    """Whether ``isBlindAppend`` is believed of a commit that removes no file.

    Args:
        operation: ``commitInfo.operation``.
        recorded: whether the commit records reads.
        adds_data: whether every file that it adds has ``dataChange``.
    """
    return adds_data and not recorded and operation not in _READING


def states_reads(engine: Engine) -> bool:
    """Whether ``readPredicates`` and ``readDomains`` are all that the transaction read."""
    return engine is Engine.REFDELTA


def states_version(engine: Engine) -> bool:
    """Whether the transaction saw ``readVersion`` and no later version."""
    return engine in {Engine.REFDELTA, Engine.DELTA_SPARK}


def version_read(stated: int | None, version: int) -> int | None:
    """``readVersion`` of a commit of this version; None if it is no version before it."""
    return stated if stated is not None and 0 <= stated < version else None


def keeps_order(engine: Engine, operation: str | None) -> bool:
    """Whether rows are at the places of ``rowPlaces``, if its sums agree with the actions of the commit."""
    return engine is Engine.REFDELTA and operation in _REWRITES


def keeps_row_ids(engine: Engine, operation: str | None) -> bool:
    """Whether rows that a rewrite moved have the row ids that they had before."""
    return engine in {Engine.REFDELTA, Engine.DELTA_SPARK} and operation in _REWRITES
