"""Two states of one version: a checkpoint's, a compacted file's, and the one that the commits give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from refdelta.core.pruning.stats import load_stats

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from refdelta.core.log.actions import Add, Metadata, Protocol
    from refdelta.verifier.state import State

_FILE_FIELDS = (
    "size",
    "modification_time",
    "base_row_id",
    "default_row_commit_version",
    "clustering_provider",
)


def compare_states(own: State, right: State, written_ms: int | None, find: Callable[[str], None]) -> None:
    """Say where one state is not as the other.

    Args:
        own: the state that is looked at.
        right: the state as the commits give it.
        written_ms: when the first was written, in milliseconds since 1970: what had expired by then may be missing.
            None where nothing may.
        find: takes what is wrong.
    """
    if (
        own.protocol is not None
        and right.protocol is not None
        and protocol_facts(own.protocol) != protocol_facts(right.protocol)
    ):
        find(f"its protocol is {own.protocol}, by the commits {right.protocol}")
    if own.metadata is not None and right.metadata is not None:
        for name in metadata_differences(own.metadata, right.metadata):
            find(f"its metaData has another {name} than the commits")
    _files(own, right, find)
    _tombstones(own, right, written_ms, find)
    retention = right.property("delta.setTransactionRetentionDuration")
    _named("txn", own.txns, right.txns, find, may_lack=written_ms is not None and retention is not None)
    _named("domain", own.domains, right.domains, find, may_lack=False)


def protocol_facts(protocol: Protocol) -> tuple[Any, ...]:
    """What a protocol says, whatever the order of its lists."""
    reader, writer = protocol.reader_features, protocol.writer_features
    return (
        protocol.min_reader_version,
        protocol.min_writer_version,
        None if reader is None else frozenset(reader),
        None if writer is None else frozenset(writer),
    )


def metadata_differences(one: Metadata, other: Metadata) -> list[str]:
    """The fields in which two metaData actions differ; what is absent equals what is empty."""
    found = []
    for item in msgspec.structs.fields(one):
        if item.name in ("extra", "format"):
            continue
        if (getattr(one, item.name) or None) != (getattr(other, item.name) or None):
            found.append(item.encode_name)
    return found


def add_differences(one: Add, other: Add) -> list[str]:
    """The fields in which two adds of one logical file differ, but for dataChange."""
    found = [name for name in _FILE_FIELDS if getattr(one, name) != getattr(other, name)]
    if values(one.partition_values) != values(other.partition_values):
        found.append("partitionValues")
    if (one.tags or None) != (other.tags or None):
        found.append("tags")
    if one.deletion_vector != other.deletion_vector and _vector(one) != _vector(other):
        found.append("deletionVector")
    if one.stats and one.stats != other.stats and load_stats(one.stats) != load_stats(other.stats):
        found.append("stats")
    return found


def _vector(add: Add) -> Any:
    vector = add.deletion_vector
    return None if vector is None else (vector.unique_id, vector.size_in_bytes, vector.cardinality)


def values(partition_values: Mapping[str, str | None]) -> dict[str, str | None]:
    """Partition values, the two spellings of null as one."""
    return {name: value or None for name, value in partition_values.items()}


def _files(own: State, right: State, find: Callable[[str], None]) -> None:
    for key in right.files.keys() - own.files.keys():
        find(f"the live file {right.files[key].path!r} is missing")
    for key, add in own.files.items():
        other = right.files.get(key)
        if other is None:
            find(f"the file {add.path!r} is not live by the commits")
            continue
        names = add_differences(add, other) if add is not other else []
        if names:
            find(f"the file {add.path!r} has another {', '.join(names)} than the commits")


def _tombstones(own: State, right: State, written_ms: int | None, find: Callable[[str], None]) -> None:
    for key, remove in own.tombstones.items():
        if key not in right.tombstones:
            find(f"the tombstone of {remove.path!r} is none by the commits")
    retention = right.property("delta.deletedFileRetentionDuration")
    kept_from = None if written_ms is None or not isinstance(retention, int) else written_ms - retention
    for key in right.tombstones.keys() - own.tombstones.keys():
        remove = right.tombstones[key]
        if kept_from is None or (remove.deletion_timestamp or 0) > kept_from:
            find(f"the tombstone of {remove.path!r} is missing, and has not expired")


def _named(
    what: str, own: Mapping[str, Any], right: Mapping[str, Any], find: Callable[[str], None], *, may_lack: bool
) -> None:
    for name in own.keys() | right.keys():
        if name not in right:
            find(f"the {what} {name!r} is not there by the commits")
        elif name not in own:
            if not may_lack:
                find(f"the {what} {name!r} is missing")
        elif _plain(own[name]) != _plain(right[name]):
            find(f"the {what} {name!r} is another one than by the commits")


def _plain(action: Any) -> Any:
    return msgspec.structs.replace(action, extra=None)
