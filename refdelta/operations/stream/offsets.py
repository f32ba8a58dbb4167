"""The offsets of a stream of a table, its options, and the limits of its batches."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.errors import InvalidArgumentError, PredicateError
from refdelta.expressions.binding import bind_value
from refdelta.expressions.evaluate import evaluate_value
from refdelta.expressions.expression import Call, Column, Literal
from refdelta.table.types import STRING, StructField, StructType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from refdelta.expressions.expression import Value


class StreamStart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The start of a stream.

    Attributes:
        version: a version of the table.
        snapshot: whether the stream begins with all rows of the version, or with those that its commit added.
        commit: the hash of the commit file of the version, if the stream begins with all of its rows; None if the log
            did not have the file any more.
        created: for a follower: the time of the table's creation as it was known then, in milliseconds since 1970.
    """

    version: int
    snapshot: bool
    commit: str | None = None
    created: int | None = None


class Offset(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="sourceVersion", tag=1
):
    """A position in a stream. Spark stores it in a checkpoint, as JSON.

    The JSON is that of delta-spark, which ignores the last three attributes: each of the two can continue a checkpoint
    of the other.

    A version is a number, which another commit may have after a table was restored from a copy. So an offset has the
    hash of the commit, too. Spark does not store the start of a first batch, and asks for it again when it repeats that
    batch. So each offset has the start of its stream.

    Attributes:
        table_id: the id of the table.
        version: the version whose files are next.
        index: the index of its last file that was read, counted from 0; -1 if none was.
        snapshot: whether these are all files of the version, or those that its commit added.
        begun: the start of the stream; None if delta-spark began it.
        commit: the hash of the last commit file that the stream has read: that of ``version`` if this is read in part
            or as a snapshot, else that of the version before. None if it is unknown, as in the offsets of delta-spark.
        max_bytes: for a follower: the limit by which it divides versions, a power of two; None if it does not.
    """

    table_id: str = msgspec.field(name="reservoirId")
    version: int = msgspec.field(name="reservoirVersion")
    index: int
    snapshot: bool = msgspec.field(name="isStartingVersion")
    begun: StreamStart | None = None
    commit: str | None = None
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=2**62)] | None = msgspec.field(name="maxBytes", default=None)

    @classmethod
    def first(cls, table_id: str, begun: StreamStart, commit: str | None = None) -> Offset:
        """The offset before the first file of a stream."""
        return cls(table_id, begun.version, -1, begun.snapshot, begun, commit or begun.commit)

    def after(self, version: int, commit: str | None = None) -> Offset:
        """The offset after the last file of a version, whose commit file has this hash."""
        return Offset(self.table_id, version + 1, -1, False, self.begun, commit, self.max_bytes)

    def at(self, version: int, index: int, commit: str | None = None, *, snapshot: bool) -> Offset:
        """The offset after a file of a version, whose commit file has this hash."""
        return Offset(self.table_id, version, index, snapshot, self.begun, commit, self.max_bytes)

    def as_dict(self) -> dict[str, Any]:
        """The offset as plain values for JSON; equal offsets have equal JSON."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def parse(cls, stored: object) -> Offset:
        """The offset of a result of :meth:`as_dict`. Raises ``InvalidArgumentError`` for other values."""
        try:
            return msgspec.convert(stored, cls)
        except msgspec.ValidationError:
            raise InvalidArgumentError(
                f"{stored!r} is not an offset of refdelta or delta-spark: the checkpoint belongs to another source"
            ) from None


msgspec.json.Decoder(Offset)  # see refdelta.core.log.codec.decode_json


@dataclass
class Allowance:
    """The rest of the limits of a batch: it takes files while both are positive, so that one file always fits.

    Attributes:
        files: the number of files.
        size: the bytes of files.
    """

    files: int = sys.maxsize
    size: int = sys.maxsize

    def admit(self, sizes: pa.ChunkedArray) -> int:
        """The number of files, of these sizes in bytes, that the batch takes; they are subtracted."""
        most = min(len(sizes), max(self.files, 0)) if self.size > 0 else 0
        sums = pc.cumulative_sum(sizes.slice(0, most).cast(pa.int64()))
        if most and self.size < sys.maxsize:
            below: int = pc.sum(pc.less(sums, self.size)).as_py()
            most = min(most, below + 1)
        if most:
            self.files -= most
            self.size -= sums[most - 1].as_py()
        return most


_PART_BITS = 20


def part_shift(count: int) -> int:
    """The binary logarithm of the number of files that a part of a version has at least, so that a version of ``count``
    files has less than 2 ** 20 parts.
    """
    return max(0, (count - 1).bit_length() - _PART_BITS)


def part_end(ends: np.ndarray[Any, Any], index: int, max_bytes: int | None) -> int:
    """The end of the part of a version that begins at a file.

    A version is divided where the sum of its bytes passes a multiple of ``max_bytes``. So the places are the same
    wherever a reader begins; and as limits are powers of two, those of a larger limit are among those of a smaller one.

    Args:
        ends: the bytes of the first file of the version, of the first two, and so on.
        index: the first file of the part.
        max_bytes: the limit, a power of two; None for no division.

    Returns:
        The number of files of the version up to the end of the part.
    """
    count = len(ends)
    if max_bytes is None or index >= count:
        return count
    before = int(ends[index - 1]) if index else 0
    crossing = int(np.searchsorted(ends, (before // max_bytes + 1) * max_bytes)) + 1
    several = 1 << part_shift(count)
    return min(-(-crossing // several) * several, count)


def power_of_two(number: int) -> int:
    """The largest power of two up to a positive number, and up to 2 ** 62."""
    return 1 << min(number.bit_length() - 1, 62)


@dataclass(frozen=True)
class StreamWords:
    """How the caller of a stream speaks, for its errors.

    Attributes:
        again: goes on with the stream after it was stopped.
        anew: begins another stream of the table.
        options: the caller's names for options, by their names in Spark; those that are the same are left out.
    """

    again: str
    anew: str
    options: Mapping[str, str] = field(default_factory=dict)

    def name(self, option: str) -> str:
        """The caller's name for an option."""
        return self.options.get(option, option)


SPARK = StreamWords(
    again="load the stream again, with the same checkpoint", anew="start a new stream, with a new checkpoint"
)

_POWERS = {"": 0, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30, "t": 40, "tb": 40, "p": 50, "pb": 50}
# The default of delta-spark.
MOST_FILES = 1000


@dataclass(frozen=True)
class StreamOptions:
    """The options of a stream that reads a table.

    Attributes:
        starting_version: the first version whose commit is read; ``latest`` for later commits only; None for the rows
            of the version at which the source was created, and later commits.
        starting_timestamp: a time instead, in ISO 8601, in UTC if it has no zone: the first version at or after it.
        max_files: the number of files after which a batch ends.
        max_bytes: the number of bytes of files after which a batch ends.
        ignore_deletes: whether commits that only remove rows are skipped.
        ignore_changes: whether commits that remove or change rows are read, with all files that they add: a rewritten
            file comes again with the rows that did not change.
        skip_change_commits: whether commits that remove or change rows are skipped, with all rows that they add.
        exclude: the regular expression, in Java's syntax, of the paths of files that are left out; None for none.
        fail_on_data_loss: whether the stream ends with an error where a commit is not in the log any more; otherwise it
            continues with the next commit that is.
        feed: whether the change data feed is read.
        words: the words of its errors.
    """

    starting_version: int | str | None = None
    starting_timestamp: str | None = None
    max_files: int | None = None
    max_bytes: int | None = None
    ignore_deletes: bool = False
    ignore_changes: bool = False
    skip_change_commits: bool = False
    exclude: str | None = None
    fail_on_data_loss: bool = True
    feed: bool = False
    words: StreamWords = SPARK

    def __post_init__(self) -> None:
        if self.starting_version is not None and self.starting_timestamp is not None:
            raise InvalidArgumentError("startingVersion and startingTimestamp both name a version: give one of them")
        if self.feed and (self.ignore_deletes or self.ignore_changes or self.skip_change_commits):
            names = map(self.words.name, ("readChangeFeed", "ignoreDeletes", "ignoreChanges", "skipChangeCommits"))
            raise InvalidArgumentError("{} reads all changes: remove {}, {} and {}".format(*names))
        if isinstance(self.starting_version, int) and self.starting_version < 0:
            raise InvalidArgumentError(f"startingVersion must be a version or latest, not {self.starting_version}")
        for name, value in (("maxFilesPerTrigger", self.max_files), ("maxBytesPerTrigger", self.max_bytes)):
            if value is not None and value <= 0:
                raise InvalidArgumentError(f"{self.words.name(name)} must be a positive number, not {value}")
        _ = self._excluded  # raises for a pattern that cannot be used

    def included(self, files: pa.Table) -> pa.Table:
        """The files of a list whose paths do not match :attr:`exclude`."""
        return files if self._excluded is None else files.filter(pc.invert(evaluate_value(self._excluded, files)))

    @cached_property
    def _excluded(self) -> Value | None:
        """The condition on the path of a file that is left out."""
        if self.exclude is None:
            return None
        paths = StructType((StructField("path", STRING),))
        try:
            return bind_value(Call("rlike", (Column(("path",)), Literal(self.exclude, STRING))), paths)
        except PredicateError as error:
            raise InvalidArgumentError(f"excludeRegex: {error}") from None

    def allowance(self) -> Allowance:
        """The limits of one batch."""
        files = self.max_files
        if files is None:
            files = MOST_FILES if self.max_bytes is None else sys.maxsize
        return Allowance(files, sys.maxsize if self.max_bytes is None else self.max_bytes)


def byte_count(text: str) -> int:
    """A number of bytes such as ``1048576``, ``10m`` or ``1gb``, as Spark writes them.

    Raises ``InvalidArgumentError`` for any other text.
    """
    digits = text.strip().lower().rstrip("bkmgtp")
    unit = text.strip().lower()[len(digits) :]
    if not digits.strip().isdecimal() or unit not in _POWERS:
        raise InvalidArgumentError(f"{text!r} is not a number of bytes, such as 1048576, 10m or 1g")
    return int(digits) << _POWERS[unit]
