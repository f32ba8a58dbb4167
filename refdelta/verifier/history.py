"""Whether a commit is legal behind the versions before it (PROTOCOL.md, "Add File and Remove File" and features)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refdelta.core.log.actions import Add, Cdc, CommitInfo, DomainMetadata, Remove
from refdelta.core.log.paths import same_path
from refdelta.core.log.replay import file_key
from refdelta.core.table.in_commit_timestamp import kept
from refdelta.verifier.report import OfCommit
from refdelta.verifier.state import rows_of

if TYPE_CHECKING:
    from refdelta.verifier.log_files import Commit, Line
    from refdelta.verifier.report import Report
    from refdelta.verifier.state import State


_OF_MERGE = ("numTargetRowsUpdated", "numTargetRowsCopied")


def _changed_nothing(metrics: dict[str, Any]) -> bool:
    """Whether a MERGE wrote files anew of which no row is another, as old versions of delta-spark do."""
    names = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    return all(metrics.get(name) == "0" for name in names)


class Before:
    """What a check needs of the state that a commit meets, taken before the state goes on.

    Attributes:
        live: by path of the commit, the live files that it has.
        seen: the logical files of the commit that are live, or were.
        known_paths: the paths of the commit that some version before has had.
        protocol: the protocol in force.
        metadata: the metadata in force.
        appends_only: whether nothing could be removed.
        vectors: whether new deletion vectors were allowed.
        feed: whether changes had to be told.
        timestamp: the in-commit timestamp of the version before.
        stamped: whether the version before had to have one.
        version: the version before; -1 before the first.
        file_time: when the file of that version was written, in milliseconds since 1970; None where that is not known.
    """

    def __init__(self, state: State, commit: Commit, file_time: int | None = None):
        self.file_time = file_time
        actions = [line.action for line in commit.lines if isinstance(line.action, (Add, Remove))]
        self.live: dict[str, list[Add]] = {same_path(action.path): state.live(action.path) for action in actions}
        self.seen = {key for key in map(file_key, actions) if key in state.tombstones or key in state.files}
        self.known_paths = self.live.keys() & state.paths.keys()
        self.protocol, self.metadata = state.protocol, state.metadata
        self.appends_only = _appends_only(state)
        self.vectors = state.is_on("delta.enableDeletionVectors")
        self.feed = state.is_on("delta.enableChangeDataFeed")
        self.timestamp = state.timestamp
        self.stamped = _stamped(state)
        self.version = state.version


def _appends_only(state: State) -> bool:
    return state.supports("appendOnly") and state.is_on("delta.appendOnly")


def _stamped(state: State) -> bool:
    return state.protocol is not None and state.metadata is not None and kept(state.protocol, state.metadata)


class HistoryCheck(OfCommit):
    """Looks at a commit and at the states before and behind it.

    Args:
        commit: the commit.
        before: what it met.
        after: the state behind it.
        report: takes the findings.
    """

    def __init__(self, commit: Commit, before: Before, after: State, report: Report):
        self.commit, self.before, self.after, self.report = commit, before, after, report
        self.adds = [(line, line.action) for line in commit.lines if isinstance(line.action, Add)]
        self.removes = [(line, line.action) for line in commit.lines if isinstance(line.action, Remove)]

    def run(self) -> None:
        """Note what breaks a rule."""
        self._logical_files()
        self._vectors()
        self._rearranged()
        self._append_only()
        self._timestamp()
        self._changes()
        if not self.after.supports("domainMetadata"):
            for line in self.commit.lines:
                # The commit that drops the feature may take the domains away.
                if isinstance(line.action, DomainMetadata) and not line.action.removed:
                    domain = line.action.domain
                    self.find("action-18", f"the domain {domain!r}, and no feature domainMetadata", line)

    def _live(self, path: str) -> list[Add]:
        return self.before.live.get(same_path(path), [])

    def _logical_files(self) -> None:
        removed = {file_key(remove) for _, remove in self.removes}
        for line, add in self.adds:
            others = [one for one in self._live(add.path) if file_key(one) != file_key(add)]
            if any(file_key(one) not in removed for one in others):
                self.find("action-10", f"{add.path!r} is live with another deletion vector, which stays", line)
        for line, remove in self.removes:
            live = self._live(remove.path)
            if live and file_key(remove) not in map(file_key, live):
                self.find("dv-6", f"{remove.path!r} is live, but not with the deletion vector of this remove", line)

    def _vectors(self) -> None:
        for line, add in self.adds:
            if add.deletion_vector is None:
                continue
            if not self.after.supports("deletionVectors"):
                self.find("dv-7", f"{add.path!r} has a deletion vector, and the table no feature deletionVectors", line)
            elif (
                file_key(add) not in self.before.seen
                and not self.before.vectors
                and not self.after.is_on("delta.enableDeletionVectors")
            ):
                self.find("dv-4", f"a new deletion vector of {add.path!r}; they are not enabled", line)

    def _rearranged(self) -> None:
        """What comes without dataChange holds the rows of what goes without it."""
        added, gone = list[Add](), list[Add]()
        for line, add in self.adds:
            if add.data_change:
                continue
            again = [one for one in self._live(add.path) if file_key(one) == file_key(add)]
            if again:
                continue  # its statistics or tags are new
            if not self.removes:
                self.find("action-11", f"{add.path!r} is new and has no dataChange, and nothing is removed", line)
                return
            added.append(add)
        known = True
        for line, remove in self.removes:
            if remove.data_change is not False:
                continue
            live = [one for one in self._live(remove.path) if file_key(one) == file_key(remove)]
            gone += live
            known = known and bool(live)
            if not self.adds and any(rows_of(one) != 0 for one in live):
                self.find("action-12", f"{remove.path!r} is removed without dataChange, and nothing is added", line)
                return
        coming, going = [rows_of(add) for add in added], [rows_of(add) for add in gone]
        if not known or None in coming or None in going or not (added or gone):
            return
        new, old = sum(filter(None, coming)), sum(filter(None, going))
        if new > old:
            self.find("action-11", f"files without dataChange add {new} rows, and remove {old}")
        elif new < old:
            self.find("action-12", f"files without dataChange remove {old} rows, and add {new}")

    def _append_only(self) -> None:
        if not (self.before.appends_only and _appends_only(self.after)):
            return
        for line, remove in self.removes:
            if remove.data_change is not False:
                self.find("feature-4", f"{remove.path!r} is removed from a table that is append-only", line)

    def _changes(self) -> None:
        """Change files are needed where rows were updated, or copied to new files: without them, readers take all rows
        of a new file as inserted, and all rows of a removed one as deleted (PROTOCOL.md, "Change Data Files").
        """
        on = self.after.is_on("delta.enableChangeDataFeed") and self.after.supports("changeDataFeed")
        if not (on and self.before.feed) or any(isinstance(line.action, Cdc) for line in self.commit.lines):
            return
        infos = [line.action.fields for line in self.commit.lines if isinstance(line.action, CommitInfo)]
        operation = infos[0].get("operation") if infos else None
        found = infos[0].get("operationMetrics") if infos else None
        metrics: dict[str, Any] = found if isinstance(found, dict) else {}
        paths = {remove.path for _, remove in self.removes if remove.data_change is not False}
        new = [line for line, add in self.adds if add.data_change and add.path not in paths]
        if operation == "UPDATE" and paths and new:
            self.find("cdf-3", "an UPDATE wrote files, and no change files", new[0])
        # Only rows of a file that is gone can have been copied. Other new rows were appended in the same commit.
        gone = paths - {add.path for _, add in self.adds}
        if operation == "DELETE" and gone and new and metrics.get("numCopiedRows") != "0":
            self.find("cdf-3", "a DELETE wrote files, and no change files", new[0])
        merged = any(metrics.get(name, "0") != "0" for name in _OF_MERGE) and not _changed_nothing(metrics)
        if operation == "MERGE" and paths and new and merged:
            self.find("cdf-3", "a MERGE updated or copied rows, and wrote no change files", new[0])

    # --- in-commit timestamps --------------------------------------------------------------------------------------

    def _timestamp(self) -> None:
        stamp = self._stamp()
        self.after.timestamp = stamp
        if not _stamped(self.after):
            return
        if stamp is None:
            self.find("ict-2", "the first action is no commitInfo with an inCommitTimestamp", _first(self.commit))
            return
        if self.before.timestamp is not None and self.before.stamped and stamp <= self.before.timestamp:
            self.find(
                "ict-2",
                f"its inCommitTimestamp {stamp} is not later than {self.before.timestamp} of the version before",
                _first(self.commit),
            )
        if self.before.version >= 0 and not self.before.stamped:
            self._turned_on(stamp)
            file_time = self.before.file_time
            if file_time is not None and stamp <= file_time:
                message = f"its inCommitTimestamp {stamp} is not later than {file_time}, when the version before came"
                self.find("ict-4", message, _first(self.commit), warning=True)

    def _stamp(self) -> int | None:
        first = _first(self.commit)
        if first is None or not isinstance(first.action, CommitInfo):
            return None
        stamp = first.action.fields.get("inCommitTimestamp")
        return stamp if isinstance(stamp, int) and not isinstance(stamp, bool) else None

    def _turned_on(self, stamp: int) -> None:
        configuration = (self.after.metadata.configuration if self.after.metadata else None) or {}
        wanted = {
            "delta.inCommitTimestampEnablementVersion": str(self.commit.version),
            "delta.inCommitTimestampEnablementTimestamp": str(stamp),
        }
        for name, value in wanted.items():
            found = configuration.get(name)
            if found != value:
                self.find("ict-3", f"{name} is {found}, where timestamps were turned on with {value}")


_SAME_TIME_MS = 60 * 60 * 1000


def own_file_time(commit: Commit, mtime_ms: int | None) -> int | None:
    """When the file of a commit was written: None where that is far from what the commit says, so that the file was
    copied since.
    """
    first = _first(commit)
    said = first.action.fields.get("timestamp") if first is not None and isinstance(first.action, CommitInfo) else None
    if mtime_ms is None or not isinstance(said, int) or abs(mtime_ms - said) > _SAME_TIME_MS:
        return None
    return mtime_ms


def _first(commit: Commit) -> Line | None:
    return commit.lines[0] if commit.lines else None
