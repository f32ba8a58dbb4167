"""A commit that is not a version yet, read as it would be read afterwards.

A server that ratifies commits of others asks :func:`read_proposed`. It has no rules of its own: it calls the functions
with which the engine opens a version, plans a scan and prepares a statement. The content of data files, and of files of
deletion vectors, is not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from refdelta.arrow.partition import partition_table
from refdelta.core.log.actions import Add, AnyAction, Cdc, Remove
from refdelta.core.log.assigned import RowIds
from refdelta.core.log.paths import data_key
from refdelta.core.log.replay import validate_commit
from refdelta.core.rows.deletion_vector import AbsoluteUri, InlineBytes, locate, parse_bitmap
from refdelta.engine.log.snapshot import load_snapshot, next_snapshot
from refdelta.engine.log.state import reconcile
from refdelta.errors import DeltaError, InvalidLogError
from refdelta.table.partition_values import of_column
from refdelta.table.types import StructField, physical_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from refdelta.core.log.actions import DeletionVectorDescriptor
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.table.types import DataType
    from refdelta_storage.base import Store


def read_proposed(store: Store, before: Snapshot | None, actions: Sequence[AnyAction], size: int) -> Snapshot:
    """The snapshot after a proposed commit, without its files. If this returns, the engine can open that version.

    Metadata and protocol are read only where the commit changes them. The log is read only where it changes the
    partition columns, whose values in the files that stay must be of the new types.

    Args:
        store: the table's folder.
        before: the snapshot of the version before it; None if it creates the table.
        actions: the commit.
        size: its size in bytes.

    Raises:
        DeltaError: the reason for which readers, or statements of this engine, would refuse the version.
    """
    after = next_snapshot(store, before, actions, size)
    validate_commit(actions, after.version)
    after.check_usable()
    if before is not None and RowIds.of(after.domains).mark < RowIds.of(before.domains).mark:
        raise InvalidLogError("the commit lowers the highest row id, so that rows would get ids of others")
    if before is not None and _partition_types(before) != _partition_types(after):
        _check_kept_files(before, after, actions)
    _check_files(after, actions)
    return after


def _partition_types(snapshot: Snapshot) -> list[tuple[str, DataType]] | None:
    if snapshot.metadata.partition_columns == []:
        return []
    try:
        fields = map(snapshot.schema.field, snapshot.partition_columns)
        return [(physical_name(one), one.type) for one in fields]
    except DeltaError:  # of a version that cannot be read, which the commit may mend
        return None


def _check_kept_files(before: Snapshot, after: Snapshot, actions: Sequence[AnyAction]) -> None:
    kept = reconcile(load_snapshot(before.store, before.version).files, [actions])
    partition_table(kept, after.schema, after.partition_columns)


def _check_files(after: Snapshot, actions: Sequence[AnyAction]) -> None:
    fields = {physical_name(one): one for one in map(after.stored_schema.field, after.partition_columns)}
    uri = after.store.uri
    seen: set[tuple[str, str | None]] = set()
    for action in actions:
        if not isinstance(action, (Add, Remove, Cdc)):
            continue
        data_key(action.path, uri)
        if not isinstance(action, Cdc) and action.deletion_vector is not None:
            _check_vector(action.deletion_vector, uri)
        for item in (action.partition_values or {}).items():
            if item not in seen:
                seen.add(item)
                _check_value(item, fields)


def _check_value(item: tuple[str, str | None], fields: dict[str, StructField]) -> None:
    name, text = item
    if name in fields:
        of_column(text, fields[name])


def _check_vector(vector: DeletionVectorDescriptor, uri: str) -> None:
    match locate(vector):
        case AbsoluteUri(place):
            data_key(place, uri)
        case InlineBytes(data):
            parse_bitmap(data, file="the commit", cardinality=vector.cardinality)
