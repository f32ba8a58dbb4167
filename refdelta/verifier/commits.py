"""Commits: their validity by themselves, and after the versions before them.

PROTOCOL.md, "Delta Log Entries", "Add File and Remove File", "Append-only Tables", "In-Commit Timestamps".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refdelta.core.log.actions import (
    Add,
    Cdc,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Sidecar,
    Txn,
)
from refdelta.core.log.paths import data_key, same_path
from refdelta.core.log.replay import file_key
from refdelta.core.log.statistics import parse_stats
from refdelta.core.rows.deletion_vector import locate, z85_decode
from refdelta.engine.log.state import key_of
from refdelta.errors import DeltaError, InvalidLogError, UnsafePathError
from refdelta.pruning.stats import load_stats
from refdelta.table.in_commit_timestamp import kept
from refdelta.verifier.members import members_findings
from refdelta.verifier.state import physical_rows, rows_of

if TYPE_CHECKING:
    from refdelta.core.log.actions import AnyAction
    from refdelta.verifier.log_files import ActionLine, LoggedCommit
    from refdelta.verifier.report import Report
    from refdelta.verifier.state import State


class CommitFindings:
    """The base of checks of one commit: their findings have its version and its file.

    Attributes:
        commit: the commit.
        report: takes the findings.
    """

    commit: LoggedCommit
    report: Report

    def find(self, clause: str, message: str, line: ActionLine | None = None, *, warning: bool = False) -> None:
        """Add a finding of this commit."""
        self.report.find(
            clause,
            message,
            version=self.commit.version,
            file=self.commit.key,
            line=None if line is None else line.number,
            severity="warning" if warning else None,
        )


class CommitCheck(CommitFindings):
    """The check of one commit by itself.

    Args:
        commit: the commit.
        table_uri: the location of the table, to resolve absolute paths.
        report: takes the findings.
    """

    def __init__(self, commit: LoggedCommit, table_uri: str, report: Report):
        self.commit, self.table_uri, self.report = commit, table_uri, report

    def run(self) -> None:
        """Report violations."""
        self._first_version()
        self._duplicates()
        for line in self.commit.lines:
            self._line(line)
        for clause, message, at in members_findings(self.commit):
            self.find(clause, message, at)

    def _first_version(self) -> None:
        if self.commit.version:
            return
        kinds = {type(line.action) for line in self.commit.lines}
        for kind, name in ((Protocol, "protocol"), (Metadata, "metaData")):
            if kind not in kinds:
                self.find("action-2", f"the first version has no {name} action")

    def _duplicates(self) -> None:
        seen: dict[object, ActionLine] = {}
        for line in self.commit.lines:
            for clause, what, name in _names(line.action):
                first = seen.setdefault((clause, what), line)
                if first is not line:
                    self.find(clause, f"the commit has another {name}; the first is on line {first.number}", line)
        added = {file_key(line.action): line for line in self.commit.lines if isinstance(line.action, Add)}
        for line in self.commit.lines:
            if isinstance(line.action, Remove) and file_key(line.action) in added:
                message = f"{line.action.path!r} is removed, and added with the same deletion vector on line"
                self.find("action-9", f"{message} {added[file_key(line.action)].number}", line)

    def _line(self, line: ActionLine) -> None:
        match line.action:
            case Sidecar() | CheckpointMetadata():
                self.find("log-7", "sidecar and checkpointMetadata actions are allowed only in a checkpoint", line)
            case Add() as add:
                self._path(add.path, line)
                self._vector(add, line)
                self._statistics(add, line)
                if add.size < 0:
                    self.find("file-1", f"the size of {add.path!r} is {add.size}, which is negative", line)
            case Remove() as remove:
                self._path(remove.path, line)
                self._vector(remove, line)
                if remove.extended_file_metadata and (remove.partition_values is None or remove.size is None):
                    self.find("action-14", "extendedFileMetadata is true, and partitionValues or size is missing", line)
                if remove.deletion_timestamp is None:
                    self.find("action-15", "the remove has no deletionTimestamp", line)
            case Cdc() as cdc:
                self._path(cdc.path, line)
                if cdc.data_change:
                    self.find("action-13", "dataChange of a cdc file is true", line)

    def _path(self, path: str, line: ActionLine) -> None:
        try:
            key = data_key(path, self.table_uri)
        except UnsafePathError:
            if not path or path.startswith(".."):
                self.find("path-1", f"the path {path!r} names no file of the table", line)
            else:
                self.report.skip(f"files outside of the table's folder, such as {path}")
            return
        except InvalidLogError as error:
            self.find("path-1", error.reason, line)
            return
        folders = key.split("/")[:-1]
        hidden = [folder for folder in folders if folder.startswith("_") and "=" not in folder]
        change_data = folders[:1] == ["_change_data"]
        if isinstance(line.action, Cdc):
            added = any(isinstance(o.action, Add) and o.action.path == path for o in self.commit.lines)
            if not change_data and not added:
                self.find("cdf-5", f"the change file {path!r} is not in the folder _change_data", line)
        elif isinstance(line.action, Add) and hidden:
            self.find("file-6", f"the data file {path!r} is in the hidden folder {hidden[0]!r}", line)

    def _vector(self, action: Add | Remove, line: ActionLine) -> None:
        vector = action.deletion_vector
        if vector is None:
            return
        if vector.storage_type == "i" and vector.offset is not None:
            self.find("dv-9", "an inline deletion vector has an offset", line)
        try:
            locate(vector)
            if vector.storage_type == "i":
                z85_decode(vector.path_or_inline_dv)
        except DeltaError as error:
            self.find("dv-9", str(error), line)
        except ValueError as error:
            self.find("dv-9", f"an inline deletion vector is not valid Z85: {error}", line)
        if isinstance(action, Add) and physical_rows(action) is None:
            self.find("dv-5", f"{action.path!r} has a deletion vector, but its statistics do not have numRecords", line)

    def _statistics(self, add: Add, line: ActionLine) -> None:
        if not add.stats:
            return
        found = load_stats(add.stats)
        if not isinstance(found, dict) or parse_stats(add.stats) is None:
            self.find("stats-6", f"the statistics of {add.path!r} are not a JSON object of the specified form", line)
            return
        count = found.get("numRecords")
        if count is not None and (not isinstance(count, int) or count < 0):
            self.find("stats-4", f"numRecords of {add.path!r} is {count!r}, not a number of rows", line)


def _names(action: AnyAction) -> list[tuple[str, object, str]]:
    """The keys that may occur once in a commit: for each its clause, the key, and its name in messages."""
    match action:
        case Add():
            return [("action-1", ("add", action.path), f"add of {action.path!r}")]
        case Remove():
            return [("action-1", ("remove", action.path), f"remove of {action.path!r}")]
        case Metadata():
            return [("action-8", "metaData", "metaData action")]
        case Protocol():
            return [("action-8", "protocol", "protocol action")]
        case Txn():
            return [("action-8", ("txn", action.app_id), f"txn of {action.app_id!r}")]
        case DomainMetadata():
            return [("action-8", ("domain", action.domain), f"domainMetadata of {action.domain!r}")]
        case CommitInfo():
            return []
    return []


# --- after the versions before ---------------------------------------------------------------------------------------


_OF_MERGE = ("numTargetRowsUpdated", "numTargetRowsCopied")


def _changed_nothing(metrics: dict[str, Any]) -> bool:
    """True for a MERGE that rewrote files without a change of a row, as old versions of delta-spark do."""
    names = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    return all(metrics.get(name) == "0" for name in names)


class StateBefore:
    """The facts of the state before a commit that the checks of the commit need.

    Attributes:
        live: by path of the commit, the live files with that path.
        seen: the keys of the logical files of the commit that are live, or have a tombstone.
        known_paths: the paths of the commit that an earlier version had.
        protocol: the protocol in force.
        metadata: the metadata in force.
        appends_only: whether the table was append-only.
        vectors: whether new deletion vectors were allowed.
        feed: whether the change data feed was enabled.
        timestamp: the in-commit timestamp of the version before.
        stamped: whether in-commit timestamps were enabled.
        version: the version before; -1 before the first.
        file_time: the modification time of the commit file of that version, in milliseconds since 1970; None if it
            is not known.
    """

    def __init__(self, state: State, commit: LoggedCommit, file_time: int | None = None):
        self.file_time = file_time
        actions = [line.action for line in commit.lines if isinstance(line.action, (Add, Remove))]
        self.live: dict[str, list[Add]] = state.files.live({same_path(action.path) for action in actions})
        self.seen = {key for key in map(key_of, actions) if key in state.tombstones or key in state.files}
        self.known_paths = {path for path in self.live if path in state.files.paths}
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


class HistoryCheck(CommitFindings):
    """The check of a commit against the states before and after it.

    Args:
        commit: the commit.
        before: the state before it.
        after: the state after it.
        report: takes the findings.
    """

    def __init__(self, commit: LoggedCommit, before: StateBefore, after: State, report: Report):
        self.commit, self.before, self.after, self.report = commit, before, after, report
        self.adds = [(line, line.action) for line in commit.lines if isinstance(line.action, Add)]
        self.removes = [(line, line.action) for line in commit.lines if isinstance(line.action, Remove)]

    def run(self) -> None:
        """Report violations."""
        self._logical_files()
        self._vectors()
        self._rearranged()
        self._append_only()
        self._timestamp()
        self._managed()
        self._changes()
        if not self.after.supports("domainMetadata"):
            for line in self.commit.lines:
                # The commit that drops the feature may remove the domains.
                if isinstance(line.action, DomainMetadata) and not line.action.removed:
                    domain = line.action.domain
                    self.find(
                        "action-18",
                        f"it sets the domain {domain!r}, and the table does not support domainMetadata",
                        line,
                    )

    def _live(self, path: str) -> list[Add]:
        return self.before.live.get(same_path(path), [])

    def _logical_files(self) -> None:
        removed = {file_key(remove) for _, remove in self.removes}
        for line, add in self.adds:
            others = [one for one in self._live(add.path) if file_key(one) != file_key(add)]
            if any(file_key(one) not in removed for one in others):
                self.find(
                    "action-10",
                    f"{add.path!r} is live with another deletion vector, which the commit does not remove",
                    line,
                )
        for line, remove in self.removes:
            live = self._live(remove.path)
            if live and file_key(remove) not in map(file_key, live):
                self.find(
                    "dv-6", f"{remove.path!r} is live with another deletion vector than that of this remove", line
                )

    def _vectors(self) -> None:
        for line, add in self.adds:
            if add.deletion_vector is None:
                continue
            if not self.after.supports("deletionVectors"):
                self.find(
                    "dv-7", f"{add.path!r} has a deletion vector, and the table does not support deletionVectors", line
                )
            elif (
                key_of(add) not in self.before.seen
                and not self.before.vectors
                and not self.after.is_on("delta.enableDeletionVectors")
            ):
                self.find(
                    "dv-4", f"{add.path!r} has a new deletion vector, and delta.enableDeletionVectors is not true", line
                )

    def _rearranged(self) -> None:
        """Files added without dataChange hold the rows of the files removed without it."""
        added, gone = list[Add](), list[Add]()
        for line, add in self.adds:
            if add.data_change:
                continue
            again = [one for one in self._live(add.path) if file_key(one) == file_key(add)]
            if again:
                continue  # only its statistics or tags change
            if not self.removes:
                self.find(
                    "action-11", f"the new file {add.path!r} has dataChange=false, and the commit removes no file", line
                )
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
                self.find(
                    "action-12", f"{remove.path!r} is removed with dataChange=false, and the commit adds no file", line
                )
                return
        coming, going = [rows_of(add) for add in added], [rows_of(add) for add in gone]
        if not known or None in coming or None in going or not (added or gone):
            return
        new, old = sum(filter(None, coming)), sum(filter(None, going))
        if new > old:
            self.find("action-11", f"the files added with dataChange=false have {new} rows, those removed have {old}")
        elif new < old:
            self.find("action-12", f"the files removed with dataChange=false have {old} rows, those added have {new}")

    def _append_only(self) -> None:
        if not (self.before.appends_only and _appends_only(self.after)):
            return
        for line, remove in self.removes:
            if remove.data_change is not False:
                self.find("feature-4", f"{remove.path!r} is removed, and the table is append-only", line)

    def _changes(self) -> None:
        """Change files are required where rows were updated, or copied to new files: without them, readers take all
        rows of a new file as inserted, and all rows of a removed one as deleted (PROTOCOL.md, "Change Data Files").
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
            self.find("cdf-3", "an UPDATE wrote data files and no change files", new[0])
        # Only rows of a removed file can have been copied. Other new rows were appended in the same commit.
        gone = paths - {add.path for _, add in self.adds}
        if operation == "DELETE" and gone and new and metrics.get("numCopiedRows") != "0":
            self.find("cdf-3", "a DELETE copied rows to new data files and wrote no change files", new[0])
        merged = any(metrics.get(name, "0") != "0" for name in _OF_MERGE) and not _changed_nothing(metrics)
        if operation == "MERGE" and paths and new and merged:
            self.find("cdf-3", "a MERGE updated or copied rows and wrote no change files", new[0])

    # --- in-commit timestamps --------------------------------------------------------------------------------------

    def _timestamp(self) -> None:
        stamp = self._stamp()
        self.after.timestamp = stamp
        if not _stamped(self.after):
            return
        if stamp is None:
            self.find("ict-2", "the first action is not a commitInfo with an inCommitTimestamp", _first(self.commit))
            return
        if self.before.timestamp is not None and self.before.stamped and stamp <= self.before.timestamp:
            self.find(
                "ict-2",
                f"its inCommitTimestamp {stamp} is not later than that of the version before, {self.before.timestamp}",
                _first(self.commit),
            )
        if self.before.version >= 0 and not self.before.stamped:
            self._turned_on(stamp)
            file_time = self.before.file_time
            if file_time is not None and stamp <= file_time:
                message = f"inCommitTimestamp {stamp} is not later than the file of the version before, {file_time}"
                self.find("ict-4", message, _first(self.commit), warning=True)

    def _managed(self) -> None:
        if not self.after.supports("catalogManaged"):
            return
        if not _stamped(self.after):
            self.find("catalog-9", "in-commit timestamps are not enabled", _first(self.commit))
        infos = [line for line in self.commit.lines if isinstance(line.action, CommitInfo)]
        ids = [line.action.fields.get("txnId") for line in infos if isinstance(line.action, CommitInfo)]
        if not any(isinstance(one, str) and one for one in ids):
            self.find("catalog-10", "no commitInfo has a txnId", infos[0] if infos else _first(self.commit))

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
                self.find(
                    "ict-3", f"{name} is {found}; the commit that enables in-commit timestamps must set it to {value}"
                )


_SAME_TIME_MS = 60 * 60 * 1000


def own_file_time(commit: LoggedCommit, mtime_ms: int | None) -> int | None:
    """The modification time of the file of a commit, in milliseconds since 1970; None if it is far from the time in the
    commit, since the file was copied then.
    """
    first = _first(commit)
    said = first.action.fields.get("timestamp") if first is not None and isinstance(first.action, CommitInfo) else None
    if mtime_ms is None or not isinstance(said, int) or abs(mtime_ms - said) > _SAME_TIME_MS:
        return None
    return mtime_ms


def _first(commit: LoggedCommit) -> ActionLine | None:
    return commit.lines[0] if commit.lines else None
