"""Fast decoding of a commit for conflict checks: without statistics, tags and unknown fields, which are most of it.

A long transaction has to check thousands of commits. So each line is decoded into only the fields that rules use, and
the rest is skipped. A commit that this decoder refuses goes to :func:`~refdelta.core.log.codec.decode_commit`, whose
errors have file and line.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Literal, TypedDict

import msgspec

from refdelta.core.log.actions import Add, Cdc, CommitInfo, DomainMetadata, Metadata, Protocol, Remove, Txn
from refdelta.core.log.codec import BAD_INPUT, decode_commit, decode_line, enough_memory


def _passed_over(name: str) -> Any:
    """A field that is not decoded: no log has a field of its encoded name."""
    return msgspec.field(default=None, name=f"({name})")


class LeanAdd(Add, frozen=True, kw_only=True, gc=False, rename="camel", forbid_unknown_fields=False):
    """An add without its statistics, tags and unknown fields."""

    extra: dict[str, Any] | None = _passed_over("extra")
    stats: str | None = _passed_over("stats")
    tags: dict[str, str | None] | None = _passed_over("tags")
    clustering_provider: str | None = _passed_over("clusteringProvider")


class LeanRemove(Remove, frozen=True, kw_only=True, gc=False, rename="camel", forbid_unknown_fields=False):
    """A remove without its statistics, tags and unknown fields."""

    extra: dict[str, Any] | None = _passed_over("extra")
    extended_file_metadata: bool | None = _passed_over("extendedFileMetadata")
    stats: str | None = _passed_over("stats")
    tags: dict[str, str | None] | None = _passed_over("tags")
    default_row_commit_version: int | None = _passed_over("defaultRowCommitVersion")


class LeanInfo(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The fields of commitInfo for conflict checks. It is free JSON: each may be of any type."""

    operation: Any = None
    txn_id: Any = None
    read_version: Any = None
    isolation_level: Any = None
    is_blind_append: Any = None
    in_commit_timestamp: Any = None
    read_predicates: Any = None
    read_domains: Any = None
    row_places: Any = None
    engine_info: Any = None
    members: Any = None


class LeanCommit(msgspec.Struct, frozen=True, gc=False):
    """The actions of one or several commits for conflict checks, each kind in the order of the log."""

    adds: list[Add]
    removes: list[Remove]
    infos: list[LeanInfo]
    others: list[Metadata | Protocol | Txn | DomainMetadata | Cdc]


class RowMark(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The metadata domain of row tracking: on a table that tracks rows each commit of files has it."""

    domain: Literal["delta.rowTracking"]
    configuration: str
    removed: bool


class FileLine(msgspec.Struct, rename="camel", gc=False, forbid_unknown_fields=True):
    """A line of a commit that has only file actions, the mark of their row ids and commitInfo, as most commits."""

    add: LeanAdd | None = None
    remove: LeanRemove | None = None
    commit_info: LeanInfo | None = None
    domain_metadata: RowMark | None = None


class _LeanLine(TypedDict, total=False):
    add: LeanAdd
    remove: LeanRemove
    commitInfo: LeanInfo
    metaData: Metadata
    protocol: Protocol
    txn: Txn
    domainMetadata: DomainMetadata
    cdc: Cdc


_decode_file_line = msgspec.json.Decoder(FileLine).decode
_decode = msgspec.json.Decoder(_LeanLine).decode
_FILES_AND_INFO = frozenset({"add", "remove", "commitInfo"})


@enough_memory
def decode_lean(data: bytes, file: str) -> LeanCommit:
    """Decode a commit for conflict checks.

    Args:
        data: the whole file.
        file: its key, for messages.

    Raises:
        InvalidLogError: as :func:`~refdelta.core.log.codec.decode_commit`, for the fields that are decoded.
    """
    return of_lines(file_lines(data)) or _with_others(data, file)


def file_lines(data: bytes) -> list[FileLine]:
    """The lines of a commit that has only file actions and commitInfo; an empty list for all other input."""
    try:
        # Line by line, since a commit has exactly one object a line. (Splitting the bytes first would copy each line.)
        return list(map(_decode_file_line, io.BytesIO(data)))
    except (*BAD_INPUT, MemoryError):
        return []


def of_lines(lines: Sequence[Any]) -> LeanCommit | None:
    """The actions of lines of one or more commits; None for no lines, or a line without exactly one action.

    Args:
        lines: from :func:`file_lines`.
    """
    # A line with one action is in one of these lists, one without is in all of them, one with several in none.
    adds = [line.add for line in lines if line.remove is line.commit_info]
    removes = [line.remove for line in lines if line.add is line.commit_info]
    infos = [line.commit_info for line in lines if line.add is line.remove]
    marked = [line for line in lines if line.domain_metadata is not None]
    if marked:
        return _with_marks(lines, marked)
    whole = 0 < len(lines) == len(adds) + len(removes) + len(infos) and all(infos)
    return LeanCommit(adds, removes, infos, []) if whole else None


def _with_marks(lines: Sequence[Any], marked: Sequence[Any]) -> LeanCommit | None:
    """The actions of lines of which some are marks of row ids."""
    if any((line.add, line.remove, line.commit_info) != (None, None, None) for line in marked):
        return None
    files = of_lines([line for line in lines if line.domain_metadata is None])
    marks = [DomainMetadata(**msgspec.structs.asdict(line.domain_metadata)) for line in marked]
    return files and LeanCommit(files.adds, files.removes, files.infos, list(marks))


def _with_others(data: bytes, file: str) -> LeanCommit:
    """Decode a commit that has other actions than of files."""
    try:
        lines = list(map(_decode, io.BytesIO(data)))
    except BAD_INPUT:
        return _of_actions(decode_commit(data, file))
    if max(map(len, lines), default=2) > 1:
        return _of_actions(decode_commit(data, file))
    adds: list[Add] = [line["add"] for line in lines if "add" in line]
    removes: list[Remove] = [line["remove"] for line in lines if "remove" in line]
    infos = [line["commitInfo"] for line in lines if "commitInfo" in line]
    others: list[Any] = [action for line in lines for kind, action in line.items() if kind not in _FILES_AND_INFO]
    if any(action.extra is not None for action in others):
        return _of_actions(decode_commit(data, file))  # the log has a field of that name
    return LeanCommit(adds, removes, infos, others)


def _of_actions(actions: list[Any]) -> LeanCommit:
    return LeanCommit(
        [action for action in actions if isinstance(action, Add)],
        [action for action in actions if isinstance(action, Remove)],
        [lean_info(action.fields) for action in actions if isinstance(action, CommitInfo)],
        [action for action in actions if isinstance(action, (Metadata, Protocol, Txn, DomainMetadata, Cdc))],
    )


def lean_info(fields: dict[str, Any]) -> LeanInfo:
    """The fields of a commitInfo for conflict checks."""
    return msgspec.convert(fields, LeanInfo)


def whole_add(data: bytes, file: str, path: str) -> Add | None:
    """The last add of this path in a commit, with all its fields; None if there is none.

    Args:
        data: the whole file.
        file: its key, for messages.
        path: as the log writes it.
    """
    written, end = msgspec.json.encode(path), len(data)
    while (place := data.rfind(written, 0, end)) >= 0:
        begin, behind = data.rfind(b"\n", 0, place) + 1, data.find(b"\n", place)
        action = decode_line(data[begin : len(data) if behind < 0 else behind], file)
        if isinstance(action, Add) and action.path == path:
            return action
        end = begin
    # The path may be escaped differently there.
    found = [add for add in decode_commit(data, file) if isinstance(add, Add) and add.path == path]
    return found[-1] if found else None
