"""Checksums: of a version (PROTOCOL.md, "Version Checksum File") and of a JSON object (PROTOCOL.md, "JSON checksum").

A version checksum has the totals of a version, against which readers check what they have replayed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from refdelta.core.errors import InvalidLogError
from refdelta.core.log.actions import DomainMetadata, Int64, Metadata, Protocol, Txn
from refdelta.core.log.codec import action_body, decode_action, decode_json


class FileSizeHistogram(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """PROTOCOL.md, "File Size Histogram Schema": bin ``i`` starts at boundary ``i``, in bytes; the last has no end."""

    sorted_bin_boundaries: list[Int64]
    file_counts: list[Int64]
    total_bytes: list[Int64]


SIZE_BINS = (
    *(0, *(1024 << power for power in range(3, 13))),
    *(2**20 * size for size in (*range(8, 41, 4), *range(48, 121, 8), *range(124, 145, 4), *range(160, 577, 16))),
    *(2**20 * size for size in (*range(640, 1409, 64), *range(1536, 2049, 128), *range(2304, 4097, 256))),
    *(2**30 << power for power in range(3, 9)),
)
"""The lower bounds of delta-spark's bins of file sizes, in bytes; it refuses a checksum with others."""

DELETED_BINS = (0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 2**31 - 1)
"""The lower bounds of the bins of PROTOCOL.md, "Deleted Record Counts Histogram Schema", in deleted rows."""


class _DeletedRecordCounts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    deleted_record_counts: list[Int64]


class VersionChecksum(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of a ``.crc`` file.

    Attributes:
        table_size_bytes: the sizes of all live files, added up.
        num_files: how many live files there are.
        metadata: the table's metadata.
        protocol: its protocol.
        num_metadata: always 1.
        num_protocol: always 1.
        txn_id: ``commitInfo.txnId`` of the version.
        in_commit_timestamp: of the version, on tables that have them.
        set_transactions: all live ``txn`` actions; None where the writer did not list them.
        domain_metadata: all live domains; None where the writer did not list them.
        num_deleted_records: rows that deletion vectors hide.
        num_deletion_vectors: live files with a deletion vector.
        deleted_record_counts: how many live files fall into each of :data:`DELETED_BINS`, by their deleted rows.
        file_size_histogram: of the sizes of all live files.
    """

    table_size_bytes: int
    num_files: int
    metadata: Metadata
    protocol: Protocol
    num_metadata: int = 1
    num_protocol: int = 1
    txn_id: str | None = None
    in_commit_timestamp: int | None = None
    set_transactions: tuple[Txn, ...] | None = None
    domain_metadata: tuple[DomainMetadata, ...] | None = None
    num_deleted_records: int | None = None
    num_deletion_vectors: int | None = None
    deleted_record_counts: tuple[int, ...] | None = None
    file_size_histogram: FileSizeHistogram | None = None


class _ChecksumFile(msgspec.Struct, kw_only=True, rename="camel"):
    """The fields of the file; its actions are decoded separately, so that unknown fields are kept."""

    table_size_bytes: Int64
    num_files: Int64
    num_metadata: Int64
    num_protocol: Int64
    metadata: dict[str, Any]
    protocol: dict[str, Any]
    txn_id: str | None = None
    in_commit_timestamp_opt: Int64 | None = None
    set_transactions: list[dict[str, Any]] | None = None
    domain_metadata: list[dict[str, Any]] | None = None
    num_deleted_records_opt: Int64 | None = None
    num_deletion_vectors_opt: Int64 | None = None
    deleted_record_counts_histogram_opt: _DeletedRecordCounts | None = None
    file_size_histogram: FileSizeHistogram | None = None
    # delta-spark's own name for the same.
    histogram_opt: FileSizeHistogram | None = None


_DECODER = msgspec.json.Decoder(_ChecksumFile)


def decode_checksum(data: bytes, file: str) -> VersionChecksum:
    """Read a ``.crc`` file. Fields that this engine has no use for (``allFiles``) are passed over.

    Raises:
        InvalidLogError: it is not a version checksum. A reader that only wants a short cut does without it then.
    """
    raw = decode_json(data, file, _DECODER)
    if raw.num_metadata != 1 or raw.num_protocol != 1:
        raise InvalidLogError("numMetadata and numProtocol are 1 in every checksum", file=file)
    deleted = raw.deleted_record_counts_histogram_opt
    return VersionChecksum(
        table_size_bytes=raw.table_size_bytes,
        num_files=raw.num_files,
        metadata=_action("metaData", raw.metadata, Metadata, file),
        protocol=_action("protocol", raw.protocol, Protocol, file),
        txn_id=raw.txn_id,
        in_commit_timestamp=raw.in_commit_timestamp_opt,
        set_transactions=_actions("txn", raw.set_transactions, Txn, file),
        domain_metadata=_actions("domainMetadata", raw.domain_metadata, DomainMetadata, file),
        num_deleted_records=raw.num_deleted_records_opt,
        num_deletion_vectors=raw.num_deletion_vectors_opt,
        deleted_record_counts=None if deleted is None else tuple(deleted.deleted_record_counts),
        file_size_histogram=raw.file_size_histogram or raw.histogram_opt,
    )


def encode_checksum(checksum: VersionChecksum) -> bytes:
    """A ``.crc`` file: one JSON object, what is None left out."""
    fields: dict[str, Any] = {
        "txnId": checksum.txn_id,
        "tableSizeBytes": checksum.table_size_bytes,
        "numFiles": checksum.num_files,
        "numDeletedRecordsOpt": checksum.num_deleted_records,
        "numDeletionVectorsOpt": checksum.num_deletion_vectors,
        "deletedRecordCountsHistogramOpt": None
        if checksum.deleted_record_counts is None
        else _DeletedRecordCounts(deleted_record_counts=list(checksum.deleted_record_counts)),
        "numMetadata": checksum.num_metadata,
        "numProtocol": checksum.num_protocol,
        "inCommitTimestampOpt": checksum.in_commit_timestamp,
        "setTransactions": _bodies(checksum.set_transactions),
        "domainMetadata": _bodies(checksum.domain_metadata),
        "metadata": _body(checksum.metadata),
        "protocol": _body(checksum.protocol),
        "fileSizeHistogram": checksum.file_size_histogram,
    }
    return msgspec.json.encode({name: value for name, value in fields.items() if value is not None})


def _bodies(actions: Iterable[Txn | DomainMetadata] | None) -> list[Any] | None:
    return None if actions is None else [_body(action) for action in actions]


def _body(action: Metadata | Protocol | Txn | DomainMetadata) -> Any:
    """The value to encode for an action, with the fields in ``extra``."""
    return action if action.extra is None else action_body(action)


_T = TypeVar("_T")


def _action(key: str, body: Mapping[str, Any], kind: type[_T], file: str) -> _T:
    action = decode_action({key: body}, file)
    if not isinstance(action, kind):
        raise InvalidLogError(f"{key} is missing", file=file)
    return action


def _actions(key: str, bodies: list[dict[str, Any]] | None, kind: type[_T], file: str) -> tuple[_T, ...] | None:
    return None if bodies is None else tuple(_action(key, body, kind, file) for body in bodies)


# --- JSON checksum -----------------------------------------------------------------------------------------------


def json_checksum(data: bytes) -> str:
    """PROTOCOL.md, "JSON checksum": the MD5 of an object's canonical form, its own top-level ``checksum`` left out.

    Raises:
        ValueError: it is not one JSON object, or names a key twice.
    """
    return _digest(canonical_json(data))


def json_checksum_holds(data: bytes, checksum: str) -> bool:
    """Whether this is the checksum of a JSON object, as :func:`json_checksum` has it or as delta-spark computes it.

    delta-spark sorts paths with their values, not paths alone. It comes out otherwise where a list has more than ten
    plain items, as the features of a protocol may be: ``+10="x"`` is less than ``+1="y"``.

    Raises:
        ValueError: as :func:`json_checksum`.
    """
    pairs = _canonical_pairs(data)
    joined = [f"{path}={value}" for path, value in sorted(pairs)]
    return checksum in (_digest(",".join(joined)), _digest(",".join(sorted(joined))))


def _digest(canonical: str) -> str:
    return hashlib.md5(canonical.encode(), usedforsecurity=False).hexdigest()


def canonical_json(data: bytes) -> str:
    """The canonical form of which :func:`json_checksum` is the digest: ``"a"=10,"b"+"x"="https%3A%2F%2Fdelta.io"``."""
    # "Byte-order sort on paths": all characters that a canonical path has are ASCII.
    return ",".join(f"{path}={value}" for path, value in sorted(_canonical_pairs(data)))


def _canonical_pairs(data: bytes) -> list[tuple[str, str]]:
    fields = json.loads(
        data, object_pairs_hook=unique_keys, parse_int=_Number, parse_float=_Number, parse_constant=_Number
    )
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - of the text, not of a Python type
    return [pair for key, value in fields.items() if key != "checksum" for pair in _leaves(_quoted(key), value)]


class _Number(str):
    """A number as it is spelled, which is its canonical form."""

    __slots__ = ()


def _leaves(path: str, value: Any) -> Iterable[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(f"{path}+{_quoted(key)}", inner)
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from _leaves(f"{path}+{position}", inner)
    elif isinstance(value, _Number):
        yield path, str(value)
    elif isinstance(value, str):
        yield path, _quoted(value)
    else:
        yield path, {None: "null", True: "true", False: "false"}[value]


def _quoted(text: str) -> str:
    return f'"{quote(text, safe="-._~")}"'


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For ``json.loads(object_pairs_hook=...)``: an object, or ValueError if it names a key twice."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key occurs twice")
    return fields
