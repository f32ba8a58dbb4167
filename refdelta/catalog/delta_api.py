"""Unity Catalog's Delta API, version 1, as values: requests, replies and errors (``api/delta.yaml`` of Unity Catalog).

The client and the server share them. Names are those of the API, in snake case here and with hyphens on the wire.
"""

from __future__ import annotations

import json
import threading
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec

from refdelta.core.errors import ConflictDetails
from refdelta.core.log.actions import AnyAction, DomainMetadata, Metadata, Protocol
from refdelta.core.log.json_text import SCHEMA, read_json

ROOT = "/api/2.1/unity-catalog"
"""The path under which Unity Catalog answers; the Delta API is below it."""

DELTA = "/delta/v1"
VERSION = "1.0"
TABLE_ID = "io.unitycatalog.tableId"
"""The table property with the id that the catalog gave the table."""

PRECONDITION_FAILED = "PreconditionFailedException"
"""The type of the error of ``refdelta serve`` for the condition ``If-Match`` with the id of a table that has another
name. The API has no such condition; a server that does not know it ignores it.
"""

TRANSACTIONS = "POST /v1/catalogs/{catalog}/schemas/{schema}/tables/{table}/transactions"
"""The endpoint of ``refdelta serve`` that commits the transactions of several clients as one version. The API has none
such, and servers that do not name it in their configuration are not asked. The body is an intent
(:mod:`refdelta.core.commit.intent_file`), the reply a :class:`TransactionReply`.
"""

TOO_MANY = "TooManyRequestsException"
"""The type of the error for a request that has to wait; it has done nothing. ``Retry-After`` has the seconds."""

UNAVAILABLE = "ServiceUnavailableException"
"""The type of the error of ``refdelta serve`` for a request that it has no memory for at this moment. It has done
nothing, and the header ``Retry-After`` has the seconds after which the client may try again.
"""

CATALOG_MISMATCHES = {
    "OlderCatalogException": "older catalog",
    "OlderFolderException": "older folder",
    "CatalogMismatchException": "other content",
}
"""The types of the errors of ``refdelta serve`` for a catalog and a folder that do not have the same versions, and the
:attr:`refdelta.errors.CatalogMismatchError.kind` of each.
"""

CLUSTERING, ROW_TRACKING = DOMAINS = ("delta.clustering", "delta.rowTracking")
"""The domains that the catalog knows."""

_FEATURE = "delta.feature."
_DERIVED = ("delta.minReaderVersion", "delta.minWriterVersion", "delta.clusteringColumns", "delta.lastUpdateVersion",
            "delta.lastCommitTimestamp", "delta.rowTracking.rowIdHighWaterMark")  # fmt: skip

Int32 = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Positive = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
TableType: TypeAlias = Literal["MANAGED", "EXTERNAL"]
Operation: TypeAlias = Literal["READ", "READ_WRITE"]


_T = TypeVar("_T")
_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {}
_MAKING = threading.Lock()


def decoder_of(kind: type[_T]) -> msgspec.json.Decoder[_T]:
    """A decoder of bodies, made by one thread at a time: see :func:`refdelta.core.log.codec.decode_json`."""
    with _MAKING:
        if kind not in _DECODERS:
            _DECODERS[kind] = msgspec.json.Decoder(kind)
        return _DECODERS[kind]


class Wire(msgspec.Struct, rename="kebab", omit_defaults=True, kw_only=True, frozen=True):
    """The base of everything that goes over the wire. Fields that are not known are ignored: the API may grow."""


class ApiProtocol(Wire, frozen=True):
    """``DeltaProtocol``."""

    min_reader_version: Int32
    min_writer_version: Int32
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class ApiCommit(Wire, frozen=True):
    """``DeltaCommit``: a staged commit."""

    version: _Positive
    timestamp: _Positive
    file_name: _Name
    file_size: _Positive
    file_modification_timestamp: Int64


class StorageCredential(Wire, frozen=True):
    """``DeltaStorageCredential``."""

    prefix: str
    operation: Operation
    config: dict[str, str | None]
    expiration_time_ms: int | None = None

    def __repr__(self) -> str:
        return f"StorageCredential(prefix={self.prefix!r}, operation={self.operation!r})"


class Credentials(Wire, frozen=True):
    """``DeltaCredentialsResponse``."""

    storage_credentials: list[StorageCredential]


class CatalogConfig(Wire, frozen=True):
    """``DeltaCatalogConfig``."""

    endpoints: list[str]
    protocol_version: str


class CreateStagingTable(Wire, frozen=True):
    """``DeltaCreateStagingTableRequest``."""

    name: _Name


class StagingTable(Wire, frozen=True):
    """``DeltaStagingTableResponse``."""

    table_id: str
    table_type: TableType
    location: str
    storage_credentials: list[StorageCredential]
    required_protocol: ApiProtocol
    required_properties: dict[str, str | None]
    suggested_protocol: dict[str, Any] | None = None
    suggested_properties: dict[str, str | None] | None = None


class CreateTable(Wire, frozen=True):
    """``DeltaCreateTableRequest``."""

    name: _Name
    location: str
    table_type: TableType
    columns: dict[str, Any]
    protocol: ApiProtocol
    properties: dict[str, str]
    last_commit_timestamp_ms: Int64
    comment: str | None = None
    partition_columns: list[str] | None = None
    domain_metadata: dict[str, dict[str, Any] | None] | None = None
    uniform: Any = None


class RenameTable(Wire, frozen=True):
    """``DeltaRenameTableRequest``."""

    new_name: _Name


class TableMetadata(Wire, frozen=True):
    """``DeltaTableMetadata``."""

    etag: str
    table_type: TableType
    table_uuid: str
    location: str
    created_time: int
    updated_time: int
    columns: dict[str, Any]
    properties: dict[str, str]
    partition_columns: list[str] | None = None


class LoadedTable(Wire, frozen=True):
    """``DeltaLoadTableResponse``."""

    metadata: TableMetadata
    commits: list[ApiCommit] | None = None
    latest_table_version: int | None = None


class _Requirement(Wire, frozen=True, tag_field="type"):
    pass


class AssertTableUuid(_Requirement, frozen=True, tag="assert-table-uuid"):
    """The table is the one that was opened."""

    uuid: str


class AssertEtag(_Requirement, frozen=True, tag="assert-etag"):
    """Nothing has changed since the table was loaded."""

    etag: str


class _Update(Wire, frozen=True, tag_field="action"):
    pass


class SetProperties(_Update, frozen=True, tag="set-properties"):
    """Set table properties."""

    updates: dict[str, str]


class RemoveProperties(_Update, frozen=True, tag="remove-properties"):
    """Remove table properties."""

    removals: list[str]


class SetColumns(_Update, frozen=True, tag="set-columns"):
    """Replace the columns."""

    columns: dict[str, Any]


class SetTableComment(_Update, frozen=True, tag="set-table-comment"):
    """Replace the description."""

    comment: str


class AddCommit(_Update, frozen=True, tag="add-commit"):
    """Ratify a staged commit."""

    commit: ApiCommit
    uniform: Any = None


class SetLatestBackfilledVersion(_Update, frozen=True, tag="set-latest-backfilled-version"):
    """All versions up to this one are published."""

    latest_published_version: Int64


class SetProtocol(_Update, frozen=True, tag="set-protocol"):
    """Replace the protocol."""

    protocol: ApiProtocol


class SetDomainMetadata(_Update, frozen=True, tag="set-domain-metadata"):
    """Set domains that the catalog knows."""

    updates: dict[str, dict[str, Any] | None]


class RemoveDomainMetadata(_Update, frozen=True, tag="remove-domain-metadata"):
    """Remove domains."""

    domains: list[str]


class SetPartitionColumns(_Update, frozen=True, tag="set-partition-columns"):
    """Replace the partition columns."""

    partition_columns: list[str]


class UpdateSnapshotVersion(_Update, frozen=True, tag="update-metadata-snapshot-version"):
    """Of external tables only."""

    last_commit_version: Int64
    last_commit_timestamp_ms: Int64


Requirement: TypeAlias = AssertTableUuid | AssertEtag
Update: TypeAlias = (
    SetProperties
    | RemoveProperties
    | SetColumns
    | SetTableComment
    | AddCommit
    | SetLatestBackfilledVersion
    | SetProtocol
    | SetDomainMetadata
    | RemoveDomainMetadata
    | SetPartitionColumns
    | UpdateSnapshotVersion
)


class UpdateTable(Wire, frozen=True):
    """``DeltaUpdateTableRequest``."""

    requirements: Annotated[list[Requirement], msgspec.Meta(min_length=1, max_length=2)]
    updates: Annotated[list[Update], msgspec.Meta(min_length=1, max_length=11)]


class TransactionReply(Wire, frozen=True):
    """The answer of ``refdelta serve`` to a transaction that may share its version with others.

    Attributes:
        outcome: ``committed``; ``conflict``: it is not committed; ``alone``: it is not committed, and the client is to
            commit it by itself.
        version: the version of a transaction that is committed.
        member: its place among the members of the version; None if it has the version for itself.
        attempts: the number of versions that were tried.
        rebased_over: the versions that it passed.
        leads: whether its client does the work after the version, such as a checkpoint.
        log: the commits after the version that it read, up to its own, oldest first; None if they are too long.
        conflict: the conflict.
        why: the reason for which it goes alone.
    """

    outcome: Literal["committed", "conflict", "alone"]
    version: Int64 | None = None
    member: Int32 | None = None
    attempts: Int32 = 0
    rebased_over: list[Int64] = []
    leads: bool = False
    log: list[str] | None = None
    conflict: ConflictDetails | None = None
    why: str = ""


class SizeHistogram(Wire, frozen=True):
    """The histogram of file sizes in a report of metrics."""

    sorted_bin_boundaries: list[Int64]
    file_counts: list[Int64]
    total_bytes: list[Int64]
    commit_version: Int64 | None = None


class CommitReport(Wire, frozen=True):
    """The metrics of a commit."""

    num_files_added: Int64 | None = None
    num_bytes_added: Int64 | None = None
    num_files_removed: Int64 | None = None
    num_bytes_removed: Int64 | None = None
    num_rows_inserted: Int64 | None = None
    num_rows_removed: Int64 | None = None
    num_rows_updated: Int64 | None = None
    file_size_histogram: SizeHistogram | None = None


class MetricsReport(Wire, frozen=True):
    """The container of metrics."""

    commit_report: CommitReport | None = None


class ReportMetrics(Wire, frozen=True):
    """``DeltaReportMetricsRequest``."""

    table_id: str
    report: MetricsReport | None = None


class ApiErrorModel(Wire, frozen=True):
    """``DeltaErrorModel``."""

    message: str
    type: str
    code: int


class ApiErrorReply(Wire, frozen=True):
    """``DeltaErrorResponse``."""

    error: ApiErrorModel


# --- between the log and the API ---

_HYPHENS = {
    "elementType": "element-type",
    "containsNull": "contains-null",
    "keyType": "key-type",
    "valueType": "value-type",
    "valueContainsNull": "value-contains-null",
}


def columns_of(schema_string: str) -> dict[str, Any]:
    """The columns as the API writes them: as in the log, but the parts of arrays and maps have names with hyphens."""
    found: dict[str, Any] = _with_hyphens(read_json(schema_string, SCHEMA))
    return found


def _with_hyphens(kind: Any) -> Any:
    if not isinstance(kind, dict):
        return kind
    if "fields" in kind:
        fields = [{**field, "type": _with_hyphens(field["type"])} for field in kind["fields"]]
        return {**kind, "fields": fields}
    return {_HYPHENS.get(name, name): _with_hyphens(value) for name, value in kind.items()}


def protocol_of(protocol: Protocol) -> ApiProtocol:
    """The protocol as the API writes it."""
    return ApiProtocol(
        min_reader_version=protocol.min_reader_version,
        min_writer_version=protocol.min_writer_version,
        reader_features=protocol.reader_features,
        writer_features=protocol.writer_features,
    )


def properties_of(protocol: Protocol, metadata: Metadata, domains: dict[str, DomainMetadata]) -> dict[str, str]:
    """The table properties as the API shows them: those of the metadata, and some that stand for the protocol and for
    domains.
    """
    found = dict(metadata.configuration or {})
    found["delta.minReaderVersion"] = str(protocol.min_reader_version)
    found["delta.minWriterVersion"] = str(protocol.min_writer_version)
    for feature in sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())}):
        found[f"{_FEATURE}{feature}"] = "supported"
    for domain, field in ((CLUSTERING, "clusteringColumns"), (ROW_TRACKING, "rowIdHighWaterMark")):
        body = domain_body(domains[domain]) if domain in domains else {}
        if field in body:
            prefix = "delta." if domain == CLUSTERING else f"{ROW_TRACKING}."
            found[f"{prefix}{field}"] = json.dumps(body[field])
    return found


def is_derived(name: str) -> bool:
    """Whether the catalog made the property, so that no log has it."""
    return name in _DERIVED or name.startswith(_FEATURE)


def domain_body(domain: DomainMetadata) -> dict[str, Any]:
    """The content of a domain of Delta's own, which is JSON; empty if it is not."""
    try:
        body = read_json(domain.configuration)
    except ValueError:
        return {}
    # delta-spark writes a third field, which the API does not have.
    return {name: body[name] for name in ("clusteringColumns", "rowIdHighWaterMark") if name in body}


def metadata_updates(actions: list[AnyAction], before: TableMetadata | None) -> list[Update]:
    """The updates that a commit's changes of protocol, metadata and domains need beside it.

    Args:
        actions: the commit.
        before: the table as the catalog knows it; needed where :func:`changes_metadata`.
    """
    found: list[Update] = []
    for action in actions:
        if isinstance(action, Protocol):
            found.append(SetProtocol(protocol=protocol_of(action)))
        elif isinstance(action, Metadata):
            found += _of_metadata(action, before)
    domains = [one for one in actions if isinstance(one, DomainMetadata) and one.domain in DOMAINS]
    if kept := {one.domain: domain_body(one) for one in domains if not one.removed}:
        found.append(SetDomainMetadata(updates=dict(kept)))
    if removed := [one.domain for one in domains if one.removed]:
        found.append(RemoveDomainMetadata(domains=removed))
    return found


def _of_metadata(metadata: Metadata, before: TableMetadata | None) -> list[Update]:
    configuration = metadata.configuration or {}
    found: list[Update] = [SetColumns(columns=columns_of(metadata.schema_string))]
    known = {} if before is None else before.properties
    if properties := {name: value for name, value in configuration.items() if not is_derived(name)}:
        found.append(SetProperties(updates=properties))
    if removals := [name for name in known if name not in configuration and not is_derived(name)]:
        found.append(RemoveProperties(removals=removals))
    if before is None or (before.partition_columns or []) != metadata.partition_columns:
        found.append(SetPartitionColumns(partition_columns=metadata.partition_columns))
    if metadata.description is not None:
        found.append(SetTableComment(comment=metadata.description))
    return found


def changes_metadata(actions: list[AnyAction]) -> bool:
    """Whether a commit changes the protocol or the metadata."""
    return any(isinstance(action, (Protocol, Metadata)) for action in actions)
