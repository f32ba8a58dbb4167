"""A commit as conflict checks need it: without statistics, tags and unknown fields, which are most of its bytes.

A transaction that was open for long meets thousands of commits, each of which it has to look at. So this decodes each
line into what a rule looks at, and passes over the rest without making anything of it. A commit that it does not
understand at once is decoded by :func:`~refdelta.protocol.codec.decode_commit`, which says what is wrong where.
"""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec

from refdelta.protocol.actions import (
    Add,
    Cdc,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from refdelta.protocol.codec import BAD_INPUT, decode_commit, decode_line, enough_memory


def _passed_over(name: str) -> Any:
    """A field that is not looked at: it has a name that stands in no log."""
    return msgspec.field(default=None, name=f"({name})")


class LeanAdd(Add, frozen=True, kw_only=True, gc=False, rename="camel", forbid_unknown_fields=False):
    """An add whose statistics, tags and unknown fields were passed over."""

    extra: dict[str, Any] | None = _passed_over("extra")
    stats: str | None = _passed_over("stats")
    tags: dict[str, str | None] | None = _passed_over("tags")
    clustering_provider: str | None = _passed_over("clusteringProvider")


class LeanRemove(Remove, frozen=True, kw_only=True, gc=False, rename="camel", forbid_unknown_fields=False):
    """A remove, likewise."""

    extra: dict[str, Any] | None = _passed_over("extra")
    extended_file_metadata: bool | None = _passed_over("extendedFileMetadata")
    stats: str | None = _passed_over("stats")
    tags: dict[str, str | None] | None = _passed_over("tags")
    base_row_id: int | None = _passed_over("baseRowId")
    default_row_commit_version: int | None = _passed_over("defaultRowCommitVersion")


class LeanInfo(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What conflict checks need of commitInfo: free JSON, so any of it may be of any type."""

    operation: Any = None
    txn_id: Any = None
    read_version: Any = None
    isolation_level: Any = None
    is_blind_append: Any = None
    in_commit_timestamp: Any = None
    read_predicates: Any = None
    row_places: Any = None


class LeanCommit(msgspec.Struct, frozen=True, gc=False):
    """What conflict checks need of a commit: its adds and removes, commitInfo, and the other actions, each in the order
    of the file.
    """

    adds: list[Add]
    removes: list[Remove]
    info: LeanInfo
    others: list[Metadata | Protocol | Txn | DomainMetadata | Cdc]


class _Line(TypedDict, total=False):
    add: LeanAdd
    remove: LeanRemove
    commitInfo: LeanInfo
    metaData: Metadata
    protocol: Protocol
    txn: Txn
    domainMetadata: DomainMetadata
    cdc: Cdc


_decode = msgspec.json.Decoder(_Line).decode
_FILES_AND_INFO = frozenset({"add", "remove", "commitInfo"})


@enough_memory
def decode_lean(data: bytes, file: str) -> LeanCommit:
    """A commit as conflict checks need it.

    Args:
        data: the whole file.
        file: its key, for messages.

    Raises:
        InvalidLogError: as :func:`~refdelta.protocol.codec.decode_commit`, for what it looks at.
    """
    texts = data.split(b"\n")
    if not texts[-1]:
        texts.pop()
    try:
        # One object a line, neither more nor less, is what makes a commit: so line by line.
        lines = list(map(_decode, texts))
    except BAD_INPUT:
        return _of_actions(decode_commit(data, file))
    if max(map(len, lines), default=2) > 1:
        return _of_actions(decode_commit(data, file))
    adds: list[Add] = [line["add"] for line in lines if "add" in line]
    removes: list[Remove] = [line["remove"] for line in lines if "remove" in line]
    info = lines[0].get("commitInfo")
    if info is not None and len(adds) + len(removes) + 1 == len(lines):
        return LeanCommit(adds, removes, info, [])
    infos = [line["commitInfo"] for line in lines if "commitInfo" in line]
    others: list[Any] = [action for line in lines for kind, action in line.items() if kind not in _FILES_AND_INFO]
    return LeanCommit(adds, removes, infos[-1] if infos else LeanInfo(), others)


def _of_actions(actions: list[Any]) -> LeanCommit:
    infos = [action.fields for action in actions if isinstance(action, CommitInfo)]
    return LeanCommit(
        [action for action in actions if isinstance(action, Add)],
        [action for action in actions if isinstance(action, Remove)],
        lean_info(infos[-1]) if infos else LeanInfo(),
        [action for action in actions if isinstance(action, (Metadata, Protocol, Txn, DomainMetadata, Cdc))],
    )


def lean_info(fields: dict[str, Any]) -> LeanInfo:
    """Of the fields of a commitInfo those that conflict checks need."""
    return msgspec.convert(fields, LeanInfo)


def whole_add(data: bytes, file: str, path: str) -> Add | None:
    """An add of a commit with all that the log says of it; None where there is none of that path. Where there are two,
    the last one.

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
    # It may be spelled otherwise there.
    found = [add for add in decode_commit(data, file) if isinstance(add, Add) and add.path == path]
    return found[-1] if found else None
