"""The files of a log by their names, and commits read line by line.

The verifier reads the log independently of the engine; only the decoding of one action is shared.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from refdelta.core.log.actions import Metadata
from refdelta.core.log.codec import decode_action
from refdelta.core.log.paths import LOG, LogName, commit_key, parse_log_name
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import DeltaError, TableNotFoundError
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from refdelta.core.log.actions import AnyAction
    from refdelta.verifier.report import Report
    from refdelta_storage.base import Store


_SCHEMA = re.compile(rb'"schemaString"\s*:\s*"')


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint by its files: the parts in order, or the one file."""

    version: int
    kind: str
    keys: tuple[str, ...]
    mtime_ms: int


@dataclass
class LogFiles:
    """The files of a log.

    Attributes:
        commits: version to modification time, in milliseconds since 1970.
        checksums: the versions that have a checksum file.
        checkpoints: the complete ones, by version.
        compacted: the first version and the key of each compacted file, by its last version.
        sidecars: names within ``_sidecars``, with their sizes in bytes.
        hinted: True if there is a ``_last_checkpoint``.
    """

    commits: dict[int, int] = field(default_factory=dict)
    checksums: set[int] = field(default_factory=set)
    checkpoints: dict[int, list[Checkpoint]] = field(default_factory=lambda: defaultdict(list))
    compacted: dict[int, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    sidecars: dict[str, int] = field(default_factory=dict)
    hinted: bool = False

    @property
    def newest(self) -> int:
        """The newest version of which there is a commit or a checkpoint."""
        return max((*self.commits, *self.checkpoints))


def list_log(store: Store) -> LogFiles:
    """The files of a table's log.

    Raises:
        TableNotFoundError: there is neither a commit nor a checkpoint.
    """
    found = LogFiles()
    parts: dict[tuple[int, int], dict[int, tuple[str, int]]] = defaultdict(dict)
    with store_errors("list the log"):
        for info in store.list(prefix=f"{LOG}/"):
            if info.key.startswith(f"{LOG}/_sidecars/"):
                found.sidecars[info.key.removeprefix(f"{LOG}/_sidecars/")] = info.size
                continue
            name = parse_log_name(info.key)
            if name is None:
                continue
            if name.kind == "multipart":
                parts[name.version, name.parts][name.part] = info.key, info.mtime_ms
            else:
                _take(found, name, info.key, info.mtime_ms)
    for (version, count), own in parts.items():
        if len(own) == count:
            keys = tuple(own[number][0] for number in sorted(own))
            latest = max(mtime for _, mtime in own.values())
            found.checkpoints[version].append(Checkpoint(version, "multipart", keys, latest))
    if not found.commits and not found.checkpoints:
        raise TableNotFoundError(f"there is no Delta table at {store.uri}: its folder {LOG} has no commit")
    return found


def _take(found: LogFiles, name: LogName, key: str, mtime_ms: int) -> None:
    match name.kind:
        case "commit":
            found.commits[name.version] = mtime_ms
        case "checksum":
            found.checksums.add(name.version)
        case "compacted":
            found.compacted[name.hi].append((name.version, key))
        case "last_checkpoint":
            found.hinted = True
        case _:
            found.checkpoints[name.version].append(Checkpoint(name.version, name.kind, (key,), mtime_ms))


@dataclass(frozen=True)
class ActionLine:
    """An action of a commit, with the number of its line."""

    number: int
    action: AnyAction


@dataclass(frozen=True)
class LoggedCommit:
    """A commit as its file holds it, without the lines that hold no action: these are findings already."""

    version: int
    key: str
    lines: tuple[ActionLine, ...]
    mtime_ms: int | None = None

    @property
    def actions(self) -> list[AnyAction]:
        """The actions, in their order."""
        return [line.action for line in self.lines]


def read_commit(store: Store, version: int, report: Report, *, key: str | None = None) -> LoggedCommit | None:
    """Read a commit, or a compacted file whose ``key`` is given.

    Returns:
        The commit; None if it was removed since the log was listed.
    """
    name = key or commit_key(version)
    try:
        with store_errors(f"read {name}"):
            data = store.get(name)
    except DeltaError as error:
        if isinstance(error.__cause__, ObjectNotFoundError):
            return None
        raise
    lines = []
    for number, text in enumerate(data.split(b"\n"), start=1):
        if not text.strip():
            continue
        try:
            action = decode_action(text, name, number)
        except DeltaError as error:
            report.find("log-3", _reason(error), version=version, file=name, line=number)
            continue
        if isinstance(action, Metadata) and not _SCHEMA.search(text):
            report.find("schema-1", "the metaData action has no schemaString", version=version, file=name, line=number)
        if action is not None:
            lines.append(ActionLine(number, action))
    if not lines and not data.strip():
        report.find("log-3", "the file has no action", version=version, file=name)
    return LoggedCommit(version, name, tuple(lines))


def _reason(error: DeltaError) -> str:
    # The text of an error of the log begins with the place, which a finding has already.
    return str(getattr(error, "reason", None) or error)
