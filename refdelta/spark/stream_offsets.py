"""Where a stream of a table has got to, and how much of it one batch takes."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.errors import InvalidArgumentError


class StreamStart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a stream began.

    Attributes:
        version: a version of the table.
        snapshot: whether with all rows that it has, or with those that its commit added.
    """

    version: int
    snapshot: bool


class Offset(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="sourceVersion", tag=1
):
    """Where a stream has got to. It is what Spark keeps in a checkpoint, as JSON.

    The JSON is delta-spark's, which passes over ``begun``: each of the two goes on with a checkpoint of the other.

    Spark does not keep the offset from which a first batch goes, and asks for it again when it repeats that batch. So
    each offset says where its stream began.

    Attributes:
        table_id: the table's id.
        version: the version of which files are next.
        index: the last file of it that was read, counted from 0; -1 where none was.
        snapshot: whether the files are all that the version has, or those that its commit added.
        begun: where the stream began; None where delta-spark began it.
    """

    table_id: str = msgspec.field(name="reservoirId")
    version: int = msgspec.field(name="reservoirVersion")
    index: int
    snapshot: bool = msgspec.field(name="isStartingVersion")
    begun: StreamStart | None = None

    @classmethod
    def first(cls, table_id: str, begun: StreamStart) -> Offset:
        """Where nothing has been read yet."""
        return cls(table_id, begun.version, -1, begun.snapshot, begun)

    def after(self, version: int) -> Offset:
        """Behind the last file of a version."""
        return Offset(self.table_id, version + 1, -1, False, self.begun)

    def at(self, version: int, index: int, *, snapshot: bool) -> Offset:
        """Behind a file of a version."""
        return Offset(self.table_id, version, index, snapshot, self.begun)

    def as_dict(self) -> dict[str, Any]:
        """As plain values, for JSON; equal offsets give equal texts."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def parse(cls, stored: object) -> Offset:
        """What :meth:`as_dict` gave. Raises ``InvalidArgumentError`` for anything else."""
        try:
            return msgspec.convert(stored, cls)
        except msgspec.ValidationError:
            raise InvalidArgumentError(f"{stored!r} is no offset of a stream of refdelta: whose checkpoint?") from None


@dataclass
class Allowance:
    """How much more a batch takes: files while there is some left of both, so that one file always fits.

    Attributes:
        files: how many files.
        size: bytes of files.
    """

    files: int = sys.maxsize
    size: int = sys.maxsize

    def admit(self, sizes: pa.ChunkedArray) -> int:
        """How many of these files, sizes in bytes, the batch takes; they are taken off."""
        most = min(len(sizes), max(self.files, 0)) if self.size > 0 else 0
        sums = pc.cumulative_sum(sizes.slice(0, most).cast(pa.int64()))
        if most and self.size < sys.maxsize:
            below: int = pc.sum(pc.less(sums, self.size)).as_py()
            most = min(most, below + 1)
        if most:
            self.files -= most
            self.size -= sums[most - 1].as_py()
        return most


_POWERS = {"": 0, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30, "t": 40, "tb": 40, "p": 50, "pb": 50}
# The same number of files as delta-spark takes where nothing is said.
MOST_FILES = 1000


@dataclass(frozen=True)
class StreamOptions:
    """What a stream is to read. Options of the data source, by their names there.

    Attributes:
        starting_version: the first version whose commit is read; ``latest`` for those still to come; None for the
            rows of the version at which the source was made, and what comes behind it.
        starting_timestamp: a time in its place, in ISO 8601 and UTC where it names no zone: the first version at or
            behind it.
        max_files: after how many files a batch ends.
        max_bytes: after how many bytes of files a batch ends.
        ignore_deletes: whether commits that only remove rows are passed by.
        skip_change_commits: whether commits that remove or change rows are passed by, with all rows that they add.
        feed: whether all that commits change is read, as the change data feed has it.
    """

    starting_version: int | str | None = None
    starting_timestamp: str | None = None
    max_files: int | None = None
    max_bytes: int | None = None
    ignore_deletes: bool = False
    skip_change_commits: bool = False
    feed: bool = False

    def __post_init__(self) -> None:
        if self.starting_version is not None and self.starting_timestamp is not None:
            raise InvalidArgumentError("startingVersion and startingTimestamp are two ways to say one thing: give one")
        if self.feed and (self.ignore_deletes or self.skip_change_commits):
            raise InvalidArgumentError("readChangeFeed has all changes: without ignoreDeletes and skipChangeCommits")
        if isinstance(self.starting_version, int) and self.starting_version < 0:
            raise InvalidArgumentError(f"startingVersion is a version or latest, not {self.starting_version}")
        for name, value in (("maxFilesPerTrigger", self.max_files), ("maxBytesPerTrigger", self.max_bytes)):
            if value is not None and value <= 0:
                raise InvalidArgumentError(f"{name} is a positive number, not {value}")

    def allowance(self) -> Allowance:
        """What one batch takes."""
        files = self.max_files
        if files is None:
            files = MOST_FILES if self.max_bytes is None else sys.maxsize
        return Allowance(files, sys.maxsize if self.max_bytes is None else self.max_bytes)


def byte_count(text: str) -> int:
    """A number of bytes such as ``1048576``, ``10m`` or ``1gb``, as Spark writes them.

    Raises ``InvalidArgumentError`` for another text.
    """
    digits = text.strip().lower().rstrip("bkmgtp")
    unit = text.strip().lower()[len(digits) :]
    if not digits.strip().isdecimal() or unit not in _POWERS:
        raise InvalidArgumentError(f"{text!r} is no number of bytes, such as 1048576, 10m or 1g")
    return int(digits) << _POWERS[unit]
