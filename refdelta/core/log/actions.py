"""The actions of the log as values (PROTOCOL.md, "Actions").

Names are the specification's, in snake case here and in camel case in the log. A field that the log leaves out is None
or empty here, and is left out when written. Fields that the specification does not know are kept in ``extra`` and
written again: another engine may need them.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

# The widths of the specification's integers; a log that exceeds one is refused when it is decoded, not in Arrow.
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Action(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False, forbid_unknown_fields=True
):
    """The base of all actions, with the fields that the specification does not define.

    Decoding a struct refuses unknown fields; the codec puts them into ``extra``, and writes them again from there.
    """

    extra: dict[str, Any] | None = None


class DeletionVectorDescriptor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """PROTOCOL.md, "Deletion Vector Descriptor Schema". ``size_in_bytes`` leaves out its file's framing."""

    storage_type: str
    path_or_inline_dv: str
    offset: Int32 | None = None
    size_in_bytes: Int32
    cardinality: Int64
    max_row_index: Int64 | None = None

    @property
    def unique_id(self) -> str:
        """The id of the vector. With the path it identifies the logical file."""
        suffix = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{suffix}"


class Add(Action, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """PROTOCOL.md, "Add File and Remove File". ``path`` is as the log writes it: a percent-encoded URI reference."""

    path: str
    partition_values: dict[str, str | None]
    size: Int64
    modification_time: Int64
    data_change: bool
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: Int64 | None = None
    default_row_commit_version: Int64 | None = None
    clustering_provider: str | None = None


class Remove(Action, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """PROTOCOL.md, "Add File and Remove File": a tombstone, which names the deletion vector of what it removes."""

    path: str
    deletion_timestamp: Int64 | None = None
    # Written always; a log that leaves it out is read as delta-spark reads it.
    data_change: bool | None = None
    extended_file_metadata: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: Int64 | None = None
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: Int64 | None = None
    default_row_commit_version: Int64 | None = None


class Cdc(Action, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """PROTOCOL.md, "Add CDC File"."""

    path: str
    partition_values: dict[str, str | None]
    size: Int64
    data_change: bool
    tags: dict[str, str | None] | None = None


class Format(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """PROTOCOL.md, "Format Specification". The provider is always parquet."""

    provider: str = "parquet"
    options: dict[str, str] = {}


class Metadata(Action, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """PROTOCOL.md, "Change Metadata"."""

    id: str
    name: str | None = None
    description: str | None = None
    format: Format | None = None
    schema_string: str
    partition_columns: list[str]
    configuration: dict[str, str] | None = None
    created_time: Int64 | None = None


class Protocol(Action, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """PROTOCOL.md, "Protocol Evolution"."""

    min_reader_version: Int32
    min_writer_version: Int32
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class Txn(Action, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The last version that an application recorded (PROTOCOL.md, "Transaction Identifiers").

    Attributes:
        app_id: the application's id.
        version: its version.
        last_updated: the time of the commit, in milliseconds since 1970, if it is known.
        extra: fields that the specification does not define.
    """

    app_id: str
    version: Int64
    last_updated: Int64 | None = None


class DomainMetadata(Action, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """PROTOCOL.md, "Domain Metadata". ``configuration`` is an opaque string."""

    domain: str
    configuration: str
    # The specification requires it, so it is written even if it is false: no default.
    removed: bool


class Sidecar(Action, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """PROTOCOL.md, "Sidecar File Information". ``path`` is relative to ``_delta_log/_sidecars`` unless absolute."""

    path: str
    size_in_bytes: Int64
    modification_time: Int64
    tags: dict[str, str | None] | None = None


class CheckpointMetadata(Action, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """PROTOCOL.md, "Checkpoint Metadata"."""

    version: Int64
    tags: dict[str, str | None] | None = None


class CommitInfo(msgspec.Struct, frozen=True):
    """PROTOCOL.md, "Commit Provenance Information": free JSON, kept whole."""

    fields: dict[str, Any]


AnyAction = Add | Remove | Cdc | Metadata | Protocol | Txn | DomainMetadata | Sidecar | CheckpointMetadata | CommitInfo
