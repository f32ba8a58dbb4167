"""The change data feed: the rows that a range of versions inserted, updated and deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from refdelta import arguments
from refdelta.core.log.actions import AnyAction, Metadata
from refdelta.core.log.paths import commit_key, parse_log_name
from refdelta.core.log.segment import LogFile
from refdelta.core.log.timestamps import commit_timestamps, in_commit_timestamp
from refdelta.engine.log.commits import read_commits
from refdelta.engine.log.listing import list_log
from refdelta.engine.log.snapshot import Snapshot, load_snapshot
from refdelta.engine.log.timestamps import version_at, version_since
from refdelta.engine.scan.change_scan import ChangeScan, VersionChanges, changes_table, plan_changes
from refdelta.engine.work.executor import at_most
from refdelta.errors import InvalidArgumentError, VersionNotFoundError
from refdelta.table.change_feed import changes_of, check_compatible, check_recorded
from refdelta.table.column_mapping import mode_of
from refdelta.table.in_commit_timestamp import enablement
from refdelta.transaction.time_travel import milliseconds
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Iterator, Sequence

    from refdelta_storage import Store

_READ_BYTES = 32 * 2**20
"""The size of commits that are read at once, in bytes."""


@dataclass(frozen=True)
class FeedRange:
    """A range of versions; see :meth:`refdelta.DeltaTable.load_cdf` for the attributes.

    Each end is given by a version, by a time, or not at all; a time without a zone is of ``timezone``, or else UTC.
    """

    starting_version: int | None = None
    ending_version: int | None = None
    starting_timestamp: str | dt.datetime | None = None
    ending_timestamp: str | dt.datetime | None = None
    allow_out_of_range: bool = False
    timezone: str | None = None

    def __post_init__(self) -> None:
        for end in ("starting", "ending"):
            version = arguments.whole(f"{end}_version", getattr(self, f"{end}_version"))
            if version is not None and getattr(self, f"{end}_timestamp") is not None:
                raise InvalidArgumentError(f"{end}_version and {end}_timestamp exclude each other: give only one")
            if version is not None and version < 0:
                raise InvalidArgumentError(f"{end}_version is {version}; a version cannot be negative")

    def versions(self, snapshot: Snapshot) -> range:
        """The versions of the range, up to that of a snapshot; none if nothing was committed between two times.

        Raises:
            InvalidArgumentError: the range ends before it begins, or a time cannot be parsed.
            VersionNotFoundError: the range begins after the newest version, or a time is before the first version.
        """
        store, newest = snapshot.store, snapshot.version
        first, last = self.starting_version or 0, newest
        if self.starting_timestamp is not None:
            first = version_since(store, _milliseconds("starting_timestamp", self.starting_timestamp, self.timezone))
        if first > newest:
            if self.allow_out_of_range:
                return range(0)
            since = f"with version {first}" if self.starting_timestamp is None else f"at {self.starting_timestamp}"
            raise VersionNotFoundError(f"the changes begin {since}, after version {newest}, which is the newest")
        if self.ending_version is not None:
            last = self.ending_version
        elif self.ending_timestamp is not None:
            last = version_at(store, _milliseconds("ending_timestamp", self.ending_timestamp, self.timezone))
        between = self.starting_timestamp is not None and self.ending_timestamp is not None and last == first - 1
        if last < first and not between:
            raise InvalidArgumentError(f"the changes end with version {last}, before they begin with version {first}")
        return range(first, min(last, newest) + 1)


def changes(
    snapshot: Snapshot, asked: FeedRange, *, columns: Sequence[str] | None = None, predicate: Any = None
) -> ChangeScan:
    """Plan a read of the change data feed for a range of versions.

    Rows have the schema of ``snapshot``. If columns are mapped, or were mapped at the first version of the range, they
    have the schema of the last version of the range, since later versions may have renamed or dropped columns.

    Args:
        snapshot: the newest version that is known.
        asked: the range.
        columns: as for :func:`refdelta.engine.scan.change_scan.plan_changes`.
        predicate: likewise.

    Raises:
        InvalidArgumentError: the range is not valid, or a version in it does not record changes.
        VersionNotFoundError: a version in it does not exist, or no longer.
        SchemaMismatchError: columns were changed within the range so that it has no common schema.
    """
    versions = asked.versions(snapshot)
    metadata: dict[int, Metadata] = {}
    files = changes_table(_changes(_commits(snapshot, versions), metadata))
    read = snapshot
    if versions:
        begun = metadata.get(versions[0])
        if begun is None and not metadata and versions[-1] == snapshot.version:
            begun = snapshot.metadata
        elif begun is None:
            begun = load_snapshot(snapshot.store, versions[0]).metadata
        # A mapping may have ended since.
        if (snapshot.column_mapping_mode != "none" or mode_of(begun) != "none") and versions[-1] < snapshot.version:
            read = load_snapshot(snapshot.store, versions[-1]).in_zone(snapshot.timezone)
        for version, then in {versions[0]: begun, **metadata}.items():
            check_recorded(then, version)
            check_compatible(then, read.metadata, version)
    return plan_changes(read, files, columns, predicate)


def _changes(commits: Iterable[_Commit], metadata: dict[int, Metadata]) -> Iterator[VersionChanges]:
    """The changes of each commit; metadata actions are put into ``metadata``, by version."""
    for commit in commits:
        if commit.metadata is not None:
            metadata[commit.version] = commit.metadata
        yield commit.changes


@dataclass(frozen=True)
class _Commit:
    version: int
    changes: VersionChanges
    metadata: Metadata | None


def _commits(snapshot: Snapshot, versions: range) -> Iterator[_Commit]:
    """The commits of some versions: their changes and their metadata."""
    if not versions:
        return
    store = snapshot.store
    listed = _listed(store)
    missing = next((version for version in versions if version not in listed), None)
    if missing is not None:
        raise VersionNotFoundError(
            f"the commit of version {missing} is not in the log, whose commits begin with version "
            f"{min(listed, default=0)}: its changes are no longer known"
        )
    files = [listed[version] for version in versions]
    since = enablement(snapshot.protocol, snapshot.metadata)
    known = [(file.version, file.mtime_ms or 0) for file in listed.values() if file.version < versions.stop]
    before = dict(commit_timestamps(known, since, lambda _: 0))
    for some in at_most(files, lambda file: file.size, _READ_BYTES):
        try:
            contents = read_commits(store, some)
        except ObjectNotFoundError as error:
            raise VersionNotFoundError(f"a commit was removed before it was read: {error}") from error
        for file, actions in zip(some, contents, strict=True):
            stamped = since is not None and file.version >= since.version
            time = in_commit_timestamp(actions, file.key) if stamped else before[file.version]
            changed = VersionChanges(file.version, time, changes_of(actions, file.version))
            yield _Commit(file.version, changed, _metadata_of(actions))


def _listed(store: Store) -> dict[int, LogFile]:
    """The commits of the log, oldest first."""
    found = {}
    for key, size, mtime_ms in list_log(store):
        name = parse_log_name(key)
        if name is not None and name.kind == "commit":
            found[name.version] = LogFile(commit_key(name.version), size, mtime_ms, name.version, name.version)
    return dict(sorted(found.items()))


def _metadata_of(actions: Sequence[AnyAction]) -> Metadata | None:
    return next((action for action in actions if isinstance(action, Metadata)), None)


def _milliseconds(name: str, time: str | dt.datetime, timezone: str | None) -> int:
    try:
        return milliseconds(time, timezone)
    except InvalidArgumentError:
        raise InvalidArgumentError(f"{name} is a datetime or an ISO 8601 string, not {time!r}") from None
