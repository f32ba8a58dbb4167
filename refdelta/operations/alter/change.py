"""What every ALTER TABLE ends with: another metaData action, and the protocol that it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from refdelta.core.log.actions import Add
from refdelta.core.table.column_mapping import completed
from refdelta.core.table.features import features_of
from refdelta.core.table.iceberg_compat import PROPERTIES as PROPERTIES_OF_ICEBERG
from refdelta.core.table.iceberg_compat import version_of
from refdelta.core.table.properties import PROPERTIES
from refdelta.core.table.protocol_choice import settled
from refdelta.core.table.row_tracking import is_enabled, named_columns
from refdelta.core.table.types import schema_json
from refdelta.engine.scan.file_stats import num_records
from refdelta.errors import InvalidArgumentError
from refdelta.operations.dml.row_ids import give_row_ids

if TYPE_CHECKING:
    from collections.abc import Iterable

    from refdelta.core.log.actions import Metadata, Protocol
    from refdelta.core.table.types import StructType
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction

PROTECTED: Final = PROPERTIES["delta.requirecheckpointprotectionbeforeversion"].name


def change_schema(txn: Transaction, snapshot: Snapshot, schema: StructType, features: Iterable[str] = ()) -> None:
    """As :func:`change_table`, where nothing of the metadata but the schema is another one."""
    metadata = msgspec.structs.replace(snapshot.metadata, schema_string=schema_json(schema))
    change_table(txn, snapshot, metadata, features)


def change_table(
    txn: Transaction, snapshot: Snapshot, metadata: Metadata, features: Iterable[str] = (), *, rewritten: bool = False
) -> None:
    """Stage what a table is to be; nothing where it is that already.

    Implements PROTOCOL.md, "Change Metadata" and "Protocol Evolution": the protocol is upgraded by what the metadata
    needs, and by nothing else. Columns of a mapped table that have no physical name get one, and files of a table whose
    rows are to be tracked get row ids.

    Args:
        txn: the transaction.
        snapshot: what it sees.
        metadata: the metadata to come.
        features: table features that are asked for by name.
        rewritten: whether all of its files are replaced in the same commit.

    Raises:
        InvalidArgumentError: a feature that does not exist; a change of how columns are mapped that the table's files
            do not allow.
        UnsupportedFeatureError: the table would need a feature that this engine cannot honour.
    """
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
    """Refuse what changes the columns under which rows were appended before in the transaction.

    Raises ``InvalidArgumentError``, which says that it cannot do ``what``.
    """
    if any(isinstance(action, Add) for action in txn.staged):
        raise InvalidArgumentError(
            f"a transaction that has appended rows cannot {what}; commit it and begin another one"
        )


def stage_table(txn: Transaction, snapshot: Snapshot, protocol: Protocol, metadata: Metadata) -> None:
    """Stage a table's protocol and metadata, each where the table has another one."""
    if protocol != snapshot.protocol:
        txn.stage([protocol])
    if metadata != snapshot.metadata:
        txn.stage([metadata])


def _check_counted(txn: Transaction, snapshot: Snapshot) -> None:
    """See that the log says of each file how many rows it has, as PROTOCOL.md, "Iceberg Compatibility V1" asks. Nobody
    may add another one meanwhile.
    """
    txn.read_whole_table()
    unknown = num_records(snapshot.files).null_count
    if unknown:
        raise InvalidArgumentError(
            f"a table with {PROPERTIES_OF_ICEBERG[1]} says of each file how many rows it has, and the statistics of "
            f"{unknown} of the {snapshot.num_files} files of this one do not"
        )


def noted_version(snapshot: Snapshot) -> int | None:
    """What a change of type notes as its version where the table has the preview of type widening; else None.

    It is that of the first attempt to commit. Behind each winner :mod:`refdelta.core.commit.body` notes the next one.
    """
    return snapshot.version + 1 if "typeWidening-preview" in features_of(snapshot.protocol) else None


def still_protected(metadata: Metadata, before: Metadata) -> Metadata:
    """The metadata of a table that becomes another one, with what protects the history that it keeps
    (``checkpointProtection``).
    """
    version = (before.configuration or {}).get(PROTECTED)
    if version is None:
        return metadata
    return msgspec.structs.replace(metadata, configuration={**(metadata.configuration or {}), PROTECTED: version})


def in_json(value: Any) -> str:
    """A value as Spark writes it among the parameters of an operation."""
    return msgspec.json.encode(value).decode()
