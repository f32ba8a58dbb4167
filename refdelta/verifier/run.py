"""``refdelta.verify``: a table against the clauses of PROTOCOL.md: its log, commit by commit, then its data files."""

from __future__ import annotations

from typing import TYPE_CHECKING, runtime_checkable
from typing import Protocol as Interface

from refdelta.core.log.actions import Add, DomainMetadata, Metadata, Protocol, Remove
from refdelta.core.log.json_text import read_json
from refdelta.core.log.paths import commit_key, last_checkpoint_key
from refdelta.core.log.segment import parse_last_checkpoint
from refdelta.engine.log.location import open_location, with_others
from refdelta.engine.log.managed_log import BEHIND, MISSING, OTHER, managed_by
from refdelta.engine.log.state import adds_table, removes_table
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import DeltaError, InvalidArgumentError
from refdelta.table.types import parse_schema
from refdelta.verifier import SAMPLE
from refdelta.verifier.adds import AddCheck
from refdelta.verifier.change_files import version_change
from refdelta.verifier.checkpoints import CheckpointCheck
from refdelta.verifier.checksums import ChecksumCheck
from refdelta.verifier.columns import KnownNames
from refdelta.verifier.commits import CommitCheck, HistoryCheck, StateBefore, own_file_time
from refdelta.verifier.data_files import DataCheck, OldVector
from refdelta.verifier.log_files import LogFiles, LoggedCommit, list_log, read_commit
from refdelta.verifier.metadata import TableCheck, UsedFeatures, check_clustering_domain
from refdelta.verifier.moved_rows import compaction
from refdelta.verifier.report import Report
from refdelta.verifier.row_tracking import DOMAIN as ROW_TRACKING
from refdelta.verifier.row_tracking import TrackingCheck, check_state, high_water_mark
from refdelta.verifier.state import State, StateComparison, physical_rows

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from refdelta.verifier.change_files import VersionChange
    from refdelta.verifier.log_files import Checkpoint
    from refdelta.verifier.moved_rows import Compaction
    from refdelta_storage.base import Store


@runtime_checkable
class Stored(Interface):
    """A handle on a table, which has its store."""

    @property
    def store(self) -> Store:
        """The store of the table."""


def verify(
    uri: str | os.PathLike[str] | Stored,
    *,
    sample: int | None = SAMPLE,
    storage_options: Mapping[str, str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    outside: Sequence[str | os.PathLike[str]] = (),
) -> Report:
    """Check a whole table against PROTOCOL.md. Nothing is written, and no statement of the table is taken as true.

    Every commit in the log is checked by itself and against the state before it; checkpoints, checksums, compacted
    files and ``_last_checkpoint`` against the state of their version. All data files of the newest version are checked
    for existence and size, and a sample of them is read: columns, field ids, types, deletion vectors, statistics, row
    ids, and the rules of the table for its rows. Deletion vectors and change files of earlier versions that still exist
    are read too; change files are compared with the rows that their version added and removed, and rows at the places
    that a compaction records with the rows of its inputs.

    Files are read concurrently, on remote stores more of them than there are cores. Memory holds the list of the live
    files as columns, some 800 bytes for each, a batch of rows for each file that is read, and the ids of rows as
    bitmaps.

    Args:
        uri: the table's folder; or a :class:`~refdelta.DeltaTable`, such as a catalog gives.
        sample: the number of data files of the newest version to read, spread evenly over all, and likewise of older
            deletion vectors and of change files; None for all, 0 for the log alone.
        storage_options: as for :class:`~refdelta.DeltaTable`.
        progress: called with the kind of object, the number done and the total.
        outside: as for :class:`~refdelta.DeltaTable`; without it, files of other folders are not checked.

    Returns:
        The report; ``report.sound`` is True if it has no error.

    Raises:
        TableNotFoundError: there is no log.
        StoreError: the store cannot be read.
        InvalidArgumentError: ``sample`` is negative.

    Example::

        write_deltalake(uri, rows)
        report = verify(uri)
        print(report.sound, *report.findings)
    """
    if sample is not None and (isinstance(sample, bool) or not isinstance(sample, int) or sample < 0):
        raise InvalidArgumentError(f"sample must be a number of files, or None for all, not {sample!r}")
    if isinstance(uri, Stored):
        return verify_store(uri.store, sample=sample, progress=progress)
    store = with_others(open_location(uri, storage_options), outside, storage_options)
    return verify_store(store, sample=sample, progress=progress)


def verify_store(
    store: Store, *, sample: int | None = SAMPLE, progress: Callable[[str, int, int], None] | None = None
) -> Report:
    """Check the table in a store; see :func:`verify`."""
    report = Report(store.uri)
    managed = managed_by(store)
    if managed is not None:
        with store_errors("compare the catalog with the folder"):
            differences = managed.differences()
        for kind, message in differences:
            report.find(_DIFFERENCES[kind], message)
        if differences:
            report.skip("the log and the data files: the catalog and the folder do not agree about the versions")
            return report
    log = list_log(store)
    report.newest = log.newest
    walk = LogWalk(store, log, report, progress or _silent)
    state = walk.run()
    if state is None or sample == 0:
        return report
    try:
        data = DataCheck(store, state, report, progress or _silent)
    except DeltaError as error:
        report.skip(f"the data files: {error}")
        return report
    data.run(sample, walk.vectors.values(), walk.changes, walk.compactions)
    return report


_DIFFERENCES = {BEHIND: "catalog-12", MISSING: "catalog-13", OTHER: "catalog-7"}


def _silent(what: str, done: int, total: int) -> None:
    del what, done, total


# --- the log, commit by commit ---------------------------------------------------------------------------------------


class LogWalk:
    """The walk through a log from its oldest version to its newest.

    Args:
        store: the table's folder.
        log: its files.
        report: takes the findings.
        progress: called after each commit with the kind of object, the number done and the total.
    """

    def __init__(self, store: Store, log: LogFiles, report: Report, progress: Callable[[str, int, int], None]):
        self.store, self.log, self.report, self.progress = store, log, report, progress
        self.state = State()
        self.known = KnownNames()
        self.used = UsedFeatures()
        self.file_time: int | None = None
        self.changes: list[VersionChange] = []
        self.compactions: list[Compaction] = []
        self.vectors: dict[tuple[str, str], OldVector] = {}

    def run(self) -> State | None:
        """Check the whole log. Returns the state of the newest version, or None if it cannot be known."""
        first = min(self.log.commits, default=None)
        start = self._begin(first)
        for version in sorted(v for v in self.log.commits if v < start):
            self._alone(version)
        if self.state.version < 0 and first != 0:
            return None
        sound = self._commits(start)
        self._hint()
        return self.state if sound else None

    # --- beginning ---------------------------------------------------------------------------------------------------

    def _begin(self, first: int | None) -> int:
        """Set the first known state. Returns the version of the first commit to apply to it."""
        if first == 0:
            return 0
        bases = sorted(v for v in self.log.checkpoints if first is None or v >= first - 1)
        for version in bases:
            for checkpoint in self.log.checkpoints[version]:
                if self._based_on(checkpoint):
                    if version > 0 and version not in self.log.commits:
                        message = "the commit of the oldest checkpoint is missing"
                        self.report.find("check-7", message, version=version, file=commit_key(version))
                    return version + 1
        if first is not None:
            message = "the commits before are missing, and no checkpoint covers them"
            self.report.find("check-7", message, version=first, file=commit_key(first))
            return max(self.log.commits) + 1
        return 0

    def _based_on(self, checkpoint: Checkpoint) -> bool:
        state = State()
        content = CheckpointCheck(self.store, checkpoint, self.log, self.report).read(state)
        if content is None:
            return False
        self.state = state
        state.step(checkpoint.version, content.actions)
        if self.state.protocol is None or self.state.metadata is None:
            return False
        self.report.checked["checkpoints"] += 1
        if self.report.oldest is None:
            self.report.oldest = checkpoint.version
        TableCheck(self.state, None, self.known, checkpoint.keys[0], self.report).run()
        self.used.begin(self.state)
        AddCheck(self.state, self.report).all_files(checkpoint.keys[0])
        self._compacted_and_checksum()
        return True

    def _alone(self, version: int) -> None:
        """Check a commit before the first known state, only by itself."""
        commit = read_commit(self.store, version, self.report)
        if commit is not None:
            self.report.checked["commits"] += 1
            CommitCheck(commit, self.store.uri, self.report).run()
            if version == self.state.version:
                self._stamp(commit)

    def _stamp(self, commit: LoggedCommit) -> None:
        info = commit.actions[0] if commit.lines else None
        stamp = getattr(info, "fields", {}).get("inCommitTimestamp")
        self.state.timestamp = stamp if isinstance(stamp, int) else None

    # --- commits -----------------------------------------------------------------------------------------------------

    def _commits(self, start: int) -> bool:
        newest, version = self.log.newest, start
        while version <= newest:
            if version not in self.log.commits:
                version = self._after_gap(version)
                if version < 0:
                    return False
                continue
            commit = read_commit(self.store, version, self.report)
            if commit is None:
                self.report.skip(f"{commit_key(version)}: it was removed while the log was read")
                return False
            self._commit(commit)
            version += 1
            self.progress("commits", version - start, newest - start + 1)
        self._whole_state()
        return True

    def _after_gap(self, version: int) -> int:
        """Report a missing commit. Returns the version after the next checkpoint, where the walk continues, or -1."""
        self.report.find("log-2", "the commit is missing, and later versions exist", version=version)
        for base in sorted(v for v in self.log.checkpoints if v >= version):
            for checkpoint in self.log.checkpoints[base]:
                if self._based_on(checkpoint):
                    return base + 1
        return -1

    def _commit(self, commit: LoggedCommit) -> None:
        report, state = self.report, self.state
        if report.oldest is None:
            report.oldest = commit.version
        report.checked["commits"] += 1
        report.checked["actions"] += len(commit.lines)
        CommitCheck(commit, self.store.uri, report).run()
        before = StateBefore(state, commit, self.file_time)
        self.file_time = own_file_time(commit, self.log.commits.get(commit.version))
        mark = high_water_mark(state.domains.get(ROW_TRACKING))
        state.step(commit.version, commit.actions)
        kinds = {type(action) for action in commit.actions}
        if Metadata in kinds or Protocol in kinds:
            TableCheck(state, before.metadata, self.known, commit.key, report, commit).run()
            self.used.step(commit, before.protocol, state, report)
        HistoryCheck(commit, before, state, report).run()
        TrackingCheck(commit, before, mark, state, report).run()
        AddCheck(state, report).of_commit(commit.lines, commit.key)
        for line in commit.lines:
            if isinstance(line.action, Add):
                self._vector(line.action)
            elif isinstance(line.action, DomainMetadata):
                check_clustering_domain(state, line.action, commit.key, line.number, report)
        self._passed()

        moved = compaction(commit, before, state, self.report)
        if moved is not None:
            self.compactions.append(moved)
        changed = version_change(commit, before, state)
        if changed is not None:
            self.changes.append(changed)

    def _vector(self, add: Add) -> None:
        if add.deletion_vector is not None:
            one = OldVector(self.state.version, add.path, add.deletion_vector, physical_rows(add))
            self.vectors.setdefault((add.path, add.deletion_vector.unique_id), one)

    def _passed(self) -> None:
        for checkpoint in self.log.checkpoints.get(self.state.version, ()):
            self.report.checked["checkpoints"] += 1
            CheckpointCheck(self.store, checkpoint, self.log, self.report).compare(self.state)
        self._compacted_and_checksum()

    def _compacted_and_checksum(self) -> None:
        version = self.state.version
        if version in self.log.checksums:
            self.report.checked["checksums"] += 1
            ChecksumCheck(self.store, self.state, self.report).run()
        for first, key in self.log.compacted.get(version, ()):
            self._compacted(first, key)

    def _compacted(self, first: int, key: str) -> None:
        """Compare a compacted file with the commits that it covers, which are read again."""
        last = self.state.version
        file = read_commit(self.store, last, self.report, key=key)
        commits = [read_commit(self.store, v, self.report) for v in range(first, last + 1) if v in self.log.commits]
        if file is None or None in commits or len(commits) != last - first + 1:
            self.report.skip(f"{key}: some of its commits are missing")
            return
        self.report.checked["compacted files"] += 1
        for line in file.lines:
            if type(line.action).__name__ in ("CommitInfo", "Cdc"):
                message = "the compacted file has a commitInfo or a cdc action"
                self.report.find("log-9", message, version=last, file=key, line=line.number)
        right, own = State(), State()
        for commit in commits:
            if commit is not None:
                right.step(commit.version, commit.actions)
        own.step(last, [action for action in file.actions if not isinstance(action, (Add, Remove))])
        for kind in ("protocol", "metadata"):
            if (getattr(own, kind) is None) != (getattr(right, kind) is None):
                self.report.find(
                    "log-8", f"the {kind} action is missing, or is not in the commits", version=last, file=key
                )
        comparison = StateComparison(right, lambda text: self.report.find("log-8", text, version=last, file=key))
        comparison.take_adds(adds_table([action for action in file.actions if isinstance(action, Add)]))
        comparison.take_removes(removes_table([action for action in file.actions if isinstance(action, Remove)]))
        comparison.end(own, None)

    # --- after the last commit ---------------------------------------------------------------------------------------

    def _whole_state(self) -> None:
        schema = None
        if self.state.metadata is not None:
            try:
                schema = parse_schema(self.state.metadata.schema_string)
            except DeltaError:
                return  # a finding already
        check_state(self.state, schema, self.report)

    def _hint(self) -> None:
        if not self.log.hinted:
            return
        key = last_checkpoint_key()
        try:
            with store_errors(f"read {key}"):
                data = self.store.get(key)
        except DeltaError as error:
            self.report.skip(str(error))
            return
        hint = parse_last_checkpoint(data)
        if hint is None:
            checksum = _checksum_of(data)
            message = "its checksum does not match" if checksum else "it does not have the specified form"
            self.report.find("check-6", message, file=key)
            return
        found = self.log.checkpoints.get(hint.version, [])
        if not found:
            self.report.find("check-17", f"it names version {hint.version}, which has no checkpoint", file=key)
            return
        if hint.parts is not None and all(len(one.keys) != hint.parts for one in found):
            self.report.find(
                "check-17",
                f"it says {hint.parts} parts, and the checkpoint of version {hint.version} has another number",
                file=key,
            )


def _checksum_of(data: bytes) -> bool:
    try:
        found = read_json(data)
    except ValueError:
        return False
    return isinstance(found, dict) and "checksum" in found
