"""Whether a commit is legal by itself (PROTOCOL.md, "Delta Log Entries" in the requirements for writers)."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from refdelta.core.log.paths import data_key
from refdelta.core.log.replay import file_key
from refdelta.core.log.statistics import parse_stats
from refdelta.core.pruning.stats import load_stats
from refdelta.core.rows.deletion_vector import locate, z85_decode
from refdelta.errors import DeltaError, InvalidLogError, UnsafePathError
from refdelta.verifier.report import OfCommit
from refdelta.verifier.state import physical_rows

if TYPE_CHECKING:
    from refdelta.core.log.actions import AnyAction
    from refdelta.verifier.log_files import Commit, Line
    from refdelta.verifier.report import Report


class CommitCheck(OfCommit):
    """Looks at one commit.

    Args:
        commit: the commit.
        table_uri: where the table is, by which absolute paths are told.
        report: takes the findings.
    """

    def __init__(self, commit: Commit, table_uri: str, report: Report):
        self.commit, self.table_uri, self.report = commit, table_uri, report

    def run(self) -> None:
        """Note what breaks a rule."""
        self._first_version()
        self._duplicates()
        for line in self.commit.lines:
            self._line(line)

    def _first_version(self) -> None:
        if self.commit.version:
            return
        kinds = {type(line.action) for line in self.commit.lines}
        for kind, name in ((Protocol, "protocol"), (Metadata, "metaData")):
            if kind not in kinds:
                self.find("action-2", f"the first version has no {name} action")

    def _duplicates(self) -> None:
        seen: dict[object, Line] = {}
        for line in self.commit.lines:
            for clause, what, name in _names(line.action):
                first = seen.setdefault((clause, what), line)
                if first is not line:
                    self.find(clause, f"{name}; line {first.number} has one already", line)
        added = {file_key(line.action): line for line in self.commit.lines if isinstance(line.action, Add)}
        for line in self.commit.lines:
            if isinstance(line.action, Remove) and file_key(line.action) in added:
                what = f"is added with the same deletion vector on line {added[file_key(line.action)].number}"
                self.find("action-9", f"{line.action.path!r} is removed, and {what}", line)

    def _line(self, line: Line) -> None:
        match line.action:
            case Sidecar() | CheckpointMetadata():
                self.find("log-7", "an action that belongs in a checkpoint", line)
            case Add() as add:
                self._path(add.path, line)
                self._vector(add, line)
                self._statistics(add, line)
                if add.size < 0:
                    self.find("file-1", f"a size of {add.size}", line)
            case Remove() as remove:
                self._path(remove.path, line)
                self._vector(remove, line)
                if remove.extended_file_metadata and (remove.partition_values is None or remove.size is None):
                    self.find("action-14", "extendedFileMetadata is true, but partitionValues or size is missing", line)
                if remove.deletion_timestamp is None:
                    self.find("action-15", "the remove has no deletionTimestamp", line)
            case Cdc() as cdc:
                self._path(cdc.path, line)
                if cdc.data_change:
                    self.find("action-13", "dataChange of a cdc file is true", line)

    def _path(self, path: str, line: Line) -> None:
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
                self.find("cdf-5", f"the change file {path!r} is not in _change_data", line)
        elif isinstance(line.action, Add) and hidden:
            self.find("file-6", f"the data file {path!r} is in the hidden folder {hidden[0]!r}", line)

    def _vector(self, action: Add | Remove, line: Line) -> None:
        vector = action.deletion_vector
        if vector is None:
            return
        if vector.storage_type == "i" and vector.offset is not None:
            self.find("dv-9", "an inline deletion vector with an offset", line)
        try:
            locate(vector)
            if vector.storage_type == "i":
                z85_decode(vector.path_or_inline_dv)
        except DeltaError as error:
            self.find("dv-9", str(error), line)
        except ValueError as error:
            self.find("dv-9", f"an inline deletion vector that is no z85: {error}", line)
        if isinstance(action, Add) and physical_rows(action) is None:
            self.find("dv-5", f"{action.path!r} has a deletion vector, and its statistics no numRecords", line)

    def _statistics(self, add: Add, line: Line) -> None:
        if not add.stats:
            return
        found = load_stats(add.stats)
        if not isinstance(found, dict) or parse_stats(add.stats) is None:
            self.find("stats-6", f"the statistics of {add.path!r} are not what the specification describes", line)
            return
        count = found.get("numRecords")
        if count is not None and (not isinstance(count, int) or count < 0):
            self.find("stats-4", f"numRecords of {add.path!r} is {count}", line)


def _names(action: AnyAction) -> list[tuple[str, object, str]]:
    """What a commit may have once: by clause, by what tells it apart, in words."""
    match action:
        case Add():
            return [("action-1", ("add", action.path), f"another add of {action.path!r}")]
        case Remove():
            return [("action-1", ("remove", action.path), f"another remove of {action.path!r}")]
        case Metadata():
            return [("action-8", "metaData", "another metaData action")]
        case Protocol():
            return [("action-8", "protocol", "another protocol action")]
        case Txn():
            return [("action-8", ("txn", action.app_id), f"another txn of {action.app_id!r}")]
        case DomainMetadata():
            return [("action-8", ("domain", action.domain), f"another domainMetadata of {action.domain!r}")]
        case CommitInfo():
            return []
    return []
