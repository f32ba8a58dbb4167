"""The last step of every ALTER TABLE: stage the new metaData action, and the protocol that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from refdelta.core.log.actions import Add
from refdelta.errors import InvalidArgumentError
from refdelta.table.column_mapping import completed
from refdelta.table.features import features_of
from refdelta.table.iceberg_compat import PROPERTIES as PROPERTIES_OF_ICEBERG
from refdelta.table.iceberg_compat import version_of
from refdelta.table.properties import PROPERTIES
from refdelta.table.protocol_choice import settled
from refdelta.table.row_tracking import is_enabled, named_columns
from refdelta.table.types import schema_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from refdelta.core.log.actions import Metadata, Protocol
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.table.types import StructType
    from refdelta.transaction.transaction import Transaction

PROTECTED: Final = PROPERTIES["delta.requirecheckpointprotectionbeforeversion"].name


def change_schema(txn: Transaction, snapshot: Snapshot, schema: StructType, features: Iterable[str] = ()) -> None:
    """Same as :func:`change_table`, for a change of the schema only."""
    metadata = msgspec.structs.replace(snapshot.metadata, schema_string=schema_json(schema))
    change_table(txn, snapshot, metadata, features)


def change_table(
    txn: Transaction, snapshot: Snapshot, metadata: Metadata, features: Iterable[str] = (), *, rewritten: bool = False
) -> None:
    """Stage new metadata of a table; nothing if it does not change.

    Implements PROTOCOL.md, "Change Metadata" and "Protocol Evolution": the protocol gets the features that the metadata
    needs, and no others. New columns of a table with column mapping get physical names, and its files get row ids if
    row tracking is enabled.

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        metadata: the new metadata.
        features: further table features, by name.
        rewritten: whether all files are replaced in the same commit.

    Raises:
        InvalidArgumentError: a feature does not exist; the table's files do not allow the change of the column mapping.
        UnsupportedFeatureError: the table would need a feature that this engine does not support.
    """
    from refdelta.operations.shared.row_ids import give_row_ids

    metadata = completed(metadata, snapshot.metadata, replacing=rewritten)
    metadata = named_columns(metadata, snapshot.metadata.configuration)
    keeps_files = snapshot.num_files > 0 and not rewritten
    protocol = settled(snapshot.protocol, metadata, features, snapshot.metadata, keeps_files=keeps_files)
    if keeps_files and version_of(metadata.configuration) == 1 != version_of(snapshot.metadata.configuration):
        _check_counted(txn, snapshot)
    if is_enabled(protocol, metadata) and not is_enabled(snapshot.protocol, snapshot.metadata):
        give_row_ids(txn, snapshot)
    stage_table(txn, snapshot, protocol, metadata)


def check_appended_nothing(txn: Transaction, what: str) -> None:
    """Refuse a change of the columns after the transaction has appended rows.

    Args:
        txn: the transaction.
        what: the change, for the message.

    Raises:
        InvalidArgumentError: the transaction has appended rows.
    """
    if any(isinstance(action, Add) for action in txn.staged):
        raise InvalidArgumentError(
            f"a transaction that has appended rows cannot {what}; commit it and begin another one"
        )


def stage_table(txn: Transaction, snapshot: Snapshot, protocol: Protocol, metadata: Metadata) -> None:
    """Stage a table's protocol and metadata, if they change."""
    if protocol != snapshot.protocol:
        txn.stage([protocol])
    if metadata != snapshot.metadata:
        txn.stage([metadata])


def _check_counted(txn: Transaction, snapshot: Snapshot) -> None:
    """Check that the log has the number of rows of each file (PROTOCOL.md, "Iceberg Compatibility V1"). The whole table
    counts as read.
    """
    from refdelta.engine.scan.file_stats import num_records

    txn.read_whole_table()
    unknown = num_records(snapshot.files).null_count
    if unknown:
        raise InvalidArgumentError(
            f"{PROPERTIES_OF_ICEBERG[1]} needs the number of rows of each file, and the statistics of {unknown} of the "
            f"{snapshot.num_files} files lack it"
        )


def noted_version(snapshot: Snapshot) -> int | None:
    """The version that a change of type records, if the table has the preview of type widening; else None.

    It is the version of the first attempt to commit. After each winner, :mod:`refdelta.core.commit.body` records the
    next one.
    """
    return snapshot.version + 1 if "typeWidening-preview" in features_of(snapshot.protocol) else None


def still_protected(metadata: Metadata, before: Metadata) -> Metadata:
    """New metadata of a table, with the property of the old one that protects checkpoints of its history
    (``checkpointProtection``).
    """
    version = (before.configuration or {}).get(PROTECTED)
    if version is None:
        return metadata
    return msgspec.structs.replace(metadata, configuration={**(metadata.configuration or {}), PROTECTED: version})


def in_json(value: Any) -> str:
    """A value as JSON, as Spark writes it in ``operationParameters``."""
    return msgspec.json.encode(value).decode()
