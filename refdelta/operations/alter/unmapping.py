"""The end of a column mapping. All files are rewritten, with the columns by their logical names."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from refdelta.errors import InvalidArgumentError
from refdelta.operations.shared.change import change_table, check_appended_nothing
from refdelta.pruning.stats import load_stats, lookup
from refdelta.table.clustering import clustering_domain
from refdelta.table.column_mapping import mode_of, unmapped
from refdelta.table.protocol_choice import upgraded
from refdelta.table.row_tracking import is_enabled
from refdelta.table.types import parse_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from refdelta.core.log.actions import Add, AnyAction, Metadata
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction


def gives_up_mapping(snapshot: Snapshot, metadata: Metadata) -> bool:
    """True if new metadata ends the column mapping of a table."""
    return snapshot.column_mapping_mode != "none" and mode_of(metadata) == "none"


def remove_mapping(txn: Transaction, snapshot: Snapshot, metadata: Metadata, features: Iterable[str] = ()) -> None:
    """Stage the end of a table's column mapping, with other changes of its metadata.

    Same as delta-spark's REMOVE COLUMN MAPPING: one commit replaces every file, without changes of rows. It conflicts
    with every concurrent change of files.

    Args:
        txn: the transaction. All rows of the table count as read.
        snapshot: the snapshot that it reads.
        metadata: the new metadata, in which the mode is ``none`` or not set.
        features: further table features, by name.

    Raises:
        InvalidArgumentError: Parquet cannot store the name of a column; a property needs the mapping; row tracking is
            enabled in the same commit; the transaction has appended rows.
        UnsupportedFeatureError: the table would need a feature that this engine cannot write.
    """
    from refdelta.operations.layout.reorg_uniform import files_anew

    metadata = unmapped(metadata)
    protocol = upgraded(snapshot.protocol, metadata, features)
    if is_enabled(protocol, metadata) and not is_enabled(snapshot.protocol, snapshot.metadata):
        raise InvalidArgumentError(
            "row tracking cannot be enabled in the commit that ends a column mapping, since that replaces all files; "
            "enable it before or afterwards"
        )
    check_appended_nothing(txn, "end a column mapping, since its new files have the columns by their old names")
    txn.read_whole_table()
    after = dataclasses.replace(snapshot, metadata=metadata, protocol=protocol)
    removed, added = files_anew(txn, snapshot, after, "upgrade")
    change_table(txn, snapshot, metadata, features, rewritten=True)
    txn.stage(clustering_by_names(snapshot, metadata))
    txn.describe(*removed_mapping(removed, added))


def removed_mapping(removed: list[Add], added: list[Add]) -> tuple[str, dict[str, str], dict[str, int]]:
    """The description of the commit, as in delta-spark: the operation, its parameters and its metrics."""
    figures = {
        "numRewrittenFiles": len(removed),
        "numOutputBytes": sum(add.size for add in added),
        "numRemovedBytes": sum(add.size for add in removed),
        "numCopiedRows": sum(int(lookup(load_stats(add.stats), ("numRecords",))) for add in added),
        "numDeletionVectorsRemoved": sum(add.deletion_vector is not None for add in removed),
    }
    return "REMOVE COLUMN MAPPING", {}, figures


def removes_mapping(txn: Transaction) -> bool:
    """True if a transaction ends a column mapping, so that files by the old names cannot be appended."""
    before, after = txn.snapshot, txn.table_to_come
    return before is not None and after is not None and gives_up_mapping(before, after.metadata)


def clustering_by_names(snapshot: Snapshot, metadata: Metadata) -> tuple[AnyAction, ...]:
    """The domain of a table's clustering columns, by their physical names in new metadata; empty if it does not change
    or there are no clustering columns.
    """
    if not snapshot.clustering_columns:
        return ()
    domain = clustering_domain(snapshot.clustering_columns, parse_schema(metadata.schema_string))
    return () if domain in snapshot.domains.values() else (domain,)
