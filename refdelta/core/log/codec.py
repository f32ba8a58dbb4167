"""Bytes to actions and back (PROTOCOL.md, "Delta Log Entries", "Actions").

There are two decoders. The fast one decodes a whole commit into structs that refuse unknown fields. A commit that it
refuses is decoded again line by line: unknown fields go into ``extra``, and errors are reported with their line.
Conflict checks have a third decoder, in :mod:`refdelta.core.log.lean`.

Blank lines are skipped and the last line needs no line break, as in delta-spark; unknown actions are ignored, as the
specification requires.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from refdelta.core.errors import InvalidArgumentError, InvalidLogError, NotEnoughMemoryError
from refdelta.core.log.actions import (
    Add,
    AnyAction,
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

FileOrTableAction = Add | Remove | Metadata | Protocol | Txn | DomainMetadata | Cdc | Sidecar | CheckpointMetadata

# The key of each action in a line of the log; commitInfo, which is free JSON, apart.
ACTIONS: dict[str, type[FileOrTableAction]] = {
    "add": Add,
    "remove": Remove,
    "metaData": Metadata,
    "protocol": Protocol,
    "txn": Txn,
    "domainMetadata": DomainMetadata,
    "cdc": Cdc,
    "sidecar": Sidecar,
    "checkpointMetadata": CheckpointMetadata,
}
_KEY = {kind: key for key, kind in ACTIONS.items()}


class _CommitLine(msgspec.Struct, rename="camel", gc=False):
    meta_data: Metadata | None = None
    protocol: Protocol | None = None
    txn: Txn | None = None
    domain_metadata: DomainMetadata | None = None
    cdc: Cdc | None = None
    commit_info: dict[str, Any] | None = None
    add: Add | None = None
    remove: Remove | None = None
    sidecar: Sidecar | None = None
    checkpoint_metadata: CheckpointMetadata | None = None


_LINES = msgspec.json.Decoder(_CommitLine)
_LINE = msgspec.json.Decoder(dict[str, Any])
_ENCODER = msgspec.json.Encoder()
# The errors of msgspec on bad input; the last is for nesting beyond the stack.
BAD_INPUT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_T = TypeVar("_T")


# --- bytes to actions --------------------------------------------------------------------------------------------


def enough_memory(decode: Callable[[bytes, str], _T]) -> Callable[[bytes, str], _T]:
    """The same decoder with an error that names the file if there is not enough memory to decode it."""

    @functools.wraps(decode)
    def decoded(data: bytes, file: str) -> _T:
        try:
            return decode(data, file)
        except MemoryError:
            raise NotEnoughMemoryError(
                f"there is not enough memory to read {file}: {len(data):,} bytes of it are there"
            ) from None

    return decoded


@enough_memory
def decode_commit(data: bytes, file: str) -> list[AnyAction]:
    """The actions of a commit or of a compacted file, in their order.

    Args:
        data: the whole file.
        file: its key, for messages.

    Raises:
        InvalidLogError: with file and line: a line that is not one JSON object, an action with a field missing, of a
            wrong type or out of range, a file that is cut off, a file without any action.
    """
    try:
        lines = _LINES.decode_lines(data)
    except BAD_INPUT:
        return _decode_slowly(data, file)
    actions: list[AnyAction] = []
    for line in lines:
        action = line.add or line.remove or _rare(line)
        if action is None:
            if line.commit_info is None:
                return _decode_slowly(data, file)  # an unknown action, or none
            actions.append(CommitInfo(line.commit_info))
        elif action.extra is not None:
            return _decode_slowly(data, file)  # the log has a field of that name
        else:
            actions.append(action)
    return actions if _whole(data, lines) else _decode_slowly(data, file)


def _whole(data: bytes, lines: Sequence[_CommitLine]) -> bool:
    """Whether there are lines, each is one object, and each object one action.

    msgspec accepts two objects on one line, and one over two lines; neither is a commit. Lines with other ends (such
    as CR LF) also give False, and are left to the slow decoder.
    """
    begins = data.count(b"\n{") + data.startswith(b"{")
    ends = data.count(b"}\n") + data.endswith(b"}")
    astuple = msgspec.structs.astuple
    return 0 < begins == ends == len(lines) and all(len(line) - line.count(None) <= 1 for line in map(astuple, lines))


def _rare(line: _CommitLine) -> Metadata | Protocol | Txn | DomainMetadata | Cdc | Sidecar | CheckpointMetadata | None:
    return (
        line.meta_data
        or line.protocol
        or line.txn
        or line.domain_metadata
        or line.cdc
        or line.sidecar
        or line.checkpoint_metadata
    )


def decode_line(line: bytes, file: str) -> AnyAction | None:
    """Same as :func:`decode_action`, but faster, for one line of a commit that was decoded before."""
    try:
        found = _LINES.decode(line)
    except BAD_INPUT:
        return decode_action(line, file)
    known = found.add or found.remove
    return decode_action(line, file) if known is None or known.extra is not None else known


def _decode_slowly(data: bytes, file: str) -> list[AnyAction]:
    """Decode line by line: unknown fields are kept, and an error has its line."""
    actions: list[AnyAction] = []
    seen = False
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        seen = True
        action = decode_action(line, file, number)
        if action is not None:
            actions.append(action)
    if not seen:
        raise InvalidLogError("the file is empty; a commit has at least one action", file=file)
    return actions


def decode_action(line: bytes | Mapping[str, Any], file: str, number: int | None = None) -> AnyAction | None:
    """One line of the log, as bytes or as the object that they hold.

    Args:
        line: a JSON object whose one key names the action.
        file: the log file, for messages.
        number: the line in it, from 1, for messages.

    Returns:
        The action, with the fields that the specification does not know in ``extra``; None if it is of an unknown kind.

    Raises:
        InvalidLogError: it is not such an object.
    """
    try:
        fields: Mapping[str, Any] = _LINE.decode(line) if isinstance(line, bytes) else line
        known = [key for key in fields if (key in ACTIONS or key == "commitInfo") and fields[key] is not None]
        if len(known) > 1:
            raise InvalidLogError(f"more than one action on a line: {', '.join(known)}", file=file, line=number)
        return _convert(known[0], fields[known[0]]) if known else None
    except BAD_INPUT as error:
        raise InvalidLogError(_reason(error), file=file, line=number) from None


def _convert(key: str, body: Any) -> AnyAction:
    if not isinstance(body, dict):
        raise msgspec.ValidationError(f"Expected `object`, got `{type(body).__name__}` - at `$.{key}`")
    if key == "commitInfo":
        return CommitInfo(body)
    kind = ACTIONS[key]
    names = _FIELDS[kind]
    known = {name: value for name, value in body.items() if name in names}
    if kind is Metadata:
        known = without_unset(known)
    extra = {name: value for name, value in body.items() if name not in names and value is not None}
    try:
        action = msgspec.convert(known, kind)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"{key}: {error}") from None
    return msgspec.structs.replace(action, extra=extra) if extra else action


_NO_FIELDS = '{"type":"struct","fields":[]}'


def without_unset(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of ``metaData`` without the properties that are null: to some writers, those are not set.

    A schema that is not set has no fields: Databricks' pipelines create a table so, and give it a schema later.
    """
    fields = {
        name: {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value
        for name, value in metadata.items()
    }
    return fields if fields.get("schemaString") is not None else fields | {"schemaString": _NO_FIELDS}


_FIELDS = {
    kind: frozenset(field.encode_name for field in msgspec.structs.fields(kind)) - {"extra"}
    for kind in ACTIONS.values()
}


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "the JSON is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"the text is not UTF-8: {error.reason} at byte {error.start} of a string"
    text = str(error)
    if isinstance(error, msgspec.ValidationError):
        return f"not as the protocol has it: {text}"
    return f"not valid JSON: {text}"


def decode_json(data: bytes, file: str, decoder: msgspec.json.Decoder[_T]) -> _T:
    """Decode a file that holds one JSON object, such as a version checksum. Unknown fields are ignored.

    Decoders are made where their modules are imported, in one thread: msgspec (0.22) does not bear that threads make
    the decoder of a type at the same time.

    Raises:
        InvalidLogError: the file holds something else.
    """
    try:
        return decoder.decode(data)
    except BAD_INPUT as error:
        raise InvalidLogError(_reason(error), file=file) from None


# --- actions to bytes --------------------------------------------------------------------------------------------


def encode_commit(actions: Iterable[AnyAction]) -> bytes:
    """The content of a commit file: one action a line, the commitInfo first, the others in their order.

    The commitInfo is first on every table: in-commit timestamps require it, and it costs nothing elsewhere.

    Raises:
        InvalidArgumentError: an action has a value of a wrong type from a caller, such as a number for a string: no
            reader could read the table afterwards.
    """
    ordered = sorted(actions, key=lambda action: not isinstance(action, CommitInfo))
    return b"".join(_readable(action) + b"\n" for action in ordered)


def _readable(action: AnyAction) -> bytes:
    try:
        line = encode_action(action)
        # The fields of file actions do not come from callers, and there are many of these actions.
        if isinstance(action, (Protocol, Metadata, Txn, DomainMetadata)):
            decode_action(line, "the commit")
    except (TypeError, InvalidLogError) as error:
        raise InvalidArgumentError(f"this cannot be committed: {error}") from None
    return line


def encode_action(action: AnyAction) -> bytes:
    """One line of the log, without its line break."""
    if isinstance(action, CommitInfo):
        return _ENCODER.encode({"commitInfo": action.fields})
    body = action if action.extra is None else action_body(action)
    return _ENCODER.encode({_KEY[type(action)]: body})


def action_body(action: FileOrTableAction) -> dict[str, Any]:
    """The value of an action's key in the log: its fields by their names there, and those in ``extra``."""
    fields: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(action, extra=None))
    return fields if action.extra is None else {**action.extra, **fields}


class InfoLine(msgspec.Struct, rename="camel"):
    """A line of a commit file, of which only a commitInfo is decoded."""

    commit_info: dict[str, Any] | None = None


decode_info = msgspec.json.Decoder(InfoLine).decode
"""Decodes a line as an :class:`InfoLine`. Raises one of :data:`BAD_INPUT`."""


def commit_info_of(data: bytes) -> dict[str, Any]:
    """The fields of the commitInfo in a commit file; empty without one, and if the file is damaged."""
    for line in data.splitlines():
        try:
            info = decode_info(line).commit_info
        except BAD_INPUT:
            continue
        if info is not None:
            return info
    return {}
