"""Following a table: what is there, then the changes of each later version, as they come."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa
from msgspec import structs

from refdelta import arguments
from refdelta.engine.log.state import FILE_SCHEMA, LiveFiles
from refdelta.engine.scan.change_scan import changes_table, plan_changes
from refdelta.engine.scan.scan import plan_scan
from refdelta.errors import DataFileNotFoundError, InvalidArgumentError, VersionNotFoundError
from refdelta.operations.stream.changes import TableStream
from refdelta.operations.stream.offsets import Offset, StreamOptions, StreamWords, part_shift, power_of_two
from refdelta.table.change_feed import is_fed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.engine.scan.change_scan import ChangeScan
    from refdelta.engine.scan.scan import Scan
    from refdelta.operations.stream.changes import VersionFiles

_WORDS = StreamWords(
    again="call follow(since=position) with the position of the last change",
    anew="follow the table anew, without since",
    options={
        "readChangeFeed": "change_feed=True",
        "ignoreDeletes": "ignore_deletes=True",
        "ignoreChanges": "ignore_changes=True",
        "skipChangeCommits": "skip_change_commits=True",
        "failOnDataLoss=false": "fail_on_data_loss=False",
        "maxBytesPerTrigger": "max_bytes",
    },
)
# The options of a table that is followed by the rows that it adds.
_OF_ADDED_ROWS = ("ignore_deletes", "ignore_changes", "skip_change_commits")
# A number of a change has the time of the table's creation, in milliseconds since 2020, in its upper 41 bits, and the
# version and the part of it are added: 4 versions a millisecond have place before the numbers of a table that is made
# anew. A version has less than 2 ** 20 parts, and the number of its end is that of the next version without parts.
_EPOCH_MS = 1_577_836_800_000
_LATEST_MS = (1 << 41) - (1 << 31)
_MS_BITS, _PART_BITS = 22, 20
_MARK = 12  # so many digits of the hash of a commit tell it from others of the same version


@dataclass(frozen=True)
class Change:
    """The rows that a version of a followed table has, or changed.

    Attributes:
        version: the version.
        position: a string to store: ``follow(since=position)`` goes on after these rows. It has the table's id and the
            hash of the commit, and is an offset as a stream of Spark stores it.
        rows: the rows, with the columns of the table; where the change feed is read, followed by ``_change_type``,
            ``_commit_version`` and ``_commit_timestamp``.
        kind: ``snapshot`` for rows that the version has, ``changes`` for those that its commit changed.
        app_version: a number that grows with each change: with :attr:`app_id`, the ``app_version`` of a write of these
            rows, so that the same change is not written twice. It depends on the place in the table alone, and those of
            a table begin above those of tables that were created before.
        app_id: the ``app_id`` of such a write. It has the table's id and, if all rows of a version came first, that
            version; so the changes of another table, or those after another beginning, are not taken for these.
    """

    version: int
    position: str
    rows: pa.Table
    kind: Literal["snapshot", "changes"]
    app_version: int
    app_id: str


class Follower:
    """The changes of a table, as an iterator, and as an asynchronous one: :meth:`refdelta.DeltaTable.follow`.

    One thread or task takes the changes at a time; :meth:`close` may be called by any.

    Args:
        made: the version with which it begins, whose schema the rows have.
        since: as for ``follow``, like all that follow.
        timeout: see there.
        columns: see there.
        filters: see there.
        max_bytes: see there.
        interval: see there.
        options: ``change_feed`` and what is done with commits that change rows; see there.
    """

    def __init__(
        self,
        made: Snapshot,
        since: str | int | None = None,
        timeout: float | None = None,
        *,
        columns: Sequence[str] | None = None,
        filters: Any = None,
        max_bytes: int | None = None,
        interval: float = 1.0,
        change_feed: bool | None = None,
        **options: Any,
    ):
        self._timeout = arguments.seconds("timeout", timeout)
        if not (pause := arguments.seconds("interval", interval)):
            raise InvalidArgumentError(f"interval must be a number of seconds above 0, not {interval}")
        self._interval = pause
        most = arguments.whole("max_bytes", max_bytes)
        options = {name: arguments.flag(name, value) for name, value in options.items()}
        if change_feed is None:
            feed = is_fed(made.metadata) and not any(options.get(name) for name in _OF_ADDED_ROWS)
        else:
            feed = arguments.flag("change_feed", change_feed)
        self._options = StreamOptions(max_bytes=most, feed=feed, words=_WORDS, **options)
        self._most = None if most is None else power_of_two(most)
        self._stream = TableStream(made, self._options)
        self._offset = self._begin(since)
        begun = self._offset.begun
        created = None if begun is None else begun.created
        self._created = _created(made) if created is None else created
        if begun is not None:
            self._offset = structs.replace(self._offset, begun=structs.replace(begun, created=self._created))
        # Changes that an earlier follower may have given are divided as it did, at least.
        limits = [one for one in (self._most, self._offset.max_bytes) if one is not None]
        self._offset = structs.replace(self._offset, max_bytes=min(limits, default=None))
        self._columns, self._filters = columns, filters
        self._closed, self._looking = threading.Event(), threading.Lock()
        self._planned(changes_table([]) if feed else FILE_SCHEMA.empty_table())  # raises for columns that are not there

    def _begin(self, since: str | int | None) -> Offset:
        if isinstance(since, str):
            return self._stream.parse(_parsed(since))
        known, newest = arguments.whole("since", since), self._stream.made.version
        if known is None:
            return self._stream.first()
        if not -1 <= known <= newest:
            raise VersionNotFoundError(f"since is {known}; the table has the versions 0 to {newest}")
        return self._stream.after(known)

    @property
    def position(self) -> str:
        """The position after the last change that was taken, and after later versions that changed no row."""
        return _text(self._offset)

    def close(self) -> None:
        """End the iteration, also one that waits in another thread. A follower is a context manager, too."""
        self._closed.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change:
        for pause in self._pauses():
            if (found := self._look()) is not None:
                return self._taken(*found)
            self._closed.wait(pause)
        raise StopIteration

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        for pause in self._pauses():
            # The position moves when the change arrives: one that a cancelled task was waiting for comes again.
            if (found := await asyncio.to_thread(self._look)) is not None:
                return self._taken(*found)
            await asyncio.sleep(pause)
        raise StopAsyncIteration

    def _taken(self, change: Change, end: Offset) -> Change:
        self._offset = end
        return change

    def _pauses(self) -> Iterator[float]:
        """The seconds to wait after each look that finds nothing, until the time-out or the end."""
        end = None if self._timeout is None else time.monotonic() + self._timeout
        while not self._closed.is_set():
            left = self._interval if end is None else min(self._interval, end - time.monotonic())
            yield max(left, 0.0)
            if end is not None and time.monotonic() >= end:
                return

    def _look(self) -> tuple[Change, Offset] | None:
        """The next change with the offset after it; None where there is none yet."""
        with self._looking:  # the thread of a cancelled task may still be at it
            while (files := self._stream.next(self._offset)) is not None:
                after, rows = files.end(self._offset), self._read(files)
                if rows is not None:
                    return self._change(files, rows, after), after
                self._offset = after
            # No earlier follower can have given a later version.
            self._offset = structs.replace(self._offset, max_bytes=self._most)
            return None

    def _change(self, files: VersionFiles, rows: pa.Table, after: Offset) -> Change:
        return Change(
            files.version,
            _text(after),
            rows,
            "snapshot" if files.snapshot else "changes",
            _number(self._created, after, files.all.num_rows),
            _app_id(after),
        )

    def _read(self, files: VersionFiles) -> pa.Table | None:
        """The rows of files; None if there are none, so that the version changed no row that is asked for."""
        if not files.files.num_rows:
            return None
        try:
            rows = self._planned(files.files).to_table()
        except DataFileNotFoundError as error:
            raise DataFileNotFoundError(
                f"{error.reason}. A follower reads a file when it comes to its version, and VACUUM removes files whose "
                "rows were deleted or rewritten longer ago than delta.deletedFileRetentionDuration: follow the table "
                "anew, without since",
                file=error.file,
            ) from None
        return rows if rows.num_rows else None

    def _planned(self, files: pa.Table) -> Scan | ChangeScan:
        """The read of some files of the stream, with the schema that the table had when it was first followed."""
        missing = [item for item in FILE_SCHEMA if item.name not in files.column_names]
        for item in missing:  # statistics, of which a stream keeps none
            files = files.append_column(item, pa.nulls(files.num_rows, item.type))
        made = self._stream.made
        if self._options.feed:
            return plan_changes(made, files, self._columns, self._filters)
        return plan_scan(dataclasses.replace(made, live=LiveFiles(files), named=True), self._columns, self._filters)


def _created(made: Snapshot) -> int:
    """The time of a table's creation, in milliseconds since 1970; now, for one that does not say it."""
    created = made.metadata.created_time
    return int(1000 * time.time()) if created is None else created


def _number(created_ms: int, after: Offset, count: int) -> int:
    """The number of a change.

    Args:
        created_ms: the time of the table's creation.
        after: the offset after the change.
        count: the number of files of its version.
    """
    since = min(max(created_ms - _EPOCH_MS, 0), _LATEST_MS)
    return (since << _MS_BITS) + (after.version << _PART_BITS) + (after.index + 1 >> part_shift(count))


def _app_id(offset: Offset) -> str:
    """The application id of the changes of a stream."""
    begun = offset.begun
    if begun is None or not begun.snapshot:
        return offset.table_id
    mark = "" if begun.commit is None else f"-{begun.commit[:_MARK]}"
    return f"{offset.table_id}-{begun.version}{mark}"


def _text(offset: Offset) -> str:
    return json.dumps(offset.as_dict(), sort_keys=True, separators=(",", ":"))


def _parsed(position: str) -> Any:
    try:
        found = json.loads(position)
    except ValueError:
        found = None
    if not isinstance(found, dict) or "reservoirId" not in found:
        raise InvalidArgumentError(f"since is a version or the position of a change, not {position!r}")
    return found
