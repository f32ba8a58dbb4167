"""The files of a table as a stream: those of one version in a fixed order, then those that later commits add.

Everything here is a function of the log, which never changes: the files between two offsets are always the same, as
long as the log has these versions. delta-spark's streams have the same batches.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import one_array
from refdelta.core.log.paths import commit_key
from refdelta.core.log.timestamps import in_commit_timestamp
from refdelta.engine.log.listing import newest_version
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.log.state import adds_table, concat_files, to_adds, unique_ids
from refdelta.engine.log.timestamps import file_times, version_since
from refdelta.engine.parquet.files import log_bytes
from refdelta.engine.scan.change_scan import RECORDED, VERSION, VersionChanges, changes_table
from refdelta.engine.scan.scan import ONLY
from refdelta.errors import (
    InvalidArgumentError,
    InvalidLogError,
    SchemaMismatchError,
    StreamStoppedError,
    VersionNotFoundError,
)
from refdelta.operations.shared.identity import without_marks
from refdelta.operations.stream.commits import CommitLog, replaced
from refdelta.operations.stream.offsets import Allowance, Offset, StreamOptions, StreamStart, part_end
from refdelta.table.change_feed import FEED_COLUMNS, FileChange, changes_of, check_recorded, inserted
from refdelta.table.column_mapping import holds_other_names
from refdelta.table.features import features_of
from refdelta.table.in_commit_timestamp import enablement
from refdelta.table.types import physical_name
from refdelta.transaction.time_travel import milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from refdelta.core.log.footprint import Footprint
    from refdelta.engine.log.snapshot import Snapshot

# The columns of a file list that a read needs: statistics may be many times as long.
_COLUMNS = ["path", "partitionValues", "size", "deletionVector", "baseRowId", "defaultRowCommitVersion"]
_FEED_COLUMNS = [*_COLUMNS, ONLY, RECORDED, VERSION]
# Without these features, no version that can still be read had mapped columns.
_ONCE_MAPPED = ("columnMapping", "checkpointProtection")


@dataclass(frozen=True, eq=False)
class VersionFiles:
    """Files of one version for a stream, which follow each other.

    Attributes:
        version: the version.
        commit: the hash of its commit file; None if the log does not have it any more.
        snapshot: whether these are of all files of the version, or of those that its commit added.
        all: the files of the version, in their order.
        ends: the bytes of the first of all files, of the first two, and so on.
        index: the index of the first of these in the version.
        count: the number of these.
        stop: the error with which the stream ends before this version; None if it does not end.
    """

    version: int
    commit: str | None
    snapshot: bool
    all: pa.Table
    ends: np.ndarray[Any, Any]
    index: int
    count: int
    stop: StreamStoppedError | None = None

    @classmethod
    def whole(
        cls,
        version: int,
        commit: str | None,
        files: pa.Table,
        *,
        snapshot: bool,
        stop: StreamStoppedError | None = None,
    ) -> VersionFiles:
        """All files of a version for a stream."""
        ends = np.cumsum(one_array(files.column("size")).to_numpy(zero_copy_only=False), dtype=np.int64)
        return cls(version, commit, snapshot, files, ends, 0, files.num_rows, stop)

    @property
    def files(self) -> pa.Table:
        """These files."""
        return self.all.slice(self.index, self.count)

    @property
    def last(self) -> bool:
        """Whether no file of the version follows them."""
        return self.index + self.count >= len(self.ends)

    def since(self, index: int) -> VersionFiles:
        """The files of the version from an index on."""
        return dataclasses.replace(self, index=index, count=max(0, len(self.ends) - index))

    def up_to(self, end: int) -> VersionFiles:
        """Those of these files that are before an index."""
        return dataclasses.replace(self, count=end - self.index)

    def end(self, start: Offset) -> Offset:
        """The offset after these files, in the stream of another offset."""
        if self.last:
            return start.after(self.version, self.commit)
        return start.at(self.version, self.index + self.count - 1, self.commit, snapshot=self.snapshot)


class TableStream:
    """The files of a table as a stream.

    Args:
        made: the version at which the source was created: the stream has its schema, and begins with its rows unless
            the options say otherwise.
        options: the options of the stream.
    """

    def __init__(self, made: Snapshot, options: StreamOptions):
        self.made = made.without_files()
        self._options, self._store = options, made.store
        self._log = CommitLog(self.made, complete=options.fail_on_data_loss, words=options.words)
        self._version: Snapshot | None = made  # its files may be needed
        self._ordered: VersionFiles | None = None
        # The last commit, which may have more files than a batch takes, and the hash of the commit before it.
        self._open: tuple[str | None, VersionFiles] | None = None
        self._batch: tuple[Offset, Offset, pa.Table] | None = None
        self._partition_keys = sorted(physical_name(made.schema.field(name)) for name in made.partition_columns)
        self._times: dict[int, int] = {}
        # The version from which files are known to have the columns under the names of the stream's schema.
        self._named_since = made.version
        if made.column_mapping_mode != "none" or features_of(made.protocol).isdisjoint(_ONCE_MAPPED):
            self._named_since = 0
        if options.feed:
            check_recorded(made.metadata, made.version)
            self._partition_keys = sorted([*self._partition_keys, *(field.name for field in FEED_COLUMNS)])

    def first(self) -> Offset:
        """The offset at which a new stream begins.

        Raises:
            VersionNotFoundError: there is no such version, or its commit is not in the log any more.
            InvalidArgumentError: the time is invalid, or after the newest version.
        """
        return self._first(self._begun)

    def after(self, version: int) -> Offset:
        """The offset at which a stream begins whose reader has the rows of a version, which may be -1.

        Raises:
            InvalidArgumentError: the change data feed is read, and the version after it did not record its changes.
        """
        return self._first(self._from(version + 1))

    def _first(self, begun: StreamStart) -> Offset:
        return Offset.first(self.made.metadata.id, begun, begun.commit or self._log.digest(begun.version - 1))

    def newest(self) -> int:
        """The newest version of the table. Raises ``StoreError``."""
        return newest_version(self._store, self.made.version)

    def newest_known(self) -> Offset | None:
        """The end of the table by the last listing; None before the first."""
        newest = self._log.newest_known
        if newest is None or self._batch is None:
            return None
        end = self._batch[1]
        return end if (end.version, end.index) == (newest + 1, -1) else end.after(newest)

    def parse(self, stored: object) -> Offset:
        """Parse an offset that Spark stored. Raises ``InvalidArgumentError`` for an offset of another table."""
        offset = Offset.parse(stored)
        if offset.table_id != self.made.metadata.id:
            raise replaced(self._store, offset.table_id, self.made.metadata.id, self._options.words)
        if self._options.feed and offset.index >= 0 and not offset.snapshot:
            # All changes of a version are in one batch here; the part of them that another engine has read is unknown.
            raise InvalidArgumentError(
                f"{stored!r} is not an offset of a stream of refdelta over a change data feed: it is within the files "
                f"of version {offset.version}, and the changes of a version are not divided. Go on without "
                f"{self._options.words.name('readChangeFeed')} to the end of that version"
            )
        return offset

    def latest(self, start: Offset, allowance: Allowance, last: int | None = None) -> Offset:
        """The end of the next batch.

        A batch ends before a commit that ends the stream; the next one raises its error.

        Args:
            start: the end of the last batch.
            allowance: the limits of the batch.
            last: the last version to read; None for the newest.

        Returns:
            The offset of its end, which is ``start`` if there is nothing after it.

        Raises:
            StreamStoppedError: this stream cannot read the next commit.
            VersionNotFoundError: the next commit is not in the log any more.
            InvalidArgumentError: the table was replaced by another one.
        """
        end, taken = start, []
        for step in self._steps(start, last):
            if step.stop is not None:
                if end == start:
                    raise step.stop
                break
            count = allowance.admit(step.files.column("size"))
            if count and self._options.feed and not step.snapshot:
                count = step.files.num_rows  # the changes of a version are not split
            part = step.up_to(step.index + count)
            taken.append(part.files)
            if count or part.last:
                end = part.end(start)
            if not part.last:
                break
        self._batch = (start, end, self._together(taken))
        return end

    def next(self, start: Offset) -> VersionFiles | None:
        """The files of the next version, or the next part of them: perhaps none, where it changed no row.

        Args:
            start: the end of the files before, with the limit by which versions are divided.

        Returns:
            The files; None if there is no such version yet.

        Raises the errors of :meth:`latest`.
        """
        step = next(self._steps(start, None), None)
        if step is None:
            return None
        if step.stop is not None:
            raise step.stop
        if self._options.feed and not step.snapshot:
            return step  # the changes of a version are not divided
        return step.up_to(max(step.index, part_end(step.ends, step.index, start.max_bytes)))

    def files(self, start: Offset, end: Offset) -> pa.Table:
        """The files between two offsets, without excluded ones, which count to the limits of a batch as the others do.

        Raises the errors of :meth:`latest`.
        """
        if start.begun != end.begun:
            # Spark does not store the start of the first batch; its end has it.
            start = Offset.first(end.table_id, end.begun or self._begun_before(end))
        if self._batch is not None and self._batch[:2] == (start, end):
            return self._batch[2]
        newest, taken, reached = end.version - (end.index < 0), [], False
        for step in self._steps(start, newest):
            if step.stop is not None:
                raise step.stop
            reached = step.version == newest and step.snapshot == (end.snapshot and end.index >= 0)
            if reached and None not in (step.commit, end.commit) and step.commit != end.commit:
                raise self._log.changed(newest)
            if reached and end.index >= 0:
                taken.append(step.up_to(end.index + 1).files)
                break
            taken.append(step.files)
        if not reached and self._options.fail_on_data_loss:
            self._log.check_has(newest)
        return self._together(taken)

    def _together(self, tables: list[pa.Table]) -> pa.Table:
        files = concat_files(tables) if tables else changes_table([]).select(_FEED_COLUMNS)
        return self._options.included(files)

    def _steps(self, start: Offset, last: int | None) -> Iterator[VersionFiles]:
        """The files of the versions from an offset on."""
        version, index, before = start.version, start.index + 1, start.commit
        self._check_names(version)
        if start.snapshot:
            self._log.confirm(version, before)
            yield self._files_of(version, before).since(index)
            version, index = version + 1, 0
        else:
            self._version = self._ordered = None
        within = before if index else None  # the hash of the commit that is read in part
        if self._open is not None and (last is None or version <= last):
            preceding, step = self._open
            if step.version == version and before in (None, step.commit if index else preceding):
                self._log.confirm(version, step.commit)
                yield step.since(index)
                version, index, before, within = version + 1, 0, step.commit, None
        for commit, digest in self._log.commits(version, last, None if index else before):
            if commit.version > version:  # the commits before it are lost
                index = 0
            elif within not in (None, digest):
                raise self._log.changed(version)
            step = self._step(commit, digest, version)
            self._open = None if index else before, step
            yield step.since(index)
            version, index, before, within = commit.version + 1, 0, digest, None

    def _step(self, commit: Footprint, digest: str, expected: int) -> VersionFiles:
        stop = self._lost(commit, expected) or self._stop(commit)
        if self._options.feed:
            files = self._changed(commit.version, [] if stop else self._changes_of(commit))
        else:
            files = adds_table([] if stop or self._skipped(commit) else commit.added_data).select(_COLUMNS)
        self._check_partitions(commit.version, files)
        return VersionFiles.whole(commit.version, digest, files, snapshot=False, stop=stop)

    def _changes_of(self, commit: Footprint) -> list[FileChange]:
        assert commit.source is not None  # noqa: S101 - it comes from the log
        return changes_of(commit.source.actions(), commit.version)

    def _changed(self, version: int, changes: list[FileChange]) -> pa.Table:
        """The changes of a version, as a list of files."""
        found = [VersionChanges(version, self._time(version), changes)] if changes else []
        return changes_table(found).select(_FEED_COLUMNS)

    def _time(self, version: int) -> int:
        """The commit time of a version, in milliseconds since 1970."""
        since = enablement(self.made.protocol, self.made.metadata)
        if since is not None and version >= since.version:
            key = commit_key(version)
            return in_commit_timestamp(log_bytes(self._store, key), key)
        if version not in self._times:
            self._times = file_times(self._store, version)
        return self._times[version]

    def _files_of(self, version: int, commit: str | None) -> VersionFiles:
        """All files of a version, ordered by modification time, then by path; ``commit`` is the hash of its commit."""
        if self._ordered is not None and (self._ordered.version, self._ordered.commit) == (version, commit):
            return self._ordered
        snapshot = self._version
        if snapshot is None or snapshot.version != version:
            try:
                snapshot = load_snapshot(self._store, version).in_zone(self.made.timezone)
            except (VersionNotFoundError, InvalidLogError) as error:
                raise VersionNotFoundError(
                    f"the stream has not read all of version {version}, with which it began, and which cannot be read "
                    f"any more: {error}; {self._options.words.anew}"
                ) from error
        files, self._version = snapshot.files, None
        keys = pa.table(
            [files.column("modificationTime"), files.column("path"), unique_ids(files)], names=["time", "path", "id"]
        )
        order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
        if self._options.feed:
            ordered = self._changed(version, inserted(to_adds(files.take(order))))
        else:
            ordered = files.select(_COLUMNS).take(order)
        self._check_partitions(version, ordered)
        self._ordered = VersionFiles.whole(version, commit, ordered, snapshot=True)
        return self._ordered

    def _skipped(self, commit: Footprint) -> bool:
        return self._options.skip_change_commits and bool(commit.removed_data)

    def _lost(self, commit: Footprint, expected: int) -> StreamStoppedError | None:
        """The error with which the stream ends before a commit if an earlier one, which is lost, may have changed the
        schema; None otherwise.

        Args:
            commit: the commit.
            expected: the version that follows the last one that was read.
        """
        first = max(expected, self.made.version + 1)
        if commit.version <= first:
            return None
        return StreamStoppedError(
            f"the commits of versions {first} to {commit.version - 1} are not in the log any more. They may have "
            f"changed the schema, which the stream read at version {self.made.version}: {self._options.words.again}, "
            "and it continues after them",
            version=commit.version,
            reload=True,
        )

    def _stop(self, commit: Footprint) -> StreamStoppedError | None:
        """The error with which the stream ends before a commit; None if it reads the commit."""
        if commit.changes_table and commit.version > self.made.version and not self._only_numbers(commit):
            what = "protocol" if commit.changes_protocol else "schema, its partitioning or its properties"
            again = self._options.words.again
            return StreamStoppedError(
                f"version {commit.version} changes the table's {what}, which the stream read at version "
                f"{self.made.version}; all earlier versions are read. {again[0].upper()}{again[1:]}: it continues "
                "with the new table",
                version=commit.version,
                reload=True,
            )
        if self._options.feed:
            if commit.metadata is not None:
                check_recorded(commit.metadata, commit.version)
            return None
        if not commit.removed_data or self._options.skip_change_commits or self._options.ignore_changes:
            return None
        if not commit.added_data and self._options.ignore_deletes:
            return None
        what = "changes rows" if commit.added_data else "removes rows"
        which = "" if commit.operation is None else f" ({commit.operation})"
        name = self._options.words.name
        return StreamStoppedError(
            f"version {commit.version}{which} {what}, such as of {commit.removed_data[0].path}, and a stream has only "
            f"new rows. The option {name('ignoreDeletes')} skips commits that only remove whole files; "
            f"{name('skipChangeCommits')} skips all commits that remove or change rows, with the rows that they add; "
            f"{name('ignoreChanges')} reads the files that they add, so that unchanged rows of a rewritten file come "
            "twice",
            version=commit.version,
            reload=False,
        )

    def _check_names(self, version: int) -> None:
        """Check that files from a version on have the columns under the names of the stream's schema.

        They do not if column mapping was removed after it. The protocol of the table still shows this, or that a
        feature was dropped.
        """
        if version >= self._named_since:
            return
        then = load_snapshot(self._store, version).metadata
        later = CommitLog(self.made, words=self._options.words).commits(version + 1, self.made.version)
        for metadata in (then, *(commit.metadata for commit, _ in later)):
            if metadata is not None and holds_other_names(metadata):
                raise SchemaMismatchError(
                    f"the stream has not read version {version} and later ones, whose files have other column names, "
                    f"since they were mapped then: {self._options.words.anew}"
                )
        self._named_since = version

    def _only_numbers(self, commit: Footprint) -> bool:
        """True if a commit changes only the high-water marks of identity columns."""
        same = commit.metadata is not None and without_marks(commit.metadata) == without_marks(self.made.metadata)
        return same and not commit.changes_protocol

    def _check_partitions(self, version: int, files: pa.Table) -> None:
        """Check that files have the partition columns of the stream's schema.

        The schema may be newer than the files: a later partition column would have no value in them.
        """
        values = one_array(files.column("partitionValues"))
        counts = np.diff(values.offsets)
        if not counts.size:
            return
        ends = values.offsets[0].as_py(), values.offsets[-1].as_py()
        names = sorted(pc.unique(values.keys[slice(*ends)]).to_pylist())
        if names != self._partition_keys or (counts != len(names)).any():
            raise SchemaMismatchError(
                f"files of version {version} are partitioned by ({', '.join(names)}), the table by "
                f"({', '.join(self._partition_keys)}) now: the stream cannot read both; {self._options.words.anew}"
            )

    def _begun_before(self, end: Offset) -> StreamStart:
        """The start of a stream of delta-spark whose first batch ends here, by the rules of delta-spark."""
        if not self._begun.snapshot:
            return self._begun
        return StreamStart(end.version if end.snapshot else end.version - 1, snapshot=True)

    @cached_property
    def _begun(self) -> StreamStart:
        options = self._options
        if options.starting_version == "latest":
            return StreamStart(self.made.version + 1, snapshot=False)
        if options.starting_timestamp is not None:
            return self._from(self._version_since(options.starting_timestamp))
        if options.starting_version is None:
            version = self.made.version
            return StreamStart(version, snapshot=True, commit=self._log.digest(version))
        version = int(options.starting_version)
        oldest, newest = self._log.oldest(), self.newest()
        if not oldest <= version <= newest:
            raise VersionNotFoundError(
                f"startingVersion is {version}; the log has the commits of the versions {oldest} to {newest}"
            )
        return self._from(version)

    def _from(self, version: int) -> StreamStart:
        if self._options.feed and version <= self.made.version:
            check_recorded(load_snapshot(self._store, version).metadata, version)
        return StreamStart(version, snapshot=False)

    def _version_since(self, text: str) -> int:
        """The first version that was committed at a time or after it."""
        try:
            time = milliseconds(text)
        except InvalidArgumentError:
            raise InvalidArgumentError(f"startingTimestamp is a time in ISO 8601, not {text!r}") from None
        version = version_since(self._store, time)
        newest = self.newest()
        if version > newest:
            raise InvalidArgumentError(f"startingTimestamp is {text}, after version {newest}, which is the newest")
        return version


def _is_same(reached: Offset, end: Offset) -> bool:
    """Whether a batch that was put together again has reached its end, as it was stored."""
    places = [(one.version, one.index, one.snapshot) for one in (reached, end)]
    return places[0] == places[1] and (None in (reached.commit, end.commit) or reached.commit == end.commit)
