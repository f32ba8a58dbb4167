"""The log files from which a version is built (PROTOCOL.md, "Checkpoints", "Last Checkpoint File", "Log Compaction
Files").

A segment is a function of a listing, which may start anywhere at or before the checkpoint to use. ``_last_checkpoint``
is only a hint at that start.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any, Literal

import msgspec

from refdelta.core.errors import InvalidLogError, VersionNotFoundError
from refdelta.core.log.actions import Int64
from refdelta.core.log.checksum import json_checksum, json_checksum_holds, unique_keys
from refdelta.core.log.paths import LogName, commit_key, parse_log_name


class LogFile(msgspec.Struct, frozen=True):
    """A file of the log.

    Attributes:
        key: its key in the store.
        size: in bytes.
        mtime_ms: its modification time, in milliseconds since 1970; None for an own commit that was not listed yet.
        version: the version that it belongs to; the first one of a compacted file.
        hi: the last version that it covers; differs from ``version`` for compacted files only.
        tag: what identifies the object in its store, such as an etag; None if that is unknown.
    """

    key: str
    size: int
    mtime_ms: int | None
    version: int
    hi: int
    tag: Any = None

    def is_same(self, size: int, mtime_ms: int, tag: Any = None) -> bool:
        """Whether an object of the same key is this file: by the tags, or by size and time where one is unknown."""
        if self.tag is not None and tag is not None:
            return bool(self.tag == tag)
        return self.size == size and self.mtime_ms in (None, mtime_ms)


Listed = tuple[str, int, int] | tuple[str, int, int, Any]
"""A file in a listing: its key, its size in bytes, its modification time in milliseconds since 1970, and its tag (see
:class:`LogFile`) if the store has tags."""


class CheckpointFiles(msgspec.Struct, frozen=True):
    """A complete checkpoint: its parts in order, or its one file. A V2 checkpoint names its sidecars itself."""

    version: int
    files: tuple[LogFile, ...]
    kind: Literal["classic", "multipart", "uuid"]


class LogSegment(msgspec.Struct, frozen=True):
    """The files from which a version is built.

    Attributes:
        version: the version.
        checkpoint: the newest complete checkpoint at or before it; None if all commits are read.
        commits: commits and compacted files after the checkpoint, oldest first, each version once.
        checksum: the version checksum of this version.
        last_commit: the commit of the version, with its commitInfo; None if cleanup deleted it.
        listed: the newest commit that was listed: ``last_commit``, unless that is an own one. It identifies the log.
    """

    version: int
    checkpoint: CheckpointFiles | None
    commits: tuple[LogFile, ...]
    checksum: LogFile | None
    last_commit: LogFile | None
    listed: LogFile | None

    def with_our_commits(self, sizes: Iterable[int]) -> LogSegment:
        """The segment with own commits of the next versions, by their sizes in bytes."""
        ours = tuple(LogFile(commit_key(v), size, None, v, v) for v, size in enumerate(sizes, self.version + 1))
        return LogSegment(ours[-1].version, self.checkpoint, self.commits + ours, None, ours[-1], self.listed)

    def from_checkpoint(self, checkpoint: CheckpointFiles) -> LogSegment:
        """The segment from a newer checkpoint on; unchanged if that is not newer, if it is of a later version, or if a
        compacted file covers versions on both sides of it.
        """
        at, base = checkpoint.version, -1 if self.checkpoint is None else self.checkpoint.version
        later = tuple(file for file in self.commits if file.version > at)
        if not base < at <= self.version or any(file.version <= at < file.hi for file in self.commits):
            return self
        return LogSegment(self.version, checkpoint, later, self.checksum, self.last_commit, self.listed)

    def shown(self, size: int, mtime_ms: int, tag: Any = None) -> LogSegment | None:
        """The segment after the store has listed the own commit. None if that has another size in bytes."""
        last = self.last_commit
        if last is None or last.size != size:
            return None
        now = LogFile(last.key, size, mtime_ms, last.version, last.hi, tag)
        commits = (*self.commits[:-1], now) if self.commits else ()
        return LogSegment(self.version, self.checkpoint, commits, self.checksum, now, now)


NO_LOG = LogSegment(-1, None, (), None, None, None)
"""The segment of a new table."""


def build_segment(
    listing: Iterable[Listed],
    *,
    version: int | None = None,
    use_compacted: bool = True,
    unreadable: Collection[str] = (),
) -> LogSegment | None:
    """The files that make a version.

    Args:
        listing: the files under ``_delta_log``, in any order; other files (staged commits, sidecars, temporary files)
            are ignored.
        version: the wanted version; None is the newest.
        use_compacted: whether a compacted file may replace the commits that it covers.
        unreadable: keys of damaged checkpoint files: their checkpoints do not count.

    Returns:
        None if the listing holds neither a commit nor a checkpoint.

    Raises:
        VersionNotFoundError: the version does not exist yet, or no longer.
        InvalidLogError: a commit is missing; with its version.
    """
    files = _Files(listing, unreadable)
    newest = files.newest()
    if newest is None:
        return None
    if version is None:
        version = newest
    if not 0 <= version <= newest:
        raise VersionNotFoundError(f"the table has no version {version}; its newest is {newest}")
    checkpoint = files.checkpoint_at_or_before(version)
    start = 0 if checkpoint is None else checkpoint.version + 1
    _check_contiguous(files, start, version, checkpoint)
    return LogSegment(
        version=version,
        checkpoint=checkpoint,
        commits=tuple(files.cover(start, version, use_compacted=use_compacted)),
        checksum=files.checksums.get(version),
        last_commit=files.commits.get(version),
        listed=files.commits.get(version),
    )


def complete_checkpoints(listing: Iterable[Listed]) -> list[CheckpointFiles]:
    """The complete checkpoints in a listing, whatever their version."""
    return [checkpoint for found in _Files(listing, ()).complete.values() for checkpoint in found]


def _check_contiguous(files: _Files, start: int, version: int, checkpoint: CheckpointFiles | None) -> None:
    missing = next((v for v in range(start, version + 1) if v not in files.commits), None)
    if missing is None:
        return
    readable = sorted(v for v in files.complete if v > version)
    if checkpoint is None and not any(v < missing for v in files.commits) and readable:
        # Old versions went by the log's retention; a later checkpoint stands for them.
        raise VersionNotFoundError(
            f"version {version} is not kept any more; the oldest that can be read is {readable[0]}"
        )
    after = "" if checkpoint is None else f" after the checkpoint at version {checkpoint.version}"
    raise InvalidLogError(
        f"version {missing} is missing{after}, so version {version} cannot be read", file=commit_key(missing)
    )


class _Files:
    """A listing, sorted by kind and version of the files."""

    def __init__(self, listing: Iterable[Listed], unreadable: Collection[str]) -> None:
        self.commits: dict[int, LogFile] = {}
        self.checksums: dict[int, LogFile] = {}
        self.compacted: dict[int, list[LogFile]] = defaultdict(list)
        self.complete: dict[int, list[CheckpointFiles]] = defaultdict(list)
        parts: dict[tuple[int, int], dict[int, LogFile]] = defaultdict(dict)
        for key, size, mtime_ms, *tag in listing:
            name = parse_log_name(key)
            if name is None or key in unreadable:
                continue
            file = LogFile(key, size, mtime_ms, name.version, name.hi, *tag)
            if name.kind == "commit":
                self.commits[name.version] = file
            elif name.kind == "checksum":
                self.checksums[name.version] = file
            elif name.kind == "compacted" and size:  # where its commits come to nothing, delta-spark leaves it empty
                self.compacted[name.version].append(file)
            elif name.kind == "multipart":
                parts[name.version, name.parts][name.part] = file
            elif name.kind in ("classic", "uuid"):
                self._add_checkpoint(name, file)
        for (version, count), found in parts.items():
            # A writer may have died between two parts.
            if len(found) == count:
                files = tuple(found[part] for part in sorted(found))
                self.complete[version].append(CheckpointFiles(version, files, "multipart"))

    def _add_checkpoint(self, name: LogName, file: LogFile) -> None:
        kind: Literal["classic", "uuid"] = "uuid" if name.kind == "uuid" else "classic"
        self.complete[name.version].append(CheckpointFiles(name.version, (file,), kind))

    def newest(self) -> int | None:
        return max((*self.commits, *self.complete), default=None)

    def checkpoint_at_or_before(self, version: int) -> CheckpointFiles | None:
        at = max((v for v in self.complete if v <= version), default=None)
        return None if at is None else min(self.complete[at], key=_preference)

    def cover(self, start: int, version: int, *, use_compacted: bool) -> Iterable[LogFile]:
        while start <= version:
            fitting = [file for file in self.compacted.get(start, ()) if file.hi <= version] if use_compacted else []
            # All that fit are equally right. Where they are not reconciled as they should be, the choice shows:
            # it is then delta-spark's, the first of the listing.
            file = min(fitting, key=lambda file: file.hi, default=self.commits[start])
            yield file
            start = file.hi + 1


def _preference(checkpoint: CheckpointFiles) -> tuple[int, int, str]:
    """Of checkpoints at one version all are equally right; first come those that no second writer can write over."""
    rank = {"uuid": 0, "classic": 1, "multipart": 2}[checkpoint.kind]
    return rank, len(checkpoint.files), checkpoint.files[0].key


# --- _last_checkpoint --------------------------------------------------------------------------------------------


class LastCheckpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """PROTOCOL.md, "Last Checkpoint File": a hint at the newest checkpoint.

    Attributes:
        version: the checkpoint's version.
        size: how many actions it has.
        parts: how many parts, if it is a multi-part one.
        size_in_bytes: its size.
        num_of_add_files: how many adds it has.
        checkpoint_schema: the Delta schema of its file.
        tags: free strings.
    """

    version: Int64
    size: Int64
    parts: Int64 | None = None
    size_in_bytes: Int64 | None = None
    num_of_add_files: Int64 | None = None
    checkpoint_schema: Any = None
    tags: dict[str, str | None] | None = None


msgspec.json.Decoder(LastCheckpoint)  # see decode_json: what is converted to has been met since the import


def parse_last_checkpoint(data: bytes) -> LastCheckpoint | None:
    """Read ``_last_checkpoint``.

    Returns:
        None if it is corrupt, has a key twice or a wrong checksum: a reader ignores it then.
    """
    try:
        stored = json.loads(data, object_pairs_hook=unique_keys)
        hint = msgspec.convert(stored, LastCheckpoint)
        msgspec.json.encode(hint)  # fails for half of a surrogate pair, which is no character
        if hint.version < 0:
            return None
        checksum = stored.get("checksum")
        return hint if checksum is None or json_checksum_holds(data, checksum) else None
    except (ValueError, RecursionError, msgspec.ValidationError):
        return None


def encode_last_checkpoint(hint: LastCheckpoint) -> bytes:
    """``_last_checkpoint`` with its checksum."""
    fields: dict[str, Any] = msgspec.to_builtins(hint)
    fields["checksum"] = json_checksum(msgspec.json.encode(fields))
    return msgspec.json.encode(fields)
