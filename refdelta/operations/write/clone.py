"""SHALLOW CLONE: a new table whose log refers to the files of another one."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import msgspec

from refdelta.core.log.assigned import DOMAIN, ENABLEMENT
from refdelta.core.log.paths import absolute_uri, encode_path
from refdelta.core.rows.deletion_vector import RelativeKey, locate
from refdelta.engine.log.references import referenced_keys
from refdelta.engine.log.removed_files import removed_by_vacuum
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.log.state import without_shared
from refdelta.engine.log.statistics import whole_adds
from refdelta.errors import DataFileNotFoundError
from refdelta.operations.shared.change import PROTECTED
from refdelta.operations.shared.row_ids import counted
from refdelta.table.column_mapping import schema_of
from refdelta.table.features import check_writable
from refdelta.table.row_tracking import ID_COLUMN, VERSION_COLUMN, is_assigned, named_columns
from refdelta.transaction.commit_info import now_ms
from refdelta.transaction.deleted_files import check_no_vacuum_in_progress, missing_keys, unreferenced_since

if TYPE_CHECKING:
    from refdelta.core.log.actions import Add, DeletionVectorDescriptor
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction

# Properties about the history, which the clone does not have.
_OF_THE_HISTORY = (PROTECTED, *ENABLEMENT)


def clone(txn: Transaction, source: Snapshot) -> None:
    """Stage version 0 of the clone: protocol, metadata, domains and files of a version of another table.

    If rows are tracked, they get new ids, as in delta-spark. The ids of the source, in its log and in columns of its
    files, are not used.

    Args:
        txn: the transaction, of a folder without a log.
        source: the version that is cloned.

    Files that the source has removed since are looked for: VACUUM of the source deletes them some day, and the clone
    keeps none of them.

    Raises:
        InvalidLogError: the schema of the source is not valid, so that nothing could read the clone.
        DataFileNotFoundError: files of an older version are gone.
        ConcurrentDeleteReadException: a VACUUM of the source is in progress, and may delete some of them.
        UnsupportedFeatureError: the clone would need a feature that this engine cannot write.
        DataFileNotFoundError, DataFileError: rows are tracked, and a file whose number of rows the log lacks cannot be
            read.
    """
    schema_of(source.metadata)
    _check_files_stay(source)
    left = (*_OF_THE_HISTORY, ID_COLUMN, VERSION_COLUMN)
    configuration = {k: v for k, v in (source.metadata.configuration or {}).items() if k not in left}
    metadata = msgspec.structs.replace(
        source.metadata,
        id=str(uuid.uuid4()),
        created_time=now_ms(),
        configuration=configuration,
    )
    metadata = named_columns(metadata)
    check_writable(source.protocol, metadata)
    tracked = is_assigned(source.protocol, metadata)
    files = counted(source, source.files) if tracked else whole_adds(source.files)
    adds = [_placed(add, source.store.uri) for add in files]
    domains = [domain for name, domain in source.domains.items() if name != DOMAIN]
    txn.stage([source.protocol, metadata, *domains, *adds])
    figures = {
        "sourceTableSize": source.size_bytes,
        "sourceNumOfFiles": source.num_files,
        "numRemovedFiles": 0,
        "numCopiedFiles": 0,
        "removedFilesSize": 0,
        "copiedFilesSize": 0,
    }
    parameters: dict[str, Any] = {
        "source": f"delta.`{source.store.uri}`",
        "sourceVersion": source.version,
        "isShallow": True,
    }
    txn.describe("CLONE", parameters, figures, {"num_added_files": len(adds)})


def _check_files_stay(source: Snapshot) -> None:
    newest = load_snapshot(source.store)
    removed = newest.version > source.version and without_shared(source.files, newest.files)
    if not removed or not removed.num_rows:
        return
    check_no_vacuum_in_progress(newest, unreferenced_since(newest, removed))
    keys = referenced_keys(removed, source.store.uri, resolvable=True).unique().to_pylist()
    if missing := missing_keys(source.store, keys):
        reason = removed_by_vacuum(source.store, source.version) or "probably removed by VACUUM"
        raise DataFileNotFoundError(
            f"version {source.version} cannot be cloned: {len(missing)} of its files are gone, {missing[0]}: {reason}; "
            "clone a newer version",
            file=missing[0],
        )


def _placed(add: Add, table_uri: str) -> Add:
    vector = None if add.deletion_vector is None else _placed_vector(add.deletion_vector, table_uri)
    path = absolute_uri(add.path, table_uri)
    ids = {"base_row_id": None, "default_row_commit_version": None}
    return msgspec.structs.replace(add, path=path, deletion_vector=vector, data_change=True, **ids)


def _placed_vector(vector: DeletionVectorDescriptor, table_uri: str) -> DeletionVectorDescriptor:
    place = locate(vector)
    if not isinstance(place, RelativeKey):
        return vector
    uri = absolute_uri(encode_path(place.key), table_uri)
    return msgspec.structs.replace(vector, storage_type="p", path_or_inline_dv=uri)
